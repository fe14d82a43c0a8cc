/* test_describe.c: what gc_describe says of addresses where hosts have several network cards and exports that collide.
 * SPDX-License-Identifier: MIT
 */
#include "tests/gct.h"
#include "tests/sim/simnet.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

enum { TEXT = 1 << 16, RANKS = 5, PER_HOST = 2, MEGABIT = 125000 };

/* Hosts a1 (ranks 0, 1), a2 (2, 3), a3 (4) share 10.1.0.0/16. The first two have a network of their own beside it, and each
 * has a bridge of its own that bears the same address everywhere. */
static void untidy(sim *net, sim_proc **procs, int ranks, void *arg)
{
    (void)arg;
    for (int rank = 0, host = 1; rank < ranks; rank += PER_HOST, host++) {
        sim_host *h = sim_proc_host(procs[rank]);
        char address[64], name[32];
        if (host < 3) {
            snprintf(address, sizeof address, "192.168.5.%d/24", host);
            (void)sim_nic_new(h, "eth1", sim_net_new(net, "second", 50000), address, 100 * MEGABIT);
        }
        snprintf(name, sizeof name, "bridge %d", host);
        (void)sim_nic_new(h, "docker0", sim_net_new(net, name, 1000), "172.17.0.1/16", 0);
    }
}

static int ask(gc_comm *world, const char *form, char text[TEXT])
{
    gct_ok(gc_describe(world, "addresses", form, text, TEXT, NULL));
    return 0;
}

static int says(const char *text, const char *line)
{
    gct_require(strstr(text, line), "no '%s' in:\n%s", line, text);
    return 0;
}

/* What ranks of one host say is the same, to the byte. */
static int agree(gc_comm *world, int rank, int size, char text[TEXT])
{
    char *other = gct_buffer(TEXT);
    int bad = 0;
    if (rank % PER_HOST == 0 && rank + 1 < size) {
        gct_ok(gc_send(world, text, TEXT, rank + 1, 1));
    } else if (rank % PER_HOST == 1) {
        gct_ok(gc_recv(world, other, TEXT, rank - 1, 1, NULL));
        gct_require(strcmp(text, other) == 0, "%s\nbut its neighbour:\n%s", text, other);
    }
    return bad + gct_buffer_free(other);
}

static int text_of_untidy(gc_comm *world, int rank, int size, void *arg)
{
    char *text = gct_buffer(TEXT);
    (void)arg;
    memset(text, 0, TEXT);
    int bad = ask(world, "text", text);
    bad += says(text, "ranks 0, 1 on a1: eth0, 1000 Mbit/s: 10.1.0.1/16 private\n");
    bad += says(text, "ranks 2, 3 on a2: eth1, 100 Mbit/s: 192.168.5.2/24 private\n");
    bad += says(text, "rank 4 on a3: docker0: 172.17.0.1/16 private, also of a1, network forbidden\n");
    if (rank < 2) {
        bad += says(text, "ranks 0, 1 on a1: among themselves over unix, 127.0.0.1, ::1\n");
        bad += says(text, "ranks 0, 1 on a1 - ranks 2, 3 on a2: link eth0 - eth0, 10.1.0.1 to 10.1.0.2: private, stripes\n");
        bad += says(text, "ranks 0, 1 on a1 - ranks 2, 3 on a2: link eth1 - eth1, 192.168.5.1 to 192.168.5.2: private, "
                          "stripes\n");
        bad += says(text, "ranks 0, 1 on a1 - ranks 2, 3 on a2: no edge (private network in which two hosts export the same "
                          "address): eth0 - docker0, eth1 - docker0, docker0 - docker0\n");
        bad += says(text, "ranks 0, 1 on a1 - rank 4 on a3: link eth0 - eth0, 10.1.0.1 to 10.1.0.3: private, stripes\n");
    } else if (rank == 4) {
        gct_require(!strstr(text, "among"), "%s", text);
        bad += says(text, "rank 4 on a3 - ranks 0, 1 on a1: link eth0 - eth0, 10.1.0.3 to 10.1.0.1: private, stripes\n");
        bad += says(text, "rank 4 on a3 - ranks 0, 1 on a1: edge, private, far (private address on another network, without a "
                          "route of its own): eth0 - eth1, docker0 - eth0, docker0 - eth1\n");
    }
    bad += agree(world, rank, size, text);
    return bad + gct_buffer_free(text);
}

static int dot_of_untidy(gc_comm *world, int rank, int size, void *arg)
{
    char *text = gct_buffer(TEXT);
    (void)arg, (void)size;
    int bad = ask(world, "dot", text);
    bad += says(text, "  subgraph cluster_0 { label=\"ranks 0, 1 on a1\\n");
    bad += says(text, " \"1.1\" [shape=box, label=\"eth1, 100 Mbit/s\\n192.168.5.2/24 private\"]; \"1.2\" [");
    bad += says(text, " \"2.1\" [shape=box, label=\"docker0\\n172.17.0.1/16 private, also of a1, network forbidden\"]; };\n");
    if (rank < 2) {
        bad += says(text, "  \"0.0\" -> \"1.0\" [style=bold, label=\"private\", tooltip=\"link\"];\n");
        bad += says(text, "  \"0.1\" -> \"1.1\" [style=bold, label=\"private\", tooltip=\"link\"];\n");
    }
    if (rank < 4) {                     /* said alike from both ends */
        bad += says(text, "  \"0.2\" -> \"1.2\" [style=dotted, color=red, dir=none, label=\"forbidden\"");
        gct_require(!strstr(text, "style=dashed") && !strstr(text, "\"0.0\" -> \"1.2\""), "%s", text);
    }
    return bad + gct_buffer_free(text);
}

