/*
 * image.c - images: decoded by libpng and libjpeg, loaded from files, written as PNG.
 *
 * libpng and libjpeg leave by longjmp, so everything that outlives a jump is in one
 * struct behind a pointer that never changes. libjpeg fills a truncated scan with gray
 * and only warns; a half-gray image is no sample, so those warnings are errors here.
 */
#include "nn/data/pixels.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/whole_file.h"

#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>
#include <jerror.h> /* needs <jpeglib.h> */
#include <png.h>

enum { MAGIC = 8, WHOLE_MAX = 1 << 27 }; /* pixels: 11585 squared */

/* SONDE_EFORMAT, SONDE_EUNSUPPORTED: sides outside the limits. */
static sonde_err check_sides(const char *name, unsigned long width, unsigned long height,
                             sonde_diag *diag)
{
    if (width == 0 || height == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, name, NULL,
                           "an image of no size: %lu x %lu", width, height);
    }
    if (width > SONDE__DATA_SIDE_MAX || height > SONDE__DATA_SIDE_MAX ||
        width * height > WHOLE_MAX) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name,
                           "sides up to 16384, up to 134217728 pixels",
                           "image is %lu x %lu", width, height);
    }
    return SONDE_OK;
}

/* === JPEG =========================================================================== */

typedef struct jpeg_job {
    struct jpeg_error_mgr manager; /* first: libjpeg hands back its address */
    struct jpeg_decompress_struct jpeg;
    const sonde__data_bytes *bytes;
    sonde__data_image_info *image;
    uint8_t *pixels; /* NULL: header only */
    sonde_diag *diag;
    sonde_err err;
    jmp_buf leave;
} jpeg_job;

static void fail_jpeg(j_common_ptr common)
{
    jpeg_job *job = (jpeg_job *)(void *)common->err;
    char message[JMSG_LENGTH_MAX];

    common->err->format_message(common, message);
    job->err =
        common->err->msg_code == JERR_OUT_OF_MEMORY
            ? sonde__fail_nomem(job->diag, "JPEG decoding")
            : sonde__fail(job->diag, SONDE_EFORMAT, job->bytes->name, NULL,
                          "corrupt JPEG of %zu bytes: %s", job->bytes->size, message);
    longjmp(job->leave, 1);
}

static void warn_jpeg(j_common_ptr common, int level)
{
    const int code = common->err->msg_code;

    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE)) {
        fail_jpeg(common);
    }
}

static void decode_jpeg_rows(jpeg_job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;

    (void)jpeg_read_header(jpeg, TRUE);
    job->err =
        check_sides(job->bytes->name, jpeg->image_width, jpeg->image_height, job->diag);
    if (job->err != SONDE_OK) {
        return;
    }
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK) {
        job->err = sonde__fail(job->diag, SONDE_EUNSUPPORTED, job->bytes->name,
                               "gray or RGB", "is a CMYK JPEG");
        return;
    }
    job->image->channels = jpeg->jpeg_color_space == JCS_GRAYSCALE ? 1 : 3;
    job->image->width = (int)jpeg->image_width;
    job->image->height = (int)jpeg->image_height;
    if (job->pixels == NULL) {
        return;
    }
    jpeg->out_color_space = job->image->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    (void)jpeg_start_decompress(jpeg);
    while (jpeg->output_scanline < jpeg->output_height) {
        JSAMPROW row = job->pixels + (size_t)jpeg->output_scanline * jpeg->output_width *
                                         (size_t)jpeg->output_components;

        (void)jpeg_read_scanlines(jpeg, &row, 1);
    }
    (void)jpeg_finish_decompress(jpeg);
}

static void run_jpeg(jpeg_job *job)
{
    if (setjmp(job->leave) != 0) {
        return; /* fail_jpeg has filled err */
    }
    jpeg_create_decompress(&job->jpeg);
    jpeg_mem_src(&job->jpeg, job->bytes->data, job->bytes->size);
    decode_jpeg_rows(job);
}

