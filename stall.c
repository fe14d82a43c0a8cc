/* stall.c: who waits for whom, told when nothing moves (GRIDCOMM_STALL).
 * SPDX-License-Identifier: MIT
 *
 * A call that waits stands in the world's list of callers, on its own stack. Whoever drives the I/O looks at the clock now and
 * then anyway, before it sleeps above all; then the callers are looked at, STALL_LOOKS times in the time that the user has
 * set, and what may move in what each waits for is summed up as one number. Of a caller whose number has not changed for that
 * time all ranks are told, in a notice, and a look later, when such notices of others are here, the user is, in lines that begin
 * with "stall:": the operations, the ways to the peers they wait for, and what those wait for in turn. It is said again when
 * twice as much time has passed, and so on, and once when it is over. Nothing ends because of it.
 *
 * What is no stall: a rank that computes, sleeps in a poller of its own, or looks with gc_test and gc_iprobe, is in no call that
 * waits. A message that moves, however slowly, and a collective of which any step at this rank does.
 *
 * Off, it costs a comparison for each wait; on, one look at all that this rank waits for in each STALL_LOOKS-th of the time.
 * A rank keeps the last notice of each other one, for as long as it says that it holds: it is told again by then, unless it is over; so
 * if the word that it is over is lost, as these may be, it is not believed for ever. A flood of them never pushes other notices out
 * of control's log (life.c).
 */
#include "gridcomm_int.h"

enum { STALL_LOOKS = 8,
       STALL_ITEMS = 4,                 /* lines on messages, and on peers, in one report */
       STALL_CHAIN = 6,                 /* ranks in one line on who waits for whom */
       STALL_LINE = 480 };              /* what gci_log takes, less its head */
#define STALL_LOOK_LEAST ((int64_t)GCI_NS_PER_MS)

/* GCI_NOTICE_STALL: word[0] the rank that origin waits for, STALL_ANY: any, or several; [1] one of these; [2] tag, number of the
 * collective, or STALL_ANY; [3] signature of the collective; [4] for how many ms it holds. */
enum stall_what { STALL_OVER, STALL_RECV, STALL_SEND, STALL_COLL_RECV, STALL_COLL_SEND, STALL_CREATE, STALL_PROBE, STALL_CALL,
                  STALL_WHATS };
#define STALL_ANY UINT32_MAX

typedef struct stall_wait { uint32_t peer, what, tag, signature; int64_t until; } stall_wait;  /* what: STALL_OVER: it does not */

struct gci_stall {
    int64_t     after, every;           /* ns: what the user has set; between looks */
    int64_t     look_at;
    const gci_caller *teller;           /* of whom the others know: one at a time. NULL: of nobody */
    stall_wait  of[];                   /* [ranks] */
};

typedef struct stall_report {
    gci_world *w;
    int64_t    now;
    int        items, left_out;
    int        peer[STALL_ITEMS], peers;
} stall_report;

static double stall_seconds(int64_t ns) { return (double)ns / (double)GCI_SECOND; }

/* ---- does it move? ------------------------------------------------------------------------------------------------ */

static uint64_t stall_add(uint64_t mark, uint64_t value) { return gci_mix(mark ^ value); }

static uint64_t stall_mark_message(uint64_t mark, const gc_request *r)
{
    mark = stall_add(mark, (uint64_t)r->stage << 2 | (uint64_t)r->done << 1 | (r->message != NULL));
    mark = stall_add(mark, r->moved + ((uint64_t)(unsigned)r->in_flight << 48));
    return stall_add(mark, r->kind == GCI_REQUEST_RECV && r->message ? r->message->got : 0);
}

static uint64_t stall_mark_coll(uint64_t mark, const gc_request *r)
{
    gci_coll_view view;
    int32_t step = -1;
    if (!gci_coll_view_of(r, &view))
        return stall_add(mark, 0);
    mark = stall_add(mark, (uint64_t)view.left << 1 | view.asks);
    for (const gc_request *m; (m = gci_coll_next_wait(&view, &step)) != NULL;)
        mark = stall_mark_message(mark, m);
    return mark;
}

