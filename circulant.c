/* circulant.c: collectives on circulant graphs (pure).
 * SPDX-License-Identifier: MIT
 *
 * Träff's graph of p ranks (2022, arXiv 2205.10072; 2024, arXiv 2407.18004 and 2410.14234) has the skips
 *
 *      skip[q] = p, skip[k] = ceil(skip[k + 1] / 2), skip[0] = 1,      q = ceil(log2 p),   of 11: 1 2 3 6 (11)
 *
 * and rank r talks with r + skip[k] and r - skip[k] alone, whatever p is. It carries, in the least possible number of rounds,
 * in each of which a rank sends one message at most and receives one (a long run of blocks that goes on from rank p - 1 to
 * rank 0 makes two, because copying it together would take longer):
 *
 *                     rounds         bytes that a rank sends          scratch
 *  bcast              n - 1 + q      n segments, q - 1 more at most   none
 *  reduce             n - 1 + q      each segment once                the vector and CIRCULANT_WINDOW segments, at most
 *  allgather          q              p - 1 blocks                     what does not lie together, if short or at offsets
 *  reduce_scatter     q              p - 1 blocks                     the vector
 *  allreduce          2 q            2 (p - 1) / p of the vector      the vector, as for allgather
 *
 * Reductions meet in the order of rounds, not of ranks: the operation must commute.
 *
 * None can be stuck even if sends wait for their receivers: what a round sends or overwrites waits for earlier rounds only.
 * Messages of different rounds to one peer are told apart by their order, so that has to be kept.
 */
#include "gridcomm_int.h"

enum { CIRCULANT_WINDOW = 32,       /* segments that a reduction receives ahead of its use: bounds scratch */
       CIRCULANT_PACK = 65536 };    /* bytes: from here on a second message costs less than a copy at either end */

/* ---- the graph ----------------------------------------------------------------------------------------------------- */

typedef struct circulant_graph {
    int     ranks, rank, rounds;                    /* rank: relative to the root */
    int64_t skip[GCI_CIRCULANT_ROUNDS_MAX + 1];     /* [rounds] is `ranks` */
} circulant_graph;

static circulant_graph circulant_make(int ranks, int rank)
{
    circulant_graph g = { .ranks = ranks, .rank = rank };
    while (INT64_C(1) << g.rounds < ranks)
        g.rounds++;
    g.skip[g.rounds] = ranks;
    for (int k = g.rounds; k-- > 0;)
        g.skip[k] = (g.skip[k + 1] + 1) / 2;
    return g;
}

static int circulant_away(const circulant_graph *g, int rank, int64_t distance)
{
    return (int)((rank + distance + g->ranks) % g->ranks);
}

/* ---- broadcast schedules ------------------------------------------------------------------------------------------- */

/* The root sends block i in round i; a rank's base block is the one that comes to it straight along its canonical path from the
 * root: the sum of skips that takes the largest first. Each other block must come in another round than all else, and the sender
 * must have it. Träff's rule: in round k take the nearest rank at or below r - skip[k], but above r - skip[k + 1], whose base
 * block was not taken in an earlier round, where ranks are compared one turn up so that the root stands at p too. One search
 * down the paths (largest skip first) finds all in O(log p). */
typedef struct circulant_search {
    const circulant_graph *g;
    int64_t  rank;                  /* one turn up */
    int64_t  below;                 /* the rank that was taken last */
    unsigned taken;                 /* bit set of base blocks */
    int      rounds;                /* so many have their block */
    int32_t *block;
} circulant_search;

static void circulant_descend(circulant_search *s, int64_t at, int largest)
{
    const int64_t *skip = s->g->skip;
    for (int e = largest; e >= 0 && s->rounds < s->g->rounds; e--) {
        int64_t next = at + skip[e];
        if (s->taken >> e & 1 || next > s->rank - skip[s->rounds] || next >= s->below)
            continue;
        if (next <= s->rank - skip[s->rounds + 1])
            circulant_descend(s, next, e);
        if (s->rounds == s->g->rounds || at > s->rank - skip[s->rounds + 1])
            return;
        s->below = next;
        s->taken |= 1u << e;
        s->block[s->rounds++] = e;
    }
}

