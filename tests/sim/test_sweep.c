/* test_sweep.c: each allocation and each system call of small jobs fails, one after another, and all that follow with it.
 * SPDX-License-Identifier: MIT
 *
 * Every scene is a job that goes through one part of the library. It is run once to see which calls it makes from where
 * (sweep.h), then again and again with one of them failing. Whatever fails, each rank comes to its end in time and holds
 * nothing, no byte is wrong, each error is one that gridcomm.h lists for the call that returned it; and what is harmless (half
 * a write, a call that is interrupted) nobody may notice.
 *
 * By default each path to a call is taken once (of long scenes some, with GCT_ROUNDS a quarter), in a way that GCT_SEED draws.
 * SWEEP=all takes every path at its first, second and a later call in every way, on and on if that can be; SWEEP=look only counts.
 * SWEEP_ONLY="pair" runs the scenes with that word in their names, SWEEP_CALL=send has that call alone fail,
 * SWEEP_CASE="rank call nth way onwards", as a failure prints it, is that one alone; SWEEP_TRACE=1 tells where the call came from.
 * SWEEP_SITES=file gets the addresses of all sites reached, for tests/sim/sites.sh.
 * time limit: 900 s
 */
#include "guests.h"
#include "sweep.h"

#include <errno.h>
#include <execinfo.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 5, REQUESTS = 48, SMALL = 2000, LONG = 100000, BUFFER = 512 * 1024, COUNT = 1250, MANY_TERMS = 60000, TEXT = 65536,
       START_S = 20, PEER_S = 5,
       NOT_SO = -100 /* a call that was to fail has not */ };

typedef struct work {
    gc_comm  *world, *comm, *second;    /* comm: where it takes place now */
    int       rank, size;
    uint8_t  *out, *in;
    gc_request *request[REQUESTS];
    gc_message *message;
    gc_model *model[2];
    gc_tree  *tree;
    const char *call;                   /* that failed */
    int       wrong;
} work;

typedef struct script {
    const char *name;
    int (*run)(work *);
    gct_spec    spec;
    void (*options)(gc_options *, int rank);
    void (*arrange)(sim *, sim_proc **procs, int ranks);
    bool        dies;                   /* somebody does, fault or not */
    int         share;                  /* it takes long: one path in so many is taken; 0: each */
} script;

/* A job of a scene: what its ranks got. */
typedef struct job {
    const script *scene;
    const sweep_fault *fault;
    int joined, refused, erred, bad;
    int code[RANKS_MAX];
    const char *call[RANKS_MAX];
} job;

/* Goes on, or returns the code of the call that failed. */
#define TRY(expression) do { int code_ = (expression); if (code_ < 0) { w->call = #expression; return code_; } } while (0)
#define WANT(code, expression) \
    do { int got_ = (expression); if (got_ != (code)) { w->call = #expression; return got_ ? got_ : NOT_SO; } } while (0)
#define LIBC(expression) do { sweep_libc(true); int code_ = (expression); sweep_libc(false); if (code_ < 0) { w->call = #expression; \
                              return code_; } } while (0)
#define PART(expression) do { int code_ = (expression); if (code_) return code_; } while (0)     /* w->call is said already */
#define DATA(bytes, from, tag) (w->wrong += gct_check(w->in, bytes, from, tag))
#define HOLDS(condition) (w->wrong += (condition) ? 0 : gct_fail(__FILE__, __LINE__, #condition, "wrong"))

/* ---- messages ------------------------------------------------------------------------------------------------------------ */

static int blocking(work *w, int to, int from)
{
    gc_status status;
    int found = 0;
    for (int i = 0; i < 2; i++) {       /* eager, rendezvous */
        size_t bytes = i ? LONG : SMALL;
        gct_fill(w->out, bytes, w->rank, i);
        TRY(gc_sendrecv(w->comm, w->out, bytes, to, i, w->in, bytes, from, i, NULL));
        DATA(bytes, from, i);
    }
    gct_fill(w->out, SMALL, w->rank, 2);
    TRY(gc_isend(w->comm, w->out, SMALL, to, 2, &w->request[0]));
    TRY(gc_probe(w->comm, GC_ANY_SOURCE, 2, &status));
    HOLDS(status.bytes == SMALL && status.source == from);
    TRY(gc_iprobe(w->comm, from, 2, &found, &status));
    HOLDS(found);
    TRY(gc_recv(w->comm, w->in, SMALL, from, 2, NULL));
    DATA(SMALL, from, 2);
    TRY(gc_wait(&w->request[0], NULL));
    gct_fill(w->out, SMALL, w->rank, 3);
    if (w->rank % 2 == 0)
        TRY(gc_ssend(w->comm, w->out, SMALL, to, 3));
    if (from % 2 == 0) {
        TRY(gc_recv(w->comm, w->in, SMALL, from, 3, NULL));
        DATA(SMALL, from, 3);
    }
    gct_fill(w->out, SMALL, w->rank, 4);
    TRY(gc_isend(w->comm, w->out, SMALL, w->rank, 4, &w->request[0]));    /* to itself */
    TRY(gc_recv(w->comm, w->in, SMALL, GC_ANY_SOURCE, 4, NULL));
    DATA(SMALL, w->rank, 4);
    TRY(gc_wait(&w->request[0], NULL));
    TRY(gc_isend(w->comm, w->out, SMALL, to, 5, &w->request[0]));
    WANT(GC_ERR_TRUNCATE, gc_recv(w->comm, w->in, 10, from, 5, NULL));
    return gc_wait(&w->request[0], NULL);
}

/* Many unexpected ones, the last received first; each way of completing. Not waitall for sends that wait for their receives: it
 * ends when all have, and the receiver may be waiting for the one that has failed. */
