/* forward_tcp.c: the least that a relay between two TCP connections can do, for comparison.
 *
 * SPDX-License-Identifier: MIT
 *
 *     forward_tcp PORT ADDRESS NEXT_PORT
 *
 * Takes one connection at PORT, opens one to ADDRESS, and passes on what comes from either to the other until both have
 * ended. It sleeps in epoll, as a relay does; what the other side does not take waits in one buffer per direction, and
 * as long as something waits there nothing more is read.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>

enum { BUFFER = 65536, ALARM_SECONDS = 120, ENDS = 2 };

struct end { int fd; size_t at, bytes; bool over; char waiting[BUFFER]; };      /* waiting: what came here, for the other */

static int fail(const char *what)
{
    fprintf(stderr, "forward_tcp: %s: %s\n", what, strerror(errno));
    return -1;
}

static int take_one(const char *port)
{
    const int listener = tcp_listen(port, 1);
    if (listener < 0) return fail("listen");
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    close(listener);
    return fd < 0 || tcp_without_delay(fd) < 0 ? fail("accept") : fd;
}

/* From one end to the other until one of them would block. */
static int pass(struct end *from, const struct end *to)
{
    for (;;) {
        while (from->at < from->bytes) {
            const ssize_t n = send(to->fd, from->waiting + from->at, from->bytes - from->at, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : fail("send");
            from->at += (size_t)n;
        }
        if (from->over) return 0;
        from->at = from->bytes = 0;
        const ssize_t n = recv(from->fd, from->waiting, BUFFER, MSG_DONTWAIT);
        if (n < 0) return errno == EAGAIN || errno == EINTR ? 0 : fail("recv");
        from->bytes = (size_t)n;
        if (n == 0) {
            from->over = true;
            shutdown(to->fd, SHUT_WR);
        }
    }
}

static bool has_waiting(const struct end *e) { return e->at < e->bytes; }

/* Reads where nothing waits, and writes where something does; changed only when that changes. */
static int watch(int poller, const struct end end[ENDS], uint32_t watched[ENDS])
{
    for (uint32_t i = 0; i < ENDS; i++) {
        struct epoll_event e = { .events = 0, .data.u32 = i };
        if (!has_waiting(&end[i]) && !end[i].over) e.events |= EPOLLIN;
        if (has_waiting(&end[1 - i])) e.events |= EPOLLOUT;
        if (e.events == watched[i]) continue;
        if (epoll_ctl(poller, EPOLL_CTL_MOD, end[i].fd, &e) < 0) return fail("epoll_ctl");
        watched[i] = e.events;
    }
    return 0;
}

static int forward(struct end end[ENDS])
{
    uint32_t watched[ENDS] = { 0 };
    const int poller = epoll_create1(EPOLL_CLOEXEC);
    if (poller < 0) return fail("epoll_create1");
    for (uint32_t i = 0; i < ENDS; i++) {
        struct epoll_event e = { .data.u32 = i };
        if (epoll_ctl(poller, EPOLL_CTL_ADD, end[i].fd, &e) < 0) return fail("epoll_ctl");
    }
    while (!end[0].over || !end[1].over || has_waiting(&end[0]) || has_waiting(&end[1])) {
        struct epoll_event event[ENDS];
        if (watch(poller, end, watched) < 0) return -1;
        const int n = epoll_wait(poller, event, ENDS, -1);
        if (n < 0 && errno != EINTR) return fail("epoll_wait");
        for (int i = 0; i < n; i++) {
            struct end *from = &end[event[i].data.u32], *to = &end[1 - event[i].data.u32];
            if (event[i].events & EPOLLOUT && pass(to, from) < 0) return -1;
            if (event[i].events & ~(uint32_t)EPOLLOUT && pass(from, to) < 0) return -1;
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static struct end end[ENDS];
    alarm(ALARM_SECONDS);           /* nothing here may wait for ever */
    if (argc != 4) {
        fprintf(stderr, "usage: forward_tcp PORT ADDRESS NEXT_PORT\n");
        return 2;
    }
    if ((end[0].fd = take_one(argv[1])) < 0) return 1;
    if ((end[1].fd = tcp_connect(argv[2], argv[3])) < 0) return -fail(argv[2]);
    return forward(end) < 0;
}
