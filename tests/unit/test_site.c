/* test_site.c: which hosts are at one site: set-ups as plain data, and random ones against a slow search; where addresses lead.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part. A host is written as   name gate seen | address/prefix[p] ...   gate 0, seen -: unknown;
 * p: of a point-to-point interface, m: with a mapped port. The first is rank 0's. Sites are written as a letter for each host,
 * in the order in which they appear, capital if they are behind a NAT; 0: unknown.
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
#include <unistd.h>

enum { HOSTS = 12, ADDRS = 8 };

static gci_env env;

typedef struct setup { const char *what, *host[HOSTS], *sites; } setup;
typedef struct world { int hosts; gci_whereabouts host[HOSTS]; gci_ifaddr addr[HOSTS][ADDRS]; } world;

static void read_addr(const char *text, gci_ifaddr *a)
{
    char ip[64];
    size_t n = strcspn(text, "/");
    char *end;
    memcpy(ip, text, n);
    ip[n] = 0;
    *a = (gci_ifaddr){ .index = 1 };
    assert_int_equal(gci_addr_parse(ip, &a->addr), GC_OK);
    a->prefix = (uint8_t)strtoul(text + n + 1, &end, 10);
    a->flags = *end == 'p' ? GCI_IF_POINT_TO_POINT : 0;
    a->addr.port = *end == 'm' ? 7000 : 0;
}

static void read_host(world *w, const char *text)
{
    gci_whereabouts *h = &w->host[w->hosts];
    char name[16], gate[16], seen[64], word[64];
    int used = 0;
    assert_int_equal(sscanf(text, "%15s %15s %63s |%n", name, gate, seen, &used), 3);
    *h = (gci_whereabouts){ .addr = w->addr[w->hosts], .gate = strtoull(gate, NULL, 10) };
    if (strcmp(seen, "-") != 0)
        assert_int_equal(gci_addr_parse(seen, &h->seen), GC_OK);
    for (const char *at = text + used; sscanf(at, "%63s%n", word, &used) == 1; at += used)
        read_addr(word, &w->addr[w->hosts][h->addrs++]);
    w->hosts++;
}

static const setup setups[] = {
    { "one LAN, rank 0 on it", {
      "r 1 - | 192.168.1.1/24", "a 1 192.168.1.2 | 192.168.1.2/24", "b 1 192.168.1.3 | 192.168.1.3/24" }, "aaa" },
    { "the same, the gate unknown", {
      "r 0 - | 192.168.1.1/24", "a 0 192.168.1.2 | 192.168.1.2/24", "b 0 192.168.1.3 | 192.168.1.3/24" }, "aaa" },
    { "one LAN, rank 0 outside, no NAT", {
      "r 9 - | 203.0.113.1/24", "a 1 198.51.100.2 | 198.51.100.2/24", "b 1 198.51.100.3 | 198.51.100.3/24" }, "abb" },
    { "nothing is known of anybody", {
      "r 0 - | 203.0.113.1/24", "a 0 198.51.100.2 | 198.51.100.2/24", "b 0 - | 198.51.100.3/24" }, "000" },
    { "two labs behind NATs, rank 0 outside", {
      "r 9 - | 203.0.113.1/24", "a 1 198.51.100.1 | 192.168.1.2/24", "b 1 198.51.100.1 | 192.168.1.3/24",
      "c 2 198.51.100.9 | 192.168.1.2/24", "d 2 198.51.100.9 | 192.168.1.4/24" }, "aBBCC" },
    { "the same, gates unknown", {
      "r 0 - | 203.0.113.1/24", "a 0 198.51.100.1 | 192.168.1.2/24", "b 0 198.51.100.1 | 192.168.1.3/24",
      "c 0 198.51.100.9 | 192.168.1.2/24", "d 0 198.51.100.9 | 192.168.1.4/24" }, "0AABB" },
    { "two labs behind NATs, rank 0 in one of them, its port passed on", {
      "r 0 198.51.100.1 | 192.168.1.1/24", "a 0 192.168.1.2 | 192.168.1.2/24", "b 0 198.51.100.1 | 192.168.1.3/24",
      "c 0 198.51.100.9 | 192.168.1.2/24", "d 0 198.51.100.9 | 192.168.1.4/24" }, "AAABB" },
    { "rank 0 on the head node that is its nodes' NAT, another lab behind another one", {
      "r 9 - | 203.0.113.1/24 192.168.1.1/24", "a 1 192.168.1.2 | 192.168.1.2/24", "b 1 192.168.1.3 | 192.168.1.3/24",
      "c 2 198.51.100.9 | 192.168.1.2/24" }, "aaab" },
    { "rank 0 elsewhere, the head node takes part", {
      "r 9 - | 203.0.113.1/24", "h 8 198.51.100.1 | 198.51.100.1/24 192.168.1.1/24", "a 1 198.51.100.1 | 192.168.1.2/24",
      "b 1 198.51.100.1 | 192.168.1.3/24" }, "aBBB" },
    { "the head node was seen at its other address", {
      "r 0 - | 203.0.113.1/24", "h 0 2001:db8::1 | 198.51.100.1/24 2001:db8::1/64",
      "a 0 198.51.100.1 | 192.168.1.2/24" }, "0aa" },
    { "a NAT with two addresses, one gate", {
      "r 0 - | 203.0.113.1/24", "a 1 198.51.100.1 | 192.168.1.2/24", "b 1 198.51.100.2 | 192.168.1.3/24",
      "c 1 198.51.100.2 | 192.168.1.4/24" }, "0AAA" },
    { "a NAT with two addresses, and nothing else is known", {
      "r 0 - | 203.0.113.1/24", "a 0 198.51.100.1 | 192.168.1.2/24", "b 0 198.51.100.2 | 192.168.1.3/24" }, "0ab" },
    { "two homes behind one address of their provider", {
      "r 0 - | 203.0.113.1/24", "a 1 198.51.100.1 | 192.168.1.2/24", "b 2 198.51.100.1 | 192.168.1.2/24" }, "0AA" },
    { "containers on two hosts behind a NAT, each with a bridge of its own for gate", {
      "r 0 - | 203.0.113.1/24", "a 11 198.51.100.1 | 172.17.0.2/16", "b 12 198.51.100.1 | 172.17.0.2/16",
      "h 1 198.51.100.1 | 192.168.1.3/24 172.17.0.1/16" }, "0AAA" },
    { "containers on two hosts of rank 0's LAN", {
      "r 1 - | 192.168.1.1/24", "a 11 192.168.1.2 | 172.17.0.2/16", "h 1 192.168.1.2 | 192.168.1.2/24 172.17.0.1/16",
      "b 12 192.168.1.3 | 172.17.0.2/16" }, "aaab" },
    { "a private address of another lab is not the one that rank 0 saw", {
      "r 1 - | 192.168.1.1/24", "a 11 192.168.1.2 | 172.17.0.2/16", "c 2 198.51.100.9 | 192.168.1.2/24" }, "abc" },
    { "a container on rank 0's host, or something else that passes connections on there", {
      "r 1 - | 192.168.1.1/24 172.17.0.1/16", "a 0 172.17.0.1 | 172.17.0.2/16", "b 0 192.168.1.1 | 10.0.0.7/8" }, "a00" },
    { "at home, by a tunnel into rank 0's lab", {
      "r 1 - | 192.168.1.1/24 10.8.0.1/24p", "a 2 10.8.0.2 | 192.168.1.2/24 10.8.0.2/24p", "b 2 198.51.100.9 | 192.168.1.3/24",
      "c 1 192.168.1.2 | 192.168.1.2/24" }, "abba" },
    { "two labs of one firm: routed private networks", {
      "r 1 - | 10.1.0.1/16", "a 2 10.2.0.2 | 10.2.0.2/16", "b 3 10.3.0.2 | 10.3.0.2/16" }, "aaa" },
    { "virtual machines: the same gate and address for all", {
      "r 1 - | 192.168.1.1/24", "a 7 198.51.100.1 | 10.0.2.15/24 fec0::1/64", "b 7 198.51.100.9 | 10.0.2.15/24 fec0::2/64",
      "c 7 - | 10.0.2.15/24 fec0::3/64", "d 2 198.51.100.1 | 192.168.1.2/24", "e 3 198.51.100.9 | 192.168.1.2/24" }, "aBC0BC" },
    { "two labs whose routers share a virtual MAC and address", {
      "r 0 - | 203.0.113.1/24", "a 7 198.51.100.1 | 192.168.1.2/24", "b 7 198.51.100.1 | 192.168.1.3/24",
      "c 7 198.51.100.9 | 192.168.1.3/24", "d 7 198.51.100.9 | 192.168.1.4/24" }, "0AABB" },
    { "bridges alike on all hosts do not make a gate doubtful", {
      "r 9 - | 203.0.113.1/24", "a 1 - | 172.17.0.1/16 192.168.1.2/24", "b 1 - | 172.17.0.1/16 192.168.1.3/24" }, "abb" },
    { "nor if the network is of IPv6", {
      "r 9 - | 203.0.113.1/24", "a 1 - | 172.17.0.1/16 2001:db8::1/64", "b 1 - | 172.17.0.1/16 2001:db8::2/64",
      "c 2 - | fd00::1/64", "d 2 - | fd00::2/64" }, "abbcc" },
    { "what has no address but link-local ones still has a gate", {
      "r 9 - | 203.0.113.1/24", "a 1 - | fe80::1/64", "b 1 - | fe80::1/64" }, "abb" },
    { "an address that stands on its host twice is there once", {
      "r 9 - | 203.0.113.1/24", "a 1 - | 10.0.0.1/24 10.0.0.1/24", "b 1 - | 10.0.0.1/24" }, "a00" },
    { "by tunnels of ssh: nothing is known", {
      "r 0 - | 203.0.113.1/24", "a 0 127.0.0.1 | 192.168.1.2/24", "b 0 ::1 | 192.168.1.3/24" }, "000" },
    { "IPv6: nobody translates it", {
      "r 0 - | 2001:db8::1/64", "a 0 2001:db8:1::2 | 2001:db8:1::2/64 192.168.1.2/24", "b 0 2001:db8:1::77 | 192.168.1.3/24",
      "c 4 2001:db8:2::2 | 2001:db8:2::2/64 192.168.1.2/24", "d 4 198.51.100.9 | 192.168.1.3/24" }, "000aa" },
    { "unique local IPv6 reaches rank 0 as it is", {
      "r 0 - | fd00:1::1/64", "a 0 fd00:2::1 | fd00:2::1/64" }, "aa" },
    { "racks with routers of their own: different sites, and no NAT says so", {
      "r 1 - | 198.51.100.1/26 10.0.0.1/16", "a 1 198.51.100.2 | 198.51.100.2/26 10.0.0.2/16",
      "b 2 198.51.100.65 | 198.51.100.65/26 10.0.0.3/16" }, "aab" },
    { "an interface that is not told is no NAT", {
      "r 0 - | 198.51.100.1/24", "a 0 198.51.100.2 | 10.0.0.2/16", "b 0 198.51.100.3 | 10.0.0.3/16" }, "0ab" },
    { "rank 0's own is of no meaning if it is private", {
      "r 0 10.9.9.9 | 192.168.1.1/24", "a 0 10.9.9.9 | 192.168.1.2/24" }, "0a" },
    { "a port that a NAT passes on does not make its address one's own", {
      "r 0 - | 203.0.113.1/24", "a 0 198.51.100.1 | 198.51.100.1/32m 192.168.1.2/24",
      "b 0 198.51.100.1 | 198.51.100.1/32m 192.168.1.3/24" }, "0AA" },
    { "joined over others", {
      "r 0 - | 203.0.113.1/24", "a 1 198.51.100.1 | 10.0.0.1/8", "b 2 198.51.100.1 | 10.0.0.2/8", "c 2 198.51.100.2 | 10.0.0.3/8",
      "d 0 198.51.100.2 | 10.0.0.4/8", "e 1 - | 10.0.0.5/8" }, "0AAAAA" },
    { "addresses that lead nowhere", { "r 0 - | 203.0.113.1/24", "a 0 169.254.1.1 | 10.0.0.1/8", "b 0 224.0.0.1 | 10.0.0.1/8",
      "c 0 fe80::1 | fe80::1/64" }, "0000" },
};

static const char *sites_text(const uint64_t *site, int hosts, char *text)
{
    for (int h = 0; h < hosts; h++) {
        uint64_t number = site[h] & ~GCI_SITE_NAT;
        assert_true(number <= (uint64_t)hosts);
        assert_true(number || !site[h]);
        text[h] = number ? (char)((site[h] & GCI_SITE_NAT ? 'A' : 'a') + (int)number - 1) : '0';
    }
    text[hosts] = 0;
    return text;
}

static void test_setups(void **state)
{
    static world w;
    uint64_t site[HOSTS];
    char text[HOSTS + 1];
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(setups); i++) {
        memset(&w, 0, sizeof w);
        while (w.hosts < HOSTS && setups[i].host[w.hosts])
            read_host(&w, setups[i].host[w.hosts]);
        assert_int_equal(gci_sites(&env, w.host, w.hosts, site), GC_OK);
        if (strcmp(sites_text(site, w.hosts, text), setups[i].sites) != 0)
            fail_msg("%s: %s, not %s", setups[i].what, text, setups[i].sites);
    }
    assert_int_equal(atomic_load(&env.memory), 0);
}

/* ---- random hosts, against the rules as they are written, joined step by step ---- */

