/* wan.c: emulates the wide-area links between the sites of a test bed.
 *
 * SPDX-License-Identifier: MIT
 *
 * Each site's router has a TUN device "wan" and sends there what is for other sites. This process reads the packet,
 * lets it wait as long as the link to its destination's site takes, and writes it to that site's TUN device:
 *
 *     host - switch - router -> [tun] this process [tun] -> router - switch - host
 *
 * A link (an ordered pair of sites) is a queue of so many bytes with tail drop, a transmitter of so many byte/s, and a
 * latency. Before it comes the uplink, which all links of a site share, and after it the downlink, if the sites have them; what
 * has arrived waits for the downlink as one more link. A transmitter is kept as one number, the instant at which it will be
 * idle: what waits is (idle - now) x rate, so nothing happens when a transmission ends and each packet costs one wake-up at
 * most, two with a downlink. Bytes are those of IP packets: a full TCP segment counts 1,500. Due times never decrease along a
 * link, so a list per link is a queue.
 *
 * Lateness is measured, not assumed: for each packet the time from when it was due to when it was written, plus the
 * time from the wake-up that found it to the read. A 99th percentile above LATE_LIMIT makes a measurement void, and the
 * report says so. The process runs at real-time priority if it may, sleeps in ppoll() (nanoseconds) and ends when its
 * standard input does, so it cannot outlive who started it.
 *
 *     wan REPORT < config        SIGUSR1: write the report; SIGUSR2: start counting afresh; SIGTERM, end of input: end
 *
 * The configuration, ended by a line "go", answered by "ready" on standard output:
 *     site NAME NETNS PREFIX...                   NETNS: file of the router's network namespace; its index counts from 0
 *     uplink SITE RATE QUEUE                      byte/s and bytes; RATE 0: unlimited; QUEUE 0: unbounded
 *     downlink SITE RATE QUEUE
 *     link FROM TO LATENCY RATE QUEUE             LATENCY in ns
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/if_tun.h>
#include <net/if.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { SITES_MAX = 32, PREFIXES_MAX = 128, NAME_BYTES = 32, LINE_BYTES = 4096,
       PACKET_BYTES = 2000,     /* of the longest packet; the devices' MTU is 1,500 */
       POOL_BYTES = 256 << 20,  /* of packets under way; beyond it packets are dropped, and the report says so */
       BATCH = 32,              /* packets read from one site before others have their turn: about 50 us */
       PRIORITY = 20,           /* of SCHED_FIFO; any value is above all ordinary processes */
       LATE_BUCKETS = 100000,   /* of 1 us: the histogram of lateness */
       LATE_LIMIT = 300,        /* us; void above it */
       MARGIN_MAX = 200000 };   /* ns; a core that wakes up slower than this makes the measurement void anyway */
#define SECOND INT64_C(1000000000)

struct packet { struct packet *next; int64_t due, slack; size_t bytes; uint8_t data[PACKET_BYTES]; };
struct transmitter { double rate; int64_t queue; int64_t idle; };
struct link {
    bool exists;
    int to;                             /* which site */
    int64_t latency;
    struct transmitter transmitter;
    struct packet *head, *tail;
    uint64_t packets, bytes, drops;     /* delivered, delivered, dropped at the queue's end */
};
struct site { char name[NAME_BYTES]; int tun; struct transmitter uplink; struct link downlink; };   /* exists: it has one */
struct prefix { int family, bits, site; uint8_t address[16]; };
struct wan {
    int sites, prefixes;
    struct site site[SITES_MAX];
    struct prefix prefix[PREFIXES_MAX];
    struct link link[SITES_MAX][SITES_MAX];
    struct link *active[(SITES_MAX + 1) * SITES_MAX];   /* those with packets under way */
    int actives;
    int64_t margin;                                 /* ns that waking up takes: learned */
    struct packet *pool;                            /* free packets */
    size_t pool_bytes;                              /* of all packets, free or not */
    uint64_t strays, starved, refused;              /* no such site or link; no packet free; the device took no more */
    uint64_t samples, late[LATE_BUCKETS + 1];
    int64_t late_max;
    const char *report;
};

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * SECOND + t.tv_nsec;
}

