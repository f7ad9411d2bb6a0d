/*
 * test_data_idx.c - IDX arrays: every dtype there and back, and everything that can be
 * wrong with a file.
 */
#include "nn/data_files.h"

#include <zlib.h>

static const unsigned char small[] = {0, 0, 0x08, 2, 0, 0, 0, 2, 0,
                                      0, 0, 3,    1, 2, 3, 4, 5, 6};

static void every_dtype_goes_there_and_back(void **state)
{
    static const sonde_dtype dtypes[] = {SONDE_U8,  SONDE_I8,  SONDE_I16,
                                         SONDE_I32, SONDE_F32, SONDE_F64};
    const int64_t shape[3] = {3, 2, 5};

    (void)state;
    for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
        for (int gzip = 0; gzip < 2; gzip++) {
            double room[30];
            unsigned char *bytes = (unsigned char *)room;
            const size_t size = 30 * sonde_dtype_size(dtypes[d]);
            const sonde_view view = sonde_view_of(dtypes[d], 3, shape, room);
            sonde__data_idx *array = NULL;

            memset(room, 0, sizeof room);
            for (size_t i = 0; i < 30; i++) {
                sonde_element_set(dtypes[d], bytes + i * sonde_dtype_size(dtypes[d]),
                                  (double)i * 3.0 + 1.0);
            }
            assert_int_equal(sonde__data_idx_write(data_path("a"), &view, gzip, NULL),
                             SONDE_OK);
            assert_int_equal(sonde__data_idx_load(data_path("a"), &array, NULL),
                             SONDE_OK);
            assert_int_equal(sonde__data_idx_view(array)->dtype, dtypes[d]);
            assert_true(sonde_view_same_shape(sonde__data_idx_view(array), &view));
            assert_memory_equal(sonde__data_idx_view(array)->data, room, size);
            sonde__data_idx_destroy(array);
        }
    }
}

static void strided_views_are_written_in_logical_order(void **state)
{
    float values[6] = {1, 2, 3, 4, 5, 6};
    const int64_t shape[2] = {2, 3};
    sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);
    static const float turned[6] = {1, 4, 2, 5, 3, 6};
    sonde__data_idx *array = NULL;

    (void)state;
    view.shape[0] = 3;
    view.shape[1] = 2;
    view.stride[0] = 1;
    view.stride[1] = 3;
    assert_int_equal(sonde__data_idx_write(data_path("t"), &view, false, NULL), SONDE_OK);
    assert_int_equal(sonde__data_idx_load(data_path("t"), &array, NULL), SONDE_OK);
    assert_memory_equal(sonde__data_idx_view(array)->data, turned, sizeof turned);
    sonde__data_idx_destroy(array);
}

static void layout_is_big_endian(void **state)
{
    static const unsigned char bytes[] = {0, 0, 0x0B, 1,    0,    0,
                                          0, 2, 0x01, 0x02, 0xFF, 0xFE};
    sonde__data_idx *array = NULL;

    (void)state;
    assert_int_equal(sonde__data_idx_parse(bytes, sizeof bytes, "x", &array, NULL),
                     SONDE_OK);
    assert_int_equal(((const int16_t *)sonde__data_idx_view(array)->data)[0], 0x102);
    assert_int_equal(((const int16_t *)sonde__data_idx_view(array)->data)[1], -2);
    sonde__data_idx_destroy(array);
}

