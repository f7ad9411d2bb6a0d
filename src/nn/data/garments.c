/*
 * garments.c - the stand-in clothes as a table of parts: outlines between a narrow and a wide
 * cut, by class: 0 T-shirt, 1 trouser, 2 pullover, 3 dress, 4 coat, 6 shirt; 5 sandal,
 * 7 sneaker and 9 ankle boot from the side with the toe to the left, and 8 bag.
 *
 * The tops are one cut with different sleeves and trimmings, which makes a shirt hard to tell
 * from a coat. A sample draws four numbers, which say where between its two outlines a part
 * lies, and which of the parts it has; and a pose: an affine map and a bend of the sides.
 *
 * Coverage is exact: every edge adds its signed area to the pixels it crosses, and a running
 * sum along the row turns that into covered fractions, as font rasterisers do.
 */
#include "nn/data/pixels.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/options.h"
#include "nn/data/files.h"
#include "base/macros.h"
#include "base/random.h"

#include <math.h>
#include <string.h>
#include <stdio.h>

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

/* --- the parts ---------------------------------------------------------------------- */

enum { POINTS = 10, STRIDE = SONDE__SIDE + 1 };

enum {
    T_SHIRT = 1 << 0,
    TROUSER = 1 << 1,
    PULLOVER = 1 << 2,
    DRESS = 1 << 3,
    COAT = 1 << 4,
    SANDAL = 1 << 5,
    SHIRT = 1 << 6,
    SNEAKER = 1 << 7,
    BAG = 1 << 8,
    BOOT = 1 << 9,
    TOPS = T_SHIRT | PULLOVER | COAT | SHIRT
};

/* ONE outline; HALF: it and its mirror image are one outline; PAIR: both are drawn. */
typedef enum part_sides { ONE, HALF, PAIR } part_sides;

/* Numbers are hundredths: of the half picture, of the brightness, of one. */
typedef struct garment_part {
    int labels;            /* classes that have it */
    int number, low, high; /* present if this number of the sample is within the bounds */
    int cut;               /* the number that says where between its outlines it lies */
    part_sides sides;
    int width;              /* of a line; 0: the outline is filled */
    int light[2], cover[2]; /* bounds */
    signed char points[POINTS]
                      [4]; /* u, v of the narrow cut and of the wide one; ends with 0 */
} garment_part;

/* u to the right, v down; of a HALF from the top of the middle to its bottom. In this order,
 * one over the other. */
