/*
 * foreign_program.c - a program with its own training loop that declares what a step does,
 * with libsonde alone.
 *
 *     foreign_program RUN [twice]
 *
 * A linear classifier learns which of three sectors a point lies in. The program of a step
 * (<sonde/program.h>) is declared at the first step: its operations with their lines, and
 * its events in order. It is recorded in RUN (`sonde program RUN` prints it), and the
 * default rules read it. With the word "twice", softmax is applied twice: the loss falls
 * all the same, but the rules name the mistake and its line at the first step.
 */
#include <sonde/sonde.h>

#include <math.h>
#include <string.h>

#include "example.h"

enum { POINTS = 96, CLASSES = 3, STEPS = 200 };

static float x[POINTS][2], scores[POINTS][CLASSES], once[POINTS][CLASSES], loss;
static float weight[CLASSES][2], bias[CLASSES];
static float weight_grad[CLASSES][2], bias_grad[CLASSES], scores_grad[POINTS][CLASSES];
static int64_t label[POINTS];
static sonde_diag diag;

/* --- a step ------------------------------------------------------------------------- */

static void make_points(void)
{
    for (int i = 0; i < POINTS; i++) {
        const float angle = 6.2831853F * (float)i / POINTS;

        x[i][0] = cosf(angle);
        x[i][1] = sinf(angle);
        label[i] = (int64_t)i * CLASSES / POINTS;
    }
}

static void linear(void)
{
    for (int i = 0; i < POINTS; i++) {
        for (int c = 0; c < CLASSES; c++) {
            scores[i][c] = weight[c][0] * x[i][0] + weight[c][1] * x[i][1] + bias[c];
        }
    }
}

static void softmax(const float *from, float *to)
{
    float sum = 0.0F;

    for (int c = 0; c < CLASSES; c++) {
        sum += to[c] = expf(from[c]);
    }
    for (int c = 0; c < CLASSES; c++) {
        to[c] /= sum;
    }
}

/* The loss, and its gradient with respect to `from` in scores_grad. */
static void cross_entropy(float from[POINTS][CLASSES])
{
    loss = 0.0F;
    for (int i = 0; i < POINTS; i++) {
        softmax(from[i], scores_grad[i]);
        loss -= logf(scores_grad[i][label[i]]) / POINTS;
        scores_grad[i][label[i]] -= 1.0F;
    }
}

/* The gradient of scores where softmax comes between them and the loss. */
static void softmax_backward(void)
{
    for (int i = 0; i < POINTS; i++) {
        float sum = 0.0F;

        for (int c = 0; c < CLASSES; c++) {
            sum += scores_grad[i][c] * once[i][c];
        }
        for (int c = 0; c < CLASSES; c++) {
            scores_grad[i][c] = once[i][c] * (scores_grad[i][c] - sum);
        }
    }
}

static void backward(bool twice)
{
    memset(weight_grad, 0, sizeof weight_grad);
    memset(bias_grad, 0, sizeof bias_grad);
    if (twice) {
        softmax_backward();
    }
    for (int i = 0; i < POINTS; i++) {
        for (int c = 0; c < CLASSES; c++) {
            bias_grad[c] += scores_grad[i][c] / POINTS;
            weight_grad[c][0] += scores_grad[i][c] * x[i][0] / POINTS;
            weight_grad[c][1] += scores_grad[i][c] * x[i][1] / POINTS;
        }
    }
}

static void update(void)
{
    for (int c = 0; c < CLASSES; c++) {
        bias[c] -= 0.5F * bias_grad[c];
        weight[c][0] -= 0.5F * weight_grad[c][0];
        weight[c][1] -= 0.5F * weight_grad[c][1];
    }
}

/* The lines of the source that call these, for the program. */
enum { LINEAR, SOFTMAX, LOSS, BACKWARD, UPDATE, CALLS };
static int lines[CALLS];
#define CALL(which, function) (lines[which] = __LINE__, (function))

static void train(bool twice)
{
    CALL(LINEAR, linear());
    for (int i = 0; twice && i < POINTS; i++) {
        CALL(SOFTMAX, softmax(scores[i], once[i]));
    }
    CALL(LOSS, cross_entropy(twice ? once : scores));
    CALL(BACKWARD, backward(twice));
    CALL(UPDATE, update());
}

/* --- its program -------------------------------------------------------------------- */

static sonde_place at(int call)
{
    return (sonde_place){"foreign_program.c", lines[call]};
}

enum { X, LABEL, WEIGHT, BIAS, SCORES, RESULT, ONCE }; /* its values */

static const sonde_program_value values[] = {
    {SONDE_VALUE_INPUT, SONDE_F32, 2, {POINTS, 2}, "input", -1, -1, false},
    {SONDE_VALUE_INPUT, SONDE_I64, 1, {POINTS}, "labels", -1, -1, false},
    {SONDE_VALUE_PARAMETER, SONDE_F32, 2, {CLASSES, 2}, "fc.weight", -1, 0, true},
    {SONDE_VALUE_PARAMETER, SONDE_F32, 1, {CLASSES}, "fc.bias", -1, 1, true},
    {SONDE_VALUE_COMPUTED, SONDE_F32, 2, {POINTS, CLASSES}, "fc_output_0", -1, -1, true},
    {SONDE_VALUE_COMPUTED, SONDE_F32, 0, {0}, "loss", -1, -1, true},
    {SONDE_VALUE_COMPUTED, SONDE_F32, 2, {POINTS, CLASSES}, NULL, -1, -1, true}};
static const sonde_program_module fc = {
    .name = "fc", .kind = "Linear", .registered = true, .called = true, .training = true};
