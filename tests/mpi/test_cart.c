/* test_cart.c: Cartesian topologies: grids of all shapes, their subgrids, and programs that live on them.
 * SPDX-License-Identifier: MIT
 */
#include "check.h"

#include <limits.h>

enum { MOST = 4 };                      /* dimensions of a grid here */

static int class_of(int err)
{
    int class = -1;
    MPI_Error_class(err, &class);
    return class;
}
/* Which class it is, MPIs do not agree on. */
#define WRONG(call, want) do { int class_ = class_of(call); \
    if (STRICT) CHECK_EQUAL(class_, want); else CHECK(class_ != MPI_SUCCESS); } while (0)

static int topology(MPI_Comm comm)
{
    int status = -1;
    MPI_Topo_test(comm, &status);
    return status;
}

static int dimensions(MPI_Comm comm)
{
    int n = -1;
    MPI_Cartdim_get(comm, &n);
    return n;
}

/* ---- shapes ------------------------------------------------------------------------------------------------------ */

/* As the standard numbers ranks; MPI_PROC_NULL: beyond an edge. */
static int rank_at(int ndims, const int dims[], const int periods[], const long at[])
{
    int rank = 0;
    for (int i = 0; i < ndims; i++) {
        if (!periods[i] && (at[i] < 0 || at[i] >= dims[i]))
            return MPI_PROC_NULL;
        rank = rank * dims[i] + (int)(((at[i] % dims[i]) + dims[i]) % dims[i]);
    }
    return rank;
}

static void check_shifts(MPI_Comm grid, int ndims, const int dims[], const int periods[], const int mine[])
{
    const int steps[] = { 0, 1, -1, 2, -3, 5, 1000001, -1000001, INT_MAX, INT_MIN };
    for (int d = 0; d < ndims; d++)
        for (int i = 0; i < 10 - 2 * !STRICT; i++) {    /* sums beyond an int are too much for others */
            int source = -9, dest = -9;
            long to[MOST], from[MOST];
            for (int k = 0; k < ndims; k++) {
                to[k] = mine[k] + (k == d ? (long)steps[i] : 0);
                from[k] = mine[k] - (k == d ? (long)steps[i] : 0);
            }
            MPI_Cart_shift(grid, d, steps[i], &source, &dest);
            CHECK_EQUAL(dest, rank_at(ndims, dims, periods, to));
            CHECK_EQUAL(source, rank_at(ndims, dims, periods, from));
        }
}

static void check_ranks(MPI_Comm grid, int ndims, const int dims[], const int periods[], int size)
{
    for (int rank = 0, at[MOST] = { 0 }; rank < size; rank++) {
        int coords[MOST + 1] = { -5, -5, -5, -5, -5 }, back = -1;
        MPI_Cart_coords(grid, rank, MOST, coords);
        CHECK(memcmp(coords, at, (size_t)ndims * sizeof *at) == 0 && coords[ndims] == -5);
        for (int i = 0; i < ndims; i++)                 /* once and twice round */
            coords[i] += periods[i] ? (i % 2 ? 1 : -2) * dims[i] : 0;
        MPI_Cart_rank(grid, coords, &back);
        CHECK_EQUAL(back, rank);
        for (int i = ndims - 1; i >= 0 && ++at[i] == dims[i]; i--)
            at[i] = 0;
    }
}

static void check_grid(int ndims, const int dims[], const int periods[])
{
    int size = 1, n = -1, rank = -1, got[MOST + 1], around[MOST + 1], mine[MOST + 1] = { 0 };
    MPI_Comm grid = MPI_COMM_WORLD;
    for (int i = 0; i < ndims; i++)
        size *= dims[i];
    MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &grid);
    CHECK((grid != MPI_COMM_NULL) == (check.rank < size));
    if (grid == MPI_COMM_NULL)
        return;
    MPI_Comm_size(grid, &n);
    MPI_Comm_rank(grid, &rank);
    CHECK(n == size && rank == check.rank);
    CHECK_EQUAL(topology(grid), MPI_CART);
    CHECK_EQUAL(dimensions(grid), ndims);
    got[ndims] = around[ndims] = mine[ndims] = -7;
    MPI_Cart_get(grid, MOST, got, around, mine);
    CHECK(memcmp(got, dims, (size_t)ndims * sizeof *got) == 0 && got[ndims] == -7);
    for (int i = 0; i < ndims; i++)
        CHECK_EQUAL(!!around[i], !!periods[i]);
    CHECK(around[ndims] == -7 && mine[ndims] == -7);
    CHECK_EQUAL(rank_at(ndims, dims, periods, (long[MOST]){ mine[0], mine[1], mine[2] }), rank);
    check_ranks(grid, ndims, dims, periods, size);
    check_shifts(grid, ndims, dims, periods, mine);
    MPI_Comm_free(&grid);
    CHECK(grid == MPI_COMM_NULL);
}

