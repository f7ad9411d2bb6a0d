/*
 * onnx_fold.c - nodes that are computed at import: of shapes and of constants.
 *
 * Numbers are base + slope N (onnx_state.h). Sums keep the form, and so do products with a
 * number that has no slope; everything else refuses a slope. Integer division cuts towards
 * zero, as ONNX does.
 */
#include "base/macros.h"
#include "base/memory.h"
#include "nn/onnx/onnx_constant.h"
#include "nn/onnx/onnx_ops.h"

#include <math.h>
#include <string.h>

typedef sonde__onnx_number number;
typedef sonde__onnx_constant constant;

/* --- shapes -------------------------------------------------------------------------------- */

/* The dims of input 0, whether it is a constant or a value. */
static bool shape_of(sonde__onnx_node *node, int *rank, number dim[SONDE_MAX_DIMS])
{
    sonde__onnx_slot *slot = sonde__onnx_input(node, 0);

    if (slot == NULL) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "it lacks its input");
    }
    if (slot->value.model != 0) {
        *rank = sonde__onnx_shape(node, slot->value, dim);
        return true;
    }
    if (slot->constant == NULL && slot->initial != NULL &&
        slot->initial->n_dims <= SONDE_MAX_DIMS) {
        *rank = (int)slot->initial->n_dims;
        for (int i = 0; i < *rank; i++) {
            dim[i] = (number){(double)slot->initial->dims[i], 0.0};
        }
        return true;
    }
    if (slot->constant == NULL) {
        return sonde__onnx_refuse(node, SONDE_EINVAL, NULL, "its input has no shape");
    }
    *rank = slot->constant->rank;
    memcpy(dim, slot->constant->dim, sizeof slot->constant->dim);
    return true;
}

static int64_t limit(int64_t place, int rank)
{
    place += place < 0 ? rank : 0;
    return SONDE_MIN(SONDE_MAX(place, 0), rank);
}

static constant *fold_shape(sonde__onnx_node *node, bool all)
{
    number dim[SONDE_MAX_DIMS] = {{0}};
    constant *made = NULL;
    int64_t begin = 0, end = 0;
    int rank = 0;

    if (!shape_of(node, &rank, dim)) {
        return NULL;
    }
    if (all) { /* Size */
        made = sonde__onnx_constant_make(node, SONDE__ONNX_INT64, 0, NULL);
        for (int i = 0; made != NULL && i < rank; i++) {
            number *n = &made->items[0];

            *n = i == 0 ? dim[0]
                 : n->slope != 0.0 || dim[i].slope != 0.0
                     ? (number){n->base * dim[i].base,
                                n->slope * dim[i].base + n->base * dim[i].slope}
                     : (number){n->base * dim[i].base, 0.0};
        }
        if (made != NULL && rank == 0) {
            made->items[0].base = 1.0;
        }
        return made;
    }
    begin = limit(sonde__onnx_int(node, "start", 0), rank);
    end = limit(sonde__onnx_int(node, "end", rank), rank);
    made = sonde__onnx_list(node, SONDE__ONNX_INT64, (size_t)SONDE_MAX(end - begin, 0));
    for (int64_t i = begin; made != NULL && i < end; i++) {
        made->items[i - begin] = dim[i];
    }
    return made;
}

/* --- constants as they stand ------------------------------------------------------------------ */

