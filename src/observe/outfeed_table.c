/*
 * outfeed_table.c - what came out of an outfeed queue, as a table of statistics.
 *
 * Numbers are written with six decimals, NaN and infinities as " nan", " inf" and "-inf"
 * (four columns), shapes of one dimension as "(500,)".
 */
#include <sonde/error.h>
#include <sonde/outfeed.h>

#include "base/macros.h"

#include <sonde/stats.h>

#include <stddef.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { BEYOND_NAME = 5 /* how much wider its column is than the longest key */ };

static sonde_err append(sonde_text *text, const char *format, ...) SONDE_PRINTF(2, 3);

static sonde_err append(sonde_text *text, const char *format, ...)
{
    sonde_err err = SONDE_OK;
    va_list list;
    int length = 0;

    va_start(list, format);
    length = vsnprintf(NULL, 0, format, list);
    va_end(list);
    if (length < 0) {
        return SONDE_EINVAL;
    }
    err = sonde_text_reserve(text, text->length + (size_t)length);
    if (err == SONDE_OK) {
        va_start(list, format);
        (void)vsnprintf(text->data + text->length, (size_t)length + 1, format, list);
        va_end(list);
        text->length += (size_t)length;
    }
    return err;
}

/* Columns that a key takes: characters of UTF-8, not bytes. */
static int key_width(const char *key)
{
    int width = 0;

    for (; *key != '\0'; key++) {
        width += ((unsigned char)*key & 0xC0) != 0x80;
    }
    return width;
}

static int widest_key(const sonde_outfeed_batch *batch)
{
    int widest = 0;

    for (size_t i = 0; i < batch->count; i++) {
        widest = SONDE_MAX(widest, key_width(batch->entries[i].key));
    }
    return widest;
}

static sonde_err append_keys(const sonde_outfeed_batch *batch, sonde_text *text)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < batch->count && err == SONDE_OK; i++) {
        const sonde_view *value = &batch->entries[i].value;
        char shape[192];

        (void)sonde_shape_text(value->rank, value->shape, shape, sizeof shape);
        if (value->rank == 1) {
            (void)snprintf(shape, sizeof shape, "(%lld,)", (long long)value->shape[0]);
        }
        err = append(text, "key: %s shape: %s\n", batch->entries[i].key, shape);
    }
    return err;
}

typedef char number[48];

static const char *number_text(double value, number buf)
{
    if (isnan(value)) {
        return " nan";
    }
    if (isinf(value)) {
        return value > 0.0 ? " inf" : "-inf";
    }
    (void)snprintf(buf, sizeof(number), "%4.6f", value);
    return buf;
}

static sonde_err append_row(size_t index, const sonde_outfed *of, int name_width,
                            sonde_text *text)
{
    static const sonde_stat columns[] = {SONDE_STAT_MEAN, SONDE_STAT_STD, SONDE_STAT_MIN,
                                         SONDE_STAT_MAX};
    const int blanks = name_width - key_width(of->key);
    sonde_vitals vitals;
    number buf;
    sonde_err err = append(text, "%-5zu %s%*s", index, of->key, blanks, "");

    sonde_vitals_of(&of->value, &vitals);
    for (size_t i = 0; i < SONDE_COUNT_OF(columns) && err == SONDE_OK; i++) {
        err = append(text, " %-12s",
                     number_text(sonde_vitals_get(&vitals, columns[i]), buf));
    }
    if (err == SONDE_OK) {
        err = append(text, " %-7s %-7s\n", vitals.nan > 0 ? "True" : "False",
                     vitals.pos_inf + vitals.neg_inf > 0 ? "True" : "False");
    }
    return err;
}

sonde_err sonde_outfeed_table(const sonde_outfeed_batch *batch, const char *title,
                              int epoch, sonde_text *text)
{
    const int name_width = widest_key(batch) + BEYOND_NAME;
    sonde_err err = append(text, "\n%s\n", title);

    if (err == SONDE_OK && (batch->count == 0 || batch->rows == 0)) {
        return append(text, "No data enqueued\n");
    }
    if (err == SONDE_OK) {
        err = append_keys(batch, text);
    }
    if (err == SONDE_OK) {
        err = append(text,
                     "Epoch %d - Summary Stats\n"
                     "%-5s %-*s %-12s %-12s %-12s %-12s %-7s %-7s\n",
                     epoch, "Index", name_width, "Name", "Mean", "Std", "Minimum",
                     "Maximum", "NaNs", "infs");
    }
    for (size_t i = 0; i < batch->count && err == SONDE_OK; i++) {
        err = append_row(i, &batch->entries[i], name_width, text);
    }
    return err;
}
