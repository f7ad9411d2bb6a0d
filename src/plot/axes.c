/*
 * axes.c - see axes.h.
 */
#include "plot/axes.h"
#include "base/macros.h"
#include "plot/page.h"

#include <math.h>

#define GAP 8.0        /* between axis, labels and names */
#define TICK_ROOM 44.0 /* least distance of two ticks up the y axis */

void sonde__plot_range_widen(double *low, double *high)
{
    double magnitude = 0;

    *low = SONDE_MIN(SONDE_MAX(*low, -1e300), 1e300);
    *high = SONDE_MIN(SONDE_MAX(*high, -1e300), 1e300);
    magnitude = SONDE_MAX(fabs(*low), fabs(*high));
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

/* Part of the axis below value, 0 ... 1 inside it. */
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

/* Whether the labels of the x axis keep a distance, centred at their ticks. */
static bool labels_apart(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_ticks *const ticks = &frame->x.ticks;
    double end = -1e9;

    for (int i = 0; i < ticks->count; i++) {
        const double x = sonde__plot_frame_x(frame, ticks->at[i]);
        const double half =
            sonde__plot_text_width(scene, ticks->label[i], SONDE__FONT_TEXT) / 2;

        if (x - half < end + 12) {
            return false;
        }
        end = x + half;
    }
    return true;
}

/* Narrows the area by what the first and the last label stand over. */
static void make_room(sonde__plot_scene *scene, sonde__plot_box space,
                      sonde__plot_frame *frame)
{
    const sonde__plot_ticks *const ticks = &frame->x.ticks;
    const int last = ticks->count - 1;

    if (last >= 0) {
        const double start =
            sonde__plot_frame_x(frame, ticks->at[0]) -
            sonde__plot_text_width(scene, ticks->label[0], SONDE__FONT_TEXT) / 2;
        const double end =
            sonde__plot_frame_x(frame, ticks->at[last]) +
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
        frame->x.ticks.count--; /* two labels that are wider than the plot */
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
        const double at = sonde__plot_frame_y(frame, y->fine[i]);

        sonde__plot_segment(scene, a.x, at, a.x + a.w, at, SONDE__GRID_FINE, 1);
    }
    for (int i = 0; i < x->count; i++) {
        const double at = sonde__plot_frame_x(frame, x->at[i]);

        sonde__plot_segment(scene, at, a.y, at, a.y + a.h, SONDE__GRID, 1);
    }
    for (int i = 0; i < y->count; i++) {
        const double at = sonde__plot_frame_y(frame, y->at[i]);

        sonde__plot_segment(scene, a.x, at, a.x + a.w, at, SONDE__GRID, 1);
    }
}

static void draw_names(sonde__plot_scene *scene, const sonde__plot_frame *frame)
{
    const sonde__plot_box a = frame->area;

    if (frame->x.label != NULL) {
        const double y = a.y + a.h + 2 * GAP + sonde__plot_text_height(SONDE__FONT_TEXT);

        sonde__plot_text(
            scene, frame->x.label, SONDE__FONT_LABEL, SONDE__INK,
            (sonde__plot_text_at){
                .x = a.x + a.w / 2, .y = y, .align_x = SONDE__CENTRE, .maximum = a.w});
    }
    if (frame->y.label != NULL) {
        const double x = a.x - 2 * GAP - widest(scene, &frame->y.ticks);

        sonde__plot_text(scene, frame->y.label, SONDE__FONT_LABEL, SONDE__INK,
                         (sonde__plot_text_at){.x = x,
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
        const double at = sonde__plot_frame_x(frame, x->at[i]);

        sonde__plot_segment(scene, at, a.y + a.h, at, a.y + a.h + 4, SONDE__AXIS, 1);
        sonde__plot_text(scene, x->label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_text_at){
                             .x = at, .y = a.y + a.h + GAP, .align_x = SONDE__CENTRE});
    }
    for (int i = 0; i < y->count; i++) {
        sonde__plot_text(scene, y->label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_text_at){.x = a.x - GAP,
                                               .y = sonde__plot_frame_y(frame, y->at[i]),
                                               .align_x = SONDE__RIGHT,
                                               .align_y = SONDE__MIDDLE});
    }
    draw_names(scene, frame);
}
