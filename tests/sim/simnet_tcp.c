/* simnet_tcp.c: the simulated network's streams.
 * SPDX-License-Identifier: MIT
 *
 * A connection is two pipes. A pipe cuts what was written into segments, never more than the receiver's window, and has one
 * segment at a time at its NIC, so that streams share a NIC in turns. A segment claims each link of its path when it gets there,
 * in order of arrival, and is forwarded as its first byte comes (cut-through): bytes over several links take the time of the
 * slowest, not the sum. A full wide-area queue keeps the next segment at its sender, as congestion control would, without loss.
 *
 *     written -> ring (unsent) -> under way -> unread_queue -> read
 *                   unacked: until the receiver's kernel has them and says so       window: until they are read
 *
 * A segment that arrives while the path is cut is lost: the pipe is stuck, later segments join it, and when the path is mended
 * all of them are sent again at the next tick of a timer that doubles, as TCP's does. Acknowledgements, window updates and
 * handshakes take their latency and no bandwidth; when the way back is cut they are held until it is mended. A connection that a
 * NAT has forgotten is one whose path is cut for ever.
 *
 * A Unix socket's stream is one over loopback, but for how it begins: whether anybody listens is known to the caller at once.
 */
#include "simnet_int.h"

enum { SIM_NOTSENT_LOWAT = 128 << 10, SIM_BUFFER_MAX = 32 << 20, SIM_RING_MIN = 4096, SIM_PORT_FIRST = 32768, SIM_PORT_LAST = 60999 };
static const int64_t sim_no_neighbour = 3 * GCI_SECOND;    /* ARP gives up */
static const int64_t sim_retransmit_max = 120 * GCI_SECOND;
static const int64_t sim_probe_idle = 25 * GCI_SECOND;     /* keepalive of tuned sockets, as sys.c sets it ... */
static const int64_t sim_probe_again = 2 * GCI_SECOND;     /* ... between two that a data socket sends in vain, ... */
static const int sim_data_probes = 127;                     /* ... and how many of them must fail */

static void sim_hop_fire(sim *s, sim_event *e);
static void sim_watchdog_fire(sim *s, sim_event *e);
static void sim_pump_fire(sim *s, sim_event *e);
static void sim_keepalive_arm(sim *s, sim_sock *k);
static bool sim_flows(sim *s, const sim_pipe *p);

/* ---- queues of segments, and the ring of what is not sent yet ---- */

static void sim_queue_push(sim_queue *q, sim_segment *seg)
{
    seg->event.owned = false;   /* it is the queue's now, not the heap's */
    seg->next = NULL;
    *(q->last ? &q->last->next : &q->first) = seg;
    q->last = seg;
}

static sim_segment *sim_queue_pop(sim_queue *q)
{
    sim_segment *seg = q->first;
    if (seg) {
        q->first = seg->next;
        q->last = q->first ? q->last : NULL;
    }
    return seg;
}

static void sim_queue_free(sim_queue *q)
{
    for (sim_segment *seg; (seg = sim_queue_pop(q));) {
        free(seg);
    }
}

static void sim_ring_out(sim_pipe *p, uint8_t *to, size_t n)
{
    size_t first = gci_min(n, p->ring_bytes - p->head);
    if (n) {
        memcpy(to, p->ring + p->head, first);
        memcpy(to + first, p->ring, n - first);
        p->head = (p->head + n) % p->ring_bytes;
        p->unsent -= n;
    }
}

static void sim_ring_in(sim_pipe *p, const uint8_t *from, size_t n)
{
    if (p->unsent + n > p->ring_bytes) {
        size_t room = gci_max(SIM_RING_MIN, 2 * p->ring_bytes), unsent = p->unsent;
        while (room < unsent + n) {
            room *= 2;
        }
        uint8_t *ring = sim_calloc(1, room);
        sim_ring_out(p, ring, unsent);
        free(p->ring);
        p->ring = ring;
        p->ring_bytes = room;
        p->head = 0;
        p->unsent = unsent;
    }
    size_t tail = (p->head + p->unsent) % p->ring_bytes, first = gci_min(n, p->ring_bytes - tail);
    memcpy(p->ring + tail, from, first);
    memcpy(p->ring, from + first, n - first);
    p->unsent += n;
}

static void sim_ring_free(sim_pipe *p)
{
    free(p->ring);
    p->ring = NULL;
    p->ring_bytes = p->head = p->unsent = 0;
}

/* ---- pipes: sending ---- */

static sim_segment *sim_segment_new(sim_pipe *p, enum sim_segment_kind kind, size_t bytes)
{
    sim_segment *seg = sim_calloc(1, sizeof *seg + bytes);
    seg->pipe = p;
    seg->kind = kind;
    seg->bytes = bytes;
    return seg;
}

static void sim_drain(sim *s, void *what, int64_t bytes)
{
    sim_link *l = what;
    l->queued -= (size_t)bytes;
    for (sim_pipe *p; (p = l->waiting) && (!l->queued || l->queued + sim_wire_bytes(s, p->segment) <= l->limit);) {
        l->waiting = p->next_waiting;
        l->waiting_last = l->waiting ? l->waiting_last : NULL;
        p->waiting = false;
        l->turn = p;
        sim_pipe_pump(s, p);
        l->turn = NULL;
    }
}

/* true: a queue on the way is full; the pipe is pumped again when there is room. */
static bool sim_must_wait(sim *s, sim_pipe *p, size_t bytes)
{
    for (int i = 0; i < p->path.hops; i++) {
        sim_link *l = p->path.hop[i].link;
        if (l->limit && l->queued && l->turn != p && (l->waiting || l->queued + sim_wire_bytes(s, bytes) > l->limit)) {
            p->waiting = true;
            p->next_waiting = NULL;
            *(l->waiting_last ? &l->waiting_last->next_waiting : &l->waiting) = p;
            l->waiting_last = p;
            return true;
        }
    }
    return false;
}

static void sim_deliver_fire(sim *s, sim_event *e);