static gci_addr draw_addr(void)
{
    static const uint8_t nets[][2] = { { 192, 168 }, { 10, 0 }, { 198, 51 }, { 127, 0 }, { 169, 254 } };
    const uint8_t *net = nets[below(8) ? below(3) : below(5)];
    if (below(4))
        return (gci_addr){ .family = 4, .ip = { net[0], net[1], 0, (uint8_t)(1 + below(6)) } };
    return (gci_addr){ .family = 6, .ip = { below(2) ? 0x20 : 0xfd, 1, [15] = (uint8_t)(1 + below(6)) } };
}

static void draw_world(world *w)
{
    memset(w, 0, sizeof *w);
    w->hosts = 1 + below(HOSTS);
    for (int h = 0; h < w->hosts; h++) {
        gci_whereabouts *at = &w->host[h];
        at->addr = w->addr[h];
        at->addrs = below(4);
        at->gate = (uint64_t)below(4);
        for (int i = 0; i < at->addrs; i++)
            w->addr[h][i] = (gci_ifaddr){ .addr = draw_addr(), .flags = below(6) ? 0 : GCI_IF_POINT_TO_POINT };
        if (below(3))
            at->seen = below(2) && at->addrs ? w->addr[h][0].addr : draw_addr();
    }
}

static const gci_ifaddr *has(const world *w, int h, const gci_addr *a)
{
    for (int i = 0; i < w->host[h].addrs; i++)
        if (gci_addr_equal(&w->addr[h][i].addr, a))
            return &w->addr[h][i];
    return NULL;
}

