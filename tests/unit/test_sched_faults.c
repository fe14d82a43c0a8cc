/* test_sched_faults.c: the schedule checker takes what is right and finds what is wrong.
 * SPDX-License-Identifier: MIT
 *
 * The schedules come from plain algorithms written here, one per collective, so that the checker is tested by itself. They are
 * right; then one kind of fault after the other is planted in them, at every place where it is one, and the checker must find
 * each, and say what it is.
 */
#include "sched_job.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

static gci_env env;

/* ---- plain algorithms -------------------------------------------------------------------------------------------- */

static gci_spot in_recv(size_t at)
{
    return (gci_spot){ GCI_BUF_RECV, at };
}

/* Rank 0 hears all, then tells all. */
static void plain_barrier(gci_builder *b)
{
    const gci_spot nowhere = { GCI_BUF_TEMP, 0 };
    if (b->call->rank > 0) {
        gci_emit_send(b, 0, nowhere, 0, GCI_NO_STEP);
        gci_emit_recv(b, 0, nowhere, 0, GCI_NO_STEP);
        return;
    }
    for (int k = 1; k < b->call->ranks; k++)
        gci_emit_pend(b, gci_emit_recv(b, k, nowhere, 0, GCI_NO_STEP));
    int32_t all = gci_emit_join(b);
    for (int k = 1; k < b->call->ranks; k++)
        gci_emit_send(b, k, nowhere, 0, all);
}

/* A chain from the root on, segment by segment; over clusters: the root, the lowest rank of each other cluster, its ranks. */
static void plain_bcast(gci_builder *b)
{
    const gci_call *call = b->call;
    const gci_clusters *clusters = call->clusters;
    int distance = (call->rank - call->root + call->ranks) % call->ranks;
    int32_t after = GCI_NO_STEP;
    if (clusters) {
        int mine = clusters->of[call->rank], home = clusters->of[call->root];
        int head = mine == home ? call->root : clusters->member[clusters->first[mine]];
        if (call->rank != call->root)
            after = gci_emit_recv(b, call->rank == head ? call->root : head, in_recv(0), call->bytes, after);
        for (int k = 0; call->rank == call->root && k < clusters->clusters; k++)
            if (k != home)
                gci_emit_send(b, clusters->member[clusters->first[k]], in_recv(0), call->bytes, after);
        for (int32_t k = clusters->first[mine]; call->rank == head && k < clusters->first[mine + 1]; k++)
            if (clusters->member[k] != head)
                gci_emit_send(b, clusters->member[k], in_recv(0), call->bytes, after);
        return;
    }
    for (int32_t i = 0; i < gci_segments(call, call->bytes); i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        if (distance > 0)
            after = gci_emit_both(b, after, gci_emit_recv(b, (call->rank + call->ranks - 1) % call->ranks, in_recv(at), bytes,
                                                          GCI_NO_STEP));    /* both: no segment overtakes another */
        if (distance < call->ranks - 1)
            gci_emit_send(b, (call->rank + 1) % call->ranks, in_recv(at), bytes, after);
    }
}

static void plain_scatter(gci_builder *b)
{
    const gci_call *call = b->call;
    if (call->rank != call->root && call->own > 0)
        gci_emit_recv(b, call->root, in_recv(0), call->own, GCI_NO_STEP);
    for (int k = 0; call->rank == call->root && k < call->ranks; k++) {
        gci_spot from = gci_spot_at(b->input, gci_block_at(&call->send, k));
        size_t bytes = gci_block_bytes(&call->send, k);
        if (k == call->rank && !call->in_place)
            gci_emit_copy(b, in_recv(0), from, bytes, GCI_NO_STEP);
        else if (k != call->rank && bytes > 0)
            gci_emit_send(b, k, from, bytes, GCI_NO_STEP);
    }
}

static void plain_gather(gci_builder *b)
{
    const gci_call *call = b->call;
    if (call->rank != call->root && call->own > 0)
        gci_emit_send(b, call->root, b->input, call->own, b->ready);
    for (int k = 0; call->rank == call->root && k < call->ranks; k++) {
        gci_spot to = in_recv(gci_block_at(&call->recv, k));
        size_t bytes = gci_block_bytes(&call->recv, k);
        if (k == call->rank && !b->input_is_recv)
            gci_emit_copy(b, to, b->input, bytes, b->ready);
        else if (k != call->rank && bytes > 0)
            gci_emit_recv(b, k, to, bytes, GCI_NO_STEP);
    }
}

/* A ring: what came from the left goes on to the right. */
static void plain_allgather(gci_builder *b)
{
    const gci_call *call = b->call;
    int p = call->ranks;
    int32_t have = b->ready;
    if (!b->input_is_recv)
        have = gci_emit_copy(b, in_recv(gci_block_at(&call->recv, call->rank)), b->input, call->own, b->ready);
    for (int i = 1; i < p; i++) {
        int out = (call->rank - i + 1 + p) % p, in = (call->rank - i + p) % p;
        gci_emit_send(b, (call->rank + 1) % p, in_recv(gci_block_at(&call->recv, out)), gci_block_bytes(&call->recv, out), have);
        have = gci_emit_both(b, have, gci_emit_recv(b, (call->rank + p - 1) % p, in_recv(gci_block_at(&call->recv, in)),
                                                    gci_block_bytes(&call->recv, in), GCI_NO_STEP));
    }
}

