/* addrsel.c: which interface talks to which address (pure).
 * SPDX-License-Identifier: MIT
 *
 * After Peiselt 2007, "Improved Address Selection for Message Passing in Multi-Domain Cluster Systems", chapters 2.4.3 and 3.
 * Goals in this order: a connection; as many links as there are NICs, no two on one NIC; no probing.
 *
 *   1. Collisions, once for the whole job. A private network in which two hosts export one address is forbidden (docker0,
 *      virbr0, two labs of the same numbers): an address in it does not say which host is meant. This counts within a site
 *      (site.c), so that both labs keep their network; a host whose site is unknown may be anywhere and so collides with every
 *      site. Between two sites such a network is never used, and one without collisions may be: see sel_judge_near. Any other
 *      address that two hosts export (a slip, anycast) is itself never a target, but its network is as good as before.
 *   2. One problem for both ends of a pair. Rows are the interfaces of the host with the lower identity, columns the other's;
 *      the best pair of addresses makes the edge. What goes in is what both know: cards, collisions, sites. The answer is the
 *      matching of most edges, among those of best quality, then of fastest NICs, then of lowest numbers.
 *   3. What only this end knows judges the answer: the kernel's routes. An edge whose route leaves by another interface
 *      gives a connection but no striping, unless a socket bound to the interface finds its way. If interfaces of both ends
 *      are then still free, those edges that a route here confirms are matched too (2. again, on what is left): private
 *      networks with a route of their own between them, and public addresses seen from behind a NAT.
 *
 *          a: eth0  193.175.13.2      2001:906:638:aa01::2      the example of 2.4.3: b's eth1 seems as good for a's eth0 as
 *             eth1                    2001:906:638:bb01::2      b's eth0, but if it is taken, eth1 finds nobody. The matching
 *          b: eth0  193.175.14.2                                takes eth0 - eth0 and eth1 - eth1.
 *             eth1  193.175.15.2      2001:906:638:bb02::2
 *
 * The list for the caller: links, what else could connect, last resorts (private addresses that no route of their own leads
 * to; link-local ones). No address twice, none that is this host's own, none forbidden.
 */
#include "gridcomm_int.h"

/* ---- addresses ----------------------------------------------------------------------------------------------------- */

static enum gci_class sel_class(const gci_ifaddr *a)
{
    return a->flags & GCI_IF_LOOPBACK ? GCI_CLASS_NOWHERE : gci_addr_class(&a->addr);
}

/* An address as a number, IPv4 in the top bits. */
typedef struct sel_ip { uint64_t hi, lo; } sel_ip;
static const sel_ip sel_whole = { UINT64_MAX, UINT64_MAX };

static uint64_t sel_word(const uint8_t *p)
{
    return (uint64_t)p[0] << 56 | (uint64_t)p[1] << 48 | (uint64_t)p[2] << 40 | (uint64_t)p[3] << 32
           | (uint64_t)p[4] << 24 | (uint64_t)p[5] << 16 | (uint64_t)p[6] << 8 | p[7];
}

static sel_ip sel_ip_of(const gci_addr *a)
{
    return a->family == 4 ? (sel_ip){ sel_word(a->ip) >> 32 << 32, 0 } : (sel_ip){ sel_word(a->ip), sel_word(a->ip + 8) };
}

static sel_ip sel_mask(sel_ip ip, unsigned bits)
{
    if (bits <= 64)
        return (sel_ip){ bits ? ip.hi & UINT64_MAX << (64 - bits) : 0, 0 };
    return (sel_ip){ ip.hi, ip.lo & UINT64_MAX << (128 - bits) };
}

/* ---- collisions ---------------------------------------------------------------------------------------------------- */

enum {                          /* what is known of an address */
    SEL_SHARED = 1,             /* two hosts export it */
    SEL_COLLIDES = 2,           /* and may be at one site */
    SEL_FORBIDDEN = 4,          /* such an address is in its network */
    SEL_UNPLACED = 8,           /* its host's site is unknown */
    SEL_MET_UNPLACED = 16,      /* so is that of some host which exports it */
    SEL_ROTTEN = 32,            /* an address of its network is shared, anywhere */
    SEL_AGAIN = 64              /* it stands on its host once before */
};

static int sel_addrs(const gci_host *h)
{
    return h->addrs < GCI_IFADDRS_MAX ? h->addrs : GCI_IFADDRS_MAX;
}

typedef struct sel_census {
    const gci_host *host;
    const int32_t  *first;      /* [hosts] number of its first address */
    uint8_t *mark;              /* [n] of each address */
    int32_t *at;                /* [n] its host */
    int32_t *like;              /* [n] the first address of its group */
    bool    *hit;               /* [n] of the group, at its first */
    int32_t *table;             /* [mask + 1] hash table of groups: address + 1 */
    uint32_t n, mask;
} sel_census;

typedef struct sel_key { sel_ip ip; uint64_t site; uint32_t rest; } sel_key;
enum sel_by { SEL_BY_ADDRESS, SEL_BY_ADDRESS_AT_SITE, SEL_BY_NETWORK, SEL_BY_NETWORK_AT_SITE };

static uint64_t sel_site(const sel_census *c, int32_t i)
{
    return c->host[c->at[i]].site;
}

static const gci_ifaddr *sel_ifaddr(const sel_census *c, int32_t i)
{
    return &c->host[c->at[i]].addr[i - c->first[c->at[i]]];
}

/* The port tells apart hosts that are reached at one address of a gateway (GRIDCOMM_ADVERTISE). */
static sel_key sel_key_of(const sel_census *c, int32_t i, enum sel_by by)
{
    const gci_ifaddr *a = sel_ifaddr(c, i);
    sel_key k = { .ip = sel_ip_of(&a->addr), .rest = a->addr.family };
    if (by >= SEL_BY_NETWORK) {
        k.ip = sel_mask(k.ip, a->prefix);
        k.rest |= (uint32_t)a->prefix << 8;
    } else
        k.rest |= (uint32_t)a->addr.port << 16;
    if (by == SEL_BY_ADDRESS_AT_SITE || by == SEL_BY_NETWORK_AT_SITE)
        k.site = sel_site(c, i);
    return k;
}

static uint32_t sel_hash(const sel_key *k)
{
    uint64_t h = k->ip.hi * UINT64_C(0x9e3779b97f4a7c15) + k->rest;
    h = (h ^ h >> 32 ^ k->ip.lo) * UINT64_C(0xd6e8feb86659fd93);
    h = (h ^ h >> 32 ^ k->site) * UINT64_C(0xd6e8feb86659fd93);
    return (uint32_t)(h ^ h >> 32);
}

