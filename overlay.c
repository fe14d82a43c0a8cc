/* overlay.c: links, packets, fixed-buffer forwarding.
 * SPDX-License-Identifier: MIT
 *
 * A link is a proven data connection to a peer, of one of two kinds. A pair's own carries packets between its two ends only.
 * A backbone link carries packets on their way between any two ranks, its own included (a hop; it lives as long as the
 * overlay, its connection comes and goes). Either has a finite send queue of whole packets and one packet being received;
 * nothing else is stored here, so memory per link is constant. Payloads are written straight from where they lie and
 * read straight to where they belong; a small read-ahead takes headers and short messages, so a short message costs one
 * system call at either end.
 *
 * Forwarding (Hironaka 2009, 4.2, Figure 4.2). A packet for somebody else is read into a buffer of its own, and when it has
 * come whole the buffer moves into the send queue of the next hop, from which it is written: it is never copied. If that
 * queue is full, the link that brought the packet joins the FIFO queue of those who wait for the next hop, and nothing more
 * is read from it, so TCP carries the back-pressure. Each packet that leaves lets in the first who waits. This rank's own
 * packets wait in the same queue: one per turn, its destinations taking turns among themselves. Nothing is dropped within
 * an epoch, and with routes free of cycles nobody waits for ever.
 *
 * Ways. This rank reaches a peer in one way at a time: over a link of their own, or (within one epoch) over the route. The
 * link is asked for first; the route begins when it has not come within a short patience, or will not come; and the link
 * replaces the route when it comes after all. Every way begins with a RESUME of both sides, of which p2p.c says what it does.
 * Packets of a way that has ended are skipped; so that none of them is taken for one of the next way, a pair has no second
 * routed way in one epoch: it waits for the next, which it asks for.
 *
 * Epochs. Whatever is lost on the backbone (a rank, a link, a connection with packets in it) begins a new epoch everywhere,
 * by the word of control. Then all routed ways end and begin anew, queues forget what has not begun to leave, older packets are
 * discarded where they arrive, and a link whose next packet is of a newer epoch is not read on until this rank has heard of
 * that one too. Between a loss and the new epoch nothing more is sent over the link that lost: packets of one way that
 * arrive at all arrive without a gap.
 *
 * Everything but the inbox is guarded by the world's monitor. A link that fails is marked, and torn down by the driver
 * (drive.c), never inside a callback; likewise ways are looked for, and links that were held are read on, by the driver
 * only: a push sends, but never receives.
 */
#include "gridcomm_int.h"

enum {
    QUEUE_MAX = 8,                      /* packets in a send queue */
    HEAD_MAX = 256,                     /* header and payload up to this leave as one piece: cheaper than two */
    SHORT_MAX = HEAD_MAX - GCI_HEADER_BYTES,
    BULK_QUEUED = 2 * GCI_PACKET_MAX,   /* bytes in the queue beyond which no chunk is pulled: envelopes get past */
    ROUTED_QUEUED = 2 * GCI_ROUTED_MAX, /* bytes in the queue of a hop that make it full */
    OWN_AHEAD = 16384,                  /* read-ahead: headers and short messages come in one call, */
    HOP_AHEAD = 8192,                   /* here within 64 KiB for all of a link, */
    HOP_BULK = 1024,                    /* and of a larger payload only the next header beyond it */
    READS_PER_TURN = 16,                /* from one link before the others have their turn */
    EVENTS = 64,
    HOT_AFTER = 64,                     /* waits that polling one socket has ended, one after another */
    LOST_MAX = 3,                       /* links of a pair's own lost, after which it stays on the route */
    OFFENCES_MAX = 3,                   /* connections to a neighbour that broke the rules on each */
    FAILURES_MAX = 3                    /* of control to connect to a neighbour, one after another: it is given up */
};
#define OVERLAY_PAUSE    (10 * (int64_t)GCI_NS_PER_MS)      /* between two tries of what memory has failed; between restarts */
#define OVERLAY_AGAIN    (100 * (int64_t)GCI_NS_PER_MS)     /* before a backbone link is asked for once more */
#define OVERLAY_PATIENCE (300 * (int64_t)GCI_NS_PER_MS)     /* for a link of the pair's own, before the route begins */
#define OVERLAY_HIGHER   (200 * (int64_t)GCI_NS_PER_MS)     /* of the higher rank: the lower asks for the restart first */
#define OVERLAY_DOUBT    (3 * GCI_SECOND)                   /* a loss that no news has come of */
#define OVERLAY_HUNGER   (1 * GCI_SECOND)                   /* without memory for a link: then the peer is given up */
static const uint64_t overlay_waker_tag = UINT64_MAX;

typedef struct gci_link overlay_link;

typedef struct overlay_slot {
    gci_packet  packet;
    const void *payload;                /* NULL: none, or in head */
    void       *token;                  /* of this rank's own packets */
    void       *copy;                   /* owned: the payload's owner has gone */
    void       *buffer;                 /* owned, GCI_ROUTED_MAX: a packet on its way */
    size_t      head_bytes;
    uint8_t     head[HEAD_MAX];         /* the header, and a short payload */
} overlay_slot;

/* Who waits for room in the queue of a hop: a link that holds a packet, or this rank itself. */
typedef struct overlay_waiter {
    struct overlay_waiter *next;
    overlay_link *source;               /* NULL: this rank */
    bool waits;
} overlay_waiter;

enum overlay_passing { PASS_SKIP, PASS_DELIVER, PASS_FORWARD };     /* what becomes of the packet being received */

struct gci_link {
    int      fd, peer;                  /* fd -1: a hop without a connection */
    bool     backbone;
    bool     broken;
    bool     pumping, pushed;           /* in link_pump; and there is more since it last asked */
    bool     mute;                      /* sending failed; what the peer sent before may still be read */
    bool     broke_rules;               /* the peer did */
    bool     writing;                   /* the poller watches for room */
    unsigned watched;                   /* events asked of the poller */
    int      paid;                      /* waits that polling it has ended, towards HOT_AFTER */
    /* sending: out[0 .. queued), of which the first `gone` bytes of out[0] have left */
    int      queued;
    size_t   gone;
    overlay_slot out[QUEUE_MAX];
    /* receiving: ahead[from .. to) is read but not taken; in a packet, sink_left then skip_left bytes are to come */
    size_t   from, to;
    bool     in_packet;
    enum overlay_passing passing;
    gci_packet in;
    uint8_t *sink;
    size_t   sink_left, skip_left;
    void    *token;
    /* of a hop: receiving */
    void    *buffer;                    /* of the packet being received or held */
    overlay_link *next;                 /* where it goes */
    bool     holds;                     /* it has come whole, and waits for room there */
    bool     stopped;                   /* the packet whose header is here cannot begin: of a newer epoch, or no memory */
    int64_t  stopped_at;
    bool     again;                     /* may be read on */
    overlay_waiter wait;                /* while it holds */
    int      at;                        /* its place among the neighbours in the routes, or -1 */
    int      offences, failures;        /* connections that broke the rules; that could not be had, one after another */
    /* of a hop: sending */
    overlay_waiter *waiters, **waiters_end, local;      /* for room here; this rank's place among them */
    int      waiting;
    uint32_t local_first, local_last;   /* this rank's destinations that go by here: 1 + 2 * rank + metric; 0: none */
    bool     sent, lost;                /* something, in an epoch: it was written; it may be lost with a connection */
    uint16_t sent_epoch, lost_epoch;
    bool     due;                       /* among those with something new */
    overlay_link *next_due, *next_hop;
    uint64_t relayed;
    size_t   ahead_room;
    uint8_t  ahead[];
};

struct overlay_held { uint32_t links, id; int fd, code; };      /* links: of which the last one is kept; code: of NO_LINK */

typedef struct overlay_peer {
    overlay_link *own, *hop;
    uint32_t seen[2], own_id;           /* links so far, by kind; the last of its own */
    bool     asked[2], unasked[2];      /* by kind; no memory to ask: tried again */
    bool     routed;                    /* the way is the route ... */
    bool     was_routed;                /* ... or was, in this epoch */
    bool     over;                      /* no way any more: it is gone, or was given up */
    bool     gone;
    bool     fallen;                    /* the way has ended, and above has not been told */
    bool     turning;                   /* one way ends because the next is here: do not look for any */
    bool     wants;                     /* something is for it, and it has no way */
    bool     hurry;                     /* it had a route when the epoch ended */
    bool     refused;                   /* no link of its own in this epoch */
    bool     ignored;                   /* it began a route in this epoch, which was not taken */
    bool     listed[GCI_METRICS];
    uint8_t  lost;                      /* links of its own, up to LOST_MAX */
    uint32_t after[GCI_METRICS];        /* the next in the list of a hop */
    int64_t  patience;                  /* until when its own link is waited for; 0: not yet, -1: not any more */
    /* news for which there was no memory, without their text; guarded by inbox_lock */
    struct overlay_held held[2];        /* by kind */
    int      held_code;
    enum gci_news_kind held_loss;       /* DEAD or LEFT; else none */
} overlay_peer;
typedef struct overlay_news { struct overlay_news *next; gci_news news; } overlay_news;

enum { OWN, BACKBONE };                 /* kinds of links, as an index */

/* ---- packets -------------------------------------------------------------------------------------------------- */
GCI void gci_packet_encode(const gci_packet *p, uint8_t out[GCI_HEADER_BYTES])
{
    out[0] = p->type;
    out[1] = p->flags;
    gci_put16(out + 2, p->epoch);
    gci_put32(out + 4, p->source);
    gci_put32(out + 8, p->dest);
    gci_put32(out + 12, p->length);
    gci_put32(out + 16, p->ack);
    gci_put16(out + 20, p->credit);
    gci_put16(out + 22, p->window);
    gci_put32(out + 24, p->seq);
    gci_put32(out + 28, p->context);
    gci_put32(out + 32, p->tag);
    gci_put32(out + 36, p->signature);
    gci_put64(out + 40, p->total);
}