static bool counts(const gci_addr *a)
{
    return gci_addr_class(a) >= GCI_CLASS_PRIVATE;
}

static bool is_strong(const gci_addr *a)
{
    return counts(a) && (a->family == 4 || gci_addr_class(a) == GCI_CLASS_PUBLIC);
}

static bool is_face(const world *w, int h, int i)
{
    const gci_addr *a = &w->addr[h][i].addr;
    for (int k = 0; k < w->host[h].addrs; k++)
        if (is_strong(&w->addr[h][k].addr))
            return is_strong(a);
    return counts(a);
}

/* Is there a host behind the gate all of whose addresses others behind it have, too? */
static bool doubtful(const world *w, uint64_t gate)
{
    for (int h = 0; h < w->hosts; h++) {
        int faces = 0, alone = 0;
        for (int i = 0; i < w->host[h].addrs && w->host[h].gate == gate; i++) {
            bool shared = false;
            if (!is_face(w, h, i))
                continue;
            for (int o = 0; o < w->hosts; o++)
                for (int k = 0; k < w->host[o].addrs; k++)
                    shared = shared || (o != h && w->host[o].gate == gate && is_face(w, o, k)
                                        && gci_addr_equal(&w->addr[o][k].addr, &w->addr[h][i].addr));
            faces++;
            alone += !shared;
        }
        if (faces && !alone)
            return true;
    }
    return false;
}

