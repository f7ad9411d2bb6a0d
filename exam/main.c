/*
 * main.c - plants faults in networks that really train, and judges them and clean runs
 * with all default rules.
 *
 *     faults [--short] [--seeds N] [--first SEED] [--only NUMBER] [--clean | --planted]
 *            [--record FOLDER [--every N | --defaults]] [--rows] [--markdown] [--verbose]
 *
 *   --short     one seed and one severity of each fault, some clean runs: for the tests
 *   --seeds     how many (5); --first: the first of them (1)
 *   --only      one fault of the table
 *   --record    there, every N-th run (8) is recorded as well and judged anew; the findings and
 *               their ids have to be the same
 *   --defaults  every run is recorded (--record) as a hook does by default, and the findings
 *               are those of the recording
 *   --rows      a line a row instead of a line a fault
 *   --verbose   every finding of every run, not only of those that were missed
 *
 * Ends with status 1 if a bar is missed: 95 % found, 90 % at the right tensor, no clean
 * run alarmed, nothing that is found in one way only. Notes do not count as alarms.
 */
#include "faults.h"
#include "record.h"

#include "support.h"

#include "base/clock.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

extern bool faults_verbose;

typedef struct arguments {
    bool quick, clean, planted, every_row, markdown;
    long seeds, first, only, every;
    const char *record;
} arguments;

static long runs;
static size_t apart, recorded;

static _Noreturn void usage(const char *what)
{
    (void)fprintf(stderr, "error: %s: see exam/main.c\n", what);
    exit(2);
}

static arguments read_arguments(int argc, char **argv)
{
    arguments a = {.clean = true, .planted = true, .seeds = 5, .first = 1, .every = 8};

    for (int i = 1; i < argc; i++) {
        const char *value = i + 1 < argc ? argv[i + 1] : NULL;

        if (strcmp(argv[i], "--short") == 0) {
            a.quick = true;
        } else if (strcmp(argv[i], "--clean") == 0) {
            a.planted = false;
        } else if (strcmp(argv[i], "--planted") == 0) {
            a.clean = false;
        } else if (strcmp(argv[i], "--defaults") == 0) {
            faults_record_defaults = true;
        } else if (strcmp(argv[i], "--rows") == 0) {
            a.every_row = true;
        } else if (strcmp(argv[i], "--markdown") == 0) {
            a.markdown = true;
        } else if (strcmp(argv[i], "--verbose") == 0) {
            faults_verbose = true;
        } else if (value != NULL && strcmp(argv[i], "--seeds") == 0) {
            a.seeds = strtol(argv[++i], NULL, 10);
        } else if (value != NULL && strcmp(argv[i], "--first") == 0) {
            a.first = strtol(argv[++i], NULL, 10);
        } else if (value != NULL && strcmp(argv[i], "--only") == 0) {
            a.only = strtol(argv[++i], NULL, 10);
        } else if (value != NULL && strcmp(argv[i], "--record") == 0) {
            a.record = argv[++i];
        } else if (value != NULL && strcmp(argv[i], "--every") == 0) {
            a.every = strtol(argv[++i], NULL, 10);
        } else {
            usage(argv[i]);
        }
    }
    if (a.every < 1) {
        usage("--every");
    }
    return a;
}

/* The folder of this run, or NULL if it is none of those that are recorded. */
static const char *folder(const arguments *a, char *path, size_t size)
{
    if (a->record == NULL || (runs++ % a->every != 0 && !faults_record_defaults)) {
        return NULL;
    }
    (void)snprintf(path, size, "%s/faults-run", a->record);
    return path;
}

/* The rules whose findings count. */
static sonde_rules *judged(const char *path, sonde_rules *rules)
{
    if (path == NULL || !faults_record_defaults) {
        return rules;
    }
    sonde_rules_destroy(rules);
    return faults_record_judge(path);
}

static void compare(const char *path, sonde_rules *rules)
{
    if (path != NULL && faults_record_defaults) {
        faults_record_remove(path);
        return;
    }
    if (path != NULL) {
        recorded++;
        apart += faults_record_compare(path, rules);
        faults_record_remove(path);
    }
}

static void plant(const arguments *a, const faults_row *row)
{
    const int most = a->quick ? 1 : MOST_SEVERITIES;

    for (int k = 0; k < most && (k == 0 || row->severity[k] > 0.0); k++) {
        for (long seed = a->first; seed < a->first + (a->quick ? 1 : a->seeds); seed++) {
            char path[512];
            const char *record = folder(a, path, sizeof path);
            sonde_rules *rules = NULL;

            row->run(row, (uint64_t)seed, row->severity[k], record, &rules);
            rules = judged(record, rules);
            faults_tally_fault(row, (uint64_t)seed, row->severity[k], rules);
            compare(record, rules);
            sonde_rules_destroy(rules);
        }
    }
}

static void train_clean(const arguments *a, const faults_clean *row)
{
    for (long seed = a->first; seed < a->first + (a->quick ? 1 : a->seeds); seed++) {
        char path[512];
        const char *record = folder(a, path, sizeof path);
        sonde_rules *rules = NULL;

        row->run(row->variant, (uint64_t)seed, record, &rules);
        rules = judged(record, rules);
        faults_tally_clean(row, (uint64_t)seed, rules);
        compare(record, rules);
        sonde_rules_destroy(rules);
    }
}

static void plant_all(const arguments *a, const faults_row *rows, size_t count)
{
    for (size_t i = 0; i < count && a->planted; i++) {
        if (a->only == 0 || a->only == rows[i].number) {
            plant(a, &rows[i]);
        }
    }
}

int main(int argc, char **argv)
{
    const arguments a = read_arguments(argc, argv);
    const double begun = sonde__now();
    int missed = 0;

    plant_all(&a, faults_engine_rows, faults_engine_row_count);
    plant_all(&a, faults_loop_rows, faults_loop_row_count);
    for (size_t i = 0; i < faults_clean_row_count && a.clean && a.only == 0; i++) {
        if (!a.quick || i % 4 == 0) {
            train_clean(&a, &faults_clean_rows[i]);
        }
    }
    missed = faults_table(a.markdown, a.every_row);
    if (!a.markdown) {
        bench_row("faults_runs_judged_twice", (double)recorded, "runs", "");
        bench_row("faults_findings_apart", (double)apart, "findings", "<=0");
        bench_row("faults_seconds", sonde__now() - begun, "s", "<=1200");
    }
    return missed > 0 || apart > 0;
}
