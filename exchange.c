/* exchange.c: collectives among ranks that are equally near (pure).
 * SPDX-License-Identifier: MIT
 *
 * For p ranks and m bytes (the vector, or all blocks together); k is log2(p) rounded up. Each takes any p.
 *
 *   doubling   barrier         k rounds of p messages (Hensgen, Finkel, Manber 1988)
 *              allreduce       k rounds of m bytes, p k messages; one round more unless p is a power of two
 *              allgather       k rounds, (p - 1) / p * m bytes; p a power of two, even blocks
 *              scan, exscan    k rounds of m bytes, on aligned blocks of ranks as in recursive doubling
 *   halving    allreduce       2 k rounds, 2 (p - 1) / p * m bytes (Rabenseifner 2004); 2 m more unless a power of two
 *              reduce, reduce_scatter      likewise; reduce_scatter k rounds, (p - 1) / p * m bytes
 *   ring       allgather, reduce_scatter   p - 1 rounds, (p - 1) / p * m bytes
 *              allreduce       2 (p - 1) rounds, 2 (p - 1) / p * m bytes (Patarasuk, Yuan 2009), the fewest there can be
 *   bruck      allgather       k rounds, (p - 1) / p * m bytes
 *              alltoall        k rounds, m / 2 bytes each (Bruck et al. 1997)
 *   pairwise   alltoall        p / 2 rounds, (p - 1) / p * m bytes, two exchanges at a time, so that few flows share a queue
 *              reduce_scatter  p - 1 rounds, (p - 1) / p * m bytes, one exchange at a time
 *   direct     all to all at once; takes every call. scan, exscan: everybody gets all lower vectors; in segments, a
 *              chain, or doubling if canonical
 *   scatter    bcast           k + p - 1 rounds, 2 (p - 1) / p * m bytes (van de Geijn 1994)
 *
 * Scratch: doubling a vector per round, or a few segments, bruck's alltoall two messages per round; of the others a few vectors
 * at most.
 *
 * They are made of a few phases. Among a power of two of players, halving and doubling are each other's inverse:
 *
 *   player          0        1        2        3                    at the end of halving
 *   near first   <- 1 ->  <- 0 ->  <- 3 ->  <- 2 ->   piece 0 2 1 3: ranks meet as neighbours, in order; for allreduce, reduce
 *   far first    <- 2 ->  <- 3 ->  <- 0 ->  <- 1 ->   piece 0 1 2 3: block i is at player i at once; for reduce_scatter
 *
 * Other numbers of ranks fold (Rabenseifner 2004): the lowest ranks pair up until a power of two of players is left.
 */
#include "gridcomm_int.h"

enum { EXCHANGE_AHEAD = 4,      /* pieces that a ring, a scan or a pairwise exchange has in scratch: one is met, others come */
       EXCHANGE_TURNS = 2,      /* exchanges at a time of an alltoall: while one ends, bytes of the next fill the link */
       EXCHANGE_WINDOW = 16,    /* operands that a direct reduction receives ahead: bounds scratch, keeps senders busy */
       EXCHANGE_HEIGHT = 32 };  /* partial results of a canonical expression: one per bit of the number of ranks */

static const gci_spot exchange_recv_buf = { GCI_BUF_RECV, 0 };

/* ---- messages and pieces ------------------------------------------------------------------------------------------- */

/* What has no bytes is no message: both ends know. */
static int32_t exchange_send(gci_builder *b, int peer, gci_spot from, size_t bytes, int32_t after)
{
    return bytes > 0 ? gci_emit_send(b, peer, from, bytes, after) : GCI_NO_STEP;
}

static int32_t exchange_recv(gci_builder *b, int peer, gci_spot to, size_t bytes, int32_t after)
{
    return bytes > 0 ? gci_emit_recv(b, peer, to, bytes, after) : GCI_NO_STEP;
}

/* Returns the step after which the data is at `to`. */
static int32_t exchange_copy(gci_builder *b, gci_spot to, gci_spot from, size_t bytes, int32_t after)
{
    bool there = to.buf == from.buf && to.at == from.at;
    return bytes > 0 && !there ? gci_emit_copy(b, to, from, bytes, after) : after;
}

static int32_t exchange_reduce(gci_builder *b, gci_spot to, gci_spot from, size_t bytes, bool swapped, int32_t after)
{
    return bytes > 0 ? gci_emit_reduce(b, to, from, bytes, swapped, after) : after;
}

/* The rank that stands so far after this one, or before it. */
static int exchange_peer(const gci_call *call, int distance)
{
    return (int)(((int64_t)call->rank + distance + call->ranks) % call->ranks);
}

static gci_spot exchange_block(gci_spot buffer, const gci_blocks *blocks, int i)
{
    return gci_spot_at(buffer, gci_block_at(blocks, i));
}

/* n pieces, one after another, whose sizes the caller fills in before it packs them. Returns what it frees; NULL: no memory. */
static size_t *exchange_pieces(gci_builder *b, int n, gci_blocks *pieces)
{
    size_t *size = gci_alloc(b->env, 2 * (size_t)n * sizeof *size);
    *pieces = (gci_blocks){ 0, size, size ? size + n : NULL };
    if (!size)
        b->error = GC_ERR_NOMEM;
    return size;
}

static void exchange_pack(size_t *size, int n)
{
    for (int i = 1; i < n; i++)
        size[n + i] = size[n + i - 1] + size[i - 1];
}

/* Cuts the vector into n pieces of whole elements, the first ones one element longer where it does not come out even. */
static size_t *exchange_cut(gci_builder *b, int n, gci_blocks *pieces)
{
    size_t *size = exchange_pieces(b, n, pieces), count = b->call->bytes / b->call->elem_bytes;
    if (!size)
        return NULL;
    for (int i = 0; i < n; i++)
        size[i] = (count / (size_t)n + ((size_t)i < count % (size_t)n)) * b->call->elem_bytes;
    exchange_pack(size, n);
    return size;
}

