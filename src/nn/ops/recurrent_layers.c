/*
 * recurrent_layers.c - the layers rnn, lstm and gru: several layers, both directions; with
 * the parameters, names and initial values of torch.nn.RNN, LSTM and GRU (batch_first).
 *
 * attrs: groups the units; kernel[0] the layers, 1 to 4; bias; relu both directions;
 * choice the cell, of rnn its function.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

enum { LSTM = 2, GRU = 3, MOST_LAYERS = 4 };

#define NAMES(end)                                                                       \
    {                                                                                    \
        "weight_ih_l" end, "weight_hh_l" end, "bias_ih_l" end, "bias_hh_l" end           \
    }
static const char *const names[MOST_LAYERS][2][4] = {
    {NAMES("0"), NAMES("0_reverse")},
    {NAMES("1"), NAMES("1_reverse")},
    {NAMES("2"), NAMES("2_reverse")},
    {NAMES("3"), NAMES("3_reverse")},
};

static int directions(const sonde__op_attrs *attrs)
{
    return attrs->recurrent.bidirectional ? 2 : 1;
}

static int recurrent_params(const sonde__op_shape *x, const sonde__op_attrs *attrs,
                            sonde__op_param params[SONDE__MAX_PARAMS])
{
    const int64_t gates = attrs->recurrent.cell == LSTM  ? 4
                          : attrs->recurrent.cell == GRU ? 3
                                                         : 1;
    const int64_t rows = gates * attrs->recurrent.units;
    const float bound = (float)(1.0 / sqrt((double)attrs->recurrent.units));
    int count = 0;

    if (x->rank != 3) {
        return 0;
    }
    for (int64_t layer = 0; layer < attrs->recurrent.layers; layer++) {
        const int64_t width =
            layer == 0 ? x->dim[2] : directions(attrs) * attrs->recurrent.units;

        for (int way = 0; way < directions(attrs); way++) {
            for (int i = 0; i < (attrs->recurrent.bias ? 4 : 2); i++) {
                params[count++] =
                    (sonde__op_param){.suffix = names[layer][way][i],
                                      .role = i < 2 ? SONDE_ROLE_WEIGHT : SONDE_ROLE_BIAS,
                                      .rank = i < 2 ? 2 : 1,
                                      .dim = {rows, i == 0   ? width
                                                    : i == 1 ? attrs->recurrent.units
                                                             : 0},
                                      .bound = bound};
            }
        }
    }
    return count;
}

static sonde__op_value build_recurrent(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int tensors = attrs->recurrent.bias ? 4 : 2;
    const sonde__op_value *next = in + 1;
    const sonde__op_attrs side_by_side = {.along = {.axis = 2}};
    sonde__op_value x = in[0];

    if (sonde__op_expect_rank(sonde__op_value_shape(builder->graph, x), 3, "input",
                              "(N, T, I)", builder->diag) != SONDE_OK) {
        return 0;
    }
    for (int64_t layer = 0; layer < attrs->recurrent.layers && x != 0; layer++) {
        sonde__op_value ways[2] = {0, 0};

        for (int way = 0; way < directions(attrs); way++) {
            const sonde__op_attrs cell = {.recurrent = {.units = attrs->recurrent.units,
                                                        .cell = attrs->recurrent.cell,
                                                        .reversed = way == 1}};
            sonde__op_value operands[5] = {x};

            for (int i = 0; i < tensors; i++) {
                operands[1 + i] = *next++;
            }
            ways[way] = builder->emit(builder, &sonde__op_recurrent, &cell, operands,
                                      1 + tensors);
            if (ways[way] == 0) {
                return 0;
            }
        }
        x = directions(attrs) == 1
                ? ways[0]
                : builder->emit(builder, &sonde__op_cat, &side_by_side, ways, 2);
    }
    return x;
}

static const sonde__op_attrs of_lstm = {.recurrent = {.cell = LSTM}},
                             of_gru = {.recurrent = {.cell = GRU}};

#define UNITS                                                                            \
    SONDE__FIELD("hidden_size", SONDE__FIELD_WHOLE, recurrent.units, (double)NAN, 1, 1e6)
#define LAYERS                                                                           \
    SONDE__FIELD("num_layers", SONDE__FIELD_WHOLE, recurrent.layers, 1.0, 1, MOST_LAYERS)
#define BIAS SONDE__FIELD("bias", SONDE__FIELD_FLAG, recurrent.bias, 1.0, 0, 1)
#define BOTH                                                                             \
    SONDE__FIELD("bidirectional", SONDE__FIELD_FLAG, recurrent.bidirectional, 0.0, 0, 1)

const sonde__op_layer sonde__layer_rnn = {
    .name = "rnn",
    .kind = &sonde__op_recurrent,
    .inputs = 1,
    .fields = {UNITS, LAYERS,
               SONDE__FIELD_CHOICE("nonlinearity", recurrent.cell, "tanh", "relu"), BIAS,
               BOTH},
    .help = "the states (N, T, H) of a recurrent network over (N, T, I)",
    .params = recurrent_params,
    .build = build_recurrent,
};

const sonde__op_layer sonde__layer_lstm = {
    .name = "lstm",
    .kind = &sonde__op_recurrent,
    .inputs = 1,
    .preset = &of_lstm,
    .fields = {UNITS, LAYERS, BIAS, BOTH},
    .help = "the states (N, T, H) of an LSTM over (N, T, I)",
    .params = recurrent_params,
    .build = build_recurrent,
};

const sonde__op_layer sonde__layer_gru = {
    .name = "gru",
    .kind = &sonde__op_recurrent,
    .inputs = 1,
    .preset = &of_gru,
    .fields = {UNITS, LAYERS, BIAS, BOTH},
    .help = "the states (N, T, H) of a GRU over (N, T, I)",
    .params = recurrent_params,
    .build = build_recurrent,
};
