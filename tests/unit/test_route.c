/* test_route.c: numberings and routing tables of random networks are proven by the checker.
 * SPDX-License-Identifier: MIT
 *
 * Each round is drawn from a seed (GCT_SEED to have one again, GCT_ROUNDS for how many).
 */
#include "route_net.h"

enum { NODES_MAX = 600, SMALL_MAX = 24 };

static bool holds(const gci_graph *g, const gci_numbering *nb)
{
    int32_t *scratch = net_zeroed(3 * (size_t)g->nodes, sizeof *scratch);
    bool answer = gci_numbering_holds(g, nb, scratch);
    free(scratch);
    return answer;
}

/* The paths of one node, told without the tables of the others, are those that packets take by these tables. */
static void compare_paths(const network *w, const epoch *e, int self)
{
    gci_paths *paths;
    int32_t *path = net_zeroed((size_t)w->graph.nodes, sizeof *path);
    assert_int_equal(gci_paths_make(&net_env, &w->graph, &w->topo, &e->numbering, self, &paths), GC_OK);
    for (int metric = 0; metric < GCI_METRICS; metric++)
        for (int dest = 0; dest < w->graph.nodes; dest++) {
            int hops = gci_paths_walk(paths, (enum gci_metric)metric, dest, path), at = self, came = -1;
            for (int i = 0; at != dest; i++) {
                int next = gci_route_next(&e->routes[at], (enum gci_metric)metric, came, dest);
                int to = next < 0 ? -1 : e->routes[at].neighbour[next];
                if (i == hops && next < 0)
                    break;
                if (i >= hops || next < 0 || path[i] != to)
                    WRONG("%s: from %d to %d, metric %d: hop %d of %d is %d, by the tables %d",
                          gci_routing_name(e->numbering.routing), self, dest, metric, i, hops, i < hops ? path[i] : -1, to);
                came = index_of(&e->routes[to], at);
                at = to;
            }
            if (at == dest && hops > 0 && path[hops - 1] != dest)
                WRONG("from %d to %d: %d hops", self, dest, hops);
        }
    gci_paths_free(paths);
    free(path);
}

static void prove_network(const network *w)
{
    int step = w->graph.nodes > SMALL_MAX ? w->graph.nodes / 3 : 1;
    for (int routing = 0; routing < GCI_ROUTINGS; routing++) {
        epoch e;
        epoch_make(w, (enum gci_routing)routing, &e);
        prove(w, &e.numbering, e.routes, promises((enum gci_routing)routing));
        if (routing != GCI_UNRESTRICTED)
            prove_all_turns(w, &e);
        assert_true(holds(&w->graph, &e.numbering));
        for (int self = 0; self < w->graph.nodes; self += step)
            compare_paths(w, &e, self);
        epoch_free(w, &e);
    }
}

static void small_network(void)
{
    network w;
    random_network(&w, 2 + random_below(SMALL_MAX - 1), (enum shape)random_below(SHAPES));
    prove_network(&w);
    network_free(&w);
}

static void large_network(void)
{
    network w;
    int n = chance(0.2) ? NODES_MAX : 50 + random_below(NODES_MAX - 50);
    enum shape shape = (enum shape)random_below(SHAPES);
    random_network(&w, shape == DENSE ? 50 + n / 10 : n, shape);
    prove_network(&w);
    network_free(&w);
}

static void test_small_networks(void **state)
{
    (void)state;
    rounds(1, 6000, small_network);
}

static void test_large_networks(void **state)
{
    (void)state;
    rounds(100001, 30, large_network);
}

/* ---- what a numbering promises ------------------------------------------------------------------------------------ */

/* Nodes of one cluster that hold together inside it, by plain flooding. */
static int flood(const network *w, int cluster, int from, uint8_t *in)
{
    int *queue = net_zeroed((size_t)w->graph.nodes, sizeof *queue), end = 0;
    memset(in, 0, (size_t)w->graph.nodes);
    in[from] = 1;
    queue[end++] = from;
    for (int head = 0; head < end; head++)
        for (int i = 0; i < w->graph.edges; i++) {
            const gci_edge *e = &w->graph.edge[i];
            int other = e->a == queue[head] ? e->b : e->b == queue[head] ? e->a : -1;
            if (other >= 0 && e->cost[0] && e->cost[1] && !in[other] && gci_topo_inside(&w->topo, cluster, other)) {
                in[other] = 1;
                queue[end++] = other;
            }
        }
    free(queue);
    return end;
}

