/* test_treecoll.c: every tree with every collective that goes along it, proven by the checker.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part (large jobs, given trees).
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

enum { DENSE = 40,              /* ranks up to which all shapes are tried, up to a quarter of it in all kinds of calls ... */
       ALL_ROOTS = 6,           /* ... and up to which with all roots */
       LARGE_JOBS = 150, GIVEN_JOBS = 1500, RANKS_MAX = 300, GIVEN_RANKS = 24 };

static const char *const shapes[] = { "flat", "chain", "binary", "binomial", "kary:3", "kary:7", "knomial:3", "knomial" };
static const enum gci_coll colls[] = { GCI_BARRIER, GCI_BCAST, GCI_SCATTER, GCI_GATHER, GCI_ALLGATHER, GCI_REDUCE,
                                       GCI_ALLREDUCE, GCI_REDUCE_SCATTER };
static const struct { bool in_any_order, from_left, canonical; } orders[] = {
    { true, false, false }, { false, false, false }, { false, true, false }, { true, true, false }, { true, false, true },
    { false, false, true }
};

static gci_env env;
static bool is_rooted(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

static bool keeps_order(const job_spec *s)
{
    return gci_coll_reduces(s->coll) && (!s->in_any_order || s->from_left || s->canonical);
}

static bool is(const job_spec *s, const char *shape)
{
    return strcmp(s->algo, shape) == 0;
}

/* How many ranks the shape joins when all but the root are leaves, at most. */
static int star_ranks(const char *shape)
{
    const char *number = strchr(shape, ':');
    if (shape[0] == 'f')
        return RANKS_MAX;
    if (number)
        return atoi(number + 1) + 1;
    return strcmp(shape, "knomial") == 0 ? 9 : strcmp(shape, "chain") == 0 ? 2 : 3;
}

/* What must be refused, what may be, and what must not. Small trees, and some with other roots than 0, happen to
 * keep an order. */
enum verdict { MUST, MAY, MUST_NOT };

static enum verdict may_refuse(const job_spec *s)
{
    bool star = s->ranks <= star_ranks(s->algo), nothing = s->bytes == 0 && !s->sizes && s->coll != GCI_BARRIER;
    if (s->sizes && (s->coll == GCI_GATHER || s->coll == GCI_SCATTER))
        return star ? MUST_NOT : MUST;
    if (!keeps_order(s) || star || nothing || (!s->from_left && !s->canonical) || (s->from_left && is(s, "chain")) ||
        (!s->from_left && is(s, "binomial")))
        return MUST_NOT;
    return (s->coll == GCI_REDUCE && s->root != 0) || (!s->from_left && s->ranks <= 8) ? MAY : MUST;
}

static int segments_of(const job_spec *s, size_t bytes)
{
    return s->segment && bytes ? (int)((bytes + s->segment - 1) / s->segment) : 1;
}

/* Messages of a call with even blocks; *most: if its result is passed on to the root. */
static int least_messages(const job_spec *s, int *most)
{
    int once = s->ranks - 1, cut = segments_of(s, s->bytes), least = once;
    bool one_way = s->coll == GCI_BCAST || s->coll == GCI_REDUCE;
    if (one_way || s->coll == GCI_ALLREDUCE)
        least = cut * once * (one_way ? 1 : 2);
    else if (s->coll == GCI_ALLGATHER)
        least = once + once * segments_of(s, s->bytes * (size_t)s->ranks);
    else if (s->coll == GCI_BARRIER || s->coll == GCI_REDUCE_SCATTER)
        least = 2 * once;
    bool passed_on = s->coll == GCI_REDUCE && keeps_order(s) && s->ranks > star_ranks(s->algo);
    *most = least + (passed_on ? cut : 0);
    return least;
}

static void prove(const job_spec *s)
{
    char why[CHECK_TEXT], what[CHECK_TEXT];
    int result = job_run(&env, s, NULL, why), most;
    enum verdict verdict = may_refuse(s);
    snprintf(what, sizeof what, "%s %s: %d ranks, root %d, %zu bytes%s, segment %zu, places %d,%s%s%s", gci_coll_name(s->coll),
             s->algo, s->ranks, s->root, s->bytes, s->sizes ? " uneven" : "", s->segment, (int)s->places,
             s->in_any_order ? " any order" : "", s->from_left ? " from left" : "", s->canonical ? " canonical" : "");
    if (result == JOB_UNSUPPORTED) {
        if (verdict == MUST_NOT)
            fail_msg("%s: refused", what);
        return;
    }
    if (result < 0)
        fail_msg("%s: %s", what, why);
    if (verdict == MUST)
        fail_msg("%s: not refused", what);
    if (s->sizes)
        return;
    int least = least_messages(s, &most);
    if (s->bytes == 0 && s->coll != GCI_BARRIER)
        least = most = 0;
    if (result != least && result != most)
        fail_msg("%s: %d messages, not %d or %d", what, result, least, most);
}

/* All kinds of places, orders and segments. */
static void prove_kinds(job_spec s)
{
    static const size_t segments[] = { 0, 8, 20 };
    bool moves = s.coll != GCI_BARRIER, cut = s.coll == GCI_BCAST || s.coll == GCI_REDUCE || s.coll == GCI_ALLREDUCE ||
                                              s.coll == GCI_ALLGATHER;
    size_t kinds = gci_coll_reduces(s.coll) ? GCI_COUNT(orders) : 1;
    for (int places = 0; places < (moves ? 3 : 1); places++)
        for (size_t o = 0; o < kinds; o++)
            for (size_t i = 0; i < (cut ? GCI_COUNT(segments) : 1); i++) {
                s.places = (enum job_places)places;
                s.in_any_order = orders[o].in_any_order;
                s.from_left = orders[o].from_left;
                s.canonical = orders[o].canonical;
                s.segment = segments[i];
                if (s.ranks <= DENSE / 4 || (s.ranks + places + (int)(o + i)) % 3 == 0)
                    prove(&s);
            }
}

static void prove_sizes(job_spec s)
{
    size_t sizes[RANKS_MAX];
    s.elem_bytes = 4;
    s.bytes = s.coll == GCI_BARRIER ? 0 : 28;
    prove_kinds(s);
    if (s.coll == GCI_BARRIER || s.coll == GCI_BCAST || s.coll == GCI_REDUCE || s.coll == GCI_ALLREDUCE)
        return;
    for (int i = 0; i < s.ranks; i++)
        sizes[i] = s.elem_bytes * (size_t)((i * 5 + s.ranks) % 4);
    s.sizes = sizes;
    s.bytes = 0;
    prove_kinds(s);
}

static void test_small_jobs(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= DENSE; ranks += ranks <= DENSE / 4 ? 1 : 1 + ranks % 4)
        for (size_t c = 0; c < GCI_COUNT(colls); c++)
            for (size_t i = 0; i < GCI_COUNT(shapes); i++) {
                int roots = !is_rooted(colls[c]) ? 1 : ranks <= ALL_ROOTS ? ranks : 2;
                for (int r = 0; r < roots; r++) {
                    int root = ranks <= ALL_ROOTS ? r : r * (1 + (ranks + (int)i) % (ranks - 1));
                    prove_sizes((job_spec){ .coll = colls[c], .algo = shapes[i], .ranks = ranks, .root = root });
                }
            }
}

