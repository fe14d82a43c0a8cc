/* wide_alltoall.c: all to all between sites (pure).
 * SPDX-License-Identifier: MIT
 *
 * Between two clusters pass the blocks of all pairs of their ranks. If they are even, and all of a cluster so few bytes that only
 * messages count, each rank sends all it has to the coordinator, for its own cluster too, and gets all from there:
 *
 *     whole         One message to the coordinator and one from it for each rank, one from coordinator to coordinator.
 *
 * Else how a block goes depends on its length alone:
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
 *     whole             clusters^2              l + L + l       all of them, 4 KiB at most, and as much for what goes on
 *     bundles           clusters^2              l + L + l       all of them, 4 MiB at most
 *     rows              clusters * ranks        l + L + l       top: all of them, 16 MiB at most; taker: 512 KiB and two rows;
 *                                                               their sender: a copy, unless its blocks lie side by side
 *     straight          ranks^2                 L
 *
 * A top holds all rows because the messages of two ranks meet in their order: if it took a row only when there is room for it,
 * what its sender hands out to it as a taker would wait behind that, and so for a far taker, which may wait in the same way.
 *
 * Uneven blocks: what tops and takers must know, they hear first (gci_ask, wide.c). A member tells, about each other cluster,
 *
 *     the top            sum of what it has for that in a bundle, and a hash of these sizes; if there are     8 bytes each
 *                        rows, the same of its row
 *     the taker          the size of the block from each rank there, 0 if that comes straight                 1, 2 or 4 bytes each
 *
 * and behind all these sizes the top gets, about each other cluster, what is for its bundle, if there is room for that: at most as
 * much as can be in a bundle, and gci_wide_ride_bytes, always sent.
 */
#include "gridcomm_int.h"

enum { WHOLE_ALL = 4 << 10,             /* bytes of all blocks of a cluster, at most, that meet at its coordinator: as much as
                                           a NIC takes within a local latency; */
       BUNDLE_BLOCK = 2048,             /* of a block in a bundle; */
       BUNDLE_ALL = 4 << 20,            /* of all blocks between two clusters in one */
       ROW_BLOCK = 64 << 10,            /* of a block in a row; */
       ROW_ALL = 16 << 20,              /* of all blocks between two clusters in rows: more would keep one NIC busy for long */
       ROWS_AHEAD = 512 << 10,          /* of rows that a taker holds, beside one or two more */
       SUM_BYTES = 8 };
enum { ROW_RANKS = 64 };                /* ranks of a cluster, at most: a taker hands out as many messages as that squared */

enum { IN_BUNDLE, IN_ROW, KINDS };

/* Rows that come from a cluster to this rank, its taker, who has room for a few. */
typedef struct alltoall_rows {
    gci_spot room;
    size_t   longest;       /* bytes of one */
    int      turns;         /* rows that have room */
    int32_t *left;          /* [rows] the step after which that of each is free */
} alltoall_rows;

