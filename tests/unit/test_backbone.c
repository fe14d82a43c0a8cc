/* test_backbone.c: the wished links, cut nodes, costs, the whole loop of repair in worlds of NATs and firewalls, the links file.
 * SPDX-License-Identifier: MIT
 *
 * Graph algorithms are compared with slow ones that follow the definition. GCT_SEED replays the random part; GCT_ROUNDS says
 * how many graphs, topologies and worlds are drawn.
 */
#include "gridcomm_int.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 1500, NODES_MAX = 200, HOSTS_MAX = 40, PATH_BYTES = 32, PROPOSALS = 64 };

static gci_env env;
static int rounds(void)
{
    const char *text = getenv("GCT_ROUNDS");
    seed_random();
    return text ? atoi(text) : ROUNDS;
}

static double seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- graphs, by definition --------------------------------------------------------------------------------------- */

static void flood(const gci_graph *g, int from, int without, int32_t part[], int number)
{
    bool more = true;
    part[from] = number;
    while (more) {
        more = false;
        for (int i = 0; i < g->edges; i++) {
            int a = g->edge[i].a, b = g->edge[i].b;
            if (g->edge[i].cost[0] == 0 || a == without || b == without || (part[a] == number) == (part[b] == number))
                continue;
            part[a] = part[b] = number;
            more = true;
        }
    }
}

static int slow_parts(const gci_graph *g, int without, int32_t part[])
{
    int parts = 0;
    for (int x = 0; x < g->nodes; x++)
        part[x] = -1;
    for (int x = 0; x < g->nodes; x++)
        if (part[x] < 0 && x != without)
            flood(g, x, without, part, parts++);
    return parts;
}

/* x cuts if without it its component falls into more than one; alone in it, it leaves none behind. */
static bool slow_cuts(const gci_graph *g, int x)
{
    int32_t part[NODES_MAX];
    int whole = slow_parts(g, -1, part);
    return slow_parts(g, x, part) > whole;
}

static void check_graph(const gci_graph *g)
{
    int32_t part[NODES_MAX], right[NODES_MAX];
    uint8_t cut[NODES_MAX];
    int parts = slow_parts(g, -1, right), cuts = 0;
    assert_int_equal(gci_graph_parts(g, part), parts);
    assert_memory_equal(part, right, (size_t)g->nodes * sizeof *part);
    int found = gci_graph_cuts(&env, g, cut);
    for (int x = 0; x < g->nodes; x++) {
        bool cuts_it = slow_cuts(g, x);
        if (cut[x] != cuts_it)
            fail_msg("node %d of %d, %d links: cut %d", x, g->nodes, g->edges, cut[x]);
        cuts += cuts_it;
    }
    assert_int_equal(found, cuts);
}

static void test_graphs(void **state)
{
    (void)state;
    for (int round = 2 * rounds(); round > 0; round--) {
        gci_graph g = { .nodes = 1 + below(14) };
        bool has[14][14] = { { false } };
        int tries = below(3 * g.nodes), links = 0;
        for (int i = 0; i < tries && g.nodes > 1; i++) {
            int a = below(g.nodes), b = below(g.nodes);
            gci_edge e = { .a = a, .b = b, .cost = { (uint32_t)below(4) * 10, 7 } };
            if (a == b)
                continue;
            links += !has[a][b];
            has[a][b] = has[b][a] = true;
            assert_int_equal(gci_graph_add(&env, &g, &e), GC_OK);
            int at = gci_graph_find(&g, a, b);
            assert_true(at >= 0 && g.edge[at].cost[0] == e.cost[0]);
        }
        assert_int_equal(g.edges, links);
        for (int i = 0; i < g.edges; i++) {
            const gci_edge *e = &g.edge[i];
            assert_true(e->a < e->b && has[e->a][e->b]);
            assert_true(i == 0 || e[-1].a < e->a || (e[-1].a == e->a && e[-1].b < e->b));
        }
        check_graph(&g);
        gci_graph_free(&env, &g);
    }
}

