/*
 * describe_ops.c - operations of the engine in the words of docs/program.md: PyTorch's names
 * of functions and of their parameters.
 */
#include "nn/compile/describe_parts.h"
#include "base/macros.h"
#include "base/number.h"
#include "nn/ops/recurrent.h"
#include "nn/ops/remap.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- attributes --------------------------------------------------------------------------- */

/* The room for a further attribute; NULL: there is none. */
static char *add_text(sonde__plan_attributes *to, const char *name, double number)
{
    if (to->count == SONDE__DESCRIBE_ATTRIBUTES) {
        return NULL;
    }
    char *text = to->text[to->count];

    to->row[to->count++] = (sonde_program_attribute){name, text, number};
    return text;
}

void sonde__plan_describe_number(sonde__plan_attributes *to, const char *name,
                                 double value)
{
    char *text = isfinite(value) ? add_text(to, name, value) : NULL;

    if (text != NULL) {
        (void)sonde__snprintf(text, SONDE__DESCRIBE_TEXT, "%.7g", value);
    }
}

static void add_word(sonde__plan_attributes *to, const char *name, const char *word)
{
    char *text = add_text(to, name, (double)NAN);

    if (text != NULL) {
        (void)snprintf(text, SONDE__DESCRIBE_TEXT, "%s", word);
    }
}

static void add_flag(sonde__plan_attributes *to, const char *name, bool is)
{
    char *text = add_text(to, name, is ? 1.0 : 0.0);

    if (text != NULL) {
        (void)snprintf(text, SONDE__DESCRIBE_TEXT, "%s", is ? "true" : "false");
    }
}

/* "[3, 3]" */
static void add_list(sonde__plan_attributes *to, const char *name, const int64_t *numbers,
                     int count)
{
    char *text = add_text(to, name, (double)NAN);
    int used = 0;

    if (text == NULL) {
        return;
    }
    for (int i = 0; i < count && used < SONDE__DESCRIBE_TEXT - 2; i++) {
        used += snprintf(text + used, (size_t)(SONDE__DESCRIBE_TEXT - used), "%s%lld",
                         i == 0 ? "[" : ", ", (long long)numbers[i]);
    }
    used = SONDE_MIN(used, SONDE__DESCRIBE_TEXT - 2);
    (void)snprintf(text + used, (size_t)(SONDE__DESCRIBE_TEXT - used), "]");
}

/* The numbers of functions of one value or two. */
static const struct {
    const char *kind, *names[2];
} function_numbers[] = {{"LeakyRelu", {"negative_slope"}},
                        {"Elu", {"alpha"}},
                        {"Celu", {"alpha"}},
                        {"Hardtanh", {"min_val", "max_val"}},
                        {"Hardshrink", {"lambd"}},
                        {"Softshrink", {"lambd"}},
                        {"Softplus", {"beta", "threshold"}},
                        {"Threshold", {"threshold", "value"}},
                        {"Pow", {"exponent"}},
                        {"Clamp", {"min", "max"}},
                        {"SmoothL1Loss", {"beta"}},
                        {"HuberLoss", {"delta"}},
                        {"HingeEmbeddingLoss", {"margin"}},
                        {"PoissonNllLoss", {"eps"}}};

/* Whether an operation compares elements, of which a mean or a sum becomes the loss. */
static bool is_elementwise_loss(const sonde__op_kind *kind)
{
    const size_t length = strlen(kind->name);

    return kind->fields == &sonde__op_fields_function &&
           (strcmp(kind->name, "KlDiv") == 0 ||
            (length > 4 && strcmp(kind->name + length - 4, "Loss") == 0));
}

static void add_of_function(sonde__plan_attributes *to, const sonde__graph_node_op *op)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(function_numbers); i++) {
        for (int k = 0; k < 2 && strcmp(op->kind->name, function_numbers[i].kind) == 0;
             k++) {
            if (function_numbers[i].names[k] != NULL) {
                sonde__plan_describe_number(to, function_numbers[i].names[k],
                                            (double)op->attrs.function.number[k]);
            }
        }
    }
    if (is_elementwise_loss(op->kind)) {
        add_word(to, "reduction", "none");
    }
    if (op->kind == &sonde__op_kl_div) {
        add_flag(to, "log_target", op->attrs.function.log);
    }
}

static void add_of_loss(sonde__plan_attributes *to, const sonde__graph_node_op *op)
{
    add_word(to, "reduction", op->attrs.loss.mean ? "mean" : "sum");
    if (op->attrs.loss.label_smoothing > 0.0F) {
        sonde__plan_describe_number(to, "label_smoothing",
                                    (double)op->attrs.loss.label_smoothing);
    }
    if (op->attrs.loss.ignores) {
        sonde__plan_describe_number(to, "ignore_index",
                                    (double)op->attrs.loss.ignore_index);
    }
    if (op->in_count > 2) {
        add_flag(to, "weight", true);
    }
}

