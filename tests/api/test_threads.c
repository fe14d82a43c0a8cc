/* test_threads.c: several threads of each rank in the library at once.
 * SPDX-License-Identifier: MIT
 *
 * A simulated process has the contexts that the library makes and no others: there the same traffic is started by one thread,
 * all of it under way at once.
 */
#define _POSIX_C_SOURCE 200809L
#include "../gct.h"

#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { THREADS_MAX = 8 };

/* ---- threads of a rank ------------------------------------------------------------------------------------------------ */

typedef struct strand {
    gc_comm *comm;
    int      number, rank, size, bad;   /* rank, size: in comm */
    int      of_rank;                   /* of the world, for what is printed */
    int    (*run)(struct strand *);
    void    *arg;
    pthread_t thread;
} strand;

static void *strand_main(void *of)
{
    strand *s = of;
    gct_set_rank(s->of_rank);
    s->bad = s->run(s);
    return NULL;
}

/* Runs them all, comm[i] for each, and waits for their end. Returns how many failed. */
static int strands(gc_comm *comm[], int n, int (*run)(strand *), void *arg)
{
    strand all[THREADS_MAX];
    int bad = 0;
    for (int i = 0; i < n; i++) {
        all[i] = (strand){ .comm = comm[i], .number = i, .rank = gc_rank(comm[i]), .size = gc_size(comm[i]),
                           .of_rank = gct_rank(), .run = run, .arg = arg };
        if (pthread_create(&all[i].thread, NULL, strand_main, &all[i]) != 0)
            abort();
    }
    for (int i = 0; i < n; i++) {
        pthread_join(all[i].thread, NULL);
        bad += all[i].bad;
    }
    return bad;
}

static int duplicates(gc_comm *world, gc_comm *comm[], int n)
{
    for (int i = 0; i < n; i++)
        gct_ok(gc_comm_dup(world, &comm[i]));
    return 0;
}

static const size_t sizes[] = { 1, 17, 1000, 1025, 5000, 70000, 200000 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

/* ---- a communicator for each thread: messages and collectives ------------------------------------------------------- */

static int mixed_round(const strand *s, int round, uint8_t *out, uint8_t *in)
{
    size_t bytes = sizes[(round + s->number) % SIZES];
    int salt = s->number * 1000 + round, before = (s->rank + s->size - 1) % s->size;
    gc_request *request;
    gct_fill(out, bytes, s->rank, salt);
    gct_ok(gc_sendrecv(s->comm, out, bytes, (s->rank + 1) % s->size, round,
                       in, bytes, round % 2 ? before : GC_ANY_SOURCE, round, NULL));
    gct_require(!gct_check(in, bytes, before, salt), "thread %d, round %d", s->number, round);
    gct_ok(gc_bcast(s->comm, out, bytes, round % s->size));
    gct_require(!gct_check(out, bytes, round % s->size, salt), "bcast, thread %d, round %d", s->number, round);
    int64_t mine = salt, sum = 0;
    gct_ok(gc_iallreduce(s->comm, &mine, &sum, 1, GC_INT64, GC_SUM, &request));
    gct_ok(gc_wait(&request, NULL));
    gct_require(sum == (int64_t)salt * s->size, "sum %lld, thread %d, round %d", (long long)sum, s->number, round);
    return 0;
}

static int mixed(strand *s)
{
    enum { ROUNDS = 60 };
    uint8_t *out = gct_buffer(sizes[SIZES - 1]), *in = gct_buffer(sizes[SIZES - 1]);
    for (int round = 0; round < ROUNDS; round++) {
        if (mixed_round(s, round, out, in))
            return 1;
        if (round % 10 == 9) {          /* making and freeing communicators, too */
            gc_comm *part;
            gct_ok(gc_comm_split(s->comm, s->rank % 2, 0, &part));
            gct_ok(gc_barrier(part));
            gct_ok(gc_comm_free(part));
        }
    }
    return gct_buffer_free(out) + gct_buffer_free(in);
}

static int own_communicators(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 4 };
    gc_comm *comm[N];
    (void)rank, (void)size, (void)arg;
    return duplicates(world, comm, N) || strands(comm, N, mixed, NULL);
}

static void test_own_communicators(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i], .time_limit = 250 }, own_communicators, NULL));
}

/* ---- one communicator for all threads: each has its tags ------------------------------------------------------------ */