/* All grids of up to three dimensions that the ranks are enough for, periodic in turn. */
static void shapes(void)
{
    int n = check.size, turn = 0;
    for (int a = 1; a <= n; a++)
        for (int b = 1; b <= n / a; b++)
            for (int c = 1; c <= n / a / b; c++, turn++) {
                int dims[MOST] = { a, b, c }, periods[MOST] = { turn & 1, turn & 2, turn & 4 };
                for (int ndims = 1; ndims <= 3; ndims++)
                    if (ndims == 3 || (c == 1 && (ndims == 2 || b == 1)))
                        check_grid(ndims, dims, periods);
            }
}

static void mapped(void)
{
    int n = check.size, rank = -1, dims[2] = { 1, n > 1 ? n - 1 : 1 }, periods[2] = { 0, 1 };
    MPI_Cart_map(MPI_COMM_WORLD, 2, dims, periods, &rank);
    CHECK_EQUAL(rank, check.rank < dims[1] ? check.rank : MPI_UNDEFINED);
    MPI_Cart_map(MPI_COMM_WORLD, 1, &n, periods, &rank);
    CHECK_EQUAL(rank, check.rank);
}

static void without_dimensions(void)
{
    MPI_Comm grid, sub;
    int size = -1, rank = -1, untouched = -3;
    MPI_Cart_create(MPI_COMM_WORLD, 0, NULL, NULL, 1, &grid);
    CHECK((grid != MPI_COMM_NULL) == (check.rank == 0));
    if (grid != MPI_COMM_NULL) {
        MPI_Comm_size(grid, &size);
        CHECK_EQUAL(size, 1);
        CHECK_EQUAL(topology(grid), MPI_CART);
        CHECK_EQUAL(dimensions(grid), 0);
        CHECK_EQUAL(MPI_Cart_get(grid, 1, &untouched, &untouched, &untouched), MPI_SUCCESS);
        CHECK_EQUAL(MPI_Cart_coords(grid, 0, 0, NULL), MPI_SUCCESS);
        MPI_Cart_rank(grid, NULL, &rank);
        CHECK(rank == 0 && untouched == -3);
        MPI_Cart_sub(grid, NULL, &sub);
        CHECK_EQUAL(dimensions(sub), 0);
        MPI_Comm_free(&sub);
        MPI_Comm_free(&grid);
    }
    CHECK_EQUAL(MPI_Dims_create(1, 0, NULL), MPI_SUCCESS);
}

/* ---- balance ----------------------------------------------------------------------------------------------------- */

/* How near to each other the largest and the smallest of so many factors of n can be. */
static int least_spread(int n, int factors, int most, int largest)
{
    int best = INT_MAX;
    if (factors == 1)
        return n <= most ? (largest ? largest - n : 0) : INT_MAX;
    for (int d = 1; d <= most && d <= n; d++)
        if (n % d == 0) {
            int spread = least_spread(n / d, factors - 1, d, largest ? largest : d);
            best = spread < best ? spread : best;
        }
    return best;
}

static void balanced(void)
{
    for (int n = 1; n <= 400; n++)
        for (int ndims = 1; ndims <= MOST; ndims++) {
            int dims[MOST + 1] = { 0 }, product = 1;
            dims[ndims] = -4;
            CHECK_EQUAL(MPI_Dims_create(n, ndims, dims), MPI_SUCCESS);
            for (int i = 0; i < ndims; i++) {
                product *= dims[i];
                CHECK(dims[i] > 0 && (i == 0 || dims[i] <= dims[i - 1]));
            }
            CHECK_EQUAL(product, n);
            CHECK_EQUAL(dims[0] - dims[ndims - 1], least_spread(n, ndims, n, 0));
            CHECK_EQUAL(dims[ndims], -4);
        }
}

