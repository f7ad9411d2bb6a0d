/*
 * run.h - what ls, show, tail, query, export, verify and plot have in common: a run that is
 * open for reading, and the texts that say which tensors, steps, modes and statistics.
 */
#ifndef SONDE_CLI_CLI_RUN_H
#define SONDE_CLI_CLI_RUN_H

#include <sonde/export_run.h>
#include <sonde/json.h>
#include <sonde/trial.h>

#include "cli/cli.h"

/* For help: what --stat takes, as a paragraph. */
#define CLI_STATISTICS                                                                   \
    "\n\nStatistics: count, min, max, mean, variance, std, sum, l1, l2, linf, "          \
    "abs_min,\n"                                                                         \
    "abs_max, abs_mean, abs_variance, abs_std, nan, pos_inf, neg_inf, zero, "            \
    "nonfinite.\n"                                                                       \
    "From saved values, or nearly from saved histograms: median, p95, quantile:0.95.\n"  \
    "From saved values alone: prod, hash. abs_median and so on: of absolute values."

enum { CLI_STATS_MOST = 2 * SONDE_STAT_ENTRIES };

/* What --stat says. */
typedef struct cli_stats {
    sonde_reduction item[CLI_STATS_MOST];
    size_t count;
} cli_stats;

/* What the options of several commands ask for. */
typedef struct cli_range {
    sonde_mode mode;
    int64_t begin, end; /* end 0: none */
    int worker;         /* -1: the first, or all */
} cli_range;

/* mode: NULL for global. steps: "A:B" (B exclusive), "A:", ":B", "A" or NULL for all.
 * worker: CLI_NOT_GIVEN for -1. */
sonde_err cli_range_parse(const char *mode, const char *steps, int64_t worker,
                          cli_range *range, sonde_diag *diag);
/* "mean,p95": each known, and none twice. text NULL: those of usual. */
sonde_err cli_stats_parse(const char *text, const char *usual, cli_stats *stats,
                          sonde_diag *diag);
/* What of SONDE_HOW_ answers any of them. */
unsigned cli_stats_evidence(const cli_stats *stats);
/* A number as a table has it, "-" where what was saved does not tell; returns buf. */
const char *cli_reduced_text(const sonde_reduction *of, const sonde_reduced *value,
                             char *buf, size_t size);

/* The tensors of a selector, or of "@NAME", a collection that was recorded. ids are freed
 * with sonde_selector_free_ids. */
sonde_err cli_resolve(const sonde_trial *trial, const char *text, uint32_t **ids,
                      size_t *count, sonde_diag *diag);
/* The same; a pattern that matches nothing is warned of. text NULL: all. */
sonde_err cli_select(const sonde_trial *trial, const char *text, uint32_t **ids,
                     size_t *count, sonde_diag *diag);
/* The same where nothing matched is SONDE_ENOTFOUND. */
sonde_err cli_select_some(const sonde_trial *trial, const char *text, uint32_t **ids,
                          size_t *count, sonde_diag *diag);
sonde_err cli_fail_memory(sonde_diag *diag);
/* For sonde_export_options.told: warns of what cannot be read, of the first few at length;
 * user is a size_t that counts, from 0. The other tells at the end of how many more, and
 * gives the exit code of a command that did all the rest. */
void cli_left_out(void *user, const char *text);
int cli_left_out_end(size_t count);
/* Whether a tensor is a single number. */
bool cli_is_number(const sonde_tensor_info *info);
/* SONDE_ENOTFOUND: nothing of the tensor was saved in the range; says what was, near it. */
sonde_err cli_fail_nothing(sonde_trial *trial, uint32_t id, const cli_range *range,
                           unsigned how, sonde_diag *diag);
/* The last step of the range's mode at which a tensor has one of how. */
sonde_err cli_last_step(sonde_trial *trial, uint32_t id, const cli_range *range,
                        unsigned how, int64_t *step, sonde_diag *diag);

/* "step 100 (train 90)", or "step 100" where mode and count are those of all modes. */
const char *cli_step_text(sonde_trial *trial, sonde_mode mode, int64_t step, char *buf,
                          size_t size);
/* Things of a run that cannot be read. */
size_t cli_count_damage(const sonde_trial *trial);
const char *cli_status_name(sonde_run_status status);
/* Of a step's time (ns since 1970): "2026-01-31T12:00:00Z"; its age in seconds. */
const char *cli_moment_text(int64_t time, char *buf, size_t size);
double cli_age(int64_t time);
/* "3.2 s", "2 min 5 s", "1 h 3 min", "2 d 3 h" */
const char *cli_duration_text(double seconds, char *buf, size_t size);
/* Over the last hundred steps that something was saved at; 0: not known. */
double cli_steps_per_second(sonde_trial *trial);
/* Letters of a UTF-8 text, and the width that printf's %-*s needs for it to fill columns. */
int cli_letters(const char *text);
int cli_field(const char *text, int columns);
/* The writer of JSON for stdout, with blanks after ',' and ':'. */
sonde_json *cli_json(void);
/* Prints what has been written so far, and end. */
void cli_json_print(const char *end);
/* The member "shape". */
void cli_json_shape(sonde_json *json, const sonde_tensor_info *info);
/* How wide the terminal is: COLUMNS, or what it says, or 80. */
int cli_columns(void);
/* Whether what is printed may be UTF-8, as the locale's variables say. */
bool cli_is_utf8(void);

#endif
