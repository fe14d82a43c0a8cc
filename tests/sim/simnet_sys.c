/* simnet_sys.c: what a simulated process sees of its system: clock, threads, monitors, descriptors, pollers, memory.
 * SPDX-License-Identifier: MIT
 *
 * Readiness: a watch stands in its poller's queue from the moment its descriptor may be ready; wait looks, reports those that
 * are (and keeps them: level-triggered), and drops the others. So a poller of 1,000 quiet sockets costs nothing.
 * Monitors have no queues: the few contexts of a process are looked through.
 */
#include "simnet_int.h"

#include <stdarg.h>

enum { SIM_IDLE_CALLS = 64, SIM_STUCK = 32, SIM_FRUITLESS_MAX = 30 };

static sim_ctx *sim_caller(gci_sys *sys)
{
    sim_proc *p = (sim_proc *)sys;
    sim_ctx *c = p->s->current;
    if (!c || c->proc != p) {
        fprintf(stderr, "simnet: the system of %s is called %s%s\n", p->name, c ? "by " : "outside of the simulation",
                c ? c->proc->name : "");
        abort();
    }
    return c;
}

sim_ctx *sim_call(gci_sys *sys)
{
    sim_ctx *c = sim_caller(sys);
    sim *s = c->s;
    if (s->tuning.call_cost) {
        sim_block_on(c, SIM_FOR_TIME, NULL, s->tuning.call_cost);
    }
    if (sim_one_in(s, s->tuning.preempt_in)) {
        if (s->tuning.stall && sim_one_in(s, 2)) {
            sim_block_on(c, SIM_FOR_TIME, NULL, (int64_t)(sim_random(s) % (uint64_t)s->tuning.stall));
        } else if (s->run_count) {
            sim_give_way(c);
        }
    }
    return c;
}

static void sim_spin(sim_ctx *c)
{
    const sim_tuning *t = &c->s->tuning;
    int64_t cost = t->yield_cost << (c->fruitless < SIM_FRUITLESS_MAX ? c->fruitless : SIM_FRUITLESS_MAX);
    c->fruitless++;
    sim_block_on(c, SIM_FOR_SPIN, NULL, cost < t->yield_max ? cost : t->yield_max);
}

/* A loop over a call that finds nothing must not stop time. */
void sim_found_nothing(sim_ctx *c)
{
    if (++c->idle_calls >= SIM_IDLE_CALLS) {
        sim_spin(c);
    }
}

/* ---- clock, chance ---- */

static int64_t sim_sys_now(gci_sys *sys)
{
    sim_ctx *c = sim_call(sys);
    sim_found_nothing(c);
    return c->s->now;
}

static int sim_sys_random(gci_sys *sys, void *buf, size_t bytes)
{
    sim_ctx *c = sim_call(sys);
    for (size_t i = 0; i < bytes; i++) {
        ((uint8_t *)buf)[i] = (uint8_t)(sim_random(c->s) >> 24);
    }
    return 0;
}

static void sim_sys_yield(gci_sys *sys)
{
    sim_spin(sim_call(sys));
}

void sim_sleep(sim_proc *p, int64_t ns)
{
    sim_block_on(sim_call(&p->sys), SIM_FOR_TIME, NULL, ns);
    p->s->moved = p->s->now;
}

/* ---- threads and monitors ---- */

static int sim_sys_thread(gci_sys *sys, gci_thread **out, void (*run)(void *), void *arg)
{
    sim_ctx *c = sim_call(sys), *new = sim_ctx_new(c->proc, run, arg);
    new->thread = true;
    sim_ready(new);
    *out = (gci_thread *)new;
    return 0;
}

static void sim_sys_join(gci_sys *sys, gci_thread *thread)
{
    sim_ctx *c = sim_call(sys), *other = (sim_ctx *)thread;
    if (other->joined) {
        sim_misuse(c->proc, "thread %d is joined twice", other->id);
    }
    while (other->state != SIM_ENDED) {
        sim_block_on(c, SIM_FOR_THREAD, other, GCI_FOREVER);
    }
    other->joined = true;
}

static int sim_sys_monitor(gci_sys *sys, gci_monitor **out)
{
    sim_ctx *c = sim_call(sys);
    struct sim_monitor *m = sim_calloc(1, sizeof *m);
    m->next = c->proc->monitors;
    c->proc->monitors = m;
    *out = (gci_monitor *)m;
    return 0;
}

/* Begins every call on a monitor. */
static struct sim_monitor *sim_monitor_of(sim_ctx *c, gci_monitor *monitor, const char *call)
{
    struct sim_monitor *m = (struct sim_monitor *)monitor;
    if (m->freed) {
        sim_misuse(c->proc, "%s of a monitor that was freed, by context %d", call, c->id);
    }
    return m;
}