/* Puts equal addresses into one group. */
static void sel_group(sel_census *c, enum sel_by by)
{
    memset(c->table, 0, (c->mask + (size_t)1) * sizeof *c->table);
    for (int32_t i = 0; i < (int32_t)c->n; i++) {
        sel_key mine = sel_key_of(c, i, by);
        uint32_t slot = sel_hash(&mine) & c->mask;
        for (; c->table[slot]; slot = (slot + 1) & c->mask) {
            sel_key other = sel_key_of(c, c->table[slot] - 1, by);
            if (mine.ip.hi == other.ip.hi && mine.ip.lo == other.ip.lo && mine.site == other.site && mine.rest == other.rest)
                break;
        }
        if (!c->table[slot])
            c->table[slot] = i + 1;
        c->like[i] = c->table[slot] - 1;
    }
}

/* A host stands twice if ranks of it are reached at ports of their own. */
static bool sel_one_host(const sel_census *c, int a, int b)
{
    return a == b || strcmp(c->host[a].id, c->host[b].id) == 0;
}

/* Every address of a group gets `then`, if any of the group has `given` (0: if two hosts are in it). How many did. */
static uint32_t sel_spread(sel_census *c, uint8_t given, uint8_t then)
{
    uint32_t count = 0;
    memset(c->hit, 0, c->n * sizeof *c->hit);
    for (uint32_t i = 0; i < c->n; i++)
        if (given ? (c->mark[i] & given) != 0 : !sel_one_host(c, c->at[i], c->at[c->like[i]]))
            c->hit[c->like[i]] = true;
    for (uint32_t i = 0; i < c->n; i++)
        if (c->hit[c->like[i]]) {
            c->mark[i] |= then;
            count++;
        }
    return count;
}

/* Addresses that stand on their host more than once: all but the first that leads anywhere. */
static void sel_mark_again(const gci_host *h, uint8_t *mark)
{
    for (int i = 1; i < sel_addrs(h); i++)
        for (int k = 0; k < i && !(mark[i] & SEL_AGAIN); k++)
            if (gci_addr_equal(&h->addr[i].addr, &h->addr[k].addr) && sel_class(&h->addr[k]) != GCI_CLASS_NOWHERE)
                mark[i] |= SEL_AGAIN;
}

static void sel_count(sel_census *c)
{
    sel_group(c, SEL_BY_ADDRESS);
    if (!sel_spread(c, 0, SEL_SHARED))
        return;
    for (int32_t i = 0; i < (int32_t)c->n; i++)
        c->mark[i] |= sel_site(c, i) ? 0 : SEL_UNPLACED;
    sel_spread(c, SEL_UNPLACED, SEL_MET_UNPLACED);
    sel_group(c, SEL_BY_ADDRESS_AT_SITE);
    sel_spread(c, 0, SEL_COLLIDES);
    for (uint32_t i = 0; i < c->n; i++)
        if (c->mark[i] & SEL_SHARED && c->mark[i] & SEL_MET_UNPLACED)
            c->mark[i] |= SEL_COLLIDES;
    sel_group(c, SEL_BY_NETWORK_AT_SITE);
    sel_spread(c, SEL_COLLIDES, SEL_FORBIDDEN);
    sel_group(c, SEL_BY_NETWORK);
    sel_spread(c, SEL_SHARED, SEL_ROTTEN);
    for (uint32_t i = 0; i < c->n; i++)         /* to a host that may be anywhere, the scope is the world */
        if (c->mark[i] & SEL_UNPLACED && c->mark[i] & SEL_ROTTEN)
            c->mark[i] |= SEL_FORBIDDEN;
}

/* ---- the two hosts of a pair ----------------------------------------------------------------------------------------- */

typedef struct sel_addr {
    sel_ip   ip, mask;
    uint8_t  family, prefix, class, mark;
    uint8_t  nic;
    uint8_t  from;              /* which of the host's addresses it is */
    uint8_t  dislike;           /* among addresses of equal quality the lesser one is taken */
    /* theirs, as seen from here */
    bool     own, used, asked;
    bool     on_link;           /* in a network of this host's */
    bool     tunnel;            /* of a point-to-point interface */
    uint8_t  barred;            /* a private one that must not be looked for beyond its network: enum gci_why; 0: it may */
    uint8_t  quality, why;      /* the best that it has with any address of this host */
    gci_route_answer answer;
    uint8_t  source, confirmed; /* of the interface that the route names: an address, and the quality; 0: none */
} sel_addr;

typedef struct sel_nic { const gci_ifaddr *first; bool busy; int partner; } sel_nic;    /* partner: of the common matching; -1 */

typedef struct sel_side {
    const gci_host *host;
    uint64_t site;
    int      addrs, nics;
    sel_addr addr[GCI_IFADDRS_MAX];
    sel_nic  nic[GCI_IFADDRS_MAX];
} sel_side;

/* best: greater is better; its fields are below. a, b: places in addr of the lower and the higher host. */
typedef struct sel_edge { uint32_t best; uint8_t a, b, why; } sel_edge;

struct gci_addrsel {
    const gci_host *host;
    int       hosts;
    int32_t  *first;            /* [hosts + 1] number of its first address */
    uint8_t  *mark;             /* [addresses] */
    gci_onlooker look;
    gci_addr  hidden[GCI_IFADDRS_MAX];      /* addresses of the onlooker that its card does not have */
    int       hiddens;
    /* the choice at hand */
    uint16_t  port;
    sel_side  mine, theirs;
    sel_side *low, *high;       /* the same two by identity */
    sel_edge  edge[GCI_IFADDRS_MAX * GCI_IFADDRS_MAX];      /* [low nic][high nic] */
    int64_t   weight[GCI_IFADDRS_MAX * GCI_IFADDRS_MAX];    /* of a problem of matching */
    gci_choice choice;
};

static int sel_take_census(gci_env *env, gci_addrsel *s)
{
    sel_census c = { .host = s->host, .first = s->first, .mark = s->mark, .n = (uint32_t)s->first[s->hosts] };
    uint32_t slots = 16;

    while (slots < 2 * c.n)
        slots *= 2;
    c.mask = slots - 1;
    if (!(c.table = gci_alloc(env, (slots + 2 * (size_t)c.n) * sizeof *c.table + c.n * sizeof *c.hit)))
        return GC_ERR_NOMEM;
    c.at = c.table + slots;
    c.like = c.at + c.n;
    c.hit = (bool *)(c.like + c.n);
    for (int h = 0; h < s->hosts; h++)
        for (int32_t i = s->first[h]; i < s->first[h + 1]; i++)
            c.at[i] = h;
    sel_count(&c);
    gci_free(env, c.table);
    return GC_OK;
}

