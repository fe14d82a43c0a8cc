/* test_trials.c: plans of trials for random sites and hosts, and the models that follow from findings whose truth is known.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random plans.
 */
#include "failing_alloc.h"
#include "gridcomm_int.h"
#include "tests/unit/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS_MAX = 400 };

typedef struct place {
    int  ranks, host[RANKS_MAX];
    char path[RANKS_MAX][16];
    gci_topo topo;
    gci_clusters clusters;
    gci_trials t;
} place;

static place p;

static int make(gci_env *env)
{
    const char *paths[RANKS_MAX];
    for (int i = 0; i < p.ranks; i++)
        paths[i] = p.path[i];
    int err = gci_topo_make(env, p.ranks, paths, p.host, &p.topo);
    if (err == GC_OK && (err = gci_clusters_make(env, &p.topo, &p.clusters)) == GC_OK)
        err = gci_trials_make(env, &p.clusters, &p.t);
    return err;
}

static void drop(gci_env *env)
{
    gci_trials_free(env, &p.t);
    gci_clusters_free(env, &p.clusters);
    gci_topo_free(env, &p.topo);
}

/* So many hosts at each site, so many ranks on each. */
static void even(gci_env *env, int sites, int hosts, int ranks)
{
    p.ranks = sites * hosts * ranks;
    for (int i = 0; i < p.ranks; i++) {
        p.host[i] = i / ranks;
        snprintf(p.path[i], sizeof p.path[i], "s%d", i / (hosts * ranks));
    }
    assert_int_equal(GC_OK, make(env));
}

/* ---- plans ------------------------------------------------------------------------------------------------------- */

static int site(int rank) { return p.t.site_of[p.t.class_of[rank]]; }

static bool same_path(int a, int b) { return strcmp(p.path[a], p.path[b]) == 0; }

/* Within a round no host and no class's or site's link to others is in two trials. */
static void check_apart(void)
{
    int host[RANKS_MAX], class[RANKS_MAX], link[RANKS_MAX];
    memset(host, -1, sizeof host);
    memset(class, -1, sizeof class);
    memset(link, -1, sizeof link);
    for (int i = 0, round = 0; i < p.t.n; i++) {
        const gci_trial *trial = &p.t.trial[i];
        assert_true(trial->round == round || trial->round == round + 1);
        if (trial->round > round) {
            memset(host, -1, sizeof host);
            memset(class, -1, sizeof class);
            memset(link, -1, sizeof link);
            round = trial->round;
        }
        for (int part = 0; part < trial->parts; part++)
            for (int k = 0; k < trial->flows[part]; k++) {
                int end[2] = { trial->flow[part][k].from, trial->flow[part][k].to };
                assert_int_not_equal(end[0], end[1]);
                for (int e = 0; e < 2; e++) {
                    int *h = &host[p.t.host_of[end[e]]], *c = &class[p.t.class_of[end[e]]], *l = &link[site(end[e])];
                    assert_true(*h < 0 || *h == i);
                    *h = i;
                    if (p.t.class_of[end[0]] == p.t.class_of[end[1]])
                        continue;
                    assert_true(*c < 0 || *c == i);
                    *c = i;
                    if (site(end[0]) == site(end[1]))
                        continue;
                    assert_true(*l < 0 || *l == i);
                    *l = i;
                }
            }
    }
    assert_int_equal(p.t.rounds, p.t.n ? p.t.trial[p.t.n - 1].round + 1 : 0);
}

/* Each pair of classes has a pair that was measured both ways, or its sites have. */
static void check_complete(void)
{
    static bool seen[RANKS_MAX][RANKS_MAX], sites[RANKS_MAX][RANKS_MAX];
    memset(seen, 0, sizeof seen);
    memset(sites, 0, sizeof sites);
    for (int i = 0; i < p.t.n; i++)
        for (int part = 0; part < p.t.trial[i].parts && p.t.trial[i].flows[0] == 1; part++) {
            gci_flow flow = p.t.trial[i].flow[part][0];
            bool within = p.t.host_of[flow.from] == p.t.host_of[flow.to];
            seen[p.t.class_of[flow.from]][p.t.class_of[flow.to]] |= !within;
            sites[site(flow.from)][site(flow.to)] = true;
        }
    for (int i = 0; i < p.ranks; i++)
        for (int k = 0; k < p.ranks; k++)
            if (p.t.host_of[i] != p.t.host_of[k])
                assert_true(site(i) == site(k) ? seen[p.t.class_of[i]][p.t.class_of[k]] : sites[site(i)][site(k)]);
}