static void sim_hop_fire(sim *s, sim_event *e)
{
    sim_segment *seg = (sim_segment *)e;
    sim_pipe *p = seg->pipe;
    const sim_hop *hop = &p->path.hop[seg->hop];
    sim_link *l = hop->link;
    bool sharing = s->tuning.planted != SIM_PLANT_NO_NIC_SHARING;
    int64_t begin = l->free_at > s->now && sharing ? l->free_at : s->now, end = begin + sim_wire_time(s, l, seg->bytes);
    int64_t latency = s->tuning.planted == SIM_PLANT_NO_LATENCY ? 0 : hop->latency, at;
    /* A fast link is claimed late, for as long as it takes; the first byte is through it when it has come, and when what went
     * before is through. */
    seg->first = seg->hop == 0 ? begin : gci_max64(seg->first, l->free_at);
    l->free_at = end;
    l->bytes += sim_wire_bytes(s, seg->bytes);
    if (l->limit && seg->bytes) {
        sim_after(s, end - s->now, sim_drain, l, (int64_t)sim_wire_bytes(s, seg->bytes));
    }
    if (seg->hop == 0) {
        p->leaving = true;
        sim_schedule(s, &p->pump, end);
    }
    if (++seg->hop < p->path.hops) {
        /* The last byte must not leave the next link before it has come: it may begin when its first byte comes, or so much later. */
        int64_t last = end + latency - sim_wire_time(s, p->path.hop[seg->hop].link, seg->bytes);
        seg->first += latency;
        at = seg->first > last ? seg->first : last;
    } else {
        e->fire = sim_deliver_fire;
        at = end + latency + (s->tuning.jitter ? (int64_t)(sim_random(s) % (uint64_t)s->tuning.jitter) : 0);
        at = p->last_arrival = at > p->last_arrival ? at : p->last_arrival;
    }
    sim_schedule(s, e, at);
}

static void sim_emit(sim *s, sim_segment *seg)
{
    sim_pipe *p = seg->pipe;
    seg->event = (sim_event){ .owned = true, .fire = sim_hop_fire };
    seg->hop = 0;
    p->under_way++;
    for (int i = 0; i < p->path.hops; i++) {
        sim_link *l = p->path.hop[i].link;
        l->queued += l->limit ? sim_wire_bytes(s, seg->bytes) : 0;
    }
    sim_note(s, seg->kind == SIM_DATA ? "send" : seg->kind == SIM_FIN ? "fin" : "rst", p->from->id, p->to->id, (int64_t)seg->bytes);
    sim_hop_fire(s, &seg->event);
}

void sim_pipe_pump(sim *s, sim_pipe *p)
{
    bool open = s->tuning.planted == SIM_PLANT_NO_WINDOW;
    if (p->leaving || p->stuck || p->waiting || p->broken || !p->to || p->path.from->dead || p->from->state == SIM_CONNECTING) {
        return;
    }
    size_t n = gci_min(gci_min(p->unsent, p->segment), open ? SIZE_MAX : p->window);
    if (p->lost.first) {
        n = p->lost.first->bytes;
    } else if (!n && !(p->fin_due && !p->unsent && !p->fin_sent)) {
        return;
    }
    if (n && sim_must_wait(s, p, n)) {
        return;
    }
    sim_segment *seg = sim_queue_pop(&p->lost);
    if (!seg) {
        seg = sim_segment_new(p, n ? SIM_DATA : SIM_FIN, n);
        sim_ring_out(p, seg->data, n);
        p->window -= gci_min(n, p->window);
        p->unacked += n;
        p->fin_sent = n == 0;
    }
    sim_emit(s, seg);
    if (!p->unsent && (p->fin_due || p->fin_sent)) {
        sim_ring_free(p);
    }
    sim_touch(&p->from->file);
}

static void sim_pump_fire(sim *s, sim_event *e)
{
    sim_pipe *p = (sim_pipe *)e;
    p->leaving = false;
    if (p->stuck) {             /* the retransmission timer */
        p->stuck = p->under_way || !sim_flows(s, p);
    }
    sim_pipe_pump(s, p);
}

/* The next tick of TCP's timer for what was lost then. */
static int64_t sim_retry_at(const sim *s, const sim_pipe *p, int64_t since)
{
    int64_t wait = s->tuning.retransmit_time + 2 * p->path.latency;
    do {
        since += wait;
        wait = 2 * wait < sim_retransmit_max ? 2 * wait : sim_retransmit_max;
        wait = s->tuning.planted == SIM_PLANT_NO_BACKOFF ? s->tuning.retransmit_time : wait;
    } while (since <= s->now);
    return since;
}

/* Lost segments go out again when the path is there and all that was under way has met its fate. */
static void sim_unstick(sim *s, sim_pipe *p)
{
    if (p->stuck && !p->under_way && sim_flows(s, p)) {
        sim_schedule(s, &p->pump, sim_retry_at(s, p, p->stuck_since));
    }
}

static void sim_pipe_break(sim_pipe *p)
{
    p->broken = true;
    p->stuck = false;
    sim_ring_free(p);
    sim_queue_free(&p->lost);
}

/* ---- what middleboxes know ---- */

/* How often this end sends something, whatever the program does. 0: never. */
static int64_t sim_probe_time(const sim_sock *k)
{
    bool control = k->tune == GCI_TUNE_CONTROL && k->peer_timeout > 0;
    return k->tune == GCI_TUNE_HANDSHAKE ? 0 : control && k->peer_timeout / 2 < sim_probe_idle ? k->peer_timeout / 2 : sim_probe_idle;
}

static bool sim_kept_alive(const sim_sock *k, int64_t idle)
{
    return k->state == SIM_UP && sim_probe_time(k) && sim_probe_time(k) <= idle;
}

