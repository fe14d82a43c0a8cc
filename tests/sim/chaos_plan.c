/* chaos_plan.c: what happens in the random job of a seed: who, where, which operations, which events.
 * SPDX-License-Identifier: MIT
 *
 * Each part has random numbers of its own, so that leaving out operations or events changes nothing else.
 */
#include "chaos.h"

#include "simnet.h"

#include <stdarg.h>
#include <stdlib.h>

#define CHAOS_MS INT64_C(1000000)

uint64_t chaos_hash(uint64_t seed, uint64_t a, uint64_t b, uint64_t c)
{
    uint64_t state = seed ^ a << 48 ^ b << 24 ^ c;
    state ^= gct_random(&state);
    return gct_random(&state);
}

static uint64_t chaos_draw(uint64_t *state, uint64_t below) { return gct_random(state) % below; }
static bool chaos_one_in(uint64_t *state, uint64_t n) { return chaos_draw(state, n) == 0; }

static void __attribute__((format(printf, 2, 3))) chaos_tell(chaos_plan *p, const char *format, ...)
{
    size_t at = strlen(p->story);
    va_list list;
    va_start(list, format);
    vsnprintf(p->story + at, sizeof p->story - at, format, list);
    va_end(list);
}

/* ---- where ranks stand ---- */

static bool chaos_has(const gct_place *place, char family) { return strchr(place->families ? place->families : "4", family); }

static bool chaos_enters(const gct_place *from, const gct_place *to)
{
    bool four = chaos_has(from, '4') && chaos_has(to, '4') && !to->nat, six = chaos_has(from, '6') && chaos_has(to, '6');
    return (four || six) && to->wall == GCT_OPEN;
}

static void chaos_plan_places(chaos_plan *p, uint64_t state)
{
    static const char *const families[] = { "4", "4", "46", "6" };
    p->ranks = 2 + (int)chaos_draw(&state, chaos_one_in(&state, 3) ? CHAOS_RANKS - 1 : 7);
    p->per_host = chaos_one_in(&state, 3) ? 2 + (int)chaos_draw(&state, 2) : 1;
    p->place_count =
        chaos_one_in(&state, 3) ? 1 : 1 + (int)chaos_draw(&state, (uint64_t)(p->ranks < CHAOS_PLACES ? p->ranks : CHAOS_PLACES));
    bool mixed = chaos_one_in(&state, 4), walls = chaos_one_in(&state, 2);
    for (int i = 0, left = p->ranks; i < p->place_count; i++) {
        int others = p->place_count - 1 - i;
        gct_place *place = &p->places[i];
        place->ranks = others ? 1 + (int)chaos_draw(&state, (uint64_t)(left - others)) : left;
        left -= place->ranks;
        place->families = !mixed ? "4" : i ? families[chaos_draw(&state, GCI_COUNT(families))] : "46";
        uint64_t kind = chaos_draw(&state, 4);
        if (i && walls) {
            place->nat = kind == 1 && chaos_has(place, '4');
            place->nat_rst = chaos_one_in(&state, 2);
            place->wall = kind == 2 ? chaos_one_in(&state, 2) ? GCT_DROP : GCT_REFUSE : GCT_OPEN;
        }
    }
    for (int i = 0, rank = 0, host = -1; i < p->place_count; i++) {
        p->cards |= p->places[i].cards = chaos_hash(p->seed, 7, (uint64_t)i, 0) % 3 == 0;
        chaos_tell(p, " %d%s%s%s%s", p->places[i].ranks, mixed ? p->places[i].families : "", p->places[i].nat ? "nat" : "",
                   p->places[i].wall ? "wall" : "", p->places[i].cards ? "cards" : "");
        for (int n = 0; n < p->places[i].ranks; n++, rank++) {
            host += n % p->per_host == 0;
            p->place[rank] = i;
            p->host[rank] = host;
        }
    }
    for (int a = 0; a < p->ranks; a++) {
        for (int b = 0; b < p->ranks; b++) {
            const gct_place *x = &p->places[p->place[a]], *y = &p->places[p->place[b]];
            p->dials[a][b] = x == y || chaos_enters(x, y);
        }
    }
}

