/*
 * text.h - fonts and measuring, shared by the scene and its back end.
 */
#ifndef SONDE_PLOT_PLOT_TEXT_H
#define SONDE_PLOT_PLOT_TEXT_H

#include "plot/scene.h"

struct _cairo;

/* Takes the item's payload also on failure. */
void sonde__plot_scene_add(sonde__plot_scene *scene, sonde__plot_item item);

/* A drawing context on which texts are measured; NULL if memory is out. */
struct _cairo *sonde__plot_ruler_create(void);
void sonde__plot_ruler_destroy(struct _cairo *ruler); /* NULL is fine */

/* Sets DejaVu Sans, or what the system puts in its place, without hinting of widths: a
 * text is as long on paper as it was measured, whatever the scale. */
void sonde__plot_font_set(struct _cairo *cairo, sonde__plot_font font);

/* A copy of text that is valid UTF-8 without control characters; NULL: out of memory. */
SONDE_API char *sonde__plot_text_clean(const char *text);

#endif
