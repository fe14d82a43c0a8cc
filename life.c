/* life.c: control connections to this rank's neighbours: who lives, what was lost, notices, and the goodbye.
 * SPDX-License-Identifier: MIT
 *
 * Neighbours. A rank keeps a control connection along each of its links in the backbone (mesh.c). One that breaks is opened
 * again by both ends, whichever can.
 *
 * Life. A process that dies, however it dies, has its connections closed by its kernel: the neighbours see it at once.
 * Because a connection may also be cut by something in between, its two ends first try to connect again. If the address at
 * which the peer was proven refuses, or answers as somebody else, the peer is dead. Only an address at which this very peer
 * has been met counts: a refusal by a NAT box or by a namesake address says nothing. If the peer has only ever come from there, a
 * firewall may refuse what goes there: then the peer, which could connect before, is given REFUSED_MS to do so again; and if the
 * connection was reset, which a middlebox does too, the refusal proves nothing. If there is no answer for peer_timeout, or the
 * connection itself timed out, only this link is known to be gone: it is down, for good. A rank to which no path of links is left
 * that are up is parted from this one: rescue.c finds it, or gives it up. So a host that went silent is dead when all its neighbours
 * have given up, and a partition makes each side dead for the other, while one cut link costs nobody's life.
 *
 * Silence. A NAT or a firewall may forget a connection and say nothing: then both hosts live, and a fresh connection would pass.
 * So the kernel is asked now and then whether it waits for an answer of the neighbour's; if it has waited for too long, the
 * neighbour is dialled while the old connection still counts. Nothing but peer_timeout is a verdict meanwhile. A
 * fresh one that is proven takes its place; what that loses is told again (flooding, below), asked again (control.c) or said
 * again (the end).
 *
 * To be dead in time. The kernel's time-out starts anew with what is sent meanwhile: of a host that died it may tell nearly twice
 * peer_timeout later. So the same looks that find silence are a verdict, too, when nothing has come for peer_timeout. And because
 * each connection measures for itself, the other neighbours of the two ends of a link that is told down have their kernels
 * look closely: with a time-out of SUSPECT_MS, and something to send. A living host's kernel answers, whatever its processes do.
 *
 * Losses. Deaths, departures, links that are down and restarts are facts that only ever grow, flooded to all; each is counted
 * once, whoever tells it. Their number modulo 2^16 is the label of the epoch, so all ranks reach the same one. A link that parted
 * ranks have added (UP) is such a fact, too. It is told before its loss by whoever tells that, because all tell in the order of
 * their hearing. That a rank was cut off is a matter of time, so it is told as other deaths are.
 *
 * Flooding. Each rank keeps logs: losses (all of them), restarts per origin with the time of the latest, verdicts (of each rank the
 * first that gave it up, and an abort), and the latest GCI_NOTICES_KEPT other notices. A control connection has a cursor in each, which
 * sending moves on, so flooding is nothing
 * but logs that grow and cursors that follow; a connection that replaces a lost one starts at the beginning. Connections are in
 * order and every rank logs in the order of its hearing, so the notices of one origin arrive in order everywhere, and its latest
 * number tells what is new. At most NOTICES_AHEAD notices are sent before the neighbour has SEEN older ones: a neighbour
 * that is stopped costs no memory, and the window of its connection never closes, which TCP_USER_TIMEOUT would take for a
 * death. One that is behind by more notices than are kept misses the oldest of them; it never misses a loss or a verdict. What
 * stalled ranks tell (stall.c) is dropped where it might come to that.
 *
 * The end. Nobody may go while others' packets still need it as a relay. DONE goes up a breadth-first tree over what is left of
 * the backbone, from the lowest living rank, and bears the sender's knowledge of losses (view): it counts only for a parent
 * of the same knowledge, and is said again when that changes. The root's goodbye says that all are done (ALL), and spreads as
 * each who hears it says its own. Any other goodbye is a loss, told to all: of one whose job has failed, or of one that has
 * waited for longer than a verdict on anybody takes (peer_timeout and QUIESCE_MS) and goes all the same. It costs those who
 * are not through a way and a peer, like a death, or they would for ever take it for a way to ranks that died behind it. So it
 * is with ALL, too, for one that has not come to the end: the others must have taken it for dead. But who was through the last
 * barrier says so (THROUGH), and is told so to all: then every rank has been in it, and who still is, held up by one that is
 * stopped, is through as well (gci_coll_fail).
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>

enum {
    LIFE_NOTICES_AHEAD = 32,        /* sent and not SEEN: far below what a socket holds */
    LIFE_SEEN_EVERY = 16,
    LIFE_NOTICE_BYTES = 4 * (3 + GCI_NOTICE_WORDS),
    LIFE_LEAVE_MS = 1000,           /* how long a goodbye waits for those of the neighbours */
    LIFE_QUIESCE_MS = 2000,         /* beyond peer_timeout, before it: a verdict takes up to 1 s more, and must get about */
    LIFE_SUSPECT_MS = 700,          /* time for two lost packets within a site; and both ways to the moon's distance */
    LIFE_SUSPECT_WATCH_MS = 1500,   /* then the usual time-out is back */
    LIFE_SUSPECT_LOOK_MS = 150,     /* so a fresh connection has half of that time */
    LIFE_LOOKS = 8,                 /* for silence, in peer_timeout: with half of it before the first probe, a quarter is left, ... */
    LIFE_LOOK_MS = 2500,            /* ... or more */
    LIFE_REDIAL_MS = 1000,          /* for a fresh connection, at the least */
    LIFE_REFUSED_MS = 500,          /* a living peer that has only ever connected to us does so again at once: some round trips */
    LIFE_OWED = 4,                  /* for this part of peer_timeout an answer must be owed before silence is a verdict */
    LIFE_STARVED_MS = 5000,         /* who has said so within this time is out of descriptors; it says so every second */
    LIFE_TRIED_MS = 200,            /* below the head start of the rank that dials first */
    LIFE_RESTARTS_MOST = 1 << 15,   /* told at once: with more, nobody could tell a later epoch from an earlier one */
    LIFE_LINKS_SPARE = 64,          /* links that may be added without that memory is needed for them */
    LIFE_RESCUES_FIRST = 16,        /* links of survivors, of a first allocation */
    LIFE_RESCUES_MOST = 32          /* for each rank, that others tell of: beyond what any job needs */
};

/* Notices of this room's own. GONE: word 0 the rank, 1 how. DOWN: words 0, 1 the ends, 2 how. RESTART: word 0 how many so far. UP: words
 * 0, 1 the ends of a link that the backbone did not have. */
enum { LIFE_NOTICE_GONE = GCI_NOTICE_FIRST_INTERNAL, LIFE_NOTICE_DOWN, LIFE_NOTICE_RESTART, LIFE_NOTICE_UP };
enum life_how { LIFE_LEFT, LIFE_TIMED_OUT, LIFE_REFUSED, LIFE_SOMEBODY_ELSE, LIFE_MUTE, LIFE_USELESS, LIFE_STARVED,
                LIFE_THROUGH, LIFE_CUT_OFF, LIFE_HOWS };

static int64_t life_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

GCI bool gci_life_running(const gci_control *c) { return c->phase == GCI_PHASE_RUN || c->phase == GCI_PHASE_QUIESCE; }

