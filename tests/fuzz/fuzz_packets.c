/* fuzz_packets.c: libFuzzer target for what a peer that has proven itself may send. The input is a program: what the peer
 * puts on the wire, as raw bytes or as packets that an honest peer could send, perhaps with a field changed; when and in
 * what pieces it can be read; and what the rank itself does meanwhile: sends, receives, probes, collectives, giving up.
 *
 * Whatever the peer does: buffers stay within their bounds and are not touched once a request is complete, every request
 * ends exactly once, and all of them by the time the job is aborted; a message arrives once and whole or not at all;
 * memory stays within its budget and nothing is left at the end. The link to a peer that keeps the rules stays up.
 * SPDX-License-Identifier: MIT
 *
 * covers: link.c ^(gci_packet_decode|gci_link_receive)$
 * covers: forward.c ^(gci_link_parse|packet_begin|packet_end|gci_link_read|routed_is_sound|route_pass|packet_forward|hop_stop)$
 * covers: overlay.c ^(gci_route_deliver|route_resume|route_fail)$
 * covers: p2p.c ^(hear|granted|finished|repeated|envelope_new|envelope_begin|envelope_end|chunk_begin|gci_packet_begin|gci_packet_end)$
 * covers: p2p.c ^(resumed|asked|granted_early|open_message|gci_message_settle|sent_acknowledged|give_back|withdrawal_answered)$
 */
#include "tests/fuzz/peer.h"
#include "tests/fuzz/fuzz.h"

enum { SLOTS = 24,                      /* requests at a time */
       CANARY = 16, CANARY_BYTE = 0xa5, /* round every buffer */
       HELD = 8,                        /* messages taken and not received */
       OPS_MAX = 600,                   /* keeps one input within milliseconds */
       LEAVE_NS = 50000,                /* of its own clock: how long it waits for the other's goodbye */
       COLL_BYTES = 256,                /* a rank's part of a collective: short, ... */
       COLL_LONG = 80000,               /* ... or granted early */
       PER_ENVELOPE = 1024,             /* bytes that the library may hold for one, beside its payload */
       FIXED = 256 << 10 };             /* and for one link and its pair */

struct fuzz;
typedef struct slot {
    struct fuzz *f;
    gc_request  *request;
    bool         busy, owned, recv, coll, sync;
    int          ended;                 /* how often done_fn was called */
    int          source, tag;           /* what a receive asked for */
    uint8_t     *block;                 /* canary, buffer, canary */
    size_t       bytes;
} slot;

typedef struct fuzz {
    peer       p;
    source     in;
    bool       honest, tainted, repost, recycle, over, lossy, leaves;
    size_t     base, sends;             /* memory held before anything came; bytes that the rank has sent */
    slot       slot[SLOTS];
    gc_message *held[HELD];
    gc_comm    *other;
    uint32_t   contexts, sent;          /* communicators made so far; sends */
    int        twist;                   /* 1 + what is changed in the next packet; 0: nothing */
    uint8_t    twist_how;
    uint32_t   twist_value;
} fuzz;

static const size_t sizes[] = { 0, 1, 7, 48, 200, 1000, 1025, 4096, 5000, 16384, 20000, 65535, 65536, 65537, 140000 };

static uint32_t next32(fuzz *f)
{
    uint32_t v = next(&f->in);
    v |= (uint32_t)next(&f->in) << 8;
    v |= (uint32_t)next(&f->in) << 16;
    return v | (uint32_t)next(&f->in) << 24;
}

static size_t next_size(fuzz *f)
{
    return sizes[next(&f->in) % GCI_COUNT(sizes)];
}

/* ---- requests ------------------------------------------------------------------------------------------------- */

static uint8_t *slot_buffer(const slot *s)
{
    return s->block + CANARY;
}

/* What the library is given: no buffer where there are no bytes. */
static void *slot_given(const slot *s)
{
    return s->bytes > 0 ? slot_buffer(s) : NULL;
}

static slot *slot_new(fuzz *f, size_t bytes)
{
    for (int i = 0; i < SLOTS; i++) {
        slot *s = &f->slot[i];
        if (s->busy)
            continue;
        *s = (slot){ .f = f, .busy = true, .owned = true, .bytes = bytes, .block = malloc(bytes + 2 * CANARY) };
        peer_must(s->block != NULL);
        memset(s->block, CANARY_BYTE, bytes + 2 * CANARY);
        return s;
    }
    return NULL;
}

