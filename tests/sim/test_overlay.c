/* test_overlay.c: whole jobs on networks where not everybody reaches everybody: own links where they can be had, relays where
 * not, and nothing lost, doubled or stuck, whatever dies, is cut, reset or forgotten meanwhile.
 * SPDX-License-Identifier: MIT
 *
 * Random rounds: each has a seed that fixes everything; a round that fails prints it, and GCT_SEED=<that> GCT_ROUNDS=1 has it
 * again. GCT_ROUNDS=n: 1 + n/100 of each kind, without it 2. GCT_LONG=1 adds 20 jobs of 515 ranks. TEST=<word> runs the tests whose
 * name has it. GCT_VERBOSE=1 prints every round. time limit: 1200 s
 *
 * Every byte of every message is checked. What must come to an end does so within the limit of virtual time, or the simulator
 * says who waits for what. Ranks meet at shared counters rather than by messages, so that nobody leaves while others need him.
 */
#define _GNU_SOURCE
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 520, EVENTS_MAX = 64, TAG_SMALL = 1 << 20, TAG_BULK = 2 << 20, TAG_RING = 3 << 20, MIB = 1 << 20 };
#define MS INT64_C(1000000)

typedef struct transfer { int from, to; size_t bytes; } transfer;

typedef struct job {
    uint64_t    seed;
    int         ranks, direct, queue, credits;      /* as the options of that name; 0 and direct 1: the default */
    bool        quiet;                              /* a deadlock is what is wanted */
    size_t      buffer;                             /* of a connection in the kernels, each end; 0: as usual */
    const char *routing, *ports;
    double      peer_timeout;
    transfer   *bulk;
    int         bulks;
    bool        dies[RANKS_MAX];                    /* or is without descriptors for good ... */
    bool        starves[RANKS_MAX];                 /* ... after so many more, or until a time after the start */
    int         spare;
    int64_t     until;                              /* 0: for good */
    int         survivors, arrived[8];              /* at meeting points */
    bool        bad;                                /* somebody found something wrong: no need to go on */
    int64_t     begun, last_death;                  /* last_death: known to all by then */
    int64_t     longest;
    uint64_t    pauses;
    uint64_t    relayed[RANKS_MAX];
    gct_event   event[EVENTS_MAX];
    int         events;
    gct_outcome outcome;
} job;

static uint64_t draw(uint64_t *state, uint64_t below) { return gct_random(state) % below; }
static int rounds(void) { const char *n = getenv("GCT_ROUNDS"); return n ? 1 + atoi(n) / 100 : 2; }
static bool is_long(void) { const char *n = getenv("GCT_LONG"); return n && *n == '1'; }
static int64_t now(void) { return sim_sys(sim_current())->now(sim_sys(sim_current())); }

static void options(gc_options *o, int rank, void *arg)
{
    const job *j = arg;
    (void)rank;
    o->direct = j->direct;
    o->queue_packets = j->queue;
    o->credits = j->credits;
    o->routing = j->routing;
    o->ports = j->ports;
    o->peer_timeout = j->peer_timeout;
}

/* All that live come here before anybody goes on. No message is needed for it, but the library may work. */
static int meet(gc_comm *world, job *j, int where)
{
    j->arrived[where]++;
    for (int64_t give_up = now() + 500 * GCI_SECOND; j->arrived[where] < j->survivors;) {
        if (j->bad) {
            return 1;
        }
        gct_require(now() < give_up, "only %d of %d came to meeting point %d", j->arrived[where], j->survivors, where);
        (void)gc_progress(world);
        sim_sleep(sim_current(), 5 * MS);
    }
    return 0;
}

static uint64_t relayed(const gc_comm *world)
{
    gc_stats stats = { .size = sizeof stats };
    (void)gc_get_stats(world, &stats);
    return stats.relayed_bytes;
}

/* ---- what ranks do ---- */

/* To everybody, in an order of its own. bytes 0: a few, different for each pair. */
static size_t pair_bytes(const job *j, size_t bytes, int from, int to)
{
    uint64_t state = j->seed ^ (uint64_t)from << 32 ^ (uint64_t)to;
    return bytes ? bytes : (size_t)draw(&state, 200);
}

typedef struct pending { gc_request *request; uint8_t *buf; size_t bytes; int peer, tag; bool receive; } pending;

static int post_receive(gc_comm *world, pending *p, int from, int tag, size_t bytes)
{
    *p = (pending){ .buf = gct_buffer(bytes), .bytes = bytes, .peer = from, .tag = tag, .receive = true };
    return gc_irecv(world, p->buf, bytes, from, tag, &p->request);
}

static int post_send(gc_comm *world, pending *p, int me, int to, int tag, size_t bytes)
{
    *p = (pending){ .buf = gct_buffer(bytes), .bytes = bytes, .peer = to, .tag = tag };
    gct_fill(p->buf, bytes, me, tag);
    return gc_isend(world, p->buf, bytes, to, tag, &p->request);
}

