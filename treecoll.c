/* treecoll.c: collectives on any tree (pure).
 * SPDX-License-Identifier: MIT
 *
 * Trees and semantics are kept apart (papers/004, 6.2.3): tree.c says who talks to whom, or the caller does (gc_tree_*), and
 * each collective is made of four parts that work on any rooted tree:
 *
 *   down      the same bytes to all, cut into segments, each sent on as it comes
 *   scatter   to a child the blocks of its subtree, in one message
 *   collect   from a child the blocks of its subtree, in one message
 *   up        from a child the partial result of its subtree, segment by segment
 *
 *   barrier        up, then down, of nothing       reduce          up
 *   bcast          down                            allreduce       up to rank 0, and down
 *   gather         collect                         reduce_scatter  up to rank 0, then scatter
 *   scatter        scatter                         allgather       collect at rank 0, then down
 *
 * Messages: p - 1 each way, the fewest there can be. Rounds: the tree's depth and, per rank on the way, its children.
 *
 * Blocks travel in the order of gci_subtree.place: a rank's own, then the subtrees of its children, each in one piece. So inner
 * ranks move nothing but their own block. In the trees of tree.c that is the order of ranks, from the root on, and where the
 * user's blocks lie in that order they are sent from there and received there; elsewhere they are packed, run by run.
 * Uneven blocks need a tree whose inner ranks all know the sizes: any, where every rank knows them, else one of depth 1.
 *
 * Reductions whose operands need not keep any order use the tree that is rooted where the result is wanted. For the others
 * a tree must fit: every subtree a run of ranks, so that each rank can evaluate its children's in rank order, itself among
 * them. If the shape rooted there does not fit, rank 0 is the root, and it passes the result on: a message more. Not
 * associative: of a rank's operands only the first may be a partial result; the flat tree does so, and the chain
 * 0 -> 1 -> ... -> p - 1, through which segments stream. Canonical: [0, p) is [0, 2^k) (op) [2^k, p), 2^k the largest power of
 * two below p: that is what a binomial tree rooted at 0 evaluates from the left, and what the flat tree can.
 *
 * Segments of one vector keep their order between two ranks: each message waits for what the one before it waited for.
 *
 * Scratch: reductions hold TREECOLL_WINDOW segments at most, whatever the number of children (a reduce_scatter cuts nothing: a
 * segment is all blocks); gathers and scatters a block
 * per rank of the subtree at inner ranks, and at the root what does not lie in order.
 */
#include "gridcomm_int.h"

enum { TREECOLL_WINDOW = 32 };  /* bounds scratch, keeps senders busy; more than partial results that wait: log2(p) + 1 */

/* A slot of scratch that is free after a step. */
typedef struct treecoll_slot { gci_spot at; int32_t after; } treecoll_slot;

typedef struct treecoll {
    gci_builder    *b;
    const gci_call *call;
    int             rank, parent;
    gci_tree_seen  *seen;       /* the tree, and what is known of it: */
    const gc_tree  *t;
    const gci_subtree *sub;
    const int32_t  *order;
    int32_t        *list;       /* [ranks] scratch: children, or operands */
    treecoll_slot   slot[TREECOLL_WINDOW];      /* those that are free, as a ring */
    int32_t         slots, first_free, free;
    bool            cut;        /* into more segments than one: steps after which there may be ... */
    int32_t         up, down, freed, taken;     /* ... sends to the parent, to children, receives from it, into slots */
} treecoll;

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

static void treecoll_look(treecoll *c, const gc_tree *t)
{
    gci_tree_seen *seen = c->seen;
    seen->t = c->t = t;
    gci_tree_subtrees(t, seen->sub);
    seen->flat = true;
    for (int v = 0; v < t->size; v++) {
        seen->order[seen->sub[v].place] = v;
        seen->flat &= v == t->root || t->parent[v] == t->root;
    }
}

static bool treecoll_in_order(const gci_call *call)
{
    return call->canonical || !call->commutative || !call->associative;
}

