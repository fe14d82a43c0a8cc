/* test_packet.c: packets as bytes, and attacks by a peer that has proven itself: what it says must close its link or be
 * ignored, and leak nothing. The peer is played packet by packet on a world without a network (tests/fuzz/peer.h).
 * SPDX-License-Identifier: MIT
 */
#include "tests/fuzz/peer.h"

#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

enum { BYTES = 1000, LONG = 200000, ROOM = 3 << 20, CREDITS = 4 };

static uint8_t buffer[ROOM];

/* ---- bytes ---------------------------------------------------------------------------------------------------- */

static void assert_same(const gci_packet *a, const gci_packet *b)
{
    assert_int_equal(a->type, b->type);
    assert_int_equal(a->flags, b->flags);
    assert_int_equal(a->epoch, b->epoch);
    assert_int_equal(a->source, b->source);
    assert_int_equal(a->dest, b->dest);
    assert_int_equal(a->length, b->length);
    assert_int_equal(a->ack, b->ack);
    assert_int_equal(a->credit, b->credit);
    assert_int_equal(a->window, b->window);
    assert_int_equal(a->seq, b->seq);
    assert_int_equal(a->context, b->context);
    assert_int_equal(a->tag, b->tag);
    assert_int_equal(a->signature, b->signature);
    assert_true(a->total == b->total);
}

static int again(const gci_packet *p, gci_packet *out)
{
    uint8_t wire[GCI_HEADER_BYTES];
    memset(wire, 0xee, sizeof wire);
    memset(out, 0xdd, sizeof *out);
    gci_packet_encode(p, wire);
    return gci_packet_decode(out, wire);
}

/* Every field alone at its extremes, then all of them: none runs into another. */
static void fields_survive(void **state)
{
    (void)state;
    const gci_packet least = { .type = GCI_ENVELOPE, .total = GCI_PACKET_MAX };
    const gci_packet most = { .type = GCI_ENVELOPE, .flags = UINT8_MAX, .epoch = UINT16_MAX, .source = UINT32_MAX,
                              .dest = UINT32_MAX, .length = GCI_PACKET_MAX, .ack = UINT32_MAX, .credit = UINT16_MAX,
                              .window = UINT16_MAX, .seq = UINT32_MAX, .context = UINT32_MAX, .tag = UINT32_MAX,
                              .signature = UINT32_MAX, .total = UINT64_MAX };
    gci_packet out, p[16];
    for (int i = 0; i < 16; i++)
        p[i] = least;
    p[1].flags = most.flags;
    p[2].epoch = most.epoch;
    p[3].source = most.source;
    p[4].dest = most.dest;
    p[5].length = most.length;
    p[6].ack = most.ack;
    p[7].credit = most.credit;
    p[8].window = most.window;
    p[9].seq = most.seq;
    p[10].context = most.context;
    p[11].tag = most.tag;
    p[12].signature = most.signature;
    p[13].total = most.total;
    p[14] = most;
    p[15].type = GCI_CHUNK;
    for (int i = 0; i < 16; i++) {
        assert_int_equal(again(&p[i], &out), GC_OK);
        assert_same(&p[i], &out);
    }
}

/* The places of the fields are the wire format: they stay. */
static void places_are_fixed(void **state)
{
    (void)state;
    static const uint8_t wire[GCI_HEADER_BYTES] = {
        1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 0, 17, 18, 19, 20, 21, 22, 23, 24,
        25, 26, 27, 28, 29, 30, 31, 32, 33, 34, 35, 36, 37, 38, 39, 40, 41, 42, 43, 44, 45, 46, 47, 48 };
    const gci_packet p = { 1, 2, 0x0403, 0x08070605, 0x0c0b0a09, 0x0e0d, 0x14131211, 0x1615, 0x1817, 0x1c1b1a19, 0x201f1e1d,
                           0x24232221, 0x28272625, UINT64_C(0x302f2e2d2c2b2a29) };
    uint8_t out[GCI_HEADER_BYTES];
    gci_packet decoded;
    gci_packet_encode(&p, out);
    assert_memory_equal(out, wire, sizeof wire);
    assert_int_equal(gci_packet_decode(&decoded, wire), GC_OK);
    assert_same(&p, &decoded);
}

static void bad_forms_are_refused(void **state)
{
    (void)state;
    gci_packet out, p = { .type = 0 };
    for (int type = 0; type <= UINT8_MAX; type++) {
        bool known = type >= GCI_ENVELOPE && type < GCI_TYPES;
        bool carries = type == GCI_ENVELOPE || type == GCI_CHUNK;
        p = (gci_packet){ .type = (uint8_t)type, .total = UINT64_MAX };
        assert_int_equal(again(&p, &out), known ? GC_OK : GC_ERR_PROTOCOL);
        p.length = 1;
        assert_int_equal(again(&p, &out), carries ? GC_OK : GC_ERR_PROTOCOL);
        p.length = GCI_PACKET_MAX;
        assert_int_equal(again(&p, &out), carries ? GC_OK : GC_ERR_PROTOCOL);
        p.length = GCI_PACKET_MAX + 1;
        assert_int_equal(again(&p, &out), GC_ERR_PROTOCOL);
        p.length = UINT32_MAX;
        assert_int_equal(again(&p, &out), GC_ERR_PROTOCOL);
    }
    p = (gci_packet){ .type = GCI_ENVELOPE, .length = 8, .total = 7 };      /* a part larger than the whole */
    assert_int_equal(again(&p, &out), GC_ERR_PROTOCOL);
    p = (gci_packet){ .type = GCI_CHUNK, .length = 8, .total = 7 };         /* here it is an offset */
    assert_int_equal(again(&p, &out), GC_OK);
}

/* ---- a peer --------------------------------------------------------------------------------------------------- */

static peer *start_with(const peer_setup *setup)
{
    peer *p = malloc(sizeof *p);
    assert_non_null(p);
    peer_open(p, setup);
    peer_connect(p);
    peer_run(p);
    return p;
}

/* A world of three ranks with a link to the peer, both sides resumed. */
static peer *start_as(const peer_setup *setup)
{
    peer *p = start_with(setup);
    peer_resume(p);
    peer_run(p);
    assert_true(peer_linked(p));
    assert_true(peer_wire(p)->resumed);
    return p;
}

/* 64 KiB of the budget are for each rank at first. */
static peer *start(void)
{
    static const peer_setup setup = { .ranks = 3, .credits = CREDITS, .queue_packets = 8, .eager_budget = 768 << 10 };
    return start_as(&setup);
}

/* Both in one cluster: windows are small at first, and collectives cut nothing. */
static peer *start_near(void)
{
    static const peer_setup setup = { .ranks = 3, .credits = CREDITS, .queue_packets = 8, .eager_budget = 768 << 10, .same_site = true };
    return start_as(&setup);
}

static void stop(peer *p)
{
    peer_close(p);
    free(p);
}

