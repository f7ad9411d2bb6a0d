/*
 * test_print.c - the sink that prints, and the options it takes.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "observe/network.h"

#include <sonde/error.h>
#include <sonde/log.h>
#include <sonde/observer.h>
#include <sonde/print.h>

#include <stddef.h>
#include <stdint.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* --- options ---------------------------------------------------------------------- */

static void options_out_of_range_are_named(void **state)
{
    static const char *const lines[] = {
        "summarize_threshold: -1 (expected 0 or more)",
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
    const sonde_print_options usual = sonde_print_options_default();

    (void)state;
    assert_true(usual.summarize_threshold == 1000 && usual.edge_items == 3 &&
                usual.max_line_width == 80 && usual.digits == 4 &&
                usual.float_format == SONDE_FLOAT_AUTO);
    assert_string_equal(usual.separator, ", ");
    assert_string_equal(usual.open_bracket, "(");
    assert_string_equal(usual.close_bracket, ")");
    for (size_t i = 0; i < SONDE_COUNT_OF(lines); i++) {
        sonde_print_options options = sonde_print_options_default();

        options.summarize_threshold = i == 0 ? -1 : 1000;
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

/* --- the sink --------------------------------------------------------------------- */

static sonde_err tap_printer(sonde_observer *observer, const char *what,
                             sonde_printer *printer)
{
    sonde_tap tap = {.how = SONDE_HOW_RAW,
                     .where = sonde_printer_sink(printer),
                     .when[SONDE_MODE_TRAIN] = sonde_schedule_every(1)};
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

static void no_allocation_failure_is_lost(void **state)
{
    assert_true(net_alloc_failures(build_printer, *state) > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(options_out_of_range_are_named),
        cmocka_unit_test(the_printer_prints_as_values_come),
        cmocka_unit_test(a_tensor_is_one_write),
        cmocka_unit_test(what_cannot_be_printed_is_counted),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, net_set_up, net_tear_down);
}