/* May this reduction be evaluated along the tree? The same answer at all ranks. */
static bool treecoll_fits(const treecoll *c)
{
    const gci_call *call = c->call;
    for (int v = 0; v < call->ranks && treecoll_in_order(call); v++) {
        const gci_subtree *s = &c->sub[v], *up = v == c->t->root ? s : &c->sub[c->t->parent[v]];
        int step = v - c->t->parent[v], rest = up->high + 1 - v;
        if (s->high - s->low + 1 != s->size)
            return false;
        if (!call->associative && s->size > 1 && s->low != up->low)
            return false;
        if (call->associative && call->canonical && !c->seen->flat && v != c->t->root &&
            (step < 1 || s->size != (step < rest ? step : rest)))
            return false;
    }
    return true;
}

/* What trees that are made for messages are made for: blocks, as far as all ranks know them, or segments of a vector. */
static gci_tree_costs treecoll_costs(const gci_call *call)
{
    bool up = call->coll == GCI_GATHER || call->coll == GCI_REDUCE, blocks = call->coll == GCI_GATHER || call->coll == GCI_SCATTER;
    gci_tree_costs costs = { .model = call->model, .up = up };
    if (blocks && call->known)
        costs.bytes = (up ? call->recv : call->send).bytes;
    else if (blocks)
        costs.each = call->even ? call->own : 0;
    else
        costs.each = gci_segment_at(call, call->bytes, 1);
    return costs;
}

static int treecoll_take(treecoll *c, int root)
{
    const gci_tree_costs costs = treecoll_costs(c->call);
    gc_tree *made = &c->seen->made;
    gci_tree_drop(c->b->env, made);
    int err = gci_tree_make_for(c->b->env, c->b->name, &costs, c->call->ranks, root, made);
    if (err == GC_OK)
        treecoll_look(c, made);
    return err == GC_ERR_ARG ? GC_ERR_UNSUPPORTED : err;
}

/* Turns the chain from rank 0 on into the one from the last rank down. */
static void treecoll_mirror(treecoll *c)
{
    gc_tree *t = &c->seen->made;
    t->root = t->size - 1;
    for (int v = 0; v < t->size; v++) {
        t->parent[v] = v < t->root ? v + 1 : -1;
        t->first_child[v] = v - 1;
    }
    treecoll_look(c, t);
}

/* Finds the tree: the given one, or that of the name, rooted where it does what the call needs. */
static int treecoll_choose(treecoll *c)
{
    const gci_call *call = c->call;
    bool reduces = gci_coll_reduces(call->coll);
    bool rooted = call->coll == GCI_BCAST || call->coll == GCI_SCATTER || call->coll == GCI_GATHER || call->coll == GCI_REDUCE;
    int root = rooted ? call->root : 0;
    if (call->tree) {
        if (call->tree->size != call->ranks || call->tree->root != root || !gci_tree_is_sound(call->tree))
            return GC_ERR_ARG;
        treecoll_look(c, call->tree);
        return !reduces || treecoll_fits(c) ? GC_OK : GC_ERR_UNSUPPORTED;
    }
    int err = treecoll_take(c, root);
    if (err < 0 || !reduces || treecoll_fits(c))
        return err;
    if (root != 0)
        err = treecoll_take(c, 0);
    if (err == GC_OK && !treecoll_fits(c) && strcmp(c->b->name, "chain") == 0)
        treecoll_mirror(c);
    return err < 0 || treecoll_fits(c) ? err : GC_ERR_UNSUPPORTED;
}

/* Orders steps that must not overtake each other: returns the step for which the next of them waits, besides all for which
 * the ones before it waited. */
static int32_t treecoll_queue(treecoll *c, int32_t *queue, int32_t after)
{
    return *queue = gci_emit_both(c->b, *queue, after);
}

/* ---- down: one message for all ----------------------------------------------------------------------------------- */

/* At the root the data is there after `ready`; elsewhere the place for it is free then. Returns the step after which it is
 * there. */
