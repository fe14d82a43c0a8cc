/* chaos.c: goes through a plan, and checks every byte and every error.
 * SPDX-License-Identifier: MIT
 *
 * A round has four parts at each rank: receives are posted; everything is sent, and collectives are begun; what blocks is done;
 * and all of it is completed. A part waits for nothing that others do in a later part, so nothing can hang but the library. The
 * receives of a rank in a round of a communicator take as many messages as it gets there, whichever come first. One from any
 * source that a death has ended is made up for by others that name their sources.
 *
 * What may fail: an operation with a rank that the plan has killed or cut off by then, a collective or a receive from any source
 * if that is so for any rank of its communicator; what was cancelled; anything once somebody has called gc_abort. A rank is cut
 * off from another once no path of pairs that can connect joins the two, without those that a long cut has parted.
 *
 * Ranks agree on what is nobody's business here (was a communicator made at all living ranks? is everybody through?) by shared
 * memory, looking now and then, so that no message is needed for it.
 */
#include "chaos.h"

#include "simnet.h"

#include <stdarg.h>
#include <stdlib.h>

#define CHAOS_MS INT64_C(1000000)
enum { CHAOS_VIRTUAL_LIMIT_S = 400, CHAOS_REAL_LIMIT_S = 120, CHAOS_DOING = 160, CHAOS_SHRINKS = CHAOS_RANKS + 2,
       CHAOS_SURVIVOR_COLLS = 6 };

enum chaos_made { CHAOS_NOT_YET, CHAOS_MADE, CHAOS_NOT_MADE };

typedef struct chaos_job {
    const chaos_plan *p;
    chaos_result *result;
    sim      *s;
    sim_proc *procs[CHAOS_RANKS];
    int64_t   base;                                     /* event times count from here */
    bool      bad, aborted;
    /* as far as events have been looked at */
    int       seen;
    bool      dead[CHAOS_RANKS], mute[CHAOS_RANKS], cut[CHAOS_RANKS][CHAOS_RANKS];  /* cut: of hosts */
    bool      unheard[CHAOS_RANKS];                     /* hosts of which others have heard nothing, though they heard the others */
    bool      lost[CHAOS_RANKS][CHAOS_RANKS];           /* may have taken each other for dead, for good */
    int64_t   last_death;
    /* agreed on in shared memory */
    enum chaos_made made[CHAOS_COMMS][CHAOS_RANKS], verdict[CHAOS_COMMS];
    unsigned  members[CHAOS_SHRINKS][CHAOS_RANKS];      /* of what gc_comm_shrink gave each: a bit for each rank of the world */
    enum chaos_made worked[CHAOS_SHRINKS][CHAOS_RANKS], all_worked[CHAOS_SHRINKS][CHAOS_RANKS];    /* the latter of its lowest member */
    bool      through[CHAOS_RANKS], leaving;           /* somebody has left: more may be cut off by that */
    char      doing[CHAOS_RANKS][CHAOS_DOING];
} chaos_job;

enum chaos_what { CHAOS_GIVE, CHAOS_TAKE, CHAOS_COLL };
typedef struct chaos_pending {
    enum chaos_what what;
    int         index, due;             /* of the message or collective; the round that completes it */
    gc_request *request;
    void       *buf;
    size_t      room;
    chaos_buffers b;
    gc_status   status;
    int         code;
    bool        done, judged, any_source;
    bool        exact;                  /* names source and tag, whatever the others of its round do */
    bool        doomed;                 /* whom it needs was known dead when it began */
} chaos_pending;

typedef struct chaos_rank {
    chaos_job *job;
    const chaos_plan *p;
    int        rank;                    /* in the world */
    gc_comm   *comm[CHAOS_COMMS];       /* that can be used */
    chaos_pending *pending;
    int        pendings;
    bool      *got;                     /* of each message */
    uint64_t   dice;
} chaos_rank;

static const char *chaos_what_name(enum chaos_what what)
{
    static const char *const name[] = { "send", "receive", "collective" };
    return name[what];
}

static void __attribute__((format(printf, 2, 3))) chaos_doing(chaos_rank *r, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    vsnprintf(r->job->doing[r->rank], CHAOS_DOING, format, list);
    va_end(list);
}

/* ---- causes ---- */

/* Can the two still find each other? Who is heard no more by its neighbours, but hears them, knows of it later than they, and by then
 * may be given up: so others must be able to dial it. */
static bool chaos_finds(const chaos_job *j, int a, int b)
{
    const chaos_plan *p = j->p;
    bool to = p->dials[a][b], from = p->dials[b][a];
    return !j->dead[a] && !j->dead[b] && !j->mute[a] && !j->mute[b] && !j->cut[p->host[a]][p->host[b]] &&
           (to || from) && (from || !j->unheard[p->host[a]]) && (to || !j->unheard[p->host[b]]);
}

/* Who is out of whose reach in what is left of the network now: for good. */
static void chaos_spread(chaos_job *j)
{
    const chaos_plan *p = j->p;
    for (int from = 0; from < p->ranks; from++) {
        bool near[CHAOS_RANKS] = { false };
        int queue[CHAOS_RANKS], n = 0;
        near[from] = true;
        queue[n++] = from;
        for (int i = 0; i < n && !j->dead[from]; i++) {
            for (int to = 0; to < p->ranks; to++) {
                if (!near[to] && chaos_finds(j, queue[i], to)) {
                    near[to] = true;
                    queue[n++] = to;
                }
            }
        }
        for (int to = 0; to < p->ranks; to++) {
            j->lost[from][to] |= !near[to];
            j->lost[from][from] |= !near[to] && !j->dead[to];       /* somebody may say so of this one */
        }
    }
}

