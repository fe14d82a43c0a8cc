/* test_control.c: jobs of control threads alone, on the simulated network: starts, links, deaths and resets at random instants.
 * SPDX-License-Identifier: MIT
 *
 * Each job is drawn from a seed (GCT_SEED to have one again, GCT_ROUNDS for how many). What every rank was told is judged
 * when all have ended: one LINK a pair and side, each notice once, one DEAD for who died and none for who lives, the same
 * epoch at all who can hear of each other, nothing held. Behind these stand small networks built by hand: one-way sites, NATs,
 * gaps, ssh.
 */
#include "simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

#include <errno.h>
#include <unistd.h>

enum { RANKS_MAX = 24, NEWS_MAX = 2048, NOTICES = 8, RESTARTS_EACH = 3, PORT = 4000, START_S = 20, PEER_S = 5 };
enum fault { NO_FAULT, KILL_PROC, KILL_HOST, RESETS, NO_MEMORY, CUT, CUT_SHORT, PARTITION, RESTARTS, FORGET };

typedef struct rank_state {
    struct job  *job;
    int          rank, code, count;
    sim_proc    *proc;
    gci_env      env;
    gci_control *control;
    gci_monitor *monitor;
    gci_news     news[NEWS_MAX];
    int64_t      at[NEWS_MAX], started, asked, ended;
    int          edges, neighbours;     /* of the backbone; this rank's */
    int          spared;                /* how many ranks have the names that are theirs */
    uint64_t     dice;
    uint32_t     graph;                 /* a hash of it */
    gci_edge     edge[RANKS_MAX * RANKS_MAX / 2];
    char         text[GCI_TEXT];
} rank_state;

typedef struct job {
    sim        *sim;
    uint64_t    seed;
    int         n, victim, syns;
    enum fault  fault;
    int64_t     when;           /* of the death, of the cut */
    sim_host   *cut[2], *known[RANKS_MAX];
    int64_t     peer_timeout;
    double      density;
    const char *links;
    void      (*live)(rank_state *);
    char        root[GCI_ADDR_TEXT];
    rank_state  rank[RANKS_MAX];
} job;

#define check(job, condition, ...) do { if (!(condition)) { \
        fprintf(stderr, "GCT_SEED=%llu: ", (unsigned long long)(job)->seed); fprintf(stderr, __VA_ARGS__); \
        fprintf(stderr, "\n"); fail(); } } while (0)

static void on_news(void *user, const gci_news *news)
{
    rank_state *r = user;
    gci_sys *sys = r->env.sys;
    sys->enter(sys, r->monitor);
    if (r->count < NEWS_MAX) {
        r->at[r->count] = sys->now(sys);
        r->news[r->count++] = *news;
    }
    sys->notify(sys, r->monitor);
    sys->leave(sys, r->monitor);
}

static int count_news(const rank_state *r, enum gci_news_kind kind, int rank)
{
    int count = 0;
    for (int i = 0; i < r->count; i++)
        count += r->news[i].kind == kind && (rank < 0 || r->news[i].rank == rank);
    return count;
}

static bool linked(const rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (peer != r->rank && !count_news(r, GCI_NEWS_LINK, peer) && !count_news(r, GCI_NEWS_DEAD, peer)
            && !count_news(r, GCI_NEWS_NO_LINK, peer))
            return false;
    return true;
}

static bool heard_all(const rank_state *r)
{
    return count_news(r, GCI_NEWS_NOTICE, -1) >= NOTICES * (r->job->n - 1);
}

static bool heard_restarts(const rank_state *r)
{
    return r->count && r->news[r->count - 1].epoch == (uint16_t)(RESTARTS_EACH * r->job->n);
}

static bool heard_death(const rank_state *r)
{
    return count_news(r, GCI_NEWS_DEAD, r->job->victim) > 0;
}

/* Until it holds, or for so long. */
static bool await(rank_state *r, bool (*holds)(const rank_state *), int64_t patience)
{
    gci_sys *sys = r->env.sys;
    int64_t until = sys->now(sys) + patience;
    bool held;
    sys->enter(sys, r->monitor);
    while (!(held = holds(r)) && sys->now(sys) < until)
        sys->await(sys, r->monitor, until - sys->now(sys));
    sys->leave(sys, r->monitor);
    return held;
}

static void close_links(rank_state *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->news[i].kind == GCI_NEWS_LINK)
            r->env.sys->close(r->env.sys, r->news[i].fd);
}

static void connect_all(rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (peer != r->rank)
            gci_control_connect(r->control, GCI_PURPOSE_DATA, peer, 0);
}

static void notify_all(rank_state *r, int64_t pause)
{
    for (uint32_t i = 0; i < NOTICES; i++) {
        gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_MISMATCH, (uint32_t)r->rank, { i } });
        sim_sleep(r->proc, pause);
    }
}

/* What a rank does between start and stop. */
static void live(rank_state *r)
{
    job *j = r->job;
    if (j->fault == CUT || j->fault == CUT_SHORT || j->fault == PARTITION) {
        sim_sleep(r->proc, j->when + (PEER_S + 2) * GCI_SECOND);
        notify_all(r, GCI_NS_PER_MS);
        sim_sleep(r->proc, GCI_SECOND);
        return;
    }
    if (j->fault == RESTARTS)
        for (int i = 0; i < RESTARTS_EACH; i++) {
            gci_control_restart(r->control);
            if (i % 2)
                sim_sleep(r->proc, 30 * GCI_NS_PER_MS);
        }
    if (j->fault == FORGET) {
        notify_all(r, 4 * GCI_SECOND);
        await(r, heard_all, 15 * GCI_SECOND);
        sim_sleep(r->proc, 2 * PEER_S * GCI_SECOND);    /* time enough for a wrong verdict */
        return;
    }
    connect_all(r);
    await(r, linked, 15 * GCI_SECOND);
    if (j->fault == KILL_PROC || j->fault == KILL_HOST) {
        await(r, heard_death, 15 * GCI_SECOND + j->when);
        sim_sleep(r->proc, 2 * GCI_SECOND);         /* time enough for a second, wrong one */
    }
    notify_all(r, j->fault == RESETS ? GCI_SECOND / 2 : GCI_NS_PER_MS);
    if (j->fault == NO_FAULT || j->fault == RESETS || j->fault == RESTARTS)
        await(r, heard_all, 15 * GCI_SECOND);
    if (j->fault == RESTARTS)
        await(r, heard_restarts, 15 * GCI_SECOND);
    sim_sleep(r->proc, GCI_SECOND);
}

static void keep_graph(rank_state *r)
{
    const gci_graph *g = gci_control_graph(r->control);
    r->edges = g->edges;
    for (int e = 0; e < g->edges; e++) {
        r->graph = r->graph * 31 + (uint32_t)(g->edge[e].a * RANKS_MAX + g->edge[e].b);
        r->graph = r->graph * 31 + g->edge[e].cost[0] + g->edge[e].cost[1];
        r->neighbours += g->edge[e].a == r->rank || g->edge[e].b == r->rank;
        r->edge[e] = g->edge[e];
    }
}

static void rank_main(sim_proc *p, void *arg)
{
    rank_state *r = arg;
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    gci_place place = { .rank = r->rank, .ranks = r->job->n, .roots = 1, .listen_fd = -1, .key = "sesame", .key_bytes = 6 };
    gci_sys *sys = sim_sys(p);

    o.alloc = sim_alloc;
    o.alloc_user = p;
    o.start_timeout = START_S;
    o.peer_timeout = PEER_S;
    o.link_density = r->job->density;
    o.links = strcmp(sim_host_site(sim_proc_host(p)), "a") == 0 ? r->job->links : NULL;
    gci_env_init(&r->env, sys, &o);
    r->env.rank = r->rank;
    snprintf(place.root[0].host, sizeof place.root[0].host, "%s", r->job->root);
    place.root[0].port = PORT;
    snprintf(place.cluster, sizeof place.cluster, "%s", sim_host_site(sim_proc_host(p)));
    if (sys->monitor(sys, &r->monitor) < 0)
        return;
    r->code = gci_control_start(&r->control, &r->env, &o, &place, on_news, r, r->text);
    r->started = sys->now(sys);
    if (r->code == GC_OK) {
        keep_graph(r);
        (r->job->live ? r->job->live : live)(r);
        gci_control_stop(r->control, true);
    }
    close_links(r);
    sys->monitor_free(sys, r->monitor);
    r->ended = sys->now(sys);
}

static void reset_some(void *a, void *b)
{
    job *j = a;
    (void)b;
    sim_reset_any(j->sim);
}

