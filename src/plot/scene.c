/*
 * scene.c - the list of shapes; see scene.h. Texts are in text.c.
 */
#include "plot/scene.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "plot/plot_text.h"

#include <assert.h>
#include <math.h>
#include <string.h>

sonde_err sonde__plot_scene_init(sonde__plot_scene *scene, double width, double scale,
                                 sonde_diag *diag)
{
    *scene = (sonde__plot_scene){.width = width, .scale = scale};
    scene->ruler = sonde__plot_ruler_create();
    if (scene->ruler == NULL) {
        return sonde__fail_nomem(diag, "measuring texts");
    }
    return SONDE_OK;
}

void sonde__plot_scene_fini(sonde__plot_scene *scene)
{
    for (size_t i = 0; i < scene->count; i++) {
        sonde__free(scene->items[i].payload);
    }
    sonde__free(scene->items);
    sonde__plot_ruler_destroy(scene->ruler);
    *scene = (sonde__plot_scene){0};
}

void sonde__plot_scene_add(sonde__plot_scene *scene, sonde__plot_item item)
{
    if (scene->err == SONDE_OK &&
        !sonde__reserve(&scene->items, &scene->capacity, scene->count + 1,
                        sizeof *scene->items)) {
        scene->err = SONDE_ENOMEM;
    }
    if (scene->err != SONDE_OK) {
        sonde__free(item.payload);
        return;
    }
    item.clip = scene->clip;
    scene->items[scene->count++] = item;
}

void sonde__plot_fill(sonde__plot_scene *scene, sonde__plot_box box, uint32_t colour)
{
    assert(isfinite(box.x) && isfinite(box.y) && isfinite(box.w) && isfinite(box.h));
    sonde__plot_scene_add(
        scene,
        (sonde__plot_item){.kind = SONDE__ITEM_FILL, .box = box, .colour = colour});
}

/* The smallest box around the points. */
static sonde__plot_box around(const sonde__plot_point *points, size_t count)
{
    double x0 = points[0].x, x1 = x0, y0 = points[0].y, y1 = y0;

    for (size_t i = 0; i < count; i++) {
        assert(isfinite(points[i].x) && isfinite(points[i].y));
        x0 = SONDE_MIN(x0, points[i].x);
        x1 = SONDE_MAX(x1, points[i].x);
        y0 = SONDE_MIN(y0, points[i].y);
        y1 = SONDE_MAX(y1, points[i].y);
    }
    return (sonde__plot_box){x0, y0, x1 - x0, y1 - y0};
}

static void add_points(sonde__plot_scene *scene, sonde__plot_item item,
                       const sonde__plot_point *points)
{
    size_t size = 0;

    if (scene->err != SONDE_OK || item.count == 0) {
        return;
    }
    item.box = around(points, item.count);
    if (sonde__mul(item.count, sizeof *points, &size)) {
        item.payload = sonde__malloc(size);
    }
    if (item.payload == NULL) {
        scene->err = SONDE_ENOMEM;
        return;
    }
    memcpy(item.payload, points, size);
    sonde__plot_scene_add(scene, item);
}

void sonde__plot_line(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t colour, double width, int dash)
{
    add_points(scene,
               (sonde__plot_item){.kind = SONDE__ITEM_LINE,
                                  .colour = colour,
                                  .width = width,
                                  .dash = dash,
                                  .count = count},
               points);
}

void sonde__plot_area(sonde__plot_scene *scene, const sonde__plot_point *points,
                      size_t count, uint32_t colour)
{
    add_points(
        scene,
        (sonde__plot_item){.kind = SONDE__ITEM_AREA, .colour = colour, .count = count},
        points);
}

void sonde__plot_segment(sonde__plot_scene *scene, double x0, double y0, double x1,
                         double y1, uint32_t colour, double width)
{
    const sonde__plot_point points[] = {{x0, y0}, {x1, y1}};

    sonde__plot_line(scene, points, SONDE_COUNT_OF(points), colour, width, 0);
}

void sonde__plot_outline(sonde__plot_scene *scene, sonde__plot_box box, uint32_t colour,
                         double width)
{
    const sonde__plot_point points[] = {
        {box.x, box.y},         {box.x + box.w, box.y}, {box.x + box.w, box.y + box.h},
        {box.x, box.y + box.h}, {box.x, box.y},         {box.x + box.w, box.y},
    };

    sonde__plot_line(scene, points, SONDE_COUNT_OF(points), colour, width, 0);
}

void sonde__plot_dot(sonde__plot_scene *scene, double x, double y, double diameter,
                     uint32_t colour)
{
    sonde__plot_scene_add(scene,
                          (sonde__plot_item){.kind = SONDE__ITEM_DOT,
                                             .box = {x - diameter / 2, y - diameter / 2,
                                                     diameter, diameter},
                                             .colour = colour});
}

void sonde__plot_image(sonde__plot_scene *scene, sonde__plot_box box, uint32_t *pixels,
                       int columns, int rows)
{
    if (pixels == NULL) {
        scene->err = scene->err != SONDE_OK ? scene->err : SONDE_ENOMEM;
        return;
    }
    sonde__plot_scene_add(scene, (sonde__plot_item){.kind = SONDE__ITEM_IMAGE,
                                                    .box = box,
                                                    .columns = columns,
                                                    .rows = rows,
                                                    .payload = pixels});
}
