/* nested.c: collectives host by host (pure).
 * SPDX-License-Identifier: MIT
 *
 * Where hosts have several ranks each, a collective is made of whole ones: among the ranks of a host, and among the *heads* of all
 * hosts, each by the algorithm that the rules choose for so many ranks there (the composition of MPICH-G2: Karonis, de Supinski,
 * Foster, Gropp, Lusk, Bresnahan 2000). A head is the first rank of its host, or the root.
 *
 *   bcast            heads: bcast; host: bcast
 *   reduce           host: reduce; heads: reduce
 *   allreduce        host: reduce; heads: allreduce; host: bcast
 *   allgather        host: gather; heads: allgather of what hosts have; host: bcast
 *   reduce_scatter   host: reduce; heads: reduce_scatter of what hosts get; host: scatter
 *
 * So a NIC carries what it would with one rank on each host, instead of so much for each of its ranks.
 *
 * Each is a phase: its schedule is spliced into this rank's. A step of it waits for the steps of earlier phases whose bytes it reads
 * or overwrites, and a message besides for the last one of earlier phases the same way with the same peer, and for all that those
 * of its own phase ahead of it waited for: see sched.c. So segments stream through the phases of a bcast or a reduce.
 *
 * Blocks lie host by host, which is where they belong if ranks do too; else they are copied there first (reduce_scatter) or to their
 * places at the end (allgather). What cannot be added up by host does not fit.
 *
 * Scratch: that of the phases; at a head, of a reduce one vector, of a reduce_scatter all blocks and its host's; at every rank all
 * blocks, where they do not lie host by host.
 */
#include "gridcomm_int.h"

/* Who takes part in a phase: the ranks of a host, or the heads. */
typedef struct nested_party { const int32_t *rank; int ranks, mine, root, hosts; } nested_party;

typedef struct nested {
    gci_builder    *b;
    const gci_call *call;
    const gci_clusters *s;      /* hosts; a block lies where its rank stands in s->member, before those of later ones */
    int             mine;       /* this rank's host */
    nested_party    host, heads;
    int32_t        *head;       /* [hosts] */
    int32_t        *gate;       /* [2 * ranks] by peer, to and from it: what its next message waits for */
    size_t         *block;      /* [ranks] bytes of each, as they lie; */
    size_t         *bytes;      /* [hosts] of each host's together; */
    size_t          all, before;        /* of all hosts; of those before this one */
    bool            alike;      /* each host has as many? */
    bool            in_place;   /* the call's own buffer has them so */
} nested;

/* ---- hosts -------------------------------------------------------------------------------------------------------- */

static int nested_index(const nested_party *party, int rank)
{
    int i = 0;
    while (i < party->ranks && party->rank[i] != rank)
        i++;
    return i;
}

static bool nested_is_head(const nested *n)
{
    return n->host.mine == n->host.root;
}

static void nested_begin(nested *n, gci_builder *b)
{
    const gci_call *call = b->call;
    const gci_clusters *s = call->clusters->by_host;
    size_t ranks = (size_t)call->ranks, hosts = (size_t)s->clusters;
    *n = (nested){ .b = b, .call = call, .s = s, .bytes = gci_alloc(b->env, (ranks + hosts) * sizeof *n->bytes),
                   .head = gci_alloc(b->env, (2 * ranks + hosts) * sizeof *n->head) };
    if (!n->bytes || !n->head) {
        b->error = GC_ERR_NOMEM;
        return;
    }
    n->gate = n->head + hosts;
    n->block = n->bytes + hosts;
    for (int h = 0; h < s->clusters; h++)
        n->head[h] = h == s->of[call->root] ? call->root : s->member[s->first[h]];
    n->mine = s->of[call->rank];
    n->heads = (nested_party){ n->head, s->clusters, n->mine, s->of[call->root], s->clusters };
    n->host = (nested_party){ s->member + s->first[n->mine], s->first[n->mine + 1] - s->first[n->mine], 0, 0, 1 };
    n->host.mine = nested_index(&n->host, call->rank);
    n->host.root = nested_index(&n->host, n->head[n->mine]);
}

static void nested_end(nested *n)
{
    gci_free(n->b->env, n->bytes);
    gci_free(n->b->env, n->head);
}

