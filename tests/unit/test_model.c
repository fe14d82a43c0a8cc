/* test_model.c: costs of messages by hand, models of the LogP family, models as text and as files.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"
#include "failing_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <locale.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

static gci_env env;

static void assert_near(double wanted, double is)
{
    double most = (wanted < 0 ? -wanted : wanted) * 1e-9 + 1e-18;
    if (is > wanted + most || is < wanted - most)
        fail_msg("%.17g, not %.17g", is, wanted);
}

/* A part of a tick is cut off of each summand, and of a rate. */
static void assert_ticks(double wanted, int64_t ticks)
{
    double is = (double)ticks * 0x1p-34, most = wanted * 1e-5 + 4 * 0x1p-34;
    if (ticks < 0 || ticks > GCI_TICKS_MOST || is > wanted + most || is < wanted - most)
        fail_msg("%.17g, not %.17g", is, wanted);
}

/* In seconds, and the same in ticks. */
static double p2p(const gc_model *m, int from, int to, size_t bytes)
{
    double seconds = gci_model_p2p(m, from, to, bytes);
    assert_ticks(seconds, gci_model_ticks(m, from, to, bytes));
    return seconds;
}

/* ---- costs ------------------------------------------------------------------------------------------------------- */

/* Two hosts of two ranks and one of one, at two sites. */
static gc_model *five_ranks(void)
{
    const int32_t class_of[] = { 0, 0, 0, 0, 1 }, host_of[] = { 0, 0, 1, 1, 2 }, site_of[] = { 0, 1 };
    gc_model *m;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, 5, class_of, host_of, site_of, &m), GC_OK);
    m->within[0] = (gci_cost_model){ .latency = 1e-6, .per_byte = 1e-10 };
    m->within[1] = (gci_cost_model){ .latency = 2e-6, .per_byte = 1e-10 };
    m->between[0] = (gci_cost_model){ .latency = 50e-6, .per_byte = 8e-9 };
    m->between[1] = (gci_cost_model){ .latency = 10e-3, .per_byte = 1e-7 };
    m->between[2] = (gci_cost_model){ .latency = 20e-3, .per_byte = 1e-7 };
    m->between[3] = (gci_cost_model){ .latency = 50e-6, .per_byte = 8e-9 };
    return m;
}

static void test_hockney(void **state)
{
    gc_model *m = five_ranks();
    double seconds;
    (void)state;
    assert_int_equal(m->classes, 2);
    assert_int_equal(m->hosts, 3);
    assert_int_equal(m->sites, 2);
    assert_near(1e-6 + 1000e-10, p2p(m, 0, 1, 1000));
    assert_near(50e-6 + 8e-6, p2p(m, 0, 2, 1000));
    assert_near(10e-3 + 1e-4, p2p(m, 3, 4, 1000));
    assert_near(20e-3 + 1e-4, p2p(m, 4, 3, 1000));
    assert_ticks(8e-6, gci_model_busy_ticks(m, 0, 2, 1000));
    assert_near(0, p2p(m, 2, 2, 1000));
    assert_int_equal(gc_model_p2p(m, 0, 2, 1000, &seconds), GC_OK);
    assert_near(58e-6, seconds);
    assert_int_equal(gc_model_p2p(m, 0, 5, 1000, &seconds), GC_ERR_ARG);
    assert_int_equal(gc_model_p2p(m, -1, 0, 1000, &seconds), GC_ERR_ARG);
    assert_int_equal(gc_model_p2p(NULL, 0, 0, 1000, &seconds), GC_ERR_ARG);
    assert_int_equal(gc_model_p2p(m, 0, 1, 1000, NULL), GC_ERR_ARG);
    gci_model_drop(&env, m);
    assert_int_equal(env.memory, 0);
}

