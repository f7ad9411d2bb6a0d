/*
 * half_direct.c - convolutions in bfloat16 on processors with AVX-512 BF16 or AMX: tiles are
 * read from the image itself.
 *
 * With a stride of s an image is s * s images, its phases: rows a, a + s ... and columns b,
 * b + s ... A tap of y, or of dw, reads one phase of x; a tap of dx goes to one phase of
 * dx. With a stride of 1 there is one phase.
 *
 * The phases of the samples of a block lie one after another with zeros between: a row has
 * `pitch` places, the columns and then zeros, and an image is followed by rows of zeros.
 * The zeros after a row are also those before the next one. A tap is then the same distance
 * from every place, and place q of the result is the sum over taps t of what lies at
 * q + distance(t). Places of zeros get sums that nobody reads.
 *
 *   y, dx   pixels [phase][channels / 32][places][32] times weights in tiles of 32 channels
 *           of a tap: rows are places
 *   dw      for each tap planes of x [phase][channels][places] times dy in tiles of 32
 *           places: rows are channels; added up over blocks
 *
 * Larger images than 128 x 128 are half_conv.c's, which cuts them into strips of rows.
 *
 * Threads take samples, and of dw channels; blocks of dw depend on the shapes alone. The
 * zeros are multiplied: beside one, an infinite number gives NaN.
 */
#include "base/macros.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/fast.h"

#include <string.h>

enum { PIXELS = 1024, PIXELS_OF_WEIGHT = 2048, GROUP = 32, MOST_TAPS = 64 };
enum { MOST_PLACES = 128 * 128 /* of an image: its sums lie in scratch */ };

/* One dimension: 0 rows, 1 columns. */
typedef struct axis {
    int64_t stride;
    int64_t source, result; /* rows of the source and of the result, in all phases */
    int64_t held, made;     /* of a phase of each, at most */
    int64_t before, after;  /* rows of zeros that taps reach */
    int64_t pitch;          /* rows from a sample to the next, or places of a row */
} axis;

typedef struct conv {
    const sonde__op_call *call;
    const sonde__operand *source; /* x, or dy for the input gradient */
    bool back;                    /* the input gradient */
    int64_t samples, channels, results,
        groups; /* channels: of the source, in groups of 32 */
    int64_t kernel[2], taps;
    axis axis[2];
    int64_t image, lead,
        tail;              /* places of a sample; before the first and after the last */
    int64_t block, places; /* samples of a block at most, and their places */
    int64_t phases;        /* of the source */
} conv;

static int64_t rounded(int64_t count, int64_t unit)
{
    return (count + unit - 1) / unit * unit;
}

/* Rows that a tap is away, rounded down to whole phases, and what is left. */
static int64_t offset_of(const conv *c, int d, int64_t k)
{
    const sonde__op_attrs *const a = c->call->attrs;
    const int64_t offset = k * a->window.dilation[d] - a->window.padding[d];

    return c->back ? -offset : offset;
}

/* Of a tap: the phase that it reads or, of the input gradient, that it goes to. */
static int64_t phase_of(const conv *c, int d, int64_t k)
{
    const int64_t stride = c->axis[d].stride;
    const int64_t offset = c->back ? -offset_of(c, d, k) : offset_of(c, d, k);

    return (offset % stride + stride) % stride;
}

/* From a row of a phase of the result to the row of a phase that a tap reads. */
static int64_t step_of(const conv *c, int d, int64_t k)
{
    const int64_t phase = phase_of(c, d, k);

    return (offset_of(c, d, k) + (c->back ? phase : -phase)) / c->axis[d].stride;
}

static axis axis_of(const conv *c, int d, int64_t source, int64_t result)
{
    const int64_t stride = c->call->attrs->window.stride[d];
    axis x = {.stride = stride, .source = source, .result = result};
    conv with = *c;

    x.held = c->back ? source : (source + stride - 1) / stride;
    x.made = c->back ? (result + stride - 1) / stride : result;
    with.axis[d] = x;
    for (int64_t k = 0; k < c->kernel[d]; k++) {
        x.before = SONDE_MAX(x.before, -step_of(&with, d, k));
        x.after = SONDE_MAX(x.after, step_of(&with, d, k));
    }
    x.pitch = SONDE_MAX(x.held + x.before, x.made + x.after);
    return x;
}

