/* mesh.c: the end of the start: the backbone, as far as it can be had, until all ranks agree on it.
 * SPDX-License-Identifier: MIT
 *
 *     joiner                            rank 0
 *     (both know the table, and so the same wish: which pairs shall keep a link, backbone.c)
 *     tries its links
 *     READY, what failed          -->   waits for all, itself too. Nothing failed: GO
 *       <-- TRY rank                    does the rest hold together, and would it without any one rank? Else it asks both
 *     TRIED                       -->   ends of further links to try, round after round, until it does or nothing is left
 *       <-- GO, how the backbone differs from the wish
 *
 * Of the two ends of a link the lower rank dials at once and the higher a little later, in case only that way works; one that
 * has no address of the other to try leaves it to the other altogether. A link is given up after PATIENCE_MS, sooner where all
 * addresses refuse. A host that takes the connection but says nothing yet (it is busy) gets BUSY_MS. A link that
 * cannot be had is no failure: what counts is that all ranks can be reached over the others. That is lost only if no
 * link over some gap is left to try; then the start fails with a text that names both sides. A link that only one end reports
 * stands: that end gave up before the other, which got the table late or was stopped, could begin.
 *
 * GRIDCOMM_LINKS. A rank at the left side of a `require` line adds links to each host at the right side, and opens all its
 * connections to there by ssh. The lines of rank 0's file come with the table and hold for all; if it has none, each rank's
 * own hold for what that rank opens, and the others hear of these links from rank 0.
 *
 * Up to GO any rank of the job may open a control connection to any other, because it may know of a wish or an order that
 * the other has not heard of yet. GO settles which of them stay. Later ones are of ranks that were parted (rescue.c).
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>

#define MESH_ONE_END UINT32_MAX         /* latency of a link of which one end has said that it cannot be had */

enum {
    MESH_LATER_MS = 250,            /* the higher rank waits for the lower one's connection: a round trip, and some more */
    MESH_PATIENCE_MS = 2500,        /* a lost SYN is sent again after 1 s, and that of the other side after 1.25 s */
    MESH_REFUSED_MS = 1000,         /* all addresses refuse: then only the other side may know better */
    MESH_BUSY_MS = 10000,           /* a host that is there, but whose rank is slow to answer */
    MESH_SSH_MS = 20000,
    MESH_LATE_MS = 500,             /* looking at a link so much later than it was due means that this process did not run */
    MESH_TRIES_MAX = 256,           /* links asked for in one round */
    MESH_TO_ROOT = 3,               /* of neighbouring ranks of one part, how many try a link to rank 0 */
    MESH_CLOSE_MS = 2000,           /* after GO joiners close their join connection; then rank 0 does */
    MESH_LINKS_FILE_MAX = 1 << 16
};

static int64_t mesh_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

/* ---- the file of required links -------------------------------------------------------------------------------- */

static int mesh_parse_links(gci_control *c, FILE *file, const char *path, char text[GCI_TEXT])
{
    char *data = gci_alloc(c->env, MESH_LINKS_FILE_MAX + 1), why[GCI_TEXT] = "cannot be read, is too long, or is no text";
    int err = GC_ERR_CONFIG;
    size_t bytes;

    if (!data)
        return GC_ERR_NOMEM;
    bytes = fread(data, 1, MESH_LINKS_FILE_MAX, file);
    if (!ferror(file) && fgetc(file) == EOF)
        err = gci_links_parse(c->env, data, bytes, &c->require, &c->requires, why);
    gci_free(c->env, data);
    if (err == GC_ERR_CONFIG)
        snprintf(text, GCI_TEXT, "GRIDCOMM_LINKS=%.80s: %.150s", path, why);
    return err;
}

GCI int gci_mesh_read_links(gci_control *c, const char *path, char text[GCI_TEXT])
{
    FILE *file;
    int err;

    if (!path || !path[0])
        return GC_OK;
    if ((file = fopen(path, "rbe")) == NULL) {
        gci_log(c->env, GC_LOG_INFO, "GRIDCOMM_LINKS=%.200s cannot be opened here: %s", path, gci_strerrno(-errno));
        c->links_missing = true;
        return GC_OK;                   /* rank 0's is enough */
    }
    err = mesh_parse_links(c, file, path, text);
    fclose(file);
    return err;
}

