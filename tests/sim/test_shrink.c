/* test_shrink.c: gc_comm_shrink on the simulated network: ranks that die at every instant of an agreement, and at random.
 * SPDX-License-Identifier: MIT
 *
 * Survivors go on: they shrink, use what they get, and shrink again when somebody else has died, until all deaths are long over.
 * Whatever the n-th shrink gave to those who live in the end is the same, lacks none that lived, and works unless somebody else
 * has died. Deaths are put at one instant after another of a shrink of which a first run has told how long it takes, and, since
 * what a rank tells many takes no time here, before each packet that the victim sends; below that at random (GCT_SEED,
 * GCT_ROUNDS). time limit: 600 s
 */
#include "simnet.h"
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { RANKS_MAX = 48, RANDOM_MAX = 24, EVENTS_MAX = 6, SHRINKS_MAX = 24, PEER_S = 2 };
#define BEGIN (500 * (int64_t)GCI_NS_PER_MS)       /* when the first shrink is called */
#define DEAF  (600 * (int64_t)GCI_NS_PER_MS)       /* less than a suspect has to answer in (life.c) */
#define STONE_DEAF (4 * DEAF)
#define PAUSE (20 * (int64_t)GCI_NS_PER_MS)
#define COMPUTES (5 * GCI_SECOND)

typedef struct given { bool ok; uint32_t context; int n, member[RANKS_MAX]; } given;    /* members: world ranks */

typedef struct trial {
    int       ranks, per_host;
    bool      calm, frees, busy;            /* frees: what was shrunk; busy: collectives and messages are under way */
    bool      computes;                     /* for COMPUTES after its first shrink */
    int       doubter, doubted;             /* a rank that takes another one for dead; both 0: nobody does */
    bool      tells;                        /* it tells the others */
    double    density;                      /* of links; 0: the default */
    uint64_t  parts;                        /* survivors are parted, by ranks drawn with it; 0: they are not */
    bool      silent;                       /* their hosts fall silent; else they are killed */
    bool      again;                        /* and once more, 400 ms later, by the links that they have then */
    const char *routing;
    int       parted;                       /* ranks that live and were parted from the others that do */
    int       partings;
    gci_control *control[RANKS_MAX];
    int       sites;                        /* that will be cut off from each other; 0: one, that is whole */
    int64_t   joined;                       /* since BEGIN: they are joined again, and the host of rank 1 hears nothing for DEAF */
    int       unfound;                      /* or that of this rank, of the other site, whom rank 0 gives up then; 0: it is rank 1 */
    bool      looked, given_up;             /* for it; and found no way to it */
    int64_t   latency;
    gct_event event[EVENTS_MAX];
    int       events;
    int64_t   late[RANKS_MAX];              /* this rank calls so late */
    int       packets[RANKS_MAX];           /* it dies instead of sending one more, from the first shrink on; 0: it does not */
    /* what comes of it */
    sim      *net;
    sim_proc **procs;
    int       sent[RANKS_MAX], used[RANKS_MAX];     /* packets of this rank, from BEGIN on, and until its first shrink was over */
    int64_t   began, end;                   /* end: from here on nobody dies, and all know who has */
    bool      dies[RANKS_MAX], left[RANKS_MAX];
    int64_t   first, last;                  /* of the first shrink: called by the first, over at the last */
    int       shrinks[RANKS_MAX];
    given     given[SHRINKS_MAX][RANKS_MAX];
} trial;

static void times(gc_options *o, int rank, void *arg)
{
    (void)rank;
    (void)arg;
    o->peer_timeout = PEER_S;
    o->start_timeout = 20;
}

static void options(gc_options *o, int rank, void *arg)
{
    const trial *t = arg;
    times(o, rank, arg);
    o->link_density = t->density;
    o->routing = t->routing ? t->routing : o->routing;
    o->direct = t->routing ? 0 : o->direct;
}

static int64_t now(const trial *t) { return sim_now(t->net) - t->began; }

/* When the first shrink is called: all have joined by then. */
static int64_t begin(const trial *t) { return BEGIN + 50 * t->latency; }

/* ---- deaths between two packets ------------------------------------------------------------------------------------- */

static trial *watched;
static ssize_t (*simulated_send)(gci_sys *, int fd, const struct iovec *, int n);

static ssize_t watched_send(gci_sys *sys, int fd, const struct iovec *part, int n)
{
    trial *t = watched;
    int rank = 0;
    while (rank < t->ranks && sim_sys(t->procs[rank]) != sys)
        rank++;
    if (rank < t->ranks && now(t) >= begin(t) && t->sent[rank]++ == t->packets[rank] - 1)
        sim_kill_proc(t->procs[rank]);          /* does not come back */
    return simulated_send(sys, fd, part, n);
}

/* ---- a rank that the other site gives up as they are joined again, before the others of its own --------------------------- */

static int (*simulated_wait)(gci_sys *, int poller, gci_event *, int most, int64_t timeout);

static int watched_wait(gci_sys *sys, int poller, gci_event *event, int most, int64_t timeout)
{
    trial *t = watched;
    gci_control *c = t->control[0];
    bool of_its_control = c && c->sys == sys && c->poller == poller;
    int64_t until = BEGIN + t->joined - now(t);
    if (of_its_control && until > 0) {
        timeout = gci_min64(timeout, until);
    } else if (of_its_control && !t->looked) {
        t->looked = true;
        gci_life_span(c, 0);
        t->given_up = !c->gone[t->unfound] && c->span[t->unfound] < 0;
        if (t->given_up)
            gci_life_cut_off(c, t->unfound);
    }
    return simulated_wait(sys, poller, event, most, timeout);
}

static void deafen(void *arg, void *mends);

static void started(sim *net, sim_proc **procs, int ranks, void *arg)
{
    trial *t = watched = arg;
    t->net = net;
    t->procs = procs;
    t->began = sim_now(net);
    for (int rank = 0; rank < ranks; rank++) {
        gci_sys *sys = sim_sys(procs[rank]);
        simulated_send = sys->send;
        sys->send = watched_send;
    }
    if (t->unfound) {
        simulated_wait = sim_sys(procs[0])->wait;
        sim_sys(procs[0])->wait = watched_wait;
    }
    if (t->joined) {
        sim_at(net, t->began + BEGIN + t->joined, deafen, t, NULL);
        sim_at(net, t->began + BEGIN + t->joined + (t->unfound ? STONE_DEAF : DEAF), deafen, t, t);
    }
}

/* ---- survivors that are parted ---------------------------------------------------------------------------------------- */

static int64_t parted_at(const trial *t) { return t->began + begin(t) - 50 * (int64_t)GCI_NS_PER_MS; }

