/*
 * ticks.h - the ticks of an axis and their labels; numbers as text.
 */
#ifndef SONDE_PLOT_TICKS_H
#define SONDE_PLOT_TICKS_H

#include <sonde/export.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__TICKS_MAX = 32, SONDE__TICKS_FINE_MAX = 96, SONDE__LABEL_SIZE = 32 };

typedef struct sonde__plot_ticks {
    int count;
    double value[SONDE__TICKS_MAX];
    char label[SONDE__TICKS_MAX][SONDE__LABEL_SIZE];
    int fine_count; /* logarithmic axis: 2 ... 9 times the decades */
    double fine[SONDE__TICKS_FINE_MAX];
} sonde__plot_ticks;

/*
 * At most `wanted` + 1 ticks (2 ... 30) inside low ... high, at multiples of 1, 2 or 5
 * times a power of ten; the step is at least 1 if whole. low and high lie within
 * +-1.1e300 and far enough apart for distinct ticks (sonde__plot_range_widen ensures
 * both).
 */
SONDE_API void sonde__plot_ticks_linear(double low, double high, int wanted, bool whole,
                                        sonde__plot_ticks *ticks);
/* The same for a logarithmic axis, 0 < low < high: decades, every n-th where there are
 * many; also 2 and 5 times a decade where there are few; linear within one decade. */
SONDE_API void sonde__plot_ticks_log(double low, double high, int wanted,
                                     sonde__plot_ticks *ticks);

/* The smallest 1, 2 or 5 times a power of ten that divides range into at most `wanted`
 * parts. */
double sonde__plot_nice_step(double range, int wanted);

/* "1 234 567", with thin spaces. Returns buf. */
SONDE_API const char *sonde__plot_grouped(uint64_t value, char *buf, size_t size);
/* At most `digits` significant digits, then k, M, G or T: "12.3k", "0.94", "1.2e-07".
 * Returns buf. */
SONDE_API const char *sonde__plot_short_number(double value, int digits, char *buf,
                                               size_t size);

#endif
