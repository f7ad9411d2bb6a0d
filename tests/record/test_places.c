/*
 * test_places.c - what happens to a run's folder, and to its process, while it is being
 * written: the folder is moved or deleted, a file takes its place, descriptors run out, the
 * writer is stopped. Training continues, close returns, and each record is in the files or
 * counted as lost.
 */
#include "record/run_dir.h"

#include "base/clock.h"
#include "record/record_sink.h"

#include <sonde/trial.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

enum { FLOATS = 2000, MOST_FILES = 64 };

typedef struct place {
    char path[RUN_PATH], moved[RUN_PATH + 8];
    double wait;
    sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    int64_t step;
} place;

static void begin(place *self)
{
    const sonde_recorder_options options = {
        .size = sizeof options,
        .path = self->path,
        .wait_seconds = self->wait,
        .segment_bytes = 100 * 1000,
        .ring_bytes = 4 << 20, /* puts do not wait */
    };

    self->catalogue = run_catalogue(1, FLOATS);
    self->recorder = run_create(&options, self->catalogue);
}

static void put_steps(place *self, int64_t count)
{
    static float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

    for (int64_t i = 0; i < count; i++) {
        const sonde_coordinate at = run_at(self->step++);

        sonde__recorder_put(self->recorder, 0, &at, &view);
        sonde__recorder_end_step(self->recorder, &at);
    }
}

/* Until a fault has lasted for longer than the writer waits. */
static void put_until_lost(place *self)
{
    const double until = sonde__now() + 60.0;
    sonde_recorder_stats stats = {0};

    do {
        put_steps(self, 20);
        (void)sonde__recorder_drain(self->recorder, 0.01);
        sonde__recorder_get_stats(self->recorder, &stats);
    } while (stats.lost_io_error == 0 && sonde__now() < until);
    assert_true(stats.lost_io_error > 0);
}

static sonde_err close_it(place *self)
{
    const sonde_err err =
        sonde__recorder_close(self->recorder, SONDE_RUN_FINISHED, NULL, NULL);

    sonde_catalogue_destroy(self->catalogue);
    return err;
}

/* --- scenes, each in a process of its own ------------------------------------------- */

/* Returns what close returned. */
typedef sonde_err scene(place *self);

/* It comes back in time. */
static sonde_err move_and_back(place *self)
{
    begin(self);
    put_steps(self, 100);
    assert_int_equal(rename(self->path, self->moved), 0);
    put_steps(self, 50);
    (void)sonde__recorder_drain(self->recorder, 0.1);
    assert_int_equal(rename(self->moved, self->path), 0);
    put_steps(self, 50);
    return close_it(self);
}

static sonde_err move_away(place *self)
{
    begin(self);
    put_steps(self, 100);
    assert_int_equal(rename(self->path, self->moved), 0);
    put_until_lost(self);
    return close_it(self);
}

static sonde_err put_a_file_there(place *self)
{
    int fd = -1;

    begin(self);
    put_steps(self, 100);
    assert_int_equal(rename(self->path, self->moved), 0);
    fd = open(self->path, O_WRONLY | O_CREAT | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    assert_int_equal(close(fd), 0);
    put_until_lost(self);
    return close_it(self);
}

static sonde_err delete_it(place *self)
{
    begin(self);
    put_steps(self, 100);
    /* at once: else the writer makes files in it meanwhile */
    assert_int_equal(rename(self->path, self->moved), 0);
    run_remove(self->moved);
    put_until_lost(self);
    return close_it(self);
}

/* Files cannot be opened for a while. */
static sonde_err use_up_descriptors(place *self)
{
    struct rlimit before;
    int files[MOST_FILES], count = 0;

    begin(self);
    put_steps(self, 10);
    assert_true(sonde__recorder_drain(self->recorder, 60.0));
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &before), 0);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &(struct rlimit){32, before.rlim_max}), 0);
    while (count < MOST_FILES &&
           (files[count] = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0) {
        count++;
    }
    put_steps(self, 100);
    (void)sonde__recorder_drain(self->recorder, 0.1);
    while (count > 0) {
        (void)close(files[--count]);
    }
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &before), 0);
    put_steps(self, 100);
    return close_it(self);
}

