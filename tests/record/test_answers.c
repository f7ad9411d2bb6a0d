/*
 * test_answers.c - a network's disk on which a rename or a link is done, and its answer is
 * lost: the call fails, and the file has its new name.
 */
#include "record/run_dir.h"
#include "record/record_sink.h"

#include <sonde/trial.h>

#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <sys/syscall.h>

static atomic_int answers_lost; /* so many are lost from now on */
static atomic_int lost;         /* so many were */

static int answer(long done)
{
    if (done == 0 && atomic_load(&answers_lost) > 0) {
        (void)atomic_fetch_sub(&answers_lost, 1);
        (void)atomic_fetch_add(&lost, 1);
        errno = EIO;
        return -1;
    }
    return (int)done;
}

SONDE_API int rename(const char *from, const char *to)
{
    return answer(syscall(SYS_renameat2, AT_FDCWD, from, AT_FDCWD, to, 0));
}

SONDE_API int link(const char *from, const char *to)
{
    return answer(syscall(SYS_linkat, AT_FDCWD, from, AT_FDCWD, to, 0));
}

static void a_lost_answer_loses_nothing(void **state)
{
    enum { STEPS = 40, FLOATS = 1000 };
    static float x[FLOATS];
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

    (void)state;
    for (int first = 0; first < 6; first++) { /* run.json, state.json, ring, segments */
        sonde_verify_report report = {0};
        sonde_recorder *recorder = NULL;
        sonde_recorder_options options = {.size = sizeof options,
                                          .path = run_path(path, "answers"),
                                          .segment_bytes = 20000};

        atomic_store(&lost, 0);
        atomic_store(&answers_lost, first < 2 ? 1 : 0);
        recorder = run_create(&options, catalogue);
        for (int64_t step = 0; step < STEPS; step++) {
            const sonde_coordinate at = run_at(step);

            atomic_store(&answers_lost, step % 6 == first ? 1 : 0);
            sonde__recorder_put(recorder, 0, &at, &view);
            sonde__recorder_end_step(recorder, &at);
            assert_true(sonde__recorder_drain(recorder, 60.0));
        }
        atomic_store(&answers_lost, first);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                         SONDE_OK);
        assert_true(atomic_load(&lost) > 0);
        atomic_store(&answers_lost, 0);
        assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
        assert_int_equal(report.damaged + report.torn + report.lost, 0);
        assert_int_equal(report.records, STEPS);
        run_remove(path);
    }
    sonde_catalogue_destroy(catalogue);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_lost_answer_loses_nothing),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
