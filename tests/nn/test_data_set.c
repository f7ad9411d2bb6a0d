/*
 * test_data_set.c - data sets: from every source, found by name, described; and what is
 * wrong with them.
 */
#include "nn/data/dataset.h"
#include "nn/data_files.h"

#include <sonde/nn/dataset.h>

#include <math.h>

static void expect_line(const sonde_diag *diag, const char *words)
{
    char line[SONDE_DIAG_LINE];

    if (strstr(sonde_diag_line(diag, line, sizeof line), words) == NULL) {
        fail_msg("'%s' lacks '%s'", line, words);
    }
}

static void a_pair_of_idx_files_is_a_set(void **state)
{
    const char *const names[3] = {"zero", "one", "two"};
    const sonde_nn_dataset_options options = {.size = sizeof options,
                                              .kind = SONDE_NN_DATA_IDX,
                                              .label_path = data_path("l"),
                                              .classes = 3,
                                              .class_names = names};
    sonde_nn_dataset *set = NULL;
    const sonde_nn_dataset_traits *traits = NULL;
    sonde_nn_sample sample;
    sonde_diag diag = {0};

    (void)state;
    data_write_images(data_path("i.gz"), 7, true);
    data_write_labels(data_path("l"), 7, 3, false);
    assert_int_equal(sonde_nn_dataset_open(data_path("i.gz"), &options, &set, NULL),
                     SONDE_OK);
    traits = sonde_nn_dataset_get_traits(set);
    assert_int_equal(traits->count, 7);
    assert_int_equal(traits->dtype, SONDE_U8);
    assert_int_equal(traits->rank, 3);
    assert_int_equal(traits->shape[0], 1);
    assert_int_equal(traits->shape[1], 28);
    assert_int_equal(traits->classes, 3);
    assert_string_equal(traits->source, data_path("i.gz"));
    assert_string_equal(sonde_nn_dataset_class_name(set, 2), "two");
    assert_string_equal(sonde_nn_dataset_class_name(set, 3), "");
    assert_int_equal(sonde_nn_dataset_get_traits(set)->scratch, 0);
    assert_int_equal(sonde_nn_dataset_get(set, 5, NULL, &sample, NULL), SONDE_OK);
    assert_int_equal(sample.label, 2);
    assert_int_equal(sonde_nn_dataset_label(set, 5), 2);
    assert_int_equal(((const uint8_t *)sample.data)[3],
                     (uint8_t)((5 * 784 + 3) * 31 + 35));
    assert_int_equal(sonde_nn_dataset_get(set, 7, NULL, &sample, &diag), SONDE_ERANGE);
    expect_line(&diag, "sample 7 (expected 0 to 6)");
    assert_int_equal(sonde_nn_dataset_get(set, -1, NULL, &sample, &diag), SONDE_ERANGE);
    sonde_nn_dataset_destroy(set);
}

static void what_is_wrong_with_a_pair_is_found(void **state)
{
    sonde_nn_dataset_options three = {
        .size = sizeof three, .kind = SONDE_NN_DATA_IDX, .classes = 3};
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    (void)state;
    data_write_images(data_path("i"), 7, false);
    data_write_labels(data_path("six"), 6, 3, false);
    data_write_labels(data_path("five"), 7, 5, false);
    assert_int_equal(
        sonde_nn_dataset_open(data_path("i"),
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IDX,
                                            .label_path = data_path("six")),
                              &set, &diag),
        SONDE_ESHAPE);
    expect_line(&diag, "six: 6 labels (expected 7, as many as there are samples)");
    three.label_path = data_path("five");
    assert_int_equal(sonde_nn_dataset_open(data_path("i"), &three, &set, &diag),
                     SONDE_ERANGE);
    expect_line(&diag, "five: label 3 of sample 3 (expected 0 to 2)");
    assert_int_equal(
        sonde_nn_dataset_open(data_path("i"),
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IDX,
                                            .label_path = data_path("i")),
                              &set, &diag),
        SONDE_ESHAPE);
    expect_line(&diag, "labels have shape (7, 28, 28)");
    assert_int_equal(
        sonde_nn_dataset_open(data_path("six"),
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IDX),
                              &set, &diag),
        SONDE_ESHAPE);
    expect_line(&diag, "samples have shape (6)");
    assert_null(set);
    assert_int_equal(
        sonde_nn_dataset_open(data_path("i"),
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IDX,
                                            .label_path = data_path("five")),
                              &set, &diag),
        SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->classes, 5);
    sonde_nn_dataset_destroy(set);
}