GCI size_t gci_mesh_links_max(void) { return MESH_LINKS_FILE_MAX; }

/* What was parsed, without comments: it is not longer than the file was. */
GCI size_t gci_mesh_links_text(const gci_control *c, char *out)
{
    char line[sizeof(gci_require) + 32];
    size_t bytes = 0;

    for (int i = 0; i < c->requires; i++) {
        const gci_require *r = &c->require[i];
        size_t n = (size_t)snprintf(line, sizeof line, "require %s %s via=ssh%s%s\n", r->from, r->to, r->user[0] ? " user=" : "",
                                    r->user);
        if (out)
            memcpy(out + bytes, line, n);
        bytes += n;
    }
    return bytes;
}

GCI int gci_mesh_take_links(gci_control *c, const char *text, size_t bytes)
{
    gci_require *require = NULL;
    char why[GCI_TEXT];
    int requires = 0, err = gci_links_parse(c->env, text, bytes, &require, &requires, why);

    if (err < 0)
        return err == GC_ERR_NOMEM ? err : GC_ERR_PROTOCOL;
    gci_free(c->env, c->require);
    c->require = require;
    c->requires = requires;
    return GC_OK;
}

/* Of the ranks of a host that such links may begin or end at, the first and the last have them. */
static void mesh_require_host(gci_control *c, int host)
{
    int me = c->place.rank, from[2] = { -1, -1 }, to[2] = { -1, -1 };
    char destination[GCI_ADDR_TEXT + 80];

    for (int r = 0; r < c->place.ranks; r++)            /* ranks there that this rank reaches by ssh */
        if (c->table.card[r].host == host && gci_reach_by_ssh(c, me, r, destination)) {
            to[0] = to[0] < 0 ? r : to[0];
            to[1] = r;
        }
    for (int r = 0; r < c->place.ranks && to[0] >= 0; r++)
        if (c->table.card[r].host == c->table.card[me].host && gci_reach_by_ssh(c, r, to[0], destination)) {
            from[0] = from[0] < 0 ? r : from[0];
            from[1] = r;
        }
    for (int i = 0; i < 2; i++)
        if (from[i] == me && to[i] >= 0) {
            gci_neighbour *n = gci_life_add(c, to[i]);
            if (!n)
                gci_join_out_of_memory(c);
            else
                n->wished = n->required = true;
        }
}

/* ---- the wish -------------------------------------------------------------------------------------------------- */

static int mesh_wish(gci_control *c)
{
    size_t n = (size_t)c->place.ranks;
    const char **path = gci_alloc(c->env, n * sizeof *path);
    int *host = gci_alloc(c->env, n * sizeof *host), err = GC_ERR_NOMEM;

    c->speed = gci_alloc(c->env, n * sizeof *c->speed);
    for (size_t r = 0; path && host && c->speed && r < n; r++) {
        const gci_host *h = &c->table.host[c->table.card[r].host];
        path[r] = c->table.card[r].cluster;
        host[r] = c->table.card[r].host;
        for (int i = 0; i < h->addrs; i++)
            c->speed[r] = h->addr[i].speed > c->speed[r] ? h->addr[i].speed : c->speed[r];
    }
    if (path && host && c->speed && (err = gci_topo_make(c->env, c->place.ranks, path, host, &c->topo)) >= 0)
        err = gci_backbone_choose(c->env, &c->topo, c->speed, c->density, c->job, &c->graph);
    gci_free(c->env, path);
    gci_free(c->env, host);
    return err;
}

