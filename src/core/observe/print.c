/*
 * print.c - the sink that prints, and how a tensor is written as text.
 *
 * A text is made whole in a buffer that prepare sized for the largest tensor, and goes
 * out by one fwrite under the stream's lock: on an unbuffered stream (stderr) one write
 * of the system. Tensors that cannot be printed are counted, with one message.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "base/options.h"
#include "base/macros.h"
#include "base/number.h"
#include "observe/print_format.h"
#include "tensor/convert.h"
#include <sonde/error.h>
#include <sonde/print.h>
#include <sonde/log.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <assert.h>
#include <math.h>
#include <stdlib.h>

struct sonde_printer {
    sonde_sink sink; /* first */
    sonde_print_options options;
    FILE *stream;
    char **titles; /* by id; NULL: the tensor's name */
    size_t title_capacity;
    sonde_text text;
    uint64_t lost;
};

static const char colon[] = ": ";

static const char *title_of(const sonde_printer *printer, uint32_t id,
                            const sonde_tensor_info *info)
{
    return id < printer->title_capacity && printer->titles[id] != NULL
               ? printer->titles[id]
               : info->name;
}

/* Bytes for `title: VALUE` and a newline; SIZE_MAX if too many to count. */
static size_t needed(const char *title, sonde_dtype dtype, int rank, const int64_t *shape,
                     const sonde_print_options *options)
{
    size_t length = sonde__observe_format_bound(dtype, rank, shape, options);

    if (length == SIZE_MAX ||
        __builtin_add_overflow(length, strlen(title) + sizeof colon, &length)) {
        return SIZE_MAX;
    }
    return length;
}

static sonde_err prepare(sonde_sink *sink, uint32_t id, const sonde_tensor_info *info,
                         unsigned how, const sonde_call_shape *shape, sonde_diag *diag)
{
    sonde_printer *printer = (sonde_printer *)sink;
    const size_t length = needed(title_of(printer, id, info), info->dtype, info->rank,
                                 info->shape, &printer->options);

    (void)how;
    (void)shape;
    return sonde_text_reserve(&printer->text, length) == SONDE_OK
               ? SONDE_OK
               : sonde__fail_nomem(diag, "text to print");
}

static void lose(sonde_printer *printer, const char *title, const char *why)
{
    if (printer->lost++ == 0) {
        sonde_log(SONDE_LOG_ERROR, "observe", "'%s' is not printed: %s", title, why);
    }
}

static void add(sonde_text *text, const char *bytes, size_t length)
{
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
}

static void put(sonde_sink *sink, const sonde_observation *observation)
{
    sonde_printer *printer = (sonde_printer *)sink;
    const sonde_view *view = observation->view;
    const char *title = title_of(printer, observation->id, observation->info);
    const size_t length =
        needed(title, view->dtype, view->rank, view->shape, &printer->options);
    sonde_text *text = &printer->text;

    if (length >= text->capacity) {
        lose(printer, title, "it is larger than it was declared");
        return;
    }
    text->length = 0;
    add(text, title, strlen(title));
    add(text, colon, strlen(colon));
    if (sonde_format_tensor(view, &printer->options, text->length, text) != SONDE_OK) {
        lose(printer, title, "out of memory"); /* the bound excludes it */
        return;
    }
    add(text, "\n", 1);
    flockfile(printer->stream);
    const bool written =
        fwrite(text->data, 1, text->length, printer->stream) == text->length &&
        fflush(printer->stream) == 0;
    funlockfile(printer->stream);
    if (!written) {
        lose(printer, title, "the stream cannot be written");
    }
}

sonde_err sonde_printer_create(const sonde_print_options *options, FILE *stream,
                               sonde_printer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_print_options taken = sonde_print_options_default();

    if (options != NULL) {
        SONDE__TAKE(sonde_print_options, &taken, options, diag);
    }
    SONDE__TRY(sonde_print_options_check(&taken, diag));
    sonde_printer *printer = sonde__calloc(1, sizeof *printer);
    if (printer == NULL) {
        return sonde__fail_nomem(diag, "a printer");
    }
    printer->sink = (sonde_sink){.prepare = prepare, .put = put};
    printer->options = taken;
    printer->stream = stream != NULL ? stream : stderr;
    *out = printer;
    return SONDE_OK;
}

