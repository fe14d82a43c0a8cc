/* memory.c: what the library takes from the allocator hook, beside the budget of the design: in a job of its own on the simulated
 * network, or as a rank of a real one.
 * SPDX-License-Identifier: MIT
 *
 *     memory RANKS [LIST]     so many ranks in this process, 4 on a host, at 4 sites
 *     gcrun -n 64 memory      this process is a rank
 *
 * A line for each stage: its name, then of the rank that came nearest to its budget the most that it held during the stage and
 * the budget, in bytes, and its connections. LIST: also the sizes of which that rank held most at the end of the stages.
 *
 * The budget: 64 KiB for each connection, 512 B for each rank, 1 KiB for each host, 16 B for each link of the backbone, 1 MiB. With
 * messages also eager_budget, and the requests of the program's own, which it may have as many of as it likes. With collectives the
 * scratch and the schedule of the one that has the most.
 *
 * Stages: gc_init, during which rank 0 has a connection from every rank; idle after it; one collective of each kind; and the
 * worst case: every rank sends so much to every one (of more than RANKS_ALL to SOME ranks) that the messages, which nobody
 * receives yet, fill the receivers' eager budgets twice.
 */
#include "gridcomm_int.h"
#include "tests/gct.h"

#include <pthread.h>
#include <stdlib.h>

enum { BLOCK = 64, MESSAGES = 8, RANKS_ALL = 256, SOME = 4, TAG = 3, NEVER = 4, STAGES = 4, PER_HOST = 4, SITES = 4,
       EAGER = 4 << 20, MAX_LINKS = 64,     /* of the largest jobs, which else do not fit into a machine */
       STEP_BYTES = 40,                     /* of a run and its plan, for each step (coll.c) */
       STILL_ROUNDS = 5, ROUNDS = 200, CLASSES = 512, TIME_LIMIT_S = 3000 };

static const char *const stage_name[STAGES] = { "start", "idle", "collectives", "all to all" };

/* ---- the hook ---------------------------------------------------------------------------------------------------- */

typedef struct block { size_t bytes, pad; } block;      /* in front of each */
typedef struct account {
    pthread_mutex_t lock;
    size_t now, most;
    size_t scratch;                     /* of the collective with the most */
    struct { size_t size, bytes; } held[CLASSES];       /* of blocks of one size, while there are any; the last: all others, too */
} account;

typedef struct figure { uint64_t most, budget, connections; } figure;
typedef struct job { account *of; bool list; } job;

static void count(account *a, size_t size, bool more)
{
    int i = 0, empty = CLASSES - 1;
    while (i < CLASSES - 1 && (a->held[i].size != size || a->held[i].bytes == 0)) {
        if (a->held[i].bytes == 0 && i < empty)
            empty = i;
        i++;
    }
    if (i == CLASSES - 1)
        i = empty;
    a->held[i].size = size;
    a->held[i].bytes += more ? size : -size;
    a->now += more ? size : -size;
    a->most = a->now > a->most ? a->now : a->most;
}

static void *hook(void *user, void *old, size_t bytes)
{
    account *a = user;
    block *b = old ? (block *)old - 1 : NULL;
    size_t before = b ? b->bytes : 0;
    block *fresh = NULL;
    pthread_mutex_lock(&a->lock);
    if (bytes == 0)
        free(b);
    else
        fresh = realloc(b, sizeof *b + bytes);
    if (b && (fresh || bytes == 0))
        count(a, before, false);
    if (fresh) {
        fresh->bytes = bytes;
        count(a, bytes, true);
    }
    pthread_mutex_unlock(&a->lock);
    return fresh ? fresh + 1 : NULL;
}

/* The scratch of a collective that begins; one runs at a time. */
static void note_scratch(void *user, const gci_seen *s)
{
    account *a = user;
    size_t bytes = s->sched->temp_bytes + (size_t)s->sched->steps * (sizeof *s->sched->step + STEP_BYTES) +
                   (size_t)s->sched->waits * 2 * sizeof *s->sched->wait;
    if (s->what == GCI_SEEN_START && bytes > a->scratch)
        a->scratch = bytes;
}

