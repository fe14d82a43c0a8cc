/* route.c: numberings and routing tables over a graph of links (pure).
 * SPDX-License-Identifier: MIT
 *
 * A numbering says which turns a packet may take, so that links never wait for each other in a circle; all ranks compute
 * the same one. A rank then computes for itself, for both metrics, where it sends a packet that goes to dest and has come
 * in phase p. docs/routing.md has the drawing and the proof. Source: Hironaka 2009, 4.3 and 4.4.
 *
 *   Up/Down     Nodes are numbered, a link goes up towards the lower number. A packet goes up first, then down (phases 0, 1).
 *   Ordered     Links are sorted into forests 0, 1, ...; a packet never takes a link of a lower forest than before (phase: the
 *               forest of the link it came by).
 *   Unrestricted   Any turn. For comparison: it can deadlock.
 *
 * Invariants:
 *  - The phase of a packet follows from the link it came by alone: a packet that has come down a link is in phase 1, one that
 *    has come up cannot have been down before.
 *  - Numbering depth-first, locality-aware (4.3.5): a cluster that holds together is numbered as a block, and of each such
 *    block one node alone (its first) lacks a link up inside it. So each pair of a block has a legal path inside it: up to the
 *    first, and down. This holds at each level of the tree of clusters. Ordered: forest 0 has it too, because it takes near
 *    links first.
 *  - A path is judged first by how often it leaves clusters, the outermost counting most, then by the sum of its costs. So no
 *    path leaves a cluster if a legal one stays inside. Such sums compare like numbers (all costs are > 0), so optimal paths
 *    are made of optimal paths: whatever each rank picks among equals, the hops that come out are an optimal path without loop.
 *  - Among equals the pick is by a hash, so that relays share the load.
 *
 * How tables are made: LeveledDijkstra (4.4, Algorithm 1), without its queue where the numbering makes it needless. What can
 * be reached within a phase is a graph without cycles that is known beforehand: up links in descending order, down links in
 * ascending order, trees once towards the root and once away from it. So one sweep over the links per phase gives the exact
 * distances, O(links) for Up/Down, O(phases * links) for Ordered. Only Unrestricted needs a queue.
 */
#include "gridcomm_int.h"

enum {
    ROUTE_WORDS = 2,            /* of counters, by level, of how often a path leaves a cluster */
    ROUTE_LEVELS_MAX = ROUTE_WORDS * 64,
    ROUTE_WORD_BITS = 64,
    ROUTE_DEPTH_MAX = 255,      /* deeper clusters count as this deep */
    NEAR_BITS = 3,              /* a link counts 8 times as much as one a level further out, ... */
    NEAR_BITS_MAX = 42          /* ... to a limit that leaves room for all links of a node */
};

static const char *const routing_names[GCI_ROUTINGS] = { "updown-dfs", "updown-bfs", "ordered", "unrestricted" };

GCI int gci_routing_parse(const char *name)
{
    for (int i = 0; i < GCI_ROUTINGS; i++)
        if (strcmp(name, routing_names[i]) == 0)
            return i;
    return GC_ERR_CONFIG;
}

GCI const char *gci_routing_name(enum gci_routing routing)
{
    return routing_names[routing];
}

/* ---- graphs ----------------------------------------------------------------------------------------------------- */

GCI void gci_graph_free(gci_env *env, gci_graph *g)
{
    gci_free(env, g->edge);
    *g = (gci_graph){ 0 };
}

GCI int gci_graph_copy(gci_env *env, const gci_graph *g, gci_graph *out)
{
    *out = (gci_graph){ .nodes = g->nodes, .edges = g->edges };
    if (g->edges == 0)
        return GC_OK;
    out->edge = gci_alloc(env, (size_t)g->edges * sizeof *out->edge);
    if (!out->edge) {
        *out = (gci_graph){ 0 };
        return GC_ERR_NOMEM;
    }
    memcpy(out->edge, g->edge, (size_t)g->edges * sizeof *out->edge);
    return GC_OK;
}

GCI int gci_graph_find(const gci_graph *g, int a, int b)
{
    int from = a < b ? a : b, to = a < b ? b : a, low = 0, high = g->edges;
    while (low < high) {
        int middle = low + (high - low) / 2;
        const gci_edge *e = &g->edge[middle];
        if (e->a < from || (e->a == from && e->b < to))
            low = middle + 1;
        else
            high = middle;
    }
    return low < g->edges && g->edge[low].a == from && g->edge[low].b == to ? low : -1;
}

static inline bool edge_is_up(const gci_edge *e)
{
    return e->cost[GCI_LATENCY] != 0 && e->cost[GCI_BANDWIDTH] != 0;
}

static inline int32_t edge_other(const gci_edge *e, int32_t node)
{
    return e->a == node ? e->b : e->a;
}

/* How deep the innermost cluster of both ends lies. */
static int32_t edge_depth(const gci_topo *topo, const gci_edge *e)
{
    int32_t depth = topo->depth[gci_topo_common(topo, e->a, e->b)];
    return depth < ROUTE_DEPTH_MAX ? depth : ROUTE_DEPTH_MAX;
}

/* The links that are up, node by node: link[first[v] .. first[v + 1]) are edges of v. */
typedef struct route_star { int32_t *first, *link; } route_star;

static void star_free(gci_env *env, route_star *s)
{
    gci_free(env, s->first);
    gci_free(env, s->link);
}

/* order: the edges in the order in which each node is to have them; NULL: as they stand, neighbours ascending. */
static int star_make(gci_env *env, const gci_graph *g, const int32_t order[], route_star *s)
{
    size_t n = (size_t)g->nodes;
    s->first = gci_alloc(env, (n + 2) * sizeof *s->first);
    s->link = gci_alloc(env, ((size_t)g->edges * 2 + 1) * sizeof *s->link);
    if (!s->first || !s->link) {
        star_free(env, s);
        *s = (route_star){ 0 };
        return GC_ERR_NOMEM;
    }
    int32_t *end = s->first + 1;        /* where the next link of v goes; in the end, where those of v + 1 begin */
    for (int i = 0; i < g->edges; i++)
        if (edge_is_up(&g->edge[i])) {
            end[g->edge[i].a + 1]++;
            end[g->edge[i].b + 1]++;
        }
    for (size_t v = 1; v <= n; v++)
        end[v] += end[v - 1];
    for (int i = 0; i < g->edges; i++) {
        int32_t at = order ? order[i] : i;
        const gci_edge *e = &g->edge[at];
        if (edge_is_up(e)) {
            s->link[end[e->a]++] = at;
            s->link[end[e->b]++] = at;
        }
    }
    return GC_OK;
}