static void chaos_look(chaos_job *j)
{
    const chaos_plan *p = j->p;
    int64_t since = sim_now(j->s) - j->base;
    bool changed = false;
    for (; j->seen < p->events && p->event[j->seen].at <= since; j->seen++) {
        const gct_event *e = &p->event[j->seen];
        if ((e->what == GCT_CUT || e->what == GCT_CUT_WAY) && p->severe[j->seen]) {     /* for good: a link that is down stays so */
            changed = j->cut[p->host[e->a]][p->host[e->b]] = j->cut[p->host[e->b]][p->host[e->a]] = true;
            j->unheard[p->host[e->a]] |= e->what == GCT_CUT_WAY;
        }
        for (int i = 0; i < p->ranks && e->what == GCT_CUT_CARD && p->severe[j->seen]; i++) {
            if (p->place[i] == p->place[e->a] && p->host[i] != p->host[e->a]) {
                changed = j->cut[p->host[e->a]][p->host[i]] = j->cut[p->host[i]][p->host[e->a]] = true;
            }
        }
        if (e->what == GCT_STOP || e->what == GCT_CONTINUE) {
            changed |= p->severe[j->seen];
            j->mute[e->a] = p->severe[j->seen];
        }
        if ((e->what == GCT_RESET && !e->purpose) || e->what == GCT_FORGET) {
            j->last_death = e->at;      /* whose connection ends may live */
        }
        for (int i = 0; i < p->ranks; i++) {
            bool dies = e->what == GCT_KILL ? i == e->a : e->what == GCT_KILL_HOST && p->host[i] == p->host[e->a];
            if (dies && !j->dead[i]) {
                j->dead[i] = changed = true;
                j->last_death = e->at;
            }
        }
        if (changed) {
            chaos_spread(j);
        }
    }
}

static bool chaos_lost(chaos_rank *r, int other)
{
    chaos_look(r->job);
    return r->job->lost[r->rank][other];
}

static int chaos_bad(chaos_rank *r)
{
    r->job->bad = true;
    if (r->comm[0]) {
        gc_abort(r->comm[0], 1);
    }
    return 1;
}

/* May an operation with `peer` of these ranks of the world (-1: with all of them) end like this? 0, or 1 and a line. */
static int chaos_judge_among(chaos_rank *r, const int *ranks, int size, int peer, int code, int fault)
{
    bool cause = false;
    r->job->result->operations++;
    if (!code || r->job->bad) {
        return 0;
    }
    r->job->result->failed_operations++;
    if (code == GC_ERR_ABORTED && r->job->aborted) {
        return 0;
    }
    for (int i = 0; i < size; i++) {
        cause |= (peer < 0 || peer == i) && chaos_lost(r, ranks[i]);
    }
    gct_require((code == GC_ERR_PEER || code == GC_ERR_UNREACHABLE) && cause, "%s: an error without a cause: %s, blames %d",
                r->job->doing[r->rank], gc_strerror(code), fault);
    gct_require(fault < 0 || (fault < size && chaos_lost(r, ranks[fault])), "%s: %s, and %d is blamed, who is fine",
                r->job->doing[r->rank], gc_strerror(code), fault);
    gct_require(fault < 0 || peer < 0 || fault == peer, "%s: an operation with %d, and %d is blamed", r->job->doing[r->rank], peer, fault);
    return 0;
}

static int chaos_judge(chaos_rank *r, int comm, int peer, int code, int fault)
{
    return chaos_judge_among(r, r->p->comm[comm].ranks, r->p->comm[comm].size, peer, code, fault);
}

/* Has this rank been told of a death that no later operation with `peer` (-1: with all) may survive? */
static bool chaos_is_told(gc_comm *comm, int peer)
{
    int failed[CHAOS_RANKS], n = gc_comm_failed(comm, failed, CHAOS_RANKS);
    bool told = peer < 0 && n > 0;
    for (int i = 0; i < n && i < CHAOS_RANKS; i++) {
        told |= failed[i] == peer;
    }
    return told;
}

/* Every death must be known in time; nobody may be taken for dead without a cause. One whose neighbours are dead as well is known
 * dead with the last of them. */
static int chaos_known(chaos_rank *r)
{
    int failed[CHAOS_RANKS], n;
    (void)gc_progress(r->comm[0]);
    n = gc_comm_failed(r->comm[0], failed, CHAOS_RANKS);
    bool is_failed[CHAOS_RANKS] = { false };
    chaos_look(r->job);
    if (r->job->bad || r->job->aborted) {
        return 0;
    }
    for (int i = 0; i < n && i < CHAOS_RANKS; i++) {
        is_failed[failed[i]] = true;
        gct_require(chaos_lost(r, failed[i]) || r->job->leaving, "%.6f s: rank %d is taken for dead",
                    (double)(sim_now(r->job->s) - r->job->base) / 1e9, failed[i]);
    }
    int64_t grace = (int64_t)(r->p->peer_timeout * 1e9) + GCI_SECOND + 2 * r->p->away + 60 * CHAOS_MS;     /* and a look now and then */
    for (int i = 0; i < r->p->ranks; i++) {
        int64_t since = sim_now(r->job->s) - r->job->base - r->job->last_death;
        gct_require(!r->job->dead[i] || is_failed[i] || since <= grace, "rank %d died %.3f s ago, and nobody has told", i,
                    (double)since / 1e9);
    }
    return 0;
}

/* ---- messages ---- */

/* A message to oneself goes, is taken, and may be made up for. */
enum { CHAOS_REQUESTS = 3 * CHAOS_MESSAGES + CHAOS_COLLS };

static int chaos_key(const chaos_plan *p, const chaos_message *m)
{
    return (int)(chaos_hash(p->seed, (uint64_t)(m->comm << 16 | m->source << 8 | m->dest), (uint64_t)m->tag, (uint64_t)m->number) &
                 INT32_MAX);
}

static chaos_pending *chaos_pend(chaos_rank *r, enum chaos_what what, int index, int due)
{
    chaos_pending *q = &r->pending[r->pendings++];
    *q = (chaos_pending){ .what = what, .index = index, .due = due };
    return q;
}

/* Could a receive that is meant for m take o? */
static bool chaos_fits(const chaos_plan *p, const chaos_message *m, const chaos_message *o)
{
    enum chaos_mode mode = chaos_mode(p, m->comm, m->round, m->dest);
    return o->comm == m->comm && o->round == m->round && o->dest == m->dest &&
           (mode == CHAOS_ANY_SOURCE || mode == CHAOS_ANY || o->source == m->source) &&
           (mode == CHAOS_ANY_TAG || mode == CHAOS_ANY || o->tag == m->tag);
}

static size_t chaos_room(const chaos_plan *p, int index)
{
    const chaos_message *m = &p->message[index];
    size_t most = 0;
    for (int i = 0; i < p->messages; i++) {
        most = chaos_fits(p, m, &p->message[i]) && p->message[i].bytes > most ? p->message[i].bytes : most;
    }
    return chaos_hash(p->seed, (uint64_t)index, 0, 41) % 16 ? most : most / 2;
}