/* Freed by the harness if its owner is killed. */
static void *zeroed(size_t bytes) { return memset(gct_buffer(bytes), 0, bytes); }

/* May what is between this rank and that one be lost? */
static bool may_fail(const job *j, int peer)
{
    return peer != gct_rank() && (j->dies[peer] || (j->dies[gct_rank()] && j->starves[gct_rank()]));
}

/* Between survivors everything arrives; with the dead it may, or ends with their name. */
static int finish(const job *j, pending *p)
{
    gc_status s;
    bool refused = !p->request;
    int code = gc_wait(&p->request, &s), bad;
    if (refused) {
        return gct_buffer_free(p->buf);
    }
    if (code && may_fail(j, p->peer)) {
        gct_require(code == GC_ERR_PEER && s.fault_rank == p->peer, "with %d, who died: %s, and %d is blamed", p->peer,
                    gc_strerror(code), s.fault_rank);
        return gct_buffer_free(p->buf);
    }
    gct_require(!code, "%s %d, tag %d, %zu bytes: %s", p->receive ? "from" : "to", p->peer, p->tag, p->bytes,
                gc_strerror(code));
    if (p->receive) {
        gct_require(s.bytes == p->bytes && s.source == p->peer && s.tag == p->tag, "%zu bytes from %d with tag %d", s.bytes,
                    s.source, s.tag);
        if (gct_check(p->buf, p->bytes, p->peer, p->tag)) {
            return 1;
        }
    }
    bad = gct_buffer_free(p->buf);
    return bad;
}

/* A request that was refused at once counts as one that ended so. */
static int begun(const job *j, int code, int peer)
{
    gct_require(!code || (code == GC_ERR_PEER && may_fail(j, peer)), "with %d: %s", peer, gc_strerror(code));
    return 0;
}

/* Those with the dead first: they do not last. */
static int finish_all(const job *j, pending *p, int n)
{
    int bad = 0;
    int64_t since = now();
    for (int dead = 1; dead >= 0; dead--) {
        for (int i = 0; i < n && !bad; i++) {
            bad = may_fail(j, p[i].peer) == dead ? finish(j, &p[i]) : 0;
        }
        gct_require(!dead || !j->last_death || since > j->begun + j->last_death || now() <= j->begun + j->last_death,
                    "what involves the dead ended %.3f s after the start, but should by %.3f s", (double)(now() - j->begun) / 1e9,
                    (double)j->last_death / 1e9);
    }
    return bad;
}

static int all_to_all(gc_comm *world, int rank, int size, job *j, size_t bytes, int tag)
{
    uint64_t state = j->seed + (uint64_t)rank;
    pending *p = zeroed(2 * (size_t)size * sizeof *p);
    int *order = zeroed((size_t)size * sizeof *order), bad = 0;
    for (int i = 0; i < size; i++) {
        int at = (int)draw(&state, (uint64_t)i + 1);
        order[i] = order[at];
        order[at] = i;
        bad |= begun(j, post_receive(world, &p[i], i, tag, pair_bytes(j, bytes, i, rank)), i);
    }
    for (int i = 0; i < size; i++) {
        bad |= begun(j, post_send(world, &p[size + i], rank, order[i], tag, pair_bytes(j, bytes, rank, order[i])), order[i]);
    }
    bad = bad || finish_all(j, p, 2 * size);
    return bad | gct_buffer_free(p) | gct_buffer_free(order);
}

static int bulk_begin(gc_comm *world, int rank, const job *j, pending *p, int *begun_)
{
    int n = 0, bad = 0;
    for (int i = 0; i < j->bulks; i++) {
        const transfer *t = &j->bulk[i];
        if (t->to == rank) {
            bad |= begun(j, post_receive(world, &p[n++], t->from, TAG_BULK + i, t->bytes), t->from);
        }
        if (t->from == rank) {
            bad |= begun(j, post_send(world, &p[n++], rank, t->to, TAG_BULK + i, t->bytes), t->to);
        }
    }
    *begun_ = n;
    return bad;
}

static int ring(gc_comm *world, int rank, int size, size_t bytes)
{
    uint8_t *out = gct_buffer(bytes), *in = gct_buffer(bytes);
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    gc_status s;
    for (int i = 0; i < 3; i++) {
        gct_fill(out, bytes, rank, TAG_RING + i);
        gct_ok(gc_sendrecv(world, out, bytes, next, TAG_RING + i, in, bytes, before, TAG_RING + i, &s));
        gct_require(s.bytes == bytes && !gct_check(in, bytes, before, TAG_RING + i), "%zu bytes", s.bytes);
    }
    return gct_buffer_free(out) | gct_buffer_free(in);
}

