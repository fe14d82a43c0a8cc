/* ring_of_four.c: four transfers round a ring of four relays, with as little room on the way as there can be.
 *
 * SPDX-License-Identifier: MIT
 *
 *     ring_of_four ROUTING SECONDS
 *
 * The example of K. Hironaka, "A Programming Framework and a Deadlock-free Overlay for Wide-area Networks", Fig. 4.3:
 *
 *     A --- B      A -> B -> C     B -> C -> D     C -> D -> A     D -> A -> B, all at once and without end
 *     |     |
 *     D --- C      queues of one packet, socket buffers as small as works
 *
 * Four worlds in this process, over loopback. With ROUTING "unrestricted" every rank is given a table of shortest paths, all
 * clockwise: each link fills with packets that have to go on over the next one. The program then looks for ranks that wait for
 * each other in a circle, prints who holds what and waits for whom, and sees that nothing moves any more. It ends with 0 if
 * there is such a circle of all four within SECONDS, and with 1 if all goes on. With any other routing the tables are made of
 * the ring by that routing; the program ends with 0 if every transfer goes on for SECONDS, all it brings is right, and bytes
 * are forwarded; a circle is an error.
 */
#include "gridcomm_int.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { RING = 4, TAG = 1, MESSAGE = 1 << 18, FLIGHT = 4,    /* bytes; messages of a transfer under way */
       LOOK_MS = 20,
       STILL_LOOKS = 50,            /* so often is nothing seen to move before a circle counts as one: a second */
       STALL_LOOKS = 500,           /* a transfer that has brought nothing in so many does not go on: time in which the machine
                                     * stands still does not count */
       LINKS_MAX = 2 * RING, ALARM_SECONDS = 200 };

struct rank {
    int rank, code;
    bool opened;
    pthread_t thread;
    gc_comm *world;
    char text[GCI_TEXT];
    gc_request *request[2 * FLIGHT];                        /* receives, then sends */
    unsigned char *buffer[2 * FLIGHT];
    long long number[2 * FLIGHT];                           /* of the message in each buffer */
    long long sent, posted;                                 /* messages */
    atomic_llong received;
    bool finished;                                          /* no more is sent */
};

struct state {                  /* what the links of all ranks look like at one moment */
    gci_link_view view[RING][LINKS_MAX];
    int views[RING];
    long long received[RING];
};

static struct {
    enum gci_routing routing;
    gci_sys sys;
    int (*tune)(gci_sys *, int fd, enum gci_tune, int64_t peer_timeout);
    char root[GCI_ADDR_TEXT];
    pthread_barrier_t ready, watched;
    atomic_bool stop;
    atomic_int through;
    struct rank rank[RING];
} ring;

static const char name_of[RING] = { 'A', 'B', 'C', 'D' };

static void nap(long ms)
{
    const struct timespec t = { .tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000 };
    nanosleep(&t, NULL);
}

/* Sending: the kernel's minimum (it raises what is less). Receiving: two packets; with less the kernel shuts its window for the
 * 200 ms of its persist timer time and again, and all creeps. */
static int tune_tightly(gci_sys *sys, int fd, enum gci_tune how, int64_t peer_timeout)
{
    const int least = 1, packets = 2 * GCI_ROUTED_MAX, err = ring.tune(sys, fd, how, peer_timeout);
    if (err || how != GCI_TUNE_DATA) return err;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &least, sizeof least) < 0) return -errno;
    return setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &packets, sizeof packets) < 0 ? -errno : 0;
}

static void find_port(void)
{
    struct sockaddr_in at = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
    socklen_t bytes = sizeof at;
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&at, sizeof at) < 0 || getsockname(fd, (struct sockaddr *)&at, &bytes) < 0) abort();
    close(fd);
    snprintf(ring.root, sizeof ring.root, "127.0.0.1:%d", ntohs(at.sin_port));
}

/* ---- tables ---- */

