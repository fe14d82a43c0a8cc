/* test_measure.c: gc_model_measure on the simulated network, whose latencies and rates must come back.
 * SPDX-License-Identifier: MIT
 *
 * time limit: 600 s
 */
#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 64, REAL_LIMIT_S = 300 };

/* A network, and what is to be found there; s and byte/s. */
typedef struct net {
    const char *kind;
    int     ranks, sites, per_host;
    double  lan_latency, lan_rate, wan_latency, wan_rate, uplink;   /* uplink 0: sites have none */
    double  seconds;                    /* given; by all but rank 0 a twentieth, which does not count */
    double  late;                       /* s: that the last rank comes after the others */
    int     code;                       /* expected; GC_OK: a model */
    bool    noisy, unequal;             /* unequal: see uneven[] */
    double  back;                       /* the rate from a site to one of a lower number; 0: wan_rate */
    int     racks;                      /* of each of two sites; the simulated network's sites are these racks then */
    const gct_event *event;             /* that happens, or NULL */
    int     fails_at, fails_nth;        /* that rank's allocation; nth 0: none */
    int     good;                       /* ranks that got a model */
    double  took, tolerance;
    gc_model *models[RANKS_MAX];
} net;

static double now(void) { return (double)sim_sys(sim_current())->now(sim_sys(sim_current())) / 1e9; }

static bool near(double found, double truth, double tolerance)
{
    return fabs(found - truth) <= tolerance * truth;
}

static int measured(gc_comm *world, int rank, int size, void *arg)
{
    net *n = arg;
    if (rank == size - 1 && n->late > 0)
        sim_sleep(sim_current(), (int64_t)(n->late * 1e9));
    double start = now();
    gc_model *model = (gc_model *)arg;
    int err = gc_model_measure(world, n->kind, rank == 0 ? n->seconds : n->seconds / 20, &model);
    gct_require(err == n->code || (n->fails_nth && err < 0), "code %d", err);
    gct_require((err == GC_OK) == (model != NULL), "model %p", (void *)model);
    n->models[rank] = model;
    n->good += model != NULL;
    n->took = now() - start > n->took ? now() - start : n->took;
    return 0;
}

/* Lines between three sites, by the sum of their numbers. */
static const struct { double latency, rate; } uneven[] = { { 0, 0 }, { 10e-3, 1e6 }, { 30e-3, 2e6 }, { 25e-3, 5e5 } };

/* Racks of a site are closer to each other than sites are. */
static const struct { double latency, rate; } racks = { 300e-6, 20e6 };

static int place_of(const net *n, int rank) { return rank * n->sites / n->ranks; }
static bool among_racks(const net *n, int x, int y) { return n->racks && x != y && x / n->racks == y / n->racks; }

static void rack_names(gc_options *options, int rank, void *arg)
{
    static const char *const names[] = { "a/1", "a/2", "a/3", "b/1", "b/2", "b/3" };
    const net *n = arg;
    int place = place_of(n, rank);
    if (n->racks)
        options->cluster = names[place / n->racks * 3 + place % n->racks];
}

static void uplinks(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const net *n = arg;
    if (n->noisy) {                     /* one system call in 300 is followed by up to 5 ms for somebody else */
        sim_tune(s)->preempt_in = 300;
        sim_tune(s)->stall = 5 * GCI_NS_PER_MS;
    }
    for (int i = 0, per_site = ranks / 3; n->unequal && i < 3; i++) {
        sim_site *x = sim_site_of(sim_proc_host(procs[i * per_site]));
        sim_site *y = sim_site_of(sim_proc_host(procs[(i + 1) % 3 * per_site]));
        int sum = i + (i + 1) % 3;
        sim_wan(x, y, (int64_t)(uneven[sum].latency * 1e9), (int64_t)uneven[sum].rate);
    }
    for (int i = 0; i < ranks; i++) {
        for (int k = 0; k < i; k++) {
            sim_site *x = sim_site_of(sim_proc_host(procs[i])), *y = sim_site_of(sim_proc_host(procs[k]));
            if (among_racks(n, place_of(n, i), place_of(n, k)))
                sim_wan(x, y, (int64_t)(racks.latency * 1e9), (int64_t)racks.rate);
            if (n->back > 0 && x != y)
                sim_wan_one_way(x, y, (int64_t)(n->wan_latency * 1e9), (int64_t)n->back);
        }
    }
    for (int i = 0; i < ranks && n->uplink > 0; i++) {
        sim_uplink(sim_site_of(sim_proc_host(procs[i])), (int64_t)n->uplink);
    }
}

