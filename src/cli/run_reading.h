/*
 * run_reading.h - what the commands that read runs share: parsing tensors, steps, modes and
 * statistics, and printing.
 */
#ifndef SONDE_CLI_RUN_READING_H
#define SONDE_CLI_RUN_READING_H

#include <sonde/export_run.h>
#include <sonde/trial.h>

#include "cli/cli.h"
#include "cli/cells.h"

/* The values of --stat, as a paragraph of help: sonde_stat_name has the first 20. */
#define CLI_STATISTICS                                                                    \
    "\n\nStatistics: count, min, max, mean, variance, std, sum, l1, l2, linf, abs_min,\n" \
    "abs_max, abs_mean, abs_variance, abs_std, nan, pos_inf, neg_inf, zero, nonfinite.\n" \
    "From saved values, or approximately from saved histograms: median, p95,\n"           \
    "quantile:0.95. "                                                                     \
    "From saved values only: prod, hash. With abs_, of absolute\n"                        \
    "values: abs_median, abs_p95 and so on."

enum { CLI_STATS_MOST = 2 * SONDE_STAT_ENTRIES };

/* The statistics of --stat. */
typedef struct cli_stats {
    sonde_reduction item[CLI_STATS_MOST];
    size_t count;
} cli_stats;

/* --mode, --steps and --worker. */
typedef struct cli_range {
    sonde_mode mode;
    int64_t begin, end; /* end 0: none */
    int worker;         /* -1: the first, or all */
} cli_range;

/* mode: NULL for global. steps: "A:B" (B exclusive), "A:", ":B", "A" or NULL for all.
 * worker: CLI_NOT_GIVEN for -1. */
sonde_err cli_range_parse(const char *mode, const char *steps, int64_t worker,
                          cli_range *range, sonde_diag *diag);
/* Parses "mean,p95". text NULL: usual. SONDE_EINVAL: unknown, or given twice. */
sonde_err cli_stats_parse(const char *text, const char *usual, cli_stats *stats,
                          sonde_diag *diag);
/* The SONDE_HOW_ bits that answer any of them. */
unsigned cli_stats_evidence(const cli_stats *stats);
/* A number for a table, "-" if nothing saved answers it. Returns buf. */
const char *cli_reduced_text(const sonde_reduction *reduction, const sonde_reduced *value,
                             char *buf, size_t size);

/* The tensors of a selector, or of "@NAME" for a recorded collection. *ids is new;
 * free it with sonde_release. */
sonde_err cli_resolve(const sonde_trial *trial, const char *text, uint32_t **ids,
                      size_t *count, sonde_diag *diag);
/* The same, with a warning if a pattern matches nothing. text NULL: all. */
sonde_err cli_select(const sonde_trial *trial, const char *text, uint32_t **ids,
                     size_t *count, sonde_diag *diag);
/* The same; SONDE_ENOTFOUND: nothing matches. */
sonde_err cli_select_some(const sonde_trial *trial, const char *text, uint32_t **ids,
                          size_t *count, sonde_diag *diag);
sonde_err cli_fail_memory(sonde_diag *diag);
/* For sonde_export_options.report_line: prints a warning for each of the first 10
 * values left out; user is a size_t that counts them. The second function prints how
 * many more there were, and returns the exit code. */
void cli_left_out(void *user, const char *text);
int cli_left_out_end(size_t count);
/* Options for the rows of tensors (none: of none) in a range, with values left out counted
 * in *left_out and warned of. */
sonde_export_options cli_rows(const uint32_t *ids, size_t count, const cli_range *range,
                              const cli_stats *stats, size_t *left_out);
/* Whether a tensor is a single number. */
bool cli_is_number(const sonde_tensor_info *info);
/* Fails with SONDE_ENOTFOUND: nothing was saved in the range. The diagnostic names the
 * nearest steps. */
sonde_err cli_fail_nothing(sonde_trial *trial, uint32_t id, const cli_range *range,
                           unsigned how, sonde_diag *diag);
/* The last step of the range's mode at which a tensor has one of how. */
sonde_err cli_last_step(sonde_trial *trial, uint32_t id, const cli_range *range,
                        unsigned how, int64_t *step, sonde_diag *diag);

/* "step 100 (train 90)", or "step 100" if its mode is not known. */
const char *cli_step_text(sonde_trial *trial, sonde_mode mode, int64_t step, char *buf,
                          size_t size);
/* The number of entries of sonde_trial_damage. */
size_t cli_count_damage(const sonde_trial *trial);
const char *cli_status_name(sonde_run_status status);
/* Warns that the writer of a run has gone without an end; false: it has not. */
bool cli_warn_crashed(const sonde_trial *trial, const char *path);
/* "no end was written", with the age of the last step (last_time 0: not known): for a run
 * whose writer cannot be checked. */
const char *cli_no_end_text(int64_t last_time, char *buf, size_t size);
/* A time (ns since 1970) as "2026-01-31T12:00:00Z"; its age in seconds. */
const char *cli_moment_text(int64_t time, char *buf, size_t size);
double cli_age(int64_t time);
/* "3.2 s", "2 min 5 s", "1 h 3 min", "2 d 3 h" */
const char *cli_duration_text(double seconds, char *buf, size_t size);
/* sonde_trial_steps; SONDE_ENOMEM. steps may be NULL. */
sonde_err cli_steps(sonde_trial *trial, sonde_mode mode, bool incomplete,
                    const int64_t **steps, size_t *count, sonde_diag *diag);
/* Over the last hundred saved steps; 0: not known. SONDE_ENOMEM. */
sonde_err cli_steps_per_second(sonde_trial *trial, double *rate, sonde_diag *diag);
/* Characters of a UTF-8 text; and the width for printf's %-*s that makes it fill
 * columns. */
int cli_letters(const char *text);
int cli_field(const char *text, int columns);
/* The width of the terminal: COLUMNS, or as reported, or 80. */
int cli_columns(void);
/* Whether the locale is UTF-8. */
bool cli_is_utf8(void);

#endif
