/* test_stall.c: GRIDCOMM_STALL on the simulated network: what is told, when, and that nothing is while things move.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS_MAX = 8, TEXT = 1 << 14, LONG = 200000, TAG = 7, STALL = 4 /* s */ };

/* What one rank has said. */
typedef struct heard { size_t used; int lines, reports; int64_t first, opened; char text[TEXT]; } heard;
typedef struct job { heard of[RANKS_MAX]; const char *progress; bool direct_off; } job;

static int64_t now(void)
{
    gci_sys *sys = sim_sys(sim_current());
    return sys->now(sys);
}

static void listen(void *user, int level, const char *line)
{
    heard *h = user;
    const char *at = strstr(line, "stall: ");
    if (!at || level != GC_LOG_WARN)
        return;
    if (h->lines++ == 0)
        h->first = now();
    h->reports += strstr(at, "nothing has moved for") != NULL;
    h->used += (size_t)snprintf(h->text + h->used, TEXT - h->used, "%s\n", at);
}

static void options(gc_options *o, int rank, void *arg)
{
    job *j = arg;
    o->stall = STALL;
    o->progress = j->progress;
    o->log = listen;
    o->log_user = &j->of[rank];
    if (j->direct_off)
        o->direct = 0;
}

static void flat(gc_options *o, int rank, void *arg)
{
    options(o, rank, arg);
    o->algo = "gather:flat,bcast:flat";
}

static void compute(double seconds)
{
    sim_sleep(sim_current(), (int64_t)(seconds * (double)GCI_SECOND));
}

static int says(const heard *h, const char *part)
{
    gct_require(strstr(h->text, part), "no '%s' in:\n%s", part, h->text);
    return 0;
}

static int silent(const heard *h)
{
    gct_require(h->lines == 0, "says:\n%s", h->text);
    return 0;
}

/* ---- between two ---------------------------------------------------------------------------------------------------- */

/* Rank 1 computes for 14 s before it sends: one report after 4 s and a little, another after twice that, and that it is over. */
static int late_send(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char buf[100] = { 0 };
    int64_t began = now();
    int bad = 0;
    (void)size;
    if (rank == 1) {
        compute(14);
        gct_ok(gc_send(world, buf, sizeof buf, 0, TAG));
        return silent(&j->of[1]);
    }
    gct_ok(gc_recv(world, buf, sizeof buf, 1, TAG, NULL));
    const heard *h = &j->of[0];
    gct_require(h->reports == 2, "%d reports:\n%s", h->reports, h->text);
    double after = (double)(h->first - began) / (double)GCI_SECOND;
    gct_require(after >= STALL && after <= 1.25 * STALL, "after %g s", after);
    bad += says(h, "stall: nothing has moved for 4.0 s: receive, tag 7, 100 bytes, from rank 1 on a2: no message yet\n");
    bad += says(h, "stall: nothing has moved for 8.0 s: receive, tag 7, ");
    bad += says(h, "stall: way to rank 1 on a2: none: nothing is for it, and it has not connected; no rank has missed rank 1\n");
    bad += says(h, "stall: rank 0 waits for rank 1, which has told of no wait\n");
    bad += says(h, "stall: over, after 14.0 s\n");
    return bad;
}

/* The receive comes late: a long message has been announced, a synchronous one too. */
static int late_receive(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char *buf = gct_buffer(LONG);
    int bad = 0;
    (void)size;
    if (rank == 1) {
        gct_ok(gc_recv(world, buf, 1, 0, 1, NULL));     /* now there is a link */
        compute(6);
        gct_ok(gc_recv(world, buf, LONG, 0, TAG, NULL));
        compute(6);
        gct_ok(gc_recv(world, buf, 1, 0, TAG + 1, NULL));
        bad += silent(&j->of[1]);
    } else {
        const heard *h = &j->of[0];
        gct_ok(gc_send(world, buf, 1, 1, 1));
        gct_ok(gc_send(world, buf, LONG, 1, TAG));
        gct_require(h->reports == 1, "%d reports:\n%s", h->reports, h->text);
        bad += says(h, "stall: nothing has moved for 4.0 s: send, tag 7, 200000 bytes, to rank 1 on a2: waits for its receive\n");
        bad += says(h, "stall: way to rank 1 on a2: a link of its own, 10.1.0.2:");
        bad += says(h, "; that host answers; no rank has missed rank 1\n");
        gct_ok(gc_ssend(world, buf, 1, 1, TAG + 1));
        gct_require(h->reports == 2, "%d reports:\n%s", h->reports, h->text);
        bad += says(h, "send, tag 8, 1 bytes, to rank 1 on a2: waits for its receive\n");
    }
    return bad + gct_buffer_free(buf);
}