static void started(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const net *n = arg;
    (void)s, (void)ranks;
    if (n->fails_nth)
        sim_alloc_fail(procs[n->fails_at], -n->fails_nth);
}

static void run_main(net *n, gct_main *main)
{
    const double wide = 1e12;
    gct_outcome outcome;
    n->took = n->good = 0;
    gct_spec spec = { .ranks = n->ranks, .on = GCT_ON_SIM, .seed = 7, .sites = n->sites, .ranks_per_host = n->per_host,
                      .time_limit = REAL_LIMIT_S, .calm = true, .lan_latency = (int64_t)(n->lan_latency * 1e9),
                      .lan_rate = (int64_t)n->lan_rate, .wan_latency = (int64_t)(n->wan_latency * 1e9),
                      .wan_rate = (int64_t)(n->uplink > 0 ? wide : n->wan_rate), .arrange = uplinks, .options = rack_names,
                      .unwitnessed = true, .started = started, .events = n->event, .event_count = n->event != NULL,
                      .leave_anyhow = n->event || n->fails_nth, .virtual_limit = 3600 * GCI_SECOND, .outcome = &outcome };
    assert_int_equal(0, gct_job(&spec, main, n));
}

static void run(net *n) { run_main(n, measured); }

static void done(net *n)
{
    for (int i = 0; i < n->ranks; i++) {
        gc_model_free(n->models[i]);
    }
}

/* Every pair's time, empty and long, beside what the network takes; and the same model everywhere. */
static void check_pairs(const net *n)
{
    gci_env env = { .alloc = NULL };
    double worst[2] = { 0, 0 };
    const gc_model *m = n->models[0];
    char *first, *other;
    size_t bytes, more;
    assert_int_equal(GC_OK, gci_model_write(&env, m, &first, &bytes));
    for (int i = 0; i < n->ranks; i++) {
        assert_int_equal(GC_OK, gci_model_write(&env, n->models[i], &other, &more));
        assert_true(bytes == more && memcmp(first, other, bytes) == 0);
        gci_free(&env, other);
        for (int k = 0; k < n->ranks; k++) {
            int x = i * n->sites / n->ranks, y = k * n->sites / n->ranks;
            if (m->host_of[i] == m->host_of[k])
                continue;
            double rate = x == y ? n->lan_rate : n->uplink > 0 ? n->uplink : n->wan_rate;
            double latency = x == y ? n->lan_latency : n->wan_latency, empty, full;
            if (among_racks(n, x, y)) {
                rate = racks.rate;
                latency = racks.latency;
            }
            if (n->back > 0 && x > y)
                rate = n->back;
            if (n->unequal && x != y) {
                rate = uneven[x + y].rate;
                latency = uneven[x + y].latency;
            }
            assert_int_equal(GC_OK, gc_model_p2p(m, i, k, 0, &empty));
            assert_int_equal(GC_OK, gc_model_p2p(m, i, k, 65536, &full));
            double alpha = empty / (latency + GCI_HEADER_BYTES / rate) - 1, beta = (full - empty) / 65536 * rate - 1;
            worst[0] = fmax(worst[0], fabs(alpha));
            worst[1] = fmax(worst[1], fabs(beta));
        }
    }
    if (getenv("GCT_MODEL"))
        printf("%.*s", (int)bytes, first);
    gci_free(&env, first);
    printf("%s, %d ranks at %d sites: %.1f s; latency off by %.2f %%, rate by %.2f %% at most\n", n->kind, n->ranks, n->sites,
           n->took, worst[0] * 100, worst[1] * 100);
    assert_true(worst[0] <= n->tolerance && worst[1] <= n->tolerance);
    assert_true(n->took <= n->seconds + n->late + 1);
}

/* ---- predictions ---- */

/* What this network costs, as it was told. */
static gc_model *truth(const net *n)
{
    int32_t class_of[RANKS_MAX], site_of[RANKS_MAX];
    gci_env env = { .alloc = NULL };
    gc_model *m;
    for (int i = 0; i < n->ranks; i++) {
        site_of[i * n->sites / n->ranks] = class_of[i] = i * n->sites / n->ranks;
    }
    assert_int_equal(GC_OK, gci_model_make(&env, GCI_HOCKNEY, n->ranks, class_of, NULL, site_of, &m));
    m->header = GCI_HEADER_BYTES;
    for (int x = 0; x < n->sites; x++) {
        m->nic[x] = (gci_port){ .out = 1 / n->lan_rate, .in = 1 / n->lan_rate };
        m->uplink[x].out = m->uplink[x].in = n->uplink > 0 ? 1 / n->uplink : 0;
        for (int y = 0; y < n->sites; y++) {
            m->between[x * n->sites + y].latency = x == y ? n->lan_latency : n->wan_latency;
            m->trunk[x * n->sites + y] = x == y || n->uplink > 0 ? 0 : 1 / n->wan_rate;
        }
    }
    return m;
}

