/*
 * test_anchor_errors.c - what anchors refuse, before the first step and at retrieval.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "observe/network.h"
#include "observe/session.h"

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* --- errors ----------------------------------------------------------------------- */

typedef struct refusal {
    sonde_dtype dtype;
    int d;
    sonde_anchor_mode mode;
    int period;
    sonde_err err;
    const char *line;
} refusal;

static void what_cannot_be_is_refused_before_the_first_step(void **state)
{
    static const refusal refusals[] = {
        {SONDE_F32, 4, SONDE_ANCHOR_EVERYN, 0, SONDE_EINVAL,
         "anchor 'a': period 0 of mode everyn (expected 1 or more)"},
        {SONDE_F32, 4, SONDE_ANCHOR_EVERYN, -2, SONDE_EINVAL,
         "anchor 'a': period -2 of mode everyn (expected 1 or more)"},
        {SONDE_F32, 4, SONDE_ANCHOR_EVERYN, 5, SONDE_EINVAL,
         "anchor 'a': period 5 is more than the iterations of a call, 4 (expected 1 to "
         "4)"},
        {SONDE_F32, 4, SONDE_ANCHOR_EVERYN, 3, SONDE_EINVAL,
         "anchor 'a': period 3 does not divide the iterations of a call, 4 (expected a "
         "divisor of 4)"},
        {SONDE_F32, 4, (sonde_anchor_mode)6, 1, SONDE_EINVAL,
         "anchor 'a': mode 6 (expected a sonde_anchor_mode)"},
        {SONDE_BOOL, 4, SONDE_ANCHOR_SUM, 0, SONDE_EDTYPE,
         "anchor 'a': mode sum of a bool tensor (expected mode final, everyn or all)"},
        {SONDE_I64, 4, SONDE_ANCHOR_MEAN, 0, SONDE_EDTYPE,
         "anchor 'a': mode mean of int64 (expected mode sum)"},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(refusals); i++) {
        const refusal *r = &refusals[i];
        const sonde_anchor_options options = {
            .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
        session s = session_of(r->dtype, 0, NULL, r->d, 1, 1);
        sonde_diag diag = {0};
        char line[SONDE_DIAG_LINE];

        assert_int_equal(open_session(&s, &options, r->mode, r->period, &diag), r->err);
        assert_string_equal(sonde_diag_line(&diag, line, sizeof line), r->line);
        close_session(&s);
    }
}

static void too_many_axes_are_refused(void **state)
{
    const int64_t shape[8] = {1, 1, 1, 1, 1, 1, 1, 2};
    sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F32, 7, shape, 2, 2, 1);
    session big = session_of(SONDE_F32, 2, (int64_t[]){1 << 30, 1 << 29}, 1 << 30, 1, 1);
    sonde_diag diag = {0};

    (void)state;
    options.axes = true;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, &diag),
                     SONDE_ESHAPE);
    assert_string_equal(diag.expected, "at most 8 dimensions");
    close_session(&s);
    options.axes = false;
    assert_int_equal(open_session(&big, &options, SONDE_ANCHOR_ALL, 0, &diag),
                     SONDE_ENOMEM);
    close_session(&big);
}

static void expect_no_value(session *s, const char *name, sonde_err err, const char *line)
{
    sonde_view got = {.rank = 5};
    sonde_diag diag = {0};
    char text[SONDE_DIAG_LINE];

    assert_int_equal(sonde_anchors_get(s->anchors, name, &got, &diag), err);
    assert_string_equal(sonde_diag_line(&diag, text, sizeof text), line);
    assert_int_equal(got.rank, 5);
}

static void what_is_not_there_is_not_returned(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F32, 0, NULL, 4, 1, 1);
    float values[4] = {1, 2, 3, 4};
    const int64_t shape[1] = {4};

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
    expect_no_value(&s, "a", SONDE_ESTATE,
                    "anchor 'a': no value yet (expected a call first)");
    expect_no_value(&s, "b", SONDE_ENOTFOUND,
                    "unknown anchor 'b' (expected a name such as a)");
    expect_no_value(&s, "zzzz", SONDE_ENOTFOUND,
                    "unknown anchor 'zzzz' (expected one of the 1 names added)");
    run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)values, INT64_MAX);
    expect_view(&s, 1, shape, values);
    run_call(&s, SONDE_MODE_TRAIN, (unsigned char *)values, 3);
    expect_no_value(&s, "a", SONDE_ESTATE,
                    "anchor 'a': the last call gave 3 values (expected 4)");
    close_session(&s);
}