static void chaos_plan_options(chaos_plan *p, uint64_t state)
{
    static const char *const routing[] = { NULL, NULL, "updown-bfs", "ordered" };
    static const char *const progress[] = { NULL, NULL, NULL, "sleep", "sleep", "thread", "thread", "poll" };
    p->peer_timeout = 5 + 5 * (double)chaos_draw(&state, 3);
    p->direct = !chaos_one_in(&state, 3);
    p->credits = chaos_one_in(&state, 3) ? 1 + (int)chaos_draw(&state, 4) : 0;
    p->queue = chaos_one_in(&state, 3) ? 1 + (int)chaos_draw(&state, 3) : 0;
    p->streams = chaos_one_in(&state, 3) ? 2 + (int)chaos_draw(&state, 2) : 0;
    p->eager_budget = chaos_one_in(&state, 3) ? 65536 : 0;
    p->routing = routing[chaos_draw(&state, GCI_COUNT(routing))];
    p->progress = progress[chaos_draw(&state, GCI_COUNT(progress))];
    p->order = chaos_one_in(&state, 8) ? "rank" : NULL;
    p->pause = (int64_t)chaos_draw(&state, 400) * CHAOS_MS;
    chaos_tell(p, "; %d a host, direct %d, credits %d, queue %d, streams %d, %s, %s, timeout %g s;", p->per_host, p->direct, p->credits,
               p->queue, p->streams, p->routing ? p->routing : "-", p->progress ? p->progress : "-", p->peer_timeout);
}

/* ---- communicators ---- */

static void chaos_shuffle(int *v, int n, uint64_t *state)
{
    for (int i = n - 1; i > 0; i--) {
        int at = (int)chaos_draw(state, (uint64_t)i + 1), kept = v[i];
        v[i] = v[at];
        v[at] = kept;
    }
}

/* One more, or two of a split. */
static void chaos_plan_comm(chaos_plan *p, int made, uint64_t *state)
{
    int parent = chaos_one_in(state, 3) ? (int)chaos_draw(state, (uint64_t)p->comms) : 0, order[CHAOS_RANKS];
    enum chaos_how how = (enum chaos_how)(CHAOS_DUP + chaos_draw(state, 3));
    const chaos_comm *of = &p->comm[parent];
    if (p->comms + 2 > CHAOS_COMMS || of->made >= made || of->freed <= made || !of->size) {
        return;
    }
    how = how == CHAOS_SPLIT_OTHERS ? CHAOS_CREATE : how;
    memcpy(order, of->ranks, sizeof order);
    if (how != CHAOS_DUP) {
        chaos_shuffle(order, of->size, state);
    }
    int n = how == CHAOS_DUP ? of->size : 1 + (int)chaos_draw(state, (uint64_t)of->size),
        freed = made + 1 + (int)chaos_draw(state, CHAOS_ROUNDS);
    for (int half = 0; half < (how == CHAOS_SPLIT ? 2 : 1); half++) {
        chaos_comm *c = &p->comm[p->comms++];
        *c = (chaos_comm){ .how = half ? CHAOS_SPLIT_OTHERS : how, .parent = parent, .made = made, .freed = freed, .any_round = -1 };
        c->size = half ? of->size - n : n;
        memcpy(c->ranks, half ? order + n : order, (size_t)c->size * sizeof *c->ranks);
        if (chaos_one_in(state, 2)) {
            c->any_round = made;
        }
    }
}

static void chaos_plan_comms(chaos_plan *p, uint64_t state)
{
    p->comm[p->comms++] = (chaos_comm){ .freed = CHAOS_ROUNDS + 1, .made = -1, .any_round = -1, .size = p->ranks };
    for (int i = 0; i < p->ranks; i++) {
        p->comm[0].ranks[i] = i;
    }
    for (int round = 0; round < p->rounds; round++) {
        for (uint64_t n = chaos_draw(&state, 3); n; n--) {
            chaos_plan_comm(p, round, &state);
        }
    }
}

/* ---- messages and collectives ---- */

