/* peers.c: peers that come and go: ways up and down, the dead, the given up and the aborted, farewells.
 * SPDX-License-Identifier: MIT
 *
 * p2p.c carries on a pair's exchange as long as there is a way to the peer. Here is what happens to pairs when that
 * changes, and the life of both rooms.
 *
 * Invariants:
 *  - A way that ends voids all that was handed to it. What the pair knows (envelopes not acknowledged, sends without
 *    their FIN, what is owed) is enough to go on, whatever the next way is.
 *  - Every verdict on a peer ends in peer_lost, once: each request that needs it fails, each of its communicators has it
 *    among its dead, the way is cut. What had come whole may still be received.
 *  - A verdict stands, whoever said it and whatever has become of that rank: so all ranks agree in the end on who is dead.
 *  - A rank gives a peer up on its own only if that broke the rules, if there is neither link nor route, or if what a link
 *    within the host lost was not kept; it tells everybody, so that nobody waits for what will not come. If it is memory that it
 *    lacks for too long it gives itself up: nobody else is at fault.
 *  - A BYE is the last word of a rank all of whose requests are complete: it needs nothing more, whatever ways come later.
 */
#include "gridcomm_int.h"

enum {
    ASK_DOUBLES = 7,                    /* from ASK_FIRST to beyond ASK_LAST */
    WINDOW_FIRST = 256 << 10,           /* bytes lent to a peer at first, at most: some messages, so that not each is answered; */
    WINDOW_LEAST = 4096                 /* and at least */
};
#define QUIET_PAUSE (1 * (int64_t)GCI_NS_PER_MS)    /* between two looks whether a peer is quiet */
#define ASK_FIRST (100 * (int64_t)GCI_NS_PER_MS)    /* a collective receive asks its peer after this, at most twice this, ... */
#define ASK_LAST  (10 * GCI_SECOND)                 /* ... doubling up to this */

/* ---- ways come and go ----------------------------------------------------------------------------------------- */

static bool pair_busy(const gci_pair *p)
{
    return p->queue || p->open || p->sent || p->messages || p->incoming;
}

/* May a receive need this peer? What it would take perhaps waits there, for a RESUME or a credit that a way has lost: the peer,
 * whose kernel owes nothing, believes in that way until it hears of the next one. */
static bool waited_for(const gci_p2p *p2p, int peer)
{
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (const gci_match *match = p2p->match[i]; match; match = match->next)
            for (const gc_request *r = match->posted; r; r = r->next)
                if (r->peer == peer || (r->peer == GC_ANY_SOURCE && gci_comm_rank(r->comm, peer) >= 0))
                    return true;
    return false;
}

static void on_end(void *user, int peer, const gci_packet *packet, void *token)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = p2p->pair[peer];
    if (!gci_packet_end(p2p, p, packet, token))
        gci_give_up(p2p, peer, GC_ERR_PEER, "a link within the host was lost with data that was not kept");
}

static void on_way_up(void *user, int peer, bool routed)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = gci_pair_of(p2p, peer);
    if (!p || p2p->world->dead[peer])
        return;                         /* the first packet will end the way */
    p->up = p->owe_resume = true;
    p->owe_recall = p->recalled;
    p->routed = routed;
    p->heard = p->farewell_sent = false;
    p->farewell = p2p->leaving;
}

/* Open sends whose chunks were under way: the receiver knows how much has come, and grants anew. */
static void sends_interrupted(gci_pair *p)
{
    for (gc_request *r = p->open; r; r = r->next) {
        r->in_flight = 0;
        r->early = true;
        r->streams = false;
        if (r->stage == GCI_STAGE_GRANTED)
            r->stage = GCI_STAGE_SENT;
    }
    for (gc_request *r = p->open; r;)
        if (r->stage == GCI_STAGE_FINISHED) {
            gci_send_close(p, r);
            r = p->open;                /* its callback may have changed the list */
        } else {
            r = r->next;
        }
}