GCI int gci_addrsel_make(gci_env *env, const gci_host *host, int hosts, gci_addrsel **out)
{
    gci_addrsel *s = *out = gci_alloc(env, sizeof *s);

    if (!s)
        return GC_ERR_NOMEM;
    s->host = host;
    s->hosts = hosts;
    if ((s->first = gci_alloc(env, ((size_t)hosts + 1) * sizeof *s->first)))
        for (int h = 0; h < hosts; h++)
            s->first[h + 1] = s->first[h] + sel_addrs(&host[h]);
    if (!s->first || !(s->mark = gci_alloc(env, (size_t)s->first[hosts] + 1)) || sel_take_census(env, s) < 0) {
        gci_addrsel_free(env, s);
        *out = NULL;
        return GC_ERR_NOMEM;
    }
    for (int h = 0; h < hosts; h++)
        sel_mark_again(&host[h], s->mark + s->first[h]);
    return GC_OK;
}

GCI void gci_addrsel_free(gci_env *env, gci_addrsel *s)
{
    if (s) {
        gci_free(env, s->first);
        gci_free(env, s->mark);
        gci_free(env, s);
    }
}

static uint8_t sel_nic_of(sel_side *side, const gci_ifaddr *a)
{
    for (int i = side->nics; i-- > 0; )
        if (side->nic[i].first->index == a->index)
            return (uint8_t)i;
    side->nic[side->nics] = (sel_nic){ .first = a, .partner = -1 };
    return (uint8_t)side->nics++;
}

/* Interfaces in the order of the card. Addresses that lead nowhere are left out; one that stands on several interfaces is of
 * the first, unless it is link-local and so one on each. */
static void sel_look_at(const gci_addrsel *s, int number, sel_side *side)
{
    side->host = &s->host[number];
    side->site = side->host->site;
    side->addrs = side->nics = 0;
    for (int i = 0; i < sel_addrs(side->host); i++) {
        const gci_ifaddr *a = &side->host->addr[i];
        enum gci_class class = sel_class(a);
        uint8_t mark = s->mark[s->first[number] + i], nic = sel_nic_of(side, a);
        if (class == GCI_CLASS_NOWHERE || (mark & SEL_AGAIN && class != GCI_CLASS_LINK_LOCAL))
            continue;
        side->addr[side->addrs++] = (sel_addr){
            .ip = sel_ip_of(&a->addr), .mask = sel_mask(sel_whole, a->prefix ? a->prefix : 128), .family = a->addr.family,
            .prefix = a->prefix, .class = (uint8_t)class, .mark = mark, .nic = nic, .from = (uint8_t)i,
            .tunnel = (a->flags & GCI_IF_POINT_TO_POINT) != 0,
            .dislike = (uint8_t)((a->flags & GCI_IF_TEMPORARY ? 1 : 0) + (a->flags & GCI_IF_DEPRECATED ? 2 : 0)) };
    }
}

/* Is b in a's network? */
static bool sel_within(const sel_addr *a, const sel_addr *b)
{
    return (((a->ip.hi ^ b->ip.hi) & a->mask.hi) | ((a->ip.lo ^ b->ip.lo) & a->mask.lo)) == 0;
}

/* Each in the other's network: with unequal prefixes the longer one decides. /32 and /128 are no network. */
static bool sel_near(const sel_addr *a, const sel_addr *b)
{
    return sel_within(a, b) && sel_within(b, a);
}

#define SEL_VERDICT(quality, why) ((unsigned)(quality) << 8 | (unsigned)(why))
#define SEL_FAR SEL_VERDICT(GCI_QUALITY_FAR, GCI_WHY_FAR)

static bool sel_elsewhere(const gci_addrsel *s)
{
    return s->mine.site && s->theirs.site && s->mine.site != s->theirs.site;
}

/* What all addresses of this host mean for one of theirs: the kernel looks for it in a network of its own that has it. */
static void sel_bar(const gci_addrsel *s, sel_addr *to)
{
    bool elsewhere = sel_elsewhere(s), beside = s->mine.site && s->mine.site == s->theirs.site;
    bool trap = false, rotten = (to->mark & SEL_ROTTEN) != 0;
    if (to->class != GCI_CLASS_PRIVATE)
        return;
    for (int i = 0; i < s->mine.addrs; i++) {
        const sel_addr *a = &s->mine.addr[i];
        if (a->family == to->family && sel_within(a, to)) {
            to->on_link = true;
            trap |= (a->mark & SEL_FORBIDDEN) != 0;
            rotten |= (a->mark & SEL_ROTTEN) != 0;
        }
    }
    if (to->mark & SEL_FORBIDDEN || trap)
        to->barred = GCI_WHY_COLLISION;
    else if (elsewhere && to->on_link && rotten)
        to->barred = GCI_WHY_OTHER_SITE;
    else if (!beside && to->mark & SEL_SHARED)          /* outside its site it could be either host */
        to->barred = GCI_WHY_SHARED;
}

/* On one network, by its name. Between two sites these may be two networks of one name; that they are is certain enough if some
 * address is used in both. If none is, they may also be two parts of one site: racks with routers of their own, a NAT that has
 * several addresses. A NAT tells more for the former, so what stands behind one is tried last; a tunnel is there to lead
 * to other sites. */
static unsigned sel_judge_near(const gci_addrsel *s, const sel_addr *mine, const sel_addr *theirs)
{
    uint8_t marks = mine->mark | theirs->mark;
    if (marks & SEL_FORBIDDEN)
        return SEL_VERDICT(GCI_QUALITY_NONE, GCI_WHY_COLLISION);
    if (sel_elsewhere(s) && marks & SEL_ROTTEN)
        return SEL_VERDICT(GCI_QUALITY_NONE, GCI_WHY_OTHER_SITE);
    if (sel_elsewhere(s) && (s->mine.site | s->theirs.site) & GCI_SITE_NAT && !(mine->tunnel && theirs->tunnel))
        return SEL_VERDICT(GCI_QUALITY_FAR, GCI_WHY_OTHER_SITE);
    return SEL_VERDICT(GCI_QUALITY_PRIVATE, GCI_WHY_OTHERS);
}

static unsigned sel_judge_private(const gci_addrsel *s, const sel_addr *mine, const sel_addr *theirs, bool near)
{
    if (near)
        return sel_judge_near(s, mine, theirs);
    return theirs->barred ? SEL_VERDICT(GCI_QUALITY_NONE, theirs->barred) : SEL_FAR;
}

