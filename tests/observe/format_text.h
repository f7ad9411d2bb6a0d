/*
 * format_text.h - comparing a tensor's text, for the tests of formatting.
 */
#ifndef SONDE_TESTS_OBSERVE_FORMAT_TEXT_H
#define SONDE_TESTS_OBSERVE_FORMAT_TEXT_H

#include "observe/print_format.h"
#include "cmocka_all.h"

#include <sonde/print.h>

#include <stdio.h>
#include <string.h>

/* Formats, compares, and holds the text against its bound. */
static inline void expect_text(const sonde_view *view, const sonde_print_options *options,
                               size_t column, const char *expected)
{
    sonde_text text = {0};

    assert_int_equal(sonde_print_options_check(options, NULL), SONDE_OK);
    assert_int_equal(sonde_format_tensor(view, options, column, &text), SONDE_OK);
    assert_string_equal(text.data, expected);
    assert_int_equal(text.length, strlen(expected));
    assert_true(text.length <= sonde__observe_format_bound(view->dtype, view->rank,
                                                           view->shape, options));
    sonde_text_fini(&text);
}

static inline sonde_print_options brackets(const char *open, const char *close,
                                           const char *separator)
{
    sonde_print_options options = sonde_print_options_default();

    (void)snprintf(options.open_bracket, sizeof options.open_bracket, "%s", open);
    (void)snprintf(options.close_bracket, sizeof options.close_bracket, "%s", close);
    (void)snprintf(options.separator, sizeof options.separator, "%s", separator);
    return options;
}

#endif