/* When this rank dials, and when it gives up. Both sides know which addresses the other has to try. */
static void mesh_begin_edge(gci_control *c, gci_neighbour *n)
{
    bool ssh = gci_reach_by_ssh(c, c->place.rank, n->rank, (char[GCI_ADDR_TEXT + 80]){ 0 }), can, they_can;
    int64_t patience = mesh_ms(ssh ? MESH_SSH_MS : MESH_PATIENCE_MS), left = c->start_deadline - c->now;

    can = ssh || gci_reach_possible(c, c->place.rank, n->rank);
    they_can = gci_reach_possible(c, n->rank, c->place.rank);
    n->begun = c->now;
    n->settled = n->stands = false;
    n->alone = can && !they_can;
    n->cannot = !can;
    n->dial_at = !can ? GCI_FOREVER : ssh || n->alone || c->place.rank < n->rank ? c->now : c->now + mesh_ms(MESH_LATER_MS);
    n->give_up_at = !can && !they_can ? c->now : c->now + (patience < left / 2 ? patience : left / 2);
}

static void mesh_begin(gci_control *c)
{
    int me = c->place.rank;

    c->linking = true;
    c->dirty = true;
    if (mesh_wish(c) < 0 || !gci_life_prepare(c)) {
        gci_join_out_of_memory(c);
        return;
    }
    for (int e = 0; e < c->graph.edges && c->phase == GCI_PHASE_LINK; e++) {
        const gci_edge *g = &c->graph.edge[e];
        gci_neighbour *n = g->a == me || g->b == me ? gci_life_add(c, g->a == me ? g->b : g->a) : NULL;
        if (n)
            n->wished = true;
        else if (g->a == me || g->b == me)
            gci_join_out_of_memory(c);
    }
    for (int h = 0; h < c->table.hosts && c->requires && c->phase == GCI_PHASE_LINK; h++)
        if (h != c->table.card[me].host)
            mesh_require_host(c, h);
    for (int i = 0; i < c->neighbours; i++)
        mesh_begin_edge(c, c->neighbour[i]);
    for (int i = 0; i < c->conns; i++)          /* some were faster than the table */
        if (c->conn[i] && c->conn[i]->stage == GCI_CONN_PROVEN && c->conn[i]->purpose == GCI_PURPOSE_CONTROL)
            gci_life_up(c, c->conn[i]);
}

/* ---- what is told of it ---------------------------------------------------------------------------------------- */

static void mesh_entry(gci_control *c, int a, int b, unsigned what)
{
    if (c->report_bytes + GCI_ENTRY_BYTES > c->report_room) {
        size_t more = c->report_room ? 2 * c->report_room : 64 * GCI_ENTRY_BYTES;
        uint8_t *grown = gci_realloc(c->env, c->report, more);
        if (!grown) {
            gci_join_out_of_memory(c);
            return;
        }
        c->report = grown;
        c->report_room = more;
    }
    gci_put32(c->report + c->report_bytes, (uint32_t)a);
    gci_put32(c->report + c->report_bytes + 4, (uint32_t)b | (uint32_t)what << 24);
    c->report_bytes += GCI_ENTRY_BYTES;
}

/* The next frames of READY or GO, as many as fit. */
static void mesh_send_report(gci_control *c, gci_conn *k)
{
    unsigned kind = c->place.rank == 0 ? GCI_FRAME_GO : GCI_FRAME_READY;
    gci_stream *s = k->stream;

    while (s->report) {
        size_t bytes = gci_min(GCI_FRAME_MAX, c->report_bytes - s->report_at);
        bool more = s->report_at + bytes < c->report_bytes;
        if (!gci_conn_send(c, k, kind, more ? GCI_FRAME_MORE : 0, bytes ? c->report + s->report_at : NULL, bytes))
            return;
        s->report_at += bytes;
        s->report = more;
    }
}

GCI void gci_mesh_refill(gci_control *c, gci_conn *k)
{
    if (k->purpose != GCI_PURPOSE_JOIN || !k->stream->report)
        return;
    mesh_send_report(c, k);
    if (c->phase == GCI_PHASE_RUN)
        gci_mesh_forget_report(c);
}

/* A long GO goes on for a while after its sender has begun to run. */
GCI void gci_mesh_forget_report(gci_control *c)
{
    for (int r = 1; c->joined && r < c->place.ranks; r++)
        if (c->joined[r] && c->joined[r]->stream->report)
            return;
    gci_free(c->env, c->report);
    c->report = NULL;
    c->report_bytes = c->report_room = 0;
}

