/* test_treemodel.c: trees made for what messages cost: each against its definition, and against what it is for.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many networks of each size it draws.
 */
#include "gridcomm_int.h"
#include "tests/unit/failing_alloc.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { ROUNDS = 1000, RANKS_MAX = 40, SEARCHED = 7, EVEN = 10000 };

static const char *const prims[] = { "prim", "prim-ready", "prim-ahead" };
enum { PRIMS = GCI_COUNT(prims) };

static gci_env env;
static size_t even[RANKS_MAX];
static int rounds(void)
{
    const char *text = getenv("GCT_ROUNDS");
    return text ? atoi(text) : ROUNDS;
}

/* Of a message. Whole numbers, and sums of them, are exact. */
static double ticks(const gc_model *m, int from, int to, size_t bytes)
{
    return (double)gci_model_ticks(m, from, to, bytes);
}

/* ---- networks ---------------------------------------------------------------------------------------------------- */

/* Two decades, from `least` on. */
static double spread(double least)
{
    return least * pow(10, below(20001) / 10000.0);
}

static gci_cost_model *between(gc_model *m, int from, int to)
{
    return &m->between[from * m->classes + to];
}

/* Every pair has a latency and a rate of its own, the same both ways. */
static gc_model *random_network(int n)
{
    gc_model *m;
    int32_t class_of[RANKS_MAX] = { 0 };
    for (int i = 0; i < n; i++)
        class_of[i] = i;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, n, class_of, NULL, NULL, &m), GC_OK);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            between(m, i, k)->latency = between(m, k, i)->latency = spread(1e-4);
            between(m, i, k)->per_byte = between(m, k, i)->per_byte = spread(1e-8);
        }
    return m;
}

/* Some ms between sites, some tens of us within; spread: all a bit different. */
static gc_model *sites(int n, const int site[], bool spread_out)
{
    gc_model *m = random_network(n);
    for (int i = 0; i < n; i++)
        for (int k = 0; k < i; k++) {
            bool far = site[i] != site[k];
            double latency = (far ? 1e-2 : 5e-5) * (1 + (spread_out ? below(5) / 10.0 : 0)), per_byte = far ? 1e-6 : 8e-9;
            *between(m, i, k) = *between(m, k, i) = (gci_cost_model){ .latency = latency, .per_byte = per_byte };
        }
    return m;
}

/* For the first n ranks; the others all get the same. */
static void draw_bytes(size_t bytes[RANKS_MAX], int n)
{
    for (int i = 0; i < RANKS_MAX; i++)
        bytes[i] = i < n ? (size_t)below(2 * EVEN) : EVEN;
}

static gc_tree build(const char *shape, const gc_model *m, const size_t bytes[], int n, int root)
{
    gc_tree t;
    assert_int_equal(gci_tree_make_for(&env, shape, &(gci_tree_costs){ .model = m, .bytes = bytes }, n, root, &t), GC_OK);
    assert_true(gci_tree_is_sound(&t) && t.size == n && t.root == root);
    return t;
}

/* When the last rank of a broadcast has it. */
static double finish(const gc_model *m, const gc_tree *t, size_t bytes)
{
    double at[RANKS_MAX] = { 0 }, last = 0;
    int todo[RANKS_MAX] = { t->root }, end = 1;
    for (int i = 0; i < end; i++) {
        double ready = at[todo[i]];
        last = fmax(last, ready);
        for (int c = t->first_child[todo[i]]; c >= 0; c = t->next_sibling[c]) {
            at[c] = ready + ticks(m, todo[i], c, bytes);
            ready += (double)gci_model_busy_ticks(m, todo[i], c, bytes);
            todo[end++] = c;
        }
    }
    return last;
}

/* ---- Prim, and the best there is --------------------------------------------------------------------------------- */

/* Goes through all trees with an order of children: messages by when they start, so each tree once. Without bounds it does go
 * through all. */
typedef struct search {
    int    n;
    bool   bounded;
    double time[SEARCHED][SEARCHED], busy[SEARCHED][SEARCHED], nearest[SEARCHED], best;
} search;

