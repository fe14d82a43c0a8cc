/* bench_gc.c: what gridcomm does, measured through its public API as peer_tcp and bench_mpi measure theirs.
 *
 * SPDX-License-Identifier: MIT
 *
 *     bench_gc pingpong BYTES      half a round trip in us between the first and the last rank
 *     bench_gc stream BYTES        byte/s of messages from the first to the last rank, each answered by one byte
 *     bench_gc under BYTES         half a round trip of one byte, in s, while one message of BYTES flows to the same peer
 *     bench_gc allreduce COUNT     two numbers, us: COUNT int64 summed by all ranks, one by one and in a row
 *     bench_gc gather BYTES        three numbers, ms: the median, least and most of gathers of so many bytes from each rank
 *     bench_gc alltoall BYTES      the same for so many bytes from each rank to each, all of them sent at once
 *     bench_gc start INSTANT       s from INSTANT (ns of CLOCK_MONOTONIC) until the last rank has left the first barrier
 *     bench_gc now                 prints such an instant; no job
 *
 * Rank 0 prints. In the first three, ranks between the first and the last exchange a message with both and then wait: they
 * are the idle peers.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { TAG_PING, TAG_FLOW, TAG_IDLE, TAG_END,
       UNDER_WARM = 3, UNDER_PINGS = 40,        /* ping-pongs under a flow: each may take most of a second */
       TAG_ALL,
       SPREAD_SAMPLES = 20, SPREAD_WARM = 3,    /* operations that may take a retransmission's 200 ms each */
       UNDER_LEAST = 5,                         /* that must have ended before the flow did */
       MESSAGE_MAX = 1 << 28, ALARM_SECONDS = 240 };

struct bench {
    gc_comm *world;
    int rank, size, last;
    size_t bytes, answer;
    char *buffer, *all;
    gc_request **request;           /* [2 * size] */
};

/* ---- ping-pong and stream ---- */

static int exchange(void *user)
{
    const struct bench *b = user;
    const int e = gc_send(b->world, b->buffer, b->bytes, b->last, TAG_PING);
    return e ? e : gc_recv(b->world, b->buffer, b->answer, b->last, TAG_PING, NULL);
}

/* The last rank answers until an empty message comes. */
static int answer(const struct bench *b)
{
    for (;;) {
        gc_status s;
        const int e = gc_recv(b->world, b->buffer, b->bytes, 0, TAG_PING, &s);
        if (e || s.bytes == 0) return e;
        const int f = gc_send(b->world, b->buffer, b->answer, 0, TAG_PING);
        if (f) return f;
    }
}

/* Connects every idle rank with both ends. */
static int greet(const struct bench *b)
{
    char byte = 0;
    const bool end = b->rank == 0 || b->rank == b->last;
    const int ends[] = { 0, b->last };
    int e = 0;
    for (int i = 1; i < b->last && !e && end; i++) {
        e = gc_recv(b->world, &byte, 1, i, TAG_IDLE, NULL);
        if (!e) e = gc_send(b->world, &byte, 1, i, TAG_IDLE);
    }
    for (int i = 0; i < 2 && !e && !end; i++) {
        e = gc_send(b->world, &byte, 1, ends[i], TAG_IDLE);
        if (!e) e = gc_recv(b->world, &byte, 1, ends[i], TAG_IDLE, NULL);
    }
    return e;
}

static int dismiss(const struct bench *b)
{
    int e = gc_send(b->world, NULL, 0, b->last, TAG_PING);
    for (int i = 1; i < b->last && !e; i++) e = gc_send(b->world, NULL, 0, i, TAG_END);
    return e;
}