/* result: its height and width. */
static conv conv_of(const sonde__op_call *call, const sonde__operand *source,
                    const sonde__op_shape *w, int64_t results, const int64_t *result,
                    bool back, int64_t pixels)
{
    const sonde__op_shape *const s = &source->shape;
    conv c = {.call = call,
              .source = source,
              .back = back,
              .samples = s->dim[0],
              .channels = s->dim[1],
              .results = results,
              .groups = (s->dim[1] + GROUP - 1) / GROUP,
              .kernel = {w->dim[2], w->dim[3]},
              .taps = w->dim[2] * w->dim[3]};

    for (int d = 0; d < 2; d++) {
        c.axis[d] = axis_of(&c, d, s->dim[2 + d], result[d]);
    }
    c.phases = back ? 1 : c.axis[0].stride * c.axis[1].stride;
    c.image = c.axis[0].pitch * c.axis[1].pitch;
    c.lead = c.axis[0].before * c.axis[1].pitch + c.axis[1].before;
    c.tail = c.axis[0].after * c.axis[1].pitch + c.axis[1].after;
    c.block = SONDE_MAX(SONDE_MIN(pixels / c.image, c.samples), (int64_t)1);
    c.places = rounded(c.block * c.image, GROUP);
    return c;
}

/* From a place of the result to what a tap reads of its phase. */
static int64_t distance(const conv *c, int64_t tap)
{
    return step_of(c, 0, tap / c->kernel[1]) * c->axis[1].pitch +
           step_of(c, 1, tap % c->kernel[1]);
}

static int64_t tap_phase(const conv *c, int64_t tap)
{
    return phase_of(c, 0, tap / c->kernel[1]) * c->axis[1].stride +
           phase_of(c, 1, tap % c->kernel[1]);
}

/* Rows or columns of a phase of `count`. */
static int64_t phase_rows(int64_t count, int64_t stride, int64_t phase)
{
    return (count - phase + stride - 1) / stride;
}

/* `count` numbers of an operand in 16 bits: where they lie, or in `room`. */
static const uint16_t *halves_at(const sonde__operand *operand, int64_t i, int64_t count,
                                 uint16_t *room)
{
    const void *const place = half_at(operand, i);

    if (operand->shape.dtype != SONDE_F32) {
        return place;
    }
    sonde__kernel_half_narrow(place, count, SONDE_BF16, room);
    return room;
}

/* --- y and dx ----------------------------------------------------------------------- */

/* What a part uses. */
typedef struct memory {
    uint16_t *pixels; /* [phases][groups][lead + places + tail][32] */
    uint16_t *
        weights; /* of each phase of the result: [results / 16][its taps, groups] tiles */
    uint16_t *room; /* numbers of the source or of the weights in 16 bits */
    uint16_t *row;  /* a row of the source, 32 channels of each column */
    uint16_t *line; /* a row of results in 16 bits */
    float *sums;    /* [places][32] */
    float *rows;    /* [32][places] */
    int64_t *at;    /* where a tile of the pixels begins, in bytes, as weights */
} memory;

static int64_t group_places(const conv *c)
{
    return c->lead + c->places + c->tail;
}

static int64_t column_tiles(const conv *c)
{
    return rounded(c->results, GROUP) / 16;
}

static size_t lay_out(const conv *c, memory *into, char *start)
{
    const int64_t room = SONDE_MAX(GROUP * c->axis[0].source * c->axis[1].source,
                                   SONDE_MAX(c->channels, c->results) * c->taps);
    const int64_t tiles = c->taps * c->groups;
    size_t used = 0;

    into->pixels = sonde__op_take(
        start, &used, c->phases * c->groups * group_places(c) * GROUP, sizeof(uint16_t));
    into->weights = sonde__op_take(
        start, &used, column_tiles(c) * tiles * SONDE__KERNEL_TILE, sizeof(uint16_t));
    into->room = sonde__op_take(start, &used, room, sizeof(uint16_t));
    into->row = sonde__op_take(start, &used, c->axis[1].source * GROUP, sizeof(uint16_t));
    into->line = sonde__op_take(start, &used, c->places, sizeof(uint16_t));
    into->sums = sonde__op_take(start, &used, c->places * GROUP, sizeof(float));
    into->rows = sonde__op_take(start, &used, c->places * GROUP, sizeof(float));
    into->at = sonde__op_take(start, &used, tiles, sizeof(int64_t));
    return used;
}

