/*
 * test_program_training.c - what the program says of values and losses that look wrong: masks
 * and temperatures of scores, players that take turns, and losses that training raises.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* --- scores ------------------------------------------------------------------------- */

/* Inputs, 0, a weight, 1, the scores of a layer, 2, and what an operation makes of them, 3;
 * 4: a value that is not trained; the loss, 5. */
#define SCORES(op, attributes, inputs)                                                   \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 16], 'tensor': 'input'},"        \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [16, 16],"       \
    " 'requires_grad': true, 'tensor': 'w'},"                                            \
    "{'dtype': 'float32', 'shape': [8, 16], 'requires_grad': true},"                     \
    "{'dtype': 'float32', 'shape': [8, 16], 'requires_grad': true},"                     \
    "{'kind': 'constant', 'dtype': 'float32', 'shape': [8, 16]},"                        \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true, 'tensor': 'loss'}],"       \
    "'parameters': [{'name': 'w', 'requires_grad': true, 'optimizer': 0}],"              \
    "'optimizers': [{'kind': 'SGD'}], 'nodes': ["                                        \
    "{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 3]},"               \
    "{'op': '" op "', 'attributes': {" attributes "}, 'inputs': [" inputs                \
    "], 'outputs': [3], 'place': [0, 4]},"                                               \
    "{'op': 'cross_entropy', 'inputs': [3, 4], 'outputs': [5], 'place': [0, 5]}],"       \
    "'losses': [{'node': 2, 'value': 5, 'predictions': 3, 'targets': 4}]"
#define PREDICTIONS "input input 8 16, output loss/predictions 8 16"

/* The same, and backward is called on the loss. */
#define SCORED(op, attributes, inputs)                                                   \
    SCORES(op, attributes, inputs)                                                       \
    ", 'events': [{'event': 'backward', 'value': 5, 'place': [0, 6]}]"
#define FIRST_LOSS                                                                       \
    "input input 8 16, weight w 16 16, loss loss, output loss/predictions 8 16"

/* The deviation of inputs and weights, and a loss that is as without inputs, 2.77, later. */
static void first_loss(stream *s, int step, double input, double weight, float loss)
{
    stream_put_normal(s, 0, 0.0, input);
    stream_put_normal(s, 1, 0.0, weight);
    stream_put_all(s, 2, step == 0 ? loss : 1.0F / (float)step);
    stream_put_normal(s, 3, 0.0, 1.0);
}

static void sure_scores(stream *s, int step)
{
    first_loss(s, step, 1.0, 1.0, 20.0F);
}

static void sure_of_inputs(stream *s, int step)
{
    first_loss(s, step, 150.0, 0.25, 400.0F);
}

static void usual_scores(stream *s, int step)
{
    first_loss(s, step, 1.0, 0.25, 9.0F);
}

static void large_scores(stream *s, int step)
{
    (void)step;
    stream_put_normal(s, 0, 0.0, 1.0);
    stream_put_normal(s, 1, 0.0, 1e4);
}

/* --- losses ------------------------------------------------------------------------- */

/* Two parameters, 0 and 1, each of an optimizer; what is made of the first, 2, of both, 3;
 * the last operation makes 4. */
#define PLAYERS(op, losses, events)                                                      \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 4],"         \
    " 'requires_grad': true},"                                                           \
    "{'kind': 'parameter', 'parameter': 1, 'dtype': 'float32', 'shape': [4, 4],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [4, 4]},"                                             \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                          \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true, 'tensor': 'loss'}],"       \
    "'parameters': [{'name': 'g.weight', 'requires_grad': true, 'optimizer': 0},"        \
    " {'name': 'd.weight', 'requires_grad': true, 'optimizer': 1}],"                     \
    "'optimizers': [{'kind': 'Adam'}, {'kind': 'Adam'}], 'nodes': ["                     \
    "{'op': 'detach', 'inputs': [0], 'outputs': [2], 'place': [0, 3]},"                  \
    "{'op': 'cross_entropy', 'inputs': [1, 2], 'outputs': [3], 'place': [0, 4]},"        \
    "{'op': '" op "', 'inputs': [3], 'outputs': [4], 'place': [0, 5]}]," losses          \
    "'events': [{'event': 'backward', 'value': 4, 'place': [0, 6]}" events "]"
