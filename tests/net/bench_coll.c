/* bench_coll.c: one collective of gridcomm, timed as board.h says.
 *
 * SPDX-License-Identifier: MIT
 *
 *     bench_coll BOARD OPERATION BYTES [TIMES]
 *
 * BOARD is the name of a new file, the same at every rank. BYTES are a rank's block, of broadcast and reductions the vector
 * (of reduce_scatter what a rank gets of it); root is rank 0. What can be summed as 64-bit integers is, else as bytes.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "board.h"

enum { ALARM_SECONDS = 580, BYTES_MAX = 1 << 28 };

struct bench {
    gc_comm *world;
    int rank, size, root;
    size_t bytes, count;
    gc_type type;
    char *send, *recv;                      /* [size * bytes] */
    size_t *sizes, *offsets, *counts;       /* [size] */
};

static int do_barrier(const struct bench *b) { return gc_barrier(b->world); }
static int do_bcast(const struct bench *b) { return gc_bcast(b->world, b->recv, b->bytes, b->root); }
static int do_scatter(const struct bench *b) { return gc_scatter(b->world, b->send, b->bytes, b->recv, b->root); }
static int do_gather(const struct bench *b) { return gc_gather(b->world, b->send, b->bytes, b->recv, b->root); }
static int do_allgather(const struct bench *b) { return gc_allgather(b->world, b->send, b->bytes, b->recv); }
static int do_alltoall(const struct bench *b) { return gc_alltoall(b->world, b->send, b->bytes, b->recv); }

static int do_scatterv(const struct bench *b)
{
    return gc_scatterv(b->world, b->send, b->sizes, b->offsets, b->recv, b->bytes, b->root);
}

static int do_gatherv(const struct bench *b)
{
    return gc_gatherv(b->world, b->send, b->bytes, b->recv, b->sizes, b->offsets, b->root);
}

static int do_allgatherv(const struct bench *b)
{
    return gc_allgatherv(b->world, b->send, b->bytes, b->recv, b->sizes, b->offsets);
}

static int do_alltoallv(const struct bench *b)
{
    return gc_alltoallv(b->world, b->send, b->sizes, b->offsets, b->recv, b->sizes, b->offsets);
}

static int do_reduce(const struct bench *b) { return gc_reduce(b->world, b->send, b->recv, b->count, b->type, GC_SUM, b->root); }
static int do_allreduce(const struct bench *b) { return gc_allreduce(b->world, b->send, b->recv, b->count, b->type, GC_SUM); }
static int do_scan(const struct bench *b) { return gc_scan(b->world, b->send, b->recv, b->count, b->type, GC_SUM); }
static int do_exscan(const struct bench *b) { return gc_exscan(b->world, b->send, b->recv, b->count, b->type, GC_SUM); }

static int do_reduce_scatter(const struct bench *b)
{
    return gc_reduce_scatter(b->world, b->send, b->recv, b->counts, b->type, GC_SUM);
}

static int do_reduce_scatter_block(const struct bench *b)
{
    return gc_reduce_scatter_block(b->world, b->send, b->recv, b->count, b->type, GC_SUM);
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

static int progress(void *user, int us)     /* as bench_coll_mpi.c */
{
    const struct task *t = user;
    board_nap(us);
    return gc_progress(t->bench->world) < 0;
}

static int prepare(struct bench *b)
{
    const size_t n = (size_t)b->size, all = n * b->bytes;
    b->rank = gc_rank(b->world);
    b->type = b->bytes % sizeof(int64_t) == 0 ? GC_INT64 : GC_UINT8;
    b->count = b->type == GC_INT64 ? b->bytes / sizeof(int64_t) : b->bytes;
    b->send = malloc(all + 1);
    b->recv = malloc(all + 1);
    b->sizes = calloc(3 * n, sizeof *b->sizes);
    if (!b->send || !b->recv || !b->sizes) return -1;
    b->offsets = b->sizes + n;
    b->counts = b->offsets + n;
    for (size_t i = 0; i < n; i++) {
        b->sizes[i] = b->bytes;
        b->offsets[i] = i * b->bytes;
        b->counts[i] = b->count;
    }
    memset(b->send, b->rank + 1, all);      /* so that all pages are there */
    memset(b->recv, 0, all);
    return 0;
}

static int run(struct bench *b, const struct operation *o, const char *path, int times)
{
    struct task task = { b, o };
    struct board_job job = { board_open(path), b->rank, b->size, times, operate, progress, &task };
    const int bad = !job.board || prepare(b) != 0;
    job.rank = b->rank;
    const int e = bad ? -1 : board_time(&job);
    if (job.board) munmap(job.board, sizeof *job.board);
    free(b->send);
    free(b->recv);
    free(b->sizes);
    return e;
}

int main(int argc, char **argv)
{
    struct bench b = { .bytes = argc > 3 ? (size_t)strtoull(argv[3], NULL, 10) : 0 };
    const struct operation *o = operations, *end = operations + sizeof operations / sizeof *operations;
    while (argc > 2 && o < end && strcmp(o->name, argv[2]) != 0) o++;
    if (argc < 4 || argc > 5 || o == end || b.bytes > BYTES_MAX) {
        fprintf(stderr, "usage: bench_coll BOARD OPERATION BYTES [TIMES]\n");
        return 2;
    }
    alarm(ALARM_SECONDS);       /* nothing here may wait for ever */
    if (!(b.world = tool_init("bench_coll"))) return 1;
    b.size = gc_size(b.world);
    const int e = run(&b, o, argv[1], argc > 4 ? atoi(argv[4]) : 0);
    if (e) {
        tool_failed("bench_coll", b.world, o->name, gc_last_error(b.world, NULL, NULL, 0));
        gc_abort(b.world, e);
    }
    const int f = gc_finalize(b.world);
    return e || f;
}
