/* join.c: how the ranks of a job find each other and trade cards.
 * SPDX-License-Identifier: MIT
 *
 *     joiner                            rank 0
 *     handshake JOIN, CARD        -->   collects the cards of all
 *       <-- TABLE, or FROM parent       few ranks get the table from rank 0, the others from a rank that has it:
 *     handshake FETCH       --> parent  a tree over sites, hosts and ranks, so the table goes to each site and each
 *       <-- TABLE             parent    host about once; a fetch that fails asks rank 0 (WANT)
 *     (control connections to the neighbours: from READY to GO, mesh.c; then the join connections end)
 *
 * Until GO rank 0 answers for the whole start: a join connection that ends, a FAIL from a joiner, or its deadline make it
 * tell FAIL with a text to everybody who is there, and everybody's start ends with that text. A joiner says how long it
 * will wait itself, so that rank 0 gives up first and can name who is missing; joiners wait GRACE_MS longer for its word.
 */
#include "gridcomm_int.h"

#include <errno.h>
#include <stdio.h>

enum {
    JOIN_GRACE_MS = 500,            /* for rank 0's FAIL to come; start_timeout + 1 s is the promise */
    JOIN_FLUSH_MS = 300,            /* how long FAIL may take to leave */
    JOIN_FETCH_MS = 2000,           /* without a byte of the table: ask rank 0 */
    JOIN_NOTE_MS = 500,             /* between two notes to rank 0 */
    JOIN_DOUBT_MS = 5000,           /* somebody is where rank 0 should be, but at other addresses it may still come */
    JOIN_RESOLVE_MS = 2000,         /* names may get addresses, or others, while we wait */
    JOIN_NAMES_MAX = 8              /* addresses of one root */
};

static int64_t join_ms(int ms) { return (int64_t)ms * GCI_NS_PER_MS; }

/* ---- failing -------------------------------------------------------------------------------------------------------- */

static void join_broadcast(gci_control *c, unsigned kind, const void *body, size_t bytes)
{
    for (int r = 1; c->joined && r < c->place.ranks; r++)
        if (c->joined[r])
            (void)gci_conn_send(c, c->joined[r], kind, 0, body, bytes);     /* no room: it will see the end instead */
}

GCI void gci_join_fail(gci_control *c, int code, const char *format, ...)
{
    uint8_t body[4 + GCI_TEXT];
    va_list args;

    if (c->phase >= GCI_PHASE_RUN)
        return;
    va_start(args, format);
    vsnprintf(c->text, sizeof c->text, format, args);
    va_end(args);
    if (c->starved && strlen(c->text) < sizeof c->text - 1)
        snprintf(c->text + strlen(c->text), sizeof c->text - strlen(c->text), "; rank %d can have no connections: %s",
                 c->place.rank, gci_strerrno(c->starved));
    c->fail_code = code;            /* posted when the thread ends */
    c->phase = GCI_PHASE_FAILED;
    c->end_at = c->now + join_ms(JOIN_FLUSH_MS);
    c->dirty = true;
    gci_put32(body, (uint32_t)code);
    memcpy(body + 4, c->text, strlen(c->text));
    join_broadcast(c, GCI_FRAME_FAIL, body, 4 + strlen(c->text));
    if (c->root)
        (void)gci_conn_send(c, c->root, GCI_FRAME_FAIL, 0, body, 4 + strlen(c->text));
    for (gci_dial *d = c->dials; d; d = d->next_dial)
        gci_dial_end(c, d);
}

GCI bool gci_join_has_failed(const gci_control *c)
{
    for (int r = 1; c->joined && r < c->place.ranks; r++)
        if (c->joined[r])
            return false;           /* joiners close when they have read FAIL */
    return !c->root || !c->root->stream->out_bytes;
}

static int join_code(const uint8_t *body)
{
    int32_t code = (int32_t)gci_get32(body);
    return code <= GC_ERR_ARG && code >= GC_ERR_UNSUPPORTED ? (int)code : GC_ERR_PROTOCOL;
}

/* A text from another rank: printable, or a question mark. */
GCI const char *gci_join_text(const uint8_t *from, size_t bytes, char text[GCI_TEXT])
{
    bytes = gci_min(bytes, GCI_TEXT - 1);
    for (size_t i = 0; i < bytes; i++)
        text[i] = from[i] >= ' ' && from[i] <= '~' ? (char)from[i] : '?';
    text[bytes] = 0;
    return text;
}

