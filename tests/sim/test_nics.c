/* test_nics.c: collectives take little longer than their bytes at the busiest NIC.
 * SPDX-License-Identifier: MIT
 *
 * Also where ranks of a host share it: then with as many bytes as one rank on each host would have; and where a long vector passes
 * through many hosts in segments. With GCT_ROUNDS=n some of the cells, drawn by GCT_SEED.
 */
#include "gridcomm_int.h"
#include "tests/gct.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { BCAST, REDUCE, ALLREDUCE, ALLGATHER, REDUCE_SCATTER };
static const char *const names[] = { "bcast", "reduce", "allreduce", "allgather", "reduce_scatter" };

typedef struct load {
    int    op, ranks, per_host, times;
    size_t bytes;               /* of the vector, or of each block */
    bool   in_turn;             /* neighbours in rank order stand on different hosts */
} load;

static int one(const load *l, gc_comm *comm, uint8_t *send, uint8_t *recv)
{
    const size_t count = l->bytes / sizeof(float);
    switch (l->op) {
    case BCAST:
        return gc_bcast(comm, recv, l->bytes, 0);
    case REDUCE:
        return gc_reduce(comm, send, recv, count, GC_FLOAT, GC_SUM, 0);
    case ALLREDUCE:
        return gc_allreduce(comm, send, recv, count, GC_FLOAT, GC_SUM);
    case ALLGATHER:
        return gc_allgather(comm, send, l->bytes, recv);
    default:
        return gc_reduce_scatter_block(comm, send, recv, count, GC_FLOAT, GC_SUM);
    }
}

static int run(gc_comm *world, int rank, int size, void *arg)
{
    const load *l = arg;
    gc_comm *comm = world;
    const int hosts = size / l->per_host;
    const size_t bytes = l->bytes * (l->op >= ALLGATHER ? (size_t)size : 1);
    uint8_t *send = memset(gct_buffer(bytes), 0, bytes), *recv = memset(gct_buffer(bytes), 0, bytes);
    if (l->in_turn)
        gct_ok(gc_comm_split(world, 0, rank % l->per_host * hosts + rank / l->per_host, &comm));
    for (int i = 0; i < l->times; i++) {
        gct_ok(one(l, comm, send, recv));
        if (l->op == BCAST || l->op == REDUCE)
            gct_ok(gc_barrier(comm));
    }
    if (l->in_turn)
        gct_ok(gc_comm_free(comm));
    return gct_buffer_free(send) | gct_buffer_free(recv);
}

static const char *forced;      /* GRIDCOMM_ALGO; NULL: the rules */

static void options(gc_options *o, int rank, void *arg)
{
    gct_usual_options(o, rank, arg);
    o->algo = forced;
}

/* Seconds for one. */
static double timed(load l, gct_spec spec)
{
    enum { FIRST = 2, MORE = 3 };
    gct_outcome outcome = { .seed = 0 };
    int64_t took[2];
    spec.on = GCT_ON_SIM;
    spec.ranks = l.ranks;
    spec.ranks_per_host = l.per_host;
    spec.seed = 1;
    spec.calm = spec.unwitnessed = true;
    spec.options = options;
    spec.outcome = &outcome;
    for (int i = 0; i < 2; i++) {
        l.times = FIRST + i * MORE;
        assert_int_equal(0, gct_job(&spec, run, &l));
        took[i] = outcome.virtual_ns;
    }
    return (double)(took[1] - took[0]) / MORE / 1e9;
}

/* Bytes that the busiest NIC must carry one way. */
static double least(const load *l)
{
    const double hosts = l->ranks / l->per_host, bytes = (double)l->bytes;
    switch (l->op) {
    case ALLREDUCE:
        return 2 * bytes * (hosts - 1) / hosts;
    case ALLGATHER:
    case REDUCE_SCATTER:
        return bytes * (hosts - 1) * l->per_host;
    default:
        return bytes;
    }
}

/* In how many times what the bytes take at a NIC. */
static double ratio_of(const load *l, const char *algo)
{
    const double rate = 125e6;
    forced = algo;
    return timed(*l, (gct_spec){ .time_limit = 120 }) * rate / least(l);
}

