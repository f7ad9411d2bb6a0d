/*
 * ticks.c - see axes.h.
 *
 * All labels of one axis share their unit (k, M, G, T, or a power of ten) and number of
 * decimals, so that they can be compared at a glance.
 */
#include "plot/axes.h"
#include "base/macros.h"
#include "base/number.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define MINUS "\xe2\x88\x92"
#define TIMES "\xc3\x97"
#define THIN_SPACE "\xe2\x80\x89"

double sonde__plot_nice_step(double range, int wanted)
{
    const double rough = range / wanted;
    const double power = pow(10, floor(log10(rough)));
    const double part = rough / power; /* 1 ... 10 */
    const double slack = 1 + 1e-9;     /* so that 1 / 5 / 0.2 is one step, not more */

    return (part <= slack       ? 1
            : part <= 2 * slack ? 2
            : part <= 5 * slack ? 5
                                : 10) *
           power;
}

/* --- labels ------------------------------------------------------------------------- */

/* "10^n" with raised digits; returns the length of the text. */
static size_t write_power(char *buf, size_t size, int exponent)
{
    static const char *const raised[] = {
        "\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",     "\xc2\xb3",     "\xe2\x81\xb4",
        "\xe2\x81\xb5", "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8", "\xe2\x81\xb9",
    };
    char digits[16] = "";
    size_t length =
        (size_t)snprintf(buf, size, "10%s", exponent < 0 ? "\xe2\x81\xbb" : "");

    (void)snprintf(digits, sizeof digits, "%d", exponent < 0 ? -exponent : exponent);
    for (const char *digit = digits; *digit != '\0' && length < size; digit++) {
        length +=
            (size_t)snprintf(buf + length, size - length, "%s", raised[*digit - '0']);
    }
    return length;
}

/* The divisor of all labels of an axis, and their suffix. */
typedef struct unit {
    int exponent;
    bool power; /* written as a power of ten */
    const char *suffix;
} unit;

static unit unit_for(double largest)
{
    static const unit units[] = {
        {0, false, ""},  {3, false, "k"},  {6, false, "M"},
        {9, false, "G"}, {12, false, "T"},
    };
    const int exponent = largest > 0 ? (int)floor(log10(largest) + 1e-9) : 0;

    if (exponent < -3 || exponent > 15) {
        return (unit){exponent, true, ""};
    }
    return units[exponent < 4 ? 0 : SONDE_MIN(exponent / 3, 4)];
}

/* value / 10^exponent, without overflow of the power. */
static double divided(double value, int exponent)
{
    return exponent < -300 ? value * 1e300 * pow(10, -exponent - 300)
                           : value / pow(10, exponent);
}

static void write_label(char *buf, size_t size, double value, unit u, int decimals)
{
    const double shown = fabs(divided(value, u.exponent));
    char number[SONDE__LABEL_SIZE] = "";
    size_t length = 0;

    if (!(shown > 0)) {
        (void)snprintf(buf, size, "0");
        return;
    }
    (void)sonde__snprintf(number, sizeof number, "%.*f", decimals, shown);
    length =
        (size_t)snprintf(buf, size, "%s%s%s", value < 0 ? MINUS : "", number, u.suffix);
    if (u.power && length < size) {
        length += (size_t)snprintf(buf + length, size - length, TIMES);
        (void)write_power(buf + length, size - length, u.exponent);
    }
}

/* Decimals that distinguish multiples of step, in that unit. */
static int decimals_for(double step, int exponent)
{
    const double places = exponent - floor(log10(step) + 1e-9);

    return (int)SONDE_MIN(SONDE_MAX(places, 0), 15);
}

static void label_linear(sonde__plot_ticks *ticks, double step)
{
    double largest = 0;
    unit u = {0};

    for (int i = 0; i < ticks->count; i++) {
        largest = SONDE_MAX(largest, fabs(ticks->value[i]));
    }
    u = unit_for(largest);
    for (int i = 0; i < ticks->count; i++) {
        write_label(ticks->label[i], SONDE__LABEL_SIZE, ticks->value[i], u,
                    decimals_for(step, u.exponent));
    }
}

/* --- linear ------------------------------------------------------------------------- */

void sonde__plot_ticks_linear(double low, double high, int wanted, bool whole,
                              sonde__plot_ticks *ticks)
{
    double step = 0, first = 0;

    *ticks = (sonde__plot_ticks){0};
    wanted = SONDE_MIN(SONDE_MAX(wanted, 2), 30);
    step = sonde__plot_nice_step(high - low, wanted);
    if (whole) {
        step = SONDE_MAX(step, 1);
    }
    first = ceil(low / step - 1e-9);
    for (int i = 0; i <= wanted; i++) {
        const double value = (first + i) * step;

        if (value > high + step * 1e-9) {
            break;
        }
        ticks->value[ticks->count++] = fabs(value) < step / 2 ? 0 : value;
    }
    label_linear(ticks, step);
}

/* --- logarithmic -------------------------------------------------------------------- */

