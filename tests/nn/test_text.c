/*
 * test_text.c - text as a data set of tokens, a language model as a job, and texts that
 * are continued.
 */
#include "nn/job/job.h"
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/trainer.h>

#include <math.h>
#include <sys/stat.h>

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_true(fputs(text, file) >= 0);
    assert_int_equal(fclose(file), 0);
}

/* --- data sets -------------------------------------------------------------------------- */

static void samples_follow_one_another(void **state)
{
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_TEXT, .length = 4};
    const sonde_nn_dataset_traits *traits = NULL;
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;

    (void)state;
    write_text(data_path("a.txt"), "abcdefghijklmnopqrst"); /* 18 and 2 */
    must(sonde_nn_dataset_open(data_path("a.txt"), &options, &set, &engine_diag));
    traits = sonde_nn_dataset_get_traits(set);
    assert_int_equal(traits->count, 4);
    assert_int_equal(traits->dtype, SONDE_I64);
    assert_int_equal(traits->shape[0], 4);
    assert_int_equal(traits->label_length, 4);
    assert_int_equal(traits->classes, 256);
    must(sonde_nn_dataset_get(set, 1, NULL, &sample, &engine_diag));
    assert_int_equal(((const int64_t *)sample.data)[0], 'e');
    assert_int_equal(sample.label, 'f');
    assert_int_equal(sample.labels[3], 'i');
    assert_int_equal(sonde_nn_dataset_label(set, 3), 'n');
    sonde_nn_dataset_destroy(set);
    options.split = SONDE_NN_TEST;
    expect_err(SONDE_ERANGE,
               sonde_nn_dataset_open(data_path("a.txt"), &options, &set, &engine_diag));
    options.test_share = 0.5;
    must(sonde_nn_dataset_open(data_path("a.txt"), &options, &set, &engine_diag));
    must(sonde_nn_dataset_get(set, 0, NULL, &sample, &engine_diag));
    assert_int_equal(((const int64_t *)sample.data)[0], 'k');
    sonde_nn_dataset_destroy(set);
}

/* Text that the grammar draws. */
static sonde_err draw(sonde_nn_dataset **out, uint64_t seed, int64_t bytes,
                      int64_t length)
{
    return sonde_nn_dataset_open(
        NULL,
        SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_TEXT_SYNTH, .seed = seed,
                      .count = bytes, .length = length),
        out, &engine_diag);
}

static void mistakes_are_told(void **state)
{
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_TEXT, .length = 0};
    sonde_nn_dataset *set = NULL;

    (void)state;
    write_text(data_path("b.txt"), "abc");
    expect_err(SONDE_EINVAL,
               sonde_nn_dataset_open(data_path("b.txt"), &options, &set, &engine_diag));
    expect_line("length: 0 tokens a sample (expected 1 to 1048576)");
    expect_err(SONDE_EINVAL, draw(&set, 1, 100, 0));
    options.length = 4;
    expect_err(SONDE_EINVAL, draw(&set, 1, 0, 4));
    options.test_share = 1.0;
    expect_err(SONDE_EINVAL,
               sonde_nn_dataset_open(data_path("b.txt"), &options, &set, &engine_diag));
    options.test_share = (double)NAN;
    expect_err(SONDE_EINVAL,
               sonde_nn_dataset_open(data_path("b.txt"), &options, &set, &engine_diag));
}

/* Bits a byte of the frequencies alone. */
static double entropy_of(const sonde_nn_dataset *set)
{
    const int64_t count = sonde_nn_dataset_get_traits(set)->count;
    double counts[256] = {0}, total = 0.0, bits = 0.0;

    for (int64_t i = 0; i < count; i++) {
        sonde_nn_sample sample;

        must(sonde_nn_dataset_get(set, i, NULL, &sample, &engine_diag));
        for (int64_t k = 0; k < sample.shape[0]; k++) {
            counts[((const int64_t *)sample.data)[k]] += 1.0;
            total += 1.0;
        }
    }
    for (int i = 0; i < 256; i++) {
        bits -= counts[i] > 0.0 ? counts[i] / total * log2(counts[i] / total) : 0.0;
    }
    return bits;
}

