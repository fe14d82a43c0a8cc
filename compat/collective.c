/* collective.c: collectives, each written once for both its forms: `out` is where the request goes, or NULL if the call blocks.
 * SPDX-License-Identifier: MIT
 *
 * A call opens its sides (in place: the one that is there serves for both), begins or runs gridcomm's collective, and closes
 * them when it is complete: here, or with the request.
 */
#include "mpi_int.h"

typedef struct collective {
    MPI_Request r;                      /* stack, if the call blocks */
    MPI_Request *out;
    MPI_Comm comm;
    const char *call;
    int blocks;                         /* of a side that has one for each rank */
    int class, err;                     /* the first error, of ours or of gridcomm's */
    struct gcm_request stack;
} collective;

static void open_call(collective *c, const char *call, MPI_Comm comm, MPI_Request *out)
{
    *c = (collective){ .out = out, .comm = comm, .call = call };
    c->class = gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_SUCCESS;
    c->blocks = c->class ? 0 : comm->size;
    c->r = out && !c->class ? gcm_request_new(comm, call) : &c->stack;
    if (!c->r) {
        c->class = MPI_ERR_NO_MEM;
        c->r = &c->stack;
    }
}

/* With a root: is it this rank? */
static bool open_rooted(collective *c, const char *call, MPI_Comm comm, int root, MPI_Request *out)
{
    open_call(c, call, comm, out);
    if (!c->class && (root < 0 || root >= comm->size))
        c->class = MPI_ERR_ROOT;
    return !c->class && root == comm->rank;
}

static void open_side(collective *c, gcm_side *side, int how, const gcm_side *described)
{
    if (c->class)
        return;
    *side = *described;
    c->class = gcm_side_open(side, how);
    if (c->class)
        *side = (gcm_side){ 0 };
}
#define SEND_SIDE(c, ...)      open_side(c, &(c)->r->send, GCM_LOAD, &(gcm_side){ __VA_ARGS__ })
#define RECV_SIDE(c, how, ...) open_side(c, &(c)->r->recv, how, &(gcm_side){ __VA_ARGS__ })

/* This rank's own block of a side that has one for each rank: in place it is the other side. */
static gcm_side own_block(const gcm_side *large, int rank)
{
    gcm_side own = { .at = large->at, .bytes = large->sizes ? large->sizes[rank] : large->bytes };
    if (own.bytes > 0)
        own.at += large->sizes ? large->offsets[rank] : (size_t)rank * large->bytes;
    return own;
}

/* What a rank has for itself is as long on both sides. */
static void compare(collective *c, size_t a, size_t b)
{
    if (!c->class && a != b)
        c->class = MPI_ERR_TRUNCATE;
}

static int close_call(collective *c)
{
    bool failed = c->class || c->err;
    gcm_reduction_begun(&c->r->reduction);
    if (c->r == &c->stack) {
        gcm_side_close(&c->r->send, false, 0);
        gcm_side_close(&c->r->recv, !failed, SIZE_MAX);
        gcm_reduction_close(&c->r->reduction);
    } else if (failed) {
        gcm_request_drop(c->r, false, 0);
    }
    if (c->out)
        *c->out = failed ? MPI_REQUEST_NULL : c->r;
    int class = c->class ? gcm_error(c->comm, c->call, c->class, NULL) : gcm_gc_error(c->comm, c->call, c->err);
    if (!c->out)
        gcm_orphans_unpack();
    return class;
}

#define RUN(c, op, ...) \
    do { \
        if (!(c)->class) \
            (c)->err = (c)->out ? gc_i##op((c)->comm->gc, __VA_ARGS__, &(c)->r->gc) : gc_##op((c)->comm->gc, __VA_ARGS__); \
    } while (0)

/* ---- data moved -------------------------------------------------------------------------------------------------- */

static int barrier(const char *call, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    if (!c.class)
        c.err = out ? gc_ibarrier(comm->gc, &c.r->gc) : gc_barrier(comm->gc);
    return close_call(&c);
}

static int bcast(const char *call, void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    if (mine)
        SEND_SIDE(&c, .buf = buf, .type = type, .blocks = 1, .count = count);
    else
        RECV_SIDE(&c, GCM_STORE, .buf = buf, .type = type, .blocks = 1, .count = count);
    const gcm_side *side = mine ? &c.r->send : &c.r->recv;
    RUN(&c, bcast, side->at, side->bytes, root);
    return close_call(&c);
}