GCI int gci_packet_decode(gci_packet *p, const uint8_t in[GCI_HEADER_BYTES])
{
    p->type = in[0];
    p->flags = in[1];
    p->epoch = gci_get16(in + 2);
    p->source = gci_get32(in + 4);
    p->dest = gci_get32(in + 8);
    p->length = gci_get32(in + 12);
    p->ack = gci_get32(in + 16);
    p->credit = gci_get16(in + 20);
    p->window = gci_get16(in + 22);
    p->seq = gci_get32(in + 24);
    p->context = gci_get32(in + 28);
    p->tag = gci_get32(in + 32);
    p->signature = gci_get32(in + 36);
    p->total = gci_get64(in + 40);
    if (p->type == 0 || p->type >= GCI_TYPES || p->length > GCI_PACKET_MAX)
        return GC_ERR_PROTOCOL;
    bool carries = p->type == GCI_ENVELOPE || p->type == GCI_CHUNK;
    if (!carries && p->length != 0)
        return GC_ERR_PROTOCOL;
    if (p->type == GCI_ENVELOPE && p->length > p->total)
        return GC_ERR_PROTOCOL;
    return GC_OK;
}

/* ---- the driver's errands, and the clock ---------------------------------------------------------------------- */

GCI void gci_overlay_wake(gci_overlay *o)
{
    if (o->waiters > 0)
        o->sys->notify(o->sys, o->monitor);
    o->next_tick = 0;                   /* what has changed may want to be timed */
    if (o->asleep > 0)
        o->sys->wake(o->sys, o->waker);
    if (o->outer >= 0)
        o->sys->wake(o->sys, o->bell);
}

static void errand(gci_overlay *o)
{
    bool news = !o->errands;
    o->errands = true;
    if (news && !o->inside)
        gci_overlay_wake(o);
}

static void alarm_at(gci_overlay *o, int64_t at)
{
    if (at >= o->alarm)
        return;
    o->alarm = at;
    if (at < o->next_tick)
        o->next_tick = at;
    if (!o->inside || o->asleep > 0)    /* another thread may sleep beyond it */
        gci_overlay_wake(o);
}

static int64_t after(gci_overlay *o, int64_t ns) { return o->sys->now(o->sys) + ns; }

/* A new epoch is needed: once in each, and not too many a second. */
static void restart_ask(gci_overlay *o)
{
    if (o->restarts && o->restarted == o->epoch && !o->owes_restart)
        return;
    int64_t now = o->sys->now(o->sys);
    o->restarts = o->owes_restart = true;
    o->restarted = o->epoch;
    if (now >= o->restart_at) {
        gci_log(o->env, GC_LOG_DEBUG, "asks for a new epoch after %u", (unsigned)o->epoch);
        o->owes_restart = o->control && gci_control_restart(o->control) < 0;
        o->restart_at = now + OVERLAY_PAUSE;
    }
    if (o->owes_restart)
        alarm_at(o, o->restart_at);
}

static void ask(gci_overlay *o, int peer, int kind)
{
    overlay_peer *p = &o->peer[peer];
    if (p->asked[kind] || !o->control)
        return;
    p->asked[kind] = gci_control_connect(o->control, kind == OWN ? GCI_PURPOSE_DATA : GCI_PURPOSE_BACKBONE, peer,
                                         p->seen[kind]) == GC_OK;
    if (!p->asked[kind]) {
        p->unasked[kind] = o->unasked = true;
        alarm_at(o, after(o, OVERLAY_PAUSE));
    }
}

/* ---- links ---------------------------------------------------------------------------------------------------- */

static void link_break(gci_overlay *o, overlay_link *link, const char *why)
{
    if (link->broken || link->fd < 0)
        return;
    link->broken = true;
    o->broken++;
    gci_log(o->env, GC_LOG_DEBUG, "%s to rank %d ends: %s", link->backbone ? "backbone link" : "link", link->peer, why);
    gci_overlay_wake(o);
}

static bool link_is_read(const overlay_link *link) { return !link->holds && !link->stopped; }

static int link_watch_now(gci_overlay *o, overlay_link *link)
{
    unsigned events = (o->hot == link || !link_is_read(link) ? 0 : GCI_READ) | (link->writing ? GCI_WRITE : 0);
    if (link->fd < 0 || link->watched == events)
        return 0;
    link->watched = events;
    int err = o->sys->watch(o->sys, o->poller, link->fd, events, 2 * (uint64_t)link->peer + link->backbone);
    if (err < 0)
        link_break(o, link, gci_strerrno(err));
    return err;
}

static void link_watch(gci_overlay *o, overlay_link *link, bool writing)
{
    if (link->writing == writing)
        return;
    link->writing = writing;
    link_watch_now(o, link);
}

/* This link (or none) is the hot one from now on. */
static void link_heat(gci_overlay *o, overlay_link *link)
{
    overlay_link *before = o->hot;
    o->hot = link;
    if (before)
        link_watch_now(o, before);
    if (link)
        link_watch_now(o, link);
}

static void slot_free(gci_overlay *o, overlay_slot *slot);

/* The connection is closed, and what was in it forgotten, but for a packet that has come whole. */
static void link_close(gci_overlay *o, overlay_link *link)
{
    for (int i = 0; i < link->queued; i++)
        slot_free(o, &link->out[i]);
    link->queued = 0;
    link->gone = link->from = link->to = 0;
    link->sink_left = link->skip_left = 0;
    link->stopped_at = 0;
    link->in_packet = link->stopped = link->mute = link->writing = false;
    if (o->hot == link)
        o->hot = NULL;
    if (link->broken)
        o->broken--;
    link->broken = false;
    if (link->fd < 0)
        return;
    if (link->watched)
        o->sys->watch(o->sys, o->poller, link->fd, 0, 0);
    link->watched = 0;
    o->sys->close(o->sys, link->fd);
    link->fd = -1;
    o->stats->connections--;
}

static int link_open(gci_overlay *o, overlay_link *link, int fd)
{
    link->fd = fd;
    int err = link_watch_now(o, link);
    o->stats->connections++;
    return err;
}

static overlay_link *link_new(gci_overlay *o, int peer, bool backbone)
{
    size_t room = backbone ? HOP_AHEAD : OWN_AHEAD;
    overlay_link *link = gci_alloc(o->env, sizeof *link + room);
    if (!link)
        return NULL;
    link->fd = link->at = -1;
    link->peer = peer;
    link->backbone = backbone;
    link->ahead_room = room;
    link->wait.source = link;
    link->waiters_end = &link->waiters;
    return link;
}

/* So many links of one's own, and others' are refused. */
static void owns_review(gci_overlay *o)
{
    bool full = !o->direct || (o->max_owns > 0 && o->owns >= o->max_owns);
    if (full != o->full && o->control) {
        o->full = full;
        gci_control_full(o->control, full);
    }
}

static void own_free(gci_overlay *o, overlay_link *link)
{
    o->peer[link->peer].own = NULL;
    o->owns--;
    link_close(o, link);
    gci_free(o->env, link);
    owns_review(o);
}

/* ---- buffers and queues --------------------------------------------------------------------------------------- */

static void *buffer_take(gci_overlay *o)
{
    void *buffer = o->spare;
    if (buffer) {
        memcpy(&o->spare, buffer, sizeof o->spare);
        return buffer;
    }
    buffer = gci_alloc(o->env, GCI_ROUTED_MAX);
    o->buffers += buffer != NULL;
    return buffer;
}

static void buffer_give(gci_overlay *o, void *buffer)
{
    if (!buffer)
        return;
    memcpy(buffer, &o->spare, sizeof o->spare);
    o->spare = buffer;
}

static void slot_free(gci_overlay *o, overlay_slot *slot)
{
    gci_free(o->env, slot->copy);
    buffer_give(o, slot->buffer);
    slot->copy = slot->buffer = NULL;
}

/* The last slot moves to its place: envelopes and what is owed stand before chunks that have not begun; among themselves
 * they keep their order. */
static void slot_settle(overlay_link *link)
{
    int last = link->queued - 1, at = last;
    if (link->out[last].packet.type == GCI_CHUNK)
        return;
    while (at > 0 && link->out[at - 1].packet.type == GCI_CHUNK && !(at == 1 && link->gone > 0))
        at--;
    if (at == last)
        return;
    overlay_slot slot = link->out[last];
    memmove(link->out + at + 1, link->out + at, (size_t)(last - at) * sizeof slot);
    link->out[at] = slot;
}

static void slot_encode(overlay_slot *slot)
{
    gci_packet_encode(&slot->packet, slot->head);
    slot->head_bytes = GCI_HEADER_BYTES;
    slot->copy = slot->buffer = NULL;
    if (slot->packet.length == 0 || slot->packet.length > SHORT_MAX)
        return;
    memcpy(slot->head + GCI_HEADER_BYTES, slot->payload, slot->packet.length);
    slot->head_bytes += slot->packet.length;
    slot->payload = NULL;
}

/* The payload of one of this rank's packets goes away: on from a copy. false: the link is broken, and touches it no more. */
static bool slot_keep(gci_overlay *o, overlay_link *link, overlay_slot *slot)
{
    slot->token = NULL;
    if (!slot->payload || slot->copy || slot->buffer)
        return true;
    slot->copy = gci_alloc(o->env, slot->packet.length);
    if (!slot->copy) {
        link_break(o, link, "out of memory");
        return false;
    }
    memcpy(slot->copy, slot->payload, slot->packet.length);
    slot->payload = slot->copy;
    return true;
}

