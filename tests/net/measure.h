/* measure.h: what the measuring programs share: the clock, the median, and a whole job's way of timing an operation.
 *
 * SPDX-License-Identifier: MIT
 *
 * Every program prints one number, the median of its batches; bench.sh runs two programs in turns and divides.
 */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdint.h>
#include <stdlib.h>
#include <time.h>

enum { MEASURE_WARM_MS = 200,       /* before anything counts: windows open, caches and waiting strategies settle */
       MEASURE_BATCHES = 100,       /* of which the median is taken */
       MEASURE_BATCH_US = 3000,     /* a batch lasts about this long, so that the clock and one hiccup weigh little */
       MEASURE_ISOLATED = 60,       /* operations timed one by one by a whole job, after MEASURE_WARM_OPERATIONS */
       MEASURE_WARM_OPERATIONS = 10,
       MEASURE_MARGIN_MS = 100,     /* from the announcement of a common start to the start: spinning ranks hear late */
       MEASURE_LOOP = 200 };        /* operations in a row, without anything between them */

static inline int64_t measure_now(void)     /* ns; the same clock in every network namespace of a machine */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline void measure_sleep_until(int64_t instant)
{
    const struct timespec t = { .tv_sec = instant / 1000000000, .tv_nsec = instant % 1000000000 };
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) { }
}

static inline int measure_order(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static inline double measure_median(double *samples, int n)     /* sorts them; n > 0 */
{
    qsort(samples, (size_t)n, sizeof *samples, measure_order);
    return n % 2 ? samples[n / 2] : (samples[n / 2 - 1] + samples[n / 2]) / 2;
}

/* The median duration, in seconds, of operation(user), or a negative value if it failed. Ends the same way at both ends of
 * a ping-pong, because only one end calls this and tells the other when it is over. */
static inline double measure_repeat(int (*operation)(void *), void *user)
{
    double samples[MEASURE_BATCHES];
    int64_t begin = measure_now(), count = 0;
    do {
        if (operation(user) != 0) return -1;
        count++;
    } while (measure_now() - begin < (int64_t)MEASURE_WARM_MS * 1000000);
    const int64_t batch = 1 + count * MEASURE_BATCH_US / (MEASURE_WARM_MS * INT64_C(1000));
    for (int i = 0; i < MEASURE_BATCHES; i++) {
        begin = measure_now();
        for (int64_t k = 0; k < batch; k++)
            if (operation(user) != 0) return -1;
        samples[i] = (double)(measure_now() - begin) / 1e9 / (double)batch;
    }
    return measure_median(samples, MEASURE_BATCHES);
}

/* A collective, timed by a whole job. The ranks agree on an instant, all begin then, and the operation ends when the last
 * rank has its result; a sample whose announcement reached some rank too late does not count. */
struct measure_job {
    int rank;
    int (*barrier)(void *user);
    int (*tell)(void *user, int64_t *word);                     /* rank 0's word to all */
    int (*operation)(void *user);
    int (*greatest)(void *user, double *values, int n);         /* of all ranks, element by element, at rank 0 */
    void *user;
};

static inline int measure_one(const struct measure_job *job, double *seconds, double *late)
{
    int64_t start = measure_now() + (int64_t)MEASURE_MARGIN_MS * 1000000;
    if (job->barrier(job->user) != 0 || job->tell(job->user, &start) != 0) return -1;
    *late = measure_now() > start;
    measure_sleep_until(start);
    if (job->operation(job->user) != 0) return -1;
    *seconds = (double)(measure_now() - start) / 1e9;
    return 0;
}

/* At rank 0: *alone = median of isolated operations, *row = mean of many in a row, in seconds. -1: failed or all late. */
static inline int measure_collective(const struct measure_job *job, double *alone, double *row)
{
    double seconds[MEASURE_ISOLATED], late[MEASURE_ISOLATED], warm[2];
    int valid = 0;
    for (int i = 0; i < MEASURE_WARM_OPERATIONS; i++)
        if (measure_one(job, &warm[0], &warm[1]) != 0) return -1;
    for (int i = 0; i < MEASURE_ISOLATED; i++)
        if (measure_one(job, &seconds[i], &late[i]) != 0) return -1;
    if (job->greatest(job->user, seconds, MEASURE_ISOLATED) != 0 || job->greatest(job->user, late, MEASURE_ISOLATED) != 0
        || job->barrier(job->user) != 0) return -1;
    const int64_t begin = measure_now();
    for (int i = 0; i < MEASURE_LOOP; i++)
        if (job->operation(job->user) != 0) return -1;
    *row = (double)(measure_now() - begin) / 1e9 / MEASURE_LOOP;
    if (job->rank != 0) return 0;
    for (int i = 0; i < MEASURE_ISOLATED; i++)
        if (late[i] < 1) seconds[valid++] = seconds[i];
    if (valid == 0) return -1;
    *alone = measure_median(seconds, valid);
    return 0;
}

#endif
