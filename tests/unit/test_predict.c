/* test_predict.c: predictions against the closed formulas of the models, and against what was worked out by hand.
 * SPDX-License-Identifier: MIT
 */
#include "sched_job.h"

#include "failing_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { MOST = 64 };
static const double alpha = 50e-6, beta = 8e-9;
static gci_env env;
static uint64_t random_state = 1;

static double assert_near(double wanted, double is)
{
    double most = wanted * 1e-9 + 1e-15;
    if (is > wanted + most || is < wanted - most)
        fail_msg("%.12g, not %.12g", is, wanted);
    return is;
}

static double drawn(double most)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return most * (double)(random_state >> 40) / (double)(1 << 24);
}

/* Each rank a class of its own, on a host of its own, at one site. */
static gc_model *model_of(int ranks, enum gci_model_kind kind)
{
    int32_t class_of[MOST];
    gc_model *m;
    for (int i = 0; i < ranks; i++)
        class_of[i] = i;
    assert_int_equal(gci_model_make(&env, kind, ranks, class_of, NULL, NULL, &m), GC_OK);
    return m;
}

static gc_model *hockney(int ranks)
{
    gc_model *m = model_of(ranks, GCI_HOCKNEY);
    for (int i = 0; i < ranks * ranks; i++)
        m->between[i] = (gci_cost_model){ .latency = alpha, .per_byte = beta };
    return m;
}

static double predict(const gc_model *m, enum gci_coll coll, const char *algo, size_t bytes, int root, double seconds[])
{
    gci_call call = { .coll = coll, .ranks = m->ranks, .root = root, .bytes = bytes, .own = bytes, .send = { .each = bytes },
                      .recv = { .each = bytes }, .even = true, .elem_bytes = 1, .commutative = true, .associative = true };
    double longest = -1;
    assert_int_equal(gci_predict_call(&env, m, &call, algo, seconds, &longest), GC_OK);
    return longest;
}

static void done(gc_model *m)
{
    gci_model_drop(&env, m);
    assert_int_equal(env.memory, 0);
}

/* ---- formulas ---------------------------------------------------------------------------------------------------- */

/* (2.2): log p (alpha + m beta); a flat tree, a chain, and what comes to one. */
static void test_hockney(void **state)
{
    (void)state;
    for (int levels = 1; levels <= 6; levels++) {
        gc_model *m = hockney(1 << levels);
        for (size_t bytes = 1; bytes <= 1 << 20; bytes *= 32)
            assert_near(levels * (alpha + beta * (double)bytes), predict(m, GCI_BCAST, "binomial", bytes, 1 % m->ranks, NULL));
        done(m);
    }
    for (int ranks = 2; ranks <= 17; ranks += 5) {
        gc_model *m = hockney(ranks);
        assert_near(alpha + (ranks - 1) * beta * 1e5, predict(m, GCI_BCAST, "flat", 100000, ranks - 1, NULL));
        assert_near((ranks - 1) * (alpha + beta * 1e5), predict(m, GCI_BCAST, "chain", 100000, 0, NULL));
        assert_near(alpha + (ranks - 1) * beta * 1e5, predict(m, GCI_GATHER, "flat", 100000, 0, NULL));
        assert_near((ranks - 1) * (alpha + beta * 1e4), predict(m, GCI_ALLGATHER, "ring", 10000, 0, NULL));
        done(m);
    }
}

/* Segments follow each other. */
static void test_pipeline(void **state)
{
    gc_model *m = hockney(5);
    gci_call call = { .coll = GCI_BCAST, .ranks = 5, .bytes = 80000, .own = 80000, .segment = 10000, .even = true,
                      .elem_bytes = 1, .commutative = true, .associative = true };
    double longest;
    (void)state;
    assert_int_equal(gci_predict_call(&env, m, &call, "chain", NULL, &longest), GC_OK);
    assert_near(4 * alpha + (4 + 7) * beta * 1e4, longest);
    done(m);
}