static void sim_sys_monitor_free(gci_sys *sys, gci_monitor *monitor)
{
    sim_ctx *c = sim_call(sys);
    struct sim_monitor *m = sim_monitor_of(c, monitor, "monitor_free");
    if (m->inside) {
        sim_misuse(c->proc, "monitor_free while context %d is inside", m->inside->id);
    }
    for (const sim_ctx *o = c->proc->contexts; o; o = o->next) {
        if (o->state == SIM_BLOCKED && o->on == m && (o->why == SIM_FOR_MONITOR || o->why == SIM_FOR_NOTIFY)) {
            sim_misuse(c->proc, "monitor_free while context %d waits for it", o->id);
        }
    }
    m->freed = true;
}

static void sim_monitor_in(sim_ctx *c, struct sim_monitor *m)
{
    if (m->inside == c) {
        sim_misuse(c->proc, "context %d enters a monitor that it is inside of", c->id);
    }
    while (m->inside && c->s->tuning.planted != SIM_PLANT_TWO_INSIDE) {
        sim_block_on(c, SIM_FOR_MONITOR, m, GCI_FOREVER);
    }
    m->inside = c;
}

static void sim_wake(sim_ctx *c, enum sim_why why, const void *on)
{
    for (sim_ctx *o = c->proc->contexts; o; o = o->next) {
        if (o->state == SIM_BLOCKED && o->why == why && o->on == on) {
            sim_ready(o);
        }
    }
}

static void sim_monitor_out(sim_ctx *c, struct sim_monitor *m, const char *call)
{
    if (m->inside != c && c->s->tuning.planted != SIM_PLANT_TWO_INSIDE) {
        sim_misuse(c->proc, "%s by context %d, which is not inside", call, c->id);
    }
    m->inside = NULL;
    sim_wake(c, SIM_FOR_MONITOR, m);
}

static void sim_sys_enter(gci_sys *sys, gci_monitor *m)
{
    sim_ctx *c = sim_call(sys);
    sim_monitor_in(c, sim_monitor_of(c, m, "enter"));
}

static void sim_sys_leave(gci_sys *sys, gci_monitor *m)
{
    sim_ctx *c = sim_caller(sys);
    sim_monitor_out(c, sim_monitor_of(c, m, "leave"), "leave");
    sim_call(sys);              /* after it, so that a switch here lets others in */
}

static void sim_sys_await(gci_sys *sys, gci_monitor *monitor, int64_t timeout)
{
    sim_ctx *c = sim_call(sys);
    struct sim_monitor *m = sim_monitor_of(c, monitor, "await");
    sim_monitor_out(c, m, "await");
    if (!sim_one_in(c->s, c->s->tuning.interrupt_in)) {
        sim_block_on(c, SIM_FOR_NOTIFY, m, timeout > 0 ? timeout : 0);
    }
    sim_monitor_in(c, m);
}

static void sim_sys_notify(gci_sys *sys, gci_monitor *monitor)
{
    sim_ctx *c = sim_call(sys);
    struct sim_monitor *m = sim_monitor_of(c, monitor, "notify");
    if (m->inside != c && c->s->tuning.planted != SIM_PLANT_TWO_INSIDE) {
        sim_misuse(c->proc, "notify by context %d, which is not inside", c->id);
    }
    sim_wake(c, SIM_FOR_NOTIFY, m);
    sim_active(c->proc);
}

/* ---- descriptors ---- */

void sim_fd_limit(sim_proc *p, int limit) { p->fd_limit = limit; }

int sim_fd_next(const sim_proc *p)
{
    enum { FIRST = 3 };         /* as if 0 to 2 were open */
    int fd = FIRST;
    while (fd < p->files_room && p->files[fd]) {
        fd++;
    }
    return fd;
}

int sim_file_open(sim_proc *p, sim_file *f, enum sim_kind kind)
{
    int fd = sim_fd_next(p);
    if (fd >= (p->fd_limit ? p->fd_limit : p->s->tuning.fd_limit)) {
        return -EMFILE;
    }
    if (fd >= p->files_room) {
        int room = fd < 16 ? 32 : 2 * fd;
        sim_file **files = sim_calloc((size_t)room, sizeof *files);
        if (p->files_room) {
            memcpy(files, p->files, (size_t)p->files_room * sizeof(sim_file *));
        }
        free(p->files);
        p->files = files;
        p->files_room = room;
    }
    p->files[fd] = f;
    f->kind = kind;
    f->proc = p;
    f->fd = fd;
    return fd;
}

