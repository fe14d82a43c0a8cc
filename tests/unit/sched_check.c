/* sched_check.c: the schedule checker. It shares no code with the builders and knows no algorithm.
 * SPDX-License-Identifier: MIT
 *
 * Memory holds symbols instead of bytes. A symbol is an expression over the ranks' inputs, kept as a summary: how many
 * operands, from which rank to which, whether they stand in rank order, whether it is evaluated strictly from the left, a
 * sum of per-rank keys (which set of ranks), a hash of the shape (which expression exactly), and how often any of it crossed
 * the wide area. A buffer is a list of runs: bytes of one expression and of consecutive places of the inputs.
 *
 * Races are looked for statically: for each byte, a write must be ordered after the last write and all reads since, a read
 * after the last write. Given that, and matching without wildcards, all executions give the same result, so one suffices.
 */
#include "sched_check.h"

#include <stdio.h>
#include <stdlib.h>

typedef struct symbol {
    uint32_t count;             /* operands; 0: nothing was ever written here */
    int32_t  first, last;       /* ranks */
    int32_t  hops;              /* wide-area messages on the way of any operand, at most */
    size_t   place;             /* where in the input buffer of that rank, or in the vector */
    bool     ordered, from_left;
    uint64_t set, shape;
} symbol;

/* Who wrote it last (step + 1, or WRITE_NEVER), who has read it since (a chain through read_link). */
typedef struct touch { int32_t writer, reads; } touch;
enum { WRITE_NEVER = -1 };

typedef struct run {
    size_t at;                  /* ends where the next one begins */
    symbol s;
    touch  t;                   /* in maps of touches */
} run;

/* All bytes of a buffer, or of a part of one: the first run begins at 0. */
typedef struct map { size_t bytes; run *run; int32_t runs, room; } map;

typedef struct span { size_t at, bytes; } span;

typedef struct rank_state {
    map       buffer[GCI_BUFFERS];
    span     *result;           /* the blocks of the receive buffer, one per rank, or [0] the one there is */
    int       results;
    int32_t  *waits;            /* still to end, per step */
    int32_t  *first_after, *after;      /* the steps that wait for step i: after[first_after[i] .. first_after[i + 1]) */
    bool     *ended;
    int32_t  *chain;            /* per step: wide-area messages before it, each waiting for the one before */
    int32_t   searched, search; /* a search for what is before that step, and its number: */
    int32_t  *seen, *front;     /* by which search each was seen; the steps seen, of which some waits are still to follow */
    int32_t   front_head, front_end;
    uint64_t *knows;            /* barrier: bit set per step, of ranks */
    int32_t  *queue;  int32_t head, end;    /* ready steps */
} rank_state;

/* Posted messages of a pair that wait for their other side: at most one kind at a time. */
typedef struct pair_queue { int32_t *step; int32_t head, end, room; bool sends; } pair_queue;

typedef struct checker {
    const check_job *job;
    enum gci_coll coll;
    rank_state  *rank;
    pair_queue  *pair;                  /* [from * ranks + to] */
    int32_t     *work;  size_t work_head, work_end;     /* ranks with ready steps */
    char        *why;
    bool         failed;
    size_t       words;                 /* of a set of ranks */
    const gci_clusters *clusters;       /* NULL: one */
    map         *entered;               /* what came into a cluster: [cluster][rank] of data, [cluster][cluster] of results */
    int32_t      entered_by;            /* the second dimension */
    map          scratch, scratch2;
    check_report report;
} checker;

#define FAIL(c, ...)                                        \
    do {                                                    \
        if (!(c)->failed)                                   \
            snprintf((c)->why, CHECK_TEXT, __VA_ARGS__);    \
        (c)->failed = true;                                 \
    } while (0)

static void *need(void *p)
{
    if (!p)
        abort();
    return p;
}

static void *zeroed(size_t n, size_t bytes)
{
    return need(calloc(n ? n : 1, bytes ? bytes : 1));
}

