/*
 * html.h - text that becomes a page.
 *
 * Adding never fails at once: bytes.full records that memory ran out.
 */
#ifndef SONDE_REPORT_HTML_H
#define SONDE_REPORT_HTML_H

#include "plot/plot_output.h"

#include <sonde/error.h>

#include <stdint.h>

/* Adds our own markup unescaped, at most 1000 bytes; never with a text of the run in
 * it. */
void sonde__report_html(sonde__plot_bytes *page, const char *fmt, ...) SONDE_PRINTF(2, 3);
/* Adds a text of the run, escaped for content and attributes; malformed UTF-8 and control
 * characters become U+FFFD. */
void sonde__report_html_text(sonde__plot_bytes *page, const char *text);
/* Adds a number with at most `digits` significant digits; NaN and infinities by name. */
void sonde__report_html_number(sonde__plot_bytes *page, double value, int digits);
/* Adds a number with thin spaces between thousands. */
void sonde__report_html_count(sonde__plot_bytes *page, uint64_t value);

/* The style sheet in pieces; NULL ends it. Light and dark, wide and narrow, screen and
 * paper. */
extern const char *const sonde__report_style[];

#endif
