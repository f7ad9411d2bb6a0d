/*
 * optimizer.c - names and defaults of optimizers, and the numbers their kernels read.
 */
#include "nn/run/plan_object.h"
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/macros.h"

#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sonde/nn/optimizer.h>

sonde_nn_optimizer sonde_nn_optimizer_sgd(float learning_rate, float momentum)
{
    return (sonde_nn_optimizer){
        .kind = SONDE_NN_SGD, .learning_rate = learning_rate, .momentum = momentum};
}

#define ADAM_NUMBERS .beta1 = 0.9F, .beta2 = 0.999F, .eps = 1e-8F

static const sonde_nn_optimizer standards[] = {
    [SONDE_NN_SGD] = {.learning_rate = 0.01F},
    [SONDE_NN_ADAM] = {.learning_rate = 0.001F, ADAM_NUMBERS},
    [SONDE_NN_ADAMW] = {.learning_rate = 0.001F, .weight_decay = 0.01F, ADAM_NUMBERS},
    [SONDE_NN_RMSPROP] = {.learning_rate = 0.01F, .alpha = 0.99F, .eps = 1e-8F},
    [SONDE_NN_ADAGRAD] = {.learning_rate = 0.01F, .eps = 1e-10F},
    [SONDE_NN_LAMB] = {.learning_rate = 0.001F,
                       .weight_decay = 0.01F,
                       .max_weight_norm = 65500.0F,
                       ADAM_NUMBERS},
};

