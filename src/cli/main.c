/*
 * main.c - the table of commands, a command line against the options of one (by
 * getopt_long), and the way into the commands.
 */
#include "cli/cli.h"

#include <sonde/log.h>
#include <sonde/stats.h>

#include <errno.h>
#include <getopt.h>
#include <math.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

/* --- the table -------------------------------------------------------------------- */

extern const cli_command cli_train, cli_eval, cli_predict, cli_tensors, cli_compile,
    cli_ls, cli_show, cli_tail, cli_query, cli_diff, cli_export, cli_verify, cli_plot,
    cli_rules, cli_rules_list, cli_rules_show, cli_stop, cli_checkpoint, cli_send,
    cli_demo, cli_demo_list, cli_data_fetch, cli_data_synth, cli_data_info, cli_manual,
    cli_watch, cli_check, cli_program;

static const cli_command *const commands[] = {
    &cli_watch,      &cli_check,      &cli_train,      &cli_eval,   &cli_predict,
    &cli_tensors,    &cli_compile,    &cli_ls,         &cli_show,   &cli_tail,
    &cli_query,      &cli_diff,       &cli_export,     &cli_verify, &cli_plot,
    &cli_program,    &cli_rules_list, &cli_rules_show, &cli_rules,  &cli_stop,
    &cli_checkpoint, &cli_send,       &cli_demo_list,  &cli_demo,   &cli_data_fetch,
    &cli_data_synth, &cli_data_info,  &cli_manual,     NULL,
};

/* --- options ---------------------------------------------------------------------- */

enum { MOST_OPTIONS = 128, FIRST_CODE = 256 };

/* The long option that was probably meant; NULL if none is similar. */
static const char *nearest_option(const cli_command *command, const char *text)
{
    const char *names[MOST_OPTIONS];

    for (size_t i = 0; i < cli_option_count(command); i++) {
        names[i] = command->options[i].name;
    }
    return sonde_diag_nearest(text + strspn(text, "-"), names, cli_option_count(command));
}

/* A whole number of the range that its kind has. */
static int store_number(const cli_option *option, char *field, const char *text)
{
    const int64_t least = option->kind == CLI_SIZE ? 1 : 0;
    const int64_t most = option->kind == CLI_SEED ? INT64_MAX : INT32_MAX;
    char *end = NULL;
    const long long number = strtoll(text, &end, 10);
    const int64_t value = number;

    if (end == text || *end != '\0' || errno != 0 || value < least || value > most) {
        return cli_fail_text("--%s: '%s' (expected a whole number from %lld to %lld)",
                             option->name, text, (long long)least, (long long)most);
    }
    memcpy(field, &value, sizeof value);
    return CLI_OK;
}

/* What a text has to name, and so cannot be empty: an unset variable of the shell is no
 * wish for the default. NULL: any text will do. */
static const char *named_by(const cli_option *option)
{
    static const char *const names[][2] = {{"FOLDER", "a folder"},
                                           {"FILE", "a file"},
                                           {"PATH", "a folder or a file"},
                                           {"RUN", "a run"}};

    for (size_t i = 0; i < CLI_COUNT_OF(names); i++) {
        if (strcmp(option->argument, names[i][0]) == 0) {
            return names[i][1];
        }
    }
    return NULL;
}

static int store(const cli_option *option, void *values, const char *text)
{
    char *field = (char *)values + option->offset;
    char *end = NULL;

    errno = 0;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)(void *)field = true;
        break;
    case CLI_TEXT:
        if (text[0] == '\0' && named_by(option) != NULL) {
            return cli_fail_text("--%s: is empty (expected %s)", option->name,
                                 named_by(option));
        }
        memcpy(field, &text, sizeof text);
        break;
    case CLI_MAYBE:
        memcpy(field, &text, sizeof text);
        break;
    case CLI_FORMAT:
        if (strcmp(text, "text") != 0 && strcmp(text, "json") != 0) {
            return cli_fail_text("--%s: '%s' (expected text or json)", option->name,
                                 text);
        }
        *(bool *)(void *)field = text[0] == 'j';
        break;
    case CLI_COUNT:
    case CLI_SIZE:
    case CLI_SEED:
        return store_number(option, field, text);
    case CLI_REAL: {
        const double value = strtod(text, &end);

        if (end == text || *end != '\0' || !isfinite(value)) {
            return cli_fail_text("--%s: '%s' (expected a finite number)", option->name,
                                 text);
        }
        memcpy(field, &value, sizeof value);
        break;
    }
    case CLI_LIST: {
        cli_list *list = (cli_list *)(void *)field;

        if (list->count == CLI_LIST_MOST) {
            return cli_fail_text("--%s: given more than %d times", option->name,
                                 CLI_LIST_MOST);
        }
        list->text[list->count++] = text;
        break;
    }
    }
    return CLI_OK;
}

