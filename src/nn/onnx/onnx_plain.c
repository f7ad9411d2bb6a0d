/*
 * onnx_plain.c - ONNX ops that are one op of ours, or few, without tensors of their own:
 * activations, arithmetic, comparisons, reductions, softmax, dropout.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <math.h>
#include <string.h>

static const sonde__onnx_pair none = {0, 0};

static bool expect_float(sonde__onnx_node *node, sonde__onnx_pair x)
{
    const sonde_dtype dtype = x.model != 0 ? sonde__onnx_dtype(node, x) : SONDE_F32;

    return dtype == SONDE_F32 ||
           sonde__onnx_refuse(node, SONDE_EDTYPE, "float32", "an input of %s",
                              sonde_dtype_name(dtype));
}

/* --- one input --------------------------------------------------------------------------- */

/* The row's kind over the input, with the attributes that the row names. */
static bool build_one(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    sonde_nn_setting settings[SONDE_COUNT_OF(op->keys)];
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(op->keys) && op->keys[i].key != NULL; i++) {
        const sonde__onnx_key *key = &op->keys[i];

        settings[count++] = (sonde_nn_setting)SONDE__ONNX_SET(
            key->key, key->attribute != NULL
                          ? sonde__onnx_float(node, key->attribute, key->fallback)
                          : key->fallback);
    }
    return expect_float(node, x) &&
           sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, settings, count));
}

/* torch's older exporter writes equal initialisers once, and Identity for the others: each
 * is a parameter of its own. */
static bool copies_initial(sonde__onnx_node *node)
{
    const sonde__onnx_slot *from = sonde__onnx_input(node, 0);
    const char *name = node->proto->n_output > 0 ? node->proto->output[0] : "";
    sonde__onnx_slot *slot = NULL;

    if (from == NULL || from->initial == NULL || strchr(name, '.') == NULL ||
        sonde__onnx_is_whole_type(from->initial->data_type)) {
        return false;
    }
    slot = &node->import->slots[sonde__names_find(&node->import->names, name)];
    slot->initial = from->initial;
    slot->ready = true;
    return true;
}

static bool build_same(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    (void)op;
    if (copies_initial(node)) {
        return true;
    }
    return sonde__onnx_give(node, 0, sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION));
}

static bool build_gelu(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const sonde_nn_setting setting = {
        .key = "approximate",
        .word = sonde__onnx_says(node, "approximate", "none", "tanh") ? "tanh" : "none"};

    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, &setting, 1));
}

/* max(0, min(1, alpha x + beta)); with PyTorch's numbers one op. */
static bool build_hard_sigmoid(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const double alpha = sonde__onnx_float(node, "alpha", 0.2);
    const double beta = sonde__onnx_float(node, "beta", 0.5);
    const sonde_nn_setting factor = SONDE__ONNX_SET("value", alpha);
    const sonde_nn_setting limits[] = {SONDE__ONNX_SET("min", 0),
                                       SONDE__ONNX_SET("max", 1)};
    sonde__onnx_pair x[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION)};

    if (fabs(alpha - 1.0 / 6.0) < 1e-6 && beta == 0.5) {
        return sonde__onnx_give(node, 0, sonde__onnx_emit_one(node, op->kind, x[0]));
    }
    x[0] = sonde__onnx_emit(node, "scale", x, 1, &factor, 1);
    x[1] = sonde__onnx_fill(node, beta);
    x[0] = sonde__onnx_emit(node, "add", x, 2, NULL, 0);
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, "clamp", x, 1, limits, 2));
}

/* A number that a node's input must be, or fallback without the input. */
static bool read_scalar(sonde__onnx_node *node, size_t i, const char *what,
                        double fallback, double *number)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, i);

    *number = fallback;
    if (!sonde__onnx_has_input(node, i)) {
        return true;
    }
    if (known == NULL || known->count != 1 || known->items[0].slope != 0.0) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED,
                                  "one number that is known before the network runs",
                                  "%s is computed from values", what);
    }
    *number = known->items[0].base;
    return true;
}

static bool build_clip(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    double least = 0.0, most = 0.0;
    sonde_nn_setting settings[2];

    if (!read_scalar(node, 1, "min", -(double)INFINITY, &least) ||
        !read_scalar(node, 2, "max", (double)INFINITY, &most)) {
        return false;
    }
    settings[0] = (sonde_nn_setting)SONDE__ONNX_SET("min", least);
    settings[1] = (sonde_nn_setting)SONDE__ONNX_SET("max", most);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, settings, 2));
}

