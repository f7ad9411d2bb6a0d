/*
 * test_job_augment.c - jobs that augment their training samples, balance their classes,
 * and say how many threads load.
 */
#include "data_files.h"
#include "engine.h"

#include <sonde/nn/job.h>
#include <sonde/nn/trainer.h>

enum { COUNT = 40, SIDE = 4, PIXELS = SIDE * SIDE };

static const char network[] = "model:\n"
                              "  input: [1, 4, 4]\n"
                              "  layers:\n"
                              "    - flatten\n"
                              "    - linear: {name: fc, out_features: 2}\n"
                              "  loss: {cross_entropy: {name: loss%s}}\n"
                              "data: {path: pixels.npz, mean: 0, std: 1%s}\n"
                              "rules: none\n"
                              "options: {epochs: 2, batch_size: 8}\n";

static sonde_nn_job *job_of(const char *loss, const char *data)
{
    char text[1024];
    sonde_nn_job *job = NULL;

    (void)snprintf(text, sizeof text, network, loss, data);
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    return job;
}

/* Sample i has pixel p of value i + p; three of four labels are 0. */
static sonde_nn_dataset *pixels(void)
{
    static uint8_t data[COUNT][PIXELS];
    static int64_t labels[COUNT];
    const int64_t shape[3] = {COUNT, SIDE, SIDE};
    const sonde_view views[] = {sonde_view_of(SONDE_U8, 3, shape, data),
                                sonde_view_of(SONDE_I64, 1, shape, labels)};
    sonde_nn_dataset *set = NULL;

    for (int i = 0; i < COUNT; i++) {
        labels[i] = i % 4 == 3 ? 1 : 0;
        for (int p = 0; p < PIXELS; p++) {
            data[i][p] = (uint8_t)(i + p);
        }
    }
    must(sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &views[0], .labels = &views[1]),
        &set, &engine_diag));
    return set;
}

/* --- augmentation ----------------------------------------------------------------------- */

/* 0: as it is; 1: mirrored; 2: upside down; 3: both; -1: none of them. */
static int change_of(const float *sample, uint32_t index)
{
    for (int change = 0; change < 4; change++) {
        bool same = true;

        for (int p = 0; p < PIXELS; p++) {
            const int x = (change & 1) != 0 ? SIDE - 1 - p % SIDE : p % SIDE;
            const int y = (change & 2) != 0 ? SIDE - 1 - p / SIDE : p / SIDE;

            same = same && sample[p] == (float)((int)index + y * SIDE + x) / 255.0F;
        }
        if (same) {
            return change;
        }
    }
    return -1;
}

static void flips_are_of_training_alone(void **state)
{
    sonde_nn_job *job =
        job_of("", ", augment: [random_horizontal_flip, random_vertical_flip: {p: 0.5}]");
    sonde_nn_dataset *set = pixels();
    int seen[4] = {0};

    (void)state;
    for (int training = 0; training < 2; training++) {
        sonde_nn_loader *loader = NULL;
        sonde_nn_batch batch;

        must(sonde_nn_job_loader(job, set, COUNT, training == 1, &loader, &engine_diag));
        must(sonde_nn_loader_next(loader, &batch, &engine_diag));
        for (int i = 0; i < COUNT; i++) {
            const int change = change_of(
                (const float *)batch.data + (ptrdiff_t)i * PIXELS, batch.indices[i]);

            assert_true(change >= 0 && (training == 1 || change == 0));
            seen[change] += training;
        }
        sonde_nn_loader_destroy(loader);
    }
    assert_true(seen[0] > 2 && seen[1] > 2 && seen[2] > 2 && seen[3] > 2);
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(job);
}

/* The samples of an epoch depend on seed and epoch: neither on threads nor on what was
 * loaded before, as after a resume. */
static void the_same_bits_everywhere(void **state)
{
    static const char *const workers[] = {"0", "1", "3"};
    static float first[COUNT * PIXELS];
    sonde_nn_dataset *set = pixels();

    (void)state;
    for (size_t w = 0; w < 3; w++) {
        sonde_nn_job *job = job_of("", ", augment: [random_crop: {size: 4, padding: 1}, "
                                       "random_horizontal_flip: {p: 0.3}]");

        must(sonde_nn_job_set(job, "loader_workers", workers[w], &engine_diag));
        for (uint64_t before = 0; before < 3; before++) {
            sonde_nn_loader *loader = NULL;
            sonde_nn_batch batch;

            must(sonde_nn_job_loader(job, set, COUNT, true, &loader, &engine_diag));
            for (uint64_t epoch = before; epoch <= 2; epoch++) {
                sonde_nn_loader_start_epoch(loader, epoch);
                must(sonde_nn_loader_next(loader, &batch, &engine_diag));
            }
            if (w == 0 && before == 0) {
                memcpy(first, batch.data, sizeof first);
            }
            assert_memory_equal(batch.data, first, sizeof first);
            sonde_nn_loader_destroy(loader);
        }
        sonde_nn_job_destroy(job);
    }
    sonde_nn_dataset_destroy(set);
}

static void normalize_is_by_channel(void **state)
{
    sonde_nn_job *job = job_of("", ", augment: [normalize: {mean: [0.5], std: 0.25}]");
    const sonde_nn_transform transform = sonde_nn_job_normalize(job);
    sonde_nn_dataset *set = pixels();
    sonde_nn_loader *loader = NULL;
    sonde_nn_batch batch;

    (void)state;
    assert_int_equal(transform.channels, 1);
    must(sonde_nn_job_loader(job, set, 1, false, &loader, &engine_diag));
    must(sonde_nn_loader_next(loader, &batch, &engine_diag));
    assert_true(((const float *)batch.data)[2] == (2.0F / 255.0F - 0.5F) / 0.25F);
    sonde_nn_loader_destroy(loader);
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(job);
}

