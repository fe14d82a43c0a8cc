/* reach.c: how a rank is reached: at which addresses, from which interfaces, or by ssh.
 * SPDX-License-Identifier: MIT
 *
 * The choice among addresses is addrsel.c's. It is made when it is needed and not kept: the kernel's routes may have changed
 * since the last time. A dial tries where the rank has been met, then what the choice says, its last resorts last. For a link of
 * the pair's own the choice comes first, also by which of this host's addresses and interfaces it is to leave, so that each NIC
 * carries its share; where that fails the kernel decides, as it does for all other connections.
 *
 * Beside a link of the pair's own (its trunk) there may be strands. Each of this host's NICs is a lane, the trunk's the first; a
 * strand's number says which lane it takes, whenever the choice finds a link for that NIC. With GRIDCOMM_STREAMS=n each lane has
 * n connections. Whoever dialled the trunk opens them, since that way is known to work.
 */
#include "gridcomm_int.h"

enum { REACH_STRANDS_MAX = 63 };
#define REACH_SSH (20 * GCI_SECOND)     /* the least patience with ssh, which may have to log in over a bad line */

/* ---- what this process tells of itself -------------------------------------------------------------------------- */

/* What others reach by way of a mapped port: an interface that is not here, unless the address is. */
static int reach_advertise(gci_ifaddr *told, int n, const char *advertise, char text[GCI_TEXT])
{
    gci_ifaddr a = { .index = UINT32_MAX, .name = "advertised" };
    int err = gci_advertise_parse(advertise, &a.addr, text);

    if (err < 0)
        return err;
    for (int i = 0; i < n; i++)
        if (gci_addr_equal(&told[i].addr, &a.addr)) {
            told[i].addr.port = a.addr.port;
            return n;
        }
    a.prefix = a.addr.family == 4 ? 32 : 128;
    n = n < GCI_IFADDRS_MAX ? n : GCI_IFADDRS_MAX - 1;
    memmove(told + 1, told, (size_t)n * sizeof *told);
    told[0] = a;
    return n + 1;
}

/* The interfaces as they are stay in c->own; what is told of them is what the user allows. */
static int reach_told(gci_control *c, const gc_options *options, const char *host, gci_ifaddr *told, char text[GCI_TEXT])
{
    int n = c->owns;

    memcpy(told, c->own, (size_t)n * sizeof *told);
    if (options && options->interfaces && options->interfaces[0])
        n = gci_if_filter(options->interfaces, host, told, n, text);
    if (n >= 0 && options && options->advertise && options->advertise[0])
        n = reach_advertise(told, n, options->advertise, text);
    return n;
}

GCI int gci_reach_card(gci_control *c, const gc_options *options, char text[GCI_TEXT])
{
    char id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    gci_ifaddr *told = gci_alloc(c->env, GCI_IFADDRS_MAX * sizeof *told);
    int n = GC_ERR_NOMEM, err;

    c->own = gci_alloc(c->env, GCI_IFADDRS_MAX * sizeof *c->own);
    if (!told || !c->own)
        goto end;
    err = c->sys->host(c->sys, id, name);
    if (err >= 0)
        err = c->owns = c->sys->interfaces(c->sys, c->own, GCI_IFADDRS_MAX);
    if (err < 0) {
        snprintf(text, GCI_TEXT, "cannot read this host's identity and interfaces: %s", gci_strerrno(err));
        c->owns = 0;
        n = GC_ERR_SYSTEM;
        goto end;
    }
    c->owns = c->owns < GCI_IFADDRS_MAX ? c->owns : GCI_IFADDRS_MAX;
    n = reach_told(c, options, name, told, text);
    if (n < 0)
        goto end;
    gci_card_fill(&c->me, id, name, c->place.cluster, c->listen_at.port, told, n);
    c->me.gate = c->sys->gate(c->sys);
    c->streams = options && options->streams > 0 ? (unsigned)options->streams : 1;
end:
    gci_free(c->env, told);
    return n < 0 ? n : GC_OK;
}

/* ---- by ssh ------------------------------------------------------------------------------------------------------ */

/* A host stands in the table once for each of its ranks that advertises a port of its own. */
static bool reach_one_host(const gci_control *c, int a, int b)
{
    return strcmp(c->table.host[c->table.card[a].host].id, c->table.host[c->table.card[b].host].id) == 0;
}

