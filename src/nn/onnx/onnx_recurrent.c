/*
 * onnx_recurrent.c - RNN, LSTM and GRU of ONNX as layers of ours.
 *
 * ONNX: X (T, N, I), W (D, G H, I), R (D, G H, H), B (D, 2 G H), with D directions and G
 * gates; Y (T, D, N, H), Y_h (D, N, H). Ours: x (N, T, I), and of each direction w_ih
 * (G H, I), w_hh, b_ih and b_hh, with gates in PyTorch's order; output (N, T, D H).
 *
 * Initialisers are put into our order once, under PyTorch's names (weight_ih_l0 ...);
 * weights that the graph puts together from PyTorch's are taken apart again while it runs.
 */
#include "base/macros.h"
#include "nn/onnx/onnx_ops.h"

#include <stdio.h>
#include <string.h>

static const sonde__onnx_pair none = {0, 0};

typedef struct cell {
    const char *name, *kind;
    int gates;
    int order[4]; /* of our gates: where ONNX has them */
} cell;

static const cell cells[] = {
    {"RNN", "rnn", 1, {0}},
    {"LSTM", "lstm", 4, {0, 2, 3, 1}}, /* i, f, g, o of i, o, f, c */
    {"GRU", "gru", 3, {1, 0, 2}},      /* r, z, n of z, r, h */
};

/* Rows of one direction in the order of our gates. */
typedef struct rows {
    const cell *cell;
    int64_t units, width; /* of a row */
    int64_t first;        /* row of the tensor where they begin */
} rows;

static size_t place_of(const void *user, size_t k)
{
    const rows *r = user;
    const size_t width = (size_t)r->width, units = (size_t)r->units;
    const size_t row = k / width, gate = row / units;

    return ((size_t)r->first + (size_t)r->cell->order[gate] * units + row % units) *
               width +
           k % width;
}

static sonde__onnx_pair cut(sonde__onnx_node *node, sonde__onnx_pair x, int64_t axis,
                            int64_t begin, int64_t end)
{
    const sonde_nn_setting settings[] = {SONDE__ONNX_SET("dim", axis),
                                         SONDE__ONNX_SET("start", begin),
                                         SONDE__ONNX_SET("end", end)};

    return sonde__onnx_emit(node, "slice", &x, 1, settings, 3);
}

/* The same of a value. */
static sonde__onnx_pair rows_of_value(sonde__onnx_node *node, sonde__onnx_pair x,
                                      const rows *r, int rank, int64_t all)
{
    const sonde_nn_setting axis = SONDE__ONNX_SET("dim", 0);
    sonde__onnx_number flat[2] = {{(double)all, 0.0}, {(double)r->width, 0.0}};
    sonde__onnx_pair made = none;

    x = x.model != 0 ? sonde__onnx_reshape(node, x, rank, flat) : none;
    for (int g = 0; x.model != 0 && g < r->cell->gates; g++) {
        const int64_t begin = r->first + r->cell->order[g] * r->units;
        const sonde__onnx_pair in[2] = {made, cut(node, x, 0, begin, begin + r->units)};

        made = g == 0 ? in[1] : sonde__onnx_emit(node, "cat", in, 2, &axis, 1);
        if (made.model == 0) {
            return none;
        }
    }
    return made;
}

/* Which layer of its module the node is: of the names that are taken. */
static int count_layers(const sonde__onnx_node *node)
{
    char name[32];
    int layer = 0;

    do {
        (void)snprintf(name, sizeof name, "weight_ih_l%d", layer);
    } while (!sonde__onnx_is_free(node, name) && layer++ < 99);
    return layer;
}

/* Rows of input `place` of the node: a weight of rank 2, or a bias of rank 1. */
static sonde__onnx_pair take_rows(sonde__onnx_node *node, size_t place, const rows *r,
                                  const char *suffix, int64_t all)
{
    const sonde__onnx_slot *slot = sonde__onnx_input(node, place);
    const bool bias = place == 3;
    const sonde__onnx_arrangement arrangement = {
        .suffix = suffix,
        .role = bias ? SONDE_ROLE_BIAS : SONDE_ROLE_WEIGHT,
        .rank = bias ? 1 : 2,
        .dim = {r->cell->gates * r->units, bias ? 0 : r->width},
        .place = place_of,
        .user = r};

    if (slot != NULL && slot->initial != NULL) {
        return sonde__onnx_arrange(node, place, &arrangement);
    }
    return rows_of_value(node, sonde__onnx_take(node, place, SONDE_ROLE_WEIGHT), r,
                         bias ? 1 : 2, all);
}

