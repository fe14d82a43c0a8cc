/* link.c: a connection with a queue of whole packets at either side.
 * SPDX-License-Identifier: MIT
 *
 * A link is a proven data connection to a peer. A pair's own carries packets between its two ends only; beside it there may be
 * strands, over which only chunks go. A backbone link carries packets on their way between any two ranks, its own included (a
 * hop; it lives as long as the overlay, its connection comes and goes). Each has a finite send queue of whole packets and one
 * packet being received; nothing else is stored here, so memory per link is constant. Payloads are written straight from where
 * they lie and read straight to where they belong; a small read-ahead takes headers and short messages, so a short message
 * costs one system call at either end.
 *
 * A NAT or a firewall may forget a connection and say nothing; TCP would try for a quarter of an hour. So a link is given
 * up when the peer's kernel owes an answer and nothing has come from it over several looks, as if it had been reset: a fresh one
 * takes its place, or a route, and nothing is lost. That is no verdict on the peer. Who does not read, is stopped or computes
 * is not silent: its kernel answers. Within a host nothing can get lost on the way. Of several links of a pair one is given up
 * much sooner, if the peer is heard on another: then it is the way that is dead.
 *
 * A link that fails is marked, and torn down by the driver (drive.c), never inside a callback.
 */
#include "gridcomm_int.h"

enum {
    SHORT_MAX = GCI_HEAD_MAX - GCI_HEADER_BYTES,        /* payload that leaves in one piece with its header */
    OWN_AHEAD = 16384 + 4 * GCI_HEADER_BYTES,       /* read-ahead: headers and messages of 16 KiB come in one call, */
    HOP_AHEAD = 8192,                   /* here within 64 KiB for all of a link, */
    HOP_BULK = 1024,                    /* and of a larger payload only the next header beyond it */
    PASSED_MAX = 16,                    /* packets that may get past a chunk in the queue: else a flood of them would starve it */
    SILENT_LOOKS = 5,                   /* a second apart, or more: TCP has tried four times and more */
    ENDED_LONG = 8192,                  /* of the payload: a shorter packet leaves in one go */
    ENDED_AT_ONCE = 8                   /* acknowledgements of a link before they keep their pace */
};
#define ENDED_PACE INT64_C(1000000)     /* ns from one to the next */

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

/* ---- acknowledgements -------------------------------------------------------------------------------------------- */

/* The end of a long packet rarely fills a segment, and TCP lets the acknowledgement of such a one wait up to 40 ms for data to ride
 * on. Congestion control that measures rates (BBR) takes that for the speed of the connection, and what is sent next takes 20 ms
 * and more where 0.1 would do. So before this rank turns away from its links, to sleep or to go back to the user's program, it
 * acknowledges what has ended, but where the next packet has begun. Ends in quick succession need it no more often than the pace:
 * there soon are data. Nor does what came from another site: there the wait is no more than a few latencies. */
GCI void gci_link_ended(gci_overlay *o, gci_link *link)
{
    if (link->ended || link->far_away || link->in.length < ENDED_LONG)
        return;
    link->ended = true;
    link->next_ended = o->ended;
    o->ended = link;
}

GCI void gci_links_acknowledge(gci_overlay *o)
{
    int64_t now = o->ended ? o->sys->now(o->sys) : 0;
    for (gci_link *link; (link = o->ended) != NULL;) {
        o->ended = link->next_ended;
        link->ended = false;
        if (link->in_packet || link->acknowledged_at > now)
            continue;
        link->acknowledged_at = gci_max64(link->acknowledged_at, now - ENDED_AT_ONCE * ENDED_PACE) + ENDED_PACE;
        o->sys->acknowledge(o->sys, link->fd);
        o->stats->system_calls++;
    }
}

static void ended_forget(gci_overlay *o, gci_link *link)
{
    gci_link **at = &o->ended;
    while (*at != link)
        at = &(*at)->next_ended;
    *at = link->next_ended;
    link->ended = false;
}

/* ---- links ---------------------------------------------------------------------------------------------------- */

