/* gcbench_run.c: what gcbench measures, and how.
 * SPDX-License-Identifier: MIT
 *
 * Every repetition is isolated: the ranks meet first (a barrier, or an instant that all wait for), and rank 0 has its time
 * before the next one begins. After BENCH_WARM of them, or fewer long ones, which do not count, rank 0 goes on until half the
 * 95 % confidence interval of the median is narrow enough, or there are as many as there may be. The interval is that of order
 * statistics: nothing is assumed of how times are distributed.
 */
#include "gcbench.h"
#include "tool.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>

enum { BENCH_WARM = 3,
       BENCH_SOUND = 6,         /* fewer samples have no interval of 95 % */
       BENCH_PINGS = 15,        /* for the offset of a clock: the fastest counts */
       BENCH_LATE = 4,          /* times in a row that a common start was missed, before it is set further ahead */
       BENCH_TAG = 1 };
#define BENCH_START 1e-3        /* s from rank 0's word to the common start, at first */
#define BENCH_START_MOST 10.0

typedef struct bench {
    const bench_job *job;
    gc_comm *world, *own;       /* own: for what this program itself has to say */
    gc_comm *by_name, *on;      /* by_name: where algorithms are forced; on: it or the world, whichever is timed */
    int      rank, size;
    double   offset;            /* s: this clock less rank 0's */
    double   ahead;             /* rank 0: from the word to the start */
    unsigned char *send, *recv;
    int      op;
    size_t   bytes;
    size_t  *block, *at;        /* [size] BENCH_V: of each other rank, or of each rank */
    double   sample[BENCH_SAMPLES];
} bench;

static double bench_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* There and back: timed at the root alone, and halved. */
static int bench_ping(bench *b)
{
    int root = b->job->o->root, peer = b->job->o->peer < 0 ? b->size - 1 : b->job->o->peer, err = GC_OK;
    if (b->rank == root)
        err = gc_send(b->world, b->send, b->bytes, peer, BENCH_TAG);
    if (b->rank == peer && err == GC_OK)
        err = gc_recv(b->world, b->recv, b->bytes, root, BENCH_TAG, NULL);
    if (b->rank == peer && err == GC_OK)
        err = gc_send(b->world, b->send, b->bytes, root, BENCH_TAG);
    if (b->rank == root && err == GC_OK)
        err = gc_recv(b->world, b->recv, b->bytes, peer, BENCH_TAG, NULL);
    return err;
}

/* Sizes of mean m between 2 m / (spread + 1) and spread times that, evenly: the shortest, the longest, the next one to the
 * shortest ... Whole numbers, so that all ranks get the same. */
static size_t bench_block(size_t m, int spread, int i, int n)
{
    int place = i % 2 ? n - 1 - i / 2 : i / 2, mirror = n - 1 - place;
    size_t low = 2 * m / ((size_t)spread + 1);
    size_t less = n > 1 ? low + (m - low) * 2 * (size_t)(place < mirror ? place : mirror) / (size_t)(n - 1) : m;
    return place <= mirror ? less : 2 * m - less;
}

/* Of alltoallv those that a rank sends, and gets: they are the same. Else those of all ranks. */
static void bench_blocks(const bench *b, int rank, size_t block[], size_t at[])
{
    size_t end = 0;
    for (int i = 0; i < b->size; i++) {
        int which = bench_coll(b->op) == GCI_ALLTOALL ? (rank + i) % b->size : i;
        block[i] = bench_block(b->bytes, b->job->o->spread, which, b->size);
        at[i] = end;
        end += block[i];
    }
}

static int bench_call_v(bench *b)
{
    gc_comm *w = b->on;
    size_t *block = b->block, *at = b->at, own = block[b->rank];
    int root = b->job->o->root;
    switch (bench_coll(b->op)) {
    case GCI_SCATTER:        return gc_scatterv(w, b->send, block, at, b->recv, own, root);
    case GCI_GATHER:         return gc_gatherv(w, b->send, own, b->recv, block, at, root);
    case GCI_ALLGATHER:      return gc_allgatherv(w, b->send, own, b->recv, block, at);
    case GCI_ALLTOALL:       return gc_alltoallv(w, b->send, block, at, b->recv, block, at);
    default:                 return gc_reduce_scatter(w, b->send, b->recv, block, GC_UINT8, GC_SUM);
    }
}

