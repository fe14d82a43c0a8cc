/* coll.c: the collectives: the executor of schedules, agreement among ranks.
 * SPDX-License-Identifier: MIT
 *
 * A collective call becomes a *run*: a schedule (plan.c, sched.c), the user's buffers, scratch, and per step how many steps it
 * still waits for. Starting a run posts what is ready; from then on it advances in the completion callbacks of its
 * messages, whoever drives the I/O, so a non-blocking collective progresses in any gc_ call and a blocking one is start
 * plus wait. Of the steps that are ready receives go first, then the others in list order; what is posted leaves at their end.
 *
 * Who completes what: a run ends exactly once, in coll_end, which takes it out of the list of running collectives, drops
 * the messages it still has posted and completes the user's request. While a run is being advanced (run->advancing) a
 * failure is only noted, and what has not begun to leave is taken back, so nothing is freed under a caller's feet, however deep
 * callbacks nest.
 *
 * It cannot deadlock: each rank's steps wait for earlier ones only, matching is in order, and the checker in the tests
 * shows for every algorithm that all sends and receives pair up even if every send waits for its receiver.
 *
 * Agreement: the n-th collective of a communicator has sequence number n (30 bits), which is the tag of its messages, and
 * a signature: the operation and a hash of the arguments that all ranks must give alike. Who sees another signature under
 * the same number fails its own collective and floods a notice, by which all other members fail theirs; who comes to
 * that number later remembers the notice. So every rank gets the error, even those whose messages would have matched.
 * The last few signatures are kept for the questions (ASK) of those who still wait. The sizes in a bundle of uneven blocks are
 * known to few: it bears a signature of its own, with a hash of them, which only its receive can judge. A rank that cannot go on
 * for a reason that nobody else sees (out of memory, a peer that only it cannot reach) tells the others in the same way.
 *
 * Who waits for a message that nobody sends (a block that is empty at its sender alone; a collective that failed so long ago
 * that nobody remembers; the rest of one whose sender has failed) learns so by asking, too: whoever has handed over all that it will ever send him in that collective
 * answers so (OVER), with the number of its next envelope. A receive that still waits when all envelopes below that are here
 * waits in vain, and fails. No state is kept for it, and no order of packets is relied on.
 *
 * An uneven call between clusters has two runs under its one number, the second in place of the first when that has ended here:
 * ranks of a cluster tell each other sizes, and short blocks, and then its own schedule is built (coll_later). Between two ranks
 * all messages of the first come before those of the second, so they match as those of one schedule would, wherever the others
 * are.
 *
 * All state is guarded by the world's monitor. User-defined operations are called inside it: of gc_ they may call gc_abort alone.
 *
 * Memory, per communicator: the cache of schedules (plan.c); per running collective one block: 64
 * bytes a step and the schedule's scratch (see sched.c); up to COLL_SPARES blocks of COLL_SPARE_BYTES wait for reuse, so
 * that a loop of the same collectives allocates nothing, unless they ask for sizes first.
 */
#include "gridcomm_int.h"

#include <stdio.h>

enum { COLL_SEQ_MASK = 0x3fffffff,      /* 30 bits: a tag */
       COLL_RECENT = 8,                 /* ended collectives whose signature is kept, for those who ask */
       COLL_NOTICES = 8,                /* mismatches heard of before this rank came to them */
       COLL_SPARES = 4,                 /* blocks kept for reuse ... */
       COLL_SPARE_BYTES = 64 * 1024,    /* ... unless larger than this */
       COLL_ALIGN = 64,                 /* of scratch */
       COLL_WORK = 8192,                /* bytes copied while what is posted waits to leave, at most, */
       COLL_STEP = 64,                  /* of which each step counts as so many */
       COLL_SWAP_BYTES = 4096 };        /* a swapped reduction goes through a copy of so much at a time */
#define COLL_TELL_EVERY (50 * (int64_t)GCI_NS_PER_MS)   /* an ended mismatch is told again at most this often */

typedef struct coll_run coll_run;

/* An uneven call that begins with an alltoall in each cluster, of sizes and short blocks (gci_wide_ask): what it goes on with,
 * under the same number. The lists of sizes and offsets are its own: the caller's need not live on. */
typedef struct coll_later {
    gci_coll_args   args;
    gci_algo_choice choice;
    gci_ask        *ask;
    bool            begun;              /* the run is this, no longer the asking */
    size_t          list[];
} coll_later;

typedef struct coll_step {
    coll_run   *run;
    gc_request *request;                /* its message, while posted */
    int32_t     waits;                  /* steps still to end before it may begin */
    bool        ended;
} coll_step;

struct coll_run {
    coll_run   *next, *before;          /* running, or spare: next alone */
    size_t      room;                   /* bytes of this block */
    gc_comm    *comm;
    gc_request *request;
    gci_plan   *plan;
    gci_coll_args args;
    coll_later *later;                  /* or NULL */
    uint32_t    seq, signature;
    int32_t     left;                   /* steps not ended */
    bool        advancing;
    int         error, fault;           /* noted while advancing; fault: world rank or -1 */
    char        text[GCI_TEXT];
    unsigned char *temp, *swap;
    int32_t    *recvs, *others;         /* queues of ready steps; each step stands in one of them once */
    int32_t     recvs_head, recvs_end, others_head, others_end;
    coll_step   step[];
};

/* Of a collective that has ended here. */
typedef struct coll_recent {
    bool     used;
    uint32_t seq, signature;
    int      error;                     /* GC_OK, or why it failed for all */
    uint32_t other;                     /* mismatch: the other signature ... */
    uint32_t other_rank;                /* ... and whose (world rank) */
    int64_t  told;
} coll_recent;

struct gci_coll_state {
    uint32_t    next;                   /* sequence number of the next collective */
    coll_run   *runs, *last;            /* running, oldest first */
    coll_run   *near;                   /* one of them: the next to be sought comes soon after it, mostly. NULL: none */
    coll_run   *spare;   int spares;
    gci_plans   plans;                  /* and the model that chooses, its own, or NULL */
    coll_recent recent[COLL_RECENT];    /* at seq % COLL_RECENT */
    gci_notice  notice[COLL_NOTICES];   /* kind 0: free */
    int         notices;                /* ever kept: where the next one goes */
    gci_algo_choice  forced[GCI_COLLS];      /* by GRIDCOMM_ALGO */
    gci_topo    topo;                   /* of this communicator's ranks */
    gci_clusters clusters;
};