/* Says GC_ERR_UNSUPPORTED to operations that need more of an algorithm than it has. None evaluates from rank 0 up. */
static bool exchange_refuses(gci_builder *b, bool in_order, bool canonical)
{
    const gci_call *call = b->call;
    if (!call->associative || (!call->commutative && !in_order) || (call->canonical && !canonical))
        b->error = GC_ERR_UNSUPPORTED;
    return b->error != GC_OK;
}

/* ---- operands that meet ---------------------------------------------------------------------------------------------- */

/* A vector or a part of one, at a place after a step. */
typedef struct exchange_value {
    gci_spot at;
    int32_t  last;
    int32_t  used;          /* the step after which the receive buffer, if the input was there, may be overwritten */
} exchange_value;

/* Meets what came from a peer; the result replaces that, since what is here may still be on its way. Rank order even if it
 * commutes: -0 and NaNs would tell partners apart. */
static void exchange_meet(gci_builder *b, exchange_value *v, int peer, gci_spot came_at, size_t bytes, int32_t came)
{
    v->last = exchange_reduce(b, came_at, v->at, bytes, peer < b->call->rank, gci_emit_both(b, v->last, came));
    v->at = came_at;
}

typedef struct exchange_part { size_t at, bytes; } exchange_part;

static exchange_part exchange_segment(const gci_call *call, size_t bytes, int32_t i)
{
    size_t at = gci_segment_at(call, bytes, i);
    return (exchange_part){ at, gci_segment_at(call, bytes, i + 1) - at };
}

/* Trades with a peer: gives one part of the value and goes on with another one, met with the peer's, in the slot. */
static void exchange_trade(gci_builder *b, exchange_value *v, int peer, exchange_part give, exchange_part keep, gci_spot slot)
{
    bool from_recv = v->at.buf == GCI_BUF_RECV;
    int32_t came = exchange_recv(b, peer, slot, keep.bytes, b->ready);
    int32_t sent = exchange_send(b, peer, gci_spot_at(v->at, give.at), give.bytes, v->last);
    v->at = gci_spot_at(v->at, keep.at);
    exchange_meet(b, v, peer, slot, keep.bytes, came);
    if (from_recv)
        v->used = gci_emit_both(b, sent, v->last);
}

/* ---- a power of two of players ---------------------------------------------------------------------------------------- */

/* With p = 2^k + pairs the first 2 * pairs ranks fold, the even into the odd one, so that the 2^k players hold runs of ranks in
 * rank order:
 *
 *     ranks 0 1 2 3 4 5    fold 0 > 1, 2 > 3; the players are 1 3 4 5
 *
 * In a rooted call the root plays, also if it is the even one. */
typedef struct exchange_team {
    int players, pairs;
    int root;               /* GCI_NO_STEP: none */
    int player;             /* this rank's number; GCI_NO_STEP: folded */
    int mate;               /* the other one of its pair, or GCI_NO_STEP */
} exchange_team;

static int exchange_rank_of(const exchange_team *t, int player)
{
    return player < t->pairs ? 2 * player + (t->root != 2 * player) : player + t->pairs;
}

static int exchange_player_of(const exchange_team *t, int rank)
{
    return rank < 2 * t->pairs ? rank / 2 : rank - t->pairs;
}

static exchange_team exchange_team_of(const gci_call *call, int root)
{
    exchange_team t = { .players = 1, .root = root, .mate = GCI_NO_STEP };
    while (t.players <= call->ranks / 2)
        t.players *= 2;
    t.pairs = call->ranks - t.players;
    if (call->rank < 2 * t.pairs)
        t.mate = call->rank ^ 1;
    t.player = exchange_player_of(&t, call->rank);
    if (exchange_rank_of(&t, t.player) != call->rank)
        t.player = GCI_NO_STEP;
    return t;
}

/* Does folding and pairing neighbours, then neighbours of these and so on, give the canonical expression? It does where the
 * number of ranks, written in base 2, has its ones side by side: 1 to 4, 6 to 8, 12, 14 to 16. */
static bool exchange_is_canonical(int ranks)
{
    return (ranks & (ranks + (ranks & -ranks))) == 0;
}

/* What a player starts with; a folded rank has sent its vector after .last. */
static exchange_value exchange_fold(gci_builder *b, const exchange_team *t, size_t bytes)
{
    exchange_value v = { b->input, b->ready, GCI_NO_STEP };
    if (t->player == GCI_NO_STEP) {
        v.last = exchange_send(b, t->mate, v.at, bytes, v.last);
    } else if (t->mate != GCI_NO_STEP) {
        gci_spot slot = gci_emit_slot(b, bytes);
        exchange_meet(b, &v, t->mate, slot, bytes, exchange_recv(b, t->mate, slot, bytes, GCI_NO_STEP));
        v.used = b->input_is_recv ? v.last : GCI_NO_STEP;
    }
    return v;
}

/* The result of an allreduce, at players after `ready`, reaches their mates, who are through with the input after it. */
static void exchange_unfold(gci_builder *b, const exchange_team *t, int32_t ready)
{
    if (t->player == GCI_NO_STEP)
        exchange_recv(b, t->mate, exchange_recv_buf, b->call->bytes, b->input_is_recv ? ready : GCI_NO_STEP);
    else if (t->mate != GCI_NO_STEP)
        exchange_send(b, t->mate, exchange_recv_buf, b->call->bytes, ready);
}

/* In the round of halving that begins with 1 / part of the vector, players meet whose numbers differ in this bit. */
static int exchange_bit(const exchange_team *t, int part, bool near_first)
{
    return near_first ? part : t->players / 2 / part;
}

/* The piece that a player has at the end of halving; near first, and so its inverse: the bits of its number turned round. */
static int exchange_piece(const exchange_team *t, int player, bool near_first)
{
    int piece = 0;
    for (int part = 1; part < t->players; part *= 2)
        piece = 2 * piece + ((player & exchange_bit(t, part, near_first)) != 0);
    return piece;
}

/* Recursive halving: players trade halves of what they still have. At the end the value is this player's piece; it lies in
 * *result, or in scratch if that is NULL, or, of one player, where it was. */
