/* test_tree.c: trees against other definitions of their shapes; those over clusters against what they promise.
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

enum { ROUNDS = 2000, NODES_MAX = 40, PATH_BYTES = 32, TEXT_BYTES = 4096 };

static gci_env env;
static const gci_tree_costs no_costs;
/* ---- shapes ------------------------------------------------------------------------------------------------------ */

static int children(const gc_tree *t, int v)
{
    int n = 0;
    for (int c = t->first_child[v]; c >= 0; c = t->next_sibling[c])
        n++;
    return n;
}

static int relative(const gc_tree *t, int rank)
{
    return (rank - t->root + t->size) % t->size;
}

/* Ranks of the subtree of v, found from below. */
static int span(const gc_tree *t, int v)
{
    int n = 0;
    for (int r = 0; r < t->size; r++)
        for (int up = r; up >= 0; up = t->parent[up])
            n += up == v;
    return n;
}

/* Sound, by definition: every rank has one way to the root, and is in its parent's list of children, once. */
static void check_links(const gc_tree *t)
{
    assert_int_equal(t->parent[t->root], -1);
    for (int v = 0; v < t->size; v++) {
        int steps = 0, listed = 0;
        for (int up = v; up != t->root; up = t->parent[up])
            assert_true(steps++ < t->size && up >= 0);
        for (int c = v == t->root ? -1 : t->first_child[t->parent[v]]; c >= 0; c = t->next_sibling[c])
            listed += c == v;
        assert_int_equal(listed, v != t->root);
    }
    assert_true(gci_tree_is_sound(t));
}

/* Siblings from the largest subtree on, and from the highest position down; each subtree a run of positions. */
static void check_runs(const gc_tree *t)
{
    for (int v = 0; v < t->size; v++) {
        int end = relative(t, v) + span(t, v), before = t->size;
        for (int c = t->first_child[v]; c >= 0; c = t->next_sibling[c]) {
            int n = span(t, c);
            assert_int_equal(relative(t, c) + n, end);
            assert_true(n <= before || before == span(t, t->first_child[v]));
            end -= n;
            before = n;
        }
        assert_int_equal(end, relative(t, v) + 1);
    }
    assert_true(t->root != 0 || gci_tree_is_ordered(&env, t));
}

/* Written in base k, the parent's position lacks the lowest digit that is not 0. */
static void check_knomial(const gc_tree *t, int k)
{
    for (int v = 0; v < t->size; v++) {
        int at = relative(t, v), place = 1;
        if (at == 0)
            continue;
        while (at / place % k == 0)
            place *= k;
        assert_int_equal(relative(t, t->parent[v]), at - at / place % k * place);
    }
}

/* At most k children, fewer only if there are no more ranks; subtrees of siblings differ by a rank at most. */
static void check_kary(const gc_tree *t, int k)
{
    for (int v = 0; v < t->size; v++) {
        int rest = span(t, v) - 1;
        assert_int_equal(children(t, v), rest < k ? rest : k);
        for (int c = t->first_child[v]; c >= 0; c = t->next_sibling[c])
            assert_in_range(span(t, c), rest / k, (rest + k - 1) / k);
    }
}

static void check_shape(const char *shape, int size, int root)
{
    gc_tree t;
    int k = strchr(shape, ':') ? atoi(strchr(shape, ':') + 1) : strncmp(shape, "bin", 3) == 0 ? 2 : 8;
    assert_int_equal(gci_tree_make(&env, shape, size, root, &t), GC_OK);
    assert_int_equal(t.size, size);
    assert_int_equal(t.root, root);
    check_links(&t);
    check_runs(&t);
    if (strcmp(shape, "flat") == 0)
        assert_int_equal(children(&t, root), size - 1);
    else if (strcmp(shape, "chain") == 0)
        for (int v = 0; v < size; v++)
            assert_int_equal(t.first_child[v], relative(&t, v) < size - 1 ? (v + 1) % size : -1);
    else if (strstr(shape, "nomial"))
        check_knomial(&t, k);
    else
        check_kary(&t, k);
    gci_tree_drop(&env, &t);
}

