/* side.c: a buffer as a call of MPI describes it, made what gridcomm takes.
 * SPDX-License-Identifier: MIT
 *
 * Data without holes stay where they are. Others are packed into memory of the side's own, and unpacked from there when the
 * operation is complete; the types are kept until then.
 */
#include "mpi_int.h"

/* Of a block without elements the type does not matter: programs then give none to Alltoallw. */
static MPI_Datatype side_type(const gcm_side *s, int i)
{
    return !s->types ? s->type : s->counts[i] == 0 ? MPI_BYTE : s->types[i];
}

static size_t side_count(const gcm_side *s, int i) { return (size_t)(s->counts ? s->counts[i] : s->count); }

/* Where block i begins, in bytes from buf. */
static MPI_Aint side_place(const gcm_side *s, int i)
{
    if (s->displs)
        return s->types ? s->displs[i] : s->displs[i] * gcm_extent(s->type);
    return (MPI_Aint)i * s->count * gcm_extent(s->type);
}

static int side_check(const gcm_side *s)
{
    if (s->buf == MPI_IN_PLACE)         /* where there is no other side */
        return MPI_ERR_BUFFER;
    if (!s->types && gcm_type_bad(s->type))
        return MPI_ERR_TYPE;
    if (!s->counts)
        return s->count < 0 ? MPI_ERR_COUNT : MPI_SUCCESS;
    if (s->blocks > 0 && !s->displs)
        return MPI_ERR_ARG;
    for (int i = 0; i < s->blocks; i++)
        if (gcm_type_bad(side_type(s, i)) || s->counts[i] < 0)
            return s->counts[i] < 0 ? MPI_ERR_COUNT : MPI_ERR_TYPE;
    return MPI_SUCCESS;
}

/* Sizes, and offsets from the lowest byte of data; false if something has holes. */
static bool side_list(gcm_side *s)
{
    MPI_Aint low = 0;
    bool any = false, dense = true;
    for (int i = 0; i < s->blocks; i++) {
        MPI_Datatype type = side_type(s, i);
        MPI_Aint at = side_place(s, i) + type->low;
        s->sizes[i] = side_count(s, i) * type->size;
        dense = dense && gcm_is_dense(type, side_count(s, i));
        if (s->sizes[i] > 0 && (!any || at < low))
            low = at;
        any |= s->sizes[i] > 0;
    }
    for (int i = 0; i < s->blocks; i++)
        s->offsets[i] = s->sizes[i] ? (size_t)(side_place(s, i) + side_type(s, i)->low - low) : 0;
    s->at = gcm_at(s->buf, low);
    return dense;
}

/* Between buf and temp: blocks one after another, up to bytes. */
static void side_move(const gcm_side *s, bool pack, size_t bytes)
{
    gcm_cursor c = { .packed = s->temp, .left = bytes, .pack = pack };
    if (!s->counts) {
        gcm_type_walk(s->type, s->buf, (size_t)s->blocks * (size_t)s->count, &c);
        return;
    }
    for (int i = 0; i < s->blocks; i++) {
        c = (gcm_cursor){ .packed = (char *)s->temp + s->offsets[i], .left = s->sizes[i], .pack = pack };
        gcm_type_walk(side_type(s, i), gcm_at(s->buf, side_place(s, i)), side_count(s, i), &c);
    }
}

static int side_pack(gcm_side *s, size_t bytes, int how)
{
    s->temp = malloc(bytes + 1);
    if (!s->temp)
        return MPI_ERR_NO_MEM;
    s->at = s->temp;
    if (how & GCM_LOAD)
        side_move(s, true, bytes);
    for (int i = 0; i < (s->types ? s->blocks : 1); i++)
        gcm_type_keep(side_type(s, i));
    return MPI_SUCCESS;
}

static int side_open_listed(gcm_side *s, int how)
{
    size_t all = 0;
    s->sizes = malloc(2 * (size_t)s->blocks * sizeof *s->sizes + 1);
    if (!s->sizes)
        return MPI_ERR_NO_MEM;
    s->offsets = s->sizes + s->blocks;
    if (side_list(s))
        return MPI_SUCCESS;
    for (int i = 0; i < s->blocks; i++) {
        s->offsets[i] = all;
        all += s->sizes[i];
    }
    int class = side_pack(s, all, how);
    if (class) {
        free(s->sizes);
        s->sizes = NULL;
    }
    return class;
}

GCM int gcm_side_open(gcm_side *s, int how)
{
    int class = side_check(s);
    if (class || s->counts)
        return class ? class : side_open_listed(s, how);
    size_t all = (size_t)s->blocks * (size_t)s->count;
    s->bytes = (size_t)s->count * s->type->size;
    s->at = gcm_at(s->buf, s->type->low);
    return gcm_is_dense(s->type, all) ? MPI_SUCCESS : side_pack(s, (size_t)s->blocks * s->bytes, how);
}

GCM void gcm_side_close(gcm_side *s, bool store, size_t bytes)
{
    if (s->temp) {
        size_t all = (size_t)s->blocks * s->bytes;
        if (store)
            side_move(s, false, bytes < all ? bytes : all);
        for (int i = 0; i < (s->types ? s->blocks : 1); i++)
            gcm_type_drop(side_type(s, i));
    }
    free(s->temp);
    free(s->sizes);
    s->temp = NULL;
    s->sizes = NULL;
}
