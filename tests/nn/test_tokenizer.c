/*
 * test_tokenizer.c - byte-pair tokens, which Python makes: golden files and tokens
 * (tests/python/make_tokenizer_golden.py), and jobs. Skipped without the Python package
 * tokenizers.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/trainer.h>
#include <sonde/safetensors.h>

static char *golden(const char *name)
{
    static char paths[4][512];
    static int turn;
    char *path = paths[turn++ % 4];

    (void)snprintf(path, sizeof paths[0], "%s/golden/tokenizer/%s",
                   getenv("SONDE_TEST_DIR"), name);
    return path;
}

static sonde_nn_tokenizer *open_golden(const char *name)
{
    sonde_nn_tokenizer *tok = NULL;

    must(sonde_nn_tokenizer_open(golden(name), &tok, &engine_diag));
    return tok;
}

static void save_tokenizer(const sonde_nn_tokenizer *tok, const char *path)
{
    size_t size = 0;
    const char *json = sonde_nn_tokenizer_json(tok, &size);

    data_write(path, json, size);
}

/* A vocabulary of so many tokens of the corpus. */
static sonde_nn_tokenizer *train(int64_t vocabulary)
{
    sonde_nn_tokenizer *tok = NULL;
    size_t size = 0;
    unsigned char *text = data_read(golden("corpus.txt"), &size);

    must(sonde_nn_tokenizer_train((const char *)text, size, vocabulary, &tok,
                                  &engine_diag));
    free(text);
    return tok;
}

/* --- tokens --------------------------------------------------------------------------- */

/* The tokens of all texts are those of the tensors of a kind. */
static void expect_tokens(const sonde_nn_tokenizer *tok, const char *kind, int most)
{
    sonde_safetensors *file = NULL;
    int cases = 0;

    must(sonde_safetensors_open(golden("texts.safetensors"), &file, &engine_diag));
    for (; cases < most; cases++) {
        char name[32];
        int64_t tokens[256], wanted[256];
        const sonde_view *text = NULL, *ids = NULL;
        size_t count = 0;

        (void)snprintf(name, sizeof name, "text%02d", cases);
        text = sonde_safetensors_find(file, name);
        (void)snprintf(name, sizeof name, "%s%02d", kind, cases);
        ids = sonde_safetensors_find(file, name);
        assert_true(text != NULL && ids != NULL);
        memcpy(wanted, ids->data, (size_t)ids->shape[0] * sizeof *wanted);
        must(sonde_nn_tokenizer_encode(tok, text->data, (size_t)text->shape[0], tokens,
                                       &count, &engine_diag));
        if (count != (size_t)ids->shape[0] ||
            memcmp(tokens, wanted, count * sizeof *tokens) != 0) {
            fail_msg("%s: other tokens", name);
        }
    }
    assert_int_equal(cases, most);
    sonde_safetensors_destroy(file);
}

static void tokens_are_those_of_tokenizers(void **state)
{
    sonde_nn_tokenizer *tok = NULL;

    (void)state;
    tok = open_golden("tokenizer.json");
    assert_int_equal(sonde_nn_tokenizer_size(tok), 380);
    expect_tokens(tok, "special", 4);
    sonde_nn_tokenizer_destroy(tok);
    assert_int_equal(mkdir(data_path("pair"), 0700), 0);
    for (int i = 0; i < 2; i++) {
        static const char *const names[] = {"vocab.json", "merges.txt"};
        char to[64];
        size_t size = 0;
        unsigned char *bytes = data_read(golden(names[i]), &size);

        (void)snprintf(to, sizeof to, "pair/%s", names[i]);
        data_write(data_path(to), bytes, size);
        free(bytes);
    }
    must(sonde_nn_tokenizer_open(data_path("pair"), &tok, &engine_diag));
    expect_tokens(tok, "plain", 2);
    sonde_nn_tokenizer_destroy(tok);
}

/* What is learnt equals what tokenizers learn, and what is saved is read again. */
static void a_vocabulary_is_learnt(void **state)
{
    sonde_nn_tokenizer *tok = train(400), *again = NULL;

    (void)state;
    assert_int_equal(sonde_nn_tokenizer_size(tok), 384);
    expect_tokens(tok, "plain", 2);
    save_tokenizer(tok, data_path("own.json"));
    must(sonde_nn_tokenizer_open(data_path("own.json"), &again, &engine_diag));
    expect_tokens(again, "plain", 1);
    for (int64_t i = 0; i < 384; i++) {
        size_t a = 0, b = 0;
        const char *left = sonde_nn_tokenizer_token(tok, i, &a);
        const char *right = sonde_nn_tokenizer_token(again, i, &b);

        assert_int_equal(a, b);
        assert_memory_equal(left, right, a);
    }
    assert_null(sonde_nn_tokenizer_token(tok, 384, &(size_t){0}));
    assert_null(sonde_nn_tokenizer_token(tok, -1, &(size_t){0}));
    sonde_nn_tokenizer_destroy(tok);
    sonde_nn_tokenizer_destroy(again);
}

