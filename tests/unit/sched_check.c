/* sched_check.c: the schedule checker. It shares no code with the builders and knows no algorithm.
 * SPDX-License-Identifier: MIT
 *
 * Memory holds symbols instead of bytes. A symbol is an expression over the ranks' inputs, kept as a summary: how many
 * operands, from which rank to which, whether they stand in rank order, whether it is evaluated strictly from the left, a
 * sum of per-rank keys (which set of ranks) and a hash of the shape (which expression exactly).
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
    uint32_t elem, sub;         /* which element of the vector, which byte of it */
    bool     ordered, from_left;
    uint64_t set, shape;
} symbol;

typedef struct region { symbol *at; size_t bytes; } region;     /* a buffer, perhaps a part of another one */

typedef struct rank_state {
    symbol   *send, *recv, *temp;       /* storage; send NULL if it lies in recv */
    size_t    send_bytes, recv_bytes, temp_bytes;
    region    buffer[3];                /* by enum gci_buffer */
    int32_t  *waits;                    /* still to end, per step */
    int32_t  *first_after, *after;      /* the steps that wait for step i: after[first_after[i] .. first_after[i + 1]) */
    bool     *ended;
    uint64_t *before;                   /* bit set per step: the steps before it */
    uint64_t *knows;                    /* barrier: bit set per step, of ranks */
    int32_t  *queue;  int32_t head, end;    /* ready steps */
} rank_state;

/* Posted messages of a pair that wait for their other side: at most one kind at a time. */
typedef struct pair_queue { int32_t *step; int32_t head, end, room; bool sends; } pair_queue;

