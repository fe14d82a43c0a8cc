/* test_schedules.c: the schedules that the executor runs, of all ranks of a collective together, are proven right (witness.h):
 * random programs of all collectives, several at a time; each named exception from the wide-area conditions; and the witness
 * finds what is wrong with a schedule or with the way it is run.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part.
 */
#include "tests/gct.h"
#include "tests/sim/witness.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

enum { RANKS_MAX = 12, JOBS = 200, CALLS = 24, AT_ONCE = 6, GAP = 3 };

#define GCT_TRY(call) do { int failed_ = (call); if (failed_) return failed_; } while (0)
#define PICK(array) ((array)[pick((int)GCI_COUNT(array))])

enum op { BARRIER, BCAST, SCATTER, SCATTERV, GATHER, GATHERV, ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, REDUCE, ALLREDUCE,
          REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, TREE_BCAST, TREE_REDUCE, TREE_SCATTERV, TREE_GATHERV, OPS };

/* Commutes or not, associates or not; of doubles only GRIDCOMM_ORDER=rank asks for the order. All on 8 bytes. */
enum kind { SUM, DOUBLES, AFFINE, FROM_LEFT, KINDS };

enum group { WORLD, HALVES, SOME, GROUPS };     /* halves: every second rank, from the last; some: in any order */

typedef struct one_call {
    enum op    op;
    enum kind  kind;
    enum group group;
    int        root, number;
    size_t     count;               /* of 8 bytes in a vector; of bytes in a block, but of a reduction */
    bool       in_place, mixed;     /* mixed: at every second rank */
    bool       blocks;              /* the call does not return before its end */
    bool       all_at_once;         /* it is begun while others go on */
} one_call;

typedef struct program {
    one_call    call[CALLS];
    int         calls, ranks, some[RANKS_MAX], some_ranks;
    const char *algo, *order;
    witness    *witness;
    int         proven;             /* how many must be, but askings for sizes */
    void      (*tamper)(void *to, const gci_seen *);
} program;

static uint64_t random_state;

static int pick(int n) { return (int)(gct_random(&random_state) % (uint64_t)n); }

/* ---- operations ------------------------------------------------------------------------------------------------------ */

/* `low` is of lower ranks. */
static uint64_t combine(enum kind kind, uint64_t low, uint64_t high)
{
    double a, b;
    switch (kind) {
    case SUM:
        return low + high;
    case DOUBLES:
        memcpy(&a, &low, sizeof a);
        memcpy(&b, &high, sizeof b);
        a += b;
        memcpy(&low, &a, sizeof a);
        return low;
    case AFFINE:                    /* first x -> ax + b of the low one, then that of the high one */
        return (uint64_t)((uint32_t)(low >> 32) * (uint32_t)(high >> 32)) << 32 |
               (uint32_t)((uint32_t)(high >> 32) * (uint32_t)low + (uint32_t)high);
    default:
        return 3 * low + (high ^ 5);
    }
}

static uint64_t element(const one_call *c, int rank, size_t i)
{
    uint64_t state = (uint64_t)rank * 1000003 + (uint64_t)c->number * 101 + i;
    double whole = (double)(state % 1000);
    uint64_t bits = gct_random(&state);
    if (c->kind == DOUBLES)
        memcpy(&bits, &whole, sizeof bits);
    return bits;
}

static void fold(const void *in, void *inout, size_t count, gc_type type, void *kind)
{
    const uint64_t *low = in;
    uint64_t *high = inout;
    (void)type;
    for (size_t i = 0; i < count; i++)
        high[i] = combine(*(const enum kind *)kind, low[i], high[i]);
}

/* ---- one rank's part in a call ----------------------------------------------------------------------------------------- */

typedef struct flight {
    const one_call *c;
    gc_comm    *comm;
    int         rank, size;
    uint8_t    *send, *recv;
    size_t      send_bytes[RANKS_MAX], send_at[RANKS_MAX], recv_bytes[RANKS_MAX], recv_at[RANKS_MAX];
    gc_request *request;
    bool        under_way;
} flight;

static bool is_uneven(enum op op)
{
    return op == SCATTERV || op == GATHERV || op == ALLGATHERV || op == ALLTOALLV || op == REDUCE_SCATTER || op >= TREE_SCATTERV;
}

static bool is_reduction(enum op op) { return (op >= REDUCE && op <= EXSCAN) || op == TREE_REDUCE; }

static bool has_root(enum op op)
{
    return (op >= BCAST && op <= GATHERV) || op == REDUCE || op >= TREE_BCAST;
}

/* Bytes from one rank for another, the same both ways. */
static size_t block(const one_call *c, int a, int b)
{
    size_t unit = is_reduction(c->op) ? 8 : 1, some = (size_t)((a + b) * 5 + a * b * 3 + c->number) % 4;
    return unit * (!is_uneven(c->op) ? c->count : some == 0 ? 0 : c->count * some / 2);
}