GCI void gci_join_list(const gci_control *c, bool (*in)(const gci_control *, int rank), char text[GCI_LIST_TEXT])
{
    size_t at = 0;
    int runs = 0, count = 0;
    char list[GCI_LIST_TEXT] = "";

    for (int r = 0; r < c->place.ranks; r++) {
        int first = r, n;
        char run[32];
        if (!in(c, r))
            continue;
        while (r + 1 < c->place.ranks && in(c, r + 1))
            r++;
        count += r - first + 1;
        n = first == r ? snprintf(run, sizeof run, "%s%d", runs ? ", " : "", first)
                       : snprintf(run, sizeof run, "%s%d-%d", runs ? ", " : "", first, r);
        if (at + (size_t)n + 16 < sizeof list) {
            memcpy(list + at, run, (size_t)n + 1);
            at += (size_t)n;
        } else if (list[at - 1] != '.') {
            memcpy(list + at, " ...", 5);
            at += 4;
        }
        runs++;
    }
    snprintf(text, GCI_LIST_TEXT, "rank%s %.110s", count == 1 ? "" : "s", list);
}

static bool join_no_card(const gci_control *c, int rank) { return !c->card[rank]; }

static bool join_not_ready(const gci_control *c, int rank)
{
    return rank == 0 ? c->phase < GCI_PHASE_READY : !c->joined[rank] || !c->joined[rank]->stream->ready;
}

static void join_timeout(gci_control *c)
{
    char list[GCI_LIST_TEXT];
    const char *why = c->note[0] ? ": " : "";

    if (c->place.rank > 0)
        gci_join_fail(c, GC_ERR_TIMEOUT, "the job did not start within %g s%s%s", c->start_seconds, why, c->note);
    else {
        gci_join_list(c, c->cards < c->place.ranks ? join_no_card : join_not_ready, list);
        gci_join_fail(c, GC_ERR_TIMEOUT, "%s of %d did not %s within %g s%s%.100s", list, c->place.ranks,
                      c->cards < c->place.ranks ? "join" : "connect to all neighbours", c->start_seconds, why, c->note);
    }
}

GCI void gci_join_note(gci_control *c, const char *text)
{
    snprintf(c->note, sizeof c->note, "%s", text);
    if (!c->root || c->now < c->noted_at + join_ms(JOIN_NOTE_MS))
        return;
    c->noted_at = c->now;
    (void)gci_conn_send(c, c->root, GCI_FRAME_NOTE, 0, text, strlen(text));     /* only a text for a time-out */
}

/* ---- rank 0: cards in, table out ------------------------------------------------------------------------------------ */

GCI void gci_join_out_of_memory(gci_control *c)
{
    gci_join_fail(c, GC_ERR_NOMEM, "rank %d: out of memory at start", c->place.rank);
}

/* The cards have done their work. */
static void join_drop_cards(gci_control *c)
{
    for (int r = 0; r < c->place.ranks; r++) {
        gci_free(c->env, c->card[r]);
        c->card[r] = NULL;
    }
}

static void join_send_from(gci_control *c, int rank, int parent)
{
    uint8_t body[4 + GCI_CARD_BYTES_MAX];
    gci_full_card card;

    gci_reach_card_for(c, rank, parent, &card);
    gci_put32(body, (uint32_t)parent);
    if (!gci_conn_send(c, c->joined[rank], GCI_FRAME_FROM, 0, body, 4 + gci_card_encode(&card, body + 4)))
        gci_join_out_of_memory(c);
}

/* The table, and the required links behind it. false: out of memory. */
static bool join_make_wire(gci_control *c)
{
    size_t table;

    if (gci_table_gather(c->env, c->job, c->place.ranks, c->card, c->card_bytes, c->seen, &c->table) < 0)
        return false;
    c->table.modelled = c->modelled;
    c->wire_links = gci_mesh_links_text(c, NULL);
    if ((c->wire = gci_alloc(c->env, gci_table_encode(&c->table, NULL) + c->wire_links)) == NULL)
        return false;
    table = gci_table_encode(&c->table, c->wire);
    gci_mesh_links_text(c, (char *)c->wire + table);
    c->wire_bytes = c->wire_have = table + c->wire_links;
    return true;
}

