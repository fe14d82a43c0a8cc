/* qr.c: the QR factorisation of an N x N matrix with column pivoting, A P = Q R, by Householder's reflections.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 4 qr [N]
 *
 * Column j belongs to rank j % size. In step k all ranks agree on the column whose rest, from row k down, is longest (an
 * allreduce of an operation of our own: maximum and place); its owner makes the reflection that turns that rest into one
 * number and broadcasts it; every rank reflects its other columns. Rank 0 checks that Q R is A P and that R is what one
 * process finds. The program is that of T. Kielmann et al., "MagPIe: MPI's collective communication operations for
 * clustered wide area systems" (1999), chapter 4.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { N_MAX = 8192 };
static const double ROUNDING = 1e-15;       /* relative, of each step */
typedef struct pivot { double length; int64_t column; } pivot;     /* the length squared */

typedef struct qr {
    gc_comm *world;             /* NULL: one process alone */
    gc_op longest;
    int rank, size, n, own;     /* own columns, padded so that all ranks have as many */
    double *column;             /* [own][n]; in the end R, above what is left of reflections */
    double *length;             /* [own]: of the rest, squared; -1: the column is done, or padding */
    double *reflection;         /* [n][n + 1]: of step k the vector from row k down, then its factor */
    double *all;                /* at rank 0 [size][own][n]: the columns of all ranks */
    int *order;                 /* [n]: P */
} qr;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double element(int i, int j)         /* of A, -1 .. 1 by chance, the same wherever it is asked for */
{
    uint32_t x = (uint32_t)i * 2654435761u + (uint32_t)j * 2246822519u + 1;
    x = (x ^ x >> 15) * 2246822519u;
    return (double)(x ^ x >> 13) / 2147483648.0 - 1;
}

static double dot(const double *a, const double *b, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++) sum += a[i] * b[i];
    return sum;
}

static double *column_of(const qr *q, int own) { return q->column + (size_t)own * (size_t)q->n; }
static double *step_of(const qr *q, int k) { return q->reflection + (size_t)k * (size_t)(q->n + 1); }

static void longest(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const pivot *a = in;
    pivot *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        if (a[i].length > b[i].length || (a[i].length == b[i].length && a[i].column < b[i].column)) b[i] = a[i];
}

/* v and f = v[n] such that x - f v (v x) = (alpha, 0, 0, ...); x becomes just that. */
static void reflect_away(double *x, double squared, double *v, int n)
{
    const double alpha = x[0] > 0 ? -sqrt(squared) : sqrt(squared);
    memcpy(v, x, (size_t)n * sizeof *v);
    v[0] -= alpha;
    v[n] = squared > 0 ? 1 / (squared - alpha * x[0]) : 0;
    memset(x, 0, (size_t)n * sizeof *x);
    x[0] = alpha;
}

static void reflect(double *x, const double *v, int n)
{
    const double f = v[n] * dot(v, x, n);
    for (int i = 0; i < n; i++) x[i] -= f * v[i];
}

static int factorise(qr *q)
{
    for (int k = 0, err; k < q->n; k++) {
        const int rest = q->n - k;
        double *v = step_of(q, k);
        pivot best = { -1, 0 };
        for (int c = 0; c < q->own; c++)
            longest(&(pivot){ q->length[c], (int64_t)c * q->size + q->rank }, &best, 1, GC_OPAQUE, NULL);
        if (q->world && (err = gc_allreduce(q->world, &best, &best, 1, GC_OPAQUE, q->longest)) != GC_OK) return err;
        q->order[k] = (int)best.column;
        const int owner = q->order[k] % q->size, place = q->order[k] / q->size;
        if (owner == q->rank) {
            reflect_away(column_of(q, place) + k, best.length, v, rest);
            q->length[place] = -1;
        }
        if (q->world && (err = gc_bcast(q->world, v, (size_t)(rest + 1) * sizeof *v, owner)) != GC_OK) return err;
        for (int c = 0; c < q->own; c++) {
            double *x = column_of(q, c) + k;
            if (q->length[c] < 0) continue;
            reflect(x, v, rest);
            q->length[c] = dot(x + 1, x + 1, rest - 1);
        }
    }
    return GC_OK;
}