static int two_ends(struct bench *b, bool stream)
{
    b->answer = stream ? 1 : b->bytes;
    const int e = greet(b);
    if (e) return e;
    if (b->rank == b->last) return answer(b);
    if (b->rank != 0) return gc_recv(b->world, NULL, 0, 0, TAG_END, NULL);
    const double seconds = measure_repeat(exchange, b);
    if (seconds <= 0) return GC_ERR_PEER;
    if (stream) printf("%.0f\n", (double)b->bytes / seconds);
    else printf("%.3f\n", seconds / 2 * 1e6);
    return dismiss(b);
}

/* ---- ping-pong under a flow ---- */

static int ping_under(struct bench *b, gc_request **flow)
{
    double half[UNDER_PINGS];
    int over = 0, n = 0;
    for (int i = -UNDER_WARM; i < UNDER_PINGS && !over; i++) {
        const int64_t begin = measure_now();
        int e = exchange(b);
        if (e) return e;
        const double seconds = (double)(measure_now() - begin) / 2e9;
        if ((e = gc_test(flow, &over, NULL)) != 0) return e;
        if (i >= 0 && !over) half[n++] = seconds;
    }
    if (n < UNDER_LEAST) fprintf(stderr, "bench_gc: the flow was over after %d ping-pongs\n", n);
    else printf("%.4f\n", measure_median(half, n));
    fflush(stdout);
    return dismiss(b);
}

static int under(struct bench *b)
{
    const size_t flow_bytes = b->bytes;
    gc_request *flow = NULL;
    char byte = 0, *all = b->buffer;
    int e = 0;
    if (b->rank == 0) e = gc_isend(b->world, all, flow_bytes, b->last, TAG_FLOW, &flow);
    else if (b->rank == b->last) e = gc_irecv(b->world, all, flow_bytes, 0, TAG_FLOW, &flow);
    b->bytes = b->answer = 1;
    b->buffer = &byte;
    if (!e && b->rank == 0) e = ping_under(b, &flow);
    else if (!e && b->rank == b->last) e = answer(b);
    else if (!e) e = gc_recv(b->world, NULL, 0, 0, TAG_END, NULL);
    const int f = gc_wait(&flow, NULL);
    b->buffer = all;
    return e ? e : f;
}

/* ---- collectives ---- */

static int do_barrier(void *user) { return gc_barrier(((struct bench *)user)->world); }

static int do_tell(void *user, int64_t *word) { return gc_bcast(((struct bench *)user)->world, word, sizeof *word, 0); }

static int do_allreduce(void *user)
{
    const struct bench *b = user;
    return gc_allreduce(b->world, b->buffer, b->buffer, b->bytes / sizeof(int64_t), GC_INT64, GC_SUM);
}

static int do_greatest(void *user, double *values, int n)
{
    const struct bench *b = user;
    return gc_reduce(b->world, values, values, (size_t)n, GC_DOUBLE, GC_MAX, 0);
}

static int allreduce(struct bench *b)
{
    const struct measure_job job = { b->rank, do_barrier, do_tell, do_allreduce, do_greatest, b };
    double alone = 0, row = 0;
    if (measure_collective(&job, &alone, &row) != 0) return GC_ERR_PEER;
    if (b->rank == 0) printf("%.2f %.2f\n", alone * 1e6, row * 1e6);
    return 0;
}

/* ---- incast ---- */

static int do_gather(void *user)
{
    const struct bench *b = user;
    return gc_gather(b->world, b->buffer, b->bytes, b->all, 0);
}

static int do_alltoall(void *user)
{
    const struct bench *b = user;
    int e = 0;
    for (int i = 1; i < b->size && !e; i++) {
        const int from = (b->rank + b->size - i) % b->size;
        e = gc_irecv(b->world, b->all + (size_t)from * b->bytes, b->bytes, from, TAG_ALL, &b->request[from]);
    }
    for (int i = 1; i < b->size && !e; i++) {
        const int to = (b->rank + i) % b->size;
        e = gc_isend(b->world, b->buffer, b->bytes, to, TAG_ALL, &b->request[b->size + to]);
    }
    const int f = gc_waitall(2 * b->size, b->request, NULL);
    return e ? e : f;
}

