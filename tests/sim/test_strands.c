/* test_strands.c: much data between hosts with several NICs: all of them are used, and nothing is lost, doubled, written where it
 * does not belong or stuck, whatever is cut, reset, stopped, killed or out of memory meanwhile.
 * SPDX-License-Identifier: MIT
 *
 * Random rounds: each has a seed that fixes everything; a round that fails prints it, and GCT_SEED=<that> GCT_ROUNDS=1 has it
 * again. GCT_ROUNDS=n: 1 + n/5 of them, without it 20. TEST=<word> runs the tests whose name has it. GCT_VERBOSE=1 prints what
 * was measured, and every round. time limit: 600 s
 *
 * Every byte of every message is checked, and what stands round it. Ranks meet at shared counters rather than by messages.
 */
#define _GNU_SOURCE
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MAX = 6, NICS_MAX = 4, MIB = 1 << 20, KIB = 1 << 10, TAG_WARM = 1, TAG_TIMED, TAG_ANSWER, TAG_BULK = 1 << 12,
       TEXT_BYTES = 1 << 16 };
#define MS INT64_C(1000000)
#define MB INT64_C(1000000)             /* a rate: byte/s */

typedef struct fault fault;
typedef struct job job;

/* What happens at a time after the messages that it is meant for have begun. nic: or a purpose, or a number. */
struct fault { int64_t at; void (*what)(job *, const fault *); int a, b, nic; };

enum { FAULTS_MAX = 16 };

struct job {
    uint64_t    seed;
    int         ranks, nics[RANKS_MAX];             /* per host; eth0 of all is lan_rate fast */
    int64_t     rate[RANKS_MAX][NICS_MAX];
    int64_t     latency[NICS_MAX];                  /* of net1, ...; 0: 50 us */
    bool        one_net;                            /* all NICs are on one network; else eth1 on net1, ... */
    int         streams, max_links, queue, credits;
    const char *progress;
    const char *cards, *algo;                       /* options interfaces, algo */
    double      peer_timeout;
    size_t      bytes, buffer;
    void      (*tune)(job *, struct sim *);
    fault       fault[FAULTS_MAX];
    int         faults, happened;
    struct sim *s;
    struct sim_proc **procs;
    sim_nic    *nic[RANKS_MAX][NICS_MAX];
    bool        dies[RANKS_MAX], anybody;           /* who may be lost; anybody may be given up, and all may fail */
    bool        bad;
    int         survivors, arrived[16];
    int64_t     took, longest;
    int         strands[RANKS_MAX];
    uint64_t    carried[RANKS_MAX][NICS_MAX];       /* bytes in by each NIC during the timed message */
    gct_outcome outcome;
    int         syns, refused;
};

static uint64_t draw(uint64_t *state, uint64_t below) { return gct_random(state) % below; }
static int rounds(void) { const char *n = getenv("GCT_ROUNDS"); return n ? 1 + atoi(n) / 5 : 20; }
static bool verbose(void) { const char *n = getenv("GCT_VERBOSE"); return n && *n == '1'; }
static int64_t now(void) { return sim_sys(sim_current())->now(sim_sys(sim_current())); }

/* ---- hosts with several NICs ---- */

static void options(gc_options *o, int rank, void *arg)
{
    const job *j = arg;
    (void)rank;
    o->direct = 1;                      /* whatever the environment says: without links of their own there are no strands */
    o->streams = j->streams;
    o->max_links = j->max_links;
    o->queue_packets = j->queue;
    o->credits = j->credits;
    o->peer_timeout = j->peer_timeout;
    o->interfaces = j->cards;
    o->algo = j->algo;
    o->progress = j->progress;
}

static void arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    job *j = arg;
    char net[32], name[32], address[64];
    j->s = s;
    j->procs = procs;
    for (int r = 0; r < ranks; r++) {
        sim_host *h = sim_proc_host(procs[r]);
        j->nic[r][0] = sim_host_nic(h, 0);
        if (r > 0 && h == sim_proc_host(procs[r - 1])) {
            memcpy(j->nic[r], j->nic[r - 1], sizeof j->nic[r]);
            continue;
        }
        for (int n = 1; n < j->nics[r]; n++) {
            snprintf(name, sizeof name, "eth%d", n);
            snprintf(net, sizeof net, "net%d", j->one_net ? 1 : n);
            snprintf(address, sizeof address, j->one_net ? "10.20.%d.%d/16" : "10.2%d.0.%d/16", n, r + 1);
            sim_net *on = sim_net_new(s, net, j->latency[n] ? j->latency[n] : 50000);
            j->nic[r][n] = sim_nic_new(h, name, on, address, j->rate[r][n]);
        }
    }
    if (j->tune) {
        j->tune(j, s);
    }
}

static void happen(void *of_job, void *of_fault)
{
    job *j = of_job;
    const fault *f = of_fault;
    j->happened++;
    f->what(j, f);
}

/* From now on the times of all faults count. */
static void faults_begin(job *j)
{
    for (int i = 0; i < j->faults; i++) {
        sim_at(j->s, sim_now(j->s) + j->fault[i].at, happen, j, &j->fault[i]);
    }
}

static void nic_cut(job *j, const fault *f) { sim_nic_cut(j->nic[f->a][f->nic]); }
static void nic_mend(job *j, const fault *f) { sim_nic_mend(j->nic[f->a][f->nic]); }
static void nic_down(job *j, const fault *f) { sim_nic_down(j->nic[f->a][f->nic]); }
static void nic_up(job *j, const fault *f) { sim_nic_up(j->nic[f->a][f->nic]); }
static bool serves(void *purpose, const uint8_t *opening, size_t bytes)
{
    enum { PURPOSE_AT = 6 };            /* as the HELLO of a connection says it (boot.c) */
    return bytes > PURPOSE_AT && opening[PURPOSE_AT] == *(int *)purpose;
}