static constant *fold_constant(const sonde__onnx_node *node)
{
    const SondeOnnx__AttributeProto *a =
        node->proto->n_attribute == 1 ? node->proto->attribute[0] : NULL;
    const char *name = a != NULL && a->name != NULL ? a->name : "";
    constant *made = NULL;

    if (strcmp(name, "value") == 0 && a->t != NULL) {
        return sonde__onnx_read(node, a->t);
    }
    if (strcmp(name, "value_int") == 0 || strcmp(name, "value_float") == 0) {
        const bool real = strcmp(name, "value_float") == 0;

        made = sonde__onnx_constant_make(
            node, real ? SONDE__ONNX_FLOAT : SONDE__ONNX_INT64, 0, NULL);
        if (made != NULL) {
            made->items[0].base = real ? (double)a->f : (double)a->i;
        }
        return made;
    }
    if (strcmp(name, "value_ints") == 0 || strcmp(name, "value_floats") == 0) {
        const bool real = strcmp(name, "value_floats") == 0;

        made = sonde__onnx_list(node, real ? SONDE__ONNX_FLOAT : SONDE__ONNX_INT64,
                                real ? a->n_floats : a->n_ints);
        for (size_t i = 0; made != NULL && i < made->count; i++) {
            made->items[i].base = real ? (double)a->floats[i] : (double)a->ints[i];
        }
        return made;
    }
    return sonde__onnx_no_constant(node, "a constant that is no tensor of numbers");
}

/* --- numbers ----------------------------------------------------------------------------------- */

/* What two numbers make; false: not with a slope. */
static bool combine(const char *op, bool whole, number a, number b, number *out)
{
    const bool fixed = sonde__onnx_fixed(a) && sonde__onnx_fixed(b);
    double y = 0.0;

    if (strcmp(op, "Add") == 0 || strcmp(op, "Sub") == 0) {
        const double sign = op[0] == 'A' ? 1.0 : -1.0;

        *out = (number){a.base + sign * b.base, a.slope + sign * b.slope};
        return true;
    }
    if (strcmp(op, "Mul") == 0 && (sonde__onnx_fixed(a) || sonde__onnx_fixed(b))) {
        *out = (number){a.base * b.base, a.slope * b.base + a.base * b.slope};
        return true;
    }
    if (strcmp(op, "Div") == 0 && sonde__onnx_fixed(b) && b.base != 0.0 &&
        !sonde__onnx_fixed(a)) {
        *out = (number){a.base / b.base, a.slope / b.base};
        return !whole || (fmod(a.base, b.base) == 0.0 && fmod(a.slope, b.base) == 0.0);
    }
    if (strcmp(op, "Equal") == 0 && !fixed) {
        /* a dimension of the batch is no fixed number but by chance */
        *out = (number){a.base == b.base && a.slope == b.slope, 0.0};
        return true;
    }
    if (!fixed || (whole && b.base == 0.0 && (op[0] == 'D' || strcmp(op, "Mod") == 0))) {
        return false;
    }
    y = strcmp(op, "Div") == 0              ? a.base / b.base
        : strcmp(op, "Mod") == 0            ? a.base - b.base * floor(a.base / b.base)
        : strcmp(op, "Pow") == 0            ? pow(a.base, b.base)
        : strcmp(op, "Max") == 0            ? fmax(a.base, b.base)
        : strcmp(op, "Min") == 0            ? fmin(a.base, b.base)
        : strcmp(op, "Equal") == 0          ? a.base == b.base
        : strcmp(op, "Less") == 0           ? a.base < b.base
        : strcmp(op, "LessOrEqual") == 0    ? a.base <= b.base
        : strcmp(op, "Greater") == 0        ? a.base > b.base
        : strcmp(op, "GreaterOrEqual") == 0 ? a.base >= b.base
        : strcmp(op, "And") == 0            ? a.base != 0.0 && b.base != 0.0
        : strcmp(op, "Or") == 0             ? a.base != 0.0 || b.base != 0.0
                                            : (a.base != 0.0) != (b.base != 0.0);
    *out = (number){whole ? trunc(y) : y, 0.0};
    return true;
}

static bool is_comparison(const char *op)
{
    static const char *const names[] = {
        "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "And", "Or", "Xor"};

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        if (strcmp(names[i], op) == 0) {
            return true;
        }
    }
    return false;
}

