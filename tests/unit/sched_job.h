/* sched_job.h: a collective described once for all ranks: its calls, its schedules, its check.
 * SPDX-License-Identifier: MIT
 */
#ifndef SCHED_JOB_H
#define SCHED_JOB_H

#include "sched_check.h"

enum job_places { JOB_APART, JOB_IN_PLACE, JOB_MIXED };     /* mixed: every second rank in place */

typedef struct job_spec {
    enum gci_coll coll;
    const char   *algo;         /* "ring", "kary:3" */
    int           ranks, root;
    size_t        bytes;        /* the vector, or every block */
    const size_t *sizes;        /* uneven blocks: [ranks]; alltoall: [ranks * ranks], the row sends (in place, where both ways
                                 * must be alike: those above the diagonal count). NULL: even */
    size_t        elem_bytes;   /* 0: 1 */
    size_t        segment;
    enum job_places places;
    bool          in_any_order, from_left, canonical;   /* commutative; not associative; see gci_call */
    const gci_clusters *clusters;
    const gc_tree   *tree;
    const gc_model  *model;     /* NULL: none is in use */
    const gci_algo  *own_algo;  /* NULL: `algo` of the pool */
} job_spec;

enum { JOB_WRONG = -1, JOB_UNSUPPORTED = -2, JOB_NO_MEMORY = -3 };

/* Builds the schedules of all ranks and proves them. Returns how many messages they send, or why not (all ranks must agree on
 * JOB_UNSUPPORTED); report may be NULL. */
int job_run(gci_env *, const job_spec *, check_report *report, char why[CHECK_TEXT]);

/* Its parts. A call holds what that rank knows; job_build returns 0 or JOB_*, what it has built is the caller's. */
void job_call(const job_spec *, int rank, gci_call *);
void job_call_free(gci_call *);
int  job_build(gci_env *, const job_spec *, gci_call call[], gci_sched sched[], char why[CHECK_TEXT]);

#endif