static void mesh_keep_missed(gci_control *c, int from, int to, const char *text)
{
    struct gci_missed *m = &c->missed[c->missed_count++ % GCI_MISSED_KEPT];
    m->from = from;
    m->to = to;
    snprintf(m->text, sizeof m->text, "%s", text);
}

static void mesh_missed(gci_control *c, const gci_neighbour *n, const char *text)
{
    uint8_t body[4 + GCI_TEXT];
    char *said = (char *)body + 4;

    gci_log(c->env, GC_LOG_INFO, "no link of the backbone to rank %d: %s", n->rank, text);
    if (c->place.rank == 0) {
        mesh_keep_missed(c, 0, n->rank, text);
        return;
    }
    gci_put32(body, (uint32_t)n->rank);
    snprintf(said, GCI_TEXT, "%s", text);
    if (c->root)                        /* only a text: without room for it there is none */
        (void)gci_conn_send(c, c->root, GCI_FRAME_MISSED, 0, body, 4 + strlen(said));
}

/* ---- rank 0: what is left, and what to try --------------------------------------------------------------------- */

static bool mesh_was_added(const gci_control *c, int a, int b)
{
    for (size_t at = 0; at < c->report_bytes; at += GCI_ENTRY_BYTES)
        if (gci_get32(c->report + at) == (uint32_t)a
            && gci_get32(c->report + at + 4) == ((uint32_t)b | (uint32_t)GCI_ENTRY_ADDED << 24))
            return true;
    return false;
}

/* A link could not be had: it stands in the graph as down. Or it could, and was not in the wish. */
static void mesh_note(gci_control *c, int x, int y, bool stands)
{
    gci_edge g = { .a = x < y ? x : y, .b = x < y ? y : x };
    bool added = mesh_was_added(c, g.a, g.b);

    if (added || (!stands && gci_graph_find(&c->graph, g.a, g.b) >= 0
                  && c->graph.edge[gci_graph_find(&c->graph, g.a, g.b)].cost[GCI_LATENCY] == 0))
        return;                         /* known; a required link that stands does so whoever else could not have it */
    if (stands)
        gci_backbone_cost(&c->topo, c->speed, &g);
    if (gci_graph_add(c->env, &c->graph, &g) < 0)
        gci_join_out_of_memory(c);
    mesh_entry(c, g.a, g.b, stands ? GCI_ENTRY_ADDED : 0);
}

/* One end of a link has not got it. */
static void mesh_note_missing(gci_control *c, int x, int y)
{
    int e = gci_graph_find(&c->graph, x, y);

    if (e < 0 || c->graph.edge[e].cost[GCI_LATENCY] == MESH_ONE_END)
        mesh_note(c, x, y, false);
    else if (c->graph.edge[e].cost[GCI_LATENCY] && !mesh_was_added(c, x < y ? x : y, x < y ? y : x))
        c->graph.edge[e].cost[GCI_LATENCY] = MESH_ONE_END;
}

/* All have reported: what one end alone has not got stands. */
static void mesh_settle_notes(gci_control *c)
{
    for (int e = 0; e < c->graph.edges; e++)
        if (c->graph.edge[e].cost[GCI_LATENCY] == MESH_ONE_END)
            gci_backbone_cost(&c->topo, c->speed, &c->graph.edge[e]);
}

static bool mesh_listed(const gci_control *c, int rank) { return c->span[rank] == c->span[c->place.ranks]; }

/* "ranks 0-3 (10.1.0.1:4000) and ranks 4-7 (...) cannot reach each other: rank 2 ..." */
static void mesh_fail(gci_control *c)
{
    int ranks = c->place.ranks, other = 1;
    char here[GCI_LIST_TEXT], there[GCI_LIST_TEXT], at[GCI_ADDR_TEXT], far[GCI_ADDR_TEXT], why[GCI_TEXT] = "";

    while (other < ranks - 1 && c->span[other] == c->span[0])
        other++;
    for (int i = 0; i < GCI_MISSED_KEPT && i < c->missed_count && !why[0]; i++) {
        const struct gci_missed *m = &c->missed[i];
        if (c->span[m->from] != c->span[m->to])
            snprintf(why, sizeof why, ": rank %d: %.150s", m->from, m->text);
    }
    c->span[ranks] = c->span[0];
    gci_join_list(c, mesh_listed, here);
    c->span[ranks] = c->span[other];
    gci_join_list(c, mesh_listed, there);
    gci_join_fail(c, GC_ERR_UNREACHABLE, "%.50s (%s) and %.50s (%s) cannot reach each other%s", here, gci_life_address(c, 0, at),
                  there, gci_life_address(c, other, far), why);
}

