/* colls.h: what the tests of collectives share: jobs of every size, algorithms by name.
 * SPDX-License-Identifier: MIT
 */
#ifndef COLLS_H
#define COLLS_H

#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#define COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))
#define GCT_TRY(call) do { int failed_ = (call); if (failed_) return failed_; } while (0)

/* What is wrong at this rank alone. */
#define REFUSES(call) \
    do { \
        char text_[200] = ""; \
        int refused_ = (call); \
        gct_require(refused_ == GC_ERR_ARG, "%s: %s", #call, gc_strerror(refused_)); \
        gct_require(gc_last_error(world, NULL, text_, sizeof text_) == GC_ERR_ARG && text_[0], "no text"); \
    } while (0)

static const int job_sizes[] = { 1, 2, 3, 5, 8, 11, 16 };

static inline void run(int ranks, gct_main *main, void *arg)
{
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .time_limit = 100 }, main, arg));
}

static inline void run_all_sizes(gct_main *main, void *arg)
{
    for (int i = 0; i < COUNT(job_sizes); i++)
        run(job_sizes[i], main, arg);
}

static inline void run_some_sizes(gct_main *main, void *arg)
{
    static const int ranks[] = { 1, 2, 5, 11 };
    for (int i = 0; i < COUNT(ranks); i++)
        run(ranks[i], main, arg);
}

/* arg: of GRIDCOMM_ALGO. */
static inline void set_algo(gc_options *options, int rank, void *arg)
{
    (void)rank;
    options->algo = arg;
}

static inline void run_algorithm(int ranks, gct_main *main, char *name)
{
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .time_limit = 100, .options = set_algo }, main, name));
}

#endif