static void chaos_pattern(const chaos_plan *p, const chaos_message *m, int *source, int *tag)
{
    enum chaos_mode mode = chaos_mode(p, m->comm, m->round, m->dest);
    *source = mode == CHAOS_ANY_SOURCE || mode == CHAOS_ANY ? GC_ANY_SOURCE : m->source;
    *tag = mode == CHAOS_ANY_TAG || mode == CHAOS_ANY ? GC_ANY_TAG : m->tag;
}

/* Is this what has come, as far as there was room? */
static bool chaos_is(const chaos_plan *p, const chaos_message *m, const void *buf, size_t room, int code, const gc_status *s)
{
    size_t bytes = m->bytes < room ? m->bytes : room;
    if (s->bytes != bytes || code != (room < m->bytes ? GC_ERR_TRUNCATE : GC_OK)) {
        return false;
    }
    uint8_t *whole = gct_buffer(m->bytes);
    gct_fill(whole, m->bytes, chaos_key(p, m), m->tag);
    bool same = !bytes || memcmp(whole, buf, bytes) == 0;
    return !gct_buffer_free(whole) && same;
}

/* A message has come into buf: the first of its source that has not come yet and fits the receive (exact: one of its own tag). Of
 * a sender that has died one may be lost with the receive that had it, and those behind it still come. */
static int chaos_received(chaos_rank *r, const chaos_message *wanted, bool exact, const void *buf, size_t room, int code,
                          const gc_status *s)
{
    const chaos_plan *p = r->p;
    for (int i = 0; i < p->messages; i++) {
        const chaos_message *m = &p->message[i];
        if (!chaos_fits(p, wanted, m) || m->source != s->source || r->got[i]) {
            continue;
        }
        bool lost = r->job->aborted || chaos_lost(r, p->comm[m->comm].ranks[m->source]);
        if (m->tag != s->tag) {
            gct_require(lost || exact, "%s: %d with tag %d overtakes message %d with tag %d", r->job->doing[r->rank], s->source, s->tag,
                        i, m->tag);
            continue;
        }
        bool same = chaos_is(p, m, buf, room, code, s);
        gct_require(same || lost, "%s: %s, %zu bytes are not message %d from %d with tag %d, %zu bytes into %zu", r->job->doing[r->rank],
                    gc_strerror(code), s->bytes, i, m->source, m->tag, m->bytes, room);
        r->got[i] = true;
        if (same) {
            return gct_buffer_check(buf);
        }
    }
    return gct_fail(__FILE__, __LINE__, r->job->doing[r->rank], "a message from %d with tag %d that nobody has sent, or twice", s->source,
                    s->tag);
}

static int chaos_took(chaos_rank *r, const chaos_message *m, bool any_source, bool exact, void *buf, size_t room, int code,
                      const gc_status *s)
{
    if (!code || code == GC_ERR_TRUNCATE) {
        r->job->result->operations++;
        return r->job->bad ? 0 : chaos_received(r, m, exact, buf, room, code, s);
    }
    return chaos_judge(r, m->comm, any_source ? -1 : m->source, code, s->fault_rank);
}

/* An error that was there at once stands in no status. */
static void chaos_refused(gc_comm *comm, int code, gc_status *s)
{
    *s = (gc_status){ .fault_rank = -1, .error = code };
    if (code) {
        (void)gc_last_error(comm, s, NULL, 0);
    }
}

static int chaos_post_take(chaos_rank *r, int index)
{
    const chaos_message *m = &r->p->message[index];
    chaos_pending *q = chaos_pend(r, CHAOS_TAKE, index, m->late ? m->round + 1 + index % 3 : m->round);
    int source, tag;
    chaos_pattern(r->p, m, &source, &tag);
    q->room = chaos_room(r->p, index);
    q->buf = gct_buffer(q->room);
    q->any_source = source == GC_ANY_SOURCE;
    for (bool cancel = m->alone && chaos_hash(r->p->seed, (uint64_t)index, 0, 42) % 4 == 0;; cancel = false) {
        q->code = gc_irecv(r->comm[m->comm], q->buf, q->room, source, tag, &q->request);
        q->done = q->code != GC_OK;
        chaos_refused(r->comm[m->comm], q->code, &q->status);
        if (q->code || !cancel) {
            return 0;
        }
        chaos_doing(r, "round %d: cancels receive %d from %d", m->round, index, m->source);
        gct_ok(gc_cancel(q->request));
        q->code = gc_wait(&q->request, &q->status);
        q->done = q->code != GC_ERR_CANCELLED;
        if (q->done) {
            return 0;
        }
    }
}

static int chaos_post_give(chaos_rank *r, int index)
{
    const chaos_message *m = &r->p->message[index];
    gc_comm *comm = r->comm[m->comm];
    chaos_pending *q = chaos_pend(r, CHAOS_GIVE, index, m->late ? m->round + 1 + index % 2 : m->round);
    q->buf = gct_buffer(m->bytes);
    q->doomed = chaos_is_told(comm, m->dest);
    gct_fill(q->buf, m->bytes, chaos_key(r->p, m), m->tag);
    chaos_doing(r, "round %d: send %d (%zu bytes, communicator %d, kind %d) to %d", m->round, index, m->bytes, m->comm, m->how, m->dest);
    switch (m->how) {
    case CHAOS_SEND:   q->code = gc_send(comm, q->buf, m->bytes, m->dest, m->tag); break;
    case CHAOS_SSEND:  q->code = gc_ssend(comm, q->buf, m->bytes, m->dest, m->tag); break;
    case CHAOS_ISSEND: q->code = gc_issend(comm, q->buf, m->bytes, m->dest, m->tag, &q->request); break;
    case CHAOS_ISEND:  q->code = gc_isend(comm, q->buf, m->bytes, m->dest, m->tag, &q->request); break;
    case CHAOS_SEND_CANCELLED:
        q->code = (index % 2 ? gc_issend : gc_isend)(comm, q->buf, m->bytes, m->dest, m->tag, &q->request);
        if (!q->code) {
            gct_ok(gc_cancel(q->request));
        }
    }
    q->done = !q->request;
    if (q->done) {
        chaos_refused(comm, q->code, &q->status);
    }
    return 0;
}

