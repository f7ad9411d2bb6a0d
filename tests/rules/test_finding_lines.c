/*
 * test_finding_lines.c - findings that are missing from the end of their file, or with it,
 * are reported by verify; a writer that dies in between is not.
 * tsan: yes
 */
#include "rules/stream.h"
#include "record/record_sink.h"
#include "rules/engine.h"

#include <sonde/recorder.h>
#include <sonde/rules.h>
#include <sonde/trial.h>

#include <jansson.h>
#include <math.h>
#include <stdbool.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TENSORS = 4, STEPS = 3, PATH = 256, ROOM = 16384 };

static _Atomic long requests_left = -1; /* of jansson, that succeed before one fails */

static void *allocate(size_t size)
{
    return requests_left >= 0 && requests_left-- == 0 ? NULL : malloc(size);
}

/* A run in which each tensor has a NaN from step 1 on. */
static void record(const char *run)
{
    const sonde_recorder_options options = {.size = sizeof options, .path = run};
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;

    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (int i = 0; i < TENSORS; i++) {
        char name[32];
        sonde_tensor_info info = {.role = SONDE_ROLE_WEIGHT,
                                  .dtype = SONDE_F32,
                                  .rank = 1,
                                  .shape = {2},
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "fc%d.weight", i);
        info.name = name;
        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    }
    assert_int_equal(sonde__recorder_create(&options, catalogue, &recorder, NULL),
                     SONDE_OK);
    for (int64_t step = 0; step < STEPS; step++) {
        const sonde_coordinate at = {
            .mode = SONDE_MODE_TRAIN, .global_step = step, .mode_step = step};
        float x[2] = {1.0F, step > 0 ? NAN : 2.0F};
        const int64_t shape = 2;
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

        for (uint32_t id = 0; id < TENSORS; id++) {
            sonde__recorder_put(recorder, id, &at, &view);
        }
        sonde__recorder_end_step(recorder, &at);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    sonde_catalogue_destroy(catalogue);
}

static sonde_err judge_by(const char *run, const char *rule)
{
    sonde_rules *rules = NULL;
    sonde_trial *trial = NULL;
    sonde_err err = SONDE_OK;

    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, rule, NULL), SONDE_OK);
    err = sonde_trial_open(run, NULL, &trial, NULL);
    if (err == SONDE_OK) {
        assert_int_equal(sonde_rules_write_to(rules, run, NULL), SONDE_OK);
        err = sonde_rules_judge(rules, trial, NULL, NULL);
    }
    sonde_trial_close(trial);
    sonde_rules_destroy(rules);
    return err;
}

static void judge(const char *run)
{
    assert_int_equal(judge_by(run, "NonFinite"), SONDE_OK);
}

/* --- files -------------------------------------------------------------------------- */

static const char *in(const char *run, const char *name)
{
    static char path[2 * PATH];

    (void)snprintf(path, sizeof path, "%s/%s", run, name);
    return path;
}

static size_t load(const char *path, char text[ROOM])
{
    FILE *const file = fopen(path, "r");
    size_t size = 0;

    assert_non_null(file);
    size = fread(text, 1, ROOM - 1, file);
    text[size] = '\0';
    assert_int_equal(fclose(file), 0);
    return size;
}

