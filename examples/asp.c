/* asp.c: the lengths of the shortest paths between all pairs of N places, by Floyd and Warshall: row k of the table of
 * distances, once the ways over the places before k are in it, improves every other row, so each step is one broadcast.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 4 asp [N]
 *
 * The rows are striped over the ranks in blocks. A rank that owns several rows in succession needs nobody else to finish
 * them: it begins their broadcasts up to AHEAD rows early, so that a slow link carries many rows at a time. Rank 0 compares
 * every distance with a run of its own. The program is that of T. Kielmann et al., "MagPIe: MPI's collective communication
 * operations for clustered wide area systems" (1999), chapter 4.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_MAX = 20000, AHEAD = 32, NO_WAY = 1 << 29, ROADS = 8 };        /* about ROADS one-way roads leave each place */

typedef struct asp {
    gc_comm *world;
    int rank, size, n, block;   /* rank r owns the rows r * block and on; behind row n - 1 blocks are padded */
    int32_t *rows;              /* [block * n] */
    int32_t *line;              /* [AHEAD * n]: row k travels in line k % AHEAD */
    gc_request *request[AHEAD];
} asp;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int failed(const asp *a, const char *what, int err)
{
    char why[256] = "";
    gc_last_error(a->world, NULL, why, sizeof why);
    fprintf(stderr, "asp: rank %d: %s: %s: %s\n", a->rank, what, gc_strerror(err), why);
    return err;
}

/* The road from i to j, the same wherever it is asked for: a road to the next place, and others by chance. */
static int32_t road(int i, int j, int n)
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)j * 2246822519u + 374761393u;
    x = (x ^ x >> 15) * 2246822519u;
    x = (x ^ x >> 13) * 3266489917u;
    x ^= x >> 16;
    if (i == j) return 0;
    return j == (i + 1) % n || x % (uint32_t)n < ROADS ? 1 + (int32_t)(x >> 8) % 1000 : NO_WAY;
}

static void lay_out(int32_t *rows, int first, int count, int n)
{
    for (int i = 0; i < count; i++)
        for (int j = 0; j < n; j++) rows[(size_t)i * (size_t)n + (size_t)j] = road(first + i, j, n);
}

/* Takes the ways over place k into a row; line is row k. */
static void improve(int32_t *row, const int32_t *line, int k, int n)
{
    const int32_t there = row[k];
    if (there == NO_WAY) return;
    for (int j = 0; j < n; j++)
        if (there + line[j] < row[j]) row[j] = there + line[j];
}

static int32_t *row_of(const asp *a, int k) { return a->rows + (size_t)(k - a->rank * a->block) * (size_t)a->n; }
static int32_t *line_of(const asp *a, int k) { return a->line + (size_t)(k % AHEAD) * (size_t)a->n; }
static int owner(const asp *a, int k) { return k / a->block; }

/* Begins the broadcast of a row. Its owner has taken the rows before k into it, and those from k on are its own. */
static int begin(asp *a, int row, int k)
{
    if (owner(a, row) == a->rank) {
        for (; k < row; k++) improve(row_of(a, row), line_of(a, k), k, a->n);
        memcpy(line_of(a, row), row_of(a, row), (size_t)a->n * sizeof(int32_t));
    }
    return gc_ibcast(a->world, line_of(a, row), (size_t)a->n * sizeof(int32_t), owner(a, row), &a->request[row % AHEAD]);
}

static int solve(asp *a)
{
    int begun = 0, err = GC_OK;
    const int first = a->rank * a->block, end = first + a->block < a->n ? first + a->block : a->n;
    for (int k = 0; k < a->n && !err; k++) {
        /* Row `begun` can be final if it is next, or if all rows from k to it have the same owner: all ranks decide alike. */
        for (; !err && begun < a->n && begun < k + AHEAD && (begun == k || owner(a, begun) == owner(a, k)); begun++)
            err = begin(a, begun, k);
        if (!err) err = gc_wait(&a->request[k % AHEAD], NULL);
        for (int i = first; i < end && !err; i++)
            if (i < k || i >= begun) improve(row_of(a, i), line_of(a, k), k, a->n);     /* the others have it already */
    }
    const int left = gc_waitall(AHEAD, a->request, NULL);       /* after an error there are some */
    return err ? err : left;
}

