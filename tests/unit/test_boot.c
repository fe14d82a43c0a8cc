/* test_boot.c: cards and their table, the tree, the handshake. No socket.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"
#include "tests/unit/failing_alloc.h"

#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* ---- cards ----------------------------------------------------------------------------------------------------------- */

static gci_ifaddr address(const char *text, unsigned prefix, unsigned index)
{
    gci_ifaddr a = { .prefix = (uint8_t)prefix, .index = index, .speed = 1000, .name = "eth0" };
    assert_int_equal(gci_addr_parse(text, &a.addr), GC_OK);
    return a;
}

static gci_full_card card_of(int host, const char *cluster, int addrs)
{
    gci_ifaddr a[GCI_CARD_ADDRS_MAX];
    gci_full_card card;
    char id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    memset(a, 0, sizeof a);
    for (int i = 0; i < addrs; i++) {
        char text[32];
        snprintf(text, sizeof text, i % 2 ? "fd00::%d:%d" : "10.0.%d.%d", host % 250, i);
        a[i] = address(text, i % 2 ? 64 : 24, (unsigned)i);
    }
    snprintf(id, sizeof id, "boot-%d", host);
    snprintf(name, sizeof name, "node%d", host);
    gci_card_fill(&card, id, name, cluster, (uint16_t)(4000 + host), a, addrs);
    return card;
}

/* Compared by what is told: the padding of structures is anything. */
static void check_same_card(const gci_full_card *a, const gci_full_card *b)
{
    uint8_t wire_a[GCI_CARD_BYTES_MAX], wire_b[GCI_CARD_BYTES_MAX];
    size_t bytes = gci_card_encode(a, wire_a);
    assert_int_equal(gci_card_encode(b, wire_b), bytes);
    assert_memory_equal(wire_a, wire_b, bytes);
    assert_string_equal(a->id, b->id);
    assert_string_equal(a->name, b->name);
    assert_string_equal(a->cluster, b->cluster);
    assert_true(a->port == b->port && a->big_endian == b->big_endian && a->addrs == b->addrs);
    assert_true(a->gate == b->gate && a->site == b->site);
    for (int i = 0; i < a->addrs; i++) {
        const gci_ifaddr *x = &a->addr[i], *y = &b->addr[i];
        assert_true(gci_addr_equal(&x->addr, &y->addr) && x->prefix == y->prefix && x->flags == y->flags && x->index == y->index
                    && x->speed == y->speed && x->addr.port == y->addr.port && strcmp(x->name, y->name) == 0);
    }
}

static void test_card(void **state)
{
    gci_full_card card = card_of(3, "site/rack", GCI_CARD_ADDRS_MAX), again;
    uint8_t wire[GCI_CARD_BYTES_MAX], hurt[GCI_CARD_BYTES_MAX + 1];
    size_t bytes;
    (void)state;
    card.gate = UINT64_C(0x123456789abcdef0);
    card.site = UINT64_MAX;
    card.addr[7].addr.port = 7001;
    bytes = gci_card_encode(&card, wire);
    assert_int_equal(gci_card_decode(&again, wire, bytes), GC_OK);
    check_same_card(&card, &again);
    for (size_t n = 0; n < bytes; n++)
        assert_int_equal(gci_card_decode(&again, wire, n), GC_ERR_PROTOCOL);
    memcpy(hurt, wire, bytes);
    hurt[bytes] = 0;
    assert_int_equal(gci_card_decode(&again, hurt, bytes + 1), GC_ERR_PROTOCOL);
    hurt[0] ^= 1;                                   /* version */
    assert_int_equal(gci_card_decode(&again, hurt, bytes), GC_ERR_PROTOCOL);
    memcpy(hurt, wire, bytes);
    hurt[8] = GCI_CARD_ADDRS_MAX + 1;               /* addresses */
    assert_int_equal(gci_card_decode(&again, hurt, bytes), GC_ERR_PROTOCOL);
    memcpy(hurt, wire, bytes);
    hurt[25 + strlen(card.id)] = '\n';              /* a name is printable */
    assert_int_equal(gci_card_decode(&again, hurt, bytes), GC_ERR_PROTOCOL);
    memcpy(hurt, wire, bytes);
    hurt[6] = GCI_HOST_NAME_BYTES;                  /* and has its end */
    assert_int_equal(gci_card_decode(&again, hurt, bytes), GC_ERR_PROTOCOL);
}