GCI void gci_life_tell(gci_control *c, gci_news *news)
{
    news->epoch = c->epoch;
    c->on_news(c->user, news);
}

GCI const char *gci_life_address(const gci_control *c, int rank, char text[GCI_ADDR_TEXT])
{
    const gci_host *h = c->table.ranks ? &c->table.host[c->table.card[rank].host] : NULL;
    gci_addr a;

    if (!h || !h->addrs) {
        snprintf(text, GCI_ADDR_TEXT, "port %d", h ? c->table.card[rank].port : 0);
        return text;
    }
    a = h->addr[0].addr;
    a.port = a.port ? a.port : c->table.card[rank].port;
    return gci_addr_text(&a, text);
}

/* ---- neighbours ------------------------------------------------------------------------------------------------ */

/* The place of rank among the neighbours, or where it would be. */
static int life_place(const gci_control *c, int rank)
{
    int lo = 0, hi = c->neighbours;
    while (lo < hi) {
        int mid = (lo + hi) / 2;
        if (c->neighbour[mid]->rank < rank)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

GCI gci_neighbour *gci_life_find(const gci_control *c, int rank)
{
    int at = life_place(c, rank);
    return at < c->neighbours && c->neighbour[at]->rank == rank ? c->neighbour[at] : NULL;
}

GCI gci_neighbour *gci_life_add(gci_control *c, int rank)
{
    int at = life_place(c, rank);
    gci_neighbour *n;

    if (at < c->neighbours && c->neighbour[at]->rank == rank)
        return c->neighbour[at];
    if (c->neighbours == c->neighbours_room) {
        int more = c->neighbours_room ? 2 * c->neighbours_room : 32;
        gci_neighbour **grown = gci_realloc(c->env, c->neighbour, (size_t)more * sizeof *grown);
        if (!grown)
            return NULL;
        c->neighbour = grown;
        c->neighbours_room = more;
    }
    if ((n = gci_alloc(c->env, sizeof *n)) == NULL)
        return NULL;
    n->rank = rank;
    n->edge = -1;
    memmove(c->neighbour + at + 1, c->neighbour + at, (size_t)(c->neighbours - at) * sizeof *c->neighbour);
    c->neighbour[at] = n;
    c->neighbours++;
    return n;
}

GCI void gci_life_drop(gci_control *c, gci_neighbour *n)
{
    int at = life_place(c, n->rank);

    gci_dial_end(c, gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank));
    gci_conn_close(c, n->conn);
    c->neighbours--;
    memmove(c->neighbour + at, c->neighbour + at + 1, (size_t)(c->neighbours - at) * sizeof *c->neighbour);
    gci_free(c->env, n);
}

GCI bool gci_life_is_down(const gci_control *c, const gci_neighbour *n)
{
    return c->down && n->edge >= 0 && c->down[n->edge];
}

static bool life_is_silence(unsigned how) { return how == LIFE_TIMED_OUT || how == LIFE_MUTE; }

/* Is it dead for this rank, or the link to it down because it was silent? */
GCI bool gci_life_gave_up(const gci_control *c, const gci_neighbour *n)
{
    return c->gone[n->rank] == GCI_NEWS_DEAD || (gci_life_is_down(c, n) && life_is_silence(c->down[n->edge] - 1u));
}

/* What the present graph needs once it is agreed. Asked for before READY, so that a rank that has no memory for it
 * fails the start of all and not its own alone, which GO could not take back. */
GCI bool gci_life_prepare(gci_control *c)
{
    uint8_t *grown;

    if (c->down && c->down_room >= c->graph.edges)
        return true;
    if ((grown = gci_alloc(c->env, (size_t)c->graph.edges + LIFE_LINKS_SPARE)) == NULL)
        return false;
    gci_free(c->env, c->down);
    c->down = grown;
    c->down_room = c->graph.edges + LIFE_LINKS_SPARE;
    return true;
}

/* The backbone is agreed: its links are counted from here on, and what was tried beyond them ends. */
GCI bool gci_life_begin(gci_control *c)
{
    if (!gci_life_prepare(c))
        return false;
    for (int i = c->neighbours - 1; i >= 0; i--) {
        gci_neighbour *n = c->neighbour[i];
        n->edge = gci_graph_find(&c->graph, c->place.rank, n->rank);
        if (n->edge < 0)
            gci_life_drop(c, n);
    }
    return true;
}

/* ---- links of the backbone, and those that survivors have added ---------------------------------------------------- */

static int life_edges(const gci_control *c) { return c->graph.edges + c->rescues; }

static void life_ends(const gci_control *c, int edge, int *a, int *b)
{
    int rescue = edge - c->graph.edges;
    *a = rescue < 0 ? c->graph.edge[edge].a : c->rescued[rescue].a;
    *b = rescue < 0 ? c->graph.edge[edge].b : c->rescued[rescue].b;
}

/* Which link joins the two, or -1. */
static int life_edge(const gci_control *c, int x, int y)
{
    int edge = gci_graph_find(&c->graph, x, y), a = x < y ? x : y, b = x < y ? y : x;

    for (int i = 0; edge < 0 && i < c->rescues; i++)
        if (c->rescued[i].a == a && c->rescued[i].b == b)
            edge = c->graph.edges + i;
    return edge;
}

/* Room for one more link. What other threads read (control.c) moves under the monitor. */
static bool life_edge_room(gci_control *c)
{
    int edges = life_edges(c), more = c->rescues ? 2 * c->rescues : LIFE_RESCUES_FIRST;
    struct gci_rescued *grown, *before = c->rescued;
    uint8_t *down;

    if (edges == c->down_room) {
        if ((down = gci_realloc(c->env, c->down, (size_t)edges + LIFE_LINKS_SPARE)) == NULL)
            return false;
        c->down = down;
        c->down_room = edges + LIFE_LINKS_SPARE;
    }
    if (c->rescues < c->rescues_room)
        return true;
    if ((grown = gci_alloc(c->env, (size_t)more * sizeof *grown)) == NULL)
        return false;
    if (before)
        memcpy(grown, before, (size_t)c->rescues * sizeof *grown);
    c->sys->enter(c->sys, c->monitor);
    c->rescued = grown;
    c->sys->leave(c->sys, c->monitor);
    c->rescues_room = more;
    gci_free(c->env, before);
    return true;
}

/* ---- losses ---------------------------------------------------------------------------------------------------- */

static const char *const life_how_text[LIFE_HOWS] = {
    [LIFE_LEFT] = "left", [LIFE_THROUGH] = "left", [LIFE_TIMED_OUT] = "timed out", [LIFE_REFUSED] = "ended and its port refuses",
    [LIFE_SOMEBODY_ELSE] = "ended and its port belongs to somebody else", [LIFE_MUTE] = "ended and it does not answer",
    [LIFE_USELESS] = "carries no data: no connection for it can be opened",
    [LIFE_STARVED] = "carries no data: one end is out of descriptors", [LIFE_CUT_OFF] = "is cut off"
};

/* One more loss is known, or several of a kind. The sum of what each adds does not depend on their order. */
static void life_count(gci_control *c, unsigned kind, uint32_t a, uint32_t b, uint32_t times)
{
    uint32_t h = (kind * 0x9e3779b1u) ^ (a * 0x85ebca6bu) ^ (b * 0xc2b2ae35u);
    h ^= h >> 15;
    h *= 0x2c1b3c6du;
    h ^= h >> 13;
    c->epoch = (uint16_t)(c->epoch + times);
    c->view += (h | 1) * times;
    c->dirty = true;
}

static void life_end_dials(gci_control *c, int rank, bool data)
{
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        if (!d->over && d->peer == rank && d->purpose >= GCI_PURPOSE_CONTROL
            && (data || (d->purpose != GCI_PURPOSE_DATA && d->purpose != GCI_PURPOSE_STRAND)))
            gci_dial_end(c, d);
}

/* A rank is gone; text says why. */
static void life_dead(gci_control *c, int rank, enum gci_news_kind kind, int code, const char *text)
{
    gci_news news = { .kind = kind, .rank = rank, .other = -1, .fd = -1, .code = code };
    gci_neighbour *n = gci_life_find(c, rank);

    c->gone[rank] = (uint8_t)kind;
    c->gone_count++;
    c->look_for_cut_off = true;
    life_count(c, LIFE_NOTICE_GONE, (uint32_t)rank, 0, 1);
    life_end_dials(c, rank, true);
    for (int p = 0; n && p < 2; p++) {
        n->called[p] = 0;
        n->waits[p] = false;
    }
    snprintf(news.text, sizeof news.text, "%s", text);
    gci_log(c->env, GC_LOG_INFO, "%s", text);
    gci_life_tell(c, &news);
}

/* A rank is gone, as seen here or as told. The dead are told too: if it lives, it must hear of it. */
static void life_gone(gci_control *c, const struct gci_lost *l)
{
    char text[GCI_TEXT], address[GCI_ADDR_TEXT];
    bool through = l->how == LIFE_THROUGH, left = through || l->how == LIFE_LEFT;

    if (c->gone[l->a])
        return;
    gci_life_address(c, (int)l->a, address);
    if (left)
        snprintf(text, GCI_TEXT, "rank %u (%s) has left the job", (unsigned)l->a, address);
    else if (l->how == LIFE_CUT_OFF)
        snprintf(text, GCI_TEXT, "rank %u (%s) died or is cut off: rank %u found no way to it", (unsigned)l->a, address,
                 (unsigned)l->origin);
    else
        snprintf(text, GCI_TEXT, "rank %u (%s) died: its connection to rank %u %s", (unsigned)l->a, address,
                 (unsigned)l->origin, life_how_text[l->how]);
    c->losses[c->loss_count++] = *l;        /* there is room for every rank */
    life_dead(c, (int)l->a, left ? GCI_NEWS_LEFT : GCI_NEWS_DEAD, through ? GC_OK : GC_ERR_PEER, text);
}

static void life_saw(gci_control *c, int rank, enum life_how how)
{
    life_gone(c, &(struct gci_lost){ .a = (uint32_t)rank, .origin = (uint32_t)c->place.rank, .kind = LIFE_NOTICE_GONE,
                                     .how = (uint8_t)how, .from = -1 });
}

/* The log has room for all ranks that may still go, and for a link that is down; for one of our own even without memory. */
static bool life_room(gci_control *c, bool own)
{
    uint32_t more = 2 * c->loss_room, kept = (uint32_t)(c->place.ranks - (int)c->gone_count);
    struct gci_lost *grown;

    if (c->loss_count + kept + (own ? 0 : (uint32_t)c->neighbours) < c->loss_room)
        return true;
    if ((grown = gci_realloc(c->env, c->losses, more * sizeof *grown)) == NULL)
        return false;
    c->losses = grown;
    c->loss_room = more;
    return true;
}

/* Another neighbour of this rank found it silent. Is it, for us? The kernel is to find out soon. */
static void life_suspect(gci_control *c, int rank)
{
    gci_neighbour *n = gci_life_find(c, rank);

    if (!n || !n->conn || n->conn->stage != GCI_CONN_PROVEN || n->left || c->gone[rank] || gci_life_is_down(c, n)
        || c->peer_timeout <= life_ms(LIFE_SUSPECT_WATCH_MS))
        return;
    (void)c->sys->tune(c->sys, n->conn->fd, GCI_TUNE_CONTROL, life_ms(LIFE_SUSPECT_MS));
    (void)gci_conn_send(c, n->conn, GCI_FRAME_SEEN, 0, NULL, 0);
    n->suspect_until = c->now + life_ms(LIFE_SUSPECT_WATCH_MS);
    c->look_at = c->now;
}

/* Our own end of a link that is down. */
static void life_cut(gci_control *c, int peer)
{
    gci_neighbour *n = gci_life_find(c, peer);

    if (!n)
        return;
    life_end_dials(c, peer, false);
    gci_conn_close(c, n->conn);
    n->conn = NULL;
    n->waits[1] = false;
    n->called[1] = 0;
    if (n->called[0])
        n->called[0] = c->now;      /* there is nobody to answer it */
}

/* A rank at the end of a link that is down: of one whose host has gone silent much more is about to be heard. */
static void life_doubt(gci_control *c, int rank)
{
    struct gci_parted *p = &c->parted[rank];

    if (!p->doubted_at || c->now - p->doubted_at > life_ms(GCI_DOUBT_MS))
        p->doubted_at = c->now;
    if (!c->doubted_at || c->now - c->doubted_at > life_ms(GCI_DOUBT_MS))
        c->doubted_at = c->now;
}

/* A link is down for good, as seen here or as told. An entry of the log that cannot be made ends in this rank's ignorance
 * rather than in two opinions: it is as if it had not been heard; who told it is asked again with a new connection. */
static bool life_down(gci_control *c, const struct gci_lost *l)
{
    gci_news news = { .kind = GCI_NEWS_DOWN, .rank = (int)l->a, .other = (int)l->b, .fd = -1, .code = GC_ERR_PEER };
    int edge = life_edge(c, (int)l->a, (int)l->b), me = c->place.rank;
    char a[GCI_ADDR_TEXT], b[GCI_ADDR_TEXT];

    if (edge < 0 || c->down[edge])
        return true;
    if (!life_room(c, (int)l->a == me || (int)l->b == me))
        return false;
    c->losses[c->loss_count++] = *l;
    c->down[edge] = (uint8_t)(l->how + 1);
    if (edge >= c->graph.edges) {
        c->sys->enter(c->sys, c->monitor);
        c->rescued[edge - c->graph.edges].down = true;
        c->sys->leave(c->sys, c->monitor);
    }
    c->look_for_cut_off = true;
    if (life_is_silence(l->how)) {
        life_doubt(c, news.rank);
        life_doubt(c, news.other);
    }
    life_count(c, LIFE_NOTICE_DOWN, l->a, l->b, 1);
    if (news.rank == me || news.other == me) {
        life_cut(c, news.rank == me ? news.other : news.rank);
    } else {
        life_suspect(c, news.rank);
        life_suspect(c, news.other);
    }
    snprintf(news.text, sizeof news.text, "the link between rank %d (%s) and rank %d (%s) is gone: it %s", news.rank,
             gci_life_address(c, news.rank, a), news.other, gci_life_address(c, news.other, b), life_how_text[l->how]);
    gci_log(c->env, GC_LOG_INFO, "%s", news.text);
    gci_life_tell(c, &news);
    return true;
}

static void life_saw_down(gci_control *c, int peer, enum life_how how)
{
    int me = c->place.rank;
    struct gci_lost l = { .a = (uint32_t)(me < peer ? me : peer), .b = (uint32_t)(me < peer ? peer : me), .origin = (uint32_t)me,
                          .kind = LIFE_NOTICE_DOWN, .how = (uint8_t)how, .from = -1 };
    if (!life_down(c, &l))
        gci_log(c->env, GC_LOG_ERROR, "no memory to note that the link to rank %d is gone", peer);     /* it is dialled again */
}

/* Two ranks have a link now that the backbone did not have, as seen here or as told. false: no memory to note it. */
static bool life_joined(gci_control *c, const struct gci_lost *l)
{
    gci_news news = { .kind = GCI_NEWS_UP, .rank = (int)l->a, .other = (int)l->b, .fd = -1 };
    int me = c->place.rank, other = news.rank == me ? news.other : news.other == me ? news.rank : -1;
    gci_neighbour *n = NULL;

    if (life_edge(c, news.rank, news.other) >= 0)
        return true;
    if (!life_room(c, false) || !life_edge_room(c) || (other >= 0 && (n = gci_life_add(c, other)) == NULL))
        return false;
    if (n)
        n->edge = life_edges(c);
    c->losses[c->loss_count++] = *l;
    c->down[life_edges(c)] = 0;
    c->sys->enter(c->sys, c->monitor);
    c->rescued[c->rescues] = (struct gci_rescued){ news.rank, news.other, false };
    c->rescues++;
    c->sys->leave(c->sys, c->monitor);
    c->look_for_cut_off = true;
    life_count(c, LIFE_NOTICE_UP, l->a, l->b, 1);
    snprintf(news.text, sizeof news.text, "rank %d and rank %d have a link, which others were cut off without", news.rank, news.other);
    gci_log(c->env, GC_LOG_INFO, "%s", news.text);
    gci_life_tell(c, &news);
    return true;
}

GCI bool gci_life_join(gci_control *c, int peer)
{
    int me = c->place.rank;
    return life_joined(c, &(struct gci_lost){ .a = (uint32_t)(me < peer ? me : peer), .b = (uint32_t)(me < peer ? peer : me),
                                              .origin = (uint32_t)me, .kind = LIFE_NOTICE_UP, .from = -1 });
}

/* Control gets through, and connections for data do not: for routes the link is not there. */
GCI void gci_life_useless(gci_control *c, int rank)
{
    const gci_neighbour *n = gci_life_find(c, rank);
    bool starved = c->starved_since || (n && n->starved_at && c->now - n->starved_at < life_ms(LIFE_STARVED_MS));

    if (gci_life_running(c) && n && !c->gone[rank])
        life_saw_down(c, rank, starved ? LIFE_STARVED : LIFE_USELESS);
}

/* Restarts of an origin, as far as they are new here. */
static void life_restarts(gci_control *c, int origin, uint32_t count)
{
    gci_news news = { .kind = GCI_NEWS_EPOCH, .rank = origin, .other = -1, .fd = -1 };
    uint32_t more = count - c->restarts[origin];

    if (count <= c->restarts[origin])
        return;
    c->restarts[origin] = count;
    c->restart_at[origin] = ++c->restart_clock;
    life_count(c, LIFE_NOTICE_RESTART, (uint32_t)origin, 0, more);
    gci_life_tell(c, &news);
}

GCI void gci_life_restart(gci_control *c)
{
    life_restarts(c, c->place.rank, c->restarts[c->place.rank] + 1);
}

/* ---- who can no longer be reached ------------------------------------------------------------------------------ */

/* A breadth-first tree from root over ranks that live and those of the first `edges` links that are up: span[v] is the parent of
 * v, root its own, -1 where it does not reach. Of several parents the lowest counts, so every rank of the same knowledge finds
 * the same. */
static void life_span_over(gci_control *c, int root, int edges)
{
    int32_t *parent = c->span, *level = c->span + c->place.ranks;
    bool more = true;

    for (int r = 0; r < c->place.ranks; r++)
        parent[r] = level[r] = -1;
    parent[root] = root;
    level[root] = 0;
    for (int at = 0; more; at++) {
        more = false;
        for (int e = 0; e < edges; e++) {
            int a, b, from, to;
            life_ends(c, e, &a, &b);
            from = level[a] == at ? a : b;
            to = from == a ? b : a;
            if (level[from] != at || (level[to] >= 0 && (level[to] <= at || parent[to] < from)) || c->down[e] || c->gone[to])
                continue;
            level[to] = at + 1;
            parent[to] = from;
            more = true;
        }
    }
}

GCI void gci_life_span(gci_control *c, int root) { life_span_over(c, root, life_edges(c)); }

/* "its links 1-4, 2-4 are gone": those that led over the gap. */
static void life_cut_text(const gci_control *c, int rank, char text[GCI_TEXT])
{
    char list[160] = "", address[GCI_ADDR_TEXT];
    size_t at = 0;
    int count = 0;
    bool starved = false;

    for (int e = 0; e < life_edges(c); e++) {
        int a, b;
        bool over;
        life_ends(c, e, &a, &b);
        over = (c->span[a] < 0) != (c->span[b] < 0);
        if (!over || !c->down[e])
            continue;
        starved = starved || c->down[e] == LIFE_STARVED + 1;
        if (at < sizeof list - 24)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s%d-%d", count ? ", " : "", a, b);
        else if (list[at - 1] != '.')
            at += (size_t)snprintf(list + at, sizeof list - at, ", ...");
        count++;
    }
    snprintf(text, GCI_TEXT, "rank %d (%s) died or is cut off: no way to it is left%s%s%s", rank,
             gci_life_address(c, rank, address), starved ? ", as one end is out of descriptors" : "",
             count ? "; links that are gone: " : "", list);
}

/* What others find later of it may be too late: who has been given up by one is given up by all. */
static void life_give_up(gci_control *c, int rank, const char *text)
{
    c->losses[c->loss_count++] = (struct gci_lost){ .a = (uint32_t)rank, .origin = (uint32_t)c->place.rank, .kind = LIFE_NOTICE_GONE,
                                                    .how = LIFE_CUT_OFF, .from = -1 };      /* there is room for every rank */
    life_dead(c, rank, GCI_NEWS_DEAD, GC_ERR_PEER, text);
}

GCI void gci_life_cut_off(gci_control *c, int rank)
{
    char text[GCI_TEXT];

    gci_life_span(c, c->place.rank);
    life_cut_text(c, rank, text);
    life_give_up(c, rank, text);
}

/* A network that had fallen apart is joined again while a verdict is given: over a new link comes the word of its other side that
 * somebody of this rank's own side is dead. It stays with its own, that which the links of the backbone hold together. */
static bool life_is_of_another_side(gci_control *c, int from, int rank)
{
    if (c->gone[from] || c->gone[rank])
        return false;
    life_span_over(c, c->place.rank, c->graph.edges);
    return c->span[rank] >= 0 && c->span[from] < 0;
}

/* Of a host that has fallen silent the other side may just know first. So its word waits: until it is known here as well, or is not. */
static bool life_contests(gci_control *c, const gci_notice *n, int from)
{
    gci_neighbour *by = gci_life_find(c, from);

    if (n->kind != LIFE_NOTICE_GONE || n->word[1] != LIFE_CUT_OFF || n->word[0] >= (uint32_t)c->place.ranks || !by)
        return false;
    if (!gci_life_running(c) || (int)n->word[0] == c->place.rank || !life_is_of_another_side(c, from, (int)n->word[0])) {
        by->contested_since = 0;
        return false;
    }
    if (!by->contested_since)
        by->contested_since = c->now;
    return c->now - by->contested_since < GCI_LIFE_CONTEST;
}

/* ---- telling --------------------------------------------------------------------------------------------------- */

static bool life_send(gci_control *c, gci_conn *k, const gci_notice *n, uint32_t number)
{
    uint8_t body[LIFE_NOTICE_BYTES];

    gci_put32(body, number);
    gci_put32(body + 4, n->kind);
    gci_put32(body + 8, n->origin);
    for (int i = 0; i < GCI_NOTICE_WORDS; i++)
        gci_put32(body + 12 + 4 * i, n->word[i]);
    if (!gci_conn_send(c, k, GCI_FRAME_NOTICE, 0, body, sizeof body))
        return false;
    k->stream->unseen++;
    return true;
}

static bool life_send_loss(gci_control *c, gci_conn *k, const struct gci_lost *l)
{
    gci_notice n = { .kind = l->kind, .origin = l->origin, .word = { l->a, l->how } };

    if (l->kind == LIFE_NOTICE_DOWN || l->kind == LIFE_NOTICE_UP) {
        n.word[1] = l->b;
        n.word[2] = l->how;
    }
    return life_send(c, k, &n, 0);
}

/* The origin whose latest restart was heard of next after `at`, or -1. A look at all of them, because it is rarely needed. */
static int life_next_restart(const gci_control *c, uint32_t at)
{
    int next = -1;

    if (at == c->restart_clock)
        return -1;
    for (int r = 0; r < c->place.ranks; r++)
        if (c->restart_at[r] > at && (next < 0 || c->restart_at[r] < c->restart_at[next]))
            next = r;
    return next;
}

/* Moves the cursors of a connection on, as far as its neighbour has room. Verdicts first: of an abort one hears before one
 * hears of those who left because of it. */
static void life_pump(gci_control *c, gci_conn *k)
{
    gci_stream *s = k->stream;
    int origin;

    while (s->verdict_at < c->verdicts && s->unseen < LIFE_NOTICES_AHEAD) {
        const struct gci_kept *verdict = &c->verdict[s->verdict_at];
        if (verdict->from != k->peer && !life_send(c, k, &verdict->notice, 0))
            return;
        s->verdict_at++;
    }
    if (c->notices - s->notice_at > GCI_NOTICES_KEPT)
        s->notice_at = c->notices - GCI_NOTICES_KEPT;
    while (s->notice_at != c->notices && s->unseen < LIFE_NOTICES_AHEAD) {
        const struct gci_kept *kept = &c->kept[s->notice_at % GCI_NOTICES_KEPT];
        if (kept->from != k->peer && !life_send(c, k, &kept->notice, kept->number))
            return;
        s->notice_at++;
    }
    while (s->loss_at < c->loss_count && s->unseen < LIFE_NOTICES_AHEAD) {
        const struct gci_lost *l = &c->losses[s->loss_at];
        if (l->from != k->peer && !life_send_loss(c, k, l))
            return;
        s->loss_at++;
    }
    while (s->unseen < LIFE_NOTICES_AHEAD && (origin = life_next_restart(c, s->restart_at)) >= 0) {
        gci_notice n = { .kind = LIFE_NOTICE_RESTART, .origin = (uint32_t)origin, .word = { c->restarts[origin] } };
        if (!life_send(c, k, &n, 0))
            return;
        s->restart_at = c->restart_at[origin];
    }
}

GCI void gci_life_refill(gci_control *c, gci_conn *k) { life_pump(c, k); }

/* Some neighbour, perhaps one that is dialled again, has half of the log still to hear: what can be done without must not push out
 * what cannot. */
static bool life_is_crowded(const gci_control *c)
{
    for (int i = 0; i < c->neighbours; i++) {
        const gci_neighbour *n = c->neighbour[i];
        bool hears = n->conn ? n->conn->stage == GCI_CONN_PROVEN : !n->left && !c->gone[n->rank] && !gci_life_is_down(c, n);
        if (hears && c->notices - (n->conn ? n->conn->stream->notice_at : n->notice_at) >= GCI_NOTICES_KEPT / 2)
            return true;
    }
    return false;
}

static void life_keep(gci_control *c, const gci_notice *n, uint32_t number, int from)
{
    if (n->kind == GCI_NOTICE_STALL && life_is_crowded(c))
        return;
    c->kept[c->notices++ % GCI_NOTICES_KEPT] = (struct gci_kept){ *n, number, from };
    c->dirty = true;
}

/* false: it is known. */
static bool life_hear(gci_control *c, const gci_notice *n, uint32_t number, int from)
{
    if (number <= c->heard[n->origin])
        return false;
    c->heard[n->origin] = number;
    life_keep(c, n, number, from);
    return true;
}

static bool life_is_verdict(const gci_notice *n) { return n->kind == GCI_NOTICE_ABORT || n->kind == GCI_NOTICE_LOST; }

/* false: it is known, or makes no sense. It stands whoever said it, and whatever has become of that rank since: so all ranks come
 * to the same conclusion, in whatever order they hear. */
static bool life_judge(gci_control *c, const gci_notice *n, int from)
{
    bool abort = n->kind == GCI_NOTICE_ABORT;

    if (!abort && n->word[0] >= (uint32_t)c->place.ranks)
        return false;
    for (uint32_t i = 0; i < c->verdicts; i++)
        if (c->verdict[i].notice.kind == n->kind && (abort || c->verdict[i].notice.word[0] == n->word[0]))
            return false;
    c->verdict[c->verdicts++] = (struct gci_kept){ *n, 0, from };
    c->dirty = true;
    return true;
}

GCI void gci_life_notify(gci_control *c, const gci_notice *notice)
{
    if (life_is_verdict(notice))
        (void)life_judge(c, notice, -1);
    else
        life_keep(c, notice, ++c->heard[c->place.rank], -1);
}

/* Another rank has given this one up. Where no way is left from here either, it is known why. */
static void life_hear_cut_off(gci_control *c, const gci_notice *n, int from)
{
    char text[GCI_TEXT], address[GCI_ADDR_TEXT];
    int rank = (int)n->word[0];

    if (c->gone[from] || c->gone[rank])         /* who is dead here says so of those who live */
        return;
    if (life_is_of_another_side(c, from, rank)) {
        snprintf(text, sizeof text, "rank %d (%s) was cut off: it has given up rank %d, which is on this side", from,
                 gci_life_address(c, from, address), rank);
        life_give_up(c, from, text);
        life_doubt(c, from);        /* who was reached by it alone is of its side, as is known soon */
        return;
    }
    gci_life_span(c, c->place.rank);
    if (c->span[rank] < 0)
        gci_life_cut_off(c, rank);
    else
        life_gone(c, &(struct gci_lost){ n->word[0], 0, n->origin, LIFE_NOTICE_GONE, LIFE_CUT_OFF, from });
}

/* One of this room's own. false: there was no memory for it. */
static bool life_hear_loss(gci_control *c, const gci_notice *n, int from)
{
    uint32_t ranks = (uint32_t)c->place.ranks;

    if (n->kind == LIFE_NOTICE_GONE && n->word[0] < ranks && n->word[1] == LIFE_CUT_OFF)
        life_hear_cut_off(c, n, from);
    else if (n->kind == LIFE_NOTICE_GONE && n->word[0] < ranks && n->word[1] < LIFE_HOWS)
        life_gone(c, &(struct gci_lost){ n->word[0], 0, n->origin, LIFE_NOTICE_GONE, (uint8_t)n->word[1], from });
    else if (n->kind == LIFE_NOTICE_DOWN && n->word[0] < ranks && n->word[1] < ranks && n->word[2] < LIFE_HOWS)
        return life_down(c, &(struct gci_lost){ n->word[0], n->word[1], n->origin, LIFE_NOTICE_DOWN, (uint8_t)n->word[2], from });
    else if (n->kind == LIFE_NOTICE_UP && n->word[0] < n->word[1] && n->word[1] < ranks && (uint32_t)c->rescues < LIFE_RESCUES_MOST * ranks)
        return life_joined(c, &(struct gci_lost){ n->word[0], n->word[1], n->origin, LIFE_NOTICE_UP, 0, from });
    else if (n->kind == LIFE_NOTICE_RESTART && n->word[0] - c->restarts[n->origin] < LIFE_RESTARTS_MOST)
        life_restarts(c, (int)n->origin, n->word[0]);
    return true;
}

/* false: not yet. Which links there are is not agreed before the start is over, nor are deaths on this side that another one tells. */
static bool life_notice(gci_control *c, gci_conn *k, const uint8_t *body)
{
    uint32_t number = gci_get32(body);
    gci_notice n = { .kind = gci_get32(body + 4), .origin = gci_get32(body + 8) };
    gci_news news = { .kind = GCI_NEWS_NOTICE, .rank = (int)n.origin, .other = -1, .fd = -1 };

    for (int i = 0; i < GCI_NOTICE_WORDS; i++)
        n.word[i] = gci_get32(body + 12 + 4 * i);
    if ((n.kind == LIFE_NOTICE_DOWN || n.kind == LIFE_NOTICE_UP) && c->phase < GCI_PHASE_RUN)
        return false;
    if (life_contests(c, &n, k->peer))
        return false;
    if (++k->stream->heard == LIFE_SEEN_EVERY && gci_conn_send(c, k, GCI_FRAME_SEEN, LIFE_SEEN_EVERY, NULL, 0))
        k->stream->heard = 0;       /* there is always room: it is sent once per so many that wait for it */
    if (n.origin >= (uint32_t)c->place.ranks)
        return true;
    if (n.kind >= GCI_NOTICE_FIRST_INTERNAL) {
        if (!life_hear_loss(c, &n, k->peer)) {
            gci_log(c->env, GC_LOG_ERROR, "no memory to note what rank %d tells", k->peer);
            gci_conn_close(c, k);
            gci_life_closed(c, k, -ENOMEM);
        }
    } else if (n.kind && (life_is_verdict(&n) ? life_judge(c, &n, k->peer)
                                              : n.origin != (uint32_t)c->place.rank && life_hear(c, &n, number, k->peer))) {
        news.notice = n;
        gci_life_tell(c, &news);
    }
    return true;
}

/* ---- connections come and go ----------------------------------------------------------------------------------- */

static void life_say_leave(gci_control *c, gci_conn *k)
{
    life_pump(c, k);                /* what was said before the goodbye */
    if (gci_conn_send(c, k, GCI_FRAME_LEAVE, c->leave, NULL, 0))
        return;
    gci_conn_close(c, k);           /* it has not read for long: the end of the connection must do */
    gci_life_find(c, k->peer)->conn = NULL;
}

/* Only the other side can open connections: we have no address to try, or tried for a while in vain, or it came through a
 * tunnel that is not ours. Else it is not known. */
static bool life_cannot(gci_control *c, const gci_neighbour *n, const gci_conn *k)
{
    const gci_host *h = &c->table.host[c->table.card[n->rank].host];
    const gci_dial *d = gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank);

    if (!k->incoming || gci_reach_by_ssh(c, c->place.rank, n->rank, (char[GCI_ADDR_TEXT + 80]){ 0 }))
        return false;
    if (c->phase < GCI_PHASE_RUN && d && (d->rounds > 0 || c->now - d->begun >= life_ms(LIFE_TRIED_MS)))
        return true;
    return n->cannot || !gci_reach_possible(c, c->place.rank, n->rank)
           || (gci_addr_is_loopback(&k->addr) && strcmp(h->id, c->me.id) != 0);
}