static void reset(job *j, const fault *f)
{
    int purpose = f->nic;
    (void)sim_reset_where(j->procs[f->a], f->b >= 0 ? j->procs[f->b] : NULL, serves, &purpose);
}

static void kill_proc(job *j, const fault *f) { sim_kill_proc(j->procs[f->a]); }
static void kill_host(job *j, const fault *f) { sim_kill_host(sim_proc_host(j->procs[f->a])); }
static void no_memory(job *j, const fault *f) { sim_alloc_fail(j->procs[f->a], -f->nic); }
static void stop(job *j, const fault *f) { sim_stop_proc(j->procs[f->a]); }
static void go_on(job *j, const fault *f) { sim_continue_proc(j->procs[f->a]); }

static int strands_to(gc_comm *world, int peer)
{
    char *text = gct_buffer(TEXT_BYTES), word[64];
    int n = 0;
    snprintf(word, sizeof word, "beside its direct link to rank %d", peer);
    if (gc_describe(world, "links", "text", text, TEXT_BYTES, NULL) == GC_OK) {
        for (const char *at = text; (at = strstr(at, word)); at++) {
            n++;
        }
    }
    (void)gct_buffer_free(text);
    return n;
}

static int meet(gc_comm *world, job *j, int where)
{
    j->arrived[where]++;
    for (int64_t give_up = now() + 300 * GCI_SECOND; j->arrived[where] < j->survivors;) {
        if (j->bad) {
            return 1;
        }
        gct_require(now() < give_up, "only %d of %d came to meeting point %d", j->arrived[where], j->survivors, where);
        (void)gc_progress(world);
        sim_sleep(sim_current(), 5 * MS);
    }
    return 0;
}

/* ---- one long message, timed ---- */

static int message(gc_comm *world, int rank, int from, int to, size_t bytes, int tag)
{
    uint8_t *buf = gct_buffer(bytes), byte = 0;
    gc_status s;
    if (rank == from) {
        gct_fill(buf, bytes, from, tag);
        gct_ok(gc_send(world, buf, bytes, to, tag));
        gct_ok(gc_recv(world, &byte, 1, to, TAG_ANSWER, &s));
    } else if (rank == to) {
        gct_ok(gc_recv(world, buf, bytes, from, tag, &s));
        gct_ok(gc_send(world, &byte, 1, from, TAG_ANSWER));
        gct_require(s.bytes == bytes, "%zu bytes of %zu", s.bytes, bytes);
        if (gct_check(buf, bytes, from, tag)) {
            return 1;
        }
    }
    return gct_buffer_free(buf);
}

static void carried(job *j, int rank, bool begin)
{
    for (int n = 0; n < NICS_MAX; n++) {
        uint64_t bytes = j->nic[rank][n] ? sim_nic_bytes(j->nic[rank][n], false) : 0;
        j->carried[rank][n] = begin ? bytes : bytes - j->carried[rank][n];
    }
}

static int timed(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    (void)size;
    if (message(world, rank, 0, 1, 4 * MIB, TAG_WARM)) {
        return 1;
    }
    sim_sleep(sim_current(), 100 * MS);
    if (meet(world, j, 0)) {
        return 1;
    }
    int64_t since = now();
    carried(j, rank, true);
    if (rank == 0) {
        faults_begin(j);
    }
    if (message(world, rank, 0, 1, j->bytes, TAG_TIMED)) {
        return 1;
    }
    carried(j, rank, false);
    j->took = rank ? j->took : now() - since;
    j->strands[rank] = strands_to(world, !rank);
    return meet(world, j, 1);
}

static void run(job *j, const gct_spec *more, gct_main *main_)
{
    gct_spec spec = *more;
    j->survivors = j->survivors ? j->survivors : spec.ranks;
    spec.seed = j->seed ? j->seed : gct_seed();
    spec.options = spec.options ? spec.options : options;
    spec.arrange = arrange;
    spec.outcome = &j->outcome;
    int failed = gct_job(&spec, main_, j);
    if (failed) {
        fail_msg("%d ranks failed: GCT_SEED=%llu", failed, (unsigned long long)spec.seed);
    }
}

/* ---- all NICs are used ---- */

/* Rates of the NICs of both hosts, in MB/s; how much of their sum is reached at least. */
static void shared(const int rate[], int nics, size_t bytes, double least)
{
    job j = { .bytes = bytes };
    int64_t sum = 0;
    for (int r = 0; r < 2; r++) {
        j.nics[r] = nics;
        for (int n = 0; n < nics; n++) {
            j.rate[r][n] = rate[n] * MB;
            sum += r ? 0 : j.rate[r][n];
        }
    }
    run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = rate[0] * MB }, timed);
    double of_sum = (double)bytes / ((double)j.took / 1e9) / (double)sum;
    if (verbose()) {
        print_message("    %d NICs, %3d .. %3d MB/s: %.3f of their sum\n", nics, rate[0], rate[nics - 1], of_sum);
        for (int n = 0; n < nics; n++) {
            print_message("      eth%d: %llu bytes\n", n, (unsigned long long)j.carried[1][n]);
        }
    }
    assert_true(of_sum >= least);
    for (int n = 0; n < nics; n++) {
        assert_true((double)j.carried[1][n] > 0.8 * (double)bytes * (double)j.rate[1][n] / (double)sum);
    }
    assert_int_equal(nics - 1, j.strands[0]);
    assert_int_equal(nics - 1, j.strands[1]);
}

static void test_equal_nics(void **state)
{
    (void)state;
    shared((int[]){ 125, 125 }, 2, 64 * MIB, 0.95);
    shared((int[]){ 125, 125, 125, 125 }, 4, 64 * MIB, 0.95);
}

static void test_unequal_nics(void **state)
{
    (void)state;
    shared((int[]){ 125, 12 }, 2, 64 * MIB, 0.95);
    shared((int[]){ 12, 125 }, 2, 64 * MIB, 0.95);
    shared((int[]){ 400, 40 }, 2, 64 * MIB, 0.95);
    shared((int[]){ 10, 100, 50, 20 }, 4, 64 * MIB, 0.95);
}

