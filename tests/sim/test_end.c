/* test_end.c: ends in trouble, on the simulated network: ranks that stop or die, and links that are cut, during gc_finalize.
 * SPDX-License-Identifier: MIT
 *
 * An end has phases of a few milliseconds: barrier, farewells, DONE, LEAVE. The trouble is put at one instant after another, so
 * that each phase gets its share, whichever instants it has. Whatever happens, every rank that lives comes to the end, and in
 * time. Below these stand ends with several troubles at random (GCT_SEED, GCT_ROUNDS).
 * time limit: 900 s
 */
#include "simnet.h"
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { RANKS_MAX = 20, PEER_S = 8, EVENTS_MAX = 4, STEP_US = 2000, LATE_MS = 50 };

/* How long a rank may wait from the last trouble on (that one comes back is trouble, too): who is silent is dead after
 * peer_timeout and a second. */
static const int64_t limit = (PEER_S + 1) * GCI_SECOND;
/* One that hears no goodbye, because it was on its way when its sender left, goes all the same (life.c): peer_timeout and 2 s after
 * it was through, and 1 s for goodbyes of its own. */
static const int64_t unheard_limit = (PEER_S + 3) * GCI_SECOND;

/* Times count from when the last rank was through gc_init. */
typedef struct ending {
    sim        *network;
    int64_t     began, last;                /* last: of the events */
    int64_t     late[RANKS_MAX];            /* this rank comes to the end so late */
    gct_event   event[EVENTS_MAX];
    int         events;
    bool        dies[RANKS_MAX];
    int         code[RANKS_MAX];            /* 1: none */
    int64_t     at[RANKS_MAX];
} ending;

/* Hosts in one site; two sites; two sites that meet only in a third; rank 0 as the only way between all; two NATs. */
static const gct_place site[] = { { .ranks = 6 } };
static const gct_place open_sites[] = { { .ranks = 3 }, { .ranks = 3 } };
static const gct_place walls[] = { { .ranks = 2 }, { .ranks = 2, .wall = GCT_REFUSE }, { .ranks = 2, .wall = GCT_REFUSE } };
static const gct_place star[] = { { .ranks = 1 }, { .ranks = 2, .wall = GCT_REFUSE }, { .ranks = 2, .wall = GCT_REFUSE },
                                  { .ranks = 1, .wall = GCT_DROP } };
static const gct_place nats[] = { { .ranks = 2 }, { .ranks = 3, .nat = true }, { .ranks = 3, .nat = true } };
static const struct shape { const char *name; const gct_place *places; int ranks; } shapes[] = {
    { "site", site, 6 }, { "open sites", open_sites, 6 }, { "walls", walls, 6 }, { "star", star, 6 }, { "nats", nats, 8 }
};
/* So many that the barrier has levels: one rank of those in between holds others. */
static const gct_place large_site[] = { { .ranks = 12 } }, large_sites[] = { { .ranks = 11 }, { .ranks = 9 } };
static const struct shape large_shapes[] = { { "12", large_site, 12 }, { "11 and 9", large_sites, 20 } };

static void options(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->peer_timeout = PEER_S;
    o->start_timeout = 20;
}

static void started(sim *network, sim_proc **procs, int ranks, void *arg)
{
    ending *e = arg;
    (void)procs, (void)ranks;
    e->network = network;
    e->began = sim_now(network);
}

static int finalize(gc_comm *world, int rank, int size, void *arg)
{
    ending *e = arg;
    (void)size;
    if (e->late[rank])
        sim_sleep(sim_current(), e->late[rank]);
    e->code[rank] = gc_finalize(world);
    e->at[rank] = sim_now(e->network) - e->began;
    return 0;
}

static void add(ending *e, enum gct_event_kind what, int64_t at, int a, int b)
{
    e->event[e->events++] = (gct_event){ at, what, a, b, 0 };
    e->dies[a] |= what == GCT_KILL || what == GCT_KILL_HOST;
    e->last = at > e->last ? at : e->last;
}