static void test_random(void **state)
{
    (void)state;
    gci_env env = { .alloc = NULL };
    seed_random();
    for (int turn = 0; turn < 200; turn++) {
        int sites = 1 + below(9), hosts = 1 + below(40), racks = below(4);
        p.ranks = 1 + below(120);
        for (int i = 0; i < p.ranks; i++) {
            p.host[i] = below(hosts);
            snprintf(p.path[i], sizeof p.path[i], racks ? "s%d/r%d" : "s%d", p.host[i] % sites, p.host[i] / sites % gci_max32(racks, 1));
        }
        assert_int_equal(GC_OK, make(&env));
        check_apart();
        check_complete();
        for (int i = 1; i < p.ranks; i++) {
            int32_t a = p.t.class_of[i - 1], b = p.t.class_of[i];
            assert_true(p.t.class_host[a] <= p.t.host_of[i - 1] && p.t.host_of[i - 1] < p.t.class_host[a + 1]);
            assert_true(p.t.classes == p.t.hosts ? (a == b) == (p.t.host_of[i - 1] == p.t.host_of[i])
                                                 : (a == b) == same_path(i - 1, i));
        }
        drop(&env);
    }
}

/* As many rounds as there must be, or nearly so. */
static void test_rounds(void **state)
{
    (void)state;
    static const struct { int sites, hosts, ranks, classes, most; } grid[] = {
        { 1, 1, 1, 1, 0 }, { 1, 1, 5, 1, 1 }, { 1, 2, 1, 2, 1 }, { 1, 4, 1, 4, 7 }, { 1, 100, 1, 1, 4 }, { 2, 1, 1, 2, 1 },
        { 4, 4, 1, 16, 15 }, { 8, 2, 1, 16, 26 }, { 8, 20, 1, 8, 25 }, { 20, 10, 2, 20, 64 },
    };
    gci_env env = { .alloc = NULL };
    for (size_t i = 0; i < GCI_COUNT(grid); i++) {
        even(&env, grid[i].sites, grid[i].hosts, grid[i].ranks);
        print_message("%d sites of %d hosts of %d ranks: %d trials in %d rounds\n", grid[i].sites, grid[i].hosts,
                      grid[i].ranks, p.t.n, p.t.rounds);
        check_apart();
        check_complete();
        assert_int_equal(p.t.classes, grid[i].classes);
        assert_true(p.t.rounds <= grid[i].most);
        drop(&env);
    }
    p.ranks = GCI_TRIAL_SITES + 1;
    for (int i = 0; i < p.ranks; i++) {
        p.host[i] = i;
        snprintf(p.path[i], sizeof p.path[i], "s%d", i);
    }
    assert_int_equal(GC_ERR_UNSUPPORTED, make(&env));
    drop(&env);
}

/* ---- models ------------------------------------------------------------------------------------------------------ */

/* way: what the latency of longer messages is more; rack, between: between racks of a site, if they are not as within. */
typedef struct truth { double lan, wan, nic, line, uplink_out, uplink_in, way; bool together; double rack, between; } truth;

static double latency_of(const truth *w, int a, int b)
{
    return site(a) != site(b) ? w->wan : w->rack > 0 && !same_path(a, b) ? w->rack : w->lan;
}

/* What k flows of each part take for a byte of each, if hosts, lines between sites and uplinks are what is slow. */
static double slope_of(const truth *w, const gci_trial *trial, int part)
{
    double most = 0;
    for (int i = 0; i < trial->flows[part]; i++) {
        gci_flow a = trial->flow[part][i];
        double out = 0, in = 0, up = 0, down = 0, line = 0;
        bool far = site(a.from) != site(a.to);
        for (int k = 0; k < trial->flows[part]; k++) {
            gci_flow b = trial->flow[part][k];
            out += p.t.host_of[a.from] == p.t.host_of[b.from] || (w->together && p.t.host_of[a.from] == p.t.host_of[b.to]);
            in += p.t.host_of[a.to] == p.t.host_of[b.to] || (w->together && p.t.host_of[a.to] == p.t.host_of[b.from]);
            up += far && (site(a.from) == site(b.from) || (w->together && site(a.from) == site(b.to)));
            down += far && (site(a.to) == site(b.to) || (w->together && site(a.to) == site(b.from)));
            line += far && site(a.from) == site(b.from) && site(a.to) == site(b.to);
        }
        most = fmax(most, far || same_path(a.from, a.to) ? 0 : w->between);
        most = fmax(fmax(most, fmax(out, in) * w->nic), fmax(line * w->line, fmax(up * w->uplink_out, down * w->uplink_in)));
    }
    return most;
}

