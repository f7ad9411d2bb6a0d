/*
 * optimizer.c - names and defaults of optimisers, and the numbers their kernels read.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

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

sonde_nn_optimizer sonde_nn_optimizer_rmsprop(float learning_rate)
{
    return (sonde_nn_optimizer){.kind = SONDE_NN_RMSPROP,
                                .learning_rate = learning_rate,
                                .alpha = 0.99F,
                                .eps = 1e-8F};
}

sonde_nn_optimizer sonde_nn_optimizer_adagrad(float learning_rate)
{
    return (sonde_nn_optimizer){
        .kind = SONDE_NN_ADAGRAD, .learning_rate = learning_rate, .eps = 1e-10F};
}

sonde_nn_optimizer sonde_nn_optimizer_lamb(float learning_rate)
{
    sonde_nn_optimizer lamb = adam_of(SONDE_NN_LAMB, learning_rate, 0.01F);

    lamb.max_weight_norm = 65500.0F;
    return lamb;
}

sonde_nn_optimizer sonde_nn_optimizer_default(sonde_nn_optimizer_kind kind)
{
    sonde_nn_optimizer other = sonde_nn_optimizer_sgd(0.01F, 0.0F);

    switch (kind) {
    case SONDE_NN_ADAM:
        return sonde_nn_optimizer_adam(0.001F);
    case SONDE_NN_ADAMW:
        return sonde_nn_optimizer_adamw(0.001F);
    case SONDE_NN_RMSPROP:
        return sonde_nn_optimizer_rmsprop(0.01F);
    case SONDE_NN_ADAGRAD:
        return sonde_nn_optimizer_adagrad(0.01F);
    case SONDE_NN_LAMB:
        return sonde_nn_optimizer_lamb(0.001F);
    case SONDE_NN_SGD:
        break;
    }
    other.kind = kind; /* one that cannot be is refused by its check */
    return other;
}

const char *sonde_nn_optimizer_name(sonde_nn_optimizer_kind kind)
{
    static const char *const names[] = {"sgd",     "adam",    "adamw",
                                        "rmsprop", "adagrad", "lamb"};

    return (unsigned)kind < SONDE_COUNT_OF(names) ? names[kind] : "?";
}

enum {
    OF_SGD = 1 << SONDE_NN_SGD,
    OF_RMSPROP = 1 << SONDE_NN_RMSPROP,
    OF_ADAGRAD = 1 << SONDE_NN_ADAGRAD,
    OF_LAMB = 1 << SONDE_NN_LAMB,
    OF_ADAM = 1 << SONDE_NN_ADAM | 1 << SONDE_NN_ADAMW | 1 << SONDE_NN_LAMB,
    OF_ALL = OF_SGD | OF_RMSPROP | OF_ADAGRAD | OF_ADAM
};

/* The fields that not every kind has, and the kinds that have them. */
static const struct {
    const char *name;
    size_t offset, size;
    int kinds;
} own_fields[] = {
#define OWN(field, kinds)                                                                \
    {                                                                                    \
#field, offsetof(sonde_nn_optimizer, field),                                     \
            sizeof((sonde_nn_optimizer *)NULL)->field, kinds                             \
    }
    OWN(momentum, OF_SGD | OF_RMSPROP),
    OWN(dampening, OF_SGD),
    OWN(nesterov, OF_SGD),
    OWN(beta1, OF_ADAM),
    OWN(beta2, OF_ADAM),
    OWN(eps, OF_ALL & ~OF_SGD),
    OWN(alpha, OF_RMSPROP),
    OWN(centered, OF_RMSPROP),
    OWN(tf_variant, OF_RMSPROP),
    OWN(lr_decay, OF_ADAGRAD),
    OWN(initial_accumulator_value, OF_ADAGRAD),
    OWN(max_weight_norm, OF_LAMB),
    OWN(no_bias_correction, OF_LAMB),
    OWN(velocity_scaling, OF_SGD),
#undef OWN
};

static bool has_field(sonde_nn_optimizer_kind kind, size_t i)
{
    return (own_fields[i].kinds >> (int)kind & 1) != 0;
}

