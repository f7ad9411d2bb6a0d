/*
 * pictures.c - see pictures.h.
 */
#include "plot/pictures.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/colour.h"
#include "plot/ticks.h"

#include <math.h>
#include <stdio.h>

/* --- axes --------------------------------------------------------------------------- */

static bool is_colour_axis(int64_t size)
{
    return size == 1 || size == 3;
}

/* Where image, channel, row and column stand among the view's axes; -1: nowhere. */
static bool find_axes(const sonde_view *view, bool batch, int axis[4])
{
    const int first = batch ? 1 : 0;

    axis[0] = batch ? 0 : -1;
    if (view->rank == first + 2) {
        axis[1] = -1;
        axis[2] = first;
        axis[3] = first + 1;
        return true;
    }
    if (view->rank != first + 3) {
        return false;
    }
    if (is_colour_axis(view->shape[first])) {
        axis[1] = first;
        axis[2] = first + 1;
        axis[3] = first + 2;
        return true;
    }
    axis[1] = first + 2;
    axis[2] = first;
    axis[3] = first + 1;
    return is_colour_axis(view->shape[first + 2]);
}

sonde_err sonde__plot_pictures_of(const sonde_view *view, bool batch, const char *where,
                                  sonde__plot_pictures *out, sonde_diag *diag)
{
    const char *const expected =
        batch ? "(N, H, W), (N, C, H, W) or (N, H, W, C) with C 1 or 3"
              : "(H, W), (C, H, W) or (H, W, C) with C 1 or 3";
    int64_t size[4] = {1, 1, 1, 1}, step[4] = {0};
    int axis[4] = {0};
    char shape[160] = "";

    if (sonde_dtype_size(view->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, where, NULL, "no dtype has number %d",
                           (int)view->dtype);
    }
    if (view->rank < 0 || view->rank > SONDE_MAX_DIMS || !find_axes(view, batch, axis)) {
        return sonde__fail(
            diag, SONDE_ESHAPE, where, expected, "shape %s",
            sonde_shape_text(SONDE_MAX(view->rank, 0), view->shape, shape, sizeof shape));
    }
    for (int i = 0; i < 4; i++) {
        if (axis[i] >= 0) {
            size[i] = view->shape[axis[i]];
            step[i] = view->stride[axis[i]];
        }
        if (size[i] < 1 || (i >= 2 && size[i] > 1 << 20)) {
            return sonde__fail(
                diag, SONDE_ESHAPE, where, "at least one image of at least one pixel",
                "shape %s",
                sonde_shape_text(view->rank, view->shape, shape, sizeof shape));
        }
    }
    if (view->data == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, where, NULL, "the view has no data");
    }
    *out = (sonde__plot_pictures){.view = view,
                                  .count = size[0],
                                  .channels = size[1],
                                  .height = size[2],
                                  .width = size[3],
                                  .step = {step[0], step[1], step[2], step[3]}};
    return SONDE_OK;
}

static double value_at(const sonde__plot_pictures *p, int64_t i, int64_t channel,
                       int64_t y, int64_t x)
{
    const int64_t element =
        i * p->step[0] + channel * p->step[1] + y * p->step[2] + x * p->step[3];
    const char *const data = p->view->data;
    const int64_t size = (int64_t)sonde_dtype_size(p->view->dtype);

    return sonde_element_get(p->view->dtype, data + element * size);
}

/* --- range -------------------------------------------------------------------------- */

typedef struct census {
    double low, high; /* of the finite values; low > high if there are none */
    sonde__plot_oddities odd;
} census;

static census count_values(const sonde__plot_pictures *p, int64_t first, int64_t last)
{
    census c = {INFINITY, -INFINITY, {0, 0}};

    for (int64_t i = first; i < last; i++) {
        for (int64_t channel = 0; channel < p->channels; channel++) {
            for (int64_t y = 0; y < p->height; y++) {
                for (int64_t x = 0; x < p->width; x++) {
                    const double value = value_at(p, i, channel, y, x);

                    if (isfinite(value)) {
                        c.low = SONDE_MIN(c.low, value);
                        c.high = SONDE_MAX(c.high, value);
                    } else if (isnan(value)) {
                        c.odd.nan++;
                    } else {
                        c.odd.infinite++;
                    }
                }
            }
        }
    }
    return c;
}

sonde_err sonde__plot_span_of(const sonde__plot_pictures *pictures, int64_t first,
                              int64_t last, double low, double high, const char *where,
                              sonde__plot_span *span, sonde_diag *diag)
{
    const bool colour = pictures->channels == 3;
    const bool real = sonde_dtype_is_float(pictures->view->dtype);

    if (!isfinite(low) || !isfinite(high) || low > high) {
        return sonde__fail(diag, SONDE_EINVAL, where, "low < high, or both 0",
                           "a range from %g to %g", low, high);
    }
    if (low < high) {
        *span = (sonde__plot_span){low, high};
        return SONDE_OK;
    }
    if (colour && pictures->view->dtype == SONDE_U8) {
        *span = (sonde__plot_span){0, 255};
        return SONDE_OK;
    }
    const census c = count_values(pictures, first, last);
    if (c.low > c.high || (colour && real && c.low >= 0 && c.high <= 1)) {
        *span =
            (sonde__plot_span){0, 1}; /* also of nothing finite: all is marked anyway */
    } else {
        *span = (sonde__plot_span){c.low, c.high};
    }
    return SONDE_OK;
}

