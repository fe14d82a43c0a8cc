/* overlay.c: ways to peers: links of their own and routes, epochs, and what control's news mean for them.
 * SPDX-License-Identifier: MIT
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
    ERRANDS_PER_TURN = 16,
    EVENTS = 64,
    HOT_AFTER = 64,                     /* waits that polling one socket has ended, one after another */
    LOST_MAX = 3,                       /* links of a pair's own lost, after which it stays on the route */
    OFFENCES_MAX = 3,                   /* connections to a neighbour that broke the rules on each */
    FAILURES_MAX = 3,                   /* of control to connect to a neighbour, one after another: that link is down; */
    FAILURES_END = 2 * FAILURES_MAX     /* or, if even that cannot be had, the pair gives up */
};
#define OVERLAY_PAUSE    (10 * (int64_t)GCI_NS_PER_MS)      /* between two epochs asked for */
#define OVERLAY_AGAIN    (100 * (int64_t)GCI_NS_PER_MS)     /* before a backbone link is asked for once more */
#define OVERLAY_PATIENCE (300 * (int64_t)GCI_NS_PER_MS)     /* for a link of the pair's own, before the route begins */
#define OVERLAY_HIGHER   (200 * (int64_t)GCI_NS_PER_MS)     /* of the higher rank: the lower asks for the restart first */
#define OVERLAY_VERDICT  (2 * GCI_SECOND)                   /* beyond peer_timeout, for control to say whether it is dead */
#define OVERLAY_DOUBT    (3 * GCI_SECOND)                   /* a loss that no news has come of */
#define OVERLAY_HUNGER   (1 * GCI_SECOND)                   /* without memory for a way or what it brings: this rank gives itself up */
#define OVERLAY_FED      (5 * GCI_SECOND)                   /* memory that has not failed for so long was there meanwhile */
#define OVERLAY_LISTEN   (1 * GCI_SECOND)                   /* between looks at links that spoke: a system call each */
#define OVERLAY_LISTEN_ALL (5 * GCI_SECOND)                 /* and at those that did not: keepalive speaks for them */
static const uint64_t overlay_waker_tag = UINT64_MAX;

/* ---- the driver's errands, and the clock ---------------------------------------------------------------------- */

/* In the poller sleeps who has to be told what is new: the driver or, while there is none, the I/O thread. */
static bool sleeps(const gci_overlay *o) { return o->asleep || (o->thread_asleep && !o->driving); }

/* Whoever sleeps in a poller of his own is to look. Once, until he has. */
GCI void gci_overlay_ring(gci_overlay *o)
{
    if (o->outer < 0 || o->rung)
        return;
    o->sys->wake(o->sys, o->bell);
    o->rung = true;
}

GCI void gci_overlay_wake(gci_overlay *o)
{
    if (o->waiters > 0)
        o->sys->notify(o->sys, o->monitor);
    o->next_tick = 0;                   /* what has changed may want to be timed */
    if (sleeps(o))
        o->sys->wake(o->sys, o->waker);
    gci_overlay_ring(o);
}

GCI void gci_overlay_errand(gci_overlay *o)
{
    bool news = !o->errands;
    o->errands = true;
    if (news && !o->inside)
        gci_overlay_wake(o);
}

GCI void gci_overlay_alarm(gci_overlay *o, int64_t at)
{
    if (at >= o->alarm)
        return;
    o->alarm = at;
    if (at < o->next_tick)
        o->next_tick = at;
    if (!o->inside || sleeps(o))        /* perhaps beyond it */
        gci_overlay_wake(o);
}

static int64_t after(gci_overlay *o, int64_t ns) { return o->sys->now(o->sys) + ns; }

/* Memory has failed. true: for so long now, without a success of the same kind, that nothing is waited for any more. */
static bool hunger(gci_overlay *o, gci_hunger *h)
{
    int64_t now = o->sys->now(o->sys);
    if (h->since == 0 || now - h->at > OVERLAY_FED)
        h->since = now;
    h->at = now;
    return now - h->since > OVERLAY_HUNGER;
}

/* Has control been asked? */
static bool ask_went(gci_overlay *o, int err)
{
    if (err == GC_ERR_NOMEM)
        o->asks_starve |= hunger(o, &o->asks);
    else
        o->asks.since = 0;
    return err == GC_OK;
}

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
        o->owes_restart = o->control && !ask_went(o, gci_control_restart(o->control));
        o->restart_at = now + OVERLAY_PAUSE;
    }
    if (o->owes_restart)
        gci_overlay_alarm(o, o->restart_at);
}

GCI void gci_overlay_ask(gci_overlay *o, int peer, int kind)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (p->asked[kind] || !o->control)
        return;
    p->asked[kind] = ask_went(o, gci_control_connect(o->control, kind == GCI_OWN ? GCI_PURPOSE_DATA : GCI_PURPOSE_BACKBONE, peer,
                                                  p->seen[kind]));
    if (!p->asked[kind]) {
        p->unasked[kind] = o->unasked = true;
        gci_overlay_alarm(o, after(o, GCI_MEMORY_PAUSE));
    }
}

/* ---- links of a pair's own ---------------------------------------------------------------------------------------- */