/* ---- splicing ----------------------------------------------------------------------------------------------------- */

/* What a step writes, and what it reads (a reduction, besides, what it writes). */
typedef struct nested_span { int buf; size_t at, end; } nested_span;

static nested_span nested_written(const gci_step *s)
{
    return (nested_span){ s->kind == GCI_STEP_SEND ? GCI_BUFFERS : s->to, s->to_at, s->to_at + s->bytes };
}

static nested_span nested_read(const gci_step *s)
{
    return (nested_span){ s->kind == GCI_STEP_RECV ? GCI_BUFFERS : s->from, s->from_at, s->from_at + s->bytes };
}

static bool nested_overlap(nested_span a, nested_span c)
{
    return a.buf == c.buf && a.buf != GCI_BUFFERS && a.at < c.end && c.at < a.end && a.at < a.end && c.at < c.end;
}

/* Do two steps touch the same byte, and one of them writes it? */
static bool nested_meet(const gci_step *a, const gci_step *c)
{
    return nested_overlap(nested_written(a), nested_written(c)) || nested_overlap(nested_written(a), nested_read(c)) ||
           nested_overlap(nested_read(a), nested_written(c));
}

static bool nested_is_message(const gci_step *step)
{
    return step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV;
}

static int32_t *nested_gate(const nested *n, const gci_step *step)
{
    return &n->gate[2 * step->peer + (step->kind == GCI_STEP_RECV)];
}

/* Appends a step as it is. */
static int32_t nested_emit(gci_builder *b, const gci_step *step, int32_t after)
{
    gci_spot to = { step->to, step->to_at }, from = { step->from, step->from_at };
    switch (step->kind) {
    case GCI_STEP_SEND:
        return gci_emit_send(b, step->peer, from, step->bytes, after);
    case GCI_STEP_RECV:
        return gci_emit_recv(b, step->peer, to, step->bytes, after);
    case GCI_STEP_REDUCE:
        return gci_emit_reduce(b, to, from, step->bytes, step->swapped, after);
    default:
        return gci_emit_copy(b, to, from, step->bytes, after);
    }
}

/* Appends a step of a phase before which there were so many others. What a message waits for stands in one step, for the next one. */
static int32_t nested_add(nested *n, const gci_step *step, int32_t before)
{
    gci_builder *b = n->b;
    int32_t *gate = nested_is_message(step) ? nested_gate(n, step) : NULL;
    int32_t added = gate ? GCI_NO_STEP : nested_emit(b, step, GCI_NO_STEP);
    for (int32_t i = 0; i < before && !b->error; i++) {
        if (b->out->step[i].bytes == 0 || !nested_meet(&b->out->step[i], step))
            continue;
        if (!gate)
            gci_emit_also(b, added, i);
        else if (i != *gate)
            gci_emit_pend(b, i);
    }
    if (!gate)
        return added;
    gci_emit_pend(b, *gate);
    *gate = gci_emit_join(b);
    return nested_emit(b, step, *gate);
}

static void nested_shut_gates(nested *n)
{
    for (int i = 0; i < 2 * n->call->ranks; i++)
        n->gate[i] = GCI_NO_STEP;
    for (int32_t i = 0; i < n->b->out->steps; i++)
        if (nested_is_message(&n->b->out->step[i]))
            *nested_gate(n, &n->b->out->step[i]) = i;
}

/* at: [sched->steps] where each has gone. */
static void nested_append(nested *n, const nested_party *party, const gci_sched *sched, const gci_spot buffer[GCI_BUFFERS], int32_t *at)
{
    int32_t before = n->b->out->steps;
    nested_shut_gates(n);
    for (int32_t i = 0; i < sched->steps && !n->b->error; i++) {
        gci_step step = sched->step[i];
        const gci_spot to = gci_spot_at(buffer[step.to], step.to_at), from = gci_spot_at(buffer[step.from], step.from_at);
        step.to = to.buf;
        step.to_at = to.at;
        step.from = from.buf;
        step.from_at = from.at;
        if (nested_is_message(&step))
            step.peer = party->rank[step.peer];
        at[i] = nested_add(n, &step, before);
        for (int32_t k = 0; k < step.waits; k++)
            gci_emit_also(n->b, at[i], at[sched->wait[step.first_wait + k]]);
    }
}