/* What has not begun to leave is forgotten: all of it (dest -1), or this rank's packets to dest. */
static void queue_forget(gci_overlay *o, overlay_link *link, int dest)
{
    size_t left = link->gone;           /* beyond the first packet: in link_sent, which has not come to them yet */
    int kept = 0;
    for (int i = 0; i < link->queued; i++) {
        overlay_slot *slot = &link->out[i];
        bool mine = slot->packet.source == (uint32_t)o->rank, begun = left > 0;
        left -= gci_min(left, GCI_HEADER_BYTES + slot->packet.length);
        if (dest < 0 || (mine && slot->packet.dest == (uint32_t)dest)) {
            if (!begun) {
                slot_free(o, slot);
                continue;
            }
            if (mine)
                slot_keep(o, link, slot);
        }
        if (kept != i)
            link->out[kept] = *slot;
        kept++;
    }
    link->queued = kept;
}

/* ---- hops: the next links of routes ---------------------------------------------------------------------------- */

static void hop_place(gci_overlay *o, overlay_link *hop)
{
    hop->at = -1;
    for (int i = 0; i < o->routes.degree; i++)
        if (o->routes.neighbour[i] == hop->peer)
            hop->at = i;
}

/* Memory has failed. true: for so long now that nothing is waited for any more. */
static bool hunger(gci_overlay *o)
{
    int64_t now = o->sys->now(o->sys);
    if (o->hungry_since == 0)
        o->hungry_since = now;
    return now - o->hungry_since > OVERLAY_HUNGER;
}

/* NULL: out of memory. */
static overlay_link *hop_get(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    if (p->hop)
        return p->hop;
    p->hop = link_new(o, peer, true);
    if (!p->hop)
        return NULL;
    o->hungry_since = 0;
    p->hop->next_hop = o->hops;
    o->hops = p->hop;
    o->hop_count++;
    hop_place(o, p->hop);
    return p->hop;
}

/* Is there still to be a link to this rank? */
static bool hop_is_wanted(const gci_overlay *o, int peer)
{
    int edge = o->graph.nodes > 0 ? gci_graph_find(&o->graph, o->rank, peer) : -1;
    if (o->peer[peer].gone)
        return false;
    return edge >= 0 ? o->graph.edge[edge].cost[GCI_LATENCY] > 0 : o->given;
}

/* What was sent in this epoch may be lost: nothing more goes this way before the next one. */
static bool hop_has_lost(const gci_overlay *o, const overlay_link *hop)
{
    return hop->lost && hop->lost_epoch == o->epoch;
}

/* A forwarded payload counts as its whole buffer: so two of them fill a queue, whatever their size. */
static bool hop_has_room(const gci_overlay *o, const overlay_link *hop)
{
    size_t bytes = 0;
    for (int i = 0; i < hop->queued; i++)
        bytes += hop->out[i].buffer ? GCI_ROUTED_MAX : hop->out[i].packet.length;
    return hop->queued < o->queue_max && bytes < ROUTED_QUEUED;
}

static void hop_due(gci_overlay *o, overlay_link *hop)
{
    if (hop->due)
        return;
    hop->due = true;
    hop->next_due = o->due;
    o->due = hop;
}

static void waiter_append(overlay_link *hop, overlay_waiter *w)
{
    if (w->waits)
        return;
    w->waits = true;
    w->next = NULL;
    *hop->waiters_end = w;
    hop->waiters_end = &w->next;
    hop->waiting++;
}

static overlay_waiter *waiter_pop(overlay_link *hop)
{
    overlay_waiter *w = hop->waiters;
    if (!w)
        return NULL;
    hop->waiters = w->next;
    if (!hop->waiters)
        hop->waiters_end = &hop->waiters;
    w->waits = false;
    hop->waiting--;
    return w;
}

/* A link that held a packet may be read on, by the driver. */
static void hop_release(gci_overlay *o, overlay_link *hop)
{
    hop->holds = hop->stopped = false;
    hop->again = o->again = true;
    errand(o);
}

/* The packet that `from` has received goes into the queue, its buffer with it. */
static void hop_take(gci_overlay *o, overlay_link *hop, overlay_link *from)
{
    overlay_slot *slot = &hop->out[hop->queued++];
    slot->packet = from->in;
    slot->payload = slot->packet.length > 0 ? from->buffer : NULL;
    slot->token = NULL;
    slot_encode(slot);
    if (slot->payload) {
        slot->buffer = from->buffer;
        from->buffer = NULL;
    }
    hop->relayed += slot->packet.length;
    o->stats->relayed_bytes += slot->packet.length;
    slot_settle(hop);
}

static void local_append(gci_overlay *o, overlay_link *hop, int peer, enum gci_metric metric)
{
    overlay_peer *p = &o->peer[peer];
    uint32_t entry = 1 + 2 * (uint32_t)peer + metric, last = hop->local_last - 1;
    if (p->listed[metric])
        return;
    p->listed[metric] = true;
    p->after[metric] = 0;
    if (hop->local_last > 0)
        o->peer[last / 2].after[last % 2] = entry;
    else
        hop->local_first = entry;
    hop->local_last = entry;
    waiter_append(hop, &hop->local);
}

static overlay_link *route_hop(const gci_overlay *o, enum gci_metric metric, int dest)
{
    int next = gci_route_next(&o->routes, metric, -1, dest);
    return next < 0 ? NULL : o->peer[o->routes.neighbour[next]].hop;
}

/* The next packet to this destination that goes by here. false: there is none. */
static bool local_next(gci_overlay *o, overlay_link *hop, int peer, enum gci_metric metric)
{
    unsigned want = metric == GCI_BANDWIDTH ? GCI_WANT_BULK : GCI_WANT_ORDERED;
    gci_packet packet;
    const void *payload;
    void *token;
    if (metric == GCI_LATENCY && route_hop(o, GCI_BANDWIDTH, peer) == hop)
        want |= GCI_WANT_BULK;
    if (!o->up.next(o->user, peer, want, GCI_ROUTED_MAX, &packet, &payload, &token))
        return false;
    packet.epoch = o->epoch;
    if (packet.type == GCI_STATE && packet.flags & GCI_FLAG_RESUME)
        packet.seq = o->peer[peer].own_id;
    overlay_slot *slot = &hop->out[hop->queued++];      /* not before: what next() calls may change the queue */
    slot->packet = packet;
    slot->payload = payload;
    slot->token = token;
    slot_encode(slot);
    slot_settle(hop);
    return true;
}

/* This rank's turn: one packet of the destination that has waited longest. */
static void local_take(gci_overlay *o, overlay_link *hop)
{
    while (hop->local_first > 0) {
        uint32_t entry = hop->local_first - 1;
        int peer = (int)(entry / 2);
        enum gci_metric metric = entry % 2;
        overlay_peer *p = &o->peer[peer];
        hop->local_first = p->after[metric];
        if (hop->local_first == 0)
            hop->local_last = 0;
        p->listed[metric] = false;
        if (p->routed && local_next(o, hop, peer, metric)) {
            local_append(o, hop, peer, metric);
            return;
        }
    }
}

/* false: nobody waits. This rank's turn comes when the links that had theirs could get in line again. */
static bool hop_fill(gci_overlay *o, overlay_link *hop)
{
    while (hop->waiters && hop_has_room(o, hop)) {
        if (!hop->waiters->source && o->again)
            break;                      /* links_go_on comes back to this */
        overlay_link *from = waiter_pop(hop)->source;
        if (!from) {
            local_take(o, hop);
            continue;
        }
        hop_take(o, hop, from);
        hop_release(o, from);
    }
    return hop->waiters != NULL;
}

