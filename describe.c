/* describe.c: what was chosen and why, as this process knows it (gc_describe): links, routes, waits, clusters, addresses.
 * SPDX-License-Identifier: MIT
 *
 * Everything is read inside the world's monitor as it stands. Whole paths depend on the picks of the ranks on the way: those
 * are a function of the graph, so they are found here from a copy of it, outside the monitor, where that may take its time.
 * So is the choice of addresses, which is a function of the table of all cards and of what this host's kernel says now.
 *
 * Each line of links, routes, waits and addresses stands for itself, also in a Graphviz text, between its first line and its
 * last: the texts of all ranks, joined without what they have in common, describe the whole job (tools/gctopo.c). The clusters
 * are the same at every rank; of addresses ranks of one host say the same.
 */
#include "gridcomm_int.h"

typedef struct describe {
    gc_comm   *comm;
    gci_world *w;
    gci_text   out;
    bool       dot;
} describe;

/* ---- words that stall.c uses, too ------------------------------------------------------------------------------ */

static const char *describe_host(const gci_world *w, int rank)
{
    return w->table ? w->table->host[w->table->card[rank].host].name : w->own_host;
}

static const char *describe_cluster(const gci_world *w, int rank)
{
    return w->table ? w->table->card[rank].cluster : w->own_cluster;
}

GCI void gci_describe_rank(gci_text *out, const gci_world *w, int rank)
{
    const char *cluster = describe_cluster(w, rank);
    gci_text_add(out, "rank %d on %s", rank, describe_host(w, rank));
    if (cluster[0])
        gci_text_add(out, " (%s)", cluster);
}

GCI void gci_describe_path(gci_text *out, const int32_t path[], int hops)
{
    gci_text_add(out, "%d hop%s", hops, hops == 1 ? "" : "s");
    for (int i = 0; i < hops - 1; i++)
        gci_text_add(out, "%s %d", i > 0 ? "," : " over", path[i]);
}

GCI void gci_describe_message(gci_text *out, const gc_request *r)
{
    gci_text_add(out, r->kind == GCI_REQUEST_SEND ? "send" : "receive");
    if (r->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_COLL)
        gci_text_add(out, " of %s %u", gci_coll_signed(r->signature), (unsigned)r->tag);
    else if (r->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_CREATE)
        gci_text_add(out, " of gc_comm_create");
    else if (r->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_SHRINK)
        gci_text_add(out, " of gc_comm_shrink %u", (unsigned)r->tag);
    else if (r->any_tag)
        gci_text_add(out, ", any tag");
    else
        gci_text_add(out, ", tag %u", (unsigned)r->tag);
}

static const char *describe_queued(const gci_pair *p)
{
    return !p->up ? "no way to it yet" : !p->heard ? "it has not answered yet" : p->starved ? "waits for credit" : "is to be sent";
}

GCI void gci_describe_stage(gci_text *out, const gci_pair *p, const gc_request *r)
{
    if (r->kind == GCI_REQUEST_RECV && r->message)
        gci_text_add(out, "%zu of %llu bytes are here", r->message->got, (unsigned long long)r->message->packet.total);
    else if (r->kind == GCI_REQUEST_RECV)
        gci_text_add(out, "no message yet");
    else if (gci_send_is_queued(r))
        gci_text_add(out, "%s", describe_queued(p));
    else if (r->stage == GCI_STAGE_GRANTED)
        gci_text_add(out, "%zu bytes are on their way", r->moved);
    else
        gci_text_add(out, "waits for its receive");
}

/* What lines and colours of a picture mean; all ranks say the same. */
static void describe_legend(describe *d, const char *legend)
{
    gci_text_add(&d->out, "  label=\"%s\";\n", legend);
}

/* A node of a picture: rank, host, and a line more. */
static void describe_node(describe *d, int rank, const char *more)
{
    gci_text_add(&d->out, "  \"%d\" [label=\"rank %d\\n", rank, rank);
    gci_text_quote(&d->out, describe_host(d->w, rank));
    gci_text_add(&d->out, "%s%s\"];\n", more[0] ? "\\n" : "", more);
}

static bool edge_is_down(const gci_edge *e)
{
    return e->cost[GCI_LATENCY] == 0 || e->cost[GCI_BANDWIDTH] == 0;
}

/* ---- links ---------------------------------------------------------------------------------------------------- */

static void describe_edge(describe *d, const gci_edge *e)
{
    double us = (double)e->cost[GCI_LATENCY] / 10, ns = (double)e->cost[GCI_BANDWIDTH] / 1000;
    bool down = edge_is_down(e);
    if (d->dot)
        gci_text_add(&d->out, down ? "  \"%d\" -- \"%d\" [style=dotted, color=red, label=\"down\"];\n"
                                   : "  \"%d\" -- \"%d\" [label=\"%g us, %g ns/B\"];\n", e->a, e->b, us, ns);
    else
        gci_text_add(&d->out, down ? "backbone: %d - %d down\n" : "backbone: %d - %d, %g us, %g ns/byte\n", e->a, e->b, us, ns);
}