static int tagged(strand *s)
{
    enum { ROUNDS = 100 };
    uint8_t *out = gct_buffer(sizes[SIZES - 1]), *in = gct_buffer(sizes[SIZES - 1]);
    for (int round = 0; round < ROUNDS; round++) {
        size_t bytes = sizes[(round * 3 + s->number) % SIZES];
        int tag = s->number, salt = s->number * 1000 + round, before = (s->rank + s->size - 1) % s->size;
        gc_request *request[2];
        gc_status status[2];
        gct_fill(out, bytes, s->rank, salt);
        gct_ok(gc_irecv(s->comm, in, sizes[SIZES - 1], round % 3 ? before : GC_ANY_SOURCE, tag, &request[0]));
        gct_ok((round % 5 ? gc_isend : gc_issend)(s->comm, out, bytes, (s->rank + 1) % s->size, tag, &request[1]));
        if (round % 2) {
            gct_ok(gc_waitall(2, request, status));
        } else {
            int done = 0;
            while (!done) {
                sched_yield();          /* who looks all the time would keep the others from the lock */
                gct_ok(gc_testall(2, request, &done, status));
            }
        }
        gct_require(status[0].bytes == bytes && status[0].source == before && !gct_check(in, bytes, before, salt),
                    "thread %d, round %d", s->number, round);
    }
    return gct_buffer_free(out) + gct_buffer_free(in);
}

static int one_communicator(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 6 };
    gc_comm *comm[N] = { world, world, world, world, world, world };
    (void)rank, (void)size, (void)arg;
    return strands(comm, N, tagged, NULL);
}

static void test_one_communicator(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5 };
    for (int i = 0; i < 4; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i], .time_limit = 250 }, one_communicator, NULL));
}

/* ---- one thread is blocked while another works --------------------------------------------------------------------- */

/* Thread 0 waits for what comes only when thread 1 is through with everything, which needs the same two ranks. */
static int blocked_or_not(strand *s)
{
    enum { ROUNDS = 300, LAST = 7, PING = 8 };
    int value = 0, peer = 1 - s->rank;
    if (s->number == 0) {
        gct_ok(gc_recv(s->comm, &value, sizeof value, GC_ANY_SOURCE, LAST, NULL));
        gct_require(value == 4711, "%d", value);
        return 0;
    }
    for (int i = 0; i < ROUNDS; i++) {
        if (s->rank == 0)
            gct_ok(gc_send(s->comm, &i, sizeof i, peer, PING));
        gct_ok(gc_recv(s->comm, &value, sizeof value, peer, PING, NULL));
        gct_require(value == i, "%d instead of %d", value, i);
        if (s->rank == 1)
            gct_ok(gc_send(s->comm, &i, sizeof i, peer, PING));
    }
    value = 4711;
    gct_ok(gc_send(s->comm, &value, sizeof value, peer, LAST));
    return 0;
}

static int blocked(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *comm[2] = { world, world };
    (void)rank, (void)size, (void)arg;
    return strands(comm, 2, blocked_or_not, NULL);
}

/* A thread sends to another of the same rank, which waits already. */
static int to_itself(strand *s)
{
    enum { ROUNDS = 200 };
    int value = -1;
    for (int i = 0; i < ROUNDS; i++) {
        int other = 1 - s->number;
        if (s->number == 0)
            gct_ok(gc_ssend(s->comm, &i, sizeof i, s->rank, other));
        gct_ok(gc_recv(s->comm, &value, sizeof value, s->rank, s->number, NULL));
        gct_require(value == i, "%d instead of %d", value, i);
        if (s->number == 1)
            gct_ok(gc_ssend(s->comm, &i, sizeof i, s->rank, other));
    }
    return 0;
}

static int within(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *comm[2] = { world, world };
    (void)rank, (void)size, (void)arg;
    return strands(comm, 2, to_itself, NULL);
}

static void test_blocked(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2 }, blocked, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1 }, within, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3 }, within, NULL));
}

/* ---- eight threads, two thousand messages each ------------------------------------------------------------------- */

enum { FLOOD = 2000, FLOOD_BYTES = 64 };