/* All credits are used: the next send waits for them. */
static int no_credit(gc_comm *world, int rank, int size, void *arg)
{
    enum { MANY = 200 };
    job *j = arg;
    char byte = 0;
    gc_request *r[MANY];
    (void)size;
    if (rank == 1) {
        gct_ok(gc_recv(world, &byte, 1, 0, MANY, NULL));
        compute(6);
        for (int i = 0; i < MANY; i++)
            gct_ok(gc_recv(world, &byte, 1, 0, i, NULL));
        return silent(&j->of[1]);
    }
    gct_ok(gc_send(world, &byte, 1, 1, MANY));
    for (int i = 0; i < MANY; i++)
        gct_ok(gc_isend(world, &byte, 1, 1, i, &r[i]));
    gct_ok(gc_waitall(MANY, r, NULL));
    const heard *h = &j->of[0];
    gct_require(h->reports >= 1, "nothing said");
    return says(h, "1 bytes, to rank 1 on a2: waits for credit\n") + says(h, "stall: and 1");
}

/* Any source, any tag; probes; several requests of which only those that are left are told. */
static int others(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    const heard *h = &j->of[0];
    char byte = 0;
    int index = -1, bad = 0;
    gc_request *r[2];
    if (rank == size - 1) {
        for (int i = 0; i < 4; i++) {
            compute(6);
            gct_ok(gc_send(world, &byte, 1, 0, TAG + i));
        }
        return 0;
    }
    if (rank > 0)
        return 0;
    gct_ok(gc_recv(world, &byte, 1, GC_ANY_SOURCE, GC_ANY_TAG, NULL));
    bad += says(h, "receive, any tag, 1 bytes, from any rank: no message yet\n");
    gct_ok(gc_probe(world, 2, TAG + 1, NULL));
    bad += says(h, "nothing has moved for 4.0 s: gc_probe, tag 8, from rank 2 on a3: no message yet\n");
    gct_ok(gc_recv(world, &byte, 1, 2, TAG + 1, NULL));
    gct_ok(gc_irecv(world, &byte, 1, 2, TAG + 2, &r[0]));
    gct_ok(gc_irecv(world, &byte, 1, 2, TAG + 3, &r[1]));
    gct_ok(gc_waitany(2, r, &index, NULL));
    bad += says(h, "nothing has moved for 4.0 s: receive, tag 9, 1 bytes, from rank 2 on a3: no message yet\n"
                   "stall: nothing has moved for 4.0 s: receive, tag 10, 1 bytes, from rank 2 on a3: no message yet\nstall: way");
    gct_ok(gc_waitall(2, r, NULL));
    gct_require(h->reports == 5, "%d:\n%s", h->reports, h->text);
    return bad;
}

/* ---- chains ----------------------------------------------------------------------------------------------------------- */

/* Each waits for the next one; the first says so too late. */
static int circle(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char byte = 0;
    int bad = 0;
    gc_request *r;
    gct_ok(gc_irecv(world, &byte, 1, (rank + 1) % size, rank, &r));
    gct_require(gc_wait_for(&r, 10, NULL) == GC_ERR_TIMEOUT, "received");
    gct_ok(gc_send(world, &byte, 1, (rank + size - 1) % size, (rank + size - 1) % size));
    gct_ok(gc_wait(&r, NULL));
    if (rank == 0 && size == 3)
        bad += says(&j->of[0], "stall: rank 0 waits for rank 1, which waits for rank 2 (receive, tag 1), which waits for rank 0 (receive, "
                               "tag 2): a circle\n");
    return bad + says(&j->of[rank], ": a circle\n");
}

/* Rank 1 waits for long, but not any more when rank 0 does. */
static int over(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char byte = 0;
    (void)size;
    if (rank == 1) {
        gct_ok(gc_recv(world, &byte, 1, 0, TAG, NULL));
        compute(6);
        gct_ok(gc_send(world, &byte, 1, 0, TAG));
        return says(&j->of[1], "stall: rank 1 waits for rank 0, which has told of no wait\n");
    }
    compute(6);
    gct_ok(gc_send(world, &byte, 1, 1, TAG));
    gct_ok(gc_recv(world, &byte, 1, 1, TAG, NULL));
    return says(&j->of[0], "stall: rank 0 waits for rank 1, which has told of no wait\n");
}