static int clockwise(gci_env *env, int self, gci_routes *out)
{
    const int after = (self + 1) % RING, before = (self + RING - 1) % RING;
    *out = (gci_routes){ .nodes = RING, .self = self, .phases = 1, .degree = 2 };
    out->neighbour = gci_alloc(env, 2 * sizeof *out->neighbour);
    out->came = gci_alloc(env, 2 * sizeof *out->came);
    out->next = gci_alloc(env, GCI_METRICS * RING * sizeof *out->next);
    if (!out->neighbour || !out->came || !out->next) {
        gci_routes_free(env, out);
        return GC_ERR_NOMEM;
    }
    out->neighbour[0] = after < before ? after : before;
    out->neighbour[1] = after < before ? before : after;
    for (int dest = 0; dest < RING; dest++)
        for (int metric = 0; metric < GCI_METRICS; metric++) {
            const int hop = dest == before ? before : after;
            out->next[metric * RING + dest] = (uint16_t)(dest == self ? GCI_NO_ROUTE : out->neighbour[1] == hop);
        }
    return GC_OK;
}

static int by_routing(gci_env *env, const gci_topo *topo, int self, gci_routes *out)
{
    gci_edge edge[RING] = { { .a = 0, .b = 1 }, { .a = 0, .b = 3 }, { .a = 1, .b = 2 }, { .a = 2, .b = 3 } };
    const gci_graph graph = { .nodes = RING, .edges = RING, .edge = edge };
    gci_numbering numbering;
    for (int i = 0; i < RING; i++)
        for (int metric = 0; metric < GCI_METRICS; metric++) edge[i].cost[metric] = 1;
    int err = gci_number(env, &graph, topo, ring.routing, &numbering);
    if (err) return err;
    err = gci_routes_make(env, &graph, topo, &numbering, self, out);
    gci_numbering_free(env, &numbering);
    return err;
}

static int use_tables(gci_world *w)
{
    gci_routes routes;
    const int err = ring.routing == GCI_UNRESTRICTED ? clockwise(&w->env, w->rank, &routes)
                                                     : by_routing(&w->env, gci_control_topo(w->control), w->rank, &routes);
    if (err) return err;
    gci_enter(w);
    gci_overlay_use_routes(w->overlay, &routes);
    gci_leave(w);
    return GC_OK;
}

/* ---- a rank: sends to the one opposite, and receives from it ---- */

static unsigned char content(int from, long long number, size_t i)
{
    return (unsigned char)((size_t)from * 61 + (size_t)number * 7 + i % 253);
}

static int begin(struct rank *r, int slot, int opposite)
{
    if (slot < FLIGHT) {
        r->number[slot] = r->posted++;
        return gc_irecv(r->world, r->buffer[slot], MESSAGE, opposite, TAG, &r->request[slot]);
    }
    if (r->finished) return GC_OK;
    r->finished = ring.stop;
    const size_t bytes = r->finished ? 0 : MESSAGE;         /* an empty one is the last */
    for (size_t i = 0; i < bytes; i++) r->buffer[slot][i] = content(r->rank, r->sent, i);
    r->sent++;
    return gc_isend(r->world, r->buffer[slot], bytes, opposite, TAG, &r->request[slot]);
}

static int check(struct rank *r, int slot, int opposite)
{
    const long long number = r->number[slot];
    r->received++;
    for (size_t i = 0; i < MESSAGE; i++) {
        if (r->buffer[slot][i] == content(opposite, number, i)) continue;
        fprintf(stderr, "ring_of_four: %c: byte %zu of message %lld from %c is wrong\n", name_of[r->rank], i, number,
                name_of[opposite]);
        return GC_ERR_PROTOCOL;
    }
    return GC_OK;
}

static int transfer(struct rank *r)
{
    const int opposite = (r->rank + 2) % RING;
    bool last = false;
    int err = GC_OK;
    for (int slot = 0; slot < 2 * FLIGHT && !err; slot++) err = begin(r, slot, opposite);
    while (!err && !(last && r->finished)) {
        gc_status status;
        int slot;
        err = gc_waitany(2 * FLIGHT, r->request, &slot, &status);
        if (err) break;
        if (slot < FLIGHT && status.bytes == 0) {
            last = true;
            continue;
        }
        if (slot < FLIGHT) err = check(r, slot, opposite);
        if (!err) err = begin(r, slot, opposite);
    }
    for (int slot = 0; slot < FLIGHT; slot++)               /* those behind the last one */
        if (r->request[slot]) gc_cancel(r->request[slot]);
    const int left = gc_waitall(2 * FLIGHT, r->request, NULL);
    return err ? err : left == GC_ERR_CANCELLED ? GC_OK : left;
}

