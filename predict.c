/* predict.c: how long a collective takes under a model: the schedules of all ranks, evaluated step by step (pure).
 * SPDX-License-Identifier: MIT
 *
 * Events in order of time, ties in order of their making, so equal input gives equal bits. A rank does what its executor
 * (coll.c) does: what is received goes first, then what is ready in list order; sends, receptions, reductions and copies take
 * turns on its processor. Messages between two ranks match in list order, and go one after another (a channel is one
 * connection, or, without a NIC, all that a rank sends).
 *
 * A message is cut into pieces. A piece flows through the lanes of its way, each free for one piece at a time:
 *
 *     port or NIC -> own channel -> uplink -> trunk  ...latency...  downlink -> port or NIC
 *
 * It begins on a lane when that is free and its first byte has come, and leaves it no sooner than its last byte. The next piece
 * follows when this one has left the last lane before the latency: so of all that meet on a lane each has one piece waiting
 * there, and they take turns, as TCP flows share a link. What is beyond the latency takes pieces as they come.
 *
 * A send ends when its last byte has left. What is longer than the model's eager limit is announced, and flows once its receive
 * is posted and the grant has come back. Windows and credits, which hold up none of the library's schedules for long, are not
 * part of it.
 */
#include "gridcomm_int.h"

#include <math.h>

enum { PREDICT_PIECE = 8192,            /* bytes of a piece, but ... */
       PREDICT_PIECES = 16,             /* ... no more of a message, ... */
       PREDICT_PIECES_ALL = 65536,      /* ... and no more of all together, for these are the time that a prediction takes */
       PREDICT_LANES = 4 };             /* on either side of the latency, at most */

typedef struct predict_step { const gci_step *is; int32_t rank, waits, first_after, next, message; } predict_step;
typedef struct predict_message {
    int32_t send, recv, channel;
    int32_t next;                       /* behind it in its channel */
    int32_t pieces, left, coming;       /* all; not yet begun; not yet there */
    bool    posted, come;               /* its receive; it, or its announcement */
    const gci_cost_model *cost;
} predict_message;
typedef struct predict_channel { double free; int32_t head, tail; } predict_channel;
typedef struct predict_rank { double busy, end; int32_t head, tail; } predict_rank;     /* head: of what is ready */

enum predict_kind { PREDICT_WAKE, PREDICT_DONE, PREDICT_ANNOUNCED, PREDICT_GRANTED, PREDICT_LEFT, PREDICT_PIECE_IN,
                    PREDICT_COME };
typedef struct predict_event { double at; uint64_t order; int32_t kind, of; } predict_event;    /* of: rank, step or message */

typedef struct predict {
    gci_env            *env;
    const gc_model     *m;
    predict_step       *step;
    int32_t            *after;          /* steps that wait for a step */
    predict_message    *message;
    predict_channel    *channel;
    predict_rank       *rank;
    double             *free;           /* of hosts, ranks, sites: out and in; of pairs of sites */
    predict_event      *event;          /* a heap of four */
    size_t              events, room;
    uint64_t            order;
    double              limit;          /* nobody asks what happens after it */
    int32_t             steps, messages, left;
    gci_partners        partners;
    int                 error;
} predict;

/* ---- events ------------------------------------------------------------------------------------------------------ */

static bool predict_before(const predict_event *a, const predict_event *b)
{
    return a->at < b->at || (a->at <= b->at && a->order < b->order);
}

static void predict_at(predict *p, double at, enum predict_kind kind, int32_t of)
{
    const predict_event e = { at, p->order++, (int32_t)kind, of };
    if (p->events == p->room) {
        size_t room = p->room ? 2 * p->room : 1024;
        predict_event *grown = gci_realloc(p->env, p->event, room * sizeof *grown);
        if (!grown) {
            p->error = GC_ERR_NOMEM;
            return;
        }
        p->event = grown;
        p->room = room;
    }
    size_t i = p->events++;
    for (; i > 0 && predict_before(&e, &p->event[(i - 1) / 4]); i = (i - 1) / 4)
        p->event[i] = p->event[(i - 1) / 4];
    p->event[i] = e;
}

