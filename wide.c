/* wide.c: collectives between sites (pure).
 * SPDX-License-Identifier: MIT
 *
 * MagPIe's algorithms (Kielmann, Hofman, Bal, Plaat, Bhoedjang 1999): between clusters everybody sends straight to whoever
 * needs it, so that (1) no way from a sender to a receiver has more than one wide-area message, and (2) no data enters a
 * cluster twice; of a reduction (wide_reduce.c) one partial result goes from a cluster to another.
 *
 *     up                      exchange                        down
 *     members -> top          top of k -> top of j            top -> members
 *
 * Who is the top of a cluster, and how trees run within one, has places.c.
 *
 * Short blocks of scatter and gather go together to a cluster, long ones from rank to rank, and those between of a scatter one
 * after another over the coordinator. Which is which, both ranks of a block see; the sizes that those on the way need, where not
 * all know them, are told within each cluster first (gci_ask).
 *
 *                       wide-area messages                  latency             bytes over a link, at most
 *     bcast             (clusters - 1) * segments           L + l               m
 *       divided         as above                            2 L + l             m / (clusters - 1)
 *     allgather         clusters^2 * segments               l + L + l           n m
 *     scatter, gather   clusters - 1; ranks, if not short   l + L; L, if long   n m
 *     alltoall          see wide_alltoall.c
 */
#include "gridcomm_int.h"

/* Bytes of a block up to which blocks for one cluster go together: a header of 48 bytes each is 1 % of it then, as much as it
 * costs to move a bundle within a cluster. */
enum { WIDE_BUNDLE = 4096,
       WIDE_RELAY = 64 << 10,           /* of one that goes over the coordinator: as many connections out of one uplink as there
                                           are ranks would take each other's packets (see wide_alltoall.c, rows); */
       WIDE_AHEAD = 512 << 10,          /* of such blocks that it holds, beside one or two more */
       WIDE_OWN_BYTES = 8,              /* of what a member tells of its size; */
       WIDE_RIDE = 256,                 /* of blocks for one cluster that ride with what it tells, at most, */
       WIDE_RIDES = 4 << 10 };          /* and of those of all members: as much as a NIC takes within a local latency */

/* ---- bcast, scatter and gather -------------------------------------------------------------------------------------- */

static const gci_spot wide_result = { GCI_BUF_RECV, 0 };

/* The cluster from which another one gets a segment: the root's; of a divided vector each of the others has a share, which it
 * gets first, and passes on. */
static int wide_source(const gci_wide *w, int32_t segment, int cluster)
{
    int home = w->s->of[w->call->root], first = (home + 1 + segment % (w->s->clusters - 1)) % w->s->clusters;
    return w->divided && cluster != first ? first : home;
}

/* In the root's cluster all get all from the root; who gets a segment that it is the top of sends that on to the others. */
static void wide_bcast(gci_wide *w)
{
    const gci_call *call = w->call;
    int turns = gci_wide_turns(w), home = w->s->of[call->root], shares = w->divided ? w->s->clusters - 1 : 1;
    enum gci_wide_shape shape = gci_wide_vectors(w);
    for (int32_t i = 0; i < gci_segments(call, call->bytes); i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        gci_spot here = gci_spot_at(wide_result, at);
        int turn = i / shares % turns, top = gci_wide_turn_top(w, w->mine, turn);
        gci_local_node n = gci_wide_local(w, w->mine == home ? w->root_place : top, shape);
        int32_t came = GCI_NO_STEP;
        if (w->mine != home && w->place == top)
            came = gci_wide_recv(w, gci_wide_rank(w, gci_wide_turn_top(w, wide_source(w, i, w->mine), turn)), here, bytes,
                                 GCI_NO_STEP);
        else if (n.parent >= 0)
            came = gci_wide_recv(w, gci_wide_rank(w, n.parent), here, bytes, GCI_NO_STEP);
        for (int d = 1; d < w->s->clusters && w->place == top; d++) {
            int k = (w->mine + d) % w->s->clusters;
            if (k != home && wide_source(w, i, k) == w->mine)
                gci_wide_send(w, gci_wide_rank(w, gci_wide_turn_top(w, k, turn)), here, bytes, came);
        }
        gci_wide_pass_down(w, &n, here, bytes, came);
    }
}