void sonde_printer_destroy(sonde_printer *printer)
{
    if (printer == NULL) {
        return;
    }
    for (size_t i = 0; i < printer->title_capacity; i++) {
        sonde__free(printer->titles[i]);
    }
    sonde__free(printer->titles);
    sonde_text_fini(&printer->text);
    sonde__free(printer);
}

sonde_err sonde_printer_title(sonde_printer *printer, uint32_t id, const char *title,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, printer, title);
    const size_t had = printer->title_capacity;
    char *copy = sonde__strdup(title);

    if (copy == NULL || !sonde__reserve(&printer->titles, &printer->title_capacity,
                                        (size_t)id + 1, sizeof(char *))) {
        sonde__free(copy);
        return sonde__fail_nomem(diag, "a title");
    }
    for (size_t i = had; i < printer->title_capacity; i++) {
        printer->titles[i] = NULL;
    }
    sonde__free(printer->titles[id]);
    printer->titles[id] = copy;
    return SONDE_OK;
}

sonde_sink *sonde_printer_sink(sonde_printer *printer)
{
    return &printer->sink;
}

uint64_t sonde_printer_lost(const sonde_printer *printer)
{
    if (printer == NULL) {
        return 0;
    }
    return printer->lost;
}

/* --- print format ------------------------------------------------------------------ */

/* Tensors as text: single numbers; brackets, rows, line breaks,
 * ellipses.
 *
 * The exponent of a number is that of printf's rounded text, so 9.9996 with four digits
 * counts as 10. The decimal point is a point in every locale.
 *
 * The printed elements are visited three times: to find their magnitudes, which decide
 * the format; to find the widest text; and to write. append alone extends the text; after
 * a failure it does nothing, so the three passes need no error paths. */

/* --- deciding --------------------------------------------------------------------- */

/* The value of a real element, which need not be aligned. */
static double real_value(sonde_dtype dtype, const void *element)
{
    uint64_t room = 0;

    memcpy(&room, element, sonde_dtype_size(dtype));
    return sonde_element_get(dtype, &room);
}

static void add_magnitude(sonde__observe_cell_survey *survey, double magnitude)
{
    if (!isfinite(magnitude) || magnitude == 0.0) {
        return;
    }
    survey->largest = fmax(survey->largest, magnitude);
    if (survey->smallest == 0.0 || magnitude < survey->smallest) {
        survey->smallest = magnitude;
    }
}

void sonde__observe_cell_look(sonde__observe_cell_survey *survey, sonde_dtype dtype,
                              const void *element)
{
    const sonde_dtype part = sonde__dtype_part(dtype);

    add_magnitude(survey, fabs(real_value(part, element)));
    if (part != dtype) {
        add_magnitude(survey, fabs(real_value(part, (const unsigned char *)element +
                                                        sonde_dtype_size(part))));
    }
}

/* The decimal exponent of a number rounded to so many digits; 0 has exponent 0. */
static int decimal_exponent(double magnitude, int digits)
{
    char buf[64];

    (void)sonde__snprintf(buf, sizeof buf, "%.*e", digits - 1, magnitude);
    const char *e = strchr(buf, 'e');
    return e != NULL ? (int)strtol(e + 1, NULL, 10) : 0;
}

sonde__observe_cell_style
sonde__observe_cell_decide(const sonde__observe_cell_survey *survey, sonde_dtype dtype,
                           const sonde_print_options *options)
{
    sonde__observe_cell_style style = {
        .dtype = dtype, .format = options->float_format, .digits = options->digits};
    int largest = 0;

    if (style.digits == 0) {
        style.format = SONDE_FLOAT_NONE;
    }
    if (!sonde_dtype_is_float(sonde__dtype_part(dtype)) ||
        style.format == SONDE_FLOAT_NONE) {
        return style;
    }
    largest = decimal_exponent(survey->largest, style.digits);
    style.decimals = SONDE_MAX(0, style.digits - 1 - largest);
    if (style.format == SONDE_FLOAT_AUTO) {
        const int smallest = decimal_exponent(survey->smallest, style.digits);
        const bool fits = largest < style.digits && largest >= -4 &&
                          (survey->smallest == 0.0 || smallest >= -style.decimals);

        style.format = fits ? SONDE_FLOAT_FIXED : SONDE_FLOAT_SCIENTIFIC;
    }
    return style;
}

/* --- writing ---------------------------------------------------------------------- */

