/* mend.c: does a graph of links hold, whoever dies; and which links would mend it? (pure)
 * SPDX-License-Identifier: MIT
 *
 * Some of the links that backbone.c wished for could not be had. The repair looks at what could, and proposes what to try
 * next; it is a function of the graph alone, in which every failed try stands as a link that is down. Islands that must get
 * a link to the outside are: first, the components but the largest; once the graph is connected, the leaves of its tree of
 * blocks (what hangs on the rest by one node). Each island, small ones first, proposes the link with the best chance, the
 * graph is looked at as if that link were up, and so on until nothing is left to mend or `max` proposals are made. The
 * chance of a link between hosts h of site A and g of site B is the mean of what has been seen between A and B, h and B,
 * A and g, each as (up + 1) / (tries + 2). So what was never tried comes behind what has worked and before what has failed.
 * An island whose chances are poor, or that has failed often, makes many proposals at once: a round of tries costs seconds, a
 * try more costs next to nothing.
 *
 * It ends. A pair of ranks is tried once; a pair of hosts twice in vain, and twice more per link that it has; a host has
 * at most MEND_PATIENCE failures per rank on behalf of its own island. To be rid of cut nodes, which may be impossible, no
 * pair of hosts is tried again, none whose chance is below 1 / MEND_DESPAIR, and none of which both have failed twice with
 * the other's site, and twice more per link that they have there. Up to MEND_PAIRS pairs of hosts per island all are
 * looked at, so up to 64 hosts whatever can be joined is joined; of more pairs, a sample that changes with every try.
 */
#include "gridcomm_int.h"

static inline int32_t graph_least(int32_t a, int32_t b) { return a < b ? a : b; }

/* As in route.c: any cost 0, and the link is down. */
static bool graph_up(const gci_edge *e)
{
    return e->cost[GCI_LATENCY] != 0 && e->cost[GCI_BANDWIDTH] != 0;
}

/* ---- what holds a graph together ----------------------------------------------------------------------------------- */

GCI int gci_graph_add(gci_env *env, gci_graph *g, const gci_edge *edge)
{
    gci_edge e = *edge, *grown;
    int low = 0, high = g->edges;
    if (e.a > e.b) {
        e.a = edge->b;
        e.b = edge->a;
    }
    while (low < high) {
        int middle = low + (high - low) / 2;
        const gci_edge *m = &g->edge[middle];
        if (m->a < e.a || (m->a == e.a && m->b < e.b))
            low = middle + 1;
        else
            high = middle;
    }
    if (low == g->edges || g->edge[low].a != e.a || g->edge[low].b != e.b) {
        if (!(grown = gci_realloc(env, g->edge, ((size_t)g->edges + 1) * sizeof e)))
            return GC_ERR_NOMEM;
        g->edge = grown;
        memmove(g->edge + low + 1, g->edge + low, (size_t)(g->edges - low) * sizeof e);
        g->edges++;
    }
    g->edge[low] = e;
    return GC_OK;
}

/* Union-find in the array itself; the root of a set is its smallest member. */
static int32_t graph_root(int32_t set[], int32_t x)
{
    while (set[x] != x)
        x = set[x] = set[set[x]];
    return x;
}

static void graph_unite(int32_t set[], int32_t a, int32_t b)
{
    a = graph_root(set, a);
    b = graph_root(set, b);
    if (a < b)
        set[b] = a;
    else
        set[a] = b;
}

/* Roots become numbers. One pass: whoever stands behind its root finds the number already there. */
static int graph_number(int32_t set[], int32_t n)
{
    int32_t sets = 0;
    for (int32_t x = 0; x < n; x++)
        set[x] = graph_root(set, x);
    for (int32_t x = 0; x < n; x++)
        set[x] = set[x] == x ? sets++ : set[set[x]];
    return sets;
}

