/*
 * csv.c - see csv.h.
 */
#include "nn/data/csv.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

sonde_err sonde__data_csv_fail(const sonde__data_csv *csv, sonde_err err,
                               const char *column, const char *expected, sonde_diag *diag,
                               const char *found, ...)
{
    char where[200], text[200];
    va_list args;

    (void)snprintf(where, sizeof where, "%.100s:%" PRId64 ": column %d%s%.60s%s",
                   csv->name, csv->line, csv->column, column != NULL ? " (" : "",
                   column != NULL ? column : "", column != NULL ? ")" : "");
    va_start(args, found);
    (void)sonde__vsnprintf(text, sizeof text, found, args);
    va_end(args);
    return sonde__fail(diag, err, where, expected, "%s", text);
}

/* --- opening -------------------------------------------------------------------------- */

/* Whether all bytes are characters of UTF-8 but zero. */
static sonde_err check_text(sonde__data_csv *csv, sonde_diag *diag)
{
    const char *line = csv->next;

    for (const char *p = csv->next; p < csv->end;) {
        const unsigned char first = (unsigned char)*p;
        char four[5] = "";
        size_t length = first >= 1 && first < 0x80 ? 1 : 0;

        if (first >= 0x80) {
            memcpy(four, p, SONDE_MIN((size_t)(csv->end - p), (size_t)4));
            length = sonde__utf8_length(four);
        }
        if (length == 0) {
            csv->line = csv->next_line;
            csv->column = (int)SONDE_MIN(p - line, (ptrdiff_t)INT32_MAX) + 1;
            (void)sonde__data_csv_fail(csv, SONDE_EFORMAT, NULL, "UTF-8", diag,
                                       "byte 0x%02x is no character", first);
            if (diag != NULL) { /* here a column is a byte of the line */
                (void)snprintf(diag->where, sizeof diag->where, "%.100s:%" PRId64 ":%d",
                               csv->name, csv->line, csv->column);
            }
            return SONDE_EFORMAT;
        }
        if (*p == '\n') {
            csv->next_line++;
            line = p + 1;
        }
        p += length;
    }
    csv->next_line = 1;
    return SONDE_OK;
}

static char find_delimiter(const sonde__data_csv *csv)
{
    bool comma = false, semicolon = false;

    for (const char *p = csv->next; p < csv->end && *p != '\n'; p++) {
        comma = comma || *p == ',';
        semicolon = semicolon || *p == ';';
    }
    return semicolon && !comma ? ';' : ',';
}

sonde_err sonde__data_csv_open(sonde__data_csv *csv, const char *bytes, size_t size,
                               const char *name, char delimiter, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    *csv = (sonde__data_csv){.name = name,
                             .next = bytes,
                             .end = bytes + size,
                             .next_line = 1,
                             .next_column = 1};
    if (size >= 3 && memcmp(bytes, "\xEF\xBB\xBF", 3) == 0) {
        csv->next += 3;
    }
    err = check_text(csv, diag);
    csv->delimiter = delimiter != '\0' ? delimiter : find_delimiter(csv);
    return err;
}

void sonde__data_csv_close(sonde__data_csv *csv)
{
    sonde__free(csv->cell);
    csv->cell = NULL;
}

/* --- cells ---------------------------------------------------------------------------- */

