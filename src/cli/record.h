/*
 * record.h - the options by which a command records what it runs, and the hook they make.
 */
#ifndef SONDE_CLI_RECORD_H
#define SONDE_CLI_RECORD_H

#include <sonde/control.h>
#include <sonde/hook.h>
#include <sonde/nn/job.h>

#include "cli/cli.h"

typedef struct cli_resume cli_resume; /* resume.h */

/* As on the command line; a command has one in its own struct. */
typedef struct cli_record {
    const char *run, *config;
    cli_list include;
    int64_t interval, vitals;
    bool all, no_vitals, compress;
    const cli_resume *resume; /* where to go on; NULL: a new run */
} cli_record;

/*
 * The hook that the options, the job's section `record` or smdebug's configuration in the
 * environment ask for; *out stays NULL if nothing is to be recorded. text is what cli_job_open was given;
 * it and program go to the run's description.
 */
sonde_err cli_hook_open(const cli_record *asked, const char *text, sonde_nn_job *job,
                        const char *program, sonde_hook **out, sonde_diag *diag);
/* Ends the run as err says (with *diag); tells what was lost as a warning. NULL is fine. */
void cli_hook_close(sonde_hook *hook, sonde_err err, const sonde_diag *diag);

/* Ends a run that was asked to stop. NULL is fine. */
void cli_hook_stop(sonde_hook *hook, const sonde_request *asked);

/* Rows of an option table; `values` is the command's struct, which has a member `record`. */
#define CLI_RECORD_OPTION(values, name, kind, argument, field, help)                     \
    {                                                                                    \
        name, 0, kind, argument, help, offsetof(values, record.field)                    \
    }
#define CLI_RECORD_OPTIONS(values)                                                       \
    CLI_RECORD_OPTION(values, "record", CLI_TEXT, "RUN", run,                            \
                      "record tensors and vital signs in this new folder"),              \
        CLI_RECORD_OPTION(values, "hook-config", CLI_TEXT, "FILE", config,               \
                          "what is recorded and when: YAML, JSON, or smdebug's JSON"),   \
        CLI_RECORD_OPTION(values, "save-interval", CLI_SIZE, "N", interval,              \
                          "save raw values every N steps (500)"),                        \
        CLI_RECORD_OPTION(                                                               \
            values, "save-all", CLI_FLAG, NULL, all,                                     \
            "save every tensor, not only those of the default collections"),             \
        CLI_RECORD_OPTION(values, "record-include", CLI_LIST, "TENSORS", include,        \
                          "save these too; may be given again"),                         \
        CLI_RECORD_OPTION(values, "vitals-interval", CLI_SIZE, "N", vitals,              \
                          "vital signs of parameters every N steps (10)"),               \
        CLI_RECORD_OPTION(values, "no-vitals", CLI_FLAG, NULL, no_vitals,                \
                          "record no vital signs but those asked for"),                  \
        CLI_RECORD_OPTION(values, "record-compress", CLI_FLAG, NULL, compress,           \
                          "compress recorded values")

#endif
