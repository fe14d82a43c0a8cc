/* test_coll.c: collectives between ranks: every size, root and order; types and operations, user's own; several at once;
 * mismatches; wrong arguments. Those of blocks of any size have test_blocks.c.
 * SPDX-License-Identifier: MIT
 */
#include "colls.h"

/* ---- moving data ------------------------------------------------------------------------------------------------- */

static int try_bcast(gc_comm *comm, size_t bytes, int root)
{
    int rank = gc_rank(comm);
    uint8_t *buf = gct_buffer(bytes);
    gct_fill(buf, bytes, rank, 1);
    gct_ok(gc_bcast(comm, buf, bytes, root));
    gct_require(!gct_check(buf, bytes, root, 1) && !gct_buffer_free(buf), "bcast of %zu from %d", bytes, root);
    return 0;
}

/* What every rank of a gather must hold: block r is rank r's. */
static int check_blocks(const uint8_t *recv, size_t bytes, int size, int tag)
{
    for (int r = 0; r < size; r++)
        if (gct_check(recv + (size_t)r * bytes, bytes, r, tag))
            return 1;
    return 0;
}

static int try_gather(gc_comm *comm, size_t bytes, int root, bool in_place)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    bool here = rank == root;
    uint8_t *send = gct_buffer(bytes), *recv = here ? gct_buffer(bytes * (size_t)size) : NULL;
    uint8_t *own = here && in_place ? recv + (size_t)rank * bytes : send;
    gct_fill(own, bytes, rank, 2);
    gct_ok(gc_gather(comm, own, bytes, recv, root));
    gct_require(!here || !check_blocks(recv, bytes, size, 2), "gather of %zu to %d", bytes, root);
    gct_require(!gct_check(own, bytes, rank, 2) && !gct_buffer_free(send) && !gct_buffer_free(recv), "gather of %zu", bytes);
    return 0;
}

static int try_allgather(gc_comm *comm, size_t bytes, bool in_place)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    uint8_t *send = gct_buffer(bytes), *recv = gct_buffer(bytes * (size_t)size);
    uint8_t *own = in_place ? recv + (size_t)rank * bytes : send;
    gct_fill(own, bytes, rank, 3);
    gct_ok(gc_allgather(comm, own, bytes, recv));
    gct_require(!check_blocks(recv, bytes, size, 3), "allgather of %zu", bytes);
    gct_require(!gct_check(own, bytes, rank, 3) && !gct_buffer_free(send) && !gct_buffer_free(recv), "allgather of %zu", bytes);
    return 0;
}

/* ---- sums -------------------------------------------------------------------------------------------------------- */

static int64_t element(int rank, size_t i)
{
    return (int64_t)rank * 1000003 - (int64_t)i;
}

/* The collectives that combine a vector into one as long. */
enum vector { REDUCE, ALLREDUCE, SCAN, EXSCAN, VECTORS };

static int call_vector(gc_comm *comm, enum vector v, const void *send, void *recv, size_t count, gc_type type, gc_op op, int root)
{
    switch (v) {
    case REDUCE:    return gc_reduce(comm, send, recv, count, type, op, root);
    case ALLREDUCE: return gc_allreduce(comm, send, recv, count, type, op);
    case SCAN:      return gc_scan(comm, send, recv, count, type, op);
    default:        return gc_exscan(comm, send, recv, count, type, op);
    }
}

/* The result at this rank is that of the ranks 0 .. end - 1; 0: there is none. */
static int vector_end(gc_comm *comm, enum vector v, int root)
{
    int rank = gc_rank(comm), size = gc_size(comm);
    return v == REDUCE ? (rank == root) * size : v == ALLREDUCE ? size : v == SCAN ? rank + 1 : rank;
}

static int try_sum(gc_comm *comm, enum vector v, size_t count, int root, bool in_place)
{
    int rank = gc_rank(comm), end = vector_end(comm, v, root);
    size_t bytes = count * sizeof(int64_t);
    int64_t *send = gct_buffer(bytes), *recv = gct_buffer(bytes), *own = end > 0 && in_place ? recv : send;
    gct_fill(recv, bytes, rank, 9);
    for (size_t i = 0; i < count; i++)
        own[i] = element(rank, i);
    gct_ok(call_vector(comm, v, own, end > 0 || v == EXSCAN ? recv : NULL, count, GC_INT64, GC_SUM, root));
    for (size_t i = 0; i < count && end > 0; i++) {
        int64_t want = (int64_t)end * (end - 1) / 2 * 1000003 - (int64_t)i * end;
        gct_require(recv[i] == want, "element %zu is %lld, not %lld", i, (long long)recv[i], (long long)want);
    }
    gct_require(end > 0 || !gct_check(recv, bytes, rank, 9), "no result, but something came");
    for (size_t i = 0; i < count && own == send; i++)
        gct_require(send[i] == element(rank, i), "the send buffer changed at %zu", i);
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(recv), "sum of %zu", count);
    return 0;
}

static int try_all(gc_comm *comm, size_t bytes, int root)
{
    gct_ok(gc_barrier(comm));
    GCT_TRY(try_bcast(comm, bytes, root));
    for (int in_place = 0; in_place < 2; in_place++) {
        GCT_TRY(try_gather(comm, bytes, root, in_place));
        GCT_TRY(try_allgather(comm, bytes, in_place));
        for (int v = 0; v < VECTORS; v++)
            GCT_TRY(try_sum(comm, (enum vector)v, bytes / 8, root, in_place));
    }
    return 0;
}

static int every_root(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t bytes[] = { 0, 1, 8, 333 };
    (void)rank, (void)arg;
    for (int i = 0; i < COUNT(bytes); i++)
        for (int root = 0; root < size; root++)
            GCT_TRY(try_all(world, bytes[i], root));
    return 0;
}

static void test_every_root(void **state)
{
    (void)state;
    run_all_sizes(every_root, NULL);
}

static int every_size(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t bytes[] = { 4096, 16383, 65536, 65537, 200008 };
    (void)rank, (void)arg;
    for (int i = 0; i < COUNT(bytes); i++)
        GCT_TRY(try_all(world, bytes[i], i % size));
    GCT_TRY(try_bcast(world, 3000001, size - 1));
    GCT_TRY(try_sum(world, ALLREDUCE, 300000, 0, false));
    GCT_TRY(try_sum(world, REDUCE, 300000, size / 2, true));
    return 0;
}

static void test_every_size(void **state)
{
    (void)state;
    run_some_sizes(every_size, NULL);
}

/* ---- algorithms by name ------------------------------------------------------------------------------------------ */

static int some_roots(gc_comm *world, int rank, int size, void *arg)
{
    (void)rank, (void)arg;
    GCT_TRY(try_all(world, 1, 0));
    GCT_TRY(try_all(world, 24, size / 2));
    GCT_TRY(try_all(world, 20000, size - 1));
    return 0;
}