static bool hop_sends(gci_overlay *o, overlay_link *hop)
{
    if (hop->fd < 0 && hop_is_wanted(o, hop->peer))
        ask(o, hop->peer, BACKBONE);
    if (hop->fd < 0 || hop_has_lost(o, hop))
        return false;
    hop->sent = true;
    hop->sent_epoch = o->epoch;
    return true;
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* false: above there is nothing more to send. */
static bool link_fill(gci_overlay *o, overlay_link *link)
{
    size_t bytes = 0;
    for (int i = 0; i < link->queued; i++)
        bytes += link->out[i].packet.length;
    while (link->queued < o->queue_max) {
        overlay_slot *slot = &link->out[link->queued];
        unsigned want = GCI_WANT_ORDERED | (bytes < BULK_QUEUED ? GCI_WANT_BULK : 0);
        if (!o->up.next(o->user, link->peer, want, GCI_PACKET_MAX, &slot->packet, &slot->payload, &slot->token))
            return bytes >= BULK_QUEUED;
        slot_encode(slot);
        bytes += slot->packet.length;
        link->queued++;
        slot_settle(link);
    }
    return true;
}
static int link_vector(const overlay_link *link, struct iovec iov[2 * QUEUE_MAX])
{
    int n = 0;
    size_t gone = link->gone;
    for (int i = 0; i < link->queued; i++) {
        const overlay_slot *slot = &link->out[i];
        size_t head_gone = gci_min(gone, slot->head_bytes), gone_beyond = gone - head_gone;
        if (head_gone < slot->head_bytes)
            iov[n++] = (struct iovec){ (void *)(uintptr_t)(slot->head + head_gone), slot->head_bytes - head_gone };
        if (slot->payload && slot->packet.length > gone_beyond)
            iov[n++] = (struct iovec){ (void *)((uintptr_t)slot->payload + gone_beyond), slot->packet.length - gone_beyond };
        gone = 0;
    }
    return n;
}

/* `bytes` more have left: whole packets leave the queue, one by one, since each callback may disown what is behind. */
static void link_sent(gci_overlay *o, overlay_link *link, size_t bytes)
{
    link->gone += bytes;
    while (link->queued > 0 && link->gone >= GCI_HEADER_BYTES + link->out[0].packet.length) {
        enum gci_packet_type type = link->out[0].packet.type;
        void *token = link->out[0].token;
        int dest = (int)link->out[0].packet.dest;
        slot_free(o, &link->out[0]);
        link->gone -= GCI_HEADER_BYTES + link->out[0].packet.length;
        if (--link->queued > 0)
            memmove(link->out, link->out + 1, (size_t)link->queued * sizeof link->out[0]);
        if (token)
            o->up.sent(o->user, dest, type, token);
    }
}

/* Sends what the socket takes. true: something left. Callbacks may push to the same link meanwhile: that only notes that
 * there is more. */
static bool link_pump(gci_overlay *o, overlay_link *link)
{
    bool moved = false, more = true;
    if (link->pumping) {
        link->pushed = true;
        return false;
    }
    link->pumping = true;
    while (!link->broken) {
        link->pushed = false;
        if (more)
            more = link->backbone ? hop_fill(o, link) : link_fill(o, link);
        if (link->broken)
            break;
        if (link->queued == 0 || (link->backbone && !hop_sends(o, link))) {
            link_watch(o, link, false);
            break;
        }
        struct iovec iov[2 * QUEUE_MAX];
        ssize_t n = o->sys->send(o->sys, link->fd, iov, link_vector(link, iov));
        o->stats->system_calls++;
        if (n == -EAGAIN) {
            link_watch(o, link, true);
            break;
        }
        if (n < 0) {
            link->mute = true;
            link_break(o, link, gci_strerrno((int)n));
            break;
        }
        moved = true;
        link_sent(o, link, (size_t)n);
        more |= link->pushed || link->waiters;
    }
    link->pumping = false;
    return moved;
}

static void pump_due(gci_overlay *o)
{
    while (o->due) {
        overlay_link *hop = o->due;
        o->due = hop->next_due;
        hop->due = false;
        link_pump(o, hop);
    }
}

/* ---- routes --------------------------------------------------------------------------------------------------- */

/* The first numbering, as long as every pair that is left has a path under it; else a fresh one of what is left. So
 * it depends on what has been lost, and not on the order in which ranks heard of it. */
static int numbering_choose(gci_overlay *o)
{
    const gci_topo *topo = gci_control_topo(o->control);
    gci_numbering fresh;
    int err = GC_OK;
    if (!o->first.number)
        err = gci_number(o->env, gci_control_graph(o->control), topo, o->routing, &o->first);
    if (err < 0)
        return err;
    int32_t *scratch = gci_alloc(o->env, 3 * (size_t)o->graph.nodes * sizeof *scratch);
    if (!scratch)
        return GC_ERR_NOMEM;
    bool holds = gci_numbering_holds(&o->graph, &o->first, scratch);
    gci_free(o->env, scratch);
    o->numbering = &o->first;
    if (holds)
        return GC_OK;
    err = gci_number(o->env, &o->graph, topo, o->routing, &fresh);
    if (err < 0)
        return err;
    gci_numbering_free(o->env, &o->fresh);
    o->fresh = fresh;
    o->numbering = &o->fresh;
    return GC_OK;
}

/* The tables of this epoch. NULL: no memory, or there is no backbone. */
static const gci_routes *tables(gci_overlay *o)
{
    gci_routes routes;
    if (!o->stale)
        return o->routes.nodes > 0 ? &o->routes : NULL;
    if (numbering_choose(o) < 0 ||
        gci_routes_make(o->env, &o->graph, gci_control_topo(o->control), o->numbering, o->rank, &routes) < 0)
        return NULL;
    gci_routes_free(o->env, &o->routes);
    o->routes = routes;
    o->stale = false;
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop)
        hop_place(o, hop);
    return &o->routes;
}

GCI void gci_overlay_use_routes(gci_overlay *o, gci_routes *routes)
{
    gci_routes_free(o->env, &o->routes);
    o->routes = *routes;
    *routes = (gci_routes){ .nodes = 0 };
    o->given = true;
    o->stale = false;
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop)
        hop_place(o, hop);
}

GCI const gci_routes *gci_overlay_routes(gci_overlay *o, uint16_t *epoch, const gci_numbering **numbering)
{
    const gci_routes *routes = tables(o);
    if (epoch)
        *epoch = o->epoch;
    if (numbering)
        *numbering = o->given ? NULL : o->numbering;
    return routes;
}

/* ---- ways ----------------------------------------------------------------------------------------------------- */

static bool own_is_possible(const gci_overlay *o, int peer)
{
    const overlay_peer *p = &o->peer[peer];
    if (!o->control || !o->direct || p->refused || (o->max_owns > 0 && o->owns >= o->max_owns))
        return false;
    return !o->unreachable || !o->unreachable[gci_control_table(o->control)->card[peer].host];
}

static void route_push(gci_overlay *o, int peer)
{
    overlay_link *soon = route_hop(o, GCI_LATENCY, peer), *bulk = route_hop(o, GCI_BANDWIDTH, peer);
    local_append(o, soon, peer, GCI_LATENCY);
    if (bulk != soon)
        local_append(o, bulk, peer, GCI_BANDWIDTH);
    link_pump(o, soon);
    if (bulk != soon)
        link_pump(o, bulk);
}

/* GC_ERR_UNREACHABLE: there is none; GC_ERR_PENDING: not in this epoch; GC_ERR_NOMEM. */
static int route_begin(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    if (p->was_routed) {
        restart_ask(o);
        return GC_ERR_PENDING;
    }
    const gci_routes *r = tables(o);
    if (!r)
        return o->stale ? GC_ERR_NOMEM : GC_ERR_UNREACHABLE;
    for (int metric = 0; metric < GCI_METRICS; metric++) {
        int next = gci_route_next(r, (enum gci_metric)metric, -1, peer);
        if (next < 0)
            return GC_ERR_UNREACHABLE;
        if (!hop_get(o, r->neighbour[next]))
            return GC_ERR_NOMEM;
    }
    p->routed = p->was_routed = true;
    p->wants = p->hurry = false;
    p->patience = 0;
    gci_log(o->env, GC_LOG_DEBUG, "rank %d is reached over rank %d in epoch %u", peer, route_hop(o, GCI_LATENCY, peer)->peer,
            (unsigned)o->epoch);
    o->up.way_up(o->user, peer, true);
    if (p->routed)
        route_push(o, peer);
    return GC_OK;
}

/* The route to this peer is not taken any more; nothing refers to its packets behind this. */
static void route_end(gci_overlay *o, int peer)
{
    o->peer[peer].routed = false;
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop) {
        queue_forget(o, hop, peer);
        hop_due(o, hop);                /* there may be room now */
        if (hop->in_packet && hop->passing == PASS_DELIVER && hop->in.source == (uint32_t)peer) {
            hop->passing = PASS_SKIP;
            hop->skip_left += hop->sink_left;
            hop->sink_left = 0;
        }
    }
    errand(o);
}

static void ways_tell_fallen(gci_overlay *o)
{
    o->fallen = false;
    for (int peer = 0; peer < o->ranks; peer++)
        if (o->peer[peer].fallen) {
            o->peer[peer].fallen = false;
            o->up.way_down(o->user, peer, false);
        }
}

/* What a peer says on the route is not for this rank to hear: it broke the rules, or there is no memory. */
static void route_fail(gci_overlay *o, int peer, int err)
{
    route_end(o, peer);
    if (err == GC_ERR_NOMEM)
        restart_ask(o);
    else if (err != GC_ERR_PROTOCOL)
        o->peer[peer].over = true;      /* above has done with it */
    o->up.way_down(o->user, peer, err == GC_ERR_PROTOCOL);
}

static void way_is_missing(gci_overlay *o, int peer, int code)
{
    gci_news news = { .kind = GCI_NEWS_NO_LINK, .rank = peer, .fd = -1, .code = code };
    o->peer[peer].wants = false;
    snprintf(news.text, sizeof news.text, code == GC_ERR_NOMEM ? "no memory to reach rank %d"
             : code == GC_ERR_PROTOCOL ? "rank %d sends packets that break the rules"
                                       : "rank %d cannot be connected, and no route leads there", peer);
    o->up.news(o->user, &news);
}

/* All were connected by the backbone once: whoever has no route has been cut off since, though news of it are still to come. */
static int no_route(const gci_overlay *o)
{
    return o->control && !o->given ? GC_ERR_PEER : GC_ERR_UNREACHABLE;
}

/* Something is for this peer, and it has no way. The driver looks; but a link of its own is asked for at once. */
static void way_want(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    bool own = own_is_possible(o, peer), patient = own && !p->hurry && p->lost < LOST_MAX, before = p->wants;
    p->wants = true;
    if (!o->control && !o->given)
        return;
    if (own)
        ask(o, peer, OWN);
    if (before && p->patience != 0)
        return;
    p->patience = patient ? after(o, OVERLAY_PATIENCE) : -1;
    if (patient) {
        alarm_at(o, p->patience);
        return;
    }
    o->wants = true;
    errand(o);
}

static void way_seek(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    if (p->own || p->over || p->routed) {
        p->wants = false;
        return;
    }
    if (p->patience > 0 && own_is_possible(o, peer)) {
        alarm_at(o, p->patience);
        return;
    }
    int err = route_begin(o, peer);
    if (err == GC_ERR_NOMEM && hunger(o))
        way_is_missing(o, peer, err);
    else if (err == GC_ERR_NOMEM)
        alarm_at(o, after(o, OVERLAY_PAUSE));
    else if (err == GC_ERR_UNREACHABLE && own_is_possible(o, peer))
        ask(o, peer, OWN);              /* and its answer decides */
    else if (err == GC_ERR_UNREACHABLE && !p->asked[OWN])
        way_is_missing(o, peer, no_route(o));
}

