/*
 * tokenizer_file.c - Hugging Face's files of GPT-2's kind: tokenizer.json, and vocab.json
 * with merges.txt.
 *
 *     {"model": {"type": "BPE", "vocab": {"!": 0, ...}, "merges": ["h e", ...]}, ...}
 *
 * Bytes stand there as characters (token_state.h). Parts of other tokenizers are refused, so
 * that no text gets other tokens than there.
 */
#include "base/fail.h"
#include "base/given.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/utf8.h"
#include "base/whole_file.h"
#include "nn/data/token_state.h"

#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH_SIZE = 4096 };

/* The reading of a file. */
typedef struct token_reading {
    const char *path;
    sonde_nn_tokenizer *tok;
    sonde_diag *diag;
} token_reading;

static sonde_err fail_format(const token_reading *r, const char *found)
{
    return sonde__fail(r->diag, SONDE_EFORMAT, r->path, "a tokenizer of GPT-2's kind",
                       "%s", found);
}

static sonde_err fail_kind(const token_reading *r, const char *part, const char *expected)
{
    return sonde__fail(r->diag, SONDE_EUNSUPPORTED, r->path, expected,
                       "its %s is of another kind", part);
}

/* --- bytes and characters --------------------------------------------------------------- */

/* One character of UTF-8, of length bytes. */
static uint32_t character_of(const char *text, size_t length)
{
    static const unsigned char first[] = {0, 0x7F, 0x1F, 0x0F, 0x07};
    uint32_t character = (unsigned char)text[0] & first[length];

    for (size_t i = 1; i < length; i++) {
        character = character << 6 | ((unsigned char)text[i] & 0x3F);
    }
    return character;
}

/* The bytes that characters stand for, into out, which holds length; false: one stands for
 * none. A NUL, or another character, comes after them. */
static bool read_shown(const char *text, size_t length, char *out, size_t *size)
{
    *size = 0;
    for (size_t i = 0; i < length;) {
        const size_t bytes = sonde__utf8_length(text + i);
        const int byte =
            bytes > 0 ? sonde__data_token_byte(character_of(text + i, bytes)) : -1;

        if (byte < 0) {
            return false;
        }
        out[(*size)++] = (char)(unsigned char)byte;
        i += bytes;
    }
    return true;
}

/* A token's bytes as characters, into out, which holds 2 size + 1. */
static void write_shown(const char *bytes, size_t size, char *out)
{
    for (size_t i = 0; i < size; i++) {
        const uint32_t character = sonde__data_token_shown((unsigned char)bytes[i]);

        if (character < 0x80) {
            *out++ = (char)character;
        } else {
            *out++ = (char)(0xC0 | character >> 6);
            *out++ = (char)(0x80 | (character & 0x3F));
        }
    }
    *out = '\0';
}

/* --- vocabulary and merges ---------------------------------------------------------------- */

static sonde_err add_token(token_reading *r, const char *shown, json_int_t id, bool added)
{
    const size_t length = strlen(shown);
    char *bytes = sonde__malloc(length + 1);
    size_t size = length;
    sonde_err err = SONDE_OK;

    if (bytes == NULL) {
        return sonde__fail_nomem(r->diag, "a tokenizer");
    }
    if (added) {
        memcpy(bytes, shown, length + 1);
    } else if (!read_shown(shown, length, bytes, &size)) { /* as <|endoftext|> might */
        memcpy(bytes, shown, length + 1);
        size = length;
    }
    if (id < 0 || id >= SONDE_NN_TOKENS_MAX || size == 0) {
        err =
            sonde__fail(r->diag, SONDE_ERANGE, r->path, "0 to 1048575, not empty",
                        "token '%.60s' has the number %" JSON_INTEGER_FORMAT, shown, id);
    } else if ((size_t)id < r->tok->count && r->tok->pieces[id].bytes != NULL) {
        if (!added) {
            err = fail_format(r, "two tokens have one number");
        }
    } else if (!sonde__data_token_add(r->tok, (size_t)id, bytes, size)) {
        err = sonde__fail_nomem(r->diag, "a tokenizer");
    }
    sonde__free(bytes);
    if (err == SONDE_OK && added && !r->tok->pieces[id].added) {
        r->tok->pieces[id].added = true;
        r->tok->added++;
    }
    return err;
}