static bool sim_known(sim *s, sim_sock *opener)
{
    for (int i = 0; i < SIM_NATS && !opener->forgotten; i++) {
        const sim_site *site = opener->way->nat[i];
        int64_t idle = site ? site->nat.idle : 0, alive = opener->cut_since < 0 ? s->now : opener->cut_since;
        if (idle && alive > opener->used && (sim_kept_alive(opener, idle) || (opener->peer && sim_kept_alive(opener->peer, idle)))) {
            opener->used = alive;
        }
        if (idle && s->now - opener->used > idle) {
            sim_sock_forgotten(opener);
        }
    }
    return !opener->forgotten;
}

/* A NAT that has forgotten may say so. */
static bool sim_disowned(const sim_sock *opener)
{
    for (int i = 0; i < SIM_NATS && opener->forgotten; i++) {
        if (opener->way->nat[i] && opener->way->nat[i]->nat.unknown == SIM_REFUSE) {
            return true;
        }
    }
    return false;
}

static bool sim_flows(sim *s, const sim_pipe *p)
{
    return sim_passes(s, &p->path) && sim_known(s, p->from->opener);
}

void sim_sock_forgotten(sim_sock *opener)
{
    sim_note(opener->host->s, "forgotten", opener->id, 0, 0);
    opener->forgotten = opener->host->s->tuning.planted != SIM_PLANT_NAT_REMEMBERS;
    sim_sock_path_changed(opener);
    if (opener->peer) {
        sim_sock_path_changed(opener->peer);
    }
}

/* ---- pipes: arriving ---- */

/* What the receiver says does not get back: it is said again when the way is mended. */
static bool sim_hold(sim *s, sim_pipe *p, size_t acks, size_t window)
{
    if (sim_flows(s, &p->to->out) || s->tuning.planted == SIM_PLANT_ANSWERS_LEAK) {
        p->to->opener->used = s->now;
        p->from->heard = s->now;
        return false;
    }
    if (!p->held_acks && !p->held_window) {
        p->held_since = s->now;
    }
    p->held_acks += acks;
    p->held_window += window;
    sim_keepalive_arm(s, p->from);
    return true;
}

static void sim_release(sim *s, void *what, int64_t unused)
{
    sim_pipe *p = what;
    (void)unused;
    if ((p->held_acks || p->held_window) && sim_flows(s, &p->to->out)) {
        p->from->heard = s->now;
        p->unacked -= p->held_acks;
        p->window += p->held_window;
        p->held_acks = p->held_window = 0;
        sim_touch(&p->from->file);
        sim_pipe_pump(s, p);
    }
}

static void sim_acknowledged(sim *s, void *what, int64_t bytes)
{
    sim_pipe *p = what;
    if (sim_hold(s, p, (size_t)bytes, 0)) {
        return;
    }
    p->unacked -= (size_t)bytes;
    if (s->tuning.planted != SIM_PLANT_WRITE_LOST) {
        sim_touch(&p->from->file);
    }
}

static void sim_window_opened(sim *s, void *what, int64_t bytes)
{
    sim_pipe *p = what;
    if (sim_hold(s, p, 0, (size_t)bytes)) {
        return;
    }
    p->window += (size_t)bytes;
    sim_pipe_pump(s, p);
}

static void sim_send_rst(sim *s, sim_sock *k)
{
    if (k->peer && !k->out.broken && !k->host->dead) {
        sim_emit(s, sim_segment_new(&k->out, SIM_RST, 0));
    }
    sim_pipe_break(&k->out);
}

/* Planted bugs of the kind that loses or mangles data. NULL: the segment is gone. */
static sim_segment *sim_mangle(sim *s, sim_pipe **to, sim_segment *seg)
{
    enum sim_planted bug = s->tuning.planted;
    sim_pipe *p = *to, *other = s->planted_pipe;
    enum { WHOLE = 16 };        /* not the handful of bytes of a greeting */
    s->planted_pipe = p;
    if (bug == SIM_PLANT_NONE || s->planted_done || seg->bytes < WHOLE || (bug == SIM_PLANT_OTHER_STREAM && (!other || other == p)) ||
        (bug == SIM_PLANT_SWAP && (!p->unread_queue.last || p->unread_queue.last->taken))) {
        return seg;
    }
    s->planted_done = bug == SIM_PLANT_SWAP || bug == SIM_PLANT_LOSE_BYTE || bug == SIM_PLANT_LOSE_SEGMENT || bug == SIM_PLANT_DOUBLE ||
                      bug == SIM_PLANT_FLIP_BIT || bug == SIM_PLANT_OTHER_STREAM;
    if (bug == SIM_PLANT_LOSE_BYTE) {
        memmove(seg->data, seg->data + 1, --seg->bytes);
    } else if (bug == SIM_PLANT_FLIP_BIT) {
        seg->data[seg->bytes / 2] ^= 4;
    } else if (bug == SIM_PLANT_OTHER_STREAM) {
        *to = other;
    } else if (bug == SIM_PLANT_LOSE_SEGMENT) {
        return NULL;
    } else if (bug == SIM_PLANT_DOUBLE) {
        sim_segment *twin = sim_segment_new(p, SIM_DATA, seg->bytes);
        memcpy(twin->data, seg->data, seg->bytes);
        sim_queue_push(&p->unread_queue, twin);
        p->unread += twin->bytes;
    } else if (bug == SIM_PLANT_SWAP) {
        sim_segment *last = p->unread_queue.last, *twin = sim_segment_new(p, SIM_DATA, last->bytes);
        memcpy(twin->data, last->data, last->bytes);
        sim_queue_push(&p->unread_queue, twin);
        last->taken = last->bytes;  /* nothing is left of it, and the twin comes behind seg */
        last->next = seg;
        seg->event.owned = false;
        seg->next = twin;
        p->unread += seg->bytes;
        return NULL;
    }
    return seg;
}