static bool build_softmax(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const sonde_nn_setting axis =
        SONDE__ONNX_SET("dim", sonde__onnx_int(node, "axis", -1));

    return expect_float(node, x) &&
           sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, &x, 1, &axis, 1));
}

static bool build_dropout(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    double ratio = 0.0;
    sonde_nn_setting p;

    if (!read_scalar(node, 1, "ratio", 0.5, &ratio)) {
        return false;
    }
    p = (sonde_nn_setting)SONDE__ONNX_SET("p", ratio);
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, &x, 1, &p, 1));
}

static bool build_cast(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const int64_t type = sonde__onnx_int(node, "to", 0);
    const bool whole = type == SONDE__ONNX_INT64 || type == SONDE__ONNX_INT32;

    (void)op;
    if (!whole && type != SONDE__ONNX_BOOL && type != SONDE__ONNX_FLOAT &&
        type != SONDE__ONNX_DOUBLE && type != SONDE__ONNX_FLOAT16 &&
        type != SONDE__ONNX_BFLOAT16) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "a float, int64 or bool",
                                  "a conversion to %s", sonde__onnx_type_name((int)type));
    }
    return sonde__onnx_give(node, 0,
                            sonde__onnx_to(node, x,
                                           whole                      ? SONDE_I64
                                           : type == SONDE__ONNX_BOOL ? SONDE_BOOL
                                                                      : SONDE_F32));
}

static bool build_cast_like(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const sonde__onnx_pair like = sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION);

    (void)op;
    return like.model != 0 &&
           sonde__onnx_give(node, 0,
                            sonde__onnx_to(node, x, sonde__onnx_dtype(node, like)));
}

/* And, Or, Xor and Not, of numbers that are 0 and 1. */
static bool build_logic(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool one = strcmp(op->name, "Not") == 0;
    sonde__onnx_pair in[2] = {none, none};

    for (size_t i = 0; i < (one ? 1 : 2); i++) {
        in[i] = sonde__onnx_to(node, sonde__onnx_take(node, i, SONDE_ROLE_ACTIVATION),
                               SONDE_F32);
    }
    if (one) {
        in[1] = sonde__onnx_fill(node, 0.0);
    }
    return sonde__onnx_give(
        node, 0,
        sonde__onnx_to(node, sonde__onnx_emit(node, op->kind, in, 2, NULL, 0),
                       SONDE_BOOL));
}

/* x - y floor(x / y), or as C's fmod. */
static bool build_mod(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool c = sonde__onnx_int(node, "fmod", 0) != 0;
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
                              sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION)};

    (void)op;
    if (!expect_float(node, in[0]) || !expect_float(node, in[1])) {
        return false;
    }
    sonde__onnx_pair times[2] = {sonde__onnx_emit(node, "div", in, 2, NULL, 0), in[1]};

    times[0] = sonde__onnx_emit_one(node, c ? "trunc" : "floor", times[0]);
    in[1] = sonde__onnx_emit(node, "mul", times, 2, NULL, 0);
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, "sub", in, 2, NULL, 0));
}

/* Without a shift a hard shrink, with one of lambd a soft one. */
static bool build_shrink(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const double lambd = sonde__onnx_float(node, "lambd", 0.5);
    const double bias = sonde__onnx_float(node, "bias", 0.0);
    const sonde_nn_setting setting = SONDE__ONNX_SET("lambd", lambd);

    (void)op;
    if (bias != 0.0 && bias != lambd) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "0, or lambd", "a bias of %g",
                                  bias);
    }
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node,
                                             bias == 0.0 ? "hardshrink" : "softshrink",
                                             &x, 1, &setting, 1));
}

/* --- two inputs and more -------------------------------------------------------------------- */

/* One number that an operand is everywhere, and that no parameter is. */
static bool is_number(sonde__onnx_node *node, size_t i, double *number)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, i);

    if (known == NULL || known->count != 1 || known->items[0].slope != 0.0 ||
        sonde__onnx_is_whole_type(known->type)) {
        return false;
    }
    for (int i_dim = 0; i_dim < known->rank; i_dim++) {
        if (known->dim[i_dim].base != 1.0 || known->dim[i_dim].slope != 0.0) {
            return false;
        }
    }
    *number = known->items[0].base;
    return true;
}