/* The last skip of the canonical path to a rank; rounds: it is the root. */
static int circulant_base(const circulant_graph *g, int64_t rank)
{
    for (int k = g->rounds; k-- > 0;) {
        if (rank == g->skip[k])
            return k;
        if (rank > g->skip[k])
            rank -= g->skip[k];
    }
    return g->rounds;
}

GCI int gci_circulant_blocks(int ranks, int rank, int32_t block[GCI_CIRCULANT_ROUNDS_MAX])
{
    circulant_graph g = circulant_make(ranks, rank);
    int base = circulant_base(&g, rank);
    circulant_search s = { .g = &g, .rank = (int64_t)ranks + rank, .below = 2 * (int64_t)ranks, .taken = 1u << base,
                           .block = block };
    circulant_descend(&s, 0, g.rounds);
    for (int k = 0; k < g.rounds; k++)
        block[k] = block[k] == g.rounds ? base : block[k] - g.rounds;
    return g.rounds;
}

/* What a rank receives and sends in the rounds of a phase, k = 0 .. q - 1: in the phase t block + q * t - idle, none if that is
 * negative, the last one if it is beyond. So many first rounds of phase 0 are idle that the last phase is a whole one; then
 * exactly one block of each rank is beyond, and it receives all n once. */
typedef struct circulant_plan {
    circulant_graph g;
    int64_t n, idle;
    int32_t receives[GCI_CIRCULANT_ROUNDS_MAX], sends[GCI_CIRCULANT_ROUNDS_MAX];
} circulant_plan;

static circulant_plan circulant_plan_of(const gci_call *call, int64_t n)
{
    circulant_plan p = { .g = circulant_make(call->ranks, 0), .n = n };
    int q = p.g.rounds;
    p.g.rank = circulant_away(&p.g, call->rank, -call->root);
    p.idle = (q - (n - 1) % q) % q;
    gci_circulant_blocks(p.g.ranks, p.g.rank, p.receives);
    for (int k = 0; k < q; k++) {
        int32_t block[GCI_CIRCULANT_ROUNDS_MAX];
        gci_circulant_blocks(p.g.ranks, circulant_away(&p.g, p.g.rank, p.g.skip[k]), block);
        p.sends[k] = block[k];
    }
    return p;
}

/* The block that a relative rank receives in round i, -1: none. */
static int64_t circulant_block(const circulant_plan *p, int to, const int32_t block[], int64_t i)
{
    int q = p->g.rounds;
    int64_t j = block[i % q] + i / q * q - p->idle;
    return to == 0 || j < 0 ? -1 : j < p->n ? j : p->n - 1;
}

/* What happens in round i: which blocks go in and out, and the ranks they come from and go to. */
typedef struct circulant_round { int64_t in, out; int from, to, k; } circulant_round;

static circulant_round circulant_round_of(const circulant_plan *p, int root, int64_t i)
{
    int k = (int)(i % p->g.rounds);
    int64_t skip = p->g.skip[k];
    int from = circulant_away(&p->g, p->g.rank, -skip), to = circulant_away(&p->g, p->g.rank, skip);
    return (circulant_round){ .in = circulant_block(p, p->g.rank, p->receives, i), .out = circulant_block(p, to, p->sends, i),
                              .from = circulant_away(&p->g, from, root), .to = circulant_away(&p->g, to, root), .k = k };
}

static size_t circulant_segment_bytes(const gci_call *call, int64_t j)
{
    return gci_segment_at(call, call->bytes, (int32_t)j + 1) - gci_segment_at(call, call->bytes, (int32_t)j);
}

static gci_spot circulant_segment(const gci_call *call, gci_spot vector, int64_t j)
{
    return gci_spot_at(vector, gci_segment_at(call, call->bytes, (int32_t)j));
}

/* What the last message with each peer in one direction waited for, by k. */
typedef struct circulant_order { int32_t last[GCI_CIRCULANT_ROUNDS_MAX]; } circulant_order;

static circulant_order circulant_no_order(void)
{
    circulant_order order;
    for (int k = 0; k < GCI_CIRCULANT_ROUNDS_MAX; k++)
        order.last[k] = GCI_NO_STEP;
    return order;
}

