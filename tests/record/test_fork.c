/*
 * test_fork.c - a program forks while it records: a child that uses the recorder of its
 * parent neither hangs nor damages the run, and does not keep its lock.
 */
#include "record/run_dir.h"
#include "record/record_sink.h"

#include <sonde/log.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { FLOATS = 3000, STEPS = 400, EVERY = 10, MOST_SECONDS = 120 };

static pid_t recording; /* the process that records */

/* Asked by the leak sanitizer: a child has no stack of the writer's thread any more, so what
 * only that stack refers to would count as leaked. */
int __lsan_is_turned_off(
    void); /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
int __lsan_is_turned_off(
    void) /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
{
    return recording != 0 && getpid() != recording;
}

static void put_step(sonde_recorder *recorder, int64_t step)
{
    static float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);
    sonde_vitals vitals;

    x[0] = (float)step;
    sonde_vitals_of(&view, &vitals);
    sonde__recorder_put(recorder, 0, &at, &view);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_end_step(recorder, &at);
}

/* Uses the recorder of the parent in one way or another. Never returns. */
static void be_a_child(sonde_recorder *recorder, int64_t step)
{
    (void)alarm(MOST_SECONDS); /* a hang ends by this signal */
    if (step % 4 != 0) {
        for (int64_t i = 0; i < 20; i++) {
            put_step(recorder, 1000000 + i);
        }
        if (sonde__recorder_drain(recorder, MOST_SECONDS)) {
            _exit(1);
        }
    }
    if (step % 3 == 0 &&
        sonde__recorder_close(recorder, SONDE_RUN_FAILED, "child", NULL) != SONDE_OK) {
        _exit(2);
    }
    if (step % 2 == 0) {
        exit(0); /* with exit handlers */
    }
    _exit(0);
}

static void check_value(void *user, const sonde__record_index_line *line,
                        const void *bytes, size_t size)
{
    int64_t *const next = user;
    float first = 0.0F;

    assert_int_equal(size, FLOATS * sizeof first);
    assert_int_equal(line->step, *next);
    memcpy(&first, bytes, sizeof first);
    assert_true(first == (float)*next);
    ++*next;
}

static void children_leave_the_run_alone(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder =
        run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "fork"),
                                 .ring_bytes = 256 * 1024, .segment_bytes = 256 * 1024,
                                 .when_full = SONDE_WHEN_FULL_WAIT),
                   catalogue);
    pid_t children[STEPS / EVERY];
    size_t count = 0;
    int64_t next = 0;
    run_content content = {.value = check_value, .user = &next};

    (void)state;
    recording = getpid();
    for (int64_t step = 0; step < STEPS; step++) {
        put_step(recorder, step);
        if (step % EVERY == 0) {
            const pid_t child = fork(); /* the writer's thread works */

            assert_true(child >= 0);
            if (child == 0) {
                be_a_child(recorder, step / EVERY);
            }
            children[count++] = child;
        }
    }
    for (size_t i = 0; i < count; i++) {
        int status = 0;

        assert_int_equal(waitpid(children[i], &status, 0), children[i]);
        assert_true(WIFEXITED(status));
        assert_int_equal(WEXITSTATUS(status), 0);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, STEPS);
    assert_int_equal(content.rows, STEPS);
    assert_int_equal(content.last_step, STEPS - 1);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void count_lines(void *user, sonde_log_level level, const char *room,
                        const char *message)
{
    (void)level;
    (void)room;
    *(int *)user += strstr(message, "a forked child records nothing") != NULL;
}

static void a_child_is_told_once(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "told")), catalogue);
    int told = 0, status = 0;
    pid_t child = 0;

    (void)state;
    sonde_log_set_sink(count_lines, &told);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        put_step(recorder, 0);
        put_step(recorder, 1);
        _exit(told);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    sonde_log_set_sink(NULL, NULL);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), 1);
    assert_int_equal(told, 0);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* The parent is killed, and its child lives on. */
static void a_child_does_not_keep_the_lock(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, FLOATS);
    _Atomic pid_t *const orphan = mmap(NULL, sizeof *orphan, PROT_READ | PROT_WRITE,
                                       MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    uint64_t records = 0;
    int status = 0;
    run_content content = {0};
    pid_t parent = 0;

    (void)state;
    assert_true(orphan != MAP_FAILED);
    (void)run_path(path, "orphan");
    parent = fork();
    assert_true(parent >= 0);
    if (parent == 0) {
        sonde_recorder *const recorder =
            run_create(SONDE_OPTIONS(sonde_recorder, .path = path), catalogue);

        if (fork() == 0) {
            (void)alarm(MOST_SECONDS);
            *orphan = getpid();
            (void)pause();
            _exit(0);
        }
        put_step(recorder, 0);
        while (*orphan == 0) {
            (void)usleep(1000);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(parent, &status, 0), parent);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(kill(*orphan, 0), 0);
    assert_int_equal(sonde_recorder_recover(path, 0, &records, NULL), SONDE_OK);
    (void)kill(*orphan, SIGKILL);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 1);
    assert_int_equal(content.rows, 1);
    (void)munmap((void *)(uintptr_t)orphan, sizeof *orphan);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(children_leave_the_run_alone),
        cmocka_unit_test(a_child_is_told_once),
        cmocka_unit_test(a_child_does_not_keep_the_lock),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
