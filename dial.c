/* dial.c: how a connection of the control thread is opened, accepted and proven, and how frames travel on it.
 * SPDX-License-Identifier: MIT
 *
 * A connection goes CONNECTING -> SHAKING -> PROVEN -> CLOSED, incoming ones start at SHAKING. Until it is proven it is a
 * stranger's: it holds one small gci_conn and nothing that it sends makes it hold more; it has a deadline that bytes do
 * not extend; and there are at most STRANGERS_MAX of them. Beyond that whoever waits stays in the backlog of the listening
 * socket until one is through, or has been silent for too long and makes place. That is a flood, and the backlog must not grow
 * longer than a peer's patience: until it is over each newcomer takes the place of one drawn by chance. So a peer gets through
 * with a probability that no flood makes zero; one that got dropped comes again.
 *
 * A dial tries a rank's addresses in order, the next as soon as one failed or after a while of silence, all of them in
 * parallel if need be; last resorts when all others have been begun, several at a time. The first that proves itself with its
 * CHALLENGE is chosen: the others are closed before our PROOF leaves, so at most one PROOF is under way and the other side
 * never takes two connections of one dial for good.
 *
 * Where only ssh leads to a rank, a child `ssh -W` is the one address of the dial, and its stream the connection: the same
 * handshake goes over it, so what sshd, agent and user did on the way need not be trusted. Errors of the child show as a
 * closed connection; what it has to say about them goes to our standard error. Attempts are rare: sshd bans who knocks often.
 *
 * Nothing here frees or closes under the feet of a caller: closing marks, gci_dial_flush() frees at the end of a turn of
 * the loop, and sending only queues. So upcalls may end any dial and close any connection.
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>

enum {
    STRANGERS_MAX = 128,            /* 128 * 0.6 KiB; 64 ranks that start at once find room */
    ACCEPT_AT_ONCE = STRANGERS_MAX / 2, /* at each of two sockets: who makes place holds memory until the turn of the loop ends */
    STRANGER_GRACE_MS = 250,        /* a living peer's HELLO is here by then, over most wide areas too */
    CONNECT_DEADLINE_MS = 2000,     /* then afresh: a kernel sends SYN again after 1 s, and may send the next only after 3 s, and 7 s */
    SHAKE_DEADLINE_MS = 5000,       /* four messages over a bad wide area, one of them lost */
    ACCEPT_PAUSE_MS = 100,          /* out of descriptors or memory: let others give some back */
    STAGGER_MS = 250,               /* RFC 8305, 5: the recommended delay between attempts ... */
    STAGGER_ALL_MS = 1000,          /* ... less where there are many addresses: by then all have been tried */
    STAGGER_HURRY_MS = 20,          /* a link was lost, and data waits: its own address may be dead now */
    LAST_AT_ONCE = 4,               /* last resorts begun together */
    BUSY_MS = 50,                   /* "busy": the other side is connecting to us right now */
    BACKOFF_FIRST_MS = 10, BACKOFF_MAX_MS = 200,
    HOPELESS_ROUNDS = 3,            /* in which everybody refused: by then it is no race with somebody who just starts */
    TUNNEL_DEADLINE_MS = 20000,     /* an ssh that has to look up names, and to log in over a bad line */
    TUNNEL_BACKOFF_MS = 1000, TUNNEL_BACKOFF_MAX_MS = 8000,
    TUNNEL_CONNECT_S = 15,          /* ssh's own limit, below ours so that it says what was wrong */
    TUNNEL_PROBES = 3,              /* ssh gives up a silent server after as many of its questions */
    FRAMES_AT_ONCE = 64             /* reads per event, so that one connection does not starve the others */
};

static int64_t dial_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

/* ---- connections -------------------------------------------------------------------------------------------------- */

static gci_conn *conn_new(gci_control *c, int fd)
{
    gci_conn *k = gci_alloc(c->env, sizeof *k);
    int at = 0;

    if (!k)
        return NULL;
    while (at < c->conns && c->conn[at])
        at++;
    if (at == c->conns) {
        int more = c->conns ? 2 * c->conns : 16;
        gci_conn **grown = gci_realloc(c->env, c->conn, (size_t)more * sizeof *grown);
        if (!grown) {
            gci_free(c->env, k);
            return NULL;
        }
        memset(grown + c->conns, 0, (size_t)(more - c->conns) * sizeof *grown);
        c->conn = grown;
        c->conns = more;
    }
    *k = (gci_conn){ .fd = fd, .index = at, .peer = -1, .generation = ++c->generation, .since = c->now,
                     .deadline = c->now + dial_ms(SHAKE_DEADLINE_MS) };
    c->conn[at] = k;
    return k;
}