static void kill_cut(trial *t)
{
    for (int rank = 0; rank < t->ranks; rank++)
        if (t->dies[rank] && t->silent)
            sim_kill_host(sim_proc_host(t->procs[rank]));
        else if (t->dies[rank] && !sim_proc_killed(t->procs[rank]))
            sim_kill_proc(t->procs[rank]);
}

/* Some hosts that hang together are left alone by the death of all that they have links to. */
static void choose_cut(trial *t, const gci_graph *g)
{
    bool dead[RANKS_MAX];
    int hosts = (t->ranks + t->per_host - 1) / t->per_host;
    uint64_t random = t->parts++;
    memcpy(dead, t->dies, sizeof dead);
    t->parted = 0;
    for (int tries = 0; tries < 40 && g->edges > 0 && !t->parted; tries++) {
        bool alone[RANKS_MAX] = { false }, dies[RANKS_MAX] = { false };
        int others = 0, parted = 0;
        alone[gct_random(&random) % (uint64_t)hosts] = true;
        for (int more = (int)(gct_random(&random) % 3); more > 0; more--) {
            const gci_edge *e = &g->edge[gct_random(&random) % (uint64_t)g->edges];
            alone[e->a / t->per_host] |= alone[e->b / t->per_host];
            alone[e->b / t->per_host] |= alone[e->a / t->per_host];
        }
        for (int i = 0; i < g->edges; i++) {
            int a = g->edge[i].a / t->per_host, b = g->edge[i].b / t->per_host;
            dies[a] |= !alone[a] && alone[b];
            dies[b] |= !alone[b] && alone[a];
        }
        for (int rank = 0; rank < t->ranks; rank++) {
            parted += alone[rank / t->per_host] && !dead[rank];
            others += !alone[rank / t->per_host] && !dies[rank / t->per_host] && !dead[rank];
        }
        if (others == 0 || parted == 0)
            continue;
        t->parted = parted;
        for (int rank = 0; rank < t->ranks; rank++)
            t->dies[rank] = dead[rank] || dies[rank / t->per_host];
        if (parted > 1 && gct_random(&random) % 3 == 0)     /* one more, so that nobody is left who has a link to it */
            for (int rank = 0, among = (int)(gct_random(&random) % (uint64_t)parted); rank < t->ranks && !t->silent; rank++)
                t->dies[rank] |= alone[rank / t->per_host] && !dead[rank] && among-- == 0;
    }
    t->partings += t->parted > 0;
}

/* By what one that lives knows of links. */
static void part(void *arg, void *unused)
{
    trial *t = arg;
    gci_graph left = { .nodes = t->ranks };
    const gci_control *c = NULL;
    (void)unused;
    for (int rank = 0; rank < t->ranks && !c; rank++)
        c = t->dies[rank] ? NULL : t->control[rank];
    left.edge = malloc((size_t)(c->graph.edges + c->rescues) * sizeof *left.edge);
    assert_non_null(left.edge);
    for (int i = 0; i < c->graph.edges + c->rescues; i++) {
        gci_edge e = i < c->graph.edges ? c->graph.edge[i] : (gci_edge){ 0 };
        if (i >= c->graph.edges)
            e = (gci_edge){ .a = c->rescued[i - c->graph.edges].a, .b = c->rescued[i - c->graph.edges].b };
        if (!c->down[i] && !t->dies[e.a] && !t->dies[e.b])
            left.edge[left.edges++] = e;
    }
    choose_cut(t, &left);
    free(left.edge);
    kill_cut(t);
}

/* ---- a survivor ----------------------------------------------------------------------------------------------------- */

static int site_of(const trial *t, int rank) { return t->sites ? rank * t->sites / t->ranks : 0; }

/* Notes what the nth shrink gave; nobody who lives may be missing, nobody who was known dead before may be there. */
static int note(trial *t, gc_comm *world, gc_comm *made, const int dead[], int n_dead, int nth)
{
    given *g = &t->given[nth][gc_rank(world)];
    int mine[RANKS_MAX], n = gc_size(made);
    for (int i = 0; i < n; i++)
        mine[i] = i;
    gct_ok(gc_comm_translate(made, mine, n, world, g->member));
    g->n = n;
    g->context = made->context;
    g->ok = true;
    gct_require(g->member[gc_rank(made)] == gc_rank(world), "I am rank %d", gc_rank(made));
    for (int i = 1; i < n; i++)
        gct_require(g->member[i - 1] < g->member[i], "the order: %d after %d", g->member[i], g->member[i - 1]);
    for (int rank = 0; rank < t->ranks; rank++) {
        bool there = false, was_dead = false;
        for (int i = 0; i < n; i++)
            there |= g->member[i] == rank;
        for (int i = 0; i < n_dead; i++)
            was_dead |= dead[i] == rank;
        bool may_lack = t->dies[rank] || t->left[rank] || site_of(t, rank) != site_of(t, gc_rank(world));
        gct_require(there || may_lack, "shrink %d lacks rank %d, which lives", nth, rank);
        gct_require(!there || !was_dead, "shrink %d has rank %d, which was known dead", nth, rank);
    }
    return 0;
}

/* An allreduce and an alltoall; *over: everybody's time is over. What fails must have a death for it: *code. */
static int use(const trial *t, gc_comm *comm, int *code, bool *over)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    int64_t in[2] = { (int64_t)1 << rank, now(t) >= t->end }, out[2] = { 0, 0 };
    int32_t to[RANKS_MAX], from[RANKS_MAX];
    *over = false;
    *code = gc_allreduce(comm, in, out, 2, GC_INT64, GC_SUM);
    gct_require(*code || (out[0] == ((int64_t)1 << size) - 1 && out[1] >= 0 && out[1] <= size), "sum %llx", (long long)out[0]);
    for (int i = 0; i < size; i++)
        to[i] = rank * 100 + i;
    if (!*code)
        *code = gc_alltoall(comm, to, sizeof *to, from);
    for (int i = 0; !*code && i < size; i++)
        gct_require(from[i] == i * 100 + rank, "block of %d: %d", i, from[i]);
    *over = !*code && out[1] == size;
    gct_require(!*code || (*code == GC_ERR_PEER && gc_comm_failed(comm, NULL, 0) > 0), "%s", gc_strerror(*code));
    return 0;
}