static void slot_free(slot *s)
{
    for (size_t i = 0; i < CANARY; i++)
        peer_must(s->block[i] == CANARY_BYTE && s->block[CANARY + s->bytes + i] == CANARY_BYTE);
    free(s->block);
    *s = (slot){ .busy = false };
}

/* The peer's message that this receive can have got, which none has had yet. */
static void check_delivered(fuzz *f, const slot *s, const gc_status *status, uint32_t context)
{
    for (uint32_t seq = 0; seq < PEER_LEDGER && f->p.told[seq].said; seq++) {
        peer_told *t = &f->p.told[seq];
        bool fits = !t->taken && t->context == context && t->tag == (uint32_t)status->tag &&
                    status->bytes == gci_min((size_t)t->total, s->bytes) && (status->error == GC_OK) == (t->total <= s->bytes);
        if (fits && status->bytes == 0)
            return;                     /* which of them it was cannot be seen */
        if (fits && slot_buffer(s)[0] == peer_byte(seq, 0)) {
            t->taken = true;
            return;
        }
    }
    abort();
}

static void check_received(fuzz *f, const slot *s, const gc_status *status, uint32_t context)
{
    bool whole = status->error == GC_OK || status->error == GC_ERR_TRUNCATE;
    if (!s->recv || s->coll || !whole)
        return;
    peer_must(status->bytes <= s->bytes && (status->error == GC_OK || status->bytes == s->bytes));
    peer_must((s->source == GC_ANY_SOURCE || s->source == status->source) && (s->tag == GC_ANY_TAG || s->tag == status->tag));
    if (f->tainted)
        return;
    peer_must(peer_whole(slot_buffer(s), status->bytes));
    if (status->source == PEER_RANK)        /* it has this number in the other communicator too */
        check_delivered(f, s, status, context);
}

static void post_again(fuzz *f);

/* An unowned message has ended: at most once, and its buffer is free to go at once. */
static void unowned_done(gc_request *r)
{
    slot *s = r->user;
    fuzz *f = s->f;
    peer_must(s->busy && s->ended++ == 0 && r->done);
    check_received(f, s, &r->status, r->context);
    slot_free(s);
    if (f->repost && !f->over)
        post_again(f);
}

static void post_unowned(fuzz *f, bool recv, size_t bytes, uint8_t choice)
{
    slot *s = slot_new(f, bytes);
    if (!s)
        return;
    gci_post post = { .kind = GCI_CONTEXT_P2P, .tag = choice % 4, .any_tag = recv && choice & 4, .sync = !recv && choice & 8,
                      .done_fn = unowned_done, .user = s };
    gc_request *r = NULL;
    s->owned = false;
    s->recv = recv;
    s->sync = post.sync;
    s->tag = post.any_tag ? GC_ANY_TAG : (int)post.tag;
    s->source = PEER_RANK;
    if (!recv)
        peer_fill(slot_buffer(s), bytes, f->sent++, 0);
    f->sends += recv ? 0 : bytes;
    int err = recv ? gci_recv_post(f->p.comm, slot_given(s), bytes, PEER_RANK, &post, &r)
                   : gci_send_post(f->p.comm, slot_given(s), bytes, PEER_RANK, &post, &r);
    if (err < 0)
        slot_free(s);
    else if (s->busy && s->ended == 0 && !s->request)
        s->request = r;
}

static void post_again(fuzz *f)
{
    f->repost = false;                  /* once, until the input says so again */
    post_unowned(f, f->sent & 1, 100, (uint8_t)f->sent);
}

static void op_post(fuzz *f)
{
    uint8_t choice = next(&f->in);
    size_t bytes = next_size(f);
    f->repost = choice & 64;
    peer_inside(&f->p);
    post_unowned(f, choice & 128, bytes, choice);
    peer_outside(&f->p);
}

/* Only collectives give messages up, and theirs are never synchronous. */
static void op_drop(fuzz *f)
{
    slot *s = &f->slot[next(&f->in) % SLOTS];
    if (!s->busy || s->owned || s->sync || !s->request)
        return;
    peer_inside(&f->p);
    gci_request_drop(s->request);
    slot_free(s);
    peer_outside(&f->p);
}

