/*
 * dataset.c - the data set object: classes, fields, samples by index, parts of a set, and
 * statistics over all samples.
 *
 * Parts: selection sampling (Knuth, The Art of Computer Programming, vol. 2, 3.4.2,
 * algorithm S). One pass draws each sample with probability wanted / left, which gives
 * every choice the same chance and keeps the order.
 *
 * Statistics are vital signs, channel by channel, merged in order.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/random.h"

#include <sonde/stats.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

/* --- building ----------------------------------------------------------------------- */

sonde_err sonde__dataset_set_source(sonde_nn_dataset *set, const char *source,
                                    sonde_diag *diag)
{
    set->source = sonde__strdup(source);
    set->traits.source = set->source;
    return set->source != NULL ? SONDE_OK : sonde__fail_nomem(diag, "a data set");
}

sonde_err sonde__dataset_set_data(sonde_nn_dataset *set, const sonde_view *data,
                                  const char *where, sonde_diag *diag)
{
    sonde_nn_dataset_traits *traits = &set->traits;
    char text[96];

    if (data->rank < 2 || data->rank > 1 + SONDE_NN_SAMPLE_DIMS) {
        return sonde__fail(diag, SONDE_ESHAPE, where, "(N, F), (N, H, W) or (N, C, H, W)",
                           "samples have shape %s",
                           sonde_shape_text(data->rank, data->shape, text, sizeof text));
    }
    if (sonde_view_count(data) == 0) {
        return sonde__fail(diag, SONDE_EINVAL, where, "at least one sample",
                           "the data set is empty: shape %s",
                           sonde_shape_text(data->rank, data->shape, text, sizeof text));
    }
    traits->count = data->shape[0];
    traits->dtype = data->dtype;
    traits->rank = data->rank - 1;
    memcpy(traits->shape, data->shape + 1, (size_t)traits->rank * sizeof *traits->shape);
    if (traits->rank == 2) {
        traits->rank = 3;
        traits->shape[2] = traits->shape[1];
        traits->shape[1] = traits->shape[0];
        traits->shape[0] = 1;
    }
    set->data = data->data;
    set->sample_bytes =
        (size_t)(sonde_view_count(data) / traits->count) * sonde_dtype_size(data->dtype);
    return SONDE_OK;
}

sonde_err sonde__dataset_add_name(sonde_nn_dataset *set, const char *name,
                                  sonde_diag *diag)
{
    const size_t n = (size_t)set->traits.classes;

    if (name == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "class_names", "a name",
                           "class %zu is NULL", n);
    }
    if (!sonde__reserve(&set->names, &set->name_capacity, n + 1, sizeof *set->names)) {
        return sonde__fail_nomem(diag, "class names");
    }
    set->traits.class_names = (const char *const *)set->names;
    set->names[n] = sonde__strdup(name);
    if (set->names[n] == NULL) {
        return sonde__fail_nomem(diag, "class names");
    }
    set->traits.classes++;
    return SONDE_OK;
}

static sonde_err check_labels(const sonde_nn_dataset *set, int64_t classes,
                              const char *where, int64_t *largest, sonde_diag *diag)
{
    for (int64_t i = 0; i < set->traits.count; i++) {
        const int64_t label = set->labels[i];

        if (label < 0 || (classes > 0 && label >= classes)) {
            char expected[64];

            if (classes > 0) {
                (void)snprintf(expected, sizeof expected, "0 to %" PRId64, classes - 1);
            }
            return sonde__fail(diag, SONDE_ERANGE, where,
                               classes > 0 ? expected : "0 or more",
                               "label %" PRId64 " of sample %" PRId64, label, i);
        }
        *largest = SONDE_MAX(*largest, label);
    }
    return SONDE_OK;
}

sonde_err sonde__dataset_set_classes(sonde_nn_dataset *set,
                                     const sonde_nn_dataset_options *options,
                                     const char *where, sonde_diag *diag)
{
    int64_t largest = 0;

    if (options->classes < 0 || (options->class_names != NULL && options->classes == 0)) {
        return sonde__fail(diag, SONDE_EINVAL, where, "one name a class",
                           "%" PRId64 " classes", options->classes);
    }
    set->traits.has_labels = set->labels != NULL;
    if (!set->traits.has_labels) {
        return SONDE_OK;
    }
    SONDE__TRY(check_labels(set, options->classes, where, &largest, diag));
    if (options->class_names == NULL) {
        set->traits.classes = options->classes > 0 ? options->classes : largest + 1;
        return SONDE_OK;
    }
    for (int64_t i = 0; i < options->classes; i++) {
        SONDE__TRY(sonde__dataset_add_name(set, options->class_names[i], diag));
    }
    return SONDE_OK;
}