/* The i-th of all other ranks in an order that keeps all links between clusters busy: one of each other cluster by turns, at
 * last this rank's own cluster, from the next member on. turn: 0, 0 at first. Returns -1 after the last one. */
static int wide_other(const gci_wide *w, int turn[2])
{
    const gci_clusters *s = w->s;
    int longest = 0, size = gci_wide_size(w, w->mine);
    for (int k = 0; k < s->clusters; k++)
        longest = k != w->mine && gci_wide_size(w, k) > longest ? gci_wide_size(w, k) : longest;
    for (; turn[0] < longest; turn[0]++, turn[1] = 0)
        while (turn[1] < s->clusters - 1) {
            int k = (w->mine + ++turn[1]) % s->clusters;
            if (turn[0] < gci_wide_size(w, k))
                return w->member[s->first[k] + (turn[0] + w->place) % gci_wide_size(w, k)];
        }
    if (turn[1] + 1 >= size)
        return -1;
    turn[1]++;
    return w->member[s->first[w->mine] + (w->place - s->first[w->mine] + turn[1]) % size];
}

/* Blocks of more than `above` bytes each in a message of its own, flat, as the paper has it: those from and to other clusters, or
 * those of the own one. */
GCI void gci_wide_direct(gci_wide *w, size_t above, bool here)
{
    const gci_call *call = w->call;
    bool all = call->coll == GCI_ALLTOALL, root = call->rank == call->root;
    bool gives = all || (call->coll == GCI_SCATTER) == root, takes = all || (call->coll == GCI_GATHER) == root;
    const gci_blocks own = { call->own, NULL, NULL };
    const gci_blocks *send = all || call->coll == GCI_SCATTER ? &call->send : &own;
    const gci_blocks *recv = all || call->coll == GCI_GATHER ? &call->recv : &own;
    int turn[2] = { 0, 0 };
    bool one = !all && !root;           /* it has to do with the root alone */
    for (int peer = one ? call->root : wide_other(w, turn); peer >= 0; peer = one ? -1 : wide_other(w, turn)) {
        size_t to = gci_block_bytes(send, send == &own ? 0 : peer), from = gci_block_bytes(recv, recv == &own ? 0 : peer);
        if ((w->s->of[peer] == w->mine) != here)
            continue;
        if (takes && from > above)
            gci_wide_recv(w, peer, gci_spot_at(wide_result, recv == &own ? 0 : gci_block_at(recv, peer)), from, w->may_write);
        if (gives && to > above)
            gci_wide_send(w, peer, gci_spot_at(w->b->input, send == &own ? 0 : gci_block_at(send, peer)), to, w->b->ready);
    }
    bool stays = !here || (all ? gci_block_bytes(send, call->rank) <= above : !root || call->in_place);
    size_t send_at = send == &own || stays ? 0 : gci_block_at(send, call->rank);
    size_t recv_at = recv == &own || stays ? 0 : gci_block_at(recv, call->rank);
    if (!stays)
        gci_emit_copy(w->b, gci_spot_at(wide_result, recv_at), gci_spot_at(w->b->input, send_at),
                      gci_block_bytes(send, call->rank), w->may_write);
}

/* The root sends what is for a cluster to its coordinator; that passes on what is for a group to its head. */
static void wide_scatter(gci_wide *w)
{
    const gci_blocks *blocks = &w->bundled;
    gci_local_node n = gci_wide_local(w, gci_wide_coordinator(w, w->mine), GCI_WIDE_BLOCKS);
    bool root = w->place == w->root_place, leaf = n.end == n.first + 1;
    size_t bytes = gci_wide_whole(w, blocks, n.first, n.end).bytes, own = gci_block_bytes(blocks, w->call->rank);
    gci_spot stage = w->b->input;
    int32_t came = GCI_NO_STEP;
    for (int k = 0; k < w->s->clusters && root; k++)
        if (k != w->mine)
            gci_wide_send_blocks(w, gci_wide_coordinator(w, k), stage, blocks,
                             gci_wide_whole(w, blocks, w->s->first[k], w->s->first[k + 1]), GCI_NO_STEP);
    if (!root && bytes > 0) {
        stage = leaf ? wide_result : gci_emit_slot(w->b, bytes);
        came = gci_wide_recv(w, n.parent < 0 ? w->call->root : gci_wide_rank(w, n.parent), stage, bytes, GCI_NO_STEP);
        gci_wide_sign(w, came, gci_wide_sizes(w, blocks, n.first, n.end));
    }
    for (int i = 0; i < n.children; i++) {
        int child = n.child[i].first, end = n.child[i].end;
        gci_wide_piece p = gci_wide_whole(w, blocks, child, end);
        if (root)
            gci_wide_send_blocks(w, child, stage, blocks, p, GCI_NO_STEP);
        else if (p.bytes > 0)
            gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, child),
                                       gci_spot_at(stage, gci_wide_whole(w, blocks, n.first, child).bytes), p.bytes, came),
                      gci_wide_sizes(w, blocks, child, end));
    }
    if (!root && !leaf && own > 0)
        gci_emit_copy(w->b, wide_result, gci_spot_at(stage, gci_wide_whole(w, blocks, n.first, w->place).bytes), own, came);
}

