/* boot.c: how processes get to know and trust each other: cards, the handshake of every port.
 * SPDX-License-Identifier: MIT
 *
 * All of it is pure: plain data in, plain data out, no socket, no clock. control.c moves the bytes.
 *
 * Cards. A process tells about its host (identity, addresses) and itself (port, byte order, cluster). In the table of all
 * cards a host stands once and ranks refer to it. Everything decoded comes from outside: every length and range is
 * checked before it is used, and memory is asked for only in proportion to the bytes that are there. Rank 0 adds where each
 * host is, as far as site.c can tell from what the cards say and from where they came.
 *
 * Handshake. Four messages of fixed length prove to both sides that the other knows the job key: each sends a nonce and
 * an HMAC-SHA-256 over a label of its role and the whole transcript (both nonces, purpose, job, both ranks). The labels
 * differ, so a MAC sent back to its maker proves nothing; the transcript names whom the connector meant, so an answer
 * cannot be fetched from another rank. Without a key the HMAC runs with an empty one: same way, no proof.
 * The first four bytes of the connector's proof, which both sides compute, name the connection from then on (id).
 * gci_shake_wants() never asks for a byte that follows the handshake, so the stream behind it starts clean.
 */
#include "gridcomm_int.h"

#include <stdio.h>

/* ---- bytes in and out ------------------------------------------------------------------------------------------ */

/* A writer without a buffer counts. A reader that was asked for more than there is stays bad and gives zeros. */
typedef struct boot_writer { uint8_t *to; size_t bytes; } boot_writer;
typedef struct boot_reader { const uint8_t *from; size_t left; bool bad; } boot_reader;

static void boot_put(boot_writer *w, const void *data, size_t bytes)
{
    if (w->to && bytes)
        memcpy(w->to + w->bytes, data, bytes);
    w->bytes += bytes;
}

static void boot_put8(boot_writer *w, uint8_t v) { boot_put(w, &v, 1); }
static void boot_put16(boot_writer *w, uint16_t v) { uint8_t b[2]; gci_put16(b, v); boot_put(w, b, sizeof b); }
static void boot_put32(boot_writer *w, uint32_t v) { uint8_t b[4]; gci_put32(b, v); boot_put(w, b, sizeof b); }
static void boot_put64(boot_writer *w, uint64_t v) { uint8_t b[8]; gci_put64(b, v); boot_put(w, b, sizeof b); }

static void boot_get(boot_reader *r, void *data, size_t bytes)
{
    if (r->bad || bytes > r->left) {
        r->bad = true;
        memset(data, 0, bytes);
        return;
    }
    if (bytes)
        memcpy(data, r->from, bytes);
    r->from += bytes;
    r->left -= bytes;
}

static uint8_t boot_get8(boot_reader *r) { uint8_t b; boot_get(r, &b, 1); return b; }
static uint16_t boot_get16(boot_reader *r) { uint8_t b[2]; boot_get(r, b, sizeof b); return gci_get16(b); }
static uint32_t boot_get32(boot_reader *r) { uint8_t b[4]; boot_get(r, b, sizeof b); return gci_get32(b); }
static uint64_t boot_get64(boot_reader *r) { uint8_t b[8]; boot_get(r, b, sizeof b); return gci_get64(b); }

/* A text of printable characters that must fit with its end. */
static void boot_get_text(boot_reader *r, char *text, size_t room, size_t bytes)
{
    if (bytes >= room) {
        r->bad = true;
        text[0] = 0;
        return;
    }
    boot_get(r, text, bytes);
    text[bytes] = 0;
    for (size_t i = 0; i < bytes; i++)
        if (text[i] < ' ' || text[i] > '~')
            r->bad = true;
}

GCI bool gci_is_cluster(const char *text, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++)
        if (text[i] <= ' ' || text[i] > '~')
            return false;
    return bytes < GCI_CLUSTER_MAX;
}

/* ---- cards ------------------------------------------------------------------------------------------------------ */

enum { CARD_ADDR_LEAST = 18 };      /* wire bytes of the shortest address */

/*   0 family  1 prefix  2 flags  3 bytes of name  4 index  8 speed  12 port  14 ip (4, or 16 and scope 4)  name */
static void card_put_addr(boot_writer *w, const gci_ifaddr *a)
{
    size_t name = strnlen(a->name, sizeof a->name - 1);

    boot_put8(w, a->addr.family);
    boot_put8(w, a->prefix);
    boot_put8(w, a->flags);
    boot_put8(w, (uint8_t)name);
    boot_put32(w, a->index);
    boot_put32(w, a->speed);
    boot_put16(w, a->addr.port);
    boot_put(w, a->addr.ip, a->addr.family == 4 ? 4 : 16);
    if (a->addr.family == 6)
        boot_put32(w, a->addr.scope);
    boot_put(w, a->name, name);
}

static void card_get_addr(boot_reader *r, gci_ifaddr *a)
{
    size_t name;

    memset(a, 0, sizeof *a);
    a->addr.family = boot_get8(r);
    a->prefix = boot_get8(r);
    a->flags = boot_get8(r);
    name = boot_get8(r);
    a->index = boot_get32(r);
    a->speed = boot_get32(r);
    a->addr.port = boot_get16(r);
    if ((a->addr.family != 4 && a->addr.family != 6) || a->prefix > (a->addr.family == 4 ? 32 : 128)) {
        r->bad = true;
        return;
    }
    boot_get(r, a->addr.ip, a->addr.family == 4 ? 4 : 16);
    if (a->addr.family == 6)
        a->addr.scope = boot_get32(r);
    boot_get_text(r, a->name, sizeof a->name, name);
}