static uint64_t stall_mark(const gci_caller *c)
{
    uint64_t mark = 1;
    for (int i = 0; i < c->requests; i++) {
        const gc_request *r = c->request[i];
        if (r)
            mark = r->kind == GCI_REQUEST_COLL && !r->done ? stall_mark_coll(mark, r) : stall_mark_message(mark, r);
    }
    return mark;
}

/* ---- what the others know ----------------------------------------------------------------------------------------- */

static stall_wait stall_of_message(const gc_request *r)
{
    unsigned kind = r->context % GCI_CONTEXT_KINDS;
    bool send = r->kind == GCI_REQUEST_SEND;
    return (stall_wait){ .peer = r->peer < 0 ? STALL_ANY : (uint32_t)r->peer, .tag = r->any_tag ? STALL_ANY : r->tag,
                         .signature = r->signature,
                         .what = kind == GCI_CONTEXT_COLL ? (send ? STALL_COLL_SEND : STALL_COLL_RECV)
                                 : kind == GCI_CONTEXT_CREATE ? STALL_CREATE : send ? STALL_SEND : STALL_RECV };
}

/* What it waits for first: of a collective a receive, rather than a send. */
static stall_wait stall_of_request(const gc_request *r)
{
    stall_wait wait = { .what = STALL_CALL, .peer = STALL_ANY };
    gci_coll_view view;
    int32_t step = -1;
    if (r->kind != GCI_REQUEST_COLL)
        return stall_of_message(r);
    if (!gci_coll_view_of(r, &view))
        return wait;
    for (const gc_request *m; wait.what != STALL_COLL_RECV && (m = gci_coll_next_wait(&view, &step)) != NULL;)
        if (wait.what == STALL_CALL || m->kind == GCI_REQUEST_RECV)
            wait = stall_of_message(m);
    return wait;
}

static stall_wait stall_of_caller(const gci_caller *c)
{
    if (c->comm)
        return (stall_wait){ .what = STALL_PROBE, .tag = c->tag < 0 ? STALL_ANY : (uint32_t)c->tag,
                             .peer = c->source < 0 ? STALL_ANY : (uint32_t)gci_world_rank(c->comm, c->source) };
    for (int i = 0; i < c->requests; i++)
        if (c->request[i] && !c->request[i]->done)
            return stall_of_request(c->request[i]);
    return (stall_wait){ .what = STALL_CALL, .peer = STALL_ANY };
}

static void stall_flood(gci_world *w, const stall_wait *wait, int64_t holds)
{
    int64_t ms = holds / GCI_NS_PER_MS;
    gci_notice n = { .kind = GCI_NOTICE_STALL, .origin = (uint32_t)w->rank,
                     .word = { wait->peer, wait->what, wait->tag, wait->signature, ms < UINT32_MAX ? (uint32_t)ms : UINT32_MAX } };
    if (w->control)
        (void)gci_control_notify(w->control, &n);       /* no memory: the report says less */
}

/* It is told again when it has lasted twice as long. */
static void stall_tell(gci_world *w, gci_caller *c, int64_t now)
{
    stall_wait wait = stall_of_caller(c);
    if (w->stall->teller && w->stall->teller != c)
        return;
    w->stall->teller = c;
    c->told = true;
    stall_flood(w, &wait, 2 * (now - c->since));
}

GCI void gci_stall_notice(gci_world *w, const gci_notice *n)
{
    if (n->kind != GCI_NOTICE_STALL) {
        gci_coll_notice(w, n);
        return;
    }
    if (!w->stall || n->origin >= (uint32_t)w->ranks || n->word[1] >= STALL_WHATS ||
        (n->word[0] >= (uint32_t)w->ranks && n->word[0] != STALL_ANY))
        return;
    w->stall->of[n->origin] = (stall_wait){ .peer = n->word[0], .what = n->word[1], .tag = n->word[2], .signature = n->word[3],
                                            .until = w->env.sys->now(w->env.sys) + n->word[4] * (int64_t)GCI_NS_PER_MS };
}