/* The card that was made first. false: out of memory. */
static bool join_renew_own_card(gci_control *c)
{
    uint8_t wire[GCI_CARD_BYTES_MAX], *card;
    size_t bytes;

    c->me.gate = c->sys->gate(c->sys);      /* by now something has gone that way, perhaps */
    bytes = gci_card_encode(&c->me, wire);
    if ((card = gci_realloc(c->env, c->card[0], bytes)) == NULL)
        return false;
    memcpy(card, wire, bytes);
    c->card[0] = card;
    c->card_bytes[0] = bytes;
    return true;
}

static void join_share(gci_control *c)
{
    int *parent = gci_alloc(c->env, (size_t)c->place.ranks * sizeof *parent);

    if (!parent || !join_renew_own_card(c) || !join_make_wire(c) || gci_reach_open(c) < 0
        || gci_table_parents(c->env, &c->table, parent) < 0) {
        gci_free(c->env, parent);
        gci_join_out_of_memory(c);
        return;
    }
    for (int r = 1; r < c->place.ranks && c->phase == GCI_PHASE_JOIN; r++)
        if (parent[r] == 0)
            c->joined[r]->stream->table = true;
        else
            join_send_from(c, r, parent[r]);
    gci_free(c->env, parent);
    join_drop_cards(c);
    if (c->phase == GCI_PHASE_JOIN)
        c->phase = GCI_PHASE_LINK;
    c->dirty = true;
}

static void join_keep_card(gci_control *c, int rank, const uint8_t *card, size_t bytes)
{
    if ((c->card[rank] = gci_alloc(c->env, bytes)) == NULL) {
        gci_join_out_of_memory(c);
        return;
    }
    memcpy(c->card[rank], card, bytes);
    c->card_bytes[rank] = bytes;
    if (++c->cards == c->place.ranks)
        join_share(c);
}

static void join_card(gci_control *c, gci_conn *k, const uint8_t *body, size_t bytes)
{
    gci_full_card card;
    int64_t until;

    if (bytes < 4 || c->card[k->peer] || c->phase != GCI_PHASE_JOIN || gci_card_decode(&card, body + 4, bytes - 4) < 0) {
        gci_join_fail(c, GC_ERR_PROTOCOL, "rank %d sent a card that is none", k->peer);
        return;
    }
    until = c->now + (int64_t)gci_get32(body) * GCI_NS_PER_MS;
    if (until < c->start_deadline)
        c->start_deadline = until;
    join_keep_card(c, k->peer, body + 4, bytes - 4);
}

static void join_frame_at_root(gci_control *c, gci_conn *k, unsigned kind, const uint8_t *body, size_t bytes)
{
    char text[GCI_TEXT];

    if (c->phase >= GCI_PHASE_RUN)
        return;
    switch (kind) {
    case GCI_FRAME_CARD:
        join_card(c, k, body, bytes);
        break;
    case GCI_FRAME_NOTE:
        snprintf(c->note, sizeof c->note, "rank %d: %.200s", k->peer, gci_join_text(body, bytes, text));
        break;
    case GCI_FRAME_WANT:
        if (c->phase < GCI_PHASE_LINK || k->stream->table || k->stream->table_at)
            goto wrong;
        k->stream->table = true;
        break;
    case GCI_FRAME_FAIL:
        if (bytes < 4)
            goto wrong;
        gci_join_fail(c, join_code(body), "rank %d: %.220s", k->peer, gci_join_text(body + 4, bytes - 4, text));
        break;
    default:
    wrong:
        gci_join_fail(c, GC_ERR_PROTOCOL, "rank %d sent a frame of kind %u out of turn", k->peer, kind);
    }
}

/* ---- joiner --------------------------------------------------------------------------------------------------------- */

static bool join_is_own(const gci_control *c, const gci_addr *a)
{
    for (int i = 0; i < c->owns; i++)
        if (gci_addr_equal(&c->own[i].addr, a))
            return true;
    return false;
}