static int run(ending *e, const struct shape *shape, uint64_t seed, bool calm)
{
    gct_outcome outcome;
    gct_spec spec = { .ranks = shape->ranks, .places = shape->places, .on = GCT_ON_SIM, .calm = calm, .seed = seed,
                      .finalizes = true, .options = options, .started = started, .events = e->event,
                      .event_count = e->events, .virtual_limit = 200 * GCI_SECOND, .outcome = &outcome };
    for (int r = 0; r < shape->ranks; r++)
        e->code[r] = 1;
    return gct_job(&spec, finalize, e);
}

static void describe(const ending *e, const struct shape *shape)
{
    print_error("%s:", shape->name);
    for (int i = 0; i < e->events; i++)
        print_error(" event %d on %d, %d at %lld us;", (int)e->event[i].what, e->event[i].a, e->event[i].b,
                    (long long)e->event[i].at / 1000);
    for (int r = 0; r < shape->ranks; r++)
        print_error(" rank %d: %d after %lld ms;", r, e->code[r], (long long)(e->at[r] / GCI_NS_PER_MS));
    print_error("\n");
}

/* Those who live end in time after the last trouble. peaceful: and all is well. */
static bool judge(const ending *e, const struct shape *shape, int64_t within, bool peaceful)
{
    bool good = true;
    for (int r = 0; r < shape->ranks; r++)
        if (!e->dies[r])
            good = good && e->at[r] - e->last <= within && (e->code[r] == GC_OK || (e->code[r] == GC_ERR_PEER && !peaceful));
    if (!good)
        describe(e, shape);
    return good;
}

/* One stopped for ever, and ended by force at `ended`. It was in the barrier, and all others are through in time; or they wait. */
static bool judge_left_out(const ending *e, const struct shape *shape, int64_t within, int64_t ended)
{
    int through = 0, waited = 0;
    for (int r = 0; r < shape->ranks; r++) {
        through += !e->dies[r] && e->code[r] == GC_OK && e->at[r] <= within;
        waited += !e->dies[r] && e->code[r] == GC_ERR_PEER && e->at[r] >= ended && e->at[r] <= ended + limit;
    }
    bool good = through == shape->ranks - 1 || waited == shape->ranks - 1;
    if (!good)
        describe(e, shape);
    return good;
}

/* When the last is through if nothing happens. */
static int64_t peace(const struct shape *shape)
{
    ending e = { .events = 0 };
    int64_t until = 0;
    assert_int_equal(run(&e, shape, 3, true), 0);
    assert_true(judge(&e, shape, GCI_SECOND, true));
    for (int r = 0; r < shape->ranks; r++)
        until = e.at[r] > until ? e.at[r] : until;
    return until;
}

/* One trouble of a rank at each instant of the end. away: it is over after so long. */
static void sweep_shapes(const struct shape *some, size_t n, enum gct_event_kind what, int64_t away)
{
    int bad = 0;
    for (size_t i = 0; i < n; i++) {
        const struct shape *shape = &some[i];
        int64_t step = STEP_US * (GCI_NS_PER_MS / 1000), until = peace(shape) + step;
        for (int victim = 0; victim < shape->ranks; victim++)
            for (int64_t at = 0; at < until; at += step) {
                if (!gct_drawn())
                    continue;
                ending e = { .events = 0 };
                add(&e, what, at, victim, -1);
                if (away)
                    add(&e, GCT_CONTINUE, at + away, victim, -1);
                bad += run(&e, shape, 3, true);
                bad += !judge(&e, shape, limit, away > 0);
            }
    }
    assert_int_equal(bad, 0);
}

static void sweep(enum gct_event_kind what, int64_t away) { sweep_shapes(shapes, GCI_COUNT(shapes), what, away); }
static void test_killed(void **state) { (void)state; sweep(GCT_KILL, 0); }
static void test_host_killed(void **state) { (void)state; sweep(GCT_KILL_HOST, 0); }
static void test_stopped(void **state) { (void)state; sweep(GCT_STOP, (PEER_S - 1) * GCI_SECOND); }

/* Others wait longer than it takes to see a death, and then no more: it is through, for all the rest have been in the barrier. */
static void test_stopped_long(void **state) { (void)state; sweep(GCT_STOP, 4 * PEER_S * GCI_SECOND); }

/* Who is through waits no longer, though a rank that waits for a stopped one is not; that hears from those who go that all have
 * been in the barrier, and is through as well. So is the stopped one when it goes on. */
