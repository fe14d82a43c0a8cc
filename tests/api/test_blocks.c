/* test_blocks.c: collectives of blocks between ranks: scatter, gather, allgather, alltoall and reduce_scatter, even and
 * uneven, with gaps and in place, and those on a given tree; every byte received, and every byte that must stay.
 * SPDX-License-Identifier: MIT
 */
#include "colls.h"

enum { RANKS_MAX = 16, GAP = 0x77 };

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

/* One block for each rank, in some order, with gaps between that nothing may touch. */
typedef struct blocks { int n; size_t bytes[RANKS_MAX], at[RANKS_MAX], extent; uint8_t *buf; } blocks;

/* Uneven sizes: of 7 blocks 2 are empty. */
static size_t size_of(size_t base, int from, int to)
{
    size_t h = (size_t)(from * 5 + to * 3) % 7;
    return h % 4 == 0 ? 0 : base * h + h;
}

/* gap 0: packed in the order of ranks; else spread, the last block first. */
static void blocks_place(blocks *b, size_t gap)
{
    b->extent = gap;
    for (int i = 0; i < b->n; i++) {
        int k = gap ? b->n - 1 - i : i;
        b->at[k] = b->extent;
        b->extent += b->bytes[k] + gap;
    }
    b->buf = gct_buffer(b->extent);
    memset(b->buf, GAP, b->extent);
}

static void blocks_fill(blocks *b, int source, int tag)
{
    for (int i = 0; i < b->n; i++)
        gct_fill(b->buf + b->at[i], b->bytes[i], source, tag + i);
}

/* Frees them; 1 if a gap was touched. */
static int blocks_free(blocks *b)
{
    int wrong = 0;
    for (int i = 0; i < b->n; i++)
        memset(b->buf + b->at[i], GAP, b->bytes[i]);
    for (size_t i = 0; i < b->extent; i++)
        wrong |= b->buf[i] != GAP;
    return gct_buffer_free(b->buf) | wrong;
}

/* ---- scatter and gather ------------------------------------------------------------------------------------------ */

/* How the blocks are given: as equal ones, as listed ones, or listed and along a tree. */
typedef struct way { bool listed; const gc_tree *tree; size_t base, gap; bool in_place; } way;

static size_t way_size(const way *w, int root, int rank)
{
    return w->listed ? size_of(w->base, root, rank) : w->base;
}

static void way_blocks(const way *w, blocks *b, int n, int root)
{
    b->n = n;
    for (int i = 0; i < n; i++)
        b->bytes[i] = way_size(w, root, i);
    blocks_place(b, w->listed ? w->gap : 0);
}

static int try_scatter(gc_comm *comm, int root, const way *w)
{
    enum { TAG = 100 };
    int rank = gc_rank(comm), size = gc_size(comm);
    size_t own_bytes = way_size(w, root, rank);
    blocks b = { .buf = NULL };
    uint8_t *apart = gct_buffer(own_bytes), *own = apart;
    if (rank == root) {
        way_blocks(w, &b, size, root);
        blocks_fill(&b, root, TAG);
        own = w->in_place ? b.buf + b.at[rank] : apart;
    }
    const size_t *bytes = rank == root ? b.bytes : NULL, *at = rank == root ? b.at : NULL;
    gct_ok(w->tree ? gc_tree_scatterv(comm, w->tree, b.buf, bytes, at, own, own_bytes)
           : w->listed ? gc_scatterv(comm, b.buf, bytes, at, own, own_bytes, root)
           : gc_scatter(comm, b.buf, own_bytes, own, root));
    gct_require(!gct_check(own, own_bytes, root, TAG + rank), "scatter from %d", root);
    for (int i = 0; i < b.n; i++)
        gct_require(!gct_check(b.buf + b.at[i], b.bytes[i], root, TAG + i), "scatter: block %d at the root", i);
    gct_require(!gct_buffer_free(apart) && !blocks_free(&b), "scatter from %d", root);
    return 0;
}

static int try_gather(gc_comm *comm, int root, const way *w, bool all)
{
    enum { TAG = 200 };
    int rank = gc_rank(comm), size = gc_size(comm);
    size_t own_bytes = way_size(w, root, rank);
    blocks b = { .buf = NULL };
    uint8_t *apart = gct_buffer(own_bytes), *own = apart;
    if (all || rank == root) {
        way mine = *w;
        mine.gap += (size_t)rank % 2;   /* where its blocks are is each rank's own affair */
        mine.gap *= w->gap > 0;
        way_blocks(&mine, &b, size, root);
        own = w->in_place ? b.buf + b.at[rank] : apart;
    }
    gct_fill(own, own_bytes, rank, TAG);
    const size_t *bytes = b.n ? b.bytes : NULL, *at = b.n ? b.at : NULL;
    if (all)
        gct_ok(w->listed ? gc_allgatherv(comm, own, own_bytes, b.buf, bytes, at) : gc_allgather(comm, own, own_bytes, b.buf));
    else
        gct_ok(w->tree ? gc_tree_gatherv(comm, w->tree, own, own_bytes, b.buf, bytes, at)
               : w->listed ? gc_gatherv(comm, own, own_bytes, b.buf, bytes, at, root)
               : gc_gather(comm, own, own_bytes, b.buf, root));
    for (int i = 0; i < b.n; i++)
        gct_require(!gct_check(b.buf + b.at[i], b.bytes[i], i, TAG), "gather to %d: block %d", all ? -1 : root, i);
    gct_require(!gct_check(own, own_bytes, rank, TAG), "gather: what was sent");
    gct_require(!gct_buffer_free(apart) && !blocks_free(&b), "gather to %d", root);
    return 0;
}

/* ---- alltoall ---------------------------------------------------------------------------------------------------- */

static size_t pair_size(const way *w, int from, int to)
{
    bool swap = w->in_place && from > to;       /* the same layout both ways */
    return !w->listed ? w->base : swap ? size_of(w->base, to, from) : size_of(w->base, from, to);
}

