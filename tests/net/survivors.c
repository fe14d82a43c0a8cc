/* survivors.c: a job in which every two ranks talk for a while, and all together, whoever dies meanwhile.
 *
 * SPDX-License-Identifier: MIT
 *
 *     survivors SECONDS
 *
 * Every pair exchanges message after message, numbered, long ones and short ones. A pair whose peer is lost ends; all
 * others go on. Beside that all ranks add up numbers, over and over, until one is lost. At the end those who are left shrink
 * the world, and add up once more. Each rank prints, MS being CLOCK_MONOTONIC's, which all hosts of a bed share:
 *
 *     RANK PEER ok EXCHANGES LATER           LATER: how many of them after this rank had lost its first peer
 *     RANK PEER lost EXCHANGES MS ERROR      ERROR: gridcomm's
 *     RANK sums SUMS MS ERROR                MS 0: none failed
 *     RANK shrunk MEMBER...                  ranks of the world, and a sum over them was right
 *     RANK left MS
 *
 * A message that is lost, doubled or overtaken, and a wrong sum, end the job with an error. The process is called survivors-run
 * while it talks. Ranks leave in order, so that those who stand between others go last if they have the highest numbers.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TAG_TALK = 1, TAG_DONE, TAG_GO, SHORT = 64, LONG = 100000, RANKS_MAX = 64, ALARM_SECONDS = 300 };

struct head { int64_t number, last; };
struct pair {
    bool open, lost;
    int error, pending;             /* of the exchange under way */
    int64_t number, later, lost_at;
    bool last;                      /* one of the two wishes to end */
    unsigned char *in, *out;
};
struct sums {
    int64_t number, in[2], out[2];  /* a number, and whether one wishes to end */
    int error;
    int64_t failed_at;
};
struct job {
    gc_comm *world;
    int rank, size, open, losses;
    int64_t end;
    struct pair *pair;
    struct sums sums;
    gc_request **request;           /* [2 * size + 1]: from, to, the sum */
};

static size_t bytes_of(int64_t number) { return number % 4 == 3 ? LONG : SHORT; }

static unsigned char content(int64_t number, int from, size_t i) { return (unsigned char)(number * 31 + from * 7 + (int64_t)i); }

static void lose(struct job *j, int peer, int error)
{
    struct pair *p = &j->pair[peer];
    if (!p->lost) j->losses++;
    p->lost = true;
    p->error = error;
    p->lost_at = measure_now();
}

static void begin(struct job *j, int peer)
{
    struct pair *p = &j->pair[peer];
    const struct head head = { p->number, measure_now() > j->end };
    const size_t bytes = bytes_of(p->number);
    for (size_t i = sizeof head; i < bytes; i++) p->out[i] = content(p->number, j->rank, i);
    memcpy(p->out, &head, sizeof head);
    p->last = head.last != 0;
    p->pending = 0;
    int e = gc_irecv(j->world, p->in, LONG, peer, TAG_TALK, &j->request[peer]);
    if (!e) p->pending++;
    else lose(j, peer, e);
    e = gc_isend(j->world, p->out, bytes, peer, TAG_TALK, &j->request[j->size + peer]);
    if (!e) p->pending++;
    else lose(j, peer, e);
    if (p->lost && j->request[peer]) gc_cancel(j->request[peer]);
}

static int check(struct job *j, int peer, const gc_status *status)
{
    struct pair *p = &j->pair[peer];
    struct head head = { -1, 0 };
    if (status->bytes >= sizeof head) memcpy(&head, p->in, sizeof head);
    bool right = head.number == p->number && status->bytes == bytes_of(p->number);
    for (size_t i = sizeof head; i < status->bytes && right; i++) right = p->in[i] == content(p->number, peer, i);
    if (right) {
        p->last = p->last || head.last;
        return 0;
    }
    fprintf(stderr, "survivors: rank %d got %zu bytes, number %lld, from %d instead of number %lld\n", j->rank, status->bytes,
            (long long)head.number, peer, (long long)p->number);
    return GC_ERR_PROTOCOL;
}

/* One half of an exchange is over; the other may be the end of it. */
static int over(struct job *j, int peer, bool received, int error, const gc_status *status)
{
    struct pair *p = &j->pair[peer];
    p->pending--;
    if (error && !p->lost) lose(j, peer, error);
    if (error && j->request[peer]) gc_cancel(j->request[peer]);
    if (!error && received && !p->lost && (error = check(j, peer, status)) != 0) return error;
    if (p->pending) return 0;
    if (!p->lost) {
        p->number++;
        p->later += j->losses > 0;
    }
    if (p->lost || p->last) {
        p->open = false;
        j->open--;
    } else {
        begin(j, peer);
        if (!p->pending) p->open = false, j->open--;
    }
    return 0;
}

/* ---- all together ---- */

static int64_t sum_of(const struct job *j, int64_t number) { return j->size * (j->size - 1) / 2 * (number + 1); }

static void sum_failed(struct job *j, int error)
{
    j->sums.error = error;
    j->sums.failed_at = measure_now();
    j->open--;
}

static void sum_begin(struct job *j)
{
    struct sums *s = &j->sums;
    s->in[0] = j->rank * (s->number + 1);
    s->in[1] = measure_now() > j->end;
    const int e = gc_iallreduce(j->world, s->in, s->out, 2, GC_INT64, GC_SUM, &j->request[2 * j->size]);
    if (e) sum_failed(j, e);
}

