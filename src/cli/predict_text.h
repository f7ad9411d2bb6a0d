/*
 * predict_text.h - a text continued by a model of tokens.
 */
#ifndef SONDE_CLI_PREDICT_TEXT_H
#define SONDE_CLI_PREDICT_TEXT_H

#include <sonde/nn/model.h>
#include <sonde/nn/dataset.h>

typedef struct cli_text_request {
    const char *prompt;
    int64_t count;                       /* of tokens to add */
    const sonde_nn_tokenizer *tokenizer; /* NULL: a token is a byte */
    float temperature;
    uint64_t seed;
    bool json;
} cli_text_request;

/* Prints the prompt and what follows, token by token; with json one object at the end. */
sonde_err cli_predict_text(sonde_nn_model *model, const cli_text_request *request,
                           sonde_diag *diag);

#endif