static void search_on(search *s, unsigned joined, const double ready[], double start, double end)
{
    bool all = joined == (1U << s->n) - 1;
    if (all)
        s->best = fmin(s->best, end);
    for (int j = 0; j < s->n && s->bounded; j++)
        if (!(joined >> j & 1) && start + s->nearest[j] >= s->best)
            return;
    for (int i = 0; i < s->n && !all; i++)
        for (int j = 0; j < s->n && joined >> i & 1 && ready[i] >= start; j++) {
            double next[SEARCHED], there = ready[i] + s->time[i][j];
            if (joined >> j & 1 || (s->bounded && there >= s->best))
                continue;
            memcpy(next, ready, sizeof next);
            next[i] += s->busy[i][j];
            next[j] = there;
            search_on(s, joined | 1U << j, next, ready[i], fmax(end, there));
        }
}

static double best_of_all(const gc_model *m, int root, size_t bytes, bool bounded)
{
    search s = { .n = m->ranks, .bounded = bounded, .best = INFINITY };
    double ready[SEARCHED] = { 0 };
    for (int j = 0; j < s.n; j++) {
        s.nearest[j] = INFINITY;
        for (int i = 0; i < s.n; i++) {
            s.time[i][j] = ticks(m, i, j, bytes);
            s.busy[i][j] = (double)gci_model_busy_ticks(m, i, j, bytes);
            if (i != j)
                s.nearest[j] = fmin(s.nearest[j], s.time[i][j]);
        }
    }
    search_on(&s, 1U << root, ready, 0, 0);
    return s.best;
}

static void test_search(void **state)
{
    (void)state;
    for (int round = 0; round < 100; round++) {
        gc_model *m = random_network(2 + round % 4);
        int root = below(m->ranks);
        assert_true(best_of_all(m, root, EVEN, true) == best_of_all(m, root, EVEN, false));
        gci_model_drop(&env, m);
    }
}

/* Latency and bytes weigh the same on average. */
static void test_prim_is_good(void **state)
{
    (void)state;
    for (int n = 3; n <= SEARCHED; n++) {
        double sum[PRIMS] = { 0 }, worst[PRIMS] = { 0 };
        for (int round = 0; round < rounds(); round++) {
            gc_model *m = random_network(n);
            int root = below(n);
            double best = best_of_all(m, root, EVEN, true);
            for (int i = 0; i < PRIMS; i++) {
                gc_tree t = build(prims[i], m, even, n, root);
                double ratio = finish(m, &t, EVEN) / best;
                assert_true(ratio > 1 - 1e-9);
                sum[i] += ratio / rounds();
                worst[i] = fmax(worst[i], ratio);
                gci_tree_drop(&env, &t);
            }
            gci_model_drop(&env, m);
        }
        for (int i = 0; i < PRIMS; i++)
            print_message("%d networks of %d: %-10s %.3f of the best tree on average, %.2f at worst\n", rounds(), n, prims[i],
                          sum[i], worst[i]);
        assert_true(sum[2] < 1.10 || rounds() < 100);
    }
}

/* Parents by definition, with all edges looked at each time. */
static void prim_parents(const gc_model *m, int n, int root, const size_t bytes[], int edge, int parent[])
{
    double ready[RANKS_MAX] = { 0 };
    bool joined[RANKS_MAX] = { [0] = false };
    joined[root] = true;
    for (int k = 1; k < n; k++) {
        double least = INFINITY;
        int from = 0, to = 0;
        for (int i = 0; i < n; i++)
            for (int j = 0; j < n; j++) {
                double ahead = INFINITY;
                for (int o = 0; o < n; o++)
                    if (!joined[o] && o != j)
                        ahead = fmin(ahead, ticks(m, j, o, bytes[o]));
                double cost = (edge > 0 ? ready[i] : 0) + ticks(m, i, j, bytes[j]) +
                              (edge > 1 && k < n - 1 ? ahead : 0);
                if (joined[i] && !joined[j] && cost < least) {
                    least = cost;
                    from = i;
                    to = j;
                }
            }
        joined[to] = true;
        parent[to] = from;
        ready[to] = ready[from] + ticks(m, from, to, bytes[to]);
        ready[from] += (double)gci_model_busy_ticks(m, from, to, bytes[to]);
    }
}

