/*
 * test_recorder.c - what is put is in the files, to the byte, in files that others read.
 */
#include "record/record_sink.h"
#include "record/run_dir.h"
#include "base/clock.h"
#include "base/macros.h"

#include <math.h>

/* --- every dtype ------------------------------------------------------------------ */

enum { DTYPES = SONDE_DTYPE_COUNT, ROWS = 6, COLUMNS = 5 };

typedef struct expected {
    sonde_view views[DTYPES * 3]; /* by tensor: contiguous, transposed, reversed */
    int seen[DTYPES * 3];
} expected;

static void check_value(void *user, const sonde__record_index_line *line,
                        const void *bytes, size_t size)
{
    expected *const all = user;
    const sonde_view *view = &all->views[line->tensor];
    int64_t strides = (int64_t)sonde_dtype_size(view->dtype);
    unsigned char room[ROWS * COLUMNS * 16];
    sonde_view plain = sonde_view_of(view->dtype, view->rank, view->shape, room);

    assert_int_equal(size, sonde_view_count(view) * strides);
    assert_int_equal(sonde_view_copy(&plain, view, NULL), SONDE_OK);
    assert_memory_equal(bytes, room, size);
    assert_int_equal(line->rank, view->rank);
    all->seen[line->tensor]++;
}

static void every_dtype_and_stride_comes_back(void **state)
{
    static unsigned char data[DTYPES][ROWS * COLUMNS * 16];
    static const int64_t shape[] = {ROWS, COLUMNS};
    static expected all;
    char path[RUN_PATH], name[64];
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    run_content content = {.value = check_value, .user = &all};
    const sonde_coordinate at = run_at(7);

    (void)state;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (int d = 0; d < DTYPES; d++) {
        for (size_t i = 0; i < sizeof data[d]; i++) {
            data[d][i] = (unsigned char)(i * 7 + (size_t)d + 1);
        }
        for (int form = 0; form < 3; form++) {
            sonde_view *const view = &all.views[d * 3 + form];

            *view = sonde_view_of((sonde_dtype)d, 2, shape, data[d]);
            if (form == 1) {
                *view = (sonde_view){.dtype = view->dtype,
                                     .rank = 2,
                                     .shape = {COLUMNS, ROWS},
                                     .stride = {1, COLUMNS},
                                     .data = view->data};
            } else if (form == 2) {
                view->data =
                    data[d] + sonde_dtype_size(view->dtype) * (ROWS * COLUMNS - 1);
                view->stride[0] = -COLUMNS;
                view->stride[1] = -1;
            }
            (void)snprintf(name, sizeof name, "%s/%d", sonde_dtype_name(view->dtype),
                           form);
            (void)run_declare(catalogue, name, view->dtype, 2, view->shape);
        }
    }
    recorder = run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "dtypes")),
                          catalogue);
    for (uint32_t id = 0; id < DTYPES * 3; id++) {
        sonde__recorder_put(recorder, id, &at, &all.views[id]);
    }
    sonde__recorder_end_step(recorder, &at);
    assert_true(sonde__recorder_drain(recorder, 60));
    run_read(path, 0, &content); /* while it is open */
    assert_int_equal(content.values, DTYPES * 3);
    assert_int_equal(content.parts, 2); /* the segment, and the steps */
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, NULL, NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, DTYPES * 3);
    assert_int_equal(content.ends, 1);
    assert_int_equal(content.last_step, 7);
    assert_int_equal(content.closed, 2);
    assert_int_equal(content.parts, 0);
    for (int i = 0; i < DTYPES * 3; i++) {
        assert_int_equal(all.seen[i], 2);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- where and when --------------------------------------------------------------- */

typedef struct seen_line {
    sonde__record_index_line line;
    float first;
} seen_line;

typedef struct seen_lines {
    seen_line lines[64];
    size_t count;
} seen_lines;

static void keep_line(void *user, const sonde__record_index_line *line, const void *bytes,
                      size_t size)
{
    seen_lines *const seen = user;
    seen_line *const to = &seen->lines[seen->count++];

    assert_true(seen->count <= SONDE_COUNT_OF(seen->lines));
    to->line = *line;
    if (size >= sizeof to->first) {
        memcpy(&to->first, bytes, sizeof to->first);
    }
}

static bool has_key(const char *run, const char *key)
{
    char path[RUN_PATH];
    sonde_safetensors *file = NULL;
    bool found = false;

    assert_int_equal(
        sonde_safetensors_open(run_file(path, run, "w0000/seg-00000000.safetensors"),
                               &file, NULL),
        SONDE_OK);
    found = sonde_safetensors_find(file, key) != NULL;
    sonde_safetensors_destroy(file);
    return found;
}

static void keys_say_where_and_when(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 1);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "keys")), catalogue);
    const sonde_coordinate places[] = {
        {.mode = SONDE_MODE_TRAIN, .global_step = 12, .mode_step = 3},
        {.mode = SONDE_MODE_EVAL, .global_step = 12, .mode_step = 3, .micro_batch = 2},
        {.mode = SONDE_MODE_PREDICT, .global_step = 12345678901, .replica = 1},
        {.mode = SONDE_MODE_TRAIN, .global_step = 12, .mode_step = 3}, /* again */
        {.mode = SONDE_MODE_TRAIN, .global_step = 12, .mode_step = 3}, /* and again */
    };
    static seen_lines lines;
    run_content content = {.value = keep_line, .user = &lines};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(places); i++) {
        float x = (float)i;
        const int64_t shape = 1;
        const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, &x);

        sonde__recorder_put(recorder, 0, &places[i], &view);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(lines.count, SONDE_COUNT_OF(places));
    for (size_t i = 0; i < lines.count; i++) {
        const sonde__record_index_line *line = &lines.lines[i].line;

        assert_int_equal(line->mode, places[i].mode);
        assert_int_equal(line->step, places[i].global_step);
        assert_int_equal(line->mode_step, places[i].mode_step);
        assert_int_equal(line->micro_batch, places[i].micro_batch);
        assert_int_equal(line->replica, places[i].replica);
        assert_true(lines.lines[i].first == (float)i);
    }
    assert_true(has_key(path, "0000000012/train/t0"));
    assert_true(has_key(path, "0000000012/eval/t0@2.0"));
    assert_true(has_key(path, "12345678901/predict/t0@0.1"));
    assert_true(has_key(path, "0000000012/train/t0#1"));
    assert_true(has_key(path, "0000000012/train/t0#2"));
    assert_false(has_key(path, "0000000012/train/t0#3"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

static void scalars_and_empty_tensors_are_values(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = NULL;
    sonde_recorder *recorder = NULL;
    double number = 2.5;
    const int64_t shape[] = {3, 0, 2};
    const sonde_view scalar = sonde_view_of(SONDE_F64, 0, NULL, &number);
    const sonde_view empty = sonde_view_of(SONDE_I16, 3, shape, NULL);
    const sonde_coordinate at = run_at(0);
    static seen_lines lines;
    run_content content = {.value = keep_line, .user = &lines};

    (void)state;
    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    (void)run_declare(catalogue, "loss", SONDE_F64, 0, NULL);
    (void)run_declare(catalogue, "empty", SONDE_I16, 3, shape);
    recorder = run_create(SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "empty")),
                          catalogue);
    sonde__recorder_put(recorder, 1, &at, &empty);
    sonde__recorder_put(recorder, 0, &at, &scalar);
    sonde__recorder_put(recorder, 1, &at, &empty);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(lines.count, 3);
    assert_int_equal(lines.lines[1].line.rank, 0);
    assert_int_equal(lines.lines[1].line.bytes, sizeof number);
    assert_int_equal(lines.lines[2].line.bytes, 0);
    assert_int_equal(lines.lines[2].line.offset, sizeof number);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- vital signs and sketches ----------------------------------------------------- */

typedef struct seen_rows {
    sonde__record_stats_row rows[8];
    size_t count;
    sonde_sketch sketch;
    sonde__record_sketch_record record;
} seen_rows;

static void keep_row(void *user, const sonde__record_stats_row *row)
{
    seen_rows *const seen = user;

    assert_true(seen->count < SONDE_COUNT_OF(seen->rows));
    seen->rows[seen->count++] = *row;
}

static void keep_sketch(void *user, const sonde__record_sketch_record *record)
{
    seen_rows *const seen = user;

    seen->record = *record;
    sonde__record_sketch_decode(record, &seen->sketch);
}

static void vital_signs_and_sketches_come_back(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(2, 100);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "vitals")), catalogue);
    const sonde_coordinate at = {.mode = SONDE_MODE_EVAL,
                                 .global_step = 9,
                                 .mode_step = 4,
                                 .micro_batch = 1,
                                 .replica = 2};
    const int64_t shape = 100;
    static sonde_sketch sketch;
    static seen_rows rows;
    run_content content = {.row = keep_row, .sketch = keep_sketch, .user = &rows};
    sonde_vitals vitals, back;
    float x[100];
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

    (void)state;
    for (int i = 0; i < 100; i++) {
        x[i] = i % 10 == 0 ? NAN : (float)i - 50.0F;
    }
    sonde_vitals_of(&view, &vitals);
    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    sonde__recorder_put_vitals(recorder, 1, &at, &vitals);
    sonde__recorder_put_sketch(recorder, 1, &at, &sketch);
    sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
    sonde__recorder_end_step(recorder, &at);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 0);
    assert_int_equal(content.ends, 1); /* a step without raw values has one too */
    assert_int_equal(content.rows, 2);
    assert_int_equal(content.sketches, 1);
    assert_int_equal(rows.rows[0].tensor, 0); /* t1, which was met first */
    assert_int_equal(rows.rows[1].tensor, 1);
    assert_int_equal(rows.rows[0].mode, SONDE_MODE_EVAL);
    assert_int_equal(rows.rows[0].step, 9);
    assert_int_equal(rows.rows[0].mode_step, 4);
    assert_int_equal(rows.rows[0].micro_batch, 1);
    assert_int_equal(rows.rows[0].replica, 2);
    sonde__record_stats_to_vitals(&rows.rows[0], &back);
    assert_memory_equal(&back, &vitals, sizeof back);
    assert_memory_equal(&rows.sketch, &sketch, sizeof sketch);
    assert_int_equal(rows.record.tensor, 0);
    assert_int_equal(rows.record.step, 9);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* --- the catalogue ---------------------------------------------------------------- */