/* (2.3), (2.4): log p (2 o + L + G (m - 1)). */
static void test_loggp(void **state)
{
    const gci_loggp p = { .latency = 40e-6, .overhead = 3e-6, .gap = 5e-6, .per_byte = 1e-9 };
    (void)state;
    for (int levels = 1; levels <= 5; levels++) {
        gc_model *m = model_of(1 << levels, GCI_PLOGP);
        for (int i = 0; i < m->ranks * m->ranks; i++)
            assert_int_equal(gci_model_from_loggp(&env, &p, &m->between[i]), GC_OK);
        assert_near(levels * (2 * p.overhead + p.latency), predict(m, GCI_BCAST, "binomial", 1, 0, NULL));
        assert_near(levels * (2 * p.overhead + p.latency + 99999 * p.per_byte),
                    predict(m, GCI_BCAST, "binomial", 100000, 0, NULL));
        done(m);
    }
}

/* (2.6), (2.7): the parent's time, its messages to the siblings before and to this one, and the way. */
static double received(const gc_model *m, const gc_tree *t, int rank, size_t bytes)
{
    int parent = t->parent[rank];
    if (parent < 0)
        return 0;
    double at = received(m, t, parent, bytes);
    for (int child = t->first_child[parent]; ; child = t->next_sibling[child]) {
        const gci_cost_model *cost = gci_model_cost(m, parent, child);
        at += cost->per_byte * (double)bytes;
        if (child == rank)
            return at + cost->latency;
    }
}

static void test_heterogeneous(void **state)
{
    static const char *const shape[] = { "binomial", "flat", "chain", "binary", "kary:3", "knomial:4" };
    double seconds[MOST];
    gc_tree tree;
    (void)state;
    for (int turn = 0; turn < 60; turn++) {
        int ranks = 2 + turn % 19, root = turn % ranks;
        size_t bytes = (size_t)drawn(200000);
        gc_model *m = hockney(ranks);
        for (int i = 0; i < ranks * ranks; i++)
            m->between[i] = (gci_cost_model){ .latency = drawn(1e-3), .per_byte = drawn(1e-7) };
        assert_int_equal(gci_tree_make(&env, shape[turn % 6], ranks, root, &tree), GC_OK);
        double longest = predict(m, GCI_BCAST, shape[turn % 6], bytes + 1, root, seconds), wanted = 0;
        for (int r = 0; r < ranks; r++) {
            double at = received(m, &tree, r, bytes + 1);
            wanted = at > wanted ? at : wanted;
            if (tree.first_child[r] < 0)
                assert_near(at, seconds[r]);            /* others send on */
        }
        assert_near(wanted, longest);
        gci_tree_drop(&env, &tree);
        done(m);
    }
}

/* ---- by hand ----------------------------------------------------------------------------------------------------- */

/* Steps of a few ranks; a step waits for the one before it, if it says so. */
typedef struct hand { gci_step step[8]; int32_t wait[8]; } hand;

static int run(const gc_model *m, hand h[], double seconds[], double *longest)
{
    gci_sched sched[8] = { { .steps = 0 } };
    for (int r = 0; r < m->ranks; r++) {
        while (sched[r].steps < 8 && h[r].step[sched[r].steps].bytes > 0) {
            gci_step *step = &h[r].step[sched[r].steps];
            step->first_wait = sched[r].waits;
            if (step->waits)
                h[r].wait[sched[r].waits++] = sched[r].steps - 1;
            sched[r].steps++;
        }
        sched[r].step = h[r].step;
        sched[r].wait = h[r].wait;
    }
    return gci_predict(&env, m, sched, seconds, longest);
}

#define SEND(to, n) { .kind = GCI_STEP_SEND, .peer = (to), .bytes = (n) }
#define RECV(of, n) { .kind = GCI_STEP_RECV, .peer = (of), .bytes = (n) }
#define THEN(what, of, n) { .kind = GCI_STEP_##what, .peer = (of), .bytes = (n), .waits = 1 }