/* The plan for a call, with one more run counted on it. */
static int coll_plan(gc_comm *comm, const gci_algo_choice *choice, const gci_call *call, gci_plan **out)
{
    struct gci_coll_state *st = comm->coll;
    return gci_plan_get(&comm->world->env, &st->plans, choice, call, st->forced[call->coll].name[0] != 0, out);
}

/* ---- runs -------------------------------------------------------------------------------------------------------- */

static size_t coll_round_up(size_t bytes)
{
    return (bytes + COLL_ALIGN - 1) / COLL_ALIGN * COLL_ALIGN;
}

/* Bytes through which swapped reductions go: whole elements, at least one. */
static size_t coll_swap_bytes(const gci_plan *plan)
{
    size_t elem = plan->call.elem_bytes;
    return !plan->swaps ? 0 : elem >= COLL_SWAP_BYTES ? elem : COLL_SWAP_BYTES / elem * elem;
}

/* A block of at least so many bytes: a spare one, or new. */
static coll_run *coll_block(gc_comm *comm, size_t bytes)
{
    struct gci_coll_state *st = comm->coll;
    for (coll_run **at = &st->spare; *at; at = &(*at)->next)
        if ((*at)->room >= bytes) {
            coll_run *run = *at;
            *at = run->next;
            st->spares--;
            return run;
        }
    coll_run *run = gci_realloc(&comm->world->env, NULL, bytes);
    if (run)
        run->room = bytes;
    return run;
}

/* Keeps a block for reuse; the list holds the COLL_SPARES last used ones. */
static void coll_block_keep(gc_comm *comm, coll_run *run)
{
    struct gci_coll_state *st = comm->coll;
    if (run->room > COLL_SPARE_BYTES) {
        gci_free(&comm->world->env, run);
        return;
    }
    run->next = st->spare;
    st->spare = run;
    if (++st->spares <= COLL_SPARES)
        return;
    coll_run **last = &st->spare;
    while ((*last)->next)
        last = &(*last)->next;
    gci_free(&comm->world->env, *last);
    *last = NULL;
    st->spares--;
}

static void coll_ready(coll_run *run, int32_t i)
{
    if (run->plan->sched.step[i].kind == GCI_STEP_RECV) {
        run->recvs[run->recvs_end++] = i;
        return;
    }
    int32_t at = run->others_end++;     /* kept in list order; they come nearly so */
    for (; at > run->others_head && run->others[at - 1] > i; at--)
        run->others[at] = run->others[at - 1];
    run->others[at] = i;
}

static coll_run *coll_run_new(gc_comm *comm, const gci_coll_args *args, gci_plan *plan)
{
    const gci_sched *s = &plan->sched;
    size_t steps = (size_t)s->steps, swap = coll_swap_bytes(plan);
    size_t queues_at = sizeof(coll_run) + steps * sizeof(coll_step);
    size_t temp_at = queues_at + 2 * steps * sizeof(int32_t);
    size_t temp = coll_round_up(s->temp_bytes) + COLL_ALIGN;
    if (temp < s->temp_bytes || temp > SIZE_MAX - temp_at - swap)
        return NULL;
    coll_run *run = coll_block(comm, temp_at + temp + swap);
    if (!run)
        return NULL;
    size_t room = run->room;
    unsigned char *base = (unsigned char *)run;
    *run = (coll_run){ .room = room, .comm = comm, .plan = plan, .args = *args, .left = s->steps, .fault = -1 };
    run->recvs = (int32_t *)(void *)(base + queues_at);
    run->others = run->recvs + steps;
    size_t past = (uintptr_t)(base + temp_at) % COLL_ALIGN;
    run->temp = base + temp_at + (past ? COLL_ALIGN - past : 0);
    run->swap = run->temp + coll_round_up(s->temp_bytes);
    for (int32_t i = 0; i < s->steps; i++) {
        run->step[i] = (coll_step){ .run = run, .waits = s->step[i].waits };
        if (s->step[i].waits == 0)
            coll_ready(run, i);
    }
    return run;
}

/* ---- calls that ask for sizes first ------------------------------------------------------------------------------ */

static void coll_later_free(gci_env *env, coll_later *later)
{
    if (later)
        gci_free(env, later->ask);
    gci_free(env, later);
}

/* NULL: out of memory. */
static coll_later *coll_later_new(gci_env *env, const gci_coll_args *args, const gci_algo_choice *choice)
{
    coll_later *later = gci_alloc(env, sizeof *later + gci_call_lists(&args->call) * sizeof *later->list);
    if (!later)
        return NULL;
    later->args = *args;
    later->choice = *choice;
    gci_call_copy_lists(&later->args.call, later->list);
    if (gci_wide_ask(env, &args->call, &later->ask) < 0) {
        coll_later_free(env, later);
        return NULL;
    }
    const gci_ask *ask = later->ask;
    for (int i = 0; i < ask->rides; i++)
        memcpy(ask->told + ask->ride[i].told_at, (const uint8_t *)args->send + ask->ride[i].send_at, ask->ride[i].bytes);
    return later;
}

/* How many messages the same way the asking had. */
static uint32_t coll_asked(const coll_run *run, const gci_step *step)
{
    if (!run->later || !run->later->begun)
        return 0;
    const gci_call *ask = &run->later->ask->call;
    return (step->kind == GCI_STEP_SEND ? ask->send : ask->recv).bytes[step->peer] > 0;
}

/* ---- mismatch: texts, notices, memory of what has ended ---------------------------------------------------------- */

GCI const char *gci_coll_signed(uint32_t signature)
{
    return gci_coll_name((enum gci_coll)(signature >> GCI_SIGNED_COLL));
}