/* A chain: as deep as it gets. Recursion would break the stack, anything but linear time would not end. */
static void test_chain(void **state)
{
    enum { LONG = 1 << 20 };
    gci_graph g = { .nodes = LONG, .edges = LONG - 1, .edge = calloc(LONG, sizeof *g.edge) };
    int32_t *part = calloc(LONG, sizeof *part);
    uint8_t *cut = calloc(LONG, 1);
    (void)state;
    assert_true(g.edge && part && cut);
    for (int i = 0; i < LONG - 1; i++)
        g.edge[i] = (gci_edge){ i, i + 1, { 1, 1 } };
    assert_int_equal(gci_graph_parts(&g, part), 1);
    assert_int_equal(gci_graph_cuts(&env, &g, cut), LONG - 2);
    assert_int_equal(cut[0] + cut[LONG - 1], 0);
    g.edge[LONG / 2].cost[0] = 0;
    assert_int_equal(gci_graph_parts(&g, part), 2);
    assert_int_equal(gci_graph_cuts(&env, &g, cut), LONG - 4);
    g.edge[LONG / 4].cost[1] = 0;       /* any cost 0: the link is down */
    assert_int_equal(gci_graph_parts(&g, part), 3);
    assert_int_equal(gci_graph_cuts(&env, &g, cut), LONG - 6);
    free(g.edge);
    free(part);
    free(cut);
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

typedef struct world {
    int  nodes, hosts, sites;
    char text[NODES_MAX][PATH_BYTES];
    const char *paths[NODES_MAX];
    int  host[NODES_MAX];
    gci_topo topo;
} world;

static void world_topo(world *w)
{
    for (int x = 0; x < w->nodes; x++)
        w->paths[x] = w->text[x];
    assert_int_equal(gci_topo_make(&env, w->nodes, w->paths, w->host, &w->topo), GC_OK);
}

static void random_topo(world *w)
{
    int deep = below(4), names = 1 + below(5), hosts;
    w->nodes = 1 + below(NODES_MAX);
    hosts = 1 + below(w->nodes);
    for (int x = 0; x < w->nodes; x++) {
        size_t at = 0;
        w->text[x][0] = 0;
        for (int k = below(deep + 1); k > 0; k--)
            at += (size_t)snprintf(w->text[x] + at, PATH_BYTES - at, "/%c", 'a' + below(names));
        w->host[x] = below(hosts);
    }
    world_topo(w);
}

/* The links inside a cluster, its nodes numbered by their place. */
static void induced(const gci_topo *t, const gci_graph *g, int cluster, gci_graph *out)
{
    *out = (gci_graph){ .nodes = t->size[cluster], .edge = calloc((size_t)g->edges + 1, sizeof *out->edge) };
    assert_non_null(out->edge);
    for (int i = 0; i < g->edges; i++)
        if (gci_topo_inside(t, cluster, g->edge[i].a) && gci_topo_inside(t, cluster, g->edge[i].b)) {
            gci_edge *e = &out->edge[out->edges++];
            *e = g->edge[i];
            e->a = t->place[e->a] - t->first[cluster];
            e->b = t->place[e->b] - t->first[cluster];
        }
}

/* Well-formed, and every cluster hangs together in itself so that no node cuts it. */
static void check_choice(const gci_topo *t, const gci_graph *g)
{
    int32_t *part = calloc((size_t)t->nodes + 1, sizeof *part);
    uint8_t *cut = calloc((size_t)t->nodes + 1, 1);
    assert_true(part && cut);
    assert_int_equal(g->nodes, t->nodes);
    for (int i = 0; i < g->edges; i++) {
        const gci_edge *e = &g->edge[i];
        assert_true(e->a >= 0 && e->a < e->b && e->b < g->nodes && e->cost[0] > 0 && e->cost[1] > 0);
        assert_true(i == 0 || e[-1].a < e->a || (e[-1].a == e->a && e[-1].b < e->b));
    }
    for (int c = 0; c < t->clusters; c++) {
        gci_graph in;
        induced(t, g, c, &in);
        int parts = gci_graph_parts(&in, part), cuts = gci_graph_cuts(&env, &in, cut);
        if (parts != 1 || cuts != 0)
            fail_msg("cluster %d of %d nodes: %d parts, %d cut nodes", c, in.nodes, parts, cuts);
        free(in.edge);
    }
    free(part);
    free(cut);
}

/* As many links as were asked for, or up to one of each node more; at the least (the rings, and two closest each) more. */
static void check_density(const gci_graph *g, double density, int least)
{
    double pairs = 0.5 * g->nodes * (g->nodes - 1), asked = density * pairs;
    if (density > 0 && (g->edges < asked - 1 || (g->edges > asked + g->nodes + 1 && g->edges > least)))
        fail_msg("%d nodes, density %g: %d links, asked for %g", g->nodes, density, g->edges, asked);
}

static void test_choice(void **state)
{
    static world w;
    static const double densities[] = { 0, 0, 1e-6, 0.01, 0.05, 0.1, 0.2, 0.5, 0.8, 0.97, 1 };
    (void)state;
    for (int round = rounds() / 2; round > 0; round--) {
        gci_graph g, again;
        double density = densities[below((int)GCI_COUNT(densities))];
        uint64_t seed = random_state;
        random_topo(&w);
        assert_int_equal(gci_backbone_choose(&env, &w.topo, NULL, density, seed, &g), GC_OK);
        assert_int_equal(gci_backbone_choose(&env, &w.topo, NULL, density, seed, &again), GC_OK);
        assert_int_equal(g.edges, again.edges);
        assert_memory_equal(g.edge, again.edge, (size_t)g.edges * sizeof *g.edge);
        check_choice(&w.topo, &g);
        int pairs = w.nodes * (w.nodes - 1) / 2;
        if (density == 1)
            assert_int_equal(g.edges, pairs);
        check_density(&g, density, 4 * w.nodes);
        gci_graph_free(&env, &g);
        gci_graph_free(&env, &again);
        gci_topo_free(&env, &w.topo);
    }
    assert_int_equal(env.memory, 0);
}

static void test_few(void **state)
{
    static const int links[] = { 0, 0, 1, 3, 6 };       /* up to seven ranks the default is all pairs */
    (void)state;
    for (int n = 0; n < (int)GCI_COUNT(links); n++) {
        gci_topo t;
        gci_graph g;
        assert_int_equal(gci_topo_make(&env, n, NULL, NULL, &t), GC_OK);
        assert_int_equal(gci_backbone_choose(&env, &t, NULL, 0, 1, &g), GC_OK);
        assert_int_equal(g.edges, links[n]);
        gci_graph_free(&env, &g);
        assert_int_equal(gci_backbone_choose(&env, &t, NULL, 1e-9, 1, &g), GC_OK);
        assert_int_equal(g.edges, n == 4 ? 4 : links[n]);
        gci_graph_free(&env, &g);
        gci_topo_free(&env, &t);
    }
}

/* 515 nodes in 13 clusters, one of them of 177 (Hironaka 2009, 5.2.2 and 5.2.4.2); the other sizes are ours. */
enum { GRID_NODES = 515, GRID_SITES = 13 };
#define FIXED_HASH UINT64_C(0x7db96bb04f3a32b9)
static const int grid_size[GRID_SITES] = { 177, 68, 60, 50, 40, 30, 20, 16, 14, 12, 11, 10, 7 };

static void grid_topo(gci_topo *t, int site[GRID_NODES])
{
    static char text[GRID_SITES][PATH_BYTES];
    const char *paths[GRID_NODES];
    int x = 0, hosts[GRID_NODES];
    for (int s = 0; s < GRID_SITES; s++) {
        snprintf(text[s], PATH_BYTES, "site-%02d", s);
        for (int i = 0; i < grid_size[s]; i++, x++) {
            paths[x] = text[s];
            hosts[x] = x;
            site[x] = s;
        }
    }
    assert_int_equal(x, GRID_NODES);
    assert_int_equal(gci_topo_make(&env, GRID_NODES, paths, hosts, t), GC_OK);
}

/* The longest of the shortest ways. */
static int longest_hops(const gci_graph *g)
{
    int longest = 0, *hops = calloc((size_t)g->nodes, sizeof *hops);
    assert_non_null(hops);
    for (int from = 0; from < g->nodes; from++) {
        for (int x = 0; x < g->nodes; x++)
            hops[x] = x == from ? 0 : 1000;
        for (bool more = true; more; ) {
            more = false;
            for (int i = 0; i < g->edges; i++) {
                int *a = &hops[g->edge[i].a], *b = &hops[g->edge[i].b];
                if (*a > *b + 1)
                    *a = *b + 1, more = true;
                if (*b > *a + 1)
                    *b = *a + 1, more = true;
            }
        }
        for (int x = 0; x < g->nodes; x++)
            longest = hops[x] > longest ? hops[x] : longest;
    }
    free(hops);
    return longest;
}

static void test_grid(void **state)
{
    static const double densities[] = { 0.01, 0, 0.08 };
    gci_topo t;
    int site[GRID_NODES], before = 0;
    (void)state;
    grid_topo(&t, site);
    for (size_t d = 0; d < GCI_COUNT(densities); d++) {
        gci_graph g, in;
        int degree[GRID_NODES] = { 0 }, largest = 0, wide = 0, hops = 0, hops_largest = 0;
        assert_int_equal(gci_backbone_choose(&env, &t, NULL, densities[d], 1 + d, &g), GC_OK);
        check_choice(&t, &g);
        for (int i = 0; i < g.edges; i++) {
            int a = g.edge[i].a, b = g.edge[i].b;
            wide += site[a] != site[b];
            largest = ++degree[a] > largest ? degree[a] : largest;
            largest = ++degree[b] > largest ? degree[b] : largest;
        }
        for (int c = 1; c < t.clusters; c++) {
            if (t.depth[c] != 1)
                continue;
            induced(&t, &g, c, &in);
            int longest = longest_hops(&in), *most = in.nodes <= 100 ? &hops : &hops_largest;
            *most = longest > *most ? longest : *most;
            free(in.edge);
        }
        print_message("density %.3f: %d links (%.4f), %d between sites; degree %.1f, at most %d; hops inside clusters "
                      "up to 100: %d, of 177: %d\n", densities[d], g.edges, 2.0 * g.edges / GRID_NODES / (GRID_NODES - 1), wide,
                      2.0 * g.edges / GRID_NODES, largest, hops, hops_largest);
        assert_true(wide >= GRID_SITES && wide > before);       /* the denser the more of them */
        assert_true(wide * 2 < g.edges);                        /* nine pairs of ten are between sites */
        assert_true(largest < 2.5 * 2.0 * g.edges / GRID_NODES + 4);
        assert_true(densities[d] < 0.08 || hops <= 3);
        before = wide;
        gci_graph_free(&env, &g);
    }
    gci_topo_free(&env, &t);
}

/* 0.14 to 0.16 lie where 4.5.1 has hardly more links for a larger d, and from 0.2 on most links are to the d closest. */
static void test_density(void **state)
{
    static const int sizes[] = { 24, 100, 333 };
    gci_topo t;
    gci_graph g;
    int site[GRID_NODES];
    (void)state;
    for (size_t i = 0; i <= GCI_COUNT(sizes); i++) {
        if (i == 0)
            grid_topo(&t, site);
        else
            assert_int_equal(gci_topo_make(&env, sizes[i - 1], NULL, NULL, &t), GC_OK);
        for (int hundredths = 1; hundredths < 100; hundredths++) {
            assert_int_equal(gci_backbone_choose(&env, &t, NULL, 0.01 * hundredths, 3, &g), GC_OK);
            check_density(&g, 0.01 * hundredths, 3 * t.nodes);
            gci_graph_free(&env, &g);
        }
        gci_topo_free(&env, &t);
    }
    assert_int_equal(env.memory, 0);
}

/* The choice is the same whatever compiler and processor: here stands what it is. */
static void test_fixed(void **state)
{
    gci_topo t;
    gci_graph g;
    int site[GRID_NODES];
    uint64_t hash = 0;
    (void)state;
    grid_topo(&t, site);
    for (int d = 0; d < 6; d++) {
        assert_int_equal(gci_backbone_choose(&env, &t, NULL, 0.02 * d, 7, &g), GC_OK);
        for (int i = 0; i < g.edges; i++)
            hash = (hash ^ (uint64_t)(uint32_t)g.edge[i].a << 32 ^ (uint64_t)(uint32_t)g.edge[i].b) * UINT64_C(0x100000001b3);
        gci_graph_free(&env, &g);
    }
    gci_topo_free(&env, &t);
    assert_int_equal(hash, FIXED_HASH);
}

static void test_large(void **state)
{
    enum { LARGE = 65536, RACK = 512, SITE = 4096, HOST = 32 };
    static char text[LARGE / RACK][PATH_BYTES];
    static const char *paths[LARGE];
    static int hosts[LARGE], degree[LARGE];
    static uint8_t cut[LARGE];
    gci_topo t;
    gci_graph g;
    int largest = 0;
    (void)state;
    for (int x = 0; x < LARGE; x++) {
        snprintf(text[x / RACK], PATH_BYTES, "s%d/r%d", x / SITE, x / RACK);
        paths[x] = text[x / RACK];
        hosts[x] = x / HOST;
    }
    assert_int_equal(gci_topo_make(&env, LARGE, paths, hosts, &t), GC_OK);
    double begin = seconds();
    assert_int_equal(gci_backbone_choose(&env, &t, NULL, 0, 3, &g), GC_OK);
    double chosen = seconds();
    assert_int_equal(gci_graph_cuts(&env, &g, cut), 0);
    double end = seconds();
    for (int i = 0; i < g.edges; i++) {
        largest = ++degree[g.edge[i].a] > largest ? degree[g.edge[i].a] : largest;
        largest = ++degree[g.edge[i].b] > largest ? degree[g.edge[i].b] : largest;
    }
    print_message("%d ranks, %d links: chosen in %.3f s, searched in %.3f s; degree at most %d\n", LARGE, g.edges, chosen - begin,
                  end - chosen, largest);
    assert_true(end - begin < 20);      /* n * n would take an hour under a sanitizer */
    assert_true(g.edges > LARGE * 15 && g.edges < LARGE * 17);
    assert_true(largest < 96);
    gci_graph_free(&env, &g);
    gci_topo_free(&env, &t);
}

static void test_costs(void **state)
{
    const char *const paths[] = { "a/x", "a/x", "a/y", "b", "", "" };
    const int hosts[] = { 0, 0, 1, 2, 3, 4 };
    const uint32_t speed[] = { 10000, 10000, 100, 10, 0, UINT32_MAX };
    gci_topo t;
    (void)state;
    assert_int_equal(gci_topo_make(&env, 6, paths, hosts, &t), GC_OK);
    static const struct { int a, b; uint32_t latency, ps, ps_unknown; } right[] = {
        { 0, 1, 100, 400, 400 }, { 0, 2, 500, 80000, 8000 }, { 2, 3, 100000, 800000, 80000 }, { 0, 4, 100000, 80000, 80000 },
        { 4, 5, 500, 8000, 8000 } };
    for (size_t i = 0; i < GCI_COUNT(right); i++) {
        gci_edge e = { .a = right[i].a, .b = right[i].b };
        gci_backbone_cost(&t, speed, &e);
        assert_int_equal(e.cost[GCI_LATENCY], right[i].latency);
        assert_int_equal(e.cost[GCI_BANDWIDTH], right[i].ps);
        gci_backbone_cost(&t, NULL, &e);
        assert_int_equal(e.cost[GCI_BANDWIDTH], right[i].ps_unknown);
    }
    gci_topo_free(&env, &t);
    assert_int_equal(gci_topo_make(&env, 6, NULL, NULL, &t), GC_OK);
    gci_edge e = { .a = 1, .b = 2 };
    gci_backbone_cost(&t, (const uint32_t[]){ 0, UINT32_MAX, UINT32_MAX, 0, 0, 0 }, &e);
    assert_int_equal(e.cost[GCI_BANDWIDTH], 1);         /* never 0: that is a link that is down */
    gci_topo_free(&env, &t);
}

/* ---- the repair -------------------------------------------------------------------------------------------------- */

typedef struct reach {
    world w;
    bool  open[HOSTS_MAX][HOSTS_MAX];   /* which hosts can have a link, from whichever side */
    int   site[HOSTS_MAX];
    bool  classes;              /* hosts of a site are alike, but for those that reach everybody */
} reach;

/* Sites with addresses of a family and a NAT or not; hosts that stand out from theirs. */
static void reach_by_classes(reach *r, bool visible)
{
    int family[HOSTS_MAX], nat[HOSTS_MAX], families = below(3) ? 1 : 3, odd = below(4) ? -1 : below(r->w.hosts);
    for (int h = 0; h < r->w.hosts; h++) {
        int s = r->site[h];
        family[h] = families == 1 ? 3 : h > 0 && r->site[h - 1] == s ? family[h - 1] : 1 + below(3);
        nat[h] = h > 0 && r->site[h - 1] == s ? nat[h - 1] : below(3) > 0;
    }
    for (int k = below(3); k > 0; k--) {        /* dual-stack hosts, with an address of their own */
        int h = below(r->w.hosts);
        family[h] = 3;
        nat[h] = false;
    }
    for (int h = 0; h < r->w.hosts; h++)
        for (int g = 0; g < r->w.hosts; g++)
            r->open[h][g] = r->site[h] == r->site[g] || ((family[h] & family[g]) && !(nat[h] && nat[g]));
    if (odd >= 0) {             /* nobody reaches it but one */
        int only = below(r->w.hosts);
        for (int g = 0; g < r->w.hosts; g++)
            r->open[odd][g] = r->open[g][odd] = g == odd || g == only;
    }
    r->classes = odd < 0 && visible;
}

static void reach_by_chance(reach *r)
{
    int chance = 1 + below(30);
    for (int h = 0; h < r->w.hosts; h++)
        for (int g = 0; g <= h; g++)
            r->open[h][g] = r->open[g][h] = h == g || below(100) < chance;
    r->classes = false;
}

static void random_reach(reach *r, bool by_classes)
{
    int ranks = 1 + below(3), named = below(4);
    r->w.sites = 1 + below(6);
    r->w.hosts = 2 + below(HOSTS_MAX - 1);
    r->w.nodes = 0;
    for (int h = 0; h < r->w.hosts; h++) {
        r->site[h] = h * r->w.sites / r->w.hosts;
        for (int k = 1 + (ranks > 1 ? below(ranks) : 0); k > 0; k--) {
            snprintf(r->w.text[r->w.nodes], PATH_BYTES, "s%d", r->site[h]);
            r->w.text[r->w.nodes][0] = named ? 's' : 0;
            r->w.host[r->w.nodes++] = h;
        }
    }
    world_topo(&r->w);
    if (by_classes)
        reach_by_classes(r, named > 0);
    else
        reach_by_chance(r);
}

/* All links that could be had. */
static void all_links(const reach *r, gci_graph *g)
{
    int n = r->w.nodes;
    *g = (gci_graph){ .nodes = n, .edge = calloc((size_t)n * (size_t)n, sizeof *g->edge) };
    assert_non_null(g->edge);
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (r->open[r->w.host[a]][r->w.host[b]])
                g->edge[g->edges++] = (gci_edge){ a, b, { 1, 1 } };
}

typedef struct outcome { int rounds, tried, added, parts, cuts; } outcome;

/* The start of a job: links are wished for, some cannot be had, others are tried. */
static outcome play(const reach *r, uint64_t seed, int max)
{
    const gci_topo *t = &r->w.topo;
    gci_graph g;
    gci_edge more[PROPOSALS];
    int32_t part[NODES_MAX];
    uint8_t cut[NODES_MAX];
    outcome o = { 0 };
    assert_int_equal(gci_backbone_choose(&env, t, NULL, 0, seed, &g), GC_OK);
    for (int i = 0; i < g.edges; i++)
        if (!r->open[r->w.host[g.edge[i].a]][r->w.host[g.edge[i].b]])
            memset(g.edge[i].cost, 0, sizeof g.edge[i].cost);
    for (int n; (n = gci_backbone_repair(&env, t, &g, seed, max, more)) != 0; o.rounds++) {
        assert_in_range(n, 1, max);
        for (int i = 0; i < n; i++) {
            gci_edge e = more[i];
            assert_true(e.a >= 0 && e.a < e.b && e.b < t->nodes);
            assert_true(gci_graph_find(&g, e.a, e.b) < 0);
            gci_backbone_cost(t, NULL, &e);
            if (!r->open[r->w.host[e.a]][r->w.host[e.b]])
                memset(e.cost, 0, sizeof e.cost);
            o.tried++;
            o.added += e.cost[0] != 0;
            assert_int_equal(gci_graph_add(&env, &g, &e), GC_OK);
        }
    }
    o.parts = gci_graph_parts(&g, part);
    o.cuts = gci_graph_cuts(&env, &g, cut);
    gci_graph_free(&env, &g);
    return o;
}

static void test_repair(void **state)
{
    static reach r;
    int total[2] = { 0 }, most[2] = { 0 }, jobs[2] = { 0 }, tried[2] = { 0 }, added[2] = { 0 }, missed = 0;
    (void)state;
    for (int round = rounds(); round > 0; round--) {
        gci_graph whole;
        int32_t part[NODES_MAX];
        uint8_t cut[NODES_MAX];
        uint64_t seed = random_state;
        int by_classes = below(4) > 0;
        random_reach(&r, by_classes);
        all_links(&r, &whole);
        int parts = gci_graph_parts(&whole, part), cuts = gci_graph_cuts(&env, &whole, cut);
        outcome o = play(&r, random_state, PROPOSALS);
        if (o.parts != parts)       /* connected whenever that is possible */
            fail_msg("GCT_SEED=%llu GCT_ROUNDS=1: %d hosts, %d sites: %d parts, %d are possible, after %d rounds, %d tries",
                     (unsigned long long)seed, r.w.hosts, r.w.sites, o.parts, parts, o.rounds, o.tried);
        if (parts == 1 && r.classes && o.cuts != cuts)
            fail_msg("GCT_SEED=%llu: %d hosts, %d sites: %d nodes cut it, %d must, after %d rounds, %d tries",
                     (unsigned long long)seed, r.w.hosts, r.w.sites, o.cuts, cuts, o.rounds, o.tried);
        missed += parts == 1 && o.cuts != cuts;
        jobs[by_classes]++;
        total[by_classes] += o.rounds;
        tried[by_classes] += o.tried;
        added[by_classes] += o.added;
        most[by_classes] = o.rounds > most[by_classes] ? o.rounds : most[by_classes];
        free(whole.edge);
        gci_topo_free(&env, &r.w.topo);
    }
    for (int k = 0; k < 2; k++)
        if (jobs[k])
            print_message("%s: %d worlds, %.2f rounds, at most %d; %.1f tries, %.1f links\n", k ? "classes" : "chance", jobs[k],
                          1.0 * total[k] / jobs[k], most[k], 1.0 * tried[k] / jobs[k], 1.0 * added[k] / jobs[k]);
    print_message("cut nodes left that need not be, without classes: %d worlds\n", missed);
    assert_int_equal(env.memory, 0);
}

/* The three worlds of the design, with what is to come out. */
static void test_known_worlds(void **state)
{
    static reach r;
    (void)state;
    enum { HOSTS = 24 };
    for (int kind = 0; kind < 3; kind++) {
        r.w.nodes = r.w.hosts = HOSTS;
        for (int h = 0; h < HOSTS; h++) {
            r.site[h] = h / 8;
            snprintf(r.w.text[h], PATH_BYTES, "site%d", r.site[h]);
            r.w.host[h] = h;
        }
        for (int h = 0; h < HOSTS; h++)
            for (int g = 0; g < HOSTS; g++) {
                bool same = r.site[h] == r.site[g];
                if (kind == 0)          /* two sites behind NATs, a public one */
                    r.open[h][g] = same || r.site[h] == 2 || r.site[g] == 2;
                else if (kind == 1)     /* IPv4 only, IPv6 only; host 17 has both, the rest of the third site IPv4 */
                    r.open[h][g] = same || (r.site[h] != 1 && r.site[g] != 1) || h == 17 || g == 17;
                else                    /* 1,000 little NATs, in small: every host for itself, but for host 5 */
                    r.open[h][g] = h == g || h == 5 || g == 5;
            }
        world_topo(&r.w);
        outcome o = play(&r, 11, PROPOSALS);
        print_message("world %d: %d rounds, %d tries, %d links, %d cut nodes\n", kind, o.rounds, o.tried, o.added, o.cuts);
        assert_int_equal(o.parts, 1);
        assert_int_equal(o.cuts, kind == 0 ? 0 : 1);
        assert_true(o.rounds <= (kind == 0 ? 1 : 4));
        assert_true(o.tried <= (kind == 1 ? 60 : 120));     /* where it cannot be helped it gives up before all pairs are tried */
        gci_topo_free(&env, &r.w.topo);
    }
}

/* Too many hosts for all pairs to be looked at: 1,500 behind NATs of their own, two public ones, which everybody must find. */
static void test_many_hosts(void **state)
{
    enum { MANY = 1500, PUBLIC_A = 700, PUBLIC_B = 1100, AT_ONCE = 8192 };
    static gci_edge more[AT_ONCE];
    static int32_t part[MANY];
    static uint8_t cut[MANY];
    gci_topo t;
    gci_graph g;
    int round = 0, tried = 0, n;
    (void)state;
    assert_int_equal(gci_topo_make(&env, MANY, NULL, NULL, &t), GC_OK);
    assert_int_equal(gci_backbone_choose(&env, &t, NULL, 0, 5, &g), GC_OK);
    double begin = seconds();
    do {
        for (int i = 0; i < g.edges; i++) {
            int a = g.edge[i].a, b = g.edge[i].b;
            if (a != PUBLIC_A && a != PUBLIC_B && b != PUBLIC_A && b != PUBLIC_B)
                memset(g.edge[i].cost, 0, sizeof g.edge[i].cost);
        }
        n = gci_backbone_repair(&env, &t, &g, 9, AT_ONCE, more);
        for (int i = 0; i < n; i++) {
            gci_backbone_cost(&t, NULL, &more[i]);
            assert_int_equal(gci_graph_add(&env, &g, &more[i]), GC_OK);
        }
        tried += n;
    } while (n > 0 && ++round < 30);
    int parts = gci_graph_parts(&g, part), cuts = gci_graph_cuts(&env, &g, cut);
    print_message("%d hosts: %d rounds, %d tries, %d parts, %d cut nodes, %.2f s\n", MANY, round, tried, parts, cuts,
                  seconds() - begin);
    assert_int_equal(parts, 1);
    assert_true(round <= 10 && tried < 20 * MANY);
    assert_true(seconds() - begin < 60);
    assert_int_equal(cuts, 0);
    gci_graph_free(&env, &g);
    gci_topo_free(&env, &t);
}

/* Where nothing helps it ends, and soon enough; where all is well it proposes nothing. */
static void test_repair_ends(void **state)
{
    static reach r;
    gci_edge more[PROPOSALS];
    gci_graph g;
    (void)state;
    memset(&r, 0, sizeof r);
    r.w.nodes = r.w.hosts = HOSTS_MAX;
    for (int h = 0; h < HOSTS_MAX; h++) {
        r.w.host[h] = h;
        r.open[h][h] = true;
    }
    world_topo(&r.w);
    outcome o = play(&r, 1, PROPOSALS);
    assert_int_equal(o.parts, HOSTS_MAX);
    assert_int_equal(o.added, 0);
    assert_true(o.tried < HOSTS_MAX * (HOSTS_MAX - 1) / 2);
    o = play(&r, 1, 1);
    assert_int_equal(o.parts, HOSTS_MAX);
    assert_int_equal(gci_backbone_choose(&env, &r.w.topo, NULL, 0, 1, &g), GC_OK);
    assert_int_equal(gci_backbone_repair(&env, &r.w.topo, &g, 1, PROPOSALS, more), 0);
    assert_int_equal(gci_backbone_repair(&env, &r.w.topo, &g, 1, 0, more), 0);
    gci_graph_free(&env, &g);
    gci_topo_free(&env, &r.w.topo);
}

/* A ring of which two links are down: two parts; the repair asks for one link to join them, no more. */
static void test_sparing(void **state)
{
    enum { RING = 20 };
    gci_topo t;
    gci_graph g = { .nodes = RING };
    gci_edge more[PROPOSALS];
    (void)state;
    assert_int_equal(gci_topo_make(&env, RING, NULL, NULL, &t), GC_OK);
    for (int i = 0; i < RING; i++) {
        uint32_t cost = i == 3 || i == 12 ? 0 : 5;
        assert_int_equal(gci_graph_add(&env, &g, &(gci_edge){ i, (i + 1) % RING, { cost, cost } }), GC_OK);
    }
    assert_int_equal(gci_backbone_repair(&env, &t, &g, 1, PROPOSALS, more), 1);
    gci_backbone_cost(&t, NULL, &more[0]);
    assert_int_equal(gci_graph_add(&env, &g, &more[0]), GC_OK);
    /* Now a tree: at most four ends, so two links, or three if one of them meets an inner node. */
    int n = gci_backbone_repair(&env, &t, &g, 1, PROPOSALS, more);
    assert_in_range(n, 1, 3);
    for (int i = 0; i < n; i++) {
        gci_backbone_cost(&t, NULL, &more[i]);
        assert_int_equal(gci_graph_add(&env, &g, &more[i]), GC_OK);
    }
    assert_int_equal(gci_backbone_repair(&env, &t, &g, 1, PROPOSALS, more), 0);
    uint8_t cut[RING];
    assert_int_equal(gci_graph_cuts(&env, &g, cut), 0);
    gci_graph_free(&env, &g);
    gci_topo_free(&env, &t);
}

/* Two rings that share a node: one link between them is what is missing, whatever the seed. */
static void test_eight(void **state)
{
    enum { RING = 7, ALL = 2 * RING - 1 };
    gci_topo t;
    (void)state;
    assert_int_equal(gci_topo_make(&env, ALL, NULL, NULL, &t), GC_OK);
    for (uint64_t seed = 0; seed < 200; seed++) {
        gci_graph g = { .nodes = ALL };
        gci_edge more[PROPOSALS];
        uint8_t cut[ALL];
        for (int i = 0; i < RING; i++) {
            int next = (i + 1) % RING, there = i ? i + RING - 1 : 0, there_next = next ? next + RING - 1 : 0;
            assert_int_equal(gci_graph_add(&env, &g, &(gci_edge){ i, next, { 1, 1 } }), GC_OK);
            assert_int_equal(gci_graph_add(&env, &g, &(gci_edge){ there, there_next, { 1, 1 } }), GC_OK);
        }
        assert_int_equal(gci_graph_cuts(&env, &g, cut), 1);
        assert_int_equal(cut[0], 1);
        assert_int_equal(gci_backbone_repair(&env, &t, &g, seed, PROPOSALS, more), 1);
        gci_backbone_cost(&t, NULL, &more[0]);
        assert_int_equal(gci_graph_add(&env, &g, &more[0]), GC_OK);
        assert_int_equal(gci_graph_cuts(&env, &g, cut), 0);
        assert_int_equal(gci_backbone_repair(&env, &t, &g, seed, PROPOSALS, more), 0);
        gci_graph_free(&env, &g);
    }
    gci_topo_free(&env, &t);
}

/* ---- memory ------------------------------------------------------------------------------------------------------ */

static int everything(gci_env *poor, const gci_topo *t)
{
    static const char text[] = "require a b via=ssh\nrequire c d via=ssh user=e\n";
    gci_graph g;
    gci_edge more[PROPOSALS];
    gci_require *required = NULL;
    uint8_t cut[NODES_MAX];
    char error[GCI_TEXT];
    int n, err = gci_backbone_choose(poor, t, NULL, 0, 1, &g);
    if (err < 0)
        assert_null(g.edge);
    for (int i = 0; i < g.edges; i++)
        memset(g.edge[i].cost, 0, g.edge[i].a % 3 ? sizeof g.edge[i].cost : 0);
    if (err == GC_OK && (err = gci_backbone_repair(poor, t, &g, 1, PROPOSALS, more)) > 0)
        err = gci_graph_add(poor, &g, &more[0]);
    if (err == GC_OK)
        err = gci_graph_cuts(poor, &g, cut) < 0 ? GC_ERR_NOMEM : GC_OK;
    if (err == GC_OK)
        err = gci_links_parse(poor, text, sizeof text - 1, &required, &n, error);
    gci_free(poor, required);
    gci_graph_free(poor, &g);
    return err;
}

static void test_no_memory(void **state)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    gci_topo t;
    int err, allowed = 0;
    (void)state;
    assert_int_equal(gci_topo_make(&env, 150, NULL, NULL, &t), GC_OK);
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    do {
        allocations_left = allowed++;
        err = everything(&poor, &t);
        assert_int_equal(poor.memory, 0);
    } while (err == GC_ERR_NOMEM && allowed < 100);
    assert_int_equal(err, GC_OK);
    assert_true(allowed > 10);
    gci_topo_free(&env, &t);
}

