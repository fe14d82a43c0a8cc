/* reduce.c: operations of reductions: what gridcomm computes itself, the rest of the predefined ones, and those of users.
 * SPDX-License-Identifier: MIT
 *
 * What gridcomm does not know (complex numbers, long double, pairs of value and index, users' functions) it is told as an
 * operation on opaque elements, made for one call. Elements travel packed. A user's function wants them as its type lays
 * them out: where that has holes it is called on copies, one element at a time.
 */
#include "mpi_int.h"

#include <complex.h>

#define PREDEFINED(symbol, code) struct gcm_op symbol = { .gc = (code), .commutes = true }
PREDEFINED(gcm_sum, GC_SUM);
PREDEFINED(gcm_prod, GC_PROD);
PREDEFINED(gcm_max, GC_MAX);
PREDEFINED(gcm_min, GC_MIN);
PREDEFINED(gcm_land, GC_LAND);
PREDEFINED(gcm_lor, GC_LOR);
PREDEFINED(gcm_lxor, GC_LXOR);
PREDEFINED(gcm_band, GC_BAND);
PREDEFINED(gcm_bor, GC_BOR);
PREDEFINED(gcm_bxor, GC_BXOR);
PREDEFINED(gcm_maxloc, 0);
PREDEFINED(gcm_minloc, 0);

/* ---- predefined, on packed data, which need not be aligned ------------------------------------------------------- */

#define KERNEL(name, element, expression) \
    static void name(const void *in, void *inout, size_t count) \
    { \
        for (size_t i = 0; i < count; i++) { \
            element a, b; \
            memcpy(&a, (const char *)in + i * sizeof a, sizeof a); \
            memcpy(&b, (char *)inout + i * sizeof b, sizeof b); \
            b = (expression); \
            memcpy((char *)inout + i * sizeof b, &b, sizeof b); \
        } \
    }
KERNEL(sum_long_double, long double, a + b)
KERNEL(prod_long_double, long double, a * b)
KERNEL(max_long_double, long double, a > b || a != a ? a : b)
KERNEL(min_long_double, long double, a < b || a != a ? a : b)
KERNEL(sum_float_complex, float complex, a + b)
KERNEL(prod_float_complex, float complex, a * b)
KERNEL(sum_double_complex, double complex, a + b)
KERNEL(prod_double_complex, double complex, a * b)
KERNEL(sum_long_double_complex, long double complex, a + b)
KERNEL(prod_long_double_complex, long double complex, a * b)

/* The better value, and of equal ones the lower index. */
#define LOC(name, element, better) \
    static void name(const void *in, void *inout, size_t count) \
    { \
        enum { BYTES = sizeof(element) + sizeof(int) }; \
        for (size_t i = 0; i < count; i++) { \
            const char *from = (const char *)in + i * BYTES; \
            char *to = (char *)inout + i * BYTES; \
            element a, b; \
            int a_index, b_index; \
            memcpy(&a, from, sizeof a); \
            memcpy(&b, to, sizeof b); \
            memcpy(&a_index, from + sizeof a, sizeof a_index); \
            memcpy(&b_index, to + sizeof b, sizeof b_index); \
            if (a better b || (a == b && a_index < b_index)) \
                memcpy(to, from, BYTES); \
        } \
    }
LOC(maxloc_float, float, >)
LOC(minloc_float, float, <)
LOC(maxloc_double, double, >)
LOC(minloc_double, double, <)
LOC(maxloc_long, long, >)
LOC(minloc_long, long, <)
LOC(maxloc_int, int, >)
LOC(minloc_int, int, <)
LOC(maxloc_short, short, >)
LOC(minloc_short, short, <)
LOC(maxloc_long_double, long double, >)
LOC(minloc_long_double, long double, <)