/* What a strand had may be lost. Its sends ask how much has come; those whose envelope is not known to have come used none. */
static void on_strand_down(void *user, int peer)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_pair *p = p2p->pair[peer];
    if (!p || !p->up)
        return;
    for (gc_request *r = p->open; r; r = r->next)
        if (r->scattered && r->stage == GCI_STAGE_GRANTED) {
            r->stage = GCI_STAGE_SENT;
            r->early = true;
            r->streams = false;
            p->reask_seq = p->reask && (int32_t)(p->reask_seq - r->seq) < 0 ? p->reask_seq : r->seq;
            p->reask = true;
        }
    gci_push(p2p, p);                   /* others take what was left to it */
}

static void on_way_down(void *user, int peer, bool broke_rules)
{
    gci_world *w = user;
    gci_pair *p = w->p2p->pair[peer];
    if (!p)
        return;
    p->up = p->heard = false;
    p->again = NULL;
    p->owe_ask = p->owe_over = p->owe_recall = p->owe_known = p->reask = p->owe_withdrawal = false;
    sends_interrupted(p);
    for (gci_sent *s = p->sent; s; s = s->next) {
        s->written = false;
        s->packet.flags &= (uint8_t)~GCI_FLAG_STREAMS;
    }
    if (w->p2p->leaving)
        gci_overlay_wake(w->overlay);   /* there may be nobody left to say farewell to */
    if (w->dead[peer])
        return;
    if (broke_rules)                    /* it would do so again */
        gci_give_up(w->p2p, peer, GC_ERR_PROTOCOL, "it sent a packet that breaks the rules");
    else if ((pair_busy(p) || waited_for(w->p2p, peer)) && !p->bye)
        gci_push(w->p2p, p);
}

/* ---- peers that are gone -------------------------------------------------------------------------------------- */

static void fail_posted(gci_match *match, int peer, int fault, int code, const char *why)
{
    for (gc_request *r = match->posted, *next; r; r = next) {
        next = r->next;
        if (peer >= 0 && r->peer != peer && (r->peer != GC_ANY_SOURCE || gci_comm_rank(r->comm, peer) < 0))
            continue;
        gci_match_withdraw(match, r);
        gci_request_fail(r, code, fault, "%s", why);
        next = match->posted;           /* the callback may have changed the list */
    }
}

static void fail_sends(gc_request **queue, gc_request ***end, int peer, int code, const char *why)
{
    while (*queue) {
        gc_request *r = *queue;
        gci_queue_remove(r, end);
        gci_request_fail(r, code, peer, "%s", why);
    }
}

static void fail_sent(gci_p2p *p2p, gci_pair *p, int fault, int code, const char *why)
{
    p->again = NULL;
    while (p->sent) {
        gci_sent *s = p->sent;
        p->sent = s->next;
        gc_request *r = s->request;
        gci_sent_free(p2p, s);
        if (r)
            gci_request_fail(r, code, fault, "%s", why);
    }
    p->sent_end = &p->sent;
    p->sent_bytes = 0;
}

/* What came whole may still be received; and of what the user holds (gc_mprobe) may at least be asked. */
static void fail_messages(gci_p2p *p2p, gci_pair *p, int fault, int code, const char *why)
{
    p->incoming = NULL;
    while (p->messages) {
        gc_message *m = p->messages;
        gc_request *r = m->recv ? m->recv : m->local;
        bool whole = m->come && !m->local && m->packet.total == m->packet.length;
        gci_message_unlink(m);
        m->local = NULL;
        if ((m->queued && whole) || m->taken)
            m->lost = whole ? GC_OK : code;
        else
            gci_message_free(p2p, m);
        if (r) {
            r->message = NULL;
            gci_request_fail(r, code, fault, "%s", why);
        }
    }
}

/* Nothing goes to or comes from this peer any more. */
static void pair_end(gci_p2p *p2p, gci_pair *p, int fault, int code, const char *why)
{
    p2p->starving -= p->peer_starved;
    p->peer_starved = false;
    p->withdrawing = NULL;
    p->owe_withdrawal = false;
    fail_sends(&p->queue, &p->queue_end, fault, code, why);
    fail_sends(&p->open, &p->open_end, fault, code, why);
    fail_sent(p2p, p, fault, code, why);
    fail_messages(p2p, p, fault, code, why);
}