/* The slowest of what a message passes through counts, headers too; the NIC says when the next one may begin. */
static void test_shared(void **state)
{
    gc_model *m = five_ranks();
    (void)state;
    m->header = 24;
    m->nic[0] = (gci_port){ 10e-9, 12e-9, false };
    assert_near(50e-6 + 1024 * 12e-9, p2p(m, 0, 2, 1000));
    assert_ticks(1024 * 10e-9, gci_model_busy_ticks(m, 0, 2, 1000));
    assert_near(1e-6 + 1024e-10, p2p(m, 0, 1, 1000));
    assert_ticks(1024e-10, gci_model_busy_ticks(m, 0, 1, 1000));
    m->uplink[0] = (gci_port){ 2e-7, 3e-7, false };
    assert_near(10e-3 + 1024 * 2e-7, p2p(m, 0, 4, 1000));
    assert_near(20e-3 + 1024 * 3e-7, p2p(m, 4, 0, 1000));
    m->uplink[1].in = 4e-7;
    assert_near(10e-3 + 1024 * 4e-7, p2p(m, 0, 4, 1000));
    m->trunk[1] = 1e-6;
    assert_near(10e-3 + 1024 * 1e-6, p2p(m, 0, 4, 1000));
    assert_near(20e-3 + 1024 * 3e-7, p2p(m, 4, 0, 1000));
    assert_near(50e-6 + 1024 * 12e-9, p2p(m, 0, 2, 1000));
    gci_model_drop(&env, m);
}

static void test_curve(void **state)
{
    gci_curve c = { 0 };
    (void)state;
    assert_near(0, gci_curve_at(&c, 100));
    assert_int_equal(gci_model_point(&env, &c, 100, 5), GC_OK);
    assert_near(5, gci_curve_at(&c, 0));
    assert_near(5, gci_curve_at(&c, 1000));
    assert_int_equal(gci_model_point(&env, &c, 100, 6), GC_ERR_ARG);
    assert_int_equal(gci_model_point(&env, &c, 200, 7), GC_OK);
    assert_int_equal(gci_model_point(&env, &c, 400, 8), GC_OK);
    assert_near(4, gci_curve_at(&c, 50));
    assert_near(6, gci_curve_at(&c, 150));
    assert_near(7, gci_curve_at(&c, 200));
    assert_near(7.5, gci_curve_at(&c, 300));
    assert_near(10, gci_curve_at(&c, 800));
    gci_free(&env, c.point);
    c = (gci_curve){ 0 };
    assert_int_equal(gci_model_point(&env, &c, 100, 5), GC_OK);
    assert_int_equal(gci_model_point(&env, &c, 200, 15), GC_OK);
    assert_near(0, gci_curve_at(&c, 10));                       /* never below */
    gci_free(&env, c.point);
}

/* L + 2 o + (m - 1) G, and the same parameters back. */
static void test_loggp(void **state)
{
    const gci_loggp p = { .latency = 10e-6, .overhead = 2e-6, .gap = 3e-6, .per_byte = 1e-9 };
    const gci_loggp logp = { .latency = 10e-6, .overhead = 2e-6, .gap = 14e-6 }, wrong = { .gap = 1 };
    const int32_t classes[] = { 0, 0 };
    gc_model *m;
    (void)state;
    assert_int_equal(gci_model_make(&env, GCI_PLOGP, 2, classes, NULL, NULL, &m), GC_OK);
    assert_int_equal(gci_model_from_loggp(&env, &p, &m->between[0]), GC_OK);
    assert_near(10e-6 + 4e-6, p2p(m, 0, 1, 1));
    assert_near(10e-6 + 4e-6 + 999e-9, p2p(m, 0, 1, 1000));
    assert_ticks(3e-6 + 999e-9, gci_model_busy_ticks(m, 0, 1, 1000));
    gci_loggp back = gci_model_to_loggp(&m->between[0]);
    assert_near(p.latency, back.latency);
    assert_near(p.overhead, back.overhead);
    assert_near(p.gap, back.gap);
    assert_near(p.per_byte, back.per_byte);
    assert_int_equal(gci_model_from_loggp(&env, &logp, &m->within[0]), GC_OK);
    back = gci_model_to_loggp(&m->within[0]);
    assert_near(logp.latency, back.latency);
    assert_near(logp.gap, back.gap);
    assert_near(0, back.per_byte);
    gci_model_drop(&env, m);
    gci_cost_model cost;
    assert_int_equal(gci_model_from_loggp(&env, &wrong, &cost), GC_ERR_ARG);
    assert_int_equal(env.memory, 0);
}

static void refuses(int ranks, const int32_t class_of[], const int32_t host_of[], const int32_t site_of[])
{
    gc_model *m;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, ranks, class_of, host_of, site_of, &m), GC_ERR_ARG);
    assert_null(m);
    assert_int_equal(env.memory, 0);
}