/* ---- the links file ---------------------------------------------------------------------------------------------- */

static void links_are_bytes(const char *text, size_t bytes, int count, const gci_require right[])
{
    char error[GCI_TEXT] = "none", *exact = malloc(bytes ? bytes : 1);  /* no byte behind it */
    gci_require *out;
    int n;
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    assert_int_equal(gci_links_parse(&env, exact, bytes, &out, &n, error), GC_OK);
    free(exact);
    assert_string_equal(error, "");
    assert_int_equal(n, count);
    for (int i = 0; i < n; i++) {
        assert_string_equal(out[i].from, right[i].from);
        assert_string_equal(out[i].to, right[i].to);
        assert_string_equal(out[i].user, right[i].user);
    }
    gci_free(&env, out);
}

static void links_are(const char *text, int count, const gci_require right[])
{
    links_are_bytes(text, strlen(text), count, right);
}

static void refused_bytes(const char *text, size_t bytes, const char *reason)
{
    char error[GCI_TEXT] = "none", *exact = malloc(bytes ? bytes : 1);
    gci_require *out = (gci_require *)(void *)error;
    int n = 7;
    assert_non_null(exact);
    memcpy(exact, text, bytes);
    assert_int_equal(gci_links_parse(&env, exact, bytes, &out, &n, error), GC_ERR_CONFIG);
    free(exact);
    assert_string_equal(error, reason);
    assert_null(out);
    assert_int_equal(n, 0);
    assert_int_equal(env.memory, 0);
}