static int collectives(gc_comm *world, int rank, int size, size_t bytes)
{
    uint8_t *own = gct_buffer(bytes), *all = gct_buffer(bytes * (size_t)size);
    int64_t mine[3] = { rank + 1, rank, -rank }, sum[3];
    int64_t total = (int64_t)size * (size - 1) / 2;
    int bad = 0;
    for (int root = 0; root < size && !bad; root += 1 + size / 3) {
        gct_ok(gc_barrier(world));
        gct_fill(own, bytes, rank == root ? root : -1, root);
        gct_ok(gc_bcast(world, own, bytes, root));
        bad |= gct_check(own, bytes, root, root);
        gct_fill(own, bytes, rank, root);
        gct_ok(gc_gather(world, own, bytes, all, root));
        for (int i = 0; i < size && rank == root; i++) {
            bad |= gct_check(all + (size_t)i * bytes, bytes, i, root);
        }
        gct_ok(gc_allgather(world, own, bytes, all));
        for (int i = 0; i < size; i++) {
            bad |= gct_check(all + (size_t)i * bytes, bytes, i, root);
        }
        gct_ok(gc_reduce(world, mine, sum, 3, GC_INT64, GC_SUM, root));
        gct_require(rank != root || (sum[0] == total + size && sum[1] == total && sum[2] == -total), "reduce to %d", root);
        gct_ok(gc_allreduce(world, mine, sum, 3, GC_INT64, GC_MAX));
        gct_require(sum[0] == size && sum[1] == size - 1 && sum[2] == 0, "allreduce");
    }
    return bad | gct_buffer_free(own) | gct_buffer_free(all);
}

/* Nothing is left over: no message came twice. Then nobody needs anybody any more. */
static int nothing_more(gc_comm *world, int size, job *j)
{
    enum { LAST = 7 };
    for (int i = 0; i < size; i++) {
        int found = 0;
        gc_status s;
        int code = gc_iprobe(world, i, GC_ANY_TAG, &found, &s);
        gct_require(!code || may_fail(j, i), "probe of %d: %s", i, gc_strerror(code));
        gct_require(!found || may_fail(j, i), "a message from %d with tag %d that nobody sent", i, s.tag);
    }
    return meet(world, j, LAST);
}

/* ---- worlds: who can connect to whom ---- */

typedef struct place_list { const char *name; gct_place place[4]; int ranks; const char *ports; } place_list;

static const place_list worlds[] = {
    { "two NATs and a public site", { { .ranks = 3 }, { .ranks = 3, .nat = true }, { .ranks = 3, .nat = true } }, 9, NULL },
    { "a firewall that lets out", { { .ranks = 4 }, { .ranks = 4, .wall = GCT_DROP } }, 8, NULL },
    { "a firewall that refuses", { { .ranks = 3 }, { .ranks = 4, .wall = GCT_REFUSE }, { .ranks = 2 } }, 9, NULL },
    { "two firewalls", { { .ranks = 2 }, { .ranks = 3, .wall = GCT_DROP }, { .ranks = 3, .wall = GCT_REFUSE } }, 8, NULL },
    { "firewalls with open ports", { { .ranks = 2 }, { .ranks = 3, .wall = GCT_DROP, .port_first = 6000, .port_last = 6015 },
                                     { .ranks = 3, .wall = GCT_DROP, .port_first = 6000, .port_last = 6015 } }, 8, "6000-6015" },
    { "families", { { .ranks = 2, .families = "46" }, { .ranks = 3, .families = "4" }, { .ranks = 3, .families = "6" } }, 8, NULL },
    { "hosts that let nobody in", { { .ranks = 3 }, { .ranks = 5, .host_wall = GCT_DROP } }, 8, NULL },
    { "a line of sites", { { .ranks = 2, .not_to = 4 }, { .ranks = 2 }, { .ranks = 3, .not_to = 1 } }, 7, NULL },
    { "rank 0 behind a NAT", { { .ranks = 2, .nat = true }, { .ranks = 3 }, { .ranks = 2, .nat = true, .nat_rst = true } }, 7, NULL },
    { "one way between sites", { { .ranks = 3, .not_to = 2 }, { .ranks = 3 } }, 6, NULL },
};

static int site_of(const place_list *w, int rank)
{
    int i = 0;
    while (rank >= w->place[i].ranks) {
        rank -= w->place[i++].ranks;
    }
    return i;
}

static bool common_family(const gct_place *a, const gct_place *b, char family)
{
    return strchr(a->families ? a->families : "4", family) && strchr(b->families ? b->families : "4", family);
}

