/* gcrun_tunnel.c: connections to rank 0 from hosts that cannot reach it, carried over the agents' channels.
 * SPDX-License-Identifier: MIT
 *
 *   rank --socket--> node (entry) ==channel==> gcrun ==channel==> node of rank 0 (exit) --socket--> rank 0
 *
 * The entry listens on loopback; its port is the last of the rendezvous addresses of its ranks, so only who gets through
 * nowhere else comes here. gcrun passes frames on and knows nothing of connections. Both ends of a connection run the
 * same code. Memory stays bounded: each end may have TUNNEL_WINDOW bytes under way that the other end's socket has not
 * taken; what has been taken is told by ACK, in halves of the window. A connection ends when both directions have ended,
 * or at once by RESET; RESET with 0 in the lower half of the id ends all connections of a host that is lost. Ids count up,
 * so that frames that cross a RESET meet no younger connection.
 *
 * What comes through here is as much a stranger to rank 0 as any other connection: the handshake decides.
 */
#include "gcrun.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TUNNEL_WINDOW = 65536,
       TUNNEL_OF_RANK = 2,          /* connections of one rank at a time: it holds one until all have joined, and tries the next */
       TUNNEL_MORE = 64,            /* ... and strangers; at the entry more wait in the backlog, at the exit more are reset */
       TUNNEL_READ = 16384 };

typedef struct tunnel_link {
    uint32_t    id;
    int         fd, poll;
    gcrun_queue out;                /* for the socket, at most TUNNEL_WINDOW */
    size_t      credit;             /* bytes that may still go to the other end */
    size_t      taken;              /* bytes that the socket took and the other end does not know of */
    bool        read_end, write_end, shut;  /* end of the socket's stream; of the other end's stream; passed on to the socket */
} tunnel_link;

struct gcrun_tunnel {
    int          listener, listener_poll;
    uint16_t     target;            /* 0: not an exit */
    int          most;              /* connections here */
    uint32_t     next_id;
    tunnel_link *link;
    int          links, room;
};

gcrun_tunnel *gcrun_tunnel_new(void)
{
    gcrun_tunnel *t = gcrun_alloc(1, sizeof *t);
    t->listener = t->listener_poll = -1;
    return t;
}

int gcrun_tunnel_enter(gcrun_tunnel *t, int ranks, uint16_t *port)
{
    t->most = TUNNEL_OF_RANK * ranks + TUNNEL_MORE;
    t->listener = gcrun_listen_loopback(port);
    return t->listener < 0 ? t->listener : 0;
}

void gcrun_tunnel_target(gcrun_tunnel *t, int ranks, uint16_t port)
{
    t->most = TUNNEL_OF_RANK * ranks + TUNNEL_MORE;
    t->target = port;
}

static void tunnel_add(gcrun_tunnel *t, uint32_t id, int fd)
{
    if (t->links == t->room) {
        int room = t->room ? 2 * t->room : 8;
        tunnel_link *grown = realloc(t->link, (size_t)room * sizeof *grown);
        if (!grown) gcrun_die(GCRUN_EXIT_FAILED, "out of memory");
        t->link = grown;
        t->room = room;
    }
    t->link[t->links++] = (tunnel_link){ .id = id, .fd = fd, .poll = -1, .credit = TUNNEL_WINDOW };
}

static void tunnel_remove(gcrun_tunnel *t, tunnel_link *link)
{
    close(link->fd);
    gcrun_queue_free(&link->out);
    *link = t->link[--t->links];
}

static tunnel_link *tunnel_find(gcrun_tunnel *t, uint32_t id)
{
    for (int i = 0; i < t->links; i++)
        if (t->link[i].id == id) return &t->link[i];
    return NULL;
}

void gcrun_tunnel_polls(gcrun_tunnel *t, gcrun_polls *polls)
{
    t->listener_poll = gcrun_polls_add(polls, t->listener, t->links < t->most ? POLLIN : 0);
    for (int i = 0; i < t->links; i++) {
        tunnel_link *link = &t->link[i];
        bool read = !link->read_end && link->credit > 0;
        bool write = gcrun_queue_bytes(&link->out) > 0 || (link->write_end && !link->shut);
        link->poll = gcrun_polls_add(polls, link->fd, (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0)));
    }
}

static void tunnel_accept(gcrun_tunnel *t, gcrun_queue *to_head)
{
    int fd = accept4(t->listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd < 0) return;                             /* gone again, or no descriptor: the next round tries */
    t->next_id = t->next_id % 0xffff + 1;           /* 1 .. 65535: gcrun keeps the upper half for the host's number */
    if (tunnel_find(t, t->next_id)) {               /* older than 65,535 others */
        close(fd);
        return;
    }
    tunnel_add(t, t->next_id, fd);
    gcrun_frame_put(to_head, GCRUN_TUNNEL_OPEN, t->next_id, NULL, 0);
}