/* Where a block lies that has ridden with its size. */
static gci_spot wide_rode(const gci_wide *w, int place)
{
    size_t word = WIDE_OWN_BYTES + gci_wide_ride_bytes(w);
    return (gci_spot){ GCI_BUF_HEARD, (size_t)(place - w->s->first[w->mine]) * word + WIDE_OWN_BYTES };
}

static void wide_gather_at_root(gci_wide *w)
{
    gci_local_node n = gci_wide_local(w, gci_wide_coordinator(w, w->mine), GCI_WIDE_BLOCKS);
    for (int k = 0; k < w->s->clusters; k++)
        if (k != w->mine)
            gci_wide_recv_blocks(w, gci_wide_coordinator(w, k), wide_result, &w->bundled,
                                 gci_wide_whole(w, &w->bundled, w->s->first[k], w->s->first[k + 1]), GCI_NO_STEP);
    for (int i = 0; i < n.children; i++)
        gci_wide_recv_blocks(w, n.child[i].first, wide_result, &w->bundled,
                             gci_wide_whole(w, &w->bundled, n.child[i].first, n.child[i].end), GCI_NO_STEP);
}

static void wide_gather(gci_wide *w)
{
    const gci_blocks *blocks = &w->bundled, *waited_for = &w->waited_for;
    gci_local_node n = gci_wide_local(w, gci_wide_coordinator(w, w->mine), GCI_WIDE_BLOCKS);
    size_t bytes = gci_wide_whole(w, blocks, n.first, n.end).bytes;
    bool leaf = n.end == n.first + 1;
    gci_spot stage = leaf ? w->b->input : gci_emit_slot(w->b, bytes);
    for (int i = 0; i < n.children; i++) {
        gci_wide_piece p = gci_wide_whole(w, waited_for, n.child[i].first, n.child[i].end);
        gci_emit_pend(w->b, gci_wide_recv_blocks(w, p.first, stage, waited_for, p, GCI_NO_STEP));
    }
    for (int place = n.first; place < n.end && !leaf; place++) {
        int rank = gci_wide_rank(w, place);
        size_t block = gci_block_bytes(blocks, rank);
        bool own = place == w->place, rode = gci_block_bytes(waited_for, rank) == 0;
        if (block > 0 && (own || rode))
            gci_emit_pend(w->b, gci_emit_copy(w->b, gci_spot_at(stage, gci_block_at(blocks, rank)),
                                              own ? w->b->input : wide_rode(w, place), block, GCI_NO_STEP));
    }
    if (bytes > 0)
        gci_wide_sign(w, gci_wide_send(w, n.parent < 0 ? w->call->root : gci_wide_rank(w, n.parent), stage, bytes,
                                       gci_emit_join(w->b)), gci_wide_sizes(w, blocks, n.first, n.end));
}

/* ---- uneven blocks --------------------------------------------------------------------------------------------------- */

