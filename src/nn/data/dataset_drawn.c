/*
 * dataset_drawn.c - samples drawn at random, to time a network without data.
 *
 * Each number is a function of the seed, the array and its place alone.
 */
#include "base/fail.h"
#include "base/memory.h"
#include "base/random.h"
#include "nn/data/dataset.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

enum { LABELS_STREAM = SONDE_NN_FIELDS, COUNT_MAX = 1 << 24 };

/* A view (count, shape...) of new memory; data NULL: out of memory. */
static sonde_view make_view(const sonde_nn_field *field, int64_t count)
{
    const sonde_dtype dtype = field->dtype == SONDE_I64 ? SONDE_I64 : SONDE_F32;
    sonde_view view = {0};
    int64_t shape[1 + SONDE_NN_SAMPLE_DIMS] = {count};
    size_t bytes = sonde_dtype_size(dtype);

    for (int i = 0; i <= field->rank; i++) {
        shape[i] = i > 0 ? field->shape[i - 1] : count;
        if (shape[i] < 1 || !sonde__mul(bytes, (size_t)shape[i], &bytes)) {
            return view;
        }
    }
    return sonde_view_of(dtype, field->rank + 1, shape,
                         sonde__malloc_aligned(SONDE__ALIGN, bytes));
}

/* float32: standard normal; int64: 0 ... below - 1, each as likely as the others. */
static void draw(const sonde_view *view, uint64_t seed, uint64_t stream, int64_t below)
{
    const int64_t count = sonde_view_count(view);
    int64_t *ids = view->data;
    float *numbers = view->data;

    for (int64_t i = 0; i < count; i++) {
        if (view->dtype == SONDE_I64) {
            ids[i] = below > 1 ? (int64_t)sonde__below(seed, stream, (uint64_t)i,
                                                       (uint64_t)below)
                               : 0;
        } else {
            numbers[i] = sonde__normal(seed, stream, (uint64_t)i);
        }
    }
}

static sonde_err draw_data(const sonde_nn_dataset_options *options, sonde_nn_dataset *set,
                           sonde_diag *diag)
{
    const sonde_nn_field *field = &options->fields[0];
    const sonde_view view = make_view(field, options->count);
    sonde_err err = SONDE_OK;

    if (view.data == NULL) {
        return sonde__fail_nomem(diag, "samples to draw");
    }
    set->owned_data = view.data;
    draw(&view, options->seed, 0, options->id_count);
    err = sonde__dataset_set_data(set, &view, "synthetic data", diag);
    set->traits.rank = field->rank; /* (H, W) stays so */
    memcpy(set->traits.shape, field->shape, sizeof field->shape);
    set->traits.ready = true;
    return err;
}

static sonde_err draw_field(const sonde_nn_dataset_options *options,
                            const sonde_nn_field *field, sonde_nn_dataset *set,
                            sonde_diag *diag)
{
    const size_t k = set->traits.field_count;
    const sonde_view view = make_view(field, options->count);

    if (view.data == NULL) {
        return sonde__fail_nomem(diag, "samples to draw");
    }
    set->owned_fields[k] = view.data;
    draw(&view, options->seed, 1 + k, options->id_count);
    return sonde__dataset_add_field(set, field->name != NULL ? field->name : "", &view,
                                    diag);
}

static sonde_err draw_target(const sonde_nn_dataset_options *options,
                             sonde_nn_dataset *set, sonde_diag *diag)
{
    sonde_nn_field target = options->target_field;
    sonde_view view;

    if (options->numbers) {
        target.dtype = SONDE_F32;
        set->traits.has_target = true;
        return draw_field(options, &target, set, diag);
    }
    if (options->classes == 0) {
        return SONDE_OK;
    }
    target.dtype = SONDE_I64;
    view = make_view(&target, options->count);
    if (view.data == NULL) {
        return sonde__fail_nomem(diag, "samples to draw");
    }
    set->owned_labels = view.data;
    set->labels = set->owned_labels;
    draw(&view, options->seed, LABELS_STREAM, options->classes);
    set->traits.label_length =
        target.rank > 0 ? sonde_view_count(&view) / options->count : 0;
    set->traits.has_labels = true;
    set->traits.classes = options->classes;
    return SONDE_OK;
}

static sonde_err check(const sonde_nn_dataset_options *options, sonde_diag *diag)
{
    const size_t most = SONDE_NN_FIELDS - (options->numbers ? 1 : 0);

    if (options->count < 1 || options->count > COUNT_MAX) {
        return sonde__fail(diag, SONDE_ERANGE, "count", "1 to 16777216",
                           "%" PRId64 " samples", options->count);
    }
    if (options->field_count < 1 || options->field_count > most || options->classes < 0 ||
        options->id_count < 0 || options->target_field.rank < 0 ||
        options->target_field.rank > SONDE_NN_SAMPLE_DIMS) {
        return sonde__fail(diag, SONDE_EINVAL, "options", "at least one input",
                           "%zu inputs, %" PRId64 " classes, %" PRId64 " ids",
                           options->field_count, options->classes, options->id_count);
    }
    for (size_t i = 0; i < options->field_count; i++) {
        if (options->fields[i].rank < 1 ||
            options->fields[i].rank > SONDE_NN_SAMPLE_DIMS) {
            return sonde__fail(diag, SONDE_ESHAPE, "inputs", "1 to 3 dimensions a sample",
                               "input %zu has %d", i, options->fields[i].rank);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__data_draw(sonde__data_opening *o)
{
    const sonde_nn_dataset_options *options = o->options;
    SONDE__TRY(check(options, o->diag));
    SONDE__TRY(sonde__dataset_set_source(o->set, "synthetic data", o->diag));
    SONDE__TRY(draw_data(options, o->set, o->diag));
    for (size_t i = 1; i < options->field_count; i++) {
        SONDE__TRY(draw_field(options, &options->fields[i], o->set, o->diag));
    }
    return draw_target(options, o->set, o->diag);
}
