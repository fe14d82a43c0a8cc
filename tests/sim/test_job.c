/* test_job.c: whole jobs on the simulated network: many ranks, deaths at every moment, links that are reset.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"
#include "../gct.h"
#include "simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

/* ---- 300 ranks in 4 sites: ring and all collectives, every byte checked, twice the same trace -------------------- */

static int ring(gc_comm *world, int rank, int size)
{
    enum { BYTES = 5000 };
    uint8_t *out = gct_buffer(BYTES), *in = gct_buffer(BYTES);
    int before = (rank + size - 1) % size;
    gct_fill(out, BYTES, rank, 1);
    gct_ok(gc_sendrecv(world, out, BYTES, (rank + 1) % size, 1, in, BYTES, before, 1, NULL));
    gct_require(!gct_check(in, BYTES, before, 1) && !gct_buffer_free(in) && !gct_buffer_free(out), "ring");
    return 0;
}

static int blocks(gc_comm *world, int rank, int size, size_t bytes, int root)
{
    uint8_t *mine = gct_buffer(bytes), *all = gct_buffer(bytes * (size_t)size);
    gct_fill(mine, bytes, rank, 2);
    gct_ok(gc_gather(world, mine, bytes, rank == root ? all : NULL, root));
    for (int i = 0; rank == root && i < size; i++)
        gct_require(!gct_check(all + (size_t)i * bytes, bytes, i, 2), "gather: block %d", i);
    memset(all, 0, bytes * (size_t)size);
    gct_ok(gc_allgather(world, mine, bytes, all));
    for (int i = 0; i < size; i++)
        gct_require(!gct_check(all + (size_t)i * bytes, bytes, i, 2), "allgather: block %d", i);
    gct_fill(mine, bytes, rank == root ? root : -1, 3);
    gct_ok(gc_bcast(world, mine, bytes, root));
    gct_require(!gct_check(mine, bytes, root, 3), "bcast");
    gct_require(!gct_buffer_free(mine) && !gct_buffer_free(all), "canaries");
    return 0;
}

static int sums(gc_comm *world, int rank, int size, int root)
{
    enum { N = 33 };
    int64_t mine[N], sum[N], all[N];
    for (int i = 0; i < N; i++)
        mine[i] = (int64_t)(rank + 1) * (i + 1);
    gct_ok(gc_reduce(world, mine, sum, N, GC_INT64, GC_SUM, root));
    gct_ok(gc_allreduce(world, mine, all, N, GC_INT64, GC_SUM));
    for (int i = 0; i < N; i++) {
        int64_t want = (int64_t)size * (size + 1) / 2 * (i + 1);
        gct_require(rank != root || sum[i] == want, "reduce [%d]", i);
        gct_require(all[i] == want, "allreduce [%d]", i);
    }
    return 0;
}

static int everything(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    gct_ok(gc_barrier(world));
    if (ring(world, rank, size))
        return 1;
    for (int round = 0; round < 2; round++)
        if (blocks(world, rank, size, round ? 301 : 8, round ? size / 2 : 0) || sums(world, rank, size, round * (size - 1)))
            return 1;
    gc_comm *half;
    gct_ok(gc_comm_split(world, rank % 2, -rank, &half));
    gct_require(gc_size(half) == (size + 1 - rank % 2) / 2, "%d", gc_size(half));
    int failed = blocks(half, gc_rank(half), gc_size(half), 17, 1) || sums(half, gc_rank(half), gc_size(half), 0);
    gct_ok(gc_comm_free(half));
    return failed;
}

static void test_many_ranks(void **state)
{
    (void)state;
    gct_outcome first, second;
    uint64_t seed = gct_seed();
    gct_spec spec = { .ranks = 300, .sites = 4, .ranks_per_host = 4, .seed = seed, .time_limit = 110, .outcome = &first };
    assert_int_equal(0, gct_job(&spec, everything, NULL));
    spec.outcome = &second;
    assert_int_equal(0, gct_job(&spec, everything, NULL));
    assert_true(first.trace == second.trace && first.virtual_ns == second.virtual_ns);
    spec.seed = seed + 1;
    spec.ranks = 40;
    assert_int_equal(0, gct_job(&spec, everything, NULL));
    assert_true(first.trace != second.trace);
}

/* ---- the ends of long messages are acknowledged before a rank turns away ------------------------------------------- */

enum { END_LONG = 32768, END_SHORT = 1000, END_BYTES = 4 << 20, ENDS_PAUSED = 20, ENDS_STREAMED = 500, ENDS_AT_ONCE = 8, PAUSE_MS = 100 };