typedef struct alltoall {
    gci_wide       *w;
    size_t          limit[KINDS];           /* bytes of a block up to which it is of a kind, and of none before; 0: none is */
    int             rows;                   /* of the largest cluster; 0: nothing goes in rows */
    gci_blocks      blocks[KINDS][2];       /* this rank's of a kind: that it sends, and receives; others are empty */
    size_t         *lists;                  /* of those blocks, and [ranks] to count with */
    const uint8_t  *heard;                  /* about one cluster: sizes of the first member, */
    size_t          heard_each, size_bytes; /* and how far from one's to the next one's; what a size takes in them */
    size_t          ride;                   /* bytes of a member's blocks for a cluster up to which they have ridden with that */
    alltoall_rows  *take;                   /* [clusters] */
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

static size_t alltoall_of_kind(const size_t limit[KINDS], int kind, size_t block)
{
    return block <= limit[kind] && (kind == IN_BUNDLE || block > limit[IN_BUNDLE]) ? block : 0;
}

static void alltoall_limits(const gci_wide *w, size_t limit[KINDS])
{
    limit[IN_BUNDLE] = alltoall_bundle_limit(w);
    limit[IN_ROW] = alltoall_row_limit(w);
}

GCI bool gci_alltoall_asks(const gci_wide *w)
{
    return alltoall_bundle_limit(w) > 0 || alltoall_row_limit(w) > 0;
}

/* ---- uneven blocks: what is told ------------------------------------------------------------------------------------ */

/* Who in `cluster` hands out what comes from cluster `with`. Of uneven blocks that is another one than the top, which so need not
 * wait until the sizes of all that will come have passed its NIC. */
static int alltoall_taker(const gci_wide *w, int cluster, int with)
{
    int first = w->s->first[cluster], size = gci_wide_size(w, cluster), top = gci_wide_top(w, cluster, with);
    return w->call->even ? top : first + (top - first + size / 2) % size;
}

static size_t alltoall_size_bytes(const gci_wide *w)
{
    return alltoall_row_limit(w) > 0 ? 4 : alltoall_bundle_limit(w) > UINT8_MAX ? 2 : 1;
}

/* What a member tells another one, or itself, about cluster k. */
static size_t alltoall_told_about(const gci_wide *w, int to, int k)
{
    if (k == w->mine || gci_wide_size(w, w->mine) == 1)
        return 0;
    if (gci_wide_top(w, w->mine, k) == to)
        return alltoall_row_limit(w) > 0 ? KINDS * SUM_BYTES : SUM_BYTES;
    return alltoall_taker(w, w->mine, k) == to ? alltoall_size_bytes(w) * (size_t)gci_wide_size(w, k) : 0;
}

GCI size_t gci_alltoall_told(const gci_wide *w, int to, int end)
{
    size_t bytes = 0;
    for (int k = 0; k < end; k++)
        bytes += alltoall_told_about(w, to, k);
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

/* Room for blocks to cluster k, in what a member tells another one, or itself. */
static size_t alltoall_rides_for(const gci_wide *w, int to, int k)
{
    if (k == w->mine || gci_wide_size(w, w->mine) == 1 || gci_wide_top(w, w->mine, k) != to)
        return 0;
    return gci_min(gci_wide_ride_bytes(w), alltoall_bundle_limit(w) * (size_t)gci_wide_size(w, k));
}

GCI size_t gci_alltoall_rides(const gci_wide *w, int to, int end)
{
    size_t bytes = 0;
    for (int k = 0; k < end; k++)
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
    size_t limit[KINDS], bytes;
    alltoall_limits(w, limit);
    for (int k = 0; k < w->s->clusters; k++, at += bytes) {
        bytes = alltoall_told_about(w, to, k);
        bool top = gci_wide_top(w, w->mine, k) == to;
        if (bytes > 0 && !top)
            alltoall_tell_sizes(w, limit, k, ask->told + at);
        for (size_t sum_at = 0; sum_at < bytes && top; sum_at += SUM_BYTES)
            alltoall_tell_sum(w, limit, (int)(sum_at / SUM_BYTES), k, ask->told + at + sum_at);
    }
    for (int k = 0; k < w->s->clusters && to != w->place; k++, at += bytes) {
        bytes = alltoall_rides_for(w, to, k);
        if (bytes > 0)
            alltoall_board(w, limit, k, ask, at, bytes);
    }
}

/* ---- and heard ------------------------------------------------------------------------------------------------------ */

/* From now on it is about cluster k. */
static void alltoall_listen(alltoall *t, int k)
{
    const gci_wide *w = t->w;
    if (!w->call->heard)
        return;
    t->heard = w->call->heard + gci_alltoall_told(w, w->place, k);
    t->heard_each = gci_alltoall_told(w, w->place, w->s->clusters);
    t->size_bytes = alltoall_size_bytes(w);
}

static const uint8_t *alltoall_heard(const alltoall *t, int place)
{
    return t->heard + (size_t)(place - t->w->s->first[t->w->mine]) * t->heard_each;
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
    const uint8_t *told = alltoall_heard(t, place) + kind * SUM_BYTES;
    *sizes = gci_get32(told + 4);
    return gci_min(gci_get32(told), t->limit[kind] * (size_t)(end - first));
}

/* What the row-th rank of cluster i has of a kind for a member. */
static size_t alltoall_size(const alltoall *t, int kind, int place, int i, int row)
{
    const gci_wide *w = t->w;
    size_t bytes = 0;
    if (place == w->place || !w->call->heard)
        return gci_block_bytes(&t->blocks[kind][1], gci_wide_rank(w, w->s->first[i] + row));
    const uint8_t *told = alltoall_heard(t, place) + t->size_bytes * (size_t)row;
    for (size_t k = 0; k < t->size_bytes; k++)
        bytes |= (size_t)told[k] << 8 * k;
    return alltoall_of_kind(t->limit, kind, bytes);
}

/* What it has for all members. */
static size_t alltoall_row(const alltoall *t, int kind, int i, int row, uint32_t *sizes)
{
    const gci_wide *w = t->w;
    size_t total = 0;
    *sizes = 1;
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++) {
        size_t bytes = alltoall_size(t, kind, place, i, row);
        *sizes = gci_wide_hash(*sizes, bytes);
        total += bytes;
    }
    return total;
}

/* ---- bundles -------------------------------------------------------------------------------------------------------- */

/* What another member has for a bundle comes to its place there, or has ridden with its sizes. */
static int32_t alltoall_take_in(alltoall *t, int place, gci_spot to, size_t bytes, uint32_t sizes, gci_spot rode)
{
    gci_wide *w = t->w;
    if (bytes <= t->ride)
        return gci_emit_copy(w->b, to, rode, bytes, GCI_NO_STEP);
    return gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, place), to, bytes, GCI_NO_STEP), sizes);
}

