/* test_collectives.c: every collective, blocking and not, in place and not, of data with and without holes, of no elements and
 * of many, from every root, in communicators of all ranks, of all in another order, and of some. Of every buffer all bytes are
 * compared with what should be there, gaps and surroundings too.
 * SPDX-License-Identifier: MIT
 */
#define _POSIX_C_SOURCE 200809L
#include "map.h"

#include <complex.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum { LAYOUTS = 4, UNIT = 2 };         /* an element of any layout is two ints when it is sent */
enum { LONG_COUNT = 3000 };

/* The communicator of the moment: the calls' own ranks. */
static struct here { MPI_Comm comm; int rank, size, begun, in_place; } here;

static made layout[LAYOUTS];

/* Dense; ints apart; backwards from below the buffer's address; and a struct with padding. */
static void make_layouts(void)
{
    map one = map_basic(sizeof(int), _Alignof(int));
    const MPI_Aint back[2] = { 8, -12 }, at[2] = { 4, 12 };
    const int ones[2] = { 1, 1 };
    const MPI_Datatype ints[2] = { MPI_INT, MPI_INT };
    MPI_Datatype t;
    for (int i = 0; i < LAYOUTS; i++)
        layout[i] = (made){ MPI_DATATYPE_NULL, { 0 }, 1 };
    MPI_Type_contiguous(UNIT, MPI_INT, &layout[0].type);
    map_put_row(&layout[0].map, &one, 0, 2);
    MPI_Type_vector(2, 1, 2, MPI_INT, &t);
    MPI_Type_create_resized(t, 0, 20, &layout[1].type);
    MPI_Type_free(&t);
    map_put(&layout[1].map, &one, 0);
    map_put(&layout[1].map, &one, 8);
    map_resize(&layout[1].map, 0, 20);
    MPI_Type_create_hindexed(2, ones, back, MPI_INT, &layout[2].type);
    map_put(&layout[2].map, &one, 8);
    map_put(&layout[2].map, &one, -12);
    MPI_Type_create_struct(2, ones, at, ints, &t);
    MPI_Type_create_resized(t, -4, 24, &layout[3].type);
    MPI_Type_free(&t);
    map_put(&layout[3].map, &one, 4);
    map_put(&layout[3].map, &one, 12);
    map_resize(&layout[3].map, -4, 24);
    for (int i = 0; i < LAYOUTS; i++)
        MPI_Type_commit(&layout[i].type);
    map_free(&one);
}

/* ---- buffers ----------------------------------------------------------------------------------------------------- */

/* Elements first .. last - 1 of a layout, got and wanted. */
typedef struct side { const made *m; size_t bytes; long low; unsigned char *got, *want; } side;

static side side_new(const made *m, int first, int last, unsigned seed)
{
    long low, high, extent = map_extent(&m->map);
    map_span(&m->map, 1, &low, &high);
    side s = { .m = m };
    s.low = first * extent + low;
    s.bytes = last > first ? (size_t)((last - first - 1) * extent + high - low) : 0;
    s.got = area_new(s.bytes, seed);
    s.want = area_new(s.bytes, seed);
    return s;
}

static void *side_buf(const side *s) { return s->got - s->low; }

/* What rank `from` has for rank `to`: count elements, seen as packed. */
static unsigned char *value(int from, int to, int count)
{
    size_t bytes = (size_t)count * UNIT * sizeof(int);
    unsigned char *packed = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i++)
        packed[i] = pattern((unsigned)(1000 + from * 64 + to), i);
    return packed;
}

/* Puts count elements at an element: they are there before the call, or should be after it, or both. Frees them. */
enum { BEFORE = 1, AFTER = 2 };
static void side_put(side *s, int at, unsigned char *packed, int count, int when)
{
    long place = at * map_extent(&s->m->map) - s->low, bytes = (long)count * UNIT * (long)sizeof(int);
    if (when & BEFORE)
        map_unpack(&s->m->map, s->got + place, count, packed, bytes);
    if (when & AFTER)
        map_unpack(&s->m->map, s->want + place, count, packed, bytes);
    free(packed);
}

static void side_check(side *s)
{
    CHECK_SAME(s->got, s->want, s->bytes);
    area_free(s->got);
    area_free(s->want);
}

