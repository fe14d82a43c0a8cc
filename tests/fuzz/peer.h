/* peer.h: a world whose one peer is a pair of byte buffers, for tests that play a peer packet by packet: over a link of the
 * pair's own, or as its neighbour in a backbone, in which a third rank is never there.
 * SPDX-License-Identifier: MIT
 *
 * The world has the real overlay, messages and collectives, but no control thread, no socket and no clock: they stand on a
 * system table of this file. Rank 0 is the world, rank 1 the peer, further ranks are never linked. The test puts bytes or
 * packets on the wire (peer_put, peer_say), decides how much of them can be read and in pieces of what size, lets the
 * library run (peer_run), and sees what it said: decoded in said[], and told to a ledger of both directions, from which an
 * honest peer knows what it may say next. What the library says is checked as it comes: well formed, a RESUME first,
 * envelopes in order, chunks only where they were granted, the bytes those of one send.
 *
 * Every payload follows one pattern, so that bytes show that they are of one message and in their place.
 */
#ifndef GCT_PEER_H
#define GCT_PEER_H

#include "gridcomm_int.h"

#include <stdio.h>
#include <stdlib.h>

enum { PEER_ME = 0, PEER_RANK = 1, PEER_RANKS_MAX = 4,
       PEER_POLLER = 1, PEER_WAKER = 2, PEER_FD = 10,   /* descriptors; links from PEER_FD on */
       PEER_LINKS = 32,                                 /* links in one world's life */
       PEER_LEDGER = 512,                               /* envelopes that are remembered, each way */
       PEER_SAID = 4096,                                /* packets of the library that are kept */
       PEER_ROOM_ALL = 1 << 30 };

struct gci_monitor { int inside; };

typedef struct peer_link {
    bool     open;                      /* the library holds it */
    bool     ended, reset;              /* by the peer: in peace, or not */
    unsigned watched;
    uint64_t tag;
    uint8_t *in;                        /* [in_bytes): put on the wire; [in_at, readable) can be read */
    size_t   in_bytes, in_room, in_at, readable;
    uint8_t  head[GCI_HEADER_BYTES];    /* of what the library says: the packet that is coming */
    size_t   head_bytes, body_left;
    gci_packet packet;
    bool     stale;                     /* of an epoch that has ended: nobody listens */
    bool     resumed;                   /* its first packet has come */
    uint16_t epoch;                     /* of what it said last */
} peer_link;

/* An envelope of the library. */
typedef struct peer_sent {
    bool     seen, answer, finished, patterned, keyed, asked_back;
    bool     matched;                   /* the peer has granted or taken it once, whatever was lost since */
    uint8_t  key;
    uint32_t length;
    uint64_t total, from, limit;
} peer_sent;
/* An envelope of the peer. */
typedef struct peer_told {
    bool     said, granted, finished, taken;
    uint8_t  flags;
    uint32_t context, tag, signature, length;
    uint64_t total, at, limit;
} peer_told;

typedef struct peer {
    gci_sys     sys;                    /* first: the table's functions get a pointer to it */
    int64_t     now;
    uint32_t    dice;                   /* 0: reads and writes are whole */
    size_t      piece;                  /* else up to so many bytes */
    size_t      room;                   /* bytes that can be written now */
    bool        hold;                   /* what is put can be read only when released */
    bool        woken;
    int         links;
    peer_link   link[PEER_LINKS];
    int         fail_in;                /* the so manieth allocation from now fails; 0: none */
    size_t      live;                   /* allocations */
    bool        routed;                 /* the peer is a neighbour in the backbone */
    uint16_t    epoch, resumed_in;      /* there: now; in which the peer said RESUME */
    size_t      most;                   /* payload of a packet */
    bool        forged;                 /* the peer has said what the ledger does not know: chunks may come unasked */
    /* the ledger */
    uint32_t    got;                    /* envelopes of the library that have come whole */
    uint32_t    next;                   /* number of the peer's next envelope */
    gci_packet  heard;                  /* ack, credit and window of the library's last packet */
    uint16_t    credit, window;         /* what the peer gives */
    peer_sent   sent[PEER_LEDGER];
    peer_told   told[PEER_LEDGER];
    int         said_count;
    gci_packet  said[PEER_SAID];
    /* the world */
    gci_monitor monitor;
    gci_world   w;
    gci_table   table;
    gci_card    card[PEER_RANKS_MAX];
    gc_comm    *comm;
} peer;

