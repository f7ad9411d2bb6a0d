/*
 * interpreter.h - a model's forward graph, computed in double by the definitions: what
 * the engine is compared with.
 *
 * Slow and simple: one block for every value, no layouts, nothing shared. Knows every
 * forward op of the table; an unknown one fails the test.
 */
#ifndef SONDE_TESTS_NN_INTERPRETER_H
#define SONDE_TESTS_NN_INTERPRETER_H

#include "engine.h"

#include "nn/graph/graph.h"

#include <math.h>

typedef struct interpreter {
    const sonde_nn_model *model;
    const sonde__op_graph *graph;
    double **values; /* by value id */
} interpreter;

static inline size_t interpreter_count(const interpreter *in, sonde__op_value value)
{
    const sonde__op_shape *shape = &in->graph->values[value].shape;
    size_t count = 1;

    for (int i = 0; i < shape->rank; i++) {
        count *= (size_t)shape->dim[i];
    }
    return count;
}

/* Takes the model's inputs and the parameters as they are now. */
static inline void interpreter_init(interpreter *in, const sonde_nn_model *model,
                                    const sonde_view *inputs)
{
    *in = (interpreter){.model = model, .graph = &model->graph};
    in->values = calloc(in->graph->value_count, sizeof *in->values);
    assert_non_null(in->values);
    for (sonde__op_value v = 1; v < in->graph->value_count; v++) {
        const sonde__graph_node_value *node = &in->graph->values[v];
        const size_t count = interpreter_count(in, v);

        in->values[v] = calloc(count, sizeof **in->values);
        assert_non_null(in->values[v]);
        for (size_t i = 0; i < count; i++) {
            if (node->source == SONDE__FROM_INPUT && node->shape.dtype == SONDE_I64) {
                in->values[v][i] = (double)((const int64_t *)inputs[node->index].data)[i];
            } else if (node->source == SONDE__FROM_INPUT) {
                in->values[v][i] = (double)((const float *)inputs[node->index].data)[i];
            } else if (node->source == SONDE__FROM_PARAM) {
                in->values[v][i] =
                    (double)((const float *)model->params[node->index].data)[i];
            }
        }
    }
}

static inline void interpreter_fini(interpreter *in)
{
    for (sonde__op_value v = 0; v < in->graph->value_count; v++) {
        free(in->values[v]);
    }
    free(in->values);
}

/* --- ops ---------------------------------------------------------------------------- */

/* x at (n, c, y, x); outside: `outside`. */
static inline double interpreter_pixel(const double *data, const int64_t *dim, int64_t n,
                                       int64_t c, int64_t y, int64_t x, double outside)
{
    return y < 0 || y >= dim[2] || x < 0 || x >= dim[3]
               ? outside
               : data[((n * dim[1] + c) * dim[2] + y) * dim[3] + x];
}

/* One output element of a convolution (weight not NULL) or of a max-pool. */
static inline double interpreter_window(const interpreter *in,
                                        const sonde__graph_node_op *op, int64_t n,
                                        int64_t o, int64_t y, int64_t x)
{
    const struct sonde__attrs_window *a = &op->attrs.window;
    const bool pool = op->kind == &sonde__op_max_pool2d;
    const int64_t *dim = in->graph->values[op->in[0]].shape.dim;
    const int64_t *wdim = pool ? NULL : in->graph->values[op->in[1]].shape.dim;
    const int64_t channels = pool ? 1 : wdim[1];
    const int64_t first = pool ? o : o / (wdim[0] / a->groups) * channels;
    const double lowest = -(double)INFINITY;
    double result = pool ? lowest : op->in_count > 2 ? in->values[op->in[2]][o] : 0.0;

    for (int64_t c = 0; c < channels; c++) {
        for (int64_t ky = 0; ky < a->kernel[0]; ky++) {
            for (int64_t kx = 0; kx < a->kernel[1]; kx++) {
                const double pixel = interpreter_pixel(
                    in->values[op->in[0]], dim, n, first + c,
                    y * a->stride[0] - a->padding[0] + ky * a->dilation[0],
                    x * a->stride[1] - a->padding[1] + kx * a->dilation[1],
                    pool ? lowest : 0.0);

                if (pool) {
                    result = fmax(result, pixel);
                } else {
                    result +=
                        pixel *
                        in->values[op->in[1]]
                                  [((o * channels + c) * wdim[2] + ky) * wdim[3] + kx];
                }
            }
        }
    }
    return result;
}

