/*
 * test_export_events.c - TensorBoard's events against a decoder of its own; and that
 * writers survive when there is no memory.
 */
#include "alloc_failure.h"
#include "export_folder.h"

#include "export/export_board.h"
#include "export/export_arrays.h"

#include <math.h>

/* One field of a message: its number, and its value or the bytes in it. */
typedef struct field {
    unsigned id, kind;
    uint64_t value;
    const unsigned char *bytes;
} field;

static uint64_t varint(const unsigned char **at)
{
    uint64_t value = 0;

    for (unsigned shift = 0;; shift += 7) {
        const unsigned char byte = *(*at)++;

        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            return value;
        }
    }
}

static field next_field(const unsigned char **at)
{
    const uint64_t key = varint(at);
    field f = {.id = (unsigned)(key >> 3), .kind = (unsigned)(key & 7)};

    if (f.kind == 0) {
        f.value = varint(at);
    } else if (f.kind == 2) {
        f.value = varint(at);
        f.bytes = *at;
        *at += f.value;
    } else {
        const size_t n = f.kind == 1 ? 8 : 4;

        assert_true(f.kind == 1 || f.kind == 5);
        f.value = number(*at, n);
        *at += n;
    }
    return f;
}

static double as_double(uint64_t bits)
{
    double value = 0.0;

    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The next record's message, its checksums compared with ones made bit by bit. */
static field next_record(const unsigned char **at)
{
    const uint64_t length = number(*at, 8);
    const field message = {.value = length, .bytes = *at + 12};
    const unsigned char *const parts[] = {*at, *at + 12};
    const size_t sizes[] = {8, (size_t)length};

    for (int p = 0; p < 2; p++) {
        uint32_t crc = 0xFFFFFFFFU;

        for (size_t i = 0; i < sizes[p]; i++) {
            crc ^= parts[p][i];
            for (int bit = 0; bit < 8; bit++) {
                crc = crc >> 1 ^ (crc & 1 ? 0x82F63B78U : 0U);
            }
        }
        crc = ~crc;
        crc = (crc >> 15 | crc << 17) + 0xa282ead8U;
        assert_int_equal(number(parts[p] + sizes[p], 4), crc);
    }
    *at += 16 + length;
    return message;
}

/* The value in an event's summary: its step, tag and other field. */
static field event_value(const field *event, int64_t *step, char tag[64])
{
    const unsigned char *at = event->bytes;
    const field time = next_field(&at), when = next_field(&at), summary = next_field(&at);
    const unsigned char *in_summary = summary.bytes;
    const field value = next_field(&in_summary);
    const unsigned char *in_value = value.bytes;
    const field name = next_field(&in_value);

    assert_true(time.id == 1 && as_double(time.value) == 1.5e9);
    assert_true(when.id == 2 && when.kind == 0 && summary.id == 5 && value.id == 1);
    assert_true(name.id == 1 && name.kind == 2);
    assert_ptr_equal(at, event->bytes + event->value);
    *step = (int64_t)when.value;
    (void)snprintf(tag, 64, "%.*s", (int)name.value, (const char *)name.bytes);
    return next_field(&in_value);
}

static void expect_version(const unsigned char **at)
{
    const field record = next_record(at);
    const unsigned char *inside = record.bytes;
    const field time = next_field(&inside), version = next_field(&inside);

    assert_int_equal(time.id, 1);
    assert_int_equal(version.id, 3);
    assert_int_equal(version.value, 13);
    assert_memory_equal(version.bytes, "brain.Event:2", 13);
}

static void expect_buckets(const field *histogram, const double (*wanted)[2], size_t n)
{
    static const double five[] = {-3.0, 4.0, 6.0, 3.0, 27.0};
    const unsigned char *at = histogram->bytes;
    field limits, counts;

    for (unsigned i = 0; i < 5; i++) { /* min, max, num, sum, sum of squares */
        const field f = next_field(&at);

        assert_int_equal(f.id, i + 1);
        assert_true(as_double(f.value) == five[i]);
    }
    limits = next_field(&at);
    counts = next_field(&at);
    assert_true(limits.id == 6 && counts.id == 7);
    assert_int_equal(limits.value, n * 8);
    assert_int_equal(counts.value, n * 8);
    for (size_t i = 0; i < n; i++) {
        assert_true(as_double(number(limits.bytes + 8 * i, 8)) == wanted[i][0]);
        assert_true(as_double(number(counts.bytes + 8 * i, 8)) == wanted[i][1]);
    }
    assert_ptr_equal(at, histogram->bytes + histogram->value);
}

static void events_can_be_decoded(void **state)
{
    /* -3 in [-3.5, -3), 0 twice, 1 twice in [1, 1.25), 4 in [4, 5); and what is no
     * number */
    static const double wanted[][2] = {
        {-3.0, 1}, {-2.2250738585072014e-308, 0}, {0.0, 2}, {1.0, 0}, {1.25, 2}, {4.0, 0},
        {5.0, 1}};
    float x[] = {-3, 0, 1, 1, 4, -0.0F, NAN, INFINITY};
    const int64_t shape = 8;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    static sonde_sketch sketch;
    sonde_vitals vitals;
    sonde__export_events events;
    const unsigned char *at = NULL;
    unsigned char *bytes = NULL;
    size_t size = 0;
    int64_t step = 0;
    char tag[64];
    field record, value;

    (void)state;
    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    sonde_vitals_of(&view, &vitals);
    assert_int_equal(sonde__export_events_open(&events, in_folder("e"), 1.5e9, NULL),
                     SONDE_OK);
    assert_int_equal(sonde__export_events_scalar(&events, "loss", 3000000000, -0.1, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde__export_events_histogram(&events, "w", 0, &vitals, &sketch, NULL),
        SONDE_OK);
    assert_int_equal(sonde__export_events_close(&events, NULL), SONDE_OK);
    bytes = slurp(in_folder("e"), &size);
    at = bytes;
    expect_version(&at);
    record = next_record(&at);
    value = event_value(&record, &step, tag);
    assert_int_equal(step, 3000000000);
    assert_string_equal(tag, "loss");
    assert_true(value.id == 2 && value.kind == 5 &&
                value.value == 0xBDCCCCCD); /* -0.1F */
    record = next_record(&at);
    value = event_value(&record, &step, tag);
    assert_int_equal(step, 0);
    assert_string_equal(tag, "w");
    assert_int_equal(value.id, 5);
    expect_buckets(&value, wanted, 7);
    assert_ptr_equal(at, bytes + size);
    free(bytes);
    assert_int_equal(count_files(true), 1);
}

static sonde_err write_both(void)
{
    static sonde_sketch sketch;
    float x[2] = {1, 2};
    const int64_t shape = 2;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    sonde_vitals vitals;
    sonde__export_events events = {0};
    sonde__export_npz_file npz;
    sonde_err err = sonde__export_npz_open(&npz, in_folder("n"), NULL);

    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    sonde_vitals_of(&view, &vitals);
    if (err == SONDE_OK) {
        err = sonde__export_npz_add(&npz, "x", &view, NULL);
    }
    if (err != SONDE_OK) {
        sonde__export_npz_abandon(&npz);
        return err;
    }
    err = sonde__export_npz_close(&npz, NULL);
    if (err == SONDE_OK) {
        err = sonde__export_events_open(&events, in_folder("e"), 0.0, NULL);
    }
    if (err == SONDE_OK) {
        err = sonde__export_events_histogram(&events, "x", 0, &vitals, &sketch, NULL);
    }
    if (err == SONDE_OK) {
        return sonde__export_events_close(&events, NULL);
    }
    sonde__export_events_abandon(&events);
    return err;
}

static void writing_survives_every_failed_allocation(void **state)
{
    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = write_both();
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_int_equal(count_files(true), 2);
            assert_true(n > 8);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
        assert_true(count_files(true) <= 1); /* the npz that was whole */
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(events_can_be_decoded),
        cmocka_unit_test(writing_survives_every_failed_allocation),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
