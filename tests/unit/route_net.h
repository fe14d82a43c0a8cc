/* route_net.h: random networks to be routed, the tables of all their nodes, and how they are proven.
 * SPDX-License-Identifier: MIT
 */
#ifndef ROUTE_NET_H
#define ROUTE_NET_H

#include "route_check.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>

/* Fails the test, with the seed of the round. */
#define WRONG(...) net_wrong(__FILE__, __LINE__, __VA_ARGS__)
void net_wrong(const char *file, int line, const char *format, ...) __attribute__((format(printf, 3, 4)));

extern gci_env  net_env;
extern uint64_t net_seed;               /* of the round: printed when it fails */

int   net_setup(void **state);          /* of a group of tests */
void  net_draw(uint64_t seed);          /* all that is random from now on */
int   random_below(int n);
bool  chance(double p);
void *net_zeroed(size_t n, size_t bytes);
/* Runs body for seeds one after another: `count` of them from `first` on, or as GCT_SEED and GCT_ROUNDS say. */
void  rounds(uint64_t first, int count, void (*body)(void));

typedef struct network { gci_topo topo; gci_graph graph; } network;
enum cost_kind { COST_EQUAL, COST_NEAR, COST_ANY, COST_HUGE, COST_WIDE, COST_KINDS };
enum shape { TREE, SPARSE, DENSE, CLUSTERED, CLUSTERED_APART, APART, SHAPES };      /* SHAPES: no links */

void network_free(network *);
void random_topo(network *, int n, int depth, int width);       /* paths of up to depth names, of width names each */
void random_links(network *, enum shape, enum cost_kind);
void random_network(network *, int n, enum shape);              /* all of it random; some of it down */
void ring(network *, int n);                                    /* each node a host of its own; up to 16 */
void cut_link(gci_graph *, int edge);
void cut_node(gci_graph *, int node);

/* A numbering, and the tables of all nodes. */
typedef struct epoch { gci_numbering numbering; gci_routes *routes; } epoch;
void epoch_make(const network *, enum gci_routing, epoch *);
void epoch_free(const network *, epoch *);
void routes_of_all(const network *, const gci_numbering *, gci_routes *);
void routes_free_all(gci_routes *, int n);
int  index_of(const gci_routes *, int neighbour);               /* -1: none */

unsigned promises(enum gci_routing);                            /* ROUTE_*: what fresh tables must show */
void prove(const network *, const gci_numbering *, const gci_routes *, unsigned what);
void prove_all_turns(const network *, const epoch *);

#endif
