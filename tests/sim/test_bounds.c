/* test_bounds.c: every collective on the simulated network takes at most 1.02 (1 byte) or 1.05 (64 KiB) times its lower bound.
 * SPDX-License-Identifier: MIT
 *
 * A part of what docs/collectives-figures.md has, which `make figures` measures; with GCT_ROUNDS set, the smaller networks
 * alone. time limit: 300 s
 */
#include "tests/gct.h"
#include "tests/sim/bounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHORT = 1, LONG = 65536, REAL_LIMIT_S = 120, CELLS_MAX = 2 * BOUNDS_OPS };

/* ---- the bound, by hand ---- */

static void expect(const bounds_net *net, enum bounds_op op, size_t bytes, int root, int64_t us)
{
    bounds_cell c = { .op = op, .bytes = bytes, .root = root };
    if (bounds_lower(net, &c) != us * 1000) {
        fail_msg("%s, %s of %zu bytes: %lld ns, not %lld us", net->name, bounds_op_name(op), bytes,
                 (long long)bounds_lower(net, &c), (long long)us);
    }
}

/* 10 ms, 50 us for each side, 48 us for the header, 1 us for each byte. */
static void test_lower_bound(void **state)
{
    bounds_net n = { .name = "by hand", .clusters = 3, .ranks = { 2, 5, 1 } };
    (void)state;
    expect(&n, BOUNDS_BARRIER, 0, 0, 10148);
    expect(&n, BOUNDS_BCAST, 1000, 0, 11098);
    expect(&n, BOUNDS_BCAST, 1000, 2, 11098);
    expect(&n, BOUNDS_SCATTER, 1000, 0, 15098);             /* to the cluster of five */
    expect(&n, BOUNDS_SCATTERV, 1000, 2, 12098);            /* from it */
    expect(&n, BOUNDS_GATHER, 1000, 7, 15098);
    expect(&n, BOUNDS_GATHERV, 1000, 6, 12098);
    expect(&n, BOUNDS_ALLGATHER, 1000, 0, 15148);
    expect(&n, BOUNDS_ALLGATHERV, 1000, 0, 15148);
    expect(&n, BOUNDS_ALLTOALL, 1000, 0, 20148);
    expect(&n, BOUNDS_ALLTOALLV, 1, 0, 10158);
    expect(&n, BOUNDS_REDUCE, 1000, 3, 11098);
    expect(&n, BOUNDS_ALLREDUCE, 1000, 0, 11148);
    expect(&n, BOUNDS_REDUCE_SCATTER, 1000, 0, 15148);
    expect(&n, BOUNDS_REDUCE_SCATTER_BLOCK, 1000, 0, 15148);
    expect(&n, BOUNDS_SCAN, 1000, 0, 11148);
    expect(&n, BOUNDS_EXSCAN, 1000, 0, 11148);
    n.uplinks = true;
    expect(&n, BOUNDS_BARRIER, 0, 0, 10148);
    expect(&n, BOUNDS_BCAST, 1000, 0, 12098);
    expect(&n, BOUNDS_SCATTER, 1000, 0, 16098);
    expect(&n, BOUNDS_GATHER, 1000, 7, 17098);
    expect(&n, BOUNDS_ALLGATHER, 1000, 0, 20148);           /* five blocks leave twice */
    expect(&n, BOUNDS_ALLTOALL, 1000, 0, 25148);            /* five to two and to one */
    expect(&n, BOUNDS_REDUCE_SCATTER, 1000, 0, 20148);      /* five blocks from each of two enter */
    expect(&n, BOUNDS_SCAN, 1000, 0, 12148);
    n.uplinks = false;
    n.cyclic = true;                                        /* clusters of the ranks: 0 1 2 0 1 1 1 1 */
    expect(&n, BOUNDS_SCAN, 1000, 0, 15148);
    expect(&n, BOUNDS_SCATTER, 1000, 3, 15098);
    expect(&n, BOUNDS_SCATTER, 1000, 4, 12098);
    expect(&(bounds_net){ .name = "no neighbours", .clusters = 2, .ranks = { 1, 1 } }, BOUNDS_ALLTOALL, 1000, 0, 11048);
    expect(&(bounds_net){ .name = "one neighbour", .clusters = 2, .ranks = { 2, 1 } }, BOUNDS_BCAST, 1000, 0, 11048);
}

static void test_rank_orders(void **state)
{
    static const int cyclic[] = { 0, 1, 2, 0, 1, 1, 1, 1 }, blocks[] = { 0, 0, 1, 1, 1, 1, 1, 2 };
    bounds_net n = { .name = "orders", .clusters = 3, .ranks = { 2, 5, 1 } };
    (void)state;
    assert_int_equal(8, bounds_ranks(&n));
    for (int cyc = 0; cyc < 2; cyc++) {
        n.cyclic = cyc;
        for (int rank = 0; rank < 8; rank++) {
            assert_int_equal((cyc ? cyclic : blocks)[rank], bounds_cluster(&n, rank));
        }
    }
}

