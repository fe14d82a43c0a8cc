/* test_addrsel.c: which interface talks to which address: set-ups as plain data, and the matching against two slow ones.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random parts; GCT_ROUNDS says how many matchings are compared.
 *
 * A host is written as   name: interface[/Mbit] address/prefix[flags] ...; interface ...   flags: t temporary, d deprecated,
 * p point-to-point. Its kernel has the routes of its interfaces' networks and those written as  network/prefix interface; ...
 * A choice is written as its targets in order:
 *     eth0=1.2.3.4   a link that stripes         eth0#1.2.3.4   one that does if the socket is bound
 *     eth0~1.2.3.4   a link that does not        +1.2.3.4       what else could connect        ?1.2.3.4   a last resort
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

enum { HOSTS = 8, ADDRS = 40, ROUTES = 16, PORT = 7000 };

static gci_env env;
static uint32_t random32(void)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)(random_state >> 32);
}

/* ---- worlds of a few hosts ---- */

typedef struct route { gci_addr net; unsigned prefix; uint32_t index; } route;
enum ask { ASK, ASK_AND_BIND, ASK_IN_VAIN, ASK_NOBODY };
typedef struct world {
    gci_sys  sys;               /* first: of which route() finds the rest */
    int      hosts;
    gci_host host[HOSTS];
    gci_ifaddr addr[HOSTS][ADDRS];
    int      routes[HOSTS];
    route    route[HOSTS][ROUTES];
    /* of the host that looks */
    int      me;
    enum ask ask;
    int      asked;
} world;

static const char *word(const char **at, char *out, size_t room)
{
    size_t n;
    *at += strspn(*at, " ");
    n = strcspn(*at, " ;");
    assert_true(n < room);
    memcpy(out, *at, n);
    out[n] = 0;
    *at += n;
    return out;
}

static unsigned prefix_of(const char *text, gci_addr *addr, const char **flags)
{
    char ip[64];
    size_t n = strcspn(text, "/");
    char *end;
    memcpy(ip, text, n);
    ip[n] = 0;
    *addr = (gci_addr){ 0 };
    assert_int_equal(gci_addr_parse(ip, addr), GC_OK);
    unsigned prefix = (unsigned)strtoul(text + n + 1, &end, 10);
    if (flags)
        *flags = end;
    return prefix;
}

static void read_host(world *w, const char *text)
{
    gci_host *h = &w->host[w->hosts];
    gci_ifaddr *list = w->addr[w->hosts++];
    const char *at = text, *flags;
    char name[64];
    uint32_t index = 0;

    *h = (gci_host){ .addr = list };
    word(&at, name, sizeof name);
    name[strlen(name) - 1] = 0;             /* the colon */
    snprintf(h->name, sizeof h->name, "%s", name);
    snprintf(h->id, sizeof h->id, "id-%.40s", name);
    while (*at) {
        gci_ifaddr a = { .index = ++index };
        char *slash;
        word(&at, name, sizeof name);
        if ((slash = strchr(name, '/'))) {
            a.speed = (uint32_t)strtoul(slash + 1, NULL, 10);
            *slash = 0;
        }
        snprintf(a.name, sizeof a.name, "%.15s", name);
        while (*word(&at, name, sizeof name)) {
            a.prefix = (uint8_t)prefix_of(name, &a.addr, &flags);
            a.flags = (uint8_t)((strchr(flags, 't') ? GCI_IF_TEMPORARY : 0) | (strchr(flags, 'd') ? GCI_IF_DEPRECATED : 0)
                                | (strchr(flags, 'p') ? GCI_IF_POINT_TO_POINT : 0) | (strchr(flags, 'l') ? GCI_IF_LOOPBACK : 0));
            assert_true(h->addrs < ADDRS);
            list[h->addrs++] = a;
        }
        at += *at == ';';
    }
}

static uint32_t index_of(const gci_host *h, const char *name)
{
    for (int i = 0; i < h->addrs; i++)
        if (strcmp(h->addr[i].name, name) == 0)
            return h->addr[i].index;
    fail_msg("%s has no interface %s", h->name, name);
    return 0;
}

static void read_routes(world *w, int host, const char *text)
{
    char name[64];
    for (const char *at = text; at && *at; at += *at == ';') {
        route *r = &w->route[host][w->routes[host]++];
        r->prefix = prefix_of(word(&at, name, sizeof name), &r->net, NULL);
        r->index = index_of(&w->host[host], word(&at, name, sizeof name));
    }
}

static bool begins_alike(const gci_addr *a, const gci_addr *b, unsigned bits)
{
    if (a->family != b->family)
        return false;
    for (unsigned i = 0; i < bits; i++)
        if ((a->ip[i / 8] ^ b->ip[i / 8]) & 0x80 >> i % 8)
            return false;
    return true;
}

/* Longest prefix; of equal ones the first, the interfaces' own networks before the others. */
static gci_route_answer ask(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    world *w = (world *)(void *)sys;
    const gci_host *h = &w->host[w->me];
    gci_route_answer best = { GCI_ROUTE_NONE, 0 };
    int longest = -1;
    w->asked++;
    assert_int_equal(to->port, PORT);
    if (w->ask == ASK_IN_VAIN || (bound && w->ask != ASK_AND_BIND))
        return (gci_route_answer){ GCI_ROUTE_UNKNOWN, 0 };
    for (int i = 0; i < h->addrs; i++) {
        const gci_ifaddr *a = &h->addr[i];
        if ((!bound || a->index == bound) && (int)a->prefix > longest && a->prefix && a->prefix < (a->addr.family == 4 ? 32 : 128)
            && begins_alike(&a->addr, to, a->prefix)) {
            longest = a->prefix;
            best = (gci_route_answer){ GCI_ROUTE_SPECIFIC, a->index };
        }
    }
    for (int i = 0; i < w->routes[w->me]; i++) {
        const route *r = &w->route[w->me][i];
        if ((!bound || r->index == bound) && (int)r->prefix > longest && begins_alike(&r->net, to, r->prefix)) {
            longest = (int)r->prefix;
            best = (gci_route_answer){ r->prefix ? GCI_ROUTE_SPECIFIC : GCI_ROUTE_DEFAULT, r->index };
        }
    }
    return best;
}

static const char *choice_text(const gci_choice *c, char *out, size_t room)
{
    gci_text t;
    gci_text_begin(&t, out, room);
    uint64_t mine = 0, theirs = 0;
    for (int i = 0; i < c->links; i++) {
        assert_false(mine >> c->target[i].mine & 1 || theirs >> c->target[i].theirs & 1);
        mine |= UINT64_C(1) << c->target[i].mine;
        theirs |= UINT64_C(1) << c->target[i].theirs;
    }
    for (int i = 0; i < c->targets; i++) {
        const gci_target *g = &c->target[i];
        char addr[GCI_ADDR_TEXT];
        gci_addr to = g->addr;
        assert_int_equal(to.port, PORT);
        to.port = 0;
        gci_text_add(&t, "%s%s%c%s", i ? " " : "", g->link ? g->my_name : "",
                     g->last ? '?' : !g->link ? '+' : g->bind ? '#' : g->stripes ? '=' : '~', gci_addr_text(&to, addr));
        assert_int_equal(g->stripes, i < c->links);
        assert_true(g->link || !g->stripes);
        assert_true(g->stripes || !g->bind);
        assert_true(g->link == (g->source.family != 0));
        for (int k = 0; k < i; k++)
            assert_false(gci_addr_equal(&c->target[k].addr, &g->addr) && c->target[k].addr.scope == g->addr.scope);
    }
    assert_true(t.used < room);
    return out;
}

static const gci_choice *look_and_choose(gci_addrsel *s, const gci_onlooker *look, int peer)
{
    gci_addrsel_look(s, look);
    return gci_addrsel_choose(s, peer, PORT);
}

static const gci_choice *choose(world *w, gci_addrsel *s, int me, int peer)
{
    gci_onlooker look = { .host = me, .own = w->host[me].addr, .owns = w->host[me].addrs,
                          .sys = w->ask == ASK_NOBODY ? NULL : &w->sys };
    w->me = me;
    w->sys.route = ask;
    return look_and_choose(s, &look, peer);
}