#define peer_must(held) peer_held((held), #held, __FILE__, __LINE__)

static inline void peer_held(bool held, const char *what, const char *file, int line)
{
    if (held)
        return;
    fprintf(stderr, "%s:%d: does not hold: %s\n", file, line, what);
    abort();
}

/* The byte at a place of the message with that key. */
static inline uint8_t peer_byte(uint32_t key, uint64_t at)
{
    return (uint8_t)(key * 151 + at * 7 + (at >> 8) * 13 + (at >> 16) * 29);
}

static inline void peer_fill(uint8_t *buf, size_t bytes, uint32_t key, uint64_t at)
{
    for (size_t i = 0; i < bytes; i++)
        buf[i] = peer_byte(key, at + i);
}

/* Are these the first bytes of one message? */
static inline bool peer_whole(const uint8_t *buf, size_t bytes)
{
    for (size_t i = 1; i < bytes; i++)
        if ((uint8_t)(buf[i] - buf[0]) != peer_byte(0, i))
            return false;
    return true;
}

static inline uint32_t peer_roll(peer *p)
{
    return p->dice = p->dice * 1664525 + 1013904223;
}

static inline size_t peer_piece(peer *p, size_t bytes)
{
    return p->dice && p->piece ? gci_min(bytes, 1 + (peer_roll(p) >> 8) % p->piece) : bytes;
}

/* ---- what the library says ------------------------------------------------------------------------------------ */

static inline void peer_hear_begin(peer *p, peer_link *link)
{
    const gci_packet *k = &link->packet;
    peer_must(gci_packet_decode(&link->packet, link->head) == GC_OK);
    peer_must(k->source == PEER_ME && k->dest == PEER_RANK && k->length <= p->most);
    link->body_left = k->length;
    link->stale = (int16_t)(p->epoch - k->epoch) > 0;
    if (link->stale) {                  /* the library has yet to hear of the present one */
        peer_must(p->routed);
        return;
    }
    if (k->epoch != link->epoch) {      /* a new epoch begins with a RESUME, too */
        peer_must(p->routed && k->epoch == p->epoch);
        link->epoch = k->epoch;
        link->resumed = false;
    }
    bool resume = k->type == GCI_STATE && k->flags & GCI_FLAG_RESUME;
    peer_must(resume != link->resumed);
    link->resumed = true;
    peer_sent *s = k->seq < PEER_LEDGER ? &p->sent[k->seq] : NULL;
    if (k->type == GCI_ENVELOPE && k->flags & GCI_FLAG_AGAIN)
        peer_must(k->seq < p->got && k->length == 0);
    else if (k->type == GCI_ENVELOPE)
        peer_must(k->seq <= p->got);
    if (s && k->type == GCI_ENVELOPE && !s->seen)
        *s = (peer_sent){ .seen = true, .answer = k->flags & GCI_FLAG_SYNC || k->total > k->length, .total = k->total,
                          .length = k->length, .patterned = k->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_P2P };
    if (s && s->seen && k->type == GCI_CHUNK)
        peer_must(k->total + k->length <= s->total);
    if (s && k->type == GCI_CHUNK && !p->forged)
        peer_must(s->seen && k->total >= s->from && k->total + k->length <= s->limit);
}

static inline void peer_hear_bytes(peer *p, peer_link *link, const uint8_t *data, size_t bytes)
{
    const gci_packet *k = &link->packet;
    peer_sent *s = k->seq < PEER_LEDGER ? &p->sent[k->seq] : NULL;
    uint64_t at = (k->type == GCI_CHUNK ? k->total : 0) + (k->length - link->body_left);
    for (size_t i = 0; s && s->patterned && !link->stale && i < bytes; i++) {
        uint8_t key = (uint8_t)(data[i] - peer_byte(0, at + i));
        peer_must(!s->keyed || s->key == key);
        s->keyed = true;
        s->key = key;
    }
    link->body_left -= bytes;
}

/* A new link: the peer goes on from what has come; grants and what followed them may be lost. */
static inline void peer_hear_resume(peer *p, const gci_packet *k)
{
    p->next = k->ack;
    for (int i = 0; i < PEER_LEDGER; i++) {
        p->told[i].granted = false;
        p->sent[i].from = p->sent[i].limit = 0;
    }
}

