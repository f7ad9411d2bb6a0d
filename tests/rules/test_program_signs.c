/*
 * test_program_signs.c - LossSign by the program of a step: signs of losses, and players of an
 * adversarial training.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* --- signs ---------------------------------------------------------------------------- */

/* Input 0, weight 1, predictions (8, 3) 2, targets (8, 3) 3, numbers on the way 4 ... 9,
 * labels 10, log-probabilities 11. */
#define FLOATS(shape) "{'dtype': 'float32', 'shape': " shape ", 'requires_grad': true},"
#define VALUES                                                                               \
    "'mode': 'train', 'values': ["                                                           \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 4], 'tensor': 'input'},"             \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [3, 4],"             \
    " 'requires_grad': true}," FLOATS(                                                       \
        "[8, 3]") "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 3]}," FLOATS("[8, 3]") \
        FLOATS("[8, 3]") FLOATS("[8, 3]") FLOATS("[]") FLOATS("[]")                          \
            FLOATS("[]") "{'kind': 'input', 'dtype': 'int64', 'shape': [8]}," FLOATS(        \
                "[8, 3]") "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"       \
                          "'parameters': [{'name': 'w', 'requires_grad': true,"              \
                          " 'optimizer': 0, 'used': true, 'reached': true}],"
#define NODE(op, inputs, outputs, line)                                                  \
    "{'op': '" op "', 'inputs': " inputs ", 'outputs': " outputs ", 'place': [0, " #line \
    "]}"
#define WITH(op, attribute, inputs, outputs, line)                                       \
    "{'op': '" op "', 'attributes': {" attribute "}, 'inputs': " inputs                  \
    ", 'outputs': " outputs ", 'place': [0, " #line "]}"
/* backward is called on 9. */
#define SIGNED(optimizer, facts, rest)                                                   \
    VALUES "'optimizers': [" optimizer "], 'facts': {" facts "}, 'nodes': [" NODE(       \
        "linear", "[0, 1]", "[2]",                                                       \
        10) "," rest                                                                     \
            "], 'losses': [{'node': 1, 'value': 9, 'predictions': 2, 'targets': 3}],"    \
            "'events': [{'event': 'backward', 'value': 9, 'place': [0, 21]},"            \
            " {'event': 'step', 'optimizer': 0, 'place': [0, 22]}]"
#define ADAM "{'name': 'optimizer', 'kind': 'Adam'}"
#define OF(rest) SIGNED(ADAM, "", rest)
#define MSE(out) NODE("mse_loss", "[2, 3]", out, 20)
#define CHOSEN                                                                           \
    NODE("log_softmax", "[2]", "[11]", 18) "," NODE("index", "[11, 10]", "[4]", 19) ","
/* y log p + (1 - y) log(1 - p), of which the second half is added or subtracted. */
#define HALVES(join)                                                                     \
    SIGNED(ADAM, "'targets_min': 0, 'targets_max': 1",                                   \
           NODE("sigmoid", "[2]", "[4]", 11) "," NODE("log", "[4]", "[5]", 12) "," NODE( \
               "mul", "[3, 5]", "[6]",                                                   \
               13) "," WITH("sub", "'scalar': 1", "[-1, 4]", "[11]",                     \
                            14) "," NODE("log", "[11]", "[12]",                          \
                                         15) "," join                                    \
                                             "," NODE("mean", "[7]", "[8]",              \
                                                      17) "," NODE("neg", "[8]", "[9]",  \
                                                                   18))

/* --- players -------------------------------------------------------------------------- */

/* Real samples 0, noise 1, generator 2, discriminator 3; generated 4; outputs of real 5, of
 * generated in the discriminator's step 6, in the generator's 7; losses 8, 9, 10; the sum 11;
 * targets 12. */
#define ROW(shape, more) "{'dtype': 'float32', 'shape': " shape more "},"
#define GRAD ", 'requires_grad': true"
#define PLAYERS(losses)                                                                                          \
    "'mode': 'train', 'values': [" ROW("[8, 2]", ", 'kind': 'input'") ROW(                                       \
        "[8, 4]", ", 'kind': 'input'") ROW("[2, 4]",                                                             \
                                           ", 'kind': 'parameter', 'parameter': 0" GRAD)                         \
        ROW("[1, 2]", ", 'kind': 'parameter', 'parameter': 1" GRAD) ROW(                                         \
            "[8, 2]", GRAD) ROW("[8, 1]",                                                                        \
                                GRAD) ROW("[8, 1]",                                                              \
                                          GRAD) ROW("[8, 1]",                                                    \
                                                    GRAD) ROW("[]",                                              \
                                                              GRAD) ROW("[]",                                    \
                                                                        GRAD) ROW("[]",                          \
                                                                                  GRAD)                          \
            ROW("[]", GRAD) ROW("[8, 1]", ", 'kind': 'input'") ROW("[8, 1]", GRAD) ROW(                          \
                "[8, 1]",                                                                                        \
                GRAD) "{'dtype': 'float32', 'shape': []}],"                                                      \
                      "'parameters': [{'name': 'g', 'requires_grad': true, 'optimizer': 0},"                     \
                      " {'name': 'd', 'requires_grad': true, 'optimizer': 1}],"                                  \
                      "'modules': [{'name': 'G', 'kind': 'Linear'}, {'name': 'D', 'kind': 'Linear'}],"           \
                      "'optimizers': [{'kind': 'Adam'}, {'kind': 'Adam'}], 'nodes': ["                           \
                      "{'op': 'linear', 'inputs': [1, 2], 'outputs': [4], 'module': 0, 'place': [0, 1]},"        \
                      "{'op': 'linear', 'inputs': [0, 3], 'outputs': [5], 'module': 1, 'place': [0, 2]},"        \
                      "{'op': 'linear', 'inputs': [4, 3], 'outputs': [6], 'module': 1, 'place': [0, 3]},"        \
                      "{'op': 'linear', 'inputs': [4, 3], 'outputs': [7], 'module': 1, 'place': [0, 4]}," losses \
                      "," NODE(                                                                                  \
                          "add", "[8, 9]", "[11]",                                                               \
                          14) "], 'events': [{'event': 'backward', 'value': 11, 'place': [0, 15]},"              \
                              " {'event': 'step', 'optimizer': 1, 'place': [0, 16]},"                            \
                              " {'event': 'backward', 'value': 10, 'place': [0, 17]},"                           \
                              " {'event': 'step', 'optimizer': 0, 'place': [0, 18]}]"