sonde_err sonde__dataset_add_field(sonde_nn_dataset *set, const char *name,
                                   const sonde_view *data, sonde_diag *diag)
{
    const size_t k = set->traits.field_count;
    sonde_nn_field *field = &set->traits.fields[k];

    set->field_names[k] = sonde__strdup(name);
    if (set->field_names[k] == NULL) {
        return sonde__fail_nomem(diag, "the name of an array");
    }
    *field = (sonde_nn_field){
        .name = set->field_names[k], .dtype = data->dtype, .rank = data->rank - 1};
    memcpy(field->shape, data->shape + 1, (size_t)field->rank * sizeof *field->shape);
    set->field_data[k] = data->data;
    set->field_bytes[k] = sonde__dataset_field_bytes(field);
    set->traits.field_count++;
    return SONDE_OK;
}

sonde_err sonde__dataset_set_all_classes(sonde_nn_dataset *set, int64_t count,
                                         const char *where, sonde_diag *diag)
{
    const int64_t each = SONDE_MAX(set->traits.label_length, (int64_t)1);
    int64_t largest = 0;

    for (int64_t i = 0; i < count; i++) {
        if (set->labels[i] < 0) {
            return sonde__fail(diag, SONDE_ERANGE, where, "0 or more",
                               "class %" PRId64 " of sample %" PRId64, set->labels[i],
                               i / each);
        }
        largest = SONDE_MAX(largest, set->labels[i]);
    }
    set->traits.has_labels = true;
    set->traits.classes = largest + (largest < INT64_MAX ? 1 : 0);
    return SONDE_OK;
}

void sonde_nn_dataset_destroy(sonde_nn_dataset *set)
{
    if (set == NULL) {
        return;
    }
    for (int64_t i = 0; set->files != NULL && i < set->traits.count; i++) {
        sonde__free(set->files[i].path);
    }
    for (int64_t i = 0; set->names != NULL && i < set->traits.classes; i++) {
        sonde__free(set->names[i]);
    }
    sonde__free(set->files);
    sonde__free(set->names);
    for (size_t i = 0; i < SONDE_NN_FIELDS; i++) {
        sonde__free(set->owned_fields[i]);
        sonde__free(set->field_names[i]);
    }
    sonde__data_arrays_destroy(set->arrays);
    sonde_nn_dataset_destroy(set->own_whole);
    sonde__free(set->chosen);
    sonde__free(set->owned_data);
    sonde__free(set->owned_labels);
    sonde__free(set->source);
    sonde__free(set);
}

/* --- reading ------------------------------------------------------------------------ */

const sonde_nn_dataset_traits *sonde_nn_dataset_get_traits(const sonde_nn_dataset *set)
{
    return &set->traits;
}

const char *sonde_nn_dataset_class_name(const sonde_nn_dataset *set, int64_t label)
{
    if (set == NULL) {
        return NULL;
    }
    const char *const *names = set->traits.class_names;

    return names != NULL && label >= 0 && label < set->traits.classes ? names[label] : "";
}