/* A phase: where the send and the receive buffer of its call lie. */
static void nested_splice(nested *n, const nested_party *party, gci_call call, gci_spot send, gci_spot recv)
{
    const gci_clusters where = { .clusters = 1, .hosts = party->hosts };     /* all that rules ask */
    gci_algo_choice choice = { .next = 0 };
    gci_builder *b = n->b;
    gci_sched sched = { 0 };
    call.rank = party->mine;
    call.ranks = party->ranks;
    call.root = party->root;
    call.clusters = &where;
    if (!b->error)
        b->error = gci_choose_sched(b->env, &call, &choice, &sched);
    int32_t *at = b->error ? NULL : gci_alloc(b->env, ((size_t)sched.steps + 1) * sizeof *at);
    const gci_spot buffer[GCI_BUFFERS] = { send, recv, gci_emit_slot(b, sched.temp_bytes), { GCI_BUF_HEARD, 0 } };
    if (at)
        nested_append(n, party, &sched, buffer, at);
    else if (!b->error)
        b->error = GC_ERR_NOMEM;
    gci_free(b->env, at);
    gci_sched_free(b->env, &sched);
}

/* ---- vectors ------------------------------------------------------------------------------------------------------ */

static gci_call nested_call(const nested *n, enum gci_coll coll, size_t bytes, bool in_place)
{
    gci_call call = *n->call;
    call.coll = coll;
    call.bytes = bytes;
    call.in_place = in_place;
    call.tree = NULL;
    call.model = NULL;
    call.seen = NULL;
    return call;
}

/* `whole` at the head of its host, to all of that. */
static void nested_to_host(nested *n, size_t bytes, gci_spot whole)
{
    nested_splice(n, &n->host, nested_call(n, GCI_BCAST, bytes, false), whole, whole);
}

/* What the ranks of a host bring in, to its head. */
static void nested_to_head(nested *n, size_t bytes, gci_spot sum)
{
    bool in_place = nested_is_head(n) && n->b->input_is_recv && sum.buf == GCI_BUF_RECV;
    nested_splice(n, &n->host, nested_call(n, GCI_REDUCE, bytes, in_place), n->b->input, sum);
}

static void nested_bcast(nested *n)
{
    const gci_spot all = { GCI_BUF_RECV, 0 };
    if (nested_is_head(n))
        nested_splice(n, &n->heads, nested_call(n, GCI_BCAST, n->call->bytes, false), all, all);
    nested_to_host(n, n->call->bytes, all);
}

static void nested_reduce(nested *n)
{
    bool root = n->call->rank == n->call->root, slot = !root && nested_is_head(n);
    const gci_spot sum = slot ? gci_emit_slot(n->b, n->call->bytes) : (gci_spot){ GCI_BUF_RECV, 0 };
    nested_to_head(n, n->call->bytes, sum);
    if (nested_is_head(n))
        nested_splice(n, &n->heads, nested_call(n, GCI_REDUCE, n->call->bytes, root), sum, sum);
}