/* What is begun on a communicator that is to be shrunk; some of it fails, none of it may hang once its ranks have gone on. */
static int begin_some(gc_comm *comm, gc_request *request[3], int64_t buf[3])
{
    int rank = gc_rank(comm), size = gc_size(comm);
    request[0] = request[1] = request[2] = NULL;
    int code = gc_iallreduce(comm, &buf[0], &buf[1], 1, GC_INT64, GC_SUM, &request[0]);
    gct_require(code == GC_OK || code == GC_ERR_PEER, "%s", gc_strerror(code));
    code = gc_isend(comm, &buf[0], sizeof *buf, (rank + 1) % size, 7, &request[1]);
    gct_require(code == GC_OK || code == GC_ERR_PEER, "%s", gc_strerror(code));
    code = gc_irecv(comm, &buf[2], sizeof *buf, GC_ANY_SOURCE, 7, &request[2]);
    gct_require(code == GC_OK || code == GC_ERR_PEER, "%s", gc_strerror(code));
    return 0;
}

/* Who was to receive may have gone on before it came, and what nobody receives has the credits of its sender. */
static int end_some(gc_request *request[3])
{
    for (int i = 0; i < 3; i++) {
        if (request[i] && i > 0)
            gct_ok(gc_cancel(request[i]));
        int code = gc_wait(&request[i], NULL);
        gct_require(code == GC_OK || code == GC_ERR_PEER || (i > 0 && code == GC_ERR_CANCELLED), "%d: %s", i, gc_strerror(code));
    }
    return 0;
}

/* What is left of shrinks that are over would fill the credits of its sender. */
static int keeps_nothing(gc_comm *comm)
{
    gci_match *match = gci_match_find(comm->world->p2p->match, comm->context + GCI_CONTEXT_SHRINK);
    int left = 0;
    for (const gc_message *m = match ? match->unexpected : NULL; m; m = m->next)
        left += gci_comm_past(comm, match->context, m->packet.tag);
    gct_require(left == 0, "%d messages of shrinks that are over", left);
    return 0;
}

/* As p2p.c gives a peer up. */
static void doubt(gci_world *w, int rank, bool tells)
{
    gci_news news = { .kind = GCI_NEWS_NOTICE, .rank = w->rank, .fd = -1, .code = GC_ERR_PEER };
    news.notice = (gci_notice){ .kind = GCI_NOTICE_LOST, .origin = (uint32_t)w->rank, .word = { (uint32_t)rank, -GC_ERR_PEER } };
    if (tells)
        gci_control_notify(w->control, &news.notice);
    gci_overlay_news(w->overlay, &news);
    gci_enter(w);
    gci_overlay_poll(w->overlay, -1);
    gci_leave(w);
}

static int survivor(gc_comm *world, int rank, int size, void *arg)
{
    trial *t = arg;
    gc_comm *comm = world, *made;
    bool over = false;
    (void)size;
    gc_barrier(world);
    t->control[rank] = world->world->control;
    if (t->parts && rank == 0)
        sim_at(t->net, parted_at(t), part, t, NULL);
    if (t->again && rank == 0)
        sim_at(t->net, parted_at(t) + 400 * (int64_t)GCI_NS_PER_MS, part, t, NULL);
    sim_sleep(sim_current(), begin(t) + t->late[rank] - now(t));
    for (int nth = 0; !over; nth++) {
        int dead[RANKS_MAX], back[RANKS_MAX], code, n_dead = gc_comm_failed(comm, dead, RANKS_MAX);
        gc_request *request[3] = { 0 };
        int64_t buf[3] = { 0 };
        gct_require(nth < SHRINKS_MAX, "too many shrinks");
        gct_ok(gc_comm_translate(comm, dead, n_dead, world, back));
        if (t->busy && begin_some(comm, request, buf))
            return 1;
        if (nth == 0 && t->doubter != t->doubted && rank == t->doubter)
            doubt(world->world, t->doubted, t->tells);
        t->first = nth == 0 && (t->first == 0 || now(t) < t->first) ? now(t) : t->first;
        code = gc_comm_shrink(comm, &made);
        if (t->doubter != t->doubted && rank == t->doubted) {
            gct_require(code == GC_ERR_PEER && !made, "the others take it for dead: %s", gc_strerror(code));
            gct_require(now(t) < t->end, "it hears that only when they leave");
            return 0;
        }
        gct_ok(code);
        t->last = nth == 0 && now(t) > t->last ? now(t) : t->last;
        t->shrinks[rank] = nth + 1;
        t->used[rank] = nth == 0 ? t->sent[rank] : t->used[rank];
        if (note(t, world, made, back, n_dead, nth) || keeps_nothing(comm))
            return 1;
        if (t->computes && nth == 0)
            sim_sleep(sim_current(), COMPUTES);
        do {
            if (use(t, made, &code, &over))
                return 1;
            sim_sleep(sim_current(), PAUSE);    /* of one rank nothing takes time */
        } while (!code && !over);
        if ((t->busy && end_some(request)) || keeps_nothing(comm))
            return 1;
        if (t->frees && comm != world)
            gct_ok(gc_comm_free(comm));
        comm = made;
        for (int i = 0; code && i < t->ranks; i++)
            over |= t->left[i] && site_of(t, i) == site_of(t, rank);    /* they were through, and have gone */
    }
    t->left[rank] = true;
    return keeps_nothing(world);
}

/* ---- one trial ------------------------------------------------------------------------------------------------------ */

static void add(trial *t, enum gct_event_kind what, int64_t at, int victim)
{
    t->event[t->events++] = (gct_event){ .at = at, .what = what, .a = victim, .b = -1 };
    for (int rank = 0; rank < t->ranks; rank++) {
        bool same_host = what == GCT_KILL_HOST && rank / t->per_host == victim / t->per_host;
        t->dies[rank] |= rank == victim || same_host;
    }
    t->end = at + (PEER_S + 2) * GCI_SECOND > t->end && what == GCT_KILL_HOST ? at + (PEER_S + 2) * GCI_SECOND : t->end;
}

static void add_packets(trial *t, int packets, int victim)
{
    t->packets[victim] = packets;
    t->dies[victim] = true;
}

static bool same(const given *a, const given *b)
{
    return a->context == b->context && a->n == b->n && !memcmp(a->member, b->member, (size_t)a->n * sizeof *a->member);
}

static bool agreed(const trial *t)
{
    for (int nth = 0; nth < SHRINKS_MAX; nth++)
        for (int a = 0, first = -1; a < t->ranks; a++) {
            if (t->dies[a] || !t->given[nth][a].ok)
                continue;
            if (first < 0 || site_of(t, first) != site_of(t, a))
                first = a;
            if (!same(&t->given[nth][first], &t->given[nth][a])) {
                fprintf(stderr, "shrink %d gave rank %d %d members of context %u, rank %d %d of %u\n", nth, first,
                        t->given[nth][first].n, t->given[nth][first].context, a, t->given[nth][a].n, t->given[nth][a].context);
                return false;
            }
        }
    return true;
}

