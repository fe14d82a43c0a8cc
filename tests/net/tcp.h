/* tcp.h: connections of the programs that use bare sockets. What fails gives -1 and errno.
 *
 * SPDX-License-Identifier: MIT
 */
#ifndef TCP_H
#define TCP_H

#include "measure.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

enum { TCP_CONNECT_TRIES = 500, TCP_CONNECT_PAUSE_MS = 10 };

static inline int tcp_without_delay(int fd)
{
    const int one = 1;
    return setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

static inline int tcp_listen(const char *port, int backlog)
{
    const int one = 1, fd = socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);      /* takes IPv4 too */
    const struct sockaddr_in6 at = { .sin6_family = AF_INET6, .sin6_port = htons((uint16_t)atoi(port)) };
    if (fd < 0) return -1;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    return bind(fd, (const struct sockaddr *)&at, sizeof at) < 0 || listen(fd, backlog) < 0 ? -1 : fd;
}

/* Without delay. Tries for a while: the other end may still be starting. */
static inline int tcp_connect(const char *address, const char *port)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST };
    struct addrinfo *to = NULL;
    if (getaddrinfo(address, port, &hints, &to) != 0) return -1;
    int fd = -1;
    for (int i = 0; i < TCP_CONNECT_TRIES && fd < 0; i++) {
        fd = socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd >= 0 && connect(fd, to->ai_addr, to->ai_addrlen) == 0) break;
        if (fd >= 0) close(fd);
        fd = -1;
        measure_sleep_until(measure_now() + (int64_t)TCP_CONNECT_PAUSE_MS * 1000000);
    }
    freeaddrinfo(to);
    return fd >= 0 && tcp_without_delay(fd) == 0 ? fd : -1;
}

#endif
