/* test_message.c: messages between ranks, over every size class, order and completion call.
 * SPDX-License-Identifier: MIT
 */
#include "../gct.h"

#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

static const size_t sizes[] = { 0, 1, 2, 17, 1023, 1024, 1025, 4096, 16384, 65535, 65536, 65537, 200001, 1048576, 3000001 };
enum { SIZES = sizeof sizes / sizeof sizes[0] };

static void run(int ranks, gct_main *main, void *arg)
{
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .time_limit = 100 }, main, arg));
}

/* ---- a ring of every size ------------------------------------------------------------------------------------- */

static int ring(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    int next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < SIZES; i++) {
        uint8_t *out = gct_buffer(sizes[i]), *in = gct_buffer(sizes[i]);
        gc_status status;
        gct_fill(out, sizes[i], rank, i);
        gct_ok(gc_sendrecv(world, out, sizes[i], next, i, in, sizes[i], before, i, &status));
        gct_require(status.source == before && status.tag == i && status.bytes == sizes[i] && status.error == GC_OK,
                    "source %d tag %d bytes %zu", status.source, status.tag, status.bytes);
        gct_require(!gct_check(in, sizes[i], before, i) && !gct_buffer_free(in) && !gct_buffer_free(out), "size %zu", sizes[i]);
    }
    return 0;
}

static void test_ring(void **state)
{
    (void)state;
    static const int ranks[] = { 1, 2, 3, 5, 8, 11, 16 };
    for (size_t i = 0; i < sizeof ranks / sizeof ranks[0]; i++)
        run(ranks[i], ring, NULL);
}

/* ---- matching order: tags out of order, wildcards, many small ones --------------------------------------------- */

static int reverse_tags(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    enum { N = 40, BYTES = 3000 };
    if (rank > 1)
        return 0;
    uint8_t *buf[N];
    gc_request *request[N];
    for (int i = 0; i < N; i++) {
        size_t bytes = i % 4 == 3 ? 100000 : BYTES;
        buf[i] = gct_buffer(bytes);
        if (rank == 0) {
            gct_fill(buf[i], bytes, 0, i);
            gct_ok(gc_isend(world, buf[i], bytes, 1, i, &request[i]));
        }
    }
    if (rank == 0)
        gct_ok(gc_waitall(N, request, NULL));
    for (int i = N - 1; rank == 1 && i >= 0; i--) {
        size_t bytes = i % 4 == 3 ? 100000 : BYTES;
        gct_ok(gc_recv(world, buf[i], bytes, 0, i, NULL));
        gct_require(!gct_check(buf[i], bytes, 0, i), "tag %d", i);
    }
    for (int i = 0; i < N; i++)
        gct_require(!gct_buffer_free(buf[i]), "buffer %d", i);
    return 0;
}

static void test_reverse_tags(void **state)
{
    (void)state;
    run(2, reverse_tags, NULL);
}

/* Same tag: the order of sending, per source, whatever the sizes; also through wildcards. */
static int same_tag(gc_comm *world, int rank, int size, void *arg)
{
    bool any = arg != NULL;
    enum { N = 60 };
    if (rank > 0) {
        for (int i = 0; i < N; i++) {
            size_t bytes = sizes[(i * 7 + rank) % (SIZES - 2)] + 8;
            uint8_t *buf = gct_buffer(bytes);
            gct_fill(buf, bytes, rank, i);
            gct_ok(gc_send(world, buf, bytes, 0, 5));
            gct_require(!gct_buffer_free(buf), "send %d", i);
        }
        return 0;
    }
    int *seen = calloc((size_t)size, sizeof *seen), wrong = 0;
    uint8_t *buf = gct_buffer(4000000);
    for (int i = 0; i < N * (size - 1) && !wrong; i++) {
        gc_status status;
        gct_ok(gc_recv(world, buf, 4000000, any ? GC_ANY_SOURCE : 1 + i / N, any ? GC_ANY_TAG : 5, &status));
        wrong = gct_check(buf, status.bytes, status.source, seen[status.source]++);
    }
    free(seen);
    gct_require(!wrong && !gct_buffer_free(buf), "order or data");
    return 0;
}