/* ---- links, nearest first ---------------------------------------------------------------------------------------- */

static bool is_nearer(const gci_graph *g, const uint8_t depth[], int32_t e, int32_t f)
{
    if (depth[e] != depth[f])
        return depth[e] > depth[f];
    return g->edge[e].cost[GCI_LATENCY] < g->edge[f].cost[GCI_LATENCY];
}

/* One pass of a merge sort: pairs of runs of `run` edges, from `from` into `to`. Equals keep their order. */
static void merge_runs(const gci_graph *g, const uint8_t depth[], size_t run, const int32_t *from, int32_t *to)
{
    size_t n = (size_t)g->edges;
    for (size_t start = 0; start < n; start += 2 * run) {
        size_t i = start, middle = gci_min(start + run, n), j = middle, end = gci_min(start + 2 * run, n);
        for (size_t k = start; k < end; k++)
            to[k] = j >= end || (i < middle && !is_nearer(g, depth, from[j], from[i])) ? from[i++] : from[j++];
    }
}

/* order: memory for twice as many edges as there are; the result is where the sorted ones stand in it. depth: [edges], is
 * filled in. */
static int32_t *sort_nearest_first(const gci_graph *g, const gci_topo *topo, int32_t *order, uint8_t depth[])
{
    int32_t *sorted = order, *spare = order + g->edges;
    for (int32_t i = 0; i < g->edges; i++) {
        sorted[i] = i;
        depth[i] = (uint8_t)edge_depth(topo, &g->edge[i]);
    }
    for (size_t run = 1; run < (size_t)g->edges; run *= 2) {
        merge_runs(g, depth, run, sorted, spare);
        int32_t *merged = spare;
        spare = sorted;
        sorted = merged;
    }
    return sorted;
}

/* ---- Up/Down: numbers of nodes ------------------------------------------------------------------------------------ */

typedef struct numberer {
    const gci_graph *g;
    const gci_topo  *topo;
    route_star star;            /* links nearest first (depth-first) */
    const uint8_t *depth;       /* [edges] of the innermost cluster of both ends (depth-first) */
    uint64_t  *drawn;           /* [nodes] links to numbered nodes, weighted (depth-first) */
    int32_t   *number;          /* [nodes], -1: none yet */
    int32_t   *order;           /* [nodes] nodes by number */
    int32_t   *next_link;       /* [nodes] the links before lead to numbered nodes */
    int32_t   *stack, top;      /* [nodes] numbered nodes that may have neighbours without a number, latest on top */
    int32_t    count;
} numberer;

static void give_number(numberer *d, int32_t node)
{
    d->number[node] = d->count;
    d->order[d->count++] = node;
    for (int32_t i = d->star.first[node]; d->depth && i < d->star.first[node + 1]; i++) {
        int32_t edge = d->star.link[i];
        d->drawn[edge_other(&d->g->edge[edge], node)] += UINT64_C(1) << gci_min(NEAR_BITS * d->depth[edge], NEAR_BITS_MAX);
    }
}

/* The nearest neighbour inside the cluster that has no number yet; -1: none. Of several that are equally near, the one with most
 * links to numbered nodes, near ones above all. All those are links up for it: it can be reached from more nodes going down,
 * and within its cluster paths are shorter; with links up to other clusters it needs no detour over a third. (515 nodes in 13
 * clusters, density 0.04: without this rule 2.2 % of the pairs take more than one link between clusters, with it 1.7 %.) */
static int32_t nearest_without_number(numberer *d, int cluster, int32_t node)
{
    int32_t end = d->star.first[node + 1], *next = &d->next_link[node], best = -1, best_edge = -1;
    while (*next < end && d->number[edge_other(&d->g->edge[d->star.link[*next]], node)] >= 0)
        ++*next;
    for (int32_t i = *next; i < end; i++) {
        int32_t edge = d->star.link[i], other = edge_other(&d->g->edge[edge], node);
        if (best >= 0 && is_nearer(d->g, d->depth, best_edge, edge))
            break;
        if (d->number[other] < 0 && (best < 0 || d->drawn[other] > d->drawn[best])) {
            best = other;
            best_edge = edge;
        }
    }
    return best >= 0 && gci_topo_inside(d->topo, cluster, best) ? best : -1;
}

static int cluster_below(const gci_topo *topo, int cluster, int32_t node)
{
    int below = topo->of[node];
    while (topo->parent[below] != cluster)
        below = topo->parent[below];
    return below;
}

/* Numbers all of the cluster that can be reached inside it from `start`, the clusters below it one at a time, as blocks.
 * Recursion is as deep as the tree of clusters. The part of the stack above what stood there is this call's own. */
static void number_cluster(numberer *d, int cluster, int32_t start)
{
    int32_t base = d->top, node = start;
    do {
        int32_t begin = d->count;
        if (d->topo->of[node] == cluster)
            give_number(d, node);
        else
            number_cluster(d, cluster_below(d->topo, cluster, node), node);
        for (int32_t i = begin; i < d->count; i++)
            d->stack[d->top++] = d->order[i];
        node = -1;
        while (d->top > base && (node = nearest_without_number(d, cluster, d->stack[d->top - 1])) < 0)
            d->top--;
    } while (node >= 0);
}

