/* test_simnet.c: the simulated network against small direct programs: exact times, checked streams, ends, faults, threads.
 * SPDX-License-Identifier: MIT
 *
 * A scenario builds a network, runs programs on it and returns how many things were wrong. Each must find nothing wrong, for many
 * seeds; and with each of the bugs that can be planted in the simulator, at least one of them must find something.
 */
#include "tests/sim/simnet.h"

#include <errno.h>
#include <setjmp.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { PORT = 5000, SEEDS = 12 };
#define MS INT64_C(1000000)

typedef struct scene {          /* what the programs of one scenario share */
    sim      *s;
    sim_host **host;
    sim_proc *proc[8];
    int       wrong;
    bool      loud;
    int       verdict;
    size_t    bytes[4];
    int64_t   time[8];
    int       code[8];
    gci_monitor *monitor;
    gci_sys  *sys;
    int       count;
    const void *what;           /* which case of a table it is */
} scene;

static void wrong_at(scene *t, int line, const char *what)
{
    t->wrong++;
    if (t->loud) {
        fprintf(stderr, "line %d: at %.9f s: %s\n", line, (double)sim_now(t->s) / 1e9, what);
    }
}
#define CHECK(t, condition) do { if (!(condition)) wrong_at(t, __LINE__, #condition); } while (0)
#define NEAR(a, b, by) ((a) >= (b) - (by) && (a) <= (b) + (by))

/* Two sites a and b with two hosts each: 50 us and 125 MB/s within, 10 ms and 1 MB/s between. */
static scene *scene_new(uint64_t seed, enum sim_planted bug)
{
    static const int hosts[] = { 2, 2 };
    scene *t = test_calloc(1, sizeof *t);
    t->s = sim_new(seed);
    t->loud = bug == SIM_PLANT_NONE;
    t->host = sim_grid(t->s, 2, hosts, 50000, 125000000, 10 * MS, 1000000);
    sim_tune(t->s)->planted = bug;
    sim_tune(t->s)->time_limit = 600 * GCI_SECOND;
    sim_tune(t->s)->real_limit = 20;
    sim_tune(t->s)->start_spread = 0;       /* servers listen before anybody's SYN arrives */
    if (!t->loud) {
        sim_tune(t->s)->report = NULL;
    }
    return t;
}

static int scene_end(scene *t)
{
    t->verdict = sim_run(t->s);
    CHECK(t, t->verdict == SIM_OK);
    int wrong = t->wrong;
    sim_free(t->s);
    free(t->host);
    test_free(t);
    return wrong;
}

/* ---- blocking calls for the programs ---- */

static int listen_on(gci_sys *sys, uint16_t port)
{
    gci_addr at = { .family = 4, .port = port };
    return sys->listen(sys, &at);
}

/* Waits for events; how many times it had to sleep does not matter. 0: the time is over. */
static int wait_for(gci_sys *sys, int fd, unsigned events, int64_t timeout)
{
    int poller = sys->poller(sys), n = 0;
    int64_t end = timeout == GCI_FOREVER ? GCI_FOREVER : sys->now(sys) + timeout;
    gci_event e = { 0 };
    sys->watch(sys, poller, fd, events, 1);
    while (!(n = sys->wait(sys, poller, &e, 1, end == GCI_FOREVER ? GCI_FOREVER : end - sys->now(sys)))) {
        if (sys->now(sys) >= end) {
            break;
        }
    }
    sys->close(sys, poller);
    return n;
}

static int accept_one(gci_sys *sys, int listener)
{
    gci_addr from;
    int fd;
    while ((fd = sys->accept(sys, listener, &from)) == -EAGAIN) {
        wait_for(sys, listener, GCI_READ, GCI_FOREVER);
    }
    return fd;
}

static int connect_from(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bind, int *code)
{
    int fd = sys->connect(sys, to, source, bind);
    if (fd < 0) {
        *code = fd;
        return fd;
    }
    while ((*code = sys->connected(sys, fd)) == -EINPROGRESS) {
        wait_for(sys, fd, GCI_WRITE, GCI_FOREVER);
    }
    return fd;
}

static int connect_to(gci_sys *sys, const char *host, uint16_t port, int *code)
{
    gci_addr to = { 0 };
    sys->resolve(sys, host, port, &to, 1);
    return connect_from(sys, &to, NULL, 0, code);
}

static ssize_t send_all(gci_sys *sys, int fd, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        struct iovec v[2] = { { (uint8_t *)from + at, (bytes - at) / 3 },
                              { (uint8_t *)from + at + (bytes - at) / 3, bytes - at - (bytes - at) / 3 } };
        ssize_t n = sys->send(sys, fd, v, 2);
        if (n == -EAGAIN) {
            wait_for(sys, fd, GCI_WRITE, GCI_FOREVER);
        } else if (n < 0) {
            return n;
        } else {
            at += (size_t)n;
        }
    }
    return (ssize_t)bytes;
}

/* As many as come before the end; or an error. */
static ssize_t recv_all(gci_sys *sys, int fd, void *to, size_t bytes)
{
    size_t at = 0;
    while (at < bytes) {
        struct iovec v[2] = { { (uint8_t *)to + at, (bytes - at) / 2 }, { (uint8_t *)to + at + (bytes - at) / 2, bytes - at - (bytes - at) / 2 } };
        ssize_t n = sys->recv(sys, fd, v, 2);
        if (n == -EAGAIN) {
            wait_for(sys, fd, GCI_READ, GCI_FOREVER);
        } else if (n <= 0) {
            return n < 0 ? n : (ssize_t)at;
        } else {
            at += (size_t)n;
        }
    }
    return (ssize_t)at;
}

static uint8_t pattern(uint64_t stream, size_t i)
{
    uint64_t z = (stream + 1) * UINT64_C(0x9e3779b97f4a7c15) ^ (uint64_t)i * UINT64_C(0xbf58476d1ce4e5b9);
    return (uint8_t)((z ^ z >> 31) * UINT64_C(0x94d049bb133111eb) >> 40);
}

/* ---- checked streams: every byte of several at once ---- */

enum { STREAMS = 3, STREAM_BYTES = 300000 };

typedef struct stream { scene *t; int number; } stream;

static void stream_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd[STREAMS], poller = sys->poller(sys), open = 0, accepted = 0;
    size_t got[STREAMS] = { 0 };
    uint64_t name[STREAMS] = { 0 };
    static uint8_t buf[20000];
    gci_event e[STREAMS + 1];
    sys->watch(sys, poller, listener, GCI_READ, STREAMS);
    while (accepted < STREAMS || open) {
        int n = sys->wait(sys, poller, e, STREAMS + 1, GCI_FOREVER);
        for (int i = 0; i < n; i++) {
            int k = (int)e[i].tag;
            if (k == STREAMS) {
                int new = sys->accept(sys, listener, NULL);
                if (new >= 0 && accepted < STREAMS) {
                    fd[accepted] = new;
                    sys->watch(sys, poller, new, GCI_READ, (uint64_t)accepted);
                    accepted++;
                    open++;
                }
                continue;
            }
            struct iovec v = { buf, sizeof buf };
            ssize_t r = sys->recv(sys, fd[k], &v, 1);
            for (ssize_t j = 0; j < r; j++, got[k]++) {
                if (got[k] == 0) {
                    name[k] = buf[j];
                } else if (buf[j] != pattern(name[k], got[k])) {
                    wrong_at(t, __LINE__, "a byte is wrong");
                    j = r;
                }
            }
            if (r == 0 || (r < 0 && r != -EAGAIN)) {
                CHECK(t, r == 0 && got[k] == STREAM_BYTES);
                sys->close(sys, fd[k]);
                open--;
            }
            if (sim_random(t->s) % 4 == 0) {
                sim_sleep(p, (int64_t)(sim_random(t->s) % (3 * MS)));    /* so that windows fill */
            }
        }
    }
    sys->close(sys, listener);
    sys->close(sys, poller);
    t->count++;
}

static void stream_client(sim_proc *p, void *arg)
{
    stream *st = arg;
    gci_sys *sys = sim_sys(p);
    sim_sleep(p, MS);
    int code, fd = connect_to(sys, "a1", PORT, &code);
    CHECK(st->t, code == 0);
    uint8_t *buf = test_malloc(STREAM_BYTES);
    for (size_t i = 0; i < STREAM_BYTES; i++) {
        buf[i] = i ? pattern((uint64_t)st->number, i) : (uint8_t)st->number;
    }
    sys->tune(sys, fd, st->number % 2 ? GCI_TUNE_DATA : GCI_TUNE_HANDSHAKE, 0);
    CHECK(st->t, send_all(sys, fd, buf, STREAM_BYTES) == STREAM_BYTES);
    sys->close(sys, fd);
    test_free(buf);
}

/* Streams from the same site, from the other and from the same host, with a cut of 5 s in the middle. */
static int streams(uint64_t seed, enum sim_planted bug, uint64_t *trace)
{
    scene *t = scene_new(seed, bug);
    stream st[STREAMS];
    sim_tune(t->s)->time_limit = 60 * GCI_SECOND;
    sim_spawn(t->host[0], "server", stream_server, t);
    for (int i = 0; i < STREAMS; i++) {
        st[i] = (stream){ t, i + 1 };
        sim_spawn(t->host[i == 0 ? 0 : i], "client", stream_client, &st[i]);
    }
    sim_cut_at(t->host[0], t->host[2], 50 * MS);
    sim_mend_at(t->host[0], t->host[2], 5050 * MS);
    sim *s = t->s;
    int verdict = sim_run(s);
    CHECK(t, verdict == SIM_OK && t->count == 1);
    CHECK(t, sim_now(s) > 5 * GCI_SECOND);
    if (trace) {
        *trace = sim_trace_hash(s);
    }
    return scene_end(t);
}

static int scenario_streams(uint64_t seed, enum sim_planted bug) { return streams(seed, bug, NULL); }

/* ---- exact times ---- */

static void timed_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT);
    for (int i = 0; i < t->count; i++) {
        static uint8_t buf[1 << 20];
        int fd = accept_one(sys, listener);
        t->time[2 * i] = sys->now(sys);
        CHECK(t, recv_all(sys, fd, buf, t->bytes[0]) == (ssize_t)t->bytes[0]);
        t->time[2 * i + 1] = sys->now(sys);
        sys->close(sys, fd);
    }
    sys->close(sys, listener);
}

static void timed_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, fd = connect_to(sys, "a1", PORT, &code);
    static uint8_t buf[1 << 20];
    t->time[6] = sys->now(sys);
    CHECK(t, send_all(sys, fd, buf, t->bytes[0]) == (ssize_t)t->bytes[0]);
    sys->close(sys, fd);
}

/* bytes from one host to another on a calm network: when it was accepted, when the last byte came. */
static int timed(enum sim_planted bug, int from, size_t bytes, int overhead, int64_t accepted, int64_t done)
{
    scene *t = scene_new(1, bug);
    sim_calm(t->s);
    sim_tune(t->s)->wire_overhead = overhead;
    t->bytes[0] = bytes;
    t->count = 1;
    sim_spawn(t->host[0], "server", timed_server, t);
    sim_spawn(t->host[from], "client", timed_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->time[6] == accepted / 3 * 2);
    CHECK(t, t->time[0] == accepted);
    CHECK(t, NEAR(t->time[1], done, done / 100000 + 20));
    if (t->loud && t->wrong) {
        fprintf(stderr, "connected %lld accepted %lld done %lld\n", (long long)t->time[6], (long long)t->time[0], (long long)t->time[1]);
    }
    return scene_end(t);
}

static int scenario_times(uint64_t seed, enum sim_planted bug)
{
    (void)seed;
    int wrong = timed(bug, 2, 1, 0, 30 * MS, 30 * MS + 1000);                       /* 1 byte at 1 MB/s is 1 us */
    wrong += timed(bug, 2, 1000000, 0, 30 * MS, 1030 * MS);
    wrong += timed(bug, 2, 1448 * 500, 52, 30 * MS, 780 * MS);                      /* 500 packets of 1,500 */
    wrong += timed(bug, 1, 1000000, 0, 150000, 150000 + 8 * MS);                    /* 1 MB at 125 MB/s */
    wrong += timed(bug, 0, 1000000, 0, 15000, 15000 + MS / 2);                      /* loopback: 2 GB/s */
    return wrong;
}

/* Two senders share the NIC of one receiver: both need the time of both. */
static int scenario_sharing(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_calm(t->s);
    t->bytes[0] = 1000000;
    t->count = 1;
    sim_host *third = sim_host_new(sim_site_of(t->host[0]), "a3", "10.1.0.9/16", 125000000);
    for (int i = 0; i < 2; i++) {       /* two servers on one host, at the same port of different addresses: so one is moved */
        t->proc[i] = sim_spawn(i ? third : t->host[1], "client", timed_client, t);
    }
    t->count = 2;
    sim_spawn(t->host[0], "server", timed_server, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, NEAR(t->time[3], 16150000, 100000));
    return scene_end(t);
}

static void wide_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int me = p == t->proc[1], listener = listen_on(sys, PORT), fd = accept_one(sys, listener);
    static uint8_t buf[1 << 20];
    CHECK(t, recv_all(sys, fd, buf, t->bytes[0]) == (ssize_t)t->bytes[0]);
    t->time[me] = sys->now(sys);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void wide_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t buf[1 << 20];
    sim_sleep(p, MS);
    int code, fd = connect_to(sys, p == t->proc[3] ? "a2" : "a1", PORT, &code);
    CHECK(t, send_all(sys, fd, buf, t->bytes[0]) == (ssize_t)t->bytes[0]);
    sys->close(sys, fd);
}

/* Two streams share a wide-area link fairly, and keep it full; a third that sends one byte meanwhile waits for the queue only. */
static void wide_late(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    sim_sleep(p, GCI_SECOND);
    int code, fd = connect_to(sys, "a2", PORT + 1, &code);
    t->time[2] = sys->now(sys);
    CHECK(t, send_all(sys, fd, &code, 1) == 1);
    sys->close(sys, fd);
}

