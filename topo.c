/* topo.c: clusters as a tree (pure).
 * SPDX-License-Identifier: MIT
 *
 * A node's place in the network is a path of names, from the coarsest part to the finest ("site/rack"), and the host that
 * it runs on. All nodes are sorted by path, name by name, then by host, then by rank; in that order every prefix of a path
 * and every host is one block, and the tree is read off in one pass: where a node differs from the one before it, new
 * clusters begin.
 *
 *     order     2 0 4 1 3 5       paths: 2 "a"; 0 and 4 "a/x", on one host; 1, 3 and 5 "b", 3 and 5 on one host
 *     depth 0   0---------0       the whole job
 *     depth 1   1---1 5---5       1: a    5: b
 *     depth 2   2 3-3 6 7-7       2: the host of 2    3: a/x    6, 7: hosts
 *     depth 3     4-4             4: the host of 0 and 4
 *
 * Numbers are given in the order of beginning, so a parent's is smaller than its children's, and the common cluster of two
 * nodes is found by stepping up from whichever has the larger number.
 *
 * Empty names count for nothing: "/a//b/" is "a/b". All is one block of memory. O(n log n) comparisons of paths; texts that
 * are shared (as those of a gci_table are) compare in no time.
 */
#include "gridcomm_int.h"

/* The next name of a path: where it begins; *bytes 0: there is none. */
static const char *topo_name(const char *path, size_t *bytes)
{
    path += strspn(path, "/");
    *bytes = strcspn(path, "/");
    return path;
}

/* Compares paths name by name. *common: how many names they begin with alike. */
static int topo_compare(const char *a, const char *b, int32_t *common)
{
    *common = 0;
    for (;;) {
        size_t na, nb;
        a = topo_name(a, &na);
        b = topo_name(b, &nb);
        int differ = memcmp(a, b, gci_min(na, nb));
        if (differ || na != nb)
            return differ ? differ : na < nb ? -1 : 1;
        if (na == 0)
            return 0;
        a += na;
        b += nb;
        ++*common;
    }
}

static int32_t topo_names(const char *path)
{
    int32_t names = 0;
    size_t bytes;
    for (path = topo_name(path, &bytes); bytes; path = topo_name(path + bytes, &bytes))
        names++;
    return names;
}

typedef struct topo_input { const char *const *paths; const int *hosts; } topo_input;

static const char *topo_path(const topo_input *in, int32_t node)
{
    return in->paths && in->paths[node] ? in->paths[node] : "";
}

static int topo_host(const topo_input *in, int32_t node)
{
    return in->hosts ? in->hosts[node] : node;
}

static bool topo_before(const topo_input *in, int32_t a, int32_t b)
{
    const char *path_a = topo_path(in, a), *path_b = topo_path(in, b);
    int32_t common;
    int differ = path_a == path_b ? 0 : topo_compare(path_a, path_b, &common);
    if (differ == 0)
        differ = (topo_host(in, a) > topo_host(in, b)) - (topo_host(in, a) < topo_host(in, b));
    return differ ? differ < 0 : a < b;
}

/* Merge sort from the bottom up, between two arrays; returns the one that holds the result. */
static int32_t *topo_sort(const topo_input *in, int32_t n, int32_t *from, int32_t *to)
{
    for (int32_t i = 0; i < n; i++)
        from[i] = i;
    for (int64_t width = 1; width < n; width *= 2) {
        for (int64_t low = 0; low < n; low += 2 * width) {
            int64_t middle = low + width < n ? low + width : n, high = middle + width < n ? middle + width : n;
            int64_t left = low, right = middle;
            for (int64_t at = low; at < high; at++)
                to[at] = right == high || (left < middle && topo_before(in, from[left], from[right])) ? from[left++]
                                                                                                      : from[right++];
        }
        int32_t *swap = from;
        from = to;
        to = swap;
    }
    return from;
}

