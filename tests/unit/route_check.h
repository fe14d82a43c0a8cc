/* route_check.h: proves that the routing tables of all nodes together deliver, without links that wait in a circle.
 * SPDX-License-Identifier: MIT
 */
#ifndef ROUTE_CHECK_H
#define ROUTE_CHECK_H

#include "gridcomm_int.h"

enum { ROUTE_TEXT = 512 };

/* What one epoch is made of. */
typedef struct route_job {
    const gci_graph     *graph;
    const gci_topo      *topo;
    const gci_numbering *numbering;
    const gci_routes    *routes;        /* [nodes] */
} route_job;

enum {
    ROUTE_FREE = 1,             /* link dependencies of all packets of both metrics together have no cycle */
    ROUTE_INSIDE = 2,           /* no pair that is connected inside a cluster leaves it, at any level of the tree */
    ROUTE_OPTIMAL = 4,          /* each path is the best legal one; beyond ROUTE_SAMPLED_FROM nodes for some destinations only */
    ROUTE_ALL = ROUTE_FREE | ROUTE_INSIDE | ROUTE_OPTIMAL,
    ROUTE_SAMPLED_FROM = 48, ROUTE_SAMPLES = 2
};

/* What was met on the way. */
typedef struct route_tally { int64_t paths, hops; int longest; } route_tally;

/* Returns 0, or -1 and a text that says what is wrong, and where. It always shows that
 *  - every table is well formed: it knows its links that are up, and in which phase each packet comes over them;
 *  - walking from every node to every other, in both metrics, hop by hop as the tables say: each pair that the links connect is
 *    reached without a loop, over links that are up, and each turn is legal under the numbering; no other pair has a route;
 * and on demand the rest, which see. tally may be NULL. */
int route_check(const route_job *, unsigned what, route_tally *, char why[ROUTE_TEXT]);

/* Has each pair that the links connect a legal path under the numbering? Tried out for all of them; routes are not looked at. */
bool route_exists_for_all(const route_job *);

/* Which link waits for which (Dally and Seitz 1987; Hironaka 2009, 4.3.1), gathered from any number of tables. */
typedef struct route_waits route_waits;
route_waits *route_waits_new(const gci_graph *);
void route_waits_free(route_waits *);
/* Every turn that this table could ask of a packet, over any link that the graph has, whether or not one ever comes. */
void route_waits_of(route_waits *, const gci_numbering *, const gci_routes *);
/* 0; or -1: there is a cycle, and its text: "0>1 1>2 2>0". */
int  route_waits_cycle(const route_waits *, char why[ROUTE_TEXT]);

#endif