/* Two hosts lose each other, or one site all others. */
static void build_cut(job *j, sim_host **grid, int count, int sites)
{
    int64_t mended = j->when + (int64_t)(sim_random(j->sim) % (PEER_S * (uint64_t)GCI_SECOND / 2));
    sim_host *a = grid[sim_random(j->sim) % (unsigned)count], *b = grid[sim_random(j->sim) % (unsigned)count];

    j->when += 4 * GCI_SECOND;          /* the start is over by then */
    mended += 4 * GCI_SECOND;
    if (j->fault == PARTITION) {
        for (int i = 0; i < count; i++)
            if (sites > 1 && sim_site_of(grid[i]) != sim_site_of(a))
                for (int k = 0; k < count; k++)
                    if (sim_site_of(grid[k]) == sim_site_of(a))
                        sim_cut_at(grid[i], grid[k], j->when);
        j->cut[0] = a;
        return;
    }
    if (a == b)
        return;
    j->cut[0] = a;
    j->cut[1] = b;
    sim_cut_at(a, b, j->when);
    if (j->fault == CUT_SHORT)
        sim_mend_at(a, b, mended);
}

/* Sites but that of rank 0 stand behind NATs, which forget all connections now and then, and do not say so. */
static void build_forget(job *j, sim_host **grid, int count)
{
    char address[GCI_ADDR_TEXT];
    for (int i = 1; i < count; i++) {
        sim_site *site = sim_site_of(grid[i]);
        if (site == sim_site_of(grid[0]) || site == sim_site_of(grid[i - 1]))
            continue;
        snprintf(address, sizeof address, "198.51.100.%d", i);
        sim_nat_new(site, address, 0, SIM_DROP);
        for (int k = 0; k < 3; k++)
            sim_nat_forget_at(site, (3 + k * 2 * PEER_S) * GCI_SECOND + (int64_t)(sim_random(j->sim) % (PEER_S * (uint64_t)GCI_SECOND)));
    }
}

/* Sites, hosts, ranks on them, and the fault, from the seed. */
static void build(job *j, uint64_t seed, enum fault fault)
{
    int hosts[3], sites, count = 0;
    sim_host **grid;

    memset(j, 0, sizeof *j);
    j->seed = seed;
    j->fault = fault;
    j->sim = sim_new(seed);
    sites = 1 + (int)(sim_random(j->sim) % 3);
    for (int s = 0; s < sites; s++)
        count += hosts[s] = 1 + (int)(sim_random(j->sim) % 4);
    j->n = 2 + (int)(sim_random(j->sim) % (sim_random(j->sim) % 2 ? RANKS_MAX - 1 : 3));
    grid = sim_grid(j->sim, sites, hosts, 50000, 125000000, 10 * GCI_NS_PER_MS, 1000000);
    snprintf(j->root, sizeof j->root, "10.1.0.1");
    for (int r = 0; r < j->n; r++) {
        char name[24];
        snprintf(name, sizeof name, "rank %d", r);
        j->rank[r] = (rank_state){ .job = j, .rank = r, .code = 1 };
        j->rank[r].proc = sim_spawn(grid[r ? sim_random(j->sim) % (unsigned)count : 0], name, rank_main, &j->rank[r]);
    }
    j->victim = (int)(sim_random(j->sim) % (unsigned)j->n);
    j->when = (int64_t)(sim_random(j->sim) % (unsigned)(sim_random(j->sim) % 2 ? GCI_SECOND / 5 : 2 * GCI_SECOND));
    if (fault == CUT || fault == CUT_SHORT || fault == PARTITION)
        build_cut(j, grid, count, sites);
    if (fault == FORGET)
        build_forget(j, grid, count);
    free(grid);
    if (fault == KILL_PROC)
        sim_kill_proc_at(j->rank[j->victim].proc, j->when);
    else if (fault == KILL_HOST)
        sim_kill_host_at(sim_proc_host(j->rank[j->victim].proc), j->when);
    if (fault == NO_MEMORY)         /* one allocation of one rank, or all from there on */
        sim_alloc_fail(j->rank[j->victim].proc, (int64_t)(1 + sim_random(j->sim) % 80) * (sim_random(j->sim) % 2 ? 1 : -1));
    for (int i = 0; fault == RESETS && i < 50; i++)
        sim_at(j->sim, 2 * GCI_SECOND + (int64_t)(sim_random(j->sim) % (3 * (uint64_t)GCI_SECOND)), reset_some, j, NULL);
}

static void check_leftovers(job *j)
{
    for (int r = 0; r < j->n; r++) {
        sim_leftovers left = sim_proc_leftovers(j->rank[r].proc);
        if (sim_proc_killed(j->rank[r].proc))
            continue;
        check(j, !left.blocks && !left.fds && !left.threads && !left.monitors, "rank %d holds %d blocks, %d descriptors, %d threads, %d monitors",
              r, left.blocks, left.fds, left.threads, left.monitors);
    }
}

static void run(job *j)
{
    int verdict = sim_run(j->sim);
    check(j, verdict == SIM_OK, "the simulation ended with %d", verdict);
    check_leftovers(j);
}

/* All have the same graph; each loss was told once; label and losses agree. */
static void check_epochs(job *j)
{
    const rank_state *first = NULL;
    for (int r = 0; r < j->n; r++) {
        const rank_state *s = &j->rank[r];
        int losses = 0, epoch = 0;
        if (s->code != GC_OK || sim_proc_killed(s->proc))
            continue;
        first = first ? first : s;
        check(j, s->graph == first->graph && s->edges == first->edges, "rank %d has another graph than rank %d", r, first->rank);
        for (int i = 0; i < s->count; i++) {
            const gci_news *n = &s->news[i];
            bool loss = n->kind == GCI_NEWS_DEAD || n->kind == GCI_NEWS_LEFT || n->kind == GCI_NEWS_DOWN
                        || n->kind == GCI_NEWS_UP;
            losses += loss;
            check(j, n->epoch >= epoch && n->epoch <= epoch + (n->kind == GCI_NEWS_EPOCH ? NEWS_MAX : loss),
                  "rank %d: epoch %d after %d", r, n->epoch, epoch);
            check(j, n->kind != GCI_NEWS_EPOCH || n->epoch > epoch, "rank %d: an epoch without a loss", r);
            check(j, n->kind != GCI_NEWS_DOWN || (n->rank < n->other && n->other < j->n), "rank %d: no such link", r);
            epoch = n->epoch;
            for (int k = 0; loss && k < i; k++)
                check(j, s->news[k].kind != n->kind || s->news[k].rank != n->rank || s->news[k].other != n->other,
                      "rank %d heard twice: %s", r, n->text);
        }
        check(j, j->fault == RESTARTS || epoch == losses, "rank %d: epoch %d after %d losses", r, epoch, losses);
    }
}

static int last_epoch(const rank_state *r) { return r->count ? r->news[r->count - 1].epoch : 0; }

/* Nothing wrong: all start, every pair has one link, every notice arrives once, nobody dies. */
static void check_peace(job *j)
{
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        check(j, s->code == GC_OK, "rank %d: %d %s", r, s->code, s->text);
        for (int peer = 0; peer < j->n; peer++) {
            check(j, peer == r || count_news(s, GCI_NEWS_LINK, peer) == 1, "rank %d of %d: %d links to %d", r, j->n,
                  count_news(s, GCI_NEWS_LINK, peer), peer);
            check(j, peer == r || count_news(s, GCI_NEWS_NOTICE, peer) == NOTICES, "rank %d of %d: %d notices of %d", r, j->n,
                  count_news(s, GCI_NEWS_NOTICE, peer), peer);
        }
        check(j, s->count == (1 + NOTICES) * (j->n - 1) + count_news(s, GCI_NEWS_EPOCH, -1), "rank %d of %d: %d news", r, j->n, s->count);
        check(j, j->fault != RESTARTS || last_epoch(s) == RESTARTS_EACH * j->n, "rank %d: epoch %d", r, last_epoch(s));
        check(j, j->fault == RESTARTS || !last_epoch(s), "rank %d: epoch %d in peace", r, last_epoch(s));
    }
    check_epochs(j);
}

/* Somebody died. Whoever started hears of each of the dead once, in time, and of nobody else. */
static void check_death(job *j, int64_t limit)
{
    int started = 0, failed = 0;
    for (int r = 0; r < j->n; r++)
        if (!sim_proc_killed(j->rank[r].proc)) {
            started += j->rank[r].code == GC_OK;
            failed += j->rank[r].code != GC_OK;
        }
    check(j, !started || !failed || sim_proc_killed(j->rank[0].proc), "%d started and %d failed", started, failed);
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        if (sim_proc_killed(s->proc))
            continue;
        check(j, s->code == GC_OK || s->ended <= (START_S + 2) * GCI_SECOND, "rank %d failed late", r);
        check(j, s->code == GC_OK || s->text[0], "rank %d failed without a text", r);
        for (int i = 0; i < s->count; i++) {
            const gci_news *n = &s->news[i];
            if (n->kind != GCI_NEWS_DEAD || failed)
                continue;
            check(j, sim_proc_killed(j->rank[n->rank].proc), "rank %d took %d for dead: %s", r, n->rank, n->text);
            check(j, count_news(s, GCI_NEWS_DEAD, n->rank) == 1, "rank %d heard twice that %d died", r, n->rank);
            check(j, s->at[i] - j->when <= limit, "rank %d heard after %lld ms that %d died: %s", r,
                  (long long)((s->at[i] - j->when) / GCI_NS_PER_MS), n->rank, n->text);
        }
        check(j, failed || !started || heard_death(s), "rank %d of %d never heard that %d died at %lld ms", r, j->n, j->victim,
              (long long)(j->when / GCI_NS_PER_MS));
        for (int q = 0; q < r && !failed; q++)
            check(j, sim_proc_killed(j->rank[q].proc) || last_epoch(s) == last_epoch(&j->rank[q]), "rank %d is in epoch %d, %d in %d",
                  r, last_epoch(s), q, last_epoch(&j->rank[q]));
    }
    check_epochs(j);
}

