/*
 * garments_shoes.c - 5 sandal, 7 sneaker, 9 ankle boot, from the side with the toe to the
 * left; 8 bag, from the front.
 */
#include "nn/data/garments_shoes.h"

#include <math.h>

/* The sole line: toe, ball of the foot, arch, heel. */
typedef struct last {
    float toe, heel;   /* u of the ends */
    float ground;      /* v */
    float heel_height; /* how far the heel is lifted */
} last;

static void draw_sandal_sole(sonde__data_canvas *canvas, const last *l, bool wedge,
                             float thickness, float brightness)
{
    const float lift = l->ground - l->heel_height;

    sonde__data_canvas_point(canvas, l->toe, l->ground - 0.06f);
    sonde__data_canvas_curve(canvas, l->toe + 0.5f, l->ground, 0.05f,
                             l->ground - 0.5f * l->heel_height);
    sonde__data_canvas_curve(canvas, 0.45f, lift, l->heel, lift);
    sonde__data_canvas_stroke(canvas, thickness);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    if (wedge) {
        sonde__data_canvas_point(canvas, l->toe + 0.25f, l->ground);
        sonde__data_canvas_curve(canvas, -0.1f, l->ground - 0.45f * l->heel_height,
                                 l->heel, lift);
        sonde__data_canvas_point(canvas, l->heel - 0.03f, l->ground + 0.04f);
        sonde__data_canvas_point(canvas, l->toe + 0.3f, l->ground + 0.04f);
        sonde__data_canvas_close(canvas);
    } else {
        sonde__data_canvas_point(canvas, l->heel - 0.06f, lift);
        sonde__data_canvas_point(canvas, l->heel - 0.10f, l->ground + 0.04f);
        sonde__data_canvas_stroke(canvas, 0.09f);
    }
    sonde__data_canvas_paint(canvas, brightness * 0.85f, 1.0f);
}

/* Bands over the toes, from the sole and back to it. */
static void draw_toe_straps(sonde__data_canvas *canvas, sonde__data_dice *dice,
                            const last *l, float width, float brightness)
{
    const int straps = 1 + (int)sonde__data_dice_between(dice, 0.0f, 2.99f);

    for (int i = 0; i < straps; i++) {
        const float u = l->toe + 0.22f + 0.24f * (float)i;
        const float v = l->ground - 0.06f - 0.12f * l->heel_height * (float)i;
        const float up = sonde__data_dice_between(dice, 0.34f, 0.52f);

        sonde__data_canvas_point(canvas, u - 0.12f, v);
        sonde__data_canvas_curve(canvas, u + 0.02f, v - up, u + 0.34f, v - 0.04f);
        sonde__data_canvas_stroke(canvas, width);
    }
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
}

/* A loop around the ankle, held by the heel, sometimes tied to the toes. */
static void draw_ankle_strap(sonde__data_canvas *canvas, sonde__data_dice *dice,
                             const last *l, float width, float brightness)
{
    const float lift = l->ground - l->heel_height;
    const float up = lift - sonde__data_dice_between(dice, 0.34f, 0.62f);

    sonde__data_canvas_point(canvas, l->heel - 0.05f, lift);
    sonde__data_canvas_curve(canvas, l->heel + 0.02f, 0.5f * (up + lift), l->heel - 0.1f,
                             up);
    sonde__data_canvas_curve(canvas, 0.55f, up - 0.1f, 0.3f, up + 0.08f);
    if (sonde__data_dice_chance(dice, 0.5f)) {
        sonde__data_canvas_curve(canvas, 0.1f, up + 0.4f, -0.3f, l->ground - 0.22f);
    } else {
        sonde__data_canvas_curve(canvas, 0.38f, up + 0.2f, 0.44f, lift);
    }
    sonde__data_canvas_stroke(canvas, width);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    if (sonde__data_dice_chance(dice, 0.3f)) { /* the leather behind the heel */
        sonde__data_canvas_point(canvas, l->heel - 0.02f, lift);
        sonde__data_canvas_point(canvas, l->heel - 0.08f, up);
        sonde__data_canvas_point(canvas, l->heel - 0.3f, lift);
        sonde__data_canvas_close(canvas);
        sonde__data_canvas_paint(canvas, brightness * 0.9f, 1.0f);
    }
}

void sonde__data_draw_sandal(sonde__data_canvas *canvas, sonde__data_dice *dice,
                             float brightness)
{
    const bool high = sonde__data_dice_chance(dice, 0.5f);
    const last l = {sonde__data_dice_between(dice, -0.98f, -0.85f),
                    sonde__data_dice_between(dice, 0.8f, 0.95f),
                    high ? sonde__data_dice_between(dice, 0.5f, 0.75f)
                         : sonde__data_dice_between(dice, 0.3f, 0.5f),
                    high ? sonde__data_dice_between(dice, 0.35f, 0.75f)
                         : sonde__data_dice_between(dice, 0.03f, 0.22f)};
    const float width = sonde__data_dice_between(dice, 0.10f, 0.18f);
    const float light = fmaxf(brightness, 0.35f); /* thin things must be seen */

    draw_sandal_sole(canvas, &l, high && sonde__data_dice_chance(dice, 0.5f),
                     sonde__data_dice_between(dice, 0.12f, 0.2f),
                     light * sonde__data_dice_between(dice, 0.6f, 1.0f));
    draw_toe_straps(canvas, dice, &l, width, light);
    if (sonde__data_dice_chance(dice, 0.75f)) {
        draw_ankle_strap(canvas, dice, &l, width * 0.85f,
                         light * sonde__data_dice_between(dice, 0.8f, 1.1f));
    }
}