static void describe_link(void *of, const gci_link_view *link)
{
    describe *d = of;
    int rank = d->w->rank, low = rank < link->peer ? rank : link->peer, high = rank < link->peer ? link->peer : rank;
    if (d->dot) {
        if (!link->strand)
            gci_text_add(&d->out, "  \"%d\" -- \"%d\" [style=%s];\n", low, high, link->backbone ? "bold" : "dashed");
        return;
    }
    if (link->strand)
        gci_text_add(&d->out, "rank %d: strand %u beside its direct link to ", rank, link->strand);
    else
        gci_text_add(&d->out, "rank %d: %s link to ", rank, link->backbone ? "backbone" : "direct");
    gci_describe_rank(&d->out, d->w, link->peer);
    gci_text_add(&d->out, ", queue %d of %d", link->queued, link->queue_max);
    if (link->backbone)
        gci_text_add(&d->out, ", %llu bytes relayed", (unsigned long long)link->relayed);
    gci_text_add(&d->out, "\n");
}

static void describe_links(describe *d)
{
    gci_world *w = d->w;
    gci_enter(w);
    const gci_graph *graph = gci_overlay_graph(w->overlay);
    if (d->dot)
        describe_legend(d, "thin: kept for relaying, with its costs; bold: connected for relaying; dashed: direct");
    for (int rank = 0; d->dot && rank < w->ranks; rank++)
        describe_node(d, rank, "");
    for (int i = 0; i < graph->edges; i++)
        describe_edge(d, &graph->edge[i]);
    gci_overlay_links(w->overlay, describe_link, d);
    gci_leave(w);
}

/* ---- routes --------------------------------------------------------------------------------------------------- */

/* The backbone as it was when it was copied, and the paths of this rank over it. */
enum { NET_GONE = 255 };
typedef struct describe_net {
    gci_world    *w;
    gci_graph     graph;
    gci_numbering numbering;
    uint16_t      epoch;
    uint8_t      *way;                  /* [ranks] enum gci_way, or NET_GONE */
    gci_paths    *paths;
    int32_t      *path[GCI_METRICS];    /* [ranks] */
    uint8_t      *relays;               /* [ranks] */
} describe_net;

static void net_free(describe_net *net)
{
    gci_env *env = &net->w->env;
    gci_paths_free(net->paths);
    gci_free(env, net->relays);
    gci_free(env, net->way);
    for (int m = 0; m < GCI_METRICS; m++)
        gci_free(env, net->path[m]);
    gci_free(env, net->numbering.number);
    gci_graph_free(env, &net->graph);
}

static int net_copy(describe_net *net)
{
    gci_world *w = net->w;
    const gci_numbering *numbering = NULL;
    if (gci_overlay_graph(w->overlay)->nodes == 0)
        return GC_OK;                   /* a world of one */
    if (!gci_overlay_routes(w->overlay, &net->epoch, &numbering))
        return GC_ERR_NOMEM;
    if (!numbering)
        return GC_OK;                   /* tables that a test brought: nobody knows those of the others */
    net->numbering = *numbering;
    net->numbering.number = gci_alloc(&w->env, (size_t)numbering->entries * sizeof *numbering->number + 1);
    if (net->numbering.number && numbering->entries > 0)
        memcpy(net->numbering.number, numbering->number, (size_t)numbering->entries * sizeof *numbering->number);
    for (int rank = 0; rank < w->ranks; rank++)
        net->way[rank] = w->dead[rank] ? NET_GONE : (uint8_t)gci_overlay_way(w->overlay, rank);
    return net->numbering.number ? gci_graph_copy(&w->env, gci_overlay_graph(w->overlay), &net->graph) : GC_ERR_NOMEM;
}

static int net_open(describe_net *net, gci_world *w)
{
    size_t ranks = (size_t)w->ranks;
    *net = (describe_net){ .w = w };
    net->way = gci_alloc(&w->env, ranks);
    net->relays = gci_alloc(&w->env, ranks);
    for (int m = 0; m < GCI_METRICS; m++)
        net->path[m] = gci_alloc(&w->env, ranks * sizeof(int32_t));
    if (!net->way || !net->relays || !net->path[0] || !net->path[1])
        return GC_ERR_NOMEM;
    gci_enter(w);
    int err = net_copy(net);
    gci_leave(w);
    if (err < 0 || net->graph.nodes == 0)
        return err;
    return gci_paths_make(&w->env, &net->graph, gci_control_topo(w->control), &net->numbering, w->rank, &net->paths);
}

/* The numbering that keeps routes free of cycles: nodes in its order, or the forest of each link. */
static void describe_numbering(describe *d, const describe_net *net)
{
    static const char *const rule[GCI_ROUTINGS] = {
        "first to lower numbers, then to higher; rank:number", "first to lower numbers, then to higher; rank:number",
        "never by a lower forest after a higher; link:forest", "any way, which can deadlock" };
    const gci_numbering *nb = &net->numbering;
    gci_text_add(&d->out, "epoch %u, routing %s: %s", (unsigned)net->epoch, gci_routing_name(nb->routing), rule[nb->routing]);
    for (int i = 0; i < nb->entries; i++)
        if (nb->routing != GCI_ORDERED)
            gci_text_add(&d->out, "%s %d:%d", i > 0 ? "," : "", i, nb->number[i]);
        else if (!edge_is_down(&net->graph.edge[i]))
            gci_text_add(&d->out, "%s %d-%d:%d", i > 0 ? "," : "", net->graph.edge[i].a, net->graph.edge[i].b, nb->number[i]);
    gci_text_add(&d->out, "\n");
}

