/* p2p.c: pairs, eager and rendezvous, credits: what happens to a message between posting and completion.
 * SPDX-License-Identifier: MIT
 *
 * A pair is what this rank shares with one peer. Messages travel as envelopes, numbered per pair and matched in that
 * order. An envelope carries the whole message (eager) or as much of it as the peer has lent room for; the rest follows
 * in chunks once the receiver has matched it and granted it (rendezvous), and the receiver's FIN ends the send.
 *
 * Invariants:
 *  - Every envelope uses a credit. What the peer may send beyond what has come (credit: envelopes, window: bytes of
 *    payload) stands in every packet that goes to it, as a state and not as a change, so losing or repeating it is harmless.
 *  - Windows come from one pool. When it is short, those that are idle or more than their even share are made smaller (LESS).
 *    What the peer was told before stays its own (room) until it answers that it knows (KNOWN), behind all that it sent; what
 *    then still fills it, until it is consumed. So what may come and what is held is at no instant more than was lent. Nobody
 *    waits for that answer but whoever would like a wider window.
 *  - What has come and is not yet consumed (held) was paid for by credit: memory for it is bounded before it is sent.
 *    A receive that waits for a message hidden behind others may lend one credit more at a time (lend): the receiver pays
 *    for that on its own account, so any order of receives ends even with credits of one.
 *  - What is owed (credit, grants, FINs, asks) is state kept in the pair and in its messages, bounded by credits, and made
 *    into a packet only when the link has room. Taking in a packet never needs to send one.
 *  - An envelope's record stays until the peer acknowledges it. A pair has one way at a time, a link of its own or a route
 *    over relays; each new one opens with a RESUME on both sides, and all that has not come is sent again; duplicates are
 *    known by their number. On a link within one host larger payloads are not kept: there a lost link is a lost peer if
 *    anything was under way.
 *  - A packet of a route is shorter than one of a link. An envelope that goes again, and is too long by now, goes with
 *    its first bytes only, and the rest is granted as in any rendezvous. If its send has completed since, a send of the
 *    library's own stays open on the copy that was kept (rest).
 *  - On a route chunks may overtake envelopes, so only those go their own way that answer a grant: their envelope has come.
 *    Those that follow it unasked (streams) stay behind it, for the whole send. Over strands they go when it has come.
 *  - Chunks may come in any order, and twice: the receiver notes what is in place (got, and spans ahead of it). What was lost
 *    with a strand or a way is asked for, and granted hole by hole from the front; what little lies between two comes again.
 *  - A send that is given up before its envelope is made ends at once. One that was announced is its receiver's to give back,
 *    if nobody has asked for it there. Its envelope, once more, asks for it (BACK), one send at a time: whatever is lost, the
 *    receiver has to know no more than the last one that it gave back.
 *  - A send completes when its buffer is free: copied, or written whole (a link within a host), or on FIN.
 *
 * Why nobody waits for ever: a packet can always be taken in; credit comes back when messages are consumed or lent for;
 * grants and FINs need no credit.
 */
#include "gridcomm_int.h"

enum {
    COPY_MAX = 1024,                    /* bytes of payload copied even within a host: cheaper than waiting for the socket */
    WINDOW_FAR = 512 << 10,             /* bytes lent to a peer at another site from the first: its answers take long */
    FAR_PEERS = 32,                     /* if the pool has that for so many */
    FAR_PARTS = 8,                      /* one of so many parts of its credit that has come back is told when it is quiet, */
    FAR_LOOKS = 2,                      /* ... seen so often */
    WINDOW_NEAR = 256 << 10,            /* on demand to one at this site, at most, */
    WINDOW_LAST = 4 << 20,              /* and to others */
    KIB = 1024,
    WIRE16_MAX = 65535,
    STREAMS_LONG = 2 * GCI_PACKET_MAX,  /* bytes beyond an envelope: worth a packet that lets them take strands */
    ISLAND_MAX = 4 * GCI_PACKET_MAX,    /* bytes between holes */
    OWING_MAX = 32768,                  /* answers owed to one peer: more than the credits that anybody gives */
    SPANS_MAX = 16384                   /* holes in a message: 1 GiB of chunks under way */
};
#define LOOK_PAUSE (500 * (int64_t)GCI_NS_PER_MS)       /* a window unused for so long may come back: some round trips */

/* ---- pairs ---------------------------------------------------------------------------------------------------- */

GCI void gci_message_link(gci_pair *p, gc_message *m)
{
    m->open_next = p->messages;
    m->open_prev = &p->messages;
    if (p->messages)
        p->messages->open_prev = &m->open_next;
    p->messages = m;
}

GCI void gci_message_unlink(gc_message *m)
{
    if (!m->open_prev)
        return;
    *m->open_prev = m->open_next;
    if (m->open_next)
        m->open_next->open_prev = m->open_prev;
    m->open_prev = NULL;
}

static gc_comm *comm_of_context(const gci_world *w, uint32_t context)
{
    for (gc_comm *comm = w->comms; comm; comm = comm->next)
        if (comm->context == context - context % GCI_CONTEXT_KINDS)
            return comm;
    return NULL;
}

/* A communicator meets what came before this rank had it: of that, what is of no member. */
static void strangers_drop(gci_p2p *p2p, const gci_match *match)
{
    for (gc_message *m = match->unexpected, *next; m; m = next) {
        next = m->next;
        if (gci_comm_rank(match->comm, m->source) >= 0)
            continue;
        gci_message_drop(p2p, m);
        next = match->unexpected;       /* what that pushed may have changed the list */
    }
}

GCI gci_match *gci_match_of(gci_p2p *p2p, uint32_t context)
{
    if (p2p->last_match && p2p->last_match->context == context && p2p->last_match->comm)
        return p2p->last_match;
    gci_match *match = gci_match_get(p2p->env, p2p->match, context);
    if (!match)
        return NULL;
    p2p->last_match = match;
    if (match->comm)
        return match;
    match->comm = comm_of_context(p2p->world, context);
    if (match->comm)
        strangers_drop(p2p, match);
    return match;
}

