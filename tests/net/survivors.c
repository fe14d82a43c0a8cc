/* survivors.c: a job in which every two ranks talk for a while, whoever dies meanwhile.
 *
 * SPDX-License-Identifier: MIT
 *
 *     survivors SECONDS
 *
 * Every pair exchanges message after message, numbered, long ones and short ones. A pair whose peer is lost ends; all
 * others go on. At the end each rank prints a line for each peer:
 *
 *     RANK PEER ok EXCHANGES LATER           LATER: how many of them after this rank had lost its first peer
 *     RANK PEER lost EXCHANGES ERROR         ERROR: gridcomm's
 *
 * A message that is lost, doubled or overtaken ends the job with an error. The process is called survivors-run while it
 * talks. Ranks leave in order, so that those who stand between others go last if they have the highest numbers.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TAG_TALK = 1, TAG_DONE, TAG_GO, SHORT = 64, LONG = 100000, ALARM_SECONDS = 300 };

struct head { int64_t number, last; };
struct pair {
    bool open, lost;
    int error, pending;             /* of the exchange under way */
    int64_t number, later;
    bool last;                      /* one of the two wishes to end */
    unsigned char *in, *out;
};
struct job {
    gc_comm *world;
    int rank, size, open, losses;
    int64_t end;
    struct pair *pair;
    gc_request **request;           /* [2 * size]: from, to */
};

static size_t bytes_of(int64_t number) { return number % 4 == 3 ? LONG : SHORT; }

static unsigned char content(int64_t number, int from, size_t i) { return (unsigned char)(number * 31 + from * 7 + (int64_t)i); }

static void lose(struct job *j, int peer, int error)
{
    struct pair *p = &j->pair[peer];
    if (!p->lost) j->losses++;
    p->lost = true;
    p->error = error;
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

static int talk(struct job *j)
{
    int e = 0;
    for (int i = 0; i < j->size; i++) {
        if (i == j->rank) continue;
        j->pair[i].open = true;
        j->open++;
        begin(j, i);
    }
    while (j->open && !e) {
        gc_status status = { 0 };
        int index;
        const int error = gc_waitany(2 * j->size, j->request, &index, &status);
        if (index < 0) return GC_ERR_PROTOCOL;
        e = over(j, index % j->size, index < j->size, error, &status);
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

static void report(const struct job *j)
{
    for (int i = 0; i < j->size; i++) {
        const struct pair *p = &j->pair[i];
        if (i == j->rank) continue;
        if (p->lost) printf("%d %d lost %lld %s\n", j->rank, i, (long long)p->number, gc_strerror(p->error));
        else printf("%d %d ok %lld %lld\n", j->rank, i, (long long)p->number, (long long)p->later);
    }
    fflush(stdout);
}

static int prepare(struct job *j)
{
    j->pair = calloc((size_t)j->size, sizeof *j->pair);
    j->request = calloc(2 * (size_t)j->size, sizeof(gc_request *));
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
    int e = prepare(&j);
    if (e == 0 && (e = gc_barrier(j.world)) == 0) {
        prctl(PR_SET_NAME, "survivors-run");
        j.end = measure_now() + atoi(argv[1]) * INT64_C(1000000000);
        e = talk(&j);
        prctl(PR_SET_NAME, "survivors-over");
        if (!e) leave(&j);
    }
    report(&j);
    if (e) fprintf(stderr, "survivors: rank %d: %s\n", j.rank, gc_strerror(e));
    const int f = gc_finalize(j.world);
    return e || (f && !j.losses);       /* the memory goes with the process: a request may still have some of it */
}
