/*
 * test_cell.c - single numbers as text: every format, every dtype, and how long they get.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/number.h"
#include "base/random.h"
#include "observe/print_format.h"
#include "observe/format_text.h"

#include <stddef.h>
#include <stdint.h>
#include <math.h>

/* --- numbers ---------------------------------------------------------------------- */

static void expect_floats(const float *values, int64_t n, sonde_float_format format,
                          int digits, const char *expected)
{
    sonde_print_options options = brackets("", "", " ");
    float copy[8];
    sonde_view view = sonde_view_of(SONDE_F32, 1, &n, copy);

    memcpy(copy, values, (size_t)n * sizeof *values);
    options.float_format = format;
    options.digits = digits;
    expect_text(&view, &options, 0, expected);
}

#define FLOATS(format, digits, expected, ...)                                            \
    do {                                                                                 \
        const float values_[] = {__VA_ARGS__};                                           \
        expect_floats(values_, (int64_t)SONDE_COUNT_OF(values_), format, digits,         \
                      expected);                                                         \
    } while (0)

static void auto_chooses_by_the_data(void **state)
{
    (void)state;
    FLOATS(SONDE_FLOAT_AUTO, 4, "0.000 0.000", 0.0f, 0.0f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "  1.50 -20.00", 1.5f, -20.0f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "0.02140 0.00001", 0.0214f, 0.00001f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "2.140e-02 9.000e-06", 0.0214f, 0.000009f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "0.0001000", 0.0001f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "9.900e-05", 0.000099f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "9999    1", 9999.0f, 1.0f);
    FLOATS(SONDE_FLOAT_AUTO, 4, "1.000e+04", 9999.9f); /* rounds to 10^digits */
    FLOATS(SONDE_FLOAT_AUTO, 4, "1.235e+04", 12345.6f);
    FLOATS(SONDE_FLOAT_AUTO, 1, "5 3", 5.0f, 3.0f);
    FLOATS(SONDE_FLOAT_AUTO, 1, "2e+01", 17.0f);
    FLOATS(SONDE_FLOAT_AUTO, 17, "0.10000000149011612", 0.1f);
}

static void fixed_scientific_and_none_are_obeyed(void **state)
{
    (void)state;
    FLOATS(SONDE_FLOAT_FIXED, 4, "12346     1", 12345.6f, 1.0f);
    FLOATS(SONDE_FLOAT_FIXED, 3, "0.00000123 0.00000000", 1.23e-6f, 0.0f);
    FLOATS(SONDE_FLOAT_SCIENTIFIC, 3, " 1.00e+00 -2.50e-03", 1.0f, -0.0025f);
    FLOATS(SONDE_FLOAT_NONE, 4, "   1.5      0 -1e+20", 1.5f, 0.0f, -1e20f);
    FLOATS(SONDE_FLOAT_NONE, 0, "1.5 0.1 -1e+20 1e-45 0.33333334", 1.5f, 0.1f, -1e20f,
           1e-45f, 1.0f / 3.0f);
    FLOATS(SONDE_FLOAT_FIXED, 0, "100 2", 100.0f, 2.0f); /* digits 0 forces none */
    FLOATS(SONDE_FLOAT_FIXED, 1, "340282346638528859811704183484516925440",
           3.40282347e38f);
}

static void nan_and_infinities_are_named(void **state)
{
    (void)state;
    FLOATS(SONDE_FLOAT_AUTO, 4, "  nan   inf  -inf 1.000 0.000", NAN, INFINITY, -INFINITY,
           1.0f, 0.0f);
    FLOATS(SONDE_FLOAT_AUTO, 4, " nan  inf -inf", NAN, INFINITY, -INFINITY);
    FLOATS(SONDE_FLOAT_SCIENTIFIC, 2, "    nan 1.0e+00", -NAN, 1.0f);
    FLOATS(SONDE_FLOAT_NONE, 0, "nan -inf -0", NAN, -INFINITY, -0.0f);
}

/* What is left out does not decide how the rest is written. */
static void only_shown_numbers_decide(void **state)
{
    sonde_print_options options = brackets("", "", " ");
    float values[7] = {1, 2, 1e30f, 1e30f, 1e30f, 3, 4};
    const int64_t n[1] = {7};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, n, values);

    (void)state;
    options.summarize_threshold = 1;
    options.edge_items = 2;
    expect_text(&view, &options, 0, "1.000 2.000 ... 3.000 4.000");
}