/* Numbers all that can be reached from `start`, breadth-first; order is the queue. */
static void number_breadth_first(numberer *d, int32_t start)
{
    int32_t head = d->count;
    give_number(d, start);
    for (; head < d->count; head++) {
        int32_t node = d->order[head];
        for (int32_t i = d->star.first[node]; i < d->star.first[node + 1]; i++) {
            int32_t other = edge_other(&d->g->edge[d->star.link[i]], node);
            if (d->number[other] < 0)
                give_number(d, other);
        }
    }
}

static void number_components(numberer *d, enum gci_routing routing)
{
    for (int32_t v = 0; v < d->g->nodes; v++)
        d->next_link[v] = d->star.first[v];
    for (int32_t v = 0; v < d->g->nodes; v++)
        if (d->number[v] < 0) {
            if (routing == GCI_UPDOWN_DFS)
                number_cluster(d, 0, v);
            else
                number_breadth_first(d, v);
        }
}

static int number_nodes(gci_env *env, const gci_graph *g, const gci_topo *topo, enum gci_routing routing, int32_t number[])
{
    size_t n = (size_t)g->nodes, edges = (size_t)g->edges;
    int32_t *links = gci_alloc(env, (2 * edges + 1) * sizeof *links), *nodes = gci_alloc(env, 3 * n * sizeof *nodes);
    uint64_t *drawn = gci_alloc(env, n * sizeof *drawn);
    uint8_t *depth = gci_alloc(env, edges + 1);
    int err = links && nodes && drawn && depth ? GC_OK : GC_ERR_NOMEM;
    numberer d = { .g = g, .topo = topo, .number = number, .drawn = drawn, .order = nodes };
    if (!err) {
        d.next_link = nodes + n;
        d.stack = nodes + 2 * n;
        if (routing == GCI_UPDOWN_DFS)
            d.depth = depth;
        err = star_make(env, g, d.depth ? sort_nearest_first(g, topo, links, depth) : NULL, &d.star);
    }
    if (!err)
        number_components(&d, routing);
    star_free(env, &d.star);
    gci_free(env, depth);
    gci_free(env, drawn);
    gci_free(env, nodes);
    gci_free(env, links);
    return err;
}

/* ---- Ordered: forests of links ------------------------------------------------------------------------------------ */

static int32_t tree_of(int32_t parent[], int32_t v)
{
    while (parent[v] != v) {
        parent[v] = parent[parent[v]];
        v = parent[v];
    }
    return v;
}

/* false: they were in one tree already. */
static bool trees_join(int32_t parent[], int32_t a, int32_t b)
{
    a = tree_of(parent, a);
    b = tree_of(parent, b);
    parent[a < b ? b : a] = a < b ? a : b;
    return a != b;
}

static void trees_reset(int32_t parent[], int32_t n)
{
    for (int32_t v = 0; v < n; v++)
        parent[v] = v;
}

/* Forest after forest takes each link that joins two of its trees, near links first, until none is left. Returns how many
 * forests there are. left: edges, nearest first. */
static int sort_into_forests(const gci_graph *g, int32_t left[], int32_t parent[], int32_t number[])
{
    int forests = 0;
    for (int32_t count = g->edges, kept; count > 0; count = kept) {
        kept = 0;
        trees_reset(parent, g->nodes);
        for (int32_t i = 0; i < count; i++) {
            const gci_edge *e = &g->edge[left[i]];
            if (!edge_is_up(e))
                continue;
            if (trees_join(parent, e->a, e->b))
                number[left[i]] = forests;
            else
                left[kept++] = left[i];
        }
        forests++;
    }
    return forests;
}

static int number_links(gci_env *env, const gci_graph *g, const gci_topo *topo, int32_t number[], int *phases)
{
    int32_t *links = gci_alloc(env, ((size_t)g->edges * 2 + 1) * sizeof *links);
    int32_t *parent = gci_alloc(env, (size_t)g->nodes * sizeof *parent);
    uint8_t *depth = gci_alloc(env, (size_t)g->edges + 1);
    int err = links && parent && depth ? GC_OK : GC_ERR_NOMEM;
    if (!err) {
        int forests = sort_into_forests(g, sort_nearest_first(g, topo, links, depth), parent, number);
        *phases = forests > 0 ? forests : 1;
    }
    gci_free(env, depth);
    gci_free(env, parent);
    gci_free(env, links);
    return err;
}

GCI int gci_number(gci_env *env, const gci_graph *g, const gci_topo *topo, enum gci_routing routing, gci_numbering *out)
{
    bool updown = routing == GCI_UPDOWN_DFS || routing == GCI_UPDOWN_BFS;
    *out = (gci_numbering){ .routing = routing, .phases = updown ? 2 : 1,
                            .entries = updown ? g->nodes : routing == GCI_ORDERED ? g->edges : 0 };
    if (out->entries == 0)
        return GC_OK;
    out->number = gci_alloc(env, (size_t)out->entries * sizeof *out->number);
    if (!out->number)
        return GC_ERR_NOMEM;
    for (int i = 0; i < out->entries; i++)
        out->number[i] = -1;
    int err = updown ? number_nodes(env, g, topo, routing, out->number)
                     : number_links(env, g, topo, out->number, &out->phases);
    if (err < 0)
        gci_numbering_free(env, out);
    return err;
}

GCI void gci_numbering_free(gci_env *env, gci_numbering *nb)
{
    gci_free(env, nb->number);
    *nb = (gci_numbering){ 0 };
}

/* ---- does a numbering still hold? --------------------------------------------------------------------------------- */

enum { ANY_FOREST = -1, HOLDS_BLOCK = 32 };     /* sources looked at together: the bits of a word */

static bool edge_counts(const gci_graph *g, const gci_numbering *nb, int32_t edge, int32_t forest)
{
    return edge_is_up(&g->edge[edge]) && (forest == ANY_FOREST || nb->number[edge] == forest);
}

/* How many trees the links of a forest (or all links) join the nodes to. */
static int32_t count_trees(const gci_graph *g, const gci_numbering *nb, int32_t forest, int32_t parent[])
{
    int32_t trees = g->nodes;
    trees_reset(parent, g->nodes);
    for (int32_t i = 0; i < g->edges; i++)
        if (edge_counts(g, nb, i, forest) && trees_join(parent, g->edge[i].a, g->edge[i].b))
            trees--;
    return trees;
}

