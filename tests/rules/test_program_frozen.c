/*
 * test_program_frozen.c - FrozenParameter by the program of a step: what optimizers hold,
 * what operations read and what backward reaches.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

#define STEP_OF(optimizer, line)                                                         \
    "{'event': 'step', 'optimizer': " #optimizer ", 'place': [0, " #line "]}"
#define SGD_AND_ADAM "{'kind': 'SGD'}, {'kind': 'Adam'}"
/* Two layers: weights a, 1, of module 1, and b, 3, of module 2; `cut`: the operation
 * between them, which makes 5. second: the attributes of b; module: of its module. */
#define LAYERS(first, second, module, cut, flows, events)                                \
    LAYERS_OF(KNOWN, first, second, module, cut, flows, events,                          \
              "{'kind': 'SGD', 'name': 'optimizer'}")
#define LAYERS_OF(root, first, second, module, cut, flows, events, optimizers)           \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]},"                            \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5],"         \
    " 'requires_grad': true, 'tensor': 'a.weight'},"                                     \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true},"                      \
    "{'kind': 'parameter', 'parameter': 1, 'dtype': 'float32', 'shape': [2, 4],"         \
    " 'requires_grad': true, 'tensor': 'b.weight'},"                                     \
    "{'dtype': 'float32', 'shape': [8, 2], 'requires_grad': true},"                      \
    "{'dtype': 'float32', 'shape': [8, 4]" flows "},"                                    \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                         \
    "'nodes': [{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'module': 1,"          \
    " 'place': [0, 5]}, {'op': '" cut "', 'inputs': [2], 'outputs': [5], 'module': 0,"   \
    " 'place': [0, 6]}, {'op': 'linear', 'inputs': [5, 3], 'outputs': [4],"              \
    " 'module': 2, 'place': [0, 7]}, {'op': 'cross_entropy', 'inputs': [4],"             \
    " 'outputs': [6], 'place': [0, 12]}],"                                               \
    "'modules': [{'kind': 'Net', 'called': true" root "},"                               \
    "{'name': 'a', 'kind': 'Linear', 'registered': true, 'called': true},"               \
    "{'name': 'b', 'kind': 'Linear', 'called': true" module "}],"                        \
    "'parameters': [{'name': 'a.weight', 'module': 1, 'count': 20,"                      \
    " 'requires_grad': true, 'used': true" first "},"                                    \
    "{'name': 'b.weight', 'module': 2, 'count': 8, 'requires_grad': true" second "}],"   \
    "'optimizers': [" optimizers "], 'events': [" events "]"
#define TWO_HOLD(root, first, second, events)                                            \
    LAYERS_OF(root, first, USED second REACHED, KNOWN, "relu",                           \
              ", 'requires_grad': true", TRAINED events, SGD_AND_ADAM)
/* a.weight needs no gradient. */
#define PARAMETERS_ALONE(first)                                                          \
    "'mode': 'train', 'parameters': [{'name': 'a.weight', 'count': 20, " first "},"      \
    "{'name': 'b.weight', 'count': 8, 'requires_grad': true, 'optimizer': 0,"            \
    " 'used': true, 'reached': true}],"                                                  \
    "'optimizers': [{'kind': 'SGD', 'name': 'optimizer'}]"
#define RATE(rate, events)                                                               \
    LAYERS_OF(KNOWN, HELD REACHED, USED HELD REACHED, KNOWN, "relu",                     \
              ", 'requires_grad': true", TRAINED events,                                 \
              "{'kind': 'SGD', 'attributes': {'lr': " rate "}}")
#define SCHEDULED ", {'event': 'scheduler', 'place': [0, 15]}"
#define HELD ", 'optimizer': 0"
#define REACHED ", 'reached': true"
#define USED ", 'used': true"
#define KNOWN ", 'registered': true"
#define TRAINED                                                                          \
    "{'event': 'backward', 'value': 6, 'place': [0, 13]},"                               \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 14]}"
#define MORE_WEIGHTS                                                                     \
    "weight a.weight 16 32, weight b.weight 2 4, gradient gradient/a.weight 16 32, "     \
    "gradient gradient/b.weight 2 4"
#define WEIGHTS                                                                          \
    "weight a.weight 4 5, weight b.weight 2 4, gradient gradient/a.weight 4 5, "         \
    "gradient gradient/b.weight 2 4"

