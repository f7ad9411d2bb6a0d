/*
 * smdebug_index.c - an index file of smdebug's: what was saved of a step; see smdebug.c.
 *
 *     {"meta": {"mode": "TRAIN", "mode_step": 3, "event_file_name": "events/..."},
 *      "tensor_payload": [{"tensorname", "start_idx", "length"}],
 *      "shape_payload": [{"tensorname", "originalname", "shape"}]}
 *
 * Dtype and shape are in the records themselves: the first record of a tensor is read for
 * the catalogue, a value's own when it is asked for. Payloads are taken in two passes:
 *
 *     1  values                  a raw item each
 *     2  smdebug/reductions/...  statistics of a tensor: a row item for each tensor that
 *                                has no value in this file
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"
#include "trial/smdebug.h"
#include "observe/tensor_roles.h"
#include "trial/trial_state.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#define REDUCTIONS "smdebug/reductions/"
#define NO_SHAPE "only statistics of it were saved; its shape was not"

typedef struct index_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
    const json_t *object;
    int64_t step;
    sonde_mode mode;
    int64_t mode_step;
    uint32_t index; /* of the step */
    sonde__trial_file *file;
} index_reader;

/* A payload whose fields have been checked. */
typedef struct payload {
    const char *name;
    uint64_t offset, bytes;
} payload;

static uint32_t segment_of(const index_reader *reader)
{
    return (uint32_t)(reader->file - reader->worker->files[SONDE__FILE_SEGMENT].items);
}

static bool read_payload(const json_t *object, payload *out)
{
    const char *name = json_string_value(json_object_get(object, "tensorname"));
    const json_t *start = json_object_get(object, "start_idx");
    const json_t *length = json_object_get(object, "length");

    if (name == NULL || name[0] == '\0' || strlen(name) > SONDE__MOST_NAME ||
        !json_is_integer(start) || json_integer_value(start) < 0 ||
        !json_is_integer(length) || json_integer_value(length) < 0 ||
        json_integer_value(length) > INT64_MAX - json_integer_value(start)) {
        return false;
    }
    *out = (payload){name, (uint64_t)json_integer_value(start),
                     (uint64_t)json_integer_value(length)};
    return true;
}

static const json_t *payloads_of(const index_reader *reader)
{
    return json_object_get(reader->object, "tensor_payload");
}

/* --- declaring -------------------------------------------------------------------- */

