/* wide_alltoall.c: all to all between sites (pure).
 * SPDX-License-Identifier: MIT
 *
 * Between two clusters pass the blocks of all pairs of their ranks. How a block goes depends on its length alone:
 *
 *     in a bundle   All short blocks of a cluster for another one make one message, from the top for that cluster to the taker
 *                   in it, made and taken apart within the clusters: a header per block would cost more than that.
 *     in a row      Longer blocks of one sender for that cluster make one message, which goes the same way; so row after row
 *                   over one connection. A connection for each pair of ranks would be as many that fill the same queue and
 *                   take each other's packets: with BBR, 8 + 8 ranks and 1 MByte/s, for half of the time.
 *     straight      Blocks longer still, or of clusters so large that rows would be too much for a top's NIC: from rank to
 *                   rank, so that all NICs are at work.
 *
 *                       wide-area messages      latency         scratch, for each cluster that a rank is top or taker for
 *     bundles           clusters^2              l + L + l       all of them, 4 MiB at most
 *     rows              clusters * ranks        l + L + l       top: all of them, 16 MiB at most; taker: 512 KiB and two rows,
 *                                                               or, of few ranks, all; their sender: a copy, unless its blocks
 *                                                               lie side by side
 *     straight          ranks^2                 L
 *
 * A top holds all rows because the messages of two ranks meet in their order: if it took a row only when there is room for it,
 * what its sender hands out to it as a taker would wait behind that, and so for a far taker, which may wait in the same way.
 *
 * In a call of few ranks, and of even blocks that are few bytes, messages count more than bytes. There the ranks of a cluster
 * meet at its coordinator: it is top and taker for all clusters (so that rows are no more than 16 MiB for all of them), and for
 * the own one, too, of blocks that are short enough, one's own among them. What a rank has goes there in one message, if it is
 * little, and what it gets comes from there in one. A coordinator has room for all rows that come: else those of a slow link,
 * which it hands out by turns with others, would keep it from taking these.
 *
 * Uneven blocks: what tops and takers must know, they hear first (gci_ask, wide.c). A member tells, about each other cluster,
 *
 *     the top            sum of what it has for that in a bundle, and a hash of these sizes; if there are     8 bytes each
 *                        rows, the same of its row
 *     the taker          the size of the block from each rank there, 0 if that comes straight                 1, 2 or 4 bytes each
 *
 * and behind all these sizes the top gets, about each other cluster, what is for its bundle, if there is room for that: at most as
 * much as can be in a bundle, and 256 bytes, always sent. Where ranks meet, the coordinator gets all that, of the own cluster, too.
 */
#include "gridcomm_int.h"

enum { LITTLE = 4 << 10,                /* bytes of all members of a cluster that a NIC takes within a local latency, about; */
       BUNDLE_BLOCK = 2048,             /* of a block in a bundle; */
       BUNDLE_ALL = 4 << 20,            /* of all blocks between two clusters in one */
       ROW_BLOCK = 64 << 10,            /* of a block in a row; */
       ROW_ALL = 16 << 20,              /* of all blocks between two clusters in rows: more would keep one NIC busy for long */
       ROWS_AHEAD = 512 << 10,          /* of rows that a taker holds, beside one or two more, unless ranks meet */
       SUM_BYTES = 8 };
enum { ROW_RANKS = 64,                  /* ranks of a cluster, at most: a taker hands out as many messages as that squared */
       FEW_PAIRS = ROW_ALL / ROW_BLOCK };       /* of a rank of a cluster and one of another: so few meet */

enum { IN_BUNDLE, IN_ROW, KINDS };

/* What this rank, as top or taker, has to do with a cluster. */
typedef struct alltoall_with {
    size_t   sums_at, sizes_at, rides_at;   /* where that is in what a member has told about it */
    bool     takes;         /* it is the taker; also of the own one, where ranks meet */
    gci_spot bundle;        /* that comes from there: row after row, one of each sender; */
    int32_t  came;          /* the step after which it is here */
    gci_spot room;          /* for a few rows that are messages of their own; */
    size_t   longest;       /* bytes of one */
    int      turns;         /* rows that have room */
    int32_t *left;          /* [rows] the step after which that of each is free */
} alltoall_with;

