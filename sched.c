/* sched.c: schedules and the algorithms that emit them (pure).
 * SPDX-License-Identifier: MIT
 *
 * A builder sees one rank's call and writes that rank's steps; it talks to nobody. What holds for every schedule here,
 * and what the checker in the tests proves on all ranks' schedules together:
 *
 * - A step waits for earlier steps of its list only, so a schedule alone cannot be stuck; receives wait for nothing
 *   unless their buffer is still in use, so they can be posted (and granted) at once.
 * - Messages between two ranks are matched in the order of both lists. No algorithm has a cycle of ranks in which each
 *   sends only after it received, so even sends that wait for their receiver end.
 * - Only `in_place`, which is a rank's own affair, may differ between ranks; it changes copies and buffers, never messages.
 * - Data-carrying calls of 0 bytes have no steps. GCI_BUF_SEND is never written.
 * - Reductions meet in an order fixed by the call, never by arrival. Operands that need not commute meet in rank order;
 *   those that need not associate are evaluated from rank 0 up, one by one.
 *
 * Every tree algorithm is made of three parts that work on any rooted tree whose subtrees are runs of consecutive
 * (relative) ranks: down (bcast), up with reduction, up with concatenation. The trees are one family by radix; of 8 ranks:
 *
 *   binomial, radix 2     0           the parent of a rank lacks its lowest bit (digit) that is not 0; the subtree of
 *                       / | \         r + 2^k is [r + 2^k, r + 2^(k+1)): a run, which is why it keeps rank order and
 *                      1  2   4       why a gather needs one buffer per rank.
 *                         |  / \
 *                         3 5   6     knomial, radix 8: the same in base 8. Fewer inner ranks, which a message wakes up
 *                               |     twice: the better where ranks share cores.
 *                               7     flat, radix p: every rank is a child of the root.
 *
 * Scratch (GCI_BUF_TEMP): reductions hold a vector per child, SCHED_WINDOW at most; gathers a block per rank of the subtree.
 */
#include "gridcomm_int.h"

enum { SCHED_ALIGN = 64,        /* bytes: scratch slots start on a cache line, and so at any element's alignment */
       SCHED_WINDOW = 32,       /* vectors that a flat reduction holds at once: bounds scratch, keeps senders busy */
       SCHED_WIDE = 8,          /* radix of the wide tree: two levels for 64 ranks */
       SCHED_FIRST_ROOM = 16 }; /* steps and waits of a first allocation */

enum { SCHED_NONE = -1 };       /* no step */

/* A place in one of the three buffers. */
typedef struct sched_place { uint8_t buf; size_t at; } sched_place;

/* ---- appending --------------------------------------------------------------------------------------------------- */

/* A schedule being built. The first failure sticks, so builders need not look after each step. */
typedef struct sched_builder {
    gci_env         *env;
    const gci_call  *call;
    gci_sched       *out;
    int32_t          step_room, wait_room;
    int32_t         *pending;   /* steps for the next join */
    int32_t          pendings, pending_room;
    int              error;
} sched_builder;

static bool sched_grow(sched_builder *b, void **array, int32_t *room, int32_t need, size_t item_bytes)
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

static void sched_wait_for(sched_builder *b, gci_step *step, int32_t earlier)
{
    void *array = b->out->wait;
    if (earlier == SCHED_NONE || !sched_grow(b, &array, &b->wait_room, b->out->waits + 1, sizeof *b->out->wait))
        return;
    b->out->wait = array;
    b->out->wait[b->out->waits++] = earlier;
    step->waits++;
}

/* Appends a step that waits for two earlier ones (or SCHED_NONE); returns its index. */
static int32_t sched_add(sched_builder *b, gci_step step, int32_t after, int32_t and_after)
{
    void *array = b->out->step;
    if (!sched_grow(b, &array, &b->step_room, b->out->steps + 1, sizeof *b->out->step))
        return SCHED_NONE;
    b->out->step = array;
    step.first_wait = b->out->waits;
    sched_wait_for(b, &step, after);
    if (and_after != after)
        sched_wait_for(b, &step, and_after);
    b->out->step[b->out->steps] = step;
    return b->out->steps++;
}

static int32_t sched_send(sched_builder *b, int peer, sched_place from, size_t bytes, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_SEND, .peer = peer, .from = from.buf, .from_at = from.at,
                                    .to = from.buf, .bytes = bytes }, after, SCHED_NONE);
}