static struct { ssize_t (*send)(gci_sys *, int fd, const struct iovec *, int n); int acknowledged, sent; int64_t at; } from_1;

static void count_acknowledgement(gci_sys *sys, int fd)
{
    (void)fd;
    if (gct_rank() != 1)
        return;
    from_1.acknowledged++;
    from_1.at = sys->now(sys);
}

static ssize_t count_send(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    from_1.sent += gct_rank() == 1;
    return from_1.send(sys, fd, part, n);
}

static void pause_all(void) { sim_sleep(sim_current(), PAUSE_MS * (int64_t)GCI_NS_PER_MS); }

/* Rank 1 receives it, waiting, or polling until there is nothing more to do. */
static int give_one(gc_comm *world, int rank, uint8_t *buf, size_t bytes, bool polls)
{
    gc_request *r;
    int done = 0;
    if (rank == 0) {
        gct_ok(gc_send(world, buf, bytes, 1, 1));
        return 0;
    }
    gct_ok(gc_irecv(world, buf, bytes, 0, 1, &r));
    while (polls && !done) {
        gct_ok(gc_test(&r, &done, NULL));
        sim_sleep(sim_current(), GCI_NS_PER_MS / 100);
    }
    if (!done)
        gct_ok(gc_wait(&r, NULL));
    while (polls && gc_progress(world) > 0)
        ;
    return 0;
}

/* Rank 1 does not turn away to its program in between, but sleeps. */
static int give_while_it_waits(gc_comm *world, int rank, uint8_t *buf)
{
    gc_request *r;
    gci_sys *sys = sim_sys(sim_current());
    if (rank == 0) {
        gct_ok(gc_send(world, buf, END_LONG, 1, 1));
        pause_all();
        gct_ok(gc_send(world, buf, 1, 1, 2));
        return 0;
    }
    int64_t began = sys->now(sys);
    gct_ok(gc_irecv(world, buf, END_LONG, 0, 1, &r));
    gct_ok(gc_recv(world, buf, 1, 0, 2, NULL));
    gct_ok(gc_wait(&r, NULL));
    gct_require(from_1.at < began + PAUSE_MS * (int64_t)GCI_NS_PER_MS / 2, "%lld us", (long long)(from_1.at - began) / 1000);
    return 0;
}

