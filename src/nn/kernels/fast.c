/*
 * fast.c - see fast.h: the lists, and the choice among the instruction sets.
 */
#include "nn/kernels/fast.h"
#include "nn/kernels/rows.h"

#define KERNEL(name, isa) &sonde__kernel_##name##_##isa
#define ONE(op, isa) KERNEL(op, isa)
#define WIDE(op, isa) KERNEL(op##_wide, isa), KERNEL(op, isa)
#define ROWS(op, isa) KERNEL(op, isa), KERNEL(op##_batch, isa), &sonde__kernel_##op##_rows
#define PLAIN(op, isa) KERNEL(op, isa), KERNEL(op##_plain, isa)
#define PANELS(op, isa) KERNEL(op##_panels, isa), PLAIN(op, isa)
#define SUMS(op, isa) KERNEL(linear_##op, isa), KERNEL(op, isa)

#define GENERIC(op, number, list) [SONDE__FAST_##number] = {list(op, generic)},
#define AVX2(op, number, list) [SONDE__FAST_##number] = {list(op, avx2)},
#define AVX512(op, number, list) [SONDE__FAST_##number] = {list(op, avx512)},

const sonde__op_kernel *const *sonde__kernel_fast_kernels_of(sonde__isa isa,
                                                             sonde__kernel_fast_op op)
{
    static const sonde__op_kernel *const lists[][SONDE__FAST_OPS][4] = {
        {SONDE__KERNEL_FAST_OPS(GENERIC)},
#if defined(__x86_64__)
        {SONDE__KERNEL_FAST_OPS(AVX2)},
        {SONDE__KERNEL_FAST_OPS(AVX512)},
#endif
    };

    return lists[isa][op];
}

#define FAST(op, number, list)                                                           \
    const sonde__op_kernel *const *sonde__kernel_##op##_fast(void)                       \
    {                                                                                    \
        return sonde__kernel_fast_kernels_of(sonde__cpu_isa(), SONDE__FAST_##number);    \
    }
SONDE__KERNEL_FAST_OPS(FAST)