static void a_text_is_drawn_from_its_seed(void **state)
{
    sonde_nn_dataset *sets[3];
    sonde_nn_sample a, b;

    (void)state;
    for (uint64_t i = 0; i < 3; i++) {
        must(draw(&sets[i], i / 2, 50000, 64));
    }
    must(sonde_nn_dataset_get(sets[0], 500, NULL, &a, &engine_diag));
    must(sonde_nn_dataset_get(sets[1], 500, NULL, &b, &engine_diag));
    assert_memory_equal(a.data, b.data, 64 * sizeof(int64_t));
    must(sonde_nn_dataset_get(sets[2], 500, NULL, &b, &engine_diag));
    assert_memory_not_equal(a.data, b.data, 64 * sizeof(int64_t));
    assert_true(entropy_of(sets[0]) > 3.9 && entropy_of(sets[0]) < 4.3);
    for (int i = 0; i < 3; i++) {
        sonde_nn_dataset_destroy(sets[i]);
    }
}

static sonde_err open_text(void *user)
{
    const sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_TEXT, .length = 2};
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open(user, &options, &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static sonde_err draw_text(void *user)
{
    sonde_nn_dataset *set = NULL;
    const sonde_err err = draw(&set, 1, 200, 2);

    (void)user;
    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    write_text(data_path("c.txt"), "abcdefghijkl");
    assert_true(data_fail_allocations(open_text, data_path("c.txt")) > 3);
    assert_true(data_fail_allocations(draw_text, NULL) > 3);
}

/* A folder with a file for each split, and a folder with one for both. */
static void folders_hold_texts(void **state)
{
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_TEXT, .length = 2};
    sonde_nn_dataset *set = NULL;

    (void)state;
    assert_int_equal(mkdir(data_path("split"), 0700), 0);
    assert_int_equal(mkdir(data_path("whole"), 0700), 0);
    write_text(data_path("split/train.txt"), "abcdefgh");
    write_text(data_path("whole/input.txt"), "abcdefghijklmnopqrstuvwxyzabcd");
    must(sonde_nn_dataset_open(data_path("split"), &options, &set, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 3); /* all of it */
    sonde_nn_dataset_destroy(set);
    must(sonde_nn_dataset_open(data_path("whole"), &options, &set, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 13); /* 27 bytes */
    sonde_nn_dataset_destroy(set);
    options.split = SONDE_NN_TEST;
    must(sonde_nn_dataset_open(data_path("whole"), &options, &set, &engine_diag));
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 1); /* 3 bytes */
    sonde_nn_dataset_destroy(set);
    expect_err(SONDE_ENOTFOUND,
               sonde_nn_dataset_open(data_path("split"), &options, &set, &engine_diag));
}

/* --- a language model ------------------------------------------------------------------- */

static void expect_example(const char *name)
{
    char path[512], text[8192] = "";
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/../examples/%s.yaml", getenv("SONDE_TEST_DIR"),
                   name);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    (void)fclose(file);
    for (size_t i = 0; sonde_nn_job_builtin_name(i) != NULL; i++) {
        if (strcmp(sonde_nn_job_builtin_name(i), name) == 0) {
            assert_string_equal(sonde__job_builtin_text(name), text);
            return;
        }
    }
    fail_msg("no built-in %s", name);
}

static void examples_are_the_built_in_models(void **state)
{
    (void)state;
    expect_example("gpt");
    expect_example("lstm");
}

/* The pattern abcdefg repeats, at each place of a sample of 8 tokens. */
static const char tiny[] =
    "model:\n"
    "  input: [8]\n"
    "  dtype: int64\n"
    "  target: [8]\n"
    "  layers:\n"
    "    - embedding: {name: wte, num_embeddings: 256, embedding_dim: 16}\n"
    "    - positional_embedding: {name: wpe, num_embeddings: 8}\n"
    "    - transformer_encoder_layer: {name: h0, nhead: 2, dim_feedforward: 32,\n"
    "        is_causal: true}\n"
    "    - linear: {name: head, out_features: 256}\n"
    "  loss: {cross_entropy: {name: loss, dim: -1}}\n"
    "optimizer: {kind: adam, learning_rate: 0.01}\n"
    "rules: none\n"
    "options: {epochs: 3, batch_size: 8, eval_batch_size: 8}\n";

typedef struct said {
    char text[32];
    size_t count;
} said;