static void test_algorithms(void **state)
{
    static char flat[] = "barrier:flat,bcast:flat,reduce:flat,allreduce:flat,gather:flat,allgather:flat";
    static char trees[] = "barrier:binomial,bcast:binomial,reduce:binomial,allreduce:binomial,gather:binomial,allgather:binomial";
    static char wide[] = "barrier:knomial,bcast:knomial,reduce:knomial,allreduce:knomial,gather:knomial,allgather:knomial";
    static char doubling[] = "barrier:doubling,allreduce:doubling,allgather:doubling,scan:doubling,exscan:doubling,";
    static char halving[] = "reduce:halving,allreduce:halving,bcast:scatter,allgather:bruck,scan:direct,exscan:direct";
    static char rings[] = "bcast:chain@1000,reduce:chain@1000,allreduce:ring@4096,allgather:ring";
    static char circulant[] = "bcast:circulant@1000,reduce:circulant@1000,allreduce:circulant,allgather:circulant";
    static char *const names[] = { flat, trees, wide, doubling, halving, rings, circulant };
    (void)state;
    for (int a = 0; a < COUNT(names); a++)
        for (int i = 0; i < COUNT(job_sizes); i++)
            run_algorithm(job_sizes[i], some_roots, names[a]);
}

static int refused_code;

static void refused(int rank, int code, const char *text, void *arg)
{
    (void)rank, (void)arg;
    refused_code = strstr(text, "GRIDCOMM_ALGO") ? code : 0;
}

static int not_reached(gc_comm *world, int rank, int size, void *arg)
{
    (void)world, (void)rank, (void)size, (void)arg;
    return gct_fail(__FILE__, __LINE__, "gc_init", "must fail");
}

static void test_unknown_algorithm(void **state)
{
    static char wrong[][32] = { "bcast:fast", "bcast", "broadcast:flat", "bcast:", ":flat", "bcast:flat,gather:doubling" };
    (void)state;
    for (int i = 0; i < COUNT(wrong); i++) {
        refused_code = 0;
        gct_job(&(gct_spec){ .ranks = 1, .options = set_algo, .refused = refused }, not_reached, wrong[i]);
        assert_int_equal(refused_code, GC_ERR_CONFIG);
    }
}

/* ---- every type and operation ------------------------------------------------------------------------------------ */

static const size_t type_bytes[] = { [GC_INT8] = 1, [GC_INT16] = 2, [GC_INT32] = 4, [GC_INT64] = 8,
                                     [GC_UINT8] = 1, [GC_UINT16] = 2, [GC_UINT32] = 4, [GC_UINT64] = 8,
                                     [GC_FLOAT] = 4, [GC_DOUBLE] = 8, [GC_FLOAT16] = 2, [GC_BFLOAT16] = 2 };

/* A small whole number in 16 bits, of which so many are fraction. */
static int64_t narrow(int value, int fraction_bits, int bias)
{
    int exponent = 0;
    while (value >> exponent > 1)
        exponent++;
    return value == 0 ? 0 : ((exponent + bias - 1) << fraction_bits) + (value << fraction_bits >> exponent);
}

static void put(gc_type type, void *buf, size_t i, int value)
{
    double d = value;
    float f = (float)value;
    int64_t n = type == GC_FLOAT16 ? narrow(value, 10, 15) : type == GC_BFLOAT16 ? narrow(value, 7, 127) : value;
    const void *from = type == GC_DOUBLE ? (const void *)&d : type == GC_FLOAT ? (const void *)&f : (const void *)&n;
    memcpy((uint8_t *)buf + i * type_bytes[type], from, type_bytes[type]);      /* integers: the low bytes */
}

static int fold(gc_op op, int a, int b)
{
    switch (op) {
    case GC_SUM:  return a + b;
    case GC_PROD: return a * b;
    case GC_MIN:  return a < b ? a : b;
    case GC_MAX:  return a > b ? a : b;
    case GC_BAND: return a & b;
    case GC_BOR:  return a | b;
    case GC_BXOR: return a ^ b;
    case GC_LAND: return a && b;
    case GC_LOR:  return a || b;
    default:      return !a != !b;
    }
}

/* Small enough for a product of all ranks in 8 bits. */
static int operand(gc_op op, int rank, size_t i)
{
    return op == GC_PROD ? 1 + ((rank + (int)i) % 5 == 0) : (rank * 3 + (int)i) % 7;
}

static int try_operation(gc_comm *world, enum vector v, gc_type type, gc_op op)
{
    enum { N = 131 };
    int rank = gc_rank(world), end = vector_end(world, v, 0);
    size_t bytes = N * type_bytes[type];
    void *send = gct_buffer(bytes), *recv = gct_buffer(bytes), *want = gct_buffer(bytes);
    for (size_t i = 0; i < N; i++) {
        put(type, send, i, operand(op, rank, i));
        int value = operand(op, 0, i);
        for (int r = 1; r < end; r++)
            value = fold(op, value, operand(op, r, i));
        put(type, want, i, value);
    }
    gct_ok(call_vector(world, v, send, recv, N, type, op, 0));
    gct_require(end == 0 || memcmp(recv, want, bytes) == 0, "type %d, operation %d", type, op);
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(recv) && !gct_buffer_free(want), "type %d, operation %d", type, op);
    return 0;
}

static int every_type(gc_comm *world, int rank, int size, void *arg)
{
    (void)rank, (void)size, (void)arg;
    for (gc_type type = GC_INT8; type <= GC_BFLOAT16; type++)
        for (gc_op op = GC_SUM; op <= (type < GC_FLOAT ? GC_LXOR : GC_MAX); op++)
            for (int v = 0; v < VECTORS; v++)
                GCT_TRY(try_operation(world, (enum vector)v, type, op));
    return 0;
}

static void test_every_type(void **state)
{
    (void)state;
    run(5, every_type, NULL);
    run(2, every_type, NULL);
}

/* All ranks hold the same bits, and again the next time, of sums that depend on their order. */
static int same_bits(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 300 };
    double send[N], recv[2][N];
    uint64_t random = 7 + (uint64_t)rank;
    (void)arg;
    for (int i = 0; i < N; i++)
        send[i] = (double)(int64_t)gct_random(&random) / (1 + (double)(gct_random(&random) % 1000));
    for (int again = 0; again < 2; again++)
        gct_ok(gc_allreduce(world, send, recv[again], N, GC_DOUBLE, GC_SUM));
    gct_require(memcmp(recv[0], recv[1], sizeof recv[0]) == 0, "the second time it differs");
    double *all = gct_buffer((size_t)size * sizeof recv[0]);
    gct_ok(gc_allgather(world, recv[0], sizeof recv[0], all));
    for (int r = 0; r < size; r++)
        gct_require(memcmp(all + (size_t)r * N, recv[0], sizeof recv[0]) == 0, "rank %d has other bits", r);
    gct_require(!gct_buffer_free(all), "overrun");
    double zero = rank % 2 ? 0.0 : -0.0, least[2];      /* equal, but not the same bits */
    gct_ok(gc_allreduce(world, &zero, &least[0], 1, GC_DOUBLE, GC_MIN));
    least[1] = least[0];
    gct_ok(gc_bcast(world, &least[1], sizeof least[1], 0));
    gct_require(memcmp(&least[0], &least[1], sizeof least[0]) == 0, "rank %d has another zero", rank);
    return 0;
}