/* Collectives take as long under the measured model as under the true one. */
static int predicted(gc_comm *world, int rank, int size, void *arg)
{
    static const char *const ops[] = { "barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce", "allreduce",
                                       "reduce_scatter", "scan", "exscan" };
    net *n = arg;
    gc_model *model, *true_one = truth(n);
    double worst = 0;
    gct_ok(gc_model_measure(world, n->kind, n->seconds, &model));
    for (size_t i = 0; i < 3 * GCI_COUNT(ops) && rank == 0; i++) {
        double found, wanted;
        size_t bytes = i % 3 == 0 ? 1 : i % 3 == 1 ? 4096 : 65536;
        gct_ok(gc_predict(world, model, ops[i / 3], NULL, bytes, 0, &found));
        gct_ok(gc_predict(world, true_one, ops[i / 3], NULL, bytes, 0, &wanted));
        worst = fmax(worst, fabs(found / wanted - 1));
        gct_require(near(found, wanted, 0.1), "%s of %zu bytes: %g instead of %g s", ops[i / 3], bytes, found, wanted);
    }
    if (rank == 0) {
        printf("%s, %d ranks at %d sites%s: predictions differ by %.1f %% at most\n", n->kind, size, n->sites,
               n->uplink > 0 ? " with uplinks" : "", worst * 100);
    }
    gc_model_free(model);
    gc_model_free(true_one);
    return 0;
}

#define GRID .lan_latency = 50e-6, .lan_rate = 125e6, .wan_latency = 10e-3, .wan_rate = 1e6, .seconds = 20, .tolerance = 0.05

static void check_shared(const net *n)
{
    const gc_model *m = n->models[0];
    for (int x = 0; x < m->sites; x++) {
        const gci_port *up = &m->uplink[x];
        bool shared = n->uplink > 0 && n->sites > 2;
        assert_true(shared ? near(up->out, 1 / n->uplink, 0.05) && near(up->in, 1 / n->uplink, 0.05) && !up->together
                           : up->out <= 0 && up->in <= 0);
        for (int y = 0; y < m->sites; y++) {
            double trunk = m->trunk[x * m->sites + y], rate = n->uplink > 0 ? n->uplink : n->wan_rate;
            assert_true(x == y || shared ? trunk <= 0 : near(trunk, 1 / rate, 0.05));
        }
    }
    for (int c = 0; c < m->classes; c++) {
        assert_true(near(m->nic[c].out, 1 / n->lan_rate, 0.05) && near(m->nic[c].in, 1 / n->lan_rate, 0.05));
        assert_false(m->nic[c].together);
    }
}

static void test_grid(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        net n = { .kind = i % 2 ? "plogp" : "hockney", .ranks = 16, .sites = 4, .uplink = i / 2 ? 1e6 : 0, GRID };
        n.tolerance = 0.002;
        run(&n);
        check_pairs(&n);
        check_shared(&n);
        assert_true(n.took <= 20 && n.models[0]->kind == (i % 2 ? GCI_PLOGP : GCI_HOCKNEY));
        done(&n);
    }
}

static void test_predictions(void **state)
{
    (void)state;
    static const int sites[] = { 1, 2, 3, 3 };
    for (int i = 0; i < 8; i++) {
        net n = { .kind = i % 2 ? "plogp" : "hockney", .ranks = 12, .sites = sites[i / 2], GRID };
        n.uplink = i / 2 == 3 ? 1e6 : 0;
        run_main(&n, predicted);
    }
}

static void test_two_sites(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        net n = { .kind = "hockney", .ranks = 6, .sites = 2, .uplink = i ? 1e6 : 0, GRID };
        run(&n);
        check_pairs(&n);
        check_shared(&n);
        done(&n);
    }
}

/* Where the first message that is not empty is long already; and where somebody comes late. */
static void test_slow(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        net n = { .kind = i == 1 ? "plogp" : "hockney", .ranks = 6, .sites = i == 3 ? 2 : 1, GRID };
        n.lan_latency = i == 2 ? 50e-6 : 1e-3;
        n.lan_rate = 2.5e6;
        run(&n);
        check_pairs(&n);
        check_shared(&n);
        done(&n);
    }
}

static void test_late(void **state)
{
    (void)state;
    net n = { .kind = "hockney", .ranks = 8, .sites = 4, .uplink = 1e6, .late = 40, GRID };
    run(&n);
    check_pairs(&n);
    check_shared(&n);
    done(&n);
}