/* Is the way between two ranks cut for good? */
static bool is_cut(const job *j, int a, int b)
{
    const sim_host *x = sim_proc_host(j->rank[a].proc), *y = sim_proc_host(j->rank[b].proc);
    if (j->fault == PARTITION)
        return (sim_site_of(x) == sim_site_of(j->cut[0])) != (sim_site_of(y) == sim_site_of(j->cut[0]));
    return j->fault == CUT && j->cut[0] && ((x == j->cut[0] && y == j->cut[1]) || (y == j->cut[0] && x == j->cut[1]));
}

/* Who is of one piece with r by links that are not cut. */
static void reach(const job *j, int r, bool in[RANKS_MAX])
{
    bool more = true;
    memset(in, 0, RANKS_MAX * sizeof *in);
    in[r] = true;
    while (more) {
        more = false;
        for (int e = 0; e < j->rank[r].edges; e++) {
            const gci_edge *g = &j->rank[r].edge[e];
            if (in[g->a] != in[g->b] && !is_cut(j, g->a, g->b))
                more = in[g->a] = in[g->b] = true;
        }
    }
}

/* Some ways are cut, for good or for a while: every link along them goes down, and nothing else; who is no longer reached is
 * dead, and nobody else; all of one piece agree on the epoch. */
static void check_cut(job *j)
{
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        bool in[RANKS_MAX];
        int down = 0;
        check(j, s->code == GC_OK, "rank %d: %d %s", r, s->code, s->text);
        reach(j, r, in);
        for (int e = 0; e < s->edges; e++) {
            int a = s->edge[e].a, b = s->edge[e].b, told = 0;
            for (int i = 0; i < s->count; i++)
                told += s->news[i].kind == GCI_NEWS_DOWN && s->news[i].rank == a && s->news[i].other == b;
            check(j, told == (is_cut(j, a, b) && (in[a] || in[b])), "rank %d heard %d times that %d-%d is down", r, told, a, b);
            down += told;
        }
        check(j, count_news(s, GCI_NEWS_DOWN, -1) == down, "rank %d: links that are none are down", r);
        for (int q = 0; q < j->n; q++) {
            check(j, count_news(s, GCI_NEWS_DEAD, q) == !in[q], "rank %d heard %d times that %d is dead", r, count_news(s, GCI_NEWS_DEAD, q), q);
            check(j, q == r || count_news(s, GCI_NEWS_NOTICE, q) == (in[q] ? NOTICES : 0), "rank %d heard %d notices of %d", r,
                  count_news(s, GCI_NEWS_NOTICE, q), q);
            check(j, !in[q] || last_epoch(s) == last_epoch(&j->rank[q]), "rank %d is in epoch %d, %d in %d", r, last_epoch(s), q,
                  last_epoch(&j->rank[q]));
        }
        for (int i = 0; i < s->count; i++)
            check(j, s->news[i].kind == GCI_NEWS_NOTICE || s->at[i] - j->when <= (PEER_S + 1) * GCI_SECOND, "rank %d heard late: %s", r,
                  s->news[i].text);
    }
    check_epochs(j);
}

static const char *bad_news(const rank_state *r)
{
    for (int i = 0; i < r->count; i++)
        if (r->news[i].kind == GCI_NEWS_DOWN || r->news[i].kind == GCI_NEWS_DEAD)
            return r->news[i].text;
    return "";
}

/* Connections break, or are forgotten: nobody dies, and everything that was said is heard. */
static void check_resets(job *j)
{
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        check(j, s->code == GC_OK, "rank %d: %d %s", r, s->code, s->text);
        check(j, count_news(s, GCI_NEWS_DEAD, -1) == 0, "rank %d took the living for dead: %s", r, bad_news(s));
        check(j, count_news(s, GCI_NEWS_DOWN, -1) == 0 && !last_epoch(s), "rank %d lost a link: %s", r, bad_news(s));
        for (int peer = 0; peer < j->n; peer++)
            check(j, peer == r || count_news(s, GCI_NEWS_NOTICE, peer) == NOTICES, "rank %d of %d: %d notices of %d", r, j->n,
                  count_news(s, GCI_NEWS_NOTICE, peer), peer);
    }
}

/* Out of memory: whatever it costs, everybody comes to an end in time, with a text if the start failed. */
static void check_memory(job *j)
{
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        check(j, s->code == GC_OK || s->text[0], "rank %d failed without a text", r);
        check(j, s->code == GC_OK || s->ended <= (START_S + 2) * GCI_SECOND, "rank %d failed late", r);
        check(j, s->code != 1, "rank %d has no outcome", r);
    }
}

static void rounds(enum fault fault, int count)
{
    const char *seed = getenv("GCT_SEED"), *more = getenv("GCT_ROUNDS");
    uint64_t first = seed ? strtoull(seed, NULL, 0) : 1000 * (uint64_t)fault;
    count = seed ? 1 : more ? atoi(more) : count;
    for (int i = 0; i < count; i++) {
        job *j = malloc(sizeof *j);
        assert_non_null(j);
        build(j, first + (uint64_t)i, fault);
        run(j);
        if (fault == NO_FAULT || fault == RESTARTS)
            check_peace(j);
        else if (fault == CUT || fault == CUT_SHORT || fault == PARTITION)
            check_cut(j);
        else if (fault == RESETS || fault == FORGET)
            check_resets(j);
        else if (fault == NO_MEMORY)
            check_memory(j);
        else
            check_death(j, fault == KILL_PROC ? GCI_SECOND : (PEER_S + 1) * GCI_SECOND);
        sim_free(j->sim);
        free(j);
    }
}

/* Nobody but rank 0 can be reached for longer than a fetch takes: rank 0 then sends the table itself. */
static enum sim_verdict only_root(void *user, sim_host *from, sim_host *to, uint16_t port)
{
    job *j = user;
    (void)from;
    (void)to;
    return port == PORT || sim_now(j->sim) > 4 * GCI_SECOND ? SIM_PASS : j->seed % 2 ? SIM_REFUSE : SIM_DROP;
}

static void test_fetch_fails(void **state)
{
    (void)state;
    for (uint64_t seed = 0, done = 0; done < 4; seed++) {
        job *j = malloc(sizeof *j);
        assert_non_null(j);
        build(j, seed, NO_FAULT);
        done += j->n >= 20;             /* with fewer ranks rank 0 is everybody's parent */
        sim_firewall(j->sim, only_root, j);
        run(j);
        for (int r = 0; r < j->n; r++) {
            check(j, j->rank[r].code == GC_OK, "rank %d: %d %s", r, j->rank[r].code, j->rank[r].text);
            check(j, !last_epoch(&j->rank[r]) && heard_all(&j->rank[r]), "rank %d is not at peace", r);
        }
        check_epochs(j);
        sim_free(j->sim);
        free(j);
    }
}

/* ---- small networks ------------------------------------------------------------------------------------------------------ */

/* A job without seeded faults on `sites` sites of `hosts` hosts each, one rank a host, site by site. */
static job *small_job(int sites, int hosts, void (*life)(rank_state *), sim_host **hosts_out)
{
    int count[RANKS_MAX];
    job *j = calloc(1, sizeof *j);
    sim_host **grid;

    assert_non_null(j);
    j->sim = sim_new(7);
    sim_calm(j->sim);
    j->n = sites * hosts;
    j->live = life;
    for (int s = 0; s < sites; s++)
        count[s] = hosts;
    grid = sim_grid(j->sim, sites, count, 50000, 125000000, 10 * GCI_NS_PER_MS, 1000000);
    snprintf(j->root, sizeof j->root, "10.1.0.1");
    for (int r = 0; r < j->n; r++) {
        char name[24];
        snprintf(name, sizeof name, "rank %d", r);
        j->rank[r] = (rank_state){ .job = j, .rank = r, .code = 1 };
        j->rank[r].proc = sim_spawn(grid[r], name, rank_main, &j->rank[r]);
        if (hosts_out)
            hosts_out[r] = grid[r];
    }
    free(grid);
    return j;
}

static void end_job(job *j)
{
    sim_free(j->sim);
    free(j);
}

static void check_started(job *j, int64_t within)
{
    for (int r = 0; r < j->n; r++) {
        check(j, j->rank[r].code == GC_OK, "rank %d: %d %s", r, j->rank[r].code, j->rank[r].text);
        check(j, j->rank[r].started <= within, "rank %d started after %lld ms", r, (long long)(j->rank[r].started / GCI_NS_PER_MS));
    }
    check_epochs(j);
}

