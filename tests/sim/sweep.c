/* sweep.c: makes calls fail; sweep.h tells how.
 * SPDX-License-Identifier: MIT
 */
#include "simnet_int.h"
#include "sweep.h"

#include <errno.h>
#include <execinfo.h>
#include <stdlib.h>

enum { ONE_BYTE = 1, ABSENT = 2, RESET = 3 };       /* of sweep_way.error: what no errno says */

/* How calls fail. Names as Linux has them: what sys.c would hand on. */
static const sweep_way alloc_ways[] = { { "no memory", 1, false, true } };
static const sweep_way random_ways[] = { { "EIO", -EIO, false, true } };
static const sweep_way host_ways[] = { { "EMFILE", -EMFILE, false, true } };
static const sweep_way route_ways[] = { { "unknown", ABSENT, true, true } };
static const sweep_way resolve_ways[] = { { "EAGAIN", -EAGAIN, false, true }, { "ENOMEM", -ENOMEM, false, true } };
static const sweep_way open_ways[] = { { "EMFILE", -EMFILE, false, true } };
static const sweep_way interfaces_ways[] = { { "EMFILE", -EMFILE, false, true }, { "ENOBUFS", -ENOBUFS, false, true } };
static const sweep_way listen_ways[] = { { "EMFILE", -EMFILE, false, true }, { "EADDRINUSE", -EADDRINUSE, false, true },
                                         { "ENOBUFS", -ENOBUFS, false, true } };
static const sweep_way accept_ways[] = { { "EAGAIN", -EAGAIN, true, false }, { "EMFILE", -EMFILE, false, true },
                                         { "ENOBUFS", -ENOBUFS, false, true } };
static const sweep_way connect_ways[] = { { "EMFILE", -EMFILE, false, true }, { "ENOBUFS", -ENOBUFS, false, true },
                                          { "ECONNREFUSED", -ECONNREFUSED, false, true },
                                          { "EADDRNOTAVAIL", -EADDRNOTAVAIL, false, true } };
static const sweep_way connected_ways[] = { { "ECONNREFUSED", -ECONNREFUSED, false, true }, { "ETIMEDOUT", -ETIMEDOUT, false, true } };
static const sweep_way tune_ways[] = { { "ENOBUFS", -ENOBUFS, false, true } };
static const sweep_way stream_ways[] = { { "one byte", ONE_BYTE, true, false }, { "EAGAIN", -EAGAIN, true, false },
                                         { "ECONNRESET", -ECONNRESET, false, true }, { "reset", RESET, false, true },
                                         { "ENOBUFS", -ENOBUFS, false, true } };
static const sweep_way watch_ways[] = { { "ENOMEM", -ENOMEM, false, true } };
static const sweep_way wait_ways[] = { { "EINTR", ABSENT, true, false } };
static const sweep_way thread_ways[] = { { "EAGAIN", -EAGAIN, false, true } };

static const struct { const char *name; const sweep_way *ways; int count; } calls[SWEEP_CALLS] = {
#define CALL(name, ways) { name, ways, GCI_COUNT(ways) }
    [SWEEP_ALLOC] = CALL("alloc", alloc_ways), [SWEEP_RANDOM] = CALL("random", random_ways), [SWEEP_HOST] = CALL("host", host_ways),
    [SWEEP_INTERFACES] = CALL("interfaces", interfaces_ways), [SWEEP_ROUTE] = CALL("route", route_ways),
    [SWEEP_RESOLVE] = CALL("resolve", resolve_ways), [SWEEP_LISTEN] = CALL("listen", listen_ways),
    [SWEEP_ACCEPT] = CALL("accept", accept_ways), [SWEEP_CONNECT] = CALL("connect", connect_ways),
    [SWEEP_CONNECTED] = CALL("connected", connected_ways), [SWEEP_TUNE] = CALL("tune", tune_ways), [SWEEP_SEND] = CALL("send", stream_ways),
    [SWEEP_RECV] = CALL("recv", stream_ways), [SWEEP_POLLER] = CALL("poller", open_ways), [SWEEP_WATCH] = CALL("watch", watch_ways),
    [SWEEP_WAIT] = CALL("wait", wait_ways), [SWEEP_WAKER] = CALL("waker", open_ways), [SWEEP_TIMER] = CALL("timer", open_ways),
    [SWEEP_SPAWN] = CALL("spawn", open_ways), [SWEEP_THREAD] = CALL("thread", thread_ways), [SWEEP_MONITOR] = CALL("monitor", watch_ways),
};

/* The job under way. */
static struct {
    sweep_fault fault;
    bool        record, met, libc;
    long        count[SWEEP_RANKS][SWEEP_CALLS];
    gci_sys     real;                   /* the simulated system's functions, the same for all processes */
    sweep_hit  *hit;
    size_t      hits, room;
    sim_proc   *proc[SWEEP_RANKS];
} now;

