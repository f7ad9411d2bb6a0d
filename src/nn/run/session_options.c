/*
 * session_options.c - a session's options: defaults, the environment and checks.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/options.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

void sonde_nn_options_fill(sonde_nn_options *options, size_t size)
{
    const sonde_nn_options usual = {.size = size,
                                    .device_iterations = 1,
                                    .gradient_accumulation = 1,
                                    .replicas = 1,
                                    .reduction = SONDE_NN_REDUCTION_MEAN,
                                    .output_mode = SONDE_ANCHOR_DEFAULT,
                                    .output_period = 1};

    sonde__given_defaults(options, size, &usual, sizeof usual);
}

/* A whole number from the environment; *value is unchanged if there is none. */
static sonde_err override_number(const char *variable, int64_t *value, int64_t most,
                                 sonde_diag *diag)
{
    const char *text = getenv(variable);
    char *end = NULL, range[64];
    long long number = 0;

    if (text == NULL || text[0] == '\0') {
        return SONDE_OK;
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < 0 || number > most) {
        (void)snprintf(range, sizeof range, "a whole number from 0 to %lld",
                       (long long)most);
        return sonde__fail(diag, SONDE_EINVAL, variable, range, "'%s'", text);
    }
    *value = number;
    return SONDE_OK;
}

sonde_err sonde__session_options_override(sonde_nn_options *options, bool training,
                                          sonde_diag *diag)
{
    int64_t iterations = options->device_iterations;
    int64_t accumulation = options->gradient_accumulation;
    int64_t replicas = options->replicas;
    int64_t threads = options->threads, seed = (int64_t)options->random_seed;
    const struct {
        const char *variable;
        int64_t *value;
    } numbers[] = {{"SONDE_DEVICE_ITERATIONS", &iterations},
                   {"SONDE_GRADIENT_ACCUMULATION", &accumulation},
                   {"SONDE_REPLICAS", &replicas},
                   {"SONDE_BATCH_SIZE", &options->batch_size},
                   {"SONDE_THREADS", &threads},
                   {"SONDE_RANDOM_SEED", &seed}};
    const char *mode = options->fixed_batch ? NULL : getenv("SONDE_OUTPUT_MODE");
    const char *folder = getenv("SONDE_PLAN_CACHE");
    enum { FIRST_FREE = 4 }; /* of numbers: those before it make the batch */
    sonde_err err = SONDE_OK;

    for (size_t i = options->fixed_batch ? FIRST_FREE : 0; i < SONDE_COUNT_OF(numbers);
         i++) {
        if (training || numbers[i].value != &accumulation) {
            SONDE__TRY(override_number(numbers[i].variable, numbers[i].value,
                                       numbers[i].value == &seed ? INT64_MAX : INT32_MAX,
                                       diag));
        }
    }
    if (mode != NULL && mode[0] != '\0') {
        err = sonde_anchor_mode_parse(mode, &options->output_mode, diag);
        if (err != SONDE_OK) {
            return sonde__fail(diag, err, "SONDE_OUTPUT_MODE",
                               "final, everyn, all, sum, default or mean", "'%s'", mode);
        }
    }
    if (folder != NULL && folder[0] != '\0') {
        options->plan_cache = folder;
    }
    options->device_iterations = (int)iterations;
    options->gradient_accumulation = (int)accumulation;
    options->replicas = (int)replicas;
    options->threads = (int)threads;
    options->random_seed = (uint64_t)seed;
    return SONDE_OK;
}

sonde_err sonde__session_options_check(const sonde_nn_options *options, bool training,
                                       sonde_diag *diag)
{
    int64_t micro_batches = 0;

    if (__builtin_mul_overflow((int64_t)options->device_iterations *
                                   options->gradient_accumulation,
                               options->replicas, &micro_batches)) {
        micro_batches = INT64_MAX;
    }
    const struct {
        const char *name;
        int64_t value, least, most;
        const char *expected;
    } rows[] = {
        {"device_iterations", options->device_iterations, 1, INT32_MAX, "at least 1"},
        {"gradient_accumulation", options->gradient_accumulation, 1, INT32_MAX,
         "at least 1"},
        {"device_iterations", micro_batches, INT64_MIN, INT32_MAX,
         "at most 2147483647 micro-batches a call"},
        {"reduction", options->reduction, SONDE_NN_REDUCTION_MEAN, SONDE_NN_REDUCTION_SUM,
         "mean (0) or sum (1)"},
        {"gradient_accumulation", options->gradient_accumulation, 1,
         training ? INT32_MAX : 1, "1 for an inference session"},
        {"replicas", options->replicas, 1, 1024, "1 to 1024"},
        {"execution", options->execution, SONDE_NN_PIPELINED, SONDE_NN_SEQUENTIAL,
         "pipelined (0), sharded (1) or sequential (2)"},
        {"batch_size", options->batch_size, 0, INT32_MAX, "1 to 2147483647"},
        {"dtype", options->dtype, SONDE_NN_FLOAT32, SONDE_NN_FLOAT16,
         "float32 (0), bfloat16 (1) or float16 (2)"},
        {"threads", options->threads, 0, INT32_MAX, "0 (as many as pay) or more"},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (rows[i].value < rows[i].least || rows[i].value > rows[i].most) {
            return sonde__fail(diag, SONDE_EINVAL, rows[i].name, rows[i].expected, "%lld",
                               (long long)rows[i].value);
        }
    }
    return SONDE_OK;
}
