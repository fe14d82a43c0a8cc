/* test_op.c: types and reduction kernels against a slow oracle that works on 64-bit integers and long doubles; half precision
 * and bfloat16 against doubles that are rounded by arithmetic, not by bits.
 * SPDX-License-Identifier: MIT
 *
 * GCT_SEED replays the random values.
 */
#include "gridcomm_int.h"
#include "tests/unit/random.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>

enum { COUNT_MAX = 1000, MARGIN = 16, CANARY = 0xa5 };

static const size_t counts[] = { 0, 1, 2, 63, 64, 65, 127, 128, 129, 255, 256, 257, 511, COUNT_MAX };

static uint64_t random_word(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    return random_state;
}

static bool is_float(gc_type type)
{
    return type >= GC_FLOAT && type <= GC_BFLOAT16;
}

static bool is_narrow(gc_type type)
{
    return type == GC_FLOAT16 || type == GC_BFLOAT16;
}

/* The value of 16 bits: fraction_bits of fraction below the exponent. */
static double narrow_value(gc_type type, uint16_t bits)
{
    int fraction_bits = type == GC_FLOAT16 ? 10 : 7, least = type == GC_FLOAT16 ? -14 : -126;
    int fraction = bits & ((1 << fraction_bits) - 1), exponent = (bits & 0x7fff) >> fraction_bits;
    int most = (1 << (15 - fraction_bits)) - 1;
    double value = exponent == most ? (fraction ? (double)NAN : (double)INFINITY)
                 : exponent == 0 ? ldexp(fraction, least - fraction_bits)
                 : ldexp(fraction + (1 << fraction_bits), least + exponent - 1 - fraction_bits);
    return bits & 0x8000 ? -value : value;
}

/* The nearest value of the type, of two the even one. */
static double narrow_round(gc_type type, double value)
{
    int fraction_bits = type == GC_FLOAT16 ? 10 : 7, least = type == GC_FLOAT16 ? -14 : -126;
    if (value == 0 || !isfinite(value))
        return value;
    int exponent = ilogb(value) > least ? ilogb(value) : least;
    double nearest = ldexp(nearbyint(ldexp(value, fraction_bits - exponent)), exponent - fraction_bits);
    return fabs(nearest) >= ldexp(1, 2 - least) ? copysign((double)INFINITY, value) : nearest;
}

static bool is_signed(gc_type type)
{
    return type >= GC_INT8 && type <= GC_INT64;
}

/* An integer of a type, widened. */
static uint64_t read_int(gc_type type, const unsigned char *p)
{
    uint64_t v = 0;
    size_t bytes = gci_type_bytes(type);
    for (size_t i = 0; i < bytes; i++)
        v |= (uint64_t)p[i] << (8 * i);
    if (is_signed(type) && bytes < 8 && v >> (8 * bytes - 1))
        v |= ~UINT64_C(0) << (8 * bytes);
    return v;
}

static uint64_t oracle_int(gc_op op, gc_type type, uint64_t a, uint64_t b)
{
    bool less = is_signed(type) ? (int64_t)a < (int64_t)b : a < b;
    switch (op) {
    case GC_SUM:  return a + b;
    case GC_PROD: return a * b;
    case GC_MIN:  return less ? a : b;
    case GC_MAX:  return less ? b : a;
    case GC_BAND: return a & b;
    case GC_BOR:  return a | b;
    case GC_BXOR: return a ^ b;
    case GC_LAND: return a && b;
    case GC_LOR:  return a || b;
    default:      return !a != !b;
    }
}

static bool same_bits_truncated(gc_type type, const unsigned char *got, uint64_t want)
{
    for (size_t i = 0; i < gci_type_bytes(type); i++)
        if (got[i] != (unsigned char)(want >> (8 * i)))
            return false;
    return true;
}

static long double read_real(gc_type type, const unsigned char *p)
{
    float f;
    double d;
    uint16_t bits;
    memcpy(&bits, p, sizeof bits);
    if (is_narrow(type))
        return (long double)narrow_value(type, bits);
    memcpy(&f, p, sizeof f);
    if (type == GC_FLOAT)
        return (long double)f;
    memcpy(&d, p, sizeof d);
    return (long double)d;
}