/* clang-format off */
static const garment_part parts[] = {
    /* tops: inside of the neck, sleeves, body */
    {TOPS | DRESS, 3, 20, 100, 0, HALF, 0, {35, 55}, {0, 90},
     {{0, -90, 0, -84}, {18, -93, 27, -86}, {0, -70, 0, -58}}},
    {PULLOVER | COAT, 0, 0, 100, 2, PAIR, 0, {78, 105}, {100, 100},
     {{38, -86, 48, -80}, {52, -76, 58, -70}, {66, -20, 80, -18}, {72, 62, 92, 66},
      {54, 64, 74, 74}, {46, -20, 54, -14}, {40, -40, 44, -34}}},
    {SHIRT, 0, 40, 100, 2, PAIR, 0, {78, 105}, {100, 100},
     {{38, -86, 48, -80}, {52, -76, 58, -70}, {66, -20, 80, -18}, {72, 56, 90, 60},
      {54, 58, 72, 68}, {46, -20, 54, -14}, {40, -40, 44, -34}}},
    {T_SHIRT, 0, 0, 100, 2, PAIR, 0, {78, 105}, {100, 100},
     {{38, -86, 46, -82}, {52, -78, 60, -70}, {70, -42, 96, -44}, {52, -28, 82, -14},
      {40, -36, 46, -26}}},
    {SHIRT, 0, 0, 40, 2, PAIR, 0, {78, 105}, {100, 100},
     {{38, -86, 46, -82}, {52, -78, 60, -70}, {70, -30, 94, -30}, {52, -18, 80, -6},
      {40, -36, 46, -26}}},
    {TOPS, 0, 0, 100, 1, HALF, 0, {100, 100}, {100, 100},
     {{0, -86, 0, -70}, {18, -94, 27, -86}, {48, -80, 57, -70}, {45, -38, 54, -26},
      {40, 18, 52, 26}, {42, 80, 58, 96}, {0, 83, 0, 99}}},
    {COAT, 0, 0, 100, 1, HALF, 0, {95, 105}, {100, 100},
     {{0, 10, 0, 15}, {40, 10, 52, 15}, {46, 90, 68, 102}, {0, 92, 0, 104}}},
    {PULLOVER | COAT | SHIRT, 0, 40, 100, 1, PAIR, 5, {5, 25}, {25, 80},
     {{50, -76, 57, -68}, {45, -36, 54, -26}, {42, 20, 54, 28}, {44, 50, 57, 70}}},
    {T_SHIRT | SHIRT, 0, 0, 40, 1, PAIR, 5, {5, 25}, {25, 80},
     {{50, -76, 57, -68}, {45, -36, 54, -26}}},
    /* and what tells them apart */
    {T_SHIRT, 3, 0, 35, 2, HALF, 0, {0, 180}, {30, 90},
     {{0, -42, 0, -30}, {14, -42, 32, -30}, {14, -20, 32, 30}, {0, -16, 0, 34}}},
    {PULLOVER, 0, 0, 100, 1, HALF, 10, {50, 70}, {0, 60}, {{42, 76, 58, 91}, {0, 78, 0, 93}}},
    {PULLOVER, 3, 0, 20, 1, HALF, 0, {70, 90}, {90, 90},
     {{0, -104, 0, -99}, {20, -104, 30, -97}, {24, -86, 36, -78}, {0, -80, 0, -72}}},
    {COAT, 0, 0, 100, 1, ONE, 6, {20, 45}, {45, 100}, {{0, -76, -2, -62}, {1, 92, 2, 104}}},
    {COAT, 3, 0, 65, 2, PAIR, 0, {70, 120}, {85, 85},
     {{20, -97, 26, -90}, {28, -72, 34, -58}, {4, -52, 4, -24}, {2, -80, 2, -66}}},
    {COAT, 2, 0, 50, 1, PAIR, 6, {40, 40}, {60, 60}, {{14, 34, 16, 40}, {36, 30, 38, 36}}},
    {SHIRT, 3, 0, 80, 1, ONE, 5, {25, 150}, {10, 50}, {{0, -76, -2, -62}, {1, 82, 2, 97}}},
    {SHIRT, 2, 0, 75, 2, PAIR, 0, {80, 130}, {85, 85},
     {{18, -97, 25, -89}, {24, -84, 32, -74}, {4, -68, 4, -56}, {2, -82, 2, -72}}},
    /* dress */
    {DRESS, 3, 0, 30, 2, PAIR, 0, {78, 105}, {100, 100},
     {{20, -93, 30, -88}, {36, -50, 50, -40}, {40, -12, 62, 10}, {30, -8, 50, 16},
      {20, -54, 30, -46}}},
    {DRESS, 3, 30, 60, 2, PAIR, 0, {78, 105}, {100, 100},
     {{20, -94, 30, -88}, {40, -66, 56, -60}, {30, -52, 46, -46}, {18, -58, 28, -50}}},
    {DRESS, 0, 0, 100, 1, HALF, 0, {100, 100}, {100, 100},
     {{0, -90, 0, -66}, {12, -98, 20, -96}, {22, -96, 34, -92}, {20, -62, 33, -52},
      {14, -26, 27, -18}, {20, 40, 44, 30}, {25, 92, 52, 98}, {0, 95, 0, 102}}},
    {DRESS, 0, 0, 40, 1, HALF, 7, {5, 60}, {70, 70}, {{16, -26, 28, -18}, {0, -25, 0, -17}}},
    /* trouser: legs, waistband, fly */
    {TROUSER, 0, 0, 100, 1, HALF, 0, {100, 100}, {100, 100},
     {{0, -96, 0, -90}, {26, -99, 38, -93}, {30, -60, 46, -52}, {29, -28, 46, -24},
      {26, 92, 46, 98}, {4, 95, 16, 101}, {1, -44, 2, -22}}},
    {TROUSER, 0, 0, 100, 1, HALF, 9, {50, 120}, {70, 70}, {{26, -92, 38, -86}, {0, -90, 0, -84}}},
    {TROUSER, 0, 0, 100, 1, ONE, 4, {50, 50}, {10, 80}, {{0, -88, 1, -82}, {1, -44, 0, -22}}},
    /* sandal: sole, heel, straps */
    {SANDAL, 0, 0, 100, 0, ONE, 15, {60, 100}, {100, 100},
     {{-96, 34, -86, 68}, {-45, 42, -42, 72}, {10, 42, 6, 46}, {50, 36, 48, 10}, {90, 32, 88, 0}}},
    {SANDAL, 0, 45, 75, 0, ONE, 9, {50, 90}, {100, 100}, {{86, 34, 84, 2}, {84, 40, 82, 78}}},
    {SANDAL, 0, 75, 100, 0, ONE, 0, {50, 90}, {100, 100},
     {{-60, 42, -60, 70}, {0, 40, 10, 46}, {88, 34, 88, 2}, {86, 46, 86, 76}, {-50, 46, -50, 76}}},
    {SANDAL, 0, 0, 100, 0, ONE, 13, {90, 110}, {100, 100},
     {{-84, 36, -80, 66}, {-60, 0, -62, 26}, {-34, 40, -38, 64}}},
    {SANDAL, 1, 35, 100, 0, ONE, 13, {90, 110}, {100, 100},
     {{-56, 40, -54, 66}, {-34, -6, -34, 16}, {-4, 40, -8, 52}}},
    {SANDAL, 1, 65, 100, 2, ONE, 13, {90, 110}, {100, 100},
     {{-80, 36, -78, 64}, {-30, 6, -30, 20}, {24, -20, 36, -42}}},
    {SANDAL, 3, 0, 75, 2, ONE, 11, {80, 110}, {100, 100},
     {{86, 30, 86, 2}, {90, 0, 88, -34}, {72, -26, 66, -62}, {40, -20, 38, -50}, {26, 10, 30, -14},
      {38, 38, 42, 12}}},
    /* sneaker: upper, stripes, laces, sole */
    {SNEAKER, 0, 0, 100, 1, ONE, 0, {100, 100}, {100, 100},
     {{-94, 34, -86, 60}, {-92, 10, -78, 28}, {-46, -4, -40, 12}, {-4, -28, 4, -34},
      {22, -32, 34, -44}, {56, -14, 60, -22}, {82, -30, 80, -48}, {92, 4, 88, 8}, {92, 36, 88, 60}}},
    {SNEAKER, 3, 0, 60, 2, ONE, 8, {0, 200}, {80, 80}, {{4, -8, 16, -4}, {-8, 30, 34, 46}}},
    {SNEAKER, 3, 0, 30, 2, ONE, 8, {0, 200}, {80, 80}, {{22, -8, 34, -4}, {10, 30, 52, 46}}},
    {SNEAKER, 0, 0, 100, 1, ONE, 10, {20, 160}, {50, 50}, {{-2, -24, 6, -30}, {-44, 0, -36, 16}}},
    {SNEAKER, 0, 0, 60, 1, ONE, 15, {120, 160}, {100, 100},
     {{-93, 34, -86, 60}, {0, 39, 2, 65}, {92, 35, 88, 60}}},
    {SNEAKER, 0, 60, 100, 1, ONE, 13, {40, 60}, {100, 100},
     {{-93, 34, -86, 60}, {0, 39, 2, 65}, {92, 35, 88, 60}}},
    /* bag: handle, body, flap or zip, clasp */
    {BAG, 3, 12, 100, 2, HALF, 10, {70, 110}, {100, 100},
     {{24, -30, 66, 0}, {22, -62, 60, -44}, {10, -80, 30, -62}, {0, -86, 0, -66}}},
    {BAG, 0, 0, 100, 1, HALF, 0, {100, 100}, {100, 100},
     {{0, -36, 0, -6}, {54, -36, 78, -6}, {60, -30, 86, 2}, {66, 50, 94, 76}, {60, 60, 86, 88},
      {0, 62, 0, 90}}},
    {BAG, 0, 0, 50, 1, HALF, 6, {30, 50}, {30, 90},
     {{58, -30, 84, 0}, {46, 2, 66, 30}, {0, 14, 0, 40}}},
    {BAG, 0, 50, 100, 1, HALF, 6, {40, 60}, {10, 90}, {{58, -24, 84, 8}, {0, -24, 0, 8}}},
    {BAG, 2, 0, 50, 1, ONE, 12, {0, 180}, {90, 90}, {{-6, 12, -6, 40}, {6, 12, 6, 40}}},
    /* boot: upper, heel, sole, trim */
    {BOOT, 0, 0, 100, 1, ONE, 0, {100, 100}, {100, 100},
     {{-94, 64, -82, 76}, {-90, 36, -76, 46}, {-50, 26, -42, 34}, {-10, 4, 8, 8}, {-8, -50, 16, -90},
      {82, -48, 88, -88}, {78, 14, 82, 10}, {88, 60, 88, 48}, {40, 66, 48, 48}, {-80, 68, -70, 80}}},
    {BOOT, 0, 0, 100, 1, ONE, 0, {30, 120}, {100, 100},
     {{46, 60, 50, 46}, {88, 60, 88, 46}, {86, 80, 84, 90}, {52, 80, 60, 90}}},
    {BOOT, 0, 0, 100, 1, ONE, 10, {30, 120}, {100, 100},
     {{-90, 66, -78, 78}, {-6, 68, -4, 74}, {50, 62, 50, 50}}},
    {BOOT, 3, 0, 60, 2, ONE, 11, {20, 130}, {70, 70}, {{24, -44, 56, -78}, {20, 10, 46, 24}}},
};
/* clang-format on */

