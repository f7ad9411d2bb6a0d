/*
 * garments.c - the stand-in clothes, by class: 0 T-shirt, 1 trouser, 2 pullover, 3 dress,
 * 4 coat, 6 shirt; then 5 sandal, 7 sneaker and 9 ankle boot, from the side with the toe
 * to the left, and 8 bag, from the front.
 *
 * The five tops are one cut with different measures, and the measures overlap: this makes
 * a shirt hard to tell from a coat.
 */
#include "nn/data/garments.h"
#include "base/random.h"

#include <math.h>

const char *const sonde__data_garment_names[SONDE_NN_SYNTH_CLASSES] = {
    "T-shirt", "Trouser", "Pullover", "Dress", "Coat",
    "Sandal",  "Shirt",   "Sneaker",  "Bag",   "Ankle boot"};

float sonde__data_dice_between(sonde__data_dice *dice, float low, float high)
{
    if (dice->next % 4 == 0) {
        sonde__philox(dice->seed, dice->stream, dice->next / 4, dice->block);
    }
    return low + (high - low) * ((float)(dice->block[dice->next++ % 4] >> 8) * 0x1p-24f);
}

bool sonde__data_dice_chance(sonde__data_dice *dice, float probability)
{
    return sonde__data_dice_between(dice, 0.0f, 1.0f) < probability;
}

/* === shoes and bags ================================================================= */

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

