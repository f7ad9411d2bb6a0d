/*
 * commands.c - the table of commands.
 */
#include "cli/cli.h"

#include <string.h>

extern const cli_command cli_train, cli_eval, cli_predict, cli_tensors, cli_compile,
    cli_ls, cli_show, cli_tail, cli_query, cli_export, cli_verify, cli_plot, cli_rules,
    cli_rules_list, cli_rules_show, cli_stop, cli_checkpoint, cli_send, cli_demo,
    cli_demo_list, cli_data_fetch, cli_data_synth, cli_data_info, cli_manual;

const cli_command *const cli_commands[] = {
    &cli_train,      &cli_eval,       &cli_predict,    &cli_tensors,    &cli_compile,
    &cli_ls,         &cli_show,       &cli_tail,       &cli_query,      &cli_export,
    &cli_verify,     &cli_plot,       &cli_rules_list, &cli_rules_show, &cli_rules,
    &cli_stop,       &cli_checkpoint, &cli_send,       &cli_demo_list,  &cli_demo,
    &cli_data_fetch, &cli_data_synth, &cli_data_info,  &cli_manual,     NULL,
};

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
