/*
 * colour.c - see colour.h. Maps are knots at equal distances, linear in between.
 */
#include "plot/colour.h"
#include "base/fail.h"
#include "base/macros.h"
#include "plot/scene.h"

#include <math.h>

/* Every eighth colour of viridis (van der Walt and Smith, matplotlib; CC0): between these
 * knots a straight line is at most 1.8/255 off. */
static const uint32_t viridis[] = {
    0x440154, 0x470d60, 0x48186a, 0x482374, 0x472d7b, 0x453681, 0x424086,
    0x3f4989, 0x3b528b, 0x375a8d, 0x33638d, 0x2f6a8e, 0x2c728e, 0x297a8e,
    0x26818e, 0x23898e, 0x21908c, 0x1f988b, 0x1f9f88, 0x21a685, 0x28ae80,
    0x31b57b, 0x3ebc74, 0x4cc26c, 0x5dc963, 0x6ece58, 0x82d34c, 0x96d83f,
    0xabdc32, 0xc0df24, 0xd5e21a, 0xeae51a, 0xfde725,
};
static const uint32_t grey[] = {0x000000, 0xffffff};
static const uint32_t blues[] = {0xffffff, 0xe4eef8, 0xc3dbf0, 0x95c2e4, 0x5ea3d4,
                                 0x3481bd, 0x175f9f, 0x0a417c, 0x072852};

static const struct {
    const uint32_t *knots;
    int count;
} maps[] = {
    [SONDE_COLOURS_VIRIDIS] = {viridis, (int)SONDE_COUNT_OF(viridis)},
    [SONDE_COLOURS_GREY] = {grey, (int)SONDE_COUNT_OF(grey)},
    [SONDE_COLOURS_BLUES] = {blues, (int)SONDE_COUNT_OF(blues)},
};

static double channel(uint32_t rgb, int shift)
{
    return (double)((rgb >> shift) & 255u);
}

uint32_t sonde__plot_colour_at(sonde_colours colours, double t)
{
    const uint32_t *const knots = maps[colours].knots;
    const int last = maps[colours].count - 1;
    uint32_t rgb = 0;

    if (isnan(t)) {
        return SONDE__NAN_COLOUR;
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

static double luminance(uint32_t colour)
{
    return 0.2126 * linear(channel(colour, 24)) + 0.7152 * linear(channel(colour, 16)) +
           0.0722 * linear(channel(colour, 8));
}

double sonde__plot_contrast(uint32_t a, uint32_t b)
{
    const double la = luminance(a), lb = luminance(b);

    return (SONDE_MAX(la, lb) + 0.05) / (SONDE_MIN(la, lb) + 0.05);
}

uint32_t sonde__plot_ink_on(uint32_t colour)
{
    const uint32_t black = 0x000000ff;

    return sonde__plot_contrast(black, colour) >=
                   sonde__plot_contrast(SONDE__PAPER, colour)
               ? black
               : SONDE__PAPER;
}

uint32_t sonde__plot_line_colour(size_t i)
{
    static const uint32_t palette[SONDE__PALETTE] = {
        0x0072b2ff, 0xd55e00ff, 0x009e73ff, 0xb0568fff,
        0xd99100ff, 0x3a9bd9ff, 0x4d5761ff,
    };

    return palette[i % SONDE__PALETTE];
}

uint32_t sonde__plot_faded(uint32_t colour, uint32_t alpha)
{
    return (colour & 0xffffff00u) | alpha;
}

sonde_err sonde__plot_colours_check(sonde_colours colours, sonde_diag *diag)
{
    if ((size_t)colours >= SONDE_COUNT_OF(maps)) {
        return sonde__fail(diag, SONDE_EINVAL, "colours", "a SONDE_COLOURS_ value",
                           "no colour map has number %d", (int)colours);
    }
    return SONDE_OK;
}