/* Any bytes come back, UTF-8 or not; added tokens are kept when a file is saved. */
static void any_bytes_come_back(void **state)
{
    sonde_nn_tokenizer *tok = open_golden("tokenizer.json"), *again = NULL;
    char text[4096];
    int64_t tokens[4096];
    size_t count = 0, place = 0;
    uint32_t seed = 1;

    (void)state;
    for (size_t i = 0; i < sizeof text; i++) {
        seed = seed * 1664525u + 1013904223u;
        text[i] = (char)(unsigned char)(i < 3000 ? seed >> 24 : 'a' + seed % 3 / 2);
    }
    must(sonde_nn_tokenizer_encode(tok, text, sizeof text, tokens, &count, &engine_diag));
    assert_true(count < sizeof text);
    for (size_t i = 0; i < count; i++) {
        size_t size = 0;
        const char *bytes = sonde_nn_tokenizer_token(tok, tokens[i], &size);

        assert_memory_equal(text + place, bytes, size);
        place += size;
    }
    assert_int_equal(place, sizeof text);
    save_tokenizer(tok, data_path("again.json"));
    must(sonde_nn_tokenizer_open(data_path("again.json"), &again, &engine_diag));
    expect_tokens(again, "special", 1);
    sonde_nn_tokenizer_destroy(again);
    sonde_nn_tokenizer_destroy(tok);
}

/* The text of a file is what the file has. */
static void a_text_is_a_file(void **state)
{
    sonde_nn_tokenizer *tok = train(300), *again = NULL;
    size_t size = 0, other_size = 0;
    const char *text = sonde_nn_tokenizer_json(tok, &size);

    (void)state;
    must(sonde_nn_tokenizer_parse(text, size, &again, &engine_diag));
    const char *other = sonde_nn_tokenizer_json(again, &other_size);

    assert_int_equal(size, other_size);
    assert_memory_equal(text, other, size);
    expect_err(SONDE_EFORMAT,
               sonde_nn_tokenizer_parse(text, size / 2, &again, &engine_diag));
    sonde_nn_tokenizer_destroy(tok);
    sonde_nn_tokenizer_destroy(again);
}

/* --- mistakes ------------------------------------------------------------------------- */

static void refused(sonde_err err, const char *text, const char *found)
{
    sonde_nn_tokenizer *tok = NULL;

    data_write(data_path("bad.json"), text, strlen(text));
    engine_diag = (sonde_diag){0};
    expect_err(err, sonde_nn_tokenizer_open(data_path("bad.json"), &tok, &engine_diag));
    if (strstr(engine_diag.found, found) == NULL) {
        fail_msg("'%s' instead of '%s'", engine_diag.found, found);
    }
}

static void mistakes_are_told(void **state)
{
    sonde_nn_tokenizer *tok = NULL;

    (void)state;
    refused(SONDE_EFORMAT, "[", "no JSON");
    refused(SONDE_EFORMAT, "{}", "it has no model");
    refused(SONDE_EUNSUPPORTED, "{\"model\": {\"type\": \"Unigram\"}}",
            "of another kind");
    refused(SONDE_EFORMAT,
            "{\"model\": {\"type\": \"BPE\", \"vocab\": {\"a\": 0}, \"merges\": []}, "
            "\"pre_tokenizer\": {\"type\": \"ByteLevel\", \"add_prefix_space\": false, "
            "\"trim_offsets\": true, \"use_regex\": true}}",
            "no token for byte");
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_tokenizer_open(data_path("none.json"), &tok, &engine_diag));
    expect_err(SONDE_ENOTFOUND, sonde_nn_tokenizer_open("/tmp", &tok, &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_tokenizer_train("a", 1, 255, &tok, &engine_diag));
}

/* --- jobs ----------------------------------------------------------------------------- */

static void a_model_has_as_many_tokens(void **state)
{
    const sonde_nn_tokenizer *tok = NULL;
    sonde_nn_dataset *bytes = NULL, *pairs = NULL;
    sonde_nn_job *job = NULL;

    (void)state;
    must(sonde_nn_job_builtin("gpt", &job, &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->classes, 256);
    must(sonde_nn_job_tokenizer(job, &tok, &engine_diag));
    assert_null(tok);
    must(sonde_nn_job_open_data(job, SONDE_NN_TEST, &bytes, &engine_diag));
    must(sonde_nn_job_set(job, "tokens", "bpe", &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->classes, 512);
    must(sonde_nn_job_set(job, "vocabulary", "300", &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->classes, 300);
    must(sonde_nn_job_open_data(job, SONDE_NN_TEST, &pairs, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(pairs)->classes, 300);
    assert_true(2 * sonde_nn_dataset_get_traits(pairs)->count <
                sonde_nn_dataset_get_traits(bytes)->count * 2 * 3 / 4);
    must(sonde_nn_job_set(job, "tokenizer", golden("tokenizer.json"), &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->classes, 380);
    must(sonde_nn_job_set(job, "tokenizer", "", &engine_diag));
    expect_err(SONDE_EINVAL, sonde_nn_job_set(job, "vocabulary", "10", &engine_diag));
    sonde_nn_dataset_destroy(bytes);
    sonde_nn_dataset_destroy(pairs);
    sonde_nn_job_destroy(job);
}

/* Whether Python has tokenizers. */
static bool has_tokenizers(void)
{
    sonde_nn_tokenizer *tok = NULL;
    const sonde_err err =
        sonde_nn_tokenizer_open(golden("tokenizer.json"), &tok, &engine_diag);

    sonde_nn_tokenizer_destroy(tok);
    return err != SONDE_ENOTFOUND;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tokens_are_those_of_tokenizers),
        cmocka_unit_test(a_vocabulary_is_learnt),
        cmocka_unit_test(any_bytes_come_back),
        cmocka_unit_test(a_text_is_a_file),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(a_model_has_as_many_tokens),
    };

    return has_tokenizers()
               ? cmocka_run_group_tests(tests, data_folder_make, data_folder_remove)
               : 77;
}
