/* test_sched.c: every algorithm's schedules are proven by the checker; the checker finds planted faults.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part (large jobs, mixtures of in place and not).
 */
#include "sched_check.h"
#include "tests/unit/failing_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { ALL_ROOTS_TO = 16,       /* ranks up to which every root is tried; beyond: some */
       RANKS_DENSE = 70, ROOTS_SAMPLED = 5 };

static const int ranks_large[] = { 100, 127, 128, 129, 255, 300 };
static const char *const algo_names[] = { "binomial", "flat", "knomial", "doubling" };

/* Operations: any order; rank order kept; evaluated strictly from rank 0 up. */
static const struct { bool commutative, associative; } orders[] = { { true, true }, { false, true }, { false, false } };

typedef struct job {
    int        ranks;
    gci_call  *call;
    gci_sched *sched;
} job;

static gci_env env;

static void job_free(job *j)
{
    for (int r = 0; r < j->ranks; r++)
        gci_sched_free(&env, &j->sched[r]);
    free(j->call);
    free(j->sched);
    *j = (job){ 0 };
}

/* Builds all ranks' schedules; in_place: 0 nobody, 1 everybody, 2 every second rank. GC_ERR_UNSUPPORTED leaves nothing. */
static int job_build(job *j, const gci_algo *algo, const gci_call *like, int in_place)
{
    *j = (job){ .ranks = like->ranks };
    j->call = calloc((size_t)j->ranks, sizeof *j->call);
    j->sched = calloc((size_t)j->ranks, sizeof *j->sched);
    assert_non_null(j->call);
    assert_non_null(j->sched);
    for (int r = 0; r < j->ranks; r++) {
        j->call[r] = *like;
        j->call[r].rank = r;
        j->call[r].in_place = in_place == 1 || (in_place == 2 && r % 2 == 0);
        int err = algo->build(&env, &j->call[r], &j->sched[r]);
        if (err < 0) {
            assert_int_equal(err, GC_ERR_UNSUPPORTED);
            job_free(j);
            return err;
        }
    }
    return GC_OK;
}

static int job_check(const job *j, char why[CHECK_TEXT])
{
    return sched_check(&(check_job){ j->ranks, j->call, j->sched }, why);
}

static int tree_messages(const gci_call *call)
{
    int once = call->ranks - 1;
    bool both_ways = call->coll == GCI_BARRIER || call->coll == GCI_ALLREDUCE || call->coll == GCI_ALLGATHER;
    return both_ways ? 2 * once : once;
}

static bool is_reduction(enum gci_coll coll)
{
    return coll == GCI_REDUCE || coll == GCI_ALLREDUCE;
}

static void prove(const gci_algo *algo, const gci_call *call, int in_place)
{
    char why[CHECK_TEXT];
    job j;
    int err = job_build(&j, algo, call, in_place);
    bool may_refuse = strcmp(algo->name, "flat") != 0 && is_reduction(call->coll) && !call->associative;
    assert_int_equal(err, may_refuse ? GC_ERR_UNSUPPORTED : GC_OK);
    if (err < 0)
        return;
    int messages = job_check(&j, why);
    if (messages < 0)
        fail_msg("%s %s: %d ranks, root %d, %zu bytes, in place %d, %s%s: %s", gci_coll_name(call->coll), algo->name,
                 call->ranks, call->root, call->bytes, in_place, call->commutative ? "commutative " : "",
                 call->associative ? "associative" : "", why);
    if (call->bytes == 0 && call->coll != GCI_BARRIER) {
        assert_int_equal(messages, 0);
        for (int r = 0; r < call->ranks; r++)
            assert_int_equal(j.sched[r].steps, 0);
    } else if (strcmp(algo->name, "doubling") != 0) {
        bool flat = algo->name[0] == 'f' || call->ranks <= (algo->name[0] == 'k' ? 8 : 2);
        bool passed_on = call->coll == GCI_REDUCE && !flat && !call->commutative && call->root != 0;
        assert_int_equal(messages, tree_messages(call) + passed_on);
    }
    job_free(&j);
}

static void prove_all_kinds(const gci_algo *algo, int ranks, int root, size_t elem_bytes, size_t count)
{
    gci_call call = { .coll = algo->coll, .ranks = ranks, .root = root, .elem_bytes = elem_bytes,
                      .bytes = elem_bytes * count, .commutative = true, .associative = true };
    if (algo->coll == GCI_BARRIER) {
        call.bytes = 0;
        prove(algo, &call, 0);
        return;
    }
    for (int in_place = 0; in_place < 3; in_place++)
        for (size_t o = 0; o < (is_reduction(algo->coll) ? GCI_COUNT(orders) : 1); o++) {
            call.commutative = orders[o].commutative;
            call.associative = orders[o].associative;
            prove(algo, &call, in_place);
        }
}

