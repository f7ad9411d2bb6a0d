/*
 * trial.c - opening, refreshing and describing a run.
 */
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/whole_file.h"
#include "trial/smdebug.h"
#include "trial/trial_state.h"
#include "base/options.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* After the path of a run, "/w0000000/" and the name of a file must fit. */
enum { MOST_PATH = SONDE__PATH - 256 };

/* --- workers ---------------------------------------------------------------------- */

static bool has_worker(const sonde_trial *trial, int rank)
{
    for (size_t i = 0; i < trial->worker_count; i++) {
        if (trial->workers[i]->rank == rank) {
            return true;
        }
    }
    return false;
}

/* Adds workers whose folders have appeared. */
static sonde_err find_workers(sonde_trial *trial, sonde_diag *diag)
{
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *folder = opendir(trial->path);

    if (folder == NULL) {
        return sonde__fail_errno(diag, trial->path, "cannot be listed");
    }
    while ((entry = readdir(folder)) != NULL) {
        const int rank = sonde__record_worker_of_folder(entry->d_name);
        char path[SONDE__PATH];
        struct stat about;

        if (rank >= 0 && rank < INT32_MAX && !has_worker(trial, rank) &&
            stat(sonde__trial_path(trial->path, entry->d_name, path), &about) == 0 &&
            S_ISDIR(about.st_mode)) {
            SONDE__TRY_GO(
                sonde__trial_add_worker(trial, rank, entry->d_name, NULL, diag));
        }
    }
error:
    (void)closedir(folder);
    return err;
}

/* --- refreshing ------------------------------------------------------------------- */

static sonde_err read_worker(sonde_trial *trial, sonde__trial_worker *worker,
                             sonde_diag *diag)
{
    static sonde_err (*const readers[])(sonde_trial *, sonde__trial_worker *,
                                        sonde_diag *) = {
        sonde__trial_catalogue_read, sonde__trial_generations_read,
        sonde__trial_step_rows_read, sonde__trial_index_read,
        sonde__trial_stats_read,     sonde__trial_sketches_read,
        sonde__trial_listed_read,
    };
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < SONDE_COUNT_OF(readers); i++) {
        err = readers[i](trial, worker, diag);
        if (err != SONDE_OK) {
            break;
        }
    }
    sonde__trial_damage_flush(&trial->damage, &worker->catalogue.bad, worker->name);
    return err;
}

static bool is_part(const sonde__trial_file_list *files)
{
    return files->count > 0 && !files->items[files->count - 1].closed;
}

/* Notes incomplete ends of files of a worker that writes no more. */
static void note_ends(sonde_trial *trial, sonde__trial_worker *worker)
{
    char name[SONDE__FILE_NAME], where[SONDE__PATH];

    for (int kind = 0; kind < SONDE__FILE_OTHER; kind++) {
        sonde__trial_progress *progress = &worker->progress[kind];

        sonde__record_file_name(name, (sonde__record_file_kind)kind, progress->number,
                                is_part(&worker->files[kind]));
        sonde__trial_progress_end(&trial->damage, progress,
                                  sonde__trial_path(worker->name, name, where));
    }
    sonde__trial_progress_end(
        &trial->damage, &worker->catalogue,
        sonde__trial_path(worker->name, SONDE__CATALOGUE_FILE, where));
    if (worker->listed.size > worker->listed.offset && !worker->listed.end_reported) {
        sonde__trial_torn(
            &trial->damage, sonde__trial_path(worker->name, SONDE__FILES_FILE, where),
            "the last %llu bytes are torn",
            (unsigned long long)(worker->listed.size - worker->listed.offset));
        worker->listed.end_reported = true;
    }
}

static void sort_all(sonde_trial *trial)
{
    sonde__trial_steps_sort(&trial->steps);
    for (size_t i = 0; i < trial->worker_count; i++) {
        for (int form = 0; form < SONDE_FORM_COUNT; form++) {
            sonde__trial_items_sort(&trial->workers[i]->items[form], &trial->steps);
        }
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        trial->lists[mode][0].valid = trial->lists[mode][1].valid = false;
    }
}

static sonde_err read_all(sonde_trial *trial, sonde_diag *diag)
{
    SONDE__TRY(sonde__trial_end_read(trial, diag));
    if (trial->worker_count < (size_t)trial->world) {
        SONDE__TRY(find_workers(trial, diag));
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        SONDE__TRY(sonde__trial_state_read(trial, trial->workers[i], diag));
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        SONDE__TRY(read_worker(trial, trial->workers[i], diag));
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        sonde__trial_worker *worker = trial->workers[i];

        if (trial->ended || worker->said_ended || worker->crashed) {
            note_ends(trial, worker);
        }
    }
    return SONDE_OK;
}