/* What has come to one node of a tree comes to all of it. */
static void spread(const gci_graph *g, const gci_numbering *nb, int32_t forest, int32_t parent[], int32_t bits[])
{
    (void)count_trees(g, nb, forest, parent);
    for (int32_t v = 0; v < g->nodes; v++)
        bits[tree_of(parent, v)] |= bits[v];
    for (int32_t v = 0; v < g->nodes; v++)
        bits[v] = bits[tree_of(parent, v)];
}

static bool block_reaches_all(const gci_graph *g, const gci_numbering *nb, int32_t start, int32_t scratch[])
{
    int32_t *parent = scratch, *all = scratch + g->nodes, *got = all + g->nodes;
    for (int32_t v = 0; v < g->nodes; v++)
        all[v] = got[v] = v >= start && v < start + HOLDS_BLOCK ? (int32_t)(UINT32_C(1) << (v - start)) : 0;
    spread(g, nb, ANY_FOREST, parent, all);
    for (int32_t forest = 0; forest < nb->phases; forest++)
        spread(g, nb, forest, parent, got);
    return memcmp(all, got, (size_t)g->nodes * sizeof *all) == 0;
}

/* Enough: forest 0 joins all that is joined at all. Else it is tried out, for 32 sources at a time. */
static bool forests_hold(const gci_graph *g, const gci_numbering *nb, int32_t scratch[])
{
    if (count_trees(g, nb, 0, scratch) == count_trees(g, nb, ANY_FOREST, scratch))
        return true;
    for (int32_t start = 0; start < g->nodes; start += HOLDS_BLOCK)
        if (!block_reaches_all(g, nb, start, scratch))
            return false;
    return true;
}

/* Each component has a node without a link up. If it has one only, all paths up end there, and paths down lead from there to
 * everywhere. If it has two, nothing leads from one to the other: there is no way up from the one, none down to the other. */
static bool directions_hold(const gci_graph *g, const gci_numbering *nb, int32_t scratch[])
{
    int32_t components = count_trees(g, nb, ANY_FOREST, scratch), without = g->nodes;
    memset(scratch, 0, (size_t)g->nodes * sizeof *scratch);
    for (int i = 0; i < g->edges; i++) {
        const gci_edge *e = &g->edge[i];
        int32_t lower_end = nb->number[e->a] > nb->number[e->b] ? e->a : e->b;      /* it has the higher number */
        if (edge_is_up(e) && !scratch[lower_end]) {
            scratch[lower_end] = 1;
            without--;
        }
    }
    return without == components;
}

GCI bool gci_numbering_holds(const gci_graph *g, const gci_numbering *nb, int32_t scratch[])
{
    switch (nb->routing) {
    case GCI_UPDOWN_DFS:
    case GCI_UPDOWN_BFS:
        return nb->entries == g->nodes && directions_hold(g, nb, scratch);
    case GCI_ORDERED:
        return nb->entries == g->edges && forests_hold(g, nb, scratch);
    case GCI_UNRESTRICTED:
    case GCI_ROUTINGS:
        break;
    }
    return true;
}

/* ---- the length of paths ------------------------------------------------------------------------------------------ */

/* How often a path leaves clusters, a counter per level packed into the words, outermost first; then its cost. */
typedef struct route_sum { uint64_t left[ROUTE_WORDS], cost; } route_sum;

static inline bool sum_less(const route_sum *x, const route_sum *y)
{
    if (x->left[0] != y->left[0])
        return x->left[0] < y->left[0];
    if (x->left[1] != y->left[1])
        return x->left[1] < y->left[1];
    return x->cost < y->cost;
}

static inline bool sum_equal(const route_sum *x, const route_sum *y)
{
    return x->left[0] == y->left[0] && x->left[1] == y->left[1] && x->cost == y->cost;
}

/* Work on the tables of one node. */
typedef struct router {
    const gci_graph *g;
    const gci_topo  *topo;
    const gci_numbering *nb;
    gci_routes *out;
    route_star  star;
    uint8_t    *level;          /* [edges] of the clusters that the link leaves: index in step */
    route_sum   step[ROUTE_LEVELS_MAX + 1];         /* what a link of that level counts; 0: it leaves none */
    route_sum  *sum;            /* [nodes] shortest path found */
    uint16_t   *hop;            /* [nodes] its first hop: index in neighbour */
    uint16_t   *neighbour_at;   /* [nodes] index in neighbour */
    int32_t    *order;          /* Up/Down: [nodes] nodes by number. Ordered: first_of_forest. Unrestricted: the queue */
    int32_t    *step_down;      /* Ordered: see forests_root */
    int32_t    *place;          /* Unrestricted: [nodes] where each stands in the queue */
    int32_t     queued;
    int         phase;
    enum gci_metric metric;
} router;

/* A counter holds the hops of any path without loop. Levels that no link leaves get no counter; if there are more levels than
 * counters (with 515 nodes: 12), the innermost share the last. */
static void make_levels(router *r)
{
    uint8_t level_of[ROUTE_DEPTH_MAX + 1] = { 0 };
    unsigned bits = 1, levels = 0;
    while ((uint64_t)r->g->nodes >> bits)
        bits++;
    unsigned each = ROUTE_WORD_BITS / bits, most = each * ROUTE_WORDS;
    for (int i = 0; i < r->g->edges; i++) {
        const gci_edge *e = &r->g->edge[i];
        r->level[i] = (uint8_t)edge_depth(r->topo, e);
        if (r->topo->of[e->a] != r->topo->of[e->b])
            level_of[r->level[i]] = 1;
    }
    for (size_t depth = 0; depth <= ROUTE_DEPTH_MAX; depth++)
        if (level_of[depth]) {
            levels += levels < most;
            level_of[depth] = (uint8_t)levels;
        }
    for (unsigned level = 1; level <= levels; level++)
        r->step[level].left[(level - 1) / each] = UINT64_C(1) << bits * (each - 1 - (level - 1) % each);
    for (int i = 0; i < r->g->edges; i++)
        r->level[i] = r->topo->of[r->g->edge[i].a] == r->topo->of[r->g->edge[i].b] ? 0 : level_of[r->level[i]];
}