/* A field that the kind does not have keeps the value it has in the kind's defaults. */
static sonde_err check_fields(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    static const char of_all[] =
        "learning_rate, weight_decay, clip_value, clip_norm, no_bias_decay, "
        "loss_scaling, automatic_loss_scaling";
    const sonde_nn_optimizer standard = sonde_nn_optimizer_default(optimizer->kind);
    const char *name = sonde_nn_optimizer_name(optimizer->kind);
    char known[128] = "";
    size_t used = 0, i = 0;

    while (i < SONDE_COUNT_OF(own_fields) &&
           (has_field(optimizer->kind, i) ||
            memcmp((const char *)optimizer + own_fields[i].offset,
                   (const char *)&standard + own_fields[i].offset,
                   own_fields[i].size) == 0)) {
        i++;
    }
    if (i == SONDE_COUNT_OF(own_fields)) {
        return SONDE_OK;
    }
    for (size_t k = 0; k < SONDE_COUNT_OF(own_fields); k++) {
        if (has_field(optimizer->kind, k)) {
            used += (size_t)snprintf(known + used, sizeof known - used, ", %s",
                                     own_fields[k].name);
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, own_fields[i].name, NULL,
                       "not a parameter of %s, which has %s%s", name, of_all, known);
}

static sonde_err check_ranges(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    static const char at_least_0[] = "a finite number >= 0";
    const struct { /* upper is exclusive */
        const char *field;
        float value, lower, upper;
        const char *expected;
        int kinds;
    } ranges[] = {
        {"learning_rate", optimizer->learning_rate, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"weight_decay", optimizer->weight_decay, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"momentum", optimizer->momentum, 0.0F, INFINITY, at_least_0,
         OF_SGD | OF_RMSPROP},
        {"dampening", optimizer->dampening, 0.0F, INFINITY, at_least_0, OF_SGD},
        {"beta1", optimizer->beta1, 0.0F, 1.0F, "0 <= beta1 < 1", OF_ADAM},
        {"beta2", optimizer->beta2, 0.0F, 1.0F, "0 <= beta2 < 1", OF_ADAM},
        {"eps", optimizer->eps, 0.0F, INFINITY, at_least_0, OF_ALL & ~OF_SGD},
        {"alpha", optimizer->alpha, 0.0F, 1.0F, "0 <= alpha < 1", OF_RMSPROP},
        {"lr_decay", optimizer->lr_decay, 0.0F, INFINITY, at_least_0, OF_ADAGRAD},
        {"initial_accumulator_value", optimizer->initial_accumulator_value, 0.0F,
         INFINITY, at_least_0, OF_ADAGRAD},
        {"max_weight_norm", optimizer->max_weight_norm, 0.0F, INFINITY, at_least_0,
         OF_LAMB},
        {"clip_value", optimizer->clip_value, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"clip_norm", optimizer->clip_norm, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"velocity_scaling", optimizer->velocity_scaling, 0.0F, INFINITY, at_least_0,
         OF_SGD},
        {"loss_scaling", optimizer->loss_scaling, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"growth_factor", optimizer->growth_factor, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"backoff_factor", optimizer->backoff_factor, 0.0F, INFINITY, at_least_0, OF_ALL},
        {"growth_interval", (float)optimizer->growth_interval, 0.0F, INFINITY, at_least_0,
         OF_ALL},
    };

    if ((unsigned)optimizer->kind > SONDE_NN_LAMB) {
        return sonde__fail(diag, SONDE_EINVAL, "optimizer",
                           "sgd, adam, adamw, rmsprop, adagrad or lamb",
                           "unknown kind %d", (int)optimizer->kind);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ranges); i++) {
        const bool in_range =
            ranges[i].value >= ranges[i].lower && ranges[i].value < ranges[i].upper;

        if ((ranges[i].kinds >> (int)optimizer->kind & 1) != 0 && !in_range) {
            return sonde__fail(diag, SONDE_EINVAL, ranges[i].field, ranges[i].expected,
                               "%g", (double)ranges[i].value);
        }
    }
    if ((optimizer->growth_factor != 0.0F && optimizer->growth_factor <= 1.0F) ||
        optimizer->backoff_factor >= 1.0F) {
        return sonde__fail(diag, SONDE_EINVAL, "growth_factor",
                           "growth above 1, backoff below 1", "growth %g, backoff %g",
                           (double)optimizer->growth_factor,
                           (double)optimizer->backoff_factor);
    }
    if (optimizer->kind == SONDE_NN_SGD && optimizer->nesterov &&
        (optimizer->momentum <= 0.0F || optimizer->dampening != 0.0F)) {
        return sonde__fail(diag, SONDE_EINVAL, "nesterov", "momentum > 0 and dampening 0",
                           "momentum %g, dampening %g", (double)optimizer->momentum,
                           (double)optimizer->dampening);
    }
    return SONDE_OK;
}

sonde_err sonde_nn_optimizer_check(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    SONDE__TRY(sonde__graph_expect(optimizer, "optimizer", diag));
    return check_ranges(optimizer, diag) != SONDE_OK ? SONDE_EINVAL
                                                     : check_fields(optimizer, diag);
}

