/* drive.c: who runs the I/O loop.
 * SPDX-License-Identifier: MIT
 *
 * The thread that waits in a gc_ call drives the I/O; if several wait, one drives and the others await the monitor, and
 * whoever finds its request ended hands the driving over. The driver leaves the monitor while it sleeps and between two
 * polls, and nowhere else: whoever is inside finds everything in order, and may do the driver's work.
 *
 * Waiting: poll the sockets, yielding the core in between, for as long as that keeps paying; then sleep. What pays is
 * learned: each wait that polling did not end doubles the number of waits that sleep at once before polling is tried
 * again, each that it did end halves it. A yield that took long (somebody else had use for the core) counts the more,
 * because it may cost a whole time slice, where sleeping costs a wake-up.
 *
 * A link whose polling has paid many times over is hot: it leaves the poller, which otherwise takes note of every packet
 * that comes (3 % of a short round trip), and comes back before anyone sleeps there.
 *
 * The I/O thread. A rank with a link of the backbone must forward for others while its own threads compute, so it has a
 * thread that drives whenever none of the user's does; other ranks have none (unless GRIDCOMM_PROGRESS=thread). It sleeps in
 * the same poller. A thread of the user's never waits for it: it takes the driving, and if the I/O thread wakes meanwhile, that
 * finds itself not needed and rests, away from the poller. It comes back when no gc_ call has been made during a short
 * time, which doubles as long as calls keep coming, or at once when a thread of the user's leaves that has slept long: so
 * messages between two busy ranks do not pay for it.
 */
#include "gridcomm_int.h"

enum { POLLS_PER_YIELD = 32 };          /* of the hinted socket alone; the whole poller is looked at as often */
#define DRIVE_SPIN_MAX   INT64_C(200000)        /* ns of polling in one wait */
#define DRIVE_YIELD_SLOW INT64_C(5000)          /* ns: somebody else ran meanwhile */
enum { SLOW_COSTS = 8,                  /* waits that sleep after one such */
       PENALTY_MAX = 4096 };            /* waits that sleep between two tries, where polling never pays */
#define DRIVE_REST_MIN   INT64_C(50000)         /* ns that the I/O thread rests after a call of the user's, ... */
#define DRIVE_REST_MAX   INT64_C(1000000)       /* ... doubling up to this; and a sleep that counts as long */

/* ---- waiting -------------------------------------------------------------------------------------------------- */

typedef struct drive_spin { bool on, asleep, slept; int64_t began; unsigned rounds; } drive_spin;    /* slept: for long */

static void spin_begin(gci_overlay *o, drive_spin *spin)
{
    spin->on = o->progress == GCI_PROGRESS_POLL || (o->progress != GCI_PROGRESS_SLEEP && o->skip == 0);
    if (o->skip > 0)
        o->skip--;
}

static void spin_lost(gci_overlay *o, drive_spin *spin, int least)
{
    spin->on = o->progress == GCI_PROGRESS_POLL;
    o->penalty = 2 * o->penalty + least < PENALTY_MAX ? 2 * o->penalty + least : PENALTY_MAX;
    o->skip = o->penalty;
}

static void run_timers(gci_overlay *o, int64_t now)
{
    if (now >= o->next_tick)
        o->next_tick = gci_links_tick(o, now);
}

/* Lets others have the core and the monitor between two polls. */
static void spin_yield(gci_overlay *o, drive_spin *spin)
{
    gci_sys *sys = o->sys;
    int64_t before = sys->now(sys);
    if (spin->began == 0)
        spin->began = before;
    sys->leave(sys, o->monitor);
    sys->yield(sys);
    sys->enter(sys, o->monitor);
    int64_t now = sys->now(sys);
    run_timers(o, now);
    if (now - before > DRIVE_YIELD_SLOW)
        spin_lost(o, spin, SLOW_COSTS);
    else if (now - spin->began > DRIVE_SPIN_MAX)
        spin_lost(o, spin, 1);
}

/* Sleeps until a socket, the waker, a tick or the deadline. true: it was long. */
static bool sleep_once(gci_overlay *o, bool (*done)(void *arg), void *arg, int64_t deadline)
{
    int64_t now = o->sys->now(o->sys);
    int64_t until = o->next_tick = gci_links_tick(o, now);
    if (done(arg))
        return false;                   /* the tick has ended what was waited for */
    if (deadline < until)
        until = deadline;
    gci_links_look(o, until == GCI_FOREVER ? GCI_FOREVER : until > now ? until - now : 0);
    return o->thread_rests && o->sys->now(o->sys) - now > DRIVE_REST_MAX;
}