enum chaos_mode chaos_mode(const chaos_plan *p, int comm, int round, int dest)
{
    return p->comm[comm].any_round >= 0 ? CHAOS_ANY
                                        : (enum chaos_mode)(chaos_hash(p->seed, (uint64_t)(comm * 64 + dest), (uint64_t)round, 11) % 3);
}

bool chaos_early(const chaos_plan *p, int comm, int round, int dest)
{
    return chaos_hash(p->seed, (uint64_t)(comm * 64 + dest), (uint64_t)round, 12) % 3 > 0;
}

static size_t chaos_size(uint64_t *state)
{
    static const size_t edge[] = { 0, 1, 1024, 1025, 4096, 15000, 15880, 16384, 65535, 65536, 65537 };
    uint64_t kind = chaos_draw(state, 100);
    return kind < 8 ? edge[chaos_draw(state, GCI_COUNT(edge))] : kind < 60 ? chaos_draw(state, 100) : kind < 85 ? chaos_draw(state, 3000) :
           kind < 97 ? chaos_draw(state, 30000) : chaos_draw(state, 200000);
}

static void chaos_plan_message(chaos_plan *p, int comm, int round, uint64_t *state)
{
    const chaos_comm *c = &p->comm[comm];
    chaos_message m = { .comm = comm, .round = round, .source = (int)chaos_draw(state, (uint64_t)c->size),
                        .dest = (int)chaos_draw(state, (uint64_t)c->size), .bytes = chaos_size(state) };
    if ((p->streams || p->cards) && chaos_one_in(state, p->cards ? 6 : 12)) {
        m.bytes = 300000 + chaos_draw(state, 600000);       /* enough for strands, and more */
    }
    enum chaos_mode mode = chaos_mode(p, comm, round, m.dest);
    uint64_t how = chaos_draw(state, 10), special = chaos_draw(state, 8);
    /* Who blocks in a send must find a receive that is posted whatever the receiver does next, and that no death of others ends. */
    bool may_block = chaos_early(p, comm, round, m.dest) && (mode == CHAOS_EXACT || mode == CHAOS_ANY_TAG) && m.source != m.dest;
    m.how = how < 5 || (how > 6 && !may_block) ? CHAOS_ISEND : how < 7 ? CHAOS_ISSEND : how < 9 ? CHAOS_SEND : CHAOS_SSEND;
    m.tag = round * CHAOS_TAGS + (int)chaos_draw(state, mode == CHAOS_EXACT ? 3 : 2);
    if (mode == CHAOS_EXACT && chaos_early(p, comm, round, m.dest) && special < 3) {
        m.tag = round * CHAOS_TAGS + 16 + p->messages;
        m.alone = true;
        m.late = special == 0;
        m.how = special == 1 && may_block ? CHAOS_SEND_CANCELLED : m.how;
    }
    for (int i = 0; i < p->messages; i++) {
        const chaos_message *o = &p->message[i];
        m.number += o->comm == comm && o->source == m.source && o->dest == m.dest && o->tag == m.tag;
    }
    p->message[p->messages++] = m;
}

static void chaos_plan_coll(chaos_plan *p, int comm, int round, uint64_t *state)
{
    chaos_coll *c = &p->coll[p->colls];
    size_t bytes = chaos_size(state), most = 200000 / (size_t)(p->comm[comm].size * p->comm[comm].size) + 8;
    *c = (chaos_coll){ .comm = comm, .round = round, .id = p->colls++, .kind = (enum chaos_kind)chaos_draw(state, CHAOS_KINDS),
                       .root = (int)chaos_draw(state, (uint64_t)p->comm[comm].size), .blocks = chaos_one_in(state, 2) };
    for (int i = 0; i < p->comm[comm].size; i++) {          /* a ring's messages are not for receives of any tag */
        enum chaos_mode mode = chaos_mode(p, comm, round, i);
        c->kind = c->kind == CHAOS_RING && (mode == CHAOS_ANY || mode == CHAOS_ANY_TAG) ? CHAOS_ALLREDUCE : c->kind;
    }
    c->bytes = c->kind == CHAOS_BCAST || bytes <= most ? bytes : bytes % most;
    c->late = !c->blocks && chaos_one_in(state, 3);
    c->blocks |= c->kind == CHAOS_RING;
}