/* There may be no pair: what nobody needed before may be needed by a collective, and the news must not want memory. */
static void peer_ends(gci_p2p *p2p, int peer, enum gci_fate gone, int fault, int code, const char *why)
{
    gci_world *w = p2p->world;
    w->dead[peer] = (uint8_t)gone;
    for (gc_comm *comm = w->comms; comm; comm = comm->next) {
        int rank = gci_comm_rank(comm, peer);
        if (rank < 0)
            continue;
        if (comm->dead++ == 0)
            comm->first_dead = rank;
        p2p->up.fail(comm, code, fault, why);
        gci_unexpected_drop(comm, GCI_CONTEXT_COLL);    /* of collectives that never begin here now: they have credits */
    }
    gci_overlay_cut(w->overlay, peer);
    if (p2p->pair[peer])
        pair_end(p2p, p2p->pair[peer], fault, code, why);
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (gci_match *match = p2p->match[i]; match; match = match->next)
            fail_posted(match, peer, fault, code, why);
    gci_overlay_wake(w->overlay);
}

/* If this rank is taken for dead itself nobody speaks to it any more: so all others are gone for it, and what it waits for ends. It
 * has no word on them either, since they do not answer the dead. */
static void peer_lost(gci_p2p *p2p, int peer, enum gci_fate gone, int code, const char *why)
{
    gci_world *w = p2p->world;
    peer_ends(p2p, peer, gone, peer, code, why);
    for (int i = 0; peer == w->rank && i < w->ranks; i++)
        if (!w->dead[i])
            peer_ends(p2p, i, gone, peer, code, why);
}

static void given_up_text(char text[GCI_TEXT], int by, int rank, const char *why)
{
    if (by == rank)
        snprintf(text, GCI_TEXT, "rank %d gave itself up: %.*s", rank, GCI_TEXT - 64, why);
    else
        snprintf(text, GCI_TEXT, "rank %d gave rank %d up: %.*s", by, rank, GCI_TEXT - 64, why);
}

/* A verdict of this rank alone, on a peer that may live, or on itself: everybody is told, the peer too, so that nobody waits for
 * what will not come. */
GCI void gci_give_up(gci_p2p *p2p, int peer, int code, const char *why)
{
    gci_world *w = p2p->world;
    gci_notice notice = { .kind = GCI_NOTICE_LOST, .origin = (uint32_t)w->rank, .word = { (uint32_t)peer, (uint32_t)-code } };
    char text[GCI_TEXT];
    if (w->dead[peer])
        return;
    given_up_text(text, w->rank, peer, why);
    if (w->control)
        (void)gci_control_notify(w->control, &notice);      /* a verdict finds room */
    peer_lost(p2p, peer, code == GC_ERR_UNREACHABLE ? GCI_GONE_UNREACHABLE : code == GC_ERR_NOMEM ? GCI_GONE_STARVED
                         : GCI_GONE_DEAD, code, text);
}

/* It stands even if its origin is dead by now: what counted would depend on what was heard first, and the survivors would differ. */
static void given_up(gci_world *w, const gci_notice *notice)
{
    uint32_t rank = notice->word[0], why = notice->word[1];
    char text[GCI_TEXT];
    if (rank >= (uint32_t)w->ranks || w->dead[rank])
        return;
    given_up_text(text, (int)notice->origin, (int)rank, gc_strerror(why <= INT32_MAX ? -(int)why : INT32_MIN));
    peer_lost(w->p2p, (int)rank, GCI_GONE_DEAD, GC_ERR_PEER, text);
}

static void all_aborted(gci_p2p *p2p, int origin, int code)
{
    gci_world *w = p2p->world;
    char why[GCI_TEXT];
    if (w->aborted)
        return;
    w->aborted = 1;
    w->abort_origin = origin;
    w->abort_code = code;
    snprintf(why, sizeof why, "rank %d called gc_abort with code %d", origin, code);
    gci_log(p2p->env, GC_LOG_ERROR, "%s", why);
    for (gc_comm *comm = w->comms; comm; comm = comm->next)
        p2p->up.fail(comm, GC_ERR_ABORTED, origin, why);
    for (int i = 0; i < w->ranks; i++)
        if (p2p->pair[i]) {
            gci_overlay_cut(w->overlay, i);
            pair_end(p2p, p2p->pair[i], origin, GC_ERR_ABORTED, why);
        }
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (gci_match *match = p2p->match[i]; match; match = match->next)
            fail_posted(match, -1, origin, GC_ERR_ABORTED, why);
    gci_overlay_wake(w->overlay);
}