/* Before GO whoever is of the job may connect: in the end rank 0's word decides which links stay. One that comes before the
 * table is here is kept until then. */
GCI void gci_life_up(gci_control *c, gci_conn *k)
{
    gci_neighbour *n = gci_life_find(c, k->peer);

    if (!n && !c->linking && c->phase < GCI_PHASE_RUN) {
        for (int i = 0; i < c->conns; i++)
            if (c->conn[i] && c->conn[i] != k && c->conn[i]->stage == GCI_CONN_PROVEN && c->conn[i]->purpose == GCI_PURPOSE_CONTROL
                && c->conn[i]->peer == k->peer)
                gci_conn_close(c, c->conn[i]);
        return;
    }
    if (!n && c->phase < GCI_PHASE_RUN)
        n = gci_life_add(c, k->peer);
    if (!n || gci_life_is_down(c, n)) {
        gci_conn_close(c, k);
        return;
    }
    gci_conn_close(c, n->conn);     /* the peer has seen its end before us */
    n->conn = k;
    n->left = n->silent = false;
    n->ups++;
    n->suspect_until = n->owed_since = n->hungry_since = n->refused_since = n->contested_since = 0;
    n->cannot = life_cannot(c, n, k);
    gci_dial_end(c, gci_dial_find(c, GCI_PURPOSE_CONTROL, k->peer));
    c->dirty = true;                /* it hears all that is known */
    if (n->rank == c->tree_parent)
        c->done_told = false;
    if (c->phase == GCI_PHASE_LEAVE)
        life_say_leave(c, k);
}