static int try_alltoall(gc_comm *comm, const way *w)
{
    enum { TAG = 300 };
    int rank = gc_rank(comm), size = gc_size(comm);
    blocks send = { .n = size }, recv = { .n = size };
    for (int i = 0; i < size; i++) {
        send.bytes[i] = pair_size(w, rank, i);
        recv.bytes[i] = pair_size(w, i, rank);
    }
    blocks_place(&send, w->listed ? w->gap : 0);
    blocks_place(&recv, !w->listed ? 0 : w->in_place ? w->gap : w->gap * 2);
    blocks_fill(&send, rank, TAG);
    const blocks *to = w->in_place ? &send : &recv;
    if (w->listed)
        gct_ok(gc_alltoallv(comm, send.buf, send.bytes, send.at, to->buf, recv.bytes, recv.at));
    else
        gct_ok(gc_alltoall(comm, send.buf, w->base, to->buf));
    for (int i = 0; i < size; i++) {
        gct_require(!gct_check(to->buf + to->at[i], recv.bytes[i], i, TAG + rank), "alltoall: block of %d", i);
        gct_require(w->in_place || !gct_check(send.buf + send.at[i], send.bytes[i], rank, TAG + i), "alltoall: sent to %d", i);
    }
    gct_require(!blocks_free(&send) && !blocks_free(&recv), "alltoall");
    return 0;
}

/* ---- reduce_scatter ---------------------------------------------------------------------------------------------- */

/* Associative, not commutative: the product of affine maps x -> m x + c. */
typedef struct affine { uint32_t m, c; } affine;

static affine compose(affine a, affine b) { return (affine){ a.m * b.m, a.m * b.c + a.c }; }

static void composes(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const affine *a = in;
    affine *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        b[i] = compose(a[i], b[i]);
}

/* Neither. */
static affine mix(affine a, affine b) { return (affine){ 3 * a.m + b.m, 5 * a.c - b.c + a.m }; }

static void mixes(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const affine *a = in;
    affine *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        b[i] = mix(a[i], b[i]);
}

static void adds(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const affine *a = in;
    affine *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        b[i] = (affine){ a[i].m + b[i].m, a[i].c + b[i].c };
}

enum how { ADDS, COMPOSES, MIXES, HOWS };
typedef struct ops { gc_op op[HOWS]; } ops;

static int ops_make(gc_comm *world, ops *o)
{
    gct_ok(gc_op_create(world, adds, sizeof(affine), GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE, NULL, &o->op[ADDS]));
    gct_ok(gc_op_create(world, composes, sizeof(affine), GC_OP_ASSOCIATIVE, NULL, &o->op[COMPOSES]));
    gct_ok(gc_op_create(world, mixes, sizeof(affine), 0, NULL, &o->op[MIXES]));
    return 0;
}

static affine element(int rank, size_t i)
{
    return (affine){ (uint32_t)rank * 2654435761u + 2 * (uint32_t)i + 1, (uint32_t)rank + 77 * (uint32_t)i };
}

/* Of the ranks 0 .. end - 1. */
static affine reduced(enum how how, size_t i, int end)
{
    affine value = element(0, i);
    for (int r = 1; r < end; r++) {
        affine next = element(r, i);
        value = how == ADDS ? (affine){ value.m + next.m, value.c + next.c }
              : how == COMPOSES ? compose(value, next) : mix(value, next);
    }
    return value;
}

enum place { APART, AT_BEGIN, AT_BLOCK, PLACES };       /* of the result: in place it may be at the beginning or in its block */

static int try_reduce_scatter(gc_comm *comm, const ops *o, enum how how, const way *w, enum place place)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    size_t counts[RANKS_MAX], before = 0, all = 0;
    for (int i = 0; i < size; i++) {
        counts[i] = w->listed ? size_of(w->base, 0, i) : w->base;
        before += i < rank ? counts[i] : 0;
        all += counts[i];
    }
    affine *send = gct_buffer(all * sizeof *send), *apart = gct_buffer(counts[rank] * sizeof *apart);
    affine *recv = place == APART ? apart : place == AT_BEGIN ? send : send + before;
    for (size_t i = 0; i < all; i++)
        send[i] = element(rank, i);
    if (w->listed)
        gct_ok(gc_reduce_scatter(comm, send, recv, counts, GC_OPAQUE, o->op[how]));
    else
        gct_ok(gc_reduce_scatter_block(comm, send, recv, w->base, GC_OPAQUE, o->op[how]));
    for (size_t i = 0; i < counts[rank]; i++) {
        affine want = reduced(how, before + i, size);
        gct_require(memcmp(&recv[i], &want, sizeof want) == 0, "reduce_scatter %zu of operation %d, place %d", i, how, place);
    }
    for (size_t i = 0; i < all && place == APART; i++) {
        affine want = element(rank, i);
        gct_require(memcmp(&send[i], &want, sizeof want) == 0, "reduce_scatter: what was sent");
    }
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(apart), "reduce_scatter");
    return 0;
}

/* ---- everything -------------------------------------------------------------------------------------------------- */

/* In place: 0 nobody, 1 everybody, 2 every second rank. */
static int try_all(gc_comm *comm, const ops *o, size_t base, int root)
{
    int rank = gc_rank(comm);
    for (int i = 0; i < 6; i++) {
        way w = { .listed = i % 2, .base = base, .gap = (size_t)(i / 2) * 3, .in_place = i / 2 == 1 || (i / 2 == 2 && rank % 2) };
        way whole = w;
        GCT_TRY(try_scatter(comm, root, &w));
        GCT_TRY(try_gather(comm, root, &w, false));
        GCT_TRY(try_gather(comm, root, &w, true));
        whole.in_place = i / 2 == 1;    /* the sizes depend on it, so all do alike; else below */
        GCT_TRY(try_alltoall(comm, &whole));
        whole.base = base / sizeof(affine);
        for (int how = 0; how < HOWS; how++)
            GCT_TRY(try_reduce_scatter(comm, o, (enum how)how, &whole, (enum place)((i + how + (i > 3 ? rank : 0)) % PLACES)));
    }
    return try_alltoall(comm, &(way){ .base = base, .in_place = rank % 2 });
}

static int every_root(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t bytes[] = { 0, 1, 8, 333 };
    ops o;
    (void)rank, (void)arg;
    GCT_TRY(ops_make(world, &o));
    for (int i = 0; i < COUNT(bytes); i++)
        for (int root = 0; root < size; root += size > 8 ? 3 : 1)
            GCT_TRY(try_all(world, &o, bytes[i], root));
    return 0;
}

static void test_every_root(void **state)
{
    (void)state;
    run_all_sizes(every_root, NULL);
}

static int every_size(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t bytes[] = { 4096, 16383, 65537 };
    ops o;
    (void)rank, (void)arg;
    GCT_TRY(ops_make(world, &o));
    for (int i = 0; i < COUNT(bytes); i++)
        GCT_TRY(try_all(world, &o, bytes[i], i % size));
    return 0;
}