static int complain(const char *what, const char *which)
{
    fprintf(stderr, "wan: %s: %s (%s)\n", which, what, errno ? strerror(errno) : "bad configuration");
    return -1;
}

/* ---- the way of a packet ---- */

static int destination(const struct wan *w, const uint8_t *data, size_t bytes)
{
    int family = 0, best = -1, site = -1;
    const uint8_t *to = NULL;
    if (bytes >= 20 && data[0] >> 4 == 4) { family = AF_INET; to = data + 16; }
    if (bytes >= 40 && data[0] >> 4 == 6) { family = AF_INET6; to = data + 24; }
    for (int i = 0; i < w->prefixes && to; i++) {
        const struct prefix *p = &w->prefix[i];
        const size_t whole = (size_t)p->bits / 8;
        const int rest = p->bits % 8;
        if (p->family != family || p->bits <= best || memcmp(p->address, to, whole) != 0) continue;
        if (rest && (p->address[whole] ^ to[whole]) >> (8 - rest)) continue;
        best = p->bits;
        site = p->site;
    }
    return site;
}

static bool is_multicast(const uint8_t *data, size_t bytes)     /* a router's own chatter: it stays in its site */
{
    return (bytes >= 40 && data[0] >> 4 == 6 && data[24] == 0xff) || (bytes >= 20 && data[0] >> 4 == 4 && data[16] >> 4 == 14);
}

static struct packet *packet_new(struct wan *w)
{
    struct packet *p = w->pool;
    if (p) {
        w->pool = p->next;
    } else if (w->pool_bytes + sizeof *p <= POOL_BYTES && (p = malloc(sizeof *p)) != NULL) {
        w->pool_bytes += sizeof *p;
    }
    return p;
}

static void packet_free(struct wan *w, struct packet *p)
{
    p->next = w->pool;
    w->pool = p;
}

/* When a packet that comes now will have left the transmitter; -1: its queue is full. */
static int64_t transmit(struct transmitter *t, int64_t now, size_t bytes)
{
    if (t->rate <= 0) return now;
    const int64_t start = t->idle > now ? t->idle : now;
    const double waiting = (double)(start - now) * t->rate / (double)SECOND;
    if (t->queue > 0 && waiting + (double)bytes > (double)t->queue) return -1;
    t->idle = start + (int64_t)((double)bytes * (double)SECOND / t->rate + 0.5);
    return t->idle;
}

static void drop(struct wan *w, struct link *l, struct packet *p)
{
    l->drops++;
    packet_free(w, p);
}

/* A packet comes to a link's queue at that instant; false: it is full. */
static bool enqueue(struct wan *w, struct link *l, struct packet *p, int64_t at)
{
    const int64_t sent = transmit(&l->transmitter, at, p->bytes);
    if (sent < 0) return false;
    p->due = sent + l->latency;
    p->next = NULL;
    if (l->head) l->tail->next = p;
    else { l->head = p; w->active[w->actives++] = l; }
    l->tail = p;
    return true;
}

static void admit(struct wan *w, int from, struct packet *p, int64_t now)
{
    const int to = destination(w, p->data, p->bytes);
    struct link *l = to >= 0 ? &w->link[from][to] : NULL;
    if (!l || !l->exists) {
        w->strays += !is_multicast(p->data, p->bytes);
        packet_free(w, p);
        return;
    }
    const int64_t up = transmit(&w->site[from].uplink, now, p->bytes);
    if (up < 0 || !enqueue(w, l, p, up)) drop(w, l, p);
}