static gc_comm *pick_comm(fuzz *f, uint8_t choice)
{
    return f->other && choice & 16 ? f->other : f->p.comm;
}

static void op_send(fuzz *f)
{
    uint8_t choice = next(&f->in);
    size_t bytes = next_size(f);
    gc_comm *comm = pick_comm(f, choice);
    int dest = choice & 32 ? next(&f->in) % gc_size(comm) : gci_comm_rank(comm, PEER_RANK);
    slot *s = slot_new(f, bytes);
    if (!s)
        return;
    peer_fill(slot_buffer(s), bytes, f->sent++, 0);
    f->sends += bytes;
    int err = choice & 8 ? gc_issend(comm, slot_given(s), bytes, dest, choice % 4, &s->request)
                         : gc_isend(comm, slot_given(s), bytes, dest, choice % 4, &s->request);
    if (err < 0)
        slot_free(s);
}

static void op_recv(fuzz *f)
{
    uint8_t choice = next(&f->in);
    size_t bytes = next_size(f);
    gc_comm *comm = pick_comm(f, choice);
    int from = choice & 32 ? GC_ANY_SOURCE : choice & 64 ? next(&f->in) % gc_size(comm) : gci_comm_rank(comm, PEER_RANK);
    slot *s = slot_new(f, bytes);
    if (!s)
        return;
    s->recv = true;
    s->source = from;
    s->tag = choice & 4 ? GC_ANY_TAG : choice % 4;
    if (gc_irecv(comm, slot_given(s), bytes, from, s->tag, &s->request) < 0)
        slot_free(s);
}

static void op_collective(fuzz *f)
{
    uint8_t choice = next(&f->in);
    gc_comm *comm = pick_comm(f, choice);
    size_t bytes = choice & 128 ? COLL_LONG : COLL_BYTES;
    slot *s = slot_new(f, bytes * PEER_RANKS_MAX);
    if (!s)
        return;
    s->coll = true;
    uint8_t *buf = slot_buffer(s);
    memset(buf, 0, s->bytes);
    f->sends += s->bytes;
    int root = (choice >> 5) % gc_size(comm), err;
    switch (choice % 6) {
    case 0:  err = gc_ibarrier(comm, &s->request); break;
    case 1:  err = gc_ibcast(comm, buf, bytes, root, &s->request); break;
    case 2:  err = gc_iallreduce(comm, buf, buf, bytes / 8, GC_INT64, GC_SUM, &s->request); break;
    case 3:  err = gc_igather(comm, buf + bytes * (size_t)gc_rank(comm), bytes, buf, root, &s->request); break;
    case 4:  err = gc_ireduce(comm, buf, buf, bytes / 4, GC_FLOAT, GC_MAX, root, &s->request); break;
    default: err = gc_iallgather(comm, buf + bytes * (size_t)gc_rank(comm), bytes, buf, &s->request); break;
    }
    if (err < 0)
        slot_free(s);
}

/* Takes what is complete, if it is. */
static bool collect(fuzz *f, slot *s, double seconds)
{
    gc_status status;
    int done = 0;
    if (!s->busy || !s->owned)
        return false;
    uint32_t context = s->request->comm->context;
    int err = seconds > 0 ? gc_wait_for(&s->request, seconds, &status) : gc_test(&s->request, &done, &status);
    if (s->request)
        return false;
    peer_must(err == status.error && (seconds > 0 || done));
    check_received(f, s, &status, context);
    slot_free(s);
    return true;
}

static void op_test(fuzz *f)
{
    uint8_t choice = next(&f->in);
    collect(f, &f->slot[choice % SLOTS], choice >= 240 ? 5e-5 : 0);
}

static void op_cancel(fuzz *f)
{
    slot *s = &f->slot[next(&f->in) % SLOTS];
    if (s->busy && s->owned)
        gc_cancel(s->request);
}