static int32_t sched_recv(sched_builder *b, int peer, sched_place to, size_t bytes, int32_t after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_RECV, .peer = peer, .to = to.buf, .to_at = to.at,
                                    .from = to.buf, .bytes = bytes }, after, SCHED_NONE);
}

static int32_t sched_copy(sched_builder *b, sched_place to, sched_place from, size_t bytes, int32_t after, int32_t and_after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_COPY, .peer = SCHED_NONE, .to = to.buf, .to_at = to.at,
                                    .from = from.buf, .from_at = from.at, .bytes = bytes }, after, and_after);
}

/* to = from (op) to; swapped: to = to (op) from. */
static int32_t sched_reduce(sched_builder *b, sched_place to, sched_place from, bool swapped, int32_t after, int32_t and_after)
{
    return sched_add(b, (gci_step){ .kind = GCI_STEP_REDUCE, .peer = SCHED_NONE, .to = to.buf, .to_at = to.at,
                                    .from = from.buf, .from_at = from.at, .bytes = b->call->bytes,
                                    .swapped = swapped }, after, and_after);
}

/* Notes a step that the next join waits for. */
static void sched_pend(sched_builder *b, int32_t step)
{
    void *array = b->pending;
    if (step == SCHED_NONE || !sched_grow(b, &array, &b->pending_room, b->pendings + 1, sizeof *b->pending))
        return;
    b->pending = array;
    b->pending[b->pendings++] = step;
}

/* One step that stands for all pending ones: an empty copy, so that many steps after many need no product of waits. */
static int32_t sched_join(sched_builder *b)
{
    int32_t joined = b->pendings == 1 ? b->pending[0] : SCHED_NONE;
    if (b->pendings > 1) {
        const sched_place nowhere = { GCI_BUF_TEMP, 0 };
        gci_step step = { .kind = GCI_STEP_COPY, .peer = SCHED_NONE, .to = nowhere.buf, .from = nowhere.buf,
                          .first_wait = b->out->waits };
        joined = sched_add(b, step, SCHED_NONE, SCHED_NONE);
        for (int32_t i = 0; i < b->pendings && joined != SCHED_NONE; i++)
            sched_wait_for(b, &b->out->step[joined], b->pending[i]);
    }
    b->pendings = 0;
    return joined;
}

static sched_place sched_slot(sched_builder *b, size_t bytes)
{
    sched_place place = { GCI_BUF_TEMP, b->out->temp_bytes };
    size_t whole = (bytes + SCHED_ALIGN - 1) / SCHED_ALIGN * SCHED_ALIGN;
    if (whole < bytes || whole > SIZE_MAX / 2 - b->out->temp_bytes)
        b->error = GC_ERR_NOMEM;
    else
        b->out->temp_bytes += whole;
    return place;
}

/* ---- trees ------------------------------------------------------------------------------------------------------- */

/* One rank's place in the radix-k tree: written in base k, a rank's parent lacks its lowest digit that is not 0. Radix 2 is
 * the binomial tree, radix p the flat one. Children stand in ascending relative rank; `first` and `span` are relative to
 * the tree's root: the subtree is the run [first, first + span). */
typedef struct sched_node {
    int32_t parent, children;   /* parent: rank, or SCHED_NONE at the root */
    int32_t first, span;
    int32_t root, ranks, radix;
} sched_node;

/* The subtree of child i: its first relative rank and how many ranks. Children come in groups of radix - 1 equal sizes. */
static int32_t sched_child(const sched_node *n, int32_t i, int32_t *span)
{
    int64_t size = 1;
    for (; i >= n->radix - 1; i -= n->radix - 1)
        size *= n->radix;
    int64_t step = (i + 1) * size;
    *span = (int32_t)(size < n->span - step ? size : n->span - step);
    return (int32_t)gci_min((size_t)step, (size_t)n->span) + n->first;
}

static sched_node sched_node_of(int radix, int rank, int ranks, int root)
{
    sched_node n = { .parent = SCHED_NONE, .root = root, .ranks = ranks, .radix = radix > 1 ? radix : 2 };
    n.first = (int32_t)(((int64_t)rank - root + ranks) % ranks);
    n.span = ranks;
    if (n.first != 0) {
        int64_t place = 1;
        while (n.first / place % n.radix == 0)
            place *= n.radix;
        int64_t up = n.first - n.first / place % n.radix * place;
        n.parent = (int32_t)((up + root) % ranks);
        n.span = (int32_t)(place < ranks - n.first ? place : ranks - n.first);
    }
    int32_t span;
    while (sched_child(&n, n.children, &span) - n.first < n.span)
        n.children++;
    return n;
}