static void store(const char *path, const char *text, size_t size)
{
    FILE *const file = fopen(path, "w");

    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

typedef struct lines {
    uint64_t damaged;
    char last[512]; /* line */
} lines;

static void see_line(void *user, const char *text)
{
    (void)snprintf(((lines *)user)->last, sizeof((lines *)user)->last, "%s", text);
}

static lines verify(const char *run)
{
    lines seen = {0};
    sonde_verify_report report = {0};

    assert_int_equal(sonde_trial_verify(run, &report, see_line, &seen, NULL), SONDE_OK);
    seen.damaged = report.damaged;
    return seen;
}

static const char FINDINGS[] = "findings/NonFinite.jsonl";

/* The end of all but the last n lines. */
static size_t without(const char *text, size_t size, int n)
{
    for (size_t end = size; end > 0; end--) {
        if (text[end - 1] == '\n' && n-- == 0) {
            return end;
        }
    }
    return 0;
}

static int count(const char *text)
{
    int n = 0;

    for (; (text = strchr(text, '\n')) != NULL; text++) {
        n++;
    }
    return n;
}

/* --- tests -------------------------------------------------------------------------- */

static void lines_that_are_missing_are_reported(void **state)
{
    char folder[] = "/tmp/sonde_lines_XXXXXX", run[PATH], text[ROOM], numbers[ROOM];
    size_t size = 0, numbers_size = 0;
    int n = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(run, sizeof run, "%s/run", folder);
    record(run);
    judge(run);
    size = load(in(run, FINDINGS), text);
    numbers_size = load(in(run, "findings.json"), numbers);
    n = count(text);
    assert_true(n >= 2);
    assert_int_equal(verify(run).damaged, 0);
    for (int left_out = 1; left_out <= n; left_out++) {
        char wanted[64];

        (void)snprintf(wanted, sizeof wanted, "the last %d lines are missing", left_out);
        store(in(run, FINDINGS), text, without(text, size, left_out));
        assert_int_equal(verify(run).damaged, 1);
        assert_non_null(strstr(verify(run).last, wanted));
    }
    assert_int_equal(unlink(in(run, FINDINGS)), 0);
    assert_int_equal(verify(run).damaged, 1);
    assert_non_null(strstr(verify(run).last, FINDINGS));
    assert_int_equal(rmdir(in(run, "findings")), 0);
    assert_int_equal(verify(run).damaged, 1);
    assert_int_equal(mkdir(in(run, "findings"), 0777), 0);
    store(in(run, FINDINGS), text, size);
    for (size_t at = 0; at < numbers_size; at++) { /* a damaged number is reported too */
        numbers[at] ^= 2;
        store(in(run, "findings.json"), numbers, numbers_size);
        assert_true(verify(run).damaged > 0);
        numbers[at] ^= 2;
    }
    assert_int_equal(unlink(in(run, "findings.json")), 0); /* of an older version */
    assert_int_equal(verify(run).damaged, 0);
    stream_remove(folder);
}

/* It wrote a line, and not its number. The next line has the next number. */
static void a_writer_may_die_between_both(void **state)
{
    char folder[] = "/tmp/sonde_lines_XXXXXX", run[PATH], text[ROOM], numbers[ROOM];
    size_t size = 0, numbers_size = 0;
    int n = 0;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(run, sizeof run, "%s/run", folder);
    record(run);
    judge(run);
    size = load(in(run, FINDINGS), text);
    n = count(text);
    store(in(run, FINDINGS), text, without(text, size, 2));
    assert_int_equal(unlink(in(run, "findings.json")), 0);
    judge(run); /* writes the two again */
    assert_int_equal(verify(run).damaged, 0);
    numbers_size = load(in(run, "findings.json"), numbers);
    store(in(run, FINDINGS), text, without(text, size, 1));
    assert_int_equal(unlink(in(run, "findings.json")), 0);
    judge(run);
    assert_int_equal(load(in(run, "findings.json"), text), numbers_size);
    assert_string_equal(text, numbers);
    /* lines were lost, and others follow: the gap is seen */
    size = load(in(run, FINDINGS), text);
    store(in(run, FINDINGS), text, without(text, size, 2));
    judge(run);
    assert_int_equal(verify(run).damaged, 1);
    assert_non_null(strstr(verify(run).last, "2 lines before"));
    (void)load(in(run, FINDINGS), text);
    assert_int_equal(count(text), n);
    stream_remove(folder);
}

typedef struct fault {
    const char *run;
    bool short_write;
} fault;

/* The first line cannot be written, or in part: findings is no folder, or its file may not
 * grow. */
static void begin_fault(const fault *begun)
{
    if (begun->short_write) {
        (void)signal(SIGXFSZ, SIG_IGN);
        assert_int_equal(setrlimit(RLIMIT_FSIZE, &(struct rlimit){20, RLIM_INFINITY}), 0);
    } else {
        store(in(begun->run, "findings"), "", 0);
    }
}

static void end_fault(void *user, const sonde_finding *finding, bool again)
{
    const fault *const begun = user;

    (void)finding;
    if (begun->short_write) {
        (void)setrlimit(RLIMIT_FSIZE, &(struct rlimit){RLIM_INFINITY, RLIM_INFINITY});
    } else if (!again) {
        (void)unlink(in(begun->run, "findings"));
    }
}

/* A disk that is full for a while costs the findings of that while. */
static void later_findings_are_written(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        char folder[] = "/tmp/sonde_lines_XXXXXX", run[PATH], text[ROOM];
        const fault begun = {run, i == 1};
        sonde_rules *rules = NULL;
        sonde_trial *trial = NULL;

        assert_non_null(mkdtemp(folder));
        (void)snprintf(run, sizeof run, "%s/run", folder);
        record(run);
        assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
        assert_int_equal(sonde_rules_add(rules, "NonFinite", NULL), SONDE_OK);
        assert_int_equal(sonde_trial_open(run, NULL, &trial, NULL), SONDE_OK);
        assert_int_equal(sonde_rules_write_to(rules, run, NULL), SONDE_OK);
        sonde_rules_on_finding(rules, end_fault, (void *)(uintptr_t)&begun);
        begin_fault(&begun);
        assert_int_equal(sonde_rules_judge(rules, trial, NULL, NULL), SONDE_OK);
        sonde_trial_close(trial);
        sonde_rules_destroy(rules);
        (void)load(in(run, FINDINGS), text);
        assert_int_equal(count(text), 1); /* how long it lasted */
        assert_non_null(strstr(text, "\"n\":1,"));
        assert_int_equal(verify(run).damaged, 0);
        stream_remove(folder);
    }
}

static void *verify_often(void *user)
{
    uint64_t damaged = 0;

    for (int i = 0; i < 6; i++) {
        damaged += verify(user).damaged;
    }
    return damaged > 0 ? user : NULL;
}