static int begun(work *w, int to, int from)
{
    enum { MANY = 12, EACH = 20000, FIRST = 100 };
    gc_status statuses[MANY];
    int index = 0, done;
    for (int i = 0; i < MANY; i++) {
        size_t bytes = i % 4 == 3 ? EACH : 1000;
        gct_fill(w->out + i * EACH, bytes, w->rank, FIRST + i);
        TRY((i % 3 ? gc_isend : gc_issend)(w->comm, w->out + i * EACH, bytes, to, FIRST + i, &w->request[i]));
    }
    for (int i = 0; i < MANY; i++) {
        int tag = FIRST + MANY - 1 - i;
        TRY(gc_irecv(w->comm, w->in, EACH, i % 2 ? GC_ANY_SOURCE : from, tag, &w->request[MANY]));
        TRY(gc_wait(&w->request[MANY], NULL));
        DATA((tag - FIRST) % 4 == 3 ? EACH : 1000, from, tag);
    }
    int timed = gc_wait_for(&w->request[0], 1e-4, NULL);
    if (timed != GC_ERR_TIMEOUT)
        TRY(timed);
    TRY(gc_test(&w->request[1], &done, NULL));
    TRY(gc_testany(4, w->request, &index, &done, NULL));
    TRY(gc_waitany(MANY, w->request, &index, NULL));
    TRY(gc_testall(MANY, w->request, &done, statuses));
    while (index >= 0) {
        TRY(gc_waitany(MANY, w->request, &index, NULL));
    }
    return gc_waitall(MANY, w->request, statuses);
}

static int probed(work *w, int to, int from)
{
    gc_status status;
    gct_fill(w->out, LONG, w->rank, 20);
    TRY(gc_isend(w->comm, w->out, LONG, to, 20, &w->request[0]));
    TRY(gc_mprobe(w->comm, from, GC_ANY_TAG, &w->message, &status));
    TRY(gc_mrecv(&w->message, w->in, LONG, NULL));
    DATA(LONG, from, 20);
    TRY(gc_wait(&w->request[0], NULL));
    gct_fill(w->out, SMALL, w->rank, 21);
    TRY(gc_isend(w->comm, w->out, SMALL, to, 21, &w->request[0]));
    while (!w->message) {
        TRY(gc_improbe(w->comm, GC_ANY_SOURCE, 21, &w->message, &status));
        TRY(gc_progress(w->world));
        sim_sleep(sim_current(), GCI_NS_PER_MS);
    }
    TRY(gc_imrecv(&w->message, w->in, SMALL, &w->request[1]));
    TRY(gc_waitall(2, w->request, NULL));
    DATA(SMALL, from, 21);
    TRY(gc_irecv(w->comm, w->in, SMALL, from, 22, &w->request[0]));       /* that nobody sends */
    TRY(gc_cancel(w->request[0]));
    WANT(GC_ERR_CANCELLED, gc_wait(&w->request[0], NULL));
    TRY(gc_issend(w->comm, w->out, SMALL, to, 23, &w->request[0]));        /* that nobody receives */
    TRY(gc_isend(w->comm, w->out, LONG, to, 23, &w->request[1]));
    TRY(gc_cancel(w->request[0]));
    TRY(gc_cancel(w->request[1]));
    WANT(GC_ERR_CANCELLED, gc_wait(&w->request[0], NULL));
    WANT(GC_ERR_CANCELLED, gc_wait(&w->request[1], NULL));
    return gc_barrier(w->comm);         /* before anybody frees it: what comes to no communicator is received by nobody */
}

static int messages(work *w)
{
    int to = (w->rank + 1) % w->size, from = (w->rank + w->size - 1) % w->size;
    PART(blocking(w, to, from));
    PART(begun(w, to, from));
    return probed(w, to, from);
}

/* ---- collectives --------------------------------------------------------------------------------------------------------- */

static uint64_t term(int rank, int i) { return (uint64_t)(rank + 1) * 1000003 + (uint64_t)i * 7; }

static void terms(work *w, int count)
{
    uint64_t *v = (uint64_t *)(void *)w->out;
    for (int i = 0; i < count; i++) {
        v[i] = term(w->rank, i);
    }
}

/* in[] is the sum of those of ranks 0 .. ranks - 1, from their element `first` on. */
static void sums(work *w, int count, int first, int ranks)
{
    const uint64_t *v = (const uint64_t *)(const void *)w->in;
    for (int i = 0; i < count && !w->wrong; i++) {
        uint64_t sum = 0;
        for (int r = 0; r < ranks; r++)
            sum += term(r, first + i);
        HOLDS(v[i] == sum);
    }
}

static void uneven(const work *w, size_t bytes[], size_t offsets[])
{
    size_t at = 0;
    for (int r = 0; r < w->size; r++) {
        offsets[r] = at;
        at += bytes[r] = (size_t)(r + 1) * 700;
    }
}

static void blocks(work *w, const size_t bytes[], const size_t offsets[], int tag)
{
    for (int r = 0; r < w->size; r++)
        w->wrong += gct_check(w->in + offsets[r], bytes[r], r, tag);
}

/* Calls f, or its begun form. */
#define BOTH(f, ...) do { if (!later) { TRY(gc_##f(w->comm, __VA_ARGS__)); } else { TRY(gc_i##f(w->comm, __VA_ARGS__, &w->request[0])); \
                          TRY(gc_wait(&w->request[0], NULL)); } } while (0)

static int moved(work *w, bool later, size_t each)
{
    size_t bytes[RANKS_MAX], offsets[RANKS_MAX], same[RANKS_MAX];
    int last = w->size - 1;
    for (int r = 0; r < w->size; r++)
        same[r] = each, offsets[r] = (size_t)r * each;
    gct_fill(w->rank ? w->in : w->out, LONG, w->rank, 40);
    if (w->rank == 0)
        memcpy(w->in, w->out, LONG);
    BOTH(bcast, w->in, each * 3, 0);
    gct_fill(w->out, LONG, 0, 40);
    HOLDS(memcmp(w->in, w->out, each * 3) == 0);
    gct_fill(w->out, each, w->rank, 41);
    BOTH(gather, w->out, each, w->in, last);
    if (w->rank == last)
        blocks(w, same, offsets, 41);
    BOTH(allgather, w->out, each, w->in);
    blocks(w, same, offsets, 41);
    for (int r = 0; r < w->size; r++)
        gct_fill(w->out + (size_t)r * each, each, w->rank, 50 + r);
    BOTH(scatter, w->out, each, w->in, 0);
    DATA(each, 0, 50 + w->rank);
    BOTH(alltoall, w->out, each, w->in);
    blocks(w, same, offsets, 50 + w->rank);
    uneven(w, bytes, offsets);
    gct_fill(w->out, bytes[w->rank], w->rank, 42);
    BOTH(gatherv, w->out, bytes[w->rank], w->in, bytes, offsets, 0);
    if (w->rank == 0)
        blocks(w, bytes, offsets, 42);
    BOTH(allgatherv, w->out, bytes[w->rank], w->in, bytes, offsets);
    blocks(w, bytes, offsets, 42);
    for (int r = 0; r < w->size; r++)
        gct_fill(w->out + offsets[r], bytes[r], w->rank, 60 + r);
    BOTH(scatterv, w->out, bytes, offsets, w->in, bytes[w->rank], last);
    DATA(bytes[w->rank], last, 60 + w->rank);
    size_t mine[RANKS_MAX], at[RANKS_MAX];
    for (int r = 0; r < w->size; r++)
        mine[r] = bytes[w->rank], at[r] = (size_t)r * mine[r];
    BOTH(alltoallv, w->out, bytes, offsets, w->in, mine, at);
    blocks(w, mine, at, 60 + w->rank);
    return GC_OK;
}