static constant *fold_two(const sonde__onnx_node *node, const constant *a,
                          const constant *b)
{
    const char *op = node->proto->op_type;
    const bool whole = sonde__onnx_is_whole_type(a->type);
    int64_t dim[SONDE_MAX_DIMS];
    constant *made = NULL;
    int rank = 0;

    if (a->uniform && b->rank == 0) { /* keeps dims that depend on the batch */
        made = sonde__onnx_copy(node, a);
        if (made != NULL &&
            !combine(op, whole, a->items[0], b->items[0], &made->items[0])) {
            sonde__free(made);
            return sonde__onnx_no_constant(node, "a number that depends on the batch");
        }
        return made;
    }
    if (!sonde__onnx_broadcast(a, b, &rank, dim)) {
        return sonde__onnx_no_constant(node, "constants whose shapes do not broadcast");
    }
    made = sonde__onnx_constant_make(node, is_comparison(op) ? SONDE__ONNX_BOOL : a->type,
                                     rank, dim);
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        if (!combine(op, whole && !is_comparison(op),
                     sonde__onnx_item(a, sonde__onnx_place(a, rank, dim, i)),
                     sonde__onnx_item(b, sonde__onnx_place(b, rank, dim, i)),
                     &made->items[i])) {
            sonde__free(made);
            return sonde__onnx_no_constant(
                node, "a division by 0, or a number that depends on the batch");
        }
    }
    return made;
}

static constant *fold_many(const sonde__onnx_node *node, const constant *const *in,
                           size_t count)
{
    constant *made = sonde__onnx_copy(node, in[0]);

    for (size_t i = 1; made != NULL && i < count; i++) {
        constant *next = in[i] != NULL
                             ? fold_two(node, made, in[i])
                             : sonde__onnx_no_constant(node, "an input is left out");

        sonde__free(made);
        made = next;
    }
    return made;
}

static double one_number(const char *op, double x)
{
    return strcmp(op, "Neg") == 0          ? -x
           : strcmp(op, "Abs") == 0        ? fabs(x)
           : strcmp(op, "Sqrt") == 0       ? sqrt(x)
           : strcmp(op, "Reciprocal") == 0 ? 1.0 / x
           : strcmp(op, "Floor") == 0      ? floor(x)
           : strcmp(op, "Ceil") == 0       ? ceil(x)
           : strcmp(op, "Round") == 0      ? nearbyint(x)
           : strcmp(op, "Exp") == 0        ? exp(x)
           : strcmp(op, "Log") == 0        ? log(x)
           : strcmp(op, "Sin") == 0        ? sin(x)
           : strcmp(op, "Cos") == 0        ? cos(x)
           : strcmp(op, "Not") == 0        ? (x == 0.0)
                                           : (double)((x > 0.0) - (x < 0.0));
}

static constant *fold_one(const sonde__onnx_node *node, const constant *const *in,
                          size_t count)
{
    const char *op = node->proto->op_type;
    constant *made = sonde__onnx_copy(node, in[0]);

    (void)count;
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        number *n = &made->items[i];

        if (strcmp(op, "Neg") == 0) {
            *n = (number){-n->base, -n->slope};
        } else if (sonde__onnx_fixed(*n)) {
            n->base = one_number(op, n->base);
        } else if (strcmp(op, "Floor") != 0 && strcmp(op, "Ceil") != 0) {
            sonde__free(made);
            return sonde__onnx_no_constant(node, "a number that depends on the batch");
        }
    }
    return made;
}

static constant *fold_cast(const sonde__onnx_node *node, const constant *const *in,
                           size_t count)
{
    const int type = (int)sonde__onnx_int(node, "to", SONDE__ONNX_FLOAT);
    const bool whole = sonde__onnx_is_whole_type(type);
    constant *made = sonde__onnx_copy(node, in[0]);

    (void)count;
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        number *n = &made->items[i];

        if (type == SONDE__ONNX_BOOL) {
            *n = (number){n->base != 0.0 || n->slope != 0.0, 0.0};
        } else if (whole && sonde__onnx_fixed(*n)) {
            n->base = trunc(n->base);
        }
    }
    if (made != NULL) {
        made->type = type;
    }
    return made;
}

