/* test_shrink.c: what a death does to what is under way and to what comes later, and gc_comm_shrink for the survivors.
 * SPDX-License-Identifier: MIT
 *
 * A rank dies by leaving before the others: gc_finalize of a job that has failed tells them so at once, and frees everything here.
 * What breaks the job for that rank alone is a world of its own, which it leaves; on the simulated network ranks are killed, too
 * (tests/sim/test_shrink.c).
 */
#include "../gct.h"

#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS_MAX = 16, THREADS = 3 };
enum { TAG_GONE = 1, TAG_ANY, TAG_BETWEEN, TAG_KEPT, TAG_GO, TAG_OWN };

/* ---- ranks that can be out of memory ---------------------------------------------------------------------------------- */

typedef struct account {
    void *(*alloc)(void *user, void *old, size_t bytes);        /* NULL: the C library's */
    void *user;
    atomic_bool none;                   /* there is no memory any more. The control thread asks, too */
    atomic_int  next;                   /* the how many-th allocation from now on fails, it alone; 0: none */
} account;
typedef struct job { int victim, nth; account account[RANKS_MAX]; } job;

static void *scarce(void *user, void *old, size_t bytes)
{
    account *a = user;
    if (bytes > 0 && (a->none || (a->next > 0 && --a->next == 0)))
        return NULL;
    if (a->alloc)
        return a->alloc(a->user, old, bytes);
    if (bytes > 0)
        return realloc(old, bytes);
    free(old);
    return NULL;
}

static void options(gc_options *o, int rank, void *arg)
{
    job *j = arg;
    j->account[rank] = (account){ .alloc = o->alloc, .user = o->alloc_user };
    o->alloc = scarce;
    o->alloc_user = &j->account[rank];
    o->peer_timeout = 5;
}

static void run(int ranks, gct_main *main, job *j)
{
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .time_limit = 100, .finalizes = true, .options = options }, main, j));
}

/* The last barrier needs memory, so this rank does not wait for the others. */
static int leave(gc_comm *world, job *j)
{
    j->account[gc_rank(world)].none = true;
    int code = gc_finalize(world);
    gct_require(code == GC_ERR_NOMEM || code == GC_ERR_PEER, "%s", gc_strerror(code));
    return 0;
}

/* Whoever leaves spoils what others still do: first all are through with that. */
static int finalize_broken(gc_comm *world, gc_comm *living)
{
    gc_barrier(living);
    int code = gc_finalize(world);
    gct_require(code == GC_ERR_PEER || code == GC_ERR_NOMEM, "%s", gc_strerror(code));
    return 0;
}

/* ---- is this the communicator of all but the victim, and does everything work in it? ---------------------------------- */