static void say(peer *p, const gci_packet *k)
{
    peer_say(p, k);
    peer_run(p);
    peer_run(p);                        /* a link that was broken is torn down in the next round */
}

static bool link_is_closed(const peer *p)
{
    return !p->link[p->links - 1].open;
}

/* What the peer says closes the link and ends all that is pending with it; nothing is left. */
static void closes(peer *p, const gci_packet *k, gc_request *pending)
{
    say(p, k);
    assert_true(link_is_closed(p));
    if (pending)
        assert_int_equal(gc_wait_for(&pending, 0, NULL), GC_ERR_PROTOCOL);
    stop(p);
}

static gci_packet envelope(const peer *p, uint32_t length, uint64_t total)
{
    gci_packet k = peer_packet(p, GCI_ENVELOPE);
    k.seq = p->next;
    k.length = length;
    k.total = total;
    k.tag = 7;
    return k;
}

static gc_request *receive(peer *p, size_t bytes)
{
    gc_request *r = NULL;
    memset(buffer, 0, sizeof buffer);
    assert_int_equal(gc_irecv(p->comm, buffer, bytes, PEER_RANK, 7, &r), GC_OK);
    return r;
}

static gc_request *send(peer *p, size_t bytes, bool sync)
{
    gc_request *r = NULL;
    peer_fill(buffer, bytes, 0, 0);
    assert_int_equal(sync ? gc_issend(p->comm, buffer, bytes, PEER_RANK, 7, &r)
                          : gc_isend(p->comm, buffer, bytes, PEER_RANK, 7, &r), GC_OK);
    return r;
}

static const gci_packet *last_said(const peer *p, enum gci_packet_type type)
{
    for (int i = p->said_count - 1; i >= 0; i--)
        if (p->said[i].type == type)
            return &p->said[i];
    return NULL;
}

static void assert_done(gc_request *r, int error, size_t bytes)
{
    gc_status status;
    int done = 0;
    assert_int_equal(gc_test(&r, &done, &status), error);
    assert_true(done);
    assert_int_equal(status.bytes, bytes);
}

/* The stub itself: a peer that keeps the rules gets a message of each kind through, both ways. */
static void honest_peer_is_served(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, LONG);
    gci_packet k = envelope(p, BYTES, BYTES);
    say(p, &k);
    assert_done(r, GC_OK, BYTES);
    assert_true(buffer[0] == peer_byte(0, 0) && peer_whole(buffer, BYTES));
    r = receive(p, LONG);
    k = envelope(p, 5000, 100000);
    say(p, &k);
    const gci_packet *grant = last_said(p, GCI_GRANT);
    assert_true(grant && grant->seq == 1 && grant->total == 5000 && grant->context == 100000);
    k = peer_packet(p, GCI_CHUNK);
    k.seq = 1;
    for (k.total = 5000; k.total < 100000; k.total += k.length) {
        k.length = (uint32_t)gci_min(100000 - k.total, GCI_PACKET_MAX);
        say(p, &k);
    }
    assert_done(r, GC_OK, 100000);
    assert_true(buffer[0] == peer_byte(1, 0) && peer_whole(buffer, 100000));
    assert_int_equal(last_said(p, GCI_FIN)->seq, 1);
    r = send(p, LONG, false);
    assert_int_equal(last_said(p, GCI_ENVELOPE)->total, LONG);
    k = peer_packet(p, GCI_GRANT);
    k.total = last_said(p, GCI_ENVELOPE)->length;
    k.context = LONG;
    say(p, &k);
    assert_int_equal(last_said(p, GCI_CHUNK)->total + last_said(p, GCI_CHUNK)->length, LONG);
    k = peer_packet(p, GCI_FIN);
    say(p, &k);
    assert_done(r, GC_OK, 0);
    assert_true(peer_linked(p));
    stop(p);
}

/* ---- messages that are taken back ----------------------------------------------------------------------------- */

/* Asks for an envelope of the peer's back. */
static void ask_back(peer *p, uint32_t seq)
{
    gci_packet k = peer_packet(p, GCI_ENVELOPE);
    k.flags = GCI_FLAG_AGAIN | GCI_FLAG_BACK;
    k.seq = seq;
    k.tag = 7;
    k.total = p->told[seq].total;
    p->said_count = 0;
    say(p, &k);
}

static bool gave_back(const peer *p, uint32_t seq)
{
    const gci_packet *fin = last_said(p, GCI_FIN);
    return fin && fin->seq == seq && fin->flags & GCI_FLAG_BACK;
}

/* Nobody has asked for it: so nobody gets it, and what it held is free again. It is given back as often as it is asked for. */
static void a_message_is_given_back(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = envelope(p, 0, 0);   /* what nobody takes still uses a credit */
    say(p, &k);
    size_t before = atomic_load(&p->w.env.memory);
    k = envelope(p, 1000, LONG);
    say(p, &k);
    ask_back(p, 1);
    assert_true(gave_back(p, 1) && p->heard.credit == CREDITS - 1);
    peer_free_spares(p);
    assert_true(atomic_load(&p->w.env.memory) <= before);
    gc_request *r = receive(p, LONG);
    ask_back(p, 1);                     /* the FIN was lost */
    assert_true(gave_back(p, 1) && peer_linked(p));
    assert_done(r, GC_OK, 0);           /* the other one */
    k = envelope(p, 1000, LONG);
    say(p, &k);
    ask_back(p, 2);
    assert_true(gave_back(p, 2));
    ask_back(p, 1);                     /* of what was long before only the end is known */
    assert_true(last_said(p, GCI_FIN) && !gave_back(p, 1) && peer_linked(p));
    stop(p);
}

/* One that a receive has, or the user (gc_mprobe), or that came whole, stays. */
static void what_is_matched_is_not_given_back(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, 2000);
    gci_packet k = envelope(p, 1000, 2000);
    say(p, &k);
    ask_back(p, 0);
    assert_true(!last_said(p, GCI_FIN) && last_said(p, GCI_GRANT));
    k = peer_packet(p, GCI_CHUNK);
    k.total = k.length = 1000;
    say(p, &k);
    assert_done(r, GC_OK, 2000);
    ask_back(p, 0);
    assert_true(last_said(p, GCI_FIN) && !gave_back(p, 0));
    k = envelope(p, 1000, 2000);
    say(p, &k);
    gc_message *taken = NULL;
    assert_int_equal(gc_improbe(p->comm, PEER_RANK, 7, &taken, NULL), GC_OK);
    assert_non_null(taken);
    ask_back(p, 1);
    const gci_packet *grant = last_said(p, GCI_GRANT);
    assert_true(!last_said(p, GCI_FIN) && grant && grant->total == 0 && grant->context == 0 && grant->tag == 0);
    assert_int_equal(gc_imrecv(&taken, buffer, 2000, &r), GC_OK);
    peer_run(p);
    assert_true(last_said(p, GCI_GRANT)->context == 2000);
    k = peer_packet(p, GCI_CHUNK);
    k.seq = 1;
    k.total = k.length = 1000;
    say(p, &k);
    assert_done(r, GC_OK, 2000);
    k = envelope(p, 1000, 1000);
    say(p, &k);
    ask_back(p, 2);
    assert_true(last_said(p, GCI_FIN) && !gave_back(p, 2));
    r = receive(p, 2000);
    assert_done(r, GC_OK, 1000);
    assert_true(peer_linked(p));
    stop(p);
}