static void test_same_bits(void **state)
{
    static char doubling[] = "allreduce:doubling";
    (void)state;
    for (int i = 0; i < COUNT(job_sizes); i++) {
        run(job_sizes[i], same_bits, NULL);
        run_algorithm(job_sizes[i], same_bits, doubling);
    }
}

/* ---- user operations --------------------------------------------------------------------------------------------- */

enum { PRIME = 65521 };
typedef struct matrix { uint32_t m[4]; } matrix;

static matrix product(matrix a, matrix b)
{
    return (matrix){ { (a.m[0] * b.m[0] + a.m[1] * b.m[2] % PRIME) % PRIME,
                       (a.m[0] * b.m[1] + a.m[1] * b.m[3] % PRIME) % PRIME,
                       (a.m[2] * b.m[0] + a.m[3] * b.m[2] % PRIME) % PRIME,
                       (a.m[2] * b.m[1] + a.m[3] * b.m[3] % PRIME) % PRIME } };
}

static void multiply(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const matrix *a = in;
    matrix *b = inout;
    (void)user;
    for (size_t i = 0; i < count && type == GC_OPAQUE; i++)
        b[i] = product(a[i], b[i]);
}

static void add(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const matrix *a = in;
    matrix *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        for (int k = 0; k < 4; k++)
            b[i].m[k] += a[i].m[k];
}

static matrix matrix_of(int rank, size_t i)
{
    uint32_t r = (uint32_t)rank + 1, k = (uint32_t)i % 97;
    return (matrix){ { r, k + 1, k * 5 + 2, r * 7 + 3 } };
}

/* A text that grows: keeps the order of all ranks visible. */
typedef struct word { uint8_t length, text[47]; } word;

static void append(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const word *a = in;
    word *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++) {
        word both = a[i];
        memcpy(both.text + a[i].length, b[i].text, b[i].length);
        both.length = (uint8_t)(a[i].length + b[i].length);
        b[i] = both;
    }
}

/* Neither associative nor commutative: only one order from the left gives this value. */
static void thrice(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const uint32_t *a = in;
    uint32_t *b = inout;
    (void)type;
    for (size_t i = 0; i < count; i++)
        b[i] = 3 * a[i] + b[i] + *(const uint32_t *)user;
}

static void make_matrix(int rank, size_t i, void *out) { *(matrix *)out = matrix_of(rank, i); }
static void make_added(int rank, size_t i, void *out) { *(matrix *)out = (matrix){ { (uint32_t)i, (uint32_t)rank, 1, 0 } }; }
static void make_number(int rank, size_t i, void *out) { *(uint32_t *)out = (uint32_t)(rank * 17 + (int)i); }

static void make_word(int rank, size_t i, void *out)
{
    *(word *)out = (word){ .length = (uint8_t)(rank % 3 + 1), .text = { (uint8_t)('a' + rank), (uint8_t)('0' + i % 10), '.' } };
}

/* An operation, and elements for it. */
typedef struct algebra {
    gc_op_fn *fn;
    size_t    bytes;
    unsigned  flags;
    gc_type   type;
    void    (*make)(int rank, size_t i, void *out);
    gc_op     op;
} algebra;

static uint32_t handed = 1;             /* to the operations */

/* The oracle folds from rank 0 up, with the user's own function. */
static int try_user(gc_comm *comm, const algebra *a, enum vector v, size_t count, int root, bool in_place)
{
    int rank = gc_rank(comm), end = vector_end(comm, v, root);
    uint8_t *send = gct_buffer(count * a->bytes), *recv = gct_buffer(count * a->bytes), *own = end > 0 && in_place ? recv : send;
    for (size_t i = 0; i < count; i++)
        a->make(rank, i, own + i * a->bytes);
    gct_ok(call_vector(comm, v, own, recv, count, a->type, a->op, root));
    for (size_t i = 0; i < count && end > 0; i++) {
        matrix room[2][3];              /* aligned, and large enough for every element */
        a->make(0, i, room[0]);
        for (int r = 1; r < end; r++) {
            a->make(r, i, room[r % 2]);
            a->fn(room[(r - 1) % 2], room[r % 2], 1, a->type, &handed);
        }
        gct_require(memcmp(room[(end - 1) % 2], recv + i * a->bytes, a->bytes) == 0, "operation %d of %d ranks: element %zu",
                    a->op, end, i);
    }
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(recv), "overrun");
    return 0;
}

static int user_operations(gc_comm *world, int rank, int size, void *arg)
{
    static const size_t counts[] = { 0, 1, 13, 2000 };
    algebra kinds[] = {
        { multiply, sizeof(matrix), GC_OP_ASSOCIATIVE, GC_OPAQUE, make_matrix, 0 },
        { add, sizeof(matrix), GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE, GC_OPAQUE, make_added, 0 },
        { append, sizeof(word), GC_OP_ASSOCIATIVE, GC_OPAQUE, make_word, 0 },
        { thrice, sizeof(uint32_t), 0, GC_UINT32, make_number, 0 },
    };
    (void)rank, (void)arg;
    for (int k = 0; k < COUNT(kinds); k++)
        gct_ok(gc_op_create(world, kinds[k].fn, kinds[k].bytes, kinds[k].flags, &handed, &kinds[k].op));
    for (int v = 0; v < VECTORS; v++)
        for (int root = 0; root < (v == REDUCE ? size : 1); root++)
            for (int i = 0; i < COUNT(counts) - (root > 1); i++)
                for (int k = 0; k < COUNT(kinds); k++)
                    for (int in_place = 0; in_place < 2; in_place++)
                        GCT_TRY(try_user(world, &kinds[k], (enum vector)v, counts[i], root, in_place));
    for (int k = 0; k < COUNT(kinds); k++)
        gct_ok(gc_op_free(world, kinds[k].op));
    gct_require(gc_op_free(world, kinds[0].op) == GC_ERR_ARG, "freed twice");
    return 0;
}

static void test_user_operations(void **state)
{
    static char doubling[] = "allreduce:doubling,reduce:flat,scan:doubling,exscan:doubling";   /* not for all of them */
    (void)state;
    for (int i = 0; i < COUNT(job_sizes); i++) {
        run(job_sizes[i], user_operations, NULL);
        run_algorithm(job_sizes[i], user_operations, doubling);
    }
}