static inline void interpreter_windows(const interpreter *in,
                                       const sonde__graph_node_op *op)
{
    const int64_t *dim = in->graph->values[op->out[0]].shape.dim;
    double *to = in->values[op->out[0]];

    for (int64_t n = 0; n < dim[0]; n++) {
        for (int64_t o = 0; o < dim[1]; o++) {
            for (int64_t y = 0; y < dim[2]; y++) {
                for (int64_t x = 0; x < dim[3]; x++) {
                    *to++ = interpreter_window(in, op, n, o, y, x);
                }
            }
        }
    }
}

static inline void interpreter_linear(const interpreter *in,
                                      const sonde__graph_node_op *op)
{
    const int64_t *w = in->graph->values[op->in[1]].shape.dim;
    const int64_t n = in->graph->values[op->in[0]].shape.dim[0];

    for (int64_t i = 0; i < n * w[0]; i++) {
        double sum = op->in_count > 2 ? in->values[op->in[2]][i % w[0]] : 0.0;

        for (int64_t k = 0; k < w[1]; k++) {
            sum += in->values[op->in[0]][i / w[0] * w[1] + k] *
                   in->values[op->in[1]][i % w[0] * w[1] + k];
        }
        in->values[op->out[0]][i] = sum;
    }
}

static inline void interpreter_norm(const interpreter *in, const sonde__graph_node_op *op)
{
    const int64_t *dim = in->graph->values[op->in[0]].shape.dim;
    const int64_t groups = op->attrs.norm.groups,
                  size = (int64_t)interpreter_count(in, op->in[0]) / dim[0] / groups;
    const int64_t area = size * groups / dim[1];

    for (int64_t g = 0; g < dim[0] * groups; g++) {
        const double *x = in->values[op->in[0]] + g * size;
        double mean = 0.0, square = 0.0;

        for (int64_t i = 0; i < size; i++) {
            mean += x[i] / (double)size;
        }
        for (int64_t i = 0; i < size; i++) {
            square += (x[i] - mean) * (x[i] - mean) / (double)size;
        }
        for (int64_t i = 0; i < size; i++) {
            const int64_t c = (g * size + i) / area % dim[1];
            const double y = (x[i] - mean) / sqrt(square + (double)op->attrs.norm.eps);

            in->values[op->out[0]][g * size + i] =
                op->in_count > 1 ? y * in->values[op->in[1]][c] + in->values[op->in[2]][c]
                                 : y;
        }
    }
}

static inline void interpreter_softmax(const interpreter *in,
                                       const sonde__graph_node_op *op)
{
    const sonde__op_shape *shape = &in->graph->values[op->in[0]].shape;
    const bool logarithm = op->kind == &sonde__op_log_softmax;
    size_t inner = 1, length = (size_t)shape->dim[op->attrs.along.axis];

    for (int i = op->attrs.along.axis + 1; i < shape->rank; i++) {
        inner *= (size_t)shape->dim[i];
    }
    for (size_t i = 0; i < interpreter_count(in, op->in[0]); i++) {
        const size_t first = i / (inner * length) * (inner * length) + i % inner;
        const double *x = in->values[op->in[0]];
        double sum = 0.0;

        for (size_t k = 0; k < length; k++) {
            sum += exp(x[first + k * inner] - x[i]);
        }
        in->values[op->out[0]][i] = logarithm ? -log(sum) : 1.0 / sum;
    }
}

static inline void interpreter_nll(const interpreter *in, const sonde__graph_node_op *op)
{
    const int64_t *dim = in->graph->values[op->in[0]].shape.dim;
    double sum = 0.0;

    for (int64_t n = 0; n < dim[0]; n++) {
        sum -= in->values[op->in[0]][n * dim[1] + (int64_t)in->values[op->in[1]][n]];
    }
    in->values[op->out[0]][0] = op->attrs.loss.mean ? sum / (double)dim[0] : sum;
}

/* The offset, in a tensor of `shape`, of the index that `flat` is in `flat_shape`;
 * dimensions are aligned at the end and those of length 1 stand for all. */
static inline size_t interpreter_offset(const sonde__op_shape *flat_shape, size_t flat,
                                        const sonde__op_shape *shape)
{
    size_t offset = 0, stride = 1;

    for (int i = 1; i <= shape->rank; i++) {
        const size_t length = (size_t)flat_shape->dim[flat_shape->rank - i],
                     at = flat % length;
        const size_t own = (size_t)shape->dim[shape->rank - i];

        flat /= length;
        offset += own == 1 ? 0 : at * stride;
        stride *= own;
    }
    return offset;
}