static gc_model *fit(gci_env *env, const truth *w, enum gci_model_kind kind)
{
    static gci_findings found[4000];
    gc_model *m;
    assert_true(p.t.n < (int)GCI_COUNT(found));
    memset(found, 0, sizeof found);
    for (int i = 0; i < p.t.n; i++)
        for (int part = 0; part < p.t.trial[i].parts; part++) {
            gci_flow flow = p.t.trial[i].flow[part][0];
            double latency = latency_of(w, flow.from, flow.to);
            found[i].points[part] = 4;
            found[i].gap = 1e-6;
            for (int k = 0; k < 4; k++) {
                size_t bytes = k ? (size_t)4096 << (2 * k) : 1;
                found[i].point[part][k] = (gci_finding){ .bytes = bytes, .busy = 1e-7 * (k + 1), .seconds = 2 * latency +
                    (k ? w->way : 0) + slope_of(w, &p.t.trial[i], part) * (double)(bytes + 1 + 2 * GCI_HEADER_BYTES) };
            }
        }
    assert_int_equal(GC_OK, gci_trials_fit(env, &p.t, found, kind, &m));
    return m;
}

static bool is(double found, double wanted) { return fabs(found - wanted) <= 1e-6 * wanted; }

static void check_fit(const truth *w, int sites, int hosts)
{
    gci_env env = { .alloc = NULL };
    even(&env, sites, hosts, 1);
    gc_model *m = fit(&env, w, GCI_HOCKNEY);
    bool uplinks = sites > 2;           /* of two sites they are the line between them */
    double between = fmax(fmax(w->line, w->nic), fmax(w->uplink_out, w->uplink_in));
    for (int i = 0; i < p.ranks; i++)
        for (int k = 0; k < p.ranks; k++) {
            static const struct { size_t bytes; double way; } sizes[] = { { 1, 1.0 / 1448 }, { 724, 0.5 }, { 1448, 1 }, { 100000, 1 } };
            double seconds;
            bool far = site(i) != site(k);
            for (size_t s = 0; s < GCI_COUNT(sizes) && i != k; s++) {
                assert_int_equal(GC_OK, gc_model_p2p(m, i, k, sizes[s].bytes, &seconds));
                assert_true(is(seconds, (far ? w->wan : w->lan) + sizes[s].way * w->way +
                                            (far ? between : w->nic) * (double)(sizes[s].bytes + GCI_HEADER_BYTES)));
            }
        }
    for (int x = 0; x < sites; x++) {
        assert_true(is(m->uplink[x].out, uplinks && w->uplink_out > w->line ? w->uplink_out : 0));
        assert_true(is(m->uplink[x].in, uplinks && w->uplink_in > w->line ? w->uplink_in : 0));
        assert_true(m->uplink[x].together == (w->together && m->uplink[x].out > 0 && m->uplink[x].in > 0));
        for (int y = 0; y < sites; y++) {
            double uplink = fmax(w->uplink_out, w->uplink_in), line = !uplinks || uplink <= w->line ? between : 0;
            assert_true(x == y || is(m->trunk[x * sites + y], line));
        }
    }
    for (int c = 0; c < m->classes; c++) {
        assert_true(is(m->nic[c].out, w->nic) && is(m->nic[c].in, w->nic));
        assert_true(m->nic[c].together == (w->together && hosts > 2));
    }
    gc_model_free(m);
    drop(&env);
}

static void test_shared(void **state)
{
    (void)state;
    const truth grids[] = {
        { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .line = 1e-6 },
        { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .uplink_out = 1e-6, .uplink_in = 1e-6 },
        { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .uplink_out = 1e-6, .line = 1e-7 },
        { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .uplink_in = 1e-6, .line = 1e-7 },
        { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .uplink_out = 1e-6, .uplink_in = 1e-6, .together = true },
        { .lan = 1e-3, .wan = 10e-3, .nic = 4e-7, .line = 1e-6, .way = 6e-4 },
    };
    for (size_t i = 0; i < GCI_COUNT(grids); i++) {
        check_fit(&grids[i], 4, 4);
        check_fit(&grids[i], 3, 12);
        if (!grids[i].together)
            check_fit(&grids[i], 2, 3);
    }
}