/* Why all ranks of a collective fail, in the words of a notice (ranks in the communicator). */
static void coll_explain(const gc_comm *comm, const gci_notice *n, char text[GCI_TEXT])
{
    int rank = gci_comm_rank(comm, (int)n->origin), other = gci_comm_rank(comm, (int)n->word[4]);
    const char *mine = gci_coll_signed(n->word[2]), *theirs = gci_coll_signed(n->word[3]);
    int code = -(int)n->word[5];
    if (code != GC_ERR_MISMATCH)
        snprintf(text, GCI_TEXT, "%s failed at rank %d: %s", mine, rank, gc_strerror(code));
    else if (rank == other)
        snprintf(text, GCI_TEXT, "rank %d calls %s, others call it with other arguments", rank, mine);
    else if (n->word[2] >> GCI_SIGNED_COLL == n->word[3] >> GCI_SIGNED_COLL)
        snprintf(text, GCI_TEXT, "rank %d calls %s, rank %d calls %s with other arguments", rank, mine, other, theirs);
    else
        snprintf(text, GCI_TEXT, "rank %d calls %s, rank %d calls %s", rank, mine, other, theirs);
}

static gci_notice coll_notice_of(const gc_comm *comm, uint32_t seq, uint32_t mine, uint32_t theirs, uint32_t other_rank,
                                 int code)
{
    return (gci_notice){ .kind = GCI_NOTICE_MISMATCH, .origin = (uint32_t)comm->world->rank,
                         .word = { comm->context, seq, mine, theirs, other_rank, (uint32_t)-code } };
}

static void coll_tell(gc_comm *comm, const gci_notice *notice)
{
    if (comm->world->control)
        gci_control_notify(comm->world->control, notice);
}

/* Notes how the collective with this number ended here. */
static coll_recent *coll_remember(gc_comm *comm, uint32_t seq, uint32_t signature)
{
    coll_recent *recent = &comm->coll->recent[seq % COLL_RECENT];
    *recent = (coll_recent){ .used = true, .seq = seq, .signature = signature };
    return recent;
}

/* The same of one that failed for all. */
static void coll_remember_failed(gc_comm *comm, uint32_t signature, const gci_notice *why)
{
    coll_recent *recent = coll_remember(comm, why->word[1], signature);
    recent->error = -(int)why->word[5];
    recent->other = why->word[2] == signature ? why->word[3] : why->word[2];
    recent->other_rank = why->word[2] == signature ? why->word[4] : why->origin;
    recent->told = comm->world->env.sys->now(comm->world->env.sys);
}

/* ---- the end of a run -------------------------------------------------------------------------------------------- */

static void coll_discarded(gc_request *request)
{
    *(bool *)request->user = true;
}

/* Messages of a failed collective that wait unmatched would stay for ever: receives them into nothing. */
static void coll_discard(gc_comm *comm, uint32_t seq)
{
    uint32_t signature;
    int source;
    while (gci_unexpected_signature(comm, seq, 0, &signature, &source) == 1) {
        bool done = false;
        gci_post post = { .kind = GCI_CONTEXT_COLL, .tag = seq, .done_fn = coll_discarded, .user = &done };
        gc_request *request = NULL;
        if (gci_recv_post(comm, NULL, 0, gci_comm_rank(comm, source), &post, &request) < 0)
            return;
        if (!done)
            gci_request_drop(request);
    }
}

/* The tests look on (gci_env.seen). */
static void coll_seen(const coll_run *run, enum gci_seen_what what, int32_t n, const void *to, const void *from)
{
    const gci_env *env = &run->comm->world->env;
    if (env->seen)
        env->seen(env->seen_user, &(gci_seen){ .what = what, .comm = run->comm, .seq = run->seq, .signature = run->signature,
                                               .asks = run->later && !run->later->begun, .args = &run->args,
                                               .choice = &run->plan->choice, .used = &run->plan->used,
                                               .sched = &run->plan->sched, .n = n, .to = to, .from = from });
}

/* Puts a run where it belongs in the list: behind `before`, NULL: first. */
static void coll_put_in(struct gci_coll_state *st, coll_run *run, coll_run *before)
{
    run->before = before;
    run->next = before ? before->next : st->runs;
    *(before ? &before->next : &st->runs) = run;
    *(run->next ? &run->next->before : &st->last) = run;
}

static void coll_take_out(struct gci_coll_state *st, coll_run *run)
{
    *(run->before ? &run->before->next : &st->runs) = run->next;
    *(run->next ? &run->next->before : &st->last) = run->before;
    if (st->near == run)
        st->near = run->next;
}

/* Ends a run, exactly once: out of the list, posted messages dropped, the user's request completed. */
static void coll_end(coll_run *run, int error, int fault_world_rank, const char *text)
{
    gc_comm *comm = run->comm;
    gc_request *request = run->request;
    coll_seen(run, GCI_SEEN_END, error, NULL, NULL);
    run->advancing = true;              /* messages that end from here on move nothing */
    coll_take_out(comm->coll, run);
    for (int32_t i = 0; (error < 0 || run->left > 0) && i < run->plan->sched.steps; i++)
        if (run->step[i].request)
            gci_request_drop(run->step[i].request);
    if (error < 0) {
        coll_discard(comm, run->seq);
        gci_request_fail(request, error, fault_world_rank, "%s", text);
    }
    gci_plan_release(&comm->world->env, run->plan);
    coll_later_free(&comm->world->env, run->later);
    coll_block_keep(comm, run);
    if (error == GC_OK)
        gci_request_done(request, GC_OK);
}

/* Fails a run with what a notice says. */
static void coll_end_mismatch(coll_run *run, const gci_notice *why)
{
    char text[GCI_TEXT];
    gc_comm *comm = run->comm;
    coll_explain(comm, why, text);
    coll_remember_failed(comm, run->signature, why);
    int code = -(int)why->word[5], origin = (int)why->origin, other = (int)why->word[4];
    int fault = code == GC_ERR_MISMATCH && origin == other ? -1 : origin == comm->world->rank ? other : origin;
    coll_end(run, code, fault, text);
}

/* Of a failure that this rank alone has seen the others must be told; deaths and aborts everybody hears of anyway. */
static void coll_end_failed(coll_run *run)
{
    gc_comm *comm = run->comm;
    if (run->error != GC_ERR_PEER && run->error != GC_ERR_ABORTED) {
        int other = run->error == GC_ERR_MISMATCH && run->fault >= 0 ? run->fault : comm->world->rank;
        gci_notice why = coll_notice_of(comm, run->seq, run->signature, run->signature, (uint32_t)other, run->error);
        coll_tell(comm, &why);
        coll_remember_failed(comm, run->signature, &why);
    } else {
        coll_remember(comm, run->seq, run->signature);
    }
    coll_end(run, run->error, run->fault, run->text);
}