GCI int gci_graph_parts(const gci_graph *g, int32_t part[])
{
    for (int32_t x = 0; x < g->nodes; x++)
        part[x] = x;
    for (int i = 0; i < g->edges; i++)
        if (graph_up(&g->edge[i]))
            graph_unite(part, g->edge[i].a, g->edge[i].b);
    return graph_number(part, g->nodes);
}

/* Links as pairs of nodes, and each node's: to[at[x]] .. to[at[x + 1] - 1]. */
static void graph_stars(int32_t n, const int32_t *link, int32_t links, int32_t at[], int32_t to[])
{
    memset(at, 0, ((size_t)n + 1) * sizeof *at);
    for (int32_t i = 0; i < 2 * links; i++)
        at[link[i] + 1]++;
    for (int32_t x = 0; x < n; x++)
        at[x + 1] += at[x];
    for (int32_t i = 0; i < 2 * links; i++)
        to[at[link[i]]++] = link[i ^ 1];
    for (int32_t x = n; x > 0; x--)
        at[x] = at[x - 1];
    at[0] = 0;
}

/* The blocks (biconnected parts) of a graph and the nodes that cut it. */
typedef struct graph_blocks {
    int32_t *at, *to;           /* the stars */
    int32_t *number, *low, *parent, *next, *stack;
    int32_t *start, *member;    /* [blocks + 1], [at most 2 n]: the nodes of each block, cut nodes in several */
    uint8_t *cut;
    int32_t  blocks, depth, count;
} graph_blocks;

static int graph_blocks_make(gci_env *env, int32_t n, int32_t links, graph_blocks *b)
{
    size_t nodes = (size_t)n + 1;
    int32_t *block = gci_alloc(env, (9 * nodes + 2 * (size_t)links) * sizeof *block + nodes);
    *b = (graph_blocks){ 0 };
    if (!block)
        return GC_ERR_NOMEM;
    b->at = block;
    b->number = block + nodes;
    b->low = block + 2 * nodes;
    b->parent = block + 3 * nodes;
    b->next = block + 4 * nodes;
    b->stack = block + 5 * nodes;
    b->start = block + 6 * nodes;
    b->member = block + 7 * nodes;
    b->to = block + 9 * nodes;
    b->cut = (uint8_t *)(b->to + 2 * (size_t)links);
    return GC_OK;
}

/* All beneath x is done; its parent p closes a block if nothing of it reaches above p. */
static void graph_close(graph_blocks *b, int32_t x, int32_t p, int32_t root)
{
    b->low[p] = graph_least(b->low[p], b->low[x]);
    if (b->low[x] < b->number[p])
        return;
    int32_t *end = b->member + b->start[b->blocks], node;
    do
        *end++ = node = b->stack[--b->depth];
    while (node != x);
    *end++ = p;
    b->start[++b->blocks] = (int32_t)(end - b->member);
    if (p != root)
        b->cut[p] = 1;
}

/* Depth-first from a root, without recursion (Hopcroft and Tarjan 1973). A root cuts if it has two children. */
static void graph_search(graph_blocks *b, int32_t root)
{
    int32_t x = root, children = 0;
    b->parent[root] = -1;
    b->number[root] = b->low[root] = ++b->count;
    b->depth = 0;
    for (;;) {
        if (b->next[x] < b->at[x + 1]) {
            int32_t y = b->to[b->next[x]++];
            if (b->number[y] == 0) {
                b->parent[y] = x;
                b->number[y] = b->low[y] = ++b->count;
                b->stack[b->depth++] = y;
                children += x == root;
                x = y;
            } else
                b->low[x] = graph_least(b->low[x], b->number[y]);    /* y the parent: changes nothing, see graph_close */
        } else if (x == root)
            break;
        else {
            graph_close(b, x, b->parent[x], root);
            x = b->parent[x];
        }
    }
    b->cut[root] = children > 1;
}