static void add(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const uint64_t *from = in;
    uint64_t *to = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        to[i] += from[i];
}

static int reduced(work *w, bool later, int count, gc_op op)
{
    size_t counts[RANKS_MAX];
    int last = w->size - 1, each = count / w->size, first = 0;
    for (int r = 0; r < w->size; r++) {
        counts[r] = (size_t)(r + 1) * 10;
        first += r < w->rank ? (int)counts[r] : 0;
    }
    terms(w, count);
    BOTH(reduce, w->out, w->in, (size_t)count, GC_UINT64, op, last);
    if (w->rank == last)
        sums(w, count, 0, w->size);
    BOTH(allreduce, w->out, w->in, (size_t)count, GC_UINT64, op);
    sums(w, count, 0, w->size);
    BOTH(reduce_scatter, w->out, w->in, counts, GC_UINT64, op);
    sums(w, (int)counts[w->rank], first, w->size);
    BOTH(reduce_scatter_block, w->out, w->in, (size_t)each, GC_UINT64, op);
    sums(w, each, each * w->rank, w->size);
    BOTH(scan, w->out, w->in, (size_t)count, GC_UINT64, op);
    sums(w, count, 0, w->rank + 1);
    BOTH(exscan, w->out, w->in, (size_t)count, GC_UINT64, op);
    sums(w, w->rank ? count : 0, 0, w->rank);
    return GC_OK;
}

/* Two under way at a time, and of one's own operations. */
static int collectives(work *w)
{
    gc_op op[3];
    TRY(gc_barrier(w->comm));
    PART(moved(w, false, 3000));
    PART(moved(w, true, 100));
    PART(reduced(w, false, COUNT, GC_SUM));
    PART(reduced(w, true, 60, GC_SUM));
    for (unsigned flags = 0; flags < 3; flags++) {
        TRY(gc_op_create(w->world, add, sizeof(uint64_t), flags & 1 ? GC_OP_ASSOCIATIVE : flags & 2 ? GC_OP_COMMUTATIVE : 0, NULL,
                         &op[flags]));
        PART(reduced(w, flags == 1, 60, op[flags]));
        TRY(gc_op_free(w->world, op[flags]));
    }
    terms(w, COUNT);
    TRY(gc_ibarrier(w->comm, &w->request[0]));
    TRY(gc_iallreduce(w->comm, w->out, w->in, COUNT, GC_UINT64, GC_SUM, &w->request[1]));
    TRY(gc_iallgather(w->comm, w->out, 100, w->in + LONG, &w->request[2]));
    TRY(gc_waitall(3, w->request, NULL));
    sums(w, COUNT, 0, w->size);
    return GC_OK;
}

static int along_trees(work *w)
{
    static const char *const shapes[] = { "binomial", "chain" };
    size_t bytes[RANKS_MAX], offsets[RANKS_MAX];
    uneven(w, bytes, offsets);
    for (size_t i = 0; i < GCI_COUNT(shapes); i++) {
        LIBC(gc_tree_build(&w->tree, shapes[i], w->size, 0, NULL, bytes));
        gct_fill(w->rank ? w->in : w->out, LONG, 0, 70);
        if (w->rank == 0)
            memcpy(w->in, w->out, LONG);
        TRY(gc_tree_bcast(w->comm, w->tree, w->in, LONG));
        DATA(LONG, 0, 70);
        terms(w, COUNT);
        TRY(gc_tree_reduce(w->comm, w->tree, w->out, w->in, COUNT, GC_UINT64, GC_SUM));
        if (w->rank == 0)
            sums(w, COUNT, 0, w->size);
        gct_fill(w->out, bytes[w->rank], w->rank, 71);
        TRY(gc_tree_gatherv(w->comm, w->tree, w->out, bytes[w->rank], w->in, bytes, offsets));
        if (w->rank == 0)
            blocks(w, bytes, offsets, 71);
        for (int r = 0; r < w->size; r++)
            gct_fill(w->out + offsets[r], bytes[r], w->rank, 80 + r);
        TRY(gc_tree_scatterv(w->comm, w->tree, w->out, bytes, offsets, w->in, bytes[w->rank]));
        DATA(bytes[w->rank], 0, 80 + w->rank);
        gc_tree_free(w->tree);
        w->tree = NULL;
    }
    return GC_OK;
}

/* ---- communicators ------------------------------------------------------------------------------------------------------- */

static int within(work *w, gc_comm *comm, int (*what)(work *))
{
    work inner = *w;
    inner.comm = comm, inner.rank = gc_rank(comm), inner.size = gc_size(comm);
    int code = what(&inner);
    inner.comm = w->comm, inner.rank = w->rank, inner.size = w->size;
    *w = inner;
    return code;
}

#define IN(comm, what) do { int code_ = within(w, comm, what); if (code_) return code_; } while (0)

static int communicators(work *w)
{
    gc_comm *dup, *turned, *some, *half;
    int turn[RANKS_MAX], there[RANKS_MAX];
    for (int r = 0; r < w->size; r++)
        turn[r] = w->size - 1 - r;
    TRY(gc_comm_dup(w->world, &dup));
    TRY(gc_comm_split(dup, 0, -w->rank, &turned));
    TRY(gc_comm_split(dup, w->rank == 0 ? GC_UNDEFINED : 1, 0, &half));
    TRY(gc_comm_create(turned, turn, w->size, &some));
    TRY(gc_comm_translate(some, turn, w->size, turned, there));
    HOLDS(there[0] == 0);
    IN(some, messages);
    TRY(gc_comm_free(some));
    TRY(gc_comm_create_tagged(dup, turn, 2, 7, &some));
    if (some) {
        IN(some, messages);
        TRY(gc_comm_free(some));
    }
    TRY(gc_comm_free(dup));
    if (half)
        IN(half, along_trees);
    return within(w, turned, along_trees);
}

