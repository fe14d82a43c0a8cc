/* simnet.c: the simulated network's heart: events and virtual time, contexts, the run loop, trace and dumps.
 * SPDX-License-Identifier: MIT
 *
 * The scheduler runs on the caller's stack. A context runs until it blocks; what it does takes no virtual time but what the
 * tuning says. When no context is runnable the next event fires and time jumps to it; when there is none either, nothing can
 * ever happen again: that is a deadlock, and every context's reason to wait is dumped. So it is when for long nothing has happened
 * but that waits timed out and began again. Nothing depends on addresses or on
 * real time, so the seed fixes the run.
 *
 * Spinning: a context that polls in vain sleeps a little longer each time, but anything that happens to its process wakes it.
 */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE          /* it takes a jump to another stack for a mistake */
#include "simnet_int.h"

#include <signal.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SIM_ASAN 1
#endif
#if __has_feature(thread_sanitizer)
#define SIM_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__) && !defined(SIM_ASAN)
#define SIM_ASAN 1
#endif
#if defined(__SANITIZE_THREAD__) && !defined(SIM_TSAN)
#define SIM_TSAN 1
#endif
#ifdef SIM_ASAN
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif
#ifdef SIM_TSAN
#include <sanitizer/tsan_interface.h>
#endif

enum { SIM_REAL_GRACE_S = 5, SIM_STEPS_PER_LOOK = 1024 };

static sim *sim_running;        /* for sim_current and the alarm, which get no argument */

/* ---- small things ---- */

void *sim_calloc(size_t n, size_t bytes)
{
    void *p = calloc(n, bytes);
    if (!p) {
        fputs("simnet: out of memory\n", stderr);
        abort();
    }
    return p;
}

char *sim_copy(const char *text)
{
    size_t bytes = strlen(text) + 1;
    return memcpy(sim_calloc(1, bytes), text, bytes);
}

/* splitmix64 (Steele, Lea, Flood, OOPSLA 2014): one word of state, any seed will do. */
uint64_t sim_random(sim *s)
{
    uint64_t z = s->random += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
    return z ^ z >> 31;
}

bool sim_one_in(sim *s, int n)
{
    return n > 0 && sim_random(s) % (uint64_t)n == 0;
}

static sim_tuning sim_default_tuning(void)
{
    sim_tuning t = {
        .preempt_in = 16, .short_in = 8, .again_in = 32, .interrupt_in = 16,
        .stall = 2000, .jitter = 20000, .start_spread = GCI_NS_PER_MS, .port_outlives = 2 * GCI_NS_PER_MS, .shuffle = true,
        .yield_cost = 200, .yield_max = 100000, .stack_bytes = 256 << 10, .fd_limit = 4096,
        .send_buffer = 256 << 10, .recv_buffer = 256 << 10, .autotune = true, .segment_time = 100000,
        .retransmit_time = 200 * (int64_t)GCI_NS_PER_MS, .give_up = 924 * GCI_SECOND, .connect_timeout = 127 * GCI_SECOND, .backlog = 511,
        .time_limit = 3600 * GCI_SECOND, .quiet_limit = 300 * GCI_SECOND, .real_limit = 120, .report = stderr
    };
#ifdef SIM_ASAN
    t.stack_bytes *= 4;         /* redzones */
#endif
    const char *trace = getenv("SIM_TRACE");
    if (trace && *trace == '1') {
        t.trace = stderr;
    }
    return t;
}

sim *sim_new(uint64_t seed)
{
    sim *s = sim_calloc(1, sizeof *s);
    s->seed = s->random = seed;
    s->trace = UINT64_C(0xcbf29ce484222325);
    s->tuning = sim_default_tuning();
    return s;
}

sim_tuning *sim_tune(sim *s) { return &s->tuning; }
int64_t sim_now(const sim *s) { return s->now; }
uint64_t sim_trace_hash(const sim *s) { return s->trace; }
sim_proc *sim_current(void) { return sim_running && sim_running->current ? sim_running->current->proc : NULL; }

void sim_calm(sim *s)
{
    sim_tuning *t = &s->tuning;
    t->preempt_in = t->short_in = t->again_in = t->interrupt_in = 0;
    t->stall = t->jitter = t->start_spread = t->port_outlives = 0;
    t->shuffle = false;
}

/* FNV-1a, by words. */
static void sim_hash(sim *s, uint64_t word)
{
    s->trace = (s->trace ^ word) * UINT64_C(0x100000001b3);
    s->trace ^= s->trace >> 29;
}