/* Finds them all; how many nodes cut. No link may stand twice. */
static int graph_blocks_find(graph_blocks *b, int32_t n, const int32_t *link, int32_t links)
{
    int cuts = 0;
    graph_stars(n, link, links, b->at, b->to);
    memset(b->number, 0, (size_t)n * sizeof *b->number);
    memset(b->cut, 0, (size_t)n);
    memcpy(b->next, b->at, (size_t)n * sizeof *b->next);
    b->blocks = b->count = b->start[0] = 0;
    for (int32_t x = 0; x < n; x++)
        if (b->number[x] == 0)
            graph_search(b, x);
    for (int32_t x = 0; x < n; x++)
        cuts += b->cut[x];
    return cuts;
}

/* The links that are up, as pairs of nodes; room for so many more. NULL: out of memory. */
static int32_t *graph_links(gci_env *env, const gci_graph *g, int more, int32_t *links)
{
    int32_t *link = gci_alloc(env, 2 * ((size_t)g->edges + (size_t)more + 1) * sizeof *link);
    *links = 0;
    for (int i = 0; link && i < g->edges; i++)
        if (graph_up(&g->edge[i])) {
            link[2 * *links] = g->edge[i].a;
            link[2 * (*links)++ + 1] = g->edge[i].b;
        }
    return link;
}

GCI int gci_graph_cuts(gci_env *env, const gci_graph *g, uint8_t cut[])
{
    graph_blocks b = { 0 };
    int32_t links, *link = graph_links(env, g, 0, &links);
    int cuts = GC_ERR_NOMEM;
    if (link && graph_blocks_make(env, g->nodes, links, &b) == GC_OK) {
        cuts = graph_blocks_find(&b, g->nodes, link, links);
        memcpy(cut, b.cut, (size_t)g->nodes);
    }
    gci_free(env, b.at);
    gci_free(env, link);
    return cuts;
}

/* ---- the repair -------------------------------------------------------------------------------------------------- */

enum { MEND_ONE = 65536,        /* a chance of 1 */
       MEND_TRIES = 2,          /* failures of a pair of hosts that has no link */
       MEND_PATIENCE = 256,     /* failures of a host, for each of its ranks, on behalf of its own island */
       MEND_DESPAIR = 16,       /* cut nodes: no try with less than this chance, 1 / ... */
       MEND_TOGETHER = 128,     /* proposals of one island in one call */
       MEND_PAIRS = 1 << 16,    /* pairs of hosts looked at for one proposal; beyond, a sample of */
       MEND_SAMPLE = 128,       /* hosts of the island, and as many of all, with ... */
       MEND_FAMILIAR = 32,      /* ... those around it and as many of those with most links */
       MEND_DOUBT = 4,         /* failures of an island that halve its trust in its chances */
       MEND_LOADED = 32,        /* proposals that make a host half as welcome; more do not count */
       MEND_RANKS = 16 };       /* ranks of each host looked at for a pair that is not in the graph */
enum { MEND_ENOUGH = MEND_ONE / 3 };    /* the sum of chances that an island asks for */
enum { MEND_NONE = -1 };

typedef struct mend_tally { int32_t up, failed; } mend_tally;

typedef struct mend {
    gci_env  *env;
    const gci_topo *topo;
    const gci_graph *graph;
    uint64_t  seed;
    int       max, n;
    gci_edge *out;
    bool      joining;          /* components are to be joined; else cut nodes got rid of */

    int32_t   hosts, sites;
    int32_t  *host, *site;      /* [nodes], in block order */
    int32_t  *host_at, *site_at;    /* [hosts + 1], [sites + 1] first place of each */
    int32_t  *at, *to;          /* the stars of all links; to: node * 2 + up */
    int32_t  *degree;           /* [nodes] links up or proposed */
    int32_t  *load;             /* [hosts] proposals */
    int32_t   familiar[MEND_FAMILIAR], familiars;
    mend_tally *all;            /* [hosts] links to other hosts */
    mend_tally *to_host, *to_site;      /* of the host in view, by host and by site */
    mend_tally *from_site, *by_site;    /* of the site in view, likewise */
    int32_t  *link, links;      /* pairs: what is up, and what is proposed and counts as if it were */

    graph_blocks blocks;
    int32_t  *label, islands;   /* [nodes] island, or MEND_NONE */
    int32_t  *avoid;            /* [islands] the node by which it hangs on the rest, or MEND_NONE */
    int32_t  *member, *member_at;   /* members of each, in block order; [islands + 1] */
    int32_t  *queue;            /* [islands] small ones first */
    int32_t  *failed;           /* [islands] tries to leave it */
    uint8_t  *served;           /* [islands] */
    int32_t  *host_used, *site_used;    /* the last proposing island that used it */
    int32_t   turn;
    int32_t   host_in_view, site_in_view;
} mend;

