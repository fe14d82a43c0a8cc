/* places.c: who stands where in a collective between clusters, and what lies between those of one (pure).
 * SPDX-License-Identifier: MIT
 *
 * Who is the top of a cluster: the root in its own; else its coordinator, the first member by rack, host and rank; or, where
 * every pair of clusters has messages of its own (alltoall, reduce_scatter, what comes in of an allgather), one of its members
 * per other cluster, so that no rank has to take or give what its whole cluster sends or gets. Of long data several are tops side
 * by side: of a vector they take its segments by turns, of blocks each has a share of the cluster's hosts.
 *
 * Trees within a cluster go by racks and hosts (local.c), with the top as their root.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { PLACES_STREAM = 4,           /* segments of a vector, more than which are many; */
       PLACES_CHAIN = 4,            /* and for each host, so many are very many: the way over all takes a quarter of their time more */
       PLACES_TOPS = 4,             /* of a cluster, side by side: the connections of more fill a narrow link's queue; */
       PLACES_TOP_BYTES = 512 * 1024,       /* so much for each at least: less fits the window of one connection */
       PLACES_SCRATCH = 64 << 20 };         /* or a quarter of all blocks */

struct gci_wide_tree {
    struct gci_wide_tree *next;
    gci_places            all;
    int                   place;
    enum gci_wide_shape   shape;
    gci_local_node        node;
    gci_places            child[];
};

GCI int gci_wide_rank(const gci_wide *w, int place)
{
    return w->member[place];
}

GCI int gci_wide_size(const gci_wide *w, int cluster)
{
    return w->s->first[cluster + 1] - w->s->first[cluster];
}

/* Messages of two ranks meet in the order in which they are posted (their numbers only name early grants), which must be that of
 * the list: each waits for all for which the one before it waited. So a message that can go at once must not stand behind one
 * that comes from far, if it goes the same way. */
static int32_t places_queue(gci_wide *w, int32_t *queue, int32_t after)
{
    if (w->joined.a != *queue || w->joined.b != after) {
        w->joined.a = *queue;
        w->joined.b = after;
        w->joined.both = gci_emit_both(w->b, *queue, after);
    }
    return *queue = w->joined.both;
}

GCI int32_t gci_wide_send(gci_wide *w, int rank, gci_spot from, size_t bytes, int32_t after)
{
    return gci_emit_send(w->b, rank, from, bytes, places_queue(w, &w->queue[2 * rank], after));
}

GCI int32_t gci_wide_recv(gci_wide *w, int rank, gci_spot to, size_t bytes, int32_t after)
{
    return gci_emit_recv(w->b, rank, to, bytes, places_queue(w, &w->queue[2 * rank + 1], after));
}

/* ---- the local tree ------------------------------------------------------------------------------------------------ */

/* The place of the member of `cluster` that deals with cluster `with`; its coordinator if that is itself. They are a group
 * apart, so that trees with different tops have nearly the same groups, and messages of one do not wait for those of many. How
 * far `with` is decides, not its number: so clusters send in different orders, and no two to one all the time. */
GCI int gci_wide_top(const gci_wide *w, int cluster, int with)
{
    int first = w->s->first[cluster], size = gci_wide_size(w, cluster), group = gci_local_group(size, 0);
    if (w->root_place >= first && w->root_place < first + size)
        return w->root_place;
    int far = (with - cluster + w->s->clusters) % w->s->clusters;
    return first + (far * group + far * group / size) % size;
}

GCI int gci_wide_coordinator(const gci_wide *w, int cluster)
{
    return gci_wide_top(w, cluster, cluster);
}

/* The first place behind the host that stands at `place`, or the end of its cluster. */
static int places_next_host(const gci_wide *w, int place, int end)
{
    const int32_t *host = w->s->topo->of;
    int next = place + 1;
    while (next < end && host[w->member[next]] == host[w->member[place]])
        next++;
    return next;
}

static int places_hosts(const gci_wide *w, int cluster)
{
    int hosts = 0, end = w->s->first[cluster + 1];
    for (int place = w->s->first[cluster]; place < end; place = places_next_host(w, place, end))
        hosts++;
    return hosts;
}

/* The first place of a host, whose number is at most that of the hosts; then the end. */
static int places_host(const gci_wide *w, int cluster, int number)
{
    int place = w->s->first[cluster];
    while (number-- > 0)
        place = places_next_host(w, place, w->s->first[cluster + 1]);
    return place;
}

