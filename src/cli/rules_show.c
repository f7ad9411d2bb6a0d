/*
 * rules_show.c - `sonde rules list` and `sonde rules show`: what each rule, built in or
 * loaded from a file, looks for.
 */
#include "cli/cli.h"
#include "base/fail.h"

#include <sonde/rules.h>

#include <string.h>
#include <strings.h>

typedef struct list_values {
    cli_list plugins;
} list_values;

static void print_row(const sonde_rule *rule)
{
    (void)printf("%-26s %s%s\n", rule->name, rule->summary,
                 rule->by_name_only ? " (opt-in: --rules NAME)" : "");
}

/* "each of the first 50 steps, every 10th step, 2 in a row at every 100th". */
static void print_when(const sonde_schedule *when)
{
    if (when->every == 1) {
        (void)printf("every step");
        return;
    }
    if (when->first > 0) {
        (void)printf("each of the first %lld steps, ", (long long)when->first);
    }
    (void)printf("every %lldth step", (long long)when->every);
    if (when->row > 1) {
        (void)printf(", %lld in a row at every %lldth", (long long)when->row,
                     (long long)when->row_every);
    }
}

/* Forms of evidence, those first that most rules need. */
static const int form_order[SONDE_FORM_COUNT] = {SONDE_FORM_VITALS, SONDE_FORM_NORMS,
                                                 SONDE_FORM_RAW, SONDE_FORM_SKETCH,
                                                 SONDE_FORM_HASH};

/* When the default rules look at tensors of each role in training. */
static void print_looks(void)
{
    for (int role = 0; role < SONDE_ROLE_COUNT; role++) {
        const sonde_rules_looks looks =
            sonde_rules_looks_of_role(NULL, (sonde_role)role, SONDE_MODE_TRAIN);
        for (size_t i = 0; i < CLI_COUNT_OF(form_order); i++) {
            const sonde_schedule *when = &looks.when[form_order[i]];

            if (when->every > 0) {
                (void)printf("%-20s %-12s ", sonde_role_name((sonde_role)role),
                             sonde_form_get(form_order[i])->name);
                print_when(when);
                (void)printf("\n");
            }
        }
    }
}

static int run_list(const void *values, int argc, char **argv)
{
    const list_values *asked = values;
    const sonde_rule *rule = NULL;

    if (argc > 0 && strcmp(argv[0], "looks") != 0) {
        return cli_fail_text("rules list: '%s' (expected looks)", argv[0]);
    }
    if (argc > 0) {
        print_looks();
        return CLI_OK;
    }
    for (size_t i = 0; (rule = sonde_rule_at_index(i)) != NULL; i++) {
        print_row(rule);
    }
    for (size_t i = 0; i < asked->plugins.count; i++) {
        sonde_rule_file *file = NULL;
        sonde_diag diag = {0};

        if (sonde_rule_file_open(asked->plugins.text[i], NULL, &file, &diag) !=
            SONDE_OK) {
            return cli_fail(&diag);
        }
        for (size_t j = 0; (rule = sonde_rule_file_at(file, j)) != NULL; j++) {
            print_row(rule);
        }
        sonde_rule_file_close(file);
    }
    return CLI_OK;
}

static void print_how(unsigned how)
{
    const char *between = "";

    for (size_t i = 0; i < CLI_COUNT_OF(form_order); i++) {
        if ((how >> form_order[i] & 1U) != 0) {
            (void)printf("%s%s", between, sonde_form_get(form_order[i])->name);
            between = " or ";
        }
    }
}

static void show(const sonde_rule *rule)
{
    static const sonde_schedule usual = SONDE_RULE_LOOKS;

    (void)printf("%s - %s%s\n\n", rule->name, rule->summary,
                 rule->by_name_only ? " (opt-in: use --rules NAME)" : "");
    (void)printf("Fires when:  %s\nWhat to do:  %s\n\n", rule->condition, rule->advice);
    for (size_t i = 0; i < rule->need_count; i++) {
        (void)printf("%s    %s (", rule->needs[i].optional ? "may use " : "needs   ",
                     rule->needs[i].what);
        print_how(rule->needs[i].how);
        (void)printf("; ");
        print_when(rule->needs[i].when.every > 0 ? &rule->needs[i].when : &usual);
        (void)printf(")\n");
    }
    for (size_t i = 0; i < rule->param_count; i++) {
        const sonde_rule_param *param = &rule->params[i];

        (void)printf("%s%s%s%s: %s\n", param->name, param->initial != NULL ? "=" : "",
                     param->initial != NULL ? param->initial : "",
                     param->required ? " (required)" : "", param->help);
    }
}

/* Shows the rule of that name in a file; sets *shown if there is one. */
static sonde_err show_loaded(const char *path, const char *name, bool *shown,
                             sonde_diag *diag)
{
    sonde_rule_file *file = NULL;
    const sonde_rule *rule = NULL;
    SONDE__TRY(sonde_rule_file_open(path, NULL, &file, diag));
    for (size_t i = 0; (rule = sonde_rule_file_at(file, i)) != NULL && !*shown; i++) {
        if (strcasecmp(rule->name, name) == 0) {
            show(rule);
            *shown = true;
        }
    }
    sonde_rule_file_close(file);
    return SONDE_OK;
}

static int run_show(const void *values, int argc, char **argv)
{
    const list_values *asked = values;
    const sonde_rule *rule = NULL;
    sonde_diag diag = {0};
    bool shown = false;

    (void)argc;
    for (size_t i = 0; i < asked->plugins.count && !shown; i++) {
        if (show_loaded(asked->plugins.text[i], argv[0], &shown, &diag) != SONDE_OK) {
            return cli_fail(&diag);
        }
    }
    if (shown) {
        return CLI_OK;
    }
    if (sonde_rule_by_name(argv[0], &rule, &diag) != SONDE_OK) {
        return cli_fail(&diag);
    }
    show(rule);
    return CLI_OK;
}

#define AT(field) offsetof(list_values, field)

static const cli_option list_options[] = {
    {"plugin", 0, CLI_LIST, "FILE", "add the rules of this .so or .lua file",
     AT(plugins)},
};

const cli_command cli_rules_list = {
    .name = "rules list",
    .arguments = "[looks]",
    .summary = "list the rules",
    .details =
        "Prints one line for each rule: its name and what it looks for. With the argument\n"
        "looks: how often the default rules need each form of evidence, by role.",
    .options = list_options,
    .option_count = CLI_COUNT_OF(list_options),
    .most = 1,
    .values_size = sizeof(list_values),
    .run = run_list,
};

const cli_command cli_rules_show = {
    .name = "rules show",
    .arguments = "NAME",
    .summary = "explain a rule and its parameters",
    .details =
        "Prints when the rule fires, what to do about it, what data it needs, and its\n"
        "parameters with their defaults.",
    .examples = "  sonde rules show VanishingGradient",
    .options = list_options,
    .option_count = CLI_COUNT_OF(list_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(list_values),
    .run = run_show,
};
