/*
 * The rules that compare values bit for bit: DuplicateBatch, ReplicaDivergence,
 * EvalNondeterminism; and DtypeChanged, InputRange.
 */
#include "rules/stream.h"

#include "base/macros.h"

enum { N = 64, STEPS = 12 };

/* One hashed value. */
static void put_hash(stream *s, uint32_t id, uint64_t hash, int replica)
{
    const sonde_tensor_info *info = sonde_catalogue_info(s->catalogue, id);
    const sonde_observation seen = {
        .id = id,
        .info = info,
        .at = {s->at.mode, s->at.global_step, s->at.mode_step, 0, 0, replica},
        .hash = hash};

    sonde_rules_put(s->rules, &seen);
}

static void a_batch_that_comes_again_is_found(void **state)
{
    for (int kind = 0; kind < 4; kind++) {
        stream s;
        uint32_t input = 0;

        (void)state;
        stream_open(&s, "DuplicateBatch");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const uint64_t batch = kind == 0   ? (uint64_t)step % 5 /* epochs */
                                   : kind == 1 ? 0                  /* one batch */
                                   : kind == 2 ? (uint64_t)(step < 6 ? step : 6)
                                               : (uint64_t)(step < 6 ? step : 6);

            if (kind == 3) {
                stream_put_all(&s, input, (float)batch); /* vital signs alone */
            } else {
                put_hash(&s, input, 1000 + batch, 0);
            }
            stream_end(&s);
        }
        if (kind < 2) {
            stream_expect_clean(&s);
        } else {
            (void)stream_expect(&s, "input", 7);
        }
        stream_close(&s);
    }
}

/*
 * Chance repeats what has few possible values, beside an input that differs or alone:
 *     0  rare flags, all 0 most of the time
 *     1  one short sequence at a time, drawn from eight
 *     2  flags of 0 and 1, of which chance repeats a pattern now and then
 *     3  the same sequence for the rest of the run: a fault
 *     4  the same real batch for the rest of the run, beside noise: a note
 */
static void repeats_by_chance_are_not_found(void **state)
{
    (void)state;
    for (int kind = 0; kind < 5; kind++) {
        const bool alone = kind == 1 || kind == 3;
        const sonde_finding *found = NULL;
        stream s;
        uint32_t input = 0, other = 0;
        float flags[N] = {0};

        stream_open(&s, "DuplicateBatch");
        input =
            stream_declare(&s, "input", SONDE_ROLE_INPUT, alone ? 1 : 8, alone ? N : 8);
        other = alone ? 0 : stream_declare(&s, "other", SONDE_ROLE_INPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < 5 * STEPS; step++) {
            const int drawn = step * step / 5 % 8;

            if (kind == 0) {
                flags[3] = step % 7 == 0 ? 1.0F : 0.0F;
                flags[4] = step % 11 == 0 ? 1.0F : 0.0F;
                stream_put(&s, input, flags);
            } else if (alone) {
                put_hash(&s, input, 100 + (uint64_t)(kind == 3 && step > 40 ? 9 : drawn),
                         0);
            } else {
                const int batch = kind == 2 ? step - step % 9 / 8 : SONDE_MIN(step, 40);

                put_hash(&s, input, 100 + (uint64_t)batch, 0);
            }
            if (!alone) {
                put_hash(&s, other, 1000 + (uint64_t)step, 0);
            }
            stream_end(&s);
        }
        found = stream_found(&s, "input");
        if (kind < 3) {
            assert_null(found);
        } else {
            assert_non_null(found);
            assert_int_equal(found->severity,
                             kind == 3 ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
        }
        stream_close(&s);
    }
}

/* All data at each step, in another order: their hashes differ, their sums by rounding, and
 * now and then not at all. */
static void data_in_another_order_are_let_be(void **state)
{
    stream s;
    uint32_t input = 0;
    float values[2][N];

    (void)state;
    stream_open(&s, "DuplicateBatch");
    input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
    stream_begin(&s);
    for (int i = 0; i < N; i++) {
        values[0][i] = stream_normal(&s);
        values[1][N - 1 - i] = i == 0 ? values[0][0] * 1e6F : values[0][i];
    }
    values[0][0] *= 1e6F;
    for (int step = 0; step < 2 * STEPS; step++) {
        stream_put(&s, input, values[step < STEPS ? step % 2 : 0]);
        if (step < STEPS) {
            put_hash(&s, input, 1000 + (uint64_t)step, 0);
        }
        stream_end(&s);
    }
    stream_expect_clean(&s);
    stream_close(&s);
}

/* Looked at every fifth step, five batches in a fixed order are the same one each time.
 */
static void steps_between_are_not_forgotten(void **state)
{
    for (int kind = 0; kind < 2; kind++) {
        stream s;
        uint32_t input = 0;

        (void)state;
        stream_open(&s, "DuplicateBatch");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < 10 * STEPS; step++) {
            if (step < 10 || step % 5 == 0) {
                if (kind == 0) {
                    stream_put_all(&s, input, (float)(step % 5));
                } else {
                    put_hash(&s, input, 1000 + (uint64_t)step % 5, 0);
                }
            }
            stream_end(&s);
        }
        stream_expect_clean(&s);
        stream_close(&s);
    }
}