static void wide_late_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT + 1), fd = accept_one(sys, listener);
    uint8_t byte;
    CHECK(t, recv_all(sys, fd, &byte, 1) == 1);
    t->time[3] = sys->now(sys);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static int scenario_wide_sharing(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->bytes[0] = 1000000;
    for (int i = 0; i < 2; i++) {
        t->proc[i] = sim_spawn(t->host[i], "server", wide_server, t);
        t->proc[2 + i] = sim_spawn(t->host[2 + i], "client", wide_client, t);
    }
    sim_spawn(t->host[1], "late server", wide_late_server, t);
    sim_spawn(t->host[2], "late", wide_late, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    int64_t last = t->time[0] > t->time[1] ? t->time[0] : t->time[1];
    CHECK(t, NEAR(last, 2031 * MS, 2 * MS));
    CHECK(t, NEAR(t->time[0], t->time[1], 100 * MS));
    CHECK(t, NEAR(t->time[3] - t->time[2], 10 * MS + 65 * MS, 15 * MS));
    return scene_end(t);
}

/* Who polls sees a byte as soon as it comes, however long the polling has gone on. */
static void polling_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd = accept_one(sys, listener), poller = sys->poller(sys);
    gci_event e;
    sys->watch(sys, poller, fd, GCI_READ, 1);
    while (!sys->wait(sys, poller, &e, 1, 0)) {
        sys->yield(sys);
    }
    t->time[0] = sys->now(sys);
}

static void polled_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, fd = connect_to(sys, "a1", PORT, &code);
    sim_sleep(p, GCI_SECOND);
    t->time[1] = sys->now(sys);
    CHECK(t, send_all(sys, fd, &code, 1) == 1);
}

static int scenario_polling(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_calm(t->s);
    sim_spawn(t->host[0], "server", polling_server, t);
    sim_spawn(t->host[1], "client", polled_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, NEAR(t->time[0] - t->time[1], 50000, 1000));
    return scene_end(t);
}

/* ---- flow control ---- */

static void deaf_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd = accept_one(sys, listener);
    sim_sleep(p, 10 * GCI_SECOND);
    t->bytes[1] = 1;
    static uint8_t buf[1 << 20];
    t->bytes[2] = (size_t)recv_all(sys, fd, buf, sizeof buf);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void pushing_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, fd = connect_to(sys, "a1", PORT, &code);
    static uint8_t buf[1 << 20];
    struct iovec v = { buf, sizeof buf };
    while (!t->bytes[1]) {
        ssize_t n = sys->send(sys, fd, &v, 1);
        t->bytes[0] += n > 0 ? (size_t)n : 0;
        if (n < 0 && !wait_for(sys, fd, GCI_WRITE, GCI_SECOND) && t->bytes[3] == 0) {
            t->bytes[3] = t->bytes[0];
        }
    }
    sys->close(sys, fd);
}

static int scenario_window(uint64_t seed, enum sim_planted bug)
{
    enum { BUFFER = 64 << 10 };
    scene *t = scene_new(seed, bug);
    sim_tune(t->s)->send_buffer = sim_tune(t->s)->recv_buffer = BUFFER;
    sim_tune(t->s)->autotune = false;
    sim_spawn(t->host[0], "deaf", deaf_server, t);
    sim_spawn(t->host[1], "pushing", pushing_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->bytes[3] <= 2 * BUFFER && t->bytes[3] > BUFFER);
    CHECK(t, t->bytes[2] == t->bytes[0]);
    return scene_end(t);
}

/* ---- ends ---- */

static void end_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT);
    uint8_t byte[100] = { 0 };
    int fd = accept_one(sys, listener);         /* 1: all of it, then the end; then writing fails */
    CHECK(t, recv_all(sys, fd, byte, 100) == 10);
    CHECK(t, send_all(sys, fd, byte, 10) == 10);
    sim_sleep(p, GCI_SECOND);
    ssize_t n = send_all(sys, fd, byte, 10);
    CHECK(t, n == -EPIPE || n == -ECONNRESET);
    sys->close(sys, fd);
    fd = accept_one(sys, listener);             /* 2: close with unread data resets */
    CHECK(t, send_all(sys, fd, byte, 10) == 10);
    sim_sleep(p, GCI_SECOND);
    n = recv_all(sys, fd, byte, 10);
    CHECK(t, n == -ECONNRESET);
    sys->close(sys, fd);
    fd = accept_one(sys, listener);             /* 3: the peer is killed */
    CHECK(t, recv_all(sys, fd, byte, 100) == 5);
    t->time[1] = sys->now(sys);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void end_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    uint8_t byte[10] = { 0 };
    int code, fd = connect_to(sys, "a1", PORT, &code);
    CHECK(t, code == 0 && send_all(sys, fd, byte, 10) == 10);
    sys->close(sys, fd);
    fd = connect_to(sys, "a1", PORT, &code);
    wait_for(sys, fd, GCI_READ, GCI_FOREVER);
    sys->close(sys, fd);
    sim_sleep(p, 3 * GCI_SECOND);
    fd = connect_to(sys, "a1", PORT, &code);
    CHECK(t, send_all(sys, fd, byte, 5) == 5);
    t->time[0] = sys->now(sys) + GCI_SECOND;
    sim_alloc(p, NULL, 1000);                   /* reclaimed */
    sim_kill_proc_at(p, t->time[0]);
    sim_sleep(p, GCI_FOREVER / 2);
    wrong_at(t, __LINE__, "the dead run");
}

static int scenario_ends(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_spawn(t->host[0], "server", end_server, t);
    t->proc[0] = sim_spawn(t->host[2], "client", end_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, sim_proc_killed(t->proc[0]) && !sim_proc_done(t->proc[0]));
    CHECK(t, NEAR(t->time[1] - t->time[0], 10 * MS, MS));
    return scene_end(t);
}

static void reset_end(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int me = p == t->proc[1], code = 0, listener = me ? -1 : listen_on(sys, PORT);
    int fd = me ? connect_to(sys, "a1", PORT, &code) : accept_one(sys, listener);
    uint8_t byte = 0;
    t->code[me] = (int)recv_all(sys, fd, &byte, 1);
    t->time[me] = sys->now(sys);
    struct iovec v = { &byte, 1 };
    CHECK(t, sys->recv(sys, fd, &v, 1) == 0);
    CHECK(t, sys->send(sys, fd, &v, 1) == -EPIPE);
    sys->close(sys, fd);
    if (!me) {
        sys->close(sys, listener);
    }
}

static void reset_any(void *s, void *unused) { (void)unused; (void)sim_reset_any(s); }

static int scenario_reset(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->proc[0] = sim_spawn(t->host[0], "server", reset_end, t);
    t->proc[1] = sim_spawn(t->host[2], "client", reset_end, t);
    sim_at(t->s, GCI_SECOND, reset_any, t->s, NULL);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->code[0] == -ECONNRESET && t->code[1] == -ECONNRESET);
    CHECK(t, NEAR(t->time[0], GCI_SECOND, MS) && NEAR(t->time[1], GCI_SECOND, MS));
    return scene_end(t);
}

/* ---- connecting to where nobody is ---- */

static enum sim_verdict firewall(void *user, sim_host *from, sim_host *to, uint16_t port)
{
    (void)user; (void)from; (void)to;
    return port == PORT + 1 ? SIM_DROP : port == PORT + 2 ? SIM_REFUSE : SIM_PASS;
}

static void refused_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static const struct { const char *host; int port, code, time_ms; } want[] = {
        { "a1", PORT + 9, -ECONNREFUSED, 20 }, { "a1", PORT + 2, -ECONNREFUSED, 20 }, { "a1", PORT + 1, -ETIMEDOUT, 127000 },
        { "a2", PORT, -ETIMEDOUT, 127000 }, { "10.2.200.200", PORT, -EHOSTUNREACH, 3000 }, { "10.9.9.9", PORT, -ETIMEDOUT, 127000 },
        { "fd00::1", PORT, -ENETUNREACH, 0 } };
    for (size_t i = 0; i < GCI_COUNT(want); i++) {
        int64_t begin = sys->now(sys);
        int code, fd = connect_to(sys, want[i].host, (uint16_t)want[i].port, &code);
        CHECK(t, code == want[i].code);
        CHECK(t, NEAR(sys->now(sys) - begin, want[i].time_ms * MS, MS));
        if (fd >= 0) {
            sys->close(sys, fd);
        }
    }
}

static int scenario_refused(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_firewall(t->s, firewall, NULL);
    sim_kill_host(t->host[1]);
    sim_spawn(t->host[2], "client", refused_client, t);
    return scene_end(t);
}

/* ---- Unix sockets: within a host, beside the TCP port of that number; who is not let in hears so at once ---- */

static void near_stranger(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    sim_sleep(p, 500 * MS);
    CHECK(t, sys->connect(sys, &(gci_addr){ .family = GCI_UNIX, .port = PORT }, NULL, 0) == -ECONNREFUSED);
}

static void near_transfer(scene *t, gci_sys *sys, int client, int server)
{
    uint8_t out[3000], in[3000];
    memset(out, 7, sizeof out);
    int64_t begin = sys->now(sys);
    CHECK(t, send_all(sys, client, out, sizeof out) == sizeof out);
    CHECK(t, recv_all(sys, server, in, sizeof in) == sizeof in && memcmp(in, out, sizeof in) == 0);
    CHECK(t, NEAR(sys->now(sys) - begin, 0, MS));
    CHECK(t, sys->silence(sys, client) == 0);
    sys->close(sys, client);
    CHECK(t, recv_all(sys, server, in, 1) == 0);
    sys->close(sys, server);
}

static void near_host(sim_proc *p, void *arg)
{
    enum { BACKLOG = 2 };
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr near = { .family = GCI_UNIX, .port = PORT }, from = { .family = 9 }, far = { .family = 4, .ip = { 10, 1, 0, 1 }, .port = PORT };
    int code = 0, fd[BACKLOG + 1], tcp = listen_on(sys, PORT);
    CHECK(t, sys->connect(sys, &near, NULL, 0) == -ECONNREFUSED);
    int listener = sys->listen(sys, &near);
    CHECK(t, listener >= 0 && near.port == PORT && sys->listen(sys, &near) == -EADDRINUSE);
    int client = connect_from(sys, &near, NULL, 0, &code);
    CHECK(t, client >= 0 && code == 0);
    wait_for(sys, listener, GCI_READ, GCI_FOREVER);
    int server = sys->accept(sys, listener, &from);
    for (; server == -EAGAIN; server = sys->accept(sys, listener, &from)) {
    }
    CHECK(t, server >= 0 && from.family == GCI_UNIX && from.port == 0 && sys->accept(sys, tcp, NULL) == -EAGAIN);
    near_transfer(t, sys, client, server);
    CHECK(t, sys->connect(sys, &near, &far, 0) == -EAFNOSUPPORT);
    sim_sleep(p, GCI_SECOND);
    sim_tune(t->s)->backlog = BACKLOG;
    for (int i = 0; i <= BACKLOG; i++) {
        fd[i] = sys->connect(sys, &near, NULL, 0);
        sim_sleep(p, MS);
    }
    CHECK(t, fd[BACKLOG - 1] >= 0 && fd[BACKLOG] == -EAGAIN);
    sim_host_forbid_unix(sim_proc_host(p), true);
    CHECK(t, sys->connect(sys, &near, NULL, 0) == -EAFNOSUPPORT);
    near.port++;
    CHECK(t, sys->listen(sys, &near) == -EAFNOSUPPORT);
    for (int i = 0; i < BACKLOG; i++) {
        sys->close(sys, fd[i]);
    }
    sys->close(sys, listener);
    sys->close(sys, tcp);
}

static int scenario_near(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_spawn(t->host[0], "host", near_host, t);
    sim_spawn(t->host[1], "stranger", near_stranger, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    return scene_end(t);
}

/* ---- silence: only control connections find out, a mended cut loses nothing, the stopped live ---- */

static void silent_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd[2];
    uint8_t byte;
    for (int i = 0; i < 2; i++) {
        fd[i] = accept_one(sys, listener);
    }
    (void)recv_all(sys, fd[0], &byte, 1);
    (void)t;
}

static void silent_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, control = connect_to(sys, "a1", PORT, &code), data = connect_to(sys, "a1", PORT, &code);
    uint8_t byte = 0;
    sys->tune(sys, control, GCI_TUNE_CONTROL, 3 * GCI_SECOND);
    sys->tune(sys, data, GCI_TUNE_DATA, 3 * GCI_SECOND);
    t->code[0] = (int)recv_all(sys, control, &byte, 1);
    t->time[0] = sys->now(sys);
    CHECK(t, wait_for(sys, data, GCI_READ, 100 * GCI_SECOND) == 0);
    CHECK(t, send_all(sys, data, &byte, 1) == 1);
    sys->close(sys, control);
    sys->close(sys, data);
}

/* Sleeps 1 s, but is stopped in the middle of it. */
static void stopped(sim_proc *p, void *arg)
{
    scene *t = arg;
    sim_sleep(p, GCI_SECOND);
    t->time[1] = sim_now(t->s);
}

static int scenario_silence(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->proc[0] = sim_spawn(t->host[0], "server", silent_server, t);
    sim_spawn(t->host[2], "client", silent_client, t);
    t->proc[1] = sim_spawn(t->host[1], "stopped", stopped, t);
    sim_stop_proc_at(t->proc[1], 500 * MS);
    sim_continue_proc_at(t->proc[1], 5 * GCI_SECOND);
    sim_stop_proc_at(t->proc[0], 500 * MS);
    sim_continue_proc_at(t->proc[0], 15 * GCI_SECOND);          /* a stop of any length is no death */
    sim_cut_at(t->host[0], t->host[2], 20 * GCI_SECOND);        /* nor is a cut shorter than the time-out */
    sim_mend_at(t->host[0], t->host[2], 22900 * MS);
    sim_kill_host_at(t->host[0], 30 * GCI_SECOND);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->time[1] == 5 * GCI_SECOND);
    CHECK(t, t->code[0] == -ETIMEDOUT);
    CHECK(t, NEAR(t->time[0], 33 * GCI_SECOND, MS));
    return scene_end(t);
}

