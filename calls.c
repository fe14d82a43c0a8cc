/* calls.c: the public collectives: their arguments, predictions of them, and operations of one's own.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"

#include <stdlib.h>

/* ---- the two buffers of a call ----------------------------------------------------------------------------------- */

/* One block, or a block of each rank: equal ones, or listed ones. Where a buffer is not significant it has no blocks (n 0), and
 * nothing of it is looked at. */
enum calls_shape { CALLS_ONE, CALLS_EACH, CALLS_LISTED };
enum { CALLS_SPANS = 128 };             /* more blocks than these are looked at in memory of their own */
typedef struct calls_side { const void *buf; enum calls_shape shape; int n; gci_blocks blocks; } calls_side;

static calls_side calls_one(const void *buf, size_t bytes, int n)
{
    return (calls_side){ buf, CALLS_ONE, n, { .each = bytes } };
}

static calls_side calls_each(const void *buf, size_t bytes, int n)
{
    return (calls_side){ buf, CALLS_EACH, n, { .each = bytes } };
}

static calls_side calls_listed(const void *buf, const size_t bytes[], const size_t at[], int n)
{
    return (calls_side){ buf, CALLS_LISTED, n, { .bytes = bytes, .at = at } };
}

/* How many blocks: for every rank one, at every rank or at the root alone. */
static int calls_all(const gc_comm *comm)
{
    return comm ? comm->size : 0;
}

static int calls_all_at(const gc_comm *comm, int root)
{
    return comm && comm->rank == root ? comm->size : 0;
}

/* Returns what is wrong with a buffer, or NULL. */
static const char *calls_side_wrong(const calls_side *s)
{
    bool listed = s->shape == CALLS_LISTED, overflows = !listed && s->n > 0 && s->blocks.each > SIZE_MAX / (size_t)s->n;
    size_t sum = s->n > 0 ? s->blocks.each : 0;
    if (s->n > 0 && listed && (!s->blocks.bytes || !s->blocks.at))
        return "its sizes or offsets are NULL";
    for (int i = 0; i < s->n && listed && !overflows; i++) {
        size_t bytes = s->blocks.bytes[i];
        overflows = bytes > SIZE_MAX - sum || (bytes > 0 && (bytes > SIZE_MAX - s->blocks.at[i] ||
                                                             s->blocks.at[i] + bytes > UINTPTR_MAX - (uintptr_t)s->buf));
        sum += bytes;
    }
    return overflows ? "its size overflows" : sum > 0 && !s->buf ? "it is NULL" : NULL;
}

/* Is the one buffer the other, block for block, or this rank's own block of it? */
static bool calls_is_in_place(const gci_call *call, const calls_side *from, const calls_side *to)
{
    if (from->n == 0 || to->n == 0)
        return false;
    if (from->shape == to->shape) {
        size_t bytes = from->shape == CALLS_LISTED ? (size_t)from->n * sizeof *from->blocks.at : 0;
        return from->buf == to->buf && (bytes == 0 || (memcmp(from->blocks.bytes, to->blocks.bytes, bytes) == 0 &&
                                                       memcmp(from->blocks.at, to->blocks.at, bytes) == 0));
    }
    const calls_side *one = from->shape == CALLS_ONE ? from : to, *all = one == from ? to : from;
    bool is_whole = call->coll == GCI_REDUCE_SCATTER && one->buf == all->buf;
    return call->own > 0 && (is_whole || (uintptr_t)one->buf == (uintptr_t)all->buf + gci_block_at(&all->blocks, call->rank));
}

typedef struct calls_span { uintptr_t at, end; bool written; } calls_span;

/* The bytes of a buffer; equal blocks make one span. Returns how many spans there are now. */
static int calls_add_spans(const calls_side *s, bool written, calls_span span[], int n)
{
    int blocks = s->shape == CALLS_LISTED ? s->n : s->n > 0;
    for (int i = 0; i < blocks; i++) {
        uintptr_t at = (uintptr_t)s->buf + (s->blocks.at ? s->blocks.at[i] : 0);
        size_t bytes = s->blocks.bytes ? s->blocks.bytes[i] : s->blocks.each * (size_t)s->n;
        if (bytes > 0)
            span[n++] = (calls_span){ at, at + gci_min(bytes, UINTPTR_MAX - at), written };
    }
    return n;
}

