/*
 * fuzz_tokenizer.c - a tokenizer.json from any bytes. One that is read gives every text
 * back: the bytes of the tokens of the file itself are the file's.
 */
#include "nn/data/token_state.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void round_trip(const sonde_nn_tokenizer *tok, const char *text, size_t size)
{
    int64_t *tokens = malloc((size + 1) * sizeof *tokens);
    size_t count = 0, place = 0;

    if (tokens == NULL ||
        sonde_nn_tokenizer_encode(tok, text, size, tokens, &count, NULL) != SONDE_OK) {
        abort();
    }
    for (size_t i = 0; i < count; i++) {
        size_t length = 0;
        const char *bytes = sonde_nn_tokenizer_token(tok, tokens[i], &length);

        if (bytes == NULL || length > size - place ||
            memcmp(bytes, text + place, length) != 0) {
            abort();
        }
        place += length;
    }
    if (place != size) {
        abort();
    }
    free(tokens);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde_nn_tokenizer *tok = NULL;
    sonde_diag diag = {0};
    char *text = malloc(size + 1);

    if (text == NULL) {
        abort();
    }
    if (size > 0) {
        memcpy(text, data, size);
    }
    text[size] = '\0';
    if (sonde_nn_tokenizer_parse(text, size, &tok, &diag) == SONDE_OK) {
        round_trip(tok, text, size);
    } else if (tok != NULL || diag.found[0] == '\0') {
        abort();
    }
    sonde_nn_tokenizer_destroy(tok);
    tok = NULL;
    if (size < 4096 && sonde_nn_tokenizer_train(text, size, 256 + (int64_t)size % 64,
                                                &tok, NULL) == SONDE_OK) {
        round_trip(tok, text, size);
    }
    sonde_nn_tokenizer_destroy(tok);
    free(text);
    return 0;
}
