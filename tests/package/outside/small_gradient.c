/* A rule in a plug-in: the mean of a tensor's absolute values falls below 0.001. */
#include <sonde/sonde.h>

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    (void)id;
    return info->role == SONDE_ROLE_GRADIENT ? 0 : SONDE_RULE_IGNORE;
}

static void step(sonde_rule_run *run)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const double mean = tensors[i].vitals != NULL
                                ? sonde_vitals_get(tensors[i].vitals, SONDE_STAT_ABS_MEAN)
                                : 1.0;

        if (mean < 0.001 &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "abs_mean", mean, 0.001)) {
            sonde_rule_say(run, NULL, "the gradient is small");
        }
    }
}

static const sonde_rule_need needs[] = {{.how = SONDE_HOW_VITALS, .what = "gradients"}};
static const sonde_rule small = {.abi = SONDE_RULE_ABI,
                                 .name = "SmallGradient",
                                 .summary = "A gradient is small",
                                 .condition = "abs_mean < 0.001",
                                 .advice = "Look at the rate.",
                                 SONDE_RULE_NEEDS(needs),
                                 .wants = wants,
                                 .step = step};
SONDE_RULE_PLUGIN(&small);
