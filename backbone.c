/* backbone.c: which ranks wish for links to each other, so that the job holds together (pure).
 * SPDX-License-Identifier: MIT
 *
 * The choice is a function of (topology, density, seed) in integers alone, so all ranks, whatever their processors, come to
 * the same graph without a word. It has two layers.
 *
 * 1. The skeleton. In the block order of topo.c neighbours are linked, and the first and the last of every cluster:
 *
 *      order   0 - 1 - 2 - 3 - 4 - 5 - 6 - 7        Every block, so every host, rack, site and the whole, holds a ring of
 *      site    \-----------/   \-----------/        its own: it hangs together inside, and no single death cuts it or what
 *      whole   \---------------------------/        is around it. Between s sites it has s links, no more.
 *
 * 2. Locality-aware selection (Hironaka 2009, 4.5.1). Each node sorts the others by distance, links to the d closest, and
 *    to d that are drawn uniformly from the [d^k + 1, d^(k+1)]-th closest, for k = 1, 2, ...; of the last range, which n
 *    cuts off, it takes its share. Distance is the tier: same host, same rack, ..., the rest; so nothing is measured and
 *    nothing is sorted: the i-th closest is computed. Within a tier the order goes round the tier's ring, to both sides
 *    in turn, beginning opposite the node's place within its own block, so that all are equally often close to someone:
 *
 *      own block [. . u .]  the rest of the tier [x x x x|x x x x]     u, third of four, begins at the third quarter
 *
 *    d is the least for which that gives as many links as are asked for; the surplus is left out by chance. Each distant
 *    draw has a number in 1 .. 65536, one that leaves the site the greater of two, and stands if it is at most q. So if q is
 *    the part of the draws that is kept, of those over wide areas it is q * q: sparse graphs spare them first. Which q gives
 *    so many links is counted. d is 2 at least, so below 4.5.1's own least density it is q alone that falls; with q = 0 the
 *    rings and the 2 closest are left. From d = sqrt(n) on there are few ranges and most links are to the d closest, which
 *    always stand: then there can be as many links too many as one more of the closest makes, one of each rank.
 */
#include "gridcomm_int.h"

enum { BACKBONE_ONE = 65536,    /* keys of draws: 1 to this */
       BACKBONE_FEW = 9,           /* ranks: all pairs, by the rule for more but for 8, and deaths part nobody */
       BACKBONE_MILLION = 1000000,  /* densities count in millionths, so that all ranks round alike */
       BACKBONE_FIRST_ROOM = 1024,  /* links of a first allocation */
       BACKBONE_WAN = 1, BACKBONE_LAN = 2, BACKBONE_HOST = 3 };

/* Costs, in units of 100 ns and ps per byte. They order ways, they do not predict times. */
enum { BACKBONE_HOST_LATENCY = 100, BACKBONE_LAN_LATENCY = 500, BACKBONE_WAN_LATENCY = 100000,      /* 10 us, 50 us, 10 ms */
       BACKBONE_PS_PER_MBIT = 8000000,                      /* ps per byte at 1 Mbit/s */
       BACKBONE_NIC_SPEED = 1000, BACKBONE_HOST_SPEED = 20000, BACKBONE_WAN_SPEED = 100 };          /* Mbit/s */

static inline int32_t backbone_least(int32_t a, int32_t b) { return a < b ? a : b; }

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* A host that stands under no path is of the same, nameless site as all such hosts. */
static bool backbone_nameless(const gci_topo *t, int32_t node)
{
    return t->depth[t->of[node]] <= 1;
}

static int backbone_tier(const gci_topo *t, int32_t a, int32_t b)
{
    if (t->of[a] == t->of[b])
        return BACKBONE_HOST;
    return gci_topo_common(t, a, b) != 0 || (backbone_nameless(t, a) && backbone_nameless(t, b)) ? BACKBONE_LAN : BACKBONE_WAN;
}