/* What is down leaves the graph, and what is not in it any more ends. false: out of memory, the start has failed. */
static bool mesh_agreed(gci_control *c)
{
    int kept = 0;

    for (int e = 0; e < c->graph.edges; e++)
        if (c->graph.edge[e].cost[GCI_LATENCY])
            c->graph.edge[kept++] = c->graph.edge[e];
    c->graph.edges = kept;
    c->dirty = true;
    if (gci_life_begin(c))
        return true;
    gci_join_out_of_memory(c);
    return false;
}

static void mesh_go(gci_control *c)
{
    if (!mesh_agreed(c))
        return;
    for (int r = 1; r < c->place.ranks; r++) {
        gci_conn *k = c->joined[r];
        if (!k)
            continue;
        k->stream->report = true;
        mesh_send_report(c, k);
        k->stream->patience = mesh_ms(MESH_CLOSE_MS);
        k->deadline = c->now + k->stream->patience;
    }
    c->phase = GCI_PHASE_RUN;
}

/* The repair has come to its end. */
static void mesh_conclude(gci_control *c, int parts, int cuts, const uint8_t *cut)
{
    char list[GCI_LIST_TEXT];

    if (parts > 1) {
        mesh_fail(c);
        return;
    }
    for (int r = 0; r < c->place.ranks; r++)
        c->span[r] = cut[r];
    c->span[c->place.ranks] = 1;
    gci_join_list(c, mesh_listed, list);
    if (cuts > 0)
        gci_log(c->env, GC_LOG_INFO, "the death of any of %s would cut others off: no further links can be had", list);
    mesh_go(c);
}

static void mesh_order(gci_control *c, int rank, int peer, struct gci_try *t)
{
    uint8_t body[4];
    gci_neighbour *n;

    gci_put32(body, (uint32_t)peer);
    if (rank > 0) {
        if (!c->joined[rank] || !gci_conn_send(c, c->joined[rank], GCI_FRAME_TRY, 0, body, sizeof body))
            t->answers++;
        return;
    }
    if ((n = gci_life_add(c, peer)) == NULL) {
        t->answers++;
        return;
    }
    mesh_begin_edge(c, n);
    n->ordered = true;
}

static void mesh_try(gci_control *c, const gci_edge *edge, int n)
{
    gci_log(c->env, GC_LOG_INFO, "some links cannot be had: %d others are tried", n);
    for (int i = 0; i < n; i++) {
        c->tries[i] = (struct gci_try){ .a = edge[i].a, .b = edge[i].b };
        mesh_order(c, edge[i].a, edge[i].b, &c->tries[i]);
        mesh_order(c, edge[i].b, edge[i].a, &c->tries[i]);
    }
    c->try_count = n;
    c->dirty = true;
}

static void mesh_tried(gci_control *c, int from, int to, bool stands)
{
    for (int i = 0; i < c->try_count; i++) {
        struct gci_try *t = &c->tries[i];
        if ((t->a != from || t->b != to) && (t->a != to || t->b != from))
            continue;
        t->answers++;
        t->stands = (uint8_t)(t->stands + stands);
        c->dirty = true;
        return;
    }
}

/* Nothing sensible is left. But everybody has reached rank 0 once, to join: perhaps its port alone is open. Some ranks of each
 * part that is cut off from it. */