static int ends(gc_comm *world, int rank, int size, void *arg)
{
    const bool polls = *(bool *)arg;
    gci_sys *sys = sim_sys(sim_current());
    uint8_t *buf = gct_buffer(END_LONG);
    (void)size;
    from_1.send = sys->send;
    sys->acknowledge = count_acknowledgement;
    sys->send = count_send;
    for (int i = 0; i < 2 * ENDS_PAUSED; i++) {
        int acknowledged = from_1.acknowledged, sent = from_1.sent;
        if (give_one(world, rank, buf, i % 2 ? END_LONG : END_SHORT, polls))
            return 1;
        acknowledged = from_1.acknowledged - acknowledged;
        gct_require(rank == 0 || (i % 2 ? acknowledged > 0 || from_1.sent > sent : !acknowledged), "message %d", i);
        pause_all();
    }
    gct_require(from_1.acknowledged > ENDS_PAUSED / 2, "%d", from_1.acknowledged);
    if (!polls && give_while_it_waits(world, rank, buf))
        return 1;
    pause_all();
    const int before = from_1.acknowledged;
    const int64_t began = sys->now(sys);
    for (int i = 0; i < ENDS_STREAMED; i++)
        if (give_one(world, rank, buf, END_LONG, polls))
            return 1;
    const int paces = (int)((sys->now(sys) - began) / GCI_NS_PER_MS);
    gct_require(rank == 0 || from_1.acknowledged - before <= ENDS_AT_ONCE + 1 + paces, "%d in %d ms",
                from_1.acknowledged - before, paces);
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

/* To another site nothing is acknowledged before its time. */
static int far_ends(gc_comm *world, int rank, int size, void *arg)
{
    gci_sys *sys = sim_sys(sim_current());
    uint8_t *buf = gct_buffer(END_LONG);
    (void)size, (void)arg;
    sys->acknowledge = count_acknowledgement;
    for (int i = 0; i < ENDS_PAUSED; i++) {
        if (give_one(world, rank, buf, END_LONG, false))
            return 1;
        pause_all();
    }
    gct_require(!from_1.acknowledged, "%d", from_1.acknowledged);
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

static void test_far_ends(void **state)
{
    gct_spec spec = { .ranks = 2, .on = GCT_ON_SIM, .sites = 2, .calm = true, .seed = gct_seed() };
    (void)state;
    memset(&from_1, 0, sizeof from_1);
    assert_int_equal(0, gct_job(&spec, far_ends, NULL));
}

/* Nor within a message whose next packet has begun; over the backbone, with queues of one packet, none has. */
static int long_ends(gc_comm *world, int rank, int size, void *arg)
{
    uint8_t *buf = gct_buffer(END_BYTES);
    (void)size, (void)arg;
    sim_sys(sim_current())->acknowledge = count_acknowledgement;
    if (give_one(world, rank, buf, END_BYTES, false))
        return 1;
    gct_require(from_1.acknowledged <= END_BYTES / GCI_PACKET_MAX / 4, "%d", from_1.acknowledged);
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

static void test_long_ends(void **state)
{
    gct_spec spec = { .ranks = 2, .on = GCT_ON_SIM, .calm = true, .seed = gct_seed(), .lan_rate = 10000000,
                      .options = gct_usual_options };
    (void)state;
    memset(&from_1, 0, sizeof from_1);
    assert_int_equal(0, gct_job(&spec, long_ends, NULL));
}

static void test_ends(void **state)
{
    (void)state;
    for (int polls = 0; polls < 2; polls++) {
        gct_spec spec = { .ranks = 2, .on = GCT_ON_SIM, .calm = true, .seed = gct_seed(), .lan_rate = 10000000000 };
        memset(&from_1, 0, sizeof from_1);
        assert_int_equal(0, gct_job(&spec, ends, &(bool){ polls }));
    }
}

/* ---- a rank dies --------------------------------------------------------------------------------------------------- */

typedef struct death {
    int      victim;
    int64_t  at, died;                  /* ns after the job's beginning */
    bool     host;                      /* its host goes silent instead */
    sim     *net;
    int64_t  limit;                     /* from death to error */
    int      errors;
} death;

static void mark_death(void *of, void *proc)
{
    death *d = of;
    d->died = sim_now(d->net);
    if (d->host)
        sim_kill_host(sim_proc_host(proc));
    else
        sim_kill_proc(proc);
}

static void arrange_death(sim *net, sim_proc **procs, int ranks, void *arg)
{
    death *d = arg;
    (void)ranks;
    d->net = net;
    sim_at(net, d->at, mark_death, d, procs[d->victim]);
}

static void short_timeout(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->peer_timeout = 3;
    o->start_timeout = 20;
}

/* Survivors compute and communicate until they get their error; that has to come in time and name the victim. */
static int until_death(gc_comm *world, int rank, int size, void *arg)
{
    death *d = arg;
    int code = GC_OK;
    gc_status status;
    int64_t value = rank, sum;
    bool collective = true;
    for (int i = 0; code == GC_OK && i < 200000; i++) {
        uint8_t block[700];
        collective = i % 3 != 2;
        if (i % 3 == 0)
            code = gc_allreduce(world, &value, &sum, 1, GC_INT64, GC_SUM);
        else if (i % 3 == 1)
            code = gc_bcast(world, block, sizeof block, i % size);
        else
            code = gc_sendrecv(world, block, sizeof block, (rank + 1) % size, 1, block, sizeof block,
                               (rank + size - 1) % size, 1, NULL);
        gct_require(code != GC_OK || i % 3 != 0 || sum == (int64_t)size * (size - 1) / 2, "wrong sum");
    }
    int64_t now = sim_now(d->net);
    char text[256];
    gct_require(gc_last_error(world, &status, text, sizeof text) == GC_ERR_PEER && code == GC_ERR_PEER, "%s: %s",
                gc_strerror(code), text);
    /* a message's other end may have left because of the death before this rank needed the victim itself */
    gct_require(status.fault_rank == d->victim || !collective, "blames %d, not %d: %s", status.fault_rank, d->victim, text);
    gct_require(d->died && now - d->died <= d->limit, "error %g s after the death", (double)(now - d->died) / 1e9);
    int failed[16], n = gc_comm_failed(world, failed, size), at = 0;
    while (at < n && failed[at] != d->victim)
        at++;
    gct_require(at < n, "gc_comm_failed does not have it among %d", n);
    gct_require(gc_barrier(world) == GC_ERR_PEER, "a later collective");
    d->errors++;
    return 0;
}

/* One that dies before the job has begun fails everybody's gc_init: by its name, or, for those who come when rank 0 has
 * given up already, by rank 0's. */
static void refused(int rank, int code, const char *text, void *arg)
{
    death *d = arg;
    char want[32];
    snprintf(want, sizeof want, "rank %d ", d->victim);
    (void)rank;
    if ((code == GC_ERR_PEER || code == GC_ERR_TIMEOUT) && (strstr(text, want) || strstr(text, "rank 0 was not reached")))
        d->errors++;
    else
        fprintf(stderr, "gc_init said %s: %s\n", gc_strerror(code), text);
}

static void one_death(death *d, int ranks, uint64_t seed)
{
    gct_spec spec = { .ranks = ranks, .sites = 2, .ranks_per_host = 2, .seed = seed, .time_limit = 60, .leave_anyhow = true,
                      .options = short_timeout, .arrange = arrange_death, .refused = refused,
                      .wan_latency = 5000000, .wan_rate = 10000000 };
    d->errors = 0;
    d->died = 0;
    int failed = gct_job(&spec, until_death, d);
    int others = d->host ? (d->victim % 2 ? 2 : 2) : 1;
    if (failed || d->errors != ranks - others)
        fprintf(stderr, "victim %d at %lld ns: %d failed, %d of %d errors\n", d->victim, (long long)d->at, failed, d->errors,
                ranks - others);
    assert_int_equal(0, failed);
    assert_int_equal(ranks - others, d->errors);
}

static void test_each_rank_dies(void **state)
{
    (void)state;
    enum { RANKS = 12 };
    const char *rounds_text = getenv("GCT_ROUNDS");
    int rounds = rounds_text ? atoi(rounds_text) : 100;
    uint64_t random = gct_seed();
    for (int victim = 0; victim < RANKS; victim++)
        for (int i = 0; i < rounds; i++) {
            /* a third each: while the job starts, soon after, in the middle of the work */
            int64_t span = i % 3 == 0 ? 100000000 : i % 3 == 1 ? 300000000 : 2000000000;
            death d = { .victim = victim, .at = (int64_t)(gct_random(&random) % (uint64_t)span), .limit = 4 * GCI_SECOND };
            one_death(&d, RANKS, gct_random(&random));
        }
}

/* ---- links that are reset: nothing is lost, doubled or out of order ------------------------------------------------ */

typedef struct resets { sim *net; sim_proc **procs; int ranks, left; int64_t every; uint64_t random; } resets;

static void reset_again(void *of, void *unused)
{
    resets *r = of;
    int a = (int)(gct_random(&r->random) % (uint64_t)r->ranks), b = (int)(gct_random(&r->random) % (uint64_t)r->ranks);
    if (a != b)
        sim_reset_between(r->procs[a], r->procs[b]);
    if (--r->left > 0)
        sim_at(r->net, sim_now(r->net) + 1 + (int64_t)(gct_random(&r->random) % (uint64_t)r->every), reset_again, r, unused);
}

static void arrange_resets(sim *net, sim_proc **procs, int ranks, void *arg)
{
    resets *r = arg;
    *r = (resets){ .net = net, .procs = procs, .ranks = ranks, .left = r->left, .every = r->every, .random = r->random };
    sim_at(net, 300000000, reset_again, r, NULL);
}

static int traffic(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t sizes[] = { 1, 900, 30000, 70000, 400000 };
    enum { N = 40 };
    (void)arg;
    gc_request *request[2 * N];
    uint8_t *buf[2 * N];
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < N; i++) {
            size_t bytes = sizes[(i + round) % 5];
            int ahead = (rank + 1 + i % (size - 1)) % size, behind = (rank - 1 - i % (size - 1) + 2 * size) % size;
            buf[i] = gct_buffer(bytes);
            buf[N + i] = gct_buffer(bytes);
            gct_fill(buf[N + i], bytes, rank, i);
            gct_ok(gc_irecv(world, buf[i], bytes, behind, i % 3, &request[i]));
            gct_ok((i % 7 == 3 ? gc_issend : gc_isend)(world, buf[N + i], bytes, ahead, i % 3, &request[N + i]));
        }
        gct_ok(gc_waitall(2 * N, request, NULL));
        for (int i = 0; i < N; i++) {
            int behind = (rank - 1 - i % (size - 1) + 2 * size) % size;
            gct_require(!gct_check(buf[i], sizes[(i + round) % 5], behind, i), "message %d of round %d", i, round);
            gct_require(!gct_buffer_free(buf[i]) && !gct_buffer_free(buf[N + i]), "canaries");
        }
        int64_t one = 1, sum = 0;
        gct_ok(gc_allreduce(world, &one, &sum, 1, GC_INT64, GC_SUM));
        gct_require(sum == size, "sum %lld", (long long)sum);
        enum { LONG = 300000 };
        uint8_t *block = gct_buffer(LONG);
        gct_fill(block, LONG, rank, round);
        gct_ok(gc_bcast(world, block, LONG, round % size));
        gct_require(!gct_check(block, LONG, round % size, round) && !gct_buffer_free(block), "bcast of round %d", round);
    }
    return 0;
}

static void test_resets(void **state)
{
    (void)state;
    const char *rounds_text = getenv("GCT_ROUNDS");
    int rounds = rounds_text ? atoi(rounds_text) : 100;
    uint64_t random = gct_seed();
    for (int i = 0; i < rounds; i++) {
        resets r = { .left = 1 + i % 30, .every = i % 2 ? 20000000 : 200000000, .random = gct_random(&random) };
        gct_spec spec = { .ranks = 2 + i % 5, .seed = gct_random(&random), .time_limit = 60, .arrange = arrange_resets,
                          .options = short_timeout, .lan_latency = 500000 };
        assert_int_equal(0, gct_job(&spec, traffic, &r));
    }
}

/* ---- a stopped process is alive -------------------------------------------------------------------------------------- */

static void arrange_stop(sim *net, sim_proc **procs, int ranks, void *arg)
{
    (void)ranks, (void)arg;
    sim_stop_proc_at(procs[1], 400000000);
    sim_continue_proc_at(procs[1], 400000000 + 9 * GCI_SECOND);
    (void)net;
}

static void test_stopped_is_alive(void **state)
{
    (void)state;
    for (int i = 0; i < 10; i++) {
        gct_spec spec = { .ranks = 4, .seed = gct_seed() + (uint64_t)i, .time_limit = 60, .arrange = arrange_stop,
                          .options = short_timeout, .lan_rate = 3000000 };
        assert_int_equal(0, gct_job(&spec, traffic, NULL));
    }
}

/* ---- a long collective message to a receive that waits already costs one latency, not three ------------------------- */

typedef struct early { sim *net; sim_proc **procs; int64_t began, took; } early;

static void arrange_early(sim *net, sim_proc **procs, int ranks, void *arg)
{
    early *e = arg;
    (void)ranks;
    e->net = net;
    e->procs = procs;
}

static int early_bcast(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = 1 << 20 };
    early *e = arg;
    uint8_t *buf = gct_buffer(BYTES);
    (void)size;
    for (int round = 0; round < 3; round++) {
        gct_fill(buf, BYTES, rank, round);
        gct_ok(gc_barrier(world));
        if (rank == 0) {
            sim_sleep(e->procs[0], GCI_SECOND);
            e->began = sim_now(e->net);
        }
        gct_ok(gc_bcast(world, buf, BYTES, 0));
        gct_require(!gct_check(buf, BYTES, 0, round), "round %d", round);
        if (rank == 1)
            e->took = sim_now(e->net) - e->began;
        gct_ok(gc_barrier(world));
    }
    gct_require(!gct_buffer_free(buf), "canaries");
    return 0;
}

