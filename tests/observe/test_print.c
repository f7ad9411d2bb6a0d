/*
 * test_print.c - tensors as text: the reference's layouts, every option, every dtype.
 */
#include "cmocka_all.h"

#include "base/base.h"
#include "observe/format.h"
#include "observe/network.h"

#include <sonde/log.h>
#include <sonde/observer.h>
#include <sonde/print.h>

#include <fcntl.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Formats, compares, and holds the text against its bound. */
static void expect_text(const sonde_view *view, const sonde_print_options *options,
                        size_t column, const char *expected)
{
    sonde_text text = {0};

    assert_int_equal(sonde_print_options_check(options, NULL), SONDE_OK);
    assert_int_equal(sonde_format_tensor(view, options, column, &text), SONDE_OK);
    assert_string_equal(text.data, expected);
    assert_int_equal(text.length, strlen(expected));
    assert_true(text.length <=
                sonde_format_bound(view->dtype, view->rank, view->shape, options));
    sonde_text_fini(&text);
}

static sonde_print_options brackets(const char *open, const char *close,
                                    const char *separator)
{
    sonde_print_options options = sonde_print_options_default();

    (void)snprintf(options.open_bracket, sizeof options.open_bracket, "%s", open);
    (void)snprintf(options.close_bracket, sizeof options.close_bracket, "%s", close);
    (void)snprintf(options.separator, sizeof options.separator, "%s", separator);
    return options;
}

/* --- the reference's layouts
 * ------------------------------------------------------------- */

static void integers_are_aligned_to_the_right(void **state)
{
    const sonde_print_options options = brackets("[", "]", " ");
    const int64_t three[1] = {3}, ten[1] = {10};
    int32_t a[3] = {5, 7, 9}, b[3] = {6, 9, 12};
    int64_t range[10];
    sonde_view view = sonde_view_of(SONDE_I32, 1, three, a);

    (void)state;
    expect_text(&view, &options, 0, "[5 7 9]");
    view.data = b;
    expect_text(&view, &options, 0, "[ 6  9 12]");
    for (int i = 0; i < 10; i++) {
        range[i] = 10 + i;
    }
    view = sonde_view_of(SONDE_I64, 1, ten, range);
    expect_text(&view, &options, 0, "[10 11 12 13 14 15 16 17 18 19]");
}

static float known[4] = {1.4962566f, 1.7682219f, 1.0884774f, 1.1320305f};

static void digits_are_significant_ones(void **state)
{
    sonde_print_options options = brackets("[", "]", " ");
    const int64_t one[1] = {1};
    float two[1] = {2.0f};
    sonde_view view = sonde_view_of(SONDE_F32, 1, one, two);

    (void)state;
    options.digits = 8;
    expect_text(&view, &options, 0, "[2.0000000]");
    view.data = known;
    options.float_format = SONDE_FLOAT_SCIENTIFIC;
    expect_text(&view, &options, 0, "[1.4962566e+00]");
    options.digits = 4;
    expect_text(&view, &options, 0, "[1.496e+00]");
    options.float_format = SONDE_FLOAT_AUTO;
    expect_text(&view, &options, 0, "[1.496]");
}

static void rows_stand_one_below_the_other(void **state)
{
    sonde_print_options options = brackets("{", "}", " ");
    const int64_t shape[2] = {2, 2};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, known);

    (void)state;
    options.digits = 8;
    expect_text(&view, &options, 7,
                "{\n {1.4962566 1.7682219}\n {1.0884774 1.1320305}\n}");
}

static void separators_stand_between_numbers_only(void **state)
{
    sonde_print_options options = brackets("(", ")", ";");
    const int64_t two[1] = {2};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, two, known);

    (void)state;
    options.digits = 8;
    expect_text(&view, &options, 0, "(1.4962566;1.7682219)");
}

static void rows_wrap_behind_a_separator(void **state)
{
    sonde_print_options options = brackets("[", "]", ",");
    const int64_t shape[2] = {2, 2};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, known);

    (void)state;
    options.digits = 8;
    options.max_line_width = 15;
    options.float_format = SONDE_FLOAT_SCIENTIFIC;
    expect_text(&view, &options, 0,
                "[\n [1.4962566e+00,\n   1.7682219e+00]\n"
                " [1.0884774e+00,\n   1.1320305e+00]\n]");
    options.max_line_width = 0;
    expect_text(&view, &options, 0,
                "[\n [1.4962566e+00,1.7682219e+00]\n [1.0884774e+00,1.1320305e+00]\n]");
}