/* Of the ranks' blocks, as a root or everybody has them: uneven ones from the last to the first, with gaps. */
static size_t lay_out(const flight *f, bool own_row, size_t bytes[], size_t at[])
{
    const one_call *c = f->c;
    size_t end = 0, gap = is_uneven(c->op) && !is_reduction(c->op) ? GAP : 0;
    for (int i = 0; i < f->size; i++) {
        int k = gap ? f->size - 1 - i : i;
        bytes[k] = block(c, own_row ? f->rank : k, k);
        at[k] = end;
        end += bytes[k] + gap;
    }
    return end;
}

static bool is_in_place(const flight *f)
{
    const one_call *c = f->c;
    bool at_root = has_root(c->op);
    return c->in_place && (!c->mixed || f->rank % 2 == 0) && (!at_root || f->rank == c->root) && (c->op != EXSCAN || f->rank > 0);
}

/* Buffers, with what this rank gives in them. */
static void fill(flight *f)
{
    const one_call *c = f->c;
    bool root = f->rank == c->root, in_place = is_in_place(f);
    size_t own = block(c, f->rank, f->rank), vector = 8 * c->count;
    size_t row = lay_out(f, c->op == ALLTOALL || c->op == ALLTOALLV, f->send_bytes, f->send_at);
    (void)lay_out(f, c->op == ALLTOALL || c->op == ALLTOALLV, f->recv_bytes, f->recv_at);
    size_t send = 0, recv = 0;
    switch (c->op) {
    case BARRIER:       break;
    case BCAST:         case TREE_BCAST:                        recv = own; break;
    case SCATTER:       case SCATTERV:  case TREE_SCATTERV:     send = root ? row : 0; recv = in_place ? 0 : own; break;
    case GATHER:        case GATHERV:   case TREE_GATHERV:      send = in_place ? 0 : own; recv = root ? row : 0; break;
    case ALLGATHER:     case ALLGATHERV:                        send = in_place ? 0 : own; recv = row; break;
    case ALLTOALL:      case ALLTOALLV:                         send = in_place ? 0 : row; recv = row; break;
    case REDUCE_SCATTER: case REDUCE_SCATTER_BLOCK:             send = in_place ? 0 : row; recv = in_place ? row : own; break;
    default:            send = in_place ? 0 : vector; recv = vector; break;
    }
    f->send = gct_buffer(send);
    f->recv = gct_buffer(recv);
    uint8_t *in = in_place ? f->recv : f->send;
    if (c->op == BCAST || c->op == TREE_BCAST) {
        gct_fill(f->recv, own, f->rank, c->number);
    } else if (is_reduction(c->op)) {
        bool scattered = c->op == REDUCE_SCATTER || c->op == REDUCE_SCATTER_BLOCK;
        for (size_t i = 0; i < (scattered ? row : vector) / 8; i++)
            ((uint64_t *)(void *)in)[i] = element(c, f->rank, i);
    } else if (c->op == SCATTER || c->op == SCATTERV || c->op == TREE_SCATTERV || c->op == ALLTOALL || c->op == ALLTOALLV) {
        in = c->op >= ALLTOALL && c->op <= ALLTOALLV ? in : f->send;
        for (int k = 0; k < f->size && (root || c->op == ALLTOALL || c->op == ALLTOALLV); k++)
            gct_fill(in + f->send_at[k], f->send_bytes[k], f->rank, c->number * RANKS_MAX + k);
    } else if (c->op != BARRIER) {
        gct_fill(in_place ? f->recv + f->recv_at[f->rank] : f->send, own, f->rank, c->number * RANKS_MAX);
    }
}

static int begin_tree(flight *f, gc_op op, gc_type type)
{
    static const char *const shapes[] = { "flat", "chain", "binary", "knomial:3" };
    const one_call *c = f->c;
    gc_tree *tree = NULL;
    size_t own = block(c, f->rank, f->rank);
    bool in_place = is_in_place(f);
    int err = gc_tree_build(&tree, shapes[c->number % 4], f->size, c->root, NULL, NULL);
    if (err == GC_OK && c->op == TREE_BCAST)
        err = gc_tree_bcast(f->comm, tree, f->recv, own);
    else if (err == GC_OK && c->op == TREE_REDUCE)
        err = gc_tree_reduce(f->comm, tree, in_place ? f->recv : f->send, f->recv, c->count, type, op);
    else if (err == GC_OK && c->op == TREE_SCATTERV)
        err = gc_tree_scatterv(f->comm, tree, f->send, f->send_bytes, f->send_at,
                               in_place ? f->send + f->send_at[f->rank] : f->recv, own);
    else if (err == GC_OK)
        err = gc_tree_gatherv(f->comm, tree, in_place ? f->recv + f->recv_at[f->rank] : f->send, own, f->recv, f->recv_bytes,
                              f->recv_at);
    gc_tree_free(tree);
    return err;
}