static int sched_child_rank(const sched_node *n, int32_t i)
{
    int32_t span;
    return (int)(((int64_t)sched_child(n, i, &span) + n->root) % n->ranks);
}

/* ---- the three parts --------------------------------------------------------------------------------------------- */

/* Down: the parent's message goes to all children, the largest subtree first. At the root the data is there after
 * `ready`; elsewhere the receive waits for `ready` (its buffer is free). */
static void sched_down(sched_builder *b, const sched_node *n, sched_place data, size_t bytes, int32_t ready)
{
    if (n->parent != SCHED_NONE)
        ready = sched_recv(b, n->parent, data, bytes, ready);
    for (int32_t i = n->children; i-- > 0;)
        sched_send(b, sched_child_rank(n, i), data, bytes, ready);
}

/* The running value of a reduction: it starts as an operand and moves into the buffer of the next one (to = value (op) to),
 * so most reductions need neither a first copy nor a swap. */
typedef struct sched_value {
    sched_place at;
    bool        writable;       /* false: the user's send buffer */
    bool        stays;          /* it is where the result must be: operands come to it */
    int32_t     last;           /* the step after which it is there */
} sched_value;

static void sched_meet(sched_builder *b, sched_value *value, sched_value operand)
{
    bool in_order = !b->call->commutative;
    if (value->stays || !operand.writable) {
        value->last = sched_reduce(b, value->at, operand.at, in_order, value->last, operand.last);
    } else {
        operand.last = sched_reduce(b, operand.at, value->at, false, value->last, operand.last);
        *value = operand;
    }
}

/* This rank's own operand. In place it is writable, and at the rank that wants the result it may stay where it is. */
static sched_value sched_own(const sched_builder *b, bool result_here)
{
    bool in_place = b->call->in_place;
    return (sched_value){ { in_place ? GCI_BUF_RECV : GCI_BUF_SEND, 0 }, in_place, in_place && result_here, SCHED_NONE };
}

/* Receives child i's partial result. Only SCHED_WINDOW slots of scratch exist: a later receive waits until the value has
 * moved out of its slot, which it has when the operand after that slot's has been met (met[]). */
static sched_value sched_operand(sched_builder *b, int32_t i, int peer, bool into_recv,
                                 sched_place slot[SCHED_WINDOW], const int32_t met[SCHED_WINDOW])
{
    sched_value v = { .writable = true };
    int32_t free_after = i < SCHED_WINDOW ? SCHED_NONE : met[(i + 1) % SCHED_WINDOW];
    if (into_recv) {
        v.at = (sched_place){ GCI_BUF_RECV, 0 };
        v.stays = true;
        free_after = SCHED_NONE;
    } else {
        if (i < SCHED_WINDOW)
            slot[i] = sched_slot(b, b->call->bytes);
        v.at = slot[i % SCHED_WINDOW];
    }
    v.last = sched_recv(b, peer, v.at, b->call->bytes, free_after);
    return v;
}

/* Up with reduction: meets the children's partial results in order of rank and returns where the subtree's stands.
 * own_index: how many children come before this rank's own operand (not 0 only in a flat tree by absolute rank, whose
 * first own_index children are one rank lower then). result_here: it must end in the receive buffer. */
static sched_value sched_up_reduce(sched_builder *b, const sched_node *n, int32_t own_index, bool result_here)
{
    sched_place slot[SCHED_WINDOW];
    int32_t met[SCHED_WINDOW];
    sched_value own = sched_own(b, result_here), value = own;
    for (int32_t i = 0; i < n->children; i++) {
        if (i == own_index && i > 0)
            sched_meet(b, &value, own);
        bool into_recv = result_here && !b->call->in_place && i == n->children - 1;
        int peer = sched_child_rank(n, i) - (i < own_index);
        sched_value operand = sched_operand(b, i, peer, into_recv, slot, met);
        if (i == 0 && own_index > 0)
            value = operand;
        else
            sched_meet(b, &value, operand);
        met[i % SCHED_WINDOW] = value.last;
    }
    if (own_index == n->children && n->children > 0)
        sched_meet(b, &value, own);
    const sched_place result = { GCI_BUF_RECV, 0 };
    if (result_here && value.at.buf != GCI_BUF_RECV) {
        value.last = sched_copy(b, result, value.at, b->call->bytes, value.last, SCHED_NONE);
        value.at = result;
    }
    return value;
}