/* Small messages take the path of least latency, bulk that of most bandwidth. Pairs that are not routed are told of it too. */
static void describe_route(describe *d, describe_net *net, int dest, const int hops[GCI_METRICS])
{
    static const char *const way[] = { "not in use (routed it would be ", "direct (routed it would be ", "routed: " };
    const int32_t *soon = net->path[GCI_LATENCY], *bulk = net->path[GCI_BANDWIDTH];
    gci_text_add(&d->out, "rank %d: to %d, %s", d->w->rank, dest, way[net->way[dest]]);
    if (hops[GCI_LATENCY] == 0) {
        gci_text_add(&d->out, "no route");
    } else if (hops[0] == hops[1] && memcmp(soon, bulk, (size_t)hops[0] * sizeof *soon) == 0) {
        gci_describe_path(&d->out, soon, hops[0]);
    } else {
        gci_describe_path(&d->out, soon, hops[GCI_LATENCY]);
        gci_text_add(&d->out, "; bulk ");
        gci_describe_path(&d->out, bulk, hops[GCI_BANDWIDTH]);
    }
    gci_text_add(&d->out, net->way[dest] == GCI_WAY_ROUTED ? "\n" : ")\n");
}

static void describe_hops(describe *d, const int32_t path[], int hops, enum gci_metric metric)
{
    for (int i = 0, at = d->w->rank; i < hops; at = path[i++])
        gci_text_add(&d->out, "  \"%d\" -> \"%d\" [color=%s];\n", at, path[i], metric == GCI_LATENCY ? "black" : "blue");
}

static void describe_relays(describe *d, const describe_net *net)
{
    bool any = false;
    gci_text_add(&d->out, "rank %d: its routes pass over", d->w->rank);
    for (int rank = 0; rank < d->w->ranks; rank++)
        if (net->relays[rank]) {
            gci_text_add(&d->out, "%s %d", any ? "," : "", rank);
            any = true;
        }
    gci_text_add(&d->out, any ? "\n" : " nobody\n");
}

static void describe_dest(describe *d, describe_net *net, int dest)
{
    int hops[GCI_METRICS] = { 0, 0 };
    for (int m = 0; m < GCI_METRICS && net->paths; m++) {
        hops[m] = gci_paths_walk(net->paths, (enum gci_metric)m, dest, net->path[m]);
        for (int i = 0; i < hops[m] - 1; i++)
            net->relays[net->path[m][i]] = 1;
        if (d->dot)
            describe_hops(d, net->path[m], hops[m], (enum gci_metric)m);
    }
    if (!d->dot)
        describe_route(d, net, dest, hops);
}

static int describe_routes(describe *d)
{
    gci_world *w = d->w;
    describe_net net;
    int err = net_open(&net, w);
    bool tree = net.numbering.routing == GCI_UPDOWN_DFS || net.numbering.routing == GCI_UPDOWN_BFS;
    if (err == GC_OK && d->dot)
        describe_legend(d, "hops that messages take if they are routed: black for small ones, blue for bulk");
    for (int rank = 0; err == GC_OK && d->dot && rank < w->ranks; rank++) {
        char number[32] = "";
        if (tree && rank < net.numbering.entries)
            snprintf(number, sizeof number, "number %d", (int)net.numbering.number[rank]);
        describe_node(d, rank, number);
    }
    if (err == GC_OK && !d->dot && net.graph.nodes > 0)
        describe_numbering(d, &net);
    for (int dest = 0; err == GC_OK && dest < w->ranks; dest++)
        if (dest != w->rank && net.way[dest] != NET_GONE)
            describe_dest(d, &net, dest);
    if (err == GC_OK && !d->dot)
        describe_relays(d, &net);
    net_free(&net);
    return err;
}

/* ---- waits ---------------------------------------------------------------------------------------------------- */

static void wait_of_link(void *of, const gci_link_view *link)
{
    describe *d = of;
    int rank = d->w->rank;
    if (d->dot) {
        if (link->holds >= 0 && link->waits_for >= 0)
            gci_text_add(&d->out, "  \"%d > %d\" -> \"%d > %d\" [label=\"for %d\"];\n", link->peer, rank, rank, link->waits_for,
                         link->holds);
        return;
    }
    if (link->holds >= 0 && link->waits_for >= 0)
        gci_text_add(&d->out, "rank %d: the link from %d holds a packet for %d, which waits for room to %d\n", rank, link->peer,
                     link->holds, link->waits_for);
    if (link->queued >= link->queue_max)
        gci_text_add(&d->out, "rank %d: the queue to %d is full (%d packets), %d wait for room\n", rank, link->peer, link->queued,
                     link->waiters);
}