static void add_log(sonde__plot_ticks *ticks, double low, double high, int decade,
                    int digit)
{
    const double value = digit * pow(10, decade);

    if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9) &&
        ticks->count < SONDE__TICKS_MAX) {
        ticks->value[ticks->count++] = value;
    }
}

/* Labels as short as 0.001, 20 and 5k; all are powers such as 2x10^-7 if one needs it. */
static void label_log(sonde__plot_ticks *ticks)
{
    bool powers = false;

    for (int i = 0; i < ticks->count; i++) {
        powers = powers || ticks->value[i] < 0.9e-3 || ticks->value[i] > 1.1e15;
    }
    for (int i = 0; i < ticks->count; i++) {
        const int exponent = (int)floor(log10(ticks->value[i]) + 1e-9);
        const int digit = (int)lround(divided(ticks->value[i], exponent));
        char *const label = ticks->label[i];

        if (powers) {
            size_t length = 0;

            if (digit > 1) {
                length = (size_t)snprintf(label, SONDE__LABEL_SIZE, "%d" TIMES, digit);
            }
            (void)write_power(label + length, SONDE__LABEL_SIZE - length, exponent);
        } else {
            (void)sonde__plot_short_number(ticks->value[i], 1, label, SONDE__LABEL_SIZE);
        }
    }
}

static void add_fine(double low, double high, int first, int last,
                     sonde__plot_ticks *ticks)
{
    for (int decade = first; decade <= last; decade++) {
        for (int digit = 2; digit <= 9; digit++) {
            const double value = digit * pow(10, decade);

            if (value > low && value < high &&
                ticks->fine_count < SONDE__TICKS_FINE_MAX) {
                ticks->fine[ticks->fine_count++] = value;
            }
        }
    }
}

void sonde__plot_ticks_log(double low, double high, int wanted, sonde__plot_ticks *ticks)
{
    const int first = (int)floor(log10(low) + 1e-9),
              last = (int)floor(log10(high) + 1e-9);
    const int decades = last - first + 1;

    wanted = SONDE_MIN(SONDE_MAX(wanted, 2), 30);
    *ticks = (sonde__plot_ticks){0};
    if (log10(high) - log10(low) < 1) {
        sonde__plot_ticks_linear(low, high, wanted, false, ticks);
        return;
    }
    if (decades <= 10) {
        add_fine(low, high, first, last, ticks);
    }
    if (decades * 3 <= wanted + 1) {
        for (int decade = first; decade <= last; decade++) {
            add_log(ticks, low, high, decade, 1);
            add_log(ticks, low, high, decade, 2);
            add_log(ticks, low, high, decade, 5);
        }
    } else {
        const int step = SONDE_MAX(1, (int)sonde__plot_nice_step(decades, wanted));
        const int start = (int)floor((double)first / step) * step;

        for (int decade = start; decade <= last; decade += step) {
            add_log(ticks, low, high, decade, 1);
        }
    }
    if (ticks->count < 2) {
        sonde__plot_ticks_linear(low, high, wanted, false, ticks);
        return;
    }
    label_log(ticks);
}

/* --- single numbers ----------------------------------------------------------------- */

const char *sonde__plot_grouped(uint64_t value, char *buf, size_t size)
{
    char digits[24] = "";
    const size_t count =
        (size_t)snprintf(digits, sizeof digits, "%llu", (unsigned long long)value);
    size_t length = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < count && length < size; i++) {
        const bool gap = i > 0 && (count - i) % 3 == 0;

        length += (size_t)snprintf(buf + length, size - length, "%s%c",
                                   gap ? THIN_SPACE : "", digits[i]);
    }
    return buf;
}

const char *sonde__plot_short_number(double value, int digits, char *buf, size_t size)
{
    static const struct {
        double factor;
        const char *suffix;
    } units[] = {{1, ""}, {1e3, "k"}, {1e6, "M"}, {1e9, "G"}, {1e12, "T"}};
    const double magnitude = fabs(value);
    const double rounding = 1 - 0.5 * pow(10, -digits);
    const char *const sign = value < 0 ? MINUS : "";
    size_t i = 0;

    while (i + 1 < SONDE_COUNT_OF(units) && magnitude >= units[i + 1].factor * rounding) {
        i++;
    }
    if (!(magnitude > 0)) {
        (void)snprintf(buf, size, "0");
    } else if (!isfinite(magnitude) || magnitude < 0.9e-3 || magnitude > 9.9e14) {
        (void)sonde__snprintf(buf, size, "%s%.*g", sign, digits, magnitude);
    } else {
        const double shown = magnitude / units[i].factor;
        const int before = (int)floor(log10(shown) + 1e-9) + 1;

        (void)sonde__snprintf(buf, size, "%s%.*f", sign, SONDE_MAX(digits - before, 0),
                              shown);
        if (strchr(buf, '.') != NULL) { /* 2.50 is 2.5, 3.00 is 3 */
            size_t end = strlen(buf);

            while (buf[end - 1] == '0') {
                end--;
            }
            buf[buf[end - 1] == '.' ? end - 1 : end] = '\0';
        }
        (void)strncat(buf, units[i].suffix, size - strlen(buf) - 1);
    }
    return buf;
}
