/*
 * export_events.c - see export_events.h. Messages are encoded by hand: of protobuf only
 * varints, 32 and 64 bit numbers and bytes with a length are needed.
 */
#include "export/export_events.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <float.h>
#include <string.h>

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 };

/* --- protobuf --------------------------------------------------------------------- */

static void put(sonde__export_message *to, const void *bytes, size_t n)
{
    to->failed =
        to->failed || !sonde__reserve(&to->bytes, &to->capacity, to->size + n, 1);
    if (!to->failed && n > 0) {
        memcpy(to->bytes + to->size, bytes, n);
        to->size += n;
    }
}

static void put_varint(sonde__export_message *to, uint64_t value)
{
    unsigned char bytes[10];
    size_t n = 0;

    for (; value >= 0x80; value >>= 7) {
        bytes[n++] = (unsigned char)(value | 0x80);
    }
    bytes[n++] = (unsigned char)value;
    put(to, bytes, n);
}

static void put_key(sonde__export_message *to, unsigned field, unsigned kind)
{
    put_varint(to, field << 3 | kind);
}

static void put_double(sonde__export_message *to, unsigned field, double value)
{
    put_key(to, field, FIXED64);
    put(to, &value, sizeof value);
}

static void put_float(sonde__export_message *to, unsigned field, float value)
{
    put_key(to, field, FIXED32);
    put(to, &value, sizeof value);
}

static void put_bytes(sonde__export_message *to, unsigned field, const void *bytes,
                      size_t n)
{
    put_key(to, field, BYTES);
    put_varint(to, n);
    put(to, bytes, n);
}

/* part as a field of to. */
static void put_message(sonde__export_message *to, unsigned field,
                        const sonde__export_message *part)
{
    to->failed = to->failed || part->failed;
    put_bytes(to, field, part->bytes, part->size);
}

static void fini(sonde__export_message *message)
{
    sonde__free(message->bytes);
    *message = (sonde__export_message){0};
}

/* --- records ---------------------------------------------------------------------- */

static uint32_t masked(const sonde__export_crc *crc, const void *bytes, size_t n)
{
    const uint32_t value = sonde__export_crc_add(crc, 0, bytes, n);

    return (value >> 15 | value << 17) + 0xa282ead8U;
}

static sonde_err write_event(sonde__export_events *events, sonde_diag *diag)
{
    const uint64_t length = events->event.size;
    const uint32_t of_length = masked(&events->crc, &length, sizeof length);
    uint32_t of_event = 0;

    if (events->event.failed) {
        return sonde__fail_nomem(diag, "an event");
    }
    of_event = masked(&events->crc, events->event.bytes, events->event.size);
    sonde__export_out_put(&events->file, &length, sizeof length);
    sonde__export_out_put(&events->file, &of_length, sizeof of_length);
    sonde__export_out_put(&events->file, events->event.bytes, events->event.size);
    sonde__export_out_put(&events->file, &of_event, sizeof of_event);
    return sonde__export_out_status(&events->file, diag);
}

/* An event with one value, which is there but for its tag. */
static sonde_err write_value(sonde__export_events *events, int64_t step, sonde_diag *diag)
{
    events->summary.size = 0;
    put_message(&events->summary, 1, &events->value);
    events->event.size = 0;
    put_double(&events->event, 1, events->wall_time);
    put_key(&events->event, 2, VARINT);
    put_varint(&events->event, (uint64_t)step);
    put_message(&events->event, 5, &events->summary);
    return write_event(events, diag);
}

sonde_err sonde__export_events_open(sonde__export_events *events, const char *path,
                                    double wall_time, sonde_diag *diag)
{
    static const char version[] = "brain.Event:2";
    sonde_err err = SONDE_OK;

    *events = (sonde__export_events){.wall_time = wall_time};
    sonde__export_crc_init(&events->crc, SONDE__CRC32_C);
    err = sonde__export_out_open(&events->file, path, diag);
    if (err != SONDE_OK) {
        return err;
    }
    put_double(&events->event, 1, wall_time);
    put_bytes(&events->event, 3, version, sizeof version - 1);
    return write_event(events, diag);
}

