/*
 * macros.h - array lengths, minimum, maximum. Internal.
 */
#ifndef SONDE_BASE_MACROS_H
#define SONDE_BASE_MACROS_H

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "Sonde looks for NaN: build it without -ffast-math"
#endif

#define SONDE_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SONDE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SONDE_MAX(a, b) ((a) > (b) ? (a) : (b))

#endif
