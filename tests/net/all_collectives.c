/* all_collectives.c: every collective and the messages round a ring, every byte checked, as a program to run on the bed.
 *
 * SPDX-License-Identifier: MIT
 *
 *     gcrun ... all_collectives        prints one line at rank 0; exit 1 and a line at whoever found something wrong
 *
 * Buffers lie between canaries. Each (rank, position, round) has a byte of its own, so misplaced data shows as such.
 */
#define _GNU_SOURCE
#include "gridcomm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CANARY = 64, ALARM_SECONDS = 120, BIGGEST = 200001,
       ALL_ROOTS = 4096 };      /* bytes: from here on only the first and the last rank are roots; the links may be slow */
static const size_t sizes[] = { 0, 1, 7, 1448, 65535, 65537, BIGGEST };

struct job { gc_comm *world; int rank, size; unsigned char *small, *big; };      /* small: a block; big: one of each rank */

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

static int check_reductions(const struct job *j, size_t bytes, int root)
{
    for (int all = 0; all < 2; all++) {
        clear(j->small, bytes);
        clear(j->big, bytes);
        fill(j->small, j->rank, bytes);
        const int e = all ? gc_allreduce(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM)
                          : gc_reduce(j->world, j->small, j->big, bytes, GC_UINT8, GC_SUM, root);
        int good = !e && whole(j->big, bytes) && holds(j->small, j->rank, bytes);
        for (size_t i = 0; i < bytes && good && (all || j->rank == root); i++) {
            unsigned sum = 0;
            for (int r = 0; r < j->size; r++) sum += byte_of(r, i, bytes);
            good = j->big[i] == (unsigned char)sum;
        }
        if (!good) return wrong(j, all ? "allreduce" : "reduce", bytes, root, e);
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
        if (check_ring(j, sizes[i]) != 0) return -1;
        for (int root = 0; root < j->size; root += sizes[i] < ALL_ROOTS || j->size == 1 ? 1 : j->size - 1) {
            if (check_bcast(j, sizes[i], root) != 0 || check_gathers(j, sizes[i], root) != 0
                || check_reductions(j, sizes[i], root) != 0) return -1;
            const int e = gc_barrier(j->world);
            if (e) return wrong(j, "barrier", 0, root, e);
        }
    }
    return 0;
}

int main(void)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    struct job j = { 0 };
    alarm(ALARM_SECONDS);
    options.error_text = why;
    options.error_text_size = sizeof why;
    const int e = gc_init(&j.world, &options);
    if (e) {
        fprintf(stderr, "all_collectives: %s: %s\n", gc_strerror(e), why);
        return 1;
    }
    j.rank = gc_rank(j.world);
    j.size = gc_size(j.world);
    unsigned char *small = malloc(BIGGEST + 2 * CANARY), *big = malloc((size_t)j.size * BIGGEST + 2 * CANARY);
    int bad = -1;
    if (small && big) {
        j.small = small + CANARY;
        j.big = big + CANARY;
        bad = check_all(&j);
    }
    if (bad) gc_abort(j.world, GC_ERR_PROTOCOL);
    else if (j.rank == 0) printf("all collectives of %d ranks: every byte right\n", j.size);
    free(small);
    free(big);
    return gc_finalize(j.world) != 0 || bad;
}