static int spread(struct bench *b, int (*operation)(void *))
{
    const struct measure_job job = { b->rank, do_barrier, do_tell, operation, do_greatest, b };
    double seconds[SPREAD_SAMPLES], late[SPREAD_SAMPLES], warm[2];
    int n = 0;
    b->all = calloc((size_t)b->size, b->bytes);
    b->request = calloc(2 * (size_t)b->size, sizeof(gc_request *));
    if (!b->all || !b->request) return GC_ERR_NOMEM;
    for (int i = 0; i < SPREAD_WARM; i++)
        if (measure_one(&job, &warm[0], &warm[1]) != 0) return GC_ERR_PEER;
    for (int i = 0; i < SPREAD_SAMPLES; i++)
        if (measure_one(&job, &seconds[i], &late[i]) != 0) return GC_ERR_PEER;
    if (do_greatest(b, seconds, SPREAD_SAMPLES) != 0 || do_greatest(b, late, SPREAD_SAMPLES) != 0) return GC_ERR_PEER;
    for (int i = 0; i < SPREAD_SAMPLES && b->rank == 0; i++)
        if (late[i] < 1) seconds[n++] = seconds[i];
    if (b->rank == 0 && n == 0) fprintf(stderr, "bench_gc: every common start came too late\n");
    if (n > 0) {
        const double median = measure_median(seconds, n);
        printf("%.3f %.3f %.3f\n", median * 1e3, seconds[0] * 1e3, seconds[n - 1] * 1e3);
    }
    free(b->all);
    free(b->request);
    return 0;
}

static int start(struct bench *b, int64_t instant)
{
    int e = gc_barrier(b->world);
    double seconds = (double)(measure_now() - instant) / 1e9;
    if (!e) e = do_greatest(b, &seconds, 1);
    if (!e && b->rank == 0) printf("%.3f\n", seconds);
    return e;
}

static int run(struct bench *b, const char *what, const char *number)
{
    b->rank = gc_rank(b->world);
    b->size = gc_size(b->world);
    b->last = b->size - 1;
    if (strcmp(what, "start") == 0) return start(b, strtoll(number, NULL, 10));
    b->bytes = (size_t)strtoull(number, NULL, 10) * (strcmp(what, "allreduce") == 0 ? sizeof(int64_t) : 1);
    if (b->bytes < 1 || b->bytes > MESSAGE_MAX) return GC_ERR_ARG;
    if ((b->buffer = calloc(1, b->bytes)) == NULL) return GC_ERR_NOMEM;
    int e = GC_ERR_ARG;
    if (strcmp(what, "allreduce") == 0) e = allreduce(b);
    else if (strcmp(what, "gather") == 0) e = spread(b, do_gather);
    else if (strcmp(what, "alltoall") == 0) e = spread(b, do_alltoall);
    else if (b->size < 2) fprintf(stderr, "bench_gc: needs two ranks\n");
    else if (strcmp(what, "pingpong") == 0) e = two_ends(b, false);
    else if (strcmp(what, "stream") == 0) e = two_ends(b, true);
    else if (strcmp(what, "under") == 0) e = under(b);
    free(b->buffer);
    return e;
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    if (argc == 2 && strcmp(argv[1], "now") == 0) return printf("%lld\n", (long long)measure_now()) < 0;
    if (argc != 3) {
        fprintf(stderr, "usage: bench_gc pingpong|stream|under|allreduce|gather|alltoall|start NUMBER, or bench_gc now\n");
        return 2;
    }
    alarm(ALARM_SECONDS);       /* nothing here may wait for ever */
    if (!(b.world = tool_init("bench_gc"))) return 1;
    const int e = run(&b, argv[1], argv[2]);
    if (e) {
        tool_failed("bench_gc", b.world, argv[1], e);
        gc_abort(b.world, e);
    }
    const int f = gc_finalize(b.world);
    return e || f;
}
