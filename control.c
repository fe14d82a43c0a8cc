/* control.c: the control thread: its loop, requests from other threads, and how connections to ranks are opened for them.
 * SPDX-License-Identifier: MIT
 *
 * One thread per rank sleeps in one poller on its listening sockets and its control connections. It alone touches what is in
 * gci_control, but for what the monitor guards: the inbox with its spare requests, verdicts that were laid down, the outcome, and the
 * links that rescue.c has added, for those who read them. It holds no lock when it calls on_news. The start is join.c and then
 * mesh.c; life and death, notices and the goodbye are life.c, ranks that deaths have parted rescue.c.
 *
 * Links that the overlay asks for. A link of a pair's own (DATA) is dialled by whoever wants it. Where it is known that only
 * the other side can open connections to this one, or where dialling has failed, a neighbour is asked over the control
 * connection to do so (CALL). A link of the backbone (BACKBONE) is opened by the side that opened the control connection,
 * because that way is known to work: the other side calls. Pairs that are no neighbours have routes meanwhile, over which
 * the other side learns that it is wanted. What nobody can open is said soon (NO_LINK): at once where the peer is full, after
 * a few rounds where everybody refuses, else after DIAL_MS; a host that takes the connection and is slow to go on is
 * waited for.
 *
 * Out of descriptors. A rank that can have none for a connection, or no memory, does not answer, while its kernel takes
 * connections for it: like that of a process that is stopped, which is waited for. So it says for how long that has been, to
 * its neighbours, again and again. Connections that are wanted from it or by it fail when that is longer than dialling may take.
 * If it ends before, nothing has been lost.
 *
 * A strand is a further link beside a link of a pair's own. Only who opened that opens it (reach.c), so there are no two at once;
 * whether it is still of use is for the overlay to see, which knows the link that it belongs to.
 *
 * Two connections to one rank at once (each side asked): a side refuses with "busy" once its own PROOF is under way and it
 * is the lower rank; when it accepts one, it drops its own attempt. A PROOF that comes after the link it raced against
 * (epoch) is refused as well. So exactly one LINK comes of any such race, at both sides the same connection.
 * A connection that fails between VERDICT and LINK is there at one side alone: who misses it asks again, and a CALL is
 * repeated until it is answered, so that none is lost to a connection that has failed already.
 *
 * Every wait ends: a start at start_timeout, a dial at its deadline, a goodbye at end_at.
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

enum {
    CONTROL_EVENTS = 64,            /* per look at the poller */
    CONTROL_DIAL_MS = 5000,         /* a data connection is given up then, or after peer_timeout; routes carry the traffic */
    CONTROL_RECENT_MS = 1000,       /* a call that was sent before its sender heard of the latest link is no older ... */
    CONTROL_RECALL_MS = 1500,       /* ... so one that is sent again after this is heeded; then after twice as long each time */
    CONTROL_RECALL_MAX_MS = 24000,  /* (a neighbour that is stopped for a day is sent 30 KB) */
    CONTROL_STARVED_MS = 1000,      /* between two words of it; and so long after the last try in vain it is not known any more */
    CONTROL_LOSSES_ROOM = 16,       /* links that may go down before the log has to grow */
    CONTROL_SPARES = 4,             /* requests kept for when there is no memory for one */
    CONTROL_START_S = 60, CONTROL_PEER_S = 30,      /* the documented defaults */
    CONTROL_PORT_TRIES = 1024,      /* of a range of ports */
    CONTROL_PORT_ROUNDS = 3         /* two who begin to listen at one port at the same instant may both be refused */
};

enum control_request_kind { CONTROL_CONNECT, CONTROL_STRAND, CONTROL_NOTIFY, CONTROL_RESTART, CONTROL_DOWN, CONTROL_STOP };
struct gci_control_request {
    struct gci_control_request *next;
    enum control_request_kind kind;
    enum gci_purpose purpose;
    int        rank;
    unsigned   strand;
    uint32_t   had;             /* of a strand: the id of its trunk */
    bool       clean;
    gci_notice notice;
    bool       spare;           /* goes back to where it came from */
};

static int64_t control_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

/* ---- links for the overlay ------------------------------------------------------------------------------------- */

static bool control_is_link(unsigned purpose) { return purpose == GCI_PURPOSE_DATA || purpose == GCI_PURPOSE_BACKBONE; }

/* Index of what a neighbour keeps per purpose. */
static int control_which(unsigned purpose) { return (int)purpose - GCI_PURPOSE_DATA; }

static uint32_t *control_delivered(gci_control *c, unsigned purpose, int rank)
{
    return &c->delivered[(size_t)control_which(purpose) * (size_t)c->place.ranks + (size_t)rank];
}

static int64_t control_patience(const gci_control *c, unsigned purpose)
{
    int64_t most = control_ms(CONTROL_DIAL_MS);
    return c->peer_timeout < most || purpose == GCI_PURPOSE_BACKBONE ? c->peer_timeout : most;
}

/* One that cannot be had is not told of: the overlay does without, and asks again after a while. */
static void control_strand(gci_control *c, int rank, unsigned strand, uint32_t trunk)
{
    if (c->phase == GCI_PHASE_RUN && !c->gone[rank])
        (void)gci_reach_strand(c, rank, strand, trunk, c->now + control_patience(c, GCI_PURPOSE_STRAND));
}

static void control_no_link(gci_control *c, unsigned purpose, int rank, int code, const char *text)
{
    gci_news news = { .kind = GCI_NEWS_NO_LINK, .rank = rank, .other = -1, .purpose = (enum gci_purpose)purpose, .fd = -1,
                      .code = code };
    snprintf(news.text, sizeof news.text, "rank %d cannot be connected: %.210s", rank, text);
    gci_life_tell(c, &news);
}

/* With the name of the last connection that we have had: who has had another since knows that we are about to hear of it. */
static bool control_say_call(gci_control *c, gci_neighbour *n, unsigned purpose)
{
    uint8_t body[4];

    gci_put32(body, n->linked_id[control_which(purpose)]);
    return gci_conn_send(c, n->conn, GCI_FRAME_CALL, purpose, body, sizeof body);
}

