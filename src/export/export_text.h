/*
 * export_text.h - pieces of CSV (RFC 4180) and JSON lines. Internal.
 *
 * All return SONDE_OK or SONDE_ENOMEM and append to text.
 */
#ifndef SONDE_EXPORT_EXPORT_TEXT_H
#define SONDE_EXPORT_EXPORT_TEXT_H

#include <sonde/export_run.h>

sonde_err sonde__export_add(sonde_text *text, const char *more);
/* A field, quoted if it has to be; a string. */
sonde_err sonde__export_field(sonde_text *text, const char *field);
sonde_err sonde__export_string(sonde_text *text, const char *string);
/* As short as it can be read back exactly; NaN and infinities as export_run.h says. */
sonde_err sonde__export_number(sonde_text *text, double value, bool json);
/* What rows begin with: step, mode, mode_step, worker, tensor; no newline, and in JSON the
 * brace is left open. of NULL: the head of CSV. */
sonde_err sonde__export_place(sonde_text *text, const sonde_export_row *of, bool json);

#endif
