/* wide.c: collectives between sites (pure).
 * SPDX-License-Identifier: MIT
 *
 * MagPIe's algorithms (Kielmann, Hofman, Bal, Plaat, Bhoedjang 1999): between clusters everybody sends straight to whoever
 * needs it, so that (1) no way from a sender to a receiver has more than one wide-area message, and (2) no data enters a
 * cluster twice; of a reduction one partial result goes from a cluster to another.
 *
 *     up                      exchange                        down
 *     members -> top          top of k -> top of j            top -> members
 *
 * Who is the top of a cluster: the root in its own; else its coordinator, the lowest rank; else, where every pair of clusters
 * has messages of its own (alltoall, reduce_scatter, what comes in of an allgather), one of its members per other cluster,
 * so that no rank has to take or give what its whole cluster sends or gets.
 *
 * Local trees are shallow, since each level costs a local latency: all members are the top's children, or, if these were more
 * than WIDE_FLAT, or a segment for each of them more than WIDE_FLAT_BYTES, the heads of groups of about sqrt(n) consecutive
 * members are. A group never has the top in its middle, so partial results can be combined in rank order at every rank.
 *
 * Long vectors are cut into segments and streamed: what is on its way between clusters hides what goes on inside them. A
 * schedule goes through all of it in rounds, one segment each; scratch is a ring of a few rounds (wide_stream).
 *
 * What a cluster has to say in a reduction is a list of *parts*, sets of its ranks, each one vector:
 *
 *     commutative                         all of its ranks                            1 part
 *     in rank order                       runs of consecutive ranks in it             1 part, if clusters are runs
 *     canonical                           canonical subexpressions that lie in it     about 2 log2(n), if clusters are runs
 *     not associative; scans on clusters  each rank                                   n parts
 *     that are no runs
 *
 * All parts of a cluster go in one message, and who wants the result evaluates the expression over all parts. More than one
 * part breaks (2): the exceptions that the paper names. What is not associative and long is not for us: a tree in order
 * sends less.
 *
 *                       wide-area messages                  latency             bytes over a link, at most
 *     barrier           clusters * (clusters - 1)           l + L + l           0
 *     bcast             (clusters - 1) * segments           L + l               m
 *     reduce            (clusters - 1) * segments           l + L + l           m * parts
 *     allreduce, scan   clusters^2 * segments, half of it   l + L + l           m * parts
 *     allgather         as allreduce                        l + L + l           n m
 *     reduce_scatter    as allreduce                        l + L + l           n m * parts
 *     scatter, gather   clusters - 1; ranks, if long        l + L; L            n m
 *     alltoall          clusters^2;  ranks^2, if long       l + L + l; L        n n' m
 */
#include "gridcomm_int.h"

enum { WIDE_FLAT = 32,              /* ranks: one more level has each rank take or give a third of the messages, or less */
       WIDE_FLAT_BYTES = 16 * 1024, /* take 131 us at 1 Gbit/s: with one more level two thirds less, and 50 us more */
       WIDE_BUNDLE = 4096,          /* bytes of a block up to which blocks for one cluster go together: a header of 48 bytes each
                                     * is 1 % of it then, as much as it costs to move a bundle within a cluster */
       WIDE_SHORT = 512,            /* bytes: the paper's limit. 20 such vectors take 10 ms at 1 MByte/s, as a tree's next hop */
       WIDE_ROUNDS = 32,            /* of scratch: 256 KiB of segments of 8 KiB are on their way at once, */
       WIDE_SCRATCH = 16 << 20 };   /* unless that is more than so many bytes; but two */

typedef struct wide_value {
    gci_spot at;
    int32_t  step;              /* after which it is there */
    int      ranks;             /* whose operands it holds */
    bool     writable;
} wide_value;

typedef struct wide_part { int cluster, first, end; } wide_part;    /* places [first, end) */

/* A place is an index to clusters.member[]. */
typedef struct wide {
    gci_builder        *b;
    const gci_call     *call;
    const gci_clusters *s;
    int                 mine, place;        /* this rank's */
    int                 root_place;         /* -1: there is no root */
    bool                canonical;
    int32_t             may_write;          /* the step after which the receive buffer may be written */
    gci_blocks          blocks;             /* of reduce_scatter and allgather, with their offsets */
    size_t             *offset;
    int                 parts;
    wide_part          *part;               /* in the order of evaluation */
    int                *lane;               /* [clusters + 1] how many parts are in lower clusters */
    wide_value         *value, *operand;    /* [parts] what they are worth; [ranks] what a fold is about */
    int32_t            *queue;              /* [2 * ranks] see wide_queue: of sends, and of receives */
    struct { int32_t a, b, both; } joined;  /* the last ones */
} wide;

static int wide_rank(const wide *w, int place)
{
    return w->s->member[place];
}

static int wide_size(const wide *w, int cluster)
{
    return w->s->first[cluster + 1] - w->s->first[cluster];
}

/* Messages of two ranks meet in the order in which they can go: each waits for all for which the one before it waited. So a
 * message that can go at once must not stand behind one that comes from far, if it goes the same way. */
static int32_t wide_queue(wide *w, int32_t *queue, int32_t after)
{
    if (w->joined.a != *queue || w->joined.b != after) {
        w->joined.a = *queue;
        w->joined.b = after;
        w->joined.both = gci_emit_both(w->b, *queue, after);
    }
    return *queue = w->joined.both;
}

static int32_t wide_send(wide *w, int rank, gci_spot from, size_t bytes, int32_t after)
{
    return gci_emit_send(w->b, rank, from, bytes, wide_queue(w, &w->queue[2 * rank], after));
}

static int32_t wide_recv(wide *w, int rank, gci_spot to, size_t bytes, int32_t after)
{
    return gci_emit_recv(w->b, rank, to, bytes, wide_queue(w, &w->queue[2 * rank + 1], after));
}

static size_t wide_longest(const wide *w)
{
    int longest = 0;
    for (int k = 0; k < w->s->clusters; k++)
        longest = wide_size(w, k) > longest ? wide_size(w, k) : longest;
    return (size_t)longest;
}

/* ---- the local tree ------------------------------------------------------------------------------------------------ */

/* Ranks per group, in a cluster of so many, for a vector in messages of so many bytes; 0: for blocks, each rank's own, where
 * one level makes all NICs share the work. */
static int wide_group_of(int size, size_t bytes)
{
    int group = 1;
    bool flat = size <= WIDE_FLAT && bytes <= WIDE_FLAT_BYTES / (size_t)size;
    while (!flat && group * group < size)
        group++;
    return group;
}

static int wide_group(const wide *w, size_t bytes)
{
    return wide_group_of(wide_size(w, w->mine), bytes);
}

/* The place of the member of `cluster` that deals with cluster `with`; its coordinator if that is itself. They are a group
 * apart, so that trees with different tops have nearly the same groups, and messages of one do not wait for those of many. */
static int wide_top(const wide *w, int cluster, int with)
{
    int first = w->s->first[cluster], size = wide_size(w, cluster), group = wide_group_of(size, 0);
    if (w->root_place >= first && w->root_place < first + size)
        return w->root_place;
    return with == cluster ? first : first + (with * group + with * group / size) % size;
}

static int wide_coordinator(const wide *w, int cluster)
{
    return wide_top(w, cluster, cluster);
}

/* This rank in the tree of its cluster. Its children begin at every group-th place of two runs, the first of which is lower
 * than itself: `before` of them. */
typedef struct wide_node {
    int parent;                 /* place; -1: this is the top */
    int first, end;             /* places of its subtree */
    int children, before, group;
    int run[2], run_end[2];
} wide_node;

