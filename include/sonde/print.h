/*
 * print.h - tensors as text: formatting a tensor, and a sink that prints every
 * observation.
 *
 *     title: ( 0.100, -2.300,    nan)    rank 1: one row
 *     title: 0.1000                      a scalar has no brackets
 *     title: (                           more: a bracket a line, rows indented by
 *      (1, 2, 3)                         their depth, nothing between rows
 *      (4, 5, 6)
 *     )
 *
 * Numbers are aligned to the right of a common width. A row that would run over
 * max_line_width continues on the next line, after a separator, indented two columns
 * more than the row. A tensor of more than summarize_threshold elements shows edge_items
 * at either end of every dimension that is longer than both, and "..." between.
 *
 * Floating numbers. fixed: as many decimals as give the largest magnitude `digits`
 * significant digits (but at least 0). scientific: one digit, a point, digits - 1. auto:
 * fixed, unless the largest is 10^digits or more or below 10^-4, or the smallest that is
 * not zero would show no digit of its own: then scientific. none: the shorter of both, at
 * most `digits` significant ones. Only elements that are shown decide. digits 0: none,
 * each number as short as it can be read back exactly, and unaligned. NaN is nan,
 * infinities are inf and -inf, whatever the format. bool is 0 and 1; integers are exact.
 *
 * Layout and defaults are those of PopTorch's ipu_print_tensor, except that separators
 * are used whole here.
 *
 * Threads: formatting shares nothing; a printer is one thread's, that of its
 * observer.
 */
#ifndef SONDE_PRINT_H
#define SONDE_PRINT_H

#include <sonde/options.h>
#include <stdio.h>

#include <sonde/tap.h>
#include <sonde/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_float_format {
    SONDE_FLOAT_AUTO = 0,
    SONDE_FLOAT_FIXED = 1,
    SONDE_FLOAT_SCIENTIFIC = 2,
    SONDE_FLOAT_NONE = 3
} sonde_float_format;
/* "auto", "fixed", "scientific", "none", any case. Unknown: SONDE_EINVAL with the list.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_float_format_parse(const char *text,
                                                           sonde_float_format *format,
                                                           sonde_diag *diag);

typedef struct sonde_print_options {
    size_t size;                 /* sizeof(sonde_print_options) */
    int64_t summarize_threshold; /* elements; 0: never summarize */
    int edge_items;              /* 0 or more */
    int max_line_width;          /* columns; 0: never wrap */
    int digits;                  /* 0 to 17 */
    sonde_float_format float_format;
    char separator[8];
    char open_bracket[8];
    char close_bracket[8];
} sonde_print_options;
/* The defaults. */
static inline sonde_print_options sonde_print_options_default(void)
{
    sonde_print_options options = {
        sizeof(sonde_print_options), 1000, 3, 80, 4, SONDE_FLOAT_AUTO, ", ", "(", ")"};

    return options;
}
/* SONDE_EINVAL naming the option: a number out of its range, a text that is not ended. */
SONDE_API SONDE_CHECKED sonde_err
sonde_print_options_check(const sonde_print_options *options, sonde_diag *diag);

/* --- formatting ------------------------------------------------------------------- */

/*
 * Appends the tensor, without a newline at the end. column is where its first line starts
 * (the length of a title), which counts into max_line_width. Any dtype, rank and strides.
 * The options must have passed their check. SONDE_ENOMEM only if text had to grow.
 * Cost: what is shown is read three times, what is not shown never.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_format_tensor(const sonde_view *view,
                                                      const sonde_print_options *options,
                                                      size_t column, sonde_text *text);

/* --- the sink --------------------------------------------------------------------- */

/*
 * Prints `title: VALUE` and a newline for every observation, as it comes, by one write of
 * the whole text, flushed. Memory is allocated when the observer is bound.
 */
typedef struct sonde_printer sonde_printer;

/* options NULL: the defaults, else copied; stream NULL: stderr, else borrowed until
 * destroyed. An invalid option: SONDE_EINVAL. */
SONDE_API SONDE_CHECKED sonde_err sonde_printer_create(const sonde_print_options *options,
                                                       FILE *stream, sonde_printer **out,
                                                       sonde_diag *diag);
SONDE_API void sonde_printer_destroy(sonde_printer *printer);
/* A title to print in place of the tensor's name; before the observer is bound. Copied;
 * a later call replaces it. */
SONDE_API SONDE_CHECKED sonde_err sonde_printer_title(sonde_printer *printer, uint32_t id,
                                                      const char *title,
                                                      sonde_diag *diag);
/* The sink for taps that print. Borrowed. */
SONDE_API sonde_sink *sonde_printer_sink(sonde_printer *printer);
/* Tensors that could not be printed: the stream failed, or a value came that is larger
 * than its tensor was declared. The first is also logged as an error. */
SONDE_API uint64_t sonde_printer_lost(const sonde_printer *printer);

#ifdef __cplusplus
}
#endif

#endif