/* --- shapes
 * ------------------------------------------------------------------------------ */

static void scalars_have_no_brackets(void **state)
{
    const sonde_print_options options = sonde_print_options_default();
    float value[1] = {0.125f};
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, value);

    (void)state;
    expect_text(&view, &options, 0, "0.1250");
}

static void empty_tensors_are_brackets(void **state)
{
    static const struct {
        int rank;
        int64_t shape[3];
        const char *expected;
    } cases[] = {
        {1, {0}, "()"},
        {2, {0, 3}, "()"},
        {2, {2, 0}, "(\n ()\n ()\n)"},
        {3, {1, 0, 2}, "(\n ()\n)"},
        {2, {5000, 0}, "(\n ()\n ()\n ()\n ...\n ()\n ()\n ()\n)"},
    };
    const sonde_print_options options = sonde_print_options_default();
    float none[1];

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        const sonde_view view =
            sonde_view_of(SONDE_F32, cases[i].rank, cases[i].shape, none);

        expect_text(&view, &options, 0, cases[i].expected);
    }
}

static void three_dimensions_nest(void **state)
{
    const sonde_print_options options = sonde_print_options_default();
    const int64_t shape[3] = {2, 2, 2};
    uint8_t values[8] = {1, 2, 3, 4, 5, 6, 7, 100};
    sonde_view view = sonde_view_of(SONDE_U8, 3, shape, values);

    (void)state;
    expect_text(
        &view, &options, 0,
        "(\n (\n  (  1,   2)\n  (  3,   4)\n )\n (\n  (  5,   6)\n  (  7, 100)\n )\n)");
    view.stride[0] = 1; /* turned: strides are followed */
    view.stride[2] = 4;
    expect_text(
        &view, &options, 0,
        "(\n (\n  (  1,   5)\n  (  3,   7)\n )\n (\n  (  2,   6)\n  (  4, 100)\n )\n)");
}

static void long_tensors_are_summarised(void **state)
{
    sonde_print_options options = sonde_print_options_default();
    int32_t values[1200];
    const int64_t flat[1] = {1001}, square[2] = {40, 30};
    sonde_view view = sonde_view_of(SONDE_I32, 1, flat, values);

    (void)state;
    for (int i = 0; i < 1200; i++) {
        values[i] = i;
    }
    expect_text(&view, &options, 0, "(   0,    1,    2, ...,  998,  999, 1000)");
    options.edge_items = 1;
    expect_text(&view, &options, 0, "(   0, ..., 1000)");
    options.edge_items = 0;
    expect_text(&view, &options, 0, "(...)");
    view = sonde_view_of(SONDE_I32, 2, square, values);
    options.edge_items = 2;
    expect_text(
        &view, &options, 0,
        "(\n (   0,    1, ...,   28,   29)\n (  30,   31, ...,   58,   59)\n ...\n"
        " (1140, 1141, ..., 1168, 1169)\n (1170, 1171, ..., 1198, 1199)\n)");
    options.edge_items = 0;
    expect_text(&view, &options, 0, "(\n ...\n)");
}

/* At the threshold nothing is left out; a short dimension stays whole. */
static void the_threshold_is_exact(void **state)
{
    sonde_print_options options = sonde_print_options_default();
    int8_t values[9] = {1, 2, 3, 4, 5, 6, 7, 8, 9};
    const int64_t nine[1] = {9}, six[1] = {6};
    sonde_view view = sonde_view_of(SONDE_I8, 1, nine, values);

    (void)state;
    options.summarise_threshold = 9;
    expect_text(&view, &options, 0, "(1, 2, 3, 4, 5, 6, 7, 8, 9)");
    options.summarise_threshold = 8;
    expect_text(&view, &options, 0, "(1, 2, 3, ..., 7, 8, 9)");
    options.summarise_threshold = 0;
    expect_text(&view, &options, 0, "(1, 2, 3, 4, 5, 6, 7, 8, 9)");
    view = sonde_view_of(SONDE_I8, 1, six, values);
    options.summarise_threshold = 1;
    expect_text(&view, &options, 0, "(1, 2, 3, 4, 5, 6)");
}

