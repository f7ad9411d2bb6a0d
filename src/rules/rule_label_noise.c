/*
 * LabelNoise - the loss stays at the entropy of the labels: inputs say nothing about them.
 *
 * With H the entropy (natural logarithm) of the labels seen in training, the losses are averaged
 * over windows of `window` observed steps, after `skip` steps. Fires when for two windows on end
 *     the mean is at H: not two standard errors below it, and not `tolerance` above;
 *     it is known well enough to tell: its standard error is below 0.3 % of H (batches of a few
 *     samples need more of them than a window has); and
 *     it does not fall: by less than one standard error of its difference to the window before;
 *     but one that comes from above H and is still above it has learnt nothing either;
 * and the last mean is not below H at all: what has nothing to learn cannot get there (Gibbs).
 * Labels that are shuffled keep a cross-entropy there; so does a network that learns nothing. H
 * below 0.1 (a single class) is ClassImbalance's. Evidence: losses, and raw labels.
 */
#include "rules/builtin.h"
#include "rules/labels.h"

enum { LOSSES = 0, LABELS = 1, LABELS_REGEX = 0 };

typedef struct noise {
    const char *labels_regex;
    int64_t window, skip;
    double tolerance;
    sonde__labels labels; /* of this step */
    int64_t count[SONDE__CLASSES], seen;
} noise;

typedef struct memory {
    int64_t steps, in_window, windows;
    double sum, sumsq;           /* of this window */
    double before, error_before; /* mean and standard error of the one before */
    int64_t stays;               /* windows on end */
} memory;

static const sonde_rule_param params[] = {
    {"labels_regex", SONDE_RULE_REGEX, ".*labels", 0, 0, "expressions that select labels",
     offsetof(noise, labels_regex), false},
    {"window", SONDE_RULE_COUNT, "30", 2, 1e9, "observed steps that are averaged",
     offsetof(noise, window), false},
    {"skip", SONDE_RULE_COUNT, "5", 0, 1e9, "steps that are left out at first",
     offsetof(noise, skip), false},
    {"tolerance", SONDE_RULE_REAL, "0.02", 0, 1, "relative distance from the entropy",
     offsetof(noise, tolerance), false},
};
static const sonde_rule_need needs[] = {{"losses", SONDE_HOW_VITALS, false, false},
                                        {"labels", SONDE_HOW_RAW, false, false}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return info->role == SONDE_ROLE_LOSS && sonde__is_own(info, id) ? LOSSES
           : sonde_rule_matches(run, LABELS_REGEX, id) ||
                   sonde__looks_like_labels(info, id)
               ? LABELS
               : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    noise *state = sonde_rule_state(run);

    (void)tensor;
    state->labels.count = 0;
    if (!sonde__labels_take(&state->labels, seen->view)) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        if (c >= 0 && c < SONDE__CLASSES) {
            state->count[c]++;
            state->seen++;
        }
    }
}

static double entropy(const noise *state)
{
    double sum = 0.0;

    for (int c = 0; c < SONDE__CLASSES && state->seen > 0; c++) {
        const double p = (double)state->count[c] / (double)state->seen;

        sum -= p > 0.0 ? p * log(p) : 0.0;
    }
    return sum;
}

static void end_window(sonde_rule_run *run, size_t i, memory *of)
{
    const noise *state = sonde_rule_state(run);
    const double n = (double)of->in_window, mean = of->sum / n;
    const double error = sqrt(fmax(of->sumsq / n - mean * mean, 0.0) / n);
    const double h = entropy(state);
    const bool there = h > 0.1 && error < 0.003 * h && mean > h - 2.0 * error &&
                       mean < h * (1.0 + state->tolerance);
    const bool falls =
        of->windows == 0 ||
        of->before - mean > sqrt(error * error + of->error_before * of->error_before);

    const bool from_above = of->before > h + 2.0 * of->error_before && mean > h;

    of->stays = there && (!falls || (of->windows > 0 && from_above)) ? of->stays + 1 : 0;
    of->sum = of->sumsq = 0.0;
    of->in_window = 0;
    of->windows++;
    of->before = mean;
    of->error_before = error;
    if (of->stays >= 2 && mean > h &&
        sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "mean", mean, h)) {
        sonde_rule_say(
            run, NULL,
            "It stays at %.4g, and the entropy of the labels is %.4g: the network "
            "knows how frequent classes are and no more.",
            mean, h);
    }
}

static void step(sonde_rule_run *run)
{
    const noise *state = sonde_rule_state(run);
    size_t count = 0;
    sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        memory *of = tensors[i].memory;

        if (tensors[i].need != LOSSES || v == NULL || sonde__finite(v) == 0) {
            continue;
        }
        if (++of->steps > state->skip) {
            of->sum += v->mean;
            of->sumsq += v->mean * v->mean;
            if (++of->in_window >= state->window) {
                end_window(run, i, of);
            }
        }
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__labels_free(&((noise *)sonde_rule_state(run))->labels);
}

const sonde_rule sonde__label_noise = {
    .abi = SONDE_RULE_ABI,
    .name = "LabelNoise",
    .summary = "the loss stays at the entropy of the labels",
    .condition =
        "Over windows of `window` steps the mean loss is at the entropy of the labels, "
        "not below it, and does not fall, twice on end.",
    .advice = "See whether labels still belong to their inputs; if so, raise the "
              "learning rate or "
              "look at the initialisation.",
    .params = params,
    .param_count = SONDE__COUNT_OF(params),
    .needs = needs,
    .need_count = SONDE__COUNT_OF(needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(noise),
    .tensor_size = sizeof(memory),
    .wants = wants,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