/* Chunks of collectives follow their envelopes unasked, but not over strands before it has come. */
static int broadcast(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    uint8_t *buf = gct_buffer(j->bytes);
    (void)size;
    if (message(world, rank, 0, 1, 4 * MIB, TAG_WARM) || meet(world, j, 0)) {
        return 1;
    }
    int64_t since = now();
    carried(j, rank, true);
    gct_fill(buf, j->bytes, rank ? -1 : 0, TAG_TIMED);
    gct_ok(gc_bcast(world, buf, j->bytes, 0));
    if (gct_check(buf, j->bytes, 0, TAG_TIMED)) {
        return 1;
    }
    j->took = rank ? now() - since : j->took;
    carried(j, rank, false);
    return gct_buffer_free(buf) | meet(world, j, 1);
}

static void test_broadcast(void **state)
{
    (void)state;
    for (int mib = 1; mib <= 64; mib *= 4) {
        job j = { .bytes = (size_t)mib * MIB, .nics = { 2, 2 }, .rate = { { 0, 125 * MB }, { 0, 125 * MB } } };
        run(&j, &(gct_spec){ .ranks = 2, .calm = true }, broadcast);
        double of_sum = (double)j.bytes / ((double)j.took / 1e9) / 250e6;
        if (verbose()) {
            print_message("    %d MiB: %.3f of the sum of two NICs, %llu and %llu bytes\n", mib, of_sum,
                          (unsigned long long)j.carried[1][0], (unsigned long long)j.carried[1][1]);
        }
        assert_true(of_sum >= 0.9);
    }
}

/* Segments pass through three hosts, one after another, and all NICs have something to do. */
static void test_segments(void **state)
{
    static const char *const algos[] = { "bcast:chain@32768", "bcast:chain@131072", "bcast:chain@262144", "bcast:chain@1048576" };
    (void)state;
    for (int i = 0; i < 8; i++) {
        const int64_t other = (i < 4 ? 125 : 12) * MB;
        job j = { .bytes = 16 * MIB, .nics = { 2, 2, 2, 2 }, .algo = algos[i % 4], .credits = 64 };
        for (int r = 0; r < 4; r++)
            j.rate[r][1] = other;
        run(&j, &(gct_spec){ .ranks = 4, .calm = true }, broadcast);
        double of_sum = (double)j.bytes / ((double)j.took / 1e9) / (double)(125 * MB + other);
        if (verbose()) {
            print_message("    %s, NICs of 125 and %d MB/s: %.3f of their sum\n", j.algo, (int)(other / MB), of_sum);
        }
        assert_true(of_sum >= 0.7);
    }
}

/* ---- a NIC falls silent, or goes down ---- */

/* Both hosts have two NICs. At any time of a transfer of 170 ms one of them does; all is through soon, whichever link it was. */
static void silenced(void (*what)(job *, const fault *), int host, int nic, int at_ms, int64_t limit)
{
    job j = { .bytes = 4 * MIB, .nics = { 2, 2 }, .rate = { { 0, 12500000 }, { 0, 12500000 } }, .faults = 1,
              .fault = { { at_ms * MS, what, host, !host, nic } } };
    run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000 }, timed);
    if (verbose()) {
        print_message("    eth%d of host %d at %d ms: %.3f s\n", nic, host, at_ms, (double)j.took / 1e9);
    }
    assert_int_equal(1, j.happened);
    assert_true(j.took < limit);
}

static void test_cut(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int at = 1; at < 165; at += 18) {
            silenced(nic_cut, i / 2, i % 2, at, 1200 * MS);
        }
    }
}

static void test_down(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        for (int at = 1; at < 165; at += 27) {
            silenced(nic_down, i / 2, i % 2, at, 1200 * MS);
        }
    }
}

static void test_reset(void **state)
{
    (void)state;
    for (int strand = 0; strand < 2; strand++) {
        for (int at = 1; at < 165; at += 9) {
            silenced(reset, 0, strand ? GCI_PURPOSE_STRAND : GCI_PURPOSE_DATA, at, 600 * MS);
        }
    }
}

/* ---- strands come back, and are not given up without need ---- */

enum { BACK_EVERY_MS = 250, BACK_DOWN_MS = 3000, BACK_WITHIN_MS = 7500 };

/* A message now and then. After the NIC is back, both sides have their strand again, and use it. */
static int comes_back(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    (void)size;
    if (message(world, rank, 0, 1, 4 * MIB, TAG_WARM) || meet(world, j, 0)) {
        return 1;
    }
    gct_require(strands_to(world, !rank) == 1, "%d strands", strands_to(world, !rank));
    if (rank == 0) {
        faults_begin(j);
    }
    for (int i = 0; i < (BACK_DOWN_MS + BACK_WITHIN_MS) / BACK_EVERY_MS; i++) {
        int64_t since = now();
        if (message(world, rank, j->streams ? 1 : 0, j->streams ? 0 : 1, MIB, TAG_BULK + i)) {
            return 1;
        }
        gct_require(now() - since < 2000 * MS, "message %d took %.3f s", i, (double)(now() - since) / 1e9);
        sim_sleep(sim_current(), BACK_EVERY_MS * MS);
    }
    carried(j, rank, true);
    if (meet(world, j, 1) || message(world, rank, 0, 1, 4 * MIB, TAG_TIMED) || meet(world, j, 2)) {
        return 1;
    }
    carried(j, rank, false);
    gct_require(strands_to(world, !rank) == 1, "%d strands", strands_to(world, !rank));
    return 0;
}