/* --- filling ------------------------------------------------------------------------ */

typedef struct point {
    float x, y; /* in pixels */
} point;

/* What is being drawn. */
typedef struct garment_canvas {
    sonde__data_picture *picture;
    sonde__data_dice *dice;
    float xu, xv, x0, yu, yv, y0;     /* x = xu u + xv v + x0, y = yu u + yv v + y0 */
    float bend, phase;                /* u grows by bend sin(2 v + phase) */
    float area[SONDE__SIDE * STRIDE]; /* the shape so far */
    point outline[2 * POINTS];
    int count;
} garment_canvas;

/* The part of an edge within one row, from x0 to x1 over a height of dy. */
static void add_in_row(float *row, float x0, float x1, float dy)
{
    const float left = fminf(fmaxf(fminf(x0, x1), 0.0f), (float)SONDE__SIDE);
    const float right = fminf(fmaxf(fmaxf(x0, x1), 0.0f), (float)SONDE__SIDE);
    const int first = SONDE_MIN((int)left, SONDE__SIDE - 1);
    const int last = SONDE_MAX(first + 1, (int)ceilf(right));

    for (int x = first; x < last; x++) { /* each pixel gets a share of dy */
        const float a = fmaxf(left, (float)x), b = fminf(right, (float)(x + 1));
        const float share = last == first + 1 ? dy : dy * (b - a) / (right - left);
        const float middle = 0.5f * (a + b) - (float)x;

        row[x] += share * (1.0f - middle);
        row[x + 1] += share * middle;
    }
}