/* No line is longer than the width, the title's included, as long as one number fits. */
static void lines_keep_within_their_width(void **state)
{
    sonde_print_options options = sonde_print_options_default();
    float values[90];
    const int64_t shape[2] = {3, 30};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);
    const int64_t flat_shape[1] = {90};
    const sonde_view flat = sonde_view_of(SONDE_F32, 1, flat_shape, values);

    (void)state;
    for (int i = 0; i < 90; i++) {
        values[i] = (float)sonde__normal(4, 0, (uint64_t)i);
    }
    for (int width = 20; width <= 100; width++) {
        for (int i = 0; i < 2; i++) {
            sonde_text text = {0};
            const char *line = NULL;
            size_t column = i == 0 ? 0 : 9, numbers = 0;

            options.max_line_width = width;
            assert_int_equal(
                sonde_format_tensor(i == 0 ? &view : &flat, &options, column, &text),
                SONDE_OK);
            line = text.data;
            for (;;) {
                const size_t length = strcspn(line, "\n");

                assert_true(column + length <= (size_t)width);
                assert_true(length == 0 || line[length - 1] != ' ');
                column = 0;
                if (line[length] == '\0') {
                    break;
                }
                line += length + 1;
            }
            for (const char *p = text.data; *p != '\0'; p++) {
                numbers += *p == '.';
            }
            assert_int_equal(numbers, 90);
            sonde_text_fini(&text);
        }
    }
}

/* --- numbers
 * ----------------------------------------------------------------------------- */

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
    options.summarise_threshold = 1;
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
        sonde__cell_survey survey = {0};
        sonde__cell_style style;
        char buf[SONDE__CELL];
        uint64_t elements[2] = {sonde__below(8, 1, n, UINT64_MAX),
                                sonde__below(8, 2, n, UINT64_MAX)};

        if (dtype == SONDE_BOOL) {
            elements[0] = 1;
        }
        if (n % 3 == 0) { /* subnormal, or the least integers */
            elements[0] &= 3;
        }
        options.digits = (int)sonde__below(8, 3, n, 18);
        options.float_format = (sonde_float_format)sonde__below(8, 4, n, 4);
        sonde__cell_look(&survey, dtype, &elements[0]);
        if (n % 2 == 0 && dtype != SONDE_BOOL) {
            sonde__cell_look(&survey, dtype, &elements[1]);
        }
        style = sonde__cell_decide(&survey, dtype, &options);
        const size_t length = sonde__cell_write(&style, &elements[0], buf);

        assert_int_equal(length, strlen(buf));
        assert_true(length <= sonde__cell_bound(dtype, &options));
        longest = SONDE_MAX(longest, length);
    }
    assert_true(longest > 300); /* subnormal doubles, fixed */
}

/* Every text of random shapes and options fits the bound, and little is wasted on small.
 */
static void no_text_is_longer_than_its_bound(void **state)
{
    static float values[3000];

    (void)state;
    for (uint64_t i = 0; i < 3000; i++) {
        values[i] = (float)sonde__normal(6, 0, i) * (i % 7 == 0 ? 1e-9f : 1.0f);
    }
    for (uint64_t n = 0; n < 2000; n++) {
        sonde_print_options options =
            brackets("<<", ">>>", sonde__below(7, 20, n, 2) ? ", " : "::::");
        int64_t shape[SONDE_MAX_DIMS], count = 1;
        const int rank = (int)sonde__below(7, 0, n, 6);
        sonde_text text = {0};
        sonde_view view;

        for (int d = 0; d < rank; d++) {
            const int64_t most = SONDE_MIN(3000 / count, 20);

            shape[d] = (int64_t)sonde__below(7, 1 + (uint64_t)d, n, (uint64_t)most + 1);
            count *= SONDE_MAX(shape[d], 1);
        }
        view = sonde_view_of(SONDE_F32, rank, shape, values);
        options.summarise_threshold = (int64_t)sonde__below(7, 9, n, 500);
        options.edge_items = (int)sonde__below(7, 10, n, 5);
        options.max_line_width = (int)sonde__below(7, 11, n, 100);
        options.digits = (int)sonde__below(7, 12, n, 18);
        options.float_format = (sonde_float_format)sonde__below(7, 13, n, 4);
        assert_int_equal(sonde_format_tensor(&view, &options, 10, &text), SONDE_OK);
        assert_true(text.length <= sonde_format_bound(SONDE_F32, rank, shape, &options));
        sonde_text_fini(&text);
    }
}