/* As smdebug's own reader: if more than WINDOW steps wait for a worker, half of these
 * count as complete. */
static void skip_stragglers(sonde_trial *trial)
{
    enum { WINDOW = 1000 };
    const sonde__trial_steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];

    while (trial->last_complete < INT64_MAX) {
        const size_t place =
            sonde__trial_steps_lower(steps, SONDE_MODE_GLOBAL, trial->last_complete + 1);

        if (count - place <= WINDOW) {
            return;
        }
        trial->last_complete =
            sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, place + WINDOW / 2 - 1);
    }
}

/* Reads what has been added to the folder. */
static sonde_err read_again(sonde_trial *trial, bool *changed, sonde_diag *diag)
{
    const uint64_t noted = trial->damage.damaged + trial->damage.torn;

    trial->changed = false;
    trial->question++;
    sonde_err err = trial->smdebug != NULL ? sonde__smdebug_refresh(trial, diag)
                                           : read_all(trial, diag);
    trial->changed =
        trial->changed || noted != trial->damage.damaged + trial->damage.torn;
    sonde__trial_update_status(trial);
    if (trial->changed) {
        sort_all(trial);
    }
    if (trial->smdebug != NULL) {
        skip_stragglers(trial);
    }
    if (err != SONDE_OK) {
        return err;
    }
    if (changed != NULL) {
        *changed = trial->changed;
    }
    return SONDE_OK;
}

sonde_err sonde_trial_refresh(sonde_trial *trial, bool *changed, sonde_diag *diag)
{
    SONDE__NEEDS(diag, trial);
    SONDE__TRY(trial->copy != NULL ? sonde__store_copy_refresh(trial->copy, diag)
                                   : SONDE_OK);
    return read_again(trial, changed, diag);
}

/* --- opening ---------------------------------------------------------------------- */

static sonde_err check_path(const char *path, sonde_diag *diag)
{
    struct stat about;

    if (strlen(path) > MOST_PATH) {
        return sonde__fail(diag, SONDE_EINVAL, "trial", "at most 3840 bytes",
                           "a path of %zu bytes", strlen(path));
    }
    if (sonde__check_home(path, diag) != SONDE_OK) {
        return SONDE_EINVAL;
    }
    if (stat(path, &about) != 0) {
        return sonde__fail_errno(diag, path, "cannot be opened");
    }
    if (!S_ISDIR(about.st_mode)) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "the folder of a run", "a file");
    }
    return SONDE_OK;
}

static sonde_err check_options(const sonde_trial_options *options, sonde_diag *diag)
{
    if (options != NULL && (options->begin < 0 || options->end < 0 ||
                            (options->end != 0 && options->end <= options->begin))) {
        return sonde__fail(diag, SONDE_EINVAL, "steps of a trial",
                           "0 <= begin < end, or end 0", "begin %lld, end %lld",
                           (long long)options->begin, (long long)options->end);
    }
    return SONDE_OK;
}

/* NULL: out of memory. */
static sonde_trial *create(const char *path, const sonde_trial_options *options)
{
    sonde_trial *trial = sonde__calloc(1, sizeof *trial);
    size_t length = strlen(path);

    if (trial == NULL) {
        return NULL;
    }
    while (length > 1 && path[length - 1] == '/') {
        length--;
    }
    trial->begin = options != NULL ? options->begin : 0;
    trial->end = options != NULL ? options->end : 0;
    trial->world = 1;
    trial->last_complete = -1;
    trial->question = 1;
    sonde__trial_steps_init(&trial->steps);
    sonde__names_init(&trial->collections);
    sonde__names_init(&trial->members);
    (void)gethostname(trial->host, sizeof trial->host - 1);
    trial->path = sonde__strndup(path, length);
    if (trial->path == NULL ||
        sonde_catalogue_create(&trial->catalogue, NULL) != SONDE_OK) {
        sonde_trial_close(trial);
        return NULL;
    }
    return trial;
}

static sonde_err fail_not_a_run(const sonde_trial *trial, sonde_diag *diag)
{
    return sonde__fail(
        diag, SONDE_EFORMAT, trial->address != NULL ? trial->address : trial->path,
        SONDE__RUN_FILE ", or the folders of smdebug",
        "not a run: neither " SONDE__RUN_FILE " nor a worker's folder is in it");
}