/* The longest card there can be fits. */
static void test_card_longest(void **state)
{
    gci_full_card card = card_of(1, "", 0), again;
    uint8_t wire[GCI_CARD_BYTES_MAX + 1];
    (void)state;
    memset(card.id, 'i', sizeof card.id - 1);
    memset(card.name, 'n', sizeof card.name - 1);
    memset(card.cluster, 'c', sizeof card.cluster - 1);
    for (card.addrs = 0; card.addrs < GCI_CARD_ADDRS_MAX; card.addrs++) {
        card.addr[card.addrs] = address("fd00::1", 64, 1);
        snprintf(card.addr[card.addrs].name, GCI_IFNAME_BYTES, "fifteen-letters");
    }
    wire[GCI_CARD_BYTES_MAX] = 0xee;
    size_t bytes = gci_card_encode(&card, wire);
    assert_in_range(bytes, GCI_CARD_BYTES_MAX - 3, GCI_CARD_BYTES_MAX);     /* the texts have no end there */
    assert_int_equal(wire[GCI_CARD_BYTES_MAX], 0xee);
    assert_int_equal(gci_card_decode(&again, wire, bytes), GC_OK);
    check_same_card(&card, &again);
}

static void test_card_fill(void **state)
{
    gci_ifaddr a[GCI_IFADDRS_MAX];
    gci_full_card card;
    (void)state;
    a[0] = address("127.0.0.1", 8, 1);
    for (int i = 1; i < 50; i++)
        a[i] = address("fe80::1", 64, (unsigned)i);
    a[50] = address("10.0.0.1", 24, 50);
    a[51] = address("::1", 128, 1);
    gci_card_fill(&card, "id", "name", "", 5, a, 52);
    assert_int_equal(card.addrs, GCI_CARD_ADDRS_MAX);
    assert_int_equal(card.addr[0].index, 50);       /* the scoped give way, loopback is left out */
    assert_int_equal(card.addr[1].index, 1);
    assert_string_equal(card.name, "name");
    snprintf(a[50].name, sizeof a[50].name, "w\xc3\xa4 \x1bn");      /* a kernel takes nearly any bytes for names */
    gci_card_fill(&card, "id", "no de\x1b.\xff and far-too-long-to-be-the-name-of-any-host-that-there-ever-was-here", "", 5, a,
                  52);
    assert_int_equal(strlen(card.name), GCI_HOST_NAME_BYTES - 1);
    assert_memory_equal(card.name, "no?de?.?" "?and", 12);
    uint8_t wire[GCI_CARD_BYTES_MAX];
    gci_full_card back;
    assert_int_equal(gci_card_decode(&back, wire, gci_card_encode(&card, wire)), GC_OK);
    assert_string_equal(back.addr[0].name, "w????n");
}

static int told(const gci_full_card *card, const char *text)
{
    gci_ifaddr want = address(text, 0, 0);
    int n = 0;
    for (int i = 0; i < card->addrs; i++)
        n += gci_addr_equal(&card->addr[i].addr, &want.addr);
    return n;
}