static size_t write_integer(sonde_dtype dtype, const void *element, char *buf)
{
    const size_t size = sonde_dtype_size(dtype);
    const bool is_signed = dtype == SONDE_I8 || dtype == SONDE_I16 ||
                           dtype == SONDE_I32 || dtype == SONDE_I64;
    uint64_t bits = 0;

    memcpy(&bits, element, size); /* little-endian */
    if (is_signed) {
        const unsigned shift = 64 - 8 * (unsigned)size;

        return (size_t)snprintf(buf, SONDE__CELL, "%lld",
                                (long long)((int64_t)(bits << shift) >> shift));
    }
    return (size_t)snprintf(buf, SONDE__CELL, "%llu", (unsigned long long)bits);
}

enum { PLAIN = 16 /* digits that an integer may have before it gets an exponent */ };

/* Writes so many digits. False: they read back as another element. */
static bool write_digits(sonde_dtype dtype, double value, int digits, char *buf)
{
    uint64_t room = 0;

    (void)sonde__snprintf(buf, SONDE__CELL, "%.*g", digits, value);
    sonde_element_set(dtype, &room, sonde__strtod(buf, NULL));
    return sonde_element_get(dtype, &room) == value;
}

/* Fewer digits than most elements need: the search begins here if these are too few. One
 * digit more is never further from the value, so it cannot be worse, except at powers of
 * two, whose neighbors lie at two distances. */
static int begin_search(sonde_dtype dtype, double value, char *buf)
{
    int exponent = 0;
    const int many = dtype == SONDE_F64 ? 15 : dtype == SONDE_F32 ? 6 : 1;

    return fabs(frexp(value, &exponent)) != 0.5 && !write_digits(dtype, value, many, buf)
               ? many + 1
               : 1;
}

/* The fewest significant digits that give the same element back. */
static void write_shortest(sonde_dtype dtype, double value, char *buf)
{
    for (int digits = begin_search(dtype, value, buf); digits <= 17; digits++) {
        if (write_digits(dtype, value, digits, buf)) {
            const int exponent = decimal_exponent(fabs(value), digits);

            if (exponent >= digits && exponent < PLAIN) { /* 100, not 1e+02 */
                (void)sonde__snprintf(buf, SONDE__CELL, "%.*g", exponent + 1, value);
            }
            return;
        }
    }
}

static size_t write_float(const sonde__observe_cell_style *style, sonde_dtype dtype,
                          const void *element, char buf[SONDE__CELL])
{
    const double value = real_value(dtype, element);

    if (!isfinite(value)) {
        const char *text = isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf";

        memcpy(buf, text, strlen(text) + 1);
        return strlen(text);
    }
    switch (style->format) {
    case SONDE_FLOAT_FIXED:
        (void)sonde__snprintf(buf, SONDE__CELL, "%.*f", style->decimals, value);
        break;
    case SONDE_FLOAT_SCIENTIFIC:
        (void)sonde__snprintf(buf, SONDE__CELL, "%.*e", style->digits - 1, value);
        break;
    case SONDE_FLOAT_NONE:
    case SONDE_FLOAT_AUTO: /* decided by now */
        if (style->digits > 0) {
            (void)sonde__snprintf(buf, SONDE__CELL, "%.*g", style->digits, value);
        } else {
            write_shortest(dtype, value, buf);
        }
        break;
    }
    return strlen(buf);
}

/* "1.5-2j" */
static size_t write_complex(const sonde__observe_cell_style *style, sonde_dtype part,
                            const void *element, char buf[SONDE__CELL])
{
    char im[SONDE__CELL];
    size_t used = write_float(style, part, element, buf);
    const size_t more = write_float(
        style, part, (const unsigned char *)element + sonde_dtype_size(part), im);

    assert(used + more + 3 <= SONDE__CELL);
    if (im[0] != '-') {
        buf[used++] = '+';
    }
    memcpy(buf + used, im, more);
    used += more;
    buf[used++] = 'j';
    buf[used] = '\0';
    return used;
}

size_t sonde__observe_cell_write(const sonde__observe_cell_style *style,
                                 const void *element, char buf[SONDE__CELL])
{
    const sonde_dtype part = sonde__dtype_part(style->dtype);

    if (part != style->dtype) {
        return write_complex(style, part, element, buf);
    }
    return sonde_dtype_is_float(part) ? write_float(style, part, element, buf)
                                      : write_integer(part, element, buf);
}

/* --- bounding --------------------------------------------------------------------- */

/* Digits before the point of the largest, and behind it up to the first of the smallest.
 */
