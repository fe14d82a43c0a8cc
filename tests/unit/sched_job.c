/* sched_job.c: a collective described once for all ranks: its calls, its schedules, its check.
 * SPDX-License-Identifier: MIT
 *
 * Every rank's call holds what that rank knows, no more: an algorithm that looks further finds nothing. Uneven blocks lie in
 * the buffers in another order at every rank, with gaps between them.
 */
#include "sched_job.h"

#include <stdio.h>
#include <stdlib.h>

static void *job_array(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p)
        abort();
    return p;
}

static bool is_in_place(const job_spec *spec, int rank)
{
    return spec->places == JOB_IN_PLACE || (spec->places == JOB_MIXED && rank % 2 == 0);
}

/* Bytes that go from a to b in an alltoall; in place both directions must have the same. */
static size_t between(const job_spec *spec, int a, int b)
{
    if (spec->places != JOB_APART && a > b)
        return between(spec, b, a);
    return spec->sizes[(size_t)a * (size_t)spec->ranks + (size_t)b];
}

static int common_divisor(int a, int b)
{
    return b == 0 ? a : common_divisor(b, a % b);
}

/* Blocks that lie in no order of ranks, with gaps of 0 to 2 bytes between them. bytes: [ranks], taken over. */
static gci_blocks spread_blocks(int ranks, int salt, size_t *bytes)
{
    size_t *at = job_array((size_t)ranks, sizeof *at), next = (size_t)salt % 2;
    int stride = ranks / 2 + 1;             /* shares no divisor with the number of ranks, so it meets them all */
    while (common_divisor(stride, ranks) != 1)
        stride++;
    for (int k = 0; k < ranks; k++) {
        int of = (int)(((int64_t)k * stride + salt) % ranks);
        at[of] = next;
        next += bytes[of] + (size_t)(k + salt) % 3;
    }
    return (gci_blocks){ .bytes = bytes, .at = at };
}

static void drop_blocks(gci_blocks *b)
{
    free((void *)(uintptr_t)b->bytes);
    free((void *)(uintptr_t)b->at);
}

static size_t *sizes_copy(const job_spec *spec)
{
    size_t *bytes = job_array((size_t)spec->ranks, sizeof *bytes);
    memcpy(bytes, spec->sizes, (size_t)spec->ranks * sizeof *bytes);
    return bytes;
}

static void make_uneven(const job_spec *spec, int rank, gci_call *call)
{
    bool root = rank == spec->root;
    call->own = spec->coll == GCI_ALLTOALL ? 0 : spec->sizes[rank];
    if ((spec->coll == GCI_GATHER && root) || spec->coll == GCI_ALLGATHER)
        call->recv = spread_blocks(spec->ranks, rank, sizes_copy(spec));
    else if (spec->coll == GCI_SCATTER && root)
        call->send = spread_blocks(spec->ranks, rank, sizes_copy(spec));
    else if (spec->coll == GCI_REDUCE_SCATTER)
        call->send = (gci_blocks){ .bytes = sizes_copy(spec) };
    if (spec->coll != GCI_ALLTOALL)
        return;
    size_t *row = job_array((size_t)spec->ranks, sizeof *row), *column = job_array((size_t)spec->ranks, sizeof *column);
    for (int k = 0; k < spec->ranks; k++) {
        row[k] = between(spec, rank, k);
        column[k] = between(spec, k, rank);
    }
    call->send = spread_blocks(spec->ranks, is_in_place(spec, rank) ? rank : rank + 1, row);
    call->recv = spread_blocks(spec->ranks, rank, column);
}

static bool has_blocks(enum gci_coll coll)
{
    return (coll >= GCI_SCATTER && coll <= GCI_ALLTOALL) || coll == GCI_REDUCE_SCATTER;
}

void job_call(const job_spec *spec, int rank, gci_call *call)
{
    *call = (gci_call){ .coll = spec->coll, .rank = rank, .ranks = spec->ranks, .root = spec->root,
                        .elem_bytes = spec->elem_bytes ? spec->elem_bytes : 1, .segment = spec->segment,
                        .in_place = is_in_place(spec, rank), .even = !spec->sizes, .commutative = spec->in_any_order,
                        .associative = !spec->from_left, .canonical = spec->canonical, .clusters = spec->clusters,
                        .tree = spec->tree, .model = spec->model };
    if (!has_blocks(spec->coll))
        call->bytes = spec->coll == GCI_BARRIER ? 0 : spec->bytes;
    else if (spec->sizes)
        make_uneven(spec, rank, call);
    else
        call->own = call->send.each = call->recv.each = spec->bytes;
}

void job_call_free(gci_call *call)
{
    drop_blocks(&call->send);
    drop_blocks(&call->recv);
}

