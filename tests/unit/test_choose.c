/* test_choose.c: some rule can do every call, all ranks take the same one, and only names that mean something are taken.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many calls it draws.
 */
#include "sched_job.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 2000, MOST = 40 };

static gci_env env;
/* ---- rules ------------------------------------------------------------------------------------------------------- */

typedef struct place { gci_topo topo; gci_clusters s; } place;

static void place_make(place *p, int ranks, const char *const path[], const int host[])
{
    assert_int_equal(gci_topo_make(&env, ranks, path, host, &p->topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &p->topo, &p->s), GC_OK);
}

static void place_free(place *p)
{
    gci_clusters_free(&env, &p->s);
    gci_topo_free(&env, &p->topo);
}

static void place_draw(place *p, int ranks)
{
    static const char *const site[] = { "a", "b", "c" };
    const char *path[MOST];
    int host[MOST], sites = 1 + below(3), per_host = 1 + below(ranks);
    for (int r = 0; r < ranks; r++) {
        path[r] = site[below(4) ? r * sites / ranks : below(sites)];
        host[r] = r / per_host;
    }
    place_make(p, ranks, path, host);
}

static job_spec draw(const place *p, int ranks)
{
    static const size_t bytes[] = { 0, 8, 512, 520, 1024, 1032, 8192, 8200, 65536, 65544, 1 << 20, (1 << 20) + 8, 1 << 26 };
    return (job_spec){ .coll = (enum gci_coll)below(GCI_COLLS), .ranks = ranks, .root = below(ranks), .elem_bytes = 8,
                       .bytes = bytes[below(GCI_COUNT(bytes))], .in_any_order = below(2), .from_left = below(3) == 0,
                       .canonical = below(3) == 0, .places = (enum job_places)below(3), .clusters = &p->s };
}

/* Which rule does it at one rank: the first that does not refuse, and none is asked twice. */
static int doing(const gci_call *call, gci_algo_choice *choice)
{
    const gci_algo_choice none = { .segment = 0 };
    int before = 0;
    *choice = gci_choose(call, &none);
    do {
        gci_call own = *call;
        gci_sched sched;
        assert_true(choice->next > before);
        before = choice->next;
        own.segment = choice->segment;
        int err = gci_sched_build(&env, gci_algo_find(call->coll, choice->name), choice->name, &own, &sched);
        gci_sched_free(&env, &sched);
        if (err == GC_OK)
            return choice->next;
        assert_int_equal(err, GC_ERR_UNSUPPORTED);
    } while (gci_choose_next(call, choice));
    return -1;
}

static void test_some_rule_does_every_call(void **state)
{
    (void)state;
    const char *rounds = getenv("GCT_ROUNDS");
    for (int i = 0; i < (rounds ? 10 * atoi(rounds) : ROUNDS); i++) {
        int ranks = 1 + below(below(5) ? 9 : MOST), rule = 0;
        place p;
        place_draw(&p, ranks);
        job_spec j = draw(&p, ranks);
        for (int rank = 0; rank < ranks; rank += 1 + below(4)) {
            gci_call call;
            gci_algo_choice choice;
            job_call(&j, rank, &call);
            int done = doing(&call, &choice);
            assert_true(done > 0);
            if (rule > 0)
                assert_int_equal(done, rule);
            rule = done;
            job_call_free(&call);
        }
        place_free(&p);
    }
}

/* The name of what does it, for ranks there. */
static const char *chosen_at(job_spec j, const char *const path[], const int host[], gci_algo_choice *choice)
{
    place p;
    gci_call call;
    place_make(&p, j.ranks, path, host);
    j.clusters = &p.s;
    j.elem_bytes = 8;
    job_call(&j, 1, &call);
    assert_true(doing(&call, choice) > 0);
    job_call_free(&call);
    place_free(&p);
    return choice->name;
}

/* clusters: so many, whose ranks come one after another, or in turn. */
static const char *chosen(job_spec j, int clusters, bool in_turn, gci_algo_choice *choice)
{
    char name[MOST][4];
    const char *path[MOST];
    int host[MOST];
    for (int r = 0; r < j.ranks; r++) {
        snprintf(name[r], sizeof name[r], "%d", in_turn ? r % clusters : r * clusters / j.ranks);
        path[r] = clusters > 1 ? name[r] : "";
        host[r] = r;
    }
    return chosen_at(j, path, host, choice);
}