static bool has_root(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_REDUCE || coll == GCI_GATHER;
}

static void prove_roots(const gci_algo *algo, int ranks)
{
    if (!has_root(algo->coll)) {
        prove_all_kinds(algo, ranks, 0, 1, 1);
        prove_all_kinds(algo, ranks, 0, 3, 1);
        return;
    }
    int step = ranks <= ALL_ROOTS_TO ? 1 : ranks / ROOTS_SAMPLED;
    for (int root = 0; root < ranks; root += step)
        prove_all_kinds(algo, ranks, root, 1, 1);
    prove_all_kinds(algo, ranks, ranks - 1, 1, 1);
}

static void each_algo(void (*look)(const gci_algo *, int), int ranks)
{
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (size_t n = 0; n < GCI_COUNT(algo_names); n++) {
            const gci_algo *algo = gci_algo_find((enum gci_coll)coll, algo_names[n]);
            if (algo)
                look(algo, ranks);
        }
}

static void test_every_number_of_ranks(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= RANKS_DENSE; ranks++)
        each_algo(prove_roots, ranks);
}

static void prove_sizes(const gci_algo *algo, int ranks)
{
    static const struct { size_t elem, count; } sizes[] = { { 1, 0 }, { 1, 7 }, { 3, 5 }, { 8, 1 }, { 1, 64 }, { 1, 65 }, { 24, 3 } };
    for (size_t s = 0; s < GCI_COUNT(sizes); s++)
        for (int root = 0; root < (has_root(algo->coll) ? ranks : 1); root++)
            prove_all_kinds(algo, ranks, root, sizes[s].elem, sizes[s].count);
}

static void test_sizes(void **state)
{
    static const int ranks[] = { 1, 2, 3, 5, 8, 11, 16 };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(ranks); i++)
        each_algo(prove_sizes, ranks[i]);
}

static uint64_t random_state;

static int random_below(int n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int)((random_state >> 33) % (uint64_t)n);
}

static void prove_random_roots(const gci_algo *algo, int ranks)
{
    prove_all_kinds(algo, ranks, 0, 1, 1);
    if (has_root(algo->coll))
        prove_all_kinds(algo, ranks, 1 + random_below(ranks - 1), 1, 3);
}

static void test_large_jobs(void **state)
{
    const char *text = getenv("GCT_SEED");
    uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    (void)state;
    random_state = seed;
    print_message("GCT_SEED=%llu\n", (unsigned long long)seed);
    /* GCT_ROUNDS, as in other tests, asks for less: under a sanitizer the largest take most of a minute. */
    size_t sizes = getenv("GCT_ROUNDS") ? 4 : GCI_COUNT(ranks_large);
    for (size_t i = 0; i < sizes; i++)
        each_algo(prove_random_roots, ranks_large[i]);
}

static void test_table(void **state)
{
    (void)state;
    for (int coll = 0; coll < GCI_COLLS; coll++) {
        const gci_algo *first = gci_algo_find((enum gci_coll)coll, NULL);
        assert_non_null(first);
        assert_int_equal(first->coll, coll);
        assert_non_null(gci_algo_find((enum gci_coll)coll, "flat"));
        assert_null(gci_algo_find((enum gci_coll)coll, "no such"));
        assert_null(gci_algo_find((enum gci_coll)coll, ""));
    }
    assert_string_equal(gci_coll_name(GCI_ALLREDUCE), "allreduce");
    assert_string_equal(gci_coll_name(GCI_COLLS), "no collective");
    gci_call huge = { .coll = GCI_GATHER, .ranks = 4, .bytes = SIZE_MAX / 5, .elem_bytes = 1 };
    gci_sched sched;
    assert_int_equal(gci_algo_find(GCI_GATHER, "binomial")->build(&env, &huge, &sched), GC_ERR_NOMEM);
    assert_int_equal(sched.steps, 0);
}

/* ---- out of memory ----------------------------------------------------------------------------------------------- */

static void starve(const gci_algo *algo, int ranks)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    gci_call call = { .coll = algo->coll, .ranks = ranks, .bytes = 8, .elem_bytes = 8, .commutative = true, .associative = true };
    int err = GC_ERR_NOMEM;
    for (int n = 0; err == GC_ERR_NOMEM; n++) {
        gci_sched sched;
        allocations_left = n;
        err = algo->build(&poor, &call, &sched);
        assert_true(n < 100);
        if (err < 0)
            assert_null(sched.step);
        gci_sched_free(&poor, &sched);
        assert_int_equal(atomic_load(&poor.memory), 0);
    }
    assert_int_equal(err, GC_OK);
}