static inline bool is_reached(const router *r, int32_t node)
{
    return r->sum[node].left[0] != UINT64_MAX;
}

/* Any fixed rule would do; this one spreads the load over the relays. */
static inline uint32_t taste(uint16_t hop, int32_t node)
{
    return (hop + 1U) * UINT32_C(2654435761) ^ (uint32_t)node * UINT32_C(2246822519);
}

/* The path to `from`, and on to `to`. Is that better? */
static inline bool relax(router *r, int32_t from, int32_t to, int32_t edge)
{
    const route_sum *way = &r->sum[from], *step = &r->step[r->level[edge]];
    route_sum sum = { { way->left[0] + step->left[0], way->left[1] + step->left[1] },
                      way->cost + r->g->edge[edge].cost[r->metric] };
    uint16_t hop = from == r->out->self ? r->neighbour_at[to] : r->hop[from];
    bool less = sum_less(&sum, &r->sum[to]);
    if (less || (sum_equal(&sum, &r->sum[to]) && taste(hop, to) < taste(r->hop[to], to))) {
        r->sum[to] = sum;
        r->hop[to] = hop;
    }
    return less;
}

/* ---- sweeps ------------------------------------------------------------------------------------------------------- */

/* Up/Down: in phase 0 first all links up, from high numbers to low; then all links down, from low numbers to high. */
static void sweep_up(router *r)
{
    const int32_t *number = r->nb->number;
    for (int32_t i = number[r->out->self]; i > 0; i--) {
        int32_t v = r->order[i];
        if (is_reached(r, v))
            for (int32_t k = r->star.first[v]; k < r->star.first[v + 1]; k++) {
                int32_t to = edge_other(&r->g->edge[r->star.link[k]], v);
                if (number[to] < i)
                    relax(r, v, to, r->star.link[k]);
            }
    }
}

static void sweep_down(router *r)
{
    const int32_t *number = r->nb->number;
    for (int32_t i = r->phase == 0 ? 1 : number[r->out->self] + 1; i < r->g->nodes; i++) {
        int32_t v = r->order[i];
        for (int32_t k = r->star.first[v]; k < r->star.first[v + 1]; k++) {
            int32_t from = edge_other(&r->g->edge[r->star.link[k]], v);
            if (number[from] < i && is_reached(r, from))
                relax(r, from, v, r->star.link[k]);
        }
    }
}

/* Ordered: the links of forest k are step_down[order[k] .. order[k + 1]), as 2 * edge, + 1 if b is the end towards the root,
 * parents before their children. First all towards the roots, then all away from them. */
static void sweep_forest(router *r, int forest)
{
    for (int32_t i = r->order[forest + 1]; i-- > r->order[forest]; ) {
        int32_t edge = r->step_down[i] / 2;
        const gci_edge *e = &r->g->edge[edge];
        int32_t parent = r->step_down[i] % 2 ? e->b : e->a, child = edge_other(e, parent);
        if (is_reached(r, child))
            relax(r, child, parent, edge);
    }
    for (int32_t i = r->order[forest]; i < r->order[forest + 1]; i++) {
        int32_t edge = r->step_down[i] / 2;
        const gci_edge *e = &r->g->edge[edge];
        int32_t parent = r->step_down[i] % 2 ? e->b : e->a;
        if (is_reached(r, parent))
            relax(r, parent, edge_other(e, parent), edge);
    }
}

/* A forest's links from the root of one of its trees. The links of a node stand by forest, so each is looked at once. */
static int32_t root_tree(router *r, int32_t forest, int32_t root, int32_t at, int32_t queue[], int32_t next_link[])
{
    int32_t end = 0;
    queue[end++] = root;
    for (int32_t head = 0; head < end; head++) {
        int32_t v = queue[head], from_parent = head > 0 ? r->step_down[at - (end - head)] / 2 : -1;
        for (; next_link[v] < r->star.first[v + 1] && r->nb->number[r->star.link[next_link[v]]] == forest; next_link[v]++) {
            int32_t edge = r->star.link[next_link[v]];
            if (edge == from_parent)
                continue;
            queue[end++] = edge_other(&r->g->edge[edge], v);
            r->step_down[at++] = 2 * edge + (r->g->edge[edge].b == v);
        }
    }
    return at;
}

/* Edges by forest into sorted (those of none at the end), and where each forest begins into order. */
static void sort_by_forest(router *r, int32_t sorted[])
{
    int forests = r->nb->phases;
    for (int i = 0; i < r->g->edges; i++) {
        int32_t forest = r->nb->number[i];
        r->order[forest < 0 ? forests + 1 : forest + 1]++;
    }
    for (int k = 1; k <= forests; k++)
        r->order[k] += r->order[k - 1];
    for (int32_t i = 0, rest = r->order[forests]; i < r->g->edges; i++) {
        int32_t forest = r->nb->number[i];
        sorted[forest < 0 ? rest++ : r->order[forest]++] = i;
    }
}

/* Fills in step_down, and order: where the links of each forest begin in it. nodes: [2 * nodes] of scratch. */
static void root_forests(router *r, int32_t nodes[])
{
    int32_t *queue = nodes, *next_link = nodes + r->g->nodes, at = 0;
    for (int32_t v = 0; v < r->g->nodes; v++)
        next_link[v] = r->star.first[v];
    for (int32_t forest = 0; forest < r->nb->phases; forest++) {
        r->order[forest] = at;
        for (int32_t v = 0; v < r->g->nodes; v++)
            if (next_link[v] < r->star.first[v + 1] && r->nb->number[r->star.link[next_link[v]]] == forest)
                at = root_tree(r, forest, v, at, queue, next_link);
    }
    r->order[r->nb->phases] = at;
}