static void run(trial *t, uint64_t seed)
{
    gct_spec spec = { .ranks = t->ranks, .ranks_per_host = t->per_host, .seed = seed, .calm = t->calm, .time_limit = 60,
                      .unwitnessed = true, .sites = t->sites, .leave_anyhow = true,
                      .options = options, .started = started, .events = t->event,
                      .event_count = t->events, .lan_latency = t->latency, .virtual_limit = 60 * GCI_SECOND };
    int failed = gct_job(&spec, survivor, t);
    if (failed || !agreed(t)) {
        fprintf(stderr, "%d ranks, %d on each host, calm %d, busy %d, frees %d, latency %lld, seed %llu:", t->ranks, t->per_host,
                t->calm, t->busy, t->frees, (long long)t->latency, (unsigned long long)seed);
        for (int i = 0; i < t->events; i++)
            fprintf(stderr, " event %d of %d at %lld", (int)t->event[i].what, t->event[i].a, (long long)t->event[i].at);
        for (int rank = 0; rank < t->ranks; rank++)
            if (t->packets[rank])
                fprintf(stderr, " kill %d before packet %d", rank, t->packets[rank]);
        fprintf(stderr, "\n");
        fail();
    }
}

static int rounds(int usual)
{
    const char *text = getenv("GCT_ROUNDS");
    return text ? atoi(text) : usual;
}

/* ---- each instant of a shrink ----------------------------------------------------------------------------------------- */

enum { SWEPT = 5, STEPS = 40 };

static trial swept(int already_dead)
{
    trial t = { .ranks = SWEPT, .per_host = 1, .calm = true, .frees = true, .latency = GCI_NS_PER_MS, .end = BEGIN + GCI_SECOND };
    if (already_dead >= 0)
        add(&t, GCT_KILL, BEGIN / 2, already_dead);
    for (int rank = 0; rank < SWEPT; rank++)
        t.late[rank] = rank * 3 % SWEPT * (GCI_NS_PER_MS / 5);      /* who is first is not always the coordinator */
    return t;
}

/* One victim, or two, the second of them so many steps later. */
static int sweep(int already_dead, int victim, int second, int apart)
{
    trial measured = swept(already_dead);
    int jobs = 0;
    run(&measured, 1);
    int64_t step = (measured.last - measured.first) / STEPS + 1, from = measured.first - 3 * step;
    for (int i = 0; i < STEPS + 10; i++) {
        if (!gct_drawn())
            continue;
        trial t = swept(already_dead);
        add(&t, GCT_KILL, from + i * step, victim);
        if (second >= 0)
            add(&t, GCT_KILL, from + (i + apart) * step, second);
        run(&t, 1);
        jobs++;
    }
    return jobs;
}

static void test_one_dies(void **state)
{
    int jobs = 0;
    (void)state;
    for (int victim = 0; victim < SWEPT; victim++)
        jobs += sweep(-1, victim, -1, 0);
    for (int victim = 1; victim < SWEPT; victim++)
        jobs += sweep(0, victim, -1, 0);
    print_message("%d jobs\n", jobs);
}

static void test_two_die(void **state)
{
    static const int apart[] = { 0, 1, 3, 8, 20 };
    int jobs = 0;
    (void)state;
    for (size_t i = 0; i < sizeof apart / sizeof apart[0]; i++) {
        jobs += sweep(-1, 0, 1, apart[i]);          /* a coordinator, and the next one */
        jobs += sweep(-1, 1, 0, apart[i]);
        jobs += sweep(-1, 0, 3, apart[i]);
        jobs += sweep(2, 0, 1, apart[i]);
    }
    print_message("%d jobs\n", jobs);
}

/* ---- between two packets ---------------------------------------------------------------------------------------------- */

/* The second one dies while it follows, or while it passes on what the first had decided. */
static int sweep_packets(int already_dead, int victim, int second)
{
    trial measured = swept(already_dead);
    int jobs = 0;
    run(&measured, 1);
    int least = 1, most = second < 0 ? 1 : measured.used[second] + 2 * SWEPT;
    for (int i = 1; i <= measured.used[victim] + 1; i++)
        for (int k = least; k <= most; k++) {
            if (!gct_drawn())
                continue;
            trial t = swept(already_dead);
            add_packets(&t, i, victim);
            if (second >= 0)
                add_packets(&t, k, second);
            run(&t, 1);
            jobs++;
        }
    return jobs;
}

static void test_packets(void **state)
{
    int jobs = 0;
    (void)state;
    for (int victim = 0; victim < SWEPT; victim++)
        jobs += sweep_packets(-1, victim, -1);
    jobs += sweep_packets(-1, 0, 1);
    jobs += sweep_packets(-1, 0, 2);
    jobs += sweep_packets(-1, 0, 4);
    jobs += sweep_packets(0, 1, 2);
    print_message("%d jobs\n", jobs);
}

/* What a rank owes to others when it is through is on its way, though it computes from then on. */
static void test_computing(void **state)
{
    trial measured = swept(-1);
    (void)state;
    run(&measured, 1);
    for (int i = 1; i <= measured.used[0] + 1; i++) {
        trial t = swept(-1);
        t.computes = true;
        t.end += COMPUTES;
        add_packets(&t, i, 0);
        run(&t, 1);
        assert_true(t.last - t.first < COMPUTES / 2);
    }
}

enum { LARGE = 16 << 20, LARGE_PER_S = 4 << 20, LATER = 4 };

/* What lets a rank go stands behind a long message, in a socket that is full. */
static int released_behind(gc_comm *world, int rank, int size, void *arg)
{
    int64_t *through = arg;
    char *large = gct_buffer(LARGE);
    gc_request *r = NULL;
    gc_comm *made;
    (void)size;
    gct_ok(gc_barrier(world));
    if (rank == 0)
        gct_ok(gc_isend(world, large, LARGE, LATER, 1, &r));
    if (rank == LATER)
        gct_ok(gc_irecv(world, large, LARGE, 0, 1, &r));
    sim_sleep(sim_current(), GCI_NS_PER_MS);
    gct_ok(gc_comm_shrink(world, &made));
    through[rank] = sim_sys(sim_current())->now(sim_sys(sim_current()));
    if (rank == 0)
        sim_sleep(sim_current(), COMPUTES);
    gct_ok(gc_wait(&r, NULL));
    gct_ok(gc_barrier(made));
    return gct_buffer_free(large);
}