/* Whatever allocation fails, the call says so and leaves nothing behind. */
static int short_of_memory(gc_comm *world, int rank, int size, void *arg)
{
    char *text = gct_buffer(TEXT), *again = gct_buffer(TEXT);
    sim_proc *p = sim_current();
    gc_stats before = { .size = sizeof before }, after = before;
    (void)rank, (void)size, (void)arg;
    gct_ok(gc_barrier(world));
    int64_t calls = sim_alloc_count(p);
    int bad = ask(world, "text", text);
    calls = sim_alloc_count(p) - calls;
    gct_require(calls >= 5, "%lld allocations", (long long)calls);
    gct_ok(gc_get_stats(world, &before));
    for (int64_t nth = 1; nth <= calls; nth++) {
        sim_alloc_fail(p, -nth);
        int err = gc_describe(world, "addresses", "text", again, TEXT, NULL);
        sim_alloc_fail(p, 0);
        gct_require(err == GC_ERR_NOMEM, "allocation %lld of %lld: %s", (long long)nth, (long long)calls, gc_strerror(err));
    }
    gct_ok(gc_get_stats(world, &after));
    gct_require(after.memory == before.memory, "%zu bytes more", after.memory - before.memory);
    bad += ask(world, "text", again);
    gct_require(strcmp(text, again) == 0, "%s\nand then:\n%s", text, again);
    return bad + gct_buffer_free(text) + gct_buffer_free(again);
}

/* An IPv4-only host and an IPv6-only one reach each other over a third. */
static int without_a_way(gc_comm *world, int rank, int size, void *arg)
{
    char *text = gct_buffer(TEXT);
    (void)arg, (void)size;
    int bad = ask(world, "text", text);
    if (rank == 1) {
        bad += says(text, "rank 1 on b1 - rank 2 on c1: b1 cannot connect to c1, no address family in common: b1 has 10.2.0.1/16 "
                          "(eth0); c1 has 2001:db8:3::1/64 (eth0)\n");
        bad += says(text, "rank 1 on b1 - rank 2 on c1: no edge (no address family in common): eth0 - eth0\n");
    }
    return bad + gct_buffer_free(text);
}

/* ---- GRIDCOMM_DEBUG=addrsel ------------------------------------------------------------------------------------------- */

typedef struct said { int lines, hosts; } said;

static void listen(void *user, int level, const char *line)
{
    said *s = user;
    const char *text = strstr(line, "addresses: ");
    (void)level;
    s->lines += text != NULL;
    s->hosts += text && strcmp(text, "addresses: targets") == 0;
}

static void debug(gc_options *o, int rank, void *arg)
{
    o->debug = "addrsel";
    o->log = listen;
    o->log_user = (said *)arg + rank;
}

static int ring(gc_comm *world, int rank, int size, void *arg)
{
    int got = -1;
    (void)arg;
    gct_ok(gc_sendrecv(world, &rank, sizeof rank, (rank + 1) % size, 1, &got, sizeof got, (rank + size - 1) % size, 1, NULL));
    return 0;
}

/* Each host once, when it is first dialled; that of every pair is, from one end at least. */
static void test_log(void **state)
{
    said said_by[RANKS] = { { 0 } };
    gct_spec spec = { .ranks = RANKS, .ranks_per_host = PER_HOST, .arrange = untidy, .options = debug };
    int all = 0;
    (void)state;
    assert_int_equal(0, gct_job(&spec, ring, said_by));
    for (int rank = 0; rank < RANKS; rank++) {
        assert_in_range(said_by[rank].hosts, 0, 3);
        assert_true(said_by[rank].lines >= 6 * said_by[rank].hosts);
        all += said_by[rank].hosts;
    }
    assert_true(all >= 3);
}

static void test_untidy(void **state)
{
    gct_spec spec = { .ranks = RANKS, .ranks_per_host = PER_HOST, .arrange = untidy };
    (void)state;
    assert_int_equal(0, gct_job(&spec, text_of_untidy, NULL));
    assert_int_equal(0, gct_job(&spec, dot_of_untidy, NULL));
    spec.calm = true;
    assert_int_equal(0, gct_job(&spec, short_of_memory, NULL));
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 1, .calm = true }, short_of_memory, NULL));
}

static void test_without_a_way(void **state)
{
    static const gct_place places[] = { { .ranks = 1, .families = "46" }, { .ranks = 1 }, { .ranks = 1, .families = "6" } };
    (void)state;
    assert_int_equal(0, gct_job(&(gct_spec){ .ranks = 3, .places = places }, without_a_way, NULL));
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(test_untidy), cmocka_unit_test(test_without_a_way),
                                        cmocka_unit_test(test_log) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
