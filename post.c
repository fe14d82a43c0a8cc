/* post.c: starting messages: sends, receives, probes, and giving them up.
 * SPDX-License-Identifier: MIT
 *
 * What the rooms above call. A post either meets what is there already (a message that came before its receive, a
 * receive that waits for a message to oneself) or queues the request in its pair or its match, where p2p.c finds it.
 * A request that is given up is disowned in the link first, so that nothing is read from or written to its buffer later.
 */
#include "gridcomm_int.h"

enum { SELF_COPY_MAX = 65536 };         /* bytes: messages to oneself up to this size do not wait for their receive */

/* ---- posting -------------------------------------------------------------------------------------------------- */

static gc_request *request_make(gc_comm *comm, enum gci_request_kind kind, int peer, const gci_post *post)
{
    gc_request *r = gci_request_new(comm, kind);
    if (!r)
        return NULL;
    r->context = comm->context + post->kind;
    r->comm = post->orphan ? comm->world->self : comm;
    r->tag = post->tag;
    r->any_tag = post->any_tag;
    r->signature = post->signature;
    r->nth = post->nth;
    r->sync = post->sync;
    r->peer = peer;
    r->done_fn = post->done_fn;
    r->user = post->user;
    r->owned = !post->done_fn;
    if (r->owned)
        comm->requests++;
    return r;
}

static int send_to_self(gci_p2p *p2p, gci_pair *p, gc_request *r)
{
    gci_match *match = gci_match_of(p2p, r->context);
    gc_message *m = match ? gci_message_new(p2p) : NULL;
    bool copy = !r->sync && r->bytes <= SELF_COPY_MAX;
    if (!m)
        return GC_ERR_NOMEM;
    m->match = match;
    m->source = p->peer;
    m->come = true;
    m->packet = (gci_packet){ .type = GCI_ENVELOPE, .tag = r->tag, .context = r->context, .signature = r->signature,
                              .total = r->bytes };
    gc_request *recv = gci_match_posted(match, p->peer, r->tag);
    if (!recv && copy && r->bytes > 0) {
        m->payload = gci_alloc(p2p->env, r->bytes);
        if (!m->payload) {
            gci_message_free(p2p, m);
            return GC_ERR_NOMEM;
        }
        memcpy(m->payload, r->buf, r->bytes);
    }
    if (recv || !copy) {
        m->local = r;
        gci_message_link(p, m);         /* where the end of the world finds it */
    }
    m->packet.length = m->local ? 0 : (uint32_t)r->bytes;
    if (recv) {
        gci_message_take(p2p, m, recv);
    } else {
        gci_match_keep(match, m);
        gci_overlay_wake(p2p->world->overlay);
        if (copy)
            gci_request_done(r, GC_OK);
    }
    return GC_OK;
}

GCI int gci_send_post(gc_comm *comm, const void *buf, size_t bytes, int dest, const gci_post *post, gc_request **out)
{
    gci_world *w = comm->world;
    int peer = gci_world_rank(comm, dest), gone = gci_comm_gone(comm, dest);
    *out = NULL;
    if (gone < 0)
        return gone;
    gci_pair *p = gci_pair_of(w->p2p, peer);
    gc_request *r = p ? request_make(comm, GCI_REQUEST_SEND, peer, post) : NULL;
    if (!r)
        return GC_ERR_NOMEM;
    r->buf = (void *)(uintptr_t)buf;
    r->bytes = bytes;
    r->stage = GCI_STAGE_QUEUED;
    *out = r;
    w->stats.messages++;
    w->stats.bytes += bytes;
    if (p->far_away) {
        w->stats.wan_messages++;
        w->stats.wan_bytes += bytes;
    }
    if (peer == w->rank) {
        int err = send_to_self(w->p2p, p, r);
        if (err < 0) {
            gci_request_free(r);
            *out = NULL;
        }
        return err;
    }
    gci_queue_append(r, &p->queue_end);
    gci_push(w->p2p, p);
    return GC_OK;
}

/* The receive of a collective, or of one that is measured, knows its source and its size: it lets the chunks come before the
 * envelope is here, so that a long message costs no round trip. */
static void grant_early(gci_p2p *p2p, gc_request *r)
{
    gci_pair *p = gci_pair_of(p2p, r->peer);
    if (!p || !p->heard || r->bytes <= (p->routed ? GCI_ROUTED_MAX : GCI_PACKET_MAX))
        return;                         /* a hint, no more: without it the grant goes out when the envelope comes */
    r->early = p->owe_early = true;
    gci_push(p2p, p);
}

