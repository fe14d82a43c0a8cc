/* gct_sim.c: jobs on the simulated network.
 * SPDX-License-Identifier: MIT
 *
 * A host per `ranks_per_host` ranks, sites a, b, ... joined by wide-area links, each rank a process that opens its world on the
 * process's own system table. Site i has 10.i+1.0.0/16, or 192.168.0.0/16 behind 203.0.113.i+1, and 2001:db8:i+1::/64. What the
 * library still holds when a rank is through is an error.
 */
#include "gct.h"

#include "sim/simnet.h"
#include "sim/witness.h"

#include <stdlib.h>

enum { GCT_PORT = 4000, GCT_ROOT_TEXT = 128, GCT_HOSTS_PER_BYTE = 250, GCT_VIRTUAL_LIMIT_S = 600 };

typedef struct gct_sim_job gct_sim_job;
typedef struct gct_sim_event { gct_sim_job *job; const gct_event *event; } gct_sim_event;

struct gct_sim_job {
    const gct_spec *spec;
    sim      *s;
    sim_proc **procs;
    void     *arg;
    int       opened;           /* ranks that are through gc_init */
    char      root[GCT_ROOT_TEXT];
    gct_sim_event *events;
    witness  *witness;          /* or NULL */
};

typedef struct gct_sim_rank {
    gct_sim_job *job;
    const gct_spec *spec;
    gct_main *run;
    void     *arg;
    int       rank, bad;        /* bad: -1 until it is through */
} gct_sim_rank;

static int gct_sim_finder(void)
{
    const sim_proc *p = sim_current();
    return p ? atoi(sim_proc_name(p) + sizeof "rank") : -1;
}

/* ---- events ---- */

/* As the HELLO of a connection says what it is for (boot.c). */
static bool gct_sim_serves(void *purpose, const uint8_t *opening, size_t bytes)
{
    enum { PURPOSE_AT = 6 };
    return !*(const int *)purpose || (bytes > PURPOSE_AT && opening[PURPOSE_AT] == *(const int *)purpose);
}

static void gct_sim_happen(void *of_event, void *unused)
{
    const gct_sim_event *e = of_event;
    gct_event it = *e->event;
    sim_proc *p = e->job->procs[it.a], *q = it.b >= 0 ? e->job->procs[it.b] : NULL;
    sim_host *a = sim_proc_host(p), *b = q ? sim_proc_host(q) : NULL;
    (void)unused;
    switch (it.what) {
    case GCT_KILL:       sim_kill_proc(p); break;
    case GCT_KILL_HOST:  sim_kill_host(a); break;
    case GCT_STOP:       sim_stop_proc(p); break;
    case GCT_CONTINUE:   sim_continue_proc(p); break;
    case GCT_CUT:        sim_cut(a, b); break;
    case GCT_CUT_WAY:    sim_cut_way(a, b); break;
    case GCT_MEND:       sim_mend(a, b); break;
    case GCT_CUT_SITES:  sim_cut_sites(sim_site_of(a), sim_site_of(b)); break;
    case GCT_MEND_SITES: sim_mend_sites(sim_site_of(a), sim_site_of(b)); break;
    case GCT_CUT_CARD:   sim_nic_cut(sim_host_nic(a, 1)); break;
    case GCT_MEND_CARD:  sim_nic_mend(sim_host_nic(a, 1)); break;
    case GCT_FORGET:     (void)sim_nat_forget(sim_site_of(a)); break;
    case GCT_RESET:      e->job->spec->outcome->resets += sim_reset_where(p, q, gct_sim_serves, &it.purpose); break;
    }
}

static void gct_sim_started(gct_sim_job *job)
{
    const gct_spec *spec = job->spec;
    for (int i = 0; i < spec->event_count; i++) {
        job->events[i] = (gct_sim_event){ job, &spec->events[i] };
        sim_at(job->s, sim_now(job->s) + spec->events[i].at, gct_sim_happen, &job->events[i], NULL);
    }
    if (spec->started) {
        spec->started(job->s, job->procs, spec->ranks, job->arg);
    }
}