static void test_comes_back(void **state)
{
    (void)state;
    for (int i = 0; i < 16; i++) {
        void (*gone)(job *, const fault *) = i & 1 ? nic_cut : nic_down;
        void (*back)(job *, const fault *) = i & 1 ? nic_mend : nic_up;
        int host = i >> 1 & 1, nic = i >> 2 & 1;
        job j = { .nics = { 2, 2 }, .rate = { { 0, 12500000 }, { 0, 12500000 } }, .faults = 2, .streams = i >> 3,
                  .fault = { { 20 * MS, gone, host, 0, nic }, { BACK_DOWN_MS * MS, back, host, 0, nic } } };
        run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000 }, comes_back);
        for (int n = 0; n < 2; n++) {
            assert_true(j.carried[1][n] > MIB);
        }
    }
}

/* One of three NICs is away for longer than it takes to ask for strands again: none goes over a NIC that has one. */
static int does_without(gc_comm *world, int rank, int size, void *arg)
{
    enum { EVERY_MS = 500, FOR_MS = 8000 };
    job *j = arg;
    (void)size;
    if (message(world, rank, 0, 1, 4 * MIB, TAG_WARM) || meet(world, j, 0)) {
        return 1;
    }
    gct_require(strands_to(world, !rank) == 2, "%d strands", strands_to(world, !rank));
    if (rank == 0) {
        faults_begin(j);
    }
    for (int i = 0; i < FOR_MS / EVERY_MS; i++) {
        if (message(world, rank, i % 2, !(i % 2), MIB, TAG_BULK + i)) {
            return 1;
        }
        sim_sleep(sim_current(), EVERY_MS * MS);
    }
    gct_require(strands_to(world, !rank) == 1, "%d strands", strands_to(world, !rank));
    return meet(world, j, 1);
}

static void test_one_is_away(void **state)
{
    (void)state;
    for (int i = 0; i < 6; i++) {
        job j = { .nics = { 3, 3 }, .faults = 1, .fault = { { 20 * MS, nic_down, i / 3, 0, i % 3 } } };
        for (int n = 0; n < 6; n++) {
            j.rate[n / 3][n % 3] = 12500000;
        }
        run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000 }, does_without);
    }
}

static void count_syn(void *user, struct sim_host *from, sim_nic *nic, const gci_addr *to)
{
    job *j = user;
    (void)from; (void)nic; (void)to;
    j->syns++;
}

static void watch_syns(job *j, struct sim *s) { sim_on_syn(s, count_syn, j); }

/* The peer's process stops for three seconds in mid-transfer, or nothing at all gets to its host for as long. */
static int stands_still(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    (void)size;
    if (message(world, rank, 0, 1, 4 * MIB, TAG_WARM) || meet(world, j, 0)) {
        return 1;
    }
    int syns = j->syns;
    if (rank == 0) {
        faults_begin(j);
    }
    if (message(world, rank, 0, 1, 4 * MIB, TAG_TIMED) || message(world, rank, 1, 0, 4 * MIB, TAG_TIMED)) {
        return 1;
    }
    gct_require(strands_to(world, !rank) == 1, "%d strands", strands_to(world, !rank));
    gct_require(j->syns == syns, "%d connections were made anew", j->syns - syns);
    return meet(world, j, 1);
}

static void test_stopped(void **state)
{
    (void)state;
    for (int i = 0; i < 20; i++) {
        int at = 1 + 18 * (i / 2);
        job j = { .nics = { 2, 2 }, .rate = { { 0, 12500000 }, { 0, 12500000 } }, .faults = 2, .tune = watch_syns,
                  .fault = { { at * MS, stop, i % 2, 0, 0 }, { (at + 3000) * MS, go_on, i % 2, 0, 0 } } };
        run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000 }, stands_still);
    }
}

static void host_cut(job *j, const fault *f) { sim_cut(sim_proc_host(j->procs[f->a]), sim_proc_host(j->procs[f->b])); }
static void host_mend(job *j, const fault *f) { sim_mend(sim_proc_host(j->procs[f->a]), sim_proc_host(j->procs[f->b])); }

static void test_silent_host(void **state)
{
    (void)state;
    for (int i = 0; i < 30; i++) {
        int at = 1 + 18 * (i / 3), ms = i % 3 == 0 ? 100 : i % 3 == 1 ? 1000 : 2500;
        job j = { .nics = { 2, 2 }, .rate = { { 0, 12500000 }, { 0, 12500000 } }, .faults = 2, .tune = watch_syns,
                  .fault = { { at * MS, host_cut, 0, 1, 0 }, { (at + ms) * MS, host_mend, 0, 1, 0 } } };
        run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000 }, stands_still);
    }
}

/* After each pause all links begin at once, and one is heard long before the other, whose silence is no older than that. */
static int after_pauses(gc_comm *world, int rank, int size, void *arg)
{
    enum { TIMES = 8 };
    job *j = arg;
    int syns = 0;
    (void)size;
    for (int i = 0; i < TIMES; i++) {
        if (message(world, rank, i / 2 % 2, !(i / 2 % 2), MIB, TAG_BULK + i) || meet(world, j, i)) {
            return 1;
        }
        gct_require(i == 0 || strands_to(world, !rank) == 1, "%d strands", strands_to(world, !rank));
        syns = i ? syns : j->syns;
        sim_sleep(sim_current(), 2 * GCI_SECOND);
    }
    gct_require(j->syns == syns, "%d connections were made anew", j->syns - syns);
    return meet(world, j, TIMES);
}

static void test_pauses(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        job j = { .nics = { 2, 2 }, .rate = { { 0, 12500000 }, { 0, 12500000 } }, .latency = { 0, i ? 75 * MS : 20 * MS },
                  .tune = watch_syns };
        run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000, .lan_latency = i ? 20 * MS : 75 * MS },
            after_pauses);
    }
}

/* ---- how many strands there are ---- */

static int counted(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    gc_stats stats = { .size = sizeof stats };
    if (message(world, rank, 0, 1, MIB, TAG_WARM)) {
        return 1;
    }
    sim_sleep(sim_current(), 200 * MS);
    if (meet(world, j, 0) || message(world, rank, 1, 0, MIB, TAG_TIMED) || meet(world, j, 1)) {
        return 1;
    }
    gct_ok(gc_get_stats(world, &stats));
    j->strands[rank] = rank < 2 ? strands_to(world, !rank) : 0;
    gct_require(!j->max_links || stats.connections <= j->max_links + size, "%d connections", stats.connections);
    return meet(world, j, 2);
}

