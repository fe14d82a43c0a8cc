/* comm.c: communicators: gridcomm's, with their group, error handler, topology and name.
 * SPDX-License-Identifier: MIT
 *
 * A communicator is freed when its handle is and no request uses it any more: gridcomm would refuse before.
 */
#include "mpi_int.h"

#include <stdio.h>

struct gcm_comm gcm_comm_world, gcm_comm_self;

static int comm_group(MPI_Comm c)
{
    int *ranks = malloc((size_t)c->size * sizeof *ranks);
    c->group = gcm_group_new(c->size);
    for (int i = 0; ranks && i < c->size; i++)
        ranks[i] = i;
    gc_comm *world = gcm_comm_world.gc ? gcm_comm_world.gc : c->gc;
    int err = ranks && c->group ? gc_comm_translate(c->gc, ranks, c->size, world, c->group->world) : GC_ERR_NOMEM;
    free(ranks);
    if (!err)
        c->group->rank = c->rank;
    return err ? gcm_class(err) : MPI_SUCCESS;
}

GCM int gcm_comm_open(MPI_Comm comm, gc_comm *gc, const char *name)
{
    comm->gc = gc;
    comm->refs = 1;
    comm->rank = gc_rank(gc);
    comm->size = gc_size(gc);
    comm->handler = MPI_ERRORS_ARE_FATAL;
    snprintf(comm->name, sizeof comm->name, "%s", name);
    int class = comm_group(comm);
    if (class)
        gcm_comm_close(comm);
    return class;
}

GCM void gcm_comm_close(MPI_Comm comm)
{
    if (comm->group)
        gcm_group_drop(comm->group);
    if (comm->handler)
        gcm_errhandler_drop(comm->handler);
    if (comm->cart && --comm->cart->refs == 0)
        gcm_delete(comm->cart);
    comm->group = NULL;
    comm->handler = NULL;
    comm->gc = NULL;
}

GCM void gcm_comm_drop(MPI_Comm comm)
{
    if (comm == MPI_COMM_WORLD || comm == MPI_COMM_SELF || --comm->refs > 0)
        return;
    gc_comm_free(comm->gc);
    gcm_comm_close(comm);
    gcm_delete(comm);
}

/* What gridcomm made from parent, as a handle. gc NULL: this rank is not in it. */
static int comm_wrap(const char *call, MPI_Comm parent, int err, gc_comm *gc, MPI_Comm *out)
{
    *out = MPI_COMM_NULL;
    if (err || !gc)
        return gcm_gc_error(parent, call, err);
    MPI_Comm c = gcm_new(sizeof *c);
    int class = c ? gcm_comm_open(c, gc, "") : MPI_ERR_NO_MEM;
    if (class) {
        gc_comm_free(gc);
        if (c)
            gcm_delete(c);
        return gcm_error(parent, call, class, NULL);
    }
    c->handler = gcm_errhandler_of(parent);
    *out = c;
    return MPI_SUCCESS;
}

int MPI_Comm_rank(MPI_Comm comm, int *rank)
{
    if (gcm_comm_bad(comm) || !rank)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *rank = comm->rank;
    return MPI_SUCCESS;
}

int MPI_Comm_size(MPI_Comm comm, int *size)
{
    if (gcm_comm_bad(comm) || !size)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *size = comm->size;
    return MPI_SUCCESS;
}

int MPI_Comm_dup(MPI_Comm comm, MPI_Comm *out)
{
    gc_comm *gc = NULL;
    if (gcm_comm_bad(comm) || !out)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    int err = gc_comm_dup(comm->gc, &gc), class = comm_wrap(__func__, comm, err, gc, out);
    if (!class && comm->cart) {
        comm->cart->refs++;
        (*out)->cart = comm->cart;
    }
    int code = class ? MPI_SUCCESS : gcm_attrs_copy(comm, *out);
    if (!code)
        return class;
    gcm_attrs_end(*out);
    gcm_comm_drop(*out);
    *out = MPI_COMM_NULL;
    return GCM_FAIL(comm, code);
}

GCM int gcm_comm_split(const char *call, MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    gc_comm *gc = NULL;
    int err = gc_comm_split(comm->gc, color == MPI_UNDEFINED ? GC_UNDEFINED : color, key, &gc);
    return comm_wrap(call, comm, err, gc, out);
}