/* So many links of one's own, and others' are refused. */
GCI void gci_owns_review(gci_overlay *o)
{
    bool full = !o->direct || (o->max_owns > 0 && o->owns >= o->max_owns);
    if (full != o->full && o->control) {
        o->full = full;
        gci_control_full(o->control, full);
    }
}

static void own_free(gci_overlay *o, gci_link *link)
{
    o->peer[link->peer].own = NULL;
    o->owns--;
    gci_link_close(o, link);
    gci_free(o->env, link);
    gci_owns_review(o);
}

/* ---- routes --------------------------------------------------------------------------------------------------- */

/* Takes over what has been added to the backbone since, and what of that is down again. What is not agreed yet is of the next epoch,
 * which is about to be heard of. false: out of memory. */
static bool graph_grow(gci_overlay *o)
{
    gci_edge e;
    o->grown = o->graph.nodes == 0;     /* there is none yet */
    for (int i = 0; !o->grown && gci_control_rescued(o->control, i, &e); i++)
        o->grown = gci_graph_add(o->env, &o->graph, &e) < 0;
    for (int i = 0; i < o->ranks; i++)
        for (int k = 0; o->peer[i].gone && k < o->graph.edges; k++)
            if (o->graph.edge[k].a == i || o->graph.edge[k].b == i)
                memset(o->graph.edge[k].cost, 0, sizeof o->graph.edge[k].cost);
    o->stale = o->graph.nodes > 0 && !o->given;
    return !o->grown;
}

/* The first numbering, as long as no link was added and every pair that is left has a path under it; else a fresh one of what
 * there is. So it depends on what has been lost and added, and not on the order in which ranks heard of it. */
static int numbering_choose(gci_overlay *o)
{
    const gci_topo *topo = gci_control_topo(o->control);
    gci_numbering fresh;
    int err = GC_OK;
    if (!o->first.number)
        err = gci_number(o->env, gci_control_graph(o->control), topo, o->routing, &o->first);
    if (err < 0)
        return err;
    if (o->grown && !graph_grow(o))
        return GC_ERR_NOMEM;
    int32_t *scratch = gci_alloc(o->env, 3 * (size_t)o->graph.nodes * sizeof *scratch);
    if (!scratch)
        return GC_ERR_NOMEM;
    bool holds = o->graph.edges == gci_control_graph(o->control)->edges && gci_numbering_holds(&o->graph, &o->first, scratch);
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
GCI const gci_routes *gci_overlay_tables(gci_overlay *o)
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
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop)
        gci_hop_place(o, hop);
    return &o->routes;
}

GCI void gci_overlay_use_routes(gci_overlay *o, gci_routes *routes)
{
    gci_routes_free(o->env, &o->routes);
    o->routes = *routes;
    *routes = (gci_routes){ .nodes = 0 };
    o->given = true;
    o->stale = false;
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop)
        gci_hop_place(o, hop);
}

GCI const gci_routes *gci_overlay_routes(gci_overlay *o, uint16_t *epoch, const gci_numbering **numbering)
{
    const gci_routes *routes = gci_overlay_tables(o);
    if (epoch)
        *epoch = o->epoch;
    if (numbering)
        *numbering = o->given ? NULL : o->numbering;
    return routes;
}

/* ---- ways ----------------------------------------------------------------------------------------------------- */

static bool own_is_possible(const gci_overlay *o, int peer)
{
    const gci_overlay_peer *p = &o->peer[peer];
    if (!o->control || !o->direct || p->refused || (o->max_owns > 0 && o->owns >= o->max_owns))
        return false;
    return !o->unreachable || !o->unreachable[gci_control_table(o->control)->card[peer].host];
}

/* GC_ERR_UNREACHABLE: there is none; GC_ERR_PENDING: not in this epoch; GC_ERR_NOMEM. */
static int route_begin(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (p->was_routed) {
        restart_ask(o);
        return GC_ERR_PENDING;
    }
    const gci_routes *r = gci_overlay_tables(o);
    if (!r)
        return o->stale ? GC_ERR_NOMEM : GC_ERR_UNREACHABLE;
    for (int metric = 0; metric < GCI_METRICS; metric++) {
        int next = gci_route_next(r, (enum gci_metric)metric, -1, peer);
        if (next < 0)
            return GC_ERR_UNREACHABLE;
        if (!gci_hop_get(o, r->neighbour[next]))
            return GC_ERR_NOMEM;
    }
    p->unreached.since = 0;
    p->routed = p->was_routed = true;
    p->wants = p->hurry = false;
    p->patience = p->verdict_at = 0;
    gci_log(o->env, GC_LOG_DEBUG, "rank %d is reached over rank %d in epoch %u", peer, gci_route_hop(o, GCI_LATENCY, peer)->peer,
            (unsigned)o->epoch);
    o->up.way_up(o->user, peer, true);
    if (p->routed)
        gci_route_push(o, peer);
    return GC_OK;
}

/* The route to this peer is not taken any more; nothing refers to its packets behind this. */
static void route_end(gci_overlay *o, int peer)
{
    o->peer[peer].routed = false;
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop) {
        gci_link_forget(o, hop, peer);
        gci_hop_due(o, hop);                /* there may be room now */
        if (hop->in_packet && hop->passing == GCI_PASS_DELIVER && hop->in.source == (uint32_t)peer)
            gci_link_skip(hop);
    }
    gci_overlay_errand(o);
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