GCI gci_places gci_wide_share(const gci_wide *w, int cluster, int share)
{
    if (w->shares == 1)
        return (gci_places){ w->s->first[cluster], w->s->first[cluster + 1] };
    int hosts = places_hosts(w, cluster);
    return (gci_places){ places_host(w, cluster, share * hosts / w->shares),
                         places_host(w, cluster, (share + 1) * hosts / w->shares) };
}

GCI int gci_wide_share_of(const gci_wide *w, int cluster, int place)
{
    int share = 0;
    while (place >= gci_wide_share(w, cluster, share).end)
        share++;
    return share;
}

/* The head of a share, for another cluster that of another one. */
GCI int gci_wide_share_top(const gci_wide *w, int cluster, int with, int share)
{
    int far = (with - cluster + w->s->clusters) % w->s->clusters;
    return w->shares == 1 ? gci_wide_top(w, cluster, with) : gci_wide_share(w, cluster, (far + share) % w->shares).first;
}

/* Bytes of a vector, or of the blocks of a cluster, about. */
static size_t places_vector(const gci_call *call)
{
    size_t ranks = (size_t)call->ranks, clusters = (size_t)call->clusters->clusters;
    return call->coll == GCI_ALLGATHER ? gci_blocks_bytes(&call->recv, 0, (int)ranks) / clusters
         : call->coll == GCI_REDUCE_SCATTER ? gci_blocks_bytes(&call->send, 0, (int)ranks) / clusters : call->bytes;
}

/* In many segments a vector takes as long as the busiest NIC, in few as long as the tree is deep. */
static enum gci_wide_shape places_shape(const gci_wide *w, int cluster)
{
    int32_t segments = gci_segments(w->call, places_vector(w->call));
    if (segments <= PLACES_STREAM)
        return GCI_WIDE_VECTORS;
    return w->near_together && segments >= PLACES_CHAIN * places_hosts(w, cluster) ? GCI_WIDE_CHAIN : GCI_WIDE_STREAMS;
}

GCI enum gci_wide_shape gci_wide_vectors(const gci_wide *w)
{
    return places_shape(w, w->mine);
}

/* The same for blocks that are added up: a top may well take them from each other host, if that has as many to take itself. */
GCI enum gci_wide_shape gci_wide_sums(const gci_wide *w)
{
    return gci_wide_vectors(w) == GCI_WIDE_CHAIN && places_hosts(w, w->mine) > w->shares + 1 ? GCI_WIDE_CHAIN : GCI_WIDE_BLOCKS;
}

/* The n-th host from that of `place` on and round the cluster, without the coordinator's: its first place. */
static int places_host_after(const gci_wide *w, int cluster, int place, int n)
{
    const int32_t *host = w->s->topo->of;
    int32_t coordinator = host[w->member[gci_wide_coordinator(w, cluster)]];
    while (n > 0) {
        place = places_next_host(w, place, w->s->first[cluster + 1]);
        if (place == w->s->first[cluster + 1])
            place = w->s->first[cluster];
        n -= host[w->member[place]] != coordinator;
    }
    return place;
}

/* Who speaks for a root: the last of its chain, which passes nothing on; with several clusters, also others by turns. Without a chain
 * itself, but it sends a vector over other hosts, too. */
static int places_speaker(const gci_wide *w, int cluster, int turn)
{
    int speaker = w->root_place;
    bool chain = places_shape(w, cluster) == GCI_WIDE_CHAIN;
    if (chain)
        speaker = gci_local_chain_end(w->cut[GCI_WIDE_CHAIN], w->s->first[cluster], w->s->first[cluster + 1], speaker);
    bool alone = chain ? w->divided || w->s->clusters == 2 : w->call->coll == GCI_REDUCE;
    return alone ? speaker : places_host_after(w, cluster, speaker, turn);
}

/* The top of every `turn`-th segment of a long vector, each on a host of its own; of turn 0 the coordinator. */
GCI int gci_wide_turn_top(const gci_wide *w, int cluster, int turn)
{
    int coordinator = gci_wide_coordinator(w, cluster);
    return coordinator == w->root_place ? places_speaker(w, cluster, turn) : places_host_after(w, cluster, coordinator, turn);
}

/* Are the blocks of a cluster shared among tops? */
static bool places_is_shared(enum gci_coll coll)
{
    return coll == GCI_ALLGATHER || coll == GCI_REDUCE_SCATTER;
}

/* How many tops share a vector: so long ones use the NICs of several hosts, and more windows than one. */
GCI int gci_wide_turns(const gci_wide *w)
{
    size_t turns = gci_min(places_vector(w->call) / PLACES_TOP_BYTES, PLACES_TOPS);
    for (int k = 0; k < w->s->clusters; k++)
        turns = gci_min(turns, (size_t)places_hosts(w, k));
    return turns > 1 && w->near_together ? (int)turns : 1;
}