/* How many clusters begin at place i of the order; *level: the depth of the first of them. */
static int32_t topo_begins(const topo_input *in, const int32_t *order, int32_t i, int32_t *level)
{
    const char *path = topo_path(in, order[i]);
    int32_t common = 0, names = topo_names(path);
    if (i > 0) {
        const char *before = topo_path(in, order[i - 1]);
        int differ = topo_compare(before, path, &common);
        if (differ == 0 && topo_host(in, order[i - 1]) == topo_host(in, order[i]))
            common++;               /* the host too */
    }
    *level = common + 1;
    return names + 1 - common;
}

/* Fills in the tree, from the order. open: the clusters on the way from the root to the present host. */
static void topo_fill(gci_topo *t, const topo_input *in, int32_t *open)
{
    int32_t made = 1;
    t->parent[0] = -1;
    t->size[0] = t->nodes;
    open[0] = 0;
    for (int32_t i = 0; i < t->nodes; i++) {
        int32_t level, begins = topo_begins(in, t->order, i, &level), host = level - 1 + begins;
        for (int32_t depth = level; depth <= host; depth++) {
            t->parent[made] = open[depth - 1];
            t->depth[made] = depth;
            t->first[made] = i;
            open[depth] = made++;
        }
        for (int32_t depth = 1; depth <= host; depth++)
            t->size[open[depth]]++;
        t->of[t->order[i]] = open[host];
        t->place[t->order[i]] = i;
    }
}

GCI int gci_topo_make(gci_env *env, int nodes, const char *const paths[], const int hosts[], gci_topo *t)
{
    const topo_input in = { paths, hosts };
    size_t n = nodes > 0 ? (size_t)nodes : 0, clusters = 1;
    int32_t deepest = 0, level, *sorted, *scratch = gci_alloc(env, (2 * n + 1) * sizeof *scratch), *open = NULL, *block = NULL;
    *t = (gci_topo){ 0 };
    if (!scratch)
        return GC_ERR_NOMEM;
    sorted = topo_sort(&in, (int32_t)n, scratch, scratch + n);
    for (int32_t i = 0; i < (int32_t)n; i++) {
        int32_t begins = topo_begins(&in, sorted, i, &level);
        clusters += (size_t)begins;
        deepest = level + begins > deepest ? level + begins : deepest;
    }
    if (clusters <= INT32_MAX) {
        open = gci_alloc(env, ((size_t)deepest + 1) * sizeof *open);
        block = gci_alloc(env, (4 * clusters + 3 * n) * sizeof *block);
    }
    if (open && block) {
        *t = (gci_topo){ .nodes = (int)n, .clusters = (int)clusters, .parent = block, .depth = block + clusters,
                         .first = block + 2 * clusters, .size = block + 3 * clusters, .of = block + 4 * clusters,
                         .order = block + 4 * clusters + n, .place = block + 4 * clusters + 2 * n };
        if (n > 0)
            memcpy(t->order, sorted, n * sizeof *sorted);
        topo_fill(t, &in, open);
    } else
        gci_free(env, block);
    gci_free(env, open);
    gci_free(env, scratch);
    return t->parent ? GC_OK : GC_ERR_NOMEM;
}

GCI void gci_topo_free(gci_env *env, gci_topo *t)
{
    gci_free(env, t->parent);
    *t = (gci_topo){ 0 };
}

GCI int gci_topo_common(const gci_topo *t, int a, int b)
{
    int32_t x = t->of[a], y = t->of[b];
    while (x != y) {
        if (x > y)
            x = t->parent[x];
        else
            y = t->parent[y];
    }
    return x;
}

GCI bool gci_topo_inside(const gci_topo *t, int cluster, int node)
{
    return t->place[node] >= t->first[cluster] && t->place[node] - t->first[cluster] < t->size[cluster];
}

/* ---- clusters ------------------------------------------------------------------------------------------------------- */