static int bench_call(bench *b)
{
    gc_comm *w = b->on;
    size_t m = b->bytes;
    int root = b->job->o->root;
    if (b->op >= BENCH_V)
        return bench_call_v(b);
    switch (b->op) {
    case GCI_BARRIER:        return gc_barrier(w);
    case GCI_BCAST:          return gc_bcast(w, b->recv, m, root);
    case GCI_SCATTER:        return gc_scatter(w, b->send, m, b->recv, root);
    case GCI_GATHER:         return gc_gather(w, b->send, m, b->recv, root);
    case GCI_ALLGATHER:      return gc_allgather(w, b->send, m, b->recv);
    case GCI_ALLTOALL:       return gc_alltoall(w, b->send, m, b->recv);
    case GCI_REDUCE:         return gc_reduce(w, b->send, b->recv, m, GC_UINT8, GC_SUM, root);
    case GCI_ALLREDUCE:      return gc_allreduce(w, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case GCI_REDUCE_SCATTER: return gc_reduce_scatter_block(w, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case GCI_SCAN:           return gc_scan(w, b->send, b->recv, m, GC_UINT8, GC_SUM);
    case GCI_EXSCAN:         return gc_exscan(w, b->send, b->recv, m, GC_UINT8, GC_SUM);
    default:                 return bench_ping(b);
    }
}

static int bench_buffers(bench *b)
{
    const bench_options *o = b->job->o;
    size_t most = 1;
    for (int i = 0; i < o->sizes; i++)
        most = gci_max(most, o->size[i]);
    bool fits = most <= SIZE_MAX / 4 / (size_t)b->size;
    b->send = fits ? calloc((size_t)b->size, most) : NULL;
    b->recv = fits ? calloc((size_t)b->size, most) : NULL;
    b->block = calloc((size_t)b->size, 2 * sizeof *b->block);
    b->at = b->block ? b->block + b->size : NULL;
    int32_t mine = b->send && b->recv && b->block ? GC_OK : GC_ERR_NOMEM, all;
    int err = gc_allreduce(b->own, &mine, &all, 1, GC_INT32, GC_MIN);
    return err < 0 ? err : all;
}

/* ---- the ways of timing ------------------------------------------------------------------------------------------ */

/* This clock less rank 0's, by the fastest of a few messages there and back. */
static int bench_offset(bench *b)
{
    int err = GC_OK;
    for (int r = 1; r < b->size && err == GC_OK; r++) {
        double fastest = HUGE_VAL, theirs = 0, at[2];
        for (int i = 0; i < BENCH_PINGS && err == GC_OK && (b->rank == 0 || b->rank == r); i++) {
            at[0] = bench_now();
            if (b->rank == 0) {
                if ((err = gc_send(b->world, at, sizeof at[0], r, BENCH_TAG)) == GC_OK)
                    err = gc_recv(b->world, &theirs, sizeof theirs, r, BENCH_TAG, NULL);
                at[1] = bench_now();
                if (at[1] - at[0] < fastest) {
                    fastest = at[1] - at[0];
                    b->offset = theirs - (at[0] + at[1]) / 2;
                }
            } else if ((err = gc_recv(b->world, at, sizeof at[0], 0, BENCH_TAG, NULL)) == GC_OK) {
                theirs = bench_now();
                err = gc_send(b->world, &theirs, sizeof theirs, 0, BENCH_TAG);
            }
        }
        if (err == GC_OK && b->rank == 0)
            err = gc_send(b->world, &b->offset, sizeof b->offset, r, BENCH_TAG);
        if (err == GC_OK && b->rank == r)
            err = gc_recv(b->world, &b->offset, sizeof b->offset, 0, BENCH_TAG, NULL);
    }
    b->offset = b->rank == 0 ? 0 : b->offset;
    return err;
}

/* An instant on rank 0's clock that all wait for. *late: this rank came after it. */
static int bench_meet(bench *b, double *start, bool *late)
{
    *start = bench_now() + b->ahead;
    int err = gc_bcast(b->own, start, sizeof *start, 0);
    if (err < 0)
        return err;
    *late = bench_now() - b->offset >= *start;
    double wake = *start + b->offset;
    const struct timespec at = { .tv_sec = (time_t)wake, .tv_nsec = (long)((wake - (double)(time_t)wake) * 1e9) };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &at, NULL) == EINTR) { }     /* who spins keeps others from a core */
    return GC_OK;
}

