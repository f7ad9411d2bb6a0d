/*
 * axes.c - axes, and the keys that explain colors: color bar and legend; see axes.h.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/axes.h"
#include "plot/page.h"
#include "plot/scene.h"

#include <math.h>

#define GAP 8.0        /* between axis, labels and names */
#define TICK_ROOM 44.0 /* least distance of two ticks on the y axis */

void sonde__plot_range_widen(double *low, double *high)
{
    *low = SONDE_MIN(SONDE_MAX(*low, -1e300), 1e300);
    *high = SONDE_MIN(SONDE_MAX(*high, -1e300), 1e300);
    const double magnitude = SONDE_MAX(fabs(*low), fabs(*high));
    if (*high - *low < SONDE_MAX(magnitude * 1e-9, 1e-290)) {
        const double middle = *low / 2 + *high / 2;
        const double half = magnitude > 1e-280 ? magnitude * 0.05 : 0.5;

        *low = middle - half;
        *high = middle + half;
    }
}

/* --- layout ------------------------------------------------------------------------- */

static void choose_ticks(sonde__plot_axis *axis, int wanted)
{
    if (axis->log) {
        sonde__plot_ticks_log(axis->low, axis->high, wanted, &axis->ticks);
    } else {
        sonde__plot_ticks_linear(axis->low, axis->high, wanted, axis->whole,
                                 &axis->ticks);
    }
}

/* Part of the axis below value: 0 ... 1 on the axis. */
static double part(const sonde__plot_axis *axis, double value)
{
    if (axis->log) {
        const double low = log(axis->low);

        return value > 0 ? (log(value) - low) / (log(axis->high) - low) : -1;
    }
    return (value / 2 - axis->low / 2) / (axis->high / 2 - axis->low / 2);
}

static double clamp_part(double p)
{
    return SONDE_MIN(SONDE_MAX(p, -20.0), 20.0);
}

double sonde__plot_frame_x(const sonde__plot_frame *frame, double x)
{
    return frame->area.x + clamp_part(part(&frame->x, x)) * frame->area.w;
}

double sonde__plot_frame_y(const sonde__plot_frame *frame, double y)
{
    return frame->area.y + (1 - clamp_part(part(&frame->y, y))) * frame->area.h;
}

static double widest(sonde__plot_scene *scene, const sonde__plot_ticks *ticks)
{
    double width = 0;

    for (int i = 0; i < ticks->count; i++) {
        const double w = sonde__plot_text_width(scene, ticks->label[i], SONDE__FONT_TEXT);

        width = SONDE_MAX(width, w);
    }
    return width;
}

/* True if the labels of the x axis, centered at their ticks, keep a distance. */
static bool labels_apart(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_ticks *const ticks = &frame->x.ticks;
    double end = -1e9;

    for (int i = 0; i < ticks->count; i++) {
        const double x = sonde__plot_frame_x(frame, ticks->value[i]);
        const double half =
            sonde__plot_text_width(scene, ticks->label[i], SONDE__FONT_TEXT) / 2;

        if (x - half < end + 12) {
            return false;
        }
        end = x + half;
    }
    return true;
}

/* Narrows the area by the overhang of the first and the last label. */
static void make_room(sonde__plot_scene *scene, sonde__plot_box space,
                      sonde__plot_frame *frame)
{
    const sonde__plot_ticks *const ticks = &frame->x.ticks;
    const int last = ticks->count - 1;

    if (last >= 0) {
        const double start =
            sonde__plot_frame_x(frame, ticks->value[0]) -
            sonde__plot_text_width(scene, ticks->label[0], SONDE__FONT_TEXT) / 2;
        const double end =
            sonde__plot_frame_x(frame, ticks->value[last]) +
            sonde__plot_text_width(scene, ticks->label[last], SONDE__FONT_TEXT) / 2;
        const double left = ceil(SONDE_MAX(0, space.x - start));

        frame->area.x += left;
        frame->area.w -= left + SONDE_MAX(0, end - (space.x + space.w));
    }
}