/* What a pattern of the links file is held against: host name, cluster path, addresses. by: the address that fits, or NULL. */
static bool reach_fits(const gci_control *c, const char *pattern, int rank, const gci_addr **by)
{
    const gci_host *h = &c->table.host[c->table.card[rank].host];
    char text[GCI_ADDR_TEXT];

    *by = NULL;
    if (gci_pattern_fits(pattern, h->name) || gci_pattern_fits(pattern, c->table.card[rank].cluster))
        return true;
    for (int i = 0; i < h->addrs; i++) {
        gci_addr a = h->addr[i].addr;
        a.port = 0;
        a.scope = 0;
        *by = &h->addr[i].addr;
        if (gci_pattern_fits(pattern, gci_addr_text(&a, text)))
            return true;
    }
    return false;
}

/* Must the way from one rank to the other be made by ssh? Then where to. */
GCI bool gci_reach_by_ssh(const gci_control *c, int from, int to, char destination[GCI_ADDR_TEXT + 80])
{
    const gci_addr *by;
    char address[GCI_ADDR_TEXT];

    for (int i = 0; i < c->requires && !reach_one_host(c, from, to); i++) {
        const gci_require *r = &c->require[i];
        const gci_host *h = &c->table.host[c->table.card[to].host];
        if (!reach_fits(c, r->from, from, &by) || !reach_fits(c, r->to, to, &by))
            continue;
        if (by || !h->name[0]) {
            gci_addr a = by ? *by : h->addrs ? h->addr[0].addr : (gci_addr){ .family = 0 };
            a.port = 0;
            gci_addr_text(&a, address);
        } else {
            snprintf(address, sizeof address, "%.*s", (int)sizeof address - 1, h->name);
        }
        snprintf(destination, GCI_ADDR_TEXT + 80, "%s%s%s", r->user, r->user[0] ? "@" : "", address);
        return true;
    }
    return false;
}

/* ---- by addresses -------------------------------------------------------------------------------------------------- */

GCI int gci_reach_open(gci_control *c)
{
    size_t hosts = (size_t)c->table.hosts;

    c->explained = gci_alloc(c->env, hosts);
    c->trunk = gci_alloc(c->env, (size_t)c->table.ranks * sizeof *c->trunk);
    if (!c->explained || !c->trunk)
        return GC_ERR_NOMEM;
    return gci_addrsel_make(c->env, c->table.host, c->table.hosts, &c->addrsel);
}

GCI void gci_reach_close(gci_control *c)
{
    for (int r = 0; c->trunk && r < c->table.ranks; r++)
        gci_free(c->env, c->trunk[r]);
    gci_free(c->env, c->trunk);
    gci_free(c->env, c->explained);
    gci_free(c->env, c->own);
    gci_addrsel_free(c->env, c->addrsel);
}

/* Once for each host. */
static void reach_explain(gci_control *c, int host)
{
    char *text;
    gci_text t;

    if (c->explained[host])
        return;
    gci_text_begin(&t, NULL, 0);
    gci_addrsel_explain(c->addrsel, &t);
    if ((text = gci_alloc(c->env, t.used + 1)) == NULL)
        return;
    c->explained[host] = 1;
    gci_text_begin(&t, text, t.used + 1);
    gci_addrsel_explain(c->addrsel, &t);
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = 0;
        gci_log(c->env, GC_LOG_DEBUG, "addresses: %s", line);
    }
    gci_free(c->env, text);
}

static const gci_choice *reach_choose(gci_control *c, int rank)
{
    gci_onlooker me = { .host = c->table.card[c->place.rank].host, .own = c->own, .owns = c->owns, .sys = c->sys };
    const gci_choice *choice;

    gci_addrsel_look(c->addrsel, &me);
    choice = gci_addrsel_choose(c->addrsel, c->table.card[rank].host, c->table.card[rank].port);
    if (c->env->debug & GCI_DEBUG_ADDRSEL)
        reach_explain(c, c->table.card[rank].host);
    return choice;
}

/* Who has joined has reached rank 0, if not by a tunnel, and whatever the cards say. */
static bool reach_has_joined(const gci_control *c, int rank)
{
    if (c->place.rank > 0)
        return rank == c->place.rank && c->root_at.family;
    return rank > 0 && c->seen[rank].family && !gci_addr_is_loopback(&c->seen[rank]);
}

/* By the cards alone, as every rank sees it. */
static const gci_choice *reach_by_cards(gci_control *c, int from, int to)
{
    gci_addrsel_look(c->addrsel, &(gci_onlooker){ .host = c->table.card[from].host });
    return gci_addrsel_choose(c->addrsel, c->table.card[to].host, c->table.card[to].port);
}

