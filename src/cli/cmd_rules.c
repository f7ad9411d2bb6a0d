/*
 * cmd_rules.c - `sonde rules`: judges runs that are recorded or being recorded; `sonde
 * rules list` and `sonde rules show`: what each rule, built in or of a file, looks for.
 */
#include "cli/cli_findings.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/plot.h>
#include <sonde/rules.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct rules_values {
    cli_list rules, params, others, plugins;
    const char *steps, *report;
    int64_t rule_memory;
    double stall, rule_seconds;
    bool follow, json, explain, no_save;
    cli_acting acting;
} rules_values;

/* One run that is judged. */
typedef struct judged_run {
    const rules_values *asked;
    const char *path;
    sonde_trial *trial;
    sonde_rules *rules;
    sonde_actions *actions; /* NULL: none */
    cli_finding_log printed;
    bool fired;
} judged_run;

/* --- printing --------------------------------------------------------------------- */

static void print_finding(const judged_run *run, const sonde_finding *finding)
{
    if (run->asked->json) {
        char line[8192];

        (void)sonde_finding_json(finding, line, sizeof line);
        (void)puts(line);
        (void)fflush(stdout);
        return;
    }
    cli_print_finding(stdout, finding, 0);
}

/* A finding while the run is being written. */
static void print_live(judged_run *run, const sonde_finding *finding)
{
    const cli_finding_share share = cli_finding_count(&run->printed, finding);

    if (run->asked->json || share == CLI_FINDING_WHOLE) {
        print_finding(run, finding);
    } else if (share == CLI_FINDING_MORE) {
        cli_print_more(stdout, finding, 0);
    }
}

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    judged_run *run = user;

    run->fired = true;
    if (!again && run->asked->follow) {
        print_live(run, finding);
    }
    if (!again && run->actions != NULL) {
        sonde_actions_take(run->actions, finding);
    }
}

static void explain(const judged_run *run)
{
    for (size_t i = 0; i < sonde_rules_count(run->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(run->rules, i, &account);
        if (run->asked->json) {
            CLI_LINE(
                cli_text("rule", account.rule->name), cli_bool("judged", account.judged),
                cli_uint("tensors", account.tensors), cli_uint("steps", account.steps),
                cli_uint("findings", account.findings),
                cli_text("lacked", account.lacked));
        } else if (account.judged) {
            (void)printf("%-28s checked %zu tensor%s at %llu steps: %zu finding%s\n",
                         account.rule->name, account.tensors,
                         account.tensors == 1 ? "" : "s",
                         (unsigned long long)account.steps, account.findings,
                         account.findings == 1 ? "" : "s");
        } else {
            (void)printf("%-28s lacked data: %s\n", account.rule->name, account.lacked);
        }
    }
}

/* One line, and one each for damage and for findings that were made elsewhere. */
static void print_verdict(const judged_run *run)
{
    const size_t kept = cli_count_kept(run->path, run->rules);
    const size_t damage = cli_count_damage(run->trial);
    const sonde_verdict verdict = sonde_rules_verdict(run->rules);
    char text[CLI_VERDICT_TEXT];

    (void)sonde_verdict_text(&verdict, text, sizeof text);
    (void)printf("%s: %s%s\n", run->path, text,
                 verdict.lacking > 0 && !run->asked->explain &&
                         verdict.word == SONDE_VERDICT_NOTHING
                     ? "; --explain lists them"
                     : "");
    if (damage > 0) {
        (void)printf("%s: %zu part%s cannot be read; 'sonde verify' lists %s\n",
                     run->path, damage, damage == 1 ? "" : "s",
                     damage == 1 ? "it" : "them");
    }
    if (kept > 0) {
        (void)printf(
            "%s/findings: %zu more finding%s of these rules, made from data that "
            "was not recorded or with other parameters\n",
            run->path, kept, kept == 1 ? "" : "s");
    }
}

/* --- rules ------------------------------------------------------------------------ */

/* A parameter; commas are part of its value, whether or not they are escaped. */
static void add_param(sonde_text *text, const char *param)
{
    for (const char *at = param; *at != '\0'; at++) {
        const bool bare = *at == ',' && (at == param || at[-1] != '\\');

        sonde_text_add(text, bare ? "\\" : "");
        sonde_text_put(text, at, 1);
    }
}

/* A rule as it was named, with the parameters of --param; other: a run that it compares
 * with, or NULL. */
static sonde_err add_text(const judged_run *run, const char *name, const char *other,
                          sonde_diag *diag)
{
    const rules_values *values = run->asked;
    const char *between = strchr(name, ':') != NULL ? "," : ":";
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    sonde_text_add(&text, name);
    for (size_t i = 0; i < values->params.count; i++) {
        sonde_text_add(&text, between);
        add_param(&text, values->params.text[i]);
        between = ",";
    }
    if (other != NULL) {
        sonde_text_format(&text, "%sother_trial=", between);
        cli_add_value(&text, other);
    }
    err = text.failed ? cli_fail_memory(diag)
                      : sonde_rules_add(run->rules, text.data, diag);
    sonde_text_fini(&text);
    return err;
}

/* SimilarAcrossRuns with the run of --other. */
static sonde_err add_rule(const judged_run *run, const char *name, sonde_diag *diag)
{
    const cli_list *others = &run->asked->others;

    if (strncasecmp(name, "SimilarAcrossRuns", 17) != 0 || others->count == 0) {
        return add_text(run, name, NULL, diag);
    }
    if (others->count > 1) { /* the ids of findings do not say which of them */
        return sonde_diag_set(diag, SONDE_EINVAL, "--other", "one run", "%zu runs",
                              others->count);
    }
    return add_text(run, name, others->text[0], diag);
}

/* Files of rules become known by the names of their rules. */
static sonde_err load_plugins(const judged_run *run, sonde_diag *diag)
{
    const rules_values *values = run->asked;
    sonde_rule_limits limits = {0};

    if (values->rule_seconds <= 0) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--rule-seconds", "more than 0", "'%g'",
                              values->rule_seconds);
    }
    limits.seconds =
        values->rule_seconds > 0 ? values->rule_seconds : 0; /* NaN: not given */
    if (values->rule_memory > 0) {
        limits.memory = (uint64_t)values->rule_memory << 20;
    }
    sonde_rules_set_limits(run->rules, &limits);
    for (size_t i = 0; i < values->plugins.count; i++) {
        SONDE__TRY(sonde_rules_load(run->rules, values->plugins.text[i], diag));
    }
    return SONDE_OK;
}