/* ---- the executor ------------------------------------------------------------------------------------------------ */

/* Messages that have not begun do not leave any more: behind one that has failed they would be taken for that. */
static void coll_drop_queued(coll_run *run)
{
    for (int32_t i = 0; i < run->plan->sched.steps; i++) {
        gc_request *request = run->step[i].request;
        if (!request || !gci_send_is_queued(request))
            continue;
        run->step[i].request = NULL;
        gci_request_drop(request);
    }
}

static void coll_note_error(coll_run *run, int error, int fault_world_rank, const char *text)
{
    if (run->error)
        return;
    run->error = error;
    run->fault = fault_world_rank;
    snprintf(run->text, sizeof run->text, "%s: %s", gci_coll_signed(run->signature), text);
    coll_drop_queued(run);
}

/* Of blocks whose size no third rank knows. */
static void coll_note_block(coll_run *run, int world_rank)
{
    char text[64];
    snprintf(text, sizeof text, "rank %d calls it with a block of another size", gci_comm_rank(run->comm, world_rank));
    coll_note_error(run, GC_ERR_MISMATCH, world_rank, text);
}

/* What the message of a step bears. */
static uint32_t coll_signature_at(const coll_run *run, const gci_step *step)
{
    uint64_t both = gci_mix((uint64_t)run->signature << 32 | step->sizes);
    uint32_t kind = run->signature >> GCI_SIGNED_COLL << GCI_SIGNED_COLL;
    return step->sizes ? kind | GCI_SIGNED_SIZES | (uint32_t)(both % GCI_SIGNED_SIZES) : run->signature;
}

static void coll_step_ended(coll_run *run, int32_t i)
{
    const gci_plan *plan = run->plan;
    run->step[i].ended = true;
    run->left--;
    for (int32_t k = plan->first_after[i]; k < plan->first_after[i + 1]; k++)
        if (--run->step[plan->after[k]].waits == 0)
            coll_ready(run, plan->after[k]);
}

static unsigned char *coll_place(const coll_run *run, uint8_t buf, size_t at)
{
    const unsigned char *base = buf == GCI_BUF_SEND ? run->args.send : buf == GCI_BUF_RECV ? run->args.recv :
                                buf == GCI_BUF_HEARD ? run->later->ask->heard : run->temp;
    return base ? (unsigned char *)(uintptr_t)base + at : NULL;
}

GCI void gci_coll_apply(const gci_coll_args *args, const void *in, void *inout, size_t bytes)
{
    size_t count = bytes / args->call.elem_bytes;
    if (args->user.fn)
        args->user.fn(in, inout, count, args->type, args->user.user);
    else
        gci_op_apply(args->op, args->type, in, inout, count);
}

/* A swapped reduction goes through a copy, piece by piece, except where it gives the same bits: integers. (Of floats the
 * zeros of min and max, and NaNs, tell the operands apart, and all ranks of an allreduce shall get the same bits.) */
static void coll_reduce(coll_run *run, const gci_step *step, unsigned char *to, const unsigned char *from)
{
    bool same = !run->args.user.fn && run->args.type < GC_FLOAT;
    if (!step->swapped || same) {
        gci_coll_apply(&run->args, from, to, step->bytes);
        return;
    }
    size_t piece = coll_swap_bytes(run->plan);
    for (size_t at = 0; at < step->bytes; at += piece) {
        size_t bytes = gci_min(piece, step->bytes - at);
        memcpy(run->swap, from + at, bytes);
        gci_coll_apply(&run->args, to + at, run->swap, bytes);
        memcpy(to + at, run->swap, bytes);
    }
}

static void coll_reduce_step(coll_run *run, const gci_step *step, unsigned char *to, const unsigned char *from)
{
    gci_world *w = run->comm->world;
    if (run->args.user.fn)
        atomic_store(&w->applies, true);
    coll_reduce(run, step, to, from);
    if (run->args.user.fn)
        atomic_store(&w->applies, false);
}

static void coll_advance(coll_run *run);

/* A message of a step has ended. */
static void coll_message_done(gc_request *request)
{
    coll_step *own = request->user;
    coll_run *run = own->run;
    int32_t i = (int32_t)(own - run->step);
    const gci_step *step = &run->plan->sched.step[i];
    own->request = NULL;
    size_t bytes = request->status.bytes;
    int error = request->status.error, fault = request->status.fault_rank;
    if (step->kind == GCI_STEP_RECV && (error == GC_ERR_TRUNCATE || (error == GC_OK &&
        (bytes != step->bytes || request->signature != coll_signature_at(run, step))))) {
        own->ended = true;
        coll_note_block(run, gci_world_rank(run->comm, step->peer));
    } else if (error < 0) {
        own->ended = true;
        coll_note_error(run, error, fault < 0 ? -1 : gci_world_rank(run->comm, fault),
                        request->text ? request->text : gc_strerror(error));
    } else {
        coll_seen(run, GCI_SEEN_DONE, i, NULL, NULL);
        coll_step_ended(run, i);
    }
    if (!run->advancing)
        coll_advance(run);
}

static void coll_post(coll_run *run, int32_t i)
{
    const gci_step *step = &run->plan->sched.step[i];
    coll_step *own = &run->step[i];
    bool sends = step->kind == GCI_STEP_SEND;
    unsigned char *at = sends ? coll_place(run, step->from, step->from_at) : coll_place(run, step->to, step->to_at);
    gci_post post = { .kind = GCI_CONTEXT_COLL, .tag = run->seq,
                      .signature = sends ? coll_signature_at(run, step) : run->signature,
                      .nth = run->plan->nth[i] + coll_asked(run, step), .done_fn = coll_message_done, .user = own };
    gc_request *request = NULL;
    coll_seen(run, GCI_SEEN_STEP, i, at, at);
    if (!sends)
        run->request->peer = gci_world_rank(run->comm, step->peer);     /* whose socket to poll first */
    int err = sends ? gci_send_post(run->comm, at, step->bytes, step->peer, &post, &request)
                    : gci_recv_post(run->comm, at, step->bytes, step->peer, &post, &request);
    if (err < 0)
        coll_note_error(run, err, gci_world_rank(run->comm, step->peer), gc_strerror(err));
    else if (!own->ended)
        own->request = request;         /* else it has ended, and is gone, before the post returned */
}

