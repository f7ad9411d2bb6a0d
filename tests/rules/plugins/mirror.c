/*
 * mirror.c - rules that use everything a rule can ask and say, of vital signs, raw
 * values, sketches and hashes, so that its findings from several sources can be
 * compared.
 */
#include <sonde/rule.h>

#include <string.h>

/* --- vital signs ------------------------------------------------------------------ */

typedef struct counts {
    const char *collections, *tensors, *text;
    double limit, never;
    int64_t bad_steps, none;
    bool quiet;
} counts;

static const sonde_rule_param params[] = {
    {"collections", SONDE_RULE_COLLECTIONS, "gradients, mine", 0, 0, "h",
     offsetof(counts, collections), false},
    {"tensors", SONDE_RULE_REGEX, "^fc1,nothing{1\\,2}", 0, 0, "h",
     offsetof(counts, tensors), false},
    {"text", SONDE_RULE_TEXT, "a,b", 0, 0, "h", offsetof(counts, text), false},
    {"limit", SONDE_RULE_REAL, "0.1", 0, 0, "h", offsetof(counts, limit), false},
    {"never", SONDE_RULE_REAL, NULL, 0, 0, "h", offsetof(counts, never), false},
    {"none", SONDE_RULE_COUNT, NULL, 0, 0, "h", offsetof(counts, none), false},
    {"quiet", SONDE_RULE_FLAG, "no", 0, 0, "h", offsetof(counts, quiet), false},
};
static const sonde_rule_need needs[] = {
    {.what = "w", .how = SONDE_HOW_VITALS},
    {.what = "rest", .how = SONDE_HOW_VITALS, .optional = true}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    bool given = false;

    (void)info;
    if (sonde_rule_matches(run, 0, id)) {
        return 0;
    }
    return sonde_rule_selected(run, id, &given) && given ? 1 : SONDE_RULE_IGNORE;
}

static void step(sonde_rule_run *run)
{
    counts *self = sonde_rule_state(run);
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    self->bad_steps += sonde_rule_any_bad(run);
    for (size_t i = 0; i < count && !self->quiet; i++) {
        const sonde_vitals *v = tensors[i].vitals;
        uint64_t *seen = tensors[i].memory;

        if (v != NULL && ++*seen > 2 && v->mean > self->limit &&
            sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "mean", v->mean, self->limit)) {
            sonde_rule_say(
                run, i == 0 ? "An advice of its own." : NULL,
                "%s at %lld, need %d, %s, %d.", sonde_rule_info(run, tensors[i].id)->name,
                (long long)sonde_rule_at(run)->mode_step, tensors[i].need, self->text,
                self->never != self->never && self->none == INT64_MIN);
        }
    }
    if (self->bad_steps > 0 &&
        sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_ERROR, "bad", 1, 0)) {
        sonde_rule_say(run, NULL, "Something is bad.");
    }
    sonde_rule_lacked(run, "%s", self->bad_steps > 0 ? "finite values" : "");
}

/* --- the rest --------------------------------------------------------------------- */

typedef struct last {
    uint64_t hash, found;
} last;

static const sonde_rule_need rest_needs[] = {
    {.what = "values",
     .how = SONDE_HOW_RAW | SONDE_HOW_SKETCH | SONDE_HOW_HASH,
     .when = {.every = 1}}};

static int wants_all(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    return info->same_as == id ? 0 : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    last *self = tensor->memory;
    size_t count = 0;
    const size_t i = (size_t)(tensor - sonde_rule_tensors(run, &count));

    if (observation->view != NULL) {
        const int64_t n = sonde_view_count(observation->view);
        double sum = 0;
        int64_t index[SONDE_MAX_DIMS] = {0};

        for (int64_t k = 0; k < n; k++) { /* the k-th in row-major order */
            int64_t rest = k;

            for (int d = observation->view->rank - 1; d >= 0; d--) {
                index[d] = rest % observation->view->shape[d];
                rest /= observation->view->shape[d];
            }
            sum += (double)(k + 1) *
                   sonde_element_get(observation->view->dtype,
                                     sonde_view_at(observation->view, index));
        }
        if (!(sum < 5.0) &&
            sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "sum", sum, 5)) {
            sonde_rule_say(run, NULL, "Sum %.17g over %lld.", sum, (long long)n);
        }
    }
    if (observation->sketch != NULL &&
        sonde_sketch_quantile(observation->sketch, 0.5) > 0.2 &&
        sonde_rule_found(run, SONDE_RULE_WHOLE_RUN, SONDE_SEVERITY_NOTE, "median",
                         sonde_sketch_quantile(observation->sketch, 0.5), 0.2)) {
        sonde_rule_say(run, NULL, "The median of %s.",
                       sonde_rule_info(run, tensor->id)->name);
    }
    self->hash ^= observation->hash;
}

static void finish(sonde_rule_run *run)
{
    size_t count = 0;
    const sonde_rule_tensor *tensors = sonde_rule_tensors(run, &count);

    for (size_t i = 0; i < count; i++) {
        const last *self = tensors[i].memory;

        if (self->hash != 0 && sonde_rule_found(run, i, SONDE_SEVERITY_NOTE, "hash",
                                                (double)(self->hash >> 32), 0)) {
            sonde_rule_say(run, NULL, "Hashes %llx.", (unsigned long long)self->hash);
        }
    }
}

static const sonde_rule mirror_vitals = {
    .abi = SONDE_RULE_ABI,
    .name = "MirrorVitals",
    .summary = "s",
    .condition = "c",
    .advice = "a",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .needs = needs,
    .need_count = 2,
    .state_size = sizeof(counts),
    .tensor_size = sizeof(uint64_t),
    .wants = wants,
    .step = step,
};
static const sonde_rule mirror_values = {
    .abi = SONDE_RULE_ABI,
    .name = "MirrorValues",
    .summary = "s",
    .condition = "c",
    .advice = "a",
    .needs = rest_needs,
    .need_count = 1,
    .modes = 1U << SONDE_MODE_TRAIN,
    .by_name_only = true,
    .tensor_size = sizeof(last),
    .wants = wants_all,
    .observe = observe,
    .finish = finish,
};
SONDE_RULE_PLUGIN(&mirror_vitals, &mirror_values);
