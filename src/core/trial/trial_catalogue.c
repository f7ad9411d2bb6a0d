/*
 * trial_catalogue.c - the workers of a trial, and its tensors: from the lines of a
 * worker's catalogue, and from the headers of closed segments where a line is lost.
 *
 * A catalogue line is any JSON object; there are few. A key in a header is
 *
 *     <step, ten digits>/<mode>/<name>    and then perhaps
 *         @<micro-batch>.<replica>        as in the index line
 *         #<n>                            a value that was recorded again: not used
 */
#include "trial/trial_state.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/memory.h"
#include "base/names.h"
#include "storage/store.h"
#include "base/macros.h"
#include <sonde/safetensors.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <dirent.h>
#include <errno.h>

enum { MOST_UNKNOWN = 1 << 20 }; /* larger ids cannot be meant, unless declared */
enum { MEMBER = 512 };           /* bytes of a key in trial->members */

/* --- tensors and collections ------------------------------------------------------ */

sonde_err sonde__trial_declare(sonde_trial *trial, const sonde_tensor_info *info,
                               uint32_t *tensor, sonde_diag *diag)
{
    const sonde_err err = sonde_catalogue_declare(trial->catalogue, info, tensor, diag);

    if (err == SONDE_EEXIST) { /* the name itself is found before other spellings */
        return sonde_catalogue_find(trial->catalogue, info->name, tensor, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    trial->changed = true;
    return SONDE_OK;
}

bool sonde__trial_known(const sonde_trial *trial, const char *name, uint32_t *tensor)
{
    uint32_t id = 0;

    if (sonde_catalogue_find(trial->catalogue, name, &id, NULL) != SONDE_OK ||
        strcmp(sonde_catalogue_info(trial->catalogue, id)->name, name) != 0) {
        return false;
    }
    *tensor = id;
    return true;
}

static const char *member_key(uint32_t tensor, const char *collection, char key[MEMBER])
{
    (void)snprintf(key, MEMBER, "%lu/%s", (unsigned long)tensor, collection);
    return key;
}

bool sonde__trial_join(sonde_trial *trial, uint32_t tensor, const char *collection)
{
    char key[MEMBER];

    return sonde__names_intern(&trial->collections, collection) != SONDE__NO_NAME &&
           sonde__names_intern(&trial->members, member_key(tensor, collection, key)) !=
               SONDE__NO_NAME;
}

/* From now on the worker's id stands for tensor. False: out of memory. */
static bool map_id(sonde__trial_worker *worker, uint32_t id, uint32_t tensor)
{
    if (id >= worker->id_count) {
        if (!sonde__reserve(&worker->ids, &worker->id_capacity, (size_t)id + 1,
                            sizeof *worker->ids)) {
            return false;
        }
        while (worker->id_count <= id) {
            worker->ids[worker->id_count++] = SONDE__NONE;
        }
    }
    worker->ids[id] = tensor;
    return true;
}

const sonde_catalogue *sonde_trial_catalogue(const sonde_trial *trial)
{
    if (trial == NULL) {
        return NULL;
    }
    return trial->catalogue;
}

const char *sonde_trial_collection(const sonde_trial *trial, size_t i)
{
    if (trial == NULL) {
        return NULL;
    }
    return i < trial->collections.count ? trial->collections.text[i] : NULL;
}

bool sonde_trial_in_collection(const sonde_trial *trial, uint32_t id,
                               const char *collection)
{
    if (trial == NULL) {
        return false;
    }
    char key[MEMBER];

    return sonde__names_find(&trial->members, member_key(id, collection, key)) !=
           SONDE__NO_NAME;
}

/* --- lines ------------------------------------------------------------------------ */

typedef struct line_reader {
    sonde_trial *trial;
    sonde__trial_worker *worker;
    const char *where;
    sonde_diag *diag;
} line_reader;

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

/* What was expected of a bad line; NULL for a good one. */
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

/* Fills in the tensor of an alias, and its dtype and shape. What was expected of a bad
 * line; NULL for a good one. */
static const char *find_tensor(const line_reader *reader, const json_t *line,
                               sonde_tensor_info *info)
{
    const json_t *same_as = json_object_get(line, "same_as");
    const json_int_t id = json_is_integer(same_as) ? json_integer_value(same_as) : -1;

    if (same_as == NULL) {
        return NULL;
    }
    if (id < 0 || (uint64_t)id >= reader->worker->id_count ||
        reader->worker->ids[id] == SONDE__NONE) {
        return "the id of a line above as same_as";
    }
    info->same_as = reader->worker->ids[id];
    const sonde_tensor_info *tensor =
        sonde_catalogue_info(reader->trial->catalogue, info->same_as);
    info->dtype = tensor->dtype;
    info->rank = tensor->rank;
    memcpy(info->shape, tensor->shape, sizeof info->shape);
    return NULL;
}

static void bad_line(const line_reader *reader, const char *expected)
{
    sonde__trial_damage_in(&reader->trial->damage, &reader->worker->catalogue.bad,
                           reader->where, "line %llu declares no tensor: expected %s",
                           (unsigned long long)reader->worker->catalogue.line, expected);
}

static sonde_err join_all(const line_reader *reader, const json_t *collections,
                          uint32_t tensor)
{
    const json_t *name = NULL;
    size_t i = 0;

    json_array_foreach(collections, i, name)
    {
        if (json_is_string(name) &&
            !sonde__trial_join(reader->trial, tensor, json_string_value(name))) {
            return sonde__fail_nomem(reader->diag, "collections");
        }
    }
    return SONDE_OK;
}

static sonde_err take_tensor(const line_reader *reader, const json_t *line)
{
    const json_t *id = json_object_get(line, "id");
    sonde_tensor_info info = {0};
    sonde_diag why = {0};
    uint32_t tensor = 0;
    const char *expected = fill_info(line, &info);

    if (expected == NULL &&
        (!json_is_integer(id) || json_integer_value(id) < 0 ||
         (uint64_t)json_integer_value(id) >
             reader->worker->id_count + reader->worker->catalogue.line)) {
        expected = "ids in order";
    }
    if (expected == NULL) {
        expected = find_tensor(reader, line, &info);
    }
    if (expected != NULL) {
        bad_line(reader, expected);
        return SONDE_OK;
    }
    sonde_err err = sonde__trial_declare(reader->trial, &info, &tensor, &why);
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(reader->diag, "the catalogue");
    }
    if (err != SONDE_OK) {
        bad_line(reader, why.expected);
        return SONDE_OK;
    }
    if (!map_id(reader->worker, (uint32_t)json_integer_value(id), tensor)) {
        return sonde__fail_nomem(reader->diag, "the catalogue");
    }
    return join_all(reader, json_object_get(line, "collections"), tensor);
}

static sonde_err take_line(void *user, char *text, size_t length)
{
    const line_reader *reader = user;
    bool no_memory = false;
    json_t *line =
        sonde__json_read(text, length, JSON_REJECT_DUPLICATES, NULL, &no_memory);
    sonde_err err = SONDE_OK;

    if (no_memory) {
        return sonde__fail_nomem(reader->diag, "the catalogue");
    }
    if (sonde__record_seal_broken(text, length)) {
        sonde__trial_damage_in(&reader->trial->damage, &reader->worker->catalogue.bad,
                               reader->where, "line %llu does not match its checksum",
                               (unsigned long long)reader->worker->catalogue.line);
    }
    if (json_is_object(line)) {
        err = take_tensor(reader, line);
    } else {
        bad_line(reader, "a JSON object");
    }
    json_decref(line);
    return err;
}

sonde_err sonde__trial_catalogue_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH];
    line_reader reader = {trial, worker, where, diag};

    worker->catalogue.begun = true;
    return sonde__trial_read_lines(
        &trial->damage, &worker->catalogue,
        sonde__trial_path(worker->path, SONDE__CATALOGUE_FILE, path),
        sonde__trial_path(worker->name, SONDE__CATALOGUE_FILE, where), take_line, &reader,
        &worker->has_catalogue, diag);
}