sonde__plot_oddities sonde__plot_oddities_of(const sonde__plot_pictures *pictures,
                                             int64_t first, int64_t last)
{
    if (!sonde_dtype_is_float(pictures->view->dtype)) {
        return (sonde__plot_oddities){0, 0};
    }
    return count_values(pictures, first, last).odd;
}

const char *sonde__plot_oddities_text(sonde__plot_oddities odd, char *buf, size_t size)
{
    char nan[40] = "", infinite[40] = "";

    (void)sonde__plot_grouped(odd.nan, nan, sizeof nan);
    (void)sonde__plot_grouped(odd.infinite, infinite, sizeof infinite);
    buf[0] = '\0';
    if (odd.nan > 0 && odd.infinite > 0) {
        (void)snprintf(buf, size, "%s NaN (magenta) and %s infinite values", nan,
                       infinite);
    } else if (odd.nan > 0) {
        (void)snprintf(buf, size, "%s NaN values (magenta)", nan);
    } else if (odd.infinite > 0) {
        (void)snprintf(buf, size, "%s infinite values", infinite);
    }
    return buf;
}

/* --- pixels ------------------------------------------------------------------------- */

/* Mean of a channel over rows y0 ... y1 - 1, columns x0 ... x1 - 1, as part of the span;
 * NaN if one of them is. */
static double mean_part(const sonde__plot_pictures *p, int64_t i, int64_t channel,
                        const int64_t y[2], const int64_t x[2], sonde__plot_span span)
{
    double sum = 0;

    for (int64_t row = y[0]; row < y[1]; row++) {
        for (int64_t column = x[0]; column < x[1]; column++) {
            const double value = value_at(p, i, channel, row, column);
            const double clamped = SONDE_MIN(SONDE_MAX(value, span.low), span.high);

            if (isnan(value)) {
                return NAN;
            }
            sum += span.high > span.low
                       ? (clamped / 2 - span.low / 2) / (span.high / 2 - span.low / 2)
                       : 0;
        }
    }
    return sum / (double)((y[1] - y[0]) * (x[1] - x[0]));
}

static uint32_t pixel_at(const sonde__plot_pictures *p, int64_t i, const int64_t y[2],
                         const int64_t x[2], sonde__plot_span span, sonde_colours colours)
{
    uint32_t rgb = 0;

    if (p->channels == 1) {
        return sonde__plot_colour_at(colours, mean_part(p, i, 0, y, x, span));
    }
    for (int64_t channel = 0; channel < 3; channel++) {
        const double part = mean_part(p, i, channel, y, x, span);

        if (isnan(part)) {
            return SONDE__NAN_COLOUR;
        }
        rgb = rgb << 8 | (uint32_t)lround(part * 255);
    }
    return rgb << 8 | 0xffu;
}

uint32_t *sonde__plot_picture_pixels(const sonde__plot_pictures *pictures, int64_t i,
                                     sonde__plot_span span, sonde_colours colours,
                                     int columns, int rows)
{
    size_t count = 0;
    uint32_t *pixels = NULL;

    if (!sonde__mul((size_t)columns, (size_t)rows, &count) ||
        !sonde__mul(count, sizeof *pixels, &count) ||
        (pixels = sonde__malloc(count)) == NULL) {
        return NULL;
    }
    for (int row = 0; row < rows; row++) {
        const int64_t y[2] = {pictures->height * row / rows,
                              pictures->height * (row + 1) / rows};

        for (int column = 0; column < columns; column++) {
            const int64_t x[2] = {pictures->width * column / columns,
                                  pictures->width * (column + 1) / columns};

            pixels[(size_t)row * (size_t)columns + (size_t)column] =
                0xff000000u | pixel_at(pictures, i, y, x, span, colours) >> 8;
        }
    }
    return pixels;
}

void sonde__plot_picture_draw(sonde__plot_scene *scene,
                              const sonde__plot_pictures *pictures, int64_t i,
                              sonde__plot_span span, sonde_colours colours,
                              sonde__plot_box box)
{
    const double w = SONDE_MAX(1, round(box.w * scene->scale));
    const double h = SONDE_MAX(1, round(box.h * scene->scale));
    const int columns = (int)SONDE_MIN((double)pictures->width, w);
    const int rows = (int)SONDE_MIN((double)pictures->height, h);

    if (scene->err == SONDE_OK) {
        sonde__plot_image(
            scene, box,
            sonde__plot_picture_pixels(pictures, i, span, colours, columns, rows),
            columns, rows);
    }
}

void sonde__plot_picture_fit(const sonde__plot_pictures *pictures, double most_w,
                             double most_h, double *w, double *h)
{
    const double width = (double)pictures->width, height = (double)pictures->height;
    double factor = SONDE_MIN(most_w / width, most_h / height);

    if (factor >= 2) {
        factor = floor(factor);
    }
    *w = SONDE_MAX(1, floor(width * factor));
    *h = SONDE_MAX(1, floor(height * factor));
}
