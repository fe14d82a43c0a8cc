/* test_launch.c: where a process stands: options, environment, what launchers say. No socket.
 * SPDX-License-Identifier: MIT
 */
#include "gridcomm_int.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <cmocka.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct variable { const char *name, *value; } variable;
enum { VARIABLES = 10 };
typedef struct place_case {
    variable    set[VARIABLES];
    const char *wrong;          /* NULL: fine; else what the text has to say */
    int         rank, ranks, roots, port;
    const char *host, *launcher;    /* "pmi:7": by PMI_FD=7, "pmi:port": at the PMI_PORT host:port */
} place_case;

static const char *look_up(void *user, const char *name)
{
    const variable *set = user;
    for (int i = 0; i < VARIABLES; i++)
        if (set[i].name && strcmp(set[i].name, name) == 0)
            return set[i].value;
    return NULL;
}

#define G(rank, size, root) { "GRIDCOMM_RANK", rank }, { "GRIDCOMM_SIZE", size }, { "GRIDCOMM_ROOT", root }
#define T(rank, size, host, port) { "RANK", rank }, { "WORLD_SIZE", size }, { "MASTER_ADDR", host }, { "MASTER_PORT", port }
#define P(rank, size) { "PMI_RANK", rank }, { "PMI_SIZE", size }
#define S(rank, size) { "SLURM_PROCID", rank }, { "SLURM_STEP_NUM_TASKS", size }
#define N(nodes, list) { "SLURM_STEP_NUM_NODES", nodes }, { "SLURM_STEP_NODELIST", list }
#define J(job, step) { "SLURM_JOB_ID", job }, { "SLURM_STEP_ID", step }
#define K { "GRIDCOMM_KEY", "sesame" }

