/*
 * clock.c - monotonic time.
 */
#include "base/base.h"

#include <time.h>

double sonde__now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
