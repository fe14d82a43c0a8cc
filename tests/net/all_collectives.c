/* all_collectives.c: every collective and the messages round a ring, every byte checked, as a program to run on the bed.
 *
 * SPDX-License-Identifier: MIT
 *
 *     gcrun ... all_collectives        prints one line at rank 0; exit 1 and a line at whoever found something wrong
 *
 * Buffers lie between canaries. Each (rank, position, round) has a byte of its own, so misplaced data shows as such.
 */
#define _GNU_SOURCE
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANARY = 64, ALARM_SECONDS = 120, BIGGEST = 200001,
       ALL_ROOTS = 4096,        /* bytes: from here on only the first and the last rank are roots; the links may be slow */
       ALL_PAIRS = 8192 };      /* bytes: up to here every rank has a block for every other */
static const size_t sizes[] = { 0, 1, 7, 1448, 65535, 65537, BIGGEST };

/* small: a block; big, other: one of each rank */
struct job { gc_comm *world; int rank, size; unsigned char *small, *big, *other; size_t *bytes, *at; };

static unsigned char byte_of(int rank, size_t at, size_t bytes) { return (unsigned char)((size_t)rank * 37 + at * 3 + bytes + at / 251); }

static void fill(unsigned char *buffer, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) buffer[i] = byte_of(rank, i, bytes);
}

static void clear(unsigned char *buffer, size_t bytes) { memset(buffer - CANARY, 0xEE, bytes + 2 * CANARY); }

static int whole(const unsigned char *buffer, size_t bytes)     /* are the canaries untouched? */
{
    for (size_t i = 0; i < CANARY; i++)
        if (buffer[(ptrdiff_t)i - CANARY] != 0xEE || buffer[bytes + i] != 0xEE) return 0;
    return 1;
}

static int holds(const unsigned char *buffer, int rank, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (buffer[i] != byte_of(rank, i, bytes)) return 0;
    return 1;
}

static int wrong(const struct job *j, const char *what, size_t bytes, int root, int e)
{
    fprintf(stderr, "all_collectives: rank %d: %s of %zu bytes, root %d: %s\n", j->rank, what, bytes, root,
            e ? gc_strerror(e) : "wrong data");
    return -1;
}

static int check_bcast(const struct job *j, size_t bytes, int root)
{
    clear(j->big, bytes);
    if (j->rank == root) fill(j->big, root, bytes);
    const int e = gc_bcast(j->world, j->big, bytes, root);
    return e || !holds(j->big, root, bytes) || !whole(j->big, bytes) ? wrong(j, "bcast", bytes, root, e) : 0;
}

static int check_gathers(const struct job *j, size_t bytes, int root)
{
    const size_t total = bytes * (size_t)j->size;
    for (int all = 0; all < 2; all++) {
        clear(j->small, bytes);
        clear(j->big, total);
        fill(j->small, j->rank, bytes);
        const int e = all ? gc_allgather(j->world, j->small, bytes, j->big) : gc_gather(j->world, j->small, bytes, j->big, root);
        int good = !e && whole(j->big, total) && whole(j->small, bytes);
        for (int i = 0; i < j->size && good && (all || j->rank == root); i++) good = holds(j->big + (size_t)i * bytes, i, bytes);
        if (!good) return wrong(j, all ? "allgather" : "gather", bytes, root, e);
    }
    return 0;
}

/* Blocks of bytes each, of bytes + 1 each second rank (uneven), with a gap before each. Returns where the last one ends. */
static size_t lay_out(const struct job *j, size_t bytes)
{
    size_t end = 0;
    for (int i = 0; i < j->size; i++) {
        j->at[i] = end + 3;
        j->bytes[i] = bytes + (size_t)(i % 2);
        end = j->at[i] + j->bytes[i];
    }
    return end;
}