static void ways_seek(gci_overlay *o)
{
    o->wants = false;
    for (int peer = 0; peer < o->ranks; peer++)
        if (o->peer[peer].wants)
            way_seek(o, peer);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

static void own_end(gci_overlay *o, overlay_link *link);

/* A RESUME has come over the backbone. false: the way does not begin, or not now. */
static bool route_resume(gci_overlay *o, gci_packet *k)
{
    int peer = (int)k->source;
    overlay_peer *p = &o->peer[peer];
    uint32_t id = k->seq;
    k->seq = 0;
    if (p->over)
        return false;
    if (p->own && id != p->own_id) {
        p->ignored = true;              /* the link is so new that the peer does not have it yet */
        return false;
    }
    if (p->own)
        own_end(o, p->own);             /* the peer has lost it */
    if (p->routed)
        return true;
    int err = p->own ? GC_ERR_PENDING : route_begin(o, peer);
    if (err < 0)
        restart_ask(o);                 /* then it says so again */
    else if (own_is_possible(o, peer) && p->lost < LOST_MAX)
        ask(o, peer, OWN);              /* perhaps from here it can be connected */
    return err == GC_OK && p->routed;
}

static void route_deliver(gci_overlay *o, overlay_link *link, void **sink, size_t *sink_bytes)
{
    gci_packet *k = &link->in;
    overlay_peer *p = &o->peer[k->source];
    bool resume = k->type == GCI_STATE && k->flags & GCI_FLAG_RESUME;
    if (resume && !route_resume(o, k))
        return;
    if (!p->routed) {
        if (p->was_routed && !p->own && !p->over)
            restart_ask(o);             /* the peer believes in a way that has ended */
        return;
    }
    int err = o->up.begin(o->user, (int)k->source, k, sink, sink_bytes, &link->token);
    if (err == GC_OK && p->routed) {
        link->passing = PASS_DELIVER;
        return;
    }
    *sink = NULL;
    *sink_bytes = 0;
    if (err < 0 && p->routed)
        route_fail(o, (int)k->source, err);
}

/* Nothing is read on for now: the packet whose header is next cannot begin. */
static bool hop_stop(gci_overlay *o, overlay_link *link, int64_t until)
{
    int64_t now = o->sys->now(o->sys);
    if (link->stopped_at == 0)
        link->stopped_at = now;
    link->stopped = true;
    link_watch_now(o, link);
    alarm_at(o, until == OVERLAY_PAUSE ? now + until : link->stopped_at + until);
    return false;
}

static enum gci_metric packet_metric(const gci_packet *k)
{
    return k->type == GCI_CHUNK && !(k->flags & GCI_FLAG_STREAMS) ? GCI_BANDWIDTH : GCI_LATENCY;
}

/* A packet for somebody else: where it goes, and a buffer to receive it in. false: no memory. */
static bool route_pass(gci_overlay *o, overlay_link *link)
{
    const gci_packet *k = &link->in;
    const gci_routes *r = tables(o);
    if (!r)
        return !o->stale;
    int next = link->at < 0 ? -1 : gci_route_next(r, packet_metric(k), link->at, (int)k->dest);
    if (next < 0) {
        gci_log(o->env, GC_LOG_DEBUG, "no route for a packet from rank %u to rank %u", (unsigned)k->source, (unsigned)k->dest);
        return true;
    }
    link->next = hop_get(o, r->neighbour[next]);
    if (k->length > 0 && !link->buffer)
        link->buffer = buffer_take(o);
    if (!link->next || (k->length > 0 && !link->buffer))
        return false;
    link->passing = PASS_FORWARD;
    return true;
}

static bool routed_is_sound(const gci_overlay *o, const overlay_link *link)
{
    const gci_packet *k = &link->in;
    uint32_t ranks = (uint32_t)o->ranks;
    return k->length <= GCI_ROUTED_MAX && k->source < ranks && k->dest < ranks && k->source != k->dest &&
           k->source != (uint32_t)o->rank && k->dest != (uint32_t)link->peer;
}

/* false: the link ends, because the peer broke the rules or there is no memory; or it is not read on for now. */
static bool packet_begin(gci_overlay *o, overlay_link *link, const uint8_t *header)
{
    gci_packet *p = &link->in;
    void *sink = NULL;
    size_t sink_bytes = 0;
    link->token = NULL;
    link->passing = PASS_SKIP;
    int err = gci_packet_decode(p, header);
    if (err == GC_OK && link->backbone) {
        int16_t ahead = (int16_t)(p->epoch - o->epoch);
        if (!routed_is_sound(o, link))
            err = GC_ERR_PROTOCOL;
        else if (ahead > 0)
            return hop_stop(o, link, o->peer_timeout);
        else if (ahead == 0 && p->dest == (uint32_t)o->rank)
            route_deliver(o, link, &sink, &sink_bytes);
        else if (ahead == 0 && !route_pass(o, link))
            return hop_stop(o, link, OVERLAY_PAUSE);
        if (link->passing == PASS_FORWARD) {
            sink = link->buffer;
            sink_bytes = p->length;
        }
    } else if (err == GC_OK) {
        if (p->source != (uint32_t)link->peer || p->dest != (uint32_t)o->rank)
            err = GC_ERR_PROTOCOL;
        else
            err = o->up.begin(o->user, link->peer, p, &sink, &sink_bytes, &link->token);
        link->passing = PASS_DELIVER;
    }
    if (err < 0) {
        link->broke_rules = err == GC_ERR_PROTOCOL;
        link_break(o, link, link->broke_rules ? "the peer sent a packet that breaks the rules" : "what came cannot be taken in");
        return false;
    }
    link->in_packet = true;
    link->stopped_at = 0;
    link->sink = sink;
    link->sink_left = gci_min(sink_bytes, p->length);
    link->skip_left = p->length - link->sink_left;
    return true;
}

/* The packet that has come whole goes on, or waits for room. */
static void packet_forward(gci_overlay *o, overlay_link *link)
{
    overlay_link *hop = link->next;
    if (link->in.epoch != o->epoch)
        return;                         /* too late */
    if (!hop_has_room(o, hop))
        link_pump(o, hop);
    if (hop_has_room(o, hop) && !hop->waiters) {
        hop_take(o, hop, link);
        hop_due(o, hop);
        return;
    }
    link->holds = true;
    waiter_append(hop, &link->wait);
    link_watch_now(o, link);
}

static void packet_end(gci_overlay *o, overlay_link *link)
{
    link->in_packet = false;
    if (link->passing == PASS_DELIVER)
        o->up.end(o->user, (int)link->in.source, &link->in, link->token);
    else if (link->passing == PASS_FORWARD)
        packet_forward(o, link);
}

/* Takes what the read-ahead holds. */
static void link_parse(gci_overlay *o, overlay_link *link)
{
    while (!link->broken && link_is_read(link)) {
        size_t have = link->to - link->from;
        if (!link->in_packet) {
            if (have < GCI_HEADER_BYTES)
                break;
            if (!packet_begin(o, link, link->ahead + link->from))
                break;
            link->from += GCI_HEADER_BYTES;
            continue;
        }
        size_t take = gci_min(have, link->sink_left);
        if (take > 0) {
            memcpy(link->sink, link->ahead + link->from, take);
            link->sink += take;
            link->sink_left -= take;
            link->from += take;
        }
        size_t skip = link->sink_left > 0 ? 0 : gci_min(link->to - link->from, link->skip_left);
        link->skip_left -= skip;
        link->from += skip;
        if (link->sink_left + link->skip_left > 0)
            break;
        packet_end(o, link);
    }
    memmove(link->ahead, link->ahead + link->from, link->to - link->from);
    link->to -= link->from;
    link->from = 0;
}

/* One read: the rest of the payload to its place, and what follows into the read-ahead; while much payload is to come,
 * only the next header follows, so that hardly anything is copied twice. *all: the socket gave all that was asked for. */
static ssize_t link_receive(gci_overlay *o, overlay_link *link, bool *all)
{
    struct iovec iov[2];
    int n = 0;
    size_t room = link->ahead_room - link->to, asked = 0;
    if (link->sink_left > 0) {
        iov[n++] = (struct iovec){ link->sink, link->sink_left };
        asked += link->sink_left;
        if (link->skip_left == 0 && link->sink_left > (size_t)(link->backbone ? HOP_BULK : OWN_AHEAD))
            room = GCI_HEADER_BYTES;
    }
    iov[n++] = (struct iovec){ link->ahead + link->to, room };
    asked += room;
    ssize_t got = o->sys->recv(o->sys, link->fd, iov, n);
    o->stats->system_calls++;
    if (got <= 0)
        return got;
    *all = (size_t)got == asked;
    size_t direct = gci_min((size_t)got, link->sink_left);
    if (direct > 0)                     /* else there may be no sink at all */
        link->sink += direct;
    link->sink_left -= direct;
    link->to += (size_t)got - direct;
    return got;
}

/* true: something came. */
static bool link_read(gci_overlay *o, overlay_link *link)
{
    bool moved = false, all = true;
    for (int i = 0; i < READS_PER_TURN && all && !link->broken && link_is_read(link); i++) {
        ssize_t got = link_receive(o, link, &all);
        if (got == -EAGAIN)
            break;
        if (got <= 0) {
            link_break(o, link, got == 0 ? "closed by the peer" : gci_strerrno((int)got));
            return true;
        }
        moved = true;
        link_parse(o, link);
    }
    pump_due(o);
    return moved;
}

/* ---- links come and go ---------------------------------------------------------------------------------------- */

/* A connection ends. What the peer sent before its end still counts, unless it broke the rules. */
static void link_drain(gci_overlay *o, overlay_link *link)
{
    if (link->mute) {
        link->broken = false;
        o->broken--;
    }
    link->pumping = true;               /* nothing is sent any more */
    if (!link->broken)
        link_parse(o, link);            /* what was read before it broke */
    while (!link->broken && link_read(o, link))
        ;
    link->pumping = false;
}

static void own_end(gci_overlay *o, overlay_link *link)
{
    int peer = link->peer;
    overlay_peer *p = &o->peer[peer];
    link_drain(o, link);
    bool broke_rules = link->broke_rules;
    p->lost = p->lost < LOST_MAX ? p->lost + 1 : LOST_MAX;
    own_free(o, link);
    o->up.way_down(o->user, peer, broke_rules);
    if (p->ignored)
        restart_ask(o);                 /* the peer waits for an answer on a route */
    p->ignored = false;
}

static void own_attach(gci_overlay *o, int peer, int fd, uint32_t id)
{
    overlay_peer *p = &o->peer[peer];
    p->seen[OWN]++;
    p->turning = true;                  /* no other way is needed for what the old one loses */
    if (p->own)
        own_end(o, p->own);
    overlay_link *link = link_new(o, peer, false);
    bool routed = p->routed;
    if (link) {
        p->own = link;
        o->owns++;
    }
    if (!link || link_open(o, link, fd) < 0) {
        gci_log(o->env, GC_LOG_ERROR, "no memory or descriptor for the link to rank %d", peer);
        if (link)
            own_free(o, link);          /* closes it too */
        else
            o->sys->close(o->sys, fd);
        p->turning = p->asked[OWN] = false;
        if (routed)
            restart_ask(o);             /* the peer may have left the route */
        else
            o->up.way_down(o->user, peer, false);   /* if it is needed, another one will be asked for */
        return;
    }
    p->own_id = id;
    link->pumping = true;               /* not before the way is up */
    if (routed) {
        route_end(o, peer);
        o->up.way_down(o->user, peer, false);
    }
    link->pumping = false;
    p->turning = p->asked[OWN] = p->wants = p->hurry = false;
    p->patience = 0;
    gci_log(o->env, GC_LOG_DEBUG, "link to rank %d is up", peer);
    owns_review(o);
    o->up.way_up(o->user, peer, false);
    link_pump(o, link);
}

/* A neighbour that breaks the rules again and again is given up. */
static void hop_offends(gci_overlay *o, overlay_link *hop)
{
    hop->broke_rules = false;
    if (++hop->offences == OFFENCES_MAX)
        way_is_missing(o, hop->peer, GC_ERR_PROTOCOL);
}

/* The connection of a hop has ended; its place remains. What was in it is lost, which a new epoch makes good. */
static void hop_lose(gci_overlay *o, overlay_link *hop)
{
    link_drain(o, hop);
    if (hop->queued > 0 || (hop->sent && hop->sent_epoch == o->epoch)) {
        hop->lost = true;
        hop->lost_epoch = o->epoch;
        o->doubt_at = after(o, OVERLAY_DOUBT);
        alarm_at(o, o->doubt_at);
    }
    link_close(o, hop);
    if (hop->broke_rules)
        hop_offends(o, hop);
    if (hop_is_wanted(o, hop->peer) && hop->offences < OFFENCES_MAX && (hop_has_lost(o, hop) || hop->waiters))
        ask(o, hop->peer, BACKBONE);
}

static void hop_attach(gci_overlay *o, int peer, int fd)
{
    overlay_peer *p = &o->peer[peer];
    overlay_link *hop = hop_get(o, peer);
    p->seen[BACKBONE]++;
    p->asked[BACKBONE] = true;
    if (hop && hop->fd >= 0)
        hop_lose(o, hop);
    p->asked[BACKBONE] = false;
    if (!hop || !hop_is_wanted(o, peer) || hop->offences >= OFFENCES_MAX) {
        o->sys->close(o->sys, fd);      /* if it is needed, another one will be asked for */
        if (!hop)
            gci_log(o->env, GC_LOG_ERROR, "no memory for the backbone link to rank %d", peer);
        if (!hop && hunger(o))
            way_is_missing(o, peer, GC_ERR_NOMEM);
        return;
    }
    if (link_open(o, hop, fd) < 0)
        return;                         /* broken, and torn down soon */
    hop->failures = 0;
    gci_log(o->env, GC_LOG_DEBUG, "backbone link to rank %d is up", peer);
    if (hop_has_lost(o, hop) && o->rank < peer) {
        restart_ask(o);
    } else if (hop_has_lost(o, hop)) {
        o->doubt_at = after(o, OVERLAY_HIGHER);
        alarm_at(o, o->doubt_at);
    }
    link_pump(o, hop);
}

static void links_tear_down(gci_overlay *o)
{
    for (int peer = 0; o->broken > 0 && peer < o->ranks; peer++) {
        overlay_link *link = o->peer[peer].own, *hop = o->peer[peer].hop;
        if (link && link->broken)
            own_end(o, link);
        if (hop && hop->broken)
            hop_lose(o, hop);
    }
}

/* Links that held a packet, or could not begin one, go on; and then this rank, if it has waited for them. */
static void links_go_on(gci_overlay *o)
{
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop) {
        if (!hop->again || hop->holds)
            continue;
        hop->again = hop->stopped = false;
        link_parse(o, hop);
        link_watch_now(o, hop);
        if (hop->fd >= 0)
            link_read(o, hop);
    }
    o->again = false;
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop) {
        o->again |= hop->again && !hop->holds;
        if (hop->waiters)
            hop_due(o, hop);
    }
    if (o->again)
        errand(o);
}

