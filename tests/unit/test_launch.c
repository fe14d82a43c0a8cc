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
enum { VARIABLES = 8 };
typedef struct place_case {
    variable    set[VARIABLES];
    const char *wrong;          /* NULL: fine; else what the text has to say */
    int         rank, ranks, roots, port;
    const char *host, *launcher;
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
};

static void test_place(void **state)
{
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(place_cases); i++) {
        place_case *c = &place_cases[i];
        char text[GCI_TEXT] = "?";
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
        assert_string_equal(p.launcher, c->launcher);
        assert_string_equal(text, "");
        if (c->roots) {
            assert_int_equal(p.root[0].port, c->port);
            assert_string_equal(p.root[0].host, c->host);
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
        cmocka_unit_test(test_place_key_file),
    };
    alarm(60);
    return cmocka_run_group_tests_name("launch", tests, NULL, NULL);
}
