/* peer_tcp.c: what bare TCP sockets do between two hosts, for comparison.
 *
 * SPDX-License-Identifier: MIT
 *
 *     peer_tcp serve PORT                                          answers one client, then ends
 *     peer_tcp pingpong ADDRESS PORT poll|sleep BYTES IDLE         prints half a round trip in us
 *     peer_tcp stream   ADDRESS PORT poll|sleep BYTES IDLE         prints byte/s of messages of BYTES answered by one byte
 *
 * poll: both ends spin on a non-blocking recv(); sleep: both block in it. IDLE more connections are held open. Both ends
 * use TCP_NODELAY and leave the buffers to the kernel, as gridcomm does; a message is received into one buffer of its
 * own, as a library would deliver it.
 */
#define _GNU_SOURCE
#include "tcp.h"

#include <errno.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

enum { IDLE_MAX = 1000, ALARM_SECONDS = 120, MESSAGE_MAX = 1 << 28 };

struct task { uint32_t bytes, answer, idle, spin; };    /* what the client asks for; both ends are one machine */
struct peer { int fd; struct task task; char *buffer; };

static int fail(const char *what)
{
    fprintf(stderr, "peer_tcp: %s: %s\n", what, strerror(errno));
    return -1;
}

static int send_all(const struct peer *p, size_t bytes)
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = send(p->fd, p->buffer + done, bytes - done, MSG_NOSIGNAL | (p->task.spin ? MSG_DONTWAIT : 0));
        if (n > 0) done += (size_t)n;
        else if (n < 0 && errno != EAGAIN && errno != EINTR) return fail("send");
    }
    return 0;
}

static int recv_all(const struct peer *p, size_t bytes)     /* 1: the other end closed instead */
{
    for (size_t done = 0; done < bytes;) {
        const ssize_t n = recv(p->fd, p->buffer + done, bytes - done, p->task.spin ? MSG_DONTWAIT : 0);
        if (n > 0) done += (size_t)n;
        else if (n == 0) return 1;
        else if (errno != EAGAIN && errno != EINTR) return fail("recv");
    }
    return 0;
}

/* ---- the server ---- */

static int answer(struct peer *p, int listener)
{
    for (uint32_t i = 0; i < p->task.idle; i++)
        if (accept4(listener, NULL, NULL, SOCK_CLOEXEC) < 0) return fail("accept");
    for (;;) {
        const int end = recv_all(p, p->task.bytes);
        if (end) return end < 0 ? -1 : 0;
        if (send_all(p, p->task.answer) < 0) return -1;
    }
}

static int serve(const char *port)
{
    struct peer p = { .fd = -1 };
    const int listener = tcp_listen(port, IDLE_MAX);
    if (listener < 0) return fail("listen");
    if ((p.fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC)) < 0 || tcp_without_delay(p.fd) < 0) return fail("accept");
    struct task task;
    p.buffer = (char *)&task;
    if (recv_all(&p, sizeof task) != 0 || task.idle > IDLE_MAX || task.bytes > MESSAGE_MAX || task.answer > task.bytes) return -1;
    p.task = task;
    if ((p.buffer = malloc(task.bytes)) == NULL) return fail("malloc");
    return answer(&p, listener);
}

/* ---- the client ---- */

static int exchange(void *user)
{
    const struct peer *p = user;
    return send_all(p, p->task.bytes) < 0 || recv_all(p, p->task.answer) != 0 ? -1 : 0;
}

static int client(bool stream, char **arg)
{
    struct peer p = { .task = { .bytes = (uint32_t)strtoul(arg[3], NULL, 10), .idle = (uint32_t)strtoul(arg[4], NULL, 10),
                                .spin = strcmp(arg[2], "poll") == 0 } };
    p.task.answer = stream ? 1 : p.task.bytes;
    if (p.task.bytes < 1 || p.task.bytes > MESSAGE_MAX || p.task.idle > IDLE_MAX) return fail("arguments");
    if ((p.fd = tcp_connect(arg[0], arg[1])) < 0) return fail(arg[0]);
    struct task task = p.task;
    p.buffer = (char *)&task;
    if (send_all(&p, sizeof task) < 0) return -1;
    for (uint32_t i = 0; i < p.task.idle; i++)
        if (tcp_connect(arg[0], arg[1]) < 0) return fail(arg[0]);
    if ((p.buffer = calloc(1, p.task.bytes)) == NULL) return fail("malloc");
    const double seconds = measure_repeat(exchange, &p);
    if (seconds <= 0) return -1;
    if (stream) printf("%.0f\n", (double)p.task.bytes / seconds);
    else printf("%.3f\n", seconds / 2 * 1e6);
    free(p.buffer);
    return 0;
}

int main(int argc, char **argv)
{
    alarm(ALARM_SECONDS);           /* nothing here may wait for ever */
    if (argc == 3 && strcmp(argv[1], "serve") == 0) return serve(argv[2]) < 0;
    if (argc == 7 && strcmp(argv[1], "pingpong") == 0) return client(false, argv + 2) < 0;
    if (argc == 7 && strcmp(argv[1], "stream") == 0) return client(true, argv + 2) < 0;
    fprintf(stderr, "usage: peer_tcp serve PORT | pingpong|stream ADDRESS PORT poll|sleep BYTES IDLE\n");
    return 2;
}
