/* route_check.c: the checker of routing tables. It shares no code with route.c: it knows what a numbering means, and no more.
 * SPDX-License-Identifier: MIT
 *
 * For one destination and metric, tables are a function from (node, phase) to the next such pair. Each pair is followed once:
 * what is known of the rest of the way (its length, the clusters it stays in) is kept with it. The dependencies between links
 * are kept as a bit per turn: from the i-th to the j-th link of a node. The oracle is Bellman and Ford's.
 */
#include "route_check.h"

#include <stdlib.h>

enum { LEVELS = 12 };           /* of clusters that paths may leave; the tests have fewer */

/* The length of a path: links taken out of clusters, by depth, then cost. Infinite: cost is UINT64_MAX. */
typedef struct length { uint32_t out[LEVELS]; uint64_t cost; } length;

enum { UNKNOWN, ON_THE_WAY, KNOWN };

typedef struct state {
    length  rest;
    int32_t outermost;          /* innermost cluster that holds the rest of the way */
    int32_t hops;
    int32_t seen;               /* in which round, see mark() */
} state;

struct route_waits {
    const gci_graph *graph;
    int32_t *first, *edge;      /* links of each node, down ones too: edge[first[v] .. first[v + 1]) */
    int32_t *place;             /* [2 * edges] where an edge stands among the links of its a, of its b */
    size_t  *row;               /* [nodes] first bit of its matrix of turns */
    uint8_t *turn;
};

typedef struct checker {
    const route_job *job;
    unsigned  what;
    int       nodes, phases;
    int32_t  *edge_of;          /* [nodes * nodes] edge that is up, or -1 */
    int32_t  *component;        /* [nodes] */
    int32_t  *piece;            /* [depths * nodes] component inside the cluster at that depth; -1: none so deep */
    int       depths;
    state    *state;            /* [nodes * phases] */
    int32_t   round;            /* counts destinations and metrics */
    int32_t  *way;              /* [nodes * phases] states being followed */
    length   *best;             /* [nodes * phases] */
    route_waits *waits;
    route_tally tally;
    char     *why;
} checker;

#define FAIL(c, ...) (snprintf((c)->why, ROUTE_TEXT, __VA_ARGS__), -1)

static void *zeroed(size_t n, size_t bytes)
{
    void *p = calloc(n ? n : 1, bytes);
    if (!p)
        abort();
    return p;
}

static bool works(const gci_edge *e)
{
    return e->cost[0] && e->cost[1];
}

/* ---- clusters, as the checker sees them --------------------------------------------------------------------------- */

static int32_t ancestor(const gci_topo *t, int32_t cluster, int32_t depth)
{
    while (t->depth[cluster] > depth)
        cluster = t->parent[cluster];
    return cluster;
}

static int32_t common(const gci_topo *t, int32_t x, int32_t y)
{
    while (x != y) {
        if (t->depth[x] >= t->depth[y])
            x = t->parent[x];
        else
            y = t->parent[y];
    }
    return x;
}

static int32_t leader(int32_t *of, int32_t v)
{
    while (of[v] != v)
        v = of[v] = of[of[v]];
    return v;
}

/* Components of the links that lie inside clusters of this depth; nodes that are in none so deep get -1. */
static void find_pieces(const checker *c, int32_t depth, int32_t *piece)
{
    const gci_topo *t = c->job->topo;
    const gci_graph *g = c->job->graph;
    for (int32_t v = 0; v < c->nodes; v++)
        piece[v] = v;
    for (int i = 0; i < g->edges; i++) {
        const gci_edge *e = &g->edge[i];
        if (works(e) && t->depth[common(t, t->of[e->a], t->of[e->b])] >= depth)
            piece[leader(piece, e->a)] = leader(piece, e->b);
    }
    for (int32_t v = 0; v < c->nodes; v++)
        piece[v] = leader(piece, v);
    for (int32_t v = 0; v < c->nodes; v++)
        if (t->depth[t->of[v]] < depth)
            piece[v] = -1;
}