static int begin(flight *f, const gc_op ops[])
{
    const one_call *c = f->c;
    size_t own = block(c, f->rank, f->rank), counts[RANKS_MAX];
    bool in_place = is_in_place(f);
    uint8_t *all = in_place ? f->recv : f->send, *mine = in_place ? f->recv + f->recv_at[f->rank] : f->send;
    uint8_t *got = in_place ? f->send + f->send_at[f->rank] : f->recv;
    gc_type type = c->kind == SUM ? GC_UINT64 : c->kind == DOUBLES ? GC_DOUBLE : GC_OPAQUE;
    gc_op op = ops[c->kind];
    gc_request **r = &f->request;
    f->under_way = c->op < TREE_BCAST;
    for (int k = 0; k < f->size; k++)
        counts[k] = f->send_bytes[k] / 8;
    switch (c->op) {
    case BARRIER:       return gc_ibarrier(f->comm, r);
    case BCAST:         return gc_ibcast(f->comm, f->recv, own, c->root, r);
    case SCATTER:       return gc_iscatter(f->comm, f->send, own, got, c->root, r);
    case SCATTERV:      return gc_iscatterv(f->comm, f->send, f->send_bytes, f->send_at, got, own, c->root, r);
    case GATHER:        return gc_igather(f->comm, mine, own, f->recv, c->root, r);
    case GATHERV:       return gc_igatherv(f->comm, mine, own, f->recv, f->recv_bytes, f->recv_at, c->root, r);
    case ALLGATHER:     return gc_iallgather(f->comm, mine, own, f->recv, r);
    case ALLGATHERV:    return gc_iallgatherv(f->comm, mine, own, f->recv, f->recv_bytes, f->recv_at, r);
    case ALLTOALL:      return gc_ialltoall(f->comm, all, own, f->recv, r);
    case ALLTOALLV:     return gc_ialltoallv(f->comm, all, f->send_bytes, f->send_at, f->recv, f->recv_bytes, f->recv_at, r);
    case REDUCE:        return gc_ireduce(f->comm, all, f->recv, c->count, type, op, c->root, r);
    case ALLREDUCE:     return gc_iallreduce(f->comm, all, f->recv, c->count, type, op, r);
    case REDUCE_SCATTER:        return gc_ireduce_scatter(f->comm, all, f->recv, counts, type, op, r);
    case REDUCE_SCATTER_BLOCK:  return gc_ireduce_scatter_block(f->comm, all, f->recv, c->count, type, op, r);
    case SCAN:          return gc_iscan(f->comm, all, f->recv, c->count, type, op, r);
    case EXSCAN:        return gc_iexscan(f->comm, all, f->recv, c->count, type, op, r);
    default:            return begin_tree(f, op, type);
    }
}

static int check_reduction(const flight *f)
{
    const one_call *c = f->c;
    bool scattered = c->op == REDUCE_SCATTER || c->op == REDUCE_SCATTER_BLOCK;
    size_t n = scattered ? block(c, f->rank, f->rank) / 8 : c->count, first = scattered ? f->send_at[f->rank] / 8 : 0;
    int end = c->op == SCAN ? f->rank + 1 : c->op == EXSCAN ? f->rank : f->size;
    if ((c->op == REDUCE || c->op == TREE_REDUCE) && f->rank != c->root)
        return 0;
    for (size_t i = 0; i < n && end > 0; i++) {
        uint64_t want = element(c, 0, first + i), got = ((uint64_t *)(void *)f->recv)[i];
        for (int r = 1; r < end; r++)
            want = combine(c->kind, want, element(c, r, first + i));
        gct_require(got == want, "call %d, operation %d: element %zu is wrong", c->number, (int)c->op, i);
    }
    return 0;
}

static int check(const flight *f)
{
    const one_call *c = f->c;
    bool all = c->op == ALLTOALL || c->op == ALLTOALLV, gathers = c->op == ALLGATHER || c->op == ALLGATHERV;
    gathers |= (c->op == GATHER || c->op == GATHERV || c->op == TREE_GATHERV) && f->rank == c->root;
    if (is_reduction(c->op))
        return check_reduction(f);
    if (c->op == BCAST || c->op == TREE_BCAST)
        return gct_check(f->recv, block(c, f->rank, f->rank), c->root, c->number);
    for (int k = 0; k < f->size && (all || gathers); k++)
        GCT_TRY(gct_check(f->recv + f->recv_at[k], f->recv_bytes[k], k, c->number * RANKS_MAX + (all ? f->rank : 0)));
    if (c->op == SCATTER || c->op == SCATTERV || c->op == TREE_SCATTERV)
        return gct_check(is_in_place(f) ? f->send + f->send_at[f->rank] : f->recv, block(c, f->rank, f->rank), c->root,
                         c->number * RANKS_MAX + f->rank);
    return 0;
}

static int end_all(flight f[], int *flights)
{
    for (int i = *flights - 1; i >= 0; i--) {
        if (f[i].under_way)
            gct_ok(gc_wait(&f[i].request, NULL));
        GCT_TRY(check(&f[i]));
        gct_require(!gct_buffer_free(f[i].send) && !gct_buffer_free(f[i].recv), "call %d", f[i].c->number);
    }
    *flights = 0;
    return 0;
}