/* In ticks of 2^-34 s: whole numbers of them by hand, a curve that falls, and what does not fit. */
static void test_ticks(void **state)
{
    const int32_t class_of[] = { 0, 0 };
    const double tick = 0x1p-34;
    gc_model *m;
    (void)state;
    assert_int_equal(gci_model_make(&env, GCI_PLOGP, 2, class_of, NULL, NULL, &m), GC_OK);
    gci_cost_model *cost = &m->between[0];
    m->header = 10;
    *cost = (gci_cost_model){ .latency = 1000.9 * tick, .per_byte = 2.5 * tick };
    assert_int_equal(gci_model_ticks(m, 0, 1, 30), 1000 + 100);
    assert_int_equal(gci_model_busy_ticks(m, 0, 1, 30), 100);
    assert_int_equal(gci_model_ticks(m, 0, 0, 30), 0);
    m->nic[0].out = 3 * tick;
    assert_int_equal(gci_model_ticks(m, 0, 1, 30), 1000 + 120);
    assert_int_equal(gci_model_busy_ticks(m, 0, 1, 30), 120);
    assert_int_equal(gci_model_point(&env, &cost->curve[GCI_COST_WAY], 20, 500 * tick), GC_OK);
    assert_int_equal(gci_model_point(&env, &cost->curve[GCI_COST_WAY], 40, 400 * tick), GC_OK);
    assert_int_equal(gci_model_ticks(m, 0, 1, 30), 1000 + 450 + 120);
    assert_int_equal(gci_model_ticks(m, 0, 1, 10), 1000 + 550 + 60);
    assert_int_equal(gci_model_ticks(m, 0, 1, 1000), 1000 + 3 * 1010);          /* it falls no further than to 0 */
    assert_int_equal(gci_model_point(&env, &cost->curve[GCI_COST_SEND], 0, 777 * tick), GC_OK);
    assert_int_equal(gci_model_busy_ticks(m, 0, 1, 30), 777);
    assert_int_equal(gci_model_ticks(m, 0, 1, SIZE_MAX / 2), GCI_TICKS_MOST);
    cost->latency = 1e30;
    assert_int_equal(gci_model_ticks(m, 0, 1, 0), GCI_TICKS_MOST);
    gci_model_drop(&env, m);
}

static void test_refused(void **state)
{
    const int32_t gap[] = { 0, 2, 2 }, below[] = { 0, -1, 1 }, far[] = { 0, 1, 3 }, fine[] = { 0, 1, 1 }, one[] = { 0, 0, 0 };
    (void)state;
    refuses(0, fine, NULL, NULL);
    refuses(3, gap, NULL, NULL);
    refuses(3, below, NULL, NULL);
    refuses(3, far, NULL, NULL);
    refuses(3, fine, gap, NULL);
    refuses(3, fine, NULL, below);
    refuses(3, fine, one, NULL);                                /* a host of two classes */
}

static void test_no_memory(void **state)
{
    const int32_t class_of[] = { 0, 0, 1 };
    int n = 0, err;
    (void)state;
    gc_options options = { .alloc = failing_alloc };
    gci_env hungry;
    gc_model *m;
    do {
        gci_env_init(&hungry, gci_sys_real(), &options);
        allocations_left = n++;
        err = gci_model_make(&hungry, GCI_HOCKNEY, 3, class_of, NULL, NULL, &m);
        gci_model_drop(&hungry, m);
        assert_int_equal(hungry.memory, 0);
    } while (err == GC_ERR_NOMEM);
    assert_int_equal(err, GC_OK);
    assert_true(n > 8);
}

/* L, o, g, G in a file are the curves that they amount to. */
static void test_text_loggp(void **state)
{
    static const char text[] = "gridcomm-model 1\nkind plogp\nrank 0 class 0 host 0\nrank 1 class 0 host 1\n"
                               "class 0 site 0 nic 0 0 apart\nwithin 0 latency 0 per-byte 0\nbetween 0 0 loggp 10e-6 2e-6 3e-6 1e-9\n";
    char error[GCI_TEXT];
    gc_model *m;
    (void)state;
    assert_int_equal(gci_model_read(&env, text, sizeof text - 1, &m, error), GC_OK);
    for (size_t bytes = 1; bytes <= 1 << 20; bytes *= 4)
        assert_near(p2p(m, 0, 1, bytes), 10e-6 + 2 * 2e-6 + (double)(bytes - 1) * 1e-9);
    assert_ticks(3e-6, gci_model_busy_ticks(m, 0, 1, 1));
    gci_model_drop(&env, m);
}

/* ---- as text ----------------------------------------------------------------------------------------------------- */