/* 16 interfaces with four addresses each: every interface keeps its first of each family. */
static void test_card_gives_way(void **state)
{
    gci_ifaddr a[GCI_IFADDRS_MAX];
    gci_full_card card;
    char text[32];
    (void)state;
    for (unsigned i = 0; i < 16; i++) {
        snprintf(text, sizeof text, "fe80::%x", i + 1);
        a[4 * i] = address(text, 64, i + 1);
        snprintf(text, sizeof text, "10.0.%u.1", i);
        a[4 * i + 1] = address(text, 24, i + 1);
        snprintf(text, sizeof text, "10.1.%u.1", i);
        a[4 * i + 2] = address(text, 24, i + 1);
        snprintf(text, sizeof text, "fd00::%x:1", i + 1);
        a[4 * i + 3] = address(text, 64, i + 1);
    }
    gci_card_fill(&card, "id", "name", "", 5, a, GCI_IFADDRS_MAX);
    assert_int_equal(card.addrs, GCI_CARD_ADDRS_MAX);
    for (unsigned i = 0; i < 16; i++) {
        snprintf(text, sizeof text, "10.0.%u.1", i);
        assert_int_equal(told(&card, text), 1);
        snprintf(text, sizeof text, "10.1.%u.1", i);
        assert_int_equal(told(&card, text), i < 8);
        snprintf(text, sizeof text, "fd00::%x:1", i + 1);
        assert_int_equal(told(&card, text), 1);
        snprintf(text, sizeof text, "fe80::%x", i + 1);
        assert_int_equal(told(&card, text), 0);
    }
    for (int i = 1; i < card.addrs; i++)            /* in the order of the host */
        assert_true(card.addr[i].index >= card.addr[i - 1].index);

    for (int i = 32; i < GCI_IFADDRS_MAX; i++)      /* what is idle makes room for others */
        a[i].flags = GCI_IF_IDLE;
    gci_card_fill(&card, "id", "name", "", 5, a, GCI_IFADDRS_MAX);
    assert_int_equal(card.addrs, 32);
    assert_int_equal(told(&card, "10.0.8.1"), 0);
    assert_int_equal(told(&card, "fe80::8"), 1);
    assert_true(gci_addr_class(&card.addr[23].addr) > GCI_CLASS_LINK_LOCAL);        /* they are last */
    assert_true(gci_addr_class(&card.addr[24].addr) == GCI_CLASS_LINK_LOCAL);
}

/* Which of an interface's addresses stays, if only one can. */
static void test_card_best_first(void **state)
{
    static const uint8_t flags[] = { GCI_IF_DEPRECATED | GCI_IF_TEMPORARY, GCI_IF_DEPRECATED, GCI_IF_TEMPORARY, 0, 0 };
    gci_ifaddr a[GCI_IFADDRS_MAX];
    gci_full_card card;
    char text[32];
    (void)state;
    for (int best = 1; best < 4; best++) {
        for (int i = 0; i < GCI_CARD_ADDRS_MAX - 1; i++) {
            snprintf(text, sizeof text, "10.0.%d.1", i);
            a[best + 1 + i] = address(text, 24, (unsigned)i + 2);
        }
        for (int i = 0; i <= best; i++) {
            snprintf(text, sizeof text, "fd00::%d", i);
            a[i] = address(text, 64, 1);
            a[i].flags = flags[i];
        }
        gci_card_fill(&card, "id", "name", "", 5, a, GCI_CARD_ADDRS_MAX + best);
        assert_int_equal(card.addrs, GCI_CARD_ADDRS_MAX);
        assert_int_equal(card.addr[0].flags, flags[best]);
        assert_int_equal(card.addr[0].addr.ip[15], best);
        assert_int_equal(card.addr[1].index, 2);
    }
}

typedef struct table_case { int ranks, hosts; uint8_t **card; size_t *bytes; gci_full_card *full; gci_addr *seen; } table_case;

/* Ranks dealt to hosts in turn, hosts to sites in turn. */
static void table_case_make(table_case *t, int ranks, int hosts, int sites, int addrs)
{
    *t = (table_case){ ranks, hosts, calloc((size_t)ranks, sizeof *t->card), calloc((size_t)ranks, sizeof *t->bytes),
                       calloc((size_t)ranks, sizeof *t->full), calloc((size_t)ranks, sizeof *t->seen) };
    for (int r = 0; r < ranks; r++) {
        char cluster[32];
        snprintf(cluster, sizeof cluster, "site%d/rack%d", r % hosts % sites, r % 5);
        t->full[r] = card_of(r % hosts, cluster, addrs);
        t->full[r].port = (uint16_t)(1 + r);
        t->card[r] = malloc(GCI_CARD_BYTES_MAX);
        t->bytes[r] = gci_card_encode(&t->full[r], t->card[r]);
    }
}

static void table_case_free(table_case *t)
{
    for (int r = 0; r < t->ranks; r++)
        free(t->card[r]);
    free(t->card);
    free(t->bytes);
    free(t->full);
    free(t->seen);
}

static void check_table(const table_case *c, const gci_table *t)
{
    assert_int_equal(t->ranks, c->ranks);
    assert_int_equal(t->hosts, c->hosts);
    assert_true(t->job == 77);
    for (int r = 0; r < c->ranks; r++) {
        gci_full_card card;
        gci_table_card(t, r, &card);
        check_same_card(&card, &c->full[r]);
        assert_int_equal(t->card[r].host, r % c->hosts);
    }
}