/* Sends that were cancelled in time are repeated: to their receivers it makes no difference. */
static void chaos_give_again(chaos_rank *r, int round)
{
    for (int i = 0; i < r->pendings; i++) {
        chaos_pending *q = &r->pending[i];
        const chaos_message *m = &r->p->message[q->index];
        if (q->what != CHAOS_GIVE || q->done || m->round != round || m->how != CHAOS_SEND_CANCELLED) {
            continue;
        }
        chaos_doing(r, "round %d: waits for send %d, cancelled", round, q->index);
        q->code = gc_wait(&q->request, &q->status);
        if (q->code == GC_ERR_CANCELLED) {
            q->code = gc_isend(r->comm[m->comm], q->buf, m->bytes, m->dest, m->tag, &q->request);
            chaos_refused(r->comm[m->comm], q->code, &q->status);
        }
        q->done = !q->request;
    }
}

/* Until it is found, or fails. */
static int chaos_seek(chaos_rank *r, gc_comm *comm, int source, int tag, gc_message **m, gc_status *s)
{
    int code, found = 0;
    for (int64_t pause = CHAOS_MS / 10;; pause += pause < 100 * CHAOS_MS ? pause / 2 : 0) {
        code = m ? gc_improbe(comm, source, tag, m, s) : gc_iprobe(comm, source, tag, &found, s);
        if (code || found || (m && *m)) {
            return code;
        }
        sim_sleep(sim_current(), pause);
    }
    (void)r;
}

/* Receives in one of the ways that block. */
static int chaos_take(chaos_rank *r, int index)
{
    const chaos_message *m = &r->p->message[index];
    gc_comm *comm = r->comm[m->comm];
    size_t room = chaos_room(r->p, index);
    void *buf = gct_buffer(room);
    int source, tag, code = GC_OK, how = (int)(chaos_hash(r->p->seed, (uint64_t)index, 1, 43) % 6);
    bool probes = how == 1 || how == 2;
    gc_message *found = NULL;
    gc_request *request = NULL;
    gc_status s = { .fault_rank = -1 };
    chaos_pattern(r->p, m, &source, &tag);
    bool any = source == GC_ANY_SOURCE;
    chaos_doing(r, "round %d: receive %d (communicator %d, way %d) from %d, tag %d", m->round, index, m->comm, how, source, tag);
    switch (how) {
    case 1: code = gc_probe(comm, source, tag, &s); break;
    case 2: code = chaos_seek(r, comm, source, tag, NULL, &s); break;
    case 3: code = gc_mprobe(comm, source, tag, &found, &s); break;
    case 4: code = chaos_seek(r, comm, source, tag, &found, &s); break;
    default: code = gc_recv(comm, buf, room, source, tag, &s);
    }
    if (!code && probes) {
        size_t told = s.bytes;
        code = gc_recv(comm, buf, room, s.source, s.tag, &s);
        any = false;
        gct_require(code || s.bytes == told, "a probe told %zu bytes, and %zu came", told, s.bytes);
    } else if (!code && found) {
        code = how == 3 ? gc_mrecv(&found, buf, room, &s) : gc_imrecv(&found, buf, room, &request);
        code = request ? gc_wait(&request, &s) : code;
    } else if (code && code != GC_ERR_TRUNCATE) {
        chaos_refused(comm, code, &s);
    }
    int source_then = any || !code || code == GC_ERR_TRUNCATE ? -1 : source;
    int bad = !code || code == GC_ERR_TRUNCATE ? chaos_took(r, m, any, false, buf, room, code, &s)
                                               : chaos_judge(r, m->comm, source_then, code, s.fault_rank);
    return bad | gct_buffer_free(buf);
}

/* ---- completion ---- */

static int chaos_pending_judge(chaos_rank *r, chaos_pending *q)
{
    const chaos_plan *p = r->p;
    int bad = 0;
    q->judged = true;
    if (q->what == CHAOS_COLL) {
        const chaos_coll *c = &p->coll[q->index];
        chaos_doing(r, "round %d: %s %d (%zu bytes) of communicator %d", c->round, chaos_coll_name(c->kind), q->index, c->bytes, c->comm);
        bad = chaos_judge(r, c->comm, -1, q->code, q->status.fault_rank);
        gct_require(q->code || !q->doomed, "%s: went well with the dead", r->job->doing[r->rank]);
        if (!q->code && !bad && !r->job->bad) {
            bad = chaos_coll_check(p, c, gc_rank(r->comm[c->comm]), gc_size(r->comm[c->comm]), &q->b);
        }
        return bad | gct_buffer_free(q->b.send) | gct_buffer_free(q->b.recv);
    }
    const chaos_message *m = &p->message[q->index];
    chaos_doing(r, "round %d: %s %d (%zu bytes) of communicator %d", m->round, chaos_what_name(q->what), q->index,
                m->bytes, m->comm);
    gct_require(q->code || !q->doomed, "%s: went well with the dead", r->job->doing[r->rank]);
    bad = q->what == CHAOS_TAKE ? chaos_took(r, m, q->any_source, q->exact, q->buf, q->room, q->code, &q->status)
                                : chaos_judge(r, m->comm, m->dest, q->code, q->status.fault_rank);
    return bad | gct_buffer_free(q->buf);
}

static void chaos_waits(chaos_rank *r, int round, const chaos_pending *q)
{
    if (q->what == CHAOS_COLL) {
        const chaos_coll *c = &r->p->coll[q->index];
        chaos_doing(r, "round %d: waits for %s %d of communicator %d", round, chaos_coll_name(c->kind), q->index, c->comm);
    } else {
        const chaos_message *m = &r->p->message[q->index];
        chaos_doing(r, "round %d: waits for %s %d of round %d: communicator %d, %d to %d, tag %d, %zu bytes, %s%s", round,
                    chaos_what_name(q->what), q->index, m->round, m->comm, m->source, m->dest, m->tag, m->bytes,
                    m->late ? "late" : m->alone ? "alone" : "", q->any_source ? "any source" : "");
    }
}