/* Can a connect to b? Rank 0 is let in by firewalls; where it listens behind a NAT, only those know who were told. */
static bool can_connect(const place_list *w, int a, int b)
{
    int i = site_of(w, a), k = site_of(w, b);
    const gct_place *from = &w->place[i], *to = &w->place[k];
    bool outside = i != k;
    if (to->host_wall) {
        return false;
    }
    if (outside && b && ((to->wall && !to->port_last) || from->not_to >> k & 1)) {
        return false;
    }
    return common_family(from, to, '6') || (common_family(from, to, '4') && !(outside && to->nat));
}

typedef struct reach { job j; size_t unreached, unclear; uint64_t all_relayed; } reach;

static void reach_options(gc_options *o, int rank, void *arg) { options(o, rank, &((reach *)arg)->j); }

static int reaching(gc_comm *world, int rank, int size, void *arg)
{
    reach *r = arg;
    job *j = &r->j;
    if (ring(world, rank, size, 100) || all_to_all(world, rank, size, j, 0, TAG_SMALL) || collectives(world, rank, size, 3000)) {
        return 1;
    }
    sim_sleep(sim_current(), 20 * GCI_SECOND);         /* links that take their time are there by now */
    if (meet(world, j, 0) || all_to_all(world, rank, size, j, 100, TAG_SMALL + 1) || meet(world, j, 1)) {
        return 1;
    }
    j->relayed[rank] = relayed(world);
    if (meet(world, j, 2) || all_to_all(world, rank, size, j, MIB, TAG_SMALL + 2) || meet(world, j, 3)) {
        return 1;
    }
    r->all_relayed += relayed(world) - j->relayed[rank];
    if (ring(world, rank, size, MIB) || collectives(world, rank, size, 70000)) {
        return 1;
    }
    return meet(world, j, 4) || nothing_more(world, size, j);
}

static void reach_world(const place_list *w, uint64_t seed)
{
    reach *r = test_calloc(1, sizeof *r);
    r->j = (job){ .seed = seed, .ranks = w->ranks, .survivors = w->ranks, .direct = 1, .ports = w->ports };
    for (int a = 0; a < w->ranks; a++) {
        for (int b = 0; b < w->ranks; b++) {
            bool apart = a != b && !can_connect(w, a, b) && !can_connect(w, b, a);
            *(w->place[0].nat && (!a || !b) ? &r->unclear : &r->unreached) += apart;
        }
    }
    int failed = gct_job(&(gct_spec){ .ranks = w->ranks, .places = w->place, .seed = seed, .options = reach_options, .wan_rate = 10000000,
                                      .outcome = &r->j.outcome }, reaching, r);
    print_message("    %-28s %zu pairs out of reach, %.1f MiB of each 1 MiB relayed, %.1f s\n", w->name, r->unreached,
                  (double)r->all_relayed / MIB, (double)r->j.outcome.virtual_ns / 1e9);
    if (failed) {
        fail_msg("%s: GCT_SEED=%llu", w->name, (unsigned long long)seed);
    }
    /* Each byte of those pairs passes a relay at least; the others have links of their own by now. */
    assert_true(r->all_relayed >= r->unreached * MIB);
    if (!r->unreached && !r->unclear) {
        assert_true(r->all_relayed == 0);
    }
    test_free(r);
}

static void test_worlds(void **state)
{
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < rounds(); i++) {
        for (size_t w = 0; w < GCI_COUNT(worlds); w++) {
            reach_world(&worlds[w], seed + (uint64_t)i);
        }
    }
}

/* ---- everything over relays ---- */

static size_t bulk_bytes(uint64_t *state)
{
    static const size_t edge[] = { 0, 1, 1448, 32767, 32768, 65535, 65536, 65537, 131072 };
    uint64_t kind = draw(state, 8);
    return kind < 3 ? edge[draw(state, GCI_COUNT(edge))] : kind < 7 ? (size_t)draw(state, 100000) : (size_t)draw(state, MIB);
}

static job *job_new(uint64_t seed, int ranks, int bulks)
{
    static const char *const routing[] = { "updown-dfs", "updown-bfs", "ordered" };
    uint64_t state = seed;
    job *j = test_calloc(1, sizeof *j);
    *j = (job){ .seed = seed, .bulks = bulks, .peer_timeout = 10 };
    j->ranks = j->survivors = ranks ? ranks : 16 + (int)draw(&state, 49);
    j->routing = routing[draw(&state, GCI_COUNT(routing))];
    j->queue = draw(&state, 2) ? 1 : 8;
    j->credits = draw(&state, 2) ? 1 : 64;
    j->buffer = draw(&state, 4) ? (size_t)1024 << draw(&state, 7) : 0;
    j->bulk = test_calloc((size_t)bulks + 1, sizeof *j->bulk);
    for (int i = 0; i < bulks; i++) {
        j->bulk[i] = (transfer){ (int)draw(&state, (uint64_t)j->ranks), (int)draw(&state, (uint64_t)j->ranks), bulk_bytes(&state) };
    }
    return j;
}