static int run_calls(program *p, gc_comm *const group[], const gc_op ops[])
{
    flight f[AT_ONCE];
    int flights = 0;
    for (int i = 0; i < p->calls; i++) {
        const one_call *c = &p->call[i];
        if (!group[c->group])
            continue;
        flight *new = &f[flights++];
        *new = (flight){ .c = c, .comm = group[c->group], .rank = gc_rank(group[c->group]), .size = gc_size(group[c->group]) };
        p->proven += new->rank == 0 ? 1 + (c->op >= TREE_SCATTERV) : 0;
        fill(new);
        gct_ok(begin(new, ops));
        if (c->blocks && new->under_way)
            gct_ok(gc_wait(&new->request, NULL));
        new->under_way &= !c->blocks;
        if (flights == AT_ONCE || !c->all_at_once)
            GCT_TRY(end_all(f, &flights));
    }
    return end_all(f, &flights);
}

static int run_program(gc_comm *world, int rank, int size, void *of_program)
{
    static enum kind kinds[KINDS] = { SUM, DOUBLES, AFFINE, FROM_LEFT };
    program *p = of_program;
    gc_op ops[KINDS] = { GC_SUM, GC_SUM };
    gc_comm *group[GROUPS] = { world };
    gc_stats stats = { .size = sizeof stats };
    uint64_t messages, bytes;
    if (rank == 0)
        p->proven += 2;             /* gc_comm_split has an allgather, gc_finalize a barrier */
    witness_attach(p->witness, world);
    if (p->tamper)
        world->world->env.seen = p->tamper;
    gct_ok(gc_op_create(world, fold, 8, GC_OP_ASSOCIATIVE, &kinds[AFFINE], &ops[AFFINE]));
    gct_ok(gc_op_create(world, fold, 8, 0, &kinds[FROM_LEFT], &ops[FROM_LEFT]));
    gct_ok(gc_comm_split(world, rank % 2, size - rank, &group[HALVES]));
    gct_ok(gc_comm_create(world, p->some, p->some_ranks, &group[SOME]));
    gct_ok(gc_get_stats(world, &stats));
    uint64_t before = stats.messages, bytes_before = stats.bytes, sent_before, sent_bytes_before;
    witness_sent(p->witness, rank, &sent_before, &sent_bytes_before);
    GCT_TRY(run_calls(p, group, ops));
    gct_ok(gc_get_stats(world, &stats));
    witness_sent(p->witness, rank, &messages, &bytes);
    bool same = stats.messages - before == messages - sent_before && stats.bytes - bytes_before == bytes - sent_bytes_before;
    gct_require(same || p->tamper,
                "%llu messages were sent, the schedules have %llu", (unsigned long long)(stats.messages - before),
                (unsigned long long)(messages - sent_before));
    gct_ok(group[HALVES] ? gc_comm_free(group[HALVES]) : 0);
    return group[SOME] ? gc_comm_free(group[SOME]) : 0;
}

static void set_options(gc_options *o, int rank, void *of_program)
{
    const program *p = of_program;
    (void)rank;
    o->algo = p->algo;
    o->order = p->order;
}

static witness_report run_job(program *p, const gct_place places[], FILE *faults)
{
    gct_spec spec = { .on = GCT_ON_SIM, .ranks = p->ranks, .places = places, .options = set_options, .ranks_per_host = 2,
                      .seed = gct_random(&random_state) | 1 };
    p->witness = witness_new(faults);
    int failed = gct_job(&spec, run_program, p);
    witness_report report = witness_end(p->witness, failed == 0);
    assert_int_equal(failed, 0);
    return report;
}

/* ---- random programs ------------------------------------------------------------------------------------------------- */

static void shuffle(int array[], int n)
{
    for (int i = n - 1; i > 0; i--) {
        int other = pick(i + 1), swap = array[i];
        array[i] = array[other];
        array[other] = swap;
    }
}

static void random_call(program *p, int i, enum op op, const size_t counts[2])
{
    one_call *c = &p->call[i];
    *c = (one_call){ .op = op, .kind = (enum kind)pick(KINDS), .group = (enum group)pick(GROUPS), .number = i + 1,
                 .count = counts[pick(2)], .in_place = pick(2), .mixed = pick(2), .blocks = pick(3) == 0,
                 .all_at_once = pick(5) > 0 };
    int fewest = c->group == WORLD ? p->ranks : c->group == SOME ? p->some_ranks : gci_max32(p->ranks / 2, 1);
    c->root = has_root(op) ? pick(2) * (fewest - 1) : 0;
}