static sonde_err decode_jpeg(const sonde__data_bytes *bytes, sonde__data_image_info *info,
                             uint8_t *pixels, sonde_diag *diag)
{
    jpeg_job job = {.bytes = bytes, .image = info, .pixels = pixels, .diag = diag};

    job.jpeg.err = jpeg_std_error(&job.manager);
    job.manager.error_exit = fail_jpeg;
    job.manager.emit_message = warn_jpeg;
    run_jpeg(&job);
    jpeg_destroy_decompress(&job.jpeg);
    return job.err;
}

/* === PNG ============================================================================ */

typedef struct png_reading {
    const sonde__data_bytes *bytes;
    size_t offset;
    png_structp png;
    png_infop info;
    sonde__data_image_info *image;
    uint8_t *pixels; /* NULL: header only */
    sonde_diag *diag;
    sonde_err err;
} png_reading;

static void give_bytes(png_structp png, png_bytep out, size_t size)
{
    png_reading *job = png_get_io_ptr(png);

    if (size > job->bytes->size - job->offset) {
        png_error(png, "the file ends too early");
    }
    memcpy(out, job->bytes->data + job->offset, size);
    job->offset += size;
}

static void fail_reading(png_structp png, png_const_charp message)
{
    png_reading *job = png_get_error_ptr(png);

    job->err = sonde__fail(job->diag, SONDE_EFORMAT, job->bytes->name, NULL,
                           "corrupt PNG at byte %zu of %zu: %s", job->offset,
                           job->bytes->size, message);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* Asks libpng for 8 bit gray or RGB whatever the file holds. */
static void ask_for_bytes(png_reading *job)
{
    const png_byte kind = png_get_color_type(job->png, job->info);

    if (kind == PNG_COLOR_TYPE_PALETTE) {
        png_set_palette_to_rgb(job->png);
    }
    if (kind == PNG_COLOR_TYPE_GRAY) {
        png_set_expand_gray_1_2_4_to_8(job->png);
    }
    png_set_scale_16(job->png);
    png_set_strip_alpha(job->png);
    job->image->channels =
        kind == PNG_COLOR_TYPE_GRAY || kind == PNG_COLOR_TYPE_GRAY_ALPHA ? 1 : 3;
}

static void decode_png_rows(png_reading *job)
{
    const size_t width = png_get_image_width(job->png, job->info);
    const size_t height = png_get_image_height(job->png, job->info);

    job->err = check_sides(job->bytes->name, width, height, job->diag);
    if (job->err != SONDE_OK) {
        return;
    }
    job->image->width = (int)width;
    job->image->height = (int)height;
    /* deflate packs at most about 1032 : 1; a header alone must not get us memory */
    if (png_get_rowbytes(job->png, job->info) * height / 1032 > job->bytes->size) {
        png_error(job->png, "the file is too short for its size in pixels");
    }
    ask_for_bytes(job);
    if (job->pixels == NULL) {
        return;
    }
    const int passes = png_set_interlace_handling(job->png);
    png_read_update_info(job->png, job->info);
    if (png_get_rowbytes(job->png, job->info) != width * (size_t)job->image->channels) {
        png_error(job->png, "unexpected row size");
    }
    for (int pass = 0; pass < passes; pass++) {
        for (size_t y = 0; y < height; y++) {
            png_read_row(job->png, job->pixels + y * width * (size_t)job->image->channels,
                         NULL);
        }
    }
    png_read_end(job->png, NULL);
}

static void run_reading(png_reading *job)
{
    if (setjmp(png_jmpbuf(job->png)) != 0) {
        return; /* fail_reading has filled err */
    }
    png_set_user_limits(job->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_read_fn(job->png, job, give_bytes);
    png_read_info(job->png, job->info);
    decode_png_rows(job);
}

static sonde_err decode_png(const sonde__data_bytes *bytes, sonde__data_image_info *info,
                            uint8_t *pixels, sonde_diag *diag)
{
    png_reading job = {.bytes = bytes, .image = info, .pixels = pixels, .diag = diag};

    job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, fail_reading, ignore);
    if (job.png != NULL) {
        job.info = png_create_info_struct(job.png);
    }
    if (job.info != NULL) {
        run_reading(&job);
    } else {
        job.err = sonde__fail_nomem(diag, "PNG decoding");
    }
    png_destroy_read_struct(&job.png, &job.info, NULL);
    return job.err;
}

/* === images ========================================================================= */

/* pixels NULL: the header only. */
static sonde_err decode(const sonde__data_bytes *bytes, sonde__data_image_info *info,
                        uint8_t *pixels, sonde_diag *diag)
{
    static const unsigned char png[MAGIC] = {0x89, 'P', 'N', 'G', '\r', '\n', 0x1A, '\n'};
    unsigned char first[MAGIC] = {0};

    if (bytes->size > 0) {
        memcpy(first, bytes->data, SONDE_MIN(bytes->size, (size_t)MAGIC));
    }
    if (memcmp(first, png, MAGIC) == 0) {
        return decode_png(bytes, info, pixels, diag);
    }
    if (first[0] == 0xFF && first[1] == 0xD8 && first[2] == 0xFF) {
        return decode_jpeg(bytes, info, pixels, diag);
    }
    if (bytes->size == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, bytes->name, "a PNG or JPEG image",
                           "is empty");
    }
    return sonde__fail(diag, SONDE_EFORMAT, bytes->name, "a PNG or JPEG image",
                       "begins with %02x %02x %02x %02x, %zu bytes", first[0], first[1],
                       first[2], first[3], bytes->size);
}

