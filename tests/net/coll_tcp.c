/* coll_tcp.c: the least that any collective has to do between the ranks of several sites, over bare sockets:
 * what gridcomm's collectives are compared with.
 *
 * SPDX-License-Identifier: MIT
 *
 *     gcrun ... coll_tcp BOARD out|in|all|flow [TIMES [BYTES]]
 *
 *     out    rank 0 sends BYTES (1) to the coordinator of each other site, and each coordinator a byte to the ranks of its site
 *     in     the same backwards
 *     all    the ranks of a site send to their coordinator, all coordinators to each other, and each to its ranks
 *     flow   64 MiB from rank 0 to the coordinator of the next site, and no further: what a link between two sites carries
 *
 * A site is what ranks with the same GRIDCOMM_CLUSTER form, its coordinator its lowest rank. Connections are made before; each
 * wait of one byte is a blocking recv(). Ranks find each other on the board (see board.h), by the address of their eth0.
 */
#define _GNU_SOURCE
#include "board.h"
#include "tcp.h"

#include <arpa/inet.h>
#include <errno.h>
#include <net/if.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <sys/ioctl.h>

enum { ALARM_SECONDS = 300, BACKLOG = BOARD_RANKS, LOOK_US = 1000, FLOW_BYTES = 64 << 20, PIECE = 1 << 16 };

struct bare {
    struct board *board;
    int rank, size, above;                  /* above: the own coordinator, perhaps itself */
    int fd[BOARD_RANKS];                    /* of connected ranks, else -1 */
    int below[BOARD_RANKS], belows;         /* at a coordinator: the other ranks of its site */
    int beside[BOARD_RANKS], besides;       /* at a coordinator: the other coordinators */
    size_t bytes;                           /* between two coordinators */
};

static int fail(const char *what)
{
    fprintf(stderr, "coll_tcp: %s: %s\n", what, strerror(errno));
    return -1;
}

static int put(const struct bare *b, int to)
{
    const char byte = 1;
    return send(b->fd[to], &byte, 1, MSG_NOSIGNAL) == 1 ? 0 : fail("send");
}

static int take(const struct bare *b, int from)
{
    char byte;
    return recv(b->fd[from], &byte, 1, 0) == 1 ? 0 : fail("recv");
}

static int put_all(const struct bare *b, const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (put(b, ranks[i]) != 0) return -1;
    return 0;
}

static int take_all(const struct bare *b, const int *ranks, int n)
{
    for (int i = 0; i < n; i++)
        if (take(b, ranks[i]) != 0) return -1;
    return 0;
}

/* Moves what it can either way without waiting. */
static int move(const struct bare *b, int peer, short ready, size_t *out, size_t *in)
{
    static char piece[PIECE];
    if (ready & POLLOUT) {
        const ssize_t n = send(b->fd[peer], piece, *out < PIECE ? *out : PIECE, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN) return fail("send");
        if (n > 0) *out -= (size_t)n;
    }
    if ((ready & (POLLIN | POLLHUP | POLLERR)) && *in > 0) {
        const ssize_t n = recv(b->fd[peer], piece, *in < PIECE ? *in : PIECE, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) return fail("recv");
        if (n > 0) *in -= (size_t)n;
    }
    return 0;
}

/* BYTES to each, from each, or both at the same time. */
static int exchange(const struct bare *b, const int *ranks, int n, bool sends, bool takes)
{
    size_t out[BOARD_RANKS], in[BOARD_RANKS];
    if (b->bytes == 1) return (sends && put_all(b, ranks, n) != 0) || (takes && take_all(b, ranks, n) != 0) ? -1 : 0;
    for (int i = 0; i < n; i++) {
        out[i] = sends ? b->bytes : 0;
        in[i] = takes ? b->bytes : 0;
    }
    for (;;) {
        struct pollfd p[BOARD_RANKS];
        int open = 0;
        for (int i = 0; i < n; i++) {
            p[i] = (struct pollfd){ .fd = out[i] + in[i] > 0 ? b->fd[ranks[i]] : -1,
                                    .events = (short)((out[i] > 0 ? POLLOUT : 0) | (in[i] > 0 ? POLLIN : 0)) };
            open += p[i].fd >= 0;
        }
        if (open == 0) return 0;
        if (poll(p, (nfds_t)n, -1) < 0) return fail("poll");
        for (int i = 0; i < n; i++)
            if (p[i].fd >= 0 && move(b, ranks[i], p[i].revents, &out[i], &in[i]) != 0) return -1;
    }
}

/* ---- the operations ---- */

static int out(void *user)
{
    const struct bare *b = user;
    if (b->above != b->rank) return take(b, b->above);
    const int root = 0;
    if (b->rank != root && exchange(b, &root, 1, false, true) != 0) return -1;
    if (b->rank == root && exchange(b, b->beside, b->besides, true, false) != 0) return -1;
    return put_all(b, b->below, b->belows);
}

static int in(void *user)
{
    const struct bare *b = user;
    if (b->above != b->rank) return put(b, b->above);
    if (take_all(b, b->below, b->belows) != 0) return -1;
    const int root = 0;
    return b->rank != root ? exchange(b, &root, 1, true, false) : exchange(b, b->beside, b->besides, false, true);
}

static int all(void *user)
{
    const struct bare *b = user;
    if (b->above != b->rank) return put(b, b->above) != 0 || take(b, b->above) != 0 ? -1 : 0;
    if (take_all(b, b->below, b->belows) != 0 || exchange(b, b->beside, b->besides, true, true) != 0) return -1;
    return put_all(b, b->below, b->belows);
}