static inline void peer_hear_end(peer *p, const gci_packet *k)
{
    if (p->said_count < PEER_SAID)
        p->said[p->said_count++] = *k;
    p->heard = *k;
    peer_told *t = k->seq < PEER_LEDGER ? &p->told[k->seq] : NULL;
    if (k->type == GCI_STATE && k->flags & GCI_FLAG_RESUME)
        peer_hear_resume(p, k);
    if (k->type == GCI_ENVELOPE && k->flags & GCI_FLAG_AGAIN && k->seq < PEER_LEDGER)
        p->sent[k->seq].finished = false;       /* the FIN was lost */
    if (k->type == GCI_ENVELOPE && k->flags & GCI_FLAG_AGAIN && k->flags & GCI_FLAG_BACK && k->seq < PEER_LEDGER)
        p->sent[k->seq].asked_back = true;
    if (k->type == GCI_ENVELOPE && k->seq == p->got)
        p->got++;
    if (t && k->type == GCI_GRANT && (!t->granted || t->limit == 0)) {  /* told twice: it goes on from where it is */
        t->granted = true;
        t->at = k->total;
        t->limit = k->context | (uint64_t)k->tag << 32;
    }
    if (t && k->type == GCI_FIN)
        t->finished = true;
    if (t && k->type == GCI_FIN && k->flags & GCI_FLAG_BACK)
        t->taken = true;                /* nobody has it, nor will have */
}

static inline void peer_hear(peer *p, peer_link *link, const uint8_t *data, size_t bytes)
{
    while (bytes > 0) {
        size_t take;
        if (link->head_bytes < GCI_HEADER_BYTES) {
            take = gci_min(bytes, GCI_HEADER_BYTES - link->head_bytes);
            memcpy(link->head + link->head_bytes, data, take);
            link->head_bytes += take;
            if (link->head_bytes == GCI_HEADER_BYTES)
                peer_hear_begin(p, link);
        } else {
            take = gci_min(bytes, link->body_left);
            peer_hear_bytes(p, link, data, take);
        }
        data += take;
        bytes -= take;
        if (link->head_bytes == GCI_HEADER_BYTES && link->body_left == 0) {
            link->head_bytes = 0;
            if (!link->stale)
                peer_hear_end(p, &link->packet);
        }
    }
}

/* ---- the system table ----------------------------------------------------------------------------------------- */

static inline peer_link *peer_link_of(gci_sys *sys, int fd)
{
    peer *p = (peer *)sys;
    peer_must(fd >= PEER_FD && fd < PEER_FD + p->links && p->link[fd - PEER_FD].open);
    return &p->link[fd - PEER_FD];
}

static inline int64_t peer_now(gci_sys *sys) { return ((peer *)sys)->now += 1000; }
static inline void peer_yield(gci_sys *sys) { ((peer *)sys)->now += 1000; }
static inline int  peer_poller(gci_sys *sys) { (void)sys; return PEER_POLLER; }
static inline int  peer_waker(gci_sys *sys) { (void)sys; return PEER_WAKER; }
static inline void peer_wake(gci_sys *sys, int fd) { (void)fd; ((peer *)sys)->woken = true; }
static inline void peer_rest(gci_sys *sys, int fd) { (void)fd; ((peer *)sys)->woken = false; }
static inline void peer_notify(gci_sys *sys, gci_monitor *m) { (void)sys; peer_must(m->inside == 1); }

static inline ssize_t peer_send(gci_sys *sys, int fd, const struct iovec *iov, int n)
{
    peer *p = (peer *)sys;
    peer_link *link = peer_link_of(sys, fd);
    size_t asked = 0, gone = 0;
    if (link->ended || link->reset)
        return -EPIPE;
    for (int i = 0; i < n; i++)
        asked += iov[i].iov_len;
    peer_must(asked > 0);
    size_t take = gci_min(peer_piece(p, asked), p->room);
    if (take == 0)
        return -EAGAIN;
    for (int i = 0; i < n && gone < take; i++) {
        size_t part = gci_min(iov[i].iov_len, take - gone);
        peer_hear(p, link, iov[i].iov_base, part);
        gone += part;
    }
    p->room -= p->room == PEER_ROOM_ALL ? 0 : take;
    return (ssize_t)take;
}

