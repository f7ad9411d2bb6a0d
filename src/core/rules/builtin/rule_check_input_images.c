/*
 * CheckInputImages - input images are not centred.
 *
 * After threshold_samples images: fires when the mean of a channel, over all of them, is
 * more than threshold_mean away from 0. channel is the dimension of channels: 1 for (N,
 * C, H, W). Images of 0 ... 1 and mostly dark images may be intended, so the rule is
 * opt-in; InputRange finds the inputs that nobody intends. Evidence: raw values.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/builtin_values.h"

#include <math.h>

enum { CHANNELS = 64, REGEX = 0 };

typedef struct images {
    const char *regex;
    double threshold_mean;
    int64_t threshold_samples, channel;
} images;

typedef struct tensor_memory {
    double sum[CHANNELS];
    int64_t samples, elements; /* elements of a channel */
} tensor_memory;

static const sonde_rule_param params[] = {
    SONDE__REGEX(images, regex, ".*hybridsequential0_input_0,^input$",
                 "regular expressions that select images"),
    SONDE__REAL(images, threshold_mean, "0.2", 0, 1e300,
                "largest acceptable distance of a channel mean from 0"),
    SONDE__COUNT(images, threshold_samples, "500", 1, 1e12,
                 "images to collect before judging"),
    SONDE__COUNT(images, channel, "1", 0, SONDE_MAX_DIMS - 1,
                 "dimension that holds the channels"),
};
static const sonde_rule_need needs[] = {
    {"images", SONDE_HOW_RAW, false, SONDE__ANY, SONDE__SELDOM}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const images *state = sonde_rule_state(run);

    return sonde_rule_matches(run, REGEX, id) && info->rank > state->channel
               ? 0
               : SONDE_RULE_IGNORE;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const images *state = sonde_rule_state(run);
    const sonde_view *view = seen->view;
    tensor_memory *memory = tensor->memory;
    sonde__builtin_reader reader;
    double values[SONDE__CHUNK];
    int64_t inner = 1, at = 0, channels = 0;

    if (view->rank <= state->channel || sonde_view_count(view) == 0) {
        return;
    }
    channels = view->shape[state->channel];
    for (int i = (int)state->channel + 1; i < view->rank; i++) {
        inner *= view->shape[i];
    }
    sonde__builtin_reader_init(&reader, view);
    for (size_t n = sonde__builtin_reader_take(&reader, values); n > 0;
         n = sonde__builtin_reader_take(&reader, values)) {
        for (size_t i = 0; i < n; i++, at++) {
            const int64_t c = at / inner % channels;

            memory->sum[c < CHANNELS ? c : CHANNELS - 1] += values[i];
        }
    }
    memory->samples += view->shape[0];
    memory->elements += sonde_view_count(view) / channels;
}

static void step(sonde_rule_run *run)
{
    const images *state = sonde_rule_state(run);
    sonde_rule_tensor *tensors = sonde__builtin_tensors(run);

    SONDE__EACH (run, i) {
        tensor_memory *memory = tensors[i].memory;

        if (memory->samples < state->threshold_samples) {
            continue;
        }
        for (int c = 0; c < CHANNELS; c++) {
            const double mean = memory->sum[c] / (double)memory->elements;

            if (fabs(mean) > state->threshold_mean &&
                sonde_rule_found(run, i, SONDE_SEVERITY_WARNING, "mean", mean,
                                 state->threshold_mean)) {
                sonde_rule_say(run, NULL,
                               "Over %lld images, channel %d has a mean of %.4g.",
                               (long long)memory->samples, c, mean);
            }
        }
        *memory = (tensor_memory){.samples = 0};
    }
}

const sonde_rule sonde__builtin_check_input_images = {
    SONDE__RULE("CheckInputImages", images),
    .summary = "input images are not centred",
    .condition = "Over `threshold_samples` images, the mean of a channel is more than "
                 "`threshold_mean` away from 0.",
    .advice = "Subtract the mean of each channel, computed over the training data.",
    .by_name_only = true,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .step = step,
};