typedef struct checker {
    const check_job *job;
    rank_state *rank;
    pair_queue *pair;                   /* [from * ranks + to] */
    int32_t    *work;  size_t work_head, work_end;      /* ranks with ready steps */
    char       *why;
    bool        failed;
    int         messages;
    size_t      words;                  /* of a set of ranks */
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

static symbol leaf(int rank, size_t at, size_t elem_bytes)
{
    uint64_t key = mix((uint64_t)rank);
    return (symbol){ .count = 1, .first = rank, .last = rank, .elem = (uint32_t)(at / elem_bytes),
                     .sub = (uint32_t)(at % elem_bytes), .ordered = true, .from_left = true, .set = key, .shape = key };
}

static symbol combined(symbol left, symbol right)
{
    return (symbol){ .count = left.count + right.count, .first = left.first, .last = right.last, .elem = left.elem,
                     .sub = left.sub, .ordered = left.ordered && right.ordered && left.last + 1 == right.first,
                     .from_left = left.from_left && right.count == 1, .set = left.set + right.set,
                     .shape = mix(left.shape * 3 + mix(right.shape)) };
}

static bool is_reduction(enum gci_coll coll)
{
    return coll == GCI_REDUCE || coll == GCI_ALLREDUCE;
}

/* ---- what a rank starts with ------------------------------------------------------------------------------------- */

static bool gets_result(const gci_call *c)
{
    return c->coll == GCI_BCAST || c->coll == GCI_ALLREDUCE || c->coll == GCI_ALLGATHER ||
           ((c->coll == GCI_REDUCE || c->coll == GCI_GATHER) && c->rank == c->root);
}

static void set_up(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    rank_state *s = &c->rank[r];
    bool blocks = call->coll == GCI_GATHER || call->coll == GCI_ALLGATHER, result = gets_result(call);
    bool shared = call->coll == GCI_BCAST || (call->in_place && result);
    size_t own_at = blocks ? (size_t)r * call->bytes : 0;
    s->send_bytes = call->coll == GCI_BARRIER ? 0 : call->bytes;
    s->recv_bytes = call->coll == GCI_BARRIER || !result ? 0 : call->bytes * (size_t)(blocks ? call->ranks : 1);
    s->temp_bytes = c->job->sched[r].temp_bytes;
    s->recv = zeroed(s->recv_bytes, sizeof(symbol));
    s->temp = zeroed(s->temp_bytes, sizeof(symbol));
    s->send = shared ? NULL : zeroed(s->send_bytes, sizeof(symbol));
    s->buffer[GCI_BUF_SEND] = (region){ shared ? s->recv + own_at : s->send, s->send_bytes };
    s->buffer[GCI_BUF_RECV] = (region){ s->recv, s->recv_bytes };
    s->buffer[GCI_BUF_TEMP] = (region){ s->temp, s->temp_bytes };
    if (call->coll != GCI_BCAST || r == call->root)
        for (size_t i = 0; i < s->send_bytes; i++)
            s->buffer[GCI_BUF_SEND].at[i] = leaf(r, i, is_reduction(call->coll) ? call->elem_bytes : 1);
}

/* ---- form, order and races --------------------------------------------------------------------------------------- */

static size_t step_words(const gci_sched *s)
{
    return (size_t)s->steps / 64 + 1;
}

static bool is_before(const rank_state *s, const gci_sched *sched, int32_t a, int32_t b)
{
    return s->before[(size_t)b * step_words(sched) + (size_t)a / 64] >> (a % 64) & 1;
}

static bool inside(const rank_state *s, uint8_t buffer, size_t at, size_t bytes)
{
    return buffer <= GCI_BUF_TEMP && at <= s->buffer[buffer].bytes && bytes <= s->buffer[buffer].bytes - at;
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
    else if (step->kind != GCI_STEP_RECV && !inside(s, step->from, step->from_at, step->bytes))
        FAIL(c, "rank %d step %d: reads outside buffer %d", r, i, step->from);
    else if (step->kind != GCI_STEP_SEND && !inside(s, step->to, step->to_at, step->bytes))
        FAIL(c, "rank %d step %d: writes outside buffer %d", r, i, step->to);
    else if (step->kind != GCI_STEP_SEND && step->bytes > 0 && step->to == GCI_BUF_SEND)
        FAIL(c, "rank %d step %d: writes the send buffer", r, i);
    else if (step->kind == GCI_STEP_REDUCE && (!is_reduction(call->coll) || step->bytes % call->elem_bytes))
        FAIL(c, "rank %d step %d: reduces a part of an element", r, i);
    else if (step->waits < 0 || step->first_wait < 0 || step->first_wait > sched->waits - step->waits)
        FAIL(c, "rank %d step %d: waits out of range", r, i);
}

/* Fills the sets of steps before each step. */
static void check_waits(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    rank_state *s = &c->rank[r];
    size_t words = step_words(sched);
    for (int32_t i = 0; i < sched->steps && !c->failed; i++) {
        check_step(c, r, i);
        const gci_step *step = &sched->step[i];
        uint64_t *mine = s->before + (size_t)i * words;
        for (int32_t k = 0; k < step->waits && !c->failed; k++) {
            int32_t earlier = sched->wait[step->first_wait + k];
            if (earlier < 0 || earlier >= i) {
                FAIL(c, "rank %d step %d: waits for step %d", r, i, earlier);
                return;
            }
            for (size_t w = 0; w < words; w++)
                mine[w] |= s->before[(size_t)earlier * words + w];
            mine[earlier / 64] |= UINT64_C(1) << (earlier % 64);
        }
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

/* Of one byte: who wrote it last, who has read it since (a chain through reads[]). */
typedef struct touch { int32_t writer, reads; } touch;
typedef struct read_link { int32_t step, next; } read_link;

typedef struct race_check {
    checker   *c;
    int        r;
    touch     *touch[3];        /* by buffer; a shared send buffer points into recv's */
    read_link *link;
    int32_t    links, room;
} race_check;

static void touch_read(race_check *x, uint8_t buffer, size_t at, int32_t i)
{
    touch *t = &x->touch[buffer][at];
    const gci_sched *sched = &x->c->job->sched[x->r];
    if (t->writer > 0 && !is_before(&x->c->rank[x->r], sched, t->writer - 1, i))
        FAIL(x->c, "rank %d: step %d reads what step %d writes, unordered", x->r, i, t->writer - 1);
    if (x->links == x->room) {
        x->room = x->room ? 2 * x->room : 256;
        x->link = need(realloc(x->link, (size_t)x->room * sizeof *x->link));
    }
    x->link[x->links] = (read_link){ i, t->reads };
    t->reads = ++x->links;
}

static void touch_write(race_check *x, uint8_t buffer, size_t at, int32_t i)
{
    touch *t = &x->touch[buffer][at];
    const gci_sched *sched = &x->c->job->sched[x->r];
    const rank_state *s = &x->c->rank[x->r];
    if (t->writer > 0 && !is_before(s, sched, t->writer - 1, i))
        FAIL(x->c, "rank %d: steps %d and %d write the same, unordered", x->r, t->writer - 1, i);
    for (int32_t k = t->reads; k > 0; k = x->link[k - 1].next)
        if (x->link[k - 1].step != i && !is_before(s, sched, x->link[k - 1].step, i))
            FAIL(x->c, "rank %d: step %d writes what step %d reads, unordered", x->r, i, x->link[k - 1].step);
    *t = (touch){ .writer = i + 1 };
}

static void check_races(checker *c, int r)
{
    const gci_sched *sched = &c->job->sched[r];
    const rank_state *s = &c->rank[r];
    race_check x = { .c = c, .r = r };
    touch *send = zeroed(s->send_bytes, sizeof *send), *recv = zeroed(s->recv_bytes, sizeof *recv);
    x.touch[GCI_BUF_TEMP] = zeroed(s->temp_bytes, sizeof(touch));
    x.touch[GCI_BUF_RECV] = recv;
    x.touch[GCI_BUF_SEND] = s->send ? send : recv + (s->buffer[GCI_BUF_SEND].at - s->recv);
    for (int32_t i = 0; i < sched->steps && !c->failed; i++) {
        const gci_step *step = &sched->step[i];
        for (size_t b = 0; b < step->bytes; b++) {
            if (step->kind != GCI_STEP_RECV)
                touch_read(&x, step->from, step->from_at + b, i);
            if (step->kind == GCI_STEP_REDUCE)
                touch_read(&x, step->to, step->to_at + b, i);
        }
        for (size_t b = 0; b < step->bytes && step->kind != GCI_STEP_SEND; b++)
            touch_write(&x, step->to, step->to_at + b, i);
    }
    free(x.link);
    free(x.touch[GCI_BUF_TEMP]);
    free(send);
    free(recv);
}

/* ---- execution --------------------------------------------------------------------------------------------------- */

static symbol *place(const rank_state *s, uint8_t buffer, size_t at)
{
    return s->buffer[buffer].at + at;
}

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
static void gather_knowledge(checker *c, int r, int32_t i, uint64_t *out)
{
    const gci_sched *sched = &c->job->sched[r];
    out[r / 64] |= UINT64_C(1) << (r % 64);
    for (int32_t k = 0; k < sched->step[i].waits; k++) {
        const uint64_t *earlier = c->rank[r].knows + (size_t)sched->wait[sched->step[i].first_wait + k] * c->words;
        for (size_t w = 0; w < c->words; w++)
            out[w] |= earlier[w];
    }
}

static void deliver(checker *c, int from, int32_t a, int to, int32_t b)
{
    const gci_step *send = &c->job->sched[from].step[a], *recv = &c->job->sched[to].step[b];
    if (send->bytes != recv->bytes) {
        FAIL(c, "rank %d step %d sends %zu bytes, rank %d step %d receives %zu", from, a, send->bytes, to, b, recv->bytes);
        return;
    }
    const symbol *data = place(&c->rank[from], send->from, send->from_at);
    for (size_t i = 0; i < send->bytes; i++)
        if (data[i].count == 0) {
            FAIL(c, "rank %d step %d sends what is not there yet", from, a);
            return;
        }
    memcpy(place(&c->rank[to], recv->to, recv->to_at), data, send->bytes * sizeof *data);
    uint64_t *told = c->rank[from].knows + (size_t)a * c->words, *heard = c->rank[to].knows + (size_t)b * c->words;
    for (size_t w = 0; w < c->words; w++)
        heard[w] |= told[w];
    c->messages++;
    end_step(c, from, a);
    end_step(c, to, b);
}

static void post(checker *c, int r, int32_t i)
{
    const gci_step *step = &c->job->sched[r].step[i];
    bool send = step->kind == GCI_STEP_SEND;
    int from = send ? r : step->peer, to = send ? step->peer : r;
    pair_queue *q = &c->pair[(size_t)from * (size_t)c->job->ranks + (size_t)to];
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
    uint32_t elem_bytes = (uint32_t)c->job->call[r].elem_bytes;
    symbol *to = place(&c->rank[r], step->to, step->to_at);
    const symbol *from = place(&c->rank[r], step->from, step->from_at);
    for (size_t b = 0; b < step->bytes; b++) {
        if (to[b].count == 0 || from[b].count == 0)
            FAIL(c, "rank %d step %d reduces what is not there yet", r, i);
        else if (to[b].elem != from[b].elem || to[b].sub != from[b].sub || to[b].sub != b % elem_bytes)
            FAIL(c, "rank %d step %d reduces different elements", r, i);
        to[b] = step->swapped ? combined(to[b], from[b]) : combined(from[b], to[b]);
    }
}

static void run_step(checker *c, int r, int32_t i)
{
    const gci_step *step = &c->job->sched[r].step[i];
    gather_knowledge(c, r, i, c->rank[r].knows + (size_t)i * c->words);
    if (step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV) {
        post(c, r, i);
        return;
    }
    if (step->kind == GCI_STEP_REDUCE)
        reduce(c, r, i);
    else if (step->bytes > 0)
        memmove(place(&c->rank[r], step->to, step->to_at), place(&c->rank[r], step->from, step->from_at),
                step->bytes * sizeof(symbol));
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
        while (s->head < s->end && !c->failed) {
            int32_t i = s->queue[s->head];
            if (s->head + 1 == s->end) {        /* empty before the step runs, so that it may make the rank ready again */
                s->head++;
                run_step(c, r, i);
                break;
            }
            s->head++;
            run_step(c, r, i);
        }
    }
    for (int r = 0; r < c->job->ranks; r++)
        for (int32_t i = 0; i < c->job->sched[r].steps; i++)
            if (!c->rank[r].ended[i])
                FAIL(c, "rank %d step %d never ends", r, i);
}

/* ---- the result -------------------------------------------------------------------------------------------------- */

static void check_reduced(checker *c, int r, size_t i, symbol s, symbol everywhere, uint64_t all)
{
    const gci_call *call = &c->job->call[r];
    if (s.count != (uint32_t)call->ranks || s.set != all)
        FAIL(c, "rank %d byte %zu: %u operands, not each rank's once", r, i, s.count);
    else if (s.elem != i / call->elem_bytes || s.sub != i % call->elem_bytes)
        FAIL(c, "rank %d byte %zu: belongs to element %u", r, i, s.elem);
    else if (!call->commutative && !s.ordered)
        FAIL(c, "rank %d byte %zu: not in rank order", r, i);
    else if (!call->associative && !(s.ordered && s.from_left))
        FAIL(c, "rank %d byte %zu: not evaluated from rank 0 up", r, i);
    else if (s.shape != everywhere.shape)
        FAIL(c, "rank %d byte %zu: another expression than at the first rank", r, i);
}

static void check_result(checker *c, int r)
{
    const gci_call *call = &c->job->call[r];
    const symbol *recv = c->rank[r].recv;
    uint64_t all = 0;
    for (int k = 0; k < call->ranks; k++)
        all += mix((uint64_t)k);
    const symbol *first = c->rank[call->coll == GCI_REDUCE ? call->root : 0].recv;
    for (size_t i = 0; i < c->rank[r].recv_bytes && !c->failed; i++) {
        if (is_reduction(call->coll)) {
            check_reduced(c, r, i, recv[i], first[i], all);
            continue;
        }
        bool blocks = call->coll != GCI_BCAST;
        int32_t of = blocks ? (int32_t)(i / call->bytes) : call->root;
        size_t at = blocks ? i % call->bytes : i;
        if (recv[i].count != 1 || recv[i].first != of || recv[i].elem != at)
            FAIL(c, "rank %d byte %zu: is byte %u of rank %d (%u operands)", r, i, recv[i].elem, recv[i].first, recv[i].count);
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
}

/* ---- all of it --------------------------------------------------------------------------------------------------- */

static void checker_free(checker *c)
{
    for (int r = 0; r < c->job->ranks; r++) {
        rank_state *s = &c->rank[r];
        free(s->send);
        free(s->recv);
        free(s->temp);
        free(s->waits);
        free(s->first_after);
        free(s->after);
        free(s->ended);
        free(s->before);
        free(s->knows);
        free(s->queue);
    }
    for (size_t i = 0; i < (size_t)c->job->ranks * (size_t)c->job->ranks; i++)
        free(c->pair[i].step);
    free(c->rank);
    free(c->pair);
    free(c->work);
}

int sched_check(const check_job *job, char why[CHECK_TEXT])
{
    size_t ranks = (size_t)job->ranks;
    checker c = { .job = job, .why = why, .words = ranks / 64 + 1 };
    c.rank = zeroed(ranks, sizeof *c.rank);
    c.pair = zeroed(ranks * ranks, sizeof *c.pair);
    c.work = zeroed(ranks + 1, sizeof *c.work);
    why[0] = 0;
    for (int r = 0; r < job->ranks && !c.failed; r++) {
        const gci_sched *sched = &job->sched[r];
        size_t steps = (size_t)sched->steps;
        rank_state *s = &c.rank[r];
        set_up(&c, r);
        s->waits = zeroed(steps, sizeof *s->waits);
        s->first_after = zeroed(steps + 1, sizeof *s->first_after);
        s->ended = zeroed(steps, sizeof *s->ended);
        s->queue = zeroed(steps, sizeof *s->queue);
        s->before = zeroed(steps * step_words(sched), sizeof *s->before);
        s->knows = zeroed(steps * c.words, sizeof *s->knows);
        check_waits(&c, r);
        if (!c.failed)
            check_order(&c, r);
        if (!c.failed)
            check_races(&c, r);
    }
    if (!c.failed)
        execute(&c);
    for (int r = 0; r < job->ranks && !c.failed; r++) {
        if (job->call[r].coll == GCI_BARRIER)
            check_barrier(&c, r);
        else
            check_result(&c, r);
    }
    checker_free(&c);
    return c.failed ? -1 : c.messages;
}