/* Of a reduce_scatter in place the first step saves the vector: it begins where the send buffer does, and the receive buffer
 * may be this rank's block inside it. */
static uint8_t coll_copied(const coll_run *run, int32_t i)
{
    const gci_call *call = &run->args.call;
    return i == 0 && call->in_place && call->coll == GCI_REDUCE_SCATTER ? GCI_BUF_SEND : run->plan->sched.step[i].from;
}

static void coll_do(coll_run *run, int32_t i)
{
    const gci_step *step = &run->plan->sched.step[i];
    if (step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV) {
        coll_post(run, i);
        return;
    }
    unsigned char *to = coll_place(run, step->to, step->to_at), *from = coll_place(run, coll_copied(run, i), step->from_at);
    coll_seen(run, GCI_SEEN_STEP, i, to, from);
    if (step->kind == GCI_STEP_REDUCE)
        coll_reduce_step(run, step, to, from);
    else if (step->bytes > 0)
        memcpy(to, from, step->bytes);
    coll_step_ended(run, i);
}

/* What the neighbours have told of sizes has come: the same collective goes on with its own schedule, in place of this run. */
static int coll_go_on(coll_run *run, coll_run **out)
{
    gc_comm *comm = run->comm;
    coll_later *later = run->later;
    gci_plan *plan = NULL;
    coll_run *next = NULL;
    gci_wide_hear(later->ask);
    later->args.call.heard = later->ask->sizes;
    later->args.call.heard_bytes = later->ask->sizes_bytes;
    int err = coll_plan(comm, &later->choice, &later->args.call, &plan);
    if (err < 0)
        return err;
    next = coll_run_new(comm, &later->args, plan);
    if (!next) {
        gci_plan_release(&comm->world->env, plan);
        return GC_ERR_NOMEM;
    }
    coll_seen(run, GCI_SEEN_END, GC_OK, NULL, NULL);
    later->begun = true;
    next->later = later;
    next->request = run->request;
    next->seq = run->seq;
    next->signature = run->signature;
    coll_put_in(comm->coll, next, run);
    coll_take_out(comm->coll, run);
    gci_plan_release(&comm->world->env, run->plan);
    coll_block_keep(comm, run);
    coll_seen(next, GCI_SEEN_START, 0, NULL, NULL);
    *out = next;
    return GC_OK;
}

/* For how long a step keeps this thread, in bytes copied, about; a reduction always for too long. */
static size_t coll_work(const coll_run *run, int32_t i)
{
    const gci_step *step = &run->plan->sched.step[i];
    return step->kind == GCI_STEP_REDUCE ? COLL_WORK + 1 : COLL_STEP + step->bytes;
}

/* The ready step whose turn it is. */
static int32_t coll_next(const coll_run *run)
{
    return run->recvs_head < run->recvs_end ? run->recvs[run->recvs_head] :
           run->others_head < run->others_end ? run->others[run->others_head] : GCI_NO_STEP;
}

/* Does all that is ready. Messages leave when all are posted, so that short ones to one peer go together, or before they would
 * have waited for longer than that spares. */
static void coll_do_ready(coll_run *run)
{
    const gci_world *w = run->comm->world;
    bool was = gci_cork(w->p2p);
    size_t work = 0;                    /* that messages have waited for */
    run->advancing = true;
    while (!run->error && !w->through) {
        int32_t next = coll_next(run);
        if (next != GCI_NO_STEP && (work == 0 || work + coll_work(run, next) <= COLL_WORK)) {
            work += coll_work(run, next);
            ++*(run->recvs_head < run->recvs_end ? &run->recvs_head : &run->others_head);
            coll_do(run, next);
        } else if (!gci_flush(w->p2p) && next == GCI_NO_STEP) {
            break;
        } else {
            work = 0;
        }
    }
    if (run->error)
        coll_drop_queued(run);          /* one was being posted when the error was noted */
    gci_uncork(w->p2p, was);
    run->advancing = false;
}

/* Does all that is ready, and ends the run if that was all or an error came. */
static void coll_advance(coll_run *run)
{
    const gci_world *w = run->comm->world;
    coll_do_ready(run);
    if (!run->error && run->left == 0 && run->later && !run->later->begun) {
        int err = coll_go_on(run, &run);
        if (err == GC_OK) {
            coll_advance(run);
            return;
        }
        coll_note_error(run, err, -1, err == GC_ERR_MISMATCH ? "ranks call it with blocks of other sizes" : gc_strerror(err));
    }
    int source;
    uint32_t signature;
    if (!run->error && run->left == 0 && !run->args.call.even &&    /* a block that is empty here, and not there */
        gci_unexpected_signature(run->comm, run->seq, 0, &signature, &source) == 1)
        coll_note_block(run, source);
    if (run->error && !w->through) {
        coll_end_failed(run);
    } else if (run->left == 0 || w->through) {
        coll_remember(run->comm, run->seq, run->signature);
        coll_end(run, GC_OK, -1, NULL);
    }
}

/* ---- starting ---------------------------------------------------------------------------------------------------- */

static uint64_t coll_hash(uint64_t hash, uint64_t value)
{
    return gci_mix(hash ^ value);
}

static uint64_t coll_hash_blocks(uint64_t hash, const gci_blocks *blocks, int ranks)
{
    for (int i = 0; i < ranks; i++)
        hash = coll_hash(hash, gci_block_bytes(blocks, i));
    return hash;
}

/* The operation and a hash of what all ranks must give alike; never 0. */
static uint32_t coll_signature_of(const gci_coll_args *args, const gci_algo_choice *choice)
{
    const gci_call *call = &args->call;
    bool user = args->user.fn != NULL;
    uint64_t hash = coll_hash((uint64_t)call->root + 1, call->bytes);
    hash = coll_hash(hash, call->even ? call->own : UINT64_MAX);
    hash = coll_hash(hash, call->elem_bytes);
    hash = coll_hash(hash, choice->segment);
    hash = coll_hash(hash, call->canonical);
    hash = coll_hash(hash, (uint64_t)args->type);
    hash = coll_hash(hash, user ? GCI_OP_FIRST_USER + (uint64_t)args->user.flags : (uint64_t)args->op);
    for (int i = 0; call->tree && i < call->ranks; i++)
        hash = coll_hash(coll_hash(hash, (uint64_t)call->tree->first_child[i]), (uint64_t)call->tree->next_sibling[i]);
    if (!call->even && call->coll == GCI_ALLGATHER)
        hash = coll_hash_blocks(hash, &call->recv, call->ranks);
    if (!call->even && call->coll == GCI_REDUCE_SCATTER)
        hash = coll_hash_blocks(hash, &call->send, call->ranks);
    for (const char *c = choice->name; *c; c++)
        hash = coll_hash(hash, (uint64_t)(unsigned char)*c);
    hash %= GCI_SIGNED_SIZES;
    return (uint32_t)call->coll << GCI_SIGNED_COLL | (uint32_t)(hash ? hash : 1);
}

