/* test_modeltrees.c: scatterv and gatherv of uneven blocks along trees that are made with a model, beside trees of the same
 * kinds made without one: predicted, and on the simulated network.
 * SPDX-License-Identifier: MIT
 *
 * As in papers/004, 6.2.8: 39 ranks in 5 clusters on 2 sites, blocks whose sizes differ tenfold. 50 us and 125e6 byte/s
 * within a cluster, 10 ms and 1e6 byte/s from site to site. The sites are joined by one line, and then nothing tells their
 * clusters apart; or each two clusters by a line of their own, those of one site with 200 us and 50e6 byte/s. There such a tree
 * is also what the model chooses for scatter and gather of even blocks, and faster than what the rules say.
 *
 * GCT_SEED draws the sizes; GCT_ROUNDS set: fewer jobs. time limit: 600 s
 */
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { CLUSTERS = 5, RANKS = 39, SMALLEST = 1000, EVEN = 65536, HEADER = 48, REAL_LIMIT_S = 200 };

static const int sizes[CLUSTERS] = { 8, 7, 9, 8, 7 };
static const int32_t site_of[CLUSTERS] = { 0, 0, 1, 1, 1 }, itself[CLUSTERS] = { 0, 1, 2, 3, 4 };
static const gct_place by_cluster[] = { { .ranks = 8 }, { .ranks = 7 }, { .ranks = 9 }, { .ranks = 8 }, { .ranks = 7 } };
static const gct_place by_site[] = { { .ranks = 15 }, { .ranks = 24 } };

/* Each made without a model, and then with one. */
enum { BINOMIAL, TRAEFF = 2, FLAT = 4, PRIM, TREES };
static const struct { const char *shape; bool modelled; } trees[TREES] = {
    { "binomial", false }, { "binomial-dfs-nearest", true }, { "traeff", false }, { "traeff", true },
    { "flat", false }, { "prim-ahead", true },
};

typedef struct world {
    bool     lines;             /* of each two clusters */
    bool     dealt;             /* ranks are dealt out to the clusters, else numbered cluster by cluster */
    int      root;
    int32_t  cluster[RANKS];
    size_t   bytes[RANKS], at[RANKS], all;
    gc_model *model;
    gc_tree  *tree[TREES];
    int      arrived;
    int64_t  start;
    double   predicted[TREES][2], taken[TREES][2];          /* s; scatterv, gatherv */
    double   even[2][2];        /* s: without a model and with it in use; scatter, gather */
} world;

static int rank_of(const world *w, int place)
{
    return w->dealt ? place * 16 % RANKS : place;
}

static void make_model(world *w)
{
    gci_env env = { 0 };
    const int32_t *site = w->lines ? itself : site_of;
    gc_model *m;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, RANKS, w->cluster, NULL, site, &m), GC_OK);
    for (int a = 0; a < CLUSTERS; a++)
        for (int b = 0; b < CLUSTERS; b++) {
            bool far = site_of[a] != site_of[b];
            m->between[a * CLUSTERS + b].latency = far ? 1e-2 : w->lines && a != b ? 2e-4 : 5e-5;
            if (site[a] != site[b])
                m->trunk[site[a] * m->sites + site[b]] = far ? 1e-6 : 2e-8;
            m->nic[a] = (gci_port){ 8e-9, 8e-9, false };
        }
    m->header = HEADER;
    w->model = m;
}

static void make(world *w, uint64_t seed)
{
    for (int c = 0, place = 0; c < CLUSTERS; c++)
        for (int i = 0; i < sizes[c]; i++, place++)
            w->cluster[rank_of(w, place)] = c;
    for (int r = 0; r < RANKS; r++) {
        w->bytes[r] = (size_t)(SMALLEST * pow(10, (double)(gct_random(&seed) % 1000) / 1000));
        w->at[r] = w->all;
        w->all += w->bytes[r];
    }
    make_model(w);
    for (int k = 0; k < TREES; k++) {
        const gc_model *model = trees[k].modelled ? w->model : NULL;
        assert_int_equal(gc_tree_build(&w->tree[k], trees[k].shape, RANKS, w->root, model, w->bytes), GC_OK);
    }
}

static void drop(world *w)
{
    for (int k = 0; k < TREES; k++)
        gc_tree_free(w->tree[k]);
    gc_model_free(w->model);
}

static double predict(const world *w, const gc_tree *tree, enum gci_coll coll)
{
    gci_env env = { 0 };
    gci_sched sched[RANKS];
    double seconds;
    const gci_blocks blocks = { .bytes = w->bytes, .at = w->at };
    for (int r = 0; r < RANKS; r++) {
        const gci_call call = { .coll = coll, .rank = r, .ranks = RANKS, .root = w->root, .elem_bytes = 1, .own = w->bytes[r],
                                .known = true, .tree = tree, .send = blocks, .recv = blocks };
        assert_int_equal(gci_sched_build(&env, gci_algo_find(coll, "given"), "given", &call, &sched[r]), GC_OK);
    }
    assert_int_equal(gci_predict(&env, w->model, sched, NULL, &seconds), GC_OK);
    for (int r = 0; r < RANKS; r++)
        gci_sched_free(&env, &sched[r]);
    return seconds;
}

