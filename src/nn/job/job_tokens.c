/*
 * job_tokens.c - the tokens of a job whose data is text: bytes, byte pairs that are learnt
 * from its training text, or those of a tokenizer's file.
 *
 * A layer may say `vocabulary` where a number stands (num_embeddings, out): before each
 * building of the model it becomes the number of tokens.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "nn/job/job.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { BYTES = 256, STANDARD = 512, NUMBER = 24 };

struct sonde__job_tokens {
    sonde_nn_tokenizer *tokenizer; /* NULL: not made yet */
    sonde__yaml **numbers;         /* nodes that hold the number of tokens */
    size_t count, capacity;
};

sonde_err sonde__job_tokens_create(sonde_nn_job *job, sonde_diag *diag)
{
    job->tokens = sonde__calloc(1, sizeof *job->tokens);
    return job->tokens != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a job");
}

void sonde__job_tokens_destroy(sonde_nn_job *job)
{
    if (job->tokens == NULL) {
        return;
    }
    sonde_nn_tokenizer_destroy(job->tokens->tokenizer);
    sonde__free(job->tokens->numbers);
    sonde__free(job->tokens);
}

/* --- the text ------------------------------------------------------------------------- */

enum { DRAWN_BYTES = 400 * 1000 };
static const char drawn_text[] = "text-synth";

sonde_err sonde__job_open_text(const sonde_nn_job_info *info, sonde_nn_split split,
                               int64_t length, const sonde_nn_tokenizer *tokenizer,
                               sonde_nn_dataset **out, sonde_diag *diag)
{
    const bool file = info->data_path[0] != '\0';
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = file ? SONDE_NN_DATA_TEXT
                                                           : SONDE_NN_DATA_TEXT_SYNTH,
                                              .split = split,
                                              .length = length,
                                              .tokenizer = tokenizer,
                                              .count = DRAWN_BYTES};

    if (!file && strcmp(info->data_name, drawn_text) != 0) {
        return sonde__fail(
            diag, SONDE_ENOTFOUND, "data", "data: {path: FILE.txt} or {name: text-synth}",
            info->data_name[0] != '\0' ? "no text '%s'" : "%sno text is named",
            info->data_name);
    }
    return sonde_nn_dataset_open(file ? info->data_path : NULL, &options, out, diag);
}

/* --- the tokenizer -------------------------------------------------------------------- */

/* Byte pairs of the training text. */
static sonde_err train(const sonde_nn_job *job, sonde_diag *diag)
{
    const int64_t wanted = job->info.vocabulary > 0 ? job->info.vocabulary : STANDARD;
    sonde_nn_dataset *set = NULL;
    char *text = NULL;
    int64_t count = 0;
    sonde_err err = sonde__job_open_text(&job->info, SONDE_NN_TRAIN, 1, NULL, &set, diag);

    if (err != SONDE_OK) {
        return err;
    }
    count = sonde_nn_dataset_get_traits(set)->count;
    text = sonde__malloc((size_t)count + 1);
    if (text == NULL) {
        err = sonde__fail_nomem(diag, "a text");
        goto done;
    }
    for (int64_t i = 0; i < count && err == SONDE_OK; i++) {
        sonde_nn_sample sample;

        err = sonde_nn_dataset_get(set, i, NULL, &sample, diag);
        if (err == SONDE_OK) {
            text[i] = (char)*(const int64_t *)sample.data;
            text[i + 1] = (char)sample.label;
        }
    }
    if (err == SONDE_OK) {
        err = sonde_nn_tokenizer_train(text, (size_t)count + 1, wanted,
                                       &job->tokens->tokenizer, diag);
    }
done:
    sonde__free(text);
    sonde_nn_dataset_destroy(set);
    return err;
}