static size_t most_memory(const table_case *c, int addrs)
{
    return 512 * (size_t)c->ranks + (addrs <= 16 ? 1024 : 2304) * (size_t)c->hosts;
}

static void test_table(void **state)
{
    static const int cases[][4] = { { 1, 1, 1, 0 }, { 2, 2, 1, 3 }, { 9, 4, 2, 40 }, { 300, 300, 7, 16 }, { 250, 250, 7, 40 },
                                    { 1000, 40, 4, 5 } };
    gci_env env;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    for (size_t i = 0; i < GCI_COUNT(cases); i++) {
        table_case c;
        gci_table t, again;
        uint8_t *wire;
        size_t bytes;
        table_case_make(&c, cases[i][0], cases[i][1], cases[i][2], cases[i][3]);
        assert_int_equal(gci_table_gather(&env, 77, c.ranks, c.card, c.bytes, c.seen, &t), GC_OK);
        check_table(&c, &t);
        assert_true(atomic_load(&env.memory) <= most_memory(&c, cases[i][3]));
        bytes = gci_table_encode(&t, NULL);
        assert_true(bytes <= gci_table_bytes_max(c.ranks));
        wire = malloc(bytes);
        assert_int_equal(gci_table_encode(&t, wire), bytes);
        gci_table_free(&env, &t);
        assert_int_equal(gci_table_decode(&env, wire, bytes, &again), GC_OK);
        check_table(&c, &again);
        assert_true(atomic_load(&env.memory) <= most_memory(&c, cases[i][3]));
        gci_table_free(&env, &again);
        for (size_t n = 0; n < bytes; n += 1 + bytes / 300)
            assert_int_equal(gci_table_decode(&env, wire, n, &again), GC_ERR_PROTOCOL);
        assert_int_equal(atomic_load(&env.memory), 0);
        free(wire);
        table_case_free(&c);
    }
}

static void gather(gci_env *env, table_case *c, gci_table *t)
{
    gci_table first;
    uint8_t *wire;
    size_t bytes;
    for (int r = 0; r < c->ranks; r++)
        c->bytes[r] = gci_card_encode(&c->full[r], c->card[r]);
    assert_int_equal(gci_table_gather(env, 77, c->ranks, c->card, c->bytes, c->seen, &first), GC_OK);
    bytes = gci_table_encode(&first, NULL);
    wire = malloc(bytes);
    gci_table_encode(&first, wire);
    gci_table_free(env, &first);
    assert_int_equal(gci_table_decode(env, wire, bytes, t), GC_OK);
    free(wire);
}

/* Ranks 0 to 5 on hosts 0, 1, 2, 0, 1, 2: where a host is may be known from any of its ranks; it travels in the table. */
static void test_table_sites(void **state)
{
    table_case c;
    gci_table t;
    gci_env env;
    gci_full_card card;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    table_case_make(&c, 6, 3, 1, 2);
    gather(&env, &c, &t);
    for (int h = 0; h < 3; h++)
        assert_true(t.host[h].site == 0);
    gci_table_free(&env, &t);

    c.full[0].gate = 5;                             /* the gate of a host's first rank */
    c.full[1].gate = c.full[4].gate = 6;
    c.seen[2] = address("198.51.100.7", 0, 0).addr; /* one rank came through a NAT, the other by a tunnel */
    c.seen[5] = address("127.0.0.1", 0, 0).addr;
    gather(&env, &c, &t);
    assert_true(t.host[0].site && t.host[1].site && t.host[2].site);
    assert_true(t.host[0].site != t.host[1].site && t.host[1].site != t.host[2].site && t.host[0].site != t.host[2].site);
    gci_table_card(&t, 4, &card);
    assert_true(card.site == t.host[1].site && card.gate == 0);
    gci_table_free(&env, &t);

    c.seen[1] = c.full[1].addr[0].addr;             /* seen at its own address, and, its other rank, through that NAT, too */
    c.seen[4] = c.seen[2];
    gather(&env, &c, &t);
    assert_true(t.host[0].site != t.host[1].site && t.host[1].site == t.host[2].site && t.host[1].site & GCI_SITE_NAT);
    gci_table_free(&env, &t);
    assert_int_equal(atomic_load(&env.memory), 0);
    table_case_free(&c);
}

