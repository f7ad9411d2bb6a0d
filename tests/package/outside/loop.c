/* A training loop of one's own, recorded by a hook: y = w x, fitted by gradient descent. */
#include <sonde/sonde.h>

#include <stdio.h>

static int failed(const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    fprintf(stderr, "error: %s\n", sonde_diag_line(diag, line, sizeof line));
    return 1;
}

int main(int argc, char **argv)
{
    sonde_recorder_options run = {.size = sizeof run};
    sonde_hook_options options = {.size = sizeof options};
    sonde_watch_options watched = {.size = sizeof watched};
    const sonde_dtype f32 = SONDE_F32;
    const int64_t one[1] = {1};
    float weight[1] = {0.0F}, gradient[1] = {0.0F}, loss[1] = {0.0F};
    const sonde_view views[3] = {sonde_view_of(f32, 1, one, weight),
                                 sonde_view_of(f32, 1, one, gradient),
                                 sonde_view_of(f32, 0, NULL, loss)};
    const char *const names[3] = {"line.weight", "gradient/line.weight", "loss"};
    uint32_t slots[3];
    sonde_diag diag;

    run.path = argc > 1 ? argv[1] : "mine";
    options.record = &run;
    if (sonde_hook_create(&options, &watched.hook, &diag) != SONDE_OK) {
        return failed(&diag);
    }
    sonde_watch *watch = NULL;
    if (sonde_watch_create(&watched, &watch, &diag) != SONDE_OK) {
        (void)sonde_hook_close(watched.hook, SONDE_RUN_FAILED, NULL, NULL);
        return failed(&diag);
    }
    for (int i = 0; i < 3; i++) {
        if (sonde_watch_add_view(watch, names[i], &views[i], &slots[i], &diag) !=
            SONDE_OK) {
            return failed(&diag);
        }
    }
    for (int step = 0; step < 50; step++) {
        const float x = (float)(step % 5) - 2.0F, error = weight[0] * x - 3.0F * x;

        gradient[0] = 2.0F * error * x;
        loss[0] = error * error;
        if (sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag) != SONDE_OK) {
            return failed(&diag);
        }
        sonde_watch_see_all(watch, slots, views, 3);
        sonde_watch_end_step(watch);
        weight[0] -= 0.05F * gradient[0];
    }
    if (sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag) != SONDE_OK) {
        return failed(&diag);
    }
    printf("weight %.3f\n", (double)weight[0]);
    return 0;
}