static void links_errands(gci_overlay *o)
{
    bool before = o->inside;
    o->inside = true;
    for (int i = 0; i < READS_PER_TURN && o->errands; i++) {
        o->errands = false;
        if (o->fallen)
            ways_tell_fallen(o);
        if (o->wants)
            ways_seek(o);
        if (o->again)
            links_go_on(o);
        pump_due(o);
    }
    o->inside = before;
}
/* ---- epochs --------------------------------------------------------------------------------------------------- */

/* What is on its way, here, is forgotten; links that were held go on. */
static void hops_turn(gci_overlay *o)
{
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop) {
        queue_forget(o, hop, -1);
        for (overlay_waiter *w; (w = waiter_pop(hop));)
            if (w->source)
                hop_release(o, w->source);
        hop->local_first = hop->local_last = 0;
        if (hop->stopped)
            hop->again = o->again = true;
        if (hop->in_packet && hop->passing == PASS_DELIVER) {
            hop->passing = PASS_SKIP;
            hop->skip_left += hop->sink_left;
            hop->sink_left = 0;
        }
    }
    errand(o);
}

static void epoch_turn(gci_overlay *o, uint16_t epoch)
{
    o->epoch = epoch;
    hops_turn(o);
    for (int peer = 0; peer < o->ranks; peer++) {
        overlay_peer *p = &o->peer[peer];
        if (p->routed)
            p->fallen = p->hurry = o->fallen = true;
        p->routed = p->was_routed = p->refused = p->ignored = p->listed[0] = p->listed[1] = false;
        o->wants |= p->wants;
    }
    ways_tell_fallen(o);
}

static void edge_goes_down(gci_overlay *o, int a, int b)
{
    int edge = o->graph.nodes > 0 ? gci_graph_find(&o->graph, a, b) : -1;
    int other = a == o->rank ? b : b == o->rank ? a : -1;
    if (edge >= 0) {
        memset(o->graph.edge[edge].cost, 0, sizeof o->graph.edge[edge].cost);
        o->stale = !o->given;
    }
    if (other >= 0 && o->peer[other].hop)
        link_close(o, o->peer[other].hop);
}

static void rank_goes(gci_overlay *o, int rank)
{
    overlay_peer *p = &o->peer[rank];
    p->over = p->gone = true;
    if (p->own)
        own_end(o, p->own);
    for (int i = 0; i < o->graph.edges; i++)
        if (o->graph.edge[i].a == rank || o->graph.edge[i].b == rank)
            edge_goes_down(o, o->graph.edge[i].a, o->graph.edge[i].b);
    if (p->hop)
        link_close(o, p->hop);
}

/* ---- news ----------------------------------------------------------------------------------------------------- */

static int news_kind(const gci_news *news) { return news->purpose == GCI_PURPOSE_BACKBONE ? BACKBONE : OWN; }

/* The inbox is out of memory: what must not be lost is kept without its text. A notice of a mismatch is: who waits in one
 * asks again. */
static void news_hold(gci_overlay *o, const gci_news *news)
{
    overlay_peer *p = &o->peer[news->rank >= 0 ? news->rank : 0];   /* an EPOCH is of nobody */
    struct overlay_held *held = &p->held[news_kind(news)];
    int edge;
    if (news->kind == GCI_NEWS_NOTICE && news->notice.kind != GCI_NOTICE_ABORT)
        return;
    o->held = true;
    switch (news->kind) {
    case GCI_NEWS_NOTICE:
        o->held_abort = true;
        o->abort = news->notice;
        return;
    case GCI_NEWS_LINK:
        if (held->links++ > 0)
            o->sys->close(o->sys, held->fd);
        held->fd = news->fd;
        held->id = news->id;
        return;
    case GCI_NEWS_NO_LINK:
        held->code = news->code;
        return;
    case GCI_NEWS_DOWN:
        edge = o->held_down ? gci_graph_find(&o->graph, news->rank, news->other) : -1;
        if (edge >= 0)
            o->held_down[edge] = 1;
        o->untold |= !o->held_down;
        break;
    case GCI_NEWS_DEAD:
    case GCI_NEWS_LEFT:
        p->held_loss = news->kind;
        p->held_code = news->code;
        break;
    case GCI_NEWS_EPOCH:
        break;
    }
    o->held_turn = true;
    o->held_epoch = news->epoch;
}

GCI void gci_links_news(gci_overlay *o, const gci_news *news)
{
    overlay_news *item = gci_alloc(o->env, sizeof *item);
    if (item)
        item->news = *news;
    o->sys->enter(o->sys, o->inbox_lock);
    if (item && o->held) {              /* behind what is held already: news keep their order */
        gci_free(o->env, item);
        item = NULL;
    }
    if (item) {
        *o->inbox_end = item;
        o->inbox_end = &item->next;
    } else {
        news_hold(o, news);
    }
    atomic_store(&o->has_news, true);
    o->sys->leave(o->sys, o->inbox_lock);
    o->sys->wake(o->sys, o->waker);
}