static predict_event predict_take(predict *p)
{
    predict_event top = p->event[0], last = p->event[--p->events];
    for (size_t i = 0, child; ; i = child) {
        child = 4 * i + 1;
        for (size_t k = child + 1; k < gci_min(4 * i + 5, p->events); k++)
            if (predict_before(&p->event[k], &p->event[child]))
                child = k;
        if (child >= p->events || !predict_before(&p->event[child], &last)) {
            p->event[i] = last;
            return top;
        }
        p->event[i] = p->event[child];
    }
}

/* ---- messages on their way --------------------------------------------------------------------------------------- */

typedef struct predict_lane { double *free, time; } predict_lane;       /* time: of a piece */
typedef struct predict_way {
    int from, to;                       /* ranks ... */
    int32_t a, b, x, y;                 /* ... their classes and sites */
    double  bytes, gap;                 /* of a piece */
    bool    apart;                      /* on two hosts */
} predict_way;

static predict_way predict_way_of(const predict *p, const predict_message *msg)
{
    const gc_model *m = p->m;
    size_t bytes = p->step[msg->send].is->bytes;
    predict_way w = { .from = p->step[msg->send].rank, .to = p->step[msg->recv].rank };
    w.a = m->class_of[w.from];
    w.b = m->class_of[w.to];
    w.x = m->site_of[w.a];
    w.y = m->site_of[w.b];
    w.apart = m->host_of[w.from] != m->host_of[w.to];
    w.bytes = (double)(bytes + m->header) / msg->pieces;
    w.gap = gci_model_gap(m, msg->cost, bytes) / msg->pieces;
    return w;
}

static int predict_lane_add(predict_lane lane[], int n, double *free, double time)
{
    lane[n] = (predict_lane){ free, time };
    return n + (time > 0);
}

/* Which of the two lanes of a port; what goes out and what comes in may share one. */
static double *predict_port(double *free, const gci_port *port, bool in)
{
    return free + (in && !(port && port->together));
}

/* The port of a rank or its host, out or in. The gap is that of the port, or, if that is the NIC, of the channel. */
static int predict_end(predict *p, const predict_message *msg, const predict_way *w, bool in, predict_lane lane[], int n)
{
    int rank = in ? w->to : w->from;
    const gci_port *nic = &p->m->nic[in ? w->b : w->a];
    double rate = in ? nic->in : nic->out;
    if (!w->apart || rate <= 0)
        return predict_lane_add(lane, n, predict_port(p->free + 2 * (p->m->hosts + rank), NULL, in), w->gap);
    n = predict_lane_add(lane, n, predict_port(p->free + 2 * p->m->host_of[rank], nic, in), w->bytes * rate);
    return in ? n : predict_lane_add(lane, n, &p->channel[msg->channel].free, w->gap);
}

static int predict_way_out(predict *p, const predict_message *msg, const predict_way *w, predict_lane lane[])
{
    const gc_model *m = p->m;
    double *sites = p->free + 2 * (m->hosts + m->ranks);
    int n = predict_end(p, msg, w, false, lane, 0);
    if (w->x == w->y || !w->apart)
        return n;
    int32_t trunk = w->x * m->sites + w->y;
    n = predict_lane_add(lane, n, predict_port(sites + 2 * w->x, &m->uplink[w->x], false), w->bytes * m->uplink[w->x].out);
    return predict_lane_add(lane, n, sites + 2 * m->sites + trunk, w->bytes * m->trunk[trunk]);
}