static void draw_sandal(sonde__data_canvas *canvas, sonde__data_dice *dice,
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

static void draw_sneaker(sonde__data_canvas *canvas, sonde__data_dice *dice,
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

static void draw_boot(sonde__data_canvas *canvas, sonde__data_dice *dice,
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

static void draw_bag(sonde__data_canvas *canvas, sonde__data_dice *dice, float brightness)
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

/* === clothes ======================================================================== */

/* Measures of a top; half widths, and heights from the collar (-1) down. */
typedef struct cut {
    float top, hem;
    float neck, neck_depth;
    float shoulder, slope;
    float chest, arm; /* arm: depth of the arm hole */
    float waist, waist_at, hem_width;
    float sleeve, cuff, spread; /* length, width at the end, angle from hanging */
    bool pointed;               /* V neck */
} cut;

static void draw_sleeve(sonde__data_canvas *canvas, const cut *c, float side,
                        float brightness)
{
    const float su = c->shoulder, sv = c->top + c->slope;
    const float au = c->chest * 0.96f, av = sv + c->arm;
    const float du = sinf(c->spread), dv = cosf(c->spread);
    const float eu = su + du * c->sleeve, ev = sv + dv * c->sleeve;

    sonde__data_canvas_point(canvas, side * (su - 0.10f), sv - 0.02f);
    sonde__data_canvas_curve(canvas, side * (su + 0.5f * du * c->sleeve + 0.06f),
                             sv + 0.45f * dv * c->sleeve, side * eu, ev);
    sonde__data_canvas_point(canvas, side * (eu - dv * c->cuff), ev + du * c->cuff);
    sonde__data_canvas_point(canvas, side * au, av);
    sonde__data_canvas_point(canvas, side * (au - 0.15f), av - 0.3f * c->arm);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
}

/* The edge between sleeve and body, in shadow. */
static void draw_arm_hole(sonde__data_canvas *canvas, const cut *c, float side,
                          float shadow)
{
    const float v = c->top + c->slope;

    sonde__data_canvas_point(canvas, side * c->shoulder, v);
    sonde__data_canvas_curve(canvas, side * (c->chest - 0.06f), v + 0.6f * c->arm,
                             side * c->chest, v + c->arm);
    if (c->sleeve > 0.8f) {
        sonde__data_canvas_curve(canvas, side * (c->waist + 0.02f), c->waist_at,
                                 side * c->hem_width, fminf(c->hem, v + c->sleeve));
    }
    sonde__data_canvas_stroke(canvas, 0.05f);
    sonde__data_canvas_paint(canvas, 0.15f, shadow);
}

static void draw_body(sonde__data_canvas *canvas, const cut *c, float brightness)
{
    const float v = c->top + c->slope;

    sonde__data_canvas_point(canvas, 0.0f, c->top + c->neck_depth);
    if (c->pointed) {
        sonde__data_canvas_point(canvas, c->neck, c->top);
    } else {
        sonde__data_canvas_curve(canvas, c->neck * 0.9f, c->top + c->neck_depth, c->neck,
                                 c->top);
    }
    sonde__data_canvas_point(canvas, c->shoulder, v);
    sonde__data_canvas_curve(canvas, c->chest - 0.05f, v + 0.5f * c->arm, c->chest,
                             v + c->arm);
    sonde__data_canvas_curve(canvas, c->waist, c->waist_at, c->hem_width, c->hem);
    sonde__data_canvas_point(canvas, 0.0f, c->hem + 0.03f);
    sonde__data_canvas_mirror(canvas);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
}

/* Sleeves, body, the inside of the neck. */
static void draw_top(sonde__data_canvas *canvas, sonde__data_dice *dice, const cut *c,
                     float brightness)
{
    const float sleeve_light = brightness * sonde__data_dice_between(dice, 0.78f, 1.05f);
    const float shadow = sonde__data_dice_between(dice, 0.25f, 0.8f);

    if (c->neck_depth > 0.05f) {
        sonde__data_canvas_point(canvas, c->neck, c->top - 0.01f);
        sonde__data_canvas_curve(canvas, 0.0f, c->top - 0.05f, -c->neck, c->top - 0.01f);
        sonde__data_canvas_curve(canvas, 0.0f, c->top + 1.9f * c->neck_depth, c->neck,
                                 c->top);
        sonde__data_canvas_close(canvas);
        sonde__data_canvas_paint(canvas, brightness * 0.45f,
                                 sonde__data_dice_between(dice, 0.0f, 0.9f));
    }
    for (int i = 0; c->sleeve > 0.0f && i < 2; i++) {
        draw_sleeve(canvas, c, i == 0 ? 1.0f : -1.0f, sleeve_light);
    }
    draw_body(canvas, c, brightness);
    for (int i = 0; c->sleeve > 0.0f && i < 2; i++) {
        draw_arm_hole(canvas, c, i == 0 ? 1.0f : -1.0f, shadow);
    }
}

/* A line down the front, from the neck to v, with or without buttons. */
static void draw_front(sonde__data_canvas *canvas, sonde__data_dice *dice, const cut *c,
                       float brightness, float opacity)
{
    const bool dark = sonde__data_dice_chance(dice, 0.7f);

    sonde__data_canvas_point(canvas, 0.0f, c->top + c->neck_depth);
    sonde__data_canvas_point(canvas, sonde__data_dice_between(dice, -0.03f, 0.03f),
                             c->hem);
    sonde__data_canvas_stroke(canvas, sonde__data_dice_between(dice, 0.04f, 0.08f));
    sonde__data_canvas_paint(
        canvas, dark ? brightness * 0.3f : fminf(brightness * 1.5f, 1.0f), opacity);
    if (sonde__data_dice_chance(dice, 0.5f)) {
        const float step = sonde__data_dice_between(dice, 0.22f, 0.34f);

        const float first = c->top + c->neck_depth + 0.12f;
        const int buttons = (int)((c->hem - 0.1f - first) / step) + 1;

        for (int i = 0; i < buttons; i++) {
            const float v = first + step * (float)i;

            sonde__data_canvas_point(canvas, 0.05f, v);
            sonde__data_canvas_point(canvas, 0.05f, v + 0.05f);
            sonde__data_canvas_stroke(canvas, 0.07f);
        }
        sonde__data_canvas_paint(canvas, dark ? 1.0f : 0.1f, opacity * 0.8f);
    }
}

/* Two flaps beside the neck: a shirt's collar, a coat's lapels when long. */
static void draw_collar(sonde__data_canvas *canvas, const cut *c, float length,
                        float brightness)
{
    for (int i = 0; i < 2; i++) {
        const float side = i == 0 ? 1.0f : -1.0f;

        sonde__data_canvas_point(canvas, side * c->neck * 1.05f, c->top - 0.03f);
        sonde__data_canvas_point(canvas, side * (c->neck * 1.2f),
                                 c->top + 0.55f * length);
        sonde__data_canvas_point(canvas, side * 0.04f, c->top + length);
        sonde__data_canvas_point(canvas, side * 0.02f, c->top + c->neck_depth * 0.8f);
        sonde__data_canvas_close(canvas);
    }
    sonde__data_canvas_paint(canvas, brightness, 0.85f);
}

static cut cut_of_top(sonde__data_dice *dice)
{
    cut c = {0};

    c.top = sonde__data_dice_between(dice, -0.95f, -0.82f);
    c.hem = sonde__data_dice_between(dice, 0.78f, 0.96f);
    c.neck = sonde__data_dice_between(dice, 0.17f, 0.28f);
    c.neck_depth = sonde__data_dice_between(dice, 0.05f, 0.18f);
    c.shoulder = sonde__data_dice_between(dice, 0.48f, 0.58f);
    c.slope = sonde__data_dice_between(dice, 0.10f, 0.20f);
    c.chest = c.shoulder - sonde__data_dice_between(dice, 0.0f, 0.08f);
    c.arm = sonde__data_dice_between(dice, 0.36f, 0.50f);
    c.waist = c.chest - sonde__data_dice_between(dice, -0.02f, 0.12f);
    c.waist_at = sonde__data_dice_between(dice, 0.1f, 0.35f);
    c.hem_width = c.waist + sonde__data_dice_between(dice, -0.02f, 0.12f);
    return c;
}

/* Sleeves to the wrist, hanging. */
static void long_sleeves(sonde__data_dice *dice, cut *c)
{
    c->sleeve = sonde__data_dice_between(dice, 1.25f, 1.62f);
    c->cuff = sonde__data_dice_between(dice, 0.17f, 0.24f);
    c->spread = sonde__data_dice_between(dice, 0.10f, 0.26f);
}

static void short_sleeves(sonde__data_dice *dice, cut *c)
{
    c->sleeve = sonde__data_dice_between(dice, 0.36f, 0.66f);
    c->cuff = sonde__data_dice_between(dice, 0.30f, 0.42f);
    c->spread = sonde__data_dice_between(dice, 0.45f, 0.95f);
}

static void draw_t_shirt(sonde__data_canvas *canvas, sonde__data_dice *dice,
                         float brightness)
{
    cut c = cut_of_top(dice);

    c.pointed = sonde__data_dice_chance(dice, 0.2f);
    if (sonde__data_dice_chance(dice, 0.07f)) {
        c.sleeve = 0.0f;
        c.shoulder *= 0.8f;
    } else {
        short_sleeves(dice, &c);
    }
    draw_top(canvas, dice, &c, brightness);
    if (sonde__data_dice_chance(dice, 0.35f)) { /* a print on the chest */
        const float u = sonde__data_dice_between(dice, 0.12f, 0.32f);
        const float v = sonde__data_dice_between(dice, -0.45f, -0.2f);
        const float down = sonde__data_dice_between(dice, 0.15f, 0.6f);

        sonde__data_canvas_point(canvas, 0.0f, v);
        sonde__data_canvas_curve(canvas, u, v, u, v + 0.5f * down);
        sonde__data_canvas_curve(canvas, u, v + down, 0.0f, v + down);
        sonde__data_canvas_mirror(canvas);
        sonde__data_canvas_close(canvas);
        sonde__data_canvas_paint(canvas, sonde__data_dice_between(dice, 0.0f, 1.0f),
                                 sonde__data_dice_between(dice, 0.3f, 0.9f));
    }
}

static void draw_pullover(sonde__data_canvas *canvas, sonde__data_dice *dice,
                          float brightness)
{
    cut c = cut_of_top(dice);
    const float band = sonde__data_dice_between(dice, 0.0f, 0.6f);

    long_sleeves(dice, &c);
    c.neck_depth *= 0.8f;
    draw_top(canvas, dice, &c, brightness);
    sonde__data_canvas_point(canvas, -c.hem_width,
                             c.hem - 0.06f); /* ribbing at the hem */
    sonde__data_canvas_point(canvas, c.hem_width, c.hem - 0.06f);
    sonde__data_canvas_stroke(canvas, 0.1f);
    sonde__data_canvas_paint(canvas, brightness * 0.6f, band);
    if (sonde__data_dice_chance(dice, 0.15f)) { /* a hood, or a polo neck */
        sonde__data_canvas_point(canvas, c.neck * 1.3f, c.top + 0.12f);
        sonde__data_canvas_curve(canvas, c.neck * 1.4f, c.top - 0.12f, 0.0f,
                                 c.top - 0.12f);
        sonde__data_canvas_mirror(canvas);
        sonde__data_canvas_close(canvas);
        sonde__data_canvas_paint(canvas, brightness * 0.8f, 0.9f);
    }
}

static void draw_coat(sonde__data_canvas *canvas, sonde__data_dice *dice,
                      float brightness)
{
    cut c = cut_of_top(dice);

    long_sleeves(dice, &c);
    c.hem = sonde__data_dice_between(dice, 0.86f, 1.0f);
    c.hem_width += sonde__data_dice_between(dice, 0.0f, 0.10f);
    c.neck_depth *= sonde__data_dice_between(dice, 0.8f, 1.8f);
    c.pointed = sonde__data_dice_chance(dice, 0.7f);
    draw_top(canvas, dice, &c, brightness);
    draw_front(canvas, dice, &c, brightness, sonde__data_dice_between(dice, 0.45f, 1.0f));
    if (sonde__data_dice_chance(dice, 0.65f)) {
        draw_collar(canvas, &c, sonde__data_dice_between(dice, 0.3f, 0.7f),
                    brightness * sonde__data_dice_between(dice, 0.7f, 1.2f));
    }
    for (int i = sonde__data_dice_chance(dice, 0.5f) ? 0 : 2; i < 2; i++) { /* pockets */
        const float side = i == 0 ? 1.0f : -1.0f;

        sonde__data_canvas_point(canvas, side * 0.14f, 0.36f);
        sonde__data_canvas_point(canvas, side * 0.36f, 0.32f);
        sonde__data_canvas_stroke(canvas, 0.06f);
        sonde__data_canvas_paint(canvas, brightness * 0.4f, 0.6f);
    }
}

static void draw_shirt(sonde__data_canvas *canvas, sonde__data_dice *dice,
                       float brightness)
{
    cut c = cut_of_top(dice);

    if (sonde__data_dice_chance(dice, 0.4f)) {
        short_sleeves(dice, &c);
        c.sleeve *= sonde__data_dice_between(dice, 1.0f, 1.25f);
    } else {
        long_sleeves(dice, &c);
    }
    c.neck *= 0.85f;
    draw_top(canvas, dice, &c, brightness);
    if (sonde__data_dice_chance(dice, 0.8f)) {
        draw_front(canvas, dice, &c, brightness,
                   sonde__data_dice_between(dice, 0.1f, 0.5f));
    }
    if (sonde__data_dice_chance(dice, 0.75f)) {
        draw_collar(canvas, &c, sonde__data_dice_between(dice, 0.18f, 0.34f),
                    fminf(brightness * sonde__data_dice_between(dice, 0.8f, 1.3f), 1.0f));
    }
}

static void draw_dress(sonde__data_canvas *canvas, sonde__data_dice *dice,
                       float brightness)
{
    cut c = cut_of_top(dice);

    c.top = sonde__data_dice_between(dice, -1.0f, -0.9f);
    c.hem = sonde__data_dice_between(dice, 0.88f, 1.0f);
    c.shoulder = sonde__data_dice_between(dice, 0.22f, 0.36f);
    c.neck = c.shoulder * sonde__data_dice_between(dice, 0.45f, 0.8f);
    c.neck_depth = sonde__data_dice_between(dice, 0.05f, 0.3f);
    c.chest = c.shoulder * sonde__data_dice_between(dice, 0.85f, 1.05f);
    c.arm = sonde__data_dice_between(dice, 0.25f, 0.4f);
    c.waist = c.chest * sonde__data_dice_between(dice, 0.55f, 0.95f);
    c.waist_at = sonde__data_dice_between(dice, -0.4f, 0.0f);
    c.hem_width = sonde__data_dice_between(dice, 0.24f, 0.52f);
    c.pointed = sonde__data_dice_chance(dice, 0.4f);
    if (sonde__data_dice_chance(dice, 0.3f)) {
        long_sleeves(dice, &c);
        c.sleeve *= sonde__data_dice_between(dice, 0.5f, 0.9f);
        c.cuff *= 0.7f;
    } else if (sonde__data_dice_chance(dice, 0.4f)) {
        short_sleeves(dice, &c);
        c.sleeve *= 0.7f;
        c.cuff *= 0.6f;
    }
    draw_top(canvas, dice, &c, brightness);
    if (sonde__data_dice_chance(dice, 0.4f)) { /* a belt */
        const float v = sonde__data_dice_between(dice, -0.3f, -0.1f);

        sonde__data_canvas_point(canvas, -c.chest * 0.85f, v);
        sonde__data_canvas_point(canvas, c.chest * 0.85f, v);
        sonde__data_canvas_stroke(canvas, 0.07f);
        sonde__data_canvas_paint(canvas, sonde__data_dice_between(dice, 0.05f, 0.6f),
                                 0.7f);
    }
}

static void draw_trouser(sonde__data_canvas *canvas, sonde__data_dice *dice,
                         float brightness)
{
    const float waist = sonde__data_dice_between(dice, 0.26f, 0.38f);
    const float hip = waist + sonde__data_dice_between(dice, 0.03f, 0.12f);
    const float top = sonde__data_dice_between(dice, -1.0f, -0.9f);
    const float crotch = sonde__data_dice_between(dice, -0.45f, -0.2f);
    const float hem = sonde__data_dice_between(dice, 0.88f, 1.0f);
    const float apart = sonde__data_dice_between(dice, 0.02f, 0.14f);
    const float outer =
        fmaxf(sonde__data_dice_between(dice, 0.26f, 0.44f), apart + 0.16f);

    sonde__data_canvas_point(canvas, 0.0f, top + 0.02f);
    sonde__data_canvas_point(canvas, waist, top);
    sonde__data_canvas_curve(canvas, hip, 0.5f * (top + crotch), hip, crotch + 0.05f);
    sonde__data_canvas_point(canvas, outer, hem);
    sonde__data_canvas_point(canvas, apart, hem + 0.02f);
    sonde__data_canvas_point(canvas, 0.015f, crotch);
    sonde__data_canvas_mirror(canvas);
    sonde__data_canvas_close(canvas);
    sonde__data_canvas_paint(canvas, brightness, 1.0f);
    sonde__data_canvas_point(canvas, -waist, top + 0.06f); /* waistband */
    sonde__data_canvas_point(canvas, waist, top + 0.06f);
    sonde__data_canvas_stroke(canvas, 0.09f);
    sonde__data_canvas_paint(
        canvas, brightness * sonde__data_dice_between(dice, 0.5f, 1.2f), 0.7f);
    sonde__data_canvas_point(canvas, 0.0f, top + 0.1f); /* fly */
    sonde__data_canvas_point(canvas, 0.0f, crotch);
    sonde__data_canvas_stroke(canvas, 0.04f);
    sonde__data_canvas_paint(canvas, brightness * 0.5f,
                             sonde__data_dice_between(dice, 0.1f, 0.8f));
}

void sonde__data_garment_draw(sonde__data_canvas *canvas, sonde__data_dice *dice,
                              int label, float brightness)
{
    typedef void draw_fn(sonde__data_canvas * canvas, sonde__data_dice * dice,
                         float brightness);
    static draw_fn *const by_label[SONDE_NN_SYNTH_CLASSES] = {
        draw_t_shirt, draw_trouser, draw_pullover, draw_dress, draw_coat,
        draw_sandal,  draw_shirt,   draw_sneaker,  draw_bag,   draw_boot,
    };

    by_label[label](canvas, dice, brightness);
}