/* Waits for those that are due, or for the receives among them, in one of many ways. */
static int chaos_complete(chaos_rank *r, int round, bool receives)
{
    int n = 0, index, done = 0, way = (int)(gct_random(&r->dice) % 6);
    chaos_pending *due[CHAOS_REQUESTS];
    gc_request *request[CHAOS_REQUESTS];
    gc_status status[CHAOS_REQUESTS], one;
    for (int i = 0; i < r->pendings; i++) {
        chaos_pending *q = &r->pending[i];
        if (!q->done && q->due <= round && (!receives || q->what == CHAOS_TAKE)) {
            request[n] = q->request;
            due[n++] = q;
        }
    }
    chaos_doing(r, "round %d: completes %d requests in way %d, the first is %s %d", round, n, way,
                n ? chaos_what_name(due[0]->what) : "-", n ? due[0]->index : -1);
    if (way == 0 && n) {
        (void)gc_waitall(n, request, status);
    } else if (way == 1 && n) {
        for (int64_t pause = CHAOS_MS / 10; (void)gc_testall(n, request, &done, status), !done; pause += pause < 100 * CHAOS_MS ? pause / 2 : 0) {
            sim_sleep(sim_current(), pause);
        }
    } else if (way == 2) {
        for (int left = n; left; left--) {
            (void)gc_waitany(n, request, &index, &one);
            gct_require(index >= 0 && index < n, "gc_waitany gives %d", index);
            status[index] = one;
        }
    } else {
        for (int k = 0; k < n; k++) {
            int i = way == 3 ? n - 1 - k : k;
            chaos_waits(r, round, due[i]);
            while (way == 4 && gc_wait_for(&request[i], 0.003 * (double)(k + 1), &status[i]) == GC_ERR_TIMEOUT && request[i]) {
            }
            if (request[i] || way != 4) {
                (void)gc_wait(&request[i], &status[i]);
            }
        }
    }
    for (int i = 0; i < n; i++) {
        gct_require(!request[i], "a request was not completed");
        due[i]->status = status[i];
        due[i]->code = status[i].error;
        due[i]->request = NULL;
        due[i]->done = true;
    }
    for (int i = 0; i < r->pendings; i++) {
        chaos_pending *q = &r->pending[i];
        if (q->done && !q->judged && q->due <= round && chaos_pending_judge(r, q)) {
            return 1;
        }
    }
    return 0;
}

/* What receives from any source did not get since somebody has died. */
static void chaos_make_up(chaos_rank *r, int round)
{
    for (int i = 0; i < r->p->messages; i++) {
        const chaos_message *m = &r->p->message[i];
        gc_comm *comm = r->comm[m->comm];
        enum chaos_mode mode = chaos_mode(r->p, m->comm, m->round, m->dest);
        if (m->round != round || !comm || m->dest != gc_rank(comm) || r->got[i] || (mode != CHAOS_ANY_SOURCE && mode != CHAOS_ANY)) {
            continue;
        }
        chaos_pending *q = chaos_pend(r, CHAOS_TAKE, i, round);
        q->exact = true;
        q->room = m->bytes;
        q->buf = gct_buffer(m->bytes);
        q->code = gc_irecv(comm, q->buf, m->bytes, m->source, m->tag, &q->request);
        q->done = q->code != GC_OK;
        chaos_refused(comm, q->code, &q->status);
    }
}

/* ---- communicators ---- */

/* Looks now and then, until it holds or something is wrong anyway. */
static int chaos_until(chaos_rank *r, bool (*holds)(chaos_rank *, int), int of)
{
    for (int64_t pause = CHAOS_MS; !holds(r, of) && !r->job->bad; pause += pause < 50 * CHAOS_MS ? pause / 4 : 0) {
        if (chaos_known(r)) {
            return 1;
        }
        sim_sleep(sim_current(), pause);
    }
    return r->job->bad;
}

/* The first who sees that all living members are back says how it went. */
static bool chaos_agreed(chaos_rank *r, int comm)
{
    chaos_job *j = r->job;
    const chaos_comm *c = &r->p->comm[comm];
    enum chaos_made all = CHAOS_MADE;
    for (int i = 0; i < c->size && !j->verdict[comm]; i++) {
        bool dead = sim_proc_killed(j->procs[c->ranks[i]]);
        if (!dead && !j->made[comm][c->ranks[i]]) {
            return false;
        }
        all = !dead && j->made[comm][c->ranks[i]] == CHAOS_NOT_MADE ? CHAOS_NOT_MADE : all;
    }
    j->verdict[comm] = j->verdict[comm] ? j->verdict[comm] : all;
    return true;
}

static int chaos_member(const chaos_comm *c, int world_rank)
{
    for (int i = 0; i < c->size; i++) {
        if (c->ranks[i] == world_rank) {
            return i;
        }
    }
    return -1;
}

/* Makes communicator `index`, and the other half of a split. */
static int chaos_make_comm(chaos_rank *r, int index)
{
    const chaos_plan *p = r->p;
    const chaos_comm *c = &p->comm[index], *parent = &p->comm[c->parent];
    gc_comm *from = r->comm[c->parent], *made = NULL;
    bool second = c->how == CHAOS_SPLIT && chaos_member(c, r->rank) < 0;
    int own = second ? index + 1 : index, key = chaos_member(&p->comm[own], r->rank), code, list[CHAOS_RANKS];
    if (!from || key < 0 || c->how == CHAOS_SPLIT_OTHERS) {
        return 0;
    }
    chaos_doing(r, "round %d: makes communicator %d of %d (way %d)", c->made, own, c->parent, c->how);
    if (c->how == CHAOS_DUP) {
        code = gc_comm_dup(from, &made);
    } else if (c->how == CHAOS_SPLIT) {
        code = gc_comm_split(from, second, key, &made);
    } else {
        for (int i = 0; i < c->size; i++) {
            list[i] = chaos_member(parent, c->ranks[i]);
        }
        code = gc_comm_create(from, list, c->size, &made);
    }
    gc_status s;
    chaos_refused(from, code, &s);
    if (chaos_judge(r, c->parent, -1, code, -1)) {
        return 1;
    }
    gct_require(!code == (made != NULL), "%s, but %p", gc_strerror(code), (void *)made);
    gct_require(!made || (gc_rank(made) == key && gc_size(made) == p->comm[own].size), "rank %d of %d instead of %d of %d", gc_rank(made),
                gc_size(made), key, p->comm[own].size);
    r->job->made[own][r->rank] = made ? CHAOS_MADE : CHAOS_NOT_MADE;
    if (chaos_until(r, chaos_agreed, own)) {
        return r->job->bad ? 0 : 1;
    }
    if (r->job->verdict[own] == CHAOS_MADE) {
        r->comm[own] = made;
    } else if (made) {
        gct_ok(gc_comm_free(made));
    }
    return 0;
}