/* Four operations that come again with few sizes and roots, so that one call finds another's schedule in the cache. */
static int random_program(program *p, gct_place places[], int job)
{
    static const size_t counts[] = { 0, 1, 2, 7, 64, 65, 100, 1500, 5000 };
    const size_t two[2] = { PICK(counts), PICK(counts) };
    static const char *const algos[] = {
        "barrier:flat,bcast:flat,reduce:flat,allreduce:flat,gather:flat,allgather:flat,scatter:flat,reduce_scatter:flat",
        "barrier:binomial,bcast:chain@500,reduce:chain@500,allreduce:ring@4096,gather:binomial,allgather:ring,alltoall:pairwise",
        "barrier:doubling,allreduce:doubling,allgather:doubling,scan:doubling,exscan:doubling,reduce_scatter:halving",
        "reduce:halving,allreduce:halving,bcast:scatter,allgather:bruck,alltoall:bruck,scan:direct,exscan:direct",
        "bcast:circulant@500,reduce:circulant@500,allreduce:circulant,allgather:circulant,reduce_scatter:circulant",
        "bcast:kary:3@100,reduce:binary,allreduce:knomial:3,gather:kary,scatter:knomial:3,reduce_scatter:ring,allgather:direct",
        "bcast:by-host-divided,reduce:nested,allreduce:nested,allgather:nested,reduce_scatter:nested,alltoall:by-host" };
    int sites, left;
    *p = (program){ .ranks = 1 + pick(RANKS_MAX), .calls = CALLS, .algo = pick(3) == 0 ? PICK(algos) : "",
                    .order = pick(3) == 0 ? "rank" : "" };
    sites = 1 + pick(p->ranks < 4 ? p->ranks : 4);
    left = p->ranks - sites;
    for (int i = 0; i < sites; i++, left -= places[i - 1].ranks - 1)
        places[i] = (gct_place){ .ranks = 1 + (i == sites - 1 ? left : pick(left + 1)) };
    for (int r = 0; r < p->ranks; r++)
        p->some[r] = r;
    shuffle(p->some, p->ranks);
    p->some_ranks = pick(2) ? p->ranks : 1 + pick(p->ranks);
    for (int i = 0; i < CALLS; i++)
        random_call(p, i, (enum op)((job + i % 4 * (OPS / 4)) % OPS), two);
    return sites;
}

static void test_random_programs(void **state)
{
    (void)state;
    int coll[GCI_COLLS] = { 0 }, asked = 0, wide = 0, by_host = 0, in_flight = 0;
    for (int job = 0; job < JOBS; job++) {
        program p;
        gct_place places[GCT_PLACES] = { { .ranks = 0 } };
        int sites = random_program(&p, places, job);
        witness_report got = run_job(&p, places, stderr);
        int made = got.proven - got.choice[WITNESS_ASKING], passed_over = got.failed + got.different + got.cut_short;
        if (got.faults || passed_over || made != p.proven)
            fail_msg("job %d, %d ranks, %d sites: %d faults, %d not proven, %d of %d proven: %s", job, p.ranks, sites, got.faults,
                     passed_over, made, p.proven, got.fault);
        for (int k = 0; k < GCI_COLLS; k++)
            coll[k] += got.coll[k];
        for (int k = 0; k < WITNESS_CASES; k++)
            wide += got.wide[k];
        by_host += got.by_host;
        asked += got.choice[WITNESS_ASKING];
        in_flight = gci_max32(in_flight, got.in_flight);
    }
    for (int k = 0; k < GCI_COLLS; k++)
        assert_true(coll[k] >= JOBS);
    print_message("%d between clusters by the rules, %d between hosts, %d asked for sizes, %d at a time\n", wide, by_host, asked,
                  in_flight);
    assert_true(in_flight > 1 && wide > JOBS && by_host > JOBS / 10);
}

/* ---- one call alone --------------------------------------------------------------------------------------------------- */

/* Six ranks in so many sites; SOME has them from the sites in turn. */
static witness_report run_alone(const one_call *c, int sites, const char *order, void (*seen)(void *, const gci_seen *),
                                FILE *faults)
{
    gct_place places[GCT_PLACES] = { { .ranks = 6 / sites }, { .ranks = 6 / sites }, { .ranks = 6 / sites } };
    program p = { .ranks = 6, .calls = 1, .some_ranks = 6, .algo = "", .order = order, .tamper = seen };
    for (int i = 0; i < 6; i++)
        p.some[i] = i % sites * (6 / sites) + i / sites;
    p.call[0] = *c;
    return run_job(&p, places, faults);
}