/* ---- set-ups ---- */

#define NAT(site) (GCI_SITE_NAT | (site))

typedef struct setup {
    const char *what;
    const char *host[HOSTS];
    const char *routes[HOSTS];
    uint64_t    site[HOSTS];    /* 0: unknown */
    enum ask    ask;
    const char *seen[4];        /* the choices of host 0 for 1, of 1 for 0, of 0 for 2, of 2 for 0; NULL: no matter */
} setup;

static void make_world(world *w, const setup *u)
{
    memset(w, 0, sizeof *w);
    for (int i = 0; i < HOSTS && u->host[i]; i++) {
        read_host(w, u->host[i]);
        read_routes(w, i, u->routes[i]);
        w->host[i].site = u->site[i];
    }
    w->ask = u->ask;
}

static const setup setups[] = {
    /* Peiselt 2007, chapter 4 */
    { "private IPv4", { "a: eth0 192.168.1.2/24", "b: eth0 192.168.1.3/24", "c: eth0 192.168.1.4/24" }, .seen = {
      "eth0=192.168.1.3", "eth0=192.168.1.2", "eth0=192.168.1.4", "eth0=192.168.1.2" } },
    { "IPv6 only", { "a: eth0 2001:db8:1::2/64 fe80::2/64", "b: eth0 2001:db8:1::3/64 fe80::3/64" }, .seen = {
      "eth0=2001:db8:1::3 ?fe80::3%1", "eth0=2001:db8:1::2 ?fe80::2%1" } },
    { "dual stack", { "a: eth0 192.168.1.2/24 2001:db8:1::2/64", "b: eth0 192.168.1.3/24 2001:db8:1::3/64" }, .seen = {
      "eth0=2001:db8:1::3 +192.168.1.3", "eth0=2001:db8:1::2 +192.168.1.2" } },
    { "routed private networks", { "a: eth0 10.1.0.2/16", "b: eth0 10.2.0.2/16" },
      { "10.2.0.0/16 eth0", "10.0.0.0/8 eth0" }, .seen = { "eth0=10.2.0.2", "eth0=10.1.0.2" } },
    { "routed private networks, two NICs each", { "a: eth0 10.1.0.2/16; eth1 10.3.0.2/16",
      "b: eth0 10.2.0.2/16; eth1 10.4.0.2/16" },
      { "10.2.0.0/16 eth0; 10.4.0.0/16 eth1", "10.1.0.0/16 eth0; 10.3.0.0/16 eth0" }, .seen = {
      "eth0=10.2.0.2 eth1=10.4.0.2", "eth0=10.1.0.2 +10.3.0.2" } },
    { "private over the default gateway", { "a: eth0 10.1.0.2/16", "b: eth0 10.2.0.2/16" },
      { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, .seen = { "?10.2.0.2", "?10.1.0.2" } },
    { "unrouted private networks and IPv6",
      { "a: eth0 192.168.1.2/24 2001:db8:1::2/64", "b: eth0 192.168.2.2/24 2001:db8:2::2/64" },
      { "0.0.0.0/0 eth0; ::/0 eth0", "::/0 eth0" }, .seen = {
      "eth0=2001:db8:2::2 ?192.168.2.2", "eth0=2001:db8:1::2 ?192.168.1.2" } },
    { "two NICs", { "a: eth0/1000 192.168.17.2/24; eth1/1000 192.168.18.2/24",
      "b: eth0/1000 192.168.17.3/24; eth1/1000 192.168.18.3/24" },
      .seen = { "eth0=192.168.17.3 eth1=192.168.18.3", "eth0=192.168.17.2 eth1=192.168.18.2" } },
    { "two NICs, cables crossed", { "a: eth0/1000 192.168.17.2/24; eth1/1000 192.168.18.2/24",
      "b: eth0/1000 192.168.18.3/24; eth1/1000 192.168.17.3/24" },
      .seen = { "eth0=192.168.17.3 eth1=192.168.18.3", "eth0=192.168.18.2 eth1=192.168.17.2" } },
    /* its chapter 2.4.3 and figures */
    { "2.4.3: both NICs must be used", { "a: eth0 193.175.13.2/24 2001:906:638:aa01::2/64; eth1 2001:906:638:bb01::2/64",
      "b: eth0 193.175.14.2/24; eth1 193.175.15.2/24 2001:906:638:bb02::2/64" },
      { "0.0.0.0/0 eth0; ::/0 eth1", "193.175.13.0/24 eth0; ::/0 eth1" }, .seen = {
      "eth0=193.175.14.2 eth1=2001:906:638:bb02::2 +193.175.15.2",
      "eth0=193.175.13.2 eth1=2001:906:638:bb01::2 +2001:906:638:aa01::2" } },
    { "Fig. 2.1: two clusters of the same private network, IPv6 between", { "a: eth0 192.168.1.1/24 2001:db8:a::1/64",
      "b: eth0 192.168.1.1/24 2001:db8:b::1/64", "c: eth0 192.168.1.2/24 2001:db8:a::2/64" }, { "::/0 eth0", "::/0 eth0",
        "::/0 eth0" },
      .seen = { "eth0=2001:db8:b::1", "eth0=2001:db8:a::1", "eth0=2001:db8:a::2", "eth0=2001:db8:a::1" } },
    { "Fig. 3.1: two networks inside each cluster, IPv6 between",
      { "a: eth0 10.1.0.1/24 2001:db8:a::1/64; eth1 10.1.1.1/24", "b: eth0 10.2.0.1/24 2001:db8:b::1/64; eth1 10.2.1.1/24",
        "c: eth0 10.1.0.2/24 2001:db8:a::2/64; eth1 10.1.1.2/24" }, { "::/0 eth0", "::/0 eth0", "::/0 eth0" },
      .seen = { "eth0=2001:db8:b::1 ?10.2.0.1", NULL, "eth0=2001:db8:a::2 eth1=10.1.1.2 +10.1.0.2", NULL } },
    /* what users meet today */
    { "docker0 and virbr0 on every host", { "a: docker0 172.17.0.1/16; eth0/1000 10.0.0.1/24; virbr0 192.168.122.1/24",
      "b: eth0/1000 10.0.0.2/24; docker0 172.17.0.1/16; virbr0 192.168.122.1/24" }, .seen = { "eth0=10.0.0.2",
        "eth0=10.0.0.1" } },
    { "docker0 on every host, one with a container that takes part", { "a: docker0 172.17.0.1/16; eth0 10.0.0.1/24",
      "b: eth0 172.17.0.2/16", "c: docker0 172.17.0.1/16; eth0 10.0.0.3/24" }, { NULL, "0.0.0.0/0 eth0" }, .seen = {
      "", "?10.0.0.1", "eth0=10.0.0.3", "eth0=10.0.0.1" } },
    { "two labs behind NATs, known sites", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24", "c: eth0 192.168.1.1/24",
      "d: eth0 192.168.1.3/24" }, { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0", "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" },
      { NAT(1), NAT(1), NAT(2), NAT(2) }, .seen = { "eth0=192.168.1.2", "eth0=192.168.1.1", "", "" } },
    { "two labs behind NATs, and no address is in both", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24",
      "c: eth0 192.168.1.3/24" }, .site = { NAT(1), NAT(1), NAT(2) },
      .seen = { "eth0=192.168.1.2", "eth0=192.168.1.1", "?192.168.1.3", "?192.168.1.1" } },
    { "a NAT with two addresses is two sites: not forbidden, but last", {
      "a: eth0 192.168.1.1/24 2001:db8:1::1/64; eth1 198.51.100.1/24", "b: eth0 192.168.1.2/24; eth1 198.51.100.2/24",
      "c: eth0 192.168.1.3/24 2001:db8:2::3/64" }, { "::/0 eth0", NULL, "::/0 eth0" }, { NAT(1), NAT(2), NAT(2) },
      .seen = { "eth1=198.51.100.2 ?192.168.1.2", NULL, "eth0=2001:db8:2::3 ?192.168.1.3",
      "eth0=2001:db8:1::1 +198.51.100.1 ?192.168.1.1" } },
    { "racks with routers of their own, and a network in common", { "a: eth0 198.51.100.1/26; ib0/100000 10.0.0.1/16",
      "b: eth0 198.51.100.65/26; ib0/100000 10.0.0.2/16" }, { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, { 1, 2 },
      .seen = { "eth0=198.51.100.65 ib0=10.0.0.2", "eth0=198.51.100.1 ib0=10.0.0.1" } },
    { "two clusters with a network of the same numbers", { "a: eth0 198.51.100.1/26; ib0/100000 10.0.0.1/16",
      "b: eth0 198.51.100.65/26; ib0/100000 10.0.0.2/16", "c: eth0 198.51.100.2/26; ib0/100000 10.0.0.2/16" },
      { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, { 1, 2, 1 },
      .seen = { "eth0=198.51.100.65", "eth0=198.51.100.1", "eth0=198.51.100.2 ib0=10.0.0.2", "eth0=198.51.100.1 ib0=10.0.0.1" } },
    { "a tunnel between sites", { "a: eth0 192.168.1.1/24; tun0 10.8.0.1/24p", "b: eth0 192.168.7.1/24; tun0 10.8.0.2/24p",
      "c: eth0 192.168.7.2/24 10.8.0.3/24" }, { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, { 1, NAT(2), NAT(2) },
      .seen = { "tun0=10.8.0.2 ?192.168.7.1", "tun0=10.8.0.1 ?192.168.1.1", "?192.168.7.2 ?10.8.0.3", NULL } },
    { "the same at unknown sites", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24", "c: eth0 192.168.1.1/24" },
      .seen = { "", "", "", "" } },
    { "one lab known, the other not", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24", "c: eth0 192.168.1.1/24" },
      .site = { 1, 1, 0 },
      .seen = { "", "", "", "" } },
    { "an unknown host without a twin is no harm to a lab", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24",
      "c: eth0 192.168.1.3/24" }, .site = { 1, 1, 0 }, .seen = { "eth0=192.168.1.2", "eth0=192.168.1.1", "eth0=192.168.1.3",
        "eth0=192.168.1.1" } },
    { "two known labs collide: a host that may be in either keeps out", { "a: eth0 192.168.1.1/24", "b: eth0 192.168.1.2/24",
      "c: eth0 192.168.1.5/24", "d: eth0 192.168.1.1/24" }, .site = { 1, 1, 0, 2 }, .seen = { "eth0=192.168.1.2",
        "eth0=192.168.1.1", "", "" } },
    { "a routed address that two sites have means neither", { "a: eth0 10.1.0.1/24", "b: eth0 10.2.0.1/24",
      "c: eth0 10.2.0.1/24" },
      { "10.2.0.0/24 eth0" }, .site = { 1, 2, 3 }, .seen = { "", NULL, "", NULL } },
    { "nor does it to one whose site is unknown", { "a: eth0 10.1.0.1/24", "b: eth0 10.2.0.1/24", "c: eth0 10.2.0.1/24" },
      { "10.2.0.0/24 eth0" }, .site = { 0, 2, 3 }, .seen = { "", NULL, "", NULL } },
    { "several addresses on one interface, some colliding", { "a: eth0 10.9.0.1/16 10.0.0.1/24 172.17.0.1/16",
      "b: eth0 172.17.0.1/16 10.9.0.1/16 10.0.0.2/24 172.17.0.2/16" }, .seen = { "eth0=10.0.0.2", "eth0=10.0.0.1" } },
    { "two NICs on one subnet", { "a: eth0/1000 10.0.0.1/24; eth1/1000 10.0.0.2/24",
      "b: eth0/1000 10.0.0.3/24; eth1/1000 10.0.0.4/24" },
      .seen = { "eth0=10.0.0.3 eth1~10.0.0.4", "eth0=10.0.0.1 eth1~10.0.0.2" } },
    { "two NICs on one subnet, bound", { "a: eth0/1000 10.0.0.1/24; eth1/1000 10.0.0.2/24",
      "b: eth0/1000 10.0.0.3/24; eth1/1000 10.0.0.4/24" },
      .ask = ASK_AND_BIND, .seen = { "eth0=10.0.0.3 eth1#10.0.0.4", "eth0=10.0.0.1 eth1#10.0.0.2" } },
    { "two public NICs and one default route", { "a: eth0 198.51.100.2/24; eth1 203.0.113.2/24",
      "b: eth0 192.0.2.2/25; eth1 192.0.2.130/25" },
      { "0.0.0.0/0 eth0", "0.0.0.0/0 eth1" }, .ask = ASK_AND_BIND, .seen = {
      "eth0=192.0.2.2 eth1~192.0.2.130", "eth1=203.0.113.2 eth0~198.51.100.2" } },
    { "routes cross the common matching", { "a: eth0 198.51.100.2/24; eth1 203.0.113.2/24",
      "b: eth0 192.0.2.2/25; eth1 192.0.2.130/25" },
      { "192.0.2.0/25 eth1; 192.0.2.128/25 eth0" }, .seen = { "eth0=192.0.2.130 eth1=192.0.2.2" } },
    { "/32 public addresses", { "a: eth0 198.51.100.2/32", "b: eth0 198.51.100.3/32" }, { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" },
      .seen = { "eth0=198.51.100.3", "eth0=198.51.100.2" } },
    { "/32 private addresses have no network", { "a: eth0 10.128.0.2/32", "b: eth0 10.128.0.3/32" }, { "0.0.0.0/0 eth0",
      "10.128.0.0/16 eth0" },
      .seen = { "?10.128.0.3", "eth0=10.128.0.2" } },
    { "point-to-point: the other end has a route of its own", { "a: tun0 10.8.0.1/32p", "b: tun0 10.8.0.2/32p",
      "c: tun0 10.8.0.3/32p" },
      { "10.8.0.2/32 tun0", "10.8.0.1/32 tun0" }, .seen = { "tun0=10.8.0.2", "tun0=10.8.0.1", "", "" } },
    { "point-to-point with a network", { "a: wg0 10.8.0.1/24p", "b: wg0 10.8.0.2/24p" }, .seen = { "wg0=10.8.0.2",
      "wg0=10.8.0.1" } },
    { "privacy and deprecated IPv6", { "a: eth0 2001:db8::a1/64td 2001:db8::a2/64d 2001:db8::a3/64t 2001:db8::a4/64",
      "b: eth0 2001:db8::b1/64t 2001:db8::b2/64 2001:db8::b3/64d" }, .seen = {
      "eth0=2001:db8::b2 +2001:db8::b1 +2001:db8::b3", "eth0=2001:db8::a4 +2001:db8::a3 +2001:db8::a2 +2001:db8::a1" } },
    { "only link-local", { "a: eth0 fe80::a/64; eth1 fe80::b/64", "b: eth0 fe80::c/64; eth1 fe80::d/64" }, .seen = {
      "?fe80::c%1 ?fe80::c%2 ?fe80::d%2 ?fe80::d%1", "?fe80::a%1 ?fe80::a%2 ?fe80::b%2 ?fe80::b%1" } },
    { "the same link-local address on every host", { "a: eth0 fe80::1/64; eth1 fe80::1/64",
      "b: eth0 fe80::1/64; eth1 fe80::1/64 fe80::5/64" },
      .seen = { "?fe80::5%2 ?fe80::5%1", "" } },
    { "one link-local address on two interfaces", { "a: eth0 fe80::1/64; eth1 fe80::1/64", "b: eth0 fe80::2/64" },
      .seen = { "?fe80::2%1 ?fe80::2%2", "?fe80::1%1" } },
    { "IPv4 link-local", { "a: eth0 169.254.1.1/16", "b: eth0 169.254.7.7/16" }, .seen = { "?169.254.7.7", "?169.254.1.1" } },
    { "loopback, multicast and the like lead nowhere", { "a: eth0 10.0.0.1/24; lo 127.0.0.1/8 ::1/128",
      "b: eth0 10.0.0.2/24 127.0.0.2/8 224.0.0.1/24 0.0.0.0/8 255.255.255.255/32 "
      "ff02::1/16 ::/128 ::1/128 240.0.0.1/4; dummy0 203.0.113.7/24l" },
      { "0.0.0.0/0 eth0" }, .seen = { "eth0=10.0.0.2" } },
    { "nothing between IPv4 and IPv6", { "a: eth0 10.0.0.1/24", "b: eth0 2001:db8::2/64" }, .seen = { "", "" } },
    { "a public address that two hosts export is not trusted, its network is", { "a: eth0 198.51.100.1/24; eth1 203.0.113.1/24",
      "b: eth0 198.51.100.2/24; eth1 203.0.113.9/24", "c: eth0 203.0.113.9/24" }, { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0",
        "0.0.0.0/0 eth0" },
      .seen = { "eth0=198.51.100.2", "eth0=198.51.100.1 +203.0.113.1", "", "?198.51.100.1 ?203.0.113.1" } },
    { "out through a NAT, not in", { "a: eth0 192.168.7.2/24; docker0 172.17.0.1/16",
      "b: eth0 198.51.100.2/24; docker0 172.17.0.1/16" },
      { "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, .seen = { "eth0=198.51.100.2", "?192.168.7.2" } },
    { "private beside public: both NICs, and no bridge", { "a: eth0 198.51.100.1/24; eth1 10.0.0.1/24; virbr0 192.168.122.1/24",
      "b: eth0 198.51.100.2/24; virbr0 192.168.122.1/24; eth1 10.0.0.2/24" }, .seen = {
      "eth0=198.51.100.2 eth1=10.0.0.2", "eth0=198.51.100.1 eth1=10.0.0.1" } },
    { "ULA: the same network, and another", { "a: eth0 fd00:1::1/64", "b: eth0 fd00:1::2/64", "c: eth0 fd00:2::2/64" }, { NULL,
      NULL, "::/0 eth0" },
      .seen = { "eth0=fd00:1::2", "eth0=fd00:1::1", "", "?fd00:1::1" } },
    { "ULA, routed: stable addresses first", { "a: eth0 fd00:1::a/64t fd00:1::b/64", "b: eth0 fd00:2::a/64d fd00:2::b/64" },
      { "fd00:2::/64 eth0" }, .seen = { "eth0=fd00:2::b +fd00:2::a", NULL } },
    { "no NAT is expected between ULA and public IPv6", { "a: eth0 fd00:1::1/64", "b: eth0 2001:db8::2/64" }, { "::/0 eth0",
      "::/0 eth0" },
      .seen = { "?2001:db8::2", "?fd00:1::1" } },
    { "unequal prefixes: each must be in the other's network", { "a: eth0 10.0.0.1/8", "b: eth0 10.1.0.2/16",
      "c: eth0 10.0.7.3/16" },
      .seen = { "?10.1.0.2", "", "eth0=10.0.7.3", "eth0=10.0.0.1" } },
    { "a prefix of 0 is no network", { "a: ppp0 10.0.0.1/0p", "b: ppp0 10.7.0.2/0p" }, { "0.0.0.0/0 ppp0" },
      .seen = { "?10.7.0.2", "" } },
    { "a network of another prefix collides for itself", { "a: eth0 10.0.0.1/24", "b: eth0 10.0.0.2/24", "c: eth0 10.9.9.9/8",
      "d: eth0 10.9.9.9/8" }, .seen = { "eth0=10.0.0.2", "eth0=10.0.0.1" } },
    { "inside a forbidden network of one's own nothing is looked for", { "a: docker0 172.17.0.1/16", "b: eth0 172.17.9.9/24",
      "c: docker0 172.17.0.1/16" }, { "0.0.0.0/0 docker0", "0.0.0.0/0 eth0" }, .seen = { "", "" } },
    { "nor inside another site's, if some address is in both", { "a: eth0 192.168.1.1/24; eth1 10.5.0.1/24",
      "b: eth0 192.168.1.9/24", "c: eth0 192.168.1.1/24" }, { "0.0.0.0/0 eth1", "0.0.0.0/0 eth0", "0.0.0.0/0 eth0" }, { 1, 2, 3 },
      .seen = { "", "?10.5.0.1", "", "?10.5.0.1" } },
    { "unequal prefixes at two sites", { "a: eth0 192.168.0.1/16", "b: eth0 192.168.1.9/24" }, .site = { 1, NAT(2) },
      .seen = { "?192.168.1.9", "" } },
    { "unequal prefixes at two sites, and some address is in both", { "a: eth0 192.168.0.1/16", "b: eth0 192.168.1.9/24",
      "c: eth0 192.168.0.1/16" }, .site = { 1, 2, 3 }, .seen = { "", "", "", "" } },
    { "a network that is private in part", { "a: eth0 192.168.0.1/8", "b: eth0 192.1.1.1/8" }, .seen = {
      "eth0=192.1.1.1", "eth0=192.168.0.1" } },
    { "faster NICs first, and of one fast and one slow the fast",
      { "a: eth0/100 10.0.0.1/24; eth1/10000 10.0.1.1/24; eth2/1000 10.0.2.1/24",
      "b: eth0/100 10.0.0.2/24; eth1/10000 10.0.1.2/24; eth2/1000 10.0.2.2/24" }, .seen = {
      "eth1=10.0.1.2 eth2=10.0.2.2 eth0=10.0.0.2", NULL } },
    { "one NIC here, a slow and a fast one there", { "a: eth0/10000 10.0.0.1/24",
      "b: eth0/100 10.0.0.2/24; eth1/1000 10.0.0.3/24" },
      .seen = { "eth0=10.0.0.3 +10.0.0.2", NULL } },
    { "no route at all to what looks good", { "a: eth0 10.0.0.1/24 2001:db8:1::1/64", "b: eth0 10.0.0.2/24 2001:db8:2::2/64" },
      .seen = { "eth0=10.0.0.2", "eth0=10.0.0.1" } },
    { "nobody to ask: own networks are known, the rest is not", { "a: eth0 198.51.100.1/24; eth1 10.0.0.1/24",
      "b: eth0 203.0.113.1/24; eth1 10.0.0.2/24" }, .ask = ASK_NOBODY, .seen = { "eth1=10.0.0.2 eth0~203.0.113.1", NULL } },
    { "a kernel that does not tell", { "a: eth0 198.51.100.1/24; eth1 10.0.0.1/24",
      "b: eth0 203.0.113.1/24; eth1 10.0.0.2/24" }, .ask = ASK_IN_VAIN, .seen = { "eth1=10.0.0.2 eth0~203.0.113.1", NULL } },
    { "the same host", { "a: eth0 10.0.0.1/24", "a: eth0 10.0.0.1/24" }, .seen = { "+unix +127.0.0.1 +::1",
      "+unix +127.0.0.1 +::1" } },
};

static gci_route_answer bound_only(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    (void)sys, (void)to;
    return bound ? (gci_route_answer){ GCI_ROUTE_SPECIFIC, bound } : (gci_route_answer){ GCI_ROUTE_NONE, 0 };
}

/* Both ends come to the same matching, mirrored; how many links. In their tables the two stand at places of their own. */
static int check_mirror(gci_addrsel *s, int me, int peer, gci_addrsel *t, int peer_there, int me_there)
{
    static gci_choice here;
    gci_sys sys = { .route = bound_only };
    gci_onlooker look = { .host = me, .sys = &sys };
    here = *look_and_choose(s, &look, peer);
    look.host = peer_there;
    const gci_choice *there = look_and_choose(t, &look, me_there);
    assert_int_equal(here.links, there->links);
    for (int i = 0; i < here.links; i++) {
        int k = 0;
        while (k < there->links && there->target[k].mine != here.target[i].theirs)
            k++;
        assert_true(k < there->links);
        assert_int_equal(there->target[k].theirs, here.target[i].mine);
        assert_int_equal(there->target[k].quality, here.target[i].quality);
        assert_true(gci_addr_equal(&there->target[k].addr, &here.target[i].source));
        assert_true(gci_addr_equal(&there->target[k].source, &here.target[i].addr));
    }
    return here.links;
}

static void check_setup(const setup *u)
{
    static const int pairs[4][2] = { { 0, 1 }, { 1, 0 }, { 0, 2 }, { 2, 0 } };
    static world w;
    char text[2048], explained[8192];
    gci_addrsel *s;
    make_world(&w, u);
    assert_int_equal(gci_addrsel_make(&env, w.host, w.hosts, &s), GC_OK);
    for (int p = 0; p < 4; p++) {
        gci_text t;
        if (!u->seen[p] || pairs[p][0] >= w.hosts || pairs[p][1] >= w.hosts)
            continue;
        choice_text(choose(&w, s, pairs[p][0], pairs[p][1]), text, sizeof text);
        gci_text_begin(&t, explained, sizeof explained);
        gci_addrsel_explain(s, &t);
        if (strcmp(text, u->seen[p]) != 0)
            fail_msg("%s: %s sees %s as \"%s\", not \"%s\"\n%s", u->what, w.host[pairs[p][0]].name, w.host[pairs[p][1]].name,
                text,
                     u->seen[p], explained);
    }
    for (int h = 1; h < w.hosts; h++)
        check_mirror(s, 0, h, s, h, 0);
    gci_addrsel_free(&env, s);
}

static void test_setups(void **state)
{
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(setups); i++)
        check_setup(&setups[i]);
    assert_int_equal(env.memory, 0);
}

/* Two hosts of 16 interfaces, the second with its cables the other way round. local: with nothing but link-local addresses on
 * them, and two more. */
static void make_sixteen(world *w, bool local)
{
    char text[2048];
    gci_text t;
    memset(w, 0, sizeof *w);
    for (int h = 0; h < 2; h++) {
        gci_text_begin(&t, text, sizeof text);
        gci_text_add(&t, "%c:", 'a' + h);
        for (int i = 0; i < 16; i++) {
            int cable = h ? 15 - i : i;
            gci_text_add(&t, "%s eth%d/1000", i ? ";" : "", i);
            if (local)
                gci_text_add(&t, " fe80::%d:%d/64", h + 1, cable);
            else
                gci_text_add(&t, " 10.0.%d.%d/24 2001:db8:%x::%d/64", cable, h + 1, (unsigned)cable, h + 1);
        }
        if (local)
            gci_text_add(&t, " 10.0.0.%d/24 10.0.1.%d/24", h + 1, h + 1);
        read_host(w, text);
    }
}

/* 16 interfaces with an address of each family: all are used, each address once, by as many questions. */
static void test_sixteen(void **state)
{
    static world w;
    char text[2048];
    gci_addrsel *s;
    (void)state;
    make_sixteen(&w, false);
    assert_int_equal(gci_addrsel_make(&env, w.host, 2, &s), GC_OK);
    const gci_choice *c = choose(&w, s, 0, 1);
    assert_int_equal(c->links, 16);
    assert_int_equal(c->targets, 32);
    assert_int_equal(w.asked, 16);
    for (int i = 0; i < 16; i++) {
        assert_int_equal(c->target[i].mine, i);
        assert_int_equal(c->target[i].theirs, 15 - i);
        assert_int_equal(c->target[i].quality, GCI_QUALITY_NEAR);
    }
    choice_text(c, text, sizeof text);
    gci_addrsel_free(&env, s);
}

/* An address that this host has but does not export is no target either. */
static void test_own(void **state)
{
    static world w;
    char text[256];
    gci_ifaddr own[2];
    gci_addrsel *s;
    (void)state;
    make_world(&w, &(setup){ .host = { "a: eth0 10.0.0.1/24", "b: eth0 10.0.0.2/24 10.0.0.3/24" } });
    assert_int_equal(gci_addrsel_make(&env, w.host, 2, &s), GC_OK);
    own[0] = w.addr[0][0];
    own[1] = w.addr[1][0];
    w.sys.route = ask;
    gci_onlooker look = { .host = 0, .own = own, .owns = 2, .sys = &w.sys };
    choice_text(look_and_choose(s, &look, 1), text, sizeof text);
    assert_string_equal(text, "eth0=10.0.0.3");
    gci_addrsel_free(&env, s);
}

/* Two hosts behind one gateway's address are told apart by the port that they advertise. */
static void test_advertised(void **state)
{
    static world w;
    gci_addrsel *s;
    (void)state;
    make_world(&w, &(setup){ .host = { "a: eth0 198.51.100.1/24", "b: nat 203.0.113.1/32", "c: nat 203.0.113.1/32" },
                             .routes = { "0.0.0.0/0 eth0" } });
    w.addr[1][0].addr.port = 7001;
    w.addr[2][0].addr.port = 7002;
    w.addr[1][0].addr.scope = 5;            /* a card may say anything */
    assert_int_equal(gci_addrsel_make(&env, w.host, 3, &s), GC_OK);
    for (int peer = 1; peer < 3; peer++) {
        gci_onlooker look = { .host = 0 };
        const gci_choice *c = look_and_choose(s, &look, peer);
        assert_int_equal(c->targets, 1);
        assert_int_equal(c->target[0].addr.port, 7000 + peer);
        assert_int_equal(c->target[0].addr.scope, 0);
    }
    gci_addrsel_free(&env, s);
}

/* Ranks of one container that are reached at ports of their own: it stands twice among the hosts, and so do its addresses. */
static void test_container_twice(void **state)
{
    static world w;
    char text[2][256];
    gci_addrsel *s;
    (void)state;
    make_world(&w, &(setup){ .host = { "a: eth0 172.17.0.3/16", "b: nat 203.0.113.1/32; eth0 172.17.0.2/16",
                                       "b: nat 203.0.113.1/32; eth0 172.17.0.2/16" } });
    for (int i = 1; i < 3; i++)
        w.addr[i][0].addr.port = PORT;
    w.addr[2][0].addr.port = PORT + 1;
    assert_int_equal(gci_addrsel_make(&env, w.host, 3, &s), GC_OK);
    choice_text(choose(&w, s, 0, 1), text[0], sizeof text[0]);
    assert_string_equal(text[0], "eth0=172.17.0.2 +203.0.113.1");
    w.addr[2][0].addr.port = PORT;                  /* for choice_text */
    choice_text(choose(&w, s, 0, 2), text[1], sizeof text[1]);
    assert_string_equal(text[1], text[0]);
    assert_int_equal(choose(&w, s, 1, 2)->target[0].why, GCI_WHY_SAME_HOST);
    gci_addrsel_free(&env, s);
}

static void check_nothing(const char *a, const char *b, const char *routes, const char *want)
{
    static world w;
    char text[1024];
    gci_text t;
    gci_addrsel *s;
    make_world(&w, &(setup){ .host = { a, b }, .routes = { routes } });
    assert_int_equal(gci_addrsel_make(&env, w.host, 2, &s), GC_OK);
    assert_int_equal(choose(&w, s, 0, 1)->targets, 0);
    gci_text_begin(&t, text, sizeof text);
    gci_addrsel_nothing(s, &t);
    assert_string_equal(text, want);
    gci_addrsel_free(&env, s);
}

static void test_nothing(void **state)
{
    (void)state;
    check_nothing("a: eth0 10.0.0.1/24", "b: eth0 2001:db8::2/64", NULL, "a cannot connect to b, no address family in common: "
                  "a has 10.0.0.1/24 (eth0); b has 2001:db8::2/64 (eth0)");
    check_nothing("a: eth0 10.0.0.1/24", "b: lo 127.0.0.1/8l", NULL, "a cannot connect to b: a has 10.0.0.1/24 (eth0); "
                  "b has no address that others could reach");
    check_nothing("a: eth0 10.0.0.1/24", "b: eth0 10.1.0.1/24", NULL, "a cannot connect to b, the kernel has no route to it: "
                  "a has 10.0.0.1/24 (eth0); b has 10.1.0.1/24 (eth0)");
    check_nothing("a: eth0 10.0.0.1/24", "b: eth0 fd00::1/64 fd00::2/64; eth1 fd00::3/64 fd00::4/64 fd00::5/64", NULL,
                  "a cannot connect to b, no address family in common: a has 10.0.0.1/24 (eth0); "
                  "b has fd00::1/64 (eth0), fd00::2/64 (eth0), fd00::3/64 (eth1) and 2 more");
}

static gci_route_answer bound_elsewhere(gci_sys *sys, const gci_addr *to, uint32_t bound)
{
    (void)sys, (void)to;
    return (gci_route_answer){ GCI_ROUTE_SPECIFIC, bound + 77 };
}

/* A link says with which of its addresses this end comes; an answer that names yet another interface is none. */
static void test_source(void **state)
{
    static world w;
    char text[GCI_ADDR_TEXT];
    gci_addrsel *s;
    (void)state;
    make_world(&w, &(setup){ .host = { "a: eth0 fd00:1::a/64t fd00:1::b/64", "b: eth0 fd00:2::a/64d fd00:2::b/64",
                                       "c: eth0 fd00:1::c/64" }, .routes = { "fd00:2::/64 eth0" } });
    assert_int_equal(gci_addrsel_make(&env, w.host, 3, &s), GC_OK);
    for (int peer = 1; peer < 3; peer++) {
        const gci_choice *c = choose(&w, s, 0, peer);
        assert_int_equal(c->links, 1);
        assert_string_equal(gci_addr_text(&c->target[0].source, text), "fd00:1::b");
        assert_int_equal(c->target[0].index, 1);
    }
    gci_sys sys = { .route = bound_elsewhere };
    gci_onlooker look = { .host = 0, .sys = &sys };
    assert_int_equal(look_and_choose(s, &look, 2)->links, 0);
    gci_addrsel_free(&env, s);
}

/* More targets than a choice holds: the best stay. */
static void test_too_many(void **state)
{
    static world w;
    gci_addrsel *s;
    (void)state;
    make_sixteen(&w, true);
    assert_int_equal(gci_addrsel_make(&env, w.host, 2, &s), GC_OK);
    const gci_choice *c = choose(&w, s, 0, 1);
    assert_int_equal(c->targets, GCI_TARGETS_MAX);
    assert_true(c->target[0].stripes && !c->target[1].last && c->target[2].last && c->target[GCI_TARGETS_MAX - 1].last);
    gci_addrsel_free(&env, s);
}

/* ---- words ---- */

static void test_words(void **state)
{
    static world w;
    char text[4096];
    gci_text t;
    gci_addrsel *s;
    (void)state;
    make_world(&w, &(setup){ .host = { "a: eth0/1000 10.0.0.1/24; docker0 172.17.0.1/16",
                                       "b: eth0 2001:db8::2/64; docker0 172.17.0.1/16", "c: eth0 10.0.0.3/24" },
                                         .site = { NAT(31) } });
    assert_int_equal(gci_addrsel_make(&env, w.host, 3, &s), GC_OK);
    assert_int_equal(choose(&w, s, 0, 1)->targets, 0);
    gci_text_begin(&t, text, sizeof text);
    gci_addrsel_nothing(s, &t);
    assert_string_equal(text, "a cannot connect to b, private network in which two hosts export the same address: "
                              "a has 10.0.0.1/24 (eth0), 172.17.0.1/16 (docker0); "
                              "b has 2001:db8::2/64 (eth0), 172.17.0.1/16 (docker0)");
    gci_text_begin(&t, text, sizeof text);
    gci_addrsel_explain(s, &t);
    assert_string_equal(text,
        "a, site 31, behind a NAT\n  eth0, 1000 Mbit/s\n    10.0.0.1/24 private\n  docker0\n"
        "    172.17.0.1/16 private, also of b, network forbidden\n"
        "b, at an unknown site\n  eth0\n    2001:db8::2/64 public\n  docker0\n"
        "    172.17.0.1/16 private, also of a, network forbidden\n"
        "edges\n  eth0 - eth0: none: no address family in common\n"
        "  eth0 - docker0: none, 10.0.0.1/24 - 172.17.0.1/16: private network in which two hosts export the same address\n"
        "  docker0 - eth0: none: no address family in common\n"
        "  docker0 - docker0: none, 172.17.0.1/16 - 172.17.0.1/16: private network in which two hosts export the same address\n"
        "targets\n  none\n");
    assert_int_equal(choose(&w, s, 0, 2)->targets, 1);
    gci_text_begin(&t, text, sizeof text);
    gci_addrsel_explain(s, &t);
    assert_non_null(strstr(text, "  eth0 - eth0: private, 10.0.0.1/24 - 10.0.0.3/24: link\n"));
    assert_non_null(strstr(text, "targets\n  10.0.0.3:7000 by eth0 from 10.0.0.1: private, stripes\n"));
    for (int i = 0; i < GCI_WHYS; i++)
        assert_non_null(gci_why_text((enum gci_why)i));
    for (int i = 0; i < GCI_QUALITIES; i++)
        assert_non_null(gci_quality_text((enum gci_quality)i));
    gci_addrsel_free(&env, s);
}

/* ---- the matching ---- */

enum { SMALL = 7, MATCHINGS = 120000 };

/* What makes one matching better than another, in this order. */
typedef struct merit { int pairs, quality; int64_t speed; int place; } merit;
typedef struct problem { int rows, columns; int quality[64][64]; uint32_t row_speed[64],
    column_speed[64]; int64_t weight[64 * 64]; } problem;

static bool better(const merit *a, const merit *b)
{
    if (a->pairs != b->pairs)
        return a->pairs > b->pairs;
    if (a->quality != b->quality)
        return a->quality > b->quality;
    return a->speed != b->speed ? a->speed > b->speed : a->place > b->place;
}

static merit with(merit m, const problem *p, int i, int j)
{
    if (i >= p->rows || j >= p->columns || !p->quality[i][j])
        return m;
    uint32_t slower = p->row_speed[i] < p->column_speed[j] ? p->row_speed[i] : p->column_speed[j];
    int64_t tens = ((int64_t)slower + 9) / 10;
    return (merit){ m.pairs + 1, m.quality + p->quality[i][j], m.speed + (tens < 65535 ? tens : 65535),
        m.place + (64 - i) * (64 - j) };
}

/* 3.3.4 of the paper: all permutations of the columns, dummies filled in. */
static void permute(const problem *p, int n, int i, unsigned taken, merit so_far, merit *best)
{
    if (i == n) {
        if (better(&so_far, best))
            *best = so_far;
        return;
    }
    for (int j = 0; j < n; j++)
        if (!(taken & 1u << j))
            permute(p, n, i + 1, taken | 1u << j, with(so_far, p, i, j), best);
}

static void draw_problem(problem *p, int rows, int columns)
{
    static const int kinds[] = { GCI_QUALITY_PRIVATE, GCI_QUALITY_PUBLIC, GCI_QUALITY_NEAR, GCI_QUALITY_ROUTED };
    static const uint32_t speeds[] = { 0, 1, 10, 100, 1000, 1000, 2500, 10000, 400000, 700000, UINT32_MAX };
    int density = below(11), variety = 1 + below(4), fast = 1 + below((int)GCI_COUNT(speeds));
    p->rows = rows;
    p->columns = columns;
    for (int i = 0; i < rows; i++)
        p->row_speed[i] = speeds[below(fast)];
    for (int j = 0; j < columns; j++)
        p->column_speed[j] = speeds[below(fast)];
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            p->quality[i][j] = below(10) < density ? kinds[below(variety)] : 0;
            p->weight[i * columns + j] = !p->quality[i][j] ? 0 :
                gci_edge_weight((enum gci_quality)p->quality[i][j], p->row_speed[i], p->column_speed[j], i, j);
        }
}

static merit solve(const problem *p)
{
    int column_of[65], users[64] = { 0 };
    merit m = { 0 };
    column_of[p->rows] = -7;
    int pairs = gci_match_links(p->rows, p->columns, p->weight, column_of);
    assert_int_equal(column_of[p->rows], -7);
    for (int i = 0; i < p->rows; i++) {
        assert_in_range(column_of[i] + 1, 0, p->columns);
        if (column_of[i] < 0)
            continue;
        assert_true(p->quality[i][column_of[i]] != 0);
        assert_int_equal(++users[column_of[i]], 1);
        m = with(m, p, i, column_of[i]);
    }
    assert_int_equal(pairs, m.pairs);
    return m;
}

static void same_merit(const merit *got, const merit *want, const problem *p)
{
    if (better(got, want) || better(want, got))
        fail_msg("%d x %d: %d pairs, quality %d, speed %lld, place %d; best is %d, %d, %lld, %d", p->rows, p->columns,
            got->pairs, got->quality,
                 (long long)got->speed, got->place, want->pairs, want->quality, (long long)want->speed, want->place);
}

static void test_matching(void **state)
{
    static problem p;
    const char *rounds = getenv("GCT_ROUNDS");
    (void)state;
    seed_random();
    for (int round = rounds ? atoi(rounds) : MATCHINGS; round > 0; round--) {
        merit best = { 0 };
        draw_problem(&p, below(SMALL + 1), below(SMALL + 1));
        permute(&p, p.rows > p.columns ? p.rows : p.columns, 0, 0, (merit){ 0 }, &best);
        merit got = solve(&p);
        same_merit(&got, &best, &p);
    }
}

/* The most that any matching has, by augmenting paths of greatest gain (Bellman and Ford), one at a time: slow and plain. */
static int64_t greatest(const problem *p)
{
    int row_of[64], column_of[64];
    int64_t total = 0;
    memset(row_of, -1, sizeof row_of);
    memset(column_of, -1, sizeof column_of);
    for (;;) {
        int64_t gain[64];           /* of the best path to each column, by columns already taken */
        int from[64], end = -1;
        for (int j = 0; j < p->columns; j++) {
            gain[j] = INT64_MIN / 4;
            for (int i = 0; i < p->rows; i++)
                if (column_of[i] < 0 && p->weight[i * p->columns + j] && p->weight[i * p->columns + j] > gain[j]) {
                    gain[j] = p->weight[i * p->columns + j];
                    from[j] = i;
                }
        }
        for (bool changed = true; changed; ) {
            changed = false;
            for (int k = 0; k < p->columns; k++)
                for (int j = 0; row_of[k] >= 0 && gain[k] > INT64_MIN / 4 && j < p->columns; j++) {
                    const int64_t *row = p->weight + row_of[k] * p->columns;
                    if (j != k && row[j] && gain[k] - row[k] + row[j] > gain[j]) {
                        gain[j] = gain[k] - row[k] + row[j];
                        from[j] = row_of[k];
                        changed = true;
                    }
                }
        }
        for (int j = 0; j < p->columns; j++)
            if (row_of[j] < 0 && gain[j] > 0 && (end < 0 || gain[j] > gain[end]))
                end = j;
        if (end < 0)
            return total;
        total += gain[end];
        while (end >= 0) {
            int row = from[end], next = column_of[row];
            row_of[end] = row;
            column_of[row] = end;
            end = next;
        }
    }
}

static void test_large_matching(void **state)
{
    static problem p;
    int column_of[64];
    (void)state;
    seed_random();
    for (int round = 0; round < 60; round++) {
        draw_problem(&p, round < 5 ? 64 : 1 + below(64), round < 5 ? 64 : 1 + below(64));
        int64_t sum = 0;
        gci_match_links(p.rows, p.columns, p.weight, column_of);
        for (int i = 0; i < p.rows; i++)
            sum += column_of[i] < 0 ? 0 : p.weight[i * p.columns + column_of[i]];
        assert_true(sum == greatest(&p));
        solve(&p);
    }
    /* The most that can be: no field runs over, and equals are paired in order. */
    p.rows = p.columns = 64;
    for (int i = 0; i < 64 * 64; i++)
        p.weight[i] = gci_edge_weight(GCI_QUALITY_NEAR, UINT32_MAX, UINT32_MAX, i / 64, i % 64);
    assert_int_equal(gci_match_links(64, 64, p.weight, column_of), 64);
    for (int i = 0; i < 64; i++)
        assert_int_equal(column_of[i], i);
    int64_t least = gci_edge_weight(GCI_QUALITY_ROUTED, 0, 0, 63, 63), places = 0;
    for (int i = 0; i < 64; i++)
        places += gci_edge_weight(GCI_QUALITY_ROUTED, 0, 0, i, i) - least;
    int64_t speeds = 64 * (gci_edge_weight(GCI_QUALITY_ROUTED, UINT32_MAX, UINT32_MAX, 63, 63) - least);
    assert_true(gci_edge_weight(GCI_QUALITY_ROUTED, 10, 10, 63, 63) - least > places);
    assert_true(gci_edge_weight(GCI_QUALITY_ROUTED + 1, 0, 0, 63, 63) - least > speeds + places);
    assert_true(64 * least > 63 * gci_edge_weight(GCI_QUALITY_NEAR, UINT32_MAX, UINT32_MAX, 0, 0));
}

/* ---- properties of random worlds ---- */

static void draw_world(world *w)
{
    uint64_t sites[] = { 0, 1, 2 };
    memset(w, 0, sizeof *w);
    w->hosts = 2 + below(HOSTS - 1);
    for (int i = 1; i < 3; i++)
        sites[i] |= below(2) ? GCI_SITE_NAT : 0;
    for (int h = 0; h < w->hosts; h++) {
        int nics = 1 + below(5);
        w->host[h].addr = w->addr[h];
        snprintf(w->host[h].id, sizeof w->host[h].id, "%08x-%d", (unsigned)random32(), h);
        snprintf(w->host[h].name, sizeof w->host[h].name, "h%d", h);
        w->host[h].site = sites[below(3)];
        for (int n = 0; n < nics; n++)
            for (int k = below(4); k > 0; k--) {
                gci_ifaddr *a = &w->addr[h][w->host[h].addrs++];
                *a = (gci_ifaddr){ .index = (uint32_t)(10 + n), .speed = (uint32_t)(below(3) * 1000),
                    .flags = (uint8_t)(below(4) ? 0 : below(16)) };
                if (n > 0 && a > w->addr[h] && a[-1].index == a->index)
                    a->speed = a[-1].speed;
                snprintf(a->name, sizeof a->name, "eth%d", n);
                if (below(2)) {
                    static const uint8_t nets[][2] = { { 10, 0 }, { 10, 1 }, { 192, 168 }, { 198, 51 }, { 203, 0 }, { 169,
                        254 }, { 127, 0 }, { 224, 0 } };
                    const uint8_t *net = nets[below((int)GCI_COUNT(nets))];
                    a->addr = (gci_addr){ .family = 4, .ip = { net[0], net[1], (uint8_t)below(2), (uint8_t)(1 + below(20)) } };
                    a->prefix = (uint8_t)(below(8) ? 24 : below(33));
                } else {
                    static const uint8_t nets[][2] = { { 0x20, 1 }, { 0x20, 2 }, { 0xfd, 0 }, { 0xfe, 0x80 }, { 0xff, 2 } };
                    const uint8_t *net = nets[below((int)GCI_COUNT(nets))];
                    a->addr = (gci_addr){ .family = 6, .ip = { net[0], net[1], [7] = (uint8_t)below(2),
                        [15] = (uint8_t)(1 + below(20)) } };
                    a->prefix = (uint8_t)(below(8) ? 64 : below(129));
                }
            }
    }
    for (int h = 0; h < w->hosts; h++)
        for (int r = below(4); r > 0 && w->host[h].addrs; r--) {
            route *to = &w->route[h][w->routes[h]++];
            const gci_host *other = &w->host[below(w->hosts)];
            to->index = w->addr[h][below(w->host[h].addrs)].index;
            to->net = other->addrs && below(2) ? other->addr[0].addr : (gci_addr){ .family = below(2) ? 4 : 6 };
            to->prefix = to->net.ip[0] ? 16 : 0;
        }
    w->ask = below(2) ? ASK : ASK_AND_BIND;
}

/* What the design forbids, straight from its words, for one address of one host as a target of another. */
static bool is_private(const gci_addr *a)
{
    return a->family == 6 ? a->ip[0] == 0xfd : a->ip[0] == 10 || (a->ip[0] == 192 && a->ip[1] == 168);
}

static bool same_scope(const world *w, int a, int b)
{
    return !w->host[a].site || !w->host[b].site || w->host[a].site == w->host[b].site;
}

static bool collides(const world *w, int h, const gci_addr *a)
{
    for (int o = 0; o < w->hosts; o++)
        for (int i = 0; i < w->host[o].addrs && o != h; i++)
            if (same_scope(w, o, h) && gci_addr_equal(&w->addr[o][i].addr, a))
                return true;
    return false;
}

/* Between two known sites: is it in a network of this host's, in which some address is there twice, wherever that is? */
static bool at_both_sites(const world *w, int me, int peer, const gci_ifaddr *it)
{
    bool mine = false, twice = false;
    if (same_scope(w, me, peer))
        return false;
    for (int i = 0; i < w->host[me].addrs; i++)
        mine = mine || (w->addr[me][i].prefix == it->prefix && begins_alike(&w->addr[me][i].addr, &it->addr, it->prefix)
                        && !(w->addr[me][i].flags & GCI_IF_LOOPBACK));
    for (int o = 0; o < w->hosts && mine; o++)
        for (int i = 0; i < w->host[o].addrs; i++) {
            const gci_ifaddr *a = &w->addr[o][i];
            bool in = a->prefix == it->prefix && begins_alike(&a->addr, &it->addr, it->prefix);
            for (int p = 0; p < w->hosts && in; p++)
                for (int k = 0; k < w->host[p].addrs; k++)
                    twice = twice || (p != o && gci_addr_equal(&a->addr, &w->addr[p][k].addr));
        }
    return mine && twice;
}

static bool forbidden(const world *w, int me, int peer, const gci_addr *target)
{
    const gci_ifaddr *it = NULL;
    for (int i = 0; i < w->host[peer].addrs && !it; i++)
        if (gci_addr_equal(&w->addr[peer][i].addr, target) && !(w->addr[peer][i].flags & GCI_IF_LOOPBACK))
            it = &w->addr[peer][i];
    if (!it)
        return true;
    for (int i = 0; i < w->host[me].addrs; i++)
        if (gci_addr_equal(&w->addr[me][i].addr, target))
            return true;
    if (gci_addr_is_loopback(target) || target->ip[0] == 224 || target->ip[0] == 255)
        return true;
    if (!is_private(target)) {
        for (int o = 0; o < w->hosts; o++)
            for (int i = 0; i < w->host[o].addrs && o != peer; i++)
                if (gci_addr_equal(&w->addr[o][i].addr, target))
                    return true;
        return false;
    }
    if (at_both_sites(w, me, peer, it))
        return true;
    for (int o = 0; o < w->hosts; o++)      /* some address of the network, within the scope, is exported twice */
        for (int i = 0; i < w->host[o].addrs; i++) {
            const gci_ifaddr *b = &w->addr[o][i];
            bool at_site = w->host[peer].site ? w->host[o].site == w->host[peer].site : true;
            if (at_site && b->prefix == it->prefix && begins_alike(&b->addr, &it->addr, it->prefix) && collides(w, o, &b->addr))
                return true;
        }
    return false;
}

/* Both ends come to the same matching, mirrored; nothing forbidden is listed; the order of the hosts does not matter. */
static void test_properties(void **state)
{
    static world w, shuffled;
    char text[2][4096];
    int links = 0, others = 0;
    (void)state;
    seed_random();
    for (int round = 0; round < 20000; round++) {
        gci_addrsel *s, *t;
        draw_world(&w);
        shuffled = w;
        int turn = below(w.hosts), me = below(w.hosts), peer = (me + 1 + below(w.hosts - 1)) % w.hosts;
#define TURNED(h) (((h) + turn) % w.hosts)
        for (int h = 0; h < w.hosts; h++)
            shuffled.host[TURNED(h)] = w.host[h];
        assert_int_equal(gci_addrsel_make(&env, w.host, w.hosts, &s), GC_OK);
        assert_int_equal(gci_addrsel_make(&env, shuffled.host, w.hosts, &t), GC_OK);
        links += check_mirror(s, me, peer, t, TURNED(peer), TURNED(me));
        const gci_choice *c = choose(&w, s, me, peer);
        choice_text(c, text[0], sizeof text[0]);
        for (int i = 0; i < c->targets; i++)
            if (forbidden(&w, me, peer, &c->target[i].addr))
                fail_msg("%s: target %d is forbidden", text[0], i);
        others += c->targets - c->links;
        gci_onlooker look = { .host = TURNED(me), .own = w.host[me].addr, .owns = w.host[me].addrs, .sys = &w.sys };
        choice_text(look_and_choose(t, &look, TURNED(peer)), text[1], sizeof text[1]);
        assert_string_equal(text[0], text[1]);
        gci_addrsel_free(&env, s);
        gci_addrsel_free(&env, t);
    }
    assert_int_equal(env.memory, 0);
    assert_true(links > 2000 && others > 2000);
    print_message("%d links, %d other targets\n", links, others);
}

/* ---- many hosts, little memory ---- */

static void test_many_hosts(void **state)
{
    enum { MANY = 10000 };
    static gci_host host[MANY];
    static gci_ifaddr addr[MANY][4];
    struct timespec a, b;
    gci_addrsel *s;
    (void)state;
    for (int h = 0; h < MANY; h++) {
        snprintf(host[h].id, sizeof host[h].id, "%05d", h);
        host[h].addrs = 4;
        host[h].addr = addr[h];
        for (int i = 0; i < 4; i++)
            addr[h][i] = (gci_ifaddr){ .index = (uint32_t)i, .prefix = 16, .addr = { .family = 4, .ip = { 10, (uint8_t)i,
                (uint8_t)(h / 250), (uint8_t)(1 + h % 250) } } };
        addr[h][3].addr = (gci_addr){ .family = 4, .ip = { 172, 17, 0, 1 } };
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(gci_addrsel_make(&env, host, MANY, &s), GC_OK);
    clock_gettime(CLOCK_MONOTONIC, &b);
    print_message("%d hosts: %.3f s\n", MANY, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    assert_true(b.tv_sec - a.tv_sec < 5);
    assert_int_equal(look_and_choose(s, &(gci_onlooker){ .host = 0 }, MANY - 1)->links, 3);
    gci_addrsel_free(&env, s);
}

static void test_no_memory(void **state)
{
    static world w;
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    gci_addrsel *s;
    int err, allowed = 0;
    (void)state;
    make_world(&w, &setups[0]);
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    do {
        allocations_left = allowed++;
        err = gci_addrsel_make(&poor, w.host, w.hosts, &s);
        if (err == GC_OK)
            gci_addrsel_free(&poor, s);
        else
            assert_null(s);
        assert_int_equal(poor.memory, 0);
    } while (err == GC_ERR_NOMEM && allowed < 20);
    assert_int_equal(err, GC_OK);
    assert_int_equal(allowed, 5);
    assert_int_equal(gci_addrsel_make(&env, NULL, 0, &s), GC_OK);
    gci_addrsel_free(&env, s);
    gci_addrsel_free(&env, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setups), cmocka_unit_test(test_sixteen), cmocka_unit_test(test_own),
            cmocka_unit_test(test_advertised), cmocka_unit_test(test_container_twice),
        cmocka_unit_test(test_source), cmocka_unit_test(test_too_many),
            cmocka_unit_test(test_nothing),
        cmocka_unit_test(test_words), cmocka_unit_test(test_matching),
        cmocka_unit_test(test_large_matching), cmocka_unit_test(test_properties), cmocka_unit_test(test_many_hosts),
        cmocka_unit_test(test_no_memory),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("addrsel", tests, NULL, NULL);
}
