/*
 * test_format.c - tensors as text: the reference's layouts, shapes, wrapping, leaving
 * out.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"
#include "observe/format_text.h"
#include "observe/network.h"

#include <sonde/error.h>

#include <stddef.h>
#include <stdint.h>

/* --- the reference's layouts ------------------------------------------------------ */

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

/* --- shapes ----------------------------------------------------------------------- */

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

static void long_tensors_are_summarized(void **state)
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
    options.summarize_threshold = 9;
    expect_text(&view, &options, 0, "(1, 2, 3, 4, 5, 6, 7, 8, 9)");
    options.summarize_threshold = 8;
    expect_text(&view, &options, 0, "(1, 2, 3, ..., 7, 8, 9)");
    options.summarize_threshold = 0;
    expect_text(&view, &options, 0, "(1, 2, 3, 4, 5, 6, 7, 8, 9)");
    view = sonde_view_of(SONDE_I8, 1, six, values);
    options.summarize_threshold = 1;
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

/* --- bounds and memory ------------------------------------------------------------ */

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
        options.summarize_threshold = (int64_t)sonde__below(7, 9, n, 500);
        options.edge_items = (int)sonde__below(7, 10, n, 5);
        options.max_line_width = (int)sonde__below(7, 11, n, 100);
        options.digits = (int)sonde__below(7, 12, n, 18);
        options.float_format = (sonde_float_format)sonde__below(7, 13, n, 4);
        assert_int_equal(sonde_format_tensor(&view, &options, 10, &text), SONDE_OK);
        assert_true(text.length <=
                    sonde__observe_format_bound(SONDE_F32, rank, shape, &options));
        sonde_text_fini(&text);
    }
}

static void enormous_shapes_have_a_bound_or_none(void **state)
{
    const int64_t shape[8] = {1000, 1000, 1000, 1000, 1000, 1000, 1000, 1000};
    const int64_t huge[2] = {INT64_MAX / 4, 4};
    sonde_print_options options = sonde_print_options_default();
    sonde_text text = {0};

    (void)state;
    assert_true(sonde__observe_format_bound(SONDE_F32, 2, huge, &options) < 2000);
    assert_true(sonde__observe_format_bound(SONDE_F32, 8, shape, &options) < SIZE_MAX);
    options.summarize_threshold = 0;
    assert_true(sonde__observe_format_bound(SONDE_F32, 2, huge, &options) == SIZE_MAX);
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
    (void)state;
    assert_true(net_alloc_failures(format_some, NULL) > 5);
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
        cmocka_unit_test(long_tensors_are_summarized),
        cmocka_unit_test(the_threshold_is_exact),
        cmocka_unit_test(lines_keep_within_their_width),
        cmocka_unit_test(no_text_is_longer_than_its_bound),
        cmocka_unit_test(enormous_shapes_have_a_bound_or_none),
        cmocka_unit_test(text_is_appended_to_what_is_there),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