static int dims_are(int nnodes, int a, int b, int c, int want_a, int want_b, int want_c)
{
    int dims[3] = { a, b, c };
    return MPI_Dims_create(nnodes, 3, dims) == MPI_SUCCESS && dims[0] == want_a && dims[1] == want_b && dims[2] == want_c;
}

/* The standard's own examples, and others; large numbers, which must not take for ever. */
static void given(void)
{
    int dims[20] = { 0 }, large[3] = { 0 };            /* 20: what MPICH can do */
    CHECK(dims_are(6, 0, 3, 0, 2, 3, 1));
    CHECK(dims_are(12, 0, 2, 0, 3, 2, 2));
    CHECK(dims_are(12, 3, 0, 4, 3, 1, 4));
    CHECK(dims_are(24, 2, 3, 4, 2, 3, 4));
    CHECK(dims_are(72, 1, 0, 0, 1, 9, 8));
    CHECK(dims_are(7, 0, 0, 0, 7, 1, 1));
    MPI_Dims_create(1 << 18, 20, dims);
    CHECK(dims[0] == 2 && dims[17] == 2 && dims[18] == 1 && dims[19] == 1);
    if (!STRICT)                        /* a prime is too much for MPICH here */
        return;
    MPI_Dims_create(2147483647, 3, large);
    CHECK(large[0] == 2147483647 && large[1] == 1 && large[2] == 1);
    memset(dims, 0, sizeof dims);
    MPI_Dims_create(2095133040, 6, dims);               /* the int of the most divisors */
    CHECK_EQUAL((long)dims[0] * dims[1] * dims[2] * dims[3] * dims[4] * dims[5], 2095133040);
    CHECK(dims[0] - dims[5] <= 6);
    CHECK(dims_are(5040, 0, 0, 0, 21, 16, 15));         /* as near as 20 x 18 x 14 */
}

/* ---- subgrids ---------------------------------------------------------------------------------------------------- */

/* Of the ranks a x b: rows and columns know their sums. */
static void sums(void)
{
    int dims[2] = { 0 }, at[2], sum = -1, rank = -1, size = -1, got[1], around[1], place[1];
    MPI_Comm grid, row, column;
    MPI_Dims_create(check.size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, (int[]){ 0, 1 }, 1, &grid);
    MPI_Comm_rank(grid, &rank);
    MPI_Cart_coords(grid, rank, 2, at);
    MPI_Cart_sub(grid, (int[]){ 0, 1 }, &row);
    MPI_Cart_sub(grid, (int[]){ 1, 0 }, &column);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, row);
    CHECK_EQUAL(sum, dims[1] * at[0] * dims[1] + dims[1] * (dims[1] - 1) / 2);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, column);
    CHECK_EQUAL(sum, dims[0] * at[1] + dims[1] * dims[0] * (dims[0] - 1) / 2);
    MPI_Cart_get(row, 1, got, around, place);
    CHECK(got[0] == dims[1] && around[0] && place[0] == at[1]);
    MPI_Cart_get(column, 1, got, around, place);
    CHECK(got[0] == dims[0] && !around[0] && place[0] == at[0]);
    MPI_Comm_rank(row, &rank);
    MPI_Comm_size(row, &size);
    CHECK(rank == at[1] && size == dims[1]);
    CHECK_EQUAL(dimensions(row), 1);
    MPI_Comm_free(&grid);                               /* the others live on */
    MPI_Bcast(&rank, 1, MPI_INT, 0, row);
    CHECK_EQUAL(rank, 0);
    MPI_Comm_free(&row);
    MPI_Comm_free(&column);
}

