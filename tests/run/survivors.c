/* survivors.c: the ranks of test_survivors.sh: all collectives in turn, checked, over and over, whoever is killed meanwhile.
 * SPDX-License-Identifier: MIT
 *
 * usage: survivors DIRECTORY [MARK]
 *
 * A call that fails must do so with GC_ERR_PEER, and somebody must have died. Then the rank shrinks its communicator and goes on.
 * It ends when DIRECTORY/stop is there. What it says, MS of the clock that `date` shows:
 *
 *     pid PID              at first
 *     ready                all ranks have been through all collectives once
 *     met at MS            a collective failed with GC_ERR_PEER
 *     N work at MS         ... a communicator of N ranks has been made, and all collectives have been right in it once
 *     wrong: ...
 *
 * Exit status: 0, 2 if gc_init failed, 4 if anything was wrong.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { EXIT_REFUSED = 2, EXIT_WRONG = 4, LIFE_S = 120, RANKS_MAX = 16, COUNT_MAX = 20000, ALL = 12 };

typedef struct call {
    gc_comm *comm;
    int      rank, size, root, turn;
    size_t   count;                     /* elements of each block */
    int32_t *in, *out;                  /* COUNT_MAX each for every rank */
    size_t   sizes[RANKS_MAX], at[RANKS_MAX];
} call;

static long long now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

static int wrong(const char *what, int code)
{
    printf("wrong: %s: %s\n", what, gc_strerror(code));
    return EXIT_WRONG;
}

static int32_t value(const call *c, int from, int to, size_t i)
{
    return (int32_t)((from * 131 + to * 17 + c->turn * 7) % 1000 + (int)(i % 100));
}

static void fill(const call *c, int32_t *block, int from, int to)
{
    for (size_t i = 0; i < c->count; i++) block[i] = value(c, from, to, i);
}

static bool holds(const call *c, const int32_t *block, int from, int to)
{
    for (size_t i = 0; i < c->count; i++)
        if (block[i] != value(c, from, to, i)) return false;
    return true;
}

/* The sum over ranks first .. last - 1 of what each has for `to`. */
static bool sums(const call *c, const int32_t *block, int last, int to)
{
    for (size_t i = 0; i < c->count; i++) {
        int32_t sum = 0;
        for (int from = 0; from < last; from++) sum += value(c, from, to, i);
        if (block[i] != sum) return false;
    }
    return true;
}

/* Blocks for all, or from all. */
static void fill_all(const call *c)
{
    for (int i = 0; i < c->size; i++) fill(c, c->in + (size_t)i * c->count, c->rank, i);
}

static bool holds_all(const call *c, int to)
{
    bool right = true;
    for (int i = 0; i < c->size; i++) right &= holds(c, c->out + (size_t)i * c->count, i, to);
    return right;
}

static int one(call *c, int which, bool *right)
{
    size_t bytes = c->count * sizeof *c->in;
    int err, rank = c->rank, root = c->root;
    gc_request *request = NULL;
    *right = true;
    fill(c, c->in, rank, 0);
    switch (which) {
    case 0:
        return gc_barrier(c->comm);
    case 1:
        fill(c, c->out, root, rank == root ? 0 : 1);
        err = gc_bcast(c->comm, c->out, bytes, root);
        *right = err || holds(c, c->out, root, 0);
        return err;
    case 2:
        fill_all(c);
        err = gc_scatter(c->comm, c->in, bytes, c->out, root);
        *right = err || holds(c, c->out, root, rank);
        return err;
    case 3:
        err = gc_gather(c->comm, c->in, bytes, c->out, root);
        *right = err || rank != root || holds_all(c, 0);
        return err;
    case 4:
        err = gc_allgather(c->comm, c->in, bytes, c->out);
        *right = err || holds_all(c, 0);
        return err;
    case 5:
        fill_all(c);
        err = gc_alltoall(c->comm, c->in, bytes, c->out);
        *right = err || holds_all(c, rank);
        return err;
    case 6:
        err = gc_reduce(c->comm, c->in, c->out, c->count, GC_INT32, GC_SUM, root);
        *right = err || rank != root || sums(c, c->out, c->size, 0);
        return err;
    case 7:
        err = gc_allreduce(c->comm, c->in, c->out, c->count, GC_INT32, GC_SUM);
        *right = err || sums(c, c->out, c->size, 0);
        return err;
    case 8:
        fill_all(c);
        err = gc_reduce_scatter_block(c->comm, c->in, c->out, c->count, GC_INT32, GC_SUM);
        *right = err || sums(c, c->out, c->size, rank);
        return err;
    case 9:
        err = gc_scan(c->comm, c->in, c->out, c->count, GC_INT32, GC_SUM);
        *right = err || sums(c, c->out, rank + 1, 0);
        return err;
    case 10:
        err = gc_exscan(c->comm, c->in, c->out, c->count, GC_INT32, GC_SUM);
        *right = err || rank == 0 || sums(c, c->out, rank, 0);
        return err;
    default:
        err = gc_iallgatherv(c->comm, c->in, bytes, c->out, c->sizes, c->at, &request);
        if (!err) err = gc_wait(&request, NULL);
        *right = err || holds_all(c, 0);
        return err;
    }
}