int MPI_Comm_split(MPI_Comm comm, int color, int key, MPI_Comm *out)
{
    if (gcm_comm_bad(comm) || !out || (color < 0 && color != MPI_UNDEFINED))
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    return gcm_comm_split(__func__, comm, color, key, out);
}

/* Those on one host: the colour is the first rank of it. */
int MPI_Comm_split_type(MPI_Comm comm, int type, int key, MPI_Info info, MPI_Comm *out)
{
    int color = 0;
    (void)info;
    if (gcm_comm_bad(comm) || !out || (type != MPI_COMM_TYPE_SHARED && type != MPI_UNDEFINED))
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    while (type != MPI_UNDEFINED && strcmp(gc_host(comm->gc, color), gc_host(comm->gc, comm->rank)) != 0)
        color++;
    return gcm_comm_split(__func__, comm, type == MPI_UNDEFINED ? type : color, key, out);
}

/* Of the members of a group, of whom each calls. */
static int comm_create(const char *call, MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out)
{
    gc_comm *gc = NULL;
    if (gcm_comm_bad(comm) || !group || !out)
        return gcm_error(comm, call, gcm_comm_bad(comm) ? MPI_ERR_COMM : !group ? MPI_ERR_GROUP : MPI_ERR_ARG, NULL);
    if (tag < 0 || tag > GC_TAG_MAX)
        return gcm_error(comm, call, MPI_ERR_TAG, NULL);
    if (group->rank == MPI_UNDEFINED) {
        *out = MPI_COMM_NULL;
        return MPI_SUCCESS;
    }
    int *ranks = malloc((size_t)group->n * sizeof *ranks);
    int err = ranks ? gc_comm_translate(gcm_comm_world.gc, group->world, group->n, comm->gc, ranks) : GC_ERR_NOMEM;
    for (int i = 0; !err && i < group->n; i++)
        if (ranks[i] < 0) {
            free(ranks);
            return gcm_error(comm, call, MPI_ERR_GROUP, "a rank of the group is not in the communicator");
        }
    if (!err)
        err = gc_comm_create_tagged(comm->gc, ranks, group->n, tag, &gc);
    free(ranks);
    return comm_wrap(call, comm, err, gc, out);
}

int MPI_Comm_create(MPI_Comm comm, MPI_Group group, MPI_Comm *out) { return comm_create(__func__, comm, group, 0, out); }

int MPI_Comm_create_group(MPI_Comm comm, MPI_Group group, int tag, MPI_Comm *out)
{
    return comm_create(__func__, comm, group, tag, out);
}

int MPI_Comm_compare(MPI_Comm a, MPI_Comm b, int *result)
{
    if (gcm_comm_bad(a) || gcm_comm_bad(b) || !result)
        return GCM_FAIL(NULL, result ? MPI_ERR_COMM : MPI_ERR_ARG);
    int err = MPI_Group_compare(a->group, b->group, result);
    if (!err && a != b && *result == MPI_IDENT)
        *result = MPI_CONGRUENT;
    return err;
}

int MPI_Comm_free(MPI_Comm *comm)
{
    if (!comm || gcm_comm_bad(*comm) || *comm == MPI_COMM_WORLD || *comm == MPI_COMM_SELF)
        return GCM_FAIL(NULL, MPI_ERR_COMM);
    int code = gcm_attrs_end(*comm);
    if (code)
        return GCM_FAIL(*comm, code);
    gcm_comm_drop(*comm);
    *comm = MPI_COMM_NULL;
    return MPI_SUCCESS;
}

int MPI_Comm_set_name(MPI_Comm comm, const char *name)
{
    if (gcm_comm_bad(comm) || !name)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    snprintf(comm->name, sizeof comm->name, "%s", name);
    return MPI_SUCCESS;
}

int MPI_Comm_get_name(MPI_Comm comm, char *name, int *length)
{
    if (gcm_comm_bad(comm) || !name || !length)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *length = snprintf(name, MPI_MAX_OBJECT_NAME, "%s", comm->name);
    return MPI_SUCCESS;
}

int MPI_Comm_test_inter(MPI_Comm comm, int *flag)
{
    if (gcm_comm_bad(comm) || !flag)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *flag = 0;
    return MPI_SUCCESS;
}

int MPI_Comm_group(MPI_Comm comm, MPI_Group *group)
{
    if (gcm_comm_bad(comm) || !group)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    comm->group->refs++;
    *group = comm->group;
    return MPI_SUCCESS;
}
