/*
 * remap_layers.c - layers that take places from elsewhere: pad, interpolate, flip, roll,
 * repeat, repeat_interleave, pixel_shuffle and pixel_unshuffle, with PyTorch's names and
 * parameters. One op of remap.c for each dimension.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"
#include "nn/ops/remap.h"

#include <math.h>

#define DIMS(key, least, most)                                                           \
    SONDE__FIELD(key, SONDE__FIELD_DIMS, remap.dims, (double)NAN, least, most)
#define COUNT(key, member)                                                               \
    SONDE__FIELD(key, SONDE__FIELD_WHOLE, member, (double)NAN, 1, 1 << 24)

static int rank_of(const sonde__op_builder *builder, sonde__op_value x)
{
    return sonde__op_value_shape(builder->graph, x)->rank;
}

static sonde__op_value emit_remap(const sonde__op_builder *builder, int axis,
                                  sonde__op_attrs attrs, sonde__op_value x)
{
    attrs.remap.axis = axis;
    attrs.remap.rank = 0;
    return builder->emit(builder, &sonde__op_remap, &attrs, &x, 1);
}

/* --- pad ------------------------------------------------------------------------------ */

/* Of the last dimension first. */
static sonde__op_value build_pad(const sonde__op_builder *builder, sonde__op_attrs *attrs,
                                 const sonde__op_value *in)
{
    const int rank = rank_of(builder, in[0]), pairs = attrs->remap.rank / 2;
    sonde__op_value x = in[0];

    if (attrs->remap.rank % 2 != 0 || pairs > rank) {
        (void)sonde__fail(builder->diag, SONDE_EINVAL, NULL,
                          "two numbers for each dimension, the last first",
                          "%d numbers for a tensor of %d dimensions", attrs->remap.rank,
                          rank);
        return 0;
    }
    for (int i = 0; i < pairs && x != 0; i++) {
        sonde__op_attrs one = {.remap = {.map = attrs->remap.map,
                                         .number = attrs->remap.number,
                                         .before = attrs->remap.dims[2 * i],
                                         .after = attrs->remap.dims[2 * i + 1]}};

        if (one.remap.before != 0 || one.remap.after != 0) {
            x = emit_remap(builder, rank - 1 - i, one, x);
        }
    }
    return x == in[0] ? builder->emit(builder, &sonde__op_identity, NULL, in, 1) : x;
}

SONDE__LAYER(pad, remap, 1,
             "a border: two numbers for each dimension, before and after it, the last "
             "dimension first; negative ones cut off",
             .fields = {DIMS("pad", -(1 << 24), 1 << 24),
                        SONDE__FIELD_CHOICE("mode", remap.map, "constant", "reflect",
                                            "replicate", "circular"),
                        SONDE__FIELD_ANY("value", remap.number, 0.0)},
             .build = build_pad);

/* --- interpolate ---------------------------------------------------------------------- */

enum { NEAREST, LINEAR, BILINEAR, TRILINEAR, BICUBIC, NEAREST_EXACT };

static int map_of(const sonde__op_attrs *attrs)
{
    switch (attrs->remap.map) {
    case NEAREST:
        return SONDE__REMAP_NEAREST;
    case LINEAR:
    case BILINEAR:
    case TRILINEAR:
        return attrs->remap.align_corners ? SONDE__REMAP_LINEAR_CORNERS
                                          : SONDE__REMAP_LINEAR;
    case BICUBIC:
        return attrs->remap.align_corners ? SONDE__REMAP_CUBIC_CORNERS
                                          : SONDE__REMAP_CUBIC;
    default:
        return SONDE__REMAP_NEAREST_EXACT;
    }
}