/* Values are small integers, so that sums and products are exact; narrow ones any but infinite, and rounded. */
static void write_real(gc_type type, unsigned char *p, int value)
{
    float f = (float)value;
    double d = (double)value;
    uint16_t bits = (uint16_t)random_word();
    if (!isfinite(narrow_value(type, bits)))
        bits &= 0xbfff;
    if (is_narrow(type))
        memcpy(p, &bits, sizeof bits);
    else if (type == GC_FLOAT)
        memcpy(p, &f, sizeof f);
    else
        memcpy(p, &d, sizeof d);
}

static long double oracle_real(gc_op op, gc_type type, long double a, long double b)
{
    long double exact = op == GC_SUM ? a + b : op == GC_PROD ? a * b : op == GC_MIN ? fminl(a, b) : fmaxl(a, b);
    return is_narrow(type) ? (long double)narrow_round(type, (double)exact) : exact;
}

static void fill(gc_type type, unsigned char *p, size_t count)
{
    size_t bytes = gci_type_bytes(type);
    for (size_t i = 0; i < count; i++) {
        uint64_t word = random_word();
        if (is_float(type)) {
            write_real(type, p + i * bytes, (int)(word % 2001) - 1000);
            continue;
        }
        if (word % 4 == 0)
            word = word >> 8 & 1 ? ~UINT64_C(0) : 0;     /* extremes and zeros, for the logical operations */
        memcpy(p + i * bytes, &word, bytes);
    }
}

/* One kernel on one length, at one misalignment. */
static void compare(gc_op op, gc_type type, size_t count, size_t shift)
{
    static unsigned char in[COUNT_MAX * 8 + 2 * MARGIN], inout[COUNT_MAX * 8 + 2 * MARGIN], old[COUNT_MAX * 8 + 2 * MARGIN];
    size_t bytes = gci_type_bytes(type), from = MARGIN - shift;
    memset(inout, CANARY, sizeof inout);
    fill(type, in + shift, count);
    fill(type, inout + from, count);
    memcpy(old, inout, sizeof old);
    gci_op_apply(op, type, in + shift, inout + from, count);
    for (size_t i = 0; i < sizeof inout; i++)
        if (i < from || i >= from + count * bytes)
            assert_int_equal(inout[i], CANARY);
    for (size_t i = 0; i < count; i++) {
        const unsigned char *a = in + shift + i * bytes, *b = old + from + i * bytes, *got = inout + from + i * bytes;
        bool right = is_float(type)
            ? read_real(type, got) == oracle_real(op, type, read_real(type, a), read_real(type, b))
            : same_bits_truncated(type, got, oracle_int(op, type, read_int(type, a), read_int(type, b)));
        if (!right)
            fail_msg("%s of %s: element %zu of %zu", gci_op_name(op), gci_type_name(type), i, count);
    }
}

static void test_kernels(void **state)
{
    seed_random();
    int pairs = 0;
    (void)state;
    random_state |= 1;
    for (gc_op op = GC_SUM; op <= GC_LXOR; op++)
        for (gc_type type = GC_INT8; type <= GC_OPAQUE; type++) {
            if (!gci_op_predefined(op, type))
                continue;
            pairs++;
            for (size_t i = 0; i < GCI_COUNT(counts); i++)
                for (size_t shift = 0; shift < 3; shift++)
                    compare(op, type, counts[i], shift);
        }
    assert_int_equal(pairs, 8 * 10 + 4 * 4);
}

static void test_which_pairs(void **state)
{
    (void)state;
    for (gc_op op = GC_SUM; op <= GC_LXOR; op++) {
        for (gc_type type = GC_INT8; type <= GC_UINT64; type++)
            assert_true(gci_op_predefined(op, type));
        assert_int_equal(gci_op_predefined(op, GC_FLOAT), op <= GC_MAX);
        assert_int_equal(gci_op_predefined(op, GC_DOUBLE), op <= GC_MAX);
        assert_int_equal(gci_op_predefined(op, GC_FLOAT16), op <= GC_MAX);
        assert_int_equal(gci_op_predefined(op, GC_BFLOAT16), op <= GC_MAX);
        assert_false(gci_op_predefined(op, GC_OPAQUE));
    }
    static const int odd[] = { -1, 0, 11, 13, 14, 64, 1000, INT32_MAX, INT32_MIN };
    for (size_t i = 0; i < GCI_COUNT(odd); i++) {
        assert_false(gci_op_predefined(odd[i], GC_INT32));
        assert_int_equal(gci_op_predefined(GC_SUM, odd[i]), odd[i] == GC_FLOAT16);
        gci_op_apply(odd[i], GC_INT32, NULL, NULL, 1);      /* does nothing */
    }
}

