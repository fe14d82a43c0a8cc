/* gct.c: what jobs in a test program share, whatever they run on: dispatch, checks, canaries, patterns.
 * SPDX-License-Identifier: MIT
 */
#define _POSIX_C_SOURCE 200809L
#include "gct.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GCT_GUARD = 64, GCT_CANARY = 0xc5, GCT_FRESH = 0x5c };

/* A program has one of the two, or both. */
#pragma weak gct_job_real
#pragma weak gct_job_sim

typedef struct gct_head { struct gct_head *next, *prev; size_t bytes; } gct_head;

static pthread_mutex_t gct_lock = PTHREAD_MUTEX_INITIALIZER;
static gct_head *gct_buffers;
static _Thread_local int gct_thread_rank = -1;
static int (*gct_rank_finder)(void);

/* ---- seeds ---- */

uint64_t gct_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);        /* splitmix64 */
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

uint64_t gct_seed(void)
{
    const char *given = getenv("GCT_SEED");
    if (given && *given) {
        return strtoull(given, NULL, 0);
    }
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    uint64_t state = (uint64_t)now.tv_sec * 1000003u + (uint64_t)now.tv_nsec + ((uint64_t)getpid() << 40);
    return gct_random(&state) >> 32;    /* short enough to be typed */
}

bool gct_drawn(void)
{
    enum { ROUNDS = 30 };
    static uint64_t dice;
    const char *text = getenv("GCT_ROUNDS");
    int rounds = text ? atoi(text) : ROUNDS + 1;
    dice = dice ? dice : gct_seed();
    return gct_random(&dice) % (uint64_t)(1 + ROUNDS / (rounds > 0 ? rounds : 1)) == 0;
}

/* ---- failures ---- */

void gct_set_rank(int rank) { gct_thread_rank = rank; }
void gct_set_rank_finder(int (*finder)(void)) { gct_rank_finder = finder; }
int  gct_rank(void) { return gct_rank_finder ? gct_rank_finder() : gct_thread_rank; }

int gct_fail(const char *file, int line, const char *what, const char *format, ...)
{
    char text[512];
    va_list list;
    va_start(list, format);
    vsnprintf(text, sizeof text, format, list);
    va_end(list);
    fprintf(stderr, "%s:%d: rank %d: %s: %s\n", file, line, gct_rank(), what, text);
    return 1;
}

/* ---- buffers ---- */

void *gct_buffer(size_t bytes)
{
    gct_head *h = malloc(sizeof *h + bytes + 2 * GCT_GUARD);
    if (!h) {
        fprintf(stderr, "gct: no memory for a buffer of %zu bytes\n", bytes);
        abort();
    }
    uint8_t *user = (uint8_t *)(h + 1) + GCT_GUARD;
    memset(user - GCT_GUARD, GCT_CANARY, GCT_GUARD);
    memset(user, GCT_FRESH, bytes);
    memset(user + bytes, GCT_CANARY, GCT_GUARD);
    pthread_mutex_lock(&gct_lock);
    *h = (gct_head){ .next = gct_buffers, .bytes = bytes };
    if (gct_buffers) {
        gct_buffers->prev = h;
    }
    gct_buffers = h;
    pthread_mutex_unlock(&gct_lock);
    return user;
}

static const gct_head *gct_head_of(const void *user)
{
    return (const gct_head *)(const void *)((const uint8_t *)user - GCT_GUARD) - 1;
}

int gct_buffer_check(const void *user)
{
    const gct_head *h = gct_head_of(user);
    const uint8_t *byte = user;
    for (size_t i = 0; i < GCT_GUARD; i++) {
        if (byte[h->bytes + i] != GCT_CANARY) {
            return gct_fail(__FILE__, __LINE__, "canary", "%zu bytes behind the end of a buffer of %zu", i, h->bytes);
        }
        if (byte[-1 - (ptrdiff_t)i] != GCT_CANARY) {
            return gct_fail(__FILE__, __LINE__, "canary", "%zu bytes before a buffer of %zu", i + 1, h->bytes);
        }
    }
    return 0;
}

int gct_buffer_free(void *user)
{
    if (!user) {
        return 0;
    }
    int bad = gct_buffer_check(user);
    gct_head *h = (gct_head *)(void *)((uint8_t *)user - GCT_GUARD) - 1;
    pthread_mutex_lock(&gct_lock);
    *(h->prev ? &h->prev->next : &gct_buffers) = h->next;
    if (h->next) {
        h->next->prev = h->prev;
    }
    pthread_mutex_unlock(&gct_lock);
    free(h);
    return bad;
}

void gct_buffers_end(void)
{
    pthread_mutex_lock(&gct_lock);
    while (gct_buffers) {
        gct_head *h = gct_buffers;
        gct_buffers = h->next;
        free(h);
    }
    pthread_mutex_unlock(&gct_lock);
}

/* ---- patterns ---- */

/* Eight bytes at a time, from a state that only this source, tag and length have. */
static uint64_t gct_pattern_start(size_t bytes, int source, int tag)
{
    uint64_t state = (uint64_t)(uint32_t)source << 32 | (uint32_t)tag;
    state ^= gct_random(&state) ^ (uint64_t)bytes * UINT64_C(0x2545f4914f6cdd1d);
    return state;
}