static void chaos_plan_operations(chaos_plan *p, uint64_t seed, const chaos_limits *limits)
{
    for (int round = 0; round < p->rounds; round++) {
        for (int comm = 0; comm < p->comms; comm++) {
            const chaos_comm *c = &p->comm[comm];
            uint64_t state = chaos_hash(seed, (uint64_t)round, (uint64_t)comm, 21);
            if (c->made > round || c->freed <= round || !c->size) {
                continue;
            }
            uint64_t messages = c->any_round >= 0 && c->any_round != round ? 0 : chaos_draw(&state, (uint64_t)c->size * (comm ? 2 : 4));
            uint64_t colls = chaos_draw(&state, comm ? 3 : 5);
            while (messages-- && p->messages < CHAOS_MESSAGES) {
                chaos_plan_message(p, comm, round, &state);
            }
            while (colls-- && p->colls < CHAOS_COLLS) {
                chaos_plan_coll(p, comm, round, &state);
            }
        }
    }
    if (limits->operations && p->messages > limits->operations) {
        p->messages = limits->operations;
    }
    if (limits->operations && p->colls > limits->operations) {
        p->colls = limits->operations;
    }
}

/* ---- events ---- */

static gct_event *chaos_event(chaos_plan *p, int64_t at, enum gct_event_kind what, int a, int b, bool severe)
{
    if (p->events == CHAOS_EVENTS) {
        return NULL;
    }
    int i = p->events++;
    for (; i && p->event[i - 1].at > at; i--) {
        p->event[i] = p->event[i - 1];
        p->severe[i] = p->severe[i - 1];
    }
    p->event[i] = (gct_event){ .at = at, .what = what, .a = a, .b = b };
    p->severe[i] = severe;
    return &p->event[i];
}

/* How long something is away: within peer_timeout, or beyond it by enough to be noticed. */
static int64_t chaos_while(chaos_plan *p, uint64_t *state, bool *severe)
{
    int64_t timeout = (int64_t)(p->peer_timeout * 1e9);
    *severe = chaos_one_in(state, 3);
    return *severe ? timeout + (int64_t)chaos_draw(state, (uint64_t)timeout) : 1 + (int64_t)chaos_draw(state, (uint64_t)timeout * 3 / 10);
}

/* A host from all others, two hosts, or two sites; in both directions or one. Returns when it is over. */
static int64_t chaos_plan_cut(chaos_plan *p, int64_t at, uint64_t *state)
{
    bool severe;
    int64_t until = at + chaos_while(p, state, &severe);
    uint64_t kind = chaos_draw(state, 3);
    int way = (int)chaos_draw(state, 3), a = (int)chaos_draw(state, (uint64_t)p->ranks), b = (int)chaos_draw(state, (uint64_t)p->ranks);
    p->away += until - at;
    p->deaths |= severe;
    for (int i = 0; i < p->ranks; i++) {
        for (int k = 0; k < p->ranks; k++) {
            bool parts = kind == 0 ? p->host[i] == p->host[a] : kind == 1 ? p->host[i] == p->host[a] && p->host[k] == p->host[b] :
                         p->place[i] == p->place[a] && p->place[k] == p->place[b];
            bool first = (!i || p->host[i] != p->host[i - 1]) && (!k || p->host[k] != p->host[k - 1]);
            if (!parts || !first || p->host[i] == p->host[k] || (kind == 2 && p->place[a] == p->place[b])) {
                continue;
            }
            chaos_event(p, at, way == 0 ? GCT_CUT : GCT_CUT_WAY, way == 2 ? k : i, way == 2 ? i : k, severe);
            chaos_event(p, until, GCT_MEND, i, k, severe);
        }
    }
    chaos_tell(p, " %s %d%s%d cut %.3f..%.3f s%s;",
               kind == 0   ? "host"
               : kind == 1 ? "hosts"
                           : "sites",
               a,
               way == 0   ? "-"
               : way == 1 ? ">"
                          : "<",
               kind ? b : -1, (double)at / 1e9, (double)until / 1e9, severe ? "!" : "");
    return until;
}