static int32_t circulant_next(gci_builder *b, circulant_order *order, int k, int32_t after)
{
    return order->last[k] = gci_emit_both(b, order->last[k], after);
}

/* step[n]: per segment, the step after which it is there. A message must not overtake the last one to the same peer, so it waits
 * for what that one waited for, too; here and in the reduction, where it holds for receives as well. */
static void circulant_bcast(gci_builder *b, const circulant_plan *p, int32_t step[])
{
    const gci_call *call = b->call;
    circulant_order to = circulant_no_order();
    for (int64_t i = p->idle; i < p->idle + p->n - 1 + p->g.rounds; i++) {
        circulant_round r = circulant_round_of(p, call->root, i);
        if (r.out >= 0)
            gci_emit_send(b, r.to, circulant_segment(call, b->input, r.out), circulant_segment_bytes(call, r.out),
                          circulant_next(b, &to, r.k, step[r.out]));
        if (r.in >= 0)
            step[r.in] = gci_emit_recv(b, r.from, circulant_segment(call, b->input, r.in), circulant_segment_bytes(call, r.in),
                                       GCI_NO_STEP);
    }
}

/* A segment of a reduction: where the sum is made, and the last step that added to it, or none yet. Only the first partial result
 * may come to that place; further ones, and all where this rank's own operand lies there, come into a window of slots. */
typedef struct circulant_sum {
    gci_spot at, slot[CIRCULANT_WINDOW];    /* at: once `placed`, which a rank that only sends never needs */
    bool     placed;
    int32_t  used[CIRCULANT_WINDOW];        /* the step after which a slot is free again */
    int64_t  slots;
    circulant_order from;
    int32_t *step;                          /* [n] */
} circulant_sum;

static void circulant_add(gci_builder *b, circulant_sum *sum, int k, int peer, int64_t j)
{
    const gci_call *call = b->call;
    size_t bytes = circulant_segment_bytes(call, j);
    if (!sum->placed)
        sum->at = gci_emit_slot(b, call->bytes);
    sum->placed = true;
    gci_spot own = circulant_segment(call, b->input, j), to = circulant_segment(call, sum->at, j);
    if (sum->step[j] == GCI_NO_STEP && !b->input_is_recv) {
        int32_t came = gci_emit_recv(b, peer, to, bytes, sum->from.last[k]);
        sum->step[j] = gci_emit_reduce(b, to, own, bytes, false, came);
        return;
    }
    int w = (int)(sum->slots % CIRCULANT_WINDOW);
    if (sum->slots++ < CIRCULANT_WINDOW) {
        sum->slot[w] = gci_emit_slot(b, circulant_segment_bytes(call, 0));
        sum->used[w] = GCI_NO_STEP;
    }
    int32_t came = gci_emit_recv(b, peer, sum->slot[w], bytes, circulant_next(b, &sum->from, k, sum->used[w]));
    int32_t added = gci_emit_reduce(b, to, sum->slot[w], bytes, false, came);
    gci_emit_also(b, added, sum->step[j]);
    sum->step[j] = sum->used[w] = added;
}

/* The rounds of the broadcast from the last to the first, each message the other way. step[n]: none. */
static void circulant_reduce(gci_builder *b, const circulant_plan *p, int32_t step[])
{
    const gci_call *call = b->call;
    circulant_sum sum = { .at = { GCI_BUF_RECV, 0 }, .placed = p->g.rank == 0, .from = circulant_no_order(), .step = step };
    circulant_order to = circulant_no_order();
    for (int64_t i = p->idle + p->n - 1 + p->g.rounds; i-- > p->idle && !b->error;) {
        circulant_round r = circulant_round_of(p, call->root, i);
        if (r.in >= 0)
            gci_emit_send(b, r.from, circulant_segment(call, step[r.in] == GCI_NO_STEP ? b->input : sum.at, r.in),
                          circulant_segment_bytes(call, r.in), circulant_next(b, &to, r.k, step[r.in]));
        if (r.out >= 0)
            circulant_add(b, &sum, r.k, r.to, r.out);
    }
}