static void nothing_comes_back_before_it_has_come(void **state)
{
    (void)state;
    for (uint32_t ahead = 0; ahead < 2; ahead++) {
        peer *p = start();
        gci_packet k = envelope(p, 0, LONG);
        k.flags = GCI_FLAG_AGAIN | GCI_FLAG_BACK;
        k.seq += ahead;
        closes(p, &k, receive(p, LONG));
    }
}

/* One send at a time is asked back, so that its receiver needs to remember one. */
static void sends_are_asked_back_in_turn(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r[3];
    for (uint32_t i = 0; i < 3; i++)
        r[i] = send(p, LONG, i == 1);
    for (int i = 0; i < 3; i++)
        assert_int_equal(gc_cancel(r[i]), GC_OK);
    peer_run(p);
    for (uint32_t i = 0; i < 3; i++) {
        const gci_packet *asked = last_said(p, GCI_ENVELOPE);
        assert_true(asked->flags & GCI_FLAG_AGAIN && asked->flags & GCI_FLAG_BACK && asked->seq == i && asked->total == LONG);
        gci_packet k = peer_packet(p, GCI_FIN);
        k.seq = i;
        k.flags = i == 2 ? 0 : GCI_FLAG_BACK;
        say(p, &k);
        assert_done(r[i], i == 2 ? GC_OK : GC_ERR_CANCELLED, 0);
    }
    assert_true(peer_linked(p));
    stop(p);
}

static void nothing_is_given_back_unasked(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = send(p, LONG, false);
    gci_packet k = peer_packet(p, GCI_FIN);
    k.flags = GCI_FLAG_BACK;
    closes(p, &k, r);
}

/* ---- attacks on credit ---------------------------------------------------------------------------------------- */

static void envelope_without_credit(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k;
    for (int i = 0; i < CREDITS; i++) {
        k = envelope(p, 0, 0);
        say(p, &k);
        assert_true(peer_linked(p));
    }
    k = envelope(p, 0, 0);
    closes(p, &k, NULL);
}

static void payload_beyond_the_window(void **state)
{
    (void)state;
    peer *p = start_near();
    assert_true(p->heard.window > 0 && p->heard.window * 1024u < GCI_PACKET_MAX + 1024u);
    gci_packet k = envelope(p, p->heard.window * 1024u - 1, GCI_PACKET_MAX);
    say(p, &k);
    assert_true(peer_linked(p));
    size_t before = atomic_load(&p->w.env.memory);
    k = envelope(p, 2048, 2048);
    peer_say(p, &k);
    peer_run(p);
    assert_true(atomic_load(&p->w.env.memory) <= before);
    peer_run(p);
    assert_true(link_is_closed(p));
    stop(p);
}

/* A long eager message is a quarter of what a neighbour may send: it is two of them that bring a packet to say what it may. */
static void two_long_messages_are_answered_at_once(void **state)
{
    (void)state;
    static const peer_setup setup = { .ranks = 3, .credits = CREDITS, .queue_packets = 8, .eager_budget = 4 << 20, .same_site = true };
    peer *p = start_as(&setup);
    const uint16_t all = p->heard.window;
    for (int i = 1; i <= 4; i++) {
        const int before = p->said_count;
        gci_packet k = envelope(p, GCI_PACKET_MAX, GCI_PACKET_MAX);
        say(p, &k);
        assert_done(receive(p, GCI_PACKET_MAX), GC_OK, GCI_PACKET_MAX);
        peer_run(p);
        assert_int_equal(p->said_count - before, i % 2 == 0);
    }
    assert_int_equal(last_said(p, GCI_STATE)->window, all);
    stop(p);
}

/* A peer that always claims to starve while a receive waits for something else gets more, but within the budget. */
static void starving_stays_within_the_budget(void **state)
{
    (void)state;
    const peer_setup setup = { .ranks = 2, .credits = 1, .queue_packets = 8, .eager_budget = 65536 };
    peer *p = start_with(&setup);
    peer_resume(p);
    peer_run(p);
    size_t before = atomic_load(&p->w.env.memory);
    gc_request *r = receive(p, 1);
    for (int i = 0; i < 400; i++) {
        gci_packet k = envelope(p, 1024, 1024);
        if (!peer_may(p, k.length))
            k = peer_packet(p, GCI_STATE);
        k.tag = 8;
        k.flags = GCI_FLAG_STARVED;
        say(p, &k);
        assert_true(peer_linked(p));
    }
    assert_true(p->next > 32);          /* it was lent to */
    assert_true(atomic_load(&p->w.env.memory) - before <= 65536 + p->next * 1024);
    gc_cancel(r);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_CANCELLED);
    stop(p);
}

static gci_pair *pair_of(peer *p) { return p->w.p2p->pair[PEER_RANK]; }

/* Takes back what was lent beyond `keep`. */
static void recall(peer *p, size_t keep)
{
    peer_inside(p);
    gci_recall(p->w.p2p, pair_of(p), keep);
    peer_outside(p);
    peer_run(p);
}

static gci_packet known(const peer *p, uint32_t which)
{
    gci_packet k = peer_packet(p, GCI_STATE);
    k.flags = GCI_FLAG_KNOWN;
    k.context = which;
    return k;
}

/* A window that is made smaller: what the peer was told before holds until it says that it knows. */
static void a_smaller_window_is_told(void **state)
{
    (void)state;
    enum { KEEP = 16384 };
    for (int knows = 0; knows < 2; knows++) {
        peer *p = start();
        size_t before = p->heard.window * 1024u, left = p->w.p2p->room_left;
        assert_true(before > 3 * KEEP);
        recall(p, KEEP);
        const gci_packet *less = last_said(p, GCI_STATE);
        assert_true(less->flags == GCI_FLAG_LESS && less->tag == 1 && less->window == KEEP / 1024);
        recall(p, KEEP / 2);            /* one at a time */
        assert_true(last_said(p, GCI_STATE) == less && pair_of(p)->share == KEEP);
        gci_packet k = known(p, 2);     /* of what it has not been told */
        say(p, &k);
        assert_true(p->w.p2p->room_left == left);
        k = known(p, 1);
        if (knows) {
            say(p, &k);
            assert_true(p->w.p2p->room_left == left + before - KEEP);
            say(p, &k);
            assert_true(p->w.p2p->room_left == left + before - KEEP);
        }
        k = envelope(p, 2 * KEEP, 2 * KEEP);
        say(p, &k);
        assert_true(knows ? link_is_closed(p) : peer_linked(p));
        if (!knows) {                   /* held beyond what it is to have: that comes back when it is consumed */
            k = known(p, 1);
            say(p, &k);
            assert_true(p->w.p2p->room_left == left + before - 2 * KEEP && pair_of(p)->room == 2 * KEEP);
            assert_done(receive(p, 2 * KEEP), GC_OK, 2 * KEEP);
            assert_true(p->w.p2p->room_left == left + before - KEEP && pair_of(p)->room == KEEP);
        }
        stop(p);
    }
}