GCI void gci_link_break(gci_overlay *o, gci_link *link, const char *why)
{
    if (link->broken || link->fd < 0)
        return;
    link->broken = true;
    o->broken++;
    gci_log(o->env, GC_LOG_DEBUG, "%s to rank %d ends: %s", link->backbone ? "backbone link" : "link", link->peer, why);
    gci_overlay_wake(o);
}

/* The poller is told what this link waits for. */
GCI int gci_link_watch(gci_overlay *o, gci_link *link)
{
    unsigned events = (o->hot == link || !gci_link_is_read(link) ? 0 : GCI_READ) | (link->writing ? GCI_WRITE : 0);
    if (link->fd < 0 || link->watched == events)
        return 0;
    link->watched = events;
    uint64_t tag = 2 * (uint64_t)link->peer + link->backbone + ((uint64_t)link->strand << 32);
    int err = o->sys->watch(o->sys, o->poller, link->fd, events, tag);
    if (err < 0)
        gci_link_break(o, link, gci_strerrno(err));
    return err;
}

GCI void gci_link_writing(gci_overlay *o, gci_link *link, bool writing)
{
    if (link->writing == writing)
        return;
    link->writing = writing;
    gci_link_watch(o, link);
}

/* This link (or none) is the hot one from now on. */
GCI void gci_link_heat(gci_overlay *o, gci_link *link)
{
    gci_link *before = o->hot;
    o->hot = link;
    if (before)
        gci_link_watch(o, before);
    if (link)
        gci_link_watch(o, link);
}

/* One more look; the one before was `since` ago. */
GCI bool gci_link_listen(gci_overlay *o, gci_link *link, int64_t since)
{
    int64_t silence = o->sys->silence(o->sys, link->fd);
    o->stats->system_calls++;
    link->spoke = silence > 0;
    link->owed = silence <= 0 ? 0 : silence < since ? 1 : (uint8_t)(link->owed + 1);
    if (link->owed < SILENT_LOOKS)
        return link->spoke;
    link->mute = true;                  /* what has come before is good */
    gci_link_break(o, link, "nothing gets through any more");
    return false;
}