/* One block here, and at the root (if so) those of all, as listed or in a row. */
static void open_gather(collective *c, bool mine, const void *send, int send_count, MPI_Datatype send_type,
                        const gcm_side *recv)
{
    bool in_place = send == MPI_IN_PLACE;
    if (mine)
        open_side(c, &c->r->recv, in_place ? GCM_LOAD | GCM_STORE : GCM_STORE, recv);
    if (!in_place)
        SEND_SIDE(c, .buf = (void *)(uintptr_t)send, .type = send_type, .blocks = 1, .count = send_count);
    else if (!mine && !c->class)
        c->class = MPI_ERR_BUFFER;      /* in place is for who has the larger side */
    if (!mine || c->class)
        return;
    const gcm_side own = own_block(&c->r->recv, c->comm->rank);
    if (in_place)
        c->r->send = own;
    else
        compare(c, c->r->send.bytes, own.bytes);
}

static int gather(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    open_gather(&c, mine, send, send_count, send_type,
                &(gcm_side){ .buf = recv, .type = recv_type, .blocks = c.blocks, .count = recv_count });
    RUN(&c, gather, c.r->send.at, c.r->send.bytes, c.r->recv.at, root);
    return close_call(&c);
}

static int gatherv(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv, const int counts[],
                   const int displs[], MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    if (mine && !counts)
        c.class = MPI_ERR_ARG;
    open_gather(&c, mine, send, send_count, send_type,
                &(gcm_side){ .buf = recv, .type = recv_type, .blocks = c.blocks, .counts = counts,
                             .displs = displs });
    RUN(&c, gatherv, c.r->send.at, c.r->send.bytes, c.r->recv.at, c.r->recv.sizes, c.r->recv.offsets, root);
    return close_call(&c);
}

static void open_scatter(collective *c, bool mine, const gcm_side *send, void *recv, int recv_count, MPI_Datatype recv_type)
{
    bool in_place = recv == MPI_IN_PLACE;
    if (mine)
        open_side(c, &c->r->send, GCM_LOAD, send);
    if (!in_place)
        RECV_SIDE(c, GCM_STORE, .buf = recv, .type = recv_type, .blocks = 1, .count = recv_count);
    else if (!mine && !c->class)
        c->class = MPI_ERR_BUFFER;
    if (!mine || c->class)
        return;
    const gcm_side own = own_block(&c->r->send, c->comm->rank);
    if (in_place)
        c->r->recv = own;
    else
        compare(c, c->r->recv.bytes, own.bytes);
}

static int scatter(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    open_scatter(&c, mine, &(gcm_side){ .buf = (void *)(uintptr_t)send, .type = send_type, .blocks = c.blocks,
                                        .count = send_count }, recv, recv_count, recv_type);
    RUN(&c, scatter, c.r->send.at, c.r->recv.bytes, c.r->recv.at, root);
    return close_call(&c);
}

static int scatterv(const char *call, const void *send, const int counts[], const int displs[], MPI_Datatype send_type,
                    void *recv, int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    if (mine && !counts)
        c.class = MPI_ERR_ARG;
    open_scatter(&c, mine, &(gcm_side){ .buf = (void *)(uintptr_t)send, .type = send_type, .blocks = c.blocks,
                                        .counts = counts, .displs = displs }, recv, recv_count, recv_type);
    RUN(&c, scatterv, c.r->send.at, c.r->send.sizes, c.r->send.offsets, c.r->recv.at, c.r->recv.bytes, root);
    return close_call(&c);
}

static int allgather(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                     MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    open_gather(&c, true, send, send_count, send_type,
                &(gcm_side){ .buf = recv, .type = recv_type, .blocks = c.blocks, .count = recv_count });
    RUN(&c, allgather, c.r->send.at, c.r->send.bytes, c.r->recv.at);
    return close_call(&c);
}

static int allgatherv(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv,
                      const int counts[], const int displs[], MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    if (!c.class && !counts)
        c.class = MPI_ERR_ARG;
    open_gather(&c, true, send, send_count, send_type,
                &(gcm_side){ .buf = recv, .type = recv_type, .blocks = c.blocks, .counts = counts,
                             .displs = displs });
    RUN(&c, allgatherv, c.r->send.at, c.r->send.bytes, c.r->recv.at, c.r->recv.sizes, c.r->recv.offsets);
    return close_call(&c);
}