static void on_news(void *user, const gci_news *news)
{
    gci_world *w = user;
    if (news->kind == GCI_NEWS_NOTICE) {
        if (news->notice.kind == GCI_NOTICE_ABORT)
            all_aborted(w->p2p, (int)news->notice.origin, (int32_t)news->notice.word[0]);
        else if (news->notice.kind == GCI_NOTICE_LOST)
            given_up(w, &news->notice);
        else
            w->p2p->up.notice(w, &news->notice);
        return;
    }
    if (w->dead[news->rank])
        return;
    /* All have been in the last barrier only if this rank has: who says so before is wrong, and nothing ends well for its sake. */
    w->through |= w->ending && news->kind == GCI_NEWS_LEFT && news->code == GC_OK;
    if (news->kind == GCI_NEWS_DEAD)
        peer_lost(w->p2p, news->rank, GCI_GONE_DEAD, GC_ERR_PEER, news->text);
    else if (news->kind == GCI_NEWS_LEFT)
        peer_lost(w->p2p, news->rank, GCI_GONE_LEFT, GC_ERR_PEER, news->text);
    else if (news->kind == GCI_NEWS_NO_LINK)
        gci_give_up(w->p2p, news->rank, news->code, news->text);
}

GCI void gci_ask_soon(gci_p2p *p2p)
{
    bool far = p2p->ask_far;
    p2p->ask_soon = true;
    p2p->ask_far = false;
    if (far || p2p->asking == 1)
        gci_overlay_wake(p2p->world->overlay);      /* who sleeps there knows of no time to ask, or of a late one */
}

/* Of the collective receives whose time it is, that asks which has waited longest: there is one question at a time for each peer.
 * Returns when to look again. */
static int64_t ask_wanted(gci_p2p *p2p, gc_request *r, int64_t now)
{
    gci_pair *p = p2p->pair[r->peer];
    if (r->ask_at == 0)
        r->ask_at = now + ASK_FIRST;
    if (now < r->ask_at)
        return r->ask_at;
    if (!p)
        p = gci_pair_of(p2p, r->peer);
    if (p && !p->owe_ask && (!p->asker || r->ask_at < p->asker->ask_at))
        p->asker = r;
    return now + ASK_FIRST;
}

/* It asks for all that wait for the same collective of that peer. Returns when to look again. */
static int64_t ask_taken(gci_p2p *p2p, gc_request *r, int64_t now)
{
    const gci_pair *p = p2p->pair[r->peer];
    const gc_request *asker = p ? p->asker : NULL;
    if (now < r->ask_at)
        return r->ask_at;
    if (!asker || asker->context != r->context || asker->tag != r->tag)
        return now + ASK_FIRST;
    r->asked += r->asked < ASK_DOUBLES;
    r->ask_at = now + gci_min64(ASK_FIRST << r->asked, ASK_LAST);
    return r->ask_at;
}

static void ask_owed(gci_pair *p)
{
    const gc_request *r = p->asker;
    p->asker = NULL;
    p->owe_ask = true;
    p->ask = (gci_packet){ .type = GCI_ASK, .context = r->context, .tag = r->tag, .signature = r->signature };
}

/* Each collective receive that waits for another rank: posted, or for the rest of its message. */
static int64_t asks_each(gci_p2p *p2p, int64_t now, int64_t (*each)(gci_p2p *, gc_request *, int64_t now))
{
    int64_t next = GCI_FOREVER;
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (gci_match *match = p2p->match[i]; match; match = match->next)
            for (gc_request *r = match->posted; r; r = r->next)
                if (r->asks && r->peer != p2p->world->rank)
                    next = gci_min64(next, each(p2p, r, now));
    for (int i = 0; i < p2p->world->ranks; i++)
        for (gc_message *m = p2p->pair[i] ? p2p->pair[i]->messages : NULL; m; m = m->open_next)
            if (m->recv && m->recv->asks)
                next = gci_min64(next, each(p2p, m->recv, now));
    return next;
}

