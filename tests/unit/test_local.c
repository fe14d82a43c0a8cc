/* test_local.c: the tree inside a cluster: a tree, of runs of places, that enters every rack and host once.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random part; GCT_ROUNDS says how many clusters it draws.
 */
#include "gridcomm_int.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROUNDS = 300, MOST = 120, FLAT = 32, RACKS = 4, HOSTS = 5 };

static gci_env env;
/* Members of one cluster, in places; the tree around `top`. */
typedef struct crowd {
    gci_topo topo;
    int      n, first;          /* places before the cluster's own: others' */
    int32_t  member[MOST], cut[MOST], natural[MOST];      /* natural: without groups */
    int      parent[MOST];
} crowd;

static void make(crowd *c, int n, bool deep, bool in_order, size_t bytes)
{
    static char name[RACKS][16];
    const char *path[MOST];
    int host[MOST];
    for (int k = 0; k < RACKS; k++)
        snprintf(name[k], sizeof name[k], "s/r%d", k);
    for (int i = 0; i < n; i++) {
        int rack = below(RACKS);
        path[i] = deep ? name[rack] : "s";
        host[i] = deep ? rack * HOSTS + below(HOSTS) : i;
    }
    c->n = n;
    c->first = below(n);
    assert_int_equal(gci_topo_make(&env, n, path, host, &c->topo), GC_OK);
    for (int i = 0; i < n; i++)
        c->member[i] = in_order ? c->topo.order[i] : i;
    gci_local_cuts(&c->topo, c->member, c->first, n, c->natural);
    memcpy(c->cut, c->natural, sizeof c->cut);
    gci_local_groups(c->first, n, bytes, c->cut);
}

typedef void tree_of(const int32_t *cut, int first, int end, int place, int top, gci_local_node *);

/* Every place's node agrees with its parent's; returns the most children that any has. */
static int check_tree(crowd *c, int top, tree_of *node_at, const int32_t *cut)
{
    gci_places child[MOST + 1], sisters[MOST + 1];
    int most = 0;
    for (int place = c->first; place < c->n; place++) {
        gci_local_node node = { .child = child }, above = { .child = sisters };
        node_at(cut, c->first, c->n, place, top, &node);
        c->parent[place] = node.parent;
        most = node.children > most ? node.children : most;
        int at = node.first;
        for (int i = 0; i <= node.children; i++) {      /* children and itself tile the subtree */
            if (i == node.before)
                assert_int_equal(at++, place);
            if (i == node.children)
                break;
            assert_int_equal(child[i].first, at);
            assert_true(child[i].end > at);
            at = child[i].end;
        }
        assert_int_equal(at, node.end);
        if (place == top) {
            assert_int_equal(node.parent, -1);
            assert_true(node.first == c->first && node.end == c->n);
            continue;
        }
        assert_int_equal(node.first, place);
        node_at(cut, c->first, c->n, node.parent, top, &above);
        bool known = false;
        for (int i = 0; i < above.children; i++)
            known |= sisters[i].first == place && sisters[i].end == node.end;
        assert_true(known);
    }
    return most;
}

/* Edges that enter a cluster of the topology from outside: one, or none if the top is in it. */
static void check_entries(const crowd *c, int top)
{
    for (int k = 0; k < c->topo.clusters; k++) {
        int entries = 0, members = 0;
        for (int place = c->first; place < c->n; place++) {
            if (!gci_topo_inside(&c->topo, k, c->member[place]))
                continue;
            members++;
            entries += place != top && !gci_topo_inside(&c->topo, k, c->member[c->parent[place]]);
        }
        assert_int_equal(entries, members > 0 && !gci_topo_inside(&c->topo, k, c->member[top]));
    }
}

/* No rank sends a stream to other hosts more than four times: on two levels, to either side. */
static void check_streams(const crowd *c)
{
    for (int from = c->first; from < c->n; from++) {
        int away = 0;
        for (int to = c->first; to < c->n; to++)
            away += c->parent[to] == from && c->topo.of[c->member[to]] != c->topo.of[c->member[from]];
        assert_in_range(away, 0, 4);
    }
}