/* x times a number, for a Mul or a Div by one that does not widen x; {0, 0}: it is none. */
static sonde__onnx_pair scaled(sonde__onnx_node *node, bool divides)
{
    sonde__onnx_number dims[SONDE_MAX_DIMS];
    double number = 0.0;
    const size_t place = is_number(node, 1, &number) ? 1 : 0;
    sonde__onnx_pair x = none;
    sonde_nn_setting factor;

    if ((place == 0 && (divides || !is_number(node, 0, &number))) ||
        sonde__onnx_known(node, 1 - place) != NULL) {
        return none;
    }
    x = sonde__onnx_take(node, 1 - place, SONDE_ROLE_ACTIVATION);
    if (x.model == 0 ||
        sonde__onnx_shape(node, x, dims) < sonde__onnx_known(node, place)->rank ||
        sonde__onnx_dtype(node, x) != SONDE_F32) {
        return none;
    }
    factor = (sonde_nn_setting)SONDE__ONNX_SET("value", divides ? 1.0 / number : number);
    return divides && 1.0 / number * number != 1.0
               ? none
               : sonde__onnx_emit(node, "scale", &x, 1, &factor, 1);
}

static bool build_two(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const bool divides = strcmp(op->name, "Div") == 0;
    sonde__onnx_pair in[2] = {none, none}, made = none;

    if (divides || strcmp(op->name, "Mul") == 0) {
        made = scaled(node, divides);
        if (made.model != 0 || node->import->err != SONDE_OK) {
            return sonde__onnx_give(node, 0, made);
        }
    }
    for (size_t i = 0; i < 2; i++) { /* a bias, or the scale of a norm */
        in[i] = sonde__onnx_take_own(node, i, SONDE_ROLE_ACTIVATION,
                                     strcmp(op->name, "Mul") == 0 ? "weight" : "bias");
    }
    if (in[0].model != 0 && in[1].model != 0 &&
        sonde__onnx_dtype(node, in[0]) == SONDE_I64 &&
        sonde__onnx_dtype(node, in[1]) == SONDE_I64) { /* exact up to 2^24 */
        in[0] = sonde__onnx_to(node, in[0], SONDE_F32);
        in[1] = sonde__onnx_to(node, in[1], SONDE_F32);
        made = sonde__onnx_emit(node, op->kind, in, 2, NULL, 0);
        return sonde__onnx_give(node, 0, sonde__onnx_to(node, made, SONDE_I64));
    }
    return expect_float(node, in[0]) && expect_float(node, in[1]) &&
           sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, in, 2, NULL, 0));
}

/* Sum, Max, Min and Mean of any number of values. */
static bool build_many(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const size_t count = node->proto->n_input;
    const sonde_nn_setting share =
        SONDE__ONNX_SET("value", 1.0 / (double)SONDE_MAX(count, 1));
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION)};

    for (size_t i = 1; i < count; i++) {
        in[1] = sonde__onnx_take(node, i, SONDE_ROLE_ACTIVATION);
        in[0] = sonde__onnx_emit(node, op->kind, in, 2, NULL, 0);
        if (in[0].model == 0) {
            return false;
        }
    }
    if (strcmp(op->name, "Mean") == 0) {
        in[0] = sonde__onnx_emit(node, "scale", in, 1, &share, 1);
    }
    return sonde__onnx_give(node, 0, in[0]);
}

static bool build_pow(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    sonde__onnx_pair in[2] = {x, none};
    double exponent = 0.0;
    sonde_nn_setting setting;

    if (sonde__onnx_known(node, 1) == NULL || sonde__onnx_known(node, 1)->count != 1) {
        in[1] = sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION);
        return expect_float(node, x) && expect_float(node, in[1]) &&
               sonde__onnx_give(node, 0,
                                sonde__onnx_emit(node, "float_power", in, 2, NULL, 0));
    }
    if (!read_scalar(node, 1, "the exponent", 1.0, &exponent)) {
        return false;
    }
    if (exponent == 2.0) {
        return sonde__onnx_give(node, 0, sonde__onnx_emit_one(node, "square", x));
    }
    setting = (sonde_nn_setting)SONDE__ONNX_SET("exponent", exponent);
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, &setting, 1));
}

