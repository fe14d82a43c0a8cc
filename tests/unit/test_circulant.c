/* test_circulant.c: broadcast schedules against what they must satisfy; the collectives proven, their costs counted exactly.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many jobs it draws.
 */
#include "tests/unit/sched_job.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

enum { SCHEDULES_TO = 2000, ROUNDS_MAX = GCI_CIRCULANT_ROUNDS_MAX, RANKS_MAX = 300, ROUNDS = 700, PACK = 65536,
       WINDOW = 32, ALIGN = 64 };

static gci_env env;
/* ---- broadcast schedules ------------------------------------------------------------------------------------------- */

static int ceil_log2(int p)
{
    int q = 0;
    while (INT64_C(1) << q < p)
        q++;
    return q;
}

/* skip[0 .. q] */
static void find_skips(int ranks, int skip[])
{
    int q = ceil_log2(ranks);
    skip[q] = ranks;
    for (int k = q; k > 0; k--)
        skip[k - 1] = skip[k] - skip[k] / 2;
}

/* In a phase of q rounds a rank gets one block >= 0, its base block, and of each other residue of q the greatest below 0: so in
 * any number of phases it gets no block twice and leaves none out. */
static void check_received(int ranks, int rank, const int32_t block[])
{
    int q = ceil_log2(ranks), base = -1;
    unsigned residues = 0;
    for (int k = 0; k < q; k++) {
        if (block[k] >= 0) {
            if (base >= 0)
                fail_msg("%d ranks: rank %d has two base blocks", ranks, rank);
            base = block[k];
        }
        if (block[k] < -q || block[k] >= q)
            fail_msg("%d ranks: rank %d gets block %d", ranks, rank, block[k]);
        residues |= 1u << ((block[k] + q) % q);
    }
    if (base < 0 || residues != (1u << q) - 1)
        fail_msg("%d ranks: rank %d gets a block twice or never", ranks, rank);
}

/* What a rank is sent in round k its sender has got before: in an earlier phase, or in an earlier round of this one. */
static void check_sender_has(int ranks, int rank, int k, int32_t wanted, int sender, const int32_t has[])
{
    int q = ceil_log2(ranks);
    for (int j = 0; j < q; j++)
        if ((has[j] - wanted) % q == 0 && (has[j] - q >= wanted || (has[j] == wanted && j < k)))
            return;
    fail_msg("%d ranks: in round %d rank %d cannot get block %d from rank %d", ranks, k, rank, wanted, sender);
}

static void check_schedules(int ranks)
{
    int q = ceil_log2(ranks), skip[ROUNDS_MAX + 1];
    int32_t (*block)[ROUNDS_MAX] = malloc((size_t)ranks * sizeof *block);
    assert_non_null(block);
    find_skips(ranks, skip);
    for (int r = 0; r < ranks; r++) {
        assert_int_equal(gci_circulant_blocks(ranks, r, block[r]), q);
        if (r > 0)
            check_received(ranks, r, block[r]);
    }
    for (int r = 1; r < ranks; r++)
        for (int k = 0; k < q; k++) {
            int sender = (r - skip[k] + ranks) % ranks;
            if (sender != 0)
                check_sender_has(ranks, r, k, block[r][k], sender, block[sender]);
            else
                assert_int_equal(block[r][k], k);       /* the root sends a new block in each round */
        }
    free(block);
}

static void test_schedules(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= SCHEDULES_TO; ranks++)
        check_schedules(ranks);
    const int large[] = { 4095, 4096, 4097, 10000, 21845, 65535, 65536, 65537, 99991, 100000 };
    for (size_t i = 0; i < GCI_COUNT(large); i++)
        check_schedules(large[i]);
}

/* Of 17 ranks (skips 1 2 3 5 9) the first; and the largest number of ranks that an int holds. */
static void test_extremes(void **state)
{
    int32_t block[ROUNDS_MAX];
    const int32_t rank_1[] = { 0, -4, -2, -3, -1 };
    (void)state;
    assert_int_equal(gci_circulant_blocks(17, 1, block), 5);
    assert_memory_equal(block, rank_1, sizeof rank_1);
    assert_int_equal(gci_circulant_blocks(1, 0, block), 0);
    for (int r = INT32_MAX - 2; r < INT32_MAX; r++) {
        assert_int_equal(gci_circulant_blocks(INT32_MAX, r, block), 31);
        check_received(INT32_MAX, r, block);
    }
}