/* Receives the blocks of child i's subtree into the stage of its parent (at the root: the receive buffer, where a run that
 * wraps round the highest rank needs two places and so comes through scratch). */
static void sched_stage_child(sched_builder *b, const sched_node *n, int32_t i, sched_place stage)
{
    size_t bytes = b->call->bytes;
    int32_t span, first = sched_child(n, i, &span);
    int peer = sched_child_rank(n, i);
    if (n->parent != SCHED_NONE) {
        sched_place to = { stage.buf, stage.at + (size_t)(first - n->first) * bytes };
        sched_pend(b, sched_recv(b, peer, to, (size_t)span * bytes, SCHED_NONE));
        return;
    }
    int32_t head = n->ranks - peer;     /* blocks before the wrap */
    sched_place to = { GCI_BUF_RECV, (size_t)peer * bytes };
    if (span <= head) {
        sched_pend(b, sched_recv(b, peer, to, (size_t)span * bytes, SCHED_NONE));
        return;
    }
    sched_place whole = sched_slot(b, (size_t)span * bytes), tail = { whole.buf, whole.at + (size_t)head * bytes };
    int32_t came = sched_recv(b, peer, whole, (size_t)span * bytes, SCHED_NONE);
    sched_pend(b, sched_copy(b, to, whole, (size_t)head * bytes, came, SCHED_NONE));
    sched_pend(b, sched_copy(b, (sched_place){ GCI_BUF_RECV, 0 }, tail, (size_t)(span - head) * bytes, came, SCHED_NONE));
}

/* Up with concatenation. keep: every rank has a receive buffer for all blocks and stages its subtree there (the tree's
 * root is rank 0 then). Returns the step after which the receive buffer may be read (at the root: it has all blocks) or
 * overwritten (elsewhere: the send to the parent, if it is sent from there). */
static int32_t sched_up_gather(sched_builder *b, const sched_node *n, bool keep)
{
    size_t bytes = b->call->bytes;
    const sched_place mine = { GCI_BUF_RECV, (size_t)b->call->rank * bytes };
    bool has_recv = keep || n->parent == SCHED_NONE;
    sched_place own = has_recv && b->call->in_place ? mine : (sched_place){ GCI_BUF_SEND, 0 };
    sched_place stage = own;
    if (has_recv && (n->children > 0 || n->parent == SCHED_NONE))
        stage = mine;
    else if (n->children > 0)
        stage = sched_slot(b, (size_t)n->span * bytes);
    for (int32_t i = 0; i < n->children; i++)
        sched_stage_child(b, n, i, stage);
    if (stage.buf != own.buf)
        sched_pend(b, sched_copy(b, stage, own, bytes, SCHED_NONE, SCHED_NONE));
    if (!keep && n->parent == SCHED_NONE)
        return SCHED_NONE;              /* nothing follows */
    int32_t all = sched_join(b);
    if (n->parent == SCHED_NONE)
        return all;
    int32_t sent = sched_send(b, n->parent, stage, (size_t)n->span * bytes, all);
    return stage.buf == GCI_BUF_RECV ? sent : SCHED_NONE;
}

/* ---- collectives on a tree --------------------------------------------------------------------------------------- */

static void sched_tree_barrier(sched_builder *b, int radix)
{
    const sched_place nothing = { GCI_BUF_TEMP, 0 };
    sched_node n = sched_node_of(radix, b->call->rank, b->call->ranks, 0);
    for (int32_t i = 0; i < n.children; i++)
        sched_pend(b, sched_recv(b, sched_child_rank(&n, i), nothing, 0, SCHED_NONE));
    int32_t all = sched_join(b);
    if (n.parent != SCHED_NONE) {
        sched_send(b, n.parent, nothing, 0, all);
        all = SCHED_NONE;
    }
    sched_down(b, &n, nothing, 0, all);
}

static void sched_tree_bcast(sched_builder *b, int radix)
{
    sched_node n = sched_node_of(radix, b->call->rank, b->call->ranks, b->call->root);
    sched_down(b, &n, (sched_place){ GCI_BUF_RECV, 0 }, b->call->bytes, SCHED_NONE);
}

