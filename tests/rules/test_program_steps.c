/*
 * test_program_steps.c - TrainEvalMode, EvalNondeterminism, StepOrder,
 * MissingZeroGrad, DuplicateBatch and ReplicaDivergence by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* --- modes ---------------------------------------------------------------------------- */

/* A model with a layer of this kind, 1, in that mode; modes: of the pass. */
#define PASS(mode, kind, layer, pass, op, loss, events)                                  \
    "'mode': '" mode "', 'values': ["                                                    \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]},"                            \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true},"                      \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true,"                       \
    " 'tensor': 'drop_output_0'},"                                                       \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                         \
    "'nodes': [{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'module': 0,"          \
    " 'place': [0, 5]}, {'op': " op ", 'inputs': [2], 'outputs': [3], 'module': 1,"      \
    " 'place': [0, 6]}, {'op': 'cross_entropy', 'inputs': [3], 'outputs': [4],"          \
    " 'place': [0, 12]}], 'losses': [" loss "],"                                         \
    "'modules': [{'kind': 'Net', 'registered': true, 'called': true},"                   \
    "{'name': 'drop', 'kind': " kind ", 'registered': true, 'called': true"              \
    ", 'attributes': {'p': 0.5}" layer "}],"                                             \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true, 'used': true,"          \
    " 'optimizer': 0, 'reached': true}], 'optimizers': [{'kind': 'SGD'}],"               \
    "'events': [{'event': 'forward', 'module': 0" pass ", 'place': [0, 11]}" events "]"
#define LOSS "{'node': 2, 'value': 4, 'predictions': 3}"
#define DROPOUT(training) "'dropout', 'attributes': {'p': 0.5, 'training': " training "}"
#define TRAINS                                                                           \
    ", {'event': 'backward', 'value': 4, 'place': [0, 13]},"                             \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 14]}"