/* It says that it knows before what it had begun is there: that has its room. */
static void an_envelope_under_way_keeps_its_room(void **state)
{
    (void)state;
    enum { KEEP = 16384 };
    peer *p = start();
    recall(p, KEEP);
    gci_packet k = envelope(p, 2 * KEEP, 2 * KEEP);
    p->hold = true;
    peer_say(p, &k);
    peer_release(p, GCI_HEADER_BYTES + 10);
    peer_run(p);
    peer_wire(p)->ended = true;
    peer_run(p);
    peer_run(p);
    assert_true(link_is_closed(p) && pair_of(p)->incoming);
    p->hold = false;
    peer_connect(p);
    peer_run(p);
    peer_resume(p);
    peer_run(p);
    const gci_packet *less = last_said(p, GCI_STATE);
    assert_true(less->flags == GCI_FLAG_LESS && less->tag == 1);        /* said again */
    k = known(p, 1);
    say(p, &k);
    assert_true(pair_of(p)->incoming && !pair_of(p)->recalled && pair_of(p)->room == 2 * KEEP);
    stop(p);
}

/* The peer has made its window smaller: this rank says so, and no chunk that was passed by that news makes it larger again. */
static void a_smaller_window_is_known(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = peer_packet(p, GCI_STATE);
    assert_int_equal(pair_of(p)->window, p->window * 1024u);
    k.flags = GCI_FLAG_LESS;
    k.tag = 7;
    k.window = 3;
    say(p, &k);
    const gci_packet *answer = last_said(p, GCI_STATE);
    assert_true(answer->flags == GCI_FLAG_KNOWN && answer->context == 7);
    assert_int_equal(pair_of(p)->window, 3 * 1024);
    for (uint32_t i = 6; i <= 7; i++) {
        k = peer_packet(p, GCI_CHUNK);
        k.seq = 5;                      /* of nothing */
        k.length = 1;
        k.context = i;
        say(p, &k);
        assert_int_equal(pair_of(p)->window, i == 6 ? 3 * 1024 : p->window * 1024u);
    }
    assert_true(peer_linked(p));
    stop(p);
}

/* ---- attacks on messages -------------------------------------------------------------------------------------- */

/* A rendezvous that has been matched and granted, of which nothing more has come. */
static gc_request *rendezvous(peer *p, uint32_t length, uint64_t total)
{
    gc_request *r = receive(p, ROOM);
    gci_packet k = envelope(p, length, total);
    say(p, &k);
    assert_true(peer_linked(p) && last_said(p, GCI_GRANT));
    return r;
}

static void chunk_at_the_wrong_offset(void **state)
{
    (void)state;
    static const uint64_t offsets[] = { 99901, 100000, 100001, UINT64_C(1) << 63, UINT64_MAX - 99, UINT64_MAX };
    for (size_t i = 0; i < GCI_COUNT(offsets); i++) {
        peer *p = start();
        gc_request *r = rendezvous(p, 1000, 100000);
        gci_packet k = peer_packet(p, GCI_CHUNK);
        k.total = offsets[i];
        k.length = 100;
        closes(p, &k, r);
    }
}

static void chunk_beyond_the_message(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = rendezvous(p, 1000, 2000);
    gci_packet k = peer_packet(p, GCI_CHUNK);
    k.total = 1000;
    k.length = 1001;
    closes(p, &k, r);
}

static bool grants(const peer *p, uint64_t from, uint32_t to)
{
    const gci_packet *grant = last_said(p, GCI_GRANT);
    return grant->total == from && grant->context == to && grant->tag == 0;
}

/* As over strands: in an order of chance, some of them twice, and none may be missing in the end. Asked how much has come, the
 * receiver grants what is missing, hole by hole from the front, but for short pieces between holes: those come again. */
static void chunks_in_any_order(void **state)
{
    enum { FIRST = 1000, PIECE = 60000, PIECES = 40, ALL = FIRST + PIECES * PIECE, ISLAND = 4 * GCI_PACKET_MAX / PIECE };
    (void)state;
    for (uint64_t seed = 1; seed <= 20; seed++) {
        peer *p = start();
        gc_request *r = rendezvous(p, FIRST, ALL);
        int order[PIECES];
        uint64_t chance = seed << 32;
        for (int i = 0; i < PIECES; i++) {
            int at = (int)(gci_mix(chance++) % (uint64_t)(i + 1));
            order[i] = order[at];
            order[at] = i;
        }
        gci_packet k = peer_packet(p, GCI_CHUNK), again = envelope(p, 0, ALL);
        k.length = PIECE;
        again.flags = GCI_FLAG_AGAIN;
        again.seq = 0;
        for (int i = 0; i < PIECES; i++)
            for (int times = 1 + (gci_mix(chance++) % 4 == 0); times > 0; times--) {
                bool come[PIECES + 1] = { false };
                int from = 0, to, island;
                k.total = FIRST + (uint64_t)order[i] * PIECE;
                say(p, &k);
                for (int j = 0; j <= i; j++)
                    come[order[j]] = true;
                while (from < PIECES && come[from])
                    from++;
                for (to = from, island = 0; to < PIECES && island <= ISLAND; to++)
                    island = come[to] ? island + 1 : 0;
                to -= island > ISLAND ? island : 0;
                if (i + 1 == PIECES)
                    break;
                say(p, &again);
                assert_true(grants(p, FIRST + (uint64_t)from * PIECE, FIRST + (uint32_t)to * PIECE));
            }
        assert_done(r, GC_OK, ALL);
        assert_true(buffer[0] == peer_byte(0, 0) && peer_whole(buffer, ALL));
        assert_int_equal(last_said(p, GCI_FIN)->seq, 0);
        stop(p);
    }
}

/* The receive is shorter than the message: it is granted no more than it has room for. */
static void chunk_beyond_the_receive(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, 2000);
    gci_packet k = envelope(p, 1000, UINT64_C(1) << 63);
    say(p, &k);
    assert_true(last_said(p, GCI_GRANT)->context == 2000 && last_said(p, GCI_GRANT)->tag == 0);
    k = peer_packet(p, GCI_CHUNK);
    k.total = 1000;
    k.length = 1001;
    closes(p, &k, r);
}

static void huge_message_is_truncated(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, 2000);
    gci_packet k = envelope(p, 1000, UINT64_C(1) << 63);
    say(p, &k);
    k = peer_packet(p, GCI_CHUNK);
    k.total = 1000;
    k.length = 1000;
    say(p, &k);
    assert_done(r, GC_ERR_TRUNCATE, 2000);
    assert_true(peer_whole(buffer, 2000) && buffer[2000] == 0 && peer_linked(p));
    assert_non_null(last_said(p, GCI_FIN));
    stop(p);
}