static void a_batch_on_two_replicas_is_found(void **state)
{
    stream s;
    uint32_t input = 0;

    (void)state;
    stream_open(&s, "DuplicateBatch");
    input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        put_hash(&s, input, 10 + 2 * (uint64_t)step, 0);
        put_hash(&s, input, 10 + 2 * (uint64_t)step + (step < 4), 1);
        stream_end(&s);
    }
    (void)stream_expect(&s, "input", 4);
    stream_close(&s);
}

static void replicas_that_part_are_found(void **state)
{
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t weight = 0, other = 0;

        (void)state;
        stream_open(&s, "ReplicaDivergence");
        weight = stream_declare(&s, "fc1.weight", SONDE_ROLE_WEIGHT, 8, 8);
        other = stream_declare(&s, "fc2.weight", SONDE_ROLE_WEIGHT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int r = 0; r < 2; r++) {
                put_hash(&s, weight, 7 + (uint64_t)step, r);
                put_hash(&s, other,
                         9 + (uint64_t)step + (uint64_t)(bad && step >= 3) * (uint64_t)r,
                         r);
            }
            stream_end(&s);
        }
        if (bad) {
            (void)stream_expect(&s, "fc2.weight", 3);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* Replicas of worker w count from 1024 w: people read the number of the worker. */
static void workers_are_named_as_workers(void **state)
{
    static const struct {
        int a, b;
        const char *batch, *weight;
    } cases[] = {
        {0, 3, "Replicas 0 and 3 have the same batch.",
         "Replicas 0 and 3 have different values."},
        {0, 1024, "Workers 0 and 1 have the same batch.",
         "Workers 0 and 1 have different values."},
        {2049, 2051, "Replicas 1 and 3 have the same batch.",
         "Replicas 1 and 3 have different values."},
        {1, 1024, "Replica 1 of worker 0 and replica 0 of worker 1 have the same batch.",
         "Replica 1 of worker 0 and replica 0 of worker 1 have different values."},
    };

    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        stream s;
        uint32_t input = 0, weight = 0;

        stream_open(&s, "DuplicateBatch");
        assert_int_equal(sonde_rules_add(s.rules, "ReplicaDivergence", NULL), SONDE_OK);
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 8, 8);
        stream_begin(&s);
        put_hash(&s, input, 5, cases[i].a);
        put_hash(&s, input, 5, cases[i].b);
        put_hash(&s, weight, 6, cases[i].a);
        put_hash(&s, weight, 7, cases[i].b);
        stream_end(&s);
        assert_string_equal(stream_found(&s, "input")->message, cases[i].batch);
        assert_string_equal(stream_found(&s, "fc.weight")->message, cases[i].weight);
        stream_close(&s);
    }
}