static bool is_edge(const rank_state *r, int peer)
{
    for (int e = 0; e < r->edges; e++)
        if ((r->edge[e].a == r->rank && r->edge[e].b == peer) || (r->edge[e].b == r->rank && r->edge[e].a == peer))
            return true;
    return false;
}

static const gci_news *link_news(const rank_state *r, enum gci_purpose purpose, int peer)
{
    const gci_news *found = NULL;
    for (int i = 0; i < r->count; i++)
        if (r->news[i].kind == GCI_NEWS_LINK && r->news[i].purpose == purpose && r->news[i].rank == peer) {
            check(r->job, !found, "rank %d has two links to %d", r->rank, peer);
            found = &r->news[i];
        }
    return found;
}

/* Every link of the backbone carries one data connection, whose ends know it by the same id; all ids differ. */
static void check_backbone(job *j)
{
    for (int r = 0; r < j->n; r++)
        for (int peer = 0; peer < j->n; peer++) {
            const gci_news *mine = link_news(&j->rank[r], GCI_PURPOSE_BACKBONE, peer);
            const gci_news *theirs = link_news(&j->rank[peer], GCI_PURPOSE_BACKBONE, r);
            check(j, (mine != NULL) == is_edge(&j->rank[r], peer), "rank %d: the link to %d is wrong", r, peer);
            check(j, !mine || (theirs && mine->id && mine->id == theirs->id), "rank %d and %d: another id", r, peer);
            for (int q = 0; mine && q < peer; q++)
                check(j, !link_news(&j->rank[r], GCI_PURPOSE_BACKBONE, q) || link_news(&j->rank[r], GCI_PURPOSE_BACKBONE, q)->id != mine->id,
                      "rank %d: one id for two", r);
        }
}

static bool answered(const rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (peer != r->rank && !link_news(r, GCI_PURPOSE_DATA, peer) && !count_news(r, GCI_NEWS_NO_LINK, peer))
            return false;
    return true;
}

static bool has_backbone(const rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (is_edge(r, peer) && !link_news(r, GCI_PURPOSE_BACKBONE, peer))
            return false;
    return true;
}

static void connect_backbone(rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (is_edge(r, peer))
            gci_control_connect(r->control, GCI_PURPOSE_BACKBONE, peer, 0);
    check(r->job, await(r, has_backbone, 5 * GCI_SECOND), "rank %d waits for its backbone", r->rank);
}

/* First the backbone, which both sides ask for; then the ranks of the first site ask all for links. */
static void live_on_links(rank_state *r)
{
    connect_backbone(r);
    if (strcmp(sim_host_site(sim_proc_host(r->proc)), "a") == 0) {
        r->asked = r->env.sys->now(r->env.sys);
        connect_all(r);
        check(r->job, await(r, answered, 15 * GCI_SECOND), "rank %d waits for an answer", r->rank);
    }
    sim_sleep(r->proc, 2 * GCI_SECOND);
    notify_all(r, GCI_NS_PER_MS);
    check(r->job, await(r, heard_all, 15 * GCI_SECOND), "rank %d has not heard all", r->rank);
}

static void rule(job *j, sim_host *from, sim_host *to, uint16_t port, enum sim_verdict verdict)
{
    sim_rule_add(j->sim, &(sim_rule){ .from_site = from ? sim_site_of(from) : NULL, .to_site = to ? sim_site_of(to) : NULL, .across = true,
                                      .port_first = port, .port_last = port, .verdict = verdict });
}

/* Out of the second site connections can be opened, into it none. Neighbours there are called; others have no link of their
 * own with the first site, which is said. */
static void test_one_way(void **state)
{
    (void)state;
    for (enum sim_verdict verdict = SIM_REFUSE; verdict <= SIM_DROP; verdict++) {
        sim_host *host[RANKS_MAX];
        job *j = small_job(2, 5, live_on_links, host);
        int across = 0;
        rule(j, host[0], host[5], 0, verdict);
        run(j);
        check_started(j, GCI_SECOND);
        check_backbone(j);
        for (int r = 0; r < 5; r++)
            for (int peer = 0; peer < j->n; peer++)
                if (peer != r) {
                    const gci_news *link = link_news(&j->rank[r], GCI_PURPOSE_DATA, peer);
                    bool has = link != NULL;
                    check(j, !has || j->rank[r].at[link - j->rank[r].news] - j->rank[r].asked < GCI_SECOND / 10, "%d to %d: late", r, peer);
                    check(j, has == (peer < 5 || is_edge(&j->rank[r], peer)), "rank %d to %d: %d", r, peer, has);
                    check(j, has != (count_news(&j->rank[r], GCI_NEWS_NO_LINK, peer) == 1), "rank %d to %d: two answers", r, peer);
                    across += peer >= 5 && has;
                }
        check(j, across > 0, "there is no link across");
        end_job(j);
    }
}

/* Ranks of the third site ask each other alone. */
static void live_called(rank_state *r)
{
    for (int peer = 0; peer < r->job->n; peer++)
        if (is_edge(r, peer) && (r->rank < 8 || peer >= 8))
            gci_control_connect(r->control, GCI_PURPOSE_BACKBONE, peer, 0);
    check(r->job, await(r, has_backbone, 5 * GCI_SECOND), "rank %d waits for its backbone", r->rank);
}

/* The third site is far from rank 0, and hears last that the job has started; by then the second one, into which it has to open
 * connections, has called for them. */
static void test_early_call(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(3, 4, live_called, host);
    (void)state;
    sim_wan(sim_site_of(host[0]), sim_site_of(host[8]), 100 * GCI_NS_PER_MS, 1000000);
    rule(j, host[4], host[8], 0, SIM_DROP);
    run(j);
    check_started(j, 2 * GCI_SECOND);
    check_backbone(j);
    end_job(j);
}

/* Connections between two hosts are reset, and then nothing answers any more: their links are down after peer_timeout. */
static void reset_pairs(void *a, void *b)
{
    job *j = a;
    (void)b;
    for (int x = 0; x < 3; x++)
        for (int y = 3; y < 6; y++)
            sim_reset_between(j->rank[x].proc, j->rank[y].proc);
}

static void live_mute(rank_state *r)
{
    sim_sleep(r->proc, 12 * GCI_SECOND);
}

static void test_mute(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(3, 3, live_mute, host);
    int across = 0;
    (void)state;
    for (int x = 0; x < 3; x++)
        for (int y = 3; y < 6; y++)
            sim_cut_at(host[x], host[y], 2 * GCI_SECOND);
    sim_at(j->sim, 2 * GCI_SECOND, reset_pairs, j, NULL);
    run(j);
    check_started(j, GCI_SECOND);
    for (int e = 0; e < j->rank[0].edges; e++)
        across += j->rank[0].edge[e].a < 3 && j->rank[0].edge[e].b >= 3 && j->rank[0].edge[e].b < 6;
    check(j, across > 0, "there is no link across");
    for (int r = 0; r < j->n; r++) {
        rank_state *s = &j->rank[r];
        check(j, count_news(s, GCI_NEWS_DOWN, -1) == across && s->count == across, "rank %d: %d of %d links down", r,
              count_news(s, GCI_NEWS_DOWN, -1), across);
        for (int i = 0; i < s->count; i++)
            check(j, s->at[i] >= (2 + PEER_S) * GCI_SECOND && s->at[i] < (3 + PEER_S) * GCI_SECOND && strstr(s->news[i].text, "does not answer"),
                  "rank %d heard after %lld ms: %s", r, (long long)(s->at[i] / GCI_NS_PER_MS), s->news[i].text);
    }
    end_job(j);
}

/* Its host died at 2 s. Its neighbour says something before that is found out, which starts the kernel's time-out anew: it is
 * dead in time all the same. */
static void live_told(rank_state *r)
{
    sim_sleep(r->proc, 6 * GCI_SECOND - r->started);
    gci_control_notify(r->control, &(gci_notice){ .kind = 1, .origin = 0 });
    sim_sleep(r->proc, 8 * GCI_SECOND);
}

static void test_told_meanwhile(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 2, live_told, host);
    rank_state *s = &j->rank[0];
    (void)state;
    sim_kill_host_at(host[1], 2 * GCI_SECOND);
    run(j);
    check(j, s->code == GC_OK && count_news(s, GCI_NEWS_DEAD, 1) == 1, "%d, %d deaths", s->code, count_news(s, GCI_NEWS_DEAD, 1));
    for (int i = 0; i < s->count; i++)
        check(j, s->at[i] >= (2 + PEER_S) * GCI_SECOND && s->at[i] < (3 + PEER_S) * GCI_SECOND,
              "heard after %lld ms: %s", (long long)(s->at[i] / GCI_NS_PER_MS), s->news[i].text);
    end_job(j);
}

/* What the second rank writes fails for ever from 2 s on, as if its connections were reset, though it still hears the others. Nobody
 * waits for what it had to say: the others take it for dead in time. */
static struct { gci_sys real; sim_proc *proc; int64_t from; bool naps; } unsaid;