static void test_same_tag(void **state)
{
    (void)state;
    run(3, same_tag, NULL);
    run(5, same_tag, "any");
}

/* ---- everybody to everybody, all at once ----------------------------------------------------------------------- */

static int all_to_all(gc_comm *world, int rank, int size, void *arg)
{
    size_t bytes = *(const size_t *)arg;
    gc_request **request = calloc((size_t)size * 2, sizeof(gc_request *));
    uint8_t **buf = calloc((size_t)size * 2, sizeof(uint8_t *));
    for (int peer = 0; peer < size; peer++) {
        buf[peer] = gct_buffer(bytes);
        buf[size + peer] = gct_buffer(bytes);
        gct_fill(buf[size + peer], bytes, rank, peer);
        gct_ok(gc_irecv(world, buf[peer], bytes, peer, 9, &request[peer]));
    }
    for (int i = 0; i < size; i++) {
        int peer = (rank + i) % size;
        gct_ok(gc_isend(world, buf[size + peer], bytes, peer, 9, &request[size + peer]));
    }
    gct_ok(gc_waitall(2 * size, request, NULL));
    for (int peer = 0; peer < size; peer++)
        gct_require(!gct_check(buf[peer], bytes, peer, rank), "from %d", peer);
    for (int i = 0; i < 2 * size; i++)
        gct_require(!gct_buffer_free(buf[i]), "buffer %d", i);
    free(request);
    free(buf);
    return 0;
}

static void test_all_to_all(void **state)
{
    (void)state;
    static const size_t bytes[] = { 1, 5000, 300000 };
    for (size_t i = 0; i < sizeof bytes / sizeof bytes[0]; i++)
        run(8, all_to_all, (void *)(uintptr_t)&bytes[i]);
}

/* ---- synchronous sends, truncation, probes, cancelling ---------------------------------------------------------- */

static int synchronous(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    uint8_t byte = 7;
    gc_request *request;
    if (rank == 0) {
        int done = 0;
        gct_ok(gc_issend(world, &byte, 1, 1, 1, &request));
        for (int i = 0; i < 50; i++) {
            gct_ok(gc_test(&request, &done, NULL));
            gct_require(!done, "complete before it was received");
        }
        gct_ok(gc_send(world, NULL, 0, 1, 2));
        gct_ok(gc_wait(&request, NULL));
        gct_require(request == NULL, "not NULL after wait");
    } else if (rank == 1) {
        gct_ok(gc_recv(world, NULL, 0, 0, 2, NULL));
        byte = 0;
        gct_ok(gc_recv(world, &byte, 1, 0, 1, NULL));
        gct_require(byte == 7, "%d", byte);
    }
    return 0;
}

static int truncated(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    static const size_t sent[] = { 10, 5000, 70000, 1000000 }, room[] = { 0, 1, 4000, 66000 };
    for (int i = 0; i < 4; i++)
        for (int k = 0; k < 4; k++) {
            uint8_t *buf = gct_buffer(1000000);
            gct_fill(buf, sent[i], 0, i);
            if (rank == 0) {
                gct_ok(gc_send(world, buf, sent[i], 1, 3));
                gct_ok(gc_send(world, "next", 5, 1, 3));
            } else if (rank == 1) {
                uint8_t *small = gct_buffer(room[k]);
                char next[8];
                gc_status status;
                int want = sent[i] > room[k] ? GC_ERR_TRUNCATE : GC_OK;
                int code = gc_recv(world, small, room[k], 0, 3, &status);
                size_t got = sent[i] < room[k] ? sent[i] : room[k];
                gct_require(code == want && status.error == want, "%s", gc_strerror(code));
                gct_require(status.bytes == got && !memcmp(small, buf, got), "%zu of %zu", status.bytes, got);
                gct_require(!gct_buffer_free(small), "overrun");
                gct_require(want == GC_OK || gc_last_error(world, NULL, NULL, 0) == GC_ERR_TRUNCATE, "last error");
                gct_ok(gc_recv(world, next, sizeof next, 0, 3, &status));
                gct_require(status.bytes == 5 && !strcmp(next, "next"), "the next message is not intact");
            }
            gct_require(!gct_buffer_free(buf), "buffer");
        }
    return 0;
}