/* Ranks of one container that are reached at ports of their own do not share an entry; others do. */
static void test_table_ports(void **state)
{
    table_case c;
    gci_table t;
    gci_env env;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    table_case_make(&c, 5, 1, 1, 2);
    for (int r = 1; r < 4; r++) {
        c.full[r].addr[0] = address("203.0.113.1", 32, 7);
        c.full[r].addr[0].addr.port = (uint16_t)(r < 3 ? 7001 : 7003);
    }
    gather(&env, &c, &t);
    assert_int_equal(t.hosts, 3);
    for (int r = 0; r < 5; r++) {
        const gci_host *h = &t.host[t.card[r].host];
        assert_string_equal(h->id, c.full[r].id);
        assert_true(gci_addr_equal(&h->addr[0].addr, &c.full[r].addr[0].addr));
        assert_int_equal(h->addr[0].addr.port, c.full[r].addr[0].addr.port);
    }
    gci_table_free(&env, &t);
    table_case_free(&c);
}

static void test_table_no_memory(void **state)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    int err, allowed = 0;
    table_case c;
    gci_table t;
    gci_env poor;
    (void)state;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    table_case_make(&c, 3, 2, 1, 2);
    do {
        allocations_left = allowed++;
        err = gci_table_gather(&poor, 77, c.ranks, c.card, c.bytes, c.seen, &t);
        if (err == GC_OK)
            gci_table_free(&poor, &t);
        assert_int_equal(atomic_load(&poor.memory), 0);
        assert_true(!t.card && !t.host && !t.clusters);
    } while (err == GC_ERR_NOMEM && allowed < 20);
    assert_int_equal(err, GC_OK);
    assert_int_equal(allowed, 7);
    table_case_free(&c);
}

static void check_parents(gci_env *env, int ranks, int hosts, int sites)
{
    int *parent = calloc((size_t)ranks, sizeof *parent), *children = calloc((size_t)ranks, sizeof *children), entries = 0;
    table_case c;
    gci_table t;
    table_case_make(&c, ranks, hosts, sites, 1);
    assert_int_equal(gci_table_gather(env, 77, ranks, c.card, c.bytes, c.seen, &t), GC_OK);
    assert_int_equal(gci_table_parents(env, &t, parent), GC_OK);
    assert_int_equal(parent[0], -1);
    for (int r = 1; r < ranks; r++) {
        assert_in_range(parent[r], 0, r - 1);                   /* hence a tree */
        children[parent[r]]++;
        entries += r % hosts % sites != parent[r] % hosts % sites;
    }
    assert_int_equal(entries, (sites < ranks ? sites : ranks) - 1);     /* the table enters each other site once */
    for (int h = 0, in; h < hosts && h < ranks; h++) {
        in = h == 0;
        for (int r = 1; r < ranks; r++)
            in += r % hosts == h && parent[r] % hosts != h;
        assert_int_equal(in, 1);                                /* and each host once */
    }
    for (int r = 0; r < ranks; r++)
        assert_in_range(children[r], 0, 24);                    /* 8 on each of three levels */
    gci_table_free(env, &t);
    table_case_free(&c);
    free(parent);
    free(children);
}

static void test_parents(void **state)
{
    gci_env env;
    (void)state;
    gci_env_init(&env, gci_sys_real(), NULL);
    check_parents(&env, 1, 1, 1);
    check_parents(&env, 2, 1, 1);
    check_parents(&env, 64, 1, 1);
    check_parents(&env, 64, 64, 1);
    check_parents(&env, 100, 12, 4);
    check_parents(&env, 1000, 100, 10);
    check_parents(&env, 300, 300, 300);
}

/* ---- handshake ---------------------------------------------------------------------------------------------------------- */

enum { RANKS = 8, ACCEPTOR = 3, CONNECTOR = 5, MESSAGES = 4 };
static const uint8_t nonce_a[GCI_NONCE_BYTES] = { 1 }, nonce_c[GCI_NONCE_BYTES] = { 2 };
static const size_t message_bytes[MESSAGES] = { GCI_HELLO_BYTES, GCI_CHALLENGE_BYTES, GCI_MAC_BYTES, GCI_VERDICT_BYTES };