static void exchange_halve(gci_builder *b, const exchange_team *t, const gci_blocks *pieces, bool near_first, exchange_value *v,
                           const gci_spot *result)
{
    int first = 0, end = t->players;
    for (int part = 1; part < t->players; part *= 2) {
        int bit = exchange_bit(t, part, near_first), middle = (first + end) / 2;
        exchange_part low = { 0, gci_blocks_bytes(pieces, first, middle) };
        exchange_part high = { low.bytes, gci_blocks_bytes(pieces, middle, end) };
        bool upper = t->player & bit;
        exchange_part keep = upper ? high : low;
        gci_spot slot = result && 2 * part == t->players ? *result : gci_emit_slot(b, keep.bytes);
        exchange_trade(b, v, exchange_rank_of(t, t->player ^ bit), upper ? low : high, keep, slot);
        if (upper)
            first = middle;
        else
            end = middle;
    }
}

/* Recursive doubling, the inverse: the pieces, each at its place in the vector, are put together at all players, or at the
 * player `to` alone. Returns the step after which they are. */
static int32_t exchange_double(gci_builder *b, const exchange_team *t, const gci_blocks *pieces, bool near_first, int to,
                               gci_spot vector, exchange_value mine)
{
    int piece = exchange_piece(t, t->player, near_first);
    for (int runs = t->players, size = 1; runs > 1; runs /= 2, size *= 2) {
        int bit = exchange_bit(t, runs / 2, near_first), first = piece / size * size, other = first ^ size;
        int peer = exchange_rank_of(t, t->player ^ bit);
        bool passes_on = to != GCI_NO_STEP && ((t->player ^ to) & bit);
        int32_t came = GCI_NO_STEP;
        if (!passes_on)
            came = exchange_recv(b, peer, exchange_block(vector, pieces, other),
                                 gci_blocks_bytes(pieces, other, other + size), mine.used);
        if (passes_on || to == GCI_NO_STEP)
            exchange_send(b, peer, exchange_block(vector, pieces, first),
                          gci_blocks_bytes(pieces, first, first + size), mine.last);
        if (passes_on)
            return mine.last;
        mine.last = gci_emit_both(b, mine.last, came);
    }
    return mine.last;
}

/* ---- doubling ---------------------------------------------------------------------------------------------------------- */

/* In round j rank r tells r + 2^j and hears from r - 2^j; after the last one everybody has heard of everybody. */
static void exchange_dissemination(gci_builder *b)
{
    const gci_spot nothing = { GCI_BUF_TEMP, 0 };
    int32_t heard = GCI_NO_STEP;
    for (int distance = 1; distance < b->call->ranks; distance *= 2) {
        int32_t now = gci_emit_recv(b, exchange_peer(b->call, -distance), nothing, 0, GCI_NO_STEP);
        gci_emit_send(b, exchange_peer(b->call, distance), nothing, 0, heard);
        if (distance < b->call->ranks - distance)
            heard = gci_emit_both(b, heard, now);
        else
            break;
    }
}

/* Players trade whole vectors. */
static void exchange_doubling_allreduce(gci_builder *b)
{
    const exchange_part whole = { 0, b->call->bytes };
    exchange_team t = exchange_team_of(b->call, GCI_NO_STEP);
    exchange_value v = exchange_fold(b, &t, whole.bytes);
    if (t.player != GCI_NO_STEP) {
        for (int bit = 1; bit < t.players; bit *= 2) {
            bool last = bit == t.players / 2 && !b->input_is_recv;
            gci_spot slot = last ? exchange_recv_buf : gci_emit_slot(b, whole.bytes);
            exchange_trade(b, &v, exchange_rank_of(&t, t.player ^ bit), whole, whole, slot);
        }
        v.last = exchange_copy(b, exchange_recv_buf, v.at, whole.bytes, gci_emit_both(b, v.last, v.used));
    }
    exchange_unfold(b, &t, v.last);
}

static void exchange_doubling_allgather(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_team t = exchange_team_of(call, GCI_NO_STEP);
    gci_spot own = exchange_block(exchange_recv_buf, &call->recv, call->rank);
    if (t.pairs > 0 || !call->even) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    int32_t here = exchange_copy(b, own, b->input, call->own, GCI_NO_STEP);
    exchange_double(b, &t, &call->recv, false, GCI_NO_STEP, exchange_recv_buf, (exchange_value){ own, here, GCI_NO_STEP });
}

/* The scratch of a segment, in which another one comes after `free`. */
typedef struct exchange_room { gci_spot slot[EXCHANGE_HEIGHT]; int slots; size_t bytes; int32_t free; } exchange_room;

static gci_spot exchange_room_slot(gci_builder *b, exchange_room *room, int i)
{
    if (i == room->slots)
        room->slot[room->slots++] = gci_emit_slot(b, room->bytes);
    return room->slot[i];
}

/* A rank holds the partial result of a block of 2^j ranks that begins at a multiple of 2^j, and its prefix so far. In round j
 * the two halves of each block of 2^(j+1) trade; for the upper half the lower one's comes before its prefix. Hence the
 * prefix of n ranks is made of blocks as the digits of n in base 2 say, which is the canonical expression. What no later
 * round will ask for is not sent down: p k - (p - 1) messages at most, for powers of two as many as Hillis, Steele 1986.
 * ready: by round, the step after which the segment before was sent. */