/* A pair of addresses, by what both ends know. From GCI_QUALITY_PRIVATE on it is the same from either end. */
static unsigned sel_judge(const gci_addrsel *s, const sel_addr *mine, const sel_addr *theirs, bool near)
{
    if (mine->class == GCI_CLASS_LINK_LOCAL || theirs->class == GCI_CLASS_LINK_LOCAL) {
        if (mine->class != theirs->class)
            return SEL_VERDICT(GCI_QUALITY_NONE, GCI_WHY_FAMILY);
        return theirs->mark & SEL_SHARED ? SEL_VERDICT(GCI_QUALITY_NONE, GCI_WHY_SHARED)
                                         : SEL_VERDICT(GCI_QUALITY_LINK_LOCAL, GCI_WHY_LINK_LOCAL);
    }
    if (theirs->class == GCI_CLASS_PUBLIC && theirs->mark & SEL_SHARED)
        return SEL_VERDICT(GCI_QUALITY_NONE, GCI_WHY_SHARED);
    if (mine->class == GCI_CLASS_PUBLIC && mine->mark & SEL_SHARED)     /* what the other end sends may go to the other host */
        return SEL_VERDICT(theirs->barred ? GCI_QUALITY_NONE : GCI_QUALITY_FAR, GCI_WHY_SHARED);
    if (theirs->class == GCI_CLASS_PRIVATE || (mine->class == GCI_CLASS_PRIVATE && near))
        return sel_judge_private(s, mine, theirs, near);
    if (mine->class == GCI_CLASS_PRIVATE)       /* IPv4 has NAT in between; IPv6 must not be expected to */
        return theirs->family == 4 ? SEL_VERDICT(GCI_QUALITY_OUTWARD, GCI_WHY_OTHERS) : SEL_FAR;
    return SEL_VERDICT(near ? GCI_QUALITY_NEAR : GCI_QUALITY_PUBLIC, GCI_WHY_OTHERS);
}

static void sel_meet(gci_addrsel *s, sel_addr *mine, sel_addr *theirs, sel_edge *edge, int a, int b)
{
    bool near = sel_near(mine, theirs);
    unsigned verdict = sel_judge(s, mine, theirs, near);
    uint32_t best = (verdict >> 8) << 16 | (uint32_t)(255 - mine->dislike - theirs->dislike) << 8 | (verdict & 255);

    if (SEL_VERDICT(theirs->quality, theirs->why) < verdict) {
        theirs->quality = (uint8_t)(verdict >> 8);
        theirs->why = (uint8_t)verdict;
    }
    if (edge->best < best)
        *edge = (sel_edge){ .best = best, .a = (uint8_t)a, .b = (uint8_t)b, .why = (uint8_t)verdict };
}

static unsigned sel_quality(const sel_edge *e)
{
    return e->best >> 16;
}

/* All edges, in an order that is the same at both ends: of equal pairs the first is taken. */
static void sel_edges(gci_addrsel *s)
{
    bool low = s->low == &s->mine;
    memset(s->edge, 0, (size_t)s->low->nics * (size_t)s->high->nics * sizeof *s->edge);
    for (int a = 0; a < s->low->addrs; a++)
        for (int b = 0; b < s->high->addrs; b++) {
            sel_addr *x = &s->low->addr[a], *y = &s->high->addr[b];
            if (x->family == y->family)
                sel_meet(s, low ? x : y, low ? y : x, &s->edge[x->nic * s->high->nics + y->nic], a, b);
        }
}

static sel_edge *sel_edge_at(gci_addrsel *s, int mine, int theirs)
{
    return &s->edge[s->low == &s->mine ? mine * s->high->nics + theirs : theirs * s->high->nics + mine];
}

static sel_addr *sel_target_of(gci_addrsel *s, const sel_edge *e)
{
    return &s->theirs.addr[s->low == &s->mine ? e->b : e->a];
}

/* ---- the matching ---------------------------------------------------------------------------------------------------- */

/* One number that compares like (edges, quality, speed, low places) and adds up like them: in each field there is room for
 * the sum of 64 edges. Of places, (64 - row) * (64 - column): its sum grows with lower places, and with pairing them in order. */
enum { SEL_PLACE_BITS = 17, SEL_SPEED_BITS = 22, SEL_QUALITY_BITS = 9, SEL_SPEED_UNIT = 10, SEL_SPEED_MOST = 65535 };

GCI int64_t gci_edge_weight(enum gci_quality quality, uint32_t mbit_a, uint32_t mbit_b, int row, int column)
{
    uint32_t mbit = mbit_a < mbit_b ? mbit_a : mbit_b, speed = mbit / SEL_SPEED_UNIT + (mbit % SEL_SPEED_UNIT != 0);
    int64_t w = INT64_C(1) << SEL_QUALITY_BITS | quality;
    w = w << SEL_SPEED_BITS | (speed < SEL_SPEED_MOST ? speed : SEL_SPEED_MOST);
    return w << SEL_PLACE_BITS | (GCI_IFADDRS_MAX - row) * (GCI_IFADDRS_MAX - column);
}

/* Shortest augmenting paths (Hungarian method): row by row, each time the cheapest way to make room for one more row. u and v
 * are the prices of rows and columns, by which no pair is ever underpaid and every pair of the matching exactly paid. Index 0
 * stands for none. A pair of weight 0 is as good as no pair. O(rows^2 * columns), rows being the fewer. */
typedef struct sel_matching {
    const int64_t *weight;
    int     rows, columns, row_step, column_step;
    int64_t u[GCI_IFADDRS_MAX + 1], v[GCI_IFADDRS_MAX + 1];
    int     row_of[GCI_IFADDRS_MAX + 1];
} sel_matching;

static void sel_add_row(sel_matching *m, int row)
{
    int64_t slack[GCI_IFADDRS_MAX + 1];
    int before[GCI_IFADDRS_MAX + 1] = { 0 }, at = 0, next = 0;
    bool seen[GCI_IFADDRS_MAX + 1] = { false };

    for (int j = 0; j <= m->columns; j++)
        slack[j] = INT64_MAX;
    m->row_of[0] = row;
    do {
        int i = m->row_of[at];
        int64_t least = INT64_MAX, price = m->u[i];
        const int64_t *weight = m->weight + (i - 1) * m->row_step;
        seen[at] = true;
        for (int j = 1; j <= m->columns; j++, weight += m->column_step) {
            if (seen[j])
                continue;
            int64_t cost = -*weight - price - m->v[j];
            if (cost < slack[j]) {
                slack[j] = cost;
                before[j] = at;
            }
            if (slack[j] < least || (slack[j] == least && !m->row_of[j])) {     /* of equals one that ends the path */
                least = slack[j];
                next = j;
            }
        }
        for (int j = 0; j <= m->columns; j++)
            if (seen[j]) {
                m->u[m->row_of[j]] += least;
                m->v[j] -= least;
            } else if (j > 0)
                slack[j] -= least;
        at = next;
    } while (m->row_of[at]);
    for (; at; at = before[at])
        m->row_of[at] = m->row_of[before[at]];
}

