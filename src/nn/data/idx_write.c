/*
 * idx_write.c - writing IDX arrays: uint8 rows as they are, anything else element by
 * element, most significant byte first.
 */
#include "nn/data/data_output.h"
#include "base/fail.h"

#include <sonde/nn/idx.h>

#include <string.h>

enum { CHUNK = 64 * 1024 };

static unsigned char code_of(sonde_dtype dtype)
{
    static const unsigned char codes[SONDE_DTYPE_COUNT] = {
        [SONDE_U8] = 0x08,  [SONDE_I8] = 0x09,  [SONDE_I16] = 0x0B,
        [SONDE_I32] = 0x0C, [SONDE_F32] = 0x0D, [SONDE_F64] = 0x0E,
    };
    const size_t i = (size_t)dtype;

    return i < SONDE_DTYPE_COUNT ? codes[i] : 0;
}

static sonde_err check(const char *path, const sonde_view *view, sonde_diag *diag)
{
    if (code_of(view->dtype) == 0) {
        return sonde__fail(diag, SONDE_EDTYPE, path,
                           "uint8, int8, int16, int32, float32 or float64", "dtype is %s",
                           sonde_dtype_name(view->dtype));
    }
    if (view->rank < 1) {
        return sonde__fail(diag, SONDE_EINVAL, path, "at least one dimension",
                           "a scalar cannot be written as IDX");
    }
    for (int i = 0; i < view->rank; i++) {
        if (view->shape[i] < 0 || view->shape[i] > (int64_t)UINT32_MAX) {
            return sonde__fail(diag, SONDE_EINVAL, path, "0 to 4294967295",
                               "dimension %d has %lld elements", i,
                               (long long)view->shape[i]);
        }
    }
    return SONDE_OK;
}

static sonde_err write_header(sonde__data_output *output, const sonde_view *view,
                              sonde_diag *diag)
{
    unsigned char header[4 + SONDE_MAX_DIMS * 4] = {0, 0, code_of(view->dtype),
                                                    (unsigned char)view->rank};

    for (int i = 0; i < view->rank; i++) {
        const uint32_t n = (uint32_t)view->shape[i];
        unsigned char *b = header + 4 + i * 4;

        b[0] = (unsigned char)(n >> 24);
        b[1] = (unsigned char)(n >> 16);
        b[2] = (unsigned char)(n >> 8);
        b[3] = (unsigned char)n;
    }
    return sonde__data_output_write(output, header, 4 + (size_t)view->rank * 4, diag);
}

/* Steps a row-major index; false when it has been everywhere. */
static bool step(const sonde_view *view, int64_t *index)
{
    for (int i = view->rank - 1; i >= 0; i--) {
        index[i]++;
        if (index[i] < view->shape[i]) {
            return true;
        }
        index[i] = 0;
    }
    return false;
}

static sonde_err write_elements(sonde__data_output *output, const sonde_view *view,
                                sonde_diag *diag)
{
    const size_t size = sonde_dtype_size(view->dtype);
    unsigned char chunk[CHUNK];
    size_t used = 0;
    int64_t index[SONDE_MAX_DIMS] = {0};
    sonde_err err = SONDE_OK;

    do {
        const unsigned char *element = sonde_view_at(view, index);

        for (size_t i = 0; i < size; i++) {
            chunk[used++] = element[size - 1 - i];
        }
        if (used + sizeof(double) > CHUNK) {
            err = sonde__data_output_write(output, chunk, used, diag);
            used = 0;
        }
    } while (err == SONDE_OK && step(view, index));
    return err == SONDE_OK ? sonde__data_output_write(output, chunk, used, diag) : err;
}

sonde_err sonde_nn_idx_write(const char *path, const sonde_view *view, bool gzip,
                             sonde_diag *diag)
{
    sonde__data_output output;
    sonde_err err = check(path, view, diag);

    if (err == SONDE_OK) {
        err = sonde__data_output_open(&output, path, gzip, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    err = write_header(&output, view, diag);
    if (err == SONDE_OK && sonde_view_count(view) > 0) {
        err = sonde_dtype_size(view->dtype) == 1 && sonde_view_is_contiguous(view)
                  ? sonde__data_output_write(&output, view->data,
                                             (size_t)sonde_view_count(view), diag)
                  : write_elements(&output, view, diag);
    }
    if (err == SONDE_OK) {
        err = sonde__data_output_commit(&output, diag);
    }
    sonde__data_output_close(&output);
    return err;
}