/* Along a tree, if there is one. */
static int check_scatterv(const struct job *j, size_t bytes, int root, const gc_tree *tree)
{
    const size_t end = lay_out(j, bytes), own = j->bytes[j->rank];
    clear(j->small, own);
    for (int i = 0; i < j->size && j->rank == root; i++) fill(j->big + j->at[i], i, j->bytes[i]);
    int e = tree ? gc_tree_scatterv(j->world, tree, j->big, j->bytes, j->at, j->small, own)
                 : gc_scatterv(j->world, j->big, j->bytes, j->at, j->small, own, root);
    if (e || !holds(j->small, j->rank, own) || !whole(j->small, own))
        return wrong(j, tree ? "tree_scatterv" : "scatterv", bytes, root, e);
    clear(j->big, end);
    e = tree ? gc_tree_gatherv(j->world, tree, j->small, own, j->big, j->bytes, j->at)
             : gc_gatherv(j->world, j->small, own, j->big, j->bytes, j->at, root);
    int good = !e && whole(j->big, end);
    for (int i = 0; i < j->size && good && j->rank == root; i++) good = holds(j->big + j->at[i], i, j->bytes[i]);
    return good ? 0 : wrong(j, tree ? "tree_gatherv" : "gatherv", bytes, root, e);
}

static int check_scatters(const struct job *j, size_t bytes, int root)
{
    gc_tree *tree;
    int e = gc_tree_build(&tree, "binomial", j->size, root, NULL, NULL);
    if (e) return wrong(j, "tree_build", bytes, root, e);
    const int bad = check_scatterv(j, bytes, root, NULL) || check_scatterv(j, bytes, root, tree);
    gc_tree_free(tree);
    if (bad) return -1;
    clear(j->small, bytes);
    for (int i = 0; i < j->size && j->rank == root; i++) fill(j->big + (size_t)i * bytes, i, bytes);
    e = gc_scatter(j->world, j->big, bytes, j->small, root);
    return e || !holds(j->small, j->rank, bytes) || !whole(j->small, bytes) ? wrong(j, "scatter", bytes, root, e) : 0;
}

static int check_allgatherv(const struct job *j, size_t bytes)
{
    const size_t end = lay_out(j, bytes);
    clear(j->big, end);
    fill(j->small, j->rank, j->bytes[j->rank]);
    const int e = gc_allgatherv(j->world, j->small, j->bytes[j->rank], j->big, j->bytes, j->at);
    int good = !e && whole(j->big, end);
    for (int i = 0; i < j->size && good; i++) good = holds(j->big + j->at[i], i, j->bytes[i]);
    return good ? 0 : wrong(j, "allgatherv", bytes, 0, e);
}

/* The block of rank i for rank k is that of a rank i * 5 + k. */
static int check_alltoall(const struct job *j, size_t bytes, int uneven)
{
    size_t end = (size_t)j->size * bytes;
    for (int i = 0; i < j->size; i++) {
        j->at[i] = (size_t)i * bytes;
        j->bytes[i] = bytes;
    }
    if (uneven) end = lay_out(j, bytes);
    for (int i = 0; i < j->size; i++) {
        if (uneven) j->bytes[i] = bytes;        /* a pair's two sizes must agree */
        fill(j->other + j->at[i], j->rank * 5 + i, bytes);
    }
    clear(j->big, end);
    const int e = uneven ? gc_alltoallv(j->world, j->other, j->bytes, j->at, j->big, j->bytes, j->at)
                         : gc_alltoall(j->world, j->other, bytes, j->big);
    int good = !e && whole(j->big, end);
    for (int i = 0; i < j->size && good; i++) good = holds(j->big + j->at[i], i * 5 + j->rank, bytes);
    return good ? 0 : wrong(j, uneven ? "alltoallv" : "alltoall", bytes, 0, e);
}

/* Do the bytes hold the sum of the ranks 0 .. end - 1, from there on? all: the length of the vector. */
static int holds_sum(const unsigned char *buffer, size_t from, size_t bytes, size_t all, int end)
{
    for (size_t i = 0; i < bytes; i++) {
        unsigned sum = 0;
        for (int r = 0; r < end; r++) sum += byte_of(r, from + i, all);
        if (buffer[i] != (unsigned char)sum) return 0;
    }
    return 1;
}

