/* tree.c: rooted trees (pure).
 * SPDX-License-Identifier: MIT
 *
 * A tree says who talks to whom; what is said along it is treecoll.c's affair (papers/004, 6.2.3). The shapes, of 8 ranks:
 *
 *   binomial = knomial:2    0          kary:2 = binary    0       The subtree of every rank is a run: of n ranks, the
 *                        / / \                           / \      first, and below it k-ary as many runs as it has
 *                       4 2   1                         4   1     children, as equal as can be; k-nomial runs of
 *                      /| |                            /|   |\    1, ..., 1, k, ..., k, k^2, ... ranks, each k - 1
 *                     6 5 3                           6 5   3 2   times, the last one cut off. So a gather needs one
 *                     |                               |           place per rank, and a reduction keeps rank order.
 *                     7                               7
 *   chain = kary:1, flat = kary:infinite. Both have their place in the field; the others lie between the two.
 *
 * Children are drawn, and sent to, the largest subtree first, which is also from the highest rank down; what is collected
 * comes the other way round. In a tree with another root position i is rank (i + root) % size, unless the name says how ranks
 * are dealt out to positions, or is not of a shape at all (treemodel.c).
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { TREE_RADIX = 8 };        /* of kary and knomial without a number: two levels for 64 ranks */

enum tree_kind { TREE_RUNS, TREE_TRAEFF, TREE_PRIM, TREE_PRIM_READY, TREE_PRIM_AHEAD };     /* the latter as gci_tree_edge */
typedef struct tree_shape { enum tree_kind kind; bool nomial; int32_t radix; gci_tree_deal deal; } tree_shape;

/* How ranks are dealt out: of each two words one at most, in this order. */
static bool tree_read_deal(const char *text, gci_tree_deal *deal)
{
    static const char *const words[][2] = { { "-dfs", "-bfs" }, { "-nearest", "-farthest" }, { "-smallest", "-largest" } };
    bool said[GCI_COUNT(words)][2] = { { false } };
    for (size_t i = 0; i < GCI_COUNT(words); i++)
        for (size_t k = 0; k < 2 && !said[i][0]; k++) {
            said[i][k] = strncmp(text, words[i][k], strlen(words[i][k])) == 0;
            text += said[i][k] ? strlen(words[i][k]) : 0;
        }
    *deal = (gci_tree_deal){ said[1][0] - said[1][1], said[0][1], said[2][1] };
    return !*text;
}

static bool tree_read_shape(const char *text, tree_shape *shape)
{
    static const struct { const char *name; bool numbered; enum tree_kind kind; bool nomial; int32_t radix; } known[] = {
        { "flat", false, TREE_RUNS, false, INT32_MAX }, { "chain", false, TREE_RUNS, false, 1 },
        { "binary", false, TREE_RUNS, false, 2 },       { "binomial", false, TREE_RUNS, true, 2 },
        { "kary", true, TREE_RUNS, false, TREE_RADIX }, { "knomial", true, TREE_RUNS, true, TREE_RADIX },
        { "prim", false, TREE_PRIM, false, 0 },         { "prim-ready", false, TREE_PRIM_READY, false, 0 },
        { "prim-ahead", false, TREE_PRIM_AHEAD, false, 0 }, { "traeff", false, TREE_TRAEFF, false, 0 },
    };
    for (size_t i = 0; i < GCI_COUNT(known); i++) {
        size_t bytes = known[i].kind == TREE_RUNS ? strcspn(text, ":-") : strlen(text);
        if (strlen(known[i].name) != bytes || memcmp(known[i].name, text, bytes) != 0)
            continue;
        *shape = (tree_shape){ known[i].kind, known[i].nomial, known[i].radix, { 0 } };
        text += bytes;
        if (*text == ':') {
            size_t digits = strspn(text + 1, "0123456789");
            if (!known[i].numbered || digits == 0 || digits > 9)
                return false;
            shape->radix = (int32_t)strtol(text + 1, NULL, 10);
            text += 1 + digits;
            if (shape->radix < (shape->nomial ? 2 : 1))
                return false;
        }
        return shape->kind == TREE_RUNS ? tree_read_deal(text, &shape->deal) : !*text;
    }
    return false;
}

/* Are its subtrees runs of positions and positions ranks? */
static bool tree_is_plain(const tree_shape *shape)
{
    return shape->kind == TREE_RUNS && shape->deal.prefer == 0 && !shape->deal.breadth && !shape->deal.largest;
}