static void test_large_jobs(void **state)
{
    (void)state;
    for (int i = 0; i < LARGE_JOBS; i++) {
        static const size_t counts[] = { 0, 1, 3, 1000 }, segments[] = { 0, 1, 7, 1024 };
        size_t o = (size_t)below((int)GCI_COUNT(orders)), sizes[RANKS_MAX];
        job_spec s = { .coll = colls[below((int)GCI_COUNT(colls))], .algo = shapes[below((int)GCI_COUNT(shapes))],
                       .ranks = DENSE + 1 + below(RANKS_MAX - DENSE), .elem_bytes = (size_t)(1 + below(8)),
                       .places = (enum job_places)below(3), .in_any_order = orders[o].in_any_order,
                       .from_left = orders[o].from_left, .canonical = orders[o].canonical };
        s.root = is_rooted(s.coll) ? below(s.ranks) : 0;
        s.bytes = s.coll == GCI_BARRIER ? 0 : s.elem_bytes * counts[below(4)];
        s.segment = s.elem_bytes * segments[below(4)];
        if (s.bytes / (s.segment ? s.segment : s.bytes + 1) > 20)
            s.segment = s.bytes / 20 / s.elem_bytes * s.elem_bytes;
        if ((s.coll == GCI_ALLGATHER && s.segment > 0) || below(2))
            s.segment = 0;
        for (int r = 0; r < s.ranks; r++)
            sizes[r] = s.elem_bytes * (size_t)below(5);
        if ((s.coll == GCI_ALLGATHER || s.coll == GCI_REDUCE_SCATTER || (s.coll != GCI_BARRIER && is(&s, "flat"))) && below(2))
            s.sizes = s.coll == GCI_BCAST || s.coll == GCI_REDUCE || s.coll == GCI_ALLREDUCE ? NULL : sizes;
        prove(&s);
    }
}