static void test_shapes(void **state)
{
    static const char *const shapes[] = { "flat", "chain", "binary", "binomial", "kary", "knomial", "kary:1", "kary:2", "kary:3",
                                          "kary:100", "knomial:2", "knomial:3", "knomial:7", "knomial:999999999" };
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(shapes); i++)
        for (int size = 1; size <= 34; size++)
            for (int root = 0; root < size; root += size < 10 ? 1 : 1 + size / 3)
                check_shape(shapes[i], size, root);
    check_shape("knomial:4", 300, 7);
    check_shape("kary:4", 300, 299);
}

static void test_wrong_shapes(void **state)
{
    static const char *const wrong[] = { "", "flatt", "fla", "flat:2", "chain:1", "binomial:2", "binary:", "kary:", "kary:0",
                                         "kary:-1", "kary:2x", "kary:9999999999", "knomial:1", "knomial:0", "knomial: 2",
                                         "Kary:2", "given", "flat-", "flat-dfs-dfs", "flat-dfs-bfs", "flat-largest-bfs",
                                         "flat-deep", "kary-3", "kary-bfs:3", "kary:3bfs", "prim-", "prim-dfs", "traeff-bfs" };
    gc_tree t, *built;
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(wrong); i++) {
        assert_int_equal(gci_tree_make(&env, wrong[i], 5, 0, &t), GC_ERR_ARG);
        assert_null(t.parent);
        assert_int_equal(gc_tree_build(&built, wrong[i], 5, 0, NULL, NULL), GC_ERR_ARG);
        assert_null(built);
    }
    assert_int_equal(gci_tree_make(&env, "flat", 0, 0, &t), GC_ERR_ARG);
    assert_int_equal(gci_tree_make(&env, "flat", 5, 5, &t), GC_ERR_ARG);
    assert_int_equal(gci_tree_make(&env, "flat", 5, -1, &t), GC_ERR_ARG);
    assert_int_equal(gc_tree_build(NULL, "flat", 5, 0, NULL, NULL), GC_ERR_ARG);
    assert_int_equal(gc_tree_build(&built, NULL, 5, 0, NULL, NULL), GC_ERR_ARG);
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

typedef struct small { gc_tree t; int parent[6], first_child[6], next_sibling[6]; } small;

/*      2          Walked 2 0 3 5 1 4; as it travels 2 1 4 0 5 3.
 *     / \
 *    0   1
 *   / \   \
 *  3   5   4  */
static void fill(small *s)
{
    *s = (small){ { 6, 2, s->parent, s->first_child, s->next_sibling }, { 2, 2, -1, 0, 1, 0 }, { 3, 4, 0, -1, -1, -1 },
                  { 1, -1, -1, 5, -1, -1 } };
}

/* Every single link, bent every way, is noticed, unless it is the same tree still. */
static void test_sound(void **state)
{
    small s;
    (void)state;
    fill(&s);
    assert_true(gci_tree_is_sound(&s.t));
    assert_false(gci_tree_is_ordered(&env, &s.t));
    for (int which = 0; which < 3; which++)
        for (int v = 0; v < 6; v++)
            for (int to = -2; to <= 6; to++) {
                fill(&s);
                int *link = which == 0 ? s.parent : which == 1 ? s.first_child : s.next_sibling;
                if (link[v] == to || (which == 2 && v == 2))        /* a root's siblings are not looked at */
                    continue;
                link[v] = to;
                assert_false(gci_tree_is_sound(&s.t));
            }
    fill(&s);
    for (int to = -2; to <= 7; to++) {
        s.t.root = to;
        assert_int_equal(gci_tree_is_sound(&s.t), to == 2);
    }
    s.t.root = 2;
    for (int size = -1; size < 6; size++) {
        s.t.size = size;
        assert_false(gci_tree_is_sound(&s.t));
    }
    s.t.size = 6;
    s.t.parent = NULL;
    assert_false(gci_tree_is_sound(&s.t));
}

static void test_subtrees(void **state)
{
    static const gci_subtree right[] = { { 0, 5, 3, 3 }, { 1, 4, 2, 1 }, { 0, 5, 6, 0 }, { 3, 3, 1, 5 }, { 4, 4, 1, 2 },
                                         { 5, 5, 1, 4 } };
    gci_subtree sub[6] = { { 0 } };
    small s;
    (void)state;
    fill(&s);
    gci_tree_subtrees(&s.t, sub);
    for (int v = 0; v < 6; v++)
        assert_memory_equal(&sub[v], &right[v], sizeof sub[v]);
}

