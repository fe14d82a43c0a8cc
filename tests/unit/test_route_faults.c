/* test_route_faults.c: the checker of routing tables finds what is wrong with them.
 * SPDX-License-Identifier: MIT
 */
#include "route_net.h"

typedef struct bed { network w; epoch e; } bed;

static uint16_t *next_of(const bed *b, int node, int metric, int phase, int dest)
{
    const gci_routes *r = &b->e.routes[node];
    return &r->next[(metric * r->phases + phase) * r->nodes + dest];
}

/* A state that packets really pass: (node, phase) on the way from source to dest, `hops` hops on. false: it is over before. */
typedef struct stop { int source, dest, metric, node, phase, came_from; } stop;

static bool walk(const bed *b, stop *s, int hops)
{
    s->node = s->source;
    s->phase = 0;
    s->came_from = -1;
    for (; hops > 0 && s->node != s->dest; hops--) {
        const gci_routes *r = &b->e.routes[s->node];
        uint16_t next = *next_of(b, s->node, s->metric, s->phase, s->dest);
        if (next == GCI_NO_ROUTE)
            return false;
        int to = r->neighbour[next];
        s->phase = b->e.routes[to].came[index_of(&b->e.routes[to], s->node)];
        s->came_from = s->node;
        s->node = to;
    }
    return s->node != s->dest;
}

/* The next stop at which something can be planted; s->node -1: begin. */
static bool next_stop(const bed *b, stop *s, int hops)
{
    int n = b->w.graph.nodes, at = s->node < 0 ? 0 : (s->metric * n + s->source) * n + s->dest + 1;
    for (; at < 2 * n * n; at++) {
        *s = (stop){ .dest = at % n, .source = at / n % n, .metric = at / n / n };
        if (s->source != s->dest && walk(b, s, hops))
            return true;
    }
    return false;
}

static stop stop_after(const bed *b, int hops)
{
    stop s = { .node = -1 };
    if (!next_stop(b, &s, hops))
        s.node = -1;
    return s;
}

static bool set_next(const bed *b, const stop *s, int to)
{
    *next_of(b, s->node, s->metric, s->phase, s->dest) = (uint16_t)index_of(&b->e.routes[s->node], to);
    return true;
}

static bool no_route(bed *b, int hops)
{
    stop s = stop_after(b, hops);
    if (s.node < 0)
        return false;
    *next_of(b, s.node, s.metric, s.phase, s.dest) = GCI_NO_ROUTE;
    return true;
}

static bool no_route_at_source(bed *b) { return no_route(b, 0); }
static bool no_route_at_relay(bed *b) { return no_route(b, 1); }
static bool no_route_at_second_relay(bed *b) { return no_route(b, 2); }

static bool up_after_down(bed *b)
{
    const int32_t *number = b->e.numbering.number;
    for (stop s = { .node = -1 }; next_stop(b, &s, 1); )
        for (int i = 0; s.phase == 1 && i < b->e.routes[s.node].degree; i++) {
            int to = b->e.routes[s.node].neighbour[i];
            if (to != s.came_from && number[to] < number[s.node])
                return set_next(b, &s, to);
        }
    return false;
}

static bool turn_back(bed *b)
{
    stop s = stop_after(b, 1);
    return s.node >= 0 && set_next(b, &s, s.came_from);
}

/* Three relays that send a packet on and on. */
static bool loop_of_three(bed *b)
{
    for (stop s = { .node = -1 }; next_stop(b, &s, 0); )
        for (int i = 0; i < b->w.graph.edges; i++) {
            const gci_edge *e = &b->w.graph.edge[i];
            int third = s.source;
            if (e->a == third || e->b == third || e->a == s.dest || e->b == s.dest || !e->cost[0] ||
                index_of(&b->e.routes[third], e->a) < 0 || index_of(&b->e.routes[third], e->b) < 0)
                continue;
            *next_of(b, third, s.metric, 0, s.dest) = (uint16_t)index_of(&b->e.routes[third], e->a);
            *next_of(b, e->a, s.metric, 0, s.dest) = (uint16_t)index_of(&b->e.routes[e->a], e->b);
            *next_of(b, e->b, s.metric, 0, s.dest) = (uint16_t)index_of(&b->e.routes[e->b], third);
            return true;
        }
    return false;
}