/* A kernel takes nearly any bytes for the name of a host or an interface. */
static void card_put_name(char *to, size_t room, const char *name)
{
    size_t i = 0;
    for (; i + 1 < room && name[i]; i++)
        to[i] = name[i] > ' ' && name[i] <= '~' ? name[i] : '?';
    to[i] = 0;
}

static int card_dislike(const gci_ifaddr *a)
{
    return (a->flags & GCI_IF_TEMPORARY ? 1 : 0) + (a->flags & GCI_IF_DEPRECATED ? 2 : 0);
}

/* Who has many addresses tells those of the first turns. In the first, each interface has its best of each family; link-local
 * ones have the last turns. -1: it is never told. */
enum { CARD_TURNS = 2 * GCI_IFADDRS_MAX };
static int card_turn(const gci_ifaddr *addr, int n, int which)
{
    const gci_ifaddr *a = &addr[which];
    bool local = gci_addr_class(&a->addr) == GCI_CLASS_LINK_LOCAL;
    int turn = local ? GCI_IFADDRS_MAX : 0;

    if (a->flags & (GCI_IF_LOOPBACK | GCI_IF_IDLE) || gci_addr_is_loopback(&a->addr))
        return -1;
    for (int i = 0; i < n; i++) {
        const gci_ifaddr *b = &addr[i];
        int worse = card_dislike(a) - card_dislike(b);
        if (b->index == a->index && b->addr.family == a->addr.family && (worse > 0 || (worse == 0 && i < which))
            && (gci_addr_class(&b->addr) == GCI_CLASS_LINK_LOCAL) == local)
            turn++;
    }
    return turn;
}

/* In the order given, link-local ones last. */
static void card_fill_addrs(gci_full_card *card, const gci_ifaddr *addr, int n)
{
    int turn[GCI_IFADDRS_MAX], left = GCI_CARD_ADDRS_MAX;
    bool told[GCI_IFADDRS_MAX] = { false };

    n = n < GCI_IFADDRS_MAX ? n : GCI_IFADDRS_MAX;
    for (int i = 0; i < n; i++)
        turn[i] = card_turn(addr, n, i);
    for (int t = 0; t < CARD_TURNS; t++)
        for (int i = 0; i < n && left; i++)
            if (turn[i] == t) {
                told[i] = true;
                left--;
            }
    for (int local = 0; local < 2; local++)
        for (int i = 0; i < n; i++)
            if (told[i] && (turn[i] >= GCI_IFADDRS_MAX) == (local == 1)) {
                gci_ifaddr *to = &card->addr[card->addrs++];
                *to = addr[i];
                card_put_name(to->name, sizeof to->name, addr[i].name);
            }
}

GCI void gci_card_fill(gci_full_card *card, const char *id, const char *name, const char *cluster, uint16_t port,
                       const gci_ifaddr *addr, int n)
{
    const uint16_t probe = 1;

    memset(card, 0, sizeof *card);
    snprintf(card->id, sizeof card->id, "%s", id);
    card_put_name(card->name, sizeof card->name, name);
    snprintf(card->cluster, sizeof card->cluster, "%s", cluster);
    card->port = port;
    card->big_endian = *(const uint8_t *)&probe == 0;
    card_fill_addrs(card, addr, n);
}

/*   0 version  2 port  4 big endian  5 bytes of id  6 of name  7 of cluster  8 addresses  9 gate  17 site
 *  25 id  name  cluster  addresses */
GCI size_t gci_card_encode(const gci_full_card *card, uint8_t out[GCI_CARD_BYTES_MAX])
{
    boot_writer w = { out, 0 };

    boot_put16(&w, GCI_PROTOCOL_VERSION);
    boot_put16(&w, card->port);
    boot_put8(&w, card->big_endian);
    boot_put8(&w, (uint8_t)strlen(card->id));
    boot_put8(&w, (uint8_t)strlen(card->name));
    boot_put8(&w, (uint8_t)strlen(card->cluster));
    boot_put8(&w, (uint8_t)card->addrs);
    boot_put64(&w, card->gate);
    boot_put64(&w, card->site);
    boot_put(&w, card->id, strlen(card->id));
    boot_put(&w, card->name, strlen(card->name));
    boot_put(&w, card->cluster, strlen(card->cluster));
    for (int i = 0; i < card->addrs; i++)
        card_put_addr(&w, &card->addr[i]);
    return w.bytes;
}

GCI int gci_card_decode(gci_full_card *card, const uint8_t *data, size_t bytes)
{
    boot_reader r = { data, bytes, false };
    unsigned version, id, name, cluster, addrs;

    memset(card, 0, sizeof *card);
    version = boot_get16(&r);
    card->port = boot_get16(&r);
    card->big_endian = boot_get8(&r);
    id = boot_get8(&r);
    name = boot_get8(&r);
    cluster = boot_get8(&r);
    addrs = boot_get8(&r);
    card->gate = boot_get64(&r);
    card->site = boot_get64(&r);
    if (r.bad || version != GCI_PROTOCOL_VERSION || !card->port || card->big_endian > 1 || !id || addrs > GCI_CARD_ADDRS_MAX)
        return GC_ERR_PROTOCOL;
    boot_get_text(&r, card->id, sizeof card->id, id);
    boot_get_text(&r, card->name, sizeof card->name, name);
    boot_get_text(&r, card->cluster, sizeof card->cluster, cluster);
    card->addrs = (int)addrs;
    for (unsigned i = 0; i < addrs && !r.bad; i++)
        card_get_addr(&r, &card->addr[i]);
    if (r.bad || r.left || !gci_is_cluster(card->cluster, strlen(card->cluster)))
        return GC_ERR_PROTOCOL;
    return GC_OK;
}