/* Who gets no communicator stays: the others must not have one either, for in that they would wait for it. */
static int together(work *w)
{
    gc_comm *made;
    int all[RANKS_MAX];
    for (int r = 0; r < w->size; r++)
        all[r] = r;
    int code = gc_comm_create(w->world, all, w->size, &made), later = made ? gc_barrier(made) : GC_OK, last = gc_barrier(w->world);
    w->call = "gc_comm_create or gc_barrier";
    return code < 0 ? code : later < 0 ? later : last;
}

static int two_worlds(work *w)
{
    char text[256];
    gc_options o;
    sim_proc *p = sim_current();
    gct_options(&o, &(gct_spec){ .ranks = w->size }, w->rank, "10.1.0.1:4001", NULL, text, sizeof text);
    o.alloc_user = p;
    o.start_timeout = START_S, o.peer_timeout = PEER_S;
    o.progress = "thread";              /* see threaded() */
    sweep_options(&o, w->rank);
    TRY(gci_open(&w->second, &o, sim_sys(p)));
    gc_comm *first = w->world;
    w->world = w->second;
    int code = within(w, w->second, messages);
    w->world = first;
    PART(code);
    return messages(w);
}

/* ---- models, and what a job tells ---------------------------------------------------------------------------------------- */

static int explained(work *w)
{
    static const char *const ops[] = { "barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce", "allreduce",
                                       "reduce_scatter", "scan", "exscan" };
    char text[4096];
    double seconds;
    for (size_t i = 0; i < GCI_COUNT(ops); i++) {
        TRY(gc_explain(w->comm, ops[i], 5000, 0, text, sizeof text, NULL));
        TRY(gc_predict(w->comm, w->model[0], ops[i], NULL, 5000, 0, &seconds));
    }
    return GC_OK;
}

/* model: what is saved; then what is loaded, if that is another one. */
static int saved(work *w, gc_model **model, gc_model **loaded)
{
    char path[64], text[256];
    gc_model *again = NULL;
    snprintf(path, sizeof path, "/tmp/gct_sweep_%d_%d", (int)getpid(), w->rank);
    sweep_libc(true);
    int code = gc_model_save(*model, path);
    if (!code)
        code = gc_model_load(path, &again, text, sizeof text);
    sweep_libc(false);
    unlink(path);
    w->call = "gc_model_save or gc_model_load";
    if (loaded)
        *loaded = again;
    else
        gc_model_free(again);
    return code;
}

static int modelled(work *w)
{
    static const char *const shapes[] = { "binomial-nearest", "prim", "traeff" };
    TRY(gc_model_measure(w->comm, "hockney", 4, &w->model[0]));
    TRY(gc_model_use(w->comm, w->model[0]));
    PART(explained(w));
    PART(moved(w, false, 500));
    PART(reduced(w, false, 200, GC_SUM));
    PART(saved(w, &w->model[0], &w->model[1]));
    for (size_t i = 0; i < GCI_COUNT(shapes); i++) {
        LIBC(gc_tree_build(&w->tree, shapes[i], w->size, 0, w->model[0], NULL));
        gc_tree_free(w->tree);
        w->tree = NULL;
    }
    gc_model_free(w->model[1]);
    w->model[1] = NULL;
    TRY(gc_model_measure(w->comm, "plogp", 4, &w->model[1]));
    PART(saved(w, &w->model[1], NULL));
    return gc_model_use(w->comm, NULL);
}

static int told(work *w)
{
    static const char *const whats[] = { "links", "routes", "waits", "clusters", "addresses", "collectives" };
    char *text = gct_buffer(TEXT);
    gc_stats stats = { .size = sizeof stats };
    size_t needed;
    int code = w->size > 1 ? messages(w) : GC_OK;
    if (code)
        return gct_buffer_free(text), code;
    for (size_t i = 0; i < 2 * GCI_COUNT(whats) && !code; i++)
        if (i < 2 * GCI_COUNT(whats) - 1)
            code = gc_describe(w->world, whats[i / 2], i % 2 ? "dot" : "text", text, TEXT, &needed);
    w->wrong += gct_buffer_free(text);
    w->call = "gc_describe(...)";
    if (code)
        return code;
    TRY(gc_get_stats(w->world, &stats));
    TRY(gc_pollfd(w->world));
    TRY(gc_comm_failed(w->world, NULL, 0));
    return gc_barrier(w->world);
}

/* A world of one. */
static int alone(work *w)
{
    PART(collectives(w));
    return told(w);
}

/* So long that sites share the sums out; and all to all in one buffer. */
static int long_ones(work *w)
{
    size_t each = 3000, sizes[RANKS_MAX], offsets[RANKS_MAX];
    terms(w, MANY_TERMS);
    TRY(gc_allreduce(w->comm, w->out, w->in, MANY_TERMS, GC_UINT64, GC_SUM));
    sums(w, MANY_TERMS, 0, w->size);
    for (int later = 0; later < 2; later++) {
        for (int r = 0; r < w->size; r++) {
            sizes[r] = each, offsets[r] = (size_t)r * each;
            gct_fill(w->in + offsets[r], each, w->rank, 95 + r);
        }
        if (later)
            TRY(gc_alltoallv(w->comm, w->in, sizes, offsets, w->in, sizes, offsets));
        else
            TRY(gc_alltoall(w->comm, w->in, each, w->in));
        blocks(w, sizes, offsets, 95 + w->rank);
    }
    return GC_OK;
}

/* ---- trouble ------------------------------------------------------------------------------------------------------------- */

static int messages_and_collectives(work *w)
{
    PART(messages(w));
    return collectives(w);
}

/* Until somebody's death ends it; or while connections are lost. */
static int rounds(work *w)
{
    for (int i = 0; i < 12; i++) {
        terms(w, COUNT);
        TRY(gc_allreduce(w->comm, w->out, w->in, COUNT, GC_UINT64, GC_SUM));
        sums(w, COUNT, 0, w->size);
        gct_fill(w->out, LONG, w->rank, i);
        int to = (w->rank + 1) % w->size, from = (w->rank + w->size - 1) % w->size;
        TRY(gc_sendrecv(w->comm, w->out, LONG, to, i, w->in, LONG, from, i, NULL));
        DATA(LONG, from, i);
    }
    return GC_OK;
}