/* Collective receives that have waited long ask their peers whether they are in the same collective at all. Whatever else goes on
 * meanwhile: it may be another collective. */
static int64_t asks_due(gci_p2p *p2p, int64_t now)
{
    if (p2p->asking == 0) {
        p2p->ask_at = GCI_FOREVER;
        return GCI_FOREVER;
    }
    if (!p2p->ask_soon && now < p2p->ask_at)
        return p2p->ask_at;
    if (now >= p2p->ask_at) {
        (void)asks_each(p2p, now, ask_wanted);
        p2p->ask_at = asks_each(p2p, now, ask_taken);
        for (int i = 0; i < p2p->world->ranks; i++)
            if (p2p->pair[i] && p2p->pair[i]->asker)
                ask_owed(p2p->pair[i]);
        for (int i = 0; i < p2p->world->ranks; i++)
            if (p2p->pair[i] && p2p->pair[i]->owe_ask)
                gci_push(p2p, p2p->pair[i]);        /* which may end any receive */
    }
    if (p2p->ask_soon)                  /* also since what went made room for more */
        p2p->ask_at = gci_min64(p2p->ask_at, now + ASK_FIRST);
    p2p->ask_soon = false;
    p2p->ask_far = p2p->ask_at > now + ASK_FIRST;
    return p2p->ask_at;
}

/* Envelopes that could not go again for lack of memory. */
static int64_t memory_due(gci_p2p *p2p, int64_t now)
{
    if (!p2p->short_of_memory)
        return GCI_FOREVER;
    if (p2p->memory_at == 0)
        p2p->memory_at = now + GCI_MEMORY_PAUSE;
    if (now < p2p->memory_at)
        return p2p->memory_at;
    p2p->short_of_memory = false;
    p2p->memory_at = 0;
    for (int i = 0; i < p2p->world->ranks; i++)
        if (p2p->pair[i] && p2p->pair[i]->again)
            gci_push(p2p, p2p->pair[i]);
    if (!p2p->short_of_memory)
        return GCI_FOREVER;
    p2p->memory_at = now + GCI_MEMORY_PAUSE;
    return p2p->memory_at;
}

/* The peer is told if it is quiet. Returns whether to look again. */
static bool credit_look(gci_p2p *p2p, gci_pair *p)
{
    if (p->untold == 0 || p->incoming)      /* the message that is coming calls for the next look */
        return false;
    if (--p->untold == 0 && p->up) {
        p->owe_state = true;
        gci_push(p2p, p);
    }
    return p->untold > 0;
}

/* Peers whose last burst of messages is over may be told what room there is again. */
static int64_t credit_due(gci_p2p *p2p, int64_t now)
{
    if (!p2p->untold)
        return GCI_FOREVER;
    if (now < p2p->quiet_at)
        return p2p->quiet_at;
    p2p->untold = false;
    for (int i = 0; i < p2p->world->ranks; i++)
        if (p2p->pair[i] && credit_look(p2p, p2p->pair[i]))
            p2p->untold = true;
    p2p->quiet_at = now + QUIET_PAUSE;
    return p2p->untold ? p2p->quiet_at : GCI_FOREVER;
}

