/*
 * test_kill.c - the program is killed at a random moment, under full load: everything
 * that was drained is there and right, nothing is torn, and a writer that goes on finds
 * it so.
 *
 * SONDE_KILLS in the environment is how often; 30 if it is not set.
 */
#include "record/run_dir.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>

enum { TENSORS = 6, LARGEST = 96 * 1024 /* floats */ };

/* What the child tells, in shared memory. */
typedef struct told {
    _Atomic int64_t drained; /* steps that are in the files */
    _Atomic int64_t begun;   /* steps whose puts may have returned */
    _Atomic int64_t ended;   /* steps whose end has returned */
} told;

static size_t floats_of(uint32_t id)
{
    static const size_t sizes[TENSORS] = {1, 10, 1000, 5000, LARGEST, 0};

    return sizes[id];
}

static float value_of(uint32_t id, int64_t step, size_t i)
{
    return (float)((int64_t)i % 1000 + step * 7 + (int64_t)id);
}

static void fill(float *x, uint32_t id, int64_t step)
{
    for (size_t i = 0; i < floats_of(id); i++) {
        x[i] = value_of(id, step, i);
    }
}

static sonde_recorder_options options_of(const char *path, uint64_t round)
{
    return (sonde_recorder_options){
        .size = sizeof(sonde_recorder_options),
        .path = path,
        .ring_bytes = round % 3 == 0 ? 64 * 1024 * 1024 : 2 * 1024 * 1024,
        .segment_bytes = round % 2 == 0 ? 1024 * 1024 : 16 * 1024 * 1024,
        .compress = round % 5 == 4,
        .when_full = SONDE_WHEN_FULL_WAIT,
    };
}

/* Never returns. */
static void run_child(const char *path, uint64_t round, told *to)
{
    sonde_catalogue *catalogue = run_catalogue(TENSORS, LARGEST);
    const sonde_recorder_options options = options_of(path, round);
    sonde_recorder *recorder = run_create(&options, catalogue);
    static float x[TENSORS][LARGEST];
    sonde_vitals vitals;
    static sonde_sketch sketch;

    (void)signal(SIGSEGV, SIG_DFL); /* cmocka's handler is not for this process */
    sonde_vitals_init(&vitals);
    sonde_sketch_init(&sketch);
    for (int64_t step = 0;; step++) {
        const sonde_coordinate at = run_at(step);

        to->begun = step + 1;
        for (uint32_t id = 0; id < TENSORS; id++) {
            const int64_t shape = (int64_t)floats_of(id);
            const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x[id]);

            fill(x[id], id, step);
            sonde__recorder_put(recorder, id, &at, &view);
            vitals.sum = (double)step;
            sonde__recorder_put_vitals(recorder, id, &at, &vitals);
        }
        sketch.positive[step % SONDE_SKETCH_BINS] = 1;
        sonde__recorder_put_sketch(recorder, 0, &at, &sketch);
        sonde__recorder_end_step(recorder, &at);
        to->ended = step + 1;
        if (sonde__below(round, 3, (uint64_t)step, 12) == 0) {
            if (!sonde__recorder_drain(recorder, 60)) {
                _exit(3);
            }
            to->drained = step + 1;
        }
        if (round % 10 == 9 && step == 40) { /* the program's own fault */
            (void)raise(SIGSEGV);
        }
        if (round % 10 == 8 && step == 30) { /* without closing the run */
            exit(0);
        }
    }
}

typedef struct found {
    int64_t next[TENSORS]; /* step that must come next: none is missing in between */
    int64_t rows, sketches;
} found;

static void check_value(void *user, const sonde__record_index_line *line,
                        const void *bytes, size_t size)
{
    found *const all = user;
    const uint32_t id = line->tensor;
    float x = 0.0F;

    assert_true(id < TENSORS);
    assert_int_equal(size, floats_of(id) * sizeof x);
    assert_int_equal(line->step, all->next[id]);
    all->next[id]++;
    for (size_t i = 0; i < floats_of(id); i += 1 + i / 10) {
        memcpy(&x, (const char *)bytes + i * sizeof x, sizeof x);
        assert_true(x == value_of(id, line->step, i));
    }
}