/* scratch: | the file | interleaved pixels | planar pixels |, each on 16 bytes */
static sonde_err get_image(const sonde_nn_dataset *set, int64_t index, void *scratch,
                           sonde_nn_sample *out, sonde_diag *diag)
{
    const sonde__data_image_file *file = &set->files[index];
    unsigned char *bytes = scratch;
    uint8_t *rows = bytes + SONDE__DATA_ROUND(set->file_bytes + 1);
    uint8_t *planar =
        file->info.channels == 1 ? rows : rows + SONDE__DATA_ROUND(set->sample_bytes);
    sonde__data_bytes all = {bytes, 0, file->path};
    sonde_err err =
        sonde__data_file_read(file->path, bytes, set->file_bytes + 1, &all.size, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (all.size > set->file_bytes) {
        err = sonde__fail(diag, SONDE_EFORMAT, file->path, NULL,
                          "has grown since the data set was opened");
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__data_image_read(&all, &file->info, rows, diag));
    if (planar != rows) {
        sonde__data_image_planar(&file->info, rows, planar);
    }
    out->data = planar;
    out->shape[0] = file->info.channels;
    out->shape[1] = file->info.height;
    out->shape[2] = file->info.width;
    return SONDE_OK;
}

/* The labels of a sample, of a set that has labels. */
static const int64_t *labels_at(const sonde_nn_dataset *set, int64_t index)
{
    const int64_t length = set->traits.label_length;

    return set->labels + index * (length > 0 ? length : 1);
}

sonde_err sonde_nn_dataset_get(const sonde_nn_dataset *set, int64_t index, void *scratch,
                               sonde_nn_sample *out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, set, out);
    sonde_nn_sample sample = {0};
    sonde_err err = SONDE_OK;

    if (index < 0 || index >= set->traits.count) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "0 to %" PRId64, set->traits.count - 1);
        return sonde__fail(diag, SONDE_ERANGE, set->traits.source, expected,
                           "sample %" PRId64, index);
    }
    if (set->whole != NULL) {
        return sonde_nn_dataset_get(set->whole, set->chosen[index], scratch, out, diag);
    }
    sample.label = set->labels != NULL ? *labels_at(set, index) : SONDE_NN_NO_LABEL;
    sample.labels = set->traits.label_length > 0 ? labels_at(set, index) : NULL;
    if (set->files != NULL) {
        err = get_image(set, index, scratch, &sample, diag);
    } else {
        sample.data = set->data + (size_t)index * set->sample_bytes;
        memcpy(sample.shape, set->traits.shape, sizeof sample.shape);
    }
    if (err != SONDE_OK) {
        return err;
    }
    for (size_t i = 0; i < set->traits.field_count; i++) {
        sample.fields[i] = set->field_data[i] + (size_t)index * set->field_bytes[i];
    }
    *out = sample;
    return SONDE_OK;
}

int64_t sonde_nn_dataset_label(const sonde_nn_dataset *set, int64_t index)
{
    if (set == NULL || index < 0 || index >= set->traits.count) {
        return SONDE_NN_NO_LABEL;
    }
    if (set->whole != NULL) {
        return sonde_nn_dataset_label(set->whole, set->chosen[index]);
    }
    return set->labels != NULL ? *labels_at(set, index) : SONDE_NN_NO_LABEL;
}

const char *sonde__dataset_where(const sonde_nn_dataset *set, int64_t index)
{
    if (set == NULL) {
        return NULL;
    }
    const bool inside = index >= 0 && index < set->traits.count;
    const bool file = set->files != NULL && inside;

    if (set->whole != NULL && inside) {
        return sonde__dataset_where(set->whole, set->chosen[index]);
    }
    return file ? set->files[index].path : set->traits.source;
}

/* === parts ========================================================================== */

enum { STREAM = 0x5350 }; /* "SP": of random numbers */

/* An empty part with room for count samples; NULL: out of memory. */
static sonde_nn_dataset *make_part(const sonde_nn_dataset *whole, int64_t count)
{
    sonde_nn_dataset *part = sonde__calloc(1, sizeof *part);

    if (part == NULL) {
        return NULL;
    }
    part->chosen = sonde__calloc((size_t)count, sizeof *part->chosen);
    if (part->chosen == NULL) {
        sonde__free(part);
        return NULL;
    }
    part->whole = whole;
    part->traits = whole->traits;
    part->traits.count = 0;
    return part;
}

static sonde_err check_count(const sonde_nn_dataset *set, int64_t count, bool rest,
                             sonde_diag *diag)
{
    const int64_t most = set->traits.count - (rest ? 1 : 0);
    char expected[64];

    if (count >= 1 && count <= most) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "1 to %" PRId64, most);
    return sonde__fail(diag, SONDE_ERANGE, set->traits.source, expected,
                       "a part of %" PRId64 " samples", count);
}