static void gct_sim_main(sim_proc *p, void *of_rank)
{
    gct_sim_rank *r = of_rank;
    gc_options o;
    gc_comm *world = NULL;
    char text[256];
    gct_options(&o, r->spec, r->rank, r->job->root, sim_host_site(sim_proc_host(p)), text, sizeof text);
    o.alloc = sim_alloc;
    o.alloc_user = p;
    if (r->spec->options) {
        r->spec->options(&o, r->rank, r->arg);
    }
    int code = gci_open(&world, &o, sim_sys(p));
    if (!code && r->job->witness) {
        witness_attach(r->job->witness, world);
    }
    if (!code && ++r->job->opened == r->spec->ranks) {
        gct_sim_started(r->job);
    }
    r->bad = gct_member(r->spec, code, text, world, r->rank, r->run, r->arg);
}

static int64_t gct_sim_or(int64_t given, int64_t otherwise)
{
    return given ? given : otherwise;
}

static void gct_sim_hosts(gct_sim_job *job, int per_host, sim_host **of)
{
    const gct_spec *spec = job->spec;
    sim *s = job->s;
    int sites = spec->sites > 0 ? spec->sites : 1;
    int *hosts = calloc((size_t)sites, sizeof *hosts);
    if (!hosts) {
        abort();
    }
    for (int rank = 0, in_site = 0; rank < spec->ranks; rank++) {
        in_site = rank && gct_site(spec, rank) == gct_site(spec, rank - 1) ? in_site + 1 : 0;
        hosts[gct_site(spec, rank)] += in_site % per_host == 0;
    }
    sim_host **grid = sim_grid(s, sites, hosts, gct_sim_or(spec->lan_latency, 50000), gct_sim_or(spec->lan_rate, 125000000),
                               gct_sim_or(spec->wan_latency, 10 * (int64_t)GCI_NS_PER_MS), gct_sim_or(spec->wan_rate, 1000000));
    for (int rank = 0, host = -1, in_site = 0; rank < spec->ranks; rank++) {
        in_site = rank && gct_site(spec, rank) == gct_site(spec, rank - 1) ? in_site + 1 : 0;
        host += in_site % per_host == 0;
        of[rank] = grid[host];
    }
    snprintf(job->root, sizeof job->root, "10.1.0.1:%d", GCT_PORT);
    free(grid);
    free(hosts);
}

/* ---- places ---- */

static enum sim_verdict gct_sim_verdict(enum gct_wall wall)
{
    return wall == GCT_DROP ? SIM_DROP : wall == GCT_REFUSE ? SIM_REFUSE : SIM_PASS;
}

static sim_host *gct_sim_place_host(sim *s, const gct_spec *spec, const gct_place *place, sim_site *site, int i, int n)
{
    const char *families = place->families ? place->families : "4";
    char name[32], v4[64], v6[64];
    int64_t rate = gct_sim_or(spec->lan_rate, 125000000);
    snprintf(name, sizeof name, "%c%d", 'a' + i, n + 1);
    snprintf(v6, sizeof v6, "2001:db8:%x::%x/64", i + 1, n + 1);
    snprintf(v4, sizeof v4, place->nat ? "192.168.%d.%d/16" : "10.%d.%d.%d/16", place->nat ? n / GCT_HOSTS_PER_BYTE : i + 1,
             place->nat ? n % GCT_HOSTS_PER_BYTE + 1 : n / GCT_HOSTS_PER_BYTE, n % GCT_HOSTS_PER_BYTE + 1);
    sim_host *h = sim_host_new(site, name, *families == '6' ? v6 : v4, rate);
    if (strcmp(families, "46") == 0) {
        sim_nic_address(sim_host_nic(h, 0), v6, 0);
    }
    if (place->cards) {
        snprintf(name, sizeof name, "%c cards", 'a' + i);
        snprintf(v4, sizeof v4, "10.99.%d.%d/16", n / GCT_HOSTS_PER_BYTE, n % GCT_HOSTS_PER_BYTE + 1);
        sim_nic_new(h, "eth1", sim_net_new(s, name, gct_sim_or(spec->lan_latency, 50000)), v4, rate);
    }
    return h;
}

