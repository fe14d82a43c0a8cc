/* test_chosen.c: what is chosen by a model on the simulated network, whose figures it has, is what is measured there to be the
 * fastest.
 * SPDX-License-Identifier: MIT
 *
 * Every algorithm of the pool is measured, and then what is taken when the model is in use. The table of all cells goes to the
 * file that GCT_CHOSEN names. With GCT_ROUNDS set, one network and short blocks. time limit: 600 s
 */
#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/bounds.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { REAL_LIMIT_S = 300, SIZES = 4, SHORT_SIZES = 2, CELLS = (GCI_COLLS - 1) * SIZES };
static const size_t sizes[SIZES] = { 1, 2048, 32768, 262144 };

static int size_count(void) { return getenv("GCT_ROUNDS") ? SHORT_SIZES : SIZES; }
static int cell_count(void) { return (GCI_COLLS - 1) * size_count(); }

/* All operations and sizes, as they come; algo of GRIDCOMM_ALGO. Those of *has take part. */
static void measure(bounds_net net, char *algo, const bool has[GCI_COLLS], bounds_cell cells[CELLS])
{
    bounds_cell some[CELLS];
    int n = 0, of[CELLS];
    for (int i = 0; i < cell_count(); i++) {
        int coll = 1 + i / size_count();
        if (has[coll]) {
            of[n] = i;
            some[n++] = (bounds_cell){ .op = bounds_op_of(coll), .bytes = sizes[i % size_count()] };
        }
    }
    net.algo = algo;
    assert_int_equal(0, bounds_measure(&net, some, n, REAL_LIMIT_S));
    for (int i = 0; i < n; i++) {
        cells[of[i]] = some[i];
    }
}

/* The k-th algorithm of every operation. false: none has so many. */
static bool measure_forced(const bounds_net *net, int k, bounds_cell cells[CELLS])
{
    char algo[512] = "";
    bool has[GCI_COLLS] = { false }, any = false;
    for (int coll = 1; coll < GCI_COLLS; coll++) {
        if (bounds_force(algo, sizeof algo, coll, k, net->clusters > 1)) {
            any = has[coll] = true;
        }
    }
    if (any) {
        measure(*net, algo, has, cells);
    }
    return any;
}

static void chosen(bounds_net net)
{
    static bounds_cell cells[CELLS], mine[CELLS];
    int64_t best[CELLS];
    bool all[GCI_COLLS];
    gci_env env = { .alloc = NULL };
    const char *path = getenv("GCT_CHOSEN");
    FILE *table = path ? fopen(path, "a") : NULL;
    int close = 0;
    gc_model *m = bounds_model(&env, &net);
    assert_non_null(m);
    net.model = m;
    net.uses_model = true;
    memset(all, true, sizeof all);
    measure(net, "", all, mine);
    memset(best, 0, sizeof best);
    for (int k = 0;; k++) {
        memset(cells, 0, sizeof cells);
        if (!measure_forced(&net, k, cells)) {
            break;
        }
        for (int i = 0; i < cell_count(); i++) {
            int64_t took = cells[i].cold ? bounds_warm(&cells[i]) : 0;
            best[i] = took && (!best[i] || took < best[i]) ? took : best[i];
        }
    }
    for (int i = 0; i < cell_count(); i++) {
        double ratio = (double)bounds_warm(&mine[i]) / (double)best[i];
        close += ratio <= 1.10;
        if (table) {
            fprintf(table, "%-20s %-20s %7zu %10.3f ms, the best %10.3f ms: %.2f\n", net.name, bounds_op_name(mine[i].op),
                    mine[i].bytes, (double)bounds_warm(&mine[i]) / 1e6, (double)best[i] / 1e6, ratio);
        }
    }
    printf("%s: %d of %d choices take at most 1.10 of the best\n", net.name, close, cell_count());
    if (table) {
        fclose(table);
    }
    gc_model_free(m);
    assert_true(close * 10 >= cell_count() * 9);
}

static void test_one_cluster(void **state)
{
    (void)state;
    chosen((bounds_net){ .name = "one cluster of 6", .clusters = 1, .ranks = { 6 } });
}

static void test_pairs(void **state)
{
    (void)state;
    chosen((bounds_net){ .name = "pairs of 1 3 2 2", .clusters = 4, .ranks = { 1, 3, 2, 2 } });
}

static void test_uplinks(void **state)
{
    (void)state;
    chosen((bounds_net){ .name = "uplinks of 3 2 3", .clusters = 3, .ranks = { 3, 2, 3 }, .uplinks = true });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_uplinks),
        cmocka_unit_test(test_one_cluster),
        cmocka_unit_test(test_pairs),
    };
    return _cmocka_run_group_tests("chosen", tests, getenv("GCT_ROUNDS") ? 1 : sizeof tests / sizeof tests[0], NULL, NULL);
}