/* Behind all others stand the addresses that this host has, too: rank 0 is reached there only if it is on this host. */
static void join_own_last(const gci_control *c, gci_goal *goal, int n)
{
    for (int i = 0, others = 0; i < n; i++) {
        gci_goal g = goal[i];
        if (join_is_own(c, &g.addr) && !gci_addr_is_loopback(&g.addr))
            continue;
        memmove(goal + others + 1, goal + others, (size_t)(i - others) * sizeof *goal);
        goal[others++] = g;
    }
}

static int join_resolve(gci_control *c, gci_goal out[GCI_CANDIDATES_MAX])
{
    gci_addr addr[JOIN_NAMES_MAX];
    int n = 0;
    for (int i = 0; i < c->place.roots && n < GCI_CANDIDATES_MAX && c->now < c->start_deadline; i++) {
        int max = GCI_CANDIDATES_MAX - n < JOIN_NAMES_MAX ? GCI_CANDIDATES_MAX - n : JOIN_NAMES_MAX;
        int found = c->sys->resolve(c->sys, c->place.root[i].host, c->place.root[i].port, addr, max);
        if (found < 0)
            snprintf(c->note, sizeof c->note, "%s: %s", c->place.root[i].host, gci_strerrno(found));
        for (int k = 0; k < found && k < max; k++)
            out[n++] = (gci_goal){ .addr = addr[k] };
        c->now = c->sys->now(c->sys);       /* a name server that does not answer takes its time */
    }
    c->resolved_at = c->now;
    join_own_last(c, out, n);
    return n;
}

/* No address of the dial is being tried. Those that are still the same keep what was found there. */
static void join_resolve_again(gci_control *c, gci_dial *d)
{
    gci_goal goal[GCI_CANDIDATES_MAX];
    int n = join_resolve(c, goal);

    for (int i = 0; i < n; i++) {
        const gci_addr *now = &goal[i].addr, *before = &d->goal[i].addr;
        if (i >= d->n || !gci_addr_equal(now, before) || now->port != before->port)
            d->err[i] = 0;
        d->goal[i] = goal[i];
    }
    d->n = n ? n : d->n;
}

static void join_send_card(gci_control *c)
{
    uint8_t body[4 + GCI_CARD_BYTES_MAX];
    int64_t left = c->start_deadline - c->now;

    gci_put32(body, left > 0 ? left / GCI_NS_PER_MS < UINT32_MAX ? (uint32_t)(left / GCI_NS_PER_MS) : UINT32_MAX : 0);
    c->start_deadline += join_ms(JOIN_GRACE_MS);
    c->note[0] = 0;
    c->me.gate = c->sys->gate(c->sys);      /* by now something has gone that way, perhaps */
    if (!gci_conn_send(c, c->root, GCI_FRAME_CARD, 0, body, 4 + gci_card_encode(&c->me, body + 4)))
        gci_join_out_of_memory(c);
}

/* The fetch has failed: rank 0 sends the table itself. */
static void join_want(gci_control *c)
{
    gci_free(c->env, c->wire);
    c->wire = NULL;
    c->wire_bytes = c->wire_have = c->wire_links = 0;
    if (c->phase == GCI_PHASE_JOIN && c->root && !gci_conn_send(c, c->root, GCI_FRAME_WANT, 0, NULL, 0))
        gci_join_out_of_memory(c);
}

static void join_fetch(gci_control *c, const uint8_t *body, size_t bytes)
{
    gci_full_card card;
    uint32_t parent = bytes < 4 ? 0 : gci_get32(body);

    if (!parent || parent >= (uint32_t)c->place.ranks || parent == (uint32_t)c->place.rank || c->wire || c->fetch
        || gci_dial_find(c, GCI_PURPOSE_FETCH, (int)parent) || gci_card_decode(&card, body + 4, bytes - 4) < 0) {
        gci_join_fail(c, GC_ERR_PROTOCOL, "rank 0 named no rank to fetch the table from");
        return;
    }
    if (!gci_reach_fetch(c, (int)parent, &card, c->now + join_ms(JOIN_FETCH_MS)))
        join_want(c);
}