static void count(job j, const gct_spec *spec, int strands)
{
    int most = 0;
    for (int r = 0; r < 2; r++) {
        for (int n = 0; n < NICS_MAX; n++) {
            j.rate[r][n] = 125 * MB;
        }
    }
    run(&j, spec, counted);
    for (int r = 0; r < 2; r++) {
        most = gci_max32(most, j.strands[r]);
        assert_int_equal(strands, j.strands[r]);
    }
}

static void one_full(gc_options *o, int rank, void *arg)
{
    options(o, rank, arg);
    o->max_links = rank == 1 ? 1 : 0;
}

static void test_how_many(void **state)
{
    (void)state;
    const gct_spec two = { .ranks = 2, .calm = true }, one_host = { .ranks = 2, .ranks_per_host = 2, .calm = true },
                   full = { .ranks = 2, .calm = true, .options = one_full };
    static const gct_place out_of_nat[] = { { .ranks = 1 }, { .ranks = 1, .nat = true } },
                           into_nat[] = { { .ranks = 1, .nat = true }, { .ranks = 1 } };
    count((job){ .nics = { 1, 1 } }, &two, 0);
    count((job){ .nics = { 4, 1 } }, &two, 0);
    count((job){ .nics = { 1, 3 } }, &two, 0);
    count((job){ .nics = { 4, 2 } }, &two, 1);
    count((job){ .nics = { 3, 4 } }, &two, 2);
    count((job){ .nics = { 3, 4 }, .one_net = true }, &two, 2);
    count((job){ .nics = { 2, 3 }, .streams = 3 }, &two, 5);
    count((job){ .nics = { 1, 1 }, .streams = 4 }, &two, 3);
    count((job){ .nics = { 4, 4 }, .cards = "eth1,eth3" }, &two, 1);
    count((job){ .nics = { 4, 4 }, .max_links = 1 }, &two, 0);
    count((job){ .nics = { 4, 4 }, .max_links = 3 }, &two, 2);
    count((job){ .nics = { 4, 4 } }, &full, 0);
    count((job){ .nics = { 2, 2 }, .streams = 4 }, &one_host, 0);
    count((job){ .nics = { 1, 1 }, .streams = 3 }, &(gct_spec){ .ranks = 2, .calm = true, .places = out_of_nat }, 2);
    count((job){ .nics = { 1, 1 }, .streams = 3 }, &(gct_spec){ .ranks = 2, .calm = true, .places = into_nat }, 2);
}

/* ---- long fat pipes ---- */

static void small_buffers(job *j, struct sim *s)
{
    sim_tune(s)->autotune = false;
    sim_tune(s)->send_buffer = sim_tune(s)->recv_buffer = j->buffer;
}

static double pipe_rate(int streams, int64_t latency, size_t bytes)
{
    job j = { .nics = { 1, 1 }, .streams = streams, .bytes = bytes, .buffer = 128 * KIB, .tune = small_buffers };
    run(&j, &(gct_spec){ .ranks = 2, .sites = 2, .calm = true, .wan_latency = latency, .wan_rate = 100 * MB }, timed);
    double rate = (double)bytes / ((double)j.took / 1e9);
    if (verbose()) {
        print_message("    %d streams, %3d ms one way: %.3f MB/s\n", streams, (int)(latency / MS), rate / 1e6);
    }
    assert_int_equal(streams - 1, j.strands[0]);
    assert_int_equal(streams - 1, j.strands[1]);
    return rate;
}

static void test_streams(void **state)
{
    (void)state;
    double one = pipe_rate(1, 50 * MS, 16 * MIB);
    assert_true(pipe_rate(4, 50 * MS, 16 * MIB) > 3.5 * one);
    assert_true(pipe_rate(16, 50 * MS, 32 * MIB) > 11 * one);
    one = pipe_rate(1, 400 * MS, 16 * MIB);             /* an answer takes longer than the silence that ends a link */
    assert_true(pipe_rate(4, 400 * MS, 16 * MIB) > 3.5 * one);
}

/* A strand that is lost leaves many holes: they are filled in a few round trips, not in one each. */
static void test_holes(void **state)
{
    (void)state;
    int64_t took[2];
    for (int i = 0; i < 2; i++) {
        job j = { .nics = { 1, 1 }, .streams = 4, .bytes = 64 * MIB, .faults = 1,
                  .fault = { { i ? 400 * MS : 20 * GCI_SECOND, reset, 0, 1, GCI_PURPOSE_STRAND } } };
        run(&j, &(gct_spec){ .ranks = 2, .sites = 2, .calm = true, .wan_latency = 50 * MS, .wan_rate = 100 * MB }, timed);
        took[i] = j.took;
    }
    if (verbose()) {
        print_message("    %.3f s, with a loss %.3f s\n", (double)took[0] / 1e9, (double)took[1] / 1e9);
    }
    assert_true(took[1] < took[0] + 1500 * MS);
}

/* ---- without memory ---- */

/* Both ways at once, then a second time. Whoever gets an error tells all. */
static int scarce(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    uint8_t *in = gct_buffer(MIB), *out = gct_buffer(MIB);
    (void)size;
    if (rank == 0) {
        faults_begin(j);
    }
    int64_t allocations = sim_alloc_count(sim_current());
    for (int i = 0; i < 2; i++) {
        gc_status s;
        gct_fill(out, MIB, rank, i);
        int code = gc_sendrecv(world, out, MIB, !rank, i, in, MIB, !rank, i, &s);
        if (code) {
            gct_require(j->happened, "%s", gc_strerror(code));
            j->refused++;
            gct_fill(in, MIB, rank, 2);
            (void)gc_abort(world, 1);
            sim_sleep(sim_current(), 2 * GCI_SECOND);
            return gct_check(in, MIB, rank, 2) | gct_buffer_free(in) | gct_buffer_free(out);
        }
        if (gct_check(in, MIB, !rank, i)) {
            return 1;
        }
    }
    if (rank == j->fault[0].a) {
        j->longest = sim_alloc_count(sim_current()) - allocations;
    }
    return gct_buffer_free(in) | gct_buffer_free(out);
}