/* Has the peer been met at this address, so that its word about the peer counts? If it came from it, the peer listens there, too;
 * but not if that is a NAT's, which passes on what comes to one port of it. */
static void life_note_proven(gci_control *c, gci_neighbour *n, const gci_conn *k)
{
    const gci_host *h = &c->table.host[c->table.card[n->rank].host];
    gci_addr before = n->proven_at;

    if (k->tunnel)
        return;
    n->proven_at = k->addr;
    if (k->incoming)
        n->proven_at.port = c->table.card[n->rank].port;
    n->dialled = !k->incoming || k->addr.family == GCI_UNIX || gci_addr_is_loopback(&k->addr)
                 || (n->dialled && gci_addr_equal(&before, &n->proven_at) && before.port == n->proven_at.port);
    n->proven = !k->incoming || (gci_addr_is_loopback(&k->addr) && strcmp(h->id, c->me.id) == 0);
    for (int i = 0; i < h->addrs && !n->proven; i++)
        n->proven = gci_addr_equal(&h->addr[i].addr, &k->addr) && !h->addr[i].addr.port;
}

GCI void gci_life_closed(gci_control *c, gci_conn *k, int err)
{
    gci_neighbour *n = gci_life_find(c, k->peer);

    if (!n || n->conn != k)
        return;
    n->notice_at = k->stream->notice_at;
    n->conn = NULL;
    n->silent = false;
    if (n->suspect_until)
        n->heard_at = c->now - c->peer_timeout;     /* others have waited for it */
    else if (!n->owed_since)
        n->heard_at = c->now;
    n->owed_since = 0;
    n->reset = err != 0;
    c->dirty = true;
    if (n->left || c->gone[n->rank] || c->phase >= GCI_PHASE_LEAVE || !c->table.ranks)
        return;
    life_note_proven(c, n, k);
    if (gci_life_running(c) && (err == -ETIMEDOUT || err == -EHOSTUNREACH || err == -ENETUNREACH))
        life_saw_down(c, n->rank, LIFE_TIMED_OUT);
}