static ssize_t send_fails(gci_sys *sys, int fd, const struct iovec *v, int n)
{
    bool late = sys->now(sys) >= unsaid.from;
    if (late && unsaid.naps)
        sim_sleep(unsaid.proc, 50 * GCI_NS_PER_MS);
    return late && !unsaid.naps ? -ECONNRESET : unsaid.real.send(sys, fd, v, n);
}

static void fail_sends(job *j, int rank, int64_t from, bool naps)
{
    gci_sys *sys = sim_sys(j->rank[rank].proc);
    unsaid.real = *sys, unsaid.proc = j->rank[rank].proc, unsaid.from = from, unsaid.naps = naps;
    sys->send = send_fails;
}

static void live_unsaid(rank_state *r)
{
    sim_sleep(r->proc, 3 * GCI_SECOND - r->started);
    gci_control_notify(r->control, &(gci_notice){ .kind = 1, .origin = (uint32_t)r->rank });
    sim_sleep(r->proc, 3 * PEER_S * GCI_SECOND);
}

static void test_unsaid(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 3, live_unsaid, host);
    (void)state;
    fail_sends(j, 1, 2 * GCI_SECOND, false);
    run(j);
    check_started(j, GCI_SECOND);
    for (int r = 0; r < 3; r += 2) {
        const rank_state *s = &j->rank[r];
        check(j, count_news(s, GCI_NEWS_DEAD, -1) == 1 && count_news(s, GCI_NEWS_DEAD, 1) == 1, "rank %d: %d deaths, %d of rank 1", r,
              count_news(s, GCI_NEWS_DEAD, -1), count_news(s, GCI_NEWS_DEAD, 1));
        for (int i = 0; i < s->count; i++)
            check(j, s->news[i].kind != GCI_NEWS_DEAD || s->at[i] < (4 + PEER_S) * GCI_SECOND, "rank %d heard after %lld ms", r,
                  (long long)(s->at[i] / GCI_NS_PER_MS));
    }
    end_job(j);
}

/* The other rank says something, its connections are reset and it dies while this one is about to write: what was said counts,
 * although the write fails. */
static void live_last_words(rank_state *r)
{
    sim_sleep(r->proc, 3 * GCI_SECOND - r->started + r->rank * 10 * GCI_NS_PER_MS);
    gci_control_notify(r->control, &(gci_notice){ .kind = GCI_NOTICE_MISMATCH, .origin = (uint32_t)r->rank });
    sim_sleep(r->proc, 3 * PEER_S * GCI_SECOND);
}

static void reset_and_kill(void *a, void *b)
{
    (void)sim_reset_between(a, b);
    sim_kill_proc(b);
}

static void test_last_words(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 2, live_last_words, host);
    const rank_state *s = &j->rank[0];
    (void)state;
    fail_sends(j, 0, 3 * GCI_SECOND, true);
    sim_at(j->sim, 3020 * (int64_t)GCI_NS_PER_MS, reset_and_kill, j->rank[0].proc, j->rank[1].proc);
    run(j);
    check(j, count_news(s, GCI_NEWS_NOTICE, -1) == 1 && count_news(s, GCI_NEWS_DEAD, 1) == 1, "%d notices, %d deaths",
          count_news(s, GCI_NEWS_NOTICE, -1), count_news(s, GCI_NEWS_DEAD, 1));
    end_job(j);
}

/* The network is away for a while, and the kernel takes its time to send again what was lost then. The peer cannot prove a fresh
 * connection, because it is stopped; but that its host takes one tells that it lives. */
static void live_behind_gap(rank_state *r)
{
    sim_sleep(r->proc, 4200 * (int64_t)GCI_NS_PER_MS - r->started);
    if (r->rank == 0)
        gci_control_notify(r->control, &(gci_notice){ .kind = 1, .origin = 0 });
    sim_sleep(r->proc, 10 * GCI_SECOND);
}

static void test_stopped_behind_gap(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 2, live_behind_gap, host);
    (void)state;
    sim_stop_proc_at(j->rank[1].proc, 1900 * GCI_NS_PER_MS);
    sim_cut_at(host[0], host[1], 2 * GCI_SECOND);
    sim_mend_at(host[0], host[1], 5900 * (int64_t)GCI_NS_PER_MS);
    sim_continue_proc_at(j->rank[1].proc, 12 * GCI_SECOND);
    run(j);
    check_started(j, GCI_SECOND);
    check(j, j->rank[0].count == 0, "%s", j->rank[0].news[0].text);
    check(j, count_news(&j->rank[1], GCI_NEWS_NOTICE, 0) == 1 && count_news(&j->rank[1], GCI_NEWS_DOWN, -1) == 0,
          "%d, %s", j->rank[1].count, j->rank[1].news[0].text);
    end_job(j);
}

/* Into the second and the third site nothing gets from outside, not even from each other: all goes by the first. */
static void test_islands(void **state)
{
    (void)state;
    for (enum sim_verdict verdict = SIM_REFUSE; verdict <= SIM_DROP; verdict++) {
        sim_host *host[RANKS_MAX];
        job *j = small_job(3, 4, live_on_links, host);
        rule(j, NULL, host[4], 0, verdict);
        rule(j, NULL, host[8], 0, verdict);
        run(j);
        check_started(j, 12 * GCI_SECOND);
        check_backbone(j);
        for (int r = 4; r < 8; r++)
            for (int peer = 8; peer < 12; peer++)
                check(j, !is_edge(&j->rank[r], peer), "%d and %d are linked", r, peer);
        end_job(j);
    }
}

/* Only rank 0's port is open to other sites. */
static void test_only_root(void **state)
{
    (void)state;
    for (enum sim_verdict verdict = SIM_REFUSE; verdict <= SIM_DROP; verdict++) {
        sim_host *host[RANKS_MAX];
        job *j = small_job(3, 3, live_on_links, host);
        rule(j, NULL, NULL, PORT, SIM_PASS);
        rule(j, NULL, NULL, 0, verdict);
        run(j);
        check_started(j, 15 * GCI_SECOND);
        check_backbone(j);
        end_job(j);
    }
}

/* Across, a host may join, and then nothing more. */
static enum sim_verdict once(void *user, sim_host *from, sim_host *to, uint16_t port)
{
    job *j = user;
    sim_host **known = j->known;
    if (!from || sim_site_of(from) == sim_site_of(to))
        return SIM_PASS;
    for (int i = 0; i < RANKS_MAX && port == PORT; i++) {
        if (known[i] == from)
            break;
        if (!known[i]) {
            known[i] = from;
            return SIM_PASS;
        }
    }
    return j->fault == NO_FAULT ? SIM_DROP : SIM_REFUSE;
}

static void test_gap(void **state)
{
    (void)state;
    for (int refused = 0; refused < 2; refused++) {
        job *j = small_job(2, 4, live_on_links, NULL);
        j->fault = refused ? CUT_SHORT : NO_FAULT;
        sim_firewall(j->sim, once, j);
        run(j);
        for (int r = 0; r < j->n; r++) {
            const char *text = j->rank[r].text;
            check(j, j->rank[r].code == GC_ERR_UNREACHABLE, "rank %d: %d %s", r, j->rank[r].code, text);
            check(j, strcmp(text, j->rank[0].text) == 0, "rank %d says %s", r, text);
            check(j, strstr(text, "ranks 0-3 (10.1.0.1:4000) and ranks 4-7 (10.2.0.1:"), "%s", text);
            check(j, strstr(text, "cannot reach each other: rank ") && strstr(text, refused ? "Connection refused" : "no answer"), "%s", text);
            check(j, j->rank[r].ended < START_S * GCI_SECOND, "rank %d ended late", r);
        }
        end_job(j);
    }
}

/* ---- within a host ---- */

enum near_how { NEAR_UNIX, NEAR_NONE, NEAR_ROBBED, NEAR_HOWS };
enum { NEAR_RANKS = 5, NEAR_FIRST = 32768, NEAR_NAMES = 16, NEAR_THEFT_S = 4, NEAR_KILL_S = 10 };

/* Two names of each four are taken before the ranks come. Whoever calls there hears nothing; later it is nobody's. */
static void thief_main(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    int fd[NEAR_NAMES];
    (void)arg;
    for (int i = 0; i < NEAR_NAMES; i++) {
        fd[i] = sys->listen(sys, &(gci_addr){ .family = GCI_UNIX, .port = (uint16_t)(NEAR_FIRST + 2 * i - i % 2) });
        assert_true(fd[i] >= 0);
    }
    while (sys->now(sys) < NEAR_THEFT_S * GCI_SECOND) {
        for (int i = 0, from; i < NEAR_NAMES; i++)
            if ((from = sys->accept(sys, fd[i], NULL)) >= 0)
                sys->close(sys, from);
        sim_sleep(p, GCI_NS_PER_MS);
    }
    for (int i = 0; i < NEAR_NAMES; i++)
        sys->close(sys, fd[i]);
}

static void live_near(rank_state *r)
{
    connect_all(r);
    check(r->job, await(r, linked, 5 * GCI_SECOND), "rank %d has not all links", r->rank);
    for (int i = 1; i < NEAR_RANKS; i++)
        r->spared += gci_control_table(r->control)->card[i].port % 4 > 1;
    sim_sleep(r->proc, (NEAR_KILL_S + 2) * GCI_SECOND - sim_now(r->job->sim));
}

