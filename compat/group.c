/* group.c: groups: lists of ranks of the world.
 * SPDX-License-Identifier: MIT
 */
#include "mpi_int.h"

struct gcm_group gcm_group_empty = { .rank = MPI_UNDEFINED };

GCM MPI_Group gcm_group_new(int n)
{
    if (n == 0)
        return &gcm_group_empty;
    MPI_Group g = gcm_new(sizeof *g + (size_t)n * sizeof g->world[0]);
    if (!g)
        return NULL;
    g->refs = 1;
    g->n = n;
    g->rank = MPI_UNDEFINED;
    return g;
}

GCM void gcm_group_find(MPI_Group group)
{
    for (int i = 0; i < group->n; i++)
        if (group->world[i] == gcm_comm_world.rank)
            group->rank = i;
}

GCM void gcm_group_drop(MPI_Group group)
{
    if (group != &gcm_group_empty && --group->refs == 0)
        gcm_delete(group);
}

/* Where each rank of the world is in a group, or -1: ints to be freed; NULL: out of memory. */
static int *group_places(const struct gcm_group *g)
{
    size_t n = (size_t)gcm_comm_world.size;
    int *place = malloc((n + 1) * sizeof *place);
    for (size_t i = 0; place && i < n; i++)
        place[i] = -1;
    for (int i = 0; place && i < g->n; i++)
        place[g->world[i]] = i;
    return place;
}

/* The ranks of a that are (or are not) in b, in their order, behind those that out has. */
static void group_filter(MPI_Group out, const struct gcm_group *a, const int place_in_b[], bool in)
{
    for (int i = 0; i < a->n; i++)
        if ((place_in_b[a->world[i]] >= 0) == in)
            out->world[out->n++] = a->world[i];
}

/* `all` of a first, if so; then those of which that are (or are not) in the other. */
static int group_combine(const char *call, MPI_Group a, MPI_Group b, bool all, const struct gcm_group *which,
                         const struct gcm_group *other, bool in, MPI_Group *out)
{
    int *place = group_places(other);
    MPI_Group g = gcm_group_new(a->n + b->n);
    *out = g;
    if (place && g && g->n > 0) {
        g->n = all ? a->n : 0;
        memcpy(g->world, a->world, (size_t)g->n * sizeof g->world[0]);
        group_filter(g, which, place, in);
        gcm_group_find(g);
        if (g->n == 0) {
            gcm_group_drop(g);
            *out = &gcm_group_empty;
        }
    }
    free(place);
    if (place && g)
        return MPI_SUCCESS;
    if (g)
        gcm_group_drop(g);
    *out = MPI_GROUP_NULL;
    return gcm_error(NULL, call, MPI_ERR_NO_MEM, NULL);
}

int MPI_Group_union(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    if (!a || !b || !out)
        return GCM_FAIL(NULL, !out ? MPI_ERR_ARG : MPI_ERR_GROUP);
    return group_combine(__func__, a, b, true, b, a, false, out);
}

int MPI_Group_intersection(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    if (!a || !b || !out)
        return GCM_FAIL(NULL, !out ? MPI_ERR_ARG : MPI_ERR_GROUP);
    return group_combine(__func__, a, b, false, a, b, true, out);
}

int MPI_Group_difference(MPI_Group a, MPI_Group b, MPI_Group *out)
{
    if (!a || !b || !out)
        return GCM_FAIL(NULL, !out ? MPI_ERR_ARG : MPI_ERR_GROUP);
    return group_combine(__func__, a, b, false, a, b, false, out);
}

/* The listed ranks, each at most once; or all others. */
static int group_pick(const char *call, MPI_Group group, int n, const int ranks[], bool listed, MPI_Group *out)
{
    if (!group || !out || n < 0 || n > group->n || (n > 0 && !ranks))
        return gcm_error(NULL, call, !group ? MPI_ERR_GROUP : MPI_ERR_ARG, NULL);
    bool *is_listed = calloc((size_t)group->n + 1, sizeof *is_listed);
    MPI_Group g = is_listed ? gcm_group_new(listed ? n : group->n - n) : NULL;
    int class = g ? MPI_SUCCESS : MPI_ERR_NO_MEM, k = 0;
    for (int i = 0; !class && i < n; i++)
        if (ranks[i] < 0 || ranks[i] >= group->n || is_listed[ranks[i]])
            class = MPI_ERR_RANK;
        else
            is_listed[ranks[i]] = true;
    for (int i = 0; !class && listed && i < n; i++)
        g->world[i] = group->world[ranks[i]];
    for (int i = 0; !class && !listed && i < group->n; i++)
        if (!is_listed[i])
            g->world[k++] = group->world[i];
    free(is_listed);
    if (class && g)
        gcm_group_drop(g);
    else if (!class)
        gcm_group_find(g);
    *out = class ? MPI_GROUP_NULL : g;
    return class ? gcm_error(NULL, call, class, NULL) : MPI_SUCCESS;
}