static void circulant_in_segments(gci_builder *b)
{
    const gci_call *call = b->call;
    int64_t n = gci_segments(call, call->bytes);
    if (call->ranks == 1) {
        if (call->coll == GCI_REDUCE && !b->input_is_recv)
            gci_emit_copy(b, (gci_spot){ GCI_BUF_RECV, 0 }, b->input, call->bytes, b->ready);
        return;
    }
    circulant_plan p = circulant_plan_of(call, n);
    int32_t *step = gci_alloc(b->env, (size_t)n * sizeof *step);
    if (!step) {
        b->error = GC_ERR_NOMEM;
        return;
    }
    for (int64_t j = 0; j < n; j++)
        step[j] = GCI_NO_STEP;
    if (call->coll == GCI_BCAST)
        circulant_bcast(b, &p, step);
    else
        circulant_reduce(b, &p, step);
    gci_free(b->env, step);
}

/* ---- runs of blocks ------------------------------------------------------------------------------------------------ */

/* A buffer of one block per rank: those of the call, or (blocks NULL) a vector cut into p parts of whole elements, the first
 * `more` of which have one more. A run of blocks goes on from rank p - 1 to rank 0. */
typedef struct circulant_cut {
    int ranks;
    const gci_blocks *blocks;
    size_t each, more, unit;        /* unit: bytes of an element; each, more: elements */
    gci_spot base;
} circulant_cut;

static circulant_cut circulant_cut_of(const gci_call *call, const gci_blocks *blocks, gci_spot base)
{
    circulant_cut c = { .ranks = call->ranks, .blocks = blocks, .base = base, .unit = 1 };
    if (!blocks) {
        size_t elems = call->bytes / call->elem_bytes, ranks = (size_t)call->ranks;
        c.unit = call->elem_bytes;
        c.each = elems / ranks;
        c.more = elems % ranks;
    }
    return c;
}

static size_t circulant_at(const circulant_cut *c, int i)
{
    return c->blocks ? gci_block_at(c->blocks, i) : ((size_t)i * c->each + gci_min((size_t)i, c->more)) * c->unit;
}

/* Of the blocks in [first, end), end <= p. */
static size_t circulant_between(const circulant_cut *c, int first, int end)
{
    return c->blocks ? gci_blocks_bytes(c->blocks, first, end) : circulant_at(c, end) - circulant_at(c, first);
}

static size_t circulant_bytes(const circulant_cut *c, int first, int64_t count)
{
    int64_t head = c->ranks - first < count ? c->ranks - first : count;
    return circulant_between(c, first, first + (int)head) + circulant_between(c, 0, (int)(count - head));
}

/* How many blocks at the beginning of a run lie one after another in the buffer. */
static int64_t circulant_piece(const circulant_cut *c, int first, int64_t count)
{
    int64_t n = 1, head = c->ranks - first < count ? c->ranks - first : count;
    if (!c->blocks || !c->blocks->at)
        return head;
    size_t end = circulant_at(c, first) + gci_block_bytes(c->blocks, first);
    for (; n < head && circulant_at(c, first + (int)n) == end; n++)
        end += gci_block_bytes(c->blocks, first + (int)n);
    return n;
}

/* How many blocks of a run go into the next message: all, but a long run is cut where the ranks begin anew, because there its
 * two ends lie apart. Both ends of the message find the same. */
static int64_t circulant_part(const circulant_cut *c, int first, int64_t count)
{
    bool cut = first + count > c->ranks && circulant_bytes(c, first, count) >= CIRCULANT_PACK;
    return cut ? c->ranks - first : count;
}

enum circulant_move { CIRCULANT_PACKS, CIRCULANT_UNPACKS, CIRCULANT_MEETS };

/* Between a run of blocks in their buffer and the same blocks one after another at `whole`: copies in or out, or (MEETS) whole =
 * block (op) whole. Returns the step after which that is done. */