static int reduce_local(gc_comm *world, int rank, int size, void *arg)
{
    int32_t in[] = { 1, 2, 3 }, inout[] = { 10, -20, 30 };
    matrix a = matrix_of(1, 4), b = matrix_of(2, 5), want = product(a, b);
    gc_op op;
    (void)rank, (void)size, (void)arg;
    gct_ok(gc_reduce_local(world, in, inout, 3, GC_INT32, GC_MAX));
    gct_require(inout[0] == 10 && inout[1] == 2 && inout[2] == 30, "max");
    gct_ok(gc_op_create(world, multiply, sizeof(matrix), 0, NULL, &op));
    gct_ok(gc_reduce_local(world, &a, &b, 1, GC_OPAQUE, op));
    gct_require(memcmp(&b, &want, sizeof b) == 0, "in (op) inout");
    gct_ok(gc_reduce_local(world, NULL, NULL, 0, GC_OPAQUE, op));
    gct_ok(gc_op_free(world, op));
    gct_require(gc_reduce_local(world, in, inout, 3, GC_OPAQUE, op) == GC_ERR_ARG, "freed operation");
    gct_require(gc_reduce_local(world, in, NULL, 3, GC_INT32, GC_SUM) == GC_ERR_ARG, "NULL");
    gct_require(gc_reduce_local(world, in, in + 1, 2, GC_INT32, GC_SUM) == GC_ERR_ARG, "overlap");
    gct_require(gc_reduce_local(world, in, inout, SIZE_MAX / 2, GC_INT32, GC_SUM) == GC_ERR_ARG, "overflow");
    return 0;
}

static void test_reduce_local(void **state)
{
    (void)state;
    run(1, reduce_local, NULL);
}

/* ---- communicators ----------------------------------------------------------------------------------------------- */

static int subcomms(gc_comm *world, int rank, int size, void *arg)
{
    gc_comm *half = NULL, *twin = NULL;
    (void)arg;
    gct_ok(gc_comm_split(world, rank % 2, -rank, &half));      /* reversed order */
    gct_ok(gc_comm_dup(world, &twin));
    gct_require(gc_size(half) == (size + 1 - rank % 2) / 2, "size %d", gc_size(half));
    for (int root = 0; root < gc_size(half); root++)
        GCT_TRY(try_all(half, 100, root));
    GCT_TRY(try_all(twin, 1000, size - 1));
    int64_t a = rank, b = rank, c = rank, sum[3];
    gc_request *request[3];             /* three communicators at once, waited for in another order */
    gct_ok(gc_iallreduce(world, &a, &sum[0], 1, GC_INT64, GC_SUM, &request[0]));
    gct_ok(gc_iallreduce(half, &b, &sum[1], 1, GC_INT64, GC_SUM, &request[1]));
    gct_ok(gc_iallreduce(twin, &c, &sum[2], 1, GC_INT64, GC_MAX, &request[2]));
    for (int i = 2; i >= 0; i--)
        gct_ok(gc_wait(&request[i], NULL));
    int64_t of_half = 0;
    for (int r = rank % 2; r < size; r += 2)
        of_half += r;
    gct_require(sum[0] == (int64_t)size * (size - 1) / 2 && sum[1] == of_half && sum[2] == size - 1, "sums");
    gct_ok(gc_comm_free(twin));
    gct_ok(gc_comm_free(half));
    return 0;
}

static void test_subcomms(void **state)
{
    (void)state;
    for (int i = 1; i < COUNT(job_sizes); i++)
        run(job_sizes[i], subcomms, NULL);
}

/* ---- non-blocking ------------------------------------------------------------------------------------------------ */

enum { KINDS = 16, AT_ONCE = 2 * KINDS, BLOCK = 500, TAGS = 32 };

/* Starts collective number i of a mixture; every buffer is its own. Of the send buffer block k bears the tag i * TAGS + k.
 * Nobody needs the arrays later. */
static int start_one(gc_comm *world, int i, uint8_t *send, uint8_t *recv, gc_request **request)
{
    int size = gc_size(world), root = i % size;
    size_t bytes[TAGS], at[TAGS];
    for (int k = 0; k < size; k++) {
        bytes[k] = BLOCK;
        at[k] = (size_t)k * BLOCK;
    }
    uint8_t *at_root = gc_rank(world) == root ? recv : NULL;
    switch (i % KINDS) {
    case 0:  return gc_ibarrier(world, request);
    case 1:  return gc_ibcast(world, gc_rank(world) == root ? send : recv, BLOCK, root, request);
    case 2:  return gc_igather(world, send, BLOCK, at_root, root, request);
    case 3:  return gc_iallgather(world, send, BLOCK, recv, request);
    case 4:  return gc_ireduce(world, send, at_root, BLOCK, GC_UINT8, GC_BXOR, root, request);
    case 5:  return gc_iallreduce(world, send, recv, BLOCK, GC_UINT8, GC_BXOR, request);
    case 6:  return gc_iscatter(world, send, BLOCK, recv, root, request);
    case 7:  return gc_iscatterv(world, send, bytes, at, recv, BLOCK, root, request);
    case 8:  return gc_igatherv(world, send, BLOCK, at_root, bytes, at, root, request);
    case 9:  return gc_iallgatherv(world, send, BLOCK, recv, bytes, at, request);
    case 10: return gc_ialltoall(world, send, BLOCK, recv, request);
    case 11: return gc_ialltoallv(world, send, bytes, at, recv, bytes, at, request);
    case 12: return gc_ireduce_scatter(world, send, recv, bytes, GC_UINT8, GC_BXOR, request);
    case 13: return gc_ireduce_scatter_block(world, send, recv, BLOCK, GC_UINT8, GC_BXOR, request);
    case 14: return gc_iscan(world, send, recv, BLOCK, GC_UINT8, GC_BXOR, request);
    default: return gc_iexscan(world, send, recv, BLOCK, GC_UINT8, GC_BXOR, request);
    }
}

/* Is it that block of all ranks before end, combined? */
static int check_xor(const uint8_t *recv, int end, int tag)
{
    uint8_t want[BLOCK] = { 0 }, one_of[BLOCK];
    for (int r = 0; r < end; r++) {
        gct_fill(one_of, sizeof one_of, r, tag);
        for (size_t k = 0; k < sizeof one_of; k++)
            want[k] ^= one_of[k];
    }
    return end > 0 && memcmp(recv, want, sizeof want) != 0;
}

