/*
 * acting.c - findings as lines, and what a command does about them.
 */
#include "cli/judge.h"

#include <sonde/log.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

int cli_sentence(const char *text)
{
    const size_t length = strlen(text);

    return (int)length - (length > 0 && text[length - 1] == '.');
}

const char *cli_when_text(int64_t step, int epoch, char buf[64])
{
    const int used = snprintf(buf, 64, "step %lld", (long long)step);

    if (epoch > 0) {
        (void)snprintf(buf + used, 64 - (size_t)used, " (epoch %d)", epoch);
    }
    return buf;
}

void cli_print_finding(FILE *stream, const sonde_finding *finding, int epoch)
{
    char when[64];

    (void)fprintf(stream, "%s: %s: %s%s%s: %s", cli_when_text(finding->step, epoch, when),
                  sonde_severity_name(finding->severity), finding->rule,
                  finding->tensor[0] != '\0' ? ": " : "", finding->tensor,
                  finding->message);
    if (finding->steps > 1) {
        (void)fprintf(stream, " At %llu steps, up to %lld.",
                      (unsigned long long)finding->steps, (long long)finding->last_step);
    }
    (void)fprintf(stream, " %s\n", finding->advice);
    (void)fflush(stream);
}

static sonde_err add_stop(sonde_actions *actions, const char *when, sonde_diag *diag)
{
    char text[256];

    if (strchr(when, '=') != NULL || when[0] == '\0' || strlen(when) > 200) {
        *diag = (sonde_diag){.err = SONDE_EINVAL,
                             .where = "--stop-on",
                             .expected = "a rule, error, warning or any"};
        (void)snprintf(diag->found, sizeof diag->found, "'%.200s'", when);
        return SONDE_EINVAL;
    }
    (void)snprintf(text, sizeof text, "%s=stop", when);
    return sonde_actions_add(actions, text, diag);
}

static sonde_err add_all(sonde_actions *actions, const cli_acting *asked,
                         const cli_list *stop_on, const sonde_nn_job_rules *listed,
                         sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; stop_on != NULL && i < stop_on->count && err == SONDE_OK; i++) {
        err = add_stop(actions, stop_on->text[i], diag);
    }
    for (size_t i = 0; i < asked->on_finding.count && err == SONDE_OK; i++) {
        err = sonde_actions_add(actions, asked->on_finding.text[i], diag);
    }
    for (size_t i = 0; listed != NULL && i < listed->stop_on.count && err == SONDE_OK;
         i++) {
        err = add_stop(actions, listed->stop_on.text[i], diag);
    }
    for (size_t i = 0; listed != NULL && i < listed->on_finding.count && err == SONDE_OK;
         i++) {
        err = sonde_actions_add(actions, listed->on_finding.text[i], diag);
    }
    return err;
}

sonde_err cli_actions_open(const cli_acting *asked, const cli_list *stop_on,
                           const sonde_nn_job_rules *listed, sonde_control *control,
                           const char *run, sonde_actions **out, sonde_diag *diag)
{
    const double seconds = isnan(asked->timeout) ? 0.0 : asked->timeout;
    const sonde_actions_options options = {.control = control,
                                           .run = run,
                                           .each = asked->each ||
                                                   (listed != NULL && listed->each),
                                           .command_seconds = seconds,
                                           .webhook_seconds = seconds};
    sonde_actions *actions = NULL;
    sonde_err err = SONDE_OK;

    if (!isnan(asked->timeout) && !(seconds > 0.0 && seconds <= 86400.0)) {
        *diag = (sonde_diag){.err = SONDE_EINVAL,
                             .where = "--action-timeout",
                             .expected = "seconds, up to a day"};
        (void)snprintf(diag->found, sizeof diag->found, "%g", seconds);
        return SONDE_EINVAL;
    }
    err = sonde_actions_create(&options, &actions, diag);
    if (err == SONDE_OK) {
        err = add_all(actions, asked, stop_on, listed, diag);
    }
    if (err != SONDE_OK || sonde_actions_count(actions) == 0) {
        sonde_actions_destroy(actions);
        return err;
    }
    if (getenv("SONDE_LOG_LEVEL") == NULL) {
        sonde_log_set_level(SONDE_LOG_INFO); /* each action says that it was done */
    }
    *out = actions;
    return SONDE_OK;
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