static void wait_of_request(describe *d, const gc_request *r, int peer, const gci_pair *p)
{
    char what[96], for_what[96];
    gci_text t;
    gci_text_begin(&t, what, sizeof what);
    gci_describe_message(&t, r);
    gci_text_begin(&t, for_what, sizeof for_what);
    gci_describe_stage(&t, p, r);
    if (d->dot && peer >= 0)
        gci_text_add(&d->out, "  \"rank %d\" -> \"rank %d\" [label=\"%s\"];\n", d->w->rank, peer, what);
    else if (d->dot)
        gci_text_add(&d->out, "  \"rank %d\" -> \"any rank\" [label=\"%s\"];\n", d->w->rank, what);
    else if (peer >= 0)
        gci_text_add(&d->out, "rank %d: %s, %zu bytes, rank %d: %s\n", d->w->rank, what, r->bytes, peer, for_what);
    else
        gci_text_add(&d->out, "rank %d: %s, %zu bytes, any rank: %s\n", d->w->rank, what, r->bytes, for_what);
}

static void waits_of_pair(describe *d, const gci_pair *p)
{
    for (const gc_request *r = p->queue; r; r = r->next)
        wait_of_request(d, r, p->peer, p);
    for (const gc_request *r = p->open; r; r = r->next)
        wait_of_request(d, r, p->peer, p);
    for (const gc_message *m = p->messages; m; m = m->open_next)
        if (m->recv)
            wait_of_request(d, m->recv, p->peer, p);
}

static void describe_waits(describe *d)
{
    gci_world *w = d->w;
    gci_enter(w);
    gci_overlay_links(w->overlay, wait_of_link, d);
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (const gci_match *match = w->p2p->match[i]; match; match = match->next)
            for (const gc_request *r = match->posted; r; r = r->next)
                wait_of_request(d, r, r->peer, NULL);
    for (int rank = 0; rank < w->ranks; rank++)
        if (w->p2p->pair[rank])
            waits_of_pair(d, w->p2p->pair[rank]);
    gci_leave(w);
}

/* ---- clusters ------------------------------------------------------------------------------------------------- */

/* The name of a cluster: the part of a member's path at its depth, or the host. */
static void cluster_name(const describe *d, const gci_topo *topo, int cluster, char name[GCI_CLUSTER_MAX])
{
    int member = topo->order[topo->first[cluster]];
    const char *at = describe_cluster(d->w, member);
    int depth = topo->depth[cluster];
    for (at += strspn(at, "/"); *at && depth > 1; depth--) {
        at += strcspn(at, "/");
        at += strspn(at, "/");
    }
    if (*at)
        snprintf(name, GCI_CLUSTER_MAX, "%.*s", (int)strcspn(at, "/"), at);
    else
        snprintf(name, GCI_CLUSTER_MAX, "%s", describe_host(d->w, member));
}

static bool cluster_is_host(const gci_topo *topo, int cluster)
{
    return topo->of[topo->order[topo->first[cluster]]] == cluster;
}

static void describe_cluster_text(describe *d, const gci_topo *topo, int cluster)
{
    char name[GCI_CLUSTER_MAX];
    cluster_name(d, topo, cluster, name);
    gci_text_add(&d->out, "%*s%s:", 2 * topo->depth[cluster], "", name);
    for (int i = 0; cluster_is_host(topo, cluster) && i < topo->size[cluster]; i++)
        gci_text_add(&d->out, " %d", topo->order[topo->first[cluster] + i]);
    if (!cluster_is_host(topo, cluster))
        gci_text_add(&d->out, " %d ranks", topo->size[cluster]);
    gci_text_add(&d->out, "\n");
}

/* Boxes in boxes. Clusters stand in the order in which they begin, so boxes are closed when the next one is no deeper. */
static void describe_cluster_dot(describe *d, const gci_topo *topo, int cluster)
{
    char name[GCI_CLUSTER_MAX];
    cluster_name(d, topo, cluster, name);
    gci_text_add(&d->out, "%*ssubgraph cluster_%d { label=\"", 2 * topo->depth[cluster], "", cluster);
    gci_text_quote(&d->out, name);
    gci_text_add(&d->out, "\";\n");
    for (int i = 0; cluster_is_host(topo, cluster) && i < topo->size[cluster]; i++)
        gci_text_add(&d->out, "%*s\"%d\";\n", 2 * topo->depth[cluster] + 2, "", topo->order[topo->first[cluster] + i]);
    int next = cluster + 1 < topo->clusters ? topo->depth[cluster + 1] : 1;
    for (int depth = topo->depth[cluster]; depth >= next; depth--)
        gci_text_add(&d->out, "%*s}\n", 2 * depth, "");
}