static int sim_file_add(sim_proc *p, sim_file *f, enum sim_kind kind)
{
    int fd = sim_file_open(p, f, kind);
    if (fd < 0) {
        free(f);
        return fd;
    }
    f->all = p->s->files;
    p->s->files = f;
    return fd;
}

sim_file *sim_file_get(sim_proc *p, int fd, enum sim_kind kind, const char *call)
{
    sim_file *f = fd >= 0 && fd < p->files_room ? p->files[fd] : NULL;
    if (!f || f->kind != kind) {
        sim_misuse(p, "%s of descriptor %d, which is %s", call, fd, f ? "of another kind" : "not open");
        return NULL;            /* outside of contexts only */
    }
    return f;
}

const char *sim_file_text(const sim_file *f, char *text, size_t bytes)
{
    static const char *const state[] = { "listening", "connecting", "not accepted", "up", "failed", "closed" };
    char local[GCI_ADDR_TEXT], remote[GCI_ADDR_TEXT];
    if (f->kind != SIM_SOCKET) {
        snprintf(text, bytes, "%s", f->kind == SIM_POLLER ? "poller" : "waker");
        return text;
    }
    const sim_sock *k = (const sim_sock *)f;
    snprintf(text, bytes, "socket %d %s, %s to %s%s; unread %zu, unsent %zu, unacknowledged %zu, window %zu", k->id, state[k->state],
             gci_addr_text(&k->local, local), k->remote.family ? gci_addr_text(&k->remote, remote) : "nobody",
             k->got_fin ? ", ended" : "", k->peer ? k->peer->out.unread : 0, k->out.unsent, k->out.unacked, k->out.window);
    return text;
}

/* ---- pollers ---- */

static unsigned sim_events(const sim_file *f);

static bool sim_poller_ready(const sim_poller *poller)
{
    for (const sim_watch *w = poller->ready; w; w = w->ready) {
        if (sim_events(w->file) & w->events) {
            return true;
        }
    }
    return false;
}

static unsigned sim_events(const sim_file *f)
{
    switch (f->kind) {
    case SIM_WAKER:  return ((const struct sim_waker *)f)->awake ? GCI_READ : 0;
    case SIM_POLLER: return sim_poller_ready((const sim_poller *)f) ? GCI_READ : 0;
    case SIM_SOCKET: return sim_sock_events((const sim_sock *)f);
    }
    return 0;
}

static void sim_poller_push(sim_watch *w)
{
    sim_poller *poller = w->poller;
    w->queued = true;
    w->ready = NULL;
    w->ready_before = poller->ready_last;
    *(poller->ready_last ? &poller->ready_last->ready : &poller->ready) = w;
    poller->ready_last = w;
}

static void sim_poller_remove(sim_watch *w)
{
    sim_poller *poller = w->poller;
    if (w->queued) {
        *(w->ready_before ? &w->ready_before->ready : &poller->ready) = w->ready;
        *(w->ready ? &w->ready->ready_before : &poller->ready_last) = w->ready_before;
        w->queued = false;
    }
}

/* The nesting of pollers ends: a descriptor is watched by pollers made after it, or else the program loops on a real system too. */
void sim_touch(sim_file *f)
{
    if (f->fd < 0) {
        return;
    }
    unsigned events = sim_events(f);
    for (sim_watch *w = f->watches; w; w = w->of_file) {
        if (!(events & w->events)) {
            continue;
        }
        if (!w->queued) {
            sim_poller_push(w);
        }
        sim_proc *p = f->proc;
        for (sim_ctx *c = p->contexts; c; c = c->next) {
            if (c->state == SIM_BLOCKED && c->why == SIM_FOR_POLLER && c->on == w->poller && p->s->tuning.planted != SIM_PLANT_NO_WAKE) {
                sim_ready(c);
            }
        }
        if (w->poller->file.watches) {
            sim_touch(&w->poller->file);
        }
    }
    if (events) {
        sim_active(f->proc);
    }
}

static void sim_watch_end(sim_watch *w)
{
    sim_watch **at = &w->file->watches;
    while (*at != w) {
        at = &(*at)->of_file;
    }
    *at = w->of_file;
    for (at = &w->poller->watches; *at != w;) {
        at = &(*at)->of_poller;
    }
    *at = w->of_poller;
    sim_poller_remove(w);
    free(w);
}

static int sim_sys_poller(gci_sys *sys)
{
    sim_ctx *c = sim_call(sys);
    sim_poller *poller = sim_calloc(1, sizeof *poller);
    return sim_file_add(c->proc, &poller->file, SIM_POLLER);
}