/* Both sides have a block for each rank; in place there is but one side. Returns the one that is sent. */
static const gcm_side *open_alltoall(collective *c, const gcm_side *send, const gcm_side *recv)
{
    bool in_place = send->buf == MPI_IN_PLACE;
    open_side(c, &c->r->recv, in_place ? GCM_LOAD | GCM_STORE : GCM_STORE, recv);
    if (!in_place)
        open_side(c, &c->r->send, GCM_LOAD, send);
    return in_place ? &c->r->recv : &c->r->send;
}

static int alltoall(const char *call, const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                    MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    const gcm_side *from = open_alltoall(
        &c, &(gcm_side){ .buf = (void *)(uintptr_t)send, .type = send_type, .blocks = c.blocks, .count = send_count },
        &(gcm_side){ .buf = recv, .type = recv_type, .blocks = c.blocks, .count = recv_count });
    compare(&c, from->bytes, c.r->recv.bytes);
    RUN(&c, alltoall, from->at, from->bytes, c.r->recv.at);
    return close_call(&c);
}

static int alltoallv(const char *call, const gcm_side *send, const gcm_side *recv, MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    if (!c.class && (!recv->counts || (send->buf != MPI_IN_PLACE && !send->counts)))
        c.class = MPI_ERR_ARG;
    gcm_side s = *send, r = *recv;
    s.blocks = r.blocks = c.blocks;
    const gcm_side *from = open_alltoall(&c, &s, &r);
    RUN(&c, alltoallv, from->at, from->sizes, from->offsets, c.r->recv.at, c.r->recv.sizes, c.r->recv.offsets);
    return close_call(&c);
}
#define LISTED_SIDE(b, t, ts, c, d) \
    (&(gcm_side){ .buf = (void *)(uintptr_t)(b), .type = (t), .types = (ts), .counts = (c), .displs = (d) })

/* ---- data reduced ------------------------------------------------------------------------------------------------ */

/* A vector of send_count here, of which recv_count come back, if at all; in place there is but the receive side. Returns the
 * one that is sent. */
static const gcm_side *open_reduction(collective *c, const void *send, void *recv, size_t send_count, int recv_count, int how,
                                      MPI_Datatype type, MPI_Op op)
{
    bool in_place = send == MPI_IN_PLACE;
    if (!c->class && send_count > INT_MAX)
        c->class = MPI_ERR_COUNT;
    if (!c->class && in_place && !how)
        c->class = MPI_ERR_BUFFER;
    if (!c->class)
        c->class = gcm_reduction_open(&c->r->reduction, op, type);
    if (how)
        RECV_SIDE(c, in_place ? GCM_LOAD | GCM_STORE : how, .buf = recv, .type = type, .blocks = 1,
                  .count = in_place ? (int)send_count : recv_count);
    if (!in_place)
        SEND_SIDE(c, .buf = (void *)(uintptr_t)send, .type = type, .blocks = 1, .count = (int)send_count);
    return in_place ? &c->r->recv : &c->r->send;
}

static size_t elements(const collective *c, MPI_Datatype type, int count)      /* of gridcomm's */
{
    return !c->class && type->size ? (size_t)count : 0;
}

static int reduce(const char *call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root,
                  MPI_Comm comm, MPI_Request *out)
{
    collective c;
    bool mine = open_rooted(&c, call, comm, root, out);
    const gcm_side *from = open_reduction(&c, send, recv, (size_t)count, count, mine ? GCM_STORE : 0, type, op);
    const gcm_reduction *r = &c.r->reduction;
    RUN(&c, reduce, from->at, c.r->recv.at, elements(&c, type, count), r->type, r->op, root);
    return close_call(&c);
}

static int allreduce(const char *call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                     MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    const gcm_side *from = open_reduction(&c, send, recv, (size_t)count, count, GCM_STORE, type, op);
    const gcm_reduction *r = &c.r->reduction;
    RUN(&c, allreduce, from->at, c.r->recv.at, elements(&c, type, count), r->type, r->op);
    return close_call(&c);
}

static int scan(const char *call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    const gcm_side *from = open_reduction(&c, send, recv, (size_t)count, count, GCM_STORE, type, op);
    const gcm_reduction *r = &c.r->reduction;
    RUN(&c, scan, from->at, c.r->recv.at, elements(&c, type, count), r->type, r->op);
    return close_call(&c);
}

/* Rank 0 keeps what it has. */
static int exscan(const char *call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                  MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    bool first = !c.class && comm->rank == 0 && send != MPI_IN_PLACE;
    const gcm_side *from = open_reduction(&c, send, recv, (size_t)count, count, first ? 0 : GCM_STORE, type, op);
    const gcm_reduction *r = &c.r->reduction;
    RUN(&c, exscan, from->at, c.r->recv.at, elements(&c, type, count), r->type, r->op);
    return close_call(&c);
}