GCI void gci_backbone_cost(const gci_topo *t, const uint32_t speed[], gci_edge *e)
{
    static const uint32_t latency[] = { 0, BACKBONE_WAN_LATENCY, BACKBONE_LAN_LATENCY, BACKBONE_HOST_LATENCY };
    uint32_t a = speed && speed[e->a] ? speed[e->a] : BACKBONE_NIC_SPEED;
    uint32_t b = speed && speed[e->b] ? speed[e->b] : BACKBONE_NIC_SPEED;
    int tier = backbone_tier(t, e->a, e->b);
    uint32_t rate = tier == BACKBONE_HOST ? BACKBONE_HOST_SPEED : a < b ? a : b;
    if (tier == BACKBONE_WAN && rate > BACKBONE_WAN_SPEED)
        rate = BACKBONE_WAN_SPEED;
    e->cost[GCI_LATENCY] = latency[tier];
    e->cost[GCI_BANDWIDTH] = rate < BACKBONE_PS_PER_MBIT ? BACKBONE_PS_PER_MBIT / rate : 1;
}

/* ---- the choice -------------------------------------------------------------------------------------------------- */

typedef struct backbone_link { int32_t a, b, key; } backbone_link;    /* key: the least q with which it stands */

typedef struct backbone_chooser {
    gci_env  *env;
    const gci_topo *topo;
    backbone_link *link;        /* not sorted, some twice, until they are tidied */
    size_t    links, room;
    int32_t  *site;             /* [nodes] */
    uint32_t *drawn;            /* [nodes + 1] who drew it last, + 1 */
    int32_t   d;
    uint64_t  seed, random;
    bool      failed;
} backbone_chooser;

static uint32_t backbone_random(backbone_chooser *c)
{
    return (uint32_t)(gci_mix(c->random += UINT64_C(0x9e3779b97f4a7c15)) >> 32);
}

static int32_t backbone_below(backbone_chooser *c, int64_t n)
{
    return (int32_t)((uint64_t)backbone_random(c) * (uint64_t)n >> 32);
}

static void backbone_add(backbone_chooser *c, int32_t a, int32_t b, int32_t key)
{
    if (c->links == c->room) {
        size_t room = c->room ? 2 * c->room : BACKBONE_FIRST_ROOM;
        backbone_link *grown = c->failed || room > INT32_MAX / 2 ? NULL : gci_realloc(c->env, c->link, room * sizeof *grown);
        if (!grown) {
            c->failed = true;
            return;
        }
        c->link = grown;
        c->room = room;
    }
    c->link[c->links++] = (backbone_link){ a < b ? a : b, a < b ? b : a, key };
}

/* The i-th closest node to x, i = 1 .. nodes - 1. */
static int32_t backbone_closest(const gci_topo *t, int32_t x, int32_t i)
{
    int32_t at = t->place[x], first = at, size = 1, c = t->of[x];
    while (i >= t->size[c]) {
        first = t->first[c];
        size = t->size[c];
        c = t->parent[c];
    }
    int32_t rest = t->size[c] - size, begin = (int32_t)((int64_t)(at - first) * rest / size), step = i - size;
    int32_t turn = (step % 2 ? begin - (step + 1) / 2 + rest : begin + step / 2) % rest;
    int32_t behind = first - t->first[c] + size + turn;
    return t->order[t->first[c] + behind % t->size[c]];
}

GCI int32_t gci_backbone_sites(const gci_topo *t, int32_t site[])
{
    int32_t sites = 0, before = -1;
    for (int32_t i = 0; i < t->nodes; i++) {
        int32_t c = t->of[t->order[i]];
        bool nameless = t->depth[c] <= 1;
        while (t->depth[c] > 1)
            c = t->parent[c];
        if (nameless)
            c = 0;
        sites += c != before;
        before = c;
        site[t->order[i]] = sites - 1;
    }
    return sites;
}

