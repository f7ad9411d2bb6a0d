/*
 * colour.h - colour maps and the palette of lines.
 */
#ifndef SONDE_PLOT_COLOUR_H
#define SONDE_PLOT_COLOUR_H

#include <sonde/error.h>
#include <sonde/plot.h>

#include <stddef.h>
#include <stdint.h>

/* Colours are 0xRRGGBBAA. The colour of NaN is in no colour map. */
#define SONDE__NAN_COLOUR 0xe6007effu

/* t in 0 ... 1, clamped; NaN gives the colour of NaN. */
SONDE_API uint32_t sonde__plot_colour_at(sonde_colours colours, double t);
/* Black or white, the one with more contrast to colour: a ratio (WCAG 2.1) of at least
 * 4.5. */
SONDE_API uint32_t sonde__plot_ink_on(uint32_t colour);
SONDE_API double sonde__plot_contrast(uint32_t a, uint32_t b);

enum { SONDE__PALETTE = 7 };
/* Line colours that colour-blind people can distinguish (Okabe and Ito 2008, the light
 * ones darkened); they repeat after SONDE__PALETTE. */
SONDE_API uint32_t sonde__plot_line_colour(size_t i);
/* The same with another opacity, 0 ... 255. */
SONDE_API uint32_t sonde__plot_faded(uint32_t colour, uint32_t alpha);

/* SONDE_EINVAL: colours is not a value of the enumeration. */
sonde_err sonde__plot_colours_check(sonde_colours colours, sonde_diag *diag);

#endif