#define BACKWARD_ALONE ", {'event': 'backward', 'value': 4, 'place': [0, 13]}"
#define TRAINING ", 'training': true"
#define GRAD ", 'grad': true"
/* A step of training whose forward pass counted as an evaluation. */
#define STEP_ALONE(mode, events)                                                         \
    "'mode': 'train', 'modules': [{'kind': 'Net', 'registered': true" mode "},"          \
    "{'name': 'drop', 'kind': 'BatchNorm2d', 'registered': true" mode "}],"              \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true, 'optimizer': 0}],"      \
    "'optimizers': [{'kind': 'SGD'}], 'events': [" events                                \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 14]}]"
#define EVALUATION(grad, line) "{'event': 'evaluation'" grad ", 'place': [0, " #line "]},"
#define BATCH "{'event': 'batch', 'place': [0, 10]},"

/* --- events --------------------------------------------------------------------------- */

#define EVENT(event, line) "{'event': '" event "', 'place': [0, " #line "]}"
#define ZERO(line) "{'event': 'zero_grad', 'optimizer': 0, 'place': [0, " #line "]}"
#define BACK(line) "{'event': 'backward', 'value': 0, 'place': [0, " #line "]}"
#define OTHER(line) "{'event': 'backward', 'value': 1, 'place': [0, " #line "]}"
#define SCALED(line)                                                                     \
    "{'event': 'backward', 'value': 0, 'attributes': {'scale': 65536},"                  \
    " 'place': [0, " #line "]}"
#define LEFT(bits, line)                                                                 \
    "{'event': 'backward', 'value': 0, 'attributes': {'left': " #bits "},"               \
    " 'place': [0, " #line "]}"
#define PASSED "{'event': 'forward', 'module': -1, 'grad': true, 'place': [0, 3]},"
#define STEP(line) "{'event': 'step', 'optimizer': 0, 'place': [0, " #line "]}"
#define STEP_OF(optimizer, line)                                                         \
    "{'event': 'step', 'optimizer': " #optimizer ", 'place': [0, " #line "]}"
#define ORDER_OF(kinds, made, events)                                                    \
    "'mode': 'train', 'values': [{'dtype': 'float32', 'requires_grad': true},"           \
    "{'dtype': 'float32', 'requires_grad': true}],"                                      \
    "'nodes': [{'op': '" made "', 'outputs': [0], 'place': [0, 2]},"                     \
    "{'op': '" made "', 'outputs': [1], 'place': [0, 2]}],"                              \
    "'optimizers': [" kinds "], 'events': [" events "]"
#define ORDER(events) ORDER_OF("{'kind': 'SGD'}", "cross_entropy", events)
#define UNUSED(events)                                                                   \
    "'parameters': [{'name': 'w', 'requires_grad': true, 'used': true, 'reached': true," \
    " 'optimizer': 0}]," ORDER(events)
#define SGD_AND_ADAM "{'kind': 'SGD'}, {'kind': 'Adam'}"

/* The batch of a loader with two workers. */
#define LOADED(first, batches, facts)                                                    \
    "'mode': 'train', 'facts': {" facts "}, 'events': [{'event': 'batch',"               \
    " 'attributes': {'first': " first ", 'batches': " batches ", 'num_workers': 2},"     \
    " 'place': [0, 3]}]"

/* An input that is drawn at random. */
#define DRAWN(repeats)                                                                   \
    "'mode': 'train', 'facts': {'input_repeats': " repeats "}, 'values': ["              \
    "{'kind': 'constant', 'dtype': 'float32', 'shape': [8, 8], 'tensor': 'input'}],"     \
    "'nodes': [{'op': 'randn', 'outputs': [0], 'module': -1, 'place': [0, 4]}]"

static void put_loss(stream *s, int step)
{
    (void)step;
    stream_put_all(s, 0, 1.0F);
}

static void put_gradient(stream *s, int step)
{
    put_loss(s, step);
    stream_put_all(s, 1, 0.5F);
}

/* Processes that have been compared; found: what differs. */
#define COMPARED(found)                                                                  \
    "'mode': 'train', 'facts': {'replicas': 2, 'replicas_compared': 3" found "}"
#define DIFFERS(kind, count)                                                             \
    ", 'replicas_differ': 'fc.weight', 'replicas_kind': '" kind                          \
    "', 'replicas_first': 0,"                                                            \
    " 'replicas_other': 1, 'replicas_step': 5, 'replicas_count': " count

/* From the third step on, at every third step that of the step before. */
static void put_batch_twice(stream *s, int step)
{
    float values[64];

    for (int i = 0; i < 64; i++) {
        values[i] = (float)((step - (step > 4 && step % 3 == 2)) * 64 + i);
    }
    stream_put(s, 0, values);
}

static void put_first_gradient(stream *s, int step)
{
    (void)step;
    stream_put_all(s, 0, 0.5F);
}

static const program_case cases[] = {
    {"training in evaluation mode",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", "", GRAD, DROPOUT("false"), LOSS, TRAINS)},
     .outcome = FAILED,
     .about = "drop_output_0",
     .line = 11,
     .message = "in evaluation mode at train.py:11, and SGD at train.py:14 updates it"},
    {"training in evaluation mode, as a step of evaluation",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", TRAINING, TRAINING GRAD, DROPOUT("true"), LOSS, TRAINS),
      STEP_ALONE("", EVALUATION("", 9) BATCH EVALUATION(GRAD, 11))},
     .outcome = FAILED,
     .about = "drop_output_0",
     .line = 11,
     .message = "BatchNorm2d"},
    {"a second step in evaluation mode, after an evaluation with gradients",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", TRAINING, TRAINING GRAD, DROPOUT("true"), LOSS, TRAINS),
      STEP_ALONE("", EVALUATION(GRAD, 9) BATCH)},
     .outcome = FAILED,
     .about = "drop_output_0",
     .line = 14,
     .message = "in evaluation mode"},
    {"a step without a pass, after an evaluation without gradients",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", TRAINING, TRAINING GRAD, DROPOUT("true"), LOSS, TRAINS),
      STEP_ALONE("", EVALUATION("", 9) BATCH)},
     .outcome = CLEAN},
    {"a second step after an evaluation",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", TRAINING, TRAINING GRAD, DROPOUT("true"), LOSS, TRAINS),
      STEP_ALONE(TRAINING, EVALUATION(GRAD, 11))},
     .outcome = CLEAN},
    {"training in training mode",
     "TrainEvalMode",
     {PASS("train", "'Dropout'", TRAINING, TRAINING GRAD, DROPOUT("true"), LOSS, TRAINS)},
     .outcome = CLEAN},
    {"a frozen batch norm",
     "TrainEvalMode",
     {PASS("train", "'BatchNorm2d'", "", TRAINING GRAD, "'batch_norm'", LOSS, TRAINS)},
     .outcome = CLEAN},
    {"training in evaluation mode, without layers that care",
     "TrainEvalMode",
     {PASS("train", "'ReLU'", "", GRAD, "'relu'", LOSS, TRAINS)},
     .outcome = CLEAN},
    {"gradients of an input, in evaluation mode",
     "TrainEvalMode",
     {PASS("eval", "'Dropout'", "", GRAD, DROPOUT("false"), LOSS, BACKWARD_ALONE)},
     .outcome = CLEAN},
    {"evaluation in training mode",
     "TrainEvalMode",
     {PASS("eval", "'Dropout'", TRAINING, TRAINING, DROPOUT("true"), LOSS, "")},
     .outcome = FAILED,
     .about = "drop_output_0",
     .line = 11,
     .message = "still drops values at random"},
    {"pictures by a generator in training mode",
     "TrainEvalMode",
     {PASS("eval", "'BatchNorm2d'", TRAINING, TRAINING, "'batch_norm'", "", "")},
     .outcome = CLEAN},
    {"evaluation in evaluation mode",
     "TrainEvalMode",
     {PASS("eval", "'Dropout'", "", "", DROPOUT("false"), LOSS, "")},
     .outcome = CLEAN},
    {"dropout as a function, in evaluation",
     "EvalNondeterminism",
     {PASS("eval", "'Net'", "", "", DROPOUT("true"), LOSS, "")},
     .outcome = FAILED,
     .about = "drop_output_0",
     .line = 6,
     .message = "dropout at train.py:6 drops values although"},
    {"dropout as a function that knows the mode",
     "EvalNondeterminism",
     {PASS("eval", "'Net'", "", "", DROPOUT("false"), LOSS, "")},
     .outcome = CLEAN},
    {"a dropout layer that is switched on by itself",
     "EvalNondeterminism",
     {PASS("eval", "'Dropout'", TRAINING, "", DROPOUT("true"), LOSS, "")},
     .outcome = CLEAN},

    {"gradients without a step",
     "StepOrder",
     {UNUSED(ZERO(4) "," BACK(5) "," ZERO(4) "," BACK(5))},
     .outcome = FAILED,
     .about = "",
     .line = 5,
     .message = "2 backward passes at train.py:5 compute gradients, and SGD never steps"},
    {"a single backward pass", "StepOrder", {UNUSED(BACK(5))}, .outcome = CLEAN},
    {"gradients of other losses before",
     "StepOrder",
     {UNUSED(BACK(5) "," BACK(6))},
     .outcome = CLEAN},
    {"passes that are accumulated after a step",
     "StepOrder",
     {UNUSED(ZERO(4) "," BACK(5) "," STEP(6)), UNUSED(ZERO(4) "," BACK(5) "," BACK(5))},
     .outcome = CLEAN},
    {"cleared before the step",
     "StepOrder",
     {ORDER(BACK(5) "," ZERO(6) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = FAILED,
     .about = "",
     .line = 6,
     .message = "between backward and the step at train.py:7"},
    {"cleared, and set by hand",
     "StepOrder",
     {ORDER(BACK(5) "," ZERO(6) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_gradient,
     .outcome = CLEAN},
    {"the usual order",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," EVENT("clip", 6) "," STEP(7)),
      ORDER(EVENT("scheduler", 8) "," ZERO(4) "," BACK(5) "," EVENT("clip",
                                                                    6) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = CLEAN},
    {"cleared after the step",
     "StepOrder",
     {ORDER(BACK(5) "," STEP(7)), ORDER(ZERO(8) "," BACK(5) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = CLEAN},
    {"an adversarial example first",
     "StepOrder",
     {ORDER(BACK(3) "," ZERO(4) "," BACK(5) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = CLEAN},
    {"without backward",
     "StepOrder",
     {ORDER(PASSED ZERO(4) "," STEP(7)), ORDER(PASSED ZERO(5) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = FAILED,
     .about = "",
     .line = 7,
     .message = "No backward pass stands between the forward pass at train.py:3"},
    {"without backward, at each step the same",
     "StepOrder",
     {ORDER(PASSED STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .steps = 4,
     .outcome = FAILED,
     .about = "",
     .line = 7,
     .message = "no parameter has a gradient"},
    {"gradients that are set by hand",
     "StepOrder",
     {ORDER(PASSED STEP(7)), ORDER(PASSED STEP(8))},
     "loss loss 0, gradient gradient/w 2 2",
     put_gradient,
     .outcome = CLEAN},
    {"backward from the second step on",
     "StepOrder",
     {ORDER(PASSED STEP(7)), ORDER(PASSED BACK(6) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = CLEAN},
    {"another optimizer is cleared",
     "StepOrder",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               BACK(3) "," ZERO(4) "," STEP_OF(1, 5) "," BACK(6) "," STEP(7))},
     "loss loss 0, gradient gradient/w 2 2",
     put_loss,
     .outcome = CLEAN},
    {"clipped after the step",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," STEP(7)),
      ORDER(EVENT("clip", 8) "," ZERO(4) "," BACK(5) "," STEP(7))},
     .outcome = FAILED,
     .about = "",
     .line = 8,
     .message = "after the step and before the next backward at train.py:5"},
    {"clipped before backward",
     "StepOrder",
     {ORDER(ZERO(4) "," EVENT("clip", 5) "," BACK(6) "," STEP(7))},
     .outcome = FAILED,
     .about = "",
     .line = 5,
     .message = "no step uses what is clipped"},
    {"two optimizers, each clipped",
     "StepOrder",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               BACK(3) "," EVENT("clip", 4) "," STEP(5) "," EVENT("clip",
                                                                  6) "," STEP_OF(1, 7))},
     .outcome = CLEAN},
    {"clipped while scaled",
     "StepOrder",
     {ORDER(SCALED(5) "," EVENT("clip", 6) "," EVENT("unscale", 7) "," STEP(7))},
     .outcome = FAILED,
     .about = "",
     .line = 6,
     .message = "multiplied by 65536"},
    {"unscaled, then clipped",
     "StepOrder",
     {ORDER(SCALED(5) "," EVENT("unscale", 6) "," EVENT("clip", 7) "," STEP(8))},
     .outcome = CLEAN},
    {"the scheduler before the optimizer",
     "StepOrder",
     {ORDER(BACK(5) "," EVENT("scheduler", 6) "," STEP(7))},
     .outcome = WARNED,
     .about = "",
     .line = 6,
     .message = "before the optimizer does at train.py:7"},
    {"two batches for a step of SGD",
     "StepOrder",
     {ORDER(BACK(5) "," BACK(5) "," STEP(7))},
     .outcome = WARNED,
     .about = "",
     .line = 5,
     .message = "steps 2 times as large"},
    {"two batches, divided",
     "StepOrder",
     {ORDER_OF("{'kind': 'SGD'}", "div", BACK(5) "," BACK(5) "," STEP(7))},
     .outcome = CLEAN},
    {"two batches, cleared between",
     "StepOrder",
     {ORDER(BACK(5) ", {'event': 'zero_grad', 'place': [0, 4]}," BACK(5) "," STEP(7))},
     .outcome = CLEAN},
    {"two batches for a step of Adam",
     "StepOrder",
     {ORDER_OF("{'kind': 'Adam'}", "cross_entropy", BACK(5) "," BACK(5) "," STEP(7))},
     .outcome = CLEAN},
    {"two batches, a term divided",
     "StepOrder",
     {"'mode': 'train', 'values': [{'dtype': 'float32', 'requires_grad': true},"
      "{'dtype': 'float32', 'requires_grad': true}, {'dtype': 'float32'}],"
      "'nodes': [{'op': 'cross_entropy', 'inputs': [2], 'outputs': [1], 'place': [0, 1]},"
      "{'op': 'div', 'inputs': [1], 'outputs': [2], 'place': [0, 1]},"
      "{'op': 'add', 'inputs': [1, 2], 'outputs': [0], 'place': [0, 2]}],"
      "'optimizers': [{'kind': 'SGD'}], 'events': [" BACK(5) "," BACK(5) "," STEP(7) "]"},
     .outcome = CLEAN},
    {"two losses of one batch",
     "StepOrder",
     {ORDER(BACK(5) "," OTHER(6) "," STEP(7))},
     .outcome = CLEAN},
    {"a batch that is drawn, and is the same each time",
     "DuplicateBatch",
     {DRAWN("3")},
     "input input 8 8",
     .outcome = FAILED,
     .about = "input",
     .line = 4,
     .message = "the batch has not changed for 3 steps"},
    {"a batch that is drawn anew",
     "DuplicateBatch",
     {DRAWN("0")},
     "input input 8 8",
     put_loss,
     .outcome = CLEAN},
    {"backward twice on one loss",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," BACK(6) "," STEP(7))},
     .outcome = FAILED,
     .about = "",
     .line = 6,
     .message = "on the loss of the backward pass at train.py:5"},
    {"gradients that are cleared between batches",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," ZERO(4) "," BACK(5) "," STEP(7))},
     .outcome = FAILED,
     .about = "",
     .line = 4,
     .message = "the step uses the last one, and 1 of 2 are lost"},
    {"gradients of samples, each clipped",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," EVENT("clip", 6) "," ZERO(4) "," BACK(5) "," EVENT(
         "clip", 6) "," STEP(7))},
     .outcome = CLEAN},
    {"a second step on the same gradients",
     "StepOrder",
     {ORDER(ZERO(4) "," BACK(5) "," STEP(7)), ORDER(STEP(8))},
     .outcome = FAILED,
     .about = "",
     .line = 8,
     .message = "The optimizer steps again at train.py:8"},
    {"a step of another optimizer on the same gradients",
     "StepOrder",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy", ZERO(4) "," BACK(5) "," STEP(7)),
      ORDER_OF(SGD_AND_ADAM, "cross_entropy", STEP_OF(1, 8))},
     .outcome = CLEAN},
    {"LBFGS",
     "StepOrder",
     {ORDER_OF("{'kind': 'LBFGS'}", "cross_entropy",
               BACK(5) "," EVENT("clip", 1) "," BACK(5) "," STEP(7))},
     .outcome = CLEAN},

    {"gradients that are not cleared",
     "MissingZeroGrad",
     {ORDER(LEFT(0, 5) "," STEP(7)), ORDER(LEFT(1, 5) "," STEP(7))},
     "gradient gradient/w 2 2",
     .outcome = FAILED,
     .about = "",
     .line = 7,
     .message = "after a step of SGD at train.py:7: backward at train.py:5"},
    {"the gradients of one of two optimizers are not cleared",
     "MissingZeroGrad",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               LEFT(0, 3) "," STEP(4) "," LEFT(0, 5) "," STEP_OF(1, 6)),
      ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               LEFT(2, 3) "," STEP(4) "," LEFT(3, 5) "," STEP_OF(1, 6))},
     "gradient gradient/w 2 2",
     .outcome = FAILED,
     .about = "",
     .line = 6,
     .message = "after a step of Adam"},
    {"gradients that are cleared",
     "MissingZeroGrad",
     {ORDER(LEFT(0, 5) "," STEP(7)), ORDER(ZERO(4) "," LEFT(0, 5) "," STEP(7))},
     "gradient gradient/w 2 2",
     put_first_gradient,
     .outcome = CLEAN},
    {"gradients that are cleared by hand, and add up within a step",
     "MissingZeroGrad",
     {ORDER(LEFT(0, 5) "," LEFT(1, 5) "," STEP(7)),
      ORDER(LEFT(0, 5) "," LEFT(1, 5) "," STEP(8))},
     "gradient gradient/w 2 2",
     put_first_gradient,
     .outcome = CLEAN},
    {"two players, each cleared by its model",
     "MissingZeroGrad",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               LEFT(0, 3) "," STEP(4) "," LEFT(1, 5) "," STEP_OF(1, 6)),
      ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               EVENT("zero_grad", 2) "," LEFT(2, 3) "," STEP(4) "," EVENT(
                   "zero_grad", 4) "," LEFT(1, 5) "," STEP_OF(1, 6))},
     "gradient gradient/w 2 2",
     put_first_gradient,
     .outcome = CLEAN},
    {"an optimizer that steps at times",
     "MissingZeroGrad",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy", LEFT(0, 3) "," STEP(4)),
      ORDER_OF(SGD_AND_ADAM, "cross_entropy",
               ZERO(2) "," LEFT(2, 3) "," STEP(4) "," STEP_OF(1, 6))},
     "gradient gradient/w 2 2",
     put_first_gradient,
     .outcome = CLEAN},
    {"gradients that the program cannot read",
     "MissingZeroGrad",
     {ORDER(BACK(5) "," STEP(7)), ORDER(BACK(5) "," STEP(8))},
     "gradient gradient/w 2 2",
     put_first_gradient,
     .outcome = CLEAN},

    {"the first batch of a loader at each step",
     "DuplicateBatch",
     {LOADED("true", "20", ""), LOADED("true", "20", "'input_min': 1"),
      LOADED("true", "20", "'input_repeats': 2")},
     "input input 8 8",
     put_loss,
     .outcome = FAILED,
     .about = "input",
     .line = 3,
     .message = "begins again at each step at train.py:3, and gives the first of its 20 "
                "batches"},
    {"two players, each with the batch",
     "DuplicateBatch",
     {ORDER_OF(SGD_AND_ADAM, "cross_entropy", BACK(5) "," STEP(7))},
     "input input 8 8",
     put_batch_twice,
     .steps = 30,
     .outcome = CLEAN},
    {"one player, with each batch twice",
     "DuplicateBatch",
     {ORDER(BACK(5) "," STEP(7))},
     "input input 8 8",
     put_batch_twice,
     .steps = 30,
     .outcome = FAILED,
     .about = "input",
     .line = 0,
     .message = "the batch of the previous step"},
    {"an epoch of one batch",
     "DuplicateBatch",
     {LOADED("true", "1", ""), LOADED("true", "1", "'input_min': 1"),
      LOADED("true", "1", "'input_repeats': 2")},
     "input input 8 8",
     put_loss,
     .outcome = CLEAN},
    {"an equal batch within an epoch",
     "DuplicateBatch",
     {LOADED("true", "20", ""), LOADED("false", "20", ""),
      LOADED("false", "20", "'input_repeats': 2")},
     "input input 8 8",
     put_loss,
     .outcome = CLEAN},
    {"workers that give the same",
     "DuplicateBatch",
     {LOADED("false", "20", "'workers_repeat': true")},
     "input input 8 8",
     put_loss,
     .outcome = FAILED,
     .about = "input",
     .line = 3,
     .message = "Each batch comes 2 times in a row, once from each worker"},
    {"processes that go together",
     "ReplicaDivergence",
     {COMPARED("")},
     "loss loss",
     put_loss,
     .outcome = CLEAN},
    {"a process that goes its own way",
     "ReplicaDivergence",
     {COMPARED(""), COMPARED(DIFFERS("part", "2"))},
     "loss loss",
     put_loss,
     .outcome = FAILED,
     .about = "fc.weight",
     .message = "different values before training step 5"},
    {"processes that began with other values",
     "ReplicaDivergence",
     {COMPARED(DIFFERS("start", "1"))},
     "loss loss",
     put_loss,
     .outcome = FAILED,
     .about = "fc.weight",
     .message = "began with different values"},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