static int conn_watch(gci_control *c, gci_conn *k, unsigned events)
{
    int err = 0;
    if (events != k->watched)
        err = c->sys->watch(c->sys, c->poller, k->fd, events, (uint64_t)k->generation << 32 | (uint32_t)k->index);
    if (err >= 0)
        k->watched = events;
    return err;
}

GCI int gci_conn_hand_over(gci_control *c, gci_conn *k)
{
    int fd = k->fd;
    (void)conn_watch(c, k, 0);
    k->fd = -1;
    gci_conn_close(c, k);
    return fd;
}

GCI void gci_conn_close(gci_control *c, gci_conn *k)
{
    if (!k || k->stage == GCI_CONN_CLOSED)
        return;
    if (k->incoming && k->stage != GCI_CONN_PROVEN) {
        c->unproven--;
        if (c->accept_at)
            c->accept_at = c->now;          /* there is room again */
    }
    if (k->dial) {
        k->dial->open--;
        if (k->dial->chosen == k)
            k->dial->chosen = NULL;
        k->dial = NULL;
    }
    if (k->fd >= 0) {
        (void)conn_watch(c, k, 0);
        c->sys->close(c->sys, k->fd);
    }
    k->fd = -1;
    k->stage = GCI_CONN_CLOSED;
    c->dirty = true;
}

static const char *dial_why(int err, const gci_shake *s, char text[GCI_TEXT])
{
    if (err < 0)
        snprintf(text, GCI_TEXT, "%s", err == -ETIMEDOUT ? "no answer" : gci_strerrno(err));
    else if (err == 0)
        snprintf(text, GCI_TEXT, "closed the connection");
    else
        gci_shake_text(s, text);
    return text;
}

static void dial_from_first(gci_control *c, gci_dial *d)
{
    d->next = 0;
    d->next_at = c->now + d->backoff;
    d->backoff = d->backoff * 2 < d->backoff_max ? d->backoff * 2 : d->backoff_max;
}

static void dial_round_over(gci_control *c, gci_dial *d)
{
    dial_from_first(c, d);
    d->met = d->mute;                   /* whoever ends connections is not stopped: out of memory, perhaps */
    d->mute = d->repeats = false;
    d->rounds++;
    c->up->round(c, d);
}

/* An answer that will be the same next time. */
static bool dial_final(int err)
{
    return err == -ECONNREFUSED || err == -ENETUNREACH || err == -EHOSTUNREACH || err == -EACCES || err == -EPERM
           || err == -EADDRNOTAVAIL || err == -EAFNOSUPPORT || err == -ENODEV
           || (err > 0 && err != GCI_REFUSE_BUSY && err != GCI_REFUSE_LEAVING && err != GCI_REFUSE_STARTED);
}

/* Is anybody met at an address who may be the peer? */
GCI bool gci_dial_meets(const gci_control *c, const gci_dial *d)
{
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i]->dial == d && c->conn[i]->stage == GCI_CONN_SHAKING)
            return true;
    return false;
}

/* Is an address of the dial being tried? */
static bool dial_tries(const gci_control *c, const gci_dial *d, int candidate)
{
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i]->dial == d && c->conn[i]->candidate == candidate)
            return true;
    return false;
}

/* Some address took a connection and ended it. It has more to say before those that say nothing are given up: a process that
 * dies leaves its port last, and then refuses. */
static bool dial_was_met(const gci_control *c, const gci_dial *d)
{
    for (int i = 0; i < d->n; i++)
        if ((d->err[i] == -ECONNRESET || d->err[i] == -EPIPE) && !dial_tries(c, d, i))
            return true;
    return false;
}

/* An address of a dial gave nothing: what comes next. */
static void dial_missed(gci_control *c, gci_dial *d, int candidate, int err)
{
    d->err[candidate] = err ? err : -ECONNRESET;
    if (err > 0 && dial_final(err))
        d->met = gci_dial_meets(c, d);
    c->up->missed(c, d, candidate, d->err[candidate]);
    if (d->over)
        return;
    if (err == GCI_REFUSE_BUSY) {
        for (int i = 0; i < c->conns; i++)
            if (c->conn[i] && c->conn[i]->dial == d)
                gci_conn_close(c, c->conn[i]);
        d->next = 0;
        d->next_at = c->now + dial_ms(BUSY_MS);
    } else if (!d->open && (d->next == d->n || d->repeats)) {
        dial_round_over(c, d);
    } else if (d->next < d->n) {
        d->next_at = c->now;
    }
}