/* ---- given trees ------------------------------------------------------------------------------------------------- */

typedef struct any_tree { gc_tree t; int parent[GIVEN_RANKS], first_child[GIVEN_RANKS], next_sibling[GIVEN_RANKS]; } any_tree;

static void clear(any_tree *a, int size, int root)
{
    a->t = (gc_tree){ size, root, a->parent, a->first_child, a->next_sibling };
    for (int v = 0; v < size; v++)
        a->parent[v] = a->first_child[v] = a->next_sibling[v] = -1;
}

/* Puts a child at a random place among its siblings. */
static void give(any_tree *a, int parent, int child)
{
    int *link = &a->first_child[parent];
    while (*link >= 0 && below(2))
        link = &a->next_sibling[*link];
    a->next_sibling[child] = *link;
    *link = child;
    a->parent[child] = parent;
}

static void draw(any_tree *a, int size)
{
    int name[GIVEN_RANKS] = { 0 };
    for (int v = 0; v < size; v++) {
        int at = below(v + 1);
        name[v] = name[at];
        name[at] = v;
    }
    clear(a, size, name[0]);
    for (int v = 1; v < size; v++)
        give(a, name[below(v)], name[v]);
}

/* A tree over low .. high whose subtrees are runs, below `parent`; returns its root. */
static int draw_runs(any_tree *a, int low, int high, int parent)
{
    int root = low + below(high - low + 1);
    if (parent < 0)
        clear(a, high + 1, root);
    else
        give(a, parent, root);
    for (int side = 0; side < 2; side++) {
        int at = side ? root + 1 : low, end = side ? high : root - 1;
        while (at <= end) {
            int last = at + below(end - at + 1);
            draw_runs(a, at, last, root);
            at = last + 1;
        }
    }
    return root;
}

static void test_given_trees(void **state)
{
    (void)state;
    static const enum gci_coll given[] = { GCI_BCAST, GCI_SCATTER, GCI_GATHER, GCI_REDUCE };
    int refused = 0, ordered = 0;
    for (int i = 0; i < GIVEN_JOBS; i++) {
        any_tree a;
        char why[CHECK_TEXT];
        int ranks = 1 + below(GIVEN_RANKS);
        bool runs = below(2);
        if (runs)
            draw_runs(&a, 0, ranks - 1, -1);
        else
            draw(&a, ranks);
        job_spec s = { .coll = given[i % 4], .algo = "given", .ranks = ranks, .root = a.t.root, .bytes = 12, .elem_bytes = 4,
                       .segment = 4 * (size_t)below(3), .places = (enum job_places)below(3), .in_any_order = below(2),
                       .tree = &a.t };
        int result = job_run(&env, &s, NULL, why);
        if (result == JOB_UNSUPPORTED) {
            refused++;
            assert_true(s.coll == GCI_REDUCE && !s.in_any_order && !runs);
            assert_false(gci_tree_is_ordered(&env, &a.t));
        } else if (result < 0)
            fail_msg("%s on tree %d: %s", gci_coll_name(s.coll), i, why);
        ordered += result > 0 && s.coll == GCI_REDUCE && !s.in_any_order && ranks > 3;
    }
    assert_true(refused > 0 && ordered > 0);
}