typedef struct mend_pick { int32_t a, b; uint32_t chance, weight; bool known; } mend_pick;  /* known: these sites have links */

/* Adds the links of the nodes at these places to the tallies, or (step -1) takes them away again. */
static void mend_count(const mend *m, int32_t from, int32_t to, int32_t step, mend_tally *by_host, mend_tally *by_site)
{
    for (int32_t i = from; i < to; i++) {
        int32_t x = m->topo->order[i];
        for (int32_t k = m->at[x]; k < m->at[x + 1]; k++) {
            mend_tally *h = &by_host[m->host[m->to[k] / 2]], *s = &by_site[m->site[m->to[k] / 2]];
            if (m->to[k] % 2) {
                h->up += step;
                s->up += step;
            } else {
                h->failed += step;
                s->failed += step;
            }
        }
    }
}

static void mend_view(mend *m, int32_t host, int32_t site)
{
    if (site != m->site_in_view) {
        if (m->site_in_view != MEND_NONE)
            mend_count(m, m->site_at[m->site_in_view], m->site_at[m->site_in_view + 1], -1, m->from_site, m->by_site);
        if (site != MEND_NONE)
            mend_count(m, m->site_at[site], m->site_at[site + 1], 1, m->from_site, m->by_site);
        m->site_in_view = site;
    }
    if (m->host_in_view != MEND_NONE)
        mend_count(m, m->host_at[m->host_in_view], m->host_at[m->host_in_view + 1], -1, m->to_host, m->to_site);
    if (host != MEND_NONE)
        mend_count(m, m->host_at[host], m->host_at[host + 1], 1, m->to_host, m->to_site);
    m->host_in_view = host;
}

static uint32_t mend_rate(mend_tally seen, int32_t trust)
{
    return (uint32_t)((int64_t)MEND_ONE * (seen.up + trust) / (seen.up + seen.failed + trust + 1));
}

static bool mend_is_poor(mend_tally seen)
{
    return seen.failed >= MEND_TRIES * (seen.up + 1);
}

/* The chance of a link between the host in view, h, and g, by which to choose; 0: not to be tried. *doubted: at the worst. */
static uint32_t mend_chance(const mend *m, int32_t h, int32_t g, uint32_t *doubted)
{
    int32_t there = m->site[m->topo->order[m->host_at[g]]];
    mend_tally pair = m->to_host[g];
    if (mend_is_poor(pair) || m->all[h].failed >= MEND_PATIENCE * (m->host_at[h + 1] - m->host_at[h]))
        return 0;
    if (h == g || pair.up > 0)
        return *doubted = (uint32_t)(MEND_ONE / (1 + (h == g ? 2 : 1) * pair.failed));
    int32_t trust = there == m->site_in_view ? 3 : 1;       /* what is near is likely to be reached */
    uint32_t sites = mend_rate(m->by_site[there], trust);
    uint32_t to = mend_rate(m->to_site[there], 1), from = mend_rate(m->from_site[g], 1);
    uint32_t chance = (sites + to + from) / 3, worse = to < from ? to : from;
    *doubted = sites < worse ? sites : worse;
    if (!m->joining && (pair.failed > 0 || chance < MEND_ONE / MEND_DESPAIR
                        || (mend_is_poor(m->to_site[there]) && mend_is_poor(m->from_site[g]))))
        return 0;
    return pair.failed > 0 ? chance / 8 + 1 : chance;
}