/* A strip along the ground, toe and heel rounded. */
static void draw_sole(sonde__data_canvas *canvas, const last *l, float thickness,
                      float brightness)
{
    sonde__data_canvas_point(canvas, l->toe + 0.02f, l->ground - 0.4f * thickness);
    sonde__data_canvas_curve(canvas, -0.2f, l->ground + 0.02f, l->heel,
                             l->ground - 0.3f * thickness);
    sonde__data_canvas_stroke(canvas, thickness);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
}

void sonde__data_draw_sneaker(sonde__data_canvas *canvas, sonde__data_dice *dice,
                              float brightness)
{
    const last l = {sonde__data_dice_between(dice, -0.98f, -0.88f),
                    sonde__data_dice_between(dice, 0.86f, 0.97f),
                    sonde__data_dice_between(dice, 0.35f, 0.5f), 0.0f};
    const float collar =
        sonde__data_dice_chance(dice, 0.85f)
            ? sonde__data_dice_between(dice, -0.5f, -0.22f)
            : sonde__data_dice_between(dice, -0.8f, -0.5f); /* to the ankle */
    const float toe_top = l.ground - sonde__data_dice_between(dice, 0.22f, 0.36f);
    const float throat = sonde__data_dice_between(dice, 0.0f, 0.3f);

    sonde__data_canvas_point(canvas, l.toe, l.ground - 0.08f); /* the upper */
    sonde__data_canvas_curve(canvas, l.toe + 0.02f, toe_top, l.toe + 0.38f,
                             toe_top - 0.04f);
    sonde__data_canvas_curve(canvas, throat - 0.3f, toe_top - 0.12f, throat, collar);
    sonde__data_canvas_curve(canvas, 0.5f * (throat + l.heel), collar + 0.25f,
                             l.heel - 0.06f, collar - 0.02f);
    sonde__data_canvas_curve(canvas, l.heel - 0.02f, 0.1f, l.heel, l.ground - 0.05f);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    if (sonde__data_dice_chance(dice, 0.6f)) { /* stripes on the side */
        const float slant = sonde__data_dice_between(dice, -0.25f, 0.3f);
        const int stripes = sonde__data_dice_chance(dice, 0.5f) ? 3 : 1;

        for (int i = 0; i < stripes; i++) {
            const float u = 0.05f + 0.17f * (float)i;

            sonde__data_canvas_point(canvas, u, collar + 0.35f);
            sonde__data_canvas_point(canvas, u + slant, l.ground - 0.12f);
            sonde__data_canvas_stroke(canvas, 0.08f);
        }
        sonde__data_canvas_paint(canvas, sonde__data_dice_between(dice, 0.0f, 1.0f),
                                 0.8f);
    }
    sonde__data_canvas_point(canvas, throat, collar + 0.04f); /* laces */
    sonde__data_canvas_point(canvas, l.toe + 0.5f, toe_top - 0.02f);
    sonde__data_canvas_stroke(canvas, 0.1f);
    sonde__data_canvas_paint(canvas, sonde__data_dice_between(dice, 0.2f, 1.0f), 0.5f);
    draw_sole(canvas, &l, sonde__data_dice_between(dice, 0.10f, 0.2f),
              sonde__data_dice_chance(dice, 0.6f) ? fminf(1.0f, brightness * 1.4f)
                                                  : brightness * 0.5f);
}