/* While all live: who has lost somebody tries everything. */
static void see_near(void *user, sim_host *from, sim_nic *nic, const gci_addr *to)
{
    job *j = user;
    (void)from, (void)nic;
    j->syns += gci_addr_is_loopback(to) && sim_now(j->sim) < j->when;
}

static void check_near(job *j, enum near_how how)
{
    int spared = j->rank[1].spared;
    check(j, how == NEAR_UNIX ? !j->syns : j->syns > 0, "way %d: %d SYNs over loopback", how, j->syns);
    check(j, how != NEAR_ROBBED || (spared > 0 && spared < NEAR_RANKS - 1), "%d were spared", spared);
    for (int r = 0; r < NEAR_RANKS; r++) {
        const rank_state *s = &j->rank[r];
        check(j, s->code == GC_OK, "rank %d: %d %s", r, s->code, s->text);
        check(j, s->rank == j->victim || count_news(s, GCI_NEWS_DEAD, -1) == 1, "way %d, rank %d: %d deaths", how, r,
              count_news(s, GCI_NEWS_DEAD, -1));
        check(j, !count_news(s, GCI_NEWS_DOWN, -1) && !count_news(s, GCI_NEWS_NO_LINK, -1), "way %d, rank %d lost a link", how, r);
        for (int i = 0; i < s->count; i++)
            if (s->news[i].kind == GCI_NEWS_DEAD)
                check(j, s->news[i].rank == j->victim && s->at[i] >= j->when && s->at[i] - j->when < GCI_SECOND / 2,
                      "way %d, rank %d heard at %lld ms: %s", how, r, (long long)(s->at[i] / GCI_NS_PER_MS), s->news[i].text);
    }
}

/* Ranks of one host are linked by Unix sockets, or by TCP where there are none, or where somebody else has their names. What
 * becomes of those names is no sign of life or death: connections end, and everybody lives, but for him who dies. */
static void test_near(void **state)
{
    (void)state;
    for (int how = 0; how < NEAR_HOWS; how++)
        for (int victim = 0; victim < NEAR_RANKS; victim++) {
            int one = 1;
            job *j = calloc(1, sizeof *j);
            assert_non_null(j);
            j->sim = sim_new(7 + (uint64_t)victim);
            sim_calm(j->sim);
            sim_host **host = sim_grid(j->sim, 1, &one, 50000, 125000000, 0, 0);
            j->n = NEAR_RANKS;
            j->live = live_near;
            j->victim = victim;
            j->when = NEAR_KILL_S * GCI_SECOND;
            snprintf(j->root, sizeof j->root, "10.1.0.1");
            sim_host_forbid_unix(*host, how == NEAR_NONE);
            sim_on_syn(j->sim, see_near, j);
            if (how == NEAR_ROBBED)
                sim_spawn(*host, "thief", thief_main, NULL);
            for (int r = 0; r < NEAR_RANKS; r++) {
                j->rank[r] = (rank_state){ .job = j, .rank = r, .code = 1 };
                j->rank[r].proc = sim_spawn(*host, "rank", rank_main, &j->rank[r]);
            }
            for (int i = 0; i < 100; i++)
                sim_at(j->sim, 2 * GCI_SECOND + i * 60 * (int64_t)GCI_NS_PER_MS, reset_some, j, NULL);
            sim_kill_proc_at(j->rank[victim].proc, j->when);
            run(j);
            check_near(j, (enum near_how)how);
            free(host);
            end_job(j);
        }
}

/* ---- ssh ---- */

typedef struct ssh_world { job *job; sim_host *host[RANKS_MAX]; int spawned, from_a; bool denied; } ssh_world;

/* ssh ... -W 127.0.0.1:PORT -- me@NAME: sshd on that host connects to that port there. */
static int ssh_spawn(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    ssh_world *w = user;
    int n = 0, batch = 0, port = 0;
    const char *name;
    w->spawned++;
    w->from_a += strcmp(sim_host_site(sim_proc_host(by)), "a") == 0;
    check(w->job, strcmp(argv[0], "ssh") == 0, "not ssh: %s", argv[0]);
    for (; argv[n]; n++) {
        batch += strcmp(argv[n], "BatchMode=yes") == 0;
        if (strcmp(argv[n], "-W") == 0)
            check(w->job, sscanf(argv[n + 1], "127.0.0.1:%5d", &port) == 1, "%s", argv[n + 1]);
    }
    name = strchr(argv[n - 1], '@');
    check(w->job, batch == 1 && port && name && strcmp(argv[n - 2], "--") == 0 && strncmp(argv[n - 1], "me@", 3) == 0, "%s", argv[n - 1]);
    for (int i = 0; i < w->job->n; i++)
        if (strcmp(sim_host_name(w->host[i]), name + 1) == 0) {
            *from = w->host[i];
            gci_addr_parse("127.0.0.1", to);
            to->port = w->denied ? 9 : (uint16_t)port;      /* nobody listens there: the stream just ends */
            return 0;
        }
    return -ENOENT;
}

/* Nothing but the join gets from one site to the other, and only the first has a file of links. */
static void run_ssh(ssh_world *w, bool denied)
{
    char path[] = "/tmp/gct_links_XXXXXX";
    int fd = mkstemp(path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    assert_non_null(file);
    fprintf(file, "# from site a to site b\nrequire a* b? via=ssh user=me\n");
    fclose(file);
    memset(w, 0, sizeof *w);
    w->job = small_job(2, 3, live_on_links, w->host);
    w->denied = denied;
    w->job->links = path;
    sim_firewall(w->job->sim, once, w->job);
    sim_on_spawn(w->job->sim, ssh_spawn, w);
    run(w->job);
    remove(path);
}

static void test_ssh(void **state)
{
    ssh_world w;
    (void)state;
    run_ssh(&w, false);
    check_started(w.job, 5 * GCI_SECOND);
    check_backbone(w.job);
    check(w.job, w.spawned && w.spawned == w.from_a, "%d spawned, %d on a", w.spawned, w.from_a);
    for (int a = 0; a < 3; a++)
        for (int b = 3; b < 6; b++)
            check(w.job, is_edge(&w.job->rank[a], b) && link_news(&w.job->rank[a], GCI_PURPOSE_DATA, b), "%d and %d", a, b);
    end_job(w.job);
    run_ssh(&w, true);
    for (int r = 0; r < 6; r++) {
        check(w.job, w.job->rank[r].code == GC_ERR_UNREACHABLE, "rank %d: %d %s", r, w.job->rank[r].code, w.job->rank[r].text);
        check(w.job, strstr(w.job->rank[r].text, "ssh me@b"), "%s", w.job->rank[r].text);
        check(w.job, w.job->rank[r].ended < 8 * GCI_SECOND, "rank %d ended late", r);
    }
    end_job(w.job);
}

/* ---- links that are refused, the end ---- */

static bool refused(const rank_state *r) { return count_news(r, GCI_NEWS_NO_LINK, 1) > 0; }
static bool linked_to_0(const rank_state *r) { return count_news(r, GCI_NEWS_LINK, 0) > 0; }

static void live_full(rank_state *r)
{
    gci_sys *sys = r->env.sys;
    if (r->rank == 1)
        gci_control_full(r->control, true);
    sim_sleep(r->proc, GCI_SECOND);
    if (r->rank == 0) {
        int64_t begun = sys->now(sys);
        gci_control_connect(r->control, GCI_PURPOSE_DATA, 1, 0);
        check(r->job, await(r, refused, 10 * GCI_SECOND) && sys->now(sys) - begun < GCI_SECOND / 10, "refused late");
        check(r->job, strstr(r->news[0].text, "as many links as it may") && r->news[0].code == GC_ERR_UNREACHABLE, "%s", r->news[0].text);
        check(r->job, r->news[0].purpose == GCI_PURPOSE_DATA, "purpose %d", r->news[0].purpose);
    }
    sim_sleep(r->proc, GCI_SECOND);
    if (r->rank == 1) {             /* it may ask for more itself */
        gci_control_connect(r->control, GCI_PURPOSE_DATA, 0, 0);
        check(r->job, await(r, linked_to_0, 10 * GCI_SECOND), "no link");
    }
    sim_sleep(r->proc, GCI_SECOND);
}

static void test_full(void **state)
{
    job *j = small_job(1, 3, live_full, NULL);
    (void)state;
    run(j);
    check_started(j, GCI_SECOND);
    end_job(j);
}

/* Rank 3 comes to the end later than the others. */
static void live_late(rank_state *r)
{
    sim_sleep(r->proc, (r->rank == 3 ? (int)(r->job->when / GCI_NS_PER_MS) : 100) * (int64_t)GCI_NS_PER_MS);
}

static void test_quiesce(void **state)
{
    enum { LATE, KILLED, NEVER, CASES };
    (void)state;
    for (int what = 0; what < CASES; what++)
        for (int sites = 1; sites <= 3; sites++) {
            job *j = small_job(sites, 6, live_late, NULL);
            int64_t due = 2 * GCI_SECOND, started = 0;
            j->when = what == LATE ? due : 60 * GCI_SECOND;
            if (what == KILLED)
                sim_kill_proc_at(j->rank[3].proc, due);
            run(j);
            check_started(j, GCI_SECOND);
            for (int r = 0; r < j->n; r++)
                started = j->rank[r].started > started ? j->rank[r].started : started;
            if (what == LATE)
                due += j->rank[3].started;
            for (int r = 0; r < j->n; r++) {
                int64_t ended = j->rank[r].ended;
                if (r == 3)
                    check(j, what == KILLED || ended < (what == LATE ? due : 60 * GCI_SECOND + started) + GCI_SECOND / 5, "rank 3 ended late");
                else if (what == NEVER)
                    check(j, ended >= (PEER_S + 1) * GCI_SECOND && ended < started + (PEER_S + 3) * GCI_SECOND + GCI_SECOND / 5,
                          "rank %d ended after %lld ms", r, (long long)(ended / GCI_NS_PER_MS));
                else
                    check(j, ended >= due && ended < due + GCI_SECOND / 5, "rank %d ended at %lld ms", r, (long long)(ended / GCI_NS_PER_MS));
                check(j, what == NEVER || count_news(&j->rank[r], GCI_NEWS_LEFT, -1) == 0, "rank %d took the end for a loss", r);
            }
            for (int r = 0; r < j->n && what == NEVER; r++)     /* whoever goes without rank 3 is no way for it any more */
                check(j, r == 3 || count_news(&j->rank[3], GCI_NEWS_LEFT, r) + count_news(&j->rank[3], GCI_NEWS_DEAD, r) == 1,
                      "rank 3 was not told that rank %d left", r);
            end_job(j);
        }
}

/* A rank is stopped while the others say and lose more than is kept for it: it hears of every loss in the end. */
static bool is_through(const rank_state *r) { return last_epoch(r) == 40 * (r->job->n - 1); }

static void live_behind(rank_state *r)
{
    if (r->rank != 2)
        for (uint32_t i = 0; i < 400; i++) {
            gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_MISMATCH, (uint32_t)r->rank, { i } });
            if (i % 10 == 0)
                gci_control_restart(r->control);
            sim_sleep(r->proc, GCI_NS_PER_MS);
        }
    check(r->job, await(r, is_through, 60 * GCI_SECOND), "rank %d is in epoch %d", r->rank, last_epoch(r));
    if (r->env.sys->now(r->env.sys) < 25 * GCI_SECOND)
        sim_sleep(r->proc, 25 * GCI_SECOND - r->env.sys->now(r->env.sys));
}

