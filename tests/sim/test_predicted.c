/* test_predicted.c: what gc_predict says about the simulated network, whose figures are its model, and what is measured there.
 * SPDX-License-Identifier: MIT
 *
 * All operations by all algorithms of the pool that can do them, 1 B to 256 KiB, in one cluster and in several unequal ones.
 * The table of all cells goes to the file that GCT_PREDICTED names. With GCT_ROUNDS set, 1 byte in one network. time limit: 600 s
 */
#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/bounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REAL_LIMIT_S = 250, CELLS_MAX = 1000, ALGOS = 16 };
static const size_t sizes[] = { 1, 1024, 16384, 65536, 262144 };

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct errors { double all[CELLS_MAX * ALGOS]; int n; } errors;

static void note(errors *e, const bounds_net *net, const bounds_cell *c, FILE *table)
{
    double measured = (double)bounds_warm(c) / 1e9, error = (c->predicted - measured) / measured;
    e->all[e->n++] = error < 0 ? -error : error;
    if (table) {
        fprintf(table, "%-22s %-20s %-10s %7zu %12.6f %12.6f ms %+7.1f %%\n", net->name, bounds_op_name(c->op), c->algo, c->bytes,
                measured * 1e3, c->predicted * 1e3, error * 100);
    }
}

/* One job for the k-th algorithm of every operation. false: none has so many. */
static bool measure(bounds_net net, int k, errors *e, FILE *table)
{
    static bounds_cell cells[CELLS_MAX];
    char algo[512] = "";
    int n = 0, ranks = bounds_ranks(&net);
    memset(cells, 0, sizeof cells);
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        const char *name = bounds_force(algo, sizeof algo, coll, k, net.clusters > 1);
        if (!name) {
            continue;
        }
        enum bounds_op op = bounds_op_of(coll);
        size_t most = getenv("GCT_ROUNDS") ? 1 : net.clusters > 2 ? 4 : GCI_COUNT(sizes);   /* these take long to simulate */
        for (size_t i = 0; i < (coll == GCI_BARRIER ? 1 : most); i++) {
            cells[n++] = (bounds_cell){ .op = op, .bytes = coll == GCI_BARRIER ? 0 : sizes[i], .algo = name,
                                        .root = bounds_rooted(op) ? ranks / 3 : 0 };
        }
    }
    net.algo = algo;
    if (n > 0) {
        assert_int_equal(0, bounds_measure(&net, cells, n, REAL_LIMIT_S));
    }
    for (int i = 0; i < n; i++) {
        if (cells[i].predicted > 0) {
            note(e, &net, &cells[i], table);
        }
    }
    return n > 0;
}

static void predicted(bounds_net net)
{
    static errors e;
    gci_env env = { .alloc = NULL };
    gc_model *m = bounds_model(&env, &net);
    const char *path = getenv("GCT_PREDICTED");
    FILE *table = path ? fopen(path, "a") : NULL;
    net.model = m;
    net.uses_model = true;      /* there are trees that are made for it */
    e.n = 0;
    for (int k = 0; measure(net, k, &e, table);) {
        k++;
    }
    qsort(e.all, (size_t)e.n, sizeof e.all[0], compare);
    double median = e.all[e.n / 2], p90 = e.all[e.n * 9 / 10];
    printf("%s: %d predictions: median error %.1f %%, 90th percentile %.1f %%, worst %.1f %%\n", net.name, e.n, median * 100,
           p90 * 100, e.all[e.n - 1] * 100);
    if (table) {
        fclose(table);
    }
    gc_model_free(m);
    assert_true(median <= 0.10);
    assert_true(p90 <= 0.30);
}

static void test_one_cluster(void **state)
{
    (void)state;
    predicted((bounds_net){ .name = "one cluster of 8", .clusters = 1, .ranks = { 8 } });
}

static void test_two_clusters(void **state)
{
    (void)state;
    predicted((bounds_net){ .name = "clusters of 5 and 3", .clusters = 2, .ranks = { 5, 3 } });
}

static void test_four_clusters(void **state)
{
    (void)state;
    predicted((bounds_net){ .name = "clusters of 1 4 2 3", .clusters = 4, .ranks = { 1, 4, 2, 3 } });
}

static void test_uplinks(void **state)
{
    (void)state;
    predicted((bounds_net){ .name = "uplinks of 3 2 3", .clusters = 3, .ranks = { 3, 2, 3 }, .uplinks = true });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_one_cluster),
        cmocka_unit_test(test_uplinks),
        cmocka_unit_test(test_two_clusters),
        cmocka_unit_test(test_four_clusters),
    };
    return _cmocka_run_group_tests("predicted", tests, getenv("GCT_ROUNDS") ? 1 : GCI_COUNT(tests), NULL, NULL);
}
