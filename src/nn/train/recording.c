/*
 * recording.c - a trainer's recording, and the checkpoint that it resumes from.
 */
#include "nn/train/train_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <sonde/json.h>
#include <sonde/log.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <stdarg.h>

sonde_err sonde__train_path(const char *folder, const char *name,
                            char path[SONDE__TRAIN_PATH], sonde_diag *diag)
{
    const int length = snprintf(path, SONDE__TRAIN_PATH, "%s/%s", folder, name);

    return length >= 0 && length < SONDE__TRAIN_PATH
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EINVAL, name, "a shorter path",
                             "a folder of %zu bytes", strlen(folder));
}

void sonde__train_warn(const sonde_nn_trainer *trainer, const char *format, ...)
{
    const sonde_nn_trainer_events *events = &trainer->options.events;
    char text[SONDE__TRAIN_PATH + 256];
    va_list args;

    va_start(args, format);
    (void)sonde__vsnprintf(text, sizeof text, format, args);
    va_end(args);
    if (events->warning != NULL) {
        events->warning(events->user, text);
    } else {
        sonde_log(SONDE_LOG_WARNING, "train", "%s", text);
    }
}

/* --- the hook ----------------------------------------------------------------------- */

/* smdebug's configuration file, unless the environment names none or switches it off. */
static const char *smdebug_config(void)
{
    const char *use = getenv("USE_SMDEBUG"), *path = getenv("SMDEBUG_CONFIG_FILE_PATH");

    if (use != NULL && (strcmp(use, "0") == 0 || sonde__strcasecmp(use, "false") == 0)) {
        return NULL;
    }
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* The first option that configures a recording; NULL: none. */
static const char *any_given(const sonde_nn_job_record *record)
{
    return record->every > 0           ? "record_every"
           : record->save_all          ? "save_all"
           : record->include.count > 0 ? "record_include"
           : record->vitals_every > 0  ? "vitals_every"
           : record->no_vitals         ? "no_vitals"
           : record->compress          ? "record_compress"
                                       : NULL;
}

/* Applies the recording options of a job to a hook. */
static sonde_err configure(const sonde_nn_job_record *record, sonde_hook *hook,
                           sonde_diag *diag)
{
    sonde_text text = {0};
    sonde_json json = {.text = &text};

    if (record->every == 0 && record->include.count == 0) {
        return SONDE_OK;
    }
    sonde_json_object(&json, NULL);
    if (record->every > 0) {
        sonde_json_int(&json, "every", record->every);
    }
    if (record->include.count > 0) {
        sonde_json_list(&json, "include");
        for (size_t i = 0; i < record->include.count; i++) {
            sonde_json_string(&json, NULL, record->include.text[i]);
        }
        sonde_json_end(&json);
    }
    sonde_json_end(&json);
    const sonde_err err = text.failed ? sonde__fail_nomem(diag, "a hook")
                                      : sonde_hook_configure(hook, text.data, diag);
    sonde_text_fini(&text);
    return err;
}

sonde_err sonde__train_hook_open(const sonde_nn_trainer *trainer, sonde_hook **out,
                                 sonde_diag *diag)
{
    const sonde_nn_trainer_options *asked = &trainer->options;
    const sonde_nn_job_info *info = sonde_nn_job_get_info(trainer->job);
    const sonde_nn_job_record *record = &info->record;
    const bool described = info->records;
    const char *path = record->path[0] != '\0' ? record->path : NULL;
    const char *file = record->config[0] != '\0' ? record->config
                       : !described              ? smdebug_config()
                                                 : NULL;
    const char *built_in = info->model_name[0] != '\0' ? info->model_name : NULL;
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(
            sonde_recorder, .path = path, .rank = sonde_nn_ranks_rank(asked->ranks),
            .world = sonde_nn_ranks_count(asked->ranks),
            .resume = asked->resume != NULL ? SONDE_RESUME_ANY : NULL,
            .program = asked->program,
            .model = asked->run_model != NULL ? asked->run_model : built_in,
            .compress = record->compress),
        .save_all = record->save_all,
        .no_vitals = record->no_vitals,
        .vitals_every = record->vitals_every};
    sonde_hook *hook = NULL;
    sonde_err err = SONDE_OK;

    if (file == NULL && path == NULL && !described) {
        const char *given = any_given(record);

        return given == NULL ? SONDE_OK
                             : sonde__fail(diag, SONDE_EINVAL, given, "--record RUN",
                                           "nothing is recorded");
    }
    SONDE__TRY_GO(file != NULL ? sonde_hook_load(file, &options, &hook, diag)
                               : sonde_nn_job_hook(trainer->job, &options, &hook, diag));
    SONDE__TRY_GO(configure(record, hook, diag));
    if (asked->resume != NULL) {
        SONDE__TRY_GO(
            sonde_hook_resume_at(hook, SONDE_MODE_TRAIN, trainer->resumed.step, diag));
    }
    *out = hook;
    return SONDE_OK;

error:
    (void)sonde_hook_close(hook, SONDE_RUN_FAILED, NULL, NULL);
    return err;
}

