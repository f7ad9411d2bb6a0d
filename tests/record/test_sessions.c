/*
 * test_sessions.c - random calls on a recorder whose disk fails at random: whatever
 * happens, each record that was handed over is in the files or counted as lost, once.
 *
 * A session is a run with several lives, each of a process that ends by close, exit or
 * kill. SONDE_SESSIONS in the environment is how many there are; 12 if it is not set.
 */
#include "record/gate.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/trial.h>

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { TENSORS = 5, LARGEST = 60 * 1000 /* floats */, MOST_SECONDS = 250 };

/* What the lives tell, in shared memory. */
typedef struct told {
    uint64_t put; /* values, rows and sketches */
    int64_t step;
    uint64_t refused; /* openings */
} told;

static uint64_t seed, chance_number;

static uint64_t chance(uint64_t most)
{
    return sonde__below(4711, seed, chance_number++, most);
}

static void need(bool good, int code)
{
    if (!good) {
        _exit(code);
    }
}

/* --- one life ----------------------------------------------------------------------- */

static void break_disk(void)
{
    static const int errors[] = {ENOSPC, EDQUOT, EROFS, EFBIG, EIO};

    atomic_store(&gate.error, errors[chance(5)]);
    atomic_store(&gate.forever, chance(3) == 0);
    atomic_store(&gate.at, atomic_load(&gate.calls) + 1 + (int)chance(20));
}

static void mend_disk(void)
{
    atomic_store(&gate.at, 0);
}

static void put_value(sonde_recorder *recorder, const sonde_coordinate *where, told *to)
{
    static const int64_t sizes[] = {0, 1, 10, 600, 5000, LARGEST};
    static float x[2 * LARGEST];
    const int64_t shape = sizes[chance(6)];
    sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

    view.stride[0] = 1 + (int64_t)chance(2);
    if (chance(40) == 0) {
        view.dtype = (sonde_dtype)99;
    }
    to->put++;
    sonde__recorder_put(recorder, (uint32_t)chance(TENSORS + (chance(40) == 0)), where,
                        &view);
}

static void do_something(sonde_recorder *recorder, told *to)
{
    static sonde_sketch sketch;
    sonde_coordinate where = run_at(to->step);
    sonde_vitals vitals;

    where.mode = (sonde_mode)chance(SONDE_MODE_COUNT);
    switch (chance(20)) {
    case 0:
        break_disk();
        break;
    case 1:
    case 2:
        mend_disk();
        break;
    case 3:
        (void)sonde__recorder_drain(recorder, 0.001 * (double)chance(10));
        break;
    case 4:
    case 5:
    case 6:
        sonde__recorder_end_step(recorder, &where);
        to->step++;
        break;
    case 7:
    case 8:
    case 9:
        sonde_vitals_init(&vitals);
        to->put++;
        sonde__recorder_put_vitals(recorder, (uint32_t)chance(TENSORS), &where, &vitals);
        break;
    case 10:
        sonde_sketch_init(&sketch);
        sketch.positive[chance(SONDE_SKETCH_BINS)] = 1;
        to->put++;
        sonde__recorder_put_sketch(recorder, (uint32_t)chance(TENSORS), &where, &sketch);
        break;
    default:
        put_value(recorder, &where, to);
        break;
    }
}

static sonde_recorder_options options_of(const char *path)
{
    return (sonde_recorder_options){
        .size = sizeof(sonde_recorder_options),
        .path = path,
        .resume = SONDE_RESUME_ANY,
        .ring_bytes = (size_t)64 * 1024 << chance(4),
        .segment_bytes = 2000 + chance(300000),
        .compress = chance(3) == 0,
        .when_full = (sonde_when_full)chance(SONDE_WHEN_FULL_DROP + 1),
        .wait_seconds = 0.05,
    };
}

/* A call that a busy machine holds up is taken to hang: then the thread goes on alone. */
static void wait_for_thread(void)
{
    const double until = sonde__now() + MOST_SECONDS;

    while (atomic_load(&gate.destroyed) == 0 && sonde__now() < until) {
        gate_nap();
    }
}