/* Flat: the root evaluates from rank 0 up. So its children are all others in absolute order, itself among them. */
static void sched_flat_reduce(sched_builder *b)
{
    const gci_call *call = b->call;
    if (call->rank != call->root) {
        sched_send(b, call->root, (sched_place){ GCI_BUF_SEND, 0 }, call->bytes, SCHED_NONE);
        return;
    }
    sched_node n = sched_node_of(call->ranks, 0, call->ranks, 0);
    sched_up_reduce(b, &n, call->root, true);
}

/* Commutative operations use the tree that is rooted where the result is wanted. The others keep rank order, so their
 * tree is rooted at rank 0, which passes the result on: one message more. */
static void sched_tree_reduce(sched_builder *b, int radix)
{
    const gci_call *call = b->call;
    int top = call->commutative ? call->root : 0;
    sched_node n = sched_node_of(radix, call->rank, call->ranks, top);
    sched_value value = sched_up_reduce(b, &n, 0, call->rank == top && top == call->root);
    int32_t sent = SCHED_NONE;
    if (n.parent != SCHED_NONE)
        sent = sched_send(b, n.parent, value.at, call->bytes, value.last);
    if (top == call->root)
        return;
    if (call->rank == top)
        sched_send(b, call->root, value.at, call->bytes, value.last);
    if (call->rank == call->root)
        sched_recv(b, top, (sched_place){ GCI_BUF_RECV, 0 }, call->bytes, call->in_place ? sent : SCHED_NONE);
}

/* Reduce to rank 0 and broadcast: 2 (p - 1) messages, the fewest there can be. */
static void sched_tree_allreduce(sched_builder *b, int radix)
{
    const gci_call *call = b->call;
    sched_node n = sched_node_of(radix, call->rank, call->ranks, 0);
    sched_value value = sched_up_reduce(b, &n, 0, call->rank == 0);
    int32_t ready = value.last;
    if (n.parent != SCHED_NONE) {
        int32_t sent = sched_send(b, n.parent, value.at, call->bytes, value.last);
        ready = call->in_place ? sent : SCHED_NONE;
    }
    sched_down(b, &n, (sched_place){ GCI_BUF_RECV, 0 }, call->bytes, ready);
}

static void sched_tree_gather(sched_builder *b, int radix)
{
    sched_node n = sched_node_of(radix, b->call->rank, b->call->ranks, b->call->root);
    sched_up_gather(b, &n, false);
}

/* Gather to rank 0 and broadcast. The broadcast overwrites what was staged for the gather, hence waits until it is sent. */
static void sched_tree_allgather(sched_builder *b, int radix)
{
    const gci_call *call = b->call;
    sched_node n = sched_node_of(radix, call->rank, call->ranks, 0);
    int32_t ready = sched_up_gather(b, &n, true);
    sched_down(b, &n, (sched_place){ GCI_BUF_RECV, 0 }, (size_t)call->ranks * call->bytes, ready);
}

/* ---- recursive doubling ------------------------------------------------------------------------------------------ */

/* Allreduce in log2(p) rounds (+ 2 where p is no power of two): half the latency of a tree, log2(p) / 2 times its messages.
 * With p = 2^k + extra, the first 2 * extra ranks fold in pairs (even into odd), so that the 2^k players hold runs of
 * ranks in rank order; in round j players trade with the one whose number differs in bit j:
 *
 *     ranks 0 1 2 3 4 5    fold 0>1, 2>3; players 1 3 4 5; rounds 1<>3 4<>5, then 1<>4 3<>5; at last 1>0, 3>2
 *
 * Both partners evaluate lower (op) higher, so all ranks get the same bits. */
static int sched_player_rank(int player, int extra)
{
    return player < extra ? 2 * player + 1 : player + extra;
}

/* Trades values with peer; the result replaces what came (in slot), since what went may still be on its way. */
static void sched_trade(sched_builder *b, sched_value *value, int peer, sched_place slot, int32_t *from_recv)
{
    size_t bytes = b->call->bytes;
    int32_t came = sched_recv(b, peer, slot, bytes, SCHED_NONE);
    int32_t sent = sched_send(b, peer, value->at, bytes, value->last);
    if (value->at.buf == GCI_BUF_RECV)
        *from_recv = sent;
    bool swapped = peer < b->call->rank;    /* even if it commutes: -0 and NaNs would tell the partners apart */
    value->last = sched_reduce(b, slot, value->at, swapped, value->last, came);
    value->at = slot;
}