static bool index_too_large(bed *b)
{
    stop s = stop_after(b, 0);
    *next_of(b, s.node, s.metric, s.phase, s.dest) = (uint16_t)b->e.routes[s.node].degree;
    return true;
}

static bool route_to_itself(bed *b)
{
    *next_of(b, 3, 1, 0, 3) = 0;
    return true;
}

/* One rank has not heard of a death. */
static bool stale_table(bed *b)
{
    gci_routes stale = b->e.routes[0];
    int lost = stale.neighbour[0];
    memset(&b->e.routes[0], 0, sizeof b->e.routes[0]);
    cut_node(&b->w.graph, lost);
    routes_free_all(b->e.routes, b->w.graph.nodes);
    routes_of_all(&b->w, &b->e.numbering, b->e.routes);
    gci_routes_free(&net_env, &b->e.routes[0]);
    b->e.routes[0] = stale;
    return true;
}

/* ... and the others know it all, but one keeps a hop over the dead link. */
static bool dead_link(bed *b)
{
    gci_routes *r = &b->e.routes[0];
    int edge = gci_graph_find(&b->w.graph, 0, r->neighbour[0]);
    cut_link(&b->w.graph, edge);
    return true;
}

static bool route_to_the_dead(bed *b)
{
    cut_node(&b->w.graph, 5);
    routes_free_all(b->e.routes, b->w.graph.nodes);
    gci_numbering_free(&net_env, &b->e.numbering);
    free(b->e.routes);
    epoch_make(&b->w, GCI_UPDOWN_DFS, &b->e);
    if (b->e.routes[2].degree == 0)
        return false;
    *next_of(b, 2, 0, 0, 5) = 0;
    return true;
}

static bool tables_exchanged(bed *b)
{
    gci_routes kept = b->e.routes[1];
    b->e.routes[1] = b->e.routes[2];
    b->e.routes[2] = kept;
    return true;
}

static bool wrong_self(bed *b) { b->e.routes[1].self = 2; return true; }
static bool wrong_nodes(bed *b) { b->e.routes[1].nodes--; return true; }
static bool wrong_phases(bed *b) { b->e.routes[4].phases++; return true; }
static bool neighbour_missing(bed *b) { b->e.routes[4].degree--; return true; }
static bool phase_swapped(bed *b) { b->e.routes[4].came[0] ^= 1; return true; }
static bool number_twice(bed *b) { b->e.numbering.number[3] = b->e.numbering.number[4]; return true; }
static bool number_too_large(bed *b) { b->e.numbering.number[3] = b->w.graph.nodes; return true; }
static bool number_missing(bed *b) { b->e.numbering.number[3] = -1; return true; }
static bool too_few_numbers(bed *b) { b->e.numbering.entries--; return true; }
static bool phases_of_numbering(bed *b) { b->e.numbering.phases--; return true; }

static bool neighbours_exchanged(bed *b)
{
    for (int v = 0; v < b->w.graph.nodes; v++)
        if (b->e.routes[v].degree > 1) {
            int32_t *neighbour = b->e.routes[v].neighbour, kept = neighbour[0];
            neighbour[0] = neighbour[1];
            neighbour[1] = kept;
            return true;
        }
    return false;
}

static bool neighbour_invented(bed *b)
{
    for (int other = 1; other < b->w.graph.nodes; other++)
        if (index_of(&b->e.routes[0], other) < 0) {
            b->e.routes[0].neighbour[0] = other;
            return true;
        }
    return false;
}

static bool phases_exchanged(bed *b)
{
    for (int v = 0; v < b->w.graph.nodes; v++) {
        const gci_routes *r = &b->e.routes[v];
        size_t row = (size_t)r->nodes * sizeof *r->next;
        if (memcmp(r->next, r->next + r->nodes, row) == 0)
            continue;
        memcpy(r->next, r->next + r->nodes, row);
        return true;
    }
    return false;
}

static bool metrics_exchanged(bed *b)
{
    bool differ = false;
    for (int v = 0; v < b->w.graph.nodes; v++) {
        gci_routes *r = &b->e.routes[v];
        differ |= memcmp(r->next, r->next + r->phases * r->nodes, (size_t)r->nodes * sizeof *r->next) != 0;
        for (int i = 0; i < r->phases * r->nodes; i++) {
            uint16_t kept = r->next[i];
            r->next[i] = r->next[r->phases * r->nodes + i];
            r->next[r->phases * r->nodes + i] = kept;
        }
    }
    return differ;
}

