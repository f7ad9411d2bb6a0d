/*
 * optimizer.h - how gradients become updates, by PyTorch's equations.
 *
 * With g the gradient of the global batch (mean or sum over its micro-batches, see
 * options.h), w a parameter, t = 1, 2 ... the number of updates:
 *
 *   SGD     d = g + wd w;  v = d at t = 1, else momentum v + (1 - dampening) d
 *           d = d + momentum v with Nesterov, else v, where momentum is not 0
 *           w = w - lr d
 *           (https://docs.pytorch.org/docs/stable/generated/torch.optim.SGD.html)
 *   Adam    g = g + wd w
 *   AdamW   w = w - lr wd w
 *   both    m = beta1 m + (1 - beta1) g;  v = beta2 v + (1 - beta2) g^2
 *           w = w - lr (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + eps)
 *           (Kingma and Ba 2015; Loshchilov and Hutter 2019)
 *   RMSprop g = g + wd w;  v = alpha v + (1 - alpha) g^2
 *           m = alpha m + (1 - alpha) g if centered, otherwise 0
 *           b = momentum b + g / (sqrt(v - m^2) + eps);  w = w - lr b
 *           TensorFlow's: v begins at 1, b = momentum b + lr g / sqrt(v - m^2 + eps),
 *           w = w - b
 *   Adagrad g = g + wd w;  v = v + g^2
 *           w = w - lr / (1 + (t - 1) lr_decay) g / (sqrt(v) + eps)
 *   LAMB    m and v as Adam;  x = AdamW's direction, m and v divided or not, + wd w
 *           w = w - lr min(|w|, max_weight_norm) / |x| x    (You et al. 2020)
 *
 * Before that, g is clipped: each element to +-clip_value, then all gradients together to
 * the norm clip_norm, times min(1, clip_norm / (norm + 1e-6)). The norm is the tensor
 * GlobalNorm___default, what an update reads Clipped___<parameter>.
 *
 * Loss scaling multiplies the loss's gradient, and so all gradients, by a factor that
 * updates divide out again: small gradients survive in narrow formats. Fixed: the factor
 * is loss_scaling. Automatic, by the rule of torch.amp.GradScaler: a step with a gradient
 * that is not finite updates nothing and multiplies the factor by backoff_factor;
 * growth_interval steps in a row without one multiply it by growth_factor. The tensor
 * lossScaling___default is the factor: in a step the one used if it is fixed, that of the
 * next step if it is automatic. With it go growthTracker___default,
 * skippedSteps___default and FoundInf___default.
 *
 * velocity_scaling is PopTorch's: v is held times velocity_scaling, and w = w - lr /
 * velocity_scaling v. It changes rounding alone.
 *
 * Further tensors: learningRate___<group>, clipNorm___default and trainStep___default (the
 * step's number, int64), each of the step at hand and of role scalar.
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_NN_OPTIMIZER_H
#define SONDE_NN_OPTIMIZER_H

#include <stdbool.h>
#include <stdint.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_nn_optimizer_kind {
    SONDE_NN_SGD = 0,
    SONDE_NN_ADAM = 1,
    SONDE_NN_ADAMW = 2,
    SONDE_NN_RMSPROP = 3,
    SONDE_NN_ADAGRAD = 4,
    SONDE_NN_LAMB = 5
} sonde_nn_optimizer_kind;

/* Plain data: copy and change it freely. */
typedef struct sonde_nn_optimizer {
    sonde_nn_optimizer_kind kind;
    float learning_rate; /* it and loss_scaling may change between calls; compile fixes
                            all others */
    float weight_decay;
    float momentum, dampening; /* SGD; RMSprop has momentum too */
    bool nesterov;             /* SGD; needs momentum > 0 and dampening 0 */
    float beta1, beta2, eps;   /* Adam, AdamW, LAMB; eps of all but SGD */
    float alpha;               /* RMSprop */
    bool centered, tf_variant; /* RMSprop */
    float lr_decay, initial_accumulator_value; /* Adagrad */
    float max_weight_norm;                     /* LAMB */
    bool no_bias_correction;                   /* LAMB */
    float clip_value, clip_norm;               /* 0: gradients are not clipped */
    bool no_bias_decay; /* parameters of one dimension have no weight decay: biases and
                           norms */
    float velocity_scaling;      /* SGD with momentum; 0: 1 */
    float loss_scaling;          /* 0: none; at the start, if it is automatic: 65536 */
    bool automatic_loss_scaling; /* after GradScaler */
    float growth_factor, backoff_factor; /* of it; 0: 2 and 0.5 */
    int growth_interval;                 /* steps; 0: 2000 */
} sonde_nn_optimizer;