/* Finds run.json and the workers' folders, or some of them. */
static sonde_err find_run(sonde_trial *trial, sonde_diag *diag)
{
    bool found = false;
    SONDE__TRY(sonde__trial_run_read(trial, &found, diag));
    if (!found && sonde__smdebug_is_one(trial->path)) {
        return sonde__smdebug_open(trial, diag);
    }
    sonde_err err = find_workers(trial, diag);
    if (err != SONDE_OK || found) {
        return err;
    }
    if (trial->worker_count == 0) {
        return fail_not_a_run(trial, diag);
    }
    /* It comes before the workers: it may be here by now. */
    err = sonde__trial_run_read(trial, &found, diag);
    if (err != SONDE_OK || found) {
        return err;
    }
    sonde__trial_damage(&trial->damage, SONDE__RUN_FILE, "missing");
    return SONDE_OK;
}

/* The trial of a folder, or of a copy of what is at an address. NULL: see diag. */
static sonde_trial *create_at(const char *path, const sonde_trial_options *options,
                              sonde_diag *diag)
{
    const bool remote = sonde__store_is_address(path);
    sonde__store_copy *copy = NULL;
    sonde_trial *trial = NULL;
    const char *folder = path;

    if (check_options(options, diag) != SONDE_OK ||
        (remote && sonde__store_copy_open(path, &copy, diag) != SONDE_OK)) {
        return NULL;
    }
    folder = remote ? sonde__store_copy_folder(copy) : path;
    if (check_path(folder, diag) == SONDE_OK) {
        trial = create(folder, options);
        if (trial == NULL) {
            (void)sonde__fail_nomem(diag, "a trial");
        }
    }
    if (trial == NULL) {
        sonde__store_copy_close(copy);
        return NULL;
    }
    trial->copy = copy;
    trial->address = remote ? sonde__strdup(path) : NULL;
    return trial;
}

static sonde_err open_trial(const char *path, const sonde_trial_options *options,
                            bool everything, void (*report)(void *user, const char *text),
                            void *user, sonde_trial **out, sonde_diag *diag)
{
    sonde_diag why = {0};
    sonde_trial *trial = create_at(path, options, &why);
    sonde_err err = SONDE_OK;

    if (trial == NULL) {
        if (diag != NULL) {
            *diag = why;
        }
        return why.err;
    }
    trial->damage.report = report;
    trial->damage.user = user;
    trial->everything = everything;
    SONDE__TRY_GO(find_run(trial, diag));
    SONDE__TRY_GO(read_again(trial, NULL, diag));
    *out = trial;
    return SONDE_OK;

error:
    sonde_trial_close(trial);
    return err;
}

sonde_err sonde_trial_open(const char *path, const sonde_trial_options *given,
                           sonde_trial **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde_trial_options taken;
    const sonde_trial_options *const options = &taken;
    SONDE__TAKE(sonde_trial_options, &taken, given, diag);
    return open_trial(path, options, false, NULL, NULL, out, diag);
}

sonde_err sonde__trial_open_all(const char *path,
                                void (*report)(void *user, const char *text), void *user,
                                sonde_trial **out, sonde_diag *diag)
{
    return open_trial(path, NULL, true, report, user, out, diag);
}

static void free_texts(sonde_trial *trial)
{
    char *const texts[] = {trial->path,       trial->address, trial->id,
                           trial->program,    trial->model,   trial->created,
                           trial->end_reason, trial->end_text};

    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        sonde__free(texts[i]);
    }
    sonde__trial_damage_fini(&trial->damage);
}

void sonde_trial_close(sonde_trial *trial)
{
    if (trial == NULL) {
        return;
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        sonde__trial_worker_destroy(trial->workers[i]);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde__free(trial->lists[mode][0].steps);
        sonde__free(trial->lists[mode][1].steps);
    }
    sonde__free(trial->workers);
    sonde__free(trial->cuts);
    sonde_catalogue_destroy(trial->catalogue);
    sonde__names_fini(&trial->collections);
    sonde__names_fini(&trial->members);
    sonde__trial_steps_fini(&trial->steps);
    sonde__trial_layouts_fini(&trial->layouts);
    sonde__free(trial->packed.bytes);
    sonde__free(trial->value.bytes);
    sonde__free(trial->buffer.bytes);
    sonde__smdebug_close(trial->smdebug);
    sonde__store_copy_close(trial->copy);
    free_texts(trial);
    sonde__free(trial);
}

/* --- a folder of runs ---------------------------------------------------------------- */

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

sonde_err sonde_trial_list_folder(const char *path,
                                  void (*seen)(void *user, const char *name), void *user,
                                  sonde_diag *diag)
{
    SONDE__NEEDS(diag, path);
    SONDE__NEEDS_FUNCTION(diag, seen);
    struct dirent **entries = NULL;

    if (sonde__store_is_address(path)) {
        return sonde__store_folders(path, seen, user, diag);
    }
    const int count = scandir(path, &entries, is_visible, alphasort);
    if (count < 0) {
        return sonde__fail_errno(diag, path, "cannot be listed");
    }
    for (int i = 0; i < count; i++) {
        seen(user, entries[i]->d_name);
        free(entries[i]);
    }
    free(entries);
    return SONDE_OK;
}