static void job_free(job *j)
{
    test_free(j->bulk);
    test_free(j);
}

/* Bulk transfers, and meanwhile two exchanges. */
static int all_at_once(gc_comm *world, int rank, int size, job *j)
{
    size_t each = (size_t)(16 * MIB / (size * size));
    pending *p = zeroed(2 * (size_t)j->bulks * sizeof *p);
    int n = 0;
    int bad = bulk_begin(world, rank, j, p, &n) || all_to_all(world, rank, size, j, 0, TAG_SMALL) ||
              all_to_all(world, rank, size, j, each, TAG_SMALL + 1) || finish_all(j, p, n);
    return bad | gct_buffer_free(p);
}

static int routed(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    int bad = all_at_once(world, rank, size, j);
    j->bad |= bad;
    bad = bad || meet(world, j, 0) || nothing_more(world, size, j);
    j->relayed[rank] = relayed(world);
    return bad;
}

/* Where kernels hold much, cycles of full queues hardly come about. */
static void arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const job *j = arg;
    (void)procs; (void)ranks;
    if (j->buffer) {
        sim_tune(s)->autotune = false;
        sim_tune(s)->send_buffer = sim_tune(s)->recv_buffer = j->buffer;
    }
}

static void feed(void *proc, void *unused)
{
    (void)unused;
    sim_fd_limit(proc, 0);
}

static void started(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    job *j = arg;
    j->begun = sim_now(s);
    for (int rank = 0; rank < ranks; rank++) {
        if (j->starves[rank]) {
            sim_fd_limit(procs[rank], sim_fd_next(procs[rank]) + j->spare);
        }
        if (j->starves[rank] && j->until) {
            sim_at(s, j->begun + j->until, feed, procs[rank], NULL);
        }
    }
}

static int run_job(job *j, gct_main *run, const char *what)
{
    uint64_t state = ~j->seed;
    bool dead = j->survivors < j->ranks || j->last_death;
    int sites = 1 + (int)draw(&state, 5), per_host = dead ? 1 : 1 + (int)draw(&state, 3) / 2;
    gct_spec spec = { .ranks = j->ranks, .sites = sites, .ranks_per_host = per_host, .seed = j->seed, .options = options,
                      .leave_anyhow = dead, .wan_rate = 4000000, .events = j->event, .event_count = j->events, .arrange = arrange,
                      .started = started, .time_limit = j->ranks > 100 ? 240 : 30, .outcome = &j->outcome };
    int failed = gct_job(&spec, run, j);
    if ((failed && !j->quiet) || getenv("GCT_VERBOSE")) {
        print_message("    %s: seed %llu: %d ranks in %d sites, %d a host, %s, queue_packets %d, credits %d, buffers %zu, direct %d, "
                      "%d events: %d failed, %.3f s\n", what, (unsigned long long)j->seed, j->ranks, sites, per_host, j->routing ? j->routing : "default", j->queue,
                      j->credits, j->buffer, j->direct, j->events, failed, (double)j->outcome.virtual_ns / 1e9);
    }
    return failed;
}