/* Builds all schedules. JOB_* or 0. */
int job_build(gci_env *env, const job_spec *spec, gci_call call[], gci_sched sched[], char why[CHECK_TEXT])
{
    const gci_algo *algo = spec->own_algo ? spec->own_algo : gci_algo_find(spec->coll, spec->algo);
    int unsupported = 0, willing = -1;
    why[0] = 0;
    if (!algo) {
        snprintf(why, CHECK_TEXT, "%s has no algorithm \"%s\"", gci_coll_name(spec->coll), spec->algo);
        return JOB_WRONG;
    }
    for (int r = 0; r < spec->ranks; r++) {
        int err = gci_sched_build(env, algo, spec->algo, &call[r], &sched[r]);
        if (err != GC_OK && (sched[r].step || sched[r].wait || sched[r].steps)) {
            snprintf(why, CHECK_TEXT, "rank %d fails (%d) and leaves a schedule", r, err);
            return JOB_WRONG;
        }
        if (err == GC_ERR_NOMEM)
            return JOB_NO_MEMORY;
        if (err != GC_OK && err != GC_ERR_UNSUPPORTED) {
            snprintf(why, CHECK_TEXT, "rank %d fails: %d", r, err);
            return JOB_WRONG;
        }
        unsupported += err == GC_ERR_UNSUPPORTED;
        willing = err == GC_OK ? r : willing;
    }
    if (unsupported > 0 && unsupported < spec->ranks)
        snprintf(why, CHECK_TEXT, "%d of %d ranks do not support it, but rank %d does", unsupported, spec->ranks, willing);
    return unsupported == 0 ? 0 : unsupported == spec->ranks ? JOB_UNSUPPORTED : JOB_WRONG;
}

/* Carries out what a proven alltoall does: each rank hears what the others tell it. */
static void job_hear(int ranks, gci_ask *const ask[])
{
    for (int from = 0; from < ranks; from++)
        for (int to = 0; to < ranks; to++)
            if (ask[from]->call.send.bytes[to] > 0)
                memcpy(ask[to]->heard + ask[to]->call.recv.at[from], ask[from]->told + ask[from]->call.send.at[to],
                       ask[from]->call.send.bytes[to]);
    for (int r = 0; r < ranks; r++)
        gci_wide_hear(ask[r]);
}

/* What the ranks tell each other first, proven like any alltoall; and not a word of it between clusters. */
static int job_ask(gci_env *env, const job_spec *spec, gci_call call[], gci_ask *ask[], char why[CHECK_TEXT])
{
    const job_spec direct = { .coll = GCI_ALLTOALL, .algo = "direct", .ranks = spec->ranks };
    gci_call *tell = job_array((size_t)spec->ranks, sizeof *tell);
    gci_sched *sched = job_array((size_t)spec->ranks, sizeof *sched);
    check_report report = { 0 };
    int result = 0;
    for (int r = 0; r < spec->ranks && result == 0; r++) {
        result = gci_wide_ask(env, &call[r], &ask[r]) < 0 ? JOB_NO_MEMORY : 0;
        tell[r] = result == 0 ? ask[r]->call : call[r];
    }
    result = result == 0 ? job_build(env, &direct, tell, sched, why) : result;
    if (result == 0)
        result = sched_check(&(check_job){ spec->ranks, tell, sched, NULL }, &report, why) < 0 ? JOB_WRONG : 0;
    if (report.wan_messages > 0) {
        snprintf(why, CHECK_TEXT, "%d messages go between clusters that only tell of sizes", report.wan_messages);
        result = JOB_WRONG;
    }
    if (result == 0)
        job_hear(spec->ranks, ask);
    for (int r = 0; r < spec->ranks; r++) {
        gci_sched_free(env, &sched[r]);
        call[r].heard = result == 0 ? ask[r]->sizes : NULL;
    }
    free(sched);
    free(tell);
    return result;
}

/* Does every rank think that the others are asked first? JOB_WRONG if they do not agree. */
static int job_asks(const job_spec *spec, const gci_call call[], char why[CHECK_TEXT])
{
    int asks = 0;
    for (int r = 0; r < spec->ranks; r++)
        asks += !spec->own_algo && strcmp(spec->algo, "wide") == 0 && gci_wide_asks(&call[r]);
    if (asks == 0 || asks == spec->ranks)
        return asks > 0;
    snprintf(why, CHECK_TEXT, "%d of %d ranks ask for sizes", asks, spec->ranks);
    return JOB_WRONG;
}

int job_run(gci_env *env, const job_spec *spec, check_report *report, char why[CHECK_TEXT])
{
    gci_call *call = job_array((size_t)spec->ranks, sizeof *call);
    gci_sched *sched = job_array((size_t)spec->ranks, sizeof *sched);
    gci_ask **ask = job_array((size_t)spec->ranks, sizeof(gci_ask *));
    for (int r = 0; r < spec->ranks; r++)
        job_call(spec, r, &call[r]);
    int asked = job_asks(spec, call, why);
    int result = asked > 0 ? job_ask(env, spec, call, ask, why) : asked;
    if (result == 0)
        result = job_build(env, spec, call, sched, why);
    if (result == 0)
        result = sched_check(&(check_job){ spec->ranks, call, sched, asked ? ask : NULL }, report, why);
    for (int r = 0; r < spec->ranks; r++) {
        gci_sched_free(env, &sched[r]);
        gci_free(env, ask[r]);
        job_call_free(&call[r]);
    }
    free(ask);
    free(sched);
    free(call);
    return result;
}