/* Whether the same text comes earlier in the list. */
static bool is_listed(const cli_list *list, size_t i)
{
    for (size_t j = 0; j < i; j++) {
        if (strcmp(list->text[i], list->text[j]) == 0) {
            return true;
        }
    }
    return false;
}

static sonde_err add_rules(const judged_run *run, sonde_diag *diag)
{
    const rules_values *values = run->asked;
    sonde_err err = SONDE_OK;

    SONDE__TRY(load_plugins(run, diag));
    if (values->rules.count == 0) {
        err = sonde_rules_add_defaults(run->rules, diag);
        if (err != SONDE_OK || values->others.count == 0) {
            return err;
        }
        return add_rule(run, "SimilarAcrossRuns", diag);
    }
    for (size_t i = 0; i < values->rules.count; i++) {
        if (!is_listed(&values->rules, i)) {
            SONDE__TRY(add_rule(run, values->rules.text[i], diag));
        }
    }
    return SONDE_OK;
}

/* The value that a parameter gets in "NAME:PARAM=VALUE,..." or "PARAM=VALUE"; NULL:
 * none. Up to a comma. */
static const char *value_in(const cli_list *texts, const char *param)
{
    const size_t length = strlen(param);

    for (size_t i = 0; i < texts->count; i++) {
        const char *text = texts->text[i];

        for (const char *at = strstr(text, param); at != NULL;
             at = strstr(at + 1, param)) {
            if (at[length] == '=' && (at == text || at[-1] == ':' || at[-1] == ',')) {
                return at + length + 1;
            }
        }
    }
    return NULL;
}

static const char *value_of(const rules_values *values, const char *param)
{
    const char *value = value_in(&values->rules, param);

    return value != NULL ? value : value_in(&values->params, param);
}

/* True if StalledTraining is to stop this run: by its parameters stop_training_on_fire
 * and training_job_name_prefix. */