static int probing(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    if (rank > 0) {
        uint8_t *buf = gct_buffer(100000);
        gct_fill(buf, 100000, rank, 0);
        gct_ok(gc_send(world, buf, (size_t)rank * 5000, 0, rank));
        gct_ok(gc_send(world, buf, 100000, 0, 100));
        gct_require(!gct_buffer_free(buf), "buffer");
        return 0;
    }
    int found = 1;
    gct_ok(gc_iprobe(world, 0, 0, &found, NULL));
    gct_require(!found, "found what nobody sent");
    uint8_t *buf = gct_buffer(100000);
    for (int peer = 1; peer < size; peer++) {
        gc_status status;
        gc_message *message;
        gct_ok(gc_probe(world, peer, 100, &status));        /* behind another one */
        gct_require(status.bytes == 100000 && status.tag == 100 && status.source == peer, "%zu", status.bytes);
        gct_ok(gc_mprobe(world, peer, GC_ANY_TAG, &message, &status));
        gct_require(status.tag == peer && status.bytes == (size_t)peer * 5000, "tag %d", status.tag);
        gct_ok(gc_recv(world, buf, 100000, peer, GC_ANY_TAG, &status));
        gct_require(status.tag == 100 && !gct_check(buf, 100000, peer, 0), "the other one");
        gct_ok(gc_mrecv(&message, buf, 100000, &status));
        gct_require(message == NULL && status.bytes == (size_t)peer * 5000 && status.source == peer, "mrecv");
    }
    gct_require(!gct_buffer_free(buf), "buffer");
    return 0;
}

static int cancelling(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    char text[8];
    gc_request *request;
    gc_status status;
    gct_ok(gc_irecv(world, text, sizeof text, GC_ANY_SOURCE, 77, &request));
    gct_require(gc_wait_for(&request, 0.01, NULL) == GC_ERR_TIMEOUT && request, "nobody sent");
    gct_ok(gc_cancel(request));
    gct_require(gc_wait(&request, &status) == GC_ERR_CANCELLED && !request && status.error == GC_ERR_CANCELLED, "cancelled");
    gct_ok(gc_wait(&request, &status));
    if (rank == 0) {
        gct_ok(gc_send(world, "still", 6, 1, 77));
    } else if (rank == 1) {
        gct_ok(gc_recv(world, text, sizeof text, 0, 77, NULL));
        gct_require(!strcmp(text, "still"), "%s", text);
    }
    return 0;
}

/* Both sides have come to the same point, by messages that get past others. */
static int meet(gc_comm *world, int rank)
{
    enum { TAG = 900 };
    return gc_sendrecv(world, NULL, 0, !rank, TAG, NULL, 0, !rank, TAG, NULL);
}

enum { UNTIL_GRANTED = 5 << 20 };       /* bytes: longer than any window */

