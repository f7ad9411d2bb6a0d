/*
 * rules.c - `sonde rules`: judges runs, recorded or being recorded.
 */
#include "cli/cli_findings.h"
#include "cli/kept.h"
#include "cli/cli_run.h"

#include <sonde/report.h>
#include <sonde/rules.h>

#include <stdlib.h>
#include <string.h>
#include <strings.h>

typedef struct rules_values {
    cli_list rules, names, params, others, other_trials, plugins;
    const char *trial_dir, *report;
    int64_t start_step, end_step, rule_memory;
    double stall, rule_seconds;
    bool follow, json, explain, no_save;
    cli_acting acting;
} rules_values;

/* One run that is judged. */
typedef struct work {
    const rules_values *asked;
    const char *path;
    sonde_trial *trial;
    sonde_rules *rules;
    sonde_actions *actions; /* NULL: nothing is done about findings */
} work;

/* --- telling ---------------------------------------------------------------------- */

static void print_finding(const work *of, const sonde_finding *finding)
{
    if (of->asked->json) {
        char line[8192];

        (void)sonde_finding_json(finding, line, sizeof line);
        (void)puts(line);
        (void)fflush(stdout);
        return;
    }
    cli_print_finding(stdout, finding, 0);
}

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    const work *of = user;

    if (!again && of->asked->follow) {
        print_finding(of, finding);
    }
    if (!again && of->actions != NULL) {
        sonde_actions_take(of->actions, finding);
    }
}

