/*
 * cmd_control.c - `sonde stop` and `sonde checkpoint`: requests to a run that is being
 * recorded.
 */
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/control.h>

#include <string.h>

typedef struct control_values {
    const char *text;
} control_values;

/* SONDE_ESTATE if nobody is there to be asked. */
static sonde_err check_running(const char *path, sonde_diag *diag)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde_trial_open(path, NULL, &trial, diag));
    sonde_trial_describe(trial, &info);
    if (info.status != SONDE_RUN_RUNNING) {
        err = sonde_diag_set(diag, SONDE_ESTATE, path, "a run that has not ended",
                             "the run has %s", cli_status_name(info.status));
    }
    sonde_trial_close(trial);
    return err;
}

static int ask(const char *path, sonde_request_kind kind, const char *text)
{
    sonde_diag diag = {0};
    sonde_err err = check_running(path, &diag);

    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    err = sonde_control_send(path, kind, SONDE_BY_USER, text, &diag);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    (void)printf("%s: %s requested\n", path, sonde_request_kind_name(kind));
    return CLI_OK;
}

static int run_stop(const void *values, int argc, char **argv)
{
    const control_values *asked = values;

    (void)argc;
    return ask(argv[0], SONDE_REQUEST_STOP,
               asked->text != NULL ? asked->text : "requested by 'sonde stop'");
}

static int run_checkpoint(const void *values, int argc, char **argv)
{
    const control_values *asked = values;

    (void)argc;
    return ask(argv[0], SONDE_REQUEST_CHECKPOINT,
               asked->text != NULL ? asked->text : "requested by 'sonde checkpoint'");
}

static const cli_option options[] = {
    {"text", 0, CLI_TEXT, "TEXT", "store this reason with the request",
     offsetof(control_values, text)},
};

const cli_command cli_stop = {
    .name = "stop",
    .arguments = "RUN",
    .summary = "ask a run that is being recorded to stop",
    .details =
        "The trainer that records RUN ends after its current step, within about 50 ms and\n"
        "a step, and saves its weights and a checkpoint. This command does not wait.",
    .examples = "  sonde stop runs/first",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(control_values),
    .run = run_stop,
};

const cli_command cli_checkpoint = {
    .name = "checkpoint",
    .arguments = "RUN",
    .summary = "ask a run that is being recorded for a checkpoint",
    .details =
        "The trainer that records RUN saves RUN/checkpoints/step-<number>.safetensors\n"
        "after its current step, and continues. This command does not wait.",
    .examples = "  sonde checkpoint runs/first",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(control_values),
    .run = run_checkpoint,
};