/* Asks a neighbour to open the link. One that only waits for its control connection is asked when that is back. */
static void control_call(gci_control *c, gci_neighbour *n, unsigned purpose)
{
    int which = control_which(purpose);

    if (!n->conn) {
        n->waits[which] = true;
        return;
    }
    if (n->called[which])
        return;
    if (!control_say_call(c, n, purpose)) {
        control_no_link(c, purpose, n->rank, GC_ERR_UNREACHABLE, "only it could open the connection, and it does not listen");
        return;
    }
    /* a neighbour that lives will open the backbone's, however long it is stopped */
    n->called[which] = purpose == GCI_PURPOSE_BACKBONE ? GCI_FOREVER : c->now + control_patience(c, purpose);
    n->recall_after[which] = control_ms(CONTROL_RECALL_MS);
    n->recall_at[which] = c->now + n->recall_after[which];
}

/* A neighbour had asked us to open a link. */
static void control_cannot(gci_control *c, unsigned purpose, int rank)
{
    gci_neighbour *n = gci_life_find(c, rank);
    if (n && n->conn)               /* no room: it will give up by itself */
        (void)gci_conn_send(c, n->conn, GCI_FRAME_CALL, purpose | GCI_CALL_FAILED, (uint8_t[4]){ 0 }, 4);
}

/* Nobody on this side can open it. */
static void control_unreachable(gci_control *c, unsigned purpose, int rank, bool asked, bool called, const char *why)
{
    gci_neighbour *n = gci_life_find(c, rank);

    if (called)
        control_cannot(c, purpose, rank);
    if (asked && !called && purpose == GCI_PURPOSE_DATA && n && n->conn && n->conn->incoming)
        control_call(c, n, purpose);
    else if (asked)
        control_no_link(c, purpose, rank, GC_ERR_UNREACHABLE, why);
}

static void control_dial_failed(gci_control *c, gci_dial *d)
{
    char text[GCI_TEXT];

    gci_dial_text(c, d, text);
    gci_dial_end(c, d);             /* first: the news may bring the next request */
    if (d->purpose == GCI_PURPOSE_STRAND)
        gci_log(c->env, GC_LOG_DEBUG, "strand %u to rank %d: %s", d->strand, d->peer, text);
    else
        control_unreachable(c, d->purpose, d->peer, d->asked, d->called, text);
}

/* One end of what is dialled has had no descriptor for so long. That says nothing about others on the same host, nor about later:
 * so the code is another one. */
static void control_starved(gci_control *c, gci_dial *d, int64_t how_long, const char *why)
{
    if (!d || d->over || !control_is_link(d->purpose) || d->chosen || how_long < control_patience(c, d->purpose))
        return;
    gci_dial_end(c, d);
    if (d->called)
        control_cannot(c, d->purpose, d->peer);
    if (d->asked)
        control_no_link(c, d->purpose, d->peer, GC_ERR_SYSTEM, why);
}

static void control_dial(gci_control *c, unsigned purpose, int rank, bool asked, bool called)
{
    int candidates;
    gci_dial *d = gci_reach_dial(c, (enum gci_purpose)purpose, rank, control_patience(c, purpose), &candidates);

    if (!d) {
        if (asked)
            control_no_link(c, purpose, rank, GC_ERR_NOMEM, "out of memory");
        if (called)
            control_cannot(c, purpose, rank);
        return;
    }
    d->asked = asked;
    d->called = called;
    if (!candidates) {
        char text[GCI_TEXT];
        gci_dial_end(c, d);
        control_unreachable(c, purpose, rank, asked, called, gci_reach_why(c, rank, text));
    }
}

static void control_connect(gci_control *c, unsigned purpose, int rank, uint32_t had)
{
    gci_dial *d = gci_dial_find(c, (enum gci_purpose)purpose, rank);
    gci_neighbour *n = gci_life_find(c, rank);

    if (had < *control_delivered(c, purpose, rank) || c->phase >= GCI_PHASE_LEAVE)
        return;
    if (d)
        d->asked = true;
    else if (c->gone[rank] || !c->table.ranks)
        control_no_link(c, purpose, rank, GC_ERR_PEER, c->gone[rank] ? "it is gone" : "the job has not started");
    else if (purpose == GCI_PURPOSE_BACKBONE && !n)
        control_no_link(c, purpose, rank, GC_ERR_UNREACHABLE, "the backbone has no link to it");
    else if (purpose == GCI_PURPOSE_BACKBONE && gci_life_is_down(c, n))
        return;                     /* as has been told */
    else if (purpose == GCI_PURPOSE_BACKBONE ? !n->conn || n->conn->incoming : n && n->cannot && !gci_life_is_down(c, n))
        control_call(c, n, purpose);
    else
        control_dial(c, purpose, rank, true, false);
}

/* The control connection to a neighbour is there: what waited for it goes on, what was called for is called for again. */
static void control_again(gci_control *c, int rank)
{
    gci_neighbour *n = gci_life_find(c, rank);

    for (unsigned p = GCI_PURPOSE_DATA; n && n->conn && p <= GCI_PURPOSE_BACKBONE; p++) {
        int which = control_which(p);
        bool pending = n->waits[which] || n->called[which];
        n->waits[which] = false;
        n->called[which] = 0;
        if (pending)
            control_connect(c, p, rank, *control_delivered(c, p, rank));
    }
}

static void control_call_frame(gci_control *c, gci_conn *k, unsigned flag, const uint8_t *body)
{
    unsigned purpose = flag & ~(unsigned)GCI_CALL_FAILED;
    gci_neighbour *n = gci_life_find(c, k->peer);
    gci_dial *d = gci_dial_find(c, (enum gci_purpose)purpose, k->peer);
    int which = control_which(purpose);

    if (!n || n->conn != k || c->phase >= GCI_PHASE_LEAVE || c->gone[k->peer])
        return;
    if (flag & GCI_CALL_FAILED) {
        if (n->called[which])
            control_no_link(c, purpose, k->peer, GC_ERR_UNREACHABLE, "neither side can open a connection to the other");
        n->called[which] = 0;
    } else if (d) {
        d->called = true;
    } else if (gci_get32(body) != n->linked_id[which] && n->linked_at[which]
               && c->now - n->linked_at[which] < control_ms(CONTROL_RECENT_MS)) {
        return;                     /* it is about to hear of that link */
    } else if (purpose == GCI_PURPOSE_DATA && atomic_load(&c->full)) {
        control_cannot(c, purpose, k->peer);
    } else {
        control_dial(c, purpose, k->peer, false, true);
    }
}

