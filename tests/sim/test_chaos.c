/* test_chaos.c: random jobs on a network that fails: partitions, deaths, stops, middleboxes, under all kinds of traffic.
 * SPDX-License-Identifier: MIT
 *
 * Runs seeds for CHAOS_SECONDS (20): half of that time, 10 s at most, from 1 on, then fresh ones (from GCT_SEED, if it is set). A seed
 * that fails is printed with the command that has it again: CHAOS_SEED=N. To find its cause, leave out what it does not need:
 * CHAOS_ROUNDS=N rounds, CHAOS_OPS=N messages and N collectives, CHAOS_EVENTS=N events. CHAOS_SEEDS=N runs the seeds from
 * CHAOS_FIRST (1) on, and all of them whatever fails, but with CHAOS_STOP=1. CHAOS_TELL=1 tells of each. time limit: 600 s
 */
#include "chaos.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <cmocka.h>

static long long number(const char *name, long long otherwise)
{
    const char *text = getenv(name);
    return text && *text ? atoll(text) : otherwise;
}

static double seconds(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

typedef struct totals { long long seeds, failed, operations, errors; double worst; } totals;

static int one_seed(uint64_t seed, totals *t, bool tell)
{
    static chaos_plan plan;
    chaos_limits limits = { (int)number("CHAOS_ROUNDS", 0), (int)number("CHAOS_OPS", 0), (int)number("CHAOS_EVENTS", 0) };
    chaos_result result;
    double begun = seconds(CLOCK_PROCESS_CPUTIME_ID);
    chaos_plan_make(&plan, seed, &limits);
    int failed = chaos_run(&plan, &result);
    double took = seconds(CLOCK_PROCESS_CPUTIME_ID) - begun;
    t->seeds++;
    t->failed += failed != 0;
    t->operations += result.operations;
    t->errors += result.failed_operations;
    t->worst = took > t->worst ? took : t->worst;
    if (failed || tell) {
        print_message(
            "seed %llu: ranks%s\n    %d rounds, %d messages, %d collectives, %d communicators: "
            "%d operations, %d failed, %.3f s, %.0f ms of CPU\n",
            (unsigned long long)seed, plan.story, plan.rounds, plan.messages, plan.colls, plan.comms, result.operations,
            result.failed_operations, (double)result.virtual_ns / 1e9, took * 1e3);
    }
    if (failed) {
        print_message("    failed. Again: CHAOS_SEED=%llu tests/sim/test_chaos\n", (unsigned long long)seed);
    }
    return failed;
}

static void tell(const totals *t, double cpu)
{
    print_message("%lld seeds, %lld failed; %.1f ms of CPU each, %.0f at most; %lld operations, %lld with an error that had a cause\n",
                  t->seeds, t->failed, t->seeds ? cpu * 1e3 / (double)t->seeds : 0, t->worst * 1e3, t->operations, t->errors);
}

static void test_chaos(void **state)
{
    (void)state;
    totals t = { .seeds = 0 };
    double begun = seconds(CLOCK_MONOTONIC), cpu = seconds(CLOCK_PROCESS_CPUTIME_ID), most = (double)number("CHAOS_SECONDS", 20);
    uint64_t seed = (uint64_t)number("CHAOS_SEED", 0), fresh = gct_seed();
    long long count = number("CHAOS_SEEDS", 0), first = number("CHAOS_FIRST", 1);
    if (seed) {
        one_seed(seed, &t, true);
    } else if (count) {
        for (long long i = 0; i < count && !(t.failed && number("CHAOS_STOP", 0)); i++) {
            one_seed((uint64_t)(first + i), &t, getenv("CHAOS_TELL") != NULL);
        }
    } else {
        for (long long i = 1; seconds(CLOCK_MONOTONIC) - begun < (most < 20 ? most / 2 : 10) && !t.failed; i++) {
            one_seed((uint64_t)i, &t, false);
        }
        print_message("%lld seeds from 1 on, then from %llu on\n", t.seeds, (unsigned long long)fresh);
        for (long long i = 0; seconds(CLOCK_MONOTONIC) - begun < most && !t.failed; i++) {
            one_seed(fresh + (uint64_t)i, &t, false);
        }
    }
    tell(&t, seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu);
    assert_int_equal(0, t.failed);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_chaos) };
    return cmocka_run_group_tests_name("chaos", tests, NULL, NULL);
}