static void op_probe(fuzz *f)
{
    uint8_t choice = next(&f->in);
    gc_comm *comm = pick_comm(f, choice);
    int from = choice & 32 ? GC_ANY_SOURCE : gci_comm_rank(comm, PEER_RANK), found = 0;
    int tag = choice & 4 ? GC_ANY_TAG : choice % 4;
    gc_status status;
    if (choice & 8) {
        gc_iprobe(comm, from, tag, &found, &status);
        return;
    }
    for (int i = 0; i < HELD; i++)
        if (!f->held[i]) {
            gc_improbe(comm, from, tag, &f->held[i], &status);
            return;
        }
}

static void op_take(fuzz *f)
{
    int i = next(&f->in) % HELD;
    size_t bytes = next_size(f);
    slot *s = f->held[i] ? slot_new(f, bytes) : NULL;
    if (!s)
        return;
    s->recv = true;
    s->source = GC_ANY_SOURCE;
    s->tag = (int)f->held[i]->packet.tag;
    if (gc_imrecv(&f->held[i], slot_given(s), bytes, &s->request) < 0)
        slot_free(s);
}

/* A second communicator, of the two ranks that are linked or of the other ones. */
static void op_comm(fuzz *f)
{
    static const int both[] = { PEER_ME, PEER_RANK }, others[] = { PEER_ME, 2 };
    uint8_t choice = next(&f->in);
    f->p.fail_in = 0;
    if (!f->other)
        f->other = peer_comm(&f->p, ++f->contexts * GCI_CONTEXT_KINDS, choice & 2 && f->p.w.ranks > 2 ? others : both, 2);
    else if (gc_comm_free(f->other) == GC_OK)
        f->other = NULL;
}

/* ---- the peer ------------------------------------------------------------------------------------------------- */

/* The next packet has a field changed. An operation of its own, so that a program of an honest peer is that of a hostile
 * one but for these. */
static void op_twist(fuzz *f)
{
    f->twist = 1 + next(&f->in) % 16;
    f->twist_how = next(&f->in);
    f->twist_value = f->twist_how >= 64 && f->twist_how < 128 ? next32(f) : 0;
}

static void mutate(fuzz *f, gci_packet *k)
{
    int field = f->twist - 1;
    uint8_t how = f->twist_how;
    f->twist = 0;
    if (f->honest || field < 0)
        return;
    static const uint64_t values[] = { 0, 1, 2, 0xffff, 65536, 65537, 0x7fffffff, 0x80000000, 0xffffffff, 1ull << 63, ~0ull };
    uint64_t v = how < 64 ? values[how % GCI_COUNT(values)] : f->twist_value;
    int64_t delta = how < 128 ? 0 : (int8_t)(how - 192);
#define MUTATE(name, type) k->name = (type)(how < 128 ? v : (uint64_t)k->name + (uint64_t)delta)
    switch (field) {
    case 0:  MUTATE(type, uint8_t); break;
    case 1:  MUTATE(flags, uint8_t); break;
    case 2:  MUTATE(epoch, uint16_t); break;
    case 3:  MUTATE(source, uint32_t); break;
    case 4:  MUTATE(dest, uint32_t); break;
    case 5:  MUTATE(length, uint32_t); break;
    case 6:  MUTATE(ack, uint32_t); break;
    case 7:  MUTATE(credit, uint16_t); break;
    case 8:  MUTATE(window, uint16_t); break;
    case 9:  MUTATE(seq, uint32_t); break;
    case 10: MUTATE(context, uint32_t); break;
    case 11: MUTATE(tag, uint32_t); break;
    case 12: MUTATE(signature, uint32_t); break;
    case 13: k->length += how; break;   /* a little more than is allowed */
    default: MUTATE(total, uint64_t); break;
    }
#undef MUTATE
    f->tainted = true;
}

static void say(fuzz *f, gci_packet *k)
{
    mutate(f, k);
    peer_say(&f->p, k);
}

/* Is the peer in a state to send packets of its own will? */
static bool speaks(fuzz *f)
{
    const peer_link *wire = peer_wire(&f->p);
    return wire && (!f->honest || (wire->resumed && wire->epoch == f->p.epoch && (!f->p.routed || f->p.resumed_in == f->p.epoch)));
}

static uint32_t pick_context(fuzz *f, uint8_t choice)
{
    if (f->other && choice & 16)
        return f->honest && gci_comm_rank(f->other, PEER_RANK) < 0 ? 0 : f->other->context;
    return choice & 32 && !f->honest ? next(&f->in) : 0;
}