/* Without memory it is this rank that is at fault, not whom it cannot reach: it gives itself up. */
static void way_is_missing(gci_overlay *o, int peer, int code)
{
    gci_news news = { .kind = GCI_NEWS_NO_LINK, .rank = code == GC_ERR_NOMEM ? o->rank : peer, .fd = -1, .code = code };
    o->peer[peer].wants = false;
    snprintf(news.text, sizeof news.text, code == GC_ERR_NOMEM ? "it has no memory to reach rank %d"
             : code == GC_ERR_PROTOCOL ? "rank %d sends packets that break the rules"
                                       : "rank %d cannot be connected, and no route leads there", peer);
    o->up.news(o->user, &news);
}

/* No memory for what comes from this peer, or for the way to it: a new epoch, and it says so again; but not for ever. */
static void route_starves(gci_overlay *o, int peer, gci_hunger *hungry)
{
    restart_ask(o);
    if (hunger(o, hungry))
        way_is_missing(o, peer, GC_ERR_NOMEM);
}

/* What a peer says on the route is not for this rank to hear: it broke the rules, or there is no memory. */
static void route_fail(gci_overlay *o, int peer, int err)
{
    route_end(o, peer);
    if (err != GC_ERR_NOMEM && err != GC_ERR_PROTOCOL)
        o->peer[peer].over = true;      /* above has done with it */
    o->up.way_down(o->user, peer, err == GC_ERR_PROTOCOL);
    if (err == GC_ERR_NOMEM)
        route_starves(o, peer, &o->peer[peer].hungry);
}

/* All were connected by the backbone once: whoever has no route has been cut off since. */
static int no_route(const gci_overlay *o)
{
    return o->control && !o->given ? GC_ERR_PEER : GC_ERR_UNREACHABLE;
}

/* Control finds it again, or says that it is dead (rescue.c): the next epoch will tell. But that is not waited for for ever. */
static bool verdict_is_due(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (!o->control || o->given)
        return false;
    if (p->verdict_at == 0)
        p->verdict_at = after(o, o->peer_timeout + OVERLAY_VERDICT);
    if (o->sys->now(o->sys) >= p->verdict_at)
        return false;
    gci_overlay_alarm(o, p->verdict_at);
    return true;
}

/* Something is for this peer, and it has no way. The driver looks; but a link of its own is asked for at once. */
static void way_want(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    bool own = own_is_possible(o, peer), patient = own && !p->hurry && p->lost < LOST_MAX, before = p->wants;
    p->wants = true;
    if (!before)
        p->verdict_at = 0;
    if (!o->control && !o->given)
        return;
    if (own)
        gci_overlay_ask(o, peer, GCI_OWN);
    if (before && p->patience != 0)
        return;
    p->patience = patient ? after(o, OVERLAY_PATIENCE) : -1;
    if (patient) {
        gci_overlay_alarm(o, p->patience);
        return;
    }
    o->wants = true;
    gci_overlay_errand(o);
}

static void way_seek(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (p->own || p->over || p->routed) {
        p->wants = false;
        return;
    }
    if (p->patience > 0 && own_is_possible(o, peer)) {
        gci_overlay_alarm(o, p->patience);
        return;
    }
    int err = route_begin(o, peer);
    if (err == GC_ERR_NOMEM && hunger(o, &p->unreached))
        way_is_missing(o, peer, err);
    else if (err == GC_ERR_NOMEM)
        gci_overlay_alarm(o, after(o, GCI_MEMORY_PAUSE));
    else if (err == GC_ERR_UNREACHABLE && own_is_possible(o, peer))
        gci_overlay_ask(o, peer, GCI_OWN);              /* and its answer decides */
    else if (err == GC_ERR_UNREACHABLE && !p->asked[GCI_OWN] && !verdict_is_due(o, peer))
        way_is_missing(o, peer, no_route(o));
}

static void ways_seek(gci_overlay *o)
{
    o->wants = false;
    for (int peer = 0; peer < o->ranks; peer++)
        if (o->peer[peer].wants)
            way_seek(o, peer);
}

/* ---- what comes by the route ------------------------------------------------------------------------------------ */

static void own_end(gci_overlay *o, gci_link *link);

/* A RESUME has come over the backbone. false: the way does not begin, or not now. */
static bool route_resume(gci_overlay *o, gci_packet *k)
{
    int peer = (int)k->source;
    gci_overlay_peer *p = &o->peer[peer];
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
    if (err == GC_ERR_NOMEM)
        route_starves(o, peer, &p->unreached);
    else if (err < 0)
        restart_ask(o);                 /* then it says so again */
    else if (own_is_possible(o, peer) && p->lost < LOST_MAX)
        gci_overlay_ask(o, peer, GCI_OWN);              /* perhaps from here it can be connected */
    return err == GC_OK && p->routed;
}