/* --- names in the headers of segments --------------------------------------------- */

/* The key of the value at that offset; NULL if there is none. */
static const char *key_at(const sonde_safetensors *file, uint64_t offset, uint64_t bytes)
{
    const sonde_view *first = sonde_safetensors_view(file, 0);

    for (size_t i = 0; i < sonde_safetensors_count(file); i++) {
        const sonde_view *view = sonde_safetensors_view(file, i);
        const ptrdiff_t place =
            (const unsigned char *)view->data - (const unsigned char *)first->data;

        if (place == (ptrdiff_t)offset &&
            (uint64_t)sonde_view_count(view) * sonde_dtype_size(view->dtype) == bytes) {
            return sonde_safetensors_name(file, i);
        }
    }
    return NULL;
}

/* Whether a key ends in "#" and digits. */
static bool is_repeated(const char *key)
{
    size_t index = strlen(key);

    while (index > 0 && key[index - 1] >= '0' && key[index - 1] <= '9') {
        index--;
    }
    return index > 0 && key[index - 1] == '#' && key[index] != '\0';
}

/* Where tail begins at the end of key; NULL if key ends otherwise. */
static const char *end_of(const char *key, const char *text)
{
    const size_t length = strlen(key), tail = strlen(text);

    return length >= tail && strcmp(key + length - tail, text) == 0 ? key + length - tail
                                                                    : NULL;
}

