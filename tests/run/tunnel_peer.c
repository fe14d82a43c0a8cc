/* tunnel_peer.c: ranks that meet at the rendezvous of gcrun, with plain sockets: a test of the tunnel.
 * SPDX-License-Identifier: MIT
 *
 * Rank 0 accepts size - 1 connections on the inherited socket and sends every byte back. Each other rank connects to the
 * last entry of GRIDCOMM_ROOT, sends PEER_BYTES of a pattern of its own while it reads, and checks what comes back.
 * usage: tunnel_peer [close|all]: with close, rank 0 closes each connection at once, and the others must see that end; with all,
 * it closes them when it has all, as with those of ranks that join.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PEER_BYTES = 3000001, PEER_PIECE = 50000 };

static int peer_fail(const char *what)
{
    fprintf(stderr, "tunnel_peer: %s: %s\n", what, strerror(errno));
    return 1;
}

static bool peer_write(int fd, const unsigned char *data, size_t bytes)
{
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n <= 0) return false;
        data += n;
        bytes -= (size_t)n;
    }
    return true;
}

static int peer_echo(int listener, int ranks, const char *how)
{
    for (int i = 1; i < ranks; i++) {
        struct pollfd ready = { .fd = listener, .events = POLLIN };
        poll(&ready, 1, 20000);                     /* the socket may have been left non-blocking */
        int fd = accept(listener, NULL, NULL);
        if (fd < 0) return peer_fail("accept");
        if (how && strcmp(how, "close") == 0) close(fd);
        if (how) continue;
        pid_t pid = fork();                         /* one process a connection: they overlap */
        if (pid < 0) return peer_fail("fork");
        if (pid > 0) { close(fd); continue; }
        unsigned char data[PEER_PIECE];
        ssize_t n;
        while ((n = recv(fd, data, sizeof data, 0)) > 0)
            if (!peer_write(fd, data, (size_t)n)) return peer_fail("send back");
        return n < 0 ? peer_fail("recv") : 0;
    }
    int failed = 0, status;
    while (wait(&status) > 0) failed |= status != 0;    /* what a rank leaves running, gcrun ends */
    return failed;
}

static unsigned char peer_byte(size_t i, int rank)
{
    return (unsigned char)(i * 7 + i / 251 + (size_t)rank * 31);
}

static int peer_check(int fd, int rank)
{
    unsigned char data[PEER_PIECE], back[PEER_PIECE];
    size_t sent = 0, seen = 0;
    while (seen < PEER_BYTES) {
        struct pollfd ready = { .fd = fd, .events = (short)(POLLIN | (sent < PEER_BYTES ? POLLOUT : 0)) };
        if (poll(&ready, 1, 20000) <= 0) return peer_fail("poll");
        if (ready.revents & POLLOUT) {
            size_t piece = PEER_BYTES - sent < sizeof data ? PEER_BYTES - sent : sizeof data;
            for (size_t i = 0; i < piece; i++) data[i] = peer_byte(sent + i, rank);
            ssize_t n = send(fd, data, piece, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN) return peer_fail("send");
            if (n > 0) sent += (size_t)n;
            if (sent == PEER_BYTES) shutdown(fd, SHUT_WR);
        }
        if (!(ready.revents & (POLLIN | POLLHUP))) continue;
        ssize_t n = recv(fd, back, sizeof back, 0);
        if (n <= 0) return peer_fail("recv");
        for (ssize_t i = 0; i < n; i++)
            if (back[i] != peer_byte(seen + (size_t)i, rank)) return peer_fail("wrong byte");
        seen += (size_t)n;
    }
    return recv(fd, back, sizeof back, 0) == 0 ? 0 : peer_fail("no end");
}

int main(int argc, char **argv)
{
    const char *root = getenv("GRIDCOMM_ROOT"), *rank_text = getenv("GRIDCOMM_RANK"), *size = getenv("GRIDCOMM_SIZE");
    const char *how = argc > 1 ? argv[1] : NULL;
    if (!root || !rank_text || !size) return peer_fail("environment");
    int rank = atoi(rank_text);
    if (rank == 0) return peer_echo(atoi(getenv("GRIDCOMM_LISTEN_FD") ? getenv("GRIDCOMM_LISTEN_FD") : "-1"), atoi(size), how);
    struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    const char *last = strrchr(root, ',') ? strrchr(root, ',') + 1 : root, *port = strrchr(last, ':');
    if (!port || strncmp(last, "127.0.0.1:", 10) != 0) return peer_fail(root);
    to.sin_port = htons((unsigned short)atoi(port + 1));
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || connect(fd, (struct sockaddr *)&to, sizeof to) != 0) return peer_fail("connect");
    if (!how) return peer_check(fd, rank);
    char byte;
    return recv(fd, &byte, 1, 0) <= 0 ? 0 : peer_fail("a byte from nowhere");
}