static void test_early_grant(void **state)
{
    (void)state;
    early e = { .took = 0 };
    gct_spec spec = { .ranks = 2, .sites = 2, .calm = true, .seed = gct_seed(), .wan_latency = 50000000, .wan_rate = 100000000,
                      .options = gct_usual_options, .arrange = arrange_early };
    assert_int_equal(0, gct_job(&spec, early_bcast, &e));
    int64_t wire = 50000000 + (1 << 20) * INT64_C(10);
    assert_in_range(e.took, wire, wire * 12 / 10);
}

/* ---- sends and receives at once with one who is known to be dead: the other half is done ------------------------------ */

static void until_a_death(gc_comm *world)
{
    while (gc_comm_failed(world, NULL, 0) == 0) {
        (void)gc_progress(world);
        sim_sleep(sim_current(), 1000000);
    }
}

/* Two survivors leave together: who leaves then waits for nobody. */
static void until_both(gc_comm *world, int *through)
{
    for (++*through; *through < 2;) {
        (void)gc_progress(world);
        sim_sleep(sim_current(), 1000000);
    }
}

static int half_with_the_dead(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = 5000 };
    uint8_t *out = gct_buffer(BYTES), *in = gct_buffer(BYTES);
    gc_status status;
    (void)size;
    until_a_death(world);
    gct_fill(out, BYTES, rank, 1);
    if (rank == 0) {
        gct_require(gc_sendrecv(world, out, BYTES, 1, 1, in, BYTES, 2, 1, &status) == GC_ERR_PEER, "from the dead");
        gct_require(status.error == GC_ERR_PEER && status.fault_rank == 2, "%d, blames %d", status.error, status.fault_rank);
        gct_ok(gc_send(world, out, BYTES, 1, 1));
    } else {
        gct_ok(gc_recv(world, in, BYTES, 0, 1, NULL));
        gct_require(!gct_check(in, BYTES, 0, 1), "the message of a gc_sendrecv whose receive failed");
        memset(in, 0, BYTES);
        gct_require(gc_sendrecv(world, out, BYTES, 2, 1, in, BYTES, 0, 1, &status) == GC_ERR_PEER, "to the dead");
        gct_require(status.error == GC_OK && status.bytes == BYTES && !gct_check(in, BYTES, 0, 1), "the receive of a failed send");
    }
    until_both(world, arg);
    return gct_buffer_free(in) | gct_buffer_free(out);
}

