/*
 * call.c - sizes and places of layouts, and vital signs of operands.
 */
#include "nn/kernels/call.h"
#include "base/macros.h"
#include "base/memory.h"
#include "tensor/vitals.h"

#include <assert.h>
#include <string.h>

static int64_t round_up(int64_t n, int64_t multiple)
{
    return (n + multiple - 1) / multiple * multiple;
}

int64_t sonde__op_shape_count(const sonde__op_shape *shape)
{
    return sonde__op_dims_product(shape, 0, shape->rank);
}

/* A scalar is one sample of one element. */
static int64_t samples(const sonde__op_shape *shape)
{
    return shape->rank == 0 ? 1 : shape->dim[0];
}

static int64_t inner_count(const sonde__op_shape *shape)
{
    return sonde__op_dims_product(shape, 1, shape->rank);
}

int64_t sonde__op_layout_count(const sonde__op_shape *shape, sonde__op_layout layout)
{
    if (layout == SONDE__LANES) {
        return round_up(samples(shape), SONDE__LANE_WIDTH) * inner_count(shape);
    }
    if (layout == SONDE__PANELS) {
        return samples(shape) * round_up(inner_count(shape), SONDE__PANEL_WIDTH);
    }
    assert(layout == SONDE__PLAIN);
    return sonde__op_shape_count(shape);
}

int64_t sonde__op_layout_at(const sonde__op_shape *shape, sonde__op_layout layout,
                            int64_t n, int64_t k)
{
    if (layout == SONDE__LANES) { /* [n / 16][k][n % 16] */
        return (n / SONDE__LANE_WIDTH * inner_count(shape) + k) * SONDE__LANE_WIDTH +
               n % SONDE__LANE_WIDTH;
    }
    if (layout == SONDE__PANELS) { /* [k / 32][n][k % 32] */
        return (k / SONDE__PANEL_WIDTH * samples(shape) + n) * SONDE__PANEL_WIDTH +
               k % SONDE__PANEL_WIDTH;
    }
    assert(layout == SONDE__PLAIN);
    return n * inner_count(shape) + k;
}

/* --- vital signs --------------------------------------------------------------------- */

/*
 * Vital signs of values in LANES, without bringing them into row-major
 * order: blocks are cut from memory as it is. Where N is not a multiple of 16, the lanes
 * of the last block close up in a buffer on the way.
 */
enum { LANES = SONDE__LANE_WIDTH, BLOCK = SONDE__VITALS_BLOCK, PAIR = 2 * BLOCK };

/* Elements in memory, float32 or bytes, perhaps gated. */
typedef struct source {
    const unsigned char *x;
    size_t size; /* of an element: 4 or 1 */
    const float *gate;
    sonde__kernel_gate_fn *apply;
    bool norms;
} source;

/* n elements from `at`; room is for as many. */
static const void *elements_at(const source *input, size_t offset, size_t n, float *room)
{
    const void *x = input->x + offset * input->size;

    if (input->gate == NULL) {
        return x;
    }
    input->apply(x, input->gate + offset, n, room);
    return room;
}

static void add(sonde_vitals *into, const source *input, const void *elements,
                size_t count)
{
    if (input->size == 1 && input->norms) {
        sonde__norms_add_u8(into, elements, count);
    } else if (input->size == 1) {
        sonde__vitals_add_u8(into, elements, count);
    } else if (input->norms) {
        sonde__norms_add_f32(into, elements, count);
    } else {
        sonde__vitals_add_f32(into, elements, count);
    }
}

/* The first count elements, whole blocks but for the end. */
static void add_whole(sonde_vitals *into, const source *input, size_t count)
{
    _Alignas(SONDE__ALIGN) float room[PAIR];
    const size_t most = input->gate == NULL ? count : PAIR;

    for (size_t offset = 0, n = 0; offset < count; offset += n) {
        n = SONDE_MIN(count - offset, most);
        add(into, input, elements_at(input, offset, n, room), n);
    }
}

/* Elements from `at` up to `full`, which are less than a block, followed by the first
 * `valid` of every 16. */
static void add_partial(sonde_vitals *into, const source *input, size_t offset,
                        size_t full, size_t rows, size_t valid)
{
    _Alignas(SONDE__ALIGN) unsigned char held[(BLOCK + 2 * LANES) * sizeof(float)];
    _Alignas(SONDE__ALIGN) float room[BLOCK];
    const size_t size = input->size;
    size_t count = full - offset;

    memcpy(held, elements_at(input, offset, count, room), count * size);
    for (size_t k = 0; k < rows; k++) {
        const void *row = elements_at(input, full + k * LANES, LANES, room);

        if (size == 1) {
            memcpy(held + count, row, LANES);
        } else {
            memcpy(held + count * sizeof(float), row, LANES * sizeof(float));
        }
        count += valid;
        if (count >= BLOCK) {
            add(into, input, held, BLOCK);
            count -= BLOCK;
            memcpy(held, held + BLOCK * size, LANES * size);
        }
    }
    add(into, input, held, count);
}

static void lanes_vitals(const sonde__op_shape *shape, const source *input,
                         sonde_vitals *vitals)
{
    const size_t samples = (size_t)shape->dim[0];
    const size_t inner = (size_t)sonde__op_dims_product(shape, 1, shape->rank);
    const size_t full = samples / LANES * LANES * inner, valid = samples % LANES;
    const size_t direct = valid == 0 ? full : full / BLOCK * BLOCK;

    if (input->norms) {
        sonde__norms_init(vitals);
    } else {
        sonde_vitals_init(vitals);
    }
    add_whole(vitals, input, direct);
    if (valid > 0) {
        add_partial(vitals, input, direct, full, inner, valid);
    }
}

bool sonde__kernel_has_operand_vitals(sonde_dtype dtype, sonde__op_layout layout)
{
    return layout == SONDE__PLAIN ||
           (layout == SONDE__LANES && (dtype == SONDE_F32 || dtype == SONDE_U8));
}

void sonde__kernel_operand_vitals(const sonde__operand *operand, bool norms,
                                  sonde_vitals *vitals)
{
    const sonde__op_shape *shape = &operand->shape;
    const source input = {
        .x = operand->data, .size = sonde_dtype_size(shape->dtype), .norms = norms};

    assert(sonde__kernel_has_operand_vitals(shape->dtype, operand->layout));
    if (operand->layout == SONDE__LANES && shape->rank > 0) {
        lanes_vitals(shape, &input, vitals);
    } else {
        const sonde_view view =
            sonde_view_of(shape->dtype, shape->rank, shape->dim, operand->data);

        if (norms) {
            sonde_norms_of(&view, vitals);
        } else {
            sonde_vitals_of(&view, vitals);
        }
    }
}

void sonde__kernel_gated_vitals(const sonde__operand *x, const float *gate,
                                sonde__kernel_gate_fn *apply, bool norms,
                                sonde_vitals *vitals)
{
    const source input = {x->data, sizeof(float), gate, apply, norms};

    assert(x->layout == SONDE__LANES && x->shape.dtype == SONDE_F32);
    lanes_vitals(&x->shape, &input, vitals);
}

void sonde__kernel_pad_vitals(sonde_vitals *vitals, int64_t count)
{
    sonde_vitals zeros = {.count = (uint64_t)count - vitals->count};

    zeros.zero = zeros.count;
    if (zeros.count > 0) {
        sonde_vitals_merge(vitals, &zeros);
    }
}