static void sched_doubling_allreduce(sched_builder *b)
{
    const gci_call *call = b->call;
    const sched_place result = { GCI_BUF_RECV, 0 };
    int rank = call->rank, players = 1;
    while (players <= call->ranks / 2)
        players *= 2;
    int extra = call->ranks - players;
    sched_value value = sched_own(b, false);
    int32_t from_recv = SCHED_NONE;
    if (rank < 2 * extra && rank % 2 == 0) {
        int32_t sent = sched_send(b, rank + 1, value.at, call->bytes, SCHED_NONE);
        sched_recv(b, rank + 1, result, call->bytes, call->in_place ? sent : SCHED_NONE);
        return;
    }
    if (rank < 2 * extra) {
        sched_value lower = { sched_slot(b, call->bytes), true, true, SCHED_NONE };
        lower.last = sched_recv(b, rank - 1, lower.at, call->bytes, SCHED_NONE);
        sched_meet(b, &lower, value);
        value = lower;
    }
    int player = rank < 2 * extra ? rank / 2 : rank - extra;
    for (int bit = 1; bit < players; bit *= 2) {
        bool last = bit == players / 2 && !call->in_place;
        sched_place slot = last ? result : sched_slot(b, call->bytes);
        sched_trade(b, &value, sched_player_rank(player ^ bit, extra), slot, &from_recv);
    }
    if (value.at.buf != GCI_BUF_RECV)
        value.last = sched_copy(b, result, value.at, call->bytes, value.last, call->in_place ? from_recv : SCHED_NONE);
    if (rank < 2 * extra)
        sched_send(b, rank - 1, value.at, call->bytes, value.last);
}

/* Dissemination barrier (Hensgen, Finkel, Manber 1988): in round j rank r tells r + 2^j and hears from r - 2^j; after
 * ceil(log2 p) rounds everybody has heard of everybody. Half the latency of a tree, log2(p) / 2 times its messages. */
static void sched_doubling_barrier(sched_builder *b)
{
    const sched_place nothing = { GCI_BUF_TEMP, 0 };
    int64_t ranks = b->call->ranks, rank = b->call->rank;
    int32_t heard = SCHED_NONE;
    for (int64_t step = 1; step < ranks; step *= 2) {
        int32_t now = sched_recv(b, (int)((rank - step + ranks) % ranks), nothing, 0, SCHED_NONE);
        sched_send(b, (int)((rank + step) % ranks), nothing, 0, heard);
        if (step < ranks - step)
            heard = heard == SCHED_NONE ? now : sched_copy(b, nothing, nothing, 0, heard, now);
    }
}

/* ---- the table --------------------------------------------------------------------------------------------------- */

/* In place means nothing to a rank without a result, and nothing to bcast and barrier, whose one buffer it is anyway. */
static bool sched_uses_in_place(const gci_call *call)
{
    switch (call->coll) {
    case GCI_REDUCE:
    case GCI_GATHER:
        return call->in_place && call->rank == call->root;
    case GCI_ALLREDUCE:
    case GCI_ALLGATHER:
        return call->in_place;
    default:
        return false;
    }
}

static void sched_emit_tree(sched_builder *b, int radix)
{
    switch (b->call->coll) {
    case GCI_BARRIER:
        sched_tree_barrier(b, radix);
        break;
    case GCI_BCAST:
        sched_tree_bcast(b, radix);
        break;
    case GCI_REDUCE:
        if (radix >= b->call->ranks)
            sched_flat_reduce(b);
        else
            sched_tree_reduce(b, radix);
        break;
    case GCI_ALLREDUCE:
        sched_tree_allreduce(b, radix);
        break;
    case GCI_GATHER:
        sched_tree_gather(b, radix);
        break;
    case GCI_ALLGATHER:
        sched_tree_allgather(b, radix);
        break;
    case GCI_COLLS:
        break;
    }
}

static void sched_emit_flat(sched_builder *b)
{
    sched_emit_tree(b, b->call->ranks);
}

static void sched_emit_binomial(sched_builder *b)
{
    sched_emit_tree(b, 2);
}

static void sched_emit_knomial(sched_builder *b)
{
    sched_emit_tree(b, SCHED_WIDE);
}

static void sched_emit_doubling(sched_builder *b)
{
    if (b->call->coll == GCI_BARRIER)
        sched_doubling_barrier(b);
    else
        sched_doubling_allreduce(b);
}

