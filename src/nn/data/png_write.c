/*
 * png_write.c - an image as a PNG file, row by row, through output.h, so that it appears
 * whole or not at all.
 */
#include "nn/data/data_output.h"
#include "base/fail.h"
#include "base/memory.h"

#include <sonde/nn/image.h>

#include <png.h>
#include <setjmp.h>

typedef struct png_job {
    const sonde_nn_image *image;
    sonde__data_output *output;
    uint8_t *row;
    png_structp png;
    png_infop info;
    sonde_diag *diag;
    sonde_err err;
} png_job;

static void take_bytes(png_structp png, png_bytep bytes, size_t size)
{
    png_job *job = png_get_io_ptr(png);

    job->err = sonde__data_output_write(job->output, bytes, size, job->diag);
    if (job->err != SONDE_OK) {
        png_longjmp(png, 1);
    }
}

static void flush_nothing(png_structp png)
{
    (void)png;
}

static void fail(png_structp png, png_const_charp message)
{
    png_job *job = png_get_error_ptr(png);

    job->err = sonde__fail(job->diag, SONDE_EIO, job->output->file.path, NULL,
                           "cannot write PNG: %s", message);
    png_longjmp(png, 1);
}

static void ignore(png_structp png, png_const_charp message)
{
    (void)png;
    (void)message;
}

static void write_rows(const png_job *job)
{
    const sonde_nn_image *image = job->image;
    const size_t width = (size_t)image->width, channels = (size_t)image->channels;
    const size_t plane = width * (size_t)image->height;

    for (size_t y = 0; y < (size_t)image->height; y++) {
        for (size_t x = 0; x < width; x++) {
            for (size_t c = 0; c < channels; c++) {
                job->row[x * channels + c] = image->pixels[c * plane + y * width + x];
            }
        }
        png_write_row(job->png, job->row);
    }
}

static void run(png_job *job)
{
    if (setjmp(png_jmpbuf(job->png)) != 0) {
        return; /* err is filled */
    }
    png_set_write_fn(job->png, job, take_bytes, flush_nothing);
    png_set_IHDR(job->png, job->info, (png_uint_32)job->image->width,
                 (png_uint_32)job->image->height, 8,
                 job->image->channels == 1 ? PNG_COLOR_TYPE_GRAY : PNG_COLOR_TYPE_RGB,
                 PNG_INTERLACE_NONE, PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
    png_write_info(job->png, job->info);
    write_rows(job);
    png_write_end(job->png, job->info);
}

static sonde_err write_image(png_job *job)
{
    job->png = png_create_write_struct(PNG_LIBPNG_VER_STRING, job, fail, ignore);
    if (job->png != NULL) {
        job->info = png_create_info_struct(job->png);
    }
    if (job->info != NULL) {
        run(job);
    } else {
        job->err = sonde__fail_nomem(job->diag, "PNG encoding");
    }
    png_destroy_write_struct(&job->png, &job->info);
    return job->err;
}

sonde_err sonde_nn_image_write_png(const char *path, const sonde_nn_image *image,
                                   sonde_diag *diag)
{
    sonde__data_output output;
    png_job job = {.image = image, .output = &output, .diag = diag};
    sonde_err err = SONDE_OK;

    if ((image->channels != 1 && image->channels != 3) || image->width < 1 ||
        image->height < 1 || image->pixels == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, path, "1 or 3 channels, at least 1 x 1",
                           "an image of %d channels, %d x %d", image->channels,
                           image->width, image->height);
    }
    err = sonde__data_output_open(&output, path, false, diag);
    if (err != SONDE_OK) {
        return err;
    }
    job.row = sonde__malloc((size_t)image->width * (size_t)image->channels);
    err =
        job.row != NULL ? write_image(&job) : sonde__fail_nomem(diag, "a row of pixels");
    if (err == SONDE_OK) {
        err = sonde__data_output_commit(&output, diag);
    }
    sonde__free(job.row);
    sonde__data_output_close(&output);
    return err;
}
