/* test_topo.c: the tree of clusters against what its definition says, pair by pair.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many topologies it draws.
 */
#include "gridcomm_int.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdlib.h>
#include <time.h>

enum { ROUNDS = 3000, NODES_MAX = 40, PATH_BYTES = 64, NAMES_MAX = 8 };

static gci_env env;
typedef struct path { int names; char name[NAMES_MAX][16]; } path;

static path split(const char *text)
{
    path p = { 0 };
    for (const char *at = text ? text : ""; *at; ) {
        size_t n = strcspn(at, "/");
        if (n > 0) {
            assert_true(p.names < NAMES_MAX && n < sizeof p.name[0]);
            memcpy(p.name[p.names++], at, n);
        }
        at += n + (at[n] == '/');
    }
    return p;
}

/* Depth of the innermost cluster of both, by definition. */
static int common_depth(const path *a, int host_a, const path *b, int host_b)
{
    int same = 0;
    while (same < a->names && same < b->names && strcmp(a->name[same], b->name[same]) == 0)
        same++;
    return same + (same == a->names && same == b->names && host_a == host_b);
}

static void check_shape(const gci_topo *t)
{
    assert_int_equal(t->parent[0], -1);
    assert_int_equal(t->depth[0], 0);
    assert_int_equal(t->first[0], 0);
    assert_int_equal(t->size[0], t->nodes);
    for (int c = 1; c < t->clusters; c++) {
        int p = t->parent[c];
        assert_in_range(p, 0, c - 1);
        assert_int_equal(t->depth[c], t->depth[p] + 1);
        assert_true(t->size[c] > 0);
        assert_true(t->first[c] >= t->first[p] && t->first[c] + t->size[c] <= t->first[p] + t->size[p]);
    }
    for (int x = 0; x < t->nodes; x++) {
        assert_int_equal(t->order[t->place[x]], x);
        assert_in_range(t->of[x], 1, t->clusters - 1);
        int c = t->of[x];
        assert_true(t->place[x] >= t->first[c] && t->place[x] < t->first[c] + t->size[c]);
    }
}

static void check(int n, const char *const paths[], const int hosts[])
{
    gci_topo t;
    path p[NODES_MAX];
    bool in_block[NODES_MAX];
    assert_int_equal(gci_topo_make(&env, n, paths, hosts, &t), GC_OK);
    assert_int_equal(t.nodes, n);
    check_shape(&t);
    for (int x = 0; x < n; x++)
        p[x] = split(paths[x]);
    int clusters = 1;
    for (int x = 0; x < n; x++) {
        assert_int_equal(t.depth[t.of[x]], p[x].names + 1);
        int known = 0;              /* how much of x's way from the root an earlier node has */
        for (int y = 0; y < n; y++) {
            int depth = common_depth(&p[x], hosts[x], &p[y], hosts[y]), c = gci_topo_common(&t, x, y);
            assert_int_equal(t.depth[c], depth);
            assert_true(gci_topo_inside(&t, c, x) && gci_topo_inside(&t, c, y));
            if (y < x && depth > known)
                known = depth;
        }
        clusters += p[x].names + 1 - known;
        for (int c = t.of[x], depth = t.depth[c]; c >= 0; c = t.parent[c], depth--) {
            for (int y = 0; y < n; y++) {
                in_block[y] = gci_topo_inside(&t, c, y);
                assert_int_equal(in_block[y], common_depth(&p[x], hosts[x], &p[y], hosts[y]) >= depth);
            }
        }
    }
    assert_int_equal(t.clusters, clusters);
    gci_topo_free(&env, &t);
}

static void test_random(void **state)
{
    static char text[NODES_MAX][PATH_BYTES];
    const char *paths[NODES_MAX], *rounds = getenv("GCT_ROUNDS");
    int hosts[NODES_MAX];
    (void)state;
    seed_random();
    for (int round = rounds ? atoi(rounds) : ROUNDS; round > 0; round--) {
        int n = 1 + below(NODES_MAX), hosts_below = 1 + below(n), deep = below(5), names = 1 + below(4);
        bool untidy = below(3) == 0;
        for (int x = 0; x < n; x++) {
            size_t at = 0;
            for (int k = below(deep + 1); k > 0; k--)
                at += (size_t)snprintf(text[x] + at, PATH_BYTES - at, "%s%s%c%s", untidy && below(3) == 0 ? "/" : "",
                                       below(4) ? "" : "a", 'a' + below(names), k > 1 ? "/" : untidy && below(2) ? "//" : "");
            text[x][at] = 0;
            paths[x] = at == 0 && below(2) ? NULL : text[x];
            hosts[x] = below(hosts_below) * 7 - 3;
        }
        check(n, paths, hosts);
    }
}

