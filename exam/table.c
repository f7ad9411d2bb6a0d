/*
 * table.c - found or not, where and when; false alarms; bounds after Wilson (1927).
 */
#include "faults.h"

#include "support.h"

#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 512, MOST_TIMES = 64, MOST_RULES = 64 };

typedef struct tally {
    const faults_row *row;
    int planted, found, localised, late;
    double steps[MOST_TIMES];
    int times;
} tally;

typedef struct rule_tally {
    const char *rule;
    int found, sole; /* faults that it found; of them by no other rule */
    int alarms;      /* in clean runs */
} rule_tally;

static tally tallies[MOST_ROWS];
static rule_tally rules_seen[MOST_RULES];
static int rows, rule_count, clean_runs, clean_alarmed, clean_noted;
extern bool faults_verbose;
bool faults_verbose;

/* --- counting --------------------------------------------------------------------- */

static rule_tally *of_rule(const char *name)
{
    for (int i = 0; i < rule_count; i++) {
        if (strcmp(rules_seen[i].rule, name) == 0) {
            return &rules_seen[i];
        }
    }
    if (rule_count == MOST_RULES) {
        return &rules_seen[0];
    }
    for (size_t i = 0; sonde_rule_at_index(i) != NULL; i++) {
        if (strcmp(sonde_rule_at_index(i)->name, name) == 0) {
            rules_seen[rule_count] = (rule_tally){.rule = sonde_rule_at_index(i)->name};
        }
    }
    return &rules_seen[rule_count++];
}

static tally *of_row(const faults_row *row)
{
    for (int i = 0; i < rows; i++) {
        if (tallies[i].row == row) {
            return &tallies[i];
        }
    }
    if (rows == MOST_ROWS) {
        (void)fprintf(stderr, "error: too many rows\n");
        exit(2);
    }
    tallies[rows].row = row;
    return &tallies[rows++];
}

static bool names(const char *patterns, const char *tensor)
{
    char copy[512], *rest = NULL;

    (void)snprintf(copy, sizeof copy, "%s", patterns);
    for (const char *one = strtok_r(copy, " ", &rest); one != NULL;
         one = strtok_r(NULL, " ", &rest)) {
        if (strcmp(one, "-") == 0 ? tensor[0] == '\0' : fnmatch(one, tensor, 0) == 0) {
            return true;
        }
    }
    return false;
}

static void tell(const char *what, uint64_t seed, double severity, sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);

    (void)fprintf(stderr, "# %s, seed %llu, severity %g: %zu findings\n", what,
                  (unsigned long long)seed, severity, count);
    for (size_t i = 0; i < count; i++) {
        (void)fprintf(stderr,
                      "    step %lld (%s %lld): %s: %s '%s': %s %.4g > %.4g: %s\n",
                      (long long)all[i].step, sonde_mode_name(all[i].mode),
                      (long long)all[i].mode_step, sonde_severity_name(all[i].severity),
                      all[i].rule, all[i].tensor, all[i].statistic, all[i].value,
                      all[i].threshold, all[i].message);
    }
}

void faults_tally_fault(const faults_row *row, uint64_t seed, double severity,
                        sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);
    tally *entry = of_row(row);
    const sonde_finding *first = NULL;
    bool there = false;

    entry->planted++;
    for (size_t i = 0; i < count; i++) {
        for (int k = 0; k < MOST_ANSWERS && row->answers[k].rule != NULL; k++) {
            const bool right = strcmp(row->answers[k].rule, all[i].rule) == 0 &&
                               all[i].step >= row->shows;

            if (right && all[i].step <= row->shows + row->limit) {
                first = first == NULL || all[i].step < first->step ? &all[i] : first;
                there = there || names(row->answers[k].tensors, all[i].tensor);
            } else if (right) {
                entry->late++;
            }
        }
    }
    entry->found += first != NULL;
    entry->localised += there;
    if (first != NULL && entry->times < MOST_TIMES) {
        entry->steps[entry->times++] = (double)(first->step - row->shows);
        of_rule(first->rule)->found++;
    }
    if (faults_verbose || first == NULL || !there) {
        char what[128];

        (void)snprintf(what, sizeof what, "%s: fault %d, %s, %s",
                       first == NULL ? "MISSED"
                       : !there      ? "ELSEWHERE"
                                     : "found",
                       row->number, row->what, row->net);
        tell(what, seed, severity, rules);
    }
}

void faults_tally_clean(const faults_clean *row, uint64_t seed, sonde_rules *rules)
{
    size_t count = 0;
    const sonde_finding *all = sonde_rules_findings(rules, &count);
    bool alarmed = false;

    for (size_t i = 0; i < count; i++) {
        if (all[i].severity != SONDE_SEVERITY_NOTE) {
            of_rule(all[i].rule)->alarms++;
            alarmed = true;
        } else {
            clean_noted++;
        }
    }
    clean_runs++;
    clean_alarmed += alarmed;
    if (count > 0) {
        tell(row->what, seed, 0.0, rules);
    }
}