static void sim_arrived(sim *s, sim_segment *seg)
{
    sim_pipe *p = seg->pipe;
    sim_sock *to = p->to;
    if (to->state == SIM_CLOSED || to->got_rst) {
        if (seg->kind == SIM_DATA) {        /* each time: an earlier answer may have been lost */
            to->out.broken = false;
            sim_send_rst(s, to);
        } else if (seg->kind == SIM_RST) {
            sim_pipe_break(&to->out);
        }
    } else if (seg->kind == SIM_RST) {
        sim_sock_reset(to);
    } else if (seg->kind == SIM_FIN) {
        to->got_fin = s->tuning.planted != SIM_PLANT_FIN_LOST;
        sim_touch(&to->file);
    } else {
        sim_after(s, to->out.path.latency, sim_acknowledged, p, (int64_t)seg->bytes);
        seg = sim_mangle(s, &p, seg);
        if (seg) {
            sim_queue_push(&p->unread_queue, seg);
            p->unread += seg->bytes;
        }
        sim_touch(&p->to->file);
    }
}

static void sim_disown(sim *s, void *what, int64_t unused)
{
    sim_sock *k = what;
    (void)s; (void)unused;
    sim_sock_reset(k);
}

/* What was answered by a reset that got lost is sent again, and answered again. */
static void sim_answer_again(sim *s, void *what, int64_t unused)
{
    sim_sock *k = what;
    (void)unused;
    if (k->peer && k->peer->state == SIM_UP && !k->peer->got_rst) {
        k->out.broken = false;
        sim_send_rst(s, k);
    }
}

static void sim_deliver_fire(sim *s, sim_event *e)
{
    sim_segment *seg = (sim_segment *)e;
    sim_pipe *p = seg->pipe;
    p->under_way--;
    if (p->path.from->dead) {
        return;
    }
    bool flows = sim_flows(s, p);
    sim_note(s, flows && !p->stuck ? "arrive" : "lost", p->from->id, p->to->id, (int64_t)seg->bytes);
    if (flows && !p->stuck) {
        p->from->opener->used = p->to->heard = s->now;
        sim_arrived(s, seg);
    } else if (seg->kind != SIM_RST && sim_disowned(p->from->opener)) {
        sim_after(s, p->path.latency, sim_disown, p->from, 0);
    } else if (seg->kind == SIM_RST && p->to->out.unacked) {
        sim_after(s, sim_retry_at(s, &p->to->out, p->to->heard) - s->now, sim_answer_again, p->from, 0);
    } else if (seg->kind != SIM_RST && !p->broken) {
        p->stuck_since = p->stuck ? p->stuck_since : s->now - p->path.latency;    /* when it was sent, about */
        p->stuck = true;
        sim_queue_push(&p->lost, seg);
        sim_keepalive_arm(s, p->from);
    }
    sim_unstick(s, p);
}

/* ---- sockets ---- */

static sim_sock *sim_sock_new(sim_host *h, enum sim_sock_state state)
{
    sim *s = h->s;
    sim_sock *k = sim_calloc(1, sizeof *k);
    k->file.kind = SIM_SOCKET;
    k->file.fd = -1;
    k->watchdog.fire = sim_watchdog_fire;
    k->out.pump.fire = sim_pump_fire;
    k->out.from = k;
    k->host = h;
    k->id = s->socks++;
    k->state = state;
    k->cut_since = -1;
    k->file.all = s->files;
    s->files = &k->file;
    return k;
}

static void sim_pipe_join(sim *s, sim_pipe *p, sim_sock *from, sim_sock *to, const sim_path *path)
{
    const sim_tuning *t = &s->tuning;
    int64_t bytes = path->slowest * t->segment_time / GCI_SECOND;
    double flight = 2.0 * (double)path->slowest * 2.0 * (double)path->latency / 1e9;    /* twice what fills a round trip */
    size_t grown = t->autotune ? (size_t)(flight < SIM_BUFFER_MAX ? flight : SIM_BUFFER_MAX) : 0;
    p->from = from;
    p->to = to;
    p->path = *path;
    p->send_buffer = gci_max(t->send_buffer, grown);
    p->recv_buffer = p->window = gci_max(t->recv_buffer, grown);
    p->segment = !path->slowest || bytes > SIM_SEGMENT_MAX ? SIM_SEGMENT_MAX : bytes < SIM_SEGMENT_MIN ? SIM_SEGMENT_MIN : (size_t)bytes;
}

static size_t sim_room(const sim_sock *k)
{
    const sim_pipe *p = &k->out;
    size_t held = p->unsent + p->unacked, room = held < p->send_buffer ? p->send_buffer - held : 0;
    if (k->tune == GCI_TUNE_DATA) {
        room = gci_min(room, p->unsent < SIM_NOTSENT_LOWAT ? SIM_NOTSENT_LOWAT - p->unsent : 0);
    }
    return room;
}

/* As Linux: writable again when a third is free, and with TCP_NOTSENT_LOWAT when less than half of that waits. */
static bool sim_writable(const sim_sock *k)
{
    const sim_pipe *p = &k->out;
    return 3 * (p->unsent + p->unacked) <= 2 * p->send_buffer && (k->tune != GCI_TUNE_DATA || 2 * p->unsent < SIM_NOTSENT_LOWAT);
}

unsigned sim_sock_events(const sim_sock *k)
{
    switch (k->state) {
    case SIM_LISTENING: return k->queue ? GCI_READ : 0;
    case SIM_FAILED:    return GCI_READ | GCI_WRITE;
    case SIM_UP:        break;
    case SIM_CONNECTING: return k->tunnel && sim_writable(k) ? GCI_WRITE : 0;
    default:            return 0;
    }
    if (k->got_rst || k->error) {
        return GCI_READ | GCI_WRITE;
    }
    bool readable = (k->peer && k->peer->out.unread) || k->got_fin;
    return (readable ? GCI_READ : 0u) | (sim_writable(k) ? GCI_WRITE : 0u);
}

void sim_sock_reset(sim_sock *k)
{
    sim_pipe_break(&k->out);
    if (k->got_rst || k->state == SIM_CLOSED) {
        return;
    }
    sim_note(k->host->s, "reset", k->id, 0, 0);
    k->got_rst = true;
    k->error = k->got_fin ? EPIPE : ECONNRESET;
    sim_unschedule(k->host->s, &k->watchdog);
    sim_touch(&k->file);
}