static overlay_news *inbox_take(gci_overlay *o)
{
    o->sys->enter(o->sys, o->inbox_lock);
    overlay_news *first = o->inbox;
    o->inbox = NULL;
    o->inbox_end = &o->inbox;
    atomic_store(&o->has_news, o->held);
    o->sys->leave(o->sys, o->inbox_lock);
    return first;
}

/* Of the news that were kept without their text, the next loss; all bear the last epoch of them, which comes in the end. */
static bool held_loss(gci_overlay *o, gci_news *news)
{
    news->epoch = o->held_epoch;
    for (int i = 0; o->held_down && i < o->graph.edges; i++)
        if (o->held_down[i]) {
            o->held_down[i] = 0;
            news->kind = GCI_NEWS_DOWN;
            news->rank = o->graph.edge[i].a;
            news->other = o->graph.edge[i].b;
            return true;
        }
    for (int rank = 0; rank < o->ranks; rank++) {
        overlay_peer *p = &o->peer[rank];
        if (p->held_loss == GCI_NEWS_DEAD || p->held_loss == GCI_NEWS_LEFT) {
            news->kind = p->held_loss;
            news->rank = rank;
            news->code = p->held_code;
            snprintf(news->text, sizeof news->text, "rank %d is gone", rank);
            p->held_loss = GCI_NEWS_LINK;
            return true;
        }
    }
    news->kind = GCI_NEWS_EPOCH;
    o->held_turn = false;
    return true;
}

static bool held_link(gci_overlay *o, gci_news *news)
{
    for (int i = 0; i < 2 * o->ranks; i++) {
        overlay_peer *p = &o->peer[i / 2];
        struct overlay_held *held = &p->held[i % 2];
        news->rank = i / 2;
        news->purpose = i % 2 == OWN ? GCI_PURPOSE_DATA : GCI_PURPOSE_BACKBONE;
        if (held->links > 0) {
            news->kind = GCI_NEWS_LINK;
            news->fd = held->fd;
            news->id = held->id;
            p->seen[i % 2] += held->links - 1;
            held->links = 0;
            return true;
        }
        if (held->code < 0) {
            news->kind = GCI_NEWS_NO_LINK;
            news->code = held->code;
            snprintf(news->text, sizeof news->text, "rank %d cannot be connected", news->rank);
            held->code = 0;
            return true;
        }
    }
    return false;
}

static bool held_take(gci_overlay *o, gci_news *news)
{
    o->sys->enter(o->sys, o->inbox_lock);
    bool found = o->held_abort;
    *news = (gci_news){ .kind = GCI_NEWS_NOTICE, .rank = (int)o->abort.origin, .fd = -1, .notice = o->abort };
    if (found)
        o->held_abort = false;
    else if (o->held_turn)
        found = held_loss(o, news);
    else if (o->held)
        found = held_link(o, news);
    o->held = o->held && found;
    atomic_store(&o->has_news, o->inbox || o->held);
    o->sys->leave(o->sys, o->inbox_lock);
    return found;
}

static void no_link(gci_overlay *o, const gci_news *news)
{
    overlay_peer *p = &o->peer[news->rank];
    const gci_table *table = o->control ? gci_control_table(o->control) : NULL;
    p->asked[news_kind(news)] = false;
    if (news_kind(news) == BACKBONE) {  /* unless it is gone for good, which would be a DOWN */
        if (!p->hop || ++p->hop->failures == FAILURES_MAX) {
            way_is_missing(o, news->rank, news->code);
        } else if (p->hop->queued > 0 || p->hop->waiters || hop_has_lost(o, p->hop)) {
            p->unasked[BACKBONE] = o->unasked = true;
            alarm_at(o, after(o, OVERLAY_AGAIN));
        }
        return;
    }
    p->refused = true;
    if (news->code == GC_ERR_UNREACHABLE && o->unreachable)
        o->unreachable[table->card[news->rank].host] = 1;
    if (p->own || p->routed || !p->wants)
        return;
    p->patience = -1;
    o->wants = true;                    /* if memory or this epoch forbid, it is looked for again */
    if (route_begin(o, news->rank) != GC_ERR_UNREACHABLE)
        return;
    p->wants = false;
    gci_news verdict = *news;
    verdict.code = no_route(o);
    o->up.news(o->user, &verdict);
}

static void news_heard(gci_overlay *o, const gci_news *news)
{
    switch (news->kind) {
    case GCI_NEWS_LINK:
        if (news_kind(news) == BACKBONE)
            hop_attach(o, news->rank, news->fd);
        else
            own_attach(o, news->rank, news->fd, news->id);
        return;
    case GCI_NEWS_NO_LINK:
        no_link(o, news);
        return;
    case GCI_NEWS_DOWN:
        edge_goes_down(o, news->rank, news->other);
        epoch_turn(o, news->epoch);
        return;
    case GCI_NEWS_EPOCH:
        epoch_turn(o, news->epoch);
        return;
    case GCI_NEWS_DEAD:
    case GCI_NEWS_LEFT:
        rank_goes(o, news->rank);
        epoch_turn(o, news->epoch);
        break;
    case GCI_NEWS_NOTICE:
        break;
    }
    o->up.news(o->user, news);
}

/* All that has come, before anything that follows from it: routes are made once for many losses. */
static bool take_news(gci_overlay *o)
{
    if (!atomic_load(&o->has_news))
        return false;
    for (overlay_news *item = inbox_take(o), *next; item; item = next) {
        next = item->next;
        news_heard(o, &item->news);
        gci_free(o->env, item);
    }
    gci_news held;
    while (held_take(o, &held))
        news_heard(o, &held);
    errand(o);
    return true;
}

/* ---- what is above calls -------------------------------------------------------------------------------------- */

GCI void gci_overlay_push(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    if (p->own) {
        if (!p->own->broken)
            link_pump(o, p->own);
    } else if (p->routed) {
        route_push(o, peer);
    } else if (!p->over && !p->turning) {
        way_want(o, peer);
    }
}

GCI void gci_overlay_cut(gci_overlay *o, int peer)
{
    overlay_peer *p = &o->peer[peer];
    p->over = true;
    p->wants = false;
    if (p->own) {
        p->own->mute = false;           /* what the peer sent before is not read any more either: its sink may be gone */
        link_break(o, p->own, "cut");
    }
    if (p->routed) {
        route_end(o, peer);
        p->fallen = o->fallen = true;
    }
}

static void link_disown(gci_overlay *o, overlay_link *link, int peer, const void *token)
{
    if (link->in_packet && link->passing == PASS_DELIVER && link->in.source == (uint32_t)peer && link->token == token) {
        link->skip_left += link->sink_left;
        link->sink_left = 0;
        if (link->in.type == GCI_CHUNK)
            link->token = NULL;         /* of an envelope, its number still counts */
    }
    for (int i = 0; i < link->queued; i++) {
        overlay_slot *slot = &link->out[i];
        bool mine = slot->packet.source == (uint32_t)o->rank && slot->packet.dest == (uint32_t)peer;
        if (mine && slot->token == token && !slot_keep(o, link, slot))
            return;
    }
}

GCI void gci_overlay_disown(gci_overlay *o, int peer, const void *token)
{
    if (o->peer[peer].own)
        link_disown(o, o->peer[peer].own, peer, token);
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop)
        link_disown(o, hop, peer, token);
}

GCI enum gci_way gci_overlay_way(const gci_overlay *o, int peer)
{
    const overlay_peer *p = &o->peer[peer];
    if (p->own)
        return p->own->broken ? GCI_WAY_NONE : GCI_WAY_OWN;
    return p->routed ? GCI_WAY_ROUTED : GCI_WAY_NONE;
}

static gci_link_view link_view(const gci_overlay *o, const overlay_link *link)
{
    return (gci_link_view){ .peer = link->peer, .backbone = link->backbone, .queued = link->queued, .queue_max = o->queue_max,
                            .holds = link->holds ? (int)link->in.dest : -1, .waits_for = link->holds ? link->next->peer : -1,
                            .waiters = link->waiting, .relayed = link->relayed };
}

GCI void gci_overlay_links(const gci_overlay *o, void (*each)(void *arg, const gci_link_view *), void *arg)
{
    for (int peer = 0; peer < o->ranks; peer++) {
        const overlay_link *own = o->peer[peer].own, *hop = o->peer[peer].hop;
        gci_link_view view;
        if (own) {
            view = link_view(o, own);
            each(arg, &view);
        }
        if (hop && hop->fd >= 0) {
            view = link_view(o, hop);
            each(arg, &view);
        }
    }
}

/* ---- what drive.c calls --------------------------------------------------------------------------------------- */

static void links_prepare(gci_overlay *o)
{
    if (o->broken > 0)
        links_tear_down(o);
    if (o->errands)
        links_errands(o);
}

static bool handle(gci_overlay *o, const gci_event *event)
{
    if (event->tag == overlay_waker_tag) {
        o->sys->rest(o->sys, o->waker);
        return true;
    }
    const overlay_peer *p = &o->peer[event->tag / 2];
    overlay_link *link = event->tag % 2 == OWN ? p->own : p->hop;
    if (!link || link->broken || link->fd < 0)
        return false;
    bool moved = false;
    if (event->events & GCI_READ && link_is_read(link))
        moved = link_read(o, link);
    if (event->events & GCI_WRITE && !link->broken)
        moved |= link_pump(o, link);
    return moved;
}