static int calls_span_order(const void *a, const void *b)
{
    uintptr_t x = ((const calls_span *)a)->at, y = ((const calls_span *)b)->at;
    return (x > y) - (x < y);
}

/* May a byte that is written be read or written a second time? */
static bool calls_collide(calls_span span[], int n)
{
    uintptr_t read = 0, written = 0;    /* how far */
    bool sorted = true;
    for (int i = 1; i < n; i++)
        sorted &= span[i - 1].at <= span[i].at;
    if (!sorted)
        qsort(span, (size_t)n, sizeof *span, calls_span_order);
    for (int i = 0; i < n; i++) {
        uintptr_t *far = span[i].written ? &written : &read;
        if (span[i].at < written || (span[i].written && span[i].at < read))
            return true;
        *far = span[i].end > *far ? span[i].end : *far;
    }
    return false;
}

static int calls_check_overlap(gc_comm *comm, const gci_call *call, const calls_side *from, const calls_side *to)
{
    calls_span some[CALLS_SPANS], *span = some;
    bool listed = from->shape == CALLS_LISTED || to->shape == CALLS_LISTED, below = (uintptr_t)from->buf < (uintptr_t)to->buf;
    bool many = listed && gci_max32(from->n, to->n) > CALLS_SPANS / 2;
    if (many)
        span = gci_alloc(&comm->world->env, ((size_t)from->n + (size_t)to->n) * sizeof *span);
    if (!span)
        return GC_OK;                   /* not seen then */
    int n = below && !call->in_place ? calls_add_spans(from, false, span, 0) : 0;       /* in order, mostly */
    n = call->in_place && to->shape == CALLS_ONE ? n : calls_add_spans(to, true, span, n);
    bool wrong = calls_collide(span, below || call->in_place ? n : calls_add_spans(from, false, span, n));
    if (many)
        gci_free(&comm->world->env, span);
    return wrong ? gci_fail(comm, GC_ERR_ARG, -1, "%s: buffers overlap, not in place", gci_coll_name(call->coll)) : GC_OK;
}

/* ---- calls ------------------------------------------------------------------------------------------------------- */

/* What every call must have. Not yet anything noted: comm may be NULL. tree: of gc_tree_*, whose root it is then. */
static int calls_begin(gc_comm *comm, enum gci_coll coll, const gc_tree *tree, int root, gc_request **request,
                       gci_coll_args *args)
{
    if (request)
        *request = NULL;
    if (!comm)
        return GC_ERR_ARG;
    const char *name = gci_coll_name(coll);
    if (!request)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: request is NULL", name);
    if (root < 0 || root >= comm->size)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: root %d is not in 0..%d", name, root, comm->size - 1);
    if (tree && (tree->size != comm->size || !gci_tree_is_sound(tree)))
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: this is no tree of %d ranks", name, comm->size);
    *args = (gci_coll_args){ .call = { .coll = coll, .rank = comm->rank, .ranks = comm->size, .root = root, .elem_bytes = 1,
                                       .commutative = true, .associative = true, .tree = tree } };
    return GC_OK;
}