static place_case place_cases[] = {
    { { { NULL, NULL } }, NULL, 0, 1, 0, 0, NULL, "none" },
    { { G("3", "8", "node0:4000") }, NULL, 3, 8, 1, 4000, "node0", "gridcomm" },
    { { G("0", "2", "[::1]:1,10.0.0.1:65535") }, NULL, 0, 2, 2, 1, "::1", "gridcomm" },
    { { T("1", "4", "fd00::1", "29500") }, NULL, 1, 4, 1, 29500, "fd00::1", "torchrun" },
    { { G("2", "3", "a:1"), T("0", "9", "b", "2") }, NULL, 2, 3, 1, 1, "a", "gridcomm" },
    { { G("1", "2", "a:7"), { "MASTER_ADDR", "b" } }, NULL, 1, 2, 1, 7, "a", "gridcomm" },
    { { { "GRIDCOMM_ROOT", "a:7" }, T("1", "2", "b", "2") }, NULL, 1, 2, 1, 7, "a", "torchrun" },
    { { G("0", "1", "a:7") }, NULL, 0, 1, 0, 0, NULL, "gridcomm" },
    { { { "MASTER_ADDR", "somewhere" } }, NULL, 0, 1, 0, 0, NULL, "none" },
    { { G("65535", "65536", "a:7") }, NULL, 65535, 65536, 1, 7, "a", "gridcomm" },
    { { { "GRIDCOMM_RANK", "" }, { "GRIDCOMM_SIZE", "" } }, NULL, 0, 1, 0, 0, NULL, "none" },
    { { { "GRIDCOMM_RANK", "1" }, { "GRIDCOMM_ROOT", "a:7" } }, "GRIDCOMM_RANK is set, but GRIDCOMM_SIZE is not", .rank = -1 },
    { { { "GRIDCOMM_SIZE", "4" }, { "GRIDCOMM_ROOT", "a:7" } }, "GRIDCOMM_SIZE is set, but GRIDCOMM_RANK is not", .rank = -1 },
    { { { "RANK", "1" } }, "RANK is set, but WORLD_SIZE is not", .rank = -1 },
    { { G("8", "8", "a:7") }, "GRIDCOMM_RANK=8", .rank = -1 },
    { { T("9", "8", "a", "7") }, "RANK=9", .rank = -1 },
    { { G("x", "8", "a:7") }, "GRIDCOMM_RANK=x: not a number", .rank = -1 },
    { { G("-1", "8", "a:7") }, "GRIDCOMM_RANK=-1", .rank = -1 },
    { { G("1", "8 ", "a:7") }, "GRIDCOMM_SIZE=8 : not a number", .rank = -1 },
    { { G("1", "0", "a:7") }, "GRIDCOMM_SIZE=0", .rank = -1 },
    { { G("1", "65537", "a:7") }, "GRIDCOMM_SIZE=65537", .rank = -1 },
    { { G("1", "99999999999999999999", "a:7") }, "GRIDCOMM_SIZE=9999", .rank = -1 },
    { { G("1", "2", NULL) }, "GRIDCOMM_ROOT", .rank = -1 },
    { { G("1", "2", "a:0") }, "GRIDCOMM_ROOT=a:0", .rank = -1 },
    { { G("1", "2", "a:65536") }, "GRIDCOMM_ROOT=a:65536", .rank = -1 },
    { { G("1", "2", "a:4000x") }, "GRIDCOMM_ROOT=a:4000x", .rank = -1 },
    { { G("1", "2", "a:0000080808") }, "GRIDCOMM_ROOT=a:0000080808", .rank = -1 },
    { { G("1", "2", "a:00000000000008") }, NULL, 1, 2, 1, 8, "a", "gridcomm" },
    { { G("1", "2", "a") }, "GRIDCOMM_ROOT=a", .rank = -1 },
    { { G("1", "2", ":7") }, "GRIDCOMM_ROOT=:7", .rank = -1 },
    { { G("1", "2", "a:7,") }, "GRIDCOMM_ROOT=a:7,", .rank = -1 },
    { { G("1", "2", "fd00::1:7") }, "brackets", .rank = -1 },
    { { G("1", "2", "[fd00::1:7") }, "brackets", .rank = -1 },
    { { G("1", "2", "a:1,a:2,a:3,a:4,a:5,a:6,a:7,a:8,a:9,a:10,a:11,a:12,a:13,a:14,a:15,a:16,a:17") }, "too many", .rank = -1 },
    { { T("1", "2", "a", NULL) }, "MASTER_ADDR is set, but MASTER_PORT is not", .rank = -1 },
    { { T("1", "2", "a", "70000") }, "MASTER_PORT=70000", .rank = -1 },
    { { T("1", "2", NULL, NULL) }, "MASTER_ADDR", .rank = -1 },
    { { { "GRIDCOMM_CLUSTER", "a b" } }, "GRIDCOMM_CLUSTER=a b", .rank = -1 },
    { { { "GRIDCOMM_LISTEN_FD", "-3" } }, "GRIDCOMM_LISTEN_FD=-3", .rank = -1 },
    { { { "GRIDCOMM_INSECURE", "yes" } }, "GRIDCOMM_INSECURE=yes", .rank = -1 },
    { { { "GRIDCOMM_KEY_FILE", "/nonexistent/key" } }, "GRIDCOMM_KEY_FILE=/nonexistent/key", .rank = -1 },

    /* PMI */
    { { P("3", "8"), { "PMI_FD", "7" } }, NULL, 3, 8, 0, 0, NULL, "pmi:7" },
    { { P("0", "8"), { "PMI_FD", "7" }, { "GRIDCOMM_ROOT", "a:1" } }, NULL, 0, 8, 1, 1, "a", "pmi:7" },
    { { P("0", "8"), { "GRIDCOMM_ROOT", "a:1" } }, NULL, 0, 8, 1, 1, "a", "pmi" },
    { { P("0", "1"), { "PMI_FD", "7" } }, NULL, 0, 1, 0, 0, NULL, "pmi" },
    { { { "PMI_FD", "7" } }, NULL, 0, 1, 0, 0, NULL, "none" },
    { { P("0", "8"), { "PMI_FD", "7" }, G("1", "2", "a:7") }, NULL, 1, 2, 1, 7, "a", "gridcomm" },
    { { P("0", "8"), { "PMI_FD", "7" }, T("1", "2", "b", "2") }, NULL, 1, 2, 1, 2, "b", "torchrun" },
    { { P("2", "8"), { "PMI_FD", "7" }, S("0", "1") }, NULL, 2, 8, 0, 0, NULL, "pmi:7" },
    { { { "PMI_PORT", "node0:4711" }, { "PMI_ID", "5" } }, NULL, 5, 0, 0, 4711, "node0", "pmi:port" },
    { { { "PMI_PORT", "[fd00::1]:1" }, { "PMI_ID", "0" }, S("0", "1") }, NULL, 0, 0, 0, 1, "fd00::1", "pmi:port" },
    { { { "PMI_PORT", "a:2" }, { "PMI_ID", "1" }, P("3", "8"), { "PMI_FD", "7" } }, NULL, 3, 8, 0, 0, NULL, "pmi:7" },
    { { P("3", NULL), { "PMI_FD", "7" } }, "PMI_RANK is set, but PMI_SIZE is not", .rank = -1 },
    { { P(NULL, "8"), { "PMI_FD", "7" } }, "PMI_SIZE is set, but PMI_RANK is not", .rank = -1 },
    { { P("3", "8") }, "PMI_RANK is set, but PMI_FD is not", .rank = -1 },
    { { P("8", "8"), { "PMI_FD", "7" } }, "PMI_RANK=8", .rank = -1 },
    { { P("3", "8"), { "PMI_FD", "seven" } }, "PMI_FD=seven: not a number", .rank = -1 },
    { { P("3", "8"), { "PMI_FD", "99999999" } }, "PMI_FD=99999999", .rank = -1 },
    { { { "PMI_PORT", "a:2" } }, "PMI_PORT is set, but PMI_ID is not", .rank = -1 },
    { { { "PMI_ID", "2" } }, "PMI_ID is set, but PMI_PORT is not", .rank = -1 },
    { { { "PMI_PORT", "a" }, { "PMI_ID", "2" } }, "PMI_PORT=a", .rank = -1 },
    { { { "PMI_PORT", "a:2" }, { "PMI_ID", "-2" } }, "PMI_ID=-2", .rank = -1 },

    /* Slurm */
    { { S("3", "8"), N("1", "n1"), J("77", "2") }, NULL, 3, 8, 1, 16384 + 77 * 16 + 2, "127.0.0.1", "slurm" },
    { { S("3", "8"), N("2", "n[01-03,7]x[4,5],y"), J("0", "0"), K }, NULL, 3, 8, 1, 16384, "n01x4", "slurm" },
    { { S("3", "8"), N("2", "a-b.c,y"), J("2147483647", "0"), K }, NULL, 3, 8, 1, 32752, "a-b.c", "slurm" },
    { { S("3", "8"), N("2", "[7-9]"), J("1", "0"), { "GRIDCOMM_INSECURE", "1" } }, NULL, 3, 8, 1, 16400, "7", "slurm" },
    { { S("3", "8"), { "SLURM_JOB_NODELIST", "m" }, J("1", "0"), K }, NULL, 3, 8, 1, 16400, "m", "slurm" },
    { { S("3", "8"), N("1", "n1"), { "SLURM_STEP_RESV_PORTS", "12000-12003" } }, NULL, 3, 8, 1, 12000, "127.0.0.1", "slurm" },
    { { S("3", "8"), N("1", "n1"), { "SLURM_STEP_RESV_PORTS", "12005,13" } }, NULL, 3, 8, 1, 12005, "127.0.0.1", "slurm" },
    { { S("3", "8"), N("2", "n1"), { "GRIDCOMM_ROOT", "a:7" } }, NULL, 3, 8, 1, 7, "a", "slurm" },
    { { S("3", "8"), G("1", "2", "a:7") }, NULL, 1, 2, 1, 7, "a", "gridcomm" },
    { { S("0", "1") }, NULL, 0, 1, 0, 0, NULL, "slurm" },
    { { { "SLURM_PROCID", "0" }, { "SLURM_NTASKS", "8" } }, NULL, 0, 1, 0, 0, NULL, "none" },       /* a batch script */
    { { S(NULL, "8") }, "SLURM_STEP_NUM_TASKS is set, but SLURM_PROCID is not", .rank = -1 },
    { { S("8", "8") }, "SLURM_PROCID=8", .rank = -1 },
    { { S("3", "8"), N("2", "n[1-2]"), J("1", "0") }, "n[1-2]: a job on several hosts needs a key", .rank = -1 },
    { { S("0", "8"), N("2", "a[1-2]"), J("1", "0"), K, { "SLURM_NODEID", "1" } }, "SLURM_NODEID=1: rank 0 is not", .rank = -1 },
    { { S("3", "8"), N("2", "a[1-2]"), J("1", "0"), K, { "SLURM_NODEID", "1" } }, NULL, 3, 8, 1, 16400, "a1", "slurm" },
    { { S("0", "8"), N("2", "a[1-2]"), J("1", "0"), K, { "SLURM_NODEID", "0" } }, NULL, 0, 8, 1, 16400, "a1", "slurm" },
    { { S("3", "8"), N("2", NULL), J("1", "0"), K }, "SLURM_STEP_NODELIST is not", .rank = -1 },
    { { S("3", "8"), N("2", "n[1"), J("1", "0"), K }, "SLURM_STEP_NODELIST=n[1: not a list of hosts", .rank = -1 },
    { { S("3", "8"), N("2", "n[]"), J("1", "0"), K }, "not a list of hosts", .rank = -1 },
    { { S("3", "8"), N("2", ",a"), J("1", "0"), K }, "not a list of hosts", .rank = -1 },
    { { S("3", "8"), N("2", "a b"), J("1", "0"), K }, "not a list of hosts", .rank = -1 },
    { { S("3", "8"), N("2", "a]"), J("1", "0"), K }, "not a list of hosts", .rank = -1 },
    { { S("3", "8"), N("0", "n1"), J("1", "0") }, "SLURM_STEP_NUM_NODES=0", .rank = -1 },
    { { S("3", "8"), N("1", "n1"), J(NULL, "0") }, "SLURM_STEP_NUM_TASKS is set, but SLURM_JOB_ID is not", .rank = -1 },
    { { S("3", "8"), N("1", "n1"), J("1", NULL) }, "SLURM_STEP_NUM_TASKS is set, but SLURM_STEP_ID is not", .rank = -1 },
    { { S("3", "8"), N("1", "n1"), J("1", "x") }, "SLURM_STEP_ID=x: not a number", .rank = -1 },
    { { S("3", "8"), N("1", "n1"), { "SLURM_STEP_RESV_PORTS", "70000" } }, "SLURM_STEP_RESV_PORTS=70000", .rank = -1 },
    { { S("3", "8"), N("1", "n1"), { "SLURM_STEP_RESV_PORTS", "-" } }, "SLURM_STEP_RESV_PORTS=", .rank = -1 },
};