static void test_exceptions_by_name(void **state)
{
    static const struct { one_call c; const char *order; enum witness_case why; } cases[] = {
        { { .op = BCAST, .count = 100 }, "rank", WITNESS_NONE },
        { { .op = ALLTOALLV, .count = 100, .group = SOME }, "rank", WITNESS_NONE },
        { { .op = ALLGATHERV, .count = 100, .group = SOME }, "rank", WITNESS_NONE },
        { { .op = ALLREDUCE, .kind = SUM, .count = 100, .group = SOME }, "rank", WITNESS_NONE },
        { { .op = ALLREDUCE, .kind = AFFINE, .count = 100 }, "", WITNESS_NONE },
        { { .op = SCAN, .kind = AFFINE, .count = 100 }, "", WITNESS_NONE },
        { { .op = REDUCE, .kind = DOUBLES, .count = 100, .group = SOME }, "", WITNESS_NONE },
        { { .op = REDUCE, .kind = DOUBLES, .count = 0, .group = SOME }, "rank", WITNESS_NONE },
        { { .op = ALLREDUCE, .kind = FROM_LEFT, .count = 64 }, "", WITNESS_SHORT },
        { { .op = REDUCE_SCATTER_BLOCK, .kind = FROM_LEFT, .count = 10 }, "", WITNESS_SHORT },
        { { .op = ALLREDUCE, .kind = FROM_LEFT, .count = 65 }, "", WITNESS_LONG },
        { { .op = EXSCAN, .kind = FROM_LEFT, .count = 65 }, "", WITNESS_LONG },
        { { .op = ALLREDUCE, .kind = DOUBLES, .count = 100 }, "rank", WITNESS_CANONICAL },
        { { .op = EXSCAN, .kind = DOUBLES, .count = 100, .group = SOME }, "rank", WITNESS_CANONICAL },
        { { .op = REDUCE, .kind = AFFINE, .count = 100, .group = SOME }, "", WITNESS_RANK_ORDER },
        { { .op = REDUCE_SCATTER, .kind = AFFINE, .count = 100, .group = SOME }, "", WITNESS_RANK_ORDER },
        { { .op = SCAN, .kind = SUM, .count = 100, .group = SOME }, "", WITNESS_REORDERED_SCAN },
        { { .op = EXSCAN, .kind = DOUBLES, .count = 100, .group = SOME }, "", WITNESS_REORDERED_SCAN } };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(cases); i++) {
        witness_report got = run_alone(&cases[i].c, 2, cases[i].order, NULL, stderr);
        got.wide[WITNESS_NONE]--;               /* gc_comm_split has an allgather */
        for (int k = 0; k < WITNESS_CASES; k++)
            if (got.wide[k] != (k == (int)cases[i].why))
                fail_msg("case %d: %d of exception %d", (int)i, got.wide[k], k);
        assert_int_equal(got.divided, 0);
        assert_int_equal(got.faults, 0);
    }
}

/* From which length on a vector is divided among three clusters, and which one. */
static void test_divided(void **state)
{
    enum { LIMIT = 65536 };
    static const struct { one_call c; const char *order; int sites, divided; } cases[] = {
        { { .op = BCAST, .count = LIMIT + 1 }, "", 2, 0 },
        { { .op = BCAST, .count = LIMIT }, "", 3, 0 },
        { { .op = BCAST, .count = LIMIT + 1 }, "", 3, 1 },
        { { .op = REDUCE, .kind = SUM, .count = LIMIT / 8 + 1 }, "", 3, 0 },
        { { .op = ALLREDUCE, .kind = SUM, .count = LIMIT / 8, .group = SOME }, "", 3, 0 },
        { { .op = ALLREDUCE, .kind = SUM, .count = LIMIT / 8 + 1, .group = SOME }, "", 3, 1 },
        { { .op = ALLREDUCE, .kind = DOUBLES, .count = LIMIT / 8 + 1 }, "rank", 3, 1 },
        { { .op = ALLREDUCE, .kind = FROM_LEFT, .count = LIMIT / 8 + 1 }, "", 3, 0 } };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(cases); i++) {
        witness_report got = run_alone(&cases[i].c, cases[i].sites, cases[i].order, NULL, stderr);
        assert_int_equal(got.divided, cases[i].divided);
        assert_int_equal(got.faults, 0);
    }
}

/* ---- messages to one peer ---- */

enum { SITES = 5, PAIRED = 2 * SITES };         /* of its neighbour's two bundles and its block each rank makes one call */

static int short_alltoall(gc_comm *world, int rank, int size, void *arg)
{
    uint64_t *calls = arg;
    uint8_t send[PAIRED] = { 0 }, recv[PAIRED];
    gc_stats before = { .size = sizeof before }, after = { .size = sizeof after };
    gct_require(size == PAIRED, "%d ranks", size);
    for (int warm = 0; warm <= 1; warm++) {
        gct_ok(gc_barrier(world));
        gct_ok(gc_get_stats(world, &before));
        gct_ok(gc_alltoall(world, send, 1, recv));
        gct_ok(gc_get_stats(world, &after));
    }
    calls[rank] = after.system_calls - before.system_calls;
    return 0;
}

static void test_messages_to_a_peer_go_together(void **state)
{
    (void)state;
    const gct_spec spec = { .ranks = PAIRED, .sites = SITES, .on = GCT_ON_SIM, .calm = true, .options = gct_usual_options };
    uint64_t calls[PAIRED] = { 0 };
    assert_int_equal(gct_job(&spec, short_alltoall, calls), 0);
    for (int i = 0; i < PAIRED; i++)
        assert_in_range(calls[i], 1, 16);       /* on data connections, reads too; each in a call of its own: 18 or 20 */
}