static void gct_sim_walls(sim *s, const gct_place *place, sim_site *site, sim_host *h)
{
    enum sim_verdict wall = gct_sim_verdict(h ? place->host_wall : place->wall);
    sim_rule rule = { .to_site = h ? NULL : site, .to_host = h, .across = !h };
    if (wall != SIM_PASS && place->port_last) {
        rule.port_first = place->port_first;
        rule.port_last = place->port_last;
        sim_rule_add(s, &rule);
        rule.port_first = rule.port_last = 0;
    }
    rule.verdict = wall;
    if (wall != SIM_PASS) {
        sim_rule_add(s, &rule);
    }
}

static sim_site *gct_sim_place(sim *s, const gct_spec *spec, int i, sim_site **sites)
{
    const gct_place *place = &spec->places[i];
    char name[2] = { (char)('a' + i), 0 }, address[32];
    sim_site *site = sites[i] = sim_site_new(s, name, gct_sim_or(spec->lan_latency, 50000));
    for (int other = 0; other < i; other++) {
        sim_wan(site, sites[other], gct_sim_or(spec->wan_latency, 10 * (int64_t)GCI_NS_PER_MS), gct_sim_or(spec->wan_rate, 1000000));
    }
    if (place->nat) {
        snprintf(address, sizeof address, "203.0.113.%d", i + 1);
        sim_nat_new(site, address, place->nat_idle * GCI_SECOND, place->nat_rst ? SIM_REFUSE : SIM_DROP);
        sim_nat_hairpin(site, true);
    }
    gct_sim_walls(s, place, site, NULL);
    return site;
}

/* Where rank 0 listens, as others have to name it. */
static void gct_sim_root(gct_sim_job *job, sim_site *site, sim_host *h)
{
    const gct_place *place = job->spec->places;
    const char *families = place->families ? place->families : "4";
    size_t n = 0;
    if (strchr(families, '4')) {
        n = (size_t)snprintf(job->root, sizeof job->root, place->nat ? "203.0.113.1:%d" : "10.1.0.1:%d", GCT_PORT);
    }
    if (strchr(families, '6')) {
        snprintf(job->root + n, sizeof job->root - n, "%s[2001:db8:1::1]:%d", n ? "," : "", GCT_PORT);
    }
    if (place->nat) {
        sim_nat_forward(site, GCT_PORT, h, GCT_PORT);
    }
}

/* The host of each rank. */
static void gct_sim_places(gct_sim_job *job, int per_host, sim_host **of)
{
    const gct_spec *spec = job->spec;
    sim_site *sites[GCT_PLACES];
    int places = gct_site(spec, spec->ranks - 1) + 1, rank = 0;
    for (int i = 0; i < places; i++) {
        gct_sim_place(job->s, spec, i, sites);
        for (int n = 0; n < spec->places[i].ranks && rank < spec->ranks; n++, rank++) {
            if (n % per_host == 0) {
                of[rank] = gct_sim_place_host(job->s, spec, &spec->places[i], sites[i], i, n / per_host);
                gct_sim_walls(job->s, &spec->places[i], NULL, of[rank]);
            } else {
                of[rank] = of[rank - 1];
            }
        }
    }
    sim_rule_add(job->s, &(sim_rule){ .to_host = of[0], .port_first = GCT_PORT, .port_last = GCT_PORT, .verdict = SIM_PASS });
    for (int i = 0; i < places; i++) {
        for (int to = 0; to < places; to++) {
            if (spec->places[i].not_to >> to & 1) {
                sim_rule_add(job->s, &(sim_rule){ .from_site = sites[i], .to_site = sites[to], .verdict = SIM_DROP });
            }
        }
    }
    gct_sim_root(job, sites[0], of[0]);
}