/* Uneven blocks on any tree, where all ranks know the sizes. */
static void test_known_sizes(void **state)
{
    (void)state;
    for (int i = 0; i < GIVEN_JOBS; i++) {
        any_tree a;
        char why[CHECK_TEXT];
        gci_call call[GIVEN_RANKS];
        gci_sched sched[GIVEN_RANKS] = { { 0 } };
        size_t sizes[GIVEN_RANKS];
        int ranks = 1 + below(GIVEN_RANKS);
        draw(&a, ranks);
        for (int r = 0; r < ranks; r++)
            sizes[r] = (size_t)below(4);
        job_spec s = { .coll = i % 2 ? GCI_SCATTER : GCI_GATHER, .algo = "given", .ranks = ranks, .root = a.t.root,
                       .sizes = sizes, .places = (enum job_places)below(3), .tree = &a.t };
        for (int r = 0; r < ranks; r++) {
            job_call(&s, r, &call[r]);
            call[r].known = true;
            gci_blocks *blocks = i % 2 ? &call[r].send : &call[r].recv;
            if (r != s.root) {
                size_t *copy = malloc(sizeof sizes);
                assert_non_null(copy);
                blocks->bytes = memcpy(copy, sizes, sizeof sizes);
            }
        }
        assert_int_equal(job_build(&env, &s, call, sched, why), 0);
        if (sched_check(&(check_job){ ranks, call, sched, NULL }, NULL, why) < 0)
            fail_msg("%s on tree %d: %s", gci_coll_name(s.coll), i, why);
        for (int r = 0; r < ranks; r++) {
            gci_sched_free(&env, &sched[r]);
            job_call_free(&call[r]);
        }
    }
}