static sonde_err read_vocabulary(token_reading *r, json_t *vocabulary)
{
    const char *shown = NULL;
    json_t *id = NULL;

    if (!json_is_object(vocabulary)) {
        return fail_format(r, "it has no vocabulary");
    }
    json_object_foreach(vocabulary, shown, id)
    {
        SONDE__TRY(json_is_integer(id)
                       ? add_token(r, shown, json_integer_value(id), false)
                       : fail_format(r, "a token without a number"));
    }
    for (int byte = 0; byte < 256; byte++) {
        const char text = (char)(unsigned char)byte;

        if (sonde__data_token_find(r->tok, &text, 1) == UINT32_MAX) {
            return sonde__fail(r->diag, SONDE_EFORMAT, r->path, "a token for each byte",
                               "no token for byte %d", byte);
        }
    }
    return SONDE_OK;
}

/* The token that length bytes of characters show. */
static uint32_t find_shown(const token_reading *r, const char *shown, size_t length,
                           char *room)
{
    size_t size = 0;

    return read_shown(shown, length, room, &size)
               ? sonde__data_token_find(r->tok, room, size)
               : UINT32_MAX;
}

static sonde_err add_merge(token_reading *r, const char *left, size_t left_length,
                           const char *right, size_t right_length)
{
    char *room = sonde__malloc(left_length + right_length + 1);
    sonde__data_merge merge = {UINT32_MAX, UINT32_MAX, UINT32_MAX};
    sonde_err err = SONDE_OK;

    if (room == NULL) {
        return sonde__fail_nomem(r->diag, "a tokenizer");
    }
    merge.left = find_shown(r, left, left_length, room);
    merge.right = find_shown(r, right, right_length, room);
    if (merge.left != UINT32_MAX && merge.right != UINT32_MAX) {
        const sonde__data_piece *a = &r->tok->pieces[merge.left];
        const sonde__data_piece *b = &r->tok->pieces[merge.right];

        memcpy(room, a->bytes, a->size); /* characters are at least as many bytes */
        memcpy(room + a->size, b->bytes, b->size);
        merge.whole = sonde__data_token_find(r->tok, room, a->size + b->size);
    }
    if (merge.whole == UINT32_MAX) {
        err =
            sonde__fail(r->diag, SONDE_EFORMAT, r->path,
                        "tokens of the vocabulary, whose whole is one too",
                        "merge %zu, '%.40s %.40s'", r->tok->merge_count + 1, left, right);
    } else if (sonde__data_token_rank(r->tok, merge.left, merge.right) == UINT32_MAX &&
               !sonde__data_token_merge(r->tok, merge)) {
        err = sonde__fail_nomem(r->diag, "a tokenizer");
    }
    sonde__free(room);
    return err;
}

/* "left right" */
static sonde_err add_merge_line(token_reading *r, const char *line, size_t length)
{
    const char *blank = memchr(line, ' ', length);

    if (blank == NULL) {
        return fail_format(r, "a merge that is no pair");
    }
    return add_merge(r, line, (size_t)(blank - line), blank + 1,
                     length - (size_t)(blank - line) - 1);
}

static sonde_err read_merges(token_reading *r, const json_t *merges)
{
    sonde_err err = json_is_array(merges) ? SONDE_OK : fail_format(r, "it has no merges");

    for (size_t i = 0; err == SONDE_OK && i < json_array_size(merges); i++) {
        const json_t *item = json_array_get(merges, i);
        const char *left = json_string_value(json_array_get(item, 0));
        const char *right = json_string_value(json_array_get(item, 1));

        if (json_is_string(item)) {
            err = add_merge_line(r, json_string_value(item), json_string_length(item));
        } else if (left != NULL && right != NULL) {
            err = add_merge(r, left, strlen(left), right, strlen(right));
        } else {
            err = fail_format(r, "a merge that is no pair");
        }
    }
    return err;
}