static void other_dtypes_become_float(void **state)
{
    int16_t values[2][3] = {{-1, 0, 300}, {7, 8, 9}};
    const int64_t shape[2] = {2, 3};
    const sonde_view view = sonde_view_of(SONDE_I16, 2, shape, values);
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;

    (void)state;
    assert_int_equal(sonde__data_idx_write(data_path("i16"), &view, true, NULL),
                     SONDE_OK);
    assert_int_equal(
        sonde_nn_dataset_open(data_path("i16"),
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IDX),
                              &set, NULL),
        SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->dtype, SONDE_F32);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->rank, 1);
    assert_false(sonde_nn_dataset_get_traits(set)->has_labels);
    assert_int_equal(sonde_nn_dataset_get(set, 0, NULL, &sample, NULL), SONDE_OK);
    assert_int_equal(sample.label, SONDE_NN_NO_LABEL);
    assert_true(((const float *)sample.data)[2] == 300.0f);
    sonde_nn_dataset_destroy(set);
}

static void arrays_in_memory_are_borrowed(void **state)
{
    float values[4][6] = {{0}};
    int64_t labels[4] = {0, 1, 0, 4};
    const int64_t shape[3] = {4, 2, 3};
    sonde_view data = sonde_view_of(SONDE_F32, 3, shape, values);
    sonde_view classes = sonde_view_of(SONDE_I64, 1, shape, labels);
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data,
                                                         .labels = &classes),
                                           &set, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get(set, 3, NULL, &sample, NULL), SONDE_OK);
    assert_ptr_equal(sample.data, values[3]);
    assert_int_equal(sample.label, 4);
    assert_int_equal(sample.shape[2], 3);
    assert_string_equal(sonde__dataset_where(set, 3), "memory");
    sonde_nn_dataset_destroy(set);
    labels[2] = -4;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data,
                                                         .labels = &classes),
                                           &set, &diag),
                     SONDE_ERANGE);
    expect_line(&diag, "label -4 of sample 2 (expected 0 or more)");
    classes.dtype = SONDE_I32;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data,
                                                         .labels = &classes),
                                           &set, &diag),
                     SONDE_EDTYPE);
    data.dtype = SONDE_F64;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data),
                                           &set, &diag),
                     SONDE_EDTYPE);
    data.dtype = SONDE_F32;
    data.stride[1] = 1;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data),
                                           &set, &diag),
                     SONDE_EINVAL);
    data = sonde_view_of(SONDE_F32, 3, (const int64_t[]){0, 2, 3}, values);
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data),
                                           &set, &diag),
                     SONDE_EINVAL);
    expect_line(&diag, "the data set is empty");
}

/* two classes, three images; the folder's name is returned */
static const char *make_folder(const char *name, int channels, int width)
{
    char *path = data_path(name);

    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, DATA_PATH, "%s/%s/bags", data_folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, DATA_PATH, "%s/%s/ankle boots", data_folder, name);
    assert_int_equal(mkdir(path, 0777), 0);
    (void)snprintf(path, DATA_PATH, "%s/%s/bags/b.PNG", data_folder, name);
    data_write_png(path, channels, 4, width, 50);
    (void)snprintf(path, DATA_PATH, "%s/%s/bags/a.png", data_folder, name);
    data_write_png(path, 3, 4, 5, 20);
    (void)snprintf(path, DATA_PATH, "%s/%s/bags/notes.txt", data_folder, name);
    data_write(path, "x", 1);
    (void)snprintf(path, DATA_PATH, "%s/%s/ankle boots/z.png", data_folder, name);
    data_write_png(path, 3, 4, 5, 90);
    return data_path(name);
}