static void test_print(void **state)
{
    static const char text[] = "2\n  0\n    3\n    5\n  1\n    4\n";
    static const char dot[] = "digraph tree {\n  ordering=out;\n  \"2\";\n  \"2\" -> \"0\";\n  \"0\" -> \"3\";\n"
                              "  \"0\" -> \"5\";\n  \"2\" -> \"1\";\n  \"1\" -> \"4\";\n}\n";
    char out[TEXT_BYTES];
    size_t needed = 0;
    small s;
    (void)state;
    fill(&s);
    assert_int_equal(gc_tree_print(&s.t, 0, out, sizeof out, &needed), GC_OK);
    assert_string_equal(out, text);
    assert_int_equal(needed, sizeof text);
    assert_int_equal(gc_tree_print(&s.t, 1, out, sizeof out, NULL), GC_OK);
    assert_string_equal(out, dot);
    assert_int_equal(gc_tree_print(&s.t, 1, NULL, 0, &needed), GC_OK);
    assert_int_equal(needed, sizeof dot);
    memset(out, 'x', sizeof out);
    assert_int_equal(gc_tree_print(&s.t, 0, out, 5, &needed), GC_OK);
    assert_memory_equal(out, "2\n  \0x", 6);
    assert_int_equal(needed, sizeof text);
    assert_int_equal(gc_tree_print(NULL, 0, out, sizeof out, NULL), GC_ERR_ARG);
    assert_int_equal(gc_tree_print(&s.t, 0, NULL, 5, NULL), GC_ERR_ARG);
    s.parent[4] = 0;
    assert_int_equal(gc_tree_print(&s.t, 0, out, sizeof out, NULL), GC_ERR_ARG);
}

static void test_build(void **state)
{
    gc_tree *t;
    char out[TEXT_BYTES];
    (void)state;
    assert_int_equal(gc_tree_build(&t, "binomial", 8, 0, NULL, NULL), GC_OK);
    assert_int_equal(gc_tree_print(t, 0, out, sizeof out, NULL), GC_OK);
    assert_string_equal(out, "0\n  4\n    6\n      7\n    5\n  2\n    3\n  1\n");
    gc_tree_free(t);
    assert_int_equal(gc_tree_build(&t, "binary", 8, 0, NULL, NULL), GC_OK);
    assert_int_equal(gc_tree_print(t, 0, out, sizeof out, NULL), GC_OK);
    assert_string_equal(out, "0\n  4\n    6\n      7\n    5\n  1\n    3\n    2\n");
    gc_tree_free(t);
    gc_tree_free(NULL);
}

/* ---- over clusters ----------------------------------------------------------------------------------------------- */

typedef struct world { gci_topo topo; gci_clusters s; } world;

static bool is_part(const gci_topo *topo, int32_t inner, int32_t outer)
{
    return topo->parent[inner] == outer;
}

/* The coordinator of a cluster, by definition. */
static int coordinator(const gci_topo *topo, int32_t cluster, int root)
{
    if (gci_topo_inside(topo, cluster, root))
        return root;
    for (int r = 0;; r++)
        if (gci_topo_inside(topo, cluster, r))
            return r;
}

static int lowest(const gci_topo *topo, int32_t cluster)
{
    int r = 0;
    while (!gci_topo_inside(topo, cluster, r))
        r++;
    return r;
}

/* No cluster between which the wide area lies is cut by cluster c: all its ranks are inside, or none. */
static bool is_inner(const world *w, int32_t c)
{
    int k = w->s.of[lowest(&w->topo, c)], inside = 0;
    for (int r = 0; r < w->topo.nodes; r++)
        inside += w->s.of[r] == k && gci_topo_inside(&w->topo, c, r);
    return inside < w->s.first[k + 1] - w->s.first[k];
}