static int predict_way_in(predict *p, const predict_message *msg, const predict_way *w, predict_lane lane[])
{
    double *sites = p->free + 2 * (p->m->hosts + p->m->ranks);
    const gci_port *uplink = &p->m->uplink[w->y];
    int n = 0;
    if (w->x != w->y && w->apart)
        n = predict_lane_add(lane, n, predict_port(sites + 2 * w->y, uplink, true), w->bytes * uplink->in);
    return predict_end(p, msg, w, true, lane, n);
}

/* A piece whose first and last byte come at those times goes through the lanes; the same behind them. */
static void predict_flow(const predict_lane lane[], int lanes, double *first, double *last)
{
    for (int i = 0; i < lanes; i++) {
        double begin = gci_max_real(gci_max_real(*lane[i].free, *first), *last - lane[i].time);
        *first = begin;
        *last = *lane[i].free = begin + lane[i].time;
    }
}

/* The latency of a message is that until the receiver has taken it: less what his processor spends on it; or how much longer that
 * takes (below 0). */
static double predict_latency(const predict *p, const predict_message *msg)
{
    size_t bytes = p->step[msg->recv].is->bytes;
    return gci_cost_latency(msg->cost, bytes) - gci_curve_at(&msg->cost->curve[GCI_COST_RECV], bytes);
}

/* The next piece of a message. */
static void predict_emit(predict *p, int32_t i, double now)
{
    predict_message *msg = &p->message[i];
    predict_way w = predict_way_of(p, msg);
    predict_lane lane[PREDICT_LANES + 1], in[PREDICT_LANES];
    double first = now, last = now, latency = gci_max_real(predict_latency(p, msg), 0);
    msg->left--;
    predict_flow(lane, predict_way_out(p, msg, &w, lane), &first, &last);
    predict_at(p, last, PREDICT_LEFT, i);
    double through = predict_way_in(p, msg, &w, in) > 0 ? in[0].time : 0;
    predict_at(p, gci_max_real(first, last - through) + latency, PREDICT_PIECE_IN, i);
}

/* A piece comes to the lanes beyond the latency: so late that it keeps none longer than it has to. */
static void predict_piece_in(predict *p, int32_t i, double now)
{
    predict_message *msg = &p->message[i];
    predict_way w = predict_way_of(p, msg);
    predict_lane lane[PREDICT_LANES];
    double first = now, last = now;
    predict_flow(lane, predict_way_in(p, msg, &w, lane), &first, &last);
    if (--msg->coming > 0)
        return;
    double early = gci_max_real(-predict_latency(p, msg), 0);
    predict_at(p, gci_max_real(now, last - early), PREDICT_COME, i);
}

/* A message may go: when those before it in its channel have left. */
static void predict_go(predict *p, int32_t i, double now)
{
    predict_channel *c = &p->channel[p->message[i].channel];
    p->message[i].next = -1;
    if (c->head >= 0) {
        p->message[c->tail].next = i;
        c->tail = i;
        return;
    }
    c->head = c->tail = i;
    predict_emit(p, i, now);
}

static double predict_back(const predict *p, const predict_message *msg)
{
    return gci_model_cost(p->m, p->step[msg->recv].rank, p->step[msg->send].rank)->latency;
}

static bool predict_is_eager(const predict *p, const predict_message *msg)
{
    return p->m->eager == 0 || p->step[msg->send].is->bytes <= p->m->eager;
}

/* ---- ranks ------------------------------------------------------------------------------------------------------- */

/* What is received goes first, all else in list order. */
static bool predict_goes_first(const predict *p, int32_t a, int32_t b)
{
    bool recv_a = p->step[a].is->kind == GCI_STEP_RECV, recv_b = p->step[b].is->kind == GCI_STEP_RECV;
    return recv_a != recv_b ? recv_a : a < b;
}

static void predict_ready(predict *p, int32_t i)
{
    predict_rank *r = &p->rank[p->step[i].rank];
    int32_t *at = &r->head;
    if (r->head >= 0 && predict_goes_first(p, r->tail, i))
        at = &p->step[r->tail].next;
    while (*at >= 0 && predict_goes_first(p, *at, i))
        at = &p->step[*at].next;
    p->step[i].next = *at;
    if (*at < 0)
        r->tail = i;
    *at = i;
}