static inline ssize_t peer_recv(gci_sys *sys, int fd, const struct iovec *iov, int n)
{
    peer *p = (peer *)sys;
    peer_link *link = peer_link_of(sys, fd);
    size_t asked = 0, gone = 0;
    for (int i = 0; i < n; i++)
        asked += iov[i].iov_len;
    peer_must(asked > 0);
    size_t take = peer_piece(p, gci_min(asked, link->readable - link->in_at));
    if (link->in_at == link->readable)
        return link->reset ? -ECONNRESET : link->ended ? 0 : -EAGAIN;
    for (int i = 0; i < n && gone < take; i++) {
        size_t part = gci_min(iov[i].iov_len, take - gone);
        memcpy(iov[i].iov_base, link->in + link->in_at, part);
        link->in_at += part;
        gone += part;
    }
    return (ssize_t)take;
}

static inline void peer_acknowledge(gci_sys *sys, int fd) { (void)peer_link_of(sys, fd); }

static inline void peer_shut(gci_sys *sys, int fd)
{
    if (fd >= PEER_FD) {
        peer_link *link = peer_link_of(sys, fd);
        link->open = false;
        free(link->in);
        link->in = NULL;
    }
}

static inline int peer_watch(gci_sys *sys, int poller, int fd, unsigned events, uint64_t tag)
{
    peer_must(poller == PEER_POLLER);
    if (fd == PEER_WAKER)
        return 0;
    peer_link_of(sys, fd)->watched = events;
    peer_link_of(sys, fd)->tag = tag;
    return 0;
}

static inline int peer_wait(gci_sys *sys, int poller, gci_event *event, int max, int64_t timeout)
{
    peer *p = (peer *)sys;
    int n = 0;
    peer_must(poller == PEER_POLLER);
    for (int i = 0; i < p->links && n < max; i++) {
        const peer_link *link = &p->link[i];
        bool readable = link->in_at < link->readable || link->ended || link->reset;
        unsigned events = link->watched & ((readable ? GCI_READ : 0u) | (p->room > 0 || link->reset ? GCI_WRITE : 0u));
        if (link->open && events)
            event[n++] = (gci_event){ link->tag, events };
    }
    if (p->woken && n < max)
        event[n++] = (gci_event){ UINT64_MAX, GCI_READ };
    if (n == 0 && timeout != 0) {
        peer_must(timeout != GCI_FOREVER);      /* nobody would end this wait */
        p->now += timeout;
    }
    return n;
}

/* The tests drive: an I/O thread would not be theirs. */
static inline int peer_thread(gci_sys *sys, gci_thread **thread, void (*run)(void *), void *arg)
{
    (void)sys, (void)thread, (void)run, (void)arg;
    return -ENOSYS;
}

static inline int peer_monitor(gci_sys *sys, gci_monitor **out)
{
    (void)sys;
    *out = calloc(1, sizeof **out);
    return *out ? 0 : -ENOMEM;
}

static inline void peer_monitor_free(gci_sys *sys, gci_monitor *m)
{
    (void)sys;
    peer_must(m->inside == 0);
    free(m);
}

static inline void peer_enter(gci_sys *sys, gci_monitor *m)
{
    (void)sys;
    peer_must(m->inside++ == 0);
}

static inline void peer_leave(gci_sys *sys, gci_monitor *m)
{
    (void)sys;
    peer_must(--m->inside == 0);
}

static inline void peer_await(gci_sys *sys, gci_monitor *m, int64_t timeout)
{
    (void)sys, (void)m, (void)timeout;
    abort();                            /* one thread: nobody else can be driving */
}

static inline void *peer_alloc(void *user, void *old, size_t bytes)
{
    peer *p = user;
    if (bytes == 0) {
        p->live -= old != NULL;
        free(old);
        return NULL;
    }
    if (p->fail_in > 0 && --p->fail_in == 0)
        return NULL;
    p->live += old == NULL;
    return realloc(old, bytes);
}

/* ---- the world ------------------------------------------------------------------------------------------------ */