/* A member in a tree of these. */
static gci_local_node places_node(gci_wide *w, gci_places all, int place, int top, enum gci_wide_shape shape)
{
    gci_wide_tree *t = w->trees;
    while (t && (t->node.top != top || t->shape != shape || t->place != place || t->all.first != all.first || t->all.end != all.end))
        t = t->next;
    if (t)
        return t->node;
    t = gci_alloc(w->env, sizeof *t + (size_t)(all.end - all.first + 1) * sizeof *t->child);
    if (!t) {
        w->hungry = true;
        if (w->b)
            w->b->error = GC_ERR_NOMEM;    /* so no stream begins with this */
        return (gci_local_node){ .top = top, .parent = -1, .first = place, .end = place + 1 };
    }
    *t = (gci_wide_tree){ .next = w->trees, .all = all, .place = place, .shape = shape, .node.child = t->child };
    (shape == GCI_WIDE_CHAIN ? gci_local_chain_at : shape == GCI_WIDE_STREAMS ? gci_local_stream_at : gci_local_node_at)
        (w->cut[shape], all.first, all.end, place, top, &t->node);
    w->trees = t;
    return t->node;
}

GCI gci_local_node gci_wide_local_at(gci_wide *w, int place, int top, enum gci_wide_shape shape)
{
    return places_node(w, (gci_places){ w->s->first[w->mine], w->s->first[w->mine + 1] }, place, top, shape);
}

GCI gci_local_node gci_wide_local(gci_wide *w, int top, enum gci_wide_shape shape)
{
    return gci_wide_local_at(w, w->place, top, shape);
}

GCI gci_local_node gci_wide_local_share(gci_wide *w, enum gci_wide_shape shape)
{
    gci_places own = gci_wide_share(w, w->mine, gci_wide_share_of(w, w->mine, w->place));
    return places_node(w, own, w->place, own.first, shape);
}

GCI void gci_wide_pass_down(gci_wide *w, const gci_local_node *n, gci_spot at, size_t bytes, int32_t after)
{
    for (int i = 0; i < n->children; i++)
        gci_wide_send(w, gci_wide_rank(w, n->child[i].first), at, bytes, after);
}

/* A message goes down: from the parent, or what is here `after` at the top, to the children. Returns when it is here. */
GCI int32_t gci_wide_down(gci_wide *w, const gci_local_node *n, gci_spot at, size_t bytes, int32_t after)
{
    if (n->parent >= 0)
        after = gci_wide_recv(w, gci_wide_rank(w, n->parent), at, bytes, after);
    gci_wide_pass_down(w, n, at, bytes, after);
    return after;
}

/* ---- blocks -------------------------------------------------------------------------------------------------------- */

/* The next piece of the blocks of places up to `end`; the first one follows an empty one. */
GCI bool gci_wide_next(const gci_wide *w, const gci_blocks *blocks, int end, gci_wide_piece *p)
{
    size_t segment = gci_segment_at(w->call, SIZE_MAX, 1), bytes = 0;
    int place = p->end;
    if (p->bytes > 0 && p->end == p->first + 1 && p->at + p->bytes < gci_block_bytes(blocks, gci_wide_rank(w, p->first))) {
        size_t at = p->at + p->bytes;
        *p = (gci_wide_piece){ p->first, p->end, at, gci_min(gci_block_bytes(blocks, gci_wide_rank(w, p->first)) - at, segment) };
        return true;
    }
    while (place < end && gci_block_bytes(blocks, gci_wide_rank(w, place)) == 0)
        place++;
    *p = (gci_wide_piece){ place, place, 0, 0 };
    while (p->end < end && (bytes = gci_block_bytes(blocks, gci_wide_rank(w, p->end))) <= segment - p->bytes) {
        p->bytes += bytes;
        p->end++;
    }
    if (p->bytes == 0 && p->first < end)
        *p = (gci_wide_piece){ place, place + 1, 0, segment };
    return p->bytes > 0;
}

/* How much of a place's block is in a piece. */
GCI size_t gci_wide_part_bytes(const gci_wide *w, const gci_blocks *blocks, const gci_wide_piece *p, int place)
{
    return p->end == p->first + 1 ? p->bytes : gci_block_bytes(blocks, gci_wide_rank(w, place));
}