static void add_edge(garment_canvas *canvas, point from, point to)
{
    const point top = from.y < to.y ? from : to, bottom = from.y < to.y ? to : from;
    const float way = from.y < to.y ? 1.0f : -1.0f;
    const float slope = (bottom.x - top.x) / fmaxf(bottom.y - top.y, 1e-6f);

    for (int row = (int)fmaxf(top.y, 0.0f); row < SONDE__SIDE && (float)row < bottom.y;
         row++) {
        const float start = fmaxf(top.y, (float)row);
        const float end = fminf(bottom.y, (float)(row + 1));

        add_in_row(canvas->area + row * STRIDE, top.x + (start - top.y) * slope,
                   top.x + (end - top.y) * slope, way * (end - start));
    }
}

/* All outlines turn the same way: opposite ones would cancel each other. */
static void add_outline(garment_canvas *canvas, const point *outline, int count)
{
    float twice = 0.0f;

    for (int i = 0; i < count; i++) {
        const point a = outline[i], b = outline[(i + 1) % count];

        twice += a.x * b.y - b.x * a.y;
    }
    for (int i = 0; i < count; i++) {
        const point a = outline[i], b = outline[(i + 1) % count];

        add_edge(canvas, twice < 0.0f ? b : a, twice < 0.0f ? a : b);
    }
}

/* The open line through the points as a shape, width pixels wide. */
static void add_line(garment_canvas *canvas, float width)
{
    for (int i = 0; i + 1 < canvas->count; i++) {
        const point a = canvas->outline[i], b = canvas->outline[i + 1];
        const float dx = b.x - a.x, dy = b.y - a.y;
        const float half = 0.5f * width / fmaxf(hypotf(dx, dy), 1e-3f);
        const float nx = -dy * half, ny = dx * half, ex = 0.5f * ny, ey = -0.5f * nx;
        const point quad[4] = {{a.x + nx - ex, a.y + ny - ey},
                               {b.x + nx + ex, b.y + ny + ey},
                               {b.x - nx + ex, b.y - ny + ey},
                               {a.x - nx - ex, a.y - ny - ey}};

        add_outline(canvas, quad, 4);
    }
}

