/*
 * csv.c - see files.h.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sonde__data_csv_where(const sonde__data_csv *csv, int64_t line, size_t column,
                                  const char *name, char out[SONDE__CSV_WHERE])
{
    (void)snprintf(out, SONDE__CSV_WHERE, "%.100s:%" PRId64 ": column %zu%s%.60s%s",
                   csv->name, line, column, name != NULL ? " (" : "",
                   name != NULL ? name : "", name != NULL ? ")" : "");
    return out;
}

/* The text from here on, and the record that is being read. */
typedef struct csv_reader {
    sonde__data_csv *csv;
    char *next, *end;
    char delimiter;
    int64_t next_line, line; /* of next, and of the record */
    size_t column;           /* from 1 */
    sonde_diag *diag;
} csv_reader;

static sonde_err fail_cell(const csv_reader *r, const char *expected, const char *found)
{
    char where[SONDE__CSV_WHERE];

    return sonde__fail(r->diag, SONDE_EFORMAT,
                       sonde__data_csv_where(r->csv, r->line, r->column, NULL, where),
                       expected, "%s", found);
}

/* Whether all bytes are characters of UTF-8 but zero. */
static sonde_err check_text(const csv_reader *r)
{
    const char *line_start = r->next;
    int64_t line = 1;

    for (const char *p = r->next; p < r->end;) {
        const unsigned char first = (unsigned char)*p;
        char four[5] = "";
        size_t length = first >= 1 && first < 0x80 ? 1 : 0;

        if (first >= 0x80) {
            memcpy(four, p, SONDE_MIN((size_t)(r->end - p), (size_t)4));
            length = sonde__utf8_length(four);
        }
        if (length == 0) {
            char where[SONDE__CSV_WHERE];

            (void)snprintf(where, sizeof where, "%.100s:%" PRId64 ":%td", r->csv->name,
                           line, p - line_start + 1);
            return sonde__fail(r->diag, SONDE_EFORMAT, where, "UTF-8",
                               "byte 0x%02x is no character", first);
        }
        if (*p == '\n') {
            line++;
            line_start = p + 1;
        }
        p += length;
    }
    return SONDE_OK;
}

static char find_delimiter(const csv_reader *r)
{
    const char *line_end = memchr(r->next, '\n', (size_t)(r->end - r->next));
    const size_t length = (size_t)((line_end != NULL ? line_end : r->end) - r->next);

    return memchr(r->next, ';', length) != NULL && memchr(r->next, ',', length) == NULL
               ? ';'
               : ',';
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static void skip_blanks(csv_reader *r)
{
    while (r->next < r->end && is_blank(*r->next) && *r->next != r->delimiter) {
        r->next++;
    }
}

/* Empty lines before a record. */
static void skip_lines(csv_reader *r)
{
    while (r->next < r->end) {
        char *p = r->next;

        while (p < r->end && (*p == '\r' || is_blank(*p)) && *p != r->delimiter) {
            p++;
        }
        if (p < r->end && *p != '\n') {
            return;
        }
        r->next = p < r->end ? p + 1 : p;
        r->next_line++;
    }
}

static bool at_end(const csv_reader *r)
{
    return r->next == r->end || *r->next == r->delimiter || *r->next == '\n' ||
           (*r->next == '\r' && (r->next + 1 == r->end || r->next[1] == '\n'));
}

/* From the first quote; *end is where the content ends. */
static sonde_err read_quoted(csv_reader *r, char **end)
{
    char *out = r->next + 1, *from = out;

    for (; from < r->end && (*from != '"' || (from + 1 < r->end && from[1] == '"'));
         from++) {
        from += *from == '"' ? 1 : 0; /* two quotes are one */
        r->next_line += *from == '\n' ? 1 : 0;
        *out++ = *from;
    }
    if (from == r->end) {
        return fail_cell(r, "a second quote", "a quote without an end");
    }
    r->next = from + 1;
    *end = out;
    skip_blanks(r);
    return at_end(r) ? SONDE_OK
                     : fail_cell(r, "the end of the cell, or a second quote",
                                 "text after a quote");
}

/* The next cell, a string in place; *last: of its record. */
static sonde_err read_cell(csv_reader *r, char **cell, bool *last)
{
    skip_blanks(r);
    char *end = r->next;

    *cell = r->next;
    if (r->next < r->end && *r->next == '"') {
        *cell = r->next + 1;
        SONDE__TRY(read_quoted(r, &end));
    } else {
        while (!at_end(r)) {
            r->next++;
        }
        end = r->next;
        while (end > *cell && is_blank(end[-1])) {
            end--;
        }
    }
    *last = r->next == r->end || *r->next != r->delimiter;
    r->next += *last && r->next < r->end && *r->next == '\r' ? 1 : 0;
    if (r->next < r->end) {
        r->next_line += *r->next == '\n' ? 1 : 0;
        r->next++;
    }
    *end = '\0';
    return SONDE_OK;
}

static sonde_err read_record(csv_reader *r)
{
    sonde__data_csv *csv = r->csv;
    bool last = false;

    r->line = r->next_line;
    if (!sonde__reserve(&csv->lines, &csv->line_capacity, csv->rows + 1,
                        sizeof *csv->lines)) {
        return sonde__fail_nomem(r->diag, "a table");
    }
    csv->lines[csv->rows] = r->line;
    for (r->column = 1; !last; r->column++) {
        char *cell = NULL;
        SONDE__TRY(read_cell(r, &cell, &last));
        if (csv->rows > 0 && last != (r->column == csv->columns)) {
            char found[64];

            (void)snprintf(found, sizeof found, last ? "only %zu cells" : "more than %zu",
                           r->column);
            return fail_cell(r, "as many as the header has", found);
        }
        if (!sonde__reserve(&csv->cells, &csv->cell_capacity, csv->cell_count + 1,
                            sizeof *csv->cells)) {
            return sonde__fail_nomem(r->diag, "a table");
        }
        csv->cells[csv->cell_count++] = cell;
    }
    csv->columns = r->column - 1;
    csv->rows++;
    return SONDE_OK;
}

sonde_err sonde__data_csv_parse(sonde__data_csv *csv, char delimiter, sonde_diag *diag)
{
    csv_reader r = {.csv = csv,
                    .next = csv->text,
                    .end = csv->text + csv->size,
                    .next_line = 1,
                    .diag = diag};

    if (csv->size >= 3 && memcmp(csv->text, "\xEF\xBB\xBF", 3) == 0) {
        r.next += 3;
    }
    SONDE__TRY(check_text(&r));
    r.delimiter = delimiter != '\0' ? delimiter : find_delimiter(&r);
    for (skip_lines(&r); r.next < r.end; skip_lines(&r)) {
        SONDE__TRY(read_record(&r));
    }
    return csv->rows > 0 ? SONDE_OK
                         : sonde__fail(diag, SONDE_EFORMAT, csv->name,
                                       "a line with the names of the columns",
                                       "the table is empty");
}

void sonde__data_csv_fini(sonde__data_csv *csv)
{
    sonde__free(csv->text);
    sonde__free(csv->cells);
    sonde__free(csv->lines);
    *csv = (sonde__data_csv){.name = NULL};
}