void gct_fill(void *buf, size_t bytes, int source, int tag)
{
    uint64_t state = gct_pattern_start(bytes, source, tag);
    uint8_t *out = buf;
    size_t i = 0;
    for (; bytes - i >= sizeof state; i += sizeof state) {      /* whole words apart: calls of known length cost nothing */
        uint64_t word = gct_random(&state);
        memcpy(out + i, &word, sizeof word);
    }
    uint64_t last = gct_random(&state);
    memcpy(out + i, &last, bytes - i);
}

size_t gct_wrong(const void *buf, size_t bytes, int source, int tag)
{
    uint64_t state = gct_pattern_start(bytes, source, tag);
    const uint8_t *in = buf;
    size_t i = 0;
    uint64_t word = gct_random(&state), there;
    for (; bytes - i >= sizeof word; i += sizeof word) {
        memcpy(&there, in + i, sizeof there);
        if (there != word) {
            break;
        }
        word = gct_random(&state);
    }
    for (size_t j = 0; j < sizeof word && i + j < bytes; j++) {
        if (in[i + j] != ((const uint8_t *)&word)[j]) {
            return i + j;
        }
    }
    return bytes;
}

int gct_check(const void *buf, size_t bytes, int source, int tag)
{
    size_t at = gct_wrong(buf, bytes, source, tag);
    if (at == bytes) {
        return 0;
    }
    return gct_fail(__FILE__, __LINE__, "pattern", "byte %zu of %zu from %d with tag %d is wrong", at, bytes, source, tag);
}

/* ---- jobs ---- */

static void gct_log(void *user, int level, const char *line)
{
    static const char *const name[] = { "error", "warning", "info", "debug" };
    (void)user;
    fprintf(stderr, "[%s] %s\n", level >= 0 && level < 4 ? name[level] : "?", line);
}

int gct_site(const gct_spec *spec, int rank)
{
    int sites = spec->sites > 0 ? spec->sites : 1, place = 0;
    if (!spec->places) {
        return (int)((long long)rank * sites / spec->ranks);
    }
    while (rank >= spec->places[place].ranks) {
        rank -= spec->places[place++].ranks;
    }
    return place;
}

const char *gct_filter(void)
{
    static char filter[64];
    const char *word = getenv("TEST");
    snprintf(filter, sizeof filter, "*%s*", word ? word : "");
    return word ? filter : NULL;
}

void gct_usual_options(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->direct = 1;
    o->credits = 64;
    o->queue_packets = 8;
}

void gct_options(gc_options *o, const gct_spec *spec, int rank, const char *root, const char *cluster, char *text, size_t text_bytes)
{
    const char *log = getenv("GCT_LOG");
    *o = (gc_options)GRIDCOMM_OPTIONS_INIT;
    o->rank = rank;
    o->ranks = spec->ranks;
    o->root = root;
    o->key = "a key for tests";
    o->cluster = spec->sites > 1 || spec->places ? cluster : NULL;
    o->error_text = text;
    o->error_text_size = text_bytes;
    o->log = log && *log == '1' ? gct_log : NULL;
    text[0] = 0;
}

/* What one rank does once gc_init has returned `code`; 0 for success. */
int gct_member(const gct_spec *spec, int code, const char *text, gc_comm *world, int rank, gct_main *rank_main, void *arg)
{
    if (code) {
        if (spec->refused) {
            spec->refused(rank, code, text, arg);
            return 0;
        }
        return gct_fail(__FILE__, __LINE__, "gc_init", "%s: %s", gc_strerror(code), text);
    }
    int bad = rank_main(world, rank, spec->ranks, arg);
    if (!spec->finalizes) {
        code = gc_finalize(world);
        if (code && !bad && !spec->leave_anyhow) {
            bad = gct_fail(__FILE__, __LINE__, "gc_finalize", "%s", gc_strerror(code));
        }
    }
    return bad;
}

bool gct_simulated(const gct_spec *spec)
{
    const char *on = getenv("GCT_ON");
    if (!gct_job_sim || !gct_job_real) {
        return gct_job_sim != NULL;
    }
    return spec->on == GCT_ON_SIM || (spec->on == GCT_ON_ANY && on && strcmp(on, "sim") == 0);
}

int gct_job(const gct_spec *spec, gct_main *rank_main, void *arg)
{
    gct_outcome unused;
    gct_spec job = *spec;
    if (!job.outcome) {
        job.outcome = &unused;
    }
    uint64_t seed = spec->seed ? spec->seed : gct_seed();
    bool simulated = gct_simulated(spec);
    *job.outcome = (gct_outcome){ .on = simulated ? GCT_ON_SIM : GCT_ON_REAL, .seed = seed };
    int failed = (simulated ? gct_job_sim : gct_job_real)(&job, seed, rank_main, arg);
    gct_buffers_end();
    if (failed) {
        fprintf(stderr, "gct: %d of %d ranks failed, %s, GCT_SEED=%llu\n", failed, spec->ranks, simulated ? "simulated" : "real",
                (unsigned long long)seed);
    }
    return failed;
}