/* Paints the shape and starts an empty one. */
static void paint(garment_canvas *canvas, float brightness, float cover)
{
    sonde__data_picture *picture = canvas->picture;

    for (int y = 0; y < SONDE__SIDE; y++) {
        float sum = 0.0f;

        for (int x = 0; x < SONDE__SIDE; x++) {
            const int i = y * SONDE__SIDE + x;

            sum += canvas->area[y * STRIDE + x];
            const float covered = fminf(fabsf(sum), 1.0f);

            picture->light[i] +=
                covered * cover * (brightness * picture->cloth[i] - picture->light[i]);
            picture->drawn[i] = fmaxf(picture->drawn[i], covered);
        }
    }
    memset(canvas->area, 0, sizeof canvas->area);
}

/* --- drawing ------------------------------------------------------------------------ */

static void add_point(garment_canvas *canvas, float u, float v)
{
    const float bent = u * (1.0f + canvas->bend * sinf(2.0f * v + canvas->phase));

    canvas->outline[canvas->count++] =
        (point){canvas->xu * bent + canvas->xv * v + canvas->x0,
                canvas->yu * bent + canvas->yv * v + canvas->y0};
}

/* The outline of a part, or of its mirror image with side -1; cut is 0 to 1. */
static void add_part(garment_canvas *canvas, const garment_part *part, float side,
                     float cut)
{
    float u[POINTS], v[POINTS];
    int count = 0;

    for (; count < POINTS; count++) {
        const signed char *p = part->points[count];

        if (p[0] == 0 && p[1] == 0) {
            break;
        }
        u[count] = side * 0.01f * ((float)p[0] + cut * (float)(p[2] - p[0]));
        v[count] = 0.01f * ((float)p[1] + cut * (float)(p[3] - p[1]));
    }
    canvas->count = 0;
    for (int i = 0; i < count; i++) {
        add_point(canvas, u[i], v[i]);
    }
    for (int i = count - 1; part->sides == HALF && i >= 0; i--) {
        add_point(canvas, -u[i], v[i]);
    }
    if (part->width > 0) {
        add_line(canvas, 0.01f * (float)part->width * canvas->yv);
    } else {
        add_outline(canvas, canvas->outline, canvas->count);
    }
}

static float within(sonde__data_dice *dice, const int bounds[2])
{
    return 0.01f * sonde__data_dice_between(dice, (float)bounds[0], (float)bounds[1]);
}

static void set_pose(garment_canvas *canvas)
{
    sonde__data_dice *dice = canvas->dice;
    const float middle = 0.5f * (float)SONDE__SIDE;
    const float size = middle * sonde__data_dice_between(dice, 0.86f, 1.0f);
    const float wide = size * sonde__data_dice_between(dice, 0.86f, 1.06f);
    const float angle = sonde__data_dice_between(dice, -0.09f, 0.09f);
    const float shear = sonde__data_dice_between(dice, -0.06f, 0.06f);

    canvas->xu = cosf(angle) * wide;
    canvas->xv = canvas->xu * shear - sinf(angle) * size;
    canvas->x0 = middle + sonde__data_dice_between(dice, -0.8f, 0.8f);
    canvas->yu = sinf(angle) * wide;
    canvas->yv = cosf(angle) * size;
    canvas->y0 = middle + sonde__data_dice_between(dice, -0.8f, 0.8f);
    canvas->bend = sonde__data_dice_between(dice, 0.0f, 0.09f);
    canvas->phase = sonde__data_dice_between(dice, 0.0f, 6.28f);
}

void sonde__data_garment_draw(sonde__data_picture *picture, sonde__data_dice *dice,
                              int label, float brightness)
{
    garment_canvas canvas = {.picture = picture, .dice = dice};
    float numbers[4];

    set_pose(&canvas);
    for (int i = 0; i < 4; i++) {
        numbers[i] = sonde__data_dice_between(dice, 0.0f, 1.0f);
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(parts); i++) {
        const garment_part *part = &parts[i];
        const float number = 100.0f * numbers[part->number];

        if ((part->labels >> label & 1) == 0 || number < (float)part->low ||
            number >= (float)part->high) {
            continue;
        }
        add_part(&canvas, part, 1.0f, numbers[part->cut]);
        if (part->sides == PAIR) {
            add_part(&canvas, part, -1.0f, numbers[part->cut]);
        }
        const float light = brightness * within(dice, part->light);

        paint(&canvas, fminf(light, 1.0f), within(dice, part->cover));
    }
}