static void test_one_site(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5, 8, 20 };
    for (size_t i = 0; i < GCI_COUNT(ranks); i++) {
        net n = { .kind = i % 2 ? "plogp" : "hockney", .ranks = ranks[i], .sites = 1, GRID };
        run(&n);
        check_pairs(&n);
        if (ranks[i] > 1)
            check_shared(&n);
        done(&n);
    }
}

static void test_unequal(void **state)
{
    (void)state;
    net n = { .kind = "hockney", .ranks = 9, .sites = 3, .unequal = true, GRID };
    n.seconds = 30;
    run(&n);
    check_pairs(&n);
    for (int x = 0; x < 3; x++) {
        assert_true(n.models[0]->uplink[x].out <= 0 && n.models[0]->uplink[x].in <= 0);
        for (int y = 0; y < 3; y++)
            assert_true(x == y || near(n.models[0]->trunk[x * 3 + y], 1 / uneven[x + y].rate, 0.05));
    }
    done(&n);
}

/* Ten and a hundred times as fast one way as back. */
static void test_one_way(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        net n = { .kind = i % 2 ? "plogp" : "hockney", .ranks = 8, .sites = 4, .back = i / 2 ? 100e3 : 1e6, GRID };
        n.wan_rate = 10e6;
        run(&n);
        check_pairs(&n);
        done(&n);
    }
}

/* More than eight hosts a site: each rack is a class, and what lies between two racks is not what is within one. */
static void test_racks(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        net n = { .kind = i ? "plogp" : "hockney", .ranks = 24, .sites = 6, .racks = 3, GRID };
        run(&n);
        check_pairs(&n);
        assert_true(n.models[0]->classes == 6 && n.models[0]->sites == 2);
        done(&n);
    }
}

static void test_ranks_of_a_host(void **state)
{
    (void)state;
    net n = { .kind = "hockney", .ranks = 12, .sites = 3, .per_host = 2, GRID };
    run(&n);
    check_pairs(&n);
    check_shared(&n);
    assert_int_equal(n.models[0]->hosts, 6);
    done(&n);
}

static void test_noise(void **state)
{
    (void)state;
    net n = { .kind = "hockney", .ranks = 8, .sites = 2, GRID, .noisy = true };
    run(&n);
    check_pairs(&n);
    done(&n);
}

/* Not enough for all: pairs come first. Then not even for those. */
static void test_no_time(void **state)
{
    (void)state;
    net few = { .kind = "hockney", .ranks = 16, .sites = 4, .uplink = 1e6, GRID };
    few.seconds = 5;
    run(&few);
    check_pairs(&few);
    assert_true(few.models[0]->uplink[3].out <= 0);
    done(&few);
    net n = { .kind = "hockney", .ranks = 16, .sites = 4, GRID, .code = GC_ERR_TIMEOUT };
    n.seconds = 0.5;
    run(&n);
    printf("of 0.5 s it took %.1f s\n", n.took);
    assert_true(n.took < 3);
}

/* A rank, a host: all others hear of it, at once or after peer_timeout. */
static void test_death(void **state)
{
    (void)state;
    static const int victims[] = { 0, 1, 6, 15 };
    static const double at[] = { 0.03, 0.8, 3.3, 6.1, 8.4 };
    for (size_t i = 0; i < GCI_COUNT(victims) * GCI_COUNT(at); i++) {
        double when = at[i / GCI_COUNT(victims)];
        bool host = i % 3 == 2;
        gct_event event = { (int64_t)(when * 1e9), host ? GCT_KILL_HOST : GCT_KILL, victims[i % GCI_COUNT(victims)], -1, 0 };
        net n = { .kind = i % 2 ? "plogp" : "hockney", .ranks = 16, .sites = 4, GRID, .code = GC_ERR_PEER, .event = &event };
        run(&n);
        assert_int_equal(n.good, 0);
        assert_true(n.took < when + (host ? 32 : 1));
    }
}

/* Memory runs out once, at some rank: all get a model, or none does, and it ends soon. */
static void test_no_memory(void **state)
{
    (void)state;
    int failed = 0;
    for (int nth = 1; nth < 100; nth += nth < 20 ? 1 : 4) {
        net n = { .kind = "hockney", .ranks = 4, .sites = 2, GRID, .fails_at = nth % 3, .fails_nth = nth };
        run(&n);
        assert_true(n.good == 0 || n.good == n.ranks);
        assert_true(n.took < 6);
        failed += n.good == 0;
        done(&n);
    }
    printf("%d times no model for want of memory\n", failed);
    assert_true(failed > 5);
}

