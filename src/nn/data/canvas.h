/*
 * canvas.h - paints filled outlines, antialiased, on a small grey picture.
 *
 * Outlines live in garment space: u to the right, v down, both about -1 to 1, mapped to
 * pixels by an affine pose. A shape is collected (the union of outlines and strokes),
 * then painted over the picture with a brightness, the cloth's texture and an opacity.
 *
 * Coverage is exact: every edge adds its signed area to the pixels it crosses and a
 * running sum along the row turns that into covered fractions, as font rasterisers do.
 */
#ifndef SONDE_NN_DATA_CANVAS_H
#define SONDE_NN_DATA_CANVAS_H

#include <sonde/nn/synth.h>

enum {
    SONDE__SIDE = SONDE_NN_SYNTH_SIDE,
    SONDE__PIXELS = SONDE__SIDE * SONDE__SIDE,
    SONDE__OUTLINE_MAX = 96
};

/* x = xu u + xv v + x0, y = yu u + yv v + y0, in pixels. */
typedef struct sonde__data_pose {
    float xu, xv, x0, yu, yv, y0;
} sonde__data_pose;

typedef struct sonde__data_point {
    float u, v;
} sonde__data_point;

typedef struct sonde__data_canvas {
    sonde__data_pose pose;
    float light[SONDE__PIXELS];                  /* the picture, 0 to 1 */
    float drawn[SONDE__PIXELS];                  /* covered part of each pixel */
    float cloth[SONDE__PIXELS];                  /* texture: a factor of the brightness */
    float area[SONDE__SIDE * (SONDE__SIDE + 1)]; /* the shape being collected */
    sonde__data_point outline[SONDE__OUTLINE_MAX];
    int points;
} sonde__data_canvas;

void sonde__data_canvas_clear(sonde__data_canvas *canvas, const sonde__data_pose *pose);
/* Adds a point to the outline; curve adds a quadratic curve by way of a control point. */
void sonde__data_canvas_point(sonde__data_canvas *canvas, float u, float v);
void sonde__data_canvas_curve(sonde__data_canvas *canvas, float cu, float cv, float u,
                              float v);
/* Completes the outline of a right half, drawn from top to bottom, by its mirror
 * image. */
void sonde__data_canvas_mirror(sonde__data_canvas *canvas);
/* Closes the outline and adds it to the shape. */
void sonde__data_canvas_close(sonde__data_canvas *canvas);
/* Ends the outline as an open line and adds it to the shape, width wide. */
void sonde__data_canvas_stroke(sonde__data_canvas *canvas, float width);
/* Paints the shape and starts an empty one. */
void sonde__data_canvas_paint(sonde__data_canvas *canvas, float brightness,
                              float opacity);

#endif