/* The dimensions after (N, C), the last first: a smaller one makes less work for the next. */
static sonde__op_value build_interpolate(const sonde__op_builder *builder,
                                         sonde__op_attrs *attrs,
                                         const sonde__op_value *in)
{
    const int rank = rank_of(builder, in[0]), inner = rank - 2;
    const bool sized = attrs->remap.rank > 0, scaled = attrs->remap.number > 0.0F;
    sonde__op_value x = in[0];

    if (inner < 1 || sized == scaled ||
        (attrs->remap.rank > 1 && attrs->remap.rank != inner)) {
        (void)sonde__fail(builder->diag, SONDE_EINVAL, NULL,
                          "size or scale_factor, for the dimensions after (N, C)",
                          "an input of %d dimensions, %d sizes and scale_factor %g", rank,
                          attrs->remap.rank, (double)attrs->remap.number);
        return 0;
    }
    for (int i = inner - 1; i >= 0 && x != 0; i--) {
        sonde__op_attrs one = {
            .remap = {.map = map_of(attrs), .number = attrs->remap.number}};

        one.remap.count = sized ? attrs->remap.dims[attrs->remap.rank == 1 ? 0 : i] : 0;
        x = emit_remap(builder, 2 + i, one, x);
    }
    return x;
}

SONDE__LAYER(interpolate, remap, 1,
             "(N, C, ...) in another size, as torch.nn.Upsample; linear, bilinear and "
             "trilinear are one",
             .fields = {{.key = "size",
                         .kind = SONDE__FIELD_DIMS,
                         .offset = offsetof(sonde__op_attrs, remap.dims),
                         .least = 1,
                         .most = 1 << 24,
                         .fallback_text = "none"},
                        {.key = "scale_factor",
                         .offset = offsetof(sonde__op_attrs, remap.number),
                         .least = 1e-6,
                         .most = 1e6,
                         .fallback_text = "none"},
                        SONDE__FIELD_CHOICE("mode", remap.map, "nearest", "linear",
                                            "bilinear", "trilinear", "bicubic",
                                            "nearest-exact"),
                        SONDE__FIELD("align_corners", SONDE__FIELD_FLAG,
                                     remap.align_corners, 0.0, 0, 1)},
             .build = build_interpolate);

/* --- flip, roll, repeat --------------------------------------------------------------- */

static sonde__op_value build_flip(const sonde__op_builder *builder,
                                  sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_attrs map = {.remap = {.map = SONDE__REMAP_FLIP}};
    sonde__op_value x = in[0];

    for (int i = 0; i < attrs->remap.rank && x != 0; i++) {
        x = emit_remap(builder, (int)attrs->remap.dims[i], map, x);
    }
    return x;
}

SONDE__LAYER(flip, remap, 1, "the other way round along dimensions",
             .fields = {DIMS("dims", -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)},
             .build = build_flip);

static const sonde__op_attrs rolled = {.remap = {.map = SONDE__REMAP_ROLL}},
                             repeated = {.remap = {.map = SONDE__REMAP_REPEAT_EACH}};

SONDE__LAYER(roll, remap, 1,
             "places moved on by shifts along one dimension; the last come first",
             .preset = &rolled,
             .fields = {SONDE__FIELD("shifts", SONDE__FIELD_WHOLE, remap.before,
                                     (double)NAN, -(1 << 24), 1 << 24),
                        SONDE__FIELD("dims", SONDE__FIELD_AXIS, remap.axis, (double)NAN,
                                     -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)});

/* Counts for the last dimensions, as many as there are; leading ones of 1 may be more. */
static sonde__op_value build_repeat(const sonde__op_builder *builder,
                                    sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const int rank = rank_of(builder, in[0]);
    sonde__op_value x = in[0];

    if (attrs->remap.rank != rank) {
        (void)sonde__fail(builder->diag, SONDE_EINVAL, NULL, "one for each dimension",
                          "%d repeats of %d dimensions", attrs->remap.rank, rank);
        return 0;
    }
    for (int i = rank - 1; i >= 0 && x != 0; i--) {
        const sonde__op_attrs map = {
            .remap = {.map = SONDE__REMAP_REPEAT, .count = attrs->remap.dims[i]}};

        x = attrs->remap.dims[i] == 1 ? x : emit_remap(builder, i, map, x);
    }
    return x == in[0] ? builder->emit(builder, &sonde__op_identity, NULL, in, 1) : x;
}

