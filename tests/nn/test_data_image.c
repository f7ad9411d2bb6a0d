/*
 * test_data_image.c - PNG of every kind and JPEG, as libpng and libjpeg write them, and
 * what is left of them when they are cut off or damaged.
 */
#include "nn/data_files.h"

#include "nn/data/pixels.h"

#include <png.h>

#include <jpeglib.h> /* after stdio.h */

enum { H = 9, W = 13 };

static uint8_t sample(int y, int x, int c)
{
    return (uint8_t)(y * 25 + x * 9 + c * 60);
}

/* A PNG of one kind; interlaced on demand. values are written as they are, row by row. */
static void write_png(const char *path, int kind, int depth, int interlace,
                      const uint8_t *rows, size_t row_bytes)
{
    FILE *file = fopen(path, "wb");
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    png_bytep pointers[H];

    assert_non_null(file);
    for (int y = 0; y < H; y++) {
        uint8_t *row = malloc(row_bytes);

        memcpy(row, rows + (size_t)y * row_bytes, row_bytes);
        pointers[y] = row;
    }
    png_init_io(png, file);
    png_set_IHDR(png, info, W, H, depth, kind, interlace, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    if (kind == PNG_COLOR_TYPE_PALETTE) {
        png_color palette[16];

        for (int i = 0; i < 16; i++) {
            palette[i] =
                (png_color){(png_byte)(i * 3), (png_byte)(i * 5), (png_byte)(255 - i)};
        }
        png_set_PLTE(png, info, palette, 16);
    }
    png_set_rows(png, info, pointers);
    png_write_png(png, info, PNG_TRANSFORM_IDENTITY, NULL);
    png_destroy_write_struct(&png, &info);
    assert_int_equal(fclose(file), 0);
    for (int y = 0; y < H; y++) {
        free(pointers[y]);
    }
}

typedef struct picture {
    int channels, height, width;
    uint8_t *pixels; /* (channels, height, width) */
} picture;

/* As a data set of one image. */
static sonde_err load_picture(const char *path, picture *image, sonde_diag *diag)
{
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample = {0};
    sonde_err err = sonde_nn_dataset_open(
        path, SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE), &set, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_dataset_get(set, 0, NULL, &sample, diag);
    }
    if (err == SONDE_OK) {
        const int64_t *shape = sample.shape;
        const size_t size = (size_t)(shape[0] * shape[1] * shape[2]);

        *image = (picture){(int)shape[0], (int)shape[1], (int)shape[2], malloc(size)};
        assert_non_null(image->pixels);
        memcpy(image->pixels, sample.data, size);
        assert_int_equal(sample.label, SONDE_NN_NO_LABEL);
    }
    sonde_nn_dataset_destroy(set);
    return err;
}

static sonde_err parse(const void *bytes, size_t size, const char *name, sonde_diag *diag)
{
    const sonde__data_bytes all = {bytes, size, name};
    sonde__data_image_info info = {0};
    sonde_err err = sonde__data_image_probe(&all, &info, diag);

    if (err == SONDE_OK) {
        uint8_t *pixels = malloc(sonde__data_image_size(&info));

        assert_non_null(pixels);
        err = sonde__data_image_read(&all, &info, pixels, diag);
        free(pixels);
    }
    return err;
}