static char *name_of(const char *key, const sonde__record_index_line *line)
{
    char start[64], tail[64] = "";
    const int n = snprintf(start, sizeof start, "%010lld/%s/", (long long)line->step,
                           sonde_mode_name(line->mode));

    if (line->micro_batch != 0 || line->replica != 0) {
        (void)snprintf(tail, sizeof tail, "@%lu.%lu", (unsigned long)line->micro_batch,
                       (unsigned long)line->replica);
    }
    const char *end = end_of(key, tail);
    if (n < 0 || strncmp(key, start, (size_t)n) != 0 || end == NULL || end <= key + n ||
        is_repeated(key)) {
        return NULL;
    }
    return sonde__strndup(key + n, (size_t)(end - key) - (size_t)n);
}

/* The name that a closed segment's header gives the value of a line; new. NULL: none. */
static char *name_in_header(const sonde__trial_worker *worker,
                            const sonde__trial_file *segment,
                            const sonde__record_index_line *line)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH];
    sonde_safetensors *file = NULL;

    sonde__record_file_name(name, SONDE__FILE_SEGMENT, segment->number, false);
    (void)sonde__trial_path(worker->path, name, path);
    if (!segment->closed || sonde__store_fetch(path, 0, UINT64_MAX, NULL) != SONDE_OK ||
        sonde_safetensors_open(path, &file, NULL) != SONDE_OK) {
        return NULL;
    }
    const char *key = key_at(file, line->offset, line->bytes);
    char *found = key != NULL ? name_of(key, line) : NULL;
    sonde_safetensors_destroy(file);
    return found;
}

/* --- tensors that no line declares ------------------------------------------------ */

/* Declares a tensor without a line, as known or else by its number. */
static sonde_err declare_unknown(sonde_trial *trial, sonde__trial_worker *worker,
                                 uint32_t id, const sonde__record_index_line *line,
                                 const char *known, sonde_diag *diag)
{
    char name[128];
    sonde_tensor_info info = {.name = known,
                              .role = SONDE_ROLE_OTHER,
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR,
                              .note = "its line in the catalogue is missing"};
    uint32_t tensor = 0;

    if (known == NULL) {
        (void)snprintf(name, sizeof name, "%s/tensor_%lu", worker->name,
                       (unsigned long)id);
        info.name = name;
    }
    if (line != NULL) {
        info.dtype = line->dtype;
        info.rank = line->rank;
        memcpy(info.shape, line->shape, (size_t)line->rank * sizeof info.shape[0]);
    }
    SONDE__TRY(sonde__trial_declare(trial, &info, &tensor, diag));
    if (!map_id(worker, id, tensor)) {
        return sonde__fail_nomem(diag, "the ids of a worker");
    }
    if (!worker->has_catalogue && !worker->no_catalogue) {
        worker->no_catalogue = true;
        sonde__trial_damage(&trial->damage, worker->name,
                            SONDE__CATALOGUE_FILE " is missing");
    }
    sonde__trial_damage_in(&trial->damage, &worker->catalogue.bad, worker->name,
                           "no line of " SONDE__CATALOGUE_FILE
                           " declares tensor %lu: it is called '%.200s' here",
                           (unsigned long)id, info.name);
    return SONDE_OK;
}

