/*
 * cell.c - single numbers as text.
 *
 * Exponents are read off printf's own rounding, so 9.9996 with four digits counts as 10.
 * Whatever the process's locale puts for the decimal point, a point is written.
 */
#include "observe/print_format.h"

#include "base/macros.h"
#include "tensor/convert.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- deciding --------------------------------------------------------------------- */

/* The element, a real one, in memory that is aligned for it. */
static double value_of(sonde_dtype dtype, const void *element)
{
    uint64_t room = 0;

    memcpy(&room, element, sonde_dtype_size(dtype));
    return sonde_element_get(dtype, &room);
}

static void look_at(sonde__observe_cell_survey *survey, double magnitude)
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

    look_at(survey, fabs(value_of(part, element)));
    if (part != dtype) {
        look_at(survey, fabs(value_of(part, (const unsigned char *)element +
                                                sonde_dtype_size(part))));
    }
}

/* The decimal exponent of a number rounded to so many digits; 0 has exponent 0. */
static int exponent_of(double magnitude, int digits)
{
    char buf[64];
    const char *e = NULL;

    (void)snprintf(buf, sizeof buf, "%.*e", digits - 1, magnitude);
    e = strchr(buf, 'e');
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
    largest = exponent_of(survey->largest, style.digits);
    style.decimals = SONDE_MAX(0, style.digits - 1 - largest);
    if (style.format == SONDE_FLOAT_AUTO) {
        const int smallest = exponent_of(survey->smallest, style.digits);
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

/* The fewest significant digits that give the same element back. */
static void write_shortest(sonde_dtype dtype, double value, char *buf)
{
    for (int digits = 1; digits <= 17; digits++) {
        uint64_t room = 0;

        (void)snprintf(buf, SONDE__CELL, "%.*g", digits, value);
        sonde_element_set(dtype, &room, strtod(buf, NULL));
        if (sonde_element_get(dtype, &room) == value) {
            const int exponent = exponent_of(fabs(value), digits);

            if (exponent >= digits && exponent < PLAIN) { /* 100, not 1e+02 */
                (void)snprintf(buf, SONDE__CELL, "%.*g", exponent + 1, value);
            }
            return;
        }
    }
}

size_t sonde__observe_cell_point(char *buf)
{
    size_t used = 0;

    for (const char *p = buf; *p != '\0'; p++) {
        if (strchr("0123456789+-e", *p) != NULL) {
            buf[used++] = *p;
        } else if (used == 0 || buf[used - 1] != '.') {
            buf[used++] = '.';
        }
    }
    buf[used] = '\0';
    return used;
}

static size_t write_float(const sonde__observe_cell_style *style, sonde_dtype dtype,
                          const void *element, char buf[SONDE__CELL])
{
    const double value = value_of(dtype, element);

    if (!isfinite(value)) {
        const char *text = isnan(value) ? "nan" : value > 0.0 ? "inf" : "-inf";

        memcpy(buf, text, strlen(text) + 1);
        return strlen(text);
    }
    switch (style->format) {
    case SONDE_FLOAT_FIXED:
        (void)snprintf(buf, SONDE__CELL, "%.*f", style->decimals, value);
        break;
    case SONDE_FLOAT_SCIENTIFIC:
        (void)snprintf(buf, SONDE__CELL, "%.*e", style->digits - 1, value);
        break;
    case SONDE_FLOAT_NONE:
    case SONDE_FLOAT_AUTO: /* decided by now */
        if (style->digits > 0) {
            (void)snprintf(buf, SONDE__CELL, "%.*g", style->digits, value);
        } else {
            write_shortest(dtype, value, buf);
        }
        break;
    }
    return sonde__observe_cell_point(buf);
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