#define BCE(all, from, to, line)                                                         \
    WITH("binary_cross_entropy_with_logits", "'targets_all': " #all, "[" #from ", 12]",  \
         "[" #to "]", line)
#define BY_BCE(real, made, generator)                                                    \
    PLAYERS(BCE(real, 5, 8, 11) "," BCE(made, 6, 9, 12) "," BCE(generator, 7, 10, 13))
/* Means of outputs, of which a minus may stand before that of real samples. */
#define BY_MEAN(real, generator)                                                         \
    PLAYERS(real "," NODE("mean", "[6]", "[9]", 12) "," generator)

static const program_case cases[] = {
    {"minus a squared error",
     "LossSign",
     {OF(MSE("[8]") "," NODE("neg", "[8]", "[9]", 21))},
     .outcome = FAILED,
     .about = "",
     .line = 20,
     .message = "mse_loss at train.py:20 enters what is minimized with a minus"},
    {"one minus a squared error",
     "LossSign",
     {OF(MSE("[8]") "," WITH("sub", "'scalar': 1", "[-1, 8]", "[9]", 21))},
     .outcome = FAILED,
     .about = "",
     .line = 20,
     .message = "with a minus"},
    {"a squared error", "LossSign", {OF(MSE("[9]"))}, .outcome = CLEAN},
    {"minus a squared error and a loss that is right",
     "LossSign",
     {OF(MSE("[8]") "," NODE("cross_entropy", "[2, 10]", "[7]",
                             21) "," NODE("sub", "[7, 8]", "[9]", 22))},
     .outcome = CLEAN},
    {"minus a squared error times a reward",
     "LossSign",
     {OF(MSE("[8]") "," NODE("mul", "[8, 3]", "[7]", 21) "," NODE("neg", "[7]", "[9]",
                                                                  22))},
     .outcome = CLEAN},
    {"an optimizer that maximizes",
     "LossSign",
     {SIGNED("{'kind': 'SGD', 'attributes': {'maximize': true}}", "",
             MSE("[8]") "," NODE("neg", "[8]", "[9]", 21))},
     .outcome = CLEAN},
    {"minus the size of an error",
     "LossSign",
     {OF(NODE("sub", "[2, 3]", "[4]", 18) "," NODE("abs", "[4]", "[5]", 19) "," NODE(
         "mean", "[5]", "[8]", 20) "," WITH("mul", "'scalar': -2", "[8]", "[9]", 21))},
     .outcome = FAILED,
     .about = "",
     .line = 19,
     .message = "abs at train.py:19 enters"},
    {"chosen log-probabilities without a minus",
     "LossSign",
     {OF(CHOSEN NODE("mean", "[4]", "[9]", 20))},
     .outcome = FAILED,
     .about = "",
     .line = 19,
     .message = "The logarithm of a probability at train.py:19 enters what is minimized "
                "without a minus"},
    {"chosen log-probabilities with a minus",
     "LossSign",
     {OF(CHOSEN NODE("neg", "[4]", "[5]", 20) "," NODE("mean", "[5]", "[9]", 21))},
     .outcome = CLEAN},
    {"halves of a binary cross-entropy that are added",
     "LossSign",
     {HALVES(NODE("add", "[6, 12]", "[7]", 16))},
     .outcome = CLEAN},
    {"halves of a binary cross-entropy that are subtracted",
     "LossSign",
     {HALVES(NODE("sub", "[6, 12]", "[7]", 16))},
     .outcome = FAILED,
     .about = "",
     .line = 15,
     .message = "without a minus"},
    {"players", "LossSign", {BY_BCE(1, 0, 1)}, .outcome = CLEAN},
    {"players with targets the other way round",
     "LossSign",
     {BY_BCE(0, 1, 0)},
     .outcome = CLEAN},
    {"one target for real and generated samples",
     "LossSign",
     {BY_BCE(1, 1, 1)},
     .outcome = FAILED,
     .about = "",
     .line = 12,
     .message = "one answer for real and for generated samples"},
    {"a generator that wants what the discriminator wants",
     "LossSign",
     {BY_BCE(1, 0, 0)},
     .outcome = FAILED,
     .about = "",
     .line = 13,
     .message = "are not opponents"},
    {"a critic",
     "LossSign",
     {BY_MEAN(NODE("mean", "[5]", "[13]", 10) "," NODE("neg", "[13]", "[8]", 11),
              NODE("mean", "[7]", "[14]", 13) "," NODE("neg", "[14]", "[10]", 14))},
     .outcome = CLEAN},
    {"a critic that lowers both",
     "LossSign",
     {BY_MEAN(NODE("mean", "[5]", "[8]", 11),
              NODE("mean", "[7]", "[14]", 13) "," NODE("neg", "[14]", "[10]", 14))},
     .outcome = FAILED,
     .about = "",
     .line = 12,
     .message = "one answer"},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