/* Takes what site `from` has sent, a batch at most; woken: when the packets were seen. */
static void collect(struct wan *w, int from, int64_t woken)
{
    for (int i = 0; i < BATCH; i++) {
        struct packet *p = packet_new(w);
        uint8_t lost[PACKET_BYTES];
        const ssize_t n = read(w->site[from].tun, p ? p->data : lost, PACKET_BYTES);
        const int64_t now = now_ns();
        if (n > 0 && p) {
            p->bytes = (size_t)n;
            p->slack = now - woken;
            admit(w, from, p, now);
            continue;
        }
        if (p) packet_free(w, p);
        if (n <= 0) return;
        w->starved++;
    }
}

static void deliver(struct wan *w, struct packet *p, int tun, int64_t now)
{
    const int64_t late = now - p->due + p->slack, us = late / 1000;
    w->late[us < LATE_BUCKETS ? us : LATE_BUCKETS]++;
    w->samples++;
    if (late > w->late_max) w->late_max = late;
    if (write(tun, p->data, p->bytes) != (ssize_t)p->bytes) w->refused++;
    packet_free(w, p);
}

/* The first packet of a link is through: to its site, or to the downlink there. */
static void pass(struct wan *w, struct link *l, int64_t now)
{
    struct site *site = &w->site[l->to];
    struct packet *p = l->head;
    l->head = p->next;
    if (l != &site->downlink && site->downlink.exists && !enqueue(w, &site->downlink, p, p->due)) {
        drop(w, l, p);
        return;
    }
    l->packets++;
    l->bytes += p->bytes;
    if (l == &site->downlink || !site->downlink.exists) deliver(w, p, site->tun, now);
}

/* Delivers all that is due; when the next will be, or -1. */
static int64_t release(struct wan *w)
{
    int64_t next = -1, now = now_ns();
    for (int i = 0; i < w->actives;) {
        struct link *l = w->active[i];
        for (int n = 0; n < BATCH && l->head && l->head->due <= now; n++) {
            pass(w, l, now);
            now = now_ns();
        }
        if (!l->head) { w->active[i] = w->active[--w->actives]; continue; }
        if (next < 0 || l->head->due < next) next = l->head->due;
        i++;
    }
    return next;
}

/* ---- the report ---- */

static int64_t percentile(const struct wan *w, double share)
{
    uint64_t seen = 0, wanted = (uint64_t)(share * (double)w->samples);
    for (int i = 0; i <= LATE_BUCKETS; i++) {
        seen += w->late[i];
        if (seen > wanted) return i;
    }
    return 0;
}

static void report_to(const struct wan *w, FILE *f)
{
    const int64_t p99 = percentile(w, 0.99);
    fprintf(f, "late p50 %.3f p90 %.3f p99 %.3f max %.3f ms of %llu packets%s\n", (double)percentile(w, 0.5) / 1e3,
            (double)percentile(w, 0.9) / 1e3, (double)p99 / 1e3, (double)w->late_max / 1e6,
            (unsigned long long)w->samples, p99 > LATE_LIMIT ? " void" : "");
    for (int a = 0; a < w->sites; a++) {
        for (int b = 0; b < w->sites; b++) {
            const struct link *l = &w->link[a][b];
            if (l->exists) fprintf(f, "wan %s %s packets %llu bytes %llu drops %llu\n", w->site[a].name, w->site[b].name,
                                   (unsigned long long)l->packets, (unsigned long long)l->bytes, (unsigned long long)l->drops);
        }
    }
    if (w->strays + w->starved + w->refused)
        fprintf(f, "lost: no such link %llu, out of memory %llu, refused by the device %llu\n", (unsigned long long)w->strays,
                (unsigned long long)w->starved, (unsigned long long)w->refused);
}

/* A reader sees all of the report or none: it appears by rename. */
static void report(const struct wan *w)
{
    char draft[LINE_BYTES];
    if ((size_t)snprintf(draft, sizeof draft, "%s.draft", w->report) >= sizeof draft) return;
    FILE *f = fopen(draft, "w");
    if (!f) return;
    report_to(w, f);
    if (fclose(f) == 0) rename(draft, w->report);
}