static void test_out_of_memory(void **state)
{
    (void)state;
    each_algo(starve, 40);
}

/* ---- planted faults ---------------------------------------------------------------------------------------------- */

/* A fault is planted in one step of one rank; false: it does not apply there. */
typedef bool fault_fn(job *, int rank, int32_t i);

static void drop_step(gci_sched *s, int32_t i)
{
    /* keeps numbers and waits: the step becomes an empty copy */
    s->step[i].kind = GCI_STEP_COPY;
    s->step[i].bytes = 0;
    s->step[i].to_at = s->step[i].from_at = 0;
    s->step[i].to = s->step[i].from = GCI_BUF_TEMP;
}

static bool of_kind(const job *j, int r, int32_t i, enum gci_step_kind kind)
{
    return j->sched[r].step[i].kind == kind;
}

static bool fault_drop_send(job *j, int r, int32_t i)
{
    if (!of_kind(j, r, i, GCI_STEP_SEND))
        return false;
    drop_step(&j->sched[r], i);
    return true;
}

static bool fault_drop_recv(job *j, int r, int32_t i)
{
    if (!of_kind(j, r, i, GCI_STEP_RECV))
        return false;
    drop_step(&j->sched[r], i);
    return true;
}

static bool fault_drop_reduce(job *j, int r, int32_t i)
{
    if (!of_kind(j, r, i, GCI_STEP_REDUCE))
        return false;
    drop_step(&j->sched[r], i);
    return true;
}

static bool fault_drop_copy(job *j, int r, int32_t i)
{
    if (!of_kind(j, r, i, GCI_STEP_COPY) || j->sched[r].step[i].bytes == 0)
        return false;
    drop_step(&j->sched[r], i);
    return true;
}

/* Puts a copy of step i right behind it, so that all indices behind move by one. */
static bool repeat_step(job *j, int r, int32_t i)
{
    gci_sched *s = &j->sched[r];
    gci_step *step = gci_realloc(&env, s->step, ((size_t)s->steps + 1) * sizeof *step);
    int32_t *wait = gci_realloc(&env, s->wait, ((size_t)s->waits + 1) * sizeof *wait);
    assert_non_null(step);
    assert_non_null(wait);
    s->step = step;
    s->wait = wait;
    for (int32_t k = 0; k < s->waits; k++)
        wait[k] += wait[k] >= i;        /* who waited for step i waits for its copy, too late for nothing */
    memmove(&step[i + 1], &step[i], (size_t)(s->steps - i) * sizeof *step);
    s->steps++;
    wait[s->waits] = i;
    step[i + 1].first_wait = s->waits++;
    step[i + 1].waits = 1;
    return true;
}

static bool fault_double_send(job *j, int r, int32_t i)
{
    return of_kind(j, r, i, GCI_STEP_SEND) && repeat_step(j, r, i);
}

static bool fault_double_recv(job *j, int r, int32_t i)
{
    return of_kind(j, r, i, GCI_STEP_RECV) && repeat_step(j, r, i);
}

static bool fault_double_reduce(job *j, int r, int32_t i)
{
    return of_kind(j, r, i, GCI_STEP_REDUCE) && repeat_step(j, r, i);
}

static bool is_message(const gci_step *s)
{
    return s->kind == GCI_STEP_SEND || s->kind == GCI_STEP_RECV;
}

static bool fault_wrong_peer(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (!is_message(s) || j->ranks < 3)
        return false;
    do
        s->peer = (s->peer + 1) % j->ranks;
    while (s->peer == r);
    return true;
}

static bool fault_swap_peers(job *j, int r, int32_t i)
{
    gci_step *a = &j->sched[r].step[i];
    for (int32_t k = i + 1; k < j->sched[r].steps; k++) {
        gci_step *b = &j->sched[r].step[k];
        bool other = b->from != a->from || b->from_at != a->from_at || b->to != a->to || b->to_at != a->to_at;
        if (is_message(a) && a->kind == b->kind && a->peer != b->peer && (other || a->bytes != b->bytes)) {
            int32_t peer = a->peer;
            a->peer = b->peer;
            b->peer = peer;
            return j->call[r].coll != GCI_REDUCE && j->call[r].coll != GCI_ALLREDUCE;    /* any order of sums is right */
        }
    }
    return false;
}

static bool fault_self(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->peer = r;
    return is_message(s);
}