static int exercise(gc_comm *comm)
{
    int rank = gc_rank(comm), size = gc_size(comm), all[RANKS_MAX], got = -1;
    int64_t one = (int64_t)1 << rank, sum = 0;
    gct_ok(gc_sendrecv(comm, &rank, sizeof rank, (rank + 1) % size, 5, &got, sizeof got, GC_ANY_SOURCE, 5, NULL));
    gct_require(got == (rank + size - 1) % size, "from %d", got);
    gct_ok(gc_allgather(comm, &rank, sizeof rank, all));
    for (int i = 0; i < size; i++)
        gct_require(all[i] == i, "block %d", i);
    gct_ok(gc_allreduce(comm, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_require(sum == ((int64_t)1 << size) - 1, "sum %llx", (long long)sum);
    gct_ok(gc_barrier(comm));
    return 0;
}

static int is_without(gc_comm *comm, gc_comm *of, int victim)
{
    int n = 0, want[RANKS_MAX], there[RANKS_MAX], size = gc_size(of);
    for (int i = 0; i < size; i++)
        if (i != victim)
            want[n++] = i;
    gct_require(gc_size(comm) == n, "%d members, not %d", gc_size(comm), n);
    gct_ok(gc_comm_translate(of, want, n, comm, there));
    for (int i = 0; i < n; i++)
        gct_require(there[i] == i, "rank %d is %d", want[i], there[i]);
    gct_require(want[gc_rank(comm)] == gc_rank(of) && gc_comm_failed(comm, NULL, 0) == 0, "rank %d", gc_rank(comm));
    return exercise(comm);
}

/* What can be made of it, and what a shrunk one can be made into. */
static int makes_more(gc_comm *comm)
{
    gc_comm *dup, *half, *same, *few;
    int first = 0;
    gct_ok(gc_comm_dup(comm, &dup));
    gct_ok(gc_comm_split(dup, gc_rank(comm) % 2, 0, &half));
    gct_ok(gc_comm_shrink(half, &same));
    gct_require(gc_size(half) == gc_size(same), "%d", gc_size(same));
    gct_ok(gc_comm_create(comm, &first, 1, &few));
    int failed = exercise(dup) || exercise(half) || exercise(same);
    gct_ok(gc_comm_free(half));
    gct_ok(gc_comm_free(same));
    gct_ok(gc_comm_free(dup));
    return failed;
}

/* ---- what a death does ------------------------------------------------------------------------------------------------ */

static int victim_of(gc_comm *comm, gc_comm *world, job *j)
{
    int value = 9, size = gc_size(comm);
    for (int i = 0; i < size; i++)
        if (i != j->victim)
            gct_ok(gc_send(comm, &value, sizeof value, i, TAG_KEPT));
    for (int i = 0; i < size; i++)
        if (i != j->victim)
            gct_ok(gc_recv(comm, &value, sizeof value, i, TAG_GO, NULL));
    return leave(world, j);
}

typedef struct flight { gc_request *gone, *any, *between, *sum; int buf[4], sums[2]; } flight;

static int fly(gc_comm *comm, int victim, int before, flight *f)
{
    gct_ok(gc_irecv(comm, &f->buf[0], sizeof(int), victim, TAG_GONE, &f->gone));
    gct_ok(gc_irecv(comm, &f->buf[1], sizeof(int), GC_ANY_SOURCE, TAG_ANY, &f->any));
    gct_ok(gc_irecv(comm, &f->buf[2], sizeof(int), before, TAG_BETWEEN, &f->between));
    f->sums[0] = 1;
    gct_ok(gc_iallreduce(comm, &f->sums[0], &f->sums[1], 1, GC_INT32, GC_SUM, &f->sum));
    return 0;
}

static int lands(gc_comm *comm, int victim, flight *f)
{
    gc_status status;
    int value = 0, rank = gc_rank(comm), found;
    gct_require(gc_wait(&f->sum, &status) == GC_ERR_PEER && status.fault_rank == victim, "a collective: %d", status.fault_rank);
    gct_require(gc_wait(&f->gone, &status) == GC_ERR_PEER && status.fault_rank == victim, "its receive: %d", status.fault_rank);
    gct_require(gc_wait(&f->any, &status) == GC_ERR_PEER && status.fault_rank == victim, "from any: %d", status.fault_rank);
    gct_require(gc_barrier(comm) == GC_ERR_PEER, "a later collective");
    gct_require(gc_send(comm, &value, sizeof value, victim, 0) == GC_ERR_PEER, "a send");
    gct_require(gc_recv(comm, &value, sizeof value, victim, TAG_GONE, NULL) == GC_ERR_PEER, "a receive");
    gct_require(gc_recv(comm, &value, sizeof value, GC_ANY_SOURCE, TAG_ANY, NULL) == GC_ERR_PEER, "a later receive from any");
    gct_require(gc_probe(comm, GC_ANY_SOURCE, TAG_ANY, NULL) == GC_ERR_PEER, "a probe of any");
    gct_ok(gc_recv(comm, &value, sizeof value, victim, TAG_KEPT, NULL));
    gct_require(value == 9, "what had come: %d", value);
    gct_ok(gc_send(comm, &rank, sizeof rank, rank, TAG_OWN));
    gct_ok(gc_iprobe(comm, GC_ANY_SOURCE, TAG_OWN, &found, NULL));
    gct_ok(gc_recv(comm, &value, sizeof value, GC_ANY_SOURCE, TAG_OWN, NULL));
    gct_require(found && value == rank, "what is there, from any");
    return 0;
}

/* This rank's neighbours among those who live. */
static void neighbours(int rank, int size, int victim, int *before, int *next)
{
    *next = (rank + 1) % size == victim ? (rank + 2) % size : (rank + 1) % size;
    *before = (rank + size - 1) % size == victim ? (rank + size - 2) % size : (rank + size - 1) % size;
}

static int dies(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gc_comm *comm, *others, *later, *shrunk;
    flight f;
    int before, next, living[RANKS_MAX], n = 0, known[RANKS_MAX];
    gct_ok(gc_comm_split(world, 0, 0, &comm));
    gct_ok(gc_comm_split(comm, rank == j->victim, 0, &others));
    if (rank == j->victim)
        return victim_of(comm, world, j);
    neighbours(rank, size, j->victim, &before, &next);
    if (fly(comm, j->victim, before, &f))
        return 1;
    gct_ok(gc_probe(comm, j->victim, TAG_KEPT, NULL));
    gct_ok(gc_send(comm, &rank, sizeof rank, j->victim, TAG_GO));
    if (lands(comm, j->victim, &f) || exercise(others))
        return 1;
    gct_require(gc_comm_failed(comm, known, RANKS_MAX) == 1 && known[0] == j->victim, "who has failed");
    for (int i = 0; i < size; i++)
        if (i != j->victim)
            living[n++] = i;
    gct_ok(gc_comm_create(comm, living, n, &later));
    if (is_without(later, comm, j->victim))
        return 1;
    gct_require(gc_comm_dup(comm, &later) == GC_ERR_PEER && !later, "dup");
    gct_ok(gc_comm_shrink(comm, &shrunk));      /* with a receive still under way */
    gct_ok(gc_send(comm, &rank, sizeof rank, next, TAG_BETWEEN));
    gct_require(gc_comm_free(comm) == GC_ERR_PENDING, "a receive is pending");
    gct_ok(gc_wait(&f.between, NULL));
    gct_require(f.buf[2] == before, "between the living: %d", f.buf[2]);
    int failed = is_without(shrunk, comm, j->victim) || makes_more(shrunk);
    gct_ok(gc_comm_free(comm));
    failed = failed || makes_more(shrunk);
    gct_ok(gc_comm_shrink(world, &later));      /* another one with the same death */
    failed = failed || is_without(later, world, j->victim);
    return failed || finalize_broken(world, later);
}

static void test_death(void **state)
{
    (void)state;
    for (int ranks = 3; ranks <= 8; ranks += 5)
        for (int victim = 0; victim < ranks; victim += (ranks - 1) / 2)
            run(ranks, dies, &(job){ .victim = victim });
}

/* ---- one after another, down to one ------------------------------------------------------------------------------------- */

static int dwindle(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gc_comm *comm, *smaller;
    gct_ok(gc_comm_split(world, 0, -rank, &comm));      /* the other way round: order is that of the communicator, not the world */
    for (int left = size; left > 1; left--) {
        gct_require(gc_size(comm) == left, "%d", gc_size(comm));
        if (exercise(comm))
            return 1;
        if (gc_rank(comm) == left * 7 % 3 % left) {
            gct_ok(gc_barrier(comm));
            return leave(world, j);
        }
        while (gc_barrier(comm) == GC_OK) { }
        gct_ok(gc_comm_shrink(comm, &smaller));
        if (is_without(smaller, comm, left * 7 % 3 % left))
            return 1;
        if (left % 2)
            gct_ok(gc_comm_free(comm));
        comm = smaller;
    }
    return finalize_broken(world, comm);
}

static void test_dwindle(void **state)
{
    (void)state;
    run(2, dwindle, &(job){ 0 });
    run(5, dwindle, &(job){ 0 });
    run(11, dwindle, &(job){ 0 });
}

/* ---- nobody has died ----------------------------------------------------------------------------------------------------- */

static int whole(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *back, *comm, *again;
    (void)arg;
    gct_require(gc_comm_shrink(NULL, &comm) == GC_ERR_ARG && gc_comm_shrink(world, NULL) == GC_ERR_ARG, "NULL");
    gct_ok(gc_comm_split(world, 0, -rank, &back));
    gct_ok(gc_comm_shrink(back, &comm));
    gct_require(gc_size(comm) == size && gc_rank(comm) == size - 1 - rank, "%d of %d", gc_rank(comm), gc_size(comm));
    for (int i = 0; i < 30; i++) {
        gct_ok(gc_comm_shrink(i % 3 ? world : comm, &again));
        if (exercise(again))
            return 1;
        gct_ok(gc_comm_free(again));
    }
    gct_ok(gc_comm_free(back));
    if (is_without(comm, comm, -1))
        return 1;
    gct_ok(gc_finalize(world));
    return 0;
}

static void test_whole(void **state)
{
    (void)state;
    static const int sizes[] = { 1, 2, 5, 8, 16 };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++)
        run(sizes[i], whole, &(job){ 0 });
}

/* ---- abort ---------------------------------------------------------------------------------------------------------------- */

static int aborts(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gc_comm *comm = world;
    char text[256];
    gc_barrier(world);                          /* that of others may still be on its way */
    if (rank == j->victim)
        gct_ok(gc_abort(world, size));
    int code = gc_comm_shrink(world, &comm);
    gct_require(code == GC_ERR_ABORTED && !comm, "%s", gc_strerror(code));
    gct_require(gc_last_error(world, NULL, text, sizeof text) == GC_ERR_ABORTED && strlen(text) > 5, "text");
    code = gc_finalize(world);
    gct_require(code == GC_ERR_ABORTED, "%s", gc_strerror(code));
    return 0;
}

static void test_abort(void **state)
{
    (void)state;
    for (int victim = 0; victim < 4; victim++)
        run(4, aborts, &(job){ .victim = victim });
}

/* ---- out of memory --------------------------------------------------------------------------------------------------------- */

/* One allocation fails: nothing has happened and a second call does, or the others have noticed nothing. */
static int scarce_memory(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gc_comm *comm;
    gct_ok(gc_barrier(world));
    if (rank == j->victim)
        j->account[rank].next = j->nth;
    int code = gc_comm_shrink(world, &comm);
    if (code == GC_ERR_NOMEM && rank == j->victim)
        code = gc_comm_shrink(world, &comm);
    j->account[rank].next = 0;
    gct_require(code == GC_OK && gc_size(comm) == size, "allocation %d: %s", j->nth, gc_strerror(code));
    if (exercise(comm))
        return 1;
    gct_ok(gc_finalize(world));
    return 0;
}

static void test_memory(void **state)
{
    (void)state;
    for (int nth = 1; nth <= 24; nth++)
        for (int victim = 0; victim < 3; victim += 2)
            run(3, scarce_memory, &(job){ .victim = victim, .nth = nth });
}

/* ---- several threads, each with a communicator of its own -------------------------------------------------------------------- */

typedef struct thread { gc_comm *comm, *smaller; int bad, rank, victim; } thread;

static int shrink_often(gc_comm *comm, int victim, gc_comm **out)
{
    gc_comm *smaller;
    gct_ok(gc_comm_shrink(comm, &smaller));
    *out = smaller;
    if (is_without(smaller, comm, victim))
        return 1;
    for (int i = 0; i < 10; i++) {
        gc_comm *again;
        gct_ok(gc_comm_shrink(smaller, &again));
        if (exercise(again))
            return 1;
        gct_ok(gc_comm_free(again));
    }
    return 0;
}

static void *in_thread(void *arg)
{
    thread *t = arg;
    gct_set_rank(t->rank);
    t->bad = shrink_often(t->comm, t->victim, &t->smaller);
    return NULL;
}

static int threads(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    thread own[THREADS];
    pthread_t running[THREADS];
    int failed = 0;
    (void)size;
    for (int i = 0; i < THREADS; i++) {
        own[i] = (thread){ .rank = rank, .victim = j->victim };
        gct_ok(gc_comm_split(world, 0, i % 2 ? -rank : rank, &own[i].comm));
        if (i % 2)
            own[i].victim = j->victim < 0 ? -1 : size - 1 - j->victim;
    }
    if (rank == j->victim) {
        gct_ok(gc_barrier(own[0].comm));
        return leave(world, j);
    }
    while (j->victim >= 0 && gc_barrier(own[0].comm) == GC_OK) { }
    for (int i = 0; i < THREADS; i++)
        gct_require(pthread_create(&running[i], NULL, in_thread, &own[i]) == 0, "thread %d", i);
    for (int i = 0; i < THREADS; i++) {
        pthread_join(running[i], NULL);
        failed |= own[i].bad;
    }
    return failed || (j->victim >= 0 ? finalize_broken(world, own[0].smaller) : gc_finalize(world));
}

static void test_threads(void **state)
{
    (void)state;
    if (gct_simulated(&(gct_spec){ .ranks = 1 }))
        return;                         /* its processes have no threads of their own */
    for (int victim = -1; victim < 4; victim++)
        run(4, threads, &(job){ .victim = victim });
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole), cmocka_unit_test(test_death), cmocka_unit_test(test_dwindle), cmocka_unit_test(test_abort),
        cmocka_unit_test(test_memory), cmocka_unit_test(test_threads)
    };
    return cmocka_run_group_tests_name("shrink", tests, NULL, NULL);
}