sonde_err sonde__export_events_scalar(sonde__export_events *events, const char *tag,
                                      int64_t step, double value, sonde_diag *diag)
{
    events->value.size = 0;
    put_bytes(&events->value, 1, tag, strlen(tag));
    put_float(&events->value, 2, (float)value);
    return write_value(events, step, diag);
}

/* --- histograms ------------------------------------------------------------------- */

static void put_bucket(sonde__export_events *events, double limit, uint64_t count)
{
    const double many = (double)count;

    put(&events->limits, &limit, sizeof limit);
    put(&events->counts, &many, sizeof many);
}

/* An empty bucket up to where the next begins, if there is a gap. The first begins at the
 * minimum, whatever its limit. */
static void put_gap(sonde__export_events *events, double last, double next)
{
    if (events->limits.size > 0 && last < next) {
        put_bucket(events, next, 0);
    }
}

/*
 * A bucket reaches from the limit before (exclusive) to its own. The bins of a sketch have
 * gaps between them, which are empty buckets:
 *
 *     -upper ... -lower   ...   0   ...   lower ... upper
 */
static void put_buckets(sonde__export_events *events, const sonde_sketch *sketch)
{
    double lower = 0.0, upper = 0.0, last = 0.0;

    for (int bin = SONDE_SKETCH_BINS - 1; bin >= 0; bin--) {
        if (sketch->negative[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_gap(events, last, -upper);
            put_bucket(events, -lower, sketch->negative[bin]);
            last = -lower;
        }
    }
    if (sketch->zero > 0) {
        put_gap(events, last, -DBL_MIN);
        put_bucket(events, 0.0, sketch->zero);
        last = 0.0;
    }
    for (int bin = 0; bin < SONDE_SKETCH_BINS; bin++) {
        if (sketch->positive[bin] > 0) {
            sonde_sketch_bounds(bin, &lower, &upper);
            put_gap(events, last, lower);
            put_bucket(events, upper, sketch->positive[bin]);
            last = upper;
        }
    }
}

sonde_err sonde__export_events_histogram(sonde__export_events *events, const char *tag,
                                         int64_t step, const sonde_vitals *vitals,
                                         const sonde_sketch *sketch, sonde_diag *diag)
{
    sonde__export_message *to = &events->histogram;
    const uint64_t finite =
        vitals->count - vitals->nan - vitals->pos_inf - vitals->neg_inf;

    to->size = events->limits.size = events->counts.size = 0;
    put_double(to, 1, finite > 0 ? vitals->min : 0.0);
    put_double(to, 2, finite > 0 ? vitals->max : 0.0);
    put_double(to, 3, (double)finite);
    put_double(to, 4, vitals->sum);
    put_double(to, 5, vitals->sumsq);
    put_buckets(events, sketch);
    put_message(to, 6, &events->limits);
    put_message(to, 7, &events->counts);
    events->value.size = 0;
    put_bytes(&events->value, 1, tag, strlen(tag));
    put_message(&events->value, 5, to);
    return write_value(events, step, diag);
}

/* --- the end ---------------------------------------------------------------------- */

void sonde__export_events_abandon(sonde__export_events *events)
{
    sonde__export_message *const messages[] = {&events->event,  &events->summary,
                                               &events->value,  &events->histogram,
                                               &events->limits, &events->counts};

    sonde__export_out_abandon(&events->file);
    for (size_t i = 0; i < SONDE_COUNT_OF(messages); i++) {
        fini(messages[i]);
    }
}

sonde_err sonde__export_events_close(sonde__export_events *events, sonde_diag *diag)
{
    const sonde_err err = sonde__export_out_close(&events->file, diag);

    sonde__export_events_abandon(events);
    return err;
}