static constant *fold_where(const sonde__onnx_node *node, const constant *const *in,
                            size_t count)
{
    int64_t dim[SONDE_MAX_DIMS], both[SONDE_MAX_DIMS];
    constant joined = {.rank = 0}, *made = NULL;
    int rank = 0, all = 0;

    if (count != 3 || !sonde__onnx_broadcast(in[1], in[2], &rank, dim)) {
        return sonde__onnx_no_constant(node, "constants whose shapes do not broadcast");
    }
    joined.rank = rank;
    for (int i = 0; i < rank; i++) {
        joined.dim[i].base = (double)dim[i];
    }
    if (!sonde__onnx_broadcast(in[0], &joined, &all, both)) {
        return sonde__onnx_no_constant(node, "constants whose shapes do not broadcast");
    }
    made = sonde__onnx_constant_make(node, in[1]->type, all, both);
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        const number asked =
            sonde__onnx_item(in[0], sonde__onnx_place(in[0], all, both, i));
        const constant *taken = in[asked.base != 0.0 ? 1 : 2];

        made->items[i] = sonde__onnx_item(taken, sonde__onnx_place(taken, all, both, i));
    }
    return made;
}

static constant *fold_range(const sonde__onnx_node *node, const constant *const *in,
                            size_t count)
{
    double begin = 0.0, step = 0.0, length = 0.0;
    constant *made = NULL;

    if (count != 3 || !sonde__onnx_fixed(in[0]->items[0]) ||
        !sonde__onnx_fixed(in[1]->items[0]) || !sonde__onnx_fixed(in[2]->items[0])) {
        return sonde__onnx_no_constant(node, "a range that depends on the batch");
    }
    begin = in[0]->items[0].base;
    step = in[2]->items[0].base;
    length = step != 0.0 ? ceil((in[1]->items[0].base - begin) / step) : -1.0;
    if (!(length <= (double)SONDE__ONNX_MOST_FOLDED) || step == 0.0) {
        return sonde__onnx_no_constant(node, "a range of more than 65,536 numbers");
    }
    made = sonde__onnx_list(node, in[0]->type, (size_t)fmax(length, 0.0));
    for (size_t i = 0; made != NULL && i < made->count; i++) {
        made->items[i].base = begin + step * (double)i;
    }
    return made;
}

/* The product (or sum, largest, smallest) of all elements. */
static constant *fold_reduce(const sonde__onnx_node *node, const constant *const *in,
                             size_t count)
{
    const char *op = node->proto->op_type;
    const char *step = strcmp(op, "ReduceProd") == 0  ? "Mul"
                       : strcmp(op, "ReduceSum") == 0 ? "Add"
                       : strcmp(op, "ReduceMax") == 0 ? "Max"
                                                      : "Min";
    constant *made = NULL;

    (void)count;
    if (in[0]->rank > 1 || in[0]->count == 0 || in[0]->uniform) {
        return sonde__onnx_no_constant(node,
                                       "a reduction of a constant of several dimensions");
    }
    made = sonde__onnx_constant_make(
        node, in[0]->type, sonde__onnx_int(node, "keepdims", 1) != 0 ? in[0]->rank : 0,
        (int64_t[]){1});
    for (size_t i = 0; made != NULL && i < in[0]->count; i++) {
        if (i == 0) {
            made->items[0] = in[0]->items[0];
        } else if (!combine(step, false, made->items[0], in[0]->items[i],
                            &made->items[0])) {
            sonde__free(made);
            return sonde__onnx_no_constant(node, "a number that depends on the batch");
        }
    }
    return made;
}

