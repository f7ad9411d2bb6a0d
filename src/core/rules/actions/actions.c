/*
 * actions.c - actions: reading them, choosing those that a finding is for, and running
 * the ones that do not wait: log, stop and checkpoint.
 */
#include "rules/actions/actions_state.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"

#include "observe/tensor_names.h"
#include "base/options.h"
#include "base/number.h"

#include <sonde/log.h>

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static const struct {
    const char *name;
    sonde__action_kind kind;
    bool has_text;
} kinds[] = {{"log", SONDE__ACTION_LOG, false},
             {"stop", SONDE__ACTION_STOP, false},
             {"checkpoint", SONDE__ACTION_CHECKPOINT, false},
             {"command", SONDE__ACTION_COMMAND, true},
             {"webhook", SONDE__ACTION_WEBHOOK, true}};

/* --- making ------------------------------------------------------------------------- */

static double otherwise(double given, double value)
{
    return given > 0.0 ? given : value;
}

static sonde_err check_options(const sonde_actions_options *options, sonde_diag *diag)
{
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"command_seconds", options->command_seconds},
                   {"webhook_seconds", options->webhook_seconds},
                   {"backoff_seconds", options->backoff_seconds},
                   {"webhook_tries", options->webhook_tries}};

    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        if (!(numbers[i].value >= 0.0)) {
            return sonde__fail(diag, SONDE_EINVAL, numbers[i].name, "0 or more", "%g",
                               numbers[i].value);
        }
    }
    return SONDE_OK;
}

sonde_err sonde_actions_create(const sonde_actions_options *options, sonde_actions **out,
                               sonde_diag *diag)
{
    SONDE__NEEDS(diag, out);
    sonde_actions_options taken;
    SONDE__TAKE(sonde_actions_options, &taken, options, diag);
    sonde_err err = check_options(&taken, diag);
    sonde_actions *actions = NULL;

    if (err != SONDE_OK) {
        return err;
    }
    actions = sonde__calloc(1, sizeof *actions);

    if (actions == NULL) {
        return sonde__fail_nomem(diag, "actions");
    }
    actions->options = taken;
    actions->options.run = NULL;
    actions->options.command_seconds = otherwise(taken.command_seconds, 60.0);
    actions->options.webhook_seconds = otherwise(taken.webhook_seconds, 10.0);
    actions->options.backoff_seconds = otherwise(taken.backoff_seconds, 0.5);
    actions->options.webhook_tries = taken.webhook_tries > 0 ? taken.webhook_tries : 5;
    if (taken.run != NULL) {
        actions->run = sonde__strdup(taken.run);
        if (actions->run == NULL) {
            err = sonde__fail_nomem(diag, "actions");
            goto error;
        }
    }
    SONDE__TRY_GO(sonde__actions_queue_init(&actions->queue, diag));
    *out = actions;
    return SONDE_OK;

error:
    sonde_actions_destroy(actions);
    return err;
}

static void free_action(sonde__action *action)
{
    sonde__free(action->text);
    sonde__free(action->rule);
    sonde__names_fini(&action->did);
}

void sonde_actions_destroy(sonde_actions *actions)
{
    if (actions == NULL) {
        return;
    }
    sonde__actions_queue_fini(actions);
    for (size_t i = 0; i < actions->count; i++) {
        free_action(&actions->items[i]);
    }
    sonde__free(actions->run);
    sonde__free(actions);
}

size_t sonde_actions_count(const sonde_actions *actions)
{
    return actions != NULL ? actions->count : 0;
}

/* --- "WHEN=ACTION" ------------------------------------------------------------------ */

/* Length of the WHEN before a "="; 0 if there is none. */
static size_t when_length(const char *text)
{
    size_t n = 0;

    while (isalnum((unsigned char)text[n]) || text[n] == '_') {
        n++;
    }
    return text[n] == '=' ? n : 0;
}

/* A severity, or the name of a rule, which need not be built in. */
static sonde_err read_when(sonde__action *action, const char *text, size_t length,
                           sonde_diag *diag)
{
    action->least = SONDE_SEVERITY_NOTE;
    if (length == 0 || (length == 3 && sonde__strncasecmp(text, "any", 3) == 0)) {
        return SONDE_OK;
    }
    for (int i = SONDE_SEVERITY_NOTE; i <= SONDE_SEVERITY_ERROR; i++) {
        const char *name = sonde_severity_name((sonde_severity)i);

        if (strlen(name) == length && sonde__strncasecmp(name, text, length) == 0) {
            action->least = (sonde_severity)i;
            return SONDE_OK;
        }
    }
    action->rule = sonde__strndup(text, length);
    return action->rule != NULL ? SONDE_OK : sonde__fail_nomem(diag, "an action");
}

static sonde_err fail_action(const char *text, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EINVAL, "action",
                       "[WHEN=]log, stop, checkpoint, command:TEXT or webhook:URL",
                       "'%.128s'", text);
}

