/*
 * rule_inputs.c - rules about the inputs of a network: images, tokens and others.
 */
#include "rules/builtin/builtin.h"

#include "base/fail.h"
#include "base/number.h"

/* --- CheckInputImages -------------------------------------------------------------- */

/*
 * CheckInputImages - input images are not centered.
 *
 * Fires when, after threshold_samples images, the mean of a channel over all of them is
 * more than threshold_mean away from 0. channel is the dimension of channels: 1 for (N,
 * C, H, W). Images of 0 ... 1 and mostly dark images may be intended, so the rule is
 * opt-in; InputRange finds the inputs that nobody intends. Evidence: raw values.
 */

enum { CHANNELS = 64, REGEX = 0 };

typedef struct images {
    const char *regex;
    double threshold_mean;
    int64_t threshold_samples, channel;
} images;

typedef struct images_memory {
    double sum[CHANNELS];
    int64_t samples, elements; /* elements of a channel */
} images_memory;

static const sonde_rule_param images_params[] = {
    SONDE__REGEX(images, regex, ".*hybridsequential0_input_0,^input$",
                 "regular expressions that select images"),
    SONDE__REAL(images, threshold_mean, "0.2", 0, 1e300,
                "largest acceptable distance of a channel mean from 0"),
    SONDE__COUNT(images, threshold_samples, "500", 1, 1e12,
                 "number of images to collect before judging"),
    SONDE__COUNT(images, channel, "1", 0, SONDE_MAX_DIMS - 1,
                 "dimension that holds the channels"),
};
static const sonde_rule_need images_needs[] = {
    {"images", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__SELDOM}};

static int images_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const images *state = sonde_rule_state(run);

    return sonde_rule_matches(run, REGEX, id) && info->rank > state->channel
               ? 0
               : SONDE_RULE_IGNORE;
}

static void images_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                           const sonde_observation *observation)
{
    const images *state = sonde_rule_state(run);
    const sonde_view *view = observation->view;
    images_memory *memory = tensor->memory;
    double values[SONDE__CHUNK];
    int64_t inner = 1, at = 0;

    if (view->rank <= state->channel || sonde_view_count(view) == 0) {
        return;
    }
    const int64_t channels = view->shape[state->channel];
    for (int i = (int)state->channel + 1; i < view->rank; i++) {
        inner *= view->shape[i];
    }
    sonde__builtin_reader reader = sonde__builtin_read(view);
    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0; i < n; i++, at++) {
            const int64_t c = at / inner % channels;

            memory->sum[c < CHANNELS ? c : CHANNELS - 1] += values[i];
        }
    }
    memory->samples += view->shape[0];
    memory->elements += sonde_view_count(view) / channels;
}

static void images_step(sonde_rule_run *run)
{
    const images *state = sonde_rule_state(run);

    SONDE__EACH (run, t) {
        images_memory *memory = t->memory;

        if (memory->samples < state->threshold_samples) {
            continue;
        }
        for (int c = 0; c < CHANNELS; c++) {
            const double mean = memory->sum[c] / (double)memory->elements;

            if (fabs(mean) > state->threshold_mean) {
                sonde__rule_report(run, t, SONDE__SURE(WARNING), "mean", mean,
                                   state->threshold_mean, NULL,
                                   "Over %lld images, channel %d has a mean of %.4g.",
                                   (long long)memory->samples, c, mean);
            }
        }
        *memory = (images_memory){.samples = 0};
    }
}

const sonde_rule sonde__builtin_check_input_images = {
    SONDE__RULE("CheckInputImages", images),
    .summary = "input images are not centered",
    .condition = "Over `threshold_samples` images, the mean of a channel is more than "
                 "`threshold_mean` away from 0.",
    .advice = "Subtract the mean of each channel, computed over the training data.",
    .by_name_only = true,
    .tensor_size = sizeof(images_memory),
    .wants = images_wants,
    .observe = images_observe,
    .step = images_step,
};

/* --- InputRange -------------------------------------------------------------------- */

