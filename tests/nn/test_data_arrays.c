/*
 * test_data_arrays.c - NumPy's arrays and safetensors as data sets, and networks of
 * several inputs and of numbers that are trained on them. The .npz files were written by
 * NumPy and are seeds of the fuzzer.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/trainer.h>
#include <sonde/safetensors.h>

#include <math.h>

static char *seed_path(const char *name)
{
    static char paths[2][512];
    static int turn;
    char *path = paths[turn++ % 2];

    (void)snprintf(path, sizeof paths[0], "%s/fuzz/corpus/npz/%s",
                   getenv("SONDE_TEST_DIR"), name);
    return path;
}

static sonde_nn_dataset *open_arrays(const char *path,
                                     const sonde_nn_dataset_options *options)
{
    sonde_nn_dataset *set = NULL;

    must(sonde_nn_dataset_open(path, options, &set, &engine_diag));
    return set;
}

/* --- what is read --------------------------------------------------------------------- */

/* x[i] = 4 i ... 4 i + 3, y[i] = i mod 3; of six samples one is the test set. */
static void a_split_is_drawn(void **state)
{
    sonde_nn_dataset_options options = {.size = sizeof options,
                                        .kind = SONDE_NN_DATA_ARRAYS};
    bool seen[6] = {false};

    (void)state;
    for (int split = 0; split < 2; split++) {
        sonde_nn_dataset *set = NULL;
        const sonde_nn_dataset_traits *traits = NULL;

        options.split = (sonde_nn_split)split;
        set = open_arrays(seed_path("classes.npz"), &options);
        traits = sonde_nn_dataset_get_traits(set);
        assert_int_equal(traits->count, split == 0 ? 5 : 1);
        assert_int_equal(traits->rank, 1);
        assert_int_equal(traits->shape[0], 4);
        assert_int_equal(traits->classes, 3);
        for (int64_t i = 0; i < traits->count; i++) {
            sonde_nn_sample sample;
            int row = 0;

            must(sonde_nn_dataset_get(set, i, NULL, &sample, &engine_diag));
            row = (int)(((const float *)sample.data)[0] / 4.0F);
            assert_false(seen[row]);
            seen[row] = true;
            assert_true(((const float *)sample.data)[3] == (float)(4 * row + 3));
            assert_int_equal(sample.label, row % 3);
        }
        sonde_nn_dataset_destroy(set);
    }
}

/* Doubles in Fortran's order become rows of float32; the target is a field. */
static void a_target_of_numbers_is_a_field(void **state)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_ARRAYS,
                                              .numbers = true,
                                              .test_share = 0.5};
    sonde_nn_dataset *set = open_arrays(seed_path("fortran.npz"), &options);
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);

    (void)state;
    assert_true(traits->has_target && !traits->has_labels && traits->ready);
    assert_int_equal(traits->field_count, 1);
    assert_string_equal(traits->fields[0].name, "y");
    assert_int_equal(traits->fields[0].shape[0], 1);
    assert_int_equal(traits->count, 3);
    for (int64_t i = 0; i < traits->count; i++) {
        sonde_nn_sample sample;
        const float *x = NULL;

        must(sonde_nn_dataset_get(set, i, NULL, &sample, &engine_diag));
        x = sample.data;
        assert_true(x[1] == x[0] + 1.0F && x[3] == x[0] + 3.0F);
        assert_true(*(const float *)sample.fields[0] ==
                    (x[0] + x[1] + x[2] + x[3]) * 0.5F);
    }
    sonde_nn_dataset_destroy(set);
}

static void given_splits_are_used(void **state)
{
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_ARRAYS, .split = SONDE_NN_TEST};
    sonde_nn_dataset *set = open_arrays(seed_path("splits.npz"), &options);
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    sonde_nn_sample sample;

    (void)state;
    assert_int_equal(traits->count, 2);
    assert_int_equal(traits->dtype, SONDE_U8);
    assert_int_equal(traits->rank, 3); /* images (1, 2, 2) */
    assert_int_equal(traits->shape[0], 1);
    assert_false(traits->ready);
    must(sonde_nn_dataset_get(set, 1, NULL, &sample, &engine_diag));
    assert_int_equal(((const uint8_t *)sample.data)[3], 23);
    assert_int_equal(sample.label, 2);
    sonde_nn_dataset_destroy(set);
    options.matrices = true;
    set = open_arrays(seed_path("splits.npz"), &options);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->rank, 2);
    sonde_nn_dataset_destroy(set);
}

