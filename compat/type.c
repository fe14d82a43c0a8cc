/* type.c: data types: where data lie, and packing them where they have holes.
 * SPDX-License-Identifier: MIT
 *
 * A type is a list of parts, each of which repeats another type: blocks of elements at a stride. A vector has one part, an
 * indexed type or a struct one for each entry, a subarray is a nest of vectors. So a type takes memory in proportion to the
 * arguments it was made of, whatever it describes.
 *
 * Most types that programs make have no holes (rows, structs of doubles): these are `dense`, and then nothing is ever copied.
 * Bounds follow the standard's typemaps (MPI 3.1, 4.1): those that are set once (resized, MPI_LB, MPI_UB) count alone in all
 * types that are made of them. A part without data counts for the bounds, at its place, as in other MPIs; one without elements
 * does not.
 */
#include "mpi_int.h"

#include <complex.h>
#include <stdio.h>
#include <wchar.h>

/* ---- predefined -------------------------------------------------------------------------------------------------- */

#define BASIC(symbol, label, c_type, what, code) \
    struct gcm_type symbol = { .size = sizeof(c_type), .align = _Alignof(c_type), .basics = 1, .ub = sizeof(c_type), \
                               .high = sizeof(c_type), .dense = true, .committed = true, .kind = (what), .gc = (code), \
                               .name = (label) }
#define INTEGER(symbol, label, c_type) \
    BASIC(symbol, label, c_type, GCM_INTEGER, \
          (c_type)-1 < (c_type)1 ? (sizeof(c_type) == 1 ? GC_INT8 : sizeof(c_type) == 2 ? GC_INT16 : \
                                    sizeof(c_type) == 4 ? GC_INT32 : GC_INT64) \
                                 : (sizeof(c_type) == 1 ? GC_UINT8 : sizeof(c_type) == 2 ? GC_UINT16 : \
                                    sizeof(c_type) == 4 ? GC_UINT32 : GC_UINT64))

INTEGER(gcm_char, "MPI_CHAR", char);
INTEGER(gcm_signed_char, "MPI_SIGNED_CHAR", signed char);
INTEGER(gcm_unsigned_char, "MPI_UNSIGNED_CHAR", unsigned char);
INTEGER(gcm_short, "MPI_SHORT", short);
INTEGER(gcm_unsigned_short, "MPI_UNSIGNED_SHORT", unsigned short);
INTEGER(gcm_int, "MPI_INT", int);
INTEGER(gcm_unsigned, "MPI_UNSIGNED", unsigned);
INTEGER(gcm_long, "MPI_LONG", long);
INTEGER(gcm_unsigned_long, "MPI_UNSIGNED_LONG", unsigned long);
INTEGER(gcm_long_long, "MPI_LONG_LONG_INT", long long);
INTEGER(gcm_unsigned_long_long, "MPI_UNSIGNED_LONG_LONG", unsigned long long);
INTEGER(gcm_wchar, "MPI_WCHAR", wchar_t);
INTEGER(gcm_int8, "MPI_INT8_T", int8_t);
INTEGER(gcm_int16, "MPI_INT16_T", int16_t);
INTEGER(gcm_int32, "MPI_INT32_T", int32_t);
INTEGER(gcm_int64, "MPI_INT64_T", int64_t);
INTEGER(gcm_uint8, "MPI_UINT8_T", uint8_t);
INTEGER(gcm_uint16, "MPI_UINT16_T", uint16_t);
INTEGER(gcm_uint32, "MPI_UINT32_T", uint32_t);
INTEGER(gcm_uint64, "MPI_UINT64_T", uint64_t);
INTEGER(gcm_aint, "MPI_AINT", MPI_Aint);
INTEGER(gcm_count, "MPI_COUNT", MPI_Count);
INTEGER(gcm_offset, "MPI_OFFSET", MPI_Offset);
BASIC(gcm_byte, "MPI_BYTE", unsigned char, GCM_BYTES, GC_UINT8);
BASIC(gcm_packed, "MPI_PACKED", unsigned char, GCM_NO_KIND, 0);
BASIC(gcm_c_bool, "MPI_C_BOOL", _Bool, GCM_LOGICAL, GC_UINT8);
BASIC(gcm_float, "MPI_FLOAT", float, GCM_FLOATING, GC_FLOAT);
BASIC(gcm_double, "MPI_DOUBLE", double, GCM_FLOATING, GC_DOUBLE);
BASIC(gcm_long_double, "MPI_LONG_DOUBLE", long double, GCM_LONG_DOUBLE, 0);
BASIC(gcm_c_float_complex, "MPI_C_FLOAT_COMPLEX", float complex, GCM_COMPLEX, 0);
BASIC(gcm_c_double_complex, "MPI_C_DOUBLE_COMPLEX", double complex, GCM_COMPLEX, 0);
BASIC(gcm_c_long_double_complex, "MPI_C_LONG_DOUBLE_COMPLEX", long double complex, GCM_COMPLEX, 0);
struct gcm_type gcm_lb = { .align = 1, .dense = true, .committed = true, .lb_set = true, .name = "MPI_LB" };
struct gcm_type gcm_ub = { .align = 1, .dense = true, .committed = true, .ub_set = true, .name = "MPI_UB" };