/* A reader that looks while lines are written reports nothing. */
static void a_live_reader_finds_no_damage(void **state)
{
    char folder[] = "/tmp/sonde_lines_XXXXXX", run[PATH];

    (void)state;
    assert_non_null(mkdtemp(folder));
    for (int i = 0; i < 8; i++) {
        pthread_t thread;
        void *damaged = NULL;

        (void)snprintf(run, sizeof run, "%s/run%d", folder, i);
        record(run);
        assert_int_equal(pthread_create(&thread, NULL, verify_often, run), 0);
        judge(run);
        assert_int_equal(pthread_join(thread, &damaged), 0);
        assert_null(damaged);
    }
    stream_remove(folder);
}

/* Bytes that this process has read so far; 0 where the system does not say. */
static uint64_t bytes_read(void)
{
    FILE *const file = fopen("/proc/self/io", "r");
    unsigned long long bytes = 0;

    if (file == NULL) {
        return 0;
    }
    if (fscanf(file, "rchar: %llu", &bytes) != 1) {
        bytes = 0;
    }
    assert_int_equal(fclose(file), 0);
    return bytes;
}

/* Bytes read to write a finding about each of so many tensors. */
static uint64_t read_for(uint32_t tensors)
{
    char run[PATH] = "/tmp/sonde-lines-XXXXXX";
    sonde_catalogue *catalogue = NULL;
    sonde_rules *rules = NULL;
    float value = 0.0F;
    const int64_t shape = 1;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, &value);
    const sonde_coordinate at = {.mode = SONDE_MODE_TRAIN};
    sonde_vitals vitals;
    uint64_t before = 0;
    size_t count = 0;

    assert_non_null(mkdtemp(run));
    sonde_vitals_of(&view, &vitals);
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_create(&rules, NULL), SONDE_OK);
    assert_int_equal(sonde_rules_add(rules, "AllZero:tensor_regex=.*", NULL), SONDE_OK);
    assert_int_equal(sonde_rules_write_to(rules, run, NULL), SONDE_OK);
    for (uint32_t i = 0; i < tensors; i++) {
        char name[32];
        sonde_tensor_info info = {.name = name,
                                  .role = SONDE_ROLE_WEIGHT,
                                  .dtype = SONDE_F32,
                                  .rank = 1,
                                  .shape = {1},
                                  .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        (void)snprintf(name, sizeof name, "fc%u.weight", (unsigned)i);
        assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    }
    assert_int_equal(sonde__rules_begin(rules, catalogue, NULL, NULL, NULL), SONDE_OK);
    for (uint32_t id = 0; id < tensors; id++) {
        const sonde_observation observation = {.id = id,
                                               .info =
                                                   sonde_catalogue_info(catalogue, id),
                                               .at = at,
                                               .view = &view,
                                               .vitals = &vitals};

        sonde__rules_put(rules, &observation);
    }
    before = bytes_read();
    sonde__rules_end_step(rules, &at);
    sonde_rules_finish(rules);
    before = bytes_read() - before;
    (void)sonde_rules_findings(rules, &count);
    assert_int_equal(count, tensors);
    sonde_rules_destroy(rules);
    sonde_catalogue_destroy(catalogue);
    stream_remove(run);
    return before;
}

/* A file of findings is read once, however many are appended. */
static void reading_grows_as_the_findings_do(void **state)
{
    const uint64_t few = read_for(50), many = read_for(200);

    (void)state;
    assert_in_range(many, few, 6 * few);
}

/* Memory that runs out in jansson while a rule writes its number takes no other rule's. */
static void other_numbers_stay(void **state)
{
    char folder[] = "/tmp/sonde_lines_XXXXXX", run[PATH], text[ROOM], numbers[ROOM];
    size_t size = 0;
    bool failed = true;

    (void)state;
    assert_non_null(mkdtemp(folder));
    (void)snprintf(run, sizeof run, "%s/run", folder);
    record(run);
    assert_int_equal(judge_by(run, "NonFinite"), SONDE_OK);
    size = load(in(run, "findings.json"), numbers);
    assert_non_null(strstr(numbers, "{\"lines\":{\"NonFinite\":"));
    *strchr(strstr(numbers, "NonFinite"), '}') = '\0';
    for (long n = 0; failed; n++) {
        requests_left = n;
        (void)judge_by(run, "ExplodingTensor");
        failed = requests_left < 0;
        requests_left = -1;
        (void)load(in(run, "findings.json"), text);
        assert_non_null(strstr(text, strstr(numbers, "\"NonFinite\"")));
        (void)unlink(in(run, "findings/ExplodingTensor.jsonl"));
        numbers[strlen(numbers)] = '}';
        store(in(run, "findings.json"), numbers, size);
        *strchr(strstr(numbers, "NonFinite"), '}') = '\0';
    }
    stream_remove(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines_that_are_missing_are_reported),
        cmocka_unit_test(a_writer_may_die_between_both),
        cmocka_unit_test(a_live_reader_finds_no_damage),
        cmocka_unit_test(later_findings_are_written),
        cmocka_unit_test(reading_grows_as_the_findings_do),
        cmocka_unit_test(other_numbers_stay),
    };

    json_set_alloc_funcs(allocate, free); /* before any JSON is read */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