/* Hosts of two ranks, `sites` of them, one host each. */
static gc_model *pairs(int sites)
{
    int32_t class_of[MOST], host_of[MOST], site_of[MOST];
    gc_model *m;
    for (int i = 0; i < 2 * sites; i++) {
        class_of[i] = host_of[i] = i / 2;
        site_of[i / 2] = i / 2;
    }
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, 2 * sites, class_of, host_of, site_of, &m), GC_OK);
    for (int i = 0; i < sites * sites; i++)
        m->between[i].latency = alpha;
    return m;
}

/* Two flows through one NIC, uplink, trunk or downlink, and through none. */
static void test_shared(void **state)
{
    double seconds[6], longest;
    (void)state;
    for (int what = 0; what < 6; what++) {
        gc_model *m = pairs(3);
        hand h[6] = { { { SEND(2, 100000) }, { 0 } }, { { SEND(what < 3 ? 4 : 3, 100000) }, { 0 } } };
        h[2].step[0] = (gci_step)RECV(0, 100000);
        h[what < 3 ? 4 : 3].step[0] = (gci_step)RECV(1, 100000);
        m->nic[0].out = what == 1 ? 1e-6 : 1e-9;
        m->uplink[0].out = what == 2 ? 1e-6 : 0;
        m->trunk[1] = what == 3 ? 1e-6 : 0;
        m->uplink[1].in = what == 4 ? 1e-6 : 0;
        m->nic[1].in = what == 5 ? 1e-6 : 0;
        assert_int_equal(run(m, h, seconds, &longest), GC_OK);
        assert_near(alpha + (what == 0 ? 2e-4 : 0.2), longest);
        if (what > 0) {                                         /* they take turns */
            assert_true(seconds[2] > 0.17);
            assert_true(seconds[what < 3 ? 4 : 3] > 0.17);
        }
        done(m);
    }
}

/* Both directions at once: lanes apart, or together. */
static void test_together(void **state)
{
    double longest;
    (void)state;
    for (int together = 0; together < 2; together++) {
        gc_model *m = pairs(2);
        hand h[4] = { { { SEND(2, 100000) }, { 0 } }, { { RECV(3, 100000) }, { 0 } }, { { RECV(0, 100000) }, { 0 } },
                      { { SEND(1, 100000) }, { 0 } } };
        m->nic[0] = m->nic[1] = (gci_port){ 1e-9, 1e-9, false };
        m->uplink[0] = (gci_port){ 1e-6, 1e-6, together };
        assert_int_equal(run(m, h, NULL, &longest), GC_OK);
        double least = alpha + (together ? 0.2 : 0.1);
        assert_true(longest > least * 0.999 && longest < least * 1.1);
        done(m);
    }
}

/* A short message beside a long one through a NIC does not wait for all of it; in one channel it does. */
static void test_turns(void **state)
{
    double seconds[6];
    double longest;
    (void)state;
    for (int same = 0; same < 2; same++) {
        gc_model *m = pairs(3);
        hand h[6] = { { { SEND(2, 160000), SEND(same ? 2 : 4, 1000) }, { 0 } } };
        m->nic[0].out = 1e-6;
        h[2].step[0] = (gci_step)RECV(0, 160000);
        h[same ? 2 : 4].step[same] = (gci_step)RECV(0, 1000);
        assert_int_equal(run(m, h, seconds, &longest), GC_OK);
        assert_near(alpha + 0.161, longest);
        if (!same)
            assert_near(alpha + 0.01 + 0.001, seconds[4]);      /* after a piece of the other */
        done(m);
    }
}

/* What is longer than the limit is announced, and waits for its receive; what is not need not. */
static void test_rendezvous(void **state)
{
    double longest;
    (void)state;
    gc_model *m = hockney(2);
    m->copy = 1e-6;
    for (int late = 0; late < 2; late++) {
        hand h[2] = { { { SEND(1, 1000) }, { 0 } }, { { RECV(0, 1000) }, { 0 } } };
        if (late) {
            h[1].step[0] = (gci_step){ .kind = GCI_STEP_COPY, .bytes = 1000 };
            h[1].step[1] = (gci_step)THEN(RECV, 0, 1000);
        }
        m->eager = 1000;
        assert_int_equal(run(m, h, NULL, &longest), GC_OK);
        assert_near(late ? 1e-3 : alpha + beta * 1e3, longest);
        m->eager = 999;
        assert_int_equal(run(m, h, NULL, &longest), GC_OK);
        assert_near((late ? 1e-3 : alpha) + 2 * alpha + beta * 1e3, longest);
    }
    done(m);
}