typedef struct alltoall {
    gci_wide       *w;
    bool            meets;                  /* the ranks of a cluster meet at its coordinator */
    size_t          limit[2][KINDS];        /* bytes of a block up to which it is of a kind, and of none before, between clusters
                                               and within the own one; 0: none is */
    int             rows;                   /* of the largest cluster; 0: nothing goes in rows */
    gci_blocks      blocks[KINDS][2];       /* this rank's of a kind: that it sends, and receives; others are empty */
    size_t         *lists;                  /* of those blocks */
    size_t         *at;                     /* [ranks] by place: in a bundle here, where what is next of that row begins */
    size_t          told, size_bytes;       /* of what a member has told: how far to the next one's; what a size takes */
    struct { size_t most; gci_spot at; size_t each; int32_t came; } rode;       /* what members have for bundles and sent before,
                                               up to `most` bytes for a cluster: the first one's, how far to the next one's, when */
    alltoall_with  *with;                   /* [clusters] */
} alltoall;

static const gci_spot alltoall_result = { GCI_BUF_RECV, 0 };

/* ---- kinds of blocks ------------------------------------------------------------------------------------------------ */

/* Bundles move within two clusters, at tops that have more than one each if there are fewer ranks than clusters to share them;
 * and must find room. */
static size_t alltoall_bundle_limit(const gci_wide *w)
{
    size_t clusters = (size_t)w->s->clusters, longest = (size_t)w->s->longest;
    size_t limit = gci_min(BUNDLE_BLOCK, BUNDLE_BLOCK * (size_t)w->call->ranks / clusters / clusters);
    return gci_min(limit, BUNDLE_ALL / longest / longest);
}

GCI bool gci_alltoall_bundles(const gci_wide *w)
{
    return w->call->even && w->call->own <= alltoall_bundle_limit(w);
}

/* With more clusters than pairs of ranks of two of them, a top would still pass on rows for some while links to others idle. */
static size_t alltoall_row_limit(const gci_wide *w)
{
    size_t pairs = (size_t)w->s->longest * (size_t)w->s->second, block = w->call->even ? gci_max(w->call->own, 1) : ROW_BLOCK;
    bool pays = pairs > (size_t)w->s->clusters && w->s->longest <= ROW_RANKS;
    return pays && block <= ROW_BLOCK && pairs <= ROW_ALL / block ? ROW_BLOCK : 0;
}

static size_t alltoall_size_bytes(const gci_wide *w)
{
    return alltoall_row_limit(w) > 0 ? 4 : alltoall_bundle_limit(w) > UINT8_MAX ? 2 : 1;
}

static size_t alltoall_sums_bytes(const gci_wide *w)
{
    return alltoall_row_limit(w) > 0 ? KINDS * SUM_BYTES : SUM_BYTES;
}

/* Even blocks, so few bytes that a rank sends all it has at once to where it meets others. */
static bool alltoall_is_little(const gci_wide *w)
{
    size_t own = w->call->own;
    return own > 0 && gci_alltoall_bundles(w) && own <= LITTLE / (size_t)w->s->longest / (size_t)w->call->ranks;
}

/* Do the ranks of a cluster meet at its coordinator? */
static bool alltoall_meets(const gci_wide *w)
{
    size_t pairs = (size_t)w->s->longest * (size_t)w->s->second * (size_t)(w->s->clusters - 1);
    return pairs <= FEW_PAIRS || alltoall_is_little(w);
}

static size_t alltoall_of_kind(const size_t limit[KINDS], int kind, size_t block)
{
    return block <= limit[kind] && (kind == IN_BUNDLE || block > limit[IN_BUNDLE]) ? block : 0;
}

/* Within the own cluster. */
static size_t alltoall_bundle_limit_here(const gci_wide *w)
{
    size_t size = (size_t)gci_wide_size(w, w->mine);
    return alltoall_meets(w) ? gci_min(alltoall_bundle_limit(w), LITTLE / size / size) : 0;
}

static void alltoall_limits(const gci_wide *w, size_t limit[2][KINDS])
{
    limit[0][IN_BUNDLE] = alltoall_bundle_limit(w);
    limit[0][IN_ROW] = alltoall_row_limit(w);
    limit[1][IN_BUNDLE] = alltoall_bundle_limit_here(w);
    limit[1][IN_ROW] = 0;
}

GCI bool gci_alltoall_asks(const gci_wide *w)
{
    return alltoall_bundle_limit(w) > 0 || alltoall_row_limit(w) > 0;
}