/* The named cluster of a node at the given depth; 0: it has no name there. */
static int32_t topo_named(const gci_topo *t, int32_t node, int32_t depth)
{
    int32_t c = t->parent[t->of[node]];     /* of[] is its host, the last but one bears its last name */
    while (t->depth[c] > depth)
        c = t->parent[c];
    return t->depth[c] == depth ? c : 0;
}

/* The depth of the first level of names that parts the nodes; 0: none does. */
static int32_t topo_parting(const gci_topo *t)
{
    for (int32_t depth = 1;; depth++) {
        int32_t first = topo_named(t, t->order[0], depth), differ = 0;
        for (int32_t i = 1; i < t->nodes && !differ; i++)
            differ = topo_named(t, t->order[i], depth) != first;
        if (differ || first == 0)
            return differ ? depth : 0;
    }
}

/* Of a node, when the named clusters of so many names count; or, TOPO_HOSTS, its host. */
enum { TOPO_HOSTS = -1 };

static int32_t topo_cluster(const gci_topo *t, int32_t node, int32_t depth)
{
    return depth == TOPO_HOSTS ? t->of[node] : depth == 0 ? 0 : topo_named(t, node, depth);
}

static int topo_clusters(gci_env *env, const gci_topo *t, int32_t depth, gci_clusters *s)
{
    size_t n = (size_t)t->nodes;
    int32_t *number = gci_alloc(env, (size_t)t->clusters * sizeof *number), *block = gci_alloc(env, (3 * n + 1) * sizeof *block);
    *s = (gci_clusters){ 0 };
    if (!number || !block) {
        gci_free(env, number);
        gci_free(env, block);
        return GC_ERR_NOMEM;
    }
    *s = (gci_clusters){ .of = block, .member = block + n, .first = block + 2 * n, .runs = true, .topo = t };
    for (int32_t i = 0; i < t->nodes; i++) {            /* number[]: + 1, of the cluster that c is */
        int32_t c = topo_cluster(t, i, depth);
        if (!number[c])
            number[c] = ++s->clusters;
        s->of[i] = number[c] - 1;
        s->first[s->of[i] + 1]++;
        s->runs &= i == 0 || s->of[i] == s->of[i - 1] || s->of[i] == s->clusters - 1;
        s->hosts += i == 0 || t->of[t->order[i]] != t->of[t->order[i - 1]];
    }
    for (int32_t k = 0; k < s->clusters; k++)
        s->first[k + 1] += s->first[k];
    for (int32_t i = t->nodes; i-- > 0;)
        s->member[--s->first[s->of[i] + 1]] = i;
    for (int32_t k = 0; k < s->clusters; k++)              /* each stands where its own begins now: one to the left again */
        s->first[k] = s->first[k + 1];
    s->first[s->clusters] = t->nodes;
    for (int32_t k = 0; k < s->clusters; k++) {
        int32_t size = s->first[k + 1] - s->first[k];
        s->second = gci_max32(s->second, size < s->longest ? size : s->longest);
        s->longest = gci_max32(s->longest, size);
    }
    gci_free(env, number);
    return GC_OK;
}

GCI int gci_clusters_make(gci_env *env, const gci_topo *t, gci_clusters *s)
{
    int err = topo_clusters(env, t, t->nodes > 0 ? topo_parting(t) : 0, s);
    if (err < 0 || s->clusters != 1 || s->hosts < 2 || s->hosts == t->nodes)
        return err;
    s->by_host = gci_alloc(env, sizeof *s->by_host);
    err = s->by_host ? topo_clusters(env, t, TOPO_HOSTS, s->by_host) : GC_ERR_NOMEM;
    if (err < 0)
        gci_clusters_free(env, s);
    return err;
}

GCI void gci_clusters_free(gci_env *env, gci_clusters *s)
{
    gci_free(env, s->of);
    if (s->by_host)
        gci_free(env, s->by_host->of);
    gci_free(env, s->by_host);
    *s = (gci_clusters){ 0 };
}
