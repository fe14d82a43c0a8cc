/* wide_reduce.c: reductions between clusters, and the barrier, which is one of nothing (pure).
 * SPDX-License-Identifier: MIT
 *
 * Up the tree of each cluster, from the top of each to those of the clusters that want the result, and down their trees. What a
 * cluster has to say is a list of *parts*, sets of its ranks, each one vector:
 *
 *     commutative                         all of its ranks                            1 part
 *     in rank order                       runs of consecutive ranks in it             1 part, if clusters are runs
 *     canonical                           canonical subexpressions that lie in it     about 2 log2(n), if clusters are runs
 *     not associative; scans on clusters  each rank                                   n parts
 *     that are no runs
 *
 * All parts of a cluster go in one message, and who wants the result evaluates the expression over all parts. More than one
 * part breaks the paper's second condition: the exceptions that it names itself. What is not associative and long is not for us:
 * a chain sends less.
 *
 * Long vectors are cut into segments and streamed: what is on its way between clusters hides what goes on inside them. A
 * schedule goes through all of it in rounds, one segment each; scratch is a ring of a few rounds (reduce_stream).
 *
 *                       wide-area messages                  latency             bytes over a link, at most
 *     barrier           clusters * (clusters - 1)           l + L + l           0
 *     reduce            (clusters - 1) * segments           l + L + l           m * parts
 *     allreduce, scan   clusters^2 * segments, half of it   l + L + l           m * parts
 *       divided         2 clusters * segments               l + 2 L + l         2 m / clusters * parts
 *     reduce_scatter    as allreduce                        l + L + l           n m * parts
 */
#include "gridcomm_int.h"

enum { REDUCE_SHORT = 512,          /* bytes: the paper's limit */
       REDUCE_HOP = 10 * 1024,      /* bytes that take as long as a chain's next hop, 10 ms, at 1 MByte/s */
       REDUCE_CUTS = 64,            /* segments of a vector for the sake of its many parts, at most */
       REDUCE_ROUNDS = 32,          /* of scratch: 256 KiB of segments of 8 KiB are on their way at once, */
       REDUCE_START = 8,            /* rounds of parts before the first sum; */
       REDUCE_LEAD = 64,            /* where that waits for a second latency, so many segments at least: 8 MiB of 128 KiB */
       REDUCE_SCRATCH = 16 << 20 }; /* unless that is more than so many bytes of a stream; but two */

typedef struct reduce_value {
    gci_spot at;
    int32_t  step;              /* after which it is there */
    int      ranks;             /* whose operands it holds */
    bool     writable;
} reduce_value;

typedef struct reduce_part { int cluster, first, end; } reduce_part;        /* places [first, end) */

typedef struct reduce {
    gci_wide           *w;
    gci_builder        *b;                  /* as there, at hand */
    const gci_call     *call;
    const gci_clusters *s;
    int                 mine, place;
    gci_call            own;                /* see reduce_cut */
    bool                canonical;
    int                 parts;
    reduce_part        *part;               /* in the order of evaluation */
    int                *lane;               /* [clusters + 1] how many parts are in lower clusters */
    reduce_value       *value, *operand;    /* [parts] what they are worth; [ranks] what a fold is about */
} reduce;

static const gci_spot reduce_result = { GCI_BUF_RECV, 0 };

/* ---- expressions ---------------------------------------------------------------------------------------------------- */

/* Where a value begins; for input that is moved; for a sum from above. */
enum reduce_spare { REDUCE_ACC, REDUCE_PACK, REDUCE_BEFORE };

/* A stream of vectors up one local tree, and to the clusters that want them. Scratch of a round: a lane per child, spare ones,
 * at a top a lane per part of the own cluster, and, where they meet, of all. */
typedef struct reduce_stream {
    gci_local_node node;
    int       wanted_by;        /* a cluster; -1: all */
    bool      spread;           /* its top is the member that deals with that cluster, not the coordinator */
    int       turn;             /* of the tops that share a vector; which share of the cluster's blocks */
    bool      takes;            /* here all parts meet; if that is not the top, what they come to goes on up */
    bool      keep;             /* what comes from children is needed later */
    bool      scan;             /* parts go to higher clusters only */
    int       spare;            /* lanes */
    size_t    lane_bytes;
    int       lanes, out, in;   /* where the own parts begin, and where all do */
    int32_t   rounds, window;
    gci_spot  ring;
    int32_t   free[REDUCE_ROUNDS];      /* when the round that has this place of the ring is over */
} reduce_stream;

static gci_spot reduce_lane(const reduce_stream *st, int32_t round, int lane)
{
    return gci_spot_at(st->ring, ((size_t)(round % st->window) * (size_t)st->lanes + (size_t)lane) * st->lane_bytes);
}

static gci_spot reduce_spare_lane(const reduce_stream *st, int32_t round, enum reduce_spare lane)
{
    return reduce_lane(st, round, st->node.children + (int)lane);
}

