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
 *
 * Plain values: any number of threads may read one.
 */
#ifndef SONDE_NN_OPTIMIZER_H
#define SONDE_NN_OPTIMIZER_H

#include <stdbool.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_nn_optimizer_kind {
    SONDE_NN_SGD = 0,
    SONDE_NN_ADAM = 1,
    SONDE_NN_ADAMW = 2
} sonde_nn_optimizer_kind;

/* Plain data: copy and change it freely. */
typedef struct sonde_nn_optimizer {
    sonde_nn_optimizer_kind kind;
    float learning_rate; /* may change between calls; compile fixes all others */
    float weight_decay;
    float momentum, dampening; /* SGD */
    bool nesterov;             /* SGD; needs momentum > 0 and dampening 0 */
    float beta1, beta2, eps;   /* Adam, AdamW */
} sonde_nn_optimizer;

/* PyTorch's defaults otherwise: Adam betas 0.9, 0.999, eps 1e-8; AdamW weight decay
 * 0.01. */
SONDE_API sonde_nn_optimizer sonde_nn_optimizer_sgd(float learning_rate, float momentum);
SONDE_API sonde_nn_optimizer sonde_nn_optimizer_adam(float learning_rate);
SONDE_API sonde_nn_optimizer sonde_nn_optimizer_adamw(float learning_rate);
/* "sgd", "adam", "adamw" */
SONDE_API const char *sonde_nn_optimizer_name(sonde_nn_optimizer_kind kind);
/* SONDE_EINVAL: a value out of its range; diag names the field. */
SONDE_API SONDE_CHECKED sonde_err
sonde_nn_optimizer_check(const sonde_nn_optimizer *optimizer, sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
