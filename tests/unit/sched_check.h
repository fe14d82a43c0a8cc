/* sched_check.h: proves that the schedules of all ranks together are a collective.
 * SPDX-License-Identifier: MIT
 */
#ifndef SCHED_CHECK_H
#define SCHED_CHECK_H

#include "gridcomm_int.h"

enum { CHECK_TEXT = 320 };

/* Everything that is known of one collective: a call per rank (each as that rank knows it) and a schedule per rank. */
typedef struct check_job {
    int              ranks;
    const gci_call  *call;      /* [ranks] */
    const gci_sched *sched;     /* [ranks] */
    gci_ask *const  *ask;       /* [ranks] what they told each other before; NULL: nothing */
} check_job;

/* What a proven job does; all that is of the wide area is 0 without clusters. A wide-area message is one between clusters. */
typedef struct check_report {
    int    messages, wan_messages;
    int    empty;               /* messages without payload (all of a barrier's are) */
    size_t wan_bytes;           /* of payload */
    int    wan_hops;            /* wide-area messages on the way of any input to any output, at most; barrier: wan_chain */
    int    wan_chain;           /* wide-area messages of which each waits for the one before, be it for no data; at most */
    size_t repeated;            /* bytes of data that enter a cluster where they are known; for reductions: bytes of elements
                                 * of which one cluster sends another more than one partial result */
} check_report;

/* Returns how many messages the job sends, or -1 and a text that says what is wrong, and where; report may be NULL. Shows that
 *  - every schedule is well formed: waits for earlier steps only, peers exist, no access outside a buffer, no write to the
 *    send buffer, nor to what was heard, nor to bytes of the receive buffer that belong to no block;
 *  - no two steps of a rank that touch the same byte, one of them writing, may run at the same time;
 *  - the k-th send from a to b meets the k-th receive, of the same size, in whatever order steps become ready, and none is
 *    left over;
 *  - all steps end even if each send waits for its receiver;
 *  - the result is right, by symbolic execution: every byte of it is that byte of that rank; for a reduction every
 *    element holds the element of each rank (of the prefix) once, in rank order if the operation does not commute, evaluated
 *    from rank 0 up if it does not associate, exactly the canonical expression if that is asked for, the same expression at
 *    all ranks of an allreduce; for a barrier, nobody leaves before all came.
 *
 * Cost: buffers are kept as runs of bytes that belong together, so it does not depend on sizes. A step costs the runs that it
 * touches, a search for each, and a move of the runs behind (a block each, at most); a barrier ranks / 64 words per step. Memory:
 * 80 bytes per run, some 50 per step. 300 ranks that send each other a block (89,700 messages): 0.2 s. */
int sched_check(const check_job *job, check_report *report, char why[CHECK_TEXT]);

#endif
