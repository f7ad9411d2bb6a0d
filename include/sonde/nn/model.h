/*
 * model.h - builds a network.
 *
 * A model is a graph of named values with static shapes, built by calling layers in
 * order; shapes are inferred as it is built. Layers have PyTorch's names, defaults and
 * parameter initialization, and their parameters PyTorch's names (`conv1.weight`).
 *
 *     sonde_nn_model *model;
 *     sonde_nn_model_create(&model, &diag);
 *     sonde_nn_value x = sonde_nn_input(model, SONDE_F32, 4, (int64_t[]){16, 1, 28, 28});
 *     sonde_nn_value target = sonde_nn_input(model, SONDE_I64, 1, (int64_t[]){16});
 *     x = sonde_nn_flatten(model, NULL, x, 1);
 *     x = sonde_nn_linear(model, "fc", x, SONDE_OPTIONS(sonde_nn_linear, .out_features = 10));
 *     x = sonde_nn_log_softmax(model, "log_softmax", x, 1);
 *     sonde_nn_output(model, x);
 *     sonde_nn_loss(model, sonde_nn_nll_loss(model, "loss", x, target));
 *     if (sonde_nn_model_status(model, &diag) != SONDE_OK) ...
 *
 * Building does not stop at the first error: a layer that fails returns value 0, layers
 * with an input of 0 return 0, and sonde_nn_model_status returns the first error.
 *
 * The leading dimension of every input is the micro-batch; a session may be compiled for
 * another size.
 *
 * Names. With a name, a layer is a module: its values are `<name>_input_<i>` and
 * `<name>_output_<i>`. A module that is called again shares its parameters and continues
 * the index. With NULL it is a function: `<Op>:<k>`, or `<module>/<Op>:<k>` inside a
 * scope.
 *
 * The model owns the parameters' values; sessions train them in place. One thread at a
 * time.
 */
#ifndef SONDE_NN_MODEL_H
#define SONDE_NN_MODEL_H

#include <sonde/catalogue.h>
#include <sonde/options.h>
#include <sonde/print.h>
#include <sonde/safetensors.h>
#include <sonde/tensor.h>
#include <sonde/text.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_nn_model sonde_nn_model;
typedef uint32_t sonde_nn_value; /* 0: none */

SONDE_API SONDE_CHECKED sonde_err sonde_nn_model_create(sonde_nn_model **out,
                                                        sonde_diag *diag);
/* Frees the model; destroy its sessions first. Accepts NULL. */
SONDE_API void sonde_nn_model_destroy(sonde_nn_model *model);
/* Returns the first error of building, with the layer's name in diag->where; SONDE_OK if
 * there is none. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_model_status(const sonde_nn_model *model,
                                                        sonde_diag *diag);

/* --- inputs, outputs, scopes -------------------------------------------------------- */

/* Adds an input, named `input`, `input/1`, `input/2` ... in order of creation. */
SONDE_API sonde_nn_value sonde_nn_input(sonde_nn_model *model, sonde_dtype dtype,
                                        int rank, const int64_t *shape);
/* Marks a value as an output; sessions return outputs in the order of these calls. */
SONDE_API void sonde_nn_output(sonde_nn_model *model, sonde_nn_value value);
/* The scalar that training minimizes; training sessions return it after the outputs. */
SONDE_API void sonde_nn_loss(sonde_nn_model *model, sonde_nn_value value);
typedef struct sonde_nn_model_info {
    size_t input_count, output_count, parameter_count, buffer_count;
    sonde_nn_value
        loss; /* the marked one; 0: none yet. If it is also an output, inference
                          * sessions compute it and need the target. */
} sonde_nn_model_info;
/* Zeros for NULL. */
SONDE_API sonde_nn_model_info sonde_nn_model_get_info(const sonde_nn_model *model);
/* Output i; 0: it does not exist. */
SONDE_API sonde_nn_value sonde_nn_model_output(const sonde_nn_model *model, size_t i);
/* Makes the loss an output if it is not one, and returns the index of the output;
 * SIZE_MAX: the model has no loss. */
SONDE_API size_t sonde_nn_output_loss(sonde_nn_model *model);
/* Layers between push and pop belong to a module: `block1.conv1.weight`. */
SONDE_API void sonde_nn_scope_push(sonde_nn_model *model, const char *name);
SONDE_API void sonde_nn_scope_pop(sonde_nn_model *model);
/* Starts a block: the next layers, the loss included, belong to it until another block
 * starts. Layers before the first block belong to the first block. Blocks are the stages
 * of a pipeline (sonde_nn_options.execution), in the order in which they first start; at
 * most 64. */