static void test_stopped_between(void **state)
{
    (void)state;
    sweep_shapes(large_shapes, GCI_COUNT(large_shapes), GCT_STOP, 4 * PEER_S * GCI_SECOND);
}

static void test_stopped_for_ever(void **state)
{
    (void)state;
    const int64_t within = 2 * (2 * PEER_S + 4) * GCI_SECOND, ended = 100 * GCI_SECOND;
    int bad = 0;
    for (size_t i = 0; i < GCI_COUNT(large_shapes); i++) {
        const struct shape *shape = &large_shapes[i];
        int64_t step = STEP_US * (GCI_NS_PER_MS / 1000), until = peace(shape) + step;
        for (int victim = 0; victim < shape->ranks; victim++)
            for (int64_t at = 0; at < until; at += step) {
                if (!gct_drawn())
                    continue;
                ending e = { .events = 0 };
                add(&e, GCT_STOP, at, victim, -1);
                add(&e, GCT_KILL, ended, victim, -1);
                bad += run(&e, shape, 3, true);
                bad += !judge_left_out(&e, shape, within, ended);
            }
    }
    assert_int_equal(bad, 0);
}

/* Without rank 0 two sites meet in rank 1 alone, which is through the barrier. It stays until they know that rank 0 is dead. */
static void test_only_way_left(void **state)
{
    (void)state;
    const struct shape *shape = &shapes[2];
    int64_t until = peace(shape);
    int split = 0;
    for (int64_t at = 0; at < until; at += GCI_NS_PER_MS / 2) {
        ending e = { .events = 0 };
        int through = 0, failed = 0;
        add(&e, GCT_KILL_HOST, at, 0, -1);
        assert_int_equal(run(&e, shape, 3, true), 0);
        assert_true(judge(&e, shape, limit, false));
        for (int r = 1; r < shape->ranks; r++) {
            assert_true(e.code[r] == GC_OK || e.at[r] - at > (PEER_S - 1) * GCI_SECOND);    /* it failed by that death */
            through += e.code[r] == GC_OK;
            failed += e.code[r] < 0;
        }
        split += through && failed;
    }
    assert_true(split > 0);                 /* else the instant was never hit at which some are through and others not */
}

/* Rank 0 comes last, and what it says first is lost: it gives that link up, and the other end, which has had every packet of its
 * own acknowledged, hears of that. */
static void test_cut_unheard(void **state)
{
    (void)state;
    int bad = 0;
    for (size_t i = 0; i < GCI_COUNT(shapes); i++)
        for (int rank = 1; rank < shapes[i].ranks; rank++)
            for (int64_t at = 10; at <= LATE_MS; at += 10) {
                ending e = { .late = { LATE_MS * (int64_t)GCI_NS_PER_MS } };
                add(&e, GCT_CUT, at * GCI_NS_PER_MS, rank, 0);
                bad += run(&e, &shapes[i], 3, true);
                bad += !judge(&e, &shapes[i], limit, false);
            }
    assert_int_equal(bad, 0);
}

/* A rank dies while its site, behind a NAT, is cut off, and its kernel says so when the cut is over. */
static void test_told_late(void **state)
{
    (void)state;
    int bad = 0;
    for (int cut_ms = 500; cut_ms < PEER_S * 1000; cut_ms += 250) {
        ending e = { .events = 0 };
        add(&e, GCT_CUT_SITES, 12 * (int64_t)GCI_NS_PER_MS, 2, 0);
        add(&e, GCT_KILL, 21 * (int64_t)GCI_NS_PER_MS, 3, -1);
        add(&e, GCT_MEND_SITES, cut_ms * (int64_t)GCI_NS_PER_MS, 2, 0);
        bad += run(&e, &shapes[4], 3, true);
        bad += !judge(&e, &shapes[4], limit, false);
    }
    assert_int_equal(bad, 0);
}

/* Sites are cut off from each other while all are in the end, and the cut is over about when the first gives up. The other may be
 * through to its kernel again by then, but hears at the door that its silence was taken for its end: so it waits for nobody longer. */