static int large(work *w)
{
    enum { MIB4 = 4 << 20 };
    uint8_t *buf = gct_buffer(MIB4);
    gct_fill(buf, MIB4, w->rank, 90);
    w->call = "gc_send or gc_recv";
    int code = GC_OK;
    for (int i = 0; i < 2 && !code; i++)
        code = w->rank == 0 ? gc_send(w->comm, buf, MIB4, 1, 90) : gc_recv(w->comm, buf, MIB4, 0, 90, NULL);
    if (!code)
        w->wrong += gct_check(buf, MIB4, 0, 90);
    return w->wrong += gct_buffer_free(buf), code;
}

/* Somebody dies; the others go on without. All hear of it by a collective, so nobody waits for who has heard already. */
static int survivors(work *w)
{
    gc_comm *left;
    int code = GC_OK;
    w->call = "gc_allreduce";
    for (int i = 0; i < 40 && !code; i++) {
        terms(w, COUNT);
        code = gc_allreduce(w->comm, w->out, w->in, COUNT, GC_UINT64, GC_SUM);
        if (!code)
            sums(w, COUNT, 0, w->size);
    }
    if (code != GC_ERR_PEER)
        return code;
    TRY(gc_comm_shrink(w->world, &left));
    IN(left, collectives);
    return gc_comm_free(left);
}

/* The last rank comes late: the others say what they wait for. */
static int stalled(work *w)
{
    if (w->rank == w->size - 1)
        sim_sleep(sim_current(), 3 * GCI_SECOND);
    TRY(gc_barrier(w->comm));
    if (w->rank == w->size - 1)
        sim_sleep(sim_current(), 3 * GCI_SECOND);
    return messages(w);
}

/* Two ranks lose each other for good, and all others know it for a while. */
static int patient(work *w)
{
    PART(rounds(w));
    sim_sleep(sim_current(), 10 * GCI_SECOND);
    return rounds(w);
}

/* Much data, over long lines, until somebody dies: what is under way is of no use then. */
static int in_vain(work *w)
{
    uint8_t *buf = gct_buffer(BUFFER);
    int code = GC_OK;
    gct_fill(buf, BUFFER, 0, 91);
    for (int i = 0; i < 8 && !code; i++)
        code = gc_bcast(w->comm, buf, BUFFER, 0);
    w->call = "gc_bcast";
    if (!code)
        w->wrong += gct_check(buf, BUFFER, 0, 91);
    w->wrong += gct_buffer_free(buf);
    return code;
}

/* ---- scenes -------------------------------------------------------------------------------------------------------------- */

static const gct_place chain[] = { { .ranks = 1, .not_to = 4 }, { .ranks = 1 }, { .ranks = 1, .wall = GCT_REFUSE } };
static const gct_place star[] = { { .ranks = 2 }, { .ranks = 1, .wall = GCT_REFUSE }, { .ranks = 1, .wall = GCT_REFUSE } };
static const gct_place closed[] = { { .ranks = 2, .wall = GCT_REFUSE, .port_first = 4000, .port_last = 4000 },
                                    { .ranks = 1, .wall = GCT_REFUSE } };
static const gct_event losses[] = { { 30 * GCI_NS_PER_MS, GCT_RESET, 0, -1, GCI_PURPOSE_BACKBONE },
                                    { 150 * GCI_NS_PER_MS, GCT_RESET, 2, -1, GCI_PURPOSE_BACKBONE },
                                    { 300 * GCI_NS_PER_MS, GCT_RESET, 0, -1, GCI_PURPOSE_DATA },
                                    { 400 * GCI_NS_PER_MS, GCT_RESET, 1, 0, GCI_PURPOSE_CONTROL } };
static const gct_place gap[] = { { .ranks = 3, .wall = GCT_REFUSE, .port_first = 4000, .port_last = 4000 },
                                 { .ranks = 1, .wall = GCT_REFUSE }, { .ranks = 1, .wall = GCT_REFUSE } };
static const gct_event cut[] = { { 30 * GCI_NS_PER_MS, GCT_CUT, 0, 1, 0 } };
static const gct_event power_off[] = { { 20 * GCI_NS_PER_MS, GCT_KILL_HOST, 3, -1, 0 } };
static const gct_event death[] = { { 300 * GCI_NS_PER_MS, GCT_KILL, 3, -1, 0 } };
/* Of a ring, so that the one between them finds the others again. */
static const gct_event two_deaths[] = { { 300 * GCI_NS_PER_MS, GCT_KILL, 1, -1, 0 }, { 300 * GCI_NS_PER_MS, GCT_KILL, 3, -1, 0 } };

static void unheard(void *user, int level, const char *line) { (void)user, (void)level, (void)line; }
static void with_thread(gc_options *o, int rank) { o->progress = rank ? "thread" : "sleep"; o->streams = 1; }
/* While a rank waits in one world, somebody has to send again what was lost in the other. */
static void threaded(gc_options *o, int rank) { (void)rank; o->progress = "thread"; }
static void in_order(gc_options *o, int rank) { (void)rank; o->order = "rank"; }
static void relayed(gc_options *o, int rank) { (void)rank; o->direct = 0; o->queue_packets = 2; o->credits = 3; }
static void ordered(gc_options *o, int rank) { relayed(o, rank); o->routing = "ordered"; o->link_density = 0.6; }
static void debugging(gc_options *o, int rank) { (void)rank; o->debug = "all"; o->log = unheard; o->algo = "bcast:chain@4096"; }
static void in_time(gc_options *o, int rank) { gct_usual_options(o, rank, NULL); }
static void two_streams(gc_options *o, int rank) { (void)rank; o->streams = 2; o->direct = 1; }

static void told_late(gc_options *o, int rank) { relayed(o, rank); o->stall = 1; o->log = unheard; }
static void at_home(gc_options *o, int rank) { (void)rank; o->key = NULL; o->root = "localhost:4000"; }
static void by_name(gc_options *o, int rank) { (void)rank; o->root = "a1:4000"; }
static void sparse(gc_options *o, int rank) { (void)rank; o->link_density = 0.3; }
static void forced(gc_options *o, int rank) { (void)rank; o->algo = "allreduce:wide-divided,reduce_scatter:wide"; }

/* By PMI: gc_init reads the environment before anybody else comes to run. */
static void launched(gc_options *o, int rank)
{
    char id[16], port[32];
    snprintf(id, sizeof id, "%d", rank);
    snprintf(port, sizeof port, "a1:%d", GUEST_PMI_PORT);
    setenv("PMI_ID", id, 1);
    setenv("PMI_PORT", port, 1);
    o->rank = -1, o->ranks = 0;
    o->root = o->key = NULL;
}