static int sim_sys_watch(gci_sys *sys, int poller_fd, int fd, unsigned events, uint64_t tag)
{
    sim_ctx *c = sim_call(sys);
    sim_proc *p = c->proc;
    sim_poller *poller = (sim_poller *)sim_file_get(p, poller_fd, SIM_POLLER, "watch");
    sim_file *f = fd >= 0 && fd < p->files_room ? p->files[fd] : NULL;
    if (!f) {
        sim_misuse(p, "watch of descriptor %d, which is not open", fd);
    }
    sim_watch *w = f->watches;
    while (w && w->poller != poller) {
        w = w->of_file;
    }
    if (!events) {
        if (w) {
            sim_watch_end(w);
        }
        return 0;
    }
    if (!w) {
        w = sim_calloc(1, sizeof *w);
        *w = (sim_watch){ .poller = poller, .file = f, .of_file = f->watches, .of_poller = poller->watches };
        f->watches = poller->watches = w;
    }
    w->events = events;
    w->tag = tag;
    c->stuck = 0;
    sim_touch(f);
    return 0;
}

/* Reports what is ready, and moves it to the end of the queue so that all get their turn. */
static int sim_collect(sim *s, sim_poller *poller, gci_event *out, int max)
{
    int n = 0, looked = 0, queued = 0;
    for (const sim_watch *w = poller->ready; w; w = w->ready) {
        queued++;
    }
    while (n < max && looked++ < queued) {
        sim_watch *w = poller->ready;
        unsigned events = sim_events(w->file) & w->events;
        sim_poller_remove(w);
        if (events) {
            out[n++] = (gci_event){ .tag = w->tag, .events = events };
            sim_poller_push(w);
        }
    }
    for (int i = n - 1; i > 0 && s->tuning.shuffle; i--) {
        int j = (int)(sim_random(s) % (uint64_t)(i + 1));
        gci_event swap = out[i];
        out[i] = out[j];
        out[j] = swap;
    }
    return n;
}

static int sim_sys_wait(gci_sys *sys, int poller_fd, gci_event *out, int max, int64_t timeout)
{
    sim_ctx *c = sim_call(sys);
    sim *s = c->s;
    sim_poller *poller = (sim_poller *)sim_file_get(c->proc, poller_fd, SIM_POLLER, "wait");
    int n = sim_collect(s, poller, out, max);
    if (n) {
        if (++c->stuck == SIM_STUCK) {
            sim_misuse(c->proc, "context %d: nothing comes of what is ready in poller %d", c->id, poller_fd);
        }
        c->fruitless = 0;
        return n;
    }
    if (timeout <= 0) {
        sim_spin(c);
        return 0;
    }
    if (sim_one_in(s, s->tuning.interrupt_in)) {
        return 0;
    }
    sim_block_on(c, SIM_FOR_POLLER, poller, timeout);
    if (poller->file.fd != poller_fd) {
        sim_misuse(c->proc, "poller %d is closed while context %d waits in it", poller_fd, c->id);
    }
    return sim_collect(s, poller, out, max);
}

/* ---- wakers ---- */

static int sim_sys_waker(gci_sys *sys)
{
    sim_ctx *c = sim_call(sys);
    struct sim_waker *waker = sim_calloc(1, sizeof *waker);
    return sim_file_add(c->proc, &waker->file, SIM_WAKER);
}

static void sim_waker_set(gci_sys *sys, int fd, bool awake)
{
    sim_ctx *c = sim_call(sys);
    struct sim_waker *waker = (struct sim_waker *)sim_file_get(c->proc, fd, SIM_WAKER, awake ? "wake" : "rest");
    waker->awake = awake;
    c->stuck = 0;
    sim_touch(&waker->file);
}

static void sim_sys_wake(gci_sys *sys, int fd) { sim_waker_set(sys, fd, true); }
static void sim_sys_rest(gci_sys *sys, int fd) { sim_waker_set(sys, fd, false); }

static void sim_timer_fire(sim *s, sim_event *e)
{
    struct sim_waker *timer = (struct sim_waker *)(void *)((char *)e - offsetof(struct sim_waker, alarm));
    (void)s;
    timer->armed = false;
    timer->awake = true;
    sim_touch(&timer->file);
}

static void sim_timer_disarm(sim *s, struct sim_waker *timer)
{
    if (timer->armed) {
        sim_unschedule(s, &timer->alarm);
    }
    timer->armed = false;
}