static int check_one(gc_comm *world, int i, const uint8_t *recv)
{
    int size = gc_size(world), rank = gc_rank(world), root = i % size, tag = i * TAGS, wrong;
    bool here = rank == root;
    switch (i % KINDS) {
    case 0:  wrong = 0; break;
    case 1:  wrong = !here && gct_check(recv, BLOCK, root, tag); break;
    case 2:
    case 8:  wrong = here && check_blocks(recv, BLOCK, size, tag); break;
    case 3:
    case 9:  wrong = check_blocks(recv, BLOCK, size, tag); break;
    case 4:  wrong = here && check_xor(recv, size, tag); break;
    case 5:  wrong = check_xor(recv, size, tag); break;
    case 6:
    case 7:  wrong = gct_check(recv, BLOCK, root, tag + rank); break;
    case 10:
    case 11: wrong = check_blocks(recv, BLOCK, size, tag + rank); break;
    case 12:
    case 13: wrong = check_xor(recv, size, tag + rank); break;
    default: wrong = check_xor(recv, rank + (i % KINDS == 14), tag); break;
    }
    gct_require(!wrong, "collective %d", i);
    return 0;
}

static int many_at_once(gc_comm *world, int rank, int size, void *arg)
{
    uint8_t *send[AT_ONCE], *recv[AT_ONCE], byte = 0;
    gc_request *request[AT_ONCE], *message[2];
    (void)arg;
    for (int i = 0; i < AT_ONCE; i++) {
        send[i] = gct_buffer(BLOCK * (size_t)size);
        recv[i] = gct_buffer(BLOCK * (size_t)size);
        for (int k = 0; k < size; k++)
            gct_fill(send[i] + k * BLOCK, BLOCK, rank, i * TAGS + k);
    }
    gct_ok(gc_irecv(world, &byte, 1, (rank + size - 1) % size, 3, &message[0]));    /* no collective takes this */
    for (int i = 0; i < AT_ONCE; i++)
        gct_ok(start_one(world, i, send[i], recv[i], &request[i]));
    gct_ok(gc_isend(world, "x", 1, (rank + 1) % size, 3, &message[1]));
    gct_ok(gc_waitall(2, message, NULL));
    for (int i = 0; i < AT_ONCE; i += 3)
        for (int done = 0; !done;)
            gct_ok(gc_test(&request[i], &done, NULL));
    for (int i = AT_ONCE - 1; i >= 0; i -= 2)
        gct_ok(gc_wait(&request[i], NULL));
    gct_ok(gc_waitall(AT_ONCE, request, NULL));
    for (int i = 0; i < AT_ONCE; i++) {
        GCT_TRY(check_one(world, i, recv[i]));
        gct_require(!gct_buffer_free(send[i]) && !gct_buffer_free(recv[i]), "collective %d", i);
    }
    gct_require(byte == 'x', "the message");
    return 0;
}

static void test_many_at_once(void **state)
{
    (void)state;
    run_all_sizes(many_at_once, NULL);
}

/* A collective goes on while its ranks wait for something else: rank 0 waits for a message that the last rank sends only
 * after its part of the broadcast, which comes through inner ranks that wait for a message of rank 0. */
static int goes_on(gc_comm *world, int rank, int size, void *arg)
{
    enum { BYTES = 100000 };
    uint8_t *buf = gct_buffer(BYTES), byte = 0;
    gc_request *request;
    (void)arg;
    gct_fill(buf, BYTES, rank, 4);
    gct_ok(gc_ibcast(world, buf, BYTES, 0, &request));
    if (rank == size - 1)
        gct_ok(gc_wait(&request, NULL));
    if (rank == size - 1)
        gct_ok(gc_send(world, &byte, 1, 0, 5));
    if (rank == 0)
        gct_ok(gc_recv(world, &byte, 1, size - 1, 5, NULL));
    for (int r = 1; rank == 0 && r < size - 1; r++)
        gct_ok(gc_send(world, &byte, 1, r, 6));
    if (rank > 0 && rank < size - 1)
        gct_ok(gc_recv(world, &byte, 1, 0, 6, NULL));
    gct_ok(gc_wait(&request, NULL));
    gct_require(!gct_check(buf, BYTES, 0, 4) && !gct_buffer_free(buf), "bcast");
    return 0;
}

static void test_goes_on(void **state)
{
    (void)state;
    run(2, goes_on, NULL);
    run(8, goes_on, NULL);
    run(11, goes_on, NULL);
}

/* ---- different collectives --------------------------------------------------------------------------------------- */

enum wrong { WRONG_KIND, WRONG_KIND_EVEN, WRONG_BYTES, WRONG_ROOT, WRONG_OP, WRONG_TYPE, WRONG_FLAGS, WRONG_ZERO, WRONG_LARGE,
             WRONGS };

/* What the odd one out calls, and the others. */
static int call_apart(gc_comm *world, enum wrong wrong, bool odd, gc_op user_a, gc_op user_b)
{
    static const size_t LARGE = 400000;
    uint8_t *a = gct_buffer(LARGE), *b = gct_buffer(LARGE);
    int code = GC_OK, size = gc_size(world);
    memset(a, 1, LARGE);
    switch (wrong) {
    case WRONG_KIND:
    case WRONG_KIND_EVEN:
        code = odd ? gc_barrier(world) : gc_allreduce(world, a, b, 1, GC_INT32, GC_SUM);
        break;
    case WRONG_BYTES:
        code = gc_allreduce(world, a, b, odd ? 5 : 4, GC_INT32, GC_SUM);
        break;
    case WRONG_ROOT:
        code = gc_bcast(world, a, 100, odd ? size - 1 : 0);
        break;
    case WRONG_OP:
        code = gc_allreduce(world, a, b, 4, GC_INT32, odd ? GC_MIN : GC_MAX);
        break;
    case WRONG_TYPE:
        code = gc_allreduce(world, a, b, 4, odd ? GC_UINT32 : GC_INT32, GC_SUM);
        break;
    case WRONG_FLAGS:
        code = gc_allreduce(world, a, b, 4, GC_UINT32, odd ? user_a : user_b);
        break;
    case WRONG_ZERO:
        code = gc_allreduce(world, a, b, odd ? 0 : 4, GC_INT32, GC_SUM);
        break;
    default:
        code = odd ? gc_barrier(world) : gc_allreduce(world, a, b, LARGE / 4, GC_INT32, GC_SUM);
        break;
    }
    if (gct_buffer_free(a) || gct_buffer_free(b))
        return 1;
    return code;
}