static void op_envelope(fuzz *f, bool whole)
{
    gci_packet k = peer_packet(&f->p, GCI_ENVELOPE);
    uint8_t choice = next(&f->in);
    k.total = next_size(f);
    uint64_t most = gci_min(f->p.most, (size_t)f->p.heard.window * 1024);
    k.length = (uint32_t)(whole ? k.total : k.total / 2);
    if (k.length > most)
        k.length = (uint32_t)most;
    k.seq = f->p.next;
    k.tag = choice % 4;
    k.flags = choice & 8 ? GCI_FLAG_SYNC : 0;
    k.context = pick_context(f, choice);
    const peer_told *t = k.seq < PEER_LEDGER && f->p.told[k.seq].said ? &f->p.told[k.seq] : NULL;
    if (t) {                            /* lost with a link: again as it was */
        k.total = t->total;
        k.length = t->length;
        k.tag = t->tag;
        k.flags = t->flags & (uint8_t)~GCI_FLAG_STREAMS;
        k.context = t->context;
        k.signature = t->signature;
    }
    bool may = peer_may(&f->p, k.length);
    if (!speaks(f) || (f->honest && !may))
        return;
    f->tainted |= !may;
    say(f, &k);
}

/* What the rank's collective waits for, if it is of the peer: short, or with chunks that follow unasked. */
static void answer(fuzz *f, const gc_request *r)
{
    gci_packet k = peer_packet(&f->p, GCI_ENVELOPE);
    k.total = r->bytes;
    k.length = (uint32_t)gci_min(gci_min(r->bytes, f->p.most), (size_t)f->p.heard.window * 1024);
    k.seq = f->p.next;
    k.context = r->context;
    k.tag = r->tag;
    k.signature = r->signature;
    k.flags = k.length < k.total ? GCI_FLAG_STREAMS : 0;
    bool fresh = k.seq < PEER_LEDGER && !f->p.told[k.seq].said;
    if (r->peer != PEER_RANK || !fresh || !speaks(f) || !peer_may(&f->p, k.length))
        return;
    peer_told *t = &f->p.told[k.seq];
    say(f, &k);
    t->granted = t->said && k.flags & GCI_FLAG_STREAMS;
    t->limit = t->total;
}

static void op_answer(fuzz *f)
{
    for (int i = 0; i < GCI_MATCH_BUCKETS; i++)
        for (const gci_match *m = f->p.w.p2p->match[i]; m; m = m->next)
            if (m->context % GCI_CONTEXT_KINDS == GCI_CONTEXT_COLL && m->posted) {
                answer(f, m->posted);
                return;
            }
}

static void op_chunk(fuzz *f)
{
    uint8_t choice = next(&f->in);
    size_t most = next_size(f);
    for (uint32_t i = 0; i < PEER_LEDGER; i++) {
        uint32_t seq = (i + choice) % PEER_LEDGER;
        peer_told *t = &f->p.told[seq];
        if (!t->said || !t->granted || t->at >= t->limit)
            continue;
        gci_packet k = peer_packet(&f->p, GCI_CHUNK);
        k.seq = seq;
        k.total = t->at;
        k.length = (uint32_t)gci_min(gci_min(t->limit - t->at, f->p.most), most ? most : GCI_PACKET_MAX);
        if (speaks(f))
            say(f, &k);
        return;
    }
}

/* Grants or finishes a send of the rank's that waits for it, or gives it back. */
static void op_grant(fuzz *f)
{
    uint8_t choice = next(&f->in);
    for (uint32_t i = 0; i < PEER_LEDGER; i++) {
        uint32_t seq = (i + choice % 8u) % PEER_LEDGER;
        peer_sent *s = &f->p.sent[seq];
        if (!s->seen || !s->answer || s->finished || seq >= f->p.got || !speaks(f))
            continue;
        bool back = choice & 32 && s->asked_back && !s->matched;        /* what is granted is not given back */
        bool finish = choice & 8 || back || s->length >= s->total || s->limit > 0;
        gci_packet k = peer_packet(&f->p, finish ? GCI_FIN : GCI_GRANT);
        uint64_t limit = choice & 16 ? s->length + (s->total - s->length) / 2 : s->total;
        k.seq = seq;
        k.total = finish ? 0 : s->length;
        k.context = finish ? 0 : (uint32_t)limit;
        k.tag = finish ? 0 : (uint32_t)(limit >> 32);
        k.flags = finish && (back || (choice & 32 && !f->honest)) ? GCI_FLAG_BACK : 0;
        say(f, &k);
        return;
    }
}