static void a_comma_for_a_point_is_undone(void **state)
{
    static const char *const foreign[] = {"-1,5e+07",
                                          "-1\xd9\xab"
                                          "5e+07",
                                          "-1.5e+07"};
    static const char *const locales[] = {"de_DE.UTF-8", "fr_FR.UTF-8", "de_DE", "ps_AF"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(foreign); i++) {
        char buf[SONDE__CELL];

        (void)snprintf(buf, sizeof buf, "%s", foreign[i]);
        assert_int_equal(sonde__cell_point(buf), 8);
        assert_string_equal(buf, "-1.5e+07");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(locales); i++) { /* those that are installed */
        (void)setlocale(LC_NUMERIC, locales[i]);
        FLOATS(SONDE_FLOAT_AUTO, 4, "1.500", 1.5f);
        FLOATS(SONDE_FLOAT_NONE, 0, "0.1", 0.1f);
    }
    (void)setlocale(LC_NUMERIC, "C");
}

static void enormous_shapes_have_a_bound_or_none(void **state)
{
    const int64_t shape[8] = {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000};
    const int64_t huge[2] = {INT64_MAX / 4, 4};
    sonde_print_options options = sonde_print_options_default();
    sonde_text text = {0};

    (void)state;
    assert_true(sonde_format_bound(SONDE_F32, 2, huge, &options) < 2000);
    assert_true(sonde_format_bound(SONDE_F32, 8, shape, &options) < SIZE_MAX);
    options.summarise_threshold = 0;
    assert_true(sonde_format_bound(SONDE_F32, 2, huge, &options) == SIZE_MAX);
    assert_int_equal(sonde_text_reserve(&text, SIZE_MAX), SONDE_ENOMEM);
    sonde_text_fini(&text);
}

static void text_is_appended_to_what_is_there(void **state)
{
    const sonde_print_options options = sonde_print_options_default();
    float value[1] = {1};
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, value);
    sonde_text text = {0};

    (void)state;
    assert_int_equal(sonde_format_tensor(&view, &options, 0, &text), SONDE_OK);
    assert_int_equal(sonde_format_tensor(&view, &options, 0, &text), SONDE_OK);
    assert_string_equal(text.data, "1.0001.000");
    sonde_text_fini(&text);
    assert_null(text.data);
}

/* --- options
 * ----------------------------------------------------------------------------- */

static void options_out_of_range_are_named(void **state)
{
    static const char *const lines[] = {
        "summarise_threshold: -1 (expected 0 or more)",
        "edge_items: -1 (expected 0 or more)",
        "max_line_width: -1 (expected 0 or more)",
        "digits: 18 (expected 0 to 17)",
        "float_format: 4 (expected a sonde_float_format)",
        "separator: a longer text (expected at most 7 characters)",
        "open_bracket: a longer text (expected at most 7 characters)",
        "close_bracket: a longer text (expected at most 7 characters)",
    };
    sonde_printer *printer = NULL;
    sonde_float_format format = SONDE_FLOAT_AUTO;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(lines); i++) {
        sonde_print_options options = sonde_print_options_default();

        options.summarise_threshold = i == 0 ? -1 : 1000;
        options.edge_items = i == 1 ? -1 : 3;
        options.max_line_width = i == 2 ? -1 : 80;
        options.digits = i == 3 ? 18 : 4;
        options.float_format = i == 4 ? (sonde_float_format)4 : SONDE_FLOAT_AUTO;
        memset(options.separator, i == 5 ? ',' : 0, sizeof options.separator);
        memset(options.open_bracket, i == 6 ? '(' : 0, sizeof options.open_bracket);
        memset(options.close_bracket, i == 7 ? ')' : 0, sizeof options.close_bracket);
        assert_int_equal(sonde_printer_create(&options, NULL, &printer, &diag),
                         SONDE_EINVAL);
        assert_string_equal(sonde_diag_line(&diag, line, sizeof line), lines[i]);
    }
    assert_int_equal(sonde_float_format_parse("Scientific", &format, NULL), SONDE_OK);
    assert_int_equal(format, SONDE_FLOAT_SCIENTIFIC);
    assert_int_equal(sonde_float_format_parse("exact", &format, &diag), SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "float_format: unknown format 'exact' (expected auto, fixed, "
                        "scientific or none)");
}

/* --- the sink
 * ---------------------------------------------------------------------------- */