/* A call may have come to nothing: taken for one of before a connection that had failed already, answered by that very
 * connection, or its answer found no room. So it is sent again until there is an answer. When the next one is due. */
static int64_t control_recall(gci_control *c, gci_neighbour *n, unsigned purpose)
{
    int which = control_which(purpose);

    if (!n->called[which] || !n->conn || n->left || c->phase >= GCI_PHASE_LEAVE)
        return GCI_FOREVER;
    if (c->now >= n->recall_at[which]) {
        (void)control_say_call(c, n, purpose);      /* no room: next time */
        if (n->recall_after[which] < control_ms(CONTROL_RECALL_MAX_MS))
            n->recall_after[which] *= 2;
        n->recall_at[which] = c->now + n->recall_after[which];
    }
    return n->recall_at[which];
}

/* A neighbour can have no connections. */
static void control_starved_frame(gci_control *c, const gci_conn *k, const uint8_t *body)
{
    int64_t how_long = control_ms(1) * gci_get32(body);
    gci_neighbour *n = gci_life_find(c, k->peer);

    if (!n || n->conn != k)
        return;
    n->starved_at = c->now;
    for (unsigned p = GCI_PURPOSE_DATA; p <= GCI_PURPOSE_BACKBONE; p++)
        control_starved(c, gci_dial_find(c, (enum gci_purpose)p, k->peer), how_long, "it is out of descriptors or memory");
}

/* No connection can be had here, and somebody wants one: the neighbours hear of it. When they are to hear of it again. */
static int64_t control_starves(gci_control *c)
{
    int64_t how_long = c->now - c->starved_since;
    uint8_t body[4];

    if (!c->starved_since || c->phase < GCI_PHASE_RUN || c->phase >= GCI_PHASE_LEAVE)
        return GCI_FOREVER;
    if (c->now < c->starved_tell_at)
        return c->starved_tell_at;
    if (c->now - c->starved_at > control_ms(CONTROL_STARVED_MS)) {
        c->starved_since = 0;
        return GCI_FOREVER;
    }
    gci_put32(body, how_long < control_ms(1) * UINT32_MAX ? (uint32_t)(how_long / control_ms(1)) : UINT32_MAX);
    for (int i = 0; i < c->neighbours; i++)
        if (c->neighbour[i]->conn)      /* no room: next time */
            (void)gci_conn_send(c, c->neighbour[i]->conn, GCI_FRAME_STARVED, 0, body, sizeof body);
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        if (gci_dial_is_starved(d))
            control_starved(c, d, how_long, gci_strerrno(c->starved));
    return c->starved_tell_at = c->now + control_ms(CONTROL_STARVED_MS);
}

/* Calls that nobody has answered. When the next is due. */
static int64_t control_timers(gci_control *c)
{
    int64_t next = control_starves(c);

    for (int i = 0; i < c->neighbours; i++) {
        gci_neighbour *n = c->neighbour[i];
        if (n->waits[0] && gci_life_is_down(c, n))
            n->called[0] = c->now;          /* there is no control connection any more to wait for */
        if (n->called[0] && c->now >= n->called[0]) {
            n->called[0] = 0;
            n->waits[0] = false;
            control_no_link(c, GCI_PURPOSE_DATA, n->rank, GC_ERR_UNREACHABLE, "only it could open the connection, and did not");
        }
        if (n->called[0] && n->called[0] < next)
            next = n->called[0];
        for (unsigned p = GCI_PURPOSE_DATA; p <= GCI_PURPOSE_BACKBONE; p++) {
            int64_t at = control_recall(c, n, p);
            next = at < next ? at : next;
        }
    }
    return next;
}

/* ---- what dial.c tells ----------------------------------------------------------------------------------------- */

static enum gci_refusal control_judge(gci_control *c, gci_conn *k)
{
    gci_neighbour *n = gci_life_find(c, k->peer);
    gci_dial *d = gci_dial_find(c, (enum gci_purpose)k->purpose, k->peer);
    uint32_t epoch;

    if (k->purpose == GCI_PURPOSE_CONTROL && n && gci_life_gave_up(c, n))
        return GCI_REFUSE_SILENCE;
    if (c->phase >= GCI_PHASE_FAILED || c->gone[k->peer])
        return GCI_REFUSE_LEAVING;
    if (k->purpose == GCI_PURPOSE_JOIN || k->purpose == GCI_PURPOSE_FETCH)
        return gci_join_judge(c, k);
    if (k->purpose == GCI_PURPOSE_CONTROL && !n && c->phase > GCI_PHASE_QUIESCE)
        return GCI_REFUSE_LEAVING;
    if (k->purpose != GCI_PURPOSE_CONTROL && !c->table.ranks)
        return GCI_REFUSE_PURPOSE;
    if (k->purpose == GCI_PURPOSE_BACKBONE && !n)
        return GCI_REFUSE_PURPOSE;
    if ((k->purpose == GCI_PURPOSE_CONTROL || k->purpose == GCI_PURPOSE_BACKBONE) && n && gci_life_is_down(c, n))
        return GCI_REFUSE_PURPOSE;
    if (k->purpose >= GCI_PURPOSE_DATA && c->phase == GCI_PHASE_LEAVE)
        return GCI_REFUSE_LEAVING;
    if ((k->purpose == GCI_PURPOSE_DATA || k->purpose == GCI_PURPOSE_STRAND) && atomic_load(&c->full))
        return GCI_REFUSE_FULL;
    if (k->purpose == GCI_PURPOSE_STRAND)
        return GCI_REFUSE_NOT;
    if (d && d->chosen && c->place.rank < k->peer)
        return GCI_REFUSE_BUSY;
    epoch = k->purpose != GCI_PURPOSE_CONTROL ? *control_delivered(c, k->purpose, k->peer) : n ? n->ups : 0;
    if (k->shake.step == GCI_SHAKE_HELLO)
        k->epoch = epoch;
    return k->epoch == epoch ? GCI_REFUSE_NOT : GCI_REFUSE_BUSY;
}