static void exchange_scan_part(gci_builder *b, exchange_part part, exchange_room *room, int32_t ready[EXCHANGE_HEIGHT])
{
    const gci_call *call = b->call;
    gci_spot input = gci_spot_at(b->input, part.at), result = gci_spot_at(exchange_recv_buf, part.at);
    exchange_value block = { input, b->ready, GCI_NO_STEP };
    int slots = 0, round = 0;
    if (b->input_is_recv) {
        block.at = exchange_room_slot(b, room, slots++);
        block.last = exchange_copy(b, block.at, input, part.bytes, gci_emit_both(b, b->ready, room->free));
    }
    int32_t prefix = block.last;
    if (call->coll == GCI_SCAN)
        prefix = exchange_copy(b, result, input, part.bytes, b->input_is_recv ? prefix : GCI_NO_STEP);
    bool has_prefix = call->coll == GCI_SCAN;
    for (int64_t bit = 1; bit < call->ranks; bit *= 2, round++) {
        int peer = (int)(call->rank ^ bit);
        bool upper = call->rank & bit, wanted = (call->rank / (2 * bit) + 1) * 2 * bit < call->ranks;
        if (upper ? wanted : peer < call->ranks) {
            ready[round] = gci_emit_both(b, ready[round], block.last);
            gci_emit_pend(b, exchange_send(b, peer, block.at, part.bytes, ready[round]));
        }
        if (!upper && !wanted)
            continue;
        gci_spot slot = exchange_room_slot(b, room, slots++);
        int32_t came = exchange_recv(b, peer, slot, part.bytes, room->free), both = gci_emit_both(b, prefix, came);
        if (upper && has_prefix)
            came = prefix = exchange_reduce(b, result, slot, part.bytes, false, both);
        else if (upper)
            came = prefix = exchange_copy(b, result, slot, part.bytes, both);
        has_prefix |= upper;
        if (wanted)
            exchange_meet(b, &block, peer, slot, part.bytes, came);
    }
    gci_emit_pend(b, prefix);
    gci_emit_pend(b, block.last);
}

/* Segments take turns in scratch, and none overtakes another. */
static void exchange_doubling_scan(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_room room[EXCHANGE_AHEAD];
    int32_t segments = gci_segments(call, call->bytes), ready[EXCHANGE_HEIGHT], free = GCI_NO_STEP;
    for (int round = 0; round < EXCHANGE_HEIGHT; round++)
        ready[round] = GCI_NO_STEP;
    for (int32_t i = 0; i < segments; i++) {
        exchange_part part = exchange_segment(call, call->bytes, i);
        exchange_room *turn = &room[i % EXCHANGE_AHEAD];
        if (i < EXCHANGE_AHEAD)
            *turn = (exchange_room){ .bytes = part.bytes, .free = GCI_NO_STEP };
        exchange_scan_part(b, part, turn, ready);
        if (i + EXCHANGE_AHEAD < segments) {
            gci_emit_pend(b, free);
            turn->free = free = gci_emit_join(b);
        }
    }
}

GCI void gci_doubling_algo(gci_builder *b)
{
    switch (b->call->coll) {
    case GCI_BARRIER:
        exchange_dissemination(b);
        break;
    case GCI_ALLGATHER:
        exchange_doubling_allgather(b);
        break;
    case GCI_ALLREDUCE:
        if (!exchange_refuses(b, true, exchange_is_canonical(b->call->ranks)))
            exchange_doubling_allreduce(b);
        break;
    default:
        if (!exchange_refuses(b, true, true))
            exchange_doubling_scan(b);
    }
}

/* ---- halving ----------------------------------------------------------------------------------------------------------- */

/* Halving, and then doubling: to all for an allreduce, to the root for a reduce. */
static void exchange_rabenseifner(gci_builder *b)
{
    const gci_call *call = b->call;
    bool rooted = call->coll == GCI_REDUCE;
    exchange_team t = exchange_team_of(call, rooted ? call->root : GCI_NO_STEP);
    exchange_value v = exchange_fold(b, &t, call->bytes);
    if (t.player != GCI_NO_STEP) {
        gci_blocks pieces;
        size_t *memory = exchange_cut(b, t.players, &pieces);
        if (!memory)
            return;
        gci_spot vector = gci_call_has_result(call) ? exchange_recv_buf : gci_emit_slot(b, call->bytes);
        int piece = exchange_piece(&t, t.player, true);
        gci_spot own = exchange_block(vector, &pieces, piece);
        exchange_halve(b, &t, &pieces, true, &v, b->input_is_recv ? NULL : &own);
        v.last = exchange_copy(b, own, v.at, gci_block_bytes(&pieces, piece), gci_emit_both(b, v.last, v.used));
        v.last = exchange_double(b, &t, &pieces, true, rooted ? exchange_player_of(&t, call->root) : GCI_NO_STEP, vector, v);
        gci_free(b->env, memory);
    }
    if (!rooted)
        exchange_unfold(b, &t, v.last);
}

/* The players' pieces in a reduce_scatter: the blocks of one or two ranks, in the order in which halving cuts. */
static size_t *exchange_team_blocks(gci_builder *b, const exchange_team *t, bool near_first, gci_blocks *pieces)
{
    size_t *size = exchange_pieces(b, t->players, pieces);
    if (!size)
        return NULL;
    for (int player = 0; player < t->players; player++) {
        int first = player < t->pairs ? 2 * player : player + t->pairs;
        size[exchange_piece(t, player, near_first)] = gci_blocks_bytes(&b->call->send, first, first + 1 + (player < t->pairs));
    }
    exchange_pack(size, t->players);
    return size;
}

/* Far first, blocks are where they are. What must meet in rank order meets near first, and is laid out for that before. */
static void exchange_halving_scatter(gci_builder *b, const exchange_team *t, exchange_value v)
{
    const gci_call *call = b->call;
    bool near_first = !call->commutative || call->canonical;
    size_t total = gci_blocks_bytes(&call->send, 0, call->ranks), from = 0;
    gci_blocks pieces;
    size_t *memory = exchange_team_blocks(b, t, near_first, &pieces);
    if (!memory)
        return;
    if (near_first) {
        gci_spot layout = gci_emit_slot(b, total);
        for (int player = 0; player < t->players; player++) {
            int piece = exchange_piece(t, player, true);
            gci_emit_pend(b, exchange_copy(b, exchange_block(layout, &pieces, piece), gci_spot_at(v.at, from),
                                           gci_block_bytes(&pieces, piece), v.last));
            from += gci_block_bytes(&pieces, piece);
        }
        v = (exchange_value){ layout, gci_emit_join(b), GCI_NO_STEP };
    }
    exchange_halve(b, t, &pieces, near_first, &v, t->mate == GCI_NO_STEP ? &exchange_recv_buf : NULL);
    gci_free(b->env, memory);
    size_t before = t->mate != GCI_NO_STEP && t->mate < call->rank ? gci_block_bytes(&call->send, t->mate) : 0;
    exchange_copy(b, exchange_recv_buf, gci_spot_at(v.at, before), call->own, v.last);
    if (t->mate != GCI_NO_STEP)
        exchange_send(b, t->mate, gci_spot_at(v.at, before ? 0 : call->own), gci_block_bytes(&call->send, t->mate), v.last);
}

