/* forward.c: packets through links: sent, received, passed on with fixed buffers.
 * SPDX-License-Identifier: MIT
 *
 * Forwarding (Hironaka 2009, 4.2, Figure 4.2). A packet for somebody else is read into a buffer of its own, and when it has
 * come whole the buffer moves into the send queue of the next hop, from which it is written: it is never copied. If that
 * queue is full, the link that brought the packet joins the FIFO queue of those who wait for the next hop, and nothing more
 * is read from it, so TCP carries the back-pressure. Each packet that leaves lets in the first who waits. This rank's own
 * packets wait in the same queue: one per turn, its destinations taking turns among themselves. Nothing is dropped within
 * an epoch, and with routes free of cycles nobody waits for ever.
 *
 * A packet of an older epoch is discarded where it arrives, and a link whose next packet is of a newer one is not read on
 * until this rank has heard of that one too. Links that were held are read on by the driver only: a push sends, but never
 * receives.
 */
#include "gridcomm_int.h"

enum {
    BULK_QUEUED = 2 * GCI_PACKET_MAX,   /* bytes in the queue beyond which no chunk is pulled: envelopes get past */
    ROUTED_QUEUED = 2 * GCI_ROUTED_MAX, /* bytes in the queue of a hop that make it full */
    READS_PER_TURN = 16                 /* from one link before the others have their turn */
};

/* ---- hops: the next links of routes ---------------------------------------------------------------------------- */

GCI void gci_hop_place(gci_overlay *o, gci_link *hop)
{
    hop->at = -1;
    for (int i = 0; i < o->routes.degree; i++)
        if (o->routes.neighbour[i] == hop->peer)
            hop->at = i;
}

/* NULL: out of memory. */
GCI gci_link *gci_hop_get(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (p->hop)
        return p->hop;
    p->hop = gci_link_new(o, peer, true, 0);
    if (!p->hop)
        return NULL;
    p->unreached.since = 0;
    p->hop->next_hop = o->hops;
    o->hops = p->hop;
    o->hop_count++;
    gci_hop_place(o, p->hop);
    return p->hop;
}

/* Is there still to be a link to this rank? */
GCI bool gci_hop_is_wanted(const gci_overlay *o, int peer)
{
    int edge = o->graph.nodes > 0 ? gci_graph_find(&o->graph, o->rank, peer) : -1;
    if (o->peer[peer].gone)
        return false;
    return edge >= 0 ? o->graph.edge[edge].cost[GCI_LATENCY] > 0 : o->given;
}

/* What was sent in this epoch may be lost: nothing more goes this way before the next one. */
GCI bool gci_hop_has_lost(const gci_overlay *o, const gci_link *hop)
{
    return hop->lost && hop->lost_epoch == o->epoch;
}

/* A forwarded payload counts as its whole buffer: so two of them fill a queue, whatever their size. */
static bool hop_has_room(const gci_overlay *o, const gci_link *hop)
{
    size_t bytes = 0;
    for (int i = 0; i < hop->queued; i++)
        bytes += hop->out[i].buffer ? GCI_ROUTED_MAX : hop->out[i].packet.length;
    return hop->queued < o->queue_max && bytes < ROUTED_QUEUED;
}

GCI void gci_hop_due(gci_overlay *o, gci_link *hop)
{
    if (hop->due)
        return;
    hop->due = true;
    hop->next_due = o->due;
    o->due = hop;
}

static void waiter_append(gci_link *hop, gci_waiter *w)
{
    if (w->waits)
        return;
    w->waits = true;
    w->next = NULL;
    *hop->waiters_end = w;
    hop->waiters_end = &w->next;
    hop->waiting++;
}