/* Tensors of a safetensors file in a folder for each split; ids and tokens. */
static void ids_and_positions(void **state)
{
    const int64_t shape[2] = {3, 2};
    int32_t ids[6] = {1, 2, 3, 4, 5, 6}, next[6] = {2, 3, 4, 5, 6, 7};
    const sonde_named_view views[] = {{"x", sonde_view_of(SONDE_I32, 2, shape, ids)},
                                      {"y", sonde_view_of(SONDE_I32, 2, shape, next)}};
    const sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_ARRAYS, .ids = {true}};
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;

    (void)state;
    assert_int_equal(mkdir(data_path("folder"), 0700), 0);
    must(sonde_safetensors_write(data_path("folder/train.safetensors"), views, 2, NULL, 0,
                                 &engine_diag));
    assert_true(sonde_nn_data_kind_at(data_path("folder")) == SONDE_NN_DATA_ARRAYS);
    set = open_arrays(data_path("folder"), &options);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->label_length, 2);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->classes, 8);
    must(sonde_nn_dataset_get(set, 2, NULL, &sample, &engine_diag));
    assert_int_equal(((const int64_t *)sample.data)[1], 6);
    assert_int_equal(sample.labels[1], 7);
    sonde_nn_dataset_destroy(set);
}

/* Fields come through a loader beside the data. */
static void a_loader_hands_fields_over(void **state)
{
    const sonde_nn_dataset_options arrays = {.size = sizeof arrays,
                                             .kind = SONDE_NN_DATA_ARRAYS,
                                             .numbers = true,
                                             .test_share = 0.4};
    sonde_nn_loader_options options = {
        .size = sizeof options, .batch = 2, .shuffle = true};
    sonde_nn_dataset *set = open_arrays(seed_path("fortran.npz"), &arrays);

    (void)state;
    for (options.workers = 0; options.workers < 3; options.workers++) {
        sonde_nn_loader *loader = NULL;

        must(sonde_nn_loader_create(set, &options, &loader, &engine_diag));
        assert_ptr_equal(sonde_nn_loader_get_info(loader).traits,
                         sonde_nn_dataset_get_traits(set));
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            sonde_nn_batch batch;

            sonde_nn_loader_start_epoch(loader, epoch);
            must(sonde_nn_loader_next(loader, &batch, &engine_diag));
            assert_int_equal(batch.count, 2);
            for (int i = 0; i < 2; i++) {
                const float *x = (const float *)batch.data + (ptrdiff_t)4 * i;

                assert_true(((const float *)batch.fields[0])[i] ==
                            (x[0] + x[1] + x[2] + x[3]) * 0.5F);
            }
        }
        sonde_nn_loader_destroy(loader);
    }
    sonde_nn_dataset_destroy(set);
}

/* --- mistakes ------------------------------------------------------------------------- */

static void expect_open(sonde_err err, const char *path,
                        const sonde_nn_dataset_options *options, const char *found)
{
    sonde_nn_dataset *set = NULL;

    engine_diag = (sonde_diag){0};
    expect_err(err, sonde_nn_dataset_open(path, options, &set, &engine_diag));
    if (strstr(engine_diag.found, found) == NULL) {
        fail_msg("'%s' instead of '%s'", engine_diag.found, found);
    }
}

static void mistakes_are_told(void **state)
{
    const char *names[] = {"z", NULL};
    sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_ARRAYS, .inputs = names};

    (void)state;
    options.input_count = 1;
    expect_open(SONDE_ENOTFOUND, seed_path("classes.npz"), &options, "no array 'z'");
    assert_string_equal(engine_diag.expected, "x, y");
    options.input_count = 0;
    expect_open(SONDE_EDTYPE, seed_path("fortran.npz"), &options, "'y' is float32");
    expect_open(SONDE_EFORMAT, seed_path("cut.npz"), &options, "no end of an archive");
    expect_open(SONDE_EFORMAT, seed_path("cut.npy"), &options, "cut short");
    expect_open(SONDE_EUNSUPPORTED, seed_path("record.npy"), &options, "records");
    expect_open(SONDE_EUNSUPPORTED, seed_path("big_endian.npy"), &options, "byte order");
    options.target = "";
    options.test_share = 1.0;
    expect_open(SONDE_EINVAL, seed_path("classes.npz"), &options, "it is 1");
    options.test_share = 0.0;
    names[0] = "x";
    names[1] = "x_test";
    options.input_count = 2;
    expect_open(SONDE_ESHAPE, seed_path("splits.npz"), &options, "'x_test' has shape");
    data_write(data_path("empty.npz"), "", 0);
    expect_open(SONDE_EFORMAT, data_path("empty.npz"), &options, "empty");
}

/* Every byte of an archive that is changed is noticed, or changes no more than a name that
 * nobody looks for: nothing is read beyond the file. */
static void damage_is_found(void **state)
{
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_ARRAYS};
    size_t size = 0, refused = 0;
    unsigned char *bytes = data_read(seed_path("classes.npz"), &size);

    (void)state;
    for (size_t i = 0; i < size; i += 7) {
        sonde_nn_dataset *set = NULL;

        bytes[i] ^= 0x41;
        data_write(data_path("damaged.npz"), bytes, size);
        bytes[i] ^= 0x41;
        refused += sonde_nn_dataset_open(data_path("damaged.npz"), &options, &set,
                                         NULL) != SONDE_OK
                       ? 1
                       : 0;
        sonde_nn_dataset_destroy(set);
    }
    assert_true(refused > size / 14);
    free(bytes);
}

