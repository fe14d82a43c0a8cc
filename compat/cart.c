/* cart.c: Cartesian topologies: communicators whose ranks are the points of a grid.
 * SPDX-License-Identifier: MIT
 *
 * Ranks lie in the grid as the standard has it, those of the last dimension next to each other (MPI 3.1, 7.2). reorder is
 * never used: launchers number the ranks of a host, and of a cluster, one after another, so that most of a grid's rows are
 * near already, and a rank stays what it was.
 *
 * A grid does not change once it is made: copies of its communicator share it.
 */
#include "mpi_int.h"

/* ---- grids ------------------------------------------------------------------------------------------------------- */

/* Where in a dimension a coordinate is; MPI_PROC_NULL: beyond its edge. */
static int dim_place(const gcm_dim *d, long long at)
{
    if (at >= 0 && at < d->size)
        return (int)at;
    return d->periodic ? (int)((at % d->size + d->size) % d->size) : MPI_PROC_NULL;
}

/* All of them: the caller has seen that there is room. */
static void grid_coords(const gcm_cart *cart, int rank, int coords[])
{
    for (int i = cart->ndims - 1; i >= 0; i--) {
        coords[i] = rank % cart->dim[i].size;
        rank /= cart->dim[i].size;
    }
}

static int grid_rank(const gcm_cart *cart, const int coords[])
{
    int rank = 0;
    for (int i = 0; i < cart->ndims; i++) {
        int at = dim_place(&cart->dim[i], coords[i]);
        if (at == MPI_PROC_NULL)
            return at;
        rank = rank * cart->dim[i].size + at;
    }
    return rank;
}

/* The rank that is so many steps away. */
static int grid_neighbour(const gcm_cart *cart, int rank, int direction, long long steps)
{
    int stride = 1;
    for (int i = cart->ndims - 1; i > direction; i--)
        stride *= cart->dim[i].size;
    int at = rank / stride % cart->dim[direction].size, to = dim_place(&cart->dim[direction], at + steps);
    return to == MPI_PROC_NULL ? to : rank + (to - at) * stride;
}

/* Sets how many ranks a grid has, or returns an error class. */
static int grid_check(MPI_Comm comm, int ndims, const int dims[], const int periods[], int *ranks)
{
    if (gcm_comm_bad(comm))
        return MPI_ERR_COMM;
    if (ndims > 0 && (!dims || !periods))
        return MPI_ERR_ARG;
    *ranks = 1;
    for (int i = 0; i < ndims; i++) {
        if (dims[i] < 1 || dims[i] > comm->size / *ranks)
            return MPI_ERR_DIMS;
        *ranks *= dims[i];
    }
    return ndims < 0 ? MPI_ERR_DIMS : MPI_SUCCESS;
}

/* ---- communicators with a grid ----------------------------------------------------------------------------------- */

static gcm_cart *cart_new(int ndims)
{
    gcm_cart *cart = gcm_new(sizeof *cart + (size_t)ndims * sizeof *cart->dim);
    if (cart) {
        cart->refs = 1;
        cart->ndims = ndims;
    }
    return cart;
}

/* Of the ranks of a colour. cart becomes the communicator's, or goes; NULL: there was no memory. */
static int cart_comm(const char *call, MPI_Comm comm, gcm_cart *cart, int color, MPI_Comm *out)
{
    int class = cart ? gcm_comm_split(call, comm, color, comm->rank, out) : gcm_error(comm, call, MPI_ERR_NO_MEM, NULL);
    if (!class && *out)
        (*out)->cart = cart;
    else if (cart)
        gcm_delete(cart);
    return class;
}

int MPI_Cart_create(MPI_Comm comm, int ndims, const int dims[], const int periods[], int reorder, MPI_Comm *out)
{
    int ranks = 0, class = out ? grid_check(comm, ndims, dims, periods, &ranks) : MPI_ERR_ARG;
    (void)reorder;
    if (out)
        *out = MPI_COMM_NULL;
    if (class)
        return GCM_FAIL(comm, class);
    gcm_cart *cart = cart_new(ndims);
    for (int i = 0; cart && i < ndims; i++)
        cart->dim[i] = (gcm_dim){ dims[i], periods[i] != 0 };
    return cart_comm(__func__, comm, cart, comm->rank < ranks ? 0 : MPI_UNDEFINED, out);
}

