/* overlay_world.c: 515 nodes in 13 clusters, and what routing over a sparse overlay costs them.
 * SPDX-License-Identifier: MIT
 *
 * Sizes of clusters. The paper gives no list for its 515 nodes. 5.2.4 has 177 nodes in istbs and 291 in istbs, chiba, suzuk and
 * kototoi; Table 5.1 has 58 (newer) nodes in chiba and 36 in suzuk, which leaves 20 for kototoi, in keeping with 73 of the 510
 * workers of 5.1.2. Table 5.1 gives hongo (newer), okubo, imade, kyoto, mirai and hiro. 114 nodes remain for keio, which 5.2.3
 * names, and two clusters that the text does not: 38 each is our assumption.
 *
 * Bandwidth: 1 Gbit/s inside all, and between istbs, hongo, chiba and suzuk (5.2.3); 100 Mbit/s at keio (95 measured, 5.2.3);
 * elsewhere 1 Gbit/s or 100 Mbit/s by our assumption. A path between sites has the lesser of both uplinks.
 *
 * Latency, one way: 50 us inside a cluster. Between sites either 10 ms throughout, or by the map, our assumption: 0.5 ms in the
 * access network of either site, and 7.5 us per km as the crow flies (fibre at 200 km/ms, detours of one half).
 */
#include "overlay_world.h"

#include <math.h>
#include <stdlib.h>

static const double inside_us = 50, even_us = 10000, access_us = 500, us_per_km = 7.5, inside_mbit = 1000;

const world_site world_sites[WORLD_SITES] = {
    { "istbs",   177,    0,    0, 1000, "5.2.4" },
    { "chiba",    58,   35,   -5, 1000, "Table 5.1, newer nodes" },
    { "suzuk",    36,  -25,  -25, 1000, "Table 5.1" },
    { "kototoi",  20,    1,    0, 1000, "291 of 5.2.4 less the three before" },
    { "hongo",    14,    0,    0, 1000, "Table 5.1, newer nodes" },
    { "okubo",    14,   -5,   -1,  100, "Table 5.1" },
    { "hiro",     11, -680, -140,  100, "Table 5.1" },
    { "imade",    30, -371,  -70,  100, "Table 5.1" },
    { "kyoto",    35, -370,  -72, 1000, "Table 5.1" },
    { "mirai",     6,   60,  680,  100, "Table 5.1" },
    { "keio",     38,  -15,  -18,  100, "assumed" },
    { "site12",   38, -430, -110, 1000, "assumed" },
    { "site13",   38, -890, -230, 1000, "assumed" },
};

/* ---- the world ---------------------------------------------------------------------------------------------------- */

int world_make(gci_env *env, enum world_kind kind, world *w)
{
    const char *paths[WORLD_NODES];
    int hosts[WORLD_NODES], at = 0;
    w->kind = kind;
    for (int s = 0; s < WORLD_SITES; s++)
        for (int i = 0; i < world_sites[s].nodes; i++, at++) {
            w->site[at] = s;
            paths[at] = world_sites[s].name;
            hosts[at] = at;
        }
    return gci_topo_make(env, WORLD_NODES, paths, hosts, &w->topo);
}

void world_free(gci_env *env, world *w)
{
    gci_topo_free(env, &w->topo);
}

double world_latency(const world *w, int a, int b)
{
    const world_site *s = &world_sites[w->site[a]], *t = &world_sites[w->site[b]];
    if (s == t)
        return inside_us;
    if (w->kind == WORLD_EVEN)
        return even_us;
    return 2 * access_us + us_per_km * hypot(s->east - t->east, s->north - t->north);
}

double world_mbit(const world *w, int a, int b)
{
    const world_site *s = &world_sites[w->site[a]], *t = &world_sites[w->site[b]];
    return s == t ? inside_mbit : s->mbit < t->mbit ? s->mbit : t->mbit;
}

/* ---- graphs ------------------------------------------------------------------------------------------------------- */