static void join_table_complete(gci_control *c)
{
    size_t bytes = c->wire_bytes - c->wire_links;
    int err = gci_table_decode(c->env, c->wire, bytes, &c->table);

    gci_conn_close(c, c->fetch);
    c->fetch = NULL;
    if (err >= 0 && (c->table.ranks != c->place.ranks || c->table.job != c->job
                     || c->table.card[c->place.rank].port != c->me.port))
        err = GC_ERR_PROTOCOL;
    if (err >= 0)
        err = gci_reach_open(c);
    if (err >= 0 && c->wire_links)
        err = gci_mesh_take_links(c, (const char *)c->wire + bytes, c->wire_links);
    if (err >= 0 && !c->wire_links && c->links_missing) {
        gci_join_fail(c, GC_ERR_CONFIG, "rank %d: the file that GRIDCOMM_LINKS names cannot be opened, and rank 0 has none",
                      c->place.rank);
        return;
    }
    if (err < 0) {
        gci_table_free(c->env, &c->table);
        gci_join_fail(c, err, "rank %d got a table of cards that %s", c->place.rank,
                      err == GC_ERR_NOMEM ? "does not fit into memory" : "is none");
        return;
    }
    c->phase = GCI_PHASE_LINK;
    c->dirty = true;
}

static bool join_table_head(gci_control *c, const uint8_t *body, size_t bytes)
{
    size_t all = bytes == 8 ? gci_get32(body) : 0, links = bytes == 8 ? gci_get32(body + 4) : 0;

    if (c->wire || links >= all || links > gci_mesh_links_max() || all - links > gci_table_bytes_max(c->place.ranks))
        return false;
    c->wire_bytes = all;
    c->wire_links = links;
    c->wire_have = 0;
    if ((c->wire = gci_alloc(c->env, c->wire_bytes)) == NULL)
        gci_join_out_of_memory(c);
    return true;
}

/* TABLE and PART, from rank 0 or from the parent; anything else than the bytes announced is an error. */
static bool join_table(gci_control *c, unsigned kind, const uint8_t *body, size_t bytes)
{
    if (c->phase != GCI_PHASE_JOIN)
        return false;
    if (kind == GCI_FRAME_TABLE)
        return join_table_head(c, body, bytes);
    if (!c->wire || bytes > c->wire_bytes - c->wire_have)
        return false;
    memcpy(c->wire + c->wire_have, body, bytes);
    c->wire_have += bytes;
    if (c->wire_have == c->wire_bytes)
        join_table_complete(c);
    return true;
}

static void join_frame_from_root(gci_control *c, unsigned kind, const uint8_t *body, size_t bytes)
{
    char text[GCI_TEXT];

    if (kind == GCI_FRAME_FAIL && bytes >= 4) {
        int code = join_code(body);
        gci_conn_close(c, c->root);         /* first: it needs no FAIL back */
        c->root = NULL;
        gci_join_fail(c, code, "%s", gci_join_text(body + 4, bytes - 4, text));
    } else if (kind == GCI_FRAME_FROM && c->phase == GCI_PHASE_JOIN) {
        join_fetch(c, body, bytes);
    } else if ((kind != GCI_FRAME_TABLE && kind != GCI_FRAME_PART) || c->fetch || !join_table(c, kind, body, bytes)) {
        gci_join_fail(c, GC_ERR_PROTOCOL, "rank 0 sent a frame of kind %u out of turn", kind);
    }
}

/* ---- what dial.c tells, by way of control.c --------------------------------------------------------------------------- */

GCI enum gci_refusal gci_join_judge(gci_control *c, gci_conn *k)
{
    if (k->purpose == GCI_PURPOSE_FETCH)
        return c->job && c->phase < GCI_PHASE_RUN ? GCI_REFUSE_NOT : GCI_REFUSE_STARTED;
    if (c->place.rank > 0)
        return GCI_REFUSE_TO;
    if (c->joined[k->peer] || c->card[k->peer])
        return GCI_REFUSE_TAKEN;
    return c->phase == GCI_PHASE_JOIN ? GCI_REFUSE_NOT : GCI_REFUSE_STARTED;
}