/* --- tokenizer.json ------------------------------------------------------------------------ */

static bool is_type(const json_t *part, const char *type)
{
    const char *found = json_string_value(json_object_get(part, "type"));

    return found != NULL && strcmp(found, type) == 0;
}

/* Whether a setting is missing, null, false or empty. */
static bool is_off(const json_t *part, const char *key)
{
    const json_t *value = json_object_get(part, key);
    const char *text = json_string_value(value);

    return value == NULL || json_is_null(value) || json_is_false(value) ||
           (text != NULL && text[0] == '\0') ||
           (json_is_number(value) && json_number_value(value) == 0.0);
}

/* Whatever would give a text other tokens. */
static sonde_err check_kind(const token_reading *r, const json_t *root)
{
    static const char *const off[] = {"dropout", "continuing_subword_prefix",
                                      "end_of_word_suffix", "byte_fallback",
                                      "ignore_merges"};
    const json_t *model = json_object_get(root, "model");
    const json_t *before = json_object_get(root, "pre_tokenizer");

    if (!json_is_object(model)) {
        return fail_format(r, "it has no model");
    }
    if (json_object_get(model, "type") != NULL && !is_type(model, "BPE")) {
        return fail_kind(r, "model", "BPE");
    }
    if (!is_off(root, "normalizer")) {
        return fail_kind(r, "normalizer", "none");
    }
    if (!is_type(before, "ByteLevel") || !is_off(before, "add_prefix_space") ||
        json_is_false(json_object_get(before, "use_regex"))) {
        return fail_kind(r, "pre_tokenizer", "ByteLevel, without add_prefix_space");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(off); i++) {
        if (!is_off(model, off[i])) {
            return fail_kind(r, off[i], "none");
        }
    }
    return SONDE_OK;
}

static sonde_err read_added(token_reading *r, const json_t *list)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; err == SONDE_OK && i < json_array_size(list); i++) {
        const json_t *item = json_array_get(list, i);
        const char *content = json_string_value(json_object_get(item, "content"));
        const json_t *id = json_object_get(item, "id");

        err = content != NULL && json_is_integer(id)
                  ? add_token(r, content, json_integer_value(id), true)
                  : fail_format(r, "an added token without content or number");
    }
    return err;
}

static sonde_err read_whole(token_reading *r, json_t *root)
{
    const json_t *model = json_object_get(root, "model");
    sonde_err err = check_kind(r, root);

    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(read_vocabulary(r, json_object_get(model, "vocab")));
    err = read_added(r, json_object_get(root, "added_tokens"));
    return err != SONDE_OK ? err : read_merges(r, json_object_get(model, "merges"));
}

/* --- files ------------------------------------------------------------------------------ */

static sonde_err load_json(const char *path, json_t **out, sonde_diag *diag)
{
    bool no_memory = false;

    if (access(path, R_OK) != 0) {
        return sonde__fail_errno(diag, path, "cannot read the file");
    }
    *out = sonde__json_read_file(path, &no_memory);
    if (*out != NULL) {
        return SONDE_OK;
    }
    return no_memory ? sonde__fail_nomem(diag, "a tokenizer")
                     : sonde__fail(diag, SONDE_EFORMAT, path, "JSON", "no JSON");
}

