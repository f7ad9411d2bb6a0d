/*
 * test_export_npz.c - npz against a reader of zip files of its own.
 */
#include "export_folder.h"

#include "export/export_arrays.h"

#include <math.h>
#include <zlib.h>

/* An entry as the central directory has it, with its bytes. */
typedef struct zip_entry {
    char name[128];
    const unsigned char *data;
    uint64_t size;
} zip_entry;

/* The zip64 fields that the 32-bit ones point to, in their order. */
static void read_extra(const unsigned char *extra, size_t length, uint64_t *size,
                       uint64_t *offset)
{
    const unsigned char *at = extra + 4;

    if (*size != UINT32_MAX && *offset != UINT32_MAX) {
        assert_int_equal(length, 0);
        return;
    }
    assert_int_equal(number(extra, 2), 1);
    assert_int_equal(number(extra + 2, 2), length - 4);
    if (*size == UINT32_MAX) {
        *size = number(at, 8);
        assert_int_equal(number(at + 8, 8), *size);
        at += 16;
    }
    if (*offset == UINT32_MAX) {
        *offset = number(at, 8);
        at += 8;
    }
    assert_int_equal(at - extra, length);
}

static const unsigned char *read_entry(const unsigned char *zip, const unsigned char *at,
                                       zip_entry *entry)
{
    const size_t name = number(at + 28, 2), extra = number(at + 30, 2);
    uint64_t size = number(at + 20, 4), offset = number(at + 42, 4);
    const unsigned char *local = NULL;
    size_t local_extra = 0;

    assert_int_equal(number(at, 4), 0x02014b50);
    assert_int_equal(number(at + 10, 2), 0); /* stored */
    assert_int_equal(number(at + 24, 4), number(at + 20, 4));
    read_extra(at + 46 + name, extra, &size, &offset);
    local = zip + offset;
    local_extra = number(local + 28, 2);
    assert_int_equal(number(local, 4), 0x04034b50);
    assert_int_equal(number(local + 26, 2), name);
    assert_memory_equal(local + 30, at + 46, name);
    assert_int_equal(number(local + 14, 4), number(at + 16, 4));
    if (local_extra > 0) {
        assert_int_equal(number(local + 18, 4), UINT32_MAX);
        assert_int_equal(number(local + 30 + name + 4, 8), size);
    } else {
        assert_int_equal(number(local + 18, 4), size);
    }
    (void)snprintf(entry->name, sizeof entry->name, "%.*s", (int)name,
                   (const char *)at + 46);
    entry->data = local + 30 + name + local_extra;
    entry->size = size;
    assert_int_equal(crc32(0, entry->data, (uInt)size), number(at + 16, 4));
    return at + 46 + name + extra;
}

/* All entries; how many. */
static size_t read_zip(const unsigned char *zip, size_t size, bool wide,
                       zip_entry *entries)
{
    const unsigned char *end = zip + size - 22;
    uint64_t count = number(end + 10, 2), start = number(end + 16, 4);
    const unsigned char *at = NULL;

    assert_int_equal(number(end, 4), 0x06054b50);
    if (wide) {
        const unsigned char *locator = end - 20;
        const unsigned char *end64 = zip + number(locator + 8, 8);

        assert_int_equal(number(locator, 4), 0x07064b50);
        assert_int_equal(number(end64, 4), 0x06064b50);
        assert_ptr_equal(end64 + 56, locator);
        count = number(end64 + 32, 8);
        start = number(end64 + 48, 8);
        assert_ptr_equal(zip + start + number(end64 + 40, 8), end64);
    }
    at = zip + start;
    for (size_t i = 0; i < count; i++) {
        at = read_entry(zip, at, &entries[i]);
    }
    assert_ptr_equal(at, wide ? zip + number(end - 20 + 8, 8) : end);
    return count;
}

static void expect_npy(const zip_entry *entry, const char *head, const void *data,
                       size_t bytes)
{
    const size_t length = number(entry->data + 8, 2);

    assert_memory_equal(entry->data, "\x93NUMPY\x01\x00", 8);
    assert_int_equal((10 + length) % 64, 0);
    assert_memory_equal(entry->data + 10, head, strlen(head));
    assert_int_equal(entry->data[10 + length - 1], '\n');
    assert_int_equal(entry->size, 10 + length + bytes);
    assert_memory_equal(entry->data + 10 + length, data, bytes);
}