/* Where a context stands, or would stand, among the closed ones. */
static size_t closed_place(const gci_p2p *p2p, uint32_t context)
{
    size_t low = 0, high = p2p->closed_count;
    while (low < high) {
        size_t middle = (low + high) / 2;
        if (p2p->closed[middle] < context)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

GCI bool gci_context_is_closed(const gci_p2p *p2p, uint32_t context)
{
    uint32_t own = context - context % GCI_CONTEXT_KINDS;
    size_t at = closed_place(p2p, own);
    return at < p2p->closed_count && p2p->closed[at] == own;
}

/* Without memory it is not noted, and what comes late waits for ever, within its credit. */
GCI void gci_context_close(gci_p2p *p2p, uint32_t context)
{
    if (p2p->closed_count == p2p->closed_room) {
        size_t room = p2p->closed_room ? 2 * p2p->closed_room : 16;
        uint32_t *more = gci_realloc(p2p->env, p2p->closed, room * sizeof *more);
        if (!more)
            return;
        p2p->closed = more;
        p2p->closed_room = room;
    }
    size_t at = closed_place(p2p, context);
    memmove(p2p->closed + at + 1, p2p->closed + at, (p2p->closed_count - at) * sizeof *p2p->closed);
    p2p->closed[at] = context;
    p2p->closed_count++;
}

GCI gci_pair *gci_pair_of(gci_p2p *p2p, int peer)
{
    gci_pair *p = p2p->pair[peer];
    if (p)
        return p;
    p = gci_alloc(p2p->env, sizeof *p);
    if (!p)
        return NULL;
    const gci_table *table = p2p->world->table;
    p->peer = peer;
    p->keep = table && table->card[peer].host != table->card[p2p->world->rank].host;
    p->far_away = table && !gci_table_same_site(table, peer, p2p->world->rank);
    p->queue_end = &p->queue;
    p->open_end = &p->open;
    p->sent_end = &p->sent;
    p->room = p2p->room_first;
    if (p->far_away) {
        size_t some = gci_min(p2p->room_left / 4, p2p->room_all / FAR_PEERS);
        size_t more = gci_min(WINDOW_FAR - gci_min(p->room, WINDOW_FAR), some);
        p->room += more;
        p2p->room_left -= more;
    }
    p->share = p->room;
    p->used = true;                     /* it has not had its time yet */
    p2p->pair[peer] = p;
    return p;
}

GCI void gci_push(gci_p2p *p2p, gci_pair *p)
{
    if (!p2p->corked || (!p->corked && p2p->behind_count == GCI_CORK_MAX)) {
        gci_overlay_push(p2p->world->overlay, p->peer);
    } else if (!p->corked) {
        p->corked = true;
        p2p->behind[p2p->behind_count++] = p->peer;
    }
}

/* So that messages to the same peer leave in one system call. */
GCI bool gci_cork(gci_p2p *p2p)
{
    bool was = p2p->corked;
    p2p->corked = true;
    return was;
}

/* Callbacks may post more, and flush it. */
GCI bool gci_flush(gci_p2p *p2p)
{
    bool any = p2p->behind_count > 0;
    while (p2p->behind_count > 0) {
        gci_pair *p = p2p->pair[p2p->behind[0]];
        memmove(p2p->behind, p2p->behind + 1, (size_t)--p2p->behind_count * sizeof *p2p->behind);
        p->corked = false;
        gci_overlay_push(p2p->world->overlay, p->peer);
    }
    return any;
}

GCI void gci_uncork(gci_p2p *p2p, bool was)
{
    gci_flush(p2p);
    p2p->corked = was;
}

/* ---- credit --------------------------------------------------------------------------------------------------- */

static uint32_t credit_of(const gci_p2p *p2p, const gci_pair *p)
{
    uint32_t all = p2p->credits + p->lent;
    return all > p->held ? all - p->held : 0;
}

static size_t window_of(const gci_pair *p)
{
    return p->share > p->held_bytes ? p->share - p->held_bytes : 0;
}

/* Is it worth a packet of its own to tell the peer what it may send? When half of what it can have has come back, or
 * anything at all if it waits for it. Far away less than half at the end of a burst of messages: what the next one does not find
 * room for waits for a grant. */
static void credit_review(gci_p2p *p2p, gci_pair *p)
{
    uint32_t more = p->expect + credit_of(p2p, p) - p->told_limit;
    uint64_t more_bytes = p->taken_bytes + window_of(p) / KIB * KIB - p->told_bytes;
    if ((int32_t)more < 0)
        more = 0;
    if ((int64_t)more_bytes < 0)
        more_bytes = 0;
    uint32_t all = p2p->credits + p->lent;
    bool due = more >= (all > 1 ? all / 2 : 1) || more_bytes > p->share / 2;
    bool some = more >= (all + FAR_PARTS - 1) / FAR_PARTS || more_bytes >= p->share / FAR_PARTS;
    if (p->peer_starved && (more > 0 || more_bytes >= KIB))
        due = true;
    if (due && !p->owe_state && p->up) {
        p->owe_state = true;
        gci_push(p2p, p);
    } else if (!due && some && p->far_away) {
        p->untold = FAR_LOOKS;
        if (!p2p->untold)
            gci_overlay_tick_soon(p2p->world->overlay);
        p2p->untold = true;
    }
}

/* What every packet tells the peer. soon: it takes the short route, so nothing of that needs to be told once more. */
static void stamp(gci_p2p *p2p, gci_pair *p, bool soon, gci_packet *packet)
{
    uint32_t credit = credit_of(p2p, p);
    size_t window = window_of(p) / KIB;
    packet->source = (uint32_t)p2p->world->rank;
    packet->dest = (uint32_t)p->peer;
    packet->ack = p->expect;
    packet->credit = (uint16_t)gci_min(credit, WIRE16_MAX);
    packet->window = (uint16_t)gci_min(window, WIRE16_MAX);
    if (!soon)
        return;
    if (p->starved && !p->starved_told) {
        p->starved_told = true;
        packet->flags |= GCI_FLAG_STARVED;
    }
    p->owe_state = false;
    p->untold = 0;
    uint32_t limit = p->expect + packet->credit;
    uint64_t bytes = p->taken_bytes + (uint64_t)packet->window * KIB;
    if (p->peer_starved && ((int32_t)(limit - p->told_limit) > 0 || bytes > p->told_bytes)) {
        p->peer_starved = false;
        p2p->starving--;
    }
    p->told_limit = limit;
    p->told_bytes = bytes;
}

/* All of this peer's credit lies in messages that nobody has asked for, and somebody waits for another one. */
static void lend(gci_p2p *p2p, gci_pair *p)
{
    if (!p->peer_starved || credit_of(p2p, p) > 0 || p->lent >= WIRE16_MAX - p2p->credits ||
        !(p2p->probes > 0 || gci_match_wanted(p2p->match, p->peer)))
        return;
    p->lent++;
    credit_review(p2p, p);
}

GCI void gci_lend_all(gci_p2p *p2p)
{
    for (int i = 0; p2p->starving > 0 && i < p2p->world->ranks; i++)
        if (p2p->pair[i])
            lend(p2p, p2p->pair[i]);
}

/* ---- windows that come back ----------------------------------------------------------------------------------- */

/* What is not the peer's any more, and not filled, is lent to others. */
static void room_return(gci_p2p *p2p, gci_pair *p)
{
    size_t filled = p->held_bytes + (p->incoming ? p->incoming->packet.length : 0), keep = gci_max(p->share, filled);
    if (p->recalled || p->room <= keep)
        return;
    p2p->room_left += p->room - keep;
    p->room = keep;
}

/* A peer fills what it was told, so it must know first, and say so behind all that it sent before. */
GCI void gci_recall(gci_p2p *p2p, gci_pair *p, size_t keep)
{
    /* It sends nothing any more, or does not know of any window yet. */
    bool knows = p2p->world->dead[p->peer] || p->bye || (!p->recalled && p->told_bytes == 0);
    if (knows) {
        p->recalled = false;
        p->share = gci_min(p->share, keep);
        room_return(p2p, p);
        return;
    }
    if (p->recalled || p->share <= keep || !p->up)
        return;
    p->share = keep;
    p->recalled = p->owe_recall = true;
    p->recalls++;
    gci_push(p2p, p);
}

/* Windows that nothing came through since last time, or is in, are idle; the others share alike. */
static void windows_look(gci_p2p *p2p)
{
    size_t users = 1;
    for (int i = 0; i < p2p->world->ranks; i++) {
        gci_pair *p = p2p->pair[i];
        if (!p)
            continue;
        p->idle = !p->used && p->held_bytes == 0 && !p->messages;
        p->used = false;
        users += !p->idle;
    }
    p2p->room_even = p2p->room_first + p2p->room_all / users;
    p2p->may_recall = true;
}

/* The pool is short. Idle windows give what this peer wants of all that they were lent on demand. Others are cut to what it has,
 * and not below their even share; if it has less than that all are, since it is hardly the only one. */
static void recall_for(gci_p2p *p2p, const gci_pair *p, size_t want)
{
    int64_t now = p2p->env->sys->now(p2p->env->sys);
    if (now >= p2p->look_at) {
        windows_look(p2p);
        p2p->look_at = now + LOOK_PAUSE;
    }
    bool poor = p->share < p2p->room_even;
    for (int i = 0; p2p->may_recall && i < p2p->world->ranks; i++) {
        gci_pair *other = p2p->pair[i];
        if (!other || other == p)
            continue;
        size_t keep = other->idle ? p2p->room_first : gci_max(p->share, p2p->room_even), had = other->share;
        if (had <= keep)
            continue;
        gci_recall(p2p, other, poor && !other->idle ? keep : had - gci_min(want, had - keep));
        want -= gci_min(want, had - other->share);
        if (want == 0 && !poor)
            return;
    }
    p2p->may_recall = false;            /* all that there is */
}

/* To twice what it is: for a peer that has its even share, no more than a part of what the pool still has. */
static void window_widen(gci_p2p *p2p, gci_pair *p)
{
    size_t most = p->far_away ? WINDOW_LAST : WINDOW_NEAR, more = gci_min(p->share, most - gci_min(p->share, most));
    if (p->recalled || p->bye || p2p->world->dead[p->peer])
        return;
    if (more > p2p->room_left)
        recall_for(p2p, p, 2 * more - p2p->room_left);
    size_t due = p2p->room_even > p->share ? p2p->room_even - p->share : 0;
    p->wants = gci_min(more, due) > p2p->room_left;
    p->share += gci_min(more, gci_min(p2p->room_left, gci_max(due, p2p->room_left / 4)));
    if (p->share > p->room) {           /* it may not have been read out of all that it once had */
        p2p->room_left -= p->share - p->room;
        p->room = p->share;
    }
}

static void window_known(gci_p2p *p2p, gci_pair *p, uint32_t which)
{
    if (!p->recalled || p->owe_recall || which != p->recalls)
        return;
    p->recalled = false;
    room_return(p2p, p);
    for (int i = 0; i < p2p->world->ranks; i++)
        if (p2p->pair[i] && p2p->pair[i]->wants) {
            window_widen(p2p, p2p->pair[i]);
            credit_review(p2p, p2p->pair[i]);
        }
}

static void peer_starves(gci_p2p *p2p, gci_pair *p)
{
    if (!p->peer_starved) {
        p->peer_starved = true;
        p2p->starving++;
    }
    window_widen(p2p, p);
    lend(p2p, p);
    credit_review(p2p, p);
}

/* ---- what is in place of a message ---------------------------------------------------------------------------- */

/* Bytes in place ahead of a message's front: ascending, with gaps between them. */
typedef struct gci_span { size_t from, to; } gci_span;
struct gci_spans { int n, room; gci_span at[]; };

/* Room for one more, and for those of all strands that are coming now. */
static int spans_prepare(gci_p2p *p2p, gc_message *m)
{
    int n = m->ahead ? m->ahead->n + UINT8_MAX + 2 : 0;
    if (m->ahead && m->ahead->room >= n)
        return GC_OK;
    if (n > SPANS_MAX)
        return GC_ERR_PROTOCOL;
    int room = gci_max32(2 * n, 2 * (UINT8_MAX + 2));
    struct gci_spans *more = gci_realloc(p2p->env, m->ahead, sizeof *more + (size_t)room * sizeof more->at[0]);
    if (!more)
        return GC_ERR_NOMEM;
    if (!m->ahead)
        more->n = 0;
    more->room = room;
    m->ahead = more;
    return GC_OK;
}

/* A span joins those that it touches. */
static void spans_add(struct gci_spans *s, size_t from, size_t to)
{
    int low = 0, high = s->n;
    while (low < high) {
        int middle = (low + high) / 2;
        if (s->at[middle].to < from)
            low = middle + 1;
        else
            high = middle;
    }
    for (high = low; high < s->n && s->at[high].from <= to; high++) {
        from = gci_min(from, s->at[high].from);
        to = gci_max(to, s->at[high].to);
    }
    memmove(s->at + low + 1, s->at + high, (size_t)(s->n - high) * sizeof s->at[0]);
    s->at[low] = (gci_span){ from, to };
    s->n += 1 - (high - low);
}

/* These bytes are in place. */
static void message_place(gc_message *m, size_t from, size_t to)
{
    struct gci_spans *s = m->ahead;
    if (from > m->got) {
        spans_add(s, from, to);
        return;
    }
    m->got = gci_max(m->got, to);
    int gone = 0;
    for (; s && gone < s->n && s->at[gone].from <= m->got; gone++)
        m->got = gci_max(m->got, s->at[gone].to);
    if (gone == 0)
        return;
    s->n -= gone;
    memmove(s->at, s->at + gone, (size_t)s->n * sizeof s->at[0]);
}

/* The end of the first hole. A grant costs a round trip: what little is in place between two holes comes again. */
static size_t message_hole(const gc_message *m, size_t need)
{
    for (int i = 0; m->ahead && i < m->ahead->n; i++)
        if (m->ahead->at[i].to - m->ahead->at[i].from > ISLAND_MAX)
            return m->ahead->at[i].from;
    return need;
}

/* ---- messages that have come ---------------------------------------------------------------------------------- */

GCI gc_message *gci_message_new(gci_p2p *p2p)
{
    gc_message *m = p2p->spare_messages;
    if (!m)
        return gci_alloc(p2p->env, sizeof *m);
    p2p->spare_messages = m->next;
    m->open_prev = NULL;                /* field by field: compilers clear a whole record of this size slowly */
    m->match = NULL;
    m->payload = NULL;
    m->recv = m->local = NULL;
    m->ahead = NULL;
    m->got = m->granted = 0;
    m->owe = 0;
    m->come = m->held = m->queued = m->dropped = m->taken = false;
    m->lost = 0;
    return m;
}

GCI void gci_message_free(gci_p2p *p2p, gc_message *m)
{
    gci_pair *p = p2p->pair[m->source];
    if (m->queued)
        gci_match_forget(m);
    gci_message_unlink(m);
    if (m->owe)
        p->owing--;
    if (m->payload)
        gci_payload_consumed(p2p, m);
    gci_free(p2p->env, m->ahead);
    if (m->held) {
        p->held--;
        if (p->lent > 0)
            p->lent--;
    }
    m->next = p2p->spare_messages;
    p2p->spare_messages = m;
}

/* The payload of the envelope is where it belongs: its room is free again. */
GCI void gci_payload_consumed(gci_p2p *p2p, gc_message *m)
{
    gci_pair *p = p2p->pair[m->source];
    gci_free(p2p->env, m->payload);
    m->payload = NULL;
    if (!m->held)
        return;
    p->held_bytes -= m->packet.length;
    room_return(p2p, p);
}

GCI void gci_owe(gci_p2p *p2p, gc_message *m, uint8_t what)
{
    gci_pair *p = p2p->pair[m->source];
    if (!m->owe)
        p->owing++;
    m->owe |= what;
    if (!m->open_prev)
        gci_message_link(p, m);
}

/* Does the sender of this envelope wait for a FIN? */
static bool wants_answer(const gci_packet *envelope)
{
    return (envelope->flags & GCI_FLAG_SYNC) || envelope->total > envelope->length;
}

/* Of a message of any length, what has room. */
static size_t at_most(uint64_t total, size_t room)
{
    return total < room ? (size_t)total : room;
}

static size_t message_need(const gc_message *m)
{
    return m->recv ? at_most(m->packet.total, m->recv->bytes) : 0;
}

static void recv_complete(gc_message *m)
{
    gc_request *r = m->recv;
    m->recv = NULL;
    r->message = NULL;
    r->status.bytes = at_most(m->packet.total, r->bytes);
    if (m->packet.total > r->bytes)
        gci_request_fail(r, GC_ERR_TRUNCATE, -1, "a message of %llu bytes from rank %d met a receive of %zu bytes",
                         (unsigned long long)m->packet.total, r->status.source, r->bytes);
    else
        gci_request_done(r, GC_OK);
}

/* Matched (or not wanted any more) and the envelope is complete: what next? */
GCI void gci_message_settle(gci_p2p *p2p, gc_message *m)
{
    size_t need = message_need(m);
    bool answer = wants_answer(&m->packet);
    gci_pair *p = p2p->pair[m->source];
    if (m->got < need) {
        if (!(m->packet.flags & GCI_FLAG_STREAMS)) {
            gci_owe(p2p, m, GCI_OWE_GRANT);
            gci_push(p2p, p);
        }
        return;
    }
    gc_message done = *m;               /* callbacks and pushes come last: each may change everything */
    m->recv = NULL;
    if (answer)
        gci_owe(p2p, m, GCI_OWE_FIN);
    else
        gci_message_free(p2p, m);
    if (done.recv)
        recv_complete(&done);
    if (answer)
        gci_push(p2p, p);
    credit_review(p2p, p);
}

/* One that no receive has, and none will get. */
GCI void gci_message_drop(gci_p2p *p2p, gc_message *m)
{
    gci_match_forget(m);
    m->dropped = true;
    if (!m->come)
        return;                         /* envelope_end goes on with it */
    gci_payload_consumed(p2p, m);
    gci_message_settle(p2p, m);
}

static void message_match(gc_message *m, gc_request *r)
{
    m->recv = r;
    r->message = m;
    r->status.source = gci_comm_rank(r->comm, m->source);
    r->status.tag = (int)m->packet.tag;
    r->signature = m->packet.signature;
}

GCI bool gci_message_suffices(const gc_message *m, size_t bytes)
{
    return m->local || (m->come && m->packet.length >= at_most(m->packet.total, bytes));
}

GCI void gci_message_disown(gci_p2p *p2p, gc_message *m)
{
    gci_overlay_disown(p2p->world->overlay, m->source, m);
    m->recv = NULL;
    m->dropped = true;
    if (m->come) {                      /* a rendezvous: its sender need not go on */
        gci_owe(p2p, m, GCI_OWE_FIN);
        gci_push(p2p, p2p->pair[m->source]);
    }
}

/* A receive takes a message that came before it. */
GCI void gci_message_take(gci_p2p *p2p, gc_message *m, gc_request *r)
{
    if (m->queued)
        gci_match_forget(m);
    message_match(m, r);
    if (m->local) {
        gc_request *send = m->local;
        gc_message done = *m;
        if (r->bytes > 0 && send->bytes > 0)
            memcpy(r->buf, send->buf, gci_min(send->bytes, r->bytes));
        gci_message_free(p2p, m);
        recv_complete(&done);
        gci_request_done(send, GC_OK);
        return;
    }
    if (!m->come)
        return;                         /* the rest of the envelope is on its way into m->payload */
    if (m->packet.length > 0 && r->bytes > 0)
        memcpy(r->buf, m->payload, gci_min(m->packet.length, r->bytes));
    gci_payload_consumed(p2p, m);
    m->got = gci_min(m->packet.length, r->bytes);
    gci_message_settle(p2p, m);
}

/* ---- taking packets in ---------------------------------------------------------------------------------------- */

GCI void gci_sent_free(gci_p2p *p2p, gci_sent *s)
{
    if (s->rest) {                      /* it frees the record, which has the bytes */
        s->acknowledged = true;
        return;
    }
    if (s->packet.length <= COPY_MAX && s->payload == s + 1) {
        s->next = p2p->spare_sent;
        p2p->spare_sent = s;
    } else {
        gci_free(p2p->env, s);
    }
}

static void sent_acknowledged(gci_p2p *p2p, gci_pair *p)
{
    gci_sent *s = p->sent;
    gc_request *r = s->request;
    p->sent = s->next;
    if (!p->sent)
        p->sent_end = &p->sent;
    if (p->again == &s->next)
        p->again = &p->sent;
    p->sent_bytes -= s->packet.length;
    gci_sent_free(p2p, s);
    if (r)                              /* written whole on a link that was lost, or on a route */
        gci_request_done(r, GC_OK);
}

/* Does a send have chunks that follow their envelope unasked? Since that has come they may take strands, too. */
static bool pair_streams(const gci_pair *p)
{
    for (const gc_request *r = p->open; r; r = r->next)
        if (r->streams && r->moved < r->limit)
            return true;
    return false;
}

/* What the peer says of itself in every packet. Its limits are noted before anything ends: whoever is told may send more. */
static int hear(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    uint32_t newly = packet->ack - p->acked, window = (uint32_t)packet->window * KIB;
    bool less = packet->type == GCI_STATE && packet->flags & GCI_FLAG_LESS;
    if (less)
        p->less_heard = packet->tag;
    if ((int32_t)newly < 0)
        return GC_OK;                   /* an old packet */
    if (newly > p->next_seq - p->acked)
        return GC_ERR_PROTOCOL;
    for (const gci_sent *s = p->sent; p->heard && s && (int32_t)(packet->ack - s->packet.seq) > 0; s = s->next)
        if (!s->written)
            return GC_ERR_PROTOCOL;     /* acknowledged before it was sent */
    p->acked = packet->ack;
    /* A chunk may have been passed by the news that the window is smaller. */
    bool wider = window > p->window && !(packet->type == GCI_CHUNK && packet->context != p->less_heard);
    bool more = newly > 0 || packet->credit > p->credit || wider;
    if (newly > 0 || packet->credit > p->credit)
        p->credit = packet->credit;
    if (newly > 0 || wider || less)
        p->window = window;
    while (p->sent && (int32_t)(p->acked - p->sent->packet.seq) > 0)
        sent_acknowledged(p2p, p);
    if (more && p->starved) {
        p->starved = p->starved_told = false;
        gci_push(p2p, p);
    } else if (newly > 0 && pair_streams(p)) {
        gci_push(p2p, p);
    }
    return GC_OK;
}

GCI gc_request *gci_open_send(const gci_pair *p, uint32_t seq)
{
    for (gc_request *r = p->open; r; r = r->next)
        if (r->seq == seq)
            return r;
    return NULL;
}

/* An open send is over once its FIN has come and no chunk of it waits in the link. */
GCI void gci_send_close(gci_pair *p, gc_request *r)
{
    if (r->stage != GCI_STAGE_FINISHED || r->in_flight > 0)
        return;
    gci_queue_remove(r, &p->open_end);
    gci_request_done(r, r->status.error);
}

GCI void gci_send_ask_back(gci_p2p *p2p, gci_pair *p, gc_request *r)
{
    r->withdrawn = true;
    if (p->withdrawing)
        return;
    p->owe_withdrawal = true;
    gci_push(p2p, p);
}

/* Its receiver has matched this send, or has given it back: the next one may be asked back. */
static void withdrawal_answered(gci_pair *p, gc_request *r)
{
    r->withdrawn = false;
    if (p->withdrawing != r)
        return;
    p->withdrawing = NULL;
    p->owe_withdrawal = true;
}

static int granted(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    uint64_t limit = packet->context | (uint64_t)packet->tag << 32;
    gc_request *r = gci_open_send(p, packet->seq);
    if (!r || r->stage == GCI_STAGE_FINISHED)
        return GC_OK;                   /* over already, or withdrawn */
    if ((int32_t)(p->acked - r->seq) <= 0)
        return GC_ERR_PROTOCOL;         /* answered before it has come */
    if (packet->total > limit || limit > r->bytes)
        return GC_ERR_PROTOCOL;
    if (r->stage == GCI_STAGE_GRANTED && (packet->total < r->moved || limit <= r->limit))
        return GC_OK;                   /* told twice: it goes on from where it is; else it is the next hole */
    r->early = true;
    r->streams = false;
    r->stage = GCI_STAGE_GRANTED;
    r->moved = (size_t)packet->total;
    r->limit = (size_t)limit;
    withdrawal_answered(p, r);
    gci_push(p2p, p);
    return GC_OK;
}

static int finished(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    gc_request *r = gci_open_send(p, packet->seq);
    if (!r)
        return GC_OK;
    if ((int32_t)(p->acked - r->seq) <= 0)
        return GC_ERR_PROTOCOL;
    if (packet->flags & GCI_FLAG_BACK && p->withdrawing != r)
        return GC_ERR_PROTOCOL;         /* nobody has asked for it */
    r->status.error = packet->flags & GCI_FLAG_BACK ? GC_ERR_CANCELLED : GC_OK;
    r->stage = GCI_STAGE_FINISHED;
    withdrawal_answered(p, r);
    gci_send_close(p, r);
    if (p->farewell || p->owe_withdrawal)
        gci_push(p2p, p);               /* it may have waited for this */
    return GC_OK;
}

static gc_message *open_message(const gci_pair *p, uint32_t seq)
{
    for (gc_message *m = p->messages; m; m = m->open_next)
        if (m->packet.seq == seq)
            return m;
    return NULL;
}

/* Contexts that are not known here yet are a sender's to name: nothing is kept of one that has no message. */
static void match_tidy(gci_p2p *p2p, gci_match *match)
{
    if (match && !match->comm && !match->unexpected)
        gci_match_drop(p2p, match);
}

/* Nobody has asked for this message yet, and nobody will get it. The sender asks for the next one when it has heard of this, so
 * the last one is all that must be known if that is lost. */
static void give_back(gci_p2p *p2p, gci_pair *p, gc_message *m)
{
    gci_match *match = m->match;
    p->gave_back = true;
    p->gave_back_seq = m->packet.seq;
    gci_message_drop(p2p, m);
    match_tidy(p2p, match);
}

/* An envelope that has come before. If its sender still waits for an answer, the answer was lost with a link; or it would have
 * it back. */
static int repeated(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    if (!wants_answer(packet) && !(packet->flags & GCI_FLAG_AGAIN))
        return GC_OK;
    gc_message *m = open_message(p, packet->seq);
    bool back = packet->flags & GCI_FLAG_BACK;
    if (!m) {
        if (p->owing > OWING_MAX)
            return GC_ERR_PROTOCOL;     /* nobody has so many sends open */
        m = gci_message_new(p2p);
        if (!m)
            return GC_ERR_NOMEM;        /* the sender asks again on the next link */
        m->source = p->peer;
        m->packet = *packet;
        m->come = true;
        gci_owe(p2p, m, GCI_OWE_FIN);
    } else if (back && m->queued) {
        give_back(p2p, p, m);
        return GC_OK;
    } else if ((back && m->taken) || (m->recv && m->come && m->got < message_need(m))) {
        gci_owe(p2p, m, GCI_OWE_GRANT); /* of one that is taken: of nothing */
    }
    gci_push(p2p, p);
    return GC_OK;
}

static int envelope_new(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    size_t lent = p->recalled ? p->room : p->share;
    if (credit_of(p2p, p) == 0 || packet->length > lent - gci_min(p->held_bytes, lent))
        return GC_ERR_PROTOCOL;         /* credit that was never given */
    if (packet->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_P2P && packet->tag > GC_TAG_MAX)
        return GC_ERR_PROTOCOL;
    bool closed = gci_context_is_closed(p2p, packet->context);
    gci_match *match = closed ? NULL : gci_match_of(p2p, packet->context);
    gc_message *m = closed || match ? gci_message_new(p2p) : NULL;
    if (!m) {
        match_tidy(p2p, match);
        return GC_ERR_NOMEM;
    }
    m->match = match;
    m->source = p->peer;
    m->packet = *packet;
    if (match && match->comm && gci_comm_rank(match->comm, p->peer) < 0) {
        gci_message_free(p2p, m);
        return GC_ERR_PROTOCOL;         /* not a member */
    }
    bool collective = packet->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_COLL;
    m->dropped = closed || (match->comm && gci_comm_past(match->comm, packet->context, packet->tag)) ||
                 (collective && match->comm && p2p->up.signature(match->comm, p->peer, packet->tag, packet->signature));
    gc_request *r = m->dropped ? NULL : gci_match_posted(match, p->peer, packet->tag);
    if (!r && !m->dropped && packet->length > 0) {
        m->payload = gci_alloc(p2p->env, packet->length);
        if (!m->payload) {
            gci_message_free(p2p, m);
            match_tidy(p2p, match);
            return GC_ERR_NOMEM;
        }
    }
    if (r)
        message_match(m, r);
    else if (!m->dropped)
        gci_match_keep(match, m);
    gci_message_link(p, m);
    p->incoming = m;
    return GC_OK;
}

static int envelope_begin(gci_p2p *p2p, gci_pair *p, const gci_packet *packet, void **sink, size_t *sink_bytes, void **token)
{
    int32_t ahead = (int32_t)(packet->seq - p->expect);
    if (ahead > 0 || (ahead == 0 && packet->flags & GCI_FLAG_BACK))
        return GC_ERR_PROTOCOL;
    if (ahead < 0)
        return repeated(p2p, p, packet);
    if (p->incoming) {                  /* begun on a way that was lost; it may have become shorter since */
        if (p->incoming->packet.total != packet->total || p->incoming->packet.length < packet->length)
            return GC_ERR_PROTOCOL;
        p->incoming->packet.length = packet->length;
        p->incoming->packet.flags = packet->flags;
    } else {
        int err = envelope_new(p2p, p, packet);
        if (err < 0)
            return err;
    }
    gc_message *m = p->incoming;
    if (m->payload) {
        *sink = m->payload;
        *sink_bytes = packet->length;
    } else if (m->recv) {
        *sink = m->recv->buf;
        *sink_bytes = m->recv->bytes;
    }
    *token = m;
    return GC_OK;
}

static void envelope_end(gci_p2p *p2p, gci_pair *p, gc_message *m)
{
    p->incoming = NULL;
    p->gave_back &= p->expect != p->gave_back_seq;      /* 2^32 envelopes ago */
    p->expect++;
    p->held++;
    p->held_bytes += m->packet.length;
    p->taken_bytes += m->packet.length;
    if (m->packet.length > 0) {
        p->used = true;
        p->idle = false;
    }
    m->come = m->held = true;
    if (!wants_answer(&m->packet))
        gci_message_unlink(m);
    if (!m->recv && !m->dropped) {      /* unexpected */
        gci_overlay_wake(p2p->world->overlay);      /* for probes */
        if (p->peer_starved)
            lend(p2p, p);
        return;
    }
    if (m->payload && m->recv && m->recv->bytes > 0)    /* matched while it came */
        memcpy(m->recv->buf, m->payload, gci_min(m->packet.length, m->recv->bytes));
    gci_payload_consumed(p2p, m);
    m->got = gci_min(m->packet.length, m->recv ? m->recv->bytes : 0);
    gci_message_settle(p2p, m);
}

static int chunk_begin(gci_p2p *p2p, gci_pair *p, const gci_packet *packet, void **sink, size_t *sink_bytes, void **token)
{
    gc_message *m = open_message(p, packet->seq);
    if (!m || !m->recv)
        return GC_OK;                   /* nobody wants it any more */
    size_t need = message_need(m);
    if (!m->come || packet->total > need || packet->length > need - packet->total)
        return GC_ERR_PROTOCOL;
    int err = packet->total > m->got ? spans_prepare(p2p, m) : GC_OK;
    if (err < 0)
        return err;
    *sink = (uint8_t *)m->recv->buf + packet->total;
    *sink_bytes = packet->length;
    *token = m;
    return GC_OK;
}

/* All of it may be in place by now, though chunks of it still come a second time: not into the user's buffer. */
static void chunk_end(gci_p2p *p2p, gci_pair *p, const gci_packet *packet, gc_message *m)
{
    size_t need = message_need(m);
    message_place(m, (size_t)packet->total, (size_t)packet->total + packet->length);
    if (m->got >= need) {
        if (p->strands)
            gci_overlay_disown(p2p->world->overlay, p->peer, m);
        gci_message_settle(p2p, m);
    } else if (m->granted > 0 && m->got >= m->granted) {
        gci_owe(p2p, m, GCI_OWE_GRANT);
        gci_push(p2p, p);
    }
}

static int ask_begin(const gci_p2p *p2p, const gci_pair *p, const gci_packet *packet)
{
    const gc_comm *comm = comm_of_context(p2p->world, packet->context);
    return comm && gci_comm_rank(comm, p->peer) < 0 ? GC_ERR_PROTOCOL : GC_OK;      /* not a member */
}

GCI int gci_packet_begin(void *user, int peer, const gci_packet *packet, void **sink, size_t *sink_bytes, void **token)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = p2p->pair[peer];
    if (!p || !p->up)
        return GC_ERR_NOMEM;            /* when the way came up */
    if (p2p->world->dead[peer] || p2p->world->aborted)
        return GC_ERR_PEER;             /* what it says now would begin what nobody ends any more */
    bool resume = packet->type == GCI_STATE && packet->flags & GCI_FLAG_RESUME;
    if (p->heard == resume)
        return GC_ERR_PROTOCOL;         /* a way begins with one RESUME */
    int err = hear(p2p, p, packet);
    if (err < 0)
        return err;
    if (packet->flags & GCI_FLAG_STARVED)
        peer_starves(p2p, p);
    switch (packet->type) {
    case GCI_ENVELOPE: return envelope_begin(p2p, p, packet, sink, sink_bytes, token);
    case GCI_CHUNK:    return chunk_begin(p2p, p, packet, sink, sink_bytes, token);
    case GCI_GRANT:    return granted(p2p, p, packet);
    case GCI_FIN:      return finished(p2p, p, packet);
    case GCI_ASK:      return ask_begin(p2p, p, packet);
    default:           return GC_OK;    /* gci_packet_end */
    }
}

/* A chunk on a strand, which knows nothing of the order of things: what it says of the peer's state may be long past. */
GCI int gci_strand_begin(void *user, int peer, const gci_packet *packet, void **sink, size_t *sink_bytes, void **token)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = p2p->pair[peer];
    if (!p || !p->up || !p->heard || p2p->world->dead[peer] || p2p->world->aborted)
        return GC_OK;                   /* it will be asked for */
    p->strands = true;
    return chunk_begin(p2p, p, packet, sink, sink_bytes, token);
}