/* ---- whole jobs ---------------------------------------------------------------------------------------------------- */

static void describe(const job_spec *spec, char text[CHECK_TEXT])
{
    snprintf(text, CHECK_TEXT, "%s: %d ranks, root %d, %zu bytes%s, elements of %zu, segments of %zu, places %d",
             gci_coll_name(spec->coll), spec->ranks, spec->root, spec->bytes, spec->sizes ? " (uneven)" : "", spec->elem_bytes,
             spec->segment, (int)spec->places);
}

static job_spec spec_of(enum gci_coll coll, int ranks, size_t bytes)
{
    return (job_spec){ .coll = coll, .algo = "circulant", .ranks = ranks, .bytes = bytes, .elem_bytes = 1, .in_any_order = true };
}

static int prove(const job_spec *spec)
{
    char why[CHECK_TEXT], what[CHECK_TEXT];
    int messages = job_run(&env, spec, NULL, why);
    describe(spec, what);
    if (messages < 0)
        fail_msg("%s: %s (%d)", what, why, messages);
    return messages;
}

static const enum gci_coll colls[] = { GCI_BCAST, GCI_REDUCE, GCI_ALLGATHER, GCI_ALLREDUCE, GCI_REDUCE_SCATTER };

static void test_small(void **state)
{
    const size_t segments[] = { 0, 6 };
    (void)state;
    for (int ranks = 1; ranks <= 18; ranks++)
        for (size_t c = 0; c < GCI_COUNT(colls); c++)
            for (int root = 0; root < (colls[c] <= GCI_BCAST || colls[c] == GCI_REDUCE ? ranks : 1); root++)
                for (int places = JOB_APART; places <= JOB_MIXED; places++)
                    for (size_t s = 0; s < GCI_COUNT(segments); s++)
                        for (size_t elems = 0; elems <= 31; elems = elems * 5 + 1) {
                            job_spec spec = spec_of(colls[c], ranks, 3 * elems);
                            spec.root = root;
                            spec.places = (enum job_places)places;
                            spec.elem_bytes = 3;
                            spec.segment = segments[s];
                            prove(&spec);
                        }
}

/* Random jobs; uneven blocks, among them empty ones and ones that are never packed. */
static void test_random(void **state)
{
    static size_t sizes[RANKS_MAX];
    const char *rounds = getenv("GCT_ROUNDS");
    (void)state;
    seed_random();
    for (int round = rounds ? atoi(rounds) : ROUNDS; round > 0; round--) {
        int ranks = 1 + below(below(20) ? 40 : RANKS_MAX), elem = 1 + below(8), most = below(4) ? 30 : 2 * PACK;
        job_spec spec = spec_of(colls[below(GCI_COUNT(colls))], ranks, (size_t)(elem * below(most)));
        bool blocks = spec.coll == GCI_ALLGATHER || spec.coll == GCI_REDUCE_SCATTER;
        spec.root = below(ranks);
        spec.elem_bytes = (size_t)elem;
        spec.segment = below(3) ? (spec.bytes + 1) / (size_t)(1 + below(100)) : 0;
        spec.places = (enum job_places)below(3);
        for (int r = 0; r < ranks; r++)
            sizes[r] = below(3) ? (size_t)(elem * below(most)) : 0;
        if (blocks && below(2))
            spec.sizes = sizes;
        prove(&spec);
    }
}

/* ---- costs --------------------------------------------------------------------------------------------------------- */

/* One rank of a job that runs in rounds: in each, every rank sends at most the next message of its list and receives at most
 * the next one; copies and reductions take no time. */
typedef struct runner {
    int32_t *send, *recv;       /* its messages, in list order */
    int32_t  sends, recvs, sent, came;
    bool    *done;
    size_t   bytes;             /* sent */
} runner;

static bool is_ready(const gci_sched *s, const bool done[], int32_t i)
{
    for (int32_t k = 0; k < s->step[i].waits; k++)
        if (!done[s->wait[s->step[i].first_wait + k]])
            return false;
    return true;
}

static void run_local(const gci_sched *s, runner *x)
{
    for (int32_t i = 0; i < s->steps; i++)
        if ((s->step[i].kind == GCI_STEP_COPY || s->step[i].kind == GCI_STEP_REDUCE) && is_ready(s, x->done, i))
            x->done[i] = true;
}