/* Never returns. */
static void live(const char *path, const sonde_catalogue *catalogue, told *to)
{
    const sonde_recorder_options options = options_of(path);
    const uint64_t calls = chance(400);
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    (void)signal(SIGSEGV, SIG_DFL); /* cmocka's handler is not for this process */
    (void)alarm(MOST_SECONDS);
    gate_reset();
    if (chance(4) == 0) {
        break_disk();
    }
    if (gate_recorder(&options, catalogue, &recorder, &diag) != SONDE_OK) {
        need(diag.where[0] != '\0' && diag.found[0] != '\0', 3);
        to->refused++;
        mend_disk();
        wait_for_thread();
        _exit(0);
    }
    for (uint64_t i = 0; i < calls; i++) {
        do_something(recorder, to);
    }
    switch (chance(4)) {
    case 0:
        (void)kill(getpid(), SIGKILL);
        break;
    case 1:
        exit(0); /* the exit handler closes the run */
    default:
        if (chance(2) == 0) {
            mend_disk();
        }
        (void)sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL);
        mend_disk();
        wait_for_thread();
        break;
    }
    _exit(0);
}

/* --- the account -------------------------------------------------------------------- */

static uint64_t lost_of(const char *path)
{
    json_t *state = run_json(path, "w0000/state.json");
    const json_t *lost = json_object_get(state, "lost");
    const uint64_t sum =
        (uint64_t)(json_integer_value(json_object_get(lost, "ring_full")) +
                   json_integer_value(json_object_get(lost, "disk_full")) +
                   json_integer_value(json_object_get(lost, "io_error")));

    json_decref(state);
    return sum;
}

static void print_line(void *user, const char *text)
{
    (void)user;
    print_message("%s\n", text);
}

static void check(const char *path, const told *said)
{
    run_content content = {0};
    sonde_verify_report report = {0};
    uint64_t found = 0;

    run_read(path, 0, &content);
    found = content.values + content.rows + content.sketches;
    if (found + lost_of(path) != said->put) {
        fail_msg("session %llu: %llu found, %llu lost, %llu put",
                 (unsigned long long)seed, (unsigned long long)found,
                 (unsigned long long)lost_of(path), (unsigned long long)said->put);
    }
    assert_int_equal(run_number(path, "w0000/state.json", "put"), found + lost_of(path));
    assert_int_equal(sonde_trial_verify(path, &report, print_line, NULL, NULL), SONDE_OK);
    if (report.damaged != 0) {
        fail_msg("session %llu: damage is reported", (unsigned long long)seed);
    }
    assert_int_equal(report.records + report.rows + report.sketches, found);
    assert_int_equal(report.lost, lost_of(path));
    assert_int_equal(report.records, content.values);
}

static void one_session(const sonde_catalogue *catalogue, told *said)
{
    char path[RUN_PATH];
    const int lives = 1 + (int)chance(6);
    sonde_recorder_options last = {0};
    sonde_recorder *recorder = NULL;

    *said = (told){0};
    (void)run_path(path, "sessions");
    for (int i = 0; i < lives; i++) {
        int status = 0;
        pid_t child = 0;

        chance_number = 1000000 * (uint64_t)(i + 1);
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            live(path, catalogue, said);
        }
        assert_int_equal(waitpid(child, &status, 0), child);
        if (status != 0 && status != SIGKILL) {
            print_message("session %llu: life %d ended with status %#x\n",
                          (unsigned long long)seed, i, (unsigned)status);
        }
        assert_true((WIFEXITED(status) && WEXITSTATUS(status) == 0) ||
                    (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL));
    }
    last = options_of(path);
    last.wait_seconds = 0.0;
    recorder = run_create(&last, catalogue);
    assert_int_not_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                         SONDE_EINVAL);
    check(path, said);
    run_remove(path);
}

static void every_record_is_found_or_counted(void **state)
{
    const char *const asked = getenv("SONDE_SESSIONS"), *first = getenv("SONDE_SESSION");
    const uint64_t sessions = asked != NULL ? strtoull(asked, NULL, 10) : 12;
    told *const said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sonde_catalogue *const catalogue = run_catalogue(TENSORS, LARGEST);

    (void)state;
    assert_true(said != MAP_FAILED);
    seed = first != NULL ? strtoull(first, NULL, 10) : 0;
    for (const uint64_t end = seed + sessions; seed < end; seed++) {
        chance_number = 0;
        one_session(catalogue, said);
    }
    sonde_catalogue_destroy(catalogue);
    (void)munmap(said, sizeof *said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_record_is_found_or_counted),
    };

    if (access("/dev/shm", W_OK) ==
        0) { /* the syncs of a disk would take most of the time */
        (void)setenv("TMPDIR", "/dev/shm", 1);
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
