/* test_exchange.c: the algorithms among ranks that are equally near: proven by the checker, counted against the literature.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part (large jobs, uneven blocks).
 */
#include "sched_job.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { RANKS_DENSE = 40, RANKS_ALL_PLACES = 13, RANKS_COUNTED = 33, RANDOM_JOBS = 30, LARGE_JOBS = 2 };

static const char *const names[] = { "doubling", "halving", "ring", "bruck", "pairwise", "direct", "scatter" };

static gci_env env;
static bool is_power_of_two(int n)
{
    return (n & (n - 1)) == 0;
}

static int rounded_log2(int n)
{
    int k = 0;
    while ((INT64_C(1) << k) < n)
        k++;
    return k;
}

/* ---- right results ------------------------------------------------------------------------------------------------- */

/* How many ranks the players [first, first + players) stand for, whose halves meet, 0 if that is not canonical. The first `pairs`
 * players stand for two. */
static int canonical_span(int pairs, int first, int players)
{
    if (players == 1)
        return first < pairs ? 2 : 1;
    int low = canonical_span(pairs, first, players / 2), high = canonical_span(pairs, first + players / 2, players / 2);
    bool largest = low > 0 && high > 0 && is_power_of_two(low) && high <= low;
    return largest ? low + high : 0;
}

static bool folds_canonically(int ranks)
{
    int players = 1;
    while (2 * players <= ranks)
        players *= 2;
    return canonical_span(ranks - players, 0, players) > 0;
}

/* What an algorithm may refuse, and then must. */
static bool refuses(const job_spec *s)
{
    bool reduces = gci_coll_reduces(s->coll), halves = strcmp(s->algo, "halving") == 0 || s->coll == GCI_ALLREDUCE;
    if (strcmp(s->algo, "direct") == 0 || strcmp(s->algo, "scatter") == 0)
        return false;
    if (strcmp(s->algo, "ring") == 0)
        return reduces && (s->from_left || s->canonical || !s->in_any_order);
    if (reduces && s->from_left)
        return true;
    if (reduces && s->canonical)
        return strcmp(s->algo, "pairwise") == 0 || (halves && !folds_canonically(s->ranks));
    if (s->coll == GCI_ALLGATHER && strcmp(s->algo, "doubling") == 0)
        return s->sizes || !is_power_of_two(s->ranks);
    return s->coll == GCI_ALLTOALL && strcmp(s->algo, "bruck") == 0 && s->sizes;
}

static int prove(const job_spec *s)
{
    char why[CHECK_TEXT];
    int messages = job_run(&env, s, NULL, why);
    if (refuses(s) ? messages != JOB_UNSUPPORTED : messages < 0)
        fail_msg("%s %s: %d ranks, root %d, %zu bytes%s of %zu, segment %zu, places %d%s%s%s: %s", gci_coll_name(s->coll),
                 s->algo, s->ranks, s->root, s->bytes, s->sizes ? " (uneven)" : "", s->elem_bytes, s->segment, (int)s->places,
                 s->in_any_order ? ", any order" : "", s->from_left ? ", from left" : "", s->canonical ? ", canonical" : "",
                 messages == JOB_WRONG ? why : messages < 0 ? "refused" : "not refused");
    return messages;
}

static void prove_orders(job_spec s)
{
    static const struct { bool any, left, canonical; } order[] = { { true, false, false }, { false, false, false },
                                                                   { false, true, false }, { true, false, true },
                                                                   { false, true, true } };
    for (size_t o = 0; o < (gci_coll_reduces(s.coll) ? GCI_COUNT(order) : 1); o++) {
        s.in_any_order = order[o].any;
        s.from_left = order[o].left;
        s.canonical = order[o].canonical;
        for (int places = JOB_APART; places <= JOB_MIXED; places++) {
            s.places = (enum job_places)places;
            if (s.ranks <= RANKS_ALL_PLACES || places == s.ranks % 3)
                prove(&s);
        }
    }
}