typedef struct coll_failure { int code, fault; char text[GCI_TEXT]; } coll_failure;     /* fault: comm rank or -1 */

static int coll_check_alive(const gc_comm *comm, enum gci_coll coll, coll_failure *why)
{
    why->code = gci_comm_gone(comm, GC_ANY_SOURCE);
    why->fault = why->code == GC_ERR_ABORTED ? gci_comm_rank(comm, comm->world->abort_origin) : why->code ? comm->first_dead : -1;
    if (why->code != GC_ERR_ABORTED)
        snprintf(why->text, GCI_TEXT, "%s: rank %d is gone", gci_coll_name(coll), why->fault);
    else
        snprintf(why->text, GCI_TEXT, "%s: rank %d called gc_abort with code %d", gci_coll_name(coll),
                 comm->world->abort_origin, comm->world->abort_code);
    return why->code;
}

/* Has a notice come about this number, or a message with another signature? Who fails anyhow need not judge others' by its own:
 * without memory it may not even know what it would have called. */
static bool coll_foreseen(gc_comm *comm, uint32_t seq, uint32_t mine, bool fails, gci_notice *why)
{
    bool found = false;
    for (int i = 0; i < COLL_NOTICES; i++) {
        gci_notice *n = &comm->coll->notice[i];
        if (n->kind == 0 || ((n->word[1] - seq) & COLL_SEQ_MASK) > COLL_SEQ_MASK / 2)
            n->kind = 0;
        else if (n->word[1] == seq) {
            *why = *n;
            n->kind = 0;
            found = true;
        }
    }
    uint32_t theirs;
    int source;
    if (!found && !fails && gci_unexpected_signature(comm, seq, mine, &theirs, &source) == 1) {
        *why = coll_notice_of(comm, seq, mine, theirs, (uint32_t)source, GC_ERR_MISMATCH);
        coll_tell(comm, why);
        found = true;
    }
    return found;
}

/* The plan with which a call begins: its own; or, where the algorithm that fits it asks for sizes, that of the asking: then *args
 * become those of it, and *later is what follows. */
static int coll_first_plan(gc_comm *comm, const gci_algo_choice *choice, gci_coll_args *args, coll_later **later, gci_plan **plan)
{
    gci_env *env = &comm->world->env;
    bool asks = gci_wide_asks(&args->call);
    if (!asks || strcmp(choice->name, "wide") != 0) {
        int err = coll_plan(comm, choice, &args->call, plan);
        if (err < 0 || !asks || strcmp((*plan)->used.name, "wide") != 0)
            return err;
        gci_plan_release(env, *plan);   /* another was wanted, and does not fit */
    }
    *later = coll_later_new(env, args, choice);
    if (!*later)
        return GC_ERR_NOMEM;
    const gci_algo_choice direct = { .name = "direct" };
    const gci_ask *ask = (*later)->ask;
    *args = (gci_coll_args){ .call = ask->call, .send = ask->told, .recv = ask->heard };
    int err = coll_plan(comm, &direct, &args->call, plan);
    if (err < 0)
        coll_later_free(env, *later);
    return err;
}

/* Makes the run and its request; *out has them together or not at all. */
static int coll_prepare(gc_comm *comm, const gci_coll_args *args, const gci_algo_choice *choice, coll_run **out)
{
    gci_env *env = &comm->world->env;
    gci_coll_args first = *args;
    gci_plan *plan = NULL;
    coll_later *later = NULL;
    int err = coll_first_plan(comm, choice, &first, &later, &plan);
    if (err < 0)
        return err;
    coll_run *run = coll_run_new(comm, &first, plan);
    gc_request *request = run ? gci_request_new(comm, GCI_REQUEST_COLL) : NULL;
    if (!request) {
        if (run)
            coll_block_keep(comm, run);
        gci_plan_release(env, plan);
        coll_later_free(env, later);
        return GC_ERR_NOMEM;
    }
    run->later = later;
    request->owned = true;
    comm->requests++;
    run->request = request;
    *out = run;
    return GC_OK;
}

static int coll_start_inside(gc_comm *comm, const gci_coll_args *args, const gci_algo_choice *choice, gc_request **out,
                             coll_failure *why)
{
    struct gci_coll_state *st = comm->coll;
    if (coll_check_alive(comm, args->call.coll, why) < 0)
        return why->code;
    uint32_t signature = coll_signature_of(args, choice), seq = st->next;
    coll_run *run = NULL;
    gci_notice notice;
    why->code = args->error ? args->error : coll_prepare(comm, args, choice, &run);
    st->next = (seq + 1) & COLL_SEQ_MASK;
    bool foreseen = coll_foreseen(comm, seq, signature, why->code < 0, &notice);
    if (why->code < 0 && !foreseen) {
        notice = coll_notice_of(comm, seq, signature, signature, (uint32_t)comm->world->rank, why->code);
        coll_tell(comm, &notice);
    }
    if (!run) {                         /* the number is spent all the same: the others have begun with it */
        why->code = -(int)notice.word[5];
        coll_explain(comm, &notice, why->text);
        coll_remember_failed(comm, signature, &notice);
        coll_discard(comm, seq);
        return why->code;
    }
    run->seq = seq;
    run->signature = signature;
    *out = run->request;
    coll_put_in(comm->coll, run, comm->coll->last);
    coll_seen(run, GCI_SEEN_START, 0, NULL, NULL);
    if (foreseen)
        coll_end_mismatch(run, &notice);
    else
        coll_advance(run);
    return GC_OK;
}

