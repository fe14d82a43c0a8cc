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
 * A long vector is streamed through another tree, which is deeper, but where no NIC has to send it often: on each side and level
 * a node has one child, or two, with half of the runs each, if these are all. One of very many segments goes from host to host, so
 * that each NIC sends it once: from the top to those of its rack, then to the others, from the last place to the first. That order
 * is the same for all tops: so what goes first on its way from one does not wait for what comes from another, which waits for it.
 *
 * More than LOCAL_FLAT equals side by side get one more level, groups of about as many as there are groups; also where a
 * vector for each of them took more than LOCAL_FLAT_BYTES.
 */
#include "gridcomm_int.h"

#include <stdlib.h>

enum { LOCAL_FLAT = 32,             /* one more level has each rank take or give a third of the messages, or less */
       LOCAL_FLAT_BYTES = 16 * 1024,        /* take 131 us at 1 Gbit/s: with one more level two thirds less, and 50 us more */
       LOCAL_HOST = INT32_MAX - 1 };        /* the cut between ranks of one host */

GCI int gci_local_group(int parts, size_t bytes)
{
    int group = 1;
    bool flat = parts <= LOCAL_FLAT && bytes <= LOCAL_FLAT_BYTES / (size_t)parts;
    while (!flat && group * group < parts)
        group++;
    return group;
}

/* The parts of [first, end), whose lowest cut is between any two of them, are put in groups if they are many; and so on. */
GCI void gci_local_groups(int first, int end, size_t bytes, int32_t *cut)
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
        gci_local_groups(begin, i, bytes, cut);
        begin = i;
        if (i < end && ++part % group == 0 && group > 1)
            cut[i]--;
    }
}

GCI void gci_local_cuts(const gci_topo *topo, const int32_t *member, int first, int end, int32_t *cut)
{
    for (int i = first + 1; i < end; i++)           /* two apart: between them is room for groups */
        cut[i] = topo->of[member[i - 1]] == topo->of[member[i]] ? LOCAL_HOST
               : 2 * topo->depth[gci_topo_common(topo, member[i - 1], member[i])] + 1;
}

static int32_t local_lowest(const int32_t *cut, int a, int b)
{
    int32_t lowest = INT32_MAX;
    for (int i = (a < b ? a : b) + 1; i <= (a < b ? b : a); i++)
        lowest = cut[i] < lowest ? cut[i] : lowest;
    return lowest;
}

/* How far the runs reach, from `begin` up or from `end` down, that no cut lower than `lowest` parts; each: the first alone. */
static int local_up(const int32_t *cut, int begin, int limit, int32_t lowest, bool each)
{
    int end = begin + 1;
    while (end < limit && cut[end] >= lowest + each)
        end++;
    return end;
}

static int local_down(const int32_t *cut, int end, int limit, int32_t lowest, bool each)
{
    int begin = end - 1;
    while (begin > limit && cut[begin] >= lowest + each)
        begin--;
    return begin;
}

/* From run to run, away from the node; those before it are found from the last to the first. each: else those of a level go
 * together. */
static void local_children(const int32_t *cut, int place, bool each, gci_local_node *n)
{
    int32_t lowest = INT32_MAX - 1;
    n->children = 0;
    for (int end = place, begin; end > n->first; end = begin) {
        lowest = cut[end] < lowest ? cut[end] : lowest;
        begin = local_down(cut, end, n->first, lowest, each);
        n->child[n->children++] = (gci_places){ begin, end };
    }
    n->before = n->children;
    for (int i = 0, j = n->before - 1; i < j; i++, j--) {
        gci_places swap = n->child[i];
        n->child[i] = n->child[j];
        n->child[j] = swap;
    }
    lowest = INT32_MAX - 1;
    for (int begin = place + 1, end; begin < n->end; begin = end) {
        lowest = cut[begin] < lowest ? cut[begin] : lowest;
        end = local_up(cut, begin, n->end, lowest, each);
        n->child[n->children++] = (gci_places){ begin, end };
    }
}

GCI void gci_local_node_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *n)
{
    int head = top;
    *n = (gci_local_node){ .top = top, .parent = -1, .first = first, .end = end, .child = n->child };
    while (head != place) {
        int32_t lowest = local_lowest(cut, head, place);
        n->parent = head;
        head = n->first = local_down(cut, place + 1, n->first, lowest, true);
        n->end = local_up(cut, place, n->end, lowest, true);
    }
    local_children(cut, place, true, n);
}