static void subgrids(void)
{
    int dims[3] = { 0 }, at[3], sub_at[3], got[3], around[3], place[3], size;
    MPI_Comm grid, sub, deeper;
    MPI_Dims_create(check.size, 3, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 3, dims, (int[]){ 1, 0, 1 }, 0, &grid);
    MPI_Cart_get(grid, 3, got, around, at);
    for (int which = !STRICT; which < 8; which++) {     /* MPICH gives one rank alone a subgrid without dimensions */
        int remain[3] = { which & 1, which & 2, which & 4 }, n = 0, points = 1;
        MPI_Cart_sub(grid, remain, &sub);
        for (int i = 0; i < 3; i++)
            if (remain[i]) {
                got[n] = dims[i];
                sub_at[n++] = at[i];
                points *= dims[i];
            }
        int dims_there[3], lowest, rank;
        MPI_Comm_size(sub, &size);
        CHECK_EQUAL(size, points);
        CHECK_EQUAL(dimensions(sub), n);
        MPI_Cart_get(sub, 3, dims_there, around, place);
        CHECK(memcmp(dims_there, got, (size_t)n * sizeof *got) == 0);
        CHECK(memcmp(place, sub_at, (size_t)n * sizeof *place) == 0);
        int others[3] = { remain[0] ? 0 : at[0], remain[1] ? 0 : at[1], remain[2] ? 0 : at[2] };
        MPI_Cart_rank(grid, others, &rank);             /* who begins it */
        MPI_Allreduce(&check.rank, &lowest, 1, MPI_INT, MPI_MIN, sub);
        CHECK_EQUAL(lowest, rank);
        MPI_Cart_sub(sub, (int[3]){ 0 }, &deeper);
        CHECK(!STRICT || deeper != MPI_COMM_NULL);
        if (deeper != MPI_COMM_NULL) {
            MPI_Comm_size(deeper, &size);
            CHECK_EQUAL(size, 1);
            CHECK_EQUAL(dimensions(deeper), 0);
            MPI_Comm_free(&deeper);
        }
        MPI_Comm_free(&sub);
    }
    MPI_Comm_free(&grid);
}

/* ---- life -------------------------------------------------------------------------------------------------------- */

static void copied(void)
{
    int n = check.size, got = -1, around = -1, at = -1;
    MPI_Comm grid, copy, plain;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &n, (int[]){ 1 }, 0, &grid);
    MPI_Comm_dup(grid, &copy);
    MPI_Comm_split(grid, 0, 0, &plain);
    MPI_Comm_free(&grid);
    CHECK_EQUAL(topology(copy), MPI_CART);
    CHECK_EQUAL(topology(plain), MPI_UNDEFINED);
    CHECK_EQUAL(topology(MPI_COMM_WORLD), MPI_UNDEFINED);
    MPI_Cart_get(copy, 1, &got, &around, &at);
    CHECK(got == n && around && at == check.rank);
    MPI_Comm_free(&plain);
    MPI_Comm_dup(copy, &plain);
    MPI_Comm_free(&copy);
    CHECK_EQUAL(dimensions(plain), 1);
    MPI_Comm_free(&plain);
    MPI_Cart_create(MPI_COMM_WORLD, 1, &n, (int[]){ 0 }, 0, &grid);     /* never freed, nor its copy */
    MPI_Comm_dup(grid, &copy);
}

