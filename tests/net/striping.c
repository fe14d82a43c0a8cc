/* striping.c: messages from the first to the last rank, each timed alone and checked byte by byte.
 *
 * SPDX-License-Identifier: MIT
 *
 *     striping BYTES TIMES
 *
 * A message of an eighth of BYTES goes first, so that links are open and their windows too; then the process is called
 * striping-run. A transfer lasts until the last rank's answer, one byte, is back; it is checked after that. Rank 0 prints
 * two numbers: byte/s of the median one, and the seconds that the longest one took. Ranks between the two just wait.
 */
#define _GNU_SOURCE
#include "tools/tool.h"
#include "measure.h"

#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

enum { TAG_DATA = 1, TAG_ANSWER, TAG_END, WARM_PART = 8, TIMES_MAX = 100, MESSAGE_MAX = 1 << 28, ALARM_SECONDS = 240 };

struct ends { gc_comm *world; int rank, last; uint64_t *words; };

/* No two words of a message are equal, nor two messages' words at one place. */
static uint64_t content(size_t i, int round) { return (i + 1) * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)round; }

static int send_one(const struct ends *s, size_t bytes, int round, double *seconds)
{
    char byte = 0;
    for (size_t i = 0; i < bytes / sizeof *s->words; i++) s->words[i] = content(i, round);
    const int64_t begin = measure_now();
    int e = gc_send(s->world, s->words, bytes, s->last, TAG_DATA);
    if (!e) e = gc_recv(s->world, &byte, 1, s->last, TAG_ANSWER, NULL);
    *seconds = (double)(measure_now() - begin) / 1e9;
    return e;
}

static int take_one(const struct ends *s, size_t bytes, int round)
{
    char byte = 0;
    gc_status status;
    memset(s->words, 0, bytes);
    int e = gc_recv(s->world, s->words, bytes, 0, TAG_DATA, &status);
    if (!e) e = gc_send(s->world, &byte, 1, 0, TAG_ANSWER);
    if (!e && status.bytes != bytes) {
        fprintf(stderr, "striping: %zu bytes instead of %zu\n", status.bytes, bytes);
        return GC_ERR_PROTOCOL;
    }
    for (size_t i = 0; !e && i < bytes / sizeof *s->words; i++)
        if (s->words[i] != content(i, round)) {
            fprintf(stderr, "striping: message %d: byte %zu is wrong\n", round, i * sizeof *s->words);
            return GC_ERR_PROTOCOL;
        }
    return e;
}

static int run(const struct ends *s, size_t bytes, int times)
{
    double seconds[TIMES_MAX], warm;
    int e = 0;
    const int end = s->rank == 0 || s->rank == s->last;
    if (!end) e = gc_recv(s->world, NULL, 0, 0, TAG_END, NULL);
    for (int i = -1; i < times && !e && end; i++) {
        const size_t n = i < 0 ? bytes / WARM_PART / sizeof *s->words * sizeof *s->words : bytes;
        if (i == 0) prctl(PR_SET_NAME, "striping-run");
        e = s->rank == 0 ? send_one(s, n, i, i < 0 ? &warm : &seconds[i]) : take_one(s, n, i);
    }
    for (int i = 1; i < s->last && !e && s->rank == 0; i++) e = gc_send(s->world, NULL, 0, i, TAG_END);
    if (!e) e = gc_barrier(s->world);           /* the last rank has found all right */
    if (!e && s->rank == 0) {
        const double median = measure_median(seconds, times);
        printf("%.0f %.3f\n", (double)bytes / median, seconds[times - 1]);
    }
    return e;
}

int main(int argc, char **argv)
{
    struct ends s = { 0 };
    const size_t bytes = argc == 3 ? (size_t)strtoull(argv[1], NULL, 10) / sizeof *s.words * sizeof *s.words : 0;
    const int times = argc == 3 ? atoi(argv[2]) : 0;
    if (bytes < WARM_PART * sizeof *s.words || bytes > MESSAGE_MAX || times < 1 || times > TIMES_MAX) {
        fprintf(stderr, "usage: striping BYTES TIMES\n");
        return 2;
    }
    alarm(ALARM_SECONDS);       /* nothing here may wait for ever */
    if (!(s.world = tool_init("striping"))) return 1;
    s.rank = gc_rank(s.world);
    s.last = gc_size(s.world) - 1;
    s.words = malloc(bytes);
    const int e = !s.words ? GC_ERR_NOMEM : s.last < 1 ? GC_ERR_ARG : run(&s, bytes, times);
    if (e) {
        tool_failed("striping", s.world, "messages", e);
        gc_abort(s.world, e);
    }
    const int f = gc_finalize(s.world);
    free(s.words);
    return e || f;
}