/* ---- the table of all cards --------------------------------------------------------------------------------------- */

/* Wire form, sizes first so that memory is asked for once and never for more than the bytes there can fill:
 *   0 version  2 zero  4 ranks  8 hosts  12 addresses  16 bytes of clusters  20 zero  24 job
 *   hosts:    bytes of id, of name, addresses, site 8, id, name, addresses
 *   clusters: texts, each with its end
 *   ranks:    host 4, place of the cluster text 4, port 2, big endian 1, zero 1 */
enum { TABLE_HEAD_BYTES = 32, TABLE_HOST_LEAST = 12, TABLE_RANK_BYTES = 12,
       TABLE_HOST_MOST = 11 + GCI_HOST_ID_BYTES + GCI_HOST_NAME_BYTES + GCI_CARD_ADDRS_MAX * GCI_CARD_ADDR_BYTES_MAX,
       TABLE_FAN = 8 };

/* Hosts as people have them stay within 1 KiB each. */
_Static_assert(sizeof(gci_card) + GCI_CLUSTER_MAX <= 512 && sizeof(gci_host) + 16 * sizeof(gci_ifaddr) <= 1024
               && sizeof(gci_host) + GCI_CARD_ADDRS_MAX * sizeof(gci_ifaddr) <= 2304,
               "a table fits into 512 B * ranks + 1 KiB * hosts of up to 16 addresses + 2.25 KiB * hosts of up to 40");

GCI void gci_table_free(gci_env *env, gci_table *t)
{
    gci_free(env, t->card);
    gci_free(env, t->host);         /* and the addresses behind it */
    gci_free(env, t->clusters);
    memset(t, 0, sizeof *t);
}

/* One block for hosts and, behind them, all addresses. */
static int table_alloc(gci_env *env, gci_table *t, int ranks, int hosts, size_t addrs, size_t cluster_bytes, gci_ifaddr **addr)
{
    memset(t, 0, sizeof *t);
    t->card = gci_alloc(env, (size_t)ranks * sizeof *t->card);
    t->host = gci_alloc(env, (size_t)hosts * sizeof *t->host + addrs * sizeof **addr);
    t->clusters = gci_alloc(env, cluster_bytes);
    if (!t->card || !t->host || !t->clusters) {
        gci_table_free(env, t);
        return GC_ERR_NOMEM;
    }
    t->ranks = ranks;
    t->hosts = hosts;
    *addr = (gci_ifaddr *)(void *)(t->host + hosts);
    return GC_OK;
}

/* What gathering finds out before it knows how much to allocate. */
typedef struct table_draft {
    uint64_t hash;                  /* of host i: of its identity ... */
    int      first;                 /* ... and its first rank */
    int      host;                  /* of rank i */
} table_draft;

static uint64_t table_hash(const char *text)
{
    uint64_t h = UINT64_C(14695981039346656037);        /* FNV-1a; every hit is compared in full */
    for (; *text; text++)
        h = (h ^ (uint8_t)*text) * UINT64_C(1099511628211);
    return h;
}

/* Of a container's ranks each may be reached at a port that is mapped for it alone (GRIDCOMM_ADVERTISE). Then they do not share
 * an entry. */
static bool table_same_addresses(const gci_full_card *a, const gci_full_card *b)
{
    bool mapped = false, same = a->addrs == b->addrs;
    for (int i = 0; i < a->addrs || i < b->addrs; i++) {
        mapped = mapped || (i < a->addrs && a->addr[i].addr.port) || (i < b->addrs && b->addr[i].addr.port);
        same = same && gci_addr_equal(&a->addr[i].addr, &b->addr[i].addr) && a->addr[i].addr.port == b->addr[i].addr.port;
    }
    return same || !mapped;
}

static int table_find_host(const table_draft *draft, int hosts, uint8_t *const card[], const size_t bytes[],
                           const gci_full_card *c)
{
    uint64_t hash = table_hash(c->id);
    gci_full_card other;

    for (int h = 0; h < hosts; h++)
        if (draft[h].hash == hash && gci_card_decode(&other, card[draft[h].first], bytes[draft[h].first]) == GC_OK
            && strcmp(other.id, c->id) == 0 && table_same_addresses(&other, c))
            return h;
    return -1;
}

static size_t table_cluster(gci_table *t, size_t *used, const char *text)
{
    size_t at = 0;
    while (at < *used && strcmp(t->clusters + at, text) != 0)
        at += strlen(t->clusters + at) + 1;
    if (at == *used) {
        memcpy(t->clusters + at, text, strlen(text) + 1);
        *used += strlen(text) + 1;
    }
    return at;
}