static void routed_rounds(int n, int ranks)
{
    uint64_t seed = gct_seed();
    int failed = 0;
    for (int i = 0; i < n; i++) {
        job *j = job_new(seed + (uint64_t)i, ranks, 100);
        uint64_t all = 0;
        failed += run_job(j, routed, "routed") != 0;
        for (int rank = 0; rank < j->ranks; rank++) {
            all += j->relayed[rank];
        }
        assert_true(all > 0 || failed);
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* The same with routes that go any way must get stuck before long: so the rounds above could. */
static void test_cycles_are_found(void **state)
{
    (void)state;
    bool found = false;
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    FILE *none = fopen("/dev/null", "w");
    dup2(fileno(none), STDERR_FILENO);
    for (uint64_t seed = 1; seed <= 60 && !found; seed++) {
        job *j = job_new(seed, 0, 100);
        j->routing = "unrestricted";
        j->queue = j->credits = 1;
        j->buffer = 1024;
        j->quiet = true;
        found = run_job(j, routed, "unrestricted") && j->outcome.verdict == SIM_DEADLOCK;
        job_free(j);
    }
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    fclose(none);
    close(kept);
    assert_true(found);
}

static void test_routed(void **state) { (void)state; routed_rounds(3 * rounds(), 0); }
static void test_routed_515(void **state) { (void)state; routed_rounds(is_long() ? 20 : 0, 515); }

/* ---- relays die on the way ---- */

static void kill_some(job *j, int victims)
{
    uint64_t state = j->seed * 3 + 1;
    for (int i = 0; i < victims; i++) {
        int victim = (int)draw(&state, (uint64_t)j->ranks);
        if (!j->dies[victim]) {
            j->dies[victim] = true;
            j->survivors--;
            bool silently = draw(&state, 4) == 0;       /* the power goes off */
            int64_t at = (int64_t)draw(&state, (uint64_t)(draw(&state, 2) ? 3 * GCI_SECOND : 300 * MS));
            int64_t known = at + (silently ? (int64_t)(j->peer_timeout * 1e9) : 0) + GCI_SECOND;
            j->event[j->events++] = (gct_event){ .at = at, .what = silently ? GCT_KILL_HOST : GCT_KILL, .a = victim };
            j->last_death = known > j->last_death ? known : j->last_death;
        }
    }
}

/* Those who die compute until then once their part is done; that is what the others have to live with. */
static int mortal(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    if (j->dies[rank]) {
        (void)all_at_once(world, rank, size, j);
        sim_sleep(sim_current(), 1000 * GCI_SECOND);
    }
    return routed(world, rank, size, arg);
}

static void test_deaths(void **state)
{
    int failed = 0;
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < 3 * rounds(); i++) {
        job *j = job_new(seed + (uint64_t)i, 0, 100);
        kill_some(j, i % 3 == 2 ? 3 : 1);
        failed += run_job(j, mortal, "deaths") != 0;
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* ---- out of descriptors ---- */

/* Nobody has opened a link before descriptors are short. */
static int poor(gc_comm *world, int rank, int size, void *arg)
{
    return meet(world, arg, 1) || routed(world, rank, size, arg);
}

/* Right after the start, for good: who has nothing else goes without that rank, in time. */
static void test_starved(void **state)
{
    int failed = 0;
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < 4 * rounds(); i++) {
        job *j = job_new(seed + (uint64_t)i, 0, 100);
        uint64_t dice = j->seed * 7 + 1;
        int victim = (int)draw(&dice, (uint64_t)j->ranks);
        j->direct = i % 2;
        j->spare = (int)draw(&dice, 2) * (int)draw(&dice, 6);
        j->starves[victim] = j->dies[victim] = true;
        j->last_death = 80 * GCI_SECOND;
        failed += run_job(j, poor, "starved") != 0;
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* For a while, and nobody notices anything but that. */
static void test_starved_for_a_while(void **state)
{
    int failed = 0;
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < 4 * rounds(); i++) {
        job *j = job_new(seed + (uint64_t)i, 0, 100);
        uint64_t dice = j->seed * 7 + 1;
        j->direct = i % 2;
        j->peer_timeout = 30;
        j->until = 20 * GCI_SECOND;
        for (int n = 1 + (int)draw(&dice, 3); n--;) {
            j->starves[draw(&dice, (uint64_t)j->ranks)] = true;
        }
        failed += run_job(j, poor, "starved for a while") != 0;
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* One rank of a few is short of descriptors from the start on. */
typedef struct poor_start { job j; int victim, limit; char text[256]; } poor_start;

static void poor_options(gc_options *o, int rank, void *arg)
{
    options(o, rank, &((poor_start *)arg)->j);
    o->start_timeout = 20;
}

static void poor_arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const poor_start *t = arg;
    (void)s; (void)ranks;
    sim_fd_limit(procs[t->victim], t->limit);
}

static void poor_refused(int rank, int code, const char *text, void *arg)
{
    poor_start *t = arg;
    (void)code;
    if (rank == t->victim) {
        snprintf(t->text, sizeof t->text, "%s", text);
    }
}

static int poor_main(gc_comm *world, int rank, int size, void *arg)
{
    return all_to_all(world, rank, size, &((poor_start *)arg)->j, 1000, TAG_SMALL);
}

/* It says so, unless what it has is enough. */
static void test_starved_at_start(void **state)
{
    enum { RANKS = 6, ENOUGH = 40 };
    uint64_t seed = gct_seed();
    (void)state;
    for (int victim = 0; victim < RANKS; victim += 2) {
        int started_at = 0;
        for (int limit = 3; limit < ENOUGH; limit++) {
            poor_start t = { .j = { .seed = seed, .ranks = RANKS, .survivors = RANKS, .direct = limit % 2, .peer_timeout = 10,
                                    .last_death = 100 * GCI_SECOND, .begun = GCI_SECOND }, .victim = victim, .limit = limit };
            t.j.dies[victim] = t.j.starves[victim] = true;
            gct_spec spec = { .ranks = RANKS, .sites = 2, .seed = seed, .options = poor_options, .arrange = poor_arrange,
                              .refused = poor_refused, .leave_anyhow = true, .outcome = &t.j.outcome };
            int failed = gct_job(&spec, poor_main, &t);
            bool says = strstr(t.text, "open files") || strstr(t.text, "descriptor");
            if (failed || (t.text[0] && !says) || getenv("GCT_VERBOSE")) {
                print_message("    seed %llu, rank %d has %d descriptors: %d failed, %s\n", (unsigned long long)seed, victim,
                              limit - 3, failed, t.text);
            }
            assert_true(!failed && (!t.text[0] || says));
            started_at = t.text[0] ? 0 : started_at ? started_at : limit;
        }
        assert_true(started_at > 3 && started_at < ENOUGH - 5);
    }
}

/* ---- middleboxes, cuts ---- */

static void trouble(job *j, int n)
{
    uint64_t state = j->seed * 5 + 1;
    while (n-- && j->events + 2 <= EVENTS_MAX) {
        int64_t at = (int64_t)draw(&state, 4 * GCI_SECOND), until = at + (int64_t)draw(&state, 3 * GCI_SECOND);
        int a = (int)draw(&state, (uint64_t)j->ranks), b = (int)draw(&state, (uint64_t)j->ranks), kind = (int)draw(&state, 5);
        bool apart = a / 2 != b / 2;    /* surely not on one host */
        if (kind < 3) {
            int purpose = kind == 2 ? GCI_PURPOSE_DATA : GCI_PURPOSE_BACKBONE;
            j->event[j->events++] = (gct_event){ at, GCT_RESET, a, kind ? -1 : b, purpose };
        } else if (apart) {
            j->event[j->events++] = (gct_event){ at, kind == 3 ? GCT_CUT : GCT_CUT_WAY, a, b, 0 };
            j->event[j->events++] = (gct_event){ until, GCT_MEND, a, b, 0 };
        }
    }
}

static void test_trouble(void **state)
{
    int failed = 0;
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < 3 * rounds(); i++) {
        job *j = job_new(seed + (uint64_t)i, 0, 100);
        j->direct = i % 2;
        trouble(j, 12);
        failed += run_job(j, routed, "trouble") != 0;
        job_free(j);
    }
    assert_int_equal(0, failed);
}

static void test_all_at_once(void **state)
{
    int failed = 0;
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < rounds(); i++) {
        job *j = job_new(seed + (uint64_t)i, 0, 100);
        trouble(j, 8);
        kill_some(j, 2);
        j->direct = i % 2;
        failed += run_job(j, mortal, "all at once") != 0;
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* Nobody speaks for so long that the NATs forget; or they are switched off and on. */
static int after_silence(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    if (all_to_all(world, rank, size, j, 5000, TAG_SMALL)) {
        return 1;
    }
    sim_sleep(sim_current(), 100 * GCI_SECOND);
    if (meet(world, j, 0)) {
        return 1;
    }
    int64_t since = now();
    if (all_to_all(world, rank, size, j, 70000, TAG_SMALL + 1)) {
        return 1;
    }
    gct_require(now() - since < 60 * GCI_SECOND, "it took %.3f s", (double)(now() - since) / 1e9);
    return meet(world, j, 1) || nothing_more(world, size, j);
}

static void forgetful(bool idle, bool rst)
{
    uint64_t seed = gct_seed();
    const gct_place nat = { .ranks = 3, .nat = true, .nat_rst = rst, .nat_idle = idle ? 60 : 0 }, places[] = { { .ranks = 3 }, nat, nat };
    job *j = job_new(seed, 9, 0);
    *j = (job){ .seed = seed, .ranks = 9, .survivors = 9, .direct = 1, .bulk = j->bulk };
    if (!idle) {
        j->event[j->events++] = (gct_event){ 20 * GCI_SECOND, GCT_FORGET, 3, -1, 0 };
        j->event[j->events++] = (gct_event){ 50 * GCI_SECOND, GCT_FORGET, 6, -1, 0 };
    }
    int failed = gct_job(&(gct_spec){ .ranks = 9, .places = places, .seed = seed, .options = options, .events = j->event,
                                      .event_count = j->events }, after_silence, j);
    job_free(j);
    assert_int_equal(0, failed);
}

static void test_nat_forgets_idle_silently(void **state) { (void)state; forgetful(true, false); }
static void test_nat_forgets_idle(void **state) { (void)state; forgetful(true, true); }
static void test_nat_restarts_silently(void **state) { (void)state; forgetful(false, false); }
static void test_nat_restarts(void **state) { (void)state; forgetful(false, true); }

/* The same while everybody talks, most pairs over links that no control connection stands beside. */
enum { FORGETS = 4, FORGET_RANKS = 15, EXCHANGES = 100 };

static int while_talking(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    for (int i = 0; i < EXCHANGES; i++) {
        int64_t since = now();
        if (all_to_all(world, rank, size, j, i % 3 == 0 ? 0 : i % 3 == 1 ? 3000 : 40000, TAG_SMALL + i)) {
            return 1;
        }
        gct_require(now() - since < 30 * GCI_SECOND, "round %d took %.3f s", i, (double)(now() - since) / 1e9);
        j->longest = now() - since > j->longest ? now() - since : j->longest;
        sim_sleep(sim_current(), (int64_t)draw(&j->pauses, 2 * GCI_SECOND));
    }
    gct_require(j->longest > 2 * GCI_SECOND, "nobody noticed anything");
    return meet(world, j, 0) || nothing_more(world, size, j);
}

static void test_nat_forgets_talkers(void **state)
{
    (void)state;
    static const gct_place places[] = { { .ranks = 5 }, { .ranks = 5, .nat = true }, { .ranks = 5, .nat = true } };
    int failed = 0;
    for (int round = 0; round < rounds(); round++) {
        uint64_t seed = gct_seed() + (uint64_t)round, dice = seed;
        job *j = job_new(seed, FORGET_RANKS, 0);
        *j = (job){ .seed = seed, .ranks = FORGET_RANKS, .survivors = FORGET_RANKS, .direct = 1, .bulk = j->bulk,
                    .peer_timeout = 20 };
        for (int i = 0; i < FORGETS; i++) {
            j->event[j->events++] = (gct_event){ (20 + 40 * i) * GCI_SECOND + (int64_t)draw(&dice, 10 * GCI_SECOND), GCT_FORGET,
                                                 5 + 5 * (int)draw(&dice, 2), -1, 0 };
        }
        failed += gct_job(&(gct_spec){ .ranks = FORGET_RANKS, .places = places, .seed = seed, .options = options,
                                       .events = j->event, .event_count = j->events, .wan_rate = 10000000 }, while_talking, j);
        print_message("    seed %llu: the longest exchange took %.1f s\n", (unsigned long long)seed, (double)j->longest / 1e9);
        job_free(j);
    }
    assert_int_equal(0, failed);
}

/* ---- who computes stops nobody ---- */

enum { COMPUTES_S = 60 };

/* Rank 0 alone can relay between the NATs, and it computes. Rank 1 computes too, and 3 has sent it more than it may keep. */
static int beside_a_computer(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    pending p[2];
    if (all_to_all(world, rank, size, j, 10, TAG_SMALL) || meet(world, j, 0)) {
        return 1;
    }
    int64_t since = now();
    j->relayed[rank] = relayed(world);
    if (rank == 0 || rank == 1) {
        sim_sleep(sim_current(), COMPUTES_S * GCI_SECOND);
    } else if (rank == 2 || rank == 4) {        /* one of each NAT: 20 times there and back */
        for (int i = 0; i < 20; i++) {
            gct_ok(post_receive(world, &p[0], 6 - rank, TAG_BULK + i, MIB / 2));
            gct_ok(post_send(world, &p[1], rank, 6 - rank, TAG_BULK + i, MIB / 2));
            if (finish(j, &p[0]) || finish(j, &p[1])) {
                return 1;
            }
        }
        gct_require(now() - since < COMPUTES_S / 2 * GCI_SECOND, "it took %.3f s", (double)(now() - since) / 1e9);
    }
    if (rank == 3) {
        gct_ok(post_send(world, &p[1], rank, 1, TAG_RING, 4 * MIB));
        if (finish(j, &p[1])) {
            return 1;
        }
    } else if (rank == 1) {
        gct_ok(post_receive(world, &p[0], 3, TAG_RING, 4 * MIB));
        if (finish(j, &p[0])) {
            return 1;
        }
    }
    gct_require(rank || relayed(world) > j->relayed[rank], "nothing was relayed");
    return meet(world, j, 1) || nothing_more(world, size, j);
}

static void test_computing(void **state)
{
    (void)state;
    static const gct_place places[] = { { .ranks = 1 }, { .ranks = 2, .nat = true }, { .ranks = 2, .nat = true } };
    uint64_t seed = gct_seed();
    job *j = job_new(seed, 5, 0);
    *j = (job){ .seed = seed, .ranks = 5, .survivors = 5, .direct = 1, .bulk = j->bulk };
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 5, .places = places, .seed = seed, .options = options, .wan_rate = 10000000 },
                                beside_a_computer, j));
    job_free(j);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_worlds), cmocka_unit_test(test_routed), cmocka_unit_test(test_routed_515),
        cmocka_unit_test(test_cycles_are_found), cmocka_unit_test(test_deaths),
        cmocka_unit_test(test_starved), cmocka_unit_test(test_starved_for_a_while), cmocka_unit_test(test_starved_at_start),
        cmocka_unit_test(test_trouble), cmocka_unit_test(test_all_at_once), cmocka_unit_test(test_nat_forgets_idle_silently),
        cmocka_unit_test(test_nat_forgets_idle), cmocka_unit_test(test_nat_restarts_silently), cmocka_unit_test(test_nat_restarts),
        cmocka_unit_test(test_nat_forgets_talkers),
        cmocka_unit_test(test_computing) };
    cmocka_set_test_filter(gct_filter());
    return cmocka_run_group_tests_name("overlay", tests, NULL, NULL);
}