/* Ignored: its receive may have been given up. */
static void chunk_of_an_unknown_message(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = peer_packet(p, GCI_CHUNK);
    k.seq = 5;
    k.length = BYTES;
    say(p, &k);
    assert_true(peer_linked(p));
    gc_request *r = rendezvous(p, 1000, 2000);
    k = peer_packet(p, GCI_CHUNK);
    k.total = 1000;
    k.length = 1000;
    say(p, &k);
    assert_done(r, GC_OK, 2000);
    memset(buffer, 0, sizeof buffer);
    say(p, &k);                         /* finished */
    assert_true(peer_linked(p) && buffer[1000] == 0);
    stop(p);
}

static void envelope_from_the_future(void **state)
{
    (void)state;
    static const uint32_t ahead[] = { 1, 1000, 0x7fffffff };
    for (size_t i = 0; i < GCI_COUNT(ahead); i++) {
        peer *p = start();
        gci_packet k = envelope(p, 0, 0);
        k.seq += ahead[i];
        closes(p, &k, NULL);
    }
}

/* An old one is a repetition: dropped, even with another content, and answered if its sender wants an answer. */
static void envelope_from_the_past(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, LONG);
    gci_packet k = envelope(p, BYTES, BYTES);
    say(p, &k);
    assert_done(r, GC_OK, BYTES);
    r = receive(p, LONG);
    k.length = 10;
    k.total = 10;
    say(p, &k);
    assert_true(peer_linked(p) && buffer[0] == 0 && !last_said(p, GCI_FIN));
    k.length = 0;
    k.flags = GCI_FLAG_AGAIN;
    say(p, &k);
    assert_true(peer_linked(p) && last_said(p, GCI_FIN) && last_said(p, GCI_FIN)->seq == 0);
    gc_cancel(r);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_CANCELLED);
    stop(p);
}

/* Answers that were never read are bounded. */
static void repetitions_without_end(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k;
    for (int i = 0; i < 3; i++) {
        gc_request *r = receive(p, LONG);
        k = envelope(p, 1, 1);
        say(p, &k);
        assert_done(r, GC_OK, 1);
    }
    p->room = 0;
    size_t before = atomic_load(&p->w.env.memory);
    for (uint32_t i = 0; i < 3000; i++) {
        k.seq = i % 3;
        k.length = 0;
        k.flags = GCI_FLAG_AGAIN;
        peer_say(p, &k);
        peer_run(p);
    }
    assert_true(peer_linked(p) && atomic_load(&p->w.env.memory) - before < 65536);
    stop(p);
}

/* Resent after a lost link with another size than it was begun with. */
static void envelope_changed_after_a_lost_link(void **state)
{
    (void)state;
    for (int larger = 0; larger < 2; larger++) {
        peer *p = start();
        gci_packet k = envelope(p, BYTES, LONG);
        p->hold = true;
        peer_say(p, &k);
        peer_release(p, GCI_HEADER_BYTES + 10);
        peer_run(p);
        peer_wire(p)->ended = true;
        peer_run(p);
        peer_run(p);
        assert_true(link_is_closed(p));
        p->hold = false;
        peer_connect(p);
        peer_run(p);
        peer_resume(p);
        k.length = BYTES + (uint32_t)larger;
        k.total = LONG - 1 + (uint64_t)larger;
        closes(p, &k, NULL);
    }
}

static void not_a_member(void **state)
{
    (void)state;
    static const int members[] = { PEER_ME, 2 };
    peer *p = start();
    peer_comm(p, GCI_CONTEXT_KINDS, members, 2);
    gci_packet k = envelope(p, 0, 0);
    k.context = GCI_CONTEXT_KINDS;
    closes(p, &k, NULL);
    p = start();
    gc_request *r = NULL;
    assert_int_equal(gc_ibarrier(peer_comm(p, GCI_CONTEXT_KINDS, members, 2), &r), GC_OK);
    k = peer_packet(p, GCI_ASK);        /* about their collective, as if it were in another one */
    k.context = GCI_CONTEXT_KINDS + GCI_CONTEXT_COLL;
    k.signature = 1;
    say(p, &k);
    assert_true(link_is_closed(p));
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_TIMEOUT);
    peer_news(p, GCI_NEWS_DEAD, 2, GC_ERR_PEER);
    peer_run(p);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_PEER);
    stop(p);
}

/* It sends before this rank has the communicator: what comes so waits, but no receive gets it. */
static void not_a_member_to_be(void **state)
{
    (void)state;
    static const int members[] = { PEER_ME, 2 };
    for (int kind = GCI_CONTEXT_P2P; kind <= GCI_CONTEXT_COLL; kind++) {
        peer *p = start();
        gci_packet k = envelope(p, 100, kind == GCI_CONTEXT_P2P ? 100 : LONG);
        k.context = GCI_CONTEXT_KINDS + (uint32_t)kind;
        k.tag = 0;
        say(p, &k);
        k = envelope(p, 50, 50);        /* of this one half has come by then */
        k.context = GCI_CONTEXT_KINDS + (uint32_t)kind;
        k.tag = 0;
        p->hold = true;
        peer_say(p, &k);
        peer_release(p, GCI_HEADER_BYTES + 10);
        gc_comm *comm = peer_comm(p, GCI_CONTEXT_KINDS, members, 2);
        gc_request *r = NULL;
        int found = 1;
        assert_int_equal(gc_iprobe(comm, GC_ANY_SOURCE, GC_ANY_TAG, &found, NULL), GC_OK);
        assert_false(found);
        if (kind == GCI_CONTEXT_P2P)
            assert_int_equal(gc_irecv(comm, buffer, BYTES, GC_ANY_SOURCE, GC_ANY_TAG, &r), GC_OK);
        else
            assert_int_equal(gc_ibarrier(comm, &r), GC_OK);
        peer_release(p, SIZE_MAX);
        peer_run(p);
        assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_TIMEOUT);
        assert_int_equal(p->w.p2p->pair[PEER_RANK]->held_bytes, 0);
        peer_news(p, GCI_NEWS_DEAD, 2, GC_ERR_PEER);
        peer_run(p);
        assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_PEER);
        stop(p);
    }
}

static void tag_beyond_the_last(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = envelope(p, 0, 0);
    k.tag = (uint32_t)GC_TAG_MAX;
    say(p, &k);
    assert_true(peer_linked(p));
    k = envelope(p, 0, 0);
    k.tag = (uint32_t)GC_TAG_MAX + 1;
    closes(p, &k, NULL);
}

/* ---- attacks on sends ----------------------------------------------------------------------------------------- */

/* Grants and FINs for an envelope that has not been acknowledged, because it never left. */
static void answer_before_the_envelope(void **state)
{
    (void)state;
    for (int type = GCI_GRANT; type <= GCI_FIN; type++) {
        peer *p = start();
        p->room = 0;
        gc_request *r = send(p, LONG, false);
        gci_packet k = peer_packet(p, (enum gci_packet_type)type);
        k.context = type == GCI_GRANT ? LONG : 0;
        p->forged = true;
        closes(p, &k, r);
    }
}