/* train has the classes ankle boots and bags, test also coats, and no bags. */
static void both_splits_share_their_labels(void **state)
{
    char root[DATA_PATH - 32], path[DATA_PATH], coats[DATA_PATH];
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    (void)state;
    (void)snprintf(root, sizeof root, "%s/split", data_folder);
    assert_int_equal(mkdir(root, 0777), 0);
    (void)make_folder("split/train", 3, 5);
    assert_true(sonde_nn_data_kind_at(root) == SONDE_NN_DATA_SPLIT);
    assert_int_equal(
        sonde_nn_dataset_open(root,
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_SPLIT,
                                            .split = SONDE_NN_TEST),
                              &set, &diag),
        SONDE_ENOTFOUND);
    expect_line(&diag, "split: has no folder 'test' (expected train and test)");
    (void)make_folder("split/test", 3, 5);
    (void)snprintf(path, sizeof path, "%s/test/bags", root);
    (void)snprintf(coats, sizeof coats, "%s/test/coats", root);
    assert_int_equal(rename(path, coats), 0);
    assert_int_equal(
        sonde_nn_dataset_open(root,
                              SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_SPLIT,
                                            .split = SONDE_NN_TEST),
                              &set, &diag),
        SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->classes, 3);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 3);
    assert_int_equal(sonde_nn_dataset_label(set, 0), 0);
    assert_int_equal(sonde_nn_dataset_label(set, 1), 2);
    assert_string_equal(sonde_nn_dataset_class_name(set, 2), "coats");
    sonde_nn_dataset_destroy(set);
    assert_int_equal(sonde_nn_dataset_open(
                         root,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_SPLIT),
                         &set, &diag),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->classes, 3);
    assert_int_equal(sonde_nn_dataset_label(set, 2), 1);
    sonde_nn_dataset_destroy(set);
}

static void a_folder_of_images_is_a_set(void **state)
{
    const char *folder = make_folder("folder", 3, 5);
    sonde_nn_dataset *set = NULL;
    const sonde_nn_dataset_traits *traits = NULL;
    sonde_nn_sample sample;
    sonde_diag diag = {0};
    void *scratch = NULL;
    static const int labels[3] = {0, 1, 1}, bases[3] = {90, 20, 50};

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(
                         folder,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, NULL),
                     SONDE_OK);
    traits = sonde_nn_dataset_get_traits(set);
    assert_int_equal(traits->count, 3);
    assert_int_equal(traits->classes, 2);
    assert_string_equal(traits->class_names[0], "ankle boots");
    assert_int_equal(traits->shape[0], 3);
    assert_int_equal(traits->shape[2], 5);
    assert_false(traits->varied_size);
    scratch = malloc(sonde_nn_dataset_get_traits(set)->scratch);
    for (int i = 0; i < 3; i++) {
        assert_int_equal(sonde_nn_dataset_get(set, i, scratch, &sample, NULL), SONDE_OK);
        assert_int_equal(sample.label, labels[i]);
        assert_int_equal(((const uint8_t *)sample.data)[26], bases[i] + 1 + 1 + 1);
    }
    assert_non_null(strstr(sonde__dataset_where(set, 1), "bags/a.png"));
    data_write_png(sonde__dataset_where(set, 1), 3, 4, 4, 20);
    assert_int_equal(sonde_nn_dataset_get(set, 1, scratch, &sample, &diag),
                     SONDE_EFORMAT);
    expect_line(&diag,
                "a.png: has changed to 4 x 4, 3 channels (expected 5 x 4, 3 channels)");
    data_write_png(sonde__dataset_where(set, 1), 3, 100, 100, 20);
    assert_int_equal(sonde_nn_dataset_get(set, 1, scratch, &sample, &diag),
                     SONDE_EFORMAT);
    expect_line(&diag, "has grown");
    assert_int_equal(unlink(sonde__dataset_where(set, 1)), 0);
    assert_int_equal(sonde_nn_dataset_get(set, 1, scratch, &sample, &diag),
                     SONDE_ENOTFOUND);
    free(scratch);
    sonde_nn_dataset_destroy(set);
}