static bool mend_proposed(const mend *m, int32_t a, int32_t b)
{
    if (m->load[m->host[a]] == 0 || m->load[m->host[b]] == 0)
        return false;
    for (int i = 0; i < m->n; i++)
        if ((m->out[i].a == a && m->out[i].b == b) || (m->out[i].a == b && m->out[i].b == a))
            return true;
    return false;
}

/* A pair of ranks of hosts h (inside the island) and g (outside) that is not in the graph; the least busy. */
static bool mend_ranks(const mend *m, int32_t island, int32_t h, int32_t g, mend_pick *pick)
{
    int32_t best = INT32_MAX, looked = 0;
    for (int32_t i = m->host_at[h]; i < m->host_at[h + 1] && looked < MEND_RANKS; i++) {
        int32_t a = m->topo->order[i], others = 0;
        if (m->label[a] != island)
            continue;
        looked++;
        for (int32_t k = m->host_at[g]; k < m->host_at[g + 1] && others < MEND_RANKS; k++) {
            int32_t b = m->topo->order[k];
            if (m->label[b] == island || b == m->avoid[island])
                continue;
            others++;
            if (m->degree[a] + m->degree[b] >= best || gci_graph_find(m->graph, a, b) >= 0 || mend_proposed(m, a, b))
                continue;
            best = m->degree[a] + m->degree[b];
            pick->a = a;
            pick->b = b;
        }
    }
    return best < INT32_MAX;
}

/* The k-th host that h may look at: all of them, or, of many, some around it, some with most links, and a sample. */
static int32_t mend_partner(const mend *m, int32_t h, int32_t k, int32_t stride, int32_t offset)
{
    if (stride == 1)
        return k;
    if (k < MEND_FAMILIAR)
        return (int32_t)(((int64_t)h + k + m->hosts - MEND_FAMILIAR / 2) % m->hosts);
    if (k < 2 * MEND_FAMILIAR)
        return m->familiar[k % MEND_FAMILIAR % m->familiars];
    return (int32_t)((offset + (int64_t)(k - 2 * MEND_FAMILIAR) * stride) % m->hosts);
}

static int32_t mend_hosts_of(const mend *m, int32_t island)
{
    int32_t hosts = 0, before = MEND_NONE;
    for (int32_t i = m->member_at[island]; i < m->member_at[island + 1]; i++) {
        hosts += m->host[m->member[i]] != before;
        before = m->host[m->member[i]];
    }
    return hosts;
}

/* Keeps the better of *best and the best link between h and anybody outside. */
static void mend_look(const mend *m, int32_t island, int32_t h, int32_t stride, int32_t offset, mend_pick *best)
{
    int32_t partners = stride == 1 ? m->hosts : 2 * MEND_FAMILIAR + MEND_SAMPLE;
    for (int32_t k = 0; k < partners; k++) {
        int32_t g = mend_partner(m, h, k, stride, offset), there = m->site[m->topo->order[m->host_at[g]]];
        uint32_t doubted, chance = mend_chance(m, h, g, &doubted);
        if (chance == 0)
            continue;
        /* Proposals of one island are to differ, and one host is not to get them all. The low bits: a draw. */
        uint64_t weight = (uint64_t)chance * (uint64_t)(2 * MEND_LOADED - graph_least(m->load[g], MEND_LOADED)) / MEND_LOADED;
        int32_t leaf = m->joining ? MEND_NONE : m->label[m->topo->order[m->host_at[g]]];
        if (leaf != MEND_NONE && leaf != island)
            weight += weight / 4;       /* one link for two leaves */
        weight >>= (m->host_used[h] == m->turn) + (m->host_used[g] == m->turn) + (m->site_used[there] == m->turn);
        weight = (weight + 1) << 6 | (gci_mix(m->seed + (uint64_t)h * UINT64_C(0x100000001) + (uint64_t)g) & 63);
        mend_tally sites = m->by_site[there];
        bool known = h == g || (there != m->site_in_view && sites.up > 0 && !mend_is_poor(sites));
        mend_pick pick = { .chance = doubted, .weight = (uint32_t)weight, .known = known };
        if (pick.weight > best->weight && mend_ranks(m, island, h, g, &pick))
            *best = pick;
    }
}