static void test_ranks_share_a_nic(void **state)
{
    static const struct { int op; size_t bytes; double few, many; } cells[] = {      /* at most, with up to 16 hosts and with more */
        { BCAST, 1 << 20, 1.4, 1.5 }, { REDUCE, 1 << 20, 1.6, 1.7 }, { ALLREDUCE, 1 << 20, 1.25, 2 }, { ALLGATHER, 65536, 1.2, 1.7 },
        { REDUCE_SCATTER, 65536, 1.2, 1.9 } };
    static const struct { int hosts, per_host; } sizes[] = { { 4, 8 }, { 16, 2 }, { 3, 5 }, { 20, 2 } };
    int over = 0;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(cells); i++)
        for (size_t n = 0; n < 2 * GCI_COUNT(sizes); n++) {
            if (!gct_drawn())
                continue;
            int hosts = sizes[n / 2].hosts, per_host = sizes[n / 2].per_host;
            load l = { .op = cells[i].op, .bytes = cells[i].bytes, .ranks = hosts * per_host, .per_host = per_host, .in_turn = n % 2 };
            double ratio = ratio_of(&l, NULL);
            bool is_over = ratio > (hosts <= 16 ? cells[i].few : cells[i].many);
            print_message("%-15s %2d x %d%s: %.2f%s\n", names[l.op], hosts, per_host, l.in_turn ? ", in turn" : "", ratio,
                          is_over ? ", too long" : "");
            over += is_over;
        }
    assert_int_equal(over, 0);
}

/* A segment is passed on when it has come, while the next ones come: whatever its length. */
static void test_segments_stream(void **state)
{
    static const char *const algos[] = { "bcast:chain@16384", "bcast:chain@32768", "bcast:chain@65536", "bcast:chain@131072",
                                         "bcast:chain@1048576", "bcast:circulant@131072" };
    int over = 0;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(algos); i++) {
        if (!gct_drawn())
            continue;
        load l = { .op = BCAST, .bytes = 16 << 20, .ranks = 8, .per_host = 1 };
        double ratio = ratio_of(&l, algos[i]);
        print_message("%-22s %.2f\n", algos[i], ratio);
        over += ratio > (strstr(algos[i], "1048576") ? 1.6 : 1.3);
    }
    assert_int_equal(over, 0);
}

/* Between sites there is more bandwidth than a NIC has. */
static double between_sites(const load *l, int sites)
{
    const int64_t nic = 12500000;
    forced = NULL;
    return timed(*l, (gct_spec){ .sites = sites, .lan_rate = nic, .wan_rate = 8 * nic, .wan_latency = 1000000, .time_limit = 120 }) *
           (double)nic / least(l);
}

static void test_nodes_of_a_site_work_in_parallel(void **state)
{
    static const struct { int sites, hosts; double most[REDUCE_SCATTER + 1]; } cells[] = {
        { 2, 2, { 1.1, 1.1, 1.1, 1.1, 1.2 } }, { 2, 4, { 1.2, 1.45, 1.4, 1.75, 1.1 } }, { 2, 8, { 1.4, 1.55, 1.35, 1.95, 1.55 } },
        { 3, 4, { 1.35, 1.8, 1.3, 1.75, 1.1 } }, { 4, 4, { 1.4, 2.15, 1.4, 1.75, 1.15 } } };
    int over = 0;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(cells); i++)
        for (int op = BCAST; op <= REDUCE_SCATTER; op++) {
            if (!gct_drawn())
                continue;
            const load l = { .op = op, .bytes = op < ALLGATHER ? 16 << 20 : 512 << 10, .ranks = cells[i].sites * cells[i].hosts,
                             .per_host = 1 };
            double ratio = between_sites(&l, cells[i].sites);
            bool is_over = ratio > cells[i].most[op];
            print_message("%-15s %d sites of %d: %.2f%s\n", names[op], cells[i].sites, cells[i].hosts, ratio, is_over ? ", too long" : "");
            over += is_over;
        }
    assert_int_equal(over, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_ranks_share_a_nic), cmocka_unit_test(test_segments_stream),
                                        cmocka_unit_test(test_nodes_of_a_site_work_in_parallel) };
    cmocka_set_test_filter(gct_filter());
    return cmocka_run_group_tests_name("nics", tests, NULL, NULL);
}