/* What a producer gets wrong is told, and touches no memory. */
static void foreign_values_are_told(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    const int64_t in[1] = {2}, wrong_shape[1] = {3};
    float values[3] = {1, 2, 3};
    const sonde_view good = sonde_view_of(SONDE_F32, 1, in, values);
    const sonde_view wrong[2] = {sonde_view_of(SONDE_F32, 1, wrong_shape, values),
                                 sonde_view_of(SONDE_I32, 1, in, values)};

    (void)state;
    for (int i = 0; i < 5; i++) {
        session s = session_of(SONDE_F32, 1, in, 1, 1, 1);
        const sonde_coordinate at = {.iteration = i == 4 ? 1 : 0};

        assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
        sonde_observer_begin_call(s.observer);
        assert_true(sonde_observer_begin_step(s.observer,
                                              sonde_observer_get_gate(s.observer), &at));
        sonde_observer_observe(s.observer, 0, i < 2 ? &wrong[i] : &good, NULL, i == 2,
                               i == 3);
        sonde_observer_end_step(s.observer);
        expect_no_value(
            &s, "a", SONDE_ESHAPE,
            "anchor 'a': 1 values of another dtype, shape or place in the call "
            "(expected float32 (2))");
        close_session(&s);
    }
}

static void names_are_checked(void **state)
{
    session s = session_of(SONDE_F32, 0, NULL, 1, 1, 1);
    sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    sonde_anchors *anchors = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    assert_int_equal(open_session(&s, &options, SONDE_ANCHOR_FINAL, 0, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_add(s.anchors, "b", "x", SONDE_ANCHOR_ALL, 0, &diag),
                     SONDE_ESTATE);
    assert_int_equal(sonde_anchors_attach(s.anchors, s.catalogue, s.observer, &diag),
                     SONDE_ESTATE);
    assert_int_equal(sonde_anchors_create(&options, &anchors, NULL), SONDE_OK);
    assert_int_equal(
        sonde_anchors_add(anchors, "b", "nothing", SONDE_ANCHOR_ALL, 0, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_add(anchors, "b", "x", SONDE_ANCHOR_ALL, 0, &diag),
                     SONDE_EEXIST);
    assert_int_equal(sonde_anchors_attach(anchors, s.catalogue, s.observer, &diag),
                     SONDE_ENOTFOUND);
    assert_string_equal(
        sonde_diag_line(&diag, line, sizeof line),
        "anchor 'b': unknown tensor 'nothing' (expected one of the 1 names "
        "declared)");
    sonde_anchors_destroy(anchors);
    options.mode = SONDE_ANCHOR_EVERYN;
    options.period = 0;
    assert_int_equal(sonde_anchors_create(&options, &anchors, &diag), SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "outputs: period 0 of mode everyn (expected 1 or more)");
    close_session(&s);
}

static void modes_have_names(void **state)
{
    sonde_anchor_mode mode = SONDE_ANCHOR_FINAL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(SONDE_ANCHOR_DEFAULT, 4);
    assert_int_equal(SONDE_ANCHOR_MEAN, 5);
    for (int i = 0; i <= SONDE_ANCHOR_MEAN; i++) {
        const char *name = sonde_anchor_mode_name((sonde_anchor_mode)i);

        assert_int_equal(sonde_anchor_mode_parse(name, &mode, NULL), SONDE_OK);
        assert_int_equal(mode, i);
    }
    assert_int_equal(sonde_anchor_mode_parse("EveryN", &mode, NULL), SONDE_OK);
    assert_int_equal(mode, SONDE_ANCHOR_EVERYN);
    assert_int_equal(sonde_anchor_mode_parse("some", &mode, &diag), SONDE_EINVAL);
    assert_string_equal(diag.found, "unknown mode 'some'");
    assert_string_equal(sonde_anchor_mode_name((sonde_anchor_mode)6), "?");
}

/* A tensor with a name full of what selectors read otherwise. */
static void any_name_can_be_anchored(void **state)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F32, 0, NULL, 1, 1, 1);
    sonde_diag diag = {0};
    uint32_t id = 0;
    static const char odd[] = "re:a,b[*] @\\";

    (void)state;
    s.info.name = odd;
    assert_int_equal(sonde_catalogue_create(&s.catalogue, NULL), SONDE_OK);
    assert_int_equal(sonde_catalogue_declare(s.catalogue, &s.info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_create(s.catalogue, &s.observer, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_create(&options, &s.anchors, NULL), SONDE_OK);
    assert_int_equal(sonde_anchors_add(s.anchors, "a", odd, SONDE_ANCHOR_ALL, 0, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_anchors_attach(s.anchors, s.catalogue, s.observer, &diag),
                     SONDE_OK);
    assert_int_equal(sonde_observer_bind(s.observer, &s.shape, NULL), SONDE_OK);
    assert_int_equal(sonde_observer_ever_wants(s.observer, id), SONDE_HOW_RAW);
    close_session(&s);
}

static sonde_err build_session(void *user)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    session s = session_of(SONDE_F32, 0, NULL, 4, 1, 1);
    const sonde_err err = open_session(&s, &options, SONDE_ANCHOR_ALL, 0, NULL);

    (void)user;
    close_session(&s);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    (void)state;
    assert_true(net_alloc_failures(build_session, NULL) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_cannot_be_is_refused_before_the_first_step),
        cmocka_unit_test(too_many_axes_are_refused),
        cmocka_unit_test(what_is_not_there_is_not_returned),
        cmocka_unit_test(foreign_values_are_told),
        cmocka_unit_test(names_are_checked),
        cmocka_unit_test(modes_have_names),
        cmocka_unit_test(any_name_can_be_anchored),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
