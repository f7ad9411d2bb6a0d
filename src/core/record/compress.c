/*
 * compress.c - compression of values; see compress.h. zstd allocates by itself.
 */
#include "record/compress.h"
#include "base/macros.h"
#include "base/memory.h"

#include <string.h>
#include <zstd.h>

enum {
    LEVEL = 1,
    LEAST = 128, /* bytes of a value that is tried at all */
    TRIAL = 64   /* values of a tensor from one comparison to the next */
};

sonde_err sonde__record_compressor_init(sonde__record_compressor *compressor)
{
    compressor->context = ZSTD_createCCtx();
    return compressor->context != NULL ? SONDE_OK : SONDE_ENOMEM;
}

void sonde__record_compressor_fini(sonde__record_compressor *compressor)
{
    (void)ZSTD_freeCCtx(compressor->context);
    sonde__free(compressor->shuffled);
    *compressor = (sonde__record_compressor){0};
}

size_t sonde__record_compressor_bound(size_t n)
{
    return ZSTD_compressBound(n) + SONDE__ALIGN;
}

void sonde__record_shuffle(const void *source, size_t n, size_t size, void *target)
{
    const unsigned char *const in = source;
    unsigned char *out = target;

    for (size_t b = 0; b < size; b++) {
        for (size_t i = 0; i < n; i++) {
            *out++ = in[i * size + b];
        }
    }
}

/* NULL if memory runs out, or elements have one byte. */
static const void *shuffled(sonde__record_compressor *compressor, const void *bytes,
                            size_t n, size_t size)
{
    if (size == 1) {
        return NULL;
    }
    if (compressor->shuffled_size < n) {
        unsigned char *const larger = sonde__malloc(n);

        if (larger == NULL) {
            return NULL;
        }
        sonde__free(compressor->shuffled);
        compressor->shuffled = larger;
        compressor->shuffled_size = n;
    }
    sonde__record_shuffle(bytes, n / size, size, compressor->shuffled);
    return compressor->shuffled;
}

/* One frame of the planes of shuffled bytes, each in blocks of its own: they have little
 * in common, and a block has one table of codes. Returns its bytes; SIZE_MAX on failure.
 */
static size_t pack_planes(sonde__record_compressor *compressor, const void *bytes,
                          size_t n, size_t size, sonde__record_scratch *scratch)
{
    ZSTD_CCtx *const context = compressor->context;
    ZSTD_outBuffer out = {scratch->start + scratch->used, scratch->size - scratch->used,
                          0};
    ZSTD_inBuffer in = {bytes, 0, 0};

    (void)ZSTD_CCtx_reset(context, ZSTD_reset_session_only);
    (void)ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, LEVEL);
    (void)ZSTD_CCtx_setPledgedSrcSize(context, n);
    for (size_t plane = 1; plane <= size; plane++) {
        const ZSTD_EndDirective end = plane < size ? ZSTD_e_flush : ZSTD_e_end;

        in.size = n / size * plane;
        if (ZSTD_compressStream2(context, &out, &in, end) != 0) {
            return SIZE_MAX; /* an error, or more bytes than there were */
        }
    }
    return out.pos;
}

/* Packs n bytes at the end of scratch; returns the bytes taken, SIZE_MAX on failure. */
static size_t pack(sonde__record_compressor *compressor, sonde__record_packing way,
                   const void *bytes, size_t n, size_t size,
                   sonde__record_scratch *scratch)
{
    if (way == SONDE__PACKED_ZSTD_SHUFFLE) {
        const void *const moved = shuffled(compressor, bytes, n, size);

        return moved != NULL ? pack_planes(compressor, moved, n, size, scratch)
                             : SIZE_MAX;
    }
    const size_t got =
        ZSTD_compressCCtx(compressor->context, scratch->start + scratch->used,
                          scratch->size - scratch->used, bytes, n, LEVEL);
    return ZSTD_isError(got) ? SIZE_MAX : got;
}

/* The best packing for values like these n bytes. */
static sonde__record_packing compare(sonde__record_compressor *compressor,
                                     const void *bytes, size_t n, size_t size,
                                     sonde__record_scratch *scratch)
{
    const size_t plain = pack(compressor, SONDE__PACKED_ZSTD, bytes, n, size, scratch);
    const size_t moved =
        pack(compressor, SONDE__PACKED_ZSTD_SHUFFLE, bytes, n, size, scratch);

    if (SONDE_MIN(plain, moved) > n - n / 16) {
        return SONDE__PACKED_NOT;
    }
    return moved < plain ? SONDE__PACKED_ZSTD_SHUFFLE : SONDE__PACKED_ZSTD;
}

void sonde__record_compress(sonde__record_compressor *compressor,
                            sonde__record_tensor *tensor, sonde__record_scratch *scratch,
                            const void *bytes, sonde__record_index_line *line,
                            const void **packed)
{
    const size_t n = (size_t)line->bytes, size = sonde_dtype_size(line->dtype);

    *packed = NULL;
    if (n < LEAST) {
        return;
    }
    if (tensor->until_trial == 0) {
        tensor->packing = compare(compressor, bytes, n, size, scratch);
        tensor->until_trial = TRIAL;
    }
    tensor->until_trial--;
    if (tensor->packing == SONDE__PACKED_NOT) {
        return;
    }
    const size_t got = pack(compressor, tensor->packing, bytes, n, size, scratch);
    if (got >= n) {
        return;
    }
    *packed = scratch->start + scratch->used;
    scratch->used += got;
    line->bytes = got;
    line->packing = tensor->packing;
}
