/* sched.c: schedules, how they are written, and the pool of algorithms (pure).
 * SPDX-License-Identifier: MIT
 *
 * An algorithm sees one rank's call and writes that rank's steps; it talks to nobody. What holds for every schedule, and
 * what the checker in the tests proves on all ranks' schedules together:
 *
 * - A step waits for earlier steps of its list only, so a schedule alone cannot be stuck; receives wait for nothing
 *   unless their buffer is still in use, so they can be posted (and granted) at once.
 * - Messages between two ranks are matched in the order in which both post them. So of those the same way none becomes ready
 *   before one that stands ahead of it in the list: it waits for all that the other waits for. No algorithm has a cycle of
 *   ranks in which each sends only after it received, so even sends that wait for their receiver end.
 * - Only `in_place`, which is a rank's own affair, may differ between ranks; it changes copies and buffers, never messages.
 * - GCI_BUF_SEND and GCI_BUF_HEARD are never written. Calls that carry data, but none at all, have no steps.
 * - Reductions meet in an order fixed by the call, never by arrival. Operands that need not commute meet in rank order;
 *   those that need not associate are evaluated from rank 0 up, one by one.
 *
 * What a rank brings in, `input`, is the send buffer; in place it is the receive buffer, where that does no harm
 * (input_is_recv), or a copy of it in scratch (alltoall, reduce_scatter). At the root of a bcast it is the one buffer there is.
 */
#include "gridcomm_int.h"

enum { SCHED_ALIGN = 64,        /* bytes: scratch slots start on a cache line, and so at any element's alignment */
       SCHED_FIRST_ROOM = 16 }; /* steps and waits of a first allocation */

/* ---- blocks and segments ----------------------------------------------------------------------------------------- */

GCI size_t gci_block_bytes(const gci_blocks *b, int rank)
{
    return b->bytes ? b->bytes[rank] : b->each;
}

GCI size_t gci_blocks_bytes(const gci_blocks *b, int first, int end)
{
    size_t sum = 0;
    if (!b->bytes)
        return (size_t)(end - first) * b->each;
    for (int rank = first; rank < end; rank++)
        sum += b->bytes[rank];
    return sum;
}

GCI size_t gci_block_at(const gci_blocks *b, int rank)
{
    return b->at ? b->at[rank] : gci_blocks_bytes(b, 0, rank);
}

static size_t sched_segment(const gci_call *call)
{
    size_t whole = call->segment / call->elem_bytes * call->elem_bytes;
    return call->segment == 0 ? SIZE_MAX : whole > 0 ? whole : call->elem_bytes;
}

GCI int32_t gci_segments(const gci_call *call, size_t bytes)
{
    size_t n = bytes / sched_segment(call) + (bytes % sched_segment(call) > 0);
    return n < 1 ? 1 : n < INT32_MAX ? (int32_t)n : INT32_MAX;
}

GCI size_t gci_segment_at(const gci_call *call, size_t bytes, int32_t i)
{
    return i == 0 ? 0 : gci_min((size_t)i * sched_segment(call), bytes);
}

/* ---- appending --------------------------------------------------------------------------------------------------- */

static bool sched_grow(gci_builder *b, void **array, int32_t *room, int32_t need, size_t item_bytes)
{
    if (b->error || need <= *room)
        return !b->error;
    int32_t more = *room ? *room * 2 : SCHED_FIRST_ROOM;
    void *grown = more > INT32_MAX / 2 ? NULL : gci_realloc(b->env, *array, (size_t)more * item_bytes);
    if (!grown) {
        b->error = GC_ERR_NOMEM;
        return false;
    }
    *array = grown;
    *room = more;
    return true;
}

static void sched_wait_for(gci_builder *b, gci_step *step, int32_t earlier)
{
    void *array = b->out->wait;
    if (earlier == GCI_NO_STEP || !sched_grow(b, &array, &b->wait_room, b->out->waits + 1, sizeof *b->out->wait))
        return;
    b->out->wait = array;
    b->out->wait[b->out->waits++] = earlier;
    step->waits++;
}

static int32_t sched_add(gci_builder *b, gci_step step, int32_t after)
{
    void *array = b->out->step;
    if (!sched_grow(b, &array, &b->step_room, b->out->steps + 1, sizeof *b->out->step))
        return GCI_NO_STEP;
    b->out->step = array;
    step.first_wait = b->out->waits;
    sched_wait_for(b, &step, after);
    b->out->step[b->out->steps] = step;
    return b->out->steps++;
}