static int mesh_to_root(gci_control *c, gci_edge more[])
{
    int n = 0, of_part[2] = { -1, 0 };

    for (int r = 1; r < c->place.ranks && n < MESH_TRIES_MAX; r++) {
        if (c->span[r] == c->span[0] || gci_graph_find(&c->graph, 0, r) >= 0)
            continue;
        if (c->span[r] != of_part[0])
            of_part[0] = c->span[r], of_part[1] = 0;
        if (of_part[1]++ < MESH_TO_ROOT)
            more[n++] = (gci_edge){ .a = 0, .b = r };
    }
    return n;
}

/* All are ready, and have answered what was asked of them. due: no time is left. */
static void mesh_judge(gci_control *c, bool due)
{
    gci_edge *more = NULL;
    uint8_t *cut = NULL;
    int parts, cuts, n = 0;

    for (int i = 0; i < c->try_count && !due; i++)
        if (c->tries[i].answers < 2)
            return;
    for (int i = 0; i < c->try_count; i++)
        mesh_note(c, c->tries[i].a, c->tries[i].b, c->tries[i].stands > 0);
    c->try_count = 0;
    mesh_settle_notes(c);
    if (!c->report_bytes) {
        mesh_go(c);
        return;
    }
    more = gci_alloc(c->env, MESH_TRIES_MAX * sizeof *more);
    cut = gci_alloc(c->env, (size_t)c->place.ranks);
    if (!c->tries)
        c->tries = gci_alloc(c->env, MESH_TRIES_MAX * sizeof *c->tries);
    parts = gci_graph_parts(&c->graph, c->span);
    cuts = cut ? gci_graph_cuts(c->env, &c->graph, cut) : GC_ERR_NOMEM;
    if (more && c->tries && cuts >= 0 && !due && (parts > 1 || cuts > 0))
        n = gci_backbone_repair(c->env, &c->topo, &c->graph, c->job, MESH_TRIES_MAX, more);
    if (more && n == 0 && !due && parts > 1)
        n = mesh_to_root(c, more);
    if (!more || !c->tries || cuts < 0 || n < 0)
        gci_join_out_of_memory(c);
    else if (n > 0)
        mesh_try(c, more, n);
    else
        mesh_conclude(c, parts, cuts, cut);
    gci_free(c->env, more);
    gci_free(c->env, cut);
}

/* ---- this rank's own links ------------------------------------------------------------------------------------- */

static void mesh_give_up(gci_control *c, gci_neighbour *n)
{
    gci_dial *d = gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank);
    char text[GCI_TEXT], dialled[GCI_TEXT];

    if (c->now > n->give_up_at + mesh_ms(MESH_LATE_MS) && c->now < c->start_deadline) {
        n->give_up_at += c->now - n->begun;         /* time in which nothing was tried does not count */
        n->begun = c->now;
        return;
    }
    if (d && d->met && c->now < n->begun + mesh_ms(MESH_BUSY_MS)) {
        n->give_up_at = n->begun + mesh_ms(MESH_BUSY_MS);
        return;
    }
    if (d && !gci_dial_is_desperate(d))
        snprintf(text, sizeof text, "%.200s", gci_dial_text(c, d, dialled));
    else if (d || n->cannot)
        gci_reach_why(c, n->rank, text);
    else
        snprintf(text, sizeof text, "no connection came from rank %d, and there was no time to try one", n->rank);
    gci_dial_end(c, d);
    n->settled = true;
    mesh_missed(c, n, text);
}

/* One link: dial, see whether it stands, give up. When to look again. */
static int64_t mesh_tend(gci_control *c, gci_neighbour *n)
{
    int candidates;

    if (n->conn && !n->settled)
        n->settled = n->stands = true;
    if (!n->conn && (n->wished || n->ordered) && (!n->settled || n->stands) && c->now >= n->dial_at
        && !gci_dial_find(c, GCI_PURPOSE_CONTROL, n->rank)
        && !gci_reach_dial(c, GCI_PURPOSE_CONTROL, n->rank, GCI_FOREVER, &candidates)) {
        gci_join_out_of_memory(c);
        return GCI_FOREVER;
    }
    if (!n->settled && c->now >= n->give_up_at)
        mesh_give_up(c, n);
    if (n->settled)
        return GCI_FOREVER;
    return c->now < n->dial_at && n->dial_at < n->give_up_at ? n->dial_at : n->give_up_at;
}

