/* test_windows.c: windows that come back. A receiver has lent its eager budget to peers that are silent by now; whoever sends
 * then gets it in the time of a few round trips, and they in turn when they send.
 * SPDX-License-Identifier: MIT
 *
 * What is checked besides times: the receiver's accounts, whenever a message has come; also while random ranks send to random
 * others, with small budgets, in all kinds of trouble.
 */
#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { RANKS = 70, TO = 0, MESSAGES = 200, BYTES = 65536, BUDGET = 16 << 20 };
#define LATENCY (50 * (int64_t)GCI_NS_PER_MS)

static int64_t now(void) { return sim_sys(sim_current())->now(sim_sys(sim_current())); }

/* What is lent, filled and left makes up the budget, and nobody was told more than was lent. */
static int accounts(const gc_comm *world)
{
    const gci_p2p *p2p = world->world->p2p;
    size_t all = p2p->room_left;
    for (int i = 0; i < world->world->ranks; i++) {
        const gci_pair *p = p2p->pair[i];
        all += p ? p->room : p2p->room_first;
        gct_require(!p || (p->share <= p->room && p->held_bytes <= p->room), "of rank %d", i);
        gct_require(!p || p->recalled || p->told_bytes <= p->taken_bytes + p->room - p->held_bytes, "of rank %d", i);
    }
    gct_require(all == world->world->options.eager_budget, "%zu bytes", all);
    return 0;
}

static int take(gc_comm *world, uint8_t *buf, int source, int messages)
{
    for (int i = 0; i < messages; i++) {
        gct_ok(gc_recv(world, buf, BYTES, source, i, NULL));
        gct_require(!gct_check(buf, BYTES, source, i), "message %d", i);
        if (accounts(world))
            return 1;
    }
    return 0;
}

static int give(gc_comm *world, uint8_t *buf, int messages)
{
    for (int i = 0; i < messages; i++) {
        gct_fill(buf, BYTES, gc_rank(world), i);
        gct_ok(gc_send(world, buf, BYTES, TO, i));
    }
    return 0;
}

/* ---- one after another ---- */

static const int turns[] = { RANKS - 1, 1, RANKS / 2, RANKS - 1 };
enum { TURNS = 4 };
typedef struct streams { int64_t took[TURNS]; } streams;