static int32_t circulant_move(gci_builder *b, const circulant_cut *c, enum circulant_move move, int first, int64_t count,
                              gci_spot whole, int32_t after)
{
    while (count > 0) {
        int64_t n = circulant_piece(c, first, count);
        size_t bytes = circulant_between(c, first, first + (int)n);
        gci_spot piece = gci_spot_at(c->base, circulant_at(c, first));
        if (bytes > 0 && move == CIRCULANT_MEETS)
            gci_emit_pend(b, gci_emit_reduce(b, whole, piece, bytes, false, after));
        else if (bytes > 0)
            gci_emit_pend(b, move == CIRCULANT_PACKS ? gci_emit_copy(b, whole, piece, bytes, after)
                                                     : gci_emit_copy(b, piece, whole, bytes, after));
        whole = gci_spot_at(whole, bytes);
        first = (first + (int)n) % c->ranks;
        count -= n;
    }
    return gci_emit_join(b);
}

/* Sends a run of blocks after *ready, which becomes what the last message waits for.
 * Returns the step after which all have left. */
static int32_t circulant_send(gci_builder *b, const circulant_cut *c, int peer, int first, int64_t count, int32_t *ready)
{
    int32_t sent = GCI_NO_STEP;
    while (count > 0) {
        int64_t n = circulant_part(c, first, count);
        size_t bytes = circulant_bytes(c, first, n);
        gci_spot from = gci_spot_at(c->base, circulant_at(c, first));
        if (bytes > 0 && circulant_piece(c, first, n) < n) {
            from = gci_emit_slot(b, bytes);
            *ready = circulant_move(b, c, CIRCULANT_PACKS, first, n, from, *ready);
        }
        if (bytes > 0)
            sent = gci_emit_both(b, sent, gci_emit_send(b, peer, from, bytes, *ready));
        first = (first + (int)n) % c->ranks;
        count -= n;
    }
    return sent;
}

/* Receives a run of blocks to where they belong, or (whole not NULL) one after another. Returns the step after which they are
 * there. */
static int32_t circulant_recv(gci_builder *b, const circulant_cut *c, int peer, int first, int64_t count, const gci_spot *whole,
                              int32_t after)
{
    int32_t there = GCI_NO_STEP;
    size_t further = 0;
    while (count > 0) {
        int64_t n = circulant_part(c, first, count);
        size_t bytes = circulant_bytes(c, first, n);
        bool unpack = !whole && circulant_piece(c, first, n) < n;
        if (bytes > 0) {
            gci_spot to = whole ? gci_spot_at(*whole, further) : unpack ? gci_emit_slot(b, bytes)
                                                                        : gci_spot_at(c->base, circulant_at(c, first));
            int32_t came = gci_emit_recv(b, peer, to, bytes, after);
            there = gci_emit_both(b, there, unpack ? circulant_move(b, c, CIRCULANT_UNPACKS, first, n, to, came) : came);
        }
        further += bytes;
        first = (first + (int)n) % c->ranks;
        count -= n;
    }
    return there;
}

/* ---- allgather, reduce_scatter, allreduce -------------------------------------------------------------------------- */

/* After round k a rank has the blocks of the skip[k + 1] ranks from itself on:
 *
 *      own ... r + skip[k] - 1 | r + skip[k] ... r + skip[k + 1] - 1       it has the left ones, and sends of them as many
 *                                                                          as it gets, the first ones, to r - skip[k]
 * own: the step after which its own block is in the buffer; free: the others may be written. */
static void circulant_gather(gci_builder *b, const circulant_graph *g, const circulant_cut *c, int32_t own, int32_t free)
{
    int32_t have[GCI_CIRCULANT_ROUNDS_MAX + 1] = { own };       /* [k]: the step after which skip[k] blocks are there */
    for (int k = 0; k < g->rounds; k++) {
        int64_t count = g->skip[k + 1] - g->skip[k];
        int up = circulant_away(g, g->rank, g->skip[k]), enough = 0;
        while (g->skip[enough] < count)
            enough++;
        int32_t ready = have[enough];
        circulant_send(b, c, circulant_away(g, g->rank, -g->skip[k]), g->rank, count, &ready);
        have[k + 1] = gci_emit_both(b, have[k], circulant_recv(b, c, up, up, count, NULL, free));
    }
}

/* The allgather turned round in time: before round k a rank has partial results for the skip[k + 1] ranks from itself on, sends
 * the right ones to r + skip[k] and adds what comes to the left ones. They stand in scratch in that order, so only the first
 * round, from the input, meets the gap. Returns the step after which this rank's block is at `result`; *read: the input is no
 * longer needed. */