/* Even threads send to the other rank, odd ones receive from it by tag: in order, complete. */
static int flood(strand *s)
{
    uint8_t buf[FLOOD_BYTES];
    int peer = (s->rank + 1) % s->size, before = (s->rank + s->size - 1) % s->size, pair = s->number / 2;
    for (int i = 0; i < FLOOD; i++) {
        size_t bytes = 8 + (size_t)i % (FLOOD_BYTES - 8);
        if (s->number % 2 == 0) {
            gct_fill(buf, bytes, pair, i);
            gct_ok(gc_send(s->comm, buf, bytes, peer, pair));
            continue;
        }
        gc_status status;
        gct_ok(gc_recv(s->comm, buf, sizeof buf, before, pair, &status));
        gct_require(status.bytes == bytes && !gct_check(buf, bytes, pair, i), "message %d of pair %d", i, pair);
    }
    return 0;
}

/* Half of the threads send, half receive whatever comes, by the matched probe; together they see each message once. */
static int wild(strand *s)
{
    atomic_int *seen = s->arg;          /* [FLOOD * THREADS_MAX / 2] */
    int value[16] = { 0 }, peer = (s->rank + 1) % s->size;
    for (int i = 0; i < FLOOD; i++) {
        gc_message *message;
        gc_status status;
        if (s->number % 2 == 0) {
            value[0] = value[15] = s->number / 2 * FLOOD + i;
            gct_ok(gc_send(s->comm, value, sizeof value, peer, i % 7));
        } else if (s->number % 4 == 1) {
            gct_ok(gc_recv(s->comm, value, sizeof value, GC_ANY_SOURCE, GC_ANY_TAG, &status));
        } else {
            gct_ok(gc_mprobe(s->comm, GC_ANY_SOURCE, GC_ANY_TAG, &message, &status));
            gct_ok(gc_mrecv(&message, value, sizeof value, &status));
        }
        if (s->number % 2) {
            gct_require(status.bytes == sizeof value && value[0] == value[15] &&
                        value[0] >= 0 && value[0] < FLOOD * THREADS_MAX / 2 &&
                        status.tag == value[0] % FLOOD % 7, "%zu bytes, value %d, tag %d", status.bytes, value[0], status.tag);
            atomic_fetch_add(&seen[value[0]], 1);
        }
    }
    return 0;
}

static int flooding(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *comm[THREADS_MAX];
    (void)rank, (void)size;
    for (int i = 0; i < THREADS_MAX; i++)
        comm[i] = world;
    if (!arg)
        return strands(comm, THREADS_MAX, flood, NULL);
    atomic_int *seen = gct_buffer(sizeof *seen * FLOOD * THREADS_MAX / 2);
    for (int i = 0; i < FLOOD * THREADS_MAX / 2; i++)
        atomic_init(&seen[i], 0);
    int bad = strands(comm, THREADS_MAX, wild, seen);
    for (int i = 0; i < FLOOD * THREADS_MAX / 2 && !bad; i++)
        gct_require(seen[i] == 1, "message %d came %d times", i, seen[i]);
    return bad + gct_buffer_free(seen);
}

static void one_credit(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->credits = 1;
    o->queue_packets = 1;
}

static void test_flood(void **state)
{
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2, .time_limit = 250 }, flooding, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .time_limit = 250 }, flooding, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2, .time_limit = 250 }, flooding, "wild"));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 2, .time_limit = 250, .options = one_credit }, flooding, NULL));
}

/* ---- an abort from another thread ends what this one waits for ---------------------------------------------------- */

/* Three threads in three calls; the fourth, of the last rank, aborts when those of its own rank wait. */
static int waits_or_aborts(strand *s)
{
    enum { GO = 5, NEVER = 6 };
    bool last = s->rank == s->size - 1;
    char byte = 0;
    gc_status status;
    int code = GC_OK;
    if (s->number == 3) {
        for (int i = 0; i < 3 && code == GC_OK; i++)
            code = gc_recv(s->comm, &byte, 1, s->rank, GO, NULL);
        gct_require(code == GC_OK || (code == GC_ERR_ABORTED && !last), "%s", gc_strerror(code));
        return last ? gc_abort(s->comm, 3) != GC_OK : 0;
    }
    code = gc_send(s->comm, &byte, 1, s->rank, GO);
    if (code == GC_OK)
        code = s->number == 0 ? gc_recv(s->comm, &byte, 1, GC_ANY_SOURCE, NEVER, NULL)
             : s->number == 1 ? gc_probe(s->comm, GC_ANY_SOURCE, NEVER, &status)
                              : gc_ssend(s->comm, &byte, 1, (s->rank + 1) % s->size, NEVER + 1);
    gct_require(code == GC_ERR_ABORTED, "thread %d: %s", s->number, gc_strerror(code));
    return 0;
}