/* Whether a module is the root: its parameters are called Net_fc1.weight. */
static bool is_root(const sonde_trial *trial, const char *module, size_t length)
{
    for (uint32_t id = 0; id < sonde_catalogue_count(trial->catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(trial->catalogue, id);

        if ((info->role == SONDE_ROLE_WEIGHT || info->role == SONDE_ROLE_BIAS) &&
            strncmp(info->name, module, length) == 0 && info->name[length] == '_') {
            return true;
        }
    }
    return false;
}

/* Net_input_0 is an input of the program. */
static void find_program_input(const index_reader *reader, sonde_tensor_info *info)
{
    const char *tail = strstr(info->name, "_input_");

    if (info->role == SONDE_ROLE_ACTIVATION && tail != NULL &&
        is_root(reader->trial, info->name, (size_t)(tail - info->name))) {
        info->role = SONDE_ROLE_INPUT;
        info->pass = SONDE_PASS_NONE;
    }
}

/* Finds the payload of that name in the index file. */
static bool find_payload(const index_reader *reader, const char *name, payload *out)
{
    const json_t *payloads = payloads_of(reader);

    for (size_t i = 0; i < json_array_size(payloads); i++) {
        if (read_payload(json_array_get(payloads, i), out) &&
            strcmp(out->name, name) == 0) {
            return true;
        }
    }
    return false;
}

/* Whether output is max(input, 0) of an input with negative elements. Either may be
 * unaligned. */
static bool is_rectified(const unsigned char *input, const unsigned char *output,
                         size_t bytes)
{
    bool negative = false;

    for (size_t at = 0; at < bytes; at += sizeof(float)) {
        float in = 0.0F, out = 0.0F;

        memcpy(&in, input + at, sizeof in);
        memcpy(&out, output + at, sizeof out);
        if (out != (in > 0.0F ? in : 0.0F)) {
            return false;
        }
        negative = negative || in < 0.0F;
    }
    return negative;
}

/* A module whose name does not tell its op (net.1) is a ReLU if its first output is that
 * of a ReLU for its first input. view: the output. */
static void find_relu(const index_reader *reader, const sonde_view *view,
                      sonde_tensor_info *info)
{
    char name[SONDE__MOST_NAME + 16];
    const char *tail = strstr(info->name, "_output_0");
    const size_t bytes = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);
    payload input;
    sonde_view inner;

    if (info->op != NULL && info->op[0] != '\0') {
        return;
    }
    if (tail == NULL || tail[9] != '\0' || view->dtype != SONDE_F32 || bytes == 0) {
        return;
    }
    (void)snprintf(name, sizeof name, "%.*s_input_0", (int)(tail - info->name),
                   info->name);
    if (!find_payload(reader, name, &input)) {
        return;
    }
    unsigned char *output = sonde__malloc(bytes);
    if (output == NULL) {
        return; /* the op stays unknown */
    }
    memcpy(output, view->data, bytes);
    if (sonde__smdebug_read_tensor(reader->trial, reader->worker, reader->file,
                                   input.offset, input.bytes, name, &inner,
                                   NULL) == SONDE_OK &&
        inner.dtype == SONDE_F32 && sonde_view_same_shape(&inner, view) &&
        is_rectified(inner.data, output, bytes)) {
        info->op = "relu";
    }
    sonde__free(output);
}

/* The tensor of a payload, declared with the dtype and shape of this, its first
 * record. */
static sonde_err declare_tensor(const index_reader *reader, const payload *from,
                                uint32_t *tensor)
{
    sonde_tensor_info info = {.name = from->name,
                              .role = SONDE_ROLE_OTHER,
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR};
    sonde_view view;
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    if (sonde__trial_known(reader->trial, from->name, tensor)) {
        return SONDE_OK;
    }
    err = sonde__smdebug_read_tensor(reader->trial, reader->worker, reader->file,
                                     from->offset, from->bytes, from->name, &view, &why);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(reader->diag, "a tensor");
    }
    if (err != SONDE_OK) {
        info.note = "its dtype and shape could not be read";
        sonde__observe_guess(&info);
        return sonde__trial_declare(reader->trial, &info, tensor, reader->diag);
    }
    info.dtype = view.dtype;
    info.rank = view.rank;
    memcpy(info.shape, view.shape, sizeof info.shape);
    sonde__observe_guess(&info);
    find_program_input(reader, &info);
    find_relu(reader, &view, &info);
    return sonde__trial_declare(reader->trial, &info, tensor, reader->diag);
}

/* --- values ----------------------------------------------------------------------- */

static sonde_err take_value(const index_reader *reader, const payload *from)
{
    sonde__trial_raw_item item = {.item = {.step = reader->index},
                                  .layout = SONDE__FOREIGN,
                                  .offset = from->offset,
                                  .bytes = from->bytes,
                                  .segment = segment_of(reader)};
    SONDE__TRY(declare_tensor(reader, from, &item.item.tensor));
    SONDE__TRY(sonde__trial_worker_add(reader->trial, reader->worker, SONDE_FORM_RAW,
                                       &item.item, reader->diag));
    reader->trial->bytes += item.bytes;
    return SONDE_OK;
}

/* --- groups ----------------------------------------------------------------------- */

