/*
 * program_sample.c - see program_sample.h.
 */
#include "program/program_sample.h"

#include <string.h>

#define ROWS(array)                                                                      \
    {                                                                                    \
        (array), sizeof(array) / sizeof *(array)                                         \
    }
#define TRAIN "/srv/me/x/train.py"
#define NET "/srv/me/x/net.py"

static const sonde_program_attribute with_bias[] = {{"bias", "true", NAN}};
static const sonde_program_attribute of_loss[] = {
    {"reduction", "mean", NAN}, {"label_smoothing", "0.1", NAN}, {"dims", "[2, 3]", NAN}};
static const sonde_program_attribute of_optimizer[] = {{"lr", "", 0.1}};
static const sonde_program_attribute of_clip[] = {{"max_norm", "1", NAN}};
static const sonde_program_attribute of_data[] = {{"labels_min", "0", NAN},
                                                  {"labels_max", "9", NAN}};
/* Values: 0 input, 1 fc1.weight, 2 fc1's output, 3 relu's, 4 fc2.weight, 5 fc2's output,
 * 6 the loss. */
static const int fc1_in[] = {0, 1, -1}, fc1_out[] = {2}, relu_in[] = {2},
                 relu_out[] = {3};
static const int fc2_in[] = {3, 4, -1}, fc2_out[] = {5}, loss_in[] = {5, -1},
                 loss_out[] = {6};

static void fill_values(program_sample *sample)
{
    const sonde_program_value none = {.dtype = SONDE_F32, .node = -1, .parameter = -1};

    for (size_t i = 0; i < SAMPLE_VALUES; i++) {
        sample->values[i] = none;
        sample->values[i].rank = i == 6 ? 0 : 2;
        sample->values[i].shape[0] = i == 6 ? 0 : 64;
        sample->values[i].shape[1] = i == 6 ? 0 : 10;
        sample->values[i].requires_grad = i > 0;
    }
    sample->values[0].kind = SONDE_VALUE_INPUT;
    sample->values[0].tensor = "input";
    sample->values[1].kind = sample->values[4].kind = SONDE_VALUE_PARAMETER;
    sample->values[1].parameter = 0;
    sample->values[1].tensor = "fc1.weight";
    sample->values[4].parameter = 1;
    sample->values[5].tensor = "fc2_output_0";
    sample->values[6].tensor = "loss";
}

static void fill_nodes(program_sample *sample)
{
    const sonde_program_node nodes[SAMPLE_NODES] = {
        {"linear", ROWS(with_bias), fc1_in, 3, fc1_out, 1, 1, {NET, 11}},
        {"relu", {NULL, 0}, relu_in, 1, relu_out, 1, 0, {NET, 12}},
        {"linear", ROWS(with_bias), fc2_in, 3, fc2_out, 1, 2, {NET, 13}},
        {"cross_entropy", ROWS(of_loss), loss_in, 2, loss_out, 1, -1, {TRAIN, 41}},
    };
    const sonde_program_module modules[SAMPLE_MODULES] = {
        {"", "Net", {NULL, 0}, true, true, true, {TRAIN, 40}},
        {"fc1", "Linear", {NULL, 0}, true, true, true, {NET, 11}},
        {"fc2", "Linear", {NULL, 0}, false, true, false, {NET, 13}},
    };

    memcpy(sample->nodes, nodes, sizeof nodes);
    memcpy(sample->modules, modules, sizeof modules);
}

static void fill_training(program_sample *sample)
{
    const sonde_program_parameter parameters[SAMPLE_PARAMETERS] = {
        {"fc1.weight", 1, 640, true, 0, true, true},
        {"fc2.weight", 2, 640, false, -1, true, false},
    };
    const sonde_program_event events[SAMPLE_EVENTS] = {
        {SONDE_EVENT_FORWARD, 0, -1, -1, -1, true, true, true, {NULL, 0}, {TRAIN, 40}},
        {SONDE_EVENT_LOSS, -1, 6, 3, -1, false, true, false, {NULL, 0}, {TRAIN, 41}},
        {SONDE_EVENT_BACKWARD,
         -1,
         6,
         -1,
         -1,
         false,
         false,
         false,
         {NULL, 0},
         {TRAIN, 42}},
        {SONDE_EVENT_CLIP,
         -1,
         -1,
         -1,
         -1,
         false,
         false,
         false,
         ROWS(of_clip),
         {TRAIN, 43}},
        {SONDE_EVENT_STEP, -1, -1, -1, 0, false, false, false, {NULL, 0}, {TRAIN, 44}},
    };

    memcpy(sample->parameters, parameters, sizeof parameters);
    memcpy(sample->events, events, sizeof events);
    sample->optimizers[0] =
        (sonde_program_optimizer){"optimizer", "SGD", ROWS(of_optimizer)};
    sample->losses[0] = (sonde_program_loss){3, 6, 5, -1, 2};
}

void sample_init(program_sample *sample)
{
    memset(sample, 0, sizeof *sample);
    fill_values(sample);
    fill_nodes(sample);
    fill_training(sample);
    sample->program = (sonde_program){
        .size = sizeof sample->program,
        .producer = "loop",
        .mode = SONDE_MODE_TRAIN,
        .root = "/srv/me/x",
        .values = sample->values,
        .value_count = SAMPLE_VALUES,
        .nodes = sample->nodes,
        .node_count = SAMPLE_NODES,
        .modules = sample->modules,
        .module_count = SAMPLE_MODULES,
        .parameters = sample->parameters,
        .parameter_count = SAMPLE_PARAMETERS,
        .optimizers = sample->optimizers,
        .optimizer_count = 1,
        .events = sample->events,
        .event_count = SAMPLE_EVENTS,
        .losses = sample->losses,
        .loss_count = 1,
        .facts = ROWS(of_data),
        .complete = true,
    };
}
