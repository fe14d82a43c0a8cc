/* chaos.h: random jobs on a network that fails, every byte and every error checked. One seed fixes all of it.
 * SPDX-License-Identifier: MIT
 *
 * A plan is made from the seed alone: ranks, hosts, sites, options, rounds of operations, and what happens meanwhile. Every rank
 * goes through all rounds, whatever fails on the way: so what two living ranks that can reach each other exchange has to arrive
 * even if all others are gone, and an operation may fail only if the plan has a cause for it.
 */
#ifndef CHAOS_H
#define CHAOS_H

#include "tests/gct.h"

enum { CHAOS_RANKS = 16, CHAOS_PLACES = 4, CHAOS_COMMS = 8, CHAOS_ROUNDS = 8, CHAOS_MESSAGES = 400, CHAOS_COLLS = 64,
       CHAOS_EVENTS = 400, CHAOS_TAGS = 1024 /* of a round */ };

enum chaos_send { CHAOS_ISEND, CHAOS_ISSEND, CHAOS_SEND, CHAOS_SSEND, CHAOS_SEND_CANCELLED };
typedef struct chaos_message {
    int    comm, round, source, dest, tag;  /* ranks of the communicator */
    int    number;                          /* among those of the same communicator, source, destination and tag */
    size_t bytes;
    enum chaos_send how;
    bool   late;                            /* its requests are completed in a later round; its tag is its own */
    bool   alone;                           /* its tag is its own */
} chaos_message;

/* How the receives of one rank in one round of a communicator name what they take. */
enum chaos_mode { CHAOS_EXACT, CHAOS_ANY_SOURCE, CHAOS_ANY_TAG, CHAOS_ANY };

enum chaos_kind { CHAOS_BARRIER, CHAOS_BCAST, CHAOS_SCATTER, CHAOS_SCATTERV, CHAOS_GATHER, CHAOS_GATHERV, CHAOS_ALLGATHER,
                  CHAOS_ALLGATHERV, CHAOS_ALLTOALL, CHAOS_ALLTOALLV, CHAOS_REDUCE, CHAOS_ALLREDUCE, CHAOS_REDUCE_SCATTER,
                  CHAOS_REDUCE_SCATTER_BLOCK, CHAOS_SCAN, CHAOS_EXSCAN, CHAOS_RING, CHAOS_KINDS };
typedef struct chaos_coll {
    int    comm, round, id, root;
    enum chaos_kind kind;
    size_t bytes;                           /* of a block; of v forms half the largest; of reductions the vector's */
    bool   blocks, late;
} chaos_coll;

enum chaos_how { CHAOS_WORLD, CHAOS_DUP, CHAOS_SPLIT, CHAOS_SPLIT_OTHERS, CHAOS_CREATE };
typedef struct chaos_comm {
    enum chaos_how how;
    int parent, made, freed;                /* rounds, at their beginning */
    int any_round;                          /* or -1: its messages are all of this round, and all its receives take any */
    int size, ranks[CHAOS_RANKS];           /* of the world */
} chaos_comm;

typedef struct chaos_plan {
    uint64_t seed;
    int  ranks, per_host, place_count, rounds;
    gct_place places[CHAOS_PLACES];
    int  host[CHAOS_RANKS], place[CHAOS_RANKS];
    bool cards;                             /* some hosts have two network cards */
    bool dials[CHAOS_RANKS][CHAOS_RANKS];   /* the one can connect to the other */
    /* options */
    double peer_timeout;
    int  direct, credits, queue, streams;
    size_t eager_budget;
    const char *routing, *progress, *algo, *order;
    /* operations */
    chaos_comm comm[CHAOS_COMMS];
    int  comms;
    chaos_message message[CHAOS_MESSAGES];
    int  messages;
    chaos_coll coll[CHAOS_COLLS];
    int  colls;
    int  abort_rank, abort_round;           /* -1: nobody aborts */
    int64_t pause;                          /* longest, between rounds */
    /* events, in the order of their times */
    gct_event event[CHAOS_EVENTS];
    bool severe[CHAOS_EVENTS];              /* a cut long enough to be taken for a death */
    int  events;
    int64_t away;                           /* ns of cuts and stops in all: by so much may news be late */
    bool deaths;                            /* somebody may be taken for dead */
    bool shrinks;                           /* after all rounds the survivors go on in a communicator of their own */
    char story[1024];
} chaos_plan;

/* What environment CHAOS_ROUNDS, CHAOS_OPS and CHAOS_EVENTS leave of it; 0: all. */
typedef struct chaos_limits { int rounds, operations, events; } chaos_limits;
void chaos_plan_make(chaos_plan *, uint64_t seed, const chaos_limits *);
uint64_t chaos_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c);

enum chaos_mode chaos_mode(const chaos_plan *, int comm, int round, int dest);
bool chaos_early(const chaos_plan *, int comm, int round, int dest);    /* receives are posted before anything is sent */

typedef struct chaos_result { int operations, failed_operations, lost_ranks; int64_t virtual_ns; } chaos_result;
int chaos_run(const chaos_plan *, chaos_result *);      /* 0: nothing was wrong */

/* ---- collectives of a plan (chaos_coll.c) ---- */
typedef struct chaos_buffers { void *send, *recv; } chaos_buffers;
int  chaos_coll_begin(const chaos_plan *, const chaos_coll *, gc_comm *, chaos_buffers *, gc_request **request);    /* NULL: and waits */
int  chaos_coll_check(const chaos_plan *, const chaos_coll *, int rank, int size, const chaos_buffers *);   /* 0, or 1 and a line */
const char *chaos_coll_name(enum chaos_kind);

#endif