static void every_dtype_is_exact(void **state)
{
    static const struct {
        sonde_dtype dtype;
        uint64_t bits;
        const char *expected;
    } cases[] = {
        {SONDE_BOOL, 1, "1"},
        {SONDE_U8, 255, "255"},
        {SONDE_I8, 0x80, "-128"},
        {SONDE_U16, 65535, "65535"},
        {SONDE_I16, 0x8000, "-32768"},
        {SONDE_U32, UINT32_MAX, "4294967295"},
        {SONDE_I32, 0x80000000u, "-2147483648"},
        {SONDE_U64, UINT64_MAX, "18446744073709551615"},
        {SONDE_I64, 0x8000000000000000u, "-9223372036854775808"},
        {SONDE_F16, 0x3e00, "1.5"},
        {SONDE_F16, 0x2e66, "0.1"},
        {SONDE_BF16, 0x3fc0, "1.5"},
        {SONDE_BF16, 0x3dcd, "0.1"},
        {SONDE_F32, 0x3dcccccd, "0.1"},
        {SONDE_F64, 0x3fb999999999999au, "0.1"},
        {SONDE_F64, 0x3fd5555555555555u, "0.3333333333333333"},
        {SONDE_F64, 0xffefffffffffffffu, "-1.7976931348623157e+308"},
        {SONDE_F8_E4M3, 0x3c, "1.5"},
        {SONDE_F8_E4M3, 0x7e, "448"},
        {SONDE_F8_E4M3, 0xff, "nan"},
        {SONDE_F8_E5M2, 0x7b, "57344"},
        {SONDE_F8_E5M2, 0xfc, "-inf"},
        {SONDE_C64, 0xc00000003fc00000u, "1.5-2j"}, /* the real part lies first */
        {SONDE_C64, 0x7fc000003dcccccdu, "0.1+nanj"},
    };
    sonde_print_options options = sonde_print_options_default();

    (void)state;
    options.digits = 0;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        unsigned char room[9] = {0};
        sonde_view view =
            sonde_view_of(cases[i].dtype, 0, NULL, room + 1); /* unaligned */

        memcpy(room + 1, &cases[i].bits, sizeof cases[i].bits);
        expect_text(&view, &options, 0, cases[i].expected);
    }
}

/* Random bits of every dtype in every format stay within the bound of a number. */
static void no_number_is_longer_than_its_bound(void **state)
{
    size_t longest = 0;

    (void)state;
    for (uint64_t n = 0; n < 30000; n++) {
        const sonde_dtype dtype = (sonde_dtype)sonde__below(8, 0, n, SONDE_DTYPE_COUNT);
        sonde_print_options options = sonde_print_options_default();
        sonde__observe_cell_survey survey = {0};
        sonde__observe_cell_style style;
        char buf[SONDE__CELL];
        uint64_t elements[4]; /* two of 16 bytes */

        for (uint64_t i = 0; i < 4; i++) {
            elements[i] = sonde__below(8, 10 + i, n, UINT64_MAX);
        }
        if (dtype == SONDE_BOOL) {
            elements[0] = 1;
        }
        if (n % 3 == 0) { /* subnormal, or the least integers */
            elements[0] &= 3;
            elements[1] &= 3;
        }
        options.digits = (int)sonde__below(8, 3, n, 18);
        options.float_format = (sonde_float_format)sonde__below(8, 4, n, 4);
        sonde__observe_cell_look(&survey, dtype, &elements[0]);
        if (n % 2 == 0 && dtype != SONDE_BOOL) {
            sonde__observe_cell_look(&survey, dtype, &elements[2]);
        }
        style = sonde__observe_cell_decide(&survey, dtype, &options);
        const size_t length = sonde__observe_cell_write(&style, &elements[0], buf);

        assert_int_equal(length, strlen(buf));
        assert_true(length <= sonde__observe_cell_bound(dtype, &options));
        longest = SONDE_MAX(longest, length);
    }
    assert_true(longest > 300); /* subnormal doubles, fixed */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(auto_chooses_by_the_data),
        cmocka_unit_test(fixed_scientific_and_none_are_obeyed),
        cmocka_unit_test(nan_and_infinities_are_named),
        cmocka_unit_test(only_shown_numbers_decide),
        cmocka_unit_test(every_dtype_is_exact),
        cmocka_unit_test(no_number_is_longer_than_its_bound),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
