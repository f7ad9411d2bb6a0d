/*
 * predict_text.c - `sonde predict --prompt TEXT`: continues a text with a model of tokens.
 */
#include "cli/predict_text.h"
#include "cli/run_reading.h"

#include <sonde/nn/evaluator.h>

#include <stdlib.h>
#include <string.h>

/* Prints a token of the continuation; of JSON it is kept for the end. */
typedef struct continuation {
    const sonde_nn_tokenizer *tokenizer; /* NULL: a token is a byte */
    bool kept;
    char *text; /* that is kept; ends with a NUL */
    size_t size, capacity;
    bool failed; /* out of memory */
} continuation;

static void keep(continuation *made, const char *bytes, size_t size)
{
    const size_t needed = made->size + size + 1;

    if (needed > made->capacity) {
        char *larger = realloc(made->text, 2 * needed);

        made->failed = larger == NULL;
        if (made->failed) {
            return;
        }
        made->text = larger;
        made->capacity = 2 * needed;
    }
    memcpy(made->text + made->size, bytes, size);
    made->size += size;
    made->text[made->size] = '\0';
}

static void print(const char *bytes, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        const char byte = bytes[i];

        (void)fputc(byte >= ' ' || byte == '\n' || byte == '\t' || (byte & 0x80) != 0
                        ? byte
                        : '?',
                    stdout);
    }
    (void)fflush(stdout);
}

static bool take(void *user, int64_t token)
{
    continuation *made = user;
    const char byte = (char)(unsigned char)token;
    size_t size = 1;
    const char *bytes = made->tokenizer != NULL
                            ? sonde_nn_tokenizer_token(made->tokenizer, token, &size)
                            : &byte;

    if (bytes == NULL) { /* one that was never learnt */
        bytes = "?";
        size = 1;
    }
    if (made->kept) {
        keep(made, bytes, size);
    } else {
        print(bytes, size);
    }
    return !made->failed && !cli_interrupted();
}

/* The text may hold zero bytes, which a string of C cannot. */
static void quote(sonde_text *out, const continuation *made)
{
    sonde_text_add(out, "\"");
    for (size_t i = 0; i < made->size; i += strlen(made->text + i) + 1) {
        sonde_json_escape(out, made->text + i);
        if (i + strlen(made->text + i) < made->size) {
            sonde_text_add(out, "\\u0000");
        }
    }
    sonde_text_add(out, "\"");
}

static void print_json(const char *prompt, const continuation *made)
{
    sonde_text text = {0};

    quote(&text, made);
    CLI_LINE(cli_text("prompt", prompt),
             cli_raw("text", text.failed ? "null" : text.data));
    sonde_text_fini(&text);
}

sonde_err cli_predict_text(sonde_nn_model *model, const cli_text_request *request,
                           sonde_diag *diag)
{
    const size_t length = strlen(request->prompt);
    continuation made = {.tokenizer = request->tokenizer, .kept = request->json};
    size_t count = length;
    const sonde_nn_generate_options options = {.size = sizeof options,
                                               .count = request->count,
                                               .temperature = request->temperature,
                                               .seed = request->seed,
                                               .take = take,
                                               .user = &made};
    int64_t *tokens = calloc(length + 1, sizeof *tokens);
    sonde_err err = SONDE_OK;

    if (tokens == NULL) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    for (size_t i = 0; i < length; i++) {
        tokens[i] = (unsigned char)request->prompt[i];
    }
    if (request->tokenizer != NULL) {
        err = sonde_nn_tokenizer_encode(request->tokenizer, request->prompt, length,
                                        tokens, &count, diag);
    }
    if (err != SONDE_OK) {
        goto done;
    }
    if (!request->json) {
        (void)fputs(request->prompt, stdout);
    }
    err = sonde_nn_generate(model, tokens, (int64_t)count, &options, diag);
    if (err == SONDE_OK && made.failed) {
        err = diag->err = SONDE_ENOMEM;
    }
    if (request->json && err == SONDE_OK) {
        print_json(request->prompt, &made);
    } else if (!request->json) {
        (void)fputc('\n', stdout);
    }

done:
    free(tokens);
    free(made.text);
    return err;
}