static void describe_clusters(describe *d)
{
    const gci_topo *topo = d->w->control ? gci_control_topo(d->w->control) : NULL;
    if (!d->dot)
        gci_text_add(&d->out, "the job: %d rank%s\n", d->w->ranks, d->w->ranks == 1 ? "" : "s");
    if (!topo) {
        gci_text_add(&d->out, d->dot ? "  \"%d\";\n" : "  this process: %d\n", d->w->rank);
        return;
    }
    for (int cluster = 1; cluster < topo->clusters; cluster++) {
        if (d->dot)
            describe_cluster_dot(d, topo, cluster);
        else
            describe_cluster_text(d, topo, cluster);
    }
}

/* ---- addresses ------------------------------------------------------------------------------------------------ */

typedef struct hosts_edge { gci_edge_view is; const gci_target *link; } hosts_edge;     /* link: or NULL */

/* The choice once more, of this host among all, since control's belongs to its thread. Hosts are told once however many ranks
 * they run, with a line for each address; a pair of hosts with a line for each link, and one for all addresses or edges of
 * which there is the same to say. */
typedef struct describe_hosts {
    gci_addrsel    *sel;
    const gci_host *host;       /* [hosts] */
    int             hosts, own; /* own: the one that looks */
    gci_host        alone;      /* of a world of one, with ... */
    gci_full_card   card;       /* ... this */
    int            *first;      /* [hosts + 1] its ranks begin there in ... */
    int            *rank;       /* ... [ranks] */
    /* of the pair at hand */
    const gci_choice *choice;
    int             rows, columns;              /* interfaces here and there; 0: there is nothing between them */
    hosts_edge     *edge;                       /* [rows][columns] */
} describe_hosts;

/* The ranks of each host, one after another, ascending. */
static int hosts_ranks(describe_hosts *h, gci_world *w)
{
    h->first = gci_alloc(&w->env, ((size_t)h->hosts + 2) * sizeof *h->first);
    h->rank = gci_alloc(&w->env, (size_t)w->ranks * sizeof *h->rank);
    if (!h->first || !h->rank)
        return GC_ERR_NOMEM;
    for (int rank = 0; rank < w->ranks; rank++)
        h->first[(w->table ? w->table->card[rank].host : 0) + 2]++;
    for (int i = 0; i < h->hosts; i++)
        h->first[i + 2] += h->first[i + 1];
    for (int rank = 0; rank < w->ranks; rank++)
        h->rank[h->first[(w->table ? w->table->card[rank].host : 0) + 1]++] = rank;
    return GC_OK;
}

/* A world of one has traded no cards: it describes its own. */
static int hosts_alone(describe_hosts *h, gci_world *w, const gci_ifaddr *own, int owns)
{
    char id[GCI_HOST_ID_BYTES], name[GCI_HOST_NAME_BYTES];
    if (w->env.sys->host(w->env.sys, id, name) < 0)
        return GC_ERR_SYSTEM;
    gci_card_fill(&h->card, id, name, "", 0, own, owns);
    h->alone = (gci_host){ .addrs = h->card.addrs, .addr = h->card.addr };
    memcpy(h->alone.id, h->card.id, sizeof h->alone.id);
    memcpy(h->alone.name, h->card.name, sizeof h->alone.name);
    h->host = &h->alone;
    h->hosts = 1;
    return GC_OK;
}

static int hosts_look(describe_hosts *h, gci_world *w, gci_ifaddr *own)
{
    gci_sys *sys = w->env.sys;
    int owns = sys->interfaces(sys, own, GCI_IFADDRS_MAX), err = GC_OK;
    if (owns < 0)
        return GC_ERR_SYSTEM;
    owns = owns < GCI_IFADDRS_MAX ? owns : GCI_IFADDRS_MAX;
    if (w->table) {
        h->host = w->table->host;
        h->hosts = w->table->hosts;
        h->own = w->table->card[w->rank].host;
    } else
        err = hosts_alone(h, w, own, owns);
    if (err == GC_OK)
        err = hosts_ranks(h, w);
    if (err == GC_OK)
        err = gci_addrsel_make(&w->env, h->host, h->hosts, &h->sel);
    if (err == GC_OK)
        gci_addrsel_look(h->sel, &(gci_onlooker){ .host = h->own, .own = own, .owns = owns, .sys = sys });
    return err;
}

static int hosts_open(describe_hosts *h, gci_world *w)
{
    gci_ifaddr *own = gci_alloc(&w->env, GCI_IFADDRS_MAX * sizeof *own);
    h->edge = gci_alloc(&w->env, GCI_CARD_ADDRS_MAX * GCI_CARD_ADDRS_MAX * sizeof *h->edge);
    int err = own && h->edge ? hosts_look(h, w, own) : GC_ERR_NOMEM;
    gci_free(&w->env, own);
    return err;
}

static void hosts_free(describe_hosts *h, gci_env *env)
{
    gci_addrsel_free(env, h->sel);
    gci_free(env, h->edge);
    gci_free(env, h->first);
    gci_free(env, h->rank);
}

static const gci_target *choice_link(const gci_choice *choice, int mine, int theirs)
{
    for (int i = 0; i < choice->targets; i++)
        if (choice->target[i].link && choice->target[i].mine == mine && choice->target[i].theirs == theirs)
            return &choice->target[i];
    return NULL;
}

