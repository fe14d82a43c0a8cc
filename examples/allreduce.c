/* allreduce.c: the sum of a vector over all ranks, at all ranks, checked and timed.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 4 allreduce [COUNT]
 *
 * Element i of rank r is r + i / 4: sums of such numbers are exact in a double, so the result can be compared with ==.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { COUNT_MAX = 100000000, REPEAT = 20 };

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int failed(gc_comm *world, const char *what, int err)
{
    char why[256] = "";
    gc_last_error(world, NULL, why, sizeof why);
    fprintf(stderr, "allreduce: rank %d: %s: %s: %s\n", gc_rank(world), what, gc_strerror(err), why);
    return err;
}

static int run(gc_comm *world, double *mine, double *sum, size_t count)
{
    int rank = gc_rank(world), size = gc_size(world);
    double of_ranks = (double)size * (size - 1) / 2, start, took, slowest;
    for (size_t i = 0; i < count; i++) mine[i] = rank + (double)i / 4;

    int err = gc_allreduce(world, mine, sum, count, GC_DOUBLE, GC_SUM);
    for (size_t i = 0; !err && i < count; i++)
        if (sum[i] != of_ranks + (double)i / 4 * size) {
            fprintf(stderr, "allreduce: rank %d: element %zu is %g instead of %g\n", rank, i, sum[i], of_ranks + (double)i / 4 * size);
            return GC_ERR_PROTOCOL;
        }
    start = seconds();
    for (int i = 0; i < REPEAT && !err; i++) err = gc_allreduce(world, mine, sum, count, GC_DOUBLE, GC_SUM);
    took = (seconds() - start) / REPEAT;
    if (!err) err = gc_allreduce(world, &took, &slowest, 1, GC_DOUBLE, GC_MAX);
    if (err) return failed(world, "allreduce", err);
    if (rank == 0)
        printf("sum of %zu doubles over %d ranks: right at every rank, %.1f microseconds\n", count, size, slowest * 1e6);
    return GC_OK;
}

int main(int argc, char **argv)
{
    char why[256] = "", *end = NULL;
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    long count = argc > 1 ? strtol(argv[1], &end, 10) : 1000;
    if (argc > 2 || (end && (*end || end == argv[1])) || count < 1 || count > COUNT_MAX) {
        fprintf(stderr, "usage: allreduce [COUNT]\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&world, &options);
    if (err) {
        fprintf(stderr, "allreduce: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    int rank = gc_rank(world);
    double *mine = malloc((size_t)count * sizeof *mine), *sum = malloc((size_t)count * sizeof *sum);
    if (mine && sum) {
        err = run(world, mine, sum, (size_t)count);
    } else {
        fprintf(stderr, "allreduce: rank %d: out of memory\n", rank);
        err = GC_ERR_NOMEM;
    }
    if (err) gc_abort(world, 1);                /* the others wait for this rank */
    int left = gc_finalize(world);
    if (left && !err) fprintf(stderr, "allreduce: rank %d: finalize: %s\n", rank, gc_strerror(left));
    free(mine);
    free(sum);
    return err || left;
}