/* At rank 0, beside a run alone. */
static int check(const qr *q, const qr *alone)
{
    double wrong = 0, apart = 0, whole = 0, before = INFINITY;
    for (int k = 0; k < q->n; k++) {
        const int j = q->order[k];
        double *x = q->all + (size_t)(j % q->size * q->own + j / q->size) * (size_t)q->n, *y = column_of(alone, alone->order[k]);
        for (int i = 0; i < q->n; i++) apart += (x[i] - y[i]) * (x[i] - y[i]);
        if (fabs(x[k]) > before * (1 + 1e-12)) apart = INFINITY;                    /* pivots do not grow */
        before = fabs(x[k]);
        for (int i = k; i >= 0; i--) reflect(x + i, step_of(q, i), q->n - i);      /* Q times column k of R */
        for (int i = 0; i < q->n; i++)
            wrong += (x[i] - element(i, j)) * (x[i] - element(i, j)), whole += element(i, j) * element(i, j);
    }
    wrong = sqrt(wrong / whole), apart = sqrt(apart / whole);
    if (wrong <= ROUNDING * q->n && apart <= ROUNDING * q->n) return GC_OK;
    fprintf(stderr, "qr: off by %g from A P and by %g from a sequential run\n", wrong, apart);
    return GC_ERR_PROTOCOL;
}

static int run(qr *q, qr *alone)
{
    gc_stats before = { .size = sizeof before }, after = before;
    int err = gc_op_create(q->world, longest, sizeof(pivot), GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE, NULL, &q->longest);
    if (!err) err = gc_barrier(q->world);
    gc_get_stats(q->world, &before);
    double took = seconds(), slowest;
    if (err || (err = factorise(q)) != GC_OK) return err;
    took = seconds() - took;
    gc_get_stats(q->world, &after);
    uint64_t wide[2] = { after.wan_messages - before.wan_messages, after.wan_bytes - before.wan_bytes }, sum[2];
    err = gc_reduce(q->world, &took, &slowest, 1, GC_DOUBLE, GC_MAX, 0);
    if (!err) err = gc_reduce(q->world, wide, sum, 2, GC_UINT64, GC_SUM, 0);
    if (!err) err = gc_gather(q->world, q->column, (size_t)q->own * (size_t)q->n * sizeof(double), q->all, 0);
    if (err || q->rank != 0) return err;
    if ((err = factorise(alone)) == GC_OK && (err = check(q, alone)) == GC_OK)
        printf("qr: %d x %d, %d ranks: A P = Q R, and R as of one process; %.3f s, wide area: %llu messages, %llu bytes\n", q->n,
               q->n, q->size, slowest, (unsigned long long)sum[0], (unsigned long long)sum[1]);
    return err;
}

/* All that is of doubles in one block, and in it the rank's columns of A. */
static int make_room(qr *q)
{
    const size_t n = (size_t)q->n, size = (size_t)q->size, own = (n + size - 1) / size, gathered = q->rank ? 0 : size * own * n;
    q->own = (int)own;
    q->column = malloc((own * n + own + n * (n + 1) + gathered) * sizeof(double));
    q->order = malloc(n * sizeof *q->order);
    if (!q->column || !q->order) return GC_ERR_NOMEM;
    q->length = q->column + own * n;
    q->reflection = q->length + own;
    q->all = q->reflection + n * (n + 1);
    for (int c = 0, j = q->rank; c < q->own; c++, j += q->size) {
        for (int i = 0; i < q->n; i++) column_of(q, c)[i] = j < q->n ? element(i, j) : 0;
        q->length[c] = j < q->n ? dot(column_of(q, c), column_of(q, c), q->n) : -1;
    }
    return GC_OK;
}

int main(int argc, char **argv)
{
    char why[256] = "", *end = NULL;
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    const long n = argc > 1 ? strtol(argv[1], &end, 10) : 100;
    qr q = { .n = (int)n }, alone = { .n = (int)n, .size = 1 };
    if (argc > 2 || (end && (*end || end == argv[1])) || n < 1 || n > N_MAX) {
        fprintf(stderr, "usage: qr [N]\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&q.world, &options);
    if (err) {
        fprintf(stderr, "qr: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    q.rank = gc_rank(q.world), q.size = gc_size(q.world);
    err = make_room(&q);
    if (!err && q.rank == 0) err = make_room(&alone);
    if (!err) err = run(&q, &alone);
    if (err) {
        gc_last_error(q.world, NULL, why, sizeof why);
        fprintf(stderr, "qr: rank %d: %s: %s\n", q.rank, gc_strerror(err), why);
        gc_abort(q.world, 1);                   /* the others wait for this rank */
    }
    free(q.column), free(q.order);
    free(alone.column), free(alone.order);
    return gc_finalize(q.world) || err;
}