/* A stretch of the blocks of a piece that lie one after another; *next: where the one behind it begins. Returns its bytes. */
static size_t places_run(const gci_wide *w, const gci_blocks *blocks, const gci_wide_piece *p, int *next, size_t *at)
{
    size_t bytes = 0;
    *at = 0;
    for (; *next < p->end; ++*next) {
        int rank = gci_wide_rank(w, *next);
        size_t own = gci_wide_part_bytes(w, blocks, p, *next), own_at = gci_block_at(blocks, rank) + p->at;
        if (own > 0 && bytes > 0 && own_at != *at + bytes)
            break;
        if (own > 0 && bytes == 0)
            *at = own_at;
        bytes += own;
    }
    return bytes;
}

/* Does a piece of the blocks in `area` lie in one run? Then *where. */
GCI bool gci_wide_lies(const gci_wide *w, gci_spot area, const gci_blocks *blocks, const gci_wide_piece *p, gci_spot *where)
{
    int next = p->first;
    size_t at;
    places_run(w, blocks, p, &next, &at);
    *where = gci_spot_at(area, at);
    return next == p->end;
}

/* Copies a piece from its blocks in `area` to `packed`, or back. Returns when that is done. */
GCI int32_t gci_wide_move(gci_wide *w, gci_spot area, const gci_blocks *blocks, const gci_wide_piece *p, gci_spot packed,
                          bool back, int32_t after)
{
    for (int next = p->first; next < p->end; ) {
        size_t at, bytes = places_run(w, blocks, p, &next, &at);
        gci_spot block = gci_spot_at(area, at);
        after = gci_emit_copy(w->b, back ? block : packed, back ? packed : block, bytes, after);
        packed = gci_spot_at(packed, bytes);
    }
    return after;
}

/* ---- who stands where ------------------------------------------------------------------------------------------------ */

static bool places_is_rooted(enum gci_coll coll)
{
    return coll == GCI_BCAST || coll == GCI_SCATTER || coll == GCI_GATHER || coll == GCI_REDUCE;
}

/* Is it free in which order ranks meet? Then near ones stand together. */
static bool places_is_free(const gci_call *call)
{
    bool scan = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN, barrier = call->coll == GCI_BARRIER;
    return barrier || !gci_coll_reduces(call->coll) || (!scan && call->commutative && call->associative && !call->canonical);
}

static int places_compare(const void *a, const void *b)
{
    const int32_t *x = a, *y = b;
    return x[0] < y[0] ? -1 : x[0] > y[0];
}

/* Near ones stand together; mostly they do so from the start. */
static void places_sort(gci_wide *w, int cluster)
{
    const gci_topo *topo = w->s->topo;
    int32_t *member = w->member + w->s->first[cluster];
    int size = gci_wide_size(w, cluster), sorted = 1;
    while (sorted < size && topo->place[member[sorted - 1]] < topo->place[member[sorted]])
        sorted++;
    if (sorted == size)
        return;
    for (int i = 0; i < size; i++)
        member[i] = topo->place[member[i]];
    qsort(member, (size_t)size, sizeof *member, places_compare);
    for (int i = 0; i < size; i++)
        member[i] = topo->order[member[i]];
}

GCI gci_wide_piece gci_wide_whole(const gci_wide *w, const gci_blocks *blocks, int first, int end)
{
    gci_wide_piece p = { first, end, 0, 0 };
    for (int place = first; place < end; place++)
        p.bytes += gci_block_bytes(blocks, gci_wide_rank(w, place));
    return p;
}

/* A hash of the sizes of what is bundled. Begins with 1. */
GCI uint32_t gci_wide_hash(uint32_t hash, size_t bytes)
{
    return (uint32_t)gci_mix((uint64_t)hash << 32 ^ bytes);
}

/* Of uneven blocks, whose sizes the two ranks of a bundle have from different calls: so that the same sum does not deceive. */
GCI uint32_t gci_wide_sizes(const gci_wide *w, const gci_blocks *blocks, int first, int end)
{
    uint32_t hash = 1;
    for (int place = first; place < end; place++)
        hash = gci_wide_hash(hash, gci_block_bytes(blocks, gci_wide_rank(w, place)));
    return w->call->heard ? hash : 0;
}

GCI int32_t gci_wide_sign(gci_wide *w, int32_t step, uint32_t sizes)
{
    if (!w->b->error && w->call->heard)
        w->b->out->step[step].sizes = sizes;
    return step;
}

GCI int32_t gci_wide_send_blocks(gci_wide *w, int place, gci_spot area, const gci_blocks *blocks, gci_wide_piece p, int32_t after)
{
    gci_spot from;
    if (p.bytes == 0)
        return after;
    if (!gci_wide_lies(w, area, blocks, &p, &from)) {
        from = gci_emit_slot(w->b, p.bytes);
        after = gci_wide_move(w, area, blocks, &p, from, false, after);
    }
    return gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), from, p.bytes, after),
                         gci_wide_sizes(w, blocks, p.first, p.end));
}