static void acknowledged_before_it_left(void **state)
{
    (void)state;
    peer *p = start();
    p->room = 10;                       /* of the header, no more */
    gc_request *r = send(p, LONG, false);
    gci_packet k = peer_packet(p, GCI_STATE);
    k.ack = 1;
    closes(p, &k, r);
}

static void acknowledged_what_was_not_sent(void **state)
{
    (void)state;
    static const uint32_t acks[] = { 1, 1000, 0x7fffffff };
    for (size_t i = 0; i < GCI_COUNT(acks); i++) {
        peer *p = start();
        gci_packet k = peer_packet(p, GCI_STATE);
        k.ack = acks[i];
        closes(p, &k, NULL);
    }
}

static void grant_beyond_the_message(void **state)
{
    (void)state;
    static const struct { uint64_t from, limit; } bad[] = {
        { 0, LONG + 1 }, { LONG, LONG - 1 }, { LONG + 1, LONG + 1 }, { 0, UINT64_C(1) << 63 }, { UINT64_MAX, 0 } };
    for (size_t i = 0; i < GCI_COUNT(bad); i++) {
        peer *p = start();
        gc_request *r = send(p, LONG, false);
        gci_packet k = peer_packet(p, GCI_GRANT);
        k.total = bad[i].from;
        k.context = (uint32_t)bad[i].limit;
        k.tag = (uint32_t)(bad[i].limit >> 32);
        closes(p, &k, r);
    }
}

/* A grant before the send has begun, or before its envelope is there, for more than it has: it sends what it has. */
static void early_grant_beyond_the_message(void **state)
{
    (void)state;
    static const uint64_t limits[] = { LONG + 1, UINT64_C(1) << 63, UINT64_MAX };
    for (size_t i = 0; i < 2 * GCI_COUNT(limits); i++) {
        peer *p = start_near();
        gc_request *r = NULL;
        gci_packet k = peer_packet(p, GCI_ASK);
        k.context = GCI_CONTEXT_COLL;
        k.total = limits[i / 2];
        if (i % 2)
            say(p, &k);
        assert_int_equal(gc_ibcast(p->comm, buffer, LONG, PEER_ME, &r), GC_OK);
        const gci_packet *e = last_said(p, GCI_ENVELOPE);
        assert_true(e && e->total == LONG && e->length < LONG);
        k.signature = e->signature;
        if (!(i % 2))
            say(p, &k);
        const gci_packet *chunk = last_said(p, GCI_CHUNK);
        assert_true(chunk && chunk->total + chunk->length == LONG && peer_linked(p));
        peer_news(p, GCI_NEWS_DEAD, PEER_RANK, GC_ERR_PEER);
        peer_run(p);
        assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_PEER);
        stop(p);
    }
}

/* Ignored: the send may be over already. */
static void answers_to_nothing(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = peer_packet(p, GCI_FIN);
    say(p, &k);
    k = peer_packet(p, GCI_GRANT);
    k.seq = 1000;
    k.context = LONG;
    say(p, &k);
    gc_request *r = send(p, BYTES, true);
    k = peer_packet(p, GCI_FIN);
    say(p, &k);
    assert_done(r, GC_OK, 0);
    say(p, &k);                         /* twice */
    assert_true(peer_linked(p));
    stop(p);
}

/* ---- attacks on links ----------------------------------------------------------------------------------------- */

static void second_resume(void **state)
{
    (void)state;
    peer *p = start();
    gci_packet k = peer_packet(p, GCI_STATE);
    k.flags = GCI_FLAG_RESUME;
    closes(p, &k, NULL);
}

static void first_is_no_resume(void **state)
{
    (void)state;
    static const peer_setup setup = { .ranks = 2, .credits = CREDITS, .queue_packets = 8, .eager_budget = 1 << 20 };
    for (int type = GCI_ENVELOPE; type < GCI_TYPES; type++) {
        peer *p = start_with(&setup);
        gci_packet k = peer_packet(p, (enum gci_packet_type)type);
        k.length = type == GCI_CHUNK;           /* one of no bytes may always come */
        closes(p, &k, NULL);
    }
}

static void wrong_source_or_dest(void **state)
{
    (void)state;
    for (int i = 0; i < 4; i++) {
        peer *p = start();
        gci_packet k = envelope(p, 0, 0);
        if (i < 2)
            k.source = i ? 2 : PEER_ME;
        else
            k.dest = i == 2 ? PEER_RANK : UINT32_MAX;
        closes(p, &k, NULL);
    }
}

/* Bytes in pieces of one, of packets of every kind, end in the same. */
static void byte_by_byte(void **state)
{
    (void)state;
    peer *p = start();
    p->dice = 1;
    p->piece = 1;
    gc_request *r = receive(p, LONG);
    gci_packet k = envelope(p, 300, 600);
    peer_say(p, &k);
    for (int i = 0; i < 400; i++)
        peer_run(p);
    assert_non_null(last_said(p, GCI_GRANT));
    k = peer_packet(p, GCI_CHUNK);
    k.total = 300;
    k.length = 300;
    peer_say(p, &k);
    for (int i = 0; i < 400; i++)
        peer_run(p);
    assert_done(r, GC_OK, 600);
    assert_true(peer_whole(buffer, 600));
    stop(p);
}

/* ---- what fuzzing has found ----------------------------------------------------------------------------------- */

/* The job is aborted while a message is half here and the link can only be read any more: the rest of it must go nowhere. */
static void abort_on_a_link_half_dead(void **state)
{
    (void)state;
    const gci_notice abort_notice = { .kind = GCI_NOTICE_ABORT, .origin = PEER_RANK };
    for (int posted = 0; posted < 2; posted++) {
        peer *p = start();
        gc_request *r = posted ? receive(p, LONG) : NULL, *sent = NULL;
        gci_packet k = envelope(p, BYTES, BYTES);
        p->hold = true;
        peer_say(p, &k);
        peer_release(p, GCI_HEADER_BYTES + 10);
        peer_run(p);
        peer_release(p, SIZE_MAX);
        peer_wire(p)->ended = true;
        sent = send(p, 2 * LONG / 4, true);     /* fails, and is noticed */
        memset(buffer, 0, sizeof buffer);
        peer_notice(p, &abort_notice);
        peer_run(p);
        assert_int_equal(gc_wait_for(&sent, 0, NULL), GC_ERR_ABORTED);
        if (posted)
            assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_ABORTED);
        assert_true(buffer[10] == 0 && link_is_closed(p));
        stop(p);
    }
}

/* Several messages come in one read, and the answer to the first meets a link that the peer has closed: the others still
 * count, since what a peer sent before its death can be received. */