/* All that was sent has been received, and once. What the dead have sent may lie there. */
static int chaos_nothing_left(chaos_rank *r, gc_comm *comm, const int *ranks)
{
    gc_status s;
    int found = 0, code = gc_iprobe(comm, GC_ANY_SOURCE, GC_ANY_TAG, &found, &s);
    gct_require(code || !found || r->job->bad || r->job->aborted || chaos_lost(r, ranks[s.source]),
                "%s: %zu bytes from %d with tag %d are left", r->job->doing[r->rank], s.bytes, s.source, s.tag);
    return 0;
}

static int chaos_comms(chaos_rank *r, int round)
{
    for (int i = 1; i < r->p->comms; i++) {
        const chaos_comm *c = &r->p->comm[i];
        if (c->freed == round && r->comm[i]) {
            if (chaos_complete(r, CHAOS_ROUNDS * 2, false) || chaos_nothing_left(r, r->comm[i], c->ranks)) {
                return 1;
            }
            int code = gc_comm_free(r->comm[i]);
            gct_require(!code || r->job->bad, "gc_comm_free: %s", gc_strerror(code));
            r->comm[i] = NULL;
        }
    }
    for (int i = 1; i < r->p->comms; i++) {
        if (r->p->comm[i].made == round && chaos_make_comm(r, i)) {
            return 1;
        }
    }
    return 0;
}

/* ---- rounds ---- */

static int chaos_colls(chaos_rank *r, int round, bool blocks)
{
    const chaos_plan *p = r->p;
    for (int i = 0; i < p->colls; i++) {
        const chaos_coll *c = &p->coll[i];
        if (c->round != round || c->blocks != blocks || !r->comm[c->comm]) {
            continue;
        }
        chaos_pending *q = chaos_pend(r, CHAOS_COLL, i, c->late ? round + 1 + i % 2 : round);
        chaos_doing(r, "round %d: %s %d (%zu bytes) of communicator %d", round, chaos_coll_name(c->kind), i, c->bytes, c->comm);
        q->doomed = chaos_is_told(r->comm[c->comm], -1) && c->kind != CHAOS_RING;
        q->code = chaos_coll_begin(p, c, r->comm[c->comm], &q->b, blocks ? NULL : &q->request);
        q->done = blocks || q->code;
        if (q->done) {
            chaos_refused(r->comm[c->comm], q->code, &q->status);
            if (c->kind == CHAOS_RING && q->code == GC_ERR_PEER) {
                q->status.fault_rank = -1;      /* one of its two errors is told, the last one may be another's */
            }
        }
    }
    return 0;
}

static int chaos_messages(chaos_rank *r, int round, bool sends, bool early)
{
    const chaos_plan *p = r->p;
    for (int i = 0; i < p->messages; i++) {
        const chaos_message *m = &p->message[i];
        gc_comm *comm = r->comm[m->comm];
        if (m->round != round || !comm || (sends ? m->source : m->dest) != gc_rank(comm)) {
            continue;
        }
        if (!sends && chaos_early(p, m->comm, round, m->dest) != early) {
            continue;
        }
        if (sends ? chaos_post_give(r, i) : early ? chaos_post_take(r, i) : chaos_take(r, i)) {
            return 1;
        }
    }
    if (sends) {
        chaos_give_again(r, round);
    }
    return 0;
}

static int chaos_round(chaos_rank *r, int round)
{
    bool first = gct_random(&r->dice) % 2, last = gct_random(&r->dice) % 2;
    if (r->p->abort_round == round && r->p->abort_rank == r->rank) {
        r->job->aborted = true;
        gct_ok(gc_abort(r->comm[0], 7));
    }
    if (chaos_comms(r, round) ||
        chaos_messages(r, round, false, true) ||
        (first && chaos_colls(r, round, false)) ||
        chaos_messages(r, round, true, false) ||
        (!first && chaos_colls(r, round, false)) ||
        (!last && chaos_colls(r, round, true)) ||
        chaos_messages(r, round, false, false) ||
        (last && chaos_colls(r, round, true)) ||
        chaos_complete(r, round, true)) {
        return 1;
    }
    chaos_make_up(r, round);
    return chaos_complete(r, round, false) || chaos_known(r);
}

/* ---- survivors ---- */

typedef struct chaos_group {            /* what gc_comm_shrink gave */
    gc_comm *comm;
    int      size, rank, ranks[CHAOS_RANKS];    /* of the world */
    int      turn;
    bool     failed;                    /* something, here */
} chaos_group;

/* Those of one group have the same members in order, themselves among them, and nobody is missing without a cause. */
static int chaos_group_judge(chaos_rank *r, chaos_group *g, const chaos_group *from, const bool *known)
{
    chaos_job *j = r->job;
    unsigned *members = j->members[g->turn];
    int all[CHAOS_RANKS], at = 0;
    g->size = gc_size(g->comm);
    g->rank = gc_rank(g->comm);
    for (int i = 0; i < g->size; i++) {
        all[i] = i;
    }
    gct_ok(gc_comm_translate(g->comm, all, g->size, r->comm[0], g->ranks));
    for (int i = 0; i < from->size; i++) {
        int who = from->ranks[i];
        if (at < g->size && g->ranks[at] == who) {
            gct_require(!known[who], "gc_comm_shrink keeps %d, who was known dead", who);
            members[r->rank] |= 1u << who;
            at++;
        } else {
            gct_require(chaos_lost(r, who) || j->lost[who][who], "gc_comm_shrink leaves out %d, who is fine", who);
        }
    }
    gct_require(at == g->size && g->ranks[g->rank] == r->rank, "gc_comm_shrink gives other members, or not in order");
    for (int i = 0; i < g->size; i++) {
        unsigned its = members[g->ranks[i]];    /* another side of a network that has fallen apart may have others */
        gct_require(!its || its == members[r->rank] || chaos_lost(r, g->ranks[i]), "%d has members %x, and %d %x", r->rank, members[r->rank], g->ranks[i], its);
    }
    return 0;
}