GCI void gci_halving_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    if (exchange_refuses(b, true, exchange_is_canonical(call->ranks)))
        return;
    if (call->coll != GCI_REDUCE_SCATTER) {
        exchange_rabenseifner(b);
        return;
    }
    exchange_team t = exchange_team_of(call, GCI_NO_STEP);
    exchange_value v = exchange_fold(b, &t, gci_blocks_bytes(&call->send, 0, call->ranks));
    if (t.player != GCI_NO_STEP)
        exchange_halving_scatter(b, &t, v);
    else
        exchange_recv(b, t.mate, exchange_recv_buf, call->own, b->ready);
}

/* ---- rings ------------------------------------------------------------------------------------------------------------- */

/* Ranks in a ring, by their number from the first one. Each has a piece; pieces travel to the right, in segments, so that
 * what has come is met or passed on while the rest comes. */
typedef struct exchange_ring { int ranks, me, left, right; } exchange_ring;

static exchange_ring exchange_ring_of(const gci_call *call, int first)
{
    exchange_ring ring = { call->ranks, (int)(((int64_t)call->rank - first + call->ranks) % call->ranks),
                           exchange_peer(call, -1), exchange_peer(call, 1) };
    return ring;
}

static int exchange_before(const exchange_ring *ring, int distance)
{
    return (int)(((int64_t)ring->me - distance + ring->ranks) % ring->ranks);
}

/* Sends a piece to the right. The join is the step after which that is done. */
static void exchange_ring_send(gci_builder *b, const exchange_ring *ring, gci_spot piece, size_t bytes, int32_t after)
{
    for (int32_t i = 0; i < gci_segments(b->call, bytes); i++) {
        exchange_part part = exchange_segment(b->call, bytes, i);
        gci_emit_pend(b, exchange_send(b, ring->right, gci_spot_at(piece, part.at), part.bytes, after));
    }
}

/* Piece i begins at rank i + 1, meets what each on its way has of it, and ends at rank i, in *result. Of one ring all
 * messages keep their order, so whatever waits, waits for what those before it do. */
static exchange_value exchange_ring_reduce(gci_builder *b, const exchange_ring *ring, const gci_blocks *pieces, gci_spot result)
{
    const gci_call *call = b->call;
    gci_spot slot[EXCHANGE_AHEAD];
    int32_t sent[EXCHANGE_AHEAD], met = b->ready, passed = met;
    size_t longest = 0;
    int first = exchange_before(ring, 1);
    for (int i = 0; i < ring->ranks; i++)
        longest = gci_max(longest, gci_block_bytes(pieces, i));
    exchange_ring_send(b, ring, exchange_block(b->input, pieces, first), gci_block_bytes(pieces, first), b->ready);
    int32_t input_sent = gci_emit_join(b);
    for (int t = 0; t < ring->ranks - 1; t++) {
        int piece = exchange_before(ring, t + 2), turn = t % EXCHANGE_AHEAD;
        size_t bytes = gci_block_bytes(pieces, piece);
        gci_spot input = exchange_block(b->input, pieces, piece);
        bool last = t == ring->ranks - 2, into_slot = !last || b->input_is_recv;
        if (into_slot && t < EXCHANGE_AHEAD)
            slot[turn] = gci_emit_slot(b, longest);
        gci_spot here = into_slot ? slot[turn] : result;
        passed = t < EXCHANGE_AHEAD ? b->ready : sent[turn];
        for (int32_t i = 0; i < gci_segments(call, bytes); i++) {
            exchange_part part = exchange_segment(call, bytes, i);
            gci_spot came_at = gci_spot_at(here, part.at), own_at = gci_spot_at(input, part.at);
            int32_t came = exchange_recv(b, ring->left, came_at, part.bytes, passed), both = gci_emit_both(b, met, came);
            if (last && into_slot)
                met = exchange_reduce(b, own_at, came_at, part.bytes, false, both);
            else
                met = exchange_reduce(b, came_at, own_at, part.bytes, false, both);
            if (!last)
                gci_emit_pend(b, exchange_send(b, ring->right, came_at, part.bytes, met));
        }
        gci_emit_pend(b, t > 0 ? sent[(t - 1) % EXCHANGE_AHEAD] : b->ready);
        sent[turn] = gci_emit_join(b);
    }
    return (exchange_value){ result, met, b->input_is_recv ? gci_emit_both(b, met, input_sent) : passed };
}

/* Every piece goes round, from rank to rank, into its place in the receive buffer; but nobody gets the next pieces after its
 * own which it has already, `have` in all with its own (and the one to the right right_has). */
static void exchange_ring_gather(gci_builder *b, const exchange_ring *ring, const gci_blocks *pieces, exchange_value own,
                                 int have, int right_has)
{
    const gci_call *call = b->call;
    if (right_has < ring->ranks)
        exchange_ring_send(b, ring, own.at, gci_block_bytes(pieces, ring->me), own.last);
    gci_emit_join(b);
    for (int t = 1; t < ring->ranks; t++) {
        int piece = exchange_before(ring, t);
        size_t bytes = gci_block_bytes(pieces, piece);
        for (int32_t i = 0; i < gci_segments(call, bytes); i++) {
            exchange_part part = exchange_segment(call, bytes, i);
            gci_spot at = gci_spot_at(exchange_recv_buf, gci_block_at(pieces, piece) + part.at);
            int32_t came = GCI_NO_STEP;
            if (t <= ring->ranks - have)
                came = exchange_recv(b, ring->left, at, part.bytes, own.used);
            if (t < ring->ranks - right_has) {
                own.last = gci_emit_both(b, own.last, came);
                exchange_send(b, ring->right, at, part.bytes, own.last);
            }
        }
    }
}

