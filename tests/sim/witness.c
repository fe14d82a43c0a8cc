/* witness.c: collects the schedules that all ranks of a collective run, and has them checked.
 * SPDX-License-Identifier: MIT
 *
 * All that it is told is copied: ranks free their communicators and end while others still run.
 */
#include "witness.h"

#include "tests/unit/sched_check.h"

#include <stdarg.h>
#include <stdlib.h>

enum { SHORT_BYTES = 512, HOP_BYTES = 10240,        /* of what is not associative: wide_reduce.c */
       WORTH_BYTES = 64 * 1024, SHARE_BYTES = 1024 };       /* of a vector that is divided among the clusters: choose.c */

enum run_state { RUN_NONE, RUN_GOES, RUN_OK, RUN_FAILED };

typedef struct rank_run {
    enum run_state state;
    enum witness_choice choice;
    const uint8_t *base[GCI_BUFFERS];       /* of scratch, and of what was heard: learned from the first step that names it */
    int32_t   left;
    uint8_t  *begun, *done;                 /* [steps] */
    int32_t  *last;                         /* [2 * ranks] the last message begun, + 1, by peer and direction */
} rank_run;

typedef struct collective {
    struct collective *next;
    uint32_t   context, seq;                /* with ... */
    bool       asks;
    int        first_world_rank;            /* ... which tells apart what one split has made */
    int        ranks, started, ended, failed;
    uint32_t   signature;                   /* of the rank that came first */
    bool       different;
    gci_call  *call;                        /* [ranks] */
    gci_sched *sched;
    gci_ask  **ask;                         /* [ranks] what the rank told others before, or NULL */
    rank_run  *run;
    gci_clusters clusters, hosts;           /* of the first rank that came; the latter if it goes by host */
} collective;

struct witness {
    collective *open;
    FILE       *out;
    struct { uint64_t messages, bytes; int runs; } *rank;       /* of the world */
    int         ranks;
    witness_report report;
};

static gci_env plain;

static void *zeroed(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes ? bytes : 1);
    if (!p)
        abort();
    return p;
}

static void *copy_of(const void *from, size_t n, size_t bytes)
{
    return from ? memcpy(zeroed(n, bytes), from, n * bytes) : NULL;
}