GCI void gci_route_deliver(gci_overlay *o, gci_link *link, void **sink, size_t *sink_bytes)
{
    gci_packet *k = &link->in;
    gci_overlay_peer *p = &o->peer[k->source];
    bool resume = k->type == GCI_STATE && k->flags & GCI_FLAG_RESUME;
    if (resume && !route_resume(o, k))
        return;
    if (!p->routed) {
        if (p->was_routed && !p->own && !p->over)
            restart_ask(o);             /* the peer believes in a way that has ended */
        return;
    }
    int err = gci_packet_deliver(o, link, sink, sink_bytes);
    if (err == GC_OK && p->routed) {
        link->passing = GCI_PASS_DELIVER;
        return;
    }
    *sink = NULL;
    *sink_bytes = 0;
    if (err < 0 && p->routed)
        route_fail(o, (int)k->source, err);
}

/* ---- links come and go ---------------------------------------------------------------------------------------- */

static void own_end(gci_overlay *o, gci_link *link)
{
    int peer = link->peer;
    gci_overlay_peer *p = &o->peer[peer];
    gci_strands_end(o, peer);
    gci_link_drain(o, link);
    bool broke_rules = link->broke_rules;
    p->lost = p->lost < LOST_MAX ? p->lost + 1 : LOST_MAX;
    own_free(o, link);
    o->up.way_down(o->user, peer, broke_rules);
    if (p->ignored)
        restart_ask(o);                 /* the peer waits for an answer on a route */
    p->ignored = false;
}

static void own_attach(gci_overlay *o, const gci_news *news)
{
    int peer = news->rank, fd = news->fd;
    gci_overlay_peer *p = &o->peer[peer];
    p->turning = true;                  /* no other way is needed for what the old one loses */
    if (p->own)
        own_end(o, p->own);
    gci_link *link = gci_link_new(o, peer, false, 0);
    bool routed = p->routed;
    if (link) {
        p->own = link;
        o->owns++;
    }
    if (!link || gci_link_open(o, link, fd) < 0) {
        gci_log(o->env, GC_LOG_ERROR, "no memory or descriptor for the link to rank %d", peer);
        if (link)
            own_free(o, link);          /* closes it too */
        else
            o->sys->close(o->sys, fd);
        p->turning = p->asked[GCI_OWN] = false;
        if (routed)
            restart_ask(o);             /* the peer may have left the route */
        else
            o->up.way_down(o->user, peer, false);   /* if it is needed, another one will be asked for */
        return;
    }
    p->unreached.since = 0;
    link->address = news->at;
    p->own_id = news->id;
    p->strands_most = (uint8_t)news->strands;
    p->bulk = 0;
    p->strands_at = 0;
    link->pumping = true;               /* not before the way is up */
    if (routed) {
        route_end(o, peer);
        o->up.way_down(o->user, peer, false);
    }
    link->pumping = false;
    p->turning = p->asked[GCI_OWN] = p->wants = p->hurry = false;
    p->patience = p->verdict_at = 0;
    gci_log(o->env, GC_LOG_DEBUG, "link to rank %d is up", peer);
    gci_owns_review(o);
    o->up.way_up(o->user, peer, false);
    gci_link_pump(o, link);
}

/* All are to do without this edge. (Out of memory: with the next connection. Once the control thread has ended nobody cares.) */
static void hop_is_down(gci_overlay *o, int peer)
{
    if (o->control)
        (void)gci_control_down(o->control, peer);
}

/* A neighbour that breaks the rules again and again is given up, and its link is not one for routes. */
static void hop_offends(gci_overlay *o, gci_link *hop)
{
    hop->broke_rules = false;
    if (++hop->offences != OFFENCES_MAX)
        return;
    way_is_missing(o, hop->peer, GC_ERR_PROTOCOL);
    hop_is_down(o, hop->peer);
}

/* The connection of a hop has ended; its place remains. What was in it is lost, which a new epoch makes good. */
static void hop_lose(gci_overlay *o, gci_link *hop)
{
    gci_link_drain(o, hop);
    if (hop->queued > 0 || (hop->sent && hop->sent_epoch == o->epoch)) {
        hop->lost = true;
        hop->lost_epoch = o->epoch;
        o->doubt_at = after(o, OVERLAY_DOUBT);
        gci_overlay_alarm(o, o->doubt_at);
    }
    gci_link_close(o, hop);
    if (hop->broke_rules)
        hop_offends(o, hop);
    if (gci_hop_is_wanted(o, hop->peer) && hop->offences < OFFENCES_MAX && (gci_hop_has_lost(o, hop) || hop->waiters))
        gci_overlay_ask(o, hop->peer, GCI_BACKBONE);
}

static void hop_attach(gci_overlay *o, const gci_news *news)
{
    int peer = news->rank, fd = news->fd;
    gci_overlay_peer *p = &o->peer[peer];
    gci_link *hop = gci_hop_get(o, peer);
    p->asked[GCI_BACKBONE] = true;
    if (hop && hop->fd >= 0)
        hop_lose(o, hop);
    p->asked[GCI_BACKBONE] = false;
    if (!hop || !gci_hop_is_wanted(o, peer) || hop->offences >= OFFENCES_MAX) {
        o->sys->close(o->sys, fd);      /* if it is needed, another one will be asked for */
        if (hop && hop->offences >= OFFENCES_MAX)
            hop_is_down(o, peer);
        if (!hop)
            gci_log(o->env, GC_LOG_ERROR, "no memory for the backbone link to rank %d", peer);
        if (!hop && hunger(o, &p->unreached))
            way_is_missing(o, peer, GC_ERR_NOMEM);
        return;
    }
    if (gci_link_open(o, hop, fd) < 0)
        return;                         /* broken, and torn down soon */
    hop->address = news->at;
    hop->failures = 0;
    gci_log(o->env, GC_LOG_DEBUG, "backbone link to rank %d is up", peer);
    if (gci_hop_has_lost(o, hop) && o->rank < peer) {
        restart_ask(o);
    } else if (gci_hop_has_lost(o, hop)) {
        o->doubt_at = after(o, OVERLAY_HIGHER);
        gci_overlay_alarm(o, o->doubt_at);
    }
    gci_link_pump(o, hop);
}