/*
 * InputRange - an input does not look normalized.
 *
 * Fires when a floating-point input has a root mean square above `threshold` at
 * `patience` observed steps in a row: pixels of 0 ... 255 have about 100, normalized
 * ones about 1. Inputs named targets, labels or rewards are not judged. The finding is a
 * note if outputs of the network's layers are seen at that step and none has a root mean
 * square above half of `threshold`: the network normalizes the input itself, or uses only
 * its sine. Evidence: vital signs of inputs and outputs.
 */

typedef struct range {
    const char *tensor_regex;
    double threshold;
    int64_t patience;
} range;

static const sonde_rule_param range_params[] = {
    SONDE__REGEX(
        range, tensor_regex, NULL,
        "regular expressions that select inputs (default: the inputs of the session)"),
    SONDE__REAL(range, threshold, "16", 0, 1e300, "largest acceptable root mean square"),
    SONDE__COUNT(range, patience, "1", 1, 1e9,
                 "number of observed steps in a row above the threshold"),
};
static const sonde_rule_need range_needs[] = {
    {"inputs", SONDE_HOW_VITALS, false, SONDE__INPUTS, SONDE__OFTEN},
    {"outputs of layers", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__SELDOM},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};
enum { INPUTS = 0, OUTPUTS = 1, LOSSES = 2 };
SONDE__TERMS(large, NOTE, WARNING, NOTE, NOTE, NOTE);

static int range_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const bool is_float = sonde_dtype_is_float(info->dtype);

    if (info->role == SONDE_ROLE_OUTPUT && info->pass != SONDE_PASS_BACKWARD &&
        sonde__builtin_is_own(info, id) && is_float) {
        return OUTPUTS;
    }
    if (sonde__builtin_is_loss(info, id)) {
        return LOSSES;
    }
    return sonde__builtin_wants_chosen(run, id,
                                       sonde__builtin_is_input(info, id) && is_float &&
                                           !sonde__builtin_is_target(info) &&
                                           sonde__strcasestr(info->name, "reward") ==
                                               NULL);
}

/* Whether outputs of layers are seen at this step, and all of them are small. */
static bool is_quiet(sonde_rule_run *run, double threshold)
{
    double loudest = -1.0;

    SONDE__EACH_SEEN (run, t, OUTPUTS) {
        loudest = sonde__builtin_has_finite(t->vitals)
                      ? fmax(loudest, sonde__builtin_rms(t->vitals))
                      : loudest;
    }
    return loudest >= 0.0 && loudest < 0.5 * threshold;
}

static void range_step(sonde_rule_run *run)
{
    const range *state = sonde_rule_state(run);
    const bool quiet = is_quiet(run, state->threshold);

    SONDE__EACH_SEEN (run, t, INPUTS) {
        int64_t *streak = t->memory;
        const sonde_vitals *v = t->vitals;

        if (!sonde__builtin_has_finite(v)) {
            continue;
        }
        *streak = sonde__builtin_rms(v) > state->threshold ? *streak + 1 : 0;
        if (*streak >= state->patience) {
            sonde__rule_report(run, t, quiet ? SONDE__SURE(NOTE) : &large, "rms",
                               sonde__builtin_rms(v), state->threshold, NULL,
                               "Its values range from %.4g to %.4g, with a mean of %.4g "
                               "and a standard deviation of %.4g.",
                               v->min, v->max, v->mean, sqrt(sonde__builtin_variance(v)));
        }
    }
}

const sonde_rule sonde__builtin_input_range = {
    SONDE__RULE("InputRange", range),
    .summary = "an input does not look normalized",
    .condition =
        "The root mean square of an input is above `threshold` at `patience` observed steps in a row. "
        "The finding waits for training: it is a warning if training goes badly, else a note. It is always a note if all outputs of layers are small.",
    .advice = "Subtract the mean and divide by the standard deviation, or scale the "
              "values to 0 ... 1.",
    .tensor_size = sizeof(int64_t),
    .wants = range_wants,
    .step = range_step,
};

/* --- NLPSequenceRatio -------------------------------------------------------------- */

