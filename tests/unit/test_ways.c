/* test_ways.c: pairs whose ways change under way. Two worlds exchange random messages over an overlay that this file plays:
 * it ends ways at random, loses all that was in them, and begins others, links and routes in turn, at either side in its own
 * time. Nothing may be lost, doubled or out of order, and nothing stays for ever.
 * SPDX-License-Identifier: MIT
 *
 * A route has two paths, for what keeps its order and for chunks, and each is as slow as chance wants it. What is no chunk gets
 * past chunks that wait. Payloads are read only when a packet leaves, and written piece by piece, so that a buffer which is used
 * too long shows under the sanitizers. Windows are made smaller at random; no byte too many may ever be on its way. Sends are
 * given up: one that says so is received by nobody, any other one by somebody.
 * The same with a peer that dies in the middle of it: every request ends, what came whole can still be received.
 *
 * GCT_SEED=n plays one seed, GCT_ROUNDS ten times so many of them (100).
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <stdlib.h>
#include <cmocka.h>

enum { SIDES = 2, PATHS = 2, QUEUE = 4, MESSAGES = 40, RECEIVES = 2 * MESSAGES, WIRE = 64, SMALL_MOST = 3000,
       WAYS = 4000, STORM = 4000, CALM = 400000 };          /* ways in one play; steps */

struct gci_monitor { int inside; };

typedef struct item {
    gci_packet  packet;
    const void *payload;
    void       *token;
    uint8_t    *copy;                   /* owned: what is on the wire, or has been disowned */
    int         way;
} item;
typedef struct inflow { bool on; item in; size_t at, sink_bytes; uint8_t *sink; void *token; } inflow;

typedef struct fake {                    /* what the rooms above take for a gci_overlay */
    gci_upcalls up;
    void    *user;
    int      side, way;                 /* way: that it is in, or was in last */
    bool     is_up, wanted;
    bool     filling;                   /* in next() */
    bool     hungry[PATHS];             /* may ask for more: nobody pushes what was not asked for to its end */
    item     queue[PATHS][QUEUE];       /* handed over, and not sent */
    int      queued[PATHS];
    item     wire[PATHS][WIRE];         /* sent, and not come */
    int      sent[PATHS];
    inflow   inflow[PATHS];
    bool   (*farewell)(void *);         /* what gci_p2p_farewell waits for */
    void    *farewell_arg;
} fake;

/* How a message went. */
typedef struct message {
    bool     posted, sync, dropped, asked, cancelled, done;     /* asked: to be cancelled, if that is still possible */
    int      error;
    size_t   bytes, got;
    gc_request *request;
    gc_message *taken;                  /* by gc_improbe, and not received */
    uint8_t *buf;
} message;

typedef struct side {
    gci_sys     sys;                    /* first */
    gci_monitor monitor;
    gci_world   w;
    gci_table   table;
    gci_card    card[SIDES];
    size_t      live;
    message     send[MESSAGES], recv[RECEIVES];         /* between two ranks; recv: as posted, some are cancelled */
    message     coll_send[MESSAGES], coll_recv[MESSAGES];
    int         sends, recvs, coll_sends, coll_recvs;
} side;

static struct play {
    uint64_t seed, dice;
    int64_t  now;
    side     side[SIDES];
    int      ways;                      /* the newest one */
    struct { bool routed, one_path; size_t most; } way[WAYS];
    bool     only_routes, same_host, storm, settles, refuses;    /* settles: the last way stays; refuses: memory */
    bool     takes_back;                /* sends are cancelled, too */
    bool     dies;                      /* side 1, and side 0 hears of it */
    bool     at_once;                   /* a push takes a packet, as the real one does; else it waits for its turn */
    unsigned memory_fails;              /* one allocation in so many, while the storm lasts; 0: none */
    const char *what;                   /* went wrong */
} play;
/* In all plays: answers that a collective is over; windows made smaller; pairs that gave a message back. */
static unsigned overs, recalls, given_back;

static unsigned roll(unsigned below)
{
    play.dice = play.dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (unsigned)(play.dice >> 33) % below;
}

static void wrong(const char *what)
{
    if (!play.what)
        play.what = what;
}

/* ---- the overlay ---------------------------------------------------------------------------------------------- */

static fake *overlay_of(int s) { return (fake *)play.side[s].w.overlay; }

static void item_drop(item *i)
{
    free(i->copy);
    i->copy = NULL;
}

GCI int gci_overlay_open(gci_overlay **out, gci_env *env, gci_monitor *monitor, int rank, int ranks, const gc_options *options,
                         const gci_upcalls *up, void *user, gc_stats *stats)
{
    (void)env, (void)monitor, (void)options, (void)stats, (void)ranks;
    fake *o = calloc(1, sizeof *o);
    assert_non_null(o);
    o->up = *up;
    o->user = user;
    o->side = rank;
    *out = (gci_overlay *)o;
    return GC_OK;
}

static void overlay_empty(fake *o)
{
    for (int path = 0; path < PATHS; path++) {
        for (int i = 0; i < o->queued[path]; i++)
            item_drop(&o->queue[path][i]);
        item_drop(&o->inflow[path].in);
        o->inflow[path].on = false;
        o->queued[path] = 0;
    }
}

GCI void gci_overlay_close(gci_overlay *overlay)
{
    fake *o = (fake *)overlay;
    overlay_empty(o);
    for (int path = 0; path < PATHS; path++)
        for (int i = 0; i < o->sent[path]; i++)
            item_drop(&o->wire[path][i]);
    free(o);
}

static void overlay_fill(fake *);