/* Rank 3, the root, waits for rank 0, which waits for its broadcast. The others are behind that circle. */
static int entangled(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char byte = 0;
    gc_request *r;
    (void)size;
    gct_ok(gc_barrier(world));
    if (rank == 3) {
        gct_ok(gc_irecv(world, &byte, 1, 0, TAG, &r));
        gct_require(gc_wait_for(&r, 10, NULL) == GC_ERR_TIMEOUT, "received");
        gct_ok(gc_bcast(world, &byte, 1, 3));
        gct_ok(gc_wait(&r, NULL));
        return says(&j->of[3], "stall: rank 3 waits for rank 0, which waits for rank 3 (receive of bcast 1): a circle\n");
    }
    gct_ok(gc_bcast(world, &byte, 1, 3));
    if (rank == 0)
        gct_ok(gc_send(world, &byte, 1, 3, TAG));
    else
        return says(&j->of[rank], " waits for rank 3, which waits for rank 0 (receive, tag 7), which waits for rank 3 "
                                  "(receive of bcast 1): a circle behind this rank\n");
    return 0;
}

/* ---- collectives -------------------------------------------------------------------------------------------------------- */

/* Rank 2 computes; the root has all but its block. */
static int missing_rank(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char mine[8] = { 0 }, all[8 * RANKS_MAX];
    const heard *h = &j->of[rank];
    (void)size;
    gct_ok(gc_barrier(world));
    if (rank == 2)
        compute(10);
    gct_ok(gc_gather(world, mine, sizeof mine, all, 0));
    gct_ok(gc_barrier(world));
    if (rank == 2)
        return silent(h);
    if (rank != 0)                      /* its block is on its way, it waits in the barrier */
        return says(h, ": barrier 2 of 4 ranks by ");
    return says(h, "stall: nothing has moved for 4.0 s: gather 1 of 4 ranks by flat, 8 bytes: 3 of 4 steps are done\n") +
           says(h, ": receive of gather 1, 8 bytes, from rank 2 on a3: no message yet\n") +
           says(h, "stall: rank 0 waits for rank 2, which has told of no wait\n") + says(h, "stall: over, after ");
}

/* ---- routes --------------------------------------------------------------------------------------------------------------- */

/* Ranks 1 and 2 have heard each other: their ways are there. */
static int to_and_fro(gc_comm *world, int rank)
{
    char byte = 0;
    int peer = 3 - rank;
    if (rank == 1)
        gct_ok(gc_send(world, &byte, 1, peer, 1));
    if (rank == 1 || rank == 2)
        gct_ok(gc_recv(world, &byte, 1, peer, rank == 1 ? 2 : 1, NULL));
    if (rank == 2)
        gct_ok(gc_send(world, &byte, 1, peer, 2));
    return 0;
}

static int routed(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char byte = 0;
    (void)size;
    if (to_and_fro(world, rank))
        return 1;
    if (rank == 2) {
        compute(6);
        gct_ok(gc_send(world, &byte, 1, 1, TAG));
    } else if (rank == 1) {
        gct_ok(gc_recv(world, &byte, 1, 2, TAG, NULL));
        return says(&j->of[1], "stall: way to rank 2 on c1 (c): routed, 2 hops over 0, next rank 0 on a1 (a), 10.1.0.1:");
    }
    return 0;
}

/* Without memory the report says less, and that is all. */
static int without_memory(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    char byte = 0;
    (void)size;
    if (to_and_fro(world, rank))
        return 1;
    gct_ok(gc_barrier(world));          /* all ways are there: a new one needs memory */
    if (rank == 2) {
        compute(10);
        gct_ok(gc_send(world, &byte, 1, 1, TAG));
    } else if (rank == 1) {
        sim_alloc_fail(sim_current(), 1);
        int err = gc_recv(world, &byte, 1, 2, TAG, NULL);
        sim_alloc_fail(sim_current(), 0);
        gct_ok(err);
        return says(&j->of[1], "stall: way to rank 2 on c1 (c): routed, next rank 0 on a1 (a), 10.1.0.1:");
    }
    return 0;
}

/* ---- several threads ---------------------------------------------------------------------------------------------------- */

typedef struct second { gc_comm *world; int bad; } second;

static void second_receives(void *arg)
{
    second *s = arg;
    char byte;
    s->bad = gc_recv(s->world, &byte, 1, 1, TAG + 1, NULL);
}