static void sim_sock_fail(sim *s, void *what, int64_t error)
{
    sim_sock *k = what;
    if (k->tunnel && !k->peer && k->state == SIM_CONNECTING) {
        sim_note(s, "fail", k->id, error, 0);
        sim_unschedule(s, &k->watchdog);
        sim_pipe_break(&k->out);
        k->state = SIM_UP;
        k->got_fin = s->tuning.planted != SIM_PLANT_CHILD_HANGS;
        sim_touch(&k->file);
    } else if (k->state == SIM_CONNECTING && !k->host->dead) {
        sim_note(s, "fail", k->id, error, 0);
        sim_unschedule(s, &k->watchdog);
        k->state = SIM_FAILED;
        k->error = (int)error;
        sim_touch(&k->file);
    }
}

static void sim_listener_close(sim_sock *k)
{
    sim_sock **at = &k->host->listening;
    while (*at != k) {
        at = &(*at)->next_listening;
    }
    *at = k->next_listening;
    for (sim_sock *q = k->queue; q; q = q->next_queued) {
        q->state = SIM_CLOSED;
        sim_send_rst(k->host->s, q);
    }
    k->queue = k->queue_last = NULL;
}

void sim_sock_close(sim_sock *k)
{
    sim *s = k->host->s;
    enum sim_sock_state before = k->state;
    k->state = SIM_CLOSED;
    sim_unschedule(s, &k->watchdog);
    if (before == SIM_LISTENING) {
        sim_listener_close(k);
    } else if (before == SIM_UP && !k->out.broken && !(s->tuning.planted == SIM_PLANT_MUTE_DEATH && k->file.proc->killed)) {
        if (k->peer && k->peer->out.unread) {
            sim_send_rst(s, k);
        } else {
            k->out.fin_due = true;
            if (s->tuning.planted == SIM_PLANT_FIN_EARLY) {
                sim_ring_free(&k->out);
            }
            sim_pipe_pump(s, &k->out);
        }
    }
    if (k->peer) {
        sim_queue_free(&k->peer->out.unread_queue);
        k->peer->out.unread = 0;
    }
}

void sim_sock_free(sim_sock *k)
{
    sim_unschedule(k->host->s, &k->watchdog);
    sim_unschedule(k->host->s, &k->out.pump);
    free(k->way);
    sim_ring_free(&k->out);
    sim_queue_free(&k->out.lost);
    sim_queue_free(&k->out.unread_queue);
}

/* ---- time-outs ---- */

static void sim_syn(sim *s, sim_sock *k);

/* Keepalive sleeps while data wait for an answer: then the time counts from when those were sent, and a time-out that was made
 * shorter since is looked at when they are sent again. */
static int64_t sim_time_out_at(const sim *s, const sim_sock *k)
{
    int64_t at = (k->out.stuck ? k->out.stuck_since : k->cut_since) + k->peer_timeout;
    return at > s->now || !k->out.stuck ? at : sim_retry_at(s, &k->out, k->out.stuck_since);
}

static void sim_keepalive_arm(sim *s, sim_sock *k)
{
    if (k->state != SIM_UP || k->cut_since < 0 || k->got_rst || s->tuning.planted == SIM_PLANT_NO_KEEPALIVE) {
        return;
    }
    int64_t probe = sim_probe_time(k);
    if (probe && sim_disowned(k->opener)) {
        sim_schedule(s, &k->watchdog, k->cut_since + probe);
    } else if (k->tune == GCI_TUNE_CONTROL && k->peer_timeout > 0) {
        sim_schedule(s, &k->watchdog, sim_time_out_at(s, k));
    } else if (k->out.stuck || k->out.held_acks) {
        sim_schedule(s, &k->watchdog, (k->out.stuck ? k->out.stuck_since : k->out.held_since) + s->tuning.give_up);
    } else if (probe) {
        sim_schedule(s, &k->watchdog, k->cut_since + probe + sim_data_probes * sim_probe_again);
    }
}

static void sim_watchdog_fire(sim *s, sim_event *e)
{
    sim_sock *k = (sim_sock *)((char *)e - offsetof(sim_sock, watchdog));
    if (k->host->dead) {
        return;
    }
    if (k->state == SIM_CONNECTING) {
        if (s->now - k->started >= s->tuning.connect_timeout) {
            sim_sock_fail(s, k, ETIMEDOUT);
        } else {
            sim_syn(s, k);
        }
    } else if (k->state == SIM_UP) {
        sim_sock_reset(k);
        k->error = sim_disowned(k->opener) ? ECONNRESET : ETIMEDOUT;
    }
}

void sim_sock_path_changed(sim_sock *k)
{
    sim *s = k->host->s;
    if (!k->peer || (k->state != SIM_UP && k->state != SIM_CLOSED)) {
        return;
    }
    if (k->opener->forgotten || !sim_passes(s, &k->out.path) || !sim_passes(s, &k->peer->out.path)) {
        k->cut_since = k->cut_since < 0 ? s->now : k->cut_since;
        sim_keepalive_arm(s, k);
    } else if (k->cut_since >= 0) {
        k->heard = sim_probe_time(k) && k->heard < k->cut_since ? k->cut_since : k->heard;  /* probes had answers till then */
        k->cut_since = -1;
        sim_unschedule(s, &k->watchdog);
        sim_unstick(s, &k->out);
        if (k->out.held_acks || k->out.held_window) {
            sim_after(s, sim_retry_at(s, &k->out, k->out.held_since) - s->now, sim_release, &k->out, 0);
        }
    }
}

/* ---- the handshake ---- */

static bool sim_is_any(const gci_addr *a)
{
    static const uint8_t zero[16];
    return a->family != GCI_UNIX && memcmp(a->ip, zero, a->family == 4 ? 4 : 16) == 0;
}

static bool sim_listens_at(const sim_sock *l, const gci_addr *at)
{
    return l->local.port == at->port && (gci_addr_equal(&l->local, at) ||
           (sim_is_any(&l->local) && at->family != GCI_UNIX && (l->local.family == 6 || l->local.family == at->family)));
}

