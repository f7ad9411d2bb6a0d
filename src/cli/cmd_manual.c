/*
 * cmd_manual.c - commands by their names; help, manual pages and shell completion, all from
 * the option tables; and the command that writes them.
 */
#include "cli/cli.h"

#include <sonde/nn/job.h>

#include <ctype.h>
#include <string.h>

/* --- the table -------------------------------------------------------------------- */

const cli_command *const *cli_commands;

size_t cli_option_count(const cli_command *command)
{
    size_t count = 0;

    while (count < command->option_count && command->options[count].name != NULL) {
        count++;
    }
    return count;
}

const cli_command *cli_find(int argc, char **argv, int *words)
{
    for (size_t i = 0; cli_commands[i] != NULL && argc > 0; i++) {
        const char *name = cli_commands[i]->name;
        const char *space = strchr(name, ' ');
        const size_t first = space != NULL ? (size_t)(space - name) : strlen(name);

        if (strlen(argv[0]) != first || strncmp(argv[0], name, first) != 0) {
            continue;
        }
        if (space == NULL || (argc > 1 && strcmp(argv[1], space + 1) == 0)) {
            *words = space == NULL ? 1 : 2;
            return cli_commands[i];
        }
    }
    return NULL;
}

/* --- help ------------------------------------------------------------------------- */

static void print_option(const cli_option *option, FILE *stream)
{
    char left[64];
    char letter[8] = "    ";

    if (option->letter != 0) {
        (void)snprintf(letter, sizeof letter, "-%c, ", option->letter);
    }
    (void)snprintf(left, sizeof left, "%s--%s%s%s", letter, option->name,
                   option->argument != NULL ? " " : "",
                   option->argument != NULL ? option->argument : "");
    (void)fprintf(stream, "  %-32s %s\n", left, option->help);
}

void cli_print_help(const cli_command *command, FILE *stream)
{
    (void)fprintf(stream, "Usage: sonde %s [OPTION]... %s\n\n%s\n", command->name,
                  command->arguments, command->summary);
    if (command->details != NULL) {
        (void)fprintf(stream, "\n%s\n", command->details);
    }
    (void)fputs("\nOptions:\n", stream);
    for (size_t i = 0; i < cli_option_count(command); i++) {
        print_option(&command->options[i], stream);
    }
    (void)fprintf(stream, "  %-32s %s\n", "-h, --help", "show this and exit");
    if (command->examples != NULL) {
        (void)fprintf(stream, "\nExamples:\n%s\n", command->examples);
    }
}

void cli_print_overview(FILE *stream)
{
    (void)fputs("Usage: sonde COMMAND [OPTION]... [ARGUMENT]...\n\n"
                "See every tensor of a neural network while it trains or infers.\n\n"
                "Commands:\n",
                stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(stream, "  %-14s %s\n", cli_commands[i]->name,
                      cli_commands[i]->summary);
    }
    (void)fputs(
        "\n'sonde COMMAND --help' explains a command; 'sonde --version' prints the version.\n"
        "Environment: SONDE_LOG_LEVEL (debug, info, warning, error, critical, off), "
        "SONDE_DATA,\nSONDE_CACHE, SONDE_ISA (generic, avx2, avx512, avx512_bf16, amx_bf16).\n",
        stream);
}

void cli_print_group(const char *word, FILE *stream)
{
    const size_t length = strlen(word);

    (void)fprintf(
        stream, "Usage: sonde %s COMMAND [OPTION]... [ARGUMENT]...\n\nCommands:\n", word);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        const char *name = cli_commands[i]->name;

        if (strncmp(name, word, length) == 0 && name[length] == ' ') {
            (void)fprintf(stream, "  %-14s %s\n", name, cli_commands[i]->summary);
        }
    }
}

/* --- manual pages ----------------------------------------------------------------- */

/* Text for troff: backslashes and dashes escaped, no line begins with a dot. */
static void roff(const char *text, FILE *stream)
{
    bool start = true;

    for (; *text != '\0'; text++) {
        if (start && (*text == '.' || *text == '\'')) {
            (void)fputs("\\&", stream);
        }
        if (*text == '\\') {
            (void)fputs("\\e", stream);
        } else if (*text == '-') {
            (void)fputs("\\-", stream);
        } else {
            (void)fputc(*text, stream);
        }
        start = *text == '\n';
    }
}