static void await_driver(gci_overlay *o, int64_t deadline)
{
    int64_t left = GCI_FOREVER;
    if (deadline != GCI_FOREVER) {
        left = deadline - o->sys->now(o->sys);
        if (left <= 0)
            return;
    }
    o->waiters++;
    o->sys->await(o->sys, o->monitor, left);
    o->waiters--;
}

/* One turn of the driver's. Between two sleeps no socket is looked at: the poller tells of all there is. Who is never long in one
 * wait, or always finds something, looks at the clock here. */
static void drive(gci_overlay *o, drive_spin *spin, bool (*done)(void *arg), void *arg, int hint, int64_t deadline)
{
    bool moved = false;
    o->driving = true;
    if (spin->on || !spin->asleep || gci_links_has_work(o)) {
        bool whole = ++o->round % POLLS_PER_YIELD == 0;
        moved = gci_links_round(o, hint, whole);
        if (whole)
            run_timers(o, o->sys->now(o->sys));
    }
    spin->asleep = !moved && !spin->on;
    if (spin->asleep)
        spin->slept |= sleep_once(o, done, arg, deadline);
    else if (!moved && ++spin->rounds % POLLS_PER_YIELD == 0)
        spin_yield(o, spin);
    o->driving = false;
}

/* Nobody drives now. The I/O thread that has slept through all of it shall not sleep beyond what has come up. */
static void hand_over(gci_overlay *o)
{
    if (!o->thread_asleep || o->waiters > 0)
        return;
    o->next_tick = gci_links_tick(o, o->sys->now(o->sys));
    if (gci_links_has_work(o) || o->next_tick < o->thread_until)
        o->sys->wake(o->sys, o->waker);
}

GCI void gci_overlay_wait(gci_overlay *o, bool (*done)(void *arg), void *arg, const int *hint, int64_t deadline)
{
    drive_spin spin = { 0 };
    spin_begin(o, &spin);
    o->calls++;
    bool ended;
    while (!(ended = done(arg))) {
        if (o->driving)
            await_driver(o, deadline);
        else
            drive(o, &spin, done, arg, hint ? *hint : -1, deadline);
        if (deadline != GCI_FOREVER && o->sys->now(o->sys) >= deadline)
            break;
    }
    if (ended && spin.on && spin.rounds > 0) {
        o->penalty /= 2;
        if (!o->threaded)               /* which has no way to notice packets on a hot link */
            gci_links_paid(o, hint ? *hint : -1);
    }
    o->thread_called |= spin.slept;
    if (o->waiters > 0 || o->thread_parked || spin.slept)
        o->sys->notify(o->sys, o->monitor);
    gci_links_acknowledge(o);
    hand_over(o);
    gci_overlay_ring(o);                /* whoever goes back to that poller looks again, and has the timer armed */
}

GCI bool gci_overlay_poll(gci_overlay *o, int hint)
{
    if (o->rung)
        o->sys->rest(o->sys, o->bell);
    o->rung = false;
    o->calls++;
    if (o->driving)
        return false;
    o->driving = true;
    bool moved = gci_links_round(o, hint, true);
    if (!moved || ++o->round % POLLS_PER_YIELD == 0 || o->outer >= 0)
        o->next_tick = gci_links_tick(o, o->sys->now(o->sys));
    if (o->outer >= 0)
        o->sys->arm(o->sys, o->timer, o->next_tick);
    if (!moved)
        gci_links_acknowledge(o);
    o->driving = false;
    hand_over(o);
    return moved;
}

/* ---- a poller of the user's own ------------------------------------------------------------------------------- */

static void close_all(gci_sys *sys, const int fd[], int n)
{
    for (int i = 0; i < n; i++)
        if (fd[i] >= 0)
            sys->close(sys, fd[i]);
}

/* The user's poller holds ours, a timer, and a bell for what another thread has done. */
GCI int gci_overlay_fd(gci_overlay *o)
{
    gci_sys *sys = o->sys;
    if (o->outer >= 0)
        return o->outer;
    int outer = sys->poller(sys), bell = sys->waker(sys), timer = sys->timer(sys);
    if (outer < 0 || bell < 0 || timer < 0 || sys->watch(sys, outer, o->poller, GCI_READ, 0) < 0 ||
        sys->watch(sys, outer, bell, GCI_READ, 0) < 0 || sys->watch(sys, outer, timer, GCI_READ, 0) < 0) {
        close_all(sys, (int[]){ outer, bell, timer }, 3);
        return GC_ERR_SYSTEM;
    }
    gci_links_cool(o);
    o->bell = bell;
    o->timer = timer;
    o->outer = outer;
    gci_overlay_ring(o);                /* the first gc_progress sees what was missed, and arms the timer */
    return outer;
}

