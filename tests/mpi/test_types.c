/* test_types.c: data types: known ones by hand; chance makes nested ones, which are compared with their typemaps: bounds,
 * packing, messages whole and cut within an element. test_types SEED: begins with another one.
 *
 * Of the types that chance makes MPICH 4.0 and Open MPI 4.1 have some wrong, each of them others: where one does not agree with
 * the typemap the other does.
 * SPDX-License-Identifier: MIT
 */
#include "map.h"

#include <complex.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <wchar.h>

enum { TYPES = 400, ENTRIES = 600, PARTS = 4, OUTER = 3, TAG = 5 };

static int next, before;                /* ranks of the ring in which messages go */

/* ---- known ones -------------------------------------------------------------------------------------------------- */

static void predefined(void)
{
#define KNOWN(type, c_type) { type, #type, sizeof(c_type) }
    const struct { MPI_Datatype type; const char *name; int size; } known[] = {
        KNOWN(MPI_CHAR, char), KNOWN(MPI_SIGNED_CHAR, signed char), KNOWN(MPI_UNSIGNED_CHAR, unsigned char),
        KNOWN(MPI_BYTE, char), KNOWN(MPI_PACKED, char), KNOWN(MPI_SHORT, short), KNOWN(MPI_UNSIGNED_SHORT, unsigned short),
        KNOWN(MPI_INT, int), KNOWN(MPI_UNSIGNED, unsigned), KNOWN(MPI_LONG, long), KNOWN(MPI_UNSIGNED_LONG, unsigned long),
        KNOWN(MPI_LONG_LONG_INT, long long), KNOWN(MPI_UNSIGNED_LONG_LONG, unsigned long long), KNOWN(MPI_FLOAT, float),
        KNOWN(MPI_DOUBLE, double), KNOWN(MPI_LONG_DOUBLE, long double), KNOWN(MPI_WCHAR, wchar_t), KNOWN(MPI_C_BOOL, bool),
        KNOWN(MPI_INT8_T, int8_t), KNOWN(MPI_INT16_T, int16_t), KNOWN(MPI_INT32_T, int32_t), KNOWN(MPI_INT64_T, int64_t),
        KNOWN(MPI_UINT8_T, uint8_t), KNOWN(MPI_UINT16_T, uint16_t), KNOWN(MPI_UINT32_T, uint32_t),
        KNOWN(MPI_UINT64_T, uint64_t), KNOWN(MPI_AINT, MPI_Aint), KNOWN(MPI_COUNT, MPI_Count), KNOWN(MPI_OFFSET, MPI_Offset),
        KNOWN(MPI_C_FLOAT_COMPLEX, float complex), KNOWN(MPI_C_DOUBLE_COMPLEX, double complex),
        KNOWN(MPI_C_LONG_DOUBLE_COMPLEX, long double complex) };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        char name[MPI_MAX_OBJECT_NAME];
        int size, length;
        MPI_Aint lb, extent;
        MPI_Type_size(known[i].type, &size);
        CHECK_EQUAL(size, known[i].size);
        MPI_Type_get_extent(known[i].type, &lb, &extent);
        CHECK(lb == 0 && extent == known[i].size);
        MPI_Type_get_name(known[i].type, name, &length);
        bool two = strstr(known[i].name, "LONG_LONG_INT") || strstr(known[i].name, "COMPLEX");  /* it has another name, too */
        CHECK(two || strcmp(name, known[i].name) == 0);
        CHECK_EQUAL(length, strlen(name));
    }
    CHECK(MPI_LONG_LONG == MPI_LONG_LONG_INT);
}

static void pairs(void)
{
#define PAIR(type, c_type) { type, sizeof(c_type) + sizeof(int), sizeof(struct { c_type v; int i; }) }
    const struct { MPI_Datatype type; int size; long extent; } known[] = {
        PAIR(MPI_FLOAT_INT, float), PAIR(MPI_DOUBLE_INT, double), PAIR(MPI_LONG_INT, long), PAIR(MPI_2INT, int),
        PAIR(MPI_SHORT_INT, short), PAIR(MPI_LONG_DOUBLE_INT, long double) };
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        int size;
        MPI_Aint lb, extent;
        MPI_Type_size(known[i].type, &size);
        MPI_Type_get_extent(known[i].type, &lb, &extent);
        CHECK_EQUAL(size, known[i].size);
        CHECK_EQUAL(lb, 0);
        CHECK_EQUAL(extent, known[i].extent);
    }
}