static void test_every_size(void **state)
{
    (void)state;
    run_some_sizes(every_size, NULL);
}

/* ---- algorithms by name, and clusters ---------------------------------------------------------------------------- */

static int some_roots(gc_comm *world, int rank, int size, void *arg)
{
    ops o;
    (void)rank, (void)arg;
    GCT_TRY(ops_make(world, &o));
    GCT_TRY(try_all(world, &o, 24, size / 2));
    GCT_TRY(try_all(world, &o, 9000, size - 1));
    return 0;
}

static void test_algorithms(void **state)
{
    static char *const names[] = {
        "scatter:flat,gather:flat,allgather:flat,reduce_scatter:flat",
        "scatter:chain,gather:chain,allgather:chain@1000,reduce_scatter:chain@1000",
        "scatter:kary:3,gather:knomial:3,allgather:kary:3@4000,reduce_scatter:knomial:3@4000",
        "allgather:doubling,reduce_scatter:halving,alltoall:bruck",
        "allgather:ring,reduce_scatter:ring,alltoall:pairwise",
        "allgather:bruck,reduce_scatter:pairwise,alltoall:direct",
        "allgather:direct,reduce_scatter:direct,scatter:binomial,gather:binomial",
        "allgather:circulant,reduce_scatter:circulant",
        "scatter:wide,gather:wide,allgather:wide,alltoall:wide,reduce_scatter:wide",
    };
    (void)state;
    for (int a = 0; a < COUNT(names); a++)
        for (int i = 0; i < COUNT(job_sizes); i++)
            run_algorithm(job_sizes[i], some_roots, names[a]);
}

/* Communicators whose order has nothing to do with the clusters. */
static int reordered(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *mixed = NULL, *listed = NULL;
    int ranks[RANKS_MAX], n = 0;
    ops o;
    (void)arg;
    GCT_TRY(ops_make(world, &o));
    gct_ok(gc_comm_split(world, 0, rank * 7 % size, &mixed));
    GCT_TRY(try_all(mixed, &o, 100, size / 2));
    for (int r = size - 1; r >= 0; r--)
        if (r % 3 != 1)
            ranks[n++] = r;
    gct_ok(gc_comm_create(world, ranks, n, &listed));
    for (int root = 0; listed && root < n; root++)
        GCT_TRY(try_all(listed, &o, 40, root));
    if (listed)
        gct_ok(gc_comm_free(listed));
    gct_ok(gc_comm_free(mixed));
    return 0;
}

static void test_reordered(void **state)
{
    (void)state;
    for (int sites = 1; sites <= 3; sites++)
        for (int i = 1; i < COUNT(job_sizes); i++)
            if (job_sizes[i] > sites)
                assert_int_equal(0, gct_job(&(gct_spec){ .ranks = job_sizes[i], .sites = sites }, reordered, NULL));
}

/* ---- uneven blocks between clusters -------------------------------------------------------------------------------- */

/* Short blocks, which go together, beside long ones, which do not. */
static int uneven(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t bases[] = { 1, 200, 900, 4000 };
    (void)rank, (void)arg;
    for (int i = 0; i < COUNT(bases); i++)
        for (int in_place = 0; in_place < 2; in_place++) {
            way w = { .listed = true, .base = bases[i], .gap = 3, .in_place = in_place };
            for (int root = i; root < size; root += 3) {
                GCT_TRY(try_scatter(world, root, &w));
                GCT_TRY(try_gather(world, root, &w, false));
            }
            GCT_TRY(try_alltoall(world, &w));
        }
    return 0;
}

/* Many at once, of all kinds, and ended in another order; lists are the library's no longer than a call takes. */
static int uneven_at_once(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 12, TAG = 500 };
    blocks send[N], recv[N];
    uint8_t *own[N];
    gc_request *request[N], *between[N];
    int64_t one = 1, sum[N];
    (void)arg;
    for (int i = 0; i < N; i++) {
        way w = { .listed = true, .base = i % 2 ? 3 : 2000 };
        int root = i * 5 % size;
        size_t bytes[RANKS_MAX], own_bytes = way_size(&w, root, rank);
        send[i] = recv[i] = (blocks){ .n = size };
        for (int k = 0; k < size; k++) {
            send[i].bytes[k] = i % 3 == 2 ? pair_size(&w, rank, k) : way_size(&w, root, k);
            bytes[k] = recv[i].bytes[k] = i % 3 == 2 ? pair_size(&w, k, rank) : send[i].bytes[k];
        }
        blocks_place(&send[i], 2);
        blocks_place(&recv[i], 5);
        blocks_fill(&send[i], rank, TAG);
        own[i] = gct_buffer(own_bytes);
        size_t sent[RANKS_MAX], from[RANKS_MAX], to[RANKS_MAX];
        memcpy(sent, send[i].bytes, sizeof sent);
        memcpy(from, send[i].at, sizeof from);
        memcpy(to, recv[i].at, sizeof to);
        if (i % 3 == 0)
            gct_ok(gc_iscatterv(world, send[i].buf, sent, from, own[i], own_bytes, root, &request[i]));
        else if (i % 3 == 1)
            gct_ok(gc_igatherv(world, send[i].buf + from[rank], own_bytes, recv[i].buf, bytes, to, root, &request[i]));
        else
            gct_ok(gc_ialltoallv(world, send[i].buf, sent, from, recv[i].buf, bytes, to, &request[i]));
        gct_ok(gc_iallreduce(world, &one, &sum[i], 1, GC_INT64, GC_SUM, &between[i]));
        memset(bytes, 0xee, sizeof bytes);
        memset(sent, 0xee, sizeof sent);
        memset(from, 0xee, sizeof from);
        memset(to, 0xee, sizeof to);
    }
    for (int k = 0; k < N; k++) {
        int i = (k * 7 + rank) % N, root = i * 5 % size;
        gct_ok(gc_wait(&request[i], NULL));
        gct_ok(gc_wait(&between[i], NULL));
        gct_require(sum[i] == size, "sum %d", i);
        if (i % 3 == 0)
            gct_require(!gct_check(own[i], send[i].bytes[rank], root, TAG + rank), "scatterv %d", i);
        for (int r = 0; r < size && (i % 3 == 2 || (i % 3 == 1 && rank == root)); r++)
            gct_require(!gct_check(recv[i].buf + recv[i].at[r], recv[i].bytes[r], r, TAG + (i % 3 == 2 ? rank : r)),
                        "collective %d: block of %d", i, r);
    }
    for (int i = 0; i < N; i++)
        gct_require(!blocks_free(&send[i]) && !blocks_free(&recv[i]) && !gct_buffer_free(own[i]), "collective %d", i);
    return 0;
}

