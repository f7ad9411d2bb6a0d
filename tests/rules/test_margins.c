/*
 * Healthy runs that come near an alarm, each beside the fault that it resembles.
 */
#include "rules/stream.h"

enum { N = 64, ROWS = 16, COLUMNS = 16, STEPS = 120 };

static int loudest(stream *s)
{
    size_t count = 0;
    const sonde_finding *all = NULL;
    int most = -1;

    sonde_rules_finish(s->rules);
    all = sonde_rules_findings(s->rules, &count);
    for (size_t i = 0; i < count; i++) {
        most = (int)all[i].severity > most ? (int)all[i].severity : most;
    }
    stream_close(s);
    return most;
}

static void put_hash(stream *s, uint32_t id, uint64_t hash)
{
    const sonde_observation seen = {
        .id = id,
        .info = sonde_catalogue_info(s->catalogue, id),
        .at = {s->at.mode, s->at.global_step, s->at.mode_step, 0, 0, 0},
        .hash = hash};

    sonde_rules_put(s->rules, &seen);
}

/* All batches of one-hot rows have the same vital signs; hashes tell them apart, and are
 * not seen at each step. */
static void one_hot_batches_differ(void **state)
{
    stream s;
    uint32_t input = 0;
    float values[N] = {0};

    (void)state;
    stream_open(&s, "DuplicateBatch");
    input = stream_declare(&s, "input", SONDE_ROLE_INPUT, 8, 8);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        for (int i = 0; i < N; i++) {
            values[i] = i % 8 == (step * (i / 8 + 1)) % 8 ? 1.0F : 0.0F;
        }
        stream_put(&s, input, values);
        if (step < 20 || step % 20 == 0) {
            put_hash(&s, input, 1000 + (uint64_t)step);
        }
        stream_end(&s);
    }
    stream_expect_clean(&s);
    stream_close(&s);
}

/* Within ten steps an element may outgrow the others; a flipped bit goes farther. */
static void an_element_may_grow_between_looks(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0;
        float w[ROWS * COLUMNS];

        stream_open(&s, "UpdateSpike");
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, ROWS, COLUMNS);
        for (int i = 0; i < ROWS * COLUMNS; i++) {
            w[i] = 0.1F * (float)(i % 7);
        }
        stream_begin(&s);
        for (int step = 0; step < 500; step++) {
            w[0] = step < 450 ? 0.8F + 1e-5F * (float)step : fault ? 4096.0F : 2.0F;
            if (step % 10 == 0) {
                stream_put(&s, weight, w);
            }
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : -1);
    }
}

/* Rows of a disturbance of samples are no units. */
static void rows_of_samples_may_be_equal(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0, gradient = 0;
        float w[ROWS * COLUMNS], g[ROWS * COLUMNS];

        stream_open_losing(&s, "SymmetricUnits");
        weight = stream_declare(&s, fault ? "fc.weight" : "delta", SONDE_ROLE_WEIGHT,
                                ROWS, COLUMNS);
        gradient = stream_declare(&s, fault ? "gradient/fc.weight" : "gradient/delta",
                                  SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < ROWS * COLUMNS; i++) {
                g[i] = (float)(i % COLUMNS) + 1.0F;
                w[i] = g[i] * (1.0F + 0.01F * (float)step);
            }
            stream_put(&s, weight, w);
            stream_put(&s, gradient, g);
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* A loss jumps and falls again from there, as at the next task; or it stays. */
static void a_jump_may_be_the_next_task(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossSpike");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            const double since = fault ? 0.0 : step - 60;
            const double level = step < 5    ? 3.0
                                 : step < 60 ? 0.2
                                             : 1.5 * exp(-since / 40.0);
            const double noise = 0.02 * (double)stream_normal(&s);

            stream_put_all(&s, loss, (float)(0.2 + level + noise));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* A loss of a thousandth of the first ones easily triples. */
static void a_loss_near_its_end_may_rise(void **state)
{
    stream s;
    uint32_t loss = 0;

    (void)state;
    stream_open(&s, "LossSpike");
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_all(&s, loss, step < 5 ? 1.0F : step < 80 ? 4e-4F : 1.2e-3F);
        stream_end(&s);
    }
    assert_int_equal(loudest(&s), SONDE_SEVERITY_NOTE);
}

/* A cosine may fall faster and faster at first; it ends at -1. */
static void a_cosine_is_bounded(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossSign");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 40; step++) {
            stream_put_all(&s, loss, (fault ? -0.2F : -0.02F) * expf(0.1F * (float)step));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

/* The losses of two players rise to where they began. */
static void a_loss_may_return_to_its_start(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossNotDecreasing");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 600; step++) {
            const float level = step < 20    ? 1.4F
                                : step < 400 ? 1.1F
                                : fault      ? 3.0F
                                             : 1.5F;

            stream_put_all(&s, loss, level + 0.01F * stream_normal(&s));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s),
                         fault ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
    }
}

/* Gradients of a smooth loss look like sums; the loss falls. */
static void smooth_gradients_may_look_like_sums(void **state)
{
    (void)state;
    for (int fault = 0; fault < 2; fault++) {
        stream s;
        uint32_t weight = 0, gradient = 0, loss = 0;
        float g[N] = {0};

        stream_open(&s, "MissingZeroGrad");
        gradient = stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, 8, 8);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 8, 8);
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < STEPS; step++) {
            for (int i = 0; i < N; i++) {
                g[i] += (float)cos(i) + 0.3F * stream_normal(&s);
            }
            stream_put(&s, gradient, g);
            stream_put_all(&s, weight, (float)step);
            stream_put_all(&s, loss,
                           fault ? 2.0F + 0.1F * (float)step
                                 : 2.0F * expf(-0.03F * (float)step));
            stream_end(&s);
        }
        assert_int_equal(loudest(&s), fault ? SONDE_SEVERITY_ERROR : SONDE_SEVERITY_NOTE);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(one_hot_batches_differ),
        cmocka_unit_test(an_element_may_grow_between_looks),
        cmocka_unit_test(rows_of_samples_may_be_equal),
        cmocka_unit_test(a_jump_may_be_the_next_task),
        cmocka_unit_test(a_loss_near_its_end_may_rise),
        cmocka_unit_test(a_cosine_is_bounded),
        cmocka_unit_test(a_loss_may_return_to_its_start),
        cmocka_unit_test(smooth_gradients_may_look_like_sums),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