static const char *chosen_on_hosts(job_spec j, int hosts, bool in_turn)
{
    gci_algo_choice choice;
    const char *path[MOST];
    int host[MOST];
    for (int r = 0; r < j.ranks; r++) {
        path[r] = r % 2 ? "site/rack" : "site/rack/";       /* one cluster */
        host[r] = in_turn ? r % hosts : r * hosts / j.ranks;
    }
    return chosen_at(j, path, host, &choice);
}

/* A chain has a hop for each rank, and between clusters a wide-area one for each whose neighbour is elsewhere: only where the bytes
 * of all vectors would take longer. What only may not change its order has better. */
static void test_what_takes_a_chain(void **state)
{
    (void)state;
    gci_algo_choice c;
    for (int all = 0; all < 2; all++) {
        job_spec left = { .coll = all ? GCI_ALLREDUCE : GCI_REDUCE, .ranks = MOST, .from_left = true }, ordered = left;
        ordered.from_left = false;
        for (left.bytes = 8; left.bytes <= 16 << 10; left.bytes *= 2)
            assert_string_equal(chosen(left, 1, false, &c), "flat");
        assert_string_equal(chosen(left, 1, false, &c), "chain");
        assert_true(c.segment > 0);
        left.bytes = 512;
        assert_string_equal(chosen(left, 4, false, &c), "wide");
        left.bytes = 520;
        assert_string_equal(chosen(left, 4, false, &c), "chain");
        assert_string_equal(chosen(left, 4, true, &c), "wide");
        left.bytes = 13312;                     /* 39 hops of 10 KiB for 10 vectors to each of 3 */
        assert_string_equal(chosen(left, 4, true, &c), "wide");
        left.bytes += 8;
        assert_string_equal(chosen(left, 4, true, &c), "chain");
        for (ordered.bytes = 64 << 10; ordered.bytes <= 16 << 20; ordered.bytes *= 16)
            assert_string_equal(chosen(ordered, 1, false, &c), "halving");
    }
}

/* Blocks for everybody: short and very long ones all at once, others in turn. */
static void test_what_goes_in_turn(void **state)
{
    (void)state;
    static const struct { size_t bytes; const char *name; } alltoall[] = {
        { 256, "bruck" }, { 264, "direct" }, { 16384, "direct" }, { 16392, "pairwise" }, { 256 << 10, "pairwise" },
        { (256 << 10) + 8, "direct" } };
    gci_algo_choice c;
    job_spec j = { .coll = GCI_ALLTOALL, .ranks = 5 };
    for (size_t i = 0; i < GCI_COUNT(alltoall); i++) {
        j.bytes = alltoall[i].bytes;
        assert_string_equal(chosen(j, 1, false, &c), alltoall[i].name);
    }
    size_t sizes[25];
    for (size_t i = 0; i < GCI_COUNT(sizes); i++)
        sizes[i] = 65536;
    j.bytes = sizes[0];
    assert_string_equal(chosen(j, 1, false, &c), "pairwise");
    j.sizes = sizes;                    /* not known to all */
    assert_string_equal(chosen(j, 1, false, &c), "direct");
    j = (job_spec){ .coll = GCI_ALLGATHER, .bytes = 1 << 20, .ranks = 16 };
    assert_string_equal(chosen(j, 1, false, &c), "doubling");
    j.ranks = 15;
    assert_string_equal(chosen(j, 1, false, &c), "circulant");
}

/* Hosts of several ranks each: few of them exchange with each other what many pass on. */
static void test_what_goes_by_host(void **state)
{
    (void)state;
    enum { FEW = 4, MANY = 18 };
    job_spec j = { .coll = GCI_ALLREDUCE, .ranks = 36, .bytes = 4096, .in_any_order = true };
    assert_string_equal(chosen_on_hosts(j, FEW, false), "by-host");
    assert_string_equal(chosen_on_hosts(j, MANY, false), "nested");
    assert_string_equal(chosen_on_hosts(j, 36, false), "doubling");
    assert_string_equal(chosen_on_hosts(j, 1, false), "binomial");
    j.bytes += 8;
    assert_string_equal(chosen_on_hosts(j, FEW, true), "by-host-divided");
    assert_string_equal(chosen_on_hosts(j, 2, true), "by-host");
    j.in_any_order = false;                     /* hosts must be runs then, ... */
    assert_string_equal(chosen_on_hosts(j, FEW, false), "by-host-divided");
    assert_string_equal(chosen_on_hosts(j, FEW, true), "doubling");
    j.canonical = true;                         /* ... and no order must be kept */
    assert_string_equal(chosen_on_hosts(j, FEW, false), "binomial");
    for (j = (job_spec){ .coll = GCI_BCAST, .ranks = 36 }; j.coll <= GCI_REDUCE; j.coll += GCI_REDUCE - GCI_BCAST)
        for (j.bytes = 8; j.bytes <= 1 << 20; j.bytes *= 8)
            assert_string_equal(chosen_on_hosts(j, MANY, false), "nested");
    j = (job_spec){ .coll = GCI_ALLTOALL, .ranks = 36, .bytes = 256 };
    assert_string_equal(chosen_on_hosts(j, FEW, true), "by-host");
    j.ranks = 17;                               /* a bundle of nearly a block */
    assert_string_equal(chosen_on_hosts(j, 16, true), "bruck");
    j.ranks = 36;
    j.bytes++;
    assert_string_equal(chosen_on_hosts(j, FEW, true), "direct");
    size_t sizes[36 * 36] = { 1 };
    j.sizes = sizes;                            /* not known to all */
    assert_string_equal(chosen_on_hosts(j, FEW, true), "direct");
}