static int next_site(const struct bare *b)      /* its coordinator */
{
    int r = 0;
    while (strcmp(b->board->rank[r].cluster, b->board->rank[0].cluster) == 0) r++;
    return r;
}

static int flow(void *user)
{
    static char buffer[FLOW_BYTES];
    const struct bare *b = user;
    const int next = next_site(b), fd = b->fd[b->rank == 0 ? next : 0];
    if (b->rank != 0 && b->rank != next) return 0;
    for (size_t done = 0; done < sizeof buffer;) {
        const size_t left = sizeof buffer - done;
        const ssize_t n = b->rank == 0 ? send(fd, buffer + done, left, MSG_NOSIGNAL) : recv(fd, buffer + done, left, 0);
        if (n <= 0) return fail("flow");
        done += (size_t)n;
    }
    return 0;
}

static int nap(void *user, int us)
{
    (void)user;
    board_nap(us);
    return 0;
}

/* ---- the connections ---- */

static int at_first(const struct bare *b, int r)        /* the coordinator of rank r */
{
    int first = 0;
    while (strcmp(b->board->rank[first].cluster, b->board->rank[r].cluster) != 0) first++;
    return first;
}

static int own_address(int fd, uint32_t *address)
{
    struct ifreq r = { .ifr_name = "eth0" };
    if (ioctl(fd, SIOCGIFADDR, &r) < 0) *address = htonl(INADDR_LOOPBACK);      /* no bed: one machine */
    else *address = ((struct sockaddr_in *)&r.ifr_addr)->sin_addr.s_addr;
    return 0;
}

/* Listens, and shows all ranks where; returns when all have. */
static int announce(const struct bare *b, const char *cluster)
{
    struct board_rank *mine = &b->board->rank[b->rank];
    struct sockaddr_in at = { .sin_family = AF_INET };
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, bytes) < 0 || listen(fd, BACKLOG) < 0
        || getsockname(fd, (struct sockaddr *)&at, &bytes) < 0 || own_address(fd, &mine->address) < 0) return fail("listen");
    snprintf(mine->cluster, sizeof mine->cluster, "%s", cluster);
    atomic_store(&mine->port, at.sin_port);
    for (int r = 0; r < b->size; r++)
        while (atomic_load(&b->board->rank[r].port) == 0) board_nap(LOOK_US);
    return fd;
}

static int connect_to(struct bare *b, int peer)
{
    const struct board_rank *p = &b->board->rank[peer];
    const struct sockaddr_in at = { .sin_family = AF_INET, .sin_port = atomic_load(&p->port), .sin_addr = { p->address } };
    const int fd = b->fd[peer] = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (const struct sockaddr *)&at, sizeof at) < 0 || tcp_without_delay(fd) < 0
        || send(fd, &b->rank, sizeof b->rank, MSG_NOSIGNAL) != sizeof b->rank) return fail("connect");
    return 0;
}

static int accept_from(struct bare *b, int listener)
{
    int peer;
    const int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd < 0 || tcp_without_delay(fd) < 0 || recv(fd, &peer, sizeof peer, MSG_WAITALL) != sizeof peer || peer < 0
        || peer >= b->size) return fail("accept");
    b->fd[peer] = fd;
    return 0;
}

/* A rank connects to its coordinator, and a coordinator to those of lower rank. */
static int connect_all(struct bare *b, int listener)
{
    int expected = 0;
    b->above = at_first(b, b->rank);
    if (b->above != b->rank) return connect_to(b, b->above);
    for (int r = 0; r < b->size; r++) {
        const int first = at_first(b, r);
        if (r == b->rank) continue;
        if (first == b->rank) b->below[b->belows++] = r;
        else if (first == r) b->beside[b->besides++] = r;
        else continue;
        if (r > b->rank) expected++;
        else if (connect_to(b, r) != 0) return -1;
    }
    while (expected-- > 0)
        if (accept_from(b, listener) != 0) return -1;
    return 0;
}

int main(int argc, char **argv)
{
    static struct bare b;
    const char *rank = getenv("GRIDCOMM_RANK"), *size = getenv("GRIDCOMM_SIZE"), *cluster = getenv("GRIDCOMM_CLUSTER");
    static const struct { const char *name; int (*run)(void *); } operations[] = {
        { "out", out }, { "in", in }, { "all", all }, { "flow", flow } };
    int (*operation)(void *) = NULL;
    alarm(ALARM_SECONDS);
    for (size_t i = 0; argc > 2 && i < sizeof operations / sizeof *operations; i++)
        if (strcmp(operations[i].name, argv[2]) == 0) operation = operations[i].run;
    b.rank = rank ? atoi(rank) : 0;
    b.size = size ? atoi(size) : 0;
    b.bytes = argc > 4 ? strtoul(argv[4], NULL, 10) : 1;
    if (argc > 5 || b.bytes == 0 || !operation || b.rank < 0 || b.rank >= b.size || b.size > BOARD_RANKS) {
        fprintf(stderr, "usage: gcrun ... coll_tcp BOARD out|in|all|flow [TIMES [BYTES]]\n");
        return 2;
    }
    if ((b.board = board_open(argv[1])) == NULL) return 1;
    const int listener = announce(&b, cluster ? cluster : "");
    if (listener < 0 || connect_all(&b, listener) != 0) return 1;
    const struct board_job job = { b.board, b.rank, b.size, argc > 3 ? atoi(argv[3]) : 0, operation, nap, &b };
    return board_time(&job) != 0;
}