/* ---- planted faults --------------------------------------------------------------------------------------------------- */

/* The call under test is replayed to the witness by an executor that does its steps one after another, and, at one rank or at
 * all, something else than it should. */
enum plant { NOTHING, SKIPS_A_WAIT, SWAPS_TWO_SENDS, LEAVES_ONE_OUT, DOES_ONE_TWICE, MISSES_THE_PLACE, CHANGES_ITS_PLAN,
             HEARS_OF_NO_START, STARTS_TWICE, NEVER_ENDS, NEVER_BEGAN,
             OTHER_PEER, OTHER_BYTES, LOST_WAIT, SWAPPED_OPERANDS, TAKES_OLD_PLAN, ALL_TAKE_OLD_PLAN,    /* in the schedule */
             OTHER_ALGORITHM, SECOND_HOP, ENTERS_TWICE, OTHER_CLUSTERS, ASKED_FOR_NOTHING, PLANTS };

enum { VICTIM = 2 };                            /* the coordinator of the second of three sites */

static enum plant planted;
static gci_env env;

static gci_sched copy_sched(const gci_sched *s)
{
    gci_sched copy = *s;
    copy.step = calloc((size_t)s->steps + 1, sizeof *s->step);
    copy.wait = calloc((size_t)s->waits + 1, sizeof *s->wait);
    assert_true(copy.step && copy.wait);
    if (s->steps > 0)
        memcpy(copy.step, s->step, (size_t)s->steps * sizeof *s->step);
    if (s->waits > 0)
        memcpy(copy.wait, s->wait, (size_t)s->waits * sizeof *s->wait);
    return copy;
}

/* What the executor would run of another call or algorithm. */
static gci_sched other_sched(const gci_call *call, const char *algo, size_t bytes)
{
    gci_call other = *call;
    gci_sched built, copy;
    other.bytes = bytes;
    assert_int_equal(gci_sched_build(&env, gci_algo_find(other.coll, algo), algo, &other, &built), GC_OK);
    copy = copy_sched(&built);
    gci_sched_free(&env, &built);
    return copy;
}

static int32_t first_step(const gci_sched *s, enum gci_step_kind kind)
{
    int32_t i = 0;
    while (i < s->steps && s->step[i].kind != kind)
        i++;
    return i;
}

static gci_sched planted_sched(const gci_seen *e, bool victim)
{
    const gci_call *call = &e->args->call;
    if (planted == ALL_TAKE_OLD_PLAN || (planted == TAKES_OLD_PLAN && victim))
        return other_sched(call, e->choice->name, call->bytes / 2);
    if (planted == SECOND_HOP || planted == ENTERS_TWICE)
        return other_sched(call, planted == SECOND_HOP ? "chain" : "flat", call->bytes);
    gci_sched s = copy_sched(e->sched);
    int32_t send = first_step(&s, GCI_STEP_SEND), reduce = first_step(&s, GCI_STEP_REDUCE);
    if (planted == OTHER_PEER && victim)
        s.step[send].peer = s.step[send].peer == 0 ? 1 : 0;
    if (planted == OTHER_BYTES && victim)
        s.step[send].bytes--;
    if (planted == LOST_WAIT && victim)
        s.step[send].waits = 0;
    if (planted == SWAPPED_OPERANDS && victim)
        s.step[reduce].swapped = !s.step[reduce].swapped;
    return s;
}

/* Tells the witness that step n is done. The scratch is wherever. */
static void tell_step(void *to, gci_seen e, int32_t n, bool victim)
{
    static const uint8_t temp[1] = { 0 };
    const gci_step *step = &e.sched->step[n];
    const uint8_t *base[] = { e.args->send, e.args->recv, temp };
    bool message = step->kind == GCI_STEP_SEND || step->kind == GCI_STEP_RECV;
    size_t past = planted == MISSES_THE_PLACE && victim && n == 0 ? 1 : 0;
    e.what = GCI_SEEN_STEP;
    e.n = n;
    e.from = (const void *)((uintptr_t)base[step->from] + step->from_at + past);
    e.to = (const void *)((uintptr_t)base[step->to] + step->to_at + past);
    if (planted != NEVER_BEGAN || !victim || n > 0)
        witness_see(to, &e);
    if (planted == DOES_ONE_TWICE && victim && n == 0)
        witness_see(to, &e);
    e.what = GCI_SEEN_DONE;
    if (message && (planted != SKIPS_A_WAIT || !victim))
        witness_see(to, &e);
}

static void tell_steps(void *to, const gci_seen *e, bool victim)
{
    const gci_sched *s = e->sched;
    int32_t first = first_step(s, GCI_STEP_SEND), second = first + 1;
    while (second < s->steps && (s->step[second].kind != GCI_STEP_SEND || s->step[second].peer != s->step[first].peer))
        second++;
    bool swap = planted == SWAPS_TWO_SENDS && victim;
    for (int32_t i = 0; i < s->steps - (planted == LEAVES_ONE_OUT && victim); i++)
        tell_step(to, *e, swap && i == first ? second : swap && i == second ? first : i, victim);
}

