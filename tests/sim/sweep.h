/* sweep.h: makes each allocation and each system call of a simulated job fail, one after another.
 * SPDX-License-Identifier: MIT
 *
 * It stands between the library and the simulated system: in every process's table, and as its allocator. A first run of the
 * job counts the calls that can fail, and from where in the library they come: a *path* is the last SWEEP_FRAMES return
 * addresses, a *site* the last one. The other runs are the same, up to the one call that fails (or it and all that follow).
 *
 *     sweep_plan(&spec, main, arg);   then   sweep_run(&spec, main, arg, &fault, &outcome);
 *
 * One job at a time: the table's functions are told no more than the process.
 */
#ifndef SWEEP_H
#define SWEEP_H

#include "simnet.h"
#include "tests/gct.h"

enum { SWEEP_FRAMES = 5, SWEEP_RANKS = 8 };

enum sweep_call {
    SWEEP_ALLOC, SWEEP_RANDOM, SWEEP_HOST, SWEEP_INTERFACES, SWEEP_ROUTE, SWEEP_RESOLVE, SWEEP_LISTEN, SWEEP_ACCEPT, SWEEP_CONNECT,
    SWEEP_CONNECTED, SWEEP_TUNE, SWEEP_SEND, SWEEP_RECV, SWEEP_POLLER, SWEEP_WATCH, SWEEP_WAIT, SWEEP_WAKER, SWEEP_TIMER,
    SWEEP_SPAWN, SWEEP_THREAD, SWEEP_MONITOR, SWEEP_CALLS
};

/* A way to fail. Harmless: nobody may notice, not even the rank that meets it. */
typedef struct sweep_way { const char *name; int error; bool harmless, lasting; } sweep_way;   /* lasting: all that follow may, too */

typedef struct sweep_fault {
    int         rank;
    enum sweep_call call;
    long        nth;            /* of that rank's calls of this kind; 0: none */
    int         way;            /* into sweep_ways() */
    bool        onwards;
} sweep_fault;

/* One call of the counting run. */
typedef struct sweep_hit { int rank; enum sweep_call call; long nth; uint64_t path; const char *site[2]; } sweep_hit;

/* name: of the call in the table; *ways: how many there are. */
const sweep_way *sweep_ways(enum sweep_call, int *ways, const char **name);

/* For gct_spec: of every rank. */
void sweep_options(gc_options *, int rank);                     /* its allocator */
void sweep_arrange(sim *, sim_proc **procs, int ranks);         /* its table */

/* Around calls that have no world, and so take memory from libc, nothing else meanwhile: what libc is called by asks whether it
 * fails. from: where libc was called. */
void sweep_libc(bool on);
bool sweep_libc_fails(const void *from);

/* Around a job: the fault, and whether it came to it. */
void sweep_begin(const sweep_fault *, bool record);
bool sweep_end(void);
long sweep_count(enum sweep_call);                              /* of the last recorded job, all ranks */
const sweep_hit *sweep_hits(size_t *count);                     /* ... and its calls; until the next recorded job */

#endif