static int abort_by_thread(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *comm[4] = { world, world, world, world };
    (void)rank, (void)size, (void)arg;
    int bad = strands(comm, 4, waits_or_aborts, NULL);
    gct_require(gc_finalize(world) == GC_ERR_ABORTED, "finalize");
    return bad;
}

static void test_abort_by_thread(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1 + i % 3, .finalizes = true }, abort_by_thread, NULL));
}

/* ---- the same by one thread, on any network -------------------------------------------------------------------------- */

static int all_at_once(gc_comm *world, int rank, int size, void *arg)
{
    enum { COMMS = 6, EACH = 3, BYTES = 3000 };
    gc_comm *comm[COMMS];
    gc_request *request[COMMS * EACH];
    uint8_t *out = gct_buffer(COMMS * BYTES), *in = gct_buffer(COMMS * BYTES);
    int64_t mine[COMMS], sum[COMMS];
    int before = (rank + size - 1) % size, index;
    (void)arg;
    if (duplicates(world, comm, COMMS))
        return 1;
    for (int round = 0; round < 10; round++) {
        for (int i = 0; i < COMMS; i++) {
            mine[i] = rank + i + round;
            gct_fill(out + i * BYTES, BYTES, rank, i + round);
            gct_ok(gc_irecv(comm[i], in + i * BYTES, BYTES, before, i, &request[i * EACH]));
            gct_ok(gc_isend(comm[i], out + i * BYTES, BYTES, (rank + 1) % size, i, &request[i * EACH + 1]));
            gct_ok(gc_iallreduce(comm[i], &mine[i], &sum[i], 1, GC_INT64, GC_SUM, &request[i * EACH + 2]));
        }
        for (int i = 0; i < COMMS * EACH; i++)
            gct_ok(gc_waitany(COMMS * EACH, request, &index, NULL));
        for (int i = 0; i < COMMS; i++)
            gct_require(!gct_check(in + i * BYTES, BYTES, before, i + round) &&
                        sum[i] == (int64_t)size * (size - 1) / 2 + (int64_t)size * (i + round), "communicator %d", i);
    }
    return gct_buffer_free(out) + gct_buffer_free(in);
}

static void test_all_at_once(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 5; ranks++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks }, all_at_once, NULL));
}

/* Threads of one communicator make others of it, each with its own list; only the tags tell them apart. */
static int making_round(strand *s)
{
    enum { ROUNDS = 30 };
    int n = s->size - s->number % 2, list[16];
    for (int i = 0; i < n; i++)
        list[i] = (i + s->number) % n;
    for (int round = 0; round < ROUNDS; round++) {
        gc_comm *made;
        gct_ok(gc_comm_create_tagged(s->comm, list, n, s->number, &made));
        gct_require((made != NULL) == (s->rank < n), "thread %d", s->number);
        if (!made)
            continue;
        int64_t one = s->number, sum = 0;
        gct_ok(gc_allreduce(made, &one, &sum, 1, GC_INT64, GC_SUM));
        gct_require(sum == (int64_t)s->number * n && gc_rank(made) == (s->rank - s->number % n + n) % n, "thread %d", s->number);
        gct_ok(gc_comm_free(made));
    }
    return 0;
}

static int making(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 5 };
    gc_comm *comm[N], *made;
    (void)rank, (void)size, (void)arg;
    for (int i = 0; i < N; i++)
        comm[i] = world;
    gct_require(gc_comm_create_tagged(world, &rank, 1, -1, &made) == GC_ERR_ARG && !made, "tag -1");
    return strands(comm, N, making_round, NULL);
}

static void test_making(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 5; ranks++)
        assert_int_equal(0, gct_job(&(gct_spec){ .on = GCT_ON_REAL, .ranks = ranks }, making, NULL));
}

int main(void)
{
    const struct CMUnitTest anywhere[] = { cmocka_unit_test(test_all_at_once) };
    const struct CMUnitTest real[] = {
        cmocka_unit_test(test_own_communicators), cmocka_unit_test(test_one_communicator), cmocka_unit_test(test_blocked),
        cmocka_unit_test(test_flood), cmocka_unit_test(test_abort_by_thread),
        cmocka_unit_test(test_making),
    };
    int failed = cmocka_run_group_tests_name("threads", anywhere, NULL, NULL);
    if (!gct_simulated(&(gct_spec){ .on = GCT_ON_REAL, .ranks = 2 }))
        failed += cmocka_run_group_tests_name("threads, real sockets", real, NULL, NULL);
    return failed;
}