/* The first packet of a new way: what has not come goes again, and open sends ask for their answers. false: it cannot,
 * since it was not kept. */
static bool resumed(gci_p2p *p2p, gci_pair *p)
{
    p->heard = true;
    for (gci_sent *s = p->sent; s; s = s->next)
        if (!s->payload && !s->withdrawn && s->packet.length > 0 && s->packet.length == s->packet.total)
            return false;
    p->starved = p->starved_told = false;
    p->again = p->sent ? &p->sent : NULL;
    p->reask = p->open != NULL;
    p->reask_seq = p->open ? p->open->seq : 0;
    p->owe_withdrawal = true;
    gci_push(p2p, p);
    return true;
}

/* An early grant: the send may have begun, else it will look here. */
static void granted_early(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    for (gc_request *r = p->open; r; r = r->next)
        if (r->context == packet->context && r->tag == packet->tag && r->nth == packet->seq) {
            if (r->stage != GCI_STAGE_SENT || r->early)
                return;
            r->stage = GCI_STAGE_GRANTED;
            r->early = r->streams = true;
            r->limit = at_most(packet->total, r->bytes);
            gci_push(p2p, p);
            return;
        }
    uint32_t at = p->early_next++ % GCI_EARLY_KEPT;
    p->early[at].context = packet->context;
    p->early[at].tag = packet->tag;
    p->early[at].nth = packet->seq;
    p->early[at].limit = at_most(packet->total, SIZE_MAX);
}