static int table_count(int ranks, uint8_t *const card[], const size_t bytes[], table_draft *draft, int *hosts, size_t *addrs,
                       size_t *cluster_bytes)
{
    gci_full_card c;

    *hosts = 0;
    *addrs = *cluster_bytes = 0;
    for (int r = 0; r < ranks; r++) {
        int err = gci_card_decode(&c, card[r], bytes[r]);
        if (err < 0)
            return err;
        *cluster_bytes += strlen(c.cluster) + 1;
        draft[r].host = table_find_host(draft, *hosts, card, bytes, &c);
        if (draft[r].host < 0) {
            draft[*hosts].first = r;
            draft[*hosts].hash = table_hash(c.id);
            draft[r].host = (*hosts)++;
            *addrs += (size_t)c.addrs;
        }
    }
    return GC_OK;
}

/* A host may have been seen at several addresses, one for each of its ranks: one that is not its own says most. */
static void table_see(gci_whereabouts *w, const gci_addr *seen)
{
    bool own = false;
    for (int i = 0; i < w->addrs; i++)
        own = own || gci_addr_equal(&w->addr[i].addr, seen);
    if (seen->family && !gci_addr_is_loopback(seen) && (!w->seen.family || !own))
        w->seen = *seen;
}

static int table_find_sites(gci_env *env, gci_table *t, const uint64_t gate[], const gci_addr seen[])
{
    size_t n = (size_t)t->hosts;
    gci_whereabouts *where = gci_alloc(env, n * (sizeof *where + sizeof(uint64_t)));
    uint64_t *site;
    int err;

    if (!where)
        return GC_ERR_NOMEM;
    site = (uint64_t *)(void *)(where + n);
    for (int h = 0; h < t->hosts; h++)
        where[h] = (gci_whereabouts){ .addr = t->host[h].addr, .addrs = t->host[h].addrs, .gate = gate[h] };
    for (int r = 0; r < t->ranks; r++)
        table_see(&where[t->card[r].host], &seen[r]);
    err = gci_sites(env, where, t->hosts, site);
    for (int h = 0; h < t->hosts && err >= 0; h++)
        t->host[h].site = site[h];
    gci_free(env, where);
    return err;
}

static void table_fill(gci_table *t, const table_draft *draft, uint8_t *const card[], const size_t bytes[], gci_ifaddr *addr,
                       uint64_t gate[])
{
    size_t used = 0;
    gci_full_card c;

    for (int r = 0; r < t->ranks; r++) {
        int h = draft[r].host;
        gci_card_decode(&c, card[r], bytes[r]);         /* has succeeded before */
        t->card[r] = (gci_card){ .host = h, .port = c.port, .big_endian = c.big_endian,
                                 .cluster = t->clusters + table_cluster(t, &used, c.cluster) };
        if (draft[h].first != r)
            continue;
        memcpy(t->host[h].id, c.id, sizeof c.id);
        memcpy(t->host[h].name, c.name, sizeof c.name);
        memcpy(addr, c.addr, (size_t)c.addrs * sizeof *addr);
        t->host[h].addrs = c.addrs;
        t->host[h].addr = addr;
        addr += c.addrs;
        gate[h] = c.gate;
    }
}

GCI int gci_table_gather(gci_env *env, uint64_t job, int ranks, uint8_t *const card[], const size_t bytes[],
                         const gci_addr seen[], gci_table *t)
{
    uint64_t *gate = gci_alloc(env, (size_t)ranks * (sizeof *gate + sizeof(table_draft)));
    table_draft *draft;
    size_t addrs, cluster_bytes;
    gci_ifaddr *addr;
    int hosts, err;

    memset(t, 0, sizeof *t);
    if (!gate)
        return GC_ERR_NOMEM;
    draft = (table_draft *)(void *)(gate + ranks);
    if ((err = table_count(ranks, card, bytes, draft, &hosts, &addrs, &cluster_bytes)) < 0
        || (err = table_alloc(env, t, ranks, hosts, addrs, cluster_bytes, &addr)) < 0)
        goto end;
    t->job = job;
    table_fill(t, draft, card, bytes, addr, gate);
    if ((err = table_find_sites(env, t, gate, seen)) < 0)
        gci_table_free(env, t);
end:
    gci_free(env, gate);
    return err;
}

/* Bytes of the cluster texts in use: the furthest that a card refers to, and its end. */
static size_t table_cluster_bytes(const gci_table *t)
{
    size_t end = 1;
    for (int r = 0; r < t->ranks; r++)
        end = gci_max(end, (size_t)(t->card[r].cluster - t->clusters) + strlen(t->card[r].cluster) + 1);
    return end;
}

GCI size_t gci_table_encode(const gci_table *t, uint8_t *out)
{
    boot_writer w = { out, 0 };
    size_t addrs = 0, cluster_bytes = table_cluster_bytes(t);

    for (int h = 0; h < t->hosts; h++)
        addrs += (size_t)t->host[h].addrs;
    boot_put32(&w, GCI_PROTOCOL_VERSION);
    boot_put32(&w, (uint32_t)t->ranks);
    boot_put32(&w, (uint32_t)t->hosts);
    boot_put32(&w, (uint32_t)addrs);
    boot_put32(&w, (uint32_t)cluster_bytes);
    boot_put32(&w, t->modelled);
    boot_put64(&w, t->job);
    for (int h = 0; h < t->hosts; h++) {
        boot_put8(&w, (uint8_t)strlen(t->host[h].id));
        boot_put8(&w, (uint8_t)strlen(t->host[h].name));
        boot_put8(&w, (uint8_t)t->host[h].addrs);
        boot_put64(&w, t->host[h].site);
        boot_put(&w, t->host[h].id, strlen(t->host[h].id));
        boot_put(&w, t->host[h].name, strlen(t->host[h].name));
        for (int i = 0; i < t->host[h].addrs; i++)
            card_put_addr(&w, &t->host[h].addr[i]);
    }
    boot_put(&w, t->clusters, cluster_bytes);
    for (int r = 0; r < t->ranks; r++) {
        boot_put32(&w, (uint32_t)t->card[r].host);
        boot_put32(&w, (uint32_t)(t->card[r].cluster - t->clusters));
        boot_put16(&w, t->card[r].port);
        boot_put16(&w, t->card[r].big_endian);
    }
    return w.bytes;
}