/* ---- uneven blocks: what is told ------------------------------------------------------------------------------------ */

/* Who in `cluster` deals with cluster `with`. */
static int alltoall_top(const gci_wide *w, int cluster, int with)
{
    return alltoall_meets(w) ? gci_wide_coordinator(w, cluster) : gci_wide_top(w, cluster, with);
}

/* Who in `cluster` hands out what comes from cluster `with`. Of uneven blocks that is another one than the top, if they do not
 * meet: so the top need not wait until the sizes of all that will come have passed its NIC. */
static int alltoall_taker(const gci_wide *w, int cluster, int with)
{
    int first = w->s->first[cluster], size = gci_wide_size(w, cluster), top = alltoall_top(w, cluster, with);
    return w->call->even || alltoall_meets(w) ? top : first + (top - first + size / 2) % size;
}

/* Is anything told about cluster k? */
static bool alltoall_tells_about(const gci_wide *w, int k)
{
    return gci_wide_size(w, w->mine) > 1 && (k != w->mine || alltoall_meets(w));
}

/* Bytes of sums about cluster k that a member tells another one, or itself; and of sizes, which follow. */
static size_t alltoall_told_sums(const gci_wide *w, int to, int k)
{
    return alltoall_tells_about(w, k) && alltoall_top(w, w->mine, k) == to ? alltoall_sums_bytes(w) : 0;
}

static size_t alltoall_told_sizes(const gci_wide *w, int to, int k)
{
    bool told = alltoall_tells_about(w, k) && alltoall_taker(w, w->mine, k) == to;
    return told ? alltoall_size_bytes(w) * (size_t)gci_wide_size(w, k) : 0;
}

GCI size_t gci_alltoall_told(const gci_wide *w, int to)
{
    size_t bytes = 0;
    for (int k = 0; k < w->s->clusters; k++)
        bytes += alltoall_told_sums(w, to, k) + alltoall_told_sizes(w, to, k);
    return bytes;
}

static void alltoall_tell_sum(const gci_wide *w, const size_t limit[KINDS], int kind, int k, uint8_t *told)
{
    size_t sum = 0;
    uint32_t hash = 1;
    for (int place = w->s->first[k]; place < w->s->first[k + 1]; place++) {
        size_t bytes = alltoall_of_kind(limit, kind, gci_block_bytes(&w->call->send, gci_wide_rank(w, place)));
        sum += bytes;
        hash = gci_wide_hash(hash, bytes);
    }
    gci_put32(told, (uint32_t)sum);
    gci_put32(told + 4, hash);
}

static void alltoall_tell_sizes(const gci_wide *w, const size_t limit[KINDS], int k, uint8_t *told)
{
    size_t size_bytes = alltoall_size_bytes(w), most = gci_max(limit[IN_BUNDLE], limit[IN_ROW]);
    for (int place = w->s->first[k]; place < w->s->first[k + 1]; place++) {
        size_t bytes = gci_block_bytes(&w->call->recv, gci_wide_rank(w, place));
        bytes = bytes <= most ? bytes : 0;
        for (size_t i = 0; i < size_bytes; i++)
            *told++ = (uint8_t)(bytes >> 8 * i);
    }
}

/* Bytes of blocks for one cluster that ride, at most. */
static size_t alltoall_ride_bytes(const gci_wide *w)
{
    size_t clusters = (size_t)w->s->clusters, size = (size_t)gci_wide_size(w, w->mine);
    return alltoall_meets(w) ? gci_min(gci_wide_ride_bytes(w), LITTLE / size / clusters) : gci_wide_ride_bytes(w);
}

/* Room for blocks to cluster k, in what a member tells another one, or itself. */
static size_t alltoall_rides_for(const gci_wide *w, int to, int k)
{
    if (!alltoall_tells_about(w, k) || alltoall_top(w, w->mine, k) != to)
        return 0;
    size_t limit = k == w->mine ? alltoall_bundle_limit_here(w) : alltoall_bundle_limit(w);
    return gci_min(alltoall_ride_bytes(w), limit * (size_t)gci_wide_size(w, k));
}

GCI size_t gci_alltoall_rides(const gci_wide *w, int to)
{
    size_t bytes = 0;
    for (int k = 0; k < w->s->clusters; k++)
        bytes += alltoall_rides_for(w, to, k);
    return bytes;
}

