/* bounds.h: collectives timed on the simulated network, each beside its lower bound.
 * SPDX-License-Identifier: MIT
 *
 * Clusters are sites: 10 ms from one to another, 50 us within, NICs of 125e6 byte/s, and 1e6 byte/s for each ordered pair of
 * sites, or for each site's uplink that all its pairs share. All ranks start at one instant; the end is the last rank's.
 * Blocks of equal size, also in the v forms; every result is checked.
 */
#ifndef BOUNDS_H
#define BOUNDS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

enum bounds_op { BOUNDS_BARRIER, BOUNDS_BCAST, BOUNDS_SCATTER, BOUNDS_SCATTERV, BOUNDS_GATHER, BOUNDS_GATHERV, BOUNDS_ALLGATHER,
                 BOUNDS_ALLGATHERV, BOUNDS_ALLTOALL, BOUNDS_ALLTOALLV, BOUNDS_REDUCE, BOUNDS_ALLREDUCE, BOUNDS_REDUCE_SCATTER,
                 BOUNDS_REDUCE_SCATTER_BLOCK, BOUNDS_SCAN, BOUNDS_EXSCAN, BOUNDS_OPS };

enum { BOUNDS_CLUSTERS = 16, BOUNDS_WARM = 2 };

typedef struct bounds_net {
    const char *name;
    int  clusters, ranks[BOUNDS_CLUSTERS];  /* of each */
    bool cyclic;                            /* neighbours in rank order stand in different clusters */
    bool uplinks;                           /* the sites' uplinks are what is narrow */
    bool unwitnessed;                       /* see gct.h */
    const char *algo;                       /* GRIDCOMM_ALGO, or NULL */
    const struct gc_model *model;           /* that predicts, or NULL */
    bool uses_model;                        /* and chooses */
} bounds_net;

typedef struct bounds_cell {
    enum bounds_op op;
    size_t  bytes;                          /* a rank's block; the vector of a broadcast or reduction */
    int     root;
    int64_t bound, cold, warm[BOUNDS_WARM]; /* ns: the first run, those after it */
    const char *algo;                       /* that is predicted; NULL: the one that is taken */
    double  predicted;                      /* s, under net->model */
} bounds_cell;

const char *bounds_op_name(enum bounds_op);
bool    bounds_rooted(enum bounds_op);
int     bounds_ranks(const bounds_net *);
int     bounds_cluster(const bounds_net *, int rank);
int64_t bounds_lower(const bounds_net *, const bounds_cell *);      /* ns */
/* The same with a header for each message that must share an uplink, of which the bound counts one. */
int64_t bounds_with_headers(const bounds_net *, const bounds_cell *);
/* The least time in which a vector that is divided among the clusters crosses two links one after another; INT64_MAX: none is. */
int64_t bounds_divided(const bounds_net *, const bounds_cell *);
int64_t bounds_warm(const bounds_cell *);                           /* the slowest run but the cold one */
double  bounds_ratio(const bounds_cell *);                          /* of it to the bound */
bool    bounds_holds(const bounds_cell *);                          /* 1.02, and beyond 1 byte 1.05 */
/* Runs the cells one after another in one job. Returns how many ranks failed. */
int     bounds_measure(const bounds_net *, bounds_cell *, int cells, int time_limit);

/* What is said above, as a model. */
struct gci_env;
struct gc_model *bounds_model(struct gci_env *, const bounds_net *);

/* Of an enum gci_coll: its operation; and its k-th algorithm that can do an even call, appended to a list for GRIDCOMM_ALGO.
 * NULL: there are no more. */
enum bounds_op bounds_op_of(int coll);
const char *bounds_force(char *list, size_t room, int coll, int k, bool clusters);

#endif
