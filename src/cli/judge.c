/*
 * judge.c - a command judges its own training: rules in the process, told as they speak, and a
 * verdict in the end.
 */
#include "cli/judge.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

/* Vital signs of everything make a small network's step a third to a half longer; at every
 * twentieth, together with losses at each, they cost some five percent (bench_rules: usual). */
enum { INTERVAL = 20 };
/* Findings of a rule that are printed one by one: NaN goes everywhere within a step. */
enum { PRINTED = 3 };

/* --- telling ------------------------------------------------------------------------ */

/* How often a rule has spoken, this time included; 1 for rules beyond those there is room for. */
static size_t count_spoken(cli_judge *judge, const char *rule)
{
    for (size_t i = 0; i < CLI_COUNT_OF(judge->spoken); i++) {
        if (judge->spoken[i].rule == NULL) {
            judge->spoken[i].rule = rule;
        }
        if (strcmp(judge->spoken[i].rule, rule) == 0) {
            return ++judge->spoken[i].times;
        }
    }
    return 1;
}

/* Over a progress bar, which is drawn anew. False if the finding itself is not shown. */
static bool tell(cli_judge *judge, const sonde_finding *finding)
{
    char line[8192], when[64];
    size_t times = 0;

    if (judge->json) {
        (void)sonde_finding_json(finding, line, sizeof line);
        (void)printf("{\"event\": \"finding\", ");
        if (judge->epoch > 0) {
            (void)printf("\"epoch\": %d, ",
                         judge->epoch - 1); /* as events of epochs count */
        }
        (void)printf("%s\n", line + 1);
        (void)fflush(stdout);
        return false; /* not where the log is */
    }
    if (isatty(STDERR_FILENO)) {
        (void)fputs("\r\033[K", stderr);
    }
    times = count_spoken(judge, finding->rule);
    if (times <= PRINTED) {
        cli_print_finding(stderr, finding, judge->epoch);
    } else if (times == PRINTED + 1) {
        (void)fprintf(stderr, "%s: more of %s, not shown one by one\n",
                      cli_when_text(finding->step, judge->epoch, when), finding->rule);
    }
    return times <= PRINTED;
}

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    cli_judge *judge = user;

    if (again) {
        return;
    }
    cli_log_told(tell(judge, finding));
    if (judge->actions != NULL) {
        sonde_actions_take(judge->actions, finding);
    }
    cli_log_told(false);
}

/* --- opening ------------------------------------------------------------------------ */

static bool is_none(const cli_list *list)
{
    return list->count == 1 && strcasecmp(list->text[0], "none") == 0;
}

static sonde_err add_rules(cli_judge *judge, const cli_judging *asked,
                           const sonde_nn_job_rules *listed, sonde_diag *diag)
{
    const bool mine = asked->rules.count > 0;
    const size_t count = mine ? asked->rules.count : listed->judge.count;
    sonde_err err = sonde_rules_create(&judge->rules, diag);

    if (err == SONDE_OK && count == 0) {
        err = sonde_rules_add_defaults(judge->rules, diag);
    }
    for (size_t i = 0; i < count && err == SONDE_OK; i++) {
        err = sonde_rules_add_list(
            judge->rules, mine ? asked->rules.text[i] : listed->judge.text[i], diag);
    }
    return err;
}

sonde_err cli_judge_open(const cli_judging *asked, const cli_acting *acting,
                         const sonde_nn_job *job, const char *run, bool json,
                         cli_judge *judge, sonde_diag *diag)
{
    const sonde_nn_job_rules *listed = sonde_nn_job_get_rules(job);
    const bool overruled = is_none(&asked->rules); /* the job's actions too */
    const bool none = asked->rules.count > 0 ? overruled : listed->none;
    sonde_err err = sonde_control_create(run, &judge->control, diag);

    judge->json = json;
    judge->interval = asked->interval != CLI_NOT_GIVEN ? asked->interval
                      : listed->every > 0              ? listed->every
                                                       : INTERVAL;
    if (err == SONDE_OK && !none) {
        err = add_rules(judge, asked, listed, diag);
    }
    if (err == SONDE_OK && !none && run != NULL) {
        err = sonde_rules_write_to(judge->rules, run, diag);
    }
    if (err == SONDE_OK) {
        err = cli_actions_open(acting, &asked->stop_on, overruled ? NULL : listed,
                               judge->control, NULL, &judge->actions, diag);
    }
    if (err == SONDE_OK && judge->actions != NULL && none) {
        *diag =
            (sonde_diag){.err = SONDE_EINVAL,
                         .where = "--rules",
                         .found = "nobody judges, and something is to be done about it",
                         .expected = "rules, or no --stop-on and --on-finding"};
        err = SONDE_EINVAL;
    }
    if (err == SONDE_OK && judge->actions != NULL) {
        err = sonde_actions_check(judge->actions, judge->rules, diag);
    }
    if (err == SONDE_OK && judge->rules != NULL) {
        sonde_rules_on_finding(judge->rules, on_finding, judge);
    }
    return err;
}