/* ---- the report ------------------------------------------------------------------------------------------------- */

static void stall_note_peer(stall_report *rep, int peer)
{
    for (int i = 0; i < rep->peers; i++)
        if (rep->peer[i] == peer)
            return;
    if (peer >= 0 && peer != rep->w->rank && rep->peers < STALL_ITEMS)
        rep->peer[rep->peers++] = peer;
}

/* "receive, tag 7, 4096 bytes, from rank 3 on b1 (b): no message yet" */
static void stall_message_text(stall_report *rep, const gc_request *r, gci_text *t)
{
    const gci_world *w = rep->w;
    gci_describe_message(t, r);
    gci_text_add(t, ", %zu bytes, %s ", r->bytes, r->kind == GCI_REQUEST_SEND ? "to" : "from");
    if (r->peer < 0)
        gci_text_add(t, "any rank");
    else
        gci_describe_rank(t, w, r->peer);
    if (r->comm->size < w->ranks)
        gci_text_add(t, ", in a communicator of %d", r->comm->size);
    gci_text_add(t, ": ");
    gci_describe_stage(t, r->peer < 0 ? NULL : w->p2p->pair[r->peer], r);
}

/* A line on a message; head: what stands in front. */
static void stall_message(stall_report *rep, const gc_request *r, const char *head)
{
    char line[STALL_LINE];
    gci_text t;
    if (rep->items++ >= STALL_ITEMS) {
        rep->left_out++;
        return;
    }
    gci_text_begin(&t, line, sizeof line);
    stall_message_text(rep, r, &t);
    gci_report(&rep->w->env, "stall: %s%s", head, line);
    stall_note_peer(rep, r->peer);
}

static void stall_coll(stall_report *rep, const gc_request *r, const char *head)
{
    char line[STALL_LINE], step_head[32];
    gci_coll_view view;
    int32_t step = -1;
    gci_text t;
    if (!gci_coll_view_of(r, &view))
        return;
    const gci_call *call = view.call;
    gci_text_begin(&t, line, sizeof line);
    gci_text_add(&t, "%s %u of %d ranks by %s", gci_coll_signed(view.signature), (unsigned)view.seq, call->ranks, view.choice->name);
    if (view.choice->segment > 0)
        gci_text_add(&t, "@%zu", view.choice->segment);
    if (view.asks)
        gci_text_add(&t, ", which asks for sizes");
    else if (call->bytes > 0 || call->own > 0)
        gci_text_add(&t, ", %zu bytes", call->bytes ? call->bytes : call->own);
    gci_report(&rep->w->env, "stall: %s%s: %d of %d steps are done", head, line, (int)(view.steps - view.left), (int)view.steps);
    for (const gc_request *m; (m = gci_coll_next_wait(&view, &step)) != NULL;) {
        snprintf(step_head, sizeof step_head, "step %d: ", (int)step);
        stall_message(rep, m, step_head);
    }
}

static void stall_probe(stall_report *rep, const gci_caller *c, const char *head)
{
    char line[STALL_LINE], tag[32] = "any tag";
    gci_text t;
    gci_text_begin(&t, line, sizeof line);
    if (c->source < 0)
        gci_text_add(&t, "any rank");
    else
        gci_describe_rank(&t, rep->w, gci_world_rank(c->comm, c->source));
    if (c->tag >= 0)
        snprintf(tag, sizeof tag, "tag %d", c->tag);
    gci_report(&rep->w->env, "stall: %s%s, %s, from %s: no message yet", head, c->call, tag, line);
    stall_note_peer(rep, c->source < 0 ? -1 : gci_world_rank(c->comm, c->source));
}