static int used(gc_comm *world, int rank, int size, void *arg)
{
    net *n = arg;
    gc_model *model = rank == 0 ? truth(n) : NULL;
    (void)size;
    int err = gc_model_use(world, model);
    bool in_use = gc_explain(world, "barrier", 0, 0, NULL, 0, NULL) != GC_ERR_UNSUPPORTED;
    gct_require(in_use == (err == GC_OK), "code %d", err);
    n->good += in_use;
    gc_model_free(model);
    return 0;
}

/* The same of a model that is to be used. */
static void test_use_no_memory(void **state)
{
    (void)state;
    int failed = 0;
    for (int nth = 1; nth < 40; nth++) {
        net n = { .kind = "hockney", .ranks = 4, .sites = 2, GRID, .fails_at = nth % 3, .fails_nth = nth };
        run_main(&n, used);
        assert_true(n.good == 0 || n.good == n.ranks);
        failed += n.good == 0;
    }
    printf("%d times no use for want of memory\n", failed);
    assert_true(failed > 5);
}

/* The program's own messages, and those of measurements before, are none of its business. */
static int between_messages(gc_comm *world, int rank, int size, void *arg)
{
    gc_request *request;
    gc_comm *comm;
    gc_model *model;
    char in = 0, out = 'x';
    (void)arg;
    gct_ok(gc_comm_split(world, 0, size - rank, &comm));
    gct_ok(gc_irecv(comm, &in, 1, GC_ANY_SOURCE, GC_ANY_TAG, &request));
    for (int i = 0; i < 2; i++) {
        gct_ok(gc_model_measure(comm, i ? "plogp" : "hockney", 20, &model));
        gct_require(model->ranks == size, "%d", model->ranks);
        gc_model_free(model);
    }
    gct_require(in == 0, "it came");
    gct_ok(gc_barrier(comm));
    gct_ok(gc_send(comm, &out, 1, (gc_rank(comm) + 1) % size, 5));
    gct_ok(gc_wait(&request, NULL));
    gct_require(in == 'x', "%d", in);
    gct_require(gc_model_measure(world, "magic", 1, &model) == GC_ERR_ARG && !model, "kind");
    gct_require(gc_model_measure(world, "plogp", 0, &model) == GC_ERR_ARG && !model, "time");
    gct_require(gc_model_measure(world, NULL, 1, &model) == GC_ERR_ARG, "NULL");
    gct_require(gc_model_measure(world, "plogp", 1, NULL) == GC_ERR_ARG, "NULL");
    gct_require(gc_model_measure(NULL, "plogp", 1, &model) == GC_ERR_ARG, "NULL");
    return 0;
}

static void test_between_messages(void **state)
{
    (void)state;
    gct_spec spec = { .ranks = 5, .on = GCT_ON_SIM, .seed = 3, .sites = 2, .calm = true };
    assert_int_equal(0, gct_job(&spec, between_messages, NULL));
}

static int aborted(gc_comm *world, int rank, int size, void *arg)
{
    gc_model *model;
    (void)size, (void)arg;
    if (rank == 2) {
        sim_sleep(sim_current(), GCI_SECOND);
        gct_ok(gc_abort(world, 5));
        return 0;
    }
    gct_require(gc_model_measure(world, "hockney", 20, &model) == GC_ERR_ABORTED && !model, "code");
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    gct_spec spec = { .ranks = 6, .on = GCT_ON_SIM, .seed = 3, .sites = 2, .calm = true, .leave_anyhow = true };
    assert_int_equal(0, gct_job(&spec, aborted, NULL));
}

int main(void)
{
    /* What is measured must be the network, not the least that a queue can be. */
    unsetenv("GRIDCOMM_QUEUE_PACKETS");
    unsetenv("GRIDCOMM_CREDITS");
    unsetenv("GRIDCOMM_DIRECT");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_grid),
        cmocka_unit_test(test_predictions),
        cmocka_unit_test(test_two_sites),
        cmocka_unit_test(test_slow),
        cmocka_unit_test(test_late),
        cmocka_unit_test(test_one_site),
        cmocka_unit_test(test_unequal),
        cmocka_unit_test(test_one_way),
        cmocka_unit_test(test_racks),
        cmocka_unit_test(test_ranks_of_a_host),
        cmocka_unit_test(test_noise),
        cmocka_unit_test(test_no_time),
        cmocka_unit_test(test_death),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_use_no_memory),
        cmocka_unit_test(test_between_messages),
        cmocka_unit_test(test_abort),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
