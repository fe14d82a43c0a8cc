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
 * Trees within a cluster go by racks and hosts (local.c), with the top as their root.
 *
 * Short blocks of scatter, gather and alltoall go together to a cluster, long ones from rank to rank. Which is which, both ranks
 * of a block see; the sizes that those on the way need, where not all know them, are told within each cluster first (gci_ask).
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

#include <stdlib.h>

enum { WIDE_STREAM = 16,           /* segments of a vector, more than which are many */
       WIDE_TOPS = 4,              /* of a cluster, side by side, ... */
       WIDE_TOP_BYTES = 512 * 1024, /* ... each for so much of a vector at least: less fits the window of one connection */
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

/* Trees inside a cluster: by racks and hosts, for blocks that each go through it once, for vectors that all get, for long ones;
 * or of one level. */
enum wide_shape { WIDE_BLOCKS, WIDE_VECTORS, WIDE_STREAMS, WIDE_STAR, WIDE_SHAPES };

/* A place is an index to member[]. */
typedef struct wide {
    gci_env            *env;
    gci_builder        *b;
    bool                hungry;             /* memory has failed */
    const gci_call     *call;
    const gci_clusters *s;
    int32_t            *member;             /* [ranks] by cluster, and within it near ones together where the order is free */
    int32_t            *cut[WIDE_SHAPES];   /* [ranks] of the own cluster, see local.c */
    struct wide_tree   *trees;
    bool                ranks_are_places, near_together;    /* the latter: a host's ranks stand side by side */
    int                 mine, place;        /* this rank's */
    int                 root_place;         /* -1: there is no root */
    bool                canonical;
    int32_t             may_write;          /* the step after which the receive buffer may be written */
    gci_blocks          blocks;             /* of reduce_scatter and allgather, with their offsets */
    size_t             *offset;
    gci_blocks          bundled[2];         /* what goes in bundles of blocks that are sent, and received */
    size_t             *lists;              /* [5 * ranks] of those blocks, and one to count with */
    const uint8_t      *heard;              /* by the top for a cluster: see wide_listen */
    size_t              heard_each;
    int                 parts;
    wide_part          *part;               /* in the order of evaluation */
    int                *lane;               /* [clusters + 1] how many parts are in lower clusters */
    wide_value         *value, *operand;    /* [parts] what they are worth; [ranks] what a fold is about */
    int32_t            *queue;              /* [2 * ranks] see wide_queue: of sends, and of receives */
    struct { int32_t a, b, both; } joined;  /* the last ones */
} wide;

typedef struct wide_tree {
    struct wide_tree *next;
    int               place;
    enum wide_shape   shape;
    gci_local_node    node;
    gci_places          child[];
} wide_tree;

static int wide_rank(const wide *w, int place)
{
    return w->member[place];
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

/* The place of the member of `cluster` that deals with cluster `with`; its coordinator if that is itself. They are a group
 * apart, so that trees with different tops have nearly the same groups, and messages of one do not wait for those of many. */
static int wide_top(const wide *w, int cluster, int with)
{
    int first = w->s->first[cluster], size = wide_size(w, cluster), group = gci_local_group(size, 0);
    if (w->root_place >= first && w->root_place < first + size)
        return w->root_place;
    return with == cluster ? first : first + (with * group + with * group / size) % size;
}

static int wide_coordinator(const wide *w, int cluster)
{
    return wide_top(w, cluster, cluster);
}

/* The first place behind the host that stands at `place`, or the end of its cluster. */
static int wide_next_host(const wide *w, int place, int end)
{
    const int32_t *host = w->s->topo->of;
    int next = place + 1;
    while (next < end && host[w->member[next]] == host[w->member[place]])
        next++;
    return next;
}

/* The top of every `turn`-th segment of a long vector: the first on a host of its own; of turn 0 the coordinator. */
static int wide_turn_top(const wide *w, int cluster, int turn)
{
    int end = w->s->first[cluster + 1], coordinator = wide_coordinator(w, cluster), place = w->s->first[cluster];
    const int32_t *host = w->s->topo->of;
    for (int others = 0; turn > 0; place = wide_next_host(w, place, end))
        if (host[w->member[place]] != host[w->member[coordinator]] && ++others == turn)
            return place;
    return coordinator;
}

/* In many segments a vector takes as long as the busiest NIC, in few as long as the tree is deep. */
static enum wide_shape wide_vectors(const wide *w)
{
    return gci_segments(w->call, w->call->bytes) > WIDE_STREAM ? WIDE_STREAMS : WIDE_VECTORS;
}

/* How many tops share a vector: so long ones use the NICs of several hosts, and more windows than one. */
static int wide_turns(const wide *w)
{
    size_t turns = gci_min(w->call->bytes / WIDE_TOP_BYTES, WIDE_TOPS);
    for (int k = 0; k < w->s->clusters; k++) {
        size_t hosts = 0;
        for (int place = w->s->first[k]; place < w->s->first[k + 1]; place = wide_next_host(w, place, w->s->first[k + 1]))
            hosts++;
        turns = gci_min(turns, hosts);
    }
    return turns > 1 && w->near_together ? (int)turns : 1;
}

/* A member of the own cluster in a tree of it. */
static gci_local_node wide_local_at(wide *w, int place, int top, enum wide_shape shape)
{
    int first = w->s->first[w->mine], end = w->s->first[w->mine + 1];
    wide_tree *t = w->trees;
    while (t && (t->node.top != top || t->shape != shape || t->place != place))
        t = t->next;
    if (t)
        return t->node;
    t = gci_alloc(w->env, sizeof *t + (size_t)(end - first + 1) * sizeof *t->child);
    if (!t) {
        w->hungry = true;
        if (w->b)
            w->b->error = GC_ERR_NOMEM;    /* so no stream begins with this */
        return (gci_local_node){ .top = top, .parent = -1, .first = place, .end = place + 1 };
    }
    *t = (wide_tree){ .next = w->trees, .place = place, .shape = shape, .node.child = t->child };
    (shape == WIDE_STREAMS ? gci_local_stream_at : gci_local_node_at)(w->cut[shape], first, end, place, top, &t->node);
    w->trees = t;
    return t->node;
}

static gci_local_node wide_local(wide *w, int top, enum wide_shape shape)
{
    return wide_local_at(w, w->place, top, shape);
}

/* The place of child i; *end: of its subtree. */
static int wide_child(const gci_local_node *n, int i, int *end)
{
    *end = n->child[i].end;
    return n->child[i].first;
}

static void wide_pass_down(wide *w, const gci_local_node *n, gci_spot at, size_t bytes, int32_t after)
{
    for (int i = 0, end; i < n->children; i++)
        wide_send(w, wide_rank(w, wide_child(n, i, &end)), at, bytes, after);
}

/* A message goes down: from the parent, or what is here `after` at the top, to the children. Returns when it is here. */
static int32_t wide_down(wide *w, const gci_local_node *n, gci_spot at, size_t bytes, int32_t after)
{
    if (n->parent >= 0)
        after = wide_recv(w, wide_rank(w, n->parent), at, bytes, after);
    wide_pass_down(w, n, at, bytes, after);
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

/* In the root's cluster all get all from the root; who gets a segment that it is the top of sends that on to the others. */
static void wide_bcast(wide *w)
{
    const gci_call *call = w->call;
    int turns = wide_turns(w), home = w->s->of[call->root];
    for (int32_t i = 0; i < gci_segments(call, call->bytes); i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        gci_spot here = gci_spot_at(wide_result, at);
        int turn = i % turns, source = wide_turn_top(w, home, turn), top = wide_turn_top(w, w->mine, turn);
        gci_local_node n = wide_local(w, w->mine == home ? w->root_place : top, wide_vectors(w));
        int32_t came = GCI_NO_STEP;
        if (w->mine != home && w->place == top)
            came = wide_recv(w, wide_rank(w, source), here, bytes, GCI_NO_STEP);
        else if (n.parent >= 0)
            came = wide_recv(w, wide_rank(w, n.parent), here, bytes, GCI_NO_STEP);
        for (int d = 1; d < w->s->clusters && w->place == source; d++) {
            int k = (home + d) % w->s->clusters;
            wide_send(w, wide_rank(w, wide_turn_top(w, k, turn)), here, bytes, came);
        }
        wide_pass_down(w, &n, here, bytes, came);
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
                return w->member[s->first[k] + (turn[0] + w->place) % wide_size(w, k)];
        }
    if (turn[1] + 1 >= size)
        return -1;
    turn[1]++;
    return w->member[s->first[w->mine] + (w->place - s->first[w->mine] + turn[1]) % size];
}

/* Blocks of more than `above` bytes each in a message of its own, flat, as the paper has it: those from and to other clusters, or
 * those of the own one. */
static void wide_direct(wide *w, size_t above, bool here)
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
        if ((w->s->of[peer] == w->mine) != here || (!all && !root && peer != call->root))
            continue;
        if (takes && from > above)
            wide_recv(w, peer, gci_spot_at(wide_result, recv == &own ? 0 : gci_block_at(recv, peer)), from, w->may_write);
        if (gives && to > above)
            wide_send(w, peer, gci_spot_at(w->b->input, send == &own ? 0 : gci_block_at(send, peer)), to, w->b->ready);
    }
    bool stays = !here || (!all && (!root || call->in_place));
    size_t send_at = send == &own || stays ? 0 : gci_block_at(send, call->rank);
    size_t recv_at = recv == &own || stays ? 0 : gci_block_at(recv, call->rank);
    if (!stays)
        gci_emit_copy(w->b, gci_spot_at(wide_result, recv_at), gci_spot_at(w->b->input, send_at),
                      gci_block_bytes(send, call->rank), w->may_write);
}

/* The root sends what is for a cluster to its coordinator; that passes on what is for a group to its head. */
static void wide_scatter(wide *w)
{
    const gci_blocks *blocks = &w->bundled[0];
    gci_local_node n = wide_local(w, wide_coordinator(w, w->mine), WIDE_BLOCKS);
    bool root = w->place == w->root_place, leaf = n.end == n.first + 1;
    size_t bytes = wide_whole(w, blocks, n.first, n.end).bytes, own = gci_block_bytes(blocks, w->call->rank);
    gci_spot stage = w->b->input;
    int32_t came = GCI_NO_STEP;
    for (int k = 0; k < w->s->clusters && root; k++)
        if (k != w->mine)
            wide_send_blocks(w, wide_coordinator(w, k), stage, blocks, wide_whole(w, blocks, w->s->first[k], w->s->first[k + 1]),
                             GCI_NO_STEP);
    if (!root && bytes > 0) {
        stage = leaf ? wide_result : gci_emit_slot(w->b, bytes);
        came = wide_recv(w, n.parent < 0 ? w->call->root : wide_rank(w, n.parent), stage, bytes, GCI_NO_STEP);
    }
    for (int i = 0, end; i < n.children; i++) {
        int child = wide_child(&n, i, &end);
        wide_piece p = wide_whole(w, blocks, child, end);
        if (root)
            wide_send_blocks(w, child, stage, blocks, p, GCI_NO_STEP);
        else if (p.bytes > 0)
            wide_send(w, wide_rank(w, child), gci_spot_at(stage, wide_whole(w, blocks, n.first, child).bytes), p.bytes, came);
    }
    if (!root && !leaf && own > 0)
        gci_emit_copy(w->b, wide_result, gci_spot_at(stage, wide_whole(w, blocks, n.first, w->place).bytes), own, came);
}

static void wide_gather(wide *w)
{
    const gci_blocks *blocks = &w->bundled[1];
    gci_local_node n = wide_local(w, wide_coordinator(w, w->mine), WIDE_BLOCKS);
    bool root = w->place == w->root_place, leaf = n.end == n.first + 1;
    size_t bytes = wide_whole(w, blocks, n.first, n.end).bytes, own = gci_block_bytes(blocks, w->call->rank);
    gci_spot stage = root ? wide_result : leaf ? w->b->input : gci_emit_slot(w->b, bytes);
    for (int k = 0; k < w->s->clusters && root; k++)
        if (k != w->mine)
            wide_recv_blocks(w, wide_coordinator(w, k), stage, blocks, wide_whole(w, blocks, w->s->first[k], w->s->first[k + 1]),
                             GCI_NO_STEP);
    for (int i = 0, end; i < n.children; i++) {
        int child = wide_child(&n, i, &end);
        wide_piece p = wide_whole(w, blocks, child, end);
        gci_spot at = gci_spot_at(stage, root ? 0 : wide_whole(w, blocks, n.first, child).bytes);
        if (root)
            wide_recv_blocks(w, child, stage, blocks, p, GCI_NO_STEP);
        else if (p.bytes > 0)
            gci_emit_pend(w->b, wide_recv(w, wide_rank(w, child), at, p.bytes, GCI_NO_STEP));
    }
    if (!root && !leaf && own > 0)
        gci_emit_pend(w->b, gci_emit_copy(w->b, gci_spot_at(stage, wide_whole(w, blocks, n.first, w->place).bytes), w->b->input,
                                          own, GCI_NO_STEP));
    if (!root && bytes > 0)
        wide_send(w, n.parent < 0 ? w->call->root : wide_rank(w, n.parent), stage, bytes, gci_emit_join(w->b));
}

/* ---- uneven blocks --------------------------------------------------------------------------------------------------- */

/* Where not all know all sizes, those who pass bundles on must hear them. So first, within each cluster alone, members tell
 *     scatter, gather    those above them in the tree, unless it is the root:  own block                        8 bytes
 *     alltoall           the top for each other cluster:  sum of what is bundled for that cluster              4 bytes
 *                                                         what of each rank there is bundled, 0 if nothing    2 bytes each
 * Nobody waits for an answer. It travels while bundles come from far, or just ahead of the blocks that are to be bundled, so it
 * costs a local latency only to those who must hear before they send: tops of an alltoall. Sizes that do not agree between two
 * ranks are seen where their bundle gets another length. */
enum { WIDE_OWN_BYTES = 8, WIDE_SUM_BYTES = 4, WIDE_SIZE_BYTES = 2 };

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

/* What a member tells about cluster k. */
static size_t wide_told_about(const wide *w, int k)
{
    return k == w->mine || wide_size(w, w->mine) == 1 ? 0 : WIDE_SUM_BYTES + WIDE_SIZE_BYTES * (size_t)wide_size(w, k);
}

/* How many bytes one member tells another one, or itself: about all clusters below `end`. */
static size_t wide_told(wide *w, int from, int to, int end)
{
    size_t bytes = 0;
    if (w->call->coll == GCI_ALLTOALL) {
        for (int k = 0; k < end; k++)
            bytes += wide_top(w, w->mine, k) == to ? wide_told_about(w, k) : 0;
        return bytes;
    }
    gci_local_node n = wide_local_at(w, to, wide_coordinator(w, w->mine), WIDE_BLOCKS);
    return to != w->root_place && n.children > 0 && from >= n.first && from < n.end ? WIDE_OWN_BYTES : 0;
}

/* Where the top for cluster k finds what its members have told about that. */
static void wide_listen(wide *w, int k)
{
    if (!w->call->heard)
        return;
    w->heard = w->call->heard + wide_told(w, w->place, w->place, k);
    w->heard_each = wide_told(w, w->place, w->place, w->s->clusters);
}

static const uint8_t *wide_heard(const wide *w, int place)
{
    return w->heard + (size_t)(place - w->s->first[w->mine]) * w->heard_each;
}

/* The blocks that are bundled, those this rank sends or those it receives, as it knows them from its call. */
static void wide_bundle_own(wide *w, const gci_blocks *blocks, bool recv, size_t limit)
{
    size_t ranks = (size_t)w->call->ranks, *bytes = w->lists + 2 * ranks * recv, *at = bytes + ranks, packed = 0;
    for (int rank = 0; rank < w->call->ranks; rank++) {
        size_t block = gci_block_bytes(blocks, rank);
        at[rank] = blocks->at ? blocks->at[rank] : packed;
        bytes[rank] = block <= limit ? block : 0;
        packed += block;
    }
    w->bundled[recv] = (gci_blocks){ .bytes = bytes, .at = at };
}

/* The same at a rank that has but one block: as it has heard of what it is to pass on. */
static void wide_bundle_heard(wide *w, bool recv, size_t limit)
{
    gci_local_node n = wide_local(w, wide_coordinator(w, w->mine), WIDE_BLOCKS);
    for (int place = n.first; place < n.end; place++) {
        const uint8_t *told = w->call->heard + (size_t)(place - n.first) * WIDE_OWN_BYTES;
        uint64_t block = place == w->place ? w->call->own : gci_get64(told);
        w->lists[wide_rank(w, place)] = block <= limit ? (size_t)block : 0;
    }
    w->bundled[recv] = (gci_blocks){ .bytes = w->lists };
}

/* Sets w->bundled. Returns up to which size blocks are; 0: none. */
static size_t wide_bundle(wide *w)
{
    const gci_call *call = w->call;
    bool all = call->coll == GCI_ALLTOALL, root = w->place == w->root_place, recv = call->coll == GCI_GATHER;
    size_t limit = wide_limit(w);
    if (call->even ? call->own > limit : !call->heard)
        return 0;
    w->bundled[0] = w->bundled[1] = (gci_blocks){ .each = call->own };
    w->lists = gci_alloc(w->b->env, 5 * (size_t)call->ranks * sizeof *w->lists);
    if (!w->lists)
        w->b->error = GC_ERR_NOMEM;
    else if (!call->even && !all && !root)
        wide_bundle_heard(w, recv, limit);
    for (int side = 0; side < 2 && w->lists && !call->even; side++)
        if (all || (root && side == recv))
            wide_bundle_own(w, side ? &call->recv : &call->send, side, limit);
    return limit;
}

/* ---- alltoall ------------------------------------------------------------------------------------------------------- */

/* What goes to cluster j: each member's blocks for it, one member after another. */
static void wide_give(wide *w, int j)
{
    const gci_clusters *s = w->s;
    const gci_blocks *blocks = &w->bundled[0];
    int top = wide_top(w, w->mine, j), first = s->first[w->mine], end = s->first[w->mine + 1];
    wide_piece row = wide_whole(w, blocks, s->first[j], s->first[j + 1]);
    size_t total = 0, at = 0, bytes;
    if (w->place != top) {
        wide_send_blocks(w, top, w->b->input, blocks, row, w->b->ready);
        return;
    }
    wide_listen(w, j);
    for (int place = first; place < end; place++)
        total += place == top || !w->call->heard ? row.bytes : gci_get32(wide_heard(w, place));
    if (total == 0)
        return;
    gci_spot all = gci_emit_slot(w->b, total);
    for (int place = first; place < end; place++, at += bytes) {
        gci_spot to = gci_spot_at(all, at);
        bytes = place == top || !w->call->heard ? row.bytes : gci_get32(wide_heard(w, place));
        if (bytes > 0)
            gci_emit_pend(w->b, place == top ? wide_move(w, w->b->input, blocks, &row, to, false, w->b->ready)
                                             : wide_recv(w, wide_rank(w, place), to, bytes, GCI_NO_STEP));
    }
    wide_send(w, wide_rank(w, wide_top(w, j, w->mine)), all, total, gci_emit_join(w->b));
}

/* What the row-th rank of cluster i has in a bundle for a member. */
static size_t wide_bundled_for(const wide *w, int place, int i, int row)
{
    if (place == w->place || !w->call->heard)
        return gci_block_bytes(&w->bundled[1], wide_rank(w, w->s->first[i] + row));
    return gci_get16(wide_heard(w, place) + WIDE_SUM_BYTES + WIDE_SIZE_BYTES * row);
}

/* What comes from cluster i: a row per sender; each member gets a column. at: [rows] where what is next in each row begins. */
static void wide_deal_out(wide *w, int i, size_t *at, gci_spot all, int32_t came)
{
    const gci_blocks *blocks = &w->bundled[1];
    int first = w->s->first[w->mine], rows = wide_size(w, i);
    for (int place = first; place < first + wide_size(w, w->mine); place++) {
        bool own = place == w->place;
        size_t column = 0, bytes, packed = 0;
        for (int row = 0; row < rows; row++)
            column += wide_bundled_for(w, place, i, row);
        gci_spot to = own ? wide_result : gci_emit_slot(w->b, column);
        int32_t ready = gci_emit_both(w->b, came, own ? w->may_write : GCI_NO_STEP);
        for (int row = 0; row < rows; row++, packed += bytes) {
            bytes = wide_bundled_for(w, place, i, row);
            size_t to_at = own ? gci_block_at(blocks, wide_rank(w, w->s->first[i] + row)) : packed;
            if (bytes > 0)
                ready = gci_emit_copy(w->b, gci_spot_at(to, to_at), gci_spot_at(all, at[row]), bytes, ready);
            at[row] += bytes;
        }
        if (!own && column > 0)
            wide_send(w, wide_rank(w, place), to, column, ready);
    }
}

static void wide_take(wide *w, int i)
{
    int top = wide_top(w, w->mine, i), first = w->s->first[w->mine], end = w->s->first[w->mine + 1];
    size_t *at = w->lists + 4 * (size_t)w->call->ranks, total = 0;
    if (w->place != top) {
        wide_piece column = wide_whole(w, &w->bundled[1], w->s->first[i], w->s->first[i + 1]);
        wide_recv_blocks(w, top, wide_result, &w->bundled[1], column, w->may_write);
        return;
    }
    wide_listen(w, i);
    for (int row = 0; row < wide_size(w, i); row++) {
        at[row] = total;
        for (int place = first; place < end; place++)
            total += wide_bundled_for(w, place, i, row);
    }
    if (total == 0)
        return;
    gci_spot all = gci_emit_slot(w->b, total);
    int32_t came = wide_recv(w, wide_rank(w, wide_top(w, i, w->mine)), all, total, GCI_NO_STEP);
    wide_deal_out(w, i, at, all, came);
}

/* Blocks that need no bundle first: they can go at once. */
static void wide_alltoall(wide *w, size_t limit)
{
    int clusters = limit > 0 ? w->s->clusters : 0;
    wide_direct(w, limit, false);
    for (int d = 1; d < clusters; d++)
        wide_give(w, (w->mine + d) % clusters);
    wide_direct(w, 0, true);
    for (int d = 1; d < clusters; d++)
        wide_take(w, (w->mine + clusters - d) % clusters);
}

/* ---- allgather ------------------------------------------------------------------------------------------------------ */

/* One piece of cluster i's blocks. here: the step after which a coordinator has its own cluster's blocks, or other ranks may
 * overwrite them. */
static void wide_hand_out(wide *w, int i, const wide_piece *p, int32_t here)
{
    bool own = i == w->mine;
    gci_local_node n = wide_local(w, wide_top(w, w->mine, i), WIDE_VECTORS);
    gci_spot at;
    bool lies = wide_lies(w, wide_result, &w->blocks, p, &at), source = own && n.parent < 0;
    if (!lies)
        at = gci_emit_slot(w->b, p->bytes);
    int32_t ready = lies ? here : GCI_NO_STEP;
    if (source) {
        ready = lies ? here : wide_move(w, wide_result, &w->blocks, p, at, false, here);
        for (int d = 1; d < w->s->clusters; d++)       /* by turns, so that not all meet at one cluster's way in */
            wide_send(w, wide_rank(w, wide_top(w, (i + d) % w->s->clusters, i)), at, p->bytes, ready);
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
    gci_local_node n = wide_local(w, wide_coordinator(w, w->mine), WIDE_BLOCKS);
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
    gci_local_node node;
    int       wanted_by;        /* a cluster; -1: all */
    bool      spread;           /* its top is the member that deals with that cluster, not the coordinator */
    int       turn;             /* of the tops that share a vector */
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

/* All that was pended in this round is its end; and its place was free before, though it may not have asked. */
static void wide_close_round(wide *w, wide_stream *st, int32_t round)
{
    gci_emit_pend(w->b, wide_free(st, round));
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

/* A subtree can add up what it has only if that is of one part, and in any grouping. */
static bool wide_adds_up(const wide *w)
{
    return w->parts <= w->s->clusters && !w->canonical;
}

/* Up the local tree. Returns when `input` has been read (at the top: by what is in value[] now, this cluster's parts). */
static int32_t wide_up(wide *w, wide_stream *st, int32_t round, wide_value input, size_t bytes)
{
    const gci_local_node *n = &st->node;
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
    return st->turn > 0 && cluster != st->wanted_by ? wide_turn_top(w, cluster, st->turn)
                                                    : wide_top(w, cluster, st->spread ? st->wanted_by : cluster);
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

/* Rounds of a stream that has every turns-th segment. */
static void wide_open_turn(wide *w, wide_stream *st, int turn, int turns)
{
    const gci_call *call = w->call;
    bool all = call->coll != GCI_REDUCE;
    size_t most = gci_segment_at(call, call->bytes, 1);
    int home = all ? -1 : w->s->of[call->root];
    int top = w->mine == home ? w->root_place : wide_turn_top(w, w->mine, turn);
    *st = (wide_stream){ .node = wide_local(w, top, wide_adds_up(w) ? wide_vectors(w) : WIDE_STAR),
                         .wanted_by = home, .turn = turn, .spare = WIDE_ACC + 1,
                         .takes = w->place == top && (all || w->place == w->root_place) };
    wide_open(w, st, (gci_segments(call, call->bytes) - turn + turns - 1) / turns, most);
}

/* Reduce, allreduce, and barrier, which is one of nothing. */
static void wide_reduce(wide *w)
{
    const gci_call *call = w->call;
    wide_stream stream[WIDE_TOPS];
    int turns = wide_turns(w);
    for (int turn = 0; turn < turns; turn++)
        wide_open_turn(w, &stream[turn], turn, turns);
    for (int32_t i = 0; i < gci_segments(call, call->bytes) && !w->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        wide_stream *st = &stream[i % turns];
        int32_t round = i / turns;
        gci_spot to = gci_spot_at(wide_result, at);
        int32_t here = wide_up(w, st, round, wide_input(w, at), bytes);
        if (!w->b->input_is_recv)
            here = GCI_NO_STEP;
        if (w->place == st->node.top)
            wide_tell(w, st, round, bytes);
        if (st->takes) {
            wide_hear(w, st, round, bytes);
            wide_value sum = wide_eval(w, w->value, w->parts, wide_spare_value(st, round, WIDE_ACC), bytes);
            here = gci_emit_copy(w->b, to, sum.at, bytes, sum.step);
            gci_emit_pend(w->b, here);
        }
        if (call->coll != GCI_REDUCE) {
            gci_local_node down = wide_local(w, st->node.top, wide_vectors(w));
            wide_down(w, &down, to, bytes, here);
        }
        wide_close_round(w, st, round);
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
        enum wide_shape shape = wide_adds_up(w) ? WIDE_BLOCKS : WIDE_STAR;
        st[j] = (wide_stream){ .node = wide_local(w, wide_top(w, w->mine, j), shape), .wanted_by = j,
                               .spread = true, .spare = w->ranks_are_places ? WIDE_ACC + 1 : WIDE_PACK + 1 };
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
    wide_stream st = { .node = wide_local(w, top, WIDE_VECTORS), .wanted_by = -1, .keep = true, .scan = true,
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
    wide_stream st = { .node = wide_local(w, top, WIDE_STAR), .wanted_by = -1, .takes = w->place == top, .spare = WIDE_ACC + 1 };
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

static void wide_personal(wide *w)
{
    size_t limit = wide_bundle(w);
    if (w->b->error)
        return;
    if (w->call->coll == GCI_ALLTOALL) {
        wide_alltoall(w, limit);
        return;
    }
    if (w->call->coll == GCI_SCATTER && limit > 0)
        wide_scatter(w);
    wide_direct(w, limit, false);
    wide_direct(w, limit, true);
    if (w->call->coll == GCI_GATHER && limit > 0)
        wide_gather(w);
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

/* Is it free in which order ranks meet? Then near ones stand together. */
static bool wide_is_free(const gci_call *call)
{
    bool scan = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN, barrier = call->coll == GCI_BARRIER;
    return barrier || !gci_coll_reduces(call->coll) || (!scan && call->commutative && call->associative && !call->canonical);
}

static int wide_compare(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Bytes of a message that all members of a cluster get, about. */
static size_t wide_message(const gci_call *call)
{
    bool blocks = call->coll == GCI_ALLGATHER;
    size_t bytes = blocks ? gci_blocks_bytes(&call->recv, 0, call->ranks) / (size_t)call->clusters->clusters : call->bytes;
    return gci_segment_at(call, bytes, 1);
}

/* Who stands where, and what lies between those of the own cluster. */
static int wide_begin(wide *w, gci_env *env, const gci_call *call)
{
    const gci_clusters *s = call->clusters;
    const gci_topo *topo = s->topo;
    size_t n = (size_t)call->ranks;
    int32_t *block = gci_alloc(env, (3 + WIDE_SHAPES) * n * sizeof *block);
    *w = (wide){ .env = env, .call = call, .s = s, .mine = s->of[call->rank], .root_place = -1, .queue = block,
                 .joined = { GCI_NO_STEP, GCI_NO_STEP, GCI_NO_STEP } };
    if (!block)
        return GC_ERR_NOMEM;
    w->member = block + 2 * n;
    for (size_t shape = 0; shape < WIDE_SHAPES; shape++)
        w->cut[shape] = block + (3 + shape) * n;
    for (size_t i = 0; i < 2 * n; i++)
        w->queue[i] = GCI_NO_STEP;
    memcpy(w->member, s->member, n * sizeof *w->member);
    for (int k = 0; k < s->clusters && wide_is_free(call); k++) {
        int first = s->first[k], size = wide_size(w, k);
        for (int i = 0; i < size; i++)
            w->member[first + i] = topo->place[s->member[first + i]];
        qsort(w->member + first, (size_t)size, sizeof *w->member, wide_compare);
        for (int i = 0; i < size; i++)
            w->member[first + i] = topo->order[w->member[first + i]];
    }
    w->ranks_are_places = true;
    w->near_together = wide_is_free(call);
    for (int place = 0; place < call->ranks; place++) {
        w->ranks_are_places &= w->member[place] == place;
        if (w->member[place] == call->rank)
            w->place = place;
        if (w->member[place] == call->root && wide_is_rooted(call->coll))
            w->root_place = place;
    }
    int first = s->first[w->mine], end = s->first[w->mine + 1];
    for (int shape = WIDE_BLOCKS; shape < WIDE_STAR; shape++)
        gci_local_cuts(topo, w->member, first, end, w->cut[shape]);
    gci_local_groups(first, end, 0, w->cut[WIDE_BLOCKS]);
    gci_local_groups(first, end, wide_message(call), w->cut[WIDE_VECTORS]);
    return GC_OK;
}

static void wide_end(wide *w)
{
    for (wide_tree *t; (t = w->trees); ) {
        w->trees = t->next;
        gci_free(w->env, t);
    }
    gci_free(w->env, w->queue);
    gci_free(w->env, w->offset);
    gci_free(w->env, w->lists);
    gci_free(w->env, w->part);
    gci_free(w->env, w->lane);
    gci_free(w->env, w->value);
    gci_free(w->env, w->operand);
}

GCI bool gci_wide_asks(const gci_call *call)
{
    bool blocks = call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_ALLTOALL;
    if (!blocks || call->even || call->known || !call->clusters || call->clusters->clusters < 2)
        return false;
    const wide w = { .call = call, .s = call->clusters };
    return wide_longest(&w) > 1 && wide_limit(&w) > 0;
}

/* What this rank tells one other member. */
static void wide_write(const wide *w, int to, uint8_t *told)
{
    size_t limit = wide_limit(w);
    for (int k = 0; k < w->s->clusters && w->call->coll == GCI_ALLTOALL; k++) {
        uint8_t *sum = told, *size = told + WIDE_SUM_BYTES;
        if (wide_told_about(w, k) == 0 || wide_top(w, w->mine, k) != to)
            continue;
        for (int place = w->s->first[k]; place < w->s->first[k + 1]; place++, size += WIDE_SIZE_BYTES) {
            size_t out = gci_block_bytes(&w->call->send, wide_rank(w, place));
            size_t in = gci_block_bytes(&w->call->recv, wide_rank(w, place));
            gci_put32(sum, gci_get32(sum) + (uint32_t)(out <= limit ? out : 0));
            gci_put16(size, (uint16_t)(in <= limit ? in : 0));
        }
        told = size;
    }
    if (w->call->coll != GCI_ALLTOALL)
        gci_put64(told, w->call->own);
}

/* NULL: no memory. */
static gci_ask *wide_ask(wide *w)
{
    const gci_call *call = w->call;
    size_t ranks = (size_t)call->ranks, told = WIDE_OWN_BYTES, heard = 0;
    int first = w->s->first[w->mine], end = w->s->first[w->mine + 1];
    for (int place = first; place < end; place++) {
        told += wide_told(w, w->place, place, w->s->clusters);
        heard += wide_told(w, place, w->place, w->s->clusters);
    }
    gci_ask *ask = w->hungry ? NULL : gci_alloc(w->env, sizeof *ask + 4 * ranks * sizeof(size_t) + told + heard);
    if (!ask)
        return NULL;
    size_t *list = (size_t *)(void *)(ask + 1);
    ask->told = (uint8_t *)(list + 4 * ranks);
    ask->heard = ask->told + told;
    ask->call = (gci_call){ .coll = GCI_ALLTOALL, .rank = call->rank, .ranks = call->ranks, .elem_bytes = 1, .commutative = true,
                            .associative = true, .clusters = call->clusters, .send = { .bytes = list, .at = list + ranks },
                            .recv = { .bytes = list + 2 * ranks, .at = list + 3 * ranks } };
    told = heard = 0;
    for (int place = first; place < end; place++) {
        size_t rank = (size_t)wide_rank(w, place);
        list[rank] = wide_told(w, w->place, place, w->s->clusters);
        list[2 * ranks + rank] = wide_told(w, place, w->place, w->s->clusters);
        list[ranks + rank] = told;
        list[3 * ranks + rank] = heard;
        if (list[rank] > 0)
            wide_write(w, place, ask->told + told);
        told += list[rank];
        heard += list[2 * ranks + rank];
    }
    return ask;
}

GCI int gci_wide_ask(gci_env *env, const gci_call *call, gci_ask **out)
{
    wide w;
    *out = wide_begin(&w, env, call) < 0 ? NULL : wide_ask(&w);
    wide_end(&w);
    return *out ? GC_OK : GC_ERR_NOMEM;
}

static void wide_emit(wide *w)
{
    const gci_call *call = w->call;
    if (call->coll == GCI_BCAST)
        wide_bcast(w);
    else if (call->coll == GCI_ALLGATHER && wide_place_blocks(w, &call->recv) < 0)
        w->b->error = GC_ERR_NOMEM;
    else if (call->coll == GCI_ALLGATHER)
        wide_allgather(w);
    else if (call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_ALLTOALL)
        wide_personal(w);
    else
        wide_reductions(w);
}

GCI void gci_wide_algo(gci_builder *b)
{
    wide w;
    if (!b->call->clusters || b->call->clusters->clusters < 2) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    b->error = wide_begin(&w, b->env, b->call);
    w.b = b;
    w.may_write = b->ready;
    if (!b->error)
        wide_emit(&w);
    if (w.hungry)
        b->error = GC_ERR_NOMEM;
    wide_end(&w);
}