static void test_half_with_the_dead(void **state)
{
    (void)state;
    const gct_event dies = { .at = 1000000, .what = GCT_KILL, .a = 2 };
    gct_spec spec = { .ranks = 3, .leave_anyhow = true, .events = &dies, .event_count = 1, .seed = gct_seed(), .time_limit = 60,
                      .virtual_limit = 60 * GCI_SECOND };
    int through = 0;
    assert_int_equal(0, gct_job(&spec, half_with_the_dead, &through));
}

/* ---- collectives to which a rank never came, because somebody died, keep no credits of those that survive ------------- */

enum { LATER = 60, BEGUN = 64, MORTAL = 2 };    /* messages after the death; collectives before it, at most; who dies */
typedef struct after_death { int64_t took; int through; } after_death;

/* Rank 0 begins collectives until it hears of the death: some have come to rank 1 when that hears of it, some are on their way. */
static int begin_until_death(gc_comm *world, int64_t *value)
{
    gc_request *request[BEGUN] = { NULL };
    int begun = 0, code = GC_OK;
    for (; begun < BEGUN && code == GC_OK; sim_sleep(sim_current(), 4000000))
        code = gc_ibcast(world, value, sizeof *value, 0, &request[begun++]);
    gct_require(code == GC_ERR_PEER, "%d begun: %s", begun, gc_strerror(code));
    for (int i = 0; i < begun; i++)
        (void)gc_wait(&request[i], NULL);
    return 0;
}