static sonde_err tap_printer(sonde_observer *observer, const char *what,
                             sonde_printer *printer)
{
    sonde_tap tap = {.how = SONDE_HOW_RAW,
                     .where = sonde_printer_sink(printer),
                     .when[SONDE_MODE_TRAIN] = sonde_schedule_always()};
    sonde_selector *selector = NULL;
    sonde_err err = sonde_selector_create(what, &selector, NULL);

    if (err == SONDE_OK) {
        tap.what = selector;
        err = sonde_observer_add(observer, &tap, NULL, NULL);
    }
    sonde_selector_destroy(selector);
    return err;
}

static void step_with(sonde_observer *observer, uint32_t id, const sonde_view *view)
{
    static int64_t step;
    const sonde_coordinate at = {.mode_step = step, .global_step = step};

    step++;
    assert_true(
        sonde_observer_begin_step(observer, sonde_observer_get_gate(observer), &at));
    sonde_observer_observe(observer, id, view, NULL, 0, 0);
    sonde_observer_end_step(observer);
}

static const sonde_call_shape one = {1, 1, 1};

static void the_printer_prints_as_values_come(void **state)
{
    sonde_observer *observer = NULL;
    sonde_printer *printer = NULL;
    char printed[256] = {0};
    FILE *stream = fmemopen(printed, sizeof printed, "w");
    const int64_t shape[2] = {2, 5};
    float values[10] = {0.5f, 1, 2, 3, 4, 5, 6, 7, 8, 9.5f}, loss[1] = {(float)NAN};
    const sonde_view rows = sonde_view_of(SONDE_F32, 2, shape, values);
    const sonde_view scalar = sonde_view_of(SONDE_F32, 0, NULL, loss);

    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_printer_create(NULL, stream, &printer, NULL), SONDE_OK);
    assert_int_equal(sonde_printer_title(printer, NET_FC_OUT, "wrong", NULL), SONDE_OK);
    assert_int_equal(sonde_printer_title(printer, NET_FC_OUT, "out", NULL), SONDE_OK);
    assert_int_equal(tap_printer(observer, "loss,fc1_output", printer), SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    alloc_failure_begin(0); /* printing allocates nothing */
    step_with(observer, NET_LOSS, &scalar);
    step_with(observer, NET_FC_OUT, &rows);
    loss[0] = 0.25f;
    step_with(observer, NET_LOSS, &scalar);
    assert_int_equal(alloc_failure_count, 0);
    (void)alloc_failure_end();
    assert_string_equal(printed, "loss: nan\n"
                                 "out: (\n"
                                 " (0.500, 1.000, 2.000, 3.000, 4.000)\n"
                                 " (5.000, 6.000, 7.000, 8.000, 9.500)\n"
                                 ")\n"
                                 "loss: 0.2500\n");
    assert_int_equal(sonde_printer_lost(printer), 0);
    sonde_observer_destroy(observer);
    sonde_printer_destroy(printer);
    (void)fclose(stream);
}

/* An unbuffered pipe of packets: each read gives what one write wrote. */
static void a_tensor_is_one_write(void **state)
{
    int ends[2];
    char got[4096] = {0};
    sonde_observer *observer = NULL;
    sonde_printer *printer = NULL;
    const int64_t shape[2] = {2, 5};
    float values[10] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
    const sonde_view rows = sonde_view_of(SONDE_F32, 2, shape, values);
    FILE *stream = NULL;

    assert_int_equal(pipe2(ends, O_DIRECT /* packets */), 0);
    stream = fdopen(ends[1], "w");
    assert_int_equal(setvbuf(stream, NULL, _IONBF, 0), 0);
    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_printer_create(NULL, stream, &printer, NULL), SONDE_OK);
    assert_int_equal(tap_printer(observer, "fc1_output_0", printer), SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    step_with(observer, NET_FC_OUT, &rows);
    step_with(observer, NET_FC_OUT, &rows);
    assert_true(read(ends[0], got, sizeof got) > 0);
    assert_string_equal(got, "fc1_output_0: (\n"
                             " ( 1.00,  2.00,  3.00,  4.00,  5.00)\n"
                             " ( 6.00,  7.00,  8.00,  9.00, 10.00)\n"
                             ")\n");
    sonde_observer_destroy(observer);
    sonde_printer_destroy(printer);
    (void)fclose(stream);
    (void)close(ends[0]);
}

static int errors;