/* The processor does one thing at a time: o_r, reductions, copies; receptions go before what else is ready. */
static void test_processor(void **state)
{
    double longest, seconds[3];
    gc_model *m = model_of(3, GCI_PLOGP);
    (void)state;
    m->reduce = 1e-9;
    for (int i = 0; i < 9; i++) {
        m->between[i].latency = 100e-6;
        assert_int_equal(gci_model_point(&env, &m->between[i].curve[GCI_COST_SEND], 0, 10e-6), GC_OK);
        assert_int_equal(gci_model_point(&env, &m->between[i].curve[GCI_COST_RECV], 0, 30e-6), GC_OK);
    }
    hand h[3] = { { { RECV(1, 1000), THEN(SEND, 1, 1000), RECV(2, 1000), THEN(REDUCE, 0, 1000) }, { 0 } },
                  { { SEND(0, 1000), RECV(0, 1000) }, { 0 } }, { { SEND(0, 1000) }, { 0 } } };
    assert_int_equal(run(m, h, seconds, &longest), GC_OK);
    assert_near(100e-6, seconds[2] + 100e-6);                   /* sent, with no gap */
    assert_near(100e-6 + 30e-6 + 10e-6 + 1e-6, seconds[0]);     /* both are there after 70 us */
    assert_near(100e-6 + 30e-6 + 100e-6, longest);
    done(m);
}

/* A rank's first message is on its way while it works on the second. */
static void test_overhead(void **state)
{
    double seconds[3], longest;
    gc_model *m = model_of(3, GCI_PLOGP);
    hand h[3] = { { { SEND(1, 1000), SEND(2, 1000) }, { 0 } }, { { RECV(0, 1000) }, { 0 } }, { { RECV(0, 1000) }, { 0 } } };
    (void)state;
    for (int i = 0; i < 9; i++) {
        m->between[i].latency = 100e-6;
        assert_int_equal(gci_model_point(&env, &m->between[i].curve[GCI_COST_SEND], 0, 20e-6), GC_OK);
    }
    assert_int_equal(run(m, h, seconds, &longest), GC_OK);
    assert_near(100e-6, seconds[1]);
    assert_near(120e-6, longest);
    done(m);
}

/* ---- what goes wrong --------------------------------------------------------------------------------------------- */

static void test_misfits(void **state)
{
    double longest;
    gci_partners partners;
    gc_model *m = hockney(3);
    hand shorter[3] = { { { SEND(1, 1000) }, { 0 } }, { { RECV(0, 999) }, { 0 } } };
    hand stranger[3] = { { { SEND(1, 1000) }, { 0 } }, { { RECV(2, 1000) }, { 0 } } };
    hand nobody[3] = { { { SEND(1, 1000) }, { 0 } } };
    hand twice[3] = { { { SEND(1, 1000) }, { 0 } }, { { RECV(0, 1000), RECV(0, 1000) }, { 0 } } };
    hand stuck[3] = { { { RECV(1, 1000), THEN(SEND, 1, 1000) }, { 0 } }, { { RECV(0, 1000), THEN(SEND, 0, 1000) }, { 0 } } };
    hand *const all[] = { shorter, stranger, nobody, twice, stuck };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(all); i++)
        assert_int_equal(run(m, all[i], NULL, &longest), GC_ERR_ARG);
    gci_call call = { .coll = GCI_BCAST, .even = true, .bytes = 1, .own = 1, .elem_bytes = 1 };
    assert_int_equal(gci_predict_call(&env, m, &call, "wide", NULL, &longest), GC_ERR_UNSUPPORTED);
    assert_int_equal(gci_predict_within(&env, m, &call, "flat", 4, HUGE_VAL, &longest, &partners), GC_OK);
    assert_int_equal(gci_predict_within(&env, m, &call, "flat", 3, HUGE_VAL, &longest, &partners), GC_ERR_UNSUPPORTED);
    done(m);
}

