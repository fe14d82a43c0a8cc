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
 * comes the other way round. In a tree with another root position i is rank (i + root) % size.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { TREE_RADIX = 8 };        /* of kary and knomial without a number: two levels for 64 ranks */

typedef struct tree_shape { bool nomial; int32_t radix; } tree_shape;

static bool tree_read_shape(const char *text, tree_shape *shape)
{
    static const struct { const char *name; bool numbered; tree_shape shape; } known[] = {
        { "flat", false, { false, INT32_MAX } }, { "chain", false, { false, 1 } }, { "binary", false, { false, 2 } },
        { "binomial", false, { true, 2 } }, { "kary", true, { false, TREE_RADIX } }, { "knomial", true, { true, TREE_RADIX } },
    };
    size_t bytes = strcspn(text, ":");
    for (size_t i = 0; i < GCI_COUNT(known); i++) {
        if (strlen(known[i].name) != bytes || memcmp(known[i].name, text, bytes) != 0)
            continue;
        *shape = known[i].shape;
        if (text[bytes] == '\0')
            return true;
        const char *number = text + bytes + 1;
        size_t digits = strspn(number, "0123456789");
        if (!known[i].numbered || digits == 0 || digits > 9 || number[digits])
            return false;
        shape->radix = (int32_t)strtol(number, NULL, 10);
        return shape->radix > (shape->nomial ? 1 : 0);
    }
    return false;
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
    return tree_read_shape(text, &shape);
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

GCI int gci_tree_make(gci_env *env, const char *shape_text, int size, int root, gc_tree *t)
{
    tree_shape shape;
    *t = (gc_tree){ 0 };
    if (!tree_read_shape(shape_text, &shape) || size < 1 || root < 0 || root >= size)
        return GC_ERR_ARG;
    int32_t *span = gci_alloc(env, (size_t)size * sizeof *span);
    int err = span ? tree_alloc(env, size, t) : GC_ERR_NOMEM;
    if (err == GC_OK) {
        t->root = root;
        tree_fill(t, shape, span);
    }
    gci_free(env, span);
    return err;
}

/* ---- over clusters ----------------------------------------------------------------------------------------------- */

/* The parts of a cluster are the clusters right below it, those of a host its ranks. A part is spoken for by its coordinator:
 * the root, if it is inside, else its lowest rank. Part r < nodes is the rank r, nodes + c the cluster c. */
typedef struct tree_parts {
    const gci_clusters *s;
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
    int err = n > 1 ? gci_tree_make(env, shape, n, at, &joined) : GC_OK;
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

GCI int gci_tree_over_clusters(gci_env *env, const char *shape, const gci_clusters *s, int root, gc_tree *t)
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
        tree_parts p = { s, t, block, block + clusters, block + 2 * clusters, block + 3 * clusters + nodes,
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
    (void)bytes;                        /* for models */
    if (!tree)
        return GC_ERR_ARG;
    *tree = NULL;
    if (!shape)
        return GC_ERR_ARG;
    if (model)
        return GC_ERR_UNSUPPORTED;
    gc_tree *t = gci_alloc(&env, sizeof *t);
    int err = t ? gci_tree_make(&env, shape, size, root, t) : GC_ERR_NOMEM;
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