GCI void gci_mesh_round(gci_control *c, gci_dial *d)
{
    gci_neighbour *n = gci_life_find(c, d->peer);
    char text[GCI_TEXT], note[GCI_TEXT];
    int64_t until;

    if (!n || n->settled || c->phase >= GCI_PHASE_RUN)
        return;
    snprintf(note, sizeof note, "cannot connect to rank %d: %.200s", d->peer, gci_dial_text(c, d, text));
    gci_join_note(c, note);
    if (!gci_dial_hopeless(d))
        return;
    until = n->begun + (n->alone ? 0 : mesh_ms(MESH_REFUSED_MS));
    if (until < n->give_up_at)
        n->give_up_at = until;
    c->dirty = true;
}

/* An order of rank 0's has been carried out. Many may end at once: what has no room yet is told when some has left. */
static void mesh_answer(gci_control *c, gci_neighbour *n)
{
    uint8_t body[4];

    gci_put32(body, (uint32_t)n->rank);
    if (c->place.rank != 0 && c->root && !gci_conn_send(c, c->root, GCI_FRAME_TRIED, n->stands, body, sizeof body))
        return;
    n->ordered = false;
    n->wished = n->wished || n->stands;
    if (c->place.rank == 0)
        mesh_tried(c, 0, n->rank, n->stands);
}

/* Every link is settled. */
static void mesh_ready(gci_control *c)
{
    c->phase = GCI_PHASE_READY;
    c->dirty = true;
    for (int i = 0; i < c->neighbours && c->phase == GCI_PHASE_READY; i++) {
        const gci_neighbour *n = c->neighbour[i];
        if (!n->wished || (n->stands && !n->required))
            continue;
        if (c->place.rank == 0 && n->stands)
            mesh_note(c, 0, n->rank, true);
        else if (c->place.rank == 0)
            mesh_note_missing(c, 0, n->rank);
        else
            mesh_entry(c, c->place.rank, n->rank, n->stands ? GCI_ENTRY_ADDED : 0);
    }
    if (c->place.rank == 0)
        c->ready++;
    else if (c->phase == GCI_PHASE_READY && c->root) {
        c->root->stream->report = true;
        mesh_send_report(c, c->root);
    }
}

GCI void gci_mesh_settle(gci_control *c)
{
    bool all = true;

    if (c->phase == GCI_PHASE_LINK && !c->linking)
        mesh_begin(c);
    for (int i = 0; i < c->neighbours && (c->phase == GCI_PHASE_LINK || c->phase == GCI_PHASE_READY); i++) {
        gci_neighbour *n = c->neighbour[i];
        (void)mesh_tend(c, n);
        all = all && (n->settled || !n->wished);
        if (n->ordered && n->settled)
            mesh_answer(c, n);
    }
    if (c->phase == GCI_PHASE_LINK && all)
        mesh_ready(c);
    if (c->phase == GCI_PHASE_READY && c->place.rank == 0 && c->ready == c->place.ranks)
        mesh_judge(c, c->now >= c->start_deadline);
}

/* gci_mesh_settle() has just done what was due. */
GCI int64_t gci_mesh_timers(gci_control *c)
{
    int64_t next = GCI_FOREVER;

    for (int i = 0; i < c->neighbours && (c->phase == GCI_PHASE_LINK || c->phase == GCI_PHASE_READY); i++) {
        int64_t at = mesh_tend(c, c->neighbour[i]);
        next = at < next ? at : next;
    }
    return next;
}

/* ---- frames ---------------------------------------------------------------------------------------------------- */

