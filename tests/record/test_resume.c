/*
 * test_resume.c - going on with a run: one that ended, one whose writer died, one that
 * was damaged, one that somebody else writes.
 */
#include "record/run_dir.h"
#include "base/macros.h"
#include "record/record_sink.h"

#include <sonde/trial.h>

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>

enum { FLOATS = 10 };

static void put(sonde_recorder *recorder, uint32_t id, int64_t step)
{
    float x[FLOATS];
    const int64_t shape = FLOATS;
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);
    const sonde_coordinate at = run_at(step);
    sonde_vitals vitals;
    static sonde_sketch sketch;

    for (int i = 0; i < FLOATS; i++) {
        x[i] = (float)(step * 100 + i);
    }
    sonde_vitals_of(&view, &vitals);
    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    sonde__recorder_put(recorder, id, &at, &view);
    sonde__recorder_put_vitals(recorder, id, &at, &vitals);
    sonde__recorder_put_sketch(recorder, id, &at, &sketch);
    sonde__recorder_end_step(recorder, &at);
}

/* Steps begin ... end - 1 of both tensors, and a good end. */
static void record(const char *path, const char *resume, const sonde_catalogue *catalogue,
                   int64_t begin, int64_t end)
{
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = path, .resume = resume), catalogue);

    for (int64_t step = begin; step < end; step++) {
        put(recorder, 0, step);
        put(recorder, 1, step);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
}

/* The same in a process that dies when everything is in the files, and nothing closed. */
static void record_and_die(const char *path, const char *resume,
                           const sonde_catalogue *catalogue, int64_t begin, int64_t end)
{
    const pid_t child = fork();
    int status = 0;

    assert_true(child >= 0);
    if (child == 0) {
        sonde_recorder *recorder = NULL;
        const sonde_recorder_options options = {
            .size = sizeof options, .path = path, .resume = resume};

        if (sonde__recorder_create(&options, catalogue, &recorder, NULL) != SONDE_OK) {
            _exit(1);
        }
        for (int64_t step = begin; step < end; step++) {
            put(recorder, 0, step);
            put(recorder, 1, step);
        }
        if (!sonde__recorder_drain(recorder, 60)) {
            _exit(2);
        }
        (void)kill(getpid(), SIGKILL);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFSIGNALED(status));
}

static void expect(const char *path, int64_t steps, uint64_t closed, uint64_t parts)
{
    run_content content = {0};

    run_read(path, 0, &content);
    assert_int_equal(content.values, steps * 2);
    assert_int_equal(content.rows, steps * 2);
    assert_int_equal(content.sketches, steps * 2);
    assert_int_equal(content.ends, steps * 2);
    assert_int_equal(content.closed, closed);
    assert_int_equal(content.parts, parts);
    assert_int_equal(content.last_step, steps - 1);
}

static sonde_err resume_err(const char *path, const char *id,
                            const sonde_catalogue *catalogue, sonde_diag *diag)
{
    sonde_recorder *recorder = NULL;
    const sonde_err err =
        sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path, .resume = id),
                               catalogue, &recorder, diag);

    if (err == SONDE_OK) {
        assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                         SONDE_OK);
    }
    return err;
}

/* --- tests ------------------------------------------------------------------------ */

static void an_ended_run_goes_on(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_recorder *recorder = NULL;

    (void)state;
    record(run_path(path, "ended"), NULL, catalogue, 0, 5);
    assert_true(run_has(path, "end.json"));
    recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = path, .resume = run_id(path, id)),
        catalogue);
    assert_false(run_has(path, "end.json"));
    assert_int_equal(run_number(path, "w0000/state.json", "records"), 10);
    assert_int_equal(run_number(path, "w0000/state.json", "bytes"), 10 * FLOATS * 4);
    assert_int_equal(run_number(path, "w0000/state.json", "rows"), 10);
    assert_int_equal(run_number(path, "w0000/state.json", "last_step"), 4);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    expect(path, 5, 4, 0);
    record(path, id, catalogue, 5, 9);
    expect(path, 9, 8, 0);
    assert_int_equal(run_number(path, "w0000/state.json", "records"), 18);
    assert_int_equal(run_number(path, "w0000/state.json", "segment"), 2);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void a_dead_run_goes_on(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);

    (void)state;
    record_and_die(run_path(path, "dead"), NULL, catalogue, 0, 7);
    expect(path, 7, 0, 4);
    record_and_die(path, run_id(path, id), catalogue, 7, 11);
    expect(path, 11, 4, 4);
    record(path, id, catalogue, 11, 12);
    expect(path, 12, 12, 0);
    assert_int_equal(run_number(path, "w0000/state.json", "records"), 24);
    assert_int_equal(run_number(path, "w0000/state.json", "rows"), 24);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* It died before anything came into its files. */