/* Unrestricted: Dijkstra's algorithm. order[0 .. queued) is a binary heap, nearest first. */
static bool stands_before(const router *r, int32_t x, int32_t y)
{
    return sum_less(&r->sum[x], &r->sum[y]);
}

static void heap_put(router *r, int32_t node, int32_t at)
{
    r->order[at] = node;
    r->place[node] = at;
}

static void heap_rise(router *r, int32_t node)
{
    int32_t at = r->place[node];
    for (; at > 0 && stands_before(r, node, r->order[(at - 1) / 2]); at = (at - 1) / 2)
        heap_put(r, r->order[(at - 1) / 2], at);
    heap_put(r, node, at);
}

static int32_t heap_take(router *r)
{
    int32_t first = r->order[0], last = r->order[--r->queued], at = 0;
    for (int32_t child = 1; child < r->queued; child = 2 * at + 1) {
        child += child + 1 < r->queued && stands_before(r, r->order[child + 1], r->order[child]);
        if (!stands_before(r, r->order[child], last))
            break;
        heap_put(r, r->order[child], at);
        at = child;
    }
    if (r->queued > 0)
        heap_put(r, last, at);
    return first;
}

static void search(router *r)
{
    for (int32_t v = 0; v < r->g->nodes; v++)
        r->place[v] = -1;
    r->queued = 1;
    heap_put(r, r->out->self, 0);
    while (r->queued > 0) {
        int32_t v = heap_take(r);
        for (int32_t k = r->star.first[v]; k < r->star.first[v + 1]; k++) {
            int32_t to = edge_other(&r->g->edge[r->star.link[k]], v);
            if (!relax(r, v, to, r->star.link[k]))
                continue;
            if (r->place[to] < 0)
                heap_put(r, to, r->queued++);
            heap_rise(r, to);
        }
    }
}

/* ---- tables ------------------------------------------------------------------------------------------------------- */

static bool is_updown(const gci_numbering *nb)
{
    return nb->routing == GCI_UPDOWN_DFS || nb->routing == GCI_UPDOWN_BFS;
}

/* The phase of a packet that has come over the edge from `from` to `to`. */
static uint16_t phase_after(const gci_numbering *nb, int32_t edge, int32_t from, int32_t to)
{
    if (is_updown(nb))
        return nb->number[from] < nb->number[to];
    return nb->routing == GCI_ORDERED && nb->number[edge] > 0 ? (uint16_t)nb->number[edge] : 0;
}

static void routes_begin(router *r)
{
    memset(r->sum, 0xff, (size_t)r->g->nodes * sizeof *r->sum);
    r->sum[r->out->self] = (route_sum){ { 0 }, 0 };
}

/* All that links of this phase add to the paths found so far. */
static void sweep(router *r, int phase)
{
    if (r->nb->routing == GCI_ORDERED)
        sweep_forest(r, phase);
    else if (!is_updown(r->nb))
        search(r);
    else if (phase == 0)
        sweep_up(r);
    else
        sweep_down(r);
}

static void routes_fill(router *r, uint16_t next[])
{
    routes_begin(r);
    for (int phase = r->phase; phase < r->nb->phases; phase++)
        sweep(r, phase);
    for (int32_t v = 0; v < r->g->nodes; v++)
        next[v] = v == r->out->self || !is_reached(r, v) ? GCI_NO_ROUTE : r->hop[v];
}

/* Only phases in which something can come here, or starts here. */
static void routes_fill_all(router *r)
{
    gci_routes *out = r->out;
    memset(out->next, 0xff, GCI_METRICS * (size_t)out->phases * (size_t)out->nodes * sizeof *out->next);
    for (r->phase = 0; r->phase < out->phases; r->phase++) {
        bool comes = r->phase == 0;
        for (int i = 0; i < out->degree && !comes; i++)
            comes = out->came[i] == r->phase;
        for (int metric = 0; comes && metric < GCI_METRICS; metric++) {
            r->metric = (enum gci_metric)metric;
            routes_fill(r, out->next + ((size_t)metric * (size_t)out->phases + (size_t)r->phase) * (size_t)out->nodes);
        }
    }
}

static int routes_alloc(gci_env *env, router *r)
{
    gci_routes *out = r->out;
    size_t n = (size_t)out->nodes, degree = (size_t)(r->star.first[out->self + 1] - r->star.first[out->self]);
    out->degree = (int)degree;
    out->neighbour = gci_alloc(env, (degree + 1) * sizeof *out->neighbour);
    out->came = gci_alloc(env, (degree + 1) * sizeof *out->came);
    out->next = gci_alloc(env, GCI_METRICS * (size_t)out->phases * n * sizeof *out->next);
    r->level = gci_alloc(env, (size_t)r->g->edges + 1);
    r->sum = gci_alloc(env, n * sizeof *r->sum);
    r->hop = gci_alloc(env, n * sizeof *r->hop);
    r->neighbour_at = gci_alloc(env, n * sizeof *r->neighbour_at);
    r->order = gci_alloc(env, (gci_max(n, (size_t)out->phases) + 2) * sizeof *r->order);
    r->place = gci_alloc(env, 2 * n * sizeof *r->place);
    return out->neighbour && out->came && out->next && r->level && r->sum && r->hop && r->neighbour_at && r->order && r->place
           ? GC_OK : GC_ERR_NOMEM;
}

static void note_neighbours(router *r)
{
    gci_routes *out = r->out;
    int32_t at = 0;
    for (int32_t k = r->star.first[out->self]; k < r->star.first[out->self + 1]; k++) {
        int32_t edge = r->star.link[k], other = edge_other(&r->g->edge[edge], out->self);
        out->neighbour[at] = other;
        out->came[at] = phase_after(r->nb, edge, other, out->self);
        r->neighbour_at[other] = (uint16_t)at++;
    }
}