GCI int32_t gci_emit_send(gci_builder *b, int peer, gci_spot from, size_t bytes, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_SEND, .peer = peer, .from = from.buf, .from_at = from.at,
                                    .to = from.buf, .bytes = bytes }, after);
}

GCI int32_t gci_emit_recv(gci_builder *b, int peer, gci_spot to, size_t bytes, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_RECV, .peer = peer, .to = to.buf, .to_at = to.at, .from = to.buf,
                                    .bytes = bytes }, after);
}

GCI int32_t gci_emit_copy(gci_builder *b, gci_spot to, gci_spot from, size_t bytes, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_COPY, .peer = GCI_NO_STEP, .to = to.buf, .to_at = to.at, .from = from.buf,
                                    .from_at = from.at, .bytes = bytes }, after);
}

GCI int32_t gci_emit_reduce(gci_builder *b, gci_spot to, gci_spot from, size_t bytes, bool swapped, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_REDUCE, .peer = GCI_NO_STEP, .to = to.buf, .to_at = to.at,
                                    .from = from.buf, .from_at = from.at, .bytes = bytes, .swapped = swapped }, after);
}

GCI int32_t gci_emit_both(gci_builder *b, int32_t a, int32_t c)
{
    const gci_spot nowhere = { GCI_BUF_TEMP, 0 };
    if (a == GCI_NO_STEP || a == c)
        return c;
    if (c == GCI_NO_STEP)
        return a;
    int32_t joined = gci_emit_copy(b, nowhere, nowhere, 0, a);
    if (joined != GCI_NO_STEP)
        sched_wait_for(b, &b->out->step[joined], c);
    return joined;
}

GCI void gci_emit_also(gci_builder *b, int32_t step, int32_t earlier)
{
    if (step != GCI_NO_STEP)
        sched_wait_for(b, &b->out->step[step], earlier);
}

GCI void gci_emit_pend(gci_builder *b, int32_t step)
{
    void *array = b->pending;
    if (step == GCI_NO_STEP || !sched_grow(b, &array, &b->pending_room, b->pendings + 1, sizeof *b->pending))
        return;
    b->pending = array;
    b->pending[b->pendings++] = step;
}

GCI int32_t gci_emit_join(gci_builder *b)
{
    const gci_spot nowhere = { GCI_BUF_TEMP, 0 };
    int32_t joined = b->pendings > 0 ? b->pending[0] : GCI_NO_STEP;
    if (b->pendings > 1) {
        joined = gci_emit_copy(b, nowhere, nowhere, 0, GCI_NO_STEP);
        for (int32_t i = 0; i < b->pendings && joined != GCI_NO_STEP; i++)
            sched_wait_for(b, &b->out->step[joined], b->pending[i]);
    }
    b->pendings = 0;
    return joined;
}

GCI gci_spot gci_emit_slot(gci_builder *b, size_t bytes)
{
    gci_spot place = { GCI_BUF_TEMP, b->out->temp_bytes };
    size_t whole = (bytes + SCHED_ALIGN - 1) / SCHED_ALIGN * SCHED_ALIGN;
    if (whole < bytes || whole > SIZE_MAX / 2 - b->out->temp_bytes)
        b->error = GC_ERR_NOMEM;
    else
        b->out->temp_bytes += whole;
    return place;
}

GCI gci_spot gci_spot_at(gci_spot place, size_t further)
{
    return (gci_spot){ place.buf, place.at + further };
}

/* ---- the pool ---------------------------------------------------------------------------------------------------- */

#define ON(coll) (1u << GCI_##coll)
#define ALL_COLLS ((1u << GCI_COLLS) - 1)
#define TREE_COLLS (ON(BARRIER) | ON(BCAST) | ON(SCATTER) | ON(GATHER) | ON(ALLGATHER) | ON(REDUCE) | ON(ALLREDUCE) | \
                    ON(REDUCE_SCATTER))
#define ROOTED_COLLS (ON(BCAST) | ON(SCATTER) | ON(GATHER) | ON(REDUCE))