static void explain(const work *of)
{
    for (size_t i = 0; i < sonde_rules_count(of->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(of->rules, i, &account);
        if (of->asked->json) {
            (void)printf("{\"rule\":\"%s\",\"judged\":%s,\"tensors\":%zu,\"steps\":%llu,"
                         "\"findings\":%zu,\"lacked\":\"%s\"}\n",
                         account.rule->name, account.judged ? "true" : "false",
                         account.tensors, (unsigned long long)account.steps,
                         account.findings, account.lacked);
        } else if (account.judged) {
            (void)printf("%-26s judged %zu tensors at %llu steps, %zu findings\n",
                         account.rule->name, account.tensors,
                         (unsigned long long)account.steps, account.findings);
        } else {
            (void)printf("%-26s did not judge: %s\n", account.rule->name, account.lacked);
        }
    }
}

/* The last line, or two. */
static void print_verdict(const work *of, size_t findings)
{
    const size_t kept = cli_kept_findings(of->path, of->rules);
    const size_t damage = cli_count_damage(of->trial);
    size_t judged = 0, silent = 0, fired = 0;
    sonde_run_info info;

    for (size_t i = 0; i < sonde_rules_count(of->rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(of->rules, i, &account);
        judged += account.judged;
        silent += !account.judged;
        fired += account.findings > 0;
    }
    sonde_trial_describe(of->trial, &info);
    (void)printf("%s: ", of->path);
    if (findings > 0) {
        (void)printf("%zu finding%s of %zu rule%s", findings, findings == 1 ? "" : "s",
                     fired, fired == 1 ? "" : "s");
    } else {
        (void)printf("nothing found");
    }
    (void)printf(" up to step %lld; %zu rule%s judged", (long long)info.last_step, judged,
                 judged == 1 ? "" : "s");
    if (silent > 0) {
        (void)printf(", %zu had not what they need%s", silent,
                     of->asked->explain ? "" : " (--explain)");
    }
    (void)printf("\n");
    if (damage > 0) {
        (void)printf("%s: %zu thing%s that cannot be read; 'sonde verify' names %s\n",
                     of->path, damage, damage == 1 ? "" : "s",
                     damage == 1 ? "it" : "them");
    }
    if (kept > 0) {
        (void)printf(
            "%s/findings: %zu more of these rules, of who saw what was not recorded "
            "or judged otherwise\n",
            of->path, kept);
    }
}

/* --- rules ------------------------------------------------------------------------ */

static bool append(char *text, size_t size, const char *part)
{
    const size_t used = strlen(text);

    return (size_t)snprintf(text + used, size - used, "%s", part) < size - used;
}

/* A value, with a backslash before each comma in it. */
static bool append_value(char *text, size_t size, const char *value)
{
    bool fits = true;

    for (; *value != '\0' && fits; value++) {
        const char part[] = {*value, '\0'};

        fits = append(text, size, *value == ',' ? "\\," : part);
    }
    return fits;
}

/* A rule as it was named, with the parameters of --param and --other. */
static sonde_err add_rule(const work *of, const char *name, sonde_diag *diag)
{
    const rules_values *asked = of->asked;
    char text[4096] = "";
    bool fits = append(text, sizeof text, name);
    bool colon = strchr(name, ':') != NULL;

    for (size_t i = 0; i < asked->params.count; i++) {
        fits = fits && append(text, sizeof text, colon ? "," : ":") &&
               append(text, sizeof text, asked->params.text[i]);
        colon = true;
    }
    if (strncasecmp(name, "SimilarAcrossRuns", 17) == 0) {
        const cli_list *others =
            asked->others.count > 0 ? &asked->others : &asked->other_trials;

        if (others->count > 0) {
            fits = fits &&
                   append(text, sizeof text, colon ? ",other_trial=" : ":other_trial=") &&
                   append_value(text, sizeof text, others->text[0]);
        }
    }
    if (!fits) {
        diag->err = SONDE_EINVAL;
        (void)snprintf(diag->found, sizeof diag->found, "a rule with too much text");
        return SONDE_EINVAL;
    }
    return sonde_rules_add(of->rules, text, diag);
}

/* Files of rules become known by the names of their rules. */
static sonde_err load_plugins(const work *of, sonde_diag *diag)
{
    const rules_values *asked = of->asked;
    sonde_rule_limits limits = {0};
    sonde_err err = SONDE_OK;

    if (asked->rule_seconds <= 0) {
        diag->err = SONDE_EINVAL;
        (void)snprintf(diag->where, sizeof diag->where, "--rule-seconds");
        (void)snprintf(diag->found, sizeof diag->found, "'%g'", asked->rule_seconds);
        (void)snprintf(diag->expected, sizeof diag->expected, "more than 0");
        return SONDE_EINVAL;
    }
    limits.seconds =
        asked->rule_seconds > 0 ? asked->rule_seconds : 0; /* NaN: not given */
    if (asked->rule_memory > 0) {
        limits.memory = (uint64_t)asked->rule_memory << 20;
    }
    sonde_rules_set_limits(of->rules, &limits);
    for (size_t i = 0; i < asked->plugins.count && err == SONDE_OK; i++) {
        err = sonde_rules_load(of->rules, asked->plugins.text[i], diag);
    }
    return err;
}

static sonde_err add_rules(const work *of, sonde_diag *diag)
{
    const rules_values *asked = of->asked;
    sonde_err err = load_plugins(of, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (asked->rules.count + asked->names.count == 0) {
        err = sonde_rules_add_defaults(of->rules, diag);
        if (err == SONDE_OK && asked->others.count + asked->other_trials.count > 0) {
            err = add_rule(of, "SimilarAcrossRuns", diag);
        }
    }
    for (size_t i = 0; i < asked->rules.count && err == SONDE_OK; i++) {
        err = add_rule(of, asked->rules.text[i], diag);
    }
    for (size_t i = 0; i < asked->names.count && err == SONDE_OK; i++) {
        err = add_rule(of, asked->names.text[i], diag);
    }
    return err;
}

/* --- judging ---------------------------------------------------------------------- */

static bool stop(void *user)
{
    (void)user;
    return cli_interrupted();
}

static sonde_err judge(work *of, sonde_diag *diag)
{
    const rules_values *asked = of->asked;
    sonde_rules_pace pace = {.follow = asked->follow, .stop = stop};
    sonde_run_info info;
    sonde_err err = sonde_rules_create(&of->rules, diag);

    if (err == SONDE_OK) {
        err = add_rules(of, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_trial_open(of->path, NULL, &of->trial, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    sonde_trial_describe(of->trial, &info);
    if (!asked->no_save && !info.foreign) {
        err = sonde_rules_write_to(of->rules, of->path, diag);
    }
    if (err == SONDE_OK) {
        err = cli_actions_open(&asked->acting, of->path, &of->actions, diag);
    }
    if (err == SONDE_OK && of->actions != NULL) {
        err = sonde_actions_check(of->actions, of->rules, diag);
    }
    sonde_rules_on_finding(of->rules, on_finding, of);
    pace.stall = asked->stall > 0 ? asked->stall : 0;
    pace.begin = asked->start_step != CLI_NOT_GIVEN ? asked->start_step : 0;
    pace.end = asked->end_step != CLI_NOT_GIVEN ? asked->end_step : 0;
    return err == SONDE_OK ? sonde_rules_judge(of->rules, of->trial, &pace, diag) : err;
}

/* What was found; *findings grows. */
static void tell(const work *of, size_t *findings)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(of->rules, &count);

    for (size_t i = 0; i < count && !of->asked->follow; i++) {
        print_finding(of, &all[i]);
    }
    if (of->asked->explain) {
        explain(of);
    }
    if (!of->asked->json) {
        print_verdict(of, count);
    }
    *findings += count;
}

static int judge_run(const rules_values *asked, const char *path, size_t *findings)
{
    work of = {.asked = asked, .path = path};
    sonde_diag diag = {0};
    sonde_err err = judge(&of, &diag);

    if (of.trial != NULL && (err == SONDE_OK || err == SONDE_ETIMEOUT)) {
        sonde_diag writing = {0};

        tell(&of, findings);
        if (asked->report != NULL && sonde_report_write(asked->report, of.trial, of.rules,
                                                        NULL, &writing) != SONDE_OK) {
            err = writing.err;
            diag = writing;
        }
    }
    cli_actions_close(of.actions);
    sonde_rules_destroy(of.rules);
    sonde_trial_close(of.trial);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

static int run_rules(const void *values, int argc, char **argv)
{
    const rules_values *asked = values;
    size_t findings = 0;
    int code = CLI_OK;

    if (argc == 0 && asked->trial_dir == NULL) {
        return cli_fail_text(
            "rules: no run (expected RUN..., 'rules list' or 'rules show NAME')");
    }
    if (asked->params.count > 0 && asked->rules.count + asked->names.count != 1) {
        return cli_fail_text("--param: it needs exactly one --rule to belong to");
    }
    if (asked->report != NULL && argc + (asked->trial_dir != NULL) != 1) {
        return cli_fail_text("--report: it is of one run");
    }
    cli_catch_interrupt();
    if (asked->trial_dir != NULL) {
        code = judge_run(asked, asked->trial_dir, &findings);
    }
    for (int i = 0; i < argc && code == CLI_OK; i++) {
        code = judge_run(asked, argv[i], &findings);
    }
    return code != CLI_OK ? code : findings > 0 ? CLI_VERDICT : CLI_OK;
}

#define AT(field) offsetof(rules_values, field)

static const cli_option options[] = {
    {"rule", 'r', CLI_LIST, "NAME[:PARAM=VALUE,...]",
     "judge by this rule, or file of rules, alone; may be given again", AT(rules)},
    {"param", 'p', CLI_LIST, "PARAM=VALUE", "a parameter of the rule", AT(params)},
    {"plugin", 0, CLI_LIST, "FILE", "judge by the rules of this .so or .lua as well",
     AT(plugins)},
    {"rule-seconds", 0, CLI_REAL, "SECONDS",
     "that a rule of a file may take for a step (2)", AT(rule_seconds)},
    {"rule-memory", 0, CLI_SIZE, "MB", "that a rule in Lua may have (256)",
     AT(rule_memory)},
    {"follow", 'f', CLI_FLAG, NULL, "go on until the run has ended", AT(follow)},
    {"stall", 0, CLI_REAL, "SECONDS",
     "with --follow: give up after so long without a step (1800)", AT(stall)},
    {"other", 0, CLI_LIST, "RUN", "the run to compare with", AT(others)},
    {"start-step", 0, CLI_COUNT, "N", "first global step", AT(start_step)},
    {"end-step", 0, CLI_COUNT, "N", "global step to stop before", AT(end_step)},
    {"json", 'j', CLI_FLAG, NULL, "findings as JSON, an object a line", AT(json)},
    {"explain", 'x', CLI_FLAG, NULL, "say what each rule judged, or lacked", AT(explain)},
    {"report", 'o', CLI_TEXT, "FILE", "write it all as a page for a browser: FILE.html",
     AT(report)},
    {"no-save", 0, CLI_FLAG, NULL, "do not write findings into the run", AT(no_save)},
    CLI_ACTING_OPTIONS(rules_values),
    {"trial-dir", 0, CLI_TEXT, "RUN", "as RUN", AT(trial_dir)},
    {"rule-name", 0, CLI_LIST, "NAME", "as --rule", AT(names)},
    {"other-trials", 0, CLI_LIST, "RUN", "as --other", AT(other_trials)},
};

const cli_command cli_rules = {
    .name = "rules",
    .arguments = "RUN...",
    .summary = "say what is wrong with a run, and where",
    .details = "Judges recorded runs, or with --follow one that is being recorded, by "
               "all rules that "
               "need not be told what to look at, or by those named. A finding names the "
               "step, the rule "
               "and the tensor, says what it means and what to try, and is kept in "
               "RUN/findings. The "
               "status is 0 if nothing was found, 1 if something was, 2 for an error.",
    .examples = "sonde rules run # by all rules\n"
                "sonde rules run --rule VanishingGradient:threshold=1e-6\n"
                "sonde rules run --plugin ./my_rule.lua # and by one of your own\n"
                "sonde rules run --report run.html # a page with curves, for people\n"
                "sonde rules --follow run # while it trains\n"
                "sonde rules --follow run --on-finding error=stop",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .least = 0,
    .most = -1,
    .values_size = sizeof(rules_values),
    .run = run_rules,
};