/* One of them drives, the other sleeps: both are told of, each with its own time. */
static int two_threads(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gci_sys *sys = sim_sys(sim_current());
    char byte = 0;
    (void)size;
    if (rank == 1) {
        compute(7);
        gct_ok(gc_send(world, &byte, 1, 0, TAG));
        compute(4);
        gct_ok(gc_send(world, &byte, 1, 0, TAG + 1));
        return 0;
    }
    second s = { .world = world };
    gci_thread *thread;
    gct_require(sys->thread(sys, &thread, second_receives, &s) == 0, "no thread");
    compute(1);
    gct_ok(gc_recv(world, &byte, 1, 1, TAG, NULL));
    sys->join(sys, thread);
    gct_ok(s.bad);
    return says(&j->of[0], "stall: nothing has moved for 4.0 s: receive, tag 8, 1 bytes, from rank 1 on a2: no message yet\n") +
           says(&j->of[0], "stall: nothing has moved for 4.0 s: receive, tag 7, 1 bytes, from rank 1 on a2: no message yet\n") +
           says(&j->of[0], "stall: over, after 6.0 s\n") + says(&j->of[0], "stall: nothing has moved for 8.0 s: receive, tag 8");
}

/* ---- notices -------------------------------------------------------------------------------------------------------------- */

/* What no rank would tell is not heard. */
static int wrong_notices(gc_comm *world, int rank, int size, void *arg)
{
    const gci_notice wrong[] = {
        { .kind = GCI_NOTICE_STALL, .origin = (uint32_t)size, .word = { 0, 1, TAG } },
        { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { (uint32_t)size, 1, TAG } },
        { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { UINT32_MAX - 1, 1, TAG } },
        { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { 0, 8, TAG } },
        { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { 0, UINT32_MAX, TAG } } };
    job *j = arg;
    char byte = 0;
    gci_enter(world->world);
    for (size_t i = 0; i < GCI_COUNT(wrong); i++)
        gci_stall_notice(world->world, &wrong[i]);
    gci_leave(world->world);
    if (rank == 1) {
        compute(6);
        gct_ok(gc_send(world, &byte, 1, 0, TAG));
        return 0;
    }
    gct_ok(gc_recv(world, &byte, 1, 1, TAG, NULL));
    return says(&j->of[0], "stall: rank 0 waits for rank 1, which has told of no wait\n");
}

/* Of whatever collective, tag and rank: a line that ends. */
static int strange_notice(gc_comm *world, int rank, int size, void *arg)
{
    const gci_notice strange = { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { 1, 3, 5, UINT32_MAX, UINT32_MAX } };
    job *j = arg;
    char byte = 0;
    (void)size;
    gci_enter(world->world);
    gci_stall_notice(world->world, &strange);
    gci_leave(world->world);
    if (rank == 1) {
        compute(6);
        gct_ok(gc_send(world, &byte, 1, 0, TAG));
        return 0;
    }
    gct_ok(gc_recv(world, &byte, 1, 1, TAG, NULL));
    return says(&j->of[0], "rank 0 waits for rank 1, which waits for rank 1 (receive of no collective 5): a circle behind this rank\n");
}

/* The word that a wait is over was lost: it is believed for as long as it said. */
static int over_lost(gc_comm *world, int rank, int size, void *arg)
{
    const gci_notice told = { .kind = GCI_NOTICE_STALL, .origin = 1, .word = { 0, 1, 5, 0, 6000 } };
    job *j = arg;
    char byte = 0;
    (void)size;
    gci_enter(world->world);
    gci_stall_notice(world->world, &told);
    gci_leave(world->world);
    if (rank == 1) {
        compute(10);
        gct_ok(gc_send(world, &byte, 1, 0, TAG));
        return 0;
    }
    gct_ok(gc_recv(world, &byte, 1, 1, TAG, NULL));
    return says(&j->of[0], "rank 0 waits for rank 1, which waits for rank 0 (receive, tag 5): a circle\n") +
           says(&j->of[0], "rank 0 waits for rank 1, which has told of no wait\n");
}