/* Of every part of a wide-area cluster: it is entered once, at its coordinator, and left from there alone. */
static void check_edges(const world *w, const gc_tree *t)
{
    const gci_topo *topo = &w->topo;
    int wide = 0;
    for (int r = 0; r < t->size; r++)
        if (r != t->root && w->s.of[r] != w->s.of[t->parent[r]]) {
            assert_int_equal(t->parent[r], t->root);
            wide++;
        }
    assert_int_equal(wide, w->s.clusters - 1);
    for (int32_t c = 0; c < topo->clusters; c++) {
        int entered = 0, speaker = coordinator(topo, c, t->root);
        if (!is_inner(w, c))
            continue;
        for (int r = 0; r < t->size; r++) {
            int up = t->parent[r];
            if (up < 0 || gci_topo_inside(topo, c, r) == gci_topo_inside(topo, c, up))
                continue;
            entered += gci_topo_inside(topo, c, r);
            assert_int_equal(gci_topo_inside(topo, c, r) ? r : up, speaker);
        }
        assert_int_equal(entered, !gci_topo_inside(topo, c, t->root));
    }
}

/* The coordinators of the parts of c, by their parts' lowest ranks, are joined in the shape. */
static void check_level(const world *w, const gc_tree *t, const char *shape, int32_t c)
{
    const gci_topo *topo = &w->topo;
    int rank[NODES_MAX], n = 0, at = 0;
    for (int r = 0; r < t->size; r++) {
        if (topo->of[r] == c && w->s.first[w->s.of[r] + 1] - w->s.first[w->s.of[r]] > 1) {
            at = r == t->root ? n : at;
            rank[n++] = r;
        }
        for (int32_t d = 1; d < topo->clusters; d++)
            if (is_part(topo, d, c) && is_inner(w, d) && lowest(topo, d) == r) {
                at = gci_topo_inside(topo, d, t->root) ? n : at;
                rank[n++] = coordinator(topo, d, t->root);
            }
    }
    gc_tree shaped;
    if (n < 2)
        return;
    assert_int_equal(gci_tree_make(&env, shape, n, at, &shaped), GC_OK);
    for (int i = 0; i < n; i++)
        if (i != at)
            assert_int_equal(t->parent[rank[i]], rank[shaped.parent[i]]);
    gci_tree_drop(&env, &shaped);
}

/* Siblings: the wide area first, then level by level. */
static void check_siblings(const world *w, const gc_tree *t)
{
    for (int v = 0; v < t->size; v++)
        for (int c = t->first_child[v], depth = 0; c >= 0; c = t->next_sibling[c]) {
            bool far = w->s.of[c] != w->s.of[v];
            int now = far ? 0 : 1 + w->topo.depth[gci_topo_common(&w->topo, v, c)];
            assert_true(now >= depth);
            depth = now;
        }
}

static void draw(world *w, int n)
{
    static char text[NODES_MAX][PATH_BYTES];
    const char *paths[NODES_MAX];
    int hosts[NODES_MAX], deep = below(4), names = 1 + below(4), hosts_below = 1 + below(n), common = below(3);
    for (int r = 0; r < n; r++) {
        int names_here = below(3) ? deep : below(deep + 1);
        size_t at = (size_t)snprintf(text[r], PATH_BYTES, "%s", common == 0 ? "x/y/" : "");
        for (int k = 0; k < names_here; k++)
            at += (size_t)snprintf(text[r] + at, PATH_BYTES - at, "%c/", 'a' + below(names));
        paths[r] = text[r];
        hosts[r] = below(hosts_below);
    }
    assert_int_equal(gci_topo_make(&env, n, paths, hosts, &w->topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &w->topo, &w->s), GC_OK);
}

static void drop(world *w)
{
    gci_clusters_free(&env, &w->s);
    gci_topo_free(&env, &w->topo);
}

