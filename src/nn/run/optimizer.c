/*
 * optimizer.c - names and defaults of optimisers, and the numbers their kernels read.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"

#include <float.h>
#include <math.h>

sonde_nn_optimizer sonde_nn_optimizer_sgd(float learning_rate, float momentum)
{
    return (sonde_nn_optimizer){
        .kind = SONDE_NN_SGD, .learning_rate = learning_rate, .momentum = momentum};
}

static sonde_nn_optimizer adam_of(sonde_nn_optimizer_kind kind, float learning_rate,
                                  float weight_decay)
{
    return (sonde_nn_optimizer){.kind = kind,
                                .learning_rate = learning_rate,
                                .weight_decay = weight_decay,
                                .beta1 = 0.9F,
                                .beta2 = 0.999F,
                                .eps = 1e-8F};
}

sonde_nn_optimizer sonde_nn_optimizer_adam(float learning_rate)
{
    return adam_of(SONDE_NN_ADAM, learning_rate, 0.0F);
}

sonde_nn_optimizer sonde_nn_optimizer_adamw(float learning_rate)
{
    return adam_of(SONDE_NN_ADAMW, learning_rate, 0.01F);
}

const char *sonde_nn_optimizer_name(sonde_nn_optimizer_kind kind)
{
    static const char *const names[] = {"sgd", "adam", "adamw"};

    return (unsigned)kind < SONDE_COUNT_OF(names) ? names[kind] : "?";
}

static sonde_err check_ranges(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    const struct { /* upper is exclusive */
        const char *field;
        float value, lower, upper;
        const char *expected;
        bool sgd, adam;
    } ranges[] = {
        {"learning_rate", optimizer->learning_rate, 0.0F, INFINITY,
         "a finite number >= 0", true, true},
        {"weight_decay", optimizer->weight_decay, 0.0F, INFINITY, "a finite number >= 0",
         true, true},
        {"momentum", optimizer->momentum, 0.0F, INFINITY, "a finite number >= 0", true,
         false},
        {"dampening", optimizer->dampening, -FLT_MAX, INFINITY, "a finite number", true,
         false},
        {"beta1", optimizer->beta1, 0.0F, 1.0F, "0 <= beta1 < 1", false, true},
        {"beta2", optimizer->beta2, 0.0F, 1.0F, "0 <= beta2 < 1", false, true},
        {"eps", optimizer->eps, 0.0F, INFINITY, "a finite number >= 0", false, true},
    };
    const bool sgd = optimizer->kind == SONDE_NN_SGD;

    if ((unsigned)optimizer->kind > SONDE_NN_ADAMW) {
        return sonde__fail(diag, SONDE_EINVAL, "optimizer", "sgd, adam or adamw",
                           "unknown kind %d", (int)optimizer->kind);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ranges); i++) {
        const bool in_range =
            ranges[i].value >= ranges[i].lower && ranges[i].value < ranges[i].upper;

        if ((sgd ? ranges[i].sgd : ranges[i].adam) && !in_range) {
            return sonde__fail(diag, SONDE_EINVAL, ranges[i].field, ranges[i].expected,
                               "%g", (double)ranges[i].value);
        }
    }
    if (sgd && optimizer->nesterov &&
        (optimizer->momentum <= 0.0F || optimizer->dampening != 0.0F)) {
        return sonde__fail(diag, SONDE_EINVAL, "nesterov", "momentum > 0 and dampening 0",
                           "momentum %g, dampening %g", (double)optimizer->momentum,
                           (double)optimizer->dampening);
    }
    return SONDE_OK;
}

sonde_err sonde_nn_optimizer_check(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    const sonde_err err = sonde__graph_expect(optimizer, "optimizer", diag);

    return err != SONDE_OK ? err : check_ranges(optimizer, diag);
}

void sonde__session_optimizer_live(const sonde_nn_optimizer *optimizer, float scale,
                                   bool first, float live[8])
{
    live[0] = optimizer->learning_rate;
    if (optimizer->kind == SONDE_NN_SGD) {
        live[1] = optimizer->momentum;
        live[2] = optimizer->dampening;
        live[3] = optimizer->weight_decay;
        live[4] = optimizer->nesterov ? 1.0F : 0.0F;
        live[5] = scale;
        live[6] = first ? 1.0F : 0.0F;
    } else {
        live[1] = optimizer->beta1;
        live[2] = optimizer->beta2;
        live[3] = optimizer->eps;
        live[4] = optimizer->weight_decay;
        live[5] = optimizer->kind == SONDE_NN_ADAMW ? 1.0F : 0.0F;
        live[6] = scale;
    }
}

/* The first field other than the learning rate that differs; NULL if none does. */
const char *sonde__session_optimizer_difference(const sonde_nn_optimizer *a,
                                                const sonde_nn_optimizer *b)
{
    return a->kind != b->kind                   ? "kind"
           : a->weight_decay != b->weight_decay ? "weight_decay"
           : a->momentum != b->momentum         ? "momentum"
           : a->dampening != b->dampening       ? "dampening"
           : a->nesterov != b->nesterov         ? "nesterov"
           : a->beta1 != b->beta1               ? "beta1"
           : a->beta2 != b->beta2               ? "beta2"
           : a->eps != b->eps                   ? "eps"
                                                : NULL;
}