static void count_error(void *user, sonde_log_level level, const char *room,
                        const char *message)
{
    (void)user;
    (void)room;
    (void)message;
    errors += level == SONDE_LOG_ERROR;
}

/* A full disk, and a value larger than declared: counted, told once, survived. */
static void what_cannot_be_printed_is_counted(void **state)
{
    sonde_observer *observer = NULL;
    sonde_printer *printer = NULL;
    FILE *full = fopen("/dev/full", "w");
    static float values[900];
    const int64_t shape[1] = {900};
    const sonde_view large = sonde_view_of(SONDE_F32, 1, shape, values);
    const sonde_view scalar = sonde_view_of(SONDE_F32, 0, NULL, values);

    if (full == NULL) {
        skip();
    }
    assert_int_equal(sonde_observer_create(*state, &observer, NULL), SONDE_OK);
    assert_int_equal(sonde_printer_create(NULL, full, &printer, NULL), SONDE_OK);
    assert_int_equal(tap_printer(observer, "loss", printer), SONDE_OK);
    assert_int_equal(sonde_observer_bind(observer, &one, NULL), SONDE_OK);
    sonde_log_set_level(SONDE_LOG_INFO);
    sonde_log_set_sink(count_error, NULL);
    step_with(observer, NET_LOSS, &scalar);
    step_with(observer, NET_LOSS, &large);
    sonde_log_set_sink(NULL, NULL);
    assert_int_equal(sonde_printer_lost(printer), 2);
    assert_int_equal(errors, 1);
    sonde_observer_destroy(observer);
    sonde_printer_destroy(printer);
    (void)fclose(full);
}

static sonde_err build_printer(void *user)
{
    sonde_observer *observer = NULL;
    sonde_printer *printer = NULL;
    sonde_err err = sonde_observer_create(user, &observer, NULL);

    if (err == SONDE_OK) {
        err = sonde_printer_create(NULL, stdout, &printer, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde_printer_title(printer, 3, "three", NULL);
    }
    if (err == SONDE_OK) {
        err = tap_printer(observer, "loss", printer);
    }
    if (err == SONDE_OK) {
        err = sonde_observer_bind(observer, &one, NULL);
    }
    sonde_observer_destroy(observer);
    sonde_printer_destroy(printer);
    return err;
}

static sonde_err format_some(void *user)
{
    static float values[500];
    const sonde_print_options options = sonde_print_options_default();
    const int64_t shape[1] = {500};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, values);
    sonde_text text = {0};
    const sonde_err err = sonde_format_tensor(&view, &options, 0, &text);

    (void)user;
    sonde_text_fini(&text);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    assert_true(net_alloc_failures(build_printer, *state) > 10);
    assert_true(net_alloc_failures(format_some, NULL) > 5);
}

static int set_up(void **state)
{
    *state = net_create();
    return *state == NULL;
}

static int tear_down(void **state)
{
    sonde_catalogue_destroy(*state);
    return 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers_are_aligned_to_the_right),
        cmocka_unit_test(digits_are_significant_ones),
        cmocka_unit_test(rows_stand_one_below_the_other),
        cmocka_unit_test(separators_stand_between_numbers_only),
        cmocka_unit_test(rows_wrap_behind_a_separator),
        cmocka_unit_test(scalars_have_no_brackets),
        cmocka_unit_test(empty_tensors_are_brackets),
        cmocka_unit_test(three_dimensions_nest),
        cmocka_unit_test(long_tensors_are_summarised),
        cmocka_unit_test(the_threshold_is_exact),
        cmocka_unit_test(lines_keep_within_their_width),
        cmocka_unit_test(auto_chooses_by_the_data),
        cmocka_unit_test(fixed_scientific_and_none_are_obeyed),
        cmocka_unit_test(nan_and_infinities_are_named),
        cmocka_unit_test(only_shown_numbers_decide),
        cmocka_unit_test(every_dtype_is_exact),
        cmocka_unit_test(no_number_is_longer_than_its_bound),
        cmocka_unit_test(no_text_is_longer_than_its_bound),
        cmocka_unit_test(a_comma_for_a_point_is_undone),
        cmocka_unit_test(enormous_shapes_have_a_bound_or_none),
        cmocka_unit_test(text_is_appended_to_what_is_there),
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(the_printer_prints_as_values_come),
        cmocka_unit_test(a_tensor_is_one_write),
        cmocka_unit_test(what_cannot_be_printed_is_counted),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, set_up, tear_down);
}
