/*
 * tokenizer.c - byte-pair tokens. Python makes them, with the package tokenizers
 * (sonde/tokens.py); C keeps the text of tokenizer.json and the bytes of each token.
 *
 * An exchange with Python is a temporary folder, which is removed once its arrays are mapped:
 *
 *     text, tokenizer.json            what C writes
 *     json.npy, bytes.npy, ends.npy   a tokenizer: token i is bytes ends[i - 1] ... ends[i]
 *     tokens.npy                      a text's tokens
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/python_run.h"
#include "base/whole_file.h"
#include "nn/data/files.h"

#include <sonde/nn/dataset.h>

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 256, PATH_SIZE = 4096 };

struct sonde_nn_tokenizer {
    sonde__data_arrays *arrays;
    sonde_view json, bytes, ends; /* of arrays */
};

/* A file of an exchange. */
typedef struct exchange_file {
    const char *name;
    const void *bytes;
    size_t size;
} exchange_file;

static void remove_exchange(const char *folder)
{
    static const char *const names[] = {"text",      "tokenizer.json", "json.npy",
                                        "bytes.npy", "ends.npy",       "tokens.npy"};
    char path[PATH_SIZE];

    for (size_t i = 0; i < SONDE_COUNT_OF(names); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

/* Runs a command of sonde.tokens in a folder with the files; *out are the arrays that it
 * writes there. argument may be NULL. */
static sonde_err exchange(const char *command, const char *argument,
                          const exchange_file *files, size_t count,
                          sonde__data_arrays **out, sonde_diag *diag)
{
    const char *base = getenv("TMPDIR");
    char folder[PATH_SIZE - 32], path[PATH_SIZE];
    sonde_err err = SONDE_OK;

    (void)snprintf(folder, sizeof folder, "%s/sonde-tokens-XXXXXX",
                   base != NULL && base[0] != '\0' ? base : "/tmp");
    if (mkdtemp(folder) == NULL) {
        return sonde__fail_errno(diag, folder, "cannot make the folder");
    }
    for (size_t i = 0; i < count; i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i].name);
        SONDE__TRY_DONE(sonde__whole_put(path, files[i].bytes, files[i].size, diag));
    }
    const char *const arguments[] = {command, folder, argument, NULL};

    SONDE__TRY_DONE(sonde__python_run("tokens", arguments, diag));
    err = sonde__data_arrays_open(folder, out, diag);

done:
    remove_exchange(folder);
    return err;
}

/* An array of one dimension that Python wrote. */
static sonde_err find_array(const sonde__data_arrays *arrays, const char *name,
                            sonde_dtype dtype, sonde_view *out, sonde_diag *diag)
{
    const sonde_view *view = sonde__data_arrays_find(arrays, name);

    if (view == NULL || view->dtype != dtype || view->rank != 1) {
        return sonde__fail(diag, SONDE_EFORMAT, "sonde.tokens", sonde_dtype_name(dtype),
                           "no array '%s'", name);
    }
    *out = *view;
    return SONDE_OK;
}

/* A tokenizer of what a command writes. */
static sonde_err create(const char *command, const char *argument,
                        const exchange_file *file, sonde_nn_tokenizer **out,
                        sonde_diag *diag)
{
    sonde_nn_tokenizer *tok = sonde__calloc(1, sizeof *tok);
    sonde_err err = SONDE_OK;

    if (tok == NULL) {
        return sonde__fail_nomem(diag, "a tokenizer");
    }
    SONDE__TRY_GO(
        exchange(command, argument, file, file != NULL ? 1 : 0, &tok->arrays, diag));
    SONDE__TRY_GO(find_array(tok->arrays, "json", SONDE_U8, &tok->json, diag));
    SONDE__TRY_GO(find_array(tok->arrays, "bytes", SONDE_U8, &tok->bytes, diag));
    SONDE__TRY_GO(find_array(tok->arrays, "ends", SONDE_I64, &tok->ends, diag));
    *out = tok;
    return SONDE_OK;

error:
    sonde_nn_tokenizer_destroy(tok);
    return err;
}

sonde_err sonde_nn_tokenizer_train(const char *text, size_t size, int64_t vocabulary,
                                   sonde_nn_tokenizer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    const exchange_file file = {"text", text, size};
    char number[24];

    if (vocabulary < BYTES || vocabulary > SONDE_NN_TOKENS_MAX) {
        return sonde__fail(diag, SONDE_EINVAL, "vocabulary", "256 to 1048576",
                           "%" PRId64 " tokens", vocabulary);
    }
    (void)snprintf(number, sizeof number, "%" PRId64, vocabulary);
    return create("train", number, &file, out, diag);
}

sonde_err sonde_nn_tokenizer_open(const char *path, sonde_nn_tokenizer **out,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    return create("open", path, NULL, out, diag);
}

sonde_err sonde_nn_tokenizer_parse(const char *text, size_t size,
                                   sonde_nn_tokenizer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    const exchange_file file = {"tokenizer.json", text, size};

    return create("parse", NULL, &file, out, diag);
}

const char *sonde_nn_tokenizer_json(const sonde_nn_tokenizer *tok, size_t *size)
{
    if (tok == NULL || size == NULL) {
        return NULL;
    }
    *size = (size_t)tok->json.shape[0];
    return tok->json.data;
}

void sonde_nn_tokenizer_destroy(sonde_nn_tokenizer *tok)
{
    if (tok != NULL) {
        sonde__data_arrays_destroy(tok->arrays);
        sonde__free(tok);
    }
}

int64_t sonde_nn_tokenizer_size(const sonde_nn_tokenizer *tok)
{
    return tok != NULL ? tok->ends.shape[0] : 0;
}

const char *sonde_nn_tokenizer_token(const sonde_nn_tokenizer *tok, int64_t id,
                                     size_t *size)
{
    if (tok == NULL || size == NULL || id < 0 || id >= tok->ends.shape[0]) {
        return NULL;
    }
    const int64_t *ends = tok->ends.data;
    const int64_t start = id > 0 ? ends[id - 1] : 0;

    *size = (size_t)(ends[id] - start);
    return *size > 0 ? (const char *)tok->bytes.data + start : NULL;
}

sonde_err sonde_nn_tokenizer_encode(const sonde_nn_tokenizer *tok, const char *text,
                                    size_t size, int64_t *tokens, size_t *count,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, tok, text, tokens, count);
    const exchange_file files[] = {
        {"text", text, size},
        {"tokenizer.json", tok->json.data, (size_t)tok->json.shape[0]}};
    sonde__data_arrays *arrays = NULL;
    sonde_view view = {.rank = 0};
    SONDE__TRY(exchange("encode", NULL, files, SONDE_COUNT_OF(files), &arrays, diag));
    sonde_err err = find_array(arrays, "tokens", SONDE_I64, &view, diag);

    if (err == SONDE_OK && (size_t)view.shape[0] > size) {
        err = sonde__fail(diag, SONDE_EFORMAT, "sonde.tokens", "tokens of bytes",
                          "more tokens than bytes");
    }
    if (err == SONDE_OK) {
        *count = (size_t)view.shape[0];
        memcpy(tokens, view.data, *count * sizeof *tokens);
    }
    sonde__data_arrays_destroy(arrays);
    return err;
}