static bool is_mapped(const sonde__trial_worker *worker, uint32_t id)
{
    return id < worker->id_count && worker->ids[id] != SONDE__NONE;
}

sonde_err sonde__trial_worker_tensor(sonde_trial *trial, sonde__trial_worker *worker,
                                     uint32_t id, const sonde__record_index_line *line,
                                     const sonde__trial_file *segment, uint32_t *tensor,
                                     sonde_diag *diag)
{
    *tensor = SONDE__NONE;
    if (!is_mapped(worker, id)) {
        SONDE__TRY(sonde__trial_catalogue_read(trial, worker, diag));
    }
    if (id < MOST_UNKNOWN && !is_mapped(worker, id)) {
        char *known = line != NULL ? name_in_header(worker, segment, line) : NULL;

        sonde_err err = declare_unknown(trial, worker, id, line, known, diag);
        sonde__free(known);
        if (err != SONDE_OK) {
            return err;
        }
    }
    if (id < worker->id_count) {
        *tensor = worker->ids[id];
    }
    return SONDE_OK;
}

/* --- worker ------------------------------------------------------------------------ */

/* --- opening ---------------------------------------------------------------------- */

static bool list_file(sonde__trial_worker *worker, const char *name)
{
    uint64_t number = 0;
    bool part = false;
    const sonde__record_file_kind kind = sonde__record_file_parse(name, &number, &part);

    return kind == SONDE__FILE_OTHER ||
           sonde__trial_progress_list(&worker->progress[kind], number);
}

static sonde_err list_files(sonde__trial_worker *worker, sonde_diag *diag)
{
    char path[SONDE__PATH];
    const struct dirent *entry = NULL;
    bool ok = true;
    DIR *folder = opendir(sonde__trial_path(worker->path, "", path));

    if (folder == NULL) {
        if (errno == ENOENT) {
            return SONDE_OK;
        }
        return sonde__fail_errno(diag, path, "cannot be listed");
    }
    while (ok && (entry = readdir(folder)) != NULL) {
        ok = list_file(worker, entry->d_name);
    }
    (void)closedir(folder);
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        sonde__trial_progress_sort(&worker->progress[kind]);
    }
    return ok ? SONDE_OK : sonde__fail_nomem(diag, path);
}

/* Notes segments whose index is missing. The newest may not have one yet. */
static void check_indexes(sonde_trial *trial, const sonde__trial_worker *worker)
{
    const sonde__trial_progress *segments = &worker->progress[SONDE__FILE_SEGMENT],
                                *index = &worker->progress[SONDE__FILE_INDEX];
    size_t place = 0;

    for (size_t i = 0; i + 1 < segments->listed_count; i++) {
        const uint64_t number = segments->listed[i];

        while (place < index->listed_count && index->listed[place] < number) {
            place++;
        }
        if ((place == index->listed_count || index->listed[place] != number) &&
            segments->listed[i + 1] != number &&
            !sonde__trial_has_file(worker->path, SONDE__FILE_INDEX, number)) {
            sonde__trial_damage(
                &trial->damage, worker->name,
                "the index of segment %08llu is missing: nothing in it is found",
                (unsigned long long)number);
        }
    }
}

static bool name_worker(const sonde_trial *trial, sonde__trial_worker *worker,
                        const char *name)
{
    char path[SONDE__PATH];

    worker->name = sonde__strdup(name);
    worker->path = sonde__strdup(sonde__trial_path(trial->path, name, path));
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        worker->files[kind].folder = worker->path;
        worker->files[kind].kind = (sonde__record_file_kind)kind;
    }
    return worker->name != NULL && worker->path != NULL;
}