sonde_err sonde_nn_job_tokenizer(const sonde_nn_job *job, const sonde_nn_tokenizer **out,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, out);
    const sonde_nn_job_info *info = &job->info;
    sonde_err err = SONDE_OK;

    *out = NULL;
    if (info->tokens == 0 && info->tokenizer[0] == '\0') {
        return SONDE_OK;
    }
    const sonde__yaml *saved =
        job->plan != NULL ? sonde__yaml_get(job->model, "tokenizer") : NULL;
    if (job->tokens->tokenizer == NULL && saved != NULL && saved->text != NULL) {
        err = sonde_nn_tokenizer_parse(saved->text, strlen(saved->text),
                                       &job->tokens->tokenizer, diag);
    } else if (job->tokens->tokenizer == NULL) {
        err =
            info->tokenizer[0] != '\0'
                ? sonde_nn_tokenizer_open(info->tokenizer, &job->tokens->tokenizer, diag)
                : train(job, diag);
    }
    if (err == SONDE_OK) {
        *out = job->tokens->tokenizer;
    }
    return err;
}

/* --- the model ------------------------------------------------------------------------ */

/* How many tokens the model has. Those that are learnt may be fewer. */
static sonde_err count_tokens(const sonde_nn_job *job, int64_t *count, sonde_diag *diag)
{
    const sonde_nn_job_info *info = &job->info;
    const sonde_nn_tokenizer *tokenizer = NULL;
    sonde_err err = SONDE_OK;

    *count = info->tokens == 0       ? BYTES
             : info->vocabulary == 0 ? STANDARD
                                     : info->vocabulary;
    if (info->tokenizer[0] != '\0') {
        err = sonde_nn_job_tokenizer(job, &tokenizer, diag);
        *count = sonde_nn_tokenizer_size(tokenizer);
    }
    if (err == SONDE_OK && *count < BYTES) {
        return sonde__fail(diag, SONDE_EINVAL, "vocabulary", "256 to 1048576",
                           "%" PRId64 " tokens", *count);
    }
    return err;
}

/* Notes the scalars `vocabulary` under a node, and gives them room for a number. */
static sonde_err find_numbers(sonde_nn_job *job, sonde__yaml *node, sonde_diag *diag)
{
    struct sonde__job_tokens *tokens = job->tokens;
    const bool name = node->key != NULL &&
                      (strcmp(node->key, "name") == 0 || strcmp(node->key, "from") == 0);
    sonde_err err = SONDE_OK;

    if (node->kind == SONDE__YAML_SCALAR && !name && node->key != NULL &&
        strcmp(node->text, "vocabulary") == 0) {
        char *text = sonde__malloc(NUMBER);

        if (text == NULL || !sonde__reserve(&tokens->numbers, &tokens->capacity,
                                            tokens->count + 1, sizeof(sonde__yaml *))) {
            sonde__free(text);
            return sonde__fail_nomem(diag, "a job");
        }
        sonde__free(node->text);
        node->text = text;
        text[0] = '\0';
        tokens->numbers[tokens->count++] = node;
    }
    for (size_t i = 0; i < node->count && err == SONDE_OK; i++) {
        err = find_numbers(job, node->children[i], diag);
    }
    return err;
}

sonde_err sonde__job_tokens_find(sonde_nn_job *job, sonde_diag *diag)
{
    sonde__yaml *tree = job->builtin != NULL ? job->builtin : job->root;

    for (size_t i = 0; i < tree->count; i++) {
        if (tree->children[i] == job->model) {
            return find_numbers(job, tree->children[i], diag);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__job_tokens_write(const sonde_nn_job *job, sonde_diag *diag)
{
    int64_t count = 0;
    sonde_err err = SONDE_OK;

    if (job->tokens->count > 0) {
        err = count_tokens(job, &count, diag);
    }
    for (size_t i = 0; i < job->tokens->count && err == SONDE_OK; i++) {
        (void)snprintf(job->tokens->numbers[i]->text, NUMBER, "%" PRId64, count);
    }
    return err;
}

void sonde__job_tokens_forget(sonde_nn_job *job)
{
    sonde_nn_tokenizer_destroy(job->tokens->tokenizer);
    job->tokens->tokenizer = NULL;
}