int MPI_Cart_map(MPI_Comm comm, int ndims, const int dims[], const int periods[], int *rank)
{
    int ranks = 0, class = rank ? grid_check(comm, ndims, dims, periods, &ranks) : MPI_ERR_ARG;
    if (class)
        return GCM_FAIL(comm, class);
    *rank = comm->rank < ranks ? comm->rank : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

/* A call that asks for the grid; room: for how many dimensions it has vectors, which are NULL or there is one. */
static int cart_check(MPI_Comm comm, int room, bool there)
{
    if (gcm_comm_bad(comm) || !comm->cart)
        return gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_TOPOLOGY;
    if (room < comm->cart->ndims)
        return MPI_ERR_DIMS;
    return there || comm->cart->ndims == 0 ? MPI_SUCCESS : MPI_ERR_ARG;
}

/* The subgrids differ in the coordinates that do not remain: from them comes the colour. */
int MPI_Cart_sub(MPI_Comm comm, const int remain[], MPI_Comm *out)
{
    int class = out ? cart_check(comm, INT_MAX, remain) : MPI_ERR_ARG;
    if (out)
        *out = MPI_COMM_NULL;
    if (class)
        return GCM_FAIL(comm, class);
    const gcm_cart *whole = comm->cart;
    gcm_cart *cart = cart_new(whole->ndims);
    int color = 0, kept = 0, stride = comm->size;
    for (int i = 0; cart && i < whole->ndims; i++) {
        stride /= whole->dim[i].size;
        if (remain[i])
            cart->dim[kept++] = whole->dim[i];
        else
            color = color * whole->dim[i].size + comm->rank / stride % whole->dim[i].size;
    }
    if (cart)
        cart->ndims = kept;
    return cart_comm(__func__, comm, cart, color, out);
}

/* ---- what a grid is ---------------------------------------------------------------------------------------------- */

int MPI_Topo_test(MPI_Comm comm, int *status)
{
    if (gcm_comm_bad(comm) || !status)
        return GCM_FAIL(comm, gcm_comm_bad(comm) ? MPI_ERR_COMM : MPI_ERR_ARG);
    *status = comm->cart ? MPI_CART : MPI_UNDEFINED;
    return MPI_SUCCESS;
}

int MPI_Cartdim_get(MPI_Comm comm, int *ndims)
{
    int class = ndims ? cart_check(comm, INT_MAX, true) : MPI_ERR_ARG;
    if (class)
        return GCM_FAIL(comm, class);
    *ndims = comm->cart->ndims;
    return MPI_SUCCESS;
}

int MPI_Cart_get(MPI_Comm comm, int maxdims, int dims[], int periods[], int coords[])
{
    int class = cart_check(comm, maxdims, dims && periods && coords);
    if (class)
        return GCM_FAIL(comm, class);
    for (int i = 0; i < comm->cart->ndims; i++) {
        dims[i] = comm->cart->dim[i].size;
        periods[i] = comm->cart->dim[i].periodic;
    }
    grid_coords(comm->cart, comm->rank, coords);
    return MPI_SUCCESS;
}

int MPI_Cart_coords(MPI_Comm comm, int rank, int maxdims, int coords[])
{
    int class = cart_check(comm, maxdims, coords);
    if (!class && (rank < 0 || rank >= comm->size))
        class = MPI_ERR_RANK;
    if (class)
        return GCM_FAIL(comm, class);
    grid_coords(comm->cart, rank, coords);
    return MPI_SUCCESS;
}

int MPI_Cart_rank(MPI_Comm comm, const int coords[], int *rank)
{
    int class = rank ? cart_check(comm, INT_MAX, coords) : MPI_ERR_ARG, found = class ? 0 : grid_rank(comm->cart, coords);
    if (class)
        return GCM_FAIL(comm, class);
    if (found == MPI_PROC_NULL)
        return gcm_error(comm, __func__, MPI_ERR_ARG, "a coordinate is beyond the edge of the grid");
    *rank = found;
    return MPI_SUCCESS;
}

int MPI_Cart_shift(MPI_Comm comm, int direction, int steps, int *source, int *dest)
{
    int class = source && dest ? cart_check(comm, INT_MAX, true) : MPI_ERR_ARG;
    if (!class && (direction < 0 || direction >= comm->cart->ndims))
        class = MPI_ERR_DIMS;
    if (class)
        return GCM_FAIL(comm, class);
    *source = grid_neighbour(comm->cart, comm->rank, direction, -(long long)steps);
    *dest = grid_neighbour(comm->cart, comm->rank, direction, steps);
    return MPI_SUCCESS;
}

/* ---- balanced grids ---------------------------------------------------------------------------------------------- */

enum { DIVISORS = 1600 };               /* of 2095133040; no int has more */

/* All ways to write a number as a product of ndims factors that never fall are tried, as far as they may yet be better. */
typedef struct search { int divisor[DIVISORS], divisors, ndims, spread, *now, *best; } search;

static void find_divisors(search *s, int n)
{
    for (int i = 1; i <= n / i; i++)
        if (n % i == 0)
            s->divisor[s->divisors++] = i;
    for (int i = s->divisors - 1; i >= 0; i--)
        if (s->divisor[i] != n / s->divisor[i])
            s->divisor[s->divisors++] = n / s->divisor[i];
}

static bool power_exceeds(long long base, int exponent, int n)
{
    long long power = 1;
    while (exponent-- > 0 && power <= n)
        power *= base;
    return power > n;
}

/* The best factors are those of which the largest and the smallest are closest; of several such the ones whose small ones
 * are larger, which come first. n is what remains for the factors from k on. */
static void find_factors(search *s, int n, int k)
{
    int left = s->ndims - k;
    if (k > 0 && !power_exceeds((long long)s->now[0] + s->spread - 1, left, n - 1))
        return;
    if (left == 1) {                    /* no less than the one before, which was small enough for both */
        s->now[k] = n;
        s->spread = n - s->now[0];
        memcpy(s->best, s->now, (size_t)s->ndims * sizeof *s->best);
        return;
    }
    for (int i = s->divisors - 1; i >= 0 && (k == 0 || s->divisor[i] >= s->now[k - 1]); i--)
        if (n % s->divisor[i] == 0 && !power_exceeds(s->divisor[i], left, n)) {
            s->now[k] = s->divisor[i];
            find_factors(s, n / s->divisor[i], k + 1);
        }
}

int MPI_Dims_create(int nnodes, int ndims, int dims[])
{
    int rest = nnodes, free_dims = 0;
    if (nnodes < 1 || (ndims > 0 && !dims))
        return GCM_FAIL(NULL, MPI_ERR_ARG);
    for (int i = 0; i < ndims; i++) {
        if (dims[i] < 0 || (dims[i] > 0 && rest % dims[i] != 0))
            return GCM_FAIL(NULL, MPI_ERR_DIMS);
        free_dims += dims[i] == 0;
        rest /= dims[i] > 0 ? dims[i] : 1;
    }
    if (free_dims == 0)
        return ndims < 0 || rest > 1 ? GCM_FAIL(NULL, MPI_ERR_DIMS) : MPI_SUCCESS;
    search s = { .ndims = free_dims, .spread = INT_MAX };
    s.now = malloc(2 * (size_t)free_dims * sizeof *s.now);
    if (!s.now)
        return GCM_FAIL(NULL, MPI_ERR_NO_MEM);
    s.best = s.now + free_dims;
    find_divisors(&s, rest);
    find_factors(&s, rest, 0);
    for (int i = 0; i < ndims; i++)
        if (dims[i] == 0)
            dims[i] = s.best[--free_dims];
    free(s.now);
    return MPI_SUCCESS;
}