static void control_deliver_strand(gci_control *c, gci_conn *k)
{
    gci_news news = { .kind = GCI_NEWS_LINK, .rank = k->peer, .other = -1, .purpose = GCI_PURPOSE_STRAND, .id = k->shake.id,
                      .at = k->addr, .strand = k->shake.strand, .trunk = k->shake.trunk };
    news.fd = gci_conn_hand_over(c, k);
    gci_life_tell(c, &news);
}

static void control_deliver(gci_control *c, gci_conn *k)
{
    gci_news news = { .kind = GCI_NEWS_LINK, .rank = k->peer, .other = -1, .purpose = (enum gci_purpose)k->purpose,
                      .id = k->shake.id, .at = k->addr };
    gci_neighbour *n = gci_life_find(c, k->peer);
    int which = control_which(k->purpose);

    gci_dial_end(c, gci_dial_find(c, news.purpose, k->peer));
    if (k->purpose == GCI_PURPOSE_DATA)
        news.strands = gci_reach_strands(c, k);
    ++*control_delivered(c, k->purpose, k->peer);
    if (n) {
        n->called[which] = 0;
        n->waits[which] = false;
        n->linked_at[which] = c->now;
        n->linked_id[which] = news.id;
    }
    news.fd = gci_conn_hand_over(c, k);
    gci_life_tell(c, &news);
}

static void control_proven(gci_control *c, gci_conn *k)
{
    if (k->purpose == GCI_PURPOSE_JOIN || k->purpose == GCI_PURPOSE_FETCH) {
        gci_join_proven(c, k);
    } else if (k->purpose == GCI_PURPOSE_CONTROL) {
        if (gci_life_running(c) && !gci_life_find(c, k->peer))
            gci_rescue_up(c, k);
        if (k->stage != GCI_CONN_PROVEN)
            return;
        gci_life_up(c, k);
        control_again(c, k->peer);
    } else if (k->purpose == GCI_PURPOSE_STRAND) {
        control_deliver_strand(c, k);
    } else {
        control_deliver(c, k);
    }
}

static void control_missed(gci_control *c, gci_dial *d, int candidate, int err)
{
    if (d->purpose == GCI_PURPOSE_CONTROL)
        gci_life_missed(c, d, candidate, err);
    else if (control_is_link(d->purpose) && err == GCI_REFUSE_FULL)
        control_dial_failed(c, d);          /* that was the peer itself */
}

static void control_round(gci_control *c, gci_dial *d)
{
    if (d->purpose == GCI_PURPOSE_CONTROL)
        gci_mesh_round(c, d);
    else if (d->purpose == GCI_PURPOSE_STRAND || (d->purpose == GCI_PURPOSE_DATA && gci_dial_hopeless(d)))
        control_dial_failed(c, d);
    else if (!control_is_link(d->purpose))
        gci_join_round(c, d);
}

static void control_expired(gci_control *c, gci_dial *d)
{
    if (d->purpose == GCI_PURPOSE_CONTROL)
        gci_life_expired(c, d);
    else if (d->purpose >= GCI_PURPOSE_DATA)
        control_dial_failed(c, d);
    else
        gci_join_expired(c, d);
}

static bool control_frame(gci_control *c, gci_conn *k, unsigned kind, unsigned flag, const uint8_t *body, size_t bytes)
{
    bool call = kind == GCI_FRAME_CALL && bytes == 4 && control_is_link(flag & ~(unsigned)GCI_CALL_FAILED);
    bool starved = kind == GCI_FRAME_STARVED && bytes == 4;

    if (k->purpose == GCI_PURPOSE_CONTROL && !call && !starved)
        return gci_life_frame(c, k, kind, flag, body, bytes);
    if (k->purpose == GCI_PURPOSE_CONTROL && c->phase < GCI_PHASE_RUN)
        return false;               /* of a neighbour for whom the start is over */
    if (k->purpose == GCI_PURPOSE_CONTROL && starved)
        control_starved_frame(c, k, body);
    else if (k->purpose == GCI_PURPOSE_CONTROL)
        control_call_frame(c, k, flag, body);
    else if (!gci_mesh_frame(c, k, kind, flag, body, bytes))
        gci_join_frame(c, k, kind, flag, body, bytes);
    return true;
}

static void control_refill(gci_control *c, gci_conn *k)
{
    if (k->purpose == GCI_PURPOSE_CONTROL) {
        gci_life_refill(c, k);
        return;
    }
    gci_join_refill(c, k);
    gci_mesh_refill(c, k);
}

static void control_closed(gci_control *c, gci_conn *k, int err)
{
    if (k->purpose == GCI_PURPOSE_CONTROL)
        gci_life_closed(c, k, err);
    else
        gci_join_closed(c, k, err);
}

static const gci_dial_upcalls control_upcalls = {
    control_judge, control_proven, control_missed, control_round, control_expired, control_frame, control_refill, control_closed
};

/* ---- requests -------------------------------------------------------------------------------------------------- */

static void control_request_free(gci_control *c, struct gci_control_request *r)
{
    if (!r->spare) {
        gci_free(c->env, r);
        return;
    }
    c->sys->enter(c->sys, c->monitor);
    r->next = c->spare;
    c->spare = r;
    c->sys->leave(c->sys, c->monitor);
}