static sonde_err add_record(const index_reader *reader,
                            const sonde__smdebug_record *record)
{
    sonde__smdebug *smdebug = reader->trial->smdebug;

    if (!sonde__reserve(&smdebug->records, &smdebug->record_capacity,
                        smdebug->record_count + 1, sizeof *smdebug->records)) {
        return sonde__fail_nomem(reader->diag, "the index of a run");
    }
    smdebug->records[smdebug->record_count++] = *record;
    return SONDE_OK;
}

/* A group of the records from first on; *number is its index. */
static sonde_err add_group(const index_reader *reader, size_t first, uint32_t tensor,
                           uint32_t *number)
{
    sonde__smdebug *smdebug = reader->trial->smdebug;

    if (smdebug->group_count >= UINT32_MAX ||
        !sonde__reserve(&smdebug->groups, &smdebug->group_capacity,
                        smdebug->group_count + 1, sizeof *smdebug->groups)) {
        return sonde__fail_nomem(reader->diag, "the index of a run");
    }
    *number = (uint32_t)smdebug->group_count;
    smdebug->groups[smdebug->group_count++] =
        (sonde__smdebug_group){.first = first,
                               .count = (uint32_t)(smdebug->record_count - first),
                               .segment = segment_of(reader),
                               .tensor = tensor};
    return SONDE_OK;
}

/* The name after smdebug/reductions/<reduction>/, and the reduction; NULL: another name.
 */
static const char *base_of(const char *name, int8_t *reduction)
{
    const char *rest = name + sizeof REDUCTIONS - 1;

    if (strncmp(name, REDUCTIONS, sizeof REDUCTIONS - 1) != 0) {
        return NULL;
    }
    for (int i = 0; i < SONDE__SMDEBUG_REDUCTIONS; i++) {
        const size_t length = strlen(sonde__smdebug_reductions[i]);

        if (strncmp(rest, sonde__smdebug_reductions[i], length) == 0 &&
            rest[length] == '/' && rest[length + 1] != '\0') {
            *reduction = (int8_t)i;
            return rest + length + 1;
        }
    }
    return NULL;
}

/* The shape that shape_payload gives a tensor. */
static bool find_shape(const index_reader *reader, const char *name,
                       sonde_tensor_info *info)
{
    const json_t *shapes = json_object_get(reader->object, "shape_payload");
    size_t i = 0;
    const json_t *entry = NULL;

    json_array_foreach(shapes, i, entry)
    {
        const char *listed = json_string_value(json_object_get(entry, "tensorname"));
        const json_t *shape = json_object_get(entry, "shape");

        if (listed == NULL || strcmp(listed, name) != 0 ||
            json_array_size(shape) > SONDE_MAX_DIMS) {
            continue;
        }
        info->rank = (int)json_array_size(shape);
        for (int d = 0; d < info->rank; d++) {
            info->shape[d] = json_integer_value(json_array_get(shape, (size_t)d));
        }
        return true;
    }
    return false;
}

/* The tensor that statistics are of. smdebug drops ":0" from its name. */
static sonde_err declare_base(const index_reader *reader, const char *name,
                              uint32_t *tensor)
{
    sonde_tensor_info info = {.name = name,
                              .role = SONDE_ROLE_OTHER,
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR};

    if (sonde__trial_known(reader->trial, name, tensor)) {
        return SONDE_OK;
    }
    sonde__observe_guess(&info);
    if (!find_shape(reader, name, &info)) {
        info.note = NO_SHAPE;
        if (strstr(name, "weight") != NULL || strstr(name, "kernel") != NULL) {
            info.rank = 2; /* rules judge matrices, and a weight is one in most cases */
            info.shape[0] = info.shape[1] = 1;
        }
    }
    return sonde__trial_declare(reader->trial, &info, tensor, reader->diag);
}

/* A payload and what it belongs to. */
typedef struct member {
    payload from;
    const char *base; /* the tensor that the statistic is of */
    int8_t reduction;
} member;

