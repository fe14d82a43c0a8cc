/* test_end.c: ends in trouble, on the simulated network: ranks that stop or die in every phase of gc_finalize.
 * SPDX-License-Identifier: MIT
 *
 * An end has phases of a few milliseconds: barrier, farewells, DONE, LEAVE. The trouble is put at one instant after another, so
 * that each phase gets its share, whichever instants it has. Whatever happens, every rank that lives comes to the end, in time.
 */
#include "simnet.h"
#include "../gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <cmocka.h>

enum { RANKS_MAX = 12, PEER_S = 5, EVENTS = 4 };

/* What came of each rank; times from when the last rank was through gc_init. */
typedef struct ending {
    sim        *network;
    int64_t     began, late[RANKS_MAX];     /* late: this rank comes to the end so long after that */
    const char *shape;
    gct_event   event[EVENTS];
    int         events;
    int         code[RANKS_MAX];            /* 1: none */
    int64_t     at[RANKS_MAX];
} ending;

static void options(gc_options *o, int rank, void *arg)
{
    (void)rank, (void)arg;
    o->peer_timeout = PEER_S;
    o->start_timeout = 20;
}

static void arrange(sim *network, sim_proc **procs, int ranks, void *arg)
{
    ending *e = arg;
    (void)procs, (void)ranks;
    e->network = network;
    e->began = 0;
}

static void started(sim *network, sim_proc **procs, int ranks, void *arg)
{
    ending *e = arg;
    (void)procs, (void)ranks;
    e->began = sim_now(network);
}

static int finalize(gc_comm *world, int rank, int size, void *arg)
{
    ending *e = arg;
    (void)size;
    if (e->late[rank])
        sim_sleep(sim_current(), e->late[rank]);
    e->code[rank] = gc_finalize(world);
    e->at[rank] = sim_now(e->network) - e->began;
    return 0;
}

/* Sites that are open to each other or not; rank 0 as the only way between them; and two ranks that are. */
static const gct_place site[] = { { .ranks = 6 } };
static const gct_place open_sites[] = { { .ranks = 3 }, { .ranks = 3 } };
static const gct_place walls[] = { { .ranks = 2 }, { .ranks = 2, .wall = GCT_REFUSE }, { .ranks = 2, .wall = GCT_REFUSE } };
static const gct_place star[] = { { .ranks = 1 }, { .ranks = 2, .wall = GCT_REFUSE }, { .ranks = 2, .wall = GCT_REFUSE },
                                  { .ranks = 1, .wall = GCT_DROP } };
static const gct_place nats[] = { { .ranks = 2 }, { .ranks = 3, .nat = true }, { .ranks = 3, .nat = true } };
static const struct shape { const char *name; const gct_place *places; int ranks; } shapes[] = {
    { "site", site, 6 }, { "open sites", open_sites, 6 }, { "walls", walls, 6 }, { "star", star, 6 }, { "nats", nats, 8 }
};

static int run(ending *e, const struct shape *shape, uint64_t seed)
{
    gct_outcome outcome;
    gct_spec spec = { .ranks = shape->ranks, .places = shape->places, .on = GCT_ON_SIM, .calm = true, .seed = seed, .finalizes = true,
                      .options = options, .arrange = arrange, .started = started, .events = e->event, .event_count = e->events,
                      .virtual_limit = 60 * GCI_SECOND, .outcome = &outcome };
    e->shape = shape->name;
    for (int r = 0; r < RANKS_MAX; r++)
        e->code[r] = 1;
    return gct_job(&spec, finalize, e);
}

static void describe(const ending *e, const struct shape *shape)
{
    for (int i = 0; i < e->events; i++)
        print_error("%s%s: event %d on rank %d at %lld us", i ? "; " : "", shape->name, (int)e->event[i].what, e->event[i].a,
                    (long long)e->event[i].at / 1000);
    print_error("\n   ");
    for (int r = 0; r < shape->ranks; r++)
        print_error(" %d: %d after %lld ms;", r, e->code[r], (long long)(e->at[r] / GCI_NS_PER_MS));
    print_error("\n");
}

int main(int argc, char **argv)
{
    /* exploration: shape kind step seed */
    int kind = atoi(argv[2]), worst_bad = 0;
    int64_t step = atoi(argv[3]) * 1000LL;
    uint64_t seed = (uint64_t)atoi(argv[4]);
    const struct shape *s = &shapes[atoi(argv[1])];
    ending e = { .events = 0 };
    int64_t until = 0, worst = 0;
    (void)argc;
    if (run(&e, s, seed))
        return 1;
    for (int r = 0; r < s->ranks; r++)
        until = e.at[r] > until ? e.at[r] : until;
    printf("%s: peace %lld us\n", s->name, (long long)until / 1000);
    for (int victim = 0; victim < s->ranks; victim++)
        for (int64_t at = 0; at < until + step; at += step) {
            int failed, kinds[3] = { 0 };
            e = (ending){ .events = 1, .event = { { at, kind == 0 ? GCT_KILL : kind == 1 ? GCT_KILL_HOST : GCT_STOP, victim, -1, 0 },
                                                  { at + kind * GCI_SECOND, GCT_CONTINUE, victim, -1, 0 } } };
            e.events = kind > 1 ? 2 : 1;
            failed = run(&e, s, seed);
            for (int r = 0; r < s->ranks; r++) {
                if (r == victim && kind < 2) continue;
                if (e.code[r] <= 0 && e.at[r] - at > worst) worst = e.at[r] - at;
                kinds[e.code[r] == 0 ? 0 : e.code[r] < 0 ? 1 : 2]++;
            }
            if (failed || (kind > 1 && kinds[1]))
                describe(&e, s), worst_bad++;
        }
    printf("%s kind %d: worst %lld ms, bad %d\n", s->name, kind, (long long)worst / 1000000, worst_bad);
    return 0;
}