static const struct { MPI_Op op; MPI_Datatype type; gcm_kernel *kernel; } kernels[] = {
    { MPI_SUM, MPI_LONG_DOUBLE, sum_long_double },
    { MPI_PROD, MPI_LONG_DOUBLE, prod_long_double },
    { MPI_MAX, MPI_LONG_DOUBLE, max_long_double },
    { MPI_MIN, MPI_LONG_DOUBLE, min_long_double },
    { MPI_SUM, MPI_C_FLOAT_COMPLEX, sum_float_complex },
    { MPI_PROD, MPI_C_FLOAT_COMPLEX, prod_float_complex },
    { MPI_SUM, MPI_C_DOUBLE_COMPLEX, sum_double_complex },
    { MPI_PROD, MPI_C_DOUBLE_COMPLEX, prod_double_complex },
    { MPI_SUM, MPI_C_LONG_DOUBLE_COMPLEX, sum_long_double_complex },
    { MPI_PROD, MPI_C_LONG_DOUBLE_COMPLEX, prod_long_double_complex },
    { MPI_MAXLOC, MPI_FLOAT_INT, maxloc_float },
    { MPI_MINLOC, MPI_FLOAT_INT, minloc_float },
    { MPI_MAXLOC, MPI_DOUBLE_INT, maxloc_double },
    { MPI_MINLOC, MPI_DOUBLE_INT, minloc_double },
    { MPI_MAXLOC, MPI_LONG_INT, maxloc_long },
    { MPI_MINLOC, MPI_LONG_INT, minloc_long },
    { MPI_MAXLOC, MPI_2INT, maxloc_int },
    { MPI_MINLOC, MPI_2INT, minloc_int },
    { MPI_MAXLOC, MPI_SHORT_INT, maxloc_short },
    { MPI_MINLOC, MPI_SHORT_INT, minloc_short },
    { MPI_MAXLOC, MPI_LONG_DOUBLE_INT, maxloc_long_double },
    { MPI_MINLOC, MPI_LONG_DOUBLE_INT, minloc_long_double } };

static gcm_kernel *kernel_of(MPI_Op op, MPI_Datatype type)
{
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels; i++)
        if (kernels[i].op == op && kernels[i].type == type)
            return kernels[i].kernel;
    return NULL;
}

/* Which of gridcomm's operations MPI has for which of its types (MPI 3.1, 5.9.2). */
static bool is_defined(gc_op op, int kind)
{
    bool arithmetic = op == GC_SUM || op == GC_PROD || op == GC_MIN || op == GC_MAX;
    bool logical = op == GC_LAND || op == GC_LOR || op == GC_LXOR;
    switch (kind) {
    case GCM_INTEGER:  return op != 0;
    case GCM_FLOATING: return arithmetic;
    case GCM_LOGICAL:  return logical;
    case GCM_BYTES:    return op != 0 && !arithmetic && !logical;
    default:           return false;
    }
}

/* ---- of users ---------------------------------------------------------------------------------------------------- */

enum { AREA_STEP = 16 };                /* areas, and elements in them, are aligned as the program's own are */

static MPI_Aint area_low(const struct gcm_type *t)
{
    MPI_Aint low = t->low < t->lb ? t->low : t->lb, over = low % AREA_STEP;
    return low - over - (over < 0 ? AREA_STEP : 0);
}

static size_t area_bytes(const struct gcm_type *t)
{
    MPI_Aint bytes = (t->high > t->ub ? t->high : t->ub) - area_low(t);
    return (size_t)((bytes + AREA_STEP - 1) / AREA_STEP * AREA_STEP);
}

/* One element from (to) where it is packed to (from) an area. */
static void area_move(const gcm_reduction *r, char *area, const void *packed, bool pack)
{
    gcm_cursor c = { .packed = (char *)(uintptr_t)packed, .left = r->user_type->size, .pack = pack };
    gcm_type_walk(r->user_type, gcm_at(area, -area_low(r->user_type)), 1, &c);
}

static void apply_spread(const gcm_reduction *r, const char *in, char *inout, size_t count)
{
    MPI_Datatype type = r->user_type;
    char *a = r->scratch, *b = r->scratch + r->area;
    for (size_t i = 0; i < count; i++, in += type->size, inout += type->size) {
        int one = 1;
        area_move(r, a, in, false);
        area_move(r, b, inout, false);
        r->fn(gcm_at(a, -area_low(type)), gcm_at(b, -area_low(type)), &one, &type);
        area_move(r, b, inout, true);
    }
}

static void apply(const void *in, void *inout, size_t count, gc_type unused, void *user)
{
    const gcm_reduction *r = user;
    MPI_Datatype type = r->user_type;
    (void)unused;
    if (r->kernel)
        r->kernel(in, inout, count);
    else if (r->scratch)
        apply_spread(r, in, inout, count);
    else
        for (size_t done = 0, n; done < count; done += n) {
            n = count - done < INT_MAX ? count - done : INT_MAX;
            int some = (int)n;
            MPI_Aint at = (MPI_Aint)(done * type->size) - type->low;
            r->fn(gcm_at(in, at), gcm_at(inout, at), &some, &type);
        }
}

