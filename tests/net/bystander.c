/* bystander.c: what two ranks notice of a third one that takes nothing for a long time, behind the relay that all share.
 *
 * SPDX-License-Identifier: MIT
 *
 *     bystander BYTES SECONDS
 *
 * Rank 0 sends a message of BYTES to rank 1, which has posted the receive and then does not call the library for SECONDS,
 * and with ranks 2 and 3 more short messages than rank 1 has credits for. Ranks 2 and 3 measure their throughput and
 * latency before and during. All other ranks are relays; they do not call the library meanwhile either. For the library
 * a sleep is a long computation, without the cost of one core in two. Rank 2 prints
 *
 *     before BYTE/S US during BYTE/S US seconds S
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SENDER, SLEEPER, LEFT, RIGHT, TAG_BIG = 1, TAG_SHORT, TAG_ASK, TAG_STREAM,
       SHORTS = 200, SHORT = 1000,          /* of each of three ranks; the default of credits is 64 */
       BLOCK = 262144, BLOCKS = 40, PINGS = 400, BEFORE = 5,
       ASK_END = 0, ASK_PING, ASK_BLOCK, ASK_BEGIN,
       MARGIN_MS = 700,                     /* at the ends of the sleep, in which nothing is measured */
       ALARM_SECONDS = 400 };

struct job {
    gc_comm *world;
    int rank;
    size_t bytes;
    int64_t span;                           /* ns */
    unsigned char *block;
};

static int one_of(struct job *j, char ask)      /* rank 2's: a ping, or a block answered by a byte */
{
    char answer;
    int e = gc_send(j->world, &ask, 1, RIGHT, TAG_ASK);
    if (!e && ask == ASK_BLOCK) e = gc_send(j->world, j->block, BLOCK, RIGHT, TAG_STREAM);
    return e ? e : gc_recv(j->world, &answer, 1, RIGHT, TAG_ASK, NULL);
}

static int tell(struct job *j, char ask) { return gc_send(j->world, &ask, 1, RIGHT, TAG_ASK); }

static int measure(struct job *j, double *rate, double *us)
{
    double block[BLOCKS], ping[PINGS];
    for (int i = 0; i < PINGS; i++) {
        const int64_t begin = measure_now();
        const int e = one_of(j, ASK_PING);
        if (e) return e;
        ping[i] = (double)(measure_now() - begin);
    }
    for (int i = 0; i < BLOCKS; i++) {
        const int64_t begin = measure_now();
        const int e = one_of(j, ASK_BLOCK);
        if (e) return e;
        block[i] = (double)(measure_now() - begin);
    }
    *rate = BLOCK * 1e9 / measure_median(block, BLOCKS);
    *us = measure_median(ping, PINGS) / 2e3;
    return 0;
}

/* Short messages for the sleeper: most of them find no credit and wait here. */
static int begin_shorts(struct job *j, gc_request *request[SHORTS])
{
    static const unsigned char data[SHORT];
    int e = 0;
    for (int i = 0; i < SHORTS && !e; i++) e = gc_isend(j->world, data, SHORT, SLEEPER, TAG_SHORT, &request[i]);
    return e;
}

static int send_all(struct job *j)
{
    gc_request *big = NULL, *shorts[SHORTS] = { 0 };
    unsigned char *data = malloc(j->bytes);
    if (!data) return GC_ERR_NOMEM;
    for (size_t i = 0; i < j->bytes; i++) data[i] = (unsigned char)(i % 251);
    int e = gc_isend(j->world, data, j->bytes, SLEEPER, TAG_BIG, &big);
    if (!e) e = begin_shorts(j, shorts);
    if (!e) e = gc_waitall(SHORTS, shorts, NULL);
    const int f = gc_wait(&big, NULL);
    free(data);
    return e ? e : f;
}