static int32_t treecoll_pass(treecoll *c, gci_spot data, size_t bytes, int32_t ready)
{
    int child = c->t->first_child[c->rank];
    if (c->parent >= 0)
        ready = gci_emit_recv(c->b, c->parent, data, bytes, ready);
    if (child >= 0)
        ready = treecoll_queue(c, &c->down, ready);
    for (; child >= 0; child = c->t->next_sibling[child])
        gci_emit_send(c->b, child, data, bytes, ready);
    return ready;
}

/* The same, cut into segments. The steps are pending after it. */
static void treecoll_down(treecoll *c, gci_spot data, size_t bytes, int32_t ready)
{
    int32_t segments = gci_segments(c->call, bytes);
    for (int32_t i = 0; i < segments; i++) {
        size_t at = gci_segment_at(c->call, bytes, i), end = gci_segment_at(c->call, bytes, i + 1);
        gci_emit_pend(c->b, treecoll_pass(c, gci_spot_at(data, at), end - at, ready));
    }
}

/* What is sent to last comes first. */
static int32_t treecoll_children_up(treecoll *c)
{
    int32_t n = 0;
    for (int child = c->t->first_child[c->rank]; child >= 0; child = c->t->next_sibling[child])
        c->list[n++] = child;
    for (int32_t i = 0; i < n / 2; i++) {
        int32_t swap = c->list[i];
        c->list[i] = c->list[n - 1 - i];
        c->list[n - 1 - i] = swap;
    }
    return n;
}

static void treecoll_barrier(treecoll *c)
{
    const gci_spot nothing = { GCI_BUF_TEMP, 0 };
    int32_t n = treecoll_children_up(c);
    for (int32_t i = 0; i < n; i++)
        gci_emit_pend(c->b, gci_emit_recv(c->b, c->list[i], nothing, 0, GCI_NO_STEP));
    int32_t all = gci_emit_join(c->b);
    if (c->parent >= 0) {
        gci_emit_send(c->b, c->parent, nothing, 0, all);
        all = GCI_NO_STEP;
    }
    treecoll_pass(c, nothing, 0, all);
}

/* ---- blocks ------------------------------------------------------------------------------------------------------ */

static size_t treecoll_block(const treecoll *c, const gci_blocks *blocks, int rank)
{
    return c->call->even || rank == c->rank ? c->call->own : gci_block_bytes(blocks, rank);
}

/* Bytes of the blocks at the places first .. end - 1. */
static size_t treecoll_bytes(const treecoll *c, const gci_blocks *blocks, int32_t first, int32_t end)
{
    size_t sum = 0;
    if (c->call->even)
        return (size_t)(end - first) * c->call->own;
    for (int32_t i = first; i < end; i++)
        sum += treecoll_block(c, blocks, c->order[i]);
    return sum;
}

static size_t treecoll_subtree_bytes(const treecoll *c, const gci_blocks *blocks, int v)
{
    return treecoll_bytes(c, blocks, c->sub[v].place, c->sub[v].place + c->sub[v].size);
}

/* The place up to which blocks lie in the user's buffer as they travel, from `first` on. */
static int32_t treecoll_run(const treecoll *c, const gci_blocks *blocks, int32_t first, int32_t end)
{
    int32_t i = first + 1;
    for (; i < end; i++) {
        int before = c->order[i - 1], rank = c->order[i];
        if (blocks->at ? blocks->at[rank] != blocks->at[before] + treecoll_block(c, blocks, before) : rank != before + 1)
            break;
    }
    return i;
}

/* Copies the blocks of the subtree of v between the user's buffer and the form in which they travel. The copies are pending
 * after it. */
static void treecoll_copy(treecoll *c, const gci_blocks *blocks, int v, gci_spot user, gci_spot packed, bool to_user,
                          int32_t after)
{
    for (int32_t end = c->sub[v].place + c->sub[v].size, i = c->sub[v].place, next; i < end; i = next) {
        next = treecoll_run(c, blocks, i, end);
        size_t bytes = treecoll_bytes(c, blocks, i, next);
        gci_spot at = gci_spot_at(user, gci_block_at(blocks, c->order[i]));
        if (bytes > 0)
            gci_emit_pend(c->b, gci_emit_copy(c->b, to_user ? at : packed, to_user ? packed : at, bytes, after));
        packed.at += bytes;
    }
}