/* One repetition; at rank 0 *seconds, < 0: some rank was late. */
static int bench_once(bench *b, double *seconds)
{
    enum bench_timing timing = b->op == BENCH_P2P ? BENCH_ROOT : b->job->o->timing;
    double start = 0, mine[2] = { 0, 0 };       /* how long; was anybody late? */
    bool late = false;
    int err = timing == BENCH_GLOBAL ? bench_meet(b, &start, &late) : gc_barrier(b->own);
    double begun = timing == BENCH_GLOBAL ? start + b->offset : bench_now();
    if (err == GC_OK)
        err = bench_call(b);
    if (timing != BENCH_ROOT || b->rank == b->job->o->root)
        mine[0] = bench_now() - begun;
    mine[1] = late;
    double all[2] = { 0, 0 };
    if (err == GC_OK)
        err = gc_reduce(b->own, mine, all, 2, GC_DOUBLE, GC_MAX, 0);
    *seconds = all[1] > 0 ? -1 : b->op == BENCH_P2P ? all[0] / 2 : all[0];
    return err;
}

/* ---- repetition -------------------------------------------------------------------------------------------------- */

static int bench_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median and its interval: between the order statistics n/2 -+ 0.98 sqrt(n) it lies with 95 %. */
static void bench_summary(bench *b, bench_row *row)
{
    int n = row->n, reach = (int)ceil(0.98 * sqrt(n)), middle = n / 2;
    qsort(b->sample, (size_t)n, sizeof b->sample[0], bench_order);
    row->median = n % 2 ? b->sample[middle] : (b->sample[middle - 1] + b->sample[middle]) / 2;
    row->low = b->sample[gci_max32(middle - reach, 0)];
    row->high = b->sample[middle + reach < n ? middle + reach : n - 1];
}

/* At rank 0: is it enough? */
static bool bench_enough(bench *b, bench_row *row, double begun)
{
    const bench_options *o = b->job->o;
    if (row->n >= o->most || row->n == BENCH_SAMPLES || bench_now() - begun > o->seconds)
        return row->n > 0;
    if (row->n < gci_max32(o->least, BENCH_SOUND))
        return false;
    bench_summary(b, row);
    return (row->high - row->low) / 2 <= o->precision * row->median;
}

static int bench_repeat(bench *b, bench_row *row)
{
    double begun = bench_now(), seconds;
    int32_t go = 1;
    int err = GC_OK, missed = 0;
    for (int i = 0; go && err == GC_OK; i++) {
        bool counts = i >= BENCH_WARM || (i > 0 && bench_now() - begun > b->job->o->seconds / BENCH_WARM);
        err = bench_once(b, &seconds);
        missed = seconds < 0 ? missed + 1 : 0;
        if (missed == BENCH_LATE) {
            b->ahead = fmin(2 * b->ahead, BENCH_START_MOST);
            missed = 0;
        }
        if (counts && seconds >= 0 && b->rank == 0 && row->n < BENCH_SAMPLES)
            b->sample[row->n++] = seconds;
        if (err == GC_OK) {
            go = b->rank == 0 ? !counts || !bench_enough(b, row, begun) : 0;
            err = gc_bcast(b->own, &go, sizeof go, 0);
        }
    }
    if (err == GC_OK && b->rank == 0)
        bench_summary(b, row);
    return err;
}

/* ---- rows -------------------------------------------------------------------------------------------------------- */