typedef struct pair {
    gci_shake_self a, c;
    enum gci_purpose purpose;
    unsigned strand;
    uint32_t trunk;
    int to;
    enum gci_refusal first, second;             /* the acceptor's decisions */
    int alter, bit;                             /* message and bit to flip; -1: none */
    gci_shake acceptor, connector;
} pair;

static gci_shake_self self_of(int rank, uint64_t job, const char *key)
{
    return (gci_shake_self){ rank, RANKS, job, (const uint8_t *)key, strlen(key) };
}

static pair pair_of(void)
{
    return (pair){ .a = self_of(ACCEPTOR, 42, "sesame"), .c = self_of(CONNECTOR, 42, "sesame"), .purpose = GCI_PURPOSE_DATA,
                   .to = ACCEPTOR, .alter = -1 };
}

static pair strand_of(void)
{
    pair p = pair_of();
    p.purpose = GCI_PURPOSE_STRAND;
    p.strand = 255;
    p.trunk = 0x80000001;
    return p;
}

/* Byte by byte, so that every place of a cut is tried; what follows must not be taken. */
static void carry(gci_shake *from, gci_shake *to)
{
    uint8_t tail = 0xee;
    for (size_t i = 0; i < from->out_bytes; i++)
        if (gci_shake_feed(to, from->out + i, 1) == 0)
            break;
    if (to->state != GCI_SHAKE_READS)
        assert_int_equal(gci_shake_feed(to, &tail, 1), 0);
    from->out_bytes = 0;
}

static void run(pair *p)
{
    gci_shake_accept(&p->acceptor, &p->a, nonce_a);
    gci_shake_connect(&p->connector, &p->c, p->purpose, p->to, p->strand, p->trunk, nonce_c);
    for (int message = 0; message < MESSAGES; message++) {
        gci_shake *from = message % 2 ? &p->acceptor : &p->connector, *to = message % 2 ? &p->connector : &p->acceptor;
        if (from->out_bytes)
            assert_int_equal(from->out_bytes, message_bytes[message]);
        if (message == p->alter && from->out_bytes)
            from->out[p->bit / 8] ^= (uint8_t)(1 << p->bit % 8);
        carry(from, to);
        if (to->state == GCI_SHAKE_DECIDES)
            gci_shake_decide(to, message == 0 ? p->first : p->second);
    }
}

static void expect(pair *p, enum gci_refusal why, const char *said)
{
    char text[GCI_TEXT];
    run(p);
    assert_int_equal(p->connector.state, GCI_SHAKE_FAILED);
    assert_int_not_equal(p->acceptor.state, GCI_SHAKE_DONE);
    assert_int_equal(p->connector.refusal, why);
    gci_shake_text(&p->connector, text);
    if (!strstr(text, said))
        fail_msg("\"%s\" does not say \"%s\"", text, said);
}

static void test_shake(void **state)
{
    uint32_t id = 0;
    (void)state;
    for (int purpose = GCI_PURPOSE_JOIN; purpose < GCI_PURPOSES; purpose++) {
        pair p = pair_of();
        p.purpose = (enum gci_purpose)purpose;
        if (purpose == GCI_PURPOSE_JOIN)
            p.c.job = 0;
        if (purpose == GCI_PURPOSE_STRAND)
            p = strand_of();
        run(&p);
        assert_int_equal(p.acceptor.state, GCI_SHAKE_DONE);
        assert_int_equal(p.connector.state, GCI_SHAKE_DONE);
        assert_true(p.connector.job == 42 && p.acceptor.peer == CONNECTOR && p.acceptor.purpose == purpose);
        assert_true(p.acceptor.strand == p.strand && p.acceptor.trunk == p.trunk);
        assert_true(p.connector.id != 0 && p.connector.id == p.acceptor.id && p.connector.id != id);
        id = p.connector.id;
    }
    pair p = pair_of();                         /* without a key: the same way */
    p.a.key_bytes = p.c.key_bytes = 0;
    run(&p);
    assert_true(p.acceptor.state == GCI_SHAKE_DONE && p.connector.state == GCI_SHAKE_DONE);
}