/* The kind, and the text after its colon. */
static sonde_err read_kind(sonde__action *action, const char *text, sonde_diag *diag)
{
    const char *colon = strchr(text, ':');
    const size_t length = colon != NULL ? (size_t)(colon - text) : strlen(text);

    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        if (strlen(kinds[i].name) != length ||
            sonde__strncasecmp(kinds[i].name, text, length) != 0) {
            continue;
        }
        if (kinds[i].has_text != (colon != NULL && colon[1] != '\0') ||
            (colon != NULL && !kinds[i].has_text)) {
            return fail_action(text, diag);
        }
        action->kind = kinds[i].kind;
        if (colon != NULL) {
            action->text = sonde__strdup(colon + 1);
            return action->text != NULL ? SONDE_OK : sonde__fail_nomem(diag, "an action");
        }
        return SONDE_OK;
    }
    return fail_action(text, diag);
}

/* Checks that the action is possible here. */
static sonde_err check_action(sonde_actions *actions, const sonde__action *action,
                              sonde_diag *diag)
{
    if ((action->kind == SONDE__ACTION_STOP ||
         action->kind == SONDE__ACTION_CHECKPOINT) &&
        actions->options.control == NULL && actions->run == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "action",
                           "a control or the folder of a run", "no run to stop is given");
    }
    if (action->kind == SONDE__ACTION_WEBHOOK) {
        SONDE__TRY(sonde__action_check_url(action->text, diag));
    }
    return action->kind == SONDE__ACTION_WEBHOOK || action->kind == SONDE__ACTION_COMMAND
               ? sonde__actions_queue_start(actions, diag)
               : SONDE_OK;
}

sonde_err sonde_actions_add(sonde_actions *actions, const char *text, sonde_diag *diag)
{
    SONDE__NEEDS(diag, actions, text);
    const size_t when = when_length(text);
    sonde__action action = {0};
    sonde_err err = SONDE_OK;

    if (actions->count == SONDE_ACTIONS_MOST) {
        return sonde__fail(diag, SONDE_EINVAL, "action", "fewer",
                           "too many actions: the limit is %d", SONDE_ACTIONS_MOST);
    }
    sonde__names_init(&action.did);
    SONDE__TRY_GO(read_when(&action, text, when, diag));
    SONDE__TRY_GO(read_kind(&action, text + (when > 0 ? when + 1 : 0), diag));
    SONDE__TRY_GO(check_action(actions, &action, diag));
    actions->items[actions->count++] = action;
    return SONDE_OK;

error:
    free_action(&action);
    return err;
}

/* rule: NULL: the action is not limited to one. */
static sonde_err check_in_use(const char *rule, const char *const *names, size_t count,
                              sonde_diag *diag)
{
    if (rule == NULL) {
        return SONDE_OK;
    }
    for (size_t i = 0; i < count; i++) {
        if (sonde__strcasecmp(names[i], rule) == 0) {
            return SONDE_OK;
        }
    }
    const char *near = sonde_diag_nearest(rule, names, count);
    return sonde__fail(diag, SONDE_ENOTFOUND, "action",
                       near != NULL ? near : "error, warning, any or a rule in use",
                       "no rule '%s' is in use", rule);
}

sonde_err sonde_actions_check(const sonde_actions *actions, const sonde_rules *rules,
                              sonde_diag *diag)
{
    SONDE__NEEDS(diag, actions, rules);
    const size_t count = sonde_rules_count(rules);
    const char **names = sonde__calloc(count + 1, sizeof *names);
    sonde_err err = SONDE_OK;

    if (names == NULL) {
        return sonde__fail_nomem(diag, "actions");
    }
    for (size_t i = 0; i < count; i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        names[i] = account.rule->name;
    }
    for (size_t i = 0; i < actions->count; i++) {
        err = check_in_use(actions->items[i].rule, names, count, diag);
        if (err != SONDE_OK) {
            break;
        }
    }
    sonde__free(names);
    return err;
}

/* --- doing -------------------------------------------------------------------------- */

static void describe(const sonde_finding *finding, char *buf, size_t size)
{
    char where[1024];

    (void)sonde__snprintf(buf, size, "%s at step %" PRId64 "%s%s%s", finding->rule,
                          finding->step, finding->tensor[0] != '\0' ? " in " : "",
                          finding->tensor,
                          sonde_finding_where(finding, where, sizeof where));
}

static void do_log(const sonde_finding *finding)
{
    static const sonde_log_level levels[] = {SONDE_LOG_INFO, SONDE_LOG_WARNING,
                                             SONDE_LOG_ERROR};
    char what[160];

    describe(finding, what, sizeof what);
    sonde_log(levels[finding->severity], "rules", "%s: %s %s", what, finding->message,
              finding->advice);
}