static void tell_start(void *to, const gci_seen *e, bool victim)
{
    gci_coll_args args = *e->args;
    gci_clusters clusters = *args.call.clusters;
    int32_t of[RANKS_MAX] = { 0 };
    const uint8_t heard = 0;
    gci_seen told = *e;
    gci_algo_choice choice = *e->choice;
    gci_sched sched = planted_sched(e, victim), changed = copy_sched(&sched);
    if (planted == OTHER_ALGORITHM && victim)
        snprintf(choice.name, sizeof choice.name, "binomial");
    if (planted == OTHER_CLUSTERS && victim)
        clusters.of = of;
    if (planted == ASKED_FOR_NOTHING && victim)
        args.call.heard = &heard;
    args.call.clusters = &clusters;
    told.args = &args;
    told.choice = &choice;
    told.sched = &sched;
    if (planted != HEARS_OF_NO_START || !victim)
        witness_see(to, &told);
    if (planted == STARTS_TWICE && victim)
        witness_see(to, &told);
    if (planted == CHANGES_ITS_PLAN && victim)
        changed.step[0].bytes++;
    told.sched = &changed;
    tell_steps(to, &told, victim);
    free(sched.step);
    free(sched.wait);
    free(changed.step);
    free(changed.wait);
}

/* In front of witness_see. The number of the call under test is 1, after the allgather of gc_comm_split. */
static void tamper(void *to, const gci_seen *e)
{
    bool victim = e->comm->rank == (planted == SWAPS_TWO_SENDS ? 0 : VICTIM);      /* the root waits for nothing */
    if (e->comm != e->comm->world->self || e->seq != 1)
        witness_see(to, e);
    else if (e->what == GCI_SEEN_START)
        tell_start(to, e, victim);
    else if (e->what == GCI_SEEN_END && !(planted == NEVER_ENDS && victim))
        witness_see(to, e);
}

/* Its messages do not count: those that are told of are not those that are sent. */
static void test_planted_faults(void **state)
{
    static const one_call bcast = { .op = BCAST, .count = 40000 }, reduce = { .op = ALLREDUCE, .kind = AFFINE, .count = 100 };
    static const struct { const one_call *c; const char *finds; } plants[PLANTS] = {
        [SKIPS_A_WAIT] = { &bcast, "begins before step" },
        [SWAPS_TWO_SENDS] = { &bcast, "overtakes" },
        [LEAVES_ONE_OUT] = { &bcast, "ends with 1 steps to go" },
        [DOES_ONE_TWICE] = { &bcast, "begins twice" },
        [MISSES_THE_PLACE] = { &bcast, "other bytes than it names" },
        [CHANGES_ITS_PLAN] = { &bcast, "has changed" },
        [HEARS_OF_NO_START] = { &bcast, "without having started" },
        [STARTS_TWICE] = { &bcast, "starts twice" },
        [NEVER_ENDS] = { &bcast, "only 5 ranks" },
        [NEVER_BEGAN] = { &bcast, "before it begins" },
        [OTHER_PEER] = { &bcast, "receives 8192" },
        [OTHER_BYTES] = { &bcast, "sends 8191 bytes" },
        [LOST_WAIT] = { &bcast, "unordered" },
        [SWAPPED_OPERANDS] = { &reduce, "not in rank order" },
        [TAKES_OLD_PLAN] = { &bcast, "receives 3616" },
        [ALL_TAKE_OLD_PLAN] = { &bcast, "nothing came" },
        [OTHER_ALGORITHM] = { &bcast, "nobody asked" },
        [SECOND_HOP] = { &bcast, "wide-area messages on a way" },
        [ENTERS_TWICE] = { &bcast, "enter a cluster again" },
        [OTHER_CLUSTERS] = { &bcast, "other clusters" },
        [ASKED_FOR_NOTHING] = { &bcast, "without need" } };
    (void)state;
    for (planted = NOTHING; planted < PLANTS; planted++) {
        witness_report got = run_alone(planted == NOTHING ? &bcast : plants[planted].c, 3, "", tamper, NULL);
        if (planted == NOTHING && got.faults > 0)
            fail_msg("without a fault: %s", got.fault);
        if (planted != NOTHING && (got.faults == 0 || !strstr(got.fault, plants[planted].finds)))
            fail_msg("fault %d: %d found: %s", (int)planted, got.faults, got.fault);
    }
}

static const struct CMUnitTest tests[] = {
    cmocka_unit_test(test_random_programs),
    cmocka_unit_test(test_exceptions_by_name), cmocka_unit_test(test_divided),
    cmocka_unit_test(test_messages_to_a_peer_go_together),
    cmocka_unit_test(test_planted_faults),
};

int main(void)
{
    random_state = gct_seed();
    print_message("GCT_SEED=%llu\n", (unsigned long long)random_state);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