/* "#version: 0.2", then a merge a line. */
static sonde_err read_merge_file(token_reading *r, const char *path)
{
    FILE *file = fopen(path, "r");
    char *line = NULL;
    size_t capacity = 0;
    sonde_err err = SONDE_OK;

    if (file == NULL) {
        return sonde__fail_errno(r->diag, path, "cannot read the file");
    }
    r->path = path;
    for (bool first = true; err == SONDE_OK; first = false) {
        const ssize_t got = getline(&line, &capacity, file);
        size_t length = got > 0 ? (size_t)got : 0;

        if (got < 0) {
            break;
        }
        while (length > 0 && (line[length - 1] == '\n' || line[length - 1] == '\r')) {
            line[--length] = '\0';
        }
        if (length > 0 && !(first && strncmp(line, "#version", 8) == 0)) {
            err = add_merge_line(r, line, length);
        }
    }
    free(line);
    (void)fclose(file);
    return err;
}

static sonde_err read_file(token_reading *r, const char *path)
{
    json_t *root = NULL;
    sonde_err err = load_json(path, &root, r->diag);

    if (err == SONDE_OK) {
        r->path = path;
        err = read_whole(r, root);
    }
    json_decref(root);
    return err;
}

/* A folder with vocab.json and merges.txt. */
static sonde_err read_pair(token_reading *r, const char *folder)
{
    char vocabulary[PATH_SIZE], merges[PATH_SIZE];
    json_t *root = NULL;
    sonde_err err = SONDE_OK;

    if (snprintf(vocabulary, PATH_SIZE, "%s/vocab.json", folder) >= PATH_SIZE ||
        snprintf(merges, PATH_SIZE, "%s/merges.txt", folder) >= PATH_SIZE ||
        access(vocabulary, F_OK) != 0) {
        return sonde__fail(r->diag, SONDE_ENOTFOUND, folder,
                           "tokenizer.json, or vocab.json and merges.txt",
                           "the folder has no tokenizer");
    }
    err = load_json(vocabulary, &root, r->diag);
    if (err == SONDE_OK) {
        r->path = vocabulary;
        err = read_vocabulary(r, root);
    }
    json_decref(root);
    if (err == SONDE_OK) {
        err = read_merge_file(r, merges);
    }
    r->path = folder;
    return err;
}

static sonde_err read_path(token_reading *r, const char *path)
{
    char file[PATH_SIZE];
    struct stat status;
    sonde_err err = SONDE_OK;

    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        return read_file(r, path);
    }
    if (snprintf(file, PATH_SIZE, "%s/tokenizer.json", path) < PATH_SIZE &&
        access(file, F_OK) == 0) {
        err = read_file(r, file);
        r->path = path;
        return err;
    }
    return read_pair(r, path);
}

sonde_err sonde_nn_tokenizer_open(const char *path, sonde_nn_tokenizer **out,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    token_reading r = {.path = path, .tok = sonde__data_token_create(), .diag = diag};
    sonde_err err =
        r.tok != NULL ? read_path(&r, path) : sonde__fail_nomem(diag, "a tokenizer");

    if (err != SONDE_OK) {
        sonde_nn_tokenizer_destroy(r.tok);
        return err;
    }
    *out = r.tok;
    return SONDE_OK;
}

sonde_err sonde_nn_tokenizer_parse(const char *text, size_t size,
                                   sonde_nn_tokenizer **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, out);
    token_reading r = {.path = "tokenizer.json", .diag = diag};
    bool no_memory = false;
    json_t *root = sonde__json_read(text, size, 0, NULL, &no_memory);
    sonde_err err = SONDE_OK;

    if (root == NULL) {
        return no_memory ? sonde__fail_nomem(diag, "a tokenizer")
                         : fail_format(&r, "no JSON");
    }
    r.tok = sonde__data_token_create();
    err = r.tok != NULL ? read_whole(&r, root) : sonde__fail_nomem(diag, "a tokenizer");
    json_decref(root);
    if (err != SONDE_OK) {
        sonde_nn_tokenizer_destroy(r.tok);
        return err;
    }
    *out = r.tok;
    return SONDE_OK;
}

/* --- writing ------------------------------------------------------------------------------ */