/* Where not all know all sizes, those who pass bundles on must hear them. So first, within each cluster alone, members tell
 *
 *     scatter, gather    those above them in the tree, unless it is the root:  own block     8 bytes
 *     alltoall           see wide_alltoall.c
 *
 * Nobody waits for an answer. It travels while bundles come from far, or just ahead of the blocks that are to be bundled. Those
 * of a few bytes ride with it: then it is itself the message to who makes the bundle, a top of an alltoall or the coordinator of
 * a gather, who so waits for no second one. Who is told does not know how much rides before it reads the sizes, so the room for
 * that is always sent; of scatters, and of gathers in the root's cluster, there is none. Sizes that do not agree between two ranks
 * are seen where their bundle gets another length, or bears another hash of its sizes (gci_step.sizes), and of an alltoall within a
 * cluster by who hands out its blocks. */

GCI size_t gci_wide_ride_bytes(const gci_wide *w)
{
    return gci_min(WIDE_RIDE, WIDE_RIDES / (size_t)gci_wide_size(w, w->mine));
}

/* Do blocks of a gather ride to the coordinator of this cluster? */
static bool wide_lets_ride(const gci_wide *w)
{
    return w->call->coll == GCI_GATHER && w->mine != w->s->of[w->call->root];
}

/* What one member is told by each of those from `first` up to `end`: bytes of sizes, and of room for what rides. */
typedef struct wide_word { int first, end; size_t sizes, room; } wide_word;

static wide_word wide_word_for(gci_wide *w, int to)
{
    if (w->call->coll == GCI_ALLTOALL)
        return (wide_word){ w->s->first[w->mine], w->s->first[w->mine + 1], gci_alltoall_told(w, to),
                            gci_alltoall_rides(w, to) };
    gci_local_node n = gci_wide_local_at(w, to, gci_wide_coordinator(w, w->mine), GCI_WIDE_BLOCKS);
    if (to == w->root_place || n.children == 0)
        return (wide_word){ to, to, 0, 0 };
    return (wide_word){ n.first, n.end, WIDE_OWN_BYTES, n.parent < 0 && wide_lets_ride(w) ? gci_wide_ride_bytes(w) : 0 };
}

/* Is that one told anything by this rank? */
static bool wide_tells(gci_wide *w, int to)
{
    int above = w->place, coordinator = gci_wide_coordinator(w, w->mine);
    while (w->call->coll != GCI_ALLTOALL && above >= 0 && above != to)
        above = gci_wide_local_at(w, above, coordinator, GCI_WIDE_BLOCKS).parent;
    return above >= 0;
}

/* Has a block of a gather come to the coordinator of its cluster with what was told of its size? */
static bool wide_has_ridden(const gci_wide *w, int place, size_t block)
{
    bool rides = w->call->heard && wide_lets_ride(w);
    return rides && place != gci_wide_coordinator(w, w->mine) && block > 0 && block <= gci_wide_ride_bytes(w);
}

/* The blocks that are bundled, at the root, whose call lists them. */
static void wide_bundle_own(gci_wide *w, bool recv)
{
    const gci_blocks *blocks = recv ? &w->call->recv : &w->call->send;
    size_t *bytes = w->lists, *at = bytes + w->call->ranks, packed = 0;
    for (int rank = 0; rank < w->call->ranks; rank++) {
        size_t block = gci_block_bytes(blocks, rank);
        at[rank] = blocks->at ? blocks->at[rank] : packed;
        bytes[rank] = block <= WIDE_BUNDLE ? block : 0;
        packed += block;
    }
    w->bundled = (gci_blocks){ .bytes = bytes, .at = at };
}

/* The block of a place, as this rank has heard that passes on those from `first` on. */
static size_t wide_heard(const gci_wide *w, int first, int place)
{
    if (w->call->even || place == w->place)
        return w->call->own;
    return gci_get_size(w->call->heard + (size_t)(place - first) * WIDE_OWN_BYTES);
}

/* The same at a rank that has but one block: as it has heard of what it is to pass on, one after another. What has ridden is at
 * the coordinator, and passes nobody on its way there. */
static void wide_bundle_heard(gci_wide *w)
{
    gci_local_node n = gci_wide_local(w, gci_wide_coordinator(w, w->mine), GCI_WIDE_BLOCKS);
    size_t *bytes = w->lists, *at = bytes + w->call->ranks, *waited_for = at + w->call->ranks, packed = 0;
    for (int place = n.first; place < n.end; place++) {
        size_t block = wide_heard(w, n.first, place);
        int rank = gci_wide_rank(w, place);
        bool rode = wide_has_ridden(w, place, block);
        bytes[rank] = block <= WIDE_BUNDLE && (!rode || n.parent < 0) ? block : 0;
        waited_for[rank] = rode ? 0 : bytes[rank];
        at[rank] = packed;
        packed += bytes[rank];
    }
    w->bundled = (gci_blocks){ .bytes = bytes, .at = at };
    w->waited_for = (gci_blocks){ .bytes = waited_for, .at = at };
}