/*
 * NLPSequenceRatio - one token, usually padding, makes up too much of the sequences.
 *
 * Fires when a token's share of the tokens of a step is above its threshold. token_values
 * and token_thresholds_percent are lists of the same length. Evidence: raw token numbers.
 */

enum { TOKENS = 16 };

typedef struct ratio_rule {
    const char *tensor_regex, *token_values, *token_thresholds_percent;
    double value[TOKENS], percent[TOKENS];
    size_t tokens;
} ratio_rule;

typedef struct ratio_rule_memory {
    int64_t seen[TOKENS], all; /* at this step */
} ratio_rule_memory;

static const sonde_rule_param ratio_rule_params[] = {
    SONDE__REGEX(ratio_rule, tensor_regex, ".*embedding0_input_0",
                 "regular expressions that select token numbers"),
    SONDE__TEXT(ratio_rule, token_values, "0", "comma-separated list of token numbers"),
    SONDE__TEXT(ratio_rule, token_thresholds_percent, "50",
                "comma-separated list: largest acceptable percentage of each token"),
};
static const sonde_rule_need ratio_rule_needs[] = {
    {"token numbers", SONDE_HOW_RAW, false, SONDE__INPUTS, SONDE__OFTEN}};

/* Reads comma-separated numbers. Returns SIZE_MAX if the text is none. */
static size_t read_numbers(const char *text, double *numbers)
{
    size_t count = 0;

    while (count < TOKENS) {
        char *end = NULL;

        numbers[count++] = sonde__strtod(text, &end);
        if (end == text || (*end != ',' && *end != '\0')) {
            return SIZE_MAX;
        }
        if (*end == '\0') {
            return count;
        }
        text = end + 1;
    }
    return SIZE_MAX;
}

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    ratio_rule *state = sonde_rule_state(run);

    state->tokens = read_numbers(state->token_values, state->value);
    if (state->tokens == SIZE_MAX ||
        read_numbers(state->token_thresholds_percent, state->percent) != state->tokens) {
        return sonde__fail(
            diag, SONDE_EINVAL, "NLPSequenceRatio",
            "up to 16 comma-separated numbers, one threshold for each token",
            "token_values '%s', token_thresholds_percent '%s'", state->token_values,
            state->token_thresholds_percent);
    }
    return SONDE_OK;
}

static void ratio_rule_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                               const sonde_observation *observation)
{
    const ratio_rule *state = sonde_rule_state(run);
    ratio_rule_memory *memory = tensor->memory;
    sonde__builtin_reader reader = sonde__builtin_read(observation->view);
    double values[SONDE__CHUNK];

    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0; i < n; i++) {
            for (size_t k = 0; k < state->tokens; k++) {
                memory->seen[k] += values[i] == state->value[k];
            }
        }
        memory->all += (int64_t)n;
    }
}

static void ratio_rule_step(sonde_rule_run *run)
{
    const ratio_rule *state = sonde_rule_state(run);

    SONDE__EACH (run, t) {
        ratio_rule_memory *memory = t->memory;

        for (size_t k = 0; k < state->tokens && memory->all > 0; k++) {
            const double percent = 100.0 * (double)memory->seen[k] / (double)memory->all;

            if (percent > state->percent[k]) {
                sonde__rule_report(
                    run, t, SONDE__SURE(WARNING), "percent", percent, state->percent[k],
                    NULL, "%.3g %% of its tokens are %g.", percent, state->value[k]);
            }
        }
        *memory = (ratio_rule_memory){.all = 0};
    }
}

const sonde_rule sonde__builtin_nlp_sequence_ratio = {
    SONDE__RULE("NLPSequenceRatio", ratio_rule),
    .summary = "one token makes up too much of the sequences",
    .condition = "A token of `token_values` makes up more than its percentage of the "
                 "tokens of a step.",
    .advice = "Batch sequences of similar length, or reduce padding.",
    .tensor_size = sizeof(ratio_rule_memory),
    .init = init,
    .wants = sonde__builtin_wants_matched,
    .observe = ratio_rule_observe,
    .step = ratio_rule_step,
};