static void test_shake_refusals(void **state)
{
    pair p;
    (void)state;
    p = pair_of(); p.c = self_of(CONNECTOR, 42, "open");      expect(&p, GCI_REFUSE_KEY, "wrong key");
    p = pair_of(); p.c.key_bytes = 0;                         expect(&p, GCI_REFUSE_KEY, "wrong key");
    p = pair_of(); p.c.job = 43;                              expect(&p, GCI_REFUSE_JOB, "another job");
    p = pair_of(); p.c.job = 0;                               expect(&p, GCI_REFUSE_JOB, "another job");
    p = pair_of(); p.a.job = 0;                               expect(&p, GCI_REFUSE_JOB, "another job");
    p = pair_of(); p.purpose = GCI_PURPOSE_JOIN;              expect(&p, GCI_REFUSE_JOB, "another job");
    p = pair_of(); p.to = 4;                                  expect(&p, GCI_REFUSE_TO, "another rank");
    p = pair_of(); p.c.ranks = 9;                             expect(&p, GCI_REFUSE_RANKS, "counts 8 ranks, not 9");
    p = pair_of(); p.c.rank = RANKS;                          expect(&p, GCI_REFUSE_FROM, "no such rank");
    p = pair_of(); p.c.rank = ACCEPTOR;                       expect(&p, GCI_REFUSE_FROM, "no such rank");
    p = pair_of(); p.first = GCI_REFUSE_TAKEN;                expect(&p, GCI_REFUSE_TAKEN, "rank 5 is taken");
    p = pair_of(); p.second = GCI_REFUSE_TAKEN;               expect(&p, GCI_REFUSE_TAKEN, "rank 5 is taken");
    p = pair_of(); p.first = GCI_REFUSE_BUSY;                 expect(&p, GCI_REFUSE_BUSY, "busy");
    p = pair_of(); p.first = GCI_REFUSE_LEAVING;              expect(&p, GCI_REFUSE_LEAVING, "leaving");
    p = pair_of(); p.first = GCI_REFUSE_STARTED;              expect(&p, GCI_REFUSE_STARTED, "started");
    p = pair_of(); p.first = GCI_REFUSE_FULL;                 expect(&p, GCI_REFUSE_FULL, "as many links as it may");
    p = pair_of(); p.first = GCI_REFUSE_SILENCE;              expect(&p, GCI_REFUSE_SILENCE, "silence");
    p = strand_of(); p.strand = 0;                            expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    p = strand_of(); p.trunk = 0;                             expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    p = pair_of(); p.strand = 1;                              expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    p = pair_of(); p.trunk = 7;                               expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    p = strand_of(); p.purpose = GCI_PURPOSE_BACKBONE;        expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    p = pair_of(); p.purpose = GCI_PURPOSES;                  expect(&p, GCI_REFUSE_PURPOSE, "this kind of connection");
    /* a connector of version 3: told which version the acceptor speaks */
    p = pair_of(); p.alter = 0; p.bit = 4 * 8;
    run(&p);
    assert_int_equal(p.acceptor.refusal, GCI_REFUSE_VERSION);
    assert_int_equal(p.acceptor.peer_version, 3);
    p = pair_of(); p.alter = 1; p.bit = 4 * 8;                expect(&p, GCI_REFUSE_VERSION, "speaks version 3");
    p = pair_of(); p.alter = 1; p.bit = 0;                    expect(&p, GCI_REFUSE_STRANGER, "gridcomm");
}

/* Whatever bit of the first three messages flips, neither side is satisfied; of the last, the connector is not. */
static void test_shake_flipped(void **state)
{
    (void)state;
    for (int strand = 0; strand < 2; strand++)
        for (int message = 0; message < MESSAGES; message++)
            for (int bit = 0; bit < 8 * (int)message_bytes[message]; bit++) {
                pair p = strand ? strand_of() : pair_of();
                p.alter = message;
                p.bit = bit;
                run(&p);
                if (message < 3)
                    assert_int_not_equal(p.acceptor.state, GCI_SHAKE_DONE);
                assert_int_not_equal(p.connector.state, GCI_SHAKE_DONE);
            }
}

