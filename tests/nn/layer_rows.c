/* layer_rows.c - layers of the table, as layer_rows.h declares them. */
#include "nn/layer_rows.h"
#include "base/macros.h"

#include <math.h>
#include <string.h>

/* What a layer reads that is not alike tensors (N, 8) or images, and the numbers of a key
 * that has several. */
typedef struct special {
    const char *layer;
    sonde__op_shape in[LAYER_ROW_INPUTS];
    int values;
    double value[SONDE_MAX_DIMS];
} special;

#define FLOATS(...)                                                                      \
    {                                                                                    \
        .dtype = SONDE_F32, .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),  \
        .dim = {                                                                         \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define IDS(...)                                                                         \
    {                                                                                    \
        .dtype = SONDE_I64, .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),  \
        .dim = {                                                                         \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }

static const special specials[] = {
    {"embedding", {IDS(4, 5)}, 0, {0}},
    {"matmul", {FLOATS(4, 2, 3), FLOATS(4, 3, 5)}, 0, {0}},
    {"where", {IDS(4, 8), FLOATS(4, 8), FLOATS(4, 8)}, 0, {0}},
    {"masked_fill", {FLOATS(4, 8), IDS(4, 8)}, 0, {0}},
    {"permute", {FLOATS(4, 2, 3)}, 3, {0, 2, 1}},
    {"expand", {FLOATS(4, 1, 3)}, 3, {-1, 5, -1}},
    {"squeeze", {FLOATS(4, 1, 3)}, 0, {0}},
    {"reshape", {FLOATS(4, 2, 3)}, 2, {-1, 6}},
    {"conv1d", {FLOATS(4, 8, 9)}, 0, {0}},
    {"conv2d", {FLOATS(4, 8, 9, 9)}, 0, {0}},
    {"conv3d", {FLOATS(4, 2, 9, 9, 9)}, 0, {0}},
    {"conv_transpose1d", {FLOATS(4, 8, 9)}, 0, {0}},
    {"conv_transpose2d", {FLOATS(4, 8, 3, 3)}, 0, {0}},
    {"max_pool1d", {FLOATS(4, 2, 9)}, 0, {0}},
    {"avg_pool1d", {FLOATS(4, 2, 9)}, 0, {0}},
    {"adaptive_avg_pool1d", {FLOATS(4, 2, 9)}, 0, {0}},
    {"adaptive_max_pool1d", {FLOATS(4, 2, 9)}, 0, {0}},
    {"max_pool3d", {FLOATS(4, 2, 6, 6, 6)}, 0, {0}},
    {"avg_pool3d", {FLOATS(4, 2, 6, 6, 6)}, 0, {0}},
    {"adaptive_avg_pool3d", {FLOATS(4, 2, 6, 6, 6)}, 0, {0}},
    {"ctc_loss", {FLOATS(6, 4, 3), IDS(4, 2), IDS(4), IDS(4)}, 0, {0}},
    {"embedding_bag", {IDS(4, 5)}, 0, {0}},
    {"one_hot", {IDS(4, 3)}, 0, {0}},
    {"margin_ranking_loss", {FLOATS(4), FLOATS(4), FLOATS(4)}, 0, {0}},
    {"cosine_embedding_loss", {FLOATS(4, 8), FLOATS(4, 8), FLOATS(4)}, 0, {0}},
    {"pad", {FLOATS(4, 2, 3)}, 4, {1, 2, -1, 1}},
    {"interpolate", {FLOATS(4, 2, 3)}, 1, {5}},
    {"flip", {FLOATS(4, 2, 3)}, 2, {1, -1}},
    {"repeat", {FLOATS(4, 2, 3)}, 3, {1, 2, 3}},
    {"pixel_shuffle", {FLOATS(4, 64, 2, 2)}, 0, {0}},
    {"pixel_unshuffle", {FLOATS(4, 1, 8, 8)}, 0, {0}},
    {"gather", {FLOATS(4, 8), IDS(4, 3)}, 0, {0}},
    {"index_select", {FLOATS(4, 8), IDS(4)}, 0, {0}},
    {"scatter", {FLOATS(4, 8), IDS(4, 3), FLOATS(4, 3)}, 0, {0}},
    {"scatter_add", {FLOATS(4, 8), IDS(4, 3), FLOATS(4, 3)}, 0, {0}},
    {"index_add", {FLOATS(4, 8), IDS(4), FLOATS(4, 4)}, 0, {0}},
    {"rnn", {FLOATS(4, 3, 16)}, 0, {0}},
    {"lstm", {FLOATS(4, 3, 16)}, 0, {0}},
    {"gru", {FLOATS(4, 3, 16)}, 0, {0}},
    {"positional_embedding", {FLOATS(4, 3, 16)}, 0, {0}},
    {"multihead_attention", {FLOATS(4, 3, 16)}, 0, {0}},
    {"transformer_encoder_layer", {FLOATS(4, 3, 16)}, 0, {0}},
};

static const special *special_of(const char *layer)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(specials); i++) {
        if (strcmp(specials[i].layer, layer) == 0) {
            return &specials[i];
        }
    }
    return NULL;
}