/* The tensors of one direction after the input; false after an error. */
static bool take_direction(sonde__onnx_node *node, const cell *c, int way, int ways,
                           int64_t inputs, int64_t units, int layer,
                           sonde__onnx_pair *out)
{
    const int64_t own = c->gates * units;
    const char *end = way == 1 ? "_reverse" : "";
    char name[4][40];
    const char *const stems[] = {"weight_ih_l", "weight_hh_l", "bias_ih_l", "bias_hh_l"};
    const bool bias = sonde__onnx_has_input(node, 3);
    rows r = {.cell = c, .units = units, .width = inputs, .first = way * own};

    for (int i = 0; i < 4; i++) {
        (void)snprintf(name[i], sizeof name[i], "%s%d%s", stems[i], layer, end);
    }
    out[0] = take_rows(node, 1, &r, name[0], ways * own);
    r.width = units;
    out[1] = take_rows(node, 2, &r, name[1], ways * own);
    r.width = 1;
    for (int half = 0; bias && half < 2; half++) {
        r.first = (2 * way + half) * own;
        out[2 + half] = take_rows(node, 3, &r, name[2 + half], 2 * ways * own);
    }
    return node->import->err == SONDE_OK;
}

/* --- what the node says --------------------------------------------------------------------- */

/* An input that must be left out or zero everywhere. */
static bool check_zero(sonde__onnx_node *node, size_t place, const char *what)
{
    const sonde__onnx_constant *known = sonde__onnx_known(node, place);
    bool zero = known != NULL;

    for (size_t i = 0; known != NULL && i < known->count; i++) {
        zero = zero && known->items[i].base == 0.0 && known->items[i].slope == 0.0;
    }
    return !sonde__onnx_has_input(node, place) || zero ||
           sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "none, or zeros", "%s", what);
}

/* The first activation, which is only asked of RNN: whether it is Relu. */
static bool is_relu(const sonde__onnx_node *node)
{
    const SondeOnnx__AttributeProto *a = sonde__onnx_attribute(node, "activations");

    return a != NULL && a->n_strings > 0 && a->strings[0].len == 4 &&
           memcmp(a->strings[0].data, "Relu", 4) == 0;
}

static bool check_node(sonde__onnx_node *node, const cell *c)
{
    const bool gru = strcmp(c->name, "GRU") == 0;

    if (gru && sonde__onnx_int(node, "linear_before_reset", 0) != 1) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "1, as PyTorch's",
                                  "linear_before_reset 0");
    }
    if (sonde__onnx_int(node, "layout", 0) != 0 ||
        sonde__onnx_int(node, "input_forget", 0) != 0 ||
        sonde__onnx_attribute(node, "clip") != NULL) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "neither",
                                  "layout 1, input_forget or clip");
    }
    if (sonde__onnx_has_input(node, 4) || sonde__onnx_has_input(node, 7)) {
        return sonde__onnx_refuse(node, SONDE_EUNSUPPORTED, "neither",
                                  "lengths of sequences, or peepholes");
    }
    return check_zero(node, 5, "a state to begin with") &&
           check_zero(node, 6, "a cell to begin with");
}

/* --- outputs -------------------------------------------------------------------------------- */

/* The last state of each direction, (D, N, H), of states (N, T, D H). */
static sonde__onnx_pair last_states(sonde__onnx_node *node, sonde__onnx_pair states,
                                    int ways, int64_t steps, int64_t units)
{
    const bool reversed = sonde__onnx_says(node, "direction", "forward", "reverse");
    static const int64_t order[] = {1, 0, 2};
    const sonde_nn_setting axis = SONDE__ONNX_SET("dim", 0);
    sonde__onnx_pair made = none;

    for (int way = 0; way < ways; way++) {
        const int64_t step = way == 0 && !reversed ? steps - 1 : 0;
        sonde__onnx_pair in[2] = {made, cut(node, states, 1, step, step + 1)};

        in[1] = ways == 1 ? in[1] : cut(node, in[1], 2, way * units, (way + 1) * units);
        in[1] = in[1].model != 0 ? sonde__onnx_permute(node, in[1], 3, order) : none;
        made = way == 0 ? in[1] : sonde__onnx_emit(node, "cat", in, 2, &axis, 1);
    }
    return made;
}