/* How long a neighbour is dialled before its link is down. The end of a connection that had been silent for long is hardly a
 * sign of life: a kernel or a NAT tells it late, when a cut is over, of a process that died during it. Nor is one that comes
 * when others have found the neighbour silent, and its kernel is asked. */
static int64_t life_patience(const gci_control *c, const gci_neighbour *n)
{
    int64_t least = life_ms(LIFE_REDIAL_MS), left = n->heard_at + c->peer_timeout - c->now;

    if (n->conn || !n->heard_at || least > c->peer_timeout)
        return c->peer_timeout;
    return gci_max64(left, least);
}

/* Memory for dialling may fail for as long as a dial may: after that the link is down like one that was not answered. */
static void life_dial_again(gci_control *c, gci_neighbour *n)
{
    int candidates;

    if (gci_reach_dial(c, GCI_PURPOSE_CONTROL, n->rank, life_patience(c, n), &candidates)) {
        n->hungry_since = 0;
        return;
    }
    gci_log(c->env, GC_LOG_ERROR, "no memory to connect to rank %d again", n->rank);
    if (n->hungry_since == 0)
        n->hungry_since = c->now;
    if (!n->conn && gci_life_running(c) && c->now - n->hungry_since >= c->peer_timeout)
        life_saw_down(c, n->rank, LIFE_MUTE);
}