GCI void gci_overlay_push(gci_overlay *overlay, int peer)
{
    fake *o = (fake *)overlay;
    (void)peer;
    o->wanted = o->hungry[0] = o->hungry[1] = true;
    if (play.at_once && o->is_up && !o->filling)
        overlay_fill(o);
}
GCI void gci_overlay_wake(gci_overlay *o) { (void)o; }
GCI bool gci_overlay_poll(gci_overlay *o, int hint) { (void)o, (void)hint; return false; }
GCI int  gci_overlay_fd(gci_overlay *o) { (void)o; return GC_ERR_SYSTEM; }
GCI int  gci_control_notify(gci_control *c, const gci_notice *notice) { (void)c, (void)notice; return GC_OK; }

GCI void gci_overlay_wait(gci_overlay *o, bool (*done)(void *arg), void *arg, const int *hint, int64_t deadline)
{
    (void)hint, (void)deadline;
    ((fake *)o)->farewell = done;
    ((fake *)o)->farewell_arg = arg;
}

GCI void gci_overlay_disown(gci_overlay *overlay, int peer, const void *token)
{
    fake *o = (fake *)overlay;
    (void)peer;
    for (int path = 0; path < PATHS; path++) {
        for (int i = 0; i < o->queued[path]; i++) {
            item *q = &o->queue[path][i];
            if (q->token != token)
                continue;
            q->token = NULL;
            if (q->packet.length > 0 && !q->copy) {
                q->copy = malloc(q->packet.length);
                memcpy(q->copy, q->payload, q->packet.length);
                q->payload = q->copy;
            }
        }
        inflow *f = &o->inflow[path];
        if (f->on && f->token == token) {
            f->sink_bytes = 0;
            if (f->in.packet.type == GCI_CHUNK)
                f->token = NULL;
        }
    }
}

static void way_new(void)
{
    if (play.ways + 1 == WAYS)
        return;
    play.ways++;
    bool routed = play.only_routes || roll(2);
    play.way[play.ways].routed = routed;
    play.way[play.ways].one_path = !routed || roll(3) == 0;
    play.way[play.ways].most = !routed ? GCI_PACKET_MAX : roll(4) ? GCI_ROUTED_MAX : SMALL_MOST;
}

/* Within a host a link that is lost with data in it is a lost peer: such a link ends only while there is none. */
static bool all_is_kept(void)
{
    for (int i = 0; i < SIDES; i++) {
        const gci_pair *p = play.side[i].w.p2p->pair[!i];
        for (const gci_sent *s = p ? p->sent : NULL; s; s = s->next)
            if (!s->payload && !s->withdrawn && s->packet.length > 0)
                return false;
    }
    return true;
}

static void way_ends(fake *o)
{
    if (!o->is_up)
        return;
    o->is_up = false;
    o->wanted = false;
    overlay_empty(o);
    o->up.way_down(o->user, !o->side, false);
}

GCI void gci_overlay_cut(gci_overlay *o, int peer)
{
    (void)peer;
    overlay_empty((fake *)o);
    ((fake *)o)->is_up = false;
    if (!play.dies)
        wrong("a peer was given up");
}

static void way_changes(void)
{
    if (!play.same_host || play.only_routes) {
        way_new();
    } else if (all_is_kept()) {
        way_new();
        way_ends(overlay_of(0));
        way_ends(overlay_of(1));
    }
}

static void way_begins(fake *o)
{
    way_ends(o);
    o->way = play.ways;
    o->is_up = true;
    o->wanted = o->hungry[0] = o->hungry[1] = true;
    o->up.way_up(o->user, !o->side, play.way[o->way].routed);
}

/* The newest packet of the queue gets past the chunks before it, if it is none. */
static void overlay_pass(fake *o, int path)
{
    item *q = o->queue[path];
    bool passes = roll(2);
    for (int at = o->queued[path] - 1; passes && at > 0 && q[at].packet.type != GCI_CHUNK; at--) {
        if (q[at - 1].packet.type != GCI_CHUNK)
            break;
        item chunk = q[at - 1];
        q[at - 1] = q[at];
        q[at] = chunk;
    }
}

/* Takes one packet from above. */
static void overlay_fill(fake *o)
{
    bool one = play.way[o->way].one_path;
    size_t most = play.way[o->way].most;
    int path = one ? 0 : (int)roll(PATHS);
    unsigned all = roll(4) ? GCI_WANT_ORDERED | GCI_WANT_BULK : GCI_WANT_ORDERED;
    unsigned want = one ? all : path == 0 ? GCI_WANT_ORDERED : GCI_WANT_BULK;
    if (o->queued[path] == QUEUE || !o->hungry[path])
        return;
    o->hungry[path] = one && want == GCI_WANT_ORDERED;
    item *q = &o->queue[path][o->queued[path]];
    *q = (item){ .way = o->way };
    o->filling = true;
    bool more = o->up.next(o->user, !o->side, want, most, &q->packet, &q->payload, &q->token);
    o->filling = false;
    if (!more)
        return;
    o->queued[path]++;
    o->hungry[path] = true;
    overlay_pass(o, path);
    if (q->packet.length > most)
        wrong("a packet is longer than asked for");
    bool free_chunk = q->packet.type == GCI_CHUNK && !(q->packet.flags & GCI_FLAG_STREAMS);
    if (!one && free_chunk != (want == GCI_WANT_BULK))
        wrong("a packet on the wrong path");
}

static void overlay_send(fake *o, int path)
{
    if (o->queued[path] == 0 || o->sent[path] == WIRE)
        return;
    item q = o->queue[path][0];
    memmove(o->queue[path], o->queue[path] + 1, (size_t)--o->queued[path] * sizeof q);
    if (q.packet.length > 0 && !q.copy) {
        q.copy = malloc(q.packet.length);
        memcpy(q.copy, q.payload, q.packet.length);
    }
    o->wire[path][o->sent[path]++] = q;
    if (q.token)
        o->up.sent(o->user, !o->side, (enum gci_packet_type)q.packet.type, q.token);
}