static void next_turn(call *c, gc_comm *comm)
{
    static const size_t counts[] = { 1, 300, COUNT_MAX, 7 };
    c->comm = comm;
    c->rank = gc_rank(comm);
    c->size = gc_size(comm);
    c->root = c->turn % c->size;
    c->count = counts[c->turn / ALL % 4];
    for (int i = 0; i < c->size; i++) {
        c->sizes[i] = c->count * sizeof *c->in;
        c->at[i] = (size_t)i * c->sizes[i];
    }
}

/* Does everybody see that it is to stop? */
static int all_stop(gc_comm *comm, const char *dir, bool *stop)
{
    char path[512];
    snprintf(path, sizeof path, "%s/stop", dir);
    int mine = access(path, F_OK) == 0, all = 0, err = gc_allreduce(comm, &mine, &all, 1, GC_INT32, GC_MIN);
    *stop = !err && all;
    return err;
}

/* All collectives in this communicator until one fails, or it is to stop. 0 or EXIT_WRONG. */
static int work(call *c, gc_comm *comm, const char *dir, bool whole, int *err, bool *stop)
{
    *stop = false;
    for (c->turn = 0, *err = GC_OK; !*err && !*stop; c->turn++) {
        bool right = true;
        next_turn(c, comm);
        *err = one(c, c->turn % ALL, &right);
        if (!right) return wrong("data", GC_OK);
        if (!*err && c->turn == ALL - 1) *err = gc_barrier(comm);
        if (!*err && c->turn == ALL - 1 && whole) printf("ready\n");
        if (!*err && c->turn == ALL - 1 && !whole) printf("%d work at %lld\n", c->size, now_ms());
        if (!*err && c->turn % ALL == ALL - 1 && c->turn >= ALL) *err = all_stop(comm, dir, stop);
    }
    return 0;
}

static int survive(gc_comm *world, const char *dir, call *c)
{
    gc_comm *comm = world, *smaller;
    int err, status;
    bool stop;
    while ((status = work(c, comm, dir, comm == world, &err, &stop)) == 0 && !stop) {
        if (err != GC_ERR_PEER || gc_comm_failed(comm, NULL, 0) == 0) return wrong("an error that nobody's death explains", err);
        printf("met at %lld\n", now_ms());
        err = gc_comm_shrink(comm, &smaller);
        if (err) return wrong("gc_comm_shrink", err);
        err = comm == world ? GC_OK : gc_comm_free(comm);
        if (err) return wrong("gc_comm_free", err);
        comm = smaller;
    }
    return status;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gc_comm *world;
    call c = { 0 };
    options.error_text = why;
    options.error_text_size = sizeof why;
    if (argc < 2) return wrong("usage: survivors DIRECTORY [MARK]", GC_ERR_ARG);
    alarm(LIFE_S);
    setvbuf(stdout, NULL, _IOLBF, 0);
    int err = gc_init(&world, &options);
    if (err) {
        printf("refused: %s: %s\n", gc_strerror(err), why);
        return EXIT_REFUSED;
    }
    printf("pid %ld\n", (long)getpid());
    c.in = calloc((size_t)COUNT_MAX * RANKS_MAX, sizeof *c.in);
    c.out = calloc((size_t)COUNT_MAX * RANKS_MAX, sizeof *c.out);
    int status = c.in && c.out && gc_size(world) <= RANKS_MAX ? survive(world, argv[1], &c) : wrong("start", GC_ERR_NOMEM);
    int left = gc_finalize(world);
    if (!status && left && left != GC_ERR_PEER) status = wrong("gc_finalize", left);
    free(c.in);
    free(c.out);
    return status;
}