GCI int gci_recv_post(gc_comm *comm, void *buf, size_t bytes, int source, const gci_post *post, gc_request **out)
{
    gci_world *w = comm->world;
    gci_p2p *p2p = w->p2p;
    int peer = source == GC_ANY_SOURCE ? GC_ANY_SOURCE : gci_world_rank(comm, source);
    *out = NULL;
    if (w->aborted)
        return GC_ERR_ABORTED;
    gci_match *match = gci_match_of(p2p, comm->context + post->kind);
    gc_request *r = match ? request_make(comm, GCI_REQUEST_RECV, peer, post) : NULL;
    if (!r)
        return GC_ERR_NOMEM;
    r->buf = buf;
    r->bytes = bytes;
    *out = r;
    r->asks = post->kind == GCI_CONTEXT_COLL;
    p2p->asking += r->asks;
    gc_message *m = gci_match_come(match, r);
    if (m) {
        if (r->asks && !gci_message_suffices(m, bytes))
            gci_ask_soon(p2p);
        gci_message_take(p2p, m, r);
        return GC_OK;
    }
    int gone = gci_comm_gone(comm, source);
    if (gone < 0) {
        gci_request_free(r);
        *out = NULL;
        return gone;
    }
    gci_match_post(match, r);
    if (r->asks)
        gci_ask_soon(p2p);
    bool known = post->kind == GCI_CONTEXT_COLL || post->kind == GCI_CONTEXT_MEASURE;
    if (known && bytes > GCI_ROUTED_MAX && peer >= 0 && peer != w->rank)
        grant_early(p2p, r);
    gci_lend_all(p2p);
    return GC_OK;
}

GCI bool gci_recv_withdraw(gc_request *r)
{
    gci_p2p *p2p = r->comm->world->p2p;
    if (r->kind != GCI_REQUEST_RECV || r->done || r->message)
        return false;
    gci_match_withdraw(gci_match_of(p2p, r->context), r);
    gci_request_done(r, GC_ERR_CANCELLED);
    return true;
}

/* A message to oneself that no receive has; NULL: it has been taken (gc_mprobe). */
static gc_message *own_unexpected(gci_p2p *p2p, const gc_request *send)
{
    gc_message *m = gci_match_of(p2p, send->context)->unexpected;
    while (m && m->local != send)
        m = m->next;
    return m;
}

GCI void gci_send_withdraw(gc_request *r)
{
    gci_p2p *p2p = r->comm->world->p2p;
    gci_pair *p = p2p->pair[r->peer];
    bool own = r->peer == p2p->world->rank;
    gc_message *m = own && !r->done ? own_unexpected(p2p, r) : NULL;
    if (r->done || (own && !m))
        return;
    if (own) {
        gci_message_free(p2p, m);
    } else if (r->stage == GCI_STAGE_QUEUED) {
        gci_queue_remove(r, &p->queue_end);
    } else {
        if (r->stage == GCI_STAGE_SENT && !r->withdrawn && gci_open_send(p, r->seq) == r)
            gci_send_ask_back(p2p, p, r);
        return;                         /* else it is on its way, whole or granted */
    }
    gci_request_done(r, GC_ERR_CANCELLED);
}

static void recv_drop(gci_p2p *p2p, gc_request *r)
{
    gc_message *m = r->message;
    if (!m) {
        gci_match_withdraw(gci_match_of(p2p, r->context), r);
        return;
    }
    gci_message_disown(p2p, m);
}

static void send_drop(gci_p2p *p2p, gc_request *r)
{
    gci_pair *p = p2p->pair[r->peer];
    if (r->peer == p2p->world->rank) {
        gc_message *m = own_unexpected(p2p, r);
        if (m)
            gci_message_free(p2p, m);
        return;
    }
    if (r->stage == GCI_STAGE_QUEUED) {
        gci_queue_remove(r, &p->queue_end);
        return;
    }
    if (gci_open_send(p, r->seq) == r)
        gci_queue_remove(r, &p->open_end);
    gci_overlay_disown(p2p->world->overlay, r->peer, r);
    for (gci_sent *s = p->sent; s; s = s->next)
        if (s->packet.seq == r->seq) {
            gci_overlay_disown(p2p->world->overlay, r->peer, s);
            s->written = true;          /* as far as this record goes */
            s->request = NULL;
            s->payload = NULL;
            s->withdrawn = true;
        }
}

GCI bool gci_send_is_queued(const gc_request *r)
{
    return r->kind == GCI_REQUEST_SEND && r->peer != r->comm->world->rank && r->stage == GCI_STAGE_QUEUED && !r->done;
}

GCI void gci_request_drop(gc_request *r)
{
    gci_p2p *p2p = r->comm->world->p2p;
    if (r->kind == GCI_REQUEST_RECV)
        recv_drop(p2p, r);
    else
        send_drop(p2p, r);
    gci_request_free(r);
}