/* The next packet on the wire to o begins to come. */
static void overlay_begin(fake *o, int path)
{
    fake *from = overlay_of(!o->side);
    inflow *f = &o->inflow[path];
    if (from->sent[path] == 0)
        return;
    item in = from->wire[path][0];
    if (in.way > o->way || (in.way == o->way && !o->is_up)) {
        way_ends(o);
        if (in.way == play.ways)
            way_begins(o);              /* else there are newer ones by now: it is discarded */
    }
    memmove(from->wire[path], from->wire[path] + 1, (size_t)--from->sent[path] * sizeof in);
    if (in.way != o->way || !o->is_up) {
        item_drop(&in);
        return;
    }
    *f = (inflow){ .on = true, .in = in };
    void *sink = NULL;
    int err = o->up.begin(o->user, !o->side, &f->in.packet, &sink, &f->sink_bytes, &f->token);
    f->sink = sink;
    if (err == GC_OK)
        return;
    if (err != GC_ERR_NOMEM)
        wrong("a packet was refused");
    way_ends(o);
    way_new();
}

static void overlay_receive(fake *o, int path)
{
    inflow *f = &o->inflow[path];
    if (!f->on) {
        overlay_begin(o, path);
        return;
    }
    size_t left = f->in.packet.length - f->at, take = roll(2) ? left : gci_min(left, 1 + roll(20000));
    for (size_t end = f->at + take; f->at < end; f->at++)
        if (f->at < f->sink_bytes)
            f->sink[f->at] = f->in.copy[f->at];
    if (f->at < f->in.packet.length)
        return;
    f->on = false;
    item_drop(&f->in);
    o->up.end(o->user, !o->side, &f->in.packet, f->token);
}

static void overlay_step(fake *o)
{
    int path = (int)roll(PATHS);
    if (!o->is_up && o->wanted && o->way == play.ways)
        way_new();
    if (o->way < play.ways && (o->is_up ? roll(20) == 0 : o->wanted)) {
        if (o->is_up)
            way_ends(o);
        else
            way_begins(o);
    }
    switch (roll(8)) {
    case 0: case 1: if (o->is_up) overlay_fill(o); break;
    case 2: case 3: if (o->is_up) overlay_send(o, path); break;
    case 4: o->up.tick(o->user, play.now += roll(10) ? 1000000 : 150000000); break;    /* asks come after 100 ms */
    default: overlay_receive(o, path); break;
    }
}

/* ---- the system ----------------------------------------------------------------------------------------------- */

static int64_t ways_now(gci_sys *sys) { (void)sys; return play.now; }

static void ways_yield(gci_sys *sys) { (void)sys; }

static void ways_enter(gci_sys *sys, gci_monitor *m)
{
    (void)sys;
    assert_int_equal(m->inside++, 0);
}

static void ways_leave(gci_sys *sys, gci_monitor *m)
{
    (void)sys;
    assert_int_equal(--m->inside, 0);
}

