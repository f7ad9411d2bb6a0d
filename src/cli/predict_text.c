/*
 * predict_text.c - `sonde predict --prompt TEXT`: continues a text with a model of bytes.
 */
#include "cli/predict_text.h"
#include "cli/cli_run.h"

#include <sonde/nn/evaluator.h>

#include <stdlib.h>
#include <string.h>

/* Prints a byte of the continuation; of JSON it is kept for the end. */
typedef struct continuation {
    char *text; /* NULL: printed at once */
    size_t size;
} continuation;

static bool take(void *user, int64_t token)
{
    continuation *made = user;
    const char byte = (char)(unsigned char)token;

    if (made->text != NULL) {
        made->text[made->size++] = byte;
    } else {
        (void)fputc(byte >= ' ' || byte == '\n' || byte == '\t' || (byte & 0x80) != 0
                        ? byte
                        : '?',
                    stdout);
        (void)fflush(stdout);
    }
    return !cli_interrupted();
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
    sonde_json *const json = cli_json();
    sonde_text text = {0};

    quote(&text, made);
    sonde_json_object(json, NULL);
    sonde_json_string(json, "prompt", prompt);
    sonde_json_raw(json, "text", text.failed ? "null" : text.data);
    sonde_json_end(json);
    cli_json_print("\n");
    sonde_text_fini(&text);
}

sonde_err cli_predict_text(sonde_nn_model *model, const cli_text_request *request,
                           sonde_diag *diag)
{
    const size_t length = strlen(request->prompt);
    continuation made = {.text = NULL};
    const sonde_nn_generate_options options = {.size = sizeof options,
                                               .count = request->count,
                                               .temperature = request->temperature,
                                               .seed = request->seed,
                                               .take = take,
                                               .user = &made};
    int64_t *tokens = calloc(length + 1, sizeof *tokens);
    sonde_err err = SONDE_OK;

    made.text = request->json ? calloc((size_t)request->count + 1, 1) : NULL;
    if (tokens == NULL || (request->json && made.text == NULL)) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    for (size_t i = 0; i < length; i++) {
        tokens[i] = (unsigned char)request->prompt[i];
    }
    if (!request->json) {
        (void)fputs(request->prompt, stdout);
    }
    err = sonde_nn_generate(model, tokens, (int64_t)length, &options, diag);
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
