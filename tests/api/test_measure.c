/* test_measure.c: a measured model is whole and the same everywhere. How good it is, tests/sim/test_measure.c knows.
 * SPDX-License-Identifier: MIT
 */
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <cmocka.h>

static int measure(gc_comm *comm, const char *kind)
{
    gc_model *model;
    gct_ok(gc_model_measure(comm, kind, 10, &model));
    for (int i = 0; i < gc_size(comm); i++) {
        for (int k = 0; k < gc_size(comm); k++) {
            double found[2], least[2], most[2];
            gct_ok(gc_model_p2p(model, i, k, 1, &found[0]));
            gct_ok(gc_model_p2p(model, i, k, 10000000, &found[1]));
            gct_require(i == k || (found[0] > 0 && found[0] < 1 && found[1] > found[0]), "%d to %d: %g, %g s", i, k, found[0], found[1]);
            gct_ok(gc_allreduce(comm, found, least, 2, GC_DOUBLE, GC_MIN));
            gct_ok(gc_allreduce(comm, found, most, 2, GC_DOUBLE, GC_MAX));
            gct_require(least[0] >= most[0] && least[1] >= most[1], "%d to %d is not the same everywhere", i, k);
        }
    }
    double seconds;
    gct_ok(gc_predict(comm, model, "allreduce", NULL, 1000, 0, &seconds));
    gct_require(gc_size(comm) == 1 || seconds > 0, "%g s", seconds);
    gc_model_free(model);
    return 0;
}

/* All, and a part of them in another order. */
static int measures(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *part;
    int wrong = measure(world, arg);
    gct_ok(gc_comm_split(world, rank % 2, size - rank, &part));
    return wrong | measure(part, arg);
}

static void test_measure(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 5 };
    static const char *const kinds[] = { "hockney", "plogp" };
    for (int i = 0; i < 6; i++) {
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i / 2], .sites = ranks[i / 2] > 2 ? 2 : 1 }, measures,
                                    (void *)(uintptr_t)kinds[i % 2]));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_measure) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
