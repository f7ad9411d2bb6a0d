/*
 * cli_findings.c - see cli_findings.h.
 */
#include "cli/cli_findings.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <stdio.h>
#include <sonde/log.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Findings of a rule that are printed one by one. */
enum { PRINTED = 3 };

/* --- findings ----------------------------------------------------------------------- */

int cli_sentence(const char *text)
{
    const size_t length = strlen(text);

    return (int)length - (length > 0 && text[length - 1] == '.');
}

void cli_add_value(sonde_text *text, const char *value)
{
    for (; *value != '\0'; value++) {
        sonde_text_add(text, *value == ',' ? "\\" : "");
        sonde_text_put(text, value, 1);
    }
}

/* "step 412 (epoch 2)", "training step 412 (step 500, epoch 2)"; epoch 0: not known. Returns
 * buf. */
static const char *when_text(const sonde_finding *finding, int epoch, char buf[96])
{
    size_t used = sonde_finding_when(finding, buf, 96);

    if (epoch > 0 && used > 0 && used < 96) {
        const bool open = buf[used - 1] == ')';

        used -= open;
        (void)snprintf(buf + used, 96 - used, "%sepoch %d)", open ? ", " : " (", epoch);
    }
    return buf;
}

void cli_print_finding(FILE *stream, const sonde_finding *finding, int epoch)
{
    char when[96], where[1024];

    (void)fprintf(stream, "%s: %s: %s%s%s%s: %s", when_text(finding, epoch, when),
                  sonde_severity_name(finding->severity), finding->rule,
                  finding->tensor[0] != '\0' ? ": " : "", finding->tensor,
                  sonde_finding_where(finding, where, sizeof where), finding->message);
    if (finding->steps > 1) {
        (void)fprintf(stream, " At %llu steps, up to %lld.",
                      (unsigned long long)finding->steps, (long long)finding->last_step);
    }
    if (finding->raised_step > 0) {
        (void)fprintf(stream, " It was a %s until step %lld.",
                      sonde_severity_name(finding->raised_from),
                      (long long)finding->raised_step);
    }
    if (finding->resolved_step > 0) {
        (void)fprintf(stream, " It is resolved since step %lld.",
                      (long long)finding->resolved_step);
    }
    (void)fprintf(stream, " %s\n", finding->advice);
    (void)fflush(stream);
}

/* How often a rule has found a cause, this time included; 1 beyond the table. */
static size_t count_spoken(cli_finding_log *log, const sonde_finding *finding)
{
    for (size_t i = 0; i < CLI_COUNT_OF(log->spoken); i++) {
        if (log->spoken[i].rule == NULL) {
            log->spoken[i].rule = finding->rule;
        }
        if (strcmp(log->spoken[i].rule, finding->rule) == 0) {
            return ++log->spoken[i].times;
        }
    }
    return 1;
}

cli_finding_share cli_finding_count(cli_finding_log *log, const sonde_finding *finding)
{
    if (finding->because_of != 0) {
        return CLI_FINDING_NONE;
    }
    const size_t times = count_spoken(log, finding);

    return times <= PRINTED       ? CLI_FINDING_WHOLE
           : times == PRINTED + 1 ? CLI_FINDING_MORE
                                  : CLI_FINDING_NONE;
}

void cli_print_more(FILE *stream, const sonde_finding *finding, int epoch)
{
    char when[96];

    (void)fprintf(stream, "%s: %s: further findings are not printed one by one\n",
                  when_text(finding, epoch, when), finding->rule);
    (void)fflush(stream);
}

static void print_json(const sonde_finding *finding, int epoch)
{
    char line[8192];

    (void)sonde_finding_json(finding, line, sizeof line);
    sonde_text_add(cli_json()->text, "{\"event\": \"finding\", ");
    if (epoch > 0) {
        sonde_text_format(cli_json()->text, "\"epoch\": %d, ", epoch);
    }
    sonde_text_add(cli_json()->text, line + 1);
    cli_json_print("\n");
    (void)fflush(stdout);
}

void cli_finding_log_put(cli_finding_log *log, const sonde_finding *finding, int epoch)
{
    cli_finding_share share = CLI_FINDING_NONE;

    if (log->json) {
        print_json(finding, epoch);
        return;
    }
    if (isatty(STDERR_FILENO)) {
        (void)fputs("\r\033[K", stderr); /* over a progress bar, which is drawn anew */
    }
    share = cli_finding_count(log, finding);
    if (share != CLI_FINDING_NONE) {
        cli_put_rank(stderr);
    }
    if (share == CLI_FINDING_WHOLE) {
        cli_print_finding(stderr, finding, epoch);
    } else if (share == CLI_FINDING_MORE) {
        cli_print_more(stderr, finding, epoch);
    }
    cli_log_omit_finding(share == CLI_FINDING_WHOLE);
}

void cli_on_warning(void *user, const char *text)
{
    (void)user;
    cli_warn("%s", text);
}

bool cli_is_interrupted(void *user)
{
    (void)user;
    return cli_interrupted();
}

/* --- the verdict -------------------------------------------------------------------- */