static bool behind(const world *w, int h)
{
    const gci_addr *seen = &w->host[h].seen;
    bool here = h > 0 ? has(w, 0, seen) != NULL : gci_addr_class(seen) != GCI_CLASS_PUBLIC;
    return counts(seen) && seen->family == 4 && !has(w, h, seen) && !here;
}

static bool near_root(const world *w, int h)
{
    const gci_addr *seen = &w->host[h].seen;
    const gci_ifaddr *own = has(w, h, seen);
    return own && !(own->flags & GCI_IF_POINT_TO_POINT) && gci_addr_class(seen) == GCI_CLASS_PRIVATE
           && (h == 0 || !has(w, 0, seen));
}

static bool known(const world *w, int h)
{
    bool any = false;
    for (int o = 0; o < w->hosts; o++)
        any = any || near_root(w, o);
    return (w->host[h].gate && !doubtful(w, w->host[h].gate)) || behind(w, h) || near_root(w, h) || (h == 0 && any);
}

static bool linked(const world *w, int a, int b)
{
    const gci_whereabouts *x = &w->host[a], *y = &w->host[b];
    if (x->gate && x->gate == y->gate && !doubtful(w, x->gate))
        return true;
    if (behind(w, a) && behind(w, b) && gci_addr_equal(&x->seen, &y->seen))
        return true;
    if (behind(w, a) && has(w, b, &x->seen)
        && (gci_addr_class(&x->seen) == GCI_CLASS_PUBLIC || (near_root(w, b) && gci_addr_equal(&x->seen, &y->seen))))
        return true;
    return (a == 0 || near_root(w, a)) && near_root(w, b);
}