void sonde__train_hook_close(sonde_nn_trainer *trainer, sonde_err err,
                             const sonde_diag *diag)
{
    const sonde_request *stopped = trainer->stopped;
    sonde_run_end reason = SONDE_RUN_FAILED;
    char line[SONDE_DIAG_LINE];
    const char *text = NULL;
    sonde_diag lost = {0};

    if (err == SONDE_OK && stopped != NULL) {
        reason = stopped->by == SONDE_BY_RULE ? SONDE_RUN_STOPPED_BY_RULE
                                              : SONDE_RUN_INTERRUPTED;
        text = stopped->text;
    } else if (err == SONDE_OK) {
        reason = SONDE_RUN_FINISHED;
    } else if (err == SONDE_EINTERRUPTED) {
        reason = SONDE_RUN_INTERRUPTED;
    } else if (diag != NULL) {
        text = sonde_diag_line(diag, line, sizeof line);
    }
    if (sonde_hook_close(trainer->hook, reason, text, &lost) != SONDE_OK) {
        sonde__train_warn(trainer, "recording: %s",
                          sonde_diag_line(&lost, line, sizeof line));
    }
    trainer->hook = NULL;
}

/* --- results of an earlier training ------------------------------------------------- */

enum { MODEL, CHECKPOINT, CHECKPOINTS, TOKENIZER, RESULTS, NAME_SIZE = 48 };

static const struct {
    const char *name, *suffix;
} results[RESULTS] = {[MODEL] = {"model", ".safetensors"},
                      [CHECKPOINT] = {"checkpoint", ".safetensors"},
                      [CHECKPOINTS] = {"checkpoints", ""},
                      [TOKENIZER] = {"tokenizer", ".json"}};

/* Whether the folder has the result; number 0: that of the last training. */
static bool has_result(const char *folder, int i, int number, char name[NAME_SIZE],
                       char path[SONDE__TRAIN_PATH])
{
    char middle[16] = "";

    if (number > 0) {
        (void)snprintf(middle, sizeof middle, ".%d", number);
    }
    (void)snprintf(name, NAME_SIZE, "%s%s%s", results[i].name, middle, results[i].suffix);
    return sonde__train_path(folder, name, path, NULL) == SONDE_OK &&
           access(path, F_OK) == 0;
}

/* The first number that no kept result has. */
static int free_number(const char *folder)
{
    char name[NAME_SIZE], path[SONDE__TRAIN_PATH];
    int number = 1;

    for (int i = 0; i < RESULTS; i++) {
        while (has_result(folder, i, number, name, path)) {
            number++;
            i = 0;
        }
    }
    return number;
}

static bool continues(const sonde_nn_trainer *trainer)
{
    char path[SONDE__TRAIN_PATH];
    struct stat resumed, present;

    return trainer->resume[0] != '\0' &&
           sonde__train_path(trainer->options.out, "checkpoint.safetensors", path,
                             NULL) == SONDE_OK &&
           stat(trainer->resume, &resumed) == 0 && stat(path, &present) == 0 &&
           resumed.st_dev == present.st_dev && resumed.st_ino == present.st_ino;
}

sonde_err sonde__train_keep_former(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const char *out = trainer->options.out;
    char renamed[4 * NAME_SIZE * RESULTS] = "";
    bool kept_one[RESULTS] = {false};
    size_t used = 0;

    if (trainer->former_kept || out == NULL) {
        return SONDE_OK;
    }
    trainer->former_kept = continues(trainer); /* its own results */
    if (trainer->former_kept) {
        return SONDE_OK;
    }
    const int number = free_number(out);
    for (int i = 0; i < RESULTS; i++) {
        char name[NAME_SIZE], kept[NAME_SIZE];
        char path[SONDE__TRAIN_PATH], kept_path[SONDE__TRAIN_PATH];

        if (!has_result(out, i, 0, name, path)) {
            continue;
        }
        (void)has_result(out, i, number, kept, kept_path);
        if (rename(path, kept_path) != 0) {
            return sonde__fail_errno(diag, path, "cannot be renamed to keep it");
        }
        kept_one[i] = true;
        used += (size_t)snprintf(renamed + used, sizeof renamed - used, "%s%s as %s",
                                 used > 0 ? ", " : "", name, kept);
    }
    if (kept_one[CHECKPOINT] && !kept_one[MODEL]) {
        sonde__train_warn(
            trainer,
            "%s: an interrupted training is kept: %s; to continue it, resume "
            "from that checkpoint",
            out, renamed);
    } else if (used > 0) {
        sonde__train_warn(trainer, "%s: results of an earlier training are kept: %s", out,
                          renamed);
    }
    trainer->former_kept = true;
    return SONDE_OK;
}

/* --- resuming ----------------------------------------------------------------------- */

