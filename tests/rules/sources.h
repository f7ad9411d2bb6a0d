/*
 * sources.h - one run judged in its process, live and afterwards: what was found, to the
 * letter.
 */
#ifndef SONDE_TESTS_RULES_SOURCES_H
#define SONDE_TESTS_RULES_SOURCES_H

#include "rules/stream.h"

#include <sonde/rules.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SOURCES_LINES = 256 };

static inline void ok(sonde_err err, const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    if (err != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(diag, line, sizeof line));
    }
}

/* The run by these rules, which are returned; nothing in it is damaged. */
static inline sonde_rules *sources_judge(sonde_rules *rules, const char *run, bool follow)
{
    const sonde_rules_pace pace = {.follow = follow, .stall = 60};
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};

    ok(sonde_trial_open(run, NULL, &trial, &diag), &diag);
    ok(sonde_rules_judge(rules, trial, &pace, &diag), &diag);
    if (sonde_trial_damage(trial, 0) != NULL) {
        fail_msg("damaged: %s", sonde_trial_damage(trial, 0));
    }
    sonde_trial_close(trial);
    return rules;
}

/* --- comparing -------------------------------------------------------------------- */

typedef struct sources_lines {
    char text[SOURCES_LINES][2048];
    size_t count;
} sources_lines;

static inline int sources_by_text(const void *a, const void *b)
{
    return strcmp(a, b);
}

/* Findings, and with accounts how the rules got on; forgets the rules. */
static inline void sources_take(sonde_rules *rules, bool accounts, sources_lines *out)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);

    assert_true(count + sonde_rules_count(rules) <= SOURCES_LINES);
    for (size_t i = 0; i < count; i++) {
        assert_true(sonde_finding_json(&all[i], out->text[i], sizeof out->text[i]) <
                    sizeof out->text[i]);
    }
    /* What comes first within a step is the source's. */
    qsort(out->text, count, sizeof out->text[0], sources_by_text);
    for (size_t i = 0; accounts && i < sonde_rules_count(rules); i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        (void)snprintf(out->text[count++], sizeof out->text[0], "%s %zu %llu %zu %d %s",
                       account.rule->name, account.tensors,
                       (unsigned long long)account.steps, account.findings,
                       account.judged, account.lacked);
    }
    out->count = count;
    sonde_rules_destroy(rules);
}

/* The same findings, at least so many of them; forgets both. */
static inline void sources_same(sonde_rules *a, sonde_rules *b, bool accounts,
                                size_t least)
{
    static sources_lines left, right;

    sources_take(a, accounts, &left);
    sources_take(b, accounts, &right);
    for (size_t i = 0; i < left.count && i < right.count; i++) {
        assert_string_equal(left.text[i], right.text[i]);
    }
    assert_int_equal(left.count, right.count);
    assert_true(left.count >= least);
}

#endif