static bool treecoll_is_run(const treecoll *c, const gci_blocks *blocks, int v)
{
    return treecoll_run(c, blocks, c->sub[v].place, c->sub[v].place + c->sub[v].size) == c->sub[v].place + c->sub[v].size;
}

/* ---- collect ----------------------------------------------------------------------------------------------------- */

/* Receives the subtrees of the children and puts the own block before them, as they travel; all is there after the step that is
 * returned. */
static int32_t treecoll_collect(treecoll *c, const gci_blocks *blocks, gci_spot stage)
{
    size_t own = c->call->own, at = own;
    int32_t n = treecoll_children_up(c);
    for (int32_t i = 0; i < n; i++) {
        size_t bytes = treecoll_subtree_bytes(c, blocks, c->list[i]);
        if (bytes > 0)
            gci_emit_pend(c->b, gci_emit_recv(c->b, c->list[i], gci_spot_at(stage, at), bytes, GCI_NO_STEP));
        at += bytes;
    }
    if (own > 0 && (stage.buf != c->b->input.buf || stage.at != c->b->input.at))
        gci_emit_pend(c->b, gci_emit_copy(c->b, stage, c->b->input, own, GCI_NO_STEP));
    return gci_emit_join(c->b);
}

/* The root of a gather: what lies in the user's buffer as it travels comes right there. */
static void treecoll_gather_root(treecoll *c, const gci_blocks *blocks)
{
    const gci_spot recv = { GCI_BUF_RECV, 0 };
    int32_t n = treecoll_children_up(c);
    for (int32_t i = 0; i < n; i++) {
        int child = c->list[i];
        size_t bytes = treecoll_subtree_bytes(c, blocks, child);
        bool here = treecoll_is_run(c, blocks, child);
        if (bytes == 0)
            continue;
        gci_spot to = here ? gci_spot_at(recv, gci_block_at(blocks, child)) : gci_emit_slot(c->b, bytes);
        int32_t came = gci_emit_recv(c->b, child, to, bytes, GCI_NO_STEP);
        if (!here)
            treecoll_copy(c, blocks, child, recv, to, true, came);
    }
    if (c->call->own > 0 && !c->call->in_place)
        gci_emit_copy(c->b, gci_spot_at(recv, gci_block_at(blocks, c->rank)), c->b->input, c->call->own, GCI_NO_STEP);
}

static void treecoll_gather(treecoll *c)
{
    const gci_blocks *blocks = &c->call->recv;
    if (c->parent < 0) {
        treecoll_gather_root(c, blocks);
        return;
    }
    size_t bytes = treecoll_subtree_bytes(c, blocks, c->rank);
    gci_spot stage = c->b->input;
    int32_t all = GCI_NO_STEP;
    if (c->sub[c->rank].size > 1) {
        stage = gci_emit_slot(c->b, bytes);
        all = treecoll_collect(c, blocks, stage);
    }
    if (bytes > 0)
        gci_emit_send(c->b, c->parent, stage, bytes, all);
}

/* The blocks are put together where they are wanted, if they lie there as they travel. What comes down overwrites what went
 * up, or the own block in place, and so waits until that is sent. */
static void treecoll_allgather(treecoll *c)
{
    const gci_blocks *blocks = &c->call->recv;
    const gci_spot recv = { GCI_BUF_RECV, 0 };
    int root = c->t->root;
    size_t all = treecoll_subtree_bytes(c, blocks, root), bytes = treecoll_subtree_bytes(c, blocks, c->rank);
    bool here = treecoll_is_run(c, blocks, root), inner = c->sub[c->rank].size > 1;
    gci_spot image = here ? gci_spot_at(recv, gci_block_at(blocks, root)) : gci_emit_slot(c->b, all), stage = c->b->input;
    int32_t ready = GCI_NO_STEP;
    if (inner || c->parent < 0) {
        stage = gci_spot_at(image, treecoll_bytes(c, blocks, 0, c->sub[c->rank].place));
        ready = treecoll_collect(c, blocks, stage);
    }
    if (c->parent >= 0) {
        int32_t sent = bytes > 0 ? gci_emit_send(c->b, c->parent, stage, bytes, ready) : GCI_NO_STEP;
        ready = inner || c->b->input_is_recv ? sent : GCI_NO_STEP;
    }
    treecoll_down(c, image, all, ready);
    if (!here)
        treecoll_copy(c, blocks, root, recv, image, true, gci_emit_join(c->b));
}