void sim_note(sim *s, const char *kind, int64_t a, int64_t b, int64_t n)
{
    uint64_t name = 0;
    s->moved = s->now;
    for (const char *p = kind; *p; p++) {
        name = name * 131 + (uint64_t)*p;
    }
    sim_hash(s, (uint64_t)s->now);
    sim_hash(s, name);
    sim_hash(s, (uint64_t)a);
    sim_hash(s, (uint64_t)b);
    sim_hash(s, (uint64_t)n);
    if (s->tuning.trace) {
        fprintf(s->tuning.trace, "%lld.%09lld %-10s %lld %lld %lld\n", (long long)(s->now / GCI_SECOND),
                (long long)(s->now % GCI_SECOND), kind, (long long)a, (long long)b, (long long)n);
    }
}

/* ---- the heap of events ---- */

static bool sim_before(const sim_event *a, const sim_event *b)
{
    return a->at != b->at ? a->at < b->at : a->seq < b->seq;
}

static void sim_put(sim *s, size_t i, sim_event *e)
{
    s->heap[i] = e;
    e->place = i + 1;
}

static void sim_sift(sim *s, size_t i, sim_event *e)
{
    while (i > 0 && sim_before(e, s->heap[(i - 1) / 2])) {
        sim_put(s, i, s->heap[(i - 1) / 2]);
        i = (i - 1) / 2;
    }
    for (size_t child; (child = 2 * i + 1) < s->events; i = child) {
        if (child + 1 < s->events && sim_before(s->heap[child + 1], s->heap[child])) {
            child++;
        }
        if (!sim_before(s->heap[child], e)) {
            break;
        }
        sim_put(s, i, s->heap[child]);
    }
    sim_put(s, i, e);
}

void sim_schedule(sim *s, sim_event *e, int64_t at)
{
    e->at = at > s->now ? at : s->now;
    e->seq = s->seq++;
    if (e->place) {
        sim_sift(s, e->place - 1, e);
        return;
    }
    if (s->events == s->events_room) {
        size_t room = s->events_room ? 2 * s->events_room : 1024;
        sim_event **heap = sim_calloc(room, sizeof *heap);
        if (s->events) {
            memcpy(heap, s->heap, s->events * sizeof *heap);
        }
        free(s->heap);
        s->heap = heap;
        s->events_room = room;
    }
    sim_sift(s, s->events++, e);
}

void sim_unschedule(sim *s, sim_event *e)
{
    if (!e->place) {
        return;
    }
    size_t i = e->place - 1;
    sim_event *last = s->heap[--s->events];
    e->place = 0;
    if (last != e) {
        sim_sift(s, i, last);
    }
}

typedef struct sim_later { sim_event event; void (*run)(sim *, void *, int64_t); void *what; int64_t n; } sim_later;

static void sim_later_fire(sim *s, sim_event *e)
{
    sim_later *later = (sim_later *)e;
    later->run(s, later->what, later->n);
}

void sim_after(sim *s, int64_t delay, void (*run)(sim *, void *, int64_t), void *what, int64_t n)
{
    sim_later *later = sim_calloc(1, sizeof *later);
    *later = (sim_later){ .event = { .owned = true, .fire = sim_later_fire }, .run = run, .what = what, .n = n };
    sim_schedule(s, &later->event, s->now + delay);
}

typedef struct sim_command { sim_event event; void (*run)(void *, void *); void *a, *b; } sim_command;

static void sim_command_fire(sim *s, sim_event *e)
{
    sim_command *c = (sim_command *)e;
    s->moved = s->now;
    c->run(c->a, c->b);
}

void sim_at(sim *s, int64_t when, void (*run)(void *a, void *b), void *a, void *b)
{
    sim_command *c = sim_calloc(1, sizeof *c);
    *c = (sim_command){ .event = { .owned = true, .fire = sim_command_fire }, .run = run, .a = a, .b = b };
    sim_schedule(s, &c->event, when);
}

static void sim_fire_next(sim *s)
{
    sim_event *e = s->heap[0];
    sim_unschedule(s, e);
    s->now = e->at;
    bool owned = e->owned;      /* a segment that stays clears it as it fires */
    e->fire(s, e);
    if (owned && e->owned && !e->place) {
        free(e);
    }
}

/* ---- contexts ---- */