/* What is long and bound to an order never needs all vectors at one rank. */
static void test_scratch_is_bounded(void **state)
{
    (void)state;
    enum { RANKS = 20, BYTES = 8 << 20 };
    static const enum gci_coll colls[] = { GCI_REDUCE, GCI_ALLREDUCE, GCI_SCAN, GCI_EXSCAN };
    const char *path[RANKS];
    int host[RANKS];
    place p;
    for (int r = 0; r < RANKS; r++) {
        path[r] = "";
        host[r] = r;
    }
    place_make(&p, RANKS, path, host);
    for (size_t i = 0; i < 2 * GCI_COUNT(colls); i++) {
        job_spec j = { .coll = colls[i / 2], .ranks = RANKS, .elem_bytes = 8, .bytes = BYTES, .from_left = i % 2,
                       .canonical = i % 2 == 0, .clusters = &p.s };
        for (int rank = 0; rank < RANKS; rank++) {
            gci_call call;
            gci_algo_choice choice;
            gci_sched sched;
            job_call(&j, rank, &call);
            assert_true(doing(&call, &choice) > 0);
            call.segment = choice.segment;
            assert_int_equal(gci_sched_build(&env, gci_algo_find(call.coll, choice.name), choice.name, &call, &sched), GC_OK);
            assert_true(sched.temp_bytes <= BYTES);
            gci_sched_free(&env, &sched);
            job_call_free(&call);
        }
    }
    place_free(&p);
}

/* ---- GRIDCOMM_ALGO ------------------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    (void)state;
    static const char *const good[] = { "", ",", "bcast:flat", "bcast:kary:3@8192,", ",reduce:chain@1,allreduce:ring",
                                        "barrier:knomial:8,scan:direct@65536" };
    static const char *const bad[] = { "bcast", "bcast:", "bcast:none", "cast:flat", ":flat", "bcast:kary:0", "bcast:kary:x",
                                       "bcast:binomial:7", "allgather:ring:5", "bcast:given", "bcast:ring", "bcast:flat@",
                                       "bcast:flat@0", "bcast:flat@x", "bcast:flat@8x", "bcast:flat@-8",
                                       "bcast:flat@99999999999999999999", "bcast:flat;reduce:flat" };
    gci_algo_choice forced[GCI_COLLS];
    char text[GCI_TEXT];
    for (size_t i = 0; i < GCI_COUNT(good); i++) {
        memset(forced, 0, sizeof forced);
        assert_int_equal(gci_choose_read(good[i], forced, text), GC_OK);
    }
    assert_string_equal(forced[GCI_SCAN].name, "direct");
    assert_int_equal(forced[GCI_SCAN].segment, 65536);
    assert_string_equal(forced[GCI_BARRIER].name, "knomial:8");
    assert_int_equal(forced[GCI_BCAST].name[0], 0);
    for (size_t i = 0; i < GCI_COUNT(bad); i++) {
        memset(text, 0, sizeof text);
        if (gci_choose_read(bad[i], forced, text) != GC_ERR_CONFIG)
            fail_msg("%s is taken", bad[i]);
        assert_true(strncmp(text, "GRIDCOMM_ALGO: ", 15) == 0);
    }
}

int main(void)
{
    seed_random();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_some_rule_does_every_call),
        cmocka_unit_test(test_what_takes_a_chain), cmocka_unit_test(test_what_goes_in_turn),
        cmocka_unit_test(test_what_goes_by_host),
        cmocka_unit_test(test_scratch_is_bounded),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