static sim_sock *sim_listener(sim_host *h, const gci_addr *at)
{
    sim_sock *l = h->listening;
    while (l && !sim_listens_at(l, at)) {
        l = l->next_listening;
    }
    return l;
}

/* The third packet: now the connection can be accepted. */
static void sim_ack_arrives(sim *s, void *what, int64_t unused)
{
    sim_sock *e = what, *l = e->listener;
    (void)unused;
    if (e->state != SIM_EMBRYO || e->host->dead) {
        return;
    }
    if (!sim_passes(s, &e->peer->out.path)) {
        sim_after(s, GCI_SECOND, sim_ack_arrives, e, 0);
        return;
    }
    e->state = l->state == SIM_LISTENING ? SIM_UP : SIM_CLOSED;
    e->heard = s->now;
    if (e->state == SIM_CLOSED) {
        sim_send_rst(s, e);
        return;
    }
    *(l->queue_last ? &l->queue_last->next_queued : &l->queue) = e;
    l->queue_last = e;
    l->waiting++;
    sim_note(s, "accept", l->id, e->id, l->waiting);
    sim_touch(&l->file);
}

static void sim_syn_answered(sim *s, void *what, int64_t unused)
{
    sim_sock *k = what;
    (void)unused;
    if (k->host->dead || !sim_passes(s, &k->way->back)) {
        return;                 /* lost: the SYN is sent again */
    }
    if (k->state == SIM_CLOSED && k->peer && k->peer->state == SIM_EMBRYO) {
        sim_send_rst(s, k);
    }
    if (k->state != SIM_CONNECTING) {
        return;
    }
    k->state = SIM_UP;
    k->heard = s->now;
    sim_note(s, "connected", k->id, k->peer ? k->peer->id : -1, 0);
    sim_unschedule(s, &k->watchdog);
    if (k->peer) {
        sim_after(s, k->out.path.latency, sim_ack_arrives, k->peer, 0);
        sim_pipe_pump(s, &k->out);
    }
    sim_touch(&k->file);
}

static void sim_embryo(sim *s, sim_sock *k, sim_sock *listener)
{
    sim_sock *e = sim_sock_new(listener->host, SIM_EMBRYO);
    e->file.proc = listener->file.proc;
    e->listener = listener;
    e->local = k->way->at;
    e->remote = k->way->seen;
    e->peer = k;
    e->opener = k;
    k->peer = e;
    sim_pipe_join(s, &k->out, k, e, &k->way->there);
    sim_pipe_join(s, &e->out, e, k, &k->way->back);
}

static void sim_syn_arrives(sim *s, void *what, int64_t unused)
{
    sim_sock *k = what;
    const sim_path *there = &k->way->there;
    sim_host *to = there->to, *from = there->via ? there->via : k->host;
    (void)unused;
    if (k->state != SIM_CONNECTING || !sim_passes(s, there)) {
        return;
    }
    enum sim_verdict verdict = sim_filtered(s, k->way);
    if (verdict == SIM_PASS && s->firewall && to != from) {
        verdict = s->firewall(s->firewall_user, from, to, k->way->at.port);
    }
    sim_sock *l = sim_listener(to, &k->way->at);
    sim_note(s, "syn", k->id, to->index, verdict);
    if (verdict == SIM_DROP || (l && !k->peer && l->waiting >= s->tuning.backlog)) {
        return;
    }
    if ((!l && s->tuning.planted != SIM_PLANT_GHOST_LISTENER) || verdict == SIM_REFUSE) {
        sim_after(s, k->way->back.latency, sim_sock_fail, k, ECONNREFUSED);
        return;
    }
    if (l && !k->peer) {
        sim_embryo(s, k, l);
    }
    sim_after(s, k->way->back.latency, sim_syn_answered, k, 0);
}

static void sim_syn_seen(sim *s, const sim_sock *k)
{
    if (s->syn_seen && k->remote.family != GCI_UNIX && !(k->tries && s->tuning.planted == SIM_PLANT_SYN_UNSEEN)) {
        s->syn_seen(s->syn_user, k->via, k->way->nic, &k->remote);
    }
}

/* Sent again after 1, 2, 4, ... s. */
static void sim_syn(sim *s, sim_sock *k)
{
    sim_syn_seen(s, k);
    int64_t again = GCI_SECOND << (k->tries < 8 ? k->tries : 8), left = k->started + s->tuning.connect_timeout - s->now;
    k->tries++;
    if (k->out.path.to) {
        sim_after(s, k->out.path.latency, sim_syn_arrives, k, 0);
    }
    sim_schedule(s, &k->watchdog, s->now + (again < left ? again : left));
}

/* ---- the system calls ---- */

static sim_sock *sim_sock_get(sim_ctx *c, int fd, const char *call)
{
    return (sim_sock *)sim_file_get(c->proc, fd, SIM_SOCKET, call);
}

static uint16_t sim_port(sim_host *h)
{
    uint16_t port = h->next_port;
    h->next_port = port == SIM_PORT_LAST ? SIM_PORT_FIRST : (uint16_t)(port + 1);
    return port;
}

/* Unix sockets have names of their own. */
static bool sim_port_taken(const sim_host *h, const gci_addr *at)
{
    const sim_sock *l = h->listening;
    while (l && (l->local.port != at->port || (l->local.family == GCI_UNIX) != (at->family == GCI_UNIX) ||
                 !(sim_is_any(&l->local) || sim_is_any(at) || gci_addr_equal(&l->local, at)))) {
        l = l->next_listening;
    }
    return l != NULL;
}