/* Half of the tables, or those of one metric, follow a numbering turned upside down. */
static bool numbering_mixed(bed *b, bool metric_only)
{
    int n = b->w.graph.nodes;
    gci_numbering turned = b->e.numbering;
    turned.number = net_zeroed((size_t)n, sizeof *turned.number);
    for (int v = 0; v < n; v++)
        turned.number[v] = n - 1 - b->e.numbering.number[v];
    for (int v = 0; v < n; v++) {
        gci_routes r;
        assert_int_equal(gci_routes_make(&net_env, &b->w.graph, &b->w.topo, &turned, v, &r), GC_OK);
        if (metric_only)
            memcpy(b->e.routes[v].next + 2 * n, r.next + 2 * n, 2 * (size_t)n * sizeof *r.next);
        else if (v % 2) {
            gci_routes kept = b->e.routes[v];
            b->e.routes[v] = r;
            r = kept;
        }
        gci_routes_free(&net_env, &r);
    }
    free(turned.number);
    return true;
}

static bool tables_of_two_numberings(bed *b) { return numbering_mixed(b, false); }
static bool metrics_of_two_numberings(bed *b) { return numbering_mixed(b, true); }

/* Does the whole way lie inside the cluster? */
static bool stays_inside(const bed *b, stop s, int cluster)
{
    for (int hops = 1; walk(b, &s, hops); hops++)
        if (!gci_topo_inside(&b->w.topo, cluster, s.node))
            return false;
    return true;
}

/* Another first hop, from which dest is reached as well: out of the cluster of both, or within it but longer. */
static bool other_way(bed *b, bool out)
{
    for (stop s = { .node = -1 }; next_stop(b, &s, 0); ) {
        int cluster = gci_topo_common(&b->w.topo, s.source, s.dest);
        uint16_t *next = next_of(b, s.source, s.metric, 0, s.dest), kept = *next;
        bool fits = cluster > 0 && stays_inside(b, s, cluster);
        for (int i = 0; fits && i < b->e.routes[s.source].degree; i++) {
            int to = b->e.routes[s.source].neighbour[i];
            uint16_t phase = b->e.routes[to].came[index_of(&b->e.routes[to], s.source)];
            uint16_t then = *next_of(b, to, s.metric, phase, s.dest);
            if (i == kept || to == s.dest || gci_topo_inside(&b->w.topo, cluster, to) == out || then == GCI_NO_ROUTE ||
                b->e.routes[to].neighbour[then] == s.source)
                continue;
            *next = (uint16_t)i;
            return true;
        }
    }
    return false;
}

static bool detour_out_of_cluster(bed *b) { return other_way(b, true); }
static bool longer_way(bed *b) { return other_way(b, false); }

/* A link costs more than the tables believe, and there is a better way now. */
static bool cost_changed(bed *b)
{
    for (stop s = { .node = -1 }; next_stop(b, &s, 1); ) {
        uint32_t *cost = &b->w.graph.edge[gci_graph_find(&b->w.graph, s.came_from, s.node)].cost[s.metric], kept = *cost;
        gci_routes fresh;
        *cost = UINT32_MAX;
        assert_int_equal(gci_routes_make(&net_env, &b->w.graph, &b->w.topo, &b->e.numbering, s.source, &fresh), GC_OK);
        bool differs = gci_route_next(&fresh, (enum gci_metric)s.metric, -1, s.dest) !=
                       gci_route_next(&b->e.routes[s.source], (enum gci_metric)s.metric, -1, s.dest);
        gci_routes_free(&net_env, &fresh);
        if (differs)
            return true;
        *cost = kept;
    }
    return false;
}

static bool lower_forest_later(bed *b)
{
    for (stop s = { .node = -1 }; next_stop(b, &s, 1); )
        for (int i = 0; i < b->e.routes[s.node].degree; i++)
            if (b->e.routes[s.node].came[i] < s.phase)
                return set_next(b, &s, b->e.routes[s.node].neighbour[i]);
    return false;
}

static bool other_forest(bed *b) { return ++b->e.numbering.number[0] < b->e.numbering.phases; }
static bool forest_too_large(bed *b) { b->e.numbering.number[0] = b->e.numbering.phases; return true; }
static bool link_in_no_forest(bed *b) { b->e.numbering.number[0] = -1; return true; }

