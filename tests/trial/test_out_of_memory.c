/*
 * test_out_of_memory.c - memory that runs out while an open trial is read: the next call
 * continues, and nothing is left out.
 */
#include "trial/run_folder.h"

#include "alloc_failure.h"

#include <sonde/error.h>

enum { FIRST = 3, ALL = 7 };

static void write_steps(writer *w, int64_t begin, int64_t end)
{
    for (int64_t s = begin; s < end; s++) {
        known_step(w, known_at(s));
    }
}

static void refresh_continues(void **state)
{
    bool failed = true;

    (void)state;
    for (size_t n = 0; failed; n++) {
        sonde_trial *trial = NULL;
        sonde_run_info info;
        sonde_err err = SONDE_OK;
        bool changed = false;
        writer w;

        (void)nftw(test_run, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        writer_begin(test_run, 1);
        writer_open(&w, test_run, 0);
        writer_alive(&w);
        known_declare(&w);
        write_steps(&w, 0, FIRST);
        trial = trial_opened(test_run);
        write_steps(&w, FIRST, ALL);
        alloc_failure_begin(n);
        err = sonde_trial_refresh(trial, &changed, NULL);
        (void)alloc_failure_end();
        failed = err != SONDE_OK;
        assert_int_equal(err, failed ? SONDE_ENOMEM : SONDE_OK);
        assert_int_equal(sonde_trial_refresh(trial, &changed, NULL), SONDE_OK);
        sonde_trial_describe(trial, &info);
        assert_int_equal(info.last_step, ALL - 1);
        assert_int_equal(info.records, ALL * KNOWN_TENSORS);
        assert_int_equal(info.sketches, ALL);
        assert_int_equal(count_damage(trial), 0);
        for (int t = 0; t < KNOWN_TENSORS; t++) {
            for (int64_t s = 0; s < ALL; s++) {
                assert_known(trial, t, s, -1);
            }
        }
        sonde_trial_close(trial);
        writer_drop(&w);
        assert_true(!failed || n < 1000);
    }
}

static void a_cursor_continues(void **state)
{
    bool failed = true;
    writer w;

    (void)state;
    writer_begin(test_run, 1);
    writer_open(&w, test_run, 0);
    known_declare(&w);
    for (int64_t s = 0; s < ALL; s++) {
        for (int t = 0; t < KNOWN_TENSORS; t++) {
            known_put(&w, known_at(s), t, SONDE__PACKED_ZSTD);
        }
        writer_end_step(&w, known_at(s));
    }
    for (size_t n = 0; failed; n++) {
        sonde_trial *const trial = trial_opened(test_run);
        sonde_trial_cursor *cursor = NULL;
        sonde_trial_record record;
        sonde_err err = SONDE_OK;
        int records = 0;

        failed = false;
        assert_int_equal(sonde_trial_cursor_create(trial, NULL, &cursor, NULL), SONDE_OK);
        while (err != SONDE_EEND) {
            if (!failed) {
                alloc_failure_begin(n); /* of this call */
            }
            err = sonde_trial_next(cursor, &record, NULL);
            (void)alloc_failure_end();
            if (err == SONDE_ENOMEM) {
                assert_false(failed);
                failed = true;
            } else if (err != SONDE_EEND) {
                assert_int_equal(err, SONDE_OK);
                assert_int_equal(record.at.global_step, records / KNOWN_TENSORS);
                assert_int_equal(record.id, records % KNOWN_TENSORS);
                records++;
            }
        }
        assert_int_equal(records, ALL * KNOWN_TENSORS);
        sonde_trial_cursor_destroy(cursor);
        sonde_trial_close(trial);
    }
    writer_drop(&w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(refresh_continues, folder_make, folder_remove),
        cmocka_unit_test_setup_teardown(a_cursor_continues, folder_make, folder_remove),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