/* Takes both buffers into the call, if they are fine. */
static int calls_take(gc_comm *comm, gci_coll_args *args, calls_side from, calls_side to)
{
    gci_call *call = &args->call;
    const char *name = gci_coll_name(call->coll), *wrong = calls_side_wrong(&from);
    if (wrong)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: send buffer: %s", name, wrong);
    wrong = calls_side_wrong(&to);
    if (wrong)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: receive buffer: %s", name, wrong);
    const calls_side *own = from.shape == CALLS_ONE || to.shape != CALLS_ONE ? &from : &to;
    call->own = gci_block_bytes(&own->blocks, call->rank);
    for (const calls_side *s = &from; s; s = s == &from ? &to : NULL)
        if (s->n > 0 && gci_block_bytes(&s->blocks, call->rank) != call->own)
            return gci_fail(comm, GC_ERR_ARG, -1, "%s: of this rank's own block two sizes are given", name);
    call->even = from.shape != CALLS_LISTED && to.shape != CALLS_LISTED;
    if (from.shape == CALLS_EACH || (from.shape == CALLS_LISTED && from.n > 0))
        call->send = from.blocks;
    if (to.shape == CALLS_EACH || (to.shape == CALLS_LISTED && to.n > 0))
        call->recv = to.blocks;
    call->in_place = calls_is_in_place(call, &from, &to);
    args->send = from.n > 0 ? from.buf : NULL;
    args->recv = to.n > 0 ? (void *)(uintptr_t)to.buf : NULL;
    return calls_check_overlap(comm, call, &from, &to);
}

static int calls_move(gc_comm *comm, enum gci_coll coll, const gc_tree *tree, int root, calls_side from, calls_side to,
                      gc_request **request)
{
    gci_coll_args args;
    int err = calls_begin(comm, coll, tree, root, request, &args);
    if (err == GC_OK)
        err = calls_take(comm, &args, from, to);
    return err < 0 ? err : gci_coll_start(comm, &args, request);
}

static int calls_bcast(gc_comm *comm, const gc_tree *tree, int root, void *buf, size_t bytes, gc_request **request)
{
    gci_coll_args args;
    int err = calls_begin(comm, GCI_BCAST, tree, root, request, &args);
    if (err == GC_OK)
        err = calls_take(comm, &args, calls_one(buf, bytes, 1), calls_one(buf, bytes, 1));
    if (err < 0)
        return err;
    args.call.bytes = bytes;
    args.call.in_place = false;         /* it has but one buffer */
    return gci_coll_start(comm, &args, request);
}

/* Sets elem_bytes and the promises of an operation. Returns NULL, or what is wrong. */
static const char *calls_resolve(gci_world *world, gc_type type, gc_op op, gci_coll_args *args)
{
    args->type = type;
    args->op = op;
    args->call.elem_bytes = gci_type_bytes(type);
    if (args->call.elem_bytes == 0)
        return "no such type";
    if (op < GCI_OP_FIRST_USER)
        return gci_op_predefined(op, type) ? NULL : "the operation is not defined on this type";
    gci_enter(world);
    if (op - GCI_OP_FIRST_USER < world->op_count)
        args->user = world->ops[op - GCI_OP_FIRST_USER];
    gci_leave(world);
    if (!args->user.fn)
        return "no such operation";
    if (type != GC_OPAQUE && args->user.elem_bytes != args->call.elem_bytes)
        return "the operation's element size is not the type's";
    args->call.elem_bytes = args->user.elem_bytes;
    args->call.commutative = args->user.flags & GC_OP_COMMUTATIVE;
    args->call.associative = args->user.flags & GC_OP_ASSOCIATIVE;
    return NULL;
}

/* The operation of a reduction, and the bytes of count elements. */
static int calls_elements(gc_comm *comm, const char *name, gci_coll_args *args, gc_type type, gc_op op, size_t count,
                          size_t *bytes)
{
    const char *wrong = calls_resolve(comm->world, type, op, args);
    if (wrong)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: %s (%s of %s)", name, wrong, gci_op_name(op), gci_type_name(type));
    if (count > SIZE_MAX / args->call.elem_bytes)
        return gci_fail(comm, GC_ERR_ARG, -1, "%s: %zu elements of %zu bytes overflow", name, count, args->call.elem_bytes);
    *bytes = count * args->call.elem_bytes;
    return GC_OK;
}

/* Has this rank a result? */
static bool calls_receives(enum gci_coll coll, int rank, int root)
{
    return coll == GCI_REDUCE ? rank == root : coll != GCI_EXSCAN || rank > 0;
}

