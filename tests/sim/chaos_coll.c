/* chaos_coll.c: the collectives of a random job: begun with buffers that have just what belongs there, and checked.
 * SPDX-License-Identifier: MIT
 */
#include "chaos.h"

#include <stdio.h>
#include <string.h>

enum { CHAOS_FOR_ALL = 63, CHAOS_BLOCKS = 64 };

const char *chaos_coll_name(enum chaos_kind kind)
{
    static const char *const name[] = { "barrier", "bcast", "scatter", "scatterv", "gather", "gatherv", "allgather", "allgatherv",
        "alltoall", "alltoallv", "reduce", "allreduce", "reduce_scatter", "reduce_scatter_block", "scan", "exscan", "ring" };
    return name[kind];
}

/* ---- blocks ---- */

static bool chaos_scatters(enum chaos_kind k) { return k == CHAOS_SCATTER || k == CHAOS_SCATTERV; }
static bool chaos_gathers(enum chaos_kind k) { return k == CHAOS_GATHER || k == CHAOS_GATHERV; }
static bool chaos_exchanges(enum chaos_kind k) { return k == CHAOS_ALLTOALL || k == CHAOS_ALLTOALLV; }
static bool chaos_uneven(enum chaos_kind k)
{
    return k == CHAOS_SCATTERV || k == CHAOS_GATHERV || k == CHAOS_ALLGATHERV || k == CHAOS_ALLTOALLV;
}

/* Of the block that i has for j; j CHAOS_FOR_ALL: for whoever gets it. */
static size_t chaos_block(const chaos_plan *p, const chaos_coll *c, int i, int j)
{
    int who = c->kind == CHAOS_SCATTERV ? j : c->kind == CHAOS_ALLTOALLV ? i * CHAOS_BLOCKS + j : i;
    return !chaos_uneven(c->kind) ? c->bytes : chaos_hash(p->seed, (uint64_t)c->id, (uint64_t)who, 31) % (2 * c->bytes + 1);
}

typedef struct chaos_layout {
    int    blocks;
    int    from[CHAOS_RANKS], to[CHAOS_RANKS];
    size_t bytes[CHAOS_RANKS], offset[CHAOS_RANKS], all;
} chaos_layout;

static chaos_layout chaos_lay(const chaos_plan *p, const chaos_coll *c, int me, int size, bool sends)
{
    enum chaos_kind k = c->kind;
    bool root = me == c->root, apart = chaos_scatters(k) || chaos_exchanges(k);
    bool many = chaos_exchanges(k) ||
                (sends ? chaos_scatters(k) && root : (chaos_gathers(k) && root) || k == CHAOS_ALLGATHER || k == CHAOS_ALLGATHERV);
    bool none = sends ? chaos_scatters(k) && !root : chaos_gathers(k) && !root;
    chaos_layout l = { .blocks = none ? 0 : many ? size : 1 };
    for (int b = 0; b < l.blocks; b++) {
        l.from[b] = sends ? me : many ? b : chaos_scatters(k) ? c->root : me;
        l.to[b] = !apart ? CHAOS_FOR_ALL : !sends ? me : b;
        l.bytes[b] = chaos_block(p, c, l.from[b], l.to[b]);
        l.offset[b] = l.all;
        l.all += l.bytes[b];
    }
    return l;
}

static int chaos_block_tag(const chaos_coll *c, int to) { return c->id * CHAOS_BLOCKS + to; }

/* ---- vectors ---- */

static bool chaos_reduces(enum chaos_kind k) { return k >= CHAOS_REDUCE && k <= CHAOS_EXSCAN; }
static size_t chaos_share(const chaos_plan *p, const chaos_coll *c, int rank)
{
    size_t mean = c->bytes / sizeof(uint64_t);
    return c->kind != CHAOS_REDUCE_SCATTER ? mean : chaos_hash(p->seed, (uint64_t)c->id, (uint64_t)rank, 32) % (2 * mean + 1);
}

static size_t chaos_count(const chaos_plan *p, const chaos_coll *c, int size, size_t counts[])
{
    size_t all = 0;
    for (int i = 0; i < size; i++) {
        all += counts[i] = chaos_share(p, c, i);
    }
    return c->kind == CHAOS_REDUCE_SCATTER || c->kind == CHAOS_REDUCE_SCATTER_BLOCK ? all : counts[0];
}