static char links_path[64];
static void over_ssh(gc_options *o, int rank) { o->links = rank == 0 ? links_path : "/nonexistent/links"; }

static int ssh(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    int port = 0;
    (void)by;
    for (int i = 0; argv[i]; i++)
        if (strcmp(argv[i], "-W") == 0 && (!argv[i + 1] || sscanf(argv[i + 1], "127.0.0.1:%5d", &port) != 1))
            port = 0;
    *from = user;
    to->port = (uint16_t)port;
    return gci_addr_parse("127.0.0.1", to) == GC_OK && port ? 0 : -EINVAL;
}

static void sshd(sim *s, sim_proc **procs, int ranks)
{
    sim_on_spawn(s, ssh, sim_proc_host(procs[ranks - 1]));
}

static void two_cards(sim *s, sim_proc **procs, int ranks)
{
    sim_net *net = sim_net_new(s, "net1", 50000);
    for (int r = 0; r < ranks; r++) {
        char address[32];
        snprintf(address, sizeof address, "10.21.0.%d/16", r + 1);
        sim_nic_new(sim_proc_host(procs[r]), "eth1", net, address, 125000000);
    }
}

/* Twice on one network: which card is taken is for the library to say. */
static void one_network(sim *s, sim_proc **procs, int ranks)
{
    (void)s;
    for (int r = 0; r < ranks; r++) {
        char address[32];
        sim_host *h = sim_proc_host(procs[r]);
        snprintf(address, sizeof address, "10.1.1.%d/16", r + 1);
        sim_nic_new(h, "eth1", sim_site_net(sim_site_of(h), "net0", 50000), address, 125000000);
    }
}

static void no_gate(sim *s, sim_proc **procs, int ranks)
{
    (void)s;
    for (int r = 0; r < ranks; r++)
        sim_host_gate(sim_proc_host(procs[r]), 0);
}

static guest beside;

static void launcher(sim *s, sim_proc **procs, int ranks)
{
    (void)s;
    beside = (guest){ .ranks = ranks };
    guest_launcher(sim_proc_host(procs[0]), &beside);
}

static void strangers(sim *s, sim_proc **procs, int ranks)
{
    (void)s;
    beside = (guest){ .count = 300 };
    (void)gci_addr_parse("10.1.0.1", &beside.at);
    beside.at.port = 4000;
    guest_strangers(sim_proc_host(procs[ranks - 1]), &beside);
}

static const script scenes[] = {
    { "pair", messages_and_collectives, .spec = { .ranks = 2 } },
    { "hosts", communicators, .spec = { .ranks = 3, .ranks_per_host = 2 }, .options = with_thread },
    { "sites", collectives, .spec = { .ranks = 5, .sites = 2, .calm = true } },
    { "order", collectives, .spec = { .ranks = 4, .sites = 2, .calm = true }, .options = in_order },
    { "chain", messages_and_collectives, .spec = { .ranks = 3, .places = chain } },
    { "relay", messages, .spec = { .ranks = 4, .places = star }, .options = relayed },
    { "ordered", messages, .spec = { .ranks = 5 }, .options = ordered },
    { "alone", alone, .spec = { .ranks = 1, .calm = true } },
    { "long", long_ones, .spec = { .ranks = 5, .sites = 3, .calm = true } },
    { "together", together, .spec = { .ranks = 4 } },
    { "worlds", two_worlds, .spec = { .ranks = 2 }, .options = threaded },
    { "model", modelled, .spec = { .ranks = 4, .sites = 2, .calm = true }, .options = in_time, .share = 8 },
    { "tell", told, .spec = { .ranks = 3, .sites = 2, .ranks_per_host = 2 }, .options = debugging },
    { "strands", large, .spec = { .ranks = 2, .calm = true }, .options = two_streams, .arrange = two_cards },
    { "ssh", messages, .spec = { .ranks = 3, .places = closed }, .options = over_ssh, .arrange = sshd },
    { "losses", rounds, .spec = { .ranks = 4, .places = star, .events = losses, .event_count = GCI_COUNT(losses) } },
    { "death", rounds, .spec = { .ranks = 4, .sites = 2, .events = death, .event_count = GCI_COUNT(death) }, .dies = true },
    { "power", rounds, .spec = { .ranks = 4, .events = power_off, .event_count = GCI_COUNT(power_off) }, .dies = true },
    { "survivors", survivors, .spec = { .ranks = 4, .sites = 2, .events = death, .event_count = GCI_COUNT(death) },
      .dies = true, .share = 2 },
    { "parted", survivors, .spec = { .ranks = 5, .lan_latency = 5 * GCI_NS_PER_MS, .events = two_deaths,
      .event_count = GCI_COUNT(two_deaths) }, .options = sparse, .dies = true, .share = 2 },
    { "vain", in_vain, .spec = { .ranks = 4, .sites = 2, .events = death, .event_count = GCI_COUNT(death) }, .dies = true },
    { "cut", patient, .spec = { .ranks = 4, .events = cut, .event_count = GCI_COUNT(cut) } },
    { "stall", stalled, .spec = { .ranks = 4, .places = star }, .options = told_late },
    { "home", messages, .spec = { .ranks = 2, .ranks_per_host = 2 }, .options = at_home },
    { "name", messages, .spec = { .ranks = 2 }, .options = by_name, .arrange = no_gate },
    { "gap", messages, .spec = { .ranks = 5, .places = gap }, .options = sparse },
    { "divided", collectives, .spec = { .ranks = 5, .sites = 3, .calm = true }, .options = forced },
    { "cards", messages, .spec = { .ranks = 2 }, .arrange = one_network, .share = 4 },
    { "launcher", messages, .spec = { .ranks = 3 }, .options = launched, .arrange = launcher },
    { "flood", messages, .spec = { .ranks = 3, .calm = true }, .arrange = strangers },
};

/* ---- what a rank may get --------------------------------------------------------------------------------------------------- */

static bool may_return(const char *call, int code)
{
    if (code == GC_ERR_NOMEM || code == GC_ERR_PEER || code == GC_ERR_UNREACHABLE || code == GC_ERR_ABORTED)
        return true;
    if (strncmp(call, "gc_init", 7) == 0 || strncmp(call, "gci_open", 8) == 0)
        return (code == GC_ERR_SYSTEM || code == GC_ERR_TIMEOUT);
    if (strncmp(call, "gc_model_measure", 16) == 0)
        return code == GC_ERR_TIMEOUT;
    bool asks_system = strncmp(call, "gc_describe", 11) == 0 || strncmp(call, "gc_pollfd", 9) == 0 ||
                       strncmp(call, "gc_model_", 9) == 0;
    return code == GC_ERR_SYSTEM && asks_system;
}

