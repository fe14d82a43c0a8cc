/* treemodel.c: trees made for what messages cost (pure).
 * SPDX-License-Identifier: MIT
 *
 * Three ways (papers/004, 2.2.1 and 6.2): the shape stays and a model says which rank stands where in it; the shape comes from
 * the model (Prim); the shape comes from the sizes of messages, and from the model if there is one (Träff).
 *
 * Dealing: the places of a tree are visited depth-first or breadth-first, and each takes the rank that is nearest to its parent
 * among those left. Depth-first, the smallest subtrees first:
 *
 *        0            Numbers are turns. 0 chooses 1, then 2, and 2 chooses 3: what is near by goes to whole small subtrees,
 *      / | \          and what is left for the largest lies together somewhere else, where one message goes. Between two
 *     4  2  1         sites there is one more if the first fills no whole subtrees.
 *    /|  |
 *   6 5  3
 *   |
 *   7
 *
 * Prim: time and again the pair of a rank that has the data and one that has not whose edge costs least joins the tree. The
 * cost is the message's time; or when it would be there, counting from when its sender is ready to send; or that and the
 * time that the receiver's cheapest message to others without data would take (Bhat, Raghavendra, Prasanna 2003). A rank
 * keeps its cheapest edge. As ranks join, edges go and grow dearer, so what is kept is a lower bound, and the least one,
 * looked at again, is the one: O(n^2) in all as long as few edges are looked for in vain. When all have joined, each sends
 * first to the child whose subtree is through last, from the end of the sending on; for a given tree that is the best order
 * (Jackson's rule).
 *
 * Träff (2004): a rank's subtrees are made of those left to it, from the costliest to the cheapest, each of as few as cost more
 * than all subtrees before it together: 1, 2, 4, ... of equal ranks, which is a binomial tree, and never has a rank more
 * children than there. (At least as much, as Algorithm 1 has it, would be 1, 1, 2, 4, ...) The nearest for all that goes to a
 * subtree becomes its root, as the text has it. Without a model a byte costs a tick, and so does a message.
 *
 * Costs are integers: each rank may make the tree for itself, and all make the same one.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

typedef int64_t treemodel_cost(const gc_model *, int from, int to, size_t bytes);

/* Of a message from the parent to the child, or, up, the other way. */
static int64_t treemodel_ask(const gci_tree_costs *c, treemodel_cost *cost, int parent, int child, size_t bytes)
{
    int from = c->rank ? c->rank[parent] : parent, to = c->rank ? c->rank[child] : child;
    return c->up ? cost(c->model, to, from, bytes) : cost(c->model, from, to, bytes);
}

static int64_t treemodel_time(const gci_tree_costs *c, int parent, int child, size_t bytes)
{
    if (c->model) return treemodel_ask(c, gci_model_ticks, parent, child, bytes);
    const uint64_t ticks = bytes;
    return ticks < GCI_TICKS_MOST ? (int64_t)ticks + 1 : GCI_TICKS_MOST;
}

static size_t treemodel_bytes(const gci_tree_costs *c, int rank)
{
    return c->bytes ? c->bytes[c->rank ? c->rank[rank] : rank] : c->each;
}

/* ---- dealing ------------------------------------------------------------------------------------------------------ */

/* Moves the rank that suits best to the front; of equal ones the first, and the order of the others stays. */
static int treemodel_pick(const gci_tree_costs *c, int prefer, int from, int *list, int n)
{
    int best = 0;
    int64_t least = 0;
    for (int i = 0; i < n && prefer != 0; i++) {
        int64_t time = prefer * treemodel_time(c, from, list[i], treemodel_bytes(c, list[i]));
        if (i == 0 || time < least) {
            best = i;
            least = time;
        }
    }
    int rank = list[best];
    memmove(list + 1, list, (size_t)best * sizeof *list);
    return list[0] = rank;
}

static void treemodel_reverse(int *list, int n)
{
    for (int i = 0; i < n / 2; i++) {
        int swap = list[i];
        list[i] = list[n - 1 - i];
        list[n - 1 - i] = swap;
    }
}