/* Whoever is not connected, or silent, has not said goodbye and is not known dead is tried again, by both sides. */
static void life_reconnect(gci_control *c)
{
    for (int i = 0; i < c->neighbours; i++) {
        gci_neighbour *n = c->neighbour[i];
        if ((!n->conn || n->silent) && !n->left && !c->gone[n->rank] && !gci_life_is_down(c, n)
            && !gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank))
            life_dial_again(c, n);
    }
}

/* What an address says if nobody, or somebody else, is there. */
GCI bool gci_life_refuses(int err)
{
    return err == -ECONNREFUSED || err == GCI_REFUSE_JOB || err == GCI_REFUSE_TO || err == GCI_REFUSE_KEY
           || err == GCI_REFUSE_STRANGER || err == GCI_REFUSE_RANKS || err == GCI_REFUSE_VERSION;
}

/* Of a neighbour on this host. Who comes by a Unix socket need not have one to listen at: another process may have taken the
 * name. But its port is its own, at one of the addresses. */
static bool life_left_its_port(const gci_dial *d)
{
    bool gone = false;

    for (int i = 0; i < d->n; i++) {
        int err = d->err[i];
        if (d->goal[i].addr.family == GCI_UNIX)
            continue;
        if (!gci_life_refuses(err) && err != -EAFNOSUPPORT && err != -EADDRNOTAVAIL && err != -ENETUNREACH)
            return false;
        gone = gone || gci_life_refuses(err);
    }
    return gone;
}

