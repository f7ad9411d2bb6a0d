/*
 * idx.c - IDX arrays, read and written. Elements are swapped in place, so a uint8 array
 * costs only the read.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>

static const struct {
    unsigned char code;
    sonde_dtype dtype;
} dtypes[] = {
    {0x08, SONDE_U8},  {0x09, SONDE_I8},  {0x0B, SONDE_I16},
    {0x0C, SONDE_I32}, {0x0D, SONDE_F32}, {0x0E, SONDE_F64},
};

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

/* === reading ======================================================================== */

static sonde_err fail_short(const sonde__data_input *input, const char *what,
                            sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EFORMAT, input->name, what,
                       "truncated: ends at byte %zu%s", input->size,
                       input->unzipped ? " of its content" : "");
}

static sonde_err read_magic(const sonde__data_input *input, sonde_view *view,
                            sonde_diag *diag)
{
    const unsigned char *magic = input->bytes;

    if (input->size < 4) {
        return fail_short(input, "the header", diag);
    }
    view->rank = magic[3];
    for (size_t i = 0; i < SONDE_COUNT_OF(dtypes); i++) {
        if (magic[0] == 0 && magic[1] == 0 && magic[2] == dtypes[i].code &&
            magic[3] > 0) {
            view->dtype = dtypes[i].dtype;
            return view->rank <= SONDE_MAX_DIMS
                       ? SONDE_OK
                       : sonde__fail(diag, SONDE_EUNSUPPORTED, input->name, "at most 8",
                                     "%d dimensions", view->rank);
        }
    }
    return sonde__fail(diag, SONDE_EFORMAT, input->name,
                       "an IDX file: 00 00, 08 to 0E, number of dimensions",
                       "begins with %02x %02x %02x %02x", magic[0], magic[1], magic[2],
                       magic[3]);
}

/* The bytes of the elements, which must be the rest of the file. */
static sonde_err read_shape(const sonde__data_input *input, sonde_view *view,
                            size_t *bytes, sonde_diag *diag)
{
    const size_t header = 4 + (size_t)view->rank * 4;
    char text[SONDE_MAX_DIMS * 12 + 4];
    /* strides need the product of the sizes even where one of them is 0 */
    size_t span = sonde_dtype_size(view->dtype);
    bool empty = false, fits = true;

    if (input->size < header) {
        return fail_short(input, "the header", diag);
    }
    for (int i = 0; i < view->rank; i++) {
        const unsigned char *b = input->bytes + 4 + i * 4;

        view->shape[i] = (int64_t)((uint32_t)b[0] << 24 | (uint32_t)b[1] << 16 |
                                   (uint32_t)b[2] << 8 | b[3]);
        empty = empty || view->shape[i] == 0;
        fits = fits && sonde__mul(span, (size_t)SONDE_MAX(view->shape[i], 1), &span) &&
               span <= INT64_MAX;
    }
    *bytes = empty ? 0 : span;
    if (!fits || *bytes > input->size - header) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, NULL,
                           "truncated: %zu bytes cannot hold its %s %s", input->size,
                           sonde_shape_text(view->rank, view->shape, text, sizeof text),
                           sonde_dtype_name(view->dtype));
    }
    if (input->size > header + *bytes) {
        return sonde__fail(diag, SONDE_EFORMAT, input->name, "the end of the file",
                           "foreign bytes after the data, from byte %zu%s",
                           header + *bytes, input->unzipped ? " of its content" : "");
    }
    return SONDE_OK;
}

/* Takes the content over. */
static sonde_err read_array(sonde__data_input *input, sonde__data_idx **out,
                            sonde_diag *diag)
{
    sonde_view header = {0};
    size_t bytes = 0;
    sonde__data_idx *array = NULL;
    sonde_err err = SONDE_OK;

    SONDE__TRY_GO(read_magic(input, &header, diag));
    SONDE__TRY_GO(read_shape(input, &header, &bytes, diag));
    array = sonde__calloc(1, sizeof *array);
    if (array == NULL) {
        err = sonde__fail_nomem(diag, "an array");
        goto error;
    }
    array->data = input->bytes;
    memmove(input->bytes, input->bytes + input->size - bytes, bytes); /* aligned */
    swap_elements(array->data, bytes, sonde_dtype_size(header.dtype));
    array->view = sonde_view_of(header.dtype, header.rank, header.shape, array->data);
    *out = array;
    return SONDE_OK;

error:
    sonde__data_input_fini(input);
    return err;
}

sonde_err sonde__data_idx_load(const char *path, sonde__data_idx **out, sonde_diag *diag)
{
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_read(&input, path, false, diag));
    return read_array(&input, out, diag);
}

sonde_err sonde__data_idx_parse(const void *bytes, size_t size, const char *name,
                                sonde__data_idx **out, sonde_diag *diag)
{
    sonde__data_input input;
    SONDE__TRY(sonde__data_input_copy(&input, bytes, size, name, diag));
    return read_array(&input, out, diag);
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

sonde_err sonde__data_idx_write(const char *path, const sonde_view *view, bool gzip,
                                sonde_diag *diag)
{
    SONDE__TRY(check_view(path, view, diag));
    const size_t header = 4 + (size_t)view->rank * 4,
                 size = sonde_dtype_size(view->dtype);
    const size_t bytes = (size_t)sonde_view_count(view) * size;
    unsigned char *block = sonde__malloc_aligned(SONDE__ALIGN, SONDE__ALIGN + bytes);

    if (block == NULL) {
        return sonde__fail_nomem(diag, "an array");
    }
    unsigned char *first = block + SONDE__ALIGN - header; /* of the file */
    sonde_view copy =
        sonde_view_of(view->dtype, view->rank, view->shape, block + SONDE__ALIGN);

    memset(first, 0, 2);
    first[2] = code_of(view->dtype);
    first[3] = (unsigned char)view->rank;
    for (int i = 0; i < view->rank; i++) {
        const uint32_t n = (uint32_t)view->shape[i];

        memcpy(first + 4 + i * 4, &n, sizeof n);
    }
    swap_elements(first + 4, header - 4, sizeof(uint32_t));
    sonde_err err = sonde_view_copy(&copy, view, diag);

    if (err == SONDE_OK) {
        swap_elements(copy.data, bytes, size);
        err = sonde__data_write(path, first, header + bytes, gzip, diag);
    }
    sonde__free(block);
    return err;
}