GCI size_t gci_table_bytes_max(int ranks)
{
    return TABLE_HEAD_BYTES + (size_t)ranks * (TABLE_HOST_MOST + GCI_CLUSTER_MAX + TABLE_RANK_BYTES);
}

static int table_get_hosts(boot_reader *r, gci_table *t, gci_ifaddr *addr, size_t addrs)
{
    for (int h = 0; h < t->hosts && !r->bad; h++) {
        unsigned id = boot_get8(r), name = boot_get8(r), n = boot_get8(r);
        t->host[h].site = boot_get64(r);
        boot_get_text(r, t->host[h].id, sizeof t->host[h].id, id);
        boot_get_text(r, t->host[h].name, sizeof t->host[h].name, name);
        if (r->bad || !id || n > GCI_CARD_ADDRS_MAX || n > addrs)
            return GC_ERR_PROTOCOL;
        t->host[h].addrs = (int)n;
        t->host[h].addr = addr;
        for (unsigned i = 0; i < n; i++)
            card_get_addr(r, addr++);
        addrs -= n;
    }
    return r->bad || addrs ? GC_ERR_PROTOCOL : GC_OK;
}

static int table_get_clusters(boot_reader *r, char *text, size_t bytes)
{
    boot_get(r, text, bytes);
    if (r->bad || text[bytes - 1])
        return GC_ERR_PROTOCOL;
    for (size_t at = 0; at < bytes; at += strlen(text + at) + 1)
        if (!gci_is_cluster(text + at, strlen(text + at)))
            return GC_ERR_PROTOCOL;
    return GC_OK;
}

static int table_get_ranks(boot_reader *r, gci_table *t, size_t cluster_bytes)
{
    for (int i = 0; i < t->ranks; i++) {
        uint32_t host = boot_get32(r), cluster = boot_get32(r);
        unsigned port = boot_get16(r), big_endian = boot_get16(r);
        if (r->bad || host >= (uint32_t)t->hosts || cluster >= cluster_bytes || (cluster && t->clusters[cluster - 1]) || !port
            || big_endian > 1)
            return GC_ERR_PROTOCOL;
        t->card[i] = (gci_card){ .host = (int)host, .port = (uint16_t)port, .big_endian = (uint8_t)big_endian,
                                 .cluster = t->clusters + cluster };
    }
    return r->left ? GC_ERR_PROTOCOL : GC_OK;
}

GCI int gci_table_decode(gci_env *env, const uint8_t *data, size_t bytes, gci_table *t)
{
    boot_reader r = { data, bytes, false };
    uint32_t version = boot_get32(&r), ranks = boot_get32(&r), hosts = boot_get32(&r), addrs = boot_get32(&r);
    uint32_t cluster_bytes = boot_get32(&r), modelled = boot_get32(&r);
    uint64_t job = boot_get64(&r);
    gci_ifaddr *addr;
    int err;

    memset(t, 0, sizeof *t);
    if (r.bad || version != GCI_PROTOCOL_VERSION || modelled > 1 || !ranks || ranks > GCI_RANKS_MAX || !hosts || hosts > ranks
        || addrs > hosts * GCI_CARD_ADDRS_MAX || !cluster_bytes || cluster_bytes > ranks * GCI_CLUSTER_MAX)
        return GC_ERR_PROTOCOL;
    if (r.left < (size_t)ranks * TABLE_RANK_BYTES + (size_t)hosts * TABLE_HOST_LEAST + (size_t)addrs * CARD_ADDR_LEAST
                 + cluster_bytes)
        return GC_ERR_PROTOCOL;
    if ((err = table_alloc(env, t, (int)ranks, (int)hosts, addrs, cluster_bytes, &addr)) < 0)
        return err;
    t->job = job;
    t->modelled = modelled;
    if ((err = table_get_hosts(&r, t, addr, addrs)) < 0 || (err = table_get_clusters(&r, t->clusters, cluster_bytes)) < 0
        || (err = table_get_ranks(&r, t, cluster_bytes)) < 0)
        gci_table_free(env, t);
    return err;
}

GCI void gci_table_card(const gci_table *t, int rank, gci_full_card *card)
{
    const gci_card *c = &t->card[rank];
    const gci_host *h = &t->host[c->host];

    memset(card, 0, sizeof *card);
    memcpy(card->id, h->id, sizeof card->id);
    memcpy(card->name, h->name, sizeof card->name);
    snprintf(card->cluster, sizeof card->cluster, "%s", c->cluster);
    card->port = c->port;
    card->big_endian = c->big_endian;
    card->site = h->site;
    card->addrs = h->addrs;
    if (h->addrs)
        memcpy(card->addr, h->addr, (size_t)h->addrs * sizeof *h->addr);
}

/* ---- the tree along which the table travels ------------------------------------------------------------------------ */

