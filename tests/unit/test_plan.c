/* test_plan.c: a call that was made before gets the schedule it had then, any other call its own, and none is lost or leaks.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"
#include "failing_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RANKS = 6 };

static gci_env env;
static gci_plans plans;

static gci_call bcast(int root, size_t bytes)
{
    return (gci_call){ .coll = GCI_BCAST, .rank = 2, .ranks = RANKS, .root = root, .bytes = bytes, .even = true, .elem_bytes = 1,
                       .commutative = true, .associative = true };
}

static gci_plan *get(const char *algo, const gci_call *call)
{
    gci_algo_choice choice = { .segment = call->segment };
    gci_plan *plan = NULL;
    snprintf(choice.name, sizeof choice.name, "%s", algo);
    assert_int_equal(gci_plan_get(&env, &plans, &choice, call, false, &plan), GC_OK);
    assert_true(plan->runs > 0);
    return plan;
}

/* The same without a run of it. */
static gci_plan *pass(const char *algo, const gci_call *call)
{
    gci_plan *plan = get(algo, call);
    gci_plan_release(&env, plan);
    return plan;
}

static void none_left(void)
{
    gci_plans_drop(&env, &plans);
    assert_null(plans.first);
    assert_int_equal(plans.count, 0);
    assert_int_equal(plans.bytes, 0);
}

static void test_the_same_again(void **state)
{
    (void)state;
    gci_call call = bcast(0, 100), other = bcast(1, 100), longer = bcast(0, 101);
    gci_plan *first = pass("binomial", &call);
    assert_ptr_equal(pass("binomial", &call), first);
    assert_ptr_not_equal(pass("flat", &call), first);
    assert_ptr_not_equal(pass("binomial", &other), first);
    assert_ptr_not_equal(pass("binomial", &longer), first);
    assert_int_equal(plans.count, 4);
    assert_ptr_equal(pass("binomial", &call), first);
    assert_ptr_equal(plans.first, first);       /* last used */
    none_left();
}

/* Of listed blocks the numbers count, not where they stand: the caller's lists are its own again. */
static void test_lists(void **state)
{
    (void)state;
    size_t bytes[RANKS] = { 1, 2, 3, 4, 5, 6 }, at[RANKS] = { 0, 10, 20, 30, 40, 50 }, copy[RANKS];
    gci_call call = bcast(0, 0);
    call.coll = GCI_ALLGATHER;
    call.even = false;
    call.own = bytes[call.rank];
    call.recv = (gci_blocks){ .bytes = bytes, .at = at };
    gci_plan *first = pass("direct", &call);
    memcpy(copy, bytes, sizeof copy);
    call.recv.bytes = copy;
    assert_ptr_equal(pass("direct", &call), first);
    for (int r = 0; r < RANKS; r++) {
        bytes[r]++;
        copy[r]++;
        assert_ptr_not_equal(pass("direct", &call), first);
        bytes[r]--;
        copy[r]--;
        at[r]++;
        assert_ptr_not_equal(pass("direct", &call), first);
        at[r]--;
    }
    assert_ptr_equal(pass("direct", &call), first);
    none_left();
}

/* Doubling is for powers of two: the rules find what fits. It is kept for who asks for doubling again. */
static void test_unfit(void **state)
{
    (void)state;
    gci_call call = bcast(0, 0);
    call.coll = GCI_ALLGATHER;
    call.own = call.recv.each = 100;
    gci_plan *plan = pass("doubling", &call);
    assert_string_equal(plan->choice.name, "doubling");
    assert_string_not_equal(plan->used.name, "doubling");
    assert_ptr_equal(pass("doubling", &call), plan);
    none_left();
}

/* The longest unused go first; who runs one that has gone keeps it. */
static void test_full(void **state)
{
    (void)state;
    gci_call call = bcast(0, 1000), next = bcast(0, 0);
    gci_plan *running = get("binomial", &call), *used = NULL;
    int most = 0;
    for (size_t bytes = 0; bytes < 200; bytes++) {
        next.bytes = bytes;
        used = pass("binomial", &next);
        most = plans.count > most ? plans.count : most;
    }
    assert_true(most > 8 && most < 200);
    assert_int_equal(plans.count, most);
    assert_ptr_equal(pass("binomial", &next), used);
    assert_false(running->cached);
    assert_int_equal(running->call.bytes, 1000);
    assert_true(running->sched.steps > 0);
    assert_ptr_not_equal(pass("binomial", &call), running);
    gci_plan_release(&env, running);
    none_left();
}

/* A plan of more bytes than the whole cache may have is for its run alone, and takes nothing's place. */
static void test_long(void **state)
{
    (void)state;
    gci_call call = bcast(0, 100), endless = bcast(0, 1 << 20);
    gci_plan *first = pass("binomial", &call);
    endless.segment = 16;
    gci_plan *one = get("chain", &endless);
    assert_true(one->sched.steps > 65536);
    assert_false(one->cached);
    gci_plan_release(&env, one);
    assert_int_equal(plans.count, 1);
    assert_ptr_equal(pass("binomial", &call), first);
    none_left();
}

static void test_dropped_while_it_runs(void **state)
{
    (void)state;
    gci_call call = bcast(0, 100);
    gci_plan *a = get("binomial", &call), *b = get("binomial", &call);
    assert_ptr_equal(a, b);
    none_left();
    assert_int_equal(a->runs, 2);
    gci_plan_release(&env, a);
    assert_ptr_not_equal(pass("binomial", &call), b);
    gci_plan_release(&env, b);
    none_left();
}

/* For each step those that wait for it, and nobody twice. */
static void test_inverted(void **state)
{
    (void)state;
    gci_call call = bcast(0, 4096);
    call.coll = GCI_ALLREDUCE;
    call.rank = 0;
    call.segment = 512;
    const gci_plan *plan = pass("chain", &call);
    int32_t steps = plan->sched.steps, links = 0;
    assert_true(steps > 8);
    for (int32_t i = 0; i < steps; i++)
        for (int32_t k = 0; k < plan->sched.step[i].waits; k++, links++) {
            int32_t earlier = plan->sched.wait[plan->sched.step[i].first_wait + k], found = 0;
            for (int32_t j = plan->first_after[earlier]; j < plan->first_after[earlier + 1]; j++)
                found += plan->after[j] == i;
            assert_int_equal(found, 1);
        }
    assert_true(links > 0);
    assert_int_equal(plan->first_after[steps], links);
    none_left();
}

static void test_out_of_memory(void **state)
{
    (void)state;
    gci_env poor = { .alloc = failing_alloc };
    gci_call call = bcast(0, 100);
    gci_algo_choice choice = { .name = "binomial" };
    gci_plan *plan = NULL;
    int err = GC_ERR_NOMEM, n = 0;
    for (; err == GC_ERR_NOMEM; n++) {
        allocations_left = n;
        err = gci_plan_get(&poor, &plans, &choice, &call, false, &plan);
        assert_int_equal(plans.count, err == GC_OK);
    }
    assert_int_equal(err, GC_OK);
    assert_true(n > 4);
    gci_plan_release(&poor, plan);
    gci_plans_drop(&poor, &plans);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_same_again), cmocka_unit_test(test_lists), cmocka_unit_test(test_unfit),
        cmocka_unit_test(test_full),
        cmocka_unit_test(test_long), cmocka_unit_test(test_dropped_while_it_runs), cmocka_unit_test(test_inverted),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