/* ---- streams ------------------------------------------------------------------------------------------------------ */

/* Where one of the runs of [first, end) begins that are parted by `lowest`, about in the middle; `end`: there is but one. */
static int local_halve(const int32_t *cut, int first, int end, int32_t lowest)
{
    int middle = first + (end - first) / 2, best = end;
    for (int i = first + 1; i < end; i++)
        if (cut[i] == lowest && (best == end || abs(i - middle) < abs(best - middle)))
            best = i;
    return best;
}

static void local_stream_children(const int32_t *cut, int place, gci_local_node *n)
{
    local_children(cut, place, false, n);
    if (n->children != 1)
        return;
    gci_places *all = &n->child[0];
    int middle = local_halve(cut, all->first, all->end, n->before ? cut[place] : cut[all->first]);
    if (middle == all->end)
        return;
    n->child[1] = (gci_places){ middle, all->end };
    all->end = middle;
    n->children = 2;
    n->before *= 2;
}

GCI void gci_local_stream_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *n)
{
    int head = top;
    *n = (gci_local_node){ .top = top, .parent = -1, .first = first, .end = end, .child = n->child };
    for (;;) {
        local_stream_children(cut, head, n);
        if (head == place)
            return;
        int i = 0;
        while (place >= n->child[i].end || place < n->child[i].first)
            i++;
        n->parent = head;
        head = n->first = n->child[i].first;
        n->end = n->child[i].end;
    }
}

/* ---- chains ------------------------------------------------------------------------------------------------------- */

/* The host of a place; the runs of a rack, a cluster, around it. */
static gci_places local_host(const int32_t *cut, int first, int end, int place)
{
    return (gci_places){ local_down(cut, place + 1, first, LOCAL_HOST, false), local_up(cut, place, end, LOCAL_HOST, false) };
}

static gci_places local_wider(const int32_t *cut, int first, int end, gci_places run)
{
    int32_t before = run.first > first ? cut[run.first] : INT32_MIN, behind = run.end < end ? cut[run.end] : INT32_MIN;
    int32_t lowest = before > behind ? before : behind;
    return (gci_places){ local_down(cut, run.first + 1, first, lowest, false), local_up(cut, run.end - 1, end, lowest, false) };
}

/* From the last to the first. */
static int local_hosts(const int32_t *cut, int first, int end, gci_places *host)
{
    int n = 0;
    for (int at = end; at > first; at = host[n++].first)
        host[n] = local_host(cut, first, end, at - 1);
    return n;
}

/* All hosts in the order of the chain. Returns how many. */
static int local_chain(const int32_t *cut, int first, int end, int top, gci_places *host)
{
    int n = 1;
    host[0] = local_host(cut, first, end, top);
    for (gci_places run = host[0], wider; run.first > first || run.end < end; run = wider) {
        wider = local_wider(cut, first, end, run);
        n += local_hosts(cut, run.end, wider.end, host + n);
        n += local_hosts(cut, wider.first, run.first, host + n);
    }
    return n;
}

GCI int gci_local_chain_end(const int32_t *cut, int first, int end, int top)
{
    gci_places run = local_host(cut, first, end, top), wider;
    int last = top;
    for (; run.first > first || run.end < end; run = wider) {
        wider = local_wider(cut, first, end, run);
        last = wider.first < run.first ? wider.first : run.end;
    }
    return last;
}

GCI void gci_local_chain_at(const int32_t *cut, int first, int end, int place, int top, gci_local_node *n)
{
    int hosts = local_chain(cut, first, end, top, n->child), at = 0, left = end - first;
    for (; place < n->child[at].first || place >= n->child[at].end; at++)
        left -= n->child[at].end - n->child[at].first;
    gci_places own = n->child[at], next = at + 1 < hosts ? n->child[at + 1] : own;
    int entry = at == 0 ? top : own.first, above = at == 0 ? -1 : at == 1 ? top : n->child[at - 1].first;
    gci_local_stream_at(cut, own.first, own.end, place, entry, n);
    n->top = top;
    left -= own.end - own.first;
    if (place != entry)
        return;
    n->parent = above;
    if (left > 0)
        n->child[n->children++] = (gci_places){ next.first, next.first + left };
}