static void backbone_skeleton(backbone_chooser *c)
{
    const gci_topo *t = c->topo;
    for (int32_t i = 0; i + 1 < t->nodes; i++)
        backbone_add(c, t->order[i], t->order[i + 1], 0);
    for (int32_t k = 0; k < t->clusters; k++)
        if (t->size[k] > 2)
            backbone_add(c, t->order[t->first[k]], t->order[t->first[k] + t->size[k] - 1], 0);
}

/* Draws `draws` of the (low, high]-th closest to x, each at most once (Floyd's way). */
static void backbone_draw(backbone_chooser *c, int32_t x, int32_t low, int32_t high, int32_t draws)
{
    uint32_t mark = (uint32_t)x + 1;
    for (int32_t last = high - low - draws; last < high - low; last++) {
        int32_t pick = backbone_below(c, (int64_t)last + 1);
        if (c->drawn[low + pick] == mark)
            pick = last;
        c->drawn[low + pick] = mark;
        int32_t y = backbone_closest(c->topo, x, low + pick + 1);
        uint32_t two = backbone_random(c), key = two >> 16;
        if (c->site[x] != c->site[y] && key < two % BACKBONE_ONE)
            key = two % BACKBONE_ONE;
        backbone_add(c, x, y, (int32_t)key + 1);
    }
}

static void backbone_select(backbone_chooser *c, int32_t x)
{
    int64_t others = c->topo->nodes - 1, d = c->d;
    for (int32_t i = 1; i <= d && i <= others; i++)
        backbone_add(c, x, backbone_closest(c->topo, x, i), 0);
    for (int64_t low = d; low < others; low *= d) {
        int64_t whole = low * (d - 1), high = low * d < others ? low * d : others;
        int64_t draws = d * (high - low) / whole, rest = d * (high - low) % whole;
        for (; whole > INT32_MAX; whole /= 2)
            rest /= 2;
        draws += backbone_below(c, whole) < rest;       /* the fraction, by chance */
        backbone_draw(c, x, (int32_t)low, (int32_t)high, (int32_t)draws);
    }
}

/* Sorts by one end, stably: by b, then by a, and the links stand in order. */
static void backbone_sort(int32_t n, const backbone_link *from, backbone_link *to, size_t links, bool by_b, uint32_t *count)
{
    memset(count, 0, ((size_t)n + 1) * sizeof *count);
    for (size_t i = 0; i < links; i++)
        count[(by_b ? from[i].b : from[i].a) + 1]++;
    for (int32_t x = 0; x < n; x++)
        count[x + 1] += count[x];
    for (size_t i = 0; i < links; i++)
        to[count[by_b ? from[i].b : from[i].a]++] = from[i];
}

/* Sorts the links and keeps each once, with the least of its keys. */
static void backbone_tidy(backbone_chooser *c)
{
    int32_t n = c->topo->nodes;
    backbone_link *other = gci_alloc(c->env, (c->links + 1) * sizeof *other), *last = NULL;
    if (!other || c->failed) {
        gci_free(c->env, other);
        c->failed = true;
        return;
    }
    backbone_sort(n, c->link, other, c->links, true, c->drawn);
    backbone_sort(n, other, c->link, c->links, false, c->drawn);
    memset(c->drawn, 0, ((size_t)n + 1) * sizeof *c->drawn);
    gci_free(c->env, other);
    size_t all = c->links;
    c->links = 0;
    for (const backbone_link *l = c->link; l < c->link + all; l++) {
        if (!last || last->a != l->a || last->b != l->b) {
            last = &c->link[c->links++];
            *last = *l;
        } else
            last->key = backbone_least(last->key, l->key);
    }
}

/* All that 4.5.1 gives with this d, and the skeleton. How many links that is. */
static size_t backbone_generate(backbone_chooser *c, int32_t d)
{
    c->d = d;
    c->random = c->seed;
    c->links = 0;
    backbone_skeleton(c);
    for (int32_t x = 0; x < c->topo->nodes && !c->failed; x++)
        backbone_select(c, x);
    backbone_tidy(c);
    return c->links;
}