/* The nodes that `in` marks have numbers without a gap, and one alone lacks a link up among them. */
static void check_block(const network *w, const int32_t *number, const uint8_t *in, int count, int cluster)
{
    int low = INT32_MAX, high = -1, ends = 0;
    for (int v = 0; v < w->graph.nodes; v++) {
        if (!in[v])
            continue;
        bool up = false;
        for (int i = 0; i < w->graph.edges && !up; i++) {
            const gci_edge *e = &w->graph.edge[i];
            int other = e->a == v ? e->b : e->b == v ? e->a : -1;
            up = other >= 0 && e->cost[0] && e->cost[1] && in[other] && number[other] < number[v];
        }
        ends += !up;
        low = number[v] < low ? number[v] : low;
        high = number[v] > high ? number[v] : high;
    }
    if (ends != 1 || high - low != count - 1)
        WRONG("cluster %d: %d nodes, numbers %d to %d, %d of them without a link up", cluster, count, low, high, ends);
}

static void blocks(void)
{
    network w;
    gci_numbering nb;
    random_network(&w, 2 + random_below(2 * SMALL_MAX), (enum shape)random_below(SHAPES));
    uint8_t *in = net_zeroed((size_t)w.graph.nodes, 1);
    assert_int_equal(gci_number(&net_env, &w.graph, &w.topo, GCI_UPDOWN_DFS, &nb), GC_OK);
    for (int c = 0; c < w.topo.clusters; c++)
        for (int i = 0; i < w.topo.size[c]; i++)
            check_block(&w, nb.number, in, flood(&w, c, w.topo.order[w.topo.first[c] + i], in), c);
    gci_numbering_free(&net_env, &nb);
    free(in);
    network_free(&w);
}

static void test_clusters_are_blocks(void **state)
{
    (void)state;
    rounds(200001, 300, blocks);
}

/* ---- losses and epochs -------------------------------------------------------------------------------------------- */

enum { LOSSES = 8, VIEWS = 6 };

/* All that is known in one numbering, at one time or another: any mixture of the tables must be free of cycles. */
typedef struct story {
    network     now;
    gci_graph   base;               /* as the present numbering found it */
    epoch       epoch;
    route_waits *waits;
    gci_routes  *view[VIEWS];       /* tables of all nodes, each for some of the losses since */
    int         views;
} story;

static void forget_views(story *s)
{
    for (int i = 0; i < s->views; i++) {
        routes_free_all(s->view[i], s->base.nodes);
        free(s->view[i]);
    }
    s->views = 0;
}

static void new_numbering(story *s, enum gci_routing routing)
{
    gci_graph_free(&net_env, &s->base);
    route_waits_free(s->waits);
    assert_int_equal(gci_graph_copy(&net_env, &s->now.graph, &s->base), GC_OK);
    epoch_make(&s->now, routing, &s->epoch);
    s->waits = route_waits_new(&s->base);
}

/* Tables of all nodes, of ranks that have heard of a part of what was lost since the numbering. */
static void add_view(story *s)
{
    network seen = { .topo = s->now.topo };
    if (s->views == VIEWS)
        return;
    assert_int_equal(gci_graph_copy(&net_env, &s->base, &seen.graph), GC_OK);
    for (int i = 0; i < seen.graph.edges; i++)
        if (chance(0.5))
            seen.graph.edge[i] = s->now.graph.edge[i];
    gci_routes *view = s->view[s->views++] = net_zeroed((size_t)s->base.nodes, sizeof *view);
    routes_of_all(&seen, &s->epoch.numbering, view);
    for (int v = 0; v < s->base.nodes; v++)
        route_waits_of(s->waits, &s->epoch.numbering, &view[v]);
    gci_graph_free(&net_env, &seen.graph);
}

/* A packet that meets another view at each hop comes to an end: there, or where somebody knows no way. */
static void walk_through_views(const story *s, enum gci_metric metric, int from, int dest)
{
    int at = from, before = -1, most = 2 * s->base.nodes + s->base.edges;
    for (int hops = 0; at != dest; hops++) {
        const gci_routes *r = &s->view[random_below(s->views)][at];
        int came = before < 0 ? -1 : index_of(r, before);
        int next = came < 0 && before >= 0 ? -1 : gci_route_next(r, metric, came, dest);
        if (next < 0)
            return;
        if (hops > most)
            WRONG("from %d to %d: still on its way after %d hops", from, dest, hops);
        before = at;
        at = r->neighbour[next];
    }
}