/* Sends a request to the run loop, in this process or through the run's folder. */
static bool do_ask(sonde_actions *actions, sonde_request_kind kind,
                   const sonde_finding *finding)
{
    const char *name = sonde_request_kind_name(kind);
    char what[160], text[SONDE_REQUEST_TEXT], line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};

    describe(finding, what, sizeof what);
    (void)snprintf(text, sizeof text, "%s: %s", what, finding->message);
    if (actions->options.control != NULL) {
        sonde_control_ask(actions->options.control, kind, SONDE_BY_RULE, text);
    } else if (sonde_control_send(actions->run, kind, SONDE_BY_RULE, text, &diag) !=
               SONDE_OK) {
        sonde_log(SONDE_LOG_WARNING, "actions", "%s for %s failed: %s", name, what,
                  sonde_diag_line(&diag, line, sizeof line));
        return false;
    }
    sonde_log(SONDE_LOG_INFO, "actions", "%s requested: %s", name, what);
    return true;
}

static void fill_job(sonde__action_job *job, const sonde_finding *finding)
{
    const char *const texts[][2] = {{"RULE", finding->rule},
                                    {"SEVERITY", sonde_severity_name(finding->severity)},
                                    {"TENSOR", finding->tensor},
                                    {"MESSAGE", finding->message}};
    size_t n = 0;

    describe(finding, job->what, sizeof job->what);
    job->length = sonde_finding_json(finding, job->json, sizeof job->json);
    job->length = SONDE_MIN(job->length, sizeof job->json - 1);
    for (; n < SONDE_COUNT_OF(texts); n++) {
        (void)snprintf(job->fields[n], SONDE__JOB_FIELD, "SONDE_FINDING_%s=%s",
                       texts[n][0], texts[n][1]);
    }
    (void)snprintf(job->fields[n++], SONDE__JOB_FIELD, "SONDE_FINDING_ID=%016" PRIx64,
                   finding->id);
    (void)snprintf(job->fields[n++], SONDE__JOB_FIELD, "SONDE_FINDING_STEP=%" PRId64,
                   finding->step);
    (void)sonde__snprintf(job->fields[n++], SONDE__JOB_FIELD, "SONDE_FINDING_VALUE=%.10g",
                          finding->value);
    (void)sonde__snprintf(job->fields[n], SONDE__JOB_FIELD,
                          "SONDE_FINDING_THRESHOLD=%.10g", finding->threshold);
}

static void hand_over(sonde_actions *actions, const sonde__action *action,
                      const sonde_finding *finding)
{
    sonde__action_job *job = sonde__calloc(1, sizeof *job);

    if (job == NULL) {
        (void)atomic_fetch_add(&actions->lost, 1);
        sonde_log(SONDE_LOG_WARNING, "actions", "%s: out of memory", finding->rule);
        return;
    }
    job->action = action;
    fill_job(job, finding);
    sonde__actions_queue_put(actions, job);
}

/* True if the action is for this finding and has not run for its rule. */
static bool applies(sonde_actions *actions, sonde__action *action,
                    const sonde_finding *finding)
{
    const bool is_for = action->rule != NULL
                            ? sonde__strcasecmp(action->rule, finding->rule) == 0
                            : finding->severity >= action->least;

    if (!is_for) {
        return false;
    }
    if (actions->options.each) {
        return true;
    }
    if (sonde__names_find(&action->did, finding->rule) != SONDE__NO_NAME) {
        return false;
    }
    (void)sonde__names_intern(&action->did, finding->rule); /* on failure it runs again */
    return true;
}

void sonde_actions_take(sonde_actions *actions, const sonde_finding *finding)
{
    if (actions == NULL || finding == NULL ||
        (unsigned)finding->severity > SONDE_SEVERITY_ERROR) {
        return;
    }
    for (size_t i = 0; i < actions->count; i++) {
        sonde__action *action = &actions->items[i];
        bool good = true;

        if (!applies(actions, action, finding)) {
            continue;
        }
        switch (action->kind) {
        case SONDE__ACTION_LOG:
            do_log(finding);
            break;
        case SONDE__ACTION_STOP:
            good = do_ask(actions, SONDE_REQUEST_STOP, finding);
            break;
        case SONDE__ACTION_CHECKPOINT:
            good = do_ask(actions, SONDE_REQUEST_CHECKPOINT, finding);
            break;
        case SONDE__ACTION_COMMAND:
        case SONDE__ACTION_WEBHOOK:
            hand_over(actions, action, finding);
            continue; /* counted when it has run */
        }
        (void)atomic_fetch_add(good ? &actions->done : &actions->failed, 1);
    }
}

void sonde_actions_get_stats(sonde_actions *actions, sonde_actions_stats *stats)
{
    if (actions == NULL || stats == NULL) {
        return;
    }
    *stats = (sonde_actions_stats){.done = atomic_load(&actions->done),
                                   .failed = atomic_load(&actions->failed),
                                   .tries = atomic_load(&actions->tries),
                                   .lost = atomic_load(&actions->lost)};
}