static uint64_t draw(uint64_t *state)
{
    uint64_t x = *state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

typedef struct far_node { double latency; uint64_t tie; int node; } far_node;

static int nearer_first(const void *x, const void *y)
{
    const far_node *a = x, *b = y;
    if (a->latency != b->latency)
        return a->latency < b->latency ? -1 : 1;
    return a->tie < b->tie ? -1 : a->tie > b->tie;
}

/* What one node asks for: the d closest, then d of each range [d^k + 1, d^(k+1)], the last one cut off by n. */
static void plain_links(const world *w, int self, int d, uint64_t *random, uint8_t *linked)
{
    far_node others[WORLD_NODES];
    int n = 0;
    for (int v = 0; v < WORLD_NODES; v++)
        if (v != self)
            others[n++] = (far_node){ world_latency(w, self, v), draw(random), v };
    qsort(others, (size_t)n, sizeof *others, nearer_first);
    for (int low = 0, high = d; low < n; low = high, high *= d) {
        int end = high < n ? high : n, count = end - low < d ? end - low : d;
        for (int i = 0; i < count; i++) {       /* the first of a shuffle */
            int pick = low + i + (int)(draw(random) % (uint64_t)(end - low - i));
            far_node kept = others[low + i];
            others[low + i] = others[pick];
            others[pick] = kept;
            int v = others[low + i].node;
            linked[self < v ? self * WORLD_NODES + v : v * WORLD_NODES + self] = 1;
        }
    }
}

int world_plain_graph(gci_env *env, const world *w, int d, uint64_t seed, gci_graph *g)
{
    uint8_t *linked = calloc(WORLD_NODES * WORLD_NODES, 1);
    *g = (gci_graph){ .nodes = WORLD_NODES };
    for (int v = 0; linked && v < WORLD_NODES; v++)
        plain_links(w, v, d, &seed, linked);
    for (int i = 0; linked && i < WORLD_NODES * WORLD_NODES; i++)
        g->edges += linked[i];
    if (linked)
        g->edge = gci_alloc(env, (size_t)g->edges * sizeof *g->edge);
    for (int i = 0, at = 0; g->edge && i < WORLD_NODES * WORLD_NODES; i++)
        if (linked[i])
            g->edge[at++] = (gci_edge){ .a = i / WORLD_NODES, .b = i % WORLD_NODES, .cost = { 1, 1 } };
    free(linked);
    return g->edge ? GC_OK : GC_ERR_NOMEM;
}

int world_backbone(gci_env *env, const world *w, double density, uint64_t seed, gci_graph *g)
{
    uint32_t speed[WORLD_NODES];
    for (int v = 0; v < WORLD_NODES; v++)
        speed[v] = (uint32_t)inside_mbit;
    return gci_backbone_choose(env, &w->topo, speed, density, seed, g);
}

void world_costs(const world *w, enum world_costs costs, gci_graph *g)
{
    uint32_t speed[WORLD_NODES];
    for (int v = 0; v < WORLD_NODES; v++)
        speed[v] = (uint32_t)inside_mbit;
    for (int i = 0; i < g->edges; i++) {
        gci_edge *e = &g->edge[i];
        if (costs == COSTS_TIERS)
            gci_backbone_cost(&w->topo, speed, e);
        else {
            e->cost[GCI_LATENCY] = (uint32_t)(world_latency(w, e->a, e->b) * 10);           /* units of 100 ns */
            e->cost[GCI_BANDWIDTH] = (uint32_t)(8e6 / world_mbit(w, e->a, e->b));           /* ps per byte */
        }
    }
}

/* ---- measuring ---------------------------------------------------------------------------------------------------- */

typedef struct path { int hops, crossings; double latency, mbit; bool left; } path;

static int index_in(const gci_routes *r, int node)
{
    int low = 0, high = r->degree - 1;
    while (low < high) {
        int middle = (low + high) / 2;
        if (r->neighbour[middle] < node)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

/* Goes where the tables lead. false: nowhere. */
static bool path_walk(const world *w, const gci_routes *routes, enum gci_metric metric, int source, int dest, path *p)
{
    int at = source, from = -1;
    *p = (path){ .mbit = INFINITY };
    while (at != dest) {
        int next = gci_route_next(&routes[at], metric, from, dest);
        if (next < 0 || p->hops > 2 * WORLD_NODES)
            return false;
        int to = routes[at].neighbour[next];
        p->hops++;
        p->latency += world_latency(w, at, to);
        p->mbit = fmin(p->mbit, world_mbit(w, at, to));
        p->crossings += w->site[at] != w->site[to];
        p->left |= w->site[to] != w->site[source];
        from = index_in(&routes[to], at);
        at = to;
    }
    return true;
}

static int ascending(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static void summarise(double *values, size_t n, double *median, double *p95, double *most)
{
    qsort(values, n, sizeof *values, ascending);
    *median = n ? values[n / 2] : 0;
    *p95 = n ? values[n * 95 / 100] : 0;
    *most = n ? values[n - 1] : 0;
}

/* Is each cluster connected in itself? */
static void sites_whole(const world *w, const gci_graph *g, bool whole[WORLD_SITES])
{
    int part[WORLD_NODES], first[WORLD_SITES];
    for (int v = 0; v < WORLD_NODES; v++)
        part[v] = v;
    for (bool changed = true; changed; ) {
        changed = false;
        for (int i = 0; i < g->edges; i++) {
            int a = g->edge[i].a, b = g->edge[i].b;
            if (w->site[a] != w->site[b] || part[a] == part[b])
                continue;
            part[a] = part[b] = part[a] < part[b] ? part[a] : part[b];
            changed = true;
        }
    }
    for (int s = 0; s < WORLD_SITES; s++)
        first[s] = -1;
    for (int v = 0; v < WORLD_NODES; v++) {
        int s = w->site[v];
        if (first[s] < 0) {
            first[s] = part[v];
            whole[s] = true;
        }
        whole[s] = whole[s] && part[v] == first[s];
    }
}

typedef struct tally {
    double *between, *inside;   /* stretch of each pair */
    size_t  between_count, inside_count;
    double  hops[GCI_METRICS], ratio;
    long    pairs, crossed;
} tally;

static bool tally_pair(const world *w, const gci_routes *routes, const bool whole[], int source, int dest, tally *t,
                       overlay_figures *f)
{
    path p[GCI_METRICS];
    bool same = w->site[source] == w->site[dest];
    for (int metric = 0; metric < GCI_METRICS; metric++) {
        if (!path_walk(w, routes, (enum gci_metric)metric, source, dest, &p[metric]))
            return false;
        t->hops[metric] += p[metric].hops;
        if (same && p[metric].hops > f->inside_hops_most)
            f->inside_hops_most = p[metric].hops;
    }
    f->left += same && whole[w->site[source]] && (p[GCI_LATENCY].left || p[GCI_BANDWIDTH].left);
    double ratio = p[GCI_BANDWIDTH].mbit / world_mbit(w, source, dest);
    double stretch = p[GCI_LATENCY].latency / world_latency(w, source, dest);
    t->ratio += ratio < 1 ? ratio : 1;
    f->ratio_least = fmin(f->ratio_least, ratio);
    f->hops_most = p[GCI_BANDWIDTH].hops > f->hops_most ? p[GCI_BANDWIDTH].hops : f->hops_most;
    f->latency_hops_most = p[GCI_LATENCY].hops > f->latency_hops_most ? p[GCI_LATENCY].hops : f->latency_hops_most;
    t->pairs++;
    if (same)
        t->inside[t->inside_count++] = stretch;
    else {
        t->between[t->between_count++] = stretch;
        t->crossed += p[GCI_LATENCY].crossings > 1;
    }
    return true;
}

static bool tally_all(const world *w, const gci_graph *g, const gci_routes *routes, tally *t, overlay_figures *f)
{
    bool whole[WORLD_SITES];
    *f = (overlay_figures){ .links = g->edges, .density = 2.0 * g->edges / WORLD_NODES / (WORLD_NODES - 1), .ratio_least = 1 };
    sites_whole(w, g, whole);
    for (int source = 0; source < WORLD_NODES; source++)
        for (int dest = 0; dest < WORLD_NODES; dest++)
            if (source != dest && !tally_pair(w, routes, whole, source, dest, t, f))
                return false;
    f->hops_mean = t->hops[GCI_BANDWIDTH] / (double)t->pairs;
    f->latency_hops_mean = t->hops[GCI_LATENCY] / (double)t->pairs;
    f->ratio_mean = t->ratio / (double)t->pairs;
    f->two_sites = (double)t->crossed / (double)t->between_count;
    summarise(t->between, t->between_count, &f->between_median, &f->between_p95, &f->between_most);
    summarise(t->inside, t->inside_count, &f->inside_median, &f->inside_p95, &f->inside_most);
    return true;
}

int world_measure(gci_env *env, const world *w, const gci_graph *g, enum gci_routing routing, overlay_figures *f)
{
    gci_numbering numbering;
    int err = gci_number(env, g, &w->topo, routing, &numbering);
    if (err < 0)
        return err;
    gci_routes *routes = calloc(WORLD_NODES, sizeof *routes);
    double *stretch = calloc(2 * (size_t)WORLD_NODES * WORLD_NODES, sizeof *stretch);
    err = routes && stretch ? GC_OK : GC_ERR_NOMEM;
    for (int v = 0; v < WORLD_NODES && !err; v++)
        err = gci_routes_make(env, g, &w->topo, &numbering, v, &routes[v]);
    if (!err) {
        tally t = { .between = stretch, .inside = stretch + WORLD_NODES * WORLD_NODES };
        err = tally_all(w, g, routes, &t, f) ? GC_OK : GC_ERR_UNREACHABLE;
    }
    for (int v = 0; routes && v < WORLD_NODES; v++)
        gci_routes_free(env, &routes[v]);
    free(routes);
    free(stretch);
    gci_numbering_free(env, &numbering);
    return err;
}