static const struct reach {
    int before, behind;
} reaches[SONDE_DTYPE_COUNT] = {
    [SONDE_F16] = {5, 8},     [SONDE_BF16] = {39, 41},  [SONDE_F32] = {39, 45},
    [SONDE_F64] = {309, 324}, [SONDE_F8_E4M3] = {3, 3}, [SONDE_F8_E5M2] = {5, 5}};

static int float_bound(sonde_dtype dtype, const sonde_print_options *options)
{
    const int digits = options->digits;
    const struct reach reach = reaches[dtype];

    if (digits == 0) {
        return 24; /* -1.7976931348623157e+308 */
    }
    switch (options->float_format) {
    case SONDE_FLOAT_FIXED: /* sign, digits, point, decimals */
        return 1 + SONDE_MAX(reach.before + 1 + digits, 1 + 1 + digits + reach.behind);
    case SONDE_FLOAT_SCIENTIFIC: /* sign, digits, point, e+308 */
        return 1 + digits + 1 + 5;
    case SONDE_FLOAT_NONE: /* 0.0001 in front, or an exponent */
        return 1 + digits + 6;
    case SONDE_FLOAT_AUTO: /* fixed from 10^-4 to 10^digits */
        break;
    }
    return SONDE_MAX(1 + digits + 1 + digits + 3, 1 + digits + 1 + 5);
}

size_t sonde__observe_cell_bound(sonde_dtype dtype, const sonde_print_options *options)
{
    static const int of_integers[SONDE_DTYPE_COUNT] = {
        [SONDE_BOOL] = 3, [SONDE_U8] = 3,   [SONDE_I8] = 4,
        [SONDE_U16] = 5,  [SONDE_I16] = 6,  [SONDE_U32] = 10,
        [SONDE_I32] = 11, [SONDE_U64] = 20, [SONDE_I64] = 20};

    const sonde_dtype part = sonde__dtype_part(dtype);
    const int one =
        sonde_dtype_is_float(part) ? float_bound(part, options) : of_integers[part];

    return (size_t)(part == dtype ? one : 2 * one + 2);
}

static const char ellipsis[] = "...";

/* --- options ---------------------------------------------------------------------- */

enum { MOST_DIGITS = 17 };

static const char *const format_names[] = {"auto", "fixed", "scientific", "none"};

sonde_err sonde_float_format_parse(const char *text, sonde_float_format *format,
                                   sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, format);
    for (size_t i = 0; i < SONDE_COUNT_OF(format_names); i++) {
        if (sonde__strcasecmp(text, format_names[i]) == 0) {
            *format = (sonde_float_format)i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "float_format",
                       "auto, fixed, scientific or none", "unknown format '%s'", text);
}

sonde_err sonde_print_options_check(const sonde_print_options *given, sonde_diag *diag)
{
    SONDE__NEEDS_AS(diag, "options", given);
    sonde_print_options taken;
    const sonde_print_options *const options = &taken;
    SONDE__TAKE(sonde_print_options, &taken, given, diag);
    const struct {
        const char *name, *expected;
        int64_t value, most;
    } numbers[] = {
        {"summarize_threshold", "0 or more", options->summarize_threshold, INT64_MAX},
        {"edge_items", "0 or more", options->edge_items, INT64_MAX},
        {"max_line_width", "0 or more", options->max_line_width, INT64_MAX},
        {"digits", "0 to 17", options->digits, MOST_DIGITS},
        {"float_format", "a sonde_float_format", options->float_format,
         SONDE_FLOAT_NONE}};
    const struct {
        const char *name, *text;
    } texts[] = {{"separator", options->separator},
                 {"open_bracket", options->open_bracket},
                 {"close_bracket", options->close_bracket}};

    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        if (numbers[i].value < 0 || numbers[i].value > numbers[i].most) {
            return sonde__fail(diag, SONDE_EINVAL, numbers[i].name, numbers[i].expected,
                               "%lld", (long long)numbers[i].value);
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (memchr(texts[i].text, '\0', sizeof options->separator) == NULL) {
            return sonde__fail(diag, SONDE_EINVAL, texts[i].name, "at most 7 characters",
                               "a longer text");
        }
    }
    return SONDE_OK;
}

/* --- text ------------------------------------------------------------------------- */

/* --- layout ----------------------------------------------------------------------- */