static bool mesh_ready_frame(gci_control *c, gci_conn *k, unsigned flag, const uint8_t *body, size_t bytes)
{
    if (c->phase < GCI_PHASE_LINK || !c->linking || k->stream->ready || bytes % GCI_ENTRY_BYTES)
        return false;
    for (size_t at = 0; at < bytes; at += GCI_ENTRY_BYTES) {
        uint32_t a = gci_get32(body + at), b = gci_get32(body + at + 4) & 0xffffff, what = gci_get32(body + at + 4) >> 24;
        if (a != (uint32_t)k->peer || b >= (uint32_t)c->place.ranks || a == b || what > GCI_ENTRY_ADDED)
            return false;
        if (what == GCI_ENTRY_ADDED)
            mesh_note(c, (int)a, (int)b, true);
        else
            mesh_note_missing(c, (int)a, (int)b);
    }
    if (!(flag & GCI_FRAME_MORE)) {
        k->stream->ready = true;
        c->ready++;
        c->dirty = true;
    }
    return true;
}

static bool mesh_try_frame(gci_control *c, uint32_t peer)
{
    gci_neighbour *n;

    if (c->phase != GCI_PHASE_READY || peer >= (uint32_t)c->place.ranks || peer == (uint32_t)c->place.rank)
        return false;
    if ((n = gci_life_add(c, (int)peer)) == NULL) {
        gci_join_out_of_memory(c);
        return true;
    }
    mesh_begin_edge(c, n);
    n->ordered = true;
    c->dirty = true;
    return true;
}

static void mesh_remove(gci_control *c, int a, int b)
{
    int e = gci_graph_find(&c->graph, a, b);
    if (e >= 0)
        for (int m = 0; m < GCI_METRICS; m++)
            c->graph.edge[e].cost[m] = 0;           /* out of the graph in mesh_agreed() */
}

static bool mesh_go_frame(gci_control *c, unsigned flag, const uint8_t *body, size_t bytes)
{
    if (c->phase != GCI_PHASE_READY || bytes % GCI_ENTRY_BYTES)
        return false;
    for (size_t at = 0; at < bytes && c->phase == GCI_PHASE_READY; at += GCI_ENTRY_BYTES) {
        uint32_t a = gci_get32(body + at), b = gci_get32(body + at + 4) & 0xffffff, what = gci_get32(body + at + 4) >> 24;
        gci_edge g = { .a = (int32_t)a, .b = (int32_t)b };
        if (b >= (uint32_t)c->place.ranks || a >= b || what > GCI_ENTRY_ADDED)
            return false;
        if (what == 0) {
            mesh_remove(c, g.a, g.b);
            continue;
        }
        gci_backbone_cost(&c->topo, c->speed, &g);
        if (gci_graph_add(c->env, &c->graph, &g) < 0)
            gci_join_out_of_memory(c);
    }
    if (flag & GCI_FRAME_MORE || c->phase != GCI_PHASE_READY)
        return true;
    if (!mesh_agreed(c))
        return true;
    c->phase = GCI_PHASE_RUN;
    gci_conn_close(c, c->root);
    c->root = NULL;
    return true;
}

/* Of rank 0's word and of a joiner's. One that is wrong goes on to join.c, which says so and fails the start. */
GCI bool gci_mesh_frame(gci_control *c, gci_conn *k, unsigned kind, unsigned flag, const uint8_t *body, size_t bytes)
{
    char text[GCI_TEXT];
    uint32_t rank = bytes >= 4 ? gci_get32(body) : UINT32_MAX;

    if (k->purpose != GCI_PURPOSE_JOIN || c->phase >= GCI_PHASE_RUN)
        return false;
    if (k == c->root && kind == GCI_FRAME_TRY && bytes == 4)
        return mesh_try_frame(c, rank);
    if (k == c->root && kind == GCI_FRAME_GO)
        return mesh_go_frame(c, flag, body, bytes);
    if (!k->incoming || c->place.rank != 0)
        return false;
    if (kind == GCI_FRAME_READY)
        return mesh_ready_frame(c, k, flag, body, bytes);
    if (rank >= (uint32_t)c->place.ranks || rank == (uint32_t)k->peer)
        return false;
    if (kind == GCI_FRAME_MISSED)
        mesh_keep_missed(c, k->peer, (int)rank, gci_join_text(body + 4, bytes - 4, text));
    else if (kind == GCI_FRAME_TRIED && bytes == 4)
        mesh_tried(c, k->peer, (int)rank, (flag & 1) != 0);
    else
        return false;
    return true;
}