static void chaos_plan_death(chaos_plan *p, int64_t at, uint64_t *state)
{
    bool host = chaos_one_in(state, 3);
    int victim = (int)chaos_draw(state, (uint64_t)p->ranks);
    chaos_event(p, at, host ? GCT_KILL_HOST : GCT_KILL, victim, -1, true);
    p->deaths = true;
    chaos_tell(p, " %s %d dies %.3f s;", host ? "host of" : "rank", victim, (double)at / 1e9);
}

static void chaos_plan_stop(chaos_plan *p, int64_t at, uint64_t *state)
{
    bool severe;
    int64_t until = at + chaos_while(p, state, &severe);
    int rank = (int)chaos_draw(state, (uint64_t)p->ranks);
    p->away += until - at;
    chaos_event(p, at, GCT_STOP, rank, -1, false);
    chaos_event(p, until, GCT_CONTINUE, rank, -1, false);
    chaos_tell(p, " rank %d stops %.3f..%.3f s;", rank, (double)at / 1e9, (double)until / 1e9);
}

static void chaos_plan_middlebox(chaos_plan *p, int64_t at, uint64_t *state)
{
    int a = (int)chaos_draw(state, (uint64_t)p->ranks), b = (int)chaos_draw(state, (uint64_t)p->ranks);
    if (p->places[p->place[a]].nat && chaos_one_in(state, 2)) {
        chaos_event(p, at, GCT_FORGET, a, -1, false);
        p->away += (int64_t)(p->peer_timeout * 1e9);
    } else {
        /* Within a host nothing resets connections, and what is lost there may be lost. */
        bool all = chaos_one_in(state, 2);
        if (all ? p->per_host == 1 : p->host[a] != p->host[b]) {
            chaos_event(p, at, GCT_RESET, a, all ? -1 : b, false);
        }
    }
    chaos_tell(p, " middlebox at %d %.3f s;", a, (double)at / 1e9);
}

static void chaos_plan_events(chaos_plan *p, uint64_t state)
{
    int n = (int)chaos_draw(&state, 5);
    int64_t uncut = 0, together = -1;
    for (int i = 0; i < n; i++) {
        /* Much happens in the first moments, and what depends on the order of two things wants them close together. */
        int64_t at = 1 + (int64_t)chaos_draw(&state, chaos_one_in(&state, 2)   ? 60 * CHAOS_MS
                                                     : chaos_one_in(&state, 2) ? 400 * CHAOS_MS
                                                                               : 2 * GCI_SECOND);
        at = together >= 0 && chaos_one_in(&state, 3) ? together + (int64_t)chaos_draw(&state, 3 * CHAOS_MS) : at;
        together = at;
        switch (chaos_draw(&state, 6)) {
        case 0: case 1: chaos_plan_death(p, at, &state); break;
        case 2: case 3: uncut = chaos_plan_cut(p, at > uncut ? at : uncut + 1, &state); break;
        case 4: chaos_plan_stop(p, at, &state); break;
        case 5: chaos_plan_middlebox(p, at, &state); break;
        }
    }
}

/* A network card of those that are not all a host has: its connections fall silent, and there is another way. */
static void chaos_plan_card(chaos_plan *p, uint64_t state)
{
    bool beyond;
    int rank = (int)chaos_draw(&state, (uint64_t)p->ranks);
    int64_t at = 1 + (int64_t)chaos_draw(&state, 400 * CHAOS_MS), until = at + chaos_while(p, &state, &beyond);
    if (!p->places[p->place[rank]].cards || chaos_one_in(&state, 3)) {
        return;
    }
    p->away += until - at;
    chaos_event(p, at, GCT_CUT_CARD, rank, -1, false);
    chaos_event(p, until, GCT_MEND_CARD, rank, -1, false);
    chaos_tell(p, " card of %d cut %.3f..%.3f s;", rank, (double)at / 1e9, (double)until / 1e9);
}