static void links_tear_down(gci_overlay *o)
{
    for (int peer = 0; o->broken > 0 && peer < o->ranks; peer++) {
        gci_link *link = o->peer[peer].own, *hop = o->peer[peer].hop;
        gci_strands_tear_down(o, peer);
        if (link && link->broken)
            own_end(o, link);
        if (hop && hop->broken)
            hop_lose(o, hop);
    }
}

static void links_errands(gci_overlay *o)
{
    bool before = o->inside;
    o->inside = true;
    for (int i = 0; i < ERRANDS_PER_TURN && o->errands; i++) {
        o->errands = false;
        if (o->fallen)
            ways_tell_fallen(o);
        if (o->wants)
            ways_seek(o);
        if (o->again)
            gci_hops_go_on(o);
        gci_hops_pump(o);
    }
    o->inside = before;
}
/* ---- epochs --------------------------------------------------------------------------------------------------- */

static void epoch_turn(gci_overlay *o, uint16_t epoch)
{
    o->epoch = epoch;
    gci_hops_turn(o);
    for (int peer = 0; peer < o->ranks; peer++) {
        gci_overlay_peer *p = &o->peer[peer];
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
        gci_link_close(o, o->peer[other].hop);
}

static void rank_goes(gci_overlay *o, int rank)
{
    gci_overlay_peer *p = &o->peer[rank];
    p->over = p->gone = true;
    if (p->own)
        own_end(o, p->own);
    for (int i = 0; i < o->graph.edges; i++)
        if (o->graph.edge[i].a == rank || o->graph.edge[i].b == rank)
            edge_goes_down(o, o->graph.edge[i].a, o->graph.edge[i].b);
    if (p->hop)
        gci_link_close(o, p->hop);
}

/* ---- news ----------------------------------------------------------------------------------------------------- */

/* Lack of memory says nothing of the neighbour. */
static bool hop_is_hopeless(gci_overlay *o, gci_overlay_peer *p, int code)
{
    if (code == GC_ERR_NOMEM)
        return hunger(o, &p->unreached);
    p->hop->failures++;
    return p->hop->failures == FAILURES_END || (p->hop->failures >= FAILURES_MAX && o->given);
}

/* Control could not connect to a neighbour. A link that fails again and again goes down for all: then routes go around it, and
 * control knows whether that cuts somebody off. If control has no memory even for that, the pair gives up. */
static void hop_fails(gci_overlay *o, int peer, int code)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (!p->hop || !gci_hop_is_wanted(o, peer))
        return;
    if (hop_is_hopeless(o, p, code)) {
        way_is_missing(o, peer, code);
        return;
    }
    if (p->hop->failures >= FAILURES_MAX)
        hop_is_down(o, peer);
    else if (p->hop->queued == 0 && !p->hop->waiters && !gci_hop_has_lost(o, p->hop))
        return;
    p->unasked[GCI_BACKBONE] = o->unasked = true;
    gci_overlay_alarm(o, after(o, OVERLAY_AGAIN));
}

static void no_link(gci_overlay *o, const gci_news *news)
{
    gci_overlay_peer *p = &o->peer[news->rank];
    const gci_table *table = o->control ? gci_control_table(o->control) : NULL;
    p->asked[gci_news_link_kind(news)] = false;
    if (gci_news_link_kind(news) == GCI_BACKBONE) {
        hop_fails(o, news->rank, news->code);
        return;
    }
    p->refused = true;
    if (news->code == GC_ERR_UNREACHABLE && o->unreachable && p->seen[GCI_OWN] == 0)    /* else there once was a way */
        o->unreachable[table->card[news->rank].host] = 1;
    if (p->own || p->routed || !p->wants)
        return;
    p->patience = -1;
    o->wants = true;                    /* if memory or this epoch forbid, it is looked for again */
    if (route_begin(o, news->rank) != GC_ERR_UNREACHABLE || verdict_is_due(o, news->rank))
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
        if (news->purpose == GCI_PURPOSE_STRAND) {
            gci_strand_attach(o, news);
            return;
        }
        o->peer[news->rank].seen[gci_news_link_kind(news)] += news->links;
        if (gci_news_link_kind(news) == GCI_BACKBONE)
            hop_attach(o, news);
        else
            own_attach(o, news);
        return;
    case GCI_NEWS_NO_LINK:
        no_link(o, news);
        return;
    case GCI_NEWS_DOWN:
        edge_goes_down(o, news->rank, news->other);
        epoch_turn(o, news->epoch);
        return;
    case GCI_NEWS_UP:
        if (o->control)
            (void)graph_grow(o);        /* out of memory: when tables are made */
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
    gci_news news;
    bool any = false;
    while (gci_inbox_take(&o->inbox, &news)) {
        news_heard(o, &news);
        any = true;
    }
    if (any)
        gci_overlay_errand(o);
    return any;
}