/* Size, bounds, and bounds of the data. */
static void expect(MPI_Datatype type, int size, long lb, long extent, long true_lb, long true_extent)
{
    MPI_Aint a, b;
    MPI_Count large;
    int n;
    MPI_Type_size(type, &n);
    CHECK_EQUAL(n, size);
    MPI_Type_size_x(type, &large);
    CHECK_EQUAL(large, size);
    MPI_Type_get_extent(type, &a, &b);
    CHECK_EQUAL(a, lb);
    CHECK_EQUAL(b, extent);
    MPI_Type_get_true_extent(type, &a, &b);
    CHECK_EQUAL(a, true_lb);
    CHECK(b == true_extent || true_extent < 0);
}

static void by_hand(void)
{
    struct padded { char c; double d; char e; };
    const MPI_Aint at[3] = { offsetof(struct padded, c), offsetof(struct padded, d), offsetof(struct padded, e) };
    const MPI_Datatype types[3] = { MPI_CHAR, MPI_DOUBLE, MPI_CHAR };
    const int ones[3] = { 1, 1, 1 }, sizes[2] = { 4, 6 }, subsizes[2] = { 2, 3 }, from[2] = { 1, 2 }, lengths[2] = { 2, 1 };
    const int displs[2] = { 3, -1 };
    MPI_Datatype t, u;
    MPI_Type_create_struct(3, ones, at, types, &t);
    expect(t, 10, 0, sizeof(struct padded), 0, offsetof(struct padded, e) + 1);
    MPI_Type_free(&t);
    CHECK(t == MPI_DATATYPE_NULL);
    MPI_Type_vector(3, 2, -4, MPI_INT, &t);
    expect(t, 24, -32, 40, -32, 40);
    MPI_Type_free(&t);
    MPI_Type_create_resized(MPI_INT, -4, 12, &t);
    expect(t, 4, -4, 12, 0, 4);
    MPI_Type_contiguous(3, t, &u);
    expect(u, 12, -4, 36, 0, 28);
    MPI_Type_free(&t);
    MPI_Type_free(&u);
    MPI_Type_create_subarray(2, sizes, subsizes, from, MPI_ORDER_C, MPI_DOUBLE, &t);
    expect(t, 48, 0, 192, 64, 72);
    MPI_Type_free(&t);
    MPI_Type_create_subarray(2, sizes, subsizes, from, MPI_ORDER_FORTRAN, MPI_DOUBLE, &t);
    expect(t, 48, 0, 192, 72, 80);
    MPI_Type_free(&t);
    MPI_Type_indexed(2, lengths, displs, MPI_SHORT, &t);
    expect(t, 6, -2, 12, -2, 12);
    MPI_Type_free(&t);
    MPI_Type_contiguous(0, MPI_INT, &t);
    expect(t, 0, 0, 0, 0, 0);
    const MPI_Aint places[2] = { 0, 100 };
    const MPI_Datatype int_and_none[2] = { MPI_INT, t };        /* what is empty has a place, */
    MPI_Type_create_struct(2, ones, places, int_and_none, &u);
    expect(u, 4, 0, 100, 0, STRICT ? 4 : -1);
    MPI_Type_free(&u);
    const int none[2] = { 1, 0 };                               /* what is not there has none */
    MPI_Type_create_struct(2, none, places, int_and_none, &u);
    expect(u, 4, 0, 4, 0, 4);
    MPI_Type_free(&u);
    MPI_Type_free(&t);
    MPI_Type_indexed(0, NULL, NULL, MPI_INT, &t);
    expect(t, 0, 0, 0, 0, 0);
    MPI_Type_free(&t);
}