SONDE_API void sonde_nn_begin_block(sonde_nn_model *model, const char *name);
/* Products of layers between begin and end have this dtype, SONDE_F32, SONDE_BF16 or
 * SONDE_F16, instead of the session's (sonde_nn_options.dtype). These pairs do not
 * nest. */
SONDE_API void sonde_nn_begin_dtype(sonde_nn_model *model, sonde_dtype dtype);
SONDE_API void sonde_nn_end_dtype(sonde_nn_model *model);
/* Returns the shape of a value, borrowed until the next layer; NULL for value 0. */
SONDE_API const int64_t *sonde_nn_value_shape(const sonde_nn_model *model,
                                              sonde_nn_value value, int *rank);

/* --- layers with parameters --------------------------------------------------------- */
/* A field of 0 selects the default. N is the micro-batch. */

typedef struct sonde_nn_conv2d_options {
    size_t size;            /* sizeof(sonde_nn_conv2d_options) */
    int64_t out_channels;   /* required */
    int64_t kernel_size[2]; /* (height, width), required; [1] 0: as [0], here and below */
    int64_t stride[2];      /* 1 */
    int64_t padding[2];     /* 0; both as given */
    int64_t dilation[2];    /* 1 */
    int64_t groups;         /* 1 */
    bool no_bias;
} sonde_nn_conv2d_options;

/* (N, C, H, W) -> (N, out_channels, H', W'), H' = floor((H + 2 p - d (k - 1) - 1) / s + 1). */
SONDE_API sonde_nn_value sonde_nn_conv2d(sonde_nn_model *model, const char *name,
                                         sonde_nn_value x,
                                         const sonde_nn_conv2d_options *options);

typedef struct sonde_nn_linear_options {
    size_t size;          /* sizeof(sonde_nn_linear_options) */
    int64_t out_features; /* required */
    bool no_bias;
} sonde_nn_linear_options;

/* (..., K) -> (..., out_features): y = x Wᵀ + b, over the last dimension. */
SONDE_API sonde_nn_value sonde_nn_linear(sonde_nn_model *model, const char *name,
                                         sonde_nn_value x,
                                         const sonde_nn_linear_options *options);

typedef struct sonde_nn_group_norm_options {
    size_t size;        /* sizeof(sonde_nn_group_norm_options) */
    int64_t num_groups; /* required, divides the channels */
    float eps;          /* 1e-5 */
    bool no_affine;
} sonde_nn_group_norm_options;

/* (N, C, ...) -> the same. Wu and He 2018. */
SONDE_API sonde_nn_value sonde_nn_group_norm(sonde_nn_model *model, const char *name,
                                             sonde_nn_value x,
                                             const sonde_nn_group_norm_options *options);

/* --- layers without parameters ------------------------------------------------------ */

typedef struct sonde_nn_pool2d_options {
    size_t size;            /* sizeof(sonde_nn_pool2d_options) */
    int64_t kernel_size[2]; /* required */
    int64_t stride[2];      /* as kernel_size */
    int64_t padding[2];
    int64_t dilation[2];
} sonde_nn_pool2d_options;

/* (N, C, H, W) -> (N, C, H', W') as conv2d; the padding is at most half of the kernel and
 * is never the largest. */
SONDE_API sonde_nn_value sonde_nn_max_pool2d(sonde_nn_model *model, const char *name,
                                             sonde_nn_value x,
                                             const sonde_nn_pool2d_options *options);
SONDE_API sonde_nn_value sonde_nn_relu(sonde_nn_model *model, const char *name,
                                       sonde_nn_value x);
/* Axes may be negative, counted from the end, here and below. */
SONDE_API sonde_nn_value sonde_nn_softmax(sonde_nn_model *model, const char *name,
                                          sonde_nn_value x, int axis);
SONDE_API sonde_nn_value sonde_nn_log_softmax(sonde_nn_model *model, const char *name,
                                              sonde_nn_value x, int axis);
/* Folds all dimensions from start_dim on into one. */
SONDE_API sonde_nn_value sonde_nn_flatten(sonde_nn_model *model, const char *name,
                                          sonde_nn_value x, int start_dim);

/* --- layers by name ----------------------------------------------------------------- */

/* A key of a layer and its value. */
typedef struct sonde_nn_setting {
    const char *key;
    double values[SONDE_MAX_DIMS];
    int count;        /* of values; 0: one */
    const char *word; /* instead of numbers, where the key has words */
} sonde_nn_setting;

