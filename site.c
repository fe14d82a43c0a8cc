/* site.c: which hosts are at one site (pure).
 * SPDX-License-Identifier: MIT
 *
 * A site is where a private address means one host. addrsel.c asks for it: two labs that both use 192.168.1.0/24 may each keep
 * it inside, and none looks for the other's hosts in its own. Nothing is sent to find out. Hosts are at one site that
 *
 *   - have one gate: the router through which their traffic leaves is the same;
 *   - were seen at one address that is not theirs: one NAT (or several behind each other) stands before them. The host that has
 *     that address itself is that NAT, a lab's head node. A private address says so only of the host that was itself seen there,
 *     for elsewhere others have it, too;
 *   - were seen at a private address of their own: nothing was changed on the way, so that this address means them where rank
 *     0 is. Not if it is that of a tunnel, which comes from anywhere.
 *
 *           lab A, with rank 0          |               | lab B: all are seen at 198.51.100.7, of which none of them
 *     a1, a2: seen at 192.168.1.2, .3 --+-- internet ---+-- knows. If rank 0 is elsewhere, so are those of A, at
 *     of their own                      |               | another such address.
 *
 * All this is joined by union and find, so a NAT that has several addresses is one site if its hosts know one gate, and two homes
 * behind the one address of their provider are one site as well. Such hosts are then taken to collide where they do not,
 * which costs a private network; it is as if their site were not known.
 *
 * What says nothing: loopback, and an address of rank 0's own host (a tunnel ends there, or something that passes connections
 * on); IPv6 addresses that are not on the card (nobody translates them: it was left out there); a public address of one's own.
 * Nor does a gate behind which some host has no address for itself: as at the gates that user-mode networks and clouds make up,
 * which are alike everywhere.
 *
 * Different sites are likely not the same, but sure it is not: racks have routers of their own and yet a network in common. What
 * adds weight is a NAT, seen before two hosts at least: GCI_SITE_NAT.
 */
#include "gridcomm_int.h"

/* What hosts are grouped by. No padding: compared as a whole. */
typedef struct site_key { uint64_t gate, high, low, rest; } site_key;
enum site_by { SITE_BY_FACE, SITE_BY_GATE, SITE_BY_SEEN };      /* face: an address behind a gate */
enum { SITE_KNOWN = 1, SITE_FACELESS = 2, SITE_NAT = 4 };

/* number: of an address, host * GCI_IFADDRS_MAX + its place there. */
typedef struct site_finder {
    const gci_whereabouts *host;
    int       hosts;
    enum site_by by;
    int32_t  *parent;           /* [hosts] towards the lowest host of its set */
    uint8_t  *mark;             /* [hosts] */
    uint64_t *shared;           /* [hosts] a bit for each address that another host behind the same gate has */
    uint32_t *table;            /* [mask + 1] hash table: number + 1 of the first with that key */
    uint32_t  mask;
} site_finder;

/* ---- addresses ------------------------------------------------------------------------------------------------------- */

/* Documentation and benchmark networks count as public, for which they only ever stand in. */
static enum gci_class site_class4(const uint8_t *ip)
{
    if (ip[0] == 0 || ip[0] == 127 || ip[0] >= 224)
        return GCI_CLASS_NOWHERE;             /* this network, loopback, multicast, reserved, broadcast */
    if (ip[0] == 169 && ip[1] == 254)
        return GCI_CLASS_LINK_LOCAL;
    if (ip[0] == 10 || (ip[0] == 172 && (ip[1] & 0xf0) == 16) || (ip[0] == 192 && ip[1] == 168)     /* RFC 1918 */
        || (ip[0] == 100 && (ip[1] & 0xc0) == 64)                                                   /* RFC 6598 */
        || (ip[0] == 192 && ip[1] == 0 && ip[2] == 0))          /* RFC 6890: every DS-Lite host has the same */
        return GCI_CLASS_PRIVATE;
    return GCI_CLASS_PUBLIC;
}

static enum gci_class site_class6(const uint8_t *ip)
{
    if (ip[0] <= 1 || ip[0] == 0xff)
        return GCI_CLASS_NOWHERE;             /* unspecified, loopback, mapped IPv4, discard; multicast */
    if (ip[0] == 0xfe && (ip[1] & 0xc0) == 0x80)
        return GCI_CLASS_LINK_LOCAL;
    if ((ip[0] & 0xfe) == 0xfc || (ip[0] == 0xfe && (ip[1] & 0xc0) == 0xc0))
        return GCI_CLASS_PRIVATE;             /* RFC 4193; site-local of old */
    return GCI_CLASS_PUBLIC;
}

GCI enum gci_class gci_addr_class(const gci_addr *a)
{
    return a->family == 4 ? site_class4(a->ip) : a->family == 6 ? site_class6(a->ip) : GCI_CLASS_NOWHERE;
}

/* ---- groups ---------------------------------------------------------------------------------------------------------- */