bool sonde__plot_frame_layout(sonde__plot_scene *scene, sonde__plot_box space,
                              sonde__plot_frame *frame)
{
    const double tick_height = sonde__plot_text_height(SONDE__FONT_TEXT);
    const double name_height = sonde__plot_text_height(SONDE__FONT_LABEL);
    double left = GAP, bottom = GAP + tick_height;

    if (frame->x.label != NULL) {
        bottom += GAP + name_height;
    }
    frame->area.y = space.y + tick_height / 2;
    frame->area.h = space.h - tick_height / 2 - bottom;
    choose_ticks(&frame->y, (int)(frame->area.h / TICK_ROOM));
    left += widest(scene, &frame->y.ticks);
    if (frame->y.label != NULL) {
        left += GAP + name_height;
    }
    frame->area.x = ceil(space.x + left);
    frame->area.w = floor(space.x + space.w) - frame->area.x;
    frame->area.y = ceil(frame->area.y);
    frame->area.h = floor(frame->area.h);
    if (frame->area.w < 48 || frame->area.h < 40) {
        return false;
    }
    for (int wanted = SONDE_MIN((int)(frame->area.w / 60), 14);; wanted--) {
        choose_ticks(&frame->x, wanted);
        if (wanted <= 2 || labels_apart(scene, frame)) {
            break;
        }
    }
    make_room(scene, space, frame);
    while (frame->x.ticks.count > 1 && !labels_apart(scene, frame)) {
        frame->x.ticks.count--; /* two labels wider than the plot */
    }
    frame->area.w = floor(frame->area.w);
    return frame->area.w >= 48;
}

/* --- drawing ------------------------------------------------------------------------ */

void sonde__plot_frame_draw_grid(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_box a = frame->area;
    const sonde__plot_ticks *const x = &frame->x.ticks, *const y = &frame->y.ticks;

    for (int i = 0; i < y->fine_count; i++) {
        const double top = sonde__plot_frame_y(frame, y->fine[i]);

        sonde__plot_segment(scene, a.x, top, a.x + a.w, top, SONDE__GRID_FINE, 1);
    }
    for (int i = 0; i < x->count; i++) {
        const double left = sonde__plot_frame_x(frame, x->value[i]);

        sonde__plot_segment(scene, left, a.y, left, a.y + a.h, SONDE__GRID, 1);
    }
    for (int i = 0; i < y->count; i++) {
        const double top = sonde__plot_frame_y(frame, y->value[i]);

        sonde__plot_segment(scene, a.x, top, a.x + a.w, top, SONDE__GRID, 1);
    }
}

static void draw_names(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_box a = frame->area;

    if (frame->x.label != NULL) {
        const double y = a.y + a.h + 2 * GAP + sonde__plot_text_height(SONDE__FONT_TEXT);

        sonde__plot_text(
            scene, frame->x.label, SONDE__FONT_LABEL, SONDE__INK,
            (sonde__plot_place){
                .x = a.x + a.w / 2, .y = y, .align_x = SONDE__CENTER, .maximum = a.w});
    }
    if (frame->y.label != NULL) {
        const double x = a.x - 2 * GAP - widest(scene, &frame->y.ticks);

        sonde__plot_text(scene, frame->y.label, SONDE__FONT_LABEL, SONDE__INK,
                         (sonde__plot_place){.x = x,
                                             .y = a.y + a.h / 2,
                                             .align_x = SONDE__RIGHT,
                                             .align_y = SONDE__MIDDLE,
                                             .maximum = a.h,
                                             .turned = true});
    }
}

void sonde__plot_frame_draw_axes(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_box a = frame->area;
    const sonde__plot_ticks *const x = &frame->x.ticks, *const y = &frame->y.ticks;

    sonde__plot_segment(scene, a.x, a.y + a.h, a.x + a.w, a.y + a.h, SONDE__AXIS, 1);
    for (int i = 0; i < x->count; i++) {
        const double left = sonde__plot_frame_x(frame, x->value[i]);

        sonde__plot_segment(scene, left, a.y + a.h, left, a.y + a.h + 4, SONDE__AXIS, 1);
        sonde__plot_text(scene, x->label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_place){
                             .x = left, .y = a.y + a.h + GAP, .align_x = SONDE__CENTER});
    }
    for (int i = 0; i < y->count; i++) {
        sonde__plot_text(scene, y->label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_place){.x = a.x - GAP,
                                             .y = sonde__plot_frame_y(frame, y->value[i]),
                                             .align_x = SONDE__RIGHT,
                                             .align_y = SONDE__MIDDLE});
    }
    draw_names(scene, frame);
}