GCI void gci_ring_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_ring ring = exchange_ring_of(call, 0);
    gci_blocks pieces;
    size_t *memory;
    if (call->coll == GCI_ALLGATHER) {
        exchange_copy(b, exchange_block(exchange_recv_buf, &call->recv, call->rank), b->input, call->own, GCI_NO_STEP);
        exchange_ring_gather(b, &ring, &call->recv, (exchange_value){ b->input, b->ready, GCI_NO_STEP }, 1, 1);
    } else if (exchange_refuses(b, false, false)) {
        return;
    } else if (call->ranks == 1) {
        exchange_copy(b, exchange_recv_buf, b->input, call->coll == GCI_ALLREDUCE ? call->bytes : call->own, b->ready);
    } else if (call->coll == GCI_REDUCE_SCATTER) {
        exchange_ring_reduce(b, &ring, &call->send, exchange_recv_buf);
    } else if ((memory = exchange_cut(b, call->ranks, &pieces)) != NULL) {
        gci_spot own = exchange_block(exchange_recv_buf, &pieces, call->rank);
        exchange_ring_gather(b, &ring, &pieces, exchange_ring_reduce(b, &ring, &pieces, own), 1, 1);
        gci_free(b->env, memory);
    }
}

/* How many ranks the subtree of a rank of the binomial tree has: itself and those after it. */
static int exchange_span(int me, int ranks)
{
    return me == 0 ? ranks : (int)gci_min((size_t)(me & -me), (size_t)(ranks - me));
}

/* Down a binomial tree each gets the pieces of its subtree, which is a run of ranks (counted from the root); the ring brings the
 * others. Nobody gets a piece twice (as in Zhou et al. 2015). */
GCI void gci_scatter_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_ring ring = exchange_ring_of(call, call->root);
    int me = ring.me, have = exchange_span(me, ring.ranks), child = 1;
    gci_blocks pieces;
    size_t *memory = exchange_cut(b, ring.ranks, &pieces);
    if (!memory)
        return;
    exchange_value own = { exchange_block(exchange_recv_buf, &pieces, me), GCI_NO_STEP, GCI_NO_STEP };
    if (me > 0)
        own.last = exchange_recv(b, exchange_peer(call, -(me & -me)), own.at, gci_blocks_bytes(&pieces, me, me + have),
                                 GCI_NO_STEP);
    while (child < have)
        child *= 2;
    while ((child /= 2) > 0) {          /* the largest subtree first */
        int first = me + child, end = first + exchange_span(first, ring.ranks);
        exchange_send(b, exchange_peer(call, child), exchange_block(exchange_recv_buf, &pieces, first),
                      gci_blocks_bytes(&pieces, first, end), own.last);
    }
    exchange_ring_gather(b, &ring, &pieces, own, have, exchange_span((me + 1) % ring.ranks, ring.ranks));
    gci_free(b->env, memory);
}

/* ---- Bruck ------------------------------------------------------------------------------------------------------------- */

/* Bytes of so many blocks from this rank's own on, round the highest rank. */
static size_t exchange_bytes_from(const gci_call *call, int count)
{
    int head = (int)gci_min((size_t)count, (size_t)(call->ranks - call->rank));
    return gci_blocks_bytes(&call->recv, call->rank, call->rank + head) + gci_blocks_bytes(&call->recv, 0, count - head);
}

/* Copies the stage's blocks r, r + 1, ... to where they belong; those that lie one after another there go as one. */
static void exchange_bruck_place(gci_builder *b, gci_spot stage, int32_t ready)
{
    const gci_call *call = b->call;
    int first = b->input_is_recv;               /* in place the own block is there */
    for (int i = first; i < call->ranks; i++) {
        int last = exchange_peer(call, i);
        size_t at = gci_block_at(&call->recv, exchange_peer(call, first));
        size_t end = gci_block_at(&call->recv, last) + gci_block_bytes(&call->recv, last);
        if (i < call->ranks - 1 && gci_block_at(&call->recv, exchange_peer(call, i + 1)) == end)
            continue;
        gci_spot from = gci_spot_at(stage, exchange_bytes_from(call, first));
        exchange_copy(b, gci_spot_at(exchange_recv_buf, at), from, end - at, ready);
        first = i + 1;
    }
}

/* The stage holds the blocks r, r + 1, ... In each round it goes to the rank as far below as it has blocks, and that of the rank
 * as far above comes behind it; so it doubles. */
static void exchange_bruck_allgather(gci_builder *b)
{
    const gci_call *call = b->call;
    gci_spot stage = gci_emit_slot(b, exchange_bytes_from(call, call->ranks));
    int32_t ready = exchange_copy(b, stage, b->input, call->own, GCI_NO_STEP);
    for (int have = 1, more; have < call->ranks; have += more) {
        more = (int)gci_min((size_t)have, (size_t)(call->ranks - have));
        size_t at = exchange_bytes_from(call, have), bytes = exchange_bytes_from(call, have + more) - at;
        exchange_send(b, exchange_peer(call, -have), stage, exchange_bytes_from(call, more), ready);
        int32_t came = exchange_recv(b, exchange_peer(call, have), gci_spot_at(stage, at), bytes, GCI_NO_STEP);
        ready = gci_emit_both(b, ready, came);
    }
    exchange_bruck_place(b, stage, ready);
}

/* Copies the blocks whose number has this bit, out of the stage, one after another, or back into it. Returns the step after which
 * they are there, and how many bytes they have. */
static int32_t exchange_bruck_pack(gci_builder *b, gci_spot stage, gci_spot packed, int bit, bool out, int32_t after,
                                   size_t *bytes)
{
    int64_t ranks = b->call->ranks;
    *bytes = 0;
    for (int64_t i = bit; i < ranks; i += 2 * (int64_t)bit) {
        size_t run = gci_min((size_t)bit, (size_t)(ranks - i)) * b->call->own;
        gci_spot there = gci_spot_at(packed, *bytes), here = gci_spot_at(stage, (size_t)i * b->call->own);
        gci_emit_pend(b, exchange_copy(b, out ? there : here, out ? here : there, run, after));
        *bytes += run;
    }
    return gci_emit_join(b);
}