static void *ways_alloc(void *user, void *old, size_t bytes)
{
    side *s = user;
    if (bytes == 0) {
        s->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (play.refuses || (play.storm && play.memory_fails && roll(play.memory_fails) == 0))
        return NULL;
    s->live += old == NULL;
    return realloc(old, bytes);
}

/* ---- the worlds ----------------------------------------------------------------------------------------------- */

static bool no_signature(gc_comm *comm, int source, uint32_t seq, uint32_t signature)
{
    (void)comm, (void)source, (void)seq, (void)signature;
    return false;
}
/* As coll.c does: messages that are under way end without a word; or with one, by p2p itself. */
static void no_fail(gc_comm *comm, int code, int fault, const char *why)
{
    side *s = &play.side[comm->rank];
    (void)code, (void)fault;
    (void)why;
    if (!play.dies)
        wrong("a communicator failed");
    for (int i = 0; i < 2 * MESSAGES; i++) {
        message *m = i % 2 ? &s->coll_send[i / 2] : &s->coll_recv[i / 2];
        if (!m->request || roll(2))
            continue;
        gci_request_drop(m->request);
        m->request = NULL;
        m->done = m->dropped = true;
    }
}
static void no_notice(gci_world *w, const gci_notice *notice) { (void)w, (void)notice; }
/* Each collective is one message. That all of it has been sent, which may still be on its way, must end no receive. */
static bool sent_all(gc_comm *comm, int dest, uint32_t seq, uint32_t signature)
{
    const message *m = &play.side[comm->rank].coll_send[seq];
    (void)dest, (void)signature;
    bool all = m->done && !m->dropped && m->error == GC_OK;
    overs += all;
    return all;
}

static void side_open(int rank, int credits, size_t budget)
{
    static const gci_p2p_upcalls upcalls = { no_signature, no_fail, no_notice, sent_all };
    side *s = &play.side[rank];
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    *s = (side){ .sys = { .now = ways_now, .yield = ways_yield, .enter = ways_enter, .leave = ways_leave } };
    options.alloc = ways_alloc;
    options.alloc_user = s;
    options.credits = credits;
    options.eager_budget = budget;
    gci_env_init(&s->w.env, &s->sys, &options);
    s->w.options = options;
    s->w.monitor = &s->monitor;
    s->w.rank = rank;
    s->w.ranks = SIDES;
    for (int i = 0; i < SIDES; i++)
        s->card[i] = (gci_card){ .host = play.same_host ? 0 : i, .cluster = "" };
    s->table = (gci_table){ .ranks = SIDES, .hosts = SIDES, .card = s->card };
    s->w.table = &s->table;
    s->w.dead = gci_alloc(&s->w.env, SIDES);
    gc_comm *comm = gci_alloc(&s->w.env, sizeof *comm);
    assert_true(s->w.dead && comm && gci_p2p_open(&s->w, &upcalls) == GC_OK);
    *comm = (gc_comm){ .world = &s->w, .rank = rank, .size = SIDES, .first_dead = -1 };
    s->w.self = s->w.comms = comm;
}

static void side_close(side *s)
{
    gci_p2p_close(&s->w);
    for (gc_request *r; (r = s->w.spare_requests);) {
        s->w.spare_requests = r->next;
        gci_free(&s->w.env, r);
    }
    gci_free(&s->w.env, s->w.self);
    gci_free(&s->w.env, s->w.dead);
    assert_int_equal(s->live, 0);
    assert_int_equal(atomic_load(&s->w.env.memory), 0);
}

/* ---- what the users do ---------------------------------------------------------------------------------------- */

static uint8_t byte_of(int source, int kind, int nth, size_t at)
{
    return (uint8_t)((unsigned)source * 101 + (unsigned)kind * 59 + (unsigned)nth * 7 + at * 13 + (at >> 8) * 3);
}

static size_t some_size(void)
{
    static const size_t size[] = { 1, 100, 1024, 1025, 2999, 3001, GCI_ROUTED_MAX - 1, GCI_ROUTED_MAX, GCI_ROUTED_MAX + 1,
                                   30000, GCI_PACKET_MAX, GCI_PACKET_MAX + 1, 100000 };
    return size[roll(GCI_COUNT(size))];
}

static void coll_post(int rank, bool send);

static void message_done(gc_request *r)
{
    message *m = r->user;
    int rank = r->comm->rank;
    m->done = true;
    m->error = r->status.error;
    m->got = r->status.bytes;
    m->request = NULL;
    if (play.storm && roll(2))          /* the next step of a schedule */
        coll_post(rank, roll(2));
}

static void fill(message *m, int source, int kind, int nth)
{
    m->buf = malloc(m->bytes + 1);
    for (size_t i = 0; i < m->bytes; i++)
        m->buf[i] = byte_of(source, kind, nth, i);
}

static void user_send(int rank)
{
    side *s = &play.side[rank];
    message *m = &s->send[s->sends];
    if (s->sends == MESSAGES)
        return;
    m->bytes = some_size();
    m->sync = roll(5) == 0;
    fill(m, rank, 0, s->sends);
    int err = (m->sync ? gc_issend : gc_isend)(s->w.self, m->buf, m->bytes, !rank, 0, &m->request);
    if (err == GC_OK)
        s->sends++;
    else
        free(m->buf);
}

static void user_recv(int rank)
{
    side *s = &play.side[rank];
    message *m = &s->recv[s->recvs];
    if (s->recvs == (play.storm ? MESSAGES : RECEIVES))
        return;
    *m = (message){ .bytes = roll(10) ? 100000 : some_size() };
    m->buf = malloc(m->bytes);
    int err = gc_irecv(s->w.self, m->buf, m->bytes, roll(2) ? !rank : GC_ANY_SOURCE, GC_ANY_TAG, &m->request);
    if (err == GC_OK)
        s->recvs++;
    else
        free(m->buf);
}

static void coll_post(int rank, bool send)
{
    side *s = &play.side[rank];
    int *n = send ? &s->coll_sends : &s->coll_recvs, nth = *n;
    if (nth == MESSAGES)
        return;
    message *m = send ? &s->coll_send[nth] : &s->coll_recv[nth];
    const message *other = send ? &play.side[!rank].coll_recv[nth] : &play.side[!rank].coll_send[nth];
    *m = (message){ .bytes = other->posted ? other->bytes : some_size() };
    gci_post post = { .kind = GCI_CONTEXT_COLL, .tag = (uint32_t)nth, .signature = 1, .done_fn = message_done, .user = m };
    if (send)
        fill(m, rank, 1, nth);
    else
        m->buf = malloc(m->bytes);
    m->posted = true;
    gc_request *r = NULL;
    ++*n;                               /* before: it may end at once, and bring the next */
    int err = send ? gci_send_post(s->w.self, m->buf, m->bytes, !rank, &post, &r)
                   : gci_recv_post(s->w.self, m->buf, m->bytes, !rank, &post, &r);
    if (err < 0) {
        free(m->buf);
        *m = (message){ 0 };
        --*n;
        return;
    }
    m->request = m->done ? NULL : r;
}

static void user_coll(int rank, bool send)
{
    side *s = &play.side[rank];
    gci_enter(&s->w);
    coll_post(rank, send);
    gci_leave(&s->w);
}

/* Takes the next message, to receive it later; or nothing, if there is none. */
static void user_take(int rank)
{
    side *s = &play.side[rank];
    message *m = &s->recv[s->recvs];
    if (s->recvs == (play.storm ? MESSAGES : RECEIVES))
        return;
    *m = (message){ .bytes = roll(10) ? 100000 : some_size() };
    gc_improbe(s->w.self, roll(2) ? !rank : GC_ANY_SOURCE, GC_ANY_TAG, &m->taken, NULL);
    if (!m->taken)
        return;
    m->buf = malloc(m->bytes);
    s->recvs++;
}

static void user_take_in(int rank, int nth)
{
    message *m = &play.side[rank].recv[nth];
    if (nth < play.side[rank].recvs && m->taken)
        gc_imrecv(&m->taken, m->buf, m->bytes, &m->request);
}

/* A collective fails: its messages end where they are. */
static void user_drop(int rank)
{
    side *s = &play.side[rank], *t = &play.side[!rank];
    int nth = s->coll_recvs > 0 ? (int)roll((unsigned)s->coll_recvs) : 0;
    message *recv = &s->coll_recv[nth], *send = &t->coll_send[nth];
    if (!recv->request || !recv->request->message)
        return;
    message *m[] = { recv, send };
    for (int i = 0; i < 2; i++) {
        side *of = i ? t : s;
        gci_enter(&of->w);
        if (m[i]->request)
            gci_request_drop(m[i]->request);
        gci_leave(&of->w);
        m[i]->request = NULL;
        m[i]->done = m[i]->dropped = true;
        free(m[i]->buf);                /* the sanitizer sees who still uses it */
        m[i]->buf = NULL;
    }
}

static void user_cancel(int rank)
{
    side *s = &play.side[rank];
    message *m = s->recvs > 0 ? &s->recv[roll((unsigned)s->recvs)] : NULL;
    if (m && m->request)
        gc_cancel(m->request);
}

static void user_take_back(int rank)
{
    side *s = &play.side[rank];
    message *m = s->sends > 0 ? &s->send[roll((unsigned)s->sends)] : NULL;
    if (!play.takes_back || !m || !m->request)
        return;
    m->asked = true;
    if (gc_cancel(m->request) != GC_OK)
        wrong("a send cannot be cancelled");
}

/* Completes what can be; a send's buffer goes away the moment it may. */
static int messages_test(message *m, int n, bool send)
{
    int open = 0;
    for (int i = 0; i < n; i++) {
        if (m[i].request && !m[i].posted) {
            gc_status status;
            int done;
            m[i].error = gc_test(&m[i].request, &done, &status);
            m[i].done = done;
            m[i].got = status.bytes;
            m[i].cancelled = m[i].error == GC_ERR_CANCELLED;
        }
        if (m[i].done && send && m[i].buf) {
            free(m[i].buf);
            m[i].buf = NULL;
        }
        open += !m[i].done;
    }
    return open;
}

static int side_test(side *s)
{
    return messages_test(s->send, s->sends, true) + messages_test(s->recv, s->recvs, false) +
           messages_test(s->coll_send, s->coll_sends, true) + messages_test(s->coll_recv, s->coll_recvs, false);
}

/* As if another peer needed what this one has been lent. */
static void user_recall(int rank)
{
    gci_p2p *p2p = play.side[rank].w.p2p;
    gci_pair *p = p2p->pair[!rank];
    uint32_t before = p ? p->recalls : 0;
    if (!p)
        return;
    gci_enter(&play.side[rank].w);
    gci_recall(p2p, p, roll(2) ? p2p->room_first : p->share / 2);
    gci_leave(&play.side[rank].w);
    recalls += p->recalls - before;
}

static void user_step(int rank)
{
    switch (roll(40)) {
    case 0: user_send(rank); break;
    case 1: user_recv(rank); break;
    case 2: user_coll(rank, true); break;
    case 3: user_coll(rank, false); break;
    case 4: user_drop(rank); break;
    case 5: if (roll(3) == 0) user_cancel(rank); break;
    case 6: user_take(rank); break;
    case 7: user_take_in(rank, (int)roll(MESSAGES)); break;
    case 8: user_recall(rank); break;
    case 9: user_take_back(rank); break;
    default: break;
    }
    if (roll(10) == 0)
        side_test(&play.side[rank]);
}

/* ---- what must hold ------------------------------------------------------------------------------------------- */

static void check_bytes(const message *m, int source, int kind, int nth, size_t bytes)
{
    for (size_t i = 0; i < gci_min(bytes, m->bytes); i++)
        if (m->buf[i] != byte_of(source, kind, nth, i)) {
            wrong("wrong bytes");
            return;
        }
}

/* The receives that were not cancelled got the messages that were not refused, in order. */
static void check_received(int rank)
{
    side *s = &play.side[rank], *from = &play.side[!rank];
    int nth = 0;
    for (int i = 0; i < s->recvs; i++) {
        const message *m = &s->recv[i];
        if (m->cancelled)
            continue;
        while (nth < from->sends && from->send[nth].error != GC_OK)
            nth++;
        if (!m->done || nth == from->sends)
            break;
        size_t bytes = from->send[nth].bytes;
        if (m->got != gci_min(bytes, m->bytes) || m->error != (bytes > m->bytes ? GC_ERR_TRUNCATE : GC_OK))
            wrong("a receive got something else than the next message");
        check_bytes(m, !rank, 0, nth++, bytes);
    }
    for (int i = 0; i < from->sends; i++)
        if (from->send[i].error != GC_OK && !(play.memory_fails && from->send[i].error == GC_ERR_NOMEM) &&
            !(from->send[i].asked && from->send[i].cancelled))
            wrong("a send failed");
    for (int i = 0; i < s->coll_recvs; i++)
        if (!s->coll_recv[i].dropped && from->coll_send[i].error == GC_OK) {
            if (s->coll_recv[i].error != GC_OK || s->coll_recv[i].got != from->coll_send[i].bytes)
                wrong("a collective receive failed");
            check_bytes(&s->coll_recv[i], !rank, 1, i, s->coll_recv[i].bytes);
        }
}

/* What a side has lent and has left makes up its budget. What its peer may still send, and has on its way, and what is not
 * consumed, is never more than was lent. */
static void check_windows(int rank)
{
    const gci_p2p *p2p = play.side[rank].w.p2p;
    const gci_pair *p = p2p->pair[!rank], *from = play.side[!rank].w.p2p->pair[rank];
    if (p2p->room_left + (p ? p->room : p2p->room_first) + p2p->room_first != p2p->world->options.eager_budget)
        wrong("the pool does not add up");
    if (!p || !from || play.dies)
        return;
    size_t ahead = gci_max(from->window, from->sent_bytes);
    for (const gci_sent *s = from->sent; s && (int32_t)(p->expect - s->packet.seq) > 0; s = s->next)
        ahead -= s->packet.length;
    if (p->share > p->room || ahead + p->held_bytes > p->room)
        wrong("more than was lent");
}

/* All accounts are even when everybody has left. */
static void check_accounts(int rank)
{
    const gci_pair *p = play.side[rank].w.p2p->pair[!rank];
    if (p && (p->sent || p->sent_bytes > 0 || p->open || p->queue || p->held > 0 || p->held_bytes > 0 || p->lent > 0 ||
              p->owing > 0 || p->withdrawing || (p->room != p->share && !p->recalled)))
        wrong("an account is not even");
}

/* Every message gets its receive, and every receive a message or its end. */
static void post_the_rest(void)
{
    for (int rank = 0; rank < SIDES; rank++) {
        side *s = &play.side[rank], *from = &play.side[!rank];
        for (int i = 0; i < s->recvs; i++)
            user_take_in(rank, i);
        while (s->coll_sends < from->coll_recvs)
            user_coll(rank, true);
        while (s->coll_recvs < from->coll_sends)
            user_coll(rank, false);
        int wanted = 0, have = 0;
        for (int i = 0; i < from->sends; i++)
            wanted += from->send[i].error == GC_OK;
        for (int i = 0; i < s->recvs; i++) {
            if (s->recv[i].request && have >= wanted)
                gc_cancel(s->recv[i].request);
            have += !s->recv[i].cancelled;
        }
        while (have++ < wanted && s->recvs < RECEIVES)
            user_recv(rank);
    }
}

/* A collective message whose send was refused has no receive to wait for. */
static void drop_refused(void)
{
    for (int rank = 0; rank < SIDES; rank++) {
        side *s = &play.side[rank];
        for (int i = 0; i < s->coll_recvs; i++) {
            message *m = &s->coll_recv[i];
            if (play.side[!rank].coll_send[i].error == GC_OK || !m->request)
                continue;
            gci_enter(&s->w);
            gci_request_drop(m->request);
            gci_leave(&s->w);
            m->request = NULL;
            m->done = m->dropped = true;
        }
    }
}

static bool run(int steps, bool (*until)(void))
{
    for (int i = 0; i < steps && !play.what; i++) {
        if (play.storm)
            user_step((int)roll(SIDES));
        if (play.storm ? roll(300) == 0 : !play.settles && roll(4000) == 0)
            way_changes();
        overlay_step(overlay_of((int)roll(SIDES)));
        check_windows((int)roll(SIDES));
        if (until && i % 64 == 0 && until())
            return true;
    }
    return !until;
}

/* That a window is smaller is answered as long as there is a way. */
static bool awaits_known(int rank)
{
    const gci_pair *p = play.side[rank].w.p2p->pair[!rank];
    return p && p->recalled && p->up;
}

/* Whoever asks for a send back hears of it, whatever the other one's user does. */
static bool all_answered(void)
{
    for (int i = 0; i < SIDES; i++) {
        const gci_pair *p = play.side[i].w.p2p->pair[!i];
        for (const gc_request *r = p ? p->open : NULL; r; r = r->next)
            if (r->withdrawn)
                return false;
    }
    return true;
}

static bool all_through(void)
{
    post_the_rest();
    drop_refused();
    return side_test(&play.side[0]) + side_test(&play.side[1]) == 0 && !awaits_known(0) && !awaits_known(1);
}

static bool farewells_through(void)
{
    return overlay_of(0)->farewell(overlay_of(0)->farewell_arg) && overlay_of(1)->farewell(overlay_of(1)->farewell_arg);
}

/* What a seed that gets stuck leaves, for whoever looks into it (GCT_LOG=1). */
static void show(void)
{
    static const char *const name[] = { "send", "receive", "collective send", "collective receive" };
    for (int rank = 0; rank < SIDES; rank++) {
        const side *s = &play.side[rank];
        const gci_pair *p = s->w.p2p->pair[!rank];
        const message *group[] = { s->send, s->recv, s->coll_send, s->coll_recv };
        int n[] = { s->sends, s->recvs, s->coll_sends, s->coll_recvs };
        const fake *o = overlay_of(rank);
        printf("side %d: way %d of %d, is up %d, wanted %d, queued %d %d, sent %d %d;", rank, o->way, play.ways, o->is_up,
               o->wanted, o->queued[0], o->queued[1], o->sent[0], o->sent[1]);
        if (p)
            printf(" up %d heard %d queue %d open %d sent %d again %d owing %d next %u acked %u credit %u expect %u held %u",
                   p->up, p->heard, p->queue != NULL, p->open != NULL, p->sent != NULL, p->again != NULL, p->owing,
                   (unsigned)p->next_seq, (unsigned)p->acked, (unsigned)p->credit, (unsigned)p->expect, (unsigned)p->held);
        for (int g = 0; g < 4; g++)
            for (int i = 0; i < n[g]; i++)
                if (!group[g][i].done)
                    printf("\n  %s %d of %d, %zu bytes", name[g], i, n[g], group[g][i].bytes);
        printf("\n");
    }
}

/* What came whole of collectives: nobody asks for it here. */
static size_t unexpected_bytes(const side *s)
{
    size_t bytes = 0;
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (const gci_match *match = s->w.p2p->match[i]; match; match = match->next)
            for (const gc_message *m = match->unexpected; m; m = m->next)
                bytes += m->packet.length;
    return bytes;
}

/* Was this message of side 1 refused, or given back? Of some whose end nobody has heard only their receiver knows. */
static bool is_nobodys(int nth, const message *got)
{
    const message *m = &play.side[1].send[nth];
    bool whole = got->error == GC_OK || got->error == GC_ERR_TRUNCATE;
    if (m->error == GC_ERR_NOMEM || m->cancelled)
        return true;
    return play.takes_back && whole && (gci_min(m->bytes, got->bytes) != got->got || got->buf[0] != byte_of(1, 0, nth, 0));
}

/* All of side 0 that is pending has ended; then it receives what came whole, in order, up to an error. */
static void check_after_death(void)
{
    side *s = &play.side[0];
    for (int i = 0; i < s->recvs; i++)
        user_take_in(0, i);
    if (side_test(s) > 0)
        wrong("a request outlives its peer");
    int nth = 0, err = GC_OK;
    for (int i = 0; i < s->recvs; i++) {
        const message *m = &s->recv[i];
        if (m->cancelled)
            continue;
        while (nth < play.side[1].sends && is_nobodys(nth, m))
            nth++;
        if (nth == play.side[1].sends && m->error != GC_ERR_PEER)
            wrong("a receive got something that nobody sent");
        else if (m->error == GC_OK || m->error == GC_ERR_TRUNCATE)
            check_bytes(m, 1, 0, nth, m->got);
        else if (m->error != GC_ERR_PEER)
            wrong("a receive ended otherwise");
        nth++;
    }
    message rest = { .bytes = 100000, .buf = malloc(100000) };
    while (err == GC_OK && !play.what) {
        gc_status status;
        err = gc_irecv(s->w.self, rest.buf, rest.bytes, roll(2) ? 1 : GC_ANY_SOURCE, GC_ANY_TAG, &rest.request);
        if (err == GC_OK)
            err = gc_wait_for(&rest.request, 0, &status);
        while (err == GC_OK && nth < play.side[1].sends &&
               (play.side[1].send[nth].bytes != status.bytes || rest.buf[0] != byte_of(1, 0, nth, 0)))
            nth++;                      /* what had not come whole */
        if (err == GC_OK && nth == play.side[1].sends)
            wrong("a message that nobody sent");
        if (err == GC_OK)
            check_bytes(&rest, 1, 0, nth++, status.bytes);
    }
    free(rest.buf);
    if (err != GC_ERR_PEER && err != GC_ERR_NOMEM)
        wrong("a receive from the dead does not end");
    const gci_pair *p = s->w.p2p->pair[1];
    if (p && (p->sent || p->sent_bytes > 0 || p->open || p->queue || p->incoming || s->w.p2p->starving != 0 ||
              p->held_bytes != unexpected_bytes(s)))
        wrong("something is left of the dead");
}

static void buffers_free(side *s)
{
    for (int k = 0; k < s->sends; k++)
        free(s->send[k].buf);
    for (int k = 0; k < s->recvs; k++)
        free(s->recv[k].buf);
    for (int k = 0; k < MESSAGES; k++) {
        free(s->coll_recv[k].buf);
        free(s->coll_send[k].buf);
    }
}

/* Side 1 dies; whatever it had pending goes with it. */
static void die(void)
{
    gci_news news = { .kind = GCI_NEWS_DEAD, .rank = 1, .fd = -1, .code = GC_ERR_PEER, .text = "it was killed" };
    side *s = &play.side[0], *t = &play.side[1];
    play.dies = true;
    gci_enter(&s->w);
    overlay_of(0)->up.news(overlay_of(0)->user, &news);
    overlay_of(0)->up.way_down(overlay_of(0)->user, 1, false);
    gci_leave(&s->w);
    news.rank = 0;                      /* the other one is told the same, so that it comes to its end */
    gci_enter(&t->w);
    overlay_of(1)->up.news(overlay_of(1)->user, &news);
    gci_leave(&t->w);
    for (int i = 0; i < t->recvs; i++)
        user_take_in(1, i);
    side_test(t);
}

/* Two worlds, and a storm over them. */
static void play_begin(uint64_t seed)
{
    static const int credits[] = { 1, 2, 64 };
    static const size_t budget[] = { 65536, 1 << 20, 16 << 20 };
    play.seed = play.dice = seed;
    roll(2);
    play.now = 1;
    play.ways = 0;
    play.what = NULL;
    play.dies = false;
    play.same_host = roll(3) == 0;
    play.only_routes = roll(3) == 0;
    play.memory_fails = roll(3) > 0 || (play.same_host && !play.only_routes) ? 0 : roll(2) ? 40 : 3;
    play.storm = false;
    play.settles = roll(2);
    play.at_once = roll(2);
    play.takes_back = roll(2);
    for (int i = 0; i < SIDES; i++)
        side_open(i, credits[roll(3)], budget[roll(3)]);
    play.storm = true;
    run(STORM, NULL);
    play.storm = false;
}

static void play_end(void)
{
    if (play.what && getenv("GCT_LOG"))
        show();
    if (play.what)
        fail_msg("GCT_SEED=%llu: %s (ways %d, routes only %d, same host %d, memory fails %u)", (unsigned long long)play.seed,
                 play.what, play.ways, play.only_routes, play.same_host, play.memory_fails);
    for (int i = 0; i < SIDES; i++) {
        const gci_pair *p = play.side[i].w.p2p->pair[!i];
        given_back += p && p->gave_back;
        buffers_free(&play.side[i]);
        side_close(&play.side[i]);
    }
}

static void play_calm(void)
{
    if (!run(CALM, all_answered))
        wrong("a send that was asked back");
    if (!play.what && !run(CALM, all_through))
        wrong("stuck");
    for (int i = 0; i < SIDES && !play.what; i++) {
        check_received(i);
        gci_enter(&play.side[i].w);
        gci_p2p_farewell(&play.side[i].w, 0);
        gci_leave(&play.side[i].w);
    }
    if (!play.what && !run(CALM, farewells_through))
        wrong("no farewell");
    for (int i = 0; i < SIDES && !play.what; i++)
        check_accounts(i);
}

static void play_death(void)
{
    die();
    check_after_death();
}

static void play_all(void (*then)(void))
{
    const char *one = getenv("GCT_SEED"), *rounds = getenv("GCT_ROUNDS");
    int n = rounds ? atoi(rounds) * 10 : 1000;
    for (int i = 0; i < (one ? 1 : n); i++) {
        play_begin(one ? strtoull(one, NULL, 10) : (uint64_t)i + 1);
        if (!play.what)
            then();
        play_end();
    }
}

static void ways_that_change_lose_nothing(void **state)
{
    (void)state;
    play_all(play_calm);
    assert_true((overs > 0 && recalls > 0 && given_back > 0) || getenv("GCT_SEED"));    /* it happened at all */
}

static void a_death_ends_everything(void **state) { (void)state; play_all(play_death); }

/* All that can move does; with `deliver` false nothing comes to side 1. */
static void move(bool deliver)
{
    for (int i = 0; i < 400; i++)
        for (int s = 0; s < SIDES; s++) {
            overlay_fill(overlay_of(s));
            overlay_send(overlay_of(s), 0);
            if (deliver || s == 0)
                overlay_receive(overlay_of(s), 0);
        }
}

static void both_begin(int way, bool routed, size_t most)
{
    play.ways = way;
    play.way[way].routed = routed;
    play.way[way].one_path = true;
    play.way[way].most = most;
    for (int s = 0; s < SIDES; s++)
        way_begins(overlay_of(s));
}

/* A message that was eager, and is lost with its link when its send has long completed, goes again over a route as a
 * rendezvous; and if there is no memory for that at first, it is tried again, without anybody's push. */
static void memory_is_tried_again(void **state)
{
    (void)state;
    enum { BYTES = 60000 };
    static uint8_t out[BYTES], in[BYTES];
    memset(&play, 0, sizeof play);
    play.dice = 1;
    play.now = 1;
    for (int i = 0; i < SIDES; i++)
        side_open(i, 64, 16 << 20);
    side *a = &play.side[0], *b = &play.side[1];
    both_begin(1, false, GCI_PACKET_MAX);
    move(true);
    for (size_t i = 0; i < BYTES; i++)
        out[i] = byte_of(0, 0, 0, i);
    gc_request *send = NULL, *recv = NULL;
    assert_int_equal(gc_isend(a->w.self, out, BYTES, 1, 0, &send), GC_OK);
    move(false);
    assert_int_equal(gc_wait_for(&send, 0, NULL), GC_OK);
    memset(out, 0, sizeof out);
    for (gc_request *r; (r = a->w.spare_requests);) {
        a->w.spare_requests = r->next;
        gci_free(&a->w.env, r);
    }
    play.refuses = true;
    both_begin(2, true, GCI_ROUTED_MAX);
    move(true);
    assert_true(a->w.p2p->pair[1]->again && !overlay_of(0)->hungry[0]);
    play.refuses = false;
    assert_int_equal(gc_irecv(b->w.self, in, BYTES, 0, 0, &recv), GC_OK);
    int64_t at = overlay_of(0)->up.tick(overlay_of(0)->user, play.now);
    assert_true(at > play.now && at < GCI_FOREVER);
    assert_true(overlay_of(0)->up.tick(overlay_of(0)->user, at) == GCI_FOREVER);
    move(true);
    gc_status status;
    assert_int_equal(gc_wait_for(&recv, 0, &status), GC_OK);
    assert_int_equal(status.bytes, BYTES);
    for (size_t i = 0; i < BYTES; i++)
        assert_int_equal(in[i], byte_of(0, 0, 0, i));
    assert_null(a->w.p2p->pair[1]->open);
    check_accounts(0);
    check_accounts(1);
    assert_null(play.what);
    side_close(a);
    side_close(b);
}

typedef struct chained { side *s; const uint8_t *out; size_t bytes; bool done; gc_request *next; } chained;

static void chain_on(gc_request *r)
{
    chained *c = r->user;
    gci_post post = { .kind = GCI_CONTEXT_COLL, .tag = 1, .signature = 1, .done_fn = message_done, .user = &c->s->coll_send[1] };
    c->done = true;
    assert_int_equal(gci_send_post(c->s->w.self, c->out, c->bytes, !c->s->w.rank, &post, &c->next), GC_OK);
}

/* A packet says that two envelopes have come, and that they fill the window. The end of the first one's send brings the next
 * send at once: it must know of the window already. */
static void the_window_is_known_first(void **state)
{
    (void)state;
    enum { BYTES = 4000 };
    static uint8_t out[BYTES];
    memset(&play, 0, sizeof play);
    play.dice = 1;
    play.now = 1;
    play.same_host = true;              /* payloads are not copied: a send ends when it is acknowledged */
    for (int i = 0; i < SIDES; i++)
        side_open(i, 64, 65536);        /* a window of 8 KiB */
    side *a = &play.side[0];
    both_begin(1, false, GCI_PACKET_MAX);
    move(true);
    chained chain = { .s = a, .out = out, .bytes = BYTES - 100 };
    message second = { .bytes = BYTES };
    gci_post post = { .kind = GCI_CONTEXT_COLL, .signature = 1, .done_fn = chain_on, .user = &chain };
    gc_request *r;
    gci_enter(&a->w);
    assert_int_equal(gci_send_post(a->w.self, out, BYTES, 1, &post, &r), GC_OK);
    post.done_fn = message_done;
    post.user = &second;
    assert_int_equal(gci_send_post(a->w.self, out, BYTES, 1, &post, &r), GC_OK);
    gci_leave(&a->w);
    for (int i = 0; i < 20; i++)
        overlay_fill(overlay_of(0));
    assert_int_equal(overlay_of(0)->queued[0], 2);      /* begun, and lost with the link */
    assert_int_equal(a->w.p2p->pair[1]->sent_bytes, 2 * BYTES);
    play.at_once = true;
    both_begin(2, true, GCI_ROUTED_MAX);
    move(true);
    assert_true(!chain.done && !second.done);
    gc_request *answer;                 /* any packet acknowledges */
    assert_int_equal(gc_isend(play.side[1].w.self, out, 1, 0, 0, &answer), GC_OK);
    assert_int_equal(gc_wait_for(&answer, 0, NULL), GC_OK);
    move(true);
    assert_true(chain.done && second.done);
    assert_null(play.what);
    assert_null(a->w.p2p->pair[1]->queue);
    gci_enter(&a->w);
    gci_request_drop(chain.next);
    gci_leave(&a->w);
    for (int i = 0; i < SIDES; i++)
        side_close(&play.side[i]);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(memory_is_tried_again),
                                        cmocka_unit_test(the_window_is_known_first),
                                        cmocka_unit_test(ways_that_change_lose_nothing),
                                        cmocka_unit_test(a_death_ends_everything) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