/* after: when the blocks may be written. Returns when they are there. */
GCI int32_t gci_wide_recv_blocks(gci_wide *w, int place, gci_spot area, const gci_blocks *blocks, gci_wide_piece p, int32_t after)
{
    gci_spot to;
    if (p.bytes == 0)
        return after;
    uint32_t sizes = gci_wide_sizes(w, blocks, p.first, p.end);
    if (gci_wide_lies(w, area, blocks, &p, &to))
        return gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, place), to, p.bytes, after), sizes);
    to = gci_emit_slot(w->b, p.bytes);
    int32_t came = gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, place), to, p.bytes, GCI_NO_STEP), sizes);
    return gci_wide_move(w, area, blocks, &p, to, true, gci_emit_both(w->b, came, after));
}

/* The top of a share sums up two segments at once for each cluster, and has a vector of each member and cluster: may it? */
static bool places_has_scratch(const gci_wide *w)
{
    size_t vector = places_vector(w->call), clusters = (size_t)w->s->clusters, vectors = (size_t)w->s->longest + clusters + 2;
    size_t most = gci_max(PLACES_SCRATCH, vector / 4 * clusters);
    return w->call->coll != GCI_REDUCE_SCATTER || gci_segment_at(w->call, vector, 1) <= most / (2 * clusters * vectors);
}

/* Who stands where, and what lies between those of the own cluster. */
GCI int gci_wide_begin(gci_wide *w, gci_env *env, const gci_call *call)
{
    const gci_clusters *s = call->clusters;
    const gci_topo *topo = s->topo;
    size_t n = (size_t)call->ranks;
    int32_t *block = gci_alloc(env, (3 + GCI_WIDE_SHAPES) * n * sizeof *block);
    *w = (gci_wide){ .env = env, .call = call, .s = s, .mine = s->of[call->rank], .root_place = -1, .shares = 1, .queue = block,
                     .joined = { GCI_NO_STEP, GCI_NO_STEP, GCI_NO_STEP } };
    if (!block)
        return GC_ERR_NOMEM;
    w->member = block + 2 * n;
    for (size_t shape = 0; shape < GCI_WIDE_SHAPES; shape++)
        w->cut[shape] = block + (3 + shape) * n;
    for (size_t i = 0; i < 2 * n; i++)
        w->queue[i] = GCI_NO_STEP;
    memcpy(w->member, s->member, n * sizeof *w->member);
    for (int k = 0; k < s->clusters && places_is_free(call); k++)
        places_sort(w, k);
    w->ranks_are_places = true;
    w->near_together = places_is_free(call);
    for (int place = 0; place < call->ranks; place++) {
        w->ranks_are_places &= w->member[place] == place;
        if (w->member[place] == call->rank)
            w->place = place;
        if (w->member[place] == call->root && places_is_rooted(call->coll))
            w->root_place = place;
    }
    int first = s->first[w->mine], end = s->first[w->mine + 1], home = w->root_place >= 0 ? s->of[call->root] : w->mine;
    w->cut[GCI_WIDE_CHAIN] = w->cut[GCI_WIDE_STREAMS];
    gci_local_cuts(topo, w->member, first, end, w->cut[GCI_WIDE_STREAMS]);
    if (home != w->mine)
        gci_local_cuts(topo, w->member, s->first[home], s->first[home + 1], w->cut[GCI_WIDE_STREAMS]);
    for (int shape = GCI_WIDE_BLOCKS; shape < GCI_WIDE_STREAMS; shape++)
        memcpy(&w->cut[shape][first], &w->cut[GCI_WIDE_STREAMS][first], (size_t)(end - first) * sizeof *block);
    gci_local_groups(first, end, 0, w->cut[GCI_WIDE_BLOCKS]);
    w->shares = places_is_shared(call->coll) && places_has_scratch(w) ? gci_wide_turns(w) : 1;
    gci_local_groups(first, end, gci_segment_at(call, places_vector(call), 1), w->cut[GCI_WIDE_VECTORS]);
    return GC_OK;
}

GCI void gci_wide_end(gci_wide *w)
{
    for (gci_wide_tree *t; (t = w->trees); ) {
        w->trees = t->next;
        gci_free(w->env, t);
    }
    gci_free(w->env, w->queue);
    gci_free(w->env, w->offset);
    gci_free(w->env, w->lists);
}