/* What has been laid down for control to tell; false: no more. */
static bool control_verdict(gci_control *c, gci_notice *n)
{
    bool found = false;

    c->sys->enter(c->sys, c->monitor);
    if (c->abort.kind) {
        *n = c->abort;
        c->abort.kind = 0;
        found = true;
    }
    for (int rank = 0; c->judged && !found && rank < c->place.ranks; rank++)
        if (c->given_up[rank]) {
            *n = (gci_notice){ .kind = GCI_NOTICE_LOST, .origin = (uint32_t)c->place.rank, .word = { (uint32_t)rank, c->given_up[rank] } };
            c->given_up[rank] = 0;
            found = true;
        }
    c->judged = found;
    c->sys->leave(c->sys, c->monitor);
    return found;
}

static void control_inbox(gci_control *c)
{
    struct gci_control_request *list, *next;
    gci_notice verdict;

    while (control_verdict(c, &verdict))
        gci_life_notify(c, &verdict);
    c->sys->enter(c->sys, c->monitor);
    list = c->inbox;
    c->inbox = NULL;
    c->inbox_end = &c->inbox;
    c->sys->leave(c->sys, c->monitor);
    for (; list; list = next) {
        next = list->next;
        if (list->kind == CONTROL_CONNECT)
            control_connect(c, list->purpose, list->rank, list->had);
        else if (list->kind == CONTROL_STRAND)
            control_strand(c, list->rank, list->strand, list->had);
        else if (list->kind == CONTROL_STOP)
            gci_life_stop(c, list->clean);
        else if (list->kind == CONTROL_RESTART)
            gci_life_restart(c);
        else if (list->kind == CONTROL_DOWN)
            gci_life_useless(c, list->rank);
        else
            gci_life_notify(c, &list->notice);
        control_request_free(c, list);
    }
}

/* Most are needed to end well when memory has run out: that a collective has failed here, a new epoch. So a few are kept for that;
 * NULL: all of them are in use, which passes. Verdicts have their own places; of a stall, nothing needs to be told. */
static struct gci_control_request *control_spare(gci_control *c)
{
    struct gci_control_request *r = c->spare;
    if (r)
        c->spare = r->next;
    return r;
}

static int control_ask(gci_control *c, const struct gci_control_request *request)
{
    struct gci_control_request *own = gci_alloc(c->env, sizeof *own), *r;
    bool needed = request->kind != CONTROL_NOTIFY || request->notice.kind != GCI_NOTICE_STALL;

    c->sys->enter(c->sys, c->monitor);
    r = own ? own : needed ? control_spare(c) : NULL;
    if (!r) {
        c->sys->leave(c->sys, c->monitor);
        return GC_ERR_NOMEM;
    }
    *r = *request;
    r->spare = !own;
    r->next = NULL;
    *c->inbox_end = r;
    c->inbox_end = &r->next;
    c->sys->leave(c->sys, c->monitor);
    c->sys->wake(c->sys, c->waker);
    return GC_OK;
}

GCI int gci_control_connect(gci_control *c, enum gci_purpose purpose, int rank, uint32_t had)
{
    if (rank < 0 || rank >= c->place.ranks || rank == c->place.rank || !control_is_link(purpose))
        return GC_ERR_ARG;
    return control_ask(c, &(struct gci_control_request){ .kind = CONTROL_CONNECT, .purpose = purpose, .rank = rank, .had = had });
}

GCI int gci_control_strand(gci_control *c, int rank, unsigned strand, uint32_t trunk)
{
    if (rank < 0 || rank >= c->place.ranks || rank == c->place.rank || !strand || strand > UINT8_MAX || !trunk)
        return GC_ERR_ARG;
    return control_ask(c, &(struct gci_control_request){ .kind = CONTROL_STRAND, .rank = rank, .strand = strand, .had = trunk });
}

GCI void gci_control_full(gci_control *c, bool full) { atomic_store(&c->full, full); }

GCI int gci_control_restart(gci_control *c)
{
    return control_ask(c, &(struct gci_control_request){ .kind = CONTROL_RESTART });
}

GCI bool gci_control_rescued(gci_control *c, int nth, gci_edge *edge)
{
    bool there, down = false;

    c->sys->enter(c->sys, c->monitor);
    there = nth < c->rescues;
    if (there) {
        *edge = (gci_edge){ .a = c->rescued[nth].a, .b = c->rescued[nth].b };
        down = c->rescued[nth].down;
    }
    c->sys->leave(c->sys, c->monitor);
    if (there && !down)
        gci_backbone_cost(&c->topo, c->speed, edge);
    return there;
}

static bool control_has_added(gci_control *c, int rank)
{
    gci_edge e;

    for (int i = 0; gci_control_rescued(c, i, &e); i++)
        if ((e.a == rank && e.b == c->place.rank) || (e.b == rank && e.a == c->place.rank))
            return true;
    return false;
}

GCI int gci_control_down(gci_control *c, int rank)
{
    if (gci_graph_find(&c->graph, c->place.rank, rank) < 0 && !control_has_added(c, rank))
        return GC_ERR_ARG;
    return control_ask(c, &(struct gci_control_request){ .kind = CONTROL_DOWN, .rank = rank });
}

/* A verdict cannot fail for lack of memory: others would not know what this rank holds for certain. */
static void control_lay_down(gci_control *c, const gci_notice *verdict)
{
    c->sys->enter(c->sys, c->monitor);
    if (verdict->kind == GCI_NOTICE_ABORT && !c->abort.kind)        /* the first one counts, here as everywhere */
        c->abort = *verdict;
    else if (verdict->kind == GCI_NOTICE_LOST && !c->given_up[verdict->word[0]])
        c->given_up[verdict->word[0]] = verdict->word[1];
    c->judged = true;
    c->sys->leave(c->sys, c->monitor);
    c->sys->wake(c->sys, c->waker);
}

GCI int gci_control_notify(gci_control *c, const gci_notice *notice)
{
    bool lost = notice->kind == GCI_NOTICE_LOST;

    if (!notice->kind || notice->kind >= GCI_NOTICE_FIRST_INTERNAL || notice->origin >= (uint32_t)c->place.ranks
        || (lost && (notice->word[0] >= (uint32_t)c->place.ranks || !notice->word[1])))
        return GC_ERR_ARG;
    if (lost || notice->kind == GCI_NOTICE_ABORT) {
        control_lay_down(c, notice);
        return GC_OK;
    }
    return control_ask(c, &(struct gci_control_request){ .kind = CONTROL_NOTIFY, .notice = *notice });
}