/* Writes four arrays and reads them back; from limit on, fields are of zip64. */
static void arrays_come_back(uint64_t limit)
{
    static const int64_t shape[] = {2, 3}, turned[] = {3, 2}, none[] = {0, 4};
    float x[6] = {1, -2, NAN, 4, 5, INFINITY}, columns[6] = {1, 4, -2, 5, NAN, INFINITY};
    uint16_t narrow[2] = {0x3F80, 0xC000}; /* bfloat16: 1, -2 */
    const float wide[2] = {1, -2};
    const int64_t two = 2;
    sonde_view transposed = sonde_view_of(SONDE_F32, 2, turned, x);
    const sonde_view plain = sonde_view_of(SONDE_F32, 2, shape, x);
    const sonde_view brain = sonde_view_of(SONDE_BF16, 1, &two, narrow);
    const sonde_view empty = sonde_view_of(SONDE_I64, 2, none, NULL);
    zip_entry entries[4];
    sonde__export_npz_file npz;
    unsigned char *zip = NULL;
    size_t size = 0;

    transposed.stride[0] = 1;
    transposed.stride[1] = 3;
    assert_int_equal(sonde__export_npz_open(&npz, in_folder("a.npz"), NULL), SONDE_OK);
    npz.limit = limit;
    assert_int_equal(sonde__export_npz_add(&npz, "0000000001/train/w", &plain, NULL),
                     SONDE_OK);
    assert_int_equal(sonde__export_npz_add(&npz, "transposed", &transposed, NULL),
                     SONDE_OK);
    assert_int_equal(sonde__export_npz_add(&npz, "brain \xC3\xA9", &brain, NULL),
                     SONDE_OK);
    assert_int_equal(sonde__export_npz_add(&npz, "empty", &empty, NULL), SONDE_OK);
    assert_int_equal(sonde__export_npz_close(&npz, NULL), SONDE_OK);
    zip = slurp(in_folder("a.npz"), &size);
    assert_int_equal(read_zip(zip, size, limit < UINT32_MAX, entries), 4);
    assert_string_equal(entries[0].name, "0000000001/train/w.npy");
    expect_npy(&entries[0], "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3), }",
               x, sizeof x);
    assert_string_equal(entries[1].name, "transposed.npy");
    expect_npy(&entries[1], "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 2), }",
               columns, sizeof columns);
    assert_string_equal(entries[2].name, "brain \xC3\xA9.npy");
    expect_npy(&entries[2], "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }",
               wide, sizeof wide);
    expect_npy(&entries[3], "{'descr': '<i8', 'fortran_order': False, 'shape': (0, 4), }",
               "", 0);
    free(zip);
    assert_int_equal(count_files(true), 1);
}

static void npz_arrays_come_back(void **state)
{
    (void)state;
    arrays_come_back(UINT32_MAX);
}

static void npz_beyond_four_gigabytes_is_zip64(void **state)
{
    (void)state;
    arrays_come_back(0);   /* every field */
    arrays_come_back(150); /* sizes of some and offsets of others */
}

static void npz_has_codes_of_float8(void **state)
{
    static const sonde_dtype dtypes[] = {SONDE_F8_E4M3, SONDE_F8_E5M2};
    uint8_t codes[3] = {0x38, 0xB8, 0x7F};
    const int64_t three = 3;
    zip_entry entries[4];
    sonde__export_npz_file npz;
    unsigned char *zip = NULL;
    size_t size = 0;

    (void)state;
    assert_int_equal(sonde__export_npz_open(&npz, in_folder("a.npz"), NULL), SONDE_OK);
    for (size_t i = 0; i < 2; i++) {
        const sonde_view view = sonde_view_of(dtypes[i], 1, &three, codes);

        assert_int_equal(
            sonde__export_npz_add(&npz, sonde_dtype_name(dtypes[i]), &view, NULL),
            SONDE_OK);
    }
    assert_int_equal(sonde__export_npz_close(&npz, NULL), SONDE_OK);
    zip = slurp(in_folder("a.npz"), &size);
    assert_int_equal(read_zip(zip, size, false, entries), 2);
    for (size_t i = 0; i < 2; i++) {
        expect_npy(&entries[i],
                   "{'descr': '|u1', 'fortran_order': False, 'shape': (3,), }", codes,
                   sizeof codes);
    }
    free(zip);
    assert_int_equal(count_files(true), 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(npz_arrays_come_back),
        cmocka_unit_test(npz_beyond_four_gigabytes_is_zip64),
        cmocka_unit_test(npz_has_codes_of_float8),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