static bool stops_if_stalled(const judged_run *run)
{
    const char *stop = value_of(run->asked, "stop_training_on_fire");
    const char *prefix = value_of(run->asked, "training_job_name_prefix");
    const char *slash = strrchr(run->path, '/');

    if (stop == NULL || (strncasecmp(stop, "true", 4) != 0 &&
                         strncasecmp(stop, "yes", 3) != 0 && stop[0] != '1')) {
        return false;
    }
    return prefix == NULL || strcmp(prefix, "None") == 0 ||
           strncmp(slash != NULL ? slash + 1 : run->path, prefix, strcspn(prefix, ",")) ==
               0;
}

/* --- judging ---------------------------------------------------------------------- */

/* The rules, the trial, and what is done about findings. */
static sonde_err prepare(judged_run *run, sonde_diag *diag)
{
    const rules_values *values = run->asked;
    cli_acting acting;
    sonde_run_info info;
    SONDE__TRY(sonde_rules_create(&run->rules, diag));
    SONDE__TRY(add_rules(run, diag));
    SONDE__TRY(sonde_trial_open(run->path, NULL, &run->trial, diag));
    sonde_trial_describe(run->trial, &info);
    if (!values->no_save && !info.foreign) {
        SONDE__TRY(sonde_rules_write_to(run->rules, run->path, diag));
    }
    acting = values->acting;
    if (stops_if_stalled(run) && acting.on_finding.count < CLI_LIST_MOST) {
        acting.on_finding.text[acting.on_finding.count++] = "StalledTraining=stop";
    }
    SONDE__TRY(cli_actions_open(&acting, run->path, &run->actions, diag));
    return run->actions != NULL ? sonde_actions_check(run->actions, run->rules, diag)
                                : SONDE_OK;
}

static sonde_err judge(judged_run *run, sonde_diag *diag)
{
    const rules_values *values = run->asked;
    sonde_rules_pace pace = {.follow = values->follow, .stop = cli_is_interrupted};
    cli_range range;

    SONDE__TRY(cli_range_parse(NULL, values->steps, CLI_NOT_GIVEN, &range, diag));
    SONDE__TRY(prepare(run, diag));
    sonde_rules_on_finding(run->rules, on_finding, run);
    pace.stall = values->stall > 0 ? values->stall : 0;
    pace.begin = range.begin;
    pace.end = range.end;
    return sonde_rules_judge(run->rules, run->trial, &pace, diag);
}

/* How many causes of the same rule there are among these. */
static size_t count_like(const sonde_finding *finding, const sonde_finding *all,
                         size_t count)
{
    size_t like = 0;

    for (size_t i = 0; i < count; i++) {
        like += all[i].because_of == 0 && strcmp(all[i].rule, finding->rule) == 0;
    }
    return like;
}

static void print_more(const sonde_finding *last, size_t more)
{
    (void)printf("%s: %zu more finding%s up to step %lld; --format json prints all\n",
                 last->rule, more, more == 1 ? "" : "s", (long long)last->step);
}

/* How many findings follow from a cause, if any does: in one line. */
static void print_following(const sonde_finding *cause, const sonde_finding *all,
                            size_t count)
{
    size_t following = 0;
    int64_t last = 0;

    for (size_t i = 0; i < count; i++) {
        if (all[i].because_of == cause->id) {
            following++;
            last = all[i].step > last ? all[i].step : last;
        }
    }
    if (following > 0) {
        (void)printf("%s: %zu more finding%s follow%s from it, up to step %lld; "
                     "--format json prints all\n",
                     cause->rule, following, following == 1 ? "" : "s",
                     following == 1 ? "s" : "", (long long)last);
    }
}

static bool has_cause(const sonde_finding *finding, const sonde_finding *all,
                      size_t count)
{
    for (size_t i = 0; i < count && finding->because_of != 0; i++) {
        if (all[i].id == finding->because_of) {
            return true;
        }
    }
    return false;
}

/* Of a rule with many causes the first few, and how many there are; of what follows only
 * the number. JSON has all findings, in the order found. */