static void errors(void)
{
    int n = check.size, x[3] = { 0 }, y[3], z[3], one[3] = { 1, 1, 1 };
    MPI_Comm quiet, grid, none = MPI_COMM_WORLD;
    MPI_Comm_dup(MPI_COMM_WORLD, &quiet);
    MPI_Comm_set_errhandler(quiet, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    WRONG(MPI_Cart_create(quiet, 2, (int[]){ n, 2 }, x, 0, &none), MPI_ERR_DIMS);
    CHECK(none == MPI_COMM_NULL);
    WRONG(MPI_Cart_create(quiet, -1, one, x, 0, &none), MPI_ERR_DIMS);
    WRONG(MPI_Cart_create(quiet, 1, NULL, x, 0, &none), MPI_ERR_ARG);
    WRONG(MPI_Cart_create(MPI_COMM_NULL, 1, one, x, 0, &none), MPI_ERR_COMM);
    if (STRICT) {                       /* MPICH makes something of these */
        WRONG(MPI_Cart_create(quiet, 2, (int[]){ 65536, 65536 }, x, 0, &none), MPI_ERR_DIMS);
        WRONG(MPI_Cart_create(quiet, 2, (int[]){ 1, 0 }, x, 0, &none), MPI_ERR_DIMS);
    }
    WRONG(MPI_Cart_map(quiet, 1, (int[]){ n + 1 }, x, y), MPI_ERR_DIMS);
    WRONG(MPI_Cartdim_get(quiet, x), MPI_ERR_TOPOLOGY);
    if (STRICT)                         /* MPICH does not look */
        WRONG(MPI_Cart_get(quiet, 3, x, y, z), MPI_ERR_TOPOLOGY);
    WRONG(MPI_Cart_coords(quiet, 0, 3, x), MPI_ERR_TOPOLOGY);
    WRONG(MPI_Cart_rank(quiet, x, y), MPI_ERR_TOPOLOGY);
    WRONG(MPI_Cart_shift(quiet, 0, 1, x, y), MPI_ERR_TOPOLOGY);
    WRONG(MPI_Cart_sub(quiet, x, &none), MPI_ERR_TOPOLOGY);
    WRONG(MPI_Topo_test(MPI_COMM_NULL, x), MPI_ERR_COMM);
    CHECK_EQUAL(MPI_Cart_create(quiet, 2, (int[]){ 1, n }, (int[]){ 0, 1 }, 0, &grid), MPI_SUCCESS);
    WRONG(MPI_Cart_coords(grid, n, 2, y), MPI_ERR_RANK);
    WRONG(MPI_Cart_coords(grid, -1, 2, y), MPI_ERR_RANK);
    WRONG(MPI_Cart_coords(grid, 0, 1, y), MPI_ERR_DIMS);
    WRONG(MPI_Cart_rank(grid, (int[]){ 1, 0 }, y), MPI_ERR_ARG);
    WRONG(MPI_Cart_rank(grid, (int[]){ -1, 0 }, y), MPI_ERR_ARG);
    WRONG(MPI_Cart_shift(grid, 2, 1, x, y), MPI_ERR_DIMS);
    WRONG(MPI_Cart_shift(grid, -1, 1, x, y), MPI_ERR_DIMS);
    MPI_Barrier(grid);                  /* nothing of that has begun anywhere */
    WRONG(MPI_Dims_create(6, 2, (int[]){ 4, 0 }), MPI_ERR_DIMS);
    WRONG(MPI_Dims_create(6, 2, (int[]){ -1, 0 }), MPI_ERR_DIMS);
    if (STRICT) {
        WRONG(MPI_Cart_get(grid, 1, x, y, z), MPI_ERR_DIMS);
        WRONG(MPI_Dims_create(6, 2, (int[]){ 3, 1 }), MPI_ERR_DIMS);
        WRONG(MPI_Dims_create(6, -1, x), MPI_ERR_DIMS);
        WRONG(MPI_Dims_create(6, 0, x), MPI_ERR_DIMS);
        WRONG(MPI_Dims_create(0, 1, x), MPI_ERR_ARG);
    }
    MPI_Comm_free(&grid);
    MPI_Comm_free(&quiet);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* ---- a stencil --------------------------------------------------------------------------------------------------- */

enum { HIGH = 5, WIDE = 4, ROW = WIDE + 2, STEPS = 6 };         /* a rank's block, inside a border of one cell */

/* The whole field, in which every cell becomes a sum of itself and its neighbours; beyond an edge, nothing. */
static void step_alone(unsigned *field, int high, int wide, const int periods[2])
{
    unsigned *old = malloc((size_t)(high * wide) * sizeof *old);
    if (!old)
        abort();
    memcpy(old, field, (size_t)(high * wide) * sizeof *old);
    for (int y = 0; y < high; y++)
        for (int x = 0; x < wide; x++) {
            const int dy[] = { -1, 1, 0, 0 }, dx[] = { 0, 0, -1, 1 };
            unsigned sum = 3 * old[y * wide + x];
            for (int k = 0; k < 4; k++) {
                int ny = y + dy[k], nx = x + dx[k];
                if ((periods[0] || (ny >= 0 && ny < high)) && (periods[1] || (nx >= 0 && nx < wide)))
                    sum += (unsigned)(k + 1) * old[(ny + high) % high * wide + (nx + wide) % wide];
            }
            field[y * wide + x] = sum;
        }
    free(old);
}

/* Every side of the block goes to the neighbour there. */
static void swap_borders(MPI_Comm grid, unsigned *block)
{
    int before, after;
    MPI_Datatype column;
    MPI_Type_vector(HIGH, 1, ROW, MPI_UNSIGNED, &column);
    MPI_Type_commit(&column);
    MPI_Cart_shift(grid, 0, 1, &before, &after);
    MPI_Sendrecv(&block[HIGH * ROW + 1], WIDE, MPI_UNSIGNED, after, 0, &block[1], WIDE, MPI_UNSIGNED, before, 0, grid,
                 MPI_STATUS_IGNORE);
    MPI_Sendrecv(&block[ROW + 1], WIDE, MPI_UNSIGNED, before, 1, &block[(HIGH + 1) * ROW + 1], WIDE, MPI_UNSIGNED, after, 1,
                 grid, MPI_STATUS_IGNORE);
    MPI_Cart_shift(grid, 1, 1, &before, &after);
    MPI_Sendrecv(&block[ROW + WIDE], 1, column, after, 2, &block[ROW], 1, column, before, 2, grid, MPI_STATUS_IGNORE);
    MPI_Sendrecv(&block[ROW + 1], 1, column, before, 3, &block[ROW + WIDE + 1], 1, column, after, 3, grid,
                 MPI_STATUS_IGNORE);
    MPI_Type_free(&column);
}

static void step_together(MPI_Comm grid, unsigned *block)
{
    unsigned next[HIGH][WIDE];
    swap_borders(grid, block);
    for (int y = 0; y < HIGH; y++)
        for (int x = 0; x < WIDE; x++) {
            const unsigned *at = &block[(y + 1) * ROW + x + 1];
            next[y][x] = 3 * at[0] + at[-ROW] + 2 * at[ROW] + 3 * at[-1] + 4 * at[1];
        }
    for (int y = 0; y < HIGH; y++)
        memcpy(&block[(y + 1) * ROW + 1], next[y], sizeof next[y]);
}

static void check_stencil(const int dims[2], const int periods[2])
{
    int high = dims[0] * HIGH, wide = dims[1] * WIDE, at[2], got[2], around[2];
    size_t bytes = (size_t)((HIGH + 2) * ROW) * sizeof(unsigned);
    unsigned char *area = area_new(bytes, 5), *other = area_new(bytes, 5);
    unsigned *block = (unsigned *)(void *)area, *want = (unsigned *)(void *)other;
    unsigned *field = malloc((size_t)(high * wide) * sizeof *field);
    MPI_Comm grid;
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Cart_get(grid, 2, got, around, at);
    memset(area, 0, bytes);             /* the border, where there is no neighbour */
    memset(other, 0, bytes);
    for (int i = 0; field && i < high * wide; i++)
        field[i] = (unsigned)i * 2654435761u + 1;
    for (int y = 0; y < HIGH; y++)
        memcpy(&block[(y + 1) * ROW + 1], &field[(at[0] * HIGH + y) * wide + at[1] * WIDE], WIDE * sizeof *field);
    for (int i = 0; i < STEPS; i++) {
        step_together(grid, block);
        step_alone(field, high, wide, periods);
    }
    swap_borders(grid, block);
    for (int y = -1; y <= HIGH; y++)
        for (int x = -1; x <= WIDE; x++) {
            int gy = at[0] * HIGH + y, gx = at[1] * WIDE + x, corner = (y < 0 || y == HIGH) && (x < 0 || x == WIDE);
            if (!corner && (periods[0] || (gy >= 0 && gy < high)) && (periods[1] || (gx >= 0 && gx < wide)))
                want[(y + 1) * ROW + x + 1] = field[(gy + high) % high * wide + (gx + wide) % wide];
        }
    CHECK_SAME(area, other, bytes);
    free(field);
    area_free(area);
    area_free(other);
    MPI_Comm_free(&grid);
}

static void stencil(void)
{
    int dims[2] = { 0 };
    MPI_Dims_create(check.size, 2, dims);
    for (int i = 0; i < 4; i++) {
        check_stencil(dims, (int[]){ i & 1, i & 2 });
        check_stencil((int[]){ dims[1], dims[0] }, (int[]){ i & 1, i & 2 });
    }
}

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    run("shapes", shapes);
    run("mapped", mapped);
    run("without dimensions", without_dimensions);
    run("balanced", balanced);
    run("given", given);
    run("sums", sums);
    run("subgrids", subgrids);
    run("copied", copied);
    run("errors", errors);
    run("stencil", stencil);
    return check_end();
}