static sonde_err create(sonde_trial *trial, int rank, const char *name,
                        sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = sonde__calloc(1, sizeof *worker);
    sonde_err err = SONDE_OK;

    if (worker == NULL) {
        return sonde__fail_nomem(diag, "a worker");
    }
    worker->rank = rank;
    worker->last_ended = -1;
    worker->put = -1;
    worker->file_count = -1;
    worker->limit = INT64_MAX;
    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        sonde__trial_items_init(&worker->items[form], form);
    }
    SONDE__TRY_GO(name_worker(trial, worker, name) ? list_files(worker, diag)
                                                   : sonde__fail_nomem(diag, "a worker"));
    check_indexes(trial, worker);
    *out = worker;
    return SONDE_OK;

error:
    sonde__trial_worker_destroy(worker);
    return err;
}

sonde_err sonde__trial_add_worker(sonde_trial *trial, int rank, const char *name,
                                  sonde__trial_worker **out, sonde_diag *diag)
{
    sonde__trial_worker *worker = NULL;
    size_t place = trial->worker_count;

    if (!sonde__reserve(&trial->workers, &trial->worker_capacity, trial->worker_count + 1,
                        sizeof(sonde__trial_worker *))) {
        return sonde__fail_nomem(diag, "the workers of a run");
    }
    SONDE__TRY(create(trial, rank, name, &worker, diag));
    for (; place > 0 && trial->workers[place - 1]->rank > rank; place--) {
        trial->workers[place] = trial->workers[place - 1];
    }
    trial->workers[place] = worker;
    trial->worker_count++;
    trial->world = SONDE_MAX(trial->world, rank + 1);
    trial->changed = true;
    if (out != NULL) {
        *out = worker;
    }
    return SONDE_OK;
}
void sonde__trial_worker_destroy(sonde__trial_worker *worker)
{
    if (worker == NULL) {
        return;
    }
    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        sonde__trial_items_fini(&worker->items[form]);
    }
    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        sonde__trial_file_list_fini(&worker->files[kind]);
        sonde__trial_progress_fini(&worker->progress[kind]);
    }
    sonde__trial_progress_fini(&worker->catalogue);
    sonde__trial_progress_fini(&worker->resumes);
    sonde__trial_progress_fini(&worker->listed);
    sonde__free(worker->generations);
    sonde__free(worker->ids);
    sonde__free(worker->layouts);
    sonde__free(worker->ended);
    sonde__free(worker->name);
    sonde__free(worker->path);
    sonde__free(worker);
}

/* --- what it has recorded --------------------------------------------------------- */

sonde_err sonde__trial_worker_add(sonde_trial *trial, sonde__trial_worker *worker,
                                  int form, const sonde__trial_item *item,
                                  sonde_diag *diag)
{
    sonde__trial_step *step = &trial->steps.items[item->step];

    if (!sonde__trial_items_add(&worker->items[form], &trial->steps, item)) {
        return sonde__fail_nomem(diag, "the index of a run");
    }
    step->saved = true;
    trial->changed = true;
    return SONDE_OK;
}

bool sonde__trial_worker_has_ended(const sonde__trial_worker *worker, uint32_t step)
{
    return step < worker->ended_count && worker->ended[step] != 0;
}

bool sonde__trial_worker_ended(sonde_trial *trial, sonde__trial_worker *worker,
                               uint32_t step, int64_t time)
{
    if (step >= worker->ended_count) {
        if (!sonde__reserve(&worker->ended, &worker->ended_capacity, (size_t)step + 1,
                            sizeof *worker->ended)) {
            return false;
        }
        while (worker->ended_count <= step) {
            worker->ended[worker->ended_count++] = 0;
        }
    }
    if (worker->ended[step] == 0) {
        worker->ended[step] = time > 0 ? time : SONDE__NO_TIME;
        trial->steps.items[step].ended++;
    }
    return true;
}

int64_t sonde__trial_ended_at(const sonde_trial *trial, uint32_t step, int rank)
{
    int64_t time = 0;

    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        if ((rank < 0 || worker->rank == rank) &&
            sonde__trial_worker_has_ended(worker, step) &&
            worker->ended[step] != SONDE__NO_TIME) {
            time = SONDE_MAX(time, worker->ended[step]);
        }
    }
    return time;
}

bool sonde__trial_step_complete(const sonde_trial *trial, const sonde__trial_step *step)
{
    return step->global <= trial->last_complete || step->ended >= (uint32_t)trial->world;
}
