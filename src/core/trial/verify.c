/*
 * verify.c - checks every hash of a run.
 *
 * Opening has already read every line, row and sketch and noted the damaged ones. Here
 * follow the values, and the headers that closed segments have for other readers.
 */
#include "base/fail.h"
#include "base/json_read.h"
#include "storage/store.h"
#include "trial/trial_state.h"

#include <sonde/safetensors.h>

#include <dirent.h>
#include <errno.h>
#include <jansson.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "0000000100/train/conv1.weight", perhaps followed by "@1.0" and "#1". */
static bool is_key(const sonde_trial *trial, const sonde__trial_raw_item *item,
                   const char *key)
{
    const sonde__trial_step *step = &trial->steps.items[item->item.step];
    const char *name = sonde_catalogue_info(trial->catalogue, item->item.tensor)->name;
    char start[64];
    const int n = snprintf(start, sizeof start, "%010lld/%s/", (long long)step->global,
                           sonde_mode_name((sonde_mode)step->mode));
    size_t length = strlen(name);

    if (n < 0 || strncmp(key, start, (size_t)n) != 0) {
        return false;
    }
    key += n;
    if (strncmp(key, name, length) != 0) {
        /* Any name is right if the tensor's catalogue line is missing. */
        return strstr(name, "/tensor_") != NULL;
    }
    return key[length] == '\0' || key[length] == '@' || key[length] == '#';
}

/* Whether item is the header's value *next, or a later one: a recovery makes values of
 * bytes that no index line mentions. Moves *next beyond it. */
static bool find_entry(const sonde_trial *trial, const sonde_safetensors *file,
                       const sonde__trial_raw_item *item, size_t *next)
{
    const sonde_view *first = sonde_safetensors_view(file, 0);

    for (; *next < sonde_safetensors_count(file); (*next)++) {
        const sonde_view *view = sonde_safetensors_view(file, *next);
        const int64_t bytes =
            sonde_view_count(view) * (int64_t)sonde_dtype_size(view->dtype);

        if ((const unsigned char *)view->data - (const unsigned char *)first->data ==
                (ptrdiff_t)item->offset &&
            bytes == (int64_t)item->bytes &&
            is_key(trial, item, sonde_safetensors_name(file, *next))) {
            (*next)++;
            return true;
        }
    }
    return false;
}

/* Items first ... end - 1 are those of one closed segment. */
static sonde_err check_header(sonde_trial *trial, const sonde__trial_worker *worker,
                              const sonde__trial_file *segment, uint32_t first,
                              uint32_t end, sonde_diag *diag)
{
    char name[SONDE__FILE_NAME], path[SONDE__PATH], where[SONDE__PATH];
    const sonde__trial_items *items = &worker->items[SONDE_FORM_RAW];
    sonde_safetensors *file = NULL;
    sonde_diag why = {0};
    size_t index = 0;

    sonde__record_file_name(name, SONDE__FILE_SEGMENT, segment->number, false);
    (void)sonde__trial_path(worker->name, name, where);
    (void)sonde__trial_path(worker->path, name, path);
    sonde_err err = sonde__store_fetch(path, 0, UINT64_MAX, &why);
    if (err == SONDE_OK) {
        err = sonde_safetensors_open(path, &file, &why);
    }
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK) {
        sonde__trial_damage(&trial->damage, where, "not a safetensors file: %s",
                            why.found);
        return SONDE_OK;
    }
    for (uint32_t i = first; i < end; i++) {
        const sonde__trial_raw_item *item = (const void *)sonde__trial_items_at(items, i);

        if (!find_entry(trial, file, item, &index)) {
            sonde__trial_damage(
                &trial->damage, where, "its header lacks '%s' of step %lld at %llu",
                sonde_catalogue_info(trial->catalogue, item->item.tensor)->name,
                (long long)trial->steps.items[item->item.step].global,
                (unsigned long long)item->offset);
            break;
        }
    }
    sonde_safetensors_destroy(file);
    return SONDE_OK;
}