static void names(void)
{
    char name[MPI_MAX_OBJECT_NAME];
    int length;
    MPI_Datatype t, u;
    MPI_Type_contiguous(2, MPI_INT, &t);
    MPI_Type_get_name(t, name, &length);
    CHECK(length == 0 && name[0] == 0);
    MPI_Type_set_name(t, "two ints");
    MPI_Type_dup(t, &u);
    MPI_Type_free(&t);
    MPI_Type_set_name(u, "two more");
    MPI_Type_get_name(u, name, &length);
    CHECK(length == 8 && strcmp(name, "two more") == 0);
    MPI_Type_free(&u);
}

static void addresses(void)
{
    int a[4] = { 0 };
    MPI_Aint low, high;
    MPI_Get_address(&a[1], &low);
    MPI_Get_address(&a[3], &high);
    CHECK_EQUAL(MPI_Aint_diff(high, low), 2 * sizeof(int));
    CHECK(MPI_Aint_add(low, 2 * sizeof(int)) == high);
}

/* ---- made by chance ---------------------------------------------------------------------------------------------- */

static made basic(MPI_Datatype type, int size, int align) { return (made){ type, map_basic(size, align), 0 }; }

static made random_basic(void)
{
    switch (chance(8)) {
    case 0:  return basic(MPI_CHAR, 1, 1);
    case 1:  return basic(MPI_SHORT, sizeof(short), _Alignof(short));
    case 2:  return basic(MPI_INT, sizeof(int), _Alignof(int));
    case 3:  return basic(MPI_FLOAT, sizeof(float), _Alignof(float));
    case 4:  return basic(MPI_DOUBLE, sizeof(double), _Alignof(double));
    case 5:  return basic(MPI_LONG_LONG, sizeof(long long), _Alignof(long long));
    case 6:  return basic(MPI_BYTE, 1, 1);
    default: return basic(MPI_UINT16_T, 2, 2);
    }
}

static void shuffle(int order[], int n)
{
    for (int i = 0; i < n; i++) {
        int k = chance(i + 1);
        order[i] = order[k];
        order[k] = i;
    }
}

static long reach(const map *m, int count)      /* what so many elements span, with their bounds */
{
    long low, high, ends = labs(map_extent(m)) * count + labs(m->lb);
    map_span(m, count, &low, &high);
    return labs(low) + labs(high) + ends;
}

static long rounded(long bytes) { return (bytes + 15) / 16 * 16; }

/* 0 .. n - 1; but others are not at one about types in which something is empty. */
static int some(int n) { return STRICT ? chance(n) : 1 + chance(n - 1); }

static void make_strided(made *out, const made *in)
{
    int count = some(4), length = some(3), stride = chance(2) ? length + chance(3) : -length - chance(3), kind = chance(3);
    long bytes = stride * map_extent(&in->map);
    if (kind == 0) {
        MPI_Type_contiguous(count, in->type, &out->type);
        stride = length = 1;
        bytes = map_extent(&in->map);
    } else if (kind == 1) {
        MPI_Type_vector(count, length, stride, in->type, &out->type);
    } else {
        bytes = (chance(2) ? 1 : -1) * rounded(reach(&in->map, 3));
        MPI_Type_create_hvector(count, length, bytes, in->type, &out->type);
    }
    for (int i = 0; i < count; i++)
        map_put_row(&out->map, &in->map, i * bytes, length);
}

static void make_listed(made *out, const made *in)
{
    int n = some(PARTS + 1), kind = chance(4), order[PARTS], lengths[PARTS], displs[PARTS];
    MPI_Aint bytes[PARTS];
    long step = rounded(reach(&in->map, 3));
    shuffle(order, n);
    for (int i = 0; i < n; i++) {
        lengths[i] = kind < 2 ? some(3) : 2;
        displs[i] = order[i] * 3 - 4;
        bytes[i] = order[i] * step - step;
    }
    switch (kind) {
    case 0:  MPI_Type_indexed(n, lengths, displs, in->type, &out->type); break;
    case 1:  MPI_Type_create_hindexed(n, lengths, bytes, in->type, &out->type); break;
    case 2:  MPI_Type_create_indexed_block(n, 2, displs, in->type, &out->type); break;
    default: MPI_Type_create_hindexed_block(n, 2, bytes, in->type, &out->type); break;
    }
    for (int i = 0; i < n; i++)
        map_put_row(&out->map, &in->map, kind % 2 ? bytes[i] : displs[i] * map_extent(&in->map), lengths[i]);
}