static sonde_err open_any(void *user)
{
    const sonde_nn_dataset_options options = {
        .size = sizeof options, .kind = SONDE_NN_DATA_ARRAYS, .numbers = true};
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open(user, &options, &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(data_fail_allocations(open_any, seed_path("fortran.npz")) > 8);
}

/* --- training ------------------------------------------------------------------------- */

enum { ROWS = 240 };

/* y = 2 a - b + c, with a and b in one array, c in another. */
static void write_sums(const char *path)
{
    static float ab[ROWS][2], c[ROWS], y[ROWS];
    const int64_t two[2] = {ROWS, 2};
    const sonde_named_view views[] = {{"ab", sonde_view_of(SONDE_F32, 2, two, ab)},
                                      {"c", sonde_view_of(SONDE_F32, 1, two, c)},
                                      {"y", sonde_view_of(SONDE_F32, 1, two, y)}};

    for (int i = 0; i < ROWS; i++) {
        ab[i][0] = (float)(i % 7) / 3.0F - 1.0F;
        ab[i][1] = (float)(i % 11) / 5.0F - 1.0F;
        c[i] = (float)(i % 5) / 2.0F - 1.0F;
        y[i] = 2.0F * ab[i][0] - ab[i][1] + c[i];
    }
    must(sonde_safetensors_write(path, views, 3, NULL, 0, &engine_diag));
}

static const char sums[] = "model:\n"
                           "  inputs: {ab: [2], c: {shape: [1]}}\n"
                           "  layers:\n"
                           "    - cat: {name: all, from: [ab, c], dim: 1}\n"
                           "    - linear: {name: fc, out_features: 1}\n"
                           "  loss: {mse_loss: {target: values}}\n"
                           "optimizer: {kind: sgd, learning_rate: 0.1}\n"
                           "rules: none\n"
                           "options: {epochs: 12, batch_size: 8}\n";

typedef struct scored {
    sonde_nn_score score;
} scored;

static void on_scored(void *user, const sonde_nn_score *score,
                      const sonde_nn_confusion *matrix)
{
    assert_null(matrix);
    ((scored *)user)->score = *score;
}

static void a_job_learns_numbers_from_two_inputs(void **state)
{
    scored result = {.score = {.r2 = 0.0}};
    const sonde_nn_trainer_options options = {
        .size = sizeof options, .events = {.user = &result, .scored = on_scored}};
    sonde_nn_trainer *trainer = NULL;
    sonde_nn_job *job = NULL;

    (void)state;
    write_sums(data_path("sums.safetensors"));
    must(sonde_nn_job_parse(sums, sizeof sums - 1, "sums", &job, &engine_diag));
    assert_int_equal(sonde_nn_job_get_info(job)->input_count, 2);
    must(sonde_nn_job_set(job, "data", data_path("sums.safetensors"), &engine_diag));
    must(sonde_nn_trainer_create(job, &options, &trainer, &engine_diag));
    must(sonde_nn_trainer_run(trainer, &engine_diag));
    assert_int_equal(result.score.samples, ROWS / 10);
    assert_false(result.score.classes);
    assert_true(result.score.r2 > 0.999 && result.score.r2 <= 1.0);
    assert_true(result.score.error < 0.02);
    sonde_nn_trainer_destroy(trainer);
    sonde_nn_job_destroy(job);
}

/* The data of another network: a line that says what is wrong. */
static void data_that_does_not_fit_is_refused(void **state)
{
    sonde_nn_dataset *set = NULL;
    sonde_nn_job *job = NULL;

    (void)state;
    write_sums(data_path("sums.safetensors"));
    must(sonde_nn_job_parse(sums, sizeof sums - 1, "sums", &job, &engine_diag));
    must(sonde_nn_job_set(job, "data", data_path("sums.safetensors"), &engine_diag));
    must(sonde_nn_job_set(job, "data_inputs", "ab", &engine_diag));
    expect_err(SONDE_EINVAL,
               sonde_nn_job_open_data(job, SONDE_NN_TRAIN, &set, &engine_diag));
    expect_line("data: 1 inputs for a model of 2 (expected as many as the model has)");
    must(sonde_nn_job_set(job, "data_inputs", "ab", &engine_diag));
    expect_err(SONDE_ESHAPE,
               sonde_nn_job_open_data(job, SONDE_NN_TRAIN, &set, &engine_diag));
    assert_string_equal(engine_diag.expected, "(1), as the model has it");
    sonde_nn_job_destroy(job);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_split_is_drawn),
        cmocka_unit_test(a_target_of_numbers_is_a_field),
        cmocka_unit_test(given_splits_are_used),
        cmocka_unit_test(ids_and_positions),
        cmocka_unit_test(a_loader_hands_fields_over),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(damage_is_found),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_job_learns_numbers_from_two_inputs),
        cmocka_unit_test(data_that_does_not_fit_is_refused),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