static void plain_alltoall(gci_builder *b)
{
    const gci_call *call = b->call;
    int p = call->ranks;
    for (int i = 0; i < p; i++) {
        int to = (call->rank + i) % p, from = (call->rank - i + p) % p;
        gci_spot out = gci_spot_at(b->input, gci_block_at(&call->send, to)), in = in_recv(gci_block_at(&call->recv, from));
        if (i == 0) {
            gci_emit_copy(b, in, out, gci_block_bytes(&call->send, to), b->ready);
            continue;
        }
        if (gci_block_bytes(&call->recv, from) > 0)
            gci_emit_recv(b, from, in, gci_block_bytes(&call->recv, from), b->ready);
        if (gci_block_bytes(&call->send, to) > 0)
            gci_emit_send(b, to, out, gci_block_bytes(&call->send, to), b->ready);
    }
}

/* Vectors of ranks [first, end) that lie in slots are made one, in the first's. */
static int32_t plain_evaluate(gci_builder *b, const gci_spot slot[], const int32_t came[], int first, int end, size_t bytes)
{
    int middle = end - 1, half = 1;
    if (end - first == 1)
        return came[first];
    while (half * 2 < end - first)
        half *= 2;
    if (b->call->canonical)
        middle = first + half;
    int32_t left = plain_evaluate(b, slot, came, first, middle, bytes), right = plain_evaluate(b, slot, came, middle, end, bytes);
    return gci_emit_reduce(b, slot[first], slot[middle], bytes, true, gci_emit_both(b, left, right));
}

/* Each rank that is to have a result is sent all the vectors (or its block of them) that make it, and evaluates them. */
static void plain_reduction(gci_builder *b)
{
    const gci_call *call = b->call;
    bool blocks = call->coll == GCI_REDUCE_SCATTER, scan = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN;
    gci_spot *slot = calloc((size_t)call->ranks, sizeof *slot);
    int32_t *came = calloc((size_t)call->ranks, sizeof *came);
    assert_non_null(slot);
    assert_non_null(came);
    int end = call->coll == GCI_SCAN ? call->rank + 1 : call->coll == GCI_EXSCAN ? call->rank : call->ranks;
    bool result = gci_call_has_result(call) && end > 0;
    size_t own = blocks ? call->own : call->bytes;
    for (int k = 0; k < end && result; k++) {
        slot[k] = gci_emit_slot(b, own);
        came[k] = k != call->rank ? gci_emit_recv(b, k, slot[k], own, GCI_NO_STEP) :
                  gci_emit_copy(b, slot[k], gci_spot_at(b->input, blocks ? gci_block_at(&call->send, k) : 0), own, b->ready);
    }
    for (int k = scan ? call->rank + 1 : 0; k < call->ranks; k++)
        if (k != call->rank && (call->coll != GCI_REDUCE || k == call->root)) {
            int32_t send = gci_emit_send(b, k, gci_spot_at(b->input, blocks ? gci_block_at(&call->send, k) : 0),
                                         blocks ? gci_block_bytes(&call->send, k) : call->bytes, b->ready);
            gci_emit_pend(b, b->input_is_recv ? send : GCI_NO_STEP);
        }
    if (result) {
        gci_emit_pend(b, plain_evaluate(b, slot, came, 0, end, own));
        gci_emit_copy(b, in_recv(0), slot[0], own, gci_emit_join(b));
    }
    free(slot);
    free(came);
}

static const gci_algo plain[GCI_COLLS] = {
    [GCI_BARRIER] = { "plain", 0, plain_barrier, false },      [GCI_BCAST] = { "plain", 0, plain_bcast, false },
    [GCI_SCATTER] = { "plain", 0, plain_scatter, false },      [GCI_GATHER] = { "plain", 0, plain_gather, false },
    [GCI_ALLGATHER] = { "plain", 0, plain_allgather, false },  [GCI_ALLTOALL] = { "plain", 0, plain_alltoall, false },
    [GCI_REDUCE] = { "plain", 0, plain_reduction, false },     [GCI_ALLREDUCE] = { "plain", 0, plain_reduction, false },
    [GCI_REDUCE_SCATTER] = { "plain", 0, plain_reduction, false },
    [GCI_SCAN] = { "plain", 0, plain_reduction, false },       [GCI_EXSCAN] = { "plain", 0, plain_reduction, false },
};

/* ---- jobs -------------------------------------------------------------------------------------------------------- */

typedef struct job {
    job_spec   spec;
    gci_call  *call;
    gci_sched *sched;
} job;

static void job_make(job *j, const job_spec *spec)
{
    char why[CHECK_TEXT];
    *j = (job){ .spec = *spec };
    j->spec.own_algo = &plain[spec->coll];
    j->call = calloc((size_t)spec->ranks, sizeof *j->call);
    j->sched = calloc((size_t)spec->ranks, sizeof *j->sched);
    assert_non_null(j->call);
    assert_non_null(j->sched);
    for (int r = 0; r < spec->ranks; r++)
        job_call(spec, r, &j->call[r]);
    assert_int_equal(job_build(&env, &j->spec, j->call, j->sched, why), 0);
}

static void job_drop(job *j)
{
    for (int r = 0; r < j->spec.ranks; r++) {
        gci_sched_free(&env, &j->sched[r]);
        job_call_free(&j->call[r]);
    }
    free(j->call);
    free(j->sched);
}

static int job_check(const job *j, check_report *report, char why[CHECK_TEXT])
{
    return sched_check(&(check_job){ j->spec.ranks, j->call, j->sched, NULL }, report, why);
}