/* ---- on the simulated network -------------------------------------------------------------------------------------- */

static int64_t now(void) { return sim_sys(sim_current())->now(sim_sys(sim_current())); }

/* All come, rest, and leave at one instant. */
static void meet(gc_comm *comm, world *w, int meeting)
{
    const int64_t look = 1000000, rest = 300 * look;
    if (++w->arrived == (meeting + 1) * RANKS)
        w->start = now() + rest;
    while (w->arrived < (meeting + 1) * RANKS || now() < w->start - 10 * look) {
        (void)gc_progress(comm);
        sim_sleep(sim_current(), look);
    }
    sim_sleep(sim_current(), w->start - now());
}

static int try_one(gc_comm *comm, world *w, int tree, bool gathers, uint8_t *all, uint8_t *own)
{
    int rank = gc_rank(comm);
    bool root = rank == w->root;
    for (int r = 0; r < RANKS; r++)
        if (gathers ? r == rank : root)
            gct_fill(gathers ? own : all + w->at[r], w->bytes[r], r, tree);
    if (!gathers || root)
        memset(gathers ? all : own, 0, gathers ? w->all : w->bytes[rank]);
    meet(comm, w, w->arrived / RANKS);
    gct_ok(gathers ? gc_tree_gatherv(comm, w->tree[tree], own, w->bytes[rank], all, w->bytes, w->at)
                   : gc_tree_scatterv(comm, w->tree[tree], all, w->bytes, w->at, own, w->bytes[rank]));
    w->taken[tree][gathers] = fmax(w->taken[tree][gathers], (double)(now() - w->start) / 1e9);
    for (int r = 0; r < RANKS; r++)
        if (gathers ? root : r == rank)
            gct_require(gct_check(gathers ? all + w->at[r] : own, w->bytes[r], r, tree) == 0, "block %d", r);
    return 0;
}

/* Scatter and gather of even blocks, by what is chosen. */
static int try_even(gc_comm *comm, world *w, bool modelled, bool gathers, uint8_t *all, uint8_t *own)
{
    int rank = gc_rank(comm);
    bool root = rank == w->root;
    for (int r = 0; r < RANKS; r++)
        if (gathers ? r == rank : root)
            gct_fill(gathers ? own : all + (size_t)r * EVEN, EVEN, r, modelled);
    if (!gathers || root)
        memset(gathers ? all : own, 0, gathers ? (size_t)RANKS * EVEN : EVEN);
    meet(comm, w, w->arrived / RANKS);
    gct_ok(gathers ? gc_gather(comm, own, EVEN, all, w->root) : gc_scatter(comm, all, EVEN, own, w->root));
    w->even[modelled][gathers] = fmax(w->even[modelled][gathers], (double)(now() - w->start) / 1e9);
    for (int r = 0; r < RANKS; r++)
        if (gathers ? root : r == rank)
            gct_require(gct_check(gathers ? all + (size_t)r * EVEN : own, EVEN, r, modelled) == 0, "block %d", r);
    return 0;
}

/* It is a tree that was made for the model. */
static int is_made_for_it(gc_comm *comm, const char *operation, int root)
{
    char text[8192], *end, *name;
    gct_ok(gc_explain(comm, operation, EVEN, root, text, sizeof text, NULL));
    end = strstr(text, " taken");
    gct_require(end != NULL, "%s", text);
    while (*end == ' ')
        *end-- = '\0';
    name = strrchr(text, ' ') + 1;
    const gci_algo *algo = gci_algo_find((enum gci_coll)gci_coll_find(operation, strlen(operation)), name);
    gct_require(algo && algo->by_model, "%s by %s", operation, name);
    return 0;
}

static int run_even(gc_comm *comm, world *w)
{
    int bad = 0;
    uint8_t *all = gct_buffer(gc_rank(comm) == w->root ? (size_t)RANKS * EVEN : 1), *own = gct_buffer(EVEN);
    for (int modelled = 0; modelled < 2 && !bad; modelled++) {
        gct_ok(gc_model_use(comm, modelled ? w->model : NULL));
        for (int gathers = 0; gathers < 2 && !bad; gathers++) {
            bad = try_even(comm, w, modelled, gathers, all, own);       /* opens links */
            meet(comm, w, w->arrived / RANKS);
            w->even[modelled][gathers] = 0;
            bad |= try_even(comm, w, modelled, gathers, all, own);
        }
    }
    if (gc_rank(comm) == w->root)
        bad |= is_made_for_it(comm, "scatter", w->root) | is_made_for_it(comm, "gather", w->root);
    return bad | gct_buffer_free(all) | gct_buffer_free(own);
}