/* At rank 0: are these the distances that one process finds? */
static int check(const asp *a, const int32_t *all)
{
    const size_t n = (size_t)a->n;
    int32_t *own = malloc(n * n * sizeof *own);
    if (!own) return GC_ERR_NOMEM;
    lay_out(own, 0, a->n, a->n);
    for (int k = 0; k < a->n; k++)
        for (size_t i = 0; i < n; i++) improve(own + i * n, own + (size_t)k * n, k, a->n);
    const int same = memcmp(own, all, n * n * sizeof *own) == 0;
    free(own);
    if (!same) fprintf(stderr, "asp: the distances are not those of a sequential run\n");
    return same ? GC_OK : GC_ERR_PROTOCOL;
}

static int run(asp *a, int32_t *all)
{
    gc_stats before = { .size = sizeof before }, after = { .size = sizeof after };
    lay_out(a->rows, a->rank * a->block, a->block, a->n);
    int err = gc_barrier(a->world);
    if (err) return failed(a, "barrier", err);

    gc_get_stats(a->world, &before);
    double took = seconds(), slowest;
    if ((err = solve(a)) != GC_OK) return failed(a, "broadcast", err);
    took = seconds() - took;
    gc_get_stats(a->world, &after);

    uint64_t wide[2] = { after.wan_messages - before.wan_messages, after.wan_bytes - before.wan_bytes }, sum[2];
    err = gc_reduce(a->world, &took, &slowest, 1, GC_DOUBLE, GC_MAX, 0);
    if (!err) err = gc_reduce(a->world, wide, sum, 2, GC_UINT64, GC_SUM, 0);
    if (!err) err = gc_gather(a->world, a->rows, (size_t)a->block * (size_t)a->n * sizeof(int32_t), all, 0);
    if (err) return failed(a, "collecting the result", err);
    if (a->rank != 0) return GC_OK;
    if ((err = check(a, all)) == GC_OK)
        printf("asp: %d places, %d ranks: every distance right; %.3f s, wide area: %llu messages, %llu bytes\n", a->n, a->size,
               slowest, (unsigned long long)sum[0], (unsigned long long)sum[1]);
    return err;
}

int main(int argc, char **argv)
{
    char why[256] = "", *end = NULL;
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    asp a = { 0 };
    const long n = argc > 1 ? strtol(argv[1], &end, 10) : 300;
    if (argc > 2 || (end && (*end || end == argv[1])) || n < 1 || n > N_MAX) {
        fprintf(stderr, "usage: asp [N]\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&a.world, &options);
    if (err) {
        fprintf(stderr, "asp: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    a.rank = gc_rank(a.world);
    a.size = gc_size(a.world);
    a.n = (int)n;
    a.block = (a.n + a.size - 1) / a.size;
    const size_t row = (size_t)n * sizeof(int32_t), stripe = (size_t)a.block * row;
    int32_t *all = a.rank == 0 ? malloc((size_t)a.size * stripe) : NULL;
    a.rows = malloc(stripe);
    a.line = malloc(AHEAD * row);
    if (a.rows && a.line && (all || a.rank)) {
        err = run(&a, all);
    } else {
        fprintf(stderr, "asp: rank %d: out of memory\n", a.rank);
        err = GC_ERR_NOMEM;
    }
    if (err) gc_abort(a.world, 1);              /* the others wait for this rank */
    const int left = gc_finalize(a.world);
    if (left && !err) fprintf(stderr, "asp: rank %d: finalize: %s\n", a.rank, gc_strerror(left));
    free(a.rows);
    free(a.line);
    free(all);
    return err || left;
}