/* The reductions of a vector that comes out as long as it went in. */
static int calls_vector(gc_comm *comm, enum gci_coll coll, const gc_tree *tree, int root, const void *send, void *recv,
                        size_t count, gc_type type, gc_op op, gc_request **request)
{
    gci_coll_args args;
    int err = calls_begin(comm, coll, tree, root, request, &args);
    if (err == GC_OK)
        err = calls_elements(comm, gci_coll_name(coll), &args, type, op, count, &args.call.bytes);
    if (err == GC_OK)
        err = calls_take(comm, &args, calls_one(send, args.call.bytes, 1),
                         calls_one(recv, args.call.bytes, calls_receives(coll, comm->rank, root)));
    return err < 0 ? err : gci_coll_start(comm, &args, request);
}

/* Blocks of counts[] elements, or of count each where that is NULL (else count is 0). Sizes and offsets in bytes live until the
 * call has begun. */
static int calls_reduce_scatter(gc_comm *comm, const void *send, void *recv, const size_t counts[], size_t count,
                                gc_type type, gc_op op, gc_request **request)
{
    gci_coll_args args;
    size_t bytes = 0, *lists = NULL;
    bool even = true;
    int err = calls_begin(comm, GCI_REDUCE_SCATTER, NULL, 0, request, &args);
    for (int i = 0; err == GC_OK && counts && i < comm->size; i++) {
        even &= counts[i] == counts[0];
        count = counts[i] > count ? counts[i] : count;
    }
    if (err == GC_OK)
        err = calls_elements(comm, "reduce_scatter", &args, type, op, count, &bytes);
    if (err < 0)
        return err;
    size_t n = (size_t)comm->size, elem = args.call.elem_bytes;
    calls_side from = calls_each(send, bytes, comm->size);
    if (!even) {
        lists = gci_alloc(&comm->world->env, 2 * n * sizeof *lists);
        if (!lists) {
            args.error = GC_ERR_NOMEM;
            return gci_coll_start(comm, &args, request);
        }
        from = calls_listed(send, lists, lists + n, comm->size);
        for (size_t i = 0, at = 0; i < n; i++, at += lists[i - 1]) {
            lists[i] = counts[i] * elem;
            lists[n + i] = at;
        }
        bytes = lists[comm->rank];
    }
    err = calls_take(comm, &args, from, calls_one(recv, bytes, 1));
    if (err == GC_OK)
        err = gci_coll_start(comm, &args, request);
    gci_free(&comm->world->env, lists);
    return err;
}

/* ---- the public calls: begun ------------------------------------------------------------------------------------- */

int gc_ibarrier(gc_comm *comm, gc_request **request)
{
    return calls_move(comm, GCI_BARRIER, NULL, 0, calls_one(NULL, 0, 0), calls_one(NULL, 0, 0), request);
}

int gc_ibcast(gc_comm *comm, void *buf, size_t bytes, int root, gc_request **request)
{
    return calls_bcast(comm, NULL, root, buf, bytes, request);
}

int gc_iscatter(gc_comm *comm, const void *send, size_t bytes, void *recv, int root, gc_request **request)
{
    return calls_move(comm, GCI_SCATTER, NULL, root, calls_each(send, bytes, calls_all_at(comm, root)),
                      calls_one(recv, bytes, 1), request);
}

int gc_iscatterv(gc_comm *comm, const void *send, const size_t bytes[], const size_t offsets[], void *recv,
                 size_t recv_bytes, int root, gc_request **request)
{
    return calls_move(comm, GCI_SCATTER, NULL, root, calls_listed(send, bytes, offsets, calls_all_at(comm, root)),
                      calls_one(recv, recv_bytes, 1), request);
}

int gc_igather(gc_comm *comm, const void *send, size_t bytes, void *recv, int root, gc_request **request)
{
    return calls_move(comm, GCI_GATHER, NULL, root, calls_one(send, bytes, 1),
                      calls_each(recv, bytes, calls_all_at(comm, root)), request);
}

int gc_igatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                const size_t offsets[], int root, gc_request **request)
{
    return calls_move(comm, GCI_GATHER, NULL, root, calls_one(send, send_bytes, 1),
                      calls_listed(recv, bytes, offsets, calls_all_at(comm, root)), request);
}