sonde_nn_optimizer sonde_nn_optimizer_default(sonde_nn_optimizer_kind kind,
                                              float learning_rate)
{
    const bool known = (unsigned)kind < SONDE_COUNT_OF(standards);
    sonde_nn_optimizer optimizer = standards[known ? kind : SONDE_NN_SGD];

    optimizer.kind = kind; /* an unknown one is refused by its check */
    if (learning_rate != 0.0F) {
        optimizer.learning_rate = learning_rate;
    }
    return optimizer;
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

/* The values that a field may have. */
typedef enum field_range {
    FLAG,       /* any: it is a bool */
    AT_LEAST_0, /* a float */
    BELOW_1,    /* likewise */
    WHOLE       /* an int, at least 0 */
} field_range;

/* Every field but kind, and the kinds that have it. */
static const struct {
    const char *name;
    size_t offset, size;
    int kinds;
    field_range range;
} fields[] = {
#define FIELD(field, kinds, range)                                                       \
    {                                                                                    \
#field, offsetof(sonde_nn_optimizer, field),                                     \
            sizeof((sonde_nn_optimizer *)NULL)->field, kinds, range                      \
    }
    FIELD(learning_rate, OF_ALL, AT_LEAST_0),
    FIELD(weight_decay, OF_ALL, AT_LEAST_0),
    FIELD(momentum, OF_SGD | OF_RMSPROP, AT_LEAST_0),
    FIELD(dampening, OF_SGD, AT_LEAST_0),
    FIELD(nesterov, OF_SGD, FLAG),
    FIELD(beta1, OF_ADAM, BELOW_1),
    FIELD(beta2, OF_ADAM, BELOW_1),
    FIELD(eps, OF_ALL & ~OF_SGD, AT_LEAST_0),
    FIELD(alpha, OF_RMSPROP, BELOW_1),
    FIELD(centered, OF_RMSPROP, FLAG),
    FIELD(tf_variant, OF_RMSPROP, FLAG),
    FIELD(lr_decay, OF_ADAGRAD, AT_LEAST_0),
    FIELD(initial_accumulator_value, OF_ADAGRAD, AT_LEAST_0),
    FIELD(max_weight_norm, OF_LAMB, AT_LEAST_0),
    FIELD(no_bias_correction, OF_LAMB, FLAG),
    FIELD(clip_value, OF_ALL, AT_LEAST_0),
    FIELD(clip_norm, OF_ALL, AT_LEAST_0),
    FIELD(velocity_scaling, OF_SGD, AT_LEAST_0),
    FIELD(loss_scaling, OF_ALL, AT_LEAST_0),
    FIELD(growth_factor, OF_ALL, AT_LEAST_0),
    FIELD(backoff_factor, OF_ALL, AT_LEAST_0),
    FIELD(growth_interval, OF_ALL, WHOLE),
#undef FIELD
};

static bool has_field(sonde_nn_optimizer_kind kind, size_t i)
{
    return (fields[i].kinds >> (int)kind & 1) != 0;
}

/* A field that the kind does not have keeps the value it has in the kind's defaults. */
static sonde_err check_fields(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    static const char of_all[] =
        "learning_rate, weight_decay, clip_value, clip_norm, no_bias_decay, "
        "loss_scaling, automatic_loss_scaling";
    const sonde_nn_optimizer standard = sonde_nn_optimizer_default(optimizer->kind, 0.0F);
    const char *name = sonde_nn_optimizer_name(optimizer->kind);
    char known[128] = "";
    size_t used = 0, i = 0;

    while (i < SONDE_COUNT_OF(fields) &&
           (has_field(optimizer->kind, i) ||
            memcmp((const char *)optimizer + fields[i].offset,
                   (const char *)&standard + fields[i].offset, fields[i].size) == 0)) {
        i++;
    }
    if (i == SONDE_COUNT_OF(fields)) {
        return SONDE_OK;
    }
    for (size_t k = 0; k < SONDE_COUNT_OF(fields); k++) {
        if (has_field(optimizer->kind, k) && fields[k].kinds != OF_ALL) {
            used += (size_t)snprintf(known + used, sizeof known - used, ", %s",
                                     fields[k].name);
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, fields[i].name, NULL,
                       "not a parameter of %s, which has %s%s", name, of_all, known);
}

static sonde_err check_range(const sonde_nn_optimizer *optimizer, size_t i,
                             sonde_diag *diag)
{
    const bool below_1 = fields[i].range == BELOW_1;
    const char *const at = (const char *)optimizer + fields[i].offset;
    char expected[48] = "a finite number >= 0";
    float value = 0.0F;
    int whole = 0;

    memcpy(&value, at, fields[i].range == FLAG ? 0 : sizeof value);
    if (fields[i].range == WHOLE) {
        memcpy(&whole, at, sizeof whole);
        value = (float)whole;
    }
    if (value >= 0.0F && value < (below_1 ? 1.0F : INFINITY)) {
        return SONDE_OK;
    }
    if (below_1) {
        (void)snprintf(expected, sizeof expected, "0 <= %s < 1", fields[i].name);
    }
    return sonde__fail(diag, SONDE_EINVAL, fields[i].name, expected, "%g", (double)value);
}

static sonde_err check_ranges(const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    if ((unsigned)optimizer->kind > SONDE_NN_LAMB) {
        return sonde__fail(diag, SONDE_EINVAL, "optimizer",
                           "sgd, adam, adamw, rmsprop, adagrad or lamb",
                           "unknown kind %d", (int)optimizer->kind);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(fields); i++) {
        if (has_field(optimizer->kind, i)) {
            SONDE__TRY(check_range(optimizer, i, diag));
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
    SONDE__TRY(check_ranges(optimizer, diag));
    return check_fields(optimizer, diag);
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
static const char *find_difference(const sonde_nn_optimizer *now, sonde_nn_optimizer next)
{
    next.learning_rate = now->learning_rate;
    if (now->loss_scaling != 0.0F && next.loss_scaling != 0.0F &&
        !now->automatic_loss_scaling) {
        next.loss_scaling = now->loss_scaling;
    }
    return sonde__session_plan_optimizer_difference(now, &next);
}

sonde_err sonde__session_optimizer_may_become(const sonde_nn_session *session,
                                              const sonde_nn_optimizer *now,
                                              const sonde_nn_optimizer *next,
                                              sonde_diag *diag)
{
    const char *field = session->compiled ? find_difference(now, *next) : NULL;

    return field == NULL
               ? SONDE_OK
               : sonde__fail(diag, SONDE_ESTATE, field, "the value compiled with",
                             "only the learning rate may change after compile");
}

/* === schedules ===================================================================== */

/*
 * Learning-rate schedules: see optimizer.h.
 */

static double between(double from, double to, double share)
{
    return to + (from - to) / 2.0 * (1.0 + cos(acos(-1.0) * share));
}

/* Of torch's OneCycleLR with its defaults: up over 30 % of the steps, down over the rest. */
static double one_cycle(double most, double step, double total)
{
    const double first = most / 25.0, last = first / 1e4;
    const double top = 0.3 * total - 1.0, end = total - 1.0;

    return step <= top ? between(first, most, step / top)
                       : between(most, last, (step - top) / (end - top));
}

static double table_rate(const sonde_nn_rate *rate, double base, int64_t step)
{
    for (int i = 0; i < rate->table_count && step >= rate->table_step[i]; i++) {
        base = rate->table_rate[i];
    }
    return base;
}

double sonde_nn_rate_at(const sonde_nn_rate *rate, double base, int64_t number)
{
    const int64_t step = SONDE_MAX(number, 0);
    const int64_t warm = rate != NULL ? rate->warmup : 0;
    const double at = (double)(step - warm);
    const double total =
        rate != NULL && rate->total > warm ? (double)(rate->total - warm) : 1.0;

    if (rate == NULL) {
        return base;
    }
    if (step < warm) {
        return base * (double)(step + 1) / (double)warm;
    }
    switch (rate->kind) {
    case SONDE_NN_RATE_STEP:
        return base * pow(rate->gamma, floor(at / (double)rate->every));
    case SONDE_NN_RATE_COSINE:
        return between(base, base * rate->end, fmin(at / total, 1.0));
    case SONDE_NN_RATE_ONE_CYCLE:
        return total > 4.0 ? one_cycle(base, fmin(at, total - 1.0), total) : base;
    case SONDE_NN_RATE_TABLE:
        return table_rate(rate, base, step);
    case SONDE_NN_RATE_CONSTANT:
        break;
    }
    return base;
}

sonde_err sonde_nn_rate_check(const sonde_nn_rate *rate, sonde_diag *diag)
{
    SONDE__NEEDS(diag, rate);
    if ((unsigned)rate->kind > SONDE_NN_RATE_TABLE) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule",
                           "constant, step, cosine, one_cycle or table", "%d",
                           (int)rate->kind);
    }
    if (rate->warmup < 0 || rate->total < 0) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "steps >= 0", "%lld",
                           (long long)(rate->warmup < 0 ? rate->warmup : rate->total));
    }
    if (rate->kind == SONDE_NN_RATE_STEP &&
        (rate->every < 1 || !(rate->gamma >= 0.0) || isinf(rate->gamma))) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule",
                           "every at least 1 step, a finite gamma >= 0",
                           "every %lld, gamma %g", (long long)rate->every, rate->gamma);
    }
    if (rate->kind == SONDE_NN_RATE_COSINE && !(rate->end >= 0.0 && rate->end <= 1.0)) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "an end of 0 to 1", "%g",
                           rate->end);
    }
    if (rate->table_count < 0 || rate->table_count > SONDE_NN_RATE_MOST) {
        return sonde__fail(diag, SONDE_EINVAL, "schedule", "0 to 32 entries", "%d",
                           rate->table_count);
    }
    for (int i = 0; i < rate->table_count; i++) {
        const bool later = i == 0 || rate->table_step[i] > rate->table_step[i - 1];

        if (!later || rate->table_step[i] < 0 || !(rate->table_rate[i] >= 0.0) ||
            isinf(rate->table_rate[i])) {
            return sonde__fail(diag, SONDE_EINVAL, "schedule",
                               "growing steps, finite rates >= 0", "step %lld, rate %g",
                               (long long)rate->table_step[i], rate->table_rate[i]);
        }
    }
    return SONDE_OK;
}