/* What goes to cluster j: each member's blocks for it, one member after another. */
static void alltoall_give_bundle(alltoall *t, int j)
{
    gci_wide *w = t->w;
    const gci_clusters *s = w->s;
    const gci_blocks *blocks = &t->blocks[IN_BUNDLE][0];
    int top = gci_wide_top(w, w->mine, j), first = s->first[w->mine], end = s->first[w->mine + 1];
    gci_wide_piece own = gci_wide_whole(w, blocks, s->first[j], s->first[j + 1]);
    size_t total = 0, at = 0, bytes;
    uint32_t sizes = 1, sizes_of;
    if (w->place != top) {
        if (own.bytes > t->ride)
            gci_wide_send_blocks(w, top, w->b->input, blocks, own, w->b->ready);
        return;
    }
    alltoall_listen(t, j);
    for (int place = first; place < end; place++)
        total += alltoall_sum(t, IN_BUNDLE, j, place, &sizes_of);
    if (total == 0)
        return;
    gci_spot all = gci_emit_slot(w->b, total), rode = { GCI_BUF_HEARD, t->heard_each + gci_alltoall_rides(w, w->place, j) };
    size_t word = t->heard_each + gci_alltoall_rides(w, w->place, s->clusters);
    for (int place = first; place < end; place++, at += bytes, rode.at += word) {
        gci_spot to = gci_spot_at(all, at);
        bytes = alltoall_sum(t, IN_BUNDLE, j, place, &sizes_of);
        sizes = gci_wide_hash(sizes, sizes_of);
        if (bytes > 0)
            gci_emit_pend(w->b, place == top ? gci_wide_move(w, w->b->input, blocks, &own, to, false, w->b->ready)
                                             : alltoall_take_in(t, place, to, bytes, sizes_of, rode));
    }
    int taker = gci_wide_rank(w, alltoall_taker(w, j, w->mine));
    gci_wide_sign(w, gci_wide_send(w, taker, all, total, gci_emit_join(w->b)), sizes);
}

/* What comes from cluster i: a row per sender; each member gets a column. at: [rows] where what is next in each row begins. */
static void alltoall_deal_out(alltoall *t, int i, size_t *at, gci_spot all, int32_t came)
{
    gci_wide *w = t->w;
    const gci_blocks *blocks = &t->blocks[IN_BUNDLE][1];
    int first = w->s->first[w->mine], rows = gci_wide_size(w, i);
    for (int place = first; place < first + gci_wide_size(w, w->mine); place++) {
        bool own = place == w->place;
        size_t column = 0, bytes, packed = 0;
        uint32_t sizes = 1;
        for (int row = 0; row < rows; row++) {
            bytes = alltoall_size(t, IN_BUNDLE, place, i, row);
            sizes = gci_wide_hash(sizes, bytes);
            column += bytes;
        }
        gci_spot to = own ? alltoall_result : gci_emit_slot(w->b, column);
        int32_t ready = gci_emit_both(w->b, came, own ? w->may_write : GCI_NO_STEP);
        for (int row = 0; row < rows; row++, packed += bytes) {
            bytes = alltoall_size(t, IN_BUNDLE, place, i, row);
            size_t to_at = own ? gci_block_at(blocks, gci_wide_rank(w, w->s->first[i] + row)) : packed;
            if (bytes > 0)
                ready = gci_emit_copy(w->b, gci_spot_at(to, to_at), gci_spot_at(all, at[row]), bytes, ready);
            at[row] += bytes;
        }
        if (!own && column > 0)
            gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), to, column, ready), sizes);
    }
}

