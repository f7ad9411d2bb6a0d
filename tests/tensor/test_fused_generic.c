/*
 * test_fused_generic.c - fused vital signs in plain C.
 */
#define FUSED_ISA SONDE__GENERIC

#include "fused.h"
#include "base/cpu.h"