static void test_behind(void **state)
{
    job *j = small_job(2, 3, live_behind, NULL);
    (void)state;
    j->fault = RESTARTS;
    sim_stop_proc_at(j->rank[2].proc, GCI_SECOND / 5);
    sim_continue_proc_at(j->rank[2].proc, 20 * GCI_SECOND);
    run(j);
    for (int r = 0; r < j->n; r++) {
        check(j, j->rank[r].code == GC_OK, "rank %d: %d %s", r, j->rank[r].code, j->rank[r].text);
        check(j, count_news(&j->rank[r], GCI_NEWS_DEAD, -1) == 0 && count_news(&j->rank[r], GCI_NEWS_DOWN, -1) == 0, "rank %d lost somebody", r);
    }
    check(j, count_news(&j->rank[2], GCI_NEWS_EPOCH, -1) < 40 * (j->n - 1), "each was told by itself");
    end_job(j);
}

static int count_verdicts(const rank_state *r, uint32_t on)
{
    int count = 0;
    for (int i = 0; i < r->count; i++)
        count += r->news[i].kind == GCI_NEWS_NOTICE && r->news[i].notice.kind == GCI_NOTICE_LOST && r->news[i].notice.word[0] == on;
    return count;
}

/* Each rank hears each verdict once. */
static void check_verdicts(job *j, int from)
{
    for (int r = 0; r < j->n; r++) {
        check(j, j->rank[r].code == GC_OK, "rank %d: %d %s", r, j->rank[r].code, j->rank[r].text);
        for (int on = 0; on < j->n; on++)
            check(j, count_verdicts(&j->rank[r], (uint32_t)on) == (r != from), "rank %d has heard %d verdicts on rank %d", r,
                  count_verdicts(&j->rank[r], (uint32_t)on), on);
    }
}

static void condemn_all(rank_state *r)
{
    for (int on = 0; on < r->job->n; on++) {
        int err = gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_LOST, (uint32_t)r->rank, { (uint32_t)on, 8 } });
        check(r->job, err == GC_OK, "a verdict on rank %d: %s", on, gc_strerror(err));
    }
}

/* A rank has no memory at all when it says whom it has given up. */
static void live_condemning(rank_state *r)
{
    sim_sleep(r->proc, GCI_SECOND);
    if (r->rank == 1) {
        sim_alloc_fail(r->proc, 1);
        condemn_all(r);
        sim_sleep(r->proc, GCI_SECOND / 10);
        sim_alloc_fail(r->proc, 0);
        condemn_all(r);
    }
    sim_sleep(r->proc, 3 * GCI_SECOND);
}

static void test_verdicts_without_memory(void **state)
{
    job *j = small_job(2, 4, live_condemning, NULL);
    (void)state;
    run(j);
    check_verdicts(j, 1);
    end_job(j);
}

/* A rank is stopped; behind a verdict come more notices than are kept for it. */
static void live_behind_verdict(rank_state *r)
{
    sim_sleep(r->proc, GCI_SECOND - r->started);
    for (uint32_t i = 0; r->rank != 2 && i < 40; i++)       /* these fill what it may be behind */
        gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_MISMATCH, (uint32_t)r->rank, { i } });
    sim_sleep(r->proc, GCI_SECOND / 10);
    if (r->rank == 0)
        condemn_all(r);
    sim_sleep(r->proc, GCI_SECOND / 10);
    for (uint32_t i = 0; r->rank != 2 && i < GCI_NOTICES_KEPT; i++)
        gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_MISMATCH, (uint32_t)r->rank, { i } });
    sim_sleep(r->proc, 25 * GCI_SECOND);
}

static void test_behind_verdict(void **state)
{
    job *j = small_job(2, 3, live_behind_verdict, NULL);
    (void)state;
    sim_stop_proc_at(j->rank[2].proc, 900 * GCI_NS_PER_MS);
    sim_continue_proc_at(j->rank[2].proc, 20 * GCI_SECOND);
    run(j);
    check_verdicts(j, 0);
    end_job(j);
}

static int count_mismatches(const rank_state *r)
{
    int count = 0;
    for (int i = 0; i < r->count; i++)
        count += r->news[i].kind == GCI_NEWS_NOTICE && r->news[i].notice.kind == GCI_NOTICE_MISMATCH;
    return count;
}

/* While a neighbour is dialled again, what stalled ranks tell pushes nothing out. */
static void live_redialled(rank_state *r)
{
    sim_sleep(r->proc, 2 * GCI_SECOND + GCI_SECOND / 10 - r->started);
    for (uint32_t i = 0; r->rank == 0 && i < NOTICES; i++)
        gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_MISMATCH, 0, { i } });
    for (uint32_t i = 0; r->rank == 0 && i < 2 * GCI_NOTICES_KEPT; i++) {
        gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_STALL, 0, { 1, 1, i } });
        sim_sleep(r->proc, GCI_NS_PER_MS);
    }
    sim_sleep(r->proc, 5 * GCI_SECOND);
}

static void reset_both(void *a, void *b) { sim_reset_between(a, b); }

static void test_redialled(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 2, live_redialled, host);
    (void)state;
    sim_cut_at(host[0], host[1], 2 * GCI_SECOND);
    sim_at(j->sim, 2 * GCI_SECOND + 1, reset_both, j->rank[0].proc, j->rank[1].proc);
    sim_mend_at(host[0], host[1], 4 * GCI_SECOND);
    run(j);
    check_started(j, GCI_SECOND);
    check(j, count_mismatches(&j->rank[1]) == NOTICES, "%d of %d", count_mismatches(&j->rank[1]), NOTICES);
    end_job(j);
}

/* Nor does it take what is kept for what must be said without memory. */
static void live_hungry(rank_state *r)
{
    sim_sleep(r->proc, GCI_SECOND);
    if (r->rank == 1) {
        sim_alloc_fail(r->proc, 1);
        for (uint32_t i = 0; i < NOTICES; i++)
            gci_control_notify(r->control, &(gci_notice){ GCI_NOTICE_STALL, 1, { 0, 1, i } });
        int err = gci_control_restart(r->control);
        sim_alloc_fail(r->proc, 0);
        check(r->job, err == GC_OK, "a restart: %s", gc_strerror(err));
    }
    sim_sleep(r->proc, GCI_SECOND);
}

