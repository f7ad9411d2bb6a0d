/*
 * function.h - builds a network op by op, over tensors of the caller's: for programs that
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
#ifndef SONDE_NN_FUNCTION_H
#define SONDE_NN_FUNCTION_H

#include <sonde/catalogue.h>
#include <sonde/nn/model.h>
#include <sonde/text.h>

#ifdef __cplusplus
extern "C" {
#endif

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