/* ---- scatter ----------------------------------------------------------------------------------------------------- */

/* At the root the blocks lie in source, after `ready`; elsewhere the receive buffer is free after `ready`. */
static void treecoll_scatter(treecoll *c, const gci_blocks *blocks, gci_spot source, int32_t ready)
{
    const gci_spot recv = { GCI_BUF_RECV, 0 };
    size_t own = c->call->own, at = treecoll_subtree_bytes(c, blocks, c->rank);
    bool root = c->parent < 0, leaf = c->sub[c->rank].size == 1;
    bool own_comes = root ? c->call->coll != GCI_SCATTER || !c->call->in_place : !leaf;
    if (!root && at > 0) {
        source = leaf ? recv : gci_emit_slot(c->b, at);
        ready = gci_emit_recv(c->b, c->parent, source, at, ready);
    }
    for (int child = c->t->first_child[c->rank]; child >= 0; child = c->t->next_sibling[child]) {
        size_t bytes = treecoll_subtree_bytes(c, blocks, child);
        gci_spot from = gci_spot_at(source, at -= bytes);
        int32_t after = ready;
        if (bytes == 0)
            continue;
        if (root && treecoll_is_run(c, blocks, child))
            from = gci_spot_at(source, gci_block_at(blocks, child));
        else if (root) {
            from = gci_emit_slot(c->b, bytes);
            treecoll_copy(c, blocks, child, source, from, false, ready);
            after = gci_emit_join(c->b);
        }
        gci_emit_send(c->b, child, from, bytes, after);
    }
    if (root)
        source = gci_spot_at(source, gci_block_at(blocks, c->rank));
    if (own > 0 && own_comes)
        gci_emit_copy(c->b, recv, source, own, ready);
}

/* ---- up: reductions ---------------------------------------------------------------------------------------------- */

/* A running value: an operand, or what several have come to. It moves into the buffer of the next one
 * (to = value (op) to), so most reductions need neither a first copy nor a swap. */
typedef struct treecoll_value {
    gci_spot at;
    bool     writable;          /* false: the user's send buffer */
    bool     stays;             /* it is where the result must be: others come to it */
    bool     slot;              /* it is one of the window */
    int32_t  last;              /* the step after which it is there */
    int32_t  ranks;             /* whose operands are in it */
} treecoll_value;

static void treecoll_release(treecoll *c, const treecoll_value *v, int32_t after)
{
    if (v->slot)
        c->slot[(c->first_free + c->free++) % TREECOLL_WINDOW] = (treecoll_slot){ v->at, after };
}

static treecoll_slot treecoll_slot_of(treecoll *c, size_t bytes)
{
    if (c->slots < TREECOLL_WINDOW) {
        c->slots++;
        return (treecoll_slot){ gci_emit_slot(c->b, bytes), GCI_NO_STEP };
    }
    treecoll_slot slot = c->slot[c->first_free];
    c->first_free = (c->first_free + 1) % TREECOLL_WINDOW;
    c->free--;
    if (c->cut)
        slot.after = treecoll_queue(c, &c->taken, slot.after);
    return slot;
}

