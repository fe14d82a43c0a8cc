/* gct_real.c: jobs on real sockets: every rank a thread of this process with a world of its own, over loopback.
 * SPDX-License-Identifier: MIT
 *
 * Uses nothing but the public API. A watchdog ends the program when a job takes too long, since a thread that hangs cannot be
 * ended; it says which ranks are not through.
 */
#define _POSIX_C_SOURCE 200809L
#include "gct.h"
#include "port.h"

#include <dirent.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { GCT_TIME_LIMIT_S = 60, GCT_ROOT_TEXT = 32 };

typedef struct gct_real_job {
    const gct_spec *spec;
    gct_main *run;
    void     *arg;
    char      root[GCT_ROOT_TEXT];
    pthread_mutex_t lock;
    pthread_cond_t  through;
    int       running;
} gct_real_job;

typedef struct gct_real_rank {
    gct_real_job *job;
    int       rank, bad;
    bool      ended;
    atomic_long blocks;         /* that the library holds */
    pthread_t thread;
} gct_real_rank;

/* gc_options.alloc with a count. */
static void *gct_real_alloc(void *user, void *old, size_t bytes)
{
    gct_real_rank *r = user;
    if (!bytes) {
        r->blocks -= old != NULL;
        free(old);
        return NULL;
    }
    void *new = realloc(old, bytes);
    r->blocks += new && !old;
    return new;
}

static void *gct_real_main(void *of_rank)
{
    gct_real_rank *r = of_rank;
    gct_real_job *job = r->job;
    gc_options o;
    gc_comm *world = NULL;
    char text[256], cluster[16];
    gct_set_rank(r->rank);
    snprintf(cluster, sizeof cluster, "%c", 'a' + gct_site(job->spec, r->rank) % 26);
    gct_options(&o, job->spec, r->rank, job->root, cluster, text, sizeof text);
    o.alloc = gct_real_alloc;
    o.alloc_user = r;
    if (job->spec->options) {
        job->spec->options(&o, r->rank, job->arg);
    }
    int code = gc_init(&world, &o);
    r->bad = gct_member(job->spec, code, text, world, r->rank, job->run, job->arg);
    if (!r->bad && r->blocks) {
        fprintf(stderr, "gct: rank %d still holds %ld blocks\n", r->rank, (long)r->blocks);
        r->bad = 1;
    }
    pthread_mutex_lock(&job->lock);
    r->ended = true;
    job->running--;
    pthread_cond_signal(&job->through);
    pthread_mutex_unlock(&job->lock);
    return NULL;
}

static int gct_open_descriptors(void)
{
    DIR *all = opendir("/proc/self/fd");
    int n = 0;
    while (all && readdir(all)) {
        n++;
    }
    if (all) {
        closedir(all);
    }
    return n;
}

static void gct_real_watch(gct_real_job *job, gct_real_rank *ranks, uint64_t seed)
{
    struct timespec limit;
    clock_gettime(CLOCK_MONOTONIC, &limit);
    limit.tv_sec += job->spec->time_limit ? job->spec->time_limit : GCT_TIME_LIMIT_S;
    pthread_mutex_lock(&job->lock);
    while (job->running) {
        if (pthread_cond_timedwait(&job->through, &job->lock, &limit) == 0) {
            continue;
        }
        fprintf(stderr, "gct: time is over, GCT_SEED=%llu; not through:", (unsigned long long)seed);
        for (int rank = 0; rank < job->spec->ranks; rank++) {
            if (!ranks[rank].ended) {
                fprintf(stderr, " %d", rank);
            }
        }
        fputc('\n', stderr);
        abort();
    }
    pthread_mutex_unlock(&job->lock);
}

int gct_job_real(const gct_spec *spec, uint64_t seed, gct_main *run, void *arg)
{
    gct_real_job job = { .spec = spec, .run = run, .arg = arg, .lock = PTHREAD_MUTEX_INITIALIZER, .running = spec->ranks };
    gct_real_rank *ranks = calloc((size_t)spec->ranks, sizeof *ranks);
    pthread_condattr_t monotonic;
    int failed = 0, descriptors = gct_open_descriptors();
    if (!ranks) {
        abort();
    }
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&job.through, &monotonic);
    pthread_condattr_destroy(&monotonic);
    snprintf(job.root, sizeof job.root, "127.0.0.1:%d", free_port());
    for (int rank = 0; rank < spec->ranks; rank++) {
        ranks[rank].job = &job;
        ranks[rank].rank = rank;
        if (pthread_create(&ranks[rank].thread, NULL, gct_real_main, &ranks[rank]) != 0) {
            perror("gct: thread");
            abort();
        }
    }
    gct_real_watch(&job, ranks, seed);
    for (int rank = 0; rank < spec->ranks; rank++) {
        pthread_join(ranks[rank].thread, NULL);
        failed += ranks[rank].bad != 0;
    }
    descriptors = gct_open_descriptors() - descriptors;
    if (descriptors) {
        fprintf(stderr, "gct: %d descriptors are still open\n", descriptors);
        failed += !failed;
    }
    pthread_cond_destroy(&job.through);
    pthread_mutex_destroy(&job.lock);
    free(ranks);
    return failed;
}
