/* The same loop, judged while it runs: at too high a rate the weight explodes. */
#include <sonde/sonde.h>

#include <stdio.h>

static void on_finding(void *user, const sonde_finding *finding, bool again)
{
    if (!again) {
        ++*(int *)user;
        printf("%s at step %lld of %s\n", finding->rule, (long long)finding->step,
               finding->tensor);
    }
}

int main(void)
{
    sonde_rules *rules = NULL;
    sonde_watch *watch = NULL;
    sonde_watch_options options = {.size = sizeof options};
    float weight = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &weight);
    uint32_t slot = 0;
    int findings = 0;
    sonde_diag diag;

    if (sonde_rules_create(&rules, &diag) != SONDE_OK ||
        sonde_rules_add_list(rules, "ExplodingTensor,NonFinite", &diag) != SONDE_OK) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.found);
        return 1;
    }
    sonde_rules_on_finding(rules, on_finding, &findings);
    options.rules = rules;
    if (sonde_watch_create(&options, &watch, &diag) != SONDE_OK ||
        sonde_watch_add_view(watch, "line.weight", &view, &slot, &diag) != SONDE_OK) {
        fprintf(stderr, "%s: %s\n", diag.where, diag.found);
        return 1;
    }
    for (int step = 0; step < 200; step++) {
        if (sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag) != SONDE_OK) {
            return 1;
        }
        sonde_watch_see(watch, slot, &view);
        sonde_watch_end_step(watch);
        weight *= -3.0F;
    }
    if (sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag) != SONDE_OK) {
        return 1;
    }
    sonde_rules_destroy(rules);
    return findings > 0 ? 0 : 2;
}
