/* alltoall.c: a job in which every rank sends to every rank, over and over, and checks every byte that comes.
 *
 * SPDX-License-Identifier: MIT
 *
 *     alltoall [NAME=VALUE...]
 *         rounds=N     exchanges (3), or
 *         seconds=S    exchanges until so long after the first one
 *         bytes=B      sizes are random, from 0 to B (300000)
 *         exact=1      all messages have B bytes
 *         slow=RANK    this rank takes its messages one by one, pause=MS (20) before each
 *         seed=N       of sizes and contents (1)
 *
 * Sizes and contents follow from seed, round and the two ranks, so both ends know them without a word. The process is
 * called alltoall-warm from the end of the first exchange, after which nothing needs more memory, to the end of the last.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>

enum { TAG = 7, BYTES_MAX = 1 << 28, GUARD = 16, GUARD_BYTE = 0xa5 };

struct job {
    gc_comm *world;
    int rank, size, round;
    int64_t rounds, seconds, bytes, exact, slow, pause, seed;
    unsigned char **in, **out;      /* [size] of bytes + GUARD */
    gc_request **request;           /* [2 * size] receives, then sends */
    gc_status *status;
};

static uint64_t mixed(uint64_t x)       /* SplitMix64 (Steele, Lea, Flood 2014) */
{
    x = (x ^ (x >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ (x >> 27)) * UINT64_C(0x94d049bb133111eb);
    return x ^ (x >> 31);
}

static uint64_t start_of(const struct job *j, int from, int to)
{
    return mixed(mixed(mixed((uint64_t)j->seed) + (uint64_t)j->round) + ((uint64_t)from << 32 | (uint64_t)to));
}

static size_t bytes_of(const struct job *j, int from, int to)
{
    return (size_t)(j->exact ? (uint64_t)j->bytes : mixed(start_of(j, from, to)) % ((uint64_t)j->bytes + 1));
}

static uint64_t word_at(uint64_t start, size_t i) { return mixed(start + i * UINT64_C(0x9e3779b97f4a7c15)); }

static void fill(unsigned char *buffer, uint64_t start, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = word_at(start, i);
        memcpy(buffer + i, &word, bytes - i < 8 ? bytes - i : 8);
    }
}

/* Where the contents are wrong first; bytes: nowhere. */
static size_t first_wrong(const unsigned char *buffer, uint64_t start, size_t bytes)
{
    for (size_t i = 0; i < bytes; i += 8) {
        const uint64_t word = word_at(start, i);
        if (memcmp(buffer + i, &word, bytes - i < 8 ? bytes - i : 8) != 0) return i;
    }
    return bytes;
}

static int check(const struct job *j, int from, const gc_status *status)
{
    const size_t bytes = bytes_of(j, from, j->rank);
    const unsigned char *in = j->in[from];
    if (status->bytes != bytes) {
        fprintf(stderr, "alltoall: round %d: rank %d got %zu bytes from %d, not %zu\n", j->round, j->rank, status->bytes, from, bytes);
        return GC_ERR_PROTOCOL;
    }
    const size_t wrong = first_wrong(in, start_of(j, from, j->rank), bytes);
    if (wrong < bytes) {
        fprintf(stderr, "alltoall: round %d: rank %d got a wrong byte %zu of %zu from %d\n", j->round, j->rank, wrong, bytes, from);
        return GC_ERR_PROTOCOL;
    }
    for (int i = 0; i < GUARD; i++) {
        if (in[bytes + (size_t)i] == GUARD_BYTE) continue;
        fprintf(stderr, "alltoall: round %d: rank %d: bytes behind the message of %d were written\n", j->round, j->rank, from);
        return GC_ERR_PROTOCOL;
    }
    return 0;
}

static int take(struct job *j, int from)
{
    memset(j->in[from] + bytes_of(j, from, j->rank), GUARD_BYTE, GUARD);
    return gc_irecv(j->world, j->in[from], (size_t)j->bytes + GUARD, from, TAG, &j->request[from]);
}

/* Everybody begins with another rank, so that no rank is the first of all. */
static int other(const struct job *j, int i) { return (j->rank + i) % j->size; }

