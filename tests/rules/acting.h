/*
 * acting.h - what the tests of actions share: the log as a text, a folder, findings,
 * actions.
 */
#ifndef SONDE_TESTS_RULES_ACTING_H
#define SONDE_TESTS_RULES_ACTING_H

#include "cmocka_all.h"

#include <sonde/error.h>
#include <sonde/actions.h>
#include <sonde/log.h>

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* --- the log ------------------------------------------------------------------------ */

static char log_text[1 << 16]; /* written under the log's own lock */

static inline void keep_log(void *user, sonde_log_level level, const char *room,
                            const char *message)
{
    const size_t used = strlen(log_text);

    (void)user;
    (void)level;
    (void)snprintf(log_text + used, sizeof log_text - used, "[%s] %s\n", room, message);
}

static inline void expect_logged(const char *text)
{
    if (strstr(log_text, text) == NULL) {
        fail_msg("'%s' is not in the log: %s", text, log_text);
    }
}

/* --- a folder, findings --------------------------------------------------------------- */

static char folder[64];

static inline int set_up(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde_actions_XXXXXX");
    log_text[0] = '\0';
    sonde_log_set_level(SONDE_LOG_INFO);
    sonde_log_set_sink(keep_log, NULL);
    return mkdtemp(folder) == NULL ? -1 : 0;
}

static inline int tear_down(void **state)
{
    char command[128];

    (void)state;
    sonde_log_set_sink(NULL, NULL);
    (void)snprintf(command, sizeof command, "rm -rf '%s'", folder);
    return system(command);
}

/* A file of the folder, as a text. */
static inline const char *content(const char *name)
{
    static char text[1 << 15];
    char path[128];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "r");
    if (file == NULL) {
        return "";
    }
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    (void)fclose(file);
    return text;
}

static inline sonde_finding finding_of(const char *rule, sonde_severity severity)
{
    return (sonde_finding){.id = 0x1234,
                           .rule = rule,
                           .severity = severity,
                           .tensor = "fc1.weight",
                           .mode = SONDE_MODE_TRAIN,
                           .step = 412,
                           .mode_step = 412,
                           .last_step = 412,
                           .steps = 1,
                           .statistic = "nonfinite",
                           .value = 3.0,
                           .threshold = 0.0,
                           .message = "It is \"bad\"; $(false) `x`.",
                           .advice = "Mend it."};
}

static inline void take(sonde_actions *actions, const char *rule, sonde_severity severity)
{
    const sonde_finding finding = finding_of(rule, severity);

    sonde_actions_take(actions, &finding);
}

static inline sonde_actions *actions_of(const sonde_actions_options *options,
                                        const char *text)
{
    sonde_actions *actions = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_actions_create(options, &actions, &diag), SONDE_OK);
    if (sonde_actions_add(actions, text, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return actions;
}

/* Waits for the end, and counts. */
static inline sonde_actions_stats end_of(sonde_actions *actions)
{
    sonde_actions_stats stats;

    (void)sonde_actions_finish(actions, 20.0);
    sonde_actions_get_stats(actions, &stats);
    sonde_actions_destroy(actions);
    return stats;
}

#endif