static bool sel_has_pair(const sel_matching *m, int row)
{
    for (int j = 0; j < m->columns; j++)
        if (m->weight[(row - 1) * m->row_step + j * m->column_step])
            return true;
    return false;
}

GCI int gci_match_links(int rows, int columns, const int64_t *weight, int column_of[])
{
    bool turned = rows > columns;
    sel_matching m = { .weight = weight, .rows = turned ? columns : rows, .columns = turned ? rows : columns,
                       .row_step = turned ? 1 : columns, .column_step = turned ? columns : 1 };
    int pairs = 0;

    for (int i = 1; i <= m.rows; i++)
        if (sel_has_pair(&m, i))
            sel_add_row(&m, i);
    for (int i = 0; i < rows; i++)
        column_of[i] = -1;
    for (int j = 1; j <= m.columns; j++) {
        int row = turned ? j - 1 : m.row_of[j] - 1, column = turned ? m.row_of[j] - 1 : j - 1;
        if (m.row_of[j] && weight[row * columns + column] > 0) {
            column_of[row] = column;
            pairs++;
        }
    }
    return pairs;
}

/* ---- what this end makes of it ----------------------------------------------------------------------------------------- */

static sel_addr *sel_source_of(gci_addrsel *s, const sel_edge *e)
{
    return &s->mine.addr[s->low == &s->mine ? e->a : e->b];
}

static gci_addr sel_addr_to(const gci_addrsel *s, const sel_side *side, const sel_addr *a)
{
    gci_addr to = side->host->addr[a->from].addr;
    to.port = side == &s->mine ? 0 : to.port ? to.port : s->port;
    to.scope = 0;
    return to;
}

/* Without a kernel to ask: a network of this host's own names the interface; nothing is known of the rest. */
static gci_route_answer sel_guess(const gci_addrsel *s, const sel_addr *to)
{
    for (int i = 0; i < s->mine.addrs; i++) {
        const sel_addr *a = &s->mine.addr[i];
        if (a->family == to->family && sel_near(a, to))
            return (gci_route_answer){ GCI_ROUTE_SPECIFIC, s->mine.nic[a->nic].first->index };
    }
    return (gci_route_answer){ GCI_ROUTE_UNKNOWN, 0 };
}

static const gci_route_answer *sel_ask(const gci_addrsel *s, sel_addr *to)
{
    gci_addr addr = sel_addr_to(s, &s->theirs, to);
    if (!to->asked && s->look.sys)
        to->answer = s->look.sys->route(s->look.sys, &addr, 0);
    if (!to->asked && to->answer.kind == GCI_ROUTE_UNKNOWN)
        to->answer = sel_guess(s, to);
    to->asked = true;
    return &to->answer;
}

static bool sel_bound(const gci_addrsel *s, const sel_addr *to, uint32_t index)
{
    gci_addr addr = sel_addr_to(s, &s->theirs, to);
    if (!s->look.sys)
        return false;
    gci_route_answer a = s->look.sys->route(s->look.sys, &addr, index);
    return a.kind >= GCI_ROUTE_DEFAULT && a.index == index;
}

/* ---- the list ---------------------------------------------------------------------------------------------------------- */

static uint64_t sel_rank(const gci_target *t)
{
    uint64_t nic = t->link ? (uint64_t)t->speed << 6 | (uint64_t)(GCI_IFADDRS_MAX - 1 - t->mine) : 0;
    return (uint64_t)!t->last << 62 | (uint64_t)t->stripes << 61 | (uint64_t)t->link << 60 | (uint64_t)t->quality << 42
           | (uint64_t)(3 - t->dislike) << 40 | nic;
}

/* Best first, a later one behind its equals. */
static void sel_list(gci_addrsel *s, const gci_target *t)
{
    gci_choice *c = &s->choice;
    uint64_t rank = sel_rank(t);
    int at = c->targets;

    if (at == GCI_TARGETS_MAX && sel_rank(&c->target[--at]) >= rank)
        return;
    for (c->targets = at + 1; at > 0 && sel_rank(&c->target[at - 1]) < rank; at--)
        c->target[at] = c->target[at - 1];
    c->target[at] = *t;
}

static const char *sel_nic_name(const sel_side *side, int nic)
{
    return nic < 0 ? NULL : side->nic[nic].first->name;
}

/* That address of theirs; mine: the interface that it is reached by, or -1: whichever the kernel takes. */
static gci_target sel_target(const gci_addrsel *s, const sel_addr *to, int mine)
{
    gci_target t = { .addr = sel_addr_to(s, &s->theirs, to), .mine = mine, .theirs = to->nic,
                     .my_name = sel_nic_name(&s->mine, mine), .their_name = sel_nic_name(&s->theirs, to->nic),
                     .quality = to->quality, .why = to->why, .dislike = to->dislike };
    if (mine >= 0) {
        const gci_ifaddr *a = s->mine.nic[mine].first, *b = s->theirs.nic[to->nic].first;
        t.index = a->index;
        t.speed = a->speed < b->speed ? a->speed : b->speed;
    }
    return t;
}

static void sel_list_link(gci_addrsel *s, int mine, sel_addr *to, const sel_addr *source, unsigned quality, bool stripes,
                          bool bind)
{
    gci_target t = sel_target(s, to, mine);
    t.source = sel_addr_to(s, &s->mine, source);
    t.quality = (uint8_t)quality;
    t.why = sel_edge_at(s, mine, to->nic)->why;
    t.link = true;
    t.stripes = stripes;
    t.bind = bind;
    to->used = true;
    if (stripes) {
        s->mine.nic[mine].busy = s->theirs.nic[to->nic].busy = true;
        s->choice.links++;
    }
    sel_list(s, &t);
}

