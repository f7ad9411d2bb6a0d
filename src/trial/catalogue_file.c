/*
 * catalogue_file.c - lines of a worker's catalogue to tensors of the trial.
 *
 * Tensors of several workers are one if they have one name; what the first of them says of
 * role, dtype and shape holds. Lines are JSON of any form: there are few of them.
 */
#include "trial/trial_state.h"
#include "base/fail.h"

#include <jansson.h>
#include <string.h>

typedef struct context {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} context;

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    return text != NULL ? text : "";
}

static sonde_role role_of(const char *text)
{
    for (int role = 0; role < SONDE_ROLE_COUNT; role++) {
        if (strcmp(text, sonde_role_name((sonde_role)role)) == 0) {
            return (sonde_role)role;
        }
    }
    return SONDE_ROLE_OTHER;
}

static sonde_pass pass_of(const char *text)
{
    for (int pass = SONDE_PASS_NONE; pass <= SONDE_PASS_UPDATE; pass++) {
        if (strcmp(text, sonde_pass_name((sonde_pass)pass)) == 0) {
            return (sonde_pass)pass;
        }
    }
    return SONDE_PASS_NONE;
}

/* What is wrong with a line; NULL if nothing is. */
static const char *fill_info(const json_t *line, sonde_tensor_info *info)
{
    const json_t *shape = json_object_get(line, "shape");
    const size_t rank = json_array_size(shape);

    info->name = text_of(line, "name");
    info->module = text_of(line, "module");
    info->op = text_of(line, "op");
    info->note = text_of(line, "note");
    info->role = role_of(text_of(line, "role"));
    info->pass = pass_of(text_of(line, "pass"));
    info->same_as = SONDE_NO_TENSOR;
    if (info->name[0] == '\0' || strlen(info->name) > SONDE__MOST_NAME) {
        return "a name of 1 to 4096 bytes";
    }
    if (sonde_dtype_parse(text_of(line, "dtype"), &info->dtype, NULL) != SONDE_OK) {
        return "a dtype";
    }
    if (!json_is_array(shape) || rank > SONDE_MAX_DIMS) {
        return "a shape of at most 8 dimensions";
    }
    info->rank = (int)rank;
    for (size_t d = 0; d < rank; d++) {
        const json_t *extent = json_array_get(shape, d);

        if (!json_is_integer(extent) || json_integer_value(extent) < 0) {
            return "a shape of whole numbers";
        }
        info->shape[d] = json_integer_value(extent);
    }
    return NULL;
}

/* Of an alias: which tensor it is, and so of what dtype and shape. What is wrong with that;
 * NULL if nothing is. */
static const char *find_tensor(const context *of, const json_t *line,
                               sonde_tensor_info *info)
{
    const json_t *same_as = json_object_get(line, "same_as");
    const json_int_t id = json_is_integer(same_as) ? json_integer_value(same_as) : -1;
    const sonde_tensor_info *tensor = NULL;

    if (same_as == NULL) {
        return NULL;
    }
    if (id < 0 || (uint64_t)id >= of->worker->id_count ||
        of->worker->ids[id] == SONDE__NONE) {
        return "the id of a line above as same_as";
    }
    info->same_as = of->worker->ids[id];
    tensor = sonde_catalogue_info(of->trial->catalogue, info->same_as);
    info->dtype = tensor->dtype;
    info->rank = tensor->rank;
    memcpy(info->shape, tensor->shape, sizeof info->shape);
    return NULL;
}

static void bad_line(const context *of, const char *expected)
{
    sonde__trial_damage_in(of->trial, &of->worker->catalogue, of->where,
                           "line %llu declares no tensor: expected %s",
                           (unsigned long long)of->worker->catalogue.line, expected);
}

static sonde_err join_all(const context *of, const json_t *collections, uint32_t tensor)
{
    const json_t *name = NULL;
    size_t i = 0;

    json_array_foreach(collections, i, name)
    {
        if (json_is_string(name) &&
            !sonde__trial_join(of->trial, tensor, json_string_value(name))) {
            return sonde__fail_nomem(of->diag, "collections");
        }
    }
    return SONDE_OK;
}

static sonde_err take_tensor(const context *of, const json_t *line)
{
    const json_t *id = json_object_get(line, "id");
    sonde_tensor_info info = {0};
    sonde_diag why = {0};
    uint32_t tensor = 0;
    sonde_err err = SONDE_OK;
    const char *expected = fill_info(line, &info);

    if (expected == NULL && (!json_is_integer(id) || json_integer_value(id) < 0 ||
                             (uint64_t)json_integer_value(id) >
                                 of->worker->id_count + of->worker->catalogue.line)) {
        expected = "ids in order";
    }
    if (expected == NULL) {
        expected = find_tensor(of, line, &info);
    }
    if (expected != NULL) {
        bad_line(of, expected);
        return SONDE_OK;
    }
    err = sonde__trial_declare(of->trial, &info, &tensor, &why);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(of->diag, "the catalogue");
    }
    if (err != SONDE_OK) {
        bad_line(of, why.expected);
        return SONDE_OK;
    }
    if (!sonde__trial_worker_map(of->worker, (uint32_t)json_integer_value(id), tensor)) {
        return sonde__fail_nomem(of->diag, "the catalogue");
    }
    return join_all(of, json_object_get(line, "collections"), tensor);
}

static sonde_err take_line(void *user, char *text, size_t length)
{
    const context *of = user;
    json_error_t error;
    json_t *line = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    sonde_err err = SONDE_OK;

    if (json_is_object(line)) {
        err = take_tensor(of, line);
    } else {
        bad_line(of, "a JSON object");
    }
    json_decref(line);
    return err;
}

sonde_err sonde__trial_catalogue_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    context of = {trial, worker, where, diag};

    worker->catalogue.begun = true;
    return sonde__trial_read_lines(
        trial, &worker->catalogue,
        sonde__trial_path(trial, worker, SONDE__CATALOGUE_FILE, path),
        sonde__trial_where(worker, SONDE__CATALOGUE_FILE, where), take_line, &of,
        &worker->has_catalogue, diag);
}