/* What is sent to a dead host starts the time-out anew; and one that is made shorter meanwhile is looked at with the next try. */
static void late_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    uint8_t byte = 0;
    int code, fd[2];
    for (int i = 0; i < 2; i++) {
        fd[i] = connect_to(sys, "a1", PORT, &code);
        sys->tune(sys, fd[i], GCI_TUNE_CONTROL, 5 * GCI_SECOND);
    }
    sim_sleep(p, 6 * GCI_SECOND - sys->now(sys));
    for (int i = 0; i < 2; i++) {
        CHECK(t, send_all(sys, fd[i], &byte, 1) == 1);
    }
    sim_sleep(p, 1700 * MS);
    sys->tune(sys, fd[1], GCI_TUNE_CONTROL, 700 * MS);
    for (int i = 1; i >= 0; i--) {
        t->code[i] = (int)recv_all(sys, fd[i], &byte, 1);
        t->time[i] = sys->now(sys);
        sys->close(sys, fd[i]);
    }
}

static int scenario_late(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_spawn(t->host[0], "server", silent_server, t);
    sim_spawn(t->host[2], "client", late_client, t);
    sim_kill_host_at(t->host[0], 5 * GCI_SECOND);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->code[0] == -ETIMEDOUT && NEAR(t->time[0], 11 * GCI_SECOND, 10 * MS));
    CHECK(t, t->code[1] == -ETIMEDOUT && NEAR(t->time[1], 9400 * MS, 500 * MS));   /* after 0.2, 0.6, 1.4, 3.0 s and round trips */
    return scene_end(t);
}

static void cut_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd = accept_one(sys, listener);
    uint8_t byte;
    CHECK(t, recv_all(sys, fd, &byte, 1) == 1);
    t->time[0] = sys->now(sys);
}

static void cut_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, fd = connect_to(sys, "a1", PORT, &code);
    sim_sleep(p, GCI_SECOND);
    sim_cut_sites(sim_site_of(t->host[0]), sim_site_of(t->host[2]));
    CHECK(t, code == 0 && send_all(sys, fd, &code, 1) == 1);
    sim_sleep(p, GCI_SECOND);
    t->time[1] = sys->now(sys);
    sim_mend_sites(sim_site_of(t->host[0]), sim_site_of(t->host[2]));
    sys->close(sys, fd);
}

static int scenario_cut(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    sim_spawn(t->host[0], "server", cut_server, t);
    sim_spawn(t->host[2], "client", cut_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, NEAR(t->time[0], t->time[1] + 550 * MS, MS));      /* sent 1 s before: again after 0.22, 0.66, 1.54 s, then latency */
    return scene_end(t);
}

/* ---- who reaches whom: routers, NATs, families, rules, children ---- */

enum { PATIENCE_S = 5 };        /* of a connect */

/* From one host to an address: the answer is the name of the host there and whom it saw, or a code. */
typedef struct visit { const char *from, *to; uint16_t port; int code; const char *answer; } visit;
typedef struct visitor { scene *t; const visit *v; } visitor;

static sim_host *host_named(scene *t, const char *name)
{
    for (int i = 0; t->host[i]; i++) {
        if (strcmp(sim_host_name(t->host[i]), name) == 0) {
            return t->host[i];
        }
    }
    return NULL;
}

/* Says who it is and who has come, to each who comes, until nobody has come for long. */
static void answering_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr at = { .family = 6, .port = PORT }, from;
    int listener = sys->listen(sys, &at), fd;
    while (wait_for(sys, listener, GCI_READ, 100 * GCI_SECOND)) {
        char text[128] = "", address[GCI_ADDR_TEXT];
        while ((fd = sys->accept(sys, listener, &from)) >= 0) {
            CHECK(t, from.port != 0);
            from.port = 0;
            snprintf(text, sizeof text, "%s saw %s", sim_host_name(sim_proc_host(p)), gci_addr_text(&from, address));
            (void)send_all(sys, fd, text, sizeof text);
            sys->close(sys, fd);
        }
    }
    sys->close(sys, listener);
}

static void visiting(sim_proc *p, void *arg)
{
    const visitor *me = arg;
    const visit *v = me->v;
    gci_sys *sys = sim_sys(p);
    char text[128] = "";
    int code;
    sim_sleep(p, MS);
    int fd = connect_to(sys, v->to, v->port ? v->port : PORT, &code);
    if (code == 0) {
        (void)recv_all(sys, fd, text, sizeof text);
    }
    if (code != v->code || strcmp(text, v->answer ? v->answer : "") != 0) {
        wrong_at(me->t, __LINE__, "a visit went another way");
        if (me->t->loud) {
            fprintf(stderr, "    %s to %s: %d (expected %d) \"%s\"\n", v->from, v->to, code, v->code, text);
        }
    }
    if (fd >= 0) {
        sys->close(sys, fd);
    }
}

static int visits(scene *t, const visit *v, int n)
{
    visitor me[64];
    sim_tune(t->s)->connect_timeout = PATIENCE_S * GCI_SECOND;
    for (int i = 0; t->host[i]; i++) {
        sim_spawn(t->host[i], "server", answering_server, t);
    }
    for (int i = 0; i < n; i++) {
        me[i] = (visitor){ t, &v[i] };
        sim_spawn(host_named(t, v[i].from), "visitor", visiting, &me[i]);
    }
    CHECK(t, sim_run(t->s) == SIM_OK);
    return scene_end(t);
}

/* A public site p, and two sites x and y with the same private addresses, all joined: 10 ms. IPv6 in p and x; p3 and x3 have
 * nothing else, and y3 has a second network behind the router. */
static scene *scene_of_nats(uint64_t seed, enum sim_planted bug)
{
    static const char *const name[] = { "p", "x", "y" };
    scene *t = scene_new(seed, bug);
    sim_site *site[3];
    free(t->host);
    t->host = calloc(16, sizeof(sim_host *));
    for (int i = 0, n = 0; i < 3; i++) {
        site[i] = sim_site_new(t->s, name[i], 50000);
        for (int j = 0; j < i; j++) {
            sim_wan(site[i], site[j], 10 * MS, 1000000);
        }
        for (int h = 1; h <= 3; h++) {
            char host[8], v4[32], v6[32];
            snprintf(host, sizeof host, "%s%d", name[i], h);
            snprintf(v4, sizeof v4, i == 0 ? "198.51.100.%d/24" : "192.168.1.%d/24", h);
            snprintf(v6, sizeof v6, "2001:db8:%d::%d/64", i, h);
            t->host[n] = sim_host_new(site[i], host, h == 3 && i < 2 ? v6 : v4, 125000000);
            if (h < 3 && i < 2) {
                sim_nic_address(sim_host_nic(t->host[n], 0), v6, 0);
            }
            n++;
        }
    }
    sim_nat_new(site[1], "203.0.113.1", 0, SIM_DROP);
    sim_nat_new(site[2], "203.0.113.2", 0, SIM_REFUSE);
    sim_nic_new(host_named(t, "y3"), "eth1", sim_site_net(site[2], "y's other", 3 * MS), "192.168.2.3/24", 0);
    return t;
}

static int scenario_nat(uint64_t seed, enum sim_planted bug)
{
    static const visit v[] = {
        { "p1", "198.51.100.2", 0, 0, "p2 saw 198.51.100.1" },
        { "x1", "198.51.100.1", 0, 0, "p1 saw 203.0.113.1" },           /* out it goes, and the answer comes back */
        { "y2", "198.51.100.1", 0, 0, "p1 saw 203.0.113.2" },
        { "p1", "192.168.1.1", 0, -ETIMEDOUT, NULL },                   /* nobody sees what is behind a NAT */
        { "p1", "203.0.113.1", 0, -ETIMEDOUT, NULL },
        { "p1", "203.0.113.2", 0, -ECONNREFUSED, NULL },
        { "x1", "192.168.1.2", 0, 0, "x2 saw 192.168.1.1" },            /* each finds its own */
        { "y1", "192.168.1.2", 0, 0, "y2 saw 192.168.1.1" },
        { "x1", "192.168.1.3", 0, -EHOSTUNREACH, NULL },                /* x3 has no IPv4, and y3 is not here */
        { "y1", "192.168.1.3", 0, 0, "y3 saw 192.168.1.1" },
        { "y1", "192.168.2.3", 0, 0, "y3 saw 192.168.1.1" },            /* behind the router of the site */
        { "x1", "192.168.2.3", 0, -ETIMEDOUT, NULL },
        { "p3", "198.51.100.1", 0, -ENETUNREACH, NULL },                /* families */
        { "p3", "2001:db8:0::1", 0, 0, "p1 saw 2001:db8::3" },
        { "p1", "2001:db8:1::3", 0, 0, "x3 saw 2001:db8::1" },          /* the NAT is for IPv4 */
        { "x3", "2001:db8::3", 0, 0, "p3 saw 2001:db8:1::3" },
        { "y1", "2001:db8::3", 0, -ENETUNREACH, NULL },
        { "p1", "203.0.113.2", 7000, 0, "y2 saw 198.51.100.1" },        /* forwarded */
        { "x2", "203.0.113.2", 7000, 0, "y2 saw 203.0.113.1" },         /* through two NATs */
        { "y1", "203.0.113.2", 7000, -ECONNREFUSED, NULL },             /* no hairpin ... */
        { "x2", "203.0.113.1", 7000, 0, "x1 saw 203.0.113.1" },         /* ... and one */
    };
    scene *t = scene_of_nats(seed, bug);
    sim_nat_forward(sim_site_of(host_named(t, "y2")), 7000, host_named(t, "y2"), PORT);
    sim_nat_forward(sim_site_of(host_named(t, "x1")), 7000, host_named(t, "x1"), PORT);
    sim_nat_hairpin(sim_site_of(host_named(t, "x1")), true);
    return visits(t, v, (int)GCI_COUNT(v));
}

static int scenario_rules(uint64_t seed, enum sim_planted bug)
{
    static const visit v[] = {
        { "p1", "2001:db8:1::2", 0, -ETIMEDOUT, NULL },                 /* p cannot get into x, but x into p */
        { "x2", "2001:db8::1", 0, 0, "p1 saw 2001:db8:1::2" },
        { "x1", "2001:db8:1::2", 0, 0, "x2 saw 2001:db8:1::1" },        /* across only */
        { "p1", "198.51.100.2", 0, -ECONNREFUSED, NULL },               /* p2's own firewall */
        { "p2", "198.51.100.2", 0, 0, "p2 saw 198.51.100.2" },          /* itself never minds */
        { "p2", "198.51.100.1", 0, 0, "p1 saw 198.51.100.2" },
        { "x1", "198.51.100.2", 0, -ECONNREFUSED, NULL },
        { "y1", "198.51.100.2", 0, 0, "p2 saw 203.0.113.2" },           /* an earlier rule */
        { "y2", "198.51.100.1", 0, -ETIMEDOUT, NULL },                  /* y2 may not go out to this port */
        { "y2", "192.168.1.1", 0, 0, "y1 saw 192.168.1.2" },
    };
    scene *t = scene_of_nats(seed, bug);
    sim *s = t->s;
    sim_site *p = sim_site_of(host_named(t, "p1")), *x = sim_site_of(host_named(t, "x1")), *y = sim_site_of(host_named(t, "y1"));
    sim_rule_add(s, &(sim_rule){ .from_host = host_named(t, "y2"), .across = true, .port_first = PORT, .port_last = PORT, .verdict = SIM_DROP });
    sim_rule_add(s, &(sim_rule){ .from_site = y, .verdict = SIM_PASS });
    sim_rule_add(s, &(sim_rule){ .to_host = host_named(t, "p2"), .port_first = PORT + 1, .port_last = PORT + 9, .verdict = SIM_PASS });
    sim_rule_add(s, &(sim_rule){ .to_host = host_named(t, "p2"), .verdict = SIM_REFUSE });
    sim_rule_add(s, &(sim_rule){ .from_site = p, .to_site = x, .verdict = SIM_DROP });
    sim_rule_add(s, &(sim_rule){ .to_site = x, .across = true, .verdict = SIM_REFUSE });
    return visits(t, v, (int)GCI_COUNT(v));
}

/* ---- NATs that forget ---- */

/* After some silence a byte goes from the server, the client, or nobody: what does each end hear within 400 s, and when? */
enum { FROM_SERVER, FROM_CLIENT, FROM_NOBODY, NOTHING = 99 };
enum { PLAIN = GCI_TUNE_HANDSHAKE, CONTROL = GCI_TUNE_CONTROL, DATA = GCI_TUNE_DATA };
typedef struct forgetting {
    int     silence_s, sender;
    int     tune;
    int     forget_s;           /* by command; 0: never */
    enum sim_verdict unknown;
    int     client, server;     /* codes */
    int64_t client_ms, server_ms;
} forgetting;

static void forgotten_end(sim_proc *p, void *arg)
{
    scene *t = arg;
    const forgetting *f = t->what;
    gci_sys *sys = sim_sys(p);
    bool server = p == t->proc[0];
    int listener = server ? listen_on(sys, PORT) : -1, code = 0;
    int fd = server ? accept_one(sys, listener) : connect_to(sys, "198.51.100.1", PORT, &code);
    uint8_t byte = 1;
    CHECK(t, code == 0);
    if (f->tune != PLAIN) {
        sys->tune(sys, fd, (enum gci_tune)f->tune, 30 * GCI_SECOND);
    }
    if (server ? recv_all(sys, fd, &byte, 1) != 1 : send_all(sys, fd, &byte, 1) != 1) {
        wrong_at(t, __LINE__, "not even the first byte passed");
    }
    sim_sleep(p, f->silence_s * GCI_SECOND);
    int64_t since = f->sender == FROM_NOBODY ? 0 : sys->now(sys);
    if (f->sender == (server ? FROM_SERVER : FROM_CLIENT)) {
        CHECK(t, send_all(sys, fd, &byte, 1) == 1);
    }
    t->code[server] = wait_for(sys, fd, GCI_READ, 400 * GCI_SECOND) ? (int)recv_all(sys, fd, &byte, 1) : NOTHING;
    t->time[server] = (sys->now(sys) - since) / MS;
    sys->close(sys, fd);
}