static const char small[] =
    "gridcomm-model 1\n"
    "kind plogp\n"
    "header 48\n"
    "eager 262144\n"
    "reduce 1e-10\n"
    "copy 0\n"
    "rank 0 class 0 host 0\n"
    "rank 1 class 0 host 1\n"
    "rank 2 class 1 host 2\n"
    "class 0 site 0 nic 8e-09 8e-09 apart\n"
    "class 1 site 1 nic 0 0.1 together\n"
    "site 0 uplink 1e-06 0 together\n"
    "site 1 uplink 0 0 apart\n"
    "trunk 1 0 0.30000000000000004\n"
    "within 0 latency 5e-06 per-byte 5e-10\n"
    "within 1 latency 0 per-byte 0\n"
    "within 1 gap 7 1e-06\n"
    "between 0 0 latency 5e-05 per-byte 8e-09\n"
    "between 0 1 latency 0.01 per-byte 0\n"
    "between 0 1 send 0 1e-06\n"
    "between 0 1 send 1024 1.2345678901234567e-06\n"
    "between 0 1 recv 0 2e-06\n"
    "between 0 1 gap 1 0.333333\n"
    "between 0 1 way 1448 0.0006\n"
    "between 1 0 latency 0.01 per-byte 0\n"
    "between 1 1 latency 0 per-byte 0\n"
    "table 1234567890123\n"
    "choice bcast 1 knomial:8\n"
    "choice bcast 1024 binomial@8192\n"
    "choice bcast 65536 rules\n"
    "choice scan 4194304 direct\n";

static void assert_same_again(const char *wanted)
{
    char error[GCI_TEXT], *text;
    size_t bytes;
    gc_model *m;
    if (gci_model_read(&env, wanted, strlen(wanted), &m, error) != GC_OK)
        fail_msg("%s", error);
    assert_int_equal(gci_model_write(&env, m, &text, &bytes), GC_OK);
    assert_int_equal(bytes, strlen(wanted));
    assert_string_equal(wanted, text);
    gci_free(&env, text);
    gci_model_drop(&env, m);
    assert_int_equal(env.memory, 0);
}

static void test_text(void **state)
{
    char error[GCI_TEXT];
    gc_model *m;
    (void)state;
    assert_same_again(small);
    assert_int_equal(gci_model_read(&env, small, strlen(small), &m, error), GC_OK);
    assert_string_equal(error, "");
    assert_int_equal(m->kind, GCI_PLOGP);
    assert_int_equal(m->header, 48);
    assert_int_equal(m->eager, 262144);
    assert_int_equal(m->hosts, 3);
    assert_true(m->nic[1].together && !m->nic[0].together && m->uplink[0].together);
    assert_near(0.1, m->nic[1].in);
    assert_near(0.3, m->trunk[2]);
    assert_near(1e-10, m->reduce);
    assert_near(0.01 + 0.0006 + 53 * 0.1, p2p(m, 0, 2, 5));
    assert_near(0.333333, gci_curve_at(&m->between[1].curve[GCI_COST_GAP], 5));
    assert_int_equal(m->between[1].curve[GCI_COST_SEND].points, 2);
    gci_model_drop(&env, m);
}

/* Points stay points where others have commas. */
static void test_locale(void **state)
{
    char dir[] = "/tmp/test_model.XXXXXX", command[256];
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(command, sizeof command, "localedef -i de_DE -f UTF-8 %s/de_DE.UTF-8", dir);
    assert_int_equal(system(command), 0);
    assert_int_equal(setenv("LOCPATH", dir, 1), 0);
    const char *set = setlocale(LC_NUMERIC, "de_DE.UTF-8");
    snprintf(command, sizeof command, "rm -r %s", dir);
    assert_int_equal(system(command), 0);
    assert_non_null(set);
    assert_string_equal(localeconv()->decimal_point, ",");
    assert_same_again(small);
    setlocale(LC_NUMERIC, "C");
}

/* `small` with what stands first in it replaced. */
static void refused(const char *old, const char *new, const char *wanted)
{
    char text[2 * sizeof small], error[GCI_TEXT] = "?";
    gc_model *m;
    const char *at = strstr(small, old);
    assert_non_null(at);
    snprintf(text, sizeof text, "%.*s%s%s", (int)(at - small), small, new, at + strlen(old));
    assert_int_equal(gci_model_read(&env, text, strlen(text), &m, error), GC_ERR_CONFIG);
    assert_null(m);
    if (!strstr(error, wanted))
        fail_msg("%s, not %s", error, wanted);
    assert_int_equal(env.memory, 0);
}