/* --- describing ------------------------------------------------------------------- */

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static int64_t last_step_of(const sonde_trial *trial)
{
    const sonde__trial_steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];
    const int64_t last =
        count > 0 ? sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, count - 1) : -1;

    return SONDE_MIN(last, trial->last_complete);
}

/* Readable records of the forms of how. */
static uint64_t count_of(const sonde__trial_worker *worker, unsigned how)
{
    uint64_t count = 0;

    for (; how != 0; how &= how - 1) {
        const sonde__trial_items *items = &worker->items[__builtin_ctz(how)];

        count += items->count - items->superseded;
    }
    return count;
}

/* Times of the first and the last step that has one. */
static void find_times(const sonde_trial *trial, sonde_run_info *info)
{
    const uint32_t *sorted = trial->steps.sorted[SONDE_MODE_GLOBAL];
    const size_t count = trial->steps.sorted_count[SONDE_MODE_GLOBAL];

    for (size_t i = 0; i < count && info->first_time == 0; i++) {
        info->first_time = sonde__trial_ended_at(trial, sorted[i], -1);
    }
    for (size_t i = count; i > 0 && info->last_time == 0; i--) {
        info->last_time = sonde__trial_ended_at(trial, sorted[i - 1], -1);
    }
}

bool sonde_trial_resume(const sonde_trial *trial, size_t i, sonde_trial_resumed *out)
{
    if (trial == NULL || out == NULL) {
        return false;
    }
    for (size_t w = 0; w < trial->worker_count; w++) {
        const sonde__trial_worker *worker = trial->workers[w];

        if (i < worker->generation_count) {
            *out = (sonde_trial_resumed){.worker = worker->rank,
                                         .step = worker->generations[i].step,
                                         .time = worker->generations[i].time};
            return true;
        }
        i -= worker->generation_count;
    }
    return false;
}

bool sonde_trial_went_back(const sonde_trial *trial, size_t *seen, int64_t *step)
{
    if (trial == NULL || seen == NULL || step == NULL) {
        return false;
    }
    int64_t least = INT64_MAX;

    for (size_t i = *seen; i < trial->cut_count; i++) {
        least = SONDE_MIN(least, trial->cuts[i]);
    }
    *seen = trial->cut_count;
    if (least == INT64_MAX) {
        return false;
    }
    *step = least;
    return true;
}

void sonde_trial_describe(const sonde_trial *trial, sonde_run_info *info)
{
    if (trial == NULL || info == NULL) {
        return;
    }
    *info = (sonde_run_info){
        .path = trial->address != NULL ? trial->address : trial->path,
        .id = or_empty(trial->id),
        .program = or_empty(trial->program),
        .model = or_empty(trial->model),
        .created = or_empty(trial->created),
        .end_reason = or_empty(trial->end_reason),
        .end_text = or_empty(trial->end_text),
        .status = trial->status,
        .world = trial->world,
        .workers = (int)trial->worker_count,
        .last_step = last_step_of(trial),
        .bytes = trial->bytes,
        .foreign = trial->smdebug != NULL,
        .seconds = -1.0,
    };
    if (trial->ended && trial->ended_at >= 0.0 &&
        sonde__trial_seconds(trial->created) >= 0.0) {
        info->seconds = trial->ended_at - sonde__trial_seconds(trial->created);
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        info->records += count_of(worker, sonde__evidence_in(SONDE__STORE_VALUE));
        info->rows += count_of(worker, sonde__evidence_in(SONDE__STORE_ROW));
        info->sketches += count_of(worker, sonde__evidence_in(SONDE__STORE_SKETCH));
        info->lost += worker->lost;
        info->superseded += worker->superseded;
        info->superseded_steps += worker->superseded_steps;
        info->resumed = info->resumed || worker->generation_count > 0;
    }
    find_times(trial, info);
}

int sonde_trial_worker(const sonde_trial *trial, size_t i)
{
    if (trial == NULL) {
        return -1;
    }
    return i < trial->worker_count ? trial->workers[i]->rank : -1;
}

const char *sonde_trial_worker_name(const sonde_trial *trial, size_t i)
{
    if (trial == NULL) {
        return NULL;
    }
    return i < trial->worker_count ? trial->workers[i]->name : NULL;
}

const char *sonde_trial_damage(const sonde_trial *trial, size_t i)
{
    if (trial == NULL) {
        return NULL;
    }
    static const char more[] = "and more that is damaged than is listed here";
    const sonde__trial_damage_list *damage = &trial->damage;

    if (i < damage->count) {
        return damage->lines[i];
    }
    return i == damage->count && damage->more > 0 ? more : NULL;
}