/* An address of a neighbour that we try to reach again: is that its death? One that has given up lives, but a link has two ends:
 * nothing is left to wait for, and those that were reached over it alone are parted as they are by silence. */
GCI void gci_life_missed(gci_control *c, gci_dial *d, int candidate, int err)
{
    const gci_addr *at = &d->goal[candidate].addr;
    gci_neighbour *n = gci_life_find(c, d->peer);

    if (!n || !gci_life_running(c))
        return;
    if (err == GCI_REFUSE_SILENCE)
        life_saw_down(c, d->peer, LIFE_TIMED_OUT);
    if (n->conn || !n->proven || d->via[0] || !gci_life_refuses(err))
        return;
    if (!(n->proven_at.family == GCI_UNIX ? life_left_its_port(d) : gci_addr_same(&n->proven_at, at)))
        return;
    if (n->reset && !n->dialled && err == -ECONNREFUSED)
        return;
    if (n->refused_since == 0)
        n->refused_since = c->now;
    if (n->dialled || c->now - n->refused_since >= life_ms(LIFE_REFUSED_MS))
        life_saw(c, d->peer, err == -ECONNREFUSED ? LIFE_REFUSED : LIFE_SOMEBODY_ELSE);
}

GCI void gci_life_expired(gci_control *c, gci_dial *d)
{
    const gci_neighbour *n = gci_life_find(c, d->peer);

    if (gci_life_running(c) && n && !n->conn)
        life_saw_down(c, d->peer, LIFE_MUTE);
}

/* ---- the end --------------------------------------------------------------------------------------------------- */

static void life_leave_frame(gci_control *c, gci_conn *k, unsigned flag)
{
    gci_neighbour *n = gci_life_find(c, k->peer);

    if (!n || n->conn != k)
        return;
    n->left = true;
    c->dirty = true;
    if (flag & GCI_LEAVE_ALL && c->phase == GCI_PHASE_QUIESCE) {
        c->leave = GCI_LEAVE_ALL;
        gci_life_leave(c);
    }
    if (c->phase == GCI_PHASE_LEAVE)
        return;
    life_saw(c, k->peer, flag & (GCI_LEAVE_ALL | GCI_LEAVE_THROUGH) ? LIFE_THROUGH : LIFE_LEFT);
    n->conn = NULL;
    gci_conn_close(c, k);           /* it waits for this */
}

static void life_done_frame(gci_control *c, gci_conn *k, const uint8_t *body)
{
    gci_neighbour *n = gci_life_find(c, k->peer);

    if (!n || n->conn != k)
        return;
    n->done = true;
    n->done_view = gci_get32(body);
    c->dirty = true;
}

GCI bool gci_life_frame(gci_control *c, gci_conn *k, unsigned kind, unsigned flag, const uint8_t *body, size_t bytes)
{
    if (kind == GCI_FRAME_NOTICE && bytes == LIFE_NOTICE_BYTES)
        return life_notice(c, k, body);
    if (kind == GCI_FRAME_SEEN && bytes == 0 && flag <= k->stream->unseen) {
        k->stream->unseen -= flag;
        c->dirty = true;
    } else if (kind == GCI_FRAME_LEAVE && bytes == 0) {
        life_leave_frame(c, k, flag);
    } else if (kind == GCI_FRAME_DONE && bytes == 4) {
        life_done_frame(c, k, body);
    } else {
        gci_log(c->env, GC_LOG_ERROR, "rank %d sent a control frame of kind %u and %zu bytes", k->peer, kind, bytes);
        gci_conn_close(c, k);
        gci_life_closed(c, k, -EPROTO);
    }
    return true;
}