/* Finds the rank for each place of t. todo: places whose turn comes, a stack or a queue; left: ranks. */
static void treemodel_visit(const gci_tree_costs *c, gci_tree_deal how, const gc_tree *t, int *rank_at, int *todo, int *left)
{
    int head = 0, end = 1, n = t->size - 1;
    for (int i = 0; i < n; i++)
        left[i] = (int)(((int64_t)t->root + 1 + i) % t->size);
    todo[0] = t->root;
    while (head < end) {
        int at = how.breadth ? todo[head++] : todo[--end], first = end;
        if (at == t->root)
            rank_at[at] = at;
        else {
            rank_at[at] = treemodel_pick(c, how.prefer, rank_at[t->parent[at]], left++, n);
            n--;
        }
        for (int child = t->first_child[at]; child >= 0; child = t->next_sibling[child])
            todo[end++] = child;
        if (how.breadth != how.largest)         /* a queue takes the last of them last, a stack first */
            treemodel_reverse(todo + first, end - first);
    }
}

GCI int gci_tree_deal_out(gci_env *env, const gci_tree_costs *c, gci_tree_deal how, gc_tree *t)
{
    size_t n = (size_t)t->size;
    int *rank_at = gci_alloc(env, 4 * n * sizeof *rank_at);
    if (!rank_at)
        return GC_ERR_NOMEM;
    int *old = rank_at + n;
    treemodel_visit(c, how, t, rank_at, old, old + n);
    int *const links[] = { t->parent, t->first_child, t->next_sibling };
    for (size_t k = 0; k < GCI_COUNT(links); k++) {
        memcpy(old, links[k], n * sizeof *old);
        for (size_t at = 0; at < n; at++)
            links[k][rank_at[at]] = old[at] < 0 ? -1 : rank_at[old[at]];
    }
    gci_free(env, rank_at);
    return GC_OK;
}

/* ---- Prim --------------------------------------------------------------------------------------------------------- */

typedef struct treemodel_node {
    bool   joined;
    int    kth;                 /* not of this rank: the one that joined as the so-manieth */
    int64_t ready;              /* when it can send */
    int    best;                /* its cheapest edge; -1: there is none, or it was not looked for */
    int64_t cost;               /* of that; of one that has joined: at least. In the end: see treemodel_line_up */
} treemodel_node;

typedef struct treemodel_prim {
    const gci_tree_costs *c;
    enum gci_tree_edge    edge;
    gc_tree              *t;
    treemodel_node       *node;
} treemodel_prim;

/* Looks for the cheapest edge of a rank. Begins beside it, so that ranks that are all alike do not all find the same one. The
 * last rank without data has none, and what it had counts the same for all that may send to it. */
static void treemodel_look(treemodel_prim *p, int rank)
{
    treemodel_node *v = &p->node[rank];
    bool ahead = v->joined && p->edge == GCI_EDGE_AHEAD;
    v->best = -1;
    for (int i = 1; i < p->t->size; i++) {
        int to = rank < p->t->size - i ? rank + i : rank - (p->t->size - i);
        const treemodel_node *w = &p->node[to];
        if (w->joined)
            continue;
        int64_t cost = treemodel_time(p->c, rank, to, treemodel_bytes(p->c, to)) + (ahead ? w->cost : 0);
        if (v->best < 0 || cost < v->cost) {
            v->best = to;
            v->cost = cost;
        }
    }
}

/* The joined rank with the cheapest edge of all, which is known to be right. */
static int treemodel_sender(treemodel_prim *p)
{
    for (int looked = -1;;) {
        int from = -1;
        int64_t least = 0;
        for (int i = 0; i < p->t->size; i++) {
            const treemodel_node *v = &p->node[i];
            int64_t cost = (p->edge == GCI_EDGE_PLAIN ? 0 : v->ready) + v->cost;
            if (v->joined && (from < 0 || cost < least)) {
                from = i;
                least = cost;
            }
        }
        if (from == looked)
            return from;
        treemodel_look(p, looked = from);
    }
}

static int64_t treemodel_busy(const gci_tree_costs *c, int parent, int child)
{
    return treemodel_ask(c, gci_model_busy_ticks, parent, child, treemodel_bytes(c, child));
}

static void treemodel_join(treemodel_prim *p, int from, int to)
{
    treemodel_node *v = &p->node[from], *w = &p->node[to];
    p->t->parent[to] = from;
    w->joined = true;
    w->ready = v->ready + treemodel_time(p->c, from, to, treemodel_bytes(p->c, to));
    w->best = -1;
    w->cost = 0;
    v->ready += treemodel_busy(p->c, from, to);
}

/* Makes lists of children: who joined later has its own already. cost becomes the time from when a rank's parent has sent to it
 * until its subtree is through. */