static gc_op chaos_op(const chaos_coll *c) { static const gc_op op[] = { GC_SUM, GC_BXOR, GC_MAX, GC_PROD }; return op[c->id % 4]; }
static uint64_t chaos_value(const chaos_plan *p, const chaos_coll *c, int rank, size_t i)
{
    return (chaos_hash(p->seed, (uint64_t)c->id, (uint64_t)rank, 33) + i) * UINT64_C(0x9e3779b97f4a7c15);
}

static uint64_t chaos_expected(const chaos_plan *p, const chaos_coll *c, int ranks, size_t i)
{
    uint64_t sum = chaos_value(p, c, 0, i);
    for (int rank = 1; rank < ranks; rank++) {
        uint64_t v = chaos_value(p, c, rank, i);
        gc_op op = chaos_op(c);
        sum = op == GC_SUM ? sum + v : op == GC_BXOR ? sum ^ v : op == GC_PROD ? sum * v : sum > v ? sum : v;
    }
    return sum;
}

/* ---- begun ---- */

static int chaos_begin_blocks(const chaos_coll *c, gc_comm *comm, chaos_buffers *b, const chaos_layout *s, const chaos_layout *r,
                              gc_request **q)
{
    size_t n = c->bytes;
    switch (c->kind) {
    case CHAOS_SCATTER:    return q ? gc_iscatter(comm, b->send, n, b->recv, c->root, q) : gc_scatter(comm, b->send, n, b->recv, c->root);
    case CHAOS_SCATTERV:   return q ? gc_iscatterv(comm, b->send, s->bytes, s->offset, b->recv, r->all, c->root, q)
                                    : gc_scatterv(comm, b->send, s->bytes, s->offset, b->recv, r->all, c->root);
    case CHAOS_GATHER:     return q ? gc_igather(comm, b->send, n, b->recv, c->root, q) : gc_gather(comm, b->send, n, b->recv, c->root);
    case CHAOS_GATHERV:    return q ? gc_igatherv(comm, b->send, s->all, b->recv, r->bytes, r->offset, c->root, q)
                                    : gc_gatherv(comm, b->send, s->all, b->recv, r->bytes, r->offset, c->root);
    case CHAOS_ALLGATHER:  return q ? gc_iallgather(comm, b->send, n, b->recv, q) : gc_allgather(comm, b->send, n, b->recv);
    case CHAOS_ALLGATHERV: return q ? gc_iallgatherv(comm, b->send, s->all, b->recv, r->bytes, r->offset, q)
                                    : gc_allgatherv(comm, b->send, s->all, b->recv, r->bytes, r->offset);
    case CHAOS_ALLTOALL:   return q ? gc_ialltoall(comm, b->send, n, b->recv, q) : gc_alltoall(comm, b->send, n, b->recv);
    default:               return q ? gc_ialltoallv(comm, b->send, s->bytes, s->offset, b->recv, r->bytes, r->offset, q)
                                    : gc_alltoallv(comm, b->send, s->bytes, s->offset, b->recv, r->bytes, r->offset);
    }
}

static int chaos_begin_reduction(const chaos_plan *p, const chaos_coll *c, gc_comm *comm, chaos_buffers *b, gc_request **q)
{
    size_t counts[CHAOS_RANKS], n = chaos_count(p, c, gc_size(comm), counts);
    int op = chaos_op(c), type = GC_UINT64, rank = gc_rank(comm);
    uint64_t *send = b->send = gct_buffer(n * sizeof(uint64_t));
    b->recv = gct_buffer(n * sizeof(uint64_t));
    for (size_t i = 0; i < n; i++) {
        send[i] = chaos_value(p, c, rank, i);
    }
    switch (c->kind) {
    case CHAOS_REDUCE:
        return q ? gc_ireduce(comm, send, b->recv, n, type, op, c->root, q) : gc_reduce(comm, send, b->recv, n, type, op, c->root);
    case CHAOS_ALLREDUCE: return q ? gc_iallreduce(comm, send, b->recv, n, type, op, q) : gc_allreduce(comm, send, b->recv, n, type, op);
    case CHAOS_SCAN:      return q ? gc_iscan(comm, send, b->recv, n, type, op, q) : gc_scan(comm, send, b->recv, n, type, op);
    case CHAOS_EXSCAN:    return q ? gc_iexscan(comm, send, b->recv, n, type, op, q) : gc_exscan(comm, send, b->recv, n, type, op);
    case CHAOS_REDUCE_SCATTER: return q ? gc_ireduce_scatter(comm, send, b->recv, counts, type, op, q)
                                        : gc_reduce_scatter(comm, send, b->recv, counts, type, op);
    default:              return q ? gc_ireduce_scatter_block(comm, send, b->recv, counts[0], type, op, q)
                                   : gc_reduce_scatter_block(comm, send, b->recv, counts[0], type, op);
    }
}