typedef struct layout {
    const sonde_view *view;
    const sonde_print_options *options;
    bool summarize;
    sonde__observe_cell_survey survey;
    sonde__observe_cell_style style;
    sonde_text *text;
    size_t line;   /* where in text the current line begins */
    size_t column; /* at which it begins */
    size_t tight;  /* length of the separator without blanks at its end */
    sonde_err err;
} layout;

static bool is_summarized(int rank, const int64_t *shape,
                          const sonde_print_options *options)
{
    int64_t count = 1;

    for (int d = 0; d < rank; d++) {
        if (__builtin_mul_overflow(count, SONDE_MAX(shape[d], 1), &count)) {
            count = INT64_MAX;
        }
    }
    return options->summarize_threshold > 0 && count > options->summarize_threshold;
}

/* Whether an ellipsis replaces the middle of a dimension. */
static bool is_cut(int64_t length, bool summarize, const sonde_print_options *options)
{
    return summarize && length > 2 * (int64_t)options->edge_items;
}

static void append(layout *out, const char *bytes, size_t length)
{
    sonde_text *text = out->text;

    if (out->err != SONDE_OK) {
        return;
    }
    out->err = sonde_text_reserve(text, text->length + length);
    if (out->err != SONDE_OK) {
        return;
    }
    memcpy(text->data + text->length, bytes, length);
    text->length += length;
    text->data[text->length] = '\0';
}

static void append_blanks(layout *out, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        append(out, " ", 1);
    }
}

static void append_line(layout *out, size_t indent)
{
    append(out, "\n", 1);
    out->line = out->text->length;
    out->column = 0;
    append_blanks(out, indent);
}

typedef void visit_function(layout *out, const unsigned char *element);

/* Every element that is shown, in row-major order. */
static void visit(layout *out, int d, const unsigned char *element,
                  visit_function *function)
{
    const sonde_view *view = out->view;
    const int64_t edge = out->options->edge_items;
    int64_t n = 0, step = 0;

    if (d >= view->rank || d >= SONDE_MAX_DIMS) {
        function(out, element);
        return;
    }
    n = view->shape[d];
    step = view->stride[d] * (int64_t)sonde_dtype_size(view->dtype);
    for (int64_t i = 0; i < n; i++) {
        if (i == edge && is_cut(n, out->summarize, out->options)) {
            i = n - edge;
        }
        if (i < n) {
            visit(out, d + 1, element + i * step, function);
        }
    }
}

static void look(layout *out, const unsigned char *element)
{
    sonde__observe_cell_look(&out->survey, out->view->dtype, element);
}

static void measure(layout *out, const unsigned char *element)
{
    char buf[SONDE__CELL];
    const size_t length = sonde__observe_cell_write(&out->style, element, buf);

    out->style.width = SONDE_MAX(out->style.width, length);
}

/* One number, aligned, or the ellipsis for NULL, behind what stands in its row already.
 */
static void append_item(layout *out, int depth, const unsigned char *element, bool first,
                        bool last)
{
    const sonde_print_options *options = out->options;
    const size_t between = strlen(options->separator);
    const size_t behind = last ? strlen(options->close_bracket) : out->tight;
    char buf[SONDE__CELL] = "...";
    const size_t length = element != NULL
                              ? sonde__observe_cell_write(&out->style, element, buf)
                              : sizeof ellipsis - 1;
    const size_t blanks =
        element != NULL && length < out->style.width ? out->style.width - length : 0;
    const size_t column = out->text->length - out->line + out->column;

    if (!first && options->max_line_width > 0 &&
        column + between + blanks + length + behind > (size_t)options->max_line_width) {
        append(out, options->separator, out->tight);
        append_line(out, (size_t)depth + 2);
    } else if (!first) {
        append(out, options->separator, between);
    }
    append_blanks(out, blanks);
    append(out, buf, length);
}

static void append_row(layout *out, int depth, const unsigned char *element)
{
    const sonde_view *view = out->view;
    const int64_t n = view->shape[depth], edge = out->options->edge_items;
    const int64_t step = view->stride[depth] * (int64_t)sonde_dtype_size(view->dtype);

    append(out, out->options->open_bracket, strlen(out->options->open_bracket));
    for (int64_t i = 0; i < n; i++) {
        if (i == edge && is_cut(n, out->summarize, out->options)) {
            append_item(out, depth, NULL, i == 0, edge == 0);
            i = n - edge;
        }
        if (i < n) {
            append_item(out, depth, element + i * step, i == 0, i + 1 == n);
        }
    }
    append(out, out->options->close_bracket, strlen(out->options->close_bracket));
}