/* Where the ranks of a communicator are: asked for by its first collective, since the world knows it only when all have come. */
static int coll_place_ranks(gc_comm *comm, struct gci_coll_state *st)
{
    gci_env *env = &comm->world->env;
    const gci_table *table = comm->world->table;    /* NULL in a world of one */
    if (st->clusters.of)
        return GC_OK;
    size_t ranks = (size_t)comm->size;
    const char **path = gci_alloc(env, ranks * sizeof *path);
    int *host = gci_alloc(env, ranks * sizeof *host), err = path && host ? GC_OK : GC_ERR_NOMEM;
    for (size_t i = 0; i < ranks && err == GC_OK && table; i++) {
        int rank = gci_world_rank(comm, (int)i);
        path[i] = table->card[rank].cluster;
        host[i] = table->card[rank].host;
    }
    if (err == GC_OK)
        err = gci_topo_make(env, comm->size, path, host, &st->topo);
    if (err == GC_OK)
        err = gci_clusters_make(env, &st->topo, &st->clusters);
    if (err < 0)
        gci_topo_free(env, &st->topo);
    gci_free(env, path);
    gci_free(env, host);
    return err;
}

/* GRIDCOMM_ORDER=rank. Integers give the same bits in any order. */
static bool coll_is_canonical(const gci_world *world, const gci_coll_args *args)
{
    bool exact = !args->user.fn && args->type < GC_FLOAT, wanted = world->options.order && world->options.order[0];
    return wanted && gci_coll_reduces(args->call.coll) && args->call.associative && !exact;
}

static gci_algo_choice coll_choose(const gc_comm *comm, const gci_call *call, const gci_algo_choice *forced)
{
    gci_algo_choice choice;
    const gc_model *model = comm->coll->plans.model;
    bool decided = model && !forced->name[0] && gci_decided(model->table, call, &choice);
    return decided ? choice : gci_choose(call, forced);
}

static int coll_start_chosen(gc_comm *comm, gci_coll_args *args, const gci_algo_choice *forced, gc_request **out)
{
    coll_failure why = { .fault = -1 };
    args->call.clusters = &comm->coll->clusters;
    args->call.canonical = coll_is_canonical(comm->world, args);
    gci_enter(comm->world);
    if (coll_place_ranks(comm, comm->coll) < 0)
        args->error = GC_ERR_NOMEM;
    gci_algo_choice choice = coll_choose(comm, &args->call, forced);
    args->call.segment = choice.segment;
    int err = coll_start_inside(comm, args, &choice, out, &why);
    gci_leave(comm->world);
    return err < 0 ? gci_fail(comm, err, why.fault, "%s", why.text) : GC_OK;
}

GCI int gci_coll_start(gc_comm *comm, const gci_coll_args *args, gc_request **out)
{
    gci_coll_args own = *args;
    return coll_start_chosen(comm, &own, &comm->coll->forced[args->call.coll], out);
}

GCI int gci_coll_last_barrier(gc_comm *comm)
{
    gc_request *request = NULL;
    gci_coll_args args = { .call = { .coll = GCI_BARRIER, .rank = comm->rank, .ranks = comm->size, .even = true, .elem_bytes = 1,
                                     .commutative = true, .associative = true } };
    int err = coll_start_chosen(comm, &args, &(gci_algo_choice){ .name = "knomial:8" }, &request);
    return err < 0 ? err : gci_request_wait(&request, GCI_FOREVER, NULL);
}

GCI const gci_clusters *gci_coll_clusters(gc_comm *comm)
{
    gci_enter(comm->world);
    int err = coll_place_ranks(comm, comm->coll);
    gci_leave(comm->world);
    return err < 0 ? NULL : &comm->coll->clusters;
}

GCI int gci_coll_describe(gc_comm *comm, gci_text *out)
{
    gci_enter(comm->world);
    int err = coll_place_ranks(comm, comm->coll);
    if (err == GC_OK && comm->coll->plans.model)
        gci_decisions_describe(comm->coll->plans.model->table, out);
    if (err == GC_OK)
        gci_choose_describe(&comm->coll->clusters, comm->size, comm->coll->forced, out);
    gci_leave(comm->world);
    return err;
}

GCI void gci_coll_decide_by(gc_comm *comm, gc_model *model)
{
    struct gci_coll_state *st = comm->coll;
    gci_enter(comm->world);
    gc_model *old = st->plans.model;
    st->plans.model = model;
    gci_plans_drop(&comm->world->env, &st->plans);      /* trees may be made for the old one */
    gci_leave(comm->world);
    gci_model_drop(&comm->world->env, old);
}

GCI void gci_coll_force(gc_comm *comm, const gci_algo_choice forced[GCI_COLLS])
{
    memcpy(comm->coll->forced, forced, sizeof comm->coll->forced);
}

GCI const gc_model *gci_coll_model(const gc_comm *comm)
{
    return comm->coll->plans.model;
}

GCI gci_algo_choice gci_coll_would_take(const gc_comm *comm, const gci_call *call)
{
    return coll_choose(comm, call, &comm->coll->forced[call->coll]);
}

/* ---- what other rooms call --------------------------------------------------------------------------------------- */

static void coll_state_free(gci_env *env, struct gci_coll_state *st)
{
    gci_clusters_free(env, &st->clusters);
    gci_topo_free(env, &st->topo);
    gci_model_drop(env, st->plans.model);
    gci_free(env, st);
}

GCI int gci_coll_open(gc_comm *comm)
{
    char text[GCI_TEXT];
    struct gci_coll_state *st = gci_alloc(&comm->world->env, sizeof *st);
    if (!st)
        return GC_ERR_NOMEM;
    int err = gci_choose_read(comm->world->options.algo, st->forced, text);
    if (err < 0) {
        coll_state_free(&comm->world->env, st);
        return err;
    }
    comm->coll = st;
    return GC_OK;
}

GCI void gci_coll_close(gc_comm *comm)
{
    gci_env *env = &comm->world->env;
    struct gci_coll_state *st = comm->coll;
    if (!st)
        return;
    gci_coll_fail(comm, GC_ERR_CANCELLED, -1, "the communicator was freed");
    gci_plans_drop(env, &st->plans);
    while (st->spare) {
        coll_run *run = st->spare;
        st->spare = run->next;
        gci_free(env, run);
    }
    coll_state_free(env, st);
    comm->coll = NULL;
}