static sonde_err check_headers(sonde_trial *trial, const sonde__trial_worker *worker,
                               sonde_diag *diag)
{
    const sonde__trial_file_list *segments = &worker->files[SONDE__FILE_SEGMENT];
    const sonde__trial_items *items = &worker->items[SONDE_FORM_RAW];
    uint32_t first = 0;

    for (size_t s = 0; s < segments->count; s++) {
        const sonde__trial_file *segment = &segments->items[s];
        uint32_t end = first;
        sonde_err err = SONDE_OK;

        while (end < items->count &&
               ((const sonde__trial_raw_item *)(const void *)sonde__trial_items_at(items,
                                                                                   end))
                       ->segment == s) {
            end++;
        }
        /* By the name it has now: it may have been closed meanwhile. */
        if (segment->closed && !segment->broken && end > first) {
            err = check_header(trial, worker, segment, first, end, diag);
        }
        if (err != SONDE_OK) {
            return err;
        }
        first = end;
    }
    return SONDE_OK;
}

static sonde_err check_values(sonde_trial *trial, sonde__trial_worker *worker,
                              sonde_verify_report *report, sonde_diag *diag)
{
    const sonde__trial_items *items = &worker->items[SONDE_FORM_RAW];

    for (uint32_t i = 0; i < items->count; i++) {
        const sonde__trial_raw_item *item = (const void *)sonde__trial_items_at(items, i);
        sonde_view view;
        sonde_diag why = {0};

        trial->question += i % 1024 == 0;
        const sonde_err err = sonde__trial_load_value(trial, worker, item, &view, &why);

        if (err == SONDE_ENOMEM) {
            return sonde__fail_nomem(diag, "a value");
        }
        if (err != SONDE_OK && err != SONDE_EUNSUPPORTED) {
            sonde__trial_damage(&trial->damage, why.where, "%s", why.found);
            continue;
        }
        report->records++;
        if (err != SONDE_EUNSUPPORTED) { /* right, but of a dtype that Sonde lacks */
            report->bytes +=
                (uint64_t)sonde_view_count(&view) * sonde_dtype_size(view.dtype);
        }
    }
    return SONDE_OK;
}

/* Statistics that another format saved in place of values. */
static sonde_err check_statistics(sonde_trial *trial, sonde__trial_worker *worker,
                                  sonde_diag *diag)
{
    const sonde__trial_items *items = &worker->items[SONDE_FORM_VITALS];
    sonde__trial_rows rows = {0};

    for (uint32_t i = 0; i < items->count; i++) {
        const sonde__trial_row_item *item = (const void *)sonde__trial_items_at(items, i);
        const sonde__record_stats_row *row = NULL;
        sonde_diag why = {0};
        const sonde_err err =
            sonde__trial_load_row(trial, worker, item->row, &rows, &row, &why);

        if (err == SONDE_ENOMEM) {
            return sonde__fail_nomem(diag, "a value");
        }
        if (err != SONDE_OK) {
            sonde__trial_damage(&trial->damage, why.where, "%s", why.found);
        }
    }
    return SONDE_OK;
}

/* A line that is cut or does not match its checksum; lines of other programs have none. */
static sonde_err check_line(sonde_trial *trial, const char *where, size_t number,
                            const char *text, size_t length, sonde_diag *diag)
{
    bool no_memory = false;
    json_t *const object = sonde__json_read(text, length, 0, NULL, &no_memory);

    if (no_memory) {
        return sonde__fail_nomem(diag, where);
    }
    if (!json_is_object(object)) {
        sonde__trial_damage(&trial->damage, where, "line %zu: not a JSON object", number);
    } else if (sonde__record_seal_broken(text, length)) {
        sonde__trial_damage(&trial->damage, where, "line %zu does not match its checksum",
                            number);
    }
    json_decref(object);
    return SONDE_OK;
}

/* The numbers of lines ascend by one; a line without is of another program. */
static void check_number(sonde_trial *trial, const char *where, uint64_t *last,
                         const char *text, size_t length)
{
    const uint64_t number = sonde__record_line_number(text, length);

    if (number > *last + 1) {
        sonde__trial_damage(
            &trial->damage, where, "%llu lines before the one of number %llu are missing",
            (unsigned long long)(number - *last - 1), (unsigned long long)number);
    } else if (number > 0 && number <= *last) {
        sonde__trial_damage(&trial->damage, where, "line %llu is not in its place",
                            (unsigned long long)number);
    }
    *last = number > 0 ? number : *last + 1;
}