/* The innermost cluster inside which the two are connected. */
static int32_t home_of(const checker *c, int32_t a, int32_t b)
{
    const gci_topo *t = c->job->topo;
    int32_t depth = t->depth[common(t, t->of[a], t->of[b])];
    while (depth > 0 && c->piece[depth * c->nodes + a] != c->piece[depth * c->nodes + b])
        depth--;
    return ancestor(t, t->of[a], depth);
}

/* ---- phases and lengths ------------------------------------------------------------------------------------------- */

/* The phase after taking a link in a phase; -1: that is forbidden. */
static int phase_after(const gci_numbering *nb, int phase, int32_t edge, int32_t from, int32_t to)
{
    switch (nb->routing) {
    case GCI_UPDOWN_DFS:
    case GCI_UPDOWN_BFS:
        if (nb->number[from] == nb->number[to])
            return -1;
        if (nb->number[from] > nb->number[to])
            return phase == 0 ? 0 : -1;
        return 1;
    case GCI_ORDERED:
        return nb->number[edge] >= phase ? nb->number[edge] : -1;
    case GCI_UNRESTRICTED:
    case GCI_ROUTINGS:
        break;
    }
    return 0;
}

static length longer(const length *rest, const gci_topo *t, const gci_edge *e, int metric)
{
    length sum = *rest;
    if (t->of[e->a] != t->of[e->b])
        sum.out[t->depth[common(t, t->of[e->a], t->of[e->b])]]++;
    sum.cost += e->cost[metric];
    return sum;
}

static int compare(const length *x, const length *y)
{
    bool x_ends = x->cost != UINT64_MAX, y_ends = y->cost != UINT64_MAX;
    if (!x_ends || !y_ends)
        return (int)y_ends - (int)x_ends;
    for (int i = 0; i < LEVELS; i++)
        if (x->out[i] != y->out[i])
            return x->out[i] < y->out[i] ? -1 : 1;
    return x->cost == y->cost ? 0 : x->cost < y->cost ? -1 : 1;
}

/* Bellman and Ford: the best legal way from each node and phase to dest. */
static void find_best(checker *c, int metric, int32_t dest)
{
    const gci_graph *g = c->job->graph;
    for (int i = 0; i < c->nodes * c->phases; i++)
        c->best[i] = (length){ .cost = i / c->phases == dest ? 0 : UINT64_MAX };
    for (bool changed = true; changed; ) {
        changed = false;
        for (int i = 0; i < 2 * g->edges; i++) {
            const gci_edge *e = &g->edge[i / 2];
            int32_t from = i % 2 ? e->b : e->a, to = i % 2 ? e->a : e->b;
            for (int phase = 0; works(e) && phase < c->phases; phase++) {
                int then = phase_after(c->job->numbering, phase, i / 2, from, to);
                if (then < 0 || c->best[to * c->phases + then].cost == UINT64_MAX)
                    continue;
                length sum = longer(&c->best[to * c->phases + then], c->job->topo, e, metric);
                if (compare(&sum, &c->best[from * c->phases + phase]) < 0) {
                    c->best[from * c->phases + phase] = sum;
                    changed = true;
                }
            }
        }
    }
}

/* ---- waiting links ------------------------------------------------------------------------------------------------ */

route_waits *route_waits_new(const gci_graph *g)
{
    route_waits *w = zeroed(1, sizeof *w);
    size_t bits = 0;
    w->graph = g;
    w->first = zeroed((size_t)g->nodes + 2, sizeof *w->first);
    w->edge = zeroed(2 * (size_t)g->edges, sizeof *w->edge);
    w->place = zeroed(2 * (size_t)g->edges, sizeof *w->place);
    w->row = zeroed((size_t)g->nodes, sizeof *w->row);
    for (int i = 0; i < g->edges; i++) {
        w->first[g->edge[i].a + 1]++;
        w->first[g->edge[i].b + 1]++;
    }
    for (int v = 0; v < g->nodes; v++) {
        size_t degree = (size_t)w->first[v + 1];
        w->row[v] = bits;
        bits += degree * degree;
        w->first[v + 1] += w->first[v];
    }
    int32_t *used = zeroed((size_t)g->nodes, sizeof *used);
    for (int i = 0; i < 2 * g->edges; i++) {
        int32_t v = i % 2 ? g->edge[i / 2].b : g->edge[i / 2].a;
        w->place[i] = used[v];
        w->edge[w->first[v] + used[v]++] = i / 2;
    }
    free(used);
    w->turn = zeroed(bits / 8 + 1, 1);
    return w;
}