static void conn_log_failure(gci_control *c, const gci_conn *k, int err)
{
    char address[GCI_ADDR_TEXT], why[GCI_TEXT];

    gci_addr_text(&k->addr, address);
    dial_why(err, &k->shake, why);
    if (k->incoming && err != GCI_REFUSE_BUSY)
        gci_log(c->env, GC_LOG_INFO, "dropped a connection from %s: %s", address, why);
    else if (c->env->debug & GCI_DEBUG_BOOT)
        gci_log(c->env, GC_LOG_DEBUG, "rank %d at %s: %s", k->peer, address, why);
    /* Who finds another key in our CHALLENGE goes without a PROOF. So does one whom another connection served better: when
     * that rank has joined, join.c takes the note back. */
    if (k->incoming && k->shake.step == GCI_SHAKE_PROOF && k->shake.state == GCI_SHAKE_READS && err <= 0 && err != -ETIMEDOUT
        && k->shake.purpose == GCI_PURPOSE_JOIN && c->phase < GCI_PHASE_RUN) {
        snprintf(c->note, sizeof c->note, "%s tried, but has another key", address);
        c->note_rank = k->shake.peer;
    }
}

/* An unproven connection ends: err is an errno, a refusal, or 0 when the other side closed. */
static void conn_fail(gci_control *c, gci_conn *k, int err)
{
    gci_dial *d = k->dial;
    int candidate = k->candidate;

    conn_log_failure(c, k, err);
    if (d) {
        d->peer_version = k->shake.peer_version;
        d->peer_ranks = k->shake.peer_ranks;
    }
    gci_conn_close(c, k);
    if (d && !d->over)
        dial_missed(c, d, candidate, err);
}

static void conn_proven(gci_control *c, gci_conn *k)
{
    bool data = k->purpose >= GCI_PURPOSE_DATA;
    gci_dial *d = k->dial;
    int err;

    if (!data && (k->stream = gci_alloc(c->env, sizeof *k->stream)) == NULL) {
        conn_fail(c, k, -ENOMEM);
        return;
    }
    err = c->sys->tune(c->sys, k->fd, data ? GCI_TUNE_DATA : GCI_TUNE_CONTROL, c->peer_timeout);
    if (err >= 0)
        err = conn_watch(c, k, GCI_READ);
    if (err < 0) {
        conn_fail(c, k, err);
        return;
    }
    if (k->incoming) {
        c->unproven--;
        if (c->accept_at)
            c->accept_at = c->now;
    }
    k->stage = GCI_CONN_PROVEN;
    k->deadline = 0;
    k->dial = NULL;
    if (d) {
        d->open--;
        gci_dial_end(c, d);
    }
    c->up->proven(c, k);
}

/* ---- the handshake on a connection ---------------------------------------------------------------------------------- */

/* All of out leaves, or waits for room. < 0: errno. */
static int shake_send(gci_control *c, gci_conn *k)
{
    gci_shake *s = &k->shake;
    while (s->out_bytes) {
        struct iovec v = { s->out, s->out_bytes };
        ssize_t n = c->sys->send(c->sys, k->fd, &v, 1);
        if (n == -EINTR)
            continue;
        if (n < 0)
            return (int)n;
        s->out_bytes -= (size_t)n;
        memmove(s->out, s->out + n, s->out_bytes);
    }
    return 0;
}

/* 1: some bytes were fed; else a negative errno, or 0 when the other side closed. */
static int shake_read(gci_control *c, gci_conn *k)
{
    uint8_t data[GCI_CHALLENGE_BYTES];
    struct iovec v = { data, gci_shake_wants(&k->shake) };
    ssize_t n;

    do
        n = c->sys->recv(c->sys, k->fd, &v, 1);
    while (n == -EINTR);
    if (n <= 0)
        return (int)n;
    gci_shake_feed(&k->shake, data, (size_t)n);
    return 1;
}

/* Ours is the CHALLENGE that came first: the other connections of the dial end before the PROOF leaves. */
static void shake_choose(gci_control *c, gci_conn *k)
{
    gci_dial *d = k->dial;
    if (!d || d->chosen)
        return;
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i] != k && c->conn[i]->dial == d)
            gci_conn_close(c, c->conn[i]);
    d->chosen = k;
    d->next = d->n;
}

/* Who has sent its PROOF waits for our VERDICT. If we were stopped meanwhile it may have given up, and come by another
 * connection: then the end is here already. -EAGAIN: it waits; else how it ended, as in conn_fail(). */
static int shake_waits(gci_control *c, gci_conn *k)
{
    struct iovec v = { &(uint8_t){ 0 }, 1 };
    ssize_t n;

    do
        n = c->sys->recv(c->sys, k->fd, &v, 1);
    while (n == -EINTR);
    return n > 0 ? GCI_REFUSE_STRANGER : (int)n;
}