void sonde__data_draw_boot(sonde__data_canvas *canvas, sonde__data_dice *dice,
                           float brightness)
{
    const last l = {sonde__data_dice_between(dice, -0.95f, -0.8f),
                    sonde__data_dice_between(dice, 0.78f, 0.92f),
                    sonde__data_dice_between(dice, 0.68f, 0.85f),
                    sonde__data_dice_between(dice, 0.05f, 0.32f)};
    const float shaft = sonde__data_dice_between(dice, -0.92f, -0.45f);
    const float front = sonde__data_dice_between(dice, -0.05f, 0.22f);
    const float sole = l.ground - l.heel_height * 0.4f;
    const float lift = l.ground - l.heel_height;

    sonde__data_canvas_point(canvas, l.toe, sole - 0.04f); /* the upper */
    sonde__data_canvas_curve(canvas, l.toe, sole - 0.32f, l.toe + 0.4f, sole - 0.38f);
    sonde__data_canvas_curve(canvas, front - 0.1f, sole - 0.5f, front, shaft + 0.4f);
    sonde__data_canvas_point(canvas, front - 0.03f, shaft);
    sonde__data_canvas_curve(canvas, 0.5f * (front + l.heel), shaft + 0.05f,
                             l.heel - 0.02f, shaft);
    sonde__data_canvas_curve(canvas, l.heel - 0.1f, 0.2f, l.heel, lift);
    sonde__data_canvas_curve(canvas, 0.1f, sole - 0.04f, l.toe + 0.1f, sole);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    sonde__data_canvas_point(canvas, 0.42f, lift - 0.03f); /* the heel */
    sonde__data_canvas_point(canvas, l.heel, lift - 0.03f);
    sonde__data_canvas_point(canvas, l.heel - 0.04f, l.ground + 0.06f);
    sonde__data_canvas_point(canvas, 0.52f, l.ground + 0.06f);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_point(canvas, l.toe + 0.05f, sole);
    sonde__data_canvas_curve(canvas, -0.1f, sole + 0.04f, 0.5f, lift);
    sonde__data_canvas_stroke(canvas, 0.1f);
    sonde__data_canvas_paint(
        canvas, brightness * sonde__data_dice_between(dice, 0.3f, 1.2f), 1.0f);
    if (sonde__data_dice_chance(dice, 0.6f)) { /* a zip, elastic or laces */
        const float u = sonde__data_dice_between(dice, front + 0.15f, 0.6f);

        sonde__data_canvas_point(canvas, u, shaft + 0.08f);
        sonde__data_canvas_point(canvas, u - 0.06f, sole - 0.35f);
        sonde__data_canvas_stroke(canvas, sonde__data_dice_between(dice, 0.05f, 0.18f));
        sonde__data_canvas_paint(
            canvas, brightness * sonde__data_dice_between(dice, 0.2f, 1.3f), 0.7f);
    }
}

static void draw_handle(sonde__data_canvas *canvas, float half, float top, float up,
                        float width, float brightness)
{
    sonde__data_canvas_point(canvas, -half, top + 0.03f);
    sonde__data_canvas_curve(canvas, -half * 0.95f, up, 0.0f, up);
    sonde__data_canvas_curve(canvas, half * 0.95f, up, half, top + 0.03f);
    sonde__data_canvas_stroke(canvas, width);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
}

void sonde__data_draw_bag(sonde__data_canvas *canvas, sonde__data_dice *dice,
                          float brightness)
{
    const float top = sonde__data_dice_between(dice, -0.4f, 0.0f);
    const float bottom = sonde__data_dice_between(dice, 0.55f, 0.92f);
    const float below = sonde__data_dice_between(dice, 0.62f, 0.95f);
    const float above = below * sonde__data_dice_between(dice, 0.75f, 1.02f);
    const float round = sonde__data_dice_between(dice, 0.02f, 0.22f);
    const bool flap = sonde__data_dice_chance(dice, 0.5f);

    if (sonde__data_dice_chance(dice, 0.88f)) {
        draw_handle(canvas, above * sonde__data_dice_between(dice, 0.35f, 0.9f), top,
                    top - sonde__data_dice_between(dice, 0.3f, 0.62f),
                    sonde__data_dice_between(dice, 0.06f, 0.14f),
                    brightness * sonde__data_dice_between(dice, 0.7f, 1.1f));
    }
    sonde__data_canvas_point(canvas, 0.0f, top);
    sonde__data_canvas_point(canvas, above - round * 0.6f, top);
    sonde__data_canvas_curve(canvas, above, top, above, top + round);
    sonde__data_canvas_point(canvas, below, bottom - round);
    sonde__data_canvas_curve(canvas, below, bottom, below - round, bottom);
    sonde__data_canvas_point(canvas, 0.0f, bottom + 0.02f);
    sonde__data_canvas_mirror(canvas);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    if (flap) {
        const float down =
            top + (bottom - top) * sonde__data_dice_between(dice, 0.3f, 0.65f);

        sonde__data_canvas_point(canvas, -above, top + 0.05f);
        sonde__data_canvas_curve(canvas, -above, down, 0.0f, down);
        sonde__data_canvas_curve(canvas, above, down, above, top + 0.05f);
        sonde__data_canvas_stroke(canvas, 0.06f);
        sonde__data_canvas_paint(canvas, brightness * 0.4f,
                                 sonde__data_dice_between(dice, 0.3f, 0.9f));
    } else {
        sonde__data_canvas_point(canvas, -above * 0.95f, top + 0.1f); /* a zip */
        sonde__data_canvas_point(canvas, above * 0.95f, top + 0.1f);
        sonde__data_canvas_stroke(canvas, 0.06f);
        sonde__data_canvas_paint(canvas, brightness * 0.5f,
                                 sonde__data_dice_between(dice, 0.1f, 0.9f));
    }
    if (sonde__data_dice_chance(dice, 0.5f)) { /* a clasp */
        const float v = 0.5f * (top + bottom);

        sonde__data_canvas_point(canvas, -0.06f, v);
        sonde__data_canvas_point(canvas, 0.06f, v);
        sonde__data_canvas_stroke(canvas, 0.12f);
        sonde__data_canvas_paint(canvas,
                                 sonde__data_dice_chance(dice, 0.7f) ? 1.0f : 0.1f, 0.9f);
    }
}
