/*
 * test_sink.c - a recorder as the end of taps: each value, row and sketch once, whatever
 * number of taps asks for it.
 */
#include "record/run_dir.h"
#include "record/record_sink.h"

#include <sonde/observer.h>

enum { FLOATS = 8, TENSORS = 2, ALIAS = 2 };

typedef struct session {
    sonde_catalogue *catalogue;
    sonde_recorder *recorder;
    sonde_observer *observer;
    char path[RUN_PATH];
    sonde_diag diag;
} session;

static void begin(session *s, const char *name)
{
    const int64_t shape = FLOATS;
    sonde_tensor_info alias = {.name = "t0_again",
                               .dtype = SONDE_F32,
                               .rank = 1,
                               .shape = {FLOATS},
                               .same_as = 0};
    uint32_t id = 0;

    (void)shape;
    memset(s, 0, sizeof *s);
    s->catalogue = run_catalogue(TENSORS, FLOATS);
    assert_int_equal(sonde_catalogue_declare(s->catalogue, &alias, &id, NULL), SONDE_OK);
    assert_int_equal(id, ALIAS);
    s->recorder = run_create(
        SONDE_OPTIONS(sonde_recorder, .path = run_path(s->path, name)), s->catalogue);
    assert_int_equal(sonde_observer_create(s->catalogue, &s->observer, NULL), SONDE_OK);
}

static void end(session *s, run_content *content)
{
    sonde_observer_destroy(s->observer);
    assert_int_equal(sonde__recorder_close(s->recorder, SONDE_RUN_FINISHED, "", NULL),
                     SONDE_OK);
    run_read(s->path, 0, content);
    sonde_catalogue_destroy(s->catalogue);
    run_remove(s->path);
}

static void tap(session *s, const char *what, unsigned how, int64_t every)
{
    sonde_tap added = {.how = how, .where = sonde__recorder_sink(s->recorder)};
    sonde_selector *selector = NULL;

    assert_int_equal(sonde_selector_create(what, &selector, NULL), SONDE_OK);
    added.what = selector;
    added.when[SONDE_MODE_TRAIN] = sonde_schedule_every(every);
    assert_int_equal(sonde_observer_add(s->observer, &added, NULL, NULL), SONDE_OK);
    sonde_selector_destroy(selector);
}

static sonde_err bind(session *s, int micro_batches, int replicas)
{
    const sonde_call_shape shape = {1, micro_batches, replicas};

    return sonde_observer_bind(s->observer, &shape, &s->diag);
}

/* One step; both tensors of every micro-batch and replica. ends: whether it is ended. */
static void step(session *s, int64_t number, int micro_batches, int replicas, bool ends)
{
    const sonde_observer_gate *gate = sonde_observer_get_gate(s->observer);
    const sonde_coordinate at = run_at(number);

    sonde_observer_begin_call(s->observer);
    if (!sonde_observer_begin_step(s->observer, gate, &at)) {
        return;
    }
    for (int b = 0; b < micro_batches; b++) {
        for (uint32_t id = 0; id < TENSORS; id++) {
            for (int r = 0; r < replicas; r++) {
                float x[FLOATS] = {(float)number, (float)id, (float)b, (float)r};
                const int64_t shape = FLOATS;
                const sonde_view view = sonde_view_of(SONDE_F32, 1, &shape, x);

                if (sonde_observer_wants(gate, id)) {
                    sonde_observer_observe(s->observer, id, &view, NULL, b, r);
                }
            }
        }
    }
    if (ends) {
        sonde_observer_end_step(s->observer);
    }
}

/* --- tests ------------------------------------------------------------------------ */

static void check_value(void *user, const sonde__record_index_line *line,
                        const void *bytes, size_t size)
{
    float x[FLOATS];

    (void)user;
    assert_int_equal(size, sizeof x);
    memcpy(x, bytes, size);
    assert_true(x[0] == (float)line->step);
    assert_true(x[2] == (float)line->micro_batch);
    assert_true(x[3] == (float)line->replica);
}

static void taps_that_overlap_record_once(void **state)
{
    session s;
    run_content content = {.value = check_value};

    (void)state;
    begin(&s, "overlap");
    tap(&s, "t0", SONDE_HOW_VITALS, 1);
    tap(&s, "t0", SONDE_HOW_RAW, 2);
    tap(&s, "re:^t[01]$", SONDE_HOW_RAW | SONDE_HOW_VITALS, 4);
    tap(&s, "t0", SONDE_HOW_SKETCH | SONDE_HOW_VITALS, 4);
    tap(&s, "t0", SONDE_HOW_RAW | SONDE_HOW_HASH, 1);
    assert_int_equal(bind(&s, 2, 3), SONDE_OK);
    for (int64_t i = 0; i < 8; i++) {
        step(&s, i, 2, 3, true);
    }
    end(&s, &content);
    /* t0: raw and vital signs at 8 steps, sketches at 2; t1: raw and vital signs at 2 */
    assert_int_equal(content.values, (8 + 2) * 6);
    assert_int_equal(content.rows, (8 + 2) * 6);
    assert_int_equal(content.sketches, 2 * 6);
    assert_int_equal(content.ends, 8);
}