static void prove_sizes(job_spec s)
{
    static const struct { size_t elem, count, segment; int ranks; } size[] = {
        { 3, 1, 0, 24 }, { 4, 43, 8, RANKS_DENSE },
        { 1, 1, 0, 12 }, { 8, 5, 0, 12 }, { 4, 37, 0, 17 }, { 2, 160, 6, 12 } };
    for (size_t i = 0; i < GCI_COUNT(size); i++) {
        s.elem_bytes = size[i].elem;
        s.bytes = size[i].elem * size[i].count;
        s.segment = size[i].segment;
        if (s.ranks <= size[i].ranks)
            prove_orders(s);
    }
}

static void each(void (*with)(job_spec), int ranks)
{
    for (size_t a = 0; a < GCI_COUNT(names); a++)
        for (int coll = 0; coll < GCI_COLLS; coll++)
            if (gci_algo_find((enum gci_coll)coll, names[a]))
                with((job_spec){ .coll = (enum gci_coll)coll, .algo = names[a], .ranks = ranks });
}

static bool is_rooted(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_REDUCE;
}

static void prove_roots(job_spec s)
{
    int step = s.ranks <= 9 ? 1 : s.ranks / 3;
    for (s.root = 0; s.root < (is_rooted(s.coll) ? s.ranks : 1); s.root += step)
        prove_sizes(s);
}

static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_DENSE; ranks++)
        each(prove_roots, ranks);
}

static void prove_random(job_spec s)
{
    size_t *sizes = calloc((size_t)s.ranks * (size_t)s.ranks, sizeof *sizes);
    assert_non_null(sizes);
    s.root = below(s.ranks);
    s.elem_bytes = gci_coll_reduces(s.coll) ? (size_t)(1 + below(8)) : 1;
    s.bytes = s.elem_bytes * (size_t)below(3 * s.ranks);
    s.segment = below(2) ? (size_t)below(16) : 0;
    s.in_any_order = below(2);
    s.from_left = below(4) == 0;
    s.canonical = below(4) == 0;
    s.places = (enum job_places)below(3);
    bool blocks = s.coll == GCI_ALLGATHER || s.coll == GCI_ALLTOALL || s.coll == GCI_REDUCE_SCATTER;
    if (blocks)
        s.bytes = s.elem_bytes * (size_t)below(4);
    if (blocks && below(3) > 0) {
        int zeros = below(3);               /* none, half of them, most of them */
        for (int i = 0; i < s.ranks * s.ranks; i++)
            sizes[i] = below(4) < 2 * zeros - (zeros > 1) ? 0 : s.elem_bytes * (size_t)(1 + below(9));
        sizes[below(s.ranks)] = s.elem_bytes;           /* a call of which all know that it is empty is never refused */
        s.sizes = sizes;
    }
    if (s.bytes > 0 || s.sizes)
        prove(&s);
    free(sizes);
}

static void test_random(void **state)
{
    static const int large[] = { 64, 100, 127, 128, 129, 255, 300 };
    const char *rounds = getenv("GCT_ROUNDS");
    seed_random();
    (void)state;
    int jobs = rounds ? atoi(rounds) : RANDOM_JOBS;
    for (int i = 0; i < jobs; i++)
        each(prove_random, 1 + below(RANKS_DENSE));
    for (int i = 0; i < LARGE_JOBS && i < jobs; i++)
        each(prove_random, large[below((int)GCI_COUNT(large))]);
}

/* Nobody has anything: no messages. One has something: no message between others. */
static void prove_empty(job_spec s)
{
    size_t none[5] = { 0 }, one[5] = { 0, 0, 0, 6, 0 };
    bool blocks = s.coll == GCI_ALLGATHER || s.coll == GCI_REDUCE_SCATTER;
    s.in_any_order = true;
    if (s.coll == GCI_BARRIER)
        return;
    if (!refuses(&s))
        assert_int_equal(prove(&s), 0);
    s.sizes = none;
    if (blocks && !refuses(&s))
        assert_int_equal(prove(&s), 0);
    s.sizes = one;
    if (blocks && !refuses(&s) && strcmp(s.algo, "halving") != 0)
        assert_int_equal(prove(&s), s.ranks - 1);
}