static void test_text_refused(void **state)
{
    (void)state;
    refused("gridcomm-model 1", "gridcomm-model 2", "line 1: the first line is not: gridcomm-model 1");
    refused("header 48", "heater 48", "line 3: unknown word 'heater'");
    refused("header 48", "header", "line 3: not like: header #");
    refused("header 48", "header 48 bytes", "line 3: not like: header #");
    refused("header 48", "header -4\x1b", "line 3: not a whole number: '-4?'");
    refused("header 48", "header 99999999999999999999999999", "line 3: not a whole number: '9999");
    refused("header 48", "header 99999999999999999999999999999999999999999999", "line 3: too long for a number:");
    refused("header 48", "header 65536", "line 3: a header of so many bytes: '65536'");
    refused("reduce 1e-10", "reduce nan", "line 5: not a number from 0 to 1e9: 'nan'");
    refused("reduce 1e-10", "reduce 0x1p3", "line 5: not a number");
    refused("reduce 1e-10", "reduce 1e10", "line 5: not a number");
    refused("reduce 1e-10", "reduce -1", "line 5: not a number");
    refused("rank 1 class", "rank 2 class", "line 8: ranks count from 0");
    refused("rank 1 class 0", "rank 1 class 65536", "line 8: ranks count from 0");
    refused("class 1 site", "class 2 site", "line 11: classes count from 0");
    refused("rank 2 class 1", "rank 2 class 2", "some have no line or no rank");
    refused("rank 2 class 1", "rank 2 class 0", "some have no line or no rank");
    refused("class 0 host 1", "class 1 host 0", "a host is of two classes");
    refused("apart\nclass 1", "neither\nclass 1", "line 10: not like: class # site # nic x x apart");
    refused("trunk 1 0", "trunk 1 2", "line 14: no such site: '2'");
    refused("within 1 latency", "within 2 latency", "line 16: no such class: '2'");
    refused("between 0 1 send 1024", "between 0 1 send 0", "line 21: sizes must ascend");
    refused("between 1 0 latency", "between 0 1 latency", "line 25: these costs stand twice");
    refused("header 48", "header 48\nheader 48", "line 4: stands twice: 'header'");
    refused("kind plogp", "kind plogp\n\nkind hockney", "line 4: stands twice: 'kind'");
    refused("eager 262144", "eager 0\neager 262144", "line 5: stands twice: 'eager'");
    refused("reduce 1e-10", "reduce 1e-10\nreduce 0", "line 6: stands twice: 'reduce'");
    refused("copy 0", "copy 0\ncopy 1", "line 7: stands twice: 'copy'");
    refused("site 1 uplink 0 0 apart", "site 0 uplink 1e-06 0 apart", "line 13: these costs stand twice");
    refused("site 1 uplink", "site 1 uplink 0 0 together\nsite 1 uplink", "line 14: these costs stand twice");
    refused("trunk 1 0 0.3", "trunk 1 0 0\ntrunk 1 0 0.3", "line 15: these costs stand twice");
    refused("choice bcast 1 knomial:8", "choice bcast 1 fastest", "line 28: no such choice: 'fastest'");
    refused("choice bcast 1 knomial:8", "choice bcast 0 flat", "line 28: no such choice: 'flat'");
    refused("choice bcast 1 knomial:8", "choice bcast 1x flat", "line 28: not a whole number: '1x'");
    refused("choice bcast 1 knomial:8", "choice bcast -1 flat", "line 28: not a whole number: '-1'");
    refused("choice bcast 1 knomial:8", "choice bcast flat", "line 28: not like: choice w # w");
    refused("table 1234567890123\n", "", "line 27: a choice before the table");
    refused("choice bcast 1 knomial:8", "table 1", "line 28: stands twice: 'table'");
    refused("within 1 latency 0 per-byte 0\n", "within 1 loggp 1e-5 2e-6 15e-6 0\n", "line 16: of LogGP's L o g G, g is above L + 2 o");
    refused("within 1 latency 0", "within 1 loggp 1e-5 2e-6 3e-6 1e-9\nwithin 1 latency 0", "line 17: these costs stand twice");
    refused("within 1 gap 7 1e-06\n", "within 1 loggp 1e-5 2e-6 3e-6 1e-9\n", "line 17: these costs stand twice");
    refused("between 1 0 latency 0.01 per-byte 0\n", "between 1 0 gap 1 1e-6\nbetween 1 0 loggp 1e-5 2e-6 3e-6 1e-9\n",
            "line 26: these costs stand twice");
    refused("between 1 0 latency 0.01 per-byte 0\n", "", "no line with the latency between 1 0");
    refused("within 1 latency 0 per-byte 0\n", "# nothing\n\n", "no line with the latency within 1");
}

