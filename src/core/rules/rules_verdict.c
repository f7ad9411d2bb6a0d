/*
 * rules_verdict.c - what the findings mean together: one of four words, the earliest cause, how
 * many findings follow from it, and which rules had no data.
 */
#include "rules/engine.h"
#include "base/macros.h"
#include "base/number.h"

#include <sonde/rules.h>
#include <sonde/text.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

const char *sonde_verdict_name(sonde_verdict_word word)
{
    static const char *const names[] = {"not judged", "nothing found", "doubtful",
                                        "wrong"};
    const size_t i = (size_t)word;

    return i < SONDE_COUNT_OF(names) ? names[i] : "?";
}

/* --- texts -------------------------------------------------------------------------- */

/* Stores the text, and frees it; returns its length. */
static size_t store(sonde_text *text, char *buf, size_t size)
{
    const size_t length = text->failed ? 0 : text->length;

    if (size > 0) {
        (void)snprintf(buf, size, "%s", length > 0 ? text->data : "");
    }
    sonde_text_fini(text);
    return length;
}

static void add_when(sonde_text *text, const sonde_finding *finding)
{
    static const char *const modes[] = {"training", "evaluation", "prediction"};

    if ((size_t)finding->mode < SONDE_COUNT_OF(modes) &&
        finding->mode_step != finding->step) {
        sonde_text_format(text, "%s step %" PRId64 " (step %" PRId64 ")",
                          modes[finding->mode], finding->mode_step, finding->step);
    } else {
        sonde_text_format(text, "step %" PRId64, finding->step);
    }
}

size_t sonde_finding_when(const sonde_finding *finding, char *buf, size_t size)
{
    if (finding == NULL || buf == NULL) {
        return 0;
    }
    sonde_text text = {0};

    add_when(&text, finding);
    return store(&text, buf, size);
}

const char *sonde_finding_where(const sonde_finding *finding, char *buf, size_t size)
{
    const bool known =
        finding != NULL && finding->place.file != NULL && finding->place.file[0] != '\0';
    char line[4200] = "";

    if (buf == NULL || size == 0) {
        return "";
    }
    if (known) {
        (void)sonde_program_place_text(NULL, finding->place, line, sizeof line);
    }
    (void)sonde__snprintf(buf, size, known ? " (%s)" : "%s", line);
    return buf;
}

/* "1 rule", "18,750 steps" */
static void add_count(sonde_text *text, uint64_t count, const char *what)
{
    char digits[32];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, count);

    for (int i = 0; i < length; i++) {
        sonde_text_add(text, i > 0 && (length - i) % 3 == 0 ? "," : "");
        sonde_text_put(text, digits + i, 1);
    }
    sonde_text_format(text, " %s%s", what, count == 1 ? "" : "s");
}

static void add_lacking(sonde_text *text, const sonde_verdict *verdict)
{
    if (verdict->lacking > 0) {
        sonde_text_add(text, "; ");
        add_count(text, verdict->lacking, "rule");
        sonde_text_add(text, " had no data");
    }
    if (verdict->lacking > 0 && verdict->lacked[0] != '\0') {
        sonde_text_format(text, " (%s)", verdict->lacked);
    }
}

/* "; also 2 errors, 1 note": findings that stand beside the headline and do not follow. */
static void add_others(sonde_text *text, const sonde_verdict *verdict)
{
    const char *between = "; also ";

    for (int i = SONDE_SEVERITY_ERROR; i >= SONDE_SEVERITY_NOTE; i--) {
        if (verdict->others[i] > 0) {
            sonde_text_add(text, between);
            add_count(text, verdict->others[i], sonde_severity_name((sonde_severity)i));
            between = ", ";
        }
    }
}

static void add_headline(sonde_text *text, const sonde_verdict *verdict)
{
    const sonde_finding *first = verdict->headline;
    const size_t length = strlen(first->message);
    char where[1024];
    const int sentence = (int)length - (length > 0 && first->message[length - 1] == '.');

    sonde_text_format(text, "%s%s%s%s at ", first->rule,
                      first->tensor[0] != '\0' ? " in " : "", first->tensor,
                      sonde_finding_where(first, where, sizeof where));
    add_when(text, first);
    sonde_text_format(text, ": %.*s", sentence, first->message);
    if (verdict->after > 0) {
        sonde_text_add(text, "; ");
        add_count(text, verdict->after, "more finding");
        sonde_text_format(text, " follow%s from it", verdict->after == 1 ? "s" : "");
    }
    add_others(text, verdict);
}

static void add_nothing(sonde_text *text, const sonde_verdict *verdict)
{
    sonde_text_add(text, " by ");
    add_count(text, verdict->rules, "rule");
    sonde_text_add(text, " in ");
    add_count(text, verdict->steps, "step");
    if (verdict->steps > 0) {
        sonde_text_format(text, ", %" PRId64 " to %" PRId64, verdict->first_step,
                          verdict->last_step);
    }
    if (verdict->resolved > 0) {
        sonde_text_add(text, "; ");
        add_count(text, verdict->resolved, "earlier finding");
        sonde_text_format(text, " %s resolved", verdict->resolved == 1 ? "is" : "are");
    }
    if (verdict->free_losses != NULL && verdict->free_losses[0] != '\0') {
        sonde_text_format(text, "; losses need not fall (%s)", verdict->free_losses);
    }
    add_lacking(text, verdict);
}