/* Connections beside a pair's first one are reset, and nothing else. */
static void chaos_plan_strands(chaos_plan *p, uint64_t state)
{
    for (uint64_t n = chaos_draw(&state, 3); n && (p->streams || p->cards); n--) {
        int rank = (int)chaos_draw(&state, (uint64_t)p->ranks);
        int64_t at = 1 + (int64_t)chaos_draw(&state, 400 * CHAOS_MS);
        gct_event *e = p->per_host == 1 ? chaos_event(p, at, GCT_RESET, rank, -1, false) : NULL;
        if (e) {
            e->purpose = GCI_PURPOSE_STRAND;
            chaos_tell(p, " strands of %d reset %.3f s;", rank, (double)at / 1e9);
        }
    }
}

/* What is a cause only if something else happens, too. When a link is down, others ask their kernels for an answer within 0.7 s.
 * And one that is stopped connects to nobody again, nor answers who has to. */
static void chaos_plan_severe(chaos_plan *p)
{
    bool breaks = false, lethal = false;
    for (int i = 0; i < p->events; i++) {
        enum gct_event_kind what = p->event[i].what;
        breaks |= (what == GCT_RESET && !p->event[i].purpose) || what == GCT_FORGET || what == GCT_CUT || what == GCT_CUT_WAY || what == GCT_CUT_CARD;
        lethal |= what == GCT_KILL || what == GCT_KILL_HOST || p->severe[i];
    }
    for (int i = 0; i < p->events; i++) {
        const gct_event *e = &p->event[i];
        bool card = e->what == GCT_CUT_CARD, stop = e->what == GCT_STOP, cut = e->what == GCT_CUT || e->what == GCT_CUT_WAY || card;
        for (int k = i + 1; k < p->events && (cut || stop); k++) {
            const gct_event *end = &p->event[k];
            if (end->what == (card ? GCT_MEND_CARD : cut ? GCT_MEND : GCT_CONTINUE) &&
                ((end->a == e->a && end->b == e->b) || (cut && end->a == e->b && end->b == e->a))) {
                int64_t lasts = end->at - e->at;
                p->severe[i] |= cut ? lethal && lasts > 500 * CHAOS_MS : breaks && lasts > (int64_t)(p->peer_timeout * 3e8);
                p->deaths |= p->severe[i];
                break;
            }
        }
    }
}

void chaos_plan_make(chaos_plan *p, uint64_t seed, const chaos_limits *limits)
{
    *p = (chaos_plan){ .seed = seed, .abort_rank = -1, .abort_round = -1 };
    chaos_plan_places(p, chaos_hash(seed, 1, 0, 0));
    chaos_plan_options(p, chaos_hash(seed, 2, 0, 0));
    p->rounds = 2 + (int)(chaos_hash(seed, 3, 0, 0) % (CHAOS_ROUNDS - 2));
    if (limits->rounds && limits->rounds < p->rounds) {
        p->rounds = limits->rounds;
    }
    chaos_plan_comms(p, chaos_hash(seed, 4, 0, 0));
    chaos_plan_operations(p, seed, limits);
    chaos_plan_events(p, chaos_hash(seed, 5, 0, 0));
    chaos_plan_card(p, chaos_hash(seed, 9, 0, 0));
    chaos_plan_strands(p, chaos_hash(seed, 10, 0, 0));
    chaos_plan_severe(p);
    p->shrinks = chaos_hash(seed, 8, 0, 0) % (p->deaths ? 4 : 8) > (p->deaths ? 0 : 6);
    if (chaos_hash(seed, 6, 0, 0) % 16 == 0) {
        p->abort_rank = (int)(chaos_hash(seed, 6, 1, 0) % (uint64_t)p->ranks);
        p->abort_round = (int)(chaos_hash(seed, 6, 2, 0) % (uint64_t)p->rounds);
        chaos_tell(p, " rank %d aborts in round %d;", p->abort_rank, p->abort_round);
    }
    if (limits->events && limits->events < p->events) {
        p->events = limits->events;
    }
}
