/*
 * user.h - rules of files: where the tests' plug-ins lie, and scripts that are written.
 */
#ifndef SONDE_TESTS_RULES_USER_H
#define SONDE_TESTS_RULES_USER_H

#include "rules/stream.h"

#include <unistd.h>

/* "FOLDER/NAME.so:PARAMETERS"; the parameters may be NULL. */
static inline const char *user_plugin(const char *name, const char *parameters, char *buf,
                                      size_t size)
{
    const char *folder = getenv("SONDE_TEST_PLUGINS");

    if (folder == NULL) {
        fail_msg("SONDE_TEST_PLUGINS is not set");
    }
    (void)snprintf(buf, size, "%s/%s.so%s%s", folder, name, parameters != NULL ? ":" : "",
                   parameters != NULL ? parameters : "");
    return buf;
}

static inline void user_write(const char *path, const char *text)
{
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fputs(text, file) < 0, 0);
    assert_int_equal(fclose(file), 0);
}

/* A rule that cannot be added, and why. where and found need only hold these texts. */
static inline void user_refused(const char *text, sonde_err err, const char *where,
                                const char *found)
{
    sonde_rules *rules = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, text, &diag), err);
    (void)sonde_diag_line(&diag, line, sizeof line);
    if (strstr(diag.where, where) == NULL || strstr(line, found) == NULL) {
        fail_msg("%s: '%s' does not say '%s' of '%s'", text, line, found, where);
    }
    assert_int_equal(sonde_rules_count(rules), 0);
    sonde_rules_destroy(rules);
}

/* Adds a rule that stands in for one that judges beside it. */
static inline void user_add(stream *s, const char *text)
{
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_rules_add(s->rules, text, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
}

#endif
