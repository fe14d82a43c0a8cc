/* stranger.c: those who do not belong to the job, for test_failure.sh.
 * SPDX-License-Identifier: MIT
 *
 * usage: stranger mute | noise            listens on loopback, prints its port, answers nothing, or random bytes
 *        stranger flood PORT COUNT SEED   connects COUNT times to PORT on loopback, says nonsense of six kinds or nothing,
 *                                         and waits until every connection has been ended by the other side. Prints
 *                                         "N connected", then "N dropped"; exit status 1 if some are not after FLOOD_S
 */
#define _POSIX_C_SOURCE 200809L
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { FLOOD_MAX = 1000, FLOOD_S = 30, LISTEN_S = 60, SAYS_MAX = 70000, HELLO_BYTES = 64, PROOF_BYTES = 32 };

enum kind { SILENT, GARBAGE, HALF_HELLO, GONE, WRONG_PROOF, GARBAGE_ON, KINDS };

typedef struct guest {
    enum kind kind;
    bool      connected, said, over;
    uint64_t  seed;
} guest;

static uint64_t mixed(uint64_t *state)      /* splitmix64 */
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

static int fail(const char *what)
{
    fprintf(stderr, "stranger: %s: %s\n", what, strerror(errno));
    return 1;
}

static int64_t now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct sockaddr_in loopback(int port)
{
    return (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons((uint16_t)port),
                                 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
}

static int listener(bool noisy)
{
    struct sockaddr_in at = loopback(0);
    socklen_t bytes = sizeof at;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, bytes) || listen(fd, 64) || getsockname(fd, (struct sockaddr *)&at, &bytes))
        return fail("listen");
    printf("%d\n", ntohs(at.sin_port));
    fflush(stdout);
    uint64_t seed = 1;
    for (;;) {                              /* until the alarm, or until the test ends it */
        int guest_fd = accept(fd, NULL, NULL);
        if (guest_fd >= 0 && noisy)
            for (int i = 0; i < 100; i++) {
                uint64_t word = mixed(&seed);
                if (send(guest_fd, &word, sizeof word, MSG_NOSIGNAL) < 0) break;
            }
    }
}

/* The first bytes of a connection of this version: magic, version, purpose JOIN, from rank 1, to rank 0, of 5 ranks. */
static void put_hello(unsigned char *at)
{
    static const unsigned char head[24] = { 'G', 'C', 'O', 'M', 1, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 5 };
    memcpy(at, head, sizeof head);
}

static size_t to_say(guest *g, unsigned char *said)
{
    for (size_t i = 0; i < SAYS_MAX; i++) said[i] = (unsigned char)mixed(&g->seed);
    switch (g->kind) {
    case GARBAGE:     return 1 + mixed(&g->seed) % 300;
    case GARBAGE_ON:  return SAYS_MAX;
    case HALF_HELLO:  put_hello(said); return 1 + mixed(&g->seed) % (HELLO_BYTES - 1);
    case WRONG_PROOF: put_hello(said); return HELLO_BYTES + PROOF_BYTES;
    default:          return 0;
    }
}

static void speak(guest *g, int fd)
{
    static unsigned char said[SAYS_MAX];
    size_t bytes = to_say(g, said);
    if (bytes) (void)send(fd, said, bytes, MSG_NOSIGNAL);    /* what does not fit is left out */
    if (g->kind == GONE) {
        close(fd);
        g->over = true;
    }
    g->said = true;
}

static void hear(guest *g, struct pollfd *p)
{
    char bin[4096];
    ssize_t n = recv(p->fd, bin, sizeof bin, 0);
    if (n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR))) return;
    close(p->fd);
    g->over = true;
}

static int flood(int port, int count, uint64_t seed)
{
    static guest g[FLOOD_MAX];
    static struct pollfd p[FLOOD_MAX];
    struct sockaddr_in to = loopback(port);
    int64_t end = now_ms() + FLOOD_S * 1000;
    int connected = 0, over = 0;
    for (int i = 0; i < count; i++) {
        g[i] = (guest){ .kind = (enum kind)(i % KINDS), .seed = seed + (uint64_t)i };
        p[i] = (struct pollfd){ .fd = socket(AF_INET, SOCK_STREAM, 0), .events = POLLOUT };
        if (p[i].fd < 0 || fcntl(p[i].fd, F_SETFL, O_NONBLOCK) < 0) return fail("socket");
        if (connect(p[i].fd, (struct sockaddr *)&to, sizeof to) && errno != EINPROGRESS) return fail("connect");
    }
    while (over < count && now_ms() < end) {
        if (poll(p, (nfds_t)count, 100) < 0) return fail("poll");
        over = 0;
        for (int i = 0; i < count; i++) {
            if (!g[i].said && p[i].revents) {
                g[i].connected = p[i].revents & POLLOUT;
                speak(&g[i], p[i].fd);
                p[i].events = POLLIN;
                if (++connected == count) printf("%d connected\n", connected), fflush(stdout);
            } else if (!g[i].over && p[i].revents) {
                hear(&g[i], &p[i]);
            }
            if (g[i].over) p[i].fd = -1, over++;
        }
    }
    printf("%d dropped\n", over);
    return over < count;
}

int main(int argc, char **argv)
{
    bool noisy = argc == 2 && strcmp(argv[1], "noise") == 0;
    alarm(LISTEN_S);
    if (argc == 5 && strcmp(argv[1], "flood") == 0 && atoi(argv[3]) <= FLOOD_MAX)
        return flood(atoi(argv[2]), atoi(argv[3]), strtoull(argv[4], NULL, 10));
    if (noisy || (argc == 2 && strcmp(argv[1], "mute") == 0)) return listener(noisy);
    fprintf(stderr, "usage: stranger mute | noise | flood PORT COUNT SEED\n");
    return 2;
}