/* Adds the members of one tensor, from the first of them on. */
static sonde_err take_statistics(const index_reader *reader, const member *members,
                                 size_t begin, size_t count, bool *taken)
{
    const sonde__smdebug *smdebug = reader->trial->smdebug;
    const size_t first = smdebug->record_count;
    sonde__trial_row_item item = {.item = {.step = reader->index}};

    SONDE__TRY(declare_base(reader, members[begin].base, &item.item.tensor));
    for (size_t i = begin; i < count; i++) {
        if (taken[i] || strcmp(members[i].base, members[begin].base) != 0) {
            continue;
        }
        taken[i] = true;
        SONDE__TRY(add_record(reader, &(sonde__smdebug_record){
                                          members[i].from.offset, members[i].from.bytes,
                                          item.item.tensor, members[i].reduction}));
    }
    if (find_payload(reader, members[begin].base, &(payload){0})) {
        return SONDE_OK; /* the value itself is there, and says more */
    }
    SONDE__TRY(add_group(reader, first, item.item.tensor, &item.row));
    return sonde__trial_worker_add(reader->trial, reader->worker, SONDE_FORM_VITALS,
                                   &item.item, reader->diag);
}

/* --- the file --------------------------------------------------------------------- */

static void read_meta(index_reader *reader, const json_t *meta)
{
    const char *mode = json_string_value(json_object_get(meta, "mode"));
    const json_t *step = json_object_get(meta, "mode_step");

    reader->mode = SONDE_MODE_GLOBAL;
    for (int m = 0; mode != NULL && m < SONDE_MODE_COUNT; m++) {
        if (sonde__strcasecmp(mode, sonde_mode_name((sonde_mode)m)) == 0) {
            reader->mode = (sonde_mode)m;
        }
    }
    reader->mode_step = json_is_integer(step) && json_integer_value(step) >= 0
                            ? json_integer_value(step)
                            : reader->step;
}

/* The event file that the index names, as an entry of the worker's files. */
static sonde_err find_file(index_reader *reader, const json_t *meta)
{
    const char *name = json_string_value(json_object_get(meta, "event_file_name"));
    char usual[SONDE__PATH];

    reader->file = sonde__trial_file_numbered(&reader->worker->files[SONDE__FILE_SEGMENT],
                                              (uint64_t)reader->step);
    if (reader->file == NULL) {
        return sonde__fail_nomem(reader->diag, "the files of a run");
    }
    if (name == NULL || reader->file->name != NULL ||
        strcmp(name, sonde__smdebug_event_name(reader->worker, reader->step, usual)) ==
            0) {
        return SONDE_OK;
    }
    if (name[0] == '/' || strstr(name, "..") != NULL) {
        sonde__trial_damage(&reader->trial->damage, reader->where,
                            "it names an event file outside the run");
        return SONDE_OK;
    }
    reader->file->name = sonde__strdup(name);
    return reader->file->name != NULL
               ? SONDE_OK
               : sonde__fail_nomem(reader->diag, "the files of a run");
}

/* When the first value of the step was made. */
static int64_t time_of(const index_reader *reader)
{
    const json_t *first = json_array_get(payloads_of(reader), 0);
    payload from;

    return reader->file != NULL && read_payload(first, &from)
               ? sonde__smdebug_read_time(reader->trial, reader->worker, reader->file,
                                          from.offset)
               : 0;
}

static void note_time(sonde__smdebug *smdebug, int64_t time)
{
    if (time > 0) {
        smdebug->first_time =
            smdebug->first_time > 0 ? SONDE_MIN(smdebug->first_time, time) : time;
        smdebug->last_time = SONDE_MAX(smdebug->last_time, time);
    }
}

/* The payloads of a file, by kind. */
typedef struct sorted_payloads {
    payload *values;
    member *statistics;
    bool *taken; /* by statistic */
    size_t value_count, statistic_count;
} sorted_payloads;