/* left = left (op) right; what is left over of the two is free again. */
static void treecoll_meet(treecoll *c, treecoll_value *left, treecoll_value right, size_t bytes)
{
    bool into_left = left->stays || !right.writable;
    treecoll_value to = into_left ? *left : right, from = into_left ? right : *left;
    to.ranks += from.ranks;
    int32_t met = gci_emit_reduce(c->b, to.at, from.at, bytes, into_left && treecoll_in_order(c->call), to.last);
    gci_emit_also(c->b, met, from.last);
    to.last = met;
    treecoll_release(c, &from, met);
    *left = to;
}

/* Lists this rank and its children, in the order in which they are evaluated. */
static int32_t treecoll_operands(treecoll *c)
{
    if (!treecoll_in_order(c->call)) {
        int32_t children = treecoll_children_up(c);
        memmove(c->list + 1, c->list, (size_t)children * sizeof *c->list);
        c->list[0] = c->rank;
        return children + 1;
    }
    int32_t n = 0;
    for (int v = 0; v < c->call->ranks; v++)
        if (v == c->rank || c->t->parent[v] == c->rank)
            c->list[n++] = v;
    return n;
}

/* The slice [at, at + bytes) of the vector from n operands, of which each comes where there is room; the last child's right
 * where the result goes (result_here: into the receive buffer). slot_bytes: of the largest slice. */
static treecoll_value treecoll_up(treecoll *c, int32_t n, size_t at, size_t bytes, size_t slot_bytes, bool result_here)
{
    gci_builder *b = c->b;
    bool canonical = c->call->canonical && c->call->associative;
    const gci_spot recv = { GCI_BUF_RECV, at };
    treecoll_value value[TREECOLL_WINDOW] = { { .last = GCI_NO_STEP } };
    int depth = 0;
    for (int32_t i = 0; i < n; i++) {
        treecoll_value *v = &value[depth++];
        bool own = c->list[i] == c->rank, last = i == n - 1 || (i == n - 2 && c->list[n - 1] == c->rank);
        if (own) {
            *v = (treecoll_value){ gci_spot_at(b->input, at), b->input.buf != GCI_BUF_SEND, result_here && b->input_is_recv,
                                   false, b->ready, 1 };
        } else {
            bool stays = last && result_here && !b->input_is_recv;
            treecoll_slot to = stays ? (treecoll_slot){ recv, GCI_NO_STEP } : treecoll_slot_of(c, slot_bytes);
            int32_t came = gci_emit_recv(b, c->list[i], to.at, bytes, to.after);
            *v = (treecoll_value){ to.at, true, stays, !stays, came, c->sub[c->list[i]].size };
        }
        for (; depth > 1 && (!canonical || value[depth - 2].ranks == value[depth - 1].ranks); depth--)
            treecoll_meet(c, &value[depth - 2], value[depth - 1], bytes);
    }
    for (; depth > 1; depth--)
        treecoll_meet(c, &value[depth - 2], value[depth - 1], bytes);
    if (result_here && value->at.buf != GCI_BUF_RECV) {
        int32_t copied = gci_emit_copy(b, recv, value->at, bytes, value->last);
        treecoll_release(c, value, copied);
        *value = (treecoll_value){ .at = recv, .last = copied };
    }
    return *value;
}

/* reduce, allreduce: segment by segment, so that they stream through the tree. */
static void treecoll_reduce(treecoll *c, int32_t n)
{
    const gci_call *call = c->call;
    gci_builder *b = c->b;
    bool all = call->coll == GCI_ALLREDUCE, pass_on = !all && c->t->root != call->root;
    int32_t segments = gci_segments(call, call->bytes);
    c->cut = segments > 1;
    for (int32_t i = 0; i < segments; i++) {
        size_t at = gci_segment_at(call, call->bytes, i), bytes = gci_segment_at(call, call->bytes, i + 1) - at;
        int to = c->parent < 0 && pass_on ? call->root : c->parent;
        treecoll_value v = treecoll_up(c, n, at, bytes, gci_segment_at(call, call->bytes, 1), to < 0);
        int32_t ready = v.last;
        if (to >= 0) {
            int32_t sent = gci_emit_send(b, to, v.at, bytes, treecoll_queue(c, &c->up, v.last));
            treecoll_release(c, &v, sent);
            ready = b->input_is_recv && (all || c->rank == call->root) ? treecoll_queue(c, &c->freed, sent) : GCI_NO_STEP;
        }
        if (all)
            treecoll_pass(c, (gci_spot){ GCI_BUF_RECV, at }, bytes, ready);
        else if (pass_on && c->rank == call->root)
            gci_emit_recv(b, c->t->root, (gci_spot){ GCI_BUF_RECV, at }, bytes, ready);
    }
}