/* A receive that waits for the rest of a message of that collective, without it; NULL: none. */
static gc_request *half_received(gci_p2p *p2p, const gci_pair *p, const gci_match *match, uint32_t tag)
{
    gc_message *m = p->messages;
    while (m && !(m->recv && m->match == match && m->packet.tag == tag))
        m = m->open_next;
    if (!m)
        return NULL;
    gc_request *r = m->recv;
    r->message = NULL;
    gci_message_disown(p2p, m);
    return r;
}

/* The peer has sent all of that collective that it will. What is still on its way may be for the receive that asked, which will
 * ask again; but once it is here, whatever way it took, and the receive still waits, nothing will come for it. A message that has
 * begun is through before its sender has done its part, unless that has given it up. */
static void told_over(gci_p2p *p2p, const gci_pair *p, const gci_packet *packet)
{
    gci_match *match = gci_match_find(p2p->match, packet->context);
    if (!match || (int32_t)(p->expect - packet->seq) < 0)
        return;
    gc_request *r = gci_match_posted(match, p->peer, packet->tag), *half = r ? NULL : half_received(p2p, p, match, packet->tag);
    if (!r && !half)
        return;
    gci_ask_soon(p2p);                  /* of what else may be over it hears soon */
    if (r)
        gci_request_fail(r, GC_ERR_MISMATCH, p->peer, "rank %d calls it otherwise: it has no message of %zu bytes for rank %d",
                         gci_comm_rank(r->comm, p->peer), r->bytes, r->comm->rank);
    else
        gci_request_fail(half, GC_ERR_MISMATCH, p->peer, "rank %d has given it up: the rest of a message of %zu bytes will not come",
                         gci_comm_rank(half->comm, p->peer), half->bytes);
}