static int tree_alloc(gci_env *env, int size, gc_tree *t)
{
    size_t n = (size_t)size;
    int *block = gci_alloc(env, 3 * n * sizeof *block);
    *t = (gc_tree){ 0 };
    if (!block)
        return GC_ERR_NOMEM;
    *t = (gc_tree){ size, -1, block, block + n, block + 2 * n };
    for (size_t i = 0; i < 3 * n; i++)
        block[i] = -1;
    return GC_OK;
}

GCI void gci_tree_drop(gci_env *env, gc_tree *t)
{
    gci_free(env, t->parent);
    *t = (gc_tree){ 0 };
}

GCI bool gci_tree_is_shape(const char *text)
{
    tree_shape shape;
    return tree_read_shape(text, &shape) && tree_is_plain(&shape);
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* Makes position `child` the first child of position v, with a run of so many below it. */
static void tree_give(gc_tree *t, int32_t *span, int64_t v, int64_t child, int64_t run)
{
    int parent = (int)((v + t->root) % t->size), rank = (int)((child + t->root) % t->size);
    t->parent[rank] = parent;
    t->next_sibling[rank] = t->first_child[parent];
    t->first_child[parent] = rank;
    span[child] = (int32_t)run;
}

static void tree_fill(gc_tree *t, tree_shape shape, int32_t *span)
{
    span[0] = t->size;
    for (int64_t v = 0; v < t->size; v++) {         /* parents come before their children */
        int64_t rest = span[v] - 1, first = 1, parts = (int64_t)gci_min((size_t)rest, (size_t)shape.radix);
        if (shape.nomial)
            for (int64_t place = 1; place <= rest; place *= shape.radix)
                for (int64_t digit = 1; digit < shape.radix && digit * place <= rest; digit++)
                    tree_give(t, span, v, v + digit * place,
                              (int64_t)gci_min((size_t)place, (size_t)(rest + 1 - digit * place)));
        else
            for (int64_t i = 0; i < parts; i++) {
                int64_t run = rest / parts + (i >= parts - rest % parts);
                tree_give(t, span, v, v + first, run);
                first += run;
            }
    }
}

static int tree_runs(gci_env *env, const tree_shape *shape, const gci_tree_costs *costs, gc_tree *t)
{
    int32_t *span = gci_alloc(env, (size_t)t->size * sizeof *span);
    if (!span)
        return GC_ERR_NOMEM;
    tree_fill(t, *shape, span);
    gci_free(env, span);
    return tree_is_plain(shape) ? GC_OK : gci_tree_deal_out(env, costs, shape->deal, t);
}

GCI int gci_tree_make_for(gci_env *env, const char *text, const gci_tree_costs *costs, int size, int root, gc_tree *t)
{
    tree_shape shape;
    *t = (gc_tree){ 0 };
    if (!tree_read_shape(text, &shape) || size < 1 || root < 0 || root >= size)
        return GC_ERR_ARG;
    if (!costs->model && (shape.kind >= TREE_PRIM || shape.deal.prefer != 0))
        return GC_ERR_ARG;
    int err = tree_alloc(env, size, t);
    if (err < 0)
        return err;
    t->root = root;
    if (shape.kind == TREE_RUNS)
        err = tree_runs(env, &shape, costs, t);
    else if (shape.kind == TREE_TRAEFF)
        err = gci_tree_traeff(env, costs, t);
    else
        err = gci_tree_prim(env, costs, (enum gci_tree_edge)(shape.kind - TREE_PRIM), t);
    if (err < 0)
        gci_tree_drop(env, t);
    return err;
}

GCI int gci_tree_make(gci_env *env, const char *shape, int size, int root, gc_tree *t)
{
    return gci_tree_make_for(env, shape, &(gci_tree_costs){ 0 }, size, root, t);
}

/* ---- over clusters ----------------------------------------------------------------------------------------------- */

/* The parts of a cluster are the clusters right below it, those of a host its ranks. A part is spoken for by its coordinator:
 * the root, if it is inside, else its lowest rank. Part r < nodes is the rank r, nodes + c the cluster c. */
typedef struct tree_parts {
    const gci_clusters *s;
    const gci_tree_costs *costs;
    gc_tree *t;
    int32_t *lowest;            /* [topo clusters] rank in it; -1: not yet seen */
    int32_t *tail;              /* [topo clusters] its parts, by their lowest rank, as a ring: the last one */
    int32_t *next;              /* [nodes + topo clusters] in that ring */
    int32_t *last;              /* [nodes] child of each rank in the tree */
    int32_t *rank;              /* [nodes] the coordinators that are to be joined */
} tree_parts;

static void tree_add_part(tree_parts *p, int32_t cluster, int32_t part)
{
    int32_t tail = p->tail[cluster];
    p->next[part] = tail < 0 ? part : p->next[tail];
    if (tail >= 0)
        p->next[tail] = part;
    p->tail[cluster] = part;
}

static void tree_find_parts(tree_parts *p)
{
    const gci_topo *topo = p->s->topo;
    for (int32_t c = 0; c < topo->clusters; c++)
        p->lowest[c] = p->tail[c] = -1;
    for (int32_t rank = 0; rank < topo->nodes; rank++) {
        p->last[rank] = -1;
        tree_add_part(p, topo->of[rank], rank);
        for (int32_t c = topo->of[rank]; c >= 0 && p->lowest[c] < 0; c = topo->parent[c]) {
            p->lowest[c] = rank;
            if (c > 0)
                tree_add_part(p, topo->parent[c], topo->nodes + c);
        }
    }
}

/* Joins the first n of p->rank, by the shape, below the at-th of them; after the children that they have already. */
static int tree_join(gci_env *env, tree_parts *p, const char *shape, int n, int at)
{
    gc_tree joined;
    gci_tree_costs costs = *p->costs;
    costs.rank = p->rank;
    int err = n > 1 ? gci_tree_make_for(env, shape, &costs, n, at, &joined) : GC_OK;
    if (n < 2 || err < 0)
        return err;
    for (int v = 0; v < n; v++)
        for (int c = joined.first_child[v]; c >= 0; c = joined.next_sibling[c]) {
            int32_t parent = p->rank[v], child = p->rank[c], *last = &p->last[parent];
            p->t->parent[child] = parent;
            *(*last < 0 ? &p->t->first_child[parent] : &p->t->next_sibling[*last]) = child;
            *last = child;
        }
    gci_tree_drop(env, &joined);
    return GC_OK;
}

/* Joins those parts of a cluster that are less than one of the clusters between which the wide area lies. */
static int tree_join_parts(gci_env *env, tree_parts *p, const char *shape, int32_t cluster)
{
    const gci_clusters *s = p->s;
    const gci_topo *topo = s->topo;
    int32_t part = p->tail[cluster];
    int n = 0, at = 0;
    do {
        part = p->next[part];
        const int32_t c = part - topo->nodes;
        int32_t rank = c < 0 ? part : p->lowest[c], size = c < 0 ? 1 : topo->size[c];
        if (size >= s->first[s->of[rank] + 1] - s->first[s->of[rank]])
            continue;
        if (c < 0 ? part == p->t->root : gci_topo_inside(topo, c, p->t->root)) {
            rank = p->t->root;
            at = n;
        }
        p->rank[n++] = rank;
    } while (part != p->tail[cluster]);
    return tree_join(env, p, shape, n, at);
}

GCI int gci_tree_over_clusters(gci_env *env, const char *shape, const gci_tree_costs *costs, const gci_clusters *s, int root,
                               gc_tree *t)
{
    const gci_topo *topo = s->topo;
    size_t nodes = (size_t)topo->nodes, clusters = (size_t)topo->clusters;
    tree_shape checked;
    *t = (gc_tree){ 0 };
    if (!tree_read_shape(shape, &checked) || root < 0 || root >= topo->nodes)
        return GC_ERR_ARG;
    int32_t *block = gci_alloc(env, 3 * (nodes + clusters) * sizeof *block);
    int err = block ? tree_alloc(env, topo->nodes, t) : GC_ERR_NOMEM;
    if (err == GC_OK) {
        tree_parts p = { s, costs, t, block, block + clusters, block + 2 * clusters, block + 3 * clusters + nodes,
                         block + 3 * clusters + 2 * nodes };
        t->root = root;
        tree_find_parts(&p);
        for (int k = 0; k < s->clusters; k++)
            p.rank[k] = s->of[root] == k ? root : s->member[s->first[k]];
        err = tree_join(env, &p, "flat", s->clusters, s->of[root]);
        for (int32_t c = 0; c < topo->clusters && err == GC_OK; c++)      /* the outer levels first */
            err = tree_join_parts(env, &p, shape, c);
    }
    if (err < 0)
        gci_tree_drop(env, t);
    gci_free(env, block);
    return err;
}

/* ---- questions --------------------------------------------------------------------------------------------------- */

/* The next rank when a tree is walked, parents before children, siblings in their order; -1: that was all. */
static int tree_next(const gc_tree *t, int v, int *depth)
{
    if (t->first_child[v] >= 0) {
        ++*depth;
        return t->first_child[v];
    }
    while (v != t->root && t->next_sibling[v] < 0) {
        v = t->parent[v];
        --*depth;
    }
    return v == t->root ? -1 : t->next_sibling[v];
}

/* A rank that is come to twice is come to for ever, since what follows it is the same each time: so to meet as many as
 * there are is to meet each once. */
GCI bool gci_tree_is_sound(const gc_tree *t)
{
    if (t->size < 1 || t->root < 0 || t->root >= t->size || !t->parent || !t->first_child || !t->next_sibling ||
        t->parent[t->root] != -1)
        return false;
    int met = 1, depth = 0;
    for (int v = t->root; v >= 0; v = tree_next(t, v, &depth))
        for (int c = t->first_child[v]; c != -1; c = t->next_sibling[c])
            if (c < 0 || c >= t->size || t->parent[c] != v || ++met > t->size)
                return false;
    return met == t->size;
}

GCI void gci_tree_subtrees(const gc_tree *t, gci_subtree *sub)
{
    int depth = 0, met = 0;
    for (int v = t->root; v >= 0; v = tree_next(t, v, &depth)) {
        sub[v] = (gci_subtree){ .low = v, .high = v, .size = 1, .place = sub[v].place };
        sub[met++].place = v;           /* for now: the met-th rank */
    }
    while (--met > 0) {
        const gci_subtree *s = &sub[sub[met].place];
        gci_subtree *parent = &sub[t->parent[sub[met].place]];
        parent->size += s->size;
        parent->low = s->low < parent->low ? s->low : parent->low;
        parent->high = s->high > parent->high ? s->high : parent->high;
    }
    sub[t->root].place = 0;
    for (int v = t->root; v >= 0; v = tree_next(t, v, &depth)) {
        int32_t end = sub[v].place + sub[v].size;
        for (int c = t->first_child[v]; c >= 0; c = t->next_sibling[c])
            sub[c].place = end -= sub[c].size;
    }
}

GCI bool gci_tree_is_ordered(gci_env *env, const gc_tree *t)
{
    gci_subtree *sub = gci_alloc(env, (size_t)t->size * sizeof *sub);
    bool ordered = sub != NULL;
    if (sub)
        gci_tree_subtrees(t, sub);
    for (int v = 0; v < t->size && ordered; v++)
        ordered = sub[v].high - sub[v].low + 1 == sub[v].size;
    gci_free(env, sub);
    return ordered;
}

/* ---- for programs ------------------------------------------------------------------------------------------------ */

int gc_tree_build(gc_tree **tree, const char *shape, int size, int root, const gc_model *model, const size_t bytes[])
{
    gci_env env = { .alloc = NULL };
    if (!tree)
        return GC_ERR_ARG;
    *tree = NULL;
    if (!shape || (model && model->ranks != size))
        return GC_ERR_ARG;
    gc_tree *t = gci_alloc(&env, sizeof *t);
    int err = t ? gci_tree_make_for(&env, shape, &(gci_tree_costs){ .model = model, .bytes = bytes }, size, root, t) : GC_ERR_NOMEM;
    if (err == GC_OK)
        *tree = t;
    else
        gci_free(&env, t);
    return err;
}

void gc_tree_free(gc_tree *tree)
{
    gci_env env = { .alloc = NULL };
    if (tree)
        gci_tree_drop(&env, tree);
    gci_free(&env, tree);
}

int gc_tree_print(const gc_tree *tree, int dot, char *text, size_t text_bytes, size_t *needed)
{
    gci_text out;
    int depth = 0;
    if (!tree || (!text && text_bytes > 0) || !gci_tree_is_sound(tree))
        return GC_ERR_ARG;
    gci_text_begin(&out, text, text_bytes);
    if (dot)
        gci_text_add(&out, "digraph tree {\n  ordering=out;\n  \"%d\";\n", tree->root);
    for (int v = tree->root; v >= 0; v = tree_next(tree, v, &depth))
        if (!dot)
            gci_text_add(&out, "%*s%d\n", 2 * depth, "", v);
        else if (v != tree->root)
            gci_text_add(&out, "  \"%d\" -> \"%d\";\n", tree->parent[v], v);
    if (dot)
        gci_text_add(&out, "}\n");
    if (needed)
        *needed = out.used + 1;
    return GC_OK;
}