static int sim_listen_at(sim_proc *p, gci_addr *at)
{
    sim_host *h = p->host;
    if (!at->family) {
        at->family = 6;
        memset(at->ip, 0, sizeof at->ip);
    }
    if (at->family == GCI_UNIX && h->no_unix) {
        return -EAFNOSUPPORT;
    }
    if (!sim_is_any(at) && !sim_own_address(h, at)) {
        return -EADDRNOTAVAIL;
    }
    if (at->port && sim_port_taken(h, at)) {
        return -EADDRINUSE;
    }
    while (!at->port || sim_port_taken(h, at)) {
        at->port = sim_port(h);
    }
    sim_sock *k = sim_sock_new(h, SIM_LISTENING);
    int fd = sim_file_open(p, &k->file, SIM_SOCKET);
    if (fd < 0) {
        k->state = SIM_CLOSED;
        return fd;
    }
    k->local = *at;
    k->next_listening = h->listening;
    h->listening = k;
    return fd;
}

int sim_prelisten(sim_proc *p, gci_addr *at) { return sim_listen_at(p, at); }

static int sim_sys_listen(gci_sys *sys, gci_addr *at)
{
    return sim_listen_at(sim_call(sys)->proc, at);
}

bool sim_tcp_listens(const sim_file *f) { return f->kind == SIM_SOCKET && ((const sim_sock *)f)->state == SIM_LISTENING; }

static int sim_sys_adopt(gci_sys *sys, int inherited, gci_addr *at)
{
    const sim_proc *p = sim_call(sys)->proc;
    const sim_file *f = inherited >= 0 && inherited < p->files_room ? p->files[inherited] : NULL;
    if (!f || !sim_tcp_listens(f)) {
        return f ? -EINVAL : -EBADF;
    }
    *at = ((const sim_sock *)f)->local;
    return inherited;
}

/* No launcher there speaks to its processes. */
static int sim_sys_inherit(gci_sys *sys, int inherited)
{
    (void)sim_call(sys), (void)inherited;
    return -ENOTCONN;
}

static int sim_sys_accept(gci_sys *sys, int fd, gci_addr *from)
{
    sim_ctx *c = sim_call(sys);
    sim_sock *l = sim_sock_get(c, fd, "accept");
    if (l->state != SIM_LISTENING) {
        return -EINVAL;
    }
    if (!l->queue || sim_one_in(c->s, c->s->tuning.again_in)) {
        sim_found_nothing(c);
        return -EAGAIN;
    }
    sim_sock *k = l->queue;
    int new = sim_file_open(c->proc, &k->file, SIM_SOCKET);
    if (new < 0) {
        return new;
    }
    c->stuck = 0;
    l->queue = k->next_queued;
    l->queue_last = l->queue ? l->queue_last : NULL;
    l->waiting--;
    if (from) {
        *from = k->remote;
    }
    return new;
}

static uint16_t sim_nat_port(sim_nat *nat)
{
    uint16_t port = nat->next_port;
    nat->next_port = port == SIM_PORT_LAST ? SIM_PORT_FIRST : (uint16_t)(port + 1);
    return port;
}

/* At a Unix socket it is known at once. */
static int sim_knock(sim_host *h, const gci_addr *to)
{
    const sim_sock *l = h->no_unix ? NULL : sim_listener(h, to);
    return h->no_unix ? -EAFNOSUPPORT : !l ? -ECONNREFUSED : l->waiting >= h->s->tuning.backlog ? -EAGAIN : 0;
}

/* via: not NULL for the stream of a child process that connects from there. */
static int sim_open(sim_proc *p, sim_host *via, const gci_addr *to, const gci_addr *source, uint32_t bound)
{
    sim *s = p->s;
    sim_way way;
    int code = via ? sim_route_child(p->host, via, to, &way) : sim_route(p->host, to, source, bound, &way);
    if (code == 0 && to->family == GCI_UNIX) {
        code = sim_knock(p->host, to);
    }
    if (code < 0 && code != -EHOSTUNREACH && !via) {
        return code;
    }
    sim_sock *k = sim_sock_new(p->host, SIM_CONNECTING);
    int fd = sim_file_open(p, &k->file, SIM_SOCKET);
    if (fd < 0) {
        k->state = SIM_CLOSED;
        return fd;
    }
    k->way = sim_calloc(1, sizeof *k->way);
    k->opener = k;
    k->tunnel = via != NULL;
    k->via = via ? via : p->host;
    k->remote = *to;
    k->local = way.from;
    k->local.port = to->family == GCI_UNIX ? 0 : sim_port(k->host);
    k->started = k->used = s->now;
    way.seen.port = way.nat[0] ? sim_nat_port(&way.nat[0]->nat) : k->local.port;
    *k->way = way;
    if (code == 0) {
        k->out.path = way.there;
        k->out.send_buffer = s->tuning.send_buffer;
    } else if (code != 1) {
        if (way.nic) {          /* one goes out, or waits in vain for the neighbour's answer */
            sim_syn_seen(s, k);
        }
        sim_after(s, code == 2 ? 2 * way.there.latency : sim_no_neighbour, sim_sock_fail, k, code == 2 ? ECONNREFUSED : -code);
        return fd;
    }
    sim_syn(s, k);
    return fd;
}

static int sim_sys_connect(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bind)
{
    return sim_open(sim_call(sys)->proc, NULL, to, source, bind);
}

int sim_tunnel(sim_proc *p, sim_host *via, const gci_addr *to) { return sim_open(p, via, to, NULL, 0); }

static int sim_take_error(sim_sock *k)
{
    int error = k->error;
    k->error = 0;
    return -error;
}

static int sim_sys_connected(gci_sys *sys, int fd)
{
    sim_ctx *c = sim_call(sys);
    sim_sock *k = sim_sock_get(c, fd, "connected");
    if (k->state == SIM_CONNECTING) {
        sim_found_nothing(c);
        return -EINPROGRESS;
    }
    if (k->error) {
        return sim_take_error(k);
    }
    return k->state == SIM_UP ? 0 : -ECONNABORTED;
}

static int sim_sys_tune(gci_sys *sys, int fd, enum gci_tune tune, int64_t peer_timeout)
{
    sim_ctx *c = sim_call(sys);
    sim_sock *k = sim_sock_get(c, fd, "tune");
    k->tune = tune;
    k->peer_timeout = peer_timeout;
    if (k->state == SIM_UP) {
        sim_unschedule(c->s, &k->watchdog);
        sim_sock_path_changed(k);
        sim_keepalive_arm(c->s, k);
    }
    return 0;
}