static void test_shake_truncated(void **state)
{
    (void)state;
    for (int message = 0; message < 3; message++) {
        pair p = pair_of();
        gci_shake_accept(&p.acceptor, &p.a, nonce_a);
        gci_shake_connect(&p.connector, &p.c, p.purpose, p.to, p.strand, p.trunk, nonce_c);
        for (int m = 0; m <= message; m++) {
            gci_shake *from = m % 2 ? &p.acceptor : &p.connector, *to = m % 2 ? &p.connector : &p.acceptor;
            from->out_bytes -= m == message;
            carry(from, to);
            if (to->state == GCI_SHAKE_DECIDES)
                gci_shake_decide(to, GCI_REFUSE_NOT);
            if (m == message) {
                assert_int_equal(to->state, GCI_SHAKE_READS);
                assert_int_equal(gci_shake_wants(to), 1);
                assert_int_equal(to->out_bytes, 0);
            }
        }
    }
}

/* Without the key: what can be done with what others say? The acceptor's own MAC sent back to it proves nothing, nor does
 * its CHALLENGE to another connection, nor a connector's PROOF from another handshake. */
static void test_shake_reflection(void **state)
{
    pair p = pair_of(), q;
    uint8_t mac[GCI_MAC_BYTES], challenge[GCI_CHALLENGE_BYTES], proof[GCI_MAC_BYTES];
    (void)state;
    gci_shake_accept(&p.acceptor, &p.a, nonce_a);
    gci_shake_connect(&p.connector, &p.c, p.purpose, p.to, p.strand, p.trunk, nonce_c);
    carry(&p.connector, &p.acceptor);
    gci_shake_decide(&p.acceptor, GCI_REFUSE_NOT);
    memcpy(challenge, p.acceptor.out, sizeof challenge);
    memcpy(mac, challenge + GCI_CHALLENGE_BYTES - GCI_MAC_BYTES, sizeof mac);
    q = p;
    q.acceptor.out_bytes = 0;
    gci_shake_feed(&q.acceptor, mac, sizeof mac);
    gci_shake_decide(&q.acceptor, GCI_REFUSE_NOT);
    assert_int_equal(q.acceptor.state, GCI_SHAKE_FAILED);
    assert_int_equal(q.acceptor.refusal, GCI_REFUSE_KEY);

    carry(&p.acceptor, &p.connector);
    memcpy(proof, p.connector.out, sizeof proof);
    q = pair_of();                              /* the same PROOF to an acceptor with a fresh nonce */
    gci_shake_accept(&q.acceptor, &q.a, nonce_c);
    gci_shake_connect(&q.connector, &q.c, q.purpose, q.to, q.strand, q.trunk, nonce_c);
    carry(&q.connector, &q.acceptor);
    gci_shake_decide(&q.acceptor, GCI_REFUSE_NOT);
    gci_shake_feed(&q.acceptor, proof, sizeof proof);
    assert_int_equal(q.acceptor.refusal, GCI_REFUSE_KEY);

    /* its own HELLO: a socket connected to itself */
    gci_shake_connect(&q.connector, &q.c, q.purpose, q.to, q.strand, q.trunk, nonce_c);
    gci_shake_feed(&q.connector, q.connector.out, GCI_HELLO_BYTES);
    assert_int_equal(q.connector.state, GCI_SHAKE_FAILED);
    assert_int_equal(q.connector.refusal, GCI_REFUSE_STRANGER);

    /* the same CHALLENGE to another HELLO */
    gci_shake_connect(&q.connector, &q.c, GCI_PURPOSE_CONTROL, q.to, 0, 0, nonce_c);
    q.connector.out_bytes = 0;
    gci_shake_feed(&q.connector, challenge, sizeof challenge);
    assert_int_equal(q.connector.refusal, GCI_REFUSE_KEY);
    assert_int_equal(q.connector.out_bytes, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_card),
        cmocka_unit_test(test_card_longest),
        cmocka_unit_test(test_card_fill),
        cmocka_unit_test(test_card_gives_way),
        cmocka_unit_test(test_card_best_first),
        cmocka_unit_test(test_table),
        cmocka_unit_test(test_table_sites),
        cmocka_unit_test(test_table_ports),
        cmocka_unit_test(test_table_no_memory),
        cmocka_unit_test(test_parents),
        cmocka_unit_test(test_shake),
        cmocka_unit_test(test_shake_refusals),
        cmocka_unit_test(test_shake_flipped),
        cmocka_unit_test(test_shake_truncated),
        cmocka_unit_test(test_shake_reflection),
    };
    alarm(60);
    return cmocka_run_group_tests_name("boot", tests, NULL, NULL);
}
