/* test_bits.c: what docs/collectives.md calls bitwise equal: with GRIDCOMM_ORDER=rank every reduction gives the bits of the
 * canonical expression, and what does not associate always those of one from rank 0 up, whatever the clusters, racks and hosts,
 * algorithms, lengths, roots and buffers in place. Sums of floats tell groupings apart; what does not commute, operands.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays it; GCT_ROUNDS says how many jobs it draws.
 */
#include "tests/gct.h"
#include "simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RANKS_MAX = 14, JOBS = 60, CALLS = 24 };

#define GCT_TRY(call) do { int failed_ = (call); if (failed_) return failed_; } while (0)

/* ---- operations ------------------------------------------------------------------------------------------------------ */

/* LEANS is said to commute, and does not: the expression has an order of operands all the same. */
enum kind { FLOATS, DOUBLES, PRODUCTS, HALVES, BROADS, AFFINE, LEANS, FROM_LEFT, KINDS };
typedef struct affine { float m, c; } affine;
typedef struct algebra { gc_type type; gc_op op; size_t bytes; } algebra;

/* x -> m x + c, one after the other: associates but for rounding, and does not commute. */
static void compose(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const affine *a = in;
    affine *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        b[i] = (affine){ a[i].m * b[i].m, a[i].m * b[i].c + a[i].c };
}

static void lean(const void *in, void *inout, size_t count, gc_type type, void *user)
{
    const float *a = in;
    float *b = inout;
    (void)type, (void)user;
    for (size_t i = 0; i < count; i++)
        b[i] = 0.75f * a[i] + b[i];
}

static int algebras_make(gc_comm *world, algebra of[KINDS])
{
    of[FLOATS] = (algebra){ GC_FLOAT, GC_SUM, sizeof(float) };
    of[DOUBLES] = (algebra){ GC_DOUBLE, GC_SUM, sizeof(double) };
    of[PRODUCTS] = (algebra){ GC_DOUBLE, GC_PROD, sizeof(double) };
    of[HALVES] = (algebra){ GC_FLOAT16, GC_SUM, sizeof(uint16_t) };
    of[BROADS] = (algebra){ GC_BFLOAT16, GC_SUM, sizeof(uint16_t) };
    of[AFFINE] = (algebra){ GC_OPAQUE, 0, sizeof(affine) };
    of[LEANS] = of[FROM_LEFT] = (algebra){ GC_FLOAT, 0, sizeof(float) };
    gct_ok(gc_op_create(world, compose, sizeof(affine), GC_OP_ASSOCIATIVE, NULL, &of[AFFINE].op));
    gct_ok(gc_op_create(world, lean, sizeof(float), GC_OP_ASSOCIATIVE | GC_OP_COMMUTATIVE, NULL, &of[LEANS].op));
    gct_ok(gc_op_create(world, lean, sizeof(float), 0, NULL, &of[FROM_LEFT].op));
    return 0;
}

/* What a rank brings: numbers of many magnitudes, and of either sign. */
static void operands(enum kind kind, int rank, size_t count, void *out)
{
    uint64_t random = (uint64_t)rank * 1000 + (uint64_t)kind;
    for (size_t i = 0; i < count; i++) {
        uint64_t bits = gct_random(&random);
        float magnitude = 1.0f / (float)(1u << (bits >> 32 & 15)), value = ((float)(int32_t)bits) * 0x1p-31f * magnitude;
        if (kind == HALVES)             /* sign, exponents 4 to 19, fraction */
            ((uint16_t *)out)[i] = (uint16_t)((bits & 0x83ff) | ((bits >> 20 & 15) + 4) << 10);
        else if (kind == BROADS)        /* exponents 112 to 127 */
            ((uint16_t *)out)[i] = (uint16_t)((bits & 0x807f) | ((bits >> 20 & 15) + 112) << 7);
        else if (kind == DOUBLES)
            ((double *)out)[i] = (double)value * (1 + (double)(bits >> 32) * 0x1p-52);
        else if (kind == PRODUCTS)
            ((double *)out)[i] = 1 + (double)value;
        else if (kind == AFFINE)
            ((affine *)out)[i] = (affine){ 1.0f + value, (float)(bits >> 40) };
        else
            ((float *)out)[i] = value;
    }
}