static void a_mixed_folder_says_so(void **state)
{
    sonde_nn_dataset *set = NULL;

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(
                         make_folder("mixed", 1, 9),
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, NULL),
                     SONDE_OK);
    assert_true(sonde_nn_dataset_get_traits(set)->varied_size);
    assert_true(sonde_nn_dataset_get_traits(set)->varied_channels);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->shape[2], 9);
    sonde_nn_dataset_destroy(set);
}

static void what_is_wrong_with_a_folder_is_found(void **state)
{
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};
    char *path = data_path("bad");

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(
                         path,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(mkdir(path, 0777), 0);
    assert_int_equal(sonde_nn_dataset_open(
                         path,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, &diag),
                     SONDE_ENOTFOUND);
    expect_line(&diag, "has no sub-folders (expected one folder of images a class)");
    assert_int_equal(mkdir(data_path("bad/dress"), 0777), 0);
    assert_int_equal(sonde_nn_dataset_open(
                         path,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, &diag),
                     SONDE_ENOTFOUND);
    expect_line(&diag, "bad/dress: this class has no images");
    data_write(data_path("bad/dress/x.jpeg"), "GIF89a..", 8);
    assert_int_equal(sonde_nn_dataset_open(
                         path,
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER),
                         &set, &diag),
                     SONDE_EFORMAT);
    expect_line(&diag,
                "x.jpeg: begins with 47 49 46 38, 8 bytes (expected a PNG or JPEG");
    assert_null(set);
}

static void one_image_is_a_set(void **state)
{
    sonde_nn_dataset *set = NULL;
    sonde_nn_sample sample;
    sonde_diag diag = {0};

    (void)state;
    data_write_png(data_path("one.png"), 3, 6, 7, 11);
    assert_int_equal(sonde_nn_dataset_open(
                         data_path("one.png"),
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE),
                         &set, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->count, 1);
    assert_int_equal(sonde_nn_dataset_get(set, 0, NULL, &sample, NULL), SONDE_OK);
    assert_int_equal(sample.label, SONDE_NN_NO_LABEL);
    assert_int_equal(((const uint8_t *)sample.data)[2 * 42 + 8], 11 + 2 + 1 + 1);
    sonde_nn_dataset_destroy(set);
    data_write(data_path("one.png"), "nothing", 7);
    assert_int_equal(sonde_nn_dataset_open(
                         data_path("one.png"),
                         SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE),
                         &set, &diag),
                     SONDE_EFORMAT);
}

static void describing_counts_and_averages(void **state)
{
    uint8_t pixels[3][2][2][1] = {{{{0}, {255}}, {{51}, {51}}},
                                  {{{0}, {255}}, {{102}, {102}}},
                                  {{{0}, {255}}, {{51}, {51}}}};
    int64_t labels[3] = {2, 0, 2}, counts[3] = {9, 9, 9};
    const int64_t shape[4] = {3, 2, 2, 1};
    const sonde_view data = sonde_view_of(SONDE_U8, 4, shape, pixels);
    const sonde_view classes = sonde_view_of(SONDE_I64, 1, shape, labels);
    sonde_nn_dataset *set = NULL;
    sonde_nn_dataset_info info;

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data,
                                                         .labels = &classes),
                                           &set, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_describe(set, &info, counts, NULL), SONDE_OK);
    assert_int_equal(counts[0], 1);
    assert_int_equal(counts[1], 0);
    assert_int_equal(counts[2], 2);
    assert_int_equal(info.smallest, 0);
    assert_int_equal(info.largest, 2);
    assert_int_equal(info.channels, 2);
    assert_int_equal(info.bytes, 12);
    assert_true(fabs(info.mean[0] - 0.5) < 1e-12 && fabs(info.std[0] - 0.5) < 1e-12);
    assert_true(fabs(info.mean[1] - 0.8 / 3.0) < 1e-12);
    assert_true(fabs(info.std[1] - 0.2 * sqrt(2.0) / 3.0) < 1e-12);
    assert_true(info.min == 0.0 && info.max == 1.0);
    sonde_nn_dataset_destroy(set);
}