static void print_in_order(const judged_run *run, const sonde_finding *all, size_t count)
{
    enum { FEW = 8 };
    sonde_finding *sorted = malloc((count + 1) * sizeof *sorted);

    if (sorted == NULL) {
        return;
    }
    if (count > 0) {
        memcpy(sorted, all, count * sizeof *sorted);
    }
    if (!run->asked->json) {
        (void)sonde_findings_sort(sorted, count);
    }
    for (size_t i = 0; i < count; i++) {
        const size_t like = count_like(&sorted[i], sorted, count);
        const size_t before = count_like(&sorted[i], sorted, i);

        if (run->asked->json) {
            print_finding(run, &sorted[i]);
        } else if (has_cause(&sorted[i], sorted, count)) {
            continue;
        } else if (before < FEW || like == FEW + 1) {
            print_finding(run, &sorted[i]);
            print_following(&sorted[i], sorted, count);
        } else if (before + 1 == like) {
            print_more(&sorted[i], like - FEW);
        }
    }
    free(sorted);
}

/* What was found; *standing grows by the findings that stand. */
static void print_findings(const judged_run *run, size_t *standing)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(run->rules, &count);

    for (size_t i = 0; i < count; i++) {
        *standing += all[i].resolved_step == 0;
    }
    if (!run->asked->follow) {
        print_in_order(run, all, count);
    }
    if (run->asked->explain) {
        explain(run);
    }
    if (!run->asked->json) {
        print_verdict(run);
    }
}

/* A line on stderr for each rule that was asked for by name and did not judge; true if
 * there is one. */
static bool print_lacking(const judged_run *run)
{
    const rules_values *values = run->asked;
    bool lacking = false;

    for (size_t i = 0; values->rules.count > 0 && i < sonde_rules_count(run->rules);
         i++) {
        sonde_rule_account account;

        sonde_rules_account(run->rules, i, &account);
        if (!account.judged) {
            cli_warn("%s: %s did not judge: %s", run->path, account.rule->name,
                     account.lacked);
            lacking = true;
        }
    }
    return lacking;
}

static int judge_run(const rules_values *values, const char *path, size_t *findings,
                     bool *lacking)
{
    judged_run run = {.asked = values, .path = path};
    sonde_diag diag = {0};
    sonde_err err = judge(&run, &diag);

    if (run.trial != NULL && (err == SONDE_OK || err == SONDE_ETIMEOUT)) {
        sonde_diag writing = {0};

        print_findings(&run, findings);
        *lacking = print_lacking(&run) || *lacking;
        if (values->report != NULL &&
            sonde_report_write(values->report, run.trial, run.rules, &writing) !=
                SONDE_OK) {
            err = writing.err;
            diag = writing;
        }
    }
    const bool crashed =
        err == SONDE_OK && values->follow && cli_warn_crashed(run.trial, path);
    cli_actions_close(run.actions);
    sonde_rules_destroy(run.rules);
    sonde_trial_close(run.trial);
    return err != SONDE_OK ? cli_fail(&diag) : crashed ? CLI_VERDICT : CLI_OK;
}

static int run_rules(const void *values, int argc, char **argv)
{
    const rules_values *asked = values;
    size_t findings = 0;
    bool lacking = false;
    int code = CLI_OK;

    if (asked->params.count > 0 && asked->rules.count != 1) {
        return cli_fail_text("--param needs exactly one --rules");
    }
    if (asked->report != NULL && argc != 1) {
        return cli_fail_text("--report accepts one run");
    }
    cli_catch_interrupt();
    for (int i = 0; i < argc && code == CLI_OK; i++) {
        code = judge_run(asked, argv[i], &findings, &lacking);
    }
    if (code != CLI_OK) {
        return code;
    }
    return findings > 0 ? CLI_VERDICT : lacking ? CLI_LACKED : CLI_OK;
}

#define AT(field) offsetof(rules_values, field)