/* One level: members (ascending) of each group form a tree of bounded fan-out in their order, so a parent is always of
 * lower rank than its children and no cycle can be. The first of each group is the leader that goes to the level above.
 *
 *     sites:   0 ------------- 6 ---- 9            (leaders of sites)
 *     hosts:   0 -- 2 -- 4     6 - 8  9            (leaders of hosts, within a site)
 *     ranks:   0-1  2-3  4-5   6-7 8  9-10         (ranks, within a host)                                            */
static int tree_level(gci_env *env, const int *member, int n, const int *group, int groups, int *leader, int *parent)
{
    int *start = gci_alloc(env, ((size_t)groups + 1 + (size_t)groups + (size_t)n) * sizeof *start), *used, *sorted;
    int leaders = 0;

    if (!start)
        return GC_ERR_NOMEM;
    used = start + groups + 1;
    sorted = used + groups;
    for (int i = 0; i < n; i++)
        start[group[i] + 1]++;
    for (int g = 0; g < groups; g++)
        start[g + 1] += start[g];
    for (int i = 0; i < n; i++) {
        int *in = sorted + start[group[i]], at = used[group[i]]++;
        in[at] = member[i];
        if (at)
            parent[member[i]] = in[(at - 1) / TABLE_FAN];
        else
            leader[leaders++] = member[i];
    }
    gci_free(env, start);
    return leaders;
}

GCI bool gci_table_same_site(const gci_table *t, int rank, int other)
{
    const char *a = t->card[rank].cluster, *b = t->card[other].cluster;
    size_t bytes = strcspn(a, "/");
    return bytes == strcspn(b, "/") && memcmp(a, b, bytes) == 0;
}

/* site[i]: number of the site of member i, counted in order of appearance. Returns how many. */
static int tree_sites(const gci_table *t, const int *member, int n, int *site, int *first)
{
    int sites = 0;
    for (int i = 0; i < n; i++) {
        int s = 0;
        while (s < sites && !gci_table_same_site(t, member[i], first[s]))
            s++;
        if (s == sites)
            first[sites++] = member[i];
        site[i] = s;
    }
    return sites;
}

GCI int gci_table_parents(gci_env *env, const gci_table *t, int parent[])
{
    size_t n = (size_t)t->ranks;
    int *member = gci_alloc(env, 3 * n * sizeof *member), *group, *leader, count, groups;

    if (!member)
        return GC_ERR_NOMEM;
    group = member + n;
    leader = group + n;
    parent[0] = -1;
    for (int r = 0; r < t->ranks; r++) {
        member[r] = r;
        group[r] = t->card[r].host;
    }
    if ((count = tree_level(env, member, t->ranks, group, t->hosts, leader, parent)) < 0)
        goto end;
    groups = tree_sites(t, leader, count, group, member);
    if ((count = tree_level(env, leader, count, group, groups, member, parent)) < 0)
        goto end;
    memset(group, 0, n * sizeof *group);
    count = tree_level(env, member, count, group, 1, leader, parent);
end:
    gci_free(env, member);
    return count < 0 ? count : GC_OK;
}

/* ---- the handshake --------------------------------------------------------------------------------------------------- */

/* HELLO      0 "GCOM"  4 version  6 purpose  7 strand  8 from   12 to    16 ranks  20 trunk 24 job  32 nonce
 * CHALLENGE  0 "GCOM"  4 version  6 status   7 zero    8 job    16 ranks 20 rank   24 nonce  56 MAC
 * PROOF      0 MAC
 * VERDICT    0 status  1 zero
 * The first 8 bytes of HELLO and CHALLENGE mean the same in every version to come. Strand and trunk are of a STRAND, else zero;
 * the MACs are over all of HELLO, so nobody else can say that a connection belongs to another one. */
static const uint8_t shake_magic[4] = { 'G', 'C', 'O', 'M' };
static const char shake_acceptor_label[] = "gridcomm acceptor", shake_connector_label[] = "gridcomm connector";
enum { SHAKE_SIGNED_BYTES = GCI_CHALLENGE_BYTES - GCI_MAC_BYTES };      /* of CHALLENGE */

static void shake_mac(const gci_shake *s, const char *label, uint8_t out[GCI_MAC_BYTES])
{
    struct iovec parts[2] = { { (void *)(uintptr_t)label, strlen(label) + 1 },
                              { (void *)(uintptr_t)s->transcript, sizeof s->transcript } };
    gci_hmac(s->self.key, s->self.key_bytes, parts, 2, out);
}

static void shake_name(gci_shake *s, const uint8_t proof[GCI_MAC_BYTES])
{
    uint32_t id = gci_get32(proof);
    s->id = id ? id : 1;
}

static void shake_start(gci_shake *s, const gci_shake_self *self, bool acceptor)
{
    memset(s, 0, sizeof *s);
    s->self = *self;
    s->acceptor = acceptor;
    s->job = self->job;
    s->peer = -1;
    s->state = GCI_SHAKE_READS;
}

static void shake_await(gci_shake *s, enum gci_shake_step step, size_t bytes)
{
    s->step = (uint8_t)step;
    s->state = GCI_SHAKE_READS;
    s->have = 0;
    s->want = bytes;
}

static void shake_fail(gci_shake *s, enum gci_refusal why)
{
    s->refusal = (uint8_t)why;
    s->state = GCI_SHAKE_FAILED;
}