static void all_that_was_read_counts(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, LONG);
    gci_packet k = envelope(p, BYTES, BYTES);
    k.flags = GCI_FLAG_SYNC;            /* asks for a FIN */
    peer_say(p, &k);
    k = envelope(p, BYTES, BYTES);
    peer_say(p, &k);
    peer_wire(p)->ended = true;
    peer_run(p);
    peer_run(p);
    assert_true(link_is_closed(p));
    assert_done(r, GC_OK, BYTES);
    r = receive(p, LONG);
    assert_done(r, GC_OK, BYTES);
    assert_int_equal(buffer[0], peer_byte(1, 0));
    stop(p);
}

/* A message taken by a receive of nothing, into no buffer, while it comes. */
static void nothing_into_no_buffer(void **state)
{
    (void)state;
    peer *p = start();
    gc_message *m = NULL;
    gc_request *r = NULL;
    gci_packet k = envelope(p, BYTES, BYTES);
    p->hold = true;
    peer_say(p, &k);
    peer_release(p, GCI_HEADER_BYTES + 10);
    assert_int_equal(gc_improbe(p->comm, PEER_RANK, 7, &m, NULL), GC_OK);
    assert_non_null(m);
    assert_int_equal(gc_imrecv(&m, NULL, 0, &r), GC_OK);
    peer_release(p, SIZE_MAX);
    peer_run(p);
    assert_done(r, GC_ERR_TRUNCATE, 0);
    assert_true(peer_linked(p));
    stop(p);
}

/* A send to oneself that waits for its receive ends with the job too. */
static void abort_ends_a_send_to_oneself(void **state)
{
    (void)state;
    const gci_notice abort_notice = { .kind = GCI_NOTICE_ABORT, .origin = PEER_RANK };
    peer *p = start();
    gc_request *r = NULL;
    assert_int_equal(gc_issend(p->comm, buffer, BYTES, PEER_ME, 7, &r), GC_OK);
    peer_notice(p, &abort_notice);
    peer_run(p);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_ABORTED);
    stop(p);
}

/* And so does one whose message has been taken and not received; the message tells so, too. */
static void abort_ends_a_send_that_was_taken(void **state)
{
    (void)state;
    const gci_notice abort_notice = { .kind = GCI_NOTICE_ABORT, .origin = PEER_RANK };
    peer *p = start();
    gc_request *r = NULL;
    gc_message *m = NULL;
    assert_int_equal(gc_issend(p->comm, buffer, BYTES, PEER_ME, 7, &r), GC_OK);
    assert_int_equal(gc_improbe(p->comm, PEER_ME, 7, &m, NULL), GC_OK);
    assert_non_null(m);
    peer_notice(p, &abort_notice);
    peer_run(p);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_ABORTED);
    assert_int_equal(gc_imrecv(&m, buffer, BYTES, &r), GC_OK);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_ABORTED);
    stop(p);
}

/* Of a rank that nothing was ever exchanged with: the news needs no memory. */
static void a_death_is_heard_without_memory(void **state)
{
    (void)state;
    for (int lost = 0; lost < 2; lost++) {
        const gci_notice given_up = { .kind = GCI_NOTICE_LOST, .origin = PEER_RANK, .word = { 2, (uint32_t)-GC_ERR_PEER } };
        peer *p = start();
        assert_null(p->w.p2p->pair[2]);
        p->fail_in = 2;                 /* the first is for the inbox */
        if (lost)
            peer_notice(p, &given_up);
        else
            peer_news(p, GCI_NEWS_DEAD, 2, GC_ERR_PEER);
        peer_run(p);
        assert_int_equal(gc_comm_failed(p->comm, NULL, 0), 1);
        stop(p);
    }
}

/* What counts does not depend on what was heard first: of the death of who said it, or of the verdict. */
static void a_verdict_of_the_dead_stands(void **state)
{
    (void)state;
    const gci_notice given_up = { .kind = GCI_NOTICE_LOST, .origin = PEER_RANK, .word = { 2, (uint32_t)-GC_ERR_PEER } };
    for (int later = 0; later < 2; later++) {
        peer *p = start();
        if (!later)
            peer_notice(p, &given_up);
        peer_news(p, GCI_NEWS_DEAD, PEER_RANK, GC_ERR_PEER);
        if (later)
            peer_notice(p, &given_up);
        peer_run(p);
        assert_int_equal(gc_comm_failed(p->comm, NULL, 0), 2);
        stop(p);
    }
}

/* Nobody speaks to the dead: what a rank waits for ends when it hears that it is one of them. */
static void ones_own_death_ends_all(void **state)
{
    (void)state;
    const gci_notice given_up = { .kind = GCI_NOTICE_LOST, .origin = 2, .word = { PEER_ME, (uint32_t)-GC_ERR_PEER } };
    peer *p = start();
    gc_request *r = receive(p, LONG), *s;
    gc_status status;
    peer_notice(p, &given_up);
    peer_run(p);
    assert_int_equal(gc_wait_for(&r, 0, &status), GC_ERR_PEER);
    assert_int_equal(status.fault_rank, PEER_ME);
    assert_int_equal(gc_isend(p->comm, buffer, BYTES, PEER_RANK, 7, &s), GC_ERR_PEER);
    stop(p);
}

/* The code in a notice is anybody's word. */
static void a_verdict_without_sense(void **state)
{
    (void)state;
    static const uint32_t words[] = { 0, 1000, 0x7fffffff, 0x80000000, UINT32_MAX };
    for (size_t i = 0; i < GCI_COUNT(words); i++) {
        const gci_notice given_up = { .kind = GCI_NOTICE_LOST, .origin = PEER_RANK, .word = { 2, words[i] } };
        peer *p = start();
        peer_notice(p, &given_up);
        peer_run(p);
        assert_int_equal(gc_comm_failed(p->comm, NULL, 0), 1);
        stop(p);
    }
}

/* One event tells of a message, the next of the waker; what the message ends may be what another thread sleeps for. */
static void a_wake_is_not_lost(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = receive(p, LONG);
    gci_packet k = envelope(p, BYTES, BYTES);
    peer_say(p, &k);
    p->woken = true;
    p->w.overlay->asleep = true;
    peer_run(p);
    p->w.overlay->asleep = false;
    assert_true(p->woken);              /* it has not seen it yet */
    peer_run(p);
    assert_false(p->woken);
    assert_done(r, GC_OK, BYTES);
    stop(p);
}

/* A wait that only its deadline ended is no sign that polling pays. */
static void a_time_out_pays_nothing(void **state)
{
    (void)state;
    static const peer_setup setup = { .ranks = 2, .credits = CREDITS, .queue_packets = 8, .eager_budget = 1 << 20,
                                      .progress = "auto" };
    peer *p = start_with(&setup);
    peer_resume(p);
    peer_run(p);
    gc_request *r = receive(p, LONG);
    p->w.overlay->penalty = 100;
    p->w.overlay->skip = 0;
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_TIMEOUT);
    assert_int_equal(p->w.overlay->penalty, 100);
    gci_packet k = envelope(p, BYTES, BYTES);
    say(p, &k);
    assert_done(r, GC_OK, BYTES);
    stop(p);
}