static void refused(const char *data, const char *line)
{
    char text[1024];
    sonde_nn_job *job = NULL;

    (void)snprintf(text, sizeof text, network, "", data);
    engine_diag = (sonde_diag){0};
    expect_err(SONDE_EINVAL,
               sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    expect_line(line);
}

static void mistakes_are_told(void **state)
{
    sonde_nn_job *job = NULL;
    sonde_nn_dataset *set = pixels();
    sonde_nn_loader *loader = NULL;

    (void)state;
    refused(", augment: flip", "job:7: augment is not a list (expected a list)");
    refused(", augment: [cutmix]",
            "job:7: augment by 'cutmix' (expected random_horizontal_flip, "
            "random_vertical_flip, random_crop or normalize, with a map of keys)");
    refused(", augment: [random_horizontal_flip: {p: 2}]",
            "job:7: p is 2 (expected 0 to 1)");
    refused(", augment: [random_horizontal_flip: {q: 1}]",
            "job:7: unknown key 'q' (expected p)");
    refused(", augment: [random_crop]",
            "job:7: random_crop has no such size (expected size: 32, or size: [height, "
            "width], up to 16384)");
    refused(", augment: [normalize: {mean: [0.1, 0.2], std: 1}]",
            "job:7: 2 means and 1 stds (expected as many)");
    refused(", augment: [normalize: {mean: 0, std: 0}]",
            "job:7: std is 0 (expected above 0)");
    job = job_of("", ", augment: [random_crop: {size: 3}]");
    expect_err(SONDE_ESHAPE,
               sonde_nn_job_loader(job, set, 8, true, &loader, &engine_diag));
    expect_line("memory: augment: samples of (1, 3, 3) (expected (1, 4, 4), as the model "
                "has it)");
    sonde_nn_job_destroy(job);
    sonde_nn_dataset_destroy(set);
}

/* What is printed is read again to the same transforms. */
static void options_print_the_list(void **state)
{
    static const char list[] =
        "  augment: [{\"random_crop\": {\"size\": [4, 4], \"padding\": 1}}, "
        "{\"random_vertical_flip\": {\"p\": 0.25}}, "
        "{\"normalize\": {\"mean\": [0.1], \"std\": [0.2]}}]\n";
    sonde_nn_job *job =
        job_of("", ", augment: [normalize: {mean: 0.1, std: 0.2}, random_crop: {size: "
                   "[4, 4], padding: 1}, random_vertical_flip: {p: 0.25}]");
    char *text = NULL;
    size_t size = 0;
    FILE *stream = open_memstream(&text, &size);

    (void)state;
    assert_non_null(stream);
    must(sonde_nn_job_print(job, false, stream, &engine_diag));
    assert_int_equal(fclose(stream), 0);
    assert_non_null(strstr(text, list));
    free(text);
    sonde_nn_job_destroy(job);
}

/* --- balanced classes --------------------------------------------------------------------- */

/* The loss of the first batch of a set in order. */
static double loss_of(sonde_nn_job *job, const sonde_nn_dataset *set)
{
    sonde_nn_evaluator *evaluator = NULL;
    sonde_nn_model *model = NULL;
    double loss = 0.0;

    must(sonde_nn_job_build(job, &model, &engine_diag));
    must(sonde_nn_evaluator_create(job, model,
                                   SONDE_OPTIONS(sonde_nn_evaluator, .set = set),
                                   &evaluator, &engine_diag));
    must(sonde_nn_evaluator_run(evaluator, &engine_diag));
    loss = sonde_nn_evaluator_score(evaluator).loss;
    sonde_nn_evaluator_destroy(evaluator);
    sonde_nn_model_destroy(model);
    return loss;
}

static void classes_are_balanced(void **state)
{
    sonde_nn_job *balanced = job_of(", weight: balanced", "");
    sonde_nn_job *listed = job_of(", weight: [0.6666667, 2]", "");
    sonde_nn_job *plain = job_of("", "");
    sonde_nn_dataset *set = pixels(); /* 30 of class 0, 10 of class 1 */

    (void)state;
    assert_true(sonde_nn_job_get_info(balanced)->balanced);
    assert_false(sonde_nn_job_get_info(listed)->balanced);
    assert_true(loss_of(balanced, set) == loss_of(plain, set)); /* equal until then */
    must(sonde_nn_job_balance(balanced, set, &engine_diag));
    must(sonde_nn_job_balance(plain, set, &engine_diag));
    assert_true(loss_of(balanced, set) == loss_of(listed, set));
    assert_true(loss_of(balanced, set) != loss_of(plain, set));
    sonde_nn_dataset_destroy(set);
    sonde_nn_job_destroy(balanced);
    sonde_nn_job_destroy(listed);
    sonde_nn_job_destroy(plain);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flips_are_of_training_alone),
        cmocka_unit_test(the_same_bits_everywhere),
        cmocka_unit_test(normalize_is_by_channel),
        cmocka_unit_test(mistakes_are_told),
        cmocka_unit_test(options_print_the_list),
        cmocka_unit_test(classes_are_balanced),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