static void stall_operations(stall_report *rep, const gci_caller *c)
{
    char head[64];
    snprintf(head, sizeof head, "nothing has moved for %.1f s: ", stall_seconds(rep->now - c->since));
    if (c->comm)
        stall_probe(rep, c, head);
    else if (c->call)
        gci_report(&rep->w->env, "stall: %s%s", head, c->call);
    for (int i = 0; i < c->requests; i++) {
        const gc_request *r = c->request[i];
        if (r && !r->done && r->kind == GCI_REQUEST_COLL && rep->items < STALL_ITEMS)
            stall_coll(rep, r, head);
        else if (r && !r->done)
            stall_message(rep, r, head);
    }
    if (rep->left_out > 0)
        gci_report(&rep->w->env, "stall: and %d more", rep->left_out);
}

/* The whole route of small messages. No memory: nothing. */
static void stall_route(const gci_world *w, int peer, gci_text *t)
{
    gci_env *env = w->p2p->env;
    const gci_numbering *numbering = NULL;
    gci_paths *paths = NULL;
    int32_t *path = gci_alloc(env, (size_t)w->ranks * sizeof *path);
    if (path && gci_overlay_routes(w->overlay, NULL, &numbering) && numbering &&
        gci_paths_make(env, gci_overlay_graph(w->overlay), gci_control_topo(w->control), numbering, w->rank, &paths) == GC_OK) {
        int hops = gci_paths_walk(paths, GCI_LATENCY, peer, path);
        gci_text_add(t, ", ");
        gci_describe_path(t, path, hops);
        gci_paths_free(paths);
    }
    gci_free(env, path);
}

static void stall_way(const gci_world *w, int peer)
{
    char line[STALL_LINE], at[GCI_ADDR_TEXT];
    gci_way_view v = gci_overlay_view(w->overlay, peer);
    gci_text t;
    gci_text_begin(&t, line, sizeof line);
    gci_describe_rank(&t, w, peer);
    if (v.way == GCI_WAY_NONE) {
        gci_text_add(&t, ": none: %s", v.why);
    } else if (v.way == GCI_WAY_OWN) {
        gci_text_add(&t, ": a link of its own");
    } else {
        gci_text_add(&t, ": routed");
        stall_route(w, peer, &t);
        if (v.next >= 0) {
            gci_text_add(&t, ", next ");
            gci_describe_rank(&t, w, v.next);
        }
    }
    if (v.next >= 0 && !v.connected)
        gci_text_add(&t, ", which is not connected at present");
    if (v.connected && v.to.family != 0)
        gci_text_add(&t, ", %s", gci_addr_text(&v.to, at));
    if (v.connected && v.queued > 0)
        gci_text_add(&t, ", %d of %d packets queued", v.queued, v.queue_max);
    if (v.connected && v.silence > 0)
        gci_text_add(&t, "; that host owes an answer for %.1f s", stall_seconds(v.silence));
    else if (v.connected)
        gci_text_add(&t, "; that host answers");
    gci_report(w->p2p->env, "stall: way to %s; no rank has missed rank %d", line, peer);
}

static void stall_wait_text(gci_text *t, const stall_wait *wait)
{
    static const char *const verb[STALL_WHATS] = { "", "receive", "send", "receive", "send", "gc_comm_create", "gc_probe",
                                                   "another call" };
    gci_text_add(t, " (%s", verb[wait->what]);
    if (wait->what == STALL_COLL_RECV || wait->what == STALL_COLL_SEND)
        gci_text_add(t, " of %s %u", gci_coll_signed(wait->signature), (unsigned)wait->tag);
    else if (wait->what < STALL_CALL && wait->what != STALL_CREATE && wait->tag == STALL_ANY)
        gci_text_add(t, ", any tag");
    else if (wait->what < STALL_CALL && wait->what != STALL_CREATE)
        gci_text_add(t, ", tag %u", (unsigned)wait->tag);
    gci_text_add(t, ")");
}