static int site_addrs(const gci_whereabouts *h)
{
    return h->addrs < GCI_IFADDRS_MAX ? h->addrs : GCI_IFADDRS_MAX;
}

static site_key site_key_of_addr(const gci_addr *a)
{
    site_key k = { .rest = a->family };
    size_t half = a->family == 4 ? 4 : 8;
    memcpy(&k.high, a->ip, half);
    if (a->family == 6)
        memcpy(&k.low, a->ip + half, half);
    return k;
}

static site_key site_key_of(const site_finder *f, uint32_t number)
{
    const gci_whereabouts *h = &f->host[number / GCI_IFADDRS_MAX];
    const gci_addr *a;
    site_key k = { .gate = h->gate };
    if (f->by == SITE_BY_SEEN)
        return site_key_of_addr(&h->seen);
    if (f->by == SITE_BY_FACE) {
        a = &h->addr[number % GCI_IFADDRS_MAX].addr;
        k = site_key_of_addr(a);
        k.gate = h->gate;
        k.rest |= (uint64_t)a->port << 8;       /* GRIDCOMM_ADVERTISE: several share an address, not a port */
    }
    return k;
}

/* Where that key stands in the table, or is to stand. */
static uint32_t *site_slot(const site_finder *f, const site_key *key)
{
    uint32_t at = (uint32_t)gci_mix(gci_mix(gci_mix(key->gate ^ key->rest) + key->high) + key->low) & f->mask;
    for (; f->table[at]; at = (at + 1) & f->mask) {
        site_key other = site_key_of(f, f->table[at] - 1);
        if (memcmp(&other, key, sizeof other) == 0)
            break;
    }
    return &f->table[at];
}

/* The first address of the group that this one is in; it may be the first itself. */
static uint32_t site_first(site_finder *f, int host, int i)
{
    uint32_t number = (uint32_t)host * GCI_IFADDRS_MAX + (uint32_t)i;
    site_key key = site_key_of(f, number);
    uint32_t *slot = site_slot(f, &key);
    if (!*slot)
        *slot = number + 1;
    return *slot - 1;
}

static int site_first_host(site_finder *f, int host)
{
    return (int)(site_first(f, host, 0) / GCI_IFADDRS_MAX);
}

static void site_group_by(site_finder *f, enum site_by by)
{
    memset(f->table, 0, (f->mask + (size_t)1) * sizeof *f->table);
    f->by = by;
}

static int site_root(site_finder *f, int host)
{
    while (f->parent[host] != host) {
        f->parent[host] = f->parent[f->parent[host]];
        host = f->parent[host];
    }
    return host;
}

static void site_join(site_finder *f, int a, int b)
{
    int x = site_root(f, a), y = site_root(f, b);
    f->parent[x > y ? x : y] = x > y ? y : x;
    f->mark[a] |= SITE_KNOWN;
    f->mark[b] |= SITE_KNOWN;
}

/* ---- gates ----------------------------------------------------------------------------------------------------------- */

/* Addresses by which a host can be told from others on its network. User-mode networks give out private ones of IPv6 at random,
 * so these count only where there is nothing else. */
static uint64_t site_faces(const gci_whereabouts *h)
{
    uint64_t faces[2] = { 0 };
    for (int i = 0; i < site_addrs(h); i++) {
        enum gci_class class = gci_addr_class(&h->addr[i].addr);
        if (class >= GCI_CLASS_PRIVATE && !(h->addr[i].flags & GCI_IF_LOOPBACK))
            faces[class == GCI_CLASS_PRIVATE && h->addr[i].addr.family == 6] |= UINT64_C(1) << i;
    }
    return faces[0] ? faces[0] : faces[1];
}

/* An address that stands on its host twice counts once. */
static void site_mark_shared(site_finder *f, int host)
{
    uint64_t faces = f->host[host].gate ? site_faces(&f->host[host]) : 0;
    for (int i = 0; i < site_addrs(&f->host[host]); i++) {
        uint32_t mine = (uint32_t)host * GCI_IFADDRS_MAX + (uint32_t)i, first = faces >> i & 1 ? site_first(f, host, i) : mine;
        if (first == mine)
            continue;
        f->shared[host] |= UINT64_C(1) << i;
        if (first / GCI_IFADDRS_MAX != (uint32_t)host)
            f->shared[first / GCI_IFADDRS_MAX] |= UINT64_C(1) << first % GCI_IFADDRS_MAX;
    }
}

static void site_by_gate(site_finder *f)
{
    site_group_by(f, SITE_BY_FACE);
    for (int h = 0; h < f->hosts; h++)
        site_mark_shared(f, h);
    site_group_by(f, SITE_BY_GATE);
    for (int h = 0; h < f->hosts; h++) {
        uint64_t faces = f->host[h].gate ? site_faces(&f->host[h]) : 0;
        if (faces && !(faces & ~f->shared[h]))
            f->mark[site_first_host(f, h)] |= SITE_FACELESS;
    }
    for (int h = 0; h < f->hosts; h++) {
        int first = f->host[h].gate ? site_first_host(f, h) : 0;
        if (f->host[h].gate && !(f->mark[first] & SITE_FACELESS))
            site_join(f, first, h);
    }
}