/* Judges an edge of the common matching by the routes here; a link if it counts for striping. */
static void sel_judge_edge(gci_addrsel *s, sel_edge *e, int mine, int theirs)
{
    sel_addr *to = sel_target_of(s, e), *source = sel_source_of(s, e);
    uint32_t index = s->mine.nic[mine].first->index;

    if (to->own) {
        e->why = GCI_WHY_OWN;
        return;
    }
    const gci_route_answer *answer = sel_ask(s, to);
    bool here = answer->kind >= GCI_ROUTE_DEFAULT && answer->index == index, bind = !here && sel_bound(s, to, index);
    if (here || bind) {
        e->why = GCI_WHY_CHOSEN;
        sel_list_link(s, mine, to, source, sel_quality(e), true, bind);
        return;
    }
    e->why = answer->kind == GCI_ROUTE_NONE ? GCI_WHY_NO_ROUTE :
             answer->kind == GCI_ROUTE_UNKNOWN ? GCI_WHY_UNKNOWN_ROUTE : GCI_WHY_OTHER_NIC;
    s->mine.nic[mine].partner = theirs;
}

/* The matching by what both ends know. */
static void sel_common(gci_addrsel *s)
{
    int rows = s->low->nics, columns = s->high->nics, column_of[GCI_IFADDRS_MAX];

    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            unsigned quality = sel_quality(&s->edge[i * columns + j]);
            s->weight[i * columns + j] = quality < GCI_QUALITY_PRIVATE ? 0 :
                gci_edge_weight(quality, s->low->nic[i].first->speed, s->high->nic[j].first->speed, i, j);
        }
    gci_match_links(rows, columns, s->weight, column_of);
    for (int i = 0; i < rows; i++) {
        int j = column_of[i];
        bool low = s->low == &s->mine;
        if (j >= 0)
            sel_judge_edge(s, &s->edge[i * columns + j], low ? i : j, low ? j : i);
    }
}

/* A route of its own, not just that of a network which this host takes for its own. */
static bool sel_routed(const sel_addr *to)
{
    return to->asked && to->answer.kind == GCI_ROUTE_SPECIFIC && !to->on_link;
}

/* The interface that the route to that address names, with the best of its addresses as source; -1: none that is free. */
static int sel_confirm(gci_addrsel *s, sel_addr *to)
{
    int nic = 0;
    uint8_t dislike = 0;

    to->confirmed = GCI_QUALITY_NONE;
    if (to->own || to->quality < GCI_QUALITY_FAR || s->theirs.nic[to->nic].busy || sel_ask(s, to)->kind < GCI_ROUTE_DEFAULT)
        return -1;
    while (nic < s->mine.nics && s->mine.nic[nic].first->index != to->answer.index)
        nic++;
    if (nic == s->mine.nics || s->mine.nic[nic].busy)
        return -1;
    for (int i = 0; i < s->mine.addrs; i++) {
        const sel_addr *a = &s->mine.addr[i];
        if (a->nic != nic || a->family != to->family)
            continue;
        unsigned verdict = sel_judge(s, a, to, sel_near(a, to));
        unsigned quality = verdict == SEL_FAR && sel_routed(to) ? GCI_QUALITY_ROUTED : verdict >> 8;
        if (quality > GCI_QUALITY_FAR && (quality > to->confirmed || (quality == to->confirmed && a->dislike < dislike))) {
            to->confirmed = (uint8_t)quality;
            to->source = (uint8_t)i;
            dislike = a->dislike;
        }
    }
    return to->confirmed ? nic : -1;
}

/* Of the addresses of their interface that routes lead to by mine, the best. */
static sel_addr *sel_best_confirmed(gci_addrsel *s, int mine, int theirs)
{
    sel_addr *best = NULL;
    for (int b = 0; b < s->theirs.addrs; b++) {
        sel_addr *to = &s->theirs.addr[b];
        if (to->nic == theirs && to->confirmed && s->mine.addr[to->source].nic == mine
            && (!best || to->confirmed > best->confirmed || (to->confirmed == best->confirmed && to->dislike < best->dislike)))
            best = to;
    }
    return best;
}

/* Interfaces that are still free at both ends: a second matching, over what the routes here confirm. */
static void sel_rest(gci_addrsel *s)
{
    int rows = s->mine.nics, columns = s->theirs.nics, column_of[GCI_IFADDRS_MAX];

    if (s->choice.links == rows || s->choice.links == columns)
        return;
    memset(s->weight, 0, (size_t)rows * (size_t)columns * sizeof *s->weight);
    for (int b = 0; b < s->theirs.addrs; b++) {
        sel_addr *to = &s->theirs.addr[b];
        int i = sel_confirm(s, to), j = to->nic;
        int64_t weight = i < 0 ? 0 : gci_edge_weight(to->confirmed, s->mine.nic[i].first->speed, s->theirs.nic[j].first->speed,
            i, j);
        if (weight && weight > s->weight[i * columns + j])
            s->weight[i * columns + j] = weight;
    }
    gci_match_links(rows, columns, s->weight, column_of);
    for (int i = 0; i < rows; i++) {
        sel_addr *to = column_of[i] < 0 ? NULL : sel_best_confirmed(s, i, column_of[i]);
        if (to) {
            sel_edge_at(s, i, column_of[i])->why = GCI_WHY_CHOSEN;
            sel_list_link(s, i, to, &s->mine.addr[to->source], to->confirmed, true, false);
        }
    }
}

static bool sel_is_scoped(const gci_addrsel *s, int nic, uint8_t family)
{
    for (int i = 0; i < s->mine.addrs; i++)
        if (s->mine.addr[i].nic == nic && s->mine.addr[i].class == GCI_CLASS_LINK_LOCAL && s->mine.addr[i].family == family)
            return true;
    return false;
}

/* A link-local address does not say where it is: once by each interface of this host that has one itself (IPv4 names none).
 * Of several, those come first that stand at the same place as its own. */
static void sel_list_scoped(gci_addrsel *s, const sel_addr *to)
{
    for (int k = 0; k < s->mine.nics; k++) {
        int nic = (to->nic + k) % s->mine.nics;
        if (!sel_is_scoped(s, nic, to->family))
            continue;
        gci_target t = sel_target(s, to, nic);
        t.last = true;
        t.addr.scope = to->family == 6 ? t.index : 0;
        sel_list(s, &t);
        if (to->family == 4)
            return;
    }
}