/* Both weights move; the gradients that are seen. */
static void move(stream *s, int step, bool a, bool b)
{
    stream_put_all(s, 0, (float)(step + 1));
    stream_put_all(s, 1, (float)(step + 2));
    if (a) {
        stream_put_all(s, 2, 0.5F);
    }
    if (b) {
        stream_put_all(s, 3, 0.5F);
    }
}

static void both(stream *s, int step)
{
    move(s, step, true, true);
}

static void second_alone(stream *s, int step)
{
    move(s, step, false, true);
}

static void first_alone(stream *s, int step)
{
    move(s, step, true, false);
}

static void neither(stream *s, int step)
{
    move(s, step, false, false);
}

/* A layer with a bias; std: of the input. */
#define ONE_LAYER(std)                                                                   \
    "'mode': 'train', 'facts': {'input_std': " std "}, 'values': ["                      \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5], 'tensor': 'input'},"         \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5]},"        \
    "{'kind': 'parameter', 'parameter': 1, 'dtype': 'float32', 'shape': [4]},"           \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true}],"                     \
    "'nodes': [{'op': 'linear', 'inputs': [0, 1, 2], 'outputs': [3], 'place': [0, 5]}]," \
    "'parameters': [{'name': 'a.weight', 'count': 20, 'requires_grad': true" USED HELD   \
        REACHED                                                                          \
    "}, {'name': 'a.bias', 'count': 4, 'requires_grad': true" USED HELD REACHED          \
    "}], 'optimizers': [{'kind': 'SGD'}], 'events': ["                                   \
    "{'event': 'backward', 'value': 3, 'place': [0, 13]},"                               \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 14]}]"
#define WEIGHT_AND_BIAS                                                                  \
    "weight a.weight 4 5, bias a.bias 4, gradient gradient/a.weight 4 5, "               \
    "gradient gradient/a.bias 4"

/* The weight decays, without a gradient. */
static void bias_alone(stream *s, int step)
{
    stream_put_all(s, 0, 100.0F - (float)step);
    stream_put_all(s, 1, (float)step);
    stream_put_all(s, 2, 0.0F);
    stream_put_all(s, 3, 0.5F);
}

static void one_direction(stream *s, int step)
{
    stream_put_all(s, 0, 1.0F);
    stream_put_all(s, 1, (float)step);
    stream_put_all(s, 2, 0.0F);
    stream_put_all(s, 3, 0.5F);
}

/* b.weight moves, and then rests at these values. */
static void rest(stream *s, int step, float size)
{
    float values[8];

    for (int i = 0; i < 8; i++) {
        values[i] = step < 5 ? (float)(step + i) : (i % 2 == 0 ? 1.0F : -1.0F) * size;
        values[i] += i == 3 && step >= 5 ? 1.0F - size : 0.0F;
    }
    stream_put_all(s, 0, (float)(step + 1));
    stream_put(s, 1, values);
    stream_put_all(s, 2, 0.5F);
    stream_put_all(s, 3, 0.5F);
}

static void clips(stream *s, int step)
{
    rest(s, step, 1.0F);
}

static void rests(stream *s, int step)
{
    rest(s, step, 0.25F);
}

/* a.weight rests at values that are evenly distributed, or have a tail. */
static void rest_first(stream *s, int step, bool even)
{
    float values[512];

    for (int i = 0; i < 512; i++) {
        values[i] = even ? (float)(i - 256) / 1024.0F
                         : (float)((i % 16 - 8) * (i % 16 - 8) * (i % 16 - 8)) / 1024.0F;
    }
    stream_put(s, 0, values);
    stream_put_all(s, 1, (float)(step + 2));
    stream_put_all(s, 2, 0.5F);
    stream_put_all(s, 3, 0.5F);
}

static void rests_as_drawn(stream *s, int step)
{
    rest_first(s, step, true);
}

static void rests_as_trained(stream *s, int step)
{
    rest_first(s, step, false);
}

/* Both weights rest, and have gradients. */
static void both_rest(stream *s, int step)
{
    (void)step;
    stream_put_all(s, 0, 1.0F);
    stream_put_all(s, 1, 1.0F);
    stream_put_all(s, 2, 0.5F);
    stream_put_all(s, 3, 0.5F);
}

/* a.weight rests and has no gradient. */
static void only_second(stream *s, int step)
{
    stream_put_all(s, 0, 1.0F);
    stream_put_all(s, 1, (float)(step + 2));
    stream_put_all(s, 3, 0.5F);
}

static const program_case cases[] = {
    {"layers in a list",
     "FrozenParameter",
     {LAYERS(HELD REACHED, USED REACHED, ", 'attributes': {'within': true}", "relu",
             ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     both,
     .outcome = FAILED,
     .about = "b.weight",
     .line = 7,
     .message = "the model does not know the layer"},
    {"a model of its own, such as a copy for targets",
     "FrozenParameter",
     {LAYERS(HELD REACHED, USED REACHED, "", "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     both,
     .outcome = CLEAN},
    {"a layer that was replaced after the optimizer was built",
     "FrozenParameter",
     {LAYERS(HELD REACHED, USED REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     WEIGHTS,
     both,
     .outcome = FAILED,
     .about = "b.weight",
     .line = 7,
     .message = "no optimizer holds it"},
    {"a backbone that no optimizer holds",
     "FrozenParameter",
     {LAYERS(REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     WEIGHTS,
     both,
     .outcome = CLEAN},
    {"all are held",
     "FrozenParameter",
     {LAYERS(HELD REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     WEIGHTS,
     both,
     .steps = 30,
     .outcome = CLEAN},
    {"no parameter is reached",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     neither,
     .steps = 2,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 13,
     .message = "Backward at train.py:13 reaches none of the 2 parameters that SGD"},
    {"gradients that the graph does not show",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     both,
     .steps = 2,
     .outcome = CLEAN},
    {"cut off by detach",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD REACHED, KNOWN, "detach", "", TRAINED)},
     WEIGHTS,
     second_alone,
     .steps = 4,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 6,
     .message = "detach at train.py:6 cuts the way to the loss"},
    {"detached, with a gradient by another way",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD REACHED, KNOWN, "detach", "", TRAINED)},
     WEIGHTS,
     both,
     .steps = 4,
     .outcome = CLEAN},
    {"held by an optimizer that never steps",
     "FrozenParameter",
     {TWO_HOLD(KNOWN, HELD REACHED, ", 'optimizer': 1", ""),
      LAYERS(HELD REACHED, USED REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     WEIGHTS,
     both,
     .outcome = FAILED,
     .about = "b.weight",
     .line = 7,
     .message = "no step changes it: the optimizer that holds this has never stepped"},
    {"held by two optimizers, one of which steps later",
     "FrozenParameter",
     {TWO_HOLD(KNOWN, HELD REACHED, ", 'optimizer': 1", ""),
      TWO_HOLD(KNOWN, HELD REACHED, ", 'optimizer': 1", "," STEP_OF(1, 15))},
     WEIGHTS,
     both,
     .outcome = CLEAN},
    {"the optimizer of another model holds what it holds",
     "FrozenParameter",
     {TWO_HOLD("", REACHED, HELD, "," STEP_OF(1, 15))},
     WEIGHTS,
     both,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 5,
     .message = "no optimizer holds it: all optimizers hold parameters of others"},
    {"two models with an optimizer each",
     "FrozenParameter",
     {TWO_HOLD("", HELD REACHED, ", 'optimizer': 1", "," STEP_OF(1, 15))},
     WEIGHTS,
     both,
     .outcome = CLEAN},
    {"two models and one optimizer",
     "FrozenParameter",
     {LAYERS_OF("", REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
                TRAINED, "{'kind': 'SGD'}")},
     WEIGHTS,
     both,
     .outcome = CLEAN},
    {"only what is not held is reached",
     "FrozenParameter",
     {LAYERS(HELD, USED REACHED, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     second_alone,
     .steps = 2,
     .outcome = FAILED,
     .about = "b.weight",
     .line = 7,
     .message =
         "no optimizer holds it, and no gradient reaches what the optimizers hold"},
    {"what is held has gradients that the graph does not show",
     "FrozenParameter",
     {LAYERS(HELD, USED REACHED, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     both,
     .steps = 2,
     .outcome = CLEAN},
    {"first layers as drawn, which no optimizer holds",
     "FrozenParameter",
     {LAYERS(REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     MORE_WEIGHTS,
     rests_as_drawn,
     .steps = 6,
     .outcome = WARNED,
     .about = "a.weight",
     .line = 5,
     .message = "no optimizer holds it, and the weights here are as first drawn"},
    {"first layers that were trained, which no optimizer holds",
     "FrozenParameter",
     {LAYERS(REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     MORE_WEIGHTS,
     rests_as_trained,
     .steps = 6,
     .outcome = NOTED,
     .about = "a.weight",
     .line = 5,
     .message = "if it is frozen on purpose"},
    {"first layers as drawn, whose turn is to come",
     "FrozenParameter",
     {LAYERS(HELD REACHED, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED)},
     MORE_WEIGHTS,
     rests_as_drawn,
     .steps = 6,
     .outcome = NOTED,
     .about = "a.weight",
     .line = 5,
     .message = "if it is frozen on purpose"},
    {"a scheduler makes the rate 0",
     "FrozenParameter",
     {RATE("0", SCHEDULED)},
     WEIGHTS,
     both_rest,
     .steps = 50,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 5,
     .message = "the learning rate is 0, which a scheduler sets at train.py:15."},
    {"a scheduler makes the rate small",
     "FrozenParameter",
     {RATE("0.1", SCHEDULED)},
     WEIGHTS,
     both_rest,
     .steps = 50,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 5,
     .message = "; a scheduler sets the learning rate at train.py:15."},
    {"no parameter changes",
     "FrozenParameter",
     {RATE("0.1", "")},
     WEIGHTS,
     both_rest,
     .steps = 50,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 5,
     .message = "the largest of them here (0.5)."},
    {"a scheduler, and parameters change",
     "FrozenParameter",
     {RATE("0", SCHEDULED)},
     WEIGHTS,
     both,
     .steps = 50,
     .outcome = CLEAN},
    {"clipped at its bounds",
     "FrozenParameter",
     {NULL},
     WEIGHTS,
     clips,
     .steps = 20,
     .outcome = CLEAN},
    {"rests elsewhere",
     "FrozenParameter",
     {NULL},
     WEIGHTS,
     rests,
     .steps = 20,
     .outcome = FAILED,
     .about = "b.weight",
     .line = 0,
     .message = "but does not change"},
    {"frozen on purpose",
     "FrozenParameter",
     {PARAMETERS_ALONE("'optimizer': -1")},
     WEIGHTS,
     only_second,
     .steps = 120,
     .outcome = CLEAN},
    {"frozen, and given to the optimizer",
     "FrozenParameter",
     {PARAMETERS_ALONE("'optimizer': 0, 'used': true")},
     WEIGHTS,
     only_second,
     .steps = 120,
     .outcome = NOTED,
     .about = "a.weight",
     .line = 0,
     .message = "never had a gradient"},
    {"not used",
     "FrozenParameter",
     {LAYERS(HELD REACHED, HELD, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     first_alone,
     .steps = 20,
     .outcome = WARNED,
     .about = "b.weight",
     .line = 0,
     .message = "No operation of a training step reads it"},
    {"no loss is made of it",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true", TRAINED)},
     WEIGHTS,
     second_alone,
     .steps = 20,
     .outcome = WARNED,
     .about = "a.weight",
     .line = 5,
     .message = "but no loss is made of the result"},
    {"no loss is made of a part of a library's model",
     "FrozenParameter",
     {LAYERS(HELD, USED HELD REACHED, KNOWN, "relu", ", 'requires_grad': true",
             TRAINED ", {'event': 'forward', 'module': 0, 'place': [0, 5]}")},
     WEIGHTS,
     second_alone,
     .steps = 20,
     .outcome = CLEAN},
    {"a weight whose gradient is lost",
     "FrozenParameter",
     {ONE_LAYER("1")},
     WEIGHT_AND_BIAS,
     bias_alone,
     .steps = 20,
     .outcome = FAILED,
     .about = "a.weight",
     .line = 5,
     .message = "the gradient that backward computes is lost"},
    {"a weight of an input of zeros",
     "FrozenParameter",
     {ONE_LAYER("0")},
     WEIGHT_AND_BIAS,
     bias_alone,
     .steps = 20,
     .outcome = CLEAN},
    {"one direction of a bidirectional layer",
     "FrozenParameter",
     {NULL},
     "weight gru.weight_ih_l0 4 5, weight gru.weight_ih_l0_reverse 4 5, "
     "gradient gradient/gru.weight_ih_l0 4 5, "
     "gradient gradient/gru.weight_ih_l0_reverse 4 5",
     one_direction,
     .steps = 45,
     .outcome = NOTED,
     .about = "gru.weight_ih_l0",
     .message = "Only the other direction of this bidirectional layer is read"},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
