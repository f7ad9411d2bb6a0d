/*
 * test_data_floats.c - bytes to normalized floats, bit for bit on every instruction set.
 */
#include "nn/data_pipeline.h"

#include <sys/wait.h>

static const float moments[][2] = {
    {0.5f, 0.5f},     {0.1307f, 0.3081f}, {0.2860f, 0.3530f}, {0.485f, 0.229f},
    {0.456f, 0.224f}, {0.406f, 0.225f},   {0.0f, 1.0f},       {-3.7f, 1e-3f},
    {0.5f, -0.25f},   {0.3f, 1e30f},      {0.4f, 3e-39f},     {1.0f / 3.0f, 1.0f / 7.0f},
};

/* All 256 bytes, at every length modulo a vector. 0 if all bits are as they should be. */
static int check_all_bytes(void)
{
    uint8_t bytes[300];
    float out[MOST / sizeof(float)];

    for (int i = 0; i < 300; i++) {
        bytes[i] = (uint8_t)i;
    }
    for (size_t m = 0; m < sizeof moments / sizeof *moments; m++) {
        const float mean = moments[m][0], std = moments[m][1];
        const sonde_nn_transform list[] = {
            {.kind = SONDE_NN_TO_FLOAT},
            {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {mean}, .std = {std}}};

        for (int n = 240; n <= 300; n += m == 0 ? 1 : 29) {
            run(list, 2, traits_of(SONDE_U8, 1, 1, n), bytes, 0, 0, 0, out);
            for (int i = 0; i < n; i++) {
                const float unit = (float)bytes[i] / 255.0f;
                const float centered = unit - mean;
                const float wanted = centered / std;

                if (memcmp(&out[i], &wanted, sizeof wanted) != 0) {
                    return 1;
                }
            }
        }
        run(list, 1, traits_of(SONDE_U8, 1, 1, 256), bytes, 0, 0, 0, out);
        for (int i = 0; i < 256; i++) {
            if (!(out[i] == (float)i / 255.0f)) {
                return 1;
            }
        }
    }
    return 0;
}

/* The kernels are chosen once a process: one child for each. It runs first. */
static void floats_are_exact_on_every_instruction_set(void **state)
{
    static const char *const isas[] = {"generic", "avx2", "avx512"};

    (void)state;
    for (int i = 0; i < 3; i++) {
        int status = 0;
        const pid_t child = fork();

        assert_true(child >= 0);
        if (child == 0) {
            (void)setenv("SONDE_ISA", isas[i], 1);
            _exit(check_all_bytes());
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0) {
            fail_msg("bits differ on %s", isas[i]);
        }
    }
}

static void channels_have_their_own_moments(void **state)
{
    static const uint8_t pixels[3][2] = {{0, 255}, {51, 102}, {153, 204}};
    static const float mean[3] = {0.1f, 0.2f, 0.3f}, std[3] = {0.5f, 0.25f, 2.0f};
    const sonde_nn_transform list[] = {{.kind = SONDE_NN_TO_FLOAT},
                                       {.kind = SONDE_NN_NORMALIZE,
                                        .channels = 3,
                                        .mean = {mean[0], mean[1], mean[2]},
                                        .std = {std[0], std[1], std[2]}}};
    float out[MOST / sizeof(float)];

    (void)state;
    run(list, 2, traits_of(SONDE_U8, 3, 1, 2), pixels, 0, 0, 0, out);
    for (int i = 0; i < 6; i++) {
        const float unit = (float)pixels[i / 2][i % 2] / 255.0f;
        const float centered = unit - mean[i / 2];

        assert_true(out[i] == centered / std[i / 2]);
    }
}

static void floats_are_normalized_as_they_are(void **state)
{
    static const float values[4] = {1.0f, -2.0f, 0.3f, 1e20f};
    static const float mean = 0.25f, std = 3.0f;
    const sonde_nn_transform list[] = {
        {.kind = SONDE_NN_TO_FLOAT},
        {.kind = SONDE_NN_NORMALIZE, .channels = 1, .mean = {mean}, .std = {std}}};
    sonde_nn_dataset_traits traits = {
        .count = 1, .dtype = SONDE_F32, .rank = 1, .shape = {4, 0, 0}};
    float out[MOST / sizeof(float)];

    (void)state;
    run(list, 2, &traits, values, 0, 0, 0, out);
    for (int i = 0; i < 4; i++) {
        const float centered = values[i] - mean;

        assert_true(out[i] == centered / std);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(floats_are_exact_on_every_instruction_set),
        cmocka_unit_test(channels_have_their_own_moments),
        cmocka_unit_test(floats_are_normalized_as_they_are),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