/* ---- looking at what has come --------------------------------------------------------------------------------- */

GCI gc_message *gci_unexpected_find(gc_comm *comm, int source, int tag, gc_status *status)
{
    gci_p2p *p2p = comm->world->p2p;
    gc_request want = { .peer = source == GC_ANY_SOURCE ? GC_ANY_SOURCE : gci_world_rank(comm, source),
                        .any_tag = tag == GC_ANY_TAG, .tag = (uint32_t)tag };
    gci_match *match = gci_match_of(p2p, comm->context + GCI_CONTEXT_P2P);
    gc_message *m = match ? gci_match_come(match, &want) : NULL;
    if (!m) {
        gci_lend_all(p2p);
        return NULL;
    }
    *status = (gc_status){ .source = gci_comm_rank(comm, m->source), .tag = (int)m->packet.tag, .fault_rank = -1,
                           .bytes = (size_t)m->packet.total };
    return m;
}

GCI void gci_unexpected_take(gc_message *m)
{
    gci_match_forget(m);
    m->taken = true;
    m->match->comm->requests++;         /* the user holds it */
}

GCI void gci_probing(gci_world *w, int more)
{
    w->p2p->probes += more;
}

GCI gc_comm *gci_message_comm(const gc_message *m)
{
    return m->match->comm;
}

GCI int gci_message_recv(gc_message *m, void *buf, size_t bytes, const gci_post *post, gc_request **out)
{
    gc_comm *comm = m->match->comm;
    gci_world *w = comm->world;
    gc_request *r = request_make(comm, GCI_REQUEST_RECV, m->source, post);
    *out = r;
    if (!r)
        return GC_ERR_NOMEM;
    comm->requests--;
    r->buf = buf;
    r->bytes = bytes;
    m->taken = false;
    if (m->lost == GC_OK) {
        gci_message_take(w->p2p, m, r);
        return GC_OK;
    }
    int fault = m->lost == GC_ERR_ABORTED ? w->abort_origin : m->source;
    gci_request_fail(r, m->lost, fault, "the rest of the message was lost with its sender");
    gci_message_free(w->p2p, m);
    return GC_OK;
}

GCI int gci_unexpected_signature(gc_comm *comm, uint32_t seq, uint32_t mine, uint32_t *theirs, int *source_world_rank)
{
    gci_match *match = gci_match_of(comm->world->p2p, comm->context + GCI_CONTEXT_COLL);
    for (gc_message *m = match ? match->unexpected : NULL; m; m = m->next)
        if (m->packet.tag == seq && !gci_signature_fits(m->packet.signature, mine)) {
            *theirs = m->packet.signature;
            *source_world_rank = m->source;
            return 1;
        }
    return 0;
}

GCI void gci_unexpected_past(gc_comm *comm)
{
    gci_p2p *p2p = comm->world->p2p;
    gci_match *match = gci_match_find(p2p->match, comm->context + GCI_CONTEXT_SHRINK);
    for (gc_message *m = match ? match->unexpected : NULL, *next; m; m = next) {
        next = m->next;
        if (!gci_comm_past(comm, match->context, m->packet.tag))
            continue;
        gci_message_drop(p2p, m);
        next = match->unexpected;       /* what that pushed may have changed the list */
    }
}

static void unexpected_drop(gci_p2p *p2p, const gci_match *match)
{
    while (match->unexpected)
        gci_message_drop(p2p, match->unexpected);
}

GCI void gci_unexpected_drop(gc_comm *comm, uint32_t kind)
{
    gci_p2p *p2p = comm->world->p2p;
    const gci_match *match = gci_match_find(p2p->match, comm->context + kind);
    if (match)
        unexpected_drop(p2p, match);
}

GCI void gci_match_drop(gci_p2p *p2p, gci_match *match)
{
    unexpected_drop(p2p, match);
    p2p->last_match = NULL;
    for (int peer = 0; peer < p2p->world->ranks; peer++)
        for (gc_message *m = p2p->pair[peer] ? p2p->pair[peer]->messages : NULL; m; m = m->open_next)
            if (m->match == match)
                m->match = NULL;
    gci_match_end(p2p->env, p2p->match, match);
}

GCI void gci_comm_drop_messages(gc_comm *comm)
{
    gci_p2p *p2p = comm->world->p2p;
    for (uint32_t kind = 0; kind < GCI_CONTEXT_KINDS; kind++) {
        gci_match *match = gci_match_find(p2p->match, comm->context + kind);
        if (match)
            gci_match_drop(p2p, match);
    }
    gci_context_close(p2p, comm->context);
}