sonde_err sonde_nn_dataset_split(const sonde_nn_dataset *set, int64_t count,
                                 uint64_t seed, sonde_nn_dataset **part,
                                 sonde_nn_dataset **rest, sonde_diag *diag)
{
    SONDE__NEEDS(diag, set, part);
    const int64_t all = set->traits.count;
    sonde_nn_dataset *drawn = NULL, *left = NULL;
    SONDE__TRY(check_count(set, count, rest != NULL, diag));
    drawn = make_part(set, count);
    left = rest != NULL ? make_part(set, all - count) : NULL;
    if (drawn == NULL || (rest != NULL && left == NULL)) {
        sonde_nn_dataset_destroy(drawn);
        sonde_nn_dataset_destroy(left);
        return sonde__fail_nomem(diag, "a part of a data set");
    }
    for (int64_t i = 0; i < all; i++) {
        const uint64_t wanted = (uint64_t)(count - drawn->traits.count);
        const bool take =
            sonde__below(seed, STREAM, (uint64_t)i, (uint64_t)(all - i)) < wanted;
        sonde_nn_dataset *side = take ? drawn : left;

        if (side != NULL) {
            side->chosen[side->traits.count++] = i;
        }
    }
    *part = drawn;
    if (rest != NULL) {
        *rest = left;
    }
    return SONDE_OK;
}

int64_t sonde__dataset_test_count(const sonde_nn_dataset_options *draw, int64_t count)
{
    const double share = draw->test_share > 0.0 ? draw->test_share : 0.1;

    return SONDE_MIN(SONDE_MAX((int64_t)llround(share * (double)count), (int64_t)1),
                     count - 1);
}

sonde_err sonde__dataset_take_split(sonde_nn_dataset *set,
                                    const sonde_nn_dataset_options *draw,
                                    sonde_nn_dataset **out, sonde_diag *diag)
{
    const int64_t count = set->traits.count;
    sonde_nn_dataset *test = NULL, *train = NULL;
    sonde_err err = SONDE_OK;

    if (count < 2) {
        err = sonde__fail(diag, SONDE_ERANGE, set->traits.source, "at least 2",
                          "%" PRId64 " sample for two splits", count);
        sonde_nn_dataset_destroy(set);
        return err;
    }
    err = sonde_nn_dataset_split(set, sonde__dataset_test_count(draw, count), draw->seed,
                                 &test, &train, diag);
    if (err != SONDE_OK) {
        sonde_nn_dataset_destroy(set);
        return err;
    }
    *out = draw->split == SONDE_NN_TEST ? test : train;
    sonde_nn_dataset_destroy(draw->split == SONDE_NN_TEST ? train : test);
    (*out)->own_whole = set;
    return SONDE_OK;
}

const char *const sonde__data_split_names[] = {
    [SONDE_NN_TRAIN] = "train", [SONDE_NN_TEST] = "test"};

bool sonde__data_find_split(const char *folder, sonde_nn_split split,
                            const char *const *endings, size_t count,
                            char path[SONDE__DATA_PATH])
{
    for (size_t i = 0; i < count; i++) {
        const int length = snprintf(path, SONDE__DATA_PATH, "%s/%s%s", folder,
                                    sonde__data_split_names[split], endings[i]);

        if (length < SONDE__DATA_PATH && sonde__data_is_file(path)) {
            return true;
        }
    }
    return false;
}

/* === statistics ===================================================================== */

enum { CHANNELS_MAX = 4, BLOCK = 1024 };

typedef struct set_survey {
    const sonde_nn_dataset *set;
    int64_t channels;
    sonde_vitals vitals[CHANNELS_MAX];
    uint64_t bytes;
} set_survey;

/* The number of channels with separate statistics in a sample of this shape. */
static int64_t channels_of(const sonde_nn_dataset_traits *traits, const int64_t *shape)
{
    return traits->rank == 3 && shape[0] <= CHANNELS_MAX ? shape[0] : 1;
}

/* Adds count elements from place on. */
static void add_elements(sonde_vitals *vitals, sonde_dtype dtype, const void *data,
                         int64_t place, int64_t count)
{
    float block[BLOCK];

    for (int64_t at = 0; at < count; at += BLOCK) {
        const int64_t n = SONDE_MIN(count - at, (int64_t)BLOCK);
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &n, block);
        sonde_vitals part;

        for (int64_t i = 0; i < n; i++) {
            const size_t element = (size_t)(place + at + i);

            block[i] = dtype == SONDE_U8 ? (float)((const uint8_t *)data)[element]
                                         : ((const float *)data)[element];
        }
        sonde_vitals_of(&view, &part);
        sonde_vitals_merge(vitals, &part);
    }
}