/* What is forced does not fit blocks whose sizes nobody else knows: then the rules decide, and these ask. */
static void unfit(gc_options *options, int rank, void *arg)
{
    (void)rank, (void)arg;
    options->algo = "scatter:binomial,gather:chain,alltoall:bruck";
}

/* One rank never comes; the others give up, whatever they have come to. */
static int uneven_given_up(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    for (int missing = 0; missing < size; missing++)
        for (int coll = 0; coll < 3; coll++) {
            size_t bytes[RANKS_MAX], at[RANKS_MAX];
            uint8_t a[8 * RANKS_MAX] = { 0 }, b[8 * RANKS_MAX];
            gc_comm *comm;
            gc_request *request = NULL;
            for (int i = 0; i < size; i++) {
                bytes[i] = 5;
                at[i] = (size_t)i * 8;
            }
            gct_ok(gc_comm_dup(world, &comm));
            if (rank != missing)
                gct_ok(coll == 0 ? gc_iscatterv(comm, a, bytes, at, b, 5, 0, &request)
                       : coll == 1 ? gc_igatherv(comm, a, 5, b, bytes, at, size - 1, &request)
                       : gc_ialltoallv(comm, a, bytes, at, b, bytes, at, &request));
            gct_ok(gc_barrier(world));
            int code = rank == missing ? gc_barrier(comm) : gc_wait(&request, NULL);
            gct_require(code == GC_ERR_MISMATCH || code == GC_OK, "collective %d without %d: %s", coll, missing,
                        gc_strerror(code));
            gct_require(code != GC_OK || rank != missing, "collective %d: %d", coll, missing);
            gct_ok(gc_barrier(world));
            gct_ok(gc_comm_free(comm));
        }
    return 0;
}

static void test_uneven(void **state)
{
    static const int ranks[] = { 3, 5, 8, 16 };
    (void)state;
    for (int i = 0; i < COUNT(ranks); i++)
        for (int sites = 1; sites <= 3; sites++) {
            const gct_spec spec = { .ranks = ranks[i], .sites = sites, .time_limit = 100 };
            gct_spec other = spec;
            other.options = unfit;
            assert_int_equal(0, gct_job(&spec, uneven, NULL));
            assert_int_equal(0, gct_job(&other, uneven, NULL));
            assert_int_equal(0, gct_job(&spec, uneven_at_once, NULL));
            assert_int_equal(0, gct_job(&other, uneven_at_once, NULL));
            if (i < 2)
                assert_int_equal(0, gct_job(&spec, uneven_given_up, NULL));
        }
}

/* ---- schedules are kept -------------------------------------------------------------------------------------------- */

static void count_schedule(void *user, int level, const char *line)
{
    (void)level;
    if (strstr(line, " steps"))         /* on the thread that calls; others log other things */
        ++*(int *)user;
}

static void count_schedules(gc_options *options, int rank, void *arg)
{
    options->debug = "coll";
    options->log = count_schedule;
    options->log_user = (int *)arg + rank;
}

/* Those of uneven calls, too, told apart by every size and offset. */
static int kept(gc_comm *world, int rank, int size, void *arg)
{
    const int *made = (const int *)arg + rank;
    int before = 0;
    ops o;
    GCT_TRY(ops_make(world, &o));
    for (int lap = 0; lap < 4; lap++) {
        for (int i = 0; i < 4; i++) {
            way w = { .listed = true, .base = 100 + (size_t)i % 2, .gap = (size_t)i / 2 * 3 };
            GCT_TRY(try_scatter(world, size / 2, &w));
            GCT_TRY(try_gather(world, size / 2, &w, false));
            GCT_TRY(try_gather(world, size / 2, &w, true));
            GCT_TRY(try_alltoall(world, &w));
            GCT_TRY(try_reduce_scatter(world, &o, ADDS, &w, APART));
        }
        gct_require(lap == 0 || *made == before, "lap %d: %d schedules, not %d", lap, *made, before);
        gct_require(*made > 0, "none was counted");
        before = *made;
    }
    return 0;
}

static void test_kept(void **state)
{
    (void)state;
    for (int sites = 1; sites <= 3; sites++) {
        int made[6] = { 0 };
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = COUNT(made), .sites = sites, .options = count_schedules }, kept, made));
    }
}

/* ---- given trees ------------------------------------------------------------------------------------------------- */

static int try_tree_vectors(gc_comm *comm, const gc_tree *tree, const ops *o, size_t count)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    size_t bytes = count * sizeof(affine);
    for (int how = -1; how < HOWS; how++)
        for (int in_place = 0; in_place < 2; in_place++) {
            bool here = rank == tree->root;
            affine *send = gct_buffer(bytes), *recv = gct_buffer(bytes), *own = here && in_place ? recv : send;
            gct_fill(own, bytes, rank, 5);
            for (size_t i = 0; i < count && how >= 0; i++)
                own[i] = element(rank, i);
            if (how < 0)
                gct_ok(gc_tree_bcast(comm, tree, own, bytes));
            else
                gct_ok(gc_tree_reduce(comm, tree, own, here ? recv : NULL, count, GC_OPAQUE, o->op[how]));
            gct_require(how >= 0 || !gct_check(own, bytes, tree->root, 5), "tree_bcast");
            for (size_t i = 0; i < count && how >= 0 && here; i++) {
                affine want = reduced((enum how)how, i, size);
                gct_require(memcmp(&recv[i], &want, sizeof want) == 0, "tree_reduce, operation %d: element %zu", how, i);
            }
            gct_require(!gct_buffer_free(send) && !gct_buffer_free(recv), "tree");
        }
    return 0;
}

static int try_tree(gc_comm *comm, const gc_tree *tree, const ops *o, size_t bytes)
{
    for (int in_place = 0; in_place < 2; in_place++) {
        way w = { .listed = true, .tree = tree, .base = bytes, .gap = 5, .in_place = in_place };
        GCT_TRY(try_scatter(comm, tree->root, &w));
        GCT_TRY(try_gather(comm, tree->root, &w, false));
    }
    return try_tree_vectors(comm, tree, o, bytes / sizeof(affine));
}