static gci_waiter *waiter_pop(gci_link *hop)
{
    gci_waiter *w = hop->waiters;
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
static void hop_release(gci_overlay *o, gci_link *hop)
{
    hop->holds = hop->stopped = false;
    hop->again = o->again = true;
    gci_overlay_errand(o);
}

/* The packet that `from` has received goes into the queue, its buffer with it. */
static void hop_take(gci_overlay *o, gci_link *hop, gci_link *from)
{
    gci_slot *slot = &hop->out[hop->queued++];
    slot->packet = from->in;
    slot->payload = slot->packet.length > 0 ? from->buffer : NULL;
    slot->token = NULL;
    gci_slot_encode(slot);
    if (slot->payload) {
        slot->buffer = from->buffer;
        from->buffer = NULL;
    }
    hop->relayed += slot->packet.length;
    o->stats->relayed_bytes += slot->packet.length;
    gci_slot_settle(hop);
}

static void local_append(gci_overlay *o, gci_link *hop, int peer, enum gci_metric metric)
{
    gci_overlay_peer *p = &o->peer[peer];
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

GCI gci_link *gci_route_hop(const gci_overlay *o, enum gci_metric metric, int dest)
{
    int next = gci_route_next(&o->routes, metric, -1, dest);
    return next < 0 ? NULL : o->peer[o->routes.neighbour[next]].hop;
}

/* The next packet to this destination that goes by here. false: there is none. */
static bool local_next(gci_overlay *o, gci_link *hop, int peer, enum gci_metric metric)
{
    unsigned want = metric == GCI_BANDWIDTH ? GCI_WANT_BULK : GCI_WANT_ORDERED;
    gci_packet packet;
    const void *payload;
    void *token;
    if (metric == GCI_LATENCY && gci_route_hop(o, GCI_BANDWIDTH, peer) == hop)
        want |= GCI_WANT_BULK;
    if (!o->up.next(o->user, peer, want, GCI_ROUTED_MAX, &packet, &payload, &token))
        return false;
    packet.epoch = o->epoch;
    if (packet.type == GCI_STATE && packet.flags & GCI_FLAG_RESUME)
        packet.seq = o->peer[peer].own_id;
    gci_slot *slot = &hop->out[hop->queued++];      /* not before: what next() calls may change the queue */
    slot->packet = packet;
    slot->payload = payload;
    slot->token = token;
    gci_slot_encode(slot);
    gci_slot_settle(hop);
    return true;
}

/* This rank's turn: one packet of the destination that has waited longest. */
static void local_take(gci_overlay *o, gci_link *hop)
{
    while (hop->local_first > 0) {
        uint32_t entry = hop->local_first - 1;
        int peer = (int)(entry / 2);
        enum gci_metric metric = entry % 2;
        gci_overlay_peer *p = &o->peer[peer];
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
static bool hop_fill(gci_overlay *o, gci_link *hop)
{
    while (hop->waiters && hop_has_room(o, hop)) {
        if (!hop->waiters->source && o->again && !hop->turn)
            break;                      /* gci_hops_go_on comes back to this */
        gci_link *from = waiter_pop(hop)->source;
        if (!from) {
            hop->turn = false;
            local_take(o, hop);
            continue;
        }
        hop_take(o, hop, from);
        hop_release(o, from);
    }
    return hop->waiters != NULL;
}

static bool hop_sends(gci_overlay *o, gci_link *hop)
{
    if (hop->fd < 0 && gci_hop_is_wanted(o, hop->peer))
        gci_overlay_ask(o, hop->peer, GCI_BACKBONE);
    if (hop->fd < 0 || gci_hop_has_lost(o, hop))
        return false;
    hop->sent = true;
    hop->sent_epoch = o->epoch;
    return true;
}

/* ---- sending -------------------------------------------------------------------------------------------------- */

/* false: above there is nothing more to send. Where links share the chunks none takes more of them than it needs to be busy,
 * and one that leaves a chunk to others looks again when it has sent what it has. */
static bool link_fill(gci_overlay *o, gci_link *link)
{
    bool shares = o->peer[link->peer].strands != NULL, left = false;
    size_t bytes = 0, most = shares ? 1 : BULK_QUEUED;
    for (int i = 0; i < link->queued; i++)
        bytes += link->out[i].packet.length;
    while (link->queued < o->queue_max) {
        gci_slot *slot = &link->out[link->queued];
        unsigned want = link->strand ? 0 : GCI_WANT_ORDERED;
        left = bytes < most && shares && !gci_strand_takes(o, link);
        if (bytes < most && !left)
            want |= GCI_WANT_BULK;
        if (!want || !o->up.next(o->user, link->peer, want, GCI_PACKET_MAX, &slot->packet, &slot->payload, &slot->token))
            return left || bytes >= most;
        gci_slot_encode(slot);
        bytes += slot->packet.length;
        link->queued++;
        gci_slot_settle(link);
    }
    return true;
}

/* `bytes` more have left: whole packets leave the queue, one by one, since each callback may disown what is behind. */
static void link_sent(gci_overlay *o, gci_link *link, size_t bytes)
{
    link->gone += bytes;
    while (link->queued > 0 && link->gone >= GCI_HEADER_BYTES + link->out[0].packet.length) {
        enum gci_packet_type type = link->out[0].packet.type;
        void *token = link->out[0].token;
        int dest = (int)link->out[0].packet.dest;
        if (type == GCI_CHUNK && !link->backbone)
            gci_overlay_bulk(o, dest, link->out[0].packet.length);
        gci_slot_free(o, &link->out[0]);
        link->gone -= GCI_HEADER_BYTES + link->out[0].packet.length;
        if (--link->queued > 0)
            memmove(link->out, link->out + 1, (size_t)link->queued * sizeof link->out[0]);
        if (token)
            o->up.sent(o->user, dest, type, token);
    }
}

static void link_took(gci_overlay *o, gci_link *link, size_t bytes)
{
    link->busy = true;
    link->handed += bytes;
    if (!link->spoke)
        gci_overlay_spoke(o, link);
    if (!link->backbone && o->compare_at == GCI_FOREVER)
        gci_strands_watch(o, link);
    link_sent(o, link, bytes);
}

/* Sends what the socket takes. true: something left. Callbacks may push to the same link meanwhile: that only notes that
 * there is more. */
GCI bool gci_link_pump(gci_overlay *o, gci_link *link)
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
            gci_link_writing(o, link, false);
            break;
        }
        struct iovec iov[2 * GCI_QUEUE_MAX];
        ssize_t n = o->sys->send(o->sys, link->fd, iov, gci_link_vector(link, iov));
        o->stats->system_calls++;
        if (n < 0 && n != -EAGAIN) {
            link->mute = true;
            gci_link_break(o, link, gci_strerrno((int)n));
            break;
        }
        if (n > 0) {
            moved = true;
            link_took(o, link, (size_t)n);
        }
        if (link->queued > 0) {         /* less than it was offered: it tells when there is room again */
            gci_link_writing(o, link, true);
            break;
        }
        more |= link->pushed || link->waiters;
    }
    link->pumping = false;
    return moved;
}

GCI void gci_hops_pump(gci_overlay *o)
{
    while (o->due) {
        gci_link *hop = o->due;
        o->due = hop->next_due;
        hop->due = false;
        gci_link_pump(o, hop);
    }
}

GCI void gci_route_push(gci_overlay *o, int peer)
{
    gci_link *soon = gci_route_hop(o, GCI_LATENCY, peer), *bulk = gci_route_hop(o, GCI_BANDWIDTH, peer);
    local_append(o, soon, peer, GCI_LATENCY);
    if (bulk != soon)
        local_append(o, bulk, peer, GCI_BANDWIDTH);
    gci_link_pump(o, soon);
    if (bulk != soon)
        gci_link_pump(o, bulk);
}

/* ---- receiving ------------------------------------------------------------------------------------------------ */

/* Nothing is read on for now: the packet whose header is next cannot begin. */
static bool hop_stop(gci_overlay *o, gci_link *link, int64_t until)
{
    int64_t now = o->sys->now(o->sys);
    if (link->stopped_at == 0)
        link->stopped_at = now;
    link->stopped = true;
    gci_link_watch(o, link);
    gci_overlay_alarm(o, until == GCI_MEMORY_PAUSE ? now + until : link->stopped_at + until);
    return false;
}

static enum gci_metric packet_metric(const gci_packet *k)
{
    return k->type == GCI_CHUNK && !(k->flags & GCI_FLAG_STREAMS) ? GCI_BANDWIDTH : GCI_LATENCY;
}

/* A packet for somebody else: where it goes, and a buffer to receive it in. false: no memory. */
static bool route_pass(gci_overlay *o, gci_link *link)
{
    const gci_packet *k = &link->in;
    const gci_routes *r = gci_overlay_tables(o);
    if (!r)
        return !o->stale;
    int next = link->at < 0 ? -1 : gci_route_next(r, packet_metric(k), link->at, (int)k->dest);
    if (next < 0) {
        gci_log(o->env, GC_LOG_DEBUG, "no route for a packet from rank %u to rank %u", (unsigned)k->source, (unsigned)k->dest);
        return true;
    }
    link->next = gci_hop_get(o, r->neighbour[next]);
    if (k->length > 0 && !link->buffer)
        link->buffer = gci_buffer_take(o);
    if (!link->next || (k->length > 0 && !link->buffer))
        return false;
    link->passing = GCI_PASS_FORWARD;
    return true;
}

static bool routed_is_sound(const gci_overlay *o, const gci_link *link)
{
    const gci_packet *k = &link->in;
    uint32_t ranks = (uint32_t)o->ranks;
    return k->length <= GCI_ROUTED_MAX && k->source < ranks && k->dest < ranks && k->source != k->dest &&
           k->source != (uint32_t)o->rank && k->dest != (uint32_t)link->peer;
}

/* Up, where its bytes are awaited. What needs memory comes in order: there is some if that has begun. */
GCI int gci_packet_deliver(gci_overlay *o, gci_link *link, void **sink, size_t *sink_bytes)
{
    const gci_packet *k = &link->in;
    int err = o->up.begin(o->user, (int)k->source, k, sink, sink_bytes, &link->token);
    if (err == GC_OK && (k->type == GCI_ENVELOPE || k->type == GCI_CHUNK))
        o->peer[k->source].hungry.since = 0;
    return err;
}

/* false: the link ends, because the peer broke the rules or there is no memory; or it is not read on for now. */
static bool packet_begin(gci_overlay *o, gci_link *link, const uint8_t *header)
{
    gci_packet *p = &link->in;
    void *sink = NULL;
    size_t sink_bytes = 0;
    link->token = NULL;
    link->passing = GCI_PASS_SKIP;
    int err = gci_packet_decode(p, header);
    if (err == GC_OK && link->backbone) {
        int16_t ahead = (int16_t)(p->epoch - o->epoch);
        if (!routed_is_sound(o, link))
            err = GC_ERR_PROTOCOL;
        else if (ahead > 0)
            return hop_stop(o, link, o->peer_timeout);
        else if (ahead == 0 && p->dest == (uint32_t)o->rank)
            gci_route_deliver(o, link, &sink, &sink_bytes);
        else if (ahead == 0 && !route_pass(o, link))
            return hop_stop(o, link, GCI_MEMORY_PAUSE);
        if (link->passing == GCI_PASS_FORWARD) {
            sink = link->buffer;
            sink_bytes = p->length;
        }
    } else if (err == GC_OK) {
        if (p->source != (uint32_t)link->peer || p->dest != (uint32_t)o->rank)
            err = GC_ERR_PROTOCOL;
        else if (p->type == GCI_CHUNK && p->length == 0)
            ;                           /* it asks our kernel (strand.c) */
        else if (!link->strand)
            err = gci_packet_deliver(o, link, &sink, &sink_bytes);
        else
            err = p->type == GCI_CHUNK ? o->up.strand_begin(o->user, link->peer, p, &sink, &sink_bytes, &link->token)
                                       : GC_ERR_PROTOCOL;
        if (p->type != GCI_CHUNK || p->length > 0)
            link->passing = GCI_PASS_DELIVER;
    }
    if (err < 0) {
        link->broke_rules = err == GC_ERR_PROTOCOL;
        gci_link_break(o, link, link->broke_rules ? "the peer sent a packet that breaks the rules"
                                                  : "what came cannot be taken in");
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
static void packet_forward(gci_overlay *o, gci_link *link)
{
    gci_link *hop = link->next;
    if (link->in.epoch != o->epoch)
        return;                         /* too late */
    if (!hop_has_room(o, hop))
        gci_link_pump(o, hop);
    if (hop_has_room(o, hop) && !hop->waiters) {
        hop_take(o, hop, link);
        gci_hop_due(o, hop);
        return;
    }
    link->holds = true;
    waiter_append(hop, &link->wait);
    gci_link_watch(o, link);
}

static void packet_end(gci_overlay *o, gci_link *link)
{
    link->in_packet = false;
    gci_link_ended(o, link);
    if (link->in.type == GCI_CHUNK && !link->backbone)
        gci_overlay_bulk(o, link->peer, link->in.length);
    if (link->passing == GCI_PASS_DELIVER)
        o->up.end(o->user, (int)link->in.source, &link->in, link->token);
    else if (link->passing == GCI_PASS_FORWARD)
        packet_forward(o, link);
}

/* Takes what the read-ahead holds. */
GCI void gci_link_parse(gci_overlay *o, gci_link *link)
{
    while (!link->broken && gci_link_is_read(link)) {
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

/* true: something came. */
GCI bool gci_link_read(gci_overlay *o, gci_link *link)
{
    bool moved = false, all = true;
    for (int i = 0; i < READS_PER_TURN && all && !link->broken && gci_link_is_read(link); i++) {
        ssize_t got = gci_link_receive(o, link, &all);
        if (got == -EAGAIN)
            break;
        if (got <= 0) {
            gci_link_break(o, link, got == 0 ? "closed by the peer" : gci_strerrno((int)got));
            return true;
        }
        moved = true;
        gci_link_parse(o, link);
    }
    gci_hops_pump(o);
    return moved;
}

/* A connection ends. What the peer sent before its end still counts, unless it broke the rules. */
GCI void gci_link_drain(gci_overlay *o, gci_link *link)
{
    if (link->mute) {
        link->broken = false;
        o->broken--;
    }
    link->pumping = true;               /* nothing is sent any more */
    if (!link->broken)
        gci_link_parse(o, link);            /* what was read before it broke */
    while (!link->broken && gci_link_read(o, link))
        ;
    link->pumping = false;
}

/* ---- links that were held --------------------------------------------------------------------------------------- */

/* Links that held a packet, or could not begin one, go on; and then this rank, if it has waited for them: even if some of them
 * are to go on again, or traffic without end on one hop would keep its turn on another away. */
GCI void gci_hops_go_on(gci_overlay *o)
{
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop) {
        if (!hop->again || hop->holds)
            continue;
        hop->again = hop->stopped = false;
        gci_link_parse(o, hop);
        gci_link_watch(o, hop);
        if (hop->fd >= 0)
            gci_link_read(o, hop);
    }
    o->again = false;
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop) {
        o->again |= hop->again && !hop->holds;
        if (hop->waiters) {
            hop->turn = true;
            gci_hop_due(o, hop);
        }
    }
    if (o->again)
        gci_overlay_errand(o);
}

/* What is on its way, here, is forgotten; links that were held go on. */
GCI void gci_hops_turn(gci_overlay *o)
{
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop) {
        gci_link_forget(o, hop, -1);
        for (gci_waiter *w; (w = waiter_pop(hop));)
            if (w->source)
                hop_release(o, w->source);
        hop->local_first = hop->local_last = 0;
        if (hop->stopped)
            hop->again = o->again = true;
        if (hop->in_packet && hop->passing == GCI_PASS_DELIVER)
            gci_link_skip(hop);
    }
    gci_overlay_errand(o);
}

/* ---- payloads go away ------------------------------------------------------------------------------------------- */

static void link_disown(gci_overlay *o, gci_link *link, int peer, const void *token)
{
    if (link->in_packet && link->passing == GCI_PASS_DELIVER && link->in.source == (uint32_t)peer && link->token == token) {
        link->skip_left += link->sink_left;
        link->sink_left = 0;
        if (link->in.type == GCI_CHUNK)
            link->token = NULL;         /* of an envelope, its number still counts */
    }
    for (int i = 0; i < link->queued; i++) {
        gci_slot *slot = &link->out[i];
        bool mine = slot->packet.source == (uint32_t)o->rank && slot->packet.dest == (uint32_t)peer;
        if (mine && slot->token == token && !gci_slot_keep(o, link, slot))
            return;
    }
}

GCI void gci_overlay_disown(gci_overlay *o, int peer, const void *token)
{
    if (o->peer[peer].own)
        link_disown(o, o->peer[peer].own, peer, token);
    for (gci_link *strand = o->peer[peer].strands; strand; strand = strand->next_strand)
        link_disown(o, strand, peer, token);
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop)
        link_disown(o, hop, peer, token);
}
