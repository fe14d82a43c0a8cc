/* board.h: how the programs that time a collective agree on when it begins and learn when the last rank had its result: over
 * a file that all ranks map, so that between two operations nothing crosses the network and nothing is computed.
 *
 * SPDX-License-Identifier: MIT
 *
 * The hosts of a test bed are namespaces of one machine: they share its files and CLOCK_MONOTONIC. The file is new and empty
 * for each job. The first operation is the cold one: connections may not exist and windows are closed. Some more are not
 * counted, then come those of which the median is taken. Between, BOARD_HOOK is run at rank 0, if it is set, with the word
 * "begin" or "end": what counts bytes; the operations between both are told.
 *
 * Rank 0 prints: cold, median, least, most (ms), how many samples counted, how many operations ran between the hooks, and the
 * mean (ms) of the samples: what rare stalls cost, which no median shows.
 */
#ifndef BOARD_H
#define BOARD_H

#include "measure.h"

#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { BOARD_RANKS = 256, BOARD_TEXT = 64,
       BOARD_WARM = 5,              /* operations not counted, after the cold one; where that took a second, one */
       BOARD_SAMPLES = 50, BOARD_SAMPLES_LEAST = 5, BOARD_SAMPLES_MAX = 1000,
       BOARD_LONG_MS = 20000,       /* all samples of one operation, about: who takes seconds gets fewer than BOARD_SAMPLES */
       BOARD_MARGIN_MS = 50,        /* of quiet before an operation: less than what makes TCP close its window again */
       BOARD_NAP_US = 50,           /* times the ranks: between looks at the board; who is done must not take the others' core */
       BOARD_START_US = 1000,       /* between looks for the next start */
       BOARD_COMMAND = 4096 };

/* For programs that connect themselves; the port is written last. */
struct board_rank { char cluster[BOARD_TEXT]; uint32_t address; _Atomic uint16_t port; };
struct board {
    atomic_uint done;               /* ranks that have ended an operation, or arrived, ever */
    atomic_int late;                /* the last operation, counted from 1, of whose start a rank heard after it */
    _Atomic int64_t start[2];       /* of operations of even and odd number */
    _Atomic int64_t end[BOARD_RANKS];
    struct board_rank rank[BOARD_RANKS];
};

struct board_job {
    struct board *board;
    int rank, size, times;          /* times 0: as long as an operation takes decides */
    int (*operation)(void *user);
    int (*progress)(void *user, int us);    /* lets what is under way go on, for about so long */
    void *user;
};

static inline struct board *board_open(const char *path)
{
    const int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    struct board *b = MAP_FAILED;
    if (fd >= 0 && ftruncate(fd, sizeof *b) == 0) b = mmap(NULL, sizeof *b, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (fd >= 0) close(fd);
    if (b == MAP_FAILED) perror(path);
    prctl(PR_SET_TIMERSLACK, 1UL);  /* a common start is worth nothing if each rank is 50 us late */
    return b == MAP_FAILED ? NULL : b;
}

static inline void board_nap(int us)
{
    const struct timespec t = { .tv_nsec = us * 1000L };
    nanosleep(&t, NULL);
}

/* Until every rank has been here so often; what a finished operation left to do goes on meanwhile. */
static inline int board_meet(const struct board_job *j, unsigned times)
{
    atomic_fetch_add(&j->board->done, 1);
    while (atomic_load(&j->board->done) < times * (unsigned)j->size)
        if (j->progress(j->user, BOARD_NAP_US * j->size) != 0) return -1;
    return 0;
}

static inline void board_hook(const char *word)
{
    char command[BOARD_COMMAND];
    const char *hook = getenv("BOARD_HOOK");
    if (hook && (size_t)snprintf(command, sizeof command, "%s %s", hook, word) < sizeof command && system(command) != 0)
        fprintf(stderr, "board: %s failed\n", command);
}

/* Operation number i: *seconds until the last rank's end, the same at all ranks; negative if a rank came late to its start. */
static inline int board_one(const struct board_job *j, int i, double *seconds)
{
    struct board *b = j->board;
    int64_t start, last = 0;
    if (j->rank == 0) {
        atomic_store(&b->start[i % 2], measure_now() + (int64_t)BOARD_MARGIN_MS * 1000000);
        atomic_store(&b->start[1 - i % 2], 0);
    }
    while ((start = atomic_load(&b->start[i % 2])) == 0) board_nap(BOARD_START_US);
    if (measure_now() > start) atomic_store(&b->late, i + 1);
    measure_sleep_until(start);
    if (j->operation(j->user) != 0) return -1;
    atomic_store(&b->end[j->rank], measure_now());
    if (board_meet(j, 2 * (unsigned)i + 2) != 0) return -1;
    for (int r = 0; r < j->size; r++) {
        const int64_t end = atomic_load(&b->end[r]);
        if (end > last) last = end;
    }
    *seconds = atomic_load(&b->late) == i + 1 ? -1 : (double)(last - start) / 1e9;
    return board_meet(j, 2 * (unsigned)i + 3);      /* all have read; nobody begins the next before */
}

static inline int board_times(const struct board_job *j, double seconds)
{
    if (j->times > 0) return j->times < BOARD_SAMPLES_MAX ? j->times : BOARD_SAMPLES_MAX;
    const double fit = BOARD_LONG_MS / 1e3 / seconds;
    return fit > BOARD_SAMPLES ? BOARD_SAMPLES : fit < BOARD_SAMPLES_LEAST ? BOARD_SAMPLES_LEAST : (int)fit;
}

/* Times the operation and prints at rank 0. -1: it failed, or every start was late. */
static inline int board_time(const struct board_job *j)
{
    double seconds[BOARD_SAMPLES_MAX], cold = 0, one = 0;
    int n = 0, warm = BOARD_WARM, total = 1 + BOARD_WARM;
    if (j->size > BOARD_RANKS || board_meet(j, 1) != 0) return -1;
    for (int i = 0; i < total; i++) {
        if (j->rank == 0 && i == 1) board_hook("begin");
        if (board_one(j, i, &one) != 0) return -1;
        if (i == 0) cold = one;
        if (i == 0 && cold > 1) total = 1 + (warm = 1);
        if (i == warm) total += board_times(j, one > 0 ? one : cold);       /* every rank has read the same numbers */
        else if (i > warm && one >= 0) seconds[n++] = one;
    }
    if (j->rank != 0) return 0;
    board_hook("end");
    if (n == 0) {
        fprintf(stderr, "board: every common start came too late\n");
        return -1;
    }
    const double median = measure_median(seconds, n);
    double sum = 0;
    for (int i = 0; i < n; i++) sum += seconds[i];
    printf("%.3f %.3f %.3f %.3f %d %d %.3f\n", cold * 1e3, median * 1e3, seconds[0] * 1e3, seconds[n - 1] * 1e3, n, total - 1,
           sum / n * 1e3);
    fflush(stdout);
    return 0;
}

#endif