static void op_state(fuzz *f)
{
    gci_packet k = peer_packet(&f->p, GCI_STATE);
    uint8_t choice = next(&f->in);
    k.flags = choice & 1 ? GCI_FLAG_STARVED : choice & 2 && !f->honest ? GCI_FLAG_BYE : 0;
    if (choice & 4 && !f->honest)
        k.flags |= GCI_FLAG_RESUME;
    if (choice & 8) {
        k.flags |= GCI_FLAG_LESS;
        k.tag = choice;
        k.window = choice >> 4;
    }
    gci_pair *pair = f->p.w.p2p->pair[PEER_RANK];
    if (choice & 16 && pair) {          /* the peer is to have less, and perhaps says at once that it knows */
        peer_inside(&f->p);
        gci_recall(f->p.w.p2p, pair, pair->share / 2);
        peer_outside(&f->p);
        k.flags |= choice & 32 && !f->honest ? GCI_FLAG_KNOWN : 0;
        k.context = pair->recalls;
    }
    if (speaks(f))
        say(f, &k);
}

/* Asks about a collective, or grants a message of one that the rank sends, or may send later. */
static void op_ask(fuzz *f)
{
    gci_packet k = peer_packet(&f->p, GCI_ASK);
    uint8_t choice = next(&f->in);
    const gci_pair *pair = f->p.w.p2p->pair[PEER_RANK];
    const gc_request *r = pair ? pair->open : NULL;
    bool may = f->other && (!f->honest || gci_comm_rank(f->other, PEER_RANK) >= 0);
    k.context = (choice & 4 && may ? f->other->context : 0) + GCI_CONTEXT_COLL;
    k.tag = choice % 4;
    k.signature = choice & 8 ? next32(f) : 0;
    k.total = choice & 16 ? COLL_LONG : 0;
    k.flags = choice & 64 && !f->honest ? GCI_FLAG_OVER : 0;
    k.seq = choice & 128 ? f->p.next : 0;
    if (choice & 32 && r) {
        k.context = r->context;
        k.tag = r->tag;
        k.signature = r->signature;
        k.seq = r->nth;
        k.total = r->bytes;
    }
    if (speaks(f))
        say(f, &k);
}

/* An envelope that has been sent before, as after a lost link: again whole, or asking for its answer, or for itself. */
static void op_repeat(fuzz *f)
{
    uint8_t choice = next(&f->in);
    uint32_t seq = f->p.next > 0 ? choice % f->p.next : 0;
    if (f->p.next == 0 || seq >= PEER_LEDGER || !speaks(f))
        return;
    const peer_told *t = &f->p.told[seq];
    bool open = !t->finished && (t->flags & GCI_FLAG_SYNC || t->total > t->length);
    if (f->honest && (!open || seq >= f->p.heard.ack))
        return;
    gci_packet k = peer_packet(&f->p, GCI_ENVELOPE);
    k.seq = seq;
    k.context = t->context;
    k.tag = t->tag;
    k.total = t->total;
    k.flags = GCI_FLAG_AGAIN | (choice & 64 ? GCI_FLAG_BACK : 0) | (t->flags & GCI_FLAG_SYNC);
    if (choice & 128 && !f->honest) {
        k.flags = 0;
        k.length = t->length;
    }
    say(f, &k);
}

static void op_raw(fuzz *f)
{
    size_t n = 1 + next(&f->in) % 64;
    n = gci_min(n, f->in.bytes);
    if (f->honest)
        return;
    f->tainted = f->p.forged = true;
    peer_put(&f->p, f->in.data, n);
    f->in.data += n;
    f->in.bytes -= n;
}