/* Taps of each phase of the result before a tap, and in all. */
static int64_t taps_before(const conv *c, int64_t phase, int64_t tap)
{
    int64_t count = 0;

    for (int64_t t = 0; t < tap; t++) {
        count += !c->back || tap_phase(c, t) == phase ? 1 : 0;
    }
    return count;
}

/* The weights (O, C, kh, kw) of the taps of a phase as tiles of B: number k of tile
 * (tap, group) is channel 32 group + k of the source. Returns how many tiles a column
 * has. */
static int64_t pack_phase(const conv *c, const sonde__operand *w, int64_t phase,
                          uint16_t *weights, int64_t *at, uint16_t *room)
{
    const int64_t tiles = taps_before(c, phase, c->taps) * c->groups;
    const int64_t outer = w->shape.dim[0], inner = w->shape.dim[1];
    int64_t place[MOST_TAPS], used = 0;

    for (int64_t t = 0; t < c->taps; t++) {
        const int64_t source = c->back ? 0 : tap_phase(c, t);

        place[t] = -1;
        if (c->back && tap_phase(c, t) != phase) {
            continue;
        }
        place[t] = used * c->groups * SONDE__KERNEL_TILE;
        for (int64_t g = 0; g < c->groups; g++) {
            at[used * c->groups + g] =
                ((source * c->groups + g) * group_places(c) + distance(c, t)) * GROUP *
                (int64_t)sizeof(uint16_t);
        }
        used++;
    }
    memset(weights, 0,
           (size_t)(column_tiles(c) * tiles * SONDE__KERNEL_TILE) * sizeof *weights);
    for (int64_t o = 0; o < outer; o++) {
        const uint16_t *from = halves_at(w, o * inner * c->taps, inner * c->taps, room);

        for (int64_t i = 0; i < inner; i++, from += c->taps) {
            const int64_t k = c->back ? o : i, column = c->back ? i : o;
            uint16_t *to = weights +
                           (column / 16 * tiles + k / GROUP) * SONDE__KERNEL_TILE +
                           k % GROUP / 2 * GROUP + column % 16 * 2 + k % 2;

            for (int64_t t = 0; t < c->taps; t++) {
                if (place[t] >= 0) {
                    to[place[t]] = from[t];
                }
            }
        }
    }
    return tiles;
}

/* A row of 32 channels: its columns to their phases. */
static void spread_row(const conv *c, const memory *m, int64_t group, int64_t sample,
                       int64_t row)
{
    const int64_t down = c->back ? 1 : c->axis[0].stride;
    const int64_t right = c->back ? 1 : c->axis[1].stride;
    const int64_t start = c->lead + sample * c->image + row / down * c->axis[1].pitch;

    for (int64_t j = 0; j < c->axis[1].source; j++) {
        const int64_t phase = row % down * right + j % right;

        memcpy(m->pixels +
                   ((phase * c->groups + group) * group_places(c) + start + j / right) *
                       GROUP,
               m->row + j * GROUP, GROUP * sizeof *m->row);
    }
}

static void take_pixels(const conv *c, const memory *m, int64_t first, int64_t samples)
{
    const sonde__kernel_half_tile_kernels *const kernels = sonde__kernel_half_tiles_of();
    const int64_t height = c->axis[0].source, width = c->axis[1].source;
    const int64_t plane = height * width;

    for (int64_t s = 0; s < samples; s++) {
        for (int64_t g = 0; g < c->groups; g++) {
            const int64_t channels = SONDE_MIN(c->channels - g * GROUP, (int64_t)GROUP);
            const uint16_t *const x =
                halves_at(c->source, ((first + s) * c->channels + g * GROUP) * plane,
                          channels * plane, m->room);
            uint16_t *const to =
                m->pixels + (g * group_places(c) + c->lead + s * c->image) * GROUP;

            for (int64_t i = 0; i < height; i++) {
                kernels->turn(x + i * width, plane, channels, width,
                              c->phases > 1 ? m->row : to + i * c->axis[1].pitch * GROUP);
                if (c->phases > 1) {
                    spread_row(c, m, g, s, i);
                }
            }
        }
    }
}

/* What a part has made of a phase of some samples. */
typedef struct made {
    int64_t first, samples; /* samples */
    int64_t phase[2];
} made;