static void treecoll_reduce_scatter(treecoll *c, int32_t n)
{
    const gci_blocks blocks = { c->call->send.each, c->call->send.bytes, NULL };
    size_t bytes = gci_blocks_bytes(&blocks, 0, c->call->ranks);
    treecoll_value v = treecoll_up(c, n, 0, bytes, bytes, false);
    if (c->parent >= 0)
        gci_emit_send(c->b, c->parent, v.at, bytes, v.last);
    treecoll_scatter(c, &blocks, v.at, c->parent >= 0 ? c->b->ready : v.last);
}

/* ---- the algorithm ----------------------------------------------------------------------------------------------- */

static void treecoll_emit(treecoll *c)
{
    const gci_call *call = c->call;
    switch (call->coll) {
    case GCI_BARRIER:
        treecoll_barrier(c);
        break;
    case GCI_BCAST:
        treecoll_down(c, c->b->input, call->bytes, GCI_NO_STEP);
        break;
    case GCI_SCATTER:
        treecoll_scatter(c, &call->send, c->b->input, GCI_NO_STEP);
        break;
    case GCI_GATHER:
        treecoll_gather(c);
        break;
    case GCI_ALLGATHER:
        treecoll_allgather(c);
        break;
    case GCI_REDUCE_SCATTER:
        treecoll_reduce_scatter(c, treecoll_operands(c));
        break;
    default:
        treecoll_reduce(c, treecoll_operands(c));
    }
}

GCI void gci_tree_forget(gci_env *env, gci_tree_seen *seen)
{
    gci_tree_drop(env, &seen->made);
    gci_free(env, seen->sub);
    *seen = (gci_tree_seen){ .t = NULL };
}

/* The tree of this call, unless another rank's schedule has seen it. */
static int treecoll_see(treecoll *c)
{
    gci_tree_seen *seen = c->seen;
    size_t ranks = (size_t)c->call->ranks;
    if (!seen->t) {
        seen->sub = gci_alloc(c->b->env, ranks * (sizeof *seen->sub + 2 * sizeof *seen->order));
        if (!seen->sub)
            return GC_ERR_NOMEM;
        seen->order = (int32_t *)(seen->sub + ranks);
        c->sub = seen->sub;
        int err = treecoll_choose(c);
        if (err < 0) {
            gci_tree_forget(c->b->env, seen);
            return err;
        }
    }
    c->t = seen->t;
    c->sub = seen->sub;
    c->order = seen->order;
    c->list = seen->order + ranks;
    c->parent = c->t->parent[c->rank];
    return GC_OK;
}

GCI void gci_tree_algo(gci_builder *b)
{
    const gci_call *call = b->call;
    gci_tree_seen own = { .t = NULL };
    treecoll c = { .b = b, .call = call, .rank = call->rank, .seen = call->seen ? call->seen : &own, .up = GCI_NO_STEP,
                   .down = GCI_NO_STEP, .freed = GCI_NO_STEP, .taken = GCI_NO_STEP };
    bool rooted = call->coll == GCI_GATHER || call->coll == GCI_SCATTER;
    int err = treecoll_see(&c);
    if (err == GC_OK && rooted && !call->even && !call->known && !c.seen->flat)
        err = GC_ERR_UNSUPPORTED;
    else if (err == GC_OK && call->even && call->own > SIZE_MAX / 4 / (size_t)call->ranks)
        err = GC_ERR_NOMEM;             /* so that no sum of blocks overflows */
    if (err == GC_OK)
        treecoll_emit(&c);
    else
        b->error = err;
    gci_tree_forget(b->env, &own);
}