static int credits_after_a_death(gc_comm *world, int rank, int size, void *arg)
{
    after_death *a = arg;
    int64_t value = 1;
    gc_comm *rest;
    (void)size;
    gct_ok(gc_barrier(world));
    sim_sleep(sim_current(), 27 * GCI_SECOND / 10);
    if (rank == 0 && begin_until_death(world, &value))
        return 1;
    if (rank == 1)
        until_a_death(world);
    if (rank == MORTAL)
        sim_sleep(sim_current(), 100 * GCI_SECOND);
    gct_ok(gc_comm_shrink(world, &rest));
    gct_ok(gc_barrier(rest));
    gci_sys *sys = sim_sys(sim_current());
    const gci_match *match = gci_match_find(world->world->p2p->match, world->context + GCI_CONTEXT_COLL);
    gct_require(!match || !match->unexpected, "a message of collective %u stays", match->unexpected->packet.tag);
    int64_t began = sys->now(sys);
    for (int i = 0; i < LATER && rank == 0; i++)
        gct_ok(gc_send(rest, &value, sizeof value, 1, i));
    if (rank == 0)
        a->took = sys->now(sys) - began;
    if (rank == 1)
        sim_sleep(sim_current(), 5 * GCI_SECOND);
    for (int i = 0; i < LATER && rank == 1; i++)
        gct_ok(gc_recv(rest, &value, sizeof value, 0, i, NULL));
    until_both(world, &a->through);
    return gc_comm_free(rest);
}

static void test_credits_after_a_death(void **state)
{
    (void)state;
    const gct_event dies = { .at = 3 * GCI_SECOND, .what = GCT_KILL, .a = MORTAL };
    gct_spec spec = { .ranks = 3, .sites = 3, .calm = true, .leave_anyhow = true, .events = &dies, .event_count = 1,
                      .seed = gct_seed(), .wan_latency = 50000000, .wan_rate = 100000000, .options = gct_usual_options,
                      .time_limit = 60, .virtual_limit = 60 * GCI_SECOND };
    after_death a = { .took = INT64_MAX };
    assert_int_equal(0, gct_job(&spec, credits_after_a_death, &a));
    assert_in_range(a.took, 0, GCI_SECOND);
}

/* ---- what went whole over a link that is cut goes again over a relay in pieces: that its sender is through ends it not ---------- */