/* The call that is timed, as that rank makes it. BENCH_V: the lists are its, and last as long as they do. */
static gci_call bench_call_of(const bench *b, int rank, const size_t block[], const size_t at[])
{
    enum gci_coll coll = bench_coll(b->op);
    gci_call call = gci_decide_example(coll, b->size, b->job->o->root, b->bytes, gci_coll_clusters(b->world));
    call.rank = rank;
    call.model = gci_coll_model(b->world);
    if (b->op < BENCH_V)
        return call;
    const gci_blocks listed = { .bytes = block, .at = at }, none = { .bytes = NULL };
    bool all = coll != GCI_SCATTER && coll != GCI_GATHER, has = all || rank == call.root;
    call.send = has && coll != GCI_GATHER && coll != GCI_ALLGATHER ? listed : none;
    call.recv = has && coll != GCI_SCATTER && coll != GCI_REDUCE_SCATTER ? listed : none;
    call.own = block[rank];
    call.bytes = 0;
    call.even = false;
    return call;
}

/* Does it first ask for sizes that not all know? Then its schedule is not known before. */
static bool bench_asks(const gci_call *call, const char *name) { return strcmp(name, "wide") == 0 && gci_wide_asks(call); }

/* By an algorithm, or by what would be taken: so from now on. false: it cannot do this. */
static bool bench_force(bench *b, const char *name)
{
    gci_algo_choice forced[GCI_COLLS], *how = &forced[b->op == BENCH_P2P ? 0 : bench_coll(b->op)];
    gci_env env = { .alloc = NULL };
    gci_sched sched = { .steps = 0 };
    memset(forced, 0, sizeof forced);
    b->on = name[0] ? b->by_name : b->world;
    if (!name[0])
        return true;
    if (b->op == BENCH_P2P || !gci_choose_read_name(bench_coll(b->op), name, strlen(name), how))
        return false;
    gci_coll_force(b->by_name, forced);
    gci_call call = bench_call_of(b, b->rank, b->block, b->at);
    call.segment = how->segment;
    if (bench_asks(&call, how->name))
        return true;
    int err = gci_sched_build(&env, gci_algo_find(call.coll, how->name), how->name, &call, &sched);
    gci_sched_free(&env, &sched);
    return err == GC_OK;
}

/* By the schedules of all ranks, each with its own blocks. lists: [2 * size], sched: [size], empty. */
static int bench_predict_by(const bench *b, const gci_algo_choice *how, size_t lists[], gci_sched sched[], double *seconds)
{
    gci_env env = { .alloc = NULL };
    int err = GC_OK;
    for (int r = 0; r < b->size && err == GC_OK; r++) {
        bench_blocks(b, r, lists, lists + b->size);
        gci_call call = bench_call_of(b, r, lists, lists + b->size);
        call.segment = how->segment;
        err = bench_asks(&call, how->name) ? GC_ERR_ARG
                                           : gci_sched_build(&env, gci_algo_find(call.coll, how->name), how->name, &call, &sched[r]);
    }
    if (err == GC_OK)
        err = gci_predict(&env, b->job->model, sched, NULL, seconds);
    for (int r = 0; r < b->size; r++)
        gci_sched_free(&env, &sched[r]);
    return err;
}

/* Blocks of different sizes. */
static int bench_predict_v(const bench *b, const char *name, double *seconds)
{
    gci_call call = bench_call_of(b, b->rank, b->block, b->at);
    gci_algo_choice how = { .next = 0 };
    size_t *lists = calloc((size_t)b->size, 2 * sizeof *lists);
    gci_sched *sched = calloc((size_t)b->size, sizeof *sched);
    int err = lists && sched && call.clusters ? GC_OK : GC_ERR_NOMEM;
    if (err == GC_OK && name[0])
        err = gci_choose_read_name(call.coll, name, strlen(name), &how) ? GC_OK : GC_ERR_ARG;
    else if (err == GC_OK)
        how = gci_coll_would_take(b->world, &call);
    if (err == GC_OK)
        do
            err = bench_predict_by(b, &how, lists, sched, seconds);
        while (err == GC_ERR_UNSUPPORTED && !name[0] && gci_choose_next(&call, &how));
    free(lists);
    free(sched);
    return err;
}

static void bench_predict(const bench *b, bench_row *row)
{
    const gc_model *model = b->job->model;
    int root = b->job->o->root, peer = b->job->o->peer < 0 ? b->size - 1 : b->job->o->peer, err = GC_ERR_ARG;
    double back = 0;
    row->predicted = -1;
    if (model && b->op >= BENCH_V)
        err = bench_predict_v(b, row->algo, &row->predicted);
    else if (model && b->op != BENCH_P2P)
        err = gc_predict(b->world, model, bench_op_name(b->op), row->algo[0] ? row->algo : NULL, b->bytes, root, &row->predicted);
    else if (model && (err = gc_model_p2p(model, root, peer, b->bytes, &row->predicted)) == GC_OK &&
             (err = gc_model_p2p(model, peer, root, b->bytes, &back)) == GC_OK)
        row->predicted = (row->predicted + back) / 2;
    if (err < 0)
        row->predicted = -1;
}

