/*
 * test_fused_avx512.c - fused vital signs with AVX-512. Skips itself where there is none;
 * a compiler that does not know the pragma tests the plain accumulators.
 */
#if defined(__x86_64__)
#pragma GCC target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")
#endif
#define FUSED_ISA SONDE__AVX512

#include "fused.h"
#include "base/cpu.h"