/* false: it has ended. */
static bool shake_decide(gci_control *c, gci_conn *k)
{
    enum gci_refusal why = k->shake.refusal;
    int n = k->shake.step == GCI_SHAKE_PROOF ? shake_waits(c, k) : -EAGAIN;

    if (n != -EAGAIN) {
        conn_fail(c, k, n);
        return false;
    }
    if (!why) {
        k->peer = k->shake.peer;
        k->purpose = k->shake.purpose;
        why = c->up->judge(c, k);
    }
    gci_shake_decide(&k->shake, why);
    return true;
}

/* Some of out could not leave. A verdict that does not leave at once would leave both sides unsure of the link: start over. */
static void shake_await_room(gci_control *c, gci_conn *k)
{
    int err = k->shake.state == GCI_SHAKE_DONE ? -EAGAIN : conn_watch(c, k, GCI_READ | GCI_WRITE);
    if (err < 0)
        conn_fail(c, k, err);
}

/* Reads what there is. true: something was. */
static bool shake_go_on(gci_control *c, gci_conn *k)
{
    int n = shake_read(c, k);

    if (n == 1) {
        if (k->shake.step == GCI_SHAKE_VERDICT && !k->shake.acceptor)
            shake_choose(c, k);
        return true;
    }
    if (n == -EAGAIN && (n = conn_watch(c, k, GCI_READ)) >= 0)
        return false;
    conn_fail(c, k, n);
    return false;
}

static void conn_shake(gci_control *c, gci_conn *k)
{
    bool more = true;

    while (more) {
        const gci_shake *s = &k->shake;
        int n = shake_send(c, k);
        if (n == -EAGAIN) {
            shake_await_room(c, k);
            return;
        }
        if (n < 0 || s->state == GCI_SHAKE_FAILED) {
            conn_fail(c, k, n < 0 ? n : s->refusal);
            return;
        }
        if (s->state == GCI_SHAKE_DONE) {
            conn_proven(c, k);
            return;
        }
        more = s->state == GCI_SHAKE_DECIDES ? shake_decide(c, k) : shake_go_on(c, k);
    }
}

static gci_shake_self dial_self(const gci_control *c)
{
    return (gci_shake_self){ c->place.rank, c->place.ranks, c->job, c->place.key, c->place.key_bytes };
}

static void conn_connected(gci_control *c, gci_conn *k)
{
    gci_shake_self self = dial_self(c);
    uint8_t nonce[GCI_NONCE_BYTES];
    int err = k->tunnel ? 0 : c->sys->connected(c->sys, k->fd);

    if (err == -EINPROGRESS)
        return;
    if (err >= 0)
        err = c->sys->random(c->sys, nonce, sizeof nonce);
    if (err >= 0)
        err = c->sys->tune(c->sys, k->fd, GCI_TUNE_HANDSHAKE, c->peer_timeout);
    if (err < 0) {
        conn_fail(c, k, err);
        return;
    }
    if (k->dial && !k->tunnel)
        k->dial->met = true;
    if (k->purpose == GCI_PURPOSE_JOIN)
        self.job = 0;
    gci_shake_connect(&k->shake, &self, k->purpose, k->peer, k->dial ? k->dial->strand : 0, k->dial ? k->dial->trunk : 0, nonce);
    k->stage = GCI_CONN_SHAKING;
    k->deadline = c->now + dial_ms(k->tunnel ? TUNNEL_DEADLINE_MS : SHAKE_DEADLINE_MS);
    conn_shake(c, k);
}

/* ---- frames ------------------------------------------------------------------------------------------------------- */

GCI bool gci_conn_send(gci_control *c, gci_conn *k, unsigned kind, unsigned flag, const void *body, size_t bytes)
{
    gci_stream *s = k->stream;
    uint8_t *at;

    if (k->stage != GCI_CONN_PROVEN || bytes > GCI_FRAME_MAX || s->out_bytes + GCI_FRAME_HEAD + bytes > sizeof s->out)
        return false;
    at = s->out + s->out_bytes;
    at[0] = (uint8_t)kind;
    at[1] = (uint8_t)flag;
    gci_put16(at + 2, (uint16_t)bytes);
    if (bytes)
        memcpy(at + GCI_FRAME_HEAD, body, bytes);
    s->out_bytes += GCI_FRAME_HEAD + bytes;
    c->dirty = true;
    return true;
}

static void stream_end(gci_control *c, gci_conn *k, int err)
{
    gci_conn_close(c, k);
    c->up->closed(c, k, err);
}

static void stream_read(gci_control *c, gci_conn *k);

/* Nothing can be said on it any more, so it ends, even if the peer could still be heard: what was queued here is lost, and only a
 * fresh connection says it again. What the peer said before a reset counts. */