static size_t chaos_group_bytes(const chaos_rank *r, const chaos_group *g, int source, int dest)
{
    uint64_t dice = chaos_hash(r->p->seed, (uint64_t)(g->turn * CHAOS_RANKS + source), (uint64_t)dest, 61);
    return (size_t)(dice >> 8) % (dice % 4 ? 300 : 60000);
}

static int chaos_group_ended(chaos_rank *r, chaos_group *g, int peer, int code, int fault)
{
    g->failed |= code != GC_OK;
    return chaos_judge_among(r, g->ranks, g->size, peer, code, fault);
}

/* The collectives of the world's, now among fewer. */
static int chaos_group_colls(chaos_rank *r, chaos_group *g)
{
    for (int i = 0, n = 0; i < r->p->colls && n < CHAOS_SURVIVOR_COLLS; i++) {
        chaos_coll c = r->p->coll[i];
        chaos_buffers b = { NULL, NULL };
        gc_request *request = NULL;
        gc_status s;
        if (c.comm) {
            continue;
        }
        n++;
        c.root %= g->size;
        chaos_doing(r, "survivors, turn %d: %s %d (%zu bytes) of %d ranks", g->turn, chaos_coll_name(c.kind), i, c.bytes, g->size);
        int code = chaos_coll_begin(r->p, &c, g->comm, &b, c.blocks ? NULL : &request);
        chaos_refused(g->comm, code, &s);
        if (request) {
            code = gc_wait(&request, &s);
        }
        if (chaos_group_ended(r, g, -1, code, c.kind == CHAOS_RING ? -1 : s.fault_rank) ||
            (!code && !r->job->bad && chaos_coll_check(r->p, &c, g->rank, g->size, &b)) || gct_buffer_free(b.send) ||
            gct_buffer_free(b.recv)) {
            return 1;
        }
    }
    return 0;
}

/* A message for each pair. */
static int chaos_group_messages(chaos_rank *r, chaos_group *g)
{
    gc_request *request[2 * CHAOS_RANKS];
    void *buf[2 * CHAOS_RANKS];
    gc_status s[2 * CHAOS_RANKS];
    int code[2 * CHAOS_RANKS];
    for (int i = 0; i < 2 * g->size; i++) {
        int peer = i / 2;
        size_t bytes = i % 2 ? chaos_group_bytes(r, g, g->rank, peer) : chaos_group_bytes(r, g, peer, g->rank);
        buf[i] = gct_buffer(bytes);
        request[i] = NULL;
        if (i % 2) {
            gct_fill(buf[i], bytes, g->rank, g->turn);
        }
        code[i] = i % 2 ? gc_isend(g->comm, buf[i], bytes, peer, g->turn, &request[i])
                        : gc_irecv(g->comm, buf[i], bytes, peer, g->turn, &request[i]);
        chaos_refused(g->comm, code[i], &s[i]);
    }
    for (int i = 0; i < 2 * g->size; i++) {
        int peer = i / 2;
        chaos_doing(r, "survivors, turn %d: %s %d of %d", g->turn, i % 2 ? "send to" : "receive from", peer, g->size);
        if (request[i]) {
            code[i] = gc_wait(&request[i], &s[i]);
        }
        if (chaos_group_ended(r, g, peer, code[i], s[i].fault_rank) ||
            (!code[i] && i % 2 == 0 && gct_check(buf[i], chaos_group_bytes(r, g, peer, g->rank), peer, g->turn)) ||
            gct_buffer_free(buf[i])) {
            return 1;
        }
    }
    return 0;
}

/* As chaos_agreed. */
static bool chaos_group_agreed(chaos_rank *r, int turn)
{
    chaos_job *j = r->job;
    unsigned members = j->members[turn][r->rank];
    enum chaos_made all = CHAOS_MADE, *verdict = &j->all_worked[turn][__builtin_ctz(members)];
    for (int i = 0; i < r->p->ranks && !*verdict; i++) {
        if (!(members >> i & 1)) {
            continue;
        }
        if (!j->worked[turn][i] && !sim_proc_killed(j->procs[i])) {
            return false;
        }
        all = j->worked[turn][i] == CHAOS_NOT_MADE ? CHAOS_NOT_MADE : all;
    }
    *verdict = *verdict ? *verdict : all;
    return true;
}

/* One try: a communicator of those who live, and everything works in it, unless somebody more is lost. -1: it is not for this rank. */
static int chaos_turn(chaos_rank *r, chaos_group *g, const chaos_group *from)
{
    int dead[CHAOS_RANKS], n = gc_comm_failed(from->comm, dead, CHAOS_RANKS);
    bool known[CHAOS_RANKS] = { false };
    for (int i = 0; i < n && i < CHAOS_RANKS; i++) {
        known[from->ranks[dead[i]]] = true;
    }
    chaos_doing(r, "survivors, turn %d: gc_comm_shrink of %d ranks", g->turn, from->size);
    int code = gc_comm_shrink(from->comm, &g->comm);
    gct_require(!code == (g->comm != NULL), "%s, but %p", gc_strerror(code), (void *)g->comm);
    chaos_look(r->job);
    if (code) {
        gct_require(r->job->bad || (code == GC_ERR_ABORTED && r->job->aborted) ||
                        (code == GC_ERR_PEER && r->job->lost[r->rank][r->rank]), "gc_comm_shrink: %s", gc_strerror(code));
        return -1;
    }
    if (r->job->bad) {
        return -1;
    }
    if (chaos_group_judge(r, g, from, known) || chaos_group_messages(r, g) || chaos_group_colls(r, g)) {
        return 1;
    }
    r->job->worked[g->turn][r->rank] = g->failed ? CHAOS_NOT_MADE : CHAOS_MADE;
    return chaos_until(r, chaos_group_agreed, g->turn) || chaos_nothing_left(r, g->comm, g->ranks);
}