/* Of floats, or of whole numbers; bools are compared as 0 and 1. */
static bool build_compare(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair in[2] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION),
                              sonde__onnx_take(node, 1, SONDE_ROLE_ACTIVATION)};
    const bool whole = in[0].model != 0 && in[1].model != 0 &&
                       sonde__onnx_dtype(node, in[0]) == SONDE_I64 &&
                       sonde__onnx_dtype(node, in[1]) == SONDE_I64;

    for (int i = 0; i < 2; i++) {
        in[i] = whole ? in[i] : sonde__onnx_to(node, in[i], SONDE_F32);
    }
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, in, 2, NULL, 0));
}

static bool build_where(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair in[3];

    for (size_t i = 0; i < 3; i++) {
        in[i] = sonde__onnx_take(node, i, SONDE_ROLE_ACTIVATION);
    }
    return sonde__onnx_give(node, 0, sonde__onnx_emit(node, op->kind, in, 3, NULL, 0));
}

/* --- reductions ------------------------------------------------------------------------------ */

/* The axes: an attribute, or from opset 18 (13 of ReduceSum) the second input. */
static bool read_axes(sonde__onnx_node *node, int rank, int64_t *axes, size_t *count)
{
    bool nothing = false;

    if (!sonde__onnx_ints(node, "axes", axes, SONDE_MAX_DIMS, count) ||
        (sonde__onnx_has_input(node, 1) &&
         !sonde__onnx_whole(node, 1, "axes", axes, SONDE_MAX_DIMS, count))) {
        return false;
    }
    nothing = *count == 0 && sonde__onnx_int(node, "noop_with_empty_axes", 0) != 0;
    if (nothing) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "axes", "it has no axes");
    }
    for (size_t i = 0; i < *count; i++) {
        axes[i] += axes[i] < 0 ? rank : 0;
        if (axes[i] < 0 || axes[i] >= rank) {
            return sonde__onnx_refuse(node, SONDE_EINVAL, NULL,
                                      "axis %lld of a value of %d dimensions",
                                      (long long)axes[i], rank);
        }
    }
    return true;
}

/* What is done before and after the reduction of op->kind. */
static sonde__onnx_pair around(sonde__onnx_node *node, const char *name,
                               sonde__onnx_pair x, bool before)
{
    static const struct {
        const char *op, *before, *after;
    } rows[] = {{"ReduceL1", "abs", NULL},
                {"ReduceL2", "square", "sqrt"},
                {"ReduceSumSquare", "square", NULL},
                {"ReduceLogSum", NULL, "log"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        const char *kind = before ? rows[i].before : rows[i].after;

        if (strcmp(rows[i].op, name) == 0 && kind != NULL) {
            return sonde__onnx_emit_one(node, kind, x);
        }
    }
    return x;
}

static bool build_reduce(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    sonde__onnx_number dims[SONDE_MAX_DIMS];
    int64_t axes[SONDE_MAX_DIMS];
    size_t count = 0;
    sonde_nn_setting settings[2] = {
        SONDE__ONNX_SET("keepdim", sonde__onnx_int(node, "keepdims", 1) != 0)};

    if (x.model == 0 || !expect_float(node, x) ||
        !read_axes(node, sonde__onnx_shape(node, x, dims), axes, &count)) {
        return false;
    }
    x = around(node, op->name, x, true);
    settings[1] = sonde__onnx_setting("dim", axes, count);
    x = sonde__onnx_emit(node, op->kind, &x, 1, settings, count > 0 ? 2 : 1);
    return sonde__onnx_give(node, 0, around(node, op->name, x, false));
}

static bool build_place(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    const sonde__onnx_pair x = sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION);
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("dim", sonde__onnx_int(node, "axis", 0)),
        SONDE__ONNX_SET("keepdim", sonde__onnx_int(node, "keepdims", 1) != 0)};

    if (sonde__onnx_int(node, "select_last_index", 0) != 0) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "0",
                                  "select_last_index is 1");
    }
    return sonde__onnx_give(node, 0,
                            sonde__onnx_emit(node, op->kind, &x, 1, settings, 2));
}