/* All links in one "forest": the tables of a free search are legal then. */
static bool forest_with_circles(bed *b)
{
    gci_numbering *nb = &b->e.numbering;
    nb->routing = GCI_ORDERED;
    nb->entries = b->w.graph.edges;
    nb->number = gci_alloc(&net_env, (size_t)nb->entries * sizeof *nb->number);
    return nb->number != NULL;
}

static bool nothing(bed *b) { (void)b; return true; }

static bool clockwise(bed *b)
{
    for (int v = 0; v < 4; v++)
        for (int metric = 0; metric < GCI_METRICS; metric++)
            *next_of(b, v, metric, 0, (v + 2) % 4) = (uint16_t)index_of(&b->e.routes[v], (v + 1) % 4);
    return true;
}

static bool two_metrics_two_ways(bed *b)
{
    for (int metric = 0; metric < GCI_METRICS; metric++)
        for (int v = 0; v < 4; v++) {
            int by = v % 2 == 0 ? (metric ? 3 : 1) : (metric ? 0 : 2);
            *next_of(b, v, metric, 0, (v + 2) % 4) = (uint16_t)index_of(&b->e.routes[v], by);
        }
    return true;
}

typedef struct fault {
    const char *name;
    bool      (*plant)(bed *);
    const char *expected;           /* in the checker's words */
    int         routing;
    unsigned    what;
    int         ring;               /* nodes of the ring in which it is planted; 0: a random network */
} fault;

static const fault faults[] = {
    { "no route at a source",               no_route_at_source,         "no route",         GCI_UPDOWN_DFS,   0, 0 },
    { "no route at a relay",                no_route_at_relay,          "no route",         GCI_UPDOWN_DFS,   0, 0 },
    { "no route at a second relay",         no_route_at_second_relay,   "no route",         GCI_ORDERED,      0, 0 },
    { "up after down",                      up_after_down,              "forbidden",        GCI_UPDOWN_DFS,   0, 0 },
    { "up after down, breadth-first",       up_after_down,              "forbidden",        GCI_UPDOWN_BFS,   0, 0 },
    { "turns back",                         turn_back,                  "a loop",           GCI_UNRESTRICTED, 0, 0 },
    { "loop of three",                      loop_of_three,              "a loop",           GCI_UNRESTRICTED, 0, 0 },
    { "index beyond the neighbours",        index_too_large,            ": link ",          GCI_UPDOWN_DFS,   0, 0 },
    { "route to itself",                    route_to_itself,            "there is a route", GCI_UPDOWN_DFS,   0, 0 },
    { "route to the dead",                  route_to_the_dead,          "there is a route", GCI_UPDOWN_DFS,   0, 0 },
    { "stale table after a death",          stale_table,                "table of 0: ",     GCI_UPDOWN_DFS,   0, 0 },
    { "hop over a dead link",               dead_link,                  "table of 0: ",     GCI_ORDERED,      0, 0 },
    { "two tables exchanged",               tables_exchanged,           "table of 1: self", GCI_UPDOWN_DFS,   0, 0 },
    { "wrong self",                         wrong_self,                 "table of 1: self", GCI_UPDOWN_DFS,   0, 0 },
    { "wrong number of nodes",              wrong_nodes,                "table of 1: self", GCI_UPDOWN_DFS,   0, 0 },
    { "wrong number of phases",             wrong_phases,               "table of 4: self", GCI_UPDOWN_DFS,   0, 0 },
    { "a neighbour is missing",             neighbour_missing,          "table of 4: ",     GCI_UPDOWN_DFS,   0, 0 },
    { "two neighbours exchanged",           neighbours_exchanged,       "neighbour",        GCI_UPDOWN_DFS,   0, 0 },
    { "a neighbour is invented",            neighbour_invented,         "neighbour",        GCI_UPDOWN_DFS,   0, 0 },
    { "a phase is swapped",                 phase_swapped,              "in phase",         GCI_UPDOWN_DFS,   0, 0 },
    { "tables of the phases exchanged",     phases_exchanged,           "from ",            GCI_UPDOWN_DFS,   0, 0 },
    { "a number is there twice",            number_twice,               "numbering: entry", GCI_UPDOWN_DFS,   0, 0 },
    { "a number is too large",              number_too_large,           "numbering: entry", GCI_UPDOWN_BFS,   0, 0 },
    { "a number is missing",                number_missing,             "numbering: entry", GCI_UPDOWN_DFS,   0, 0 },
    { "too few numbers",                    too_few_numbers,            "entries",          GCI_UPDOWN_DFS,   0, 0 },
    { "a phase too few",                    phases_of_numbering,        "phases",           GCI_UPDOWN_DFS,   0, 0 },
    { "tables of two numberings",           tables_of_two_numberings,   "in phase",         GCI_UPDOWN_DFS,   0, 0 },
    { "metrics of two numberings",          metrics_of_two_numberings,  "from ",            GCI_UPDOWN_DFS,   0, 0 },
    { "detour out of the cluster",          detour_out_of_cluster,      "leaves cluster",   GCI_UPDOWN_DFS,   ROUTE_INSIDE, 0 },
    { "not the shortest way",               longer_way,                 "the best costs",   GCI_UPDOWN_DFS,   ROUTE_OPTIMAL, 0 },
    { "not the shortest way, ordered",      longer_way,                 "the best costs",   GCI_ORDERED,      ROUTE_OPTIMAL, 0 },
    { "metrics exchanged",                  metrics_exchanged,          "the best costs",   GCI_UPDOWN_DFS,   ROUTE_OPTIMAL, 0 },
    { "a cost has changed",                 cost_changed,               "the best costs",   GCI_UPDOWN_DFS,   ROUTE_OPTIMAL, 0 },
    { "a lower forest after a higher",      lower_forest_later,         "forbidden",        GCI_ORDERED,      0, 0 },
    { "a link in another forest",           other_forest,               "in phase",         GCI_ORDERED,      0, 0 },
    { "a forest too large",                 forest_too_large,           "numbering: entry", GCI_ORDERED,      0, 0 },
    { "a link in no forest",                link_in_no_forest,          "numbering: entry", GCI_ORDERED,      0, 0 },
    { "a forest with a circle",             forest_with_circles,        "in a circle",      GCI_UNRESTRICTED, ROUTE_FREE, 5 },
    { "unrestricted in a ring of six",      nothing,                    "in a circle",      GCI_UNRESTRICTED, ROUTE_FREE, 6 },
    { "four transfers in a ring",           clockwise,                  "in a circle",      GCI_UNRESTRICTED, ROUTE_FREE, 4 },
    { "two metrics round a ring",           two_metrics_two_ways,       "in a circle",      GCI_UNRESTRICTED, ROUTE_FREE, 4 },
};

