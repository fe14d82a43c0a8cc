/* route_net.c: random networks to be routed, the tables of all their nodes, and how they are proven.
 * SPDX-License-Identifier: MIT
 */
#include "route_net.h"

enum { HOST_EVERY = 4 };        /* nodes to a host, about */

gci_env  net_env;
uint64_t net_seed;
static uint64_t random_state;

void net_wrong(const char *file, int line, const char *format, ...)
{
    char text[ROUTE_TEXT + 256];
    va_list args;
    va_start(args, format);
    (void)vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fail_msg("%s:%d, GCT_SEED=%llu: %s", file, line, (unsigned long long)net_seed, text);
}

int net_setup(void **state)
{
    (void)state;
    gci_env_init(&net_env, gci_sys_real(), NULL);
    return 0;
}

void net_draw(uint64_t seed)
{
    net_seed = random_state = seed;
}

static uint64_t random_next(void)
{
    uint64_t x = random_state += UINT64_C(0x9e3779b97f4a7c15);
    x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
    return x ^ x >> 31;
}

int random_below(int n)
{
    return (int)(random_next() % (uint64_t)n);
}

bool chance(double p)
{
    return (double)(random_next() >> 11) < p * 9007199254740992.0;
}

void *net_zeroed(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    assert_non_null(p);
    return p;
}

/* Runs body for seeds one after another: `count` of them, or as the environment says. */
void rounds(uint64_t first, int count, void (*body)(void))
{
    const char *given = getenv("GCT_SEED"), *more = getenv("GCT_ROUNDS");
    int asked = more ? atoi(more) : count;
    count = given ? 1 : asked < count ? asked : count;
    for (int i = 0; i < count; i++) {
        net_draw(given ? strtoull(given, NULL, 0) : first + (uint64_t)i);
        body();
        assert_int_equal(net_env.memory, 0);
    }
}

/* ---- networks ----------------------------------------------------------------------------------------------------- */

void network_free(network *w)
{
    gci_topo_free(&net_env, &w->topo);
    gci_graph_free(&net_env, &w->graph);
}

/* Paths of up to `depth` names, of `width` names each; hosts of some nodes each. */
void random_topo(network *w, int n, int depth, int width)
{
    char (*text)[64] = net_zeroed((size_t)n, sizeof *text);
    const char **paths = net_zeroed((size_t)n, sizeof *paths);
    int *hosts = net_zeroed((size_t)n, sizeof *hosts);
    for (int v = 0; v < n; v++) {
        int used = 0, names = depth > 0 ? depth - (random_below(5) == 0) : 0;
        for (int i = 0; i < names; i++)
            used += snprintf(text[v] + used, sizeof text[v] - (size_t)used, "%s%d", i ? "/" : "", random_below(width));
        paths[v] = text[v];
        hosts[v] = random_below(1 + n / HOST_EVERY);
    }
    assert_int_equal(gci_topo_make(&net_env, n, paths, hosts, &w->topo), GC_OK);
    free(text);
    free(paths);
    free(hosts);
}

static void random_cost(const gci_topo *topo, gci_edge *e, enum cost_kind kind)
{
    int depth = topo->depth[gci_topo_common(topo, e->a, e->b)];
    for (int metric = 0; metric < GCI_METRICS; metric++)
        switch (kind) {
        case COST_NEAR:
            e->cost[metric] = (uint32_t)(depth > 3 ? 1 : 100000 >> 4 * depth) + (uint32_t)random_below(3);
            break;
        case COST_ANY:
            e->cost[metric] = 1 + (uint32_t)random_below(random_below(2) ? 5 : 1 << 20);
            break;
        case COST_HUGE:
            e->cost[metric] = UINT32_MAX - (uint32_t)random_below(3);
            break;
        case COST_WIDE:         /* hardly any two are equal */
            e->cost[metric] = 1 + (uint32_t)random_below(1 << 30);
            break;
        case COST_EQUAL:
        case COST_KINDS:
            e->cost[metric] = 500;
        }
}

static double likely(const gci_topo *t, enum shape shape, int a, int b)
{
    int depth = t->depth[gci_topo_common(t, a, b)];
    switch (shape) {
    case SPARSE:          return 1.5 / t->nodes;
    case DENSE:           return 0.5;
    case CLUSTERED:
    case CLUSTERED_APART: return depth == 0 ? 1.0 / t->nodes : depth == 1 ? 3.0 / t->nodes : 0.7;
    case APART:           return 1.2 / t->nodes;
    case TREE:
    case SHAPES:          break;
    }
    return 0;
}

