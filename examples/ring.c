/* ring.c: a message goes from rank 0 to rank 1, from there to rank 2, and so on, and from the last rank back to rank 0. If
 * it comes back, every rank can receive from the one before it and send to the one behind it.
 * SPDX-License-Identifier: MIT
 *
 * gcrun -n 4 ring [ROUNDS [BYTES]]
 *
 * The ring test of L. Peiselt, "Improving connectivity of message passing in multi-domain clusters", 4.2.1, with every byte
 * checked at every hop: byte i of the message of hop h is h + i.
 */
#define _POSIX_C_SOURCE 200809L
#include "gridcomm.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { RING_TAG = 1, RING_BYTES_MAX = 1 << 30 };

typedef struct ring {
    gc_comm *world;
    int rank, size, bytes;
    unsigned char *message, *received;
} ring;

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static int failed(const ring *r, const char *what, int err)
{
    char why[256] = "";
    gc_last_error(r->world, NULL, why, sizeof why);
    fprintf(stderr, "ring: rank %d: %s: %s: %s\n", r->rank, what, gc_strerror(err), why);
    return err;
}

static void fill(const ring *r, long hop)
{
    for (int i = 0; i < r->bytes; i++) r->message[i] = (unsigned char)(hop + i);
}

static int check(const ring *r, long hop, const gc_status *status)
{
    if (status->bytes != (size_t)r->bytes) {
        fprintf(stderr, "ring: rank %d: hop %ld: %zu bytes instead of %d\n", r->rank, hop, status->bytes, r->bytes);
        return GC_ERR_PROTOCOL;
    }
    for (int i = 0; i < r->bytes; i++)
        if (r->received[i] != (unsigned char)(hop + i)) {
            fprintf(stderr, "ring: rank %d: hop %ld: byte %d is wrong\n", r->rank, hop, i);
            return GC_ERR_PROTOCOL;
        }
    return GC_OK;
}

/* Hop h leaves rank h % size. Rank 0 posts its receive before it sends, so that a ring of one rank works too. */
static int go_round(const ring *r, int round, int talk)
{
    int next = (r->rank + 1) % r->size, before = (r->rank + r->size - 1) % r->size;
    long in = (long)round * r->size + (r->rank + r->size - 1) % r->size, out = (long)round * r->size + r->rank;
    gc_request *request;
    gc_status status;
    int err = gc_irecv(r->world, r->received, (size_t)r->bytes, before, RING_TAG, &request);
    if (err) return failed(r, "receive", err);
    if (r->rank == 0) {
        fill(r, out);
        if (talk) printf("rank 0: sending the message of hop %ld to %d\n", out, next);
        err = gc_send(r->world, r->message, (size_t)r->bytes, next, RING_TAG);
        if (err) failed(r, "send", err);
    }
    int received = gc_wait(&request, &status);
    if (received) return failed(r, "receive", received);
    if (err || (err = check(r, in, &status)) != GC_OK) return err;
    if (r->rank == 0) {
        if (talk) printf("rank 0: got the message of hop %ld from %d: the ring is closed\n", in, before);
        return GC_OK;
    }
    if (talk) printf("rank %d: got the message of hop %ld from %d, sending to %d\n", r->rank, in, before, next);
    fill(r, out);
    err = gc_send(r->world, r->message, (size_t)r->bytes, next, RING_TAG);
    return err ? failed(r, "send", err) : GC_OK;
}

static int run(ring *r, int rounds)
{
    int err = gc_barrier(r->world);
    if (err) return failed(r, "barrier", err);
    double start = 0, end;
    for (int round = 0; round <= rounds && !err; round++) {     /* round 0 opens the connections */
        if (round == 1) start = seconds();
        err = go_round(r, round, round == 0);
    }
    end = seconds();
    if (!err && r->rank == 0)
        printf("%d ranks, %d rounds of %d bytes: %.1f microseconds per hop, every byte right\n", r->size, rounds, r->bytes,
               (end - start) / rounds / r->size * 1e6);
    return err;
}

static int number(const char *text, int least, int most)
{
    char *end;
    long n = strtol(text, &end, 10);
    return *end || end == text || n < least || n > most ? -1 : (int)n;
}

int main(int argc, char **argv)
{
    char why[256] = "";
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    ring r = { .bytes = argc > 2 ? number(argv[2], 0, RING_BYTES_MAX) : 1 };
    int rounds = argc > 1 ? number(argv[1], 1, 1000000) : 100;
    if (argc > 3 || rounds < 0 || r.bytes < 0) {
        fprintf(stderr, "usage: ring [ROUNDS [BYTES]]\n");
        return 2;
    }
    options.error_text = why;
    options.error_text_size = sizeof why;
    int err = gc_init(&r.world, &options);
    if (err) {
        fprintf(stderr, "ring: cannot join the job: %s: %s\n", gc_strerror(err), why);
        return 1;
    }
    r.rank = gc_rank(r.world);
    r.size = gc_size(r.world);
    r.message = malloc((size_t)r.bytes + 1);
    r.received = malloc((size_t)r.bytes + 1);
    if (r.message && r.received) {
        err = run(&r, rounds);
    } else {
        fprintf(stderr, "ring: rank %d: out of memory\n", r.rank);
        err = GC_ERR_NOMEM;
    }
    if (err) gc_abort(r.world, 1);              /* the others wait for a message that will not come */
    int left = gc_finalize(r.world);
    if (left && !err) fprintf(stderr, "ring: rank %d: finalize: %s\n", r.rank, gc_strerror(left));
    free(r.message);
    free(r.received);
    return err || left;
}