static void sim_sys_acknowledge(gci_sys *sys, int fd) { sim_sock_get(sim_call(sys), fd, "acknowledge"); }     /* none waits here */

/* As TCP_INFO tells it. Probes, of keepalive or of a shut window, are not simulated one by one: since the way is cut they have
 * had no answer. */
static size_t sim_sys_backlog(gci_sys *sys, int fd)
{
    const sim_sock *k = sim_sock_get(sim_call(sys), fd, "backlog");
    return k->state == SIM_UP ? k->out.unsent + k->out.unacked : 0;
}

static int64_t sim_sys_silence(gci_sys *sys, int fd)
{
    sim_ctx *c = sim_call(sys);
    const sim_sock *k = sim_sock_get(c, fd, "silence");
    int64_t now = c->s->now, cut = k->cut_since, probe = sim_probe_time(k);
    bool probed = cut >= 0 && (k->out.unsent || (probe && now >= cut + probe));
    if (k->state != SIM_UP || !k->peer || k->tunnel || k->remote.family == GCI_UNIX || (!k->out.unacked && !probed)) {
        return 0;
    }
    return now - (cut > k->heard ? cut : k->heard);
}

/* How many of `all` bytes one call moves: none for a spurious EAGAIN, fewer for a short one. */
static size_t sim_moved(sim *s, size_t all)
{
    if (sim_one_in(s, s->tuning.again_in)) {
        return 0;
    }
    return all > 1 && sim_one_in(s, s->tuning.short_in) ? 1 + (size_t)(sim_random(s) % all) : all;
}

static size_t sim_iov_bytes(const struct iovec *v, int n)
{
    size_t bytes = 0;
    for (int i = 0; i < n; i++) {
        bytes += v[i].iov_len;
    }
    return bytes;
}

static void sim_remember(sim_sock *k, const uint8_t *from, size_t bytes)
{
    size_t n = k->opener == k ? gci_min(bytes, sizeof k->opening - k->opening_bytes) : 0;
    memcpy(k->opening + k->opening_bytes, from, n);
    k->opening_bytes += n;
}

static ssize_t sim_sys_send(gci_sys *sys, int fd, const struct iovec *v, int n)
{
    sim_ctx *c = sim_call(sys);
    sim_sock *k = sim_sock_get(c, fd, "send");
    if (k->error) {
        return sim_take_error(k);
    }
    if (!k->tunnel && (k->state == SIM_CONNECTING || (k->state == SIM_UP && !k->peer))) {
        return -EAGAIN;
    }
    if ((k->state != SIM_UP && !k->tunnel) || k->got_rst || k->out.broken) {
        return -EPIPE;
    }
    size_t asked = sim_iov_bytes(v, n), left = sim_moved(c->s, gci_min(asked, sim_room(k))), moved = left;
    if (asked && !left) {
        sim_found_nothing(c);
        return -EAGAIN;
    }
    for (int i = 0; left; i++) {
        size_t part = gci_min(left, v[i].iov_len);
        if (part) {
            sim_ring_in(&k->out, v[i].iov_base, part);
            sim_remember(k, v[i].iov_base, part);
        }
        left -= part;
    }
    c->fruitless = c->idle_calls = c->stuck = 0;
    sim_pipe_pump(c->s, &k->out);
    return (ssize_t)moved;
}

/* Moves n bytes from the queue to the vector. */
static void sim_read_out(sim_pipe *in, const struct iovec *v, size_t n)
{
    size_t at = 0;
    for (int i = 0; n;) {
        sim_segment *seg = in->unread_queue.first;
        size_t part = gci_min(gci_min(n, v[i].iov_len - at), seg->bytes - seg->taken);
        if (part) {
            memcpy((uint8_t *)v[i].iov_base + at, seg->data + seg->taken, part);
        }
        at += part;
        n -= part;
        seg->taken += part;
        if (seg->taken == seg->bytes) {
            free(sim_queue_pop(&in->unread_queue));
        }
        if (at == v[i].iov_len) {
            i++;
            at = 0;
        }
    }
}

static ssize_t sim_sys_recv(gci_sys *sys, int fd, const struct iovec *v, int n)
{
    enum { UPDATE_SHARE = 4 };  /* the sender hears when this part of the window is free again */
    sim_ctx *c = sim_call(sys);
    sim_sock *k = sim_sock_get(c, fd, "recv");
    sim_pipe *in = k->peer ? &k->peer->out : NULL;
    size_t asked = sim_iov_bytes(v, n), moved = 0;
    if (in && in->unread && k->state == SIM_UP) {
        moved = sim_moved(c->s, gci_min(asked, in->unread));
    } else if (k->error) {
        return sim_take_error(k);
    } else if (k->got_fin || k->got_rst || k->state == SIM_FAILED) {
        return 0;
    }
    if (!moved && asked) {
        sim_found_nothing(c);
        return -EAGAIN;
    }
    sim_read_out(in, v, moved);
    in->unread -= moved;
    in->opened += moved;
    if (in->opened && in->opened >= in->recv_buffer / UPDATE_SHARE) {
        sim_after(c->s, k->out.path.latency, sim_window_opened, in, (int64_t)in->opened);
        in->opened = 0;
    }
    c->fruitless = c->idle_calls = c->stuck = 0;
    return (ssize_t)moved;
}

void sim_tcp_fill(gci_sys *t)
{
    t->listen = sim_sys_listen;
    t->adopt = sim_sys_adopt;
    t->inherit = sim_sys_inherit;
    t->accept = sim_sys_accept;
    t->connect = sim_sys_connect;
    t->connected = sim_sys_connected;
    t->tune = sim_sys_tune;
    t->silence = sim_sys_silence;
    t->backlog = sim_sys_backlog;
    t->send = sim_sys_send;
    t->recv = sim_sys_recv;
    t->acknowledge = sim_sys_acknowledge;
}