GCI const gci_table *gci_control_table(const gci_control *c) { return &c->table; }
GCI const gci_topo  *gci_control_topo(const gci_control *c) { return &c->topo; }
GCI const gci_graph *gci_control_graph(const gci_control *c) { return &c->graph; }

/* ---- the thread ------------------------------------------------------------------------------------------------ */

static void control_outcome(gci_control *c, int code)
{
    c->sys->enter(c->sys, c->monitor);
    c->outcome = code;
    c->sys->notify(c->sys, c->monitor);
    c->sys->leave(c->sys, c->monitor);
}

/* The start is over: what was left to rank 0 is now ours, and what neighbours said too early is heard. */
static void control_running(gci_control *c)
{
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        if (d->purpose < GCI_PURPOSE_DATA)
            gci_dial_end(c, d);
    gci_free(c->env, c->wire);
    gci_free(c->env, c->tries);
    c->wire = NULL;
    c->tries = NULL;
    gci_mesh_forget_report(c);
    control_outcome(c, GC_OK);
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i])
            gci_conn_resume(c, c->conn[i]);
}

static int64_t control_timers_of_all(gci_control *c)
{
    int64_t at[] = { gci_dial_timers(c), gci_mesh_timers(c), gci_life_timers(c), gci_rescue_timers(c), gci_join_timers(c),
                     control_timers(c) };
    int64_t next = GCI_FOREVER;

    for (size_t i = 0; i < GCI_COUNT(at); i++)
        next = at[i] < next ? at[i] : next;
    return next;
}

/* Timers, phases and what they queue, until nothing moves by itself. Returns when to look again. */
static int64_t control_settle(gci_control *c, enum gci_phase *seen)
{
    int64_t next;
    do {
        c->dirty = false;
        gci_mesh_settle(c);
        if (c->phase == GCI_PHASE_RUN && *seen < GCI_PHASE_RUN)
            control_running(c);
        gci_rescue_settle(c);
        gci_life_settle(c);
        *seen = c->phase;
        next = control_timers_of_all(c);
        gci_dial_flush(c);
        if (c->phase == GCI_PHASE_QUIESCE && c->now >= c->end_at)
            gci_life_leave(c);
        else if (c->phase == GCI_PHASE_LEAVE || c->phase == GCI_PHASE_FAILED)
            if (c->now >= c->end_at || (c->phase == GCI_PHASE_LEAVE ? gci_life_has_left(c) : gci_join_has_failed(c)))
                c->phase = GCI_PHASE_END;
        if (c->phase >= GCI_PHASE_QUIESCE)
            next = c->end_at < next ? c->end_at : next;
    } while ((c->dirty || *seen != c->phase) && c->phase != GCI_PHASE_END);
    return next;
}

static void control_events(gci_control *c, const gci_event *event, int n)
{
    for (int i = 0; i < n; i++) {
        uint64_t tag = event[i].tag;
        uint32_t at = (uint32_t)tag;
        if (tag == GCI_TAG_WAKER) {
            c->sys->rest(c->sys, c->waker);
            control_inbox(c);
        } else if (tag == GCI_TAG_LISTENER || tag == GCI_TAG_UNIX) {
            gci_dial_accept(c, tag == GCI_TAG_UNIX ? c->unix_listener : c->listener);
        } else if (at < (uint32_t)c->conns && c->conn[at] && c->conn[at]->generation == tag >> 32) {
            gci_conn_event(c, c->conn[at], event[i].events);
        }
    }
}

static void control_run(void *arg)
{
    gci_control *c = arg;
    gci_event event[CONTROL_EVENTS];
    enum gci_phase seen = GCI_PHASE_JOIN;

    gci_join_begin(c);
    while (c->phase != GCI_PHASE_END) {
        int64_t next = control_settle(c, &seen);
        int n;
        if (c->phase == GCI_PHASE_END)
            break;
        n = c->sys->wait(c->sys, c->poller, event, CONTROL_EVENTS,
                         next == GCI_FOREVER ? GCI_FOREVER : next > c->now ? next - c->now : 0);
        c->now = c->sys->now(c->sys);
        if (n >= 0) {
            control_events(c, event, n);
        } else if (n != -EINTR) {           /* a poller that does not work: nothing can be kept up */
            gci_log(c->env, GC_LOG_ERROR, "the control thread cannot wait: %s", gci_strerrno(n));
            gci_join_fail(c, GC_ERR_SYSTEM, "cannot wait for events: %s", gci_strerrno(n));
            c->phase = GCI_PHASE_END;
        }
    }
    control_outcome(c, c->fail_code);
}

/* ---- listening, start and stop --------------------------------------------------------------------------------- */

/* Without a key nobody can be proven, so nothing beyond this host may be able to ask: all roots must be loopback. ENXIO: a name that
 * nobody has. */
static int control_loopback_only(gci_control *c, char text[GCI_TEXT])
{
    gci_addr addr[8];

    for (int i = 0; i < c->place.roots; i++) {
        int n = c->sys->resolve(c->sys, c->place.root[i].host, c->place.root[i].port, addr, (int)GCI_COUNT(addr));
        bool loopback = n > 0;
        if (n < 0) {
            snprintf(text, GCI_TEXT, "cannot look up the rendezvous %.100s: %s", c->place.root[i].host, gci_strerrno(n));
            return n == -ENXIO ? GC_ERR_CONFIG : GC_ERR_SYSTEM;
        }
        for (int k = 0; k < n && k < (int)GCI_COUNT(addr); k++)
            loopback = loopback && gci_addr_is_loopback(&addr[k]);
        if (!loopback) {
            snprintf(text, GCI_TEXT, "no job key, and the rendezvous %.100s is not on this host: set GRIDCOMM_KEY or "
                     "GRIDCOMM_KEY_FILE, or GRIDCOMM_INSECURE=1 to do without", c->place.root[i].host);
            return GC_ERR_CONFIG;
        }
        if (i == 0)
            c->listen_at = addr[0];
    }
    return GC_OK;
}