static void describing_floats_shows_nan(void **state)
{
    float values[2][2] = {{1.0f, 3.0f}, {5.0f, 7.0f}};
    const int64_t shape[2] = {2, 2};
    const sonde_view data = sonde_view_of(SONDE_F32, 2, shape, values);
    sonde_nn_dataset *set = NULL;
    sonde_nn_dataset_info info;

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &data),
                                           &set, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_describe(set, &info, NULL, NULL), SONDE_OK);
    assert_true(info.mean[0] == 4.0 && fabs(info.std[0] - sqrt(5.0)) < 1e-12);
    assert_true(info.min == 1.0 && info.max == 7.0);
    values[1][0] = NAN;
    assert_int_equal(sonde_nn_dataset_describe(set, &info, NULL, NULL), SONDE_OK);
    assert_true(isnan(info.mean[0]));
    sonde_nn_dataset_destroy(set);
}

static sonde_err open_folder(void *user)
{
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open(
        user, SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_FOLDER), &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static sonde_err open_image(void *user)
{
    sonde_nn_dataset *set = NULL;
    const sonde_err err = sonde_nn_dataset_open(
        user, SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_IMAGE), &set, NULL);

    sonde_nn_dataset_destroy(set);
    return err;
}

static void every_allocation_may_fail(void **state)
{
    (void)state;
    assert_true(data_fail_allocations(open_folder, data_path("mixed")) > 10);
    data_write_png(data_path("one.png"), 1, 2, 2, 11);
    assert_int_equal(data_fail_allocations(open_image, data_path("one.png")), 7);
}

static void known_sets_have_class_names(void **state)
{
    (void)state;
    assert_string_equal(sonde_nn_dataset_class_names("fashion-mnist")[1], "Trouser");
    assert_string_equal(sonde_nn_dataset_class_names("mnist")[9], "9");
    assert_null(sonde_nn_dataset_class_names("no-such-set"));
}

static void a_split_that_cannot_be_is_refused(void **state)
{
    const sonde_nn_split none = (sonde_nn_split)7;
    const sonde_nn_dataset_options text = {.size = sizeof text,
                                           .kind = SONDE_NN_DATA_TEXT,
                                           .length = 4,
                                           .split = (sonde_nn_split)7};
    uint8_t pixels[SONDE_NN_SYNTH_SIDE * SONDE_NN_SYNTH_SIDE] = {1};
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(
        sonde_nn_dataset_open(
            data_path("."),
            SONDE_OPTIONS(sonde_nn_dataset, .kind = SONDE_NN_DATA_SPLIT, .split = none),
            &set, &diag),
        SONDE_EINVAL);
    assert_int_equal(sonde_nn_dataset_open(
                         NULL,
                         SONDE_OPTIONS(sonde_nn_dataset, .name = "mnist", .split = none),
                         &set, &diag),
                     SONDE_EINVAL);
    expect_line(&diag, "split 7");
    assert_int_equal(sonde_nn_dataset_open(data_path("."), &text, &set, &diag),
                     SONDE_EINVAL);
    assert_int_equal(sonde_nn_synth_draw(0, none, 0, pixels), 0);
    assert_int_equal(sonde_nn_synth_draw(0, SONDE_NN_TRAIN, -5, pixels), 0);
    assert_int_equal(pixels[0], 1); /* nothing was drawn */
    assert_null(set);
}