/* --- printing --------------------------------------------------------------------- */

typedef struct bounds {
    double low, high;
} bounds;

/* Of k out of n, 95 %, in percent. */
static bounds wilson(int k, int n)
{
    const double z = 1.959964, p = n > 0 ? (double)k / n : 0.0, m = n > 0 ? n : 1;
    const double center = p + z * z / (2 * m), below = 1 + z * z / m;
    const double spread = z * sqrt(p * (1 - p) / m + z * z / (4 * m * m));

    return (bounds){100 * fmax(0.0, (center - spread) / below),
                    100 * fmin(1.0, (center + spread) / below)};
}

static int print_line(bool markdown, const char *a, const char *b, const char *c,
                      int found, int localised, int planted, double median, int limit)
{
    const bounds f = wilson(found, planted), l = wilson(localised, planted);

    return printf(
        markdown ? "| %s | %s | %s | %d / %d (%.0f–%.0f %%) | %d (%.0f–%.0f %%) | "
                   "%.3g of %d |\n"
                 : "%-3s %-34s %-18s found %3d of %3d (%3.0f-%3.0f %%)  right tensor "
                   "%3d (%3.0f-%3.0f %%)  after %.3g of %d\n",
        a, b, c, found, planted, f.low, f.high, localised, l.low, l.high, median, limit);
}

/* Rows of one fault together, or each. */
static void print_faults(bool markdown, bool every_row)
{
    for (int number = 1; number <= 22; number++) {
        double steps[MOST_ROWS];
        int planted = 0, found = 0, localised = 0, limit = 0;
        size_t times = 0;
        char label[8];

        (void)snprintf(label, sizeof label, "%d", number);
        for (int i = 0; i < rows; i++) {
            tally *entry = &tallies[i];

            if (entry->row->number != number) {
                continue;
            }
            planted += entry->planted;
            found += entry->found;
            localised += entry->localised;
            limit = entry->row->limit > limit ? entry->row->limit : limit;
            for (int k = 0; k < entry->times && times < MOST_ROWS; k++) {
                steps[times++] = entry->steps[k];
            }
            if (every_row) {
                const double median =
                    entry->times > 0
                        ? bench_quantile(entry->steps, (size_t)entry->times, 0.5)
                        : (double)NAN;

                (void)print_line(markdown, label, entry->row->what, entry->row->net,
                                 entry->found, entry->localised, entry->planted, median,
                                 entry->row->limit);
            }
        }
        if (planted > 0 && !every_row) {
            (void)print_line(markdown, label, "all", "", found, localised, planted,
                             times > 0 ? bench_quantile(steps, times, 0.5) : (double)NAN,
                             limit);
        }
    }
}

static void print_rules(bool markdown)
{
    (void)printf(markdown
                     ? "\n| rule | found first | clean runs alarmed |\n|---|---|---|\n"
                     : "\n");
    for (int i = 0; i < rule_count; i++) {
        (void)printf(markdown ? "| %s | %d | %d |\n"
                              : "%-26s found first %4d, alarms in clean runs %d\n",
                     rules_seen[i].rule, rules_seen[i].found, rules_seen[i].alarms);
    }
}

int faults_table(bool markdown, bool every_row)
{
    int planted = 0, found = 0, localised = 0, missed = 0;
    bounds f, l, c;

    if (markdown) {
        (void)printf("| # | fault | network | found | right tensor | steps (median of "
                     "limit) |\n|---|---|---|---|---|---|\n");
    }
    print_faults(markdown, every_row);
    print_rules(markdown);
    for (int i = 0; i < rows; i++) {
        planted += tallies[i].planted;
        found += tallies[i].found;
        localised += tallies[i].localised;
    }
    f = wilson(found, planted);
    l = wilson(localised, planted);
    c = wilson(clean_alarmed, clean_runs);
    (void)printf(
        "\n%d of %d faults found in time (%.1f-%.1f %%), %d at the right tensor "
        "(%.1f-%.1f %%); %d of %d clean runs alarmed (at most %.1f %%), %d notes.\n",
        found, planted, f.low, f.high, localised, l.low, l.high, clean_alarmed,
        clean_runs, c.high, clean_noted);
    missed += found < 0.95 * planted;
    missed += localised < 0.90 * planted;
    missed += clean_alarmed > 0;
    if (!markdown) {
        bench_row("faults_found", planted > 0 ? 100.0 * found / planted : 0.0, "%",
                  ">=95");
        bench_row("faults_localised", planted > 0 ? 100.0 * localised / planted : 0.0,
                  "%", ">=90");
        bench_row("faults_clean_runs", clean_runs, "runs", "");
        bench_row("faults_clean_runs_alarmed", clean_alarmed, "runs", "<=0");
    }
    return missed;
}