/* Any tree: every rank but the root hangs below one that is in it already, in any place among its siblings. */
static void random_tree(gc_tree *t, uint64_t *random)
{
    int order[RANKS_MAX] = { 0 };
    for (int i = 0; i < t->size; i++) {
        int k = (int)(gct_random(random) % (uint64_t)(i + 1));
        order[i] = order[k];
        order[k] = i;
        t->first_child[i] = t->next_sibling[i] = t->parent[i] = -1;
    }
    t->root = order[0];
    for (int i = 1; i < t->size; i++) {
        int up = t->parent[order[i]] = order[gct_random(random) % (uint64_t)i], *at = &t->first_child[up];
        while (*at >= 0 && gct_random(random) % 2)
            at = &t->next_sibling[*at];
        t->next_sibling[order[i]] = *at;
        *at = order[i];
    }
}

static int trees(gc_comm *world, int rank, int size, void *arg)
{
    static const char *const shapes[] = { "flat", "chain", "binomial", "kary:3", "knomial:3", "binomial-bfs-largest", "traeff" };
    int parent[RANKS_MAX], child[RANKS_MAX], sibling[RANKS_MAX];
    gc_tree any = { .size = size, .parent = parent, .first_child = child, .next_sibling = sibling };
    uint64_t random = *(const uint64_t *)arg;
    ops o;
    (void)rank;
    GCT_TRY(ops_make(world, &o));
    for (int i = 0; i < COUNT(shapes); i++) {
        gc_tree *tree = NULL;
        gct_ok(gc_tree_build(&tree, shapes[i], size, i * 3 % size, NULL, NULL));
        GCT_TRY(try_tree(world, tree, &o, 50));
        gc_tree_free(tree);
    }
    for (int i = 0; i < 6; i++) {
        random_tree(&any, &random);
        GCT_TRY(try_tree(world, &any, &o, i < 4 ? 70 : 3000));
    }
    return 0;
}

static void test_trees(void **state)
{
    uint64_t seed = gct_seed();
    (void)state;
    print_message("GCT_SEED=%llu\n", (unsigned long long)seed);
    run_all_sizes(trees, &seed);
}

/* ---- what does not agree ----------------------------------------------------------------------------------------- */

enum wrong { WRONG_ALLGATHERV, WRONG_COUNTS, WRONG_BLOCK, WRONG_EVEN, WRONG_FAMILY, WRONG_TREE, WRONGS };

static int call_apart(gc_comm *world, enum wrong wrong, bool odd)
{
    int size = gc_size(world), rank = gc_rank(world);
    size_t bytes[RANKS_MAX], at[RANKS_MAX];
    uint8_t a[8 * RANKS_MAX] = { 0 }, b[8 * RANKS_MAX];
    gc_tree *tree = NULL;
    for (int i = 0; i < size; i++) {
        bytes[i] = !odd || i == rank || wrong == WRONG_EVEN ? 4 : 5;        /* another own size would be plain wrong */
        at[i] = (size_t)i * 8;
    }
    switch (wrong) {
    case WRONG_ALLGATHERV:
        return gc_allgatherv(world, a, 4, b, bytes, at);
    case WRONG_COUNTS:
        return gc_reduce_scatter(world, a, b, bytes, GC_UINT8, GC_SUM);
    case WRONG_BLOCK:
        return gc_alltoall(world, a, odd ? 5 : 4, b);
    case WRONG_EVEN:
        return odd ? gc_allgatherv(world, a, 4, b, bytes, at) : gc_allgather(world, a, 4, b);
    case WRONG_FAMILY:
        return odd ? gc_alltoall(world, a, 4, b) : gc_allgather(world, a, 4, b);
    default:
        if (gc_tree_build(&tree, odd ? "chain" : "binomial", size, 0, NULL, NULL))
            return GC_OK;
        int code = gc_tree_gatherv(world, tree, a, 4, b, bytes, at);
        gc_tree_free(tree);
        return code;
    }
}

static int mismatch(gc_comm *world, int rank, int size, void *arg)
{
    (void)arg;
    for (int wrong = 0; wrong < WRONGS; wrong++)
        for (int who = 0; who < size; who += size > 5 ? 3 : 1) {
            int code = call_apart(world, (enum wrong)wrong, rank == who);
            char text[200] = "";
            gc_last_error(world, NULL, text, sizeof text);
            bool may_be_over = wrong == WRONG_TREE && (rank != who || size == 2);   /* a leaf; two ranks have but one tree */
            gct_require((code == GC_ERR_MISMATCH && strstr(text, "calls")) || (code == GC_OK && may_be_over),
                        "case %d, odd rank %d: %s (%s)", wrong, who, gc_strerror(code), text);
            gct_ok(gc_barrier(world));
        }
    ops o;
    GCT_TRY(ops_make(world, &o));
    return try_all(world, &o, 100, size - 1);
}