static void test_released_behind(void **state)
{
    int64_t through[SWEPT];
    gct_spec spec = { .ranks = SWEPT, .seed = 1, .calm = true, .unwitnessed = true, .options = times, .lan_rate = LARGE_PER_S };
    (void)state;
    assert_int_equal(0, gct_job(&spec, released_behind, through));
    assert_true(through[LATER] - through[0] < COMPUTES / 2);
}

/* ---- who is taken for dead ------------------------------------------------------------------------------------------------ */

/* It gets an error, and the others get a communicator without it. */
static void test_doubted(void **state)
{
    (void)state;
    for (int doubted = 0; doubted < SWEPT; doubted++)
        for (int doubter = 0; doubter < SWEPT; doubter++)
            for (int tells = 0; tells < 2; tells++) {
                /* nobody else would ever know of a coordinator, or by one, that is not told */
                if (doubter == doubted || (!tells && (doubted == 0 || doubter == 0)))
                    continue;
                trial t = swept(-1);
                t.doubter = doubter;
                t.doubted = doubted;
                t.tells = tells;
                t.dies[doubted] = true;
                if (!tells)         /* both the coordinator and who hears from it wait for what never comes, before they believe it */
                    t.end += 2 * 3 * GCI_LIFE_CONTEST;
                run(&t, 1);
                for (int rank = 0; rank < SWEPT; rank++)
                    assert_true(rank == doubted ? !t.given[0][rank].ok : t.given[0][rank].ok && t.given[0][rank].n == SWEPT - 1);
            }
}

/* ---- who breaks the rules ---------------------------------------------------------------------------------------------- */

enum { IN_USE = 1, FREED = 2, LIARS = 5, SAYS_MAX = 64 };       /* context of a lie: that of a communicator there is, or was */
typedef struct lie { int liar; uint32_t what, context; size_t bytes; uint8_t says[SAYS_MAX]; } lie;

static void said(gc_request *r) { (void)r; }

/* Who leaves ends it for those who are not through; and what has not left yet moves in calls only. */
static int linger(gc_comm *comm)
{
    enum { NEVER_SENT = 99 };
    gc_request *r;
    char byte;
    gct_ok(gc_irecv(comm, &byte, 1, gc_rank(comm), NEVER_SENT, &r));
    int code = gc_wait_for(&r, 1, NULL);
    gct_require(code == GC_ERR_TIMEOUT, "%s", gc_strerror(code));
    gct_ok(gc_cancel(r));
    code = gc_wait(&r, NULL);
    gct_require(code == GC_ERR_CANCELLED, "%s", gc_strerror(code));
    return 0;
}

/* As a member of the first shrink: the coordinator to all, others to it. */
static int lies(gc_comm *world, lie *l)
{
    gci_post post = { .kind = GCI_CONTEXT_SHRINK, .tag = world->shrinks, .orphan = true, .done_fn = said };
    gc_request *r;
    char byte;
    gci_put32(l->says, l->what);
    gci_put32(l->says + 4, l->context);
    gci_enter(world->world);
    for (int to = 0; to < LIARS; to++)
        if (to != l->liar && (to == 0 || l->liar == 0))
            (void)gci_send_post(world, l->says, l->bytes, to, &post, &r);
    gci_leave(world->world);
    int code = gc_recv(world, &byte, 1, (l->liar + 1) % LIARS, 9, NULL);
    gct_require(code == GC_ERR_PEER, "nobody speaks to it any more: %s", gc_strerror(code));
    return 0;
}

/* It is given up, and the others agree without it. */
static int among_liars(gc_comm *world, int rank, int size, void *arg)
{
    lie *l = arg;
    gc_comm *other, *made = NULL;
    int failed = -1;
    gct_ok(gc_comm_dup(world, &other));
    if (rank == l->liar && (l->context == IN_USE || l->context == FREED))
        l->context = l->context == IN_USE ? world->context : other->context;
    gct_ok(gc_comm_free(other));
    gct_ok(gc_barrier(world));
    if (rank == l->liar)
        return lies(world, l);
    gct_ok(gc_comm_shrink(world, &made));
    gct_require(gc_size(made) == size - 1, "%d are left", gc_size(made));
    gct_require(gc_comm_failed(world, &failed, 1) == 1 && failed == l->liar, "rank %d is dead", failed);
    gct_ok(gc_barrier(made));
    return linger(made);
}

static void test_liars(void **state)
{
    enum { STATE = 1, DECIDE, FORWARD = 5, STRANGE = 77, BYTES_RIGHT = 9 };
    static const lie lies_told[] = {
        { .liar = 0, .what = STRANGE, .bytes = BYTES_RIGHT }, { .liar = 0, .what = DECIDE, .bytes = 3 },
        { .liar = 0, .what = DECIDE, .bytes = SAYS_MAX }, { .liar = 0, .what = DECIDE, .context = 4097, .bytes = BYTES_RIGHT },
        { .liar = 0, .what = DECIDE, .context = IN_USE, .bytes = BYTES_RIGHT },
        { .liar = 0, .what = DECIDE, .context = FREED, .bytes = BYTES_RIGHT },
        { .liar = 3, .what = STRANGE, .bytes = BYTES_RIGHT }, { .liar = 3, .what = STATE, .bytes = 0 },
        { .liar = 4, .what = STATE, .bytes = SAYS_MAX }, { .liar = 4, .what = FORWARD, .context = 4099, .bytes = BYTES_RIGHT },
        { .liar = 1, .what = FORWARD, .context = IN_USE, .bytes = BYTES_RIGHT },
        { .liar = 1, .what = FORWARD, .context = FREED, .bytes = BYTES_RIGHT } };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(lies_told); i++)
        for (int calm = 0; calm < 2; calm++) {
            lie l = lies_told[i];
            gct_spec spec = { .ranks = LIARS, .seed = 1 + i, .calm = calm, .unwitnessed = true, .options = times,
                              .leave_anyhow = true, .virtual_limit = 60 * GCI_SECOND };
            assert_int_equal(0, gct_job(&spec, among_liars, &l));
        }
}

/* ---- a decision that may have been replaced ----------------------------------------------------------------------------- */

/* Ranks 0 to 2 are played. 0 has decided, and died; 2 has heard of it and passes that on. The others have turned to 1, and hear of
 * its death before they hear of that of 2: 1 may have heard that earlier, have decided anew, and others may hold that. */
enum { DECIDER, NEXT, TELLER, PLAYED, PLAYERS = 5, OLD_CONTEXT = 4096 * GCI_CONTEXT_KINDS };
typedef struct old_word { bool taken[PLAYERS]; } old_word;