/* After a loss: does the numbering hold, as the oracle says? Then the tables still deliver, else there is a new epoch. */
static bool after_loss(story *s)
{
    char why[ROUTE_TEXT];
    enum gci_routing routing = s->epoch.numbering.routing;
    bool all = route_exists_for_all(&(route_job){ &s->now.graph, &s->now.topo, &s->epoch.numbering, NULL });
    if (holds(&s->now.graph, &s->epoch.numbering) != all)
        WRONG("%s: %s, and it is said otherwise", gci_routing_name(routing), all ? "each pair has a path" : "a pair has no path");
    if (all) {
        routes_free_all(s->epoch.routes, s->base.nodes);
        routes_of_all(&s->now, &s->epoch.numbering, s->epoch.routes);
    }
    add_view(s);
    for (int v = 0; v < s->base.nodes && all; v++)
        route_waits_of(s->waits, &s->epoch.numbering, &s->epoch.routes[v]);
    if (routing != GCI_UNRESTRICTED && route_waits_cycle(s->waits, why) < 0)
        WRONG("%s, mixed knowledge: %s", gci_routing_name(routing), why);
    if (all) {
        prove(&s->now, &s->epoch.numbering, s->epoch.routes, promises(routing) & ~(unsigned)ROUTE_INSIDE);
        compare_paths(&s->now, &s->epoch, random_below(s->base.nodes));
    }
    return all;
}

/* Three nodes in a row, the first link in a higher forest than the second: no way from the first to the third. Wherever
 * they stand among the others, that is seen; and that the other way round, or in two rows, nothing is missing. */
static void test_forests_hold_for_each(void **state)
{
    enum { MANY = 100 };
    (void)state;
    for (int v = 0; v + 3 < MANY; v++) {
        gci_edge edge[] = { { v, v + 1, { 1, 1 } }, { v + 1, v + 2, { 1, 1 } } };
        int32_t upwards[] = { 1, 0 }, downwards[] = { 0, 1 }, same[] = { 1, 1 };
        gci_graph g = { .nodes = MANY, .edges = 2, .edge = edge };
        gci_numbering nb = { .routing = GCI_ORDERED, .phases = 2, .entries = 2, .number = upwards };
        if (holds(&g, &nb))
            fail_msg("nodes %d to %d: a pair without a path is not seen", v, v + 2);
        nb.number = downwards;
        assert_false(holds(&g, &nb));       /* then it is the third that has no way to the first */
        nb.number = same;
        assert_true(holds(&g, &nb));
        edge[1] = (gci_edge){ v + 2, v + 3, { 1, 1 } };
        nb.number = upwards;
        assert_true(holds(&g, &nb));
    }
}

static void losses_under(enum gci_routing routing)
{
    story s = { .views = 0 };
    int lost = chance(0.2) ? 32 : 0;        /* so many are gone from the start, and what is left has high ranks */
    random_network(&s.now, lost + 4 + random_below(SMALL_MAX), (enum shape)random_below(SHAPES));
    while (lost-- > 0)
        cut_node(&s.now.graph, lost);
    new_numbering(&s, routing);
    for (int loss = 0; loss < LOSSES && s.now.graph.edges > 0; loss++) {
        if (chance(0.5))
            cut_node(&s.now.graph, random_below(s.base.nodes));
        else
            cut_link(&s.now.graph, random_below(s.base.edges));
        if (after_loss(&s))
            continue;
        for (int i = 0; i < 200; i++)
            if (routing != GCI_UNRESTRICTED)
                walk_through_views(&s, (enum gci_metric)random_below(2), random_below(s.base.nodes), random_below(s.base.nodes));
        forget_views(&s);
        epoch_free(&s.now, &s.epoch);
        new_numbering(&s, routing);
    }
    forget_views(&s);
    epoch_free(&s.now, &s.epoch);
    route_waits_free(s.waits);
    gci_graph_free(&net_env, &s.base);
    network_free(&s.now);
}

static void losses(void)
{
    for (int routing = 0; routing < GCI_ROUTINGS; routing++)
        losses_under((enum gci_routing)routing);
}

