/*
 * fused.h - the loop that vitals_accum.h describes, tested bit for bit against
 * sonde_vitals_of. test_fused_<isa>.c choose the instruction set and include this.
 */
#include "base/cpu.h"
#include "base/macros.h"
#include "base/random.h"

#include "cmocka_all.h"

#include "tensor/vitals_accum.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 2 * SONDE__VITALS_BLOCK + 4000 };

/* Doubles w in place; vital signs of the new w. */
static void double_and_look(float *w, size_t count, sonde_vitals *vitals)
{
    sonde_vitals_init(vitals);
    for (size_t start = 0; start < count; start += SONDE__VITALS_BLOCK) {
        const size_t n = SONDE_MIN(count - start, (size_t)SONDE__VITALS_BLOCK);
        sonde__vacc acc;
        sonde__vitals_sums sums;
        size_t i = 0;

        sonde__vacc_init(&acc);
        for (; i + 16 <= n; i += 16) {
            for (size_t l = 0; l < 16; l++) {
                w[start + i + l] *= 2.0F;
            }
            sonde__vacc_add(&acc, sonde__tensor_v16_load(w + start + i));
        }
        for (size_t l = i; l < n; l++) {
            w[start + l] *= 2.0F;
        }
        sonde__vacc_tail(&acc, w + start + i, n - i);
        sonde__vacc_close(&acc, &sums);
        sonde__vitals_take(vitals, &sums, w + start, n);
    }
}

static void fused_and_separate_agree_bit_for_bit(void **state)
{
    static const size_t lengths[] = {1, 15, 16, 17, 100, 4095, 4096, 4097, 8192, MOST};
    static float w[MOST];

    (void)state;
    if (sonde__cpu_isa() < FUSED_ISA) {
        skip();
    }
    for (size_t l = 0; l < SONDE_COUNT_OF(lengths); l++) {
        for (int kind = 0; kind < 4; kind++) {
            const int64_t shape = (int64_t)lengths[l];
            const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, w);
            sonde_vitals fused, separate;

            for (size_t i = 0; i < MOST; i++) {
                w[i] = sonde__normal(l, 0, i) + (kind == 1 ? 1e4F : 0.0F);
                w[i] = kind == 2 && i % 3 == 0 ? 0.0F : w[i];
            }
            if (kind == 3) {
                w[lengths[l] / 2] = NAN;
                w[0] = -INFINITY;
            }
            double_and_look(w, lengths[l], &fused);
            sonde_vitals_of(&view, &separate);
            assert_memory_equal(&fused, &separate, sizeof fused);
        }
    }
}

static void blocks_say_when_they_need_their_memory(void **state)
{
    float w[64];
    sonde__vitals_sums sums;

    (void)state;
    for (size_t i = 0; i < 64; i++) {
        w[i] = sonde__normal(1, 0, i);
    }
    sonde__vitals_sums_of(w, 64, &sums);
    assert_false(sonde__vitals_needs_memory(&sums, 64));
    sonde__vitals_sums_of(w, 1, &sums);
    assert_false(sonde__vitals_needs_memory(&sums, 1));
    w[7] = NAN;
    sonde__vitals_sums_of(w, 64, &sums);
    assert_true(sonde__vitals_needs_memory(&sums, 64));
    for (size_t i = 0; i < 64; i++) {
        w[i] = 100.0F + sonde__normal(1, 0, i);
    }
    sonde__vitals_sums_of(w, 64, &sums);
    assert_true(sonde__vitals_needs_memory(&sums, 64));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fused_and_separate_agree_bit_for_bit),
        cmocka_unit_test(blocks_say_when_they_need_their_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
