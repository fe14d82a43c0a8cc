/* sched_check.h: proves that the schedules of all ranks together are a collective.
 * SPDX-License-Identifier: MIT
 */
#ifndef SCHED_CHECK_H
#define SCHED_CHECK_H

#include "gridcomm_int.h"

enum { CHECK_TEXT = 256 };

/* Everything that is known of one collective: a call per rank (they differ in rank and in_place) and a schedule per rank. */
typedef struct check_job {
    int              ranks;
    const gci_call  *call;      /* [ranks] */
    const gci_sched *sched;     /* [ranks] */
} check_job;

/* Returns how many messages the job sends, or -1 and a text that says what is wrong, and where. It shows that
 *  - every schedule is well formed: waits for earlier steps only, peers exist, no access outside a buffer, no write to the
 *    send buffer;
 *  - no two steps of a rank that touch the same byte, one of them writing, may run at the same time;
 *  - the k-th send from a to b meets the k-th receive, of the same size, in whatever order steps become ready, and none is
 *    left over;
 *  - all steps end even if each send waits for its receiver;
 *  - the result is right, by symbolic execution: every byte of it is that byte of that rank; for a reduction every
 *    element holds each rank's element once, in rank order if the operation does not commute, evaluated from rank 0 up if
 *    it does not associate, the same expression at all ranks of an allreduce; for a barrier, nobody leaves before all came.
 */
int sched_check(const check_job *job, char why[CHECK_TEXT]);

#endif