SONDE__LAYER(repeat, remap, 1, "the whole tensor so many times along each dimension",
             .fields = {DIMS("repeats", 1, 1 << 24)}, .build = build_repeat);

SONDE__LAYER(repeat_interleave, remap, 1, "each place of dim so many times",
             .preset = &repeated,
             .fields = {COUNT("repeats", remap.count),
                        SONDE__FIELD("dim", SONDE__FIELD_AXIS, remap.axis, (double)NAN,
                                     -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1)});

/* --- pixel shuffle -------------------------------------------------------------------- */

static sonde__op_value emit_moved(const sonde__op_builder *builder, sonde__op_value x,
                                  const sonde__op_attrs steps[3])
{
    static const sonde__op_kind *const kinds[3] = {
        &sonde__op_reshape, &sonde__op_transpose, &sonde__op_reshape};

    for (int i = 0; i < 3 && x != 0; i++) {
        x = builder->emit(builder, kinds[i], &steps[i], &x, 1);
    }
    return x;
}

static sonde__op_value build_shuffle(const sonde__op_builder *builder,
                                     sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_shape *x = sonde__op_value_shape(builder->graph, in[0]);
    const int64_t r = attrs->remap.count, c = x->dim[1], h = x->dim[2], w = x->dim[3];

    if (sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", builder->diag) != SONDE_OK) {
        return 0;
    }
    if (r > 4096 || c % (r * r) != 0) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL,
                          "channels that upscale_factor^2 divides", "%lld channels",
                          (long long)c);
        return 0;
    }
    return emit_moved(
        builder, in[0],
        (const sonde__op_attrs[]){
            {.shape = {.rank = 6, .dims = {-1, c / (r * r), r, r, h, w}}},
            {.shape = {.rank = 6, .dims = {0, 1, 4, 2, 5, 3}}},
            {.shape = {.rank = 4, .dims = {-1, c / (r * r), h * r, w * r}}}});
}

static sonde__op_value build_unshuffle(const sonde__op_builder *builder,
                                       sonde__op_attrs *attrs, const sonde__op_value *in)
{
    const sonde__op_shape *x = sonde__op_value_shape(builder->graph, in[0]);
    const int64_t r = attrs->remap.count, c = x->dim[1], h = x->dim[2], w = x->dim[3];

    if (sonde__op_expect_rank(x, 4, "input", "(N, C, H, W)", builder->diag) != SONDE_OK) {
        return 0;
    }
    if (h % r != 0 || w % r != 0) {
        (void)sonde__fail(builder->diag, SONDE_ESHAPE, NULL,
                          "a height and a width that downscale_factor divides",
                          "%lld x %lld", (long long)h, (long long)w);
        return 0;
    }
    return emit_moved(builder, in[0],
                      (const sonde__op_attrs[]){
                          {.shape = {.rank = 6, .dims = {-1, c, h / r, r, w / r, r}}},
                          {.shape = {.rank = 6, .dims = {0, 1, 3, 5, 2, 4}}},
                          {.shape = {.rank = 4, .dims = {-1, c * r * r, h / r, w / r}}}});
}

SONDE__LAYER(pixel_shuffle, reshape, 1,
             "(N, C r², H, W) as (N, C, H r, W r), for the upscale_factor r",
             .fields = {COUNT("upscale_factor", remap.count)}, .build = build_shuffle);

SONDE__LAYER(pixel_unshuffle, reshape, 1,
             "(N, C, H r, W r) as (N, C r², H, W), for the downscale_factor r",
             .fields = {COUNT("downscale_factor", remap.count)},
             .build = build_unshuffle);