static void infinities_have_no_mean(void **state)
{
    float values[4] = {1.0F, 2.0F, INFINITY, 4.0F};
    const int64_t shape[2] = {2, 2};
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, values);
    sonde_nn_dataset *set = NULL;
    sonde_nn_dataset_info info;

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(NULL,
                                           SONDE_OPTIONS(sonde_nn_dataset, .data = &view),
                                           &set, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_nn_dataset_describe(set, &info, NULL, NULL), SONDE_OK);
    assert_true(isnan(info.mean[0]) && isnan(info.std[0]));
    assert_true(info.min == 1.0 && info.max == 4.0); /* of the finite values */
    sonde_nn_dataset_destroy(set);
}

static void drawn_samples_have_the_forms_asked_for(void **state)
{
    sonde_nn_dataset_options options = {
        .size = sizeof options,
        .kind = SONDE_NN_DATA_SYNTH,
        .count = 500,
        .field_count = 2,
        .fields = {{"a", SONDE_F32, 2, {4, 5, 0}}, {"b", SONDE_I64, 1, {3, 0, 0}}},
        .id_count = 7,
        .classes = 3,
        .seed = 2};
    sonde_nn_dataset *set = NULL;
    sonde_diag diag = {0};
    sonde_nn_sample sample;
    double sum = 0.0;

    (void)state;
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, &diag), SONDE_OK);
    assert_int_equal(sonde_nn_dataset_get_traits(set)->rank, 2);
    for (int64_t i = 0; i < 500; i++) {
        assert_int_equal(sonde_nn_dataset_get(set, i, NULL, &sample, &diag), SONDE_OK);
        assert_in_range(sample.label, 0, 2);
        assert_in_range(((const int64_t *)sample.fields[0])[2], 0, 6);
        for (int k = 0; k < 20; k++) {
            sum += (double)((const float *)sample.data)[k];
        }
    }
    assert_true(fabs(sum / 1e4) < 0.05); /* five times the error of a mean of 10,000 */
    sonde_nn_dataset_destroy(set);
    options.numbers = true;
    options.target_field = (sonde_nn_field){"y", SONDE_F32, 1, {2, 0, 0}};
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, &diag), SONDE_OK);
    assert_true(sonde_nn_dataset_get_traits(set)->has_target);
    sonde_nn_dataset_destroy(set);
    options.count = 0;
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, &diag), SONDE_ERANGE);
    options.count = 1;
    options.fields[0].rank = 4;
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, &diag), SONDE_ESHAPE);
    options.field_count = 0;
    assert_int_equal(sonde_nn_dataset_open(NULL, &options, &set, &diag), SONDE_EINVAL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(drawn_samples_have_the_forms_asked_for),
        cmocka_unit_test(known_sets_have_class_names),
        cmocka_unit_test(a_pair_of_idx_files_is_a_set),
        cmocka_unit_test(what_is_wrong_with_a_pair_is_found),
        cmocka_unit_test(other_dtypes_become_float),
        cmocka_unit_test(arrays_in_memory_are_borrowed),
        cmocka_unit_test(a_folder_of_images_is_a_set),
        cmocka_unit_test(both_splits_share_their_labels),
        cmocka_unit_test(a_mixed_folder_says_so),
        cmocka_unit_test(what_is_wrong_with_a_folder_is_found),
        cmocka_unit_test(one_image_is_a_set),
        cmocka_unit_test(describing_counts_and_averages),
        cmocka_unit_test(describing_floats_shows_nan),
        cmocka_unit_test(every_allocation_may_fail),
        cmocka_unit_test(a_split_that_cannot_be_is_refused),
        cmocka_unit_test(infinities_have_no_mean),
    };

    return cmocka_run_group_tests(tests, data_folder_make, data_folder_remove);
}