/* Two sites of three racks of four hosts, of which one has but one: a class each. Then too many racks. */
static void test_racks(void **state)
{
    (void)state;
    gci_env env = { .alloc = NULL };
    const truth w = { .lan = 50e-6, .rack = 200e-6, .between = 4e-8, .wan = 10e-3, .nic = 8e-9, .line = 1e-6 };
    p.ranks = 21;
    for (int i = 0; i < p.ranks; i++) {
        p.host[i] = i;
        snprintf(p.path[i], sizeof p.path[i], "s%d/r%d", i % 2, i < 20 ? i / 2 % 3 : 3);
    }
    assert_int_equal(GC_OK, make(&env));
    assert_int_equal(p.t.classes, 7);
    print_message("%d hosts of 2 sites and 7 racks: %d trials in %d rounds\n", p.ranks, p.t.n, p.t.rounds);
    assert_true(p.t.rounds <= 14);
    check_apart();
    check_complete();
    gc_model *m = fit(&env, &w, GCI_HOCKNEY);
    for (int i = 0; i < p.ranks; i++)
        for (int k = 0; k < p.ranks; k++) {
            double seconds, per_byte = site(i) != site(k) ? w.line : same_path(i, k) ? w.nic : w.between;
            assert_int_equal(GC_OK, gc_model_p2p(m, i, k, 100000, &seconds));
            assert_true(i == k || is(seconds, latency_of(&w, i, k) + per_byte * (100000 + GCI_HEADER_BYTES)));
        }
    gc_model_free(m);
    drop(&env);
    p.ranks = GCI_TRIAL_CLASSES + 1;
    for (int i = 0; i < p.ranks; i++)
        snprintf(p.path[i], sizeof p.path[i], "s%d/r%d", i % 2, p.host[i] = i);
    assert_int_equal(GC_OK, make(&env));
    assert_int_equal(p.t.classes, 2);
    check_apart();
    check_complete();
    drop(&env);
}

static void test_plogp(void **state)
{
    (void)state;
    gci_env env = { .alloc = NULL };
    const truth w = { .lan = 50e-6, .wan = 10e-3, .nic = 8e-9, .line = 1e-6 };
    even(&env, 2, 3, 1);
    gc_model *m = fit(&env, &w, GCI_PLOGP);
    const gci_cost_model *cost = gci_model_cost(m, 0, 5);
    assert_int_equal(cost->curve[GCI_COST_GAP].points, 4);
    assert_true(is(gci_curve_at(&cost->curve[GCI_COST_GAP], 1), 1e-6));
    assert_true(is(gci_curve_at(&cost->curve[GCI_COST_GAP], 65537), 1e-6 + 65536e-6));
    assert_true(is(gci_curve_at(&cost->curve[GCI_COST_SEND], 1), 1e-7));
    assert_true(is(gci_curve_at(&cost->curve[GCI_COST_RECV], 1), 1e-7));
    assert_true(is(cost->latency, 10e-3 + 1e-6 * (1 + GCI_HEADER_BYTES) - 1e-6));
    gc_model_free(m);
    drop(&env);
}

/* The first message of several packets was disturbed, and took longer than the last. */
static void test_disturbed(void **state)
{
    (void)state;
    gci_env env = { .alloc = NULL };
    gci_findings found = { .points = { 3, 3 } };
    gc_model *m;
    double seconds;
    even(&env, 1, 2, 1);
    for (int i = 0; i < 6; i++)
        found.point[i / 3][i % 3] = (gci_finding){ .bytes = (uint64_t[]){ 1, 4096, 8193 }[i % 3],
                                                   .seconds = (double[]){ 1e-4, 9e-4, 3e-4 }[i % 3] };
    assert_int_equal(GC_OK, gci_trials_fit(&env, &p.t, &found, GCI_HOCKNEY, &m));
    assert_int_equal(GC_OK, gc_model_p2p(m, 0, 1, 8192000, &seconds));
    assert_true(seconds > 0.2 && seconds < 0.21);
    gc_model_free(m);
    drop(&env);
}

/* ---- no memory ---------------------------------------------------------------------------------------------------- */

static void test_no_memory(void **state)
{
    (void)state;
    static gci_findings found[200];
    gci_env env = { .alloc = NULL }, failing = { .alloc = failing_alloc };
    gc_model *m;
    even(&env, 3, 3, 1);
    gci_trials_free(&env, &p.t);
    int err = GC_ERR_NOMEM;
    for (int n = 0; err != GC_OK; n++) {
        allocations_left = n;
        err = gci_trials_make(&failing, &p.clusters, &p.t);
        assert_true(err == GC_OK || (err == GC_ERR_NOMEM && !p.t.trial && !p.t.host_of));
        assert_true(n < 50);
    }
    assert_true(p.t.n < (int)GCI_COUNT(found));
    err = GC_ERR_NOMEM;
    for (int n = 0; err != GC_OK; n++) {
        allocations_left = n;
        err = gci_trials_fit(&failing, &p.t, found, GCI_HOCKNEY, &m);
        assert_true(err == GC_OK ? m != NULL : !m);
        assert_true(n < 50);
    }
    gc_model_free(m);
    allocations_left = 1000;
    gci_trials_free(&failing, &p.t);
    drop(&env);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random),
        cmocka_unit_test(test_rounds),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_racks),
        cmocka_unit_test(test_plogp),
        cmocka_unit_test(test_disturbed),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