/* === the synthetic set ============================================================= */

/*
 * Draws one sample, and writes a set of them.
 *
 * A sample has a label (ten consecutive samples are the ten classes, shuffled), a cloth, the
 * garment in a pose, light from one side, and grain. All random numbers of a sample come
 * from its own stream.
 */

enum { PATH_SIZE = 4096, TRAIN_COUNT = 60000, TEST_COUNT = 10000, REPORT_EVERY = 500 };

/* --- one sample --------------------------------------------------------------------- */

/* Light cloth is more common than dark. */
static float draw_brightness(sonde__data_dice *dice)
{
    const float a = sonde__data_dice_between(dice, 0.22f, 1.0f);
    const float b = sonde__data_dice_between(dice, 0.22f, 1.0f);

    return sonde__data_dice_between(dice, 0.0f, 1.0f) < 0.4f ? fmaxf(a, b) : a;
}

/* Stripes, checks, folds: a factor for every pixel. Leather shows less of them. */
static void weave(sonde__data_picture *picture, sonde__data_dice *dice, bool leather)
{
    const int kind =
        (int)sonde__data_dice_between(dice, 0.0f, 7.0f); /* 3 and more: plain */
    const float most = leather ? 0.3f : 0.6f;
    const float depth = kind < 3 ? sonde__data_dice_between(dice, 0.12f, most) : 0.0f;
    const float pitch = sonde__data_dice_between(dice, 0.7f, 2.2f);
    const float fold = sonde__data_dice_between(dice, 0.0f, 0.14f);
    const float along = sonde__data_dice_between(dice, 0.1f, 0.45f);
    const float across = sonde__data_dice_between(dice, -0.3f, 0.3f);
    const float phase = sonde__data_dice_between(dice, 0.0f, 6.28f);
    const float side_light = sonde__data_dice_between(dice, -0.012f, 0.012f);
    const float top_light = sonde__data_dice_between(dice, -0.010f, 0.006f);

    for (int y = 0; y < SONDE__SIDE; y++) {
        for (int x = 0; x < SONDE__SIDE; x++) {
            const float fx = (float)x, fy = (float)y;
            float factor = 1.0f + side_light * (fx - 13.5f) + top_light * (fy - 13.5f);

            factor += fold * sinf(along * fx + across * fy + phase);
            if (kind == 0 || kind == 2) {
                factor -= depth * (sinf(pitch * fy + phase) > 0.2f ? 1.0f : 0.0f);
            }
            if (kind == 1 || kind == 2) {
                factor -= depth * (sinf(pitch * fx + phase) > 0.2f ? 0.7f : 0.0f);
            }
            picture->cloth[y * SONDE__SIDE + x] = fmaxf(factor, 0.05f);
        }
    }
}

/* To bytes, with grain on the garment only. */
static void develop(const sonde__data_picture *picture, sonde__data_dice *dice,
                    uint8_t *pixels)
{
    const float grain = sonde__data_dice_between(dice, 0.01f, 0.08f);

    for (int i = 0; i < SONDE__PIXELS; i++) {
        float value = picture->light[i];

        if (picture->drawn[i] > 0.02f) {
            value +=
                grain * picture->drawn[i] * sonde__data_dice_between(dice, -1.0f, 1.0f);
        }
        pixels[i] = (uint8_t)(fminf(fmaxf(value, 0.0f), 1.0f) * 255.0f + 0.5f);
    }
}

/* Streams of one split: one for each block of ten labels, one for each sample. */
static uint64_t stream_of(sonde_nn_split split, bool labels)
{
    return (uint64_t)1 << 62 | (uint64_t)(split == SONDE_NN_TEST) << 61 |
           (uint64_t)labels << 60;
}