static void empty_parts_are_taken_away(void **state)
{
    char path[RUN_PATH], file[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    static const char *const left[] = {
        "w0000/seg-00000001.part", "w0000/seg-00000001.jsonl",
        "w0000/stats-00000001.part", "w0000/sketch-00000001.part",
        "w0000/steps-00000001.part"};

    (void)state;
    for (size_t kept = 0; kept <= SONDE_COUNT_OF(left); kept++) { /* one, or all */
        record(run_path(path, "empty"), NULL, catalogue, 0, 3);
        for (size_t i = 0; i < SONDE_COUNT_OF(left); i++) {
            if (kept == i || kept == SONDE_COUNT_OF(left)) {
                (void)fclose(fopen(run_file(file, path, left[i]), "w"));
            }
        }
        record(path, run_id(path, id), catalogue, 3, 4);
        expect(path, 4, 8, 0); /* numbers 0 and 1 of each kind: no gap */
        assert_true(run_has(path, "w0000/seg-00000001.safetensors"));
        assert_true(run_has(path, "w0000/stats-00000001.npy"));
        assert_true(run_has(path, "w0000/sketch-00000001.bin"));
        assert_true(run_has(path, "w0000/steps-00000001.npy"));
        run_remove(path);
    }
    sonde_catalogue_destroy(catalogue);
}

static void append(const char *path, const char *name, const char *bytes, size_t size)
{
    char file[RUN_PATH];
    FILE *to = fopen(run_file(file, path, name), "ab");

    assert_non_null(to);
    assert_int_equal(fwrite(bytes, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
}

/* Ends that a crash of the machine may leave: half lines, half rows, data of no line, a
 * line of no data. */
static void torn_ends_are_cut_off(void **state)
{
    static const char line[] =
        "{\"s\":9,\"m\":\"train\",\"k\":9,\"t\":0,\"b\":0,\"r\":0,\"o\":560,\"n\":"
        "4000000000,"
        "\"d\":\"U8\",\"h\":\"0123456789abcdef\",\"p\":[4000000000]}\n{\"s\":10,\"m\":"
        "\"tr";
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);

    (void)state;
    record_and_die(run_path(path, "torn"), NULL, catalogue, 0, 7);
    append(path, "w0000/seg-00000000.jsonl", line, strlen(line));
    append(path, "w0000/seg-00000000.part", line, 100);
    append(path, "w0000/stats-00000000.part", line, 100);
    append(path, "w0000/sketch-00000000.part", line, 100);
    append(path, "w0000/steps-00000000.part", line, 20);
    append(path, "w0000/catalogue.jsonl", "{\"id\":2,\"na", 11);
    record(path, run_id(path, id), catalogue, 7, 8);
    expect(path, 8, 8, 0);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* A line in the middle that cannot be read costs its value, and nothing else. */
static void a_damaged_line_costs_one_value(void **state)
{
    char path[RUN_PATH], file[RUN_PATH], id[33], *text = NULL, *at = NULL;
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_safetensors *segment = NULL;
    const sonde_view *gap = NULL;
    size_t size = 0;
    FILE *to = NULL;

    (void)state;
    record_and_die(run_path(path, "damaged"), NULL, catalogue, 0, 7);
    text = run_load(path, "w0000/seg-00000000.jsonl", &size);
    at = strstr(text, "\"o\":120,");
    assert_non_null(at);
    memcpy(at, "\"x\":", 4);
    to = fopen(run_file(file, path, "w0000/seg-00000000.jsonl"), "wb");
    assert_non_null(to);
    assert_int_equal(fwrite(text, 1, size, to), size);
    assert_int_equal(fclose(to), 0);
    free(text);
    assert_int_equal(resume_err(path, run_id(path, id), catalogue, NULL), SONDE_OK);
    assert_int_equal(
        sonde_safetensors_open(run_file(file, path, "w0000/seg-00000000.safetensors"),
                               &segment, NULL),
        SONDE_OK);
    assert_int_equal(sonde_safetensors_count(segment), 14);
    gap = sonde_safetensors_find(segment, "damaged/120");
    assert_non_null(gap);
    assert_int_equal(gap->shape[0], FLOATS * 4);
    assert_null(sonde_safetensors_find(segment, "0000000001/train/t1"));
    assert_non_null(sonde_safetensors_find(segment, "0000000002/train/t0"));
    sonde_safetensors_destroy(segment);
    assert_int_equal(run_number(path, "w0000/state.json", "records"), 13);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* The process that goes on may know the tensors in another order, and more of them. */
static void tensors_keep_their_ids(void **state)
{
    char path[RUN_PATH], id[33];
    const int64_t shape = FLOATS;
    sonde_catalogue *before = run_catalogue(2, FLOATS), *after = NULL;
    size_t size = 0;
    char *text = NULL;
    int lines = 0;

    (void)state;
    record(run_path(path, "ids"), NULL, before, 0, 2);
    assert_int_equal(sonde_catalogue_create(&after, NULL), SONDE_OK);
    (void)run_declare(after, "new", SONDE_F32, 1, &shape);
    (void)run_declare(after, "t1", SONDE_F32, 1, &shape);
    (void)run_declare(after, "t0", SONDE_F32, 1, &shape);
    record(path, run_id(path, id), after, 2, 4); /* new and t1 */
    text = run_load(path, "w0000/catalogue.jsonl", &size);
    for (char *at = text; (at = strchr(at, '\n')) != NULL; at++) {
        lines++;
    }
    free(text);
    assert_int_equal(lines, 3);
    expect(path, 4, 8, 0);
    text = run_load(path, "w0000/seg-00000001.jsonl", &size);
    assert_non_null(strstr(text, "{\"s\":2,\"m\":\"train\",\"k\":2,\"t\":2,"));
    assert_non_null(strstr(text, "{\"s\":2,\"m\":\"train\",\"k\":2,\"t\":1,"));
    assert_null(strstr(text, "\"t\":0,"));
    free(text);
    sonde_catalogue_destroy(before);
    sonde_catalogue_destroy(after);
    run_remove(path);
}

static void a_run_has_one_writer(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "busy")), catalogue);
    sonde_diag diag = {0};
    uint64_t records = 0;
    int go[2], status = 0;
    pid_t child = 0;
    char byte = 0;

    (void)state;
    assert_int_equal(resume_err(path, run_id(path, id), catalogue, &diag), SONDE_EBUSY);
    assert_non_null(strstr(diag.found, "another process"));
    assert_int_equal(sonde_recorder_recover(path, 0, &records, NULL), SONDE_EBUSY);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    assert_int_equal(pipe(go), 0);
    child = fork(); /* a real other process */
    assert_true(child >= 0);
    if (child == 0) {
        recorder = run_create(SONDE_OPTIONS(sonde_recorder, .path = path, .resume = id),
                              catalogue);
        (void)!write(go[1], "x", 1);
        (void)pause();
    }
    assert_int_equal(read(go[0], &byte, 1), 1);
    assert_int_equal(resume_err(path, id, catalogue, NULL), SONDE_EBUSY);
    (void)kill(child, SIGKILL);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(resume_err(path, id, catalogue, NULL), SONDE_OK);
    (void)close(go[0]);
    (void)close(go[1]);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void damaged_generations_are_told(void **state)
{
    char path[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_diag diag = {0};

    (void)state;
    record(run_path(path, "lines"), NULL, catalogue, 0, 3);
    record(path, run_id(path, id), catalogue, 3, 4);
    append(path, "w0000/generations.jsonl", "{\"generation\":", 14); /* torn: no line */
    assert_int_equal(resume_err(path, id, catalogue, NULL), SONDE_OK);
    append(path, "w0000/generations.jsonl", "{}\n", 3);
    assert_int_equal(resume_err(path, id, catalogue, &diag), SONDE_EFORMAT);
    assert_non_null(strstr(diag.found, "line 3 of w0000/generations.jsonl"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void rewrite_run(const char *path, const char *text)
{
    char file[RUN_PATH];
    FILE *to = fopen(run_file(file, path, "run.json"), "w");

    assert_non_null(to);
    assert_true(fputs(text, to) >= 0);
    assert_int_equal(fclose(to), 0);
}

static void what_is_not_the_run_is_refused(void **state)
{
    static const char other[] = "0123456789abcdef0123456789abcdef";
    char path[RUN_PATH], id[33], text[256];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    (void)state;
    record(run_path(path, "other"), NULL, catalogue, 0, 1);
    assert_int_equal(resume_err(path, other, catalogue, &diag), SONDE_EINVAL);
    assert_string_equal(diag.expected, run_id(path, id));
    assert_int_equal(sonde__recorder_create(SONDE_OPTIONS(sonde_recorder, .path = path,
                                                          .resume = id, .world = 2),
                                            catalogue, &recorder, NULL),
                     SONDE_EINVAL);
    (void)snprintf(text, sizeof text, "{\"sonde_run\":2,\"id\":\"%s\"}", id);
    rewrite_run(path, text);
    assert_int_equal(resume_err(path, id, catalogue, &diag), SONDE_EUNSUPPORTED);
    assert_non_null(strstr(diag.found, "format 2"));
    rewrite_run(path, "{\"sonde_run\":1");
    assert_int_equal(resume_err(path, id, catalogue, NULL), SONDE_EFORMAT);
    rewrite_run(path, "[]");
    assert_int_equal(resume_err(path, id, catalogue, NULL), SONDE_EFORMAT);
    (void)snprintf(text, sizeof text, "{\"sonde_run\":1,\"id\":\"%s\"}", id);
    rewrite_run(path, text);
    append(path, "w0000/catalogue.jsonl", "{\"id\":7,\"name\":\"x\"}\n", 20);
    assert_int_equal(resume_err(path, id, catalogue, &diag), SONDE_EFORMAT);
    assert_non_null(strstr(diag.found, "line 3"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* Lines beside a head that says nothing sensible: nothing is thrown away. */
static void a_damaged_head_is_told(void **state)
{
    char path[RUN_PATH], file[RUN_PATH], id[33];
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    sonde_diag diag = {0};
    const uint64_t length = UINT64_MAX;
    int fd = -1;

    (void)state;
    record_and_die(run_path(path, "head"), NULL, catalogue, 0, 2);
    fd = open(run_file(file, path, "w0000/seg-00000000.part"), O_WRONLY);
    assert_int_equal(pwrite(fd, &length, sizeof length, 0), sizeof length);
    assert_int_equal(close(fd), 0);
    assert_int_equal(resume_err(path, run_id(path, id), catalogue, &diag), SONDE_EFORMAT);
    assert_true(run_has(path, "w0000/seg-00000000.part"));
    assert_true(run_has(path, "w0000/seg-00000000.jsonl"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void store(const char *path, const char *name, const void *bytes, size_t size)
{
    char file[RUN_PATH];
    const int fd = open(run_file(file, path, name), O_WRONLY | O_TRUNC);

    assert_true(fd >= 0);
    assert_int_equal(write(fd, bytes, size), size);
    assert_int_equal(close(fd), 0);
}

/* A segment is closed without values if a fault lost them. Its writer died before it was
 * listed. */
static void an_empty_segment_is_listed(void **state)
{
    static const char empty[] = "{\"__metadata__\":{\"sonde_run\":\"1\"}}";
    char path[RUN_PATH], head[512], *list = NULL;
    sonde_catalogue *catalogue = run_catalogue(2, FLOATS);
    const uint64_t length = sizeof head - sizeof length;
    sonde_verify_report report = {0};

    (void)state;
    record(run_path(path, "no-values"), NULL, catalogue, 0, 2);
    record(path, SONDE_RESUME_ANY, catalogue, 2, 4);
    memset(head, ' ', sizeof head);
    memcpy(head, &length, sizeof length);
    memcpy(head + sizeof length, empty, sizeof empty - 1);
    store(path, "w0000/seg-00000000.safetensors", head, sizeof head);
    store(path, "w0000/seg-00000000.jsonl", "", 0);
    store(path, "w0000/files.jsonl", "", 0);
    record(path, SONDE_RESUME_ANY, catalogue, 4, 6);
    list = run_load(path, "w0000/files.jsonl", &(size_t){0});
    assert_non_null(strstr(list, "\"seg-00000000.jsonl\",\"size\":0,\"covered\":0,"));
    free(list);
    assert_int_equal(sonde_trial_verify(path, &report, NULL, NULL, NULL), SONDE_OK);
    assert_int_equal(report.damaged, 0);
    assert_int_equal(report.lost, 4); /* of the values of the first two steps */
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_ended_run_goes_on),
        cmocka_unit_test(a_dead_run_goes_on),
        cmocka_unit_test(empty_parts_are_taken_away),
        cmocka_unit_test(torn_ends_are_cut_off),
        cmocka_unit_test(a_damaged_line_costs_one_value),
        cmocka_unit_test(tensors_keep_their_ids),
        cmocka_unit_test(a_run_has_one_writer),
        cmocka_unit_test(damaged_generations_are_told),
        cmocka_unit_test(what_is_not_the_run_is_refused),
        cmocka_unit_test(a_damaged_head_is_told),
        cmocka_unit_test(an_empty_segment_is_listed),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