static void describe_launcher(const gci_place *p, char text[32])
{
    int n = snprintf(text, 32, "%s", p->launcher);
    if (p->pmi.kind == GCI_PMI_FD)
        snprintf(text + n, 32 - (size_t)n, ":%d", p->pmi.fd);
    else if (p->pmi.kind == GCI_PMI_PORT)
        snprintf(text + n, 32 - (size_t)n, ":%s", p->pmi.fd == -1 ? "port" : "with a descriptor");
}

static void test_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(place_cases); i++) {
        place_case *c = &place_cases[i];
        char text[GCI_TEXT] = "?", launcher[32];
        gci_place p;
        int err = gci_place_find(NULL, look_up, c->set, &p, text);
        if (err != (c->wrong ? GC_ERR_CONFIG : GC_OK) || (c->wrong && !strstr(text, c->wrong)))
            fail_msg("case %zu: %d \"%s\", wanted \"%s\"", i, err, text, c->wrong ? c->wrong : "");
        if (c->wrong)
            continue;
        assert_int_equal(p.rank, c->rank);
        assert_int_equal(p.ranks, c->ranks);
        assert_int_equal(p.roots, c->roots);
        assert_int_equal(p.listen_fd, -1);
        describe_launcher(&p, launcher);
        assert_string_equal(launcher, c->launcher);
        assert_string_equal(text, "");
        if (c->host) {
            const gci_root *root = p.pmi.kind == GCI_PMI_PORT ? &p.pmi.at : &p.root[0];
            assert_int_equal(root->port, c->port);
            assert_string_equal(root->host, c->host);
        }
    }
}