/* With how many others on other hosts some rank exchanges more than a packet. */
static void test_partners(void **state)
{
    static const struct { enum gci_coll coll; const char *name; size_t bytes; int hosts, either, both; } all[] = {
        { GCI_BCAST, "flat", 65536, 8, 7, 0 },     { GCI_BCAST, "chain", 65536, 8, 1, 1 },   { GCI_GATHER, "flat", 65536, 8, 7, 0 },
        { GCI_BCAST, "binomial", 65536, 8, 3, 1 }, { GCI_ALLGATHER, "ring", 4096, 8, 1, 1 }, { GCI_ALLTOALL, "direct", 4096, 8, 7, 7 },
        { GCI_ALLTOALL, "direct", 1448, 8, 0, 0 }, { GCI_ALLTOALL, "direct", 4096, 4, 6, 6 }, { GCI_ALLTOALL, "direct", 4096, 1, 0, 0 },
    };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(all); i++) {
        int32_t class_of[8], host_of[8], site_of[8] = { 0 };
        gci_partners partners;
        double longest;
        gc_model *m;
        for (int r = 0; r < 8; r++)
            class_of[r] = host_of[r] = r * all[i].hosts / 8;
        assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, 8, class_of, host_of, site_of, &m), GC_OK);
        gci_call call = gci_decide_example(all[i].coll, 8, 0, all[i].bytes, NULL);
        assert_int_equal(gci_predict_within(&env, m, &call, all[i].name, SIZE_MAX, HUGE_VAL, &longest, &partners), GC_OK);
        assert_true(partners.either == all[i].either && partners.both == all[i].both);
        done(m);
    }
}

static void test_no_memory(void **state)
{
    gc_options options = { .alloc = failing_alloc };
    gci_env hungry;
    double longest;
    gc_model *m = hockney(5);
    gci_call call = { .coll = GCI_ALLGATHER, .even = true, .own = 100, .recv = { .each = 100 }, .elem_bytes = 1 };
    int n = 0, err;
    (void)state;
    do {
        gci_env_init(&hungry, gci_sys_real(), &options);
        allocations_left = n++;
        err = gci_predict_call(&hungry, m, &call, "ring", NULL, &longest);
        assert_int_equal(hungry.memory, 0);
    } while (err == GC_ERR_NOMEM);
    assert_int_equal(err, GC_OK);
    assert_true(n > 15);
    done(m);
}

/* All operations by all algorithms come to an end, alike each time, and not before a message could be anywhere. */
static void test_pool(void **state)
{
    double longest, again;
    gc_model *m = hockney(13);
    (void)state;
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (int i = 0; gci_algo_at(i); i++) {
            gci_call call = { .coll = (enum gci_coll)coll, .ranks = 13, .root = 3, .bytes = 5000, .own = 5000,
                              .send = { .each = 5000 }, .recv = { .each = 5000 }, .even = true, .elem_bytes = 1,
                              .commutative = true, .associative = true, .segment = 1000 };
            if (!(gci_algo_at(i)->colls >> coll & 1) || strcmp(gci_algo_at(i)->name, "given") == 0)
                continue;
            int err = gci_predict_call(&env, m, &call, gci_algo_at(i)->name, NULL, &longest);
            if (err == GC_ERR_UNSUPPORTED)
                continue;
            assert_int_equal(err, GC_OK);
            assert_int_equal(gci_predict_call(&env, m, &call, gci_algo_at(i)->name, NULL, &again), GC_OK);
            assert_true(longest >= alpha && longest <= again && again <= longest);
        }
    done(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hockney),
        cmocka_unit_test(test_pipeline),
        cmocka_unit_test(test_loggp),
        cmocka_unit_test(test_heterogeneous),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_together),
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_rendezvous),
        cmocka_unit_test(test_processor),
        cmocka_unit_test(test_overhead),
        cmocka_unit_test(test_misfits), cmocka_unit_test(test_partners),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_pool),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