/* A step waits for nothing any more. A receive is posted. */
static void predict_begin(predict *p, int32_t i, double now)
{
    predict_step *s = &p->step[i];
    if (s->is->kind != GCI_STEP_RECV) {
        predict_ready(p, i);
        return;
    }
    predict_message *msg = &p->message[s->message];
    msg->posted = true;
    if (msg->come && msg->coming == 0)
        predict_ready(p, i);
    else if (msg->come)
        predict_at(p, now + predict_back(p, msg), PREDICT_GRANTED, s->message);
}

static void predict_done(predict *p, int32_t i, double now)
{
    predict_rank *r = &p->rank[p->step[i].rank];
    r->end = gci_max_real(r->end, now);
    p->left--;
    for (int32_t k = p->step[i].first_after; k < p->step[i + 1].first_after; k++)
        if (--p->step[p->after[k]].waits == 0)
            predict_begin(p, p->after[k], now);
}

/* Returns what the processor spends on it. */
static double predict_do(predict *p, int32_t i, double now)
{
    const predict_step *s = &p->step[i];
    double bytes = (double)s->is->bytes;
    if (s->is->kind >= GCI_STEP_REDUCE)
        return bytes * (s->is->kind == GCI_STEP_REDUCE ? p->m->reduce : p->m->copy);
    predict_message *msg = &p->message[s->message];
    if (s->is->kind == GCI_STEP_RECV)
        return gci_curve_at(&msg->cost->curve[GCI_COST_RECV], s->is->bytes);
    if (predict_is_eager(p, msg))
        predict_go(p, s->message, now);
    else
        predict_at(p, now + msg->cost->latency, PREDICT_ANNOUNCED, s->message);
    return gci_curve_at(&msg->cost->curve[GCI_COST_SEND], s->is->bytes);
}

/* A rank does what is ready, as long as its processor is free. */
static void predict_run(predict *p, int32_t rank, double now)
{
    predict_rank *r = &p->rank[rank];
    while (r->head >= 0 && r->busy <= now) {
        int32_t i = r->head;
        r->head = p->step[i].next;
        double cost = predict_do(p, i, now);
        bool sends = p->step[i].is->kind == GCI_STEP_SEND;
        if (cost > 0) {
            r->busy = now + cost;
            predict_at(p, r->busy, sends ? PREDICT_WAKE : PREDICT_DONE, sends ? rank : i);
        } else if (!sends) {
            predict_done(p, i, now);
        }
    }
}

static void predict_left(predict *p, int32_t i, double now)
{
    predict_message *msg = &p->message[i];
    predict_channel *c = &p->channel[msg->channel];
    if (msg->left > 0) {
        predict_emit(p, i, now);
        return;
    }
    c->head = msg->next;
    if (c->head >= 0)
        predict_emit(p, c->head, now);
    predict_done(p, msg->send, now);
    predict_run(p, p->step[msg->send].rank, now);
}

static void predict_happens(predict *p, const predict_event *e)
{
    predict_message *msg = e->kind >= PREDICT_ANNOUNCED ? &p->message[e->of] : NULL;
    switch ((enum predict_kind)e->kind) {
    case PREDICT_WAKE:
        predict_run(p, e->of, e->at);
        break;
    case PREDICT_DONE:
        predict_done(p, e->of, e->at);
        predict_run(p, p->step[e->of].rank, e->at);
        break;
    case PREDICT_ANNOUNCED:
        msg->come = true;
        if (msg->posted)
            predict_at(p, e->at + predict_back(p, msg), PREDICT_GRANTED, e->of);
        break;
    case PREDICT_GRANTED:
        predict_go(p, e->of, e->at);
        break;
    case PREDICT_LEFT:
        predict_left(p, e->of, e->at);
        break;
    case PREDICT_PIECE_IN:
        predict_piece_in(p, e->of, e->at);
        break;
    case PREDICT_COME:
        msg->come = true;
        if (msg->posted) {
            predict_ready(p, msg->recv);
            predict_run(p, p->step[msg->recv].rank, e->at);
        }
        break;
    }
}

