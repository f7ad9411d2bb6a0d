/*
 * export_text.c - rows as CSV (RFC 4180) and JSON lines.
 */
#include "export/export_text.h"

#include "base/fail.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sonde/error.h>

static sonde_err add(sonde_text *text, const char *bytes, size_t n)
{
    const sonde_err err = sonde_text_reserve(text, text->length + n);

    if (err == SONDE_OK) {
        memcpy(text->data + text->length, bytes, n);
        text->length += n;
        text->data[text->length] = '\0';
    }
    return err;
}

sonde_err sonde__export_add(sonde_text *text, const char *more)
{
    return add(text, more, strlen(more));
}

/* Quoted if it has to be. */
sonde_err sonde__export_field(sonde_text *text, const char *field)
{
    sonde_err err = SONDE_OK;

    if (strpbrk(field, ",\"\r\n") == NULL) {
        return sonde__export_add(text, field);
    }
    err = sonde__export_add(text, "\"");
    for (; err == SONDE_OK && *field != '\0'; field++) {
        err = *field == '"' ? sonde__export_add(text, "\"\"") : add(text, field, 1);
    }
    return err == SONDE_OK ? sonde__export_add(text, "\"") : err;
}

sonde_err sonde__export_string(sonde_text *text, const char *string)
{
    sonde_err err = sonde__export_add(text, "\"");

    for (; err == SONDE_OK && *string != '\0'; string++) {
        char escaped[8] = {*string};

        if (*string == '"' || *string == '\\') {
            (void)snprintf(escaped, sizeof escaped, "\\%c", *string);
        } else if ((unsigned char)*string < 0x20) {
            (void)snprintf(escaped, sizeof escaped, "\\u%04x", (unsigned)*string);
        }
        err = sonde__export_add(text, escaped);
    }
    return err == SONDE_OK ? sonde__export_add(text, "\"") : err;
}

/* The fewest digits that give the same double again. */
static const char *shortest(double value, char buf[32])
{
    for (int digits = 15; digits <= 17; digits++) {
        (void)snprintf(buf, 32, "%.*g", digits, value);
        if (strtod(buf, NULL) == value) {
            break;
        }
    }
    return buf;
}

sonde_err sonde__export_number(sonde_text *text, double value, bool json)
{
    char buf[32];

    if (isnan(value)) {
        return sonde__export_add(text, json ? "\"NaN\"" : "nan");
    }
    if (isinf(value)) {
        return sonde__export_add(text, value > 0.0 ? (json ? "\"Infinity\"" : "inf")
                                                   : (json ? "\"-Infinity\"" : "-inf"));
    }
    return sonde__export_add(text, shortest(value, buf));
}

/* --- rows ------------------------------------------------------------------------- */

/* Seconds with six decimals; nothing if it is not known. */
static const char *time_text(int64_t time, char buf[32])
{
    buf[0] = '\0';
    if (time > 0) {
        (void)snprintf(buf, 32, "%lld.%06lld", (long long)(time / 1000000000),
                       (long long)(time / 1000 % 1000000));
    }
    return buf;
}

sonde_err sonde__export_place(sonde_text *text, const sonde_export_row *of, bool json)
{
    char head[160], time[32];
    sonde_err err = SONDE_OK;

    if (of == NULL) {
        return sonde__export_add(text, "step,mode,mode_step,worker,time,tensor");
    }
    (void)snprintf(head, sizeof head,
                   json ? "{\"step\":%lld,\"mode\":\"%s\",\"mode_step\":%lld,"
                          "\"worker\":%d,\"time\":%s,\"tensor\":"
                        : "%lld,%s,%lld,%d,%s,",
                   (long long)of->step, sonde_mode_name(of->mode),
                   (long long)of->mode_step, of->worker,
                   json && of->time <= 0 ? "null" : time_text(of->time, time));
    err = sonde__export_add(text, head);
    if (err == SONDE_OK) {
        err = json ? sonde__export_string(text, of->tensor)
                   : sonde__export_field(text, of->tensor);
    }
    return err;
}

static sonde_err add_reduced(sonde_text *text, const sonde_reduction *what,
                             const sonde_reduced *value, bool json)
{
    char hash[24];

    if (value->how == 0) {
        return sonde__export_add(text, json ? "null" : "");
    }
    if (what->kind != SONDE_REDUCTION_HASH) {
        return sonde__export_number(text, value->number, json);
    }
    (void)snprintf(hash, sizeof hash, json ? "\"%016llx\"" : "%016llx",
                   (unsigned long long)value->hash);
    return sonde__export_add(text, hash);
}

/* The name of a column; in a row of JSON, before its value. */
static sonde_err add_name(sonde_text *text, const sonde_reduction *what, bool json)
{
    sonde_err err = sonde__export_add(text, ",");

    if (err == SONDE_OK) {
        err = json ? sonde__export_string(text, what->name)
                   : sonde__export_field(text, what->name);
    }
    return err == SONDE_OK && json ? sonde__export_add(text, ":") : err;
}

static sonde_err add_row(sonde_text *text, const sonde_export_row *row,
                         const sonde_reduction *stats, size_t count, bool json)
{
    sonde_err err = sonde__export_place(text, row, json);

    for (size_t i = 0; err == SONDE_OK && i < count; i++) {
        err = json || row == NULL ? add_name(text, &stats[i], json)
                                  : sonde__export_add(text, ",");
        if (err == SONDE_OK && row != NULL) {
            err = add_reduced(text, &stats[i], &row->values[i], json);
        }
    }
    return err == SONDE_OK ? sonde__export_add(text, json ? "}\n" : "\n") : err;
}

sonde_err sonde_export_row_text(sonde_export_kind kind, const sonde_export_row *row,
                                const sonde_reduction *stats, size_t stat_count,
                                sonde_text *text, sonde_diag *diag)
{
    const bool json = kind == SONDE_EXPORT_JSONL;

    if (kind != SONDE_EXPORT_CSV && kind != SONDE_EXPORT_JSONL) {
        return sonde__fail(diag, SONDE_EINVAL, "kind", "csv or jsonl", "%d", (int)kind);
    }
    if (row == NULL && json) {
        return SONDE_OK; /* it has no head */
    }
    return add_row(text, row, stats, stat_count, json) == SONDE_OK
               ? SONDE_OK
               : sonde__fail_nomem(diag, "a row");
}
