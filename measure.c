/* measure.c: gc_model_measure: the trials of trials.c, carried out over a running communicator.
 * SPDX-License-Identifier: MIT
 *
 * All ranks know all trials. Rank 0 begins each round by telling how long it may take, and gets what was found; in between each
 * rank has a part in one trial at most:
 *
 *     driver            order -> all          "part 1, 4096 bytes, 5 times"; 0 times: that was all
 *     driver            1 byte -> sender      begin (each time; a driver that sends itself needs none)
 *     sender            m bytes -> receiver   the message that is timed
 *     receiver          1 byte -> driver      it has come (a driver that receives itself needs none)
 *
 * Only the driver looks at a clock. The first of each batch warms up and is not counted: receives are not posted yet, TCP's
 * window may be small. Batches go on until the confidence interval of the median (95 %, by order statistics) is narrow or the
 * time for it is over; what disturbs a few messages moves no median. Messages have a context of their own and are announced as
 * those of collectives are, so they meet nobody else's and take as long as those of collectives.
 *
 * Why it ends: every wait ends by what it waits for, by the death of any member, by the word that the next collective call will
 * fail, or by a deadline that is far beyond the time given. Who cannot go on (no memory) makes that call fail; so all get there,
 * and rank 0 tells all the error.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum {
    MEASURE_BUFFER = 4 << 20,           /* bytes of the longest message */
    MEASURE_FIRST = 4096,               /* ... and of the first that is not empty; the next one is longer ... */
    MEASURE_CHEAP = 4 * MEASURE_FIRST,  /* ... it is not worth a look whether a line is slower the other way */
    MEASURE_TRAIN = 16 * GCI_TRIAL_PACKET,      /* the rate is that of many packets, */
    MEASURE_JUMP = 16,                  /* ... so many times, as long as it takes no longer than an empty one */
    MEASURE_WITHIN = 1024,              /* a curve's point within the first packet */
    MEASURE_RECV_MAX = 65536,           /* o_r: what the kernel keeps until it is received; of a slow line less */
    MEASURE_RECV_SLOW = 16384,
    MEASURE_RECV_TIMES = 6,             /* ... as often at most: each takes a rest */
    MEASURE_BATCH = 3,                  /* messages of a first batch, each next one has twice as many ... */
    MEASURE_LAST = 6,                   /* ... of empty ones in the end ... */
    MEASURE_FEW = 2,                    /* ... of what need not be known so well, or when time is short */
    MEASURE_SAMPLES = 60,               /* in all, at most */
    MEASURE_FLOOD = 32,                 /* empty messages one after another: less than a peer's credits */
    MEASURE_SLOTS = MEASURE_FLOOD + 4 * GCI_TRIAL_FLOWS,
    MEASURE_SHORT = 1,                  /* a round without what is optional */
    MEASURE_ENOUGH,                     /* none any more */
    MEASURE_ORDER = 16,                 /* bytes: part, bytes, times, number */
    MEASURE_WORD = 32,                  /* ... of what rank 0 tells, */
    MEASURE_POINT = 24,                 /* ... of a point, and of all that a driver finds */
    MEASURE_FOUND = 8 + GCI_TRIAL_PARTS * (8 + MEASURE_POINT * GCI_TRIAL_POINTS)
};
static const char measure_call[] = "gc_model_measure";
#define MEASURE_NARROW 0.03             /* half of the confidence interval, of the median */
#define MEASURE_LONG   3.0              /* times as long as an empty message: the rate is seen well ... */
#define MEASURE_LENGTHY (10.0 * GCI_NS_PER_MS)
#define MEASURE_SEEN   0.002            /* s: ... and stands out of the noise of clock and processor */
#define MEASURE_TRAIN_S 0.05            /* s: ... unless they take longer */
#define MEASURE_VISIBLE 1.1             /* times as long: enough to guess a rate */
#define MEASURE_LONGEST 1e6             /* s that may be given */
#define MEASURE_GRACE  (30 * GCI_SECOND)    /* beyond twice the time given: somebody does not answer */

typedef struct measure measure;
typedef struct measure_slot { measure *m; gc_request *request; size_t bytes; bool ended, receives; } measure_slot;

struct measure {
    gc_comm     *comm;
    gci_env     *env;
    enum gci_model_kind kind;
    gci_trials   trials;
    gci_findings *found;                /* rank 0: of all trials */
    unsigned char *buf;                 /* sent and received, nobody looks at it */
    double       seconds;               /* given for all */
    int64_t      begun, round_begun, round_end, part_end, longest;      /* longest: round */
    bool         is_short;              /* the round: only what is needed */
    uint32_t     tag, nth;              /* of this measurement; of the next batch's first message */
    int          error, fault;          /* the first, and the rank at fault or -1 */
    measure_slot slot[MEASURE_SLOTS];
    int          slots, waiting, hint;
    int64_t      posting;               /* ns that the last message took to be begun */
};