/* What has been announced, and nobody has asked for, comes back; what the receiver has taken does not. */
static int cancelling_sends(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    static const size_t bytes[] = { UNTIL_GRANTED, 1, 0 };
    for (int i = 0; i < 6; i++) {
        size_t n = bytes[i / 2];
        uint8_t *buf = gct_buffer(n), byte = 0;
        bool taken = i % 2;
        gc_message *message = NULL;
        gc_request *request = NULL;
        gc_status status;
        gct_fill(buf, rank == 0 ? n : 0, 0, i);
        if (rank == 0)
            gct_ok(n == UNTIL_GRANTED ? gc_isend(world, buf, n, 1, i, &request) : gc_issend(world, buf, n, 1, i, &request));
        gct_ok(meet(world, rank));
        if (rank == 1 && taken)
            gct_ok(gc_mprobe(world, 0, i, &message, NULL));
        gct_ok(meet(world, rank));
        if (rank == 0) {
            gct_ok(gc_cancel(request));
            gct_ok(gc_cancel(request));
            int want = taken ? GC_ERR_TIMEOUT : GC_ERR_CANCELLED;
            gct_require(gc_wait_for(&request, taken ? 0.05 : 20, NULL) == want, "%zu bytes, taken %d", n, taken);
        }
        gct_ok(meet(world, rank));
        if (rank == 1 && taken) {
            gct_ok(gc_mrecv(&message, buf, n, &status));
            gct_require(status.bytes == n && !gct_check(buf, n, 0, i), "what was taken");
        }
        gct_ok(gc_wait(&request, NULL));
        if (rank == 0)
            gct_ok(gc_send(world, "n", 1, 1, i));
        else
            gct_ok(gc_recv(world, &byte, 1, 0, GC_ANY_TAG, NULL));
        gct_require(rank == 0 || byte == 'n', "the next message");
        gct_require(!gct_buffer_free(buf), "buffer");
    }
    return 0;
}

/* Many at a time, beyond all credits, while others are received: each arrives, or is cancelled, and those that arrive do so in
 * order. */
static int cancelling_some(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    enum { N = 150, BYTES = 70000 };
    gc_request *request[N];
    gc_status status[N];
    uint8_t *buf = gct_buffer(BYTES), arrives[N] = { 0 };
    gct_fill(buf, rank == 0 ? BYTES : 0, 0, 0);
    for (int i = 0; rank == 0 && i < N; i++)
        gct_ok(i % 3 ? gc_isend(world, buf, i % 3 == 1 ? BYTES : 10, 1, i, &request[i])
                     : gc_issend(world, buf, 1, 1, i, &request[i]));
    for (int i = 0; rank == 1 && i < N / 3; i++) {
        gct_ok(gc_recv(world, buf, BYTES, 0, GC_ANY_TAG, status));
        gct_require(status->tag == i && status->bytes == (i % 3 == 1 ? BYTES : i % 3 ? 10 : 1), "%d is %d", i, status->tag);
    }
    for (int i = N - 1; rank == 0 && i >= N / 3; i -= 1 + i % 2)
        gct_ok(gc_cancel(request[i]));
    if (rank == 0) {
        gc_request *note;
        gct_ok(gc_issend(world, NULL, 0, 1, N, &note));     /* the other one is told by then, and goes on receiving */
        for (int i = 0; i < N; i++) {
            int code = gc_wait(&request[i], &status[i]);
            gct_require(code == GC_OK || (code == GC_ERR_CANCELLED && i >= N / 3), "%d: %s", i, gc_strerror(code));
            arrives[i] = code == GC_OK;
        }
        gct_ok(gc_wait(&note, NULL));
        gct_ok(gc_send(world, arrives, N, 1, N + 1));
    } else {
        uint8_t came[N] = { 0 };
        for (int last = N / 3 - 1;;) {
            gct_ok(gc_recv(world, buf, BYTES, 0, GC_ANY_TAG, status));
            gct_require(status->tag > last, "%d after %d", status->tag, last);
            last = status->tag;
            if (last == N)
                break;
            came[last] = 1;
            gct_require(status->bytes < BYTES || !gct_check(buf, BYTES, 0, 0), "bytes of %d", last);
        }
        gct_ok(gc_recv(world, arrives, N, 0, N + 1, NULL));
        gct_require(!memcmp(came + N / 3, arrives + N / 3, N - N / 3), "what arrives");
    }
    gct_require(!gct_buffer_free(buf), "buffer");
    return 0;
}