static void test_nothing_to_move(void **state)
{
    (void)state;
    each(prove_empty, 5);
}

/* ---- what it costs ------------------------------------------------------------------------------------------------- */

typedef struct cost { int messages, rounds; size_t bytes, most, least; } cost;      /* sent: by all, by a rank */

/* One pass of all ranks' steps: when each ends, in messages one after another. Returns whether anything has changed. */
static bool pass(const gci_sched sched[], int ranks, int *end[])
{
    bool changed = false;
    for (int r = 0; r < ranks; r++)
        for (int32_t i = 0; i < sched[r].steps; i++) {
            const gci_step *step = &sched[r].step[i], *other = NULL;
            int at = 0, nth = 0;
            for (int32_t k = 0; k < step->waits; k++)
                at = gci_max32(at, end[r][sched[r].wait[step->first_wait + k]]);
            for (int32_t k = 0; k < i; k++)
                nth += sched[r].step[k].kind == GCI_STEP_RECV && sched[r].step[k].peer == step->peer;
            if (step->kind == GCI_STEP_RECV) {
                other = sched[step->peer].step;
                for (; other->kind != GCI_STEP_SEND || other->peer != r || nth-- > 0; other++)
                    ;
                at = gci_max32(at, end[step->peer][other - sched[step->peer].step] + 1);
            }
            changed |= at != end[r][i];
            end[r][i] = at;
        }
    return changed;
}

static cost cost_of(const job_spec *s)
{
    cost c = { .least = SIZE_MAX };
    char why[CHECK_TEXT];
    gci_call call[RANKS_COUNTED];
    gci_sched sched[RANKS_COUNTED] = { 0 };
    int *end[RANKS_COUNTED];
    for (int r = 0; r < s->ranks; r++)
        job_call(s, r, &call[r]);
    assert_int_equal(job_build(&env, s, call, sched, why), 0);
    for (int r = 0; r < s->ranks; r++) {
        size_t sent = 0;
        end[r] = calloc((size_t)sched[r].steps + 1, sizeof *end[r]);
        assert_non_null(end[r]);
        for (int32_t i = 0; i < sched[r].steps; i++)
            if (sched[r].step[i].kind == GCI_STEP_SEND) {
                sent += sched[r].step[i].bytes;
                c.messages++;
            }
        c.bytes += sent;
        c.most = gci_max(c.most, sent);
        c.least = gci_min(c.least, sent);
    }
    while (pass(sched, s->ranks, end))
        ;
    for (int r = 0; r < s->ranks; r++) {
        for (int32_t i = 0; i < sched[r].steps; i++)
            c.rounds = gci_max32(c.rounds, end[r][i]);
        free(end[r]);
        gci_sched_free(&env, &sched[r]);
        job_call_free(&call[r]);
    }
    return c;
}

enum { UNIT = 8 };              /* bytes per rank */

static cost cost_at(enum gci_coll coll, const char *algo, int ranks)
{
    bool blocks = coll == GCI_ALLGATHER || coll == GCI_ALLTOALL || coll == GCI_REDUCE_SCATTER;
    return cost_of(&(job_spec){ .coll = coll, .algo = algo, .ranks = ranks, .bytes = blocks ? UNIT : UNIT * (size_t)ranks,
                                .elem_bytes = UNIT, .in_any_order = true });
}

/* Rounds: at most; exactly, unless ranks fold, since not all wait for those that fold. */
static void expect(enum gci_coll coll, const char *algo, int ranks, int messages, int rounds, bool folds)
{
    cost c = cost_at(coll, algo, ranks);
    if (c.messages != messages || c.rounds > rounds || c.rounds < rounds - folds)
        fail_msg("%s %s, %d ranks: %d messages in %d rounds, not %d in %d", gci_coll_name(coll), algo, ranks, c.messages,
                 c.rounds, messages, rounds);
}