/* "flat", which takes every call of its collectives, and "direct" are what others give way to. */
static const gci_algo sched_pool[] = {
    { "binomial",  TREE_COLLS, gci_tree_algo, false },
    { "flat",      TREE_COLLS, gci_tree_algo, false },
    { "chain",     TREE_COLLS, gci_tree_algo, false },
    { "binary",    TREE_COLLS, gci_tree_algo, false },
    { "kary",      TREE_COLLS, gci_tree_algo, false },
    { "knomial",   TREE_COLLS, gci_tree_algo, false },
    { "given",     ROOTED_COLLS, gci_tree_algo, false },
    { "binomial-nearest", ROOTED_COLLS, gci_tree_algo, true },
    { "prim",      ROOTED_COLLS, gci_tree_algo, true },
    { "prim-ready", ROOTED_COLLS, gci_tree_algo, true },
    { "prim-ahead", ROOTED_COLLS, gci_tree_algo, true },
    { "traeff",    ROOTED_COLLS, gci_tree_algo, true },
    { "scatter",   ON(BCAST), gci_scatter_algo, false },
    { "doubling",  ON(BARRIER) | ON(ALLGATHER) | ON(ALLREDUCE) | ON(SCAN) | ON(EXSCAN), gci_doubling_algo, false },
    { "halving",   ON(REDUCE) | ON(ALLREDUCE) | ON(REDUCE_SCATTER), gci_halving_algo, false },
    { "ring",      ON(ALLGATHER) | ON(ALLREDUCE) | ON(REDUCE_SCATTER), gci_ring_algo, false },
    { "bruck",     ON(ALLGATHER) | ON(ALLTOALL), gci_bruck_algo, false },
    { "pairwise",  ON(ALLTOALL) | ON(REDUCE_SCATTER), gci_pairwise_algo, false },
    { "direct",    ON(ALLGATHER) | ON(ALLTOALL) | ON(REDUCE_SCATTER) | ON(SCAN) | ON(EXSCAN), gci_direct_algo, false },
    { "circulant", ON(BCAST) | ON(ALLGATHER) | ON(REDUCE) | ON(ALLREDUCE) | ON(REDUCE_SCATTER), gci_circulant_algo, false },
    { "by-host",   ALL_COLLS, gci_by_host_algo, false },
    { "by-host-divided", ON(BCAST) | ON(ALLREDUCE), gci_by_host_algo, false },
    { "nested",    ON(BCAST) | ON(ALLGATHER) | ON(REDUCE) | ON(ALLREDUCE) | ON(REDUCE_SCATTER), gci_nested_algo, false },
    { "wide",      ALL_COLLS, gci_wide_algo, false },
    { "wide-divided", ON(BCAST) | ON(ALLREDUCE), gci_wide_algo, false },
};

GCI const gci_algo *gci_algo_at(int i)
{
    return i >= 0 && i < (int)GCI_COUNT(sched_pool) ? &sched_pool[i] : NULL;
}

GCI const gci_algo *gci_algo_find(enum gci_coll coll, const char *name)
{
    size_t bytes = strcspn(name, ":");
    for (size_t i = 0; i < GCI_COUNT(sched_pool); i++)
        if (sched_pool[i].colls >> coll & 1 && strlen(sched_pool[i].name) == bytes && memcmp(sched_pool[i].name, name, bytes) == 0)
            return &sched_pool[i];
    return NULL;
}

GCI const char *gci_coll_name(enum gci_coll coll)
{
    static const char *const name[GCI_COLLS] = { "barrier", "bcast", "scatter", "gather", "allgather", "alltoall", "reduce",
                                                 "allreduce", "reduce_scatter", "scan", "exscan" };
    return (unsigned)coll < GCI_COLLS ? name[coll] : "no collective";
}

GCI int gci_coll_find(const char *name, size_t bytes)
{
    int coll = 0;
    for (; coll < GCI_COLLS; coll++) {
        const char *known = gci_coll_name((enum gci_coll)coll);
        if (strlen(known) == bytes && memcmp(known, name, bytes) == 0)
            break;
    }
    return coll;
}

GCI bool gci_coll_reduces(enum gci_coll coll)
{
    return coll >= GCI_REDUCE && coll <= GCI_EXSCAN;
}

/* ---- a call ------------------------------------------------------------------------------------------------------ */

GCI bool gci_call_adds_up(const gci_call *call, const gci_clusters *parts)
{
    bool scans = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN;
    return !gci_coll_reduces(call->coll) ||
           (call->associative && !call->canonical && (parts->runs || (call->commutative && !scans)));
}

static bool sched_is_rooted(enum gci_coll coll)
{
    return coll == GCI_GATHER || coll == GCI_REDUCE;
}

GCI bool gci_call_has_result(const gci_call *call)
{
    return call->coll != GCI_BARRIER && (!sched_is_rooted(call->coll) || call->rank == call->root);
}

