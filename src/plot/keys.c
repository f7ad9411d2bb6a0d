/*
 * keys.c - what explains colours: the colour bar and the legend; see axes.h.
 */
#include "plot/axes.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/colour.h"
#include "plot/page.h"

#include <math.h>

enum { BAR = 14, BAR_GAP = 18, SWATCH = 22, BLOCK = 12 };
#define GAP 8.0

/* --- colour bar --------------------------------------------------------------------- */

double sonde__plot_colour_bar_width(sonde__plot_scene *scene, sonde__plot_axis *axis,
                                    double height)
{
    const int wanted = (int)SONDE_MAX(height / 36, 2);
    double width = 0;

    if (axis->log) {
        sonde__plot_ticks_log(axis->low, axis->high, wanted, &axis->ticks);
    } else {
        sonde__plot_ticks_linear(axis->low, axis->high, wanted, axis->whole,
                                 &axis->ticks);
    }
    for (int i = 0; i < axis->ticks.count; i++) {
        const double w =
            sonde__plot_text_width(scene, axis->ticks.label[i], SONDE__FONT_TEXT);

        width = SONDE_MAX(width, w);
    }
    if (axis->label != NULL) {
        width += GAP + sonde__plot_text_height(SONDE__FONT_LABEL);
    }
    return ceil(BAR_GAP + BAR + GAP + width);
}

void sonde__plot_colour_bar_draw(sonde__plot_scene *scene, const sonde__plot_axis *axis,
                                 sonde_colours colours, sonde__plot_box box)
{
    enum { SHADES = 256 };
    const sonde__plot_box bar = {box.x + BAR_GAP, box.y, BAR, box.h};
    const sonde__plot_frame frame = {.area = bar, .y = *axis};
    uint32_t *pixels = sonde__malloc(SHADES * sizeof *pixels); /* (SHADES, 1) */

    for (int i = 0; pixels != NULL && i < SHADES; i++) {
        pixels[i] = 0xff000000u |
                    sonde__plot_colour_at(colours, 1 - i / (double)(SHADES - 1)) >> 8;
    }
    sonde__plot_image(scene, bar, pixels, 1, SHADES);
    sonde__plot_outline(scene, bar, SONDE__AXIS, 1);
    for (int i = 0; i < axis->ticks.count; i++) {
        const double y = sonde__plot_frame_y(&frame, axis->ticks.at[i]);

        sonde__plot_segment(scene, bar.x + bar.w, y, bar.x + bar.w + 4, y, SONDE__AXIS,
                            1);
        sonde__plot_text(scene, axis->ticks.label[i], SONDE__FONT_TEXT, SONDE__MUTED,
                         (sonde__plot_text_at){
                             .x = bar.x + bar.w + GAP, .y = y, .align_y = SONDE__MIDDLE});
    }
    if (axis->label != NULL) {
        sonde__plot_text(scene, axis->label, SONDE__FONT_LABEL, SONDE__INK,
                         (sonde__plot_text_at){.x = box.x + box.w,
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

        sonde__plot_line(scene, line, SONDE_COUNT_OF(line), entry->colour, entry->pen,
                         entry->dash);
    } else {
        sonde__plot_fill(scene, (sonde__plot_box){x, y - BLOCK / 2.0, BLOCK, BLOCK},
                         entry->colour);
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
                             (sonde__plot_text_at){.x = x + swatch,
                                                   .y = y + row / 2,
                                                   .align_y = SONDE__MIDDLE,
                                                   .maximum = most});
        }
        x += swatch + name + 22;
    }
    return count > 0 ? y + row - box.y + GAP : 0;
}