static void test_prim(void **state)
{
    (void)state;
    for (int round = 0; round < rounds() / 10 + 10; round++) {
        int n = 1 + below(RANKS_MAX / 2), root = below(n), parent[RANKS_MAX];
        gc_model *m = random_network(n);
        size_t bytes[RANKS_MAX];
        draw_bytes(bytes, n);
        for (int edge = 0; edge < PRIMS; edge++) {
            gc_tree t = build(prims[edge], m, bytes, n, root);
            prim_parents(m, n, root, bytes, edge, parent);
            for (int r = 0; r < n; r++)
                assert_int_equal(t.parent[r], r == root ? -1 : parent[r]);
            gci_tree_drop(&env, &t);
        }
        gci_model_drop(&env, m);
    }
}

/* No two siblings are better the other way round, so no order is. */
static void test_prim_order(void **state)
{
    (void)state;
    for (int round = 0; round < rounds() / 10 + 10; round++) {
        int n = 1 + below(RANKS_MAX), root = below(n);
        gc_model *m = random_network(n);
        gc_tree t = build(prims[round % PRIMS], m, even, n, root);
        double time = finish(m, &t, EVEN);
        for (int v = 0; v < n; v++)
            for (int *a = &t.first_child[v]; *a >= 0 && t.next_sibling[*a] >= 0; a = &t.next_sibling[*a]) {
                int first = *a, second = t.next_sibling[first];
                t.next_sibling[first] = t.next_sibling[second];
                t.next_sibling[second] = first;
                *a = second;
                assert_true(finish(m, &t, EVEN) >= time * (1 - 1e-12));
                t.next_sibling[second] = t.next_sibling[first];
                t.next_sibling[first] = second;
                *a = first;
            }
        gci_tree_drop(&env, &t);
        gci_model_drop(&env, m);
    }
}

/* ---- dealing ----------------------------------------------------------------------------------------------------- */

/* A place of the plain tree, and the rank of the dealt one that stands there. */
typedef struct pair { int place, rank; } pair;

typedef struct deal {
    const gc_model *m;
    const size_t   *bytes;
    const gc_tree  *plain, *dealt;
    int             prefer;
    bool            largest, left[RANKS_MAX];
} deal;

/* Of the ranks that are left it is the right one. */
static void check_pick(deal *d, pair p)
{
    int parent = d->dealt->parent[p.rank], n = d->plain->size;
    double time = ticks(d->m, parent, p.rank, d->bytes[p.rank]);
    bool later = false;
    assert_true(d->left[p.rank]);
    for (int i = 1; i < n; i++) {
        int other = (d->plain->root + i) % n;
        double cost = ticks(d->m, parent, other, d->bytes[other]);
        later |= other == p.rank;
        if (d->left[other])
            assert_true(d->prefer * (cost - time) > 0 || (later && d->prefer * (cost - time) == 0));
    }
    d->left[p.rank] = false;
}

/* The pairs of children, in the order in which they are visited. */
static int children_of(const deal *d, pair p, pair out[])
{
    int n = 0, c = d->plain->first_child[p.place], r = d->dealt->first_child[p.rank];
    for (; c >= 0 && r >= 0; c = d->plain->next_sibling[c], r = d->dealt->next_sibling[r])
        out[n++] = (pair){ c, r };
    assert_true(c < 0 && r < 0);
    for (int i = 0; i < n / 2 && !d->largest; i++) {
        pair swap = out[i];
        out[i] = out[n - 1 - i];
        out[n - 1 - i] = swap;
    }
    return n;
}

static void check_deep(deal *d, pair p)
{
    pair child[RANKS_MAX];
    int n = children_of(d, p, child);
    if (p.place != d->plain->root)
        check_pick(d, p);
    for (int i = 0; i < n; i++)
        check_deep(d, child[i]);
}

static void check_wide(deal *d)
{
    pair all[RANKS_MAX] = { { d->plain->root, d->plain->root } };
    for (int i = 0, end = 1; i < end; i++) {
        end += children_of(d, all[i], all + end);
        if (i > 0)
            check_pick(d, all[i]);
    }
}