static inline void interpreter_pointwise(const interpreter *in,
                                         const sonde__graph_node_op *op)
{
    const sonde__op_shape *to = &in->graph->values[op->out[0]].shape;

    for (size_t i = 0; i < interpreter_count(in, op->out[0]); i++) {
        double x[2] = {0.0, 0.0};

        for (int k = 0; k < op->in_count; k++) {
            x[k] = in->values[op->in[k]][interpreter_offset(
                to, i, &in->graph->values[op->in[k]].shape)];
        }
        in->values[op->out[0]][i] = op->kind == &sonde__op_add   ? x[0] + x[1]
                                    : op->kind == &sonde__op_mul ? x[0] * x[1]
                                                                 : fmax(x[0], 0.0);
    }
}

static inline void interpreter_reduce(const interpreter *in,
                                      const sonde__graph_node_op *op)
{
    const sonde__op_shape *from = &in->graph->values[op->in[0]].shape;
    sonde__op_shape shape = *from;
    const size_t count = interpreter_count(in, op->in[0]);
    const double terms = (double)count / (double)interpreter_count(in, op->out[0]);

    for (int i = 0; i < shape.rank; i++) {
        shape.dim[i] =
            (op->attrs.reduce.axes >> (unsigned)i & 1U) != 0 ? 1 : shape.dim[i];
    }
    for (size_t i = 0; i < count; i++) {
        in->values[op->out[0]][interpreter_offset(from, i, &shape)] +=
            in->values[op->in[0]][i] / (op->attrs.reduce.mean ? terms : 1.0);
    }
}

static inline void interpreter_transpose(const interpreter *in,
                                         const sonde__graph_node_op *op)
{
    const sonde__op_shape *from = &in->graph->values[op->in[0]].shape;
    const sonde__op_shape *to = &in->graph->values[op->out[0]].shape;

    for (size_t i = 0; i < interpreter_count(in, op->out[0]); i++) {
        int64_t index[SONDE_MAX_DIMS] = {0};
        size_t flat = i, offset = 0;

        for (int k = to->rank; k-- > 0; flat /= (size_t)to->dim[k]) {
            index[op->attrs.shape.dims[k]] = (int64_t)(flat % (size_t)to->dim[k]);
        }
        for (int k = 0; k < from->rank; k++) {
            offset = offset * (size_t)from->dim[k] + (size_t)index[k];
        }
        in->values[op->out[0]][i] = in->values[op->in[0]][offset];
    }
}

static inline void interpreter_step(const interpreter *in, const sonde__graph_node_op *op)
{
    const sonde__op_kind *kind = op->kind;

    if (kind == &sonde__op_conv2d || kind == &sonde__op_max_pool2d) {
        interpreter_windows(in, op);
    } else if (kind == &sonde__op_linear) {
        interpreter_linear(in, op);
    } else if (kind == &sonde__op_group_norm) {
        interpreter_norm(in, op);
    } else if (kind == &sonde__op_softmax || kind == &sonde__op_log_softmax) {
        interpreter_softmax(in, op);
    } else if (kind == &sonde__op_nll) {
        interpreter_nll(in, op);
    } else if (kind == &sonde__op_add || kind == &sonde__op_mul ||
               kind == &sonde__op_relu) {
        interpreter_pointwise(in, op);
    } else if (kind == &sonde__op_reduce) {
        interpreter_reduce(in, op);
    } else if (kind == &sonde__op_transpose) {
        interpreter_transpose(in, op);
    } else if (kind == &sonde__op_reshape || kind == &sonde__op_identity) {
        memcpy(in->values[op->out[0]], in->values[op->in[0]],
               interpreter_count(in, op->out[0]) * sizeof **in->values);
    } else {
        fail_msg("the interpreter does not know %s", kind->name);
    }
}

/* Everything again, from what the leaves hold now. */
static inline void interpreter_run(const interpreter *in)
{
    for (size_t i = 0; i < in->graph->op_count; i++) {
        const sonde__graph_node_op *op = &in->graph->ops[i];

        if (op->kind == &sonde__op_reduce) {
            memset(in->values[op->out[0]], 0,
                   interpreter_count(in, op->out[0]) * sizeof **in->values);
        }
        interpreter_step(in, op);
    }
}

/* The value of a name; 0 if the graph has none. */
static inline sonde__op_value interpreter_find(const interpreter *in, const char *name)
{
    for (sonde__op_value v = 1; v < in->graph->value_count; v++) {
        if (in->graph->values[v].name != NULL &&
            strcmp(in->graph->values[v].name, name) == 0) {
            return v;
        }
    }
    return 0;
}

#endif