static void count_afresh(struct wan *w)
{
    memset(w->late, 0, sizeof w->late);
    w->samples = w->strays = w->starved = w->refused = 0;
    w->late_max = 0;
    for (int i = 0; i < SITES_MAX * SITES_MAX; i++) {
        struct link *l = &w->link[i / SITES_MAX][i % SITES_MAX];
        l->packets = l->bytes = l->drops = 0;
    }
}

/* ---- configuration ---- */

/* A TUN device "wan" in another network namespace. The descriptor works wherever this thread is afterwards. */
static int open_tun(const char *netns, int home)
{
    const int ns = open(netns, O_RDONLY | O_CLOEXEC);
    if (ns < 0) return complain("open", netns);
    int tun = -1;
    if (setns(ns, CLONE_NEWNET) < 0) {
        complain("setns", netns);
    } else {
        struct ifreq r = { .ifr_flags = IFF_TUN | IFF_NO_PI };
        memcpy(r.ifr_name, "wan", sizeof "wan");
        tun = open("/dev/net/tun", O_RDWR | O_NONBLOCK | O_CLOEXEC);
        if (tun < 0 || ioctl(tun, TUNSETIFF, &r) < 0) {
            complain("TUN device", netns);
            if (tun >= 0) close(tun);
            tun = -1;
        }
        if (setns(home, CLONE_NEWNET) < 0) abort();     /* in a strange namespace nothing may go on */
    }
    close(ns);
    return tun;
}

static int add_prefix(struct wan *w, const char *text)
{
    char address[LINE_BYTES];
    int bits;
    if (w->prefixes == PREFIXES_MAX || sscanf(text, "%63[^/]/%d", address, &bits) != 2) return complain("prefix", text);
    struct prefix *p = &w->prefix[w->prefixes++];
    p->family = strchr(address, ':') ? AF_INET6 : AF_INET;
    p->bits = bits;
    p->site = w->sites - 1;
    if (bits < 0 || bits > (p->family == AF_INET ? 32 : 128) || inet_pton(p->family, address, p->address) != 1)
        return complain("prefix", text);
    return 0;
}

static int add_site(struct wan *w, char *rest, int home)
{
    char *at = NULL, *name = strtok_r(rest, " ", &at), *netns = strtok_r(NULL, " ", &at);
    if (!name || !netns || strlen(name) >= NAME_BYTES || w->sites == SITES_MAX) return complain("site", name ? name : "?");
    struct site *s = &w->site[w->sites];
    memcpy(s->name, name, strlen(name) + 1);
    if ((s->tun = open_tun(netns, home)) < 0) return -1;
    w->sites++;
    for (char *prefix; (prefix = strtok_r(NULL, " ", &at)) != NULL;)
        if (add_prefix(w, prefix) < 0) return -1;
    return 0;
}

static int add_link(struct wan *w, const char *rest)
{
    int from, to;
    long long latency, queue;
    double rate;
    if (sscanf(rest, "%d %d %lld %lf %lld", &from, &to, &latency, &rate, &queue) != 5 || from < 0 || to < 0
        || from >= w->sites || to >= w->sites || from == to || latency < 0) return complain("link", rest);
    struct link *l = &w->link[from][to];
    l->exists = true;
    l->latency = latency;
    l->to = to;
    l->transmitter = (struct transmitter){ .rate = rate, .queue = queue };
    return 0;
}

static int add_access(struct wan *w, const char *rest, bool down)
{
    int site;
    double rate;
    long long queue;
    if (sscanf(rest, "%d %lf %lld", &site, &rate, &queue) != 3 || site < 0 || site >= w->sites)
        return complain(down ? "downlink" : "uplink", rest);
    const struct transmitter t = { .rate = rate, .queue = queue };
    if (down) w->site[site].downlink = (struct link){ .exists = true, .to = site, .transmitter = t };
    else w->site[site].uplink = t;
    return 0;
}

/* Line by line from the descriptor itself, unbuffered: what follows "go" is for nobody, and poll() must see the end. */
static int read_line(char line[LINE_BYTES])
{
    size_t n = 0;
    while (n + 1 < LINE_BYTES && read(STDIN_FILENO, line + n, 1) == 1) {
        if (line[n] == '\n') { line[n] = 0; return 0; }
        n++;
    }
    return complain("line without end", "configuration");
}