static void test_text_no_memory(void **state)
{
    gc_options options = { .alloc = failing_alloc };
    gci_env hungry;
    char error[GCI_TEXT], *text;
    size_t bytes;
    gc_model *m;
    int n = 0, err;
    (void)state;
    do {
        gci_env_init(&hungry, gci_sys_real(), &options);
        allocations_left = n++;
        err = gci_model_read(&hungry, small, strlen(small), &m, error);
        if (err == GC_OK) {
            err = gci_model_write(&hungry, m, &text, &bytes);
            gci_free(&hungry, text);
        }
        gci_model_drop(&hungry, m);
        assert_int_equal(hungry.memory, 0);
    } while (err == GC_ERR_NOMEM);
    assert_int_equal(err, GC_OK);
    assert_true(n > 25);
}

/* ---- as files ---------------------------------------------------------------------------------------------------- */

static void test_files(void **state)
{
    char dir[] = "/tmp/gct-model-XXXXXX", path[64], fresh[80], error[GCI_TEXT];
    gci_env plain = { .alloc = NULL };
    gc_model *m, *again;
    char text[sizeof small] = "";
    (void)state;
    assert_non_null(mkdtemp(dir));
    snprintf(path, sizeof path, "%s/model", dir);
    snprintf(fresh, sizeof fresh, "%s.new", path);
    assert_int_equal(gci_model_read(&plain, small, strlen(small), &m, error), GC_OK);
    assert_int_equal(gc_model_load(path, &again, error, sizeof error), GC_ERR_SYSTEM);
    assert_non_null(strstr(error, path));
    assert_int_equal(gc_model_save(m, path), GC_OK);
    assert_int_not_equal(access(fresh, F_OK), 0);
    FILE *file = fopen(path, "r");
    assert_int_equal(fread(text, 1, sizeof text, file), strlen(small));
    fclose(file);
    assert_string_equal(text, small);
    assert_int_equal(gc_model_load(path, &again, error, sizeof error), GC_OK);
    assert_near(p2p(m, 0, 2, 77), p2p(again, 0, 2, 77));
    gc_model_free(again);
    assert_int_equal(gc_model_load(dir, &again, NULL, 0), GC_ERR_SYSTEM);
    assert_int_equal(gc_model_load("/dev/null", &again, error, sizeof error), GC_ERR_CONFIG);
    assert_int_equal(gc_model_load(path, NULL, NULL, 0), GC_ERR_ARG);
    for (int i = 0; i < 2; i++) {
        again = m;
        assert_int_equal(gc_model_load(i ? path : NULL, &again, i ? NULL : error, sizeof error), GC_ERR_ARG);
        assert_null(again);
    }
    assert_int_equal(gc_model_save(m, NULL), GC_ERR_ARG);

    /* No room: what was there stays. */
    struct rlimit before, tight;
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before);
    tight = (struct rlimit){ 100, before.rlim_max };
    setrlimit(RLIMIT_FSIZE, &tight);
    errno = 0;
    int err = gc_model_save(m, path), why = errno;
    setrlimit(RLIMIT_FSIZE, &before);
    assert_int_equal(err, GC_ERR_SYSTEM);
    assert_int_equal(why, EFBIG);
    assert_int_not_equal(access(fresh, F_OK), 0);
    assert_int_equal(gc_model_load(path, &again, error, sizeof error), GC_OK);
    gc_model_free(again);
    gc_model_free(m);
    gc_model_free(NULL);
    unlink(path);
    assert_int_equal(gc_model_save(NULL, path), GC_ERR_ARG);
    rmdir(dir);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_hockney),
        cmocka_unit_test(test_shared),
        cmocka_unit_test(test_curve),
        cmocka_unit_test(test_loggp), cmocka_unit_test(test_text_loggp),
        cmocka_unit_test(test_ticks), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_text),
        cmocka_unit_test(test_locale),
        cmocka_unit_test(test_text_refused),
        cmocka_unit_test(test_text_no_memory),
        cmocka_unit_test(test_files),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