/* ---- what is measured ---- */

static bool named(const char *list, const char *name)
{
    const char *at = strstr(list, name);
    return at && (at[strlen(name)] == 0 || at[strlen(name)] == ' ');
}

static bounds_cell cell_of(const bounds_net *net, enum bounds_op op, size_t bytes)
{
    return (bounds_cell){ .op = op, .bytes = op == BOUNDS_BARRIER ? 0 : bytes,
                          .root = bounds_rooted(op) ? bounds_ranks(net) / 3 : 0 };
}

/* n operations, one after another in one job. Prints what takes too long. Returns how many. */
static int over_in_one_job(const bounds_net *net, bounds_cell *cells, int n)
{
    int bad = 0;
    assert_int_equal(0, bounds_measure(net, cells, n, REAL_LIMIT_S));
    for (int i = 0; i < n; i++) {
        if (!bounds_holds(&cells[i])) {
            print_message("%s: %s of %zu bytes: %.3f ms, bound %.3f ms, ratio %.3f\n", net->name,
                          bounds_op_name(cells[i].op), cells[i].bytes, (double)bounds_warm(&cells[i]) / 1e6,
                          (double)cells[i].bound / 1e6, bounds_ratio(&cells[i]));
            bad++;
        }
        int64_t divided = bounds_divided(net, &cells[i]), least = divided < cells[i].bound ? divided : cells[i].bound;
        if ((double)bounds_warm(&cells[i]) < 0.98 * (double)least) {
            fail_msg("%s of %zu bytes takes %.3f of its bound: one of the two is wrong", bounds_op_name(cells[i].op),
                     cells[i].bytes, bounds_ratio(&cells[i]));
        }
    }
    return bad;
}

/* All operations of a size, but those named in `without`. */
static int over(const bounds_net *net, size_t bytes, const char *without)
{
    bounds_cell cells[CELLS_MAX];
    int n = 0;
    for (enum bounds_op op = 0; op < BOUNDS_OPS; op++) {
        if (!named(without, bounds_op_name(op)) && (op != BOUNDS_BARRIER || bytes == SHORT)) {
            cells[n++] = cell_of(net, op, bytes);
        }
    }
    return over_in_one_job(net, cells, n);
}

static const bounds_net two = { .name = "2 clusters", .clusters = 2, .ranks = { 8, 8 } };
static const bounds_net four = { .name = "4 unequal clusters in turn", .clusters = 4, .ranks = { 1, 9, 3, 7 }, .cyclic = true };
static const bounds_net eight = { .name = "8 clusters", .clusters = 8, .ranks = { 3, 3, 3, 3, 3, 3, 3, 3 } };
static const bounds_net sixteen = { .name = "16 clusters", .clusters = 16,
                                    .ranks = { 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2, 2 } };
static const bounds_net many = { .name = "4 unequal clusters of 300", .clusters = 4, .ranks = { 150, 100, 49, 1 } };
static const bounds_net uplinks = { .name = "4 clusters on uplinks", .clusters = 4, .ranks = { 4, 4, 4, 4 }, .uplinks = true };

static void test_two(void **state)     { (void)state; assert_int_equal(0, over(&two, SHORT, "") + over(&two, LONG, "")); }
static void test_four(void **state)    { (void)state; assert_int_equal(0, over(&four, SHORT, "") + over(&four, LONG, "")); }
static void test_eight(void **state)   { (void)state; assert_int_equal(0, over(&eight, SHORT, "") + over(&eight, LONG, "")); }
static void test_sixteen(void **state) { (void)state; assert_int_equal(0, over(&sixteen, SHORT, "") + over(&sixteen, LONG, "")); }
static void test_many(void **state)    { (void)state; assert_int_equal(0, over(&many, SHORT, "alltoall alltoallv")); }
static void test_uplinks(void **state) { (void)state; assert_int_equal(0, over(&uplinks, SHORT, "") + over(&uplinks, LONG, "")); }

/* In a job of its own an operation finds the windows as they are at first, and what the one before has left of them. */
static void test_alone(void **state)
{
    int bad = 0;
    (void)state;
    for (enum bounds_op op = BOUNDS_BARRIER + 1; op < BOUNDS_OPS; op++) {
        bounds_cell cell = cell_of(&two, op, LONG);
        bad += over_in_one_job(&two, &cell, 1);
    }
    assert_int_equal(0, bad);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lower_bound), cmocka_unit_test(test_rank_orders), cmocka_unit_test(test_two),
        cmocka_unit_test(test_alone), cmocka_unit_test(test_uplinks), cmocka_unit_test(test_four), cmocka_unit_test(test_eight), cmocka_unit_test(test_sixteen),
        cmocka_unit_test(test_many) };
    enum { SMALL = 5 };         /* those that do not take minutes where other things are looked for than time */
    size_t n = getenv("GCT_ROUNDS") ? SMALL : sizeof tests / sizeof tests[0];
    cmocka_set_test_filter(gct_filter());
    return _cmocka_run_group_tests("bounds", tests, n, NULL, NULL);
}