static void test_dealt(void **state)
{
    static const char *const shapes[] = { "flat", "chain", "binary", "binomial", "kary:3", "knomial:3", "knomial" };
    static const char *const walks[] = { "", "-dfs", "-bfs" }, *const prefers[] = { "", "-nearest", "-farthest" },
                      *const firsts[] = { "", "-smallest", "-largest" };
    (void)state;
    for (int round = 0; round < rounds(); round++) {
        char name[64];
        int n = 1 + below(RANKS_MAX), root = below(n), walk = below(3), prefer = below(3), first = below(3), site[RANKS_MAX];
        const char *shape = shapes[below((int)GCI_COUNT(shapes))];
        size_t bytes[RANKS_MAX];
        for (int r = 0; r < n; r++)
            site[r] = below(3);
        gc_model *m = below(2) ? sites(n, site, below(2)) : random_network(n);
        draw_bytes(bytes, below(2) ? n : 0);
        snprintf(name, sizeof name, "%s%s%s%s", shape, walks[walk], prefers[prefer], firsts[first]);
        gc_tree plain = build(shape, NULL, NULL, n, root), dealt = build(name, m, bytes, n, root);
        deal d = { m, bytes, &plain, &dealt, prefer == 2 ? -1 : prefer, first == 2, { false } };
        for (int r = 0; r < n; r++)
            d.left[r] = r != root;
        if (walk == 2)
            check_wide(&d);
        else
            check_deep(&d, (pair){ root, root });
        gci_tree_drop(&env, &plain);
        gci_tree_drop(&env, &dealt);
        gci_model_drop(&env, m);
    }
}

/* ---- Träff ------------------------------------------------------------------------------------------------------- */

static bool inside(const gc_tree *t, int v, int rank)
{
    while (rank >= 0 && rank != v)
        rank = t->parent[rank];
    return rank == v;
}

static double cost_of(const gc_model *m, int from, int to, size_t bytes)
{
    return m ? ticks(m, from, to, bytes) : (double)bytes + 1;
}

/* The subtree of child c of v, given what all those before it cost and the cheapest rank among these. */
static void check_subtree(const gc_model *m, const gc_tree *t, const size_t bytes[], int v, int c, double *before,
                          double *cheapest, bool last)
{
    double sum = 0, least = INFINITY, most = 0;
    size_t all = 0;
    for (int r = 0; r < t->size; r++)
        if (inside(t, c, r)) {
            double cost = cost_of(m, v, r, bytes[r]);
            sum += cost;
            least = fmin(least, cost);
            most = fmax(most, cost);
            all += bytes[r];
        }
    assert_true(most <= *cheapest);
    assert_true(last || sum > *before);
    assert_true(sum - least <= *before * (1 + 1e-12));
    for (int r = 0; r < t->size; r++)
        if (inside(t, c, r))
            assert_true(cost_of(m, v, c, all) <= cost_of(m, v, r, all));
    *before += sum;
    *cheapest = least;
}

static void test_traeff(void **state)
{
    (void)state;
    for (int round = 0; round < rounds() / 4 + 10; round++) {
        int n = 1 + below(RANKS_MAX), root = below(n);
        gc_model *m = round % 2 ? random_network(n) : NULL;
        size_t bytes[RANKS_MAX];
        draw_bytes(bytes, n);
        gc_tree t = build("traeff", m, bytes, n, root);
        for (int v = 0; v < n; v++) {
            int child[RANKS_MAX], children = 0;
            double before = 0, cheapest = INFINITY;
            for (int c = t.first_child[v]; c >= 0; c = t.next_sibling[c])
                child[children++] = c;
            assert_true(1 << children < 2 * n);         /* as in a binomial tree */
            for (int i = children - 1; i >= 0; i--)
                check_subtree(m, &t, bytes, v, child[i], &before, &cheapest, i == 0);
        }
        gci_tree_drop(&env, &t);
        gci_model_drop(&env, m);
    }
}

/* Of ranks that are all alike it is the binomial tree, but for their names. */
static void test_traeff_of_equals(void **state)
{
    (void)state;
    for (int n = 1; n <= 32; n *= 2) {
        gc_tree a = build("binomial", NULL, NULL, n, n / 3), b = build("traeff", NULL, n > 4 ? even : NULL, n, n / 3);
        const deal d = { .plain = &a, .dealt = &b };
        pair all[RANKS_MAX] = { { n / 3, n / 3 } };
        for (int i = 0, end = 1; i < end; i++)
            end += children_of(&d, all[i], all + end);
        gci_tree_drop(&env, &a);
        gci_tree_drop(&env, &b);
    }
    gc_model *free_of_cost;
    assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, 9, NULL, NULL, NULL, &free_of_cost), GC_OK);
    gc_tree t = build("traeff", free_of_cost, NULL, 9, 4);
    for (int r = 0; r < 9; r++)
        assert_int_equal(t.parent[r], r == 4 ? -1 : 4);
    gci_tree_drop(&env, &t);
    gci_model_drop(&env, free_of_cost);
}