/* All that an event brings is done by the thread that took it: no other may have been woken. */
GCI bool gci_links_look(gci_overlay *o, int64_t timeout)
{
    gci_event event[EVENTS];
    if (timeout != 0) {
        gci_links_cool(o);
        if (o->broken > 0 || o->errands)
            timeout = 0;                /* it could not come back into the poller, say */
    }
    if (timeout != 0) {
        o->asleep++;
        o->sys->leave(o->sys, o->monitor);
    }
    int n = o->sys->wait(o->sys, o->poller, event, EVENTS, timeout);
    if (timeout != 0) {
        o->sys->enter(o->sys, o->monitor);
        o->asleep--;
    }
    bool moved = false, before = o->inside;
    o->inside = true;
    o->stats->system_calls++;
    for (int i = 0; i < n; i++)
        moved |= handle(o, &event[i]);
    if (o->started)
        moved |= take_news(o);          /* the waker may just have been put to rest */
    if (o->broken > 0 || o->errands)
        links_prepare(o);
    o->inside = before;
    return moved;
}

/* The hinted socket is read alone, the rest only if there is nothing else, or when told so: one system call less. */
GCI bool gci_links_round(gci_overlay *o, int hint, bool all)
{
    bool before = o->inside;
    o->inside = true;
    bool moved = o->broken > 0 || o->errands;
    if (o->started && take_news(o))
        moved = true;
    if (o->broken > 0 || o->errands)
        links_prepare(o);
    overlay_link *link = hint >= 0 ? o->peer[hint].own : NULL;
    if (link && !link->broken) {
        moved |= link_read(o, link);
        if (link->queued > 0 && !link->broken)
            moved |= link_pump(o, link);
    }
    if (all || (!moved && !link)) {
        moved |= gci_links_look(o, 0);
        if (o->hot && o->hot != link && !o->hot->broken)
            moved |= link_read(o, o->hot);
    }
    if (o->broken > 0 || o->errands)
        links_prepare(o);
    o->inside = before;
    return moved;
}

/* A copy of the backbone as the job began with it, and where to note what goes down if there is no memory for more. */
static int links_graph(gci_overlay *o)
{
    const gci_graph *graph = gci_control_graph(o->control);
    const gci_table *table = gci_control_table(o->control);
    int err = GC_OK;
    if (graph && graph->edges > 0) {
        uint8_t *down = gci_alloc(o->env, (size_t)graph->edges);
        gci_graph copy;
        err = down ? gci_graph_copy(o->env, graph, &copy) : GC_ERR_NOMEM;
        if (err < 0) {
            gci_free(o->env, down);
            return err;
        }
        o->sys->enter(o->sys, o->inbox_lock);
        o->graph = copy;
        o->held_down = down;
        o->sys->leave(o->sys, o->inbox_lock);
        o->stale = !o->given;
    }
    if (o->untold)
        gci_log(o->env, GC_LOG_ERROR, "out of memory before the job began: a link that was lost is not known here");
    if (table && table->hosts > 0)      /* without it, each rank is tried for itself */
        o->unreachable = gci_alloc(o->env, (size_t)table->hosts);
    return err;
}

/* When a job has begun no rank of it can fail to: without memory, news wait, and in the end are heard without the graph. */
static void links_start(gci_overlay *o)
{
    int err = o->control ? links_graph(o) : GC_OK;
    if (err < 0 && !hunger(o)) {
        alarm_at(o, after(o, OVERLAY_PAUSE));
        return;
    }
    o->started = true;
    owns_review(o);
}

/* A link is asked for again that there was no memory for. */
static void ask_again(gci_overlay *o)
{
    o->unasked = false;
    for (int i = 0; i < 2 * o->ranks; i++)
        if (o->peer[i / 2].unasked[i % 2]) {
            o->peer[i / 2].unasked[i % 2] = false;
            ask(o, i / 2, i % 2);
        }
}

static void hops_tick(gci_overlay *o, int64_t now)
{
    bool lost = false;
    for (overlay_link *hop = o->hops; hop; hop = hop->next_hop) {
        lost |= hop_has_lost(o, hop);
        if (!hop->stopped)
            continue;
        if (now - hop->stopped_at >= o->peer_timeout)
            link_break(o, hop, "its packets are of an epoch that this rank has not heard of");
        hop->again = o->again = true;   /* perhaps there is memory now */
    }
    if (o->again)
        errand(o);
    if (o->doubt_at > now)
        alarm_at(o, o->doubt_at);
    else if (lost && o->doubt_at > 0)
        restart_ask(o);
}

static void ways_tick(gci_overlay *o, int64_t now)
{
    for (int peer = 0; peer < o->ranks; peer++) {
        overlay_peer *p = &o->peer[peer];
        if (!p->wants)
            continue;
        if (p->patience > now) {
            alarm_at(o, p->patience);
            continue;
        }
        p->patience = -1;
        o->wants = true;
    }
    if (o->wants)
        errand(o);
}

GCI int64_t gci_links_tick(gci_overlay *o, int64_t now)
{
    bool before = o->inside;
    o->inside = true;
    int64_t next = o->up.tick(o->user, now);
    if (now >= o->alarm) {
        o->alarm = GCI_FOREVER;
        if (!o->started && o->control)
            links_start(o);
        if (o->unasked)
            ask_again(o);
        if (o->owes_restart)
            restart_ask(o);
        hops_tick(o, now);
        ways_tick(o, now);
        links_prepare(o);
    }
    o->inside = before;
    return next < o->alarm ? next : o->alarm;
}

GCI void gci_links_paid(gci_overlay *o, int hint)
{
    overlay_link *link = hint >= 0 ? o->peer[hint].own : NULL;
    if (link && o->hot != link && o->outer < 0 && !link->broken && ++link->paid >= HOT_AFTER) {
        link->paid = 0;
        link_heat(o, link);
    }
}

GCI void gci_links_cool(gci_overlay *o)
{
    if (!o->hot)
        return;
    o->hot->paid = 0;
    link_heat(o, NULL);
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static void links_options(gci_overlay *o, const gc_options *options)
{
    int routing = options->routing && options->routing[0] ? gci_routing_parse(options->routing) : GCI_UPDOWN_DFS;
    o->queue_max = options->queue_packets < QUEUE_MAX ? options->queue_packets : QUEUE_MAX;
    o->max_owns = options->max_links > 0 ? options->max_links : 0;
    o->direct = options->direct != 0;
    o->peer_timeout = (int64_t)(options->peer_timeout * (double)GCI_SECOND);
    o->routing = routing < 0 ? GCI_UPDOWN_DFS : (enum gci_routing)routing;
}

GCI int gci_links_open(gci_overlay **out, gci_env *env, gci_monitor *monitor, int rank, int ranks, const gc_options *options,
                       const gci_upcalls *up, void *user, gc_stats *stats)
{
    gci_sys *sys = env->sys;
    gci_overlay *o = gci_alloc(env, sizeof *o);
    if (!o)
        return GC_ERR_NOMEM;
    *o = (gci_overlay){ .env = env, .sys = sys, .monitor = monitor, .up = *up, .user = user, .stats = stats, .rank = rank,
                        .ranks = ranks, .poller = -1, .waker = -1, .outer = -1, .bell = -1, .timer = -1, .alarm = GCI_FOREVER };
    links_options(o, options);
    o->inbox_end = &o->inbox;
    int err = GC_ERR_NOMEM;
    o->peer = gci_alloc(env, (size_t)ranks * sizeof *o->peer);
    if (o->peer && sys->monitor(sys, &o->inbox_lock) == 0) {
        o->poller = sys->poller(sys);
        o->waker = sys->waker(sys);
        err = GC_ERR_SYSTEM;
        if (o->poller >= 0 && o->waker >= 0 && sys->watch(sys, o->poller, o->waker, GCI_READ, overlay_waker_tag) == 0)
            err = GC_OK;
    }
    if (err != GC_OK) {
        gci_links_close(o);
        return err;
    }
    *out = o;
    return GC_OK;
}

GCI void gci_overlay_start(gci_overlay *o, gci_control *control)
{
    o->sys->enter(o->sys, o->monitor);
    o->control = control;
    links_start(o);
    o->sys->leave(o->sys, o->monitor);
    o->sys->wake(o->sys, o->waker);     /* for news that came before */
}

static void inbox_free(gci_overlay *o)
{
    for (overlay_news *item = inbox_take(o), *next; item; item = next) {
        next = item->next;
        if (item->news.kind == GCI_NEWS_LINK)
            o->sys->close(o->sys, item->news.fd);
        gci_free(o->env, item);
    }
    for (int i = 0; o->peer && i < 2 * o->ranks; i++)
        if (o->peer[i / 2].held[i % 2].links > 0)
            o->sys->close(o->sys, o->peer[i / 2].held[i % 2].fd);
    o->sys->monitor_free(o->sys, o->inbox_lock);
}

GCI void gci_links_close(gci_overlay *o)
{
    gci_env *env = o->env;
    o->control = NULL;                  /* it has ended */
    if (o->inbox_lock)
        inbox_free(o);
    for (int peer = 0; o->peer && peer < o->ranks; peer++) {
        overlay_link *hop = o->peer[peer].hop;
        if (o->peer[peer].own)
            own_free(o, o->peer[peer].own);
        if (!hop)
            continue;
        link_close(o, hop);
        buffer_give(o, hop->buffer);
        gci_free(env, hop);
    }
    for (void *buffer; (buffer = o->spare);) {
        memcpy(&o->spare, buffer, sizeof o->spare);
        gci_free(env, buffer);
    }
    if (o->waker >= 0)
        o->sys->close(o->sys, o->waker);
    if (o->poller >= 0)
        o->sys->close(o->sys, o->poller);
    gci_routes_free(env, &o->routes);
    gci_numbering_free(env, &o->first);
    gci_numbering_free(env, &o->fresh);
    gci_graph_free(env, &o->graph);
    gci_free(env, o->held_down);
    gci_free(env, o->unreachable);
    gci_free(env, o->peer);
    gci_free(env, o);
}
