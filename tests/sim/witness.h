/* witness.h: watches every collective of a simulated job, and proves the very schedules that its ranks run.
 * SPDX-License-Identifier: MIT
 *
 * It copies the call and the schedule with which each rank starts. While they run it checks that they are run as written: each
 * step once, after all that it waits for, in list order among the messages of a direction with a peer, on the bytes that it
 * names; and all of them. When the last rank of the communicator is through, the schedules of all ranks together go to
 * sched_check, with the calls as they were made. Where the rules of choose.c have chosen, and there are clusters, the two
 * wide-area conditions hold: (1) no way with more than one wide-area message, but of vectors that are divided: there it is two;
 * (2) nothing enters a cluster twice, but where witness_exception names why: there (2) is broken, of what is long and not
 * associative (1), by just as many messages as a chain in rank order has. What goes by host enters no host twice.
 *
 * Nothing is passed over: a collective is proven, or it failed at some rank (an error is what that rank's program got), or its
 * ranks called different things and none had to wait for another to see it, or it was cut short: not all ranks came to it or
 * through it. Each is counted. An algorithm that neither the rules nor GRIDCOMM_ALGO nor a given tree
 * call for is a fault, but for the two collectives that the library makes of its own accord: the barrier of the end, and the
 * asking for sizes, which must stay within the clusters.
 */
#ifndef WITNESS_H
#define WITNESS_H

#include "gridcomm_int.h"

#include <stdio.h>

/* Who chose the algorithm. */
enum witness_choice { WITNESS_RULES, WITNESS_FORCED, WITNESS_TREE, WITNESS_MODEL, WITNESS_LAST_BARRIER,
                      WITNESS_ASKING,   /* the library asks for sizes, within clusters, before a call of uneven blocks */
                      WITNESS_NOBODY, WITNESS_CHOICES };

enum witness_case { WITNESS_NONE,
                    WITNESS_SHORT,          /* not associative: all vectors go to who wants the result */
                    WITNESS_LONG,           /* ... long ones in a chain in rank order, or straight: (1) is broken, not more */
                    WITNESS_CANONICAL,      /* GRIDCOMM_ORDER=rank: a vector for each canonical subexpression of a cluster */
                    WITNESS_RANK_ORDER,     /* not commutative, clusters no runs of ranks: a vector for each run */
                    WITNESS_REORDERED_SCAN, /* clusters no runs of ranks: all vectors */
                    WITNESS_CASES };

typedef struct witness_report {
    int  proven, failed, different, cut_short;
    int  faults;
    char fault[512];                        /* the first one */
    int  coll[GCI_COLLS], choice[WITNESS_CHOICES], wide[WITNESS_CASES];     /* of the proven ones; wide: between clusters, by
                                                                             * the rules */
    int  divided;                           /* of these, with two wide-area messages on a way */
    int  by_host;                           /* between the hosts of one cluster */
    int  in_flight;                         /* of one rank, at most */
} witness_report;

typedef struct witness witness;
witness *witness_new(FILE *faults);         /* printed there, or NULL */
void     witness_attach(witness *, gc_comm *world);
void     witness_see(void *of_witness, const gci_seen *);      /* as gci_env.seen */
/* What a rank of the world has sent in collectives so far. */
void     witness_sent(const witness *, int world_rank, uint64_t *messages, uint64_t *bytes);
/* The job is over. whole: nobody died, so what all ranks have started must have ended. */
witness_report witness_end(witness *, bool whole);

/* Why (2) does not hold for this call; call: of all ranks. */
enum witness_case witness_exception(const gci_call *call);

#endif
