/*
 * test_fused_avx2.c - fused vital signs with AVX2. Skips itself where there is none; a
 * compiler that does not know the pragma tests the plain accumulators.
 */
#if defined(__x86_64__)
#pragma GCC target("avx2,fma,f16c")
#endif
#define FUSED_ISA SONDE__AVX2

#include "fused.h"
#include "base/cpu.h"