static void test_over_clusters(void **state)
{
    static const char *const shapes[] = { "flat", "chain", "binomial", "kary:3", "knomial:8" };
    const char *rounds = getenv("GCT_ROUNDS");
    int wide = 0, deep = 0;
    (void)state;
    for (int round = rounds ? atoi(rounds) : ROUNDS; round > 0; round--) {
        int n = 1 + below(NODES_MAX), root = below(n);
        const char *shape = shapes[below((int)GCI_COUNT(shapes))];
        world w;
        gc_tree t;
        draw(&w, n);
        assert_int_equal(gci_tree_over_clusters(&env, shape, &no_costs, &w.s, root, &t), GC_OK);
        assert_int_equal(t.size, n);
        assert_int_equal(t.root, root);
        check_links(&t);
        check_edges(&w, &t);
        check_siblings(&w, &t);
        for (int32_t c = 0; c < w.topo.clusters; c++)
            check_level(&w, &t, shape, c);
        wide += w.s.clusters > 1;
        deep += w.s.clusters > 1 && w.topo.depth[w.topo.of[0]] > 2;
        gci_tree_drop(&env, &t);
        drop(&w);
    }
    assert_true(rounds || (wide > ROUNDS / 5 && deep > ROUNDS / 20));
}

/* Two sites of two hosts each, ranks dealt out to them in turn. */
static void test_picture(void **state)
{
    static const char *const paths[] = { "a", "b", "a", "b", "a", "b", "a", "b" };
    static const int hosts[] = { 0, 1, 2, 3, 0, 1, 2, 3 };
    char out[TEXT_BYTES];
    world w;
    gc_tree t;
    (void)state;
    assert_int_equal(gci_topo_make(&env, 8, paths, hosts, &w.topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &w.topo, &w.s), GC_OK);
    assert_int_equal(gci_tree_over_clusters(&env, "binomial", &no_costs, &w.s, 6, &t), GC_OK);
    assert_int_equal(gc_tree_print(&t, 0, out, sizeof out, NULL), GC_OK);
    assert_string_equal(out, "6\n  1\n    3\n      7\n    5\n  0\n    4\n  2\n");
    gci_tree_drop(&env, &t);
    assert_int_equal(gci_tree_over_clusters(&env, "binomia", &no_costs, &w.s, 6, &t), GC_ERR_ARG);
    assert_int_equal(gci_tree_over_clusters(&env, "binomial", &no_costs, &w.s, 8, &t), GC_ERR_ARG);
    assert_null(t.parent);
    drop(&w);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static void test_no_memory(void **state)
{
    gci_env poor = { .alloc = failing_alloc };
    world w;
    gc_tree t;
    (void)state;
    draw(&w, 20);
    for (int over = 0; over < 2; over++) {
        int err = GC_ERR_NOMEM;
        for (int n = 0; err == GC_ERR_NOMEM; n++) {
            assert_true(n < 100);
            allocations_left = n;
            err = over ? gci_tree_over_clusters(&poor, "kary:2", &no_costs, &w.s, 3, &t)
                       : gci_tree_make(&poor, "kary:2", 20, 3, &t);
            assert_true(n > 1 || err == GC_ERR_NOMEM);
            assert_true((err == GC_OK) == (t.parent != NULL));
        }
        assert_int_equal(err, GC_OK);
        allocations_left = 0;
        assert_false(gci_tree_is_ordered(&poor, &t));
        gci_tree_drop(&poor, &t);
    }
    drop(&w);
}

/* All in time that grows with the number of ranks. */
static void test_large(void **state)
{
    enum { LARGE = 1000000 };
    static const char *const shapes[] = { "flat", "chain", "binomial", "kary:3" };
    struct timespec a, b;
    (void)state;
    clock_gettime(CLOCK_MONOTONIC, &a);
    for (size_t i = 0; i < GCI_COUNT(shapes); i++) {
        gc_tree t;
        assert_int_equal(gci_tree_make(&env, shapes[i], LARGE, 5, &t), GC_OK);
        assert_true(gci_tree_is_sound(&t));
        assert_false(gci_tree_is_ordered(&env, &t) && i > 0);
        gci_tree_drop(&env, &t);
    }
    clock_gettime(CLOCK_MONOTONIC, &b);
    assert_true(b.tv_sec - a.tv_sec < 10);      /* as n * n it would take an hour */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_shapes), cmocka_unit_test(test_wrong_shapes), cmocka_unit_test(test_sound),
        cmocka_unit_test(test_subtrees), cmocka_unit_test(test_print), cmocka_unit_test(test_build),
        cmocka_unit_test(test_over_clusters), cmocka_unit_test(test_picture), cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_large),
    };
    seed_random();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
