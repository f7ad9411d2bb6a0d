/*
 * html.h - text of a page. Markup of ours goes in by <sonde/text.h>.
 */
#ifndef SONDE_REPORT_HTML_H
#define SONDE_REPORT_HTML_H

#include <sonde/text.h>

#include <stdint.h>

/* Text of the run, escaped for content and attributes; control characters and bytes that
 * are not UTF-8 become U+FFFD. */
void sonde__report_html_text(sonde_text *page, const char *text);
/* A number with at most `digits` significant digits; NaN and infinities by name. */
void sonde__report_html_number(sonde_text *page, double value, int digits);
/* A number with thin spaces between thousands. */
void sonde__report_html_count(sonde_text *page, uint64_t value);

/* The style sheet in pieces; NULL ends it. Light and dark, wide and narrow, screen and
 * paper. */
extern const char *const sonde__report_style[];

#endif