static void test_losses(void **state)
{
    (void)state;
    rounds(300001, 500, losses);
}

/* Why relays discard packets of older epochs: those of two numberings together can wait in a circle. */
static void test_two_numberings_do_not_mix(void **state)
{
    int found = 0;
    (void)state;
    for (uint64_t seed = 1; seed < 200; seed++) {
        char why[ROUTE_TEXT];
        network w;
        epoch before, after;
        net_draw(seed);
        random_topo(&w, 12, 1, 2);
        random_links(&w, SPARSE, COST_EQUAL);
        epoch_make(&w, GCI_UPDOWN_DFS, &before);
        cut_node(&w.graph, 0);
        epoch_make(&w, GCI_UPDOWN_DFS, &after);
        route_waits *waits = route_waits_new(&w.graph);
        for (int v = 0; v < w.graph.nodes; v++)
            route_waits_of(waits, &after.numbering, &after.routes[v]);
        assert_int_equal(route_waits_cycle(waits, why), 0);
        for (int v = 0; v < w.graph.nodes; v++)
            route_waits_of(waits, &before.numbering, &before.routes[v]);
        found += route_waits_cycle(waits, why) < 0;
        route_waits_free(waits);
        epoch_free(&w, &after);
        epoch_free(&w, &before);
        network_free(&w);
    }
    assert_true(found > 0);
}

/* ---- small matters ------------------------------------------------------------------------------------------------ */

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i < GCI_ROUTINGS; i++)
        assert_int_equal(gci_routing_parse(gci_routing_name((enum gci_routing)i)), i);
    assert_int_equal(gci_routing_parse("updown-dfs"), GCI_UPDOWN_DFS);
    assert_int_equal(gci_routing_parse("updown-bfs"), GCI_UPDOWN_BFS);
    assert_int_equal(gci_routing_parse("ordered"), GCI_ORDERED);
    assert_int_equal(gci_routing_parse("unrestricted"), GCI_UNRESTRICTED);
    assert_int_equal(gci_routing_parse(""), GC_ERR_CONFIG);
    assert_int_equal(gci_routing_parse("updown"), GC_ERR_CONFIG);
    assert_int_equal(gci_routing_parse("ordered "), GC_ERR_CONFIG);
}

static void test_graph(void **state)
{
    network w;
    gci_graph copy, none = { .nodes = 3 };
    (void)state;
    net_draw(5);
    random_topo(&w, 40, 2, 3);
    random_links(&w, SPARSE, COST_ANY);
    assert_int_equal(gci_graph_copy(&net_env, &w.graph, &copy), GC_OK);
    assert_int_equal(copy.nodes, w.graph.nodes);
    assert_int_equal(copy.edges, w.graph.edges);
    assert_memory_equal(copy.edge, w.graph.edge, (size_t)copy.edges * sizeof *copy.edge);
    for (int a = 0, found = 0; a < 40; a++)
        for (int b = a; b < 40; b++) {
            int at = gci_graph_find(&copy, a, b);
            assert_int_equal(gci_graph_find(&copy, b, a), at);
            if (found < copy.edges && copy.edge[found].a == a && copy.edge[found].b == b)
                assert_int_equal(at, found++);
            else
                assert_int_equal(at, -1);
        }
    gci_graph_free(&net_env, &copy);
    network_free(&w);
    assert_int_equal(gci_graph_copy(&net_env, &none, &copy), GC_OK);
    assert_int_equal(copy.nodes, 3);
    assert_int_equal(gci_graph_find(&copy, 0, 1), -1);
    gci_graph_free(&net_env, &copy);
    assert_int_equal(net_env.memory, 0);
}