static void sort_payloads(const index_reader *reader, sorted_payloads *out)
{
    const json_t *payloads = payloads_of(reader);

    for (size_t i = 0; i < json_array_size(payloads); i++) {
        payload one;
        member statistic = {.reduction = -1};

        if (!read_payload(json_array_get(payloads, i), &one)) {
            sonde__trial_damage(&reader->trial->damage, reader->where,
                                "a tensor_payload without name or extent");
            continue;
        }
        statistic.base = base_of(one.name, &statistic.reduction);
        statistic.from = one;
        if (statistic.base != NULL) {
            out->statistics[out->statistic_count++] = statistic;
        } else {
            out->values[out->value_count++] = one;
        }
    }
}

static sonde_err take_all(const index_reader *reader, const sorted_payloads *sorted)
{
    for (size_t i = 0; i < sorted->value_count; i++) {
        SONDE__TRY(take_value(reader, &sorted->values[i]));
    }
    for (size_t i = 0; i < sorted->statistic_count; i++) {
        if (sorted->taken[i]) {
            continue;
        }
        SONDE__TRY(take_statistics(reader, sorted->statistics, i, sorted->statistic_count,
                                   sorted->taken));
    }
    return SONDE_OK;
}

static sonde_err take_payloads(const index_reader *reader)
{
    const size_t count = json_array_size(payloads_of(reader));
    sorted_payloads sorted = {.values = sonde__calloc(count + 1, sizeof *sorted.values),
                              .statistics =
                                  sonde__calloc(count + 1, sizeof *sorted.statistics),
                              .taken = sonde__calloc(count + 1, sizeof *sorted.taken)};
    sonde_err err = SONDE_OK;

    if (sorted.values == NULL || sorted.statistics == NULL || sorted.taken == NULL) {
        err = sonde__fail_nomem(reader->diag, "the index of a run");
        goto error;
    }
    sort_payloads(reader, &sorted);
    err = take_all(reader, &sorted);
error:
    sonde__free(sorted.values);
    sonde__free(sorted.statistics);
    sonde__free(sorted.taken);
    return err;
}

static sonde_err take_index(index_reader *reader)
{
    const json_t *meta = json_object_get(reader->object, "meta");

    if (reader->object != NULL) {
        read_meta(reader, meta);
    }
    reader->index = sonde__trial_steps_intern(&reader->trial->steps, reader->step,
                                              reader->mode, reader->mode_step);
    if (reader->index == SONDE__NONE) {
        return sonde__fail_nomem(reader->diag, "the steps of a run");
    }
    if (reader->object == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(find_file(reader, meta));
    assert(reader->file != NULL);
    return take_payloads(reader);
}

sonde_err sonde__smdebug_read_index(sonde_trial *trial, sonde__trial_worker *worker,
                                    int64_t step, sonde_diag *diag)
{
    char where[SONDE__PATH];
    index_reader reader = {.trial = trial,
                           .worker = worker,
                           .where = where,
                           .diag = diag,
                           .step = step,
                           .mode = SONDE_MODE_GLOBAL,
                           .mode_step = step};
    json_t *object = NULL;
    bool found = false;
    sonde_err err = SONDE_OK;

    (void)snprintf(where, sizeof where, "index/%09lld/%012lld_%.200s.json",
                   (long long)(step / 1000), (long long)step, worker->name);
    SONDE__TRY(sonde__trial_load_object(trial, where, &found, &object, diag));
    if (!found) {
        sonde__trial_damage(&trial->damage, where, "missing");
    }
    reader.object = object;
    err = take_index(&reader);
    const int64_t time = time_of(&reader);
    json_decref(object);
    if (err != SONDE_OK) {
        return err;
    }
    if (!sonde__trial_worker_ended(trial, worker, reader.index, time)) {
        return sonde__fail_nomem(diag, where);
    }
    note_time(trial->smdebug, time);
    worker->last_ended = SONDE_MAX(worker->last_ended, step);
    trial->changed = true;
    return SONDE_OK;
}