/* To oneself: the same. */
static int cancelling_alone(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    gc_request *request;
    gc_message *message;
    char in = 0;
    int found;
    gct_ok(gc_issend(world, "a", 1, rank, 1, &request));
    gct_ok(gc_cancel(request));
    gct_require(gc_wait_for(&request, 0, NULL) == GC_ERR_CANCELLED, "to oneself");
    gct_ok(gc_iprobe(world, GC_ANY_SOURCE, GC_ANY_TAG, &found, NULL));
    gct_require(!found, "still there");
    gct_ok(gc_issend(world, "b", 1, rank, 1, &request));
    gct_ok(gc_mprobe(world, rank, 1, &message, NULL));
    gct_ok(gc_cancel(request));
    gct_require(gc_wait_for(&request, 0, NULL) == GC_ERR_TIMEOUT, "taken");
    gct_ok(gc_mrecv(&message, &in, 1, NULL));
    gct_ok(gc_wait(&request, NULL));
    gct_require(in == 'b', "%c", in);
    gct_ok(gc_ibarrier(world, &request));
    gct_require(gc_cancel(request) == GC_ERR_ARG && gc_cancel(NULL) == GC_ERR_ARG, "no message");
    gct_ok(gc_wait(&request, NULL));
    return 0;
}

static int completion(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)size;
    enum { N = 6 };
    gc_request *request[N] = { NULL };
    gc_status status[N];
    int value[N], index, done, seen = 0;
    gct_ok(gc_waitany(N, request, &index, &status[0]));
    gct_require(index == -1, "index %d", index);
    gct_ok(gc_waitall(N, request, status));
    gct_ok(gc_testall(N, request, &done, NULL));
    gct_require(done, "nothing is complete");
    if (rank == 0)
        for (int i = 0; i < 3 * N; i++)
            gct_ok(gc_send(world, &i, sizeof i, 1, i));
    if (rank != 1)
        return 0;
    for (int i = 0; i < N; i++)
        gct_ok(gc_irecv(world, &value[i], sizeof(int), 0, i, &request[i]));
    for (int i = 0; i < N; i++) {
        gct_ok(gc_waitany(N, request, &index, &status[0]));
        gct_require(index >= 0 && !request[index] && value[index] == index && !(seen & 1 << index), "index %d", index);
        seen |= 1 << index;
    }
    for (int i = 0; i < N; i++)
        gct_ok(gc_irecv(world, &value[i], sizeof(int), 0, N + i, &request[i]));
    for (done = 0; !done;)
        gct_ok(gc_testall(N, request, &done, status));
    for (int i = 0; i < N; i++)
        gct_require(!request[i] && value[i] == N + i && status[i].tag == N + i, "request %d", i);
    for (int i = 0; i < N; i++)
        gct_ok(gc_irecv(world, &value[i], sizeof(int), 0, 2 * N + i, &request[i]));
    for (int left = N; left > 0; left -= done)
        gct_ok(gc_testany(N, request, &index, &done, status));
    for (int i = 0; i < N; i++)
        gct_require(value[i] == 2 * N + i, "value %d", value[i]);
    return 0;
}

static int wrong_arguments(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)rank;
    gc_request *request = NULL;
    int found;
    gct_require(gc_send(world, "x", 1, size, 0) == GC_ERR_ARG, "rank beyond");
    gct_require(gc_send(world, "x", 1, -1, 0) == GC_ERR_ARG, "rank below");
    gct_require(gc_send(world, "x", 1, 0, -1) == GC_ERR_ARG, "negative tag");
    gct_require(gc_send(world, "x", 1, 0, GC_TAG_MAX + 1) == GC_ERR_ARG, "tag beyond");
    gct_require(gc_send(world, NULL, 1, 0, 0) == GC_ERR_ARG, "no buffer");
    gct_require(gc_recv(world, NULL, 1, 0, 0, NULL) == GC_ERR_ARG, "no buffer");
    gct_require(gc_recv(world, NULL, 0, -2, 0, NULL) == GC_ERR_ARG, "rank -2");
    gct_require(gc_irecv(world, NULL, 0, 0, -2, &request) == GC_ERR_ARG && !request, "tag -2");
    gct_require(gc_isend(world, "x", 1, 0, 0, NULL) == GC_ERR_ARG, "no request");
    gct_require(gc_send(NULL, "x", 1, 0, 0) == GC_ERR_ARG, "no communicator");
    gct_require(gc_iprobe(world, 0, 0, NULL, NULL) == GC_ERR_ARG, "no found");
    gct_require(gc_iprobe(world, size, 0, &found, NULL) == GC_ERR_ARG, "rank beyond");
    gct_require(gc_wait(NULL, NULL) == GC_ERR_ARG && gc_waitall(-1, NULL, NULL) == GC_ERR_ARG, "wait");
    gct_require(gc_comm_free(world) == GC_ERR_ARG, "the world cannot be freed");
    gct_require(gc_rank(NULL) == GC_ERR_ARG && gc_size(NULL) == GC_ERR_ARG, "NULL");
    char text[200];
    gct_require(gc_send(world, "x", 1, size, 0) == GC_ERR_ARG &&
                gc_last_error(world, NULL, text, sizeof text) == GC_ERR_ARG && strlen(text) > 5, "text");
    return 0;
}