static void nested_allreduce(nested *n)
{
    const gci_spot sum = { GCI_BUF_RECV, 0 };
    nested_to_head(n, n->call->bytes, sum);
    if (nested_is_head(n))
        nested_splice(n, &n->heads, nested_call(n, GCI_ALLREDUCE, n->call->bytes, true), sum, sum);
    nested_to_host(n, n->call->bytes, sum);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------- */

static void nested_measure(nested *n, const gci_blocks *blocks)
{
    n->in_place = n->s->runs;
    n->alike = true;
    for (int h = 0; h < n->s->clusters; h++) {
        size_t begin = n->all;
        for (int i = n->s->first[h]; i < n->s->first[h + 1]; i++) {
            n->in_place &= !blocks->at || blocks->at[n->s->member[i]] == n->all;
            n->all += n->block[i] = gci_block_bytes(blocks, n->s->member[i]);
        }
        n->bytes[h] = n->all - begin;
        n->alike &= n->bytes[h] == n->bytes[0];
        if (h == n->mine)
            n->before = begin;
    }
}

/* A call of the ranks of this host, of their blocks; of the heads, of the hosts' blocks. */
static gci_call nested_host_call(const nested *n, enum gci_coll coll, bool in_place)
{
    gci_call call = nested_call(n, coll, 0, in_place);
    call.known = true;
    call.send = call.recv = (gci_blocks){ call.own, call.even ? NULL : &n->block[n->s->first[n->mine]], NULL };
    return call;
}

static gci_call nested_heads_call(const nested *n, enum gci_coll coll, bool in_place)
{
    gci_call call = nested_call(n, coll, 0, in_place);
    call.known = true;
    call.even = n->alike;
    call.own = n->bytes[n->mine];
    call.send = call.recv = (gci_blocks){ call.own, n->alike ? NULL : n->bytes, NULL };
    return call;
}

/* All blocks as steps of their own: from where they lie host by host to where the call has them, or back. */
static void nested_move(nested *n, const gci_blocks *blocks, gci_spot theirs, gci_spot ours, bool back)
{
    int32_t before = n->b->out->steps;
    for (int i = 0; i < n->call->ranks; i++) {
        gci_spot place = gci_spot_at(theirs, gci_block_at(blocks, n->s->member[i])), to = back ? ours : place;
        const gci_spot from = back ? place : ours;
        const gci_step copy = { .kind = GCI_STEP_COPY, .to = to.buf, .to_at = to.at, .from = from.buf, .from_at = from.at,
                                .bytes = n->block[i] };
        nested_add(n, &copy, before);
        ours.at += n->block[i];
    }
}

static void nested_allgather(nested *n)
{
    nested_measure(n, &n->call->recv);
    const gci_spot all = n->in_place ? (gci_spot){ GCI_BUF_RECV, 0 } : gci_emit_slot(n->b, n->all);
    bool there = n->in_place && n->b->input_is_recv;
    nested_splice(n, &n->host, nested_host_call(n, GCI_GATHER, there), n->b->input, gci_spot_at(all, n->before));
    if (nested_is_head(n))
        nested_splice(n, &n->heads, nested_heads_call(n, GCI_ALLGATHER, true), all, all);
    nested_to_host(n, n->all, all);
    if (!n->in_place)
        nested_move(n, &n->call->recv, (gci_spot){ GCI_BUF_RECV, 0 }, all, false);
}

static void nested_reduce_scatter(nested *n)
{
    const gci_spot nowhere = { GCI_BUF_TEMP, 0 }, block = { GCI_BUF_RECV, 0 };
    nested_measure(n, &n->call->send);
    gci_spot input = n->in_place ? n->b->input : gci_emit_slot(n->b, n->all);
    gci_spot sum = nested_is_head(n) ? gci_emit_slot(n->b, n->all) : nowhere;
    gci_spot part = nested_is_head(n) ? gci_emit_slot(n->b, n->bytes[n->mine]) : nowhere;
    if (!n->in_place)
        nested_move(n, &n->call->send, n->b->input, input, true);
    nested_splice(n, &n->host, nested_call(n, GCI_REDUCE, n->all, false), input, sum);
    if (nested_is_head(n))
        nested_splice(n, &n->heads, nested_heads_call(n, GCI_REDUCE_SCATTER, false), sum, part);
    nested_splice(n, &n->host, nested_host_call(n, GCI_SCATTER, false), part, block);
}

/* ---- the algorithm ------------------------------------------------------------------------------------------------ */

GCI void gci_nested_algo(gci_builder *b)
{
    nested n;
    if (!b->call->clusters || !b->call->clusters->by_host || !gci_call_adds_up(b->call, b->call->clusters->by_host)) {
        b->error = GC_ERR_UNSUPPORTED;
        return;
    }
    nested_begin(&n, b);
    if (!b->error)
        switch (b->call->coll) {
        case GCI_BCAST:
            nested_bcast(&n);
            break;
        case GCI_REDUCE:
            nested_reduce(&n);
            break;
        case GCI_ALLREDUCE:
            nested_allreduce(&n);
            break;
        case GCI_ALLGATHER:
            nested_allgather(&n);
            break;
        default:
            nested_reduce_scatter(&n);
        }
    nested_end(&n);
}