static void life_make_tree(gci_control *c)
{
    int root = 0, me = c->place.rank;

    while (root < c->place.ranks - 1 && c->gone[root])
        root++;
    gci_life_span(c, root);
    c->tree_view = c->view;
    c->tree_parent = c->span[me] == me ? -1 : c->span[me] < 0 ? -2 : c->span[me];
    c->done_told = false;
    for (int i = 0; i < c->neighbours; i++)
        c->neighbour[i]->child = c->span[c->neighbour[i]->rank] == me;
}

/* Nobody is there any more to wait with: they have given up, or were never. */
static bool life_alone(const gci_control *c)
{
    for (int i = 0; i < c->neighbours; i++)
        if (!c->gone[c->neighbour[i]->rank] && !gci_life_is_down(c, c->neighbour[i]))
            return false;
    return true;
}

/* This rank has come to the end. Have all behind it? */
static void life_quiesce(gci_control *c)
{
    gci_neighbour *up;
    uint8_t body[4];

    if (c->parted_count && !c->gone[c->place.rank])     /* they are sought, or dead soon */
        return;
    if (life_alone(c)) {
        gci_life_leave(c);
        return;
    }
    if (c->tree_parent == -2 || c->tree_view != c->view)
        life_make_tree(c);
    for (int i = 0; i < c->neighbours; i++) {
        const gci_neighbour *n = c->neighbour[i];
        if (n->child && !(n->done && n->done_view == c->view))
            return;
    }
    if (c->tree_parent == -1) {
        c->leave = GCI_LEAVE_ALL;
        gci_life_leave(c);
        return;
    }
    up = c->tree_parent >= 0 ? gci_life_find(c, c->tree_parent) : NULL;
    gci_put32(body, c->view);
    if (!c->done_told && up && up->conn)
        c->done_told = gci_conn_send(c, up->conn, GCI_FRAME_DONE, 0, body, sizeof body);
}

GCI void gci_life_stop(gci_control *c, bool clean)
{
    if (c->phase > GCI_PHASE_RUN)
        return;
    c->phase = GCI_PHASE_QUIESCE;
    c->leave = clean ? GCI_LEAVE_THROUGH : 0;
    c->tree_parent = -2;
    c->end_at = c->now + c->peer_timeout + life_ms(LIFE_QUIESCE_MS);
    c->dirty = true;
    if (!clean)
        gci_life_leave(c);
}

GCI void gci_life_leave(gci_control *c)
{
    if (c->phase != GCI_PHASE_QUIESCE)
        return;
    c->phase = GCI_PHASE_LEAVE;
    c->end_at = c->now + life_ms(LIFE_LEAVE_MS);
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        gci_dial_end(c, d);
    for (int i = 0; i < c->neighbours; i++)
        if (c->neighbour[i]->conn)
            life_say_leave(c, c->neighbour[i]->conn);
}

/* The goodbye is done when every neighbour has said its own, or closed. */
GCI bool gci_life_has_left(const gci_control *c)
{
    for (int i = 0; i < c->neighbours; i++) {
        const gci_neighbour *n = c->neighbour[i];
        if (n->conn && n->conn->stage == GCI_CONN_PROVEN && ((!n->left && !c->gone[n->rank]) || n->conn->stream->out_bytes))
            return false;
    }
    return true;
}

/* ---- the turn of the loop -------------------------------------------------------------------------------------- */

GCI void gci_life_settle(gci_control *c)
{
    for (int i = 0; i < c->neighbours; i++)
        if (c->neighbour[i]->contested_since && c->neighbour[i]->conn)
            gci_conn_resume(c, c->neighbour[i]->conn);
    if (!gci_life_running(c))
        return;
    life_reconnect(c);
    if (c->phase == GCI_PHASE_QUIESCE)
        life_quiesce(c);
}

/* Is this neighbour silent? What counts is how long, by our looks, its kernel has owed an answer without saying anything: the
 * time since it last said something is no measure, because before there was perhaps nothing to say. Returns that time all the
 * same, 0 if it owes nothing: life_is_overdue knows what to make of it. */
static int64_t life_listen(gci_control *c, gci_neighbour *n, int64_t patience)
{
    bool up = n->conn && n->conn->stage == GCI_CONN_PROVEN && !n->left && !c->gone[n->rank];
    int64_t silence = up ? c->sys->silence(c->sys, n->conn->fd) : 0;
    gci_dial *d;
    bool silent;

    if (silence <= 0)
        n->owed_since = 0;
    else if (!n->owed_since || c->now - silence > n->owed_since)
        n->owed_since = c->now;
    if (n->owed_since)
        n->heard_at = c->now - silence;
    silent = n->owed_since && c->now - n->owed_since >= patience;
    if (silent != n->silent)
        c->dirty = true;
    if (up && n->silent && !silent && (d = gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank)) != NULL && !d->chosen)
        gci_dial_end(c, d);         /* it has spoken after all */
    n->silent = silent;
    return n->owed_since ? silence : 0;
}

/* It has said nothing for peer_timeout. Part of that time nobody may have asked; but keepalive asks before half of it is over, so
 * for a quarter, by our looks, it has owed an answer. If its host takes a fresh connection, it lives, and its process is perhaps
 * stopped: then the old one is left to its kernel, which may just be waiting before it sends again. */
static bool life_is_overdue(gci_control *c, const gci_neighbour *n, int64_t silence)
{
    const gci_dial *d = gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank);
    int64_t owed = c->peer_timeout / LIFE_OWED, least = life_ms(LIFE_SUSPECT_MS);
    return silence >= c->peer_timeout && c->now - n->owed_since >= (owed > least ? owed : least) && !(d && d->met);
}

/* When the next look is due. */
static int64_t life_look_round(gci_control *c)
{
    int64_t usual = c->peer_timeout / LIFE_LOOKS, most = life_ms(LIFE_LOOK_MS), soon = life_ms(LIFE_SUSPECT_LOOK_MS), next;

    if (!gci_life_running(c))
        return GCI_FOREVER;
    if (c->now < c->look_at)
        return c->look_at;
    usual = usual > most ? most : usual < soon ? soon : usual;
    next = usual;
    for (int i = 0; i < c->neighbours; i++) {
        gci_neighbour *n = c->neighbour[i];
        int64_t silence = life_listen(c, n, n->suspect_until ? soon : usual), left = c->peer_timeout - silence;
        if (silence && life_is_overdue(c, n, silence))
            life_saw_down(c, n->rank, LIFE_TIMED_OUT);
        if (silence && left > 0 && left < next)
            next = left;
        next = n->suspect_until && soon < next ? soon : next;
    }
    return c->look_at = c->now + next;
}

GCI int64_t gci_life_timers(gci_control *c)
{
    int64_t next = life_look_round(c);

    for (int i = 0; i < c->neighbours; i++) {
        gci_neighbour *n = c->neighbour[i];
        if (n->suspect_until && c->now >= n->suspect_until) {
            n->suspect_until = 0;
            if (n->conn && n->conn->stage == GCI_CONN_PROVEN)
                (void)c->sys->tune(c->sys, n->conn->fd, GCI_TUNE_CONTROL, c->peer_timeout);
        }
        if (n->suspect_until && n->suspect_until < next)
            next = n->suspect_until;
        if (n->contested_since && n->conn && c->now < n->contested_since + GCI_LIFE_CONTEST)
            next = gci_min64(next, n->contested_since + GCI_LIFE_CONTEST);
    }
    return next;
}