GCI void gci_shake_connect(gci_shake *s, const gci_shake_self *self, enum gci_purpose purpose, int to, unsigned strand,
                           uint32_t trunk, const uint8_t nonce[GCI_NONCE_BYTES])
{
    uint8_t *hello = s->out;

    shake_start(s, self, false);
    s->purpose = (uint8_t)purpose;
    s->peer = to;
    s->strand = (uint8_t)strand;
    s->trunk = trunk;
    memcpy(hello, shake_magic, sizeof shake_magic);
    gci_put16(hello + 4, GCI_PROTOCOL_VERSION);
    hello[6] = (uint8_t)purpose;
    hello[7] = s->strand;
    gci_put32(hello + 8, (uint32_t)self->rank);
    gci_put32(hello + 12, (uint32_t)to);
    gci_put32(hello + 16, (uint32_t)self->ranks);
    gci_put32(hello + 20, trunk);
    gci_put64(hello + 24, self->job);
    memcpy(hello + 32, nonce, GCI_NONCE_BYTES);
    s->out_bytes = GCI_HELLO_BYTES;
    memcpy(s->transcript, hello, GCI_HELLO_BYTES);
    shake_await(s, GCI_SHAKE_CHALLENGE, GCI_CHALLENGE_BYTES);
}

GCI void gci_shake_accept(gci_shake *s, const gci_shake_self *self, const uint8_t nonce[GCI_NONCE_BYTES])
{
    shake_start(s, self, true);
    memcpy(s->transcript + GCI_HELLO_BYTES + 24, nonce, GCI_NONCE_BYTES);   /* where CHALLENGE has it */
    shake_await(s, GCI_SHAKE_HELLO, GCI_HELLO_BYTES);
}

GCI size_t gci_shake_wants(const gci_shake *s)
{
    return s->state == GCI_SHAKE_READS ? s->want - s->have : 0;
}

/* What is wrong with a HELLO that has the magic. */
static enum gci_refusal shake_judge_hello(gci_shake *s)
{
    const uint8_t *hello = s->in;
    uint32_t from = gci_get32(hello + 8), to = gci_get32(hello + 12);
    uint64_t job = gci_get64(hello + 24);

    s->peer_version = gci_get16(hello + 4);
    if (s->peer_version != GCI_PROTOCOL_VERSION)
        return GCI_REFUSE_VERSION;
    s->purpose = hello[6];
    s->strand = hello[7];
    s->trunk = gci_get32(hello + 20);
    s->peer_ranks = gci_get32(hello + 16);
    if (s->purpose == 0 || s->purpose >= GCI_PURPOSES || (s->strand != 0) != (s->purpose == GCI_PURPOSE_STRAND)
        || (s->trunk != 0) != (s->purpose == GCI_PURPOSE_STRAND))
        return GCI_REFUSE_PURPOSE;
    if (s->purpose == GCI_PURPOSE_JOIN ? job != 0 : !s->self.job || job != s->self.job)
        return GCI_REFUSE_JOB;
    if (s->peer_ranks != (uint32_t)s->self.ranks)
        return GCI_REFUSE_RANKS;
    if (to != (uint32_t)s->self.rank)
        return GCI_REFUSE_TO;
    if (from >= (uint32_t)s->self.ranks || from == to)
        return GCI_REFUSE_FROM;
    s->peer = (int)from;
    return GCI_REFUSE_NOT;
}

static void shake_hello(gci_shake *s)
{
    if (memcmp(s->in, shake_magic, sizeof shake_magic) != 0) {
        shake_fail(s, GCI_REFUSE_STRANGER);             /* and not a byte in answer */
        return;
    }
    memcpy(s->transcript, s->in, GCI_HELLO_BYTES);
    s->refusal = (uint8_t)shake_judge_hello(s);
    s->state = GCI_SHAKE_DECIDES;
}

/* A refusal is believed only under a right MAC, but for the version: another one may compute it otherwise. */
static void shake_challenge(gci_shake *s)
{
    uint8_t mac[GCI_MAC_BYTES], status = s->in[6];
    uint64_t job = gci_get64(s->in + 8);

    s->peer_version = gci_get16(s->in + 4);
    if (memcmp(s->in, shake_magic, sizeof shake_magic) != 0 || status >= GCI_REFUSALS) {
        shake_fail(s, GCI_REFUSE_STRANGER);
        return;
    }
    if (s->peer_version != GCI_PROTOCOL_VERSION) {
        shake_fail(s, GCI_REFUSE_VERSION);
        return;
    }
    memcpy(s->transcript + GCI_HELLO_BYTES, s->in, SHAKE_SIGNED_BYTES);
    shake_mac(s, shake_acceptor_label, mac);
    s->peer_ranks = gci_get32(s->in + 16);
    if (!gci_equal_in_constant_time(mac, s->in + SHAKE_SIGNED_BYTES, sizeof mac))
        shake_fail(s, GCI_REFUSE_KEY);
    else if (status)
        shake_fail(s, status);
    else if (!job || (s->self.job && job != s->self.job))
        shake_fail(s, GCI_REFUSE_JOB);
    else if (gci_get32(s->in + 20) != (uint32_t)s->peer)
        shake_fail(s, GCI_REFUSE_TO);
    else if (s->peer_ranks != (uint32_t)s->self.ranks)
        shake_fail(s, GCI_REFUSE_RANKS);
    if (s->state == GCI_SHAKE_FAILED)
        return;
    s->job = job;
    shake_mac(s, shake_connector_label, s->out);
    shake_name(s, s->out);
    s->out_bytes = GCI_MAC_BYTES;
    shake_await(s, GCI_SHAKE_VERDICT, GCI_VERDICT_BYTES);
}