static void test_wrong_trees(void **state)
{
    (void)state;
    any_tree a;
    gci_sched sched;
    draw_runs(&a, 0, 9, -1);
    const gci_algo *algo = gci_algo_find(GCI_BCAST, "given");
    gci_call call = { .coll = GCI_BCAST, .ranks = 10, .root = a.t.root, .bytes = 4, .elem_bytes = 1, .tree = &a.t };
    assert_int_equal(gci_sched_build(&env, algo, "given", &call, &sched), GC_OK);
    gci_sched_free(&env, &sched);
    call.root = (a.t.root + 1) % 10;
    assert_int_equal(gci_sched_build(&env, algo, "given", &call, &sched), GC_ERR_ARG);
    call.root = a.t.root;
    call.ranks = 11;
    assert_int_equal(gci_sched_build(&env, algo, "given", &call, &sched), GC_ERR_ARG);
    call.ranks = 10;
    a.parent[a.first_child[a.t.root]] = -1;
    assert_int_equal(gci_sched_build(&env, algo, "given", &call, &sched), GC_ERR_ARG);
    call.tree = NULL;
    assert_int_equal(gci_sched_build(&env, algo, "given", &call, &sched), GC_ERR_UNSUPPORTED);
    assert_int_equal(gci_sched_build(&env, gci_algo_find(GCI_BCAST, "kary:0"), "kary:0", &call, &sched), GC_ERR_UNSUPPORTED);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static gci_sched build(job_spec s, int rank)
{
    gci_call call;
    gci_sched sched;
    job_call(&s, rank, &call);
    assert_int_equal(gci_sched_build(&env, gci_algo_find(s.coll, s.algo), s.algo, &call, &sched), GC_OK);
    job_call_free(&call);
    return sched;
}

/* Scratch does not grow with the number of children or segments, and blocks in order need none. */
static void test_scratch(void **state)
{
    (void)state;
    job_spec s = { .coll = GCI_REDUCE, .algo = "flat", .ranks = 300, .root = 5, .bytes = 4096, .elem_bytes = 8,
                   .in_any_order = true };
    static const size_t segments[] = { 0, 512 };
    for (size_t o = 0; o < GCI_COUNT(orders); o++)
        for (size_t i = 0; i < GCI_COUNT(segments); i++) {
            s.in_any_order = orders[o].in_any_order;
            s.from_left = orders[o].from_left;
            s.canonical = orders[o].canonical;
            s.segment = segments[i];
            gci_sched sched = build(s, 5);
            assert_int_equal(sched.temp_bytes, 32 * (segments[i] ? segments[i] : s.bytes));
            gci_sched_free(&env, &sched);
        }
    for (int rank = 0; rank < 16; rank++) {
        job_spec all = { .coll = GCI_ALLGATHER, .algo = "knomial:8", .ranks = 16, .bytes = 64 };
        gci_sched sched = build(all, rank);
        assert_int_equal(sched.temp_bytes, 0);
        gci_sched_free(&env, &sched);
        job_spec one = { .coll = rank % 2 ? GCI_SCATTER : GCI_GATHER, .algo = "binomial", .ranks = 16, .bytes = 64 };
        sched = build(one, 0);
        assert_int_equal(sched.temp_bytes, 0);
        gci_sched_free(&env, &sched);
    }
}

static int steps_of(const gci_sched *sched, enum gci_step_kind kind, bool that_wait)
{
    int n = 0;
    for (int i = 0; i < sched->steps; i++)
        n += sched->step[i].kind == kind && (!that_wait || sched->step[i].waits > 0);
    return n;
}

/* Nothing is copied that need not be, and receives are posted at once. */
static void test_no_waste(void **state)
{
    (void)state;
    for (int rank = 0; rank < 16; rank++)
        for (int places = 0; places < 2; places++)
            for (size_t c = 0; c < GCI_COUNT(colls); c++) {
                job_spec s = { .coll = colls[c], .algo = "knomial:3", .ranks = 16, .bytes = colls[c] == GCI_BARRIER ? 0 : 64,
                               .places = (enum job_places)places, .in_any_order = true };
                bool root = rank == 0, inner = rank % 3 == 0 && rank < 15;
                gci_sched sched = build(s, rank);
                int copies = steps_of(&sched, GCI_STEP_COPY, false), joins = 0;
                for (int i = 0; i < sched.steps; i++)
                    joins += sched.step[i].kind == GCI_STEP_COPY && sched.step[i].bytes == 0;
                bool moves_own = (s.coll == GCI_SCATTER && (root ? places == 0 : inner)) ||
                                 (s.coll == GCI_GATHER && (root ? places == 0 : inner)) ||
                                 (s.coll == GCI_ALLGATHER && inner && places == 0);
                if (s.coll != GCI_REDUCE_SCATTER)
                    assert_int_equal(copies - joins, moves_own);
                assert_true(joins <= 1);
                if (places == 0)
                    assert_int_equal(steps_of(&sched, GCI_STEP_RECV, true), s.coll == GCI_ALLGATHER && inner && !root);
                gci_sched_free(&env, &sched);
            }
}

/* Every allocation fails in turn; nothing is left behind (the sanitizers look). */
static void test_no_memory(void **state)
{
    (void)state;
    gci_env poor = { .alloc = failing_alloc };
    for (size_t c = 0; c < GCI_COUNT(colls); c++)
        for (size_t i = 0; i < GCI_COUNT(shapes); i++)
            for (int rank = 0; rank < 9; rank += 4) {
                job_spec s = { .coll = colls[c], .algo = shapes[i], .ranks = 9, .root = is_rooted(colls[c]) ? 3 : 0, .bytes = 40,
                               .segment = 8 };
                gci_call call;
                gci_sched sched;
                job_call(&s, rank, &call);
                int err = GC_ERR_NOMEM;
                for (int n = 0; err == GC_ERR_NOMEM; n++) {
                    assert_true(n < 100);
                    allocations_left = n;
                    err = gci_sched_build(&poor, gci_algo_find(s.coll, s.algo), s.algo, &call, &sched);
                    assert_true(n > 0 || err == GC_ERR_NOMEM);
                }
                assert_int_equal(err, GC_OK);
                gci_sched_free(&poor, &sched);
            }
}

/* No sum of sizes wraps round. */
static void test_overflow(void **state)
{
    (void)state;
    for (int rank = 0; rank < 4; rank++) {
        job_spec s = { .coll = GCI_GATHER, .algo = "binomial", .ranks = 4, .bytes = SIZE_MAX / 3 };
        gci_call call;
        gci_sched sched;
        job_call(&s, rank, &call);
        assert_int_equal(gci_sched_build(&env, gci_algo_find(s.coll, s.algo), s.algo, &call, &sched), GC_ERR_NOMEM);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small_jobs), cmocka_unit_test(test_large_jobs), cmocka_unit_test(test_given_trees),
        cmocka_unit_test(test_known_sizes), cmocka_unit_test(test_wrong_trees), cmocka_unit_test(test_scratch),
        cmocka_unit_test(test_no_waste), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_overflow),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