/* ---- from schedules ---------------------------------------------------------------------------------------------- */

static bool predict_count(predict *p, const gci_sched sched[], int32_t *waits)
{
    int64_t steps = 0, all = 0;
    for (int r = 0; r < p->m->ranks; r++) {
        steps += sched[r].steps;
        all += sched[r].waits;
        for (int32_t i = 0; i < sched[r].steps; i++)
            p->messages += sched[r].step[i].kind == GCI_STEP_SEND;
    }
    p->steps = p->left = (int32_t)steps;
    *waits = (int32_t)all;
    return steps < INT32_MAX && all < INT32_MAX;
}

static bool predict_allocate(predict *p, int32_t waits)
{
    size_t messages = (size_t)p->messages + 1, ranks = (size_t)p->m->ranks, sites = (size_t)p->m->sites;
    size_t lanes = 2 * ((size_t)p->m->hosts + ranks + sites) + sites * sites;
    p->step = gci_alloc(p->env, ((size_t)p->steps + 2) * sizeof *p->step);
    p->after = gci_alloc(p->env, ((size_t)waits + 1) * sizeof *p->after);
    p->message = gci_alloc(p->env, messages * sizeof *p->message);
    p->channel = gci_alloc(p->env, (messages + ranks) * sizeof *p->channel);
    p->rank = gci_alloc(p->env, ranks * sizeof *p->rank);
    p->free = gci_alloc(p->env, lanes * sizeof *p->free);
    return p->step && p->after && p->message && p->channel && p->rank && p->free;
}

/* What waits for each step, as in coll_invert: counts are put two ahead, and the filling moves each to its place. */
static void predict_steps(predict *p, const gci_sched sched[])
{
    int32_t n = 0;
    for (int r = 0; r < p->m->ranks; r++) {
        for (int32_t i = 0; i < sched[r].steps; i++) {
            const gci_step *is = &sched[r].step[i];
            predict_step *s = &p->step[n + i];
            s->is = is;
            s->rank = r;
            s->waits = is->waits;
            for (int32_t k = 0; k < is->waits; k++)
                p->step[n + sched[r].wait[is->first_wait + k] + 2].first_after++;
        }
        n += sched[r].steps;
    }
    for (int32_t i = 1; i <= n + 1; i++)
        p->step[i].first_after += p->step[i - 1].first_after;
    n = 0;
    for (int r = 0; r < p->m->ranks; n += sched[r++].steps)
        for (int32_t i = 0; i < sched[r].steps; i++)
            for (int32_t k = 0; k < sched[r].step[i].waits; k++) {
                int32_t earlier = n + sched[r].wait[sched[r].step[i].first_wait + k];
                p->after[p->step[earlier + 1].first_after++] = n + i;
            }
}

/* The messages, by receiver and sender, those of two ranks in list order. first: [ranks + 1] of each receiver. */
static void predict_sends(predict *p, int32_t first[])
{
    for (int32_t i = 0; i < p->steps; i++)
        if (p->step[i].is->kind == GCI_STEP_SEND)
            first[p->step[i].is->peer + 1]++;
    for (int r = 0; r < p->m->ranks; r++)
        first[r + 1] += first[r];
    size_t most = gci_min(PREDICT_PIECES, PREDICT_PIECES_ALL / ((size_t)p->messages + 1));
    for (int32_t i = 0; i < p->steps; i++) {
        if (p->step[i].is->kind != GCI_STEP_SEND)
            continue;
        int32_t n = first[p->step[i].is->peer]++;
        size_t pieces = gci_max(gci_min(p->step[i].is->bytes / PREDICT_PIECE, most), 1);
        p->message[n] = (predict_message){ .send = i, .recv = -1, .pieces = (int32_t)pieces, .left = (int32_t)pieces,
                                           .coming = (int32_t)pieces };
        p->step[i].message = n;
    }
    for (int r = p->m->ranks; r > 0; r--)
        first[r] = first[r - 1];
    first[0] = 0;
}