/* Rows of a phase of a sample to the result. */
static void store_image(const conv *c, const made *b, const char *from, size_t size,
                        char *to)
{
    const int64_t down = c->back ? c->axis[0].stride : 1;
    const int64_t right = c->back ? c->axis[1].stride : 1;
    const int64_t width = c->axis[1].result;
    const int64_t rows = phase_rows(c->axis[0].result, down, b->phase[0]);
    const int64_t columns = phase_rows(width, right, b->phase[1]);

    for (int64_t i = 0; i < rows; i++) {
        const char *const row = from + (size_t)(i * c->axis[1].pitch) * size;
        char *const line =
            to + (size_t)((i * down + b->phase[0]) * width + b->phase[1]) * size;

        if (right == 1) {
            memcpy(line, row, (size_t)columns * size);
            continue;
        }
        for (int64_t j = 0; j < columns; j++) {
            memcpy(line + (size_t)(j * right) * size, row + (size_t)j * size, size);
        }
    }
}

/* Stores one result of some samples from its row of sums. */
static void store_row(const conv *c, const memory *m, const sonde__operand *out,
                      const made *b, int64_t result, const float *row)
{
    const size_t size = sonde_dtype_size(out->shape.dtype);
    const int64_t plane = c->axis[0].result * c->axis[1].result;
    const char *from = (const char *)row;

    if (out->data == NULL) {
        return;
    }
    if (out->shape.dtype != SONDE_F32) {
        sonde__kernel_half_narrow(row, b->samples * c->image, out->shape.dtype, m->line);
        from = (const char *)m->line;
    }
    for (int64_t s = 0; s < b->samples; s++) {
        const int64_t start = ((b->first + s) * c->results + result) * plane;

        store_image(c, b, from + (size_t)(s * c->image) * size, size,
                    (char *)out->data + (size_t)start * size);
    }
}

/* Results 32 group ... of a block; outs: the result and its ReLU. */
static void store_group(const conv *c, const memory *m, const sonde__operand *outs,
                        const float *bias, const made *b, int64_t group)
{
    const int64_t end = SONDE_MIN((group + 1) * GROUP, c->results);
    const int64_t places = b->samples * c->image;

    for (int64_t o = group * GROUP; o < end; o++) {
        float *const row = m->rows + o % GROUP * c->places;

        for (int64_t i = 0; bias != NULL && i < places; i++) {
            row[i] += bias[o];
        }
        store_row(c, m, &outs[0], b, o, row);
        for (int64_t i = 0; outs[1].data != NULL && i < places; i++) {
            row[i] = row[i] < 0.0F ? 0.0F : row[i];
        }
        store_row(c, m, &outs[1], b, o, row);
    }
}

/* One phase of the result, whose tiles of weights and pixels are given. */
static void run_phase(const conv *c, const memory *m, const sonde__operand *outs,
                      const float *bias, const made *b, sonde__kernel_half_tiles product)
{
    const sonde__kernel_half_tile_kernels *const kernels = sonde__kernel_half_tiles_of();
    const uint16_t *const weights = product.b;

    product.m = rounded(b->samples * c->image, GROUP);
    for (int64_t g = 0; g * GROUP < c->results; g++) {
        product.b = weights + g * 2 * product.tiles * SONDE__KERNEL_TILE;
        kernels->run(&product, sonde__cpu_half());
        kernels->turn_sums(m->sums, product.m, m->rows, c->places);
        store_group(c, m, outs, bias, b, g);
    }
}

static void run_block(const conv *c, const memory *m, const sonde__operand *outs,
                      const float *bias, int64_t first, int64_t samples)
{
    const int64_t right = c->back ? c->axis[1].stride : 1;
    const int64_t phases = c->back ? c->axis[0].stride * right : 1;
    sonde__kernel_half_tiles product = {.a = m->pixels + c->lead * GROUP,
                                        .a_row = GROUP * sizeof(uint16_t),
                                        .a_rows = 16 * GROUP * sizeof(uint16_t),
                                        .a_at = m->at,
                                        .b = m->weights,
                                        .n = GROUP,
                                        .c = m->sums,
                                        .c_row = GROUP};

    take_pixels(c, m, first, samples);
    for (int64_t phase = 0; phase < phases; phase++) {
        const made b = {first, samples, {phase / right, phase % right}};

        product.tiles = taps_before(c, phase, c->taps) * c->groups;
        run_phase(c, m, outs, bias, &b, product);
        product.a_at += product.tiles;
        product.b += column_tiles(c) * product.tiles * SONDE__KERNEL_TILE;
    }
}