int gc_iallgather(gc_comm *comm, const void *send, size_t bytes, void *recv, gc_request **request)
{
    return calls_move(comm, GCI_ALLGATHER, NULL, 0, calls_one(send, bytes, 1), calls_each(recv, bytes, calls_all(comm)), request);
}

int gc_iallgatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                   const size_t offsets[], gc_request **request)
{
    return calls_move(comm, GCI_ALLGATHER, NULL, 0, calls_one(send, send_bytes, 1),
                      calls_listed(recv, bytes, offsets, calls_all(comm)), request);
}

int gc_ialltoall(gc_comm *comm, const void *send, size_t bytes, void *recv, gc_request **request)
{
    return calls_move(comm, GCI_ALLTOALL, NULL, 0, calls_each(send, bytes, calls_all(comm)),
                      calls_each(recv, bytes, calls_all(comm)), request);
}

int gc_ialltoallv(gc_comm *comm, const void *send, const size_t send_bytes[], const size_t send_offsets[],
                  void *recv, const size_t recv_bytes[], const size_t recv_offsets[], gc_request **request)
{
    return calls_move(comm, GCI_ALLTOALL, NULL, 0, calls_listed(send, send_bytes, send_offsets, calls_all(comm)),
                      calls_listed(recv, recv_bytes, recv_offsets, calls_all(comm)), request);
}

int gc_ireduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, int root,
               gc_request **request)
{
    return calls_vector(comm, GCI_REDUCE, NULL, root, send, recv, count, type, op, request);
}

int gc_iallreduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, gc_request **request)
{
    return calls_vector(comm, GCI_ALLREDUCE, NULL, 0, send, recv, count, type, op, request);
}

int gc_ireduce_scatter(gc_comm *comm, const void *send, void *recv, const size_t counts[], gc_type type, gc_op op,
                       gc_request **request)
{
    if (request)
        *request = NULL;
    if (comm && !counts)
        return gci_fail(comm, GC_ERR_ARG, -1, "reduce_scatter: counts is NULL");
    return calls_reduce_scatter(comm, send, recv, counts, 0, type, op, request);
}

int gc_ireduce_scatter_block(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op,
                             gc_request **request)
{
    return calls_reduce_scatter(comm, send, recv, NULL, count, type, op, request);
}

int gc_iscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, gc_request **request)
{
    return calls_vector(comm, GCI_SCAN, NULL, 0, send, recv, count, type, op, request);
}

int gc_iexscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, gc_request **request)
{
    return calls_vector(comm, GCI_EXSCAN, NULL, 0, send, recv, count, type, op, request);
}

/* ---- the public calls: until they are done ----------------------------------------------------------------------- */

static int calls_wait(int err, gc_request **request)
{
    return err < 0 ? err : gci_request_wait(request, GCI_FOREVER, NULL);
}

/* Begins with its argument, which gives `request`, and waits. */
#define CALLS_WAIT_FOR(begin)                                                \
    gc_request *request = NULL;                                             \
    return calls_wait((begin), &request)

int gc_barrier(gc_comm *comm)
{
    CALLS_WAIT_FOR(gc_ibarrier(comm, &request));
}

int gc_bcast(gc_comm *comm, void *buf, size_t bytes, int root)
{
    CALLS_WAIT_FOR(gc_ibcast(comm, buf, bytes, root, &request));
}

int gc_scatter(gc_comm *comm, const void *send, size_t bytes, void *recv, int root)
{
    CALLS_WAIT_FOR(gc_iscatter(comm, send, bytes, recv, root, &request));
}

int gc_scatterv(gc_comm *comm, const void *send, const size_t bytes[], const size_t offsets[], void *recv,
                size_t recv_bytes, int root)
{
    CALLS_WAIT_FOR(gc_iscatterv(comm, send, bytes, offsets, recv, recv_bytes, root, &request));
}

int gc_gather(gc_comm *comm, const void *send, size_t bytes, void *recv, int root)
{
    CALLS_WAIT_FOR(gc_igather(comm, send, bytes, recv, root, &request));
}