/* Rank 1 is stopped while rank 0 tells much of stalls, aborts, and tells more than the log of notices holds. */
static int crowd(gc_comm *world, int rank, int size, void *arg)
{
    enum { BEFORE = 40, AFTER = 2 * GCI_NOTICES_KEPT, CODE = 9 };
    char byte = 0;
    (void)size, (void)arg;
    if (rank == 1) {
        gct_require(gc_recv(world, &byte, 1, 0, TAG, NULL) == GC_ERR_ABORTED, "rank 0 has aborted");
        return 0;
    }
    gci_notice n = { .kind = GCI_NOTICE_STALL, .origin = 0, .word = { UINT32_MAX, 1, TAG } };
    compute(2);
    for (int i = 0; i < BEFORE + AFTER; i++) {
        if (i == BEFORE)
            gct_ok(gc_abort(world, CODE));
        gct_ok(gci_control_notify(world->world->control, &n));
        compute(0.001);
    }
    compute(10);
    return 0;
}

/* ---- nothing to tell -------------------------------------------------------------------------------------------------------- */

/* Slow is not stalled: 8 MB at 1 MB/s take twice the time. Nor is a rank that only looks now and then, or computes. */
static int moving(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = 8 << 20 };
    job *j = arg;
    char *buf = gct_buffer(BYTES);
    int done = 0;
    gc_request *r;
    (void)size;
    if (rank == 0) {
        gct_ok(gc_send(world, buf, BYTES, 1, TAG));
        compute(10);
        gct_ok(gc_send(world, buf, 1, 1, TAG + 1));
    } else {
        gct_ok(gc_recv(world, buf, BYTES, 0, TAG, NULL));
        gct_ok(gc_irecv(world, buf, 1, 0, TAG + 1, &r));
        while (!done) {
            compute(0.1);
            gct_ok(gc_test(&r, &done, NULL));
        }
    }
    gct_ok(gc_bcast(world, buf, BYTES, 0));
    return silent(&j->of[rank]) + gct_buffer_free(buf);
}

static int run_by(const gct_spec *spec, gct_main *rank_main, bool direct_off, const char *progress)
{
    gct_spec own = *spec;
    job *j = calloc(1, sizeof *j);
    assert_non_null(j);
    j->direct_off = direct_off;
    if (!own.options)
        own.options = options;
    j->progress = progress;
    int bad = gct_job(&own, rank_main, j);
    free(j);
    return bad;
}

static int run(const gct_spec *spec, gct_main *rank_main, bool direct_off)
{
    return run_by(spec, rank_main, direct_off, NULL);
}

static void test_pairs(void **state)
{
    static const char *const progress[] = { "poll", "sleep", "thread" };
    (void)state;
    for (int i = 0; i < 3; i++)
        assert_int_equal(0, run_by(&(gct_spec){ .ranks = 2, .calm = true }, late_send, false, progress[i]));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, late_send, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, late_receive, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, no_credit, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 3, .calm = true }, others, false));
}

static void test_chains(void **state)
{
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 3, .calm = true }, circle, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 3 }, circle, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, over, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 6, .sites = 2 }, circle, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 4, .calm = true, .options = flat }, entangled, false));
}

static void test_collective(void **state)
{
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 4, .calm = true, .options = flat }, missing_rank, false));
}

static void test_route(void **state)
{
    static const gct_place places[] = { { .ranks = 1, .families = "46" }, { .ranks = 1 }, { .ranks = 1, .families = "6" } };
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 3, .places = places, .calm = true }, routed, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 3, .places = places, .calm = true }, without_memory, false));
}

static void test_moving(void **state)
{
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .sites = 2, .options = flat }, moving, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .sites = 2 }, moving, true));
}

static void test_threads(void **state)
{
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, two_threads, false));
    assert_int_equal(0, run_by(&(gct_spec){ .ranks = 2, .calm = true }, two_threads, false, "thread"));
}

static void test_notices(void **state)
{
    static const gct_event stop[] = { { .at = GCI_SECOND, .what = GCT_STOP, .a = 1 }, { .at = 6 * GCI_SECOND, .what = GCT_CONTINUE, .a = 1 } };
    (void)state;
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, wrong_notices, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, strange_notice, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true }, over_lost, false));
    assert_int_equal(0, run(&(gct_spec){ .ranks = 2, .calm = true, .leave_anyhow = true, .events = stop, .event_count = 2 }, crowd, false));
}

int main(void)
{
    unsetenv("GRIDCOMM_DIRECT");        /* the texts name ways */
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_pairs), cmocka_unit_test(test_chains), cmocka_unit_test(test_collective),
                                        cmocka_unit_test(test_route), cmocka_unit_test(test_moving),
                                        cmocka_unit_test(test_threads), cmocka_unit_test(test_notices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