static int sum_over(struct job *j, int error)
{
    struct sums *s = &j->sums;
    if (error) {
        sum_failed(j, error);
        return 0;
    }
    if (s->out[0] != sum_of(j, s->number)) {
        fprintf(stderr, "survivors: rank %d: sum %lld is %lld\n", j->rank, (long long)s->number, (long long)s->out[0]);
        return GC_ERR_PROTOCOL;
    }
    s->number++;
    if (s->out[1]) j->open--;
    else sum_begin(j);
    return 0;
}

/* Those who are left, as a line of text. */
static int shrink(struct job *j)
{
    int members[RANKS_MAX], all[RANKS_MAX];
    int64_t mine = j->rank, sum = 0;
    gc_comm *left;
    int e = gc_comm_shrink(j->world, &left);
    if (e) return e;
    const int n = gc_size(left);
    for (int i = 0; i < n; i++) all[i] = i;
    e = gc_comm_translate(left, all, n, j->world, members);
    if (!e) e = gc_allreduce(left, &mine, &sum, 1, GC_INT64, GC_SUM);
    for (int i = 0; i < n; i++) sum -= members[i];
    if (!e && sum != 0) e = GC_ERR_PROTOCOL;
    if (!e) printf("%d shrunk", j->rank);
    for (int i = 0; i < n && !e; i++) printf(" %d%s", members[i], i < n - 1 ? "" : "\n");
    return e;
}

static int talk(struct job *j)
{
    int e = 0;
    j->open++;
    sum_begin(j);
    for (int i = 0; i < j->size; i++) {
        if (i == j->rank) continue;
        j->pair[i].open = true;
        j->open++;
        begin(j, i);
    }
    while (j->open && !e) {
        gc_status status = { 0 };
        int index;
        const int error = gc_waitany(2 * j->size + 1, j->request, &index, &status);
        if (index < 0) return GC_ERR_PROTOCOL;
        e = index == 2 * j->size ? sum_over(j, error) : over(j, index % j->size, index < j->size, error, &status);
    }
    return e;
}

/* The lowest that lives lets the others go, one by one. */
static void leave(struct job *j)
{
    int first = 0;
    while (first < j->rank && j->pair[first].lost) first++;
    if (first < j->rank) {
        if (gc_send(j->world, NULL, 0, first, TAG_DONE) == 0) gc_recv(j->world, NULL, 0, first, TAG_GO, NULL);
        return;
    }
    for (int i = first + 1; i < j->size; i++)
        if (!j->pair[i].lost && gc_recv(j->world, NULL, 0, i, TAG_DONE, NULL) != 0) j->pair[i].lost = true;
    for (int i = first + 1; i < j->size; i++)
        if (!j->pair[i].lost) gc_ssend(j->world, NULL, 0, i, TAG_GO);
}

static long long milliseconds(int64_t ns) { return (long long)(ns / 1000000); }

static void report(const struct job *j)
{
    for (int i = 0; i < j->size; i++) {
        const struct pair *p = &j->pair[i];
        if (i == j->rank) continue;
        if (p->lost) printf("%d %d lost %lld %lld %s\n", j->rank, i, (long long)p->number, milliseconds(p->lost_at), gc_strerror(p->error));
        else printf("%d %d ok %lld %lld\n", j->rank, i, (long long)p->number, (long long)p->later);
    }
    printf("%d sums %lld %lld %s\n", j->rank, (long long)j->sums.number, milliseconds(j->sums.failed_at), gc_strerror(j->sums.error));
    fflush(stdout);
}

static int prepare(struct job *j)
{
    j->pair = calloc((size_t)j->size, sizeof *j->pair);
    j->request = calloc(2 * (size_t)j->size + 1, sizeof(gc_request *));
    if (!j->pair || !j->request) return GC_ERR_NOMEM;
    for (int i = 0; i < j->size; i++)
        if (!(j->pair[i].in = malloc(LONG)) || !(j->pair[i].out = malloc(LONG))) return GC_ERR_NOMEM;
    return 0;
}

int main(int argc, char **argv)
{
    struct job j = { 0 };
    if (argc != 2 || atoi(argv[1]) < 1) {
        fprintf(stderr, "usage: survivors SECONDS\n");
        return 2;
    }
    alarm(ALARM_SECONDS);
    if (!(j.world = tool_init("survivors"))) return 1;
    j.rank = gc_rank(j.world);
    j.size = gc_size(j.world);
    if (j.size > RANKS_MAX) return 2;
    int e = prepare(&j);
    if (e == 0 && (e = gc_barrier(j.world)) == 0) {
        prctl(PR_SET_NAME, "survivors-run");
        j.end = measure_now() + atoi(argv[1]) * INT64_C(1000000000);
        e = talk(&j);
        prctl(PR_SET_NAME, "survivors-over");
        report(&j);
        if (!e) e = shrink(&j);
        if (!e) leave(&j);
    }
    if (e) fprintf(stderr, "survivors: rank %d: %s\n", j.rank, gc_strerror(e));
    const int f = gc_finalize(j.world);
    printf("%d left %lld\n", j.rank, milliseconds(measure_now()));
    return e || (f && !j.losses);       /* the memory goes with the process: a request may still have some of it */
}