/* The sanitizers have to be told of every switch of stacks. */
static void sim_switch_begin(sim *s, sim_ctx *from, sim_ctx *to)
{
#if defined(SIM_TSAN)
    s->fiber = from ? s->fiber : __tsan_get_current_fiber();
    __tsan_switch_to_fiber(to ? to->fiber : s->fiber, 0);
#elif defined(SIM_ASAN)
    void **fake = !from ? &s->fiber : from->state == SIM_ENDED ? NULL : &from->fiber;
    __sanitizer_start_switch_fiber(fake, to ? to->bounds : s->bounds, to ? to->bounds_bytes : s->bounds_bytes);
#else
    (void)s; (void)from; (void)to;
#endif
}

static void sim_switch_end(sim *s, sim_ctx *now)
{
#if defined(SIM_ASAN)
    if (now) {
        __sanitizer_finish_switch_fiber(now->fiber, &s->bounds, &s->bounds_bytes);
    } else {
        __sanitizer_finish_switch_fiber(s->fiber, NULL, NULL);
    }
#else
    (void)s; (void)now;
#endif
}

/* swapcontext would do, but asks the kernel for its signal mask each time, and under ASan clears the shadow of a whole stack. TSan
 * knows no other way. */
static void sim_switch(sim_point *from, sim_point *to)
{
#if defined(SIM_TSAN)
    swapcontext(&from->machine, &to->machine);
#else
    if (_setjmp(from->jump) != 0) {
        return;
    }
    if (to->entered) {
        _longjmp(to->jump, 1);
    }
    to->entered = true;
    setcontext(&to->machine);
#endif
}

static void sim_to_scheduler(sim_ctx *c)
{
    sim *s = c->s;
    sim_switch_begin(s, c, NULL);
    sim_switch(&c->point, &s->point);
    sim_switch_end(s, c);
}

static void sim_to_context(sim_ctx *c)
{
    sim *s = c->s;
    s->current = c;
    c->state = SIM_RUNNING;
    s->point.entered = true;
    sim_switch_begin(s, NULL, c);
    sim_switch(&s->point, &c->point);
    sim_switch_end(s, NULL);
    s->current = NULL;
}

static void sim_ctx_start(unsigned high, unsigned low)
{
    sim_ctx *c = (sim_ctx *)((uintptr_t)high << 32 | (uintptr_t)low);
    sim_switch_end(c->s, c);
    c->run(c->arg);
    c->state = SIM_ENDED;
    for (sim_ctx *o = c->proc->contexts; o; o = o->next) {
        if (o->state == SIM_BLOCKED && o->why == SIM_FOR_THREAD && o->on == c) {
            sim_ready(o);
        }
    }
    sim_to_scheduler(c);
}

static void sim_timer_fire(sim *s, sim_event *e)
{
    (void)s;
    sim_ctx *c = (sim_ctx *)e;
    c->timed_out = true;
    sim_ready(c);
}