static void hosts_choose(describe_hosts *h, int host)
{
    gci_edge_view e;
    h->choice = gci_addrsel_choose(h->sel, host, 0);
    h->rows = h->columns = 0;
    while (h->columns < GCI_CARD_ADDRS_MAX && gci_addrsel_edge(h->sel, 0, h->columns, &e))
        h->columns++;
    while (h->rows < GCI_CARD_ADDRS_MAX && gci_addrsel_edge(h->sel, h->rows, 0, &e))
        h->rows++;
    for (int i = 0; i < h->rows; i++)
        for (int j = 0; j < h->columns; j++) {
            hosts_edge *edge = &h->edge[i * h->columns + j];
            edge->link = choice_link(h->choice, i, j);
            (void)gci_addrsel_edge(h->sel, i, j, &edge->is);
        }
}

enum { WHO_MOST = 4, WHO_TEXT = 192 };

/* "rank 3 on wolf", "ranks 0, 2, 4-7 on wolf" */
static void host_who(const describe_hosts *h, int host, gci_text *t)
{
    const int *rank = h->rank + h->first[host];
    int n = h->first[host + 1] - h->first[host], told = 0;
    gci_text_add(t, n == 1 ? "rank" : "ranks");
    for (int i = 0, end; i < n; i = end) {
        for (end = i + 1; end < n && rank[end] == rank[end - 1] + 1; end++)
            ;
        if (told == WHO_MOST) {
            gci_text_add(t, " and %d more", n - i);
            break;
        }
        gci_text_add(t, "%s %d", told++ > 0 ? "," : "", rank[i]);
        if (end - i > 1)
            gci_text_add(t, "%s%d", end - i > 2 ? "-" : ", ", rank[end - 1]);
    }
    gci_text_add(t, " on %s", h->host[host].name);
}

static void host_site(const gci_host *host, gci_text *t)
{
    if (host->site)
        gci_text_add(t, "site %llu%s", (unsigned long long)(host->site & ~GCI_SITE_NAT),
                     host->site & GCI_SITE_NAT ? ", behind a NAT" : "");
    else
        gci_text_add(t, "unknown site");
}

static void nic_name(const gci_ifaddr *a, gci_text *t)
{
    gci_text_add(t, "%s", a->name);
    if (a->speed)
        gci_text_add(t, ", %u Mbit/s", (unsigned)a->speed);
}

static void describe_host_text(describe *d, const describe_hosts *h, int host)
{
    const gci_host *it = &h->host[host];
    char who[WHO_TEXT];
    gci_text t;
    gci_text_begin(&t, who, sizeof who);
    host_who(h, host, &t);
    gci_text_add(&d->out, "%s: ", who);
    host_site(it, &d->out);
    gci_text_add(&d->out, it->addrs > 0 ? "\n" : ", no address that others could reach\n");
    for (int i = 0; i < it->addrs; i++) {
        gci_text_add(&d->out, "%s: ", who);
        nic_name(&it->addr[i], &d->out);
        gci_text_add(&d->out, ": ");
        gci_addrsel_tell_address(h->sel, host, i, &d->out);
        gci_text_add(&d->out, "\n");
    }
}

static bool nic_begins(const gci_host *host, int i)
{
    for (int k = 0; k < i; k++)
        if (host->addr[k].index == host->addr[i].index)
            return false;
    return true;
}

/* An interface with its addresses; nodes are named "host.interface", by numbers. */
static void describe_nic_dot(describe *d, const describe_hosts *h, int host, int nic, int i)
{
    const gci_host *it = &h->host[host];
    char text[GCI_TEXT];
    gci_text t;
    gci_text_begin(&t, text, sizeof text);
    nic_name(&it->addr[i], &t);
    gci_text_add(&d->out, " \"%d.%d\" [shape=box, label=\"", host, nic);
    gci_text_quote(&d->out, text);
    for (int k = i; k < it->addrs; k++)
        if (it->addr[k].index == it->addr[i].index) {
            gci_text_begin(&t, text, sizeof text);
            gci_addrsel_tell_address(h->sel, host, k, &t);
            gci_text_add(&d->out, "\\n");
            gci_text_quote(&d->out, text);
        }
    gci_text_add(&d->out, "\"];");
}

/* One line, since it stands for itself. */
static void describe_host_dot(describe *d, const describe_hosts *h, int host)
{
    const gci_host *it = &h->host[host];
    char who[WHO_TEXT];
    gci_text t;
    gci_text_begin(&t, who, sizeof who);
    host_who(h, host, &t);
    gci_text_add(&d->out, "  subgraph cluster_%d { label=\"", host);
    gci_text_quote(&d->out, who);
    gci_text_add(&d->out, "\\n");
    host_site(it, &d->out);
    gci_text_add(&d->out, "\";");
    for (int i = 0, nic = 0; i < it->addrs; i++)
        if (nic_begins(it, i))
            describe_nic_dot(d, h, host, nic++, i);
    gci_text_add(&d->out, " };\n");
}