void route_waits_free(route_waits *w)
{
    if (!w)
        return;
    free(w->first);
    free(w->edge);
    free(w->place);
    free(w->row);
    free(w->turn);
    free(w);
}

static size_t turn_bit(const route_waits *w, int32_t node, int32_t in, int32_t out)
{
    return w->row[node] + (size_t)in * (size_t)(w->first[node + 1] - w->first[node]) + (size_t)out;
}

/* A packet at node has come over one edge and goes on over another. */
static void add_turn(route_waits *w, int32_t node, int32_t in_edge, int32_t out_edge)
{
    const gci_graph *g = w->graph;
    size_t bit = turn_bit(w, node, w->place[2 * in_edge + (g->edge[in_edge].b == node)],
                          w->place[2 * out_edge + (g->edge[out_edge].b == node)]);
    w->turn[bit / 8] |= (uint8_t)(1U << bit % 8);
}

static int32_t edge_between(const gci_graph *g, int32_t v, int32_t w)
{
    for (int32_t low = 0, high = g->edges; low < high; ) {
        int32_t middle = (low + high) / 2;
        const gci_edge *e = &g->edge[middle];
        int64_t at = (int64_t)e->a * g->nodes + e->b, want = (int64_t)(v < w ? v : w) * g->nodes + (v < w ? w : v);
        if (at == want)
            return middle;
        if (at < want)
            low = middle + 1;
        else
            high = middle;
    }
    return -1;
}

void route_waits_of(route_waits *w, const gci_numbering *nb, const gci_routes *r)
{
    const gci_graph *g = w->graph;
    int32_t *out = zeroed((size_t)r->degree, sizeof *out);
    for (int i = 0; i < r->degree; i++)
        out[i] = edge_between(g, r->self, r->neighbour[i]);
    for (int32_t k = w->first[r->self]; k < w->first[r->self + 1]; k++) {
        int32_t in = w->edge[k], from = g->edge[in].a == r->self ? g->edge[in].b : g->edge[in].a;
        int phase = phase_after(nb, 0, in, from, r->self);
        for (int metric = 0; phase >= 0 && phase < r->phases && metric < GCI_METRICS; metric++)
            for (int dest = 0; dest < g->nodes; dest++) {
                uint16_t next = r->next[(metric * r->phases + phase) * r->nodes + dest];
                if (next < r->degree && out[next] >= 0 && out[next] != in)      /* a packet never turns round */
                    add_turn(w, r->self, in, out[next]);
            }
    }
    free(out);
}

/* Depth-first over directed links, 2 * edge + (1: from b to a). */
typedef struct chase { const route_waits *w; uint8_t *seen; int32_t *stack, *next; int top; } chase;

static int32_t link_end(const gci_graph *g, int32_t link)
{
    return link % 2 ? g->edge[link / 2].a : g->edge[link / 2].b;
}

static int32_t link_start(const gci_graph *g, int32_t link)
{
    return link_end(g, link ^ 1);
}

static int tell_cycle(const chase *s, int32_t closing, char why[ROUTE_TEXT])
{
    const gci_graph *g = s->w->graph;
    int at = s->top - 1, used = snprintf(why, ROUTE_TEXT, "links wait in a circle:");
    while (s->stack[at] != closing)
        at--;
    for (; at < s->top && used < ROUTE_TEXT - 32; at++)
        used += snprintf(why + used, ROUTE_TEXT - (size_t)used, " %d>%d", link_start(g, s->stack[at]), link_end(g, s->stack[at]));
    return -1;
}