static int sleep_on_it(struct job *j, int64_t until)
{
    gc_request *big = NULL;
    unsigned char *data = calloc(1, j->bytes), little[SHORT];
    if (!data) return GC_ERR_NOMEM;
    int e = gc_irecv(j->world, data, j->bytes, SENDER, TAG_BIG, &big);
    int64_t sum = 0;
    if (!e) gc_wait_for(&big, 0.5, NULL);       /* the grant goes out, bytes come */
    measure_sleep_until(until);
    if (!e && big) e = gc_wait(&big, NULL);
    for (int i = 0; i < 3 * SHORTS && !e; i++) e = gc_recv(j->world, little, SHORT, GC_ANY_SOURCE, TAG_SHORT, NULL);
    for (size_t i = 0; i < j->bytes && !e; i++) sum += data[i] != i % 251;
    if (sum) fprintf(stderr, "bystander: %lld bytes are wrong\n", (long long)sum);
    free(data);
    return e ? e : sum ? GC_ERR_PROTOCOL : 0;
}

/* Measures until `end`, at least `least` times: the medians. Pings after blocks may sleep where the first of all poll. */
static int measure_until(struct job *j, int64_t end, int least, double *rate, double *us)
{
    enum { SAMPLES = 64 };
    double rates[SAMPLES], latencies[SAMPLES];
    int n = 0, e = 0;
    for (; !e && n < SAMPLES && (n < least || measure_now() < end); n++) e = measure(j, &rates[n], &latencies[n]);
    *rate = measure_median(rates, n);
    *us = measure_median(latencies, n);
    return e;
}

/* Rank 2: measures before the sleep, then all through it. */
static int stand_by(struct job *j)
{
    gc_request *shorts[SHORTS] = { 0 };
    double rate = 0, us = 0, rate_before, us_before;
    int e = measure_until(j, 0, BEFORE, &rate_before, &us_before);
    if (!e) e = tell(j, ASK_BEGIN);
    if (!e) e = gc_barrier(j->world);
    const int64_t begin = measure_now(), end = begin + j->span - 1000000 * (int64_t)MARGIN_MS;
    if (!e) e = begin_shorts(j, shorts);
    measure_sleep_until(begin + 1000000 * (int64_t)MARGIN_MS);
    if (!e) e = measure_until(j, end, 1, &rate, &us);
    if (!e) printf("before %.0f %.1f during %.0f %.1f seconds %.1f\n", rate_before, us_before, rate, us,
                   (double)(measure_now() - begin) / 1e9);
    fflush(stdout);
    if (!e) e = tell(j, ASK_END);
    return e ? e : gc_waitall(SHORTS, shorts, NULL);
}

/* Rank 3. */
static int answer_all(struct job *j)
{
    gc_request *shorts[SHORTS] = { 0 };
    char ask = ASK_PING;
    int e = 0;
    while (!e && ask != ASK_END) {
        e = gc_recv(j->world, &ask, 1, LEFT, TAG_ASK, NULL);
        if (!e && ask == ASK_BEGIN && (e = gc_barrier(j->world)) == 0) e = begin_shorts(j, shorts);
        if (!e && ask == ASK_BLOCK) e = gc_recv(j->world, j->block, BLOCK, LEFT, TAG_STREAM, NULL);
        if (!e && (ask == ASK_BLOCK || ask == ASK_PING)) e = gc_send(j->world, &ask, 1, LEFT, TAG_ASK);
    }
    return e ? e : gc_waitall(SHORTS, shorts, NULL);
}

static int run(struct job *j)
{
    if (j->rank == LEFT) return stand_by(j);
    if (j->rank == RIGHT) return answer_all(j);
    const int e = gc_barrier(j->world);     /* the measurement before is through */
    if (e) return e;
    const int64_t until = measure_now() + j->span;
    if (j->rank == SENDER) return send_all(j);
    if (j->rank == SLEEPER) return sleep_on_it(j, until);
    measure_sleep_until(until);
    return 0;
}

int main(int argc, char **argv)
{
    struct job j = { .bytes = argc == 3 ? (size_t)strtoull(argv[1], NULL, 10) : 0,
                     .span = argc == 3 ? strtoll(argv[2], NULL, 10) * 1000000000 : 0 };
    if (j.bytes < 1 || j.span < 1 || !(j.block = calloc(1, BLOCK))) {
        fprintf(stderr, "usage: bystander BYTES SECONDS\n");
        return 2;
    }
    alarm(ALARM_SECONDS);
    if (!(j.world = tool_init("bystander"))) return 1;
    j.rank = gc_rank(j.world);
    const int e = gc_size(j.world) < 5 ? GC_ERR_ARG : run(&j);
    if (e) tool_failed("bystander", j.world, "the run", e);
    const int f = gc_finalize(j.world);
    return e || f;
}