sonde_err sonde__data_image_probe(const sonde__data_bytes *bytes,
                                  sonde__data_image_info *info, sonde_diag *diag)
{
    return decode(bytes, info, NULL, diag);
}

size_t sonde__data_image_size(const sonde__data_image_info *info)
{
    return (size_t)info->channels * (size_t)info->height * (size_t)info->width;
}

sonde_err sonde__data_image_read(const sonde__data_bytes *bytes,
                                 const sonde__data_image_info *info, uint8_t *pixels,
                                 sonde_diag *diag)
{
    sonde__data_image_info now = {0};
    SONDE__TRY(decode(bytes, &now, NULL, diag));
    if (now.channels != info->channels || now.height != info->height ||
        now.width != info->width) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "%d x %d, %d channels", info->width,
                       info->height, info->channels);
        return sonde__fail(diag, SONDE_EFORMAT, bytes->name, expected,
                           "has changed to %d x %d, %d channels", now.width, now.height,
                           now.channels);
    }
    return decode(bytes, &now, pixels, diag);
}

void sonde__data_image_planar(const sonde__data_image_info *info, const uint8_t *pixels,
                              uint8_t *out)
{
    const size_t plane = (size_t)info->height * (size_t)info->width;
    const size_t channels = (size_t)info->channels;

    if (channels == 1) {
        memcpy(out, pixels, plane);
        return;
    }
    for (size_t i = 0; i < plane; i++) {
        for (size_t c = 0; c < channels; c++) {
            out[c * plane + i] = pixels[i * channels + c];
        }
    }
}

/* --- files -------------------------------------------------------------------------- */

sonde_err sonde__data_file_size(const char *path, size_t *size, sonde_diag *diag)
{
    struct stat status;

    if (stat(path, &status) != 0) {
        return sonde__fail_errno(diag, path, "cannot open");
    }
    if (!S_ISREG(status.st_mode)) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a file", "%s",
                           S_ISDIR(status.st_mode) ? "is a folder" : "is not a file");
    }
    *size = (size_t)status.st_size;
    return SONDE_OK;
}

sonde_err sonde__data_file_read(const char *path, void *room, size_t capacity,
                                size_t *size, sonde_diag *diag)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    char *bytes = room;
    size_t done = 0;
    ssize_t got = 1;

    if (fd < 0) {
        return sonde__fail_errno(diag, path, "cannot open");
    }
    while (done < capacity && got > 0) {
        do {
            got = read(fd, bytes + done, capacity - done);
        } while (got < 0 && errno == EINTR);
        done += got > 0 ? (size_t)got : 0;
    }
    if (got < 0) {
        const sonde_err err = sonde__fail_errno(diag, path, "cannot read");

        (void)close(fd);
        return err;
    }
    (void)close(fd);
    *size = done;
    return SONDE_OK;
}