static int chase_from(chase *s, int32_t start, char why[ROUTE_TEXT])
{
    const route_waits *w = s->w;
    s->top = 0;
    s->stack[s->top++] = start;
    s->seen[start] = ON_THE_WAY;
    while (s->top > 0) {
        int32_t link = s->stack[s->top - 1], node = link_end(w->graph, link), degree = w->first[node + 1] - w->first[node];
        int32_t in = w->place[link ^ 1], out = s->next[link]++;
        if (out >= degree) {
            s->seen[link] = KNOWN;
            s->top--;
            continue;
        }
        size_t bit = turn_bit(w, node, in, out);
        if (!(w->turn[bit / 8] >> bit % 8 & 1))
            continue;
        int32_t edge = w->edge[w->first[node] + out], then = 2 * edge + (w->graph->edge[edge].b == node);
        if (s->seen[then] == ON_THE_WAY)
            return tell_cycle(s, then, why);
        if (s->seen[then] == UNKNOWN) {
            s->seen[then] = ON_THE_WAY;
            s->stack[s->top++] = then;
        }
    }
    return 0;
}

int route_waits_cycle(const route_waits *w, char why[ROUTE_TEXT])
{
    size_t links = 2 * (size_t)w->graph->edges;
    chase s = { w, zeroed(links, 1), zeroed(links, sizeof *s.stack), zeroed(links, sizeof *s.next), 0 };
    int err = 0;
    for (size_t link = 0; link < links && !err; link++)
        if (s.seen[link] == UNKNOWN)
            err = chase_from(&s, (int32_t)link, why);
    free(s.seen);
    free(s.stack);
    free(s.next);
    return err;
}

/* ---- tables ------------------------------------------------------------------------------------------------------- */

static int check_numbering(const checker *c)
{
    const gci_numbering *nb = c->job->numbering;
    bool updown = nb->routing == GCI_UPDOWN_DFS || nb->routing == GCI_UPDOWN_BFS;
    int entries = updown ? c->nodes : nb->routing == GCI_ORDERED ? c->job->graph->edges : 0;
    if (nb->entries != entries || (updown && nb->phases != 2) || (nb->routing == GCI_UNRESTRICTED && nb->phases != 1) ||
        nb->phases < 1)
        return FAIL(c, "numbering: %d entries, %d phases", nb->entries, nb->phases);
    uint8_t *used = zeroed((size_t)c->nodes, 1);
    int err = 0;
    for (int i = 0; i < entries && !err; i++) {
        int number = nb->number[i];
        if (updown ? number < 0 || number >= c->nodes || used[number]++
                   : works(&c->job->graph->edge[i]) && (number < 0 || number >= nb->phases))
            err = FAIL(c, "numbering: entry %d is %d", i, number);
    }
    free(used);
    return err;
}

static int check_table(const checker *c, int32_t self)
{
    const gci_routes *r = &c->job->routes[self];
    if (r->self != self || r->nodes != c->nodes || r->phases != c->phases)
        return FAIL(c, "table of %d: self %d, %d nodes, %d phases", self, r->self, r->nodes, r->phases);
    int degree = 0;
    for (int32_t v = 0; v < c->nodes; v++) {
        int32_t edge = c->edge_of[self * c->nodes + v];
        if (edge < 0)
            continue;
        if (degree >= r->degree || r->neighbour[degree] != v)
            return FAIL(c, "table of %d: neighbour %d is not %d", self, degree, v);
        if (r->came[degree] != phase_after(c->job->numbering, 0, edge, v, self))
            return FAIL(c, "table of %d: what comes from %d is said to be in phase %d", self, v, r->came[degree]);
        degree++;
    }
    if (degree != r->degree)
        return FAIL(c, "table of %d: %d neighbours, there are %d", self, r->degree, degree);
    return 0;
}