static uint64_t mix(uint64_t x)
{
    x += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

/* ---- expressions ------------------------------------------------------------------------------------------------- */

static symbol leaf(int rank, size_t place)
{
    uint64_t key = mix((uint64_t)rank);
    return (symbol){ .count = 1, .first = rank, .last = rank, .place = place, .ordered = true, .from_left = true,
                     .set = key, .shape = key };
}

static symbol combined(symbol left, symbol right)
{
    return (symbol){ .count = left.count + right.count, .first = left.first, .last = right.last, .place = left.place,
                     .hops = left.hops > right.hops ? left.hops : right.hops,
                     .ordered = left.ordered && right.ordered && left.last + 1 == right.first,
                     .from_left = left.from_left && right.count == 1, .set = left.set + right.set,
                     .shape = mix(left.shape * 3 + mix(right.shape)) };
}

/* The canonical expression of ranks [first, end): halves that meet at the largest power of two below their number. */
static symbol canonical(int first, int end)
{
    int half = 1;
    if (end - first == 1)
        return leaf(first, 0);
    while (half * 2 < end - first)
        half *= 2;
    return combined(canonical(first, first + half), canonical(first + half, end));
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static void map_reserve(map *m, int32_t runs)
{
    if (runs <= m->room)
        return;
    m->room = runs + runs / 2 + 4;
    m->run = need(realloc(m->run, (size_t)m->room * sizeof *m->run));
}

static map map_of(size_t bytes)
{
    map m = { .bytes = bytes };
    map_reserve(&m, 1);
    m.run[m.runs++] = (run){ 0 };
    return m;
}

static size_t run_end(const map *m, int32_t i)
{
    return i + 1 < m->runs ? m->run[i + 1].at : m->bytes;
}

static run run_tail(run r, size_t at)
{
    r.s.place += at - r.at;
    r.at = at;
    return r;
}

static int32_t map_find(const map *m, size_t at)
{
    int32_t low = 0, high = m->runs;
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        *(m->run[middle].at <= at ? &low : &high) = middle;
    }
    return low;
}

/* The run that begins at `at`, made if need be; the number of runs at the end of all. */
static int32_t map_split(map *m, size_t at)
{
    if (at >= m->bytes)
        return m->runs;
    int32_t i = map_find(m, at);
    if (m->run[i].at == at)
        return i;
    map_reserve(m, m->runs + 1);
    memmove(&m->run[i + 2], &m->run[i + 1], (size_t)(m->runs - i - 1) * sizeof *m->run);
    m->run[i + 1] = run_tail(m->run[i], at);
    m->runs++;
    return i + 1;
}

/* Is b what a would be further on? */
static bool goes_on(const run *a, const run *b)
{
    return a->s.count == b->s.count && a->s.shape == b->s.shape && a->s.set == b->s.set && a->s.hops == b->s.hops &&
           (a->s.count == 0 || a->s.place + (b->at - a->at) == b->s.place) && a->t.writer == b->t.writer &&
           a->t.reads == b->t.reads;
}

/* Joins the runs from low to high with those before them, where they go on. */
static void map_join(map *m, int32_t low, int32_t high)
{
    int32_t kept = low > 0 ? low : 1, i = kept;
    for (; i <= high && i < m->runs; i++)
        if (!goes_on(&m->run[kept - 1], &m->run[i]))
            m->run[kept++] = m->run[i];
    if (kept < i)
        memmove(&m->run[kept], &m->run[i], (size_t)(m->runs - i) * sizeof *m->run);
    m->runs -= i - kept;
}

static void map_put(map *m, size_t at, const map *from)
{
    if (from->bytes == 0)
        return;
    int32_t low = map_split(m, at), high = map_split(m, at + from->bytes), n = from->runs;
    map_reserve(m, m->runs + n);
    memmove(&m->run[low + n], &m->run[high], (size_t)(m->runs - high) * sizeof *m->run);
    m->runs += n - (high - low);
    for (int32_t i = 0; i < n; i++) {
        m->run[low + i] = from->run[i];
        m->run[low + i].at += at;
    }
    map_join(m, low, low + n);
}

static void map_get(const map *m, size_t at, size_t bytes, map *out)
{
    out->bytes = bytes;
    out->runs = 0;
    if (bytes == 0)
        return;
    for (int32_t i = map_find(m, at); i < m->runs && m->run[i].at < at + bytes; i++) {
        map_reserve(out, out->runs + 1);
        run r = m->run[i].at < at ? run_tail(m->run[i], at) : m->run[i];
        r.at -= at;
        out->run[out->runs++] = r;
    }
}

static void map_put_symbol(map *m, size_t at, size_t bytes, symbol s)
{
    run one = { .s = s };
    map_put(m, at, &(map){ .bytes = bytes, .run = &one, .runs = 1 });
}

/* ---- what a rank starts with ------------------------------------------------------------------------------------- */

static bool is_reduction(enum gci_coll coll)
{
    return coll >= GCI_REDUCE && coll <= GCI_EXSCAN;
}

static size_t block_bytes(const gci_blocks *b, int rank)
{
    return b->bytes ? b->bytes[rank] : b->each;
}

static size_t blocks_extent(const gci_blocks *b, int ranks)
{
    size_t extent = 0, packed = 0;
    for (int k = 0; k < ranks; k++) {
        size_t bytes = block_bytes(b, k), end = (b->at ? b->at[k] : packed) + bytes;
        packed += bytes;
        if (bytes > 0 && end > extent)
            extent = end;
    }
    return extent;
}

/* Fills out[ranks]; O(ranks). */
static void block_spans(const gci_blocks *b, int ranks, span *out)
{
    size_t packed = 0;
    for (int k = 0; k < ranks; k++) {
        out[k] = (span){ b->at ? b->at[k] : packed, block_bytes(b, k) };
        packed += out[k].bytes;
    }
}

/* In place means nothing to a rank without a result, or with one buffer anyway. */
static bool is_in_place(const gci_call *call)
{
    bool root_alone = call->coll == GCI_GATHER || call->coll == GCI_REDUCE || call->coll == GCI_SCATTER;
    return call->in_place && call->coll != GCI_BARRIER && call->coll != GCI_BCAST && (!root_alone || call->rank == call->root);
}

/* Sizes of the user's buffers: one that is not used has none. */
static void buffer_sizes(const gci_call *call, size_t *send, size_t *recv)
{
    bool root = call->rank == call->root;
    *send = *recv = call->bytes;
    switch (call->coll) {
    case GCI_BARRIER:
        *send = *recv = 0;
        break;
    case GCI_SCATTER:
        *send = root ? blocks_extent(&call->send, call->ranks) : 0;
        *recv = is_in_place(call) ? 0 : call->own;
        return;                                             /* in place it is the root's own block that stays */
    case GCI_GATHER:
    case GCI_ALLGATHER:
        *send = call->own;
        *recv = root || call->coll == GCI_ALLGATHER ? blocks_extent(&call->recv, call->ranks) : 0;
        break;
    case GCI_ALLTOALL:
        *send = blocks_extent(&call->send, call->ranks);
        *recv = blocks_extent(&call->recv, call->ranks);
        break;
    case GCI_REDUCE_SCATTER:
        *send = blocks_extent(&call->send, call->ranks);
        *recv = is_in_place(call) ? *send : call->own;
        break;
    case GCI_BCAST:
        *send = 0;
        break;
    case GCI_REDUCE:
        *recv = root ? call->bytes : 0;
        break;
    default:
        break;
    }
    if (is_in_place(call))
        *send = 0;
}

static void set_up_input(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    rank_state *s = &c->rank[r];
    map *in = &s->buffer[is_in_place(call) && call->coll != GCI_SCATTER ? GCI_BUF_RECV : GCI_BUF_SEND];
    span *block = zeroed((size_t)call->ranks, sizeof *block);
    if (call->coll == GCI_BCAST && r == call->root) {
        map_put_symbol(&s->buffer[GCI_BUF_RECV], 0, call->bytes, leaf(r, 0));
    } else if (call->coll == GCI_GATHER || call->coll == GCI_ALLGATHER) {
        block_spans(&call->recv, call->ranks, block);
        map_put_symbol(in, is_in_place(call) ? block[r].at : 0, call->own, leaf(r, 0));
    } else if (call->coll == GCI_ALLTOALL || (call->coll == GCI_SCATTER && r == call->root)) {
        block_spans(&call->send, call->ranks, block);
        for (int k = 0; k < call->ranks; k++)
            map_put_symbol(in, block[k].at, block[k].bytes, leaf(r, block[k].at));
    } else if (is_reduction(call->coll)) {
        map_put_symbol(in, 0, in->bytes, leaf(r, 0));
    }
    free(block);
}

/* Where the result belongs. */
static void set_up_result(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    rank_state *s = &c->rank[r];
    bool blocks = call->coll == GCI_GATHER || call->coll == GCI_ALLGATHER || call->coll == GCI_ALLTOALL;
    s->result = zeroed((size_t)call->ranks, sizeof *s->result);
    if (s->buffer[GCI_BUF_RECV].bytes == 0 || (call->coll == GCI_EXSCAN && r == 0))
        return;
    s->results = blocks ? call->ranks : 1;
    if (blocks)
        block_spans(&call->recv, call->ranks, s->result);
    else
        s->result[0].bytes = call->coll == GCI_REDUCE_SCATTER ? call->own : s->buffer[GCI_BUF_RECV].bytes;
}

/* What others have put on board for this rank, where its word from them came. */
static void set_up_heard(checker *c, int r)
{
    map *heard = &c->rank[r].buffer[GCI_BUF_HEARD];
    *heard = map_of(c->job->ask ? c->job->ask[r]->heard_bytes : 0);
    for (int from = 0; from < c->job->ranks && c->job->ask; from++) {
        const gci_ask *ask = c->job->ask[from];
        size_t at = ask->call.send.at[r], bytes = ask->call.send.bytes[r], to = c->job->ask[r]->call.recv.at[from];
        for (const gci_ride *k = ask->ride; k < ask->ride + ask->rides; k++) {
            if (k->told_at < at || k->told_at >= at + bytes)
                continue;
            if (k->bytes > at + bytes - k->told_at)
                FAIL(c, "rank %d: what it has on board for rank %d does not fit into its word", from, r);
            else
                map_put_symbol(heard, to + (k->told_at - at), k->bytes, leaf(from, k->send_at));
        }
    }
}

static void set_up(checker *c, int r)
{
    rank_state *s = &c->rank[r];
    const gci_sched *sched = &c->job->sched[r];
    size_t steps = (size_t)sched->steps, send, recv;
    buffer_sizes(&c->job->call[r], &send, &recv);
    s->buffer[GCI_BUF_SEND] = map_of(send);
    s->buffer[GCI_BUF_RECV] = map_of(recv);
    s->buffer[GCI_BUF_TEMP] = map_of(sched->temp_bytes);
    set_up_heard(c, r);
    set_up_input(c, r);
    set_up_result(c, r);
    s->waits = zeroed(steps, sizeof *s->waits);
    s->first_after = zeroed(steps + 1, sizeof *s->first_after);
    s->ended = zeroed(steps, sizeof *s->ended);
    s->queue = zeroed(steps, sizeof *s->queue);
    s->chain = zeroed(steps, sizeof *s->chain);
    if (c->coll == GCI_BARRIER)
        s->knows = zeroed(steps * c->words, sizeof *s->knows);
}

/* ---- form and order ---------------------------------------------------------------------------------------------- */

static void see_waits(rank_state *s, const gci_sched *sched, int32_t i)
{
    for (int32_t k = 0; k < sched->step[i].waits; k++) {
        int32_t earlier = sched->wait[sched->step[i].first_wait + k];
        if (s->seen[earlier] == s->search)
            continue;
        s->seen[earlier] = s->search;
        s->front[s->front_end++] = earlier;
    }
}

/* Is step a over whenever b begins? Follows waits backwards, nearest first, from where the last question about b has come to:
 * in right schedules it is so, and near. */
static bool is_before(rank_state *s, const gci_sched *sched, int32_t a, int32_t b)
{
    if (s->searched != b) {
        s->searched = b;
        s->search++;
        s->front_head = s->front_end = 0;
        see_waits(s, sched, b);
    }
    while (s->seen[a] != s->search && s->front_head < s->front_end)
        see_waits(s, sched, s->front[s->front_head++]);
    return s->seen[a] == s->search;
}

static bool inside(const rank_state *s, uint8_t buffer, size_t at, size_t bytes)
{
    size_t room = buffer < GCI_BUFFERS ? s->buffer[buffer].bytes : 0;
    return buffer < GCI_BUFFERS && (bytes == 0 || (at <= room && bytes <= room - at));
}

/* Who knows of a block of 0 bytes, and who not? Where only its two ranks do, no message may tell the others. */
static bool may_be_empty(const gci_call *call)
{
    return call->even || (call->coll != GCI_SCATTER && call->coll != GCI_GATHER && call->coll != GCI_ALLTOALL);
}

static void check_step(checker *c, int r, int32_t i)
{
    const gci_sched *sched = &c->job->sched[r];
    const gci_step *step = &sched->step[i];
    const rank_state *s = &c->rank[r];
    const gci_call *call = &c->job->call[r];
    bool message = step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV;
    if (step->kind > GCI_STEP_COPY)
        FAIL(c, "rank %d step %d: no such kind", r, i);
    else if (message && (step->peer < 0 || step->peer >= c->job->ranks || step->peer == r))
        FAIL(c, "rank %d step %d: peer %d", r, i, step->peer);
    else if (message && step->bytes == 0 && !may_be_empty(call))
        FAIL(c, "rank %d step %d: a message for a block of 0 bytes", r, i);
    else if (step->kind != GCI_STEP_RECV && !inside(s, step->from, step->from_at, step->bytes))
        FAIL(c, "rank %d step %d: reads outside buffer %d", r, i, step->from);
    else if (step->kind != GCI_STEP_SEND && !inside(s, step->to, step->to_at, step->bytes))
        FAIL(c, "rank %d step %d: writes outside buffer %d", r, i, step->to);
    else if (step->kind != GCI_STEP_SEND && step->bytes > 0 && (step->to == GCI_BUF_SEND || step->to == GCI_BUF_HEARD))
        FAIL(c, "rank %d step %d: writes %s", r, i, step->to == GCI_BUF_SEND ? "the send buffer" : "what was heard");
    else if (step->kind == GCI_STEP_REDUCE && (!is_reduction(call->coll) || step->bytes % call->elem_bytes))
        FAIL(c, "rank %d step %d: reduces a part of an element", r, i);
    else if (step->waits < 0 || step->first_wait < 0 || step->first_wait > sched->waits - step->waits)
        FAIL(c, "rank %d step %d: waits out of range", r, i);
}

static void check_waits(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    for (int32_t i = 0; i < sched->steps && !c->failed; i++) {
        const gci_step *step = &sched->step[i];
        check_step(c, r, i);
        for (int32_t k = 0; k < step->waits && !c->failed; k++)
            if (sched->wait[step->first_wait + k] < 0 || sched->wait[step->first_wait + k] >= i)
                FAIL(c, "rank %d step %d: waits for step %d", r, i, sched->wait[step->first_wait + k]);
    }
}

/* Messages of the same direction with the same peer are matched in the order in which they become ready: that of two
 * neighbours in the list is certain only if all that the first waits for is over when the second is ready. */
static void check_order(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    int32_t *last = zeroed(2 * (size_t)c->job->ranks, sizeof *last);    /* step + 1, by direction and peer */
    for (int32_t i = 0; i < sched->steps; i++) {
        const gci_step *step = &sched->step[i];
        if (step->kind != GCI_STEP_SEND && step->kind != GCI_STEP_RECV)
            continue;
        int32_t *seen = &last[2 * step->peer + (step->kind == GCI_STEP_SEND)];
        if (*seen > 0) {
            const gci_step *first = &sched->step[*seen - 1];
            for (int32_t k = 0; k < first->waits; k++)
                if (!is_before(&c->rank[r], sched, sched->wait[first->first_wait + k], i))
                    FAIL(c, "rank %d: step %d may overtake step %d", r, i, *seen - 1);
        }
        *seen = i + 1;
    }
    free(last);
}

/* ---- races ------------------------------------------------------------------------------------------------------- */

typedef struct read_link { int32_t step, next; } read_link;

typedef struct race_check {
    checker   *c;
    int        r;
    map        touched[GCI_BUFFERS];
    read_link *link;
    int32_t    links, room;
} race_check;

static void touch_read(race_check *x, uint8_t buffer, size_t at, size_t bytes, int32_t i)
{
    map *m = &x->touched[buffer];
    const gci_sched *sched = &x->c->job->sched[x->r];
    int32_t low = map_split(m, at), high = map_split(m, at + bytes);
    for (int32_t k = low; k < high; k++) {
        touch *t = &m->run[k].t;
        if (t->writer > 0 && !is_before(&x->c->rank[x->r], sched, t->writer - 1, i))
            FAIL(x->c, "rank %d: step %d reads what step %d writes, unordered", x->r, i, t->writer - 1);
        if (x->links == x->room) {
            x->room = x->room ? 2 * x->room : 256;
            x->link = need(realloc(x->link, (size_t)x->room * sizeof *x->link));
        }
        x->link[x->links] = (read_link){ i, t->reads };
        t->reads = ++x->links;
    }
}

static void touch_write(race_check *x, uint8_t buffer, size_t at, size_t bytes, int32_t i)
{
    map *m = &x->touched[buffer];
    const gci_sched *sched = &x->c->job->sched[x->r];
    rank_state *s = &x->c->rank[x->r];
    int32_t low = map_split(m, at), high = map_split(m, at + bytes);
    for (int32_t k = low; k < high; k++) {
        const touch *t = &m->run[k].t;
        if (t->writer == WRITE_NEVER)
            FAIL(x->c, "rank %d: step %d writes byte %zu of the receive buffer, which belongs to no block", x->r, i,
                 m->run[k].at);
        if (t->writer > 0 && !is_before(s, sched, t->writer - 1, i))
            FAIL(x->c, "rank %d: steps %d and %d write the same, unordered", x->r, t->writer - 1, i);
        for (int32_t q = t->reads; q > 0; q = x->link[q - 1].next)
            if (x->link[q - 1].step != i && !is_before(s, sched, x->link[q - 1].step, i))
                FAIL(x->c, "rank %d: step %d writes what step %d reads, unordered", x->r, i, x->link[q - 1].step);
    }
    run one = { .t = { .writer = i + 1 } };
    map_put(m, at, &(map){ .bytes = bytes, .run = &one, .runs = 1 });
}

static void check_races(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    const rank_state *s = &c->rank[r];
    race_check x = { .c = c, .r = r };
    for (int k = 0; k < GCI_BUFFERS; k++)
        x.touched[k] = map_of(s->buffer[k].bytes);
    x.touched[GCI_BUF_RECV].run[0].t.writer = WRITE_NEVER;
    for (int k = 0; k < s->results; k++) {
        run free_run = { .at = 0 };
        map_put(&x.touched[GCI_BUF_RECV], s->result[k].at, &(map){ .bytes = s->result[k].bytes, .run = &free_run, .runs = 1 });
    }
    for (int32_t i = 0; i < sched->steps && !c->failed; i++) {
        const gci_step *step = &sched->step[i];
        if (step->bytes == 0)
            continue;
        if (step->kind != GCI_STEP_RECV)
            touch_read(&x, step->from, step->from_at, step->bytes, i);
        if (step->kind == GCI_STEP_REDUCE)
            touch_read(&x, step->to, step->to_at, step->bytes, i);
        if (step->kind != GCI_STEP_SEND)
            touch_write(&x, step->to, step->to_at, step->bytes, i);
    }
    for (int k = 0; k < GCI_BUFFERS; k++)
        free(x.touched[k].run);
    free(x.link);
}

static void check_form(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    rank_state *s = &c->rank[r];
    s->seen = zeroed((size_t)sched->steps, sizeof *s->seen);
    s->front = zeroed((size_t)sched->steps, sizeof *s->front);
    s->searched = -1;
    check_waits(c, r);
    if (!c->failed)
        check_order(c, r);
    if (!c->failed)
        check_races(c, r);
    free(s->seen);
    free(s->front);
}

/* ---- the wide area ----------------------------------------------------------------------------------------------- */

static int cluster_of(const checker *c, int rank)
{
    return c->clusters ? c->clusters->of[rank] : 0;
}

/* Data, or a partial result, enters a cluster: how many of these bytes are there already? */
static size_t enter_cluster(map *m, size_t at, size_t bytes)
{
    size_t again = 0;
    if (!m->run)
        *m = map_of(SIZE_MAX);
    int32_t low = map_split(m, at), high = map_split(m, at + bytes);
    for (int32_t k = low; k < high; k++)
        again += m->run[k].t.writer ? run_end(m, k) - m->run[k].at : 0;
    run one = { .t = { .writer = 1 } };
    map_put(m, at, &(map){ .bytes = bytes, .run = &one, .runs = 1 });
    return again;
}

static void cross_wide_area(checker *c, int from, int to, map *data)
{
    size_t a = (size_t)cluster_of(c, from), b = (size_t)cluster_of(c, to);
    c->report.wan_messages++;
    c->report.wan_bytes += data->bytes;
    for (int32_t i = 0; i < data->runs; i++) {
        symbol *s = &data->run[i].s;
        size_t bytes = run_end(data, i) - data->run[i].at;
        s->hops++;
        if (is_reduction(c->coll))
            c->report.repeated += enter_cluster(&c->entered[b * (size_t)c->entered_by + a], s->place, bytes);
        else if (cluster_of(c, s->first) == (int)b)
            c->report.repeated += bytes;
        else
            c->report.repeated += enter_cluster(&c->entered[b * (size_t)c->entered_by + (size_t)s->first], s->place, bytes);
    }
}

/* ---- execution --------------------------------------------------------------------------------------------------- */

static void make_ready(checker *c, int r, int32_t i)
{
    rank_state *s = &c->rank[r];
    if (s->head == s->end)
        c->work[c->work_end++ % ((size_t)c->job->ranks + 1)] = r;
    s->queue[s->end++] = i;
}

static void end_step(checker *c, int r, int32_t i)
{
    rank_state *s = &c->rank[r];
    s->ended[i] = true;
    for (int32_t k = s->first_after[i]; k < s->first_after[i + 1]; k++)
        if (--s->waits[s->after[k]] == 0)
            make_ready(c, r, s->after[k]);
}

/* What a rank knows when a step begins: itself, and all that the steps before it knew. */
static void gather_knowledge(checker *c, int r, int32_t i)
{
    const gci_sched *sched = &c->job->sched[r];
    rank_state *s = &c->rank[r];
    if (s->knows)
        s->knows[(size_t)i * c->words + (size_t)r / 64] |= UINT64_C(1) << (r % 64);
    for (int32_t k = 0; k < sched->step[i].waits; k++) {
        int32_t earlier = sched->wait[sched->step[i].first_wait + k];
        if (s->chain[i] < s->chain[earlier])
            s->chain[i] = s->chain[earlier];
        for (size_t w = 0; w < c->words && s->knows; w++)
            s->knows[(size_t)i * c->words + w] |= s->knows[(size_t)earlier * c->words + w];
    }
}

static void pass_knowledge(checker *c, int from, int32_t a, int to, int32_t b, bool wide)
{
    rank_state *sender = &c->rank[from], *receiver = &c->rank[to];
    if (receiver->chain[b] < sender->chain[a] + wide)
        receiver->chain[b] = sender->chain[a] + wide;
    if (c->report.wan_chain < receiver->chain[b])
        c->report.wan_chain = receiver->chain[b];
    for (size_t w = 0; w < c->words && sender->knows; w++)
        receiver->knows[(size_t)b * c->words + w] |= sender->knows[(size_t)a * c->words + w];
}

static void deliver(checker *c, int from, int32_t a, int to, int32_t b)
{
    const gci_step *send = &c->job->sched[from].step[a], *recv = &c->job->sched[to].step[b];
    bool wide = cluster_of(c, from) != cluster_of(c, to);
    if (send->bytes != recv->bytes) {
        FAIL(c, "rank %d step %d sends %zu bytes, rank %d step %d receives %zu", from, a, send->bytes, to, b, recv->bytes);
        return;
    }
    if (send->sizes != recv->sizes) {
        FAIL(c, "rank %d step %d and rank %d step %d have other sizes in their bundle", from, a, to, b);
        return;
    }
    map *data = &c->scratch;
    map_get(&c->rank[from].buffer[send->from], send->from_at, send->bytes, data);
    for (int32_t i = 0; i < data->runs; i++)
        if (data->run[i].s.count == 0) {
            FAIL(c, "rank %d step %d sends what is not there", from, a);
            return;
        }
    if (wide)
        cross_wide_area(c, from, to, data);
    map_put(&c->rank[to].buffer[recv->to], recv->to_at, data);
    pass_knowledge(c, from, a, to, b, wide);
    c->report.messages++;
    c->report.empty += send->bytes == 0;
    end_step(c, from, a);
    end_step(c, to, b);
}

static pair_queue *queue_of(checker *c, int from, int to)
{
    return &c->pair[(size_t)from * (size_t)c->job->ranks + (size_t)to];
}

static void post(checker *c, int r, int32_t i)
{
    const gci_step *step = &c->job->sched[r].step[i];
    bool send = step->kind == GCI_STEP_SEND;
    int from = send ? r : step->peer, to = send ? step->peer : r;
    pair_queue *q = queue_of(c, from, to);
    if (q->head < q->end && q->sends != send) {
        int32_t other = q->step[q->head++];
        deliver(c, from, send ? i : other, to, send ? other : i);
        return;
    }
    if (q->head == q->end)
        q->head = q->end = 0;
    if (q->end == q->room) {
        q->room = q->room ? 2 * q->room : 2;
        q->step = need(realloc(q->step, (size_t)q->room * sizeof *q->step));
    }
    q->sends = send;
    q->step[q->end++] = i;
}

static void reduce(checker *c, int r, int32_t i)
{
    const gci_step *step = &c->job->sched[r].step[i];
    size_t elem_bytes = c->job->call[r].elem_bytes;
    map *to = &c->scratch, *from = &c->scratch2;
    map_get(&c->rank[r].buffer[step->to], step->to_at, step->bytes, to);
    map_get(&c->rank[r].buffer[step->from], step->from_at, step->bytes, from);
    for (int32_t k = 0; k < from->runs; k++)
        map_split(to, from->run[k].at);
    for (int32_t k = 0, q = 0; k < to->runs; k++) {
        q += q + 1 < from->runs && from->run[q + 1].at <= to->run[k].at;
        symbol *result = &to->run[k].s, other = run_tail(from->run[q], to->run[k].at).s;
        if (result->count == 0 || other.count == 0)
            FAIL(c, "rank %d step %d reduces what is not there", r, i);
        else if (result->place != other.place || result->place % elem_bytes != to->run[k].at % elem_bytes)
            FAIL(c, "rank %d step %d reduces different elements", r, i);
        *result = step->swapped ? combined(*result, other) : combined(other, *result);
    }
    map_put(&c->rank[r].buffer[step->to], step->to_at, to);
}

static void run_step(checker *c, int r, int32_t i)
{
    const gci_step *step = &c->job->sched[r].step[i];
    gather_knowledge(c, r, i);
    if (step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV) {
        post(c, r, i);
        return;
    }
    if (step->kind == GCI_STEP_REDUCE) {
        reduce(c, r, i);
    } else {
        map_get(&c->rank[r].buffer[step->from], step->from_at, step->bytes, &c->scratch);
        map_put(&c->rank[r].buffer[step->to], step->to_at, &c->scratch);
    }
    end_step(c, r, i);
}

static void invert_waits(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    rank_state *s = &c->rank[r];
    int32_t *filled = zeroed((size_t)sched->steps, sizeof *filled), total = 0;
    for (int32_t i = 0; i < sched->steps; i++) {
        total += sched->step[i].waits;
        for (int32_t k = 0; k < sched->step[i].waits; k++)
            s->first_after[sched->wait[sched->step[i].first_wait + k] + 1]++;
    }
    for (int32_t i = 0; i < sched->steps; i++)
        s->first_after[i + 1] += s->first_after[i];
    s->after = zeroed((size_t)total, sizeof *s->after);
    for (int32_t i = 0; i < sched->steps; i++)
        for (int32_t k = 0; k < sched->step[i].waits; k++) {
            int32_t earlier = sched->wait[sched->step[i].first_wait + k];
            s->after[s->first_after[earlier] + filled[earlier]++] = i;
        }
    free(filled);
}

static void execute(checker *c)
{
    for (int r = 0; r < c->job->ranks; r++)
        invert_waits(c, r);
    for (int r = 0; r < c->job->ranks; r++)
        for (int32_t i = 0; i < c->job->sched[r].steps; i++) {
            c->rank[r].waits[i] = c->job->sched[r].step[i].waits;
            if (c->rank[r].waits[i] == 0)
                make_ready(c, r, i);
        }
    while (c->work_head < c->work_end && !c->failed) {
        int r = c->work[c->work_head++ % ((size_t)c->job->ranks + 1)];
        rank_state *s = &c->rank[r];
        for (bool last = false; !last && !c->failed; ) {
            int32_t i = s->queue[s->head++];
            last = s->head == s->end;       /* empty before the step runs, so that it may make the rank ready again */
            run_step(c, r, i);
        }
    }
}

/* ---- steps that never end ---------------------------------------------------------------------------------------- */

/* The step of the peer that a message is to meet, the k-th with the k-th; -1: there is none. */
static int32_t partner(const checker *c, int r, int32_t i)
{
    const gci_sched *mine = &c->job->sched[r], *theirs = &c->job->sched[mine->step[i].peer];
    enum gci_step_kind kind = mine->step[i].kind, other = kind == GCI_STEP_SEND ? GCI_STEP_RECV : GCI_STEP_SEND;
    int32_t k = 0;
    for (int32_t j = 0; j < i; j++)
        k += mine->step[j].kind == kind && mine->step[j].peer == mine->step[i].peer;
    for (int32_t j = 0; j < theirs->steps; j++)
        if (theirs->step[j].kind == other && theirs->step[j].peer == r && k-- == 0)
            return j;
    return -1;
}

/* What a step waits for that has not ended: an earlier one of its rank, else its partner. */
static bool waits_for(const checker *c, int *r, int32_t *i)
{
    const gci_sched *sched = &c->job->sched[*r];
    for (int32_t k = 0; k < sched->step[*i].waits; k++) {
        int32_t earlier = sched->wait[sched->step[*i].first_wait + k];
        if (!c->rank[*r].ended[earlier]) {
            *i = earlier;
            return true;
        }
    }
    int32_t other = partner(c, *r, *i);
    if (other < 0)
        return false;
    *r = sched->step[*i].peer;
    *i = other;
    return true;
}

/* Writes down a circle of waits on which a step lies. */
static void explain_circle(checker *c, int r, int32_t i)
{
    char text[CHECK_TEXT - 32];
    int first_rank = r;
    int32_t first_step = i;
    size_t used = 0;
    do {
        used += (size_t)snprintf(text + used, sizeof text - used, "rank %d step %d, ", r, i);
        waits_for(c, &r, &i);
    } while ((r != first_rank || i != first_step) && used < sizeof text - 40);
    FAIL(c, "a circle of waits: %s...", text);
}

/* Follows waits until they come to a message that nobody meets, or round to a step on the way (Brent 1980). */
static void explain_stuck(checker *c, int r, int32_t i)
{
    int met_rank = -1;
    int32_t met_step = -1;
    for (size_t n = 0, next = 1; r != met_rank || i != met_step; n++) {
        if (n == next) {
            met_rank = r;
            met_step = i;
            next *= 2;
        }
        if (!waits_for(c, &r, &i)) {
            FAIL(c, "rank %d step %d never ends: no %s of rank %d meets it", r, i,
                 c->job->sched[r].step[i].kind == GCI_STEP_SEND ? "receive" : "send", c->job->sched[r].step[i].peer);
            return;
        }
    }
    explain_circle(c, r, i);
}

static void check_ended(checker *c)
{
    for (int r = 0; r < c->job->ranks && !c->failed; r++)
        for (int32_t i = 0; i < c->job->sched[r].steps && !c->failed; i++)
            if (!c->rank[r].ended[i])
                explain_stuck(c, r, i);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static void check_reduced(checker *c, int r, size_t at, symbol s, size_t place, symbol want, symbol everywhere)
{
    const gci_call *call = &c->job->call[r];
    if (s.count != want.count || s.set != want.set)
        FAIL(c, "rank %d byte %zu: %u operands, not each rank's once", r, at, s.count);
    else if (s.place != place)
        FAIL(c, "rank %d byte %zu: belongs to byte %zu of the vector", r, at, s.place);
    else if (!call->commutative && !s.ordered)
        FAIL(c, "rank %d byte %zu: not in rank order", r, at);
    else if (!call->associative && !(s.ordered && s.from_left))
        FAIL(c, "rank %d byte %zu: not evaluated from rank 0 up", r, at);
    else if (call->associative && call->canonical && s.shape != want.shape)
        FAIL(c, "rank %d byte %zu: not the canonical expression", r, at);
    else if (s.shape != everywhere.shape)
        FAIL(c, "rank %d byte %zu: another expression than at rank 0", r, at);
}

static void check_reduction(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    const span *result = &c->rank[r].result[0];
    int end = call->coll == GCI_SCAN ? r + 1 : call->coll == GCI_EXSCAN ? r : call->ranks;
    size_t place = 0;
    for (int k = 0; k < r && call->coll == GCI_REDUCE_SCATTER; k++)
        place += block_bytes(&call->send, k);
    symbol want = canonical(0, end);
    map *got = &c->scratch, *first = &c->scratch2;
    map_get(&c->rank[r].buffer[GCI_BUF_RECV], result->at, result->bytes, got);
    map_get(call->coll == GCI_ALLREDUCE ? &c->rank[0].buffer[GCI_BUF_RECV] : got, 0, result->bytes, first);
    for (int32_t k = 0; k < first->runs; k++)
        map_split(got, first->run[k].at);
    for (int32_t k = 0, q = 0; k < got->runs && !c->failed; k++) {
        q += q + 1 < first->runs && first->run[q + 1].at <= got->run[k].at;
        check_reduced(c, r, got->run[k].at, got->run[k].s, place + got->run[k].at, want, first->run[q].s);
        if (c->report.wan_hops < got->run[k].s.hops)
            c->report.wan_hops = got->run[k].s.hops;
    }
}

/* Block k of the result is `bytes` of rank `of`, from `place` of its input on. */
static void check_block(checker *c, int r, span block, int of, size_t place)
{
    map *got = &c->scratch;
    map_get(&c->rank[r].buffer[GCI_BUF_RECV], block.at, block.bytes, got);
    for (int32_t k = 0; k < got->runs && !c->failed; k++) {
        const symbol *s = &got->run[k].s;
        if (s->count == 0)
            FAIL(c, "rank %d byte %zu: nothing came", r, block.at + got->run[k].at);
        else if (s->first != of || s->place != place + got->run[k].at)
            FAIL(c, "rank %d byte %zu: is byte %zu of rank %d", r, block.at + got->run[k].at, s->place, s->first);
        if (c->report.wan_hops < s->hops)
            c->report.wan_hops = s->hops;
    }
}

static void check_data(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    const rank_state *s = &c->rank[r];
    for (int k = 0; k < s->results && !c->failed; k++) {
        size_t place = 0;
        if (call->coll == GCI_SCATTER || call->coll == GCI_ALLTOALL) {
            const gci_blocks *sent = &c->job->call[call->coll == GCI_SCATTER ? call->root : k].send;
            for (int q = 0; q < r && !sent->at && sent->bytes; q++)
                place += sent->bytes[q];
            place = sent->at ? sent->at[r] : sent->bytes ? place : (size_t)r * sent->each;
        }
        bool one_source = call->coll == GCI_SCATTER || call->coll == GCI_BCAST;
        check_block(c, r, s->result[k], one_source ? call->root : k, place);
    }
}

static void check_barrier(checker *c, int r)
{
    uint64_t *known = zeroed(c->words, sizeof *known);
    known[r / 64] |= UINT64_C(1) << (r % 64);
    for (int32_t i = 0; i < c->job->sched[r].steps; i++)
        for (size_t w = 0; w < c->words; w++)
            known[w] |= c->rank[r].knows[(size_t)i * c->words + w];
    for (int k = 0; k < c->job->ranks; k++)
        if (!(known[k / 64] >> (k % 64) & 1))
            FAIL(c, "rank %d leaves before rank %d came", r, k);
    free(known);
    c->report.wan_hops = c->report.wan_chain;
}

static void check_result(checker *c, int r)
{
    if (c->coll == GCI_BARRIER)
        check_barrier(c, r);
    else if (!is_reduction(c->coll))
        check_data(c, r);
    else if (c->rank[r].results > 0)
        check_reduction(c, r);
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void checker_free(checker *c)
{
    size_t ranks = (size_t)c->job->ranks;
    for (size_t r = 0; r < ranks; r++) {
        rank_state *s = &c->rank[r];
        for (int k = 0; k < GCI_BUFFERS; k++)
            free(s->buffer[k].run);
        free(s->result);
        free(s->waits);
        free(s->first_after);
        free(s->after);
        free(s->ended);
        free(s->chain);
        free(s->knows);
        free(s->queue);
    }
    for (size_t i = 0; i < ranks * ranks; i++)
        free(c->pair[i].step);
    for (size_t i = 0; c->entered && i < (size_t)c->clusters->clusters * (size_t)c->entered_by; i++)
        free(c->entered[i].run);
    free(c->entered);
    free(c->rank);
    free(c->pair);
    free(c->work);
    free(c->scratch.run);
    free(c->scratch2.run);
}

int sched_check(const check_job *job, check_report *report, char why[CHECK_TEXT])
{
    size_t ranks = (size_t)job->ranks;
    checker c = { .job = job, .coll = job->call[0].coll, .clusters = job->call[0].clusters, .why = why, .words = ranks / 64 + 1 };
    c.rank = zeroed(ranks, sizeof *c.rank);
    c.pair = zeroed(ranks * ranks, sizeof *c.pair);
    c.work = zeroed(ranks + 1, sizeof *c.work);
    if (c.clusters) {
        c.entered_by = is_reduction(c.coll) ? c.clusters->clusters : job->ranks;
        c.entered = zeroed((size_t)c.clusters->clusters * (size_t)c.entered_by, sizeof *c.entered);
    }
    why[0] = 0;
    for (int r = 0; r < job->ranks && !c.failed; r++) {
        set_up(&c, r);
        check_form(&c, r);
    }
    if (!c.failed)
        execute(&c);
    if (!c.failed)
        check_ended(&c);
    for (int r = 0; r < job->ranks && !c.failed; r++)
        check_result(&c, r);
    checker_free(&c);
    if (report)
        *report = c.report;
    return c.failed ? -1 : c.report.messages;
}