static mend_pick mend_best(mend *m, int32_t island)
{
    mend_pick best = { 0 };
    int32_t inside = mend_hosts_of(m, island), step = 1, stride = 1, seen = 0, before = MEND_NONE;
    uint64_t chance = gci_mix(m->seed ^ (uint64_t)(m->graph->edges + m->n) << 20 ^ (uint64_t)island);
    if ((int64_t)inside * m->hosts > MEND_PAIRS) {
        step = inside / MEND_SAMPLE + 1;
        stride = m->hosts / MEND_SAMPLE + 1;
    }
    seen = (int32_t)(chance % (uint64_t)step);
    for (int32_t i = m->member_at[island]; i < m->member_at[island + 1]; i++) {
        int32_t x = m->member[i], h = m->host[x];
        if (h == before || (before = h, seen++ % step != 0))
            continue;
        mend_view(m, h, m->site[x]);
        mend_look(m, island, h, stride, (int32_t)((chance >> 32) % (uint64_t)m->hosts), &best);
    }
    mend_view(m, MEND_NONE, m->site_in_view);
    return best;
}

/* The proposals of one island; of them the first counts as a link from now on. False: there was none. */
static bool mend_island(mend *m, int32_t island, int quota)
{
    uint32_t sum = 0;
    int made = 0;
    m->turn++;
    while (made < quota && m->n < m->max && sum < MEND_ENOUGH) {
        mend_pick p = mend_best(m, island);
        if (p.weight == 0)
            break;
        int32_t h = m->host[p.a], g = m->host[p.b], other = m->label[p.b];
        m->out[m->n++] = (gci_edge){ .a = p.a < p.b ? p.a : p.b, .b = p.a < p.b ? p.b : p.a };
        if (made++ == 0) {
            m->link[2 * m->links] = p.a;
            m->link[2 * m->links++ + 1] = p.b;
            if (other != MEND_NONE)
                m->served[other] = 1;
        }
        m->degree[p.a]++;
        m->degree[p.b]++;
        m->load[h]++;
        m->load[g]++;
        m->host_used[h] = m->host_used[g] = m->site_used[m->site[p.b]] = m->turn;
        sum += p.known ? p.chance : (uint32_t)((uint64_t)p.chance * MEND_DOUBT / (uint64_t)(MEND_DOUBT + m->failed[island]));
    }
    return made > 0;
}

/* Islands are the components. */
static void mend_components(mend *m)
{
    int32_t n = m->topo->nodes;
    for (int32_t x = 0; x < n; x++)
        m->label[x] = x;
    for (int32_t i = 0; i < m->links; i++)
        graph_unite(m->label, m->link[2 * i], m->link[2 * i + 1]);
    m->islands = graph_number(m->label, n);
    for (int32_t i = 0; i < m->islands; i++)
        m->avoid[i] = MEND_NONE;
}