/* The chain from `top`: every host but the last sends to one other, and has as many ranks behind it as it says. */
static void check_chain(crowd *c, int top)
{
    gci_places child[MOST + 1];
    int behind[MOST], last = -1;        /* [place] ranks that get it from there */
    for (int place = c->first; place < c->n; place++)
        behind[place] = 0;
    for (int place = c->first; place < c->n; place++) {
        gci_local_node node = { .child = child };
        gci_local_chain_at(c->natural, c->first, c->n, place, top, &node);
        c->parent[place] = node.parent;
        int hops = 0;
        for (int at = node.parent; at >= 0 && hops < MOST; at = c->parent[at], hops++) {
            gci_local_chain_at(c->natural, c->first, c->n, at, top, &node);
            c->parent[at] = node.parent;
            behind[at]++;
        }
        assert_true(hops < MOST);       /* it comes to the top */
        assert_int_equal(c->parent[place] < 0, place == top);
    }
    for (int place = c->first; place < c->n; place++) {
        gci_local_node node = { .child = child };
        gci_local_chain_at(c->natural, c->first, c->n, place, top, &node);
        int away = 0, told = 0, host = c->topo.of[c->member[place]];
        for (int i = 0; i < node.children; i++) {
            assert_int_equal(c->parent[child[i].first], place);
            told += child[i].end - child[i].first;
            away += c->topo.of[c->member[child[i].first]] != host;
        }
        assert_int_equal(told, behind[place]);
        assert_in_range(away, 0, 1);
        bool enters = place == top || c->topo.of[c->member[node.parent]] != host;
        if (enters && away == 0) {
            assert_int_equal(last, -1);
            last = place;
        }
    }
    assert_int_equal(last, gci_local_chain_end(c->natural, c->first, c->n, top));
}

static void test_random_clusters(void **state)
{
    (void)state;
    const char *rounds = getenv("GCT_ROUNDS");
    for (int i = 0; i < (rounds ? atoi(rounds) : ROUNDS); i++) {
        crowd c;
        bool in_order = below(4) > 0;
        make(&c, 1 + below(MOST), below(3) > 0, in_order, below(2) ? 0 : 1 + (size_t)below(20000));
        for (int top = c.first; top < c.n; top += 1 + below(10)) {
            check_tree(&c, top, gci_local_node_at, c.cut);
            if (in_order)
                check_entries(&c, top);
            check_tree(&c, top, gci_local_stream_at, c.natural);
            if (in_order)
                check_entries(&c, top);
            check_streams(&c);
            if (in_order) {
                check_chain(&c, top);
                check_entries(&c, top);
            }
        }
        gci_topo_free(&env, &c.topo);
    }
}

/* Equals side by side, each with a vector: as many groups as there are in a group, about. */
static void test_groups(void **state)
{
    (void)state;
    crowd c;
    assert_int_equal(gci_local_group(FLAT, 0), 1);
    assert_int_equal(gci_local_group(FLAT + 1, 0), 6);
    assert_int_equal(gci_local_group(4, 4096), 1);
    assert_int_equal(gci_local_group(4, 4097), 2);
    for (int n = FLAT + 8; n <= MOST; n++) {
        make(&c, n, false, true, 0);
        int size = n - c.first, group = gci_local_group(size, 0);
        int most = check_tree(&c, c.first, gci_local_node_at, c.cut);
        if (size <= FLAT)
            assert_int_equal(most, size - 1);
        else
            assert_in_range(most, group - 1, group - 1 + (size + group - 1) / group);
        gci_topo_free(&env, &c.topo);
    }
}

/* Order that says nothing of the network: no worse than flat, or groups. */
static void test_flat(void **state)
{
    (void)state;
    crowd c;
    make(&c, 20, true, true, 0);
    memset(c.cut, 0, sizeof c.cut);
    assert_int_equal(check_tree(&c, c.n - 1, gci_local_node_at, c.cut), c.n - c.first - 1);
    gci_topo_free(&env, &c.topo);
}

int main(void)
{
    seed_random();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_random_clusters),
        cmocka_unit_test(test_groups),
        cmocka_unit_test(test_flat),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