static int gct_sim_judge(const gct_sim_rank *r, const sim_proc *p)
{
    sim_leftovers left = sim_proc_leftovers(p);
    if (sim_proc_killed(p)) {
        return 0;
    }
    if (!sim_proc_done(p)) {
        fprintf(stderr, "gct: rank %d did not come to an end\n", r->rank);
        return 1;
    }
    if (!r->bad && (left.blocks || left.fds || left.threads || left.monitors)) {
        fprintf(stderr, "gct: rank %d still holds %d blocks (%zu bytes), %d descriptors, %d threads, %d monitors\n", r->rank, left.blocks,
                left.bytes, left.fds, left.threads, left.monitors);
        return 1;
    }
    return r->bad != 0;
}

/* What is wrong with its collectives. All must have ended if everything else went well. */
static int gct_sim_hear_witness(gct_sim_job *job, int failed)
{
    bool whole = !failed && !job->spec->outcome->verdict && !job->spec->leave_anyhow;
    for (int rank = 0; rank < job->spec->ranks; rank++) {
        whole &= !sim_proc_killed(job->procs[rank]);
    }
    if (!job->witness) {
        return 0;
    }
    witness_report report = witness_end(job->witness, whole);
    job->spec->outcome->collectives = report.proven;
    return report.faults;
}

int gct_job_sim(const gct_spec *spec, uint64_t seed, gct_main *run, void *arg)
{
    int per_host = spec->ranks_per_host > 0 ? spec->ranks_per_host : 1, failed = 0;
    sim *s = sim_new(seed);
    if (spec->calm) {
        sim_calm(s);
    }
    sim_tune(s)->real_limit = spec->time_limit ? spec->time_limit : 60;
    sim_tune(s)->time_limit = gct_sim_or(spec->virtual_limit, GCT_VIRTUAL_LIMIT_S * GCI_SECOND);
    sim_host **hosts = calloc((size_t)spec->ranks, sizeof *hosts);
    sim_proc **procs = calloc((size_t)spec->ranks, sizeof *procs);
    gct_sim_rank *ranks = calloc((size_t)spec->ranks, sizeof *ranks);
    if (!procs || !ranks || !hosts) {
        abort();
    }
    gct_sim_job job = { .spec = spec, .s = s, .procs = procs, .arg = arg };
    job.witness = spec->unwitnessed ? NULL : witness_new(stderr);
    job.events = calloc((size_t)spec->event_count + 1, sizeof *job.events);
    if (!job.events) {
        abort();
    }
    (spec->places ? gct_sim_places : gct_sim_hosts)(&job, per_host, hosts);
    for (int rank = 0; rank < spec->ranks; rank++) {
        char name[32];
        snprintf(name, sizeof name, "rank %d", rank);
        ranks[rank] = (gct_sim_rank){ .job = &job, .spec = spec, .run = run, .arg = arg, .rank = rank, .bad = -1 };
        procs[rank] = sim_spawn(hosts[rank], name, gct_sim_main, &ranks[rank]);
    }
    gct_set_rank_finder(gct_sim_finder);
    if (spec->arrange) {
        spec->arrange(s, procs, spec->ranks, arg);
    }
    spec->outcome->verdict = sim_run(s);
    spec->outcome->trace = sim_trace_hash(s);
    spec->outcome->virtual_ns = sim_now(s);
    for (int rank = 0; rank < spec->ranks; rank++) {
        failed += gct_sim_judge(&ranks[rank], procs[rank]);
    }
    failed += gct_sim_hear_witness(&job, failed);
    gct_set_rank_finder(NULL);
    sim_free(s);
    free(ranks);
    free(procs);
    free(hosts);
    free(job.events);
    return failed;
}