/* The blocks for cluster k, if they fit into `room`. */
static void alltoall_board(const gci_wide *w, const size_t limit[KINDS], int k, gci_ask *ask, size_t at, size_t room)
{
    const gci_blocks *blocks = &w->call->send;
    size_t sum = 0, bytes;
    for (int place = w->s->first[k]; place < w->s->first[k + 1]; place++)
        sum += alltoall_of_kind(limit, IN_BUNDLE, gci_block_bytes(blocks, gci_wide_rank(w, place)));
    for (int place = w->s->first[k]; place < w->s->first[k + 1] && sum <= room; place++, at += bytes) {
        int rank = gci_wide_rank(w, place);
        bytes = alltoall_of_kind(limit, IN_BUNDLE, gci_block_bytes(blocks, rank));
        gci_wide_board(ask, at, gci_block_at(blocks, rank), bytes);
    }
}

GCI void gci_alltoall_tell(const gci_wide *w, int to, gci_ask *ask, size_t at)
{
    size_t limit[2][KINDS], bytes;
    alltoall_limits(w, limit);
    for (int k = 0; k < w->s->clusters; k++, at += bytes) {
        size_t sums = alltoall_told_sums(w, to, k);
        bytes = sums + alltoall_told_sizes(w, to, k);
        for (size_t sum_at = 0; sum_at < sums; sum_at += SUM_BYTES)
            alltoall_tell_sum(w, limit[k == w->mine], (int)(sum_at / SUM_BYTES), k, ask->told + at + sum_at);
        if (bytes > sums)
            alltoall_tell_sizes(w, limit[k == w->mine], k, ask->told + at + sums);
    }
    for (int k = 0; k < w->s->clusters && to != w->place; k++, at += bytes) {
        bytes = alltoall_rides_for(w, to, k);
        if (bytes > 0)
            alltoall_board(w, limit[k == w->mine], k, ask, at, bytes);
    }
}

/* ---- and heard ------------------------------------------------------------------------------------------------------ */

static const uint8_t *alltoall_heard(const alltoall *t, int place, size_t at)
{
    const gci_wide *w = t->w;
    return w->call->heard + (size_t)(place - w->s->first[w->mine]) * t->told + at;
}

/* What a member has of a kind for cluster k. */
static size_t alltoall_sum(const alltoall *t, int kind, int k, int place, uint32_t *sizes)
{
    const gci_wide *w = t->w;
    const gci_blocks *own = &t->blocks[kind][0];
    int first = w->s->first[k], end = w->s->first[k + 1];
    if (place == w->place || !w->call->heard) {
        *sizes = gci_wide_sizes(w, own, first, end);
        return gci_wide_whole(w, own, first, end).bytes;
    }
    const uint8_t *told = alltoall_heard(t, place, t->with[k].sums_at + (size_t)kind * SUM_BYTES);
    *sizes = gci_get32(told + 4);
    return gci_min(gci_get32(told), t->limit[k == w->mine][kind] * (size_t)(end - first));
}

/* What the rank at a place in cluster i has of a kind for a member. */
static size_t alltoall_size(const alltoall *t, int kind, int place, int i, int from)
{
    const gci_wide *w = t->w;
    size_t bytes = 0;
    if (place == w->place || !w->call->heard)
        return gci_block_bytes(&t->blocks[kind][1], gci_wide_rank(w, from));
    const uint8_t *told = alltoall_heard(t, place, t->with[i].sizes_at + t->size_bytes * (size_t)(from - w->s->first[i]));
    for (size_t k = 0; k < t->size_bytes; k++)
        bytes |= (size_t)told[k] << 8 * k;
    return alltoall_of_kind(t->limit[i == w->mine], kind, bytes);
}

/* What it has for all members. */
static size_t alltoall_row(const alltoall *t, int kind, int i, int from, uint32_t *sizes)
{
    const gci_wide *w = t->w;
    size_t total = 0;
    *sizes = 1;
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++) {
        size_t bytes = alltoall_size(t, kind, place, i, from);
        *sizes = gci_wide_hash(*sizes, bytes);
        total += bytes;
    }
    return total;
}

/* ---- bundles -------------------------------------------------------------------------------------------------------- */

