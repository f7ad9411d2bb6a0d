/*
 * record.c - a hook from a command line.
 */
#include "cli/cli_resume.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* smdebug's configuration file, if the environment names one and does not switch it off. */
static const char *smdebug_config(void)
{
    const char *use = getenv("USE_SMDEBUG"), *path = getenv("SMDEBUG_CONFIG_FILE_PATH");

    if (use != NULL && (strcmp(use, "0") == 0 || strcasecmp(use, "false") == 0)) {
        return NULL;
    }
    return path != NULL && path[0] != '\0' ? path : NULL;
}

/* The first option that says something about a recording; NULL if none does. */
static const char *any_given(const cli_record *asked)
{
    const struct {
        const char *name;
        bool given;
    } options[] = {{"--save-interval", asked->interval != CLI_NOT_GIVEN},
                   {"--save-all", asked->all},
                   {"--record-include", asked->include.count > 0},
                   {"--vitals-interval", asked->vitals != CLI_NOT_GIVEN},
                   {"--no-vitals", asked->no_vitals},
                   {"--record-compress", asked->compress}};

    for (size_t i = 0; i < CLI_COUNT_OF(options); i++) {
        if (options[i].given) {
            return options[i].name;
        }
    }
    return NULL;
}

/* The name of a built-in model; NULL for one that a job describes. */
static const char *model_of(const char *text, sonde_nn_job *job)
{
    const char *name = sonde_nn_job_get_info(job)->model_name;

    if (name[0] != '\0') {
        return name;
    }
    for (size_t i = 0; (name = sonde_nn_job_builtin_name(i)) != NULL; i++) {
        if (strcmp(name, text != NULL ? text : "fashion_cnn") == 0) {
            return name;
        }
    }
    return NULL;
}

/* What the command line adds to a hook that is made. */
static sonde_err configure(const cli_record *asked, sonde_hook *hook, sonde_diag *diag)
{
    sonde_save_config config = sonde_save_config_unset();
    sonde_err err = SONDE_OK;

    if (asked->interval != CLI_NOT_GIVEN) {
        config.every = asked->interval;
        err = sonde_hook_save(hook, NULL, -1, &config, diag);
    }
    if (err == SONDE_OK && asked->include.count > 0) {
        err = sonde_hook_add_collection(hook, "default", diag);
    }
    for (size_t i = 0; i < asked->include.count && err == SONDE_OK; i++) {
        err = sonde_hook_include(hook, "default", asked->include.text[i], diag);
    }
    return err;
}

sonde_err cli_hook_open(const cli_record *asked, const char *text, sonde_nn_job *job,
                        const char *program, sonde_hook **out, sonde_diag *diag)
{
    const char *file = asked->config;
    const char *resume = asked->resume != NULL ? SONDE_RESUME_ANY : NULL;
    sonde_hook_options options = {.record = {.path = asked->run,
                                             .resume = resume,
                                             .program = program,
                                             .model = model_of(text, job),
                                             .compress = asked->compress},
                                  .save_all = asked->all,
                                  .no_vitals = asked->no_vitals,
                                  .vitals_every =
                                      asked->vitals != CLI_NOT_GIVEN ? asked->vitals : 0};
    sonde_hook *hook = NULL;
    sonde_err err = SONDE_OK;

    if (file == NULL && !sonde_nn_job_records(job)) {
        file = smdebug_config();
    }
    if (file == NULL && asked->run == NULL && !sonde_nn_job_records(job)) {
        const char *given = any_given(asked);

        if (given == NULL) {
            return SONDE_OK;
        }
        *diag = (sonde_diag){.err = SONDE_EINVAL, .found = "nothing is recorded"};
        (void)snprintf(diag->where, sizeof diag->where, "%s", given);
        (void)snprintf(diag->expected, sizeof diag->expected, "--record RUN");
        return SONDE_EINVAL;
    }
    err = file != NULL ? sonde_hook_load(file, &options, &hook, diag)
                       : sonde_nn_job_hook(job, &options, &hook, diag);
    if (err == SONDE_OK) {
        err = configure(asked, hook, diag);
    }
    if (err == SONDE_OK && asked->resume != NULL) {
        err = sonde_hook_go_on(hook, SONDE_MODE_TRAIN, asked->resume->step, diag);
    }
    if (err != SONDE_OK) {
        (void)sonde_hook_close(hook, SONDE_RUN_FAILED, NULL, NULL);
        return err;
    }
    *out = hook;
    return SONDE_OK;
}

static void close_hook(sonde_hook *hook, sonde_run_end reason, const char *text)
{
    char line[SONDE_DIAG_LINE];
    sonde_diag lost = {0};

    if (sonde_hook_close(hook, reason, text, &lost) != SONDE_OK) {
        cli_warn("recording: %s", sonde_diag_line(&lost, line, sizeof line));
    }
}

void cli_hook_stop(sonde_hook *hook, const sonde_request *asked)
{
    close_hook(hook,
               asked->by == SONDE_BY_RULE ? SONDE_RUN_STOPPED_BY_RULE
                                          : SONDE_RUN_INTERRUPTED,
               asked->text);
}

void cli_hook_close(sonde_hook *hook, sonde_err err, const sonde_diag *diag)
{
    const sonde_run_end reason = err == SONDE_OK             ? SONDE_RUN_FINISHED
                                 : err == SONDE_EINTERRUPTED ? SONDE_RUN_INTERRUPTED
                                                             : SONDE_RUN_FAILED;
    char line[SONDE_DIAG_LINE];

    close_hook(hook, reason,
               reason == SONDE_RUN_FAILED ? sonde_diag_line(diag, line, sizeof line)
                                          : NULL);
}
