/* overlay_world.h: 515 nodes in 13 clusters, and what routing over a sparse overlay costs them (Hironaka 2009, 5.2.2).
 * SPDX-License-Identifier: MIT
 */
#ifndef OVERLAY_WORLD_H
#define OVERLAY_WORLD_H

#include "gridcomm_int.h"

enum { WORLD_SITES = 13, WORLD_NODES = 515 };

/* A site of the world. Where the paper does not say how many nodes there are, or where: see `stated`. */
typedef struct world_site {
    const char *name;
    int      nodes;
    double   east, north;       /* km from Tokyo */
    uint32_t mbit;              /* of its uplink */
    const char *stated;         /* where the number of nodes is from */
} world_site;
extern const world_site world_sites[WORLD_SITES];

/* How long the paths between sites are. */
enum world_kind {
    WORLD_EVEN,                 /* 10 ms each */
    WORLD_MAP,                  /* by their distance on the map */
    WORLD_KINDS
};

typedef struct world {
    gci_topo topo;
    enum world_kind kind;
    int      site[WORLD_NODES];
} world;

int    world_make(gci_env *, enum world_kind, world *);         /* GC_OK or GC_ERR_NOMEM */
void   world_free(gci_env *, world *);
double world_latency(const world *, int a, int b);              /* us, one way, directly */
double world_mbit(const world *, int a, int b);                 /* directly */

/* What routing knows of the links. */
enum world_costs {
    COSTS_TIERS,                /* same host, same site, another site, as gci_backbone_cost says: nothing is measured */
    COSTS_TRUE,                 /* latency and bandwidth of each link */
    COSTS_KINDS
};

/* Of all ordered pairs of nodes. Hops and bandwidth by the bandwidth tables, latency by the latency tables. */
typedef struct overlay_figures {
    int    links;
    double density;             /* links / pairs */
    double hops_mean, ratio_mean, ratio_least;      /* ratio: narrowest link on the path to the direct path */
    int    hops_most;
    double latency_hops_mean;
    int    latency_hops_most;
    int    inside_hops_most;    /* of pairs in one cluster, by either metric */
    long   left;                /* pairs connected inside their cluster that leave it, by either metric */
    double between_median, between_p95, between_most;       /* latency on the path / direct latency; different clusters */
    double inside_median, inside_p95, inside_most;
    double two_sites;           /* of the pairs in different clusters: whose latency path has more than one link between sites */
} overlay_figures;

/* The graph of 4.5.1 as printed, with d closest and d from each range; every node draws for itself. */
int world_plain_graph(gci_env *, const world *, int d, uint64_t seed, gci_graph *);
/* The library's own choice. */
int world_backbone(gci_env *, const world *, double density, uint64_t seed, gci_graph *);
void world_costs(const world *, enum world_costs, gci_graph *);
/* 0; GC_ERR_NOMEM; or GC_ERR_UNREACHABLE: some pair has no route. */
int world_measure(gci_env *, const world *, const gci_graph *, enum gci_routing, overlay_figures *);

#endif