typedef struct peer_setup {
    int         ranks, credits, queue_packets;
    bool        routed;
    size_t      eager_budget;
    bool        same_host, same_site;
    const char *progress;
} peer_setup;

static inline void peer_inside(peer *p) { peer_enter(&p->sys, &p->monitor); }
static inline void peer_outside(peer *p) { peer_leave(&p->sys, &p->monitor); }

/* A communicator of the listed world ranks (NULL: all), as gridcomm.c makes it. */
static inline gc_comm *peer_comm(peer *p, uint32_t context, const int *ranks, int size)
{
    gc_comm *comm = gci_alloc(&p->w.env, sizeof *comm);
    peer_must(comm != NULL);
    *comm = (gc_comm){ .world = &p->w, .context = context, .size = size, .first_dead = -1, .next = p->w.comms };
    if (ranks) {
        comm->ranks = gci_alloc(&p->w.env, (size_t)size * sizeof *ranks);
        comm->sorted = gci_alloc(&p->w.env, (size_t)size * sizeof *ranks);
        peer_must(comm->ranks && comm->sorted);
        for (int i = 0; i < size; i++) {        /* the list is in order */
            comm->ranks[i] = ranks[i];
            comm->sorted[i] = i;
        }
    }
    comm->rank = gci_comm_rank(comm, PEER_ME);
    for (int i = 0; i < size; i++)
        if (p->w.dead[gci_world_rank(comm, i)] && comm->dead++ == 0)
            comm->first_dead = i;
    peer_must(gci_coll_open(comm) == GC_OK);
    p->w.comms = comm;
    return comm;
}

/* Rank 0 has links to 1, the peer, and to 2, where nobody ever answers: packets for it wait. */
static inline void peer_routes(peer *p)
{
    gci_routes r = { .nodes = p->w.ranks, .self = PEER_ME, .phases = 1, .degree = p->w.ranks > 2 ? 2 : 1 };
    r.neighbour = gci_alloc(&p->w.env, 2 * sizeof *r.neighbour);
    r.came = gci_alloc(&p->w.env, 2 * sizeof *r.came);
    r.next = gci_alloc(&p->w.env, GCI_METRICS * PEER_RANKS_MAX * sizeof *r.next);
    peer_must(r.neighbour && r.came && r.next);
    r.neighbour[0] = PEER_RANK;
    r.neighbour[1] = 2;
    for (int i = 0; i < GCI_METRICS * r.nodes; i++)
        r.next[i] = i % r.nodes == PEER_ME ? GCI_NO_ROUTE : i % r.nodes == 2;
    gci_overlay_use_routes(p->w.overlay, &r);
}

static inline void peer_open(peer *p, const peer_setup *setup)
{
    static const gci_p2p_upcalls upcalls = { gci_coll_signature, gci_coll_fail, gci_coll_notice, gci_coll_is_over };
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    memset(p, 0, sizeof *p);
    p->sys = (gci_sys){ .now = peer_now, .yield = peer_yield, .send = peer_send, .recv = peer_recv,
                        .acknowledge = peer_acknowledge, .close = peer_shut,
                        .poller = peer_poller, .watch = peer_watch, .wait = peer_wait, .waker = peer_waker,
                        .wake = peer_wake, .rest = peer_rest, .thread = peer_thread,
                        .monitor = peer_monitor, .monitor_free = peer_monitor_free,
                        .enter = peer_enter, .leave = peer_leave, .await = peer_await, .notify = peer_notify };
    p->room = PEER_ROOM_ALL;
    p->credit = 64;
    p->window = 64;
    options.alloc = peer_alloc;
    options.alloc_user = p;
    options.progress = setup->progress ? setup->progress : "sleep";
    options.algo = "bcast:binomial";       /* one message, whatever its length */
    options.credits = setup->credits;
    options.queue_packets = setup->queue_packets;
    options.eager_budget = setup->eager_budget;
    options.peer_timeout = 1;
    p->routed = setup->routed;
    p->most = p->routed ? GCI_ROUTED_MAX : GCI_PACKET_MAX;
    gci_env_init(&p->w.env, &p->sys, &options);
    p->w.options = options;
    p->w.monitor = &p->monitor;
    p->w.ranks = setup->ranks;
    p->w.env.rank = PEER_ME;
    p->w.dead = gci_alloc(&p->w.env, (size_t)setup->ranks);
    for (int i = 0; i < setup->ranks; i++)
        p->card[i] = (gci_card){ .host = setup->same_host ? 0 : i, .cluster = i == PEER_ME || setup->same_site ? "here" : "there" };
    p->table = (gci_table){ .ranks = setup->ranks, .hosts = setup->ranks, .card = p->card };
    p->w.table = &p->table;
    peer_must(p->w.dead && gci_p2p_open(&p->w, &upcalls) == GC_OK);
    gci_overlay_start(p->w.overlay, NULL);
    if (p->routed)
        peer_routes(p);
    p->comm = p->w.self = peer_comm(p, 0, NULL, setup->ranks);
}