static bool hear(void *user, int64_t token)
{
    said *heard = user;

    heard->text[heard->count++] = (char)token;
    return heard->count < 16;
}

static void continue_pattern(sonde_nn_model *model)
{
    const int64_t prompt[] = {'c', 'd', 'e'}, foreign[] = {'c', 300};
    said heard = {.count = 0};
    sonde_nn_generate_options options = {
        .size = sizeof options, .count = 40, .take = hear, .user = &heard};

    must(sonde_nn_generate(model, prompt, 3, &options, &engine_diag));
    assert_string_equal(heard.text, "fgabcdefgabcdefg"); /* take ended it after 16 */
    options.count = 4;
    heard = (said){.count = 0};
    expect_err(SONDE_ERANGE,
               sonde_nn_generate(model, foreign, 2, &options, &engine_diag));
    expect_line("input: token id 300 at sample 0, position 1 (expected 0 to 255)");
    expect_err(SONDE_EINVAL, sonde_nn_generate(model, prompt, 0, &options, &engine_diag));
    options.temperature = -1.0F;
    expect_err(SONDE_EINVAL, sonde_nn_generate(model, prompt, 3, &options, &engine_diag));
    options.temperature = 0.0F;
    options.count = 0;
    expect_err(SONDE_EINVAL, sonde_nn_generate(model, prompt, 3, &options, &engine_diag));
}

static void keep_score(void *user, const sonde_nn_score *score,
                       const sonde_nn_confusion *matrix)
{
    assert_null(matrix);
    *(sonde_nn_score *)user = *score;
}

static void a_model_learns_a_pattern(void **state)
{
    sonde_nn_score score = {0};
    const sonde_nn_trainer_options options = {
        .size = sizeof options, .events = {.user = &score, .scored = keep_score}};
    sonde_nn_job *job = NULL;
    sonde_nn_trainer *trainer = NULL;
    char text[8 * 400 + 1];

    (void)state;
    for (size_t i = 0; i < sizeof text - 1; i++) {
        text[i] = (char)('a' + i % 7);
    }
    text[sizeof text - 1] = '\0';
    write_text(data_path("pattern.txt"), text);
    must(sonde_nn_job_parse(tiny, strlen(tiny), "job", &job, &engine_diag));
    sonde_nn_job_get_info(job)->data_path = data_path("pattern.txt");
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    assert_true(score.tokens);
    assert_false(score.classes);
    assert_true(score.accuracy > 0.99);
    assert_true(fabs(score.perplexity - exp(score.loss)) < 1e-9);
    continue_pattern(sonde_nn_trainer_get_info(trainer).model);
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
}

static void refused(const char *from, const char *to, const char *line)
{
    char text[2048];
    const char *place = strstr(tiny, from);
    sonde_nn_job *job = NULL;

    assert_non_null(place);
    (void)snprintf(text, sizeof text, "%.*s%s%s", (int)(place - tiny), tiny, to,
                   place + strlen(from));
    assert_int_not_equal(
        sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag), SONDE_OK);
    expect_line(line);
}

static void jobs_that_cannot_be(void **state)
{
    (void)state;
    refused(
        "nhead: 2", "nhead: 3",
        "job:8: h0: 3 heads over a width of 16 (expected heads that divide the width)");
    refused(
        "wpe, num_embeddings: 8", "wpe, num_embeddings: 5",
        "job:7: wpe: a sequence of 8 at 5 positions (expected at most num_embeddings)");
    refused("target: [8]", "target: [7]",
            "job:11: loss/NllWeighted: target is int64 (1, 7) (expected int64 (1, 8))");
    refused("dim: -1", "dim: 3",
            "job:11: dim 3 of an output of 3 dimensions (expected a dimension of the "
            "output after that of the batch)");
    refused("dtype: int64", "dtype: text",
            "job:3: dtype 'text' (expected float32, or int64 for tokens)");
    refused("dtype: int64", "dtype: float32",
            "job:6: wte/Embedding: ids has dtype float32 (expected int64)");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_follow_one_another),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(a_text_is_drawn_from_its_seed),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(folders_hold_texts),
        cmocka_unit_test(examples_are_the_built_in_models),
        cmocka_unit_test(a_model_learns_a_pattern),
        cmocka_unit_test(jobs_that_cannot_be),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
