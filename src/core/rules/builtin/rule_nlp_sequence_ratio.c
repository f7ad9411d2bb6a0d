/*
 * NLPSequenceRatio - one token, usually padding, makes up too much of the sequences.
 *
 * Fires when a token's share of the tokens of a step is above its threshold. token_values
 * and token_thresholds_percent are lists of the same length. Evidence: raw token numbers.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"

#include "base/fail.h"
#include "base/point.h"

#include <stdlib.h>

enum { TOKENS = 16 };

typedef struct ratio_rule {
    const char *tensor_regex, *token_values, *token_thresholds_percent;
    double value[TOKENS], percent[TOKENS];
    size_t tokens;
} ratio_rule;

typedef struct tensor_memory {
    int64_t seen[TOKENS], all; /* at this step */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(ratio_rule, tensor_regex, ".*embedding0_input_0",
                 "regular expressions that select token numbers"),
    SONDE__TEXT(ratio_rule, token_values, "0", "comma-separated token numbers"),
    SONDE__TEXT(ratio_rule, token_thresholds_percent, "50",
                "comma-separated largest acceptable percentage of each token"),
};
static const sonde_rule_need needs[] = {
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

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const ratio_rule *state = sonde_rule_state(run);
    tensor_memory *memory = tensor->memory;
    sonde__builtin_reader reader;
    double values[SONDE__CHUNK];

    sonde__builtin_reader_init(&reader, seen->view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++) {
            for (size_t t = 0; t < state->tokens; t++) {
                memory->seen[t] += values[i] == state->value[t];
            }
        }
        memory->all += (int64_t)n;
    }
}

static void step(sonde_rule_run *run)
{
    const ratio_rule *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        tensor_memory *memory = tensors[i].memory;

        for (size_t t = 0; t < state->tokens && memory->all > 0; t++) {
            const double percent = 100.0 * (double)memory->seen[t] / (double)memory->all;

            if (percent > state->percent[t] &&
                sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "percent", percent,
                                 state->percent[t])) {
                sonde_rule_say(run, NULL, "%.3g %% of its tokens are %g.", percent,
                               state->value[t]);
            }
        }
        *memory = (tensor_memory){.all = 0};
    }
}

const sonde_rule sonde__builtin_nlp_sequence_ratio = {
    SONDE__RULE("NLPSequenceRatio", ratio_rule),
    .summary = "one token makes up too much of the sequences",
    .condition = "A token of `token_values` makes up more than its percentage of the "
                 "tokens of a step.",
    .advice = "Batch sequences of similar length, or reduce padding.",
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = sonde__builtin_wants_matched,
    .observe = observe,
    .step = step,
};