GCI void gci_join_proven(gci_control *c, gci_conn *k)
{
    if (k->purpose == GCI_PURPOSE_JOIN && k->incoming) {
        c->joined[k->peer] = k;
        c->seen[k->peer] = k->addr;
        if (c->note_rank == k->peer)
            c->note[0] = 0;             /* it has the key: of several connections it had chosen this one */
    } else if (k->purpose == GCI_PURPOSE_JOIN) {
        c->root = k;
        if (!gci_addr_is_loopback(&k->addr))    /* a tunnel of the launcher's, or rank 0's own host */
            c->root_at = k->addr;
        c->job = k->shake.job;
        join_send_card(c);
    } else if (k->incoming) {
        k->stream->table = true;            /* sent as soon as it is here */
        k->deadline = c->start_deadline;
    } else {
        c->fetch = k;
        k->deadline = c->now + join_ms(JOIN_FETCH_MS);
    }
}

/* What an answer means that will be the same next time, if it was rank 0 that gave it; else GC_OK. */
static int join_answer(int err)
{
    static const int code[GCI_REFUSALS] = {
        [GCI_REFUSE_VERSION] = GC_ERR_PROTOCOL, [GCI_REFUSE_KEY] = GC_ERR_AUTH, [GCI_REFUSE_RANKS] = GC_ERR_CONFIG,
        [GCI_REFUSE_FROM] = GC_ERR_CONFIG, [GCI_REFUSE_TAKEN] = GC_ERR_CONFIG, [GCI_REFUSE_STARTED] = GC_ERR_CONFIG
    };
    return err > 0 && err < GCI_REFUSALS ? code[err] : GC_OK;
}

/* May rank 0 still come to this address? */
static bool join_in_doubt(int err)
{
    return err == 0 || err == GCI_REFUSE_BUSY || err == GCI_REFUSE_LEAVING
           || (err < 0 && err != -ENETUNREACH && err != -EADDRNOTAVAIL && err != -EAFNOSUPPORT);
}

/* Has rank 0 refused us, so that waiting does not help? What stands under a MAC counts before what anybody could have said.
 * But it may have been somebody else: several hosts have that address, or a former job had that port. So as long as rank 0 may
 * come to another of its addresses, it gets some time to do so. */
static bool join_refused(gci_control *c, const gci_dial *d, bool last)
{
    bool doubt = false;
    int code = GC_OK;
    char text[GCI_TEXT];

    for (int i = 0; i < d->n; i++) {
        int answer = join_answer(d->err[i]);
        doubt = doubt || join_in_doubt(d->err[i]);
        if (answer && (!code || code == GC_ERR_AUTH || code == GC_ERR_PROTOCOL))
            code = answer;
    }
    if (!code || (doubt && !last && c->now < d->begun + join_ms(JOIN_DOUBT_MS)))
        return false;
    gci_join_fail(c, code, "rank 0 at %.230s", gci_dial_text(c, d, text));
    return true;
}

/* Nobody proved to be rank 0, or the rank to fetch from. */
GCI void gci_join_round(gci_control *c, gci_dial *d)
{
    if (d->purpose == GCI_PURPOSE_FETCH) {      /* every address has failed, and time is dear: rank 0 is asked at once */
        gci_dial_end(c, d);
        join_want(c);
    }
    if (d->purpose == GCI_PURPOSE_JOIN && !join_refused(c, d, false)
        && (!d->n || c->now >= c->resolved_at + join_ms(JOIN_RESOLVE_MS)))
        join_resolve_again(c, d);
}

GCI void gci_join_expired(gci_control *c, gci_dial *d)
{
    char text[GCI_TEXT];

    if (d->purpose == GCI_PURPOSE_FETCH)
        join_want(c);
    else if (join_refused(c, d, true))
        return;
    else if (d->n)
        gci_join_fail(c, GC_ERR_TIMEOUT, "rank 0 was not reached within %g s: %.200s", c->start_seconds,
                      gci_dial_text(c, d, text));
    else
        gci_join_fail(c, GC_ERR_TIMEOUT, "rank 0 was not found within %g s: %.150s", c->start_seconds, c->note);
}

GCI void gci_join_frame(gci_control *c, gci_conn *k, unsigned kind, unsigned flag, const uint8_t *body, size_t bytes)
{
    (void)flag;
    if (k->incoming && k->purpose == GCI_PURPOSE_JOIN)
        join_frame_at_root(c, k, kind, body, bytes);
    else if (k == c->root)
        join_frame_from_root(c, kind, body, bytes);
    else if (k == c->fetch) {
        k->deadline = c->now + join_ms(JOIN_FETCH_MS);
        if ((kind == GCI_FRAME_TABLE || kind == GCI_FRAME_PART) && join_table(c, kind, body, bytes))
            return;
        gci_conn_close(c, k);
        c->fetch = NULL;
        join_want(c);
    } else {
        gci_conn_close(c, k);               /* who fetches has nothing to say */
    }
}

