/*
 * isa.c - tells a user which kernels the vital signs use.
 */
#include "base/cpu.h"

#include <sonde/stats.h>

const char *sonde_isa_name(void)
{
    return sonde__isa_name();
}