/* Block i of the stage is on its way to rank r + i: in the round of 2^j those with that digit go 2^j ranks further, so at last
 * block i is the one from r - i. */
static void exchange_bruck_alltoall(gci_builder *b)
{
    const gci_call *call = b->call;
    size_t below = (size_t)call->rank * call->own, all = (size_t)call->ranks * call->own, bytes;
    if (!call->even) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    gci_spot stage = gci_emit_slot(b, all);
    gci_emit_pend(b, exchange_copy(b, stage, gci_spot_at(b->input, below), all - below, b->ready));
    gci_emit_pend(b, exchange_copy(b, gci_spot_at(stage, all - below), b->input, below, b->ready));
    int32_t ready = gci_emit_join(b);
    for (int bit = 1; bit < call->ranks; bit *= 2) {
        gci_spot out = gci_emit_slot(b, all / 2 + call->own), in = gci_emit_slot(b, all / 2 + call->own);
        ready = exchange_bruck_pack(b, stage, out, bit, true, ready, &bytes);
        exchange_send(b, exchange_peer(call, bit), out, bytes, ready);
        ready = gci_emit_both(b, ready, exchange_recv(b, exchange_peer(call, -bit), in, bytes, GCI_NO_STEP));
        ready = exchange_bruck_pack(b, stage, in, bit, false, ready, &bytes);
    }
    for (int i = 0; i < call->ranks; i++)
        exchange_copy(b, exchange_block(exchange_recv_buf, &call->recv, exchange_peer(call, -i)),
                      gci_spot_at(stage, (size_t)i * call->own), call->own, ready);
}

GCI void gci_bruck_algo(gci_builder *b)
{
    if (b->call->coll == GCI_ALLGATHER)
        exchange_bruck_allgather(b);
    else
        exchange_bruck_alltoall(b);
}

/* ---- operands one after another ------------------------------------------------------------------------------------------ */

/* Operands in a few slots of scratch, each of which is used again when its operand has met another one. */
typedef struct exchange_operand {
    gci_spot at;
    int32_t  last;
    bool     in_slot, writable;
} exchange_operand;

typedef struct exchange_slots {
    size_t   bytes;
    unsigned made, limit, taken, given;
    exchange_operand freed[EXCHANGE_WINDOW + EXCHANGE_HEIGHT];      /* .last: after which; a queue, [taken, given) */
} exchange_slots;

/* Receives an operand into a new slot, or, if there are enough, into that which has been free longest. */
static exchange_operand exchange_take(gci_builder *b, exchange_slots *s, int peer)
{
    exchange_operand v;
    if (s->made < s->limit) {
        v = (exchange_operand){ gci_emit_slot(b, s->bytes), GCI_NO_STEP, true, true };
        s->made++;
    } else {
        v = s->freed[s->taken++ % GCI_COUNT(s->freed)];
    }
    v.last = exchange_recv(b, peer, v.at, s->bytes, v.last);
    return v;
}

/* lower (op) upper moves into the place of the upper one, or, if that is the user's, or the lower one is where the result is
 * wanted, into that of the lower one. */
static exchange_operand exchange_join(gci_builder *b, exchange_slots *s, exchange_operand lower, exchange_operand upper)
{
    bool into_lower = !upper.writable || lower.at.buf == GCI_BUF_RECV;
    exchange_operand to = into_lower ? lower : upper, from = into_lower ? upper : lower;
    int32_t both = gci_emit_both(b, lower.last, upper.last);
    to.last = from.last = exchange_reduce(b, to.at, from.at, s->bytes, into_lower, both);
    if (from.in_slot)
        s->freed[s->given++ % GCI_COUNT(s->freed)] = from;
    return to;
}

/* Receives the operands of the ranks 0 .. n - 1 but its own, and evaluates them strictly from the left, or canonically: there the
 * partial results of which it still needs are as many as n has ones in base 2. The result comes into the receive buffer,
 * which may be written after `free`. */
static void exchange_evaluate(gci_builder *b, int n, size_t bytes, gci_spot own, int32_t free)
{
    const gci_call *call = b->call;
    bool canonical = call->canonical && call->associative;
    exchange_slots slots = { .bytes = bytes, .limit = EXCHANGE_WINDOW };
    exchange_operand stack[EXCHANGE_HEIGHT];
    int height = 0;
    for (int k = n; canonical && k > 1; k /= 2)
        slots.limit++;
    for (int i = 0; i < n; i++) {
        exchange_operand v = { own, b->ready, false, false };
        if (i == n - 1) {
            v = (exchange_operand){ exchange_recv_buf, free, false, true };
            v.last = i == call->rank ? exchange_copy(b, v.at, own, bytes, free) : exchange_recv(b, i, v.at, bytes, free);
        } else if (i != call->rank) {
            v = exchange_take(b, &slots, i);
        }
        stack[height++] = v;
        for (int k = i; i == n - 1 ? height > 1 : canonical ? k & 1 : height > 1; k /= 2, height--)
            stack[height - 2] = exchange_join(b, &slots, stack[height - 2], stack[height - 1]);
    }
}

/* ---- pairwise and direct ------------------------------------------------------------------------------------------------- */

/* A round of pairwise exchange is over when it has sent and received. */
static int32_t exchange_turn(gci_builder *b, int32_t before, int32_t sent, int32_t came)
{
    gci_emit_pend(b, before);
    gci_emit_pend(b, sent);
    gci_emit_pend(b, came);
    return gci_emit_join(b);
}