static void test_place_options(void **state)
{
    variable set[VARIABLES] = { G("3", "8", "a:1"), { "GRIDCOMM_KEY", "from the environment" }, { "GRIDCOMM_CLUSTER", "x/y" },
                                { "GRIDCOMM_LISTEN_FD", "7" }, { "GRIDCOMM_INSECURE", "1" } };
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    char text[GCI_TEXT], key[GCI_KEY_MAX + 2];
    gci_place p;
    (void)state;
    assert_int_equal(gci_place_find(&o, look_up, set, &p, text), GC_OK);
    assert_true(p.insecure && p.listen_fd == 7 && p.key_bytes == 20 && memcmp(p.key, "from the environment", 20) == 0);
    assert_string_equal(p.cluster, "x/y");
    o.rank = 1;
    o.root = "b:2,c:3";
    o.key = "mine";
    o.cluster = "z";
    assert_int_equal(gci_place_find(&o, look_up, set, &p, text), GC_OK);
    assert_true(p.rank == 1 && p.ranks == 8 && p.roots == 2 && p.root[1].port == 3 && p.key_bytes == 4);
    assert_int_equal(p.listen_fd, -1);          /* it listens at the launcher's rendezvous */
    assert_string_equal(p.cluster, "z");
    o.ranks = 1;
    assert_int_equal(gci_place_find(&o, look_up, set, &p, text), GC_ERR_CONFIG);
    memset(key, 'k', sizeof key);
    key[GCI_KEY_MAX + 1] = 0;
    o.ranks = 8;
    o.key = key;
    assert_int_equal(gci_place_find(&o, look_up, set, &p, text), GC_ERR_CONFIG);
    assert_null(strstr(text, "kkk"));           /* a key is never printed */
    key[GCI_KEY_MAX] = 0;
    assert_int_equal(gci_place_find(&o, look_up, set, &p, text), GC_OK);
    assert_int_equal(p.key_bytes, GCI_KEY_MAX);
}