/* Of a call of conv2d, or of its input gradient, which has neither bias nor ReLU. */
static void run_samples(const conv *c, int part, int parts)
{
    const sonde__op_call *const call = c->call;
    const sonde__operand none = {.shape = call->out[0].shape};
    const sonde__operand outs[2] = {call->out[0],
                                    call->out_count > 1 ? call->out[1] : none};
    const float *const bias = call->in_count > 2 ? call->in[2].data : NULL;
    const int64_t end = c->samples * (part + 1) / parts;
    const int64_t phases = c->back ? c->axis[0].stride * c->axis[1].stride : 1;
    int64_t tiles = 0;
    memory m;
    const size_t bytes = lay_out(c, &m, NULL);

    (void)lay_out(c, &m, (char *)call->scratch + bytes * (size_t)part);
    memset(m.pixels, 0,
           (size_t)(c->phases * c->groups * group_places(c) * GROUP) * sizeof *m.pixels);
    for (int64_t phase = 0; phase < phases; phase++) {
        tiles += pack_phase(c, &call->in[1], phase,
                            m.weights + column_tiles(c) * tiles * SONDE__KERNEL_TILE,
                            m.at + tiles, m.room);
    }
    for (int64_t s = c->samples * part / parts; s < end; s += c->block) {
        run_block(c, &m, outs, bias, s, SONDE_MIN(c->block, end - s));
    }
}

static size_t bytes_of(const conv *c, int parts)
{
    memory unused;

    (void)parts;
    return lay_out(c, &unused, NULL);
}

/* --- dw ----------------------------------------------------------------------------- */

typedef struct weight_memory {
    uint16_t *x;    /* [phases][32 groups of the part][line] */
    uint16_t *dy;   /* [results][places] */
    uint16_t *b;    /* dy in tiles: [results / 16][places / 32] */
    uint16_t *room; /* a plane in 16 bits */
    float *sums;    /* [taps][32 groups][results] */
    int64_t *at;    /* where tile t of x begins, in bytes */
    int64_t line;   /* an odd number of cache lines: rows lie in different sets */
} weight_memory;

static size_t lay_out_weight(const conv *c, int64_t groups, weight_memory *into,
                             char *start)
{
    const int64_t lines = rounded(c->lead + c->places + c->tail, GROUP) / GROUP;
    const int64_t plane = SONDE_MAX(c->axis[0].source * c->axis[1].source,
                                    c->axis[0].result * c->axis[1].result);
    const int64_t results = rounded(c->results, GROUP);
    size_t used = 0;

    into->line = (lines | 1) * GROUP;
    into->x = sonde__op_take(start, &used, c->phases * groups * GROUP * into->line,
                             sizeof(uint16_t));
    into->dy = sonde__op_take(start, &used, results * c->places, sizeof(uint16_t));
    into->b = sonde__op_take(start, &used, results * c->places, sizeof(uint16_t));
    into->room = sonde__op_take(start, &used, plane, sizeof(uint16_t));
    into->sums =
        sonde__op_take(start, &used, c->taps * groups * GROUP * results, sizeof(float));
    into->at = sonde__op_take(start, &used, c->places / GROUP, sizeof(int64_t));
    return used;
}

/* Planes of an operand (N, C, height, width). */
typedef struct planes {
    const sonde__operand *operand;
    int64_t height, width, down, right; /* down, right: strides from phase to phase */
} planes;

/* One plane: its phases, `apart` numbers from one another. */
static void spread_plane(const conv *c, const planes *p, const uint16_t *x, uint16_t *to,
                         int64_t apart)
{
    for (int64_t i = 0; i < p->height; i++, x += p->width) {
        uint16_t *const row =
            to + i % p->down * p->right * apart + i / p->down * c->axis[1].pitch;

        if (p->right == 1) {
            memcpy(row, x, (size_t)p->width * sizeof *x);
            continue;
        }
        for (int64_t b = 0; b < p->right; b++) {
            for (int64_t j = b; j < p->width; j += p->right) {
                row[b * apart + j / p->right] = x[j];
            }
        }
    }
}