static void set_defaults(const cli_command *command, void *values)
{
    const int64_t not_given = CLI_NOT_GIVEN;
    const double nothing = NAN;

    memset(values, 0, command->values_size);
    for (size_t i = 0; i < cli_option_count(command); i++) {
        char *field = (char *)values + command->options[i].offset;

        const cli_kind kind = command->options[i].kind;

        if (kind == CLI_COUNT || kind == CLI_SIZE || kind == CLI_SEED) {
            memcpy(field, &not_given, sizeof not_given);
        } else if (kind == CLI_REAL) {
            memcpy(field, &nothing, sizeof nothing);
        }
    }
}

/* The table in getopt's two forms. */
static void make_tables(const cli_command *command, struct option *longs, char *shorts)
{
    char *end = shorts;

    *end++ = ':'; /* tell a missing value from an unknown option */
    for (size_t i = 0; i < cli_option_count(command); i++) {
        const cli_option *option = &command->options[i];
        const int takes = option->kind == CLI_FLAG    ? no_argument
                          : option->kind == CLI_MAYBE ? optional_argument
                                                      : required_argument;

        longs[i] = (struct option){option->name, takes, NULL, FIRST_CODE + (int)i};
        if (option->letter != 0) {
            *end++ = option->letter;
            if (takes == required_argument) {
                *end++ = ':';
            }
        }
    }
    longs[cli_option_count(command)] =
        (struct option){"help", no_argument, NULL, FIRST_CODE + MOST_OPTIONS};
    longs[cli_option_count(command) + 1] = (struct option){0};
    *end++ = 'h';
    *end = '\0';
}

static const cli_option *option_of(const cli_command *command, int code)
{
    for (size_t i = 0; i < cli_option_count(command); i++) {
        if (code == FIRST_CODE + (int)i || code == command->options[i].letter) {
            return &command->options[i];
        }
    }
    return NULL;
}

int cli_fail_unknown(const cli_command *command, const char *text)
{
    const char *nearest = nearest_option(command, text);

    return cli_fail_text("%s: unknown option '%s'%s%s%s; 'sonde %s --help' lists them",
                         command->name, text, nearest != NULL ? " (expected --" : "",
                         nearest != NULL ? nearest : "", nearest != NULL ? ")" : "",
                         command->name);
}

static int parse(const cli_command *command, int argc, char **argv, void *values,
                 bool *help)
{
    struct option longs[MOST_OPTIONS + 2];
    char shorts[2 * MOST_OPTIONS + 4];
    static char none[] = "";
    int code = 0;

    make_tables(command, longs, shorts);
    optind = 0;
    opterr = 0;
    while ((code = getopt_long(argc, argv, shorts, longs, NULL)) != -1) {
        const cli_option *option = option_of(command, code);

        if (code == 'h' || code == FIRST_CODE + MOST_OPTIONS) {
            *help = true;
            return CLI_OK;
        }
        if (code == ':') {
            return cli_fail_text("%s: option '%s' needs a value", command->name,
                                 argv[optind - 1]);
        }
        if (option == NULL) {
            return cli_fail_unknown(command, argv[optind - 1]);
        }
        if (option->kind == CLI_MAYBE && optarg == NULL) {
            optarg = optind < argc && argv[optind][0] != '-' ? argv[optind++] : none;
        }
        if (store(option, values, optarg) != CLI_OK) {
            return CLI_ERROR;
        }
    }
    if (argc - optind < command->least) {
        return cli_fail_text("%s: expected %s", command->name, command->arguments);
    }
    if (command->most >= 0 && argc - optind > command->most) {
        return cli_fail_text("%s: unexpected argument '%s'", command->name,
                             argv[optind + command->most]);
    }
    for (int i = optind; i < argc; i++) {
        if (argv[i][0] == '\0') {
            return cli_fail_text("%s: an argument is empty (expected %s)", command->name,
                                 command->arguments);
        }
    }
    return CLI_OK;
}

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

int cli_run(const cli_command *command, int argc, char **argv)
{
    if (command->verbatim && !(argc > 1 && asks_help(argv[1]))) {
        return command->run(NULL, argc - 1, argv + 1);
    }
    void *values = malloc(command->values_size > 0 ? command->values_size : 1);
    bool help = false;
    int code = CLI_OK;

    if (values == NULL) {
        return cli_fail_text("out of memory");
    }
    set_defaults(command, values);
    code = parse(command, argc, argv, values, &help);
    cli_mute(false);
    if (code == CLI_OK && help) {
        cli_print_help(command, stdout);
    } else if (code == CLI_OK) {
        code = command->run(values, argc - optind, argv + optind);
    }
    free(values);
    return code;
}

