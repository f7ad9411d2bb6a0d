/*
 * parts.c - see parts.h.
 */
#include "nn/data/parts.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/data/dataset.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

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

sonde_err sonde__dataset_check_share(double test_share, sonde_diag *diag)
{
    return test_share >= 0.0 && test_share < 1.0
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, "test_share", "0 to below 1", "it is %g",
                             test_share);
}

int64_t sonde__dataset_test_count(const sonde__data_draw *draw, int64_t count)
{
    const double share = draw->test_share > 0.0 ? draw->test_share : 0.1;

    return SONDE_MIN(SONDE_MAX((int64_t)llround(share * (double)count), (int64_t)1),
                     count - 1);
}

sonde_err sonde__dataset_take_split(sonde_nn_dataset *set, const sonde__data_draw *draw,
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