static void treemodel_line_up(treemodel_prim *p)
{
    gc_tree *t = p->t;
    for (int k = t->size - 1; k > 0; k--) {
        int v = p->node[k].kth, from = t->parent[v];
        int64_t sent = 0, end = 0, busy = treemodel_busy(p->c, from, v);
        for (int child = t->first_child[v]; child >= 0; child = t->next_sibling[child]) {
            sent += treemodel_busy(p->c, v, child);
            end = sent + p->node[child].cost > end ? sent + p->node[child].cost : end;
        }
        p->node[v].cost = end + treemodel_time(p->c, from, v, treemodel_bytes(p->c, v)) - busy;
        int *link = &t->first_child[from];
        while (*link >= 0 && p->node[*link].cost > p->node[v].cost)
            link = &t->next_sibling[*link];
        t->next_sibling[v] = *link;
        *link = v;
    }
}

GCI int gci_tree_prim(gci_env *env, const gci_tree_costs *c, enum gci_tree_edge edge, gc_tree *t)
{
    size_t n = (size_t)t->size;
    treemodel_prim p = { c, edge, t, gci_alloc(env, n * sizeof *p.node) };
    if (!p.node)
        return GC_ERR_NOMEM;
    for (size_t i = 0; i < n; i++)
        p.node[i] = (treemodel_node){ .joined = (int)i == t->root, .best = -1 };
    for (int joined = 1; joined < t->size; joined++) {
        for (int i = 0; i < t->size && edge == GCI_EDGE_AHEAD; i++)
            if (!p.node[i].joined && (p.node[i].best < 0 || p.node[p.node[i].best].joined))
                treemodel_look(&p, i);
        int from = treemodel_sender(&p), to = p.node[from].best;
        treemodel_join(&p, from, to);
        p.node[joined].kth = to;
    }
    treemodel_line_up(&p);
    gci_free(env, p.node);
    return GC_OK;
}

/* ---- Träff -------------------------------------------------------------------------------------------------------- */

typedef struct treemodel_item { int rank; int64_t time; } treemodel_item;        /* from the parent */
typedef struct treemodel_set { int first, end, parent; } treemodel_set;         /* of items */

static int treemodel_costliest_first(const void *a, const void *b)
{
    const treemodel_item *x = a, *y = b;
    return x->time != y->time ? (x->time < y->time ? 1 : -1) : x->rank - y->rank;
}

/* Moves the nearest to `parent` for all that goes to the items to the front: the largest of equally near ones, as what it gets
 * is sent no further. */
static void treemodel_lead(const gci_tree_costs *c, int parent, treemodel_item *item, int n)
{
    size_t bytes = 0;
    int64_t least = 0;
    int best = 0;
    for (int i = 0; i < n; i++)
        bytes += treemodel_bytes(c, item[i].rank);
    for (int i = 0; i < n; i++) {
        int64_t time = treemodel_time(c, parent, item[i].rank, bytes);
        if (i == 0 || time < least) {
            best = i;
            least = time;
        }
    }
    treemodel_item lead = item[best];
    item[best] = item[0];
    item[0] = lead;
}

GCI int gci_tree_traeff(gci_env *env, const gci_tree_costs *c, gc_tree *t)
{
    size_t n = (size_t)t->size;
    treemodel_item *item = gci_alloc(env, n * (sizeof *item + sizeof(treemodel_set)));
    if (!item)
        return GC_ERR_NOMEM;
    treemodel_set *set = (treemodel_set *)(item + n);      /* those to be cut */
    int sets = 1;
    set[0] = (treemodel_set){ 0, t->size - 1, t->root };
    for (int i = 0; i < t->size - 1; i++)
        item[i].rank = i < t->root ? i : i + 1;
    while (sets > 0) {
        treemodel_set s = set[--sets];
        int64_t before = 0;
        for (int i = s.first; i < s.end; i++)
            item[i].time = treemodel_time(c, s.parent, item[i].rank, treemodel_bytes(c, item[i].rank));
        qsort(item + s.first, (size_t)(s.end - s.first), sizeof *item, treemodel_costliest_first);
        for (int first = s.first, end; first < s.end; first = end) {
            int64_t sum = 0;
            for (end = first; end < s.end && (end == first || (before > 0 && sum <= before)); end++)
                sum += item[end].time;
            before += sum;
            treemodel_lead(c, s.parent, item + first, end - first);
            int lead = item[first].rank;
            t->parent[lead] = s.parent;
            t->next_sibling[lead] = t->first_child[s.parent];
            t->first_child[s.parent] = lead;
            set[sets++] = (treemodel_set){ first + 1, end, lead };
        }
    }
    gci_free(env, item);
    return GC_OK;
}