/* Runs one emitter. On failure *out is empty and nothing is held. */
static int sched_build(gci_env *env, const gci_call *call, gci_sched *out, void (*emit)(sched_builder *))
{
    gci_call own = *call;
    own.in_place = sched_uses_in_place(call);
    *out = (gci_sched){ 0 };
    if (call->coll != GCI_BARRIER && call->bytes == 0)
        return GC_OK;
    /* every offset and slot is at most 2 * ranks blocks: no sum below overflows */
    if (call->bytes > (SIZE_MAX / 4 - SCHED_ALIGN) / (size_t)call->ranks)
        return GC_ERR_NOMEM;
    sched_builder b = { .env = env, .call = &own, .out = out };
    emit(&b);
    gci_free(env, b.pending);
    if (b.error)
        gci_sched_free(env, out);
    return b.error;
}

static int sched_build_flat(gci_env *env, const gci_call *call, gci_sched *out)
{
    return sched_build(env, call, out, sched_emit_flat);
}

/* All others evaluate partial results of runs of ranks, which is right for associative operations only. */
static bool sched_must_be_flat(const gci_call *call)
{
    return (call->coll == GCI_REDUCE || call->coll == GCI_ALLREDUCE) && !call->associative;
}

static int sched_build_binomial(gci_env *env, const gci_call *call, gci_sched *out)
{
    return sched_must_be_flat(call) ? GC_ERR_UNSUPPORTED : sched_build(env, call, out, sched_emit_binomial);
}

static int sched_build_knomial(gci_env *env, const gci_call *call, gci_sched *out)
{
    return sched_must_be_flat(call) ? GC_ERR_UNSUPPORTED : sched_build(env, call, out, sched_emit_knomial);
}

static int sched_build_doubling(gci_env *env, const gci_call *call, gci_sched *out)
{
    return sched_must_be_flat(call) ? GC_ERR_UNSUPPORTED : sched_build(env, call, out, sched_emit_doubling);
}

/* Per collective the default comes first; flat takes every call. */
static const gci_algo sched_algos[] = {
    { GCI_BARRIER,   "binomial", sched_build_binomial },
    { GCI_BARRIER,   "flat",     sched_build_flat },
    { GCI_BARRIER,   "knomial",  sched_build_knomial },
    { GCI_BARRIER,   "doubling", sched_build_doubling },
    { GCI_BCAST,     "binomial", sched_build_binomial },
    { GCI_BCAST,     "flat",     sched_build_flat },
    { GCI_BCAST,     "knomial",  sched_build_knomial },
    { GCI_REDUCE,    "binomial", sched_build_binomial },
    { GCI_REDUCE,    "flat",     sched_build_flat },
    { GCI_REDUCE,    "knomial",  sched_build_knomial },
    { GCI_ALLREDUCE, "binomial", sched_build_binomial },
    { GCI_ALLREDUCE, "flat",     sched_build_flat },
    { GCI_ALLREDUCE, "knomial",  sched_build_knomial },
    { GCI_ALLREDUCE, "doubling", sched_build_doubling },
    { GCI_GATHER,    "binomial", sched_build_binomial },
    { GCI_GATHER,    "flat",     sched_build_flat },
    { GCI_GATHER,    "knomial",  sched_build_knomial },
    { GCI_ALLGATHER, "binomial", sched_build_binomial },
    { GCI_ALLGATHER, "flat",     sched_build_flat },
    { GCI_ALLGATHER, "knomial",  sched_build_knomial },
};

GCI const gci_algo *gci_algo_find(enum gci_coll coll, const char *name)
{
    for (size_t i = 0; i < GCI_COUNT(sched_algos); i++)
        if (sched_algos[i].coll == coll && (!name || strcmp(sched_algos[i].name, name) == 0))
            return &sched_algos[i];
    return NULL;
}

GCI const char *gci_coll_name(enum gci_coll coll)
{
    static const char *const name[GCI_COLLS] = { "barrier", "bcast", "reduce", "allreduce", "gather", "allgather" };
    return (unsigned)coll < GCI_COLLS ? name[coll] : "no collective";
}

GCI void gci_sched_free(gci_env *env, gci_sched *sched)
{
    gci_free(env, sched->step);
    gci_free(env, sched->wait);
    *sched = (gci_sched){ 0 };
}