/* Numbers that spread over links until nothing changes. */
static void slowly(const world *w, uint64_t *site)
{
    bool is_known[HOSTS];
    for (int h = 0; h < w->hosts; h++) {
        site[h] = (uint64_t)h + 1;
        is_known[h] = known(w, h);
        for (int o = 0; o < w->hosts; o++)
            is_known[h] = is_known[h] || (behind(w, o) && o != h && linked(w, o, h));
    }
    for (bool changed = true; changed; ) {
        changed = false;
        for (int a = 0; a < w->hosts; a++)
            for (int b = 0; b < w->hosts; b++)
                if (a != b && linked(w, a, b) && site[a] != site[b]) {
                    site[a] = site[b] = site[a] < site[b] ? site[a] : site[b];
                    changed = true;
                }
    }
    for (int h = 0; h < w->hosts; h++)
        if (!is_known[h])
            site[h] = 0;
}

static bool has_nat(const world *w, const uint64_t *site, uint64_t of)
{
    for (int a = 0; a < w->hosts; a++)
        for (int b = 0; b < a; b++)
            if (site[a] == of && behind(w, a) && behind(w, b) && gci_addr_equal(&w->host[a].seen, &w->host[b].seen)
                && gci_addr_class(&w->host[a].seen) == GCI_CLASS_PUBLIC)
                return true;
    return false;
}

static void test_random(void **state)
{
    static world w;
    uint64_t site[HOSTS], want[HOSTS];
    int joined = 0, nats = 0;
    (void)state;
    seed_random();
    for (int round = 0; round < 20000; round++) {
        draw_world(&w);
        assert_int_equal(gci_sites(&env, w.host, w.hosts, site), GC_OK);
        slowly(&w, want);
        for (int a = 0; a < w.hosts; a++) {
            assert_int_equal(!site[a], !want[a]);
            assert_int_equal((site[a] & GCI_SITE_NAT) != 0, want[a] && has_nat(&w, want, want[a]));
            nats += (site[a] & GCI_SITE_NAT) != 0;
            for (int b = 0; b < a && site[a]; b++) {
                assert_int_equal(site[a] == site[b], want[a] == want[b]);
                joined += site[a] == site[b];
            }
        }
    }
    assert_true(joined > 10000 && nats > 1000);
}

/* ---- many hosts, little memory, where addresses lead ---- */