static int32_t reduce_free(const reduce_stream *st, int32_t round)
{
    return round < st->window ? GCI_NO_STEP : st->free[round % st->window];
}

/* Of any rank: all have the same window. */
static size_t reduce_most_lanes(const reduce *r)
{
    return (size_t)r->w->s->longest + REDUCE_BEFORE + (size_t)r->parts;
}

/* What stands before lane_bytes is set. most: bytes of a round. */
static void reduce_open(reduce *r, reduce_stream *st, int32_t rounds, size_t most)
{
    int own = r->lane[r->mine + 1] - r->lane[r->mine];
    if (st->spare == REDUCE_ACC + 1 && st->node.children == 0 && !st->takes && !st->scan)
        st->spare = 0;          /* nothing to add up here */
    st->out = st->node.children + st->spare;
    st->in = st->out + (st->node.parent < 0 ? own : 0);
    st->lanes = st->in + (st->takes ? r->parts : 0);
    st->lane_bytes = (most + 63) / 64 * 64;
    st->rounds = rounds;
    if (most > SIZE_MAX / 4 || (st->lane_bytes > 0 && reduce_most_lanes(r) > SIZE_MAX / 4 / st->lane_bytes / REDUCE_ROUNDS)) {
        r->b->error = GC_ERR_NOMEM;
        most = st->lane_bytes = 0;
    }
    size_t fit = REDUCE_SCRATCH / (size_t)r->w->shares / (reduce_most_lanes(r) * st->lane_bytes + 1);
    st->window = fit < 2 ? 2 : fit < REDUCE_ROUNDS ? (int32_t)fit : REDUCE_ROUNDS;
    st->window = rounds < st->window ? rounds : st->window;
    st->ring = gci_emit_slot(r->b, (size_t)st->lanes * st->lane_bytes * (size_t)st->window);
}

/* All that was pended in this round is its end; and its place was free before, though it may not have asked. */
static void reduce_close_round(reduce *r, reduce_stream *st, int32_t round)
{
    gci_emit_pend(r->b, reduce_free(st, round));
    if (round + st->window < st->rounds)
        st->free[round % st->window] = gci_emit_join(r->b);
    else
        r->b->pendings = 0;
}

/* A value of nothing yet, in a spare lane. */
static reduce_value reduce_spare_value(const reduce_stream *st, int32_t round, enum reduce_spare lane)
{
    return (reduce_value){ reduce_spare_lane(st, round, lane), reduce_free(st, round), 0, true };
}

/* left (op) right, in a place of one of them that may be written, or else in `acc`. */
static reduce_value reduce_meet(reduce *r, reduce_value left, reduce_value right, reduce_value acc, size_t bytes)
{
    int ranks = left.ranks + right.ranks;
    if (!right.writable && !left.writable && bytes > 0) {
        acc.step = gci_emit_copy(r->b, acc.at, left.at, bytes, gci_emit_both(r->b, left.step, acc.step));
        left = acc;
    }
    reduce_value to = right.writable ? right : left, from = right.writable ? left : right;
    to.ranks = ranks;
    if (bytes == 0) {
        to.step = gci_emit_both(r->b, left.step, right.step);
        return to;
    }
    to.step = gci_emit_reduce(r->b, to.at, from.at, bytes, !right.writable, left.step);
    if (right.step != left.step)
        gci_emit_also(r->b, to.step, right.step);
    return to;
}

