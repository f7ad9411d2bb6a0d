/*
 * main.c - the way into the commands.
 */
#include "cli/cli.h"

#include <sonde/log.h>
#include <sonde/stats.h>

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

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

static bool asks_help(const char *word)
{
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
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