static void add_of_reduction(sonde__plan_attributes *to, const sonde__graph_node_op *op,
                             int rank)
{
    int64_t dims[SONDE_MAX_DIMS];
    int count = 0;

    if (op->kind == &sonde__op_arg_extreme) {
        sonde__plan_describe_number(to, "dim", op->attrs.reduce.axis);
        return;
    }
    for (int i = 0; i < rank; i++) {
        if (op->attrs.reduce.axes >> i & 1U) {
            dims[count++] = i;
        }
    }
    if (count == 1 && rank > 1) {
        sonde__plan_describe_number(to, "dim", (double)dims[0]);
    } else if (count < rank) {
        add_list(to, "dim", dims, count);
    }
    if (op->attrs.reduce.keep_dims) {
        add_flag(to, "keepdim", true);
    }
}

static void add_of_window(sonde__plan_attributes *to, const sonde__graph_node_op *op,
                          int rank)
{
    const struct sonde__attrs_window *window = &op->attrs.window;
    const int count = rank == 5 ? 3 : 2;

    if (window->kernel[0] > 0) {
        add_list(to, "kernel_size", window->kernel, count);
    }
    if (window->stride[0] > 0) {
        add_list(to, "stride", window->stride, count);
        add_list(to, "padding", window->padding, count);
    }
    if (window->groups > 1) {
        sonde__plan_describe_number(to, "groups", (double)window->groups);
    }
}

static void add_of_attention(sonde__plan_attributes *to, const sonde__graph_node_op *op)
{
    const bool packed = op->kind == &sonde__op_self_attention;

    add_flag(to, "is_causal", op->attrs.attention.causal);
    if (op->in_count > (packed ? 1 : 3)) {
        add_flag(to, "attn_mask", true);
    }
    sonde__plan_describe_number(to, "dropout_p",
                                op->attrs.training ? (double)op->attrs.p : 0.0);
}

/* Of what belongs to no family. */
static void add_of_kind(sonde__plan_attributes *to, const sonde__graph_node_op *op)
{
    const sonde__op_attrs *attrs = &op->attrs;

    if (op->kind == &sonde__op_scale) {
        sonde__plan_describe_number(to, "scalar", (double)attrs->fill.value);
    } else if (op->kind == &sonde__op_fill) {
        sonde__plan_describe_number(to, "fill_value", (double)attrs->fill.value);
    } else if (op->kind == &sonde__op_dropout) {
        sonde__plan_describe_number(to, "p", (double)attrs->p);
        add_flag(to, "training", attrs->training);
    } else if (op->kind == &sonde__op_cast) {
        add_word(to, "dtype", sonde_dtype_name((sonde_dtype)attrs->cast.to));
    } else if (op->kind == &sonde__op_slice) {
        sonde__plan_describe_number(to, "dim", attrs->slice.axis);
    } else if (op->kind == &sonde__op_masked_fill) {
        sonde__plan_describe_number(to, "value", (double)attrs->choose.value);
    } else if (op->kind == &sonde__op_matmul && attrs->matmul.transposed != 0) {
        add_flag(to, "transposed", true);
    }
}

void sonde__plan_describe_op(const sonde__op_graph *graph, const sonde__graph_node_op *op,
                             sonde__plan_attributes *to)
{
    const sonde__op_fields *family = op->kind->fields;
    const sonde__op_attrs *attrs = &op->attrs;
    const int rank = op->in_count > 0 ? graph->values[op->in[0]].shape.rank : 0;

    if (family == &sonde__op_fields_along) {
        sonde__plan_describe_number(to, "dim", attrs->along.axis);
    } else if (family == &sonde__op_fields_order) {
        sonde__plan_describe_number(to, "dim", attrs->order.axis);
    } else if (family == &sonde__op_fields_index) {
        sonde__plan_describe_number(to, "dim", attrs->index.axis);
    } else if (family == &sonde__op_fields_loss) {
        add_of_loss(to, op);
    } else if (family == &sonde__op_fields_reduce) {
        add_of_reduction(to, op, rank);
    } else if (family == &sonde__op_fields_window) {
        add_of_window(to, op, rank);
    } else if (family == &sonde__op_fields_function) {
        add_of_function(to, op);
    } else if (family == &sonde__op_fields_attention) {
        add_of_attention(to, op);
    } else if (family == &sonde__op_fields_norm) {
        sonde__plan_describe_number(to, "eps", (double)attrs->norm.eps);
        if (attrs->norm.track) {
            sonde__plan_describe_number(to, "momentum", (double)attrs->norm.momentum);
        }
    } else if (family == &sonde__op_fields_ctc) {
        add_word(to, "reduction", attrs->ctc.mean ? "mean" : "sum");
        sonde__plan_describe_number(to, "blank", (double)attrs->ctc.blank);
    } else {
        add_of_kind(to, op);
    }
}

/* --- names of operations ------------------------------------------------------------------ */