/* Sizes of uneven blocks: 0 to 6 elements, such that some are alike. */
static size_t *uneven_sizes(const job_spec *spec, size_t elem_bytes)
{
    size_t n = (size_t)spec->ranks * (spec->coll == GCI_ALLTOALL ? (size_t)spec->ranks : 1);
    size_t *sizes = calloc(n, sizeof *sizes);
    assert_non_null(sizes);
    for (size_t i = 0; i < n; i++)
        sizes[i] = (i * 5 + 2) % 7 * elem_bytes;
    return sizes;
}

static const struct { bool in_any_order, from_left, canonical; } orders[] =
    { { true, false, false }, { false, false, false }, { true, false, true }, { false, true, false } };

static bool has_root(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

/* Calls look with every kind of job of one collective and so many ranks. */
static void each_job(enum gci_coll coll, int ranks, void (*look)(const job_spec *))
{
    bool blocks = coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_ALLGATHER || coll == GCI_ALLTOALL ||
                  coll == GCI_REDUCE_SCATTER;
    job_spec spec = { .coll = coll, .algo = "plain", .ranks = ranks, .elem_bytes = gci_coll_reduces(coll) ? 5 : 1,
                      .bytes = 10, .segment = 3 };
    size_t *sizes = uneven_sizes(&spec, spec.elem_bytes);
    for (spec.root = 0; spec.root < (has_root(coll) ? ranks : 1); spec.root += 3)
        for (size_t o = 0; o < (gci_coll_reduces(coll) ? GCI_COUNT(orders) : 1); o++)
            for (int places = JOB_APART; places <= (coll == GCI_BARRIER ? JOB_APART : JOB_MIXED); places++)
                for (int uneven = 0; uneven <= blocks; uneven++) {
                    spec.in_any_order = orders[o].in_any_order;
                    spec.from_left = orders[o].from_left;
                    spec.canonical = orders[o].canonical;
                    spec.places = (enum job_places)places;
                    spec.sizes = uneven ? sizes : NULL;
                    look(&spec);
                }
    free(sizes);
}

static void describe(const job_spec *spec, char *out, size_t room)
{
    snprintf(out, room, "%s, %d ranks, root %d, places %d%s%s%s%s", gci_coll_name(spec->coll), spec->ranks, spec->root,
             (int)spec->places, spec->sizes ? ", uneven" : "", spec->in_any_order ? ", any order" : "",
             spec->from_left ? ", from left" : "", spec->canonical ? ", canonical" : "");
}

static void take(const job_spec *spec)
{
    char why[CHECK_TEXT], what[160];
    job j;
    job_make(&j, spec);
    describe(spec, what, sizeof what);
    if (job_check(&j, NULL, why) < 0)
        fail_msg("%s: %s", what, why);
    job_drop(&j);
}

static void test_right_schedules(void **state)
{
    (void)state;
    for (int coll = 0; coll < GCI_COLLS; coll++)
        for (int ranks = 1; ranks <= 17; ranks++)
            each_job((enum gci_coll)coll, ranks, take);
}

static void refuse_odd_ranks(gci_builder *b)
{
    plain_barrier(b);
    b->error = b->call->rank % 2 ? GC_ERR_UNSUPPORTED : b->error;
}

static void refuse(gci_builder *b)
{
    b->error = GC_ERR_UNSUPPORTED;
}

static void test_refusals(void **state)
{
    static const gci_algo never = { "never", 0, refuse, false }, at_times = { "at times", 0, refuse_odd_ranks, false };
    char why[CHECK_TEXT];
    job_spec spec = { .coll = GCI_BARRIER, .ranks = 4, .own_algo = &never };
    (void)state;
    assert_int_equal(job_run(&env, &spec, NULL, why), JOB_UNSUPPORTED);
    spec.own_algo = &at_times;
    assert_int_equal(job_run(&env, &spec, NULL, why), JOB_WRONG);
    assert_string_equal(why, "2 of 4 ranks do not support it, but rank 2 does");
    spec.own_algo = NULL;
    spec.algo = "no such";
    assert_int_equal(job_run(&env, &spec, NULL, why), JOB_WRONG);
    assert_string_equal(why, "barrier has no algorithm \"no such\"");
}

/* ---- planted faults ---------------------------------------------------------------------------------------------- */

/* A fault is planted in one step of one rank; false: it does not apply there. */
typedef bool fault_fn(job *, int rank, int32_t i);

static gci_step *step_at(job *j, int r, int32_t i)
{
    return &j->sched[r].step[i];
}

static bool is_message(const gci_step *s)
{
    return s->kind == GCI_STEP_SEND || s->kind == GCI_STEP_RECV;
}

/* In place some results are there from the beginning, whatever writes them again. */
static bool lies_there(const job *j, int r, int32_t i)
{
    const gci_step *s = &j->sched[r].step[i];
    return j->call[r].in_place && s->kind == GCI_STEP_COPY && s->to == GCI_BUF_RECV &&
           (j->spec.coll == GCI_ALLTOALL || (j->spec.coll == GCI_SCAN && r == 0));
}

/* The step becomes an empty copy: numbers and waits stay. */
static bool drop_if(job *j, int r, int32_t i, enum gci_step_kind kind)
{
    gci_step *s = step_at(j, r, i);
    bool fits = s->kind == kind && (is_message(s) || s->bytes > 0);
    *s = (gci_step){ .kind = GCI_STEP_COPY, .to = GCI_BUF_TEMP, .from = GCI_BUF_TEMP, .waits = s->waits,
                     .first_wait = s->first_wait };
    return fits;
}

static bool drop_send(job *j, int r, int32_t i)
{
    return drop_if(j, r, i, GCI_STEP_SEND);
}

static bool drop_recv(job *j, int r, int32_t i)
{
    return drop_if(j, r, i, GCI_STEP_RECV);
}

static bool drop_reduce(job *j, int r, int32_t i)
{
    return drop_if(j, r, i, GCI_STEP_REDUCE);
}

static bool drop_copy(job *j, int r, int32_t i)
{
    return !lies_there(j, r, i) && drop_if(j, r, i, GCI_STEP_COPY);
}

static bool other_sizes(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->sizes ^= 1;
    return is_message(s);
}

static void grow_schedule(gci_sched *s, int32_t waits)
{
    gci_step *step = gci_realloc(&env, s->step, ((size_t)s->steps + 1) * sizeof *step);
    int32_t *wait = gci_realloc(&env, s->wait, ((size_t)s->waits + (size_t)waits + 1) * sizeof *wait);
    assert_non_null(step);
    assert_non_null(wait);
    s->step = step;
    s->wait = wait;
}

/* Puts a copy of step i right behind it, so that all indices behind move by one. */
static bool repeat_if(job *j, int r, int32_t i, enum gci_step_kind kind)
{
    gci_sched *s = &j->sched[r];
    if (s->step[i].kind != kind || (kind == GCI_STEP_REDUCE && s->step[i].bytes == 0))
        return false;
    grow_schedule(s, 1);
    for (int32_t k = 0; k < s->waits; k++)
        s->wait[k] += s->wait[k] >= i;      /* who waited for step i waits for its copy, too late for nothing */
    memmove(&s->step[i + 1], &s->step[i], (size_t)(s->steps - i) * sizeof *s->step);
    s->steps++;
    s->wait[s->waits] = i;
    s->step[i + 1].first_wait = s->waits++;
    s->step[i + 1].waits = 1;
    return true;
}

static bool double_send(job *j, int r, int32_t i)
{
    return repeat_if(j, r, i, GCI_STEP_SEND);
}

static bool double_recv(job *j, int r, int32_t i)
{
    return repeat_if(j, r, i, GCI_STEP_RECV);
}

static bool double_reduce(job *j, int r, int32_t i)
{
    return repeat_if(j, r, i, GCI_STEP_REDUCE);
}

/* Puts a step at the end, which waits for all others. */
static void append_step(job *j, int r, gci_step step)
{
    gci_sched *s = &j->sched[r];
    grow_schedule(s, s->steps);
    step.first_wait = s->waits;
    step.waits = s->steps;
    for (int32_t k = 0; k < s->steps; k++)
        s->wait[s->waits++] = k;
    s->step[s->steps++] = step;
}

static bool other_peer(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    if (!is_message(s) || j->spec.ranks < 3)
        return false;
    do
        s->peer = (s->peer + 1) % j->spec.ranks;
    while (s->peer == r);
    return true;
}

/* Two messages of a rank go to each other's peers; sums in any order stay right, so not there. */
static bool swap_peers(job *j, int r, int32_t i)
{
    gci_step *a = step_at(j, r, i);
    for (int32_t k = i + 1; k < j->sched[r].steps && is_message(a) && !gci_coll_reduces(j->spec.coll); k++) {
        gci_step *b = step_at(j, r, k);
        bool other = b->from != a->from || b->from_at != a->from_at || b->to != a->to || b->to_at != a->to_at;
        if (a->kind == b->kind && a->peer != b->peer && other && a->bytes > 0 && b->bytes > 0) {
            int32_t peer = a->peer;
            a->peer = b->peer;
            b->peer = peer;
            return true;
        }
    }
    return false;
}

static bool to_oneself(job *j, int r, int32_t i)
{
    step_at(j, r, i)->peer = r;
    return is_message(step_at(j, r, i));
}

static bool no_such_peer(job *j, int r, int32_t i)
{
    step_at(j, r, i)->peer = i % 2 ? -1 : j->spec.ranks;
    return is_message(step_at(j, r, i));
}

static bool write_elsewhere(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->to_at += s->to_at > 0 && r % 2 ? (size_t)-1 : 1;
    return s->bytes > 0 && s->kind != GCI_STEP_SEND;
}

static bool read_elsewhere(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->from_at += s->from_at > 0 && r % 2 ? (size_t)-1 : 1;
    return s->bytes > 0 && s->kind != GCI_STEP_RECV;
}

static bool one_byte_less(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    return !lies_there(j, r, i) && s->bytes > 0 && s->bytes-- > 0;
}

static bool one_byte_more(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->bytes++;
    return is_message(s) || s->kind == GCI_STEP_REDUCE;
}

/* Both sides of a message agree on one byte too few. */
static bool both_one_byte_less(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    if (s->kind != GCI_STEP_SEND || s->bytes < 2)
        return false;
    gci_sched *other = &j->sched[s->peer];
    int recvs = 0;
    for (int32_t k = 0; k < other->steps; k++)
        if (other->step[k].kind == GCI_STEP_RECV && other->step[k].peer == r) {
            other->step[k].bytes--;
            recvs++;
        }
    s->bytes--;
    return recvs == 1;
}

/* Does any step that does something wait for it? */
static bool serves(const gci_sched *s, int32_t i)
{
    const gci_step *step = &s->step[i];
    if (is_message(step) || step->bytes > 0)
        return true;
    for (int32_t k = i + 1; k < s->steps; k++)
        for (int32_t w = 0; w < s->step[k].waits; w++)
            if (s->wait[s->step[k].first_wait + w] == i && serves(s, k))
                return true;
    return false;
}

/* Two ranks need not wait to answer each other, an empty block is never there too early. */
static bool wait_matters(const job *j, int r, int32_t i)
{
    return serves(&j->sched[r], i) && (j->spec.coll != GCI_BARRIER || j->spec.ranks > 2) && !j->spec.sizes;
}

static bool drop_last_wait(job *j, int r, int32_t i)
{
    return wait_matters(j, r, i) && step_at(j, r, i)->waits-- > 0;
}

static bool drop_first_wait(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->first_wait++;
    return wait_matters(j, r, i) && s->waits-- > 1;
}

static bool wait_for_itself(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    if (s->waits > 0)
        j->sched[r].wait[s->first_wait] = i;
    return s->waits > 0;
}

static bool waits_out_of_range(job *j, int r, int32_t i)
{
    step_at(j, r, i)->first_wait = j->sched[r].waits;
    step_at(j, r, i)->waits = 1;
    return true;
}

static bool no_such_kind(job *j, int r, int32_t i)
{
    step_at(j, r, i)->kind = GCI_STEP_COPY + 1;
    return true;
}

static bool no_such_buffer(job *j, int r, int32_t i)
{
    step_at(j, r, i)->to = step_at(j, r, i)->from = GCI_BUFFERS;
    return true;
}

static bool write_send_buffer(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->to = GCI_BUF_SEND;
    return s->bytes > 0 && s->kind != GCI_STEP_SEND;
}

static bool small_scratch(job *j, int r, int32_t i)
{
    const gci_step *s = step_at(j, r, i);
    j->sched[r].temp_bytes = s->to_at + s->bytes - 1;
    return s->to == GCI_BUF_TEMP && s->bytes > 0 && s->kind != GCI_STEP_SEND;
}

/* The operands of a reduction the other way round. */
static bool swap_operands(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->swapped = !s->swapped;
    return s->kind == GCI_STEP_REDUCE && s->bytes > 0 && (!j->spec.in_any_order || j->spec.canonical);
}

/* At one rank of an allreduce another order of operands than at the others, where any would do. */
static bool other_expression(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->swapped = !s->swapped;
    return s->kind == GCI_STEP_REDUCE && j->spec.coll == GCI_ALLREDUCE && j->spec.in_any_order && !j->spec.canonical;
}

static bool other_element(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    s->to_at += j->call[r].elem_bytes;
    s->bytes -= j->call[r].elem_bytes;
    return s->kind == GCI_STEP_REDUCE && s->bytes > 0;
}

/* Faults of whole schedules, planted once: with the first step of the first rank that has any. */
static bool is_first(const job *j, int r, int32_t i)
{
    while (r > 0 && j->sched[r - 1].steps == 0)
        r--;
    return r == 0 && i == 0;
}

static void order_all(job *j, bool in_any_order, bool from_left, bool canonical)
{
    for (int r = 0; r < j->spec.ranks; r++) {
        j->call[r].commutative = in_any_order;
        j->call[r].associative = !from_left;
        j->call[r].canonical = canonical;
    }
}

static bool long_enough(const job *j)      /* for the two orders to differ anywhere */
{
    return gci_coll_reduces(j->spec.coll) && j->spec.ranks > 4;
}

static bool left_for_canonical(job *j, int r, int32_t i)
{
    order_all(j, true, false, true);
    return is_first(j, r, i) && long_enough(j) && j->spec.from_left;
}

static bool canonical_for_left(job *j, int r, int32_t i)
{
    order_all(j, false, true, false);
    return is_first(j, r, i) && long_enough(j) && j->spec.canonical;
}

/* The whole job's schedules are those of another collective. */
static bool scan_for_exscan(job *j, int r, int32_t i)
{
    for (int k = 0; k < j->spec.ranks; k++)
        j->call[k].coll = GCI_EXSCAN;
    return is_first(j, r, i) && j->spec.coll == GCI_SCAN;
}

static bool exscan_for_scan(job *j, int r, int32_t i)
{
    for (int k = 0; k < j->spec.ranks; k++)
        j->call[k].coll = GCI_SCAN;
    return is_first(j, r, i) && j->spec.coll == GCI_EXSCAN && j->spec.places == JOB_APART;
}

/* One byte of the receive buffer that belongs to no block is written, after all else. */
static bool write_gap(job *j, int r, int32_t i)
{
    const gci_blocks *recv = &j->call[r].recv;
    if (i > 0 || !recv->at || j->sched[r].steps == 0)
        return false;
    size_t extent = 0;
    for (int k = 0; k < j->spec.ranks; k++)
        if (recv->bytes[k] > 0 && extent < recv->at[k] + recv->bytes[k])
            extent = recv->at[k] + recv->bytes[k];
    for (size_t at = 0; at < extent; at++) {
        bool used = false;
        for (int k = 0; k < j->spec.ranks; k++)
            used |= at >= recv->at[k] && at - recv->at[k] < recv->bytes[k];
        if (used)
            continue;
        append_step(j, r, (gci_step){ .kind = GCI_STEP_COPY, .to = GCI_BUF_RECV, .to_at = at, .from = GCI_BUF_RECV, .bytes = 1 });
        return true;
    }
    return false;
}

static bool write_untouchable(job *j, int r, int32_t i)
{
    if (j->spec.coll != GCI_EXSCAN || r > 0 || i > 0)
        return false;
    append_step(j, r, (gci_step){ .kind = GCI_STEP_COPY, .to = GCI_BUF_RECV, .from = GCI_BUF_RECV, .bytes = 1 });
    return true;
}

/* A rank tells another of a block of 0 bytes, and that one listens. */
static bool empty_message(job *j, int r, int32_t i)
{
    int peer = (r + 1) % j->spec.ranks;
    bool pairs = j->spec.coll == GCI_GATHER || j->spec.coll == GCI_SCATTER || j->spec.coll == GCI_ALLTOALL;
    if (!pairs || !j->spec.sizes || i > 0 || j->spec.ranks < 2)
        return false;
    append_step(j, r, (gci_step){ .kind = GCI_STEP_SEND, .peer = peer });
    append_step(j, peer, (gci_step){ .kind = GCI_STEP_RECV, .peer = r });
    return true;
}

/* Two messages to the same peer change places, each with its size: the data end up in each other's place. */
static bool swap_segments(job *j, int r, int32_t i)
{
    gci_step *a = step_at(j, r, i);
    for (int32_t k = i + 1; k < j->sched[r].steps && a->kind == GCI_STEP_SEND; k++) {
        gci_step *b = step_at(j, r, k);
        if (b->kind == a->kind && b->peer == a->peer && b->bytes == a->bytes && b->from_at != a->from_at && r == j->spec.root) {
            size_t at = a->from_at;
            a->from_at = b->from_at;
            b->from_at = at;
            return j->spec.coll == GCI_BCAST;
        }
    }
    return false;
}

/* The first of two sends to the same peer waits for what the second does not wait for. */
static bool overtake(job *j, int r, int32_t i)
{
    gci_sched *s = &j->sched[r];
    if (j->spec.coll != GCI_BCAST || i < 1 || s->step[i].kind != GCI_STEP_SEND || s->step[i].waits == 0)
        return false;
    for (int32_t k = i + 1; k < s->steps; k++)
        if (s->step[k].kind == GCI_STEP_SEND && s->step[k].peer == s->step[i].peer) {
            s->step[k].waits = 0;
            s->step[k].from_at = 0;
            s->step[k].bytes = 0;           /* nothing to race for */
            return true;
        }
    return false;
}

/* All ranks of a ring listen before they speak. */
static bool circle_of_waits(job *j, int r, int32_t i)
{
    if (j->spec.coll != GCI_ALLGATHER || j->spec.ranks < 2 || !is_first(j, r, i))
        return false;
    for (int k = 0; k < j->spec.ranks; k++) {
        gci_sched *s = &j->sched[k];
        int32_t send = 0;
        while (s->step[send].kind != GCI_STEP_SEND)
            send++;
        gci_step first = s->step[send];
        grow_schedule(s, first.waits + 1);
        for (int32_t w = 0; w < s->waits; w++)
            if (s->wait[w] == send || s->wait[w] == send + 1)
                s->wait[w] = 2 * send + 1 - s->wait[w];
        memcpy(&s->wait[s->waits], &s->wait[first.first_wait], (size_t)first.waits * sizeof *s->wait);
        first.first_wait = s->waits;
        s->waits += first.waits++;
        s->wait[s->waits++] = send;
        s->step[send] = s->step[send + 1];
        s->step[send + 1] = first;
    }
    return true;
}

/* Two blocks of one size in each other's place at the receiver. */
static bool swap_blocks(job *j, int r, int32_t i)
{
    gci_step *a = step_at(j, r, i);
    for (int32_t k = i + 1; k < j->sched[r].steps && a->kind == GCI_STEP_RECV && a->bytes > 0; k++) {
        gci_step *b = step_at(j, r, k);
        if (b->kind == a->kind && b->peer != a->peer && b->bytes == a->bytes && a->to == GCI_BUF_RECV && b->to == GCI_BUF_RECV) {
            size_t at = a->to_at;
            a->to_at = b->to_at;
            b->to_at = at;
            return true;
        }
    }
    return false;
}

/* Two receives into one place, whichever comes last. */
static bool write_same(job *j, int r, int32_t i)
{
    const gci_step *a = step_at(j, r, i);
    bool fits = a->kind == GCI_STEP_RECV && a->bytes > 0 && (j->spec.coll == GCI_GATHER || j->spec.coll == GCI_ALLTOALL);
    for (int32_t k = i + 1; k < j->sched[r].steps && fits; k++) {
        gci_step *b = step_at(j, r, k);
        if (b->kind != GCI_STEP_RECV || b->bytes == 0 || b->bytes > a->bytes)
            continue;
        b->to_at = a->to_at;
        return true;
    }
    return false;
}

/* A receive that could wait for its buffer takes it from under a send. */
static bool reuse_too_early(job *j, int r, int32_t i)
{
    gci_step *s = step_at(j, r, i);
    for (int32_t k = 0; k < i && s->kind == GCI_STEP_RECV && s->bytes > 0; k++) {
        const gci_step *earlier = step_at(j, r, k);
        if (earlier->kind == GCI_STEP_SEND && earlier->from == GCI_BUF_RECV && earlier->bytes > 0 && s->to == GCI_BUF_RECV) {
            s->to_at = earlier->from_at;
            return s->waits == 0 && earlier->bytes >= s->bytes;
        }
    }
    return false;
}

#define FORM "reads outside|writes outside|no such"
#define ORDER "unordered|may overtake"
#define WRONG "is byte|nothing came|operands, not|belongs to byte|sends what is not there|reduces what is not there|" \
              "reduces different|leaves before"
#define MET "meets it|bytes, rank"

/* says: one of these parts must be in what the checker says. */
static const struct { const char *name; fault_fn *plant; const char *says; } faults[] = {
    { "a send is dropped", drop_send, MET "|" WRONG },
    { "a receive is dropped", drop_recv, MET "|" WRONG },
    { "a reduction is dropped", drop_reduce, "operands, not" },
    { "a copy is dropped", drop_copy, WRONG },
    { "a send is doubled", double_send, MET "|" WRONG "|" ORDER },
    { "a receive is doubled", double_recv, MET "|" WRONG "|" ORDER "|circle" },
    { "a reduction is doubled", double_reduce, "operands, not" },
    { "a wrong peer", other_peer, MET "|" WRONG "|" ORDER "|circle" },
    { "two peers are swapped", swap_peers, MET "|" WRONG "|" ORDER "|circle" },
    { "a message to oneself", to_oneself, "peer" },
    { "a message that bears other sizes", other_sizes, "have other sizes" },
    { "no such peer", no_such_peer, "peer" },
    { "written at a wrong offset", write_elsewhere, "writes outside|belongs to no block|" ORDER "|" WRONG },
    { "read at a wrong offset", read_elsewhere, "reads outside|" ORDER "|" WRONG },
    { "a byte too few", one_byte_less, "bytes, rank|part of an element|block of 0 bytes|" WRONG },
    { "a byte too many", one_byte_more, "bytes, rank|part of an element|belongs to no block|" FORM "|" ORDER },
    { "both sides a byte too few", both_one_byte_less, WRONG },
    { "the last wait is dropped", drop_last_wait, ORDER "|leaves before" },
    { "the first wait is dropped", drop_first_wait, ORDER "|leaves before" },
    { "waits for itself", wait_for_itself, "waits for step" },
    { "waits out of range", waits_out_of_range, "waits out of range" },
    { "no such kind of step", no_such_kind, "no such kind" },
    { "no such buffer", no_such_buffer, "outside buffer 4" },
    { "the send buffer is written", write_send_buffer, "writes outside buffer 0|writes the send buffer" },
    { "scratch too small", small_scratch, "outside buffer 2" },
    { "operands are swapped", swap_operands, "not in rank order|not evaluated from|not the canonical" },
    { "another expression at one rank", other_expression, "another expression" },
    { "an element into another one", other_element, "reads outside|reduces different|operands, not" },
    { "evaluated from the left, not canonically", left_for_canonical, "not the canonical" },
    { "evaluated canonically, not from the left", canonical_for_left, "not evaluated from" },
    { "a scan for an exscan", scan_for_exscan, "belongs to no block|operands, not" },
    { "an exscan for a scan", exscan_for_scan, "operands, not" },
    { "a byte between blocks is written", write_gap, "belongs to no block" },
    { "rank 0 of an exscan is written", write_untouchable, "belongs to no block" },
    { "a message for an empty block", empty_message, "block of 0 bytes" },
    { "two segments change places", swap_segments, "is byte" },
    { "a segment may overtake another", overtake, "may overtake" },
    { "all ranks of a ring listen first", circle_of_waits, "a circle of waits" },
    { "two blocks change places", swap_blocks, "is byte" },
    { "two receives write the same", write_same, "write the same" },
    { "a buffer is taken from under a send", reuse_too_early, "unordered" },
};

static size_t fault_now;
static int fault_count;

/* Does `text` hold one of the parts that stand between bars? */
static bool says_one_of(const char *text, const char *parts)
{
    char part[64];
    while (*parts) {
        size_t bytes = strcspn(parts, "|");
        assert_true(bytes < sizeof part);
        memcpy(part, parts, bytes);
        part[bytes] = 0;
        if (strstr(text, part))
            return true;
        parts += bytes + (parts[bytes] == '|');
    }
    return false;
}

/* Plants the fault at every place of one job; the checker must find all. */
static void plant_everywhere(const job_spec *spec)
{
    for (int r = 0; r < spec->ranks; r++)
        for (int32_t i = 0, steps = 1; i < steps; i++) {
            char why[CHECK_TEXT], what[160];
            job j;
            job_make(&j, spec);
            steps = j.sched[r].steps;
            if (i < steps && faults[fault_now].plant(&j, r, i)) {
                fault_count++;
                describe(spec, what, sizeof what);
                if (job_check(&j, NULL, why) >= 0)
                    fail_msg("not found: %s, rank %d step %d of %s", faults[fault_now].name, r, (int)i, what);
                if (!says_one_of(why, faults[fault_now].says))
                    fail_msg("%s, rank %d step %d of %s: \"%s\"", faults[fault_now].name, r, (int)i, what, why);
            }
            job_drop(&j);
        }
}

static void test_planted_faults(void **state)
{
    static const int ranks[] = { 2, 3, 6 };
    (void)state;
    for (fault_now = 0; fault_now < GCI_COUNT(faults); fault_now++) {
        fault_count = 0;
        for (size_t n = 0; n < GCI_COUNT(ranks); n++)
            for (int coll = 0; coll < GCI_COLLS; coll++)
                each_job((enum gci_coll)coll, ranks[n], plant_everywhere);
        print_message("found %5d of %5d: %s\n", fault_count, fault_count, faults[fault_now].name);
        assert_true(fault_count > 0);
    }
}

/* ---- faults that only the wide area shows ------------------------------------------------------------------------ */

typedef struct sites { gci_topo topo; gci_clusters clusters; } sites;

static void sites_make(sites *s, int ranks, const char *const paths[])
{
    assert_int_equal(gci_topo_make(&env, ranks, paths, NULL, &s->topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &s->topo, &s->clusters), GC_OK);
}

static void sites_drop(sites *s)
{
    gci_clusters_free(&env, &s->clusters);
    gci_topo_free(&env, &s->topo);
}

static void report_of(job_spec spec, const char *const paths[], bool known, check_report *report)
{
    char why[CHECK_TEXT];
    sites s;
    job j;
    sites_make(&s, spec.ranks, paths);
    spec.clusters = known ? &s.clusters : NULL;
    spec.bytes = 6;
    spec.in_any_order = true;
    job_make(&j, &spec);
    for (int r = 0; r < spec.ranks; r++)
        j.call[r].clusters = &s.clusters;       /* the algorithm may not know them, the checker does */
    int messages = job_check(&j, report, why);
    if (messages < 0)
        fail_msg("%s: %s", gci_coll_name(spec.coll), why);
    assert_int_equal(messages, report->messages);
    job_drop(&j);
    sites_drop(&s);
}

static const char *const two_and_four[] = { "a", "a", "b", "b", "b", "b" }, *const by_turns[] = { "a", "b", "a", "b", "a", "b" },
    *const three[] = { "a", "a", "b", "b", "c", "c" };

/* hops, chain, messages, bytes and repeated bytes of the wide area */
static void assert_report(const check_report *r, int hops, int chain, int messages, size_t bytes, size_t repeated)
{
    assert_int_equal(r->wan_hops, hops);
    assert_int_equal(r->wan_chain, chain);
    assert_int_equal(r->wan_messages, messages);
    assert_int_equal(r->wan_bytes, bytes);
    assert_int_equal(r->repeated, repeated);
}

static void test_optimal_is_seen_as_such(void **state)
{
    check_report r;
    (void)state;
    report_of((job_spec){ .coll = GCI_BCAST, .ranks = 6, .root = 1 }, three, true, &r);
    assert_report(&r, 1, 1, 2, 12, 0);
    report_of((job_spec){ .coll = GCI_BCAST, .ranks = 6 }, by_turns, true, &r);
    assert_report(&r, 1, 1, 1, 6, 0);
    report_of((job_spec){ .coll = GCI_GATHER, .ranks = 6, .root = 1 }, two_and_four, true, &r);
    assert_report(&r, 1, 1, 4, 24, 0);
    report_of((job_spec){ .coll = GCI_ALLTOALL, .ranks = 6 }, two_and_four, true, &r);
    assert_report(&r, 1, 1, 16, 96, 0);         /* each block once, though a message each */
    assert_int_equal(r.empty, 0);
}

static void test_second_hop(void **state)
{
    check_report r;
    (void)state;
    report_of((job_spec){ .coll = GCI_BCAST, .ranks = 6 }, three, false, &r);           /* a chain: a, b, c */
    assert_report(&r, 2, 2, 2, 12, 0);
    report_of((job_spec){ .coll = GCI_BCAST, .ranks = 6, .segment = 2 }, three, false, &r);
    assert_report(&r, 2, 2, 6, 12, 0);
    report_of((job_spec){ .coll = GCI_BARRIER, .ranks = 6 }, three, false, &r);         /* to rank 0 and back */
    assert_report(&r, 2, 2, 8, 0, 0);
    assert_int_equal(r.empty, 10);
    report_of((job_spec){ .coll = GCI_ALLGATHER, .ranks = 6 }, three, false, &r);       /* a ring */
    assert_report(&r, 3, 3, 15, 90, 3 * 6);     /* each cluster gets all but one block, and so one of its own two */
}

static void test_data_enter_twice(void **state)
{
    check_report r;
    (void)state;
    report_of((job_spec){ .coll = GCI_BCAST, .ranks = 6 }, by_turns, false, &r);        /* b thrice, back to a twice */
    assert_report(&r, 5, 5, 5, 30, 2 * 6 + 2 * 6);
    report_of((job_spec){ .coll = GCI_ALLGATHER, .ranks = 6 }, two_and_four, false, &r);
    assert_int_equal(r.wan_messages, 10);
    assert_int_equal(r.repeated, 4 * 6);        /* a gets back one block of its own, b three */
}

static void test_partial_results_enter_twice(void **state)
{
    check_report r;
    (void)state;
    report_of((job_spec){ .coll = GCI_REDUCE, .ranks = 6, .root = 1 }, two_and_four, false, &r);    /* b: 4 vectors, not 1 */
    assert_report(&r, 1, 1, 4, 24, 3 * 6);
    report_of((job_spec){ .coll = GCI_REDUCE, .ranks = 6, .root = 1 }, three, false, &r);           /* 2 of b, 2 of c */
    assert_report(&r, 1, 1, 4, 24, 2 * 6);
    report_of((job_spec){ .coll = GCI_ALLREDUCE, .ranks = 6 }, two_and_four, false, &r);
    assert_report(&r, 1, 1, 16, 96, 14 * 6);
    report_of((job_spec){ .coll = GCI_REDUCE_SCATTER, .ranks = 6 }, two_and_four, false, &r);
    assert_report(&r, 1, 1, 16, 96, 4 * 6 + 2 * 3 * 6);     /* each of b's 4 blocks: 1 too many; each of a's 2: 3 */
    report_of((job_spec){ .coll = GCI_SCAN, .ranks = 6 }, two_and_four, false, &r);
    assert_report(&r, 1, 1, 8, 48, 7 * 6);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_schedules),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_planted_faults),
        cmocka_unit_test(test_optimal_is_seen_as_such),
        cmocka_unit_test(test_second_hop),
        cmocka_unit_test(test_data_enter_twice),
        cmocka_unit_test(test_partial_results_enter_twice),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("sched_faults", tests, NULL, NULL);
}