static inline void peer_free_spares(peer *p)
{
    for (gc_request *r; (r = p->w.spare_requests);) {
        p->w.spare_requests = r->next;
        gci_free(&p->w.env, r);
    }
    for (gc_message *m; (m = p->w.p2p->spare_messages);) {
        p->w.p2p->spare_messages = m->next;
        gci_free(&p->w.env, m);
    }
    for (gci_sent *s; (s = p->w.p2p->spare_sent);) {
        p->w.p2p->spare_sent = s->next;
        gci_free(&p->w.env, s);
    }
}

/* As the end of gc_finalize. Nothing may be left. */
static inline void peer_close(peer *p)
{
    p->fail_in = 0;
    peer_free_spares(p);
    gci_p2p_close(&p->w);
    while (p->w.comms) {
        gc_comm *comm = p->w.comms;
        p->w.comms = comm->next;
        gci_coll_close(comm);
        gci_free(&p->w.env, comm->ranks);
        gci_free(&p->w.env, comm->sorted);
        gci_free(&p->w.env, comm);
    }
    for (gc_request *r; (r = p->w.spare_requests);) {
        p->w.spare_requests = r->next;
        gci_free(&p->w.env, r);
    }
    gci_free(&p->w.env, p->w.dead);
    for (int i = 0; i < p->links; i++)
        peer_must(!p->link[i].open);
    peer_must(atomic_load(&p->w.env.memory) == 0 && p->live == 0 && p->monitor.inside == 0);
}

static inline void peer_run(peer *p)
{
    peer_inside(p);
    gci_overlay_poll(p->w.overlay, -1);
    peer_outside(p);
}

static inline void peer_news(peer *p, enum gci_news_kind kind, int rank, int code)
{
    bool loss = kind == GCI_NEWS_DEAD || kind == GCI_NEWS_LEFT || kind == GCI_NEWS_EPOCH;
    p->epoch = p->routed && loss ? (uint16_t)(p->epoch + 1) : p->epoch;
    gci_news news = { .kind = kind, .rank = rank, .fd = -1, .code = code, .epoch = p->epoch, .text = "as the test says" };
    gci_overlay_news(p->w.overlay, &news);
}

static inline void peer_notice(peer *p, const gci_notice *notice)
{
    gci_news news = { .kind = GCI_NEWS_NOTICE, .rank = PEER_RANK, .fd = -1, .notice = *notice };
    gci_overlay_news(p->w.overlay, &news);
}

/* ---- the wire ------------------------------------------------------------------------------------------------- */

/* The link that the peer speaks on: the newest that the library holds. NULL: none. */
static inline peer_link *peer_wire(peer *p)
{
    peer_link *link = p->links > 0 ? &p->link[p->links - 1] : NULL;
    return link && link->open && !link->ended && !link->reset ? link : NULL;
}

static inline bool peer_linked(peer *p)
{
    return peer_wire(p) && gci_overlay_way(p->w.overlay, PEER_RANK);
}

/* A new link comes as news; the library takes it when it runs. One of the backbone begins an epoch. */
static inline bool peer_connect(peer *p)
{
    if (p->links == PEER_LINKS)
        return false;
    if (p->routed)
        peer_news(p, GCI_NEWS_EPOCH, 0, 0);
    p->link[p->links] = (peer_link){ .open = true, .epoch = p->epoch };
    gci_news news = { .kind = GCI_NEWS_LINK, .rank = PEER_RANK, .purpose = p->routed ? GCI_PURPOSE_BACKBONE : GCI_PURPOSE_DATA,
                      .fd = PEER_FD + p->links++ };
    gci_overlay_news(p->w.overlay, &news);
    return true;
}