/* "LogSoftmax" as "log_softmax". */
static void write_snake(const char *kind, char *op, size_t size)
{
    size_t used = 0;

    for (size_t i = 0; kind[i] != '\0' && used + 2 < size; i++) {
        if (isupper((unsigned char)kind[i]) && i > 0) {
            op[used++] = '_';
        }
        op[used++] = (char)sonde__tolower((unsigned char)kind[i]);
    }
    op[used] = '\0';
}

/* Classes of nll_loss lie along dimension 1 in PyTorch; along another it is no nll_loss. */
static bool is_nll(const sonde__op_graph *graph, const sonde__graph_node_op *op)
{
    return (op->kind == &sonde__op_nll || op->kind == &sonde__op_nll_weighted) &&
           (op->attrs.loss.axis <= 1 || graph->values[op->in[0]].shape.rank <= 2);
}

/* Those whose name depends on an attribute; NULL: it does not. */
static const char *name_by_attributes(const sonde__op_graph *graph,
                                      const sonde__graph_node_op *op)
{
    static const char *const cells[] = {"rnn_tanh", "rnn_relu", "lstm", "gru"};
    static const char *const comparisons[] = {"eq", "ne", "lt", "le", "gt", "ge"};
    const sonde__op_attrs *attrs = &op->attrs;
    const int map = attrs->remap.map;

    if (is_nll(graph, op)) {
        return "nll_loss";
    }
    if (op->kind == &sonde__op_reduce) {
        return attrs->reduce.mean ? "mean" : "sum";
    }
    if (op->kind == &sonde__op_extreme) {
        return attrs->reduce.smallest ? "min" : "max";
    }
    if (op->kind == &sonde__op_arg_extreme) {
        return attrs->reduce.smallest ? "argmin" : "argmax";
    }
    if (op->kind == &sonde__op_recurrent &&
        (size_t)attrs->recurrent.cell < SONDE_COUNT_OF(cells)) {
        return cells[attrs->recurrent.cell];
    }
    if (op->kind == &sonde__op_compare &&
        (size_t)attrs->choose.comparison < SONDE_COUNT_OF(comparisons)) {
        return comparisons[attrs->choose.comparison];
    }
    if (op->kind == &sonde__op_remap) {
        return map <= SONDE__REMAP_CIRCULAR        ? "pad"
               : map <= SONDE__REMAP_CUBIC_CORNERS ? "interpolate"
               : map == SONDE__REMAP_FLIP          ? "flip"
               : map == SONDE__REMAP_ROLL          ? "roll"
               : map == SONDE__REMAP_REPEAT        ? "repeat"
               : map == SONDE__REMAP_REPEAT_EACH   ? "repeat_interleave"
                                                   : "unfold";
    }
    return NULL;
}

void sonde__plan_describe_name(const sonde__op_graph *graph,
                               const sonde__graph_node_op *op, char *name, size_t size)
{
    static const struct {
        const char *kind, *op;
    } others[] = {{"PRelu", "prelu"},
                  {"LogSigmoid", "logsigmoid"},
                  {"CumSum", "cumsum"},
                  {"ArgSort", "argsort"},
                  {"MatMul", "matmul"},
                  {"BceLoss", "binary_cross_entropy"},
                  {"BceWithLogitsLoss", "binary_cross_entropy_with_logits"},
                  {"FloatPower", "pow"},
                  {"Square", "pow"},
                  {"Broadcast", "expand"},
                  {"Cast", "to"},
                  {"Slice", "index"},
                  {"Gather", "index"},
                  {"Fill", "full"},
                  {"Scale", "mul"},
                  {"Attention", "scaled_dot_product_attention"},
                  {"SelfAttention", "scaled_dot_product_attention"},
                  {"ChannelAdd", "add"},
                  {"ChannelSum", "sum"}};
    const char *found = name_by_attributes(graph, op);

    for (size_t i = 0; i < SONDE_COUNT_OF(others) && found == NULL; i++) {
        found = strcmp(op->kind->name, others[i].kind) == 0 ? others[i].op : NULL;
    }
    if (found != NULL) {
        (void)snprintf(name, size, "%s", found);
    } else {
        write_snake(op->kind->name, name, size);
    }
    if (op->kind->fields == &sonde__op_fields_window && op->in_count > 0 &&
        graph->values[op->in[0]].shape.rank == 5) {
        char *two = strstr(name, "2d");

        if (two != NULL) {
            *two = '3';
        }
    }
}

/* --- what a module is --------------------------------------------------------------------- */

int sonde__plan_describe_rank(const sonde__op_kind *kind)
{
    static const sonde__op_kind *const helpers[] = {
        &sonde__op_reshape, &sonde__op_transpose, &sonde__op_broadcast, &sonde__op_fill,
        &sonde__op_cast,    &sonde__op_identity,  &sonde__op_reduce,    &sonde__op_scale};

    if (kind->fields == &sonde__op_fields_loss || kind->fields == &sonde__op_fields_ctc ||
        is_elementwise_loss(kind)) {
        return 3;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(helpers); i++) {
        if (kind == helpers[i]) {
            return 1;
        }
    }
    return 2;
}