static void alltoall_take_bundle(alltoall *t, int i)
{
    gci_wide *w = t->w;
    int taker = alltoall_taker(w, w->mine, i);
    size_t *at = t->lists, total = 0;
    uint32_t sizes = 1, sizes_of;
    if (w->place != taker) {
        gci_wide_piece column = gci_wide_whole(w, &t->blocks[IN_BUNDLE][1], w->s->first[i], w->s->first[i + 1]);
        gci_wide_recv_blocks(w, taker, alltoall_result, &t->blocks[IN_BUNDLE][1], column, w->may_write);
        return;
    }
    alltoall_listen(t, i);
    for (int row = 0; row < gci_wide_size(w, i); row++) {
        at[row] = total;
        total += alltoall_row(t, IN_BUNDLE, i, row, &sizes_of);
        sizes = gci_wide_hash(sizes, sizes_of);
    }
    if (total == 0)
        return;
    gci_spot all = gci_emit_slot(w->b, total);
    int32_t came = gci_wide_recv(w, gci_wide_rank(w, gci_wide_top(w, i, w->mine)), all, total, GCI_NO_STEP);
    gci_wide_sign(w, came, sizes);
    alltoall_deal_out(t, i, at, all, came);
}

/* ---- rows ----------------------------------------------------------------------------------------------------------- */

/* For those of cluster i. */
static void alltoall_make_room(alltoall *t, int i)
{
    alltoall_rows *r = &t->take[i];
    int rows = gci_wide_size(t->w, i);
    uint32_t sizes;
    alltoall_listen(t, i);
    for (int row = 0; row < rows; row++)
        r->longest = gci_max(r->longest, alltoall_row(t, IN_ROW, i, row, &sizes));
    size_t turns = ROWS_AHEAD / gci_max(r->longest, 1) + 2;
    r->turns = turns < (size_t)rows ? (int)turns : rows;
    r->room = gci_emit_slot(t->w->b, r->longest * (size_t)r->turns);
}

static gci_spot alltoall_room(const alltoall_rows *r, int row)
{
    return gci_spot_at(r->room, r->longest * (size_t)(row % r->turns));
}

/* When that room is free. */
static int32_t alltoall_free(const alltoall_rows *r, int row)
{
    return row < r->turns ? GCI_NO_STEP : r->left[row - r->turns];
}

/* A row goes from a member to cluster j. Between clusters its hash is of its number, too: empty rows are no messages. */
static void alltoall_give_row(alltoall *t, int j, int row)
{
    gci_wide *w = t->w;
    const gci_blocks *blocks = &t->blocks[IN_ROW][0];
    int place = w->s->first[w->mine] + row, top = gci_wide_top(w, w->mine, j), taker = alltoall_taker(w, j, w->mine);
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
    alltoall_listen(t, j);
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
    alltoall_rows *r = &t->take[i];
    const gci_blocks *blocks = &t->blocks[IN_ROW][1];
    int from = gci_wide_rank(w, w->s->first[i] + row), taker = alltoall_taker(w, w->mine, i);
    size_t own = gci_block_bytes(blocks, from), at = 0, bytes;
    gci_spot to = gci_spot_at(alltoall_result, own > 0 ? gci_block_at(blocks, from) : 0);
    uint32_t whose = gci_wide_hash(1, (size_t)from), sizes;
    if (w->place != taker) {
        if (own > 0)
            gci_wide_sign(w, gci_wide_recv(w, gci_wide_rank(w, taker), to, own, w->may_write), whose);
        return;
    }
    r->left[row] = alltoall_free(r, row);
    alltoall_listen(t, i);
    size_t total = alltoall_row(t, IN_ROW, i, row, &sizes);
    if (total == 0)
        return;
    gci_spot all = alltoall_room(r, row);
    int32_t came = gci_wide_recv(w, gci_wide_rank(w, gci_wide_top(w, i, w->mine)), all, total, r->left[row]);
    gci_wide_sign(w, came, gci_wide_hash(sizes, (size_t)row));
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++, at += bytes) {
        gci_spot part = gci_spot_at(all, at);
        bytes = alltoall_size(t, IN_ROW, place, i, row);
        if (bytes > 0 && place == w->place)
            gci_emit_pend(w->b, gci_emit_copy(w->b, to, part, bytes, gci_emit_both(w->b, came, w->may_write)));
        else if (bytes > 0)
            gci_emit_pend(w->b, gci_wide_sign(w, gci_wide_send(w, gci_wide_rank(w, place), part, bytes, came), whose));
    }
    r->left[row] = gci_emit_join(w->b);
}