static int bench_row_of(bench *b, const char *algo)
{
    const bench_job *job = b->job;
    bench_row row = { .op = b->op, .bytes = b->bytes, .predicted = -1 };
    if (!bench_force(b, algo))
        return GC_OK;
    snprintf(row.algo, sizeof row.algo, "%s", algo);
    if (b->rank == 0)
        job->begin(job->user, b->op, algo, b->bytes);
    int err = bench_repeat(b, &row);
    if (err < 0 || b->rank != 0)
        return err;
    bench_predict(b, &row);
    job->done(job->user, &row);
    return GC_OK;
}

static int bench_pool(bench *b)
{
    int err = GC_OK;
    const gci_algo *algo;
    for (int i = 0; (algo = gci_algo_at(i)) != NULL && err == GC_OK; i++) {
        bool can = strcmp(algo->name, "given") != 0 && (!algo->by_model || gci_coll_model(b->world));
        if (can && algo->colls >> bench_coll(b->op) & 1)
            err = bench_row_of(b, algo->name);
    }
    return err;
}

/* All algorithms that are asked for, of one operation and size. */
static int bench_algorithms(bench *b)
{
    const char *names = b->op == BENCH_P2P ? "-" : b->job->o->algorithms;
    int err = GC_OK;
    while (*names && err == GC_OK) {
        char name[GCI_ALGO_NAME + 16];
        size_t bytes = strcspn(names, ",");
        snprintf(name, sizeof name, "%.*s", (int)gci_min(bytes, sizeof name - 1), names);
        err = strcmp(name, "all") == 0 ? bench_pool(b) : bench_row_of(b, strcmp(name, "-") == 0 ? "" : name);
        names += bytes + (names[bytes] == ',');
    }
    return err;
}

/* It is the communicator of the call that knows why. */
static void bench_failed(const bench *b, int err)
{
    gc_comm *comm[] = { b->own, b->by_name, b->world };
    int i = 0;
    while (i < 2 && (!comm[i] || gc_last_error(comm[i], NULL, NULL, 0) != err))
        i++;
    tool_failed("gcbench", comm[i], "measuring", err);
}

int bench_run(const bench_job *job)
{
    const bench_options *o = job->o;
    bench *b = calloc(1, sizeof *b);
    if (!b) {
        gc_abort(job->world, GC_ERR_NOMEM);
        return GC_ERR_NOMEM;
    }
    *b = (bench){ .job = job, .world = job->world, .rank = gc_rank(job->world), .size = gc_size(job->world), .ahead = BENCH_START };
    int err = gc_comm_dup(job->world, &b->own);
    if (err == GC_OK)
        err = gc_comm_dup(job->world, &b->by_name);
    if (err == GC_OK && gci_coll_model(job->world))
        err = gc_model_use(b->by_name, job->model);
    if (err == GC_OK)
        err = bench_buffers(b);
    if (err == GC_OK && o->timing == BENCH_GLOBAL)
        err = bench_offset(b);
    for (int op = 0; op < BENCH_OPS && err == GC_OK; op++)
        for (int i = 0; i < (op == GCI_BARRIER ? 1 : o->sizes) && o->op[op] && err == GC_OK; i++) {
            b->op = op;
            b->bytes = op == GCI_BARRIER ? 0 : o->size[i];
            if (op >= BENCH_V)
                bench_blocks(b, b->rank, b->block, b->at);
            err = op == BENCH_P2P && b->size < 2 ? GC_OK : bench_algorithms(b);
        }
    if (err < 0)
        bench_failed(b, err);
    if (b->by_name)
        gc_comm_free(b->by_name);
    if (b->own)
        gc_comm_free(b->own);
    free(b->block);
    free(b->send);
    free(b->recv);
    free(b);
    return err;
}