/* Islands are the blocks that have one cut node, without it. */
static void mend_leaves(mend *m)
{
    graph_blocks *b = &m->blocks;
    m->islands = 0;
    for (int32_t x = 0; x < m->topo->nodes; x++)
        m->label[x] = MEND_NONE;
    if (graph_blocks_find(b, m->topo->nodes, m->link, m->links) == 0)
        return;
    for (int32_t k = 0; k < b->blocks; k++) {
        int32_t cuts = 0;
        for (int32_t i = b->start[k]; i < b->start[k + 1]; i++)
            if (b->cut[b->member[i]]) {
                m->avoid[m->islands] = b->member[i];
                cuts++;
            }
        if (cuts != 1)
            continue;
        for (int32_t i = b->start[k]; i < b->start[k + 1]; i++)
            if (!b->cut[b->member[i]])
                m->label[b->member[i]] = m->islands;
        m->islands++;
    }
}

/* Sorts members by island and islands by size, counting; counts the failures of each. */
static void mend_sort(mend *m)
{
    int32_t n = m->topo->nodes, *at = m->member_at, queued = 0;
    memset(at, 0, ((size_t)m->islands + 1) * sizeof *at);
    for (int32_t x = 0; x < n; x++)
        if (m->label[x] != MEND_NONE)
            at[m->label[x] + 1]++;
    for (int32_t i = 0; i < m->islands; i++)
        at[i + 1] += at[i];
    for (int32_t i = 0; i < n; i++)
        if (m->label[m->topo->order[i]] != MEND_NONE)
            m->member[at[m->label[m->topo->order[i]]]++] = m->topo->order[i];
    for (int32_t i = m->islands; i > 0; i--)
        at[i] = at[i - 1];
    at[0] = 0;
    /* Sizes up to the square root of n can be many, larger ones few: rounds of doubling size do. */
    for (int64_t size = 1; queued < m->islands; size *= 2)
        for (int32_t i = 0; i < m->islands; i++)
            if (at[i + 1] - at[i] >= size && at[i + 1] - at[i] < 2 * size)
                m->queue[queued++] = i;
    memset(m->served, 0, (size_t)m->islands);
    memset(m->failed, 0, ((size_t)m->islands + 1) * sizeof *m->failed);
    for (int i = 0; i < m->graph->edges; i++) {
        int32_t a = m->label[m->graph->edge[i].a], b = m->label[m->graph->edge[i].b];
        if (graph_up(&m->graph->edge[i]) || a == b)
            continue;
        m->failed[a == MEND_NONE ? m->islands : a]++;
        m->failed[b == MEND_NONE ? m->islands : b]++;
    }
}

/* Every island once, but those that another has just chosen. False: no proposal, so nothing is left to do. */
static bool mend_round(mend *m)
{
    bool any = false;
    if (m->joining)
        mend_components(m);
    else
        mend_leaves(m);
    mend_sort(m);
    int32_t asking = m->islands - m->joining;       /* of components the largest only answers */
    for (int32_t i = 0; i < asking && m->n < m->max; i++) {
        int share = (m->max - m->n) / (asking - i);
        if (!m->served[m->queue[i]])
            any |= mend_island(m, m->queue[i], graph_least(share > 1 ? share : 1, MEND_TOGETHER));
    }
    return any;
}

/* ---- what the repair knows at its begin ----------------------------------------------------------------------------- */

static void mend_places(mend *m)
{
    const gci_topo *t = m->topo;
    m->sites = gci_backbone_sites(t, m->site);
    for (int32_t i = 0; i < t->nodes; i++) {
        int32_t x = t->order[i];
        if (i == 0 || t->of[x] != t->of[t->order[i - 1]])
            m->host_at[m->hosts++] = i;
        m->host[x] = m->hosts - 1;
        if (i == 0 || m->site[x] != m->site[t->order[i - 1]])
            m->site_at[m->site[x]] = i;
    }
    m->host_at[m->hosts] = m->site_at[m->sites] = t->nodes;
}