/* Bytes that all ranks together move, as far as this one knows: 0: none, and all know it. */
static bool sched_is_empty(const gci_call *call)
{
    switch (call->coll) {
    case GCI_BARRIER:
        return false;
    case GCI_SCATTER:
    case GCI_GATHER:
    case GCI_ALLTOALL:
        return call->even && call->own == 0;
    case GCI_ALLGATHER:
        return gci_blocks_bytes(&call->recv, 0, call->ranks) == 0;
    case GCI_REDUCE_SCATTER:
        return gci_blocks_bytes(&call->send, 0, call->ranks) == 0;
    default:
        return call->bytes == 0;
    }
}

/* What will be overwritten is sent from a copy: the blocks alone, for there may be anything between them. at: [ranks] where they
 * lie in it then, NULL if they lie together anyway. */
static void sched_copy_blocks(gci_builder *b, size_t *at)
{
    const gci_blocks *blocks = &b->call->send;
    size_t all = gci_blocks_bytes(blocks, 0, b->call->ranks), sum = 0;
    b->input = gci_emit_slot(b, all);
    if (!at) {
        b->ready = gci_emit_copy(b, b->input, (gci_spot){ GCI_BUF_RECV, 0 }, all, GCI_NO_STEP);
        return;
    }
    for (int rank = 0; rank < b->call->ranks; rank++) {
        size_t bytes = gci_block_bytes(blocks, rank);
        if (bytes > 0)
            gci_emit_pend(b, gci_emit_copy(b, gci_spot_at(b->input, sum), (gci_spot){ GCI_BUF_RECV, gci_block_at(blocks, rank) },
                                           bytes, GCI_NO_STEP));
        at[rank] = sum;
        sum += bytes;
    }
    b->ready = gci_emit_join(b);
}

static void sched_take_input(gci_builder *b, size_t *copied_at)
{
    const gci_call *call = b->call;
    b->input = (gci_spot){ GCI_BUF_SEND, 0 };
    b->ready = GCI_NO_STEP;
    if (call->coll == GCI_BCAST) {
        b->input = (gci_spot){ GCI_BUF_RECV, 0 };
        b->input_is_recv = true;
    } else if (call->in_place && (call->coll == GCI_ALLTOALL || call->coll == GCI_REDUCE_SCATTER)) {
        sched_copy_blocks(b, copied_at);
    } else if (call->in_place && call->coll != GCI_SCATTER) {
        bool blocks = call->coll == GCI_GATHER || call->coll == GCI_ALLGATHER;
        b->input = (gci_spot){ GCI_BUF_RECV, blocks ? gci_block_at(&call->recv, call->rank) : 0 };
        b->input_is_recv = true;
    }
}

/* In place means nothing to a rank without a result, or with one buffer anyway. */
static bool sched_uses_in_place(const gci_call *call)
{
    bool root_alone = call->coll == GCI_GATHER || call->coll == GCI_REDUCE || call->coll == GCI_SCATTER;
    return call->in_place && call->coll != GCI_BARRIER && call->coll != GCI_BCAST && (!root_alone || call->rank == call->root);
}

GCI int gci_sched_build(gci_env *env, const gci_algo *algo, const char *name, const gci_call *call, gci_sched *out)
{
    gci_call own = *call;
    gci_builder b = { .env = env, .call = &own, .name = name, .out = out };
    own.in_place = sched_uses_in_place(call);
    *out = (gci_sched){ 0 };
    if (algo->by_model && !call->model)
        return GC_ERR_UNSUPPORTED;
    if (sched_is_empty(call))
        return GC_OK;
    size_t *at = own.in_place && own.coll == GCI_ALLTOALL && own.send.at ? gci_alloc(env, (size_t)own.ranks * sizeof *at) : NULL;
    if (own.in_place && own.coll == GCI_ALLTOALL && own.send.at && !at)
        return GC_ERR_NOMEM;
    sched_take_input(&b, at);
    if (at)
        own.send.at = at;
    if (!b.error)                       /* else what comes would be sent from a copy that is not made */
        algo->emit(&b);
    gci_free(env, at);
    gci_free(env, b.pending);
    if (b.error)
        gci_sched_free(env, out);
    return b.error;
}

GCI void gci_sched_free(gci_env *env, gci_sched *sched)
{
    gci_free(env, sched->step);
    gci_free(env, sched->wait);
    *sched = (gci_sched){ 0 };
}