/* The next pieces of the table, as many as fit. */
GCI void gci_join_refill(gci_control *c, gci_conn *k)
{
    gci_stream *s = k->stream;
    uint8_t head[8];

    if (!s->table || !c->wire || c->wire_have < c->wire_bytes || !c->table.ranks)
        return;
    gci_put32(head, (uint32_t)c->wire_bytes);
    gci_put32(head + 4, (uint32_t)c->wire_links);
    if (s->table_at == 0)
        (void)gci_conn_send(c, k, GCI_FRAME_TABLE, 0, head, sizeof head);       /* the buffer is empty */
    while (s->table_at < c->wire_bytes) {
        size_t bytes = gci_min(GCI_FRAME_MAX, c->wire_bytes - s->table_at);
        if (!gci_conn_send(c, k, GCI_FRAME_PART, 0, c->wire + s->table_at, bytes))
            return;
        s->table_at += bytes;
    }
    s->table = false;
}

GCI void gci_join_closed(gci_control *c, gci_conn *k, int err)
{
    char address[GCI_ADDR_TEXT];
    const char *colon = err ? ": " : "", *why = err ? gci_strerrno(err) : "";

    gci_addr_text(&k->addr, address);
    if (k->incoming && k->purpose == GCI_PURPOSE_JOIN) {
        c->joined[k->peer] = NULL;
        gci_join_fail(c, GC_ERR_PEER, "rank %d (%s) died during start%s%s", k->peer, address, colon, why);
    } else if (k == c->root) {
        c->root = NULL;
        gci_join_fail(c, GC_ERR_PEER, "rank 0 (%s) died during start%s%s", address, colon, why);
    } else if (k == c->fetch) {
        c->fetch = NULL;
        join_want(c);
    }
}

GCI int64_t gci_join_timers(gci_control *c)
{
    if (c->phase < GCI_PHASE_RUN && c->now >= c->start_deadline)
        join_timeout(c);
    return c->phase < GCI_PHASE_RUN ? c->start_deadline : GCI_FOREVER;
}

/* What others know rank 0 by, if that is not its own: a NAT that passes the port on to it. A name is looked up only if no gate
 * says where this is, because that may take a while, in which nobody can join. */
static void join_see_self(gci_control *c)
{
    gci_addr addr[JOIN_NAMES_MAX] = { { .family = 0 } };
    int64_t until = c->now + join_ms(JOIN_RESOLVE_MS);

    for (int i = 0; i < c->place.roots && !c->seen[0].family; i++) {
        const char *host = c->place.root[i].host;
        int found = gci_addr_parse(host, &addr[0]) == GC_OK;
        if (!found && !c->me.gate && c->now < until) {
            found = c->sys->resolve(c->sys, host, c->place.root[i].port, addr, JOIN_NAMES_MAX);
            c->now = c->sys->now(c->sys);
        }
        for (int k = 0; k < found && k < JOIN_NAMES_MAX; k++)
            if (gci_addr_class(&addr[k]) == GCI_CLASS_PUBLIC && !join_is_own(c, &addr[k]))
                c->seen[0] = addr[k];
    }
}

GCI void gci_join_begin(gci_control *c)
{
    gci_goal goal[GCI_CANDIDATES_MAX];
    uint8_t card[GCI_CARD_BYTES_MAX];
    int err;

    if (c->place.rank > 0) {
        int n = join_resolve(c, goal);
        if (!gci_dial_new(c, GCI_PURPOSE_JOIN, 0, goal, n, c->start_deadline))
            gci_join_out_of_memory(c);
        return;
    }
    if ((err = c->sys->random(c->sys, &c->job, sizeof c->job)) < 0) {
        gci_join_fail(c, GC_ERR_SYSTEM, "no random number for the job: %s", gci_strerrno(err));
        return;
    }
    c->job |= 1;                            /* 0 means: not known */
    join_see_self(c);
    join_keep_card(c, 0, card, gci_card_encode(&c->me, card));
}