/* Every beginning of a good file but the whole is an error. */
static void every_truncation_is_found(void **state)
{
    unsigned char *zipped = NULL;
    size_t zipped_size = 0;
    sonde__data_idx *array = NULL;
    sonde_diag diag = {0};

    (void)state;
    for (size_t n = 0; n < sizeof small; n++) {
        assert_int_equal(sonde__data_idx_parse(small, n, "short", &array, &diag),
                         SONDE_EFORMAT);
        assert_string_equal(diag.where, "short");
    }
    assert_non_null(strstr(diag.found, "truncated"));
    assert_int_equal(sonde__data_idx_parse(small, sizeof small, "whole", &array, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde__data_idx_write(data_path("z"), sonde__data_idx_view(array), true, NULL),
        SONDE_OK);
    sonde__data_idx_destroy(array);
    zipped = data_read(data_path("z"), &zipped_size);
    for (size_t n = 0; n < zipped_size; n++) {
        assert_int_equal(sonde__data_idx_parse(zipped, n, "short.gz", &array, &diag),
                         SONDE_EFORMAT);
    }
    assert_non_null(strstr(diag.found, "gzip stream at byte"));
    assert_int_equal(sonde__data_idx_parse(zipped, zipped_size, "whole.gz", &array, NULL),
                     SONDE_OK);
    sonde__data_idx_destroy(array);
    free(zipped);
}

/* Every single flipped bit of a gzip file either is found or changes nothing. */
static void every_flipped_bit_in_gzip_is_found(void **state)
{
    unsigned char *zipped = NULL;
    size_t size = 0;
    int found = 0;

    (void)state;
    data_write_images(data_path("z"), 2, true);
    zipped = data_read(data_path("z"), &size);
    for (size_t bit = 0; bit < size * 8; bit++) {
        sonde__data_idx *array = NULL;

        zipped[bit / 8] ^= (unsigned char)(1u << bit % 8);
        if (sonde__data_idx_parse(zipped, size, "z", &array, NULL) == SONDE_OK) {
            assert_int_equal(((const uint8_t *)sonde__data_idx_view(array)->data)[3], 93);
        } else {
            found++;
        }
        sonde__data_idx_destroy(array);
        zipped[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
    assert_true(found > (int)size * 7); /* all but name, time and flags of the header */
    free(zipped);
}

static void expect(const void *bytes, size_t size, sonde_err err, const char *words)
{
    sonde__data_idx *array = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde__data_idx_parse(bytes, size, "file", &array, &diag), err);
    assert_null(array);
    if (strstr(sonde_diag_line(&diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void foreign_files_are_told_apart(void **state)
{
    static const unsigned char png[] = {0x89, 'P', 'N', 'G', 0x0D, 0x0A, 0x1A, 0x0A};
    static const unsigned char dtype[] = {0, 0, 0x0A, 1, 0, 0, 0, 1, 7};
    static const unsigned char none[] = {0, 0, 0x08, 0, 7};
    static const unsigned char nine[64] = {0, 0, 0x08, 9};
    static const unsigned char huge[] = {0,    0,    0x0E, 3,    0xFF, 0xFF, 0xFF, 0xFF,
                                         0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF};
    static const unsigned char wide[] = {0,    0,    0x08, 3,    0xFF, 0xFF, 0xFF, 0xFF,
                                         0xFF, 0xFF, 0xFF, 0xFF, 0,    0,    0,    0};
    unsigned char longer[sizeof small + 1] = {0};

    (void)state;
    memcpy(longer, small, sizeof small);
    expect(png, sizeof png, SONDE_EFORMAT,
           "begins with 89 50 4e 47 (expected an IDX file");
    expect(dtype, sizeof dtype, SONDE_EFORMAT, "begins with 00 00 0a 01");
    expect(none, sizeof none, SONDE_EFORMAT, "begins with 00 00 08 00");
    expect(nine, sizeof nine, SONDE_EUNSUPPORTED, "9 dimensions");
    expect(huge, sizeof huge, SONDE_EFORMAT, "16 bytes cannot hold");
    expect(wide, sizeof wide, SONDE_EFORMAT,
           "cannot hold its (4294967295, 4294967295, 0)");
    expect(longer, sizeof longer, SONDE_EFORMAT,
           "foreign bytes after the data, from byte 18");
    expect("", 0, SONDE_EFORMAT, "ends at byte 0");
}

/* Two gzip members are one content; anything else behind one is foreign. */
static void gzip_members_follow_each_other(void **state)
{
    unsigned char bytes[256], *zipped = NULL;
    sonde__data_idx *array = NULL;
    size_t size = 0, part = 0;

    (void)state;
    for (int i = 0; i < 2; i++) {
        gzFile file = gzopen(data_path("m"), "wb");

        assert_non_null(file);
        assert_int_equal(gzwrite(file, small + i * 9, 9), 9);
        assert_int_equal(gzclose(file), Z_OK);
        zipped = data_read(data_path("m"), &part);
        memcpy(bytes + size, zipped, part);
        size += part;
        free(zipped);
    }
    assert_int_equal(sonde__data_idx_parse(bytes, size, "two", &array, NULL), SONDE_OK);
    assert_memory_equal(sonde__data_idx_view(array)->data, small + 12, 6);
    sonde__data_idx_destroy(array);
    bytes[size] = 'x';
    expect(bytes, size + 1, SONDE_EFORMAT,
           "foreign bytes after the gzip stream, at byte");
}

static void what_cannot_be_opened_says_so(void **state)
{
    sonde__data_idx *array = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde__data_idx_load(data_path("absent"), &array, &diag),
                     SONDE_ENOTFOUND);
    assert_string_equal(diag.where, data_path("absent"));
    assert_int_equal(sonde__data_idx_load(data_folder, &array, &diag), SONDE_EFORMAT);
    assert_string_equal(diag.found, "is a folder");
}

static void what_cannot_be_written_leaves_nothing(void **state)
{
    uint8_t value = 1;
    int64_t one = 1;
    sonde_view view = sonde_view_of(SONDE_U8, 1, &one, &value);
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde__data_idx_write(data_path("no/such"), &view, true, &diag),
                     SONDE_ENOTFOUND);
    view.dtype = SONDE_U64;
    assert_int_equal(sonde__data_idx_write(data_path("u64"), &view, false, &diag),
                     SONDE_EDTYPE);
    view.dtype = SONDE_U8;
    view.rank = 0;
    assert_int_equal(sonde__data_idx_write(data_path("u64"), &view, false, &diag),
                     SONDE_EINVAL);
    assert_int_equal(access(data_path("u64"), F_OK), -1);
}

static sonde_err load_small(void *user)
{
    sonde__data_idx *array = NULL;
    const sonde_err err = sonde__data_idx_load(user, &array, NULL);

    sonde__data_idx_destroy(array);
    return err;
}

static sonde_err write_small(void *user)
{
    uint8_t value = 1;
    int64_t one = 1;
    const sonde_view view = sonde_view_of(SONDE_U8, 1, &one, &value);

    return sonde__data_idx_write(user, &view, true, NULL);
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    data_write_images(data_path("f.gz"), 3, true);
    assert_true(data_fail_allocations(load_small, data_path("f.gz")) >= 2);
    assert_true(data_fail_allocations(write_small, data_path("g.gz")) >= 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_goes_there_and_back),
        cmocka_unit_test(strided_views_are_written_in_logical_order),
        cmocka_unit_test(layout_is_big_endian),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(every_flipped_bit_in_gzip_is_found),
        cmocka_unit_test(foreign_files_are_told_apart),
        cmocka_unit_test(gzip_members_follow_each_other),
        cmocka_unit_test(what_cannot_be_opened_says_so),
        cmocka_unit_test(what_cannot_be_written_leaves_nothing),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
