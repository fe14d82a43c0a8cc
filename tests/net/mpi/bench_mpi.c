/* bench_mpi.c: the allreduce of bench_gc, timed by the same code, over an MPI.
 *
 * SPDX-License-Identifier: MIT
 *
 *     bench_mpi allreduce COUNT    prints two numbers, us: COUNT int64 summed by all ranks, one by one and in a row
 *
 * bench.sh compiles it with the compiler of each MPI that is installed; it stands in a directory of its own because
 * nothing else here needs one.
 */
#define _GNU_SOURCE
#include "../measure.h"

#include <mpi.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { COUNT_MAX = 1 << 20, ALARM_SECONDS = 240 };

struct bench { int64_t *send, *recv; int count; };

static int do_barrier(void *user)
{
    (void)user;
    return MPI_Barrier(MPI_COMM_WORLD);
}

static int do_tell(void *user, int64_t *word)
{
    (void)user;
    return MPI_Bcast(word, 1, MPI_INT64_T, 0, MPI_COMM_WORLD);
}

static int do_allreduce(void *user)
{
    const struct bench *b = user;
    return MPI_Allreduce(b->send, b->recv, b->count, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
}

static int do_greatest(void *user, double *values, int n)
{
    double result[MEASURE_ISOLATED];
    (void)user;
    const int e = MPI_Reduce(values, result, n, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank == 0) memcpy(values, result, (size_t)n * sizeof *values);
    return e;
}

int main(int argc, char **argv)
{
    struct measure_job job = { 0, do_barrier, do_tell, do_allreduce, do_greatest, NULL };
    struct bench b = { .count = argc == 3 ? atoi(argv[2]) : 0 };
    double alone = 0, row = 0;
    alarm(ALARM_SECONDS);
    if (b.count < 1 || b.count > COUNT_MAX || strcmp(argv[1], "allreduce") != 0 || MPI_Init(&argc, &argv) != MPI_SUCCESS) return 2;
    MPI_Comm_rank(MPI_COMM_WORLD, &job.rank);
    b.send = calloc((size_t)b.count, sizeof *b.send);
    b.recv = calloc((size_t)b.count, sizeof *b.recv);
    job.user = &b;
    if (!b.send || !b.recv || measure_collective(&job, &alone, &row) != 0) MPI_Abort(MPI_COMM_WORLD, 1);
    if (job.rank == 0) {
        printf("%.2f %.2f\n", alone * 1e6, row * 1e6);
        fflush(stdout);
        MPI_Abort(MPI_COMM_WORLD, 0);       /* MPICH over UCX often hangs in MPI_Finalize with more ranks than cores */
    }
    MPI_Barrier(MPI_COMM_WORLD);            /* the others wait for that */
    return 0;
}