static int mismatch(gc_comm *world, int rank, int size, void *arg)
{
    const int *only = arg;
    gc_op user_a, user_b;
    uint32_t one = 1;
    gct_ok(gc_op_create(world, thrice, 4, GC_OP_ASSOCIATIVE, &one, &user_a));
    gct_ok(gc_op_create(world, thrice, 4, GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE, &one, &user_b));
    for (int wrong = only ? *only : 0; wrong < (only ? *only + 1 : WRONGS); wrong++)
        for (int who = 0; who < size; who += size > 5 ? 3 : 1) {
            bool odd = wrong == WRONG_KIND_EVEN ? (rank + who) % 2 == 0 : rank == who;
            int code = call_apart(world, (enum wrong)wrong, odd, user_a, user_b);
            /* bcast and empty calls may be over before anything is amiss; who depends on everybody must know */
            bool may_be_over = wrong == WRONG_ROOT || (wrong == WRONG_ZERO && odd);
            gct_require(code == GC_ERR_MISMATCH || (code == GC_OK && may_be_over), "case %d, odd rank %d: %s", wrong, who,
                        gc_strerror(code));
            if (code == GC_ERR_MISMATCH) {
                char text[200] = "";
                gc_status status;
                gct_require(gc_last_error(world, &status, text, sizeof text) == GC_ERR_MISMATCH, "last error");
                gct_require(strstr(text, "calls") && strstr(text, "rank") && status.fault_rank >= 0 && status.fault_rank < size,
                            "case %d: \"%s\", rank %d", wrong, text, status.fault_rank);
                if (wrong == WRONG_KIND)
                    gct_require(strstr(text, "barrier") && strstr(text, "allreduce"), "\"%s\"", text);
            }
            GCT_TRY(try_sum(world, ALLREDUCE, 3, 0, false));
        }
    GCT_TRY(try_all(world, 1000, size - 1));
    gct_ok(gc_op_free(world, user_a));
    gct_ok(gc_op_free(world, user_b));
    return 0;
}

static void test_mismatch(void **state)
{
    static const int ranks[] = { 2, 3, 5, 8, 16 };
    (void)state;
    for (int i = 0; i < COUNT(ranks); i++)
        run(ranks[i], mismatch, NULL);
}

/* The wrong one of several outstanding collectives fails, its neighbours do not. */
static int mismatch_among(gc_comm *world, int rank, int size, void *arg)
{
    enum { N = 9, BAD = 4 };
    int64_t send[N], recv[N];
    gc_request *request[N];
    (void)arg;
    for (int i = 0; i < N; i++) {
        send[i] = rank + i;
        if (i == BAD && rank == size / 2)
            gct_ok(gc_ibarrier(world, &request[i]));
        else
            gct_ok(gc_iallreduce(world, &send[i], &recv[i], 1, GC_INT64, GC_SUM, &request[i]));
    }
    for (int i = 0; i < N; i++) {
        int code = gc_wait(&request[i], NULL);
        gct_require(code == (i == BAD ? GC_ERR_MISMATCH : GC_OK), "collective %d: %s", i, gc_strerror(code));
        gct_require(i == BAD || recv[i] == (int64_t)size * (size - 1) / 2 + (int64_t)i * size, "sum %d", i);
    }
    return 0;
}

static void test_mismatch_among(void **state)
{
    (void)state;
    run(2, mismatch_among, NULL);
    run(5, mismatch_among, NULL);
    run(8, mismatch_among, NULL);
}

/* Who notices tells the others: nobody has to wait until it asks (100 ms). */
static int one_apart(gc_comm *world, int rank, int size, void *arg)
{
    int32_t a = 1, b;
    (void)arg;
    gct_ok(gc_barrier(world));
    int code = rank == size - 1 ? gc_barrier(world) : gc_allreduce(world, &a, &b, 1, GC_INT32, GC_SUM);
    gct_require(code == GC_ERR_MISMATCH, "%s", gc_strerror(code));
    return 0;
}

static void test_mismatch_is_told(void **state)
{
    gct_outcome outcome = { .virtual_ns = 0 };
    gct_spec spec = { .ranks = 8, .calm = true, .outcome = &outcome };
    (void)state;
    assert_int_equal(0, gct_job(&spec, one_apart, NULL));
    if (gct_simulated(&spec))
        assert_true(outcome.virtual_ns < 90 * INT64_C(1000000));
}

