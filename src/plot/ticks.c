/*
 * ticks.c - see ticks.h.
 *
 * All labels of one axis share their unit (k, M, G, T, or a power of ten) and number of
 * decimals, so that they can be compared at a glance.
 */
#include "plot/ticks.h"
#include "base/macros.h"

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

/* "x10^n" with raised digits; returns the end of what was written. */
static size_t write_power(char *buf, size_t size, int exponent)
{
    static const char *const raised[] = {
        "\xe2\x81\xb0", "\xc2\xb9",     "\xc2\xb2",     "\xc2\xb3",     "\xe2\x81\xb4",
        "\xe2\x81\xb5", "\xe2\x81\xb6", "\xe2\x81\xb7", "\xe2\x81\xb8", "\xe2\x81\xb9",
    };
    char digits[16] = "";
    size_t at = (size_t)snprintf(buf, size, "10%s", exponent < 0 ? "\xe2\x81\xbb" : "");

    (void)snprintf(digits, sizeof digits, "%d", exponent < 0 ? -exponent : exponent);
    for (const char *digit = digits; *digit != '\0' && at < size; digit++) {
        at += (size_t)snprintf(buf + at, size - at, "%s", raised[*digit - '0']);
    }
    return at;
}

/* What all labels of an axis are divided by, and what stands behind them. */
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
    size_t at = 0;

    if (!(shown > 0)) {
        (void)snprintf(buf, size, "0");
        return;
    }
    (void)snprintf(number, sizeof number, "%.*f", decimals, shown);
    at = (size_t)snprintf(buf, size, "%s%s%s", value < 0 ? MINUS : "", number, u.suffix);
    if (u.power && at < size) {
        at += (size_t)snprintf(buf + at, size - at, TIMES);
        (void)write_power(buf + at, size - at, u.exponent);
    }
}

/* Decimals that tell multiples of step apart, in that unit. */
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
        largest = SONDE_MAX(largest, fabs(ticks->at[i]));
    }
    u = unit_for(largest);
    for (int i = 0; i < ticks->count; i++) {
        write_label(ticks->label[i], SONDE__LABEL_SIZE, ticks->at[i], u,
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
        const double at = (first + i) * step;

        if (at > high + step * 1e-9) {
            break;
        }
        ticks->at[ticks->count++] = fabs(at) < step / 2 ? 0 : at;
    }
    label_linear(ticks, step);
}

/* --- logarithmic -------------------------------------------------------------------- */

static void add_log(sonde__plot_ticks *ticks, double low, double high, int decade,
                    int digit)
{
    const double at = digit * pow(10, decade);

    if (at >= low * (1 - 1e-9) && at <= high * (1 + 1e-9) &&
        ticks->count < SONDE__TICKS_MAX) {
        ticks->at[ticks->count++] = at;
    }
}

/* A label as short as 0.001, 20, 5k, or 2x10^-7 if all shall be powers. */
static void label_log(sonde__plot_ticks *ticks)
{
    bool powers = false;

    for (int i = 0; i < ticks->count; i++) {
        powers = powers || ticks->at[i] < 0.9e-3 || ticks->at[i] > 1.1e15;
    }
    for (int i = 0; i < ticks->count; i++) {
        const int exponent = (int)floor(log10(ticks->at[i]) + 1e-9);
        const int digit = (int)lround(divided(ticks->at[i], exponent));
        char *const label = ticks->label[i];

        if (powers) {
            size_t at = 0;

            if (digit > 1) {
                at = (size_t)snprintf(label, SONDE__LABEL_SIZE, "%d" TIMES, digit);
            }
            (void)write_power(label + at, SONDE__LABEL_SIZE - at, exponent);
        } else {
            (void)sonde__plot_short_number(ticks->at[i], 1, label, SONDE__LABEL_SIZE);
        }
    }
}

static void add_fine(double low, double high, int from, int to, sonde__plot_ticks *ticks)
{
    for (int decade = from; decade <= to; decade++) {
        for (int digit = 2; digit <= 9; digit++) {
            const double at = digit * pow(10, decade);

            if (at > low && at < high && ticks->fine_count < SONDE__TICKS_FINE_MAX) {
                ticks->fine[ticks->fine_count++] = at;
            }
        }
    }
}

void sonde__plot_ticks_log(double low, double high, int wanted, sonde__plot_ticks *ticks)
{
    const int from = (int)floor(log10(low) + 1e-9), to = (int)floor(log10(high) + 1e-9);
    const int decades = to - from + 1;

    wanted = SONDE_MIN(SONDE_MAX(wanted, 2), 30);
    *ticks = (sonde__plot_ticks){0};
    if (log10(high) - log10(low) < 1) {
        sonde__plot_ticks_linear(low, high, wanted, false, ticks);
        return;
    }
    if (decades <= 10) {
        add_fine(low, high, from, to, ticks);
    }
    if (decades * 3 <= wanted + 1) {
        for (int decade = from; decade <= to; decade++) {
            add_log(ticks, low, high, decade, 1);
            add_log(ticks, low, high, decade, 2);
            add_log(ticks, low, high, decade, 5);
        }
    } else {
        const int step = SONDE_MAX(1, (int)sonde__plot_nice_step(decades, wanted));
        const int first = (int)floor((double)from / step) * step;

        for (int decade = first; decade <= to; decade += step) {
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
    size_t at = 0;

    buf[0] = '\0';
    for (size_t i = 0; i < count && at < size; i++) {
        const bool gap = i > 0 && (count - i) % 3 == 0;

        at += (size_t)snprintf(buf + at, size - at, "%s%c", gap ? THIN_SPACE : "",
                               digits[i]);
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
        (void)snprintf(buf, size, "%s%.*g", sign, digits, magnitude);
    } else {
        const double shown = magnitude / units[i].factor;
        const int before = (int)floor(log10(shown) + 1e-9) + 1;

        (void)snprintf(buf, size, "%s%.*f", sign, SONDE_MAX(digits - before, 0), shown);
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