enum { PIECES_RANKS = 3, PIECES_ROOT = 1, CUT_OFF = 2 };

static int in_pieces(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = GCI_ROUTED_MAX + 2000 };
    uint8_t *mine = gct_buffer(BYTES), *all = gct_buffer((size_t)size * BYTES);
    gct_ok(gc_gather(world, mine, BYTES, all, PIECES_ROOT));
    sim_sleep(sim_current(), *(const int64_t *)arg);    /* until the root does not hear it any more */
    gct_fill(mine, BYTES, rank, 1);
    gct_ok(gc_gather(world, mine, BYTES, all, PIECES_ROOT));
    for (int i = 0; i < size && rank == PIECES_ROOT; i++)
        gct_require(!gct_check(all + (size_t)i * BYTES, BYTES, i, 1), "of rank %d", i);
    return gct_buffer_free(mine) | gct_buffer_free(all);
}

/* The question whether it is through falls between the first piece and the rest in some of these. */
static void test_in_pieces(void **state)
{
    (void)state;
    const gct_event cut = { .at = GCI_SECOND, .what = GCT_CUT_WAY, .a = CUT_OFF, .b = PIECES_ROOT };
    gct_spec spec = { .ranks = PIECES_RANKS, .calm = true, .events = &cut, .event_count = 1, .seed = gct_seed(),
                      .lan_latency = 100000000, .time_limit = 60, .virtual_limit = 60 * GCI_SECOND };
    for (int64_t wait = 11 * GCI_SECOND / 10; wait < 5 * GCI_SECOND; wait += GCI_SECOND / 10)
        assert_int_equal(0, gct_job(&spec, in_pieces, &wait));
}

/* ---- after millions of communicators there are no numbers for more -------------------------------------------------- */

static int make(gc_comm *world, int way, gc_comm **out)
{
    static const int all[] = { 0, 1, 2, 3, 4, 5, 6 };
    return way == 0 ? gc_comm_dup(world, out) : way == 1 ? gc_comm_split(world, 0, 0, out)
                                                         : gc_comm_create(world, all, gc_size(world), out);
}

static int sums_up(gc_comm *comm)
{
    int64_t one = 1, sum = 0;
    gct_ok(gc_allreduce(comm, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_require(sum == gc_size(comm), "sum %lld", (long long)sum);
    return 0;
}

/* Rank 0 has LEFT of its numbers left, the others have theirs: it alone can say so. */
static int numbers_used_up(gc_comm *world, int rank, int size, void *arg)
{
    enum { LEFT = 5 };
    gc_comm *made[LEFT], *more = world;
    (void)arg;
    if (rank == 0)
        world->world->contexts = (UINT32_MAX / GCI_CONTEXT_KINDS - 1) / (uint32_t)size - LEFT;
    for (int i = 0; i < LEFT; i++) {
        gct_ok(make(world, i % 3, &made[i]));
        gct_require(made[i]->context > 0 && made[i]->context % GCI_CONTEXT_KINDS == 0, "%u", made[i]->context);
        if (sums_up(made[i]))
            return 1;
    }
    for (int way = 0; way < 3; way++) {
        int code = make(world, way, &more);
        gct_require(code == GC_ERR_NOMEM && !more, "way %d: %s", way, gc_strerror(code));
    }
    for (int i = 0; i < LEFT; i++)
        gct_ok(gc_comm_free(made[i]));
    return sums_up(world);
}

static void test_numbers_used_up(void **state)
{
    (void)state;
    for (int ranks = 1; ranks <= 7; ranks += 3)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks, .calm = true, .seed = gct_seed() }, numbers_used_up, NULL));
}

/* ---- a firewall that refuses is no death: a connection is lost while the only one whom the host can reach is stopped --- */

static int for_four_seconds(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    for (int i = 0; i < 40; i++) {
        int64_t value = rank, sum = 0;
        gct_ok(gc_allreduce(world, &value, &sum, 1, GC_INT64, GC_SUM));
        gct_require(sum == (int64_t)size * (size - 1) / 2, "sum %lld", (long long)sum);
        sim_sleep(sim_current(), 100000000);
    }
    return 0;
}

static void test_refused_by_a_firewall(void **state)
{
    (void)state;
    static const gct_place places[] = { { .ranks = 1 }, { .ranks = 1, .wall = GCT_REFUSE }, { .ranks = 1, .nat = true } };
    static const gct_event events[] = { { .at = 100000000, .what = GCT_STOP, .a = 0 },
                                        { .at = 150000000, .what = GCT_RESET, .a = 1, .b = -1 },
                                        { .at = 1300000000, .what = GCT_CONTINUE, .a = 0 } };
    for (int i = 0; i < 10; i++) {
        gct_spec spec = { .ranks = 3, .places = places, .options = short_timeout, .events = events, .event_count = 3,
                          .seed = gct_seed() + (uint64_t)i, .time_limit = 60 };
        assert_int_equal(0, gct_job(&spec, for_four_seconds, NULL));
    }
}