GCM int gcm_reduction_open(gcm_reduction *r, MPI_Op op, MPI_Datatype type)
{
    *r = (gcm_reduction){ .type = GC_OPAQUE };
    if (!op || gcm_type_bad(type))
        return !op ? MPI_ERR_OP : MPI_ERR_TYPE;
    if (!op->derived && is_defined(op->gc, type->kind)) {
        r->op = op->gc;
        r->type = type->gc;
        return MPI_SUCCESS;
    }
    r->kernel = kernel_of(op, type);
    r->fn = op->fn;
    if (!r->kernel && !r->fn)
        return MPI_ERR_OP;
    if (type->size == 0) {              /* then there is nothing to reduce */
        r->op = GC_SUM;
        r->type = GC_UINT8;
        return MPI_SUCCESS;
    }
    r->area = r->kernel || gcm_is_dense(type, 2) ? 0 : area_bytes(type);
    r->scratch = r->area ? calloc(2, r->area) : NULL;
    unsigned flags = GC_OP_ASSOCIATIVE | (op->commutes ? GC_OP_COMMUTATIVE : 0u);
    if ((r->area && !r->scratch) || gc_op_create(gcm_comm_world.gc, apply, type->size, flags, r, &r->op) != 0) {
        free(r->scratch);
        r->scratch = NULL;
        return MPI_ERR_NO_MEM;
    }
    r->made = true;
    r->user_type = type;
    gcm_type_keep(type);
    return MPI_SUCCESS;
}

GCM void gcm_reduction_begun(gcm_reduction *r)
{
    if (r->made)
        gc_op_free(gcm_comm_world.gc, r->op);
    r->made = false;
}

GCM void gcm_reduction_close(gcm_reduction *r)
{
    gcm_reduction_begun(r);
    if (r->user_type)
        gcm_type_drop(r->user_type);
    free(r->scratch);
    *r = (gcm_reduction){ 0 };
}

int MPI_Op_create(MPI_User_function *fn, int commute, MPI_Op *op)
{
    if (!fn || !op)
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    *op = gcm_new(sizeof **op);
    if (!*op)
        return GCM_FAIL(NULL, MPI_ERR_NO_MEM);
    (*op)->fn = fn;
    (*op)->commutes = commute != 0;
    (*op)->derived = true;
    return MPI_SUCCESS;
}

int MPI_Op_free(MPI_Op *op)             /* operations under way have what they need */
{
    if (!op || !*op || !(*op)->derived)
        return GCM_FAIL(NULL, MPI_ERR_OP);
    gcm_delete(*op);
    *op = MPI_OP_NULL;
    return MPI_SUCCESS;
}

int MPI_Op_commutative(MPI_Op op, int *commute)
{
    if (!op || !commute)
        return GCM_FAIL(NULL, !op ? MPI_ERR_OP : MPI_ERR_ARG);
    *commute = op->commutes;
    return MPI_SUCCESS;
}

int MPI_Reduce_local(const void *in, void *inout, int count, MPI_Datatype type, MPI_Op op)
{
    gcm_reduction r;
    gcm_side a = { .buf = (void *)(uintptr_t)in, .type = type, .blocks = 1, .count = count }, b = a;
    b.buf = inout;
    int class = gcm_comm_bad(MPI_COMM_WORLD) ? MPI_ERR_COMM : gcm_reduction_open(&r, op, type);
    if (class)
        return GCM_FAIL(NULL, class);
    class = gcm_side_open(&a, GCM_LOAD);
    if (!class)
        class = gcm_side_open(&b, GCM_LOAD | GCM_STORE);
    if (!class) {
        class = gcm_class(gc_reduce_local(gcm_comm_world.gc, a.at, b.at, type->size ? (size_t)count : 0, r.type, r.op));
        gcm_side_close(&b, class == MPI_SUCCESS, b.bytes);
    }
    gcm_side_close(&a, false, 0);
    gcm_reduction_close(&r);
    return class ? GCM_FAIL(NULL, class) : MPI_SUCCESS;
}