/* ---- whole ---------------------------------------------------------------------------------------------------------- */

/* All of a cluster for the own one: row after row, one for each sender. */
typedef struct alltoall_part { gci_spot at; size_t row; int32_t came; } alltoall_part;

static bool alltoall_is_whole(const gci_wide *w)
{
    size_t own = w->call->own;
    return gci_alltoall_bundles(w) && own > 0 && own <= WHOLE_ALL / (size_t)w->s->longest / (size_t)w->call->ranks;
}

/* Rows of all that the members have, by places. Returns when they are there. */
static int32_t alltoall_meet(gci_wide *w, gci_spot rows, const gci_wide_piece *vector)
{
    for (int place = w->s->first[w->mine]; place < w->s->first[w->mine + 1]; place++) {
        gci_emit_pend(w->b, place == w->place
                          ? gci_wide_move(w, w->b->input, &w->call->send, vector, rows, false, w->b->ready)
                          : gci_wide_recv(w, gci_wide_rank(w, place), rows, vector->bytes, GCI_NO_STEP));
        rows = gci_spot_at(rows, vector->bytes);
    }
    return gci_emit_join(w->b);
}

/* Of these rows what is for cluster j goes there. */
static void alltoall_part_with(gci_wide *w, const alltoall_part *rows, int j)
{
    size_t own = w->call->own, row = own * (size_t)gci_wide_size(w, j), size = (size_t)gci_wide_size(w, w->mine);
    gci_spot bundle = gci_emit_slot(w->b, row * size), from = gci_spot_at(rows->at, own * (size_t)w->s->first[j]);
    for (size_t i = 0; i < size; i++)
        gci_emit_pend(w->b, gci_emit_copy(w->b, gci_spot_at(bundle, i * row), gci_spot_at(from, i * rows->row), row, rows->came));
    gci_wide_send(w, gci_wide_rank(w, gci_wide_coordinator(w, j)), bundle, row * size, gci_emit_join(w->b));
}

/* All that is for the n-th member, by places. Returns when it is there. */
static int32_t alltoall_put_together(gci_wide *w, const alltoall_part *part, size_t n, gci_spot to)
{
    size_t own = w->call->own;
    for (int i = 0; i < w->s->clusters; i++) {
        int32_t ready = part[i].came;
        for (size_t row = 0; row < (size_t)gci_wide_size(w, i); row++, to = gci_spot_at(to, own))
            ready = gci_emit_copy(w->b, to, gci_spot_at(part[i].at, row * part[i].row + n * own), own, ready);
        gci_emit_pend(w->b, ready);
    }
    return gci_emit_join(w->b);
}

static void alltoall_coordinate(gci_wide *w, const gci_wide_piece *vector, alltoall_part *part)
{
    const gci_clusters *s = w->s;
    int first = s->first[w->mine], size = gci_wide_size(w, w->mine);
    size_t own = w->call->own;
    alltoall_part rows = { gci_emit_slot(w->b, vector->bytes * (size_t)size), vector->bytes, GCI_NO_STEP };
    rows.came = alltoall_meet(w, rows.at, vector);
    for (int d = 1; d < s->clusters; d++)
        alltoall_part_with(w, &rows, (w->mine + d) % s->clusters);
    for (int i = 0; i < s->clusters; i++) {
        size_t row = own * (size_t)size, bytes = row * (size_t)gci_wide_size(w, i);
        part[i] = (alltoall_part){ gci_spot_at(rows.at, own * (size_t)first), rows.row, rows.came };
        if (i != w->mine) {
            part[i] = (alltoall_part){ gci_emit_slot(w->b, bytes), row, GCI_NO_STEP };
            part[i].came = gci_wide_recv(w, gci_wide_rank(w, gci_wide_coordinator(w, i)), part[i].at, bytes, GCI_NO_STEP);
        }
    }
    for (int place = first; place < first + size; place++) {
        gci_spot all = gci_emit_slot(w->b, vector->bytes);
        int32_t ready = alltoall_put_together(w, part, (size_t)(place - first), all);
        if (place == w->place)
            gci_wide_move(w, alltoall_result, &w->call->recv, vector, all, true, gci_emit_both(w->b, ready, w->may_write));
        else
            gci_wide_send(w, gci_wide_rank(w, place), all, vector->bytes, ready);
    }
}