/* Sets w->bundled, and, at others than the root, w->waited_for. */
static void wide_bundle(gci_wide *w)
{
    const gci_call *call = w->call;
    w->bundled = (gci_blocks){ .each = call->own };
    w->lists = gci_alloc(w->b->env, 3 * (size_t)call->ranks * sizeof *w->lists);
    if (!w->lists)
        w->b->error = GC_ERR_NOMEM;
    else if (w->place != w->root_place)
        wide_bundle_heard(w);
    else if (!call->even)
        wide_bundle_own(w, call->coll == GCI_GATHER);
}

/* ---- scatter over coordinators --------------------------------------------------------------------------------------- */

static bool wide_is_relayed(size_t bytes)
{
    return bytes > WIDE_BUNDLE && bytes <= WIDE_RELAY;
}

/* The i-th member of a cluster that the root sends to; so that, with clusters in turns, all links are busy. */
static int wide_turn(const gci_wide *w, int cluster, int i)
{
    return w->s->first[cluster] + (i + w->root_place) % gci_wide_size(w, cluster);
}

static void wide_relay_from_root(gci_wide *w)
{
    const gci_blocks *blocks = &w->call->send;
    for (int i = 0; i < w->s->longest; i++)
        for (int d = 1; d < w->s->clusters; d++) {
            int k = (w->mine + d) % w->s->clusters, rank = gci_wide_rank(w, wide_turn(w, k, i));
            if (i >= gci_wide_size(w, k) || !wide_is_relayed(gci_block_bytes(blocks, rank)))
                continue;
            int32_t sent = gci_wide_send(w, gci_wide_rank(w, gci_wide_coordinator(w, k)),
                                         gci_spot_at(w->b->input, gci_block_at(blocks, rank)), gci_block_bytes(blocks, rank),
                                         GCI_NO_STEP);
            gci_wide_sign(w, sent, gci_wide_hash(1, (size_t)rank));
        }
}

/* Each block has its place of `turns` in scratch, and waits until the one before it there has left. */
static void wide_relay_on(gci_wide *w)
{
    enum { TURNS = WIDE_AHEAD / WIDE_RELAY + 2 };
    int size = gci_wide_size(w, w->mine), turns = size < TURNS ? size : TURNS;
    int32_t left[TURNS];
    int first = w->s->first[w->mine];
    size_t longest = 0;
    for (int place = first; place < first + size; place++)
        if (place != w->place && wide_is_relayed(wide_heard(w, first, place)))
            longest = gci_max(longest, wide_heard(w, first, place));
    gci_spot room = gci_emit_slot(w->b, longest * (size_t)turns);
    for (int i = 0; i < TURNS; i++)
        left[i] = GCI_NO_STEP;
    for (int i = 0; i < size; i++) {
        int place = wide_turn(w, w->mine, i);
        size_t bytes = wide_heard(w, first, place);
        if (!wide_is_relayed(bytes))
            continue;
        uint32_t whose = gci_wide_hash(1, (size_t)gci_wide_rank(w, place));
        gci_spot at = place == w->place ? wide_result : gci_spot_at(room, longest * (size_t)(i % turns));
        int32_t came = gci_wide_recv(w, w->call->root, at, bytes, place == w->place ? w->may_write : left[i % turns]);
        gci_wide_sign(w, came, whose);
        if (place != w->place)
            left[i % turns] = gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), at, bytes, came), whose);
    }
}

/* Blocks of a scatter, one after another over the coordinator of their cluster. They bear whose they are, lest one be taken for
 * another of its length where the ranks disagree. */
static void wide_relay(gci_wide *w)
{
    int coordinator = gci_wide_coordinator(w, w->mine);
    if (w->place == w->root_place)
        wide_relay_from_root(w);
    else if (w->mine != w->s->of[w->call->root] && w->place == coordinator)
        wide_relay_on(w);
    else if (w->mine != w->s->of[w->call->root] && wide_is_relayed(w->call->own))
        gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, coordinator), wide_result, w->call->own, w->may_write),
                      gci_wide_hash(1, (size_t)w->call->rank));
}