/* The link ends, in one of three ways, and perhaps there is a new one at once. */
static void op_link(fuzz *f)
{
    uint8_t choice = next(&f->in);
    peer_link *link = peer_wire(&f->p);
    if (link && choice & 1)
        link->ended = true;
    else if (link && choice & 2)
        link->reset = true;
    if (link && choice & 3)
        link->readable = choice & 64 ? link->in_bytes : link->readable;
    if (choice & 4)
        peer_run(&f->p);
    if (choice & 8 || f->p.links == 0) {
        if (!peer_connect(&f->p))
            return;
        peer_run(&f->p);
        if (peer_wire(&f->p) && (f->honest || !(choice & 16)))
            peer_resume(&f->p);
        f->lossy |= f->p.w.table->card[PEER_RANK].host == 0;    /* within a host, data lost is a peer lost */
    }
}

static void op_news(fuzz *f)
{
    uint8_t choice = next(&f->in);
    gci_notice n = { .kind = choice & 16 ? next(&f->in) : GCI_NOTICE_MISMATCH, .origin = choice % 4u };
    switch (choice % 8) {
    case 0: peer_news(&f->p, GCI_NEWS_DEAD, 1 + (choice >> 4) % (f->p.w.ranks - 1), GC_ERR_PEER); break;
    case 1: peer_news(&f->p, GCI_NEWS_LEFT, 1 + (choice >> 4) % (f->p.w.ranks - 1), GC_ERR_PEER); break;
    case 2: peer_news(&f->p, GCI_NEWS_NO_LINK, PEER_RANK, choice & 32 ? GC_ERR_UNREACHABLE : GC_ERR_PEER); break;
    default:
        for (int i = 0; i < GCI_NOTICE_WORDS; i++)
            n.word[i] = next(&f->in);
        peer_notice(&f->p, &n);
    }
    f->lossy = true;
    if (f->p.routed && f->honest && f->p.resumed_in != f->p.epoch)
        peer_resume(&f->p);             /* as every way, that of the new epoch begins so */
}

/* How much can be written and read, and in what pieces; time passes. */
static void op_wire(fuzz *f)
{
    uint8_t choice = next(&f->in);
    switch (choice % 5) {
    case 0:  f->p.room = choice & 128 ? PEER_ROOM_ALL : next_size(f); break;
    case 1:  f->p.hold = choice & 128; peer_release(&f->p, choice & 128 ? 0 : SIZE_MAX); break;
    case 2:  peer_release(&f->p, 1u + next(&f->in)); break;
    case 3:  f->p.dice = choice; f->p.piece = 1u + next(&f->in) * (choice & 128 ? 40u : 1u); break;
    default: f->p.now += ((int64_t)1 << choice % 40); break;
    }
}

static void op_terms(fuzz *f)
{
    uint8_t choice = next(&f->in);
    f->p.credit = choice & 1 ? 64 : choice & 2 ? 1 : (uint16_t)(choice >> 2);
    f->p.window = choice & 4 ? 64 : choice & 8 ? 0 : (uint16_t)(choice >> 4);
    if (choice & 128 && choice & 64)
        f->p.fail_in = 1 + (choice >> 2) % 8;
    f->lossy |= f->p.fail_in > 0;
}

static void operate(fuzz *f)
{
    uint8_t op = next(&f->in);
    switch (op % 32) {
    case 0: case 1: case 2: case 3: peer_run(&f->p); break;
    case 4: case 5:   op_envelope(f, true); break;
    case 6: case 7:   op_envelope(f, false); break;
    case 8: case 9:   op_chunk(f); break;
    case 10: case 11: op_grant(f); break;
    case 12: op_state(f); break;
    case 13: op_ask(f); break;
    case 14: op_repeat(f); break;
    case 15: if (op & 128) op_raw(f); else op_twist(f); break;
    case 16: op_link(f); break;
    case 17: op_news(f); break;
    case 18: op_wire(f); break;
    case 19: op_terms(f); break;
    case 20: case 21: op_send(f); break;
    case 22: case 23: case 24: op_recv(f); break;
    case 25: op_probe(f); break;
    case 26: op_take(f); break;
    case 27: op_cancel(f); break;
    case 28: op_test(f); break;
    case 29: op_post(f); break;
    case 30: op_drop(f); break;
    default: if (op & 32) op_comm(f); else if (op & 64) op_answer(f); else op_collective(f); break;
    }
}