/*
 * Any layer of the table in docs/jobs.md, by PyTorch's name ("gelu", "mse_loss"), with
 * PyTorch's parameters as keys. Keys that are not given have PyTorch's defaults.
 * SONDE_EINVAL: unknown layer or key, a required key or an input is missing, a value out
 * of range.
 *
 *     sonde_nn_layer(model, "leaky_relu", "act", &x, 1,
 *                    &(sonde_nn_setting){.key = "negative_slope", .values = {0.2}}, 1);
 */
SONDE_API sonde_nn_value sonde_nn_layer(sonde_nn_model *model, const char *kind,
                                        const char *name, const sonde_nn_value *in,
                                        size_t count, const sonde_nn_setting *settings,
                                        size_t setting_count);

/* --- losses: mean over the micro-batch ---------------------------------------------- */

/* log_probabilities (N, C), target int64 (N) -> (): -mean of log_probabilities[n,
 * target[n]] */
SONDE_API sonde_nn_value sonde_nn_nll_loss(sonde_nn_model *model, const char *name,
                                           sonde_nn_value log_probabilities,
                                           sonde_nn_value target);
typedef struct sonde_nn_cross_entropy_options {
    size_t size;         /* sizeof(sonde_nn_cross_entropy_options) */
    const float *weight; /* of each class, copied to the buffer <name>.weight; NULL: 1 */
    int64_t weights;     /* as many as there are classes; 0 without weight */
    bool ignores;        /* ignore samples with the target ignore_index */
    int64_t ignore_index;
    float label_smoothing;     /* 0 to 1 */
    bool sum;                  /* over the samples, instead of the mean by weights */
    bool of_log_probabilities; /* as nll_loss: there is no log-softmax */
    int axis; /* dimension of the classes, from the end if negative; 0: 1, PyTorch's */
} sonde_nn_cross_entropy_options;

/* logits (N, C): log-softmax over axis 1, then the above, with PyTorch's parameters. options
 * NULL: the defaults. Weights need a name. */
SONDE_API sonde_nn_value sonde_nn_cross_entropy(
    sonde_nn_model *model, const char *name, sonde_nn_value logits, sonde_nn_value target,
    const sonde_nn_cross_entropy_options *options);

/* --- functions ---------------------------------------------------------------------- */

/* Shapes broadcast as in PyTorch. */
SONDE_API sonde_nn_value sonde_nn_add(sonde_nn_model *model, const char *name,
                                      sonde_nn_value a, sonde_nn_value b);
/* One dimension may be -1 (inferred); 0 copies the input's. Keep the micro-batch's
 * dimension 0 or -1 if the model is to be compiled for other micro-batches. */
SONDE_API sonde_nn_value sonde_nn_reshape(sonde_nn_model *model, const char *name,
                                          sonde_nn_value x, int rank,
                                          const int64_t *shape);

/*
 * Returns the same value, and prints it to stderr whenever it is computed, and its
 * gradient as `<title>_gradient`. Use the returned value: a print with an unused result
 * is removed with a warning. title NULL: the value's name. options NULL: the defaults.
 */
SONDE_API sonde_nn_value sonde_nn_print(sonde_nn_model *model, sonde_nn_value x,
                                        const char *title, bool print_gradient,
                                        const sonde_print_options *options);

/* --- parameters --------------------------------------------------------------------- */

/* The name, borrowed, and the values, which may be changed between a session's calls, of
 * parameter i in order of creation. name NULL: there is none. */
SONDE_API sonde_named_view sonde_nn_parameter(const sonde_nn_model *model, size_t i);
/* Freezes parameter i in training sessions compiled later: its gradient is computed, but
 * the optimizer does not update it. By default all parameters are updated. */
SONDE_API void sonde_nn_parameter_leave_out(sonde_nn_model *model, size_t i,
                                            bool left_out);
/*
 * Buffers are tensors that an op updates while it trains, without the optimizer.
 * batch_norm has `<name>.running_mean` and `<name>.running_var`, float32, and
 * `<name>.num_batches_tracked`, int64. Their role is SONDE_ROLE_BUFFER.
 */
SONDE_API sonde_named_view sonde_nn_buffer(const sonde_nn_model *model, size_t i);
/*
 * Draws all parameters with the distributions of PyTorch's defaults: weights and biases
 * of conv and linear uniform in +-1/sqrt(fan in) (He et al. 2015 with a = sqrt 5), norms
 * 1 and 0. Parameter i uses stream i of the seed. Buffers get their initial values. A new
 * model is initialized with seed 0.
 */
SONDE_API void sonde_nn_model_initialize(sonde_nn_model *model, uint64_t seed);