static int forget(uint64_t seed, enum sim_planted bug, const forgetting *f)
{
    scene *t = scene_of_nats(seed, bug);
    sim_site *x = sim_site_of(host_named(t, "x1"));
    sim_nat_new(x, "203.0.113.1", 60 * GCI_SECOND, f->unknown);
    sim_tune(t->s)->give_up = 200 * GCI_SECOND;
    sim_tune(t->s)->time_limit = 2000 * GCI_SECOND;
    t->what = f;
    t->proc[0] = sim_spawn(host_named(t, "p1"), "server", forgotten_end, t);
    t->proc[1] = sim_spawn(host_named(t, "x1"), "client", forgotten_end, t);
    if (f->forget_s) {
        sim_nat_forget_at(x, f->forget_s * GCI_SECOND);
    }
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->code[0] == f->client && t->code[1] == f->server);
    CHECK(t, NEAR(t->time[0], f->client_ms, 60) && NEAR(t->time[1], f->server_ms, 60));
    if (t->loud && t->wrong) {
        fprintf(stderr, "    client %d after %lld ms, server %d after %lld ms\n", t->code[0], (long long)t->time[0], t->code[1],
                (long long)t->time[1]);
    }
    return scene_end(t);
}

static int scenario_forget(uint64_t seed, enum sim_planted bug)
{
    static const forgetting all[] = {
        { 59, FROM_SERVER, PLAIN, 0, SIM_DROP, 1, 0, 10, 20 },                          /* not yet */
        { 61, FROM_CLIENT, PLAIN, 0, SIM_DROP, -ETIMEDOUT, NOTHING, 200000, 400000 },   /* silence */
        { 61, FROM_SERVER, PLAIN, 0, SIM_DROP, NOTHING, -ETIMEDOUT, 400000, 200000 },
        { 61, FROM_CLIENT, PLAIN, 0, SIM_REFUSE, -ECONNRESET, NOTHING, 20, 400000 },    /* a RST */
        { 300, FROM_SERVER, CONTROL, 0, SIM_DROP, 1, 0, 10, 20 },                       /* keepalive */
        { 300, FROM_CLIENT, DATA, 0, SIM_DROP, 0, 1, 20, 10 },
        { 1, FROM_NOBODY, CONTROL, 50, SIM_DROP, -ETIMEDOUT, -ETIMEDOUT, 80000, 80000 },
        { 1, FROM_NOBODY, CONTROL, 50, SIM_REFUSE, -ECONNRESET, -ECONNRESET, 65000, 65000 },
        { 1, FROM_NOBODY, DATA, 50, SIM_REFUSE, -ECONNRESET, -ECONNRESET, 75000, 75000 },
        { 1, FROM_NOBODY, DATA, 50, SIM_DROP, -ETIMEDOUT, -ETIMEDOUT, 329000, 329000 }, /* it takes minutes to give up */
        { 1, FROM_NOBODY, PLAIN, 50, SIM_REFUSE, NOTHING, NOTHING, 401040, 401040 },
        { 2, FROM_CLIENT, PLAIN, 1, SIM_DROP, -ETIMEDOUT, NOTHING, 200000, 400000 },
    };
    int wrong = 0;
    for (size_t i = 0; i < GCI_COUNT(all); i++) {
        int more = forget(seed, bug, &all[i]);
        if (more && bug == SIM_PLANT_NONE) {
            fprintf(stderr, "    case %zu\n", i);
        }
        wrong += more;
    }
    return wrong;
}

/* ---- one direction only ---- */

/* The server's bytes come through, but it does not hear so: when its buffer is full it waits. The client's bytes are lost. */
static void one_way_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t bytes[1 << 20];
    int listener = listen_on(sys, PORT), fd = accept_one(sys, listener);
    sim_sleep(p, GCI_SECOND);
    CHECK(t, send_all(sys, fd, bytes, sizeof bytes) == (ssize_t)sizeof bytes);
    t->time[0] = sys->now(sys);
    t->code[0] = (int)recv_all(sys, fd, bytes, 10);
    t->time[1] = sys->now(sys);
    sys->close(sys, fd);
}

static void one_way_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t bytes[1 << 20];
    int code, fd = connect_to(sys, "a1", PORT, &code);
    CHECK(t, code == 0);
    sim_sleep(p, GCI_SECOND - sys->now(sys));
    CHECK(t, send_all(sys, fd, bytes, 10) == 10);
    t->code[1] = (int)recv_all(sys, fd, bytes, 1000);
    t->time[2] = sys->now(sys);
    CHECK(t, recv_all(sys, fd, bytes, sizeof bytes - 1000) == (ssize_t)sizeof bytes - 1000);
    t->time[3] = sys->now(sys);
    sys->close(sys, fd);
}

static void one_way_ends(scene *t)
{
    CHECK(t, t->code[1] == 1000 && NEAR(t->time[2], 1040 * MS, 15 * MS));      /* b hears a at once ... */
    CHECK(t, t->time[3] > 10 * GCI_SECOND);                                     /* ... but a stops when nobody acknowledges */
    CHECK(t, t->code[0] == 10 && t->time[0] > 10 * GCI_SECOND);
    CHECK(t, t->time[1] > 10 * GCI_SECOND && t->time[1] < 20 * GCI_SECOND);
}

static void cut_way(void *a, void *b) { sim_cut_way(a, b); }
static void cut_sites_way(void *a, void *b) { sim_cut_sites_way(a, b); }

static int scenario_one_way(uint64_t seed, enum sim_planted bug)
{
    int wrong = 0;
    for (int sites = 0; sites < 2; sites++) {
        scene *t = scene_new(seed, bug);
        sim_site *a = sim_site_of(t->host[0]), *b = sim_site_of(t->host[2]);
        sim_spawn(t->host[0], "server", one_way_server, t);
        sim_spawn(t->host[2], "client", one_way_client, t);
        if (sites) {
            sim_at(t->s, 900 * MS, cut_sites_way, b, a);
            sim_mend_sites_at(a, b, 10 * GCI_SECOND);
        } else {
            sim_at(t->s, 900 * MS, cut_way, t->host[2], t->host[0]);
            sim_mend_at(t->host[0], t->host[2], 10 * GCI_SECOND);
        }
        CHECK(t, sim_run(t->s) == SIM_OK);
        one_way_ends(t);
        if (t->loud && t->wrong) {
            fprintf(stderr, "    %d %d, %lld %lld %lld %lld us\n", t->code[0], t->code[1], (long long)t->time[0] / 1000,
                    (long long)t->time[1] / 1000, (long long)t->time[2] / 1000, (long long)t->time[3] / 1000);
        }
        wrong += scene_end(t);
    }
    return wrong;
}

/* Who sends nothing and who is not heard find out alike, if they are control connections. */
static void one_way_listener(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int server = p == t->proc[0], listener = server ? listen_on(sys, PORT) : -1, code = 0;
    int fd = server ? accept_one(sys, listener) : connect_to(sys, "a1", PORT, &code);
    uint8_t byte;
    sys->tune(sys, fd, GCI_TUNE_CONTROL, 3 * GCI_SECOND);
    t->code[server] = (int)recv_all(sys, fd, &byte, 1);
    t->time[server] = sys->now(sys);
    sys->close(sys, fd);
}

static int scenario_one_way_silence(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->proc[0] = sim_spawn(t->host[0], "server", one_way_listener, t);
    t->proc[1] = sim_spawn(t->host[2], "client", one_way_listener, t);
    sim_at(t->s, GCI_SECOND, cut_way, t->host[0], t->host[2]);
    CHECK(t, sim_run(t->s) == SIM_OK);
    for (int i = 0; i < 2; i++) {
        CHECK(t, t->code[i] == -ETIMEDOUT && NEAR(t->time[i], 4 * GCI_SECOND, 10 * MS));
    }
    return scene_end(t);
}

/* ---- a middlebox that aims ---- */

static void aimed_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT);
    for (int i = 0; i < 3; i++) {
        uint8_t name[2];
        int fd = accept_one(sys, listener);
        CHECK(t, recv_all(sys, fd, name, 2) == 2);
        t->count |= 1 << (name[1] - '0');
    }
    sim_sleep(p, 10 * GCI_SECOND);
    sys->close(sys, listener);
}

static void aimed_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int fd[3], code;
    for (int i = 0; i < 3; i++) {
        uint8_t name[2] = { 'c', (uint8_t)('0' + i) };
        fd[i] = connect_to(sys, "a1", PORT, &code);
        CHECK(t, send_all(sys, fd[i], name, 2) == 2);
    }
    sim_sleep(p, 2 * GCI_SECOND - sys->now(sys));
    for (int i = 0; i < 3; i++) {
        uint8_t byte;
        struct iovec v = { &byte, 1 };
        ssize_t r;
        while ((r = sys->recv(sys, fd[i], &v, 1)) == -EAGAIN && sys->now(sys) < 3 * GCI_SECOND) {
        }
        CHECK(t, r == (i == 1 ? -ECONNRESET : -EAGAIN));
        sys->close(sys, fd[i]);
    }
}

static bool is_second(void *user, const uint8_t *opening, size_t bytes)
{
    ++*(int *)user;
    return bytes == 2 && opening[0] == 'c' && opening[1] == '1';
}

static void aim(void *scene_, void *unused)
{
    scene *t = scene_;
    (void)unused;
    CHECK(t, sim_reset_where(t->proc[0], t->proc[0], is_second, &t->code[5]) == 0 && t->code[5] == 0);
    CHECK(t, sim_reset_where(t->proc[0], t->proc[1], is_second, &t->code[5]) == 1 && t->code[5] == 3);
    CHECK(t, sim_reset_where(t->proc[1], NULL, is_second, &t->code[5]) == 0);     /* it is gone */
}

static int scenario_aimed(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->proc[0] = sim_spawn(t->host[0], "server", aimed_server, t);
    t->proc[1] = sim_spawn(t->host[2], "client", aimed_client, t);
    sim_at(t->s, GCI_SECOND, aim, t, NULL);
    CHECK(t, sim_run(t->s) == SIM_OK && t->count == 7);
    return scene_end(t);
}

/* ---- children: as ssh -W ---- */

static int ssh(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    scene *t = user;
    (void)by;
    if (strcmp(argv[0], "ssh") != 0) {
        return -ENOENT;
    }
    *from = host_named(t, argv[1]);
    (void)gci_addr_parse(argv[2], to);
    to->port = (uint16_t)atoi(argv[3]);
    return 0;
}

static void ssh_client(sim_proc *p, void *arg)
{
    static char *const good[] = { "ssh", "y1", "127.0.0.1", "5000", NULL }, *const on[] = { "ssh", "y1", "192.168.1.2", "5000", NULL },
                      *const bad[] = { "ssh", "y1", "127.0.0.1", "5001", NULL }, *const none[] = { "rsh", NULL };
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    char text[128] = "";
    sim_sleep(p, MS);
    CHECK(t, sys->spawn(sys, none) == -ENOENT);
    for (int i = 0; i < 3; i++) {
        int fd = sys->spawn(sys, i == 0 ? good : i == 1 ? on : bad);
        CHECK(t, fd >= 0 && send_all(sys, fd, "early", 5) == 5);    /* nobody is connected yet */
        t->code[i] = (int)recv_all(sys, fd, text, sizeof text);
        CHECK(t, i == 2 || strcmp(text, i ? "y2 saw 192.168.1.1" : "y1 saw 127.0.0.1") == 0);
        t->time[i] = sys->now(sys);
        sys->close(sys, fd);
    }
}

static int scenario_children(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_of_nats(seed, bug);
    sim_rule_add(t->s, &(sim_rule){ .to_site = sim_site_of(host_named(t, "y1")), .across = true, .verdict = SIM_DROP });
    sim_on_spawn(t->s, ssh, t);
    sim_spawn(host_named(t, "y1"), "server", answering_server, t);
    sim_spawn(host_named(t, "y2"), "server", answering_server, t);
    sim_spawn(host_named(t, "x1"), "client", ssh_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->code[0] == 128 && t->code[1] == 128 && t->code[2] == 0);        /* the last finds nobody: an end */
    CHECK(t, t->time[0] >= 30 * MS);        /* a handshake and the answer over 10 ms */
    return scene_end(t);
}

/* ---- several NICs: routes, sources, binding ---- */

/* Site m with m1, m2 and m3, site n with n1, 10 ms away, and c1, a container on m1. The switches:
 *
 *              "m", its own    "second", behind  "tunnel"    "docker of m1"   "docker of m2"
 *                              m's router, too
 *     m1       eth0 10.1.0.1   eth1 10.2.0.1     tun0        docker0 .1
 *     m2       eth0 10.1.0.2   eth1 10.2.0.2     tun0                         docker0 .1
 *     m3       eth0 10.1.0.3
 *              eth1 10.1.0.33
 *     c1                                                     eth0 .2
 *
 * (scene_new's sites have the addresses of m, and no way to it.) */
static scene *scene_of_nics(uint64_t seed, enum sim_planted bug)
{
    enum { RATE = 12500000 };
    static const struct { const char *host, *nic, *net, *address[4]; } all[] = {
        { "m1", "eth0", "m", { "10.1.0.1/16", "fe80::1/64", "2001:db8:1::1/64" } },
        { "m1", "eth1", "second", { "10.2.0.1/16", "fe80::1/64" } },
        { "m1", "docker0", "docker of m1", { "172.17.0.1/16" } },
        { "m1", "tun0", "tunnel", { "10.9.0.1/32" } },
        { "m2", "eth0", "m", { "10.1.0.2/16", "fe80::2/64", "2001:db8:1::2/64" } },
        { "m2", "eth1", "second", { "10.2.0.2/16", "fe80::2/64" } },
        { "m2", "docker0", "docker of m2", { "172.17.0.1/16" } },
        { "m2", "tun0", "tunnel", { "10.9.0.2/32" } },
        { "m3", "eth0", "m", { "10.1.0.3/16", "2001:db8:1::3/64" } },
        { "m3", "eth1", "m", { "10.1.0.33/16", "2001:db8:1::33/64" } },
        { "n1", "eth0", "n", { "192.0.2.1/24", "192.0.2.129/24", "2001:db8:2::1/64" } },
        { "c1", "eth0", "docker of m1", { "172.17.0.2/16" } } };
    scene *t = scene_new(seed, bug);
    sim *s = t->s;
    sim_site *m = sim_site_new(s, "m", 50000), *n = sim_site_new(s, "n", 50000), *docker = sim_site_new(s, "docker of m1", 1000);
    int hosts = 0;
    free(t->host);
    t->host = calloc(GCI_COUNT(all) + 1, sizeof(sim_host *));
    sim_wan(m, n, 10 * MS, 1000000);
    sim_site_net(m, "second", 2 * MS);
    for (size_t i = 0; i < GCI_COUNT(all); i++) {
        sim_host *h = host_named(t, all[i].host);
        sim_nic *nic = h ? sim_nic_new(h, all[i].nic, sim_net_new(s, all[i].net, 20000), all[i].address[0], RATE) : NULL;
        if (!h) {
            h = sim_host_new(all[i].net[0] == 'm' ? m : all[i].net[0] == 'n' ? n : docker, all[i].host, all[i].address[0], RATE);
            nic = sim_host_nic(h, 0);
            t->host[hosts++] = h;
        }
        for (int k = 1; all[i].address[k]; k++) {
            sim_nic_address(nic, all[i].address[k], 0);
        }
    }
    for (int i = 0; i < 2; i++) {
        sim_nic_point_to_point(sim_host_nic(t->host[i], 3));
        sim_host_route(t->host[i], i ? "10.9.0.1/32" : "10.9.0.2/32", sim_host_nic(t->host[i], 3));
    }
    sim_tune(s)->connect_timeout = PATIENCE_S * GCI_SECOND;
    return t;
}