static void test_sizes_and_names(void **state)
{
    static const size_t bytes[] = { 1, 2, 4, 8, 1, 2, 4, 8, 4, 8, 2, 2, 1 };
    (void)state;
    for (gc_type type = GC_INT8; type <= GC_OPAQUE; type++)
        assert_int_equal(gci_type_bytes(type), bytes[type - GC_INT8]);
    assert_int_equal(gci_type_bytes(0), 0);
    assert_int_equal(gci_type_bytes(GC_OPAQUE + 1), 0);
    assert_int_equal(gci_type_bytes(-1), 0);
    assert_string_equal(gci_type_name(GC_INT8), "int8");
    assert_string_equal(gci_type_name(GC_DOUBLE), "double");
    assert_string_equal(gci_type_name(GC_OPAQUE), "opaque");
    assert_string_equal(gci_type_name(99), "no type");
    assert_string_equal(gci_op_name(GC_SUM), "sum");
    assert_string_equal(gci_op_name(GC_LXOR), "lxor");
    assert_string_equal(gci_op_name(GCI_OP_FIRST_USER), "user");
    assert_string_equal(gci_op_name(0), "no operation");
}

/* A NaN anywhere makes a NaN, in whole blocks and in tails, on either side. */
static void test_nan(void **state)
{
    (void)state;
    for (int side = 0; side < 2; side++)
        for (gc_op op = GC_MIN; op <= GC_MAX; op++)
            for (size_t at = 0; at < 200; at += 7) {
                double a[200] = { 0 }, b[200] = { 0 };
                float c[200] = { 0 }, d[200] = { 0 };
                (side ? a : b)[at] = (double)NAN;
                (side ? c : d)[at] = NAN;
                gci_op_apply(op, GC_DOUBLE, a, b, GCI_COUNT(a));
                gci_op_apply(op, GC_FLOAT, c, d, GCI_COUNT(c));
                for (size_t i = 0; i < GCI_COUNT(a); i++) {
                    assert_int_equal(b[i] != b[i], i == at);
                    assert_int_equal(d[i] != d[i], i == at);
                }
            }
}

/* Signed overflow wraps; the order of operands is in (op) inout. */
static void test_edges(void **state)
{
    (void)state;
    int32_t most = INT32_MAX, one = 1;
    gci_op_apply(GC_SUM, GC_INT32, &most, &one, 1);
    assert_int_equal(one, INT32_MIN);
    int64_t least = INT64_MIN, minus = -1;
    gci_op_apply(GC_PROD, GC_INT64, &least, &minus, 1);
    assert_true(minus == INT64_MIN);
    uint16_t x = 0xffff, y = 0xffff;
    gci_op_apply(GC_PROD, GC_UINT16, &x, &y, 1);
    assert_int_equal(y, 1);
    int8_t p = 100, q = 100;
    gci_op_apply(GC_SUM, GC_INT8, &p, &q, 1);
    assert_int_equal(q, -56);
    double minus_zero = -0.0, zero = 0.0;
    gci_op_apply(GC_MIN, GC_DOUBLE, &minus_zero, &zero, 1);
    assert_false(signbit(zero));        /* equal: inout's stays */
}

/* ---- half precision and bfloat16 --------------------------------------------------------------------------------- */

enum { NARROW_VALUES = 65536 };
static const gc_type narrow_types[] = { GC_FLOAT16, GC_BFLOAT16 };

static uint16_t apply_narrow(gc_op op, gc_type type, uint16_t a, uint16_t b)
{
    gci_op_apply(op, type, &a, &b, 1);
    return b;
}

