/*
 * damaged_run.h - runs to be damaged: writing one, cutting it and turning its bits, and
 * what can be read afterwards.
 */
#ifndef SONDE_TESTS_TRIAL_DAMAGED_RUN_H
#define SONDE_TESTS_TRIAL_DAMAGED_RUN_H

#include "trial/run_folder.h"

#include "base/macros.h"

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { STEPS = 12 }; /* in three segments of four */

/* Closed and ended, or as a process leaves it that dies. */
static inline void write_run(bool whole)
{
    writer w;

    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    writer_state(&w, whole ? "ended" : "running", 1, "elsewhere", 60, 0);
    known_declare(&w);
    for (int64_t s = 0; s < STEPS; s++) {
        known_step(&w, writer_at(SONDE_MODE_TRAIN, s, s));
        if (s % 4 == 3 && s + 1 < STEPS) {
            writer_rotate(&w);
        }
    }
    if (whole) {
        writer_close(&w);
        writer_end(test_run, "finished", STEPS - 1);
    } else {
        writer_drop(&w);
    }
}

static inline const char *in_run(const char *name)
{
    static char path[WRITER_PATH];

    (void)snprintf(path, sizeof path, "%s/%s", test_run, name);
    return path;
}

static inline size_t size_of(const char *name)
{
    struct stat about;

    assert_int_equal(stat(in_run(name), &about), 0);
    return (size_t)about.st_size;
}

/* Inverts a bit; at counts from the end if it is negative. */
static inline void flip(const char *name, long at)
{
    FILE *file = writer_file(in_run(name), "r+");
    int byte = 0;

    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    byte = fgetc(file);
    assert_true(byte != EOF);
    assert_int_equal(fseek(file, at, at < 0 ? SEEK_END : SEEK_SET), 0);
    assert_true(fputc(byte ^ 16, file) != EOF && fclose(file) == 0);
}

static inline void append(const char *name, const char *text)
{
    FILE *file = writer_file(in_run(name), "a");

    assert_true(fputs(text, file) >= 0 && fclose(file) == 0);
}

static inline void cut(const char *name, size_t size)
{
    assert_int_equal(truncate(in_run(name), (off_t)size), 0);
}

/* --- verify, with its lines ------------------------------------------------------------- */

static char reports[20][400];
static size_t report_count;

static inline void keep_report(void *user, const char *text)
{
    assert_ptr_equal(user, &report_count);
    if (report_count < SONDE_COUNT_OF(reports)) {
        (void)snprintf(reports[report_count], sizeof reports[0], "%s", text);
    }
    report_count++;
}

static inline sonde_verify_report verified(void)
{
    sonde_verify_report report = {0};
    sonde_diag diag = {0};

    report_count = 0;
    assert_int_equal(
        sonde_trial_verify(test_run, &report, keep_report, &report_count, &diag),
        SONDE_OK);
    return report;
}

static inline void assert_reported(const char *text)
{
    for (size_t i = 0; i < report_count && i < SONDE_COUNT_OF(reports); i++) {
        if (strstr(reports[i], text) != NULL) {
            return;
        }
    }
    fail_msg("no report of '%s', but '%s'", text, reports[0]);
}

/* How many of the known values can be read. Every one that can is right. */
static inline int count_readable(sonde_trial *trial)
{
    int readable = 0;

    for (int64_t s = 0; s < STEPS; s++) {
        for (int t = 0; t < KNOWN_TENSORS; t++) {
            const sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, s);
            sonde_view view;
            sonde_diag diag = {0};
            const sonde_err err = sonde_trial_value(
                trial, trial_id(trial, known_names[t]), &at, &view, &diag);

            if (err == SONDE_OK) {
                assert_known(trial, t, s, -1);
                readable++;
            } else {
                assert_true(diag.found[0] != '\0' && diag.where[0] != '\0');
            }
        }
    }
    return readable;
}

/* Opens a run, counts what is readable, and checks that open and verify report the
 * damage. */
static inline void check(int readable, const char *damage, uint64_t damaged)
{
    sonde_trial *trial = trial_opened(test_run);
    sonde_verify_report report;

    assert_int_equal(count_readable(trial), readable);
    if (damage != NULL) {
        assert_damage(trial, damage);
    } else {
        assert_null(sonde_trial_damage(trial, 0));
    }
    sonde_trial_close(trial);
    report = verified();
    assert_int_equal(report.records, readable);
    assert_int_equal(report.damaged, damaged);
}

#endif