enum { THERE = 1000, BACK = 100, NICS_MAX = 32, NICS_TEXT = 96, NO_SUCH_NIC = 99 };

/* Takes THERE bytes, and says whom it saw in BACK bytes, as long as there are trips to come. */
static void trip_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr at = { .family = 6, .port = PORT }, from;
    int listener = sys->listen(sys, &at), fd;
    while (t->count > 0) {
        char text[BACK] = "", address[GCI_ADDR_TEXT], taken[THERE];
        (void)wait_for(sys, listener, GCI_READ, GCI_SECOND);
        while ((fd = sys->accept(sys, listener, &from)) >= 0) {
            from.port = 0;
            snprintf(text, sizeof text, "%s saw %s", sim_host_name(sim_proc_host(p)), gci_addr_text(&from, address));
            CHECK(t, recv_all(sys, fd, taken, THERE) == THERE && send_all(sys, fd, text, BACK) == BACK);
            sys->close(sys, fd);
        }
    }
    sys->close(sys, listener);
}

static sim_nic *nic_named(sim_host *h, const char *name)
{
    int i = 0;
    sim_nic *nic;
    while ((nic = sim_host_nic(h, i)) && strcmp(sim_nic_name(nic), name) != 0) {
        i++;
    }
    return nic;
}

/* As in the list that a process of the host sees. */
static uint32_t index_of(gci_sys *sys, const char *name)
{
    gci_ifaddr all[NICS_MAX];
    int n = sys->interfaces(sys, all, NICS_MAX), i = 0;
    while (i < n && strcmp(all[i].name, name) != 0) {
        i++;
    }
    return i < n ? all[i].index : NO_SUCH_NIC;
}

typedef struct counters { sim_nic *nic[NICS_MAX]; uint64_t out[NICS_MAX], in[NICS_MAX]; int n; } counters;

static void count_all(scene *t, counters *c)
{
    c->n = 0;
    for (int h = 0; t->host[h]; h++) {
        for (int i = 0; sim_host_nic(t->host[h], i); i++, c->n++) {
            c->nic[c->n] = sim_host_nic(t->host[h], i);
            c->out[c->n] = sim_nic_bytes(c->nic[c->n], true);
            c->in[c->n] = sim_nic_bytes(c->nic[c->n], false);
        }
    }
}

/* The NICs that the bytes of a trip went through: "eth0>eth1 eth1>eth0", there and back. */
static void used_nics(scene *t, const counters *before, char text[NICS_TEXT])
{
    static const struct { bool out; uint64_t bytes; const char *end; } leg[] = {
        { true, THERE, ">" }, { false, THERE, " " }, { true, BACK, ">" }, { false, BACK, "" } };
    counters now;
    int n = 0;
    count_all(t, &now);
    text[0] = 0;
    for (size_t k = 0; k < GCI_COUNT(leg); k++) {
        for (int i = 0; i < now.n; i++) {
            if ((leg[k].out ? now.out[i] - before->out[i] : now.in[i] - before->in[i]) == leg[k].bytes) {
                n += snprintf(text + n, n < NICS_TEXT ? (size_t)(NICS_TEXT - n) : 0, "%s%s", sim_nic_name(now.nic[i]),
                              leg[k].end);
            }
        }
    }
}

/* From a host to an address, maybe with a source and bound to a NIC: code, whom the answer names, and by which NICs. */
typedef struct trip { const char *from, *to, *source, *nic; int code; const char *answer, *nics; } trip;

static void travel(scene *t, gci_sys *sys, const trip *v)
{
    gci_addr to = { 0 }, source = { 0 };
    char text[BACK] = "", nics[NICS_TEXT], bytes[THERE] = "";
    counters before;
    int code;
    (void)gci_addr_parse(v->to, &to);
    (void)gci_addr_parse(v->source ? v->source : "::", &source);
    to.port = PORT;
    count_all(t, &before);
    int fd = connect_from(sys, &to, v->source ? &source : NULL, v->nic ? index_of(sys, v->nic) : 0, &code);
    if (code == 0) {
        CHECK(t, send_all(sys, fd, bytes, THERE) == THERE && recv_all(sys, fd, text, BACK) == BACK);
    }
    used_nics(t, &before, nics);
    if (code != v->code || strcmp(text, v->answer ? v->answer : "") != 0 || strcmp(nics, v->nics ? v->nics : "") != 0) {
        wrong_at(t, __LINE__, "a trip went another way");
        if (t->loud) {
            fprintf(stderr, "    %s to %s from %s by %s: %d (expected %d) \"%s\" by \"%s\"\n", v->from, v->to,
                    v->source ? v->source : "any", v->nic ? v->nic : "any", code, v->code, text, nics);
        }
    }
    if (fd >= 0) {
        sys->close(sys, fd);
    }
}

typedef struct traveller { scene *t; const trip *trip; int number; } traveller;

static void travelling(sim_proc *p, void *arg)
{
    const traveller *me = arg;
    sim_sleep(p, (me->number + 1) * 2 * PATIENCE_S * GCI_SECOND);       /* one after another, so that bytes can be told apart */
    travel(me->t, sim_sys(p), me->trip);
    me->t->count--;
}

static int trips(scene *t, const trip *v, int n)
{
    traveller me[64];
    sim_tune(t->s)->time_limit = 3600 * GCI_SECOND;
    t->count = n;
    for (int i = 0; t->host[i]; i++) {
        sim_spawn(t->host[i], "server", trip_server, t);
    }
    for (int i = 0; i < n; i++) {
        me[i] = (traveller){ t, &v[i], i };
        sim_spawn(host_named(t, v[i].from), "traveller", travelling, &me[i]);
    }
    CHECK(t, sim_run(t->s) == SIM_OK);
    return scene_end(t);
}

static int scenario_routes(uint64_t seed, enum sim_planted bug)
{
    static const trip v[] = {
        { "m1", "10.1.0.2", NULL, NULL, 0, "m2 saw 10.1.0.1", "eth0>eth0 eth0>eth0" },
        { "m1", "10.2.0.2", NULL, NULL, 0, "m2 saw 10.2.0.1", "eth1>eth1 eth1>eth1" },
        { "m1", "192.0.2.1", NULL, NULL, 0, "n1 saw 10.1.0.1", "eth0>eth0 eth0>eth0" },         /* the default route */
        { "n1", "10.2.0.1", NULL, NULL, 0, "m1 saw 192.0.2.1", "eth0>eth1 eth0>eth0" },         /* answers by it, too */
        { "m1", "10.1.0.3", NULL, NULL, 0, "m3 saw 10.2.0.1", "eth1>eth0 eth1>eth1" },          /* a route of its own */
        { "m1", "192.0.2.129", NULL, NULL, 0, "n1 saw 10.2.0.1", "eth1>eth0 eth0>eth1" },
        { "m1", "10.9.0.2", NULL, NULL, 0, "m2 saw 10.9.0.1", "tun0>tun0 tun0>tun0" },
        { "m1", "198.18.0.1", NULL, NULL, -ENETUNREACH, NULL, NULL },                           /* one that leads nowhere */
        { "m1", "10.1.0.2", "10.2.0.1", NULL, 0, "m2 saw 10.2.0.1", "eth0>eth0 eth1>eth1" },    /* sources do not route */
        { "m1", "10.1.0.2", "10.2.0.1", "eth0", -ETIMEDOUT, NULL, NULL },                       /* deaf to its eth1 */
        { "m1", "10.1.0.2", "10.1.0.2", NULL, -EADDRNOTAVAIL, NULL, NULL },
        { "m1", "10.1.0.2", "127.0.0.1", NULL, -EINVAL, NULL, NULL },
        { "m1", "10.1.0.2", "fe80::1", NULL, -EAFNOSUPPORT, NULL, NULL },
        { "m1", "10.1.0.2", NULL, "eth9", -ENODEV, NULL, NULL },
        { "m1", "10.1.0.2", NULL, "eth1", -ENETUNREACH, NULL, NULL },
        { "m1", "192.0.2.1", NULL, "eth1", -ENETUNREACH, NULL, NULL },
        { "m1", "192.0.2.129", NULL, "eth0", 0, "n1 saw 10.1.0.1", "eth0>eth0 eth0>eth0" },
        { "m2", "192.0.2.1", NULL, "eth1", 0, "n1 saw 10.2.0.2", "eth1>eth0 eth0>eth1" },       /* the second default route */
        { "m2", "192.0.2.1", NULL, NULL, 0, "n1 saw 10.1.0.2", "eth0>eth0 eth0>eth0" },         /* ... and the first */
        { "m2", "192.0.2.1", "10.2.0.2", NULL, 0, "n1 saw 10.2.0.2", "eth0>eth0 eth0>eth1" },
        { "m3", "10.1.0.2", NULL, NULL, 0, "m2 saw 10.1.0.3", "eth0>eth0 eth0>eth0" },          /* two NICs on one network */
        { "m3", "10.1.0.1", NULL, NULL, 0, "m1 saw 10.1.0.3", "eth0>eth0 eth1>eth0" },
        { "m3", "10.1.0.1", "10.1.0.33", NULL, 0, "m1 saw 10.1.0.33", "eth0>eth0 eth0>eth1" },
        { "m3", "10.1.0.1", "10.1.0.33", "eth1", 0, "m1 saw 10.1.0.33", "eth1>eth0 eth0>eth1" },
        { "m3", "10.1.0.1", NULL, "eth1", 0, "m1 saw 10.1.0.33", "eth1>eth0 eth0>eth1" },
        { "m2", "10.1.0.33", NULL, NULL, 0, "m3 saw 10.1.0.2", "eth0>eth1 eth0>eth0" },
        { "m3", "192.0.2.1", NULL, NULL, 0, "n1 saw 10.1.0.33", "eth1>eth0 eth0>eth1" },        /* a default route of its own */
        { "m3", "192.0.2.1", NULL, "eth0", -ENETUNREACH, NULL, NULL },
        { "m1", "fe80::2", NULL, NULL, -EINVAL, NULL, NULL },                                   /* where? */
        { "m1", "fe80::2%2", NULL, NULL, 0, "m2 saw fe80::1%2", "eth0>eth0 eth0>eth0" },
        { "m1", "fe80::2%3", NULL, NULL, 0, "m2 saw fe80::1%3", "eth1>eth1 eth1>eth1" },
        { "m1", "fe80::2%3", NULL, "eth0", -EINVAL, NULL, NULL },
        { "m1", "fe80::2", NULL, "eth1", 0, "m2 saw fe80::1%3", "eth1>eth1 eth1>eth1" },
        { "m1", "fe80::2%4", NULL, NULL, -ENETUNREACH, NULL, NULL },
        { "m1", "2001:db8:1::2", NULL, NULL, 0, "m2 saw 2001:db8:1::71", "eth0>eth0 eth0>eth0" },    /* temporary: liked better */
        { "m1", "2001:db8:2::1", "2001:db8:1::1", NULL, 0, "n1 saw 2001:db8:1::1", "eth0>eth0 eth0>eth0" },
    };
    scene *t = scene_of_nics(seed, bug);
    sim_host *m1 = host_named(t, "m1"), *m2 = host_named(t, "m2");
    sim_nic *eth0 = nic_named(m1, "eth0"), *eth1 = nic_named(m1, "eth1");
    sim_host_route(m1, "10.1.0.3/32", eth1);
    sim_host_route(m1, "192.0.2.128/25", eth1);
    sim_host_route(m1, "192.0.2.128/25", eth0);         /* for who is bound to it */
    sim_host_route(m1, "198.18.0.0/15", NULL);
    sim_host_route(host_named(t, "m3"), "0.0.0.0/0", nic_named(host_named(t, "m3"), "eth1"));
    sim_host_route(m2, "0.0.0.0/0", nic_named(m2, "eth0"));
    sim_host_route(m2, "0.0.0.0/0", nic_named(m2, "eth1"));
    sim_nic_address(eth0, "2001:db8:1::70/64", GCI_IF_TEMPORARY | GCI_IF_DEPRECATED);
    sim_nic_address(eth0, "2001:db8:1::71/64", GCI_IF_TEMPORARY);
    sim_nic_address(eth0, "2001:db8:1::12/64", 0);
    sim_nic_address(eth0, "2001:db8:1::1/64", GCI_IF_DEPRECATED);
    return trips(t, v, (int)GCI_COUNT(v));
}

/* Addresses that several hosts have: whoever the host's own routes lead to, itself first, a stranger maybe. And hosts that mind
 * where packets come from. */