/* Calls a collective in the form of the moment: blocking, or not. */
#define CALL(name, iname, ...) \
    do { \
        MPI_Request request_ = MPI_REQUEST_NULL; \
        if (here.begun) { \
            CHECK_EQUAL(MPI_##iname(__VA_ARGS__, here.comm, &request_), MPI_SUCCESS); \
            CHECK_EQUAL(MPI_Wait(&request_, MPI_STATUS_IGNORE), MPI_SUCCESS); \
        } else { \
            CHECK_EQUAL(MPI_##name(__VA_ARGS__, here.comm), MPI_SUCCESS); \
        } \
    } while (0)

/* Blocks of v forms: in another order than that of ranks, with gaps, some before the buffer's address. */
typedef struct blocks { int counts[64], displs[64], first, last; } blocks;

static blocks blocks_new(void)
{
    blocks b = { .first = -3, .last = -3 };
    return b;
}

static void blocks_add(blocks *b, int rank, int count)
{
    b->counts[rank] = count;
    b->displs[rank] = b->last;
    b->last += count + rank % 3;
}

static int size_of(int rank, int count) { return (rank * 7 + 3) % 4 * count / 2; }
static int size_between(int a, int b, int count) { return ((a + b) * 3 + a * b + 1) % 4 * count / 2; }

static blocks blocks_of_all(int count)
{
    blocks b = blocks_new();
    for (int i = here.size - 1; i >= 0; i--)
        blocks_add(&b, i, size_of(i, count));
    return b;
}

/* ---- data moved -------------------------------------------------------------------------------------------------- */

typedef void moved(const made *from, const made *to, int count, int root);

static void bcast(const made *from, const made *to, int count, int root)
{
    side s = side_new(here.rank == root ? from : to, 0, count, 1);
    side_put(&s, 0, value(root, 0, count), count, here.rank == root ? BEFORE | AFTER : AFTER);
    CALL(Bcast, Ibcast, side_buf(&s), count, s.m->type, root);
    side_check(&s);
}

static void gather(const made *from, const made *to, int count, int root)
{
    int mine = here.rank == root, in_place = mine && here.in_place;
    side send = side_new(from, 0, count, 1), recv = side_new(to, 0, mine ? here.size * count : 0, 2);
    side_put(&send, 0, value(here.rank, root, count), count, BEFORE | AFTER);
    for (int i = 0; i < here.size && mine; i++)
        side_put(&recv, i * count, value(i, root, count), count, in_place && i == root ? BEFORE | AFTER : AFTER);
    CALL(Gather, Igather, in_place ? MPI_IN_PLACE : side_buf(&send), in_place ? 0 : count,
         in_place ? MPI_DATATYPE_NULL : from->type, mine ? side_buf(&recv) : NULL, mine ? count : -1,
         mine ? to->type : MPI_DATATYPE_NULL, root);
    side_check(&send);
    side_check(&recv);
}

static void gatherv(const made *from, const made *to, int count, int root)
{
    int mine = here.rank == root, in_place = mine && here.in_place, own = size_of(here.rank, count);
    blocks b = blocks_of_all(count);
    side send = side_new(from, 0, own, 1), recv = side_new(to, b.first, mine ? b.last : b.first, 2);
    side_put(&send, 0, value(here.rank, root, own), own, BEFORE | AFTER);
    for (int i = 0; i < here.size && mine; i++)
        side_put(&recv, b.displs[i], value(i, root, b.counts[i]), b.counts[i], in_place && i == root ? BEFORE | AFTER : AFTER);
    CALL(Gatherv, Igatherv, in_place ? MPI_IN_PLACE : side_buf(&send), in_place ? 0 : own,
         in_place ? MPI_DATATYPE_NULL : from->type, mine ? side_buf(&recv) : NULL, mine ? b.counts : NULL,
         mine ? b.displs : NULL, mine ? to->type : MPI_DATATYPE_NULL, root);
    side_check(&send);
    side_check(&recv);
}

static void scatter(const made *from, const made *to, int count, int root)
{
    int mine = here.rank == root, in_place = mine && here.in_place;
    side send = side_new(from, 0, mine ? here.size * count : 0, 1), recv = side_new(to, 0, count, 2);
    for (int i = 0; i < here.size && mine; i++)
        side_put(&send, i * count, value(root, i, count), count, BEFORE | AFTER);
    if (!in_place)
        side_put(&recv, 0, value(root, here.rank, count), count, AFTER);
    CALL(Scatter, Iscatter, mine ? side_buf(&send) : NULL, mine ? count : -1, mine ? from->type : MPI_DATATYPE_NULL,
         in_place ? MPI_IN_PLACE : side_buf(&recv), in_place ? 0 : count, in_place ? MPI_DATATYPE_NULL : to->type, root);
    side_check(&send);
    side_check(&recv);
}

static void scatterv(const made *from, const made *to, int count, int root)
{
    int mine = here.rank == root, in_place = mine && here.in_place, own = size_of(here.rank, count);
    blocks b = blocks_of_all(count);
    side send = side_new(from, b.first, mine ? b.last : b.first, 1), recv = side_new(to, 0, own, 2);
    for (int i = 0; i < here.size && mine; i++)
        side_put(&send, b.displs[i], value(root, i, b.counts[i]), b.counts[i], BEFORE | AFTER);
    if (!in_place)
        side_put(&recv, 0, value(root, here.rank, own), own, AFTER);
    CALL(Scatterv, Iscatterv, mine ? side_buf(&send) : NULL, mine ? b.counts : NULL, mine ? b.displs : NULL,
         mine ? from->type : MPI_DATATYPE_NULL, in_place ? MPI_IN_PLACE : side_buf(&recv), in_place ? 0 : own,
         in_place ? MPI_DATATYPE_NULL : to->type, root);
    side_check(&send);
    side_check(&recv);
}

static void allgather(const made *from, const made *to, int count, int root)
{
    side send = side_new(from, 0, count, 1), recv = side_new(to, 0, here.size * count, 2);
    side_put(&send, 0, value(here.rank, root, count), count, BEFORE | AFTER);
    for (int i = 0; i < here.size; i++)
        side_put(&recv, i * count, value(i, root, count), count, here.in_place && i == here.rank ? BEFORE | AFTER : AFTER);
    CALL(Allgather, Iallgather, here.in_place ? MPI_IN_PLACE : side_buf(&send), here.in_place ? 0 : count,
         here.in_place ? MPI_DATATYPE_NULL : from->type, side_buf(&recv), count, to->type);
    side_check(&send);
    side_check(&recv);
}

static void allgatherv(const made *from, const made *to, int count, int root)
{
    int own = size_of(here.rank, count);
    blocks b = blocks_of_all(count);
    side send = side_new(from, 0, own, 1), recv = side_new(to, b.first, b.last, 2);
    side_put(&send, 0, value(here.rank, root, own), own, BEFORE | AFTER);
    for (int i = 0; i < here.size; i++)
        side_put(&recv, b.displs[i], value(i, root, b.counts[i]), b.counts[i],
                 here.in_place && i == here.rank ? BEFORE | AFTER : AFTER);
    CALL(Allgatherv, Iallgatherv, here.in_place ? MPI_IN_PLACE : side_buf(&send), here.in_place ? 0 : own,
         here.in_place ? MPI_DATATYPE_NULL : from->type, side_buf(&recv), b.counts, b.displs, to->type);
    side_check(&send);
    side_check(&recv);
}

static void alltoall(const made *from, const made *to, int count, int root)
{
    int n = here.size;
    side send = side_new(from, 0, n * count, 1), recv = side_new(to, 0, n * count, 2);
    (void)root;
    for (int i = 0; i < n; i++) {
        side_put(&send, i * count, value(here.rank, i, count), count, BEFORE | AFTER);
        if (here.in_place)
            side_put(&recv, i * count, value(here.rank, i, count), count, BEFORE);
        side_put(&recv, i * count, value(i, here.rank, count), count, AFTER);
    }
    CALL(Alltoall, Ialltoall, here.in_place ? MPI_IN_PLACE : side_buf(&send), here.in_place ? 0 : count,
         here.in_place ? MPI_DATATYPE_NULL : from->type, side_buf(&recv), count, to->type);
    side_check(&send);
    side_check(&recv);
}

static void alltoallv(const made *from, const made *to, int count, int root)
{
    int n = here.size;
    blocks out = blocks_new(), in = blocks_new();
    (void)root;
    for (int i = 0; i < n; i++) {
        int last = n - 1 - i, shifted = (i + here.rank) % n;
        blocks_add(&out, last, size_between(here.rank, last, count));
        blocks_add(&in, shifted, size_between(here.rank, shifted, count));
    }
    side send = side_new(from, out.first, out.last, 1), recv = side_new(to, in.first, in.last, 2);
    for (int i = 0; i < n; i++) {
        int some = in.counts[i];
        side_put(&send, out.displs[i], value(here.rank, i, some), some, BEFORE | AFTER);
        if (here.in_place)
            side_put(&recv, in.displs[i], value(here.rank, i, some), some, BEFORE);
        side_put(&recv, in.displs[i], value(i, here.rank, some), some, AFTER);
    }
    CALL(Alltoallv, Ialltoallv, here.in_place ? MPI_IN_PLACE : side_buf(&send), here.in_place ? NULL : out.counts,
         here.in_place ? NULL : out.displs, here.in_place ? MPI_DATATYPE_NULL : from->type, side_buf(&recv), in.counts,
         in.displs, to->type);
    side_check(&send);
    side_check(&recv);
}

/* Of one block each in an arena of its own layout; displacements in bytes, or types at absolute addresses. */
typedef struct arena { side all, block[64]; MPI_Datatype types[64]; int counts[64], displs[64], made; void *buf; } arena;

static void arena_new(arena *a, int shift, int count, unsigned seed)
{
    size_t at = 0;
    for (int pass = 0; pass < 2; pass++) {
        if (pass == 1)
            a->all = (side){ .bytes = at, .got = area_new(at, seed), .want = area_new(at, seed) };
        at = 0;
        for (int i = 0; i < here.size; i++) {
            const made *m = &layout[(i + here.rank + shift) % LAYOUTS];
            long low, high;
            a->counts[i] = size_between(here.rank, i, count);
            map_span(&m->map, a->counts[i], &low, &high);
            if (pass == 1)
                a->block[i] = (side){ .m = m, .low = low, .got = a->all.got + at, .want = a->all.want + at };
            a->displs[i] = (int)((long)at - low);
            a->types[i] = m->type;
            at += (size_t)(high - low) + (size_t)(i % 3) * 4;
        }
    }
    a->buf = a->all.got;
    a->made = 0;
}

/* The same with MPI_BOTTOM. */
static void arena_at_the_bottom(arena *a)
{
    a->made = 1;
    a->buf = MPI_BOTTOM;
    for (int i = 0; i < here.size; i++) {
        MPI_Aint at;
        MPI_Get_address(a->all.got, &at);
        at += a->displs[i];
        MPI_Type_create_hindexed(1, &a->counts[i], &at, a->types[i], &a->types[i]);
        MPI_Type_commit(&a->types[i]);
        a->counts[i] = a->counts[i] > 0;
        a->displs[i] = 0;
    }
}

static void arena_end(arena *a)
{
    for (int i = 0; i < here.size && a->made; i++)
        MPI_Type_free(&a->types[i]);
    side_check(&a->all);
}

static void alltoallw(const made *from, const made *to, int count, int root)
{
    static arena send, recv;
    (void)to;
    if (here.begun && here.in_place && !STRICT)         /* not right in MPICH and Open MPI, which have the blocking one right */
        return;
    arena_new(&send, (int)(from - layout), count, 1);
    arena_new(&recv, root, count, 2);
    for (int i = 0; i < here.size; i++) {
        int some = recv.counts[i];
        side_put(&send.block[i], 0, value(here.rank, i, some), some, BEFORE | AFTER);
        if (here.in_place)
            side_put(&recv.block[i], 0, value(here.rank, i, some), some, BEFORE);
        side_put(&recv.block[i], 0, value(i, here.rank, some), some, AFTER);
    }
    if (root % 2 == 1) {
        arena_at_the_bottom(&send);
        arena_at_the_bottom(&recv);
    }
    CALL(Alltoallw, Ialltoallw, here.in_place ? MPI_IN_PLACE : send.buf, here.in_place ? NULL : send.counts,
         here.in_place ? NULL : send.displs, here.in_place ? NULL : send.types, recv.buf, recv.counts, recv.displs, recv.types);
    arena_end(&send);
    arena_end(&recv);
}

/* ---- data reduced ------------------------------------------------------------------------------------------------ */

/* An element is a function x -> a x + b over unsigned ints; the operation is their composition, which does not commute. */
static void compose(const uint32_t in[2], uint32_t inout[2])
{
    inout[1] = in[0] * inout[1] + in[1];
    inout[0] = in[0] * inout[0];
}

static const made *layout_of(MPI_Datatype type)
{
    MPI_Aint lb, extent;
    MPI_Type_get_extent(type, &lb, &extent);
    for (int i = 0; i < LAYOUTS; i++)
        if (layout[i].map.lb == lb && map_extent(&layout[i].map) == extent)
            return &layout[i];
    return NULL;
}

static void compose_all(void *in, void *inout, int *count, MPI_Datatype *type)
{
    const made *m = layout_of(*type);
    CHECK(m != NULL && *count > 0);
    for (int i = 0; i < *count && m; i++) {
        uint32_t a[2], b[2];
        long at = i * map_extent(&m->map);
        map_pack(&m->map, (unsigned char *)in + at, 1, (unsigned char *)a);
        map_pack(&m->map, (unsigned char *)inout + at, 1, (unsigned char *)b);
        compose(a, b);
        map_unpack(&m->map, (unsigned char *)inout + at, 1, (unsigned char *)b, sizeof b);
    }
}

/* What the ranks first .. last make of their values for `to`. */
static unsigned char *folded(int first, int last, int to, int count)
{
    unsigned char *all = value(first, to, count);
    for (int r = first + 1; r <= last; r++) {
        unsigned char *next = value(r, to, count);
        for (int i = 0; i < count; i++) {
            uint32_t a[2], b[2];
            memcpy(a, all + (size_t)i * sizeof a, sizeof a);
            memcpy(b, next + (size_t)i * sizeof b, sizeof b);
            compose(a, b);
            memcpy(all + (size_t)i * sizeof b, b, sizeof b);
        }
        free(next);
    }
    return all;
}

/* Type and operation are freed as soon as the call has begun. */
#define REDUCE(name, iname, send, recv, count, of, ...) \
    do { \
        MPI_Request request_ = MPI_REQUEST_NULL; \
        MPI_Datatype type_; \
        MPI_Op op_; \
        MPI_Type_dup((of)->type, &type_); \
        MPI_Op_create(compose_all, 0, &op_); \
        if (here.begun) \
            CHECK_EQUAL(MPI_##iname(send, recv, count, type_, op_, __VA_ARGS__ here.comm, &request_), MPI_SUCCESS); \
        else \
            CHECK_EQUAL(MPI_##name(send, recv, count, type_, op_, __VA_ARGS__ here.comm), MPI_SUCCESS); \
        if (!STRICT)                    /* Open MPI then waits for ever */ \
            MPI_Wait(&request_, MPI_STATUS_IGNORE); \
        MPI_Op_free(&op_); \
        MPI_Type_free(&type_); \
        CHECK(op_ == MPI_OP_NULL && type_ == MPI_DATATYPE_NULL); \
        CHECK_EQUAL(MPI_Wait(&request_, MPI_STATUS_IGNORE), MPI_SUCCESS); \
    } while (0)

static void reduce(const made *from, const made *to, int count, int root)
{
    int mine = here.rank == root, in_place = mine && here.in_place;
    side send = side_new(from, 0, count, 1), recv = side_new(from, 0, mine ? count : 0, 2);
    (void)to;
    side_put(&send, 0, value(here.rank, root, count), count, BEFORE | AFTER);
    if (in_place)
        side_put(&recv, 0, value(here.rank, root, count), count, BEFORE);
    if (mine)
        side_put(&recv, 0, folded(0, here.size - 1, root, count), count, AFTER);
    REDUCE(Reduce, Ireduce, in_place ? MPI_IN_PLACE : side_buf(&send), mine ? side_buf(&recv) : NULL, count, from, root,);
    side_check(&send);
    side_check(&recv);
}

/* allreduce, scan and exscan: what the ranks up to `last` make of it comes to this one; none: nothing comes. */
static side prefix_send, prefix_recv;

static void prefix_open(const made *from, int count, int last)
{
    prefix_send = side_new(from, 0, count, 1);
    prefix_recv = side_new(from, 0, count, 2);
    side_put(&prefix_send, 0, value(here.rank, 0, count), count, BEFORE | AFTER);
    if (here.in_place)
        side_put(&prefix_recv, 0, value(here.rank, 0, count), count, BEFORE | AFTER);
    if (last >= 0)
        side_put(&prefix_recv, 0, folded(0, last, 0, count), count, AFTER);
}

static void prefix_close(void)
{
    side_check(&prefix_send);
    side_check(&prefix_recv);
}
#define PREFIX_SEND (here.in_place ? MPI_IN_PLACE : side_buf(&prefix_send))

static void allreduce(const made *from, const made *to, int count, int root)
{
    (void)to, (void)root;
    prefix_open(from, count, here.size - 1);
    REDUCE(Allreduce, Iallreduce, PREFIX_SEND, side_buf(&prefix_recv), count, from,);
    prefix_close();
}

static void scan(const made *from, const made *to, int count, int root)
{
    (void)to, (void)root;
    prefix_open(from, count, here.rank);
    REDUCE(Scan, Iscan, PREFIX_SEND, side_buf(&prefix_recv), count, from,);
    prefix_close();
}

static void exscan(const made *from, const made *to, int count, int root)
{
    (void)to, (void)root;
    prefix_open(from, count, here.rank - 1);
    REDUCE(Exscan, Iexscan, PREFIX_SEND, side_buf(&prefix_recv), count, from,);
    prefix_close();
}

/* Of a vector of blocks every rank gets its own. In place what is behind the result is left open. */
static void scattered(const made *from, const int counts[], int even)
{
    int all = 0, own = counts[here.rank];
    for (int i = 0; i < here.size; i++)
        all += counts[i];
    int room = here.in_place ? all > own ? all : own : own;
    side send = side_new(from, 0, all, 1), recv = side_new(from, 0, room, 2);
    for (int i = 0, at = 0; i < here.size; at += counts[i++]) {
        side_put(&send, at, value(here.rank, i, counts[i]), counts[i], BEFORE | AFTER);
        if (here.in_place)
            side_put(&recv, at, value(here.rank, i, counts[i]), counts[i], BEFORE);
    }
    side_put(&recv, 0, folded(0, here.size - 1, here.rank, own), own, AFTER);
    void *buf = here.in_place ? MPI_IN_PLACE : side_buf(&send);
    if (even)
        REDUCE(Reduce_scatter_block, Ireduce_scatter_block, buf, side_buf(&recv), own, from,);
    else
        REDUCE(Reduce_scatter, Ireduce_scatter, buf, side_buf(&recv), counts, from,);
    if (here.in_place && room > own) {
        unsigned char *rest = malloc((size_t)(room - own) * UNIT * sizeof(int));
        map_pack(&from->map, recv.got + own * map_extent(&from->map) - recv.low, room - own, rest);
        side_put(&recv, own, rest, room - own, AFTER);
    }
    side_check(&send);
    side_check(&recv);
}

static void reduce_scatter(const made *from, const made *to, int count, int root)
{
    int counts[64];
    (void)to, (void)root;
    for (int i = 0; i < here.size; i++)
        counts[i] = size_of(i, count);
    scattered(from, counts, 0);
}

static void reduce_scatter_block(const made *from, const made *to, int count, int root)
{
    int counts[64];
    (void)to, (void)root;
    for (int i = 0; i < here.size; i++)
        counts[i] = count;
    scattered(from, counts, 1);
}

/* ---- all of them ------------------------------------------------------------------------------------------------- */

static MPI_Comm comms[3];               /* all; all, in reverse; those with odd ranks, or MPI_COMM_NULL */

static void enter(MPI_Comm comm)
{
    here.comm = comm;
    MPI_Comm_rank(comm, &here.rank);
    MPI_Comm_size(comm, &here.size);
}

/* In all communicators and forms, with all counts; from all roots, for which the others take what they need otherwise. */
static void everywhere(moved *collective)
{
    const int counts[] = { 0, 1, 2, 5, LONG_COUNT };
    int nth = 0;
    for (int c = 0; c < 3; c++) {
        if (comms[c] == MPI_COMM_NULL)
            continue;
        enter(comms[c]);
        if (here.size == 1 && !STRICT)  /* MPICH's Allgatherv then writes elsewhere */
            continue;
        for (int i = 0; i < 5; i++)
            for (int form = 0; form < 4; form++)
                for (int root = 0; root < here.size; root += counts[i] == LONG_COUNT && here.size > 2 ? here.size - 1 : 1) {
                    here.begun = form % 2;
                    here.in_place = form / 2;
                    collective(&layout[nth % LAYOUTS], &layout[(nth / LAYOUTS + form) % LAYOUTS], counts[i], root);
                    nth++;
                }
    }
}

#define EVERYWHERE(name) static void name##_everywhere(void) { everywhere(name); }
EVERYWHERE(bcast)
EVERYWHERE(gather)
EVERYWHERE(gatherv)
EVERYWHERE(scatter)
EVERYWHERE(scatterv)
EVERYWHERE(allgather)
EVERYWHERE(allgatherv)
EVERYWHERE(alltoall)
EVERYWHERE(alltoallv)
EVERYWHERE(alltoallw)
EVERYWHERE(reduce)
EVERYWHERE(allreduce)
EVERYWHERE(scan)
EVERYWHERE(exscan)
EVERYWHERE(reduce_scatter)
EVERYWHERE(reduce_scatter_block)

static double now(void)                 /* the same at all processes of a host */
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Nobody leaves before all are there: each in turn comes late. */
static void barriers(void)
{
    enter(MPI_COMM_WORLD);
    for (int late = 0; late < here.size; late++)
        for (here.begun = 0; here.begun < 2; here.begun++) {
            MPI_Request request;
            if (here.rank == late)
                nanosleep(&(struct timespec){ .tv_nsec = 3000000 }, NULL);
            double came = now();
            if (here.begun) {
                MPI_Ibarrier(here.comm, &request);
                MPI_Wait(&request, MPI_STATUS_IGNORE);
            } else {
                MPI_Barrier(here.comm);
            }
            double left = now();
            MPI_Bcast(&came, 1, MPI_DOUBLE, late, here.comm);
            CHECK(left >= came);
        }
}

/* Several at once, waited for in another order at each rank. */
static void overlapping(void)
{
    enum { N = 700, KINDS = 5 };
    static int a[N], b[N], sum[N], all[64], many[64 * N], each[64 * N];
    enter(MPI_COMM_WORLD);
    for (int round = 0; round < 4; round++) {
        MPI_Request r[KINDS];
        int wrong = 0, n = here.size;
        for (int i = 0; i < N; i++) {
            a[i] = here.rank + i + round;
            b[i] = here.rank == round % n ? i * 3 : -1;
        }
        for (int i = 0; i < n * N; i++)
            many[i] = here.rank * 1000 + i / N;
        MPI_Iallreduce(a, sum, N, MPI_INT, MPI_SUM, here.comm, &r[0]);
        MPI_Ibcast(b, N, MPI_INT, round % n, here.comm, &r[1]);
        MPI_Iallgather(&here.rank, 1, MPI_INT, all, 1, MPI_INT, here.comm, &r[2]);
        MPI_Ialltoall(many, N, MPI_INT, each, N, MPI_INT, here.comm, &r[3]);
        MPI_Ibarrier(here.comm, &r[4]);
        if (round == 3)
            MPI_Waitall(KINDS, r, MPI_STATUSES_IGNORE);
        for (int i = 0; i < KINDS; i++)
            MPI_Wait(&r[(i * (1 + round) + here.rank) % KINDS], MPI_STATUS_IGNORE);
        for (int i = 0; i < N; i++)
            wrong += sum[i] != n * (n - 1) / 2 + n * (i + round) || b[i] != i * 3;
        for (int i = 0; i < n; i++)
            wrong += all[i] != i;
        for (int i = 0; i < n * N; i++)
            wrong += each[i] != i / N * 1000 + here.rank;
        CHECK_EQUAL(wrong, 0);
    }
}

/* ---- predefined operations --------------------------------------------------------------------------------------- */

/* Of a type: how elements are made, combined and compared. fold gives 0 for an operation that the type does not have. */
typedef struct kind {
    MPI_Datatype type;
    size_t bytes;
    void (*set)(void *, int rank, int i);
    int (*fold)(MPI_Op, void *inout, const void *other);
    int (*same)(const void *, const void *);
} kind;

#define ELEMENTS(name, c_type, make, fold_ops) \
    static void set_##name(void *p, int rank, int i) { c_type x = (c_type)(make); memcpy(p, &x, sizeof x); } \
    static int same_##name(const void *p, const void *q) { return *(const c_type *)p == *(const c_type *)q; } \
    static int fold_##name(MPI_Op op, void *p, const void *q) \
    { \
        c_type a = *(c_type *)p, b = *(const c_type *)q; \
        fold_ops \
        else return 0; \
        *(c_type *)p = a; \
        return 1; \
    }
#define TIMES_PLUS(c_type)  if (op == MPI_SUM) a = (c_type)(a + b); else if (op == MPI_PROD) a = (c_type)(a * b);
#define ARITHMETIC(c_type) \
    TIMES_PLUS(c_type) else if (op == MPI_MAX) a = a > b ? a : b; else if (op == MPI_MIN) a = a < b ? a : b;
#define LOGICAL(c_type) \
    if (op == MPI_LAND) a = (c_type)(a && b); else if (op == MPI_LOR) a = (c_type)(a || b); \
    else if (op == MPI_LXOR) a = (c_type)(!a != !b);
#define BITWISE(c_type) \
    if (op == MPI_BAND) a = (c_type)(a & b); else if (op == MPI_BOR) a = (c_type)(a | b); \
    else if (op == MPI_BXOR) a = (c_type)(a ^ b);
#define INTEGER(name, c_type) \
    ELEMENTS(name, c_type, (rank * 5 + i * 3) % 7 - (i % 2 ? 3 : 0), \
             ARITHMETIC(c_type) else LOGICAL(c_type) else BITWISE(c_type))

INTEGER(schar, signed char)
INTEGER(uchar, unsigned char)
INTEGER(short, short)
INTEGER(ushort, unsigned short)
INTEGER(int, int)
INTEGER(unsigned, unsigned)
INTEGER(long, long)
INTEGER(ulong, unsigned long)
INTEGER(llong, long long)
INTEGER(ullong, unsigned long long)
ELEMENTS(byte, unsigned char, rank * 37 + i * 11, BITWISE(unsigned char))
ELEMENTS(bool, bool, (rank + i) % 3 == 0, LOGICAL(bool))
ELEMENTS(float, float, (rank * 5 + i * 3) % 7 - 3, ARITHMETIC(float))
ELEMENTS(double, double, (rank * 5 + i * 3) % 7 - 3, ARITHMETIC(double))
ELEMENTS(ldouble, long double, (rank * 5 + i * 3) % 7 - 3, ARITHMETIC(long double))
ELEMENTS(fcomplex, float complex, (rank + i) % 3 - 1 + (rank % 2) * I, TIMES_PLUS(float complex))
ELEMENTS(dcomplex, double complex, (rank + i) % 3 - 1 + (rank % 2) * I, TIMES_PLUS(double complex))
ELEMENTS(lcomplex, long double complex, (rank + i) % 3 - 1 + (rank % 2) * I, TIMES_PLUS(long double complex))

/* Few values, so there are ties; the index is not the rank. */
#define PAIRS(name, c_type) \
    typedef struct { c_type value; int index; } pair_##name; \
    static void set_##name(void *p, int rank, int i) \
    { \
        pair_##name *x = p; \
        x->value = (c_type)((rank + i) % 3 - 1); \
        x->index = (rank * 5 + 3) % 13; \
    } \
    static int same_##name(const void *p, const void *q) \
    { \
        const pair_##name *a = p, *b = q; \
        return a->value == b->value && a->index == b->index; \
    } \
    static int fold_##name(MPI_Op op, void *p, const void *q) \
    { \
        pair_##name *a = p; \
        const pair_##name *b = q; \
        if (op != MPI_MAXLOC && op != MPI_MINLOC) \
            return 0; \
        if ((op == MPI_MAXLOC ? b->value > a->value : b->value < a->value) || (a->value == b->value && b->index < a->index)) { \
            a->value = b->value; \
            a->index = b->index; \
        } \
        return 1; \
    }
PAIRS(float_int, float)
PAIRS(double_int, double)
PAIRS(long_int, long)
PAIRS(2int, int)
PAIRS(short_int, short)
PAIRS(ldouble_int, long double)

static void one_kind(const kind *k, MPI_Op op)
{
    enum { MOST = 300 };
    const int counts[] = { 0, 1, 7, MOST };
    for (int c = 0; c < 4; c++) {
        size_t bytes = (size_t)counts[c] * k->bytes;
        for (int form = 0; form < 5; form++) {  /* all reduce; so begun; in place; to a root; prefixes */
            unsigned char *send = area_new(bytes, 1), *recv = area_new(bytes, 1), *want = area_new(bytes, 1);
            int last = form == 4 ? here.rank : here.size - 1, root = c % here.size, wrong = 0, fine = 1;
            MPI_Request r = MPI_REQUEST_NULL;
            for (int i = 0; i < counts[c]; i++) {
                unsigned char other[64] = { 0 };
                k->set(send + (size_t)i * k->bytes, here.rank, i);
                k->set(want + (size_t)i * k->bytes, 0, i);
                if (form == 2)
                    k->set(recv + (size_t)i * k->bytes, here.rank, i);
                for (int from = 1; from <= last; from++) {
                    k->set(other, from, i);
                    fine &= k->fold(op, want + (size_t)i * k->bytes, other);
                }
            }
            switch (form) {
            case 0: MPI_Allreduce(send, recv, counts[c], k->type, op, here.comm); break;
            case 1: MPI_Iallreduce(send, recv, counts[c], k->type, op, here.comm, &r); break;
            case 2: MPI_Allreduce(MPI_IN_PLACE, recv, counts[c], k->type, op, here.comm); break;
            case 3: MPI_Reduce(send, recv, counts[c], k->type, op, root, here.comm); break;
            default: MPI_Scan(send, recv, counts[c], k->type, op, here.comm); break;
            }
            MPI_Wait(&r, MPI_STATUS_IGNORE);
            for (int i = 0; i < counts[c] && (form != 3 || here.rank == root); i++)
                wrong += !k->same(recv + (size_t)i * k->bytes, want + (size_t)i * k->bytes);
            for (int i = 1; i <= GUARD; i++)    /* of elements themselves their padding is open */
                wrong += recv[-i] != want[-i] || recv[bytes + (size_t)i - 1] != want[bytes + (size_t)i - 1];
            CHECK(fine && wrong == 0);
            area_free(send);
            area_free(recv);
            area_free(want);
        }
    }
}

static void predefined_operations(void)
{
    const MPI_Op ops[] = { MPI_SUM, MPI_PROD, MPI_MAX, MPI_MIN, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR,
                           MPI_MAXLOC, MPI_MINLOC };
#define KIND(type, name, c_type) { type, sizeof(c_type), set_##name, fold_##name, same_##name }
    const kind kinds[] = {
        KIND(MPI_SIGNED_CHAR, schar, signed char), KIND(MPI_UNSIGNED_CHAR, uchar, unsigned char),
        KIND(MPI_SHORT, short, short), KIND(MPI_UNSIGNED_SHORT, ushort, unsigned short), KIND(MPI_INT, int, int),
        KIND(MPI_UNSIGNED, unsigned, unsigned), KIND(MPI_LONG, long, long), KIND(MPI_UNSIGNED_LONG, ulong, unsigned long),
        KIND(MPI_LONG_LONG, llong, long long), KIND(MPI_UNSIGNED_LONG_LONG, ullong, unsigned long long),
        KIND(MPI_INT8_T, schar, int8_t), KIND(MPI_UINT8_T, uchar, uint8_t), KIND(MPI_INT16_T, short, int16_t),
        KIND(MPI_UINT16_T, ushort, uint16_t), KIND(MPI_INT32_T, int, int32_t), KIND(MPI_UINT32_T, unsigned, uint32_t),
        KIND(MPI_INT64_T, llong, int64_t), KIND(MPI_UINT64_T, ullong, uint64_t), KIND(MPI_BYTE, byte, char),
        KIND(MPI_C_BOOL, bool, bool), KIND(MPI_FLOAT, float, float), KIND(MPI_DOUBLE, double, double),
        KIND(MPI_LONG_DOUBLE, ldouble, long double), KIND(MPI_C_FLOAT_COMPLEX, fcomplex, float complex),
        KIND(MPI_C_DOUBLE_COMPLEX, dcomplex, double complex), KIND(MPI_C_LONG_DOUBLE_COMPLEX, lcomplex, long double complex),
        KIND(MPI_FLOAT_INT, float_int, pair_float_int), KIND(MPI_DOUBLE_INT, double_int, pair_double_int),
        KIND(MPI_LONG_INT, long_int, pair_long_int), KIND(MPI_2INT, 2int, pair_2int),
        KIND(MPI_SHORT_INT, short_int, pair_short_int), KIND(MPI_LONG_DOUBLE_INT, ldouble_int, pair_ldouble_int) };
    enter(comms[1]);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++)
        for (size_t o = 0; o < sizeof ops / sizeof *ops; o++) {
            unsigned char a[64] = { 0 }, b[64] = { 0 };
            kinds[k].set(a, 0, 1);
            kinds[k].set(b, 1, 1);
            if (kinds[k].fold(ops[o], a, b))
                one_kind(&kinds[k], ops[o]);
        }
}

/* ---- operations of one's own ------------------------------------------------------------------------------------- */

static void add_lengths(void *in, void *inout, int *count, MPI_Datatype *type)
{
    (void)type;
    for (int i = 0; i < *count; i++)
        ((double *)inout)[i] += ((double *)in)[i];
}

static void own_operations(void)
{
    MPI_Op op;
    int commutes = -1;
    double x[3] = { check.rank, 1, 2 }, sum[3];
    MPI_Op_create(add_lengths, 1, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK(commutes == 1);
    for (int i = 0; i < 3; i++) {       /* again and again */
        MPI_Allreduce(x, sum, 3, MPI_DOUBLE, op, MPI_COMM_WORLD);
        CHECK(sum[0] == check.size * (check.size - 1) / 2 && sum[1] == check.size && sum[2] == 2 * check.size);
    }
    MPI_Op_free(&op);
    MPI_Op_create(add_lengths, 0, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK(commutes == 0);
    MPI_Op_free(&op);
    MPI_Op_commutative(MPI_SUM, &commutes);
    CHECK(commutes == 1);
}

static void locally(void)
{
    for (int l = 0; l < LAYOUTS; l++)
        for (int count = 0; count < 5; count++) {
            MPI_Op op;
            side in = side_new(&layout[l], 0, count, 1), inout = side_new(&layout[l], 0, count, 2);
            side_put(&in, 0, value(0, 9, count), count, BEFORE | AFTER);
            side_put(&inout, 0, value(1, 9, count), count, BEFORE);
            side_put(&inout, 0, folded(0, 1, 9, count), count, AFTER);
            MPI_Op_create(compose_all, 0, &op);
            MPI_Reduce_local(side_buf(&in), side_buf(&inout), count, layout[l].type, op);
            MPI_Op_free(&op);
            side_check(&in);
            side_check(&inout);
        }
    int a[3] = { 1, 5, -2 }, b[3] = { 3, 4, -7 };
    MPI_Reduce_local(a, b, 3, MPI_INT, MPI_MAX);
    CHECK(b[0] == 3 && b[1] == 5 && b[2] == -2 && a[0] == 1);
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 200);
    make_layouts();
    MPI_Comm_dup(MPI_COMM_WORLD, &comms[0]);
    MPI_Comm_split(MPI_COMM_WORLD, 0, -check.rank, &comms[1]);
    MPI_Comm_split(MPI_COMM_WORLD, check.rank % 2 ? 0 : MPI_UNDEFINED, 0, &comms[2]);
    run("barrier", barriers);
    run("bcast", bcast_everywhere);
    run("gather", gather_everywhere);
    run("gatherv", gatherv_everywhere);
    run("scatter", scatter_everywhere);
    run("scatterv", scatterv_everywhere);
    run("allgather", allgather_everywhere);
    run("allgatherv", allgatherv_everywhere);
    run("alltoall", alltoall_everywhere);
    run("alltoallv", alltoallv_everywhere);
    run("alltoallw", alltoallw_everywhere);
    run("reduce", reduce_everywhere);
    run("allreduce", allreduce_everywhere);
    run("scan", scan_everywhere);
    run("exscan", exscan_everywhere);
    run("reduce_scatter", reduce_scatter_everywhere);
    run("reduce_scatter_block", reduce_scatter_block_everywhere);
    run("several at once", overlapping);
    run("predefined operations", predefined_operations);
    run("operations of one's own", own_operations);
    run("reduced locally", locally);
    for (int i = 0; i < LAYOUTS; i++)
        made_free(&layout[i]);
    for (int i = 0; i < 3; i++)
        if (comms[i] != MPI_COMM_NULL)
            MPI_Comm_free(&comms[i]);
    return check_end();
}