/* ---- two sites, clusters ----------------------------------------------------------------------------------------- */

/* Whatever the root, and however the ranks are dealt out to the sites. */
static void test_two_sites(void **state)
{
    enum { SITE = 15, RANKS = 2 * SITE };
    static const size_t sizes[] = { 0, 1, 1000, 65536 };
    (void)state;
    int most = 0;
    for (int dealt = 0; dealt < 3; dealt++)
        for (size_t s = 0; s < GCI_COUNT(sizes); s++) {
            int site[RANKS_MAX];
            for (int i = 0; i < RANKS; i++)
                site[i] = dealt == 0 ? i / SITE : dealt == 1 ? i % 2 : i * 7 % RANKS / SITE;
            gc_model *m = sites(RANKS, site, true);
            for (int root = 0; root < RANKS; root++) {
                size_t bytes[RANKS_MAX];
                int crossings = 0;
                for (int i = 0; i < RANKS; i++)
                    bytes[i] = sizes[s];
                gc_tree t = build("binomial-dfs-nearest", m, bytes, RANKS, root);
                for (int i = 0; i < RANKS; i++)
                    crossings += i != root && site[i] != site[t.parent[i]];
                most = crossings > most ? crossings : most;
                gci_tree_drop(&env, &t);
            }
            gci_model_drop(&env, m);
        }
    print_message("two sites of %d: %d messages between them at most\n", SITE, most);
    assert_in_range(most, 1, 2);
}

enum { CLUSTER = 8, CLUSTERED = 3 * CLUSTER };

/* Cluster c alone. */
static gc_tree tree_of_cluster(const char *name, const gc_model *m, const size_t bytes[], int c, int top)
{
    gc_model *part = random_network(CLUSTER);
    size_t part_bytes[CLUSTER];
    for (int i = 0; i < CLUSTER; i++) {
        part_bytes[i] = bytes[3 * i + c];
        for (int k = 0; k < CLUSTER; k++)
            *between(part, i, k) = m->between[(3 * i + c) * CLUSTERED + 3 * k + c];
    }
    gc_tree t = build(name, part, part_bytes, CLUSTER, top);
    gci_model_drop(&env, part);
    return t;
}

/* Within each cluster the tree of its ranks, between them the root's own messages. */
static void test_over_clusters(void **state)
{
    static const char *const names[] = { "binomial-dfs-nearest", "prim-ahead", "traeff", "binomial-bfs" };
    static const char *const path[] = { "a", "b", "c" };
    const char *paths[CLUSTERED];
    int hosts[CLUSTERED], site[CLUSTERED];
    size_t bytes[RANKS_MAX];
    gci_topo topo;
    gci_clusters clusters;
    (void)state;
    for (int r = 0; r < CLUSTERED; r++) {
        hosts[r] = r;
        site[r] = r % 3;
        paths[r] = path[site[r]];
    }
    gc_model *m = random_network(CLUSTERED);
    draw_bytes(bytes, CLUSTERED);
    assert_int_equal(gci_topo_make(&env, CLUSTERED, paths, hosts, &topo), GC_OK);
    assert_int_equal(gci_clusters_make(&env, &topo, &clusters), GC_OK);
    for (size_t i = 0; i < GCI_COUNT(names); i++) {
        gc_tree t;
        assert_int_equal(gci_tree_over_clusters(&env, names[i], &(gci_tree_costs){ .model = m, .bytes = bytes }, &clusters, 4, &t), GC_OK);
        assert_true(gci_tree_is_sound(&t));
        for (int c = 0; c < 3; c++) {
            int top = c == 1 ? 1 : 0;
            gc_tree inner = tree_of_cluster(names[i], m, bytes, c, top);
            for (int k = 0; k < CLUSTER; k++)
                assert_int_equal(t.parent[3 * k + c], k != top ? 3 * inner.parent[k] + c : c == 1 ? -1 : 4);
            gci_tree_drop(&env, &inner);
        }
        gci_tree_drop(&env, &t);
    }
    gci_clusters_free(&env, &clusters);
    gci_topo_free(&env, &topo);
    gci_model_drop(&env, m);
}

/* ---- bounds ------------------------------------------------------------------------------------------------------ */