/* ---- what it has to be ------------------------------------------------------------------------------------------------- */

/* Of the ranks [first, end): split at the largest power of two below their number, and so on; or from the first one up. */
static int evaluate(gc_comm *world, const algebra *a, enum kind kind, int first, int end, size_t count, void *out)
{
    int left = 1;
    while (kind != FROM_LEFT && 2 * left < end - first)
        left *= 2;
    if (kind == FROM_LEFT)
        left = end - first - 1;
    if (end - first == 1) {
        operands(kind, first, count, out);
        return 0;
    }
    void *low = gct_buffer(count * a->bytes);
    GCT_TRY(evaluate(world, a, kind, first, first + left, count, low));
    GCT_TRY(evaluate(world, a, kind, first + left, end, count, out));
    gct_ok(gc_reduce_local(world, low, out, count, a->type, a->op));
    gct_require(!gct_buffer_free(low), "overrun");
    return 0;
}

/* ---- calls ------------------------------------------------------------------------------------------------------------- */

enum coll { REDUCE, ALLREDUCE, SCAN, EXSCAN, SCATTERED, BLOCKS, COLLS };

/* Elements [at, at + count) of the result are this rank's. */
typedef struct share { size_t counts[RANKS_MAX], at, count; } share;

static share share_of(gc_comm *world, enum coll coll, size_t count, uint64_t *random)
{
    int size = gc_size(world), rank = gc_rank(world);
    share s = { .at = 0, .count = count };
    size_t left = count;
    if (coll < SCATTERED)
        return s;
    for (int r = 0; r < size; r++) {
        size_t most = 2 * count / (size_t)size + 1, drawn = (size_t)gct_random(random) % most;
        s.counts[r] = coll == BLOCKS ? count / (size_t)size : r == size - 1 || drawn > left ? left : drawn;
        left -= s.counts[r];
        s.at += r < rank ? s.counts[r] : 0;
    }
    s.count = s.counts[rank];
    return s;
}

static int call(gc_comm *world, enum coll coll, const algebra *a, const void *send, void *recv, size_t count, const share *s,
                int root)
{
    switch (coll) {
    case REDUCE:    return gc_reduce(world, send, recv, count, a->type, a->op, root);
    case ALLREDUCE: return gc_allreduce(world, send, recv, count, a->type, a->op);
    case SCAN:      return gc_scan(world, send, recv, count, a->type, a->op);
    case EXSCAN:    return gc_exscan(world, send, recv, count, a->type, a->op);
    case SCATTERED: return gc_reduce_scatter(world, send, recv, s->counts, a->type, a->op);
    default:        return gc_reduce_scatter_block(world, send, recv, s->counts[0], a->type, a->op);
    }
}

static int try_call(gc_comm *world, enum coll coll, const algebra *a, enum kind kind, size_t count, int root, uint64_t *random)
{
    int rank = gc_rank(world), size = gc_size(world);
    int end = coll == REDUCE ? (rank == root) * size : coll == SCAN ? rank + 1 : coll == EXSCAN ? rank : size;
    share s = share_of(world, coll, count, random);
    count = coll == BLOCKS ? s.counts[0] * (size_t)size : count;
    uint64_t own = *random + (uint64_t)rank;
    bool in_place = gct_random(&own) % 2, at_block = gct_random(&own) % 2;
    uint8_t *send = gct_buffer(count * a->bytes), *apart = gct_buffer(count * a->bytes), *want = gct_buffer(count * a->bytes);
    uint8_t *recv = !in_place || end == 0 ? apart : coll >= SCATTERED && at_block ? send + s.at * a->bytes : send;
    operands(kind, rank, count, send);
    gct_ok(call(world, coll, a, send, recv, count, &s, root));
    if (end > 0) {
        GCT_TRY(evaluate(world, a, kind, 0, end, count, want));
        for (size_t i = 0; i < s.count; i++)
            gct_require(memcmp(recv + i * a->bytes, want + (s.at + i) * a->bytes, a->bytes) == 0,
                        "collective %d, kind %d: element %zu of %zu", coll, kind, i, s.count);
    }
    gct_require(!gct_buffer_free(send) && !gct_buffer_free(apart) && !gct_buffer_free(want), "overrun");
    return 0;
}

