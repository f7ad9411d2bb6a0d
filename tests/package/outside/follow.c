/* Reads a run as it is written: prints the loss of every step until the run ends. */
#include <sonde/sonde.h>

#include <stdio.h>

int main(int argc, char **argv)
{
    sonde_trial *trial = NULL;
    sonde_run_info info;
    uint32_t loss = 0;
    size_t printed = 0;
    sonde_diag diag;

    if (argc < 2 || sonde_trial_open(argv[1], NULL, &trial, &diag) != SONDE_OK ||
        sonde_catalogue_find(sonde_trial_catalogue(trial), "loss", &loss, &diag) !=
            SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fprintf(stderr, "error: %s\n",
                argc < 2 ? "no run" : sonde_diag_line(&diag, line, sizeof line));
        return 1;
    }
    do {
        size_t count = 0;
        int64_t *steps = NULL;

        if (sonde_trial_refresh(trial, NULL, &diag) != SONDE_OK ||
            sonde_trial_tensor_steps(trial, loss, SONDE_MODE_TRAIN, 0, &steps, &count,
                                     &diag) != SONDE_OK) {
            return 1;
        }
        for (; printed < count; printed++) {
            const sonde_trial_at place = {SONDE_MODE_TRAIN, steps[printed], -1, -1, -1};
            sonde_vitals vitals;

            if (sonde_trial_vitals(trial, loss, &place, &vitals, &diag) == SONDE_OK) {
                printf("%lld %g\n", (long long)steps[printed],
                       sonde_vitals_get(&vitals, SONDE_STAT_MEAN));
            }
        }
        sonde_release(steps);
        sonde_trial_describe(trial, &info);
    } while (info.status == SONDE_RUN_RUNNING);
    sonde_trial_close(trial);
    return printed > 0 ? 0 : 2;
}
