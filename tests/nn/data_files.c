/* data_files.c - the helpers that data_files.h declares. */
#include "nn/data_files.h"

#include <png.h>

char data_folder[DATA_PATH - 128];

int data_folder_make(void **state)
{
    (void)state;
    (void)snprintf(data_folder, sizeof data_folder, "/tmp/sonde-test-data-XXXXXX");
    return mkdtemp(data_folder) == NULL ? -1 : 0;
}

int data_folder_remove(void **state)
{
    char command[DATA_PATH];

    (void)state;
    (void)snprintf(command, sizeof command, "rm -rf '%s'", data_folder);
    return system(command) == 0 ? 0 : -1;
}

char *data_path(const char *name)
{
    static char paths[4][DATA_PATH];
    static int turn;
    char *path = paths[turn++ % 4];

    (void)snprintf(path, DATA_PATH, "%s/%s", data_folder, name);
    return path;
}

void data_write(const char *path, const void *bytes, size_t size)
{
    FILE *file = fopen(path, "wb");

    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

unsigned char *data_read(const char *path, size_t *size)
{
    FILE *file = fopen(path, "rb");
    unsigned char *bytes = NULL;
    long length = 0;

    assert_non_null(file);
    assert_int_equal(fseek(file, 0, SEEK_END), 0);
    length = ftell(file);
    rewind(file);
    bytes = malloc((size_t)length + 1);
    assert_non_null(bytes);
    assert_int_equal(fread(bytes, 1, (size_t)length, file), length);
    assert_int_equal(fclose(file), 0);
    *size = (size_t)length;
    return bytes;
}

void data_write_images(const char *path, int64_t count, bool gzip)
{
    const int64_t shape[3] = {count, 28, 28};
    uint8_t *pixels = calloc((size_t)count, 784);
    const sonde_view view = sonde_view_of(SONDE_U8, 3, shape, pixels);

    assert_non_null(pixels);
    for (int64_t i = 0; i < count * 784; i++) {
        pixels[i] = (uint8_t)(i * 31 + i / 784 * 7);
    }
    assert_int_equal(sonde__data_idx_write(path, &view, gzip, NULL), SONDE_OK);
    free(pixels);
}

void data_write_labels(const char *path, int64_t count, int classes, bool gzip)
{
    uint8_t *labels = calloc((size_t)count, 1);
    const sonde_view view = sonde_view_of(SONDE_U8, 1, &count, labels);

    assert_non_null(labels);
    for (int64_t i = 0; i < count; i++) {
        labels[i] = (uint8_t)(i % classes);
    }
    assert_int_equal(sonde__data_idx_write(path, &view, gzip, NULL), SONDE_OK);
    free(labels);
}

void data_write_png(const char *path, int channels, int height, int width, int base)
{
    uint8_t *rows = calloc((size_t)(channels * height), (size_t)width);
    png_image png = {.version = PNG_IMAGE_VERSION,
                     .width = (png_uint_32)width,
                     .height = (png_uint_32)height,
                     .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};

    assert_non_null(rows);
    for (int i = 0; i < channels * height * width; i++) {
        const int place = i / channels;

        rows[i] = (uint8_t)(base + i % channels + place / width + place % width);
    }
    assert_int_not_equal(png_image_write_to_file(&png, path, 0, rows, 0, NULL), 0);
    free(rows);
}

int data_fail_allocations(sonde_err (*attempt)(void *user), void *user)
{
    for (int n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin((size_t)n);
        err = attempt(user);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            return n;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
}