static void note(job *j, int rank, const char *call, int code)
{
    j->code[rank] = code;
    j->call[rank] = call;
    j->erred++;
    if (!may_return(call, code))
        j->bad += gct_fail(__FILE__, __LINE__, call, "%s is not what it may return",
                           code == NOT_SO ? "another end" : gc_strerror(code));
}

static void refused(int rank, int code, const char *text, void *arg)
{
    job *j = arg;
    j->refused++;
    note(j, rank, "gc_init", code);
    if (getenv("SWEEP_TRACE"))
        fprintf(stderr, "sweep: rank %d: %s\n", rank, text);
    if (!text[0])
        j->bad += gct_fail(__FILE__, __LINE__, "gc_init", "%s, without a text", gc_strerror(code));
}

/* After an error: nobody may wait for this rank. */
static void give_up(work *w)
{
    gc_comm *worlds[] = { w->world, w->second };
    for (int i = 0; i < 2; i++)
        if (worlds[i])
            (void)gc_abort(worlds[i], 1);
    if (w->message)
        (void)gc_mrecv(&w->message, w->in, LONG, NULL);
    for (int i = 0; i < REQUESTS; i++)
        (void)gc_wait(&w->request[i], NULL);
}

static int member(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    work w = { .world = world, .comm = world, .rank = rank, .size = size, .call = "?", .out = gct_buffer(BUFFER),
               .in = gct_buffer(BUFFER) };
    j->joined++;
    int code = j->scene->run(&w), end[2];
    if (code) {
        note(j, rank, w.call, code);
        give_up(&w);
    }
    gc_model_free(w.model[0]);
    gc_model_free(w.model[1]);
    gc_tree_free(w.tree);
    end[1] = w.second ? gc_finalize(w.second) : GC_OK;
    end[0] = gc_finalize(world);
    for (int i = 0; i < 2; i++) {
        if (end[i] && !code)
            note(j, rank, "gc_finalize", end[i]);
        if (end[i] == GC_ERR_PENDING || end[i] == GC_ERR_ARG)
            return gct_fail(__FILE__, __LINE__, "gc_finalize", "%s", gc_strerror(end[i]));
    }
    return w.wrong + gct_buffer_free(w.out) + gct_buffer_free(w.in);
}

/* ---- runs ---------------------------------------------------------------------------------------------------------------- */

static void options(gc_options *o, int rank, void *arg)
{
    const job *j = arg;
    o->start_timeout = START_S;
    o->peer_timeout = PEER_S;
    sweep_options(o, rank);
    if (j->scene->options)
        j->scene->options(o, rank);
}

static void arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    const job *j = arg;
    if (j->scene->arrange)
        j->scene->arrange(s, procs, ranks);
    sweep_arrange(s, procs, ranks);
}

static void describe(const job *j, uint64_t seed)
{
    const sweep_fault *f = j->fault;
    const char *name;
    int n;
    const sweep_way *way = &sweep_ways(f->call, &n, &name)[f->way];
    fprintf(stderr, "GCT_SEED=%llu SWEEP_ONLY=%s SWEEP_CASE=\"%d %d %ld %d %d\": ", (unsigned long long)seed, j->scene->name, f->rank,
            f->call, f->nth, f->way, f->onwards);
    fprintf(stderr, "rank %d, %s %ld: %s%s; %d joined, %d not:", f->rank, name, f->nth, way->name, f->onwards ? ", from then on" : "",
            j->joined, j->refused);
    for (int r = 0; r < j->scene->spec.ranks; r++)
        fprintf(stderr, " %s from %s;", gc_strerror(j->code[r]), j->call[r] ? j->call[r] : "all");
    fputc('\n', stderr);
}

/* 0, or 1 and what was wrong; *erred: did any rank get an error? */
static int run(const script *scene, uint64_t seed, const sweep_fault *fault, bool record, bool *erred)
{
    job j = { .scene = scene, .fault = fault };
    gct_outcome outcome;
    gct_spec spec = scene->spec;
    int n;
    const char *name;
    spec.on = GCT_ON_SIM, spec.seed = seed, spec.finalizes = true, spec.unwitnessed = true, spec.outcome = &outcome;
    spec.time_limit = 150, spec.options = options, spec.arrange = arrange, spec.refused = refused;
    sweep_begin(fault, record);
    int bad = gct_job(&spec, member, &j);
    unsetenv("PMI_ID");
    unsetenv("PMI_PORT");
    bool met = sweep_end(), harmless = !fault->nth || sweep_ways(fault->call, &n, &name)[fault->way].harmless;
    bad += j.bad;
    if (fault->nth && !met)
        bad += gct_fail(__FILE__, __LINE__, "the call that was to fail", "never came");
    if (harmless && !scene->dies && j.erred)
        bad += gct_fail(__FILE__, __LINE__, "what nobody may notice", "led to an error");
    int in_error = 0;
    for (int r = 0; r < spec.ranks; r++)
        in_error += j.code[r] != GC_OK;
    if (j.joined && j.refused && in_error < spec.ranks)         /* who is lost at the last moment is missed by all others */
        bad += gct_fail(__FILE__, __LINE__, "gc_init", "%d ranks have joined, %d have not, %d got an error", j.joined, j.refused, in_error);
    if (bad)
        describe(&j, seed);
    *erred = j.erred > 0;
    return bad != 0;
}

/* ---- which call fails, and how ------------------------------------------------------------------------------------------- */

typedef struct tally { long jobs, erred, bad, paths, calls[SWEEP_CALLS], paths_of[SWEEP_CALLS]; } tally;

static bool sweep_is(const char *word)
{
    const char *mode = getenv("SWEEP");
    return mode && strcmp(mode, word) == 0;
}

static int by_path(const void *a, const void *b)
{
    const sweep_hit *x = a, *y = b;
    return x->path != y->path ? (x->path < y->path ? -1 : 1) : x->rank != y->rank ? x->rank - y->rank : x->nth < y->nth ? -1 : 1;
}