static void test_mended_late(void **state)
{
    (void)state;
    enum { STAR = 3, NATS = 4, STEP = 100, UNTIL_MS = (PEER_S + 2) * 1000 };
    const int of[] = { STAR, NATS };
    int bad = 0;
    for (size_t i = 0; i < GCI_COUNT(of); i++)
        for (int cut_ms = 0; cut_ms < 80; cut_ms += 20)
            for (int mend_ms = (PEER_S - 2) * 1000; mend_ms < UNTIL_MS; mend_ms += STEP) {
                ending e = { .events = 0 };
                add(&e, GCT_CUT_SITES, cut_ms * (int64_t)GCI_NS_PER_MS, 3, 0);
                add(&e, GCT_MEND_SITES, mend_ms * (int64_t)GCI_NS_PER_MS, 3, 0);
                bad += run(&e, &shapes[of[i]], 3, true);
                bad += !judge(&e, &shapes[of[i]], unheard_limit, false);
            }
    assert_int_equal(bad, 0);
}

static void trouble(ending *e, int ranks, uint64_t *dice)
{
    enum { KINDS = 6 };
    int64_t span = (gct_random(dice) % 3 ? 150 : 6000) * (int64_t)GCI_NS_PER_MS;
    int64_t at = (int64_t)(gct_random(dice) % (uint64_t)span);
    int64_t back = at + (int64_t)(gct_random(dice) % (20 * (uint64_t)GCI_SECOND));
    int a = (int)(gct_random(dice) % (unsigned)ranks), b = (a + 1 + (int)(gct_random(dice) % (unsigned)(ranks - 1))) % ranks;
    bool mends = gct_random(dice) % 2;
    switch (gct_random(dice) % KINDS) {
    case 0:
        add(e, GCT_KILL, at, a, -1);
        return;
    case 1:
        add(e, GCT_STOP, at, a, -1);
        add(e, GCT_CONTINUE, back, a, -1);
        return;
    case 2:
        add(e, GCT_CUT, at, a, b);
        if (mends)
            add(e, GCT_MEND, back, a, b);
        return;
    case 3:
        add(e, GCT_CUT_SITES, at, a, b);
        if (mends)
            add(e, GCT_MEND_SITES, back, a, b);
        return;
    default:
        add(e, GCT_KILL_HOST, at, a, -1);
        return;
    }
}

/* One or two troubles at random, and half of the time ranks that do not come to the end together. */
static void test_random(void **state)
{
    (void)state;
    const char *rounds_text = getenv("GCT_ROUNDS");
    int bad = 0, rounds = rounds_text ? atoi(rounds_text) : 2000;
    uint64_t first = gct_seed();
    for (int i = 0; i < rounds && bad < 5; i++) {
        uint64_t seed = first + (uint64_t)i, dice = seed;
        bool large = gct_random(&dice) % 8 == 0;
        const struct shape *shape = large ? &large_shapes[gct_random(&dice) % GCI_COUNT(large_shapes)] :
                                            &shapes[gct_random(&dice) % GCI_COUNT(shapes)];
        ending e = { .events = 0 };
        trouble(&e, shape->ranks, &dice);
        if (gct_random(&dice) % 2)
            trouble(&e, shape->ranks, &dice);
        if (gct_random(&dice) % 2)
            for (int r = 0; r < shape->ranks; r++)
                e.late[r] = (int64_t)(gct_random(&dice) % (LATE_MS * (uint64_t)GCI_NS_PER_MS));
        if (run(&e, shape, seed, gct_random(&dice) % 2) + !judge(&e, shape, unheard_limit, false)) {
            print_error("GCT_SEED=%llu\n", (unsigned long long)seed);
            bad++;
        }
    }
    assert_int_equal(bad, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_killed), cmocka_unit_test(test_host_killed), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_stopped_long), cmocka_unit_test(test_only_way_left), cmocka_unit_test(test_cut_unheard),
        cmocka_unit_test(test_told_late), cmocka_unit_test(test_mended_late), cmocka_unit_test(test_stopped_between),
        cmocka_unit_test(test_stopped_for_ever), cmocka_unit_test(test_random)
    };
    cmocka_set_test_filter(gct_filter());
    return cmocka_run_group_tests(tests, NULL, NULL);
}
