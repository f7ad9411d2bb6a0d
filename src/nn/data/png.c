/*
 * png.c - PNG to rows of 8 bit grey or RGB, by libpng.
 *
 * libpng leaves by longjmp, so everything that outlives a jump sits in one struct behind
 * a pointer that never changes.
 */
#include "nn/data/image.h"
#include "base/fail.h"

#include <png.h>
#include <setjmp.h>
#include <string.h>

typedef struct png_job {
    const sonde__data_bytes *bytes;
    size_t at;
    png_structp png;
    png_infop info;
    sonde__data_image_info *image;
    uint8_t *pixels; /* NULL: header only */
    sonde_diag *diag;
    sonde_err err;
} png_job;

static void give_bytes(png_structp png, png_bytep out, size_t size)
{
    png_job *job = png_get_io_ptr(png);

    if (size > job->bytes->size - job->at) {
        png_error(png, "the file ends too early");
    }
    memcpy(out, job->bytes->data + job->at, size);
    job->at += size;
}

static void fail(png_structp png, png_const_charp message)
{
    png_job *job = png_get_error_ptr(png);

    job->err = sonde__fail(job->diag, SONDE_EFORMAT, job->bytes->name, NULL,
                           "corrupt PNG at byte %zu of %zu: %s", job->at,
                           job->bytes->size, message);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

/* Asks libpng for 8 bit grey or RGB whatever the file holds. */
static void ask_for_bytes(png_job *job)
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

static void decode(png_job *job)
{
    const size_t width = png_get_image_width(job->png, job->info);
    const size_t height = png_get_image_height(job->png, job->info);
    int passes = 0;

    job->err = sonde__data_image_sides(job->bytes->name, width, height, job->diag);
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
    passes = png_set_interlace_handling(job->png);
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

static void run(png_job *job)
{
    if (setjmp(png_jmpbuf(job->png)) != 0) {
        return; /* fail has filled err */
    }
    png_set_user_limits(job->png, PNG_UINT_31_MAX, PNG_UINT_31_MAX);
    png_set_read_fn(job->png, job, give_bytes);
    png_read_info(job->png, job->info);
    decode(job);
}

sonde_err sonde__data_png_decode(const sonde__data_bytes *bytes,
                                 sonde__data_image_info *info, uint8_t *pixels,
                                 sonde_diag *diag)
{
    png_job job = {.bytes = bytes, .image = info, .pixels = pixels, .diag = diag};

    job.png = png_create_read_struct(PNG_LIBPNG_VER_STRING, &job, fail, ignore);
    if (job.png != NULL) {
        job.info = png_create_info_struct(job.png);
    }
    if (job.info != NULL) {
        run(&job);
    } else {
        job.err = sonde__fail_nomem(diag, "PNG decoding");
    }
    png_destroy_read_struct(&job.png, &job.info, NULL);
    return job.err;
}