/* In a communicator that was freed here all collectives are over; if a member has died, everybody hears of that instead. */
static bool all_is_over(const gci_p2p *p2p, uint32_t context)
{
    for (int i = 0; i < p2p->world->ranks; i++)
        if (p2p->world->dead[i])
            return false;
    return gci_context_is_closed(p2p, context);
}

static void asked(gci_p2p *p2p, gci_pair *p, const gci_packet *packet)
{
    gc_comm *comm = comm_of_context(p2p->world, packet->context);
    if (packet->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_MEASURE && packet->total > 0)
        granted_early(p2p, p, packet);
    if (packet->context % GCI_CONTEXT_KINDS != GCI_CONTEXT_COLL)
        return;
    if (packet->flags & GCI_FLAG_OVER) {
        told_over(p2p, p, packet);
        return;
    }
    bool known = comm && p2p->up.signature(comm, p->peer, packet->tag, packet->signature);
    if (packet->total == 0 && (comm ? p2p->up.over(comm, p->peer, packet->tag, packet->signature)
                                    : all_is_over(p2p, packet->context))) {
        p->over = *packet;
        p->over.flags = GCI_FLAG_OVER;
        p->over.seq = p->next_seq;
        p->owe_over = true;
        gci_push(p2p, p);
    }
    if (known)
        return;
    if (packet->total > 0)
        granted_early(p2p, p, packet);
}