static int scenario_collisions(uint64_t seed, enum sim_planted bug)
{
    static const trip v[] = {
        { "m1", "172.17.0.1", NULL, NULL, 0, "m1 saw 172.17.0.1", NULL },
        { "m2", "172.17.0.1", NULL, NULL, 0, "m2 saw 172.17.0.1", NULL },
        { "m1", "172.17.0.2", NULL, NULL, 0, "c1 saw 172.17.0.1", "docker0>eth0 eth0>docker0" },
        { "m2", "172.17.0.2", NULL, NULL, -EHOSTUNREACH, NULL, NULL },
        { "m3", "172.17.0.1", NULL, NULL, -ETIMEDOUT, NULL, NULL },
        { "m1", "10.1.0.2", "172.17.0.1", NULL, -ETIMEDOUT, NULL, NULL },       /* m2 thinks that this is itself */
        { "m1", "192.0.2.1", "172.17.0.1", NULL, -ETIMEDOUT, NULL, NULL },      /* and n1's router knows no such host */
        { "m1", "192.168.1.2", NULL, NULL, 0, "m2 saw 192.168.1.1", "eth0>eth0 eth0>eth0" },    /* two labs of one network */
        { "n1", "192.168.1.2", NULL, NULL, 0, "n1 saw 192.168.1.2", NULL },
        { "n1", "192.168.1.1", NULL, NULL, -EHOSTUNREACH, NULL, NULL },
        { "m2", "10.1.0.33", NULL, NULL, -ETIMEDOUT, NULL, NULL },              /* m3 is strict: it would answer by eth0 */
        { "m3", "10.1.0.2", "10.1.0.33", NULL, -ETIMEDOUT, NULL, NULL },
        { "m2", "10.1.0.3", NULL, NULL, 0, "m3 saw 10.1.0.2", "eth0>eth0 eth0>eth0" },
        { "m2", "2001:db8:1::33", NULL, NULL, 0, "m3 saw 2001:db8:1::2", "eth0>eth1 eth0>eth0" },   /* of IPv6 it is not */
    };
    scene *t = scene_of_nics(seed, bug);
    sim_host_strict(host_named(t, "m3"), true);
    sim_nic_address(nic_named(host_named(t, "m1"), "eth0"), "192.168.1.1/24", 0);
    sim_nic_address(nic_named(host_named(t, "m2"), "eth0"), "192.168.1.2/24", 0);
    sim_nic_address(nic_named(host_named(t, "n1"), "eth0"), "192.168.1.2/24", 0);
    return trips(t, v, (int)GCI_COUNT(v));
}

/* There in 50 us, and back over the other switch in 2 ms: handshake and acknowledgement take the time of both. */
static void detour_server(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd = accept_one(sys, listener);
    uint8_t byte;
    CHECK((scene *)arg, recv_all(sys, fd, &byte, 1) == 1);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void detour_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr to = { 0 }, source = { 0 };
    (void)gci_addr_parse("10.1.0.2", &to);
    (void)gci_addr_parse("10.2.0.1", &source);
    to.port = PORT;
    int code, fd = connect_from(sys, &to, &source, 0, &code);
    CHECK(t, code == 0 && NEAR(sys->now(sys), 2050000, 1000));
    CHECK(t, send_all(sys, fd, &code, 1) == 1);
    sim_sleep(p, 3 * MS / 2);
    CHECK(t, sys->silence(sys, fd) > 0);
    sim_sleep(p, MS);
    CHECK(t, sys->silence(sys, fd) == 0);
    to.port = PORT + 1;
    int64_t begin = sys->now(sys);
    sys->close(sys, connect_from(sys, &to, &source, 0, &code));
    CHECK(t, code == -ECONNREFUSED && NEAR(sys->now(sys) - begin, 2050000, 1000));
    sys->close(sys, fd);
}

static int scenario_detour(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_of_nics(seed, bug);
    sim_calm(t->s);
    sim_spawn(t->host[1], "server", detour_server, t);
    sim_spawn(t->host[0], "client", detour_client, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    return scene_end(t);
}

/* ---- what a process is told of routes, interfaces and its router ---- */

static void asking_routes(scene *t, sim_proc *p)
{
    static const struct { const char *to, *bound; enum gci_route_kind kind; const char *by; } all[] = {
        { "10.1.7.7", NULL, GCI_ROUTE_SPECIFIC, "eth0" }, { "10.2.7.7", NULL, GCI_ROUTE_SPECIFIC, "eth1" },
        { "10.2.0.2", "eth1", GCI_ROUTE_SPECIFIC, "eth1" }, { "10.2.0.2", "eth0", GCI_ROUTE_DEFAULT, "eth0" },
        { "10.9.0.2", NULL, GCI_ROUTE_SPECIFIC, "tun0" }, { "10.9.0.3", "tun0", GCI_ROUTE_NONE, NULL },
        { "192.0.2.1", NULL, GCI_ROUTE_DEFAULT, "eth0" }, { "192.0.2.1", "eth1", GCI_ROUTE_NONE, NULL },
        { "2001:db8:1::9", NULL, GCI_ROUTE_SPECIFIC, "eth0" }, { "2001:db8:2::1", NULL, GCI_ROUTE_DEFAULT, "eth0" },
        { "fe80::9%3", NULL, GCI_ROUTE_SPECIFIC, "eth1" }, { "fe80::9%3", "eth0", GCI_ROUTE_NONE, NULL },
        { "fe80::9", NULL, GCI_ROUTE_UNKNOWN, NULL }, { "fe80::9", "eth0", GCI_ROUTE_SPECIFIC, "eth0" }, { "172.17.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo" },
        { "127.0.0.1", NULL, GCI_ROUTE_SPECIFIC, "lo" } };
    gci_sys *sys = sim_sys(p);
    sim_host *h = sim_proc_host(p);
    gci_addr to;
    for (size_t i = 0; i < GCI_COUNT(all); i++) {
        (void)gci_addr_parse(all[i].to, &to);
        gci_route_answer a = sys->route(sys, &to, all[i].bound ? index_of(sys, all[i].bound) : 0);
        if (a.kind != all[i].kind || a.index != (all[i].by ? index_of(sys, all[i].by) : 0)) {
            wrong_at(t, __LINE__, all[i].to);
        }
    }
    (void)gci_addr_parse("10.2.0.2", &to);
    to.port = PORT;
    sim_host_forbid_binding(h, true);
    CHECK(t, sys->route(sys, &to, 0).kind == GCI_ROUTE_SPECIFIC && sys->route(sys, &to, 3).kind == GCI_ROUTE_UNKNOWN);
    CHECK(t, sys->connect(sys, &to, NULL, index_of(sys, "eth1")) == -EPERM);
    sim_host_forbid_binding(h, false);
    sim_host_hide_routes(h, true);
    CHECK(t, sys->route(sys, &to, 0).kind == GCI_ROUTE_UNKNOWN && sys->route(sys, &to, 3).kind == GCI_ROUTE_UNKNOWN);
    sim_host_hide_routes(h, false);
    sim_host_route(h, "::/0", NULL);
    (void)gci_addr_parse("2001:db8:2::1", &to);
    CHECK(t, sys->route(sys, &to, 0).kind == GCI_ROUTE_NONE && sys->route(sys, &to, 2).kind == GCI_ROUTE_NONE);
}

static void looking_round(scene *t, sim_proc *p)
{
    gci_sys *sys = sim_sys(p);
    gci_ifaddr a[NICS_MAX];
    sim_nic *eth1 = nic_named(sim_proc_host(p), "eth1");
    sim_nic_address(eth1, "fd00::7/64", GCI_IF_TEMPORARY);
    sim_nic_address(eth1, "fd00::7/64", GCI_IF_TEMPORARY | GCI_IF_DEPRECATED);      /* it has become old */
    sim_nic_speed(eth1, 40000);
    CHECK(t, sys->interfaces(sys, a, NICS_MAX) == 9 && a[1].speed == 100 && a[1].flags == 0 && a[2].addr.scope == a[2].index);
    CHECK(t, strcmp(a[4].name, "eth1") == 0 && a[4].speed == 40000 && a[5].addr.scope == 3 && a[4].flags == 0);
    CHECK(t, a[6].flags == (GCI_IF_TEMPORARY | GCI_IF_DEPRECATED) && a[6].prefix == 64 && a[6].addr.scope == 0);
    CHECK(t, strcmp(a[8].name, "tun0") == 0 && a[8].prefix == 32 && a[8].flags == GCI_IF_POINT_TO_POINT);
    sim_nic_carrier(eth1, false);
    CHECK(t, sys->interfaces(sys, a, NICS_MAX) == 9 && a[4].flags == GCI_IF_IDLE && (a[6].flags & GCI_IF_IDLE));
    CHECK(t, a[3].flags == 0);
    sim_nic_carrier(eth1, true);
    CHECK(t, sys->interfaces(sys, a, NICS_MAX) == 9 && a[4].flags == 0);
    sim_nic_down(eth1);
    CHECK(t, sys->interfaces(sys, a, NICS_MAX) == 6 && strcmp(a[4].name, "docker0") == 0 && a[4].index == 4);
    sim_nic_up(eth1);
    CHECK(t, sys->interfaces(sys, a, NICS_MAX) == 9);
}

static void asking(sim_proc *p, void *arg)
{
    asking_routes(arg, p);
    looking_round(arg, p);
}

static void asking_gate(sim_proc *p, void *arg)
{
    scene *t = arg;
    sim_host *h = sim_proc_host(p);
    gci_sys *sys = sim_sys(p);
    int i = 0;
    while (t->host[i] != h) {
        i++;
    }
    t->time[i] = (int64_t)sys->gate(sys);
    if (i == 2) {
        sim_host_gate(h, 77);
        CHECK(t, sys->gate(sys) == 77);
        sim_host_gate(h, 0);
        CHECK(t, sys->gate(sys) == 0);
    } else if (i == 1) {
        sim_host_route(h, "0.0.0.0/0", NULL);
        CHECK(t, sys->gate(sys) != 0);          /* of IPv6 it has one */
        sim_nic_down(sim_host_nic(h, 0));
        CHECK(t, sys->gate(sys) == 0);
    }
}

static int scenario_asking(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_of_nics(seed, bug);
    for (int i = 0; t->host[i]; i++) {
        sim_spawn(t->host[i], "gate", asking_gate, t);
    }
    sim_spawn(t->host[0], "asking", asking, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, t->time[0] && t->time[1] == t->time[0] && t->time[2] == t->time[0]);
    CHECK(t, t->time[3] && t->time[3] != t->time[0] && t->time[4] && t->time[4] != t->time[0] && t->time[4] != t->time[3]);
    return scene_end(t);
}

/* ---- interfaces that are down, or have no carrier ---- */

static void downs_main(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    sim_nic *eth1 = nic_named(t->host[0], "eth1"), *m2_eth1 = nic_named(t->host[1], "eth1");
    sim_nic *m3_eth1 = nic_named(t->host[2], "eth1");
    gci_addr to;
    sim_sleep(p, MS);
    sim_nic_down(m3_eth1);      /* its IPv4 address lives on, and is answered for by eth0 */
    travel(t, sys, &(trip){ "m1", "10.1.0.33", NULL, NULL, 0, "m3 saw 10.1.0.1", "eth0>eth0 eth0>eth0" });
    travel(t, sys, &(trip){ "m1", "2001:db8:1::33", NULL, NULL, -EHOSTUNREACH, NULL, NULL });
    sim_nic_up(m3_eth1);
    travel(t, sys, &(trip){ "m1", "2001:db8:1::33", NULL, NULL, 0, "m3 saw 2001:db8:1::1", "eth0>eth1 eth0>eth0" });
    sim_nic_carrier(m3_eth1, false);
    travel(t, sys, &(trip){ "m1", "10.1.0.33", NULL, NULL, 0, "m3 saw 10.1.0.1", "eth0>eth0 eth0>eth0" });
    travel(t, sys, &(trip){ "m1", "2001:db8:1::33", NULL, NULL, -EHOSTUNREACH, NULL, NULL });
    sim_nic_carrier(m2_eth1, false);
    travel(t, sys, &(trip){ "m1", "10.2.0.2", NULL, NULL, -EHOSTUNREACH, NULL, NULL });
    sim_nic_carrier(m2_eth1, true);
    sim_nic_carrier(eth1, false);
    (void)gci_addr_parse("10.2.0.2", &to);
    CHECK(t, sys->route(sys, &to, 0).kind == GCI_ROUTE_NONE);
    travel(t, sys, &(trip){ "m1", "10.2.0.2", NULL, NULL, -EHOSTUNREACH, NULL, NULL });
    sim_nic_carrier(eth1, true);
    travel(t, sys, &(trip){ "m1", "10.2.0.2", NULL, NULL, 0, "m2 saw 10.2.0.1", "eth1>eth1 eth1>eth1" });
    sim_nic_address(eth1, "fd00::1/64", 0);
    travel(t, sys, &(trip){ "m1", "2001:db8:1::2", "fd00::1", NULL, 0, "m2 saw fd00::1", "eth0>eth0 eth0>eth1" });
    sim_nic_down(eth1);         /* now the router leads there */
    travel(t, sys, &(trip){ "m1", "2001:db8:1::2", "fd00::1", NULL, -EADDRNOTAVAIL, NULL, NULL });
    CHECK(t, sys->route(sys, &to, 0).kind == GCI_ROUTE_DEFAULT && sys->route(sys, &to, 3).kind == GCI_ROUTE_NONE);
    travel(t, sys, &(trip){ "m1", "10.2.0.2", NULL, NULL, 0, "m2 saw 10.1.0.1", "eth0>eth1 eth0>eth0" });
    travel(t, sys, &(trip){ "m1", "10.2.0.2", "10.2.0.1", NULL, -ETIMEDOUT, NULL, NULL });     /* answers find nobody */
    t->count = 0;
}

static int scenario_downs(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_of_nics(seed, bug);
    t->count = 1;
    sim_spawn(t->host[1], "server", trip_server, t);
    sim_spawn(t->host[2], "server", trip_server, t);
    sim_spawn(t->host[0], "main", downs_main, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    return scene_end(t);
}

/* ---- a NIC that falls silent in mid-transfer, beside another ---- */

enum { STRIPE = 1000000 };      /* 80 ms of a NIC */

static void stripe_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t bytes[2][STRIPE];
    int second = p == t->proc[1], listener = listen_on(sys, (uint16_t)(PORT + second)), fd = accept_one(sys, listener);
    uint8_t *buf = bytes[second];
    CHECK(t, recv_all(sys, fd, buf, STRIPE) == STRIPE);
    t->time[second] = sys->now(sys);
    for (size_t i = 0; i < STRIPE; i++) {
        if (buf[i] != pattern((uint64_t)second, i)) {
            wrong_at(t, __LINE__, "a byte is wrong");
            break;
        }
    }
    CHECK(t, recv_all(sys, fd, buf, 1) == 0);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void stripe_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t bytes[2][STRIPE];
    int second = p == t->proc[3], code, fd = connect_to(sys, second ? "10.2.0.2" : "10.1.0.2", (uint16_t)(PORT + second), &code);
    uint8_t *buf = bytes[second];
    for (size_t i = 0; i < STRIPE; i++) {
        buf[i] = pattern((uint64_t)second, i);
    }
    sys->tune(sys, fd, GCI_TUNE_DATA, 30 * GCI_SECOND);
    CHECK(t, code == 0);
    size_t at = 0;
    for (int64_t left; at < STRIPE && (left = 2 * GCI_SECOND - sys->now(sys)) > 0;) {
        struct iovec v = { buf + at, STRIPE - at };
        ssize_t n = sys->send(sys, fd, &v, 1);
        at += n > 0 ? (size_t)n : 0;
        (void)wait_for(sys, fd, GCI_WRITE, left);
    }
    sim_sleep(p, 2 * GCI_SECOND - sys->now(sys));
    t->time[2 + second] = sys->silence(sys, fd);
    CHECK(t, send_all(sys, fd, buf + at, STRIPE - at) == (ssize_t)(STRIPE - at));
    sim_sleep(p, 20 * GCI_SECOND - sys->now(sys));
    CHECK(t, sys->silence(sys, fd) == 0);
    sys->close(sys, fd);
}

enum { CUT_NOTHING, CUT_SENDER, CUT_RECEIVER, CUT_DOWN, CUT_CARRIER, CUTS };

static void go_down(void *nic, void *unused) { (void)unused; sim_nic_down(nic); }
static void go_up(void *nic, void *unused) { (void)unused; sim_nic_up(nic); }
static void carrier_off(void *nic, void *unused) { (void)unused; sim_nic_carrier(nic, false); }
static void carrier_on(void *nic, void *unused) { (void)unused; sim_nic_carrier(nic, true); }

static int stripe(uint64_t seed, enum sim_planted bug, int cut)
{
    scene *t = scene_of_nics(seed, bug);
    sim_nic *nic = nic_named(t->host[cut == CUT_RECEIVER], "eth1");
    sim_calm(t->s);
    for (int i = 0; i < 4; i++) {
        t->proc[i] = sim_spawn(t->host[i < 2], i < 2 ? "server" : "client", i < 2 ? stripe_server : stripe_client, t);
    }
    if (cut == CUT_SENDER || cut == CUT_RECEIVER) {
        sim_nic_cut_at(nic, 40 * MS);
        sim_nic_mend_at(nic, 5 * GCI_SECOND);
    } else if (cut) {
        sim_at(t->s, 40 * MS, cut == CUT_DOWN ? go_down : carrier_off, nic, NULL);
        sim_at(t->s, 5 * GCI_SECOND, cut == CUT_DOWN ? go_up : carrier_on, nic, NULL);
    }
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, NEAR(t->time[0], 80 * MS, MS) && t->time[2] == 0);             /* each NIC has its own rate and its own fate */
    CHECK(t, cut ? t->time[1] > 5 * GCI_SECOND && t->time[1] < 12 * GCI_SECOND : NEAR(t->time[1], 86 * MS, MS));
    CHECK(t, cut ? NEAR(t->time[3], 1960 * MS, 5 * MS) : t->time[3] == 0);
    if (t->loud && t->wrong) {
        fprintf(stderr, "    cut %d: done %lld %lld us, silent for %lld %lld us\n", cut, (long long)t->time[0] / 1000,
                (long long)t->time[1] / 1000, (long long)t->time[2] / 1000, (long long)t->time[3] / 1000);
    }
    return scene_end(t);
}