static sonde_err stop_in_between(place *self)
{
    begin(self);
    put_steps(self, 100);
    (void)sonde__recorder_drain(self->recorder, 60.0);
    (void)raise(SIGSTOP);
    put_steps(self, 100);
    return close_it(self);
}

/* --- tests -------------------------------------------------------------------------- */

/* In a child: its process tells how many steps there were. */
static pid_t play(place *self, const char *name, double wait, scene *one, int *told)
{
    int ends[2];
    pid_t child = 0;

    *self = (place){.wait = wait};
    (void)run_path(self->path, name);
    (void)snprintf(self->moved, sizeof self->moved, "%s.moved", self->path);
    run_remove(self->moved);
    assert_int_equal(pipe(ends), 0);
    child = fork();
    assert_true(child >= 0);
    if (child == 0) {
        const sonde_err err = one(self);

        (void)!write(ends[1], &self->step, sizeof self->step);
        _exit((int)err);
    }
    (void)close(ends[1]);
    *told = ends[0];
    return child;
}

/* The scene's last line, and what a reader finds at path; NULL: nothing is looked for. */
static void check(place *self, pid_t child, int told, sonde_err wanted, const char *path)
{
    sonde_verify_report report = {0};
    int status = 0;

    assert_int_equal(read(told, &self->step, sizeof self->step), sizeof self->step);
    (void)close(told);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    assert_int_equal(WEXITSTATUS(status), wanted);
    if (path != NULL) {
        assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
        assert_int_equal(report.damaged + report.torn, 0);
        assert_int_equal(report.records + report.lost, self->step);
        assert_int_equal(report.lost > 0, wanted != SONDE_OK);
    }
    run_remove(self->path);
    run_remove(self->moved);
}

static void a_folder_that_is_moved_and_back(void **state)
{
    place self;
    int told = -1;
    const pid_t child = play(&self, "back", 60.0, move_and_back, &told);

    (void)state;
    check(&self, child, told, SONDE_OK, self.path);
}

/* Where it is now, a reader finds the rest in the ring. */
static void a_folder_that_is_moved_away(void **state)
{
    place self;
    int told = -1;
    const pid_t child = play(&self, "away", 0.05, move_away, &told);

    (void)state;
    check(&self, child, told, SONDE_EIO, self.moved);
}

static void a_file_in_place_of_the_folder(void **state)
{
    place self;
    int told = -1;
    const pid_t child = play(&self, "file", 0.05, put_a_file_there, &told);

    (void)state;
    check(&self, child, told, SONDE_EIO, self.moved);
}

/* Whatever is left, close returns. */
static void a_folder_that_is_deleted(void **state)
{
    place self;
    int told = -1;
    const pid_t child = play(&self, "deleted", 0.05, delete_it, &told);

    (void)state;
    check(&self, child, told, SONDE_EIO, NULL);
}

static void descriptors_run_out(void **state)
{
    place self;
    int told = -1;
    const pid_t child = play(&self, "files", 60.0, use_up_descriptors, &told);

    (void)state;
    check(&self, child, told, SONDE_OK, self.path);
}

/* A writer that is stopped is no crashed one, and its files are read meanwhile. */
static void a_writer_that_is_stopped(void **state)
{
    place self;
    sonde_trial *trial = NULL;
    sonde_run_info info;
    sonde_verify_report report = {0};
    int status = 0, told = -1;
    const pid_t child = play(&self, "stopped", 60.0, stop_in_between, &told);

    (void)state;
    assert_int_equal(waitpid(child, &status, WUNTRACED), child);
    assert_true(WIFSTOPPED(status));
    assert_int_equal(sonde_trial_open(self.path, NULL, &trial, NULL), SONDE_OK);
    sonde_trial_describe(trial, &info);
    assert_int_equal(info.status, SONDE_RUN_RUNNING);
    assert_int_equal(info.records, 100);
    sonde_trial_close(trial);
    assert_int_equal(sonde_trial_verify(self.path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(kill(child, SIGCONT), 0);
    check(&self, child, told, SONDE_OK, self.path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_folder_that_is_moved_and_back),
        cmocka_unit_test(a_folder_that_is_moved_away),
        cmocka_unit_test(a_file_in_place_of_the_folder),
        cmocka_unit_test(a_folder_that_is_deleted),
        cmocka_unit_test(descriptors_run_out),
        cmocka_unit_test(a_writer_that_is_stopped),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