/* The connection is closed, and what was in it forgotten, but for a packet that has come whole. */
GCI void gci_link_close(gci_overlay *o, gci_link *link)
{
    for (int i = 0; i < link->queued; i++)
        gci_slot_free(o, &link->out[i]);
    link->queued = 0;
    link->gone = link->from = link->to = 0;
    link->sink_left = link->skip_left = 0;
    link->stopped_at = 0;
    link->in_packet = link->stopped = link->mute = link->writing = link->spoke = false;
    link->owed = 0;
    if (link->ended)
        ended_forget(o, link);
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

GCI int gci_link_open(gci_overlay *o, gci_link *link, int fd)
{
    link->fd = fd;
    int err = gci_link_watch(o, link);
    o->stats->connections++;
    return err;
}

GCI gci_link *gci_link_new(gci_overlay *o, int peer, bool backbone, unsigned strand)
{
    size_t room = backbone ? HOP_AHEAD : OWN_AHEAD;
    const gci_table *table = o->control ? gci_control_table(o->control) : NULL;
    gci_link *link = gci_alloc(o->env, sizeof *link + room);
    if (!link)
        return NULL;
    link->fd = link->at = -1;
    link->peer = peer;
    link->backbone = backbone;
    link->far_away = table && !gci_table_same_site(table, peer, o->rank);
    link->strand = (uint8_t)strand;
    link->ahead_room = room;
    link->wait.source = link;
    link->waiters_end = &link->waiters;
    return link;
}

/* The rest of the packet that is coming is for nobody. */
GCI void gci_link_skip(gci_link *link)
{
    link->passing = GCI_PASS_SKIP;
    link->skip_left += link->sink_left;
    link->sink_left = 0;
}

/* ---- buffers and queues --------------------------------------------------------------------------------------- */

GCI void *gci_buffer_take(gci_overlay *o)
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

GCI void gci_buffer_give(gci_overlay *o, void *buffer)
{
    if (!buffer)
        return;
    memcpy(buffer, &o->spare, sizeof o->spare);
    o->spare = buffer;
}

GCI void gci_slot_free(gci_overlay *o, gci_slot *slot)
{
    gci_free(o->env, slot->copy);
    gci_buffer_give(o, slot->buffer);
    slot->copy = slot->buffer = NULL;
}

/* The last slot moves to its place: envelopes and what is owed stand before chunks that have not begun and are longer, unless many
 * have passed those already; among themselves they keep their order. */
GCI void gci_slot_settle(gci_link *link)
{
    int last = link->queued - 1, at = last;
    link->out[last].passed = 0;
    if (link->out[last].packet.type == GCI_CHUNK)
        return;
    for (; at > 0 && link->out[at - 1].packet.type == GCI_CHUNK && !(at == 1 && link->gone > 0); at--)
        if (link->out[at - 1].passed == PASSED_MAX || link->out[at - 1].packet.length <= link->out[last].packet.length)
            break;
    if (at == last)
        return;
    gci_slot slot = link->out[last];
    for (int i = at; i < last; i++)
        link->out[i].passed++;
    memmove(link->out + at + 1, link->out + at, (size_t)(last - at) * sizeof slot);
    link->out[at] = slot;
}

GCI void gci_slot_encode(gci_slot *slot)
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
GCI bool gci_slot_keep(gci_overlay *o, gci_link *link, gci_slot *slot)
{
    slot->token = NULL;
    if (!slot->payload || slot->copy || slot->buffer)
        return true;
    slot->copy = gci_alloc(o->env, slot->packet.length);
    if (!slot->copy) {
        gci_link_break(o, link, "out of memory");
        return false;
    }
    memcpy(slot->copy, slot->payload, slot->packet.length);
    slot->payload = slot->copy;
    return true;
}

/* What has not begun to leave is forgotten: all of it (dest -1), or this rank's packets to dest. */
GCI void gci_link_forget(gci_overlay *o, gci_link *link, int dest)
{
    size_t left = link->gone;           /* beyond the first packet: in the middle of sent(), which has not come to them yet */
    int kept = 0;
    for (int i = 0; i < link->queued; i++) {
        gci_slot *slot = &link->out[i];
        bool mine = slot->packet.source == (uint32_t)o->rank, begun = left > 0;
        left -= gci_min(left, GCI_HEADER_BYTES + slot->packet.length);
        if (dest < 0 || (mine && slot->packet.dest == (uint32_t)dest)) {
            if (!begun) {
                gci_slot_free(o, slot);
                continue;
            }
            if (mine)
                gci_slot_keep(o, link, slot);
        }
        if (kept != i)
            link->out[kept] = *slot;
        kept++;
    }
    link->queued = kept;
}

/* ---- the socket ------------------------------------------------------------------------------------------------- */

/* What is to be written: as many pieces as the queue has, headers and payloads by turns. */
GCI int gci_link_vector(const gci_link *link, struct iovec iov[2 * GCI_QUEUE_MAX])
{
    int n = 0;
    size_t gone = link->gone;
    for (int i = 0; i < link->queued; i++) {
        const gci_slot *slot = &link->out[i];
        size_t head_gone = gci_min(gone, slot->head_bytes), gone_beyond = gone - head_gone;
        if (head_gone < slot->head_bytes)
            iov[n++] = (struct iovec){ (void *)(uintptr_t)(slot->head + head_gone), slot->head_bytes - head_gone };
        if (slot->payload && slot->packet.length > gone_beyond)
            iov[n++] = (struct iovec){ (void *)((uintptr_t)slot->payload + gone_beyond), slot->packet.length - gone_beyond };
        gone = 0;
    }
    return n;
}

/* One read: the rest of the payload to its place, and what follows into the read-ahead; while much payload is to come,
 * only the next header follows, so that hardly anything is copied twice. *all: the socket gave all that was asked for. */
GCI ssize_t gci_link_receive(gci_overlay *o, gci_link *link, bool *all)
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