/* Characters between quotes; those that bytes stand as need no escape but these two. */
static bool put_shown(FILE *file, const sonde__data_piece *piece)
{
    char *shown = sonde__malloc(2 * piece->size + 1);
    bool ok = shown != NULL;

    if (ok) {
        write_shown(piece->bytes, piece->size, shown);
    }
    for (const char *p = shown; ok && *p != '\0'; p++) {
        if (*p == '"' || *p == '\\') {
            (void)fputc('\\', file);
        }
        (void)fputc(*p, file);
    }
    sonde__free(shown);
    return ok;
}

static void put(FILE *file, const char *text)
{
    (void)fputs(text, file); /* see ferror */
}

static bool put_vocabulary(FILE *file, const sonde_nn_tokenizer *tok)
{
    bool first = true;

    for (size_t i = 0; i < tok->count; i++) {
        char number[32];

        if (tok->pieces[i].bytes == NULL || tok->pieces[i].added) {
            continue;
        }
        put(file, first ? "\"" : ",\"");
        first = false;
        if (!put_shown(file, &tok->pieces[i])) {
            return false;
        }
        (void)snprintf(number, sizeof number, "\":%zu", i);
        put(file, number);
    }
    return true;
}

static bool put_merges(FILE *file, const sonde_nn_tokenizer *tok)
{
    for (size_t i = 0; i < tok->merge_count; i++) {
        const sonde__data_merge *merge = &tok->merges[i];

        put(file, i > 0 ? ",\"" : "\"");
        if (!put_shown(file, &tok->pieces[merge->left])) {
            return false;
        }
        put(file, " ");
        if (!put_shown(file, &tok->pieces[merge->right])) {
            return false;
        }
        put(file, "\"");
    }
    return true;
}

/* Text that is not bytes as characters: an added token's. */
static bool put_added(FILE *file, const sonde_nn_tokenizer *tok)
{
    bool first = true;

    for (size_t i = 0; i < tok->count; i++) {
        json_t *text = tok->pieces[i].added
                           ? json_stringn(tok->pieces[i].bytes, tok->pieces[i].size)
                           : NULL;
        char *quoted = text != NULL ? json_dumps(text, JSON_ENCODE_ANY) : NULL;
        char head[48];

        if (tok->pieces[i].added && quoted != NULL) {
            (void)snprintf(head, sizeof head,
                           "%s{\"id\":%zu,\"content\":", first ? "" : ",", i);
            put(file, head);
            put(file, quoted);
            put(file, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,"
                      "\"normalized\":false,\"special\":true}");
            first = false;
        }
        json_decref(text);
        free(quoted);
        if (tok->pieces[i].added && quoted == NULL) {
            return false;
        }
    }
    return true;
}

static const char between[] =
    "],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
    "\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
    "\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},"
    "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
    "\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
    "\"fuse_unk\":false,\"byte_fallback\":false,\"vocab\":{";

sonde_err sonde_nn_tokenizer_print(const sonde_nn_tokenizer *tok, FILE *stream,
                                   sonde_diag *diag)
{
    SONDE__NEEDS(diag, tok, stream);
    bool ok = true;

    put(stream, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,"
                "\"added_tokens\":[");
    ok = put_added(stream, tok);
    put(stream, between);
    ok = ok && put_vocabulary(stream, tok);
    put(stream, "},\"merges\":[");
    ok = ok && put_merges(stream, tok);
    put(stream, "]}}\n");
    return ok ? SONDE_OK : sonde__fail_nomem(diag, "a tokenizer");
}

sonde_err sonde_nn_tokenizer_save(const sonde_nn_tokenizer *tok, const char *path,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, tok, path);
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);
    sonde_err err = stream != NULL ? sonde_nn_tokenizer_print(tok, stream, diag)
                                   : sonde__fail_nomem(diag, "a tokenizer");

    if (stream != NULL && fclose(stream) != 0 && err == SONDE_OK) {
        err = sonde__fail_nomem(diag, "a tokenizer");
    }
    if (err == SONDE_OK) {
        err = sonde__whole_put(path, text, size, diag);
    }
    free(text);
    return err;
}