static void mend_links(mend *m)
{
    const gci_graph *g = m->graph;
    for (int i = 0; i < g->edges; i++) {
        m->at[g->edge[i].a + 1]++;
        m->at[g->edge[i].b + 1]++;
    }
    for (int32_t x = 0; x < g->nodes; x++)
        m->at[x + 1] += m->at[x];
    for (int i = 0; i < g->edges; i++) {
        const gci_edge *e = &g->edge[i];
        int32_t up = graph_up(e), apart = m->host[e->a] != m->host[e->b];
        m->to[m->at[e->a]++] = 2 * e->b + up;
        m->to[m->at[e->b]++] = 2 * e->a + up;
        m->degree[e->a] += up;
        m->degree[e->b] += up;
        m->all[m->host[e->a]].up += apart && up;
        m->all[m->host[e->b]].up += apart && up;
        m->all[m->host[e->a]].failed += apart && !up;
        m->all[m->host[e->b]].failed += apart && !up;
    }
    for (int32_t x = g->nodes; x > 0; x--)
        m->at[x] = m->at[x - 1];
    m->at[0] = 0;
}

/* The hosts whose links are the most and surest. */
static void mend_find_familiar(mend *m)
{
    for (int32_t h = 0; h < m->hosts; h++) {
        int32_t at = m->familiars < MEND_FAMILIAR ? m->familiars++ : MEND_FAMILIAR - 1;
        int64_t worth = (int64_t)mend_rate(m->all[h], 1) * (m->all[h].up > 8 ? 8 : m->all[h].up);
        if (at == MEND_FAMILIAR - 1 && h > at) {
            int32_t last = m->familiar[at];
            if (worth <= (int64_t)mend_rate(m->all[last], 1) * (m->all[last].up > 8 ? 8 : m->all[last].up))
                continue;
        }
        for (; at > 0; at--) {
            int32_t before = m->familiar[at - 1];
            if (worth <= (int64_t)mend_rate(m->all[before], 1) * (m->all[before].up > 8 ? 8 : m->all[before].up))
                break;
            m->familiar[at] = before;
        }
        m->familiar[at] = h;
    }
}

/* All arrays are parts of one block. */
static int32_t *mend_make(mend *m)
{
    size_t n = (size_t)m->topo->nodes + 1, edges = (size_t)m->graph->edges;
    int32_t *block = gci_alloc(m->env, (28 * n + 2 * edges) * sizeof *block + n), **part[] = {
        &m->host, &m->site, &m->host_at, &m->site_at, &m->at, &m->degree, &m->load, &m->label, &m->avoid, &m->member,
        &m->member_at, &m->queue, &m->host_used, &m->site_used, &m->failed };
    mend_tally **tally[] = { &m->all, &m->to_host, &m->to_site, &m->from_site, &m->by_site };
    int32_t *at = block;
    if (!block)
        return NULL;
    for (size_t i = 0; i < GCI_COUNT(part); i++, at += n)
        *part[i] = at;
    for (size_t i = 0; i < GCI_COUNT(tally); i++, at += 2 * n)
        *tally[i] = (mend_tally *)(void *)at;
    m->to = at;
    m->served = (uint8_t *)(at + 2 * edges);
    mend_places(m);
    mend_links(m);
    mend_find_familiar(m);
    return block;
}

GCI int gci_backbone_repair(gci_env *env, const gci_topo *t, const gci_graph *g, uint64_t seed, int max, gci_edge out[])
{
    mend m = { .env = env, .topo = t, .graph = g, .seed = gci_mix(seed), .max = max, .out = out,
               .host_in_view = MEND_NONE, .site_in_view = MEND_NONE };
    if (max <= 0 || g->nodes < 2)
        return 0;
    m.link = graph_links(env, g, max, &m.links);
    int32_t *block = mend_make(&m);
    int result = GC_ERR_NOMEM;
    if (m.link && block && graph_blocks_make(env, g->nodes, m.links + max, &m.blocks) == GC_OK) {
        mend_components(&m);
        m.joining = m.islands > 1;
        while (m.n < max && mend_round(&m)) { }
        result = m.n;
    }
    gci_free(env, m.blocks.at);
    gci_free(env, block);
    gci_free(env, m.link);
    return result;
}
