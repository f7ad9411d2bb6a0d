/*
 * python_layout.c - how a tensor is printed, from Python's arguments.
 */
#include "extension/python_api.h"

#include <string.h>

static bool set_bracket(char *out, size_t size, const char *text, const char *name)
{
    if (strlen(text) >= size) {
        (void)sonde__python_bad_value(name, "at most 7 bytes", text);
        return false;
    }
    (void)PyOS_snprintf(out, size, "%s", text);
    return true;
}

bool sonde__python_read_layout(PyObject *layout, sonde_print_options *options)
{
    const char *format = NULL, *separator = NULL, *open = NULL, *close = NULL;
    long long threshold = 0;
    sonde_diag diag = {0};

    *options = sonde_print_options_default();
    if (!PyArg_ParseTuple(layout, "Liiissss", &threshold, &options->edge_items,
                          &options->max_line_width, &options->digits, &format, &separator,
                          &open, &close)) {
        return false;
    }
    options->summarize_threshold = threshold;
    if (!set_bracket(options->separator, sizeof options->separator, separator,
                     "separator") ||
        !set_bracket(options->open_bracket, sizeof options->open_bracket, open,
                     "open_bracket") ||
        !set_bracket(options->close_bracket, sizeof options->close_bracket, close,
                     "close_bracket")) {
        return false;
    }
    if (sonde_float_format_parse(format, &options->float_format, &diag) != SONDE_OK ||
        sonde_print_options_check(options, &diag) != SONDE_OK) {
        (void)sonde__python_raise(&diag);
        return false;
    }
    return true;
}