/* Where a packet for dest goes from node in a phase. -1: nowhere; -2: wrong, with a text. */
static int32_t step(const checker *c, int metric, int32_t node, int phase, int32_t dest, int *then)
{
    const gci_routes *r = &c->job->routes[node];
    uint16_t next = r->next[(metric * r->phases + phase) * r->nodes + dest];
    if (next == GCI_NO_ROUTE)
        return -1;
    if (next >= r->degree)
        return FAIL(c, "from %d to %d: link %d of %d", node, dest, next, r->degree) - 1;
    int32_t to = r->neighbour[next], edge = to >= 0 && to < c->nodes ? c->edge_of[node * c->nodes + to] : -1;
    if (edge < 0)
        return FAIL(c, "from %d to %d: there is no link to %d", node, dest, to) - 1;
    *then = phase_after(c->job->numbering, phase, edge, node, to);
    if (*then < 0)
        return FAIL(c, "from %d to %d: the link to %d is forbidden in phase %d", node, dest, to, phase) - 1;
    return to;
}

/* What a state's `seen` is when it has become that in this round. */
static int32_t mark(const checker *c, int what)
{
    return 4 * c->round + what;
}

/* Follows the tables from source until dest, or until the rest of the way is known; then knows all that was passed. */
static int follow(checker *c, int metric, int32_t source, int32_t dest)
{
    const gci_topo *t = c->job->topo;
    int32_t at = source, count = 0;
    int phase = 0, then = 0;
    while (at != dest && c->state[at * c->phases + phase].seen != mark(c, KNOWN)) {
        if (c->state[at * c->phases + phase].seen == mark(c, ON_THE_WAY))
            return FAIL(c, "from %d to %d: a loop at %d", source, dest, at);
        c->state[at * c->phases + phase].seen = mark(c, ON_THE_WAY);
        c->way[count++] = at * c->phases + phase;
        int32_t to = step(c, metric, at, phase, dest, &then);
        if (to == -1)
            return FAIL(c, "from %d to %d: no route at %d", source, dest, at);
        if (to < 0)
            return -1;
        at = to;
        phase = then;
    }
    state end = { .outermost = t->of[dest] };
    const state *rest = at == dest ? &end : &c->state[at * c->phases + phase];
    while (count-- > 0) {
        state *s = &c->state[c->way[count]];
        int32_t node = c->way[count] / c->phases, edge = c->edge_of[node * c->nodes + at];
        s->rest = longer(&rest->rest, t, &c->job->graph->edge[edge], metric);
        s->outermost = common(t, rest->outermost, t->of[node]);
        s->hops = rest->hops + 1;
        s->seen = mark(c, KNOWN);
        if (at != dest && (c->what & ROUTE_FREE)) {
            int32_t next = step(c, metric, at, phase, dest, &then), out = c->edge_of[at * c->nodes + next];
            if (out == edge)
                return FAIL(c, "from %d to %d: at %d it turns back to %d", source, dest, at, node);
            add_turn(c->waits, at, edge, out);
        }
        rest = s;
        at = node;
        phase = c->way[count] % c->phases;
    }
    return 0;
}

static int check_pair(checker *c, int metric, int32_t source, int32_t dest, bool compare_best)
{
    const gci_topo *t = c->job->topo;
    int then;
    if (source == dest || c->component[source] != c->component[dest]) {
        int32_t to = step(c, metric, source, 0, dest, &then);
        return to == -1 ? 0 : FAIL(c, "from %d to %d: there is a route to %d", source, dest, to);
    }
    if (follow(c, metric, source, dest) < 0)
        return -1;
    const state *s = &c->state[source * c->phases];
    int32_t home = home_of(c, source, dest);
    if ((c->what & ROUTE_INSIDE) && common(t, home, s->outermost) != home)
        return FAIL(c, "from %d to %d, metric %d: it leaves cluster %d, which connects them", source, dest, metric, home);
    if (compare_best && compare(&s->rest, &c->best[source * c->phases]) != 0)
        return FAIL(c, "from %d to %d, metric %d: costs %llu, the best costs %llu", source, dest, metric,
                    (unsigned long long)s->rest.cost, (unsigned long long)c->best[source * c->phases].cost);
    c->tally.paths++;
    c->tally.hops += s->hops;
    if (s->hops > c->tally.longest)
        c->tally.longest = s->hops;
    return 0;
}