/* "rank 0 waits for rank 1, which waits for rank 2 (receive, tag 7), which waits for rank 0 (send, tag 7): a circle" */
static void stall_chain(const gci_world *w, int peer, int64_t now)
{
    char line[STALL_LINE];
    uint32_t met[STALL_CHAIN + 2] = { (uint32_t)w->rank, (uint32_t)peer };
    gci_text t;
    gci_text_begin(&t, line, sizeof line);
    gci_text_add(&t, "rank %d waits for rank %d", w->rank, peer);
    for (int n = 2;; n++) {
        const stall_wait *wait = &w->stall->of[met[n - 1]];
        if (wait->what == STALL_OVER || now > wait->until) {
            gci_text_add(&t, ", which has told of no wait");
            break;
        }
        if (n == STALL_CHAIN + 2) {
            gci_text_add(&t, ", which waits, too");
            break;
        }
        gci_text_add(&t, wait->peer == STALL_ANY ? ", which waits for others" : ", which waits for rank %u", (unsigned)wait->peer);
        stall_wait_text(&t, wait);
        if (wait->peer == STALL_ANY)
            break;
        met[n] = wait->peer;
        int before = 0;
        while (met[before] != wait->peer)
            before++;
        if (before < n) {
            gci_text_add(&t, before == 0 ? ": a circle" : ": a circle behind this rank");
            break;
        }
    }
    gci_report(w->p2p->env, "stall: %s", line);
}

static void stall_tell_user(gci_world *w, gci_caller *c, int64_t now)
{
    stall_report rep = { .w = w, .now = now };
    stall_operations(&rep, c);
    for (int i = 0; i < rep.peers; i++)
        stall_way(w, rep.peer[i]);
    for (int i = 0; i < rep.peers; i++)
        stall_chain(w, rep.peer[i], now);
    c->reported = true;
}

/* ---- when ----------------------------------------------------------------------------------------------------------- */

/* What was told is not so any more. */
static void stall_over(gci_world *w, gci_caller *c)
{
    int64_t now = w->env.sys->now(w->env.sys);
    if (c->reported)
        gci_report(&w->env, "stall: over, after %.1f s", stall_seconds(now - c->since));
    if (w->stall->teller == c) {
        w->stall->teller = NULL;
        stall_flood(w, &(stall_wait){ .what = STALL_OVER, .peer = STALL_ANY }, 0);
    }
    c->told = c->reported = false;
}

static void stall_look_at(gci_world *w, gci_caller *c, int64_t now)
{
    const gci_stall *s = w->stall;
    uint64_t mark = stall_mark(c);
    if (!c->looked || mark != c->mark) {
        if (c->looked)
            stall_over(w, c);
        c->looked = true;
        c->mark = mark;
        c->since = now;
        c->report_at = now + s->after;
        return;
    }
    if (now >= c->report_at) {
        if (c->reported)
            stall_tell(w, c, now);           /* once more: it may have been lost */
        stall_tell_user(w, c, now);
        c->report_at += c->report_at - c->since;
    } else if (!c->told && now >= c->report_at - s->every) {
        stall_tell(w, c, now);
    }
}

static int64_t stall_look(gci_world *w, int64_t now)
{
    gci_stall *s = w->stall;
    w->stall_idle = !w->callers && now >= s->look_at;
    if (w->stall_idle)
        return GCI_FOREVER;
    if (now < s->look_at)
        return s->look_at;
    for (gci_caller *c = w->callers; c; c = c->next)
        stall_look_at(w, c, now);
    return s->look_at = now + s->every;
}

GCI int gci_stall_open(gci_world *w)
{
    double after = w->options.stall * (double)GCI_SECOND;
    if (!(after > 0))
        return GC_OK;
    gci_stall *s = gci_alloc(&w->env, sizeof *s + (size_t)w->ranks * sizeof *s->of);
    if (!s)
        return GC_ERR_NOMEM;
    s->after = gci_max64((int64_t)after, STALL_LOOK_LEAST);
    s->every = gci_max64(s->after / STALL_LOOKS, STALL_LOOK_LEAST);
    w->stall_look = stall_look;
    w->stall_over = stall_over;
    w->stall = s;
    w->stall_idle = true;
    return GC_OK;
}

GCI void gci_stall_close(gci_world *w)
{
    gci_free(&w->env, w->stall);
    w->stall = NULL;
}
