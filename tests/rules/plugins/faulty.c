/*
 * faulty.c - a rule that fails in a given function, at a given step.
 */
#include <sonde/rule.h>

#include <stdio.h>
#include <string.h>

typedef struct faulty {
    const char *in;
    int64_t at;
} faulty;

static const sonde_rule_param params[] = {
    {"in", SONDE_RULE_TEXT, "step", 0, 0, "in which function", offsetof(faulty, in),
     false},
    {"at", SONDE_RULE_COUNT, "3", 0, 0, "at which step", offsetof(faulty, at), false},
};
static const sonde_rule_need needs[] = {
    {.what = "everything", .how = SONDE_HOW_VITALS | SONDE_HOW_RAW}};

static void here(sonde_rule_run *run, const char *in)
{
    const faulty *self = sonde_rule_state(run);

    if (strcmp(self->in, in) == 0) {
        sonde_rule_fail(run, "no more of %d", 7);
    }
}

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    const faulty *self = sonde_rule_state(run);

    if (strcmp(self->in, "init") == 0) {
        (void)snprintf(diag->where, sizeof diag->where, "faulty");
        (void)snprintf(diag->found, sizeof diag->found, "no init");
        diag->err = SONDE_EINVAL;
        return SONDE_EINVAL;
    }
    return SONDE_OK;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)info;
    (void)id;
    here(run, "wants");
    return 0;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    const faulty *self = sonde_rule_state(run);

    (void)tensor;
    if (observation->at.global_step == self->at) {
        here(run, "observe");
    }
}

static void step(sonde_rule_run *run)
{
    const faulty *self = sonde_rule_state(run);

    if (sonde_rule_at(run)->global_step == self->at) {
        here(run, "step");
    }
}

static void idle(sonde_rule_run *run, double seconds)
{
    (void)seconds;
    here(run, "idle");
}

static const sonde_rule rule = {
    .abi = SONDE_RULE_ABI,
    .name = "Faulty",
    .summary = "goes wrong",
    .condition = "When it is told to.",
    .advice = "Mend it.",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .needs = needs,
    .need_count = 1,
    .state_size = sizeof(faulty),
    .init = init,
    .wants = wants,
    .observe = observe,
    .step = step,
    .idle = idle,
};
SONDE_RULE_PLUGIN(&rule);