/* Leaves out links until so many are left: those whose key exceeds q. */
static void backbone_thin(backbone_chooser *c, uint64_t wanted)
{
    uint32_t *count = gci_alloc(c->env, (BACKBONE_ONE + 1) * sizeof *count);
    int32_t q = 0;
    size_t kept = 0;
    if (!count) {
        c->failed = true;
        return;
    }
    for (size_t i = 0; i < c->links; i++)
        count[c->link[i].key]++;
    for (uint64_t sum = count[0]; sum < wanted && q < BACKBONE_ONE; )
        sum += count[++q];
    gci_free(c->env, count);
    for (size_t i = 0; i < c->links; i++)
        if (c->link[i].key <= q)
            c->link[kept++] = c->link[i];
    c->links = kept;
}

/* Links asked for; the default is n * log2 n, so 2 log2 n of each rank, and between few ranks all. */
static uint64_t backbone_wanted(uint64_t n, double density)
{
    uint64_t pairs = n * (n - 1) / 2, bits = 0;
    while (UINT64_C(1) << bits < n)
        bits++;
    uint64_t millionths = density > 0 && density < 1 ? (uint64_t)(density * BACKBONE_MILLION + 0.5) : BACKBONE_MILLION;
    if (density <= 0 && n <= BACKBONE_FEW)
        return pairs;
    uint64_t wanted = density > 0 ? (pairs * millionths + BACKBONE_MILLION / 2) / BACKBONE_MILLION : n * bits;
    return wanted < pairs ? wanted : pairs;
}

/* The least d with enough links is sought by doubling, then halving the distance to one that has too few. */
static void backbone_choose_links(backbone_chooser *c, uint64_t wanted)
{
    int32_t n = c->topo->nodes, few = 1, d = 2;
    if (wanted >= (uint64_t)n * (uint64_t)(n - 1) / 2) {
        for (int32_t a = 0; a < n && !c->failed; a++)
            for (int32_t b = a + 1; b < n && !c->failed; b++)
                backbone_add(c, a, b, 0);
        return;
    }
    gci_backbone_sites(c->topo, c->site);
    while (backbone_generate(c, d) < wanted && d < n - 1 && !c->failed) {
        few = d;
        d = backbone_least(2 * d, n - 1);
    }
    while (d - few > 1 && !c->failed) {
        int32_t middle = few + (d - few) / 2;
        if (backbone_generate(c, middle) < wanted)
            few = middle;
        else
            d = middle;
    }
    if (c->d != d && !c->failed)
        backbone_generate(c, d);
    if (!c->failed)
        backbone_thin(c, wanted);
}

/* Takes the links over; none: a graph without any. */
static int backbone_finish(const backbone_chooser *c, const uint32_t speed[], gci_graph *g)
{
    if (c->failed || !(g->edge = gci_alloc(c->env, (c->links + 1) * sizeof *g->edge)))
        return GC_ERR_NOMEM;
    for (size_t i = 0; i < c->links; i++) {
        g->edge[i] = (gci_edge){ .a = c->link[i].a, .b = c->link[i].b };
        gci_backbone_cost(c->topo, speed, &g->edge[i]);
    }
    g->edges = (int)c->links;
    return GC_OK;
}

GCI int gci_backbone_choose(gci_env *env, const gci_topo *t, const uint32_t speed[], double density, uint64_t seed, gci_graph *g)
{
    size_t n = (size_t)t->nodes;
    int32_t *block = gci_alloc(env, 2 * (n + 1) * sizeof *block);
    backbone_chooser c = { .env = env, .topo = t, .seed = seed, .site = block };
    int err = GC_ERR_NOMEM;
    *g = (gci_graph){ .nodes = t->nodes };
    if (block) {
        c.drawn = (uint32_t *)(void *)(block + n + 1);
        if (n > 1)
            backbone_choose_links(&c, backbone_wanted(n, density));
        err = backbone_finish(&c, speed, g);
    }
    gci_free(env, c.link);
    gci_free(env, block);
    return err;
}