/* A value and an index, as a C struct has them. */
#define PAIR(symbol, label, c_type, value_type) \
    struct symbol##_pair { c_type value; int index; }; \
    static gcm_part symbol##_parts[2] = { \
        { .type = &(value_type), .blocks = 1, .length = 1 }, \
        { .type = &gcm_int, .at = offsetof(struct symbol##_pair, index), .blocks = 1, .length = 1 } }; \
    struct gcm_type symbol = { .size = sizeof(c_type) + sizeof(int), .align = _Alignof(struct symbol##_pair), .basics = 2, \
                               .ub = sizeof(struct symbol##_pair), \
                               .high = offsetof(struct symbol##_pair, index) + sizeof(int), \
                               .dense = offsetof(struct symbol##_pair, index) == sizeof(c_type), .committed = true, \
                               .kind = GCM_PAIR, .parts = 2, .part = symbol##_parts, .name = (label) }

PAIR(gcm_float_int, "MPI_FLOAT_INT", float, gcm_float);
PAIR(gcm_double_int, "MPI_DOUBLE_INT", double, gcm_double);
PAIR(gcm_long_int, "MPI_LONG_INT", long, gcm_long);
PAIR(gcm_2int, "MPI_2INT", int, gcm_int);
PAIR(gcm_short_int, "MPI_SHORT_INT", short, gcm_short);
PAIR(gcm_long_double_int, "MPI_LONG_DOUBLE_INT", long double, gcm_long_double);

/* ---- making ------------------------------------------------------------------------------------------------------ */

GCM void gcm_type_keep(MPI_Datatype type)
{
    if (type->derived)
        type->refs++;
}

GCM void gcm_type_drop(MPI_Datatype type)
{
    if (!type->derived || --type->refs > 0)
        return;
    for (int i = 0; i < type->parts; i++)
        gcm_type_drop(type->part[i].type);
    gcm_delete(type);
}

/* A bound of a part: those that were set count alone, of them the outermost. */
static void type_bound(MPI_Aint *bound, bool *is_set, MPI_Aint other, bool other_is_set, bool outer, bool first)
{
    if (first || other_is_set > *is_set || (other_is_set == *is_set && outer))
        *bound = other;
    *is_set |= other_is_set;
}

/* How far the elements of a part reach from the first one, down and up. */
static void part_reach(const gcm_part *p, MPI_Aint *down, MPI_Aint *up)
{
    MPI_Aint within = (MPI_Aint)(p->length - 1) * gcm_extent(p->type), across = (MPI_Aint)(p->blocks - 1) * p->stride;
    *down = p->at + (within < 0 ? within : 0) + (across < 0 ? across : 0);
    *up = p->at + (within > 0 ? within : 0) + (across > 0 ? across : 0);
}

/* Does a part begin where the data before it have ended, and is itself without holes? */
static bool part_follows(const struct gcm_type *t, const gcm_part *p)
{
    const struct gcm_type *e = p->type;
    return gcm_is_dense(e, p->length) && (p->blocks == 1 || p->stride == (MPI_Aint)(p->length * e->size)) &&
           (t->size == 0 || p->at + e->low == t->low + (MPI_Aint)t->size);
}

typedef struct type_seen { bool low, high; } type_seen;         /* has it a bound yet? */

static void type_add(struct gcm_type *t, const gcm_part *p, type_seen *seen)
{
    const struct gcm_type *e = p->type;
    MPI_Aint down, up;
    if (p->blocks == 0 || p->length == 0)
        return;
    part_reach(p, &down, &up);
    if (e != &gcm_ub) {
        type_bound(&t->lb, &t->lb_set, down + e->lb, e->lb_set, down + e->lb < t->lb, !seen->low);
        seen->low = true;
    }
    if (e != &gcm_lb) {
        type_bound(&t->ub, &t->ub_set, up + e->ub, e->ub_set, up + e->ub > t->ub, !seen->high);
        seen->high = true;
    }
    if (e->size == 0)
        return;
    t->dense = t->dense && part_follows(t, p);
    if (t->size == 0 || down + e->low < t->low)
        t->low = down + e->low;
    if (t->size == 0 || up + e->high > t->high)
        t->high = up + e->high;
    t->size += p->blocks * p->length * e->size;
    t->basics += p->blocks * p->length * e->basics;
    if (e->align > t->align)
        t->align = e->align;
}

/* A type of n parts to be filled in by the caller, then given to type_finish. */
static MPI_Datatype type_new(int n)
{
    MPI_Datatype t = gcm_new(sizeof *t + (size_t)n * sizeof *t->part);
    if (!t)
        return NULL;
    t->align = 1;
    t->dense = t->derived = true;
    t->refs = 1;
    t->name = "";
    t->parts = n;
    t->part = (gcm_part *)(t + 1);
    return t;
}

static int type_finish(const char *call, MPI_Datatype t, MPI_Datatype *out)
{
    type_seen seen = { 0 };
    *out = t;
    if (!t)
        return gcm_error(NULL, call, MPI_ERR_NO_MEM, NULL);
    for (int i = 0; i < t->parts; i++) {
        gcm_type_keep(t->part[i].type);
        type_add(t, &t->part[i], &seen);
    }
    return MPI_SUCCESS;
}

static int type_strided(const char *call, int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *out)
{
    MPI_Datatype t = type_new(1);
    if (t)
        t->part[0] = (gcm_part){ .type = type, .stride = stride, .blocks = (size_t)count, .length = (size_t)length };
    return type_finish(call, t, out);
}

/* Entries: length or lengths[], type or types[], at bytes[] or displs[] extents. */
typedef struct type_list {
    int n, length;
    const int *lengths, *displs;
    const MPI_Aint *bytes;
    MPI_Datatype type;
    const MPI_Datatype *types;
} type_list;

static int type_listed(const char *call, const type_list *l, MPI_Datatype *out)
{
    for (int i = 0; i < l->n; i++)
        if ((l->lengths ? l->lengths[i] : l->length) < 0)
            return gcm_error(NULL, call, MPI_ERR_ARG, "a negative length");
        else if (!(l->types ? l->types[i] : l->type))
            return gcm_error(NULL, call, MPI_ERR_TYPE, NULL);
    MPI_Datatype t = type_new(l->n);
    for (int i = 0; t && i < l->n; i++) {
        MPI_Datatype type = l->types ? l->types[i] : l->type;
        t->part[i] = (gcm_part){ .type = type, .blocks = 1, .length = (size_t)(l->lengths ? l->lengths[i] : l->length),
                                 .at = l->bytes ? l->bytes[i] : l->displs[i] * gcm_extent(type) };
    }
    return type_finish(call, t, out);
}

#define LISTED(check, ...) \
    if (count < 0 || !(out) || (count > 0 && !(check))) \
        return GCM_FAIL(NULL, count < 0 ? MPI_ERR_COUNT : MPI_ERR_ARG); \
    return type_listed(__func__, &(type_list){ .n = count, __VA_ARGS__ }, out)

int MPI_Type_contiguous(int count, MPI_Datatype type, MPI_Datatype *out)
{
    if (count < 0 || !type || !out)
        return GCM_FAIL(NULL, count < 0 ? MPI_ERR_COUNT : !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    return type_strided(__func__, 1, count, 0, type, out);
}

int MPI_Type_vector(int count, int length, int stride, MPI_Datatype type, MPI_Datatype *out)
{
    if (count < 0 || length < 0 || !type || !out)
        return GCM_FAIL(NULL, count < 0 ? MPI_ERR_COUNT : !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    return type_strided(__func__, count, length, stride * gcm_extent(type), type, out);
}

int MPI_Type_create_hvector(int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *out)
{
    if (count < 0 || length < 0 || !type || !out)
        return GCM_FAIL(NULL, count < 0 ? MPI_ERR_COUNT : !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    return type_strided(__func__, count, length, stride, type, out);
}

int MPI_Type_indexed(int count, const int lengths[], const int displs[], MPI_Datatype type, MPI_Datatype *out)
{
    LISTED(lengths && displs, .lengths = lengths, .displs = displs, .type = type);
}

int MPI_Type_create_hindexed(int count, const int lengths[], const MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out)
{
    LISTED(lengths && displs, .lengths = lengths, .bytes = displs, .type = type);
}

int MPI_Type_create_indexed_block(int count, int length, const int displs[], MPI_Datatype type, MPI_Datatype *out)
{
    LISTED(displs, .length = length, .displs = displs, .type = type);
}

int MPI_Type_create_hindexed_block(int count, int length, const MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out)
{
    LISTED(displs, .length = length, .bytes = displs, .type = type);
}

/* Padded at the end as a C struct, unless its upper bound was set. */
int MPI_Type_create_struct(int count, const int lengths[], const MPI_Aint displs[], const MPI_Datatype types[],
                           MPI_Datatype *out)
{
    const type_list list = { .n = count, .lengths = lengths, .bytes = displs, .types = types };
    if (count < 0 || !out || (count > 0 && (!lengths || !displs || !types)))
        return GCM_FAIL(NULL, count < 0 ? MPI_ERR_COUNT : MPI_ERR_ARG);
    int err = type_listed(__func__, &list, out);
    if (err || (*out)->ub_set)
        return err;
    MPI_Aint over = gcm_extent(*out) % (MPI_Aint)(*out)->align;
    (*out)->ub += over ? (MPI_Aint)(*out)->align - over : 0;
    return MPI_SUCCESS;
}

/* Sets bounds in a type that nobody has seen yet. */
static void type_resize(MPI_Datatype t, MPI_Aint lb, MPI_Aint extent)
{
    t->lb = lb;
    t->ub = lb + extent;
    t->lb_set = t->ub_set = true;
}

static bool subarray_bad(int n, const int sizes[], const int sub[], const int starts[], int order)
{
    bool bad = n < 1 || !sizes || !sub || !starts || (order != MPI_ORDER_C && order != MPI_ORDER_FORTRAN);
    for (int i = 0; !bad && i < n; i++)
        bad = sizes[i] < 1 || sub[i] < 1 || starts[i] < 0 || sub[i] > sizes[i] - starts[i];
    return bad;
}

/* From the dimension that varies fastest to the slowest: each is so many of what there is, a row of the whole array apart. */
int MPI_Type_create_subarray(int ndims, const int sizes[], const int subsizes[], const int starts[], int order,
                             MPI_Datatype type, MPI_Datatype *out)
{
    if (!type || !out)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    if (subarray_bad(ndims, sizes, subsizes, starts, order))
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    MPI_Aint row = gcm_extent(type), at = 0;
    MPI_Datatype inner = type, t;
    for (int i = 0; i < ndims; i++) {
        int d = order == MPI_ORDER_C ? ndims - 1 - i : i;
        at += starts[d] * row;
        int err = type_strided(__func__, subsizes[d], 1, row, inner, &t);
        if (i > 0)
            gcm_type_drop(inner);
        if (err)
            return err;
        inner = t;
        row *= sizes[d];
    }
    t = type_new(1);
    if (t)
        t->part[0] = (gcm_part){ .type = inner, .at = at, .blocks = 1, .length = 1 };
    int err = type_finish(__func__, t, out);
    gcm_type_drop(inner);
    if (!err)
        type_resize(*out, 0, row);
    return err;
}

int MPI_Type_create_resized(MPI_Datatype type, MPI_Aint lb, MPI_Aint extent, MPI_Datatype *out)
{
    if (!type || !out)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    int err = type_strided(__func__, 1, 1, 0, type, out);
    if (!err)
        type_resize(*out, lb, extent);
    return err;
}

int MPI_Type_dup(MPI_Datatype type, MPI_Datatype *out)
{
    if (!type || !out)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    int err = type_strided(__func__, 1, 1, 0, type, out);
    if (err)
        return err;
    (*out)->committed = type->committed;
    (*out)->lb_set = type->lb_set;
    (*out)->ub_set = type->ub_set;
    return MPI_SUCCESS;
}

int MPI_Type_commit(MPI_Datatype *type)
{
    if (!type || !*type)
        return GCM_FAIL(NULL, MPI_ERR_TYPE);
    (*type)->committed = true;
    return MPI_SUCCESS;
}

int MPI_Type_free(MPI_Datatype *type)
{
    if (!type || !*type || !(*type)->derived)
        return GCM_FAIL(NULL, MPI_ERR_TYPE);
    gcm_type_drop(*type);
    *type = MPI_DATATYPE_NULL;
    return MPI_SUCCESS;
}

/* ---- asking ------------------------------------------------------------------------------------------------------ */

int MPI_Type_size(MPI_Datatype type, int *size)
{
    if (!type || !size)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    *size = type->size > INT_MAX ? MPI_UNDEFINED : (int)type->size;
    return MPI_SUCCESS;
}

int MPI_Type_size_x(MPI_Datatype type, MPI_Count *size)
{
    if (!type || !size)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    *size = (MPI_Count)type->size;
    return MPI_SUCCESS;
}

static int type_bounds(const char *call, MPI_Datatype type, MPI_Aint low, MPI_Aint high, MPI_Aint *lb, MPI_Aint *extent)
{
    if (!type || !lb || !extent)
        return gcm_error(NULL, call, !type ? MPI_ERR_TYPE : MPI_ERR_ARG, NULL);
    *lb = low;
    *extent = high - low;
    return MPI_SUCCESS;
}

int MPI_Type_get_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent)
{
    return type_bounds(__func__, type, type ? type->lb : 0, type ? type->ub : 0, lb, extent);
}

int MPI_Type_get_true_extent(MPI_Datatype type, MPI_Aint *lb, MPI_Aint *extent)
{
    return type_bounds(__func__, type, type ? type->low : 0, type ? type->high : 0, lb, extent);
}

int MPI_Type_set_name(MPI_Datatype type, const char *name)
{
    if (!type || !name)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    snprintf(type->given_name, sizeof type->given_name, "%s", name);
    type->name = type->given_name;
    return MPI_SUCCESS;
}

int MPI_Type_get_name(MPI_Datatype type, char *name, int *length)
{
    if (!type || !name || !length)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    *length = snprintf(name, MPI_MAX_OBJECT_NAME, "%s", type->name);
    return MPI_SUCCESS;
}

int MPI_Get_address(const void *at, MPI_Aint *address)
{
    if (!address)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *address = (MPI_Aint)at;
    return MPI_SUCCESS;
}

MPI_Aint MPI_Aint_add(MPI_Aint base, MPI_Aint offset) { return (MPI_Aint)((uintptr_t)base + (uintptr_t)offset); }
MPI_Aint MPI_Aint_diff(MPI_Aint a, MPI_Aint b) { return (MPI_Aint)((uintptr_t)a - (uintptr_t)b); }

/* How many basic elements are in the first bytes of a row of elements; -1: the bytes end within one. */
static MPI_Count type_elements(const struct gcm_type *t, size_t bytes)
{
    if (t->size == 0)
        return bytes ? -1 : 0;
    MPI_Count whole = (MPI_Count)(bytes / t->size * t->basics), rest = 0;
    bytes %= t->size;
    if (t->parts == 0)
        return bytes ? -1 : whole;
    for (int i = 0; bytes > 0 && rest >= 0 && i < t->parts; i++) {
        const gcm_part *p = &t->part[i];
        size_t all = p->blocks * p->length * p->type->size, take = bytes < all ? bytes : all;
        MPI_Count here = type_elements(p->type, take);
        rest = here < 0 ? -1 : rest + here;
        bytes -= take;
    }
    return rest < 0 ? -1 : whole + rest;
}

int MPI_Get_count(const MPI_Status *status, MPI_Datatype type, int *count)
{
    if (!status || !type || !count)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    size_t n = type->size ? status->gcm_bytes / type->size : 0;
    bool odd = n * type->size != status->gcm_bytes || n > INT_MAX;
    *count = odd ? MPI_UNDEFINED : (int)n;
    return MPI_SUCCESS;
}

int MPI_Get_elements(const MPI_Status *status, MPI_Datatype type, int *count)
{
    if (!status || !type || !count)
        return GCM_FAIL(NULL, !type ? MPI_ERR_TYPE : MPI_ERR_ARG);
    MPI_Count n = type_elements(type, status->gcm_bytes);
    *count = n < 0 || n > INT_MAX ? MPI_UNDEFINED : (int)n;
    return MPI_SUCCESS;
}

/* ---- packing ----------------------------------------------------------------------------------------------------- */

static void cursor_move(gcm_cursor *c, char *at, size_t bytes)
{
    if (bytes > c->left)
        bytes = c->left;
    if (bytes > 0 && c->pack)
        memcpy(c->packed, at, bytes);
    else if (bytes > 0)
        memcpy(at, c->packed, bytes);
    c->packed += bytes;
    c->left -= bytes;
}

GCM void gcm_type_walk(MPI_Datatype type, void *at, size_t count, gcm_cursor *c)
{
    if (gcm_is_dense(type, count)) {
        cursor_move(c, gcm_at(at, type->low), count * type->size);
        return;
    }
    for (size_t i = 0; i < count && c->left > 0; i++) {
        char *element = gcm_at(at, (MPI_Aint)i * gcm_extent(type));
        if (type->dense) {
            cursor_move(c, element + type->low, type->size);
            continue;
        }
        for (const gcm_part *p = type->part; p < type->part + type->parts; p++)
            for (size_t b = 0; b < p->blocks; b++)
                gcm_type_walk(p->type, gcm_at(element, p->at + (MPI_Aint)b * p->stride), p->length, c);
    }
}

static int pack_size(const struct gcm_type *type, int count)     /* -1: more than an int can say */
{
    size_t bytes = (size_t)count * type->size;
    return bytes > INT_MAX ? -1 : (int)bytes;
}

static int pack_check(const char *call, int count, MPI_Datatype type, const int *position, int room, MPI_Comm comm)
{
    int class = gcm_comm_bad(comm) ? MPI_ERR_COMM : count < 0 ? MPI_ERR_COUNT : gcm_type_bad(type) ? MPI_ERR_TYPE :
                !position || *position < 0 ? MPI_ERR_ARG : pack_size(type, count) < 0 ? MPI_ERR_COUNT :
                room < *position || pack_size(type, count) > room - *position ? MPI_ERR_TRUNCATE : MPI_SUCCESS;
    return class ? gcm_error(comm, call, class, class == MPI_ERR_TRUNCATE ? "the packed buffer is too short" : NULL) : class;
}

int MPI_Pack(const void *in, int count, MPI_Datatype type, void *out, int out_bytes, int *position, MPI_Comm comm)
{
    int class = pack_check(__func__, count, type, position, out_bytes, comm);
    if (class)
        return class;
    gcm_cursor c = { .packed = (char *)out + *position, .left = (size_t)pack_size(type, count), .pack = true };
    gcm_type_walk(type, (void *)(uintptr_t)in, (size_t)count, &c);
    *position += pack_size(type, count);
    return MPI_SUCCESS;
}

int MPI_Unpack(const void *in, int in_bytes, int *position, void *out, int count, MPI_Datatype type, MPI_Comm comm)
{
    int class = pack_check(__func__, count, type, position, in_bytes, comm);
    if (class)
        return class;
    gcm_cursor c = { .packed = (char *)(uintptr_t)in + *position, .left = (size_t)pack_size(type, count) };
    gcm_type_walk(type, out, (size_t)count, &c);
    *position += pack_size(type, count);
    return MPI_SUCCESS;
}

int MPI_Pack_size(int count, MPI_Datatype type, MPI_Comm comm, int *bytes)
{
    int class = gcm_comm_bad(comm) ? MPI_ERR_COMM : count < 0 ? MPI_ERR_COUNT : gcm_type_bad(type) ? MPI_ERR_TYPE :
                !bytes ? MPI_ERR_ARG : pack_size(type, count) < 0 ? MPI_ERR_COUNT : MPI_SUCCESS;
    if (class)
        return GCM_FAIL(comm, class);
    *bytes = pack_size(type, count);
    return MPI_SUCCESS;
}

/* ---- MPI 1 ------------------------------------------------------------------------------------------------------- */

int MPI_Address(void *at, MPI_Aint *address) { return MPI_Get_address(at, address); }

int MPI_Type_extent(MPI_Datatype type, MPI_Aint *extent)
{
    MPI_Aint lb;
    return MPI_Type_get_extent(type, &lb, extent);
}

int MPI_Type_lb(MPI_Datatype type, MPI_Aint *lb)
{
    MPI_Aint extent;
    return MPI_Type_get_extent(type, lb, &extent);
}

int MPI_Type_ub(MPI_Datatype type, MPI_Aint *ub)
{
    MPI_Aint lb = 0, extent = 0;
    int err = ub ? MPI_Type_get_extent(type, &lb, &extent) : GCM_FAIL(NULL, MPI_ERR_ARG);
    if (!err)
        *ub = lb + extent;
    return err;
}

int MPI_Type_hvector(int count, int length, MPI_Aint stride, MPI_Datatype type, MPI_Datatype *out)
{
    return MPI_Type_create_hvector(count, length, stride, type, out);
}

int MPI_Type_hindexed(int count, int lengths[], MPI_Aint displs[], MPI_Datatype type, MPI_Datatype *out)
{
    return MPI_Type_create_hindexed(count, lengths, displs, type, out);
}

int MPI_Type_struct(int count, int lengths[], MPI_Aint displs[], MPI_Datatype types[], MPI_Datatype *out)
{
    return MPI_Type_create_struct(count, lengths, displs, types, out);
}
