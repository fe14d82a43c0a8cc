/* local.c: the tree inside a cluster, around any of its members (pure).
 * SPDX-License-Identifier: MIT
 *
 * The members of a cluster stand in places, one after another, and between two neighbours is a *cut*: the further apart in
 * the network, the lower. Racks, hosts and what else the cluster paths name are then runs of places without a cut lower than
 * their own, and so is every subtree:
 *
 *     place        0   1   2   3   4   5   6       two hosts of three ranks, and a rank alone on its own, around top 4
 *     cut            9   9   3   9   9   3
 *     children     4: 0 3 5 6    0: 1 2            ranks of the top's host, and the first one of each other
 *
 * The top has as children the heads of all runs that lie beside it, at every level; the head of a run, its first place, has
 * those inside it. So nothing goes twice into a rack or a host (the composition of MPICH-G2: Karonis, de Supinski, Foster,
 * Gropp, Lusk, Bresnahan 2000), and no run but the top's own has anything in its middle: partial results can be combined in
 * the order of places at every rank.
 *
 * More than LOCAL_FLAT equals side by side get one more level, groups of about as many as there are groups; also where a
 * vector for each of them took more than LOCAL_FLAT_BYTES.
 */
#include "gridcomm_int.h"

enum { LOCAL_FLAT = 32,             /* one more level has each rank take or give a third of the messages, or less */
       LOCAL_FLAT_BYTES = 16 * 1024 };      /* take 131 us at 1 Gbit/s: with one more level two thirds less, and 50 us more */

GCI int gci_local_group(int parts, size_t bytes)
{
    int group = 1;
    bool flat = parts <= LOCAL_FLAT && bytes <= LOCAL_FLAT_BYTES / (size_t)parts;
    while (!flat && group * group < parts)
        group++;
    return group;
}

/* The parts of [first, end), whose lowest cut is between any two of them, are put in groups if they are many; and so on. */
static void local_divide(int32_t *cut, int first, int end, size_t bytes)
{
    int32_t lowest = INT32_MAX;
    int parts = 1, part = 0;
    for (int i = first + 1; i < end; i++) {
        parts = cut[i] < lowest ? 2 : parts + (cut[i] == lowest);
        lowest = cut[i] < lowest ? cut[i] : lowest;
    }
    if (parts == 1)
        return;
    int group = gci_local_group(parts, bytes);
    for (int i = first + 1, begin = first; i <= end; i++) {
        if (i < end && cut[i] != lowest)
            continue;
        local_divide(cut, begin, i, bytes);
        begin = i;
        if (i < end && ++part % group == 0 && group > 1)
            cut[i]--;
    }
}

GCI void gci_local_cuts(const gci_topo *topo, const int32_t *member, int first, int end, size_t bytes, int32_t *cut)
{
    for (int i = first + 1; i < end; i++)           /* two apart: between them is room for groups */
        cut[i] = 2 * topo->depth[gci_topo_common(topo, member[i - 1], member[i])] + 1;
    local_divide(cut, first, end, bytes);
}

static int32_t local_lowest(const int32_t *cut, int a, int b)
{
    int32_t lowest = INT32_MAX;
    for (int i = (a < b ? a : b) + 1; i <= (a < b ? b : a); i++)
        lowest = cut[i] < lowest ? cut[i] : lowest;
    return lowest;
}

/* From run to run, away from the node; those before it are found from the last to the first. */
static void local_children(const int32_t *cut, int place, gci_local_node *n)
{
    int32_t lowest = INT32_MAX;
    for (int end = place; end > n->first; ) {
        int begin = end - 1;
        for (lowest = cut[end] < lowest ? cut[end] : lowest; begin > n->first && cut[begin] > lowest; begin--)
            ;
        n->child[n->children++] = (gci_places){ begin, end };
        end = begin;
    }
    n->before = n->children;
    for (int i = 0, j = n->before - 1; i < j; i++, j--) {
        gci_places swap = n->child[i];
        n->child[i] = n->child[j];
        n->child[j] = swap;
    }
    lowest = INT32_MAX;
    for (int begin = place + 1; begin < n->end; ) {
        int end = begin + 1;
        for (lowest = cut[begin] < lowest ? cut[begin] : lowest; end < n->end && cut[end] > lowest; end++)
            ;
        n->child[n->children++] = (gci_places){ begin, end };
        begin = end;
    }
}

GCI void gci_local_node_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *n)
{
    int head = top;
    *n = (gci_local_node){ .top = top, .parent = -1, .first = first, .end = end, .child = n->child };
    while (head != place) {
        int32_t lowest = local_lowest(cut, head, place);
        int a = place, b = place + 1;
        while (a > n->first && cut[a] > lowest)
            a--;
        while (b < n->end && cut[b] > lowest)
            b++;
        n->parent = head;
        head = n->first = a;
        n->end = b;
    }
    local_children(cut, place, n);
}