/* Even blocks of those who meet: all that a rank has comes to its coordinator at once. */
static void alltoall_meet(alltoall *t)
{
    gci_wide *w = t->w;
    int coordinator = gci_wide_coordinator(w, w->mine), first = w->s->first[w->mine], end = w->s->first[w->mine + 1];
    gci_wide_piece all = gci_wide_whole(w, &w->call->send, 0, w->call->ranks);
    t->rode.most = SIZE_MAX;
    t->rode.each = all.bytes;
    if (w->place != coordinator) {
        gci_wide_send_blocks(w, coordinator, w->b->input, &w->call->send, all, w->b->ready);
        return;
    }
    t->rode.at = gci_emit_slot(w->b, all.bytes * (size_t)(end - first));
    for (int place = first; place < end; place++) {
        gci_spot at = gci_spot_at(t->rode.at, all.bytes * (size_t)(place - first));
        if (place != w->place)
            gci_emit_pend(w->b, gci_wide_recv(w, gci_wide_rank(w, place), at, all.bytes, GCI_NO_STEP));
    }
    t->rode.came = gci_emit_join(w->b);
}

/* What another member has for a bundle comes to its place there, or has ridden. */
static int32_t alltoall_take_in(alltoall *t, int place, gci_spot to, size_t bytes, uint32_t sizes, gci_spot rode)
{
    gci_wide *w = t->w;
    if (bytes <= t->rode.most)
        return gci_emit_copy(w->b, to, rode, bytes, t->rode.came);
    return gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, place), to, bytes, GCI_NO_STEP), sizes);
}

/* What goes to cluster j: each member's blocks for it, one member after another. */
static void alltoall_give_bundle(alltoall *t, int j)
{
    gci_wide *w = t->w;
    const gci_clusters *s = w->s;
    const gci_blocks *blocks = &t->blocks[IN_BUNDLE][0];
    int top = alltoall_top(w, w->mine, j), first = s->first[w->mine], end = s->first[w->mine + 1];
    gci_wide_piece own = gci_wide_whole(w, blocks, s->first[j], s->first[j + 1]);
    size_t total = 0, at = 0, bytes;
    uint32_t sizes = 1, sizes_of;
    if (w->place != top) {
        if (own.bytes > t->rode.most)
            gci_wide_send_blocks(w, top, w->b->input, blocks, own, w->b->ready);
        return;
    }
    for (int place = first; place < end; place++)
        total += alltoall_sum(t, IN_BUNDLE, j, place, &sizes_of);
    if (total == 0)
        return;
    gci_spot all = gci_emit_slot(w->b, total), rode = gci_spot_at(t->rode.at, t->with[j].rides_at);
    for (int place = first; place < end; place++, at += bytes, rode.at += t->rode.each) {
        gci_spot to = gci_spot_at(all, at);
        bytes = alltoall_sum(t, IN_BUNDLE, j, place, &sizes_of);
        sizes = gci_wide_hash(sizes, sizes_of);
        if (bytes > 0)
            gci_emit_pend(w->b, place == top ? gci_wide_move(w, w->b->input, blocks, &own, to, false, w->b->ready)
                                             : alltoall_take_in(t, place, to, bytes, sizes_of, rode));
    }
    int32_t ready = gci_emit_join(w->b);
    if (j == w->mine) {
        t->with[j].bundle = all;
        t->with[j].came = ready;
    } else {
        gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, alltoall_taker(w, j, w->mine)), all, total, ready), sizes);
    }
}

/* The bundle from cluster i comes. That of the own one is there; no message has shown whether its senders and receivers agree. */
static void alltoall_take_bundle(alltoall *t, int i)
{
    gci_wide *w = t->w;
    alltoall_with *from = &t->with[i];
    size_t total = 0, row;
    uint32_t sizes = 1, sizes_of, sent_sizes;
    for (int place = w->s->first[i]; place < w->s->first[i + 1]; place++) {
        row = alltoall_row(t, IN_BUNDLE, i, place, &sizes_of);
        if (w->call->heard && i == w->mine && (row != alltoall_sum(t, IN_BUNDLE, i, place, &sent_sizes) || sizes_of != sent_sizes))
            w->b->error = w->b->error ? w->b->error : GC_ERR_MISMATCH;
        t->at[place] = total;
        total += row;
        sizes = gci_wide_hash(sizes, sizes_of);
    }
    if (total == 0 || i == w->mine)
        return;
    from->bundle = gci_emit_slot(w->b, total);
    from->came = gci_wide_recv(w, gci_wide_rank(w, alltoall_top(w, i, w->mine)), from->bundle, total, GCI_NO_STEP);
    gci_wide_sign(w, from->came, sizes);
}

