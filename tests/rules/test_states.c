/*
 * A finding is a state: it rises when training, which went well, goes badly later, and is
 * resolved when training goes well after all; its lines in a file, the callback and actions
 * follow. And defects that need no loss to be sure.
 */
#include "rules/stream.h"

#include "base/macros.h"

#include <sonde/actions.h>

#include <unistd.h>

enum { ROWS = 32, COLUMNS = 8, STEPS = 160 };
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
    sonde_finding finding;

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
    finding = *stream_found(&s, "relu_output_0");
    finding.tensor = finding.message = "";
    {
        sonde_actions_stats stats;

        assert_true(sonde_actions_finish(all->actions, 1.0));
        sonde_actions_get_stats(all->actions, &stats);
        all->stops = (int)stats.done;
        sonde_actions_destroy(all->actions);
    }
    stream_close(&s);
    return finding;
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
    stream_remove(run);
}

static void an_error_is_resolved_when_training_goes_well_after_all(void **state)
{
    char run[] = "/tmp/sonde_states_XXXXXX";

    (void)state;
    assert_non_null(mkdtemp(run));
    for (int course = NEVER_FELL; course < COURSES; course++) {
        heard all = {0};
        const sonde_finding finding = judge(course, run, &all);

        assert_int_equal(all.calls, 1);
        assert_int_equal(finding.severity, SONDE_SEVERITY_ERROR);
        assert_int_equal(finding.resolved_step > 0, course == FALLS_LATE);
    }
    assert_int_equal(count_lines(run, "\"resolved_step\":"), 1);
    stream_remove(run);
}

/* --- what needs no loss ---------------------------------------------------------------- */

enum { LAYERS = 4 };

/* The first layer requires a gradient and has none; all get one; all get one and do not
 * change from step 30 on, and a copy without gradients follows them. */
enum { CUT, TEACHER };

static void train(stream *s, int kind, int step)
{
    float *w = s->values[0], *follows = s->values[1];

    *w = step == 0 ? 1.0F : *w;
    *follows = step == 0 ? 1.0F : *follows;
    *w -= kind == CUT || step < 30 ? 0.01F : 0.0F;
    *follows += 0.1F * (*w - *follows);
    for (uint32_t i = 0; i < LAYERS; i++) {
        const bool cut = kind == CUT && i == 0;

        stream_put_all(s, 3 * i, cut ? 1.0F : *w);
        stream_put_all(s, 3 * i + 2, 1.0F);
        if (!cut) {
            stream_put_all(s, 3 * i + 1, 1.0F + 0.1F * stream_normal(s));
        }
        if (kind == TEACHER) {
            stream_put_all(s, 3 * LAYERS + i, *follows);
        }
    }
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
static void returns(stream *s, int lower, int step)
{
    const double fallen = step < 60 ? step / 60.0 * 0.4 : lower ? 0.3 : 0.0;

    stream_put_all(s, 0, (float)(2.5 * (1.0 - fallen) + 0.02 * (double)stream_normal(s)));
}

/* The loss returns to its first level in one step, and weights move as before (the next
 * task of continual learning), or jump. */
static void next_task(stream *s, int jumps, int step)
{
    float *w = s->values[0];

    returns(s, 0, step);
    *w += jumps && step == 59 ? 1.0F : 0.01F;
    stream_put_all(s, 1, 1.0F + *w);
}

/* A bias whose gradient is 0 but for rounding, beside weights of 1: or alone. */
static void negligible(stream *s, int alone, int step)
{
    float b[64];

    for (int i = 0; i < 64; i++) {
        b[i] = 1e-7F * (1.0F + 0.001F * (float)((i + step) % 7));
    }
    b[5] = step >= 20 ? 1e-5F : b[5];
    stream_put(s, 0, b);
    if (!alone) {
        stream_put_normal(s, 1, 0.0, 1.0);
    }
}

#define LAYER(name, output)                                                              \
    "weight " name ".weight 4 4 + gradient gradient/" name                               \
    ".weight 4 4 + activation " output "_output_0 4 4"
#define BIAS "bias k_lin.bias 64, weight k_lin.weight 8 8"

static const stream_case cases[] = {
    {"a weight of a layer that is used gets no gradient", "FrozenParameter",
     LAYER("stem", "stem") ", 3*" LAYER("fc#", "fc#"), train, CUT, 60, WARNED,
     "stem.weight", 40},
    {"a weight of a layer that is not used gets no gradient", "FrozenParameter",
     LAYER("stem", "other") ", 3*" LAYER("fc#", "fc#"), train, CUT, 60, NOTED,
     "stem.weight", 40},
    {"a teacher does not hide that nothing changes", "FrozenParameter",
     "4*" LAYER("fc#", "fc#") ", 4*weight slow.fc#.weight 4 4", train, TEACHER, 60,
     FAILED},
    {"a loss rises, but not to its first level", "LossSpike", "loss loss", returns, 1,
     100},
    {"a loss returns to its first level", "LossSpike", "loss loss", returns, 0, 100,
     WARNED, "loss", 74},
    {"the loss of an actor returns", "LossSpike", "loss actor_loss", returns, 0, 100},
    {"a next task is no warning", "LossSpike", "loss loss, weight fc.weight 4 4",
     next_task, 0, 100, NOTED, "loss", 74},
    {"a loss returns as weights jump", "LossSpike", "loss loss, weight fc.weight 4 4",
     next_task, 1, 100, WARNED, "loss", 74},
    {"what is negligible may jump", "UpdateSpike", BIAS, negligible, 0, 30, SILENT},
    {"what is alone is not negligible", "UpdateSpike", BIAS, negligible, 1, 30, FOUND,
     .findings = 1},
};

int main(void)
{
    const struct CMUnitTest others[] = {
        cmocka_unit_test(a_note_rises_when_training_goes_badly_later),
        cmocka_unit_test(an_error_is_resolved_when_training_goes_well_after_all),
        cmocka_unit_test(a_program_declares_that_a_loss_need_not_fall),
    };

    return stream_main(cases, SONDE_COUNT_OF(cases), others, SONDE_COUNT_OF(others));
}