static int plays(gc_comm *world, int rank)
{
    enum { FORWARD = 5, BYTES_RIGHT = 9, LIVES_S = 8 };
    gci_post post = { .kind = GCI_CONTEXT_SHRINK, .tag = world->shrinks, .orphan = true, .done_fn = said };
    uint8_t word[BYTES_RIGHT] = { 0 };
    gc_request *r;
    gci_put32(word, FORWARD);
    gci_put32(word + 4, OLD_CONTEXT);
    gci_enter(world->world);
    for (int to = PLAYED; rank == TELLER && to < PLAYERS; to++)
        (void)gci_send_post(world, word, sizeof word, to, &post, &r);
    gci_leave(world->world);
    for (int i = 0; i < LIVES_S; i++)
        if (linger(world))
            return 1;
    return 0;
}

static int hears_an_old_word(gc_comm *world, int rank, int size, void *arg)
{
    old_word *w = arg;
    gc_comm *made = NULL;
    (void)size;
    gct_ok(gc_barrier(world));
    if (rank < PLAYED)
        return plays(world, rank);
    gct_ok(gc_comm_shrink(world, &made));
    w->taken[rank] = made->context == OLD_CONTEXT;
    return linger(made);
}

static void test_old_word(void **state)
{
    (void)state;
    for (int teller_dies = 0; teller_dies < 2; teller_dies++) {
        old_word w = { { false } };
        gct_event deaths[] = { { .at = BEGIN, .what = GCT_KILL, .a = DECIDER, .b = -1 },
                               { .at = 2 * BEGIN, .what = GCT_KILL, .a = NEXT, .b = -1 },
                               { .at = 3 * BEGIN, .what = GCT_KILL, .a = TELLER, .b = -1 } };
        gct_spec spec = { .ranks = PLAYERS, .seed = 1, .calm = true, .unwitnessed = true, .options = times, .leave_anyhow = true,
                          .events = deaths, .event_count = 2 + teller_dies, .virtual_limit = 60 * GCI_SECOND };
        assert_int_equal(0, gct_job(&spec, hears_an_old_word, &w));
        for (int rank = PLAYED; rank < PLAYERS; rank++)
            assert_int_equal(w.taken[rank], !teller_dies);
    }
}

/* ---- who lacks memory ------------------------------------------------------------------------------------------------ */

enum { HUNGRY = 6, EATER = 1, GIVER = 4, FAR = 3, TAG = 3, BYTES = 2000, FASTS = 6 };

static void starve(bool now_on) { sim_alloc_fail(sim_current(), now_on); }

static void only_routes(gc_options *o, int rank, void *arg)
{
    times(o, rank, arg);
    o->direct = *(bool *)arg;
}

/* With links of their own it may be cut off first, because it can have no connections. */
static bool ends_hungry(const bool *direct, int code)
{
    return code == GC_ERR_NOMEM || (*direct && code == GC_ERR_PEER);
}

/* One loses its memory while it waits for others, and they for it: that is the one, and the only one, that all find dead. */
static int starved(gc_comm *world, int rank, int size, void *arg)
{
    static const int dead = EATER;
    char *buf = gct_buffer(BYTES), *far = gct_buffer(BYTES);
    gc_request *r = NULL, *s = NULL;
    gc_status status;
    gc_comm *made = NULL;
    int failed = -1, code;
    gc_barrier(world);
    if (rank == EATER) {
        gct_ok(gc_irecv(world, buf, BYTES, GIVER, TAG, &r));
        gct_ok(gc_irecv(world, far, BYTES, FAR, TAG, &s));
        starve(true);
        code = gc_wait(&r, &status);
        gct_require(ends_hungry(arg, code) && (code == GC_ERR_PEER || status.fault_rank == EATER), "%s, by rank %d", gc_strerror(code),
                    status.fault_rank);
        code = gc_wait(&s, NULL);
        starve(false);
        gct_require(ends_hungry(arg, code), "%s", gc_strerror(code));
        code = gc_send(world, buf, 1, FAR, TAG);
        gct_require(ends_hungry(arg, code), "%s", gc_strerror(code));
        code = gc_barrier(world);
        gct_require(ends_hungry(arg, code), "%s", gc_strerror(code));
        sim_sleep(sim_current(), GCI_SECOND);       /* it is not by leaving that it is dead */
        return gct_buffer_free(buf) + gct_buffer_free(far);
    }
    sim_sleep(sim_current(), GCI_SECOND / 10);
    if (rank == GIVER) {                            /* these have come when memory is back: none does */
        gct_ok(gc_isend(world, buf, BYTES, EATER, TAG, &r));
        code = gc_wait(&r, NULL);
        gct_require(code == GC_OK || code == GC_ERR_PEER, "%s", gc_strerror(code));
    }
    code = gc_recv(world, far, 1, EATER, TAG, NULL);
    gct_require(code == GC_ERR_PEER, "%s", gc_strerror(code));
    gct_require(gc_comm_failed(world, &failed, 1) == 1 && failed == dead, "%d are dead, rank %d first",
                gc_comm_failed(world, NULL, 0), failed);
    gct_ok(gc_comm_shrink(world, &made));
    gct_require(gc_size(made) == size - 1, "%d are left", gc_size(made));
    gct_ok(gc_barrier(made));
    return linger(made) + gct_buffer_free(buf) + gct_buffer_free(far);
}

/* Memory is away again and again, each time for less than it may be: nobody is found dead. */
static int fasting(gc_comm *world, int rank, int size, void *arg)
{
    char *buf = gct_buffer(BYTES), end;
    gc_request *r;
    (void)size, (void)arg;
    gc_barrier(world);
    if (rank == EATER) {
        gct_ok(gc_irecv(world, &end, 1, GIVER, TAG + 1, &r));
        for (int i = 0; i < FASTS; i++) {
            gct_ok(gc_recv(world, buf, 1, GIVER, TAG, NULL));
            starve(true);
            int code = gc_wait_for(&r, 0.5, NULL);
            starve(false);
            gct_require(code == GC_ERR_TIMEOUT, "%s", gc_strerror(code));
            gct_ok(gc_recv(world, buf, BYTES, GIVER, TAG, NULL));
        }
        gct_ok(gc_wait(&r, NULL));
    } else if (rank == GIVER) {
        for (int i = 0; i < FASTS; i++) {
            sim_sleep(sim_current(), GCI_SECOND);
            gct_ok(gc_send(world, buf, 1, EATER, TAG));
            sim_sleep(sim_current(), GCI_SECOND / 10);
            gct_ok(gc_send(world, buf, BYTES, EATER, TAG));
        }
        gct_ok(gc_send(world, &end, 1, EATER, TAG + 1));
    }
    gct_ok(gc_barrier(world));
    gct_require(gc_comm_failed(world, NULL, 0) == 0, "somebody is dead");
    return gct_buffer_free(buf);
}