static void stream_broken(gci_control *c, gci_conn *k, int err)
{
    if (err == -EPIPE || err == -ECONNRESET)
        stream_read(c, k);
    if (k->stage == GCI_CONN_PROVEN)
        stream_end(c, k, err);
}

static void stream_flush(gci_control *c, gci_conn *k)
{
    gci_stream *s = k->stream;
    for (;;) {
        struct iovec v;
        ssize_t n;
        int err;
        if (!s->out_bytes)
            c->up->refill(c, k);
        if (!s->out_bytes) {
            if ((err = conn_watch(c, k, GCI_READ)) < 0)
                stream_end(c, k, err);
            return;
        }
        v = (struct iovec){ s->out, s->out_bytes };
        n = c->sys->send(c->sys, k->fd, &v, 1);
        if (n == -EINTR)
            continue;
        if (n == -EAGAIN)
            n = conn_watch(c, k, GCI_READ | GCI_WRITE);
        else if (n >= 0) {
            s->out_bytes -= (size_t)n;
            memmove(s->out, s->out + n, s->out_bytes);
            if (s->patience)
                k->deadline = c->now + s->patience;
            continue;
        }
        if (n < 0)
            stream_broken(c, k, (int)n);
        return;
    }
}

/* Takes whole frames from the front, up to one whose time has not come: it stays, with all behind it. */
static void stream_take(gci_control *c, gci_conn *k)
{
    gci_stream *s = k->stream;
    size_t at = 0;

    while (k->stage == GCI_CONN_PROVEN && s->in_bytes - at >= GCI_FRAME_HEAD) {
        const uint8_t *f = s->in + at;
        size_t bytes = gci_get16(f + 2);
        if (bytes > GCI_FRAME_MAX) {
            gci_log(c->env, GC_LOG_ERROR, "rank %d sent a frame of %zu bytes", k->peer, bytes);
            stream_end(c, k, -EPROTO);
            return;
        }
        if (s->in_bytes - at < GCI_FRAME_HEAD + bytes)
            break;
        if (!c->up->frame(c, k, f[0], f[1], f + GCI_FRAME_HEAD, bytes))
            break;
        at += GCI_FRAME_HEAD + bytes;
    }
    s->in_bytes -= at;
    memmove(s->in, s->in + at, s->in_bytes);
}

static void stream_read(gci_control *c, gci_conn *k)
{
    gci_stream *s = k->stream;
    for (int i = 0; i < FRAMES_AT_ONCE && k->stage == GCI_CONN_PROVEN; i++) {
        struct iovec v = { s->in + s->in_bytes, sizeof s->in - s->in_bytes };
        ssize_t n;
        if (!v.iov_len) {               /* a whole frame fits: it says far more than may be left lying */
            stream_end(c, k, -EPROTO);
            return;
        }
        n = c->sys->recv(c->sys, k->fd, &v, 1);
        if (n == -EAGAIN)
            return;
        if (n == -EINTR)
            continue;
        if (n <= 0) {
            stream_end(c, k, (int)n);
            return;
        }
        s->in_bytes += (size_t)n;
        stream_take(c, k);
    }
}

GCI void gci_conn_resume(gci_control *c, gci_conn *k)
{
    if (k->stage == GCI_CONN_PROVEN && k->stream)
        stream_take(c, k);
}

GCI void gci_conn_event(gci_control *c, gci_conn *k, unsigned events)
{
    if (k->stage == GCI_CONN_CONNECTING)
        conn_connected(c, k);
    else if (k->stage == GCI_CONN_SHAKING)
        conn_shake(c, k);
    else if (k->stage == GCI_CONN_PROVEN) {
        if (events & GCI_WRITE)
            (void)conn_watch(c, k, GCI_READ);       /* gci_dial_flush goes on */
        if (events & GCI_READ)
            stream_read(c, k);
    }
}

GCI void gci_dial_flush(gci_control *c)
{
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i]->stage == GCI_CONN_PROVEN && !(c->conn[i]->watched & GCI_WRITE))
            stream_flush(c, c->conn[i]);
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i]->stage == GCI_CONN_CLOSED) {
            gci_free(c->env, c->conn[i]->stream);
            gci_free(c->env, c->conn[i]);
            c->conn[i] = NULL;
        }
    for (gci_dial **at = &c->dials; *at;) {
        gci_dial *d = *at;
        if (d->over) {
            *at = d->next_dial;
            gci_free(c->env, d);
        } else {
            at = &d->next_dial;
        }
    }
}

/* ---- out of descriptors ---------------------------------------------------------------------------------------------- */

static bool dial_starves(int err) { return err == -EMFILE || err == -ENFILE || err == -ENOMEM || err == -ENOBUFS; }

