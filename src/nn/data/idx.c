/*
 * idx.c - IDX arrays, read and written.
 *
 * Reading takes one pass: header, one allocation, elements, end. Elements are swapped in
 * place, so a uint8 array costs only the read. Writing copies contiguous uint8 elements
 * as they are, and all others one by one, most significant byte first.
 */
#include "nn/data/idx.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/data_output.h"
#include "nn/data/input.h"

#include <inttypes.h>
#include <string.h>

/* === reading ======================================================================== */

typedef struct idx_dtype {
    unsigned char code;
    sonde_dtype dtype;
} idx_dtype;

static const idx_dtype dtypes[] = {
    {0x08, SONDE_U8},  {0x09, SONDE_I8},  {0x0B, SONDE_I16},
    {0x0C, SONDE_I32}, {0x0D, SONDE_F32}, {0x0E, SONDE_F64},
};

static sonde_err read_magic(sonde__data_input *input, sonde_view *view, sonde_diag *diag)
{
    unsigned char magic[4];
    const sonde_err err =
        sonde__data_input_read(input, magic, sizeof magic, "the header", diag);
    const idx_dtype *found = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(dtypes); i++) {
        if (magic[0] == 0 && magic[1] == 0 && magic[2] == dtypes[i].code) {
            found = &dtypes[i];
        }
    }
    if (found == NULL || magic[3] == 0) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name,
                           "an IDX file: 00 00, 08 to 0E, number of dimensions",
                           "begins with %02x %02x %02x %02x", magic[0], magic[1],
                           magic[2], magic[3]);
    }
    if (magic[3] > SONDE_MAX_DIMS) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, input->name, "at most 8",
                           "%d dimensions", magic[3]);
    }
    view->dtype = found->dtype;
    view->rank = magic[3];
    return SONDE_OK;
}

static sonde_err read_shape(sonde__data_input *input, sonde_view *view, size_t *bytes,
                            sonde_diag *diag)
{
    unsigned char sizes[SONDE_MAX_DIMS * 4];
    char text[SONDE_MAX_DIMS * 12 + 4];
    /* strides need the product of the sizes even where one of them is 0 */
    size_t span = sonde_dtype_size(view->dtype);
    bool empty = false;
    const sonde_err err =
        sonde__data_input_read(input, sizes, (size_t)view->rank * 4, "the header", diag);
    bool fits = true;

    if (err != SONDE_OK) {
        return err;
    }
    for (int i = 0; i < view->rank; i++) {
        const unsigned char *b = sizes + i * 4;

        view->shape[i] = (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 |
                                   (uint32_t)b[2] << 8 | b[3]);
        empty = empty || view->shape[i] == 0;
        fits = fits && sonde__mul(span, (size_t)SONDE_MAX(view->shape[i], 1), &span) &&
               span <= INT64_MAX;
    }
    if (!fits || !sonde__data_input_may_hold(input, empty ? 0 : span)) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, NULL,
                           "truncated: %" PRIu64 " bytes cannot hold its %s %s",
                           input->size,
                           sonde_shape_text(view->rank, view->shape, text, sizeof text),
                           sonde_dtype_name(view->dtype));
    }
    *bytes = empty ? 0 : span;
    return SONDE_OK;
}

static void swap_elements(unsigned char *data, size_t bytes, size_t size)
{
    for (size_t at = 0; size > 1 && at < bytes; at += size) {
        for (size_t i = 0; i < size / 2; i++) {
            const unsigned char byte = data[at + i];

            data[at + i] = data[at + size - 1 - i];
            data[at + size - 1 - i] = byte;
        }
    }
}

static sonde_err read_array(sonde__data_input *input, sonde__data_idx *array,
                            sonde_diag *diag)
{
    sonde_view header = {0};
    size_t bytes = 0;
    SONDE__TRY(read_magic(input, &header, diag));
    SONDE__TRY(read_shape(input, &header, &bytes, diag));
    array->data = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    if (array->data == NULL) {
        return sonde__fail(diag, SONDE_ENOMEM, input->name, NULL,
                           "out of memory for %zu bytes", bytes);
    }
    SONDE__TRY(sonde__data_input_read(input, array->data, bytes, "the data", diag));
    SONDE__TRY(sonde__data_input_at_end(input, diag));
    swap_elements(array->data, bytes, sonde_dtype_size(header.dtype));
    array->view = sonde_view_of(header.dtype, header.rank, header.shape, array->data);
    return SONDE_OK;
}

static sonde_err load(sonde__data_input *input, sonde__data_idx **out, sonde_diag *diag)
{
    sonde__data_idx *array = sonde__calloc(1, sizeof *array);
    sonde_err err = array != NULL ? read_array(input, array, diag)
                                  : sonde__fail_nomem(diag, "an array");

    sonde__data_input_close(input);
    if (err != SONDE_OK) {
        sonde__data_idx_destroy(array);
        return err;
    }
    *out = array;
    return SONDE_OK;
}

sonde_err sonde__data_idx_load(const char *path, sonde__data_idx **out, sonde_diag *diag)
{
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_open(&input, path, diag));
    return load(&input, out, diag);
}

sonde_err sonde__data_idx_parse(const void *bytes, size_t size, const char *name,
                                sonde__data_idx **out, sonde_diag *diag)
{
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_of_memory(&input, bytes, size, name, diag));
    return load(&input, out, diag);
}

void sonde__data_idx_destroy(sonde__data_idx *array)
{
    if (array != NULL) {
        sonde__free(array->data);
        sonde__free(array);
    }
}

const sonde_view *sonde__data_idx_view(const sonde__data_idx *array)
{
    return &array->view;
}

void *sonde__data_idx_take(sonde__data_idx *array)
{
    void *data = array->data;

    array->data = NULL;
    return data;
}

/* === writing ======================================================================== */

enum { CHUNK = 64 * 1024 };

/* The code of a dtype in the file; 0: none. */
static unsigned char code_of(sonde_dtype dtype)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(dtypes); i++) {
        if (dtypes[i].dtype == dtype) {
            return dtypes[i].code;
        }
    }
    return 0;
}

static sonde_err check_view(const char *path, const sonde_view *view, sonde_diag *diag)
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

/* Advances a row-major index; false after the last element. */
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

    do {
        const unsigned char *element = sonde_view_at(view, index);

        for (size_t i = 0; i < size; i++) {
            chunk[used++] = element[size - 1 - i];
        }
        if (used + sizeof(double) > CHUNK) {
            SONDE__TRY(sonde__data_output_write(output, chunk, used, diag));
            used = 0;
        }
    } while (step(view, index));
    return sonde__data_output_write(output, chunk, used, diag);
}

sonde_err sonde__data_idx_write(const char *path, const sonde_view *view, bool gzip,
                                sonde_diag *diag)
{
    sonde__data_output output;
    sonde_err err = check_view(path, view, diag);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__data_output_open(&output, path, gzip, diag));
    SONDE__TRY_DONE(write_header(&output, view, diag));
    if (sonde_view_count(view) > 0) {
        err = sonde_dtype_size(view->dtype) == 1 && sonde_view_is_contiguous(view)
                  ? sonde__data_output_write(&output, view->data,
                                             (size_t)sonde_view_count(view), diag)
                  : write_elements(&output, view, diag);
    }
    if (err != SONDE_OK) {
        goto done;
    }
    err = sonde__data_output_commit(&output, diag);

done:
    sonde__data_output_close(&output);
    return err;
}
