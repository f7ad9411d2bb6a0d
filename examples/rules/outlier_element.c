/*
 * outlier_element.c - a rule in C to copy: one element of a weight outgrows all others,
 * as after a flipped bit.
 *
 *     cc -shared -fPIC -o outlier_element.so outlier_element.c $(pkg-config --cflags sonde) -lm
 *     sonde rules RUN --rules ./outlier_element.so:factor=50
 */
#include <sonde/sonde.h>

#include <math.h>

/* Parameters, and what the rule keeps between steps. */
typedef struct state {
    double factor;
    int64_t patience;
} state;

/* What it keeps for each tensor. */
typedef struct tensor_memory {
    int64_t steps; /* in a row at which the condition held */
} tensor_memory;

static const sonde_rule_param params[] = {
    {"factor", SONDE_RULE_REAL, "100", 1, 1e12, "multiple of the root mean square",
     offsetof(state, factor), false},
    {"patience", SONDE_RULE_COUNT, "1", 1, 1e6, "observed steps in a row",
     offsetof(state, patience), false},
};
static const sonde_rule_need needs[] = {{.what = "weights", .how = SONDE_HOW_VITALS}};

/* Called once for every tensor: returns the index of the need that it serves. */
static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->role == SONDE_ROLE_WEIGHT && info->same_as == id ? 0 : SONDE_RULE_IGNORE;
}

static void step(sonde_rule_run *run)
{
    const state *self = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals; /* NULL: not seen at this step */
        tensor_memory *memory = tensors[i].memory;

        if (v == NULL) {
            continue;
        }
        const double ratio = v->abs_max / sqrt(v->sumsq / (double)v->count);
        memory->steps = ratio > self->factor ? memory->steps + 1 : 0;
        if (memory->steps >= self->patience &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "abs_max / rms", ratio,
                             self->factor)) {
            sonde_rule_say(run, NULL, "One element is %.3g times the root mean square.",
                           ratio);
        }
    }
}

static const sonde_rule outlier_element = {
    .abi = SONDE_RULE_ABI,
    .name = "OutlierElement",
    .summary = "one element of a weight outgrows all others",
    .condition =
        "abs_max is above `factor` times the root mean square at `patience` steps in a row.",
    .advice = "Look for a flipped bit; resume from the last checkpoint.",
    SONDE_RULE_PARAMS(params),
    SONDE_RULE_NEEDS(needs),
    .state_size = sizeof(state),
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .step = step,
};
SONDE_RULE_PLUGIN(&outlier_element);
