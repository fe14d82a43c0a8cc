/* test_gct.c: the job harness can fail: every kind of wrong rank is counted, every overrun and wrong byte is seen.
 * SPDX-License-Identifier: MIT
 */
#define _GNU_SOURCE
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4 };

/* What these tests provoke would fill the screen. */
static int quietly(const gct_spec *spec, gct_main *run, void *arg)
{
    fflush(stderr);
    int kept = dup(STDERR_FILENO);
    FILE *none = fopen("/dev/null", "w");
    dup2(fileno(none), STDERR_FILENO);
    int failed = gct_job(spec, run, arg);
    fflush(stderr);
    dup2(kept, STDERR_FILENO);
    fclose(none);
    close(kept);
    return failed;
}

static int good(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gct_require(gct_rank() == rank && gc_rank(world) == rank && gc_size(world) == size, "rank %d of %d", rank, size);
    gct_ok(gc_barrier(world));
    return 0;
}

static int one_bad(gc_comm *world, int rank, int size, void *arg)
{
    (void)world; (void)size; (void)arg;
    gct_require(rank != 2, "meant to fail");
    return 0;
}

static int hangs(gc_comm *world, int rank, int size, void *arg)
{
    (void)size; (void)arg;
    char byte;
    return rank == 1 ? gc_recv(world, &byte, 1, 0, 1, NULL) : 0;
}

static int keeps_memory(gc_comm *world, int rank, int size, void *arg)
{
    (void)world; (void)size; (void)arg;
    return rank || sim_alloc(sim_current(), NULL, 10) ? 0 : 1;
}

static int is_killed(gc_comm *world, int rank, int size, void *arg)
{
    (void)world; (void)size; (void)arg;
    (void)gct_buffer(100);      /* nobody frees it but the harness */
    if (rank == 3) {
        sim_kill_proc(sim_current());
        return 1;
    }
    return 0;
}

static void wrong_key(gc_options *o, int rank, void *arg)
{
    (void)arg;
    o->start_timeout = 2;
    o->key = rank == 1 ? "another key" : o->key;
}

static void count_refused(int rank, int code, const char *text, void *arg)
{
    (void)rank;
    *(int *)arg += code != 0 && text[0] != 0;
}

static void test_jobs(void **state)
{
    (void)state;
    int refused = 0;
    gct_outcome a, b;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .sites = 2, .seed = 7, .outcome = &a }, good, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .sites = 2, .seed = 7, .outcome = &b }, good, NULL));
    assert_true(a.trace == b.trace && a.virtual_ns == b.virtual_ns && a.virtual_ns > 0);
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = RANKS, .ranks_per_host = 3, .calm = true }, good, NULL));
    assert_int_equal(1, quietly(&(gct_spec){ .ranks = RANKS, .leave_anyhow = true }, one_bad, NULL));
    assert_true(quietly(&(gct_spec){ .ranks = RANKS, .leave_anyhow = true }, hangs, NULL) > 0);
    assert_int_equal(1, quietly(&(gct_spec){ .ranks = RANKS }, keeps_memory, NULL));
    assert_int_equal(0, quietly(&(gct_spec){ .ranks = RANKS, .leave_anyhow = true }, is_killed, NULL));
    assert_true(quietly(&(gct_spec){ .ranks = RANKS, .options = wrong_key }, good, NULL) > 0);
    assert_int_equal(0, quietly(&(gct_spec){ .ranks = RANKS, .options = wrong_key, .refused = count_refused }, good, &refused));
    assert_int_equal(RANKS, refused);
}

static int overrun(gc_comm *world, int rank, int size, void *arg)
{
    (void)world; (void)size;
    int offset = *(int *)arg;
    uint8_t *buf = gct_buffer(10);
    if (rank == 0) {
        buf[offset] ^= 1;
    }
    return gct_buffer_free(buf);
}

static void test_canaries(void **state)
{
    (void)state;
    for (int offset = -64; offset < 10 + 64; offset++) {
        int seen = quietly(&(gct_spec){ .ranks = 1 }, overrun, &offset);
        assert_int_equal(offset < 0 || offset >= 10, seen);
    }
}

static void test_patterns(void **state)
{
    (void)state;
    static uint8_t a[200], b[200];
    for (size_t bytes = 0; bytes < sizeof a; bytes++) {
        gct_fill(a, bytes, 3, 4);
        assert_true(gct_wrong(a, bytes, 3, 4) == bytes);
        for (size_t i = 0; i < bytes; i++) {
            a[i] ^= 0x10;
            assert_true(gct_wrong(a, bytes, 3, 4) == i);
            a[i] ^= 0x10;
        }
    }
    gct_fill(a, sizeof a, 3, 4);
    gct_fill(b, sizeof b, 4, 3);
    assert_memory_not_equal(a, b, sizeof a);
    assert_true(gct_wrong(a, sizeof a - 1, 3, 4) < sizeof a - 1);       /* the length shapes it */
    assert_true(gct_wrong(a, sizeof a, 3, 5) < sizeof a);
}