static void make_struct(made *out, const made in[2])
{
    int n = some(PARTS + 1), order[PARTS], lengths[PARTS];
    MPI_Aint at[PARTS];
    MPI_Datatype types[PARTS];
    long step = reach(&in[0].map, 3) > reach(&in[1].map, 3) ? reach(&in[0].map, 3) : reach(&in[1].map, 3);
    shuffle(order, n);
    for (int i = 0; i < n; i++) {
        lengths[i] = some(3);
        types[i] = in[i % 2].type;
        at[i] = order[i] * step + chance(4) - step;
    }
    MPI_Type_create_struct(n, lengths, at, types, &out->type);
    for (int i = 0; i < n; i++)
        map_put_row(&out->map, &in[i % 2].map, at[i], lengths[i]);
    map_pad(&out->map);
}

static void make_subarray(made *out, const made *in)
{
    int n = 1 + chance(3), sizes[3] = { 1, 1, 1 }, subsizes[3] = { 1, 1, 1 }, from[3] = { 0, 0, 0 };
    int order = chance(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN, all = 1, k[3];
    for (int i = 0; i < n; i++) {
        sizes[i] = 1 + chance(3);
        subsizes[i] = 1 + chance(sizes[i]);
        from[i] = chance(sizes[i] - subsizes[i] + 1);
        all *= sizes[i];
    }
    MPI_Type_create_subarray(n, sizes, subsizes, from, order, in->type, &out->type);
    int fast = order == MPI_ORDER_C ? n - 1 : 0, slow = order == MPI_ORDER_C ? 0 : n - 1;
    int middle = n == 3 ? 1 : slow;
    for (k[0] = 0; k[0] < subsizes[slow]; k[0]++)
        for (k[1] = 0; k[1] < (n == 3 ? subsizes[1] : 1); k[1]++)
            for (k[2] = 0; k[2] < (n > 1 ? subsizes[fast] : 1); k[2]++) {
                int place = k[0] + from[slow];
                if (n == 3)
                    place = place * sizes[middle] + k[1] + from[middle];
                if (n > 1)
                    place = place * sizes[fast] + k[2] + from[fast];
                map_put(&out->map, &in->map, place * map_extent(&in->map));
            }
    map_resize(&out->map, 0, all * map_extent(&in->map));
}

static made random_type(int depth)
{
    made in[2] = { 0 }, out = { 0 };
    if (depth == 0 || chance(9) == 0)
        return random_basic();
    for (int i = 0; i < 2; i++)
        in[i] = random_type(depth - 1);
    switch (chance(9)) {
    case 0: case 1: make_strided(&out, in); break;
    case 2: case 3: case 4: make_listed(&out, in); break;
    case 5: case 6: make_struct(&out, in); break;
    case 7: make_subarray(&out, in); break;
    default:
        map_put(&out.map, &in[0].map, 0);
        if (chance(2)) {
            MPI_Type_dup(in[0].type, &out.type);
        } else {
            long lb = chance(17) - 8, extent = map_extent(&in[0].map) + 8 * chance(3);
            MPI_Type_create_resized(in[0].type, lb, extent, &out.type);
            map_resize(&out.map, lb, extent);
        }
    }
    out.derived = 1;
    for (int i = 0; i < 2; i++)         /* what is made of them lives on */
        made_free(&in[i]);
    return out;
}

static void bounds_of(const made *m)
{
    long low, high;
    MPI_Aint lb, extent;
    int size;
    map_span(&m->map, 1, &low, &high);
    MPI_Type_size(m->type, &size);
    CHECK_EQUAL(size, map_size(&m->map));
    if (m->map.n == 0 && !STRICT)       /* of empty types others give what they like */
        return;
    MPI_Type_get_extent(m->type, &lb, &extent);
    CHECK_EQUAL(lb, m->map.lb);
    CHECK_EQUAL(extent, map_extent(&m->map));
    MPI_Type_get_true_extent(m->type, &lb, &extent);
    CHECK(m->map.n == 0 || (lb == low && extent == high - low));
}

static void pack_and_unpack(const made *m, int count)
{
    enum { SKIP = 3 };                  /* bytes before it in the packed buffer */
    long low, high, bytes = count * map_size(&m->map);
    map_span(&m->map, count, &low, &high);
    unsigned char *data = area_new((size_t)(high - low), 1), *same = area_new((size_t)(high - low), 1);
    unsigned char *packed = area_new((size_t)bytes + SKIP, 2), *want = area_new((size_t)bytes + SKIP, 2);
    int position = SKIP, room;
    MPI_Pack_size(count, m->type, MPI_COMM_WORLD, &room);
    CHECK(room >= bytes);
    MPI_Pack(data - low, count, m->type, packed, (int)bytes + SKIP, &position, MPI_COMM_WORLD);
    map_pack(&m->map, data - low, count, want + SKIP);
    CHECK_EQUAL(position, bytes + SKIP);
    CHECK_SAME(packed, want, (size_t)bytes + SKIP);
    CHECK_SAME(data, same, (size_t)(high - low));
    for (long i = 0; i < bytes; i++)
        packed[SKIP + i] = pattern(3, (size_t)i);
    position = SKIP;
    if (!map_overlaps(&m->map, count) && (STRICT || bytes > 0)) {       /* MPICH divides by 0 */
        MPI_Unpack(packed, (int)bytes + SKIP, &position, data - low, count, m->type, MPI_COMM_WORLD);
        map_unpack(&m->map, same - low, count, packed + SKIP, bytes);
        CHECK_EQUAL(position, bytes + SKIP);
        CHECK_SAME(data, same, (size_t)(high - low));
    }
    area_free(data);
    area_free(same);
    area_free(packed);
    area_free(want);
}

/* Round the ring: count elements are sent, and come into a buffer of `room` elements of a type `into`, of which each is `each`
 * elements of the first. */
static void round_the_ring(const made *m, int count, MPI_Datatype into, int room, int each)
{
    long low, high, bytes = count * map_size(&m->map);
    int got, cells = room * each;
    MPI_Status status;
    map_span(&m->map, cells > count ? cells : count, &low, &high);
    unsigned char *data = area_new((size_t)(high - low), 10 + (unsigned)check.rank);
    unsigned char *theirs = area_new((size_t)(high - low), 10 + (unsigned)before);
    unsigned char *recv = area_new((size_t)(high - low), 7), *want = area_new((size_t)(high - low), 7);
    unsigned char *packed = malloc((size_t)bytes + 1);
    MPI_Sendrecv(data - low, count, m->type, next, TAG, recv - low, room, into, before, TAG, MPI_COMM_WORLD, &status);
    map_pack(&m->map, theirs - low, count, packed);
    map_unpack(&m->map, want - low, cells, packed, bytes);
    CHECK_SAME(recv, want, (size_t)(high - low));
    long size = each * map_size(&m->map);
    MPI_Get_count(&status, into, &got);
    CHECK_EQUAL(got, size == 0 ? 0 : bytes % size ? MPI_UNDEFINED : bytes / size);
    MPI_Get_elements(&status, into, &got);
    CHECK_EQUAL(got, map_elements(&m->map, bytes));
    area_free(data);
    area_free(theirs);
    area_free(recv);
    area_free(want);
    free(packed);
}

static void made_by_chance(void)
{
    int seen = 0;
    for (int i = 0; i < TYPES; i++) {
        made m = random_type(3);
        int fits = m.map.n <= ENTRIES;
        if (fits) {
            int failed = check.failed[check.cases], count = chance(4);
            bounds_of(&m);
            MPI_Type_commit(&m.type);
            pack_and_unpack(&m, count);
            if (!map_overlaps(&m.map, OUTER + 1)) {
                MPI_Datatype outer;
                MPI_Type_contiguous(OUTER, m.type, &outer);
                MPI_Type_commit(&outer);
                round_the_ring(&m, count, m.type, count + chance(2), 1);
                round_the_ring(&m, chance(OUTER + 1), outer, 1, OUTER);
                MPI_Type_free(&outer);
                seen++;
            }
            if (check.failed[check.cases] > failed && failed < TOLD)
                fprintf(stderr, "    this is type %d: %d entries\n", i, m.map.n);
        }
        made_free(&m);
    }
    CHECK(seen > TYPES / 4);
}

/* ---- in use ------------------------------------------------------------------------------------------------------ */

/* A matrix is sent by rows and received by columns; at once, and in the tall case beyond what goes without asking. */
static void transposed(void)
{
    enum { ROWS = 150, COLUMNS = 400 };
    static double a[ROWS][COLUMNS], b[COLUMNS][ROWS];
    int wrong = 0;
    MPI_Datatype column, columns;
    MPI_Type_vector(COLUMNS, 1, ROWS, MPI_DOUBLE, &column);
    MPI_Type_create_resized(column, 0, sizeof(double), &columns);
    MPI_Type_commit(&columns);
    MPI_Type_free(&column);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            a[i][k] = check.rank + i * 1000.0 + k;
    MPI_Sendrecv(a, ROWS * COLUMNS, MPI_DOUBLE, next, TAG, b, ROWS, columns, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < ROWS; i++)
        for (int k = 0; k < COLUMNS; k++)
            wrong += b[k][i] != before + i * 1000.0 + k;
    CHECK_EQUAL(wrong, 0);
    MPI_Type_free(&columns);
}

static void at_the_bottom(void)
{
    int a[4] = { 1, 2, 3, 4 }, c[4] = { 0 };
    double b[3] = { 5, 6, 7 }, d[3] = { 0 };
    MPI_Aint from[2], to[2];
    const int lengths[2] = { 2, 3 };
    const MPI_Datatype types[2] = { MPI_INT, MPI_DOUBLE };
    MPI_Datatype out, in;
    MPI_Get_address(&a[1], &from[0]);
    MPI_Get_address(b, &from[1]);
    MPI_Get_address(&c[2], &to[0]);
    MPI_Get_address(d, &to[1]);
    MPI_Type_create_struct(2, lengths, from, types, &out);
    MPI_Type_create_struct(2, lengths, to, types, &in);
    MPI_Type_commit(&out);
    MPI_Type_commit(&in);
    MPI_Sendrecv(MPI_BOTTOM, 1, out, next, TAG, MPI_BOTTOM, 1, in, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(c[0] == 0 && c[1] == 0 && c[2] == 2 && c[3] == 3);
    CHECK(d[0] == 5 && d[1] == 6 && d[2] == 7);
    MPI_Type_free(&out);
    MPI_Type_free(&in);
    MPI_Type_create_hindexed(1, &lengths[1], &to[1], MPI_DOUBLE, &in);      /* without holes, but elsewhere */
    MPI_Type_commit(&in);
    b[0] = 8;
    MPI_Sendrecv(b, 3, MPI_DOUBLE, next, TAG, MPI_BOTTOM, 1, in, before, TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(d[0] == 8 && d[1] == 6 && d[2] == 7);
    MPI_Type_free(&in);
}

/* A type is freed while a receive uses it, and the one that it was made of before. */
static void freed_in_use(void)
{
    int out[3] = { check.rank, 7, 9 }, in[7] = { -1, -1, -1, -1, -1, -1, -1 };
    MPI_Datatype pair, spread, copy;
    MPI_Request request;
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &pair);
    MPI_Type_contiguous(3, pair, &spread);
    MPI_Type_free(&pair);
    MPI_Type_commit(&spread);
    MPI_Type_dup(spread, &copy);
    MPI_Type_free(&spread);
    MPI_Irecv(in, 1, copy, before, TAG, MPI_COMM_WORLD, &request);
    MPI_Type_free(&copy);
    MPI_Send(out, 3, MPI_INT, next, TAG, MPI_COMM_WORLD);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(in[0] == before && in[1] == -1 && in[2] == 7 && in[3] == -1 && in[4] == 9 && in[5] == -1 && in[6] == -1);
}

/* Packed by one, piece by piece, received as packed, and unpacked by another. */
static void sent_packed(void)
{
    unsigned char buffer[100];
    int position = 0, n = 3, count, got[3] = { 0 };
    double x = 0, values[3] = { 1, 2, 3 };
    short spread[4] = { 1, 2, 3, 4 }, back[4] = { 0 };
    MPI_Datatype every_other;
    MPI_Status status;
    MPI_Type_vector(2, 1, 2, MPI_SHORT, &every_other);
    MPI_Type_commit(&every_other);
    MPI_Pack(&n, 1, MPI_INT, buffer, sizeof buffer, &position, MPI_COMM_WORLD);
    MPI_Pack(values, 1, MPI_DOUBLE, buffer, sizeof buffer, &position, MPI_COMM_WORLD);
    MPI_Pack(spread, 1, every_other, buffer, sizeof buffer, &position, MPI_COMM_WORLD);
    MPI_Sendrecv_replace(buffer, position, MPI_PACKED, next, TAG, before, TAG, MPI_COMM_WORLD, &status);
    MPI_Get_count(&status, MPI_PACKED, &count);
    CHECK_EQUAL(count, position);
    position = 0;
    MPI_Unpack(buffer, count, &position, got, 1, MPI_INT, MPI_COMM_WORLD);
    MPI_Unpack(buffer, count, &position, &x, 1, MPI_DOUBLE, MPI_COMM_WORLD);
    MPI_Unpack(buffer, count, &position, back, 1, every_other, MPI_COMM_WORLD);
    CHECK(got[0] == 3 && x == 1 && back[0] == 1 && back[1] == 0 && back[2] == 3 && position == count);
    MPI_Type_free(&every_other);
}

#ifdef GRIDCOMM_MPI                     /* others have taken them away */
static void of_mpi_1(void)
{
    int ones[3] = { 1, 1, 1 }, a[4] = { 0 };
    MPI_Aint at[3] = { -4, 0, 12 }, lb, ub, extent, from, to;
    MPI_Datatype types[3] = { MPI_LB, MPI_INT, MPI_UB }, t, u;
    MPI_Type_struct(3, ones, at, types, &t);
    MPI_Type_lb(t, &lb);
    MPI_Type_ub(t, &ub);
    MPI_Type_extent(t, &extent);
    CHECK(lb == -4 && ub == 12 && extent == 16);
    MPI_Type_contiguous(2, t, &u);
    expect(u, 8, -4, 32, 0, 20);
    MPI_Type_free(&u);
    MPI_Type_hvector(2, 1, 100, t, &u);
    expect(u, 8, -4, 116, 0, 104);
    MPI_Type_free(&u);
    MPI_Type_hindexed(1, ones, &at[2], t, &u);
    expect(u, 4, 8, 16, 12, 4);
    MPI_Type_free(&u);
    MPI_Type_free(&t);
    MPI_Address(&a[0], &from);
    MPI_Address(&a[2], &to);
    CHECK_EQUAL(to - from, 2 * sizeof(int));
}
#endif

int main(int argc, char **argv)
{
    check_begin(&argc, &argv, 100);
    chance_state = argc > 1 ? strtoull(argv[1], NULL, 0) : 1;
    next = (check.rank + 1) % check.size;
    before = (check.rank + check.size - 1) % check.size;
    if (check.rank == 0)
        printf("seed %llu\n", chance_state);
    run("predefined types", predefined);
    run("pairs", pairs);
    run("known types", by_hand);
    run("names", names);
    run("addresses", addresses);
    run("types made by chance", made_by_chance);
    run("a matrix is transposed", transposed);
    run("absolute addresses", at_the_bottom);
    run("freed in use", freed_in_use);
    run("packed", sent_packed);
#ifdef GRIDCOMM_MPI
    run("types of MPI 1", of_mpi_1);
#endif
    return check_end();
}
