/*
 * cli.h - what all sub-commands share: option tables, errors, output, progress, Ctrl-C.
 *
 * A command is a table row: a name, what it does, its options, a function. Parsing,
 * --help, the manual page and shell completion all come from the row.
 *
 * Exit codes: 0 well, 1 a verdict (a rule fired, an image class unknown ...), 2 an
 * error, 3 a rule that was asked for could not judge, 130 interrupted.
 */
#ifndef SONDE_CLI_CLI_H
#define SONDE_CLI_CLI_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <sonde/error.h>

enum {
    CLI_OK = 0,
    CLI_VERDICT = 1,
    CLI_ERROR = 2,
    CLI_LACKED = 3,
    CLI_INTERRUPTED = 130
};

#define CLI_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* --- options ---------------------------------------------------------------------- */

typedef enum cli_kind {
    CLI_FLAG = 0,  /* bool: true when given */
    CLI_TEXT = 1,  /* const char *: borrowed from argv */
    CLI_COUNT = 2, /* int64_t, 0 to INT32_MAX; CLI_NOT_GIVEN otherwise */
    CLI_REAL = 3,  /* double; NAN otherwise */
    CLI_LIST = 4,  /* cli_list: may be given again */
    CLI_SIZE = 5,  /* as CLI_COUNT, from 1 */
    CLI_SEED = 6,  /* as CLI_COUNT, to INT64_MAX */
    CLI_MAYBE = 7, /* as CLI_TEXT; "" if no value follows, or an option does */
    CLI_FORMAT = 8 /* bool: text or json, true for json */
} cli_kind;

#define CLI_NOT_GIVEN INT64_MIN
enum { CLI_LIST_MOST = 64 };

typedef struct cli_list {
    const char *text[CLI_LIST_MOST];
    size_t count;
} cli_list;

typedef struct cli_option {
    const char *name; /* long, without dashes */
    char letter;      /* short; 0: none */
    cli_kind kind;
    const char *argument; /* what stands for the value in help: "FILE"; NULL for a flag */
    const char *help;
    size_t offset; /* of the field in the command's own struct */
} cli_option;

/* A row of a table whose command has its values in a struct of that type. */
#define CLI_OPTION(type, name, letter, kind, argument, field, help)                      \
    {                                                                                    \
        name, letter, kind, argument, help, offsetof(type, field)                        \
    }

typedef struct cli_command cli_command;
struct cli_command {
    void (*prepare)(
        void);        /* completes options, once, before anything else; NULL: complete */
    const char *name; /* "train", "data fetch" */
    const char *arguments;     /* "[MODEL | JOB.yaml]" */
    const char *summary;       /* one line */
    const char *details;       /* paragraphs for help and the manual */
    const char *examples;      /* lines "command # what it does"; may be NULL */
    const cli_option *options; /* end with option_count, or with a row without a name */
    size_t option_count;
    int least, most; /* positional arguments; most -1: any number */
    size_t values_size;
    bool verbatim; /* what follows goes to run as it is, but for --help alone */
    /* values: the command's own struct, filled; arguments: argc of them. */
    int (*run)(const void *values, int argc, char **argv);
};

extern const cli_command *const *cli_commands; /* NULL-terminated; main.c has them */

size_t cli_option_count(const cli_command *command);

/* Parses argv (without the command's words), runs. Handles --help. */
int cli_run(const cli_command *command, int argc, char **argv);
/* The command that the first words of argv name, and how many words that took. */
const cli_command *cli_find(int argc, char **argv, int *words);

void cli_print_help(const cli_command *command, FILE *stream);
void cli_print_overview(FILE *stream);
/* The commands whose first word this is: fetch, synth and info of data. */
void cli_print_group(const char *word, FILE *stream);

/* --- messages --------------------------------------------------------------------- */

/* "sonde: error: ..." on stderr; returns CLI_ERROR, or CLI_INTERRUPTED. */
int cli_fail(const sonde_diag *diag);
int cli_fail_text(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* In a training of several processes: errors, warnings and findings of a rank after the first
 * have "rank 1: ", and each line is written at once. Called before anything is written. */
void cli_set_rank(int rank);
/* Errors and warnings are not printed. */
void cli_mute(bool on);
void cli_put_rank(FILE *stream);
/* "train: unknown option '--epoch' (expected --epochs)". */
int cli_fail_unknown(const cli_command *command, const char *text);
void cli_warn(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
/* From now on the log speaks as the command does, warnings and worse; or, if
 * SONDE_LOG_LEVEL says a level, in lines of its own, with time and room. */
void cli_log_open(void);
/* Escapes control characters in everything that is printed from here on. */
void cli_guard_output(void);
/* Room for the name of a class, which is that of a folder, and for a path. */
enum { CLI_CLASS = 1024, CLI_SHOWN_PATH = 16384 };
/* A name for a line of a table: newlines and tabs as \x0a and \x09, cut where buf ends;
 * returns buf. */
const char *cli_one_line(const char *text, char *buf, size_t size);
/* While on, the log omits its line about a finding: the command has printed it. */
void cli_log_omit_finding(bool on);
/* "18,750"; returns buf. */
const char *cli_commas(uint64_t number, char buf[32]);
/* Bytes as "12.3 MB", seconds as "4.2 s" or "1:02:03"; returns buf. */
const char *cli_bytes_text(double bytes, char *buf, size_t size);
const char *cli_seconds_text(double seconds, char *buf, size_t size);
double cli_now(void);
/* Creates a folder and those above it; an existing one is fine. Checks that it can be
 * written to. If the command fails, cli_fail removes those that are still empty. */
sonde_err cli_make_folder(const char *path, sonde_diag *diag);
/* "folder/name" in buf. SONDE_EINVAL if it is too long. */
sonde_err cli_join(const char *folder, const char *name, char *buf, size_t size,
                   sonde_diag *diag);

/* --- progress --------------------------------------------------------------------- */

/*
 * A progress line on stderr with rate and remaining time, redrawn if stderr is a terminal.
 * Elsewhere, cli_progress_end writes one plain line.
 */
typedef struct cli_progress {
    const char *title;
    const char *unit; /* "samples" */
    int64_t total, done;
    double started, drawn;
    bool terminal, quiet;
} cli_progress;

void cli_progress_begin(cli_progress *progress, const char *title, const char *unit,
                        int64_t total, bool quiet);
/* Cheap: reads the clock, draws at most ten times a second. note may be NULL. */
void cli_progress_update(cli_progress *progress, int64_t done, const char *note);
/* Clears the line. */
void cli_progress_end(cli_progress *progress);
/* For sonde_nn_options.on_progress: the bar of compilation, which stays. On a terminal
 * only. */
void cli_compile_progress(void *user, int done, int total);

/* --- Ctrl-C ----------------------------------------------------------------------- */

/* From now on SIGINT, SIGTERM and SIGHUP (a lost terminal) only set a flag; a second one
 * ends the process at once. */
void cli_catch_interrupt(void);
bool cli_interrupted(void);

#endif