/* A connection could be had (0), or why not. What control.c makes of it counts from the first failure in a row. */
static void dial_fares(gci_control *c, int err)
{
    if (err >= 0) {
        c->starved = 0;
        c->starved_since = 0;
    } else if (dial_starves(err)) {
        c->starved = err;
        c->starved_at = c->now;
        if (!c->starved_since)
            c->starved_since = c->now;
    }
}

GCI bool gci_dial_is_starved(const gci_dial *d)
{
    for (int i = 0; i < d->n; i++)
        if (!dial_starves(d->err[i]))
            return false;
    return d->n && !d->open;
}

/* ---- accepting ------------------------------------------------------------------------------------------------------ */

/* At both listening sockets, or not at all. */
static int accept_watch(gci_control *c, unsigned events)
{
    int err = c->sys->watch(c->sys, c->poller, c->listener, events, GCI_TAG_LISTENER);

    if (err >= 0 && c->unix_listener >= 0)
        err = c->sys->watch(c->sys, c->poller, c->unix_listener, events, GCI_TAG_UNIX);
    return err;
}

static void accept_pause(gci_control *c, int64_t until)
{
    (void)accept_watch(c, 0);       /* at worst one is looked at again at once */
    c->accept_at = until;
}

/* Who makes place: the one that has been here longest, a mute one before all others; in a flood any. NULL: nobody. */
static gci_conn *accept_victim(gci_control *c)
{
    gci_conn *oldest = NULL, *drawn = NULL;
    bool found_mute = false;
    uint32_t lot;

    if (c->sys->random(c->sys, &lot, sizeof lot) < 0)
        lot = 0;
    lot %= STRANGERS_MAX;
    for (int i = 0; i < c->conns; i++) {
        gci_conn *k = c->conn[i];
        bool mute;
        if (!k || !k->incoming || k->stage != GCI_CONN_SHAKING)
            continue;
        if (lot-- == 0)
            drawn = k;
        mute = k->shake.step == GCI_SHAKE_HELLO;
        if (!oldest || mute > found_mute || (mute == found_mute && k->since < oldest->since)) {
            oldest = k;
            found_mute = mute;
        }
    }
    return c->flooded && drawn ? drawn : oldest;
}

/* Room for one more stranger: at first none goes before its grace is over. */
static bool accept_room(gci_control *c)
{
    gci_conn *victim;

    c->flooded = c->flooded && c->unproven > STRANGERS_MAX / 2;
    if (c->unproven < STRANGERS_MAX || (victim = accept_victim(c)) == NULL)
        return true;
    if (!c->flooded && c->now - victim->since < dial_ms(STRANGER_GRACE_MS)) {
        accept_pause(c, victim->since + dial_ms(STRANGER_GRACE_MS));
        return false;
    }
    c->flooded = true;
    conn_fail(c, victim, -ETIMEDOUT);
    return true;
}

static int accept_one(gci_control *c, int fd, const gci_addr *from)
{
    gci_shake_self self = dial_self(c);
    uint8_t nonce[GCI_NONCE_BYTES];
    gci_conn *k = conn_new(c, fd);
    int err;

    if (!k) {
        c->sys->close(c->sys, fd);
        return -ENOMEM;
    }
    k->incoming = true;
    k->stage = GCI_CONN_SHAKING;
    k->addr = *from;
    c->unproven++;
    err = c->sys->random(c->sys, nonce, sizeof nonce);
    if (err >= 0)
        err = c->sys->tune(c->sys, fd, GCI_TUNE_HANDSHAKE, c->peer_timeout);
    gci_shake_accept(&k->shake, &self, nonce);
    if (err >= 0)
        err = conn_watch(c, k, GCI_READ);
    if (err < 0)
        conn_fail(c, k, err);
    else
        conn_shake(c, k);               /* its HELLO may have waited with it */
    return 0;
}

GCI void gci_dial_accept(gci_control *c, int listener)
{
    for (int i = 0; i < ACCEPT_AT_ONCE && accept_room(c); i++) {
        gci_addr from = { 0 };
        int fd = c->sys->accept(c->sys, listener, &from), err;
        if (fd == -EAGAIN)
            return;
        if (fd == -EINTR)
            continue;
        err = fd < 0 ? fd : accept_one(c, fd, &from);
        if (err < 0 && !c->starved_since)
            gci_log(c->env, GC_LOG_WARN, "cannot accept a connection: %s", gci_strerrno(err));
        dial_fares(c, err);
        if (err < 0) {
            accept_pause(c, c->now + dial_ms(ACCEPT_PAUSE_MS));
            return;
        }
    }
}

/* ---- dialling ------------------------------------------------------------------------------------------------------- */