/* What the sweeps need to know beforehand. */
static int routes_prepare(gci_env *env, router *r)
{
    make_levels(r);
    if (is_updown(r->nb))
        for (int32_t v = 0; v < r->g->nodes; v++)
            r->order[r->nb->number[v]] = v;
    if (r->nb->routing != GCI_ORDERED)
        return GC_OK;
    int32_t *sorted = gci_alloc(env, ((size_t)r->g->edges + 1) * sizeof *sorted);
    r->step_down = gci_alloc(env, ((size_t)r->g->edges + 1) * sizeof *r->step_down);
    int err = sorted && r->step_down ? GC_OK : GC_ERR_NOMEM;
    if (!err) {
        sort_by_forest(r, sorted);
        star_free(env, &r->star);
        r->star = (route_star){ 0 };
        err = star_make(env, r->g, sorted, &r->star);
    }
    if (!err)
        root_forests(r, r->place);
    gci_free(env, sorted);
    return err;
}

static void router_close(gci_env *env, router *r)
{
    star_free(env, &r->star);
    void *scratch[] = { r->level, r->sum, r->hop, r->neighbour_at, r->order, r->place, r->step_down };
    for (size_t i = 0; i < GCI_COUNT(scratch); i++)
        gci_free(env, scratch[i]);
}

/* Up to the sweeps. On an error router_close() and gci_routes_free() are still to be called. */
static int router_open(gci_env *env, router *r)
{
    const gci_numbering *nb = r->nb;
    int self = r->out->self;
    if (nb->entries != (is_updown(nb) ? r->g->nodes : nb->routing == GCI_ORDERED ? r->g->edges : 0))
        return GC_ERR_ARG;
    int err = star_make(env, r->g, NULL, &r->star);
    if (!err && (r->star.first[self + 1] - r->star.first[self] > GCI_NO_ROUTE || nb->phases > GCI_NO_ROUTE))
        err = GC_ERR_UNSUPPORTED;
    if (!err)
        err = routes_alloc(env, r);
    if (!err) {
        note_neighbours(r);
        err = routes_prepare(env, r);
    }
    return err;
}

GCI int gci_routes_make(gci_env *env, const gci_graph *g, const gci_topo *topo, const gci_numbering *nb, int self,
                        gci_routes *out)
{
    router r = { .g = g, .topo = topo, .nb = nb, .out = out };
    *out = (gci_routes){ .nodes = g->nodes, .self = self, .phases = nb->phases };
    int err = router_open(env, &r);
    if (!err)
        routes_fill_all(&r);
    else
        gci_routes_free(env, out);
    router_close(env, &r);
    return err;
}

GCI void gci_routes_free(gci_env *env, gci_routes *r)
{
    gci_free(env, r->neighbour);
    gci_free(env, r->came);
    gci_free(env, r->next);
    *r = (gci_routes){ 0 };
}

/* ---- paths, hop by hop -------------------------------------------------------------------------------------------- */

/* Where a packet passes is decided by the tables of all relays on its way: each picks among equals. To know the paths of one
 * node those need not be made. Whatever the picks, the path is a shortest one; so of a destination all shortest paths from
 * self are found, from the sums and backwards: the weave, of states (node, phase). The sums of a relay's own table differ
 * from those by a constant there, so its pick is made again in the weave alone, by the rule of relax(). O(links) once, and
 * then for each destination what the weave takes, which is little. */
typedef struct path_arc { int32_t from, edge; } path_arc;   /* from: place in the weave. edge -1: the same node, a phase lower */

enum { PATH_UNKNOWN = -1, PATH_OPEN = -2 };
#define PATH_NONE UINT32_MAX            /* hops: cannot be reached from the relay, ... */
#define PATH_HERE (UINT32_MAX - 1)      /* ... is the relay */

struct gci_paths {
    gci_env   *env;
    gci_routes out;
    router     r;
    route_star star;            /* neighbours ascending, so that they stand as in the tables */
    route_sum *sum;             /* [metric][phase][node] from self, by links of phases up to this one */
    int32_t   *place;           /* [phase][node] in the weave, or PATH_* */
    int32_t   *state, count;    /* the weave: phase * nodes + node, each behind those that lead to it */
    int32_t   *arc_at;          /* [count + 1] */
    path_arc  *arc;             /* what leads to each */
    int32_t   *stack, *next;    /* states that are open, and which of their links is looked at next */
    uint32_t  *hop;             /* [count] from the relay */
};

GCI void gci_paths_free(gci_paths *p)
{
    if (!p)
        return;
    router_close(p->env, &p->r);
    gci_routes_free(p->env, &p->out);
    star_free(p->env, &p->star);
    void *memory[] = { p->sum, p->place, p->arc, p };
    for (size_t i = 0; i < GCI_COUNT(memory); i++)
        gci_free(p->env, memory[i]);
}

static int paths_alloc(gci_paths *p)
{
    size_t states = (size_t)p->out.phases * (size_t)p->out.nodes, arcs = 2 * (size_t)p->r.g->edges + states;
    p->sum = gci_alloc(p->env, GCI_METRICS * states * sizeof *p->sum);
    p->arc = gci_alloc(p->env, arcs * sizeof *p->arc);
    p->place = gci_alloc(p->env, (6 * states + 1) * sizeof *p->place);
    if (!p->sum || !p->arc || !p->place)
        return GC_ERR_NOMEM;
    p->state = p->place + states;
    p->stack = p->place + 2 * states;
    p->next = p->place + 3 * states;
    p->hop = (uint32_t *)(p->place + 4 * states);
    p->arc_at = p->place + 5 * states;
    for (size_t s = 0; s < states; s++)
        p->place[s] = PATH_UNKNOWN;
    return star_make(p->env, p->r.g, NULL, &p->star);
}