static int configure(struct wan *w)
{
    const int home = open("/proc/self/ns/net", O_RDONLY | O_CLOEXEC);
    char line[LINE_BYTES];
    int bad = home < 0 ? -1 : 0;
    while (!bad && (bad = read_line(line)) == 0 && strcmp(line, "go") != 0) {
        errno = 0;
        if (strncmp(line, "site ", 5) == 0) bad = add_site(w, line + 5, home);
        else if (strncmp(line, "uplink ", 7) == 0) bad = add_access(w, line + 7, false);
        else if (strncmp(line, "downlink ", 9) == 0) bad = add_access(w, line + 9, true);
        else if (strncmp(line, "link ", 5) == 0) bad = add_link(w, line + 5);
        else bad = complain("what is this?", line);
    }
    if (home >= 0) close(home);
    return bad;
}

/* ---- the loop ---- */

/* Without real-time priority it works too; the lateness says whether well enough. */
static void be_quick(void)
{
    const struct sched_param priority = { .sched_priority = PRIORITY };
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) < 0) prctl(PR_SET_TIMERSLACK, 1UL);
    if (mlockall(MCL_CURRENT | MCL_FUTURE) < 0) errno = 0;      /* no page faults, if permitted */
}

static bool obey(struct wan *w, int signals)    /* false: end */
{
    struct signalfd_siginfo s;
    while (read(signals, &s, sizeof s) == (ssize_t)sizeof s) {
        if (s.ssi_signo == SIGUSR1) report(w);
        else if (s.ssi_signo == SIGUSR2) count_afresh(w);
        else return false;
    }
    return true;
}

/* Sleeps until a packet comes (returns > 0) or one is due at `next` (-1: none). An idle core takes some 60 us to wake up
 * and a busy one next to nothing, so what it took lately is the margin by which the timer is set early; what was too
 * early is polled away. */
static int sleep_until(struct wan *w, struct pollfd *p, int64_t next)
{
    const nfds_t n = (nfds_t)w->sites + 2;
    if (next < 0) return ppoll(p, n, NULL, NULL);
    const int64_t begin = now_ns(), wait = next - begin - w->margin;
    const struct timespec nap = { .tv_sec = wait / SECOND, .tv_nsec = wait % SECOND }, none = { 0, 0 };
    const int found = ppoll(p, n, wait > 0 ? &nap : &none, NULL);
    if (found == 0 && wait > 0) {
        w->margin += (now_ns() - begin - wait - w->margin) / 8;
        if (w->margin > MARGIN_MAX) w->margin = MARGIN_MAX;
    }
    return found;
}

static void run(struct wan *w, int signals)
{
    struct pollfd p[SITES_MAX + 2] = { { .fd = signals, .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
    for (int i = 0; i < w->sites; i++) p[2 + i] = (struct pollfd){ .fd = w->site[i].tun, .events = POLLIN };
    for (;;) {
        if (sleep_until(w, p, release(w)) <= 0) continue;
        const int64_t woken = now_ns();
        if (p[1].revents || (p[0].revents && !obey(w, signals))) return;
        for (int i = 0; i < w->sites; i++)
            if (p[2 + i].revents) collect(w, i, woken);
    }
}

int main(int argc, char **argv)
{
    struct wan *w = calloc(1, sizeof *w);
    if (argc != 2 || !w) {
        fprintf(stderr, "usage: wan REPORT < configuration\n");
        return 2;
    }
    w->report = argv[1];
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR1);
    sigaddset(&set, SIGUSR2);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    sigprocmask(SIG_BLOCK, &set, NULL);
    const int signals = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (signals < 0 || configure(w) < 0) return 1;      /* the devices go with the process */
    be_quick();
    if (puts("ready") < 0 || fflush(stdout) != 0) return 1;
    run(w, signals);
    report(w);
    report_to(w, stderr);
    return 0;
}
