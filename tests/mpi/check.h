/* check.h: what the tests of the MPI layer share: cases and their totals, memory of which every byte is checked.
 * SPDX-License-Identifier: MIT
 *
 * The tests use nothing but mpi.h and libc, so they can be tried on any MPI. A case passes if all ranks find all its checks
 * right; rank 0 tells in the end, and every rank ends with a status.
 *
 * Memory comes as areas with GUARD bytes before and behind, all of them a pattern of a seed. A test makes two areas alike, lets
 * MPI work on the one, does to the other by hand what should happen, and compares all bytes: so what must not change is checked
 * as well as what must.
 */
#ifndef MPI_CHECK_H
#define MPI_CHECK_H

#include <mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Some checks go beyond what others do: where they read the standard otherwise, or have errors. */
#ifdef GRIDCOMM_MPI
enum { STRICT = 1 };
#else
enum { STRICT = 0 };
#endif

enum { CASES = 64, TOLD = 4, GUARD = 64 };      /* TOLD: failures of a case that are told */

static struct check { int rank, size, cases, failed[CASES]; const char *name[CASES]; } check;

static int check_that(int holds, const char *what, const char *file, int line)
{
    if (!holds && check.failed[check.cases]++ < TOLD)
        fprintf(stderr, "rank %d of %d: %s:%d: %s: not so: %s\n", check.rank, check.size, file, line,
                check.name[check.cases], what);
    return holds;
}
#define CHECK(condition) check_that(!!(condition), #condition, __FILE__, __LINE__)

static inline int check_equal(long got, long want, const char *what, const char *file, int line)
{
    if (!check_that(got == want, what, file, line) && check.failed[check.cases] <= TOLD)
        fprintf(stderr, "    it is %ld, not %ld\n", got, want);
    return got == want;
}
#define CHECK_EQUAL(got, want) check_equal((long)(got), (long)(want), #got " == " #want, __FILE__, __LINE__)

/* Starts with MPI_Init, unless the program has called it. Whoever hangs is killed. */
static inline void check_begin(int *argc, char ***argv, unsigned seconds)
{
    int begun;
    alarm(seconds);
    MPI_Initialized(&begun);
    if (!begun)
        MPI_Init(argc, argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &check.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &check.size);
}

static inline void run(const char *name, void (*test)(void))
{
    check.name[check.cases] = name;
    test();
    check.cases++;
}

/* Gives the program's exit status. */
static inline int check_end(void)
{
    int all[CASES], failed = 0;
    MPI_Allreduce(check.failed, all, CASES, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < check.cases; i++) {
        failed += all[i] > 0;
        if (check.rank == 0)
            printf("%s %s\n", all[i] ? "FAIL" : "ok  ", check.name[i]);
    }
    if (check.rank == 0)
        printf("%d passed, %d failed\n", check.cases - failed, failed);
    fflush(stdout);
    MPI_Finalize();
    return failed > 0;
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static inline unsigned char pattern(unsigned seed, size_t i)
{
    unsigned x = (unsigned)i * 2654435761u + seed * 40503u + 12345u;
    return (unsigned char)((x ^ x >> 15) * 2246822519u >> 24);
}

static inline unsigned char *area_new(size_t bytes, unsigned seed)
{
    unsigned char *all = malloc(bytes + 2 * GUARD);
    if (!all)
        abort();
    for (size_t i = 0; i < bytes + 2 * GUARD; i++)
        all[i] = pattern(seed, i);
    return all + GUARD;
}

static inline void area_free(unsigned char *area) { free(area - GUARD); }

static inline int area_same(const unsigned char *got, const unsigned char *want, size_t bytes, const char *file, int line)
{
    long i = -GUARD, end = (long)bytes + GUARD;
    while (i < end && got[i] == want[i])
        i++;
    if (i < end && !check_that(0, "memory as it should be", file, line) && check.failed[check.cases] <= TOLD)
        fprintf(stderr, "    byte %ld of %zu is %02x, not %02x\n", i, bytes, got[i], want[i]);
    return i == end;
}
#define CHECK_SAME(got, want, bytes) area_same(got, want, bytes, __FILE__, __LINE__)

/* ---- chance ------------------------------------------------------------------------------------------------------ */

static unsigned long long chance_state;

/* 0 .. n - 1, the same at all ranks that began with the same state and asked as often. */
static inline int chance(int n)
{
    chance_state = chance_state * 6364136223846793005ull + 1442695040888963407ull;
    return (int)((chance_state >> 33) % (unsigned)n);
}

#endif