static bool add_bytes(sonde__data_csv *csv, const char *bytes, size_t size)
{
    if (!sonde__reserve(&csv->cell, &csv->capacity, csv->size + size + 1, 1)) {
        return false;
    }
    if (size > 0) {
        memcpy(csv->cell + csv->size, bytes, size);
    }
    csv->size += size;
    csv->cell[csv->size] = '\0';
    return true;
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(sonde__data_csv *csv)
{
    while (csv->next < csv->end && is_blank(*csv->next) && *csv->next != csv->delimiter) {
        csv->next++;
    }
}

static bool at_end(const sonde__data_csv *csv)
{
    return csv->next == csv->end || *csv->next == csv->delimiter || *csv->next == '\n' ||
           (*csv->next == '\r' && (csv->next + 1 == csv->end || csv->next[1] == '\n'));
}

/* After the quote. */
static sonde_err take_quoted(sonde__data_csv *csv, sonde_diag *diag)
{
    csv->quoted = true;
    for (;;) {
        const char *quote = memchr(csv->next, '"', (size_t)(csv->end - csv->next));
        const char *stop = quote != NULL ? quote : csv->end;

        for (const char *p = csv->next; p < stop; p++) {
            csv->next_line += *p == '\n' ? 1 : 0;
        }
        if (quote == NULL) {
            return sonde__data_csv_fail(csv, SONDE_EFORMAT, NULL, "a second quote", diag,
                                        "a quote without an end");
        }
        if (!add_bytes(csv, csv->next, (size_t)(quote - csv->next))) {
            return sonde__fail_nomem(diag, "a cell");
        }
        csv->next = quote + 1;
        if (csv->next == csv->end || *csv->next != '"') {
            break;
        }
        if (!add_bytes(csv, "\"", 1)) { /* two quotes are one */
            return sonde__fail_nomem(diag, "a cell");
        }
        csv->next++;
    }
    skip_blanks(csv);
    return at_end(csv) ? SONDE_OK
                       : sonde__data_csv_fail(csv, SONDE_EFORMAT, NULL,
                                              "the end of the cell, or a second quote",
                                              diag, "text after a quote");
}

static sonde_err take_plain(sonde__data_csv *csv, sonde_diag *diag)
{
    const char *first = csv->next, *last = NULL;

    while (!at_end(csv)) {
        csv->next++;
    }
    last = csv->next;
    while (last > first && is_blank(last[-1])) {
        last--;
    }
    return add_bytes(csv, first, (size_t)(last - first))
               ? SONDE_OK
               : sonde__fail_nomem(diag, "a cell");
}

/* The delimiter or the line end after a cell. */
static void take_end(sonde__data_csv *csv)
{
    csv->last = csv->next == csv->end || *csv->next != csv->delimiter;
    csv->next_column = csv->last ? 1 : csv->column + 1;
    if (csv->next < csv->end && *csv->next == '\r' && csv->last) {
        csv->next++;
    }
    if (csv->next < csv->end) {
        csv->next_line += *csv->next == '\n' ? 1 : 0;
        csv->next++;
    }
}

/* Empty lines before a record. */
static void skip_lines(sonde__data_csv *csv)
{
    while (csv->next < csv->end && csv->next_column == 1) {
        const char *p = csv->next;

        while (p < csv->end && (*p == '\r' || is_blank(*p)) && *p != csv->delimiter) {
            p++;
        }
        if (p < csv->end && *p != '\n') {
            return;
        }
        csv->next = p < csv->end ? p + 1 : p;
        csv->next_line += p < csv->end ? 1 : 0;
    }
}

sonde_err sonde__data_csv_next(sonde__data_csv *csv, bool *more, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    skip_lines(csv);
    *more = csv->next < csv->end || csv->next_column > 1;
    if (!*more) {
        return SONDE_OK;
    }
    csv->size = 0;
    csv->quoted = false;
    csv->line = csv->next_line;
    csv->column = csv->next_column;
    if (!add_bytes(csv, "", 0)) {
        return sonde__fail_nomem(diag, "a cell");
    }
    skip_blanks(csv);
    if (csv->next < csv->end && *csv->next == '"') {
        csv->next++;
        err = take_quoted(csv, diag);
    } else {
        err = take_plain(csv, diag);
    }
    if (err == SONDE_OK) {
        take_end(csv);
    }
    return err;
}

bool sonde__data_csv_number(const sonde__data_csv *csv, double *number)
{
    char *end = NULL;

    if (csv->size == 0 || strspn(csv->cell, "0123456789+-.eE") != csv->size) {
        return false;
    }
    *number = sonde__strtod(csv->cell, &end);
    return *end == '\0' && isfinite(*number);
}

bool sonde__data_csv_missing(const sonde__data_csv *csv)
{
    static const char *const words[] = {"",     "NA",   "N/A",  "NaN", "nan",
                                        "null", "NULL", "None", "?"};

    for (size_t i = 0; i < SONDE_COUNT_OF(words); i++) {
        if (strcmp(csv->cell, words[i]) == 0) {
            return true;
        }
    }
    return false;
}
