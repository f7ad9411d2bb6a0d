/*
 * run_folder.h - a run directory for fuzzers of its files: made once, in memory where the
 * system has such a place, and removed at exit. Each input replaces one file of it.
 */
#ifndef SONDE_TESTS_FUZZ_RUN_FOLDER_H
#define SONDE_TESTS_FUZZ_RUN_FOLDER_H

#include <sonde/trial.h>

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char fuzz_folder[64];

static inline void expect(bool good)
{
    if (!good) {
        abort();
    }
}

static int fuzz_remove(const char *path, const struct stat *about, int type,
                       struct FTW *walk)
{
    (void)about;
    (void)type;
    (void)walk;
    return remove(path);
}

static void fuzz_clean(void)
{
    (void)nftw(fuzz_folder, fuzz_remove, 16, FTW_DEPTH | FTW_PHYS);
}

/* Makes the folder; false if it was there. */
static inline bool fuzz_begin(void)
{
    if (fuzz_folder[0] != '\0') {
        return false;
    }
    (void)snprintf(fuzz_folder, sizeof fuzz_folder, "%s/sonde-fuzz-XXXXXX",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    expect(mkdtemp(fuzz_folder) != NULL && atexit(fuzz_clean) == 0);
    return true;
}

static inline void fuzz_mkdir(const char *name)
{
    char path[256];

    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    expect(mkdir(path, 0777) == 0);
}

static inline void fuzz_write(const char *name, const void *bytes, size_t size)
{
    char path[256];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", fuzz_folder, name);
    file = fopen(path, "wb");
    expect(file != NULL && (size == 0 || fwrite(bytes, size, 1, file) == 1) &&
           fclose(file) == 0);
}

/* Whatever opens is walked to its end, asked about, refreshed and verified. */
static inline void fuzz_read_run(void)
{
    const sonde_trial_cursor_options options = {.size = sizeof options,
                                                .how = SONDE_HOW_RAW | SONDE_HOW_VITALS |
                                                       SONDE_HOW_SKETCH,
                                                .mode = SONDE_MODE_GLOBAL,
                                                .incomplete = true};
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_trial_record record;
    sonde_verify_report report;
    sonde_run_info info;
    sonde_diag diag = {0};
    sonde_err err = sonde_trial_open(fuzz_folder, NULL, &trial, &diag);
    bool changed = false;
    int64_t last = 0;

    if (err != SONDE_OK) {
        expect(trial == NULL && diag.err == err && diag.found[0] != '\0');
        return;
    }
    sonde_trial_describe(trial, &info);
    expect(sonde_trial_cursor_create(trial, &options, &cursor, &diag) == SONDE_OK);
    while ((err = sonde_trial_next(cursor, &record, &diag)) != SONDE_EEND) {
        if (err == SONDE_OK) {
            const sonde_trial_at at = {SONDE_MODE_GLOBAL, record.at.global_step,
                                       record.worker, record.at.micro_batch,
                                       record.at.replica};
            sonde_vitals vitals;

            expect(record.at.global_step >= last);
            last = record.at.global_step;
            expect((sonde_trial_has(trial, record.id, &at) & record.how) != 0);
            if (record.how == SONDE_HOW_RAW) {
                sonde_vitals_of(&record.view, &vitals);
                expect(vitals.count == (uint64_t)sonde_view_count(&record.view));
            }
        }
    }
    sonde_trial_cursor_destroy(cursor);
    expect(sonde_trial_refresh(trial, &changed, &diag) == SONDE_OK && !changed);
    sonde_trial_close(trial);
    expect(sonde_trial_verify(fuzz_folder, &report, NULL, NULL, &diag) == SONDE_OK);
    expect(report.rows == info.rows && report.records <= info.records);
}

#endif