/* Channels first ... first + count - 1 of some samples as planes of places, `line` apart. */
static void take_planes(const conv *c, const planes *p, int64_t first, int64_t count,
                        int64_t sample, int64_t samples, uint16_t *room, uint16_t *to,
                        int64_t line, int64_t apart)
{
    const int64_t plane = p->height * p->width, channels = p->operand->shape.dim[1];

    for (int64_t k = 0; k < count; k++) {
        for (int64_t s = 0; s < samples; s++) {
            const uint16_t *const x = halves_at(
                p->operand, ((sample + s) * channels + first + k) * plane, plane, room);

            spread_plane(c, p, x, to + k * line + s * c->image, apart);
        }
    }
}

/* Adds the products of some samples; groups first ... first + count - 1. */
static void add_block(const conv *c, const weight_memory *m, int64_t first, int64_t count,
                      int64_t sample, int64_t samples)
{
    const sonde__kernel_half_tile_kernels *const kernels = sonde__kernel_half_tiles_of();
    const int64_t results = rounded(c->results, GROUP);
    const int64_t channels = SONDE_MIN(count * GROUP, c->channels - first * GROUP);
    const int64_t apart = count * GROUP * m->line;
    const axis *const rows = &c->axis[0], *const columns = &c->axis[1];
    const planes x = {c->source, rows->source, columns->source, rows->stride,
                      columns->stride};
    const planes dy = {&c->call->in[0], rows->result, columns->result, 1, 1};
    sonde__kernel_half_tiles product = {.a_row = m->line * (int64_t)sizeof(uint16_t),
                                        .a_rows =
                                            16 * m->line * (int64_t)sizeof(uint16_t),
                                        .a_at = m->at,
                                        .b = m->b,
                                        .tiles = c->places / GROUP,
                                        .m = count * GROUP,
                                        .n = results,
                                        .c_row = results,
                                        .resume = sample > 0};

    take_planes(c, &x, first * GROUP, channels, sample, samples, m->room, m->x + c->lead,
                m->line, apart);
    take_planes(c, &dy, 0, c->results, sample, samples, m->room, m->dy, c->places, 0);
    for (int64_t j = 0; j < results; j += 16) {
        kernels->pack(m->dy + j * c->places, c->places, 16, product.tiles,
                      m->b + j * c->places);
    }
    for (int64_t t = 0; t < c->taps; t++) {
        product.a = m->x + tap_phase(c, t) * apart + c->lead + distance(c, t);
        product.c = m->sums + t * count * GROUP * results;
        kernels->run(&product, sonde__cpu_half());
    }
}

/* [taps][channels][results] to (O, C, kh, kw); sixteen results at a time. */
static void store_weight(const conv *c, const weight_memory *m, int64_t first,
                         int64_t count)
{
    const int64_t results = rounded(c->results, GROUP);
    const int64_t channels = SONDE_MIN(count * GROUP, c->channels - first * GROUP);
    float *const dw = c->call->out[0].data;

    for (int64_t o = 0; o < c->results; o += 16) {
        const int64_t taken_now = SONDE_MIN(c->results - o, (int64_t)16);

        for (int64_t k = 0; k < channels; k++) {
            for (int64_t t = 0; t < c->taps; t++) {
                const float *const from = m->sums + (t * count * GROUP + k) * results + o;
                float *const to =
                    dw + (o * c->channels + first * GROUP + k) * c->taps + t;

                for (int64_t i = 0; i < taken_now; i++) {
                    to[i * c->channels * c->taps] = from[i];
                }
            }
        }
    }
}

static void run_weight(const conv *c, int part, int parts)
{
    const int64_t first = c->groups * part / parts;
    const int64_t count = c->groups * (part + 1) / parts - first;
    const int64_t most = (c->groups + parts - 1) / parts;
    weight_memory m;
    const size_t bytes = lay_out_weight(c, most, &m, NULL);

    if (count == 0) {
        return;
    }
    (void)lay_out_weight(c, most, &m, (char *)c->call->scratch + bytes * (size_t)part);
    for (int64_t k = 0; k < c->places / GROUP; k++) {
        m.at[k] = k * GROUP * (int64_t)sizeof(uint16_t);
    }
    for (int64_t s = 0; s < c->samples; s += c->block) {
        const int64_t samples = SONDE_MIN(c->block, c->samples - s);

        if (s == 0 || samples < c->block) {
            memset(m.x, 0, (size_t)(c->phases * most * GROUP * m.line) * sizeof *m.x);
            memset(m.dy, 0,
                   (size_t)(rounded(c->results, GROUP) * c->places) * sizeof *m.dy);
        }
        add_block(c, &m, first, count, s, samples);
    }
    store_weight(c, &m, first, count);
}