/* --- words ------------------------------------------------------------------------ */

/* The command whose first word was probably meant; NULL if none is similar. */
static const char *nearest_command(const char *word)
{
    enum { MOST = 48 };
    char words[MOST][32];
    const char *names[MOST] = {NULL}, *found = NULL;
    size_t count = 0;

    for (; cli_commands[count] != NULL && count < MOST; count++) {
        const char *name = cli_commands[count]->name;

        (void)snprintf(words[count], sizeof words[count], "%.*s", (int)strcspn(name, " "),
                       name);
        names[count] = words[count];
    }
    found = sonde_diag_nearest(word, names, count);
    for (size_t i = 0; i < count; i++) {
        if (found == names[i]) {
            return cli_commands[i]->name;
        }
    }
    return NULL;
}

/* What was printed counts only if it arrived. */
static int finish(int code)
{
    const bool lost = fflush(stdout) != 0 || ferror(stdout) != 0;

    if (!lost || code == CLI_ERROR) {
        return code;
    }
    return cli_fail_text("standard output: cannot be written%s%s", errno != 0 ? ": " : "",
                         errno != 0 ? strerror(errno) : "");
}

/* Words that are no command: help for "sonde data --help"; an error for "sonde data" and
 * for another word, which lists the sub-commands. */
static int fail_command(int argc, char **argv)
{
    const size_t length = strlen(argv[0]);
    const char *nearest = nearest_command(argv[0]);
    char known[256] = "";

    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const char *name = cli_commands[i]->name;

        if (strncmp(name, argv[0], length) == 0 && name[length] == ' ') {
            (void)snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s",
                           known[0] != '\0' ? ", " : "", name);
        }
    }
    if (known[0] != '\0' && argc > 1 && asks_help(argv[1])) {
        cli_print_group(argv[0], stdout);
        return finish(CLI_OK);
    }
    if (known[0] != '\0') {
        return cli_fail_text("%s%s%s (expected %s)", argv[0], argc > 1 ? " " : "",
                             argc > 1 ? argv[1] : ": a word is missing", known);
    }
    return cli_fail_text("unknown command '%s'%s%s%s; 'sonde --help' lists them", argv[0],
                         nearest != NULL ? " (expected " : "",
                         nearest != NULL ? nearest : "", nearest != NULL ? ")" : "");
}

/* "sonde help" alone, or with the words of a command or of a group of commands. */
static int help(int argc, char **argv)
{
    char flag[] = "--help", *group[] = {argc > 0 ? argv[0] : NULL, flag};
    int words = 0;
    const cli_command *command = cli_find(argc, argv, &words);

    if (argc == 0) {
        cli_print_overview(stdout);
    } else if (command == NULL) {
        return fail_command(argc == 1 ? 2 : argc, argc == 1 ? group : argv);
    } else {
        cli_print_help(command, stdout);
    }
    return finish(CLI_OK);
}

/* Whether mpirun has started this process as another rank than the first, all with one
 * command line. */
static bool is_later_rank(void)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK"),
               *lines = getenv("OMPI_NUM_APP_CTX");

    return rank != NULL && strcmp(rank, "0") != 0 && lines != NULL &&
           strcmp(lines, "1") == 0;
}

int main(int argc, char **argv)
{
    int words = 0;
    sonde_diag diag = {0};

    cli_commands = commands;
    (void)signal(SIGXFSZ, SIG_IGN); /* a write beyond the limit fails like a full disk */
    cli_guard_output();
    cli_log_open();
    cli_mute(is_later_rank()); /* rank 0 has the same arguments and the same mistakes */
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (cli_commands[i]->prepare != NULL) {
            cli_commands[i]->prepare();
        }
    }
    if (argc == 1) {
        cli_print_overview(stderr);
        return CLI_ERROR;
    }
    if (asks_help(argv[1]) || strcmp(argv[1], "help") == 0) {
        return help(argc - 2, argv + 2);
    }
    if (strcmp(argv[1], "--version") == 0) {
        (void)puts("sonde " SONDE_VERSION);
        return finish(CLI_OK);
    }
    if (sonde_isa_check(&diag) != SONDE_OK) {
        return cli_fail(&diag);
    }
    const cli_command *command = cli_find(argc - 1, argv + 1, &words);
    if (command == NULL) {
        return fail_command(argc - 1, argv + 1);
    }
    return finish(cli_run(command, argc - words, argv + words));
}