/* ---- the stages -------------------------------------------------------------------------------------------------- */

static figure measured(gc_comm *world, account *a, int more_connections, size_t more)
{
    const gci_world *w = world->world;
    const gci_graph *graph = gci_overlay_graph(w->overlay);
    gc_stats stats = { .size = sizeof stats };
    uint64_t own = (uint64_t)more_connections;
    (void)gc_get_stats(world, &stats);
    for (int i = 0; i < graph->edges; i++)      /* their control connections */
        own += graph->edge[i].a == w->rank || graph->edge[i].b == w->rank;
    figure f = { .most = a->most, .connections = (uint64_t)stats.connections + own };
    f.budget = more + 65536 * f.connections + 512 * (uint64_t)w->ranks + 1024 * (uint64_t)(w->table ? w->table->hosts : 1) +
               16 * (uint64_t)graph->edges + (1 << 20);
    a->most = a->now;
    return f;
}

static int each_collective(gc_comm *world, int rank, int size)
{
    size_t all = (size_t)BLOCK * (size_t)size;
    char *from = calloc(1, all), *to = calloc(1, all);
    int64_t one = rank, sum = 0;
    (void)rank;
    gct_require(from && to, "out of memory");
    gct_ok(gc_barrier(world));
    gct_ok(gc_bcast(world, to, BLOCK, 0));
    gct_ok(gc_scatter(world, from, BLOCK, to, 0));
    gct_ok(gc_gather(world, from, BLOCK, to, 0));
    gct_ok(gc_allgather(world, from, BLOCK, to));
    gct_ok(gc_alltoall(world, from, BLOCK, to));
    gct_ok(gc_reduce(world, &one, &sum, 1, GC_INT64, GC_SUM, 0));
    gct_ok(gc_allreduce(world, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_ok(gc_reduce_scatter_block(world, from, to, BLOCK, GC_UINT8, GC_SUM));
    gct_ok(gc_scan(world, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_ok(gc_exscan(world, &one, &sum, 1, GC_INT64, GC_SUM));
    gct_ok(gc_barrier(world));
    free(from);
    free(to);
    return 0;
}

/* Until what this rank holds has been the same for some rounds. */
static int settle(gc_comm *world, int rank, const account *a)
{
    char byte;
    gc_request *never;
    gct_ok(gc_irecv(world, &byte, 1, rank, NEVER, &never));
    size_t before = 0;
    for (int i = 0, still = 0; i < ROUNDS && still < STILL_ROUNDS; i++) {
        gct_require(gc_wait_for(&never, 0.1, NULL) == GC_ERR_TIMEOUT, "it came");
        still = a->now == before ? still + 1 : 0;
        before = a->now;
    }
    gct_ok(gc_cancel(never));
    gct_require(gc_wait(&never, NULL) == GC_ERR_CANCELLED, "it came");
    return 0;
}

static int all_to_all(gc_comm *world, int rank, int size, account *a, figure *f)
{
    int receivers = size <= RANKS_ALL ? size : SOME, requests = 0;
    size_t bytes = 2 * EAGER / (size_t)size / MESSAGES;
    char *from = calloc(1, bytes), *to = calloc(1, bytes);
    gc_request **r = calloc((size_t)receivers * MESSAGES, sizeof(gc_request *));
    gct_require(from && to && r, "out of memory");
    for (int i = 0; i < MESSAGES; i++)
        for (int k = 0; k < receivers; k++)
            if (k != rank)
                gct_ok(gc_isend(world, from, bytes, k, TAG, &r[requests++]));
    if (settle(world, rank, a))
        return 1;
    *f = measured(world, a, 0, EAGER + (size_t)requests * sizeof(gc_request));
    for (int i = 0; rank < receivers && i < MESSAGES * (size - 1); i++)
        gct_ok(gc_recv(world, to, bytes, GC_ANY_SOURCE, TAG, NULL));
    gct_ok(gc_waitall(requests, r, NULL));
    free(from);
    free(to);
    free(r);
    return 0;
}

static void list_held(const account *a)
{
    for (int i = 0; i < CLASSES; i++)
        if (a->held[i].bytes >= 4096)
            printf("#   %10zu bytes in blocks of %s%zu\n", a->held[i].bytes, i == CLASSES - 1 ? "other sizes and of " : "", a->held[i].size);
}

/* Rank 0 hears of all, and prints the rank that is nearest to its budget. */
static int tell(gc_comm *world, int rank, int size, const figure *mine, int stage)
{
    figure *all = calloc((size_t)size, sizeof *all);
    const figure *worst = all;
    gct_require(all, "out of memory");
    gct_ok(gc_gather(world, mine, sizeof *mine, all, 0));
    for (int i = 1; rank == 0 && i < size; i++)
        if (all[i].most * worst->budget > worst->most * all[i].budget)
            worst = &all[i];
    if (rank == 0)
        printf("%s; %llu %llu %llu\n", stage_name[stage], (unsigned long long)worst->most, (unsigned long long)worst->budget,
               (unsigned long long)worst->connections);
    free(all);
    return 0;
}

static int stages(gc_comm *world, int rank, int size, void *arg)
{
    job *j = arg;
    account *a = &j->of[rank];
    figure f[STAGES];
    int bad = 0;
    f[0] = measured(world, a, rank == 0 ? size - 1 : 0, 0);
    bad += settle(world, rank, a);
    a->most = a->now;
    f[1] = measured(world, a, 0, 0);
    if (j->list && rank == 0)
        list_held(a);
    gct_ok(gc_barrier(world));
    a->most = a->now;
    world->world->env.seen_user = a;
    world->world->env.seen = note_scratch;
    bad += each_collective(world, rank, size);
    f[2] = measured(world, a, 0, EAGER + a->scratch);
    if (j->list && rank == 0)
        list_held(a);
    bad += all_to_all(world, rank, size, a, &f[3]);
    for (int i = 0; !bad && i < STAGES; i++)
        bad += tell(world, rank, size, &f[i], i);
    return bad;
}

/* ---- jobs --------------------------------------------------------------------------------------------------------- */

static void options(gc_options *o, int rank, void *arg)
{
    job *j = arg;
    o->alloc = hook;
    o->alloc_user = &j->of[rank];
    o->eager_budget = EAGER;
    o->max_links = o->ranks > RANKS_ALL ? MAX_LINKS : 0;
}

static job accounts(int ranks)
{
    job j = { .of = calloc((size_t)ranks, sizeof *j.of) };
    if (!j.of)
        abort();
    for (int i = 0; i < ranks; i++)
        pthread_mutex_init(&j.of[i].lock, NULL);
    return j;
}

static int real(void)
{
    gc_comm *world;
    job j = accounts(1);
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    options(&o, 0, &j);
    if (gc_init(&world, &o) != GC_OK)
        return 1;
    int rank = gc_rank(world);
    j.of -= rank;                       /* as if it were one of all */
    int bad = stages(world, rank, gc_size(world), &j);
    return bad || gc_finalize(world) != GC_OK;
}

int main(int argc, char **argv)
{
    int ranks = argc > 1 ? atoi(argv[1]) : 0;
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (ranks < 2)
        return real();
    job j = accounts(ranks);
    j.list = argc > 2;
    gct_spec spec = { .ranks = ranks, .on = GCT_ON_SIM, .sites = SITES, .ranks_per_host = PER_HOST, .calm = true, .unwitnessed = true,
                      .time_limit = TIME_LIMIT_S, .wan_rate = 100000000, .options = options };
    return gct_job(&spec, stages, &j) != 0;
}