/* The part of a trial that is under way. flood: many messages at once; last: the latency itself. */
typedef struct measure_batch {
    const gci_trial *trial;
    int      part, times;
    bool     flood, last;
    size_t   bytes;
    uint32_t nth;
} measure_batch;

static int64_t measure_now(const measure *m) { return m->env->sys->now(m->env->sys); }

static void measure_note(measure *m, int error, int fault)
{
    if (m->error == GC_OK && error < 0) {
        m->error = error;
        m->fault = fault;
    }
}

/* ---- messages, inside the monitor -------------------------------------------------------------------------------- */

static void measure_ended(gc_request *r)
{
    measure_slot *s = r->user;
    s->ended = true;
    s->m->waiting--;
    if (r->status.error < 0)
        measure_note(s->m, r->status.error, r->status.fault_rank);
    else if (s->receives && r->status.bytes != s->bytes)
        measure_note(s->m, GC_ERR_PROTOCOL, r->status.source);
    gci_overlay_wake(s->m->comm->world->overlay);
}

static void measure_post(measure *m, bool receives, void *buf, size_t bytes, int peer, uint32_t nth)
{
    if (m->error < 0)
        return;
    measure_slot *s = &m->slot[m->slots++];
    gci_post post = { .kind = GCI_CONTEXT_MEASURE, .tag = m->tag, .nth = nth, .done_fn = measure_ended, .user = s };
    gc_request *request = NULL;
    *s = (measure_slot){ .m = m, .bytes = bytes, .receives = receives };
    m->waiting++;
    if (receives)
        m->hint = gci_world_rank(m->comm, peer);
    int err = receives ? gci_recv_post(m->comm, buf, bytes, peer, &post, &request)
                       : gci_send_post(m->comm, buf, bytes, peer, &post, &request);
    if (err < 0) {
        s->ended = true;
        m->waiting--;
        measure_note(m, err, peer);
    } else if (!s->ended)
        s->request = request;
}

/* Why there is nothing to wait for: somebody has died, or cannot go on. */
static int measure_lost(const measure *m)
{
    int gone = gci_comm_gone(m->comm, GC_ANY_SOURCE);
    return gone < 0 ? gone : gci_coll_foreseen(m->comm);
}

static bool measure_is_over(void *arg)
{
    const measure *m = arg;
    return m->waiting == 0 || m->error < 0 || measure_lost(m) < 0;
}

/* Until all that was posted is done; else gives it up. */
static void measure_wait(measure *m)
{
    gci_caller caller = { .call = measure_call };
    gci_world *w = m->comm->world;
    int64_t limit = m->begun + 2 * (int64_t)(m->seconds * (double)GCI_SECOND) + MEASURE_GRACE;
    if (!measure_is_over(m))
        gci_world_wait(w, &caller, measure_is_over, m, &m->hint, limit);
    if (m->waiting > 0)
        measure_note(m, measure_is_over(m) ? measure_lost(m) : GC_ERR_TIMEOUT, m->comm->first_dead);
    for (int i = 0; i < m->slots; i++)
        if (!m->slot[i].ended)
            gci_request_drop(m->slot[i].request);
    m->slots = m->waiting = 0;
}

/* ---- the driver -------------------------------------------------------------------------------------------------- */

static void measure_tell(measure *m, const measure_batch *b)
{
    unsigned char order[MEASURE_ORDER];
    int told[2 * GCI_TRIAL_FLOWS * GCI_TRIAL_PARTS], n = 0;
    int first = b->times > 0 ? b->part : 0, last = b->times > 0 ? b->part : b->trial->parts - 1;
    gci_put32(order, b->flood ? GCI_TRIAL_PARTS : (uint32_t)b->part);
    gci_put32(order + 4, (uint32_t)b->bytes);
    gci_put32(order + 8, (uint32_t)b->times);
    gci_put32(order + 12, b->nth);
    for (int part = first; part <= last; part++)
        for (int i = 0; i < 2 * b->trial->flows[part]; i++) {
            gci_flow flow = b->trial->flow[part][i / 2];
            int rank = i % 2 ? flow.to : flow.from, k = 0;
            while (k < n && told[k] != rank)
                k++;
            if (k < n || rank == m->comm->rank)
                continue;
            told[n++] = rank;
            measure_post(m, false, order, sizeof order, rank, 0);
        }
    measure_wait(m);
}

static uint32_t measure_nth(const measure_batch *b, int time, int flow)
{
    return b->nth + (uint32_t)(time * GCI_TRIAL_FLOWS + flow);
}

static void measure_begin(measure *m, const measure_batch *b, int time, unsigned char ack[])
{
    int me = m->comm->rank;
    for (int i = 0; i < b->trial->flows[b->part]; i++) {
        gci_flow flow = b->trial->flow[b->part][i];
        bool own = flow.to == me && !b->flood;
        measure_post(m, true, own ? (void *)m->buf : &ack[i], own ? b->bytes : 1, own ? flow.from : flow.to,
                     measure_nth(b, time, i));
    }
}