static runner runner_of(const gci_sched *s)
{
    size_t room = (size_t)s->steps + 1;
    runner x = { calloc(room, sizeof *x.send), calloc(room, sizeof *x.recv), .done = calloc(room, sizeof *x.done) };
    assert_true(x.send && x.recv && x.done);
    for (int32_t i = 0; i < s->steps; i++) {
        if (s->step[i].kind == GCI_STEP_SEND) {
            x.send[x.sends++] = i;
            x.bytes += s->step[i].bytes;
        } else if (s->step[i].kind == GCI_STEP_RECV) {
            x.recv[x.recvs++] = i;
        }
    }
    run_local(s, &x);
    return x;
}

/* Which ranks' messages go through in a round is found first, from what was done before it. */
static int run_round(const gci_sched sched[], runner x[], int ranks)
{
    static bool goes[RANKS_MAX];
    int moved = 0;
    for (int r = 0; r < ranks; r++) {
        goes[r] = false;
        if (x[r].sent == x[r].sends || !is_ready(&sched[r], x[r].done, x[r].send[x[r].sent]))
            continue;
        int to = sched[r].step[x[r].send[x[r].sent]].peer;
        goes[r] = x[to].came < x[to].recvs && sched[to].step[x[to].recv[x[to].came]].peer == r &&
                  is_ready(&sched[to], x[to].done, x[to].recv[x[to].came]);
    }
    for (int r = 0; r < ranks; r++)
        if (goes[r]) {
            int32_t i = x[r].send[x[r].sent++];
            int to = sched[r].step[i].peer;
            x[r].done[i] = x[to].done[x[to].recv[x[to].came]] = true;
            x[to].came++;
            moved++;
        }
    for (int r = 0; r < ranks; r++)
        run_local(&sched[r], &x[r]);
    return moved;
}

typedef struct cost { int rounds, messages, most_sends; size_t bytes, least_bytes, most_bytes, scratch; } cost;

static cost cost_of(const job_spec *spec)
{
    static gci_call call[RANKS_MAX];
    static gci_sched sched[RANKS_MAX];
    static runner x[RANKS_MAX];
    char why[CHECK_TEXT];
    cost c = { .least_bytes = SIZE_MAX };
    for (int r = 0; r < spec->ranks; r++)
        job_call(spec, r, &call[r]);
    assert_int_equal(job_build(&env, spec, call, sched, why), 0);
    for (int r = 0; r < spec->ranks; r++) {
        x[r] = runner_of(&sched[r]);
        c.messages += x[r].sends;
        c.bytes += x[r].bytes;
        c.most_sends = gci_max32(c.most_sends, x[r].sends);
        c.least_bytes = gci_min(c.least_bytes, x[r].bytes);
        c.most_bytes = gci_max(c.most_bytes, x[r].bytes);
        c.scratch = gci_max(c.scratch, sched[r].temp_bytes);
    }
    for (int left = c.messages; left > 0; c.rounds++) {
        int moved = run_round(sched, x, spec->ranks);
        if (moved == 0)
            fail_msg("%s, %d ranks: %d messages stay", gci_coll_name(spec->coll), spec->ranks, left);
        left -= moved;
    }
    for (int r = 0; r < spec->ranks; r++) {
        free(x[r].send);
        free(x[r].recv);
        free(x[r].done);
        gci_sched_free(&env, &sched[r]);
        job_call_free(&call[r]);
    }
    return c;
}

static void test_segments_cost(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 70; ranks += ranks < 20 ? 1 : 5)
        for (int n = 1; n <= 100; n = n < 12 ? n + 1 : n + 29)
            for (int reduces = 0; reduces < 2; reduces++) {
                int q = ceil_log2(ranks);
                job_spec spec = spec_of(reduces ? GCI_REDUCE : GCI_BCAST, ranks, (size_t)(4 * n - 1));
                spec.segment = 4;
                spec.root = n % ranks;
                cost c = cost_of(&spec);
                assert_int_equal(c.rounds, n - 1 + q);
                assert_int_equal(c.messages, n * (ranks - 1));
                assert_int_equal(c.bytes, spec.bytes * (size_t)(ranks - 1));
                assert_true(c.most_sends <= n - 1 + q);
                assert_true(c.scratch <= (reduces ? spec.bytes + ALIGN + WINDOW * ALIGN : 0));
            }
}

