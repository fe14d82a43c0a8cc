/* test_predict.c: gc_predict and the functions for models, as a program calls them.
 * SPDX-License-Identifier: MIT
 */
#include "tests/gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <cmocka.h>

enum { RANKS = 4 };

/* Each rank on a host of its own, all alike: 100 us and 1 us for each byte. */
static void write_model(const char *path, int ranks)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "gridcomm-model 1\n");
    for (int i = 0; i < ranks; i++)
        fprintf(file, "rank %d class 0 host %d\n", i, i);
    fprintf(file, "class 0 site 0 nic 0 0 apart\nwithin 0 latency 0 per-byte 0\nbetween 0 0 latency 1e-4 per-byte 1e-6\n");
    assert_int_equal(fclose(file), 0);
}

static int expect(gc_comm *comm, const gc_model *m, const char *operation, const char *algorithm, size_t bytes, double wanted)
{
    double seconds = -1;
    gct_ok(gc_predict(comm, m, operation, algorithm, bytes, 1, &seconds));
    gct_require(seconds > wanted * 0.999999 && seconds < wanted * 1.000001, "%s: %g s, not %g", operation, seconds, wanted);
    return 0;
}

static int expect_error(int wanted, int is, const char *what)
{
    gct_require(is == wanted, "%s: %d, not %d", what, is, wanted);
    return 0;
}

static int predictions(gc_comm *world, int rank, int size, void *arg)
{
    const char *const *path = arg;
    char why[256];
    gc_model *m, *three;
    double s;
    int bad = 0;
    (void)rank, (void)size;
    gct_ok(gc_model_load(path[0], &m, why, sizeof why));
    gct_ok(gc_model_load(path[1], &three, why, sizeof why));
    bad |= expect(world, m, "bcast", "flat", 1000, 1e-4 + 3e-3);
    bad |= expect(world, m, "bcast", "chain", 1000, 3 * (1e-4 + 1e-3));
    bad |= expect(world, m, "bcast", "chain@500", 1000, 3 * 1e-4 + 4 * 5e-4);
    bad |= expect(world, m, "bcast", "binomial", 1000, 2 * (1e-4 + 1e-3));
    bad |= expect(world, m, "barrier", "doubling", 0, 2e-4);
    bad |= expect(world, m, "gather", "flat", 1000, 1e-4 + 3e-3);
    bad |= expect(world, m, "allgather", "ring", 1000, 3 * (1e-4 + 1e-3));
    for (const char *const *op = (const char *const[]){ "barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce",
                                 "allreduce", "reduce_scatter", "scan", "exscan", NULL }; *op; op++) {
        gct_ok(gc_predict(world, m, *op, NULL, 5000, 0, &s));
        gct_require(s >= 1e-4 && s < 1, "%s: %g s", *op, s);
    }
    bad |= expect_error(GC_ERR_ARG, gc_predict(NULL, m, "bcast", NULL, 1, 0, &s), "no communicator");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, NULL, "bcast", NULL, 1, 0, &s), "no model");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, NULL, NULL, 1, 0, &s), "no operation");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcasts", NULL, 1, 0, &s), "an unknown operation");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", "bruck", 1, 0, &s), "an unknown algorithm");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", "", 1, 0, &s), "an empty name");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", "chain,reduce:flat", 1, 0, &s), "a list of algorithms");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", NULL, 1, RANKS, &s), "no such root");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", NULL, 1, 0, NULL), "nowhere to");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, m, "bcast", NULL, (size_t)-1, 0, &s), "too much");
    bad |= expect_error(GC_ERR_ARG, gc_predict(world, three, "bcast", NULL, 1, 0, &s), "another number of ranks");
    bad |= expect_error(GC_ERR_UNSUPPORTED, gc_predict(world, m, "bcast", "wide", 1, 0, &s), "between one cluster");
    gc_model_free(m);
    gc_model_free(three);
    return bad;
}

static void test_predictions(void **state)
{
    (void)state;
    char path[2][64];
    const char *arg[] = { path[0], path[1] };
    for (int i = 0; i < 2; i++) {
        snprintf(path[i], sizeof path[i], "/tmp/gct-predict-%ld-%d", (long)getpid(), i);
        write_model(path[i], RANKS - i);
    }
    gct_spec spec = { .ranks = RANKS, .calm = true };
    assert_int_equal(0, gct_job(&spec, predictions, arg));
    unlink(path[0]);
    unlink(path[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_predictions) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