static void measure_start_those(measure *m, const measure_batch *b, int time, bool own)
{
    int me = m->comm->rank;
    for (int i = 0; i < b->trial->flows[b->part]; i++) {
        gci_flow flow = b->trial->flow[b->part][i];
        if ((flow.from == me) != own)
            continue;
        for (int k = 0; k < (b->flood ? MEASURE_FLOOD : 1); k++)
            measure_post(m, false, m->buf, own ? b->bytes : 1, own ? flow.to : flow.from, measure_nth(b, time, i));
    }
}

/* Lets so much time pass in which this rank receives nothing. */
static void measure_rest(const measure *m, int64_t ns)
{
    gci_world *w = m->comm->world;
    for (int64_t end = measure_now(m) + ns, left = ns; left > 0; left = end - measure_now(m))
        w->env.sys->await(w->env.sys, w->monitor, left);
}

/* A word that begins another's flow must not wait behind what this rank sends itself: its own flows come last. */
static void measure_start(measure *m, const measure_batch *b, int time)
{
    measure_start_those(m, b, time, false);
    measure_start_those(m, b, time, true);
}

/* One time all flows, in seconds; m->posting: its sends. rest: between the sends and the receives, which then alone count. */
static double measure_once(measure *m, const measure_batch *b, int time, int64_t rest)
{
    unsigned char ack[GCI_TRIAL_FLOWS];
    gci_enter(m->comm->world);
    measure_begin(m, b, time, ack);
    int64_t start = measure_now(m);
    measure_start(m, b, time);
    m->posting = measure_now(m) - start;
    if (rest > 0) {
        measure_rest(m, rest);
        start = measure_now(m);
    }
    measure_wait(m);
    int64_t end = measure_now(m);
    gci_leave(m->comm->world);
    return (double)(end - start) / (double)GCI_SECOND;
}