/* Saves all parameters and buffers as safetensors under PyTorch's names. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_model_save(const sonde_nn_model *model,
                                                      const char *path, sonde_diag *diag);
/* Loads all parameters and buffers. The file must contain each with its shape, and no
 * other tensors: otherwise SONDE_ENOTFOUND, SONDE_ESHAPE or SONDE_EINVAL with the name,
 * and the model is unchanged. */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_model_load(sonde_nn_model *model,
                                                      const char *path, sonde_diag *diag);

/* === a network op by op ============================================================== */

/*
 * Builds a network op by op, over tensors of the caller's: for programs that
 * translate another framework's graph.
 *
 * model.h has layers, which make their parameters. Here parameters are values as any
 * other, so two ops may share one, and their memory is the caller's.
 *
 *     sonde_nn_value w = sonde_nn_tensor(model, "fc.weight", SONDE_ROLE_WEIGHT, &weight);
 *     sonde_nn_value y = sonde_nn_function(model, "fc", "linear",
 *                                          (sonde_nn_value[]){x, w}, 2, NULL, 0);
 *     sonde_nn_module_output(model, "fc", y);    // fc_output_0
 *
 * Errors stick to the model, as in model.h. One thread at a time.
 */

/*
 * A tensor of the model in memory of the caller's, borrowed until the model is destroyed:
 * contiguous, aligned to 64 bytes, with at least one element. role WEIGHT and BIAS:
 * a parameter, float32; BUFFER: float32 or another dtype that the ops that read it take.
 * Sessions read and write the memory in place. name is whole: "block1.conv1.weight".
 */
SONDE_API sonde_nn_value sonde_nn_tensor(sonde_nn_model *model, const char *name,
                                         sonde_role role, const sonde_view *memory);

/*
 * The tensor lies elsewhere, with the same shape and dtype: the memory borrowed before is
 * not touched again by the model, nor by sonde_nn_session_save. Sessions that are compiled
 * afterwards use the new memory; those compiled before must not run. SONDE_EINVAL: no
 * tensor of that name was borrowed, or memory that sonde_nn_tensor refuses; SONDE_ESHAPE.
 */
SONDE_API sonde_err sonde_nn_tensor_move(sonde_nn_model *model, const char *name,
                                         const sonde_view *memory, sonde_diag *diag);

/*
 * An op. Its values are called "<module>/<Op>:<k>", with module the whole dotted path, ""
 * for the root. kind is a layer of the table in docs/jobs.md, whose tensors follow its
 * inputs, or one of
 *
 *     conv2d         x, weight, bias?       stride, padding, dilation, groups
 *     linear         x (N, K), weight, bias?
 *     group_norm     x, weight?, bias?      num_groups, eps
 *     identity       x
 *     reshape, broadcast                    x; shape
 *     scale          x                      value: x value
 *     fill           nothing                value; shape: a tensor full of value
 *     nll            log-probabilities, target      mean
 *     nll_weighted   log-probabilities, target, weight?
 *                                           mean, label_smoothing, ignores, ignore_index
 *
 * SONDE_EINVAL: unknown kind or key, a value out of range, too few or many values.
 */
SONDE_API sonde_nn_value sonde_nn_function(sonde_nn_model *model, const char *module,
                                           const char *kind, const sonde_nn_value *in,
                                           size_t count, const sonde_nn_setting *settings,
                                           size_t setting_count);

/* A value is an output of a module's call: "<module>_output_<k>", counting k. */
SONDE_API void sonde_nn_module_output(sonde_nn_model *model, const char *module,
                                      sonde_nn_value value);

typedef struct sonde_nn_value_info {
    const char *name;  /* borrowed; NULL: it has none */
    sonde_dtype dtype; /* float32 if there is no such value */
} sonde_nn_value_info;
SONDE_API sonde_nn_value_info sonde_nn_value_describe(const sonde_nn_model *model,
                                                      sonde_nn_value value);
/* Gives a value a name, a module and a role. name NULL: no name, so that nothing can
 * observe it. also: a further name besides the one that the value has. */
SONDE_API void sonde_nn_name_value(sonde_nn_model *model, sonde_nn_value value,
                                   const char *module, const char *name, sonde_role role,
                                   bool also);

/*
 * Appends the graph as a JSON object, for programs that write it in another format:
 *
 *     values   a list; values[0] is null. name, source ("op", "input", "parameter",
 *              "buffer"), dtype, shape; batch: the dimensions that depend on the batch
 *     ops      in order of execution: kind, in, out (places in values; in 0: left out),
 *              attrs as the shape rule completed them, and given, as the builder gave them
 *     inputs, outputs (without the loss)   places in values
 *
 * SONDE_ENOMEM; or the error of the model.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_nn_model_describe(const sonde_nn_model *model,
                                                          sonde_text *text,
                                                          sonde_diag *diag);

#ifdef __cplusplus
}
#endif

#endif