static void refused(const char *text, const char *reason)
{
    refused_bytes(text, strlen(text), reason);
}

static void test_links(void **state)
{
    (void)state;
    links_are("", 0, NULL);
    links_are("\n\r\n  # require a b\n\t\n#", 0, NULL);
    links_are("require head* node-? via=ssh user=joe", 1, (const gci_require[]){ { "head*", "node-?", "joe" } });
    links_are("require a b via=ssh\r\n \trequire  *  10.0.0.1\tuser=x.y_z-1+a@b via=ssh# words\n"
              "require delft/* [::1] via=ssh user=", 3,
              (const gci_require[]){ { "a", "b", "" }, { "*", "10.0.0.1", "x.y_z-1+a@b" }, { "delft/*", "[::1]", "" } });
    links_are("require \xc3\xb6 = via=ssh", 1, (const gci_require[]){ { "\xc3\xb6", "=", "" } });
}

static void test_links_refused(void **state)
{
    (void)state;
    refused("requires a b via=ssh", "links file, line 1: unknown word 'requires'");
    refused("\n\nrequire a b via=ssh foo=bar", "links file, line 3: unknown key 'foo='");
    refused("require a b via=ssh\nrequire", "links file, line 2: no source pattern");
    refused("require a b c via=ssh", "links file, line 1: unknown word 'c'");
    refused("require a b via=ssh\rx", "links file, line 1: via= can be ssh only, not 'ssh?x'");
    refused("require a b via=tcp", "links file, line 1: via= can be ssh only, not 'tcp'");
    refused("require a b via=", "links file, line 1: via= can be ssh only, not ''");
    refused("require a b via=ssh via=ssh", "links file, line 1: via= stands twice");
    refused("require a b via=ssh user=a user=b", "links file, line 1: user= stands twice");
    refused("require a b user=a", "links file, line 1: via=ssh is missing");
    refused("require a b#via=ssh", "links file, line 1: via=ssh is missing");
    refused("require a", "links file, line 1: no destination pattern");
    refused("require", "links file, line 1: no source pattern");
    refused("require -oProxyCommand b via=ssh", "links file, line 1: a source pattern cannot begin with '-': '-oProxyCommand'");
    refused("require a -b via=ssh", "links file, line 1: a destination pattern cannot begin with '-': '-b'");
    refused("require a b via=ssh user=-l", "links file, line 1: a user cannot begin with '-': '-l'");
    refused("require a b via=ssh user=$(id)", "links file, line 1: not a user: '$(id)'");
    refused("require a b via=ssh user=a;b", "links file, line 1: not a user: 'a;b'");
    refused("require a\x01z b via=ssh", "links file, line 1: not a source pattern: 'a?z'");
    refused_bytes("require a\0b c via=ssh", 21, "links file, line 1: a NUL byte: not a text");
    refused_bytes("#\n# \0\n", 6, "links file, line 2: a NUL byte: not a text");
    refused("require xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\x7f b via=ssh",
            "links file, line 1: not a source pattern: 'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'");
}