/* "link eth0 - eth1, 10.1.0.1 to 10.1.0.2: private, stripes" */
static void describe_choice_link(describe *d, const describe_hosts *h, const gci_target *t)
{
    char to[GCI_ADDR_TEXT], from[GCI_ADDR_TEXT];
    gci_text_add(&d->out, "link %s - %s, %s to %s: %s, %s%s", t->my_name, t->their_name, gci_addr_text(&t->source, from),
                 gci_addr_text(&t->addr, to), gci_quality_text(t->quality), t->stripes ? "stripes" : "does not stripe",
                 t->bind ? ", bound" : "");
    if (!t->stripes)
        gci_text_add(&d->out, ": %s", gci_why_text(h->edge[t->mine * h->columns + t->theirs].is.why));
}

static bool choice_alike(const gci_target *a, const gci_target *b)
{
    return !a->link && !b->link && a->last == b->last && a->quality == b->quality;
}

/* From target i on those that are alike: "also, private: 10.1.0.3 (eth2)", "last resort, link-local: fe80::1 (eth0) by eth0,
 * eth1". Returns which is the next. */
static int describe_choice_others(describe *d, const gci_choice *choice, int i)
{
    const gci_target *like = &choice->target[i];
    const gci_addr *before = NULL;
    char to[GCI_ADDR_TEXT];
    gci_text_add(&d->out, "%s, %s:", like->last ? "last resort" : "also", gci_quality_text(like->quality));
    for (; i < choice->targets && choice_alike(&choice->target[i], like); i++) {
        const gci_target *t = &choice->target[i];
        bool again = before && gci_addr_equal(before, &t->addr);
        gci_addr addr = t->addr;
        addr.scope = 0;
        if (!again)
            gci_text_add(&d->out, "%s %s", before ? ";" : "", gci_addr_text(&addr, to));
        if (!again && t->their_name)
            gci_text_add(&d->out, " (%s)", t->their_name);
        if (t->my_name)
            gci_text_add(&d->out, "%s %s", again ? "," : " by", t->my_name);
        before = &t->addr;
    }
    return i;
}

/* All edges without a link that are of this quality for this reason. */
static void describe_rest(describe *d, const describe_hosts *h, const char *pair, enum gci_quality quality, enum gci_why why)
{
    const char *comma = "";
    gci_text_add(&d->out, "%s: ", pair);
    if (quality == GCI_QUALITY_NONE)
        gci_text_add(&d->out, "no edge (%s):", gci_why_text(why));
    else if (quality == GCI_QUALITY_LINK_LOCAL && why == GCI_WHY_FAMILY)
        gci_text_add(&d->out, "edge, link-local:");
    else
        gci_text_add(&d->out, "edge, %s (%s):", gci_quality_text(quality), gci_why_text(why));
    for (int i = 0; i < h->rows * h->columns; i++)
        if (!h->edge[i].link && h->edge[i].is.quality == quality && h->edge[i].is.why == why) {
            gci_text_add(&d->out, "%s %s - %s", comma, h->edge[i].is.my_name, h->edge[i].is.their_name);
            comma = ",";
        }
    gci_text_add(&d->out, "\n");
}

static void describe_rests(describe *d, const describe_hosts *h, const char *pair)
{
    uint32_t seen[GCI_QUALITIES] = { 0 };
    for (int i = 0; i < h->rows * h->columns; i++)
        if (!h->edge[i].link)
            seen[h->edge[i].is.quality] |= UINT32_C(1) << h->edge[i].is.why;
    for (int quality = GCI_QUALITIES; quality-- > 0; )
        for (int why = GCI_WHYS; why-- > 0; )
            if (seen[quality] >> why & 1)
                describe_rest(d, h, pair, (enum gci_quality)quality, (enum gci_why)why);
}

static void describe_pair_text(describe *d, const describe_hosts *h, int host)
{
    const gci_choice *choice = h->choice;
    char pair[2 * WHO_TEXT];
    gci_text t;
    gci_text_begin(&t, pair, sizeof pair);
    host_who(h, h->own, &t);
    gci_text_add(&t, " - ");
    host_who(h, host, &t);
    for (int i = 0; i < choice->targets; ) {
        gci_text_add(&d->out, "%s: ", pair);
        if (choice->target[i].link)
            describe_choice_link(d, h, &choice->target[i++]);
        else
            i = describe_choice_others(d, choice, i);
        gci_text_add(&d->out, "\n");
    }
    if (choice->targets == 0) {
        gci_text_add(&d->out, "%s: ", pair);
        gci_addrsel_nothing(h->sel, &d->out);
        gci_text_add(&d->out, "\n");
    }
    describe_rests(d, h, pair);
}

/* What is forbidden is so at both ends: one line, not two. */
static void describe_forbidden_dot(describe *d, const describe_hosts *h, int host, int mine, int theirs, enum gci_why why)
{
    bool turned = h->own > host;
    gci_text_add(&d->out, "  \"%d.%d\" -> \"%d.%d\" [style=dotted, color=red, dir=none, label=\"forbidden\", ",
                 turned ? host : h->own, turned ? theirs : mine, turned ? h->own : host, turned ? mine : theirs);
    gci_text_add(&d->out, "tooltip=\"%s\"];\n", gci_why_text(why));
}