int sonde_nn_synth_draw(uint64_t seed, sonde_nn_split split, int64_t index,
                        uint8_t *pixels)
{
    if (pixels == NULL || index < 0 || (unsigned)split > SONDE_NN_TEST) {
        return 0;
    }
    const uint64_t block = (uint64_t)index / SONDE_NN_SYNTH_CLASSES;
    sonde__data_dice dice = {.seed = seed,
                             .stream = stream_of(split, false) | (uint64_t)index};
    uint32_t order[SONDE_NN_SYNTH_CLASSES];
    sonde__data_picture picture = {.light = {0.0f}};

    sonde__permute(seed, stream_of(split, true) | block, SONDE_NN_SYNTH_CLASSES, order);
    const int label = (int)order[index % SONDE_NN_SYNTH_CLASSES];
    weave(&picture, &dice, label == 5 || label >= 7);
    sonde__data_garment_draw(&picture, &dice, label, draw_brightness(&dice));
    develop(&picture, &dice, pixels);
    return label;
}

/* --- a set -------------------------------------------------------------------------- */

/* The files being written, and the progress. */
typedef struct synth_work {
    const sonde_nn_synth_options *options;
    const char *dir;
    int64_t done, total;
    sonde_diag *diag;
} synth_work;

static sonde_err draw_samples(synth_work *work, sonde_nn_split split, int64_t count,
                              uint8_t *pixels, uint8_t *labels)
{
    const sonde_nn_synth_options *options = work->options;

    for (int64_t i = 0; i < count; i++) {
        labels[i] = (uint8_t)sonde_nn_synth_draw(options->seed, split, i,
                                                 pixels + i * SONDE__PIXELS);
        work->done++;
        if (options->progress != NULL &&
            (work->done % REPORT_EVERY == 0 || work->done == work->total) &&
            !options->progress(options->user, work->done, work->total)) {
            return sonde__fail(work->diag, SONDE_EINTERRUPTED, work->dir, NULL,
                               "stopped");
        }
    }
    return SONDE_OK;
}

static sonde_err write_array(const synth_work *work, const char *prefix, const char *kind,
                             const sonde_view *view)
{
    char path[PATH_SIZE];
    const int length =
        snprintf(path, sizeof path, "%s/%s-%s.gz", work->dir, prefix, kind);

    if ((size_t)length >= sizeof path) {
        return sonde__fail(work->diag, SONDE_EINVAL, work->dir, "a shorter one",
                           "the path is too long");
    }
    return sonde__data_idx_write(path, view, true, work->diag);
}

static sonde_err write_split(synth_work *work, sonde_nn_split split, int64_t count)
{
    const char *prefix = split == SONDE_NN_TRAIN ? "train" : "t10k";
    const int64_t shape[3] = {count, SONDE__SIDE, SONDE__SIDE};
    uint8_t *pixels = sonde__calloc((size_t)count, SONDE__PIXELS);
    uint8_t *labels = sonde__calloc((size_t)count, 1);
    const sonde_view images = sonde_view_of(SONDE_U8, 3, shape, pixels);
    const sonde_view classes = sonde_view_of(SONDE_U8, 1, shape, labels);
    sonde_err err = pixels != NULL && labels != NULL
                        ? draw_samples(work, split, count, pixels, labels)
                        : sonde__fail_nomem(work->diag, "drawn samples");

    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(write_array(work, prefix, "images-idx3-ubyte", &images));
    err = write_array(work, prefix, "labels-idx1-ubyte", &classes);

done:
    sonde__free(pixels);
    sonde__free(labels);
    return err;
}

sonde_err sonde_nn_synth(const char *dir, const sonde_nn_synth_options *given,
                         sonde_diag *diag)
{
    sonde_nn_synth_options taken;
    const sonde_nn_synth_options *const options = &taken;
    SONDE__TAKE(sonde_nn_synth_options, &taken, given, diag);
    synth_work work = {.options = options, .dir = dir, .diag = diag};
    const int64_t train = work.options->train != 0 ? work.options->train : TRAIN_COUNT;
    const int64_t test = work.options->test != 0 ? work.options->test : TEST_COUNT;
    char cache[PATH_SIZE];
    sonde_err err = SONDE_OK;

    if (train < 0 || test < 0 || train > UINT32_MAX || test > UINT32_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "synth", "1 to 4294967295 samples",
                           "%lld and %lld samples", (long long)train, (long long)test);
    }
    if (dir == NULL) {
        err = sonde_nn_data_cache("fashion-synth", cache, sizeof cache, diag);
        work.dir = cache;
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__data_make_folders(work.dir, diag));
    work.total = train + test;
    SONDE__TRY(write_split(&work, SONDE_NN_TRAIN, train));
    return write_split(&work, SONDE_NN_TEST, test);
}