static void test_scarce(void **state)
{
    (void)state;
    for (int rank = 0; rank < 2; rank++) {
        int failed = 0, nth = 1;
        for (int64_t all = 1; nth <= all; nth++) {
            job j = { .nics = { 3, 3 }, .faults = 1, .fault = { { 0, no_memory, rank, 0, nth } } };
            for (int n = 0; n < 6; n++) {
                j.rate[n / 3][n % 3] = 12500000;
            }
            run(&j, &(gct_spec){ .ranks = 2, .calm = true, .lan_rate = 12500000, .leave_anyhow = true }, scarce);
            assert_int_equal(1, j.happened);
            failed += j.refused > 0;
            all = gci_max64(all, j.longest);
        }
        if (verbose()) {
            print_message("    rank %d: %d of %d allocations are needed\n", rank, failed, nth - 1);
        }
        assert_true(nth > 10);
    }
}

/* ---- random rounds ---- */

/* How a message is received. Those of one pair and one tag are received in the order in which they were sent. */
enum take { TAKE_POSTED, TAKE_LATE, TAKE_PROBED, TAKE_SHORT, TAKES };
typedef struct transfer { int from, to, tag; enum take take; bool sync; size_t bytes, room; } transfer;
typedef struct pending { gc_request *request; uint8_t *buf; const transfer *t; int id; bool receive; } pending;

enum { TRANSFERS_MAX = 64, MEET_END = 15 };

typedef struct play { job j; transfer t[TRANSFERS_MAX]; int transfers; uint64_t pauses; bool aborts, hasty; } play;

static size_t some_bytes(uint64_t *state)
{
    static const size_t edge[] = { 0, 1, 100, 1024, 32768, 65535, 65536, 65537, 131072, 1 << 18, 8 * MIB };
    uint64_t kind = draw(state, 8);
    return kind < 3 ? edge[draw(state, GCI_COUNT(edge))] : kind < 5 ? (size_t)draw(state, 3000) : (size_t)draw(state, 2 * MIB);
}

static bool may_fail(const job *j, int peer, int code)
{
    return j->anybody || (j->dies[peer] && code == GC_ERR_PEER);
}

/* What this rank has no memory for somebody may wait for. */
static void tell_all(const job *j, gc_comm *world, int code)
{
    if (code && code != GC_ERR_TRUNCATE && code != GC_ERR_ABORTED && j->anybody) {
        (void)gc_abort(world, 1);
    }
}

static int begin_receive(gc_comm *world, pending *p, const transfer *t, int id)
{
    *p = (pending){ .buf = gct_buffer(t->room), .t = t, .id = id, .receive = true };
    return t->take == TAKE_PROBED ? GC_OK : gc_irecv(world, p->buf, t->room, t->from, t->tag, &p->request);
}

static int begin_send(gc_comm *world, pending *p, const transfer *t, int id)
{
    *p = (pending){ .buf = gct_buffer(t->bytes), .t = t, .id = id };
    gct_fill(p->buf, t->bytes, t->from, id);
    return (t->sync ? gc_issend : gc_isend)(world, p->buf, t->bytes, t->to, t->tag, &p->request);
}

static bool is_message(const pending *p, const transfer *t, int id, size_t got)
{
    uint8_t *all = gct_buffer(t->bytes);
    gct_fill(all, t->bytes, t->from, id);
    bool is = got == gci_min(t->bytes, p->t->room) && (!got || memcmp(all, p->buf, got) == 0);
    (void)gct_buffer_free(all);
    return is;
}

/* Of a pair and tag messages come in their order; but where somebody is lost some may be missing. */
static int received(const play *y, const pending *p, int code, size_t got)
{
    bool gaps = may_fail(&y->j, p->t->from, GC_ERR_PEER);
    for (int i = p->id - 1; i < y->transfers; i++) {
        const transfer *t = &y->t[i];
        bool same = t->from == p->t->from && t->to == p->t->to && t->tag == p->t->tag;
        if (same && (code == GC_ERR_TRUNCATE) == (t->bytes > p->t->room) && is_message(p, t, i + 1, got)) {
            return 0;
        }
        gct_require(!same || gaps, "message %d, %zu bytes, from %d is not what was sent", p->id, t->bytes, t->from);
    }
    gct_require(false, "message %d from %d is none that was sent", p->id, p->t->from);
}

/* The buffer is the program's again: whatever is written into it from now on must stay. */
static int finish(play *y, pending *p, gc_comm *world)
{
    const transfer *t = p->t;
    int peer = p->receive ? t->from : t->to;
    gc_status s = { .error = 0 };
    gc_message *m = NULL;
    int code = GC_OK;
    if (p->receive && t->take == TAKE_PROBED) {
        code = gc_mprobe(world, t->from, t->tag, &m, &s);
        code = code ? code : gc_imrecv(&m, p->buf, t->room, &p->request);
    }
    bool refused = !code && !p->request;
    code = code ? code : gc_wait(&p->request, &s);
    if (refused) {
        gct_require(may_fail(&y->j, peer, GC_ERR_PEER), "message %d was not begun", p->id);
    } else if (p->receive && (!code || code == GC_ERR_TRUNCATE)) {
        if (received(y, p, code, s.bytes)) {
            return 1;
        }
    } else {
        gct_require(!code || may_fail(&y->j, peer, code), "message %d, %zu bytes %s %d: %s", p->id, t->bytes,
                    p->receive ? "from" : "to", peer, gc_strerror(code));
    }
    tell_all(&y->j, world, code);
    gct_fill(p->buf, p->receive ? t->room : t->bytes, peer, -p->id);
    return 0;
}