int gc_gatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
               const size_t offsets[], int root)
{
    CALLS_WAIT_FOR(gc_igatherv(comm, send, send_bytes, recv, bytes, offsets, root, &request));
}

int gc_allgather(gc_comm *comm, const void *send, size_t bytes, void *recv)
{
    CALLS_WAIT_FOR(gc_iallgather(comm, send, bytes, recv, &request));
}

int gc_allgatherv(gc_comm *comm, const void *send, size_t send_bytes, void *recv, const size_t bytes[],
                  const size_t offsets[])
{
    CALLS_WAIT_FOR(gc_iallgatherv(comm, send, send_bytes, recv, bytes, offsets, &request));
}

int gc_alltoall(gc_comm *comm, const void *send, size_t bytes, void *recv)
{
    CALLS_WAIT_FOR(gc_ialltoall(comm, send, bytes, recv, &request));
}

int gc_alltoallv(gc_comm *comm, const void *send, const size_t send_bytes[], const size_t send_offsets[], void *recv,
                 const size_t recv_bytes[], const size_t recv_offsets[])
{
    CALLS_WAIT_FOR(gc_ialltoallv(comm, send, send_bytes, send_offsets, recv, recv_bytes, recv_offsets, &request));
}

int gc_reduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op, int root)
{
    CALLS_WAIT_FOR(gc_ireduce(comm, send, recv, count, type, op, root, &request));
}

int gc_allreduce(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op)
{
    CALLS_WAIT_FOR(gc_iallreduce(comm, send, recv, count, type, op, &request));
}

int gc_reduce_scatter(gc_comm *comm, const void *send, void *recv, const size_t counts[], gc_type type, gc_op op)
{
    CALLS_WAIT_FOR(gc_ireduce_scatter(comm, send, recv, counts, type, op, &request));
}

int gc_reduce_scatter_block(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op)
{
    CALLS_WAIT_FOR(gc_ireduce_scatter_block(comm, send, recv, count, type, op, &request));
}

int gc_scan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op)
{
    CALLS_WAIT_FOR(gc_iscan(comm, send, recv, count, type, op, &request));
}

int gc_exscan(gc_comm *comm, const void *send, void *recv, size_t count, gc_type type, gc_op op)
{
    CALLS_WAIT_FOR(gc_iexscan(comm, send, recv, count, type, op, &request));
}

/* ---- for communicators ------------------------------------------------------------------------------------------- */

GCI int gci_allgather_unless(gc_comm *comm, int error, const void *send, size_t bytes, void *recv)
{
    gci_coll_args args;
    gc_request *request = NULL;
    int err = calls_begin(comm, GCI_ALLGATHER, NULL, 0, &request, &args);
    if (err < 0)
        return err;
    args.send = send;
    args.recv = recv;
    args.call.own = args.call.recv.each = bytes;
    args.call.even = true;
    args.error = error;
    return calls_wait(gci_coll_start(comm, &args, &request), &request);
}

/* ---- the public calls: on a given tree --------------------------------------------------------------------------- */

enum { CALLS_SIZE_BYTES = 8 };         /* of a block's size on the wire */

/* Its root, or one that is refused. */
static int calls_tree_root(const gc_tree *tree)
{
    return tree ? tree->root : -1;
}

/* Sizes as they travel, 8 bytes each whatever the ranks' own width, become this rank's, in the same memory. */
static void calls_sizes_read(void *memory, int n)
{
    const uint8_t *wire = memory;
    size_t *sizes = memory;
    for (int i = 0; i < n; i++)
        sizes[i] = gci_get_size(wire + (size_t)i * CALLS_SIZE_BYTES);
}