/* ---- what must hold ------------------------------------------------------------------------------------------- */

/* Eager payloads within the budget; for an envelope its record; for the rank's own sends a copy of what is short. */
static void check_memory(const fuzz *f)
{
    size_t envelopes = f->p.w.p2p->credits + (f->p.w.p2p->pair[PEER_RANK] ? f->p.w.p2p->pair[PEER_RANK]->lent : 0) +
                       f->p.next + SLOTS;
    size_t most = f->base + f->p.w.options.eager_budget + FIXED + envelopes * PER_ENVELOPE + f->sends +
                  (f->sent + SLOTS) * (size_t)PER_ENVELOPE * 2;
    peer_must(atomic_load(&f->p.w.env.memory) <= most);
}

static bool known(const fuzz *f, uint32_t context)
{
    const gc_comm *comm = f->p.w.comms;
    while (comm && comm->context != context - context % GCI_CONTEXT_KINDS)
        comm = comm->next;
    return comm != NULL;
}

/* Of a context that this rank does not know nothing is kept but messages. */
static void check_contexts(const fuzz *f)
{
    for (int i = 0; i < GCI_MATCH_BUCKETS && !f->p.w.aborted && !f->p.w.dead[PEER_RANK]; i++)
        for (const gci_match *match = f->p.w.p2p->match[i]; match; match = match->next)
            peer_must(match->comm || match->unexpected || known(f, match->context));
}

static void finish(fuzz *f)
{
    gci_notice abort_notice = { .kind = GCI_NOTICE_ABORT, .origin = PEER_RANK, .word = { 7 } };
    f->over = true;
    f->p.fail_in = 0;
    if (f->leaves) {
        peer_inside(&f->p);
        gci_p2p_farewell(&f->p.w, f->p.now + LEAVE_NS);
        peer_outside(&f->p);
    }
    peer_notice(&f->p, &abort_notice);
    peer_run(&f->p);
    peer_run(&f->p);
    for (int i = 0; i < HELD; i++) {
        gc_request *r = NULL;
        uint8_t none;
        int done = 0;
        if (!f->held[i])
            continue;
        peer_must(gc_imrecv(&f->held[i], &none, 0, &r) == GC_OK && !f->held[i]);
        gc_test(&r, &done, NULL);
        peer_must(done);
    }
    for (int i = 0; i < SLOTS; i++)
        if (f->slot[i].busy)
            peer_must(collect(f, &f->slot[i], 0));   /* unowned ones were told of the abort, and are free */
    for (const gc_comm *c = f->p.w.comms; c; c = c->next)
        peer_must(c->requests == 0);
    peer_must(gci_overlay_way(f->p.w.overlay, PEER_RANK) == GCI_WAY_NONE || f->p.w.aborted);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    static const int credits[] = { 64, 1, 2, 8 };
    static const char *const progress[] = { "sleep", "auto", "poll" };
    fuzz *f = calloc(1, sizeof *f);
    peer_must(f != NULL);
    f->in = (source){ data, bytes };
    uint8_t choice = next(&f->in);
    peer_setup setup = { .ranks = choice & 1 ? 3 : 2, .credits = credits[choice >> 1 & 3], .queue_packets = choice & 8 ? 1 : 8,
                         .eager_budget = choice & 16 ? 1 << 20 : 1 << 16, .same_host = choice & 32 };
    f->honest = choice & 64;
    f->recycle = !(choice & 128);
    choice = next(&f->in);
    setup.progress = progress[choice % 3];
    f->leaves = choice & 4;
    setup.routed = choice & 8;
    peer_open(&f->p, &setup);
    f->base = atomic_load(&f->p.w.env.memory);
    peer_connect(&f->p);
    peer_run(&f->p);
    peer_resume(&f->p);
    for (int i = 0; i < OPS_MAX && f->in.bytes > 0; i++) {
        operate(f);
        check_memory(f);
        check_contexts(f);
        if (f->recycle)
            peer_free_spares(&f->p);
        const peer_link *link = &f->p.link[f->p.links - 1];
        peer_must(!f->honest || f->lossy || link->open || link->ended || link->reset);
    }
    finish(f);
    peer_close(&f->p);
    free(f);
    return 0;
}