static void test_without_a_model(void **state)
{
    static const char *const need[] = { "prim", "prim-ready", "prim-ahead", "flat-nearest", "binomial-bfs-farthest" };
    static const char *const fine[] = { "traeff", "kary:3-bfs", "knomial-largest", "flat-smallest", "chain-dfs" };
    gc_tree *t;
    gc_model *m = random_network(5);
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(need); i++) {
        assert_int_equal(gc_tree_build(&t, need[i], 5, 2, NULL, even), GC_ERR_ARG);
        assert_null(t);
        assert_false(gci_tree_is_shape(need[i]));
        assert_int_equal(gc_tree_build(&t, need[i], 5, 2, m, NULL), GC_OK);
        gc_tree_free(t);
        assert_int_equal(gc_tree_build(&t, need[i], 6, 2, m, even), GC_ERR_ARG);
        assert_int_equal(gc_tree_build(&t, need[i], 4, 2, m, even), GC_ERR_ARG);
    }
    for (size_t i = 0; i < GCI_COUNT(fine); i++) {
        assert_int_equal(gc_tree_build(&t, fine[i], 5, 2, NULL, NULL), GC_OK);
        assert_int_equal(gci_tree_is_shape(fine[i]), i > 2);
        gc_tree_free(t);
    }
    gci_model_drop(&env, m);
}

static void test_no_memory(void **state)
{
    static const char *const names[] = { "binomial-nearest", "prim", "prim-ahead", "traeff" };
    gci_env poor = { .alloc = failing_alloc };
    gc_model *m = random_network(20);
    (void)state;
    for (size_t i = 0; i < GCI_COUNT(names); i++) {
        gc_tree t;
        int err = GC_ERR_NOMEM;
        for (int n = 0; err == GC_ERR_NOMEM; n++) {
            assert_true(n < 10);
            allocations_left = n;
            err = gci_tree_make_for(&poor, names[i], &(gci_tree_costs){ .model = m, .bytes = even }, 20, 3, &t);
            assert_true(n > 1 || err == GC_ERR_NOMEM);
            assert_true((err == GC_OK) == (t.parent != NULL));
        }
        assert_int_equal(err, GC_OK);
        gci_tree_drop(&poor, &t);
    }
    gci_model_drop(&env, m);
}

/* 1,000 ranks in 20 clusters. */
static void test_large(void **state)
{
    enum { LARGE = 1000, CLUSTERS = 20 };
    static const char *const names[] = { "binomial-dfs-nearest", "binomial-bfs-nearest", "prim", "prim-ready", "prim-ahead",
                                         "traeff" };
    int32_t class_of[LARGE];
    gc_model *m;
    (void)state;
    for (int dealt = 0; dealt < 2; dealt++) {
        for (int r = 0; r < LARGE; r++)
            class_of[r] = dealt ? r % CLUSTERS : r / (LARGE / CLUSTERS);
        assert_int_equal(gci_model_make(&env, GCI_HOCKNEY, LARGE, class_of, NULL, NULL, &m), GC_OK);
        for (int a = 0; a < CLUSTERS; a++)
            for (int b = 0; b < CLUSTERS; b++)
                *between(m, a, b) = (gci_cost_model){ .latency = a == b ? 5e-5 : spread(1e-3),
                                                      .per_byte = a == b ? 8e-9 : spread(1e-8) };
        for (size_t i = 0; i < GCI_COUNT(names); i++) {
            clock_t start = clock();
            gc_tree t = build(names[i], m, NULL, LARGE, 77);
            double seconds = (double)(clock() - start) / CLOCKS_PER_SEC;
            print_message("%d ranks, %d clusters: %-20s %.0f ms\n", LARGE, CLUSTERS, names[i], seconds * 1e3);
            assert_true(seconds < 10);
            gci_tree_drop(&env, &t);
        }
        gci_model_drop(&env, m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_search), cmocka_unit_test(test_prim_is_good), cmocka_unit_test(test_prim),
        cmocka_unit_test(test_prim_order), cmocka_unit_test(test_dealt), cmocka_unit_test(test_traeff),
        cmocka_unit_test(test_traeff_of_equals), cmocka_unit_test(test_two_sites), cmocka_unit_test(test_over_clusters),
        cmocka_unit_test(test_without_a_model), cmocka_unit_test(test_no_memory), cmocka_unit_test(test_large),
    };
    seed_random();
    for (int i = 0; i < RANKS_MAX; i++)
        even[i] = EVEN;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