/* A file of lines; *last: the number of the last one. numbered: it is one of findings. */
static sonde_err check_lines(sonde_trial *trial, const char *where, bool numbered,
                             uint64_t *last, sonde_diag *diag)
{
    char path[SONDE__PATH];
    sonde_diag why = {0};
    size_t size = 0, number = 0;
    const char *next = NULL, *end = NULL;
    sonde_err err = sonde__trial_read_small(
        &trial->buffer, sonde__trial_path(trial->path, where, path), &size, &why);

    *last = 0;
    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK) {
        if (err != SONDE_ENOTFOUND) {
            sonde__trial_damage(&trial->damage, where, "%s", why.found);
        }
        return SONDE_OK;
    }
    next = (const char *)trial->buffer.bytes;
    for (const char *newline = NULL; (newline = memchr(next, '\n', size)) != NULL;
         next = newline + 1) {
        size -= (size_t)(newline + 1 - next);
        SONDE__TRY(
            check_line(trial, where, ++number, next, (size_t)(newline - next), diag));
        if (numbered) {
            check_number(trial, where, last, next, (size_t)(newline - next));
        }
    }
    end = next + size;
    if (end > next) {
        sonde__trial_torn(&trial->damage, where, "the last %zu bytes are torn", size);
    }
    return SONDE_OK;
}

/* The numbers of the last lines of findings, to be freed; NULL: there are none. */
static sonde_err load_numbers(sonde_trial *trial, json_t **out, sonde_diag *diag)
{
    static const char name[] = "findings.json";
    char path[SONDE__PATH];
    sonde_diag why = {0};
    size_t size = 0;
    bool no_memory = false;
    const sonde_err err = sonde__trial_read_small(
        &trial->buffer, sonde__trial_path(trial->path, name, path), &size, &why);
    const char *const text = (const char *)trial->buffer.bytes;

    if (err == SONDE_ENOMEM) {
        return sonde__fail_nomem(diag, path);
    }
    if (err != SONDE_OK || size == 0) {
        if (err != SONDE_OK && err != SONDE_ENOTFOUND) {
            sonde__trial_damage(&trial->damage, name, "%s", why.found);
        }
        return SONDE_OK;
    }
    json_t *object = sonde__json_read(text, size, 0, NULL, &no_memory);
    if (no_memory) {
        return sonde__fail_nomem(diag, path);
    }
    if (!json_is_object(object) || sonde__record_seal_broken(text, size)) {
        sonde__trial_damage(&trial->damage, name, "%s",
                            json_is_object(object) ? "it does not match its checksum"
                                                   : "not a JSON object");
        json_decref(object);
        return SONDE_OK;
    }
    *out = object;
    return SONDE_OK;
}

/* A file of findings against the number of its last line. */
static void check_end(sonde_trial *trial, const char *where, uint64_t last,
                      uint64_t written)
{
    if (last < written) {
        sonde__trial_damage(&trial->damage, where, "the last %llu lines are missing",
                            (unsigned long long)(written - last));
    }
}

/* The lines of all files of findings that exist. Takes the files that it finds out of
 * numbers. */
static sonde_err check_files(sonde_trial *trial, json_t *numbers, sonde_diag *diag)
{
    char path[SONDE__PATH], where[SONDE__PATH], rule[NAME_MAX + 1];
    const struct dirent *entry = NULL;
    DIR *const folder = opendir(sonde__trial_path(trial->path, "findings", path));
    uint64_t last = 0;
    sonde_err err = folder != NULL || errno == ENOENT || errno == ENOTDIR
                        ? SONDE_OK
                        : sonde__fail_errno(diag, path, "cannot be listed");

    while (folder != NULL && err == SONDE_OK && (entry = readdir(folder)) != NULL) {
        const size_t length = strlen(entry->d_name);

        if (length <= 6 || strcmp(entry->d_name + length - 6, ".jsonl") != 0) {
            continue;
        }
        (void)sonde__trial_path("findings", entry->d_name, where);
        err = check_lines(trial, where, true, &last, diag);
        (void)snprintf(rule, sizeof rule, "%.*s", (int)length - 6, entry->d_name);
        check_end(trial, where, last,
                  (uint64_t)json_integer_value(json_object_get(numbers, rule)));
        (void)json_object_del(numbers, rule);
    }
    if (folder != NULL) {
        (void)closedir(folder);
    }
    return err;
}