sim_ctx *sim_ctx_new(sim_proc *proc, void (*run)(void *), void *arg)
{
    sim *s = proc->s;
    sim_ctx *c = sim_calloc(1, sizeof *c);
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    *c = (sim_ctx){ .timer = { .fire = sim_timer_fire }, .s = s, .proc = proc, .next = proc->contexts, .id = s->contexts++,
                    .run = run, .arg = arg, .state = SIM_BLOCKED, .why = SIM_FOR_TIME, .stack_bytes = s->tuning.stack_bytes + page };
    c->stack = mmap(NULL, c->stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
    if (c->stack == MAP_FAILED || mprotect(c->stack, page, PROT_NONE) != 0) {
        perror("simnet: stack of a context");
        abort();
    }
    c->bounds = (char *)c->stack + page;
    c->bounds_bytes = s->tuning.stack_bytes;
    getcontext(&c->point.machine);
    c->point.machine.uc_stack.ss_sp = (char *)c->stack + page;
    c->point.machine.uc_stack.ss_size = s->tuning.stack_bytes;
    makecontext(&c->point.machine, (void (*)(void))sim_ctx_start, 2, (unsigned)((uintptr_t)c >> 32), (unsigned)(uintptr_t)c);
#ifdef SIM_TSAN
    c->fiber = __tsan_create_fiber(0);
#endif
    proc->contexts = c;
    return c;
}

static void sim_ctx_free(sim_ctx *c)
{
    sim_unschedule(c->s, &c->timer);
#ifdef SIM_ASAN
    __asan_unpoison_memory_region(c->bounds, c->bounds_bytes);     /* the next mapping here must not inherit redzones */
#endif
#ifdef SIM_TSAN
    __tsan_destroy_fiber(c->fiber);
#endif
    munmap(c->stack, c->stack_bytes);
    free(c);
}

static void sim_enqueue(sim_ctx *c)
{
    sim *s = c->s;
    c->state = SIM_RUNNABLE;
    c->held = c->proc->stopped;
    if (c->queued || c->held) {
        return;
    }
    if (s->run_count == s->run_room) {
        size_t room = s->run_room ? 2 * s->run_room : 256;
        sim_ctx **run = sim_calloc(room, sizeof *run);
        for (size_t i = 0; i < s->run_count; i++) {
            run[i] = s->run[(s->run_head + i) % s->run_room];
        }
        free(s->run);
        s->run = run;
        s->run_head = 0;
        s->run_room = room;
    }
    s->run[(s->run_head + s->run_count++) % s->run_room] = c;
    c->queued = true;
}

void sim_ready(sim_ctx *c)
{
    if (c->state == SIM_BLOCKED) {
        sim_unschedule(c->s, &c->timer);
        sim_enqueue(c);
    }
}

bool sim_block_on(sim_ctx *c, enum sim_why why, void *on, int64_t timeout)
{
    c->state = SIM_BLOCKED;
    c->why = why;
    c->on = on;
    c->timed_out = false;
    c->since = c->s->now;
    c->idle_calls = 0;
    if (timeout < GCI_FOREVER - c->s->now) {
        sim_schedule(c->s, &c->timer, c->s->now + timeout);
    }
    sim_to_scheduler(c);
    c->why = SIM_FOR_NOTHING;
    return !c->timed_out;
}

void sim_give_way(sim_ctx *c)
{
    sim_enqueue(c);
    sim_to_scheduler(c);
}

/* A spinning context has paid for its poll before it looks again, so that two that wake each other cannot stop time. */
void sim_active(sim_proc *p)
{
    for (sim_ctx *c = p->contexts; c; c = c->next) {
        c->fruitless = 0;
        if (c->state == SIM_BLOCKED && c->why == SIM_FOR_SPIN && c->timer.at > c->since + p->s->tuning.yield_cost) {
            sim_schedule(p->s, &c->timer, c->since + p->s->tuning.yield_cost);
        }
    }
}

void sim_leave_if_dead(sim *s)
{
    if (s->current && s->current->state == SIM_ENDED) {
        sim_to_scheduler(s->current);
    }
}

void sim_end_contexts(sim_proc *p)
{
    for (sim_ctx *c = p->contexts; c; c = c->next) {
        sim_unschedule(p->s, &c->timer);
        c->state = SIM_ENDED;
    }
}

/* ---- processes ---- */

static void sim_close_ports(void *p, void *unused) { (void)unused; sim_sys_close_all(p, false); }

void sim_proc_exit(sim_proc *p, bool killed)
{
    if (p->done || p->killed) {
        return;
    }
    sim_note(p->s, killed ? "killed" : "exit", p->id, 0, 0);
    p->done = !killed;
    p->killed = killed;
    p->s->unfinished--;
    int64_t outlives = killed ? p->s->tuning.port_outlives : 0;
    if (outlives > 0) {                 /* as Linux does: the descriptor that was opened first is closed last */
        sim_at(p->s, p->s->now + 1 + (int64_t)(sim_random(p->s) % (uint64_t)outlives), sim_close_ports, p, NULL);
    }
    sim_sys_close_all(p, outlives > 0);
    sim_end_contexts(p);
}

static void sim_proc_main(void *arg)
{
    sim_proc *p = arg;
    p->run(p, p->arg);
    for (sim_block *b = p->blocks.next; b != &p->blocks; b = b->next) {
        p->leftovers.blocks++;
        p->leftovers.bytes += b->bytes;
    }
    for (int fd = 0; fd < p->files_room; fd++) {
        p->leftovers.fds += p->files[fd] != NULL;
    }
    for (sim_ctx *c = p->contexts; c; c = c->next) {
        p->leftovers.threads += c->thread && !c->joined;
    }
    for (struct sim_monitor *m = p->monitors; m; m = m->next) {
        p->leftovers.monitors += !m->freed;
    }
    sim_proc_exit(p, false);
}

sim_proc *sim_spawn(sim_host *h, const char *name, void (*run)(sim_proc *, void *), void *arg)
{
    sim *s = h->s;
    sim_proc *p = sim_calloc(1, sizeof *p);
    *p = (sim_proc){ .s = s, .host = h, .name = sim_copy(name), .id = s->procs++, .run = run, .arg = arg,
                     .next = s->proc_list, .next_on_host = h->procs };
    p->blocks.next = p->blocks.prev = &p->blocks;
    sim_sys_fill(&p->sys);
    sim_net_fill(&p->sys);
    sim_tcp_fill(&p->sys);
    s->proc_list = h->procs = p;
    s->unfinished++;
    sim_ctx *c = sim_ctx_new(p, sim_proc_main, p);
    int64_t spread = s->tuning.start_spread;
    sim_schedule(s, &c->timer, s->now + (spread ? (int64_t)(sim_random(s) % (uint64_t)spread) : 0));
    return p;
}

gci_sys *sim_sys(sim_proc *p) { return &p->sys; }
const char *sim_proc_name(const sim_proc *p) { return p->name; }
sim_host *sim_proc_host(const sim_proc *p) { return p->host; }
bool sim_proc_killed(const sim_proc *p) { return p->killed; }
bool sim_proc_done(const sim_proc *p) { return p->done; }
sim_leftovers sim_proc_leftovers(const sim_proc *p) { return p->leftovers; }

/* ---- the run loop ---- */

static void sim_alarm(int signal_number)
{
    (void)signal_number;
    static const char text[] = "simnet: a context computes for ever\n";
    if (write(STDERR_FILENO, text, sizeof text - 1) < 0) {
        abort();
    }
    sim_dump(sim_running, stderr);      /* not async-signal-safe, but the end is near */
    abort();
}

static time_t sim_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec;
}

