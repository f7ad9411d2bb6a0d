/*
 * jpeg.c - JPEG to rows of 8 bit grey or RGB, by libjpeg.
 *
 * libjpeg goes on after a truncated scan and fills with grey, telling only by a warning;
 * a picture half grey is no sample, so those warnings are errors here.
 */
#include "nn/data/image.h"
#include "base/fail.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
#include <jerror.h>

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

static void fail(j_common_ptr common)
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

static void warn(j_common_ptr common, int level)
{
    const int code = common->err->msg_code;

    if (level < 0 && (code == JWRN_JPEG_EOF || code == JWRN_HIT_MARKER ||
                      code == JWRN_HUFF_BAD_CODE)) {
        fail(common);
    }
}

static void decode(jpeg_job *job)
{
    struct jpeg_decompress_struct *jpeg = &job->jpeg;

    (void)jpeg_read_header(jpeg, TRUE);
    job->err = sonde__data_image_sides(job->bytes->name, jpeg->image_width,
                                       jpeg->image_height, job->diag);
    if (job->err != SONDE_OK) {
        return;
    }
    if (jpeg->jpeg_color_space == JCS_CMYK || jpeg->jpeg_color_space == JCS_YCCK) {
        job->err = sonde__fail(job->diag, SONDE_EUNSUPPORTED, job->bytes->name,
                               "grey or RGB", "is a CMYK JPEG");
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

static void run(jpeg_job *job)
{
    if (setjmp(job->leave) != 0) {
        return; /* fail has filled err */
    }
    jpeg_create_decompress(&job->jpeg);
    jpeg_mem_src(&job->jpeg, job->bytes->data, job->bytes->size);
    decode(job);
}

sonde_err sonde__data_jpeg_decode(const sonde__data_bytes *bytes,
                                  sonde__data_image_info *info, uint8_t *pixels,
                                  sonde_diag *diag)
{
    jpeg_job job = {.bytes = bytes, .image = info, .pixels = pixels, .diag = diag};

    job.jpeg.err = jpeg_std_error(&job.manager);
    job.manager.error_exit = fail;
    job.manager.emit_message = warn;
    run(&job);
    jpeg_destroy_decompress(&job.jpeg);
    return job.err;
}
