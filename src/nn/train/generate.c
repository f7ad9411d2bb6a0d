/*
 * generate.c - see sonde_nn_generate in evaluator.h.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/memory.h"
#include "base/random.h"

#include <sonde/nn/evaluator.h>

#include <math.h>
#include <stdio.h>
#include <string.h>

enum { STREAM = 0x6e78 }; /* "nx": of random numbers */

typedef struct generation {
    sonde_nn_generate_options options;
    sonde_nn_session *session;
    int64_t length, classes; /* positions of the model, and tokens */
    int64_t *window;         /* (length): the last tokens */
    int64_t filled;          /* of it */
    int64_t *targets;        /* (length) zeros, where the loss is an output */
    uint64_t drawn;
} generation;

/* An evaluation adds the loss to the model's outputs: then a session reads targets. */
static bool has_loss(const sonde_nn_model *model)
{
    const sonde_nn_value loss = sonde_nn_model_get_info(model).loss;

    for (size_t i = 0; sonde_nn_model_output(model, i) != 0; i++) {
        if (sonde_nn_model_output(model, i) == loss) {
            return true;
        }
    }
    return false;
}

static sonde_err check(const sonde_nn_model *model, generation *run, sonde_diag *diag)
{
    const sonde_nn_value output = sonde_nn_model_output(model, 0);
    int rank = 0;
    const int64_t *shape = sonde_nn_value_shape(model, output, &rank);

    if (shape == NULL || rank != 3) {
        return sonde__fail(diag, SONDE_ESHAPE, "generate", "scores (N, T, tokens)",
                           "the model's output has %d dimensions", rank);
    }
    if (!(run->options.temperature >= 0.0F) || !isfinite(run->options.temperature)) {
        return sonde__fail(diag, SONDE_EINVAL, "temperature", "0 or more, finite",
                           "it is %g", (double)run->options.temperature);
    }
    if (run->options.count < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "count", "at least 1",
                           "%lld tokens to generate", (long long)run->options.count);
    }
    run->length = shape[1];
    run->classes = shape[2];
    return SONDE_OK;
}

static void keep(generation *run, int64_t token)
{
    if (run->filled == run->length) {
        memmove(run->window, run->window + 1,
                (size_t)(run->length - 1) * sizeof *run->window);
        run->filled--;
    }
    run->window[run->filled++] = token;
}

/* A token of the scores, drawn; -1: they have a NaN, or nothing but -Inf. */
static int64_t draw(generation *run, const float *scores)
{
    const double temperature = (double)run->options.temperature;
    const int64_t best = sonde_nn_argmax(SONDE_F32, scores, run->classes, 1);
    double total = 0.0, left = 0.0;

    if (best < 0 || temperature == 0.0) {
        return best;
    }
    for (int64_t i = 0; i < run->classes; i++) {
        total += exp(((double)scores[i] - (double)scores[best]) / temperature);
    }
    if (!isfinite(total)) {
        return -1;
    }
    left = (double)sonde__uniform(run->options.seed, STREAM, run->drawn++) * total;
    for (int64_t i = 0; i < run->classes; i++) {
        left -= exp(((double)scores[i] - (double)scores[best]) / temperature);
        if (left < 0.0) {
            return i;
        }
    }
    return best;
}

/* Positions after the last token hold 0; a causal model does not look at them. */
static sonde_err next_token(generation *run, int64_t *token, sonde_diag *diag)
{
    const int64_t shape[2] = {1, run->length};
    const sonde_view inputs[2] = {sonde_view_of(SONDE_I64, 2, shape, run->window),
                                  sonde_view_of(SONDE_I64, 2, shape, run->targets)};
    sonde_view scores;

    for (int64_t i = run->filled; i < run->length; i++) {
        run->window[i] = 0;
    }
    SONDE__TRY(
        sonde_nn_session_run(run->session, inputs, run->targets != NULL ? 2 : 1, diag));
    SONDE__TRY(sonde_nn_session_output(run->session, 0, &scores, diag));
    *token = draw(run, (const float *)scores.data + (run->filled - 1) * run->classes);
    return *token >= 0 ? SONDE_OK
                       : sonde__fail(diag, SONDE_ESTATE, "generate", "finite scores",
                                     "the output of the model is NaN");
}

static sonde_err open_session(generation *run, sonde_nn_model *model, sonde_diag *diag)
{
    sonde_nn_options options;

    sonde_nn_options_init(&options);
    options.batch_size = 1;
    options.fixed_batch = true;
    SONDE__TRY(sonde_nn_session_create(model, &options, NULL, &run->session, diag));
    return sonde_nn_session_set(
        run->session, SONDE_OPTIONS(sonde_nn_session, .mode = SONDE_MODE_PREDICT), diag);
}

sonde_err sonde_nn_generate(sonde_nn_model *model, const int64_t *prompt,
                            int64_t prompt_count,
                            const sonde_nn_generate_options *options, sonde_diag *diag)
{
    SONDE__NEEDS(diag, model, prompt, options);
    generation run = {.filled = 0};
    sonde_err err = SONDE_OK;

    SONDE__TAKE(sonde_nn_generate_options, &run.options, options, diag);
    SONDE__TRY(check(model, &run, diag));
    if (prompt_count < 1) {
        return sonde__fail(diag, SONDE_EINVAL, "prompt", "at least one token",
                           "%lld tokens", (long long)prompt_count);
    }
    run.window = sonde__calloc((size_t)run.length, sizeof *run.window);
    run.targets =
        has_loss(model) ? sonde__calloc((size_t)run.length, sizeof *run.targets) : NULL;
    if (run.window == NULL || (has_loss(model) && run.targets == NULL)) {
        err = sonde__fail_nomem(diag, "a window of tokens");
        goto done;
    }
    for (int64_t i = 0; i < prompt_count; i++) {
        keep(&run, prompt[i]);
    }
    err = open_session(&run, model, diag);
    for (int64_t i = 0; i < run.options.count && err == SONDE_OK; i++) {
        int64_t token = 0;

        err = next_token(&run, &token, diag);
        if (err == SONDE_OK && run.options.take != NULL &&
            !run.options.take(run.options.user, token)) {
            break;
        }
        keep(&run, token);
    }

done:
    sonde_nn_session_destroy(run.session);
    sonde__free(run.window);
    sonde__free(run.targets);
    return err;
}