static int untouched(pending *p)
{
    size_t bytes = p->receive ? p->t->room : p->t->bytes;
    gct_require(!gct_check(p->buf, bytes, p->receive ? p->t->from : p->t->to, -p->id), "the buffer of message %d was written to",
                p->id);
    return gct_buffer_free(p->buf);
}

/* Long ones, whose receives are posted before their messages come. */
static int collectives(gc_comm *world, int rank, int size, play *y)
{
    enum { WORDS = 100000 };
    uint64_t state = y->j.seed + 77;
    size_t bytes = (size_t)draw(&state, 3 * MIB), each = (size_t)draw(&state, 300000);
    uint8_t *own = gct_buffer(bytes), *part = gct_buffer(each), *all = gct_buffer(each * (size_t)size);
    int64_t *in = gct_buffer(WORDS * sizeof *in), *out = gct_buffer(WORDS * sizeof *out);
    int root = (int)draw(&state, (uint64_t)size), bad = 0, code;
    gct_fill(own, bytes, rank == root ? root : -1, root);
    code = gc_bcast(world, own, bytes, root);
    gct_require(!code || may_fail(&y->j, 0, code) || y->j.survivors < size, "broadcast: %s", gc_strerror(code));
    tell_all(&y->j, world, code);
    bad |= !code && gct_check(own, bytes, root, root);
    gct_fill(part, each, rank, 7);
    code = gc_allgather(world, part, each, all);
    gct_require(!code || may_fail(&y->j, 0, code) || y->j.survivors < size, "allgather: %s", gc_strerror(code));
    tell_all(&y->j, world, code);
    for (int i = 0; i < size && !code && !bad; i++) {
        bad |= gct_check(all + (size_t)i * each, each, i, 7);
    }
    for (int i = 0; i < WORDS; i++) {
        in[i] = (int64_t)rank * i;
    }
    code = gc_allreduce(world, in, out, WORDS, GC_INT64, GC_SUM);
    gct_require(!code || may_fail(&y->j, 0, code) || y->j.survivors < size, "allreduce: %s", gc_strerror(code));
    tell_all(&y->j, world, code);
    for (int i = 0; i < WORDS && !code; i++) {
        gct_require(out[i] == (int64_t)i * size * (size - 1) / 2, "word %d", i);
    }
    return bad | gct_buffer_free(own) | gct_buffer_free(part) | gct_buffer_free(all) | gct_buffer_free(in) | gct_buffer_free(out);
}

static int posts(gc_comm *world, int rank, play *y, pending *p, bool late)
{
    int n = 0;
    for (int i = 0; i < y->transfers; i++) {
        const transfer *t = &y->t[i];
        bool now_ = (t->take == TAKE_LATE) == late;
        int code = GC_OK, peer = t->from;
        if (t->to == rank && now_) {
            code = begin_receive(world, &p[n++], t, i + 1);
        }
        gct_require(!code || may_fail(&y->j, peer, code), "receive %d: %s", i, gc_strerror(code));
        tell_all(&y->j, world, code);
        if (t->from == rank && !late) {
            code = begin_send(world, &p[n++], t, i + 1);
            peer = t->to;
        }
        gct_require(!code || may_fail(&y->j, peer, code), "send %d: %s", i, gc_strerror(code));
        tell_all(&y->j, world, code);
        if (draw(&y->pauses, 8) == 0) {
            sim_sleep(sim_current(), (int64_t)draw(&y->pauses, 5 * MS));
        }
    }
    return -n;
}

static int playing(gc_comm *world, int rank, int size, void *arg)
{
    play *y = arg;
    pending *p = memset(gct_buffer(4 * TRANSFERS_MAX * sizeof *p), 0, 4 * TRANSFERS_MAX * sizeof *p);
    int64_t since = now();
    if (meet(world, &y->j, 0)) {
        return 1;
    }
    if (rank == 0) {
        faults_begin(&y->j);
    }
    int n = posts(world, rank, y, p, false), more;
    y->j.bad |= n > 0;
    if (n > 0) {
        return 1;
    }
    sim_sleep(sim_current(), (int64_t)draw(&y->pauses, 50 * MS));
    more = posts(world, rank, y, p - n, true);
    y->j.bad |= more > 0;
    if (more > 0) {
        return 1;
    }
    n = -n - more;
    if (y->aborts && rank == size - 1) {
        sim_sleep(sim_current(), (int64_t)draw(&y->pauses, 200 * MS));
        (void)gc_abort(world, 1);
    }
    for (int i = 0; i < n; i++) {
        if (finish(y, &p[i], world)) {
            y->j.bad = true;
            return 1;
        }
    }
    if (collectives(world, rank, size, y)) {
        y->j.bad = true;
        return 1;
    }
    if (!y->hasty && meet(world, &y->j, 1)) {
        return 1;
    }
    gct_require(now() - since < 150 * GCI_SECOND, "it took %.3f s", (double)(now() - since) / 1e9);
    for (int i = 0; i < n; i++) {
        if (untouched(&p[i])) {
            return 1;
        }
    }
    for (int i = 0; i < size; i++) {
        y->j.strands[0] += i < rank ? strands_to(world, i) : 0;
    }
    return gct_buffer_free(p) || (!y->hasty && meet(world, &y->j, MEET_END));
}