static int check_reduce_scatters(const struct job *j, size_t bytes)
{
    const size_t rank = (size_t)j->rank, all = bytes * (size_t)j->size;
    clear(j->small, bytes);
    fill(j->big, j->rank, all);
    int e = gc_reduce_scatter_block(j->world, j->big, j->small, bytes, GC_UINT8, GC_SUM);
    if (e || !holds_sum(j->small, rank * bytes, bytes, all, j->size) || !whole(j->small, bytes))
        return wrong(j, "reduce_scatter_block", bytes, 0, e);
    size_t from = 0, sum = 0;
    for (int i = 0; i < j->size; i++) {
        j->bytes[i] = bytes / (size_t)(i % 3 + 1);
        from += i < j->rank ? j->bytes[i] : 0;
        sum += j->bytes[i];
    }
    clear(j->small, j->bytes[rank]);
    fill(j->big, j->rank, sum);
    e = gc_reduce_scatter(j->world, j->big, j->small, j->bytes, GC_UINT8, GC_SUM);
    const int good = !e && holds_sum(j->small, from, j->bytes[rank], sum, j->size) && whole(j->small, j->bytes[rank]);
    return good ? 0 : wrong(j, "reduce_scatter", bytes, 0, e);
}

static int check_reductions(const struct job *j, size_t bytes, int root)
{
    static const char *const names[] = { "reduce", "allreduce", "scan", "exscan" };
    for (int which = 0; which < 4; which++) {
        const int end[] = { j->rank == root ? j->size : 0, j->size, j->rank + 1, j->rank };
        clear(j->small, bytes);
        clear(j->big, bytes);
        fill(j->small, j->rank, bytes);
        const int e = which == 0 ? gc_reduce(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM, root)
                    : which == 1 ? gc_allreduce(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM)
                    : which == 2 ? gc_scan(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM)
                    : gc_exscan(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM);
        if (e || !whole(j->big, bytes) || !holds(j->small, j->rank, bytes)
            || (end[which] > 0 && !holds_sum(j->big, 0, bytes, bytes, end[which]))) return wrong(j, names[which], bytes, root, e);
    }
    return 0;
}

static int check_ring(const struct job *j, size_t bytes)
{
    const int next = (j->rank + 1) % j->size, before = (j->rank + j->size - 1) % j->size;
    gc_status s = { 0 };
    clear(j->big, bytes);
    fill(j->small, j->rank, bytes);
    const int e = gc_sendrecv(j->world, j->small, bytes, next, 5, j->big, bytes, before, 5, &s);
    const int good = !e && s.bytes == bytes && s.source == before && holds(j->big, before, bytes) && whole(j->big, bytes);
    return good ? 0 : wrong(j, "sendrecv", bytes, before, e);
}

static int check_all(const struct job *j)
{
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        if (check_ring(j, sizes[i]) != 0 || check_allgatherv(j, sizes[i]) != 0) return -1;
        if (sizes[i] <= ALL_PAIRS && (check_alltoall(j, sizes[i], 0) != 0 || check_alltoall(j, sizes[i], 1) != 0
                                      || check_reduce_scatters(j, sizes[i]) != 0)) return -1;
        for (int root = 0; root < j->size; root += sizes[i] < ALL_ROOTS || j->size == 1 ? 1 : j->size - 1) {
            if (check_bcast(j, sizes[i], root) != 0 || check_gathers(j, sizes[i], root) != 0
                || check_scatters(j, sizes[i], root) != 0 || check_reductions(j, sizes[i], root) != 0) return -1;
            const int e = gc_barrier(j->world);
            if (e) return wrong(j, "barrier", 0, root, e);
        }
    }
    return 0;
}

int main(void)
{
    struct job j = { 0 };
    alarm(ALARM_SECONDS);
    if (!(j.world = tool_init("all_collectives"))) return 1;
    j.rank = gc_rank(j.world);
    j.size = gc_size(j.world);
    const size_t ranks = (size_t)j.size, most = ranks * (BIGGEST + 4) + 2 * CANARY;     /* uneven, with gaps: 4 bytes more each */
    unsigned char *small = malloc(BIGGEST + 1 + 2 * CANARY), *big = malloc(most), *other = malloc(most);
    j.bytes = malloc(ranks * sizeof *j.bytes);
    j.at = malloc(ranks * sizeof *j.at);
    int bad = -1;
    if (small && big && other && j.bytes && j.at) {
        j.small = small + CANARY;
        j.big = big + CANARY;
        j.other = other + CANARY;
        bad = check_all(&j);
    }
    if (bad) gc_abort(j.world, GC_ERR_PROTOCOL);
    else if (j.rank == 0) printf("all collectives of %d ranks: every byte right\n", j.size);
    free(small);
    free(big);
    free(other);
    free(j.bytes);
    free(j.at);
    return gc_finalize(j.world) != 0 || bad;
}