static int32_t circulant_scatter(gci_builder *b, const circulant_graph *g, const circulant_cut *in, gci_spot result,
                                 int32_t *read)
{
    int k = g->rounds - 1, r = g->rank;
    bool apart = !b->input_is_recv;     /* then the last message may come to where the result goes */
    int64_t count = g->skip[k + 1] - g->skip[k];
    gci_spot sum = apart && k == 0 ? result : gci_emit_slot(b, circulant_bytes(in, r, g->skip[k]));
    int32_t ready = b->ready;
    int32_t sent = circulant_send(b, in, circulant_away(g, r, g->skip[k]), circulant_away(g, r, g->skip[k]), count, &ready);
    int32_t came = circulant_recv(b, in, circulant_away(g, r, -g->skip[k]), r, count, &sum, b->ready);
    int32_t summed = gci_emit_both(b, ready, circulant_move(b, in, CIRCULANT_MEETS, r, count, sum, came));
    if (count < g->skip[k]) {           /* one block more than come: p is odd */
        gci_spot rest = gci_spot_at(sum, circulant_bytes(in, r, count));
        summed = gci_emit_both(b, summed, circulant_move(b, in, CIRCULANT_PACKS, circulant_away(g, r, count), 1, rest, b->ready));
    }
    *read = gci_emit_both(b, sent, summed);
    while (k-- > 0) {
        size_t before = circulant_bytes(in, r, g->skip[k]), right = circulant_bytes(in, r, g->skip[k + 1]) - before;
        size_t left = circulant_bytes(in, r, g->skip[k + 1] - g->skip[k]);
        if (right > 0)
            gci_emit_send(b, circulant_away(g, r, g->skip[k]), gci_spot_at(sum, before), right, summed);
        if (left == 0)
            continue;
        bool last = apart && k == 0;
        gci_spot slot = last ? result : gci_emit_slot(b, left), to = last ? result : sum;
        came = gci_emit_recv(b, circulant_away(g, r, -g->skip[k]), slot, left, last ? b->ready : GCI_NO_STEP);
        int32_t added = gci_emit_reduce(b, to, last ? sum : slot, left, false, came);
        gci_emit_also(b, added, summed);
        summed = added;
    }
    size_t own = circulant_bytes(in, r, 1);
    return apart || own == 0 ? summed : gci_emit_copy(b, result, sum, own, summed);
}

static void circulant_in_blocks(gci_builder *b)
{
    const gci_call *call = b->call;
    const gci_spot recv = { GCI_BUF_RECV, 0 };
    circulant_graph g = circulant_make(call->ranks, call->rank);
    const gci_blocks *blocks = call->coll == GCI_ALLGATHER ? &call->recv : call->coll == GCI_REDUCE_SCATTER ? &call->send : NULL;
    circulant_cut in = circulant_cut_of(call, blocks, b->input), out = circulant_cut_of(call, blocks, recv);
    gci_spot result = call->coll == GCI_REDUCE_SCATTER ? recv : gci_spot_at(recv, circulant_at(&out, call->rank));
    int32_t own = b->ready, read = GCI_NO_STEP;
    if (call->coll == GCI_ALLGATHER || g.rounds == 0) {
        if (!b->input_is_recv && circulant_bytes(&out, call->rank, 1) > 0)
            own = gci_emit_copy(b, result, b->input, circulant_bytes(&out, call->rank, 1), b->ready);
    } else {
        own = circulant_scatter(b, &g, &in, result, &read);
    }
    if (call->coll != GCI_REDUCE_SCATTER)
        circulant_gather(b, &g, &out, own, b->input_is_recv ? read : GCI_NO_STEP);
}

GCI void gci_circulant_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    if (gci_coll_reduces(call->coll) && (!call->commutative || !call->associative || call->canonical))
        b->error = GC_ERR_UNSUPPORTED;
    else if (call->coll == GCI_BCAST || call->coll == GCI_REDUCE)
        circulant_in_segments(b);
    else
        circulant_in_blocks(b);
}