/* Of those that do nobody any harm in the end, some; what was cut is mended. */
static void draw_faults(job *j, uint64_t *state)
{
    int n = (int)draw(state, 6);
    for (int i = 0; i < n; i++) {
        int a = (int)draw(state, (uint64_t)j->ranks), b = (a + 1 + (int)draw(state, (uint64_t)j->ranks - 1)) % j->ranks;
        int nic = (int)draw(state, (uint64_t)j->nics[a]), what = (int)draw(state, 6);
        int64_t at = (int64_t)draw(state, (uint64_t)(draw(state, 4) ? 250 : 2000) * MS);
        int64_t until = at + (int64_t)draw(state, 4 * GCI_SECOND);
        fault *f = &j->fault[j->faults];
        if (what < 2) {
            f[0] = (fault){ at, what ? nic_cut : nic_down, a, b, nic };
            f[1] = (fault){ until, what ? nic_mend : nic_up, a, b, nic };
            j->faults += 2;
        } else if (what == 2) {
            f[0] = (fault){ at, stop, a, b, 0 };
            f[1] = (fault){ at + (until - at) / 2, go_on, a, b, 0 };
            j->faults += 2;
        } else {
            f[0] = (fault){ at, reset, a, b, what == 3 ? GCI_PURPOSE_DATA : GCI_PURPOSE_STRAND };
            j->faults++;
        }
    }
}

static void draw_world(play *y, uint64_t *state)
{
    static const char *const progress[] = { NULL, "poll", "sleep", "thread" };
    job *j = &y->j;
    j->progress = progress[draw(state, GCI_COUNT(progress))];
    j->ranks = j->survivors = 2 + (draw(state, 2) ? (int)draw(state, 5) : 0);
    j->one_net = draw(state, 4) == 0;
    j->streams = draw(state, 3) ? 0 : 1 + (int)draw(state, 3);
    j->queue = draw(state, 4) ? 0 : 1;
    j->credits = draw(state, 4) ? 0 : 1 + (int)draw(state, 3);
    j->max_links = draw(state, 6) ? 0 : 1 + (int)draw(state, 6);
    for (int r = 0; r < j->ranks; r++) {
        j->nics[r] = 1 + (int)draw(state, NICS_MAX);
        for (int n = 0; n < NICS_MAX; n++) {
            j->rate[r][n] = (int64_t)(1 + draw(state, draw(state, 2) ? 20 : 200)) * MB;
        }
    }
    y->transfers = (int)draw(state, draw(state, 2) ? TRANSFERS_MAX : 12);
    size_t left = 24 * MIB;
    for (int i = 0; i < y->transfers; i++) {
        transfer *t = &y->t[i];
        t->from = (int)draw(state, draw(state, 2) ? 2 : (uint64_t)j->ranks);
        t->to = draw(state, 2) ? (int)draw(state, (uint64_t)j->ranks) : (t->from + 1) % j->ranks;
        t->take = (enum take)draw(state, TAKES);
        t->tag = TAG_BULK + 2 * (int)t->take + (int)draw(state, 2);
        t->sync = draw(state, 8) == 0;
        t->bytes = gci_min(some_bytes(state), left);
        left -= t->bytes;
        t->room = t->bytes + (draw(state, 2) ? 0 : (size_t)draw(state, 100000));
        t->room = t->take == TAKE_SHORT ? (size_t)draw(state, t->bytes + 1) : t->room;
    }
}

/* One round in three somebody dies, is out of memory for a moment, or aborts. */
static void draw_ends(play *y, uint64_t *state)
{
    job *j = &y->j;
    int a = (int)draw(state, (uint64_t)j->ranks), what = (int)draw(state, 12);
    int64_t at = (int64_t)draw(state, 400 * MS);
    fault *f = &j->fault[j->faults];
    if (what < 2) {
        *f = (fault){ at, what ? kill_proc : kill_host, a, -1, 0 };
        j->dies[a] = true;
        j->survivors--;
    } else if (what == 2) {
        y->aborts = j->anybody = true;
        return;
    } else if (what == 3) {
        *f = (fault){ at, no_memory, a, -1, 1 + (int)draw(state, 50) };
        j->anybody = true;
    } else {
        return;
    }
    j->faults++;
}

static void play_round(uint64_t seed)
{
    play *y = test_calloc(1, sizeof *y);
    uint64_t state = seed;
    y->pauses = y->j.seed = seed;
    y->j.peer_timeout = 10;
    draw_world(y, &state);
    draw_faults(&y->j, &state);
    draw_ends(y, &state);
    y->hasty = !y->j.anybody && y->j.survivors == y->j.ranks && draw(&state, 2) == 0;
    bool losses = y->j.anybody || y->j.survivors < y->j.ranks;
    int failed = gct_job(&(gct_spec){ .ranks = y->j.ranks, .seed = seed, .options = options, .arrange = arrange,
                                      .lan_rate = (int64_t)(1 + draw(&state, 100)) * MB, .calm = draw(&state, 3) == 0,
                                      .leave_anyhow = losses, .outcome = &y->j.outcome }, playing, y);
    if (verbose()) {
        print_message("    seed %llu: %d ranks, %d messages, %d strands, %d faults%s, %.3f s\n", (unsigned long long)seed,
                      y->j.ranks, y->transfers, y->j.strands[0], y->j.happened, losses ? ", losses" : "",
                      (double)y->j.outcome.virtual_ns / 1e9);
    }
    test_free(y);
    if (failed) {
        fail_msg("GCT_SEED=%llu GCT_ROUNDS=1", (unsigned long long)seed);
    }
}

static void test_rounds(void **state)
{
    (void)state;
    uint64_t seed = gct_seed();
    for (int i = 0; i < rounds(); i++) {
        play_round(seed + (uint64_t)i);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_equal_nics), cmocka_unit_test(test_unequal_nics), cmocka_unit_test(test_broadcast), cmocka_unit_test(test_segments),
        cmocka_unit_test(test_cut), cmocka_unit_test(test_down), cmocka_unit_test(test_reset),
        cmocka_unit_test(test_comes_back), cmocka_unit_test(test_one_is_away), cmocka_unit_test(test_stopped),
        cmocka_unit_test(test_silent_host), cmocka_unit_test(test_pauses), cmocka_unit_test(test_how_many),
        cmocka_unit_test(test_streams), cmocka_unit_test(test_holes), cmocka_unit_test(test_scarce),
        cmocka_unit_test(test_rounds) };
    cmocka_set_test_filter(gct_filter());
    return cmocka_run_group_tests_name("strands", tests, NULL, NULL);
}