static void sim_sys_arm(gci_sys *sys, int fd, int64_t at)
{
    sim_ctx *c = sim_call(sys);
    sim *s = c->s;
    struct sim_waker *timer = (struct sim_waker *)sim_file_get(c->proc, fd, SIM_WAKER, "arm");
    sim_timer_disarm(s, timer);
    timer->awake = false;
    if (at != GCI_FOREVER) {
        timer->armed = true;
        timer->alarm.fire = sim_timer_fire;
        sim_schedule(s, &timer->alarm, at > s->now ? at : s->now);
    }
    sim_touch(&timer->file);
}

/* ---- closing ---- */

void sim_file_close(sim_file *f)
{
    while (f->watches) {
        sim_watch_end(f->watches);
    }
    if (f->kind == SIM_POLLER) {
        sim_poller *poller = (sim_poller *)f;
        while (poller->watches) {
            sim_watch_end(poller->watches);
        }
    }
    if (f->kind == SIM_WAKER) {
        sim_timer_disarm(f->proc->s, (struct sim_waker *)f);
    }
    f->proc->files[f->fd] = NULL;
    f->fd = -1;
    if (f->kind == SIM_SOCKET) {
        sim_sock_close((sim_sock *)f);
    }
}

static void sim_sys_close(gci_sys *sys, int fd)
{
    sim_ctx *c = sim_call(sys);
    sim_proc *p = c->proc;
    sim_file *f = fd >= 0 && fd < p->files_room ? p->files[fd] : NULL;
    if (!f) {
        sim_misuse(p, "close of descriptor %d, which is not open", fd);
    }
    c->stuck = 0;
    sim_file_close(f);
}

void sim_sys_close_all(sim_proc *p, bool but_ports)
{
    for (int fd = 0; fd < p->files_room; fd++) {
        if (p->files[fd] && !(but_ports && sim_tcp_listens(p->files[fd]))) {
            sim_file_close(p->files[fd]);
        }
    }
}

/* ---- memory ---- */

static void sim_block_link(sim_proc *p, sim_block *b, size_t bytes)
{
    b->bytes = bytes;
    b->next = p->blocks.next;
    b->prev = &p->blocks;
    b->next->prev = p->blocks.next = b;
}

static bool sim_alloc_fails(sim_proc *p)
{
    p->allocations++;
    return p->fail_at && (p->fail_once ? p->allocations == p->fail_at : p->allocations >= p->fail_at);
}

void *sim_alloc(void *proc, void *old, size_t bytes)
{
    sim_proc *p = proc;
    sim_block *b = old ? (sim_block *)old - 1 : NULL;
    if (bytes && (bytes > SIZE_MAX - sizeof *b || sim_alloc_fails(p))) {
        return NULL;
    }
    if (b) {
        b->next->prev = b->prev;
        b->prev->next = b->next;
    }
    if (!bytes) {
        free(b);
        return NULL;
    }
    size_t before = b ? b->bytes : 0;
    sim_block *new = realloc(b, sizeof *b + bytes);
    if (!new) {
        fputs("simnet: out of memory\n", stderr);
        abort();
    }
    if (bytes > before) {       /* so that a byte read before it is written makes the trace differ from none */
        memset((uint8_t *)(new + 1) + before, 0xa5, bytes - before);
    }
    sim_block_link(p, new, bytes);
    return new + 1;
}

void sim_alloc_fail(sim_proc *p, int64_t nth)
{
    p->fail_once = nth < 0;
    p->fail_at = nth ? p->allocations + (nth < 0 ? -nth : nth) : 0;
}

int64_t sim_alloc_count(const sim_proc *p) { return p->allocations; }

void sim_memory_free(sim_proc *p)
{
    while (p->blocks.next != &p->blocks) {
        sim_block *b = p->blocks.next;
        p->blocks.next = b->next;
        free(b);
    }
}

void sim_sys_fill(gci_sys *t)
{
    t->now = sim_sys_now;
    t->random = sim_sys_random;
    t->yield = sim_sys_yield;
    t->close = sim_sys_close;
    t->poller = sim_sys_poller;
    t->watch = sim_sys_watch;
    t->wait = sim_sys_wait;
    t->waker = sim_sys_waker;
    t->wake = sim_sys_wake;
    t->rest = sim_sys_rest;
    t->timer = sim_sys_waker;
    t->arm = sim_sys_arm;
    t->thread = sim_sys_thread;
    t->join = sim_sys_join;
    t->monitor = sim_sys_monitor;
    t->monitor_free = sim_sys_monitor_free;
    t->enter = sim_sys_enter;
    t->leave = sim_sys_leave;
    t->await = sim_sys_await;
    t->notify = sim_sys_notify;
}