/* ---- where they were seen ---------------------------------------------------------------------------------------------- */

/* One with a port is a NAT's, which passes that port on (GRIDCOMM_ADVERTISE). */
static const gci_ifaddr *site_own(const gci_whereabouts *h, const gci_addr *a)
{
    for (int i = 0; i < site_addrs(h); i++)
        if (!h->addr[i].addr.port && gci_addr_equal(&h->addr[i].addr, a))
            return &h->addr[i];
    return NULL;
}

/* What the address says at which it was seen. */
enum site_sight { SITE_NOTHING, SITE_BEHIND, SITE_AT_PUBLIC, SITE_AT_PRIVATE, SITE_BY_TUNNEL };
static enum site_sight site_sight_of(const site_finder *f, int host)
{
    const gci_whereabouts *h = &f->host[host];
    const gci_ifaddr *own = site_own(h, &h->seen);
    enum gci_class class = gci_addr_class(&h->seen);

    if (class < GCI_CLASS_PRIVATE || (host > 0 && site_own(&f->host[0], &h->seen)))
        return SITE_NOTHING;
    if (own)
        return class == GCI_CLASS_PUBLIC ? SITE_AT_PUBLIC : own->flags & GCI_IF_POINT_TO_POINT ? SITE_BY_TUNNEL : SITE_AT_PRIVATE;
    return h->seen.family == 6 || (host == 0 && class != GCI_CLASS_PUBLIC) ? SITE_NOTHING : SITE_BEHIND;
}

/* The NAT's own host, if it takes part. */
static void site_join_nat(site_finder *f, int host)
{
    const gci_whereabouts *h = &f->host[host];
    for (int i = 0; i < site_addrs(h); i++) {
        const gci_addr *a = &h->addr[i].addr;
        if (gci_addr_class(a) != GCI_CLASS_PUBLIC && !(gci_addr_equal(a, &h->seen) && site_sight_of(f, host) == SITE_AT_PRIVATE))
            continue;
        site_key key = site_key_of_addr(a);
        uint32_t number = *site_slot(f, &key);
        if (number)
            site_join(f, (int)((number - 1) / GCI_IFADDRS_MAX), host);
    }
}

static void site_by_seen(site_finder *f)
{
    site_group_by(f, SITE_BY_SEEN);
    for (int h = 0; h < f->hosts; h++) {
        enum site_sight sight = site_sight_of(f, h);
        if (sight == SITE_AT_PRIVATE)
            site_join(f, 0, h);
        if (sight != SITE_BEHIND)
            continue;
        int first = site_first_host(f, h);
        if (first != h && gci_addr_class(&f->host[h].seen) == GCI_CLASS_PUBLIC)
            f->mark[h] |= SITE_NAT;
        site_join(f, first, h);
    }
    for (int h = 0; h < f->hosts; h++)
        site_join_nat(f, h);
}

/* ---- numbers ----------------------------------------------------------------------------------------------------------- */

/* Counted from 1, in the order in which they are met. */
static void site_number(site_finder *f, uint64_t site[])
{
    uint64_t sites = 0;
    for (int h = 0; h < f->hosts; h++)
        f->mark[site_root(f, h)] |= f->mark[h] & SITE_NAT;
    for (int h = 0; h < f->hosts; h++) {
        int root = site_root(f, h);         /* the lowest: it has its number already */
        if (root != h)
            site[h] = site[root];
        else
            site[h] = !(f->mark[h] & SITE_KNOWN) ? 0 : ++sites | (f->mark[h] & SITE_NAT ? GCI_SITE_NAT : 0);
    }
}

GCI int gci_sites(gci_env *env, const gci_whereabouts *host, int hosts, uint64_t site[])
{
    size_t n = (size_t)hosts, addrs = n, slots = 16;

    for (int h = 0; h < hosts; h++)
        addrs += (size_t)site_addrs(&host[h]);
    while (slots < 2 * addrs)
        slots *= 2;
    site_finder f = { .host = host, .hosts = hosts, .mask = (uint32_t)(slots - 1) };
    if (!(f.shared = gci_alloc(env, n * (sizeof *f.shared + sizeof *f.parent + sizeof *f.mark) + slots * sizeof *f.table)))
        return GC_ERR_NOMEM;
    f.table = (uint32_t *)(void *)(f.shared + n);
    f.parent = (int32_t *)(void *)(f.table + slots);
    f.mark = (uint8_t *)(f.parent + n);
    for (int h = 0; h < hosts; h++)
        f.parent[h] = h;
    site_by_gate(&f);
    site_by_seen(&f);
    site_number(&f, site);
    gci_free(env, f.shared);
    return GC_OK;
}
