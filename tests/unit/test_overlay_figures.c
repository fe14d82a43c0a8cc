/* test_overlay_figures.c: 515 nodes in 13 clusters: what routing over a sparse overlay may cost (docs/overlay-figures.md).
 * SPDX-License-Identifier: MIT
 *
 * GCT_ROUNDS=n: no more than n seeds.
 */
#include "overlay_world.h"
#include "route_net.h"

enum { JUDGED_SEEDS = 3, INSIDE_HOPS = 3 };
static const double judged_density = 0.08, stretch_most = 1.2;

static int seeds(void)
{
    const char *asked = getenv("GCT_ROUNDS");
    int n = asked ? atoi(asked) / 10 : JUDGED_SEEDS;
    return n < 1 ? 1 : n < JUDGED_SEEDS ? n : JUDGED_SEEDS;
}

static void measure(const world *w, double density, uint64_t seed, enum gci_routing routing, overlay_figures *f)
{
    gci_graph g;
    net_draw(seed);
    assert_int_equal(world_backbone(&net_env, w, density, seed, &g), GC_OK);
    assert_int_equal(world_measure(&net_env, w, &g, routing, f), GC_OK);
    gci_graph_free(&net_env, &g);
}

static void test_judged_row(void **state)
{
    (void)state;
    for (int kind = 0; kind < WORLD_KINDS; kind++) {
        world w;
        assert_int_equal(world_make(&net_env, (enum world_kind)kind, &w), GC_OK);
        for (int seed = 1; seed <= seeds(); seed++) {
            overlay_figures f;
            measure(&w, judged_density, (uint64_t)seed, GCI_UPDOWN_DFS, &f);
            if (f.density < 0.97 * judged_density || f.density > 1.04 * judged_density)
                WRONG("density %.4f", f.density);
            if (f.between_p95 > stretch_most || f.between_median < 1)
                WRONG("latency stretch between clusters: median %.3f, 95 %% %.3f", f.between_median, f.between_p95);
            if (f.inside_hops_most > INSIDE_HOPS || f.inside_hops_most < 2)
                WRONG("%d hops within a cluster", f.inside_hops_most);
            if (f.left != 0)
                WRONG("%ld pairs leave a cluster that connects them", f.left);
        }
        world_free(&net_env, &w);
    }
    assert_int_equal(net_env.memory, 0);
}

/* The measure can tell: breadth-first numbering does lead pairs out of their clusters, and thin graphs do cost. */
static void test_measure_tells(void **state)
{
    overlay_figures f;
    world w;
    (void)state;
    assert_int_equal(world_make(&net_env, WORLD_MAP, &w), GC_OK);
    measure(&w, 0.02, 1, GCI_UPDOWN_BFS, &f);
    assert_true(f.left > 0);
    assert_true(f.between_p95 > stretch_most);
    assert_true(f.inside_hops_most > INSIDE_HOPS);
    assert_true(f.ratio_least < 1);
    measure(&w, 0.01, 1, GCI_UPDOWN_DFS, &f);
    assert_int_equal(f.left, 0);
    world_free(&net_env, &w);
}

/* The same tables before the checker. */
static void test_proven(void **state)
{
    network net;
    epoch e;
    world w;
    (void)state;
    net_draw(1);
    assert_int_equal(world_make(&net_env, WORLD_EVEN, &w), GC_OK);
    net.topo = w.topo;
    assert_int_equal(world_backbone(&net_env, &w, 0, 1, &net.graph), GC_OK);
    for (int routing = 0; routing < GCI_ROUTINGS; routing++) {
        epoch_make(&net, (enum gci_routing)routing, &e);
        prove(&net, &e.numbering, e.routes, promises((enum gci_routing)routing));
        epoch_free(&net, &e);
    }
    network_free(&net);
    assert_int_equal(net_env.memory, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_judged_row),
        cmocka_unit_test(test_measure_tells),
        cmocka_unit_test(test_proven),
    };
    return cmocka_run_group_tests(tests, net_setup, NULL);
}