static bool is_file(const char *path)
{
    struct stat status;

    return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

static sonde_err find_checkpoint(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const char *asked = trainer->options.resume, *out = trainer->options.out;

    if (asked == NULL || (asked[0] == '\0' && out == NULL)) {
        return SONDE_OK;
    }
    if (asked[0] == '\0') {
        SONDE__TRY(
            sonde__train_path(out, "checkpoint.safetensors", trainer->resume, diag));
    } else if (strlen(asked) < sizeof trainer->resume) {
        memcpy(trainer->resume, asked, strlen(asked) + 1);
    } else {
        return sonde__fail(diag, SONDE_EINVAL, "resume", "a shorter path", "%zu bytes",
                           strlen(asked));
    }
    if (asked[0] == '\0' && !is_file(trainer->resume)) {
        sonde__train_warn(trainer, "%s: no checkpoint yet; training starts at step 0",
                          trainer->resume);
        trainer->resume[0] = '\0';
        return SONDE_OK;
    }
    return sonde_nn_checkpoint_describe(trainer->resume, &trainer->resumed, diag);
}

/* Rank 0 alone reads the checkpoint; the others hear at which step it was made. */
sonde_err sonde__train_resume_find(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    sonde_nn_ranks *ranks = trainer->options.ranks;

    if (sonde_nn_ranks_rank(ranks) == 0) {
        SONDE__TRY(find_checkpoint(trainer, diag));
    }
    double step = (double)trainer->resumed.step;
    SONDE__TRY(sonde_nn_ranks_sum(ranks, &step, 1, diag));
    trainer->resumed.step = (int64_t)step;
    return SONDE_OK;
}

static sonde_err refuse_setting(const sonde_nn_trainer *trainer, const char *name,
                                int64_t saved, int64_t wanted, sonde_diag *diag)
{
    char expected[64];

    (void)snprintf(expected, sizeof expected, "%s %lld", name, (long long)saved);
    return sonde__fail(diag, SONDE_EINVAL, trainer->resume, expected,
                       "made with another %s than %lld", name, (long long)wanted);
}

static const char *float_name(sonde_nn_float dtype)
{
    return dtype == SONDE_NN_BFLOAT16  ? "dtype bfloat16"
           : dtype == SONDE_NN_FLOAT16 ? "dtype float16"
                                       : "dtype float32";
}

/* The steps of other settings are other samples, or other roundings. */
static sonde_err check_settings(const sonde_nn_trainer *trainer, sonde_diag *diag)
{
    const sonde_nn_checkpoint_info *saved = &trainer->resumed;
    const float rate = trainer->optimizer.learning_rate;
    const struct {
        const char *name;
        int64_t saved, wanted;
    } settings[] = {
        {"batch_size", saved->batch_size, trainer->plan.batch_size},
        {"device_iterations", saved->device_iterations, trainer->plan.device_iterations},
        {"gradient_accumulation", saved->gradient_accumulation,
         trainer->plan.gradient_accumulation},
        {"replicas", saved->replicas, trainer->plan.replicas},
        {"ranks", saved->ranks, trainer->plan.ranks},
        {"seed", (int64_t)saved->random_seed,
         (int64_t)trainer->session_options.random_seed}};

    for (size_t i = 0; i < SONDE_COUNT_OF(settings); i++) {
        if (settings[i].saved != settings[i].wanted) {
            return refuse_setting(trainer, settings[i].name, settings[i].saved,
                                  settings[i].wanted, diag);
        }
    }
    if (saved->dtype != trainer->session_options.dtype) {
        return sonde__fail(diag, SONDE_EINVAL, trainer->resume, float_name(saved->dtype),
                           "made with another than %s",
                           float_name(trainer->session_options.dtype));
    }
    if (saved->learning_rate != rate && !trainer->scheduled) {
        sonde__train_warn(trainer,
                          "%s: made with learning_rate %g; this run continues with %g",
                          trainer->resume, (double)saved->learning_rate, (double)rate);
    }
    return SONDE_OK;
}

sonde_err sonde__train_resume_load(sonde_nn_trainer *trainer, sonde_diag *diag)
{
    if (trainer->resume[0] == '\0') {
        return SONDE_OK;
    }
    if (trainer->resumed.settings) {
        SONDE__TRY(check_settings(trainer, diag));
    }
    return sonde_nn_session_load(trainer->session, trainer->resume, diag);
}

sonde_err sonde__train_resume_check_data(const sonde_nn_trainer *trainer,
                                         sonde_diag *diag)
{
    const int64_t saved = trainer->resumed.epoch_calls, wanted = trainer->feed.batches;

    if (trainer->resume[0] != '\0' && saved > 0 && saved != wanted) {
        return sonde__fail(diag, SONDE_EINVAL, trainer->resume,
                           "the same training samples, and the same validation",
                           "an epoch had %lld calls, and now has %lld", (long long)saved,
                           (long long)wanted);
    }
    return sonde_nn_session_set(
        trainer->session, SONDE_OPTIONS(sonde_nn_session, .epoch_calls = wanted), diag);
}
