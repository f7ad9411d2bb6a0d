/*
 * accumulate.h - adding views up in their own dtype. Internal.
 */
#ifndef SONDE_OBSERVE_ACCUMULATE_H
#define SONDE_OBSERVE_ACCUMULATE_H

#include <sonde/tensor.h>

/*
 * sum := sum + view, element by element. sum points to contiguous, aligned elements of
 * the view's dtype, which is not bool. Integers wrap; float16 and bfloat16 are added as
 * float32 and rounded.
 */
SONDE_API void sonde__observe_accumulate(void *sum, const sonde_view *view);
/* values := values / by, of a floating dtype; by >= 1. The 16-bit ones are divided as
 * float32. */
void sonde__observe_divide(sonde_dtype dtype, void *values, int64_t count,
                           int64_t divisor);

#endif