static inline void peer_put(peer *p, const uint8_t *data, size_t bytes)
{
    peer_link *link = peer_wire(p);
    if (!link || bytes == 0)
        return;
    if (link->in_bytes + bytes > link->in_room) {
        link->in_room = 2 * (link->in_bytes + bytes);
        link->in = realloc(link->in, link->in_room);
        peer_must(link->in != NULL);
    }
    memcpy(link->in + link->in_bytes, data, bytes);
    link->in_bytes += bytes;
    if (!p->hold)
        link->readable = link->in_bytes;
}

static inline void peer_release(peer *p, size_t bytes)
{
    peer_link *link = peer_wire(p);
    if (link)
        link->readable += gci_min(bytes, link->in_bytes - link->readable);
}

/* A header with what an honest peer fills in. */
static inline gci_packet peer_packet(const peer *p, enum gci_packet_type type)
{
    return (gci_packet){ .type = (uint8_t)type, .source = PEER_RANK, .dest = PEER_ME, .ack = p->got, .credit = p->credit,
                         .window = p->window, .epoch = p->epoch };
}

/* Puts a packet on the wire with the payload that belongs there, and notes it in the ledger. */
static inline void peer_say(peer *p, const gci_packet *k)
{
    static const gci_packet nothing;
    uint8_t head[GCI_HEADER_BYTES];
    if (!peer_wire(p) || memcmp(k, &nothing, sizeof nothing) == 0)
        return;
    gci_packet_encode(k, head);
    peer_put(p, head, sizeof head);
    if ((k->type == GCI_ENVELOPE || k->type == GCI_CHUNK) && k->length > 0 && k->length <= GCI_PACKET_MAX) {
        uint8_t *body = malloc(k->length);
        peer_must(body != NULL);
        peer_fill(body, k->length, k->seq, k->type == GCI_CHUNK ? k->total : 0);
        peer_put(p, body, k->length);
        free(body);
    }
    peer_told *t = k->seq < PEER_LEDGER ? &p->told[k->seq] : NULL;
    peer_sent *s = k->seq < PEER_LEDGER ? &p->sent[k->seq] : NULL;
    if (k->type == GCI_ENVELOPE && !(k->flags & GCI_FLAG_AGAIN) && k->seq == p->next) {
        p->next++;
        if (t && !t->said)
            *t = (peer_told){ .said = true, .flags = k->flags, .context = k->context, .tag = k->tag, .signature = k->signature,
                              .length = k->length, .total = k->total, .at = k->length };
    }
    if (t && k->type == GCI_CHUNK)
        t->at = k->total + k->length;
    if (s && k->type == GCI_GRANT) {
        s->from = k->total < s->from || s->limit == 0 ? k->total : s->from;
        uint64_t limit = k->context | (uint64_t)k->tag << 32;
        s->limit = limit > s->limit ? limit : s->limit;
    }
    if (s && k->type == GCI_FIN)
        s->finished = true;
    if (s && (k->type == GCI_FIN || k->type == GCI_GRANT)) {
        s->asked_back = false;
        s->matched |= !(k->flags & GCI_FLAG_BACK);
    }
    if (k->type == GCI_GRANT && (!peer_wire(p)->resumed || peer_wire(p)->epoch != p->epoch))
        p->forged = true;               /* before it has heard the RESUME, with which the ledger forgets grants */
    if (k->type == GCI_ASK && k->total > 0)
        p->forged = true;               /* granted early, perhaps before it begins: which one is the library's to find */
}

static inline void peer_resume(peer *p)
{
    gci_packet k = peer_packet(p, GCI_STATE);
    k.flags = GCI_FLAG_RESUME;
    p->resumed_in = p->epoch;
    peer_say(p, &k);
}

/* May an honest peer send an envelope with so many bytes now? */
static inline bool peer_may(const peer *p, uint32_t length)
{
    uint64_t bytes = length;
    for (uint32_t seq = p->heard.ack; seq < p->next && seq < PEER_LEDGER; seq++)
        bytes += p->told[seq].length;
    return p->next < PEER_LEDGER && p->next - p->heard.ack < p->heard.credit && bytes <= (uint64_t)p->heard.window * 1024;
}

#endif