typedef struct hungry_shrink { int nth, code; } hungry_shrink;     /* the allocation that is the first to fail */

/* Its memory ends in a shrink, for good: so does its wait, in time, and then nobody waits for it. */
static int shrinks_hungry(gc_comm *world, int rank, int size, void *arg)
{
    hungry_shrink *h = arg;
    gc_comm *made = NULL;
    gc_barrier(world);
    int64_t began = sim_sys(sim_current())->now(sim_sys(sim_current()));
    if (rank == EATER)
        sim_alloc_fail(sim_current(), h->nth);
    int code = gc_comm_shrink(world, &made);
    int64_t took = sim_sys(sim_current())->now(sim_sys(sim_current())) - began;
    if (rank == EATER) {
        starve(false);
        h->code = code;
        if (code == GC_ERR_NOMEM && gc_comm_failed(world, NULL, 0) == 0)     /* nothing has happened */
            h->code = code = gc_comm_shrink(world, &made);
        gct_require(code == GC_OK || code == GC_ERR_NOMEM || code == GC_ERR_PEER, "%s", gc_strerror(code));
    } else {
        gct_ok(code);
        gct_require(gc_size(made) >= size - 1, "%d are left", gc_size(made));
    }
    gct_require(took < 10 * GCI_SECOND, "after %g s", (double)took / 1e9);
    return rank == EATER ? 0 : linger(made);
}

static void test_hungry_shrinks(void **state)
{
    int starved_inside = 0;
    (void)state;
    for (int nth = 1; nth < 60; nth++)
        for (int direct = 0; direct < 2; direct++) {
            hungry_shrink h = { .nth = nth };
            gct_spec spec = { .ranks = HUNGRY, .seed = (uint64_t)nth, .calm = direct, .unwitnessed = true, .options = times,
                              .leave_anyhow = true, .virtual_limit = 60 * GCI_SECOND };
            assert_int_equal(0, gct_job(&spec, shrinks_hungry, &h));
            starved_inside += h.code == GC_ERR_NOMEM;
        }
    print_message("%d ranks gave themselves up\n", starved_inside);
    assert_true(starved_inside > 0);
}

static void test_hungry(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        bool direct = i % 2;
        gct_spec spec = { .ranks = HUNGRY, .sites = 1 + i / 2, .seed = 1 + (uint64_t)i, .calm = i / 2, .unwitnessed = true,
                          .options = only_routes, .leave_anyhow = true, .virtual_limit = 60 * GCI_SECOND };
        assert_int_equal(0, gct_job(&spec, starved, &direct));
        spec.leave_anyhow = false;
        assert_int_equal(0, gct_job(&spec, fasting, &direct));
    }
}

/* ---- a network that falls apart -------------------------------------------------------------------------------------------- */

/* Before a shrink, at any instant of it, or after: each side ends with a communicator of its own ranks. */
static void test_partition(void **state)
{
    enum { HALF = 3, CUTS = 30 };
    (void)state;
    for (int i = 0; i < CUTS; i++) {
        trial t = { .ranks = 2 * HALF, .per_host = 1, .sites = 2, .calm = i % 2, .frees = true, .latency = GCI_NS_PER_MS };
        t.event[t.events++] = (gct_event){ .at = BEGIN + (i - 2) * (60 * (int64_t)GCI_NS_PER_MS / CUTS), .what = GCT_CUT_SITES, .a = 0,
                                           .b = HALF };
        t.end = BEGIN + (PEER_S + 4) * GCI_SECOND;
        run(&t, 1 + (uint64_t)i);
        for (int rank = 0; rank < t.ranks; rank++)
            assert_int_equal(HALF, t.given[t.shrinks[rank] - 1][rank].n);
    }
}

static void deafen(void *arg, void *mends)
{
    trial *t = arg;
    sim_host *deaf = sim_proc_host(t->procs[t->unfound ? t->unfound : 1]);
    for (int rank = 0; rank < t->ranks; rank++) {
        sim_host *other = sim_proc_host(t->procs[rank]);
        if (t->unfound && site_of(t, rank) == site_of(t, t->unfound))
            continue;
        if (other != deaf && mends)
            sim_mend(other, deaf);
        else if (other != deaf)
            sim_cut_way(other, deaf);
    }
}

/* Joined again about when each side gives the other up, some of which is later for some: all have one communicator, or each side
 * has its own. Nobody loses one of its own side to the word of the other, even if one of them does not hear that they are joined. */
static void partition_ends(int half, int times, int from_ms, int step_ms)
{
    int whole = 0, jobs = 0;
    int64_t longest = 0;
    for (int i = 0; i < times; i++) {
        if (!gct_drawn())
            continue;
        trial t = { .ranks = 2 * half, .per_host = 1 + i % 3, .sites = 2, .calm = i % 2, .frees = true, .latency = GCI_NS_PER_MS, .density = 0.1 };
        t.joined = PEER_S * GCI_SECOND + (from_ms + i * step_ms) * (int64_t)GCI_NS_PER_MS;
        t.event[t.events++] = (gct_event){ .at = BEGIN, .what = GCT_CUT_SITES, .a = 0, .b = half };
        t.event[t.events++] = (gct_event){ .at = BEGIN + t.joined, .what = GCT_MEND_SITES, .a = 0, .b = half };
        t.end = BEGIN + (PEER_S + 4) * GCI_SECOND;
        run(&t, 1 + (uint64_t)i);
        int members = t.given[t.shrinks[0] - 1][0].n;
        assert_true(members == half || members == 2 * half);
        whole += members == 2 * half;
        jobs++;
        longest = gci_max64(longest, t.last - t.began - BEGIN);
        for (int rank = 0; rank < t.ranks; rank++)
            assert_int_equal(members, t.given[t.shrinks[rank] - 1][rank].n);
    }
    print_message("%d of %d stayed whole, a communicator after %d ms at most\n", whole, jobs, (int)(longest / GCI_NS_PER_MS));
    assert_true(whole < jobs && (whole || jobs < times));
}

static void test_partition_ends(void **state)
{
    (void)state;
    partition_ends(12, 60, -200, 25);
    partition_ends(24, 50, 0, 10);
}

/* Cut off between a decision and what acknowledges it: then one of the other side is given up before it has heard it, the rest are
 * joined again and let go. It hears from them, as they live for it. */