/* From the left, or the canonical expression: values that it does not divide come as one. */
static reduce_value reduce_eval(reduce *r, const reduce_value *v, int n, reduce_value acc, size_t bytes)
{
    reduce_value all = v[0];
    if (!r->canonical) {
        for (int i = 1; i < n; i++)
            all = reduce_meet(r, all, v[i], acc, bytes);
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
    return reduce_meet(r, reduce_eval(r, v, left, acc, bytes), reduce_eval(r, v + left, n - left, acc, bytes), acc, bytes);
}

/* The end of the part that begins with rank `at` in [first, end), a canonical expression. */
static int reduce_canonical_end(const reduce *r, int at, int first, int end)
{
    for (;;) {
        int half = 1, same = at;
        while (same < end && r->s->of[same] == r->s->of[at])
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
static int reduce_divide(reduce *r, bool each)
{
    const gci_call *call = r->call;
    const gci_clusters *s = r->s;
    size_t n = (size_t)call->ranks, clusters = (size_t)s->clusters;
    bool whole = !each && !r->canonical && (call->commutative || s->runs);
    r->part = gci_alloc(r->b->env, n * sizeof *r->part);
    r->value = gci_alloc(r->b->env, n * sizeof *r->value);
    r->operand = gci_alloc(r->b->env, n * sizeof *r->operand);
    r->lane = gci_alloc(r->b->env, (clusters + 1) * sizeof *r->lane);
    if (!r->part || !r->value || !r->operand || !r->lane)
        return GC_ERR_NOMEM;
    for (int k = 0; k <= s->clusters; k++)
        r->lane[k] = whole ? k : 0;
    for (int k = 0; k < s->clusters && whole; k++)
        r->part[r->parts++] = (reduce_part){ k, s->first[k], s->first[k + 1] };
    for (int at = 0, end; at < call->ranks && !whole; at = end) {       /* lane[]: how many of this cluster's ranks so far */
        int k = s->of[at], first = s->first[k] + r->lane[k];
        for (end = at + 1; !each && end < call->ranks && s->of[end] == k; )
            end++;
        if (r->canonical && !each)
            end = reduce_canonical_end(r, at, 0, call->ranks);
        r->part[r->parts++] = (reduce_part){ k, first, first + end - at };
        r->lane[k] += end - at;
    }
    if (!whole) {
        memset(r->lane, 0, (clusters + 1) * sizeof *r->lane);
        for (int i = 0; i < r->parts; i++)
            r->lane[r->part[i].cluster + 1]++;
        for (int k = 0; k < s->clusters; k++)
            r->lane[k + 1] += r->lane[k];
    }
    return GC_OK;
}

/* All parts of a cluster in a message together are to have the length of a segment: what is longer than an envelope comes to its
 * end behind the envelopes of all that follow. */
static void reduce_cut(reduce *r)
{
    size_t segment = r->call->segment, parts = 1;
    for (int k = 0; k < r->s->clusters; k++)
        parts = gci_max(parts, (size_t)(r->lane[k + 1] - r->lane[k]));
    r->own = *r->call;
    r->own.segment = gci_min(segment, gci_max(segment / parts, gci_max(r->call->bytes / REDUCE_CUTS, REDUCE_SHORT)));
    r->call = r->w->call = &r->own;
}

/* ---- reductions ------------------------------------------------------------------------------------------------------ */

/* A subtree can add up what it has only if that is of one part, and in any grouping. */
static bool reduce_adds_up(const reduce *r)
{
    return r->parts <= r->s->clusters && !r->canonical;
}

/* Is there a message of parts from cluster k to cluster j? */
static bool reduce_goes(const reduce_stream *st, int k, int j)
{
    return k != j && (st->wanted_by < 0 || st->wanted_by == j) && (!st->scan || k < j);
}

/* The rank that tells, and hears. */
static int reduce_speaker(const reduce *r, const reduce_stream *st, int cluster)
{
    return gci_wide_rank(r->w, st->spread ? gci_wide_share_top(r->w, cluster, st->wanted_by, st->turn)
                                          : gci_wide_turn_top(r->w, cluster, st->turn));
}

/* A top sends its parts to the clusters that want them; from then on they are not to be written. Returns when they no longer
 * need what they came from. */
static int32_t reduce_tell(reduce *r, reduce_stream *st, int32_t round, size_t bytes)
{
    int own = r->lane[r->mine + 1] - r->lane[r->mine], receivers = 0;
    for (int j = 0; j < r->s->clusters; j++)
        receivers += reduce_goes(st, r->mine, j);
    if (receivers == 0)
        return GCI_NO_STEP;
    gci_spot from = reduce_lane(st, round, st->out);
    int32_t ready = GCI_NO_STEP;
    for (int i = 0, lane = 0; i < r->parts; i++) {
        reduce_value *v = &r->value[i];
        if (r->part[i].cluster != r->mine)
            continue;
        if (own > 1 || v->at.buf == GCI_BUF_RECV) {
            gci_spot to = gci_spot_at(from, (size_t)lane++ * bytes);
            v->step = gci_emit_copy(r->b, to, v->at, bytes, gci_emit_both(r->b, v->step, reduce_free(st, round)));
            v->at = to;
        } else {
            from = v->at;
        }
        v->writable = false;
        ready = gci_emit_both(r->b, ready, v->step);
    }
    for (int d = 1; d < r->s->clusters; d++) {
        int j = (r->mine + d) % r->s->clusters;
        if (reduce_goes(st, r->mine, j))
            gci_emit_pend(r->b, gci_wide_send(r->w, reduce_speaker(r, st, j), from, (size_t)own * bytes, ready));
    }
    return ready;
}

/* The other clusters' parts come into value[]. */
static void reduce_hear(reduce *r, reduce_stream *st, int32_t round, size_t bytes)
{
    for (int d = 1; d < r->s->clusters; d++) {
        int k = (r->mine + d) % r->s->clusters, first = r->lane[k], n = r->lane[k + 1] - first;
        if (!reduce_goes(st, k, r->mine))
            continue;
        gci_spot at = reduce_lane(st, round, st->in + first);
        int32_t came = gci_wide_recv(r->w, reduce_speaker(r, st, k), at, (size_t)n * bytes, reduce_free(st, round));
        gci_emit_pend(r->b, came);
        for (int i = 0, lane = 0; lane < n; i++)
            if (r->part[i].cluster == k)
                r->value[i] = (reduce_value){ gci_spot_at(at, (size_t)lane++ * bytes), came,
                                              r->part[i].end - r->part[i].first, true };
    }
}

/* What a rank comes to, with the parts of other clusters if they meet here. */
static reduce_value reduce_all(reduce *r, reduce_stream *st, int32_t round, size_t bytes)
{
    if (!st->takes)
        return r->value[r->mine];
    reduce_hear(r, st, round, bytes);
    return reduce_eval(r, r->value, r->parts, reduce_spare_value(st, round, REDUCE_ACC), bytes);
}

/* Up the local tree. Returns when `input` has been read (at the top: by what is in value[] now, this cluster's parts). */
static int32_t reduce_up(reduce *r, reduce_stream *st, int32_t round, reduce_value input, size_t bytes)
{
    const gci_local_node *n = &st->node;
    reduce_value acc = reduce_spare_value(st, round, REDUCE_ACC);
    int operands = 0;
    for (int i = 0; i <= n->children; i++) {
        if (i == n->before)
            r->operand[operands++] = input;
        if (i == n->children)
            break;
        gci_places child = n->child[i];
        gci_spot at = reduce_lane(st, round, i);
        int32_t came = gci_wide_recv(r->w, gci_wide_rank(r->w, child.first), at, bytes, reduce_free(st, round));
        gci_emit_pend(r->b, came);
        r->operand[operands++] = (reduce_value){ at, came, child.end - child.first, !st->keep };
    }
    if (n->parent >= 0) {
        r->value[r->mine] = reduce_eval(r, r->operand, operands, acc, bytes);
        reduce_value all = reduce_all(r, st, round, bytes);
        int32_t sent = gci_wide_send(r->w, gci_wide_rank(r->w, n->parent), all.at, bytes, all.step);
        gci_emit_pend(r->b, sent);
        return sent;
    }
    if (st->scan && r->mine == r->s->clusters - 1)
        return GCI_NO_STEP;
    for (int i = 0, from = 0; i < r->parts; i++) {
        int end = from;
        for (int ranks = 0; r->part[i].cluster == r->mine && ranks < r->part[i].end - r->part[i].first; end++)
            ranks += r->operand[end].ranks;
        if (end > from)
            r->value[i] = reduce_eval(r, r->operand + from, end - from, acc, bytes);
        from = end;
    }
    return GCI_NO_STEP;
}

static reduce_value reduce_input(const reduce *r, size_t at)
{
    return (reduce_value){ gci_spot_at(r->b->input, at), r->b->ready, 1, false };
}

/* Reduce, allreduce and barrier, which is one of nothing: every n-th segment goes through one of n streams. A vector that is divided
 * has one for each cluster, in which that adds up, and tells the others: two latencies instead of one, but out of each cluster go
 * 2 (clusters - 1) / clusters vectors instead of clusters - 1. */
typedef struct reduce_vector {
    reduce_stream     *st;
    int                streams;
    enum gci_wide_shape up, down;
    int32_t           *may_write;       /* [segments] the step after which the result may be written; where it has come to, is there */
} reduce_vector;

static void reduce_open_vector(reduce *r, reduce_vector *v, int which, int32_t segments)
{
    bool all = r->call->coll != GCI_REDUCE, divided = r->w->divided;
    int home = all ? -1 : r->s->of[r->call->root];
    int speaker = divided ? gci_wide_top(r->w, r->mine, which) : gci_wide_turn_top(r->w, r->mine, which);
    int wanted_by = divided ? which : home, top = r->mine == home ? r->w->root_place : speaker;
    reduce_stream *st = &v->st[which];
    *st = (reduce_stream){ .node = gci_wide_local(r->w, top, v->up), .wanted_by = wanted_by, .spread = divided, .turn = which,
                           .spare = REDUCE_ACC + 1, .takes = r->place == speaker && (wanted_by < 0 || wanted_by == r->mine) };
    if (which < segments)
        reduce_open(r, st, (segments - which + v->streams - 1) / v->streams, gci_segment_at(r->call, r->call->bytes, 1));
}

/* A segment goes to who adds it up. */
static void reduce_segment_up(reduce *r, reduce_vector *v, int32_t i)
{
    size_t at = gci_segment_at(r->call, r->call->bytes, i), bytes = gci_segment_at(r->call, r->call->bytes, i + 1) - at;
    reduce_stream *st = &v->st[i % v->streams];
    int32_t round = i / v->streams, read = reduce_up(r, st, round, reduce_input(r, at), bytes);
    bool top = r->place == st->node.top;
    if (top)
        read = reduce_tell(r, st, round, bytes);
    v->may_write[i] = r->b->input_is_recv ? read : GCI_NO_STEP;
    if (top && (st->takes || r->place == r->w->root_place)) {
        reduce_value sum = reduce_all(r, st, round, bytes);
        v->may_write[i] = gci_emit_copy(r->b, gci_spot_at(reduce_result, at), sum.at, bytes, sum.step);
        gci_emit_pend(r->b, v->may_write[i]);
    }
    reduce_close_round(r, st, round);
}

/* Its sum goes to all. */
static void reduce_segment_down(reduce *r, reduce_vector *v, int32_t i)
{
    size_t at = gci_segment_at(r->call, r->call->bytes, i), bytes = gci_segment_at(r->call, r->call->bytes, i + 1) - at;
    reduce_stream *st = &v->st[i % v->streams];
    gci_local_node down = gci_wide_local(r->w, st->node.top, v->down);
    gci_spot to = gci_spot_at(reduce_result, at);
    int32_t here = v->may_write[i];
    int owner = r->w->divided ? st->wanted_by : r->mine;
    for (int k = 1; k < r->s->clusters && st->takes && r->w->divided; k++)
        gci_wide_send(r->w, reduce_speaker(r, st, (owner + k) % r->s->clusters), to, bytes, here);
    if (r->place == st->node.top && owner != r->mine)
        here = gci_wide_recv(r->w, reduce_speaker(r, st, owner), to, bytes, here);
    gci_wide_down(r->w, &down, to, bytes, here);
}

/* A sum waits for messages from far, and what is posted behind it to the same rank waits too; so parts get a head start. */
static void reduce_vectors(reduce *r)
{
    const gci_call *call = r->call;
    enum gci_wide_shape shape = gci_wide_vectors(r->w);
    int streams = r->w->divided ? r->s->clusters : gci_wide_turns(r->w);
    int32_t segments = gci_segments(call, call->bytes), late = streams * REDUCE_START;
    if (r->w->divided)
        late = gci_max32(late, REDUCE_LEAD);
    reduce_vector v = { gci_alloc(r->b->env, (size_t)streams * sizeof *v.st), streams, reduce_adds_up(r) ? shape : GCI_WIDE_STAR,
                        shape, gci_alloc(r->b->env, (size_t)segments * sizeof *v.may_write) };
    if (!v.st || !v.may_write)
        r->b->error = GC_ERR_NOMEM;
    for (int which = 0; which < streams && !r->b->error; which++)
        reduce_open_vector(r, &v, which, segments);
    for (int32_t i = 0; i - late < segments && !r->b->error; i++) {
        if (i >= late && call->coll != GCI_REDUCE)
            reduce_segment_down(r, &v, i - late);
        if (i < segments)
            reduce_segment_up(r, &v, i);
    }
    gci_free(r->b->env, v.st);
    gci_free(r->b->env, v.may_write);
}

/* ---- reduce_scatter --------------------------------------------------------------------------------------------------- */

/* One piece for a cluster: this rank's part of it, from blocks that need not lie in one run. */
static reduce_value reduce_input_piece(reduce *r, reduce_stream *st, int32_t round, const gci_wide_piece *p)
{
    reduce_value v = reduce_input(r, 0);
    if (gci_wide_lies(r->w, r->b->input, &r->w->blocks, p, &v.at))
        return v;
    gci_spot packed = reduce_spare_lane(st, round, REDUCE_PACK);
    v.step = gci_emit_both(r->b, v.step, reduce_free(st, round));
    v.step = gci_wide_move(r->w, r->b->input, &r->w->blocks, p, packed, false, v.step);
    v.at = packed;
    return v;
}

/* What it takes besides streams: sums of the own share's pieces that have not been dealt out. */
typedef struct reduce_dealer {
    reduce_stream *st;
    int            end;                 /* of the share */
    gci_wide_piece piece;               /* the last that was */
    int32_t        dealt;               /* so many */
    int32_t        last[REDUCE_ROUNDS]; /* by round: what else is to end */
    reduce_value   sum[REDUCE_ROUNDS];
} reduce_dealer;

/* The next sum goes to those whose blocks it has. */
static void reduce_deal(reduce *r, reduce_dealer *d)
{
    gci_wide_piece *p = &d->piece;
    int32_t round = d->dealt++, at_ring = round % d->st->window;
    size_t at = 0;
    gci_wide_next(r->w, &r->w->blocks, d->end, p);
    if (d->st->takes)
        gci_emit_pend(r->b, d->last[at_ring]);
    for (int place = p->first; place < p->end; place++) {
        gci_spot to = gci_spot_at(reduce_result, p->at), from = gci_spot_at(d->sum[at_ring].at, at);
        size_t bytes = gci_wide_part_bytes(r->w, &r->w->blocks, p, place);
        int32_t sum = d->sum[at_ring].step;
        at += bytes;
        if (bytes > 0 && d->st->takes && place == r->place)
            gci_emit_pend(r->b, gci_emit_copy(r->b, to, from, bytes, gci_emit_both(r->b, sum, r->w->may_write)));
        else if (bytes > 0 && d->st->takes)
            gci_emit_pend(r->b, gci_wide_send(r->w, gci_wide_rank(r->w, place), from, bytes, sum));
        else if (bytes > 0 && place == r->place)
            gci_wide_recv(r->w, gci_wide_rank(r->w, d->st->node.top), to, bytes, r->w->may_write);
    }
    if (d->st->takes)
        reduce_close_round(r, d->st, round);
}

static void reduce_piece_up(reduce *r, reduce_stream *st, int32_t round, const gci_wide_piece *p, reduce_dealer *d)
{
    reduce_up(r, st, round, reduce_input_piece(r, st, round, p), p->bytes);
    if (st->node.parent < 0)
        reduce_tell(r, st, round, p->bytes);
    if (!st->takes) {
        reduce_close_round(r, st, round);
        return;
    }
    d->sum[round % st->window] = reduce_all(r, st, round, p->bytes);
    d->last[round % st->window] = gci_emit_join(r->b);
}

/* A stream to every share of a cluster, with a top of its own in each. Returns its rounds. */
static int32_t reduce_open_share(reduce *r, reduce_stream *st, int cluster, int share)
{
    gci_places all = gci_wide_share(r->w, cluster, share);
    gci_wide_piece p = { all.first, all.first, 0, 0 };
    int32_t rounds = 0;
    size_t most = 0;
    for (; gci_wide_next(r->w, &r->w->blocks, all.end, &p); rounds++)
        most = gci_max(most, p.bytes);
    enum gci_wide_shape shape = reduce_adds_up(r) ? gci_wide_sums(r->w) : GCI_WIDE_STAR;
    *st = (reduce_stream){ .node = gci_wide_local(r->w, gci_wide_share_top(r->w, r->mine, cluster, share), shape), .turn = share,
                           .wanted_by = cluster, .spread = true, .spare = r->w->ranks_are_places ? REDUCE_ACC + 1 : REDUCE_PACK + 1 };
    st->takes = cluster == r->mine && st->node.parent < 0;
    if (rounds > 0)
        reduce_open(r, st, rounds, most);
    return rounds;
}

/* A piece is dealt out as late as scratch allows: from a head to a member go both its vectors, which could go at once, and sums, for
 * which messages from far away are needed. */
static void reduce_scatter(reduce *r)
{
    const int shares = r->w->shares, streams = r->s->clusters * shares, own = gci_wide_share_of(r->w, r->mine, r->place);
    const gci_places all = gci_wide_share(r->w, r->mine, own);
    reduce_stream *st = gci_alloc(r->b->env, (size_t)streams * sizeof *st);
    gci_wide_piece *p = gci_alloc(r->b->env, (size_t)streams * sizeof *p);
    int32_t longest = 0;
    if (!st || !p)
        r->b->error = GC_ERR_NOMEM;
    for (int j = 0; j < streams && !r->b->error; j++) {
        p[j].first = p[j].end = gci_wide_share(r->w, j / shares, j % shares).first;
        longest = gci_max32(longest, reduce_open_share(r, &st[j], j / shares, j % shares));
    }
    reduce_dealer dealer = { .st = st ? &st[r->mine * shares + own] : NULL, .end = all.end, .piece = { all.first, all.first, 0, 0 } };
    for (int32_t i = 0; i < longest && !r->b->error; i++)
        for (int d = 0; d < streams; d++) {
            int j = ((r->mine + 1) * shares + d) % streams;
            if (i >= st[j].rounds)
                continue;
            if (&st[j] == dealer.st && i >= st[j].window)
                reduce_deal(r, &dealer);
            if (gci_wide_next(r->w, &r->w->blocks, gci_wide_share(r->w, j / shares, j % shares).end, &p[j]))
                reduce_piece_up(r, &st[j], i, &p[j], &dealer);
        }
    while (!r->b->error && dealer.dealt < dealer.st->rounds)
        reduce_deal(r, &dealer);
    gci_free(r->b->env, p);
    gci_free(r->b->env, st);
}

/* ---- scan and exscan --------------------------------------------------------------------------------------------------- */

/* Down the local tree: `before` is the sum of all ranks before the subtree (ranks 0: there are none). A child gets the sum of
 * what is before it: that, this rank's input, and what its sisters sent up. read: when nobody needs these as they are. */
static void reduce_scan_down(reduce *r, reduce_stream *st, int32_t round, size_t at, size_t bytes, reduce_value before,
                             int32_t read)
{
    gci_builder *b = r->b;
    bool inclusive = r->call->coll == GCI_SCAN;
    gci_spot result = gci_spot_at(reduce_result, at);
    reduce_value mine = reduce_input(r, at), x = mine;
    bool wanted = inclusive || st->node.children > 0;
    x.at = inclusive ? result : reduce_spare_lane(st, round, REDUCE_PACK);
    x.step = inclusive && b->input_is_recv ? read : !wanted ? GCI_NO_STEP
           : gci_emit_copy(b, x.at, mine.at, bytes, inclusive ? GCI_NO_STEP : reduce_free(st, round));
    int32_t copied = x.step;
    if (before.ranks > 0 && wanted)
        x.step = gci_emit_reduce(b, x.at, before.at, bytes, false, gci_emit_both(b, x.step, before.step));
    gci_emit_pend(b, x.step);
    if (before.ranks > 0 && !inclusive) {
        int32_t may_write = b->input_is_recv ? gci_emit_both(b, read, copied) : GCI_NO_STEP;
        gci_emit_pend(b, gci_emit_copy(b, result, before.at, bytes, gci_emit_both(b, before.step, may_write)));
    }
    for (int i = 0; i < st->node.children; i++) {
        reduce_value child = r->operand[i + 1];
        gci_emit_pend(b, gci_wide_send(r->w, gci_wide_rank(r->w, st->node.child[i].first), x.at, bytes, x.step));
        if (i + 1 == st->node.children)
            break;
        child.step = gci_emit_both(b, gci_emit_both(b, child.step, read), x.step);
        child.step = gci_emit_reduce(b, child.at, x.at, bytes, false, child.step);
        x = child;
    }
}

/* Clusters are runs: what a cluster sends up in its tree goes to all higher clusters, which begin with the sum of it. */
static void reduce_scan_tree(reduce *r)
{
    const gci_call *call = r->call;
    int top = gci_wide_coordinator(r->w, r->mine);
    int32_t rounds = gci_segments(call, call->bytes);
    size_t most = gci_segment_at(call, call->bytes, 1);
    reduce_stream st = { .node = gci_wide_local(r->w, top, gci_wide_vectors(r->w)), .wanted_by = -1, .keep = true,
                         .scan = true, .takes = r->place == top };
    enum reduce_spare before_lane = st.node.children > 0 ? REDUCE_BEFORE : REDUCE_ACC;
    st.spare = (int)before_lane + 1;
    reduce_open(r, &st, rounds, most);
    for (int32_t i = 0; i < rounds && !r->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        reduce_value before = { .ranks = 0 };
        int32_t read = reduce_up(r, &st, i, reduce_input(r, at), bytes);
        if (r->place == top) {
            read = reduce_tell(r, &st, i, bytes);
            reduce_hear(r, &st, i, bytes);
            if (r->mine > 0)
                before = reduce_eval(r, r->value, r->mine, reduce_spare_value(&st, i, REDUCE_ACC), bytes);
        } else {
            before = (reduce_value){ reduce_spare_lane(&st, i, before_lane), GCI_NO_STEP, 1, true };
            before.step = gci_wide_recv(r->w, gci_wide_rank(r->w, st.node.parent), before.at, bytes, reduce_free(&st, i));
        }
        reduce_scan_down(r, &st, i, at, bytes, before, read);
        reduce_close_round(r, &st, i);
    }
}

/* value[k] becomes the sum of ranks up to k; canonical: of those of the last 2^i ranks up to k, 2^i the lowest bit of k + 1,
 * which is how the canonical expression of the first k + 1 ranks divides them (a Fenwick tree). */
static void reduce_prefixes(reduce *r, size_t bytes)
{
    int n = r->call->ranks;
    for (int size = 1; size < n && r->canonical; size *= 2)
        for (int k = 2 * size; k <= n; k += 2 * size)
            r->value[k - 1] = reduce_meet(r, r->value[k - 1 - size], r->value[k - 1], r->value[k - 1], bytes);
    for (int k = 1; k < n && !r->canonical; k++)
        r->value[k] = reduce_meet(r, r->value[k - 1], r->value[k], r->value[k], bytes);
    for (int k = 0; k < n; k++)
        gci_emit_pend(r->b, r->value[k].step);
}

/* The sum of the first n ranks, perhaps put together in `at` (after the step `free`). */
static reduce_value reduce_prefix(reduce *r, int n, gci_spot at, int32_t free, size_t bytes)
{
    int rest = r->canonical ? n & (n - 1) : 0;
    reduce_value sum = r->value[n - 1];
    if (rest > 0) {
        sum.step = gci_emit_copy(r->b, at, sum.at, bytes, gci_emit_both(r->b, sum.step, free));
        sum.at = at;
    }
    for (; rest > 0; rest &= rest - 1)
        sum.step = gci_emit_reduce(r->b, at, r->value[rest - 1].at, bytes, false,
                                   gci_emit_both(r->b, sum.step, r->value[rest - 1].step));
    return sum;
}

/* A coordinator has all vectors and makes its members' results. told: the own ones have been copied, their lanes are free. */
static void reduce_scan_results(reduce *r, reduce_stream *st, int32_t round, size_t at, size_t bytes, int32_t told)
{
    gci_builder *b = r->b;
    gci_spot own = reduce_lane(st, round, st->in + r->lane[r->mine]), result = gci_spot_at(reduce_result, at);
    for (int i = 0, lane = 0; i < r->parts; i++)
        if (r->part[i].cluster == r->mine) {
            reduce_value *v = &r->value[i];
            gci_spot to = gci_spot_at(own, (size_t)lane++ * bytes);
            v->step = gci_emit_copy(b, to, v->at, bytes, gci_emit_both(b, v->step, reduce_free(st, round)));
            v->at = to;
            v->writable = true;
        }
    reduce_prefixes(r, bytes);
    for (int i = -1; i < st->node.children; i++) {
        int rank = i < 0 ? r->call->rank : gci_wide_rank(r->w, st->node.child[i].first), n = rank + (r->call->coll == GCI_SCAN);
        if (n == 0)
            continue;
        reduce_value sum = reduce_prefix(r, n, i < 0 ? reduce_spare_lane(st, round, REDUCE_ACC) : reduce_lane(st, round, i),
                                         i < 0 ? reduce_free(st, round) : told, bytes);
        gci_emit_pend(b, i < 0 ? gci_emit_copy(b, result, sum.at, bytes, gci_emit_both(b, sum.step, told))
                               : gci_wide_send(r->w, rank, sum.at, bytes, sum.step));
    }
}

/* Otherwise: coordinators trade all vectors. */
static void reduce_scan_all(reduce *r)
{
    const gci_call *call = r->call;
    int top = gci_wide_coordinator(r->w, r->mine);
    int32_t rounds = gci_segments(call, call->bytes);
    reduce_stream st = { .node = gci_wide_local(r->w, top, GCI_WIDE_STAR), .wanted_by = -1, .takes = r->place == top,
                         .spare = REDUCE_ACC + 1 };
    reduce_open(r, &st, rounds, gci_segment_at(call, call->bytes, 1));
    for (int32_t i = 0; i < rounds && !r->b->error; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        int32_t read = reduce_up(r, &st, i, reduce_input(r, at), bytes);
        if (r->place == top) {
            read = reduce_tell(r, &st, i, bytes);
            reduce_hear(r, &st, i, bytes);
            reduce_scan_results(r, &st, i, at, bytes, read);
        } else if (call->coll == GCI_SCAN || call->rank > 0) {
            gci_wide_recv(r->w, gci_wide_rank(r->w, top), gci_spot_at(reduce_result, at), bytes,
                          r->b->input_is_recv ? read : GCI_NO_STEP);
        }
        reduce_close_round(r, &st, i);
    }
}

/* ---- all of it ------------------------------------------------------------------------------------------------------- */

static void reduce_emit(reduce *r, bool scan, bool all)
{
    if (r->call->coll == GCI_REDUCE_SCATTER) {
        reduce_scatter(r);
        return;
    }
    reduce_cut(r);
    if (!scan)
        reduce_vectors(r);
    else if (all)
        reduce_scan_all(r);
    else
        reduce_scan_tree(r);
}

/* Is a vector so long that a chain in rank order is better, although that has a wide-area latency wherever the next rank is in
 * another cluster? Where clusters are runs that is once for each, and the paper's limit holds. */
static bool reduce_is_long(const gci_call *call, size_t bytes)
{
    const gci_clusters *s = call->clusters;
    size_t hops = 0, told = (size_t)s->longest * (size_t)(s->clusters - 1);     /* vectors out of a cluster */
    for (int r = 1; r < call->ranks && !s->runs && call->coll != GCI_REDUCE_SCATTER; r++)
        hops += s->of[r] != s->of[r - 1];
    return bytes > gci_max(REDUCE_SHORT, REDUCE_HOP * hops / told);
}

GCI void gci_wide_reduce(gci_wide *w)
{
    const gci_call *call = w->call;
    reduce r = { .w = w, .b = w->b, .call = call, .s = w->s, .mine = w->mine, .place = w->place };
    bool scan = call->coll == GCI_SCAN || call->coll == GCI_EXSCAN, barrier = call->coll == GCI_BARRIER;
    bool blocks = call->coll == GCI_REDUCE_SCATTER;
    size_t bytes = blocks ? gci_blocks_bytes(&call->send, 0, call->ranks) / (size_t)call->ranks : call->bytes;
    bool from_left = !call->associative && !barrier;
    r.canonical = call->canonical && !from_left && !barrier;
    bool all = scan && (from_left || r.canonical || !w->s->runs);
    if (from_left && reduce_is_long(call, bytes))
        w->b->error = GC_ERR_UNSUPPORTED;
    else if (reduce_divide(&r, from_left || all) < 0)
        w->b->error = GC_ERR_NOMEM;
    if (!w->b->error)
        reduce_emit(&r, scan, all);
    w->call = call;
    gci_free(w->env, r.part);
    gci_free(w->env, r.lane);
    gci_free(w->env, r.value);
    gci_free(w->env, r.operand);
}