static void fault(witness *w, const collective *c, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void fault(witness *w, const collective *c, const char *format, ...)
{
    char text[sizeof w->report.fault];
    int used = 0;
    for (int r = 0; r < c->ranks && used == 0; r++)
        if (c->run[r].state != RUN_NONE)
            used = snprintf(text, sizeof text, "%s%s %u of communicator %u (%d ranks): ", gci_coll_name(c->call[r].coll),
                            c->asks ? " that asks for sizes" : "", c->seq, c->context, c->ranks);
    va_list list;
    va_start(list, format);
    vsnprintf(text + used, sizeof text - (size_t)used, format, list);
    va_end(list);
    if (w->out)
        fprintf(w->out, "witness: %s\n", text);
    if (w->report.faults++ == 0)
        memcpy(w->report.fault, text, sizeof text);
}

/* ---- copies ------------------------------------------------------------------------------------------------------ */

static gci_blocks blocks_copy(const gci_blocks *b, size_t ranks)
{
    return (gci_blocks){ b->each, copy_of(b->bytes, ranks, sizeof *b->bytes), copy_of(b->at, ranks, sizeof *b->at) };
}

static void blocks_drop(gci_blocks *b)
{
    free((void *)(uintptr_t)b->bytes);
    free((void *)(uintptr_t)b->at);
}

static gci_sched sched_copy(const gci_sched *s)
{
    gci_sched copy = *s;
    copy.step = copy_of(s->step, (size_t)s->steps, sizeof *s->step);
    copy.wait = copy_of(s->wait, (size_t)s->waits, sizeof *s->wait);
    return copy;
}

static gci_clusters clusters_copy(const gci_clusters *s, size_t ranks)
{
    gci_clusters copy = *s;
    copy.of = copy_of(s->of, ranks, sizeof *s->of);
    copy.first = copy_of(s->first, (size_t)s->clusters + 1, sizeof *s->first);
    copy.member = copy_of(s->member, ranks, sizeof *s->member);
    copy.topo = NULL;
    copy.by_host = NULL;
    return copy;
}

static void clusters_drop(const gci_clusters *s)
{
    free(s->of);
    free(s->first);
    free(s->member);
}

static void collective_free(witness *w, collective *c)
{
    collective **at = &w->open;
    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    for (int r = 0; r < c->ranks; r++) {
        blocks_drop(&c->call[r].send);
        blocks_drop(&c->call[r].recv);
        free(c->sched[r].step);
        free(c->sched[r].wait);
        gci_free(&plain, c->ask[r]);
        free(c->run[r].begun);
        free(c->run[r].done);
        free(c->run[r].last);
    }
    clusters_drop(&c->clusters);
    clusters_drop(&c->hosts);
    free(c->call);
    free(c->sched);
    free(c->ask);
    free(c->run);
    free(c);
}

/* ---- the wide area ------------------------------------------------------------------------------------------------- */

/* How many canonical subexpressions of ranks [first, end), as large as can be, lie in cluster k. */
static int canonical_parts(const gci_clusters *s, int first, int end, int k)
{
    int half = 1, same = 1;
    while (first + same < end && s->of[first + same] == s->of[first])
        same++;
    if (first + same == end)
        return s->of[first] == k;
    while (2 * half < end - first)
        half *= 2;
    return canonical_parts(s, first, first + half, k) + canonical_parts(s, first + half, end, k);
}

static bool is_scan(enum gci_coll coll)
{
    return coll == GCI_SCAN || coll == GCI_EXSCAN;
}

static bool all_vectors(const gci_call *call)
{
    return !call->associative || (is_scan(call->coll) && (call->canonical || !call->clusters->runs));
}

/* How many vectors cluster k sends where it sends any. */
static int parts_of(const gci_call *call, int k)
{
    const gci_clusters *s = call->clusters;
    int runs = 0;
    if (all_vectors(call))
        return s->first[k + 1] - s->first[k];
    if (call->canonical)
        return canonical_parts(s, 0, call->ranks, k);
    for (int r = 0; r < call->ranks; r++)
        runs += s->of[r] == k && (r == 0 || s->of[r - 1] != k);
    return call->commutative ? 1 : runs;
}

/* Has cluster a a partial result for cluster b? */
static bool has_for(const gci_call *call, int a, int b)
{
    const gci_clusters *s = call->clusters;
    size_t bytes = call->coll == GCI_REDUCE_SCATTER ? 0 : call->bytes;
    for (int i = s->first[b]; i < s->first[b + 1] && call->coll == GCI_REDUCE_SCATTER; i++)
        bytes += gci_block_bytes(&call->send, s->member[i]);
    bool scans_up = is_scan(call->coll) && !all_vectors(call);
    return a != b && bytes > 0 && (call->coll != GCI_REDUCE || b == s->of[call->root]) && (!scans_up || a < b);
}

/* Neighbours in rank order that are in different clusters. */
static int hops_in_order(const gci_call *call)
{
    const gci_clusters *s = call->clusters;
    int hops = 0;
    for (int r = 1; r < call->ranks; r++)
        hops += s->of[r] != s->of[r - 1];
    return hops;
}

static bool is_long(const gci_call *call)
{
    size_t bytes = call->bytes;
    if (call->coll == GCI_REDUCE_SCATTER)
        bytes = gci_blocks_bytes(&call->send, 0, call->ranks) / (size_t)call->ranks;
    const gci_clusters *s = call->clusters;
    size_t hops = (size_t)hops_in_order(call);
    bool hopping = call->coll != GCI_REDUCE_SCATTER && !s->runs;
    return bytes > SHORT_BYTES && !(hopping && bytes <= HOP_BYTES * hops / (size_t)(s->longest * (s->clusters - 1)));
}

enum witness_case witness_exception(const gci_call *call)
{
    bool repeats = false;
    if (!gci_coll_reduces(call->coll))
        return WITNESS_NONE;
    if (!call->associative && is_long(call))
        return WITNESS_LONG;
    for (int a = 0; a < call->clusters->clusters; a++)
        for (int b = 0; b < call->clusters->clusters; b++)
            repeats |= has_for(call, a, b) && parts_of(call, a) > 1;
    return !repeats ? WITNESS_NONE : !call->associative ? WITNESS_SHORT : call->canonical ? WITNESS_CANONICAL :
           is_scan(call->coll) ? WITNESS_REORDERED_SCAN : WITNESS_RANK_ORDER;
}

static bool is_divided(const gci_call *call)
{
    size_t clusters = (size_t)call->clusters->clusters;
    bool can = call->coll == GCI_BCAST || call->coll == GCI_ALLREDUCE;
    return can && clusters > 2 && call->bytes > WORTH_BYTES / (clusters - 2) && call->bytes > SHARE_BYTES * clusters;
}

/* Of what is not associative, and long: a chain in rank order, of an allreduce there and back, of a reduce and on to its root; or
 * all vectors straight to who wants the result. */
static bool is_chain(const gci_call *call, const check_report *report)
{
    int hops = report->wan_hops, in_order = hops_in_order(call);
    if (call->coll == GCI_REDUCE_SCATTER)
        return hops == 1;
    if (is_scan(call->coll))
        return hops == 1 || hops == in_order;
    bool again = report->repeated > 0 && call->clusters->runs;
    return !again && (call->coll == GCI_ALLREDUCE ? hops == 2 * in_order : hops >= 1 && hops <= in_order + 1);
}

static void check_wide(witness *w, const collective *c, const check_report *report)
{
    enum witness_case why = witness_exception(&c->call[0]);
    w->report.wide[why]++;
    if (why == WITNESS_LONG) {
        if (!is_chain(&c->call[0], report))
            fault(w, c, "%d wide-area messages on a way, %zu bytes enter a cluster again, and it is long", report->wan_hops,
                  report->repeated);
        return;
    }
    bool divided = is_divided(&c->call[0]);
    w->report.divided += divided;
    if (divided ? report->wan_hops != 2 : report->wan_hops > 1)
        fault(w, c, "%d wide-area messages on a way", report->wan_hops);
    if ((report->repeated > 0) != (why != WITNESS_NONE))
        fault(w, c, "%zu bytes enter a cluster again (case %d)", report->repeated, (int)why);
}

/* The same proof with hosts as clusters, for what it counts then: nothing enters a host twice. */
static void check_by_host(witness *w, const collective *c)
{
    char why[CHECK_TEXT];
    check_report report;
    for (int r = 0; r < c->ranks; r++)
        c->call[r].clusters = &c->hosts;
    if (sched_check(&(check_job){ c->ranks, c->call, c->sched, NULL }, &report, why) < 0)
        fault(w, c, "%s", why);
    else if (report.repeated > 0)
        fault(w, c, "%zu bytes enter a host again", report.repeated);
    w->report.by_host++;
}

/* All ranks have started: is it a collective, and a good one? */
static bool prove(witness *w, const collective *c)
{
    char why[CHECK_TEXT];
    check_report report;
    bool asked = true;
    for (int r = 0; r < c->ranks; r++)
        asked &= c->ask[r] != NULL;
    if (sched_check(&(check_job){ c->ranks, c->call, c->sched, asked ? c->ask : NULL }, &report, why) < 0) {
        fault(w, c, "%s", why);
        return false;
    }
    if (c->run[0].choice == WITNESS_RULES && c->clusters.clusters > 1)
        check_wide(w, c, &report);
    if (c->hosts.clusters > 1)
        check_by_host(w, c);
    if (c->asks && report.wan_messages > 0)
        fault(w, c, "%d messages leave their cluster", report.wan_messages);
    return true;
}

/* ---- what happens -------------------------------------------------------------------------------------------------- */

static collective *collective_of(witness *w, const gci_seen *e)
{
    int first = gci_world_rank(e->comm, 0);
    for (collective *c = w->open; c; c = c->next)
        if (c->context == e->comm->context && c->seq == e->seq && c->asks == e->asks && c->first_world_rank == first)
            return c;
    size_t ranks = (size_t)e->comm->size;
    collective *c = zeroed(1, sizeof *c);
    *c = (collective){ .next = w->open, .context = e->comm->context, .seq = e->seq, .asks = e->asks,
                       .first_world_rank = first, .ranks = e->comm->size,
                       .call = zeroed(ranks, sizeof *c->call), .sched = zeroed(ranks, sizeof *c->sched),
                       .ask = zeroed(ranks, sizeof *c->ask), .run = zeroed(ranks, sizeof *c->run),
                       .clusters = clusters_copy(e->args->call.clusters, ranks) };
    w->open = c;
    return c;
}

static enum witness_choice who_chose(const gci_seen *e)
{
    gci_algo_choice forced[GCI_COLLS] = { { .segment = 0 } };
    const gci_call *call = &e->args->call;
    const gci_world *world = e->comm->world;
    char text[GCI_TEXT];
    if (e->asks)
        return call->coll == GCI_ALLTOALL && strcmp(e->choice->name, "direct") == 0 ? WITNESS_ASKING : WITNESS_NOBODY;
    if (gci_choose_read(world->options.algo, forced, text) < 0)
        return WITNESS_NOBODY;
    bool any_can = !forced[call->coll].name[0] && !call->tree && call->even && call->commutative && call->associative &&
                   !call->canonical;
    if (gci_coll_model(e->comm) && any_can)     /* as all have it, which the schedules' proof sees */
        return WITNESS_MODEL;
    gci_algo_choice want = gci_choose(call, &forced[call->coll]);
    bool fits = strcmp(e->used->name, e->choice->name) == 0;    /* else the rules decide after all */
    if (strcmp(want.name, e->choice->name) == 0 && want.segment == call->segment)
        return !fits ? WITNESS_RULES : call->tree ? WITNESS_TREE : forced[call->coll].name[0] ? WITNESS_FORCED : WITNESS_RULES;
    bool last = call->coll == GCI_BARRIER && e->comm == world->self && strcmp(e->choice->name, "knomial:8") == 0;
    return last ? WITNESS_LAST_BARRIER : WITNESS_NOBODY;
}

static void start(witness *w, collective *c, const gci_seen *e)
{
    int rank = e->comm->rank, world_rank = e->comm->world->rank;
    const gci_call *call = &e->args->call;
    rank_run *run = &c->run[rank];
    bool by_host = strncmp(e->used->name, "by-host", 7) == 0 ||       /* all blocks of a short allgather come from one head */
                   (strcmp(e->used->name, "nested") == 0 && call->coll != GCI_ALLGATHER);
    size_t ranks = (size_t)c->ranks, steps = (size_t)e->sched->steps;
    if (run->state != RUN_NONE) {
        fault(w, c, "rank %d starts twice", rank);
        return;
    }
    *run = (rank_run){ .state = RUN_GOES, .choice = who_chose(e), .base = { e->args->send, e->args->recv },
                       .left = e->sched->steps, .begun = zeroed(steps, 1), .done = zeroed(steps, 1),
                       .last = zeroed(2 * ranks, sizeof *run->last) };
    c->sched[rank] = sched_copy(e->sched);
    c->call[rank] = *call;
    c->call[rank].send = blocks_copy(&call->send, ranks);
    c->call[rank].recv = blocks_copy(&call->recv, ranks);
    c->call[rank].clusters = &c->clusters;
    c->call[rank].tree = NULL;
    c->call[rank].heard = NULL;
    if (call->heard && gci_wide_asks(call) && gci_wide_ask(&plain, call, &c->ask[rank]) < 0)
        abort();
    if (by_host && call->clusters->by_host && c->started == 0)
        c->hosts = clusters_copy(call->clusters->by_host, ranks);
    c->signature = c->started++ == 0 ? e->signature : c->signature;
    c->different |= e->signature != c->signature;
    if (call->ranks != c->ranks || call->rank != rank || (unsigned)call->coll >= GCI_COLLS)
        fault(w, c, "rank %d calls itself %d of %d", rank, call->rank, call->ranks);
    if (memcmp(call->clusters->of, c->clusters.of, ranks * sizeof *c->clusters.of) != 0)
        fault(w, c, "rank %d sees other clusters", rank);
    if (!e->asks && (call->heard != NULL) != (strcmp(e->used->name, "wide") == 0 && gci_wide_asks(call)))
        fault(w, c, "rank %d has asked for sizes without need, or not asked", rank);
    if (run->choice == WITNESS_NOBODY)
        fault(w, c, "rank %d runs %s, for which nobody asked", rank, e->choice->name);
    if (++w->rank[world_rank].runs > w->report.in_flight)
        w->report.in_flight = w->rank[world_rank].runs;
}

/* Where a step's bytes are; of scratch, and of what was heard, the first place tells where it begins. */
static bool is_at(rank_run *run, uint8_t buf, size_t at, const uint8_t *got)
{
    const uint8_t **base = &run->base[buf];
    if ((buf == GCI_BUF_TEMP || buf == GCI_BUF_HEARD) && !*base && got)
        *base = got - at;
    return *base && got == *base + at;
}

static void check_places(witness *w, const collective *c, const gci_seen *e, rank_run *run, const gci_step *step)
{
    const gci_call *call = &c->call[e->comm->rank];
    bool saves = e->n == 0 && call->in_place && call->coll == GCI_REDUCE_SCATTER;   /* the vector begins where SEND does */
    bool reads = step->kind != GCI_STEP_RECV, writes = step->kind != GCI_STEP_SEND;
    if (step->bytes > 0 && ((reads && !is_at(run, saves ? GCI_BUF_SEND : step->from, step->from_at, e->from)) ||
                            (writes && !is_at(run, step->to, step->to_at, e->to))))
        fault(w, c, "rank %d step %d works on other bytes than it names", e->comm->rank, (int)e->n);
}

/* Messages of a direction with a peer begin in list order: none before it is left, none behind it has begun. */
static void check_message_order(witness *w, const collective *c, const gci_seen *e, rank_run *run)
{
    const gci_sched *sched = &c->sched[e->comm->rank];
    const gci_step *step = &sched->step[e->n];
    int32_t *last = &run->last[2 * step->peer + (step->kind == GCI_STEP_SEND)];
    for (int32_t i = *last; i < e->n; i++)
        if (sched->step[i].kind == step->kind && sched->step[i].peer == step->peer)
            fault(w, c, "rank %d step %d overtakes step %d", e->comm->rank, (int)e->n, (int)i);
    if (*last > e->n)
        fault(w, c, "rank %d step %d comes after step %d", e->comm->rank, (int)e->n, (int)*last - 1);
    *last = *last > e->n ? *last : e->n + 1;
}

/* The step that is told of, if it is one of the schedule that this rank started with. */
static const gci_step *step_of(witness *w, const collective *c, const gci_seen *e)
{
    const gci_sched *sched = &c->sched[e->comm->rank];
    if (e->n < 0 || e->n >= sched->steps || e->sched->steps != sched->steps) {
        fault(w, c, "rank %d: there is no step %d", e->comm->rank, (int)e->n);
        return NULL;
    }
    const gci_step *is = &e->sched->step[e->n], *was = &sched->step[e->n];
    if (is->kind != was->kind || is->peer != was->peer || is->bytes != was->bytes || is->swapped != was->swapped)
        fault(w, c, "rank %d step %d has changed", e->comm->rank, (int)e->n);
    return was;
}

static void step_ended(rank_run *run, int32_t i)
{
    run->done[i] = true;
    run->left--;
}

static void begin_step(witness *w, collective *c, const gci_seen *e)
{
    int rank = e->comm->rank;
    rank_run *run = &c->run[rank];
    const gci_sched *sched = &c->sched[rank];
    const gci_step *step = step_of(w, c, e);
    if (!step)
        return;
    if (run->begun[e->n])
        fault(w, c, "rank %d step %d begins twice", rank, (int)e->n);
    for (int32_t k = 0; k < step->waits; k++)
        if (!run->done[sched->wait[step->first_wait + k]])
            fault(w, c, "rank %d step %d begins before step %d is over", rank, (int)e->n, (int)sched->wait[step->first_wait + k]);
    run->begun[e->n] = true;
    check_places(w, c, e, run, step);
    if (step->kind == GCI_STEP_REDUCE || step->kind == GCI_STEP_COPY)
        step_ended(run, e->n);
    else
        check_message_order(w, c, e, run);
    if (step->kind == GCI_STEP_SEND) {
        w->rank[e->comm->world->rank].messages++;
        w->rank[e->comm->world->rank].bytes += step->bytes;
    }
}

static void end_message(witness *w, collective *c, const gci_seen *e)
{
    int rank = e->comm->rank;
    rank_run *run = &c->run[rank];
    const gci_step *step = step_of(w, c, e);
    if (!step)
        return;
    if (!run->begun[e->n] || run->done[e->n])
        fault(w, c, "rank %d step %d ends %s", rank, (int)e->n, run->done[e->n] ? "twice" : "before it begins");
    else
        step_ended(run, e->n);
}

static void end_run(witness *w, collective *c, const gci_seen *e)
{
    rank_run *run = &c->run[e->comm->rank];
    run->state = e->n < 0 ? RUN_FAILED : RUN_OK;
    c->ended++;
    c->failed += e->n < 0;
    w->rank[e->comm->world->rank].runs--;
    const gci_world *world = e->comm->world;        /* at its end whoever is through the last barrier lets all others go */
    bool let_go = world->through && e->comm == world->self && c->call[0].coll == GCI_BARRIER;
    if (e->n == GC_OK && run->left != 0 && !let_go)
        fault(w, c, "rank %d ends with %d steps to go", e->comm->rank, (int)run->left);
    if (c->ended < c->ranks || c->failed > 0)
        return;
    if (c->different) {
        w->report.different++;
    } else if (prove(w, c)) {
        w->report.proven++;
        w->report.coll[c->call[0].coll]++;
        w->report.choice[c->run[0].choice]++;
    }
    collective_free(w, c);
}

void witness_see(void *of_witness, const gci_seen *e)
{
    witness *w = of_witness;
    collective *c = collective_of(w, e);
    if (e->what == GCI_SEEN_START)
        start(w, c, e);
    else if (c->run[e->comm->rank].state != RUN_GOES)
        fault(w, c, "rank %d goes on without having started, or after its end", e->comm->rank);
    else if (e->what == GCI_SEEN_STEP)
        begin_step(w, c, e);
    else if (e->what == GCI_SEEN_DONE)
        end_message(w, c, e);
    else
        end_run(w, c, e);
}

/* ---- of a job ------------------------------------------------------------------------------------------------------ */

witness *witness_new(FILE *faults)
{
    witness *w = zeroed(1, sizeof *w);
    w->out = faults;
    return w;
}

void witness_attach(witness *w, gc_comm *world)
{
    gci_env *env = &world->world->env;
    int ranks = gc_size(world);
    if (ranks > w->ranks) {
        w->rank = realloc(w->rank, (size_t)ranks * sizeof *w->rank);
        if (!w->rank)
            abort();
        memset(w->rank + w->ranks, 0, (size_t)(ranks - w->ranks) * sizeof *w->rank);
        w->ranks = ranks;
    }
    env->seen_user = w;
    env->seen = witness_see;
}

void witness_sent(const witness *w, int world_rank, uint64_t *messages, uint64_t *bytes)
{
    *messages = w->rank[world_rank].messages;
    *bytes = w->rank[world_rank].bytes;
}

witness_report witness_end(witness *w, bool whole)
{
    while (w->open) {
        collective *c = w->open;
        w->report.failed += c->failed > 0;
        w->report.cut_short += c->failed == 0;
        if (whole && c->failed == 0 && c->started == c->ranks) {
            fault(w, c, "only %d ranks have come to its end", c->ended);
            (void)prove(w, c);              /* perhaps that is why */
        }
        collective_free(w, c);
    }
    witness_report report = w->report;
    free(w->rank);
    free(w);
    return report;
}