static bool all_opened(void)
{
    bool all = true;
    for (int i = 0; i < RING; i++) all = all && ring.rank[i].opened;
    return all;
}

static void *run(void *of_rank)
{
    struct rank *r = of_rank;
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    o.rank = r->rank;
    o.ranks = RING;
    o.root = ring.root;
    o.key = "ring";
    o.link_density = 1;
    o.direct = 0;
    o.queue_packets = 1;
    o.error_text = r->text;
    o.error_text_size = sizeof r->text;
    r->code = gci_open(&r->world, &o, &ring.sys);
    if (!r->code) r->code = use_tables(r->world->world);
    r->opened = !r->code;
    pthread_barrier_wait(&ring.ready);
    if (all_opened() && (r->code = transfer(r)) != 0) gc_last_error(r->world, NULL, r->text, sizeof r->text);
    ring.through++;
    pthread_barrier_wait(&ring.watched);
    const int err = r->world ? gc_finalize(r->world) : GC_OK;
    if (!r->code) r->code = err;
    return NULL;
}

/* ---- who waits for whom ---- */

struct collector { gci_link_view *view; int views; };

static void collect(void *arg, const gci_link_view *view)
{
    struct collector *c = arg;
    if (view->backbone && c->views < LINKS_MAX) c->view[c->views++] = *view;
}

static void look(struct state *s)
{
    memset(s, 0, sizeof *s);
    for (int i = 0; i < RING; i++) {
        struct collector c = { s->view[i], 0 };
        gci_world *w = ring.rank[i].world->world;
        gci_enter(w);
        gci_overlay_links(w->overlay, collect, &c);
        gci_leave(w);
        s->views[i] = c.views;
        s->received[i] = ring.rank[i].received;
    }
}

/* The link by which `rank` got the packet that it cannot pass on, if the packet came from `from` (-1: anybody). */
static const gci_link_view *held(const struct state *s, int rank, int from)
{
    for (int i = 0; i < s->views[rank]; i++) {
        const gci_link_view *v = &s->view[rank][i];
        if (v->holds >= 0 && v->waits_for >= 0 && (from < 0 || v->peer == from)) return v;
    }
    return NULL;
}

/* The length of a circle of waits that begins at rank 0, or 0. */
static int circle(const struct state *s)
{
    const gci_link_view *v = held(s, 0, -1);
    const int start = v ? v->peer : -1;
    int rank = 0, length = 0;
    while (v && length <= RING) {
        const int next = v->waits_for;
        length++;
        v = held(s, next, rank);
        if (next == 0 && rank == start) return v ? length : 0;
        rank = next;
    }
    return 0;
}

static void dump(const struct state *s)
{
    for (int i = 0; i < RING; i++) {
        printf("%c has received %lld messages", name_of[i], s->received[i]);
        for (int k = 0; k < s->views[i]; k++) {
            const gci_link_view *v = &s->view[i][k];
            printf("; link to %c: queue %d of %d, %d wait, %llu bytes forwarded", name_of[v->peer], v->queued, v->queue_max,
                   v->waiters, (unsigned long long)v->relayed);
            if (v->holds >= 0 && v->waits_for >= 0)
                printf(", HOLDS a packet from %c for %c that waits for room to %c", name_of[v->peer], name_of[v->holds],
                       name_of[v->waits_for]);
        }
        puts(s->views[i] ? "" : "; no links");
    }
}

static unsigned long long relayed(const struct state *s)
{
    unsigned long long sum = 0;
    for (int i = 0; i < RING; i++)
        for (int k = 0; k < s->views[i]; k++) sum += s->view[i][k].relayed;
    return sum;
}