int MPI_Group_incl(MPI_Group group, int n, const int ranks[], MPI_Group *out)
{
    return group_pick(__func__, group, n, ranks, true, out);
}

int MPI_Group_excl(MPI_Group group, int n, const int ranks[], MPI_Group *out)
{
    return group_pick(__func__, group, n, ranks, false, out);
}

/* Triples of first, last and step, written out. */
static int group_range(const char *call, MPI_Group group, int n, int ranges[][3], bool listed, MPI_Group *out)
{
    if (!group || n < 0 || (n > 0 && !ranges))
        return gcm_error(NULL, call, !group ? MPI_ERR_GROUP : MPI_ERR_ARG, NULL);
    int *ranks = malloc(((size_t)group->n + 1) * sizeof *ranks), k = 0;
    int class = ranks ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int i = 0; !class && i < n; i++) {
        const int *r = ranges[i];
        if (r[2] == 0)
            class = MPI_ERR_ARG;
        for (int64_t rank = r[0]; !class && (r[2] > 0 ? rank <= r[1] : rank >= r[1]); rank += r[2])
            if (k < group->n && rank >= 0 && rank < group->n)
                ranks[k++] = (int)rank;
            else
                class = MPI_ERR_RANK;
    }
    class = class ? gcm_error(NULL, call, class, NULL) : group_pick(call, group, k, ranks, listed, out);
    free(ranks);
    return class;
}

int MPI_Group_range_incl(MPI_Group group, int n, int ranges[][3], MPI_Group *out)
{
    return group_range(__func__, group, n, ranges, true, out);
}

int MPI_Group_range_excl(MPI_Group group, int n, int ranges[][3], MPI_Group *out)
{
    return group_range(__func__, group, n, ranges, false, out);
}

int MPI_Group_size(MPI_Group group, int *size)
{
    if (!group || !size)
        return GCM_FAIL(NULL, !group ? MPI_ERR_GROUP : MPI_ERR_ARG);
    *size = group->n;
    return MPI_SUCCESS;
}

int MPI_Group_rank(MPI_Group group, int *rank)
{
    if (!group || !rank)
        return GCM_FAIL(NULL, !group ? MPI_ERR_GROUP : MPI_ERR_ARG);
    *rank = group->rank;
    return MPI_SUCCESS;
}

int MPI_Group_translate_ranks(MPI_Group from, int n, const int ranks[], MPI_Group to, int out[])
{
    if (!from || !to || n < 0 || (n > 0 && (!ranks || !out)))
        return GCM_FAIL(NULL, !from || !to ? MPI_ERR_GROUP : MPI_ERR_ARG);
    int *place = group_places(to);
    int class = place ? MPI_SUCCESS : MPI_ERR_NO_MEM;
    for (int i = 0; !class && i < n; i++)
        if (ranks[i] == MPI_PROC_NULL)
            out[i] = MPI_PROC_NULL;
        else if (ranks[i] < 0 || ranks[i] >= from->n)
            class = MPI_ERR_RANK;
        else
            out[i] = place[from->world[ranks[i]]] >= 0 ? place[from->world[ranks[i]]] : MPI_UNDEFINED;
    free(place);
    return class ? GCM_FAIL(NULL, class) : MPI_SUCCESS;
}

int MPI_Group_compare(MPI_Group a, MPI_Group b, int *result)
{
    if (!a || !b || !result)
        return GCM_FAIL(NULL, !result ? MPI_ERR_ARG : MPI_ERR_GROUP);
    int *place = group_places(b);
    if (!place)
        return GCM_FAIL(NULL, MPI_ERR_NO_MEM);
    *result = a->n == b->n ? MPI_IDENT : MPI_UNEQUAL;
    for (int i = 0; i < a->n && *result != MPI_UNEQUAL; i++)
        *result = place[a->world[i]] < 0 ? MPI_UNEQUAL : place[a->world[i]] != i ? MPI_SIMILAR : *result;
    free(place);
    return MPI_SUCCESS;
}

int MPI_Group_free(MPI_Group *group)
{
    if (!group || !*group)
        return GCM_FAIL(NULL, MPI_ERR_GROUP);
    gcm_group_drop(*group);
    *group = MPI_GROUP_NULL;
    return MPI_SUCCESS;
}