/* All ranks send the same: the fewest bytes there can be. */
static void expect_bytes(enum gci_coll coll, const char *algo, int ranks, int units)
{
    cost c = cost_at(coll, algo, ranks);
    assert_int_equal(c.least, (size_t)units * UNIT);
    assert_int_equal(c.most, (size_t)units * UNIT);
}

static void test_messages_and_rounds(void **state)
{
    (void)state;
    for (int p = 1; p <= RANKS_COUNTED; p++) {
        int k = rounded_log2(p), whole = is_power_of_two(p) ? k : k - 1, players = 1 << whole, pairs = p - players;
        int all = p * (p - 1);
        bool fold = pairs > 0;
        expect(GCI_BARRIER, "doubling", p, p * k, k, false);
        expect(GCI_ALLREDUCE, "doubling", p, players * whole + 2 * pairs, whole + 2 * fold, fold);
        expect(GCI_ALLREDUCE, "halving", p, 2 * players * whole + 2 * pairs, 2 * whole + 2 * fold, fold);
        expect(GCI_REDUCE, "halving", p, players * whole + pairs + players - 1, 2 * whole + fold, fold);
        expect(GCI_REDUCE_SCATTER, "halving", p, players * whole + 2 * pairs, whole + 2 * fold, fold);
        expect(GCI_ALLGATHER, "ring", p, all, p - 1, false);
        expect(GCI_REDUCE_SCATTER, "ring", p, all, p - 1, false);
        expect(GCI_ALLREDUCE, "ring", p, 2 * all, 2 * (p - 1), false);
        expect(GCI_ALLGATHER, "bruck", p, p * k, k, false);
        expect(GCI_ALLTOALL, "bruck", p, p * k, k, false);
        expect(GCI_ALLTOALL, "pairwise", p, all, p / 2, false);       /* two at a time */
        expect(GCI_REDUCE_SCATTER, "pairwise", p, all, p - 1, false);
        expect(GCI_ALLTOALL, "direct", p, all, p > 1, false);
        expect(GCI_ALLGATHER, "direct", p, all, p > 1, false);
        expect(GCI_REDUCE_SCATTER, "direct", p, all, p > 1, false);
        expect(GCI_SCAN, "direct", p, all / 2, p > 1, false);
        expect(GCI_EXSCAN, "direct", p, all / 2, p > 1, false);
        cost scan = cost_at(GCI_SCAN, "doubling", p), bcast = cost_at(GCI_BCAST, "scatter", p);
        assert_int_equal(scan.rounds, k);
        assert_in_range(scan.messages, p - 1, p * k - (p - 1));
        assert_int_equal(bcast.bytes, (size_t)all * UNIT);         /* everybody but the root gets every byte once */
        assert_true(bcast.rounds <= k + p - 1);
        if (is_power_of_two(p)) {
            expect(GCI_ALLGATHER, "doubling", p, p * k, k, false);
            expect(GCI_SCAN, "doubling", p, p * k - (p - 1), k, false);
            expect(GCI_EXSCAN, "doubling", p, p * k - (p - 1), k, false);
            assert_int_equal(bcast.messages, p - 1 + p * p - p * (k + 2) / 2);
        }
    }
}