/* A block whose size only its two ranks know: who receives it fails, and all who still wait. */
static int pair_apart(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t pairs[][2] = { { 4, 5 }, { 5, 4 }, { 100000, 200000 }, { 200000, 100000 }, { 200000, 9 }, { 9, 200000 } };
    uint8_t *a = gct_buffer(200000 * (size_t)size), *b = gct_buffer(200000 * (size_t)size);
    size_t bytes[RANKS_MAX], at[RANKS_MAX];
    (void)arg;
    for (int i = 0; i < COUNT(pairs); i++)
        for (int coll = 0; coll < 3; coll++) {
            int other = size - 1, code;
            for (int k = 0; k < size; k++) {
                bytes[k] = 10;
                at[k] = (size_t)k * 200000;
            }
            bytes[other] = rank == 0 ? pairs[i][0] : 10;
            size_t own = rank == other ? pairs[i][1] : rank == 0 ? bytes[0] : 10;
            if (coll == 2) {
                bytes[0] = rank == other ? pairs[i][1] : 10;
                code = gc_alltoallv(world, a, bytes, at, b, bytes, at);
            } else {
                code = coll ? gc_gatherv(world, a, own, b, bytes, at, 0) : gc_scatterv(world, a, bytes, at, b, own, 0);
            }
            bool waits = coll == 2 ? rank == 0 || rank == other : rank == (coll ? 0 : other);
            gct_require(code == GC_ERR_MISMATCH || (code == GC_OK && !waits), "collective %d, case %d: %s", coll, i,
                        gc_strerror(code));
            gct_ok(gc_barrier(world));
        }
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

/* One of the two says 0 bytes, so there is no message: who waits for it finds out. Last, each says so of what it sends. */
static int pair_without(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t pairs[][2] = { { 0, 5 }, { 5, 0 }, { 0, 200000 }, { 200000, 0 } };
    uint8_t *a = gct_buffer(200000 * (size_t)size), *b = gct_buffer(200000 * (size_t)size);
    size_t to[RANKS_MAX], from[RANKS_MAX], at[RANKS_MAX];
    int other = size - 1;
    (void)arg;
    for (int i = 0; i < 3 * COUNT(pairs) + 1; i++) {
        bool both = i == 3 * COUNT(pairs);
        const size_t *pair = pairs[both ? 0 : i / 3];
        size_t mine = both ? 5 : pair[rank == 0 ? 0 : 1];
        int code, coll = both ? 2 : i % 3;
        char text[200] = "";
        for (int k = 0; k < size; k++) {
            to[k] = from[k] = 10;
            at[k] = (size_t)k * 200000;
        }
        if (rank == 0 || rank == other) {
            from[other - rank] = mine;
            to[other - rank] = both ? 0 : mine;
        }
        size_t own = rank == other ? mine : 10;
        if (coll == 2)
            code = gc_alltoallv(world, a, to, at, b, from, at);
        else
            code = coll ? gc_gatherv(world, a, own, b, from, at, 0) : gc_scatterv(world, a, to, at, b, own, 0);
        bool waits = mine > 0 && (coll == 2 ? rank == 0 || rank == other : rank == (coll ? 0 : other));
        gc_last_error(world, NULL, text, sizeof text);
        gct_require(code == GC_ERR_MISMATCH || (code == GC_OK && !waits), "case %d: %s", i, gc_strerror(code));
        gct_require(code == GC_OK || strstr(text, "rank"), "case %d: %s", i, text);
        gct_ok(gc_barrier(world));
    }
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

/* The same, while other collectives go on and on. */
static int pair_without_beside(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *other;
    gc_request *request = NULL;
    uint8_t a[8] = { 0 }, b[8 * RANKS_MAX];
    size_t bytes[RANKS_MAX], at[RANKS_MAX];
    (void)arg;
    for (int k = 0; k < size; k++) {
        bytes[k] = 5;
        at[k] = 8 * (size_t)k;
    }
    gct_ok(gc_comm_dup(world, &other));
    gct_ok(gc_igatherv(other, a, rank == size - 1 ? 0 : 5, b, bytes, at, 0, &request));
    int code = GC_ERR_TIMEOUT;
    for (int i = 0; i < 60; i++) {
        gct_ok(gc_barrier(world));
        if (request)
            code = gc_wait_for(&request, 0.02, NULL);
    }
    gct_require(code == (rank == 0 ? GC_ERR_MISMATCH : GC_OK), "%s", gc_strerror(code));
    return 0;
}

static void test_pair_without(void **state)
{
    static const int ranks[] = { 2, 5, 6, 16 };
    (void)state;
    for (int i = 0; i < COUNT(ranks); i++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i], .unwitnessed = true }, pair_without_beside, NULL));
    for (int i = 0; i < 2 * COUNT(ranks); i++)          /* unwitnessed: schedules that do not agree may end well */
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = ranks[i / 2], .sites = 1 + i % 2, .unwitnessed = true },
                                    pair_without, NULL));
}

/* What senders and receivers think of the block from each rank to each; alike at every rank. */
typedef struct views { size_t sent[RANKS_MAX][RANKS_MAX], got[RANKS_MAX][RANKS_MAX]; bool differ; } views;
enum family { SCATTERV, GATHERV, ALLTOALLV, FAMILIES };

/* Two blocks trade sizes, or trade a byte, so that the sum over a bundle is the same; or one has another size, across the limit
 * of what is bundled (4 KiB, alltoallv 2 KiB at most), perhaps as the only block there is, or by chance. */
static void views_draw(views *v, int size, enum family family, int root, uint64_t *random)
{
    static const size_t sizes[] = { 0, 1, 3, 5, 64, 500, 2048, 2049, 4096, 4097 };
    int from[2], to[2], kind = (int)(gct_random(random) % 6), alone = kind == 4;
    for (int k = 0; k < size * size; k++)
        v->sent[k / size][k % size] = alone ? 0 : sizes[gct_random(random) % COUNT(sizes)];
    memcpy(v->got, v->sent, sizeof v->got);
    for (int i = 0; i < 2; i++) {
        from[i] = i > 0 && kind % 2 ? from[0] : (int)(gct_random(random) % (uint64_t)size);
        to[i] = i > 0 && kind % 2 == 0 ? to[0] : (int)(gct_random(random) % (uint64_t)size);
        from[i] = family == SCATTERV ? root : from[i];
        to[i] = family == GATHERV ? root : to[i];
        if (from[i] == to[i])
            from[i] = to[i] = 0;        /* one's own block cannot differ */
    }
    size_t *a = &v->got[from[0]][to[0]], *b = &v->got[from[1]][to[1]], was = *a;
    if (from[0] != to[0] && kind > 3) {
        bool less = gct_random(random) % 2;
        *a = less ? 300 : 4100;
        v->sent[from[0]][to[0]] = less ? 4100 : 300;
    } else if (from[0] != to[0] && from[1] != to[1] && a != b && kind < 2) {
        *a = *b;
        *b = was;
    } else if (from[0] != to[0] && from[1] != to[1] && a != b && kind == 2 && *a > 0) {
        --*a;
        ++*b;
    } else if (from[0] != to[0]) {
        *a = sizes[gct_random(random) % COUNT(sizes)];
    }
    v->differ = memcmp(v->got, v->sent, sizeof v->got) != 0;
}