/* But for the way to rank 0 all ranks see it alike. */
GCI bool gci_reach_possible(gci_control *c, int from, int to)
{
    return (to == 0 && reach_has_joined(c, from)) || reach_by_cards(c, from, to)->targets > 0;
}

/* Who does not have the table yet cannot know what collides. */
GCI void gci_reach_card_for(gci_control *c, int from, int to, gci_full_card *card)
{
    const gci_choice *choice = reach_by_cards(c, from, to);
    int n = 0;

    gci_table_card(&c->table, to, card);
    for (int i = 0; i < card->addrs; i++)
        for (int t = 0; t < choice->targets; t++)
            if (gci_addr_equal(&choice->target[t].addr, &card->addr[i].addr)) {
                card->addr[n++] = card->addr[i];
                break;
            }
    card->addrs = n;
}

GCI const char *gci_reach_why(gci_control *c, int rank, char text[GCI_TEXT])
{
    gci_text t;

    (void)reach_choose(c, rank);
    gci_text_begin(&t, text, GCI_TEXT);
    gci_addrsel_nothing(c->addrsel, &t);
    return text;
}

typedef struct reach_list { gci_goal *goal; int n; } reach_list;

/* Unless it is there already. */
static void reach_add(reach_list *l, const gci_goal *goal)
{
    for (int i = 0; i < l->n; i++) {
        const gci_goal *g = &l->goal[i];
        if (gci_addr_same(&g->addr, &goal->addr) && g->bind == goal->bind && g->source.family == goal->source.family)
            return;
    }
    if (l->n < GCI_CANDIDATES_MAX)
        l->goal[l->n++] = *goal;
}

/* placed: from the address and interface that a link is to use. */
static gci_goal reach_goal(const gci_target *t, bool placed)
{
    gci_goal g = { .addr = t->addr, .last = t->last };
    if (placed && t->stripes) {
        g.source = t->source;
        g.bind = t->bind ? t->index : 0;
    }
    return g;
}

/* Its last resorts, or all others. */
static void reach_add_choice(reach_list *l, const gci_choice *choice, bool placed, bool last)
{
    for (int i = 0; i < choice->targets; i++) {
        gci_goal g = reach_goal(&choice->target[i], placed);
        if (g.last == last)
            reach_add(l, &g);
    }
}

/* Where the rank has been met, if it has. */
static void reach_add_met(reach_list *l, const gci_neighbour *n)
{
    if (n && n->conn && !n->conn->incoming && !n->conn->tunnel)
        reach_add(l, &(gci_goal){ .addr = n->conn->addr });
    else if (n && n->proven)
        reach_add(l, &(gci_goal){ .addr = n->proven_at });
}

/* A link of the pair's own (own) is tried from its place first. Since its address may be gone from here, or nothing may come back
 * to it or by that interface, it is tried from anywhere, too. There may be more last resorts than there is room for. */
static int reach_goals(gci_control *c, int rank, bool own, gci_goal goal[GCI_CANDIDATES_MAX])
{
    const gci_neighbour *n = gci_life_find(c, rank);
    const gci_choice *choice = reach_choose(c, rank);
    reach_list list = { .goal = goal };

    if (own)
        reach_add_choice(&list, choice, true, false);
    reach_add_met(&list, n);
    if (!own)
        reach_add_choice(&list, choice, false, false);
    if (rank == 0 && c->root_at.family)         /* which no card need know */
        reach_add(&list, &(gci_goal){ .addr = c->root_at });
    reach_add_choice(&list, choice, false, false);
    reach_add_choice(&list, choice, false, true);
    return list.n;
}

GCI gci_dial *gci_reach_dial(gci_control *c, enum gci_purpose purpose, int rank, int64_t patience, int *candidates)
{
    gci_goal goal[GCI_CANDIDATES_MAX];
    char destination[GCI_ADDR_TEXT + 80];
    bool deadline_known = patience < GCI_FOREVER - c->now, own = purpose == GCI_PURPOSE_DATA;
    gci_dial *d;

    if (gci_reach_by_ssh(c, c->place.rank, rank, destination)) {
        *candidates = 1;
        patience = gci_max64(patience, REACH_SSH);
        return gci_dial_ssh(c, purpose, rank, destination, c->table.card[rank].port,
                            deadline_known ? c->now + patience : GCI_FOREVER);
    }
    *candidates = reach_goals(c, rank, own, goal);
    d = gci_dial_new(c, purpose, rank, goal, *candidates, deadline_known ? c->now + patience : GCI_FOREVER);
    if (d)
        d->hurry = own && c->trunk[rank];       /* that link was lost: which of the addresses with it? */
    return d;
}