static int measure_order(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

typedef struct measure_samples { double seconds[MEASURE_SAMPLES], busy[MEASURE_SAMPLES]; int n; } measure_samples;

static double measure_median(double value[], int n)
{
    if (n > 0)
        qsort(value, (size_t)n, sizeof *value, measure_order);
    return n > 0 ? value[(n - 1) / 2] : 0;
}

/* The confidence interval of the median of sorted values lies between those 0.98 sqrt(n) before and after the middle. */
static bool measure_is_narrow(const double value[], int n)
{
    int k = 0;
    while (2 * k < n && (n - 2 * k) * (n - 2 * k) > 4 * n)      /* n / 2 - k > sqrt(n) */
        k++;
    return n > 1 && value[n - 1 - k] - value[k] <= 2 * MEASURE_NARROW * value[(n - 1) / 2];
}

/* Returns what the last one took. */
static double measure_batch_run(measure *m, measure_batch *b, measure_samples *s, int64_t rest)
{
    double seconds = 0;
    b->nth = m->nth;
    m->nth += (uint32_t)(b->times * GCI_TRIAL_FLOWS);
    gci_enter(m->comm->world);
    measure_tell(m, b);
    gci_leave(m->comm->world);
    for (int i = 0; i < b->times && m->error == GC_OK; i++) {
        seconds = measure_once(m, b, i, rest);
        if (i == 0 || s->n == MEASURE_SAMPLES)
            continue;
        s->seconds[s->n] = seconds;
        s->busy[s->n++] = (double)m->posting / (double)GCI_SECOND;
    }
    return seconds;
}

/* As many as it takes, or as time allows. What several flows share need not be known as well as pairs, if it takes long. */
static bool measure_is_enough(const measure *m, const measure_batch *b, const measure_samples *s, bool rests, int64_t end)
{
    bool few = rests || measure_now(m) > m->part_end ||
               (b->trial->flows[b->part] > 1 && s->n > 0 && s->seconds[0] * (double)GCI_SECOND > MEASURE_LENGTHY);
    return s->n >= (rests ? MEASURE_RECV_TIMES : MEASURE_SAMPLES) || measure_now(m) > end ||
           (s->n >= (few ? MEASURE_FEW : MEASURE_BATCH) && measure_is_narrow(s->seconds, s->n));
}

/* The median. What disturbs a message makes it longer: of two in the middle the shorter. */
static double measure_repeat(measure *m, measure_batch *b, int64_t rest, double *posting)
{
    measure_samples s = { .n = 0 };
    int64_t end = measure_now(m) + (m->part_end - measure_now(m)) / 2;
    bool few = rest > 0 || measure_now(m) > m->part_end || b->trial->flows[b->part] > 1;
    double median = 0;
    for (int times = few ? MEASURE_FEW : b->last ? MEASURE_LAST : MEASURE_BATCH; m->error == GC_OK; times *= 2) {
        b->times = 1 + (times < MEASURE_SAMPLES - s.n ? times : MEASURE_SAMPLES - s.n);
        measure_batch_run(m, b, &s, rest);
        median = measure_median(s.seconds, s.n);
        if (measure_is_enough(m, b, &s, rest > 0, end))
            break;
    }
    *posting = measure_median(s.busy, s.n);
    return median;
}

/* ---- what a driver wants to know --------------------------------------------------------------------------------- */

/* PLogP: of a pair also how long a message keeps its sender and its receiver. */
static bool measure_is_curve(const measure *m, const gci_trial *trial) { return m->kind == GCI_PLOGP && trial->flows[0] == 1; }

/* o_r of a message that takes so long; 0: it is too long for that. */
static double measure_receiving(measure *m, const gci_trial *trial, int part, const gci_finding *point)
{
    measure_batch b = { .trial = trial, .part = part, .bytes = (size_t)point->bytes };
    double ns = point->seconds * (double)GCI_SECOND, ignored;
    if (b.bytes > (ns > MEASURE_LENGTHY ? MEASURE_RECV_SLOW : MEASURE_RECV_MAX))
        return 0;
    return measure_repeat(m, &b, (int64_t)(1.2 * ns) + GCI_NS_PER_MS, &ignored);
}

/* A point more, in its place. */
static double measure_point(measure *m, const gci_trial *trial, int part, size_t bytes, gci_findings *found)
{
    measure_batch b = { .trial = trial, .part = part, .bytes = bytes };
    gci_finding *point = found->point[part], more = { .bytes = bytes };
    int i = (int)found->points[part]++;
    double posting;
    more.seconds = measure_repeat(m, &b, 0, &posting);
    if (measure_is_curve(m, trial))
        more.busy = part == 0 ? posting : measure_receiving(m, trial, part, &more);
    for (; i > 0 && point[i - 1].bytes > bytes; i--)
        point[i] = point[i - 1];
    point[i] = more;
    return more.seconds;
}

/* Halves the gap before the first point that its neighbours' straight line misses. */
static bool measure_bend(const gci_findings *found, int part, size_t *bytes)
{
    const gci_finding *p = found->point[part];
    for (int i = 2; i < found->points[part]; i++) {
        double before = (double)(p[i - 1].bytes - p[i - 2].bytes), after = (double)(p[i].bytes - p[i - 1].bytes);
        double straight = p[i - 1].seconds + (p[i - 1].seconds - p[i - 2].seconds) * after / before;
        double off = p[i].seconds - straight;
        if ((off < 0 ? -off : off) > 2 * MEASURE_NARROW * p[i].seconds && p[i].bytes > 2 * p[i - 1].bytes) {
            *bytes = (size_t)(p[i].bytes + p[i - 1].bytes) / 2;
            return true;
        }
    }
    return false;
}

/* What was long enough, and not too long, to tell the rate of a part. */
static const gci_finding *measure_told(const gci_findings *found, int part)
{
    return &found->point[part][found->points[part] > 2 ? found->points[part] - 2 : 1];
}

/* It is so for the next part too. But that way may be far slower: a single message shows it. */
static size_t measure_known(measure *m, const gci_trial *trial, int part, const gci_findings *found)
{
    const gci_finding *known = measure_told(found, 0), *last = measure_told(found, part - 1);
    known = last->bytes < known->bytes ? last : known;
    size_t bytes = (size_t)known->bytes;
    if (measure_is_curve(m, trial))
        bytes = gci_max(gci_min(bytes, MEASURE_RECV_MAX), MEASURE_FIRST);
    measure_batch one = { .trial = trial, .part = part, .times = 1, .bytes = bytes };
    measure_samples none = { .n = 0 };
    if (part > 1 || bytes <= MEASURE_CHEAP || measure_batch_run(m, &one, &none, 0) < MEASURE_LONG * known->seconds)
        return bytes;
    return MEASURE_FIRST;
}

/* The empty message, which is the same in all parts or near enough. Returns how long the next one is to be. */
static size_t measure_empty(measure *m, const gci_trial *trial, int part, gci_findings *found)
{
    gci_finding *empty = found->point[part];
    if (part == 0) {
        measure_point(m, trial, part, 1, found);
        return MEASURE_FIRST;
    }
    *empty = found->point[0][0];
    found->points[part] = 1;
    if (measure_is_curve(m, trial))
        empty->busy = measure_receiving(m, trial, part, empty);
    return measure_known(m, trial, part, found);
}

/* How many bytes tell the rate, if so many take so long. */
static size_t measure_full(double empty, size_t bytes, double seconds)
{
    double more = (MEASURE_LONG - 1) * empty, per_byte = (seconds - empty) / (double)bytes;
    more = gci_max_real(gci_max_real(more, MEASURE_SEEN - empty), gci_min_real(MEASURE_TRAIN * per_byte, MEASURE_TRAIN_S));
    return more < per_byte * MEASURE_BUFFER ? (size_t)(more / per_byte) : MEASURE_BUFFER;
}

/* A straight line: an empty message; one that is just long enough to tell how long those have to be that tell the rate; of these,
 * if they are longer, one that has its full length, and a shorter one. */
static void measure_line(measure *m, const gci_trial *trial, int part, gci_findings *found)
{
    bool pair = trial->flows[part] == 1;
    size_t bytes = measure_empty(m, trial, part, found);
    double empty = found->point[part][0].seconds, seconds = measure_point(m, trial, part, bytes, found);
    while (seconds < MEASURE_VISIBLE * empty && bytes <= MEASURE_BUFFER / MEASURE_JUMP && m->error == GC_OK)
        seconds = measure_point(m, trial, part, bytes *= MEASURE_JUMP, found);
    size_t full = measure_full(empty, bytes, seconds), less = full / (pair ? 4 : 2);
    if (less > 2 * bytes && m->error == GC_OK)
        measure_point(m, trial, part, less, found);
    while (full > bytes + bytes / 4 && found->points[part] < GCI_TRIAL_POINTS - 1 && m->error == GC_OK) {
        seconds = measure_point(m, trial, part, full, found);
        bytes = full;
        full = seconds < MEASURE_SEEN / 2 ? measure_full(empty, bytes, seconds) : bytes;    /* the one before was disturbed */
    }
}

/* PLogP's curve: the points of a straight line, one within the first packet, and more between those where it bends. */
static void measure_curve(measure *m, const gci_trial *trial, int part, gci_findings *found)
{
    size_t between = MEASURE_WITHIN;
    measure_line(m, trial, part, found);
    do
        measure_point(m, trial, part, between, found);
    while (found->points[part] < GCI_TRIAL_POINTS && m->error == GC_OK && measure_now(m) < m->part_end &&
           measure_bend(found, part, &between));
}

/* g(0): many empty messages, and one that says that the last has come. */
static void measure_gap(measure *m, const gci_trial *trial, gci_findings *found)
{
    measure_batch b = { .trial = trial, .flood = true, .bytes = 1 };
    double posting, all = measure_repeat(m, &b, 0, &posting);
    double gap = (all - found->point[0][0].seconds) / (MEASURE_FLOOD - 1);
    found->gap = gci_max_real(gap, 0);
}

/* An empty message again. What runs beside a trial mostly takes less time, and is over now. */
static void measure_latency(measure *m, const gci_trial *trial, gci_findings *found)
{
    measure_batch b = { .trial = trial, .last = true, .bytes = 1 };
    double posting, seconds = measure_repeat(m, &b, 0, &posting);
    for (int part = 0; part < trial->parts && m->error == GC_OK; part++)
        found->point[part][0].seconds = gci_min_real(seconds, found->point[part][0].seconds);
}

static void measure_drive(measure *m, const gci_trial *trial, gci_findings *found)
{
    int parts = trial->parts;
    bool curve = measure_is_curve(m, trial);
    for (int part = 0; part < parts && m->error == GC_OK; part++) {
        int64_t now = measure_now(m);
        m->part_end = now + (m->round_end - now) / (parts - part);
        if (curve)
            measure_curve(m, trial, part, found);
        else
            measure_line(m, trial, part, found);
    }
    m->part_end = m->round_end;
    if (trial->flows[0] == 1 && m->error == GC_OK)
        measure_latency(m, trial, found);
    if (curve && m->error == GC_OK)
        measure_gap(m, trial, found);
    int error = m->error;
    m->error = GC_OK;                   /* those who can hear it are to hear that it is over */
    gci_enter(m->comm->world);
    measure_tell(m, &(measure_batch){ .trial = trial });
    gci_leave(m->comm->world);
    m->error = error < 0 ? error : m->error;
}

/* ---- who follows ------------------------------------------------------------------------------------------------- */

/* What this rank hears, or sends then: messages, or that it may begin and that they have come. */
static void measure_follow_post(measure *m, const measure_batch *b, int time, bool hears, unsigned char ack[])
{
    int me = m->comm->rank, driver = b->trial->driver;
    for (int i = 0; i < b->trial->flows[b->part]; i++) {
        gci_flow flow = b->trial->flow[b->part][i];
        bool whole = flow.to == me ? hears : !hears;
        if (flow.to != me && flow.from != me)
            continue;
        int other = flow.to == me ? flow.from : flow.to;
        for (int k = 0; k < (b->flood && hears ? MEASURE_FLOOD : 1); k++)
            measure_post(m, hears, whole ? (void *)m->buf : &ack[i], whole ? b->bytes : 1, whole ? other : driver,
                         measure_nth(b, time, i));
    }
}

/* The next receives stand before the driver can know that this time is over. */
static void measure_follow_batch(measure *m, const measure_batch *b)
{
    unsigned char in[GCI_TRIAL_FLOWS], out[GCI_TRIAL_FLOWS] = { 0 };
    measure_follow_post(m, b, 0, true, in);
    for (int i = 0; i < b->times && m->error == GC_OK; i++) {
        measure_wait(m);
        if (i + 1 < b->times)
            measure_follow_post(m, b, i + 1, true, in);
        measure_follow_post(m, b, i, false, out);
    }
    measure_wait(m);
}

static void measure_follow(measure *m, const gci_trial *trial)
{
    unsigned char order[MEASURE_ORDER];
    measure_batch b = { .trial = trial, .times = 1 };
    gci_enter(m->comm->world);
    while (b.times > 0 && m->error == GC_OK) {
        measure_post(m, true, order, sizeof order, trial->driver, 0);
        measure_wait(m);
        if (m->error < 0)
            break;
        b.part = (int)gci_get32(order);
        b.flood = b.part == GCI_TRIAL_PARTS;
        b.part = b.flood ? 0 : b.part;
        b.bytes = gci_get32(order + 4);
        b.times = (int)gci_get32(order + 8);
        b.nth = gci_get32(order + 12);
        if (b.part < 0 || b.part >= trial->parts || b.bytes > MEASURE_BUFFER || b.times < 0 ||
            b.times > 1 + MEASURE_SAMPLES || (b.flood && trial->flows[0] > 1))
            measure_note(m, GC_ERR_PROTOCOL, trial->driver);
        else if (b.times > 0)
            measure_follow_batch(m, &b);
    }
    gci_leave(m->comm->world);
}

/* ---- rounds ------------------------------------------------------------------------------------------------------ */

/* What rank 0 tells at the beginning of a round: 4 bytes each, the doubles 8. */
typedef struct measure_word { int32_t error, fault, kind; uint32_t tag; double seconds, given; } measure_word;

static void measure_put_word(uint8_t to[MEASURE_WORD], const measure_word *word)
{
    gci_put32(to, (uint32_t)word->error);
    gci_put32(to + 4, (uint32_t)word->fault);
    gci_put32(to + 8, (uint32_t)word->kind);
    gci_put32(to + 12, word->tag);
    gci_put_real(to + 16, word->seconds);
    gci_put_real(to + 24, word->given);
}

static measure_word measure_get_word(const uint8_t from[MEASURE_WORD])
{
    return (measure_word){ .error = (int32_t)gci_get32(from), .fault = (int32_t)gci_get32(from + 4),
                           .kind = (int32_t)gci_get32(from + 8), .tag = gci_get32(from + 12),
                           .seconds = gci_get_real(from + 16), .given = gci_get_real(from + 24) };
}

/* What a driver has found, in numbers of 8 bytes: the gap; of each part how many points it has, and room for all. */
static void measure_put_found(uint8_t to[MEASURE_FOUND], const gci_findings *found)
{
    gci_put_real(to, found->gap);
    to += 8;
    for (int part = 0; part < GCI_TRIAL_PARTS; part++, to += 8 + MEASURE_POINT * GCI_TRIAL_POINTS) {
        gci_put64(to, (uint64_t)found->points[part]);
        for (int i = 0; i < GCI_TRIAL_POINTS; i++) {
            uint8_t *at = to + 8 + MEASURE_POINT * i;
            gci_put64(at, found->point[part][i].bytes);
            gci_put_real(at + 8, found->point[part][i].seconds);
            gci_put_real(at + 16, found->point[part][i].busy);
        }
    }
}

static void measure_get_found(const uint8_t from[MEASURE_FOUND], gci_findings *found)
{
    found->gap = gci_get_real(from);
    from += 8;
    for (int part = 0; part < GCI_TRIAL_PARTS; part++, from += 8 + MEASURE_POINT * GCI_TRIAL_POINTS) {
        found->points[part] = (int64_t)gci_get64(from);
        for (int i = 0; i < GCI_TRIAL_POINTS; i++) {
            const uint8_t *at = from + 8 + MEASURE_POINT * i;
            found->point[part][i] = (gci_finding){ gci_get64(at), gci_get_real(at + 8), gci_get_real(at + 16) };
        }
    }
}

static bool measure_takes_part(const gci_trial *trial, int rank)
{
    bool takes = trial->driver == rank;
    for (int part = 0; part < trial->parts; part++)
        for (int i = 0; i < trial->flows[part]; i++)
            takes |= trial->flow[part][i].from == rank || trial->flow[part][i].to == rank;
    return takes;
}

static void measure_trial(measure *m, int first, int end, gci_findings *found)
{
    const gci_trial *trial = m->trials.trial;
    for (int i = first; i < end; i++) {
        if ((m->is_short && trial[i].optional) || !measure_takes_part(&trial[i], m->comm->rank))
            continue;
        m->nth = (uint32_t)trial[i].round << 16;
        if (trial[i].driver == m->comm->rank)
            measure_drive(m, &trial[i], found);
        else
            measure_follow(m, &trial[i]);
    }
}

/* Whatever a rank says, it fits in. */
static bool measure_is_sane(const gci_trial *trial, const gci_findings *found)
{
    bool sane = found->gap >= 0 && found->gap <= MEASURE_LONGEST;
    for (int part = 0; part < GCI_TRIAL_PARTS; part++) {
        int64_t n = found->points[part];
        sane &= n >= 0 && n <= (part < trial->parts ? GCI_TRIAL_POINTS : 0);
        for (int64_t i = 0; sane && i < n; i++) {
            const gci_finding *p = &found->point[part][i];
            sane = p->bytes <= MEASURE_BUFFER && (i == 0 || p->bytes > p[-1].bytes) && p->seconds >= 0 &&
                   p->seconds <= MEASURE_LONGEST && p->busy >= 0 && p->busy <= MEASURE_LONGEST;
        }
    }
    return sane;
}

/* In place of the next collective call, which then fails everywhere, and before that whoever waits for this rank. */
static int measure_give_up(measure *m)
{
    gc_request *request;
    const gci_coll_args args = { .call = { .coll = GCI_GATHER, .rank = m->comm->rank, .ranks = m->comm->size }, .error = m->error };
    return gci_coll_start(m->comm, &args, &request);
}

/* What the drivers of the trials first .. end - 1 have found, at rank 0. all: room for that of every rank. */
static int measure_collect(measure *m, int first, int end, const gci_findings *found, uint8_t all[], size_t sizes[])
{
    uint8_t own[MEASURE_FOUND];
    int ranks = m->comm->size;
    bool root = m->comm->rank == 0;
    size_t *at = root ? sizes + ranks : NULL, mine = 0;
    measure_put_found(own, found);
    for (int i = 0; root && i < ranks; i++) {
        sizes[i] = 0;
        at[i] = (size_t)i * MEASURE_FOUND;
    }
    for (int i = first; i < end; i++) {
        int driver = m->trials.trial[i].driver;
        if (root)
            sizes[driver] = MEASURE_FOUND;
        mine = driver == m->comm->rank ? MEASURE_FOUND : mine;
    }
    int err = m->error < 0 ? measure_give_up(m) : gc_gatherv(m->comm, own, mine, all, sizes, at, 0);
    for (int i = first; err == GC_OK && root && i < end; i++) {
        int driver = m->trials.trial[i].driver;
        measure_get_found(all + at[driver], &m->found[i]);
        if (!measure_is_sane(&m->trials.trial[i], &m->found[i]))
            measure_note(m, GC_ERR_PROTOCOL, driver);
    }
    return err;
}

/* Rank 0 says whether to go on (GC_OK, MEASURE_SHORT, MEASURE_ENOUGH or an error), and for how long. When there is no time for
 * a round as long as the longest yet, only what is needed goes on, which is mostly short, for a tenth of the time at most. */
static int measure_decide(measure *m, int round)
{
    const gci_trials *t = &m->trials;
    int64_t now = measure_now(m), given = (int64_t)(m->seconds * (double)GCI_SECOND), end = m->begun + given;
    if (m->comm->rank == 0 && now > end + given / 10 && round < t->needed)
        measure_note(m, GC_ERR_TIMEOUT, -1);
    m->longest = m->is_short ? m->longest : gci_max64(m->longest, now - m->round_begun);
    m->is_short |= now + m->longest > end;
    bool enough = round == t->rounds || (m->is_short && round >= t->needed);
    int go_on = enough ? MEASURE_ENOUGH : m->is_short ? MEASURE_SHORT : GC_OK;
    measure_word word = { .error = m->error < 0 ? m->error : go_on, .fault = m->fault, .kind = (int32_t)m->kind, .tag = m->tag,
                          .seconds = (double)(end - now) / (double)GCI_SECOND / gci_max32(t->rounds - round, 1),
                          .given = m->seconds };
    uint8_t told[MEASURE_WORD];
    measure_put_word(told, &word);
    int err = gc_bcast(m->comm, told, sizeof told, 0);
    word = measure_get_word(told);
    if (err == GC_OK && !(word.seconds >= -2 * MEASURE_LONGEST && word.seconds <= MEASURE_LONGEST && word.given > 0 &&
                          word.given <= MEASURE_LONGEST))
        err = gci_fail(m->comm, GC_ERR_PROTOCOL, 0, "gc_model_measure: %s", gc_strerror(GC_ERR_PROTOCOL));
    if (err < 0)
        return err;
    m->kind = (enum gci_model_kind)word.kind;
    m->tag = word.tag;
    m->seconds = word.given;
    m->is_short = word.error == MEASURE_SHORT;
    m->round_begun = measure_now(m);
    m->round_end = m->round_begun + (int64_t)(word.seconds * (double)GCI_SECOND);
    if (word.error < 0)
        return gci_fail(m->comm, word.error, word.fault, "gc_model_measure: %s", gc_strerror(word.error));
    return word.error;
}

/* Whoever cannot give or get the reports goes on all the same, until rank 0 says otherwise: nobody is to wait for him. */
static int measure_rounds(measure *m, uint8_t all[], size_t sizes[])
{
    const gci_trials *t = &m->trials;
    int err = GC_OK;
    for (int round = 0, first = 0, end = 0; ; round++, first = end) {
        while (end < t->n && t->trial[end].round == round)
            end++;
        err = measure_decide(m, round);
        if (err < 0 || err == MEASURE_ENOUGH)
            break;
        gci_findings found = { .gap = 0 };
        measure_trial(m, first, end, &found);
        measure_note(m, measure_collect(m, first, end, &found, all, sizes), -1);
    }
    return err == MEASURE_ENOUGH ? GC_OK : err;
}

/* ---- the model --------------------------------------------------------------------------------------------------- */

/* s/byte of this processor's sums and copies. */
static void measure_processor(const measure *m, gc_model *model)
{
    enum { HALF = MEASURE_BUFFER / 8, TURNS = 5 };
    double add[TURNS], copy[TURNS];
    for (int i = 0; i < TURNS; i++) {
        int64_t start = measure_now(m);
        gci_op_apply(GC_SUM, GC_INT32, m->buf, m->buf + HALF, HALF / sizeof(int32_t));
        int64_t middle = measure_now(m);
        memcpy(m->buf, m->buf + HALF, HALF);
        add[i] = (double)(middle - start) / (double)GCI_SECOND / HALF;
        copy[i] = (double)(measure_now(m) - middle) / (double)GCI_SECOND / HALF;
    }
    model->reduce = measure_median(add, TURNS);
    model->copy = measure_median(copy, TURNS);
}

static int measure_text(const measure *m, char **text, size_t *bytes)
{
    gci_env plain = { .alloc = NULL };
    gc_model *model = NULL;
    int err = gci_trials_fit(m->env, &m->trials, m->found, m->kind, &model);
    if (err < 0)
        return err;
    measure_processor(m, model);
    err = gci_model_write(m->env, model, text, bytes);
    gci_model_drop(&plain, model);
    return err;
}

/* Rank 0's model becomes everybody's, as text: the same numbers on any processor. */
static int measure_share(measure *m, gc_model **out)
{
    gci_env plain = { .alloc = NULL };
    char *text = NULL, why[GCI_TEXT];
    size_t bytes = 0;
    int err = m->comm->rank == 0 ? measure_text(m, &text, &bytes) : GC_OK;
    err = gci_share_text(m->comm, measure_call, err, &text, &bytes);
    err = gci_agree(m->comm, measure_call, err < 0 ? err : gci_model_read(&plain, text, bytes, out, why));
    gci_free(m->env, text);
    if (err < 0) {
        gci_model_drop(&plain, *out);
        *out = NULL;
    }
    return err;
}

/* ---- the call ---------------------------------------------------------------------------------------------------- */

static int measure_all(measure *m, gc_model **out)
{
    size_t ranks = (size_t)m->comm->size;
    bool root = m->comm->rank == 0;
    const gci_clusters *clusters = gci_coll_clusters(m->comm);
    int err = clusters ? gci_trials_make(m->env, clusters, &m->trials) : GC_ERR_NOMEM;
    m->buf = gci_alloc(m->env, MEASURE_BUFFER);
    m->found = root ? gci_alloc(m->env, ((size_t)m->trials.n + 1) * sizeof *m->found) : NULL;
    uint8_t *all = root ? gci_alloc(m->env, ranks * MEASURE_FOUND) : NULL;
    size_t *sizes = root ? gci_alloc(m->env, 2 * ranks * sizeof *sizes) : NULL;
    if (!m->buf || (root && (!m->found || !all || !sizes)))
        err = GC_ERR_NOMEM;
    err = gci_agree(m->comm, measure_call, err);
    m->begun = m->round_begun = measure_now(m);     /* all are here */
    if (err == GC_OK)
        err = measure_rounds(m, all, sizes);
    if (err == GC_OK)
        err = measure_share(m, out);
    gci_trials_free(m->env, &m->trials);
    gci_free(m->env, m->buf);
    gci_free(m->env, m->found);
    gci_free(m->env, all);
    gci_free(m->env, sizes);
    return err;
}

int gc_model_measure(gc_comm *comm, const char *kind, double max_seconds, gc_model **model)
{
    if (model)
        *model = NULL;
    if (!comm)
        return GC_ERR_ARG;
    bool plogp = kind && strcmp(kind, "plogp") == 0;
    if (!model || !kind || (!plogp && strcmp(kind, "hockney") != 0))
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_model_measure: %s", model ? "no such kind of model" : "model is NULL");
    if (!(max_seconds > 0 && max_seconds <= MEASURE_LONGEST))
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_model_measure: max_seconds is not in 0 .. %.0f", MEASURE_LONGEST);
    gci_env *env = &comm->world->env;
    measure *m = gci_alloc(env, sizeof *m);
    if (!m)
        return gci_agree(comm, measure_call, GC_ERR_NOMEM);
    m->comm = comm;
    m->env = env;
    m->kind = plogp ? GCI_PLOGP : GCI_HOCKNEY;
    m->seconds = max_seconds;
    m->fault = m->hint = -1;
    m->tag = (uint32_t)gci_mix((uint64_t)measure_now(m)) & GC_TAG_MAX;
    int err = measure_all(m, model);
    gci_free(env, m);
    return err;
}