/* ---- what is above calls -------------------------------------------------------------------------------------- */

GCI void gci_overlay_push(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    if (p->own) {
        if (!p->own->broken)
            gci_link_pump(o, p->own);
        gci_strands_pump(o, peer);
    } else if (p->routed) {
        gci_route_push(o, peer);
    } else if (!p->over && !p->turning) {
        way_want(o, peer);
    }
}

GCI void gci_overlay_cut(gci_overlay *o, int peer)
{
    gci_overlay_peer *p = &o->peer[peer];
    p->over = true;
    p->wants = false;
    if (p->own) {
        p->own->mute = false;           /* what the peer sent before is not read any more either: its sink may be gone */
        gci_link_break(o, p->own, "cut");
    }
    gci_strands_cut(o, peer);
    if (p->routed) {
        route_end(o, peer);
        p->fallen = o->fallen = true;
    }
}

GCI enum gci_way gci_overlay_way(const gci_overlay *o, int peer)
{
    const gci_overlay_peer *p = &o->peer[peer];
    if (p->own)
        return p->own->broken ? GCI_WAY_NONE : GCI_WAY_OWN;
    return p->routed ? GCI_WAY_ROUTED : GCI_WAY_NONE;
}

/* Why there is no way to a peer, as far as this rank knows. */
static const char *way_lacks(const gci_overlay *o, int peer)
{
    const gci_overlay_peer *p = &o->peer[peer];
    if (p->over)
        return "it has been given up";
    if (p->own)
        return "its connection has just broken";
    if (!p->wants)
        return "nothing is for it, and it has not connected";
    if (p->was_routed)
        return "its route was lost, the next epoch brings another";
    if (p->asked[GCI_OWN])
        return "it is being connected";
    return o->stale ? "routes are still to be made" : "no connection can be had, and no route leads there";
}

GCI gci_way_view gci_overlay_view(const gci_overlay *o, int peer)
{
    gci_way_view v = { .way = gci_overlay_way(o, peer), .next = -1 };
    const gci_link *link = v.way == GCI_WAY_OWN ? o->peer[peer].own : v.way == GCI_WAY_ROUTED ? gci_route_hop(o, GCI_LATENCY, peer) : NULL;
    if (v.way == GCI_WAY_NONE)
        v.why = way_lacks(o, peer);
    if (!link)
        return v;
    v.next = link->peer;
    v.connected = link->fd >= 0 && !link->broken;
    v.to = link->address;
    v.queued = link->queued;
    v.queue_max = o->queue_max;
    v.silence = v.connected ? o->sys->silence(o->sys, link->fd) : 0;
    return v;
}

static gci_link_view link_view(const gci_overlay *o, const gci_link *link)
{
    return (gci_link_view){ .peer = link->peer, .backbone = link->backbone, .strand = link->strand,
                            .queued = link->queued, .queue_max = o->queue_max,
                            .holds = link->holds ? (int)link->in.dest : -1, .waits_for = link->holds ? link->next->peer : -1,
                            .waiters = link->waiting, .relayed = link->relayed };
}

GCI void gci_overlay_links(const gci_overlay *o, void (*each)(void *arg, const gci_link_view *), void *arg)
{
    for (int peer = 0; peer < o->ranks; peer++) {
        const gci_link *own = o->peer[peer].own, *hop = o->peer[peer].hop;
        gci_link_view view;
        for (; own; own = own->strand ? own->next_strand : o->peer[peer].strands) {
            view = link_view(o, own);
            each(arg, &view);
        }
        if (hop && hop->fd >= 0) {
            view = link_view(o, hop);
            each(arg, &view);
        }
    }
}

GCI bool gci_overlay_holds(const gci_overlay *o, uint32_t context)
{
    bool holds = false;
    for (int peer = 0; peer < o->ranks && !holds; peer++) {
        const gci_link *own = o->peer[peer].own;
        for (int i = 0; own && !own->broken && i < own->queued; i++)
            holds |= own->out[i].packet.type == GCI_ENVELOPE && own->out[i].packet.context == context;
    }
    return holds;
}

/* ---- what drive.c calls --------------------------------------------------------------------------------------- */

GCI bool gci_links_has_work(gci_overlay *o)
{
    return o->broken > 0 || o->errands || atomic_load(&o->inbox.has_news);
}

static void links_prepare(gci_overlay *o)
{
    if (o->broken > 0)
        links_tear_down(o);
    if (o->errands)
        links_errands(o);
}

/* The work of one go is done. With what is left another thread may have to go on, because this one rests now: one that sleeps in
 * the poller, or in the user's own. */
static void links_leave(gci_overlay *o, bool before)
{
    o->inside = before;
    if (before || !o->errands)
        return;
    if (sleeps(o))
        o->sys->wake(o->sys, o->waker);
    gci_overlay_ring(o);
}