static int stream(gc_comm *world, int rank, int size, void *arg)
{
    streams *s = arg;
    uint8_t *buf = gct_buffer(BYTES);
    (void)size;
    for (int i = 0; rank == TO && i < RANKS; i++)       /* all are lent something, in this order */
        if (i != TO && take(world, buf, i, 1))
            return 1;
    if (rank != TO && give(world, buf, 1))
        return 1;
    for (int t = 0; t < TURNS; t++) {
        gct_ok(gc_barrier(world));
        int64_t began = now();
        if (rank == turns[t] && give(world, buf, MESSAGES))
            return 1;
        if (rank == TO && take(world, buf, turns[t], MESSAGES))
            return 1;
        if (rank == TO)
            s->took[t] = now() - began;
    }
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

/* What is timed is timed with these, whatever the environment says. */
static void usual(gc_options *o, int rank, void *arg)
{
    gct_usual_options(o, rank, arg);
    o->eager_budget = BUDGET;
}

static gct_spec distant(void)
{
    return (gct_spec){ .ranks = RANKS, .sites = RANKS, .on = GCT_ON_SIM, .calm = true, .seed = gct_seed(), .wan_latency = LATENCY,
                       .wan_rate = 100000000, .options = usual, .time_limit = 200 };
}

static void test_streams(void **state)
{
    gct_spec spec = distant();
    streams s = { { 0 } };
    (void)state;
    assert_int_equal(0, gct_job(&spec, stream, &s));
    for (int t = 0; t < TURNS; t++)
        print_message("%d messages of %d bytes from rank %d: %.3f s\n", MESSAGES, BYTES, turns[t], (double)s.took[t] / 1e9);
    for (int t = 0; t < TURNS; t++)
        assert_in_range(s.took[t], LATENCY, 24 * GCI_SECOND / 10);
}

/* ---- all at once: the budget is shared ---- */

enum { CROWD = 20, ROUNDS = 4 };
typedef struct crowd { int64_t took[ROUNDS]; } crowd;

/* All receives are posted before anything comes, so that windows hold what is on its way and no more. */
static int gather_in(gc_comm *world, uint8_t *buf)
{
    enum { ALL = RANKS * CROWD };
    static gc_request *r[ALL];
    for (int i = 0; i < ALL; i++)
        if (i / CROWD != TO)
            gct_ok(gc_irecv(world, buf + (size_t)i * BYTES, BYTES, i / CROWD, i % CROWD, &r[i]));
    gct_ok(gc_barrier(world));
    for (int i = 0; i < ALL; i++)
        if (i / CROWD != TO) {
            gct_ok(gc_wait(&r[i], NULL));
            gct_require(!gct_check(buf + (size_t)i * BYTES, BYTES, i / CROWD, i % CROWD), "message %d", i);
            if (accounts(world))
                return 1;
        }
    return 0;
}

static int all_at_once(gc_comm *world, int rank, int size, void *arg)
{
    crowd *c = arg;
    uint8_t *buf = gct_buffer(rank == TO ? (size_t)size * CROWD * BYTES : BYTES);
    for (int round = 0; round < ROUNDS; round++) {
        gct_ok(gc_barrier(world));
        int64_t began = now();
        if (rank != TO)
            gct_ok(gc_barrier(world));
        if (rank == TO ? gather_in(world, buf) : give(world, buf, CROWD))
            return 1;
        if (rank == TO)
            c->took[round] = now() - began;
    }
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

static void test_crowd(void **state)
{
    gct_spec spec = distant();
    crowd c = { { 0 } };
    (void)state;
    assert_int_equal(0, gct_job(&spec, all_at_once, &c));
    for (int i = 0; i < ROUNDS; i++)
        print_message("%d messages of %d bytes from each of %d ranks: %.3f s\n", CROWD, BYTES, RANKS - 1,
                      (double)c.took[i] / 1e9);
    assert_in_range(c.took[ROUNDS - 1], LATENCY, 2 * GCI_SECOND);
}

/* ---- all to all: nothing has to wait for a grant once the budget is shared ---- */

enum { BLOCK = 16384, TIMES = 5, FAIR = 1 };    /* FAIR: from the second time on */
typedef struct meeting { int arrived[TIMES]; int64_t start[TIMES], took[TIMES]; } meeting;

/* All have come, and leave at one instant. */
static int meet(gc_comm *world, meeting *m, int turn)
{
    const int64_t look = GCI_NS_PER_MS, rest = 600 * look;
    gct_ok(gc_barrier(world));
    if (++m->arrived[turn] == RANKS)
        m->start[turn] = now() + rest;
    while (m->arrived[turn] < RANKS || now() < m->start[turn] - look) {
        (void)gc_progress(world);
        sim_sleep(sim_current(), look);
    }
    sim_sleep(sim_current(), m->start[turn] - now());
    return accounts(world);
}

static int alltoall(gc_comm *world, int rank, int size, void *arg)
{
    meeting *m = arg;
    uint8_t *send = gct_buffer((size_t)size * BLOCK), *recv = gct_buffer((size_t)size * BLOCK);
    for (int turn = 0; turn < TIMES; turn++) {
        for (int i = 0; i < size; i++)
            memset(send + (size_t)i * BLOCK, rank + i + turn, BLOCK);
        if (meet(world, m, turn))
            return 1;
        gct_ok(gc_alltoall(world, send, BLOCK, recv));
        m->took[turn] = gci_max64(m->took[turn], now() - m->start[turn]);
        for (int i = 0; i < size; i++) {
            const uint8_t *block = recv + (size_t)i * BLOCK;
            gct_require(*block == (uint8_t)(rank + i + turn) && !memcmp(block, block + 1, BLOCK - 1), "of rank %d", i);
        }
    }
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(recv), "canaries");
    return 0;
}

static void smaller(gc_options *o, int rank, void *arg)
{
    usual(o, rank, arg);
    o->eager_budget = BUDGET / 4;
}

static void test_alltoall(void **state)
{
    gct_spec spec = distant();
    meeting m = { .arrived = { 0 } };
    (void)state;
    spec.options = smaller;
    spec.wan_rate = 1000000;
    spec.unwitnessed = true;
    assert_int_equal(0, gct_job(&spec, alltoall, &m));
    int64_t least = LATENCY + (BLOCK + GCI_HEADER_BYTES) * INT64_C(1000);
    for (int turn = 0; turn < TIMES; turn++)
        print_message("%d bytes from each to each: %.1f ms\n", BLOCK, (double)m.took[turn] / 1e6);
    for (int turn = FAIR; turn < TIMES; turn++)
        assert_in_range(m.took[turn], least, least * 105 / 100);
}

/* ---- one burst after another: once it is quiet the sender knows all its credit again ---- */

typedef struct bursts { size_t bytes; int first, second; int64_t began, ended; } bursts;

static int burst(gc_comm *world, uint8_t *buf, const bursts *b, int messages)
{
    enum { MOST = 64 };
    gc_request *r[MOST];
    for (int i = 0; i < messages; i++)
        gct_ok(gc_isend(world, buf, b->bytes, TO, i, &r[i]));
    gct_ok(gc_waitall(messages, r, NULL));
    return 0;
}

static int two_bursts(gc_comm *world, int rank, int size, void *arg)
{
    bursts *b = arg;
    uint8_t *buf = gct_buffer(BYTES);
    int there;
    (void)size;
    if (rank != TO) {
        if (burst(world, buf, b, b->first))
            return 1;
        sim_sleep(sim_current(), 2 * GCI_SECOND);
        gct_ok(gc_iprobe(world, TO, 0, &there, NULL));  /* takes in what was told */
        b->began = now();
        return burst(world, buf, b, b->second) || gct_buffer_free(buf);
    }
    for (int i = 0; i < b->first + b->second; i++)
        gct_ok(gc_recv(world, buf, BYTES, 1, GC_ANY_TAG, NULL));
    b->ended = now();
    return gct_buffer_free(buf);
}

/* Neither half of the credit nor half of the window is untold, but enough that the second burst would not find room. */
static void test_bursts(void **state)
{
    bursts all[] = { { .bytes = 1, .first = 40, .second = 64 }, { .bytes = BYTES, .first = 5, .second = 8 } };
    (void)state;
    for (int i = 0; i < 2; i++) {
        gct_spec spec = distant();
        spec.ranks = spec.sites = 2;
        spec.wan_rate = 1000000;
        assert_int_equal(0, gct_job(&spec, two_bursts, &all[i]));
        int64_t took = all[i].ended - all[i].began;
        print_message("%d messages of %zu bytes after %d: %.1f ms\n", all[i].second, all[i].bytes, all[i].first, (double)took / 1e6);
        int64_t least = LATENCY + (int64_t)all[i].bytes * all[i].second * INT64_C(1000);
        assert_in_range(took, least, least + LATENCY / 2);
    }
}

/* ---- at random: bursts to one rank and another, late receives, pauses, connections that break ---- */

enum { SOME = 24, BURSTS = 12, BURST = 100, LONGEST = 70000 };
typedef struct plan {
    uint64_t seed;
    size_t   budget;
    int      credits, packets, direct;
    unsigned recalls;                   /* of all ranks */
} plan;
typedef struct planned { int from, to; size_t bytes; bool late; } planned;

static planned plan_message(const plan *p, int k)
{
    uint64_t burst = p->seed + (uint64_t)(k / BURST), mine = p->seed + 1000 + (uint64_t)k;
    int hot = (int)(gct_random(&burst) % SOME);
    planned m = { .from = (int)(gct_random(&mine) % SOME), .late = gct_random(&mine) % 2, .bytes = gct_random(&mine) % 2 };
    m.bytes = m.bytes ? 1 + gct_random(&mine) % LONGEST : LONGEST - 8000;
    m.to = gct_random(&mine) % 4 ? hot : (int)(gct_random(&mine) % SOME);
    if (m.to == m.from)
        m.to = (m.to + 1) % SOME;
    return m;
}

static int plan_post(gc_comm *world, const plan *p, int first, int what, uint8_t **buf, gc_request **r)
{
    for (int i = 0; i < BURST; i++) {
        planned m = plan_message(p, first + i);
        bool recv = m.to == gc_rank(world);
        if ((!recv && m.from != gc_rank(world)) || what != (recv ? 1 + m.late : 0))
            continue;
        buf[i] = gct_buffer(m.bytes);
        if (!recv)
            gct_fill(buf[i], m.bytes, m.from, i);
        gct_ok(recv ? gc_irecv(world, buf[i], m.bytes, m.from, i, &r[i]) : gc_isend(world, buf[i], m.bytes, m.to, i, &r[i]));
    }
    return 0;
}

static int random_burst(gc_comm *world, const plan *p, int first, uint64_t *dice)
{
    uint8_t *buf[BURST] = { NULL };
    gc_request *r[BURST] = { NULL };
    for (int what = 1; what >= 0; what--)
        if (plan_post(world, p, first, what, buf, r))
            return 1;
    sim_sleep(sim_current(), (int64_t)(gct_random(dice) % 4) * 50 * GCI_NS_PER_MS);
    if (plan_post(world, p, first, 2, buf, r))
        return 1;
    for (int i = 0; i < BURST; i++) {
        planned m = plan_message(p, first + i);
        if (!buf[i])
            continue;
        gct_ok(gc_wait(&r[i], NULL));
        gct_require(m.to != gc_rank(world) || !gct_check(buf[i], m.bytes, m.from, i), "message %d", first + i);
        gct_require(!gct_buffer_free(buf[i]), "canaries");
        if (accounts(world))
            return 1;
    }
    return 0;
}

static int at_random(gc_comm *world, int rank, int size, void *arg)
{
    plan *p = arg;
    uint64_t dice = p->seed + 77 * (uint64_t)rank;
    for (int burst = 0; burst < BURSTS; burst++) {
        if (random_burst(world, p, burst * BURST, &dice))
            return 1;
        sim_sleep(sim_current(), (int64_t)(gct_random(&dice) % 8) * 100 * GCI_NS_PER_MS);
    }
    for (int i = 0; i < size; i++)
        p->recalls += world->world->p2p->pair[i] ? world->world->p2p->pair[i]->recalls : 0;
    return 0;
}

static void planned_options(gc_options *o, int rank, void *arg)
{
    const plan *p = arg;
    (void)rank;
    o->direct = p->direct;
    o->credits = p->credits;
    o->queue_packets = p->packets;
    o->eager_budget = p->budget;
}

static void test_random(void **state)
{
    static const size_t budget[] = { 1 << 18, 1 << 20, 1 << 21 };
    static const int credits[] = { 1, 8, 64 };
    const char *text = getenv("GCT_ROUNDS");
    int rounds = text ? atoi(text) : 12;
    uint64_t random = gct_seed();
    unsigned recalls = 0;
    int resets = 0;
    (void)state;
    for (int i = 0; i < rounds; i++) {
        gct_outcome outcome;
        plan p = { .seed = gct_random(&random), .budget = budget[i % 3], .credits = credits[i / 3 % 3], .packets = i % 2 ? 1 : 8,
                   .direct = i % 4 != 3 };
        gct_event reset[BURSTS];
        for (int k = 0; k < BURSTS; k++)
            reset[k] = (gct_event){ .at = (int64_t)(gct_random(&random) % 10000) * GCI_NS_PER_MS, .what = GCT_RESET,
                                    .a = (int)(gct_random(&random) % SOME), .b = -1, .purpose = GCI_PURPOSE_DATA };
        gct_spec spec = { .ranks = SOME, .sites = SOME / 2, .on = GCT_ON_SIM, .seed = gct_random(&random), .calm = i % 3 == 2,
                          .wan_rate = 10000000, .options = planned_options, .events = reset, .event_count = i % 5 ? BURSTS : 0,
                          .time_limit = 100, .outcome = &outcome };
        assert_int_equal(0, gct_job(&spec, at_random, &p));
        recalls += p.recalls;
        resets += outcome.resets;
    }
    print_message("%u windows made smaller, %d connections broken\n", recalls, resets);
    assert_true(recalls > 0 && resets > 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_streams), cmocka_unit_test(test_crowd),
                                        cmocka_unit_test(test_alltoall), cmocka_unit_test(test_bursts),
                                        cmocka_unit_test(test_random) };
    return cmocka_run_group_tests_name("windows", tests, NULL, NULL);
}
