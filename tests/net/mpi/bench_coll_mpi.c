/* bench_coll_mpi.c: one collective of an MPI, timed as board.h says, with the arguments and the output of bench_coll.
 *
 * SPDX-License-Identifier: MIT
 *
 *     bench_coll_mpi BOARD OPERATION BYTES [TIMES]
 *
 * bench_coll.sh compiles it with the compiler of each MPI that is installed.
 */
#define _GNU_SOURCE
#include "../board.h"

#include <mpi.h>

enum { ALARM_SECONDS = 580, BYTES_MAX = 1 << 28, END_US = 300000 };

struct bench {
    int rank, size, root, bytes, count;
    MPI_Datatype type;
    char *send, *recv;                      /* [size * bytes] */
    int *sizes, *offsets, *counts;          /* [size] */
};

#define WORLD MPI_COMM_WORLD

static int do_barrier(const struct bench *b) { (void)b; return MPI_Barrier(WORLD); }
static int do_bcast(const struct bench *b) { return MPI_Bcast(b->recv, b->bytes, MPI_BYTE, b->root, WORLD); }

static int do_scatter(const struct bench *b)
{
    return MPI_Scatter(b->send, b->bytes, MPI_BYTE, b->recv, b->bytes, MPI_BYTE, b->root, WORLD);
}

static int do_scatterv(const struct bench *b)
{
    return MPI_Scatterv(b->send, b->sizes, b->offsets, MPI_BYTE, b->recv, b->bytes, MPI_BYTE, b->root, WORLD);
}

static int do_gather(const struct bench *b)
{
    return MPI_Gather(b->send, b->bytes, MPI_BYTE, b->recv, b->bytes, MPI_BYTE, b->root, WORLD);
}

static int do_gatherv(const struct bench *b)
{
    return MPI_Gatherv(b->send, b->bytes, MPI_BYTE, b->recv, b->sizes, b->offsets, MPI_BYTE, b->root, WORLD);
}

static int do_allgather(const struct bench *b)
{
    return MPI_Allgather(b->send, b->bytes, MPI_BYTE, b->recv, b->bytes, MPI_BYTE, WORLD);
}

static int do_allgatherv(const struct bench *b)
{
    return MPI_Allgatherv(b->send, b->bytes, MPI_BYTE, b->recv, b->sizes, b->offsets, MPI_BYTE, WORLD);
}

static int do_alltoall(const struct bench *b)
{
    return MPI_Alltoall(b->send, b->bytes, MPI_BYTE, b->recv, b->bytes, MPI_BYTE, WORLD);
}

static int do_alltoallv(const struct bench *b)
{
    return MPI_Alltoallv(b->send, b->sizes, b->offsets, MPI_BYTE, b->recv, b->sizes, b->offsets, MPI_BYTE, WORLD);
}

static int do_reduce(const struct bench *b) { return MPI_Reduce(b->send, b->recv, b->count, b->type, MPI_SUM, b->root, WORLD); }
static int do_allreduce(const struct bench *b) { return MPI_Allreduce(b->send, b->recv, b->count, b->type, MPI_SUM, WORLD); }
static int do_scan(const struct bench *b) { return MPI_Scan(b->send, b->recv, b->count, b->type, MPI_SUM, WORLD); }
static int do_exscan(const struct bench *b) { return MPI_Exscan(b->send, b->recv, b->count, b->type, MPI_SUM, WORLD); }

static int do_reduce_scatter(const struct bench *b)
{
    return MPI_Reduce_scatter(b->send, b->recv, b->counts, b->type, MPI_SUM, WORLD);
}

static int do_reduce_scatter_block(const struct bench *b)
{
    return MPI_Reduce_scatter_block(b->send, b->recv, b->count, b->type, MPI_SUM, WORLD);
}

static const struct operation { const char *name; int (*run)(const struct bench *b); } operations[] = {
    { "barrier", do_barrier },         { "bcast", do_bcast },           { "scatter", do_scatter },
    { "scatterv", do_scatterv },       { "gather", do_gather },         { "gatherv", do_gatherv },
    { "allgather", do_allgather },     { "allgatherv", do_allgatherv }, { "alltoall", do_alltoall },
    { "alltoallv", do_alltoallv },     { "reduce", do_reduce },         { "allreduce", do_allreduce },
    { "scan", do_scan },               { "exscan", do_exscan },         { "reduce_scatter", do_reduce_scatter },
    { "reduce_scatter_block", do_reduce_scatter_block } };

struct task { const struct bench *bench; const struct operation *operation; };

static int operate(void *user)
{
    const struct task *t = user;
    return t->operation->run(t->bench);
}

static int progress(void *user, int us)     /* looking for a message that nobody sends moves the others */
{
    int found;
    (void)user;
    board_nap(us);
    return MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, WORLD, &found, MPI_STATUS_IGNORE);
}

static int prepare(struct bench *b)
{
    const size_t n = (size_t)b->size, all = n * (size_t)b->bytes;
    b->type = b->bytes % (int)sizeof(int64_t) == 0 ? MPI_INT64_T : MPI_UINT8_T;
    b->count = b->type == MPI_INT64_T ? b->bytes / (int)sizeof(int64_t) : b->bytes;
    b->send = malloc(all + 1);
    b->recv = malloc(all + 1);
    b->sizes = calloc(3 * n, sizeof *b->sizes);
    if (!b->send || !b->recv || !b->sizes || all > INT32_MAX) return -1;
    b->offsets = b->sizes + n;
    b->counts = b->offsets + n;
    for (int i = 0; i < b->size; i++) {
        b->sizes[i] = b->bytes;
        b->offsets[i] = i * b->bytes;
        b->counts[i] = b->count;
    }
    memset(b->send, b->rank + 1, all);
    memset(b->recv, 0, all);
    return 0;
}

int main(int argc, char **argv)
{
    struct bench b = { .bytes = argc > 3 ? atoi(argv[3]) : 0 };
    struct task task = { &b, operations };
    const struct operation *end = operations + sizeof operations / sizeof *operations;
    while (argc > 2 && task.operation < end && strcmp(task.operation->name, argv[2]) != 0) task.operation++;
    if (argc < 4 || argc > 5 || task.operation == end || b.bytes < 0 || b.bytes > BYTES_MAX) {
        fprintf(stderr, "usage: bench_coll_mpi BOARD OPERATION BYTES [TIMES]\n");
        return 2;
    }
    alarm(ALARM_SECONDS);
    if (MPI_Init(NULL, NULL) != MPI_SUCCESS) return 1;
    MPI_Comm_rank(WORLD, &b.rank);
    MPI_Comm_size(WORLD, &b.size);
    const struct board_job job = { board_open(argv[1]), b.rank, b.size, argc > 4 ? atoi(argv[4]) : 0, operate, progress, &task };
    if (!job.board || prepare(&b) != 0 || board_time(&job) != 0) MPI_Abort(WORLD, 1);
    if (b.rank == 0) board_nap(END_US);         /* the abort must not overtake what was printed */
    if (b.rank == 0) MPI_Abort(WORLD, 0);       /* MPICH over UCX often hangs in MPI_Finalize with more ranks than cores */
    MPI_Barrier(WORLD);                         /* the others wait for that */
    return 0;
}