/* The findings of all rules, and the requests. The numbers are read first: lines are
 * written before their numbers. compares: the objects of a store come in any order while
 * a run is being written. */
static sonde_err check_findings(sonde_trial *trial, bool compares, sonde_diag *diag)
{
    char where[SONDE__PATH];
    uint64_t last = 0;
    json_t *object = NULL, *numbers = NULL, *number = NULL;
    const char *rule = NULL;
    SONDE__TRY(compares ? load_numbers(trial, &object, diag) : SONDE_OK);
    numbers = json_object_get(object, "lines");
    sonde_err err = check_lines(trial, "control.jsonl", false, &last, diag);
    if (err == SONDE_OK) {
        err = check_files(trial, numbers, diag);
    }
    json_object_foreach(numbers, rule, number)
    { /* of files that do not exist */
        (void)snprintf(where, sizeof where, "findings/%.200s.jsonl", rule);
        check_end(trial, where, 0, (uint64_t)json_integer_value(number));
    }
    json_decref(object);
    return err;
}

/* A ring that could not be read, and that recovery has put away. */
static void check_ring(sonde_trial *trial, const sonde__trial_worker *worker)
{
    char path[SONDE__PATH], where[SONDE__PATH];

    (void)sonde__trial_path(worker->name, SONDE__RING_FILE ".damaged", where);
    if (access(sonde__trial_path(trial->path, where, path), F_OK) == 0) {
        sonde__trial_damage(&trial->damage, where,
                            "the last records of a killed writer cannot be read");
    }
}

/* What the writer counted against what there is. */
static void check_counts(sonde_trial *trial, const sonde__trial_worker *worker)
{
    uint64_t known = worker->lost + trial->damage.damaged;

    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        known += worker->items[form].count;
    }
    if (worker->said_ended && worker->put > 0 && (uint64_t)worker->put > known) {
        sonde__trial_damage(&trial->damage, worker->name,
                            "%llu records that its writer took are neither in the files "
                            "nor counted as lost",
                            (unsigned long long)((uint64_t)worker->put - known));
    }
    if (trial->ended && !worker->said_ended && worker->crashed && !worker->no_state) {
        sonde__trial_damage(&trial->damage, worker->name,
                            "the run has ended, but state.json says that its writer "
                            "runs: what it lost is not known");
    }
}

sonde_err sonde_trial_verify(const char *path, sonde_verify_report *report,
                             void (*report_line)(void *user, const char *text),
                             void *user, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, report);
    sonde_trial *trial = NULL;
    sonde_verify_report sum = {0};
    sonde_run_info info;
    SONDE__TRY(sonde__trial_open_all(path, report_line, user, &trial, diag));
    sonde_err err = SONDE_OK;
    for (size_t i = 0; i < trial->worker_count; i++) {
        sonde__trial_worker *worker = trial->workers[i];

        SONDE__TRY_GO(check_values(trial, worker, &sum, diag));
        if (trial->smdebug == NULL) {
            SONDE__TRY_GO(check_headers(trial, worker, diag));
            check_counts(trial, worker);
            check_ring(trial, worker);
        } else {
            SONDE__TRY_GO(check_statistics(trial, worker, diag));
        }
        sum.rows += worker->items[SONDE_FORM_VITALS].count +
                    worker->items[SONDE_FORM_NORMS].count;
        sum.sketches += worker->items[SONDE_FORM_SKETCH].count;
        sum.lost += worker->lost;
        sum.superseded += worker->superseded;
        sum.resumed = sum.resumed || worker->generation_count > 0;
    }
    if (trial->smdebug == NULL) {
        SONDE__TRY_GO(check_findings(
            trial, !sonde__store_is_address(path) || trial->status != SONDE_RUN_RUNNING,
            diag));
    }
    sum.damaged = trial->damage.damaged;
    sum.torn = trial->damage.torn;
    sum.ended = trial->status == SONDE_RUN_ENDED;
    sum.crashed = trial->status == SONDE_RUN_CRASHED;
    sum.unchecked = trial->smdebug != NULL;
    sonde_trial_describe(trial, &info);
    sum.last_time = info.last_time;
    *report = sum;
error:
    sonde_trial_close(trial);
    return err;
}