/* What clusters from i up to `end` have for a member. */
static size_t alltoall_column(alltoall *t, int place, int i, int end, uint32_t *sizes)
{
    size_t total = 0;
    *sizes = 1;
    for (; i < end; i++) {
        for (int from = t->w->s->first[i]; from < t->w->s->first[i + 1]; from++) {
            size_t bytes = alltoall_size(t, IN_BUNDLE, place, i, from);
            *sizes = gci_wide_hash(*sizes, bytes);
            total += bytes;
        }
    }
    return total;
}

/* That goes to it out of the bundles here, in one message. */
static void alltoall_hand_out(alltoall *t, int place, int i, int end)
{
    gci_wide *w = t->w;
    bool own = place == w->place;
    uint32_t sizes;
    size_t column = alltoall_column(t, place, i, end, &sizes), packed = 0, bytes;
    if (column == 0)
        return;
    gci_spot to = own ? alltoall_result : gci_emit_slot(w->b, column);
    for (; i < end; i++) {
        int32_t ready = gci_emit_both(w->b, t->with[i].came, own ? w->may_write : GCI_NO_STEP);
        for (int from = w->s->first[i]; from < w->s->first[i + 1]; from++, packed += bytes) {
            bytes = alltoall_size(t, IN_BUNDLE, place, i, from);
            size_t to_at = own ? gci_block_at(&t->blocks[IN_BUNDLE][1], gci_wide_rank(w, from)) : packed;
            if (bytes > 0)
                ready = gci_emit_copy(w->b, gci_spot_at(to, to_at), gci_spot_at(t->with[i].bundle, t->at[from]), bytes, ready);
            t->at[from] += bytes;
        }
        if (!own)
            gci_emit_pend(w->b, ready);
    }
    if (!own)
        gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), to, column, gci_emit_join(w->b)), sizes);
}

/* Does a member get all bundled blocks from the coordinator at once, so many bytes? */
static bool alltoall_is_at_once(const alltoall *t, size_t bytes)
{
    return t->meets && bytes <= LITTLE / (size_t)gci_wide_size(t->w, t->w->mine);
}

static void alltoall_deal_out(alltoall *t, int place)
{
    gci_wide *w = t->w;
    int clusters = w->s->clusters;
    uint32_t sizes;
    if (t->with[w->mine].takes && alltoall_is_at_once(t, alltoall_column(t, place, 0, clusters, &sizes))) {
        alltoall_hand_out(t, place, 0, clusters);
        return;
    }
    for (int d = !t->meets; d < clusters; d++) {
        int i = (w->mine + clusters - d) % clusters;
        if (t->with[i].takes)
            alltoall_hand_out(t, place, i, i + 1);
    }
}