static int run(gc_comm *everybody, int rank, int size, void *arg)
{
    world *w = arg;
    gc_comm *comm;
    int bad = 0;
    (void)size;
    gct_ok(gc_comm_split(everybody, 0, rank_of(w, rank), &comm));
    uint8_t *all = gct_buffer(w->all), *own = gct_buffer(w->bytes[gc_rank(comm)]);
    for (int tree = 0; tree < TREES; tree++)
        for (int gathers = 0; gathers < 2 && !bad; gathers++) {
            bad = try_one(comm, w, tree, gathers, all, own);        /* opens links */
            meet(comm, w, w->arrived / RANKS);
            w->taken[tree][gathers] = 0;
            bad |= try_one(comm, w, tree, gathers, all, own);
        }
    if (w->lines && w->dealt && !bad)
        bad = run_even(comm, w);
    return bad | gct_buffer_free(all) | gct_buffer_free(own);
}

static void arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const world *w = arg;
    sim_site *site[CLUSTERS];
    (void)s;
    for (int c = 0, place = 0; c < CLUSTERS; place += sizes[c++])
        site[c] = sim_site_of(sim_proc_host(procs[place % ranks]));
    for (int a = 0; a < CLUSTERS; a++)
        for (int b = 0; b < a; b++)
            if (w->lines && site_of[a] == site_of[b])
                sim_wan(site[a], site[b], 200000, 50000000);
}

static void measure(world *w)
{
    const gct_spec spec = { .ranks = RANKS, .on = GCT_ON_SIM, .seed = 1, .calm = true, .arrange = arrange, .options = gct_usual_options,
                            .places = w->lines ? by_cluster : by_site, .time_limit = REAL_LIMIT_S,
                            .virtual_limit = 3600 * (int64_t)1000000000 };
    for (int k = 0; k < TREES; k++)
        for (int gathers = 0; gathers < 2; gathers++)
            w->predicted[k][gathers] = predict(w, w->tree[k], gathers ? GCI_GATHER : GCI_SCATTER);
    assert_int_equal(gct_job(&spec, run, w), 0);
    for (int k = 0; k < TREES; k++)
        print_message("%s, ranks %s, root %2d, %-21s%s: scatterv %5.1f ms (predicted %5.1f), gatherv %5.1f (%5.1f)\n",
                      w->lines ? "lines" : "one line", w->dealt ? "dealt out" : "by cluster", w->root, trees[k].shape,
                      trees[k].modelled ? " (model)" : "        ", w->taken[k][0] * 1e3, w->predicted[k][0] * 1e3,
                      w->taken[k][1] * 1e3, w->predicted[k][1] * 1e3);
    if (!w->lines || !w->dealt)
        return;
    for (int gathers = 0; gathers < 2; gathers++) {
        print_message("lines, ranks dealt out, root %2d, %s of %d bytes: %.1f ms by the rules, %.1f as the model chooses\n", w->root,
                      gathers ? "gather" : "scatter", EVEN, w->even[0][gathers] * 1e3, w->even[1][gathers] * 1e3);
        assert_true(w->even[1][gathers] < (w->root == 0 ? 0.97 : 1.05) * w->even[0][gathers]);      /* what is chosen is for root 0 */
    }
}

static void compare(bool lines, bool dealt, double limit)
{
    uint64_t seed = gct_seed();
    double without[4] = { 0 }, with[4] = { 0 };         /* in all: of either kind, predicted and measured */
    for (int place = getenv("GCT_ROUNDS") ? 20 : 0; place < RANKS; place += 20) {
        world w = { .lines = lines, .dealt = dealt };
        w.root = rank_of(&w, place);
        make(&w, seed + (uint64_t)place);
        measure(&w);
        for (int i = 0; i < 4; i++)
            for (int gathers = 0; gathers < 2; gathers++) {
                double (*of)[2] = i % 2 ? w.taken : w.predicted;
                without[i] += of[i / 2 ? TRAEFF : BINOMIAL][gathers];
                with[i] += of[(i / 2 ? TRAEFF : BINOMIAL) + 1][gathers];
            }
        drop(&w);
    }
    for (int i = 0; i < 4; i++) {
        print_message("  %s, %s: %.2f of the time without a model\n", trees[i / 2 ? TRAEFF : BINOMIAL].shape,
                      i % 2 ? "measured" : "predicted", with[i] / without[i]);
        assert_true(with[i] < limit * without[i]);
    }
}

/* Ranks that know nothing of sites. */
static void test_dealt_out(void **state)
{
    (void)state;
    compare(false, true, 0.9);
    compare(true, true, 1);
}

/* A tree of consecutive ranks is by chance one of clusters, more or less. */
static void test_by_cluster(void **state)
{
    (void)state;
    compare(false, false, 1.02);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_dealt_out), cmocka_unit_test(test_by_cluster) };
    print_message("GCT_SEED=%llu\n", (unsigned long long)gct_seed());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