GCI int gci_paths_make(gci_env *env, const gci_graph *g, const gci_topo *topo, const gci_numbering *nb, int self,
                       gci_paths **out)
{
    gci_paths *p = gci_alloc(env, sizeof *p);
    *out = NULL;
    if (!p)
        return GC_ERR_NOMEM;
    p->env = env;
    p->out = (gci_routes){ .nodes = g->nodes, .self = self, .phases = nb->phases };
    p->r = (router){ .g = g, .topo = topo, .nb = nb, .out = &p->out };
    int err = router_open(env, &p->r);
    if (!err)
        err = paths_alloc(p);
    if (err < 0) {
        gci_paths_free(p);
        return err;
    }
    route_sum *sum = p->sum;
    for (int metric = 0; metric < GCI_METRICS; metric++) {
        p->r.metric = (enum gci_metric)metric;
        routes_begin(&p->r);
        for (int phase = 0; phase < nb->phases; phase++, sum += g->nodes) {
            sweep(&p->r, phase);
            memcpy(sum, p->r.sum, (size_t)g->nodes * sizeof *sum);
        }
    }
    *out = p;
    return GC_OK;
}

/* The i-th state that could lead to this one: 0, the same node a phase lower; else the other end of a link. -1: no shortest
 * path does. sum: of the metric. */
static int32_t path_before(const gci_paths *p, const route_sum *sum, enum gci_metric metric, int32_t state, int32_t i)
{
    int32_t nodes = p->out.nodes, node = state % nodes, phase = state / nodes;
    if (i == 0)
        return phase > 0 && sum_equal(&sum[state], &sum[state - nodes]) ? state - nodes : -1;
    int32_t edge = p->star.link[p->star.first[node] + i - 1], from = edge_other(&p->r.g->edge[edge], node);
    const route_sum *way = &sum[state - node + from], *step = &p->r.step[p->r.level[edge]];
    uint32_t cost = p->r.g->edge[edge].cost[metric];
    if (phase_after(p->r.nb, edge, from, node) != phase || way->left[0] == UINT64_MAX)
        return -1;
    route_sum on = { { way->left[0] + step->left[0], way->left[1] + step->left[1] }, way->cost + cost };
    return sum_equal(&on, &sum[state]) ? state - node + from : -1;
}

/* All behind this state stands in the weave; now it does. */
static void weave_close(gci_paths *p, const route_sum *sum, enum gci_metric metric, int32_t state, int32_t ways)
{
    int32_t arcs = p->arc_at[p->count], node = state % p->out.nodes;
    for (int32_t i = 0; i < ways; i++) {
        int32_t from = path_before(p, sum, metric, state, i);
        if (from >= 0)
            p->arc[arcs++] = (path_arc){ p->place[from], i > 0 ? p->star.link[p->star.first[node] + i - 1] : -1 };
    }
    p->place[state] = p->count;
    p->state[p->count++] = state;
    p->arc_at[p->count] = arcs;
}

/* Depth-first from the destination, so that each comes to stand behind all that leads to it. */
static void weave_make(gci_paths *p, enum gci_metric metric, int dest)
{
    const route_sum *sum = p->sum + (size_t)metric * (size_t)p->out.phases * (size_t)p->out.nodes;
    int32_t top = 0;
    for (int32_t i = 0; i < p->count; i++)
        p->place[p->state[i]] = PATH_UNKNOWN;
    p->count = p->arc_at[0] = 0;
    p->stack[top++] = (p->out.phases - 1) * p->out.nodes + dest;
    p->next[0] = 0;
    while (top > 0) {
        int32_t state = p->stack[top - 1], node = state % p->out.nodes, ways = 1 + p->star.first[node + 1] - p->star.first[node];
        int32_t from = -1;
        while (from < 0 && p->next[top - 1] < ways) {
            from = path_before(p, sum, metric, state, p->next[top - 1]++);
            if (from >= 0 && p->place[from] != PATH_UNKNOWN)
                from = -1;
        }
        if (from < 0) {
            weave_close(p, sum, metric, state, ways);
            top--;
        } else {
            p->place[from] = PATH_OPEN;
            p->next[top] = 0;
            p->stack[top++] = from;
        }
    }
}

/* Where a link stands among those of a node: as in gci_routes.neighbour. */
static uint32_t path_index(const gci_paths *p, int32_t node, int32_t edge)
{
    int32_t low = p->star.first[node], high = p->star.first[node + 1];
    while (high - low > 1) {
        int32_t middle = low + (high - low) / 2;
        if (p->star.link[middle] <= edge)
            low = middle;
        else
            high = middle;
    }
    return (uint32_t)(low - p->star.first[node]);
}

/* The link by which the relay at this place of the weave sends on to its end. */
static int32_t path_pick(gci_paths *p, int32_t at)
{
    int32_t relay = p->state[at] % p->out.nodes;
    for (int32_t i = 0; i < at; i++)
        p->hop[i] = PATH_NONE;
    p->hop[at] = PATH_HERE;
    for (int32_t i = at + 1; i < p->count; i++) {
        int32_t node = p->state[i] % p->out.nodes;
        p->hop[i] = PATH_NONE;
        for (const path_arc *arc = p->arc + p->arc_at[i]; arc < p->arc + p->arc_at[i + 1]; arc++) {
            uint32_t hop = p->hop[arc->from];
            if (hop == PATH_HERE && arc->edge >= 0)
                hop = path_index(p, relay, arc->edge);
            if (hop != PATH_NONE && (p->hop[i] == PATH_NONE || taste((uint16_t)hop, node) < taste((uint16_t)p->hop[i], node)))
                p->hop[i] = hop;
        }
    }
    return p->star.link[p->star.first[relay] + (int32_t)p->hop[p->count - 1]];
}

GCI int gci_paths_walk(gci_paths *p, enum gci_metric metric, int dest, int32_t path[])
{
    int32_t nodes = p->out.nodes, node = p->out.self, phase = 0;
    int hops = 0;
    size_t last = ((size_t)metric * (size_t)p->out.phases + (size_t)p->out.phases - 1) * (size_t)nodes;
    if (p->sum[last + (size_t)dest].left[0] == UINT64_MAX)
        return 0;
    weave_make(p, metric, dest);
    while (node != dest) {
        int32_t edge = path_pick(p, p->place[phase * nodes + node]), to = edge_other(&p->r.g->edge[edge], node);
        phase = phase_after(p->r.nb, edge, node, to);
        path[hops++] = node = to;
    }
    return hops;
}
