/* fuzz_card.c: libFuzzer target for cards and the table of cards. Whatever the bytes are, decoding refuses them or gives
 * what reads the same when written out again, within its promise of memory; what is gathered from cards decodes.
 * SPDX-License-Identifier: MIT
 *
 * covers: boot.c ^(gci_card|card_|gci_table|table_|tree_)
 * covers: site.c .
 */
#include "gridcomm_int.h"
#include "tests/fuzz/fuzz.h"

#include <stdio.h>

enum { CARDS_MAX = 12 };
static void check_same(const gci_full_card *a, const gci_full_card *b)
{
    uint8_t wire_a[GCI_CARD_BYTES_MAX], wire_b[GCI_CARD_BYTES_MAX];
    size_t bytes = gci_card_encode(a, wire_a);
    must(gci_card_encode(b, wire_b) == bytes && memcmp(wire_a, wire_b, bytes) == 0);
}

static void check_card(const uint8_t *data, size_t bytes)
{
    uint8_t wire[GCI_CARD_BYTES_MAX];
    gci_full_card card, again;
    if (gci_card_decode(&card, data, bytes) != GC_OK)
        return;
    must(gci_card_encode(&card, wire) == bytes && memcmp(wire, data, bytes) == 0);
    must(gci_card_decode(&again, wire, bytes) == GC_OK);
    check_same(&card, &again);
}

static void check_parents(gci_env *env, const gci_table *t)
{
    int *parent = malloc((size_t)t->ranks * sizeof *parent);
    must(parent && gci_table_parents(env, t, parent) == GC_OK && parent[0] == -1);
    for (int r = 1; r < t->ranks; r++)
        must(parent[r] >= 0 && parent[r] < r);
    free(parent);
}

static bool check_table(gci_env *env, const uint8_t *data, size_t bytes)
{
    size_t before = atomic_load(&env->memory), size;
    gci_full_card mine, theirs;
    gci_table t, again;
    uint8_t *wire;

    if (gci_table_decode(env, data, bytes, &t) != GC_OK) {
        must(atomic_load(&env->memory) == before);
        return false;
    }
    must(atomic_load(&env->memory) - before <= 512 * (size_t)t.ranks + 2304 * (size_t)t.hosts);
    must(t.ranks >= 1 && t.hosts >= 1 && t.hosts <= t.ranks && bytes <= gci_table_bytes_max(t.ranks));
    size = gci_table_encode(&t, NULL);
    wire = malloc(size);
    must(wire && size <= bytes && gci_table_encode(&t, wire) == size);
    must(gci_table_decode(env, wire, size, &again) == GC_OK && again.ranks == t.ranks && again.job == t.job);
    for (int r = 0; r < t.ranks; r++) {
        gci_table_card(&t, r, &mine);
        gci_table_card(&again, r, &theirs);
        check_same(&mine, &theirs);
    }
    check_parents(env, &t);
    gci_table_free(env, &t);
    gci_table_free(env, &again);
    free(wire);
    must(atomic_load(&env->memory) == before);
    return true;
}

static gci_addr make_addr(source *s, uint8_t choice)
{
    static const uint8_t ranges[][2] = { { 10, 0 }, { 192, 168 }, { 172, 16 }, { 169, 254 }, { 127, 0 }, { 100, 64 }, { 8, 8 },
                                         { 0, 0 } };
    static const uint8_t ranges6[][2] = { { 0xfe, 0x80 }, { 0xfd, 0 }, { 0x20, 1 }, { 0, 0 } };
    bool six = choice & 128;
    gci_addr a = { .family = six ? 6 : 4 };
    memcpy(a.ip, six ? ranges6[choice % 4] : ranges[choice % 8], 2);
    a.ip[six ? 15 : 3] = next(s);
    return a;
}

/* A card that is right, with what the input chooses. */
static size_t make_card(source *s, uint8_t wire[GCI_CARD_BYTES_MAX])
{
    gci_ifaddr addr[GCI_IFADDRS_MAX];
    gci_full_card card;
    char id[8], name[GCI_HOST_NAME_BYTES], cluster[16];
    uint8_t gate = next(s) % 4;
    int n = next(s) % (GCI_IFADDRS_MAX + 1);

    memset(addr, 0, sizeof addr);
    for (int i = 0; i < n; i++) {
        uint8_t choice = next(s);
        addr[i].addr = make_addr(s, choice);
        addr[i].prefix = (uint8_t)(next(s) % (addr[i].addr.family == 6 ? 129 : 33));
        addr[i].flags = choice & 64 ? next(s) & 31 : 0;
        addr[i].addr.port = choice & 32 ? next(s) % 4 : 0;
        addr[i].index = choice & 7;
        snprintf(addr[i].name, sizeof addr[i].name, "eth%d", choice & 7);
    }
    snprintf(id, sizeof id, "host%d", next(s) % 4);
    snprintf(cluster, sizeof cluster, "s%d/r%d", next(s) % 3, next(s) % 3);
    for (size_t i = 0; i < sizeof name; i++)
        name[i] = (char)next(s);
    name[sizeof name - 1] = 0;
    gci_card_fill(&card, id, name, cluster, (uint16_t)(1 + next(s)), addr, n);
    must(card.addrs <= n);
    card.gate = gate;
    return gci_card_encode(&card, wire);
}

/* Gathers right cards into a table, and then tampers with its wire form. */
static void check_gathered(gci_env *env, source *s)
{
    uint8_t *card[CARDS_MAX], *wire;
    size_t size[CARDS_MAX], bytes;
    int n = 1 + next(s) % CARDS_MAX, hurt;
    gci_addr seen[CARDS_MAX] = { { .family = 0 } };
    gci_table t;

    for (int i = 0; i < n; i++) {           /* first, as the input may end */
        uint8_t choice = next(s);
        if (choice & 64)
            seen[i] = make_addr(s, choice);
    }
    for (int i = 0; i < n; i++) {
        card[i] = malloc(GCI_CARD_BYTES_MAX);
        must(card[i] != NULL);
        size[i] = make_card(s, card[i]);
        check_card(card[i], size[i]);
    }
    must(gci_table_gather(env, 7, n, card, size, seen, &t) == GC_OK);
    for (int h = 0; h < t.hosts; h++)
        must((t.host[h].site & ~GCI_SITE_NAT) <= (uint64_t)t.hosts);
    bytes = gci_table_encode(&t, NULL);
    wire = malloc(bytes);
    must(wire && gci_table_encode(&t, wire) == bytes && check_table(env, wire, bytes));
    hurt = next(s) % 8;
    for (int i = 0; i < hurt; i++)
        wire[(next(s) * 256u + next(s)) % bytes] ^= next(s);
    check_table(env, wire, hurt & 1 ? next(s) % bytes : bytes);
    gci_table_free(env, &t);
    free(wire);
    for (int i = 0; i < n; i++)
        free(card[i]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    source s = { data, bytes };
    gci_env env;

    gci_env_init(&env, gci_sys_real(), NULL);
    switch (next(&s) % 3) {
    case 0:  check_card(s.data, s.bytes); break;
    case 1:  check_table(&env, s.data, s.bytes); break;
    default: check_gathered(&env, &s); break;
    }
    must(atomic_load(&env.memory) == 0);
    return 0;
}