static void print_verdict_json(const sonde_verdict *verdict)
{
    CLI_LINE(cli_text("event", "verdict"),
             cli_text("verdict", sonde_verdict_name(verdict->word)),
             cli_uint("rules", verdict->rules), cli_uint("lacking", verdict->lacking),
             cli_uint("steps", verdict->steps),
             cli_uint("errors", verdict->standing[SONDE_SEVERITY_ERROR]),
             cli_uint("warnings", verdict->standing[SONDE_SEVERITY_WARNING]),
             cli_uint("notes", verdict->standing[SONDE_SEVERITY_NOTE]),
             cli_uint("following", verdict->following),
             cli_uint("resolved", verdict->resolved));
}

void cli_print_verdict(const sonde_nn_trainer *trainer, bool json)
{
    sonde_verdict verdict;
    char text[CLI_VERDICT_TEXT];

    if (!sonde_nn_trainer_verdict(trainer, &verdict)) {
        return;
    }
    if (json) {
        print_verdict_json(&verdict);
    } else {
        (void)sonde_verdict_text(&verdict, text, sizeof text);
        (void)printf("%s%s%s\n", text,
                     verdict.headline != NULL ? "; sonde rules show " : "",
                     verdict.headline != NULL ? verdict.headline->rule : "");
    }
    (void)fflush(stdout);
}

/* --- actions ------------------------------------------------------------------------ */

void cli_actions_log(void)
{
    if (getenv("SONDE_LOG_LEVEL") == NULL) {
        sonde_log_set_level(SONDE_LOG_INFO);
    }
}

sonde_err cli_actions_open(const cli_acting *acting, const char *run, sonde_actions **out,
                           sonde_diag *diag)
{
    const double seconds = isnan(acting->timeout) ? 0.0 : acting->timeout;
    const sonde_actions_options options = {.size = sizeof options,
                                           .run = run,
                                           .each = acting->each,
                                           .command_seconds = seconds,
                                           .webhook_seconds = seconds};
    sonde_actions *actions = NULL;
    sonde_err err = SONDE_OK;

    if (!isnan(acting->timeout) && !(seconds > 0.0 && seconds <= 86400.0)) {
        return sonde_diag_set(diag, SONDE_EINVAL, "--action-timeout",
                              "seconds, up to a day", "%g", seconds);
    }
    if (acting->on_finding.count == 0) {
        return SONDE_OK;
    }
    SONDE__TRY_GO(sonde_actions_create(&options, &actions, diag));
    for (size_t i = 0; i < acting->on_finding.count; i++) {
        SONDE__TRY_GO(sonde_actions_add(actions, acting->on_finding.text[i], diag));
    }
    cli_actions_log();
    *out = actions;
    return SONDE_OK;

error:
    sonde_actions_destroy(actions);
    return err;
}

void cli_actions_close(sonde_actions *actions)
{
    enum { WAIT_SECONDS = 15 };
    sonde_actions_stats stats;

    if (actions == NULL) {
        return;
    }
    if (!sonde_actions_finish(actions, WAIT_SECONDS)) {
        sonde_actions_get_stats(actions, &stats);
        cli_warn("actions: %llu done, %llu failed, %llu lost",
                 (unsigned long long)stats.done, (unsigned long long)stats.failed,
                 (unsigned long long)stats.lost);
    }
    sonde_actions_destroy(actions);
}

/* --- findings from earlier judging -------------------------------------------------- */

/* Whether a finding has the id. */
static bool has(const sonde_finding *findings, size_t count, uint64_t id)
{
    for (size_t i = 0; i < count; i++) {
        if (findings[i].id == id) {
            return true;
        }
    }
    return false;
}

/* How many ids at the beginnings of the lines of a file, if there is one, belong to none of
 * the findings; an id that several lines have counts once. */
static size_t count_others(const char *path, const sonde_finding *finding, size_t count)
{
    FILE *file = fopen(path, "r");
    sonde_finding *others = NULL; /* their ids */
    char *line = NULL;
    size_t size = 0, more = 0;
    uint64_t id = 0;

    while (file != NULL && getline(&line, &size, file) > 0) {
        if (sscanf(line, "{\"id\":\"%16" SCNx64 "\"", &id) != 1 ||
            has(finding, count, id) || has(others, more, id)) {
            continue;
        }
        sonde_finding *grown = realloc(others, (more + 1) * sizeof *grown);

        if (grown == NULL) {
            break;
        }
        others = grown;
        others[more++] = (sonde_finding){.id = id};
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    free(line);
    free(others);
    return more;
}

/* Whether a rule before this one has the same name, and so the same file of findings. */
static bool is_repeated(const sonde_rules *rules, size_t i)
{
    sonde_rule_account one, other;

    sonde_rules_account(rules, i, &one);
    for (size_t j = 0; j < i; j++) {
        sonde_rules_account(rules, j, &other);
        if (strcmp(one.rule->name, other.rule->name) == 0) {
            return true;
        }
    }
    return false;
}

size_t cli_count_kept(const char *run, sonde_rules *rules)
{
    size_t count = 0, more = 0;
    const sonde_finding *finding = sonde_rules_findings(rules, &count);

    for (size_t i = 0; i < sonde_rules_count(rules); i++) {
        sonde_rule_account account;
        char path[4096];

        if (is_repeated(rules, i)) {
            continue;
        }
        sonde_rules_account(rules, i, &account);
        (void)snprintf(path, sizeof path, "%s/findings/%s.jsonl", run,
                       account.rule->name);
        more += count_others(path, finding, count);
    }
    return more;
}
