/*
 * StalledTraining - no new step for `threshold` seconds.
 *
 * Judges a run while it is followed, by the time since its last step. A run that has
 * ended is not stalled.
 */
#include "rules/builtin/builtin.h"

typedef struct stalled {
    double threshold;
    bool stop_training_on_fire, followed;
    const char *training_job_name_prefix;
} stalled;

static const sonde_rule_param params[] = {
    SONDE__REAL(stalled, threshold, "1800", 0, 1e9,
                "number of seconds without a new step"),
    SONDE__FLAG(stalled, stop_training_on_fire, "false",
                "ask the run to stop, as the action 'stop' does"),
    SONDE__TEXT(stalled, training_job_name_prefix, NULL,
                "stop the run only if the name of its folder starts with this prefix"),
};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    (void)info;
    (void)id;
    return SONDE_RULE_IGNORE;
}

static void idle(sonde_rule_run *run, double seconds)
{
    stalled *state = sonde_rule_state(run);

    state->followed = true;
    if (seconds >= state->threshold) {
        sonde__rule_report(run, NULL, SONDE__SURE(ERROR), "seconds", seconds,
                           state->threshold, NULL,
                           "The run has had no new step for %.0f s.", seconds);
    }
}

static void finish(sonde_rule_run *run)
{
    const stalled *state = sonde_rule_state(run);

    if (!state->followed) {
        sonde_rule_lacked(run,
                          "the run was not followed while it was written (--follow)");
    }
}

const sonde_rule sonde__builtin_stalled_training = {
    .abi = SONDE_RULE_ABI,
    .name = "StalledTraining",
    .summary = "no new step for a long time",
    .condition =
        "A run that is being followed has not ended, and has had no new step for `threshold` seconds.",
    .advice = "Check that the process still works: look for a deadlock, a loader without "
              "data, or a full disk.",
    SONDE_RULE_PARAMS(params),
    .state_size = sizeof(stalled),
    .wants = wants,
    .idle = idle,
    .finish = finish,
};