static bool give_states(sonde__onnx_node *node, sonde__onnx_pair states, int ways,
                        int64_t units)
{
    static const int64_t order[] = {1, 2, 0, 3};
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    const char *last = node->proto->n_output > 1 ? node->proto->output[1] : "";
    sonde__onnx_pair all = none;
    int64_t steps = 0;

    (void)sonde__onnx_shape(node, states, dims);
    steps = (int64_t)dims[1].base;
    dims[2] = (sonde__onnx_number){ways, 0.0};
    dims[3] = (sonde__onnx_number){(double)units, 0.0};
    if (node->proto->output[0][0] != '\0') {
        all = sonde__onnx_reshape(node, states, 4, dims);
        all = all.model != 0 ? sonde__onnx_permute(node, all, 4, order) : none;
        if (!sonde__onnx_give(node, 0, all)) {
            return false;
        }
    }
    return last[0] == '\0' ||
           sonde__onnx_give(node, 1, last_states(node, states, ways, steps, units));
}

static bool build_recurrent(sonde__onnx_node *node, const sonde__onnx_op *op)
{
    static const int64_t order[] = {1, 0, 2};
    const cell *c = strcmp(op->name, "RNN") == 0    ? &cells[0]
                    : strcmp(op->name, "LSTM") == 0 ? &cells[1]
                                                    : &cells[2];
    const int ways =
        sonde__onnx_says(node, "direction", "forward", "bidirectional") ? 2 : 1;
    const bool reversed = sonde__onnx_says(node, "direction", "forward", "reverse");
    const sonde_nn_setting time = SONDE__ONNX_SET("dims", 1);
    const bool bias = sonde__onnx_has_input(node, 3);
    const int layer = count_layers(node), each = bias ? 4 : 2;
    const int64_t units = sonde__onnx_int(node, "hidden_size", 0);
    sonde__onnx_number dims[SONDE_MAX_DIMS] = {{0}};
    sonde__onnx_pair in[9] = {sonde__onnx_take(node, 0, SONDE_ROLE_ACTIVATION)},
                     states = none;
    const sonde_nn_setting settings[] = {
        SONDE__ONNX_SET("hidden_size", units),
        SONDE__ONNX_SET("bias", bias),
        SONDE__ONNX_SET("bidirectional", ways == 2),
        {.key = "nonlinearity", .word = is_relu(node) ? "relu" : "tanh"}};

    if (in[0].model == 0 || !check_node(node, c)) {
        return false;
    }
    if (sonde__onnx_shape(node, in[0], dims) != 3 || units < 1 || units > 1000000) {
        return sonde__onnx_refuse(node, SONDE_ESHAPE, "(T, N, I), and a hidden_size",
                                  "another input, or a hidden_size of %lld",
                                  (long long)units);
    }
    in[0] = sonde__onnx_permute(node, in[0], 3, order);
    in[0] = reversed ? sonde__onnx_emit(node, "flip", in, 1, &time, 1) : in[0];
    for (int way = 0; way < ways; way++) {
        if (!take_direction(node, c, way, ways, (int64_t)dims[2].base, units, layer,
                            &in[1 + way * each])) {
            return false;
        }
    }
    states = sonde__onnx_emit(node, c->kind, in, 1 + (size_t)(ways * each), settings,
                              c == &cells[0] ? 4 : 3);
    states = reversed ? sonde__onnx_emit(node, "flip", &states, 1, &time, 1) : states;
    return states.model != 0 && give_states(node, states, ways, units);
}

const sonde__onnx_op sonde__onnx_recurrent_ops[] = {
    {"RNN", build_recurrent, NULL, {{0}}},
    {"LSTM", build_recurrent, NULL, {{0}}},
    {"GRU", build_recurrent, NULL, {{0}}},
    {NULL, NULL, NULL, {{0}}},
};