/* Neither mismatches nor new sizes pile anything up: no schedules, no messages, no credits. */
static int long_life(gc_comm *world, int rank, int size, void *arg)
{
    enum { LAPS = 400, SETTLED = 200, SLACK = 200000 };
    uint8_t *a = gct_buffer(8 * LAPS), *b = gct_buffer(8 * LAPS);
    gc_stats settled = { .size = sizeof settled }, end = { .size = sizeof end };
    (void)arg;
    memset(a, 1, 8 * LAPS);
    for (int i = 0; i < LAPS; i++) {
        if (i == SETTLED)
            gct_ok(gc_get_stats(world, &settled));
        gct_ok(gc_allreduce(world, a, b, (size_t)i, GC_INT64, GC_BOR));
        if (i % 4 == 0) {
            int code = rank == i % size ? gc_barrier(world) : gc_allreduce(world, a, b, 100, GC_INT64, GC_BOR);
            gct_require(code == GC_ERR_MISMATCH, "lap %d: %s", i, gc_strerror(code));
        }
    }
    gct_ok(gc_get_stats(world, &end));
    gct_require(end.memory < settled.memory + SLACK, "memory grows: %zu, then %zu", settled.memory, end.memory);
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

/* Messages of collectives that fail before this rank comes to them go, too: more of them than there are credits. */
static int late_zero(gc_comm *world, int rank, int size, void *arg)
{
    enum { LAPS = 150, SETTLED = 50, N = 100, SLACK = (LAPS - SETTLED) * N * 8 / 2 };
    int64_t *a = gct_buffer(N * 8), *b = gct_buffer(N * 8);
    gc_stats settled = { .size = sizeof settled }, end = { .size = sizeof end };
    (void)arg;
    memset(a, 1, N * 8);
    for (int i = 0; i < LAPS; i++) {
        gc_request *request;
        if (i == SETTLED)
            gct_ok(gc_get_stats(world, &settled));
        if (rank > 0) {
            gct_ok(gc_iallreduce(world, a, b, N, GC_INT64, GC_BOR, &request));
            gct_ok(gc_send(world, NULL, 0, 0, 1));
        } else {
            for (int r = 1; r < size; r++)
                gct_ok(gc_recv(world, NULL, 0, r, 1, NULL));
            gct_ok(gc_ibarrier(world, &request));
        }
        int code = gc_wait(&request, NULL);
        gct_require(code == GC_ERR_MISMATCH, "lap %d: %s", i, gc_strerror(code));
    }
    gct_ok(gc_get_stats(world, &end));
    gct_require(end.memory < settled.memory + SLACK, "memory grows: %zu, then %zu", settled.memory, end.memory);
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return 0;
}

/* Rank 0 comes to collectives that failed without it long ago: more of them than anybody remembers. */
static int far_behind(gc_comm *world, int rank, int size, void *arg)
{
    enum { LAPS = 60 };                 /* the odd one sends to the last rank at first, which sees it, and not to rank 0 */
    int64_t a = 1, b;
    (void)arg;
    for (int r = 1; rank == 0 && r < size; r++)
        gct_ok(gc_recv(world, NULL, 0, r, 1, NULL));
    for (int i = 0; i < LAPS; i++) {
        int code = rank == size - 2 ? gc_barrier(world) : gc_allreduce(world, &a, &b, 1, GC_INT64, GC_SUM);
        gct_require(code == GC_ERR_MISMATCH, "lap %d: %s", i, gc_strerror(code));
    }
    if (rank > 0)
        gct_ok(gc_send(world, NULL, 0, 0, 1));
    GCT_TRY(try_sum(world, ALLREDUCE, 3, 0, false));
    return try_all(world, 1000, 0);
}

/* And finds there the beginnings of long messages whose senders have given them up. */
static int half_behind(gc_comm *world, int rank, int size, void *arg)
{
    enum { LAPS = 24, LONG = 1 << 20 };
    uint8_t *a = gct_buffer((size_t)size * LONG), *b = gct_buffer(LONG);
    gc_request *request[LAPS];
    int last = size - 1, odd = rank == last;
    (void)arg;
    memset(a, 1, (size_t)size * LONG);
    if (odd)
        gct_ok(gc_recv(world, NULL, 0, 0, 1, NULL));    /* that has begun */
    for (int i = 0; i < LAPS && (odd || rank == 0); i++)
        gct_ok(odd ? gc_igather(world, a, 8, NULL, 0, &request[i]) : gc_iscatter(world, a, LONG, b, 0, &request[i]));
    if (rank == 0)
        gct_ok(gc_send(world, NULL, 0, last, 1));
    for (int i = 0; i < LAPS; i++) {
        int code = odd || rank == 0 ? gc_wait(&request[i], NULL) : GC_ERR_MISMATCH;
        gct_require(code == GC_ERR_MISMATCH, "lap %d: %s", i, gc_strerror(code));
    }
    for (int other = 1; other < last; other++)
        if (odd || rank == 0)
            gct_ok(gc_send(world, NULL, 0, other, 2));
        else if (rank == other) {
            gct_ok(gc_recv(world, NULL, 0, 0, 2, NULL));
            gct_ok(gc_recv(world, NULL, 0, last, 2, NULL));
        }
    for (int i = 0; i < LAPS && !odd && rank > 0; i++) {
        int code = gc_scatter(world, NULL, LONG, b, 0);
        gct_require(code == GC_ERR_MISMATCH, "lap %d: %s", i, gc_strerror(code));
    }
    gct_require(!gct_buffer_free(a) && !gct_buffer_free(b), "overrun");
    return try_all(world, 1000, 0);
}

static void test_far_behind(void **state)
{
    static char doubling[] = "barrier:doubling,allreduce:doubling";
    (void)state;
    run_algorithm(4, far_behind, doubling);
    run_algorithm(8, far_behind, doubling);
    run_algorithm(3, half_behind, "scatter:flat,gather:flat");
    run_algorithm(5, half_behind, "scatter:flat,gather:flat");
}

static void test_long_life(void **state)
{
    (void)state;
    run(3, late_zero, NULL);
    run(3, long_life, NULL);
    run(8, long_life, NULL);
}

/* ---- out of memory ----------------------------------------------------------------------------------------------- */

enum { POOR_RANK = 1, POOR_RANKS = 5, POOR_SITES = 2, POOR_KINDS = 6 };
typedef struct poverty {
    void *(*alloc)(void *user, void *old, size_t bytes);        /* the harness's */
    void  *user;
    bool   armed;
    int    kind;                /* which collective */
    bool   late;                /* it comes when the others have begun */
    int    left;                /* allocations until one fails */
    bool   failed;
} poverty;

static void *poor_alloc(void *user, void *old, size_t bytes)
{
    poverty *p = user;
    if (p->armed && bytes > 0 && p->left-- == 0) {
        p->failed = true;
        return NULL;
    }
    if (p->alloc)
        return p->alloc(p->user, old, bytes);
    if (bytes > 0)
        return realloc(old, bytes);
    free(old);
    return NULL;
}

static void make_poor(gc_options *options, int rank, void *arg)
{
    poverty *p = arg;
    if (rank != POOR_RANK)
        return;
    p->alloc = options->alloc;
    p->user = options->alloc_user;
    options->alloc = poor_alloc;
    options->alloc_user = p;
}

static int poor_call(gc_comm *comm, int kind, const gc_tree *tree)
{
    static const size_t counts[POOR_RANKS] = { 3, 0, 2, 1, 1 }, at[POOR_RANKS] = { 0, 3, 3, 5, 6 };
    static const size_t ones[POOR_RANKS] = { 1, 1, 1, 1, 1 }, place[POOR_RANKS] = { 0, 1, 2, 3, 4 };
    int64_t send[7], recv[7], rank = gc_rank(comm), size = gc_size(comm);
    for (int i = 0; i < 7; i++)
        send[i] = rank;
    int code = kind == 0 ? gc_allreduce(comm, send, recv, 7, GC_INT64, GC_SUM)
             : kind == 1 ? gc_reduce_scatter(comm, send, recv, counts, GC_INT64, GC_SUM)
             : kind == 2 ? gc_allgatherv(comm, send, counts[rank], recv, counts, at)
             : kind == 4 ? gc_gatherv(comm, send, counts[rank], recv, counts, at, 0)
             : kind == 5 ? gc_alltoallv(comm, send, ones, place, recv, ones, place)
             : gc_tree_gatherv(comm, tree, send, counts[rank], recv, counts, at);
    gct_require(code != GC_OK || kind > 1 || (kind == 1 && rank == 1) || recv[0] == size * (size - 1) / 2, "wrong sum");
    return code;
}

/* The rank that runs out of memory fails, and all others with it that still wait, by name; the communicator works on. It may
 * fail to learn where its ranks are, and so not know what the others call. */
static int poor_job(gc_comm *world, int rank, int size, void *arg)
{
    poverty *p = arg;
    gc_comm *fresh;             /* nothing of it is cached */
    gc_tree *tree;
    gct_ok(gc_tree_build(&tree, "chain", size, 0, NULL, NULL));
    gct_ok(gc_comm_dup(world, &fresh));
    gct_ok(gc_barrier(world));
    if (rank == POOR_RANK && p->late) {
        gc_request *never;
        gct_ok(gc_irecv(world, NULL, 0, 0, 1, &never));
        gct_require(gc_wait_for(&never, 0.05, NULL) == GC_ERR_TIMEOUT, "a message that nobody sends");
        gct_ok(gc_cancel(never));
        gct_require(gc_wait(&never, NULL) == GC_ERR_CANCELLED, "not cancelled");
    }
    p->armed = rank == POOR_RANK || p->armed;
    int code = poor_call(fresh, p->kind, tree);
    if (rank == POOR_RANK)
        p->armed = false;
    gct_require(code == GC_OK || code == GC_ERR_NOMEM, "%s", gc_strerror(code));
    if (code == GC_ERR_NOMEM && rank != POOR_RANK) {
        gc_status status;
        gc_last_error(fresh, &status, NULL, 0);
        gct_require(status.fault_rank == POOR_RANK, "rank %d is blamed", status.fault_rank);
    }
    GCT_TRY(try_sum(fresh, ALLREDUCE, 10, 0, false));
    gct_ok(gc_comm_free(fresh));
    gc_tree_free(tree);
    return 0;
}

static int poor_make(gc_comm *world, int kind, gc_comm **out)
{
    int all[POOR_RANKS];
    for (int i = 0; i < POOR_RANKS; i++)
        all[i] = POOR_RANKS - 1 - i;
    return kind == 0 ? gc_comm_dup(world, out) : kind == 1 ? gc_comm_split(world, gc_rank(world) % 2, 0, out)
                     : gc_comm_create(world, all, POOR_RANKS, out);
}

/* Who has no memory for a communicator says so before anybody has it. */
static int poor_making(gc_comm *world, int rank, int size, void *arg)
{
    poverty *p = arg;
    gc_comm *made;
    (void)size;
    gct_ok(gc_barrier(world));
    p->armed = rank == POOR_RANK || p->armed;
    int code = poor_make(world, p->kind, &made);
    if (rank == POOR_RANK)
        p->armed = false;
    gct_require(code == GC_ERR_NOMEM && !made, "%s", gc_strerror(code));
    gct_ok(poor_make(world, p->kind, &made));
    gct_ok(gc_barrier(made));
    gct_ok(gc_comm_free(made));
    return 0;
}

static void test_no_communicator(void **state)
{
    static const int allocations[] = { 4, 5, 5 };       /* before anything is said */
    (void)state;
    for (int kind = 0; kind < COUNT(allocations) && gct_simulated(&(gct_spec){ .ranks = POOR_RANKS }); kind++)
        for (int n = 0; n < allocations[kind]; n++) {
            poverty p = { .kind = kind, .left = n };
            assert_int_equal(0, gct_job(&(gct_spec){ .ranks = POOR_RANKS, .options = make_poor }, poor_making, &p));
            assert_true(p.failed);
        }
}

static void test_out_of_memory(void **state)
{
    (void)state;
    if (!gct_simulated(&(gct_spec){ .ranks = POOR_RANKS }))
        return;                 /* with real threads it is chance whose allocation fails */
    for (int kind = 0; kind < 2 * POOR_KINDS * POOR_SITES; kind++) {
        int n = 0;
        for (bool failed = true; failed; n++) {
            poverty p = { .kind = kind / POOR_SITES / 2, .late = kind / POOR_SITES % 2, .left = n };
            const gct_spec spec = { .ranks = POOR_RANKS, .sites = 1 + kind % POOR_SITES, .options = make_poor };
            assert_int_equal(0, gct_job(&spec, poor_job, &p));
            failed = p.failed;
            assert_true(n < 100);
        }
        assert_true(n > 3);     /* schedule, block and request at least */
    }
}

/* ---- wrong arguments --------------------------------------------------------------------------------------------- */

static int wrong_arguments(gc_comm *world, int rank, int size, void *arg)
{
    int32_t buf[64] = { 0 }, other[64];
    gc_request *request = NULL;
    gc_op op;
    (void)rank, (void)arg;
    gct_require(gc_barrier(NULL) == GC_ERR_ARG, "NULL communicator");
    REFUSES(gc_ibarrier(world, NULL));
    REFUSES(gc_bcast(world, buf, 4, -1));
    REFUSES(gc_bcast(world, buf, 4, size));
    REFUSES(gc_bcast(world, NULL, 4, 0));
    REFUSES(gc_gather(world, NULL, 4, buf, 0));
    REFUSES(gc_gather(world, buf, 4, other, size + 7));
    REFUSES(gc_allgather(world, buf, 4, NULL));
    if (size > 1)
        REFUSES(gc_allgather(world, buf, SIZE_MAX / (size_t)size + 1, other));
    REFUSES(gc_allgather(world, (char *)buf + (rank == 0 ? 1 : 0), 4, buf));
    REFUSES(gc_allreduce(world, buf, NULL, 1, GC_INT32, GC_SUM));
    REFUSES(gc_allreduce(world, NULL, buf, 1, GC_INT32, GC_SUM));
    REFUSES(gc_allreduce(world, buf, buf + 1, 2, GC_INT32, GC_SUM));
    REFUSES(gc_allreduce(world, buf, other, SIZE_MAX / 2, GC_INT32, GC_SUM));
    REFUSES(gc_allreduce(world, buf, other, 1, 0, GC_SUM));
    REFUSES(gc_allreduce(world, buf, other, 1, 99, GC_SUM));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_INT32, 0));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_INT32, 12));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_INT32, 64));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_INT32, INT32_MAX));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_FLOAT, GC_BAND));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_OPAQUE, GC_SUM));
    REFUSES(gc_reduce(world, buf, other, 1, GC_INT32, GC_SUM, size));
    REFUSES(gc_op_create(world, NULL, 4, 0, NULL, &op));
    REFUSES(gc_op_create(world, append, 0, 0, NULL, &op));
    REFUSES(gc_op_create(world, append, 4, 8, NULL, &op));
    REFUSES(gc_op_create(world, append, 4, 0, NULL, NULL));
    REFUSES(gc_op_free(world, GC_SUM));
    REFUSES(gc_op_free(world, 64));
    gct_ok(gc_op_create(world, append, 8, 0, NULL, &op));
    REFUSES(gc_allreduce(world, buf, other, 1, GC_INT32, op));
    gct_ok(gc_op_free(world, op));
    gct_require(gc_ibcast(world, buf, 4, -1, &request) == GC_ERR_ARG && !request, "request left");
    GCT_TRY(try_all(world, 8, size - 1));
    gct_ok(gc_bcast(world, NULL, 0, 0));
    gct_ok(gc_allreduce(world, NULL, NULL, 0, GC_INT32, GC_SUM));
    return 0;
}

static void test_wrong_arguments(void **state)
{
    (void)state;
    run(1, wrong_arguments, NULL);
    run(3, wrong_arguments, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_root),       cmocka_unit_test(test_every_size),     cmocka_unit_test(test_algorithms),
        cmocka_unit_test(test_unknown_algorithm), cmocka_unit_test(test_every_type),    cmocka_unit_test(test_same_bits),
        cmocka_unit_test(test_user_operations),  cmocka_unit_test(test_reduce_local),   cmocka_unit_test(test_subcomms),
        cmocka_unit_test(test_many_at_once),     cmocka_unit_test(test_goes_on),        cmocka_unit_test(test_mismatch),
        cmocka_unit_test(test_mismatch_among),   cmocka_unit_test(test_wrong_arguments), cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_no_communicator),  cmocka_unit_test(test_mismatch_is_told), cmocka_unit_test(test_long_life),
        cmocka_unit_test(test_far_behind),
    };
    return cmocka_run_group_tests_name("coll", tests, NULL, NULL);
}