static int scenario_cut_nic(uint64_t seed, enum sim_planted bug)
{
    int wrong = 0;
    for (int cut = 0; cut < CUTS; cut++) {
        wrong += stripe(seed, bug, cut);
    }
    return wrong;
}

/* ---- every SYN is told of ---- */

typedef struct syn_log { scene *t; char text[1024]; } syn_log;

static void log_syn(void *user, sim_host *from, sim_nic *nic, const gci_addr *to)
{
    syn_log *log = user;
    size_t n = strlen(log->text);
    char address[GCI_ADDR_TEXT];
    snprintf(log->text + n, sizeof log->text - n, "%s %s %s\n", sim_host_name(from), nic ? sim_nic_name(nic) : "lo",
             gci_addr_text(to, address));
}

static int syn_child(void *user, sim_proc *by, char *const argv[], sim_host **from, gci_addr *to)
{
    (void)by;
    *from = host_named(((syn_log *)user)->t, argv[0]);
    (void)gci_addr_parse(argv[1], to);
    to->port = PORT;
    return 0;
}

static void syn_client(sim_proc *p, void *arg)
{
    static const char *const all[] = {
        "10.1.0.2", "10.2.0.2", "172.17.0.1", "10.1.0.99", "10.77.0.1", "fe80::2%3", "fe80::2", "::1" };
    static char *const child[] = { "m2", "192.0.2.1", NULL };
    scene *t = ((syn_log *)arg)->t;
    gci_sys *sys = sim_sys(p);
    for (size_t i = 0; i < GCI_COUNT(all); i++) {
        int code, fd = connect_to(sys, all[i], PORT, &code);
        CHECK(t, code != 0);
        if (fd >= 0) {
            sys->close(sys, fd);
        }
    }
    int fd = sys->spawn(sys, child), code;
    char byte;
    CHECK(t, fd >= 0 && recv_all(sys, fd, &byte, 1) == 0);
    sys->close(sys, fd);
    fd = connect_to(sys, "10.1.0.2", PORT, &code);
    sys->close(sys, fd);
}

static int scenario_syns(uint64_t seed, enum sim_planted bug)
{
    static const char want[] =
        "m1 eth0 10.1.0.2:5000\n" "m1 eth1 10.2.0.2:5000\n" "m1 lo 172.17.0.1:5000\n" "m1 eth0 10.1.0.99:5000\n"
        "m1 eth0 10.77.0.1:5000\n" "m1 eth0 10.77.0.1:5000\n" "m1 eth0 10.77.0.1:5000\n" "m1 eth1 [fe80::2%3]:5000\n"
        "m1 lo [::1]:5000\n" "m2 eth0 192.0.2.1:5000\n" "m1 eth0 10.1.0.2:5000\n";
    scene *t = scene_of_nics(seed, bug);
    syn_log log = { t, "" };
    sim_on_syn(t->s, log_syn, &log);
    sim_on_spawn(t->s, syn_child, &log);
    sim_spawn(t->host[0], "client", syn_client, &log);
    CHECK(t, sim_run(t->s) == SIM_OK);
    CHECK(t, strcmp(log.text, want) == 0);
    if (t->loud && t->wrong) {
        fprintf(stderr, "%s", log.text);
    }
    return scene_end(t);
}

/* ---- threads, monitors, wakers ---- */

static void counting_thread(void *arg)
{
    scene *t = arg;
    gci_sys *sys = t->sys;
    for (int i = 0; i < 200; i++) {
        sys->enter(sys, t->monitor);
        int seen = t->count;
        (void)sys->now(sys);        /* a point where another context may run */
        t->count = seen + 1;
        sys->notify(sys, t->monitor);
        sys->leave(sys, t->monitor);
    }
}

static void waking_thread(void *arg)
{
    scene *t = arg;
    gci_sys *sys = t->sys;
    for (int i = 0; i < 20; i++) {
        sim_sleep(t->proc[0], MS);
        sys->wake(sys, t->code[0]);
    }
}

static void threads_main(sim_proc *p, void *arg)
{
    enum { THREADS = 3, EACH = 200 };
    scene *t = arg;
    gci_sys *sys = t->sys = sim_sys(p);
    gci_thread *thread[THREADS], *waking;
    CHECK(t, sys->monitor(sys, &t->monitor) == 0);
    for (int i = 0; i < THREADS; i++) {
        CHECK(t, sys->thread(sys, &thread[i], counting_thread, t) == 0);
    }
    sys->enter(sys, t->monitor);
    while (t->count < THREADS * EACH) {
        int64_t before = sys->now(sys);
        sys->await(sys, t->monitor, GCI_SECOND);
        if (sys->now(sys) - before >= GCI_SECOND) {
            wrong_at(t, __LINE__, "woken in time, every increment counted");
            break;
        }
    }
    sys->leave(sys, t->monitor);
    for (int i = 0; i < THREADS; i++) {
        sys->join(sys, thread[i]);
    }
    t->code[0] = sys->waker(sys);
    int inner = sys->poller(sys), outer = sys->poller(sys), woken = 0;
    gci_event e;
    sys->watch(sys, inner, t->code[0], GCI_READ, 7);
    sys->watch(sys, outer, inner, GCI_READ, 8);
    CHECK(t, sys->thread(sys, &waking, waking_thread, t) == 0);
    while (woken < 20) {
        int64_t before = sys->now(sys);
        if (sys->wait(sys, outer, &e, 1, GCI_SECOND)) {
            CHECK(t, e.tag == 8 && sys->wait(sys, inner, &e, 1, 0) == 1 && e.tag == 7);
            sys->rest(sys, t->code[0]);
            woken++;
        } else if (sys->now(sys) - before >= GCI_SECOND) {
            wrong_at(t, __LINE__, "every wake seen");
            break;
        }
    }
    sys->join(sys, waking);
    sys->monitor_free(sys, t->monitor);
    sys->close(sys, outer);
    sys->close(sys, inner);
    sys->close(sys, t->code[0]);
}

static int scenario_threads(uint64_t seed, enum sim_planted bug)
{
    scene *t = scene_new(seed, bug);
    t->proc[0] = sim_spawn(t->host[0], "threads", threads_main, t);
    CHECK(t, sim_run(t->s) == SIM_OK);
    sim_leftovers left = sim_proc_leftovers(t->proc[0]);
    CHECK(t, !left.blocks && !left.fds && !left.monitors && !left.threads);
    return scene_end(t);
}

/* ---- the scenarios, each with nothing wrong, and each planted bug found by one of them ---- */

typedef int scenario(uint64_t seed, enum sim_planted);
static const struct { const char *name; scenario *run; } scenarios[] = {
    { "streams", scenario_streams }, { "times", scenario_times }, { "sharing", scenario_sharing }, { "wide", scenario_wide_sharing }, { "polling", scenario_polling },
    { "window", scenario_window },
    { "ends", scenario_ends }, { "reset", scenario_reset }, { "refused", scenario_refused }, { "near", scenario_near }, { "silence", scenario_silence },
    { "late", scenario_late }, { "cut", scenario_cut }, { "one way", scenario_one_way }, { "one way silence", scenario_one_way_silence }, { "nat", scenario_nat },
    { "rules", scenario_rules }, { "forget", scenario_forget }, { "aimed", scenario_aimed }, { "children", scenario_children },
    { "routes", scenario_routes }, { "collisions", scenario_collisions }, { "detour", scenario_detour },
    { "asking", scenario_asking }, { "downs", scenario_downs }, { "cut NIC", scenario_cut_nic }, { "SYNs", scenario_syns },
    { "threads", scenario_threads } };

static uint64_t first_seed(void)
{
    const char *given = getenv("GCT_SEED");
    return given ? strtoull(given, NULL, 0) : 1;
}

static void test_scenarios(void **state)
{
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(scenarios); i++) {
        for (uint64_t seed = first_seed(); seed < first_seed() + SEEDS; seed++) {
            if (scenarios[i].run(seed, SIM_PLANT_NONE)) {
                fail_msg("scenario %s, GCT_SEED=%llu", scenarios[i].name, (unsigned long long)seed);
            }
        }
    }
}

static void test_planted_bugs_are_found(void **state)
{
    static const char *const name[SIM_PLANTS] = {
        "none", "swapped segments", "lost byte", "lost segment", "doubled segment", "flipped bit", "byte of another stream",
        "window ignored", "cut link that passes", "end before the data", "lost end", "silent death", "poller not woken", "no latency",
        "no rate", "NIC not shared", "nobody accepts", "no keepalive", "two in a monitor", "room to write not told",
        "NAT that hides nothing", "NAT without its address", "NAT that remembers", "rules ignored", "answers past a cut",
        "blind middlebox", "no backoff", "child that hangs", "source that routes", "no binding", "bound, and hears all",
        "answers by arrival", "not the longest prefix", "cut NIC that passes", "NIC that cuts its host",
        "down, yet listed", "one gate for all", "SYN again not told" };
    (void)state;
    for (int bug = 1; bug < SIM_PLANTS; bug++) {
        int found = 0;
        char by[256] = "";
        for (size_t i = 0; i < GCI_COUNT(scenarios); i++) {
            if (scenarios[i].run(first_seed(), (enum sim_planted)bug)) {
                found++;
                strncat(by, " ", sizeof by - strlen(by) - 1);
                strncat(by, scenarios[i].name, sizeof by - strlen(by) - 1);
            }
        }
        print_message("    %-24s found by%s\n", name[bug], by);
        if (!found) {
            fail_msg("planted bug not found: %s", name[bug]);
        }
    }
}

static void test_same_seed_same_trace(void **state)
{
    uint64_t a, b, c;
    (void)state;
    assert_int_equal(0, streams(42, SIM_PLANT_NONE, &a));
    assert_int_equal(0, streams(42, SIM_PLANT_NONE, &b));
    assert_int_equal(0, streams(43, SIM_PLANT_NONE, &c));
    assert_true(a == b);
    assert_true(a != c);
}

/* ---- verdicts ---- */

static void lock_two(void *arg)
{
    scene *t = arg;
    gci_sys *sys = t->sys;
    sys->enter(sys, t->monitor);
    gci_thread *own;
    sys->thread(sys, &own, counting_thread, t);     /* waits for the monitor that this one keeps */
    sys->join(sys, own);
}

static void deadlocked(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = t->sys = sim_sys(p);
    gci_thread *other;
    gci_event e;
    int poller = sys->poller(sys), listener = listen_on(sys, PORT);
    sys->monitor(sys, &t->monitor);
    sys->thread(sys, &other, lock_two, t);
    sys->watch(sys, poller, listener, GCI_READ, 1);
    for (;;) {
        sys->wait(sys, poller, &e, 1, GCI_FOREVER);
    }
}