static void test_picture(void **state)
{
    const char *const paths[] = { "a/x", "b", "a", "b", "a/x", "b" };
    const int hosts[] = { 5, 1, 2, 9, 5, 9 }, order[] = { 2, 0, 4, 1, 3, 5 };
    gci_topo t;
    (void)state;
    assert_int_equal(gci_topo_make(&env, 6, paths, hosts, &t), GC_OK);
    assert_int_equal(t.clusters, 8);
    for (int i = 0; i < 6; i++)
        assert_int_equal(t.order[i], order[i]);
    assert_int_equal(gci_topo_common(&t, 0, 4), 4);
    assert_int_equal(gci_topo_common(&t, 0, 2), 1);
    assert_int_equal(gci_topo_common(&t, 0, 1), 0);
    assert_int_equal(gci_topo_common(&t, 3, 5), 7);
    assert_int_equal(t.parent[7], 5);
    gci_topo_free(&env, &t);
    assert_null(t.parent);
}

static void test_edges(void **state)
{
    gci_topo t;
    (void)state;
    assert_int_equal(gci_topo_make(&env, 0, NULL, NULL, &t), GC_OK);
    assert_int_equal(t.clusters, 1);
    assert_int_equal(t.size[0], 0);
    gci_topo_free(&env, &t);
    assert_int_equal(gci_topo_make(&env, 1, NULL, NULL, &t), GC_OK);
    assert_int_equal(t.clusters, 2);
    assert_int_equal(t.of[0], 1);
    assert_int_equal(gci_topo_common(&t, 0, 0), 1);
    gci_topo_free(&env, &t);
    /* "a" and "ab" begin alike but are two; "/" and "" are none; a name compares as bytes without sign. */
    check(6, (const char *[]){ "a", "ab", "a/b", "/", "", "\xc3\xb6/a" }, (const int[]){ 0, 0, 0, 0, 0, 0 });
}

static void test_large(void **state)
{
    enum { LARGE = 65536 };
    static char text[LARGE][32];
    static const char *paths[LARGE];
    static int hosts[LARGE];
    struct timespec a, b;
    gci_topo t;
    (void)state;
    for (int x = 0; x < LARGE; x++) {
        snprintf(text[x], sizeof text[x], "site-%d/rack-%d", x % 61, x % 7);
        paths[x] = text[x];
        hosts[x] = x % 4270;        /* 61 * 7 * 10: a host is of one rack */
    }
    clock_gettime(CLOCK_MONOTONIC, &a);
    assert_int_equal(gci_topo_make(&env, LARGE, paths, hosts, &t), GC_OK);
    clock_gettime(CLOCK_MONOTONIC, &b);
    print_message("%d ranks: %.3f s\n", LARGE, (double)(b.tv_sec - a.tv_sec) + 1e-9 * (double)(b.tv_nsec - a.tv_nsec));
    assert_true(b.tv_sec - a.tv_sec < 5);       /* as n * n it would take minutes */
    assert_int_equal(t.clusters, 1 + 61 + 61 * 7 + 4270);
    check_shape(&t);
    gci_topo_free(&env, &t);
}

static void test_no_memory(void **state)
{
    gc_options options = GRIDCOMM_OPTIONS_INIT;
    gci_env poor;
    gci_topo t;
    int err, allowed = 0;
    (void)state;
    options.alloc = failing_alloc;
    gci_env_init(&poor, gci_sys_real(), &options);
    do {
        allocations_left = allowed++;
        err = gci_topo_make(&poor, 3, (const char *[]){ "a", "b", "a" }, (const int[]){ 1, 2, 3 }, &t);
        if (err == GC_OK)
            gci_topo_free(&poor, &t);
        else
            assert_null(t.parent);
        assert_int_equal(poor.memory, 0);
    } while (err == GC_ERR_NOMEM && allowed < 20);
    assert_int_equal(err, GC_OK);
    assert_int_equal(allowed, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_picture), cmocka_unit_test(test_edges), cmocka_unit_test(test_random),
        cmocka_unit_test(test_large), cmocka_unit_test(test_no_memory),
    };
    gci_env_init(&env, gci_sys_real(), NULL);
    return cmocka_run_group_tests_name("topo", tests, NULL, NULL);
}