static int predict_from(const predict *p, int32_t message) { return p->step[p->message[message].send].rank; }

/* Through the NIC a rank's messages take turns; through its own port one goes after another, whoever they are for. */
static int32_t predict_channel_of(const predict *p, int from, int to, int32_t channels)
{
    bool nic = p->m->host_of[from] != p->m->host_of[to] && p->m->nic[p->m->class_of[from]].out > 0;
    return nic ? p->m->ranks + channels - 1 : from;
}

/* Each receive has its message: false: no, or one of another length. */
static bool predict_match(predict *p, const int32_t first[], int32_t next[])
{
    int32_t i = 0, channels = 0, received = 0;
    for (int r = 0; r < p->m->ranks; r++) {
        for (int32_t m = first[r]; m < first[r + 1]; m++) {
            bool same = m > first[r] && predict_from(p, m) == predict_from(p, m - 1);
            if (!same)
                next[predict_from(p, m)] = m;
            channels += !same;
            p->message[m].channel = predict_channel_of(p, predict_from(p, m), r, channels);
            p->message[m].cost = gci_model_cost(p->m, predict_from(p, m), r);
        }
        for (; i < p->steps && p->step[i].rank == r; i++) {
            const gci_step *is = p->step[i].is;
            if (is->kind != GCI_STEP_RECV)
                continue;
            int32_t m = next[is->peer]++;
            if (m < first[r] || m >= first[r + 1] || predict_from(p, m) != is->peer ||
                p->step[p->message[m].send].is->bytes != is->bytes)
                return false;
            p->message[m].recv = i;
            p->step[i].message = m;
            received++;
        }
    }
    return received == p->messages;
}

/* With how many others, on other hosts, the busiest rank exchanges more than a packet. sends, gets: [ranks] */
static void predict_partners(const predict *p, const int32_t first[], int32_t sends[], int32_t gets[], gci_partners *most)
{
    memset(sends, 0, (size_t)p->m->ranks * sizeof *sends);
    memset(gets, 0, (size_t)p->m->ranks * sizeof *gets);
    for (int r = 0; r < p->m->ranks; r++)
        for (int32_t m = first[r], from = -1; m < first[r + 1]; m++) {
            int peer = predict_from(p, m);
            if (peer != from && p->m->host_of[peer] != p->m->host_of[r] && p->step[p->message[m].send].is->bytes > GCI_TRIAL_PACKET) {
                from = peer;
                gets[r]++;
                sends[from]++;
            }
        }
    *most = (gci_partners){ 0, 0 };
    for (int r = 0; r < p->m->ranks; r++) {
        most->either = gci_max32(most->either, gci_max32(sends[r], gets[r]));
        most->both = gci_max32(most->both, sends[r] < gets[r] ? sends[r] : gets[r]);
    }
}

static int predict_prepare(predict *p, const gci_sched sched[])
{
    int32_t waits = 0;
    if (!predict_count(p, sched, &waits) || !predict_allocate(p, waits))
        return GC_ERR_NOMEM;
    predict_steps(p, sched);
    size_t ranks = (size_t)p->m->ranks;
    int32_t *first = gci_alloc(p->env, (3 * ranks + 1) * sizeof *first);
    if (!first)
        return GC_ERR_NOMEM;
    predict_sends(p, first);
    bool fits = predict_match(p, first, first + ranks + 1);
    predict_partners(p, first, first + ranks + 1, first + 2 * ranks + 1, &p->partners);
    gci_free(p->env, first);
    for (size_t i = 0; i < (size_t)p->messages + ranks; i++)
        p->channel[i].head = -1;
    for (size_t r = 0; r < ranks; r++)
        p->rank[r].head = -1;
    return fits ? GC_OK : GC_ERR_ARG;
}