static void test_deadlock_is_reported(void **state)
{
    (void)state;
    scene *t = scene_new(first_seed(), SIM_PLANT_NONE);
    t->loud = false;
    char *text = NULL;
    size_t bytes = 0;
    FILE *report = open_memstream(&text, &bytes);
    sim_tune(t->s)->report = report;
    sim_spawn(t->host[0], "rank 0", deadlocked, t);
    assert_int_equal(SIM_DEADLOCK, sim_run(t->s));
    fclose(report);
    assert_non_null(strstr(text, "rank 0 on a1"));
    assert_non_null(strstr(text, "waits in poller 3"));
    assert_non_null(strstr(text, "fd 4 for r: socket 0 listening, 0.0.0.0:5000"));
    assert_non_null(strstr(text, "enters monitor"));
    assert_non_null(strstr(text, "joins thread"));
    free(text);
    sim_tune(t->s)->report = NULL;
    assert_int_equal(1, scene_end(t));
}

/* Looks now and then whether it can go on, for ever. */
static void looking(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = t->sys = sim_sys(p);
    gci_event e;
    int poller = sys->poller(sys), listener = listen_on(sys, PORT);
    sys->watch(sys, poller, listener, GCI_READ, 1);
    for (int i = 0; i < t->count || t->count == 0; i++) {
        sys->wait(sys, poller, &e, 1, GCI_SECOND);
    }
}

/* So it is a deadlock, but not as long as somebody computes. */
static void computing(sim_proc *p, void *arg)
{
    (void)arg;
    sim_sleep(p, 1000 * GCI_SECOND);
}

static void test_looking_is_waiting(void **state)
{
    (void)state;
    scene *t = scene_new(first_seed(), SIM_PLANT_NONE);
    t->loud = false;
    sim_tune(t->s)->report = NULL;
    sim_tune(t->s)->time_limit = 2000 * GCI_SECOND;
    sim_spawn(t->host[0], "looking", looking, t);
    sim_spawn(t->host[1], "computing", computing, t);
    assert_int_equal(SIM_DEADLOCK, sim_run(t->s));
    assert_in_range(sim_now(t->s), 1290 * GCI_SECOND, 1310 * GCI_SECOND);
    assert_int_equal(1, scene_end(t));
    t = scene_new(first_seed(), SIM_PLANT_NONE);
    t->count = 200;                 /* not for ever */
    sim_spawn(t->host[0], "looking", looking, t);
    assert_int_equal(0, scene_end(t));
}

/* What the kernel says of a connection: idle, acknowledged, full because the other end is stopped, and forgotten by a NAT. */
static void silence_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    static uint8_t big[4096];
    struct iovec v = { big, sizeof big };
    int code = 0, full = connect_to(sys, "198.51.100.1", PORT, &code), idle = connect_to(sys, "198.51.100.1", PORT, &code);
    CHECK(t, code == 0);
    sys->tune(sys, full, GCI_TUNE_DATA, 30 * GCI_SECOND);
    sys->tune(sys, idle, GCI_TUNE_CONTROL, 30 * GCI_SECOND);
    sim_sleep(p, GCI_SECOND);
    CHECK(t, sys->silence(sys, full) == 0 && sys->silence(sys, idle) == 0);
    sim_stop_proc(t->proc[0]);
    CHECK(t, send_all(sys, full, big, 1) == 1);
    CHECK(t, sys->silence(sys, full) > 0);          /* it is on its way */
    sim_sleep(p, GCI_SECOND);
    CHECK(t, sys->silence(sys, full) == 0);
    for (int64_t until = sys->now(sys) + 10 * GCI_SECOND; sys->now(sys) < until;) {
        (void)sys->send(sys, full, &v, 1);
        sim_sleep(p, 10 * MS);
    }
    CHECK(t, sys->silence(sys, full) == 0);
    CHECK(t, sim_nat_forget(sim_site_of(sim_proc_host(p))) == 2);
    sim_sleep(p, 14 * GCI_SECOND);
    CHECK(t, NEAR(sys->silence(sys, full), 14 * GCI_SECOND, GCI_SECOND / 10) && sys->silence(sys, idle) == 0);
    sim_sleep(p, 2 * GCI_SECOND);                   /* now it has been probed */
    CHECK(t, NEAR(sys->silence(sys, idle), 16 * GCI_SECOND, GCI_SECOND / 10));
    sys->close(sys, full);
    sys->close(sys, idle);
    sim_continue_proc(t->proc[0]);
}

static void silence_server(sim_proc *p, void *arg)
{
    gci_sys *sys = sim_sys(p);
    int listener = listen_on(sys, PORT), fd[2] = { accept_one(sys, listener), accept_one(sys, listener) };
    (void)arg;
    sim_sleep(p, 30 * GCI_SECOND);
    sys->close(sys, fd[0]);
    sys->close(sys, fd[1]);
    sys->close(sys, listener);
}

static void test_silence(void **state)
{
    (void)state;
    scene *t = scene_of_nats(first_seed(), SIM_PLANT_NONE);
    t->proc[0] = sim_spawn(host_named(t, "p1"), "server", silence_server, t);
    t->proc[1] = sim_spawn(host_named(t, "x1"), "client", silence_client, t);
    assert_int_equal(0, scene_end(t));
}

static void spinning(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int poller = sys->poller(sys);
    gci_event e;
    for (;;) {
        switch (t->count) {
        case 0:  sys->yield(sys); break;
        case 1:  sys->wait(sys, poller, &e, 1, 0); break;
        default: (void)sys->now(sys); break;
        }
    }
}

static void test_spinning_costs_time(void **state)
{
    (void)state;
    for (int kind = 0; kind < 3; kind++) {
        scene *t = scene_new(first_seed(), SIM_PLANT_NONE);
        t->count = kind;
        t->loud = false;
        sim_tune(t->s)->report = NULL;
        sim_tune(t->s)->time_limit = GCI_SECOND;
        sim_spawn(t->host[0], "spinning", spinning, t);
        assert_int_equal(SIM_TIME_LIMIT, sim_run(t->s));
        assert_int_equal(1, scene_end(t));
    }
}

static void misuser(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_monitor *m;
    struct iovec v = { &m, 1 };
    sys->monitor(sys, &m);
    int poller = sys->poller(sys);
    switch (t->count) {
    case 0: sys->close(sys, 99); break;
    case 1: sys->close(sys, poller); sys->close(sys, poller); break;
    case 2: sys->leave(sys, m); break;
    case 3: sys->enter(sys, m); sys->enter(sys, m); break;
    case 4: sys->recv(sys, poller, &v, 1); break;
    case 5: sys->notify(sys, m); break;
    case 6: sys->enter(sys, m); sys->monitor_free(sys, m); break;
    case 7: sys->monitor_free(sys, m); sys->monitor_free(sys, m); break;
    case 8: sys->monitor_free(sys, m); sys->enter(sys, m); break;
    default: sys->watch(sys, poller, 50, GCI_READ, 0); break;
    }
}

static void test_misuse_is_reported(void **state)
{
    (void)state;
    for (int kind = 0; kind < 10; kind++) {
        scene *t = scene_new(first_seed(), SIM_PLANT_NONE);
        t->count = kind;
        t->loud = false;
        sim_tune(t->s)->report = NULL;
        sim_spawn(t->host[0], "misuser", misuser, t);
        assert_int_equal(SIM_MISUSE, sim_run(t->s));
        assert_int_equal(1, scene_end(t));
    }
}

/* ---- the rest ---- */

static void polite_server(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    gci_addr at = { 0 };
    int listener = sys->adopt(sys, t->code[0], &at), code;
    CHECK(t, listener == t->code[0] && at.port == PORT && sys->adopt(sys, 77, &at) == -EBADF);
    gci_addr again = { .family = 4, .port = PORT }, chosen = { .family = 6 }, strange = { .family = 4, .ip = { 9, 9, 9, 9 } };
    CHECK(t, sys->listen(sys, &again) == -EADDRINUSE);
    CHECK(t, sys->listen(sys, &strange) == -EADDRNOTAVAIL);
    int second = sys->listen(sys, &chosen);
    CHECK(t, second >= 0 && chosen.port != 0);
    int own = connect_to(sys, "localhost", chosen.port, &code);     /* :: takes IPv4 */
    CHECK(t, code == 0);
    gci_addr from;
    while (wait_for(sys, second, GCI_READ, GCI_FOREVER) && (code = sys->accept(sys, second, &from)) == -EAGAIN) {}
    CHECK(t, code >= 0 && gci_addr_is_loopback(&from));
    sys->close(sys, code);
    sys->close(sys, own);
    sys->close(sys, second);
    code = accept_one(sys, listener);
    uint8_t byte;
    CHECK(t, recv_all(sys, code, &byte, 1) == 0);
    sys->close(sys, code);
    sys->close(sys, listener);
}

static void polite_client(sim_proc *p, void *arg)
{
    scene *t = arg;
    gci_sys *sys = sim_sys(p);
    int code, fd = connect_to(sys, "fd01::1", PORT, &code), opened = 0, got[8];
    CHECK(t, code == 0);
    sys->close(sys, fd);
    gci_ifaddr i[8];
    char id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    CHECK(t, sys->interfaces(sys, i, 8) == 4 && i[0].flags == GCI_IF_LOOPBACK);
    CHECK(t, i[1].speed == 1000 && i[1].index == i[2].index);
    CHECK(t, strcmp(i[3].name, "docker0") == 0 && i[3].prefix == 16 && sys->interfaces(sys, i, 1) == 4);
    CHECK(t, sys->host(sys, id, name) == 0 && strcmp(id, "sim-a2") == 0 && strcmp(name, "a2") == 0);
    fd = connect_to(sys, "172.17.0.1", PORT, &code);        /* its own docker0, not the other's */
    CHECK(t, code == -ECONNREFUSED);
    sys->close(sys, fd);
    sim_tune(t->s)->fd_limit = 6;
    while (opened < 8 && (got[opened] = sys->poller(sys)) >= 0) {
        opened++;
    }
    CHECK(t, opened == 3 && got[opened] == -EMFILE);
    while (opened--) {
        sys->close(sys, got[opened]);
    }
    void *block = sim_alloc(p, NULL, 10);
    sim_alloc_fail(p, 2);
    block = sim_alloc(p, block, 100);
    CHECK(t, block && !sim_alloc(p, NULL, 1) && !sim_alloc(p, block, 1000));
    sim_alloc_fail(p, 0);
    CHECK(t, sim_alloc(p, NULL, 1) != NULL);                /* the second leak */
    (void)sys->poller(sys);
}

static void test_machine(void **state)
{
    (void)state;
    for (uint64_t seed = first_seed(); seed < first_seed() + SEEDS; seed++) {
        scene *t = scene_new(seed, SIM_PLANT_NONE);
        for (int i = 0; i < 2; i++) {
            sim_nic_address(sim_host_nic(t->host[i], 0), i ? "fd01::2/64" : "fd01::1/64", 0);
            sim_nic_new(t->host[i], "docker0", sim_net_new(t->s, i ? "docker of a2" : "docker of a1", 0), "172.17.0.1/16", 0);
        }
        gci_addr at = { .family = 6, .port = PORT };
        t->proc[0] = sim_spawn(t->host[0], "server", polite_server, t);
        t->code[0] = sim_prelisten(t->proc[0], &at);
        t->proc[1] = sim_spawn(t->host[1], "client", polite_client, t);
        CHECK(t, sim_run(t->s) == SIM_OK);
        sim_leftovers left = sim_proc_leftovers(t->proc[1]);
        CHECK(t, left.blocks == 2 && left.bytes == 101 && left.fds == 1);
        left = sim_proc_leftovers(t->proc[0]);
        CHECK(t, !left.blocks && !left.fds);
        assert_int_equal(0, scene_end(t));
    }
}

/* 1,000 processes of two contexts: each talks to the next one in a ring. */
enum { CROWD = 1000, CROWD_SITES = 4 };

typedef struct crowd { sim_proc *p; int number, got; } crowd;

static void crowd_thread(void *arg)
{
    crowd *c = arg;
    gci_sys *sys = sim_sys(c->p);
    char name[32];
    int next = (c->number + 1) % CROWD, code;
    snprintf(name, sizeof name, "%c%d", 'a' + next / (CROWD / CROWD_SITES), next % (CROWD / CROWD_SITES) + 1);
    int fd = connect_to(sys, name, PORT, &code);
    if (code == 0) {
        (void)send_all(sys, fd, &c->number, sizeof c->number);
    }
    sys->close(sys, fd);
}

static void crowd_main(sim_proc *p, void *arg)
{
    crowd *c = arg;
    gci_sys *sys = sim_sys(p);
    gci_thread *thread;
    int listener = listen_on(sys, PORT);
    c->p = p;
    sim_sleep(p, 10 * MS);
    sys->thread(sys, &thread, crowd_thread, c);
    int fd = accept_one(sys, listener);
    (void)recv_all(sys, fd, &c->got, sizeof c->got);
    sys->join(sys, thread);
    sys->close(sys, fd);
    sys->close(sys, listener);
}

static void test_crowd(void **state)
{
    static const int hosts[CROWD_SITES] = { CROWD / CROWD_SITES, CROWD / CROWD_SITES, CROWD / CROWD_SITES, CROWD / CROWD_SITES };
    (void)state;
    sim *s = sim_new(first_seed());
    sim_host **host = sim_grid(s, CROWD_SITES, hosts, 50000, 125000000, 10 * MS, 1000000);
    crowd *c = test_calloc(CROWD, sizeof *c);
    for (int i = 0; i < CROWD; i++) {
        c[i].number = i;
        sim_spawn(host[i], "member", crowd_main, &c[i]);
    }
    assert_int_equal(SIM_OK, sim_run(s));
    for (int i = 0; i < CROWD; i++) {
        assert_int_equal((i + CROWD - 1) % CROWD, c[i].got);
    }
    assert_true(sim_wan_bytes(sim_site_of(host[0]), sim_site_of(host[CROWD / CROWD_SITES])) == sizeof(int));
    sim_free(s);
    free(host);
    test_free(c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_scenarios), cmocka_unit_test(test_planted_bugs_are_found), cmocka_unit_test(test_same_seed_same_trace),
        cmocka_unit_test(test_deadlock_is_reported), cmocka_unit_test(test_looking_is_waiting), cmocka_unit_test(test_silence),
        cmocka_unit_test(test_spinning_costs_time), cmocka_unit_test(test_misuse_is_reported),
        cmocka_unit_test(test_machine), cmocka_unit_test(test_crowd) };
    print_message("GCT_SEED=%llu\n", (unsigned long long)first_seed());
    return cmocka_run_group_tests_name("simnet", tests, NULL, NULL);
}