static void fail_at(const script *scene, uint64_t seed, const sweep_hit *hit, int way, bool onwards, tally *t)
{
    sweep_fault f = { hit->rank, hit->call, hit->nth, way, onwards };
    bool erred;
    t->bad += run(scene, seed, &f, false, &erred);
    t->jobs++;
    t->erred += erred;
}

/* The calls from hit[0] to hit[n - 1] have one path. */
static void sweep_path(const script *scene, uint64_t seed, const sweep_hit *hit, size_t n, uint64_t *dice, tally *t)
{
    bool all = sweep_is("all");
    int ways;
    const char *name;
    const sweep_way *way = sweep_ways(hit->call, &ways, &name);
    if (!all) {
        int w = (int)(gct_random(dice) % (unsigned)ways);
        fail_at(scene, seed, &hit[gct_random(dice) % n], w, way[w].lasting && gct_random(dice) % 2, t);
        return;
    }
    for (int w = 0; w < ways; w++)
        for (size_t i = 0; i < 3 && i < n; i++)
            for (int onwards = 0; onwards <= way[w].lasting; onwards++)
                fail_at(scene, seed, &hit[i < 2 ? i : 2 + gct_random(dice) % (n - 2)], w, onwards, t);
}

static void list_sites(const script *scene, const sweep_hit *hit, size_t n)
{
    extern const char __executable_start[];
    FILE *file = getenv("SWEEP_SITES") ? fopen(getenv("SWEEP_SITES"), "a") : NULL;
    for (size_t i = 0; file && i < n; i++) {
        int ways;
        const char *name;
        (void)sweep_ways(hit[i].call, &ways, &name);
        if (i == 0 || hit[i].path != hit[i - 1].path)
            fprintf(file, "%s %s %#lx %#lx\n", scene->name, name, (unsigned long)(hit[i].site[0] - __executable_start),
                    (unsigned long)(hit[i].site[1] - __executable_start));
    }
    if (file)
        fclose(file);
}

/* A copy of the calls that the scene makes without a fault, sorted by path. */
static sweep_hit *look(const script *scene, uint64_t seed, size_t *n)
{
    sweep_fault none = { .nth = 0 };
    bool erred;
    assert_int_equal(0, run(scene, seed, &none, true, &erred));
    const sweep_hit *hits = sweep_hits(n);
    sweep_hit *copy = malloc(*n * sizeof *copy);
    assert_non_null(copy);
    memcpy(copy, hits, *n * sizeof *copy);
    qsort(copy, *n, sizeof *copy, by_path);
    return copy;
}

static bool wanted(const sweep_hit *hit)
{
    const char *call = getenv("SWEEP_CALL"), *name;
    int ways;
    (void)sweep_ways(hit->call, &ways, &name);
    return !call || strcmp(call, name) == 0;
}

static void sweep_scene(const script *scene, uint64_t seed, tally *t)
{
    uint64_t dice = seed;
    int share = (scene->share ? scene->share : 1) * (getenv("GCT_ROUNDS") ? 4 : 1);
    size_t n;
    sweep_hit *hit = look(scene, seed, &n);
    list_sites(scene, hit, n);
    for (size_t i = 0, next; i < n; i = next) {
        for (next = i + 1; next < n && hit[next].path == hit[i].path; next++)
            ;
        t->paths_of[hit[i].call]++;
        t->calls[hit[i].call] += (long)(next - i);
        t->paths++;
        if (!sweep_is("look") && wanted(&hit[i]) && (sweep_is("all") || gct_random(&dice) % (uint64_t)share == 0))
            sweep_path(scene, seed, &hit[i], next - i, &dice, t);
    }
    free(hit);
}

static void report(const char *what, const tally *t)
{
    printf("%s: %ld paths to calls that can fail, %ld jobs with a fault, %ld ended in an error, %ld wrong\n", what, t->paths,
           t->jobs, t->erred, t->bad);
    for (int c = 0; c < SWEEP_CALLS; c++) {
        int ways;
        const char *name;
        (void)sweep_ways((enum sweep_call)c, &ways, &name);
        if (t->calls[c] && getenv("GCT_VERBOSE"))
            printf("    %-10s %7ld calls, %5ld paths\n", name, t->calls[c], t->paths_of[c]);
    }
    fflush(stdout);
}

static void one_case(const script *scene, uint64_t seed, const char *text)
{
    sweep_fault f;
    int call, onwards;
    bool erred;
    assert_int_equal(5, sscanf(text, "%d %d %ld %d %d", &f.rank, &call, &f.nth, &f.way, &onwards));
    f.call = (enum sweep_call)call;
    f.onwards = onwards;
    assert_int_equal(0, run(scene, seed, &f, false, &erred));
}

static void test_sweep(void **state)
{
    const char *only = getenv("SWEEP_ONLY"), *one = getenv("SWEEP_CASE");
    uint64_t seed = gct_seed();
    long bad = 0;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(scenes); i++) {
        tally t = { 0 };
        if (only && !strstr(scenes[i].name, only))
            continue;
        if (one) {
            one_case(&scenes[i], seed, one);
            continue;
        }
        sweep_scene(&scenes[i], seed, &t);
        report(scenes[i].name, &t);
        bad += t.bad;
    }
    if (bad)
        fail_msg("%ld jobs: GCT_SEED=%llu", bad, (unsigned long long)seed);
}

static int write_links(void **state)
{
    void *frame[1];
    (void)state;
    (void)backtrace(frame, 1);          /* it loads what it needs here, on a stack of the usual size */
    snprintf(links_path, sizeof links_path, "/tmp/gct_links_XXXXXX");
    int fd = mkstemp(links_path);
    FILE *file = fd >= 0 ? fdopen(fd, "w") : NULL;
    return !file || fputs("require a2 b1 via=ssh user=me\n", file) < 0 || fclose(file) != 0;
}

static int remove_links(void **state)
{
    (void)state;
    return unlink(links_path);
}

/* The Makefile wraps libc's. */
void *__real_calloc(size_t, size_t);
void *__real_realloc(void *, size_t);
void *__wrap_calloc(size_t, size_t);
void *__wrap_realloc(void *, size_t);

void *__wrap_calloc(size_t n, size_t bytes)
{
    return sweep_libc_fails(__builtin_return_address(0)) ? NULL : __real_calloc(n, bytes);
}

void *__wrap_realloc(void *old, size_t bytes)
{
    return sweep_libc_fails(__builtin_return_address(0)) ? NULL : __real_realloc(old, bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_sweep) };
    return cmocka_run_group_tests(tests, write_links, remove_links);
}