GCI gci_dial *gci_dial_new(gci_control *c, enum gci_purpose purpose, int peer, const gci_goal *goal, int n, int64_t deadline)
{
    gci_dial *d = gci_alloc(c->env, sizeof *d);

    if (!d)
        return NULL;
    d->purpose = (uint8_t)purpose;
    d->peer = peer;
    d->n = n < GCI_CANDIDATES_MAX ? n : GCI_CANDIDATES_MAX;
    memcpy(d->goal, goal, (size_t)d->n * sizeof *goal);
    d->begun = d->next_at = c->now;
    d->deadline = deadline;
    d->backoff = dial_ms(BACKOFF_FIRST_MS);
    d->backoff_max = dial_ms(BACKOFF_MAX_MS);
    d->next_dial = c->dials;
    c->dials = d;
    c->dirty = true;
    return d;
}

GCI gci_dial *gci_dial_ssh(gci_control *c, enum gci_purpose purpose, int peer, const char *destination, uint16_t port,
                           int64_t deadline)
{
    gci_dial *d = gci_dial_new(c, purpose, peer, &(gci_goal){ .addr = { .port = port } }, 1, deadline);

    if (!d)
        return NULL;
    snprintf(d->via, sizeof d->via, "%s", destination);
    d->backoff = dial_ms(TUNNEL_BACKOFF_MS);
    d->backoff_max = dial_ms(TUNNEL_BACKOFF_MAX_MS);
    return d;
}

GCI gci_dial *gci_dial_find(gci_control *c, enum gci_purpose purpose, int peer)
{
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        if (!d->over && d->peer == peer && d->purpose == purpose)
            return d;
    return NULL;
}

GCI void gci_dial_end(gci_control *c, gci_dial *d)
{
    if (!d || d->over)
        return;
    d->over = true;
    for (int i = 0; i < c->conns; i++)
        if (c->conn[i] && c->conn[i]->dial == d)
            gci_conn_close(c, c->conn[i]);
}

GCI bool gci_dial_hopeless(const gci_dial *d)
{
    bool full = false;

    if (d->via[0])
        return d->err[0] && d->rounds >= HOPELESS_ROUNDS;
    for (int i = 0; i < d->n; i++) {
        if (!dial_final(d->err[i]))
            return false;
        full = full || d->err[i] == GCI_REFUSE_FULL;
    }
    return full || !d->n || d->rounds >= HOPELESS_ROUNDS;
}

GCI bool gci_dial_is_desperate(const gci_dial *d)
{
    for (int i = 0; i < d->n; i++)
        if (gci_addr_class(&d->goal[i].addr) != GCI_CLASS_LINK_LOCAL)
            return false;
    return true;
}

/* The same has been said of that address, tried in another way. */
static bool dial_said(const gci_dial *d, int i)
{
    for (int k = 0; k < i; k++)
        if (gci_addr_same(&d->goal[k].addr, &d->goal[i].addr) && d->err[k] == d->err[i])
            return true;
    return false;
}

GCI const char *gci_dial_text(gci_control *c, const gci_dial *d, char text[GCI_TEXT])
{
    size_t at = 0;
    char address[GCI_ADDR_TEXT], why[GCI_TEXT];

    text[0] = 0;
    for (int i = 0; i < d->n && at < GCI_TEXT; i++) {
        if (dial_said(d, i))
            continue;
        gci_shake s = { .refusal = (uint8_t)(d->err[i] > 0 ? d->err[i] : 0), .peer_version = d->peer_version,
                        .peer_ranks = d->peer_ranks, .self = dial_self(c) };
        const char *said = d->err[i] ? dial_why(d->err[i], &s, why) : "no answer";
        const char *where = d->via[0] ? d->via : gci_addr_text(&d->goal[i].addr, address);
        int n = snprintf(text + at, GCI_TEXT - at, "%s%s%s: %s", i ? "; " : "", d->via[0] ? "ssh " : "", where, said);
        at += n > 0 ? (size_t)n : 0;
    }
    if (!d->n)
        snprintf(text, GCI_TEXT, "no address to try");
    return text;
}

/* BatchMode: nobody is there to type a password. The peer's port need not be open to the world: sshd connects to its own
 * host. "--": a name is no option. */
static int dial_spawn(gci_control *c, gci_dial *d)
{
    int64_t alive = c->peer_timeout / GCI_SECOND / TUNNEL_PROBES;
    char port[32], interval[48], count[48], connect[48];
    char ssh[] = "ssh", plain[] = "-T", option[] = "-o", batch[] = "BatchMode=yes", forward[] = "-W", end[] = "--";
    char *argv[] = { ssh, plain, option, batch, option, connect, option, interval, option, count, forward, port, end, d->via,
                     NULL };

    snprintf(port, sizeof port, "127.0.0.1:%u", d->goal[0].addr.port);
    snprintf(connect, sizeof connect, "ConnectTimeout=%d", TUNNEL_CONNECT_S);
    snprintf(interval, sizeof interval, "ServerAliveInterval=%d", alive < 1 ? 1 : alive > 25 ? 25 : (int)alive);
    snprintf(count, sizeof count, "ServerAliveCountMax=%d", TUNNEL_PROBES);
    return c->sys->spawn(c->sys, argv);
}