/* What this rank gets out of the bundles that others take. */
static void alltoall_get(alltoall *t)
{
    gci_wide *w = t->w;
    const gci_blocks *blocks = &t->blocks[IN_BUNDLE][1];
    gci_wide_piece all = gci_wide_whole(w, blocks, 0, w->call->ranks);
    int clusters = w->s->clusters, coordinator = gci_wide_coordinator(w, w->mine);
    if (alltoall_is_at_once(t, all.bytes)) {
        if (w->place != coordinator)
            gci_wide_recv_blocks(w, coordinator, alltoall_result, blocks, all, w->may_write);
        return;
    }
    for (int d = !t->meets; d < clusters; d++) {
        int i = (w->mine + clusters - d) % clusters, taker = alltoall_taker(w, w->mine, i);
        if (taker != w->place)
            gci_wide_recv_blocks(w, taker, alltoall_result, blocks, gci_wide_whole(w, blocks, w->s->first[i], w->s->first[i + 1]),
                                 w->may_write);
    }
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* For those of cluster i. */
static void alltoall_make_room(alltoall *t, int i)
{
    alltoall_with *r = &t->with[i];
    int rows = gci_wide_size(t->w, i);
    uint32_t sizes;
    for (int row = 0; row < rows; row++)
        r->longest = gci_max(r->longest, alltoall_row(t, IN_ROW, i, t->w->s->first[i] + row, &sizes));
    size_t turns = ROWS_AHEAD / gci_max(r->longest, 1) + 2;
    r->turns = !t->meets && turns < (size_t)rows ? (int)turns : rows;
    r->room = gci_emit_slot(t->w->b, r->longest * (size_t)r->turns);
}

static gci_spot alltoall_room(const alltoall_with *r, int row)
{
    return gci_spot_at(r->room, r->longest * (size_t)(row % r->turns));
}

/* When that room is free. */
static int32_t alltoall_free(const alltoall_with *r, int row)
{
    return row < r->turns ? GCI_NO_STEP : r->left[row - r->turns];
}

/* A row goes from a member to cluster j. Between clusters its hash is of its number, too: empty rows are no messages. */
static void alltoall_give_row(alltoall *t, int j, int row)
{
    gci_wide *w = t->w;
    const gci_blocks *blocks = &t->blocks[IN_ROW][0];
    int place = w->s->first[w->mine] + row, top = alltoall_top(w, w->mine, j), taker = alltoall_taker(w, j, w->mine);
    int32_t ready = w->b->ready;
    uint32_t sizes;
    gci_spot at;
    if (place != w->place && w->place != top)
        return;
    gci_wide_piece own = { .bytes = 0 };
    if (place == w->place)
        own = gci_wide_whole(w, blocks, w->s->first[j], w->s->first[j + 1]);
    if (w->place != top) {
        gci_wide_send_blocks(w, top, w->b->input, blocks, own, ready);
        return;
    }
    size_t bytes = alltoall_sum(t, IN_ROW, j, place, &sizes);
    if (bytes == 0)
        return;
    if (place != top) {
        at = gci_emit_slot(w->b, bytes);
        ready = gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, place), at, bytes, GCI_NO_STEP), sizes);
    } else if (!gci_wide_lies(w, w->b->input, blocks, &own, &at)) {
        at = gci_emit_slot(w->b, bytes);
        ready = gci_wide_move(w, w->b->input, blocks, &own, at, false, ready);
    }
    gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, taker), at, bytes, ready), gci_wide_hash(sizes, (size_t)row));
}

/* A row comes from cluster i. What is handed out of it bears whose it is, lest it be taken for another block of that length. */
static void alltoall_take_row(alltoall *t, int i, int row)
{
    gci_wide *w = t->w;
    alltoall_with *r = &t->with[i];
    const gci_blocks *blocks = &t->blocks[IN_ROW][1];
    int sender = w->s->first[i] + row, from = gci_wide_rank(w, sender), taker = alltoall_taker(w, w->mine, i);
    size_t own = gci_block_bytes(blocks, from), at = 0, bytes;
    gci_spot to = gci_spot_at(alltoall_result, own > 0 ? gci_block_at(blocks, from) : 0);
    uint32_t whose = gci_wide_hash(1, (size_t)from), sizes;
    if (w->place != taker) {
        if (own > 0)
            gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, taker), to, own, w->may_write), whose);
        return;
    }
    r->left[row] = alltoall_free(r, row);
    size_t total = alltoall_row(t, IN_ROW, i, sender, &sizes);
    if (total == 0)
        return;
    gci_spot all = alltoall_room(r, row);
    int32_t came = gci_wide_recv(w, gci_wide_rank(w, alltoall_top(w, i, w->mine)), all, total, r->left[row]);
    gci_wide_sign(w, came, gci_wide_hash(sizes, (size_t)row));
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++, at += bytes) {
        gci_spot part = gci_spot_at(all, at);
        bytes = alltoall_size(t, IN_ROW, place, i, sender);
        if (bytes > 0 && place == w->place)
            gci_emit_pend(w->b, gci_emit_copy(w->b, to, part, bytes, gci_emit_both(w->b, came, w->may_write)));
        else if (bytes > 0)
            gci_emit_pend(w->b, gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), part, bytes, came), whose));
    }
    r->left[row] = gci_emit_join(w->b);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

/* This rank's blocks of a kind, of all that it sends or receives. */
static void alltoall_pick(alltoall *t, int kind, bool recv, size_t *bytes, size_t *at)
{
    const gci_call *call = t->w->call;
    const gci_blocks *blocks = recv ? &call->recv : &call->send;
    size_t packed = 0;
    t->blocks[kind][recv] = (gci_blocks){ .bytes = bytes, .at = at };
    for (int rank = 0; rank < call->ranks; rank++) {
        size_t block = gci_block_bytes(blocks, rank);
        at[rank] = blocks->at ? blocks->at[rank] : packed;
        bytes[rank] = alltoall_of_kind(t->limit[t->w->s->of[rank] == t->w->mine], kind, block);
        packed += block;
    }
}