static void test_bytes(void **state)
{
    (void)state;
    for (int p = 1; p <= RANKS_COUNTED; p++) {
        expect_bytes(GCI_ALLREDUCE, "ring", p, 2 * (p - 1));
        expect_bytes(GCI_REDUCE_SCATTER, "ring", p, p - 1);
        expect_bytes(GCI_ALLGATHER, "ring", p, p - 1);
        expect_bytes(GCI_ALLGATHER, "bruck", p, p - 1);
        expect_bytes(GCI_ALLTOALL, "pairwise", p, p - 1);
        expect_bytes(GCI_REDUCE_SCATTER, "pairwise", p, p - 1);
        if (is_power_of_two(p)) {
            expect_bytes(GCI_ALLREDUCE, "halving", p, 2 * (p - 1));
            expect_bytes(GCI_REDUCE_SCATTER, "halving", p, p - 1);
            expect_bytes(GCI_ALLGATHER, "doubling", p, p - 1);
            expect_bytes(GCI_ALLTOALL, "bruck", p, p / 2 * rounded_log2(p));
        }
    }
}

/* In segments the prefix goes from rank to rank, unless it must be canonical. */
static void test_scan_in_segments(void **state)
{
    job_spec s = { .coll = GCI_SCAN, .algo = "direct", .ranks = 9, .bytes = 64, .segment = 16, .elem_bytes = 8,
                   .from_left = true };
    (void)state;
    assert_int_equal(prove(&s), 4 * 8);
    assert_int_equal(cost_of(&s).rounds, 8);
    s.from_left = false;
    s.canonical = true;
    int messages = prove(&s);
    s.algo = "doubling";
    assert_int_equal(prove(&s), messages);
    s.segment = 0;
    assert_int_equal(4 * prove(&s), messages);
}

/* Scratch that the header of exchange.c and the choice rely on: rings and direct reductions need a window, not the vector. */
static void test_scratch(void **state)
{
    static const struct { enum gci_coll coll; const char *algo; size_t pieces; bool canonical; } bounded[] = {
        { GCI_ALLREDUCE, "ring", 4, false }, { GCI_REDUCE_SCATTER, "ring", 4, false },
        { GCI_REDUCE_SCATTER, "pairwise", 4, false }, { GCI_REDUCE_SCATTER, "direct", 16, false },
        { GCI_SCAN, "direct", 16, false }, { GCI_SCAN, "direct", 16 + 6, true } };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(bounded); i++) {
        job_spec s = { .coll = bounded[i].coll, .algo = bounded[i].algo, .ranks = 64, .in_any_order = true };
        s.canonical = bounded[i].canonical;
        s.bytes = s.coll == GCI_ALLREDUCE ? 64 * UNIT * (size_t)s.ranks : 64 * UNIT;
        gci_call call;
        gci_sched sched;
        job_call(&s, 63, &call);
        assert_int_equal(gci_sched_build(&env, gci_algo_find(s.coll, s.algo), s.algo, &call, &sched), GC_OK);
        assert_int_equal(sched.temp_bytes, bounded[i].pieces * 64 * UNIT);
        gci_sched_free(&env, &sched);
        job_call_free(&call);
    }
}

/* ---- no memory ------------------------------------------------------------------------------------------------------- */

static void prove_no_memory(job_spec s)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env failing;
    char why[CHECK_TEXT];
    int result = JOB_NO_MEMORY;
    options.alloc = failing_alloc;
    gci_env_init(&failing, gci_sys_real(), &options);
    s.bytes = 24;
    s.in_any_order = true;
    if (refuses(&s))
        return;
    for (int allowed = 0; result == JOB_NO_MEMORY; allowed++) {
        allocations_left = allowed;
        result = job_run(&failing, &s, NULL, why);
    }
    if (result < 0)
        fail_msg("%s %s: %s", gci_coll_name(s.coll), s.algo, why);
}

static void test_no_memory(void **state)
{
    (void)state;
    each(prove_no_memory, 7);
    each(prove_no_memory, 8);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_number_of_ranks), cmocka_unit_test(test_random), cmocka_unit_test(test_nothing_to_move),
        cmocka_unit_test(test_messages_and_rounds), cmocka_unit_test(test_bytes), cmocka_unit_test(test_scan_in_segments),
        cmocka_unit_test(test_scratch), cmocka_unit_test(test_no_memory),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("exchange", tests, NULL, NULL);
}
