/*
 * A finding is a state: it rises when training, which went well, goes badly later, and is
 * resolved when training goes well after all; its lines in a file, the callback and actions
 * follow. And defects that need no loss to be sure.
 */
#include "rules/stream.h"

#include <sonde/actions.h>

#include <ftw.h>
#include <unistd.h>

enum { ROWS = 32, COLUMNS = 8, N = ROWS * COLUMNS, STEPS = 160 };
enum { STAYS_LOW, RELAPSES, NEVER_FELL, FALLS_LATE, COURSES };

static double loss_at(int course, int step)
{
    return course == STAYS_LOW  ? 2.0 * exp(-0.05 * step)
           : course == RELAPSES ? (step < 80 ? 2.0 * exp(-0.05 * step) : 2.0)
                                : (course == FALLS_LATE && step > 80 ? 0.2 : 2.0);
}

typedef struct heard {
    int calls, again, stops;
    sonde_severity severity[4];
    sonde_actions *actions;
} heard;

static void hear(void *user, const sonde_finding *finding, bool again)
{
    heard *all = user;

    if (again) {
        all->again++;
        return;
    }
    assert_true(all->calls < 4);
    all->severity[all->calls++] = finding->severity;
    sonde_actions_take(all->actions, finding);
}

/* A layer all of whose units are dead throughout. */
static sonde_finding judge(int course, const char *run, heard *all)
{
    stream s;
    uint32_t id = 0, loss = 0;
    sonde_finding found;

    stream_open(&s, "DeadRelu");
    id = stream_declare(&s, "relu_output_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
    assert_int_equal(sonde_actions_create(NULL, &all->actions, NULL), SONDE_OK);
    assert_int_equal(sonde_actions_add(all->actions, "error=log", NULL), SONDE_OK);
    sonde_rules_on_finding(s.rules, hear, all);
    assert_int_equal(sonde_rules_write_to(s.rules, run, NULL), SONDE_OK);
    stream_begin(&s);
    for (int step = 0; step < STEPS; step++) {
        stream_put_all(&s, id, 0.0F);
        stream_put_all(&s, loss,
                       (float)(loss_at(course, step) + 0.02 * (double)stream_normal(&s)));
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    assert_int_equal(stream_count(&s), 1);
    found = *stream_found(&s, "relu_output_0");
    found.tensor = found.message = "";
    {
        sonde_actions_stats stats;

        assert_true(sonde_actions_finish(all->actions, 1.0));
        sonde_actions_get_stats(all->actions, &stats);
        all->stops = (int)stats.done;
        sonde_actions_destroy(all->actions);
    }
    stream_close(&s);
    return found;
}

static int remove_one(const char *path, const struct stat *status, int kind,
                      struct FTW *walk)
{
    (void)status;
    (void)kind;
    (void)walk;
    return remove(path);
}

static size_t count_lines(const char *run, const char *part)
{
    char path[128], line[8192];
    FILE *file = NULL;
    size_t lines = 0;

    (void)snprintf(path, sizeof path, "%s/findings/DeadRelu.jsonl", run);
    file = fopen(path, "r");
    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        lines += strstr(line, part) != NULL;
    }
    assert_int_equal(fclose(file), 0);
    return lines;
}

static void a_note_rises_when_training_goes_badly_later(void **state)
{
    char run[] = "/tmp/sonde_states_XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(run));
    for (int course = 0; course <= RELAPSES; course++) {
        heard all = {0};
        const sonde_finding found = judge(course, run, &all);

        assert_int_equal(all.severity[0], SONDE_SEVERITY_NOTE);
        if (course == STAYS_LOW) {
            assert_int_equal(all.calls, 1);
            assert_int_equal(all.stops, 0);
            assert_int_equal(found.severity, SONDE_SEVERITY_NOTE);
            assert_int_equal(found.raised_step, 0);
            assert_int_equal(count_lines(run, "\"severity\":\"note\""), 2);
            continue;
        }
        assert_int_equal(all.calls, 2);
        assert_int_equal(all.severity[1], SONDE_SEVERITY_ERROR);
        assert_int_equal(all.stops, 1); /* at the level that it is for, once */
        assert_int_equal(found.severity, SONDE_SEVERITY_ERROR);
        assert_int_equal(found.raised_from, SONDE_SEVERITY_NOTE);
        assert_true(found.raised_step > 90 && found.raised_step < 110);
        /* the same finding, after those lines: as it rose, and at the end */
        assert_int_equal(count_lines(run, "\"raised_from\":\"note\""), 2);
        assert_int_equal(count_lines(run, "\"severity\":\"note\""), 2);
        (void)judge(course, run, &all); /* says nothing new */
        assert_int_equal(count_lines(run, "\"id\""), 4);
    }
    assert_int_equal(nftw(run, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

static void an_error_is_resolved_when_training_goes_well_after_all(void **state)
{
    char run[] = "/tmp/sonde_states_XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(run));
    for (int course = NEVER_FELL; course < COURSES; course++) {
        heard all = {0};
        const sonde_finding found = judge(course, run, &all);

        assert_int_equal(all.calls, 1);
        assert_int_equal(found.severity, SONDE_SEVERITY_ERROR);
        assert_int_equal(found.resolved_step > 0, course == FALLS_LATE);
    }
    assert_int_equal(count_lines(run, "\"resolved_step\":"), 1);
    assert_int_equal(nftw(run, remove_one, 8, FTW_DEPTH | FTW_PHYS), 0);
}

/* --- what needs no loss ---------------------------------------------------------------- */

enum { LAYERS = 4 };

/* Layer fc<cut> requires a gradient and has none. used: its output is seen, as those of the
 * others are; teacher: a copy without gradients follows the layers. From step `from` on the
 * trained layers stay, though they have gradients. */
static void train(stream *s, int cut, bool used, bool teacher, int from)
{
    uint32_t weight[2 * LAYERS], gradient[LAYERS], output[LAYERS];
    float w = 1.0F, follows = 1.0F;

    stream_open(s, "FrozenParameter");
    for (int i = 0; i < 2 * LAYERS; i++) {
        char name[64];

        (void)snprintf(name, sizeof name, "%sfc%d.weight", i < LAYERS ? "" : "slow.",
                       i % LAYERS);
        weight[i] = stream_declare(s, name, SONDE_ROLE_WEIGHT, 4, 4);
        if (i < LAYERS) {
            (void)snprintf(name, sizeof name, "gradient/fc%d.weight", i);
            gradient[i] = stream_declare(s, name, SONDE_ROLE_GRADIENT, 4, 4);
            (void)snprintf(name, sizeof name, "%s%d_output_0",
                           used || i != cut ? "fc" : "other", i);
            output[i] = stream_declare(s, name, SONDE_ROLE_ACTIVATION, 4, 4);
        }
    }
    stream_begin(s);
    for (int step = 0; step < 60; step++) {
        w -= step < from ? 0.01F : 0.0F;
        follows += 0.1F * (w - follows);
        for (int i = 0; i < LAYERS; i++) {
            stream_put_all(s, weight[i], i == cut ? 1.0F : w);
            stream_put_all(s, output[i], 1.0F);
            if (i != cut) {
                stream_put_all(s, gradient[i], 1.0F + 0.1F * stream_normal(s));
            }
            if (teacher) {
                stream_put_all(s, weight[LAYERS + i], follows);
            }
        }
        stream_end(s);
    }
}

static void a_weight_that_requires_a_gradient_gets_one(void **state)
{
    stream s;

    (void)state;
    for (int used = 0; used < 2; used++) {
        train(&s, 0, used == 1, false, 60);
        assert_int_equal(stream_expect(&s, "fc0.weight", 40).severity,
                         used ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
        stream_close(&s);
    }
}

static void a_teacher_does_not_hide_that_nothing_changes(void **state)
{
    stream s;

    (void)state;
    train(&s, -1, true, true, 30);
    assert_true(stream_count(&s) > 0);
    assert_int_equal(sonde_rules_findings(s.rules, &(size_t){0})->severity,
                     SONDE_SEVERITY_ERROR);
    stream_close(&s);
}

/* A layer of dead units and a loss that rises: declared as one that need not fall, or not.
 * rewards: an input of that name is declared; and seen. */
static sonde_severity judge_free(const char *note, int rewards)
{
    stream s;
    sonde_tensor_info info = {.name = "score",
                              .role = SONDE_ROLE_LOSS,
                              .dtype = SONDE_F32,
                              .same_as = SONDE_NO_TENSOR,
                              .note = note};
    uint32_t id = 0, loss = 0, input = 0;
    sonde_severity severity = SONDE_SEVERITY_NOTE;

    stream_open(&s, "DeadRelu");
    assert_int_equal(sonde_rules_add_list(s.rules, "PoorWeightInitialization", NULL),
                     SONDE_OK);
    id = stream_declare(&s, "relu_output_0", SONDE_ROLE_ACTIVATION, ROWS, COLUMNS);
    assert_int_equal(sonde_catalogue_declare(s.catalogue, &info, &loss, NULL), SONDE_OK);
    if (rewards > 0) {
        input = stream_declare(&s, "rewards", SONDE_ROLE_INPUT, ROWS, 0);
    }
    stream_begin(&s);
    for (int step = 0; step < 80; step++) {
        stream_put_all(&s, id, 0.0F);
        stream_put_all(&s, loss, 1.0F + 0.1F * (float)step);
        if (rewards > 1) {
            stream_put_all(&s, input, 1.0F);
        }
        stream_end(&s);
    }
    sonde_rules_finish(s.rules);
    severity = stream_found(&s, "relu_output_0")->severity;
    stream_close(&s);
    return severity;
}

static void a_program_declares_that_a_loss_need_not_fall(void **state)
{
    (void)state;
    assert_int_equal(judge_free(NULL, 0), SONDE_SEVERITY_ERROR);
    assert_int_equal(judge_free(SONDE_NOTE_FREE, 0), SONDE_SEVERITY_NOTE);
    assert_int_equal(judge_free(NULL, 1), SONDE_SEVERITY_ERROR); /* none is seen */
    assert_int_equal(judge_free(NULL, 2), SONDE_SEVERITY_NOTE);
}

/* The losses fall; from step 60 on they are those of the beginning again, or lower. */
static void a_loss_that_returns_to_its_first_level_is_found(void **state)
{
    (void)state;
    for (int lost = 0; lost < 3; lost++) {
        stream s;
        uint32_t loss = 0;

        stream_open(&s, "LossSpike");
        loss =
            stream_declare(&s, lost == 2 ? "actor_loss" : "loss", SONDE_ROLE_LOSS, 0, 0);
        stream_begin(&s);
        for (int step = 0; step < 100; step++) {
            const double fallen = fmin(step, 60) / 60.0 * 0.4;

            stream_put_all(&s, loss,
                           (float)(2.5 * (1.0 - (step < 60   ? fallen
                                                 : lost == 0 ? 0.3
                                                             : 0.0)) +
                                   0.02 * (double)stream_normal(&s)));
            stream_end(&s);
        }
        if (lost == 1) {
            assert_int_equal(stream_expect(&s, "loss", 74).severity,
                             SONDE_SEVERITY_WARNING);
        } else {
            stream_expect_clean(&s);
        }
        stream_close(&s);
    }
}

/* The loss returns to its first level in one step, and weights move as before (the next
 * task of continual learning), or jump. */
static void a_next_task_is_no_warning(void **state)
{
    (void)state;
    for (int jump = 0; jump < 2; jump++) {
        stream s;
        uint32_t loss = 0, weight = 0;
        float w = 1.0F;

        stream_open(&s, "LossSpike");
        loss = stream_declare(&s, "loss", SONDE_ROLE_LOSS, 0, 0);
        weight = stream_declare(&s, "fc.weight", SONDE_ROLE_WEIGHT, 4, 4);
        stream_begin(&s);
        for (int step = 0; step < 100; step++) {
            const double fallen = step < 60 ? step / 60.0 * 0.4 : 0.0;

            w += jump && step == 59 ? 1.0F : 0.01F;
            stream_put_all(
                &s, loss,
                (float)(2.5 * (1.0 - fallen) + 0.02 * (double)stream_normal(&s)));
            stream_put_all(&s, weight, w);
            stream_end(&s);
        }
        assert_int_equal(stream_expect(&s, "loss", 74).severity,
                         jump ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_NOTE);
        stream_close(&s);
    }
}

/* Gradients of which each has one more in it than the one before; or that grow. */
static void sums_of_equal_gradients_are_found(void **state)
{
    (void)state;
    for (int sums = 0; sums < 2; sums++) {
        stream s;
        uint32_t gradient = 0;
        float g[N], mean[N];

        stream_open(&s, "MissingZeroGrad");
        gradient =
            stream_declare(&s, "gradient/fc.weight", SONDE_ROLE_GRADIENT, ROWS, COLUMNS);
        stream_begin(&s);
        for (int i = 0; i < N; i++) {
            mean[i] = stream_normal(&s);
            g[i] = 0.0F;
        }
        for (int step = 0; step < 8; step++) {
            for (int i = 0; i < N; i++) {
                g[i] = sums ? g[i] + mean[i] * (1.0F + 0.02F * stream_normal(&s))
                            : mean[i] * powf(1.3F, (float)step);
            }
            stream_put(&s, gradient, g);
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        assert_int_equal(stream_count(&s), sums);
        stream_close(&s);
    }
}

/* A bias whose gradient is 0 but for rounding, beside weights of 1: or alone. */
static void what_is_negligible_may_jump(void **state)
{
    (void)state;
    for (int alone = 0; alone < 2; alone++) {
        stream s;
        uint32_t bias = 0, weight = 0;

        stream_open(&s, "UpdateSpike");
        bias = stream_declare(&s, "k_lin.bias", SONDE_ROLE_BIAS, 64, 0);
        weight = stream_declare(&s, "k_lin.weight", SONDE_ROLE_WEIGHT, 8, 8);
        stream_begin(&s);
        for (int step = 0; step < 30; step++) {
            float b[64];

            for (int i = 0; i < 64; i++) {
                b[i] = 1e-7F * (1.0F + 0.001F * (float)((i + step) % 7));
            }
            b[5] = step >= 20 ? 1e-5F : b[5];
            stream_put(&s, bias, b);
            if (!alone) {
                stream_put_normal(&s, weight, 0.0, 1.0);
            }
            stream_end(&s);
        }
        sonde_rules_finish(s.rules);
        assert_int_equal(stream_count(&s), alone);
        stream_close(&s);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_note_rises_when_training_goes_badly_later),
        cmocka_unit_test(an_error_is_resolved_when_training_goes_well_after_all),
        cmocka_unit_test(a_program_declares_that_a_loss_need_not_fall),
        cmocka_unit_test(a_weight_that_requires_a_gradient_gets_one),
        cmocka_unit_test(a_teacher_does_not_hide_that_nothing_changes),
        cmocka_unit_test(a_loss_that_returns_to_its_first_level_is_found),
        cmocka_unit_test(a_next_task_is_no_warning),
        cmocka_unit_test(sums_of_equal_gradients_are_found),
        cmocka_unit_test(what_is_negligible_may_jump),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