static int control_adopt(gci_control *c, bool guarded, char text[GCI_TEXT])
{
    int fd = c->sys->adopt(c->sys, c->place.listen_fd, &c->listen_at);

    if (fd < 0) {
        snprintf(text, GCI_TEXT, "GRIDCOMM_LISTEN_FD=%d: %s: %s", c->place.listen_fd,
                 fd == -EBUSY ? "this process has it already, or made it" : "not a listening socket", gci_strerrno(fd));
        return GC_ERR_CONFIG;
    }
    c->listener = fd;
    if (!guarded && !gci_addr_is_loopback(&c->listen_at)) {
        snprintf(text, GCI_TEXT, "no job key, and GRIDCOMM_LISTEN_FD=%d listens beyond this host: set GRIDCOMM_KEY",
                 c->place.listen_fd);
        return GC_ERR_CONFIG;
    }
    return GC_OK;
}

static int control_listen(gci_control *c, const gc_options *options, char text[GCI_TEXT])
{
    /* by PMI a key comes before anybody else does */
    bool guarded = c->place.key_bytes > 0 || c->place.insecure || c->place.pmi.kind != GCI_PMI_NONE, root = c->place.rank == 0;
    uint16_t low = 0, high = 0;
    int err, ports;

    c->listen_at = (gci_addr){ .family = 6 };       /* any address of both families */
    if ((!guarded && (err = control_loopback_only(c, text)) < 0)
        || (options && options->ports && options->ports[0] && (err = gci_ports_parse(options->ports, &low, &high, text)) < 0))
        return err;
    if (root && c->place.listen_fd >= 0)
        return control_adopt(c, guarded, text);
    if (root && c->place.roots)
        low = high = c->place.root[0].port;
    ports = high - low < CONTROL_PORT_TRIES ? high - low + 1 : CONTROL_PORT_TRIES;
    for (int i = 0; i < CONTROL_PORT_ROUNDS * ports; i++) {
        gci_addr at = c->listen_at;
        at.port = (uint16_t)(low + i % ports);
        at.scope = 0;
        c->listener = c->sys->listen(c->sys, &at);
        if (c->listener >= 0) {
            c->listen_at = at;
            return GC_OK;
        }
    }
    snprintf(text, GCI_TEXT, "cannot listen on port %d%s%.0d: %s%s", low, high > low ? "-" : "", high > low ? high : 0,
             gci_strerrno(c->listener), root && c->place.roots ? " (the rendezvous, GRIDCOMM_ROOT)" : "");
    return GC_ERR_SYSTEM;
}

/* Processes of this host may come by a Unix socket, too, which is faster. Where there is none they come by TCP. */
static void control_listen_near(gci_control *c)
{
    gci_addr at = { .family = GCI_UNIX, .port = c->listen_at.port };
    char text[GCI_ADDR_TEXT];
    int err = c->unix_listener = c->sys->listen(c->sys, &at);

    if (err >= 0 && (err = c->sys->watch(c->sys, c->poller, c->unix_listener, GCI_READ, GCI_TAG_UNIX)) < 0)
        c->sys->close(c->sys, c->unix_listener);
    if (err < 0) {
        c->unix_listener = -1;
        gci_log(c->env, GC_LOG_DEBUG, "does not listen at %s: %s", gci_addr_text(&at, text), gci_strerrno(err));
    }
}

static int control_watch(gci_control *c, char text[GCI_TEXT])
{
    int err;

    if ((err = c->poller = c->sys->poller(c->sys)) < 0 || (err = c->waker = c->sys->waker(c->sys)) < 0
        || (err = c->sys->watch(c->sys, c->poller, c->waker, GCI_READ, GCI_TAG_WAKER)) < 0
        || (err = c->sys->watch(c->sys, c->poller, c->listener, GCI_READ, GCI_TAG_LISTENER)) < 0) {
        snprintf(text, GCI_TEXT, "cannot make a poller: %s", gci_strerrno(err));
        return GC_ERR_SYSTEM;
    }
    control_listen_near(c);
    return GC_OK;
}

static int control_arrays(gci_control *c)
{
    size_t n = (size_t)c->place.ranks;

    c->gone = gci_alloc(c->env, n);
    c->parted = gci_alloc(c->env, n * sizeof *c->parted);
    c->loss_room = (uint32_t)n + CONTROL_LOSSES_ROOM;
    c->losses = gci_alloc(c->env, c->loss_room * sizeof *c->losses);
    c->heard = gci_alloc(c->env, n * sizeof *c->heard);
    c->delivered = gci_alloc(c->env, 2 * n * sizeof *c->delivered);
    c->restarts = gci_alloc(c->env, n * sizeof *c->restarts);
    c->restart_at = gci_alloc(c->env, n * sizeof *c->restart_at);
    c->span = gci_alloc(c->env, 2 * n * sizeof *c->span);
    c->given_up = gci_alloc(c->env, n * sizeof *c->given_up);
    c->verdict = gci_alloc(c->env, (n + 1) * sizeof *c->verdict);
    c->stop = gci_alloc(c->env, sizeof *c->stop);
    for (int i = 0; i < CONTROL_SPARES; i++) {
        struct gci_control_request *spare = gci_alloc(c->env, sizeof *spare);
        if (!spare)
            return GC_ERR_NOMEM;
        spare->next = c->spare;
        c->spare = spare;
    }
    if (!c->stop || !c->gone || !c->parted || !c->losses || !c->heard || !c->delivered || !c->restarts || !c->restart_at || !c->span
        || !c->given_up || !c->verdict)
        return GC_ERR_NOMEM;
    if (c->place.rank > 0)
        return GC_OK;
    c->joined = gci_alloc(c->env, n * sizeof(gci_conn *));
    c->card = gci_alloc(c->env, n * sizeof(uint8_t *));
    c->card_bytes = gci_alloc(c->env, n * sizeof *c->card_bytes);
    c->seen = gci_alloc(c->env, n * sizeof *c->seen);
    return c->joined && c->card && c->card_bytes && c->seen ? GC_OK : GC_ERR_NOMEM;
}