const sweep_way *sweep_ways(enum sweep_call call, int *ways, const char **name)
{
    *ways = calls[call].count;
    *name = calls[call].name;
    return calls[call].ways;
}

/* from: where the table's function, or the allocator, was called. The library's own allocator calls the latter. */
static void sweep_note(int rank, enum sweep_call call, long nth, const void *from)
{
    enum { OURS = 5 };                  /* functions of this file, at most, and the library's allocator */
    void *frame[OURS + SWEEP_FRAMES + 1] = { NULL };
    int frames = backtrace(frame, OURS + SWEEP_FRAMES), first = 0;
    uint64_t path = (uint64_t)call;
    while (first < OURS && frame[first] != from)
        first++;
    first += call == SWEEP_ALLOC;
    for (int i = first; i < frames && i < first + SWEEP_FRAMES; i++) {
        path = (path ^ (uint64_t)(uintptr_t)frame[i]) * UINT64_C(0x9e3779b97f4a7c15);
        path ^= path >> 29;
    }
    if (now.hits == now.room) {
        now.room = now.room ? 2 * now.room : 4096;
        now.hit = realloc(now.hit, now.room * sizeof *now.hit);
        if (!now.hit)
            abort();
    }
    now.hit[now.hits++] = (sweep_hit){ rank, call, nth, path, { frame[first], frame[first + 1] } };
}

/* Where the call that fails first comes from, for addr2line. */
static void sweep_show(void)
{
    extern const char __executable_start[];
    void *frame[24];
    int frames = backtrace(frame, GCI_COUNT(frame));
    fprintf(stderr, "sweep:");
    for (int i = 2; i < frames; i++)
        fprintf(stderr, " %#lx", (unsigned long)((const char *)frame[i] - __executable_start) - 1);
    fputc('\n', stderr);
}

/* The error of this call, 0: none. */
static int sweep_fails_from(enum sweep_call call, const void *from)
{
    int rank = gct_rank();
    if (rank < 0 || rank >= SWEEP_RANKS)
        return 0;
    long nth = ++now.count[rank][call];
    const sweep_fault *f = &now.fault;
    if (now.record)
        sweep_note(rank, call, nth, from);
    if (!f->nth || rank != f->rank || call != f->call || (f->onwards ? nth < f->nth : nth != f->nth))
        return 0;
    int error = calls[call].ways[f->way].error;
    if (!now.met && getenv("SWEEP_TRACE"))
        sweep_show();
    if (!now.met && f->onwards && error == -EMFILE)
        sim_fd_limit(now.proc[rank], -1);           /* others cannot be had either */
    now.met = true;
    return error;
}

#define sweep_fails(call) sweep_fails_from(call, __builtin_return_address(0))

/* ---- the table --------------------------------------------------------------------------------------------------------- */

#define SWEEP(call, real_call) int error = sweep_fails(call); return error ? error : now.real.real_call

static int sweep_random(gci_sys *sys, void *buf, size_t bytes) { SWEEP(SWEEP_RANDOM, random)(sys, buf, bytes); }
static int sweep_host(gci_sys *sys, char id[], char name[]) { SWEEP(SWEEP_HOST, host)(sys, id, name); }
static int sweep_interfaces(gci_sys *sys, gci_ifaddr *out, int max) { SWEEP(SWEEP_INTERFACES, interfaces)(sys, out, max); }
static int sweep_listen(gci_sys *sys, gci_addr *at) { SWEEP(SWEEP_LISTEN, listen)(sys, at); }
static int sweep_accept(gci_sys *sys, int fd, gci_addr *from) { SWEEP(SWEEP_ACCEPT, accept)(sys, fd, from); }
static int sweep_connected(gci_sys *sys, int fd) { SWEEP(SWEEP_CONNECTED, connected)(sys, fd); }
static int sweep_tune(gci_sys *sys, int fd, enum gci_tune how, int64_t timeout) { SWEEP(SWEEP_TUNE, tune)(sys, fd, how, timeout); }
static int sweep_poller(gci_sys *sys) { SWEEP(SWEEP_POLLER, poller)(sys); }
static int sweep_waker(gci_sys *sys) { SWEEP(SWEEP_WAKER, waker)(sys); }
static int sweep_timer(gci_sys *sys) { SWEEP(SWEEP_TIMER, timer)(sys); }
static int sweep_spawn(gci_sys *sys, char *const argv[]) { SWEEP(SWEEP_SPAWN, spawn)(sys, argv); }
static int sweep_monitor(gci_sys *sys, gci_monitor **out) { SWEEP(SWEEP_MONITOR, monitor)(sys, out); }