enum { BAR = 14, BAR_GAP = 18, SWATCH = 22, BLOCK = 12 };

/* --- color bar --------------------------------------------------------------------- */

double sonde__plot_color_bar_width(sonde__plot_scene *scene, sonde__plot_axis *axis,
                                   double height)
{
    choose_ticks(axis, (int)SONDE_MAX(height / 36, 2));
    double width = widest(scene, &axis->ticks);
    if (axis->label != NULL) {
        width += GAP + sonde__plot_text_height(SONDE__FONT_LABEL);
    }
    return ceil(BAR_GAP + BAR + GAP + width);
}

void sonde__plot_color_bar_draw(sonde__plot_scene *scene, const sonde__plot_axis *axis,
                                sonde_colors colors, sonde__plot_box box)
{
    enum { SHADES = 256 };
    const sonde__plot_box bar = {box.x + BAR_GAP, box.y, BAR, box.h};
    const sonde__plot_frame frame = {.area = bar, .y = *axis};
    uint32_t *pixels = sonde__malloc(SHADES * sizeof *pixels); /* (SHADES, 1) */

    for (int i = 0; pixels != NULL && i < SHADES; i++) {
        pixels[i] =
            0xff000000u | sonde__plot_color_at(colors, 1 - i / (double)(SHADES - 1)) >> 8;
    }
    sonde__plot_image(scene, bar, pixels, 1, SHADES);
    sonde__plot_outline(scene, bar, SONDE__AXIS, 1);
    for (int i = 0; i < axis->ticks.count; i++) {
        const double y = sonde__plot_frame_y(&frame, axis->ticks.value[i]);

        sonde__plot_segment(scene, bar.x + bar.w, y, bar.x + bar.w + 4, y, SONDE__AXIS,
                            1);
        sonde__plot_text(scene, axis->ticks.label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_place){
                             .x = bar.x + bar.w + GAP, .y = y, .align_y = SONDE__MIDDLE});
    }
    if (axis->label != NULL) {
        sonde__plot_text(scene, axis->label, SONDE__FONT_LABEL, SONDE__INK,
                         (sonde__plot_place){.x = box.x + box.w,
                                             .y = box.y + box.h / 2,
                                             .align_x = SONDE__RIGHT,
                                             .align_y = SONDE__MIDDLE,
                                             .maximum = box.h,
                                             .turned = true});
    }
}

/* --- legend ------------------------------------------------------------------------- */

static void draw_swatch(sonde__plot_scene *scene, const sonde__plot_legend_entry *entry,
                        double x, double y)
{
    if (entry->pen > 0) {
        const sonde__plot_point line[] = {{x, y}, {x + SWATCH, y}};

        sonde__plot_line(scene, line, SONDE_COUNT_OF(line), entry->color, entry->pen,
                         entry->dash);
    } else {
        sonde__plot_fill(scene, (sonde__plot_box){x, y - BLOCK / 2.0, BLOCK, BLOCK},
                         entry->color);
    }
}

double sonde__plot_legend(sonde__plot_scene *scene, sonde__plot_box box,
                          const sonde__plot_legend_entry *entries, size_t count,
                          bool draw)
{
    const double row = 20;
    double x = box.x, y = box.y;

    for (size_t i = 0; i < count; i++) {
        const double swatch = (entries[i].pen > 0 ? SWATCH : BLOCK) + GAP;
        const double most = box.w - swatch;
        const double name = SONDE_MIN(
            sonde__plot_text_width(scene, entries[i].name, SONDE__FONT_TEXT), most);

        if (x > box.x && x + swatch + name > box.x + box.w) {
            x = box.x;
            y += row;
        }
        if (draw) {
            draw_swatch(scene, &entries[i], x, y + row / 2);
            sonde__plot_text(scene, entries[i].name, SONDE__FONT_TEXT, SONDE__INK,
                             (sonde__plot_place){.x = x + swatch,
                                                 .y = y + row / 2,
                                                 .align_y = SONDE__MIDDLE,
                                                 .maximum = most});
        }
        x += swatch + name + 22;
    }
    return count > 0 ? y + row - box.y + GAP : 0;
}