static void append_block(layout *out, int depth, const unsigned char *element)
{
    const sonde_view *view = out->view;
    const int64_t n = view->shape[depth], edge = out->options->edge_items;
    const int64_t step = view->stride[depth] * (int64_t)sonde_dtype_size(view->dtype);

    if (depth == view->rank - 1) {
        append_row(out, depth, element);
        return;
    }
    append(out, out->options->open_bracket, strlen(out->options->open_bracket));
    for (int64_t i = 0; i < n; i++) {
        append_line(out, (size_t)depth + 1);
        if (i == edge && is_cut(n, out->summarize, out->options)) {
            append(out, ellipsis, sizeof ellipsis - 1);
            i = n - edge - 1;
        } else {
            append_block(out, depth + 1, element + i * step);
        }
    }
    if (n > 0) {
        append_line(out, (size_t)depth);
    }
    append(out, out->options->close_bracket, strlen(out->options->close_bracket));
}

sonde_err sonde_format_tensor(const sonde_view *view, const sonde_print_options *given,
                              size_t column, sonde_text *text)
{
    SONDE__NEEDS_AS(NULL, "view, options, text", view, given, text);
    sonde_print_options taken;
    const sonde_print_options *const options = &taken;
    SONDE__TAKE(sonde_print_options, &taken, given, NULL);
    if (sonde__tensor_view_fault(view, true) != NULL) {
        return SONDE_EINVAL;
    }
    layout out = {.view = view,
                  .options = options,
                  .summarize = is_summarized(view->rank, view->shape, options),
                  .text = text,
                  .line = text->length,
                  .column = column,
                  .tight = strlen(options->separator)};
    char buf[SONDE__CELL];

    while (out.tight > 0 && options->separator[out.tight - 1] == ' ') {
        out.tight--;
    }
    if (options->digits > 0 && sonde_dtype_is_float(sonde__dtype_part(view->dtype))) {
        visit(&out, 0, view->data, look);
    }
    out.style = sonde__observe_cell_decide(&out.survey, view->dtype, options);
    if (view->rank == 0) {
        append(&out, buf, sonde__observe_cell_write(&out.style, view->data, buf));
        return out.err;
    }
    if (options->digits > 0) {
        visit(&out, 0, view->data, measure);
    }
    append_block(&out, 0, view->data);
    return out.err;
}

/* --- bounding --------------------------------------------------------------------- */

/* count * each + more; SIZE_MAX if that is too much, and stays so. */
static size_t times_plus(size_t count, size_t each, size_t more)
{
    size_t product = 0, sum = 0;

    if (each == SIZE_MAX || !sonde__mul(count, each, &product) ||
        __builtin_add_overflow(product, more, &sum)) {
        return SIZE_MAX;
    }
    return sum;
}

size_t sonde__observe_format_bound(sonde_dtype dtype, int rank, const int64_t *shape,
                                   const sonde_print_options *given)
{
    sonde_print_options taken;
    const sonde_print_options *const options = &taken;

    const int64_t scalar[1] = {0};

    if (given == NULL || (shape == NULL && rank > 0) || sonde_dtype_size(dtype) == 0 ||
        sonde__given_options(&taken, sizeof taken, given, "", NULL) != SONDE_OK) {
        return SIZE_MAX;
    }
    shape = shape != NULL ? shape : scalar; /* of rank 0 */
    const bool summarize = is_summarized(rank, shape, options);
    const size_t brackets =
        strlen(options->open_bracket) + strlen(options->close_bracket);
    size_t bound = sonde__observe_cell_bound(dtype, options);

    for (int d = rank - 1; d >= 0; d--) {
        const size_t depth = (size_t)d;
        const size_t items = is_cut(shape[d], summarize, options)
                                 ? 2 * (size_t)options->edge_items + 1
                                 : (size_t)shape[d];

        if (d == rank - 1) { /* each with a separator, and perhaps a new line */
            bound = times_plus(items, bound + strlen(options->separator) + 1 + depth + 2,
                               brackets);
        } else { /* each on a new line, and so is the closing bracket */
            const size_t item = SONDE_MAX(bound, sizeof ellipsis - 1);

            bound =
                times_plus(items, times_plus(1, item, depth + 2), brackets + 1 + depth);
        }
    }
    return bound;
}