static int sweep_resolve(gci_sys *sys, const char *name, uint16_t port, gci_addr *out, int max)
{
    SWEEP(SWEEP_RESOLVE, resolve)(sys, name, port, out, max);
}

static int sweep_connect(gci_sys *sys, const gci_addr *to, const gci_addr *source, uint32_t bound)
{
    SWEEP(SWEEP_CONNECT, connect)(sys, to, source, bound);
}

static int sweep_thread(gci_sys *sys, gci_thread **out, void (*run)(void *), void *arg)
{
    SWEEP(SWEEP_THREAD, thread)(sys, out, run, arg);
}

/* Only what adds a descriptor needs memory. */
static int sweep_watch(gci_sys *sys, int poller, int fd, unsigned events, uint64_t tag)
{
    const sim_watch *w = events ? ((sim_proc *)sys)->files[fd]->watches : NULL;
    while (w && w->poller->file.fd != poller) {
        w = w->of_file;
    }
    int error = events && !w ? sweep_fails(SWEEP_WATCH) : 0;
    return error ? error : now.real.watch(sys, poller, fd, events, tag);
}

static gci_route_answer sweep_route(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    gci_route_answer unknown = { .kind = GCI_ROUTE_UNKNOWN };
    return sweep_fails(SWEEP_ROUTE) ? unknown : now.real.route(sys, to, bound);
}

static int sweep_wait(gci_sys *sys, int poller, gci_event *out, int max, int64_t timeout)
{
    return sweep_fails(SWEEP_WAIT) ? 0 : now.real.wait(sys, poller, out, max, timeout);
}

typedef ssize_t sweep_stream_call(gci_sys *, int, const struct iovec *, int);
static ssize_t sweep_stream(gci_sys *sys, sweep_stream_call *real, int error, int fd, const struct iovec *v, int n)
{
    if (error == RESET) {
        (void)sim_reset(sim_current(), fd);
        error = 0;
    }
    if (error != ONE_BYTE)
        return error ? error : real(sys, fd, v, n);
    while (n > 1 && !v->iov_len) {
        v++, n--;
    }
    return real(sys, fd, &(struct iovec){ v->iov_base, v->iov_len > 0 }, 1);
}

static ssize_t sweep_send(gci_sys *sys, int fd, const struct iovec *v, int n)
{
    return sweep_stream(sys, now.real.send, sweep_fails(SWEEP_SEND), fd, v, n);
}

static ssize_t sweep_recv(gci_sys *sys, int fd, const struct iovec *v, int n)
{
    return sweep_stream(sys, now.real.recv, sweep_fails(SWEEP_RECV), fd, v, n);
}

static void *sweep_alloc(void *proc, void *old, size_t bytes)
{
    return bytes && sweep_fails(SWEEP_ALLOC) ? NULL : sim_alloc(proc, old, bytes);
}

bool sweep_libc_fails(const void *from)
{
    bool within = now.libc;
    now.libc = false;                   /* what is called here is not the library */
    bool fails = within && sweep_fails_from(SWEEP_ALLOC, from);
    now.libc = within;
    return fails;
}

void sweep_libc(bool on) { now.libc = on; }

void sweep_options(gc_options *o, int rank)
{
    (void)rank;
    o->alloc = sweep_alloc;             /* its alloc_user is the process */
}

void sweep_arrange(sim *s, sim_proc **procs, int ranks)
{
    (void)s;
    for (int r = 0; r < ranks; r++) {
        gci_sys *t = sim_sys(procs[r]);
        now.proc[r] = procs[r];
        now.real = *t;
        t->random = sweep_random, t->host = sweep_host, t->interfaces = sweep_interfaces, t->route = sweep_route;
        t->resolve = sweep_resolve, t->listen = sweep_listen, t->accept = sweep_accept, t->connect = sweep_connect;
        t->connected = sweep_connected, t->tune = sweep_tune, t->send = sweep_send, t->recv = sweep_recv, t->poller = sweep_poller;
        t->watch = sweep_watch, t->wait = sweep_wait, t->waker = sweep_waker, t->timer = sweep_timer, t->spawn = sweep_spawn;
        t->thread = sweep_thread, t->monitor = sweep_monitor;
    }
}

/* ---- around a job ------------------------------------------------------------------------------------------------------ */

void sweep_begin(const sweep_fault *fault, bool record)
{
    now.fault = *fault;
    now.record = record;
    now.met = false;
    memset(now.count, 0, sizeof now.count);
    now.hits = record ? 0 : now.hits;
}

bool sweep_end(void)
{
    now.record = false;
    return now.met;
}

long sweep_count(enum sweep_call call)
{
    long all = 0;
    for (int r = 0; r < SWEEP_RANKS; r++) {
        all += now.count[r][call];
    }
    return all;
}

const sweep_hit *sweep_hits(size_t *count)
{
    *count = now.hits;
    return now.hit;
}