static void roff_option(const cli_option *option, FILE *stream)
{
    (void)fputs(".TP\n", stream);
    if (option->letter != 0) {
        (void)fprintf(stream, "\\fB\\-%c\\fR, ", option->letter);
    }
    (void)fputs("\\fB\\-\\-", stream);
    roff(option->name, stream);
    (void)fputs("\\fR", stream);
    if (option->argument != NULL) {
        (void)fprintf(stream, " \\fI%s\\fR", option->argument);
    }
    (void)fputc('\n', stream);
    roff(option->help, stream);
    (void)fputc('\n', stream);
}

static void print_page(const cli_command *command, FILE *stream)
{
    (void)fprintf(stream,
                  ".TH \"SONDE %s\" 1 \"\" \"sonde " SONDE_VERSION "\"\n.SH NAME\n",
                  command->name);
    (void)fprintf(stream, "sonde %s \\- ", command->name);
    roff(command->summary, stream);
    (void)fprintf(stream, "\n.SH SYNOPSIS\n\\fBsonde %s\\fR [\\fIOPTION\\fR]... ",
                  command->name);
    roff(command->arguments, stream);
    if (command->details != NULL) {
        (void)fputs("\n.SH DESCRIPTION\n", stream);
        roff(command->details, stream);
    }
    (void)fputs("\n.SH OPTIONS\n", stream);
    for (size_t i = 0; i < cli_option_count(command); i++) {
        roff_option(&command->options[i], stream);
    }
    if (command->examples != NULL) {
        (void)fputs(".SH EXAMPLES\n.nf\n", stream);
        roff(command->examples, stream);
        (void)fputs("\n.fi\n", stream);
    }
    (void)fputs(
        ".SH EXIT STATUS\n0 if all is well, 1 for a verdict, 2 for an error, 130 if "
        "interrupted.\n",
        stream);
}

static void print_overview_page(FILE *stream)
{
    (void)fputs(".TH SONDE 1 \"\" \"sonde " SONDE_VERSION
                "\"\n.SH NAME\nsonde \\- see every "
                "tensor of a neural network while it trains or infers\n.SH SYNOPSIS\n"
                "\\fBsonde\\fR \\fICOMMAND\\fR [\\fIOPTION\\fR]...\n.SH COMMANDS\n",
                stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(stream, ".TP\n\\fBsonde %s\\fR\n", cli_commands[i]->name);
        roff(cli_commands[i]->summary, stream);
        (void)fputc('\n', stream);
    }
}

/* --- completion ------------------------------------------------------------------- */

static void print_bash(FILE *stream)
{
    (void)fputs("# bash completion for sonde\n_sonde() {\n"
                "  local cur=${COMP_WORDS[COMP_CWORD]} "
                "words=\"${COMP_WORDS[*]:1:COMP_CWORD-1}\"\n"
                "  case \"$words\" in\n",
                stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(stream, "    '%s'*) COMPREPLY=($(compgen -W '--help",
                      cli_commands[i]->name);
        for (size_t k = 0; k < cli_option_count(cli_commands[i]); k++) {
            (void)fprintf(stream, " --%s", cli_commands[i]->options[k].name);
        }
        (void)fputs("' -- \"$cur\")); [[ $cur == -* ]] || COMPREPLY=($(compgen -f -- "
                    "\"$cur\"));;\n",
                    stream);
    }
    (void)fputs("    *) COMPREPLY=($(compgen -W '", stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        (void)fprintf(stream, "%s ", cli_commands[i]->name);
    }
    (void)fputs("--help --version' -- \"$cur\"));;\n  esac\n}\n"
                "complete -o filenames -F _sonde sonde\n",
                stream);
}

static void print_zsh(FILE *stream)
{
    (void)fputs("#compdef sonde\n_sonde() {\n  local -a commands=(\n", stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strchr(cli_commands[i]->name, ' ') == NULL) {
            (void)fprintf(stream, "    '%s:%s'\n", cli_commands[i]->name,
                          cli_commands[i]->summary);
        }
    }
    (void)fputs(
        "  )\n  if (( CURRENT == 2 )); then _describe command commands; return; fi\n"
        "  case $words[2] in\n",
        stream);
    for (size_t i = 0; cli_commands[i] != NULL; i++) {
        if (strchr(cli_commands[i]->name, ' ') != NULL) {
            continue;
        }
        (void)fprintf(stream, "    %s) _arguments", cli_commands[i]->name);
        for (size_t k = 0; k < cli_option_count(cli_commands[i]); k++) {
            const cli_option *option = &cli_commands[i]->options[k];

            (void)fprintf(stream, " '--%s%s'", option->name,
                          option->kind == CLI_FLAG ? "" : "=");
        }
        (void)fputs(" '*:file:_files';;\n", stream);
    }
    (void)fputs("  esac\n}\n_sonde \"$@\"\n", stream);
}