/* Who is told who he is by the program is no rank of the launcher's, and leaves its connection alone. */
static void test_place_options_and_launchers(void **state)
{
    variable pmi[VARIABLES] = { P("3", "8"), { "PMI_FD", "7" } }, slurm[VARIABLES] = { S("3", "8"), N("1", "n1"), J("1", "0") };
    variable port[VARIABLES] = { { "PMI_PORT", "a:2" }, { "PMI_ID", "5" } };
    gc_options o = GRIDCOMM_OPTIONS_INIT;
    char text[GCI_TEXT];
    gci_place p;
    (void)state;
    o.rank = 1;
    o.ranks = 2;
    o.root = "b:3";
    assert_int_equal(gci_place_find(&o, look_up, pmi, &p, text), GC_OK);
    assert_true(p.rank == 1 && p.ranks == 2 && p.roots == 1 && p.pmi.kind == GCI_PMI_NONE);
    assert_int_equal(gci_place_find(&o, look_up, port, &p, text), GC_OK);
    assert_true(p.rank == 1 && p.ranks == 2 && p.roots == 1 && p.pmi.kind == GCI_PMI_NONE);
    o.root = NULL;
    assert_int_equal(gci_place_find(&o, look_up, pmi, &p, text), GC_ERR_CONFIG);
    assert_int_equal(gci_place_find(&o, look_up, slurm, &p, text), GC_ERR_CONFIG);
    assert_non_null(strstr(text, "GRIDCOMM_ROOT"));
    o.rank = -1;
    assert_int_equal(gci_place_find(&o, look_up, pmi, &p, text), GC_ERR_CONFIG);    /* rank 3 of 2 */
    o.ranks = 8;
    assert_int_equal(gci_place_find(&o, look_up, port, &p, text), GC_OK);
    assert_true(p.rank == 5 && p.ranks == 8 && p.pmi.kind == GCI_PMI_PORT);
}

static int place_with_key(const char *content, size_t bytes, gci_place *p)
{
    char path[] = "/tmp/gridcomm-key-XXXXXX", text[GCI_TEXT];
    variable set[VARIABLES] = { { "GRIDCOMM_KEY_FILE", path } };
    int fd = mkstemp(path), err;
    assert_true(fd >= 0);
    assert_int_equal(write(fd, content, bytes), (ssize_t)bytes);
    close(fd);
    err = gci_place_find(NULL, look_up, set, p, text);
    unlink(path);
    return err;
}

static void test_place_key_file(void **state)
{
    char big[GCI_KEY_MAX + 3];
    gci_place p;
    (void)state;
    assert_int_equal(place_with_key("secret\n", 7, &p), GC_OK);
    assert_true(p.key_bytes == 6 && memcmp(p.key, "secret", 6) == 0);
    assert_int_equal(place_with_key("secret\n\n", 8, &p), GC_OK);
    assert_int_equal(p.key_bytes, 7);
    assert_int_equal(place_with_key("a\0b", 3, &p), GC_OK);
    assert_int_equal(p.key_bytes, 3);
    assert_int_equal(place_with_key("\n", 1, &p), GC_ERR_CONFIG);
    memset(big, 'x', sizeof big);
    assert_int_equal(place_with_key(big, GCI_KEY_MAX, &p), GC_OK);
    assert_int_equal(place_with_key(big, GCI_KEY_MAX + 1, &p), GC_ERR_CONFIG);
    big[GCI_KEY_MAX] = '\n';
    assert_int_equal(place_with_key(big, GCI_KEY_MAX + 1, &p), GC_OK);
    assert_int_equal(place_with_key(big, GCI_KEY_MAX + 3, &p), GC_ERR_CONFIG);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_place),
        cmocka_unit_test(test_place_options),
        cmocka_unit_test(test_place_options_and_launchers),
        cmocka_unit_test(test_place_key_file),
    };
    alarm(60);
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