static void alltoall_emit(alltoall *t)
{
    gci_wide *w = t->w;
    int clusters = w->s->clusters;
    if (alltoall_is_little(w))
        alltoall_meet(t);
    gci_wide_direct(w, gci_max(t->limit[0][IN_BUNDLE], t->limit[0][IN_ROW]), false);
    for (int d = 1; d < clusters + t->meets; d++)
        alltoall_give_bundle(t, (w->mine + d) % clusters);
    for (int row = 0; row < t->rows; row++)
        for (int d = 1; d < clusters && row < gci_wide_size(w, w->mine); d++)
            alltoall_give_row(t, (w->mine + d) % clusters, row);
    gci_wide_direct(w, t->limit[1][IN_BUNDLE], true);
    for (int i = 0; i < clusters; i++)
        if (t->with[i].takes)
            alltoall_take_bundle(t, i);
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++)
        alltoall_deal_out(t, place);
    alltoall_get(t);
    for (int i = 0; i < clusters && t->rows > 0; i++)
        if (i != w->mine && t->with[i].takes)
            alltoall_make_room(t, i);
    for (int row = 0; row < t->rows; row++)
        for (int d = 1; d < clusters; d++) {
            int i = (w->mine + clusters - d) % clusters;
            if (row < gci_wide_size(w, i))
                alltoall_take_row(t, i, row);
        }
}

/* What members have told, or bring to where they meet. */
static void alltoall_hear(alltoall *t)
{
    const gci_wide *w = t->w;
    size_t rides_at = 0;
    for (int k = 0; k < w->s->clusters; k++) {
        alltoall_with *with = &t->with[k];
        with->sums_at = t->told;
        with->sizes_at = with->sums_at + alltoall_told_sums(w, w->place, k);
        with->rides_at = w->call->even ? w->call->own * (size_t)w->s->first[k] : rides_at;
        t->told = with->sizes_at + alltoall_told_sizes(w, w->place, k);
        with->takes = (k != w->mine || t->meets) && alltoall_taker(w, w->mine, k) == w->place;
        rides_at += alltoall_rides_for(w, w->place, k);
    }
    t->size_bytes = alltoall_size_bytes(w);
    t->rode.came = GCI_NO_STEP;
    if (!w->call->heard)
        return;
    t->rode.most = alltoall_ride_bytes(w);
    t->rode.at = (gci_spot){ GCI_BUF_HEARD, t->told };
    t->rode.each = t->told + rides_at;
}

GCI void gci_wide_alltoall(gci_wide *w)
{
    const gci_call *call = w->call;
    bool told = call->even || call->heard;
    alltoall t = { .w = w, .meets = told && alltoall_meets(w) };
    size_t ranks = (size_t)call->ranks, clusters = (size_t)w->s->clusters;
    if (told)
        alltoall_limits(w, t.limit);
    t.rows = t.limit[0][IN_ROW] > 0 ? w->s->longest : 0;
    size_t lists = (1 + 2 * 2 * KINDS) * ranks * sizeof *t.lists, left = (size_t)t.rows * sizeof *t.with->left;
    t.lists = gci_alloc(w->env, lists + clusters * (sizeof *t.with + left));
    if (!t.lists) {
        w->b->error = GC_ERR_NOMEM;
        return;
    }
    t.with = (alltoall_with *)(void *)((char *)t.lists + lists);
    for (size_t i = 0; i < clusters; i++)
        t.with[i] = (alltoall_with){ .came = GCI_NO_STEP,
                                     .left = (int32_t *)(void *)((char *)(t.with + clusters) + i * left) };
    t.at = t.lists + 2 * 2 * KINDS * ranks;
    for (size_t i = 0; i < 2 * KINDS; i++)
        alltoall_pick(&t, (int)i / 2, i % 2, t.lists + 2 * i * ranks, t.lists + (2 * i + 1) * ranks);
    alltoall_hear(&t);
    alltoall_emit(&t);
    gci_free(w->env, t.lists);
}