static bool fault_no_such_peer(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->peer = i % 2 ? -1 : j->ranks;
    return is_message(s);
}

static bool fault_to_offset(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->to_at += s->to_at > 0 && r % 2 ? (size_t)-1 : 1;
    return s->bytes > 0 && s->kind != GCI_STEP_SEND;
}

static bool fault_from_offset(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->from_at += s->from_at > 0 && r % 2 ? (size_t)-1 : 1;
    return s->bytes > 0 && s->kind != GCI_STEP_RECV;
}

static bool fault_fewer_bytes(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->bytes == 0)
        return false;
    s->bytes--;
    return true;
}

static bool fault_more_bytes(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->bytes++;
    return is_message(s) || s->kind == GCI_STEP_REDUCE;
}

/* Both sides of a message agree on one byte too few. */
static bool fault_short_pair(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->kind != GCI_STEP_SEND || s->bytes == 0)
        return false;
    gci_sched *other = &j->sched[s->peer];
    int recvs = 0;
    for (int32_t k = 0; k < other->steps; k++)
        if (other->step[k].kind == GCI_STEP_RECV && other->step[k].peer == r) {
            other->step[k].bytes--;
            recvs++;
        }
    s->bytes--;
    return recvs == 1 && j->call[r].coll != GCI_ALLGATHER;     /* whose broadcast brings back some bytes that were there */
}

/* Two ranks need not wait to answer; in a dissemination barrier of odd size some news comes twice. */
static bool not_all_needed(const job *j)
{
    return j->call[0].coll == GCI_BARRIER && j->ranks != 8;
}

static bool fault_drop_wait(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->waits == 0 || not_all_needed(j))
        return false;
    s->waits--;
    return true;
}

static bool fault_drop_first_wait(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->waits < 2 || not_all_needed(j))
        return false;
    s->first_wait++;
    s->waits--;
    return true;
}

static bool fault_wait_for_itself(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->waits == 0)
        return false;
    j->sched[r].wait[s->first_wait] = i;
    return true;
}

static bool fault_waits_out_of_range(job *j, int r, int32_t i)
{
    j->sched[r].step[i].first_wait = j->sched[r].waits;
    j->sched[r].step[i].waits = 1;
    return true;
}

static bool fault_swapped(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->swapped = !s->swapped;
    return s->kind == GCI_STEP_REDUCE && !j->call[r].commutative;
}

static bool fault_small_scratch(job *j, int r, int32_t i)
{
    bool last = true;
    gci_sched *s = &j->sched[r];
    for (int32_t k = i + 1; k < s->steps; k++)
        last &= s->step[k].kind != GCI_STEP_RECV || s->step[k].to != GCI_BUF_TEMP;
    if (!last || s->step[i].kind != GCI_STEP_RECV || s->step[i].to != GCI_BUF_TEMP || s->step[i].bytes == 0)
        return false;
    s->temp_bytes = s->step[i].to_at + s->step[i].bytes - 1;
    return true;
}

static bool fault_writes_send(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->to = GCI_BUF_SEND;
    return s->bytes > 0 && s->kind != GCI_STEP_SEND;
}

static bool fault_wrong_source(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    if (s->kind == GCI_STEP_RECV || s->from != GCI_BUF_TEMP || s->bytes == 0)
        return false;
    s->from = GCI_BUF_SEND;
    return true;
}

static bool fault_no_such_kind(job *j, int r, int32_t i)
{
    j->sched[r].step[i].kind = GCI_STEP_COPY + 1;
    return true;
}

static bool fault_no_such_buffer(job *j, int r, int32_t i)
{
    gci_step *s = &j->sched[r].step[i];
    s->to = s->from = GCI_BUF_TEMP + 1;
    return true;
}

/* All of two ranks' receives wait for their sends to each other: with sends that wait for the receiver, a cycle. */
static bool fault_send_first(job *j, int r, int32_t i)
{
    gci_sched *s = &j->sched[r];
    if (i != 0 || j->call[r].coll != GCI_ALLREDUCE || s->steps < 2 || s->step[0].kind != GCI_STEP_RECV ||
        s->step[1].kind != GCI_STEP_SEND || s->step[0].peer != s->step[1].peer)
        return false;
    int ranks[] = { r, s->step[0].peer };
    for (int k = 0; k < 2; k++) {
        gci_sched *t = &j->sched[ranks[k]];
        gci_step recv = t->step[0];
        int32_t *wait = gci_realloc(&env, t->wait, ((size_t)t->waits + 1) * sizeof *wait);
        assert_non_null(wait);
        t->wait = wait;
        for (int32_t w = 0; w < t->waits; w++)
            if (wait[w] < 2)
                wait[w] = 1 - wait[w];
        t->step[0] = t->step[1];
        t->step[1] = recv;
        t->step[1].waits = 1;
        t->step[1].first_wait = t->waits;
        wait[t->waits++] = 0;
    }
    return true;
}