static void test_blocks_cost(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 130; ranks++) {
        int q = ceil_log2(ranks);
        for (int large = 0; large < 2; large++) {
            size_t block = large ? 1048576 : 3;
            job_spec gather = spec_of(GCI_ALLGATHER, ranks, block), scatter = spec_of(GCI_REDUCE_SCATTER, ranks, block),
                     both = spec_of(GCI_ALLREDUCE, ranks, block * (size_t)ranks);
            cost g = cost_of(&gather), s = cost_of(&scatter), a = cost_of(&both);
            assert_int_equal(g.least_bytes, block * (size_t)(ranks - 1));
            assert_int_equal(g.most_bytes, block * (size_t)(ranks - 1));
            assert_int_equal(s.least_bytes, block * (size_t)(ranks - 1));
            assert_int_equal(s.most_bytes, block * (size_t)(ranks - 1));
            assert_int_equal(a.least_bytes, 2 * block * (size_t)(ranks - 1));
            assert_int_equal(a.most_bytes, 2 * block * (size_t)(ranks - 1));
            assert_true(s.scratch <= block * (size_t)ranks + (size_t)(q + 1) * ALIGN);
            assert_true(a.scratch <= (large ? 1 : 2) * block * (size_t)ranks + (size_t)(2 * q + 1) * ALIGN);
            if (large) {        /* a run over the last rank is cut, but never copied */
                assert_int_equal(g.scratch, 0);
                assert_true(g.most_sends <= 2 * q && s.most_sends <= q + 1 && a.most_sends <= 3 * q + 1);
                continue;
            }
            assert_int_equal(g.messages, q * ranks);
            assert_int_equal(g.rounds, q);
            assert_int_equal(s.messages, q * ranks);
            assert_int_equal(s.rounds, q);
            assert_int_equal(a.messages, 2 * q * ranks);
            assert_int_equal(a.rounds, 2 * q);
        }
    }
}

/* Fewer elements than ranks: who has no message leaves it out; each element still goes p - 1 times either way. */
static void test_few_elements(void **state)
{
    (void)state;
    for (int ranks = 2; ranks <= 40; ranks++)
        for (int elems = 0; elems < 2 * ranks; elems++) {
            job_spec spec = spec_of(GCI_ALLREDUCE, ranks, (size_t)elems * 8);
            spec.elem_bytes = 8;
            cost c = cost_of(&spec);
            assert_int_equal(c.bytes, 2 * spec.bytes * (size_t)(ranks - 1));
            assert_true(c.rounds <= 2 * ceil_log2(ranks));
        }
}

/* ---- what is refused ----------------------------------------------------------------------------------------------- */

static void test_refused(void **state)
{
    char why[CHECK_TEXT];
    (void)state;
    for (size_t c = 0; c < GCI_COUNT(colls); c++) {
        int expected = gci_coll_reduces(colls[c]) ? JOB_UNSUPPORTED : 1;
        for (int i = 0; i < 3; i++) {
            job_spec spec = spec_of(colls[c], 5, 8);
            spec.in_any_order = i != 0;
            spec.from_left = i == 1;
            spec.canonical = i == 2;
            int result = job_run(&env, &spec, NULL, why);
            assert_int_equal(result > 0 ? 1 : result, expected);
        }
    }
}

static void test_no_memory(void **state)
{
    const size_t sizes[] = { 1, 0, 2, 3, 0, 5, 1 };
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    char why[CHECK_TEXT];
    (void)state;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    for (size_t c = 0; c < GCI_COUNT(colls); c++) {
        int result, allowed = 0;
        job_spec spec = spec_of(colls[c], 7, 50);
        spec.segment = 2;
        spec.sizes = colls[c] == GCI_ALLGATHER ? sizes : NULL;
        do {
            allocations_left = allowed++;
            result = job_run(&poor, &spec, NULL, why);
            assert_int_equal(poor.memory, 0);
        } while (result == JOB_NO_MEMORY && allowed < 500);
        if (result < 0)
            fail_msg("%s: %s", gci_coll_name(spec.coll), why);
        assert_true(allowed > 14);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_schedules), cmocka_unit_test(test_extremes), cmocka_unit_test(test_small),
        cmocka_unit_test(test_random), cmocka_unit_test(test_segments_cost), cmocka_unit_test(test_blocks_cost),
        cmocka_unit_test(test_few_elements), cmocka_unit_test(test_refused), cmocka_unit_test(test_no_memory),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("circulant", tests, NULL, NULL);
}