enum { FAULTS_WANTED = 30, FAULT_NETWORKS = 8, FAULT_TRIES = 200 };

/* Plants the fault in a network where all is well; whether that could be done. The checker must find it, and say why. */
static bool fault_is_found(const fault *f)
{
    char why[ROUTE_TEXT];
    bed b;
    if (f->ring)
        ring(&b.w, f->ring);
    else {
        random_topo(&b.w, 16, 1, 2);
        random_links(&b.w, CLUSTERED, COST_WIDE);
    }
    epoch_make(&b.w, (enum gci_routing)f->routing, &b.e);
    prove(&b.w, &b.e.numbering, b.e.routes, f->ring ? 0 : promises((enum gci_routing)f->routing));
    int entries = b.e.numbering.entries;
    bool planted = f->plant(&b);
    if (planted && route_check(&(route_job){ &b.w.graph, &b.w.topo, &b.e.numbering, b.e.routes }, f->what, NULL, why) == 0)
        WRONG("not found: %s", f->name);
    if (planted && !strstr(why, f->expected))
        WRONG("%s: found as \"%s\"", f->name, why);
    b.e.numbering.entries = entries;
    epoch_free(&b.w, &b.e);
    network_free(&b.w);
    return planted;
}

static void test_planted_faults(void **state)
{
    int found = 0;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(faults); i++) {
        int planted = 0;
        for (uint64_t seed = 1; seed <= FAULT_TRIES && planted < FAULT_NETWORKS; seed++) {
            net_draw(seed);
            planted += fault_is_found(&faults[i]);
        }
        if (planted < FAULT_NETWORKS)
            WRONG("%s: planted %d times only", faults[i].name, planted);
        found++;
    }
    print_message("%d planted faults found\n", found);
    assert_true(found >= FAULTS_WANTED);
    assert_int_equal(net_env.memory, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_planted_faults) };
    return cmocka_run_group_tests(tests, net_setup, NULL);
}