static json_t *catalogue_line(const char *run, size_t number)
{
    size_t size = 0;
    char *text = run_load(run, "w0000/catalogue.jsonl", &size), *at = text;
    json_t *line = NULL;

    for (size_t i = 0; i < number; i++) {
        at = strchr(at, '\n') + 1;
    }
    line = json_loadb(at, (size_t)(strchr(at, '\n') - at), 0, NULL);
    assert_true(json_is_object(line));
    free(text);
    return line;
}

static const char *text_of(const json_t *line, const char *key)
{
    const char *text = json_string_value(json_object_get(line, key));

    assert_non_null(text);
    return text;
}

static void the_catalogue_grows_and_says_all(void **state)
{
    static const char *const collections[] = {"weights", "what \"I\" like"};
    static const int64_t shape[] = {5, 1, 3, 3};
    const sonde_tensor_info info = {.name = "caf\xC3\xA9 \"1\"\\\n\x01 \xFF",
                                    .module = "conv1",
                                    .op = "Conv2d",
                                    .role = SONDE_ROLE_ACTIVATION,
                                    .pass = SONDE_PASS_FORWARD,
                                    .dtype = SONDE_BF16,
                                    .rank = 4,
                                    .shape = {5, 1, 3, 3},
                                    .same_as = SONDE_NO_TENSOR,
                                    .note = "a note"};
    const sonde_coordinate at = run_at(1);
    uint16_t values[45] = {0};
    const sonde_view view = sonde_view_of(SONDE_BF16, 4, shape, values);
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 45);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "grow")), catalogue);
    run_content content = {0};
    uint32_t id = 0;
    json_t *line = NULL;

    (void)state;
    sonde__recorder_put(recorder, 0, &at, &view);
    assert_true(sonde__recorder_drain(recorder, 60));
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde__recorder_collections(recorder, id, collections, 2, NULL),
                     SONDE_OK);
    sonde__recorder_put(recorder, id, &at, &view);
    assert_int_equal(sonde__recorder_collections(recorder, id, collections, 2, NULL),
                     SONDE_ESTATE);
    assert_int_equal(sonde__recorder_collections(recorder, 77, collections, 2, NULL),
                     SONDE_ERANGE);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.values, 2);
    line = catalogue_line(path, 1);
    assert_int_equal(json_integer_value(json_object_get(line, "id")), 1);
    assert_string_equal(text_of(line, "name"),
                        "caf\xC3\xA9 \"1\"\\\n\x01 \xEF\xBF\xBD"); /* U+FFFD for \xFF */
    assert_string_equal(text_of(line, "module"), "conv1");
    assert_string_equal(text_of(line, "op"), "Conv2d");
    assert_string_equal(text_of(line, "role"), "activation");
    assert_string_equal(text_of(line, "pass"), "forward");
    assert_string_equal(text_of(line, "dtype"), "bfloat16");
    assert_string_equal(text_of(line, "note"), "a note");
    assert_int_equal(json_array_size(json_object_get(line, "shape")), 4);
    assert_string_equal(
        json_string_value(json_array_get(json_object_get(line, "collections"), 1)),
        collections[1]);
    json_decref(line);
    line = catalogue_line(path, 0);
    assert_int_equal(json_array_size(json_object_get(line, "collections")), 0);
    json_decref(line);
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* What is expected is listed first, in the order of ids; the rest as it comes. */
static void what_is_expected_is_listed_first(void **state)
{
    static const char *const listed[] = {"t0", "t2", "t1"};
    const int64_t shape = 2;
    float values[2] = {0};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, values);
    const sonde_coordinate at = run_at(1);
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(4, 2);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "expected")), catalogue);

    (void)state;
    assert_int_equal(sonde__recorder_expect(recorder, 2, NULL), SONDE_OK);
    assert_int_equal(sonde__recorder_expect(recorder, 0, NULL), SONDE_OK);
    assert_int_equal(sonde__recorder_expect(recorder, 2, NULL), SONDE_OK);
    assert_int_equal(sonde__recorder_expect(recorder, 4, NULL), SONDE_ERANGE);
    sonde__recorder_put(recorder, 1, &at, &view);
    assert_int_equal(sonde__recorder_expect(recorder, 1, NULL), SONDE_OK);
    sonde__recorder_put(recorder, 2, &at, &view);
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    for (size_t i = 0; i < 3; i++) {
        json_t *line = catalogue_line(path, i);

        assert_string_equal(text_of(line, "name"), listed[i]);
        json_decref(line);
    }
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