/* ---- allgather ------------------------------------------------------------------------------------------------------ */

/* One piece of a share of cluster i's blocks. here: the step after which the head of the own share has its blocks, or other ranks
 * may overwrite them. */
static void wide_hand_out(gci_wide *w, enum gci_wide_shape shape, int i, int share, const gci_wide_piece *p, int32_t here)
{
    bool own = i == w->mine;
    gci_local_node n = gci_wide_local(w, gci_wide_share_top(w, w->mine, i, share), shape);
    gci_spot at;
    bool lies = gci_wide_lies(w, wide_result, &w->blocks, p, &at), source = own && n.parent < 0;
    if (!lies)
        at = gci_emit_slot(w->b, p->bytes);
    int32_t ready = lies ? here : GCI_NO_STEP;
    if (source) {
        ready = lies ? here : gci_wide_move(w, wide_result, &w->blocks, p, at, false, here);
        for (int d = 1; d < w->s->clusters; d++)       /* by turns, so that not all meet at one cluster's way in */
            gci_wide_send(w, gci_wide_rank(w, gci_wide_share_top(w, (i + d) % w->s->clusters, i, share)), at, p->bytes, ready);
    } else if (n.parent < 0) {
        ready = gci_wide_recv(w, gci_wide_rank(w, gci_wide_share_top(w, i, i, share)), at, p->bytes, ready);
    }
    ready = gci_wide_down(w, &n, at, p->bytes, ready);
    if (!lies && !source)
        gci_wide_move(w, wide_result, &w->blocks, p, at, true, gci_emit_both(w->b, ready, here));
}

/* The blocks of a share meet at its head. Returns what wide_hand_out asks for. */
static int32_t wide_collect(gci_wide *w)
{
    gci_builder *b = w->b;
    gci_local_node n = gci_wide_local_share(w, GCI_WIDE_BLOCKS);
    gci_spot own = gci_spot_at(wide_result, gci_block_at(&w->blocks, w->call->rank));
    for (int i = 0; i < n.children; i++) {
        int child = n.child[i].first, end = n.child[i].end;
        gci_emit_pend(b, gci_wide_recv_blocks(w, child, wide_result, &w->blocks, gci_wide_whole(w, &w->blocks, child, end),
                                              GCI_NO_STEP));
    }
    bool inner = n.children > 0 || n.parent < 0;
    if (inner && !b->input_is_recv)
        gci_emit_pend(b, gci_emit_copy(b, own, b->input, w->call->own, GCI_NO_STEP));
    int32_t all = gci_emit_join(b);
    if (n.parent < 0)
        return all;
    if (inner)
        return gci_wide_send_blocks(w, n.parent, wide_result, &w->blocks, gci_wide_whole(w, &w->blocks, n.first, n.end), all);
    if (w->call->own == 0)
        return GCI_NO_STEP;
    int32_t sent = gci_wide_send(w, gci_wide_rank(w, n.parent), b->input, w->call->own, all);
    return b->input_is_recv ? sent : GCI_NO_STEP;
}