/* In round t everybody sends to the rank t further; in turn: when the round two before is over. */
static void exchange_alltoall(gci_builder *b, bool in_turn)
{
    const gci_call *call = b->call;
    int32_t turns[EXCHANGE_TURNS] = { b->ready, b->ready };
    exchange_copy(b, exchange_block(exchange_recv_buf, &call->recv, call->rank),
                  exchange_block(b->input, &call->send, call->rank), gci_block_bytes(&call->recv, call->rank), b->ready);
    for (int t = 1; t < call->ranks; t++) {
        int to = exchange_peer(call, t), from = exchange_peer(call, -t);
        int32_t *turn = &turns[t % EXCHANGE_TURNS];
        int32_t came = exchange_recv(b, from, exchange_block(exchange_recv_buf, &call->recv, from),
                                     gci_block_bytes(&call->recv, from), b->ready);
        int32_t sent = exchange_send(b, to, exchange_block(b->input, &call->send, to),
                                     gci_block_bytes(&call->send, to), *turn);
        if (in_turn)
            *turn = exchange_turn(b, *turn, sent, came);
    }
}

/* The operands come from r - 1, r - 2, ..., 0, p - 1, ..., r + 1: those of lower ranks meet, those of higher ranks meet, and at
 * last the two, in rank order all of them. */
static void exchange_pairwise_scatter(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_slots slots = { .bytes = call->own, .limit = EXCHANGE_AHEAD };
    exchange_operand low = { exchange_block(b->input, &call->send, call->rank), b->ready, false, false }, high = low;
    int32_t turn = b->ready;
    for (int t = 1; t < call->ranks; t++) {
        int to = exchange_peer(call, t), from = exchange_peer(call, -t);
        exchange_operand v = { exchange_recv_buf, b->ready, false, true };
        if (t < call->ranks - 1)
            v = exchange_take(b, &slots, from);
        else
            v.last = exchange_recv(b, from, v.at, call->own, b->ready);
        int32_t sent = exchange_send(b, to, exchange_block(b->input, &call->send, to),
                                     gci_block_bytes(&call->send, to), turn);
        turn = exchange_turn(b, turn, sent, v.last);
        if (from < call->rank)
            low = exchange_join(b, &slots, v, low);
        else
            high = from == call->ranks - 1 ? v : exchange_join(b, &slots, v, high);
    }
    if (call->rank < call->ranks - 1)
        exchange_join(b, &slots, low, high);
    else
        exchange_copy(b, exchange_recv_buf, low.at, call->own, low.last);       /* of one rank */
}

GCI void gci_pairwise_algo(gci_builder *b)
{
    if (b->call->coll == GCI_ALLTOALL)
        exchange_alltoall(b, true);
    else if (!exchange_refuses(b, true, false))
        exchange_pairwise_scatter(b);
}

static void exchange_direct_allgather(gci_builder *b)
{
    const gci_call *call = b->call;
    exchange_copy(b, exchange_block(exchange_recv_buf, &call->recv, call->rank), b->input, call->own, GCI_NO_STEP);
    for (int t = 1; t < call->ranks; t++) {
        int from = exchange_peer(call, -t);
        exchange_recv(b, from, exchange_block(exchange_recv_buf, &call->recv, from),
                      gci_block_bytes(&call->recv, from), GCI_NO_STEP);
        exchange_send(b, exchange_peer(call, t), b->input, call->own, GCI_NO_STEP);
    }
}

static void exchange_direct_scatter(gci_builder *b)
{
    const gci_call *call = b->call;
    for (int t = 1; t < call->ranks; t++) {
        int to = exchange_peer(call, t);
        exchange_send(b, to, exchange_block(b->input, &call->send, to), gci_block_bytes(&call->send, to), b->ready);
    }
    if (call->own > 0)
        exchange_evaluate(b, call->ranks, call->own, exchange_block(b->input, &call->send, call->rank), b->ready);
}

/* Everybody sends its vector to all higher ranks: one message on any way. */
static void exchange_direct_scan(gci_builder *b)
{
    const gci_call *call = b->call;
    for (int to = call->rank + 1; to < call->ranks; to++) {
        int32_t sent = exchange_send(b, to, b->input, call->bytes, GCI_NO_STEP);
        if (b->input_is_recv)
            gci_emit_pend(b, sent);
    }
    exchange_evaluate(b, call->rank + (call->coll == GCI_SCAN), call->bytes, b->input, gci_emit_join(b));
}

/* The prefix goes from rank to rank, each of which puts its own operand behind: p - 1 messages per segment, p - 2 + segments
 * rounds, from rank 0 up. What comes and what goes on are in two vectors, of which the receive buffer is the result. */
static void exchange_chain_scan(gci_builder *b)
{
    const gci_call *call = b->call;
    bool goes_on = call->rank < call->ranks - 1, scan = call->coll == GCI_SCAN;
    gci_spot own = b->input, in = exchange_recv_buf;
    int32_t met = GCI_NO_STEP, copied = GCI_NO_STEP;
    if (scan && call->rank > 0)
        in = gci_emit_slot(b, call->bytes);
    if (scan || (call->rank > 0 && goes_on)) {
        own = scan ? exchange_recv_buf : gci_emit_slot(b, call->bytes);
        met = copied = exchange_copy(b, own, b->input, call->bytes, GCI_NO_STEP);
    }
    for (int32_t i = 0; i < gci_segments(call, call->bytes); i++) {
        exchange_part part = exchange_segment(call, call->bytes, i);
        gci_spot came_at = gci_spot_at(in, part.at), own_at = gci_spot_at(own, part.at);
        if (call->rank > 0) {
            int32_t came = exchange_recv(b, call->rank - 1, came_at, part.bytes, scan ? GCI_NO_STEP : copied);
            if (scan || goes_on)
                met = exchange_reduce(b, own_at, came_at, part.bytes, false, gci_emit_both(b, met, came));
        }
        if (goes_on)
            exchange_send(b, call->rank + 1, own_at, part.bytes, met);
    }
}

GCI void gci_direct_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    switch (call->coll) {
    case GCI_ALLTOALL:
        exchange_alltoall(b, false);
        break;
    case GCI_ALLGATHER:
        exchange_direct_allgather(b);
        break;
    case GCI_REDUCE_SCATTER:
        exchange_direct_scatter(b);
        break;
    default:
        if (gci_segments(call, call->bytes) == 1)
            exchange_direct_scan(b);
        else if (call->canonical && call->associative)
            exchange_doubling_scan(b);
        else
            exchange_chain_scan(b);
    }
}