/* A tree of clusters with more levels than there are counters: paths inside the outer ones stay there all the same. */
static void test_deep_clusters(void **state)
{
    enum { DEEP = 30, NODES = 300 };
    const char *paths[NODES];
    int hosts[NODES];
    char text[NODES][2 * DEEP + 2];
    network w;
    epoch e;
    (void)state;
    net_draw(7);
    for (int v = 0; v < NODES; v++) {
        int used = 0;
        for (int i = 0; i <= v % DEEP; i++)
            used += snprintf(text[v] + used, sizeof text[v] - (size_t)used, "%s%c", i ? "/" : "", i == v % DEEP ? 'b' : 'a');
        paths[v] = text[v];
        hosts[v] = v;
    }
    assert_int_equal(gci_topo_make(&net_env, NODES, paths, hosts, &w.topo), GC_OK);
    random_links(&w, SPARSE, COST_ANY);
    for (int routing = 0; routing < GCI_ROUTINGS; routing++) {
        epoch_make(&w, (enum gci_routing)routing, &e);
        for (int v = 0; v < NODES; v++)
            for (int dest = 0; dest < NODES; dest++)
                assert_int_equal(gci_route_next(&e.routes[v], GCI_LATENCY, -1, dest) < 0, v == dest);
        if (routing != GCI_UNRESTRICTED)
            prove_all_turns(&w, &e);
        epoch_free(&w, &e);
    }
    network_free(&w);
    assert_int_equal(net_env.memory, 0);
}

static void test_smallest(void **state)
{
    (void)state;
    for (int n = 1; n < 3; n++)
        for (int linked = 0; linked < n; linked++) {
            network w = { .graph = { .nodes = n } };
            const char *paths[2] = { "", "" };
            int hosts[2] = { 0, 1 };
            assert_int_equal(gci_topo_make(&net_env, n, paths, hosts, &w.topo), GC_OK);
            random_links(&w, linked ? TREE : SHAPES, COST_EQUAL);
            prove_network(&w);
            network_free(&w);
        }
    assert_int_equal(net_env.memory, 0);
}

/* More neighbours than an entry of the tables can name. */
static void test_too_many_neighbours(void **state)
{
    (void)state;
    for (int nodes = GCI_NO_ROUTE + 1; nodes <= GCI_NO_ROUTE + 2; nodes++) {
        network w = { .graph = { nodes, nodes - 1, gci_alloc(&net_env, ((size_t)nodes - 1) * sizeof *w.graph.edge) } };
        gci_numbering nb;
        gci_routes r;
        assert_non_null(w.graph.edge);
        for (int v = 1; v < nodes; v++)
            w.graph.edge[v - 1] = (gci_edge){ 0, v, { 1, 1 } };
        assert_int_equal(gci_topo_make(&net_env, nodes, NULL, NULL, &w.topo), GC_OK);
        assert_int_equal(gci_number(&net_env, &w.graph, &w.topo, GCI_UPDOWN_BFS, &nb), GC_OK);
        int err = gci_routes_make(&net_env, &w.graph, &w.topo, &nb, 0, &r);
        assert_int_equal(err, nodes - 1 <= GCI_NO_ROUTE ? GC_OK : GC_ERR_UNSUPPORTED);
        for (int v = 1; v < nodes && !err; v++)
            assert_int_equal(gci_route_next(&r, GCI_LATENCY, -1, v), v - 1);
        gci_routes_free(&net_env, &r);
        assert_int_equal(gci_routes_make(&net_env, &w.graph, &w.topo, &nb, nodes - 1, &r), GC_OK);
        assert_int_equal(gci_route_next(&r, GCI_BANDWIDTH, -1, nodes - 2), 0);
        gci_routes_free(&net_env, &r);
        gci_numbering_free(&net_env, &nb);
        network_free(&w);
    }
    assert_int_equal(net_env.memory, 0);
}

/* Each allocation fails in turn: an error, and nothing is left behind. */
typedef struct hook { int calls, fail_at; } hook;

static void *hooked(void *user, void *old, size_t bytes)
{
    hook *h = user;
    if (bytes == 0) {
        free(old);
        return NULL;
    }
    return ++h->calls == h->fail_at ? NULL : realloc(old, bytes);
}

static int all_of(gci_env *own, const network *w, enum gci_routing routing)
{
    gci_numbering nb;
    gci_routes r;
    gci_paths *paths;
    gci_graph copy;
    int err = gci_graph_copy(own, &w->graph, &copy);
    if (err < 0)
        return err;
    err = gci_number(own, &copy, &w->topo, routing, &nb);
    if (!err) {
        err = gci_routes_make(own, &copy, &w->topo, &nb, 1, &r);
        if (!err) {
            gci_routes_free(own, &r);
            err = gci_paths_make(own, &copy, &w->topo, &nb, 1, &paths);
        }
        if (!err)
            gci_paths_free(paths);
        gci_numbering_free(own, &nb);
    }
    gci_graph_free(own, &copy);
    return err;
}