/* The first pieces of all shares of all clusters, then all second ones: so they come, and so they are handed out. */
static void wide_allgather(gci_wide *w)
{
    const gci_clusters *s = w->s;
    const int mine = w->mine * w->shares + gci_wide_share_of(w, w->mine, w->place), streams = s->clusters * w->shares;
    gci_wide_piece *p = gci_alloc(w->b->env, (size_t)streams * sizeof *p);
    if (!p) {
        w->b->error = GC_ERR_NOMEM;
        return;
    }
    const enum gci_wide_shape shape = gci_wide_vectors(w) == GCI_WIDE_CHAIN ? GCI_WIDE_CHAIN : GCI_WIDE_VECTORS;
    int32_t here = wide_collect(w);
    for (int i = 0; i < streams; i++)
        p[i].first = p[i].end = gci_wide_share(w, i / w->shares, i % w->shares).first;
    for (int more = streams; more > 0 && !w->b->error; ) {
        more = 0;
        for (int d = 0; d < streams; d++) {
            int i = (w->mine * w->shares + d) % streams, k = i / w->shares, share = i % w->shares;
            if (!gci_wide_next(w, &w->blocks, gci_wide_share(w, k, share).end, &p[i]))
                continue;
            wide_hand_out(w, shape, k, share, &p[i], i == mine ? here : GCI_NO_STEP);
            more++;
        }
    }
    gci_free(w->b->env, p);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

/* Blocks with their offsets, so that none has to be counted from the beginning. */
static int wide_place_blocks(gci_wide *w, const gci_blocks *blocks)
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

static void wide_personal(gci_wide *w)
{
    const gci_call *call = w->call;
    bool scatters = call->coll == GCI_SCATTER, told = call->even || call->heard;
    size_t bundled = !told || (call->even && call->own > WIDE_BUNDLE) ? 0 : WIDE_BUNDLE;
    if (bundled > 0)
        wide_bundle(w);
    if (w->b->error)
        return;
    if (scatters && bundled > 0)
        wide_scatter(w);
    if (scatters && told)
        wide_relay(w);
    gci_wide_direct(w, scatters && told ? WIDE_RELAY : bundled, false);
    gci_wide_direct(w, bundled, true);
    if (!scatters && bundled > 0 && w->place == w->root_place)
        wide_gather_at_root(w);
    else if (!scatters && bundled > 0)
        wide_gather(w);
}

GCI bool gci_wide_asks(const gci_call *call)
{
    bool blocks = call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_ALLTOALL;
    if (!blocks || call->even || call->known || !call->clusters || call->clusters->clusters < 2)
        return false;
    const gci_wide w = { .call = call, .s = call->clusters };
    return call->clusters->longest > 1 && (call->coll != GCI_ALLTOALL || gci_alltoall_asks(&w));
}

/* Some of what this rank brings in is to be put into what it tells. */
GCI void gci_wide_board(gci_ask *ask, size_t told_at, size_t send_at, size_t bytes)
{
    if (bytes > 0)
        ask->ride[ask->rides++] = (gci_ride){ told_at, send_at, bytes };
}

/* What this rank tells one other member. */
static void wide_tell(const gci_wide *w, int to, const wide_word *word, gci_ask *ask, size_t at)
{
    size_t own = w->call->own;
    if (w->call->coll == GCI_ALLTOALL) {
        gci_alltoall_tell(w, to, ask, at);
        return;
    }
    gci_put64(ask->told + at, own);
    if (to != w->place && own <= word->room)
        gci_wide_board(ask, at + WIDE_OWN_BYTES, 0, own);
}

/* With room for all that is told and heard. NULL: no memory. */
static gci_ask *wide_ask_new(gci_wide *w, const wide_word *mine, size_t told)
{
    size_t ranks = (size_t)w->call->ranks, members = (size_t)(mine->end - mine->first);
    size_t sizes = members * mine->sizes, heard = sizes + members * mine->room;
    size_t lists = ranks * (4 * sizeof(size_t) + sizeof(gci_ride));
    gci_ask *ask = w->hungry ? NULL : gci_alloc(w->env, sizeof *ask + lists + told + heard + sizes);
    if (!ask)
        return NULL;
    ask->ride = (gci_ride *)(void *)((size_t *)(void *)(ask + 1) + 4 * ranks);
    ask->told = (uint8_t *)(ask->ride + ranks);
    ask->heard = ask->told + told;
    ask->sizes = ask->heard + heard;
    ask->heard_bytes = heard;
    ask->sizes_bytes = sizes;
    ask->word_bytes = mine->sizes + mine->room;
    ask->word_sizes = mine->sizes;
    return ask;
}

/* NULL: no memory. */
static gci_ask *wide_ask(gci_wide *w)
{
    const gci_call *call = w->call;
    wide_word mine = wide_word_for(w, w->place), word;
    int first = w->s->first[w->mine], end = w->s->first[w->mine + 1];
    size_t ranks = (size_t)call->ranks, told = 0, heard = 0;
    for (int place = first; place < end; place++)
        if (wide_tells(w, place)) {
            word = wide_word_for(w, place);
            told += word.sizes + word.room;
        }
    gci_ask *ask = wide_ask_new(w, &mine, told);
    if (!ask)
        return NULL;
    size_t *list = (size_t *)(void *)(ask + 1);
    ask->call = (gci_call){ .coll = GCI_ALLTOALL, .rank = call->rank, .ranks = call->ranks, .elem_bytes = 1, .commutative = true,
                            .associative = true, .clusters = call->clusters, .send = { .bytes = list, .at = list + ranks },
                            .recv = { .bytes = list + 2 * ranks, .at = list + 3 * ranks } };
    told = 0;
    for (int place = first; place < end; place++) {
        size_t rank = (size_t)gci_wide_rank(w, place);
        word = wide_tells(w, place) ? wide_word_for(w, place) : (wide_word){ 0 };
        list[rank] = word.sizes + word.room;
        list[ranks + rank] = told;
        list[2 * ranks + rank] = place >= mine.first && place < mine.end ? ask->word_bytes : 0;
        list[3 * ranks + rank] = heard;
        if (list[rank] > 0)
            wide_tell(w, place, &word, ask, told);
        told += list[rank];
        heard += list[2 * ranks + rank];
    }
    return ask;
}

GCI void gci_wide_hear(gci_ask *ask)
{
    for (size_t at = 0, from = 0; at < ask->sizes_bytes; at += ask->word_sizes, from += ask->word_bytes)
        memcpy(ask->sizes + at, ask->heard + from, ask->word_sizes);
}

GCI int gci_wide_ask(gci_env *env, const gci_call *call, gci_ask **out)
{
    gci_wide w;
    *out = gci_wide_begin(&w, env, call) < 0 ? NULL : wide_ask(&w);
    gci_wide_end(&w);
    return *out ? GC_OK : GC_ERR_NOMEM;
}

static void wide_emit(gci_wide *w)
{
    const gci_call *call = w->call;
    if (call->coll == GCI_BCAST)
        wide_bcast(w);
    else if ((call->coll == GCI_ALLGATHER && wide_place_blocks(w, &call->recv) < 0) ||
             (call->coll == GCI_REDUCE_SCATTER && wide_place_blocks(w, &call->send) < 0))
        w->b->error = GC_ERR_NOMEM;
    else if (call->coll == GCI_ALLGATHER)
        wide_allgather(w);
    else if (call->coll == GCI_ALLTOALL)
        gci_wide_alltoall(w);
    else if (call->coll == GCI_SCATTER || call->coll == GCI_GATHER)
        wide_personal(w);
    else
        gci_wide_reduce(w);
}

/* Between these clusters. divided: a vector is cut into a segment for each of them at least. */
static void wide_between(gci_builder *b, const gci_clusters *s, bool divided)
{
    gci_wide w;
    gci_call call = *b->call;
    size_t clusters = s ? (size_t)s->clusters : 1;
    if (clusters < (divided ? 3 : 2)) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    call.clusters = s;
    if (divided && (call.segment == 0 || call.segment > call.bytes / clusters))
        call.segment = call.bytes / clusters + 1;
    b->error = gci_wide_begin(&w, b->env, &call);
    w.divided = divided;
    w.b = b;
    w.may_write = b->ready;
    if (!b->error)
        wide_emit(&w);
    if (w.hungry)
        b->error = GC_ERR_NOMEM;
    gci_wide_end(&w);
}

GCI void gci_wide_algo(gci_builder *b)
{
    wide_between(b, b->call->clusters, strcmp(b->name, "wide") != 0);
}

/* Blocks whose sizes not all ranks know would have to be asked for first. What cannot be added up by host gains nothing, nor do
 * blocks that go alone. */
static bool wide_pays_by_host(const gci_call *call, const gci_clusters *hosts)
{
    const gci_wide w = { .call = call, .s = hosts };
    bool listed = call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_ALLTOALL;
    return hosts && (!listed || call->even) && gci_call_adds_up(call, hosts) &&
           (call->coll != GCI_ALLTOALL || gci_alltoall_bundles(&w));
}

GCI void gci_by_host_algo(gci_builder *b)
{
    const gci_clusters *hosts = b->call->clusters ? b->call->clusters->by_host : NULL;
    if (!wide_pays_by_host(b->call, hosts))
        b->error = GC_ERR_UNSUPPORTED;
    else
        wide_between(b, hosts, strcmp(b->name, "by-host") != 0);
}