/* --- the command ------------------------------------------------------------------ */

typedef struct manual_values {
    const char *all;
    const char *completion;
    bool options;
} manual_values;

static int write_file(const char *folder, const char *name, void (*print)(FILE *))
{
    char path[4096];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (file == NULL) {
        return cli_fail_text("%s: cannot be written", path);
    }
    print(file);
    return fclose(file) == 0 ? CLI_OK : cli_fail_text("%s: cannot be written", path);
}

static int write_all(const char *folder)
{
    int code = write_file(folder, "sonde.1", print_overview_page);

    code = code == CLI_OK ? write_file(folder, "sonde.bash", print_bash) : code;
    code = code == CLI_OK ? write_file(folder, "_sonde", print_zsh) : code;
    for (size_t i = 0; code == CLI_OK && cli_commands[i] != NULL; i++) {
        char path[4096];
        FILE *file = NULL;

        (void)snprintf(path, sizeof path, "%s/sonde-%s.1", folder, cli_commands[i]->name);
        for (char *c = path + strlen(folder); *c != '\0'; c++) {
            *c = isspace((unsigned char)*c) ? '-' : *c;
        }
        file = fopen(path, "w");
        if (file == NULL) {
            return cli_fail_text("%s: cannot be written", path);
        }
        print_page(cli_commands[i], file);
        code = fclose(file) == 0 ? CLI_OK : cli_fail_text("%s: cannot be written", path);
    }
    return code;
}

/* Section, key, name, value, default and help of each option of a training: for
 * tools/option-tables. */
static void print_options(void)
{
    const sonde_nn_option *row = NULL;

    for (size_t i = 0; (row = sonde_nn_option_at(i)) != NULL; i++) {
        (void)printf("%s\t%s\t%s\t%s\t%s\t%s\n", row->section,
                     row->key != NULL ? row->key : "", row->name,
                     row->value != NULL ? row->value : "",
                     row->standard != NULL ? row->standard : "", row->help);
    }
}

static int run_manual(const void *values, int argc, char **argv)
{
    const manual_values *asked = values;
    int words = 0;
    const cli_command *command = cli_find(argc, argv, &words);

    if (asked->all != NULL) {
        return write_all(asked->all);
    }
    if (asked->completion != NULL) {
        if (strcmp(asked->completion, "bash") == 0) {
            print_bash(stdout);
        } else if (strcmp(asked->completion, "zsh") == 0) {
            print_zsh(stdout);
        } else {
            return cli_fail_text("--completion: '%s' (expected bash or zsh)",
                                 asked->completion);
        }
        return CLI_OK;
    }
    if (asked->options) {
        print_options();
        return CLI_OK;
    }
    if (argc > 0 && command == NULL) {
        return cli_fail_text("manual: unknown command '%s'", argv[0]);
    }
    if (command != NULL) {
        print_page(command, stdout);
    } else {
        print_overview_page(stdout);
    }
    return CLI_OK;
}

static const cli_option manual_options[] = {
    {"out", 'o', CLI_TEXT, "FOLDER", "write all pages and completions to this folder",
     offsetof(manual_values, all)},
    {"completion", 0, CLI_TEXT, "SHELL", "print completion for bash or zsh",
     offsetof(manual_values, completion)},
    {"options", 0, CLI_FLAG, NULL, "print the options of train, separated by tabs",
     offsetof(manual_values, options)},
};

const cli_command cli_manual = {
    .name = "manual",
    .arguments = "[COMMAND]",
    .summary = "print a manual page (man -l -), or shell completion",
    .examples = "  sonde manual train | man -l -\n"
                "  source <(sonde manual --completion bash)",
    .options = manual_options,
    .option_count = CLI_COUNT_OF(manual_options),
    .most = 2,
    .values_size = sizeof(manual_values),
    .run = run_manual,
};