/* PyTorch's defaults otherwise: Adam betas 0.9, 0.999, eps 1e-8; AdamW and LAMB weight
 * decay 0.01; RMSprop alpha 0.99, eps 1e-8; Adagrad eps 1e-10; LAMB max_weight_norm
 * 65500. */
SONDE_API sonde_nn_optimizer sonde_nn_optimizer_sgd(float learning_rate, float momentum);
/* Any kind; learning_rate 0: PyTorch's default (SGD: 0.01). The check refuses the result of an
 * unknown kind. */
SONDE_API sonde_nn_optimizer sonde_nn_optimizer_default(sonde_nn_optimizer_kind kind,
                                                        float learning_rate);
/* "sgd", "adam", "adamw", "rmsprop", "adagrad", "lamb"; "?" for an unknown kind. Static. */
SONDE_API const char *sonde_nn_optimizer_name(sonde_nn_optimizer_kind kind);
/* SONDE_EINVAL: a value out of its range, or other than 0 and not a parameter of the
 * kind; diag names the field. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_optimizer_check(const sonde_nn_optimizer *optimizer, sonde_diag *diag);

/* --- groups ---------------------------------------------------------------------------- */

typedef struct sonde_nn_rate sonde_nn_rate;

/*
 * Parameters with numbers of their own, as torch.optim's param_groups. A parameter belongs
 * to the first group that selects it, otherwise to the default, the session's optimizer.
 * kind, clipping and loss scaling are the default's: a group has the same.
 */
typedef struct sonde_nn_group {
    const char *name;   /* in learningRate___<name>: letters, digits, _ and - */
    const char *params; /* a selector (<sonde/selector.h>) of names of parameters */
    sonde_nn_optimizer optimizer;
    const sonde_nn_rate *rate; /* of its learning rate, for trainers; NULL: the default's,
                                  over this group's learning rate */
} sonde_nn_group;

enum { SONDE_NN_GROUPS_MOST = 64 };

/* --- schedules ------------------------------------------------------------------------ */

typedef enum sonde_nn_rate_kind {
    SONDE_NN_RATE_CONSTANT = 0,
    SONDE_NN_RATE_STEP = 1,   /* times gamma every `every` steps */
    SONDE_NN_RATE_COSINE = 2, /* along half a cosine to end times the rate, over total */
    SONDE_NN_RATE_ONE_CYCLE =
        3, /* from 1/25 up to the rate in 30 % of total, then down to 4e-6 of it */
    SONDE_NN_RATE_TABLE = 4 /* from table_step[i] on it is table_rate[i] */
} sonde_nn_rate_kind;

enum { SONDE_NN_RATE_MOST = 32 };

/*
 * How the learning rate changes over steps: PyTorch's StepLR, CosineAnnealingLR and
 * OneCycleLR, or a table. During `warmup` steps it rises in a straight line to the rate;
 * the schedule begins after them (a table counts all steps).
 */
struct sonde_nn_rate {
    sonde_nn_rate_kind kind;
    int64_t warmup;
    int64_t
        total; /* COSINE, ONE_CYCLE: steps of the training, with those of the warmup */
    int64_t every; /* STEP: at least 1 */
    double gamma;  /* STEP: the factor of each change */
    double end;    /* COSINE: the last rate, as a share of the first */
    int table_count;
    int64_t table_step[SONDE_NN_RATE_MOST];
    double table_rate[SONDE_NN_RATE_MOST];
};

/* The rate of a step, from 0 (a negative one counts as 0), where `base` is the optimizer's.
 * After the last step of total it stays as it is. Give it to a session with
 * sonde_nn_session_set_optimizer between calls of run. NULL: base. */
SONDE_API double sonde_nn_rate_at(const sonde_nn_rate *rate, double base, int64_t step);
/* SONDE_EINVAL: a value out of its range. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_rate_check(const sonde_nn_rate *rate,
                                                      sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