#define PAIR_TEST(name, ranks) static void test_##name(void **state) { (void)state; run(ranks, name, NULL); }
PAIR_TEST(synchronous, 2)
PAIR_TEST(truncated, 2)
PAIR_TEST(probing, 4)
PAIR_TEST(cancelling, 2)
PAIR_TEST(cancelling_sends, 2)
PAIR_TEST(cancelling_some, 2)
PAIR_TEST(cancelling_alone, 2)
PAIR_TEST(completion, 2)
PAIR_TEST(wrong_arguments, 2)

/* ---- a program with a poll loop of its own ----------------------------------------------------------------------- */

/* Everybody waits for another rank in a collective that nobody sends in: only a timer can find that out. */
static int poll_loop(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    char byte = 1;
    int done = 0, code = GC_OK;
    gc_request *request;
    gct_ok(gc_barrier(world));
    struct pollfd at = { .fd = gc_pollfd(world), .events = POLLIN };
    gct_require(at.fd >= 0, "%d", at.fd);
    gct_ok(gc_ibcast(world, &byte, 1, (rank + 1) % size, &request));
    for (int i = 0; !done && i < 1000; i++) {
        gct_require(poll(&at, 1, 10000) == 1, "nothing for 10 s");
        gct_require(gc_progress(world) >= 0, "progress");
        code = gc_test(&request, &done, NULL);
    }
    gct_require(done && code == GC_ERR_MISMATCH, "%s", gc_strerror(code));
    gct_ok(gc_barrier(world));
    return 0;
}

static void test_poll_loop(void **state)
{
    (void)state;
    if (!gct_simulated(&(gct_spec){ .ranks = 3 }))      /* poll() knows real descriptors only */
        run(3, poll_loop, NULL);
}

/* ---- pending requests at the end --------------------------------------------------------------------------------- */

static int pending_at_the_end(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg, (void)rank, (void)size;
    gc_request *request;
    char byte;
    gct_ok(gc_irecv(world, &byte, 1, GC_ANY_SOURCE, 1, &request));
    gct_require(gc_finalize(world) == GC_ERR_PENDING, "finalize with a receive pending");
    gct_ok(gc_cancel(request));
    gct_require(gc_wait(&request, NULL) == GC_ERR_CANCELLED, "cancelled");
    return 0;
}

PAIR_TEST(pending_at_the_end, 3)

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_wrong_arguments), cmocka_unit_test(test_ring), cmocka_unit_test(test_reverse_tags),
        cmocka_unit_test(test_same_tag), cmocka_unit_test(test_all_to_all), cmocka_unit_test(test_synchronous),
        cmocka_unit_test(test_truncated), cmocka_unit_test(test_probing), cmocka_unit_test(test_cancelling),
        cmocka_unit_test(test_cancelling_sends), cmocka_unit_test(test_cancelling_some), cmocka_unit_test(test_cancelling_alone),
        cmocka_unit_test(test_completion), cmocka_unit_test(test_pending_at_the_end),
        cmocka_unit_test(test_poll_loop),
    };
    return cmocka_run_group_tests_name("message", tests, NULL, NULL);
}