const sonde__op_shape *layer_row_input(const sonde__op_layer *row, int i)
{
    static const sonde__op_shape alike = FLOATS(4, 8), images = FLOATS(4, 3, 6, 6);
    const special *own = special_of(row->name);

    return own != NULL                           ? &own->in[i]
           : strstr(row->name, "pool2d") != NULL ? &images
                                                 : &alike;
}

void layer_row_inputs(sonde_nn_model *model, const sonde__op_layer *row,
                      sonde_nn_value in[LAYER_ROW_INPUTS])
{
    for (int i = 0; i < row->inputs; i++) {
        const sonde__op_shape *shape = layer_row_input(row, i);

        in[i] = special_of(row->name) != NULL || i == 0
                    ? sonde_nn_input(model, shape->dtype, shape->rank, shape->dim)
                    : in[0];
    }
}

/* A value for a required key. */
static sonde_nn_setting required(const sonde__op_field *field, const special *own)
{
    static const double numbers[] = {
        [SONDE__FIELD_NUMBER] = 0.3, [SONDE__FIELD_WHOLE] = 8.0,
        [SONDE__FIELD_PAIR] = 2.0,   [SONDE__FIELD_FLAG] = 1.0,
        [SONDE__FIELD_AXIS] = 1.0,   [SONDE__FIELD_WORD] = 0.0,
        [SONDE__FIELD_DIMS] = 8.0,   [SONDE__FIELD_TRIPLE] = 2.0};
    sonde_nn_setting setting = {.key = field->key, .values = {numbers[field->kind]}};

    if (own != NULL && own->values > 0) {
        setting.count = own->values;
        memcpy(setting.values, own->value, sizeof setting.values);
    }
    return setting;
}

sonde_nn_value layer_row_build_on(sonde_nn_model *model, const sonde__op_layer *row,
                                  const sonde_nn_value in[LAYER_ROW_INPUTS])
{
    const special *own = special_of(row->name);
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    size_t count = 0;

    for (int i = 0; i < sonde__op_field_count(row); i++) {
        if (isnan(row->fields[i].fallback) ||
            (i == 0 && own != NULL && own->values > 0)) {
            settings[count++] = required(&row->fields[i], own);
        }
    }
    return sonde_nn_layer(model, row->name, "layer", in, (size_t)row->inputs, settings,
                          count);
}

sonde_nn_value layer_row_build(sonde_nn_model *model, const sonde__op_layer *row)
{
    sonde_nn_value in[LAYER_ROW_INPUTS] = {0};

    layer_row_inputs(model, row, in);
    return layer_row_build_on(model, row, in);
}