static int chaos_ring(const chaos_coll *c, gc_comm *comm, chaos_buffers *b, int tag)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    gc_status status;
    b->send = gct_buffer(c->bytes);
    b->recv = gct_buffer(c->bytes);
    gct_fill(b->send, c->bytes, rank, tag);
    int code = gc_sendrecv(comm, b->send, c->bytes, (rank + 1) % size, tag, b->recv, c->bytes, (rank + size - 1) % size, tag, &status);
    gct_require(code || status.bytes == c->bytes, "a ring's message of %zu bytes instead of %zu", status.bytes, c->bytes);
    return code;
}

int chaos_coll_begin(const chaos_plan *p, const chaos_coll *c, gc_comm *comm, chaos_buffers *b, gc_request **q)
{
    int me = gc_rank(comm), size = gc_size(comm);
    if (c->kind == CHAOS_BARRIER) {
        return q ? gc_ibarrier(comm, q) : gc_barrier(comm);
    }
    if (c->kind == CHAOS_BCAST) {
        b->recv = gct_buffer(c->bytes);
        if (me == c->root) {
            gct_fill(b->recv, c->bytes, me, chaos_block_tag(c, CHAOS_FOR_ALL));
        }
        return q ? gc_ibcast(comm, b->recv, c->bytes, c->root, q) : gc_bcast(comm, b->recv, c->bytes, c->root);
    }
    if (c->kind == CHAOS_RING) {
        return chaos_ring(c, comm, b, CHAOS_TAGS * (CHAOS_ROUNDS + 1) + c->id);
    }
    if (chaos_reduces(c->kind)) {
        return chaos_begin_reduction(p, c, comm, b, q);
    }
    chaos_layout s = chaos_lay(p, c, me, size, true), r = chaos_lay(p, c, me, size, false);
    b->send = gct_buffer(s.all);
    b->recv = gct_buffer(r.all);
    for (int i = 0; i < s.blocks; i++) {
        gct_fill((uint8_t *)b->send + s.offset[i], s.bytes[i], me, chaos_block_tag(c, s.to[i]));
    }
    return chaos_begin_blocks(c, comm, b, &s, &r, q);
}

/* ---- checked ---- */

static int chaos_check_reduction(const chaos_plan *p, const chaos_coll *c, int me, int size, const uint64_t *recv)
{
    size_t counts[CHAOS_RANKS], n = chaos_count(p, c, size, counts), from = 0;
    int ranks = c->kind == CHAOS_SCAN ? me + 1 : c->kind == CHAOS_EXSCAN ? me : size;
    if (c->kind == CHAOS_REDUCE_SCATTER || c->kind == CHAOS_REDUCE_SCATTER_BLOCK) {
        for (int i = 0; i < me; i++) {
            from += counts[i];
        }
        n = counts[me];
    }
    if (!ranks || (c->kind == CHAOS_REDUCE && me != c->root)) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        gct_require(recv[i] == chaos_expected(p, c, ranks, from + i), "%s %d of communicator %d: element %zu of %zu is wrong",
                    chaos_coll_name(c->kind), c->id, c->comm, i, n);
    }
    return 0;
}

int chaos_coll_check(const chaos_plan *p, const chaos_coll *c, int me, int size, const chaos_buffers *b)
{
    if (c->kind == CHAOS_BARRIER) {
        return 0;
    }
    if (chaos_reduces(c->kind)) {
        return chaos_check_reduction(p, c, me, size, b->recv);
    }
    if (c->kind == CHAOS_RING) {
        return gct_check(b->recv, c->bytes, (me + size - 1) % size, CHAOS_TAGS * (CHAOS_ROUNDS + 1) + c->id);
    }
    if (c->kind == CHAOS_BCAST) {
        return gct_check(b->recv, c->bytes, c->root, chaos_block_tag(c, CHAOS_FOR_ALL));
    }
    chaos_layout r = chaos_lay(p, c, me, size, false);
    for (int i = 0; i < r.blocks; i++) {
        gct_require(!gct_check((const uint8_t *)b->recv + r.offset[i], r.bytes[i], r.from[i], chaos_block_tag(c, r.to[i])),
                    "%s %d of communicator %d, block from %d", chaos_coll_name(c->kind), c->id, c->comm, r.from[i]);
    }
    return 0;
}