/* ---- jobs -------------------------------------------------------------------------------------------------------------- */

typedef struct job {
    uint64_t random;
    bool     ordered;           /* GRIDCOMM_ORDER=rank; else only what does not associate is looked at */
    bool     longs;
    bool     mixed;             /* the order of ranks is not that of the world */
    char     algo[512], path[RANKS_MAX][16];
} job;

static uint64_t random_state;

static int pick(int n) { return (int)(gct_random(&random_state) % (uint64_t)n); }

static void set_options(gc_options *options, int rank, void *arg)
{
    const job *j = arg;
    options->algo = j->algo;
    options->order = j->ordered ? "rank" : "";
    options->cluster = j->path[rank];
}

/* Sites in blocks, by turns, or at random; racks likewise. */
static void draw_places(job *j, int ranks)
{
    static const int counts[] = { 1, 2, 4, 7 };
    int sites = counts[pick(4)], how = pick(3), racks = 1 + pick(3);
    for (int r = 0; r < ranks; r++) {
        int site = how == 0 ? r * sites / ranks : how == 1 ? r % sites : pick(sites);
        snprintf(j->path[r], sizeof j->path[r], "s%d/r%d", site, pick(4) ? r * racks / ranks : pick(racks));
    }
}

/* Half of the collectives by some algorithm that is known for it, whether it fits or not. */
static void draw_algorithms(job *j)
{
    static const enum gci_coll reductions[] = { GCI_REDUCE, GCI_ALLREDUCE, GCI_REDUCE_SCATTER, GCI_SCAN, GCI_EXSCAN };
    int used = 0, algos = 0;
    while (gci_algo_at(algos))
        algos++;
    j->algo[0] = 0;
    for (size_t i = 0; i < GCI_COUNT(reductions); i++) {
        const gci_algo *algo = gci_algo_at(pick(algos));
        if (algo->colls >> reductions[i] & 1 && strcmp(algo->name, "given") != 0)
            used += snprintf(j->algo + used, sizeof j->algo - (size_t)used, "%s:%s%s,", gci_coll_name(reductions[i]), algo->name,
                             pick(2) ? "@1000" : "");
    }
}

static int some_calls(gc_comm *world, int rank, int size, void *arg)
{
    const job *j = arg;
    uint64_t random = j->random;
    algebra of[KINDS];
    gc_comm *comm;
    gct_ok(gc_comm_split(world, 0, j->mixed ? rank * 7 % size : rank, &comm));
    GCT_TRY(algebras_make(comm, of));
    for (int i = 0; i < (j->longs ? CALLS / 4 : CALLS); i++) {
        enum kind kind = j->ordered ? (enum kind)(gct_random(&random) % KINDS) : FROM_LEFT;
        enum coll coll = (enum coll)(i % COLLS);
        size_t most = j->longs ? 300000 : gct_random(&random) % 2 ? 60 : 6000, count = (size_t)gct_random(&random) % most;
        GCT_TRY(try_call(comm, coll, &of[kind], kind, count, (int)(gct_random(&random) % (uint64_t)size), &random));
    }
    gct_ok(gc_comm_free(comm));
    return 0;
}

static void test_bits(void **state)
{
    const char *rounds = getenv("GCT_ROUNDS");
    (void)state;
    random_state = gct_seed();
    print_message("GCT_SEED=%llu\n", (unsigned long long)random_state);
    for (int i = 0; i < (rounds ? atoi(rounds) : JOBS); i++) {
        int ranks = 1 + pick(RANKS_MAX);
        job j = { .random = gct_random(&random_state), .ordered = i % 5 > 0, .longs = i % 20 == 7, .mixed = pick(2) };
        draw_places(&j, ranks);
        draw_algorithms(&j);
        const gct_spec spec = { .ranks = ranks, .ranks_per_host = 1 + pick(4), .seed = gct_random(&random_state),
                                .options = set_options, .time_limit = 100 };
        if (gct_job(&spec, some_calls, &j))
            fail_msg("job %d: %d ranks, %s%s", i, ranks, j.ordered ? "in order, " : "", j.algo);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_bits) };
    return cmocka_run_group_tests_name("bits", tests, NULL, NULL);
}
