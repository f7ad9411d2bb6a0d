/*
 * record_tensors.c - ids and names in a worker's files; the lines of its catalogue; how
 * values are compressed, and the digest of what a program declared.
 */
#include "record/record_tensors.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/macros.h"
#include "base/cpu.h"
#include <sonde/json.h>
#include <sonde/log.h>
#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <zstd.h>
#include <stddef.h>
#include <stdint.h>

void sonde__record_tensors_init(sonde__record_tensors *tensors,
                                sonde__record_backend *backend, const char *folder)
{
    *tensors = (sonde__record_tensors){0};
    sonde__names_init(&tensors->names);
    sonde__record_stream_init_lines(&tensors->catalogue, backend, folder,
                                    SONDE__CATALOGUE_FILE);
}

void sonde__record_tensors_fini(sonde__record_tensors *tensors)
{
    sonde__names_fini(&tensors->names);
    sonde__free(tensors->tensors);
    sonde__free(tensors->map);
    sonde_text_fini(&tensors->lines);
    sonde__record_stream_fini(&tensors->catalogue);
}

/* A name as it is in JSON, without quotes: invalid UTF-8 then reads back the same. The
 * caller frees it; NULL if memory runs out. */
static char *escape(const char *name)
{
    sonde_text escaped = {0};

    sonde_json_escape(&escaped, name);
    if (escaped.failed) {
        sonde_text_fini(&escaped);
    }
    return escaped.data;
}

/* A new name; false if memory runs out. */
static bool add_name(sonde__record_tensors *tensors, const char *escaped)
{
    const size_t id = tensors->names.count;

    if (!sonde__reserve(&tensors->tensors, &tensors->capacity, id + 1,
                        sizeof *tensors->tensors)) {
        return false;
    }
    tensors->tensors[id] = (sonde__record_tensor){0};
    return sonde__names_intern(&tensors->names, escaped) != SONDE__NO_NAME;
}

/* --- lines ------------------------------------------------------------------------ */

/* same_as: the id in the file of the original of an alias; else SONDE_NO_TENSOR. */
static void print_line(sonde_text *text, const sonde__record_tensor_message *message,
                       uint32_t id, uint32_t same_as)
{
    const char *const name = message->text, *const module = name + strlen(name) + 1,
                      *const op = module + strlen(module) + 1,
                      *const note = op + strlen(op) + 1;
    const char *collection = note + strlen(note) + 1;
    sonde_json json = {.text = text};
    const size_t begin = text->length;

    sonde_json_object(&json, NULL);
    sonde_json_uint(&json, "id", id);
    sonde_json_string(&json, "name", name);
    sonde_json_string(&json, "role", sonde_role_name(message->role));
    sonde_json_string(&json, "module", module);
    sonde_json_string(&json, "op", op);
    sonde_json_string(&json, "pass", sonde_pass_name(message->pass));
    sonde_json_string(&json, "dtype", sonde_dtype_name(message->dtype));
    sonde_json_list(&json, "shape");
    for (int d = 0; d < message->rank; d++) {
        sonde_json_int(&json, NULL, message->shape[d]);
    }
    sonde_json_end(&json);
    if (same_as != SONDE_NO_TENSOR) {
        sonde_json_uint(&json, "same_as", same_as);
    }
    sonde_json_list(&json, "collections");
    for (uint32_t i = 0; i < message->collections; i++) {
        sonde_json_string(&json, NULL, collection);
        collection += strlen(collection) + 1;
    }
    sonde_json_end(&json);
    sonde_json_string(&json, "note", note);
    sonde_json_end(&json);
    sonde_text_add(text, "\n");
    if (sonde_text_reserve(text, text->length + SONDE__SEAL) == SONDE_OK &&
        !text->failed) {
        text->length =
            begin + sonde__record_seal(text->data + begin, text->length - begin);
    }
}

/* Room in the map for the producer's id. */
static bool reserve_map(sonde__record_tensors *tensors, uint32_t id)
{
    if (!sonde__reserve(&tensors->map, &tensors->map_capacity, (size_t)id + 1,
                        sizeof *tensors->map)) {
        return false;
    }
    while (tensors->mapped <= id) {
        tensors->map[tensors->mapped++] = SONDE_NO_TENSOR;
    }
    return true;
}

/* Adds the line of a new tensor; false, with nothing changed, if memory runs out. */
static bool add_tensor(sonde__record_tensors *tensors,
                       const sonde__record_tensor_message *message, const char *escaped)
{
    const size_t used = tensors->lines.length;
    const uint32_t id = (uint32_t)tensors->names.count;
    const uint32_t same_as = message->same_as != message->id
                                 ? sonde__record_tensors_find(tensors, message->same_as)
                                 : SONDE_NO_TENSOR;
    size_t length = 0;

    print_line(&tensors->lines, message, id, same_as);
    length = tensors->lines.length - used;
    if (tensors->lines.failed) {
        goto nomem;
    }
    if (length > SONDE__MOST_LINE || strlen(message->text) > SONDE__MOST_NAME) {
        sonde_log(SONDE_LOG_ERROR, "record",
                  "tensor '%.100s' is not recorded: a name of %zu bytes (at most %d), a "
                  "line of %zu in the catalogue (at most %d)",
                  message->text, strlen(message->text), (int)SONDE__MOST_NAME, length,
                  (int)SONDE__MOST_LINE);
        tensors->lines.length = used;
        return true;
    }
    /* Reserved first, so that the two last steps cannot fail one without the other. */
    if (sonde_text_reserve(&tensors->catalogue.waiting,
                           tensors->catalogue.waiting.length + length) != SONDE_OK ||
        !add_name(tensors, escaped)) {
        goto nomem;
    }
    (void)sonde__record_stream_add(&tensors->catalogue, tensors->lines.data + used,
                                   length);
    tensors->map[message->id] = id;
    return true;

nomem:
    tensors->lines.failed = false;
    tensors->lines.length = used;
    return false;
}