static void test_links_lengths(void **state)
{
    enum { LINES = 4096 };
    char text[400], error[GCI_TEXT];
    gci_require *out, q;
    int n;
    (void)state;
    for (int extra = 0; extra < 2; extra++) {
        size_t pattern = sizeof q.from - 1 + (size_t)extra, user = sizeof q.user - 1 + (size_t)extra;
        snprintf(text, sizeof text, "require a %0*d via=ssh", (int)pattern, 0);
        assert_int_equal(gci_links_parse(&env, text, strlen(text), &out, &n, error), extra ? GC_ERR_CONFIG : GC_OK);
        if (extra)
            assert_non_null(strstr(error, "a destination pattern is at most 127 bytes long: '0000"));
        else
            assert_int_equal(strlen(out->to), pattern);
        gci_free(&env, out);
        snprintf(text, sizeof text, "require a b via=ssh user=%0*d", (int)user, 0);
        assert_int_equal(gci_links_parse(&env, text, strlen(text), &out, &n, error), extra ? GC_ERR_CONFIG : GC_OK);
        if (extra)
            assert_non_null(strstr(error, "a user is at most 63 bytes long: '0000"));
        else
            assert_int_equal(strlen(out->user), user);
        gci_free(&env, out);
    }
    static const char line[] = "require a b via=ssh\n";
    static char many[(LINES + 1) * sizeof line];
    for (int i = 0; i <= LINES; i++)
        memcpy(many + (size_t)i * (sizeof line - 1), line, sizeof line);
    assert_int_equal(gci_links_parse(&env, many, LINES * (sizeof line - 1), &out, &n, error), GC_OK);
    assert_int_equal(n, LINES);
    gci_free(&env, out);
    refused(many, "links file, line 4097: more than 4096 links are required");
}