/* Inner ranks need the sizes of the blocks that they pass on: the root tells all, along the tree. */
static int calls_tree_blocks(gc_comm *comm, enum gci_coll coll, const gc_tree *tree, calls_side from, calls_side to)
{
    gci_coll_args tell, args;
    gc_status status;
    char text[GCI_TEXT];
    gc_request *request = NULL;
    int err = calls_begin(comm, coll, tree, calls_tree_root(tree), &request, &args);
    if (err == GC_OK)
        err = calls_take(comm, &args, from, to);
    if (err == GC_OK)
        err = calls_begin(comm, GCI_BCAST, tree, tree->root, &request, &tell);
    if (err < 0)
        return err;
    gci_blocks *blocks = coll == GCI_SCATTER ? &args.call.send : &args.call.recv;
    size_t bytes = (size_t)comm->size * CALLS_SIZE_BYTES, *sizes = gci_alloc(&comm->world->env, bytes);
    for (int i = 0; sizes && blocks->bytes && i < comm->size; i++)
        gci_put64((uint8_t *)sizes + (size_t)i * CALLS_SIZE_BYTES, blocks->bytes[i]);
    tell.send = tell.recv = sizes;
    tell.call.bytes = bytes;
    tell.call.even = true;
    tell.error = sizes ? GC_OK : GC_ERR_NOMEM;
    err = calls_wait(gci_coll_start(comm, &tell, &request), &request);
    if (sizes)
        calls_sizes_read(sizes, comm->size);
    blocks->bytes = sizes;
    args.call.known = true;
    args.error = err < 0 ? err : sizes[comm->rank] != args.call.own ? GC_ERR_MISMATCH : GC_OK;
    gc_last_error(comm, &status, text, sizeof text);
    int second = calls_wait(gci_coll_start(comm, &args, &request), &request);    /* in any case: others may have come so far */
    gci_free(&comm->world->env, sizes);
    return err < 0 ? gci_fail(comm, err, status.fault_rank, "%s", text) : second;
}

int gc_tree_bcast(gc_comm *comm, const gc_tree *tree, void *buf, size_t bytes)
{
    CALLS_WAIT_FOR(calls_bcast(comm, tree, calls_tree_root(tree), buf, bytes, &request));
}

int gc_tree_reduce(gc_comm *comm, const gc_tree *tree, const void *send, void *recv, size_t count, gc_type type,
                   gc_op op)
{
    CALLS_WAIT_FOR(calls_vector(comm, GCI_REDUCE, tree, calls_tree_root(tree), send, recv, count, type, op, &request));
}

int gc_tree_scatterv(gc_comm *comm, const gc_tree *tree, const void *send, const size_t bytes[], const size_t offsets[],
                     void *recv, size_t recv_bytes)
{
    return calls_tree_blocks(comm, GCI_SCATTER, tree,
                             calls_listed(send, bytes, offsets, calls_all_at(comm, calls_tree_root(tree))),
                             calls_one(recv, recv_bytes, 1));
}

int gc_tree_gatherv(gc_comm *comm, const gc_tree *tree, const void *send, size_t send_bytes, void *recv,
                    const size_t bytes[], const size_t offsets[])
{
    return calls_tree_blocks(comm, GCI_GATHER, tree, calls_one(send, send_bytes, 1),
                             calls_listed(recv, bytes, offsets, calls_all_at(comm, calls_tree_root(tree))));
}

/* ---- operations -------------------------------------------------------------------------------------------------- */

/* A free place in the world's table of operations, or GC_ERR_NOMEM. */
static int calls_op_place(gci_world *world)
{
    for (int i = 0; i < world->op_count; i++)
        if (!world->ops[i].fn)
            return i;
    if (world->op_count == INT32_MAX - GCI_OP_FIRST_USER)
        return GC_ERR_NOMEM;
    gci_user_op *grown = gci_realloc(&world->env, world->ops, ((size_t)world->op_count + 1) * sizeof *grown);
    if (!grown)
        return GC_ERR_NOMEM;
    world->ops = grown;
    return world->op_count++;
}

int gc_op_create(gc_comm *comm, gc_op_fn *fn, size_t elem_bytes, unsigned flags, void *user, gc_op *op)
{
    if (!comm)
        return GC_ERR_ARG;
    if (!fn || !op || elem_bytes == 0 || flags & ~(unsigned)(GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE))
        return gci_fail(comm, GC_ERR_ARG, -1, "op_create: %s", !fn ? "function is NULL" : !op ? "result is NULL" :
                        elem_bytes == 0 ? "elements of 0 bytes" : "unknown flags");
    gci_world *world = comm->world;
    gci_enter(world);
    int place = calls_op_place(world);
    if (place >= 0)
        world->ops[place] = (gci_user_op){ .fn = fn, .user = user, .elem_bytes = elem_bytes, .flags = flags };
    gci_leave(world);
    if (place < 0)
        return gci_fail(comm, place, -1, "op_create: out of memory");
    *op = GCI_OP_FIRST_USER + place;
    return GC_OK;
}