static void add_sample(set_survey *survey, const sonde_nn_sample *sample)
{
    const sonde_nn_dataset_traits *traits = &survey->set->traits;
    const int64_t channels = channels_of(traits, sample->shape);
    int64_t count = 1;

    for (int i = 0; i < traits->rank; i++) {
        count *= sample->shape[i];
    }
    survey->bytes += (uint64_t)count * sonde_dtype_size(traits->dtype);
    for (int64_t c = 0; c < channels; c++) {
        add_elements(&survey->vitals[c], traits->dtype, sample->data,
                     c * (count / channels), count / channels);
    }
}

static void conclude(const set_survey *survey, sonde_nn_dataset_info *info)
{
    const double scale = survey->set->traits.dtype == SONDE_U8 ? 255.0 : 1.0;

    info->channels = survey->channels;
    info->bytes = survey->bytes;
    info->min = (double)INFINITY;
    info->max = -(double)INFINITY;
    for (int64_t c = 0; c < survey->channels; c++) {
        const sonde_vitals *vitals = &survey->vitals[c];
        const bool finite = sonde_vitals_get(vitals, SONDE_STAT_NONFINITE) == 0.0;

        info->mean[c] =
            finite ? sonde_vitals_get(vitals, SONDE_STAT_MEAN) / scale : (double)NAN;
        info->std[c] =
            finite ? sonde_vitals_get(vitals, SONDE_STAT_STD) / scale : (double)NAN;
        info->min = fmin(info->min, (double)vitals->min / scale);
        info->max = fmax(info->max, (double)vitals->max / scale);
    }
}

static void count_classes(const sonde_nn_dataset *set, int64_t *counts,
                          sonde_nn_dataset_info *info)
{
    info->smallest = set->traits.count;
    for (int64_t c = 0; c < set->traits.classes; c++) {
        counts[c] = 0;
    }
    for (int64_t i = 0; set->traits.has_labels && i < set->traits.count; i++) {
        counts[sonde_nn_dataset_label(set, i)]++;
    }
    for (int64_t c = 0; c < set->traits.classes; c++) {
        info->smallest = SONDE_MIN(info->smallest, counts[c]);
        info->largest = SONDE_MAX(info->largest, counts[c]);
    }
    info->smallest = set->traits.classes > 0 ? info->smallest : 0;
}

static sonde_err look_at_all(set_survey *survey, sonde_diag *diag)
{
    const sonde_nn_dataset *set = survey->set;
    void *scratch = sonde__malloc(set->traits.scratch);
    sonde_err err = SONDE_OK;

    if (scratch == NULL) {
        return sonde__fail_nomem(diag, "a sample");
    }
    for (int64_t i = 0; i < set->traits.count; i++) {
        sonde_nn_sample sample;

        SONDE__TRY_DONE(sonde_nn_dataset_get(set, i, scratch, &sample, diag));
        add_sample(survey, &sample);
    }

done:
    sonde__free(scratch);
    return err;
}

sonde_err sonde_nn_dataset_describe(const sonde_nn_dataset *set,
                                    sonde_nn_dataset_info *info, int64_t *class_counts,
                                    sonde_diag *diag)
{
    SONDE__NEEDS(diag, set, info);
    sonde_nn_dataset_info result = {0};
    set_survey *survey = sonde__calloc(1, sizeof *survey);
    int64_t *counts = sonde__calloc((size_t)set->traits.classes, sizeof *counts);
    sonde_err err = SONDE_OK;

    if (survey == NULL || counts == NULL) {
        err = sonde__fail_nomem(diag, "a description");
        goto done;
    }
    survey->set = set;
    survey->channels = channels_of(&set->traits, set->traits.shape);
    for (int c = 0; c < CHANNELS_MAX; c++) {
        sonde_vitals_init(&survey->vitals[c]);
    }
    SONDE__TRY_DONE(look_at_all(survey, diag));
    conclude(survey, &result);
    count_classes(set, counts, &result);
    if (class_counts != NULL) {
        memcpy(class_counts, counts, (size_t)set->traits.classes * sizeof *counts);
    }
    *info = result;
done:
    sonde__free(counts);
    sonde__free(survey);
    return err;
}