static int reduce_scatter(const char *call, const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op,
                          MPI_Comm comm, MPI_Request *out)
{
    collective c;
    size_t all = 0, *sizes = NULL;
    open_call(&c, call, comm, out);
    if (!c.class && !counts)
        c.class = MPI_ERR_ARG;
    if (!c.class && !(sizes = malloc((size_t)comm->size * sizeof *sizes)))
        c.class = MPI_ERR_NO_MEM;
    for (int i = 0; !c.class && i < comm->size; i++) {
        c.class = counts[i] < 0 ? MPI_ERR_COUNT : MPI_SUCCESS;
        all += sizes[i] = (size_t)counts[i];
    }
    const gcm_side *from = open_reduction(&c, send, recv, all, c.class ? 0 : counts[comm->rank], GCM_STORE, type, op);
    for (int i = 0; !c.class && i < comm->size; i++)
        sizes[i] = elements(&c, type, counts[i]);
    RUN(&c, reduce_scatter, from->at, c.r->recv.at, sizes, c.r->reduction.type, c.r->reduction.op);
    free(sizes);
    return close_call(&c);
}

static int reduce_scatter_block(const char *call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
                                MPI_Comm comm, MPI_Request *out)
{
    collective c;
    open_call(&c, call, comm, out);
    if (!c.class && count < 0)
        c.class = MPI_ERR_COUNT;
    size_t all = c.class ? 0 : (size_t)count * (size_t)comm->size;
    const gcm_side *from = open_reduction(&c, send, recv, all, count, GCM_STORE, type, op);
    const gcm_reduction *r = &c.r->reduction;
    RUN(&c, reduce_scatter_block, from->at, c.r->recv.at, elements(&c, type, count), r->type, r->op);
    return close_call(&c);
}

/* ---- the two forms of each --------------------------------------------------------------------------------------- */

int MPI_Barrier(MPI_Comm comm) { return barrier(__func__, comm, NULL); }
int MPI_Ibarrier(MPI_Comm comm, MPI_Request *request) { return barrier(__func__, comm, request); }

int MPI_Bcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm)
{
    return bcast(__func__, buf, count, type, root, comm, NULL);
}

int MPI_Ibcast(void *buf, int count, MPI_Datatype type, int root, MPI_Comm comm, MPI_Request *request)
{
    return bcast(__func__, buf, count, type, root, comm, request);
}

int MPI_Gather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
               MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    return gather(__func__, send, send_count, send_type, recv, recv_count, recv_type, root, comm, NULL);
}

int MPI_Igather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
    return gather(__func__, send, send_count, send_type, recv, recv_count, recv_type, root, comm, request);
}

int MPI_Gatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                const int displs[], MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    return gatherv(__func__, send, send_count, send_type, recv, recv_counts, displs, recv_type, root, comm, NULL);
}

int MPI_Igatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                 const int displs[], MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
    return gatherv(__func__, send, send_count, send_type, recv, recv_counts, displs, recv_type, root, comm, request);
}

int MPI_Scatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    return scatter(__func__, send, send_count, send_type, recv, recv_count, recv_type, root, comm, NULL);
}

int MPI_Iscatter(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
    return scatter(__func__, send, send_count, send_type, recv, recv_count, recv_type, root, comm, request);
}

int MPI_Scatterv(const void *send, const int send_counts[], const int displs[], MPI_Datatype send_type, void *recv,
                 int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm)
{
    return scatterv(__func__, send, send_counts, displs, send_type, recv, recv_count, recv_type, root, comm, NULL);
}

int MPI_Iscatterv(const void *send, const int send_counts[], const int displs[], MPI_Datatype send_type, void *recv,
                  int recv_count, MPI_Datatype recv_type, int root, MPI_Comm comm, MPI_Request *request)
{
    return scatterv(__func__, send, send_counts, displs, send_type, recv, recv_count, recv_type, root, comm, request);
}

int MPI_Allgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm)
{
    return allgather(__func__, send, send_count, send_type, recv, recv_count, recv_type, comm, NULL);
}

int MPI_Iallgather(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                   MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
    return allgather(__func__, send, send_count, send_type, recv, recv_count, recv_type, comm, request);
}