static void describe_edge_dot(describe *d, const describe_hosts *h, int host, int mine, int theirs)
{
    const hosts_edge *e = &h->edge[mine * h->columns + theirs];
    const gci_target *t = e->link;
    uint8_t quality = t ? t->quality : e->is.quality;
    if (!t && e->is.near) {
        describe_forbidden_dot(d, h, host, mine, theirs, e->is.why);
    } else if (t || quality >= GCI_QUALITY_PRIVATE || (quality != GCI_QUALITY_NONE && h->choice->links == 0)) {
        gci_text_add(&d->out, "  \"%d.%d\" -> \"%d.%d\" [style=%s, label=\"%s%s%s\", ", h->own, mine, host, theirs,
                     t ? "bold" : quality <= GCI_QUALITY_FAR ? "dashed" : "solid", gci_quality_text(quality),
                     t && !t->stripes ? ", does not stripe" : "", t && t->bind ? ", bound" : "");
        gci_text_add(&d->out, "tooltip=\"%s\"];\n", gci_why_text(e->is.why));
    }
}

/* Ranks on one host, with this one: they do not need the network. */
static void describe_same_host(describe *d, const describe_hosts *h, int host)
{
    char to[GCI_ADDR_TEXT];
    if (d->dot || (host == h->own && h->first[host + 1] - h->first[host] < 2))
        return;
    host_who(h, h->own, &d->out);
    if (host != h->own) {
        gci_text_add(&d->out, " - ");
        host_who(h, host, &d->out);
    }
    gci_text_add(&d->out, ": %s", host == h->own ? "among themselves over" : "over");
    for (int i = 0; i < h->choice->targets; i++)
        gci_text_add(&d->out, "%s %s", i > 0 ? "," : "", gci_addr_text(&h->choice->target[i].addr, to));
    gci_text_add(&d->out, "\n");
}

static void describe_pair(describe *d, describe_hosts *h, int host)
{
    hosts_choose(h, host);
    if (strcmp(h->host[host].id, h->host[h->own].id) == 0)
        describe_same_host(d, h, host);
    else if (!d->dot)
        describe_pair_text(d, h, host);
    for (int i = 0; d->dot && i < h->rows * h->columns; i++)
        describe_edge_dot(d, h, host, i / h->columns, i % h->columns);
}

static int describe_addresses(describe *d)
{
    gci_world *w = d->w;
    describe_hosts h = { .own = 0 };
    int err = hosts_open(&h, w);
    if (err == GC_OK && d->dot)
        describe_legend(d, "interfaces, and what each host thinks of those of others: bold: link; thin: would do, too; dashed: "
                           "last resort; dotted red: forbidden");
    for (int host = 0; err == GC_OK && host < h.hosts; host++) {
        if (d->dot)
            describe_host_dot(d, &h, host);
        else
            describe_host_text(d, &h, host);
    }
    for (int host = 0; err == GC_OK && host < h.hosts; host++)
        describe_pair(d, &h, host);
    hosts_free(&h, &w->env);
    return err;
}

/* ---- the call ------------------------------------------------------------------------------------------------- */

static int describe_what(describe *d, const char *what)
{
    if (strcmp(what, "links") == 0)
        describe_links(d);
    else if (strcmp(what, "waits") == 0)
        describe_waits(d);
    else if (strcmp(what, "clusters") == 0)
        describe_clusters(d);
    else if (strcmp(what, "addresses") == 0)
        return describe_addresses(d);
    else if (strcmp(what, "collectives") == 0)
        return d->dot ? GC_OK : gci_coll_describe(d->comm, &d->out);
    else
        return describe_routes(d);
    return GC_OK;
}

int gc_describe(gc_comm *world, const char *what, const char *form, char *text, size_t text_bytes, size_t *needed)
{
    static const char *const known[] = { "links", "routes", "waits", "clusters", "addresses", "collectives" };
    if (!world || !what || !form || (!text && text_bytes > 0))
        return GC_ERR_ARG;
    bool found = false;
    for (size_t i = 0; i < GCI_COUNT(known); i++)
        found |= strcmp(what, known[i]) == 0;
    if (!found)
        return gci_fail(world, GC_ERR_ARG, -1, "gc_describe: '%.40s' is not links, routes, waits, clusters, addresses or collectives",
                        what);
    describe d = { .comm = world, .w = world->world, .dot = strcmp(form, "dot") == 0 };
    if (!d.dot && strcmp(form, "text") != 0)
        return gci_fail(world, GC_ERR_ARG, -1, "gc_describe: '%.40s' is not text or dot", form);
    gci_text_begin(&d.out, text, text_bytes);
    if (d.dot)
        gci_text_add(&d.out, "%s %s {\n", strcmp(what, "links") == 0 ? "graph" : "digraph", what);
    int err = describe_what(&d, what);
    if (d.dot)
        gci_text_add(&d.out, "}\n");
    if (err < 0)
        return gci_fail(world, err, -1, "gc_describe: %s", gc_strerror(err));
    if (needed)
        *needed = d.out.used + 1;
    return GC_OK;
}