static sim_ctx *sim_next_runnable(sim *s)
{
    if (s->tuning.shuffle && s->run_count > 1) {
        size_t i = (s->run_head + sim_random(s) % s->run_count) % s->run_room;
        sim_ctx *c = s->run[i];
        s->run[i] = s->run[s->run_head];
        s->run[s->run_head] = c;
    }
    sim_ctx *c = s->run[s->run_head];
    s->run_head = (s->run_head + 1) % s->run_room;
    s->run_count--;
    c->queued = false;
    return c;
}

/* Does nobody compute, is nothing under way, and is there nothing to come but the time-outs of those who have looked in vain
 * already? */
static bool sim_is_stuck(const sim *s)
{
    for (size_t i = 0; i < s->events; i++) {
        const sim_ctx *c = (const sim_ctx *)s->heap[i];
        if (s->heap[i]->fire != sim_timer_fire || c->why == SIM_FOR_TIME || c->since <= s->moved) {
            return false;
        }
    }
    return true;
}

static int sim_step(sim *s, time_t deadline, unsigned *steps)
{
    if (++*steps % SIM_STEPS_PER_LOOK == 0 && sim_clock() > deadline) {
        return SIM_REAL_LIMIT;
    }
    if (s->run_count) {
        sim_ctx *c = sim_next_runnable(s);
        if (c->state == SIM_RUNNABLE && !c->held) {
            if (c->proc->stopped) {
                c->held = true;
            } else {
                sim_to_context(c);
            }
        }
        return s->verdict;
    }
    if (!s->events || (s->heap[0]->at - s->moved > s->tuning.quiet_limit && sim_is_stuck(s))) {
        return SIM_DEADLOCK;
    }
    if (s->heap[0]->at > s->tuning.time_limit) {
        return SIM_TIME_LIMIT;
    }
    sim_fire_next(s);
    return s->verdict;
}

int sim_run(sim *s)
{
    static const char *const text[] = { "", "deadlock: nothing can ever happen again", "the limit of virtual time is over",
                                        "the limit of real time is over", "misuse of the system table" };
    struct sigaction ours = { .sa_handler = sim_alarm }, old;
    sim *outer = sim_running;
    unsigned steps = 0;
    sigaction(SIGALRM, &ours, &old);
    sim_running = s;
    alarm((unsigned)(s->tuning.real_limit + SIM_REAL_GRACE_S));
    time_t deadline = sim_clock() + s->tuning.real_limit;
    while (s->unfinished && !s->verdict) {
        s->verdict = sim_step(s, deadline, &steps);
    }
    alarm(0);
    sim_running = outer;
    sigaction(SIGALRM, &old, NULL);
    if (s->verdict && s->tuning.report) {
        fprintf(s->tuning.report, "simnet: seed %llu: %s\n", (unsigned long long)s->seed, text[s->verdict]);
        sim_dump(s, s->tuning.report);
    }
    return s->verdict;
}

