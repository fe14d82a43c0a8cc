/* descriptors.c: a rank that may have few descriptors. tests/run/test_descriptors.sh starts it.
 * SPDX-License-Identifier: MIT
 *
 *     gcrun -n RANKS descriptors LIMIT RANK
 *
 * LIMIT is what RLIMIT_NOFILE says, for RANK, or "all". Prints "works", or "error:" and what the library says of it, and ends with 0;
 * with 1 if a byte is wrong, an error has no text, or more descriptors are open than at the beginning.
 */
#include "gridcomm.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

enum { BYTES = 100000 };

static int limit(int descriptors)
{
    struct rlimit now;
    if (getrlimit(RLIMIT_NOFILE, &now) != 0)
        return -1;
    now.rlim_cur = descriptors ? (rlim_t)descriptors : now.rlim_max;
    return setrlimit(RLIMIT_NOFILE, &now);
}

static int open_now(void)
{
    int n = 0;
    DIR *d = opendir("/proc/self/fd");
    if (!d)
        return -1;
    while (readdir(d))
        n++;
    closedir(d);
    return n;
}

static void fill(unsigned char *buf, int rank)
{
    for (int i = 0; i < BYTES; i++)
        buf[i] = (unsigned char)(rank * 31 + i * 7 + i / 251);
}

/* 1: a byte is wrong. *err: of the call that failed. */
static int talk(gc_comm *world, int *err)
{
    static unsigned char out[BYTES], in[BYTES], want[BYTES];
    int rank = gc_rank(world), ranks = gc_size(world);
    for (int away = 1; away < ranks; away++) {
        int from = (rank + ranks - away) % ranks;
        fill(out, rank);
        fill(want, from);
        *err = gc_sendrecv(world, out, BYTES, (rank + away) % ranks, away, in, BYTES, from, away, NULL);
        if (*err < 0)
            return 0;
        if (memcmp(in, want, BYTES) != 0)
            return 1;
    }
    *err = gc_barrier(world);
    return 0;
}

int main(int argc, char **argv)
{
    char text[256] = "";
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    const char *rank = getenv("GRIDCOMM_RANK");
    gc_comm *world;
    int wrong = 0, before = open_now(), end;
    if (argc < 3 || before < 0)
        return 2;
    if ((strcmp(argv[2], "all") == 0 || (rank && strcmp(rank, argv[2]) == 0)) && limit(atoi(argv[1])) < 0)
        return 2;
    o.error_text = text;
    o.error_text_size = sizeof text;
    o.start_timeout = 4;
    o.peer_timeout = 4;
    int err = gc_init(&world, &o);
    if (err == GC_OK) {
        wrong = talk(world, &err);
        if (err < 0)
            gc_last_error(world, NULL, text, sizeof text);
        end = gc_finalize(world);
        if (err == GC_OK && end < 0)
            snprintf(text, sizeof text, "%s", gc_strerror(err = end));
    }
    if (limit(0) < 0)
        return 2;
    int after = open_now();
    if (err == GC_OK)
        printf("works\n");
    else
        printf("error: %s: %s\n", gc_strerror(err), text);
    if (wrong || after > before || (err < 0 && !text[0])) {
        printf("wrong: %d descriptors before, %d after, %s\n", before, after, wrong ? "a byte" : "no byte");
        return 1;
    }
    return 0;
}