/* ---- places and events ---- */

enum { EVENT_STOP, EVENT_KILL, EVENT_CUT, EVENT_WAY, EVENT_SITES, EVENT_RESET, EVENT_NONE };
static const gct_event all_events[][2] = {
    [EVENT_STOP]  = { { GCI_SECOND, GCT_STOP, 1, -1, 0 }, { 4 * GCI_SECOND, GCT_CONTINUE, 1, -1, 0 } },
    [EVENT_KILL]  = { { GCI_SECOND, GCT_KILL, 1, -1, 0 }, { 2 * GCI_SECOND, GCT_KILL_HOST, 3, -1, 0 } },
    [EVENT_CUT]   = { { GCI_SECOND, GCT_CUT, 1, 2, 0 }, { 3 * GCI_SECOND, GCT_MEND, 2, 1, 0 } },
    [EVENT_WAY]   = { { GCI_SECOND, GCT_CUT_WAY, 1, 2, 0 }, { 3 * GCI_SECOND, GCT_MEND, 1, 2, 0 } },
    [EVENT_SITES] = { { GCI_SECOND, GCT_CUT_SITES, 0, 3, 0 }, { 3 * GCI_SECOND, GCT_MEND_SITES, 0, 3, 0 } },
    [EVENT_RESET] = { { GCI_SECOND, GCT_RESET, 1, 2, GCI_PURPOSE_DATA }, { GCI_SECOND, GCT_RESET, 0, -1, GCI_PURPOSES } },
};
typedef struct scheduled { int what; bool started; int64_t start, heard; } scheduled;

/* Rank 1 sends to rank 2, in another site, now and two seconds later: when does that arrive? */
static int eventful(gc_comm *world, int rank, int size, void *arg)
{
    scheduled *e = arg;
    char byte = 0;
    (void)size;
    gct_require(strcmp(gc_cluster(world, rank), rank < 2 ? "a" : "b") == 0, "cluster %s", gc_cluster(world, rank));
    gct_ok(rank == 1 ? gc_ssend(world, &byte, 1, 2, 1) : rank == 2 ? gc_recv(world, &byte, 1, 1, 1, NULL) : 0);
    sim_sleep(sim_current(), rank == 1 ? 2 * GCI_SECOND : rank == 3 ? 8 * GCI_SECOND : 0);
    if (rank == 1) {
        gct_ok(gc_send(world, &byte, 1, 2, 2));
    } else if (rank == 2) {
        int code = gc_recv(world, &byte, 1, 1, 2, NULL);
        gct_require(code == (e->what == EVENT_KILL ? GC_ERR_PEER : GC_OK), "%s", gc_strerror(code));
        e->heard = sim_sys(sim_current())->now(sim_sys(sim_current()));
    }
    return 0;
}

static void note_start(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    scheduled *e = arg;
    (void)procs;
    e->started = ranks == RANKS && !e->started;
    e->start = sim_now(s);
}

static void links_of_their_own(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->direct = 1;                      /* the events aim at these, whatever the environment says */
}

static void test_places_and_events(void **state)
{
    (void)state;
    static const gct_place families[][2] = { { { .ranks = 2 }, { .ranks = 2 } },
                                             { { .ranks = 2, .families = "6" }, { .ranks = 2, .families = "46" } } };
    static const int64_t after_ms[][2] = { { 4000, 4200 }, { 1000, 1100 }, { 3001, 5000 },
                                             { 3001, 5000 }, { 3001, 5000 }, { 2000, 2900 }, { 2000, 2200 } };
    for (int what = 0; what <= EVENT_NONE; what++) {
        gct_outcome outcome;
        scheduled e = { .what = what };
        gct_spec spec = { .ranks = RANKS, .places = families[what % 2], .events = what == EVENT_NONE ? NULL : all_events[what],
                          .event_count = what == EVENT_NONE ? 0 : 2, .options = links_of_their_own, .started = note_start,
                          .leave_anyhow = what == EVENT_KILL, .outcome = &outcome };
        assert_int_equal(0, gct_job(&spec, eventful, &e));
        assert_true(e.started);
        assert_int_equal(what == EVENT_RESET, outcome.resets);
        assert_in_range((e.heard - e.start) / GCI_NS_PER_MS, after_ms[what][0], after_ms[what][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_places_and_events), cmocka_unit_test(test_jobs), cmocka_unit_test(test_canaries), cmocka_unit_test(test_patterns) };
    return cmocka_run_group_tests_name("gct", tests, NULL, NULL);
}