/* --- colors ------------------------------------------------------------------------ */

/* Every eighth color of viridis (van der Walt and Smith, matplotlib; CC0): between these
 * knots a straight line is at most 1.8/255 off. */
static const uint32_t viridis[] = {
    0x440154, 0x470d60, 0x48186a, 0x482374, 0x472d7b, 0x453681, 0x424086,
    0x3f4989, 0x3b528b, 0x375a8d, 0x33638d, 0x2f6a8e, 0x2c728e, 0x297a8e,
    0x26818e, 0x23898e, 0x21908c, 0x1f988b, 0x1f9f88, 0x21a685, 0x28ae80,
    0x31b57b, 0x3ebc74, 0x4cc26c, 0x5dc963, 0x6ece58, 0x82d34c, 0x96d83f,
    0xabdc32, 0xc0df24, 0xd5e21a, 0xeae51a, 0xfde725,
};
static const uint32_t gray[] = {0x000000, 0xffffff};
static const uint32_t blues[] = {0xffffff, 0xe4eef8, 0xc3dbf0, 0x95c2e4, 0x5ea3d4,
                                 0x3481bd, 0x175f9f, 0x0a417c, 0x072852};

static const struct {
    const uint32_t *knots;
    int count;
} maps[] = {
    [SONDE_COLORS_VIRIDIS] = {viridis, (int)SONDE_COUNT_OF(viridis)},
    [SONDE_COLORS_GRAY] = {gray, (int)SONDE_COUNT_OF(gray)},
    [SONDE_COLORS_BLUES] = {blues, (int)SONDE_COUNT_OF(blues)},
};

static double channel(uint32_t rgb, int shift)
{
    return (double)((rgb >> shift) & 255u);
}

uint32_t sonde__plot_color_at(sonde_colors colors, double t)
{
    const uint32_t *const knots = maps[colors].knots;
    const int last = maps[colors].count - 1;
    uint32_t rgb = 0;

    if (isnan(t)) {
        return SONDE__NAN_COLOR;
    }
    const double place = SONDE_MIN(SONDE_MAX(t, 0.0), 1.0) * last;
    const int knot = SONDE_MIN((int)place, last - 1);
    for (int shift = 16; shift >= 0; shift -= 8) {
        const double below = channel(knots[knot], shift);
        const double above = channel(knots[knot + 1], shift);

        rgb = rgb << 8 | (uint32_t)lround(below + (above - below) * (place - knot));
    }
    return rgb << 8 | 0xffu;
}

static double linear(double channel_value)
{
    const double c = channel_value / 255;

    return c <= 0.04045 ? c / 12.92 : pow((c + 0.055) / 1.055, 2.4);
}

static double luminance(uint32_t color)
{
    return 0.2126 * linear(channel(color, 24)) + 0.7152 * linear(channel(color, 16)) +
           0.0722 * linear(channel(color, 8));
}

double sonde__plot_contrast(uint32_t a, uint32_t b)
{
    const double la = luminance(a), lb = luminance(b);

    return (SONDE_MAX(la, lb) + 0.05) / (SONDE_MIN(la, lb) + 0.05);
}

uint32_t sonde__plot_ink_on(uint32_t color)
{
    const uint32_t black = 0x000000ff;

    return sonde__plot_contrast(black, color) >= sonde__plot_contrast(SONDE__PAPER, color)
               ? black
               : SONDE__PAPER;
}

uint32_t sonde__plot_line_color(size_t i)
{
    static const uint32_t palette[SONDE__PALETTE] = {
        0x0072b2ff, 0xd55e00ff, 0x009e73ff, 0xb0568fff,
        0xd99100ff, 0x3a9bd9ff, 0x4d5761ff,
    };

    return palette[i % SONDE__PALETTE];
}

uint32_t sonde__plot_faded(uint32_t color, uint32_t alpha)
{
    return (color & 0xffffff00u) | alpha;
}

sonde_err sonde__plot_colors_check(sonde_colors colors, sonde_diag *diag)
{
    if ((size_t)colors >= SONDE_COUNT_OF(maps)) {
        return sonde__fail(diag, SONDE_EINVAL, "colors", "a SONDE_COLORS_ value",
                           "no color map has number %d", (int)colors);
    }
    return SONDE_OK;
}