static const sonde_program_parameter parameters[] = {
    {"fc.weight", 0, (int64_t)CLASSES * 2, true, 0, true, true},
    {"fc.bias", 0, CLASSES, true, 0, true, true}};
static const sonde_program_optimizer sgd = {.name = "optimizer", .kind = "SGD"};

/* The operations of a step; returns how many. */
static size_t list_nodes(bool twice, sonde_program_node nodes[3])
{
    static const int of_linear[] = {X, WEIGHT, BIAS}, scores_of[] = {SCORES};
    static const int once_of[] = {ONCE}, result[] = {RESULT};
    static const int of_loss[] = {SCORES, LABEL}, of_loss_once[] = {ONCE, LABEL};
    static const sonde_program_attribute dim = {"dim", "1", 1.0};
    size_t count = 0;

    nodes[count++] =
        (sonde_program_node){"linear", {0}, of_linear, 3, scores_of, 1, 0, at(LINEAR)};
    if (twice) {
        nodes[count++] = (sonde_program_node){
            "softmax", {&dim, 1}, scores_of, 1, once_of, 1, -1, at(SOFTMAX)};
    }
    nodes[count++] = (sonde_program_node){
        "cross_entropy", {0}, twice ? of_loss_once : of_loss, 2, result, 1, -1, at(LOSS)};
    return count;
}

static sonde_program_event event(sonde_event_kind kind, int value, int node, int call)
{
    const bool forward = kind == SONDE_EVENT_FORWARD;

    return (sonde_program_event){.kind = kind,
                                 .module = forward ? 0 : -1,
                                 .value = value,
                                 .node = node,
                                 .optimizer = kind == SONDE_EVENT_STEP ? 0 : -1,
                                 .training = forward,
                                 .grad = true,
                                 .place = at(call)};
}

static void declare(sonde_watch *watch, bool twice)
{
    sonde_program_node nodes[3];
    const size_t count = list_nodes(twice, nodes);
    const int last = (int)count - 1;
    const sonde_program_event events[] = {
        event(SONDE_EVENT_FORWARD, -1, -1, LINEAR),
        event(SONDE_EVENT_LOSS, RESULT, last, LOSS),
        event(SONDE_EVENT_BACKWARD, RESULT, -1, BACKWARD),
        event(SONDE_EVENT_STEP, -1, -1, UPDATE),
    };
    const sonde_program_loss losses[] = {{.node = last,
                                          .value = RESULT,
                                          .predictions = twice ? ONCE : SCORES,
                                          .targets = LABEL,
                                          .backward = 2}};

    TRY(sonde_watch_program(watch,
                            &(sonde_program){.size = sizeof(sonde_program),
                                             .producer = "foreign_program",
                                             .mode = SONDE_MODE_TRAIN,
                                             .values = values,
                                             .value_count = twice ? 7 : 6,
                                             .nodes = nodes,
                                             .node_count = count,
                                             .modules = &fc,
                                             .module_count = 1,
                                             .parameters = parameters,
                                             .parameter_count = 2,
                                             .optimizers = &sgd,
                                             .optimizer_count = 1,
                                             .events = events,
                                             .event_count = 4,
                                             .losses = losses,
                                             .loss_count = 1,
                                             .complete = true},
                            &diag));
}

/* --- watched ------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void *data;
    int rank;
    int64_t shape[2];
} tensors[] = {{"fc.weight", weight, 2, {CLASSES, 2}},
               {"fc.bias", bias, 1, {CLASSES}},
               {"gradient/fc.weight", weight_grad, 2, {CLASSES, 2}},
               {"gradient/fc.bias", bias_grad, 1, {CLASSES}},
               {"fc_output_0", scores, 2, {POINTS, CLASSES}},
               {"loss", &loss, 0, {0}}};
enum { TENSORS = sizeof tensors / sizeof *tensors };

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    char where[256];

    (void)user;
    if (!again) {
        (void)printf("step %lld: %s: %s%s: %s\n", (long long)finding->step, finding->rule,
                     finding->tensor, sonde_finding_where(finding, where, sizeof where),
                     finding->message);
    }
}

int main(int argc, char **argv)
{
    const bool twice = argc > 2 && strcmp(argv[2], "twice") == 0;
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(sonde_recorder,
                                .path = argc > 1 ? argv[1] : "foreign-program-run",
                                .program = "foreign_program")};
    sonde_watch_options watched = {.size = sizeof watched};
    sonde_watch *watch = NULL;
    sonde_view views[TENSORS];
    uint32_t slots[TENSORS];
    size_t found = 0;

    TRY(sonde_hook_create(&options, &watched.hook, &diag));
    TRY(sonde_rules_create(&watched.rules, &diag));
    TRY(sonde_rules_add_list(watched.rules, "default", &diag));
    TRY(sonde_rules_write_to(watched.rules, options.record->path, &diag));
    sonde_rules_on_finding(watched.rules, on_finding, NULL);
    TRY(sonde_watch_create(&watched, &watch, &diag));
    for (int i = 0; i < TENSORS; i++) {
        views[i] =
            sonde_view_of(SONDE_F32, tensors[i].rank, tensors[i].shape, tensors[i].data);
        TRY(sonde_watch_add_view(watch, tensors[i].name, &views[i], &slots[i], &diag));
    }
    make_points();
    for (int step = 0; step < STEPS; step++) {
        TRY(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        train(twice);
        if (step == 0) {
            declare(watch, twice);
        }
        sonde_watch_see_all(watch, slots, views, TENSORS);
        sonde_watch_end_step(watch);
    }
    TRY(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    (void)sonde_rules_findings(watched.rules, &found);
    (void)printf("%zu findings; loss after %d steps: %.4f\n", found, STEPS, (double)loss);
    sonde_rules_destroy(watched.rules);
    return found > 0;
}