/* Who is told that all went well has what was sent for it. */
static int try_views(gc_comm *world, const views *v, enum family family, int root)
{
    enum { STEP = 4200, TAG = 600 };
    int rank = gc_rank(world), size = gc_size(world), code;
    size_t to[RANKS_MAX], from[RANKS_MAX], at[RANKS_MAX];
    uint8_t *a = gct_buffer(STEP * (size_t)size), *b = gct_buffer(STEP * (size_t)size);
    for (int k = 0; k < size; k++) {
        to[k] = v->sent[rank][k];
        from[k] = v->got[k][rank];
        at[k] = (size_t)k * STEP;
        gct_fill(a + at[k], to[k], rank, TAG + k);
    }
    if (family == SCATTERV)
        code = gc_scatterv(world, a, to, at, b + at[root], from[root], root);
    else if (family == GATHERV)
        code = gc_gatherv(world, a + at[root], to[root], b, from, at, root);
    else
        code = gc_alltoallv(world, a, to, at, b, from, at);
    gct_require(code == GC_OK || (code == GC_ERR_MISMATCH && v->differ), "%s", gc_strerror(code));
    for (int k = 0; k < size && code == GC_OK && (family != GATHERV || rank == root); k++) {
        if (from[k] == 0 || (family == SCATTERV && k != root))
            continue;
        gct_require(from[k] == v->sent[k][rank], "collective %d, root %d: %zu bytes of %d, which sent %zu", family, root, from[k],
                    k, v->sent[k][rank]);
        gct_require(!gct_check(b + at[k], from[k], k, TAG + rank), "collective %d, root %d: block of %d", family, root, k);
    }
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

typedef struct rounds { uint64_t seed; int n; } rounds;

static int sizes_apart(gc_comm *world, int rank, int size, void *arg)
{
    const rounds *r = arg;
    uint64_t random = r->seed;
    views v;
    (void)rank;
    for (int i = 0; i < r->n; i++)
        for (int family = 0; family < FAMILIES; family++) {
            int root = (int)(gct_random(&random) % (uint64_t)size);
            views_draw(&v, size, (enum family)family, root, &random);
            GCT_TRY(try_views(world, &v, (enum family)family, root));
            gct_ok(gc_barrier(world));
        }
    return 0;
}

/* Rank y takes x for one that has nothing for it: what follows from x must not be taken for that of others. */
static int one_is_missing(gc_comm *world, int rank, int size, void *arg)
{
    enum { STEP = 3100, TAG = 600 };
    const size_t block = *(const size_t *)arg;
    size_t to[RANKS_MAX], from[RANKS_MAX], at[RANKS_MAX];
    uint8_t *a = gct_buffer(STEP * (size_t)size), *b = gct_buffer(STEP * (size_t)size);
    for (int pair = 0; pair < size * size; pair++) {
        int x = pair / size, y = pair % size;
        for (int k = 0; k < size; k++) {
            to[k] = block;
            from[k] = rank == y && k == x && x != y ? 0 : block;
            at[k] = (size_t)k * STEP;
            gct_fill(a + at[k], block, rank, TAG + k);
        }
        int code = gc_alltoallv(world, a, to, at, b, from, at);
        gct_require(code == GC_OK || (code == GC_ERR_MISMATCH && x != y), "%s", gc_strerror(code));
        for (int k = 0; k < size && code == GC_OK; k++)
            gct_require(from[k] == 0 || !gct_check(b + at[k], from[k], k, TAG + rank), "%d to %d: block of %d", x, y, k);
        gct_ok(gc_barrier(world));
    }
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

static void test_one_is_missing(void **state)
{
    (void)state;
    for (size_t block = 100; block <= 3000; block += 2900)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = gct_simulated(&(gct_spec){ .ranks = 8 }) ? 8 : 4, .sites = 2,
                                                 .time_limit = 100, .unwitnessed = true }, one_is_missing, &block));
}

static void test_sizes_apart(void **state)
{
    static const int ranks[] = { 4, 6, 9, 16 };
    rounds r = { .seed = gct_seed() };
    (void)state;
    print_message("GCT_SEED=%llu\n", (unsigned long long)r.seed);
    for (int i = 0; i < 2 * COUNT(ranks); i++) {
        const gct_spec spec = { .ranks = ranks[i / 2], .sites = 2 + i % 2, .ranks_per_host = 1 + i % 3, .time_limit = 100,
                                .unwitnessed = true };      /* as above */
        r.n = gct_simulated(&spec) ? 60 : 4;
        assert_int_equal(0, gct_job(&spec, sizes_apart, &r));
    }
}

static void test_mismatch(void **state)
{
    static const int ranks[] = { 2, 3, 5, 8, 16 };
    (void)state;
    run(2, pair_apart, NULL);
    run(5, pair_apart, NULL);
    for (int sites = 2; sites <= 3; sites++)
        assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 6, .sites = sites, .time_limit = 100 }, pair_apart, NULL));
    for (int i = 0; i < COUNT(ranks); i++)
        run(ranks[i], mismatch, NULL);
}

/* ---- wrong arguments --------------------------------------------------------------------------------------------- */