static void test_partition_decided(void **state)
{
    enum { HALF = 4, STEPS_BACK = 25, STEP_MS = 2, JOINS = 8, JOIN_MS = 20 };
    int jobs = 0, given_up = 0;
    (void)state;
    for (int calm = 0; calm < 2; calm++) {
        const trial whole = { .ranks = 2 * HALF, .per_host = 1, .sites = 2, .calm = calm, .frees = true, .latency = GCI_NS_PER_MS,
                              .density = 0.1, .end = BEGIN + (PEER_S + 4) * GCI_SECOND };
        trial measured = whole;
        run(&measured, 1);
        for (int i = 0; i < STEPS_BACK * JOINS; i++) {
            if (!gct_drawn())
                continue;
            trial t = whole;
            int64_t cut = measured.last - i % STEPS_BACK * (STEP_MS * (int64_t)GCI_NS_PER_MS);
            t.unfound = HALF + i % HALF;
            t.joined = PEER_S * GCI_SECOND + (150 + i / STEPS_BACK * JOIN_MS) * (int64_t)GCI_NS_PER_MS;
            t.event[t.events++] = (gct_event){ .at = cut, .what = GCT_CUT_SITES, .a = 0, .b = HALF };
            t.event[t.events++] = (gct_event){ .at = BEGIN + t.joined, .what = GCT_MEND_SITES, .a = 0, .b = HALF };
            run(&t, 1);
            given_up += t.given_up;
            jobs++;
        }
    }
    print_message("%d jobs, one given up in %d\n", jobs, given_up);
    assert_true(given_up > jobs / 4);
}

/* ---- at random -------------------------------------------------------------------------------------------------------- */

static trial random_trial(uint64_t *random)
{
    trial t = { .ranks = 2 + (int)(gct_random(random) % (RANDOM_MAX - 1)), .per_host = 1 + (int)(gct_random(random) % 3) };
    int victims = 1 + (int)(gct_random(random) % EVENTS_MAX), last = 0;
    uint64_t flags = gct_random(random);
    t.calm = flags & 1;
    t.frees = flags & 2;
    t.busy = flags & 4;
    t.latency = flags & 8 ? 50000 : 2000000;
    t.end = BEGIN + 2 * GCI_SECOND;
    for (int i = 0; i < victims; i++) {
        int victim = (int)(gct_random(random) % (uint64_t)t.ranks), living = 0;
        int64_t at = t.events > 0 && gct_random(random) % 4 == 0 ? t.event[last].at        /* several at once */
                     : BEGIN - 5000000 + (int64_t)(gct_random(random) % 60000000);
        bool host = gct_random(random) % 8 == 0;
        trial with = t;
        if (gct_random(random) % 2)
            add_packets(&with, 1 + (int)(gct_random(random) % (uint64_t)(4 * t.ranks)), victim);
        else
            add(&with, host ? GCT_KILL_HOST : GCT_KILL, at, victim);
        for (int rank = 0; rank < t.ranks; rank++)
            living += !with.dies[rank];
        if (living == 0 || t.dies[victim])
            continue;
        last = with.events > t.events ? t.events : last;
        t = with;
    }
    for (int rank = 0; rank < t.ranks; rank++)
        t.late[rank] = (int64_t)(gct_random(random) % (flags & 16 ? 200000 : 20000000));
    return t;
}

/* Those whom a cut has parted find each other in time: the first shrink has them all. */
static void test_parted(void **state)
{
    enum { REFUSED_MS = 2500, SLOW_NS = 60 * GCI_NS_PER_MS };       /* so far that news alone take seconds in a ring */
    uint64_t random = gct_seed();
    static const char *const routing[] = { NULL, NULL, "updown-dfs", "updown-bfs", "ordered" };
    static const int64_t latency[] = { 50000, 2000000, SLOW_NS };    /* one way */
    int n = rounds(300), parted = 0;
    int64_t most[2] = { 0, 0 };
    (void)state;
    for (int i = 0; i < n; i++) {
        trial t = { .ranks = 8 + (int)(gct_random(&random) % (RANDOM_MAX - 7)), .per_host = 1 + (int)(gct_random(&random) % 3),
                    .calm = true, .frees = true, .parts = gct_random(&random) | 1 };
        t.silent = gct_random(&random) % 2;
        t.busy = gct_random(&random) % 2;
        t.latency = latency[gct_random(&random) % 3];
        t.density = gct_random(&random) % 2 ? 0 : 0.1;
        t.routing = routing[gct_random(&random) % 5];
        t.again = gct_random(&random) % 3 == 0;
        t.end = begin(&t) + (PEER_S + 2) * GCI_SECOND;
        run(&t, gct_random(&random) >> 32);
        int64_t late = t.last - (parted_at(&t) - t.began);
        parted += t.partings;
        if (!t.partings || t.again || t.latency == SLOW_NS)
            continue;
        most[t.silent] = late > most[t.silent] ? late : most[t.silent];
        if (late > (t.silent ? (PEER_S + 1) * GCI_SECOND : REFUSED_MS * (int64_t)GCI_NS_PER_MS))
            fail_msg("trial %d, %d ranks, silent %d, latency %lld: a communicator after %lld ms", i, t.ranks, t.silent, (long long)t.latency, (long long)(late / GCI_NS_PER_MS));
    }
    print_message("%d jobs, parted %d times; a communicator after %lld ms, of silent hosts %lld ms\n", n, parted,
                  (long long)(most[0] / GCI_NS_PER_MS), (long long)(most[1] / GCI_NS_PER_MS));
    assert_true(parted > n / 4);
}

static void test_random(void **state)
{
    uint64_t random = gct_seed();
    int shrinks = 0, n = rounds(400);
    (void)state;
    for (int i = 0; i < n; i++) {
        trial t = random_trial(&random);
        run(&t, gct_random(&random) >> 32);
        for (int rank = 0; rank < t.ranks; rank++)
            shrinks += t.shrinks[rank];
    }
    print_message("%d jobs, %d shrinks of a rank\n", n, shrinks);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_one_dies), cmocka_unit_test(test_two_die),
                                        cmocka_unit_test(test_packets), cmocka_unit_test(test_computing),
                                        cmocka_unit_test(test_released_behind), cmocka_unit_test(test_doubted),
                                        cmocka_unit_test(test_liars), cmocka_unit_test(test_old_word),
                                        cmocka_unit_test(test_hungry), cmocka_unit_test(test_hungry_shrinks), cmocka_unit_test(test_partition),
                                        cmocka_unit_test(test_partition_ends), cmocka_unit_test(test_partition_decided),
                                        cmocka_unit_test(test_parted), cmocka_unit_test(test_random) };
    return cmocka_run_group_tests_name("shrink", tests, NULL, NULL);
}