/* Until it holds; at times once more, or from the world again. */
static int chaos_survive(chaos_rank *r)
{
    chaos_group group[CHAOS_SHRINKS + 1] = { { .comm = r->comm[0], .size = r->p->ranks, .rank = r->rank } };
    uint64_t dice = chaos_hash(r->p->seed, 0, 0, 63);
    int turn = 0, bad = 0, least = dice % 3 == 0 ? 2 : 1;
    bool of_world = dice / 3 % 2;
    for (int i = 0; i < r->p->ranks; i++) {
        group[0].ranks[i] = i;
    }
    for (bool again = true; again && !bad && !r->job->bad; turn++) {
        gct_require(turn < CHAOS_SHRINKS, "the survivors come to no end");
        group[turn + 1].turn = turn;
        bad = chaos_turn(r, &group[turn + 1], &group[of_world ? 0 : turn]);
        again = !bad && !r->job->bad &&
                (turn + 1 < least || r->job->all_worked[turn][__builtin_ctz(r->job->members[turn][r->rank])] == CHAOS_NOT_MADE);
    }
    for (int i = turn - 1; i < CHAOS_SHRINKS && (bad || r->job->bad); i++) {
        r->job->worked[i][r->rank] = CHAOS_NOT_MADE;        /* nobody waits for this one */
    }
    for (int i = 1; i <= turn; i++) {
        bad = bad > 0 || (group[i].comm && gc_comm_free(group[i].comm) && !r->job->bad);
    }
    return bad > 0;
}

/* ---- the end ---- */

/* All that live are through, and have had the time to hear of every death. */
static bool chaos_over(chaos_rank *r, int unused)
{
    chaos_job *j = r->job;
    int64_t last = 0;
    (void)unused;
    for (int i = 0; i < j->p->ranks; i++) {
        if (!j->through[i] && !sim_proc_killed(j->procs[i])) {
            return false;
        }
    }
    for (int i = 0; i < j->p->events; i++) {
        last = j->p->event[i].at > last ? j->p->event[i].at : last;
    }
    last += j->p->events ? (int64_t)(j->p->peer_timeout * 1e9) + GCI_SECOND + 2 * j->p->away + 100 * CHAOS_MS : 0;
    return sim_now(j->s) - j->base >= last;
}

static int chaos_rounds(chaos_rank *r)
{
    for (int round = 0; round < r->p->rounds; round++) {
        if (chaos_round(r, round)) {
            return 1;
        }
        if (r->job->bad) {
            return 0;
        }
        if (r->p->pause && gct_random(&r->dice) % 3 == 0) {
            chaos_doing(r, "round %d: computes", round);
            sim_sleep(sim_current(), (int64_t)(gct_random(&r->dice) % (uint64_t)r->p->pause));
        }
    }
    bool first = chaos_hash(r->p->seed, 0, 0, 62) % 2;      /* before what is still pending is completed */
    if ((r->p->shrinks && first && chaos_survive(r)) || chaos_complete(r, CHAOS_ROUNDS * 2, false) ||
        (r->p->shrinks && !first && chaos_survive(r))) {
        return 1;
    }
    r->job->through[r->rank] = true;
    chaos_doing(r, "is through");
    if (chaos_until(r, chaos_over, 0) || chaos_known(r)) {
        return 1;
    }
    bool bad = false;
    for (int i = 0; i < r->p->comms; i++) {
        bad = bad || (r->comm[i] && chaos_nothing_left(r, r->comm[i], r->p->comm[i].ranks));
    }
    return bad;
}

static int chaos_main(gc_comm *world, int rank, int size, void *arg)
{
    chaos_job *j = arg;
    const chaos_plan *p = j->p;
    chaos_rank r = { .job = j, .p = p, .rank = rank, .comm = { world }, .dice = chaos_hash(p->seed, (uint64_t)rank, 0, 51) };
    r.pending = gct_buffer(CHAOS_REQUESTS * sizeof *r.pending);
    r.got = memset(gct_buffer((size_t)p->messages + 1), 0, (size_t)p->messages + 1);
    int bad = chaos_rounds(&r) && !j->bad ? chaos_bad(&r) : 0;
    (void)size;
    if (j->bad) {                       /* told already: this rank just has to go */
        for (int i = 0; i < r.pendings; i++) {
            (void)gc_wait(&r.pending[i].request, NULL);
        }
    }
    chaos_doing(&r, "leaves");
    j->leaving = true;
    int code = gc_finalize(world);
    chaos_doing(&r, "has left");
    j->result->lost_ranks += code != GC_OK;
    gct_require(!code || j->bad || (code == GC_ERR_PEER && p->deaths) || (code == GC_ERR_ABORTED && j->aborted), "gc_finalize: %s",
                gc_strerror(code));
    return bad | gct_buffer_free(r.pending) | gct_buffer_free(r.got);
}

/* ---- the job ---- */

static void chaos_options(gc_options *o, int rank, void *arg)
{
    const chaos_plan *p = ((chaos_job *)arg)->p;
    (void)rank;
    o->peer_timeout = p->peer_timeout;
    o->direct = p->direct;
    o->credits = p->credits;
    o->queue_packets = p->queue;
    o->streams = p->streams;
    o->eager_budget = p->eager_budget;
    o->routing = p->routing;
    o->progress = p->progress;
    o->order = p->order;
}

static void chaos_arrange(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    chaos_job *j = arg;
    j->s = s;
    sim_tune(s)->yield_max = 2 * CHAOS_MS;      /* who polls for long costs no more than who sleeps */
    memcpy(j->procs, procs, (size_t)ranks * sizeof *procs);
}

static void chaos_started(struct sim *s, struct sim_proc **procs, int ranks, void *arg)
{
    chaos_job *j = arg;
    (void)procs; (void)ranks;
    j->base = sim_now(s);
}

int chaos_run(const chaos_plan *p, chaos_result *result)
{
    chaos_job j = { .p = p, .result = result };
    gct_outcome outcome;
    *result = (chaos_result){ .operations = 0 };
    gct_spec spec = { .ranks = p->ranks, .places = p->places, .ranks_per_host = p->per_host, .seed = p->seed ? p->seed : 1,
                      .finalizes = true, .options = chaos_options, .arrange = chaos_arrange, .started = chaos_started,
                      .events = p->event, .event_count = p->events, .time_limit = CHAOS_REAL_LIMIT_S,
                      .virtual_limit = CHAOS_VIRTUAL_LIMIT_S * GCI_SECOND, .wan_rate = 10000000, .wan_latency = 2 * CHAOS_MS,
                      .unwitnessed = p->seed % 8 != 0, .outcome = &outcome };
    int failed = gct_job(&spec, chaos_main, &j);
    result->virtual_ns = outcome.virtual_ns;
    for (int i = 0; failed && i < p->ranks; i++) {
        fprintf(stderr, "    rank %d%s: %s\n", i, j.dead[i] ? " (dead)" : "", j.doing[i]);
    }
    return failed || j.bad;
}