static gci_control *control_new(gci_env *env, const gc_options *options, const gci_place *place)
{
    gci_control *c = gci_alloc(env, sizeof *c);
    double start = options && options->start_timeout > 0 ? options->start_timeout : CONTROL_START_S;
    double peer = options && options->peer_timeout > 0 ? options->peer_timeout : CONTROL_PEER_S;

    if (!c)
        return NULL;
    c->env = env;
    c->sys = env->sys;
    c->place = *place;
    c->up = &control_upcalls;
    c->inbox_end = &c->inbox;
    c->outcome = 1;
    c->poller = c->waker = c->listener = c->unix_listener = -1;
    c->now = c->sys->now(c->sys);
    c->start_seconds = start < 1e6 ? start : 1e6;
    c->start_deadline = c->now + (int64_t)(c->start_seconds * (double)GCI_SECOND);
    c->peer_timeout = (int64_t)((peer < 1e6 ? peer : 1e6) * (double)GCI_SECOND);
    c->density = options ? options->link_density : 0;
    c->modelled = options && options->model && options->model[0];
    c->tree_parent = -2;
    atomic_init(&c->full, false);
    return c;
}

static void control_requests_free(gci_control *c, struct gci_control_request *list)
{
    for (struct gci_control_request *next; list; list = next) {
        next = list->next;
        gci_free(c->env, list);
    }
}

static void control_free(gci_control *c)
{
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        gci_dial_end(c, d);
    for (int i = 0; i < c->conns; i++)
        gci_conn_close(c, c->conn[i]);
    gci_dial_flush(c);              /* nothing is open: it only frees */
    if (c->listener >= 0)
        c->sys->close(c->sys, c->listener);
    if (c->unix_listener >= 0)
        c->sys->close(c->sys, c->unix_listener);
    if (c->waker >= 0)
        c->sys->close(c->sys, c->waker);
    if (c->poller >= 0)
        c->sys->close(c->sys, c->poller);
    if (c->monitor)
        c->sys->monitor_free(c->sys, c->monitor);
    control_requests_free(c, c->inbox);
    control_requests_free(c, c->spare);
    gci_free(c->env, c->stop);
    for (int r = 0; c->card && r < c->place.ranks; r++)
        gci_free(c->env, c->card[r]);
    gci_reach_close(c);
    gci_table_free(c->env, &c->table);
    gci_free(c->env, c->wire);
    gci_free(c->env, c->conn);
    gci_free(c->env, c->joined);
    gci_free(c->env, c->card);
    gci_free(c->env, c->card_bytes);
    gci_free(c->env, c->seen);
    while (c->neighbours)
        gci_free(c->env, c->neighbour[--c->neighbours]);
    gci_topo_free(c->env, &c->topo);
    gci_graph_free(c->env, &c->graph);
    gci_free(c->env, c->neighbour);
    gci_free(c->env, c->speed);
    gci_free(c->env, c->require);
    gci_free(c->env, c->report);
    gci_free(c->env, c->tries);
    gci_free(c->env, c->gone);
    gci_free(c->env, c->parted);
    gci_free(c->env, c->rescued);
    gci_free(c->env, c->down);
    gci_free(c->env, c->span);
    gci_free(c->env, c->losses);
    gci_free(c->env, c->restarts);
    gci_free(c->env, c->restart_at);
    gci_free(c->env, c->heard);
    gci_free(c->env, c->given_up);
    gci_free(c->env, c->verdict);
    gci_free(c->env, c->delivered);
    gci_free(c->env, c);
}

GCI int gci_control_start(gci_control **out, gci_env *env, const gc_options *options, const gci_place *place,
                          void (*on_news)(void *user, const gci_news *), void *user, char error_text[GCI_TEXT])
{
    gci_control *c = control_new(env, options, place);
    int err = GC_ERR_NOMEM;

    *out = NULL;
    snprintf(error_text, GCI_TEXT, "out of memory");
    if (!c)
        return err;
    c->on_news = on_news;
    c->user = user;
    if ((err = gci_mesh_read_links(c, options ? options->links : NULL, error_text)) < 0
        || (err = control_arrays(c)) < 0 || (err = control_listen(c, options, error_text)) < 0
        || (err = gci_reach_card(c, options, error_text)) < 0
        || (err = gci_pmi_meet(env, &c->place, &c->me, c->start_deadline, error_text)) < 0
        || (err = control_watch(c, error_text)) < 0)
        goto fail;
    if ((err = c->sys->monitor(c->sys, &c->monitor)) < 0 || (err = c->sys->thread(c->sys, &c->thread, control_run, c)) < 0) {
        snprintf(error_text, GCI_TEXT, "cannot start the control thread: %s", gci_strerrno(err));
        err = GC_ERR_SYSTEM;
        goto fail;
    }
    c->sys->enter(c->sys, c->monitor);
    while (c->outcome > 0)
        c->sys->await(c->sys, c->monitor, GCI_FOREVER);     /* ends: the thread has a deadline */
    err = c->outcome;
    c->sys->leave(c->sys, c->monitor);
    if (err == GC_OK) {
        error_text[0] = 0;
        *out = c;
        return GC_OK;
    }
    c->sys->join(c->sys, c->thread);
    memcpy(error_text, c->text, GCI_TEXT);
fail:
    control_free(c);
    return err;
}

GCI void gci_control_leave(gci_control *c, bool clean)
{
    struct gci_control_request *r = c->stop;    /* allocated at start: a goodbye cannot fail */

    if (!r)
        return;
    r->kind = CONTROL_STOP;
    r->clean = clean;
    c->sys->enter(c->sys, c->monitor);
    *c->inbox_end = r;
    c->inbox_end = &r->next;
    c->stop = NULL;
    c->sys->leave(c->sys, c->monitor);
    c->sys->wake(c->sys, c->waker);
    c->sys->join(c->sys, c->thread);
}

GCI void gci_control_stop(gci_control *c, bool clean)
{
    if (!c)
        return;
    gci_control_leave(c, clean);
    control_free(c);
}
