/*
 * clock.h - the clocks. Internal.
 */
#ifndef SONDE_BASE_CLOCK_H
#define SONDE_BASE_CLOCK_H

#include <stdint.h>

#include <sonde/export.h>

SONDE_API double sonde__now(void);   /* seconds, monotonic */
SONDE_API int64_t sonde__date(void); /* ns since 1970, UTC: of the wall's clock */

#endif