static bool handle(gci_overlay *o, const gci_event *event)
{
    if (event->tag == overlay_waker_tag) {
        if (o->asleep)
            return false;               /* it is the driver's, who sleeps there too and has yet to see it */
        o->sys->rest(o->sys, o->waker);
        return true;
    }
    const gci_overlay_peer *p = &o->peer[(uint32_t)event->tag / 2];
    unsigned strand = (unsigned)(event->tag >> 32);
    gci_link *link = strand ? gci_strand_find(p, strand) : event->tag % 2 == GCI_OWN ? p->own : p->hop;
    if (!link || link->broken || link->fd < 0)
        return false;
    bool moved = false;
    if (event->events & GCI_READ && gci_link_is_read(link))
        moved = gci_link_read(o, link);
    if (event->events & GCI_WRITE && !link->broken)
        moved |= gci_link_pump(o, link);
    return moved;
}

/* All that an event brings is done by the thread that took it: no other may have been woken. */
GCI bool gci_links_look(gci_overlay *o, int64_t timeout)
{
    gci_event event[EVENTS];
    bool driver = o->driving;           /* else it is the I/O thread: a driver may come while it sleeps */
    if (timeout != 0) {
        gci_links_cool(o);
        gci_links_acknowledge(o);
        if (o->broken > 0 || o->errands)
            timeout = 0;                /* it could not come back into the poller, say */
    }
    if (timeout != 0) {
        *(driver ? &o->asleep : &o->thread_asleep) = true;
        o->sys->leave(o->sys, o->monitor);
    }
    int n = o->sys->wait(o->sys, o->poller, event, EVENTS, timeout);
    if (timeout != 0) {
        o->sys->enter(o->sys, o->monitor);
        *(driver ? &o->asleep : &o->thread_asleep) = false;
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
    links_leave(o, before);
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
    gci_link *link = hint >= 0 ? o->peer[hint].own : NULL;
    if (link && !link->broken) {
        moved |= gci_link_read(o, link);
        if (link->queued > 0 && !link->broken)
            moved |= gci_link_pump(o, link);
    }
    if (all || (!moved && !link)) {
        moved |= gci_links_look(o, 0);
        if (o->hot && o->hot != link && !o->hot->broken)
            moved |= gci_link_read(o, o->hot);
    }
    if (o->broken > 0 || o->errands)
        links_prepare(o);
    links_leave(o, before);
    return moved;
}

/* A copy of the backbone as the job began with it, and where to note what goes down if there is no memory for more. */
static int links_graph(gci_overlay *o)
{
    const gci_graph *graph = gci_control_graph(o->control);
    const gci_table *table = gci_control_table(o->control);
    int err = GC_OK;
    if (graph && graph->edges > 0) {
        err = gci_graph_copy(o->env, graph, &o->graph);
        if (err < 0)
            return err;
        err = gci_inbox_graph(&o->inbox, graph);
        if (err < 0) {
            gci_graph_free(o->env, &o->graph);
            return err;
        }
        o->stale = !o->given;
    }
    if (table && table->hosts > 0)      /* without it, each rank is tried for itself */
        o->unreachable = gci_alloc(o->env, (size_t)table->hosts);
    return err;
}

/* When a job has begun no rank of it can fail to: without memory, news wait, and in the end are heard without the graph. */
static void links_start(gci_overlay *o)
{
    int err = o->control ? links_graph(o) : GC_OK;
    if (err < 0 && !hunger(o, &o->unprepared)) {
        gci_overlay_alarm(o, after(o, GCI_MEMORY_PAUSE));
        return;
    }
    o->started = true;
    gci_overlay_errand(o);
    o->sys->wake(o->sys, o->waker);     /* news may have waited, and whoever drives may be about to sleep */
    gci_owns_review(o);
}

/* A link is asked for again that there was no memory for. */
static void ask_again(gci_overlay *o)
{
    o->unasked = false;
    for (int i = 0; i < 2 * o->ranks; i++)
        if (o->peer[i / 2].unasked[i % 2]) {
            o->peer[i / 2].unasked[i % 2] = false;
            if (i % 2 == GCI_OWN || gci_hop_is_wanted(o, i / 2))
                gci_overlay_ask(o, i / 2, i % 2);
        }
}

static void hops_tick(gci_overlay *o, int64_t now)
{
    bool lost = false;
    for (gci_link *hop = o->hops; hop; hop = hop->next_hop) {
        lost |= gci_hop_has_lost(o, hop);
        if (!hop->stopped)
            continue;
        if (now - hop->stopped_at >= o->peer_timeout)
            gci_link_break(o, hop, "its packets are of an epoch not heard of here, or there is no memory for them");
        hop->again = o->again = true;   /* perhaps there is memory now */
    }
    if (o->again)
        gci_overlay_errand(o);
    if (o->doubt_at > now)
        gci_overlay_alarm(o, o->doubt_at);
    else if (lost && o->doubt_at > 0)
        restart_ask(o);
}

static void ways_tick(gci_overlay *o, int64_t now)
{
    for (int peer = 0; peer < o->ranks; peer++) {
        gci_overlay_peer *p = &o->peer[peer];
        if (!p->wants)
            continue;
        if (p->patience > now) {
            gci_overlay_alarm(o, p->patience);
            continue;
        }
        p->patience = -1;
        o->wants = true;
    }
    if (o->wants)
        gci_overlay_errand(o);
}

GCI void gci_overlay_spoke(gci_overlay *o, gci_link *link)
{
    int64_t at = o->control ? after(o, OVERLAY_LISTEN) : GCI_FOREVER;
    link->spoke = true;
    if (o->listen_all_at == GCI_FOREVER)
        o->listen_all_at = at;
    if (at >= o->listen_at)
        return;
    o->listen_at = at;
    gci_overlay_alarm(o, at);
}

static bool link_may_be_silent(const gci_overlay *o, const gci_link *link)
{
    const gci_table *table = gci_control_table(o->control);
    return link && link->fd >= 0 && !link->broken && table->card[link->peer].host != table->card[o->rank].host;
}

static void links_listen(gci_overlay *o, int64_t now)
{
    bool all = now >= o->listen_all_at, owed = false;
    if (now < o->listen_at) {
        gci_overlay_alarm(o, o->listen_at);
        return;
    }
    o->listen_all_at = all ? GCI_FOREVER : o->listen_all_at;
    for (int i = 0; i < GCI_LINK_KINDS * o->ranks; i++) {
        gci_overlay_peer *p = &o->peer[i / GCI_LINK_KINDS];
        gci_link *link = i % GCI_LINK_KINDS == GCI_OWN ? p->own : p->hop;
        if (!link_may_be_silent(o, link))
            continue;
        if (all)
            o->listen_all_at = now + OVERLAY_LISTEN_ALL;
        if (all || link->spoke)
            owed |= gci_link_listen(o, link, now - o->listened_at);
    }
    o->listened_at = now;
    o->listen_at = owed ? now + OVERLAY_LISTEN : o->listen_all_at;
    gci_overlay_alarm(o, o->listen_at);
}

/* For want of memory control has not been asked for what is due, for too long. */
static void links_starve(gci_overlay *o)
{
    gci_news news = { .kind = GCI_NEWS_NO_LINK, .rank = o->rank, .fd = -1, .code = GC_ERR_NOMEM,
                      .text = "it has no memory to ask for connections" };
    if (o->asks_starve)
        o->up.news(o->user, &news);
    o->asks_starve = false;
}

GCI int64_t gci_links_tick(gci_overlay *o, int64_t now)
{
    bool before = o->inside;
    o->inside = true;
    if (now >= o->alarm) {
        o->alarm = GCI_FOREVER;
        if (!o->started && o->control)
            links_start(o);
        if (o->unasked)
            ask_again(o);
        if (o->owes_restart)
            restart_ask(o);
        links_starve(o);
        hops_tick(o, now);
        ways_tick(o, now);
        links_listen(o, now);
        gci_strands_compare(o, now);
        links_prepare(o);
    }
    int64_t next = o->up.tick(o->user, now);    /* last: what else has happened may want to be timed */
    links_leave(o, before);
    return next < o->alarm ? next : o->alarm;
}

GCI void gci_links_paid(gci_overlay *o, int hint)
{
    gci_link *link = hint >= 0 ? o->peer[hint].own : NULL;
    if (link && o->hot != link && o->outer < 0 && !link->broken && ++link->paid >= HOT_AFTER) {
        link->paid = 0;
        gci_link_heat(o, link);
    }
}

GCI void gci_links_cool(gci_overlay *o)
{
    if (!o->hot)
        return;
    o->hot->paid = 0;
    gci_link_heat(o, NULL);
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static void links_options(gci_overlay *o, const gc_options *options)
{
    int routing = options->routing && options->routing[0] ? gci_routing_parse(options->routing) : GCI_UPDOWN_DFS;
    o->queue_max = options->queue_packets < GCI_QUEUE_MAX ? options->queue_packets : GCI_QUEUE_MAX;
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
                        .ranks = ranks, .poller = -1, .waker = -1, .outer = -1, .bell = -1, .timer = -1, .alarm = GCI_FOREVER,
                        .listen_at = GCI_FOREVER, .compare_at = GCI_FOREVER };
    links_options(o, options);
    o->peer = gci_alloc(env, (size_t)ranks * sizeof *o->peer);
    int err = o->peer ? gci_inbox_open(&o->inbox, env, ranks) : GC_ERR_NOMEM;
    if (err == GC_OK) {
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

GCI void gci_links_news(gci_overlay *o, const gci_news *news)
{
    gci_inbox_put(&o->inbox, news);
    o->sys->wake(o->sys, o->waker);
}

GCI void gci_overlay_start(gci_overlay *o, gci_control *control)
{
    o->sys->enter(o->sys, o->monitor);
    o->control = control;
    links_start(o);
    o->sys->leave(o->sys, o->monitor);
}

GCI void gci_links_close(gci_overlay *o)
{
    gci_env *env = o->env;
    o->control = NULL;                  /* it has ended */
    gci_inbox_close(&o->inbox);
    for (int peer = 0; o->peer && peer < o->ranks; peer++) {
        gci_link *hop = o->peer[peer].hop;
        gci_strands_free(o, peer);
        if (o->peer[peer].own)
            own_free(o, o->peer[peer].own);
        if (!hop)
            continue;
        gci_link_close(o, hop);
        gci_buffer_give(o, hop->buffer);
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
    gci_free(env, o->unreachable);
    gci_free(env, o->peer);
    gci_free(env, o);
}