/* To whom the table of all cards is to be fetched from; all that is known of him is his card. */
GCI gci_dial *gci_reach_fetch(gci_control *c, int rank, gci_full_card *card, int64_t deadline)
{
    gci_host host[2] = { { .addrs = c->me.addrs, .addr = c->me.addr },
                         { .site = card->site, .addrs = card->addrs, .addr = card->addr } };
    gci_goal goal[GCI_CANDIDATES_MAX];
    reach_list list = { .goal = goal };
    const gci_choice *choice;
    gci_addrsel *s;

    snprintf(host[0].id, sizeof host[0].id, "%s", c->me.id);
    snprintf(host[1].id, sizeof host[1].id, "%s", card->id);
    if (gci_addrsel_make(c->env, host, 2, &s) < 0)
        return NULL;
    gci_addrsel_look(s, &(gci_onlooker){ .host = 0, .own = c->own, .owns = c->owns, .sys = c->sys });
    choice = gci_addrsel_choose(s, 1, card->port);
    reach_add_choice(&list, choice, false, false);
    reach_add_choice(&list, choice, false, true);
    gci_addrsel_free(c->env, s);
    return list.n ? gci_dial_new(c, GCI_PURPOSE_FETCH, rank, goal, list.n, deadline) : NULL;
}

/* ---- strands --------------------------------------------------------------------------------------------------------- */

/* By which interface it leaves. */
static uint32_t reach_leaves_by(gci_control *c, const gci_goal *goal)
{
    if (goal->bind)
        return goal->bind;
    for (int i = 0; i < c->owns && goal->source.family; i++)
        if (gci_addr_equal(&c->own[i].addr, &goal->source))
            return c->own[i].index;
    return c->sys->route(c->sys, &goal->addr, 0).index;
}

/* The interface of each lane: the trunk's, then the others of the card. */
static unsigned reach_lanes(gci_control *c, int rank, uint32_t lane[GCI_IFADDRS_MAX + 1])
{
    unsigned n = 1, at;

    lane[0] = reach_leaves_by(c, c->trunk[rank]);
    for (int i = 0; i < c->me.addrs; i++) {
        uint32_t index = c->me.addr[i].index;
        for (at = 0; at < n && lane[at] != index; at++)
            ;
        if (at == n && index != UINT32_MAX)
            lane[n++] = index;
    }
    return n;
}

/* false: from that interface there is none to this rank, now. */
static bool reach_lane_goal(gci_control *c, int rank, uint32_t index, gci_goal *goal)
{
    const gci_choice *choice = reach_choose(c, rank);

    for (int i = 0; i < choice->targets; i++)
        if (choice->target[i].stripes && choice->target[i].index == index) {
            *goal = reach_goal(&choice->target[i], true);
            return !gci_addr_equal(&goal->addr, &c->trunk[rank]->addr);
        }
    return false;
}

/* A link of the pair's own is there. How many strands could be opened from here beside it? */
GCI unsigned gci_reach_strands(gci_control *c, const gci_conn *k)
{
    uint32_t lane[GCI_IFADDRS_MAX + 1];
    unsigned all;

    gci_free(c->env, c->trunk[k->peer]);
    c->trunk[k->peer] = NULL;
    if (k->incoming || k->tunnel || reach_one_host(c, k->peer, c->place.rank))
        return 0;
    c->trunk[k->peer] = gci_alloc(c->env, sizeof *c->trunk[k->peer]);
    if (!c->trunk[k->peer])
        return 0;
    *c->trunk[k->peer] = k->goal;
    all = reach_lanes(c, k->peer, lane) * c->streams - 1;
    return all < REACH_STRANDS_MAX ? all : REACH_STRANDS_MAX;
}

/* NULL: out of memory, or there is no such strand now. */
GCI gci_dial *gci_reach_strand(gci_control *c, int rank, unsigned strand, uint32_t trunk, int64_t deadline)
{
    uint32_t lane[GCI_IFADDRS_MAX + 1];
    gci_goal goal;
    unsigned lanes;
    gci_dial *d;

    if (!c->trunk[rank])
        return NULL;
    goal = *c->trunk[rank];
    lanes = reach_lanes(c, rank, lane);
    if (strand % lanes && !reach_lane_goal(c, rank, lane[strand % lanes], &goal))
        return NULL;
    d = gci_dial_new(c, GCI_PURPOSE_STRAND, rank, &goal, 1, deadline);
    if (d) {
        d->strand = (uint8_t)strand;
        d->trunk = trunk;
    }
    return d;
}