static const struct { const char *name; fault_fn *plant; } faults[] = {
    { "a send is dropped", fault_drop_send },             { "a receive is dropped", fault_drop_recv },
    { "a reduction is dropped", fault_drop_reduce },      { "a copy is dropped", fault_drop_copy },
    { "a send is doubled", fault_double_send },           { "a receive is doubled", fault_double_recv },
    { "a reduction is doubled", fault_double_reduce },    { "a wrong peer", fault_wrong_peer },
    { "two peers are swapped", fault_swap_peers },        { "a message to oneself", fault_self },
    { "no such peer", fault_no_such_peer },               { "written at a wrong offset", fault_to_offset },
    { "read at a wrong offset", fault_from_offset },      { "a byte too few", fault_fewer_bytes },
    { "a byte too many", fault_more_bytes },              { "both sides a byte too few", fault_short_pair },
    { "the last wait is dropped", fault_drop_wait },      { "the first wait is dropped", fault_drop_first_wait },
    { "waits for itself", fault_wait_for_itself },        { "waits out of range", fault_waits_out_of_range },
    { "operands are swapped", fault_swapped },            { "scratch too small", fault_small_scratch },
    { "the send buffer is written", fault_writes_send },  { "read from a wrong buffer", fault_wrong_source },
    { "no such kind of step", fault_no_such_kind },       { "no such buffer", fault_no_such_buffer },
    { "both send before they receive", fault_send_first },
};

/* Plants one kind of fault at every place of one job; returns at how many, all of which the checker must find. */
static int plant_everywhere(size_t fault, const gci_algo *algo, const gci_call *call, int in_place)
{
    int planted = 0;
    for (int r = 0; r < call->ranks; r++)
        for (int32_t i = 0, steps = 1; i < steps; i++) {
            char why[CHECK_TEXT];
            job j;
            if (job_build(&j, algo, call, in_place) < 0)
                return planted;
            steps = j.sched[r].steps;
            if (i < steps && faults[fault].plant(&j, r, i)) {
                planted++;
                if (job_check(&j, why) >= 0)
                    fail_msg("not found: %s, rank %d step %d of %s %s, %d ranks, root %d, %zu bytes, in place %d%s",
                             faults[fault].name, r, (int)i, gci_coll_name(call->coll), algo->name, call->ranks, call->root,
                             call->bytes, in_place, call->commutative ? ", commutative" : "");
            }
            job_free(&j);
        }
    return planted;
}

static size_t fault_now;
static int fault_count;

static void plant_in(const gci_algo *algo, int ranks)
{
    for (int root = 0; root < (has_root(algo->coll) ? ranks : 1); root += 3)
        for (size_t o = 0; o < (is_reduction(algo->coll) ? GCI_COUNT(orders) : 1); o++)
            for (int in_place = 0; in_place < (algo->coll == GCI_BARRIER ? 1 : 2); in_place++) {
                gci_call call = { .coll = algo->coll, .ranks = ranks, .root = root, .elem_bytes = 5,
                                  .bytes = algo->coll == GCI_BARRIER ? 0 : 10,
                                  .commutative = orders[o].commutative, .associative = orders[o].associative };
                fault_count += plant_everywhere(fault_now, algo, &call, in_place);
            }
}

static void test_planted_faults(void **state)
{
    static const int ranks[] = { 2, 5, 8, 11, 40 };     /* 40: beyond the window of a flat reduction */
    (void)state;
    for (fault_now = 0; fault_now < GCI_COUNT(faults); fault_now++) {
        fault_count = 0;
        for (size_t i = 0; i < GCI_COUNT(ranks) - 1; i++)
            each_algo(plant_in, ranks[i]);
        gci_call wide = { .coll = GCI_REDUCE, .ranks = ranks[4], .root = 7, .elem_bytes = 1, .bytes = 1, .associative = true };
        fault_count += plant_everywhere(fault_now, gci_algo_find(GCI_REDUCE, "flat"), &wide, 0);
        print_message("found %5d of %5d: %s\n", fault_count, fault_count, faults[fault_now].name);
        assert_true(fault_count > 0);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_every_number_of_ranks),
        cmocka_unit_test(test_large_jobs),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_planted_faults),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("sched", tests, NULL, NULL);
}