static void test_many_hosts(void **state)
{
    enum { MANY = 20000, LABS = 40 };
    gci_whereabouts *host = calloc(MANY, sizeof *host);
    gci_ifaddr *addr = calloc(4 * MANY, sizeof *addr);
    uint64_t *site = calloc(MANY, sizeof *site);
    struct timespec a, b;
    (void)state;
    for (int h = 0; h < MANY; h++) {
        host[h] = (gci_whereabouts){ .addr = addr + 4 * h, .addrs = 4, .gate = (uint64_t)(1 + h % (2 * LABS)),
                                     .seen = { .family = 4, .ip = { 198, 51, 100, (uint8_t)(h % LABS) } } };
        for (int i = 0; i < 4; i++)
            addr[4 * h + i].addr = (gci_addr){ .family = 4,
                                               .ip = { 10, (uint8_t)i, (uint8_t)(h / 250), (uint8_t)(1 + h % 250) } };
        addr[4 * h + 3].addr = (gci_addr){ .family = 4, .ip = { 172, 17, 0, 1 } };
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(gci_sites(&env, host, MANY, site), GC_OK);
    clock_gettime(CLOCK_MONOTONIC, &b);
    print_message("%d hosts: %.3f s\n", MANY, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    assert_true(b.tv_sec - a.tv_sec < 5);
    for (int h = 0; h < MANY; h++)
        assert_true(site[h] == ((uint64_t)(1 + h % LABS) | GCI_SITE_NAT));
    free(host);
    free(addr);
    free(site);
}

static void test_no_memory(void **state)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_whereabouts host = { .gate = 1 };
    uint64_t site = 77;
    gci_env poor;
    (void)state;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    allocations_left = 0;
    assert_int_equal(gci_sites(&poor, &host, 1, &site), GC_ERR_NOMEM);
    allocations_left = 1;
    assert_int_equal(gci_sites(&poor, &host, 1, &site), GC_OK);
    assert_true(site == 1);
    assert_int_equal(atomic_load(&poor.memory), 0);
}

static void test_classes(void **state)
{
    static const char *const in_class[][40] = {
        [GCI_CLASS_NOWHERE] = { "0.0.0.0", "0.1.2.3", "127.0.0.1", "127.255.255.255", "224.0.0.1", "239.1.1.1", "240.0.0.1",
            "255.255.255.255",
                                "::", "::1", "::7.7.7.7", "100::1", "ff02::1", "ff0e::7" },
        [GCI_CLASS_LINK_LOCAL] = { "169.254.0.1", "169.254.255.255", "fe80::1", "febf::1" },
        [GCI_CLASS_PRIVATE] = { "10.0.0.1", "10.255.255.255", "172.16.0.1", "172.31.255.255", "192.168.0.0", "192.168.255.255",
                                "100.64.0.0", "100.127.255.255", "192.0.0.2", "fc00::1", "fdff::1", "fec0::1", "feff::1" },
        [GCI_CLASS_PUBLIC] = { "1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.0.0.1", "128.0.0.1",
                               "169.253.0.1", "169.255.0.1", "172.15.255.255", "172.32.0.0", "192.0.1.1", "192.0.2.1",
                                 "192.167.1.1",
                               "192.169.1.1", "198.18.0.1", "198.51.100.1", "203.0.113.1", "223.255.255.255", "2001:db8::1",
                                 "2001::1",
                               "2a00::1", "fe00::1" } };
    gci_addr a = { 0 };
    (void)state;
    assert_int_equal(gci_addr_class(&a), GCI_CLASS_NOWHERE);
    for (size_t class = 0; class < GCI_COUNT(in_class); class++)
        for (size_t i = 0; in_class[class][i]; i++) {
            assert_int_equal(gci_addr_parse(in_class[class][i], &a), GC_OK);
            if (gci_addr_class(&a) != (enum gci_class)class)
                fail_msg("%s is of class %d", in_class[class][i], gci_addr_class(&a));
        }
    a = (gci_addr){ .family = 6, .ip = { [10] = 0xff, 0xff, 8, 8, 8, 8 } };         /* mapped: a card may say anything */
    assert_int_equal(gci_addr_class(&a), GCI_CLASS_NOWHERE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_setups), cmocka_unit_test(test_random), cmocka_unit_test(test_many_hosts),
        cmocka_unit_test(test_no_memory), cmocka_unit_test(test_classes),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    alarm(60);
    return cmocka_run_group_tests_name("site", tests, NULL, NULL);
}