static void test_stalls_without_memory(void **state)
{
    job *j = small_job(1, 3, live_hungry, NULL);
    (void)state;
    run(j);
    for (int r = 0; r < j->n; r++)
        check(j, j->rank[r].code == GC_OK && last_epoch(&j->rank[r]) == 1, "rank %d: %d, epoch %d", r, j->rank[r].code,
              last_epoch(&j->rank[r]));
    end_job(j);
}

/* A cut of most of peer_timeout swallows the SYN of a second later, too; a kernel's next one would come after the verdict. */
static void live_apart(rank_state *r) { sim_sleep(r->proc, 2 * PEER_S * GCI_SECOND - r->started); }

static void test_apart_for_long(void **state)
{
    sim_host *host[RANKS_MAX];
    job *j = small_job(1, 2, live_apart, host);
    (void)state;
    sim_cut_at(host[0], host[1], 2 * GCI_SECOND);
    sim_at(j->sim, 2 * GCI_SECOND + 1, reset_both, j->rank[0].proc, j->rank[1].proc);
    sim_mend_at(host[0], host[1], 5 * GCI_SECOND + GCI_SECOND / 2);
    run(j);
    check_started(j, GCI_SECOND);
    for (int r = 0; r < 2; r++)
        check(j, !count_news(&j->rank[r], GCI_NEWS_DOWN, -1) && !count_news(&j->rank[r], GCI_NEWS_DEAD, -1), "rank %d has given up", r);
    end_job(j);
}

static void test_complete(void **state)
{
    job *j = small_job(2, 8, live_on_links, NULL);
    (void)state;
    j->density = 1;
    run(j);
    check_started(j, GCI_SECOND);
    check_backbone(j);
    check(j, j->rank[0].edges == 16 * 15 / 2, "%d links", j->rank[0].edges);
    end_job(j);
}

static void test_peace(void **state) { (void)state; rounds(NO_FAULT, 20); }
static void test_kill_proc(void **state) { (void)state; rounds(KILL_PROC, 60); }
static void test_kill_host(void **state) { (void)state; rounds(KILL_HOST, 30); }
static void test_resets(void **state) { (void)state; rounds(RESETS, 30); }
static void test_no_memory(void **state) { (void)state; rounds(NO_MEMORY, 60); }
static void test_cut(void **state) { (void)state; rounds(CUT, 30); }
static void test_cut_short(void **state) { (void)state; rounds(CUT_SHORT, 20); }
static void test_partition(void **state) { (void)state; rounds(PARTITION, 30); }
static void test_restarts(void **state) { (void)state; rounds(RESTARTS, 20); }
static void test_forget(void **state) { (void)state; rounds(FORGET, 40); }

/* ---- links that are lost and asked for again ----------------------------------------------------------------------------- */

/* A rank keeps its links of the backbone as the overlay does: what it wants and has not got it asks for, once until there is an
 * answer, and of two connections it takes the later one. What it does not want it takes if the other side opens it. */
enum { TROUBLE_S = 5, KEEP_S = 17, RESETS_EACH = 10 };
typedef struct kept_link { int fd; uint32_t id, seen; bool asked, wanted; int64_t again; } kept_link;
static kept_link kept[RANKS_MAX][RANKS_MAX];

static unsigned keep_roll(rank_state *r, unsigned below)
{
    r->dice = r->dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(r->dice >> 33) % below;
}

static void keep_drop(rank_state *r, kept_link *k)
{
    if (k->fd >= 0)
        r->env.sys->close(r->env.sys, k->fd);
    k->fd = -1;
    k->id = 0;
}

static void keep_news(rank_state *r, int from, int to)
{
    for (int i = from; i < to; i++) {
        gci_news *news = &r->news[i];
        kept_link *k = &kept[r->rank][news->rank];
        if (news->kind != GCI_NEWS_LINK && news->kind != GCI_NEWS_NO_LINK)
            continue;
        k->asked = false;
        k->again = sim_now(r->job->sim) + 100 * GCI_NS_PER_MS;
        if (news->kind == GCI_NEWS_NO_LINK)
            continue;
        keep_drop(r, k);
        k->fd = news->fd;
        k->id = news->id;
        k->seen++;
        k->again = 0;
        news->kind = GCI_NEWS_NOTICE;           /* its connection is closed here */
    }
}

static void keep_one(rank_state *r, int peer, int64_t now, bool trouble)
{
    kept_link *k = &kept[r->rank][peer];
    gci_sys *sys = r->env.sys;
    struct iovec v = { &(uint8_t){ 0 }, 1 };

    if (k->fd >= 0 && (sys->recv(sys, k->fd, &v, 1) != -EAGAIN || (trouble && keep_roll(r, 500) == 0)))
        keep_drop(r, k);
    if (k->fd < 0 && k->wanted && !k->asked && now >= k->again)
        k->asked = gci_control_connect(r->control, GCI_PURPOSE_BACKBONE, peer, k->seen) == GC_OK;
}

static void live_keeping(rank_state *r)
{
    gci_sys *sys = r->env.sys;
    int64_t now;
    int heard = 0;

    r->dice = r->job->seed * 64 + (uint64_t)r->rank;
    for (int i = 0; i < r->job->n; i++)
        kept[r->rank][i] = (kept_link){ .fd = -1, .wanted = is_edge(r, i) && keep_roll(r, 4) > 0 };
    while ((now = sim_now(r->job->sim)) < KEEP_S * GCI_SECOND) {
        sys->enter(sys, r->monitor);
        int count = r->count;
        sys->leave(sys, r->monitor);
        keep_news(r, heard, count);
        heard = count;
        for (int i = 0; i < r->job->n; i++)
            if (is_edge(r, i))
                keep_one(r, i, now, now < (2 + TROUBLE_S) * GCI_SECOND);
        sim_sleep(r->proc, GCI_NS_PER_MS);
    }
    sim_sleep(r->proc, GCI_SECOND);     /* nobody sees another's end here */
    for (int i = 0; i < r->job->n; i++)
        if (kept[r->rank][i].fd >= 0)
            sys->close(sys, kept[r->rank][i].fd);
}

/* Whatever was reset, dropped by one side while the other had hardly heard of it, or opened by both at once: in the end who
 * wants a link has one, and the same as the other side. */
static void test_keeping(void **state)
{
    const char *seed = getenv("GCT_SEED"), *more = getenv("GCT_ROUNDS");
    uint64_t first = seed ? strtoull(seed, NULL, 10) : 4711;
    int count = more ? atoi(more) : 10;

    (void)state;
    for (int i = 0; i < count; i++) {
        job *j = calloc(1, sizeof *j);
        assert_non_null(j);
        memset(kept, 0, sizeof kept);
        build(j, first + (uint64_t)i, NO_FAULT);
        j->live = live_keeping;
        if (j->seed % 2 == 0)
            sim_tune(j->sim)->jitter = 30 * GCI_NS_PER_MS;
        for (int k = 0; k < RESETS_EACH * j->n; k++)
            sim_at(j->sim, 2 * GCI_SECOND + (int64_t)(sim_random(j->sim) % (TROUBLE_S * (uint64_t)GCI_SECOND)), reset_some, j, NULL);
        run(j);
        for (int a = 0; a < j->n; a++)
            check(j, j->rank[a].code == GC_OK && j->rank[a].count < NEWS_MAX, "rank %d: %d %s, %d news", a, j->rank[a].code,
                  j->rank[a].text, j->rank[a].count);
        for (int a = 0; a < j->n; a++)
            for (int b = 0; b < j->n; b++)
                check(j, !kept[a][b].wanted || count_news(&j->rank[a], GCI_NEWS_DOWN, -1)
                         || (kept[a][b].id && kept[a][b].id == kept[b][a].id),
                      "rank %d wants a link to %d, and has %08x, the other side %08x", a, b, (unsigned)kept[a][b].id,
                      (unsigned)kept[b][a].id);
        end_job(j);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_peace),
        cmocka_unit_test(test_kill_proc),
        cmocka_unit_test(test_kill_host),
        cmocka_unit_test(test_resets),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_fetch_fails),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_early_call),
        cmocka_unit_test(test_mute),
        cmocka_unit_test(test_told_meanwhile),
        cmocka_unit_test(test_unsaid),
        cmocka_unit_test(test_last_words),
        cmocka_unit_test(test_stopped_behind_gap),
        cmocka_unit_test(test_islands),
        cmocka_unit_test(test_only_root),
        cmocka_unit_test(test_gap),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_ssh),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_quiesce),
        cmocka_unit_test(test_behind), cmocka_unit_test(test_redialled), cmocka_unit_test(test_stalls_without_memory),
        cmocka_unit_test(test_apart_for_long),
        cmocka_unit_test(test_verdicts_without_memory),
        cmocka_unit_test(test_behind_verdict),
        cmocka_unit_test(test_complete),
        cmocka_unit_test(test_cut),
        cmocka_unit_test(test_cut_short),
        cmocka_unit_test(test_partition),
        cmocka_unit_test(test_restarts),
        cmocka_unit_test(test_forget),
        cmocka_unit_test(test_keeping),
    };
    return cmocka_run_group_tests_name("control on the simulated network", tests, NULL, NULL);
}