#define STEP(optimizer)                                                                  \
    ", {'event': 'step', 'optimizer': " #optimizer ", 'place': [0, 7]}"
#define IS_LOSS "'losses': [{'node': 1, 'value': 3, 'predictions': 1, 'targets': 2}],"
#define TURNS PLAYERS("mean", "", STEP(1))
#define BOTH PLAYERS("mean", "", STEP(0) STEP(1))
#define LOSS "loss loss"
enum { LONG = 260 };

/* Falls, and rises from step 60 on, to five times that. */
static void rises(stream *s, int step)
{
    stream_put_all(s, 0, step < 60 ? 0.4F - 0.001F * (float)step : 1.7F);
}

/* A difference of scores of a critic, near 0. */
static void near_zero(stream *s, int step)
{
    stream_put_all(s, 0, 1e-4F * (float)(1 + (step > 8 ? 40 * step : 0)));
}

static void below_zero(stream *s, int step)
{
    stream_put_all(s, 0, -2.0F - 0.01F * (float)step);
}

#define POOR "PoorWeightInitialization"
static const program_case cases[] = {
    {"scores of a layer are large",
     POOR,
     {SCORES("reshape", "", "2")},
     PREDICTIONS,
     large_scores,
     .outcome = WARNED,
     .about = "loss/predictions",
     .line = 5,
     .message = "of the previous layer at each of the first 1 steps."},
    {"scores are masked",
     POOR,
     {SCORES("masked_fill", "", "2, 4")},
     PREDICTIONS,
     large_scores,
     .outcome = CLEAN},
    {"a mask is added",
     POOR,
     {SCORES("add", "", "2, 4")},
     PREDICTIONS,
     large_scores,
     .outcome = CLEAN},
    {"a logarithm of small numbers",
     POOR,
     {SCORES("log", "", "2")},
     PREDICTIONS,
     large_scores,
     .outcome = CLEAN},
    {"a temperature near 0",
     POOR,
     {SCORES("div", "'scalar': 0.0001", "2")},
     PREDICTIONS,
     large_scores,
     .outcome = WARNED,
     .about = "loss/predictions",
     .line = 5,
     .message = "it is divided by 0.0001 at train.py:4"},
    {"the first loss is far above that of even predictions",
     POOR,
     {SCORED("reshape", "", "2")},
     FIRST_LOSS,
     sure_scores,
     60,
     .outcome = WARNED,
     .about = "w",
     .line = 3,
     .message = "The first loss is 20, 7.21 times that of even predictions (2.773): the "
                "initial weights here are"},
    {"... because of the inputs",
     POOR,
     {SCORED("reshape", "", "2")},
     FIRST_LOSS,
     sure_of_inputs,
     60,
     .outcome = WARNED,
     .about = "input",
     .line = 3,
     .message = "the root mean square of the network's inputs is"},
    {"... three times it",
     POOR,
     {SCORED("reshape", "", "2")},
     FIRST_LOSS,
     usual_scores,
     60,
     .outcome = CLEAN},
    {"... of scores with a scale",
     POOR,
     {SCORED("mul", "'scalar': 64", "2")},
     FIRST_LOSS,
     sure_scores,
     60,
     .outcome = CLEAN},
    {"... of a loss that is a part",
     POOR,
     {SCORES("reshape", "", "2")},
     FIRST_LOSS,
     sure_scores,
     60,
     .outcome = CLEAN},
    {"the loss of a player that takes turns rises",
     "LossNotDecreasing",
     {TURNS},
     LOSS,
     rises,
     LONG,
     .outcome = CLEAN},
    {"... and that of both, which step together",
     "LossNotDecreasing",
     {BOTH},
     LOSS,
     rises,
     LONG,
     .outcome = WARNED,
     .about = "loss",
     .line = 5,
     .message = "stays there"},
    {"scores of a critic leave 0",
     "LossSpike",
     {TURNS},
     LOSS,
     near_zero,
     60,
     .outcome = CLEAN},
    {"... and a loss that is meant to fall does",
     "LossSpike",
     {BOTH},
     LOSS,
     near_zero,
     60,
     .outcome = FAILED,
     .about = "loss",
     .line = 5,
     .message = "jumped"},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