/* What is wrong at this rank alone; nobody waits for anybody. */
static int wrong_arguments(gc_comm *world, int rank, int size, void *arg)
{
    uint8_t a[1000] = { 0 }, b[1000];
    size_t four[RANKS_MAX], at[RANKS_MAX], close[RANKS_MAX], huge[RANKS_MAX], far[RANKS_MAX], self = (size_t)rank * 8;
    gc_request *request = NULL;
    (void)arg;
    for (size_t i = 0; i < RANKS_MAX; i++) {
        four[i] = 4;
        at[i] = 8 * i;
        close[i] = 3 * i;
        huge[i] = SIZE_MAX / 2;
        far[i] = SIZE_MAX - 3;
    }
    gct_require(gc_scatter(NULL, a, 4, b, 0) == GC_ERR_ARG && gc_iallgatherv(NULL, a, 4, b, four, at, &request) == GC_ERR_ARG &&
                gc_reduce_scatter(NULL, a, b, four, GC_INT32, GC_SUM) == GC_ERR_ARG &&
                gc_tree_bcast(NULL, NULL, a, 4) == GC_ERR_ARG, "no communicator");
    REFUSES(gc_ialltoallv(world, a, four, at, b, four, at, NULL));
    REFUSES(gc_scatter(world, a, 4, b, -1));
    REFUSES(gc_scatterv(world, a, four, at, b, 4, size));
    REFUSES(gc_gatherv(world, a, 4, b, four, at, size + 7));
    REFUSES(gc_scatter(world, NULL, 4, b, rank));
    REFUSES(gc_scatter(world, a, 4, NULL, (rank + 1) % size));
    REFUSES(gc_scatterv(world, a, NULL, at, b, 4, rank));
    REFUSES(gc_scatterv(world, a, four, NULL, b, 4, rank));
    REFUSES(gc_scatterv(world, a, four, at, b, 5, rank));
    REFUSES(gc_gatherv(world, NULL, 4, b, four, at, (rank + 1) % size));
    REFUSES(gc_gatherv(world, a, 4, NULL, four, at, rank));
    REFUSES(gc_gatherv(world, a, 5, b, four, at, rank));
    REFUSES(gc_allgatherv(world, a, 4, b, NULL, at));
    REFUSES(gc_allgatherv(world, a, 4, b, four, far));
    REFUSES(gc_allgatherv(world, b + self + 1, 4, b, four, at));
    REFUSES(gc_alltoall(world, a, 4, NULL));
    REFUSES(gc_alltoall(world, a, 4, a + 3));
    REFUSES(gc_alltoallv(world, a, four, NULL, b, four, at));
    REFUSES(gc_alltoallv(world, a, four, at, b, NULL, at));
    REFUSES(gc_alltoallv(world, a, four, at, a + 3, four, at));
    if (size > 1) {
        REFUSES(gc_scatter(world, a, SIZE_MAX / (size_t)size + 1, b, rank));
        REFUSES(gc_scatter(world, a, 4, a + 4 * ((rank + 1) % size), rank));    /* in place, but of another */
        REFUSES(gc_allgatherv(world, a, 4, b, four, close));
        REFUSES(gc_alltoallv(world, a, four, at, b, four, close));
        REFUSES(gc_alltoallv(world, a, four, at, a, four, close));
        REFUSES(gc_reduce_scatter_block(world, a, a + 4 * size - 2, 1, GC_INT32, GC_SUM));
    }
    if (size > 2)
        REFUSES(gc_allgatherv(world, a, SIZE_MAX / 2, b, huge, at));
    REFUSES(gc_reduce_scatter(world, a, b, NULL, GC_INT32, GC_SUM));
    REFUSES(gc_reduce_scatter(world, a, NULL, four, GC_INT32, GC_SUM));
    REFUSES(gc_reduce_scatter(world, NULL, b, four, GC_INT32, GC_SUM));
    REFUSES(gc_reduce_scatter(world, a, b, huge, GC_INT32, GC_SUM));
    REFUSES(gc_reduce_scatter(world, a, b, four, GC_FLOAT, GC_BAND));
    REFUSES(gc_reduce_scatter(world, a, a + 1, four, GC_INT32, GC_SUM));
    REFUSES(gc_reduce_scatter_block(world, a, b, SIZE_MAX / 3, GC_INT32, GC_SUM));
    REFUSES(gc_scan(world, a, a + 1, 4, GC_INT32, GC_SUM));
    REFUSES(gc_scan(world, a, NULL, 4, GC_INT32, GC_SUM));
    if (rank > 0)
        REFUSES(gc_exscan(world, a, NULL, 4, GC_INT32, GC_SUM));
    REFUSES(gc_exscan(world, NULL, b, 4, GC_INT32, GC_SUM));
    gct_require(gc_iscatterv(world, a, four, at, b, 4, -1, &request) == GC_ERR_ARG && !request, "request left");
    return 0;
}

static int wrong_trees(gc_comm *world, int rank, int size, void *arg)
{
    uint8_t a[8] = { 0 };
    gc_tree *larger = NULL, *tree = NULL;
    (void)rank, (void)arg;
    REFUSES(gc_tree_bcast(world, NULL, a, 4));
    gct_ok(gc_tree_build(&larger, "binomial", size + 1, 0, NULL, NULL));
    REFUSES(gc_tree_bcast(world, larger, a, 4));
    gc_tree_free(larger);
    gct_ok(gc_tree_build(&tree, "chain", size, 0, NULL, NULL));
    REFUSES(gc_tree_bcast(world, tree, NULL, 4));
    REFUSES(gc_tree_gatherv(world, tree, NULL, 4, a, NULL, NULL));
    tree->root = size;
    REFUSES(gc_tree_bcast(world, tree, a, 4));
    tree->root = 0;
    tree->first_child[size - 1] = size - 1;             /* itself, for ever */
    REFUSES(gc_tree_bcast(world, tree, a, 4));
    gc_tree_free(tree);
    return 0;
}

/* Empty blocks need no buffers, and what matters at the root alone is not looked at elsewhere. */
static int right_arguments(gc_comm *world, int rank, int size, void *arg)
{
    size_t none[RANKS_MAX] = { 0 }, far[RANKS_MAX];
    uint8_t a[1000] = { 0 }, b[1000], *nowhere = (uint8_t *)16;
    (void)arg;
    memset(far, 0xff, sizeof far);
    gct_ok(gc_scatter(world, NULL, 0, NULL, 0));
    gct_ok(gc_scatterv(world, NULL, none, far, NULL, 0, 0));
    gct_ok(gc_gatherv(world, NULL, 0, NULL, none, far, size - 1));
    gct_ok(gc_allgatherv(world, NULL, 0, NULL, none, far));
    gct_ok(gc_alltoall(world, NULL, 0, NULL));
    gct_ok(gc_alltoallv(world, NULL, none, far, NULL, none, far));
    gct_ok(gc_reduce_scatter(world, NULL, NULL, none, GC_INT8, GC_SUM));
    gct_ok(gc_reduce_scatter_block(world, NULL, NULL, 0, GC_DOUBLE, GC_MAX));
    gct_ok(gc_scan(world, NULL, NULL, 0, GC_INT8, GC_SUM));
    gct_ok(gc_exscan(world, NULL, NULL, 0, GC_INT8, GC_SUM));
    gct_ok(gc_exscan(world, a, rank == 0 ? NULL : b, 4, GC_INT8, GC_SUM));
    bool root = rank == 0;
    gct_ok(gc_scatter(world, root ? a : nowhere, 4, b, 0));
    gct_ok(gc_gather(world, b, 4, root ? a : b, 0));
    for (int i = 0; i < size; i++) {
        none[i] = 4;
        far[i] = (size_t)(i / 2) * 4;   /* what is sent may overlap */
    }
    gct_ok(gc_scatterv(world, root ? a : nowhere, root ? none : NULL, root ? far : NULL, b, 4, 0));
    return 0;
}

static void test_arguments(void **state)
{
    static const int ranks[] = { 1, 2, 3, 5 };
    (void)state;
    for (int i = 0; i < COUNT(ranks); i++) {
        run(ranks[i], wrong_arguments, NULL);
        run(ranks[i], wrong_trees, NULL);
        run(ranks[i], right_arguments, NULL);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_root), cmocka_unit_test(test_every_size), cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_reordered),  cmocka_unit_test(test_trees),      cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_uneven),
        cmocka_unit_test(test_arguments),  cmocka_unit_test(test_pair_without), cmocka_unit_test(test_one_is_missing), cmocka_unit_test(test_sizes_apart),
        cmocka_unit_test(test_kept),
    };
    return cmocka_run_group_tests_name("blocks", tests, NULL, NULL);
}