static sonde_err attach(void *user, const sonde_catalogue *catalogue,
                        sonde_observer *observer, sonde_diag *diag)
{
    const cli_judge *judge = user;

    return sonde_rules_attach(judge->rules, catalogue, observer, judge->interval,
                              judge->raw_interval, diag);
}

sonde_err cli_judge_attach(cli_judge *judge, sonde_nn_session *session, sonde_diag *diag)
{
    return judge->rules != NULL ? sonde_nn_session_attach(session, attach, judge, diag)
                                : SONDE_OK;
}

void cli_judge_close(cli_judge *judge)
{
    cli_actions_close(judge->actions);
    sonde_rules_destroy(judge->rules);
    sonde_control_destroy(judge->control);
    *judge = (cli_judge){0};
}

/* --- the verdict -------------------------------------------------------------------- */

typedef struct verdict {
    size_t judged;                           /* rules */
    size_t counts[SONDE_SEVERITY_ERROR + 1]; /* findings */
    const sonde_finding *worst;              /* the first of the worst; NULL: none */
    uint64_t steps;
} verdict;

static verdict look(sonde_rules *rules)
{
    verdict seen = {.steps = sonde_rules_steps(rules)};
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);

    for (size_t i = 0; i < sonde_rules_count(rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        seen.judged += account.judged;
    }
    for (size_t i = 0; i < count; i++) {
        seen.counts[all[i].severity]++;
        if (seen.worst == NULL || all[i].severity > seen.worst->severity) {
            seen.worst = &all[i];
        }
    }
    return seen;
}

/* "2 errors, 1 warning" */
static void print_counts(const verdict *seen)
{
    bool any = false;

    for (int i = SONDE_SEVERITY_ERROR; i >= SONDE_SEVERITY_NOTE; i--) {
        if (seen->counts[i] > 0) {
            (void)printf("%s%zu %s%s", any ? ", " : "", seen->counts[i],
                         sonde_severity_name((sonde_severity)i),
                         seen->counts[i] == 1 ? "" : "s");
            any = true;
        }
    }
}

static void print_json(const verdict *seen)
{
    (void)printf("{\"event\": \"verdict\", \"healthy\": %s, \"rules\": %zu, "
                 "\"steps\": %" PRIu64 ", \"errors\": %zu, \"warnings\": %zu, "
                 "\"notes\": %zu}\n",
                 seen->worst == NULL ? "true" : "false", seen->judged, seen->steps,
                 seen->counts[SONDE_SEVERITY_ERROR], seen->counts[SONDE_SEVERITY_WARNING],
                 seen->counts[SONDE_SEVERITY_NOTE]);
}

void cli_judge_verdict(cli_judge *judge)
{
    verdict seen;
    char steps[32];

    if (judge->rules == NULL) {
        return;
    }
    sonde_rules_finish(judge->rules);
    seen = look(judge->rules);
    if (judge->json) {
        print_json(&seen);
    } else if (seen.worst == NULL && seen.judged == 0) {
        (void)printf("not judged: no rule had what it needs\n");
    } else if (seen.worst == NULL) {
        (void)printf("healthy: %zu rule%s judged %s step%s\n", seen.judged,
                     seen.judged == 1 ? "" : "s", cli_commas(seen.steps, steps),
                     seen.steps == 1 ? "" : "s");
    } else {
        const sonde_finding *worst = seen.worst;

        print_counts(&seen);
        (void)printf(": %s at step %" PRId64 "%s%s: %.*s; sonde rules show %s\n",
                     worst->rule, worst->step, worst->tensor[0] != '\0' ? " in " : "",
                     worst->tensor, cli_sentence(worst->message), worst->message,
                     worst->rule);
    }
    (void)fflush(stdout);
}