/* Edges of the matching that do not stripe, then whatever else might connect. */
static void sel_list_others(gci_addrsel *s)
{
    for (int i = 0; i < s->mine.nics; i++) {
        const sel_edge *e = s->mine.nic[i].partner < 0 ? NULL : sel_edge_at(s, i, s->mine.nic[i].partner);
        if (e && e->why != GCI_WHY_CHOSEN && e->why != GCI_WHY_NO_ROUTE && !sel_target_of(s, e)->used)
            sel_list_link(s, i, sel_target_of(s, e), sel_source_of(s, e), sel_quality(e), false, false);
    }
    for (int b = 0; b < s->theirs.addrs; b++) {
        sel_addr *to = &s->theirs.addr[b];
        if (to->quality == GCI_QUALITY_NONE || to->used)
            continue;
        if (to->own || (to->asked && to->answer.kind == GCI_ROUTE_NONE))
            to->why = to->own ? GCI_WHY_OWN : GCI_WHY_NO_ROUTE;
        else if (to->quality == GCI_QUALITY_LINK_LOCAL) {
            if (!(to->mark & SEL_AGAIN))
                sel_list_scoped(s, to);
        } else {
            gci_target t = sel_target(s, to, -1);
            if (SEL_VERDICT(to->quality, to->why) == SEL_FAR && sel_routed(to))
                t.quality = GCI_QUALITY_ROUTED;
            t.last = t.quality == GCI_QUALITY_FAR;
            sel_list(s, &t);
        }
    }
}

/* A Unix socket takes less time than TCP over loopback, 0.6 of it for a short message. */
static void sel_same_host(gci_addrsel *s, uint16_t port)
{
    static const gci_addr near[] = { { .family = GCI_UNIX }, { .family = 4, .ip = { 127, 0, 0, 1 } },
                                     { .family = 6, .ip = { [15] = 1 } } };
    for (size_t i = 0; i < GCI_COUNT(near); i++) {
        gci_target t = { .addr = near[i], .mine = -1, .theirs = -1, .quality = GCI_QUALITY_NEAR, .why = GCI_WHY_SAME_HOST };
        t.addr.port = port;
        sel_list(s, &t);
    }
}

/* An address that is on this host's card and on theirs is out by the census. Those that are on no card count, too. */
GCI void gci_addrsel_look(gci_addrsel *s, const gci_onlooker *look)
{
    const gci_host *h = &s->host[look->host];
    s->look = *look;
    s->hiddens = 0;
    sel_look_at(s, look->host, &s->mine);
    for (int i = 0; i < look->owns && s->hiddens < GCI_IFADDRS_MAX; i++) {
        int k = 0;
        while (k < h->addrs && !gci_addr_equal(&h->addr[k].addr, &look->own[i].addr))
            k++;
        if (k == h->addrs && sel_class(&look->own[i]) != GCI_CLASS_NOWHERE)
            s->hidden[s->hiddens++] = look->own[i].addr;
    }
}

GCI const gci_choice *gci_addrsel_choose(gci_addrsel *s, int peer, uint16_t port)
{
    s->port = port;
    s->choice.targets = s->choice.links = 0;
    sel_look_at(s, peer, &s->theirs);
    int order = strcmp(s->mine.host->id, s->theirs.host->id);
    s->low = order < 0 ? &s->mine : &s->theirs;
    s->high = order < 0 ? &s->theirs : &s->mine;
    if (order == 0) {
        s->low = s->high = &s->theirs;
        sel_same_host(s, port);
        return &s->choice;
    }
    for (int i = 0; i < s->mine.nics; i++)
        s->mine.nic[i] = (sel_nic){ .first = s->mine.nic[i].first, .partner = -1 };
    for (int b = 0; b < s->theirs.addrs; b++) {
        sel_addr *to = &s->theirs.addr[b];
        for (int i = 0; i < s->hiddens && !to->own; i++)
            to->own = gci_addr_equal(&s->hidden[i], &s->theirs.host->addr[to->from].addr);
        sel_bar(s, to);
    }
    sel_edges(s);
    sel_common(s);
    sel_rest(s);
    sel_list_others(s);
    return &s->choice;
}

/* ---- in words ---------------------------------------------------------------------------------------------------------- */

static const char *const sel_quality_text[GCI_QUALITIES] = {
    [GCI_QUALITY_NONE] = "none", [GCI_QUALITY_LINK_LOCAL] = "link-local", [GCI_QUALITY_FAR] = "private, far",
    [GCI_QUALITY_ROUTED] = "private, routed", [GCI_QUALITY_OUTWARD] = "outward", [GCI_QUALITY_PRIVATE] = "private",
    [GCI_QUALITY_PUBLIC] = "public", [GCI_QUALITY_NEAR] = "public, near"
};

static const char *const sel_why_text[GCI_WHYS] = {
    [GCI_WHY_FAMILY] = "no address family in common",
    [GCI_WHY_SHARED] = "another host exports the same address",
    [GCI_WHY_COLLISION] = "private network in which two hosts export the same address",
    [GCI_WHY_OTHER_SITE] = "private network that another site has, too",
    [GCI_WHY_FAR] = "private address on another network, without a route of its own",
    [GCI_WHY_LINK_LOCAL] = "link-local",
    [GCI_WHY_OTHERS] = "not needed",
    [GCI_WHY_OWN] = "this host has that address itself",
    [GCI_WHY_NO_ROUTE] = "the kernel has no route to it",
    [GCI_WHY_UNKNOWN_ROUTE] = "which interface the kernel takes is not known",
    [GCI_WHY_OTHER_NIC] = "the route leaves by another interface",
    [GCI_WHY_CHOSEN] = "link",
    [GCI_WHY_SAME_HOST] = "same host"
};

GCI const char *gci_quality_text(enum gci_quality quality) { return sel_quality_text[quality]; }
GCI const char *gci_why_text(enum gci_why why) { return sel_why_text[why]; }

static void sel_tell_addr(gci_text *t, const sel_side *side, const sel_addr *a)
{
    char text[GCI_ADDR_TEXT];
    gci_addr addr = side->host->addr[a->from].addr;
    addr.scope = 0;
    gci_text_add(t, "%s/%u", gci_addr_text(&addr, text), (unsigned)a->prefix);
}

/* Some other host that exports the address; for texts only. */
static const char *sel_twin(const gci_addrsel *s, int host, int number)
{
    const gci_addr *addr = &s->host[host].addr[number].addr;
    for (int h = 0; h < s->hosts; h++)
        for (int i = 0; i < sel_addrs(&s->host[h]) && h != host; i++)
            if (gci_addr_equal(&s->host[h].addr[i].addr, addr) && s->host[h].addr[i].addr.port == addr->port)
                return s->host[h].name;
    return "another host";
}