/* The peer leaves: it needs nothing any more, so nobody will take what the library still has for it. */
static void said_farewell(gci_p2p *p2p, gci_pair *p)
{
    p->bye = true;
    gci_own_sends_end(p2p, p);
    gci_overlay_wake(p2p->world->overlay);
}

GCI bool gci_packet_end(gci_p2p *p2p, gci_pair *p, const gci_packet *packet, void *token)
{
    gc_message *m = token;
    switch (packet->type) {
    case GCI_ENVELOPE:
        if (m)
            envelope_end(p2p, p, m);
        if (packet->flags & GCI_FLAG_STREAMS && p->keep && packet->total - packet->length > STREAMS_LONG) {
            p->owe_state = true;        /* the sender hears at once that it has come */
            gci_push(p2p, p);
        }
        break;
    case GCI_CHUNK:
        if (m && m->recv)
            chunk_end(p2p, p, packet, m);
        break;
    case GCI_STATE:
        if (packet->flags & GCI_FLAG_RESUME)
            return resumed(p2p, p);
        if (packet->flags & GCI_FLAG_LESS) {
            p->owe_known = true;
            gci_push(p2p, p);
        }
        if (packet->flags & GCI_FLAG_KNOWN)
            window_known(p2p, p, packet->context);
        if (packet->flags & GCI_FLAG_BYE)
            said_farewell(p2p, p);
        break;
    case GCI_ASK:
        asked(p2p, p, packet);
        break;
    default:
        break;
    }
    return true;
}

/* ---- making packets ------------------------------------------------------------------------------------------- */

static gci_sent *sent_new(gci_p2p *p2p, size_t copy_bytes)
{
    gci_sent *s = p2p->spare_sent;
    if (s && copy_bytes <= COPY_MAX) {
        p2p->spare_sent = s->next;
        s->request = s->rest = NULL;
        s->written = s->withdrawn = s->acknowledged = false;
        return s;
    }
    return gci_alloc(p2p->env, sizeof *s + gci_max(copy_bytes, COPY_MAX));
}

static void sent_append(gci_pair *p, gci_sent *s)
{
    s->next = NULL;
    *p->sent_end = s;
    p->sent_end = &s->next;
    p->sent_bytes += s->packet.length;
}

/* On a link of the pair's own all packets stay in order, and chunks come last; of a route's two ways, those that stream take
 * the envelopes'. Over a strand they would get past their envelope. */
static bool chunk_may_go(const gci_pair *p, const gc_request *r, unsigned want)
{
    if (!r->streams)
        return want & GCI_WANT_BULK;
    if (p->routed)
        return want & GCI_WANT_ORDERED;
    return want & GCI_WANT_BULK && (want & GCI_WANT_ORDERED || (int32_t)(p->acked - r->seq) > 0);
}