static float flag(bool value)
{
    return value ? 1.0F : 0.0F;
}

void sonde__session_optimizer_live(const sonde_nn_optimizer *optimizer, float scale,
                                   bool first, float live[SONDE__LIVE_COUNT])
{
    const sonde_nn_optimizer *o = optimizer;
    const float numbers[][8] = {
        [SONDE_NN_SGD] = {o->learning_rate, o->momentum, o->dampening, o->weight_decay,
                          flag(o->nesterov), scale, flag(first)},
        [SONDE_NN_ADAM] = {o->learning_rate, o->beta1, o->beta2, o->eps, o->weight_decay,
                           0.0F, scale},
        [SONDE_NN_ADAMW] = {o->learning_rate, o->beta1, o->beta2, o->eps, o->weight_decay,
                            1.0F, scale},
        [SONDE_NN_RMSPROP] = {o->learning_rate, o->alpha, o->eps, o->weight_decay,
                              o->momentum, scale, flag(first)},
        [SONDE_NN_ADAGRAD] = {o->learning_rate, o->lr_decay, o->eps, o->weight_decay,
                              o->initial_accumulator_value, scale},
        [SONDE_NN_LAMB] = {o->learning_rate, o->beta1, o->beta2, o->eps, o->weight_decay,
                           flag(!o->no_bias_correction), scale, o->max_weight_norm},
    };

    memcpy(live, numbers[o->kind], sizeof numbers[0]);
    if (o->velocity_scaling != 0.0F && o->momentum != 0.0F) {
        live[0] /= o->velocity_scaling; /* the rate, the decay and the scale of SGD */
        live[3] *= o->velocity_scaling;
        live[5] *= o->velocity_scaling;
    }
    live[SONDE__LIVE_CLIP_VALUE] = o->clip_value;
    live[SONDE__LIVE_CLIP_NORM] = o->clip_norm;
    live[SONDE__LIVE_SCALE] = scale;
}

/* The first field that compile fixes and that differs; NULL if none does. */
static const char *find_difference(const sonde_nn_optimizer *a,
                                   const sonde_nn_optimizer *b)
{
    const struct {
        const char *field;
        bool differs;
    } fields[] = {
        {"kind", a->kind != b->kind},
        {"weight_decay", a->weight_decay != b->weight_decay},
        {"momentum", a->momentum != b->momentum},
        {"dampening", a->dampening != b->dampening},
        {"nesterov", a->nesterov != b->nesterov},
        {"beta1", a->beta1 != b->beta1},
        {"beta2", a->beta2 != b->beta2},
        {"eps", a->eps != b->eps},
        {"alpha", a->alpha != b->alpha},
        {"centered", a->centered != b->centered},
        {"tf_variant", a->tf_variant != b->tf_variant},
        {"lr_decay", a->lr_decay != b->lr_decay},
        {"initial_accumulator_value",
         a->initial_accumulator_value != b->initial_accumulator_value},
        {"max_weight_norm", a->max_weight_norm != b->max_weight_norm},
        {"no_bias_correction", a->no_bias_correction != b->no_bias_correction},
        {"clip_value", a->clip_value != b->clip_value},
        {"clip_norm", a->clip_norm != b->clip_norm},
        {"no_bias_decay", a->no_bias_decay != b->no_bias_decay},
        {"velocity_scaling", a->velocity_scaling != b->velocity_scaling},
        {"loss_scaling", a->loss_scaling != b->loss_scaling &&
                             (a->loss_scaling == 0.0F || b->loss_scaling == 0.0F ||
                              a->automatic_loss_scaling)},
        {"automatic_loss_scaling",
         a->automatic_loss_scaling != b->automatic_loss_scaling},
        {"growth_factor", a->growth_factor != b->growth_factor},
        {"backoff_factor", a->backoff_factor != b->backoff_factor},
        {"growth_interval", a->growth_interval != b->growth_interval},
    };

    for (size_t i = 0; i < SONDE_COUNT_OF(fields); i++) {
        if (fields[i].differs) {
            return fields[i].field;
        }
    }
    return NULL;
}

sonde_err sonde__session_optimizer_may_become(const sonde_nn_session *session,
                                              const sonde_nn_optimizer *now,
                                              const sonde_nn_optimizer *next,
                                              sonde_diag *diag)
{
    const char *field = session->compiled ? find_difference(now, next) : NULL;

    return field == NULL
               ? SONDE_OK
               : sonde__fail(diag, SONDE_ESTATE, field, "the value compiled with",
                             "only the learning rate may change after compile");
}
