/*
 * point.h - numbers with a point in every locale. Internal.
 */
#ifndef SONDE_BASE_POINT_H
#define SONDE_BASE_POINT_H

#include <stddef.h>

#include <sonde/export.h>

/* Puts a point where a locale put something else, perhaps of several bytes, into a finite
 * number that printf wrote. Returns the length. */
SONDE_API size_t sonde__number_point(char *number);

#endif