bool sonde__record_tensors_map(sonde__record_tensors *tensors, uint32_t id,
                               uint32_t value)
{
    if (!reserve_map(tensors, id)) {
        return false;
    }
    tensors->map[id] = value;
    return true;
}

int sonde__record_tensors_add(sonde__record_tensors *tensors,
                              const sonde__record_tensor_message *message)
{
    char *const escaped = escape(message->text);
    uint32_t id = SONDE__NO_NAME;
    bool good = escaped != NULL && reserve_map(tensors, message->id);

    if (good) {
        id = sonde__names_find(&tensors->names, escaped);
    }
    if (id != SONDE__NO_NAME) { /* of the resumed run */
        tensors->map[message->id] = id;
    } else if (good) {
        good = add_tensor(tensors, message, escaped);
    }
    sonde__free(escaped);
    return good ? 0 : ENOMEM;
}

void sonde__record_tensors_abandon(sonde__record_tensors *tensors)
{
    sonde__record_stream_abandon(&tensors->catalogue);
    tensors->catalogue.end = 0;
    tensors->catalogue.waiting.length = 0;
    sonde_text_put(&tensors->catalogue.waiting, tensors->lines.data,
                   tensors->lines.length);
    tensors->catalogue.waiting.failed = false;
}

/* --- a resumed run ---------------------------------------------------------------- */

static sonde_err restore_line(sonde__record_tensors *tensors, const char *line,
                              size_t length, const char *where, sonde_diag *diag)
{
    const uint32_t id = (uint32_t)tensors->names.count;
    bool no_memory = false;
    json_t *object =
        sonde__json_read(line, length, JSON_REJECT_DUPLICATES, NULL, &no_memory);
    const char *name = json_string_value(json_object_get(object, "name"));
    const json_t *number = json_object_get(object, "id");
    char *const escaped = name != NULL ? escape(name) : NULL;
    sonde_err err = SONDE_OK;

    if (no_memory) { /* there is no object */
        return sonde__fail_nomem(diag, "the catalogue");
    }
    if (name == NULL || !json_is_integer(number) || json_integer_value(number) != id ||
        (escaped != NULL &&
         sonde__names_find(&tensors->names, escaped) != SONDE__NO_NAME)) {
        err = sonde__fail(diag, SONDE_EFORMAT, where,
                          "a tensor with the next id and an unused name",
                          "line %lu is damaged", (unsigned long)id + 1);
    } else if (escaped == NULL || !add_name(tensors, escaped)) {
        err = sonde__fail_nomem(diag, "the catalogue");
    }
    sonde__free(escaped);
    json_decref(object);
    return err;
}

static sonde_err restore_lines(sonde__record_tensors *tensors, const char *text,
                               size_t size, const char *where, sonde_diag *diag)
{
    const char *next = text, *newline = NULL;

    while ((newline = memchr(next, '\n', size - (size_t)(next - text))) != NULL) {
        SONDE__TRY(restore_line(tensors, next, (size_t)(newline - next), where, diag));
        next = newline + 1;
    }
    sonde_text_put(&tensors->lines, text, (size_t)(next - text));
    return tensors->lines.failed ? sonde__fail_nomem(diag, "the catalogue") : SONDE_OK;
}

sonde_err sonde__record_tensors_restore(sonde__record_tensors *tensors, const char *where,
                                        sonde_diag *diag)
{
    sonde__record_stream *stream = &tensors->catalogue;
    const sonde__record_backend_ops *ops = stream->backend->ops;
    char path[SONDE__FILE_NAME * 2];
    char *text = NULL;
    size_t size = 0;
    int failed = 0, attempts = 0;
    sonde_err err = SONDE_OK;

    (void)snprintf(path, sizeof path, "%s/%s", stream->folder, SONDE__CATALOGUE_FILE);
    failed = ops->load(stream->backend, path, &text, &size);
    if (failed == ENOENT) { /* it died before the first tensor */
        return SONDE_OK;
    }
    if (failed != 0) {
        goto error;
    }
    err = restore_lines(tensors, text, size, where, diag);
    sonde__free(text);
    if (err != SONDE_OK) {
        return err;
    }
    failed = ops->open(stream->backend, path, &stream->file);
    if (failed != 0) {
        goto error;
    }
    stream->file->small = true;
    stream->end = tensors->lines.length;
    do {
        failed = ops->truncate(stream->file, stream->end);
    } while (sonde__record_try_again(&attempts, failed));
    if (failed != 0) {
        goto error;
    }
    return SONDE_OK;

error:
    errno = failed;
    return sonde__fail_errno(diag, where, "cannot be read");
}

/* --- compress ---------------------------------------------------------------------- */

/* Compression of values. zstd allocates by itself. */

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

/* --- digest ------------------------------------------------------------------------ */

/* Which of the digests this processor gets. */

uint64_t sonde__record_digest(const void *bytes, size_t size)
{
#if defined(__x86_64__)
    switch (sonde__cpu_isa()) {
    case SONDE__AVX512:
        return sonde__record_digest_avx512(bytes, size);
    case SONDE__AVX2:
        return sonde__record_digest_avx2(bytes, size);
    case SONDE__GENERIC:
    default:
        break;
    }
#endif
    return sonde__record_digest_generic(bytes, size);
}