GCI void gci_coll_fail(gc_comm *comm, int code, int fault_world_rank, const char *why)
{
    struct gci_coll_state *st = comm->coll;
    for (coll_run *run = st ? st->runs : NULL; run;) {
        coll_note_error(run, code, fault_world_rank, why);
        if (run->advancing) {
            run = run->next;            /* coll_advance ends it */
            continue;
        }
        coll_remember(comm, run->seq, run->signature);
        if (comm->world->through)       /* it can only be the last barrier, and that is complete */
            coll_end(run, GC_OK, -1, NULL);
        else
            coll_end(run, run->error, run->fault, run->text);
        run = st->runs;                 /* the end of one may have ended others */
    }
}

GCI bool gci_coll_view_of(const gc_request *request, gci_coll_view *view)
{
    const coll_run *run = request->comm->coll ? request->comm->coll->runs : NULL;
    while (run && run->request != request)
        run = run->next;
    if (run)
        *view = (gci_coll_view){ .run = run, .seq = run->seq, .call = &run->args.call, .choice = &run->plan->choice,
                                 .asks = run->later && !run->later->begun, .signature = run->signature,
                                 .steps = run->plan->sched.steps, .left = run->left };
    return run != NULL;
}

GCI const gc_request *gci_coll_next_wait(const gci_coll_view *view, int32_t *step)
{
    const coll_run *run = view->run;
    while (++*step < view->steps)
        if (run->step[*step].request)
            return run->step[*step].request;
    return NULL;
}

static coll_run *coll_find(const gc_comm *comm, uint32_t seq)
{
    struct gci_coll_state *st = comm->coll;
    coll_run *run = st->near && ((seq - st->near->seq) & COLL_SEQ_MASK) <= COLL_SEQ_MASK / 2 ? st->near : st->runs;
    while (run && run->seq != seq)
        run = run->next;
    if (run)
        st->near = run;
    return run;
}

/* Is seq one that this rank has not come to yet? */
static bool coll_in_future(const gc_comm *comm, uint32_t seq)
{
    return ((seq - comm->coll->next) & COLL_SEQ_MASK) <= COLL_SEQ_MASK / 2;
}

GCI void gci_coll_notice(gci_world *world, const gci_notice *n)
{
    if (n->kind != GCI_NOTICE_MISMATCH || n->origin >= (uint32_t)world->ranks || n->word[4] >= (uint32_t)world->ranks ||
        n->word[1] > COLL_SEQ_MASK || n->word[5] == 0 || n->word[5] > (uint32_t)-GC_ERR_UNSUPPORTED)
        return;
    for (gc_comm *comm = world->comms; comm; comm = comm->next) {
        if (comm->context != n->word[0] || !comm->coll || gci_comm_rank(comm, (int)n->origin) < 0 ||
            gci_comm_rank(comm, (int)n->word[4]) < 0)
            continue;
        coll_run *run = coll_find(comm, n->word[1]);
        if (run && !run->advancing)
            coll_end_mismatch(run, n);
        else if (coll_in_future(comm, n->word[1]))
            comm->coll->notice[comm->coll->notices++ % COLL_NOTICES] = *n;
    }
}

GCI int gci_coll_foreseen(const gc_comm *comm)
{
    for (int i = 0; i < COLL_NOTICES; i++) {
        const gci_notice *n = &comm->coll->notice[i];
        if (n->kind != 0 && n->word[1] == comm->coll->next)
            return -(int)n->word[5];
    }
    return GC_OK;
}

/* Somebody asks about, or sends for, a collective that has ended here. */
static void coll_answer(gc_comm *comm, int source_world_rank, uint32_t seq, uint32_t signature)
{
    coll_recent *recent = &comm->coll->recent[seq % COLL_RECENT];
    if (!recent->used || recent->seq != seq)
        return;
    gci_sys *sys = comm->world->env.sys;
    int64_t now = sys->now(sys);
    gci_notice n;
    if (recent->error < 0)
        n = coll_notice_of(comm, seq, recent->signature, recent->other, recent->other_rank, recent->error);
    else if (!gci_signature_fits(signature, recent->signature))
        n = coll_notice_of(comm, seq, recent->signature, signature, (uint32_t)source_world_rank, GC_ERR_MISMATCH);
    else
        return;
    if (recent->told != 0 && now - recent->told < COLL_TELL_EVERY)
        return;
    recent->told = now;
    coll_tell(comm, &n);
}

/* The sends of a run that have ended are in envelopes with numbers. That which failed, here or for a dead member, others tell. */
GCI bool gci_coll_is_over(gc_comm *comm, int dest_world_rank, uint32_t seq, uint32_t signature)
{
    const gci_world *w = comm->world;
    if (!comm->coll || seq > COLL_SEQ_MASK || coll_in_future(comm, seq) || comm->dead > 0 || w->aborted || w->through)
        return false;
    const coll_run *run = coll_find(comm, seq);
    if (!run) {
        const coll_recent *recent = &comm->coll->recent[seq % COLL_RECENT];
        bool known = recent->used && recent->seq == seq;
        return !known || (recent->signature == signature && recent->error == GC_OK);
    }
    if (run->signature != signature || run->advancing || run->error || (run->later && !run->later->begun))
        return false;
    for (int32_t i = 0; i < run->plan->sched.steps; i++) {
        const gci_step *step = &run->plan->sched.step[i];
        if (step->kind == GCI_STEP_SEND && !run->step[i].ended && gci_world_rank(comm, step->peer) == dest_world_rank)
            return false;
    }
    return true;
}

GCI bool gci_coll_signature(gc_comm *comm, int source_world_rank, uint32_t seq, uint32_t signature)
{
    if (!comm->coll || seq > COLL_SEQ_MASK)
        return true;
    if (coll_in_future(comm, seq))
        return comm->dead > 0;          /* if so it never begins here */
    coll_run *run = coll_find(comm, seq);
    if (!run) {
        coll_answer(comm, source_world_rank, seq, signature);
        return true;
    }
    if (gci_signature_fits(signature, run->signature))
        return false;
    gci_notice n = coll_notice_of(comm, seq, run->signature, signature, (uint32_t)source_world_rank, GC_ERR_MISMATCH);
    coll_tell(comm, &n);
    coll_end_mismatch(run, &n);
    return true;
}