static int64_t on_tick(void *user, int64_t now)
{
    gci_p2p *p2p = ((gci_world *)user)->p2p;
    gci_world *w = p2p->world;
    int64_t memory = memory_due(p2p, now), asks = asks_due(p2p, now), stall = w->stall ? w->stall_look(w, now) : GCI_FOREVER;
    int64_t credit = credit_due(p2p, now);
    return gci_min64(gci_min64(memory, asks), gci_min64(credit, stall));
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static const gci_upcalls p2p_upcalls = { gci_packet_next, gci_packet_sent, gci_packet_begin, on_end, on_way_up, on_way_down,
                                         on_news, on_tick, gci_strand_begin, on_strand_down, gci_strand_left };

GCI int gci_p2p_open(gci_world *w, const gci_p2p_upcalls *up)
{
    gci_p2p *p2p = gci_alloc(&w->env, sizeof *p2p);
    if (!p2p)
        return GC_ERR_NOMEM;
    w->p2p = p2p;
    p2p->world = w;
    p2p->env = &w->env;
    p2p->up = *up;
    p2p->ask_at = GCI_FOREVER;
    p2p->credits = (uint32_t)w->options.credits;
    size_t budget = w->options.eager_budget, share = budget / 4 / (size_t)w->ranks;
    p2p->room_first = share > WINDOW_FIRST ? WINDOW_FIRST : share < WINDOW_LEAST ? WINDOW_LEAST : share;
    size_t first = p2p->room_first * (size_t)w->ranks;
    p2p->room_even = p2p->room_all = p2p->room_left = budget > first ? budget - first : 0;
    p2p->pair = gci_alloc(&w->env, (size_t)w->ranks * sizeof(gci_pair *));
    if (!p2p->pair)
        return GC_ERR_NOMEM;
    return gci_overlay_open(&w->overlay, &w->env, w->monitor, w->rank, w->ranks, &w->options, &p2p_upcalls, w,
                            &w->stats);
}

static bool farewells_said(void *arg)
{
    gci_world *w = arg;
    for (int i = 0; i < w->ranks; i++) {
        const gci_pair *p = w->p2p->pair[i];
        if (!p || w->dead[i] || (p->up && p->farewell_sent && p->bye))
            continue;
        if (p->up || (p->sent && !p->bye))
            return false;
    }
    return true;
}

GCI void gci_p2p_farewell(gci_world *w, int64_t deadline)
{
    w->p2p->leaving = true;
    for (int i = 0; i < w->ranks; i++) {
        gci_pair *p = w->p2p->pair[i];
        if (p && p->up && !w->dead[i]) {
            p->farewell = true;
            gci_push(w->p2p, p);
        }
    }
    gci_world_wait(w, &(gci_caller){ .call = "gc_finalize" }, farewells_said, w, NULL, deadline);
}

static void pair_free(gci_p2p *p2p, gci_pair *p)
{
    static const char closed[] = "the world was closed";
    p->up = false;                      /* the overlay is closed */
    gci_own_sends_end(p2p, p);
    fail_sends(&p->queue, &p->queue_end, -1, GC_ERR_CANCELLED, closed);    /* of shrinks: nobody else's are left */
    fail_sends(&p->open, &p->open_end, -1, GC_ERR_CANCELLED, closed);
    for (gci_sent *s = p->sent, *next; s; s = next) {
        next = s->next;
        if (s->request)
            gci_request_fail(s->request, GC_ERR_CANCELLED, -1, "%s", closed);
        gci_free(p2p->env, s);
    }
    while (p->messages)
        gci_message_free(p2p, p->messages);
    gci_free(p2p->env, p);
}

GCI void gci_p2p_close(gci_world *w)
{
    gci_p2p *p2p = w->p2p;
    if (w->overlay)
        gci_overlay_close(w->overlay);
    w->overlay = NULL;
    if (!p2p)
        return;
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (gci_match *match = p2p->match[i], *next; match; match = next) {
            next = match->next;
            while (match->unexpected)
                gci_message_free(p2p, match->unexpected);
            gci_free(p2p->env, match);
        }
    for (int i = 0; p2p->pair && i < w->ranks; i++)
        if (p2p->pair[i])
            pair_free(p2p, p2p->pair[i]);
    for (gc_message *m = p2p->spare_messages, *next; m; m = next) {
        next = m->next;
        gci_free(p2p->env, m);
    }
    for (gci_sent *s = p2p->spare_sent, *next; s; s = next) {
        next = s->next;
        gci_free(p2p->env, s);
    }
    gci_free(p2p->env, p2p->pair);
    gci_free(p2p->env, p2p->closed);
    gci_free(p2p->env, p2p);
    w->p2p = NULL;
}