int MPI_Allgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                   const int displs[], MPI_Datatype recv_type, MPI_Comm comm)
{
    return allgatherv(__func__, send, send_count, send_type, recv, recv_counts, displs, recv_type, comm, NULL);
}

int MPI_Iallgatherv(const void *send, int send_count, MPI_Datatype send_type, void *recv, const int recv_counts[],
                    const int displs[], MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
    return allgatherv(__func__, send, send_count, send_type, recv, recv_counts, displs, recv_type, comm, request);
}

int MPI_Alltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                 MPI_Datatype recv_type, MPI_Comm comm)
{
    return alltoall(__func__, send, send_count, send_type, recv, recv_count, recv_type, comm, NULL);
}

int MPI_Ialltoall(const void *send, int send_count, MPI_Datatype send_type, void *recv, int recv_count,
                  MPI_Datatype recv_type, MPI_Comm comm, MPI_Request *request)
{
    return alltoall(__func__, send, send_count, send_type, recv, recv_count, recv_type, comm, request);
}

int MPI_Alltoallv(const void *send, const int send_counts[], const int send_displs[], MPI_Datatype send_type, void *recv,
                  const int recv_counts[], const int recv_displs[], MPI_Datatype recv_type, MPI_Comm comm)
{
    return alltoallv(__func__, LISTED_SIDE(send, send_type, NULL, send_counts, send_displs),
                     LISTED_SIDE(recv, recv_type, NULL, recv_counts, recv_displs), comm, NULL);
}

int MPI_Ialltoallv(const void *send, const int send_counts[], const int send_displs[], MPI_Datatype send_type, void *recv,
                   const int recv_counts[], const int recv_displs[], MPI_Datatype recv_type, MPI_Comm comm,
                   MPI_Request *request)
{
    return alltoallv(__func__, LISTED_SIDE(send, send_type, NULL, send_counts, send_displs),
                     LISTED_SIDE(recv, recv_type, NULL, recv_counts, recv_displs), comm, request);
}

int MPI_Alltoallw(const void *send, const int send_counts[], const int send_displs[], const MPI_Datatype send_types[],
                  void *recv, const int recv_counts[], const int recv_displs[], const MPI_Datatype recv_types[], MPI_Comm comm)
{
    return alltoallv(__func__, LISTED_SIDE(send, NULL, send_types, send_counts, send_displs),
                     LISTED_SIDE(recv, NULL, recv_types, recv_counts, recv_displs), comm, NULL);
}

int MPI_Ialltoallw(const void *send, const int send_counts[], const int send_displs[], const MPI_Datatype send_types[],
                   void *recv, const int recv_counts[], const int recv_displs[], const MPI_Datatype recv_types[],
                   MPI_Comm comm, MPI_Request *request)
{
    return alltoallv(__func__, LISTED_SIDE(send, NULL, send_types, send_counts, send_displs),
                     LISTED_SIDE(recv, NULL, recv_types, recv_counts, recv_displs), comm, request);
}

int MPI_Reduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm)
{
    return reduce(__func__, send, recv, count, type, op, root, comm, NULL);
}

int MPI_Ireduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root, MPI_Comm comm,
                MPI_Request *request)
{
    return reduce(__func__, send, recv, count, type, op, root, comm, request);
}

int MPI_Allreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return allreduce(__func__, send, recv, count, type, op, comm, NULL);
}

int MPI_Iallreduce(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    return allreduce(__func__, send, recv, count, type, op, comm, request);
}

int MPI_Reduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return reduce_scatter(__func__, send, recv, counts, type, op, comm, NULL);
}

int MPI_Ireduce_scatter(const void *send, void *recv, const int counts[], MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                        MPI_Request *request)
{
    return reduce_scatter(__func__, send, recv, counts, type, op, comm, request);
}

int MPI_Reduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return reduce_scatter_block(__func__, send, recv, count, type, op, comm, NULL);
}

int MPI_Ireduce_scatter_block(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm,
                              MPI_Request *request)
{
    return reduce_scatter_block(__func__, send, recv, count, type, op, comm, request);
}

int MPI_Scan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return scan(__func__, send, recv, count, type, op, comm, NULL);
}

int MPI_Iscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    return scan(__func__, send, recv, count, type, op, comm, request);
}

int MPI_Exscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm)
{
    return exscan(__func__, send, recv, count, type, op, comm, NULL);
}

int MPI_Iexscan(const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, MPI_Comm comm, MPI_Request *request)
{
    return exscan(__func__, send, recv, count, type, op, comm, request);
}