/* The granted send with the least left goes first: short ones get past long ones, equal ones stay in order. */
static gc_request *chunk_first(const gci_pair *p, unsigned want)
{
    gc_request *r = NULL;
    for (gc_request *other = p->open; other; other = other->next)
        if (other->stage == GCI_STAGE_GRANTED && other->moved < other->limit && chunk_may_go(p, other, want) &&
            (!r || other->limit - other->moved < r->limit - r->moved))
            r = other;
    return r;
}

/* The grant that the receiver gave this send before it began. NULL: none. */
static gci_early *early_grant(gci_pair *p, const gc_request *r)
{
    for (int i = 0; i < GCI_EARLY_KEPT && r->bytes > COPY_MAX; i++) {
        gci_early *e = &p->early[i];
        if (e->limit > 0 && e->context == r->context && e->tag == r->tag && e->nth == r->nth)
            return e;
    }
    return NULL;
}

/* Does the payload of this send stay behind chunks of others, which have no more left? Envelopes do not wait for room that chunks
 * find: of many segments none would be complete before all have nearly come. Where it has no grant yet its own chunks then wait
 * for one, which is short while others go, unless the peer is far. */
static bool stays_behind(const gci_pair *p, const gc_request *r, bool granted)
{
    if (r->bytes <= COPY_MAX || (!granted && (p->far_away || p->routed)))
        return false;
    const gc_request *first = chunk_first(p, GCI_WANT_ORDERED | GCI_WANT_BULK);
    return first && first->limit - first->moved <= r->bytes;
}

/* The envelope of a send that has left the queue. NULL: out of memory. */
static gci_sent *envelope_make(gci_p2p *p2p, gci_pair *p, gc_request *r, size_t most)
{
    size_t room = p->window > p->sent_bytes ? p->window - p->sent_bytes : 0;
    gci_early *granted = early_grant(p, r);
    bool bare = stays_behind(p, r, granted), eager = !bare && r->bytes <= gci_min(most, room);
    size_t prefix = eager ? r->bytes : bare ? 0 : gci_min(most, room / 2);      /* the other half: for short messages behind it */
    bool answer = !eager || r->sync;
    bool copy = !answer && (p->keep || p->routed || r->bytes <= COPY_MAX);
    gci_sent *s = sent_new(p2p, copy ? prefix : 0);
    if (!s)
        return NULL;
    if (!eager && !bare && room < most)
        p->starved = true;
    r->seq = p->next_seq++;
    r->stage = GCI_STAGE_SENT;
    r->moved = prefix;
    s->payload = r->buf;
    if (copy) {
        if (prefix > 0)
            memcpy(s + 1, r->buf, prefix);
        s->payload = s + 1;
    }
    s->packet = (gci_packet){ .type = GCI_ENVELOPE, .flags = r->sync ? GCI_FLAG_SYNC : 0, .epoch = 0, .source = 0, .dest = 0,
                              .length = (uint32_t)prefix, .ack = 0, .credit = 0, .window = 0, .seq = r->seq,
                              .context = r->context, .tag = r->tag, .signature = r->signature, .total = r->bytes };
    if (answer && granted && granted->limit > prefix) {         /* the chunks follow at once */
        s->packet.flags |= GCI_FLAG_STREAMS;
        r->stage = GCI_STAGE_GRANTED;
        r->early = r->streams = true;
        r->limit = gci_min(granted->limit, r->bytes);
        granted->limit = 0;
    }
    sent_append(p, s);
    if (answer)
        gci_queue_append(r, &p->open_end);
    else if (copy)
        gci_request_done(r, GC_OK);
    else
        s->request = r;
    return s;
}

/* The first send in the queue becomes an envelope. */
static bool next_envelope(gci_p2p *p2p, gci_pair *p, size_t most, gci_packet *packet, const void **payload, void **token)
{
    gci_sent *s = NULL;
    while (!s && p->queue && p->next_seq - p->acked < p->credit) {
        gc_request *r = p->queue;
        gci_queue_remove(r, &p->queue_end);
        s = envelope_make(p2p, p, r, most);
        if (!s)
            gci_request_fail(r, GC_ERR_NOMEM, -1, "no memory to send %zu bytes", r->bytes);
    }
    if (!s) {
        p->starved |= p->queue != NULL;
        return false;
    }
    *packet = s->packet;
    *payload = s->payload;
    *token = s;
    return true;
}

/* ---- sends of the library's own: what was eager once and does not fit into a packet of the present way ------------ */

static void own_send_done(gc_request *r)
{
    gci_sent *s = r->user;
    s->rest = NULL;
    if (s->acknowledged)
        gci_free(&r->comm->world->env, s);
}

/* The send of s has completed, and its bytes are kept in s. NULL: out of memory. */
static gc_request *own_send(gci_p2p *p2p, gci_pair *p, gci_sent *s)
{
    gc_request *r = gci_request_new(p2p->world->self, GCI_REQUEST_SEND);
    if (!r)
        return NULL;
    r->context = s->packet.context;
    r->tag = s->packet.tag;
    r->signature = s->packet.signature;
    r->seq = s->packet.seq;
    r->nth = UINT32_MAX;                /* no early grant is meant for it */
    r->peer = p->peer;
    r->buf = (void *)(uintptr_t)s->payload;
    r->bytes = (size_t)s->packet.total;
    r->done_fn = own_send_done;
    r->user = s;
    s->rest = r;
    return r;
}

GCI void gci_own_sends_end(gci_p2p *p2p, gci_pair *p)
{
    for (gc_request *r = p->open, *next; r; r = next) {
        next = r->next;
        if (r->done_fn != own_send_done)
            continue;
        if (p->up)
            gci_overlay_disown(p2p->world->overlay, p->peer, r);
        gci_queue_remove(r, &p->open_end);
        gci_request_done(r, GC_OK);
    }
}

/* Open sends stand in the order of their numbers. */
static void open_insert(gci_pair *p, gc_request *r)
{
    gc_request **at = &p->open;
    while (*at && (int32_t)((*at)->seq - r->seq) < 0)
        at = &(*at)->next;
    gci_queue_insert(r, at, &p->open_end);
}

/* An envelope goes again with at most so many bytes: what was to go whole becomes a rendezvous. false: out of memory. */
static bool sent_shorten(gci_p2p *p2p, gci_pair *p, gci_sent *s, size_t most)
{
    if (s->packet.length <= most)
        return true;
    bool whole = s->packet.length == s->packet.total && !(s->packet.flags & GCI_FLAG_SYNC);
    if (whole && !s->withdrawn) {       /* nobody waits for an answer to it yet */
        gc_request *r = s->request ? s->request : own_send(p2p, p, s);
        if (!r)
            return false;
        s->request = NULL;
        r->stage = GCI_STAGE_SENT;
        r->early = true;                /* there will be a grant */
        open_insert(p, r);
    }
    p->sent_bytes -= s->packet.length - most;
    s->packet.length = (uint32_t)most;
    return true;
}

/* ---- what goes next ------------------------------------------------------------------------------------------- */

/* What was lost with the last way. Without memory it waits, and with it all later envelopes. */
static bool next_again(gci_p2p *p2p, gci_pair *p, size_t most, gci_packet *packet, const void **payload, void **token)
{
    gci_sent *s = p->again ? *p->again : NULL;
    if (!s) {
        p->again = NULL;
        return false;
    }
    if (!sent_shorten(p2p, p, s, most)) {
        p2p->short_of_memory = true;
        gci_overlay_wake(p2p->world->overlay);
        return false;
    }
    p->again = &s->next;
    *packet = s->packet;
    *payload = s->payload;
    *token = s;
    if (!s->payload)                    /* withdrawn since: its receiver learns so from its own side */
        packet->length = 0;
    return true;
}

/* The envelope of an open send once more, without payload. */
static gci_packet envelope_again(const gc_request *r, unsigned flags)
{
    return (gci_packet){ .type = GCI_ENVELOPE, .flags = (uint8_t)(GCI_FLAG_AGAIN | flags | (r->sync ? GCI_FLAG_SYNC : 0)),
                         .seq = r->seq, .context = r->context, .tag = r->tag, .total = r->bytes };
}

