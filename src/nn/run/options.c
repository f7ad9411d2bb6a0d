/*
 * options.c - a session's options: defaults, setters and checks.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/given.h"

#include <errno.h>
#include <stdlib.h>

void sonde_nn_options_fill(sonde_nn_options *options, size_t size)
{
    const sonde_nn_options usual = {.size = size,
                                    .device_iterations = 1,
                                    .gradient_accumulation = 1,
                                    .replication_factor = 1,
                                    .reduction = SONDE_NN_REDUCTION_MEAN,
                                    .output_mode = SONDE_ANCHOR_DEFAULT,
                                    .output_period = 1};

    sonde__given_defaults(options, size, &usual, sizeof usual);
}

sonde_nn_options *sonde_nn_options_set_device_iterations(sonde_nn_options *options, int n)
{
    if (options != NULL) {
        options->device_iterations = n;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_gradient_accumulation(sonde_nn_options *options,
                                                             int n)
{
    if (options != NULL) {
        options->gradient_accumulation = n;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_replication_factor(sonde_nn_options *options,
                                                          int n)
{
    if (options != NULL) {
        options->replication_factor = n;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_output_mode(sonde_nn_options *options,
                                                   sonde_anchor_mode mode, int period)
{
    if (options != NULL) {
        options->output_mode = mode;
        options->output_period = period;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_random_seed(sonde_nn_options *options,
                                                   uint64_t seed)
{
    if (options != NULL) {
        options->random_seed = seed;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_batch_size(sonde_nn_options *options, int64_t n)
{
    if (options != NULL) {
        options->batch_size = n;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_threads(sonde_nn_options *options, int n)
{
    if (options != NULL) {
        options->threads = n;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_execution(sonde_nn_options *options,
                                                 sonde_nn_execution how)
{
    if (options != NULL) {
        options->execution = how;
    }
    return options;
}

sonde_nn_options *sonde_nn_options_set_dtype(sonde_nn_options *options,
                                             sonde_nn_float dtype)
{
    if (options != NULL) {
        options->dtype = dtype;
    }
    return options;
}

/* A whole number from the environment; *value is unchanged if there is none. */
static sonde_err override_number(const char *variable, int64_t *value, int64_t most,
                                 sonde_diag *diag)
{
    const char *text = getenv(variable);
    char *end = NULL;
    long long number = 0;

    if (text == NULL || text[0] == '\0') {
        return SONDE_OK;
    }
    errno = 0;
    number = strtoll(text, &end, 10);
    if (end == text || *end != '\0' || errno != 0 || number < 0 || number > most) {
        return sonde__fail(diag, SONDE_EINVAL, variable, "a whole number >= 0", "'%s'",
                           text);
    }
    *value = number;
    return SONDE_OK;
}

sonde_err sonde__session_options_override(sonde_nn_options *options, bool training,
                                          sonde_diag *diag)
{
    int64_t iterations = options->device_iterations;
    int64_t accumulation = options->gradient_accumulation;
    int64_t replicas = options->replication_factor;
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
            err =
                override_number(numbers[i].variable, numbers[i].value,
                                numbers[i].value == &seed ? INT64_MAX : INT32_MAX, diag);
        }
        if (err != SONDE_OK) {
            return err;
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
    options->replication_factor = (int)replicas;
    options->threads = (int)threads;
    options->random_seed = (uint64_t)seed;
    return SONDE_OK;
}

static sonde_err out_of_range(sonde_diag *diag, const char *option, int64_t value,
                              const char *expected)
{
    return sonde__fail(diag, SONDE_EINVAL, option, expected, "%lld", (long long)value);
}

enum { MOST_REPLICAS = 1024 };

sonde_err sonde__session_options_check(const sonde_nn_options *options, bool training,
                                       sonde_diag *diag)
{
    int64_t micro_batches = 0;

    if (options->device_iterations < 1) {
        return out_of_range(diag, "device_iterations", options->device_iterations,
                            "at least 1");
    }
    if (options->gradient_accumulation < 1) {
        return out_of_range(diag, "gradient_accumulation", options->gradient_accumulation,
                            "at least 1");
    }
    if (__builtin_mul_overflow((int64_t)options->device_iterations *
                                   options->gradient_accumulation,
                               options->replication_factor, &micro_batches) ||
        micro_batches > INT32_MAX) {
        return out_of_range(diag, "device_iterations", micro_batches,
                            "at most 2147483647 micro-batches a call");
    }
    if (options->reduction != SONDE_NN_REDUCTION_MEAN &&
        options->reduction != SONDE_NN_REDUCTION_SUM) {
        return out_of_range(diag, "reduction", options->reduction, "mean (0) or sum (1)");
    }
    if (!training && options->gradient_accumulation != 1) {
        return out_of_range(diag, "gradient_accumulation", options->gradient_accumulation,
                            "1 for an inference session");
    }
    if (options->replication_factor < 1 || options->replication_factor > MOST_REPLICAS) {
        return out_of_range(diag, "replication_factor", options->replication_factor,
                            "1 to 1024");
    }
    if ((unsigned)options->execution > SONDE_NN_SEQUENTIAL) {
        return out_of_range(diag, "execution", options->execution,
                            "pipelined (0), sharded (1) or sequential (2)");
    }
    if (options->batch_size < 0 || options->batch_size > INT32_MAX) {
        return out_of_range(diag, "batch_size", options->batch_size, "1 to 2147483647");
    }
    if ((unsigned)options->dtype > SONDE_NN_FLOAT16) {
        return out_of_range(diag, "dtype", options->dtype,
                            "float32 (0), bfloat16 (1) or float16 (2)");
    }
    if (options->threads < 0) {
        return out_of_range(diag, "threads", options->threads,
                            "0 (as many as pay) or more");
    }
    return SONDE_OK;
}