/* Every value goes through float and comes back as it was, signs of zeros too; a NaN as a quiet NaN. */
static void test_narrow_round_trip(void **state)
{
    static uint16_t all[NARROW_VALUES], out[NARROW_VALUES];
    (void)state;
    for (size_t t = 0; t < GCI_COUNT(narrow_types); t++) {
        gc_type type = narrow_types[t];
        uint16_t one = type == GC_FLOAT16 ? 0x3c00 : 0x3f80;
        assert_true(narrow_value(type, one) == 1);
        for (size_t i = 0; i < NARROW_VALUES; i++) {
            all[i] = (uint16_t)i;
            out[i] = one;
        }
        gci_op_apply(GC_PROD, type, all, out, NARROW_VALUES);
        for (size_t i = 0; i < NARROW_VALUES; i++) {
            double value = narrow_value(type, all[i]);
            assert_true(isnan(value) || narrow_round(type, value) == value);
            if (isnan(value)) {
                assert_true(isnan(narrow_value(type, out[i])));
                assert_true(out[i] & (type == GC_FLOAT16 ? 0x200 : 0x40));
            } else {
                assert_int_equal(out[i], all[i]);
            }
        }
    }
}

/* Ends of the range, ties, subnormals, infinities and NaNs, each with each, and with a quarter of all values. */
static void test_narrow_edges(void **state)
{
    static const uint16_t edges[] = { 0, 1, 2, 3, 0x3ff, 0x400, 0x401, 0x7f, 0x80, 0x81, 0x3bff, 0x3c00, 0x3c01, 0x3f80, 0x4000,
                                      0x1000, 0x1001, 0x2400, 0x7bff, 0x7bfe, 0x7c00, 0x7c01, 0x7e00, 0x7f7f, 0x7f7e,
                                      0x7f80, 0x7f81, 0x7fff };
    (void)state;
    for (size_t t = 0; t < GCI_COUNT(narrow_types); t++)
        for (gc_op op = GC_SUM; op <= GC_MAX; op++)
            for (size_t i = 0; i < 4 * GCI_COUNT(edges); i++)
                for (uint32_t k = 0; k < NARROW_VALUES; k += k % 512 < 8 ? 1 : 5) {
                    gc_type type = narrow_types[t];
                    uint16_t edge = (uint16_t)(edges[i / 4] | (i & 1) << 15), other = (uint16_t)k;
                    uint16_t a = i & 2 ? other : edge, b = i & 2 ? edge : other;
                    double x = narrow_value(type, a), y = narrow_value(type, b);
                    double got = narrow_value(type, apply_narrow(op, type, a, b));
                    double want = isnan(x) || isnan(y) ? (double)NAN : (double)oracle_real(op, type, x, y);
                    if (x == y && op >= GC_MIN)
                        want = y;       /* equal: inout's stays, of two zeros too */
                    if (isnan(want) ? !isnan(got) : got != want || !signbit(got) != !signbit(want))
                        fail_msg("%s of %s: %04x, %04x", gci_op_name(op), gci_type_name(type), a, b);
                }
}

/* Of 2048 + 1 and 2048 + 3 one is down, one up: ties go to the even. */
static void test_narrow_ties(void **state)
{
    (void)state;
    assert_int_equal(apply_narrow(GC_SUM, GC_FLOAT16, 0x6800, 0x3c00), 0x6800);
    assert_int_equal(apply_narrow(GC_SUM, GC_FLOAT16, 0x6801, 0x3c00), 0x6802);
    assert_int_equal(apply_narrow(GC_SUM, GC_FLOAT16, 0x7bff, 0x4c00), 0x7c00);     /* 65504 + 16: halfway to 65536 */
    assert_int_equal(apply_narrow(GC_SUM, GC_FLOAT16, 0x7bff, 0x4bff), 0x7bff);
    assert_int_equal(apply_narrow(GC_PROD, GC_FLOAT16, 1, 0x3800), 0);              /* half of the smallest */
    assert_int_equal(apply_narrow(GC_PROD, GC_FLOAT16, 1, 0x3801), 1);
    assert_int_equal(apply_narrow(GC_SUM, GC_BFLOAT16, 0x4380, 0x3f80), 0x4380);    /* 256 + 1 */
    assert_int_equal(apply_narrow(GC_SUM, GC_BFLOAT16, 0x4381, 0x3f80), 0x4382);
    assert_int_equal(apply_narrow(GC_SUM, GC_BFLOAT16, 0x7f7f, 0x7f7f), 0x7f80);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_sizes_and_names), cmocka_unit_test(test_which_pairs), cmocka_unit_test(test_kernels),
        cmocka_unit_test(test_nan),             cmocka_unit_test(test_edges),       cmocka_unit_test(test_narrow_round_trip),
        cmocka_unit_test(test_narrow_edges),    cmocka_unit_test(test_narrow_ties),
    };
    return cmocka_run_group_tests_name("op", tests, NULL, NULL);
}