static size_t bytes_of_weight(const conv *c, int parts)
{
    weight_memory unused;

    return lay_out_weight(c, (c->groups + parts - 1) / parts, &unused, NULL);
}

/* --- which calls -------------------------------------------------------------------- */

/* A convolution of at least 16 channels to as many: fewer leave most of a tile empty. Zeros
 * are few: a tap reaches no further than 64 rows. */
static bool fits(const sonde__op_call *call, const sonde__op_shape *source,
                 const sonde__op_shape *w)
{
    const sonde__op_attrs *const a = call->attrs;
    int64_t reach = 0;

    for (int d = 0; d < 2; d++) {
        if (w->dim[2 + d] < 1 || w->dim[2 + d] > MOST_TAPS) {
            return false;
        }
        reach = a->window.dilation[d] * (w->dim[2 + d] - 1);
        if (a->window.stride[d] > 4 || source->dim[2 + d] < 1 || reach > MOST_TAPS ||
            a->window.padding[d] > reach) {
            return false;
        }
    }
    if (source->dim[2] > MOST_PLACES / source->dim[3]) {
        return false;
    }
    return a->half == SONDE_BF16 && a->window.groups == 1 && w->dim[0] >= 16 &&
           w->dim[1] >= 16 && w->dim[2] * w->dim[3] <= MOST_TAPS && source->dim[0] > 0 &&
           sonde__kernel_half_tiles_of() != NULL;
}

static bool takes_two(const sonde__op_call *call)
{
    return fits(call, &call->in[0].shape, &call->in[1].shape);
}

static bool takes_weight(const sonde__op_call *call)
{
    const sonde__op_attrs *const a = call->attrs;
    const sonde__op_shape w = {.dim = {a->window.dims[0], a->window.dims[1],
                                       a->window.dims[2], a->window.dims[3]}};

    return a->wide && fits(call, &call->in[1].shape, &w);
}

/* --- the kernels -------------------------------------------------------------------- */

static conv conv2d_of(const sonde__op_call *call)
{
    const sonde__op_shape *const w = &call->in[1].shape;
    const sonde__op_shape *const y = &call->out[call->out_count > 1 ? 1 : 0].shape;

    return conv_of(call, &call->in[0], w, w->dim[0], y->dim + 2, false, PIXELS);
}

static conv grad_input_of(const sonde__op_call *call)
{
    const sonde__op_shape *const w = &call->in[1].shape;

    return conv_of(call, &call->in[0], w, w->dim[1], call->out[0].shape.dim + 2, true,
                   PIXELS);
}

static conv grad_weight_of(const sonde__op_call *call)
{
    const sonde__op_shape *const dy = &call->in[0].shape;

    return conv_of(call, &call->in[1], &call->out[0].shape, dy->dim[1], dy->dim + 2,
                   false, PIXELS_OF_WEIGHT);
}

/* most: units that parts take. */
static int parts_of(const conv *c, int64_t most, int max)
{
    const int64_t pixels = c->back ? c->axis[0].source * c->axis[1].source
                                   : c->axis[0].result * c->axis[1].result;

    return half_parts(SONDE_BF16,
                      (double)(c->samples * pixels) * (double)(c->channels * c->results) *
                          (double)c->taps,
                      most, max);
}

#define KERNEL(shaped, takes, units, bytes, runs)                                        \
    static int shaped##_parts(const sonde__op_call *call, int max)                       \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
                                                                                         \
        return parts_of(&c, units, max);                                                 \
    }                                                                                    \
    static size_t shaped##_scratch(const sonde__op_call *call, int parts)                \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
                                                                                         \
        return bytes(&c, parts) * (size_t)parts;                                         \
    }                                                                                    \
    static void shaped##_run(const sonde__op_call *call, int part, int parts)            \
    {                                                                                    \
        const conv c = shaped##_of(call);                                                \
                                                                                         \
        runs(&c, part, parts);                                                           \
    }                                                                                    \
    const sonde__op_kernel sonde__kernel_##shaped##_direct = SONDE__HALF_KERNEL(         \
        "direct", takes, shaped##_scratch, shaped##_parts, shaped##_run);

KERNEL(conv2d, takes_two, c.samples, bytes_of, run_samples)
KERNEL(grad_input, takes_two, c.samples, bytes_of, run_samples)
KERNEL(grad_weight, takes_weight, c.groups, bytes_of_weight, run_weight)