static wide_node wide_local(const wide *w, int top, int group)
{
    int first = w->s->first[w->mine], end = w->s->first[w->mine + 1], place = w->place;
    int begin = place < top ? first : top + 1, limit = place < top ? top : end;
    if (place == top) {
        int before = (top - first + group - 1) / group;
        return (wide_node){ .parent = -1, .first = first, .end = end, .before = before, .group = group,
                            .children = before + (end - top - 1 + group - 1) / group,
                            .run = { first, top + 1 }, .run_end = { top, end } };
    }
    int head = place - (place - begin) % group, last = head + group < limit ? head + group : limit;
    if (place != head)
        return (wide_node){ .parent = head, .first = place, .end = place + 1, .group = 1 };
    return (wide_node){ .parent = top, .first = place, .end = last, .children = last - place - 1, .group = 1,
                        .run = { 0, place + 1 }, .run_end = { 0, last } };
}

/* The place of child i; *end: of its subtree. */
static int wide_child(const wide_node *n, int i, int *end)
{
    bool after = i >= n->before;
    int place = n->run[after] + (after ? i - n->before : i) * n->group;
    *end = place + n->group < n->run_end[after] ? place + n->group : n->run_end[after];
    return place;
}

/* A message goes down: from the parent, or what is here `after` at the top, to the children. Returns when it is here. */
static int32_t wide_down(wide *w, const wide_node *n, gci_spot at, size_t bytes, int32_t after)
{
    if (n->parent >= 0)
        after = wide_recv(w, wide_rank(w, n->parent), at, bytes, after);
    for (int i = 0, end; i < n->children; i++)
        wide_send(w, wide_rank(w, wide_child(n, i, &end)), at, bytes, after);
    return after;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

/* The blocks of places [first, end), or, of one that is longer than a segment, bytes [at, at + bytes) of it. */
typedef struct wide_piece { int first, end; size_t at, bytes; } wide_piece;

static wide_piece wide_whole(const wide *w, const gci_blocks *blocks, int first, int end)
{
    wide_piece p = { first, end, 0, 0 };
    for (int place = first; place < end; place++)
        p.bytes += gci_block_bytes(blocks, wide_rank(w, place));
    return p;
}

/* The next piece of the blocks of places up to `end`; the first one follows an empty one. */
static bool wide_next(const wide *w, const gci_blocks *blocks, int end, wide_piece *p)
{
    size_t segment = gci_segment_at(w->call, SIZE_MAX, 1), bytes = 0;
    int place = p->end;
    if (p->bytes > 0 && p->end == p->first + 1 && p->at + p->bytes < gci_block_bytes(blocks, wide_rank(w, p->first))) {
        size_t at = p->at + p->bytes;
        *p = (wide_piece){ p->first, p->end, at, gci_min(gci_block_bytes(blocks, wide_rank(w, p->first)) - at, segment) };
        return true;
    }
    while (place < end && gci_block_bytes(blocks, wide_rank(w, place)) == 0)
        place++;
    *p = (wide_piece){ place, place, 0, 0 };
    while (p->end < end && (bytes = gci_block_bytes(blocks, wide_rank(w, p->end))) <= segment - p->bytes) {
        p->bytes += bytes;
        p->end++;
    }
    if (p->bytes == 0 && p->first < end)
        *p = (wide_piece){ place, place + 1, 0, segment };
    return p->bytes > 0;
}

/* How much of a place's block is in a piece. */
static size_t wide_part_bytes(const wide *w, const gci_blocks *blocks, const wide_piece *p, int place)
{
    return p->end == p->first + 1 ? p->bytes : gci_block_bytes(blocks, wide_rank(w, place));
}

/* A stretch of the blocks of a piece that lie one after another; *next: where the one behind it begins. Returns its bytes. */
static size_t wide_run(const wide *w, const gci_blocks *blocks, const wide_piece *p, int *next, size_t *at)
{
    size_t bytes = 0;
    *at = 0;
    for (; *next < p->end; ++*next) {
        int rank = wide_rank(w, *next);
        size_t own = wide_part_bytes(w, blocks, p, *next), own_at = gci_block_at(blocks, rank) + p->at;
        if (own > 0 && bytes > 0 && own_at != *at + bytes)
            break;
        if (own > 0 && bytes == 0)
            *at = own_at;
        bytes += own;
    }
    return bytes;
}

/* Does a piece of the blocks in `area` lie in one run? Then *where. */
static bool wide_lies(const wide *w, gci_spot area, const gci_blocks *blocks, const wide_piece *p, gci_spot *where)
{
    int next = p->first;
    size_t at;
    wide_run(w, blocks, p, &next, &at);
    *where = gci_spot_at(area, at);
    return next == p->end;
}

/* Copies a piece from its blocks in `area` to `packed`, or back. Returns when that is done. */
static int32_t wide_move(wide *w, gci_spot area, const gci_blocks *blocks, const wide_piece *p, gci_spot packed, bool back,
                         int32_t after)
{
    for (int next = p->first; next < p->end; ) {
        size_t at, bytes = wide_run(w, blocks, p, &next, &at);
        gci_spot block = gci_spot_at(area, at);
        after = gci_emit_copy(w->b, back ? block : packed, back ? packed : block, bytes, after);
        packed = gci_spot_at(packed, bytes);
    }
    return after;
}

static int32_t wide_send_blocks(wide *w, int place, gci_spot area, const gci_blocks *blocks, wide_piece p, int32_t after)
{
    gci_spot from;
    if (p.bytes == 0)
        return after;
    if (!wide_lies(w, area, blocks, &p, &from)) {
        from = gci_emit_slot(w->b, p.bytes);
        after = wide_move(w, area, blocks, &p, from, false, after);
    }
    return wide_send(w, wide_rank(w, place), from, p.bytes, after);
}

/* after: when the blocks may be written. Returns when they are there. */
static int32_t wide_recv_blocks(wide *w, int place, gci_spot area, const gci_blocks *blocks, wide_piece p, int32_t after)
{
    gci_spot to;
    if (p.bytes == 0)
        return after;
    if (wide_lies(w, area, blocks, &p, &to))
        return wide_recv(w, wide_rank(w, place), to, p.bytes, after);
    to = gci_emit_slot(w->b, p.bytes);
    int32_t came = wide_recv(w, wide_rank(w, place), to, p.bytes, GCI_NO_STEP);
    return wide_move(w, area, blocks, &p, to, true, gci_emit_both(w->b, came, after));
}

/* ---- bcast, scatter and gather -------------------------------------------------------------------------------------- */

static const gci_spot wide_result = { GCI_BUF_RECV, 0 };

static void wide_bcast(wide *w)
{
    const gci_call *call = w->call;
    wide_node n = wide_local(w, wide_coordinator(w, w->mine), wide_group(w, gci_segment_at(call, call->bytes, 1)));
    for (int32_t i = 0; i < gci_segments(call, call->bytes); i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        gci_spot here = gci_spot_at(wide_result, at);
        int32_t came = GCI_NO_STEP;
        for (int k = 0; k < w->s->clusters && w->place == w->root_place; k++)
            if (k != w->mine)
                wide_send(w, wide_rank(w, wide_coordinator(w, k)), here, bytes, GCI_NO_STEP);
        if (n.parent < 0 && w->place != w->root_place)
            came = wide_recv(w, call->root, here, bytes, GCI_NO_STEP);
        wide_down(w, &n, here, bytes, came);
    }
}

/* The i-th of all other ranks in an order that keeps all links between clusters busy: one of each other cluster by turns, at
 * last this rank's own cluster, from the next member on. turn: 0, 0 at first. Returns -1 after the last one. */
static int wide_other(const wide *w, int turn[2])
{
    const gci_clusters *s = w->s;
    int longest = 0, size = wide_size(w, w->mine);
    for (int k = 0; k < s->clusters; k++)
        longest = k != w->mine && wide_size(w, k) > longest ? wide_size(w, k) : longest;
    for (; turn[0] < longest; turn[0]++, turn[1] = 0)
        while (turn[1] < s->clusters - 1) {
            int k = (w->mine + ++turn[1]) % s->clusters;
            if (turn[0] < wide_size(w, k))
                return s->member[s->first[k] + (turn[0] + w->place) % wide_size(w, k)];
        }
    if (turn[1] + 1 >= size)
        return -1;
    turn[1]++;
    return s->member[s->first[w->mine] + (w->place - s->first[w->mine] + turn[1]) % size];
}

/* Each block in a message of its own: flat, as the paper has it. */
static void wide_direct(wide *w)
{
    const gci_call *call = w->call;
    bool all = call->coll == GCI_ALLTOALL, root = call->rank == call->root;
    bool gives = all || (call->coll == GCI_SCATTER) == root, takes = all || (call->coll == GCI_GATHER) == root;
    const gci_blocks own = { call->own, NULL, NULL };
    const gci_blocks *send = all || call->coll == GCI_SCATTER ? &call->send : &own;
    const gci_blocks *recv = all || call->coll == GCI_GATHER ? &call->recv : &own;
    int turn[2] = { 0, 0 };
    for (int peer; (peer = wide_other(w, turn)) >= 0; ) {
        size_t to = gci_block_bytes(send, send == &own ? 0 : peer), from = gci_block_bytes(recv, recv == &own ? 0 : peer);
        if (takes && from > 0 && (all || root || peer == call->root))
            wide_recv(w, peer, gci_spot_at(wide_result, recv == &own ? 0 : gci_block_at(recv, peer)), from, w->may_write);
        if (gives && to > 0 && (all || root || peer == call->root))
            wide_send(w, peer, gci_spot_at(w->b->input, send == &own ? 0 : gci_block_at(send, peer)), to, w->b->ready);
    }
    bool stays = !all && (!root || call->in_place);
    size_t send_at = send == &own || stays ? 0 : gci_block_at(send, call->rank);
    size_t recv_at = recv == &own || stays ? 0 : gci_block_at(recv, call->rank);
    if (!stays)
        gci_emit_copy(w->b, gci_spot_at(wide_result, recv_at), gci_spot_at(w->b->input, send_at),
                      gci_block_bytes(send, call->rank), w->may_write);
}

/* The root sends what is for a cluster to its coordinator; that passes on what is for a group to its head. */
static void wide_scatter(wide *w)
{
    const gci_call *call = w->call;
    wide_node n = wide_local(w, wide_coordinator(w, w->mine), wide_group(w, 0));
    bool root = w->place == w->root_place;
    const gci_blocks packed = { call->own, NULL, NULL };
    gci_spot stage = w->b->input;
    int32_t came = GCI_NO_STEP;
    int from = n.parent < 0 ? call->root : wide_rank(w, n.parent);
    for (int k = 0; k < w->s->clusters && root; k++)
        if (k != w->mine)
            wide_send_blocks(w, wide_coordinator(w, k), stage, &call->send,
                             wide_whole(w, &call->send, w->s->first[k], w->s->first[k + 1]), GCI_NO_STEP);
    if (!root) {
        size_t bytes = (size_t)(n.end - n.first) * call->own;
        stage = n.end == n.first + 1 ? wide_result : gci_emit_slot(w->b, bytes);
        came = wide_recv(w, from, stage, bytes, GCI_NO_STEP);
    }
    for (int i = 0, end; i < n.children; i++) {
        int child = wide_child(&n, i, &end);
        if (root)
            wide_send_blocks(w, child, stage, &call->send, wide_whole(w, &call->send, child, end), GCI_NO_STEP);
        else
            wide_send(w, wide_rank(w, child), gci_spot_at(stage, gci_blocks_bytes(&packed, 0, child - n.first)),
                          (size_t)(end - child) * call->own, came);
    }
    size_t at = root ? gci_block_at(&call->send, call->rank) : (size_t)(w->place - n.first) * call->own;
    if (!call->in_place && stage.buf != GCI_BUF_RECV)
        gci_emit_copy(w->b, wide_result, gci_spot_at(stage, at), call->own, came);
}

static void wide_gather(wide *w)
{
    const gci_call *call = w->call;
    wide_node n = wide_local(w, wide_coordinator(w, w->mine), wide_group(w, 0));
    bool root = w->place == w->root_place, leaf = n.end == n.first + 1;
    size_t bytes = (size_t)(n.end - n.first) * call->own;
    gci_spot stage = root ? wide_result : leaf ? w->b->input : gci_emit_slot(w->b, bytes);
    for (int k = 0; k < w->s->clusters && root; k++)
        if (k != w->mine)
            wide_recv_blocks(w, wide_coordinator(w, k), stage, &call->recv,
                             wide_whole(w, &call->recv, w->s->first[k], w->s->first[k + 1]), GCI_NO_STEP);
    for (int i = 0, end; i < n.children; i++) {
        int child = wide_child(&n, i, &end);
        if (root)
            wide_recv_blocks(w, child, stage, &call->recv, wide_whole(w, &call->recv, child, end), GCI_NO_STEP);
        else
            gci_emit_pend(w->b, wide_recv(w, wide_rank(w, child),
                                              gci_spot_at(stage, (size_t)(child - n.first) * call->own),
                                              (size_t)(end - child) * call->own, GCI_NO_STEP));
    }
    if (root ? !w->b->input_is_recv : !leaf) {
        size_t at = root ? gci_block_at(&call->recv, call->rank) : (size_t)(w->place - n.first) * call->own;
        gci_emit_pend(w->b, gci_emit_copy(w->b, gci_spot_at(stage, at), w->b->input, call->own, GCI_NO_STEP));
    }
    if (!root)
        wide_send(w, n.parent < 0 ? call->root : wide_rank(w, n.parent), stage, bytes, gci_emit_join(w->b));
}

/* ---- alltoall ------------------------------------------------------------------------------------------------------- */

/* What goes to cluster j: each member's blocks for it, one member after another. */
static void wide_give(wide *w, int j)
{
    const gci_call *call = w->call;
    const gci_clusters *s = w->s;
    int top = wide_top(w, w->mine, j), first = s->first[w->mine], end = s->first[w->mine + 1];
    wide_piece row = wide_whole(w, &call->send, s->first[j], s->first[j + 1]);
    if (w->place != top) {
        wide_send_blocks(w, top, w->b->input, &call->send, row, w->b->ready);
        return;
    }
    gci_spot all = gci_emit_slot(w->b, row.bytes * (size_t)(end - first));
    for (int place = first; place < end; place++) {
        gci_spot to = gci_spot_at(all, row.bytes * (size_t)(place - first));
        gci_emit_pend(w->b, place == top ? wide_move(w, w->b->input, &call->send, &row, to, false, w->b->ready)
                                         : wide_recv(w, wide_rank(w, place), to, row.bytes, GCI_NO_STEP));
    }
    wide_send(w, wide_rank(w, wide_top(w, j, w->mine)), all, row.bytes * (size_t)(end - first), gci_emit_join(w->b));
}

/* What comes from cluster i: a row per sender; each member gets a column. */
static void wide_take(wide *w, int i)
{
    const gci_call *call = w->call;
    const gci_clusters *s = w->s;
    int top = wide_top(w, w->mine, i), first = s->first[w->mine], size = wide_size(w, w->mine), rows = wide_size(w, i);
    wide_piece column = wide_whole(w, &call->recv, s->first[i], s->first[i + 1]);
    if (w->place != top) {
        wide_recv_blocks(w, top, wide_result, &call->recv, column, w->may_write);
        return;
    }
    gci_spot all = gci_emit_slot(w->b, column.bytes * (size_t)size);
    int32_t came = wide_recv(w, wide_rank(w, wide_top(w, i, w->mine)), all, column.bytes * (size_t)size, GCI_NO_STEP);
    for (int place = first; place < first + size; place++) {
        gci_spot to = place == top ? wide_result : gci_emit_slot(w->b, column.bytes);
        int32_t ready = gci_emit_both(w->b, came, place == top ? w->may_write : GCI_NO_STEP);
        for (int row = 0; row < rows; row++) {
            size_t at = place == top ? gci_block_at(&call->recv, wide_rank(w, column.first + row)) : (size_t)row * call->own;
            ready = gci_emit_copy(w->b, gci_spot_at(to, at), gci_spot_at(all, (size_t)(row * size + place - first) * call->own),
                                  call->own, ready);
        }
        if (place != top)
            wide_send(w, wide_rank(w, place), to, column.bytes, ready);
    }
}

static void wide_alltoall(wide *w)
{
    const gci_call *call = w->call;
    int first = w->s->first[w->mine], size = wide_size(w, w->mine);
    for (int d = 1; d < w->s->clusters; d++)
        wide_give(w, (w->mine + d) % w->s->clusters);
    for (int d = 1; d < size; d++) {
        int to = wide_rank(w, first + (w->place - first + d) % size);
        int from = wide_rank(w, first + (w->place - first + size - d) % size);
        wide_recv(w, from, gci_spot_at(wide_result, gci_block_at(&call->recv, from)), call->own, w->may_write);
        wide_send(w, to, gci_spot_at(w->b->input, gci_block_at(&call->send, to)), call->own, w->b->ready);
    }
    gci_emit_copy(w->b, gci_spot_at(wide_result, gci_block_at(&call->recv, call->rank)),
                  gci_spot_at(w->b->input, gci_block_at(&call->send, call->rank)), call->own, w->may_write);
    for (int d = 1; d < w->s->clusters; d++)
        wide_take(w, (w->mine + w->s->clusters - d) % w->s->clusters);
}

/* ---- allgather ------------------------------------------------------------------------------------------------------ */

/* One piece of cluster i's blocks. here: the step after which a coordinator has its own cluster's blocks, or other ranks may
 * overwrite them. */
static void wide_hand_out(wide *w, int i, const wide_piece *p, int32_t here)
{
    bool own = i == w->mine;
    wide_node n = wide_local(w, wide_top(w, w->mine, i), wide_group(w, 0));
    gci_spot at;
    bool lies = wide_lies(w, wide_result, &w->blocks, p, &at), source = own && n.parent < 0;
    if (!lies)
        at = gci_emit_slot(w->b, p->bytes);
    int32_t ready = lies ? here : GCI_NO_STEP;
    if (source) {
        ready = lies ? here : wide_move(w, wide_result, &w->blocks, p, at, false, here);
        for (int k = 0; k < w->s->clusters; k++)
            if (k != i)
                wide_send(w, wide_rank(w, wide_top(w, k, i)), at, p->bytes, ready);
    } else if (n.parent < 0) {
        ready = wide_recv(w, wide_rank(w, wide_coordinator(w, i)), at, p->bytes, ready);
    }
    ready = wide_down(w, &n, at, p->bytes, ready);
    if (!lies && !source)
        wide_move(w, wide_result, &w->blocks, p, at, true, gci_emit_both(w->b, ready, here));
}

/* The blocks of a cluster meet at its coordinator. Returns what wide_hand_out asks for. */
static int32_t wide_collect(wide *w)
{
    gci_builder *b = w->b;
    wide_node n = wide_local(w, wide_coordinator(w, w->mine), wide_group(w, 0));
    gci_spot own = gci_spot_at(wide_result, gci_block_at(&w->blocks, w->call->rank));
    for (int i = 0, end; i < n.children; i++) {
        int child = wide_child(&n, i, &end);
        gci_emit_pend(b, wide_recv_blocks(w, child, wide_result, &w->blocks, wide_whole(w, &w->blocks, child, end), GCI_NO_STEP));
    }
    bool inner = n.children > 0 || n.parent < 0;
    if (inner && !b->input_is_recv)
        gci_emit_pend(b, gci_emit_copy(b, own, b->input, w->call->own, GCI_NO_STEP));
    int32_t all = gci_emit_join(b);
    if (n.parent < 0)
        return all;
    if (inner)
        return wide_send_blocks(w, n.parent, wide_result, &w->blocks, wide_whole(w, &w->blocks, n.first, n.end), all);
    if (w->call->own == 0)
        return GCI_NO_STEP;
    int32_t sent = wide_send(w, wide_rank(w, n.parent), b->input, w->call->own, all);
    return b->input_is_recv ? sent : GCI_NO_STEP;
}

/* All clusters' first pieces, then all second ones: so they come, and so they are handed out. */
static void wide_allgather(wide *w)
{
    const gci_clusters *s = w->s;
    wide_piece *p = gci_alloc(w->b->env, (size_t)s->clusters * sizeof *p);
    if (!p) {
        w->b->error = GC_ERR_NOMEM;
        return;
    }
    int32_t here = wide_collect(w);
    for (int k = 0; k < s->clusters; k++)
        p[k] = (wide_piece){ s->first[k], s->first[k], 0, 0 };
    for (int more = s->clusters; more > 0 && !w->b->error; ) {
        more = 0;
        for (int d = 0; d < s->clusters; d++) {
            int k = (w->mine + d) % s->clusters;
            if (!wide_next(w, &w->blocks, s->first[k + 1], &p[k]))
                continue;
            wide_hand_out(w, k, &p[k], k == w->mine ? here : GCI_NO_STEP);
            more++;
        }
    }
    gci_free(w->b->env, p);
}

/* ---- expressions ---------------------------------------------------------------------------------------------------- */

/* A stream of vectors up one local tree, and to the clusters that want them. Scratch of a round: a lane per child, spare ones
 * (enum wide_spare), at a top a lane per part of the own cluster, and, where they meet, of all. */
enum wide_spare { WIDE_ACC, WIDE_PACK, WIDE_BEFORE };   /* where a value begins; for input that is moved; for a sum from above */

typedef struct wide_stream {
    wide_node node;
    int       wanted_by;        /* a cluster; -1: all */
    bool      spread;           /* its top is the member that deals with that cluster, not the coordinator */
    bool      takes;            /* here all parts meet */
    bool      keep;             /* what comes from children is needed later */
    bool      scan;             /* parts go to higher clusters only */
    int       spare;            /* lanes */
    size_t    lane_bytes;
    int       lanes, out, in;   /* where the own parts begin, and where all do */
    int32_t   rounds, window;
    gci_spot  ring;
    int32_t   free[WIDE_ROUNDS];        /* when the round that has this place of the ring is over */
} wide_stream;

static gci_spot wide_lane(const wide_stream *st, int32_t round, int lane)
{
    return gci_spot_at(st->ring, ((size_t)(round % st->window) * (size_t)st->lanes + (size_t)lane) * st->lane_bytes);
}

static gci_spot wide_spare_lane(const wide_stream *st, int32_t round, enum wide_spare lane)
{
    return wide_lane(st, round, st->node.children + (int)lane);
}

static int32_t wide_free(const wide_stream *st, int32_t round)
{
    return round < st->window ? GCI_NO_STEP : st->free[round % st->window];
}

/* Of any rank: all have the same window. */
static size_t wide_most_lanes(const wide *w)
{
    return wide_longest(w) + WIDE_BEFORE + (size_t)w->parts;
}

/* What stands before lane_bytes is set. most: bytes of a round. */
static void wide_open(wide *w, wide_stream *st, int32_t rounds, size_t most)
{
    int own = w->lane[w->mine + 1] - w->lane[w->mine];
    if (st->spare == WIDE_ACC + 1 && st->node.children == 0 && !st->takes && !st->scan)
        st->spare = 0;          /* nothing to add up here */
    st->out = st->node.children + st->spare;
    st->in = st->out + (st->node.parent < 0 ? own : 0);
    st->lanes = st->in + (st->takes ? w->parts : 0);
    st->lane_bytes = (most + 63) / 64 * 64;
    st->rounds = rounds;
    if (most > SIZE_MAX / 4 || (st->lane_bytes > 0 && wide_most_lanes(w) > SIZE_MAX / 4 / st->lane_bytes / WIDE_ROUNDS)) {
        w->b->error = GC_ERR_NOMEM;
        most = st->lane_bytes = 0;
    }
    size_t fit = WIDE_SCRATCH / (wide_most_lanes(w) * st->lane_bytes + 1);
    st->window = fit < 2 ? 2 : fit < WIDE_ROUNDS ? (int32_t)fit : WIDE_ROUNDS;
    st->window = rounds < st->window ? rounds : st->window;
    st->ring = gci_emit_slot(w->b, (size_t)st->lanes * st->lane_bytes * (size_t)st->window);
}

/* All that was pended in this round is its end. */
static void wide_close_round(wide *w, wide_stream *st, int32_t round)
{
    if (round + st->window < st->rounds)
        st->free[round % st->window] = gci_emit_join(w->b);
    else
        w->b->pendings = 0;
}

/* A value of nothing yet, in a spare lane. */
static wide_value wide_spare_value(const wide_stream *st, int32_t round, enum wide_spare lane)
{
    return (wide_value){ wide_spare_lane(st, round, lane), wide_free(st, round), 0, true };
}

/* left (op) right, in a place of one of them that may be written, or else in `acc`. */
static wide_value wide_meet(wide *w, wide_value left, wide_value right, wide_value acc, size_t bytes)
{
    int ranks = left.ranks + right.ranks;
    if (!right.writable && !left.writable && bytes > 0) {
        acc.step = gci_emit_copy(w->b, acc.at, left.at, bytes, gci_emit_both(w->b, left.step, acc.step));
        left = acc;
    }
    wide_value to = right.writable ? right : left, from = right.writable ? left : right;
    to.ranks = ranks;
    if (bytes == 0) {
        to.step = gci_emit_both(w->b, left.step, right.step);
        return to;
    }
    to.step = gci_emit_reduce(w->b, to.at, from.at, bytes, !right.writable, left.step);
    if (right.step != left.step)
        gci_emit_also(w->b, to.step, right.step);
    return to;
}

/* From the left, or the canonical expression: values that it does not divide come as one. */
static wide_value wide_eval(wide *w, const wide_value *v, int n, wide_value acc, size_t bytes)
{
    wide_value all = v[0];
    if (!w->canonical) {
        for (int i = 1; i < n; i++)
            all = wide_meet(w, all, v[i], acc, bytes);
        return all;
    }
    if (n == 1)
        return all;
    int ranks = 0, half = 1, left = 0;
    for (int i = 0; i < n; i++)
        ranks += v[i].ranks;
    while (half < ranks - half)
        half *= 2;
    for (ranks = 0; ranks < half; left++)
        ranks += v[left].ranks;
    return wide_meet(w, wide_eval(w, v, left, acc, bytes), wide_eval(w, v + left, n - left, acc, bytes), acc, bytes);
}

/* The end of the part that begins with rank `at` in [first, end), a canonical expression. */
static int wide_canonical_end(const wide *w, int at, int first, int end)
{
    for (;;) {
        int half = 1, same = at;
        while (same < end && w->s->of[same] == w->s->of[at])
            same++;
        if (at == first && same == end)
            return end;
        while (half < end - first - half)
            half *= 2;
        if (at < first + half)
            end = first + half;
        else
            first += half;
    }
}

/* Divides all ranks into parts. each: every rank is one. */
static int wide_divide(wide *w, bool each)
{
    const gci_call *call = w->call;
    const gci_clusters *s = w->s;
    size_t n = (size_t)call->ranks, clusters = (size_t)s->clusters;
    bool whole = !each && !w->canonical && (call->commutative || s->runs);
    w->part = gci_alloc(w->b->env, n * sizeof *w->part);
    w->value = gci_alloc(w->b->env, n * sizeof *w->value);
    w->operand = gci_alloc(w->b->env, n * sizeof *w->operand);
    w->lane = gci_alloc(w->b->env, (clusters + 1) * sizeof *w->lane);
    if (!w->part || !w->value || !w->operand || !w->lane)
        return GC_ERR_NOMEM;
    for (int k = 0; k <= s->clusters; k++)
        w->lane[k] = whole ? k : 0;
    for (int k = 0; k < s->clusters && whole; k++)
        w->part[w->parts++] = (wide_part){ k, s->first[k], s->first[k + 1] };
    for (int at = 0, end; at < call->ranks && !whole; at = end) {       /* lane[]: how many of this cluster's ranks so far */
        int k = s->of[at], first = s->first[k] + w->lane[k];
        for (end = at + 1; !each && end < call->ranks && s->of[end] == k; )
            end++;
        if (w->canonical && !each)
            end = wide_canonical_end(w, at, 0, call->ranks);
        w->part[w->parts++] = (wide_part){ k, first, first + end - at };
        w->lane[k] += end - at;
    }
    if (!whole) {
        memset(w->lane, 0, (clusters + 1) * sizeof *w->lane);
        for (int i = 0; i < w->parts; i++)
            w->lane[w->part[i].cluster + 1]++;
        for (int k = 0; k < s->clusters; k++)
            w->lane[k + 1] += w->lane[k];
    }
    return GC_OK;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

/* Groups can add up what they have only if it is of one part, and in any grouping. */
static int wide_group_up(const wide *w, size_t bytes)
{
    return w->parts > w->s->clusters || w->canonical ? 1 : wide_group(w, bytes);
}

/* Up the local tree. Returns when `input` has been read (at the top: by what is in value[] now, this cluster's parts). */
static int32_t wide_up(wide *w, wide_stream *st, int32_t round, wide_value input, size_t bytes)
{
    const wide_node *n = &st->node;
    wide_value acc = wide_spare_value(st, round, WIDE_ACC);
    int operands = 0;
    for (int i = 0, end; i <= n->children; i++) {
        if (i == n->before)
            w->operand[operands++] = input;
        if (i == n->children)
            break;
        int child = wide_child(n, i, &end);
        gci_spot at = wide_lane(st, round, i);
        int32_t came = wide_recv(w, wide_rank(w, child), at, bytes, wide_free(st, round));
        gci_emit_pend(w->b, came);
        w->operand[operands++] = (wide_value){ at, came, end - child, !st->keep };
    }
    if (n->parent >= 0) {
        wide_value all = wide_eval(w, w->operand, operands, acc, bytes);
        int32_t sent = wide_send(w, wide_rank(w, n->parent), all.at, bytes, all.step);
        gci_emit_pend(w->b, sent);
        return sent;
    }
    if (st->scan && w->mine == w->s->clusters - 1)
        return GCI_NO_STEP;
    for (int i = 0, from = 0; i < w->parts; i++) {
        int end = from;
        for (int ranks = 0; w->part[i].cluster == w->mine && ranks < w->part[i].end - w->part[i].first; end++)
            ranks += w->operand[end].ranks;
        if (end > from)
            w->value[i] = wide_eval(w, w->operand + from, end - from, acc, bytes);
        from = end;
    }
    return GCI_NO_STEP;
}

/* Is there a message of parts from cluster k to cluster j? */
static bool wide_goes(const wide_stream *st, int k, int j)
{
    return k != j && (st->wanted_by < 0 || st->wanted_by == j) && (!st->scan || k < j);
}

static int wide_speaker(const wide *w, const wide_stream *st, int cluster)
{
    return wide_top(w, cluster, st->spread ? st->wanted_by : cluster);
}

/* A top sends its parts to the clusters that want them; from then on they are not to be written. Returns when they no longer
 * need what they came from. */
static int32_t wide_tell(wide *w, wide_stream *st, int32_t round, size_t bytes)
{
    int own = w->lane[w->mine + 1] - w->lane[w->mine], receivers = 0;
    for (int j = 0; j < w->s->clusters; j++)
        receivers += wide_goes(st, w->mine, j);
    if (receivers == 0)
        return GCI_NO_STEP;
    gci_spot from = wide_lane(st, round, st->out);
    int32_t ready = GCI_NO_STEP;
    for (int i = 0, lane = 0; i < w->parts; i++) {
        wide_value *v = &w->value[i];
        if (w->part[i].cluster != w->mine)
            continue;
        if (own > 1 || v->at.buf == GCI_BUF_RECV) {
            gci_spot to = gci_spot_at(from, (size_t)lane++ * bytes);
            v->step = gci_emit_copy(w->b, to, v->at, bytes, gci_emit_both(w->b, v->step, wide_free(st, round)));
            v->at = to;
        } else {
            from = v->at;
        }
        v->writable = false;
        ready = gci_emit_both(w->b, ready, v->step);
    }
    for (int d = 1; d < w->s->clusters; d++) {
        int j = (w->mine + d) % w->s->clusters;
        if (wide_goes(st, w->mine, j))
            gci_emit_pend(w->b, wide_send(w, wide_rank(w, wide_speaker(w, st, j)), from, (size_t)own * bytes, ready));
    }
    return ready;
}

/* The other clusters' parts come into value[]. */
static void wide_hear(wide *w, wide_stream *st, int32_t round, size_t bytes)
{
    for (int d = 1; d < w->s->clusters; d++) {
        int k = (w->mine + d) % w->s->clusters, first = w->lane[k], n = w->lane[k + 1] - first;
        if (!wide_goes(st, k, w->mine))
            continue;
        gci_spot at = wide_lane(st, round, st->in + first);
        int32_t came = wide_recv(w, wide_rank(w, wide_speaker(w, st, k)), at, (size_t)n * bytes, wide_free(st, round));
        gci_emit_pend(w->b, came);
        for (int i = 0, lane = 0; lane < n; i++)
            if (w->part[i].cluster == k)
                w->value[i] = (wide_value){ gci_spot_at(at, (size_t)lane++ * bytes), came,
                                            w->part[i].end - w->part[i].first, true };
    }
}

static wide_value wide_input(const wide *w, size_t at)
{
    return (wide_value){ gci_spot_at(w->b->input, at), w->b->ready, 1, false };
}

/* Reduce, allreduce, and barrier, which is one of nothing. */
static void wide_reduce(wide *w)
{
    const gci_call *call = w->call;
    bool all = call->coll != GCI_REDUCE;
    size_t most = gci_segment_at(call, call->bytes, 1);
    int top = wide_coordinator(w, w->mine);
    wide_stream st = { .node = wide_local(w, top, wide_group_up(w, most)), .wanted_by = all ? -1 : w->s->of[call->root],
                       .spare = WIDE_ACC + 1 };
    wide_node down = wide_local(w, top, wide_group(w, most));
    int32_t rounds = gci_segments(call, call->bytes);
    st.takes = w->place == top && (all || w->place == w->root_place);
    wide_open(w, &st, rounds, most);
    for (int32_t i = 0; i < rounds && !w->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        gci_spot to = gci_spot_at(wide_result, at);
        int32_t here = wide_up(w, &st, i, wide_input(w, at), bytes);
        if (!w->b->input_is_recv)
            here = GCI_NO_STEP;
        if (w->place == top)
            wide_tell(w, &st, i, bytes);
        if (st.takes) {
            wide_hear(w, &st, i, bytes);
            wide_value sum = wide_eval(w, w->value, w->parts, wide_spare_value(&st, i, WIDE_ACC), bytes);
            here = gci_emit_copy(w->b, to, sum.at, bytes, sum.step);
            gci_emit_pend(w->b, here);
        }
        if (all)
            wide_down(w, &down, to, bytes, here);
        wide_close_round(w, &st, i);
    }
}

/* ---- reduce_scatter --------------------------------------------------------------------------------------------------- */

/* One piece for a cluster: this rank's part of it, from blocks that need not lie in one run. */
static wide_value wide_input_piece(wide *w, wide_stream *st, int32_t round, const wide_piece *p)
{
    wide_value v = wide_input(w, 0);
    if (wide_lies(w, w->b->input, &w->blocks, p, &v.at))
        return v;
    gci_spot packed = wide_spare_lane(st, round, WIDE_PACK);
    v.step = wide_move(w, w->b->input, &w->blocks, p, packed, false, gci_emit_both(w->b, v.step, wide_free(st, round)));
    v.at = packed;
    return v;
}

/* What it takes besides streams: sums of the own cluster's pieces that have not been dealt out. */
typedef struct wide_dealer {
    wide_stream *st;
    wide_piece   piece;         /* the last that was */
    int32_t      dealt;         /* so many */
    int32_t      last[WIDE_ROUNDS];     /* by round: what else is to end */
    wide_value   sum[WIDE_ROUNDS];
} wide_dealer;

/* The next sum goes to those whose blocks it has. */
static void wide_deal(wide *w, wide_dealer *d)
{
    wide_piece *p = &d->piece;
    int32_t round = d->dealt++, at_ring = round % d->st->window;
    size_t at = 0;
    wide_next(w, &w->blocks, w->s->first[w->mine + 1], p);
    if (d->st->takes)
        gci_emit_pend(w->b, d->last[at_ring]);
    for (int place = p->first; place < p->end; place++) {
        gci_spot to = gci_spot_at(wide_result, p->at), from = gci_spot_at(d->sum[at_ring].at, at);
        size_t bytes = wide_part_bytes(w, &w->blocks, p, place);
        int32_t sum = d->sum[at_ring].step;
        at += bytes;
        if (bytes > 0 && d->st->takes)
            gci_emit_pend(w->b, place == w->place ? gci_emit_copy(w->b, to, from, bytes, gci_emit_both(w->b, sum, w->may_write))
                                                  : wide_send(w, wide_rank(w, place), from, bytes, sum));
        else if (bytes > 0 && place == w->place)
            wide_recv(w, wide_rank(w, wide_coordinator(w, w->mine)), to, bytes, w->may_write);
    }
    if (d->st->takes)
        wide_close_round(w, d->st, round);
}

static void wide_reduce_piece(wide *w, wide_stream *st, int32_t round, const wide_piece *p, wide_dealer *d)
{
    wide_up(w, st, round, wide_input_piece(w, st, round, p), p->bytes);
    if (st->node.parent < 0)
        wide_tell(w, st, round, p->bytes);
    if (!st->takes) {
        wide_close_round(w, st, round);
        return;
    }
    wide_hear(w, st, round, p->bytes);
    d->sum[round % st->window] = wide_eval(w, w->value, w->parts, wide_spare_value(st, round, WIDE_ACC), p->bytes);
    d->last[round % st->window] = gci_emit_join(w->b);
}

/* A stream to every cluster, with a top of its own in each. A piece is dealt out as late as scratch allows: from a coordinator to
 * a member go both its vectors, which could go at once, and sums, for which messages from far away are needed. */
static void wide_reduce_scatter(wide *w)
{
    const gci_clusters *s = w->s;
    wide_stream *st = gci_alloc(w->b->env, (size_t)s->clusters * sizeof *st);
    wide_piece *p = gci_alloc(w->b->env, (size_t)s->clusters * sizeof *p);
    int32_t longest = 0;
    if (!st || !p)
        w->b->error = GC_ERR_NOMEM;
    for (int j = 0; j < s->clusters && !w->b->error; j++) {
        int32_t rounds = 0;
        size_t most = 0;
        const wide_piece begin = { s->first[j], s->first[j], 0, 0 };
        for (p[j] = begin; wide_next(w, &w->blocks, s->first[j + 1], &p[j]); rounds++)
            most = p[j].bytes > most ? p[j].bytes : most;
        p[j] = begin;
        st[j] = (wide_stream){ .node = wide_local(w, wide_top(w, w->mine, j), wide_group_up(w, 0)), .wanted_by = j,
                               .spread = true, .spare = s->runs ? WIDE_ACC + 1 : WIDE_PACK + 1 };
        st[j].takes = j == w->mine && st[j].node.parent < 0;
        if (rounds > 0)
            wide_open(w, &st[j], rounds, most);
        longest = rounds > longest ? rounds : longest;
    }
    wide_dealer dealer = { .st = st ? &st[w->mine] : NULL, .piece = { s->first[w->mine], s->first[w->mine], 0, 0 } };
    for (int32_t i = 0; i < longest && !w->b->error; i++)
        for (int d = 1; d <= s->clusters; d++) {
            int j = (w->mine + d) % s->clusters;
            if (i >= st[j].rounds)
                continue;
            if (j == w->mine && i >= st[j].window)
                wide_deal(w, &dealer);
            if (wide_next(w, &w->blocks, s->first[j + 1], &p[j]))
                wide_reduce_piece(w, &st[j], i, &p[j], &dealer);
        }
    while (!w->b->error && dealer.dealt < dealer.st->rounds)
        wide_deal(w, &dealer);
    gci_free(w->b->env, p);
    gci_free(w->b->env, st);
}

/* ---- scan and exscan --------------------------------------------------------------------------------------------------- */

/* Down the local tree: `before` is the sum of all ranks before the subtree (ranks 0: there are none). A child gets the sum of
 * what is before it: that, this rank's input, and what its sisters sent up. read: when nobody needs these as they are. */
static void wide_scan_down(wide *w, wide_stream *st, int32_t round, size_t at, size_t bytes, wide_value before, int32_t read)
{
    gci_builder *b = w->b;
    bool inclusive = w->call->coll == GCI_SCAN;
    gci_spot result = gci_spot_at(wide_result, at);
    wide_value mine = wide_input(w, at), x = mine;
    bool wanted = inclusive || st->node.children > 0;
    x.at = inclusive ? result : wide_spare_lane(st, round, WIDE_PACK);
    x.step = inclusive && b->input_is_recv ? read : !wanted ? GCI_NO_STEP
           : gci_emit_copy(b, x.at, mine.at, bytes, inclusive ? GCI_NO_STEP : wide_free(st, round));
    int32_t copied = x.step;
    if (before.ranks > 0 && wanted)
        x.step = gci_emit_reduce(b, x.at, before.at, bytes, false, gci_emit_both(b, x.step, before.step));
    gci_emit_pend(b, x.step);
    if (before.ranks > 0 && !inclusive) {
        int32_t may_write = b->input_is_recv ? gci_emit_both(b, read, copied) : GCI_NO_STEP;
        gci_emit_pend(b, gci_emit_copy(b, result, before.at, bytes, gci_emit_both(b, before.step, may_write)));
    }
    for (int i = 0, end; i < st->node.children; i++) {
        wide_value child = w->operand[i + 1];
        gci_emit_pend(b, wide_send(w, wide_rank(w, wide_child(&st->node, i, &end)), x.at, bytes, x.step));
        if (i + 1 == st->node.children)
            break;
        child.step = gci_emit_both(b, gci_emit_both(b, child.step, read), x.step);
        child.step = gci_emit_reduce(b, child.at, x.at, bytes, false, child.step);
        x = child;
    }
}

/* Clusters are runs: what a cluster sends up in its tree goes to all higher clusters, which begin with the sum of it. */
static void wide_scan_tree(wide *w)
{
    const gci_call *call = w->call;
    int top = wide_coordinator(w, w->mine);
    int32_t rounds = gci_segments(call, call->bytes);
    size_t most = gci_segment_at(call, call->bytes, 1);
    wide_stream st = { .node = wide_local(w, top, wide_group(w, most)), .wanted_by = -1, .keep = true, .scan = true,
                       .takes = w->place == top };
    enum wide_spare before_lane = st.node.children > 0 ? WIDE_BEFORE : WIDE_ACC;
    st.spare = (int)before_lane + 1;
    wide_open(w, &st, rounds, most);
    for (int32_t i = 0; i < rounds && !w->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        wide_value before = { .ranks = 0 };
        int32_t read = wide_up(w, &st, i, wide_input(w, at), bytes);
        if (w->place == top) {
            read = wide_tell(w, &st, i, bytes);
            wide_hear(w, &st, i, bytes);
            if (w->mine > 0)
                before = wide_eval(w, w->value, w->mine, wide_spare_value(&st, i, WIDE_ACC), bytes);
        } else {
            before = (wide_value){ wide_spare_lane(&st, i, before_lane), GCI_NO_STEP, 1, true };
            before.step = wide_recv(w, wide_rank(w, st.node.parent), before.at, bytes, wide_free(&st, i));
        }
        wide_scan_down(w, &st, i, at, bytes, before, read);
        wide_close_round(w, &st, i);
    }
}

/* value[k] becomes the sum of ranks up to k; canonical: of those of the last 2^i ranks up to k, 2^i the lowest bit of k + 1,
 * which is how the canonical expression of the first k + 1 ranks divides them (a Fenwick tree). */
static void wide_prefixes(wide *w, size_t bytes)
{
    int n = w->call->ranks;
    for (int size = 1; size < n && w->canonical; size *= 2)
        for (int k = 2 * size; k <= n; k += 2 * size)
            w->value[k - 1] = wide_meet(w, w->value[k - 1 - size], w->value[k - 1], w->value[k - 1], bytes);
    for (int k = 1; k < n && !w->canonical; k++)
        w->value[k] = wide_meet(w, w->value[k - 1], w->value[k], w->value[k], bytes);
    for (int k = 0; k < n; k++)
        gci_emit_pend(w->b, w->value[k].step);
}

/* The sum of the first n ranks, perhaps put together in `at` (after the step `free`). */
static wide_value wide_prefix(wide *w, int n, gci_spot at, int32_t free, size_t bytes)
{
    int rest = w->canonical ? n & (n - 1) : 0;
    wide_value sum = w->value[n - 1];
    if (rest > 0) {
        sum.step = gci_emit_copy(w->b, at, sum.at, bytes, gci_emit_both(w->b, sum.step, free));
        sum.at = at;
    }
    for (; rest > 0; rest &= rest - 1)
        sum.step = gci_emit_reduce(w->b, at, w->value[rest - 1].at, bytes, false,
                                   gci_emit_both(w->b, sum.step, w->value[rest - 1].step));
    return sum;
}

/* A coordinator has all vectors and makes its members' results. told: the own ones have been copied, their lanes are free. */
static void wide_scan_results(wide *w, wide_stream *st, int32_t round, size_t at, size_t bytes, int32_t told)
{
    gci_builder *b = w->b;
    gci_spot own = wide_lane(st, round, st->in + w->lane[w->mine]), result = gci_spot_at(wide_result, at);
    for (int i = 0, lane = 0; i < w->parts; i++)
        if (w->part[i].cluster == w->mine) {
            wide_value *v = &w->value[i];
            gci_spot to = gci_spot_at(own, (size_t)lane++ * bytes);
            v->step = gci_emit_copy(b, to, v->at, bytes, gci_emit_both(b, v->step, wide_free(st, round)));
            v->at = to;
            v->writable = true;
        }
    wide_prefixes(w, bytes);
    for (int i = -1, end; i < st->node.children; i++) {
        int rank = i < 0 ? w->call->rank : wide_rank(w, wide_child(&st->node, i, &end)), n = rank + (w->call->coll == GCI_SCAN);
        if (n == 0)
            continue;
        wide_value sum = wide_prefix(w, n, i < 0 ? wide_spare_lane(st, round, WIDE_ACC) : wide_lane(st, round, i),
                                     i < 0 ? wide_free(st, round) : told, bytes);
        gci_emit_pend(b, i < 0 ? gci_emit_copy(b, result, sum.at, bytes, gci_emit_both(b, sum.step, told))
                               : wide_send(w, rank, sum.at, bytes, sum.step));
    }
}

/* Otherwise: coordinators trade all vectors. */
static void wide_scan_all(wide *w)
{
    const gci_call *call = w->call;
    int top = wide_coordinator(w, w->mine);
    int32_t rounds = gci_segments(call, call->bytes);
    wide_stream st = { .node = wide_local(w, top, 1), .wanted_by = -1, .takes = w->place == top, .spare = WIDE_ACC + 1 };
    wide_open(w, &st, rounds, gci_segment_at(call, call->bytes, 1));
    for (int32_t i = 0; i < rounds && !w->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        int32_t read = wide_up(w, &st, i, wide_input(w, at), bytes);
        if (w->place == top) {
            read = wide_tell(w, &st, i, bytes);
            wide_hear(w, &st, i, bytes);
            wide_scan_results(w, &st, i, at, bytes, read);
        } else if (call->coll == GCI_SCAN || call->rank > 0) {
            wide_recv(w, wide_rank(w, top), gci_spot_at(wide_result, at), bytes, w->b->input_is_recv ? read : GCI_NO_STEP);
        }
        wide_close_round(w, &st, i);
    }
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

/* Blocks with their offsets, so that none has to be counted from the beginning. */
static int wide_place_blocks(wide *w, const gci_blocks *blocks)
{
    w->blocks = *blocks;
    if (blocks->at || !blocks->bytes)
        return GC_OK;
    w->offset = gci_alloc(w->b->env, (size_t)w->call->ranks * sizeof *w->offset);
    if (!w->offset)
        return GC_ERR_NOMEM;
    for (int rank = 0; rank < w->call->ranks; rank++)
        w->offset[rank] = rank > 0 ? w->offset[rank - 1] + blocks->bytes[rank - 1] : 0;
    w->blocks.at = w->offset;
    return GC_OK;
}

/* Up to which blocks are bundled. Bundles of an alltoall move within two clusters, at tops that have more than one each if there
 * are fewer ranks than clusters to share them; and must find room. */
static size_t wide_limit(const wide *w)
{
    size_t limit = WIDE_BUNDLE / 2, pairs = (size_t)w->s->clusters * (size_t)w->s->clusters, longest = wide_longest(w);
    if (w->call->coll != GCI_ALLTOALL)
        return WIDE_BUNDLE;
    limit = gci_min(limit, limit * (size_t)w->call->ranks / pairs);
    return gci_min(limit, WIDE_SCRATCH / 4 / (longest * longest));
}

static void wide_personal(wide *w)
{
    const gci_call *call = w->call;
    if (!call->even || call->own > wide_limit(w))
        wide_direct(w);
    else if (call->coll == GCI_SCATTER)
        wide_scatter(w);
    else if (call->coll == GCI_GATHER)
        wide_gather(w);
    else
        wide_alltoall(w);
}

static void wide_reductions(wide *w)
{
    const gci_call *call = w->call;
    bool scan = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN, barrier = call->coll == GCI_BARRIER;
    bool blocks = call->coll == GCI_REDUCE_SCATTER;
    size_t bytes = blocks ? gci_blocks_bytes(&call->send, 0, call->ranks) / (size_t)call->ranks : call->bytes;
    bool from_left = !call->associative && !barrier;
    w->canonical = call->canonical && !from_left && !barrier;
    bool all = scan && (from_left || w->canonical || !w->s->runs);
    if (from_left && bytes > WIDE_SHORT)
        w->b->error = GC_ERR_UNSUPPORTED;
    else if (wide_divide(w, from_left || all) < 0 || (blocks && wide_place_blocks(w, &call->send) < 0))
        w->b->error = GC_ERR_NOMEM;
    else if (blocks)
        wide_reduce_scatter(w);
    else if (!scan)
        wide_reduce(w);
    else if (all)
        wide_scan_all(w);
    else
        wide_scan_tree(w);
}

static bool wide_is_rooted(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

GCI void gci_wide_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    wide w = { .b = b, .call = call, .s = call->clusters, .root_place = -1, .may_write = b->ready };
    if (!w.s || w.s->clusters < 2) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    w.queue = gci_alloc(b->env, 2 * (size_t)call->ranks * sizeof *w.queue);
    if (!w.queue) {
        b->error = GC_ERR_NOMEM;
        return;
    }
    w.joined.a = w.joined.b = w.joined.both = GCI_NO_STEP;
    for (int i = 0; i < 2 * call->ranks; i++)
        w.queue[i] = GCI_NO_STEP;
    w.mine = w.s->of[call->rank];
    for (int place = 0; place < call->ranks; place++) {
        if (w.s->member[place] == call->rank)
            w.place = place;
        if (w.s->member[place] == call->root && wide_is_rooted(call->coll))
            w.root_place = place;
    }
    if (call->coll == GCI_BCAST)
        wide_bcast(&w);
    else if (call->coll == GCI_ALLGATHER && wide_place_blocks(&w, &call->recv) < 0)
        b->error = GC_ERR_NOMEM;
    else if (call->coll == GCI_ALLGATHER)
        wide_allgather(&w);
    else if (call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_ALLTOALL)
        wide_personal(&w);
    else
        wide_reductions(&w);
    gci_free(b->env, w.queue);
    gci_free(b->env, w.offset);
    gci_free(b->env, w.part);
    gci_free(b->env, w.lane);
    gci_free(b->env, w.value);
    gci_free(b->env, w.operand);
}