static void test_out_of_memory(void **state)
{
    network w;
    (void)state;
    net_draw(3);
    random_topo(&w, 20, 2, 2);
    random_links(&w, SPARSE, COST_ANY);
    for (int routing = 0; routing < GCI_ROUTINGS; routing++)
        for (int fail_at = 1, err = GC_ERR_NOMEM; err != GC_OK; fail_at++) {
            gci_env own;
            hook h = { .fail_at = fail_at };
            gc_options options = GRIDCOMM_OPTIONS_INIT;
            options.alloc = hooked;
            options.alloc_user = &h;
            gci_env_init(&own, gci_sys_real(), &options);
            err = all_of(&own, &w, (enum gci_routing)routing);
            assert_int_equal(err, h.calls < fail_at ? GC_OK : GC_ERR_NOMEM);
            assert_int_equal(own.memory, 0);
        }
    network_free(&w);
}

/* ---- four nodes in a ring ----------------------------------------------------------------------------------------- */

static void expect_circle(const network *w, const epoch *e, const char *circle)
{
    char why[ROUTE_TEXT];
    assert_int_equal(route_check(&(route_job){ &w->graph, &w->topo, &e->numbering, e->routes }, ROUTE_ALL, NULL, why), -1);
    assert_string_equal(why, circle);
}

/* Hironaka 2009, Fig. 4.3: A > B > C, B > C > D, C > D > A, D > A > B. */
static void test_ring_of_four(void **state)
{
    network w;
    epoch e;
    (void)state;
    ring(&w, 4);
    epoch_make(&w, GCI_UNRESTRICTED, &e);
    for (int v = 0; v < 4; v++)         /* to the opposite one, all the same way round */
        for (int metric = 0; metric < GCI_METRICS; metric++)
            e.routes[v].next[metric * 4 + (v + 2) % 4] = (uint16_t)index_of(&e.routes[v], (v + 1) % 4);
    expect_circle(&w, &e, "links wait in a circle: 0>1 1>2 2>3 3>0");
    epoch_free(&w, &e);

    /* Where paths are symmetrical, it takes both metrics: each alone is free of cycles. */
    w.graph.edge[1].cost[GCI_LATENCY] = w.graph.edge[2].cost[GCI_BANDWIDTH] = 2;
    epoch_make(&w, GCI_UNRESTRICTED, &e);
    expect_circle(&w, &e, "links wait in a circle: 0>1 1>2 2>3 3>0");
    for (int metric = 0; metric < GCI_METRICS; metric++) {
        epoch_free(&w, &e);
        epoch_make(&w, GCI_UNRESTRICTED, &e);
        for (int v = 0; v < 4; v++)
            memcpy(e.routes[v].next + (1 - metric) * 4, e.routes[v].next + metric * 4, 4 * sizeof *e.routes[v].next);
        prove(&w, &e.numbering, e.routes, ROUTE_FREE);
    }
    epoch_free(&w, &e);
    prove_network(&w);
    network_free(&w);
}

/* Longer rings wait in a circle whatever the pick among equals. */
static void test_rings(void **state)
{
    (void)state;
    for (int n = 5; n <= 12; n++) {
        char why[ROUTE_TEXT];
        network w;
        epoch e;
        ring(&w, n);
        epoch_make(&w, GCI_UNRESTRICTED, &e);
        assert_int_equal(route_check(&(route_job){ &w.graph, &w.topo, &e.numbering, e.routes }, ROUTE_ALL, NULL, why), -1);
        assert_memory_equal(why, "links wait in a circle:", 23);
        epoch_free(&w, &e);
        prove_network(&w);
        network_free(&w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),
        cmocka_unit_test(test_graph),
        cmocka_unit_test(test_smallest),
        cmocka_unit_test(test_too_many_neighbours),
        cmocka_unit_test(test_forests_hold_for_each),
        cmocka_unit_test(test_ring_of_four),
        cmocka_unit_test(test_rings),
        cmocka_unit_test(test_clusters_are_blocks),
        cmocka_unit_test(test_small_networks),
        cmocka_unit_test(test_large_networks),
        cmocka_unit_test(test_losses),
        cmocka_unit_test(test_two_numberings_do_not_mix),
        cmocka_unit_test(test_deep_clusters),
        cmocka_unit_test(test_out_of_memory),
    };
    return cmocka_run_group_tests(tests, net_setup, NULL);
}