static int exchange(struct job *j)
{
    const bool slow = j->rank == j->slow;
    int e = 0;
    for (int i = 0; i < j->size && !e && !slow; i++) e = take(j, other(j, i));
    for (int i = 0; i < j->size && !e; i++) {
        const int to = other(j, i);
        const size_t bytes = bytes_of(j, j->rank, to);
        fill(j->out[to], start_of(j, j->rank, to), bytes);
        e = gc_isend(j->world, j->out[to], bytes, to, TAG, &j->request[j->size + to]);
    }
    for (int i = 0; i < j->size && !e && slow; i++) {
        measure_sleep_until(measure_now() + j->pause * 1000000);
        if ((e = take(j, other(j, i))) == 0) e = gc_wait(&j->request[other(j, i)], &j->status[other(j, i)]);
    }
    const int f = slow ? gc_waitall(j->size, j->request + j->size, NULL) : gc_waitall(2 * j->size, j->request, j->status);
    if (!e) e = f;
    for (int i = 0; i < j->size && !e; i++) e = check(j, i, &j->status[i]);
    return e;
}

/* Rank 0 says whether there is another round. */
static int more(struct job *j, int64_t begin, bool *yes)
{
    char go = j->seconds ? measure_now() - begin < j->seconds * 1000000000 : j->round < j->rounds;
    const int e = gc_bcast(j->world, &go, 1, 0);
    *yes = go != 0;
    return e;
}

static int rounds(struct job *j)
{
    bool yes = true;
    int e = exchange(j);
    int64_t begin = measure_now();
    if (!e) prctl(PR_SET_NAME, "alltoall-warm");
    j->round = 1;
    if (!e) e = more(j, begin, &yes);
    for (; !e && yes; ) {
        if ((e = exchange(j)) != 0) break;
        j->round++;
        e = more(j, begin, &yes);
    }
    prctl(PR_SET_NAME, "alltoall-over");
    return e;
}

static int prepare(struct job *j)
{
    const size_t n = (size_t)j->size, room = (size_t)j->bytes + GUARD;
    if (!(j->in = calloc(n, sizeof *j->in)) || !(j->out = calloc(n, sizeof *j->out)) ||
        !(j->request = calloc(2 * n, sizeof(gc_request *))) || !(j->status = calloc(2 * n, sizeof *j->status))) return GC_ERR_NOMEM;
    for (size_t i = 0; i < n; i++) {
        if (!(j->in[i] = malloc(room)) || !(j->out[i] = malloc(room))) return GC_ERR_NOMEM;
        memset(j->in[i], 1, room);      /* all of it is there before anybody looks how much is in use */
        memset(j->out[i], 1, room);
    }
    return 0;
}

static void release(struct job *j)
{
    for (int i = 0; i < j->size; i++) {
        if (j->in) free(j->in[i]);
        if (j->out) free(j->out[i]);
    }
    free(j->in);
    free(j->out);
    free(j->request);
    free(j->status);
}

static bool arguments(struct job *j, int argc, char **argv)
{
    const struct { const char *name; int64_t *value; } known[] = {
        { "rounds", &j->rounds }, { "seconds", &j->seconds }, { "bytes", &j->bytes }, { "exact", &j->exact },
        { "slow", &j->slow }, { "pause", &j->pause }, { "seed", &j->seed } };
    for (int i = 1; i < argc; i++) {
        bool found = false;
        for (size_t k = 0; k < sizeof known / sizeof known[0]; k++) {
            const size_t n = strlen(known[k].name);
            if (strncmp(argv[i], known[k].name, n) != 0 || argv[i][n] != '=') continue;
            *known[k].value = strtoll(argv[i] + n + 1, NULL, 10);
            found = true;
        }
        if (!found) return false;
    }
    return j->rounds > 0 && j->seconds >= 0 && j->bytes >= 0 && j->bytes <= BYTES_MAX && j->pause >= 0;
}

static int report(const struct job *j, int e)
{
    char round[32];
    if (!e) return j->rank == 0 && printf("all-to-all of %d ranks, %d rounds: right\n", j->size, j->round) < 0;
    snprintf(round, sizeof round, "round %d", j->round);
    return tool_failed("alltoall", j->world, round, e);
}

int main(int argc, char **argv)
{
    struct job j = { .rounds = 3, .bytes = 300000, .slow = -1, .pause = 20, .seed = 1 };
    if (!arguments(&j, argc, argv)) {
        fprintf(stderr, "usage: alltoall [rounds=N | seconds=S] [bytes=B] [exact=1] [slow=RANK] [pause=MS] [seed=N]\n");
        return 2;
    }
    if (!(j.world = tool_init("alltoall"))) return 1;
    j.rank = gc_rank(j.world);
    j.size = gc_size(j.world);
    int e = prepare(&j);
    if (!e) e = rounds(&j);
    report(&j, e);
    const int f = gc_finalize(j.world);
    if (f && !e) fprintf(stderr, "alltoall: rank %d: finalize: %s\n", j.rank, gc_strerror(f));
    if (f != GC_ERR_PENDING) release(&j);
    return e || f;
}
