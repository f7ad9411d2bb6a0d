/*
 * rule_check.c - checks a row that a user wrote: its names and texts, its parameters and
 * needs.
 */
#include "rules/rule_file.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/point.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { NAME_MOST = 64, TEXT_MOST = 2000, STATE_MOST = 1 << 28, FIELD = 8 };

/* --- checking ----------------------------------------------------------------------- */

/* A letter, then letters, digits and "_", since file names contain it. */
static bool is_name(const char *text)
{
    size_t length = 0;

    if (text == NULL || !isalpha((unsigned char)text[0])) {
        return false;
    }
    for (; text[length] != '\0' && length <= NAME_MOST; length++) {
        if (!isalnum((unsigned char)text[length]) && text[length] != '_') {
            return false;
        }
    }
    return length <= NAME_MOST;
}

static bool is_text(const char *text)
{
    return text != NULL && strnlen(text, TEXT_MOST + 1) <= TEXT_MOST;
}

static size_t field_size(sonde_rule_kind kind)
{
    return kind == SONDE_RULE_FLAG ? sizeof(bool) : FIELD;
}

static sonde_err bad_row(sonde_diag *diag, const char *path, const sonde_rule *rule,
                         const char *expected, const char *what)
{
    return sonde__fail(diag, SONDE_EINVAL, path, expected, "rule %s: %s",
                       is_name(rule->name) ? rule->name : "?", what);
}

static sonde_err check_param(const sonde_rule *rule, size_t i, const char *path,
                             sonde_diag *diag)
{
    const sonde_rule_param *param = &rule->params[i];
    char what[128];
    const char *expected = NULL;

    if (!is_name(param->name)) {
        expected = "letters, digits and '_'";
        (void)snprintf(what, sizeof what, "parameter %zu has no name", i + 1);
        return bad_row(diag, path, rule, expected, what);
    }
    if ((unsigned)param->kind > SONDE_RULE_COLLECTIONS) {
        expected = "a kind of sonde_rule_kind";
    } else if (!is_text(param->help)) {
        expected = "a help text";
    } else if (param->initial != NULL && !is_text(param->initial)) {
        expected = "a shorter default";
    } else if (!isfinite(param->least) || !isfinite(param->most) ||
               param->least > param->most) {
        expected = "least <= most";
    } else if (param->offset > rule->state_size ||
               rule->state_size - param->offset < field_size(param->kind)) {
        expected = "an offset inside the state";
    } else if (param->offset % field_size(param->kind) != 0) {
        expected = "an offset that is aligned";
    }
    (void)snprintf(what, sizeof what, "parameter '%s' is invalid", param->name);
    for (size_t j = 0; j < i && expected == NULL; j++) {
        if (sonde__strcasecmp(rule->params[j].name, param->name) == 0) {
            expected = "an unused name";
            (void)snprintf(what, sizeof what, "parameter '%s' occurs twice", param->name);
        }
    }
    return expected != NULL ? bad_row(diag, path, rule, expected, what) : SONDE_OK;
}

static sonde_err check_need(const sonde_rule *rule, size_t i, const char *path,
                            sonde_diag *diag)
{
    const sonde_rule_need *need = &rule->needs[i];
    char what[64];

    (void)snprintf(what, sizeof what, "need %zu is invalid", i + 1);
    if (!is_text(need->what)) {
        return bad_row(diag, path, rule, "a text what", what);
    }
    if (need->how == 0 || (need->how & ~(unsigned)SONDE_HOW_ALL) != 0) {
        return bad_row(diag, path, rule, "SONDE_HOW_ bits", what);
    }
    if ((need->how & ~(unsigned)SONDE_HOW_SIGNS) != 0 && rule->observe == NULL) {
        return bad_row(diag, path, rule, "a function observe",
                       "it needs more than vital signs");
    }
    if (sonde_schedule_check(&need->when, NULL) != SONDE_OK ||
        need->when.step_count > 0 || need->when.start != 0 || need->when.end != 0) {
        return bad_row(diag, path, rule, "when with every, first, row and row_every",
                       what);
    }
    return SONDE_OK;
}

static sonde_err check_texts(const sonde_rule *rule, const char *path, sonde_diag *diag)
{
    const struct {
        const char *text, *name;
    } texts[] = {{rule->summary, "summary"},
                 {rule->condition, "condition"},
                 {rule->advice, "advice"}};

    if (!is_name(rule->name)) {
        return bad_row(diag, path, rule, "a letter, then letters, digits and '_'",
                       rule->name != NULL ? "its name is invalid" : "it has no name");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (!is_text(texts[i].text)) {
            char expected[64];

            (void)snprintf(expected, sizeof expected, "a text of at most %d bytes",
                           TEXT_MOST);
            return bad_row(diag, path, rule, expected, texts[i].name);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__rule_check(const sonde_rule *rule, const char *path, sonde_diag *diag)
{
    SONDE__TRY(check_texts(rule, path, diag));
    if (rule->param_count > SONDE__RULE_MOST || rule->need_count > SONDE__RULE_MOST ||
        (rule->param_count > 0 && rule->params == NULL) ||
        (rule->need_count > 0 && rule->needs == NULL)) {
        return bad_row(diag, path, rule, "at most 64 of each", "parameters or needs");
    }
    if (rule->state_size > STATE_MOST || rule->tensor_size > STATE_MOST) {
        return bad_row(diag, path, rule, "at most 256 MB", "the size of its state");
    }
    if ((rule->modes >> SONDE_MODE_COUNT) != 0) {
        return bad_row(diag, path, rule, "a bit for each mode", "its modes");
    }
    if (rule->wants == NULL) {
        return bad_row(diag, path, rule, "a function wants", "it selects no tensors");
    }
    for (size_t i = 0; i < rule->param_count; i++) {
        SONDE__TRY(check_param(rule, i, path, diag));
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        SONDE__TRY(check_need(rule, i, path, diag));
    }
    return SONDE_OK;
}