const sonde__onnx_op sonde__onnx_plain_ops[] = {
    {"Relu", build_one, "relu", {{0}}},
    {"Sigmoid", build_one, "sigmoid", {{0}}},
    {"Tanh", build_one, "tanh", {{0}}},
    {"Gelu", build_gelu, "gelu", {{0}}},
    {"LeakyRelu", build_one, "leaky_relu", {{"alpha", "negative_slope", 0.01}}},
    {"Elu", build_one, "elu", {{"alpha", "alpha", 1.0}}},
    {"Celu", build_one, "celu", {{"alpha", "alpha", 1.0}}},
    {"Selu", build_one, "selu", {{0}}},
    {"ThresholdedRelu",
     build_one,
     "threshold",
     {{"alpha", "threshold", 1.0}, {NULL, "value", 0.0}}},
    {"HardSigmoid", build_hard_sigmoid, "hardsigmoid", {{0}}},
    {"HardSwish", build_one, "hardswish", {{0}}},
    {"Mish", build_one, "mish", {{0}}},
    {"Softplus", build_one, "softplus", {{0}}},
    {"Softsign", build_one, "softsign", {{0}}},
    {"Clip", build_clip, "clamp", {{0}}},
    {"Softmax", build_softmax, "softmax", {{0}}},
    {"LogSoftmax", build_softmax, "log_softmax", {{0}}},
    {"Dropout", build_dropout, "dropout", {{0}}},
    {"Identity", build_same, NULL, {{0}}},
    {"Cast", build_cast, NULL, {{0}}},
    {"CastLike", build_cast_like, NULL, {{0}}},
    {"Neg", build_one, "neg", {{0}}},
    {"Abs", build_one, "abs", {{0}}},
    {"Exp", build_one, "exp", {{0}}},
    {"Log", build_one, "log", {{0}}},
    {"Sqrt", build_one, "sqrt", {{0}}},
    {"Reciprocal", build_one, "reciprocal", {{0}}},
    {"Sin", build_one, "sin", {{0}}},
    {"Cos", build_one, "cos", {{0}}},
    {"Erf", build_one, "erf", {{0}}},
    {"Tan", build_one, "tan", {{0}}},
    {"Asin", build_one, "asin", {{0}}},
    {"Acos", build_one, "acos", {{0}}},
    {"Atan", build_one, "atan", {{0}}},
    {"Sinh", build_one, "sinh", {{0}}},
    {"Cosh", build_one, "cosh", {{0}}},
    {"Asinh", build_one, "asinh", {{0}}},
    {"Atanh", build_one, "atanh", {{0}}},
    {"Sign", build_one, "sign", {{0}}},
    {"Floor", build_one, "floor", {{0}}},
    {"Ceil", build_one, "ceil", {{0}}},
    {"Round", build_one, "round", {{0}}},
    {"Mod", build_mod, NULL, {{0}}},
    {"Shrink", build_shrink, NULL, {{0}}},
    {"Pow", build_pow, "pow", {{0}}},
    {"Add", build_two, "add", {{0}}},
    {"Sub", build_two, "sub", {{0}}},
    {"Mul", build_two, "mul", {{0}}},
    {"Div", build_two, "div", {{0}}},
    {"Sum", build_many, "add", {{0}}},
    {"Mean", build_many, "add", {{0}}},
    {"Max", build_many, "maximum", {{0}}},
    {"Min", build_many, "minimum", {{0}}},
    {"Equal", build_compare, "eq", {{0}}},
    {"Less", build_compare, "lt", {{0}}},
    {"LessOrEqual", build_compare, "le", {{0}}},
    {"Greater", build_compare, "gt", {{0}}},
    {"GreaterOrEqual", build_compare, "ge", {{0}}},
    {"And", build_logic, "mul", {{0}}},
    {"Or", build_logic, "add", {{0}}},
    {"Xor", build_logic, "ne", {{0}}},
    {"Not", build_logic, "eq", {{0}}},
    {"Where", build_where, "where", {{0}}},
    {"ReduceMean", build_reduce, "mean", {{0}}},
    {"ReduceSum", build_reduce, "sum", {{0}}},
    {"ReduceMax", build_reduce, "amax", {{0}}},
    {"ReduceMin", build_reduce, "amin", {{0}}},
    {"ReduceL1", build_reduce, "sum", {{0}}},
    {"ReduceL2", build_reduce, "sum", {{0}}},
    {"ReduceSumSquare", build_reduce, "sum", {{0}}},
    {"ReduceLogSum", build_reduce, "sum", {{0}}},
    {"ReduceLogSumExp", build_reduce, "logsumexp", {{0}}},
    {"ArgMax", build_place, "argmax", {{0}}},
    {"ArgMin", build_place, "argmin", {{0}}},
    {NULL, NULL, NULL, {{0}}},
};