/* The host cannot be reached, and cannot reach either for a second; a firewall answers for it. Nobody has died. */
static void test_refused_while_cut(void **state)
{
    (void)state;
    static const gct_place places[] = { { .ranks = 2 }, { .ranks = 1, .wall = GCT_REFUSE } };
    static const gct_event events[] = { { .at = 100000000, .what = GCT_CUT_WAY, .a = 2, .b = 0 },
                                        { .at = 100000000, .what = GCT_CUT_WAY, .a = 2, .b = 1 },
                                        { .at = 150000000, .what = GCT_RESET, .a = 2, .b = -1 },
                                        { .at = 1000000000, .what = GCT_MEND, .a = 2, .b = 0 },
                                        { .at = 1000000000, .what = GCT_MEND, .a = 2, .b = 1 } };
    for (int i = 0; i < 10; i++) {
        gct_spec spec = { .ranks = 3, .places = places, .options = short_timeout, .events = events, .event_count = 5,
                          .seed = gct_seed() + (uint64_t)i, .time_limit = 60 };
        assert_int_equal(0, gct_job(&spec, for_four_seconds, NULL));
    }
}

/* ---- who is never in a call for long runs the timers, too: after 300 ms without a link of its own a message is to be routed ---- */

enum way { WAY_SHORT_WAITS, WAY_TESTS, WAYS };
typedef struct polling { sim *net; enum way way; int64_t took; } polling;

static void polling_options(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->direct = 1;
    o->progress = "poll";
}

static void arrange_polling(sim *net, sim_proc **procs, int ranks, void *arg)
{
    (void)procs, (void)ranks;
    ((polling *)arg)->net = net;
    sim_tune(net)->yield_max = 2000000;
}

static int poll_for_a_way(gc_comm *world, int rank, int size, void *arg)
{
    polling *p = arg;
    gc_request *request = NULL;
    int64_t begun = sim_now(p->net);
    int byte = 1, code = GC_ERR_TIMEOUT, done = 0;
    (void)size;
    if (rank == 1)
        gct_ok(gc_issend(world, &byte, sizeof byte, 2, 1, &request));
    else if (rank == 2)
        gct_ok(gc_recv(world, &byte, sizeof byte, 1, 1, NULL));
    while (request && code == GC_ERR_TIMEOUT && p->way == WAY_SHORT_WAITS)
        code = gc_wait_for(&request, 0.003, NULL);
    for (; request && !done; sim_sleep(sim_current(), 1000000))
        gct_ok(gc_test(&request, &done, NULL));
    if (rank == 1)
        p->took = sim_now(p->net) - begun;
    return 0;
}

static void test_short_waits(void **state)
{
    (void)state;
    static const gct_place places[] = { { .ranks = 1 }, { .ranks = 1, .wall = GCT_DROP }, { .ranks = 1, .wall = GCT_DROP } };
    for (enum way way = 0; way < WAYS; way++) {
        polling p = { .way = way };
        gct_spec spec = { .ranks = 3, .places = places, .calm = true, .options = polling_options, .arrange = arrange_polling,
                          .seed = gct_seed() };
        assert_int_equal(0, gct_job(&spec, poll_for_a_way, &p));
        assert_in_range(p.took, 1, GCI_SECOND);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_early_grant),
                                        cmocka_unit_test(test_short_waits),
                                        cmocka_unit_test(test_numbers_used_up),
                                        cmocka_unit_test(test_refused_while_cut),
                                        cmocka_unit_test(test_half_with_the_dead),
                                        cmocka_unit_test(test_credits_after_a_death),
                                        cmocka_unit_test(test_in_pieces),
                                        cmocka_unit_test(test_refused_by_a_firewall),
                                        cmocka_unit_test(test_many_ranks),
                                        cmocka_unit_test(test_ends),
                                        cmocka_unit_test(test_far_ends),
                                        cmocka_unit_test(test_long_ends),
                                        cmocka_unit_test(test_resets),
                                        cmocka_unit_test(test_stopped_is_alive),
                                        cmocka_unit_test(test_each_rank_dies) };
    return cmocka_run_group_tests_name("job", tests, NULL, NULL);
}