static picture load(const char *path, int channels)
{
    picture image = {0};
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (load_picture(path, &image, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    assert_int_equal(image.channels, channels);
    assert_int_equal(image.height, H);
    assert_int_equal(image.width, W);
    return image;
}

static uint8_t pixel(const picture *image, int c, int y, int x)
{
    return image->pixels[(c * H + y) * W + x];
}

static void eight_bit_kinds_are_read(void **state)
{
    static const int kinds[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_GRAY_ALPHA,
                                PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA};
    static const int stored[] = {1, 2, 3, 4}, wanted[] = {1, 1, 3, 3};

    (void)state;
    for (int k = 0; k < 8; k++) {
        uint8_t rows[H * W * 4];
        picture image;

        for (int i = 0; i < H * W * stored[k / 2]; i++) {
            const int at = i / stored[k / 2];

            rows[i] = sample(at / W, at % W, i % stored[k / 2]);
        }
        write_png(data_path("k.png"), kinds[k / 2], 8,
                  k % 2 ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE, rows,
                  (size_t)(W * stored[k / 2]));
        image = load(data_path("k.png"), wanted[k / 2]);
        for (int i = 0; i < wanted[k / 2] * H * W; i++) {
            assert_int_equal(image.pixels[i], sample(i / W % H, i % W, i / (H * W)));
        }
        free(image.pixels);
    }
}

static void other_depths_become_eight_bit(void **state)
{
    uint8_t rows[H * W * 2];
    picture image;

    (void)state;
    memset(rows, 0xB1, sizeof rows); /* 1011 0001 */
    write_png(data_path("d.png"), PNG_COLOR_TYPE_GRAY, 1, PNG_INTERLACE_NONE, rows, 2);
    image = load(data_path("d.png"), 1);
    assert_int_equal(pixel(&image, 0, 3, 0), 255);
    assert_int_equal(pixel(&image, 0, 3, 1), 0);
    free(image.pixels);
    write_png(data_path("d.png"), PNG_COLOR_TYPE_GRAY, 4, PNG_INTERLACE_NONE, rows, 7);
    image = load(data_path("d.png"), 1);
    assert_int_equal(pixel(&image, 0, 8, 0), 0xB * 17);
    assert_int_equal(pixel(&image, 0, 8, 1), 1 * 17);
    free(image.pixels);
    memset(rows, 0x80, sizeof rows); /* 0x8080 of 0xFFFF */
    write_png(data_path("d.png"), PNG_COLOR_TYPE_GRAY, 16, PNG_INTERLACE_NONE, rows,
              W * 2);
    image = load(data_path("d.png"), 1);
    assert_int_equal(pixel(&image, 0, 0, 0), 128);
    free(image.pixels);
    memset(rows, 0x27, sizeof rows); /* entries 2 and 7 */
    write_png(data_path("d.png"), PNG_COLOR_TYPE_PALETTE, 4, PNG_INTERLACE_NONE, rows, 7);
    image = load(data_path("d.png"), 3);
    assert_int_equal(pixel(&image, 0, 1, 0), 6);
    assert_int_equal(pixel(&image, 1, 1, 1), 35);
    assert_int_equal(pixel(&image, 2, 1, 1), 248);
    free(image.pixels);
}

static void write_jpeg(const char *path, int channels, J_COLOR_SPACE space)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr manager;
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    jpeg.err = jpeg_std_error(&manager);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_width = W;
    jpeg.image_height = H;
    jpeg.input_components = channels;
    jpeg.in_color_space = space;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 100, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < H; y++) {
        JSAMPLE row[W * 4];
        JSAMPROW rows = row;

        for (int i = 0; i < W * channels; i++) {
            row[i] = (JSAMPLE)(40 + y * 10 + i % channels * 30);
        }
        (void)jpeg_write_scanlines(&jpeg, &rows, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    assert_int_equal(fclose(file), 0);
}

static void jpeg_is_read(void **state)
{
    picture image;
    sonde_diag diag = {0};

    (void)state;
    write_jpeg(data_path("g.jpg"), 1, JCS_GRAYSCALE);
    image = load(data_path("g.jpg"), 1);
    assert_in_range(pixel(&image, 0, 4, 5), 78, 82);
    free(image.pixels);
    write_jpeg(data_path("c.jpg"), 3, JCS_RGB);
    image = load(data_path("c.jpg"), 3);
    for (int c = 0; c < 3; c++) {
        assert_in_range(pixel(&image, c, 4, 5), 76 + c * 30, 84 + c * 30);
    }
    free(image.pixels);
    write_jpeg(data_path("k.jpg"), 4, JCS_CMYK);
    assert_int_equal(load_picture(data_path("k.jpg"), &image, &diag), SONDE_EUNSUPPORTED);
    assert_string_equal(diag.found, "is a CMYK JPEG");
}

static void what_was_written_is_read(void **state)
{
    (void)state;
    for (int channels = 1; channels <= 3; channels += 2) {
        picture image;

        data_write_png(data_path("w.png"), channels, H, W, 7);
        image = load(data_path("w.png"), channels);
        for (int i = 0; i < channels * H * W; i++) {
            assert_int_equal(image.pixels[i], 7 + i / (H * W) + i / W % H + i % W);
        }
        free(image.pixels);
    }
}

static void expect_broken(const unsigned char *bytes, size_t size, const char *words)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(parse(bytes, size, "x.png", &diag), SONDE_EFORMAT);
    assert_string_equal(diag.where, "x.png");
    if (strstr(sonde_diag_line(&diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void every_truncation_is_found(void **state)
{
    size_t size = 0;
    unsigned char *bytes = NULL;

    (void)state;
    data_write_png(data_path("t.png"), 3, H, W, 7);
    bytes = data_read(data_path("t.png"), &size);
    for (size_t n = 0; n < size; n++) {
        expect_broken(bytes, n, n < 8 ? "expected a PNG or JPEG image" : "corrupt PNG");
    }
    bytes[size / 2] ^= 0x10; /* in the compressed rows: the checksum tells */
    expect_broken(bytes, size, "corrupt PNG at byte");
    free(bytes);
    write_jpeg(data_path("t.jpg"), 3, JCS_RGB);
    bytes = data_read(data_path("t.jpg"), &size);
    for (size_t n = 0; n + 2 < size; n++) { /* libjpeg forgives a missing end marker */
        expect_broken(bytes, n, n < 3 ? "expected a PNG or JPEG image" : "corrupt JPEG");
    }
    free(bytes);
}

static void sizes_are_limited(void **state)
{
    size_t size = 0;
    unsigned char *bytes = NULL;
    sonde_diag diag = {0};

    (void)state;
    data_write_png(data_path("s.png"), 1, 1, 20000, 0);
    bytes = data_read(data_path("s.png"), &size);
    assert_int_equal(parse(bytes, size, "wide", &diag), SONDE_EUNSUPPORTED);
    assert_string_equal(diag.found, "image is 20000 x 1");
    free(bytes);
    data_write_png(data_path("s.png"), 1, 8000, 8000,
                   0); /* packs well, but not so well */
    bytes = data_read(data_path("s.png"), &size);
    expect_broken(bytes, 1000, "too short for its size in pixels");
    free(bytes);
}

static void bad_calls_are_refused(void **state)
{
    picture image = {0};
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(load_picture(data_path("absent.png"), &image, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(load_picture(data_folder, &image, &diag), SONDE_EFORMAT);
}

static sonde_err load_and_drop(void *user)
{
    picture image = {0};
    const sonde_err err = load_picture(user, &image, NULL);

    free(image.pixels);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    data_write_png(data_path("f.png"), 3, 4, 4, 0);
    assert_true(data_fail_allocations(load_and_drop, data_path("f.png")) >= 3);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(eight_bit_kinds_are_read),
        cmocka_unit_test(other_depths_become_eight_bit),
        cmocka_unit_test(jpeg_is_read),
        cmocka_unit_test(what_was_written_is_read),
        cmocka_unit_test(every_truncation_is_found),
        cmocka_unit_test(sizes_are_limited),
        cmocka_unit_test(bad_calls_are_refused),
        cmocka_unit_test(every_allocation_may_fail),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