static void alltoall_whole(gci_wide *w)
{
    int coordinator = gci_wide_coordinator(w, w->mine);
    gci_wide_piece vector = gci_wide_whole(w, &w->call->send, 0, w->call->ranks);
    if (w->place != coordinator) {
        gci_wide_send_blocks(w, coordinator, w->b->input, &w->call->send, vector, w->b->ready);
        gci_wide_recv_blocks(w, coordinator, alltoall_result, &w->call->recv, vector, w->may_write);
        return;
    }
    alltoall_part *part = gci_alloc(w->env, (size_t)w->s->clusters * sizeof *part);
    if (part)
        alltoall_coordinate(w, &vector, part);
    else
        w->b->error = GC_ERR_NOMEM;
    gci_free(w->env, part);
}

/* ---- all of it ------------------------------------------------------------------------------------------------------ */

/* This rank's blocks of a kind, of all that it sends or receives. */
static void alltoall_pick(alltoall *t, int kind, bool recv, size_t *bytes, size_t *at)
{
    const gci_call *call = t->w->call;
    const gci_blocks *blocks = recv ? &call->recv : &call->send;
    size_t packed = 0;
    t->blocks[kind][recv] = (gci_blocks){ .each = alltoall_of_kind(t->limit, kind, call->own) };
    for (int rank = 0; rank < call->ranks && !call->even; rank++) {
        size_t block = gci_block_bytes(blocks, rank);
        at[rank] = blocks->at ? blocks->at[rank] : packed;
        bytes[rank] = alltoall_of_kind(t->limit, kind, block);
        packed += block;
    }
    if (!call->even)
        t->blocks[kind][recv] = (gci_blocks){ .bytes = bytes, .at = at };
}

static void alltoall_emit(alltoall *t)
{
    gci_wide *w = t->w;
    int clusters = w->s->clusters;
    gci_wide_direct(w, gci_max(t->limit[IN_BUNDLE], t->limit[IN_ROW]), false);
    for (int d = 1; d < clusters; d++)
        alltoall_give_bundle(t, (w->mine + d) % clusters);
    for (int row = 0; row < t->rows; row++)
        for (int d = 1; d < clusters && row < gci_wide_size(w, w->mine); d++)
            alltoall_give_row(t, (w->mine + d) % clusters, row);
    gci_wide_direct(w, 0, true);
    for (int d = 1; d < clusters; d++) {
        int i = (w->mine + clusters - d) % clusters;
        alltoall_take_bundle(t, i);
        if (t->rows > 0 && alltoall_taker(w, w->mine, i) == w->place)
            alltoall_make_room(t, i);
    }
    for (int row = 0; row < t->rows; row++)
        for (int d = 1; d < clusters; d++) {
            int i = (w->mine + clusters - d) % clusters;
            if (row < gci_wide_size(w, i))
                alltoall_take_row(t, i, row);
        }
}

GCI void gci_wide_alltoall(gci_wide *w)
{
    const gci_call *call = w->call;
    alltoall t = { .w = w };
    size_t ranks = (size_t)call->ranks, clusters = (size_t)w->s->clusters;
    if (alltoall_is_whole(w)) {
        alltoall_whole(w);
        return;
    }
    if (call->even || call->heard)
        alltoall_limits(w, t.limit);
    t.rows = t.limit[IN_ROW] > 0 ? w->s->longest : 0;
    t.ride = call->heard ? gci_wide_ride_bytes(w) : 0;
    size_t lists = (1 + 2 * 2 * KINDS) * ranks * sizeof *t.lists, left = (size_t)t.rows * sizeof *t.take->left;
    t.lists = gci_alloc(w->env, lists + clusters * (sizeof *t.take + left));
    if (!t.lists) {
        w->b->error = GC_ERR_NOMEM;
        return;
    }
    t.take = (alltoall_rows *)(void *)((char *)t.lists + lists);
    for (size_t i = 0; i < clusters; i++)
        t.take[i].left = (int32_t *)(void *)((char *)(t.take + clusters) + i * left);
    for (size_t i = 0; i < 2 * KINDS; i++)
        alltoall_pick(&t, (int)i / 2, i % 2, t.lists + (1 + 2 * i) * ranks, t.lists + (2 + 2 * i) * ranks);
    alltoall_emit(&t);
    gci_free(w->env, t.lists);
}