/* Two evaluations after each other; training between them makes other outputs right. */
static void outputs_that_change_in_evaluation_are_found(void **state)
{
    for (int kind = 0; kind < 3; kind++) {
        stream s;
        uint32_t input = 0, output = 0;

        (void)state;
        stream_open(&s, "EvalNondeterminism");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        output = stream_declare(&s, "fc_output_0", SONDE_ROLE_OUTPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const float moved = step < 6    ? 0.0F
                                : kind == 0 ? 1e-6F /* sums in another order */
                                            : 0.01F;

            s.at.mode = SONDE_MODE_EVAL;
            s.at.global_step += kind == 2 && step == 6; /* a step of training */
            put_hash(&s, input, 100 + (uint64_t)(step % 6), 0);
            stream_put_all(&s, output, (float)(2 + step % 6) * (1.0F + moved));
            stream_end(&s);
        }
        if (kind == 1) {
            (void)stream_expect(&s, "fc_output_0", 6);
        } else {
            sonde_rules_finish(s.rules);
            assert_int_equal(stream_count(&s), 0);
        }
        stream_close(&s);
    }
}

/* Running statistics move in training, and stay in evaluation. */
static void buffers_that_learn_in_evaluation_are_found(void **state)
{
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t buffer = 0;
        float moved = 0.0F;

        (void)state;
        stream_open(&s, "EvalNondeterminism");
        buffer = stream_declare(&s, "norm.running_mean", SONDE_ROLE_BUFFER, 8, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const bool train = step % 6 < 3;

            s.at.mode = train ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
            s.at.mode_step = step / 6 * 3 + step % 3;
            moved += train || bad ? 0.125F : 0.0F;
            stream_put_all(&s, buffer, moved);
            stream_end(&s);
        }
        if (bad) {
            (void)stream_expect(&s, "norm.running_mean", 4);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

static void another_dtype_is_found(void **state)
{
    stream s;
    uint32_t id = 0;
    double room[N] = {0};
    const int64_t shape[1] = {N};

    (void)state;
    stream_open(&s, "DtypeChanged");
    id = stream_declare(&s, "w", SONDE_ROLE_WEIGHT, N, 0);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        const sonde_view view =
            sonde_view_of(step < 4 ? SONDE_F32 : SONDE_BF16, 1, shape, room);
        const sonde_observation seen = {.id = id,
                                        .info = sonde_catalogue_info(s.catalogue, id),
                                        .at = s.at,
                                        .view = &view};

        sonde_rules_put(s.rules, &seen);
        stream_end(&s);
    }
    assert_non_null(strstr(stream_expect(&s, "w", 4).message, "float32"));
    stream_close(&s);
}

static void raw_pixels_are_found(void **state)
{
    for (int bad = 0; bad < 2; bad++) {
        stream s;
        uint32_t input = 0;

        (void)state;
        stream_open(&s, "InputRange");
        input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            stream_put_normal(&s, input, bad ? 100.0 : -0.7, bad ? 60.0 : 0.9);
            stream_end(&s);
        }
        if (bad) {
            (void)stream_expect(&s, "input", 0);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_batch_that_comes_again_is_found),
        cmocka_unit_test(repeats_by_chance_are_not_found),
        cmocka_unit_test(data_in_another_order_are_let_be),
        cmocka_unit_test(steps_between_are_not_forgotten),
        cmocka_unit_test(a_batch_on_two_replicas_is_found),
        cmocka_unit_test(replicas_that_part_are_found),
        cmocka_unit_test(workers_are_named_as_workers),
        cmocka_unit_test(outputs_that_change_in_evaluation_are_found),
        cmocka_unit_test(buffers_that_learn_in_evaluation_are_found),
        cmocka_unit_test(another_dtype_is_found),
        cmocka_unit_test(raw_pixels_are_found),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
