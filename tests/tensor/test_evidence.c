/*
 * test_evidence.c - the table of the forms of evidence: every row is complete, parts that are
 * merged are the whole, and what a run stores.
 */
#include "cmocka_all.h"

#include "tensor/evidence.h"

#include <stdlib.h>

enum { COUNT = 10000 };

static float values[COUNT];

static sonde_view view_of(size_t first, size_t count)
{
    const int64_t shape = (int64_t)count;

    return sonde_view_of(SONDE_F32, 1, &shape, values + first);
}

static void every_row_is_complete(void **state)
{
    (void)state;
    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        const sonde__evidence_form *row = &sonde__evidence_forms[form];

        assert_ptr_equal(sonde_form_get(form), &row->print);
        assert_int_equal(row->print.bit, 1 << form);
        assert_non_null(row->print.name);
        assert_non_null(row->print.one);
        assert_int_equal(row->compute != NULL, form != SONDE_FORM_RAW);
        assert_int_equal(row->needs != 0, form != SONDE_FORM_RAW);
        if (row->store == SONDE__STORE_ROW || row->store == SONDE__STORE_SKETCH) {
            assert_non_null(row->merge);
        }
    }
    assert_string_equal(sonde_form_get(SONDE_FORM_NORMS)->name, "norms");
    assert_string_equal(sonde_form_get(SONDE_FORM_RAW)->one, "raw value");
    assert_int_equal(SONDE_HOW_ALL >> SONDE_FORM_COUNT, 0);
    assert_int_equal(sonde__evidence_in(SONDE__STORE_ROW), SONDE_HOW_SIGNS);
    assert_null(sonde_form_get(-1));
    assert_null(sonde_form_get(SONDE_FORM_COUNT));
}

/* Vital signs of blocks of 4096, norms of the same, and sketches. */
static void merged_parts_are_the_whole(void **state)
{
    sonde_sketch *const sketches = calloc(3, sizeof *sketches);
    sonde__evidence whole = {.own_sketch = &sketches[0]};

    (void)state;
    assert_non_null(sketches);
    for (size_t i = 0; i < COUNT; i++) {
        values[i] = (float)(i % 97) - 40.5F;
    }
    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        const sonde__evidence_form *row = &sonde__evidence_forms[form];
        sonde__evidence sum = {.own_sketch = &sketches[1]};
        const sonde_view all = view_of(0, COUNT), head = view_of(0, 8192),
                         tail = view_of(8192, COUNT - 8192);

        whole.vitals = NULL;
        whole.sketch = NULL;
        if (row->merge == NULL) {
            continue;
        }
        row->compute(&all, &whole);
        row->compute(&head, &sum);
        sonde__evidence part = {.own_sketch = &sketches[2]};
        row->compute(&tail, &part);
        row->merge(&sum, &part);
        if (form == SONDE_FORM_SKETCH) {
            assert_memory_equal(whole.sketch, sum.sketch, sizeof *whole.sketch);
        } else {
            assert_int_equal(whole.vitals->count, sum.vitals->count);
            assert_true(whole.vitals->sumsq == sum.vitals->sumsq);
            assert_true(whole.vitals->abs_max == sum.vitals->abs_max);
            assert_int_equal(sonde_vitals_are_norms(sum.vitals),
                             form == SONDE_FORM_NORMS);
        }
    }
    free(sketches);
}

static void each_record_is_stored_once(void **state)
{
    static const struct {
        unsigned how, stored, kept;
    } cases[] = {
        {SONDE_HOW_ALL, 0, SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH},
        {SONDE_HOW_HASH, 0, 0},
        {SONDE_HOW_NORMS, 0, SONDE_HOW_NORMS},
        {SONDE_HOW_NORMS, SONDE_HOW_VITALS, 0},
        {SONDE_HOW_VITALS, SONDE_HOW_NORMS, SONDE_HOW_VITALS},
        {SONDE_HOW_RAW | SONDE_HOW_SKETCH, SONDE_HOW_RAW, SONDE_HOW_SKETCH},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        assert_int_equal(sonde__evidence_to_store(cases[i].how, cases[i].stored),
                         cases[i].kept);
    }
}

/* What a producer gives is not computed again, and norms do not pass for vital signs. */
static void what_is_there_stays(void **state)
{
    const sonde_view view = view_of(0, 100);
    const sonde_vitals vitals = {.count = 7};
    sonde__evidence evidence = {.vitals = &vitals};

    (void)state;
    sonde__evidence_compute(SONDE_HOW_SIGNS, &view, &evidence);
    assert_ptr_equal(evidence.vitals, &vitals);
    evidence.vitals = NULL;
    sonde__evidence_compute(SONDE_HOW_NORMS, &view, &evidence);
    assert_true(sonde_vitals_are_norms(evidence.vitals));
    sonde__evidence_compute(SONDE_HOW_SIGNS, &view, &evidence);
    assert_false(sonde_vitals_are_norms(evidence.vitals));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_row_is_complete),
        cmocka_unit_test(merged_parts_are_the_whole),
        cmocka_unit_test(each_record_is_stored_once),
        cmocka_unit_test(what_is_there_stays),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