GCI void gci_addrsel_tell_address(const gci_addrsel *s, int host, int i, gci_text *t)
{
    static const char *const class_text[] = { "of no use", "link-local", "private", "public" };
    const gci_ifaddr *a = &s->host[host].addr[i];
    uint8_t mark = s->mark[s->first[host] + i];
    enum gci_class class = sel_class(a);
    char text[GCI_ADDR_TEXT];
    gci_addr addr = a->addr;

    addr.scope = 0;
    gci_text_add(t, "%s/%u %s%s%s", gci_addr_text(&addr, text), (unsigned)a->prefix, class_text[class],
        a->flags & GCI_IF_DEPRECATED ? ", deprecated" : "", a->flags & GCI_IF_TEMPORARY ? ", temporary" : "");
    if (mark & SEL_SHARED)
        gci_text_add(t, ", also of %s", sel_twin(s, host, i));
    if (class == GCI_CLASS_PRIVATE && mark & SEL_FORBIDDEN)
        gci_text_add(t, ", network forbidden");
}

static void sel_tell_side(const gci_addrsel *s, const sel_side *side, gci_text *t)
{
    gci_text_add(t, "%s", side->host->name);
    gci_text_add(t, side->site ? ", site %llu%s\n" : ", at an unknown site\n", (unsigned long long)(side->site & ~GCI_SITE_NAT),
        side->site & GCI_SITE_NAT ? ", behind a NAT" : "");
    for (int i = 0; i < side->nics; i++) {
        const gci_ifaddr *first = side->nic[i].first;
        gci_text_add(t, "  %s", first->name);
        gci_text_add(t, first->speed ? ", %u Mbit/s\n" : "\n", (unsigned)first->speed);
        for (int b = 0; b < side->addrs; b++)
            if (side->addr[b].nic == i) {
                gci_text_add(t, "    ");
                gci_addrsel_tell_address(s, (int)(side->host - s->host), side->addr[b].from, t);
                gci_text_add(t, "\n");
            }
    }
}

static void sel_tell_edges(gci_addrsel *s, gci_text *t)
{
    for (int i = 0; i < s->mine.nics; i++)
        for (int j = 0; j < s->theirs.nics; j++) {
            const sel_edge *e = sel_edge_at(s, i, j);
            gci_text_add(t, "  %s - %s: %s", sel_nic_name(&s->mine, i), sel_nic_name(&s->theirs, j),
                sel_quality_text[sel_quality(e)]);
            if (e->best) {
                gci_text_add(t, ", ");
                sel_tell_addr(t, &s->mine, sel_source_of(s, e));
                gci_text_add(t, " - ");
                sel_tell_addr(t, &s->theirs, sel_target_of(s, e));
            }
            gci_text_add(t, ": %s\n", sel_why_text[e->why]);
        }
}

GCI void gci_addrsel_explain(gci_addrsel *s, gci_text *t)
{
    char to[GCI_ADDR_TEXT], from[GCI_ADDR_TEXT];

    sel_tell_side(s, &s->mine, t);
    sel_tell_side(s, &s->theirs, t);
    gci_text_add(t, "edges\n");
    if (s->low != s->high)
        sel_tell_edges(s, t);
    gci_text_add(t, "targets\n");
    for (int i = 0; i < s->choice.targets; i++) {
        const gci_target *g = &s->choice.target[i];
        gci_text_add(t, "  %s", gci_addr_text(&g->addr, to));
        if (g->my_name)
            gci_text_add(t, " by %s", g->my_name);
        if (g->source.family)
            gci_text_add(t, " from %s", gci_addr_text(&g->source, from));
        gci_text_add(t, ": %s%s%s%s\n", sel_quality_text[g->quality],
            g->stripes ? ", stripes" : g->link ? ", does not stripe" : "",
                     g->bind ? ", bound" : "", g->last ? ", last resort" : "");
    }
    if (!s->choice.targets)
        gci_text_add(t, "  none\n");
}

/* Why nothing better than link-local addresses joins two interfaces. */
static void sel_no_better(const gci_addrsel *s, int mine, int theirs, gci_edge_view *e)
{
    e->why = GCI_WHY_FAMILY;
    for (int i = 0; i < s->mine.addrs; i++)
        for (int b = 0; b < s->theirs.addrs; b++) {
            const sel_addr *x = &s->mine.addr[i], *y = &s->theirs.addr[b];
            if (x->nic != mine || y->nic != theirs || x->family != y->family)
                continue;
            bool near = sel_near(x, y);
            unsigned verdict = sel_judge(s, x, y, near);
            if (verdict < SEL_VERDICT(GCI_QUALITY_LINK_LOCAL, 0)) {
                e->why = verdict > e->why ? (uint8_t)verdict : e->why;
                e->near |= near;
            }
        }
}

GCI bool gci_addrsel_edge(gci_addrsel *s, int mine, int theirs, gci_edge_view *out)
{
    if (s->low == s->high || mine >= s->mine.nics || theirs >= s->theirs.nics)
        return false;
    const sel_edge *e = sel_edge_at(s, mine, theirs);
    *out = (gci_edge_view){ .my_name = sel_nic_name(&s->mine, mine), .their_name = sel_nic_name(&s->theirs, theirs),
                            .quality = (uint8_t)sel_quality(e), .why = e->why };
    if (out->quality <= GCI_QUALITY_LINK_LOCAL && e->why <= GCI_WHY_LINK_LOCAL)
        sel_no_better(s, mine, theirs, out);
    return true;
}

/* At most as many addresses as a line bears. */
static void sel_tell_offer(gci_text *t, const sel_side *side)
{
    enum { MOST = 3 };
    gci_text_add(t, "%s has ", side->host->name);
    for (int i = 0; i < side->addrs && i < MOST; i++) {
        gci_text_add(t, i ? ", " : "");
        sel_tell_addr(t, side, &side->addr[i]);
        gci_text_add(t, " (%s)", sel_nic_name(side, side->addr[i].nic));
    }
    if (side->addrs > MOST)
        gci_text_add(t, " and %d more", side->addrs - MOST);
    if (!side->addrs)
        gci_text_add(t, "no address that others could reach");
}

/* The reason is that of the address which came closest. Names and reason first: a short line loses but addresses. */
GCI void gci_addrsel_nothing(const gci_addrsel *s, gci_text *t)
{
    enum gci_why why = GCI_WHY_FAMILY;
    for (int i = 0; i < s->theirs.addrs; i++)
        if (s->theirs.addr[i].why > why && s->theirs.addr[i].why != GCI_WHY_LINK_LOCAL)
            why = s->theirs.addr[i].why;
    gci_text_add(t, "%s cannot connect to %s", s->mine.host->name, s->theirs.host->name);
    if (s->mine.addrs && s->theirs.addrs)
        gci_text_add(t, ", %s", sel_why_text[why]);
    gci_text_add(t, ": ");
    sel_tell_offer(t, &s->mine);
    gci_text_add(t, "; ");
    sel_tell_offer(t, &s->theirs);
}