static bool slow_fits(const char *pattern, const char *text)
{
    if (*pattern == '*')
        return slow_fits(pattern + 1, text) || (*text && slow_fits(pattern, text + 1));
    if (!*text || !*pattern)
        return !*text && !*pattern;
    return (*pattern == '?' || *pattern == *text) && slow_fits(pattern + 1, text + 1);
}

static void test_patterns(void **state)
{
    (void)state;
    for (int round = 40 * rounds(); round > 0; round--) {
        char pattern[8] = "", text[10] = "";
        for (int i = below(8); i > 0; i--)
            pattern[i - 1] = "ab*?"[below(4)];
        for (int i = below(10); i > 0; i--)
            text[i - 1] = "ab"[below(2)];
        if (gci_pattern_fits(pattern, text) != slow_fits(pattern, text))
            fail_msg("'%s' and '%s'", pattern, text);
    }
    /* As a naive matcher does it, this takes longer than anybody waits. */
    enum { LONG = 120 };
    char pattern[LONG + 2], text[LONG + 1];
    for (int i = 0; i < LONG; i++) {
        pattern[i] = i % 2 ? 'a' : '*';
        text[i] = 'a';
    }
    pattern[LONG] = 'b';
    pattern[LONG + 1] = text[LONG] = 0;
    assert_false(gci_pattern_fits(pattern, text));
    assert_true(gci_pattern_fits("10.0.*.?", "10.0.17.4"));
    assert_false(gci_pattern_fits("Node", "node"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_graphs),    cmocka_unit_test(test_chain),        cmocka_unit_test(test_few),
        cmocka_unit_test(test_choice),    cmocka_unit_test(test_grid),         cmocka_unit_test(test_density),
        cmocka_unit_test(test_fixed),
        cmocka_unit_test(test_large),     cmocka_unit_test(test_costs),        cmocka_unit_test(test_known_worlds),
        cmocka_unit_test(test_sparing),   cmocka_unit_test(test_eight),        cmocka_unit_test(test_repair_ends),
        cmocka_unit_test(test_repair),
        cmocka_unit_test(test_many_hosts), cmocka_unit_test(test_no_memory),   cmocka_unit_test(test_links),
        cmocka_unit_test(test_links_refused), cmocka_unit_test(test_links_lengths), cmocka_unit_test(test_patterns),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("backbone", tests, NULL, NULL);
}