void sim_misuse(sim_proc *p, const char *format, ...)
{
    sim *s = p->s;
    if (s->tuning.report) {
        va_list list;
        va_start(list, format);
        fprintf(s->tuning.report, "simnet: %s: ", p->name);
        vfprintf(s->tuning.report, format, list);
        fputc('\n', s->tuning.report);
        va_end(list);
    }
    s->verdict = SIM_MISUSE;
    if (s->current) {
        sim_block_on(s->current, SIM_FOR_NOTHING, NULL, GCI_FOREVER);
    }
}

/* ---- dumps ---- */

static void sim_dump_poller(const sim_poller *poller, FILE *to)
{
    char text[160];
    for (const sim_watch *w = poller->watches; w; w = w->of_poller) {
        fprintf(to, "        fd %d for %s%s: %s\n", w->file->fd, w->events & GCI_READ ? "r" : "", w->events & GCI_WRITE ? "w" : "",
                sim_file_text(w->file, text, sizeof text));
    }
}

static void sim_dump_ctx(const sim_ctx *c, FILE *to)
{
    fprintf(to, "    %s %d: ", c->thread ? "thread" : "main  ", c->id);
    if (c->state != SIM_BLOCKED) {
        fprintf(to, "%s%s\n", c->state == SIM_RUNNING ? "running" : "runnable", c->held ? ", but its process is stopped" : "");
        return;
    }
    switch (c->why) {
    case SIM_FOR_POLLER:
        fprintf(to, "waits in poller %d", ((const sim_poller *)c->on)->file.fd);
        break;
    case SIM_FOR_MONITOR: {
        const struct sim_monitor *m = c->on;
        fprintf(to, "enters monitor %p, which %s %d is inside", c->on, m->inside && m->inside->thread ? "thread" : "main",
                m->inside ? m->inside->id : -1);
        break;
    }
    case SIM_FOR_NOTIFY:    fprintf(to, "awaits notify of monitor %p", c->on); break;
    case SIM_FOR_THREAD:    fprintf(to, "joins thread %d", ((const sim_ctx *)c->on)->id); break;
    case SIM_FOR_SPIN:      fprintf(to, "spins"); break;
    case SIM_FOR_TIME:      fprintf(to, "sleeps"); break;
    case SIM_FOR_NOTHING:   fprintf(to, "was ended"); break;
    }
    fprintf(to, " since %.9f s%s\n", (double)c->since / 1e9, c->timer.place ? ", with a time-out" : "");
    if (c->why == SIM_FOR_POLLER) {
        sim_dump_poller(c->on, to);
    }
}

void sim_dump(sim *s, FILE *to)
{
    fprintf(to, "simnet: at %.9f s, %zu events to come\n", (double)s->now / 1e9, s->events);
    for (const sim_proc *p = s->proc_list; p; p = p->next) {
        if (p->done || p->killed) {
            continue;
        }
        fprintf(to, "  %s on %s%s%s\n", p->name, p->host->name, p->stopped ? ", stopped" : "", p->host->dead ? ", host is dead" : "");
        for (const sim_ctx *c = p->contexts; c; c = c->next) {
            if (c->state != SIM_ENDED) {
                sim_dump_ctx(c, to);
            }
        }
    }
}

/* ---- the end ---- */

static void sim_proc_free(sim_proc *p)
{
    while (p->contexts) {
        sim_ctx *c = p->contexts;
        p->contexts = c->next;
        sim_ctx_free(c);
    }
    while (p->monitors) {
        struct sim_monitor *m = p->monitors;
        p->monitors = m->next;
        free(m);
    }
    sim_memory_free(p);
    free(p->files);
    free(p->name);
    free(p);
}

void sim_free(sim *s)
{
    if (!s) {
        return;
    }
    while (s->proc_list) {
        sim_proc *p = s->proc_list;
        s->proc_list = p->next;
        sim_proc_free(p);
    }
    while (s->files) {
        sim_file *f = s->files;
        s->files = f->all;
        while (f->watches) {
            sim_watch *w = f->watches;
            f->watches = w->of_file;
            free(w);
        }
        if (f->kind == SIM_SOCKET) {
            sim_sock_free((sim_sock *)f);
        }
        free(f);
    }
    for (size_t i = 0; i < s->events; i++) {
        if (s->heap[i]->owned) {
            free(s->heap[i]);
        }
    }
    sim_net_free(s);
    free(s->heap);
    free(s->run);
    free(s);
}