static void predict_all(predict *p)
{
    for (int32_t i = 0; i < p->steps; i++)
        if (p->step[i].waits == 0)
            predict_begin(p, i, 0);
    for (int r = 0; r < p->m->ranks; r++)
        predict_run(p, r, 0);
    while (p->events > 0 && !p->error) {
        predict_event e = predict_take(p);
        if (e.at > p->limit) {
            p->rank[0].end = e.at;      /* some rank's is later still */
            return;
        }
        predict_happens(p, &e);
    }
    if (!p->error && p->left > 0)
        p->error = GC_ERR_ARG;
}

static int predict_until(gci_env *env, const gc_model *model, const gci_sched sched[], double limit, double seconds[],
                         double *longest, gci_partners *partners)
{
    predict p = { .env = env, .m = model, .limit = limit };
    p.error = predict_prepare(&p, sched);
    if (p.error == GC_OK)
        predict_all(&p);
    *longest = 0;
    *partners = p.partners;
    for (int r = 0; r < model->ranks && p.error == GC_OK; r++) {
        *longest = gci_max_real(*longest, p.rank[r].end);
        if (seconds)
            seconds[r] = p.rank[r].end;
    }
    gci_free(env, p.step);
    gci_free(env, p.after);
    gci_free(env, p.message);
    gci_free(env, p.channel);
    gci_free(env, p.rank);
    gci_free(env, p.free);
    gci_free(env, p.event);
    return p.error;
}

GCI int gci_predict(gci_env *env, const gc_model *model, const gci_sched sched[], double seconds[], double *longest)
{
    gci_partners partners;
    return predict_until(env, model, sched, HUGE_VAL, seconds, longest, &partners);
}

static int predict_call(gci_env *env, const gc_model *model, const gci_call *call, const char *name, size_t most,
                        double limit, double seconds[], double *longest, gci_partners *partners)
{
    const gci_algo *algo = gci_algo_find(call->coll, name);
    gci_call own = *call;
    gci_tree_seen seen = { .t = NULL };
    size_t steps = 0;
    gci_sched *sched = gci_alloc(env, (size_t)model->ranks * sizeof *sched);
    int err = sched ? GC_OK : GC_ERR_NOMEM;
    own.ranks = model->ranks;
    own.model = model;
    own.seen = &seen;
    for (own.rank = 0; own.rank < model->ranks && err == GC_OK; own.rank++) {
        err = gci_sched_build(env, algo, name, &own, &sched[own.rank]);
        steps += (size_t)sched[own.rank].steps;
        if (err == GC_OK && steps > most)
            err = GC_ERR_UNSUPPORTED;
    }
    if (err == GC_OK)
        err = predict_until(env, model, sched, limit, seconds, longest, partners);
    for (int r = 0; sched && r < model->ranks; r++)
        gci_sched_free(env, &sched[r]);
    gci_free(env, sched);
    gci_tree_forget(env, &seen);
    return err;
}

GCI int gci_predict_call(gci_env *env, const gc_model *model, const gci_call *call, const char *name, double seconds[],
                         double *longest)
{
    gci_partners partners;
    return predict_call(env, model, call, name, SIZE_MAX, HUGE_VAL, seconds, longest, &partners);
}

GCI int gci_predict_within(gci_env *env, const gc_model *model, const gci_call *call, const char *name, size_t most_steps,
                           double most_seconds, double *longest, gci_partners *partners)
{
    return predict_call(env, model, call, name, most_steps, most_seconds, NULL, longest, partners);
}