/* The moment of its end is a step's time; a step of which nothing was put leaves no
 * trace. */
static void steps_have_times(void **state)
{
    char path[RUN_PATH];
    sonde_catalogue *catalogue = run_catalogue(1, 1);
    sonde_recorder *recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(path, "times")), catalogue);
    const int64_t begun = sonde__date();
    run_content content = {0};
    sonde_vitals vitals;

    (void)state;
    sonde_vitals_init(&vitals);
    for (int64_t step = 0; step < 10; step++) {
        const sonde_coordinate at = run_at(step);

        if (step % 2 == 0) {
            sonde__recorder_put_vitals(recorder, 0, &at, &vitals);
        }
        sonde__recorder_end_step(recorder, &at);
    }
    assert_int_equal(sonde__recorder_close(recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(path, 0, &content);
    assert_int_equal(content.ends, 6); /* and the last of all */
    assert_int_equal(content.last_step, 9);
    assert_true(begun <= content.first_time && content.first_time <= content.last_time &&
                content.last_time <= sonde__date());
    assert_true(begun > INT64_C(1700000000) * 1000000000); /* ns since 1970 */
    assert_false(run_has(path, "w0000/seg-00000000.safetensors"));
    sonde_catalogue_destroy(catalogue);
    run_remove(path);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_and_stride_comes_back),
        cmocka_unit_test(keys_say_where_and_when),
        cmocka_unit_test(scalars_and_empty_tensors_are_values),
        cmocka_unit_test(vital_signs_and_sketches_come_back),
        cmocka_unit_test(the_catalogue_grows_and_says_all),
        cmocka_unit_test(what_is_expected_is_listed_first),
        cmocka_unit_test(steps_have_times),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