/* Open sends whose envelope has come (or goes again): their grant or FIN may be lost. */
static bool next_reask(gci_pair *p, gci_packet *packet)
{
    while (p->reask) {
        gc_request *r = p->open;
        while (r && (int32_t)(r->seq - p->reask_seq) < 0)
            r = r->next;
        p->reask = r && (int32_t)(p->acked - r->seq) > 0;
        if (!p->reask)
            return false;
        p->reask_seq = r->seq + 1;
        if (r->stage != GCI_STAGE_SENT)
            continue;
        *packet = envelope_again(r, 0);
        return true;
    }
    return false;
}

static bool next_withdrawal(gci_pair *p, gci_packet *packet)
{
    if (!p->owe_withdrawal)
        return false;
    p->owe_withdrawal = false;
    for (gc_request *r = p->open; r && !p->withdrawing; r = r->next)
        if (r->withdrawn)
            p->withdrawing = r;
    if (!p->withdrawing)
        return false;
    *packet = envelope_again(p->withdrawing, GCI_FLAG_BACK);
    return true;
}

static bool next_owed(gci_p2p *p2p, gci_pair *p, gci_packet *packet)
{
    if (p->owing == 0)
        return false;
    gc_message *m = p->messages;
    while (!m->owe)
        m = m->open_next;
    *packet = (gci_packet){ .seq = m->packet.seq };
    p->owing--;
    if (m->owe & GCI_OWE_FIN) {
        packet->type = GCI_FIN;
        packet->flags = p->gave_back && m->packet.seq == p->gave_back_seq ? GCI_FLAG_BACK : 0;
        m->owe = 0;
        gci_message_free(p2p, m);
    } else {
        uint64_t limit = m->granted = message_hole(m, message_need(m));
        packet->type = GCI_GRANT;
        packet->total = m->got;
        packet->context = (uint32_t)limit;
        packet->tag = (uint32_t)(limit >> 32);
        m->owe = 0;
    }
    return true;
}

GCI size_t gci_strand_left(void *user, int peer, unsigned want)
{
    const gci_pair *p = ((gci_world *)user)->p2p->pair[peer];
    size_t left = 0;
    for (const gc_request *r = p ? p->open : NULL; r; r = r->next)
        if (r->stage == GCI_STAGE_GRANTED && chunk_may_go(p, r, want))
            left += r->limit - r->moved;
    return left;
}

static bool next_chunk(gci_pair *p, unsigned want, size_t most, gci_packet *packet, const void **payload, void **token)
{
    gc_request *r = chunk_first(p, want);
    if (!r)
        return false;
    size_t bytes = gci_min(r->limit - r->moved, most);
    *packet = (gci_packet){ .type = GCI_CHUNK, .flags = r->streams ? GCI_FLAG_STREAMS : 0, .length = (uint32_t)bytes,
                            .seq = r->seq, .context = p->recalls, .total = r->moved };
    *payload = (const uint8_t *)r->buf + r->moved;
    *token = r;
    r->moved += bytes;
    r->in_flight++;
    r->scattered |= !(want & GCI_WANT_ORDERED);
    return true;
}

/* The early grant of some posted receive. */
static bool next_early(gci_p2p *p2p, gci_pair *p, gci_packet *packet)
{
    for (int i = 0; p->owe_early && i < GCI_MATCH_BUCKETS; i++)
        for (gci_match *match = p2p->match[i]; match; match = match->next)
            for (gc_request *r = match->posted; r; r = r->next)
                if (r->early && r->peer == p->peer) {
                    r->early = false;
                    *packet = (gci_packet){ .type = GCI_ASK, .seq = r->nth, .context = r->context, .tag = r->tag,
                                            .signature = r->signature, .total = r->bytes };
                    return true;
                }
    p->owe_early = false;
    return false;
}

/* Is a message of that collective still on its way, though it has ended for its sender: what was eager once? */
static bool brings_rest(const gci_pair *p, uint32_t context, uint32_t tag)
{
    const gc_request *r = p->open;
    while (r && !(r->context == context && r->tag == tag))
        r = r->next;
    return r != NULL;
}

static bool next_state(gci_pair *p, gci_packet *packet)
{
    p->owe_over = p->owe_over && !brings_rest(p, p->over.context, p->over.tag);     /* it will be asked again */
    bool starved = p->starved && !p->starved_told, known = p->owe_known && !p->again;     /* known: what goes again goes before */
    if (!p->owe_state && !starved && !p->owe_ask && !p->owe_over && !p->owe_recall && !known)
        return false;
    *packet = p->owe_ask ? p->ask : p->owe_over ? p->over : (gci_packet){ .type = GCI_STATE };
    if (p->owe_ask) {
        p->owe_ask = false;
    } else if (p->owe_over) {
        p->owe_over = false;
    } else {
        packet->flags = (uint8_t)((p->owe_recall ? GCI_FLAG_LESS : 0) | (known ? GCI_FLAG_KNOWN : 0));
        packet->tag = p->recalls;
        packet->context = p->less_heard;
        p->owe_recall = false;
        p->owe_known &= !known;
    }
    return true;
}

/* The usual answer, found fast. */
static bool pair_is_quiet(const gci_pair *p)
{
    return p->heard && !p->queue && !p->open && !p->again && !p->reask && p->owing == 0 && !p->owe_state && !p->owe_ask &&
           !p->owe_over && !p->owe_early && !p->owe_recall && !p->owe_known && !p->starved && !p->farewell && !p->owe_resume;
}

/* What keeps its order, the most pressing first. */
static bool next_ordered(gci_p2p *p2p, gci_pair *p, size_t most, gci_packet *packet, const void **payload, void **token)
{
    if (p->owe_resume) {
        p->owe_resume = false;
        *packet = (gci_packet){ .type = GCI_STATE, .flags = GCI_FLAG_RESUME };
        return true;
    }
    if (!p->heard)
        return false;
    if (next_owed(p2p, p, packet) || next_early(p2p, p, packet) || next_again(p2p, p, most, packet, payload, token))
        return true;
    if (!p->again && (next_reask(p, packet) || next_withdrawal(p, packet) || next_envelope(p2p, p, most, packet, payload, token)))
        return true;
    return next_state(p, packet);
}

/* The last packet. Chunks may have a route of their own: it waits until all that are wanted have come. */
static bool next_farewell(gci_pair *p, gci_packet *packet, void **token)
{
    if (!p->farewell || !p->heard)
        return false;
    for (const gc_request *r = p->open; r; r = r->next)
        if (r->stage == GCI_STAGE_GRANTED)
            return false;
    p->farewell = false;
    *packet = (gci_packet){ .type = GCI_STATE, .flags = GCI_FLAG_BYE };
    *token = p;
    return true;
}

GCI bool gci_packet_next(void *user, int dest, unsigned want, size_t most, gci_packet *packet, const void **payload, void **token)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = p2p->pair[dest];
    bool ordered = want & GCI_WANT_ORDERED;
    *payload = NULL;
    *token = NULL;
    if (!p || !p->up || p->farewell_sent || pair_is_quiet(p))
        return false;
    if (!(ordered && next_ordered(p2p, p, most, packet, payload, token)) && !next_chunk(p, want, most, packet, payload, token) &&
        !(ordered && next_farewell(p, packet, token)))
        return false;
    stamp(p2p, p, ordered, packet);
    return true;
}

GCI void gci_packet_sent(void *user, int dest, enum gci_packet_type type, void *token)
{
    gci_pair *p = ((gci_world *)user)->p2p->pair[dest];
    if (type == GCI_CHUNK) {
        gc_request *r = token;
        r->in_flight--;
        gci_send_close(p, r);
    } else if (type == GCI_ENVELOPE) {
        gci_sent *s = token;
        gc_request *r = s->request;
        s->written = true;
        if (!r || p->routed)            /* a relay may lose it yet: the user's buffer is kept until it is acknowledged */
            return;
        s->request = NULL;
        s->payload = NULL;              /* the user's again */
        gci_request_done(r, GC_OK);
    } else {
        p->farewell_sent = true;
        gci_overlay_wake(((gci_world *)user)->overlay);
    }
}