static void check_row(void *user, const sonde__record_stats_row *row)
{
    found *const all = user;

    assert_int_equal(row->step, all->rows / TENSORS);
    assert_int_equal(row->tensor, all->rows % TENSORS);
    assert_true(row->sum == (double)row->step);
    all->rows++;
}

static void check_sketch(void *user, const sonde__record_sketch_record *record)
{
    assert_int_equal(record->step, ((found *)user)->sketches++);
}

/* How many values are there. */
static uint64_t check(const char *path, const told *said, int64_t least)
{
    found all = {0};
    run_content content = {
        .value = check_value, .row = check_row, .sketch = check_sketch, .user = &all};

    run_read(path, 0, &content);
    for (int id = 0; id < TENSORS; id++) {
        assert_in_range(all.next[id], least, said->begun);
    }
    assert_in_range(all.rows, least * TENSORS, said->begun * TENSORS);
    assert_in_range(all.sketches, least, said->begun);
    assert_true(content.last_step >= least - 1);
    /* An end of a step stands behind everything of it. */
    for (int id = 0; id < TENSORS; id++) {
        assert_true(all.next[id] > content.last_step);
    }
    assert_true(all.rows >= (content.last_step + 1) * TENSORS);
    assert_true(all.sketches > content.last_step);
    return content.values;
}

static void no_ended_step_is_lost(void **state)
{
    const char *asked = getenv("SONDE_KILLS");
    const uint64_t kills = asked != NULL ? strtoull(asked, NULL, 10) : 30;
    told *const said = mmap(NULL, sizeof *said, PROT_READ | PROT_WRITE,
                            MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    sonde_catalogue *catalogue = run_catalogue(TENSORS, LARGEST);
    char path[RUN_PATH], id[33];
    uint64_t values = 0;
    int64_t drained = 0;

    (void)state;
    assert_true(said != MAP_FAILED);
    /* On a busy machine a child may be killed before its first drain. */
    for (uint64_t round = 0; round < kills || (drained == 0 && round < 10 * kills);
         round++) {
        const struct timespec wait = {
            .tv_nsec = (long)sonde__below(11, 2, round, 120 * 1000 * 1000)};
        sonde_recorder_options options = options_of(path, round);
        sonde_recorder *recorder = NULL;
        uint64_t before = 0;
        int status = 0;
        pid_t child = 0;

        said->drained = said->begun = said->ended = 0;
        (void)run_path(path, "kill");
        child = fork();
        assert_true(child >= 0);
        if (child == 0) {
            run_child(path, round, said);
        }
        while (said->begun == 0 && waitpid(child, &status, WNOHANG) == 0) {
        }
        (void)nanosleep(&wait, NULL);
        (void)kill(child, SIGKILL);
        (void)waitpid(child, &status, 0);
        assert_true(WIFSIGNALED(status) || round % 10 == 8);
        before = check(path, said, WIFEXITED(status) ? said->ended : said->drained);
        drained += said->drained;
        options.resume = run_id(path, id);
        if (round % 3 == 2 && WIFSIGNALED(status)) { /* by a reader */
            uint64_t records = 0;

            assert_int_equal(sonde_recorder_recover(path, 0, &records, NULL), SONDE_OK);
            values += records;
        }
        recorder = run_create(&options, catalogue);
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
        assert_true(check(path, said, said->ended) >= before); /* all in closed files */
        assert_false(run_has(path, "w0000/ring"));
    }
    print_message("%llu values salvaged, %lld steps drained in %llu kills\n",
                  (unsigned long long)values, (long long)drained,
                  (unsigned long long)kills);
    assert_true(drained > 0);
    run_remove(path);
    sonde_catalogue_destroy(catalogue);
    (void)munmap(said, sizeof *said);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_ended_step_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