static const cli_option options[] = {
    {"rules", 'r', CLI_LIST, "NAME[:PARAM=VALUE,...]",
     "judge by this rule or file of rules, not the default ones; repeatable", AT(rules)},
    {"param", 0, CLI_LIST, "PARAM=VALUE", "set a parameter of the rule", AT(params)},
    {"plugin", 0, CLI_LIST, "FILE", "add the rules of this .so or .lua file",
     AT(plugins)},
    {"rule-seconds", 0, CLI_REAL, "SECONDS",
     "limit the processor time of a rule in Lua, per call (2)", AT(rule_seconds)},
    {"rule-memory", 0, CLI_SIZE, "MB", "limit the memory of a rule in Lua (256)",
     AT(rule_memory)},
    {"follow", 'f', CLI_FLAG, NULL, "judge new steps until the run ends", AT(follow)},
    {"stall", 0, CLI_REAL, "SECONDS",
     "with --follow: give up after this time without a step (1800)", AT(stall)},
    {"other", 0, CLI_LIST, "RUN", "compare with this run (SimilarAcrossRuns)",
     AT(others)},
    {"steps", 0, CLI_TEXT, "A:B", "judge only global steps A to B - 1; also A:, :B or A",
     AT(steps)},
    {"format", 0, CLI_FORMAT, "text|json",
     "print text, or findings as one JSON object per line (text)", AT(json)},
    {"explain", 0, CLI_FLAG, NULL, "print what each rule checked, or what data it lacked",
     AT(explain)},
    {"report", 0, CLI_TEXT, "FILE", "write an HTML report to FILE", AT(report)},
    {"no-save", 0, CLI_FLAG, NULL, "do not write findings into the run", AT(no_save)},
    CLI_ACTING_OPTIONS(rules_values),
};

const cli_command cli_rules = {
    .name = "rules",
    .arguments = "RUN...",
    .summary = "find what is wrong with a run, and where",
    .details =
        "Judges recorded runs, or with --follow a run that is being recorded, by the\n"
        "default rules or by those that --rules names. A finding names the step, the rule\n"
        "and the tensor, describes what is wrong and what to try, and is saved in RUN/findings.\n"
        "The last line is the verdict: wrong (an error stands), doubtful (a warning or a note\n"
        "stands), nothing found, or not judged. The exit code is 0 if no finding stands, 1 if\n"
        "one does, 2 after an error, and 3 if nothing was found and a rule that --rules names\n"
        "lacked the data it needs.",
    .examples = "  sonde rules runs/first\n"
                "  sonde rules runs/first --rules VanishingGradient:threshold=1e-6\n"
                "  sonde rules runs/first --plugin ./my_rule.lua\n"
                "  sonde rules runs/first --report first.html\n"
                "  sonde rules --follow runs/first --on-finding error=stop",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .least = 1,
    .most = -1,
    .values_size = sizeof(rules_values),
    .run = run_rules,
};

/* --- rules list, rules show --------------------------------------------------------- */

typedef struct list_values {
    cli_list plugins;
} list_values;

static void print_rule(const sonde_rule *rule)
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

static int run_rules_list(const void *values, int argc, char **argv)
{
    const list_values *asked = values;
    const sonde_rule *rule = NULL;

    if (argc > 0 && strcmp(argv[0], "schedule") != 0) {
        return cli_fail_text("rules list: '%s' (expected schedule)", argv[0]);
    }
    if (argc > 0) {
        print_looks();
        return CLI_OK;
    }
    for (size_t i = 0; (rule = sonde_rule_at_index(i)) != NULL; i++) {
        print_rule(rule);
    }
    for (size_t i = 0; i < asked->plugins.count; i++) {
        sonde_rule_file *file = NULL;
        sonde_diag diag = {0};

        if (sonde_rule_file_open(asked->plugins.text[i], NULL, &file, &diag) !=
            SONDE_OK) {
            return cli_fail(&diag);
        }
        for (size_t j = 0; (rule = sonde_rule_file_at(file, j)) != NULL; j++) {
            print_rule(rule);
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

static void explain_rule(const sonde_rule *rule)
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
            explain_rule(rule);
            *shown = true;
        }
    }
    sonde_rule_file_close(file);
    return SONDE_OK;
}

static int run_rules_show(const void *values, int argc, char **argv)
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
    explain_rule(rule);
    return CLI_OK;
}

#define LISTED(field) offsetof(list_values, field)

static const cli_option list_options[] = {
    {"plugin", 0, CLI_LIST, "FILE", "add the rules of this .so or .lua file",
     LISTED(plugins)},
};

const cli_command cli_rules_list = {
    .name = "rules list",
    .arguments = "[schedule]",
    .summary = "list the rules",
    .details =
        "Prints one line for each rule: its name and the fault that it finds. With\n"
        "the argument schedule: the steps at which the default rules need each form of\n"
        "evidence, by role.",
    .options = list_options,
    .option_count = CLI_COUNT_OF(list_options),
    .most = 1,
    .values_size = sizeof(list_values),
    .run = run_rules_list,
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
    .run = run_rules_show,
};