/* ---- the I/O thread ------------------------------------------------------------------------------------------- */

/* Away from the poller while the user's threads are about. Without end while one of them sleeps there: it will call. */
static void thread_rest(gci_overlay *o, int64_t *rest)
{
    int64_t until = o->sys->now(o->sys) + *rest;
    unsigned calls = o->calls;
    o->thread_rests = true;
    o->thread_called = false;
    while (!o->thread_ends && !o->thread_called) {
        int64_t now = o->sys->now(o->sys);
        if (now >= until && !o->asleep)
            break;
        o->thread_parked = now >= until;
        o->sys->await(o->sys, o->monitor, o->thread_parked ? GCI_FOREVER : until - now);
        o->thread_parked = false;
    }
    bool busy = !o->thread_called && (o->driving || o->calls != calls);
    *rest = busy ? (2 * *rest < DRIVE_REST_MAX ? 2 * *rest : DRIVE_REST_MAX) : 0;
    o->thread_rests = false;
}

/* As the driver, but without polling, and without a round between two sleeps. */
static void thread_drive(gci_overlay *o)
{
    gci_sys *sys = o->sys;
    int64_t now = sys->now(sys), until;
    if (gci_links_has_work(o) || now >= o->next_tick) {
        gci_links_round(o, -1, true);
        until = o->next_tick = gci_links_tick(o, now);
    } else {
        until = o->next_tick;
    }
    o->thread_until = until;
    gci_links_look(o, until == GCI_FOREVER ? GCI_FOREVER : until > now ? until - now : 0);
}

static void thread_run(void *arg)
{
    gci_overlay *o = arg;
    unsigned calls;
    int64_t rest = 0;
    o->sys->enter(o->sys, o->monitor);
    o->threaded = true;
    gci_links_cool(o);
    while (!o->thread_ends) {
        calls = o->calls;
        if (o->driving || rest > 0)
            thread_rest(o, &rest);
        else
            thread_drive(o);
        if (rest == 0 && (o->driving || o->calls != calls))
            rest = DRIVE_REST_MIN;
    }
    o->sys->leave(o->sys, o->monitor);
}

static void thread_start(gci_overlay *o)
{
    int err = o->thread ? 0 : o->sys->thread(o->sys, &o->thread, thread_run, o);
    if (err < 0)                        /* the next link of the backbone brings the next try */
        gci_log(o->env, GC_LOG_ERROR, "no thread to forward packets while this rank computes: %s", gci_strerrno(err));
}

/* ---- life ----------------------------------------------------------------------------------------------------- */

static enum gci_progress progress_of(const char *name)
{
    static const char *const names[] = { "auto", "poll", "sleep", "thread" };
    for (int i = 0; i < (int)GCI_COUNT(names); i++)
        if (name && strcmp(name, names[i]) == 0)
            return (enum gci_progress)i;
    return GCI_PROGRESS_AUTO;
}

GCI int gci_overlay_open(gci_overlay **out, gci_env *env, gci_monitor *monitor, int rank, int ranks, const gc_options *options,
                         const gci_upcalls *up, void *user, gc_stats *stats)
{
    int err = gci_links_open(out, env, monitor, rank, ranks, options, up, user, stats);
    if (err < 0)
        return err;
    (*out)->progress = progress_of(options->progress);
    if ((*out)->progress == GCI_PROGRESS_THREAD && ranks > 1)
        thread_start(*out);
    return GC_OK;
}

/* Even if nobody drives, what others send over a link of the backbone goes on. */
GCI void gci_overlay_news(void *overlay, const gci_news *news)
{
    gci_links_news(overlay, news);
    if (news->kind == GCI_NEWS_LINK && news->purpose == GCI_PURPOSE_BACKBONE)
        thread_start(overlay);
}

GCI void gci_overlay_close(gci_overlay *o)
{
    gci_sys *sys = o->sys;
    if (o->thread) {
        sys->enter(sys, o->monitor);
        o->thread_ends = true;
        sys->notify(sys, o->monitor);
        sys->wake(sys, o->waker);
        sys->leave(sys, o->monitor);
        sys->join(sys, o->thread);
    }
    close_all(sys, (int[]){ o->outer, o->bell, o->timer }, 3);
    gci_links_close(o);
}
