/*
 * foreign_judged.c - a program with its own training loop, recorded and judged while it
 * runs, with libsonde alone.
 *
 *     foreign_judged RUN [RATE]
 *
 * A line is fitted to points by gradient descent. Each tensor is declared once; the watch
 * hands its values to the hook, which records them in RUN, and to the default rules. With a
 * learning rate above 1 (default: 0.1) the fit diverges, and the rules say so at the step.
 */
#include <sonde/sonde.h>

#include "example.h"

enum { POINTS = 32, STEPS = 200 };

static float x[POINTS], y[POINTS], weight[1], bias[1], weight_grad[1], bias_grad[1], loss;
static sonde_diag diag;

/* y = 2 x + 1, with x in -1 ... 1; the weight starts at 0.5. */
static void start(void)
{
    weight[0] = 0.5F;
    for (int i = 0; i < POINTS; i++) {
        x[i] = 2.0F * (float)i / (POINTS - 1) - 1.0F;
        y[i] = 2.0F * x[i] + 1.0F;
    }
}

static void forward_and_backward(void)
{
    loss = weight_grad[0] = bias_grad[0] = 0.0F;
    for (int i = 0; i < POINTS; i++) {
        const float error = weight[0] * x[i] + bias[0] - y[i];

        loss += error * error / POINTS;
        weight_grad[0] += 2.0F * error * x[i] / POINTS;
        bias_grad[0] += 2.0F * error / POINTS;
    }
}

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    (void)user;
    if (!again) {
        (void)printf("step %lld: %s: %s\n", (long long)finding->step, finding->rule,
                     finding->message);
    }
}

int main(int argc, char **argv)
{
    const float rate = argc > 2 ? strtof(argv[2], NULL) : 0.1F;
    const sonde_hook_options options = {
        .size = sizeof options,
        .record = SONDE_OPTIONS(sonde_recorder, .path = argc > 1 ? argv[1] : "judged-run",
                                .program = "judged")};
    const sonde_tensor_info tensors[] = {
        {.name = "line.weight",
         .dtype = SONDE_F32,
         .rank = 1,
         .shape = {1},
         .role = SONDE_ROLE_WEIGHT},
        {.name = "line.bias",
         .dtype = SONDE_F32,
         .rank = 1,
         .shape = {1},
         .role = SONDE_ROLE_BIAS},
        {.name = "gradient/line.weight",
         .dtype = SONDE_F32,
         .rank = 1,
         .shape = {1},
         .role = SONDE_ROLE_GRADIENT},
        {.name = "gradient/line.bias",
         .dtype = SONDE_F32,
         .rank = 1,
         .shape = {1},
         .role = SONDE_ROLE_GRADIENT},
        {.name = "loss", .dtype = SONDE_F32, .role = SONDE_ROLE_LOSS}};
    enum { TENSORS = sizeof tensors / sizeof *tensors };
    void *const data[TENSORS] = {weight, bias, weight_grad, bias_grad, &loss};
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
        TRY(sonde_watch_add(watch, &tensors[i], &slots[i], &diag));
    }
    for (int i = 0; i < TENSORS; i++) {
        views[i] =
            sonde_view_of(tensors[i].dtype, tensors[i].rank, tensors[i].shape, data[i]);
    }
    start();
    for (int step = 0; step < STEPS; step++) {
        TRY(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
        forward_and_backward();
        sonde_watch_see_all(watch, slots, views, TENSORS);
        weight[0] -= rate * weight_grad[0];
        bias[0] -= rate * bias_grad[0];
        sonde_watch_end_step(watch);
    }
    TRY(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
    (void)sonde_rules_findings(watched.rules, &found);
    (void)printf("%zu findings; loss after %d steps: %.4g\n", found, STEPS, (double)loss);
    sonde_rules_destroy(watched.rules);
    return found > 0;
}