/* --- the table ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    sonde__onnx_folding fold;
} folds[] = {
    {"Add", fold_many},
    {"Sub", fold_many},
    {"Mul", fold_many},
    {"Div", fold_many},
    {"Mod", fold_many},
    {"Pow", fold_many},
    {"Max", fold_many},
    {"Min", fold_many},
    {"Equal", fold_many},
    {"Less", fold_many},
    {"LessOrEqual", fold_many},
    {"Greater", fold_many},
    {"GreaterOrEqual", fold_many},
    {"And", fold_many},
    {"Or", fold_many},
    {"Xor", fold_many},
    {"Neg", fold_one},
    {"Abs", fold_one},
    {"Sqrt", fold_one},
    {"Reciprocal", fold_one},
    {"Floor", fold_one},
    {"Ceil", fold_one},
    {"Round", fold_one},
    {"Exp", fold_one},
    {"Log", fold_one},
    {"Sin", fold_one},
    {"Cos", fold_one},
    {"Not", fold_one},
    {"Sign", fold_one},
    {"Cast", fold_cast},
    {"Where", fold_where},
    {"Range", fold_range},
    {"ReduceProd", fold_reduce},
    {"ReduceSum", fold_reduce},
    {"ReduceMax", fold_reduce},
    {"ReduceMin", fold_reduce},
    {"Concat", sonde__onnx_fold_concat},
    {"Slice", sonde__onnx_fold_slice},
    {"Trilu", sonde__onnx_fold_triangle},
    {"ConstantOfShape", sonde__onnx_fold_moved},
    {"Squeeze", sonde__onnx_fold_moved},
    {"Transpose", sonde__onnx_fold_moved},
    {"Identity", sonde__onnx_fold_moved},
    {"Reshape", sonde__onnx_fold_moved},
    {"Unsqueeze", sonde__onnx_fold_moved},
    {"Gather", sonde__onnx_fold_moved},
    {"Expand", sonde__onnx_fold_moved},
};

/* Those that there are only of constants. */
const sonde__onnx_op sonde__onnx_fold_ops[] = {
    {"Shape", NULL, NULL, {{0}}},           {"Size", NULL, NULL, {{0}}},
    {"Constant", NULL, NULL, {{0}}},        {"Range", NULL, NULL, {{0}}},
    {"ConstantOfShape", NULL, NULL, {{0}}}, {"ReduceProd", NULL, NULL, {{0}}},
    {"Trilu", NULL, NULL, {{0}}},           {NULL, NULL, NULL, {{0}}},
};

/* Whether several numbers are repeated over the batch: the network does that. */
static bool widens_with_batch(const constant *const *in, size_t count)
{
    bool depends = false;

    for (size_t i = 0; count == 2 && !in[1]->uniform && i < in[1]->count; i++) {
        depends = depends || !sonde__onnx_fixed(in[1]->items[i]);
    }
    return depends && in[0]->count > 1;
}

int sonde__onnx_fold(sonde__onnx_node *node)
{
    const char *op = node->proto->op_type;
    const constant *in[SONDE__ONNX_MOST] = {NULL};
    const size_t count = node->proto->n_input;
    sonde__onnx_folding fold = NULL;

    if (strcmp(op, "Shape") == 0 || strcmp(op, "Size") == 0) {
        return sonde__onnx_give_constant(node, 0, fold_shape(node, op[1] == 'i')) ? 1
                                                                                  : -1;
    }
    if (strcmp(op, "Constant") == 0) {
        return sonde__onnx_give_constant(node, 0, fold_constant(node)) ? 1 : -1;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(folds); i++) {
        fold = strcmp(folds[i].name, op) == 0 ? folds[i].fold : fold;
    }
    if ((fold == NULL && strcmp(op, "CastLike") != 0) || count == 0 ||
        count > SONDE__ONNX_MOST) {
        return 0;
    }
    if (strcmp(op, "CastLike") == 0) { /* the type of a value is not asked */
        in[0] = sonde__onnx_known(node, 0);
        return in[0] == NULL                                                       ? 0
               : sonde__onnx_give_constant(node, 0, sonde__onnx_copy(node, in[0])) ? 1
                                                                                   : -1;
    }
    for (size_t i = 0; i < count; i++) {
        in[i] = sonde__onnx_known(node, i);
        if (in[i] == NULL && (i == 0 || sonde__onnx_has_input(node, i))) {
            return node->import->err == SONDE_OK ? 0 : -1;
        }
    }
    if (fold == sonde__onnx_fold_moved && strcmp(op, "Expand") == 0 &&
        widens_with_batch(in, count)) {
        return 0;
    }
    return sonde__onnx_give_constant(node, 0, fold(node, in, count)) ? 1 : -1;
}