int gc_op_free(gc_comm *comm, gc_op op)
{
    if (!comm)
        return GC_ERR_ARG;
    gci_world *world = comm->world;
    gci_enter(world);
    int place = op - GCI_OP_FIRST_USER;
    bool known = op >= GCI_OP_FIRST_USER && place < world->op_count && world->ops[place].fn;
    if (known)
        world->ops[place] = (gci_user_op){ 0 };     /* running collectives have a copy */
    gci_leave(world);
    return known ? GC_OK : gci_fail(comm, GC_ERR_ARG, -1, "op_free: %d is no operation of gc_op_create", op);
}

int gc_reduce_local(gc_comm *comm, const void *in, void *inout, size_t count, gc_type type, gc_op op)
{
    if (!comm)
        return GC_ERR_ARG;
    gci_coll_args args = { .call = { .coll = GCI_REDUCE } };
    calls_span span[2];
    size_t bytes = 0;
    int err = calls_elements(comm, "reduce_local", &args, type, op, count, &bytes);
    if (err < 0)
        return err;
    const calls_side from = calls_one(in, bytes, 1), to = calls_one(inout, bytes, 1);
    int n = calls_add_spans(&to, true, span, calls_add_spans(&from, false, span, 0));
    if (bytes > 0 && (!in || !inout || calls_collide(span, n)))
        return gci_fail(comm, GC_ERR_ARG, -1, "reduce_local: buffers are NULL or overlap");
    if (bytes > 0)
        gci_coll_apply(&args, in, inout, bytes);
    return GC_OK;
}

/* ---- prediction -------------------------------------------------------------------------------------------------- */

/* By the algorithm that is named, or by that which would be taken. */
static int calls_predict(gc_comm *comm, const gc_model *model, gci_call *call, gci_algo_choice choice, double *seconds)
{
    bool free = !choice.name[0];
    int err;
    if (free)
        choice = gci_coll_would_take(comm, call);
    do {
        call->segment = choice.segment;
        err = gci_predict_call(&comm->world->env, model, call, choice.name, NULL, seconds);
    } while (free && err == GC_ERR_UNSUPPORTED && gci_choose_next(call, &choice));
    return err < 0 ? gci_fail(comm, err, -1, "gc_predict: %s by %s", gci_coll_name(call->coll), choice.name) : GC_OK;
}

int gc_predict(gc_comm *comm, const gc_model *model, const char *operation, const char *algorithm, size_t bytes, int root,
               double *seconds)
{
    gci_algo_choice choice = { .next = 0 };
    if (!comm)
        return GC_ERR_ARG;
    int coll = operation ? gci_coll_find(operation, strlen(operation)) : GCI_COLLS;
    if (coll == GCI_COLLS || !model || !seconds || root < 0 || root >= comm->size)
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_predict: no such operation or root, or NULL");
    if (model->ranks != comm->size || bytes > SIZE_MAX / 4 / (size_t)comm->size)
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_predict: the model is of %d ranks, or %zu bytes overflow", model->ranks,
                        bytes);
    if (algorithm && !gci_choose_read_name((enum gci_coll)coll, algorithm, strlen(algorithm), &choice))
        return gci_fail(comm, GC_ERR_ARG, -1, "gc_predict: %s has no algorithm \"%.40s\"", operation, algorithm);
    gci_call call = gci_decide_example((enum gci_coll)coll, comm->size, root, bytes, gci_coll_clusters(comm));
    if (!call.clusters)
        return gci_fail(comm, GC_ERR_NOMEM, -1, "gc_predict: out of memory");
    return calls_predict(comm, model, &call, choice, seconds);
}
