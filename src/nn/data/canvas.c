/*
 * canvas.c - see canvas.h.
 */
#include "nn/data/canvas.h"

#include <math.h>
#include <string.h>

enum { CURVE_STEPS = 6, STRIDE = SONDE__SIDE + 1 };

void sonde__data_canvas_clear(sonde__data_canvas *canvas, const sonde__data_pose *pose)
{
    memset(canvas->light, 0, sizeof canvas->light);
    memset(canvas->drawn, 0, sizeof canvas->drawn);
    memset(canvas->area, 0, sizeof canvas->area);
    for (int i = 0; i < SONDE__PIXELS; i++) {
        canvas->cloth[i] = 1.0f;
    }
    canvas->pose = *pose;
    canvas->points = 0;
}

void sonde__data_canvas_point(sonde__data_canvas *canvas, float u, float v)
{
    if (canvas->points < SONDE__OUTLINE_MAX) {
        canvas->outline[canvas->points++] = (sonde__data_point){u, v};
    }
}

void sonde__data_canvas_curve(sonde__data_canvas *canvas, float cu, float cv, float u,
                              float v)
{
    const sonde__data_point from = canvas->points > 0
                                       ? canvas->outline[canvas->points - 1]
                                       : (sonde__data_point){cu, cv};

    for (int i = 1; i <= CURVE_STEPS; i++) {
        const float t = (float)i / CURVE_STEPS, s = 1.0f - t;

        sonde__data_canvas_point(canvas, s * s * from.u + 2.0f * s * t * cu + t * t * u,
                                 s * s * from.v + 2.0f * s * t * cv + t * t * v);
    }
}

void sonde__data_canvas_mirror(sonde__data_canvas *canvas)
{
    for (int i = canvas->points - 1; i >= 0; i--) {
        sonde__data_canvas_point(canvas, -canvas->outline[i].u, canvas->outline[i].v);
    }
}

/* The part of an edge within one row, from x0 to x1 over a height of dy. */
static void add_in_row(float *row, float x0, float x1, float dy)
{
    const float left = fminf(fmaxf(fminf(x0, x1), 0.0f), (float)SONDE__SIDE);
    const float right = fminf(fmaxf(fmaxf(x0, x1), 0.0f), (float)SONDE__SIDE);
    const int first = (int)left, last = (int)ceilf(right);

    if (last <= first + 1) { /* within one pixel */
        const float middle = 0.5f * (left + right) - (float)first;

        row[first] += dy * (1.0f - middle);
        if (first < SONDE__SIDE) {
            row[first + 1] += dy * middle;
        }
        return;
    }
    for (int x = first; x < last; x++) { /* crosses several: each gets a share of dy */
        const float a = fmaxf(left, (float)x), b = fminf(right, (float)(x + 1));
        const float share = dy * (b - a) / (right - left);
        const float middle = 0.5f * (a + b) - (float)x;

        row[x] += share * (1.0f - middle);
        row[x + 1] += share * middle;
    }
}

static void add_edge(sonde__data_canvas *canvas, sonde__data_point from,
                     sonde__data_point to)
{
    const sonde__data_pose *p = &canvas->pose;
    float x0 = p->xu * from.u + p->xv * from.v + p->x0;
    float y0 = p->yu * from.u + p->yv * from.v + p->y0;
    float x1 = p->xu * to.u + p->xv * to.v + p->x0;
    float y1 = p->yu * to.u + p->yv * to.v + p->y0;
    const float way = y0 < y1 ? 1.0f : -1.0f;

    if (y0 > y1) {
        const float x = x0, y = y0;

        x0 = x1;
        y0 = y1;
        x1 = x;
        y1 = y;
    }
    if (y1 - y0 < 1e-6f) {
        return;
    }
    const float slope = (x1 - x0) / (y1 - y0);
    for (int row = (int)fmaxf(floorf(y0), 0.0f); row < SONDE__SIDE && (float)row < y1;
         row++) {
        const float top = fmaxf(y0, (float)row), bottom = fminf(y1, (float)(row + 1));

        if (bottom > top) {
            add_in_row(canvas->area + row * STRIDE, x0 + (top - y0) * slope,
                       x0 + (bottom - y0) * slope, way * (bottom - top));
        }
    }
}

/* Makes all outlines turn the same way: opposite ones would cancel each other. */
static bool turns_left(const sonde__data_point *outline, int points)
{
    float twice = 0.0f;

    for (int i = 0; i < points; i++) {
        const sonde__data_point a = outline[i], b = outline[(i + 1) % points];

        twice += a.u * b.v - b.u * a.v;
    }
    return twice < 0.0f;
}

static void add_outline(sonde__data_canvas *canvas, const sonde__data_point *outline,
                        int points)
{
    const bool swap = turns_left(outline, points);

    for (int i = 0; i < points; i++) {
        const sonde__data_point a = outline[i], b = outline[(i + 1) % points];

        add_edge(canvas, swap ? b : a, swap ? a : b);
    }
}

void sonde__data_canvas_close(sonde__data_canvas *canvas)
{
    add_outline(canvas, canvas->outline, canvas->points);
    canvas->points = 0;
}

void sonde__data_canvas_stroke(sonde__data_canvas *canvas, float width)
{
    const float half = 0.5f * width;

    for (int i = 0; i + 1 < canvas->points; i++) {
        const sonde__data_point a = canvas->outline[i], b = canvas->outline[i + 1];
        const float du = b.u - a.u, dv = b.v - a.v;
        const float length = sqrtf(du * du + dv * dv);

        if (length > 1e-6f) {
            const float nu = -dv / length * half, nv = du / length * half;
            const float eu = du / length * half * 0.5f, ev = dv / length * half * 0.5f;
            const sonde__data_point quad[4] = {{a.u + nu - eu, a.v + nv - ev},
                                               {b.u + nu + eu, b.v + nv + ev},
                                               {b.u - nu + eu, b.v - nv + ev},
                                               {a.u - nu - eu, a.v - nv - ev}};

            add_outline(canvas, quad, 4);
        }
    }
    canvas->points = 0;
}

void sonde__data_canvas_paint(sonde__data_canvas *canvas, float brightness, float opacity)
{
    for (int y = 0; y < SONDE__SIDE; y++) {
        float sum = 0.0f;

        for (int x = 0; x < SONDE__SIDE; x++) {
            const int i = y * SONDE__SIDE + x;
            float cover = 0.0f;

            sum += canvas->area[y * STRIDE + x];
            cover = fminf(fabsf(sum), 1.0f);
            if (cover > 0.0f) {
                const float a = cover * opacity;

                canvas->light[i] +=
                    a * (brightness * canvas->cloth[i] - canvas->light[i]);
                canvas->drawn[i] = fmaxf(canvas->drawn[i], cover);
            }
        }
    }
    memset(canvas->area, 0, sizeof canvas->area);
}
