/*
 * html.h - text that becomes a page.
 *
 * Adding never fails on the spot: out of memory is kept in bytes.full.
 */
#ifndef SONDE_REPORT_HTML_H
#define SONDE_REPORT_HTML_H

#include "plot/plot_output.h"

#include <sonde/error.h>

#include <stdint.h>

/* Markup of ours, as it is; at most 1000 bytes. Never with a text of the run in it. */
void sonde__report_html(sonde__plot_bytes *page, const char *fmt, ...) SONDE_PRINTF(2, 3);
/* A text of the run's, escaped for content and for attributes: what is no UTF-8, and control
 * characters, become U+FFFD. */
void sonde__report_html_text(sonde__plot_bytes *page, const char *text);
/* At most so many significant digits; NaN and infinities by name. */
void sonde__report_html_number(sonde__plot_bytes *page, double value, int digits);
/* With thin spaces between thousands. */
void sonde__report_html_count(sonde__plot_bytes *page, uint64_t value);

#endif