static void shake_proof(gci_shake *s)
{
    uint8_t mac[GCI_MAC_BYTES];

    shake_mac(s, shake_connector_label, mac);
    shake_name(s, mac);
    s->refusal = gci_equal_in_constant_time(mac, s->in, sizeof mac) ? GCI_REFUSE_NOT : GCI_REFUSE_KEY;
    s->state = GCI_SHAKE_DECIDES;
}

static void shake_verdict(gci_shake *s)
{
    if (s->in[0] >= GCI_REFUSALS || s->in[1] || s->in[2] || s->in[3])
        shake_fail(s, GCI_REFUSE_STRANGER);
    else if (s->in[0])
        shake_fail(s, s->in[0]);
    else
        s->state = GCI_SHAKE_DONE;
}

GCI size_t gci_shake_feed(gci_shake *s, const uint8_t *data, size_t bytes)
{
    size_t take = gci_min(bytes, gci_shake_wants(s));

    if (!take)
        return 0;
    memcpy(s->in + s->have, data, take);
    s->have += take;
    /* TCP can connect a socket to itself, at a port of its own choice that nobody listens on: our HELLO comes back. */
    if (s->step == GCI_SHAKE_CHALLENGE && s->have >= GCI_HELLO_BYTES && memcmp(s->in, s->transcript, GCI_HELLO_BYTES) == 0)
        shake_fail(s, GCI_REFUSE_STRANGER);
    if (s->step == GCI_SHAKE_CHALLENGE && s->have >= sizeof shake_magic && memcmp(s->in, shake_magic, sizeof shake_magic) != 0)
        shake_fail(s, GCI_REFUSE_STRANGER);     /* it talks first, as a mail server does, and waits for more than a HELLO */
    if (s->have < s->want)
        return take;
    switch (s->step) {
    case GCI_SHAKE_HELLO:     shake_hello(s); break;
    case GCI_SHAKE_CHALLENGE: shake_challenge(s); break;
    case GCI_SHAKE_PROOF:     shake_proof(s); break;
    default:                  shake_verdict(s); break;
    }
    return take;
}

static void shake_put_challenge(gci_shake *s)
{
    uint8_t *signed_part = s->transcript + GCI_HELLO_BYTES;     /* the nonce is there already */

    memcpy(signed_part, shake_magic, sizeof shake_magic);
    gci_put16(signed_part + 4, GCI_PROTOCOL_VERSION);
    signed_part[6] = s->refusal;
    gci_put64(signed_part + 8, s->self.job);
    gci_put32(signed_part + 16, (uint32_t)s->self.ranks);
    gci_put32(signed_part + 20, (uint32_t)s->self.rank);
    memcpy(s->out, signed_part, SHAKE_SIGNED_BYTES);
    shake_mac(s, shake_acceptor_label, s->out + SHAKE_SIGNED_BYTES);
    s->out_bytes = GCI_CHALLENGE_BYTES;
}

GCI void gci_shake_decide(gci_shake *s, enum gci_refusal why)
{
    if (!s->refusal)
        s->refusal = (uint8_t)why;
    if (s->step == GCI_SHAKE_HELLO) {
        shake_put_challenge(s);
        shake_await(s, GCI_SHAKE_PROOF, GCI_MAC_BYTES);
    } else {
        memset(s->out, 0, GCI_VERDICT_BYTES);
        s->out[0] = s->refusal;
        s->out_bytes = GCI_VERDICT_BYTES;
        s->state = GCI_SHAKE_DONE;
    }
    if (s->refusal)
        s->state = GCI_SHAKE_FAILED;
}

GCI const char *gci_shake_text(const gci_shake *s, char text[GCI_TEXT])
{
    static const char *const plain[GCI_REFUSALS] = {
        [GCI_REFUSE_NOT] = "no refusal",          [GCI_REFUSE_PURPOSE] = "does not take this kind of connection",
        [GCI_REFUSE_JOB] = "another job",         [GCI_REFUSE_FROM] = "no such rank in the job",
        [GCI_REFUSE_TO] = "is another rank",      [GCI_REFUSE_BUSY] = "busy",
        [GCI_REFUSE_LEAVING] = "is leaving the job", [GCI_REFUSE_STARTED] = "the job has started already",
        [GCI_REFUSE_FULL] = "holds as many links as it may", [GCI_REFUSE_SILENCE] = "has taken the caller's silence for its end",
        [GCI_REFUSE_KEY] = "wrong key",           [GCI_REFUSE_STRANGER] = "does not speak gridcomm",
    };

    if (s->refusal == GCI_REFUSE_VERSION)
        snprintf(text, GCI_TEXT, "speaks version %u, not %d", s->peer_version, GCI_PROTOCOL_VERSION);
    else if (s->refusal == GCI_REFUSE_RANKS)
        snprintf(text, GCI_TEXT, "wrong size: counts %u ranks, not %d", (unsigned)s->peer_ranks, s->self.ranks);
    else if (s->refusal == GCI_REFUSE_TAKEN)
        snprintf(text, GCI_TEXT, "rank %d is taken", s->acceptor ? s->peer : s->self.rank);
    else
        snprintf(text, GCI_TEXT, "%s", plain[s->refusal < GCI_REFUSALS ? s->refusal : GCI_REFUSE_STRANGER]);
    return text;
}