static int64_t now_ms(void) { return ring.sys.now(&ring.sys) / GCI_NS_PER_MS; }

/* Looks until there is a circle in which nothing moves (1), a transfer does not go on (-1), or time is up (0). */
static int watch(int seconds)
{
    struct state before, s;
    const int64_t end = now_ms() + seconds * 1000;
    int still = 0, stuck[RING] = { 0 };
    look(&before);
    while (now_ms() < end && ring.through == 0) {
        nap(LOOK_MS);
        look(&s);
        still = circle(&s) && memcmp(&s, &before, sizeof s) == 0 ? still + 1 : 0;
        if (still == STILL_LOOKS) {
            printf("a circle of %d ranks, in which nothing has moved for %d ms:\n", circle(&s), STILL_LOOKS * LOOK_MS);
            dump(&s);
            return circle(&s) == RING ? 1 : -1;
        }
        for (int i = 0; i < RING; i++) {
            stuck[i] = s.received[i] == before.received[i] ? stuck[i] + 1 : 0;
            if (stuck[i] <= STALL_LOOKS) continue;
            printf("nothing has come to %c for %d ms, and there is no circle:\n", name_of[i], STALL_LOOKS * LOOK_MS);
            dump(&s);
            return -1;
        }
        before = s;
    }
    look(&s);
    printf("received by A to D: %lld %lld %lld %lld messages of %d bytes; forwarded: %llu bytes\n", s.received[0], s.received[1],
           s.received[2], s.received[3], MESSAGE, relayed(&s));
    bool all = relayed(&s) > 0 && ring.through == 0;
    for (int i = 0; i < RING; i++) all = all && s.received[i] > 0;
    return all ? 0 : -1;
}

static int verdict(int seen)
{
    const bool wanted = ring.routing == GCI_UNRESTRICTED ? seen == 1 : seen == 0;
    int bad = !wanted;
    for (int i = 0; i < RING; i++) {
        const struct rank *r = &ring.rank[i];
        if (r->code == GC_OK || (seen && r->code == GC_ERR_ABORTED)) continue;
        fprintf(stderr, "ring_of_four: %c: %s: %s\n", name_of[i], gc_strerror(r->code), r->text);
        bad = 1;
    }
    return bad;
}

int main(int argc, char **argv)
{
    const int routing = argc == 3 ? gci_routing_parse(argv[1]) : -1, seconds = argc == 3 ? atoi(argv[2]) : 0;
    if (routing < 0 || seconds < 1) {
        fprintf(stderr, "usage: ring_of_four updown-dfs|updown-bfs|ordered|unrestricted SECONDS\n");
        return 2;
    }
    alarm(ALARM_SECONDS);
    setvbuf(stdout, NULL, _IOLBF, 0);
    ring.routing = (enum gci_routing)routing;
    ring.sys = *gci_sys_real();
    ring.tune = ring.sys.tune;
    ring.sys.tune = tune_tightly;
    find_port();
    pthread_barrier_init(&ring.ready, NULL, RING + 1);
    pthread_barrier_init(&ring.watched, NULL, RING + 1);
    for (int i = 0; i < RING; i++) {
        struct rank *r = &ring.rank[i];
        r->rank = i;
        for (int k = 0; k < 2 * FLIGHT; k++)
            if ((r->buffer[k] = malloc(MESSAGE)) == NULL) return 1;
        if (pthread_create(&r->thread, NULL, run, r) != 0) return 1;
    }
    pthread_barrier_wait(&ring.ready);
    const int seen = all_opened() ? watch(seconds) : -1;
    ring.stop = true;
    for (int i = 0; i < RING && all_opened() && seen; i++) gc_abort(ring.rank[i].world, 1);    /* a circle ends not otherwise */
    pthread_barrier_wait(&ring.watched);
    for (int i = 0; i < RING; i++) {
        pthread_join(ring.rank[i].thread, NULL);
        for (int k = 0; k < 2 * FLIGHT; k++) free(ring.rank[i].buffer[k]);
    }
    return verdict(seen);
}