static int check_pairs(checker *c)
{
    for (int metric = 0; metric < GCI_METRICS; metric++)
        for (int32_t dest = 0; dest < c->nodes; dest++) {
            bool sampled = c->nodes < ROUTE_SAMPLED_FROM || dest % (c->nodes / ROUTE_SAMPLES) == 0;
            bool compare_best = sampled && (c->what & ROUTE_OPTIMAL);
            c->round++;
            if (compare_best)
                find_best(c, metric, dest);
            for (int32_t source = 0; source < c->nodes; source++)
                if (check_pair(c, metric, source, dest, compare_best) < 0)
                    return -1;
        }
    return 0;
}

/* ---- all of it ---------------------------------------------------------------------------------------------------- */

static void set_up(checker *c)
{
    const gci_graph *g = c->job->graph;
    size_t n = (size_t)c->nodes, states = n * (size_t)c->phases;
    for (int v = 0; v < c->nodes; v++)
        if (c->job->topo->depth[c->job->topo->of[v]] >= c->depths)
            c->depths = c->job->topo->depth[c->job->topo->of[v]] + 1;
    if (c->depths > LEVELS)
        abort();
    c->edge_of = zeroed(n * n, sizeof *c->edge_of);
    c->piece = zeroed(n * (size_t)c->depths, sizeof *c->piece);
    c->component = c->piece;            /* inside the whole job */
    c->state = zeroed(states, sizeof *c->state);
    c->way = zeroed(states, sizeof *c->way);
    c->best = zeroed(states, sizeof *c->best);
    c->waits = route_waits_new(g);
    memset(c->edge_of, 0xff, n * n * sizeof *c->edge_of);
    for (int i = 0; i < g->edges; i++)
        if (works(&g->edge[i]))
            c->edge_of[g->edge[i].a * c->nodes + g->edge[i].b] = c->edge_of[g->edge[i].b * c->nodes + g->edge[i].a] = i;
    for (int depth = 0; depth < c->depths; depth++)
        find_pieces(c, depth, c->piece + depth * c->nodes);
}

static void tear_down(checker *c)
{
    free(c->edge_of);
    free(c->piece);
    free(c->state);
    free(c->way);
    free(c->best);
    route_waits_free(c->waits);
}

bool route_exists_for_all(const route_job *job)
{
    checker c = { .job = job, .nodes = job->graph->nodes, .phases = job->numbering->phases };
    bool all = true;
    set_up(&c);
    for (int32_t dest = 0; dest < c.nodes && all; dest++) {
        find_best(&c, 0, dest);
        for (int32_t v = 0; v < c.nodes && all; v++)
            all = c.component[v] != c.component[dest] || c.best[v * c.phases].cost != UINT64_MAX;
    }
    tear_down(&c);
    return all;
}

int route_check(const route_job *job, unsigned what, route_tally *tally, char why[ROUTE_TEXT])
{
    checker c = { .job = job, .what = what, .nodes = job->graph->nodes, .phases = job->numbering->phases, .why = why };
    why[0] = 0;
    if (check_numbering(&c) < 0)
        return -1;
    set_up(&c);
    int err = 0;
    for (int32_t v = 0; v < c.nodes && !err; v++)
        err = check_table(&c, v);
    if (!err)
        err = check_pairs(&c);
    if (!err && (what & ROUTE_FREE))
        err = route_waits_cycle(c.waits, why);
    if (tally)
        *tally = c.tally;
    tear_down(&c);
    return err;
}