/* How long an address is tried alone. */
static int64_t dial_stagger(const gci_dial *d)
{
    int ms = STAGGER_MS * d->n > STAGGER_ALL_MS ? STAGGER_ALL_MS / d->n : STAGGER_MS;

    if (d->next < d->n && d->goal[d->next - 1].last && d->next % LAST_AT_ONCE)
        return 0;
    return dial_ms(d->hurry && ms > STAGGER_HURRY_MS ? STAGGER_HURRY_MS : ms);
}

static int dial_connect(gci_control *c, const gci_goal *to)
{
    return c->sys->connect(c->sys, &to->addr, to->source.family ? &to->source : NULL, to->bind);
}

static void dial_try(gci_control *c, gci_dial *d)
{
    int i = d->next++, err, fd = d->via[0] ? dial_spawn(c, d) : dial_connect(c, &d->goal[i]);
    gci_conn *k;

    d->next_at = c->now + dial_stagger(d);
    k = fd < 0 ? NULL : conn_new(c, fd);
    err = fd < 0 ? fd : k ? 0 : -ENOMEM;
    dial_fares(c, err);
    if (err < 0) {
        if (fd >= 0)
            c->sys->close(c->sys, fd);
        dial_missed(c, d, i, err);
        return;
    }
    k->goal = d->goal[i];
    k->addr = k->goal.addr;
    k->peer = d->peer;
    k->purpose = d->purpose;
    k->candidate = i;
    k->dial = d;
    k->tunnel = d->via[0] != 0;
    if (!k->tunnel)
        k->deadline = c->now + dial_ms(CONNECT_DEADLINE_MS);
    d->open++;
    if ((err = conn_watch(c, k, GCI_WRITE)) < 0)
        conn_fail(c, k, err);
}

static int64_t dial_step(gci_control *c, gci_dial *d)
{
    if (c->now >= d->deadline && d->met && (d->purpose == GCI_PURPOSE_DATA || d->purpose == GCI_PURPOSE_BACKBONE)) {
        d->deadline = c->now + (d->deadline - d->begun);    /* it may be stopped; if it is dead, we are told */
        d->begun = c->now;
    } else if (c->now >= d->deadline) {
        c->up->expired(c, d);
        gci_dial_end(c, d);
    }
    if (!d->over && !d->n && c->now >= d->next_at)
        dial_round_over(c, d);
    while (!d->over && d->next < d->n && c->now >= d->next_at)
        if (dial_tries(c, d, d->next))
            d->next++;
        else
            dial_try(c, d);
    if (!d->over && d->open && !d->chosen && d->next == d->n && dial_was_met(c, d)) {
        d->repeats = true;
        dial_from_first(c, d);
    }
    if (d->over)
        return GCI_FOREVER;
    return d->next < d->n || !d->n ? d->next_at < d->deadline ? d->next_at : d->deadline : d->deadline;
}

GCI int64_t gci_dial_timers(gci_control *c)
{
    int64_t next = GCI_FOREVER;

    for (int i = 0; i < c->conns; i++) {
        gci_conn *k = c->conn[i];
        if (k && k->stage != GCI_CONN_CLOSED && k->deadline && c->now >= k->deadline) {
            if (k->stage == GCI_CONN_SHAKING && k->dial)
                k->dial->mute = true;
            if (k->stage == GCI_CONN_PROVEN)
                stream_end(c, k, -ETIMEDOUT);
            else
                conn_fail(c, k, -ETIMEDOUT);
        }
    }
    for (gci_dial *d = c->dials; d; d = d->next_dial)       /* new ones come in front and are seen next time */
        if (!d->over) {
            int64_t at = dial_step(c, d);
            next = at < next ? at : next;
        }
    for (int i = 0; i < c->conns; i++) {
        gci_conn *k = c->conn[i];
        if (k && k->stage != GCI_CONN_CLOSED && k->deadline && k->deadline < next)
            next = k->deadline;
    }
    if (c->accept_at && c->now >= c->accept_at)
        c->accept_at = accept_watch(c, GCI_READ) < 0 ? c->now + dial_ms(ACCEPT_PAUSE_MS) : 0;
    return c->accept_at && c->accept_at < next ? c->accept_at : next;
}