void random_links(network *w, enum shape shape, enum cost_kind cost)
{
    int n = w->topo.nodes;
    uint8_t *linked = net_zeroed((size_t)n * (size_t)n, 1);
    bool whole = shape != APART && shape != CLUSTERED_APART;
    for (int v = 1; v < n && whole; v++)
        linked[random_below(random_below(4) ? v : v < 3 ? v : 3) * n + v] = 1;     /* bushy and deep trees */
    w->graph = (gci_graph){ .nodes = n };
    for (int a = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            w->graph.edges += linked[a * n + b] |= chance(likely(&w->topo, shape, a, b));
    w->graph.edge = gci_alloc(&net_env, ((size_t)w->graph.edges + 1) * sizeof *w->graph.edge);
    assert_non_null(w->graph.edge);
    for (int a = 0, at = 0; a < n; a++)
        for (int b = a + 1; b < n; b++)
            if (linked[a * n + b]) {
                w->graph.edge[at] = (gci_edge){ .a = a, .b = b };
                random_cost(&w->topo, &w->graph.edge[at++], cost);
            }
    free(linked);
}

void cut_link(gci_graph *g, int edge)
{
    g->edge[edge].cost[random_below(2)] = 0;        /* any cost 0: down */
}

void cut_node(gci_graph *g, int node)
{
    for (int i = 0; i < g->edges; i++)
        if (g->edge[i].a == node || g->edge[i].b == node)
            cut_link(g, i);
}

void random_network(network *w, int n, enum shape shape)
{
    random_topo(w, n, random_below(4), 1 + random_below(n > 50 ? 12 : 3));
    random_links(w, shape, (enum cost_kind)random_below(COST_KINDS));
    for (int cut = chance(0.3) ? 1 + random_below(1 + n / 4) : 0; cut > 0; cut--) {
        if (chance(0.5))
            cut_node(&w->graph, random_below(n));
        else if (w->graph.edges > 0)
            cut_link(&w->graph, random_below(w->graph.edges));
    }
}

/* ---- epochs ------------------------------------------------------------------------------------------------------- */

void routes_of_all(const network *w, const gci_numbering *nb, gci_routes *routes)
{
    for (int v = 0; v < w->graph.nodes; v++)
        assert_int_equal(gci_routes_make(&net_env, &w->graph, &w->topo, nb, v, &routes[v]), GC_OK);
}

void routes_free_all(gci_routes *routes, int n)
{
    for (int v = 0; v < n; v++)
        gci_routes_free(&net_env, &routes[v]);
}

void epoch_make(const network *w, enum gci_routing routing, epoch *e)
{
    assert_int_equal(gci_number(&net_env, &w->graph, &w->topo, routing, &e->numbering), GC_OK);
    e->routes = net_zeroed((size_t)w->graph.nodes, sizeof *e->routes);
    routes_of_all(w, &e->numbering, e->routes);
}

void epoch_free(const network *w, epoch *e)
{
    routes_free_all(e->routes, w->graph.nodes);
    free(e->routes);
    gci_numbering_free(&net_env, &e->numbering);
}

unsigned promises(enum gci_routing routing)
{
    unsigned what = ROUTE_OPTIMAL;
    what |= routing == GCI_UNRESTRICTED ? 0 : ROUTE_FREE;
    return what | (routing == GCI_UPDOWN_BFS ? 0 : ROUTE_INSIDE);
}

void prove(const network *w, const gci_numbering *nb, const gci_routes *routes, unsigned what)
{
    char why[ROUTE_TEXT];
    if (route_check(&(route_job){ &w->graph, &w->topo, nb, routes }, what, NULL, why) < 0)
        WRONG("%s, %d nodes, %d links: %s", gci_routing_name(nb->routing), w->graph.nodes, w->graph.edges, why);
}

/* Beyond what packets really do: no turn that any table could ask for closes a cycle. */
void prove_all_turns(const network *w, const epoch *e)
{
    char why[ROUTE_TEXT];
    route_waits *waits = route_waits_new(&w->graph);
    for (int v = 0; v < w->graph.nodes; v++)
        route_waits_of(waits, &e->numbering, &e->routes[v]);
    if (route_waits_cycle(waits, why) < 0)
        WRONG("%s: %s", gci_routing_name(e->numbering.routing), why);
    route_waits_free(waits);
}

int index_of(const gci_routes *r, int node)
{
    for (int i = 0; i < r->degree; i++)
        if (r->neighbour[i] == node)
            return i;
    return -1;
}

/* A ring, each node a host of its own. */
void ring(network *w, int n)
{
    const char *paths[16] = { NULL };
    int hosts[16];
    for (int v = 0; v < n; v++)
        hosts[v] = v;
    assert_int_equal(gci_topo_make(&net_env, n, paths, hosts, &w->topo), GC_OK);
    w->graph = (gci_graph){ n, n, gci_alloc(&net_env, (size_t)n * sizeof *w->graph.edge) };
    assert_non_null(w->graph.edge);
    w->graph.edge[0] = (gci_edge){ 0, 1, { 1, 1 } };
    w->graph.edge[1] = (gci_edge){ 0, n - 1, { 1, 1 } };
    for (int v = 1; v < n - 1; v++)
        w->graph.edge[v + 1] = (gci_edge){ v, v + 1, { 1, 1 } };
}