/* Socket to channel. False: the connection is broken. */
static bool tunnel_read(tunnel_link *link, gcrun_queue *to_head)
{
    unsigned char data[TUNNEL_READ];
    size_t room = link->credit < sizeof data ? link->credit : sizeof data;
    ssize_t n = recv(link->fd, data, room, 0);
    if (n < 0) return errno == EAGAIN || errno == EINTR;
    if (n == 0) {
        link->read_end = true;
        gcrun_frame_put(to_head, GCRUN_TUNNEL_EOF, link->id, NULL, 0);
        return true;
    }
    link->credit -= (size_t)n;
    gcrun_frame_put(to_head, GCRUN_TUNNEL_DATA, link->id, data, (size_t)n);
    return true;
}

/* Channel to socket. False: the connection is broken. */
static bool tunnel_write(tunnel_link *link, gcrun_queue *to_head)
{
    size_t before = gcrun_queue_bytes(&link->out);
    while (gcrun_queue_bytes(&link->out) > 0) {
        ssize_t n = send(link->fd, link->out.data + link->out.start, gcrun_queue_bytes(&link->out), MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno != EAGAIN) return false;
        if (n < 0) break;
        gcrun_queue_drop(&link->out, (size_t)n);
    }
    link->taken += before - gcrun_queue_bytes(&link->out);
    if (link->taken >= TUNNEL_WINDOW / 2 || (link->taken > 0 && gcrun_queue_bytes(&link->out) == 0)) {
        gcrun_frame_put_number(to_head, GCRUN_TUNNEL_ACK, link->id, (uint32_t)link->taken);
        link->taken = 0;
    }
    if (link->write_end && !link->shut && gcrun_queue_bytes(&link->out) == 0) {
        link->shut = true;
        shutdown(link->fd, SHUT_WR);
    }
    return true;
}

void gcrun_tunnel_work(gcrun_tunnel *t, const gcrun_polls *polls, gcrun_queue *to_head)
{
    for (int i = t->links - 1; i >= 0; i--) {       /* backwards: removing moves the last one here */
        tunnel_link *link = &t->link[i];
        short seen = gcrun_polls_seen(polls, link->poll);
        bool alive = true;
        link->poll = -1;
        if (seen & POLLOUT) alive = tunnel_write(link, to_head);
        if (alive && seen & (POLLIN | POLLHUP | POLLERR) && link->credit > 0 && !link->read_end)
            alive = tunnel_read(link, to_head);
        if (alive && seen & POLLERR) alive = false;
        if (!alive) gcrun_frame_put(to_head, GCRUN_TUNNEL_RESET, link->id, NULL, 0);
        if (!alive || (link->read_end && link->shut)) tunnel_remove(t, link);
    }
    if (gcrun_polls_seen(polls, t->listener_poll) & POLLIN) tunnel_accept(t, to_head);
    t->listener_poll = -1;
}

static void tunnel_open(gcrun_tunnel *t, uint32_t id, gcrun_queue *to_head)
{
    int fd = t->target && t->links < t->most && !tunnel_find(t, id) ? gcrun_connect_loopback(t->target) : -1;
    if (fd < 0) gcrun_frame_put(to_head, GCRUN_TUNNEL_RESET, id, NULL, 0);
    else tunnel_add(t, id, fd);
}

static void tunnel_reset_host(gcrun_tunnel *t, uint32_t host)
{
    for (int i = t->links - 1; i >= 0; i--)
        if (t->link[i].id >> 16 == host) tunnel_remove(t, &t->link[i]);
}

bool gcrun_tunnel_busy(const gcrun_tunnel *t)
{
    for (int i = 0; i < t->links; i++)
        if (!t->link[i].read_end) return true;
    return false;
}

bool gcrun_tunnel_frame(gcrun_tunnel *t, const gcrun_frame *frame, gcrun_queue *to_head)
{
    uint32_t number = 0;
    if (frame->type == GCRUN_TUNNEL_OPEN) {
        tunnel_open(t, frame->id, to_head);
        return true;
    }
    if (frame->type == GCRUN_TUNNEL_RESET && (frame->id & 0xffff) == 0) {
        tunnel_reset_host(t, frame->id >> 16);
        return true;
    }
    if (frame->type == GCRUN_TUNNEL_ACK && !gcrun_frame_number(frame, &number)) return false;
    tunnel_link *link = tunnel_find(t, frame->id);
    if (!link) return true;                         /* reset at this end a moment ago */
    switch (frame->type) {
    case GCRUN_TUNNEL_DATA:
        if (link->write_end || gcrun_queue_bytes(&link->out) + frame->length > TUNNEL_WINDOW) return false;
        gcrun_queue_put(&link->out, frame->payload, frame->length);
        return true;
    case GCRUN_TUNNEL_ACK:
        if (number > TUNNEL_WINDOW - link->credit) return false;
        link->credit += number;
        return true;
    case GCRUN_TUNNEL_EOF:
        link->write_end = true;
        return true;
    case GCRUN_TUNNEL_RESET:
        tunnel_remove(t, link);
        return true;
    default:
        return false;
    }
}

void gcrun_tunnel_free(gcrun_tunnel *t)
{
    while (t->links > 0) tunnel_remove(t, &t->link[0]);
    if (t->listener >= 0) close(t->listener);
    free(t->link);
    free(t);
}