/* Vital signs alone do not make a raw value of what the view happens to show. */
static void what_is_not_asked_for_is_not_recorded(void **state)
{
    session s;
    run_content content = {0};

    (void)state;
    begin(&s, "asked");
    tap(&s, "t0", SONDE_HOW_VITALS, 1);
    tap(&s, "t1", SONDE_HOW_RAW, 3);
    assert_int_equal(bind(&s, 1, 1), SONDE_OK);
    for (int64_t i = 0; i < 6; i++) {
        step(&s, i, 1, 1, true);
    }
    end(&s, &content);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.rows, 6);
    assert_int_equal(content.sketches, 0);
}

/* An alias is a tensor of its own in a run; it may be shown between two of its tensor. */
static void aliases_are_recorded_under_their_names(void **state)
{
    session s;
    run_content content = {0};

    (void)state;
    begin(&s, "alias");
    tap(&s, "glob:t0*", SONDE_HOW_RAW, 1);
    tap(&s, "glob:t0*", SONDE_HOW_RAW | SONDE_HOW_VITALS, 1);
    assert_int_equal(bind(&s, 1, 1), SONDE_OK);
    step(&s, 0, 1, 1, true);
    end(&s, &content);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.rows, 2);
}

/* The alias comes first and its tensor never: the catalogue begins with what is tapped
 * all the same, in the order of ids, a tensor before its alias. */
static void the_catalogue_is_in_the_order_of_ids(void **state)
{
    static const char expected[] =
        "{\"id\":0,\"name\":\"t0\",\"role\":\"weight\",\"module\":\"\",\"op\":\"\","
        "\"pass\":\"none\",\"dtype\":\"float32\",\"shape\":[8],\"collections\":[],"
        "\"note\":\"\"}\n"
        "{\"id\":1,\"name\":\"t1\",\"role\":\"weight\",\"module\":\"\",\"op\":\"\","
        "\"pass\":\"none\",\"dtype\":\"float32\",\"shape\":[8],\"collections\":[],"
        "\"note\":\"\"}\n"
        "{\"id\":2,\"name\":\"t0_again\",\"role\":\"weight\",\"module\":\"\",\"op\":\"\","
        "\"pass\":\"none\",\"dtype\":\"float32\",\"shape\":[8],\"same_as\":0,"
        "\"collections\":[],\"note\":\"\"}\n";
    char path[RUN_PATH + 32], text[sizeof expected + 256] = "";
    run_content content = {0};
    FILE *file = NULL;
    session s;

    (void)state;
    begin(&s, "order");
    tap(&s, "t1", SONDE_HOW_RAW, 2);
    tap(&s, "t0_again", SONDE_HOW_RAW, 1);
    assert_int_equal(bind(&s, 1, 1), SONDE_OK);
    step(&s, 1, 1, 1, true);
    assert_true(sonde__recorder_drain(s.recorder, 60));
    (void)snprintf(path, sizeof path, "%s/w0000/catalogue.jsonl", s.path);
    file = fopen(path, "r");
    assert_non_null(file);
    assert_true(fread(text, 1, sizeof text - 1, file) > 0);
    assert_int_equal(fclose(file), 0);
    for (char *seal = NULL; (seal = strstr(text, ",\"check\":\"")) != NULL;) {
        memmove(seal, seal + SONDE__SEAL - 1, strlen(seal + SONDE__SEAL - 1) + 1);
    }
    assert_string_equal(text, expected);
    end(&s, &content);
    assert_int_equal(content.values, 1);
}

/* A step that was broken off and made again is recorded again. */
static void a_step_made_again_is_recorded_again(void **state)
{
    session s;
    run_content content = {0};

    (void)state;
    begin(&s, "again");
    tap(&s, "t0", SONDE_HOW_RAW, 1);
    tap(&s, "t0", SONDE_HOW_RAW, 1);
    assert_int_equal(bind(&s, 1, 1), SONDE_OK);
    step(&s, 0, 1, 1, false);
    step(&s, 0, 1, 1, true);
    end(&s, &content);
    assert_int_equal(content.values, 2);
    assert_int_equal(content.ends, 1);
}

static void taps_that_cannot_be_recorded_are_refused(void **state)
{
    session s;
    run_content content = {0};

    (void)state;
    begin(&s, "refused");
    tap(&s, "t0", SONDE_HOW_HASH, 1);
    assert_int_equal(bind(&s, 1, 1), SONDE_EINVAL);
    assert_string_equal(s.diag.where, "t0");
    end(&s, &content);
    begin(&s, "refused");
    tap(&s, "t0", SONDE_HOW_RAW, 1);
    assert_int_equal(bind(&s, 1, 65536), SONDE_ERANGE);
    end(&s, &content);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(taps_that_overlap_record_once),
        cmocka_unit_test(what_is_not_asked_for_is_not_recorded),
        cmocka_unit_test(aliases_are_recorded_under_their_names),
        cmocka_unit_test(the_catalogue_is_in_the_order_of_ids),
        cmocka_unit_test(a_step_made_again_is_recorded_again),
        cmocka_unit_test(taps_that_cannot_be_recorded_are_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