size_t sonde_verdict_text(const sonde_verdict *verdict, char *buf, size_t size)
{
    if (verdict == NULL || buf == NULL) {
        return 0;
    }
    sonde_text text = {0};

    sonde_text_add(&text, sonde_verdict_name(verdict->word));
    if (verdict->headline != NULL) {
        sonde_text_add(&text, ": ");
        add_headline(&text, verdict);
    } else if (verdict->word == SONDE_VERDICT_NOTHING) {
        add_nothing(&text, verdict);
    } else {
        sonde_text_add(&text, ": no rule had the data it needs");
        sonde_text_format(&text, verdict->lacked[0] != '\0' ? " (%s)" : "%s",
                          verdict->lacked);
    }
    return store(&text, buf, size);
}

/* --- what rules lacked -------------------------------------------------------------- */

enum { REASONS = 32, TOLD = 3, REASON = 80 };

typedef struct reason {
    char text[REASON];
    size_t rules;
} reason;

/* The first thing that a rule lacked, shortly: "no labels". */
static void take_reason(reason *reasons, const char *lacked)
{
    static const char start[] = "the run has ";
    const char *text = strncmp(lacked, start, sizeof start - 1) == 0
                           ? lacked + sizeof start - 1
                           : lacked;
    const size_t length = strcspn(text, ";,:(");
    size_t i = 0;

    if (length == 0 || length >= REASON) {
        return;
    }
    while (i < REASONS && reasons[i].rules > 0 &&
           (strncmp(reasons[i].text, text, length) != 0 ||
            reasons[i].text[length] != '\0')) {
        i++;
    }
    if (i < REASONS) {
        memcpy(reasons[i].text, text, length);
        reasons[i].text[length] = '\0';
        reasons[i].rules++;
    }
}

/* The most frequent reasons, and that there are more. */
static void tell_reasons(reason *reasons, char *buf, size_t size)
{
    size_t used = 0;

    buf[0] = '\0';
    for (int told = 0; told <= TOLD; told++) {
        size_t best = 0;

        for (size_t i = 1; i < REASONS; i++) {
            best = reasons[i].rules > reasons[best].rules ? i : best;
        }
        if (reasons[best].rules == 0) {
            return;
        }
        const int length = snprintf(buf + used, size - used, "%s%s", told > 0 ? ", " : "",
                                    told == TOLD ? "..." : reasons[best].text);
        used = SONDE_MIN(used + (size_t)SONDE_MAX(length, 0), size - 1);
        reasons[best].rules = 0;
    }
}

static void count_rules(const sonde_rules *rules, sonde_verdict *verdict)
{
    reason reasons[REASONS] = {0};

    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_account account;

        sonde_rules_account(rules, i, &account);
        account.judged = account.judged && account.steps > 0;
        verdict->rules += account.judged;
        if (!account.judged) {
            verdict->lacking++;
            take_reason(reasons, account.lacked);
        }
    }
    tell_reasons(reasons, verdict->lacked, sizeof verdict->lacked);
}

/* --- findings ----------------------------------------------------------------------- */

static void count_findings(const sonde_rules *rules, sonde_verdict *verdict)
{
    for (size_t i = 0; i < rules->found_count; i++) {
        const sonde_finding *finding = &rules->found[i]->finding;

        if (finding->resolved_step > 0) {
            verdict->resolved++;
            continue;
        }
        verdict->standing[finding->severity]++;
        verdict->following += finding->because_of != 0;
        if (finding == verdict->headline) {
            continue;
        }
        if (finding->because_of != 0 && finding->because_of == verdict->headline->id) {
            verdict->after++;
        } else if (finding->because_of == 0) {
            verdict->others[finding->severity]++;
        }
    }
}

sonde_verdict sonde_rules_verdict(const sonde_rules *rules)
{
    sonde_verdict verdict = {.free_losses = ""};

    if (rules == NULL) {
        return verdict;
    }
    if (rules->progress.why != NULL) {
        verdict.free_losses = rules->progress.why;
    }
    verdict.steps = rules->steps;
    (void)sonde_rules_window(rules, &verdict.first_step, &verdict.last_step);
    count_rules(rules, &verdict);
    verdict.headline = sonde__rules_headline(rules);
    count_findings(rules, &verdict);
    verdict.word = verdict.standing[SONDE_SEVERITY_ERROR] > 0 ? SONDE_VERDICT_WRONG
                   : verdict.headline != NULL                 ? SONDE_VERDICT_DOUBTFUL
                   : verdict.rules > 0                        ? SONDE_VERDICT_NOTHING
                                                              : SONDE_VERDICT_NOT_JUDGED;
    return verdict;
}