/* Whoever cannot be reached is told of in the same way by all. */
static void nobody_can_be_reached_there(void **state)
{
    (void)state;
    peer *p = start();
    gc_request *r = NULL, *s = NULL;
    int found;
    assert_int_equal(gc_isend(p->comm, buffer, BYTES, 2, 7, &r), GC_OK);
    peer_news(p, GCI_NEWS_NO_LINK, 2, GC_ERR_UNREACHABLE);
    peer_run(p);
    assert_int_equal(gc_wait_for(&r, 0, NULL), GC_ERR_UNREACHABLE);
    assert_int_equal(gc_isend(p->comm, buffer, BYTES, 2, 7, &s), GC_ERR_UNREACHABLE);
    assert_int_equal(gc_irecv(p->comm, buffer, BYTES, 2, 7, &s), GC_ERR_UNREACHABLE);
    assert_int_equal(gc_iprobe(p->comm, 2, 7, &found, NULL), GC_ERR_UNREACHABLE);
    assert_int_equal(gc_last_error(p->comm, NULL, NULL, 0), GC_ERR_UNREACHABLE);
    assert_int_equal(gc_irecv(p->comm, buffer, BYTES, GC_ANY_SOURCE, 7, &s), GC_ERR_PEER);
    assert_int_equal(gc_iprobe(p->comm, GC_ANY_SOURCE, 7, &found, NULL), GC_ERR_PEER);
    stop(p);
}

/* What a peer says after its death would begin what nobody ends. */
static void the_dead_say_nothing(void **state)
{
    (void)state;
    peer *p = start();
    peer_news(p, GCI_NEWS_DEAD, PEER_RANK, GC_ERR_PEER);
    peer_run(p);
    peer_connect(p);
    peer_run(p);
    peer_resume(p);
    gci_packet k = envelope(p, BYTES, LONG);
    say(p, &k);
    assert_true(link_is_closed(p));
    int found = 1;
    gc_iprobe(p->comm, PEER_RANK, 7, &found, NULL);
    assert_false(found);
    stop(p);
}

/* Who leaves says that all have been in the last barrier. Only a rank that is in it believes that: no other collective ends well. */
static void a_goodbye_in_the_middle(void **state)
{
    (void)state;
    for (int ending = 0; ending < 2; ending++) {
        peer *p = start();
        gc_request *r = NULL;
        assert_int_equal(gc_ibarrier(p->comm, &r), GC_OK);
        p->w.ending = ending;
        peer_news(p, GCI_NEWS_LEFT, PEER_RANK, GC_OK);
        peer_run(p);
        assert_int_equal(gc_wait_for(&r, 0, NULL), ending ? GC_OK : GC_ERR_PEER);
        stop(p);
    }
}

/* No memory for the pair when the link comes up: the link ends, rather than to stand there mute. */
static void no_memory_for_the_pair(void **state)
{
    (void)state;
    const peer_setup setup = { .ranks = 2, .credits = CREDITS, .queue_packets = 8, .eager_budget = 1 << 20 };
    peer *p = malloc(sizeof *p);
    assert_non_null(p);
    peer_open(p, &setup);
    peer_connect(p);
    p->fail_in = 2;                     /* the link itself, then the pair */
    peer_run(p);
    assert_null(p->w.p2p->pair[PEER_RANK]);
    assert_true(peer_linked(p));
    peer_resume(p);
    peer_run(p);
    peer_run(p);
    assert_true(link_is_closed(p));
    peer_connect(p);
    peer_run(p);
    peer_resume(p);
    peer_run(p);
    assert_true(peer_linked(p) && peer_wire(p)->resumed);
    stop(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fields_survive),
        cmocka_unit_test(places_are_fixed),
        cmocka_unit_test(bad_forms_are_refused),
        cmocka_unit_test(honest_peer_is_served),
        cmocka_unit_test(envelope_without_credit),
        cmocka_unit_test(payload_beyond_the_window),
        cmocka_unit_test(two_long_messages_are_answered_at_once),
        cmocka_unit_test(starving_stays_within_the_budget),
        cmocka_unit_test(a_smaller_window_is_told),
        cmocka_unit_test(an_envelope_under_way_keeps_its_room),
        cmocka_unit_test(a_smaller_window_is_known),
        cmocka_unit_test(chunk_at_the_wrong_offset),
        cmocka_unit_test(chunks_in_any_order),
        cmocka_unit_test(chunk_beyond_the_message),
        cmocka_unit_test(chunk_beyond_the_receive),
        cmocka_unit_test(huge_message_is_truncated),
        cmocka_unit_test(chunk_of_an_unknown_message),
        cmocka_unit_test(envelope_from_the_future),
        cmocka_unit_test(envelope_from_the_past),
        cmocka_unit_test(a_message_is_given_back),
        cmocka_unit_test(what_is_matched_is_not_given_back),
        cmocka_unit_test(nothing_comes_back_before_it_has_come),
        cmocka_unit_test(sends_are_asked_back_in_turn),
        cmocka_unit_test(nothing_is_given_back_unasked),
        cmocka_unit_test(repetitions_without_end),
        cmocka_unit_test(envelope_changed_after_a_lost_link),
        cmocka_unit_test(not_a_member),
        cmocka_unit_test(not_a_member_to_be),
        cmocka_unit_test(tag_beyond_the_last),
        cmocka_unit_test(answer_before_the_envelope),
        cmocka_unit_test(acknowledged_before_it_left),
        cmocka_unit_test(acknowledged_what_was_not_sent),
        cmocka_unit_test(grant_beyond_the_message),
        cmocka_unit_test(early_grant_beyond_the_message),
        cmocka_unit_test(answers_to_nothing),
        cmocka_unit_test(second_resume),
        cmocka_unit_test(first_is_no_resume),
        cmocka_unit_test(wrong_source_or_dest),
        cmocka_unit_test(byte_by_byte),
        cmocka_unit_test(abort_on_a_link_half_dead),
        cmocka_unit_test(all_that_was_read_counts),
        cmocka_unit_test(nothing_into_no_buffer),
        cmocka_unit_test(abort_ends_a_send_to_oneself),
        cmocka_unit_test(abort_ends_a_send_that_was_taken),
        cmocka_unit_test(a_death_is_heard_without_memory),
        cmocka_unit_test(a_verdict_of_the_dead_stands), cmocka_unit_test(ones_own_death_ends_all),
        cmocka_unit_test(a_verdict_without_sense),
        cmocka_unit_test(a_wake_is_not_lost),
        cmocka_unit_test(a_time_out_pays_nothing),
        cmocka_unit_test(nobody_can_be_reached_there),
        cmocka_unit_test(the_dead_say_nothing),
        cmocka_unit_test(a_goodbye_in_the_middle),
        cmocka_unit_test(no_memory_for_the_pair),
    };
    return cmocka_run_group_tests_name("packet", tests, NULL, NULL);
}
