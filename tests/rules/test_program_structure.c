/*
 * test_program_structure.c - ModelStructure by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* fc1, an activation `act`, fc2 of a network; loss of the last value. Values: 0 the input, 1
 * and 2 the weights, 3 of fc1, 4 of the activation, 5 of fc2, 6 the loss, 7 more. */
#define VALUE(more) "{'dtype': 'float32', 'shape': [8, 5], 'requires_grad': true" more "}"
#define WEIGHT(i)                                                                        \
    "{'kind': 'parameter', 'parameter': " #i ", 'dtype': 'float32', 'shape': [5, 5],"    \
    " 'requires_grad': true}"
#define MODULE(name, kind, more)                                                         \
    "{'name': '" name "', 'kind': '" kind "', 'place': [0, 9]" more "}"
#define KNOWN ", 'registered': true, 'called': true, 'training': true"
#define NODE(op, more, inputs, outputs, module, line)                                    \
    "{'op': '" op "', 'inputs': " inputs ", 'outputs': " outputs ", 'module': " #module  \
    ", 'place': [0, " #line "]" more "}"
#define PARAMETER(name, module, holder)                                                  \
    "{'name': '" name "', 'module': " #module ", 'requires_grad': true, 'used': true,"   \
    " 'reached': true, 'optimizer': " #holder "}"
#define NET(modules, holder, nodes) NET_OF(modules, holder, nodes, 5, 6)
#define NET_OF(modules, holder, nodes, predictions, total)                                                                                                        \
    "'mode': 'train', 'values': ["                                                                                                                                \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5], 'tensor': 'input'}," WEIGHT(0) "," WEIGHT(1) "," VALUE("") "," VALUE(", 'tensor': 'made'") "," VALUE( \
        ", 'tensor': 'last'") ","                                                                                                                                 \
                              "{'dtype': 'float32', 'shape': [], 'requires_grad': true}," VALUE(                                                                  \
                                  "") ","                                                                                                                         \
                                      "{'dtype': 'float32', 'shape': [8, 5], 'tensor': 'noise'},"                                                                 \
                                      "{'dtype': 'float32', 'shape': [8, 5], 'requires_grad': true}],"                                                            \
                                      "'nodes': [" nodes "],"                                                                                                     \
                                      "'modules': [{'kind': 'Net'" KNOWN "}," modules                                                                             \
                                      "],"                                                                                                                        \
                                      "'parameters': [" PARAMETER("fc1.weight", 1, 0) "," PARAMETER(                                                              \
                                          "fc2.weight", 3,                                                                                                        \
                                          holder) "],"                                                                                                            \
                                                  "'optimizers': [{'kind': 'SGD'}],"                                                                              \
                                                  "'losses': [{'node': 2, 'value': 6, 'predictions': " #predictions                                               \
                                                  ", 'targets': 0, 'backward': 0}],"                                                                              \
                                                  "'events': [{'event': 'backward', 'value': " #total                                                             \
                                                  ", 'place': [0, 20]},"                                                                                          \
                                                  "{'event': 'step', 'optimizer': 0, 'place': [0, 21]}]"
#define LAYERS(act, more)                                                                \
    MODULE("fc1", "Linear", KNOWN)                                                       \
    "," MODULE("act", act, more) "," MODULE("fc2", "Linear", KNOWN)
#define FC1 NODE("linear", "", "[0, 1]", "[3]", 1, 10)
#define LOSS(value) NODE("mse_loss", "", "[" #value ", 0]", "[6]", -1, 19)
#define RELU NODE("relu", "", "[3]", "[4]", 2, 11)
#define FC2(from) NODE("linear", "", "[" #from ", 2]", "[5]", 3, 12)
#define DROPS(p)                                                                         \
    NODE("dropout", ", 'attributes': {'p': " p ", 'training': true}", "[3]", "[4]", 2, 11)
#define NORM NODE("batch_norm", "", "[3]", "[4]", 2, 11)
#define NORMS(momentum)                                                                  \
    LAYERS("BatchNorm1d", KNOWN ", 'attributes': {'momentum': " momentum                 \
                                ", 'track_running_stats': true}")
/* An encoder, fc1, a sample of its result, and a decoder, fc2. */
#define CODE(noise, from) FC1 "," noise "," FC2(from) "," LOSS(5)
#define ENDS                                                                             \
    "," NODE("pow", "", "[3]", "[7]", -1, 15) "," NODE("add", "", "[6, 7]", "[9]", -1, 16)

/* Four calls of a cell, with these states. */
#define CELLS(a, b, c)                                                                                                                                                   \
    "'mode': 'train', 'values': [" VALUE("") "," WEIGHT(0) "," VALUE("") "," VALUE("") "," VALUE("") "," VALUE(", 'tensor': 'h'") "," VALUE("") "," VALUE("") "," VALUE( \
        "") "," VALUE("") "],"                                                                                                                                           \
                          "'nodes': [" NODE("gru_cell", "", "[1, 0, 1]", "[5]", 1, 10) "," NODE(                                                                         \
                              "gru_cell", "", "[2, " #a ", 1]", "[6]", 1,                                                                                                \
                              10) "," NODE("gru_cell", "", "[3, " #b ", 1]", "[7]", 1,                                                                                   \
                                           10) "," NODE("gru_cell", "",                                                                                                  \
                                                        "[4, " #c ", 1]", "[8]", 1,                                                                                      \
                                                        10) "," NODE("stack", "",                                                                                        \
                                                                     "[5, 6, 7, 8]",                                                                                     \
                                                                     "[9]", 0,                                                                                           \
                                                                     11) "],"                                                                                            \
                                                                         "'modules': [{'kind': 'Net'" KNOWN                                                              \
                                                                         "}," MODULE(                                                                                    \
                                                                             "cell",                                                                                     \
                                                                             "GRUCell",                                                                                  \
                                                                             KNOWN) "],"                                                                                 \
                                                                                    "'parameters': [" PARAMETER(                                                         \
                                                                                        "cell.weight",                                                                   \
                                                                                        1,                                                                               \
                                                                                        0) "],"                                                                          \
                                                                                           "'optimizers': [{'kind': 'SGD'}],"                                            \
                                                                                           "'events': [{'event': 'backward', 'value': 9, 'place': [0, 20]}]"

static const program_case cases[] = {
    {"a cell that is given its states",
     "ModelStructure",
     {CELLS(5, 6, 7)},
     .outcome = CLEAN},
    {"a cell that is given one state",
     "ModelStructure",
     {CELLS(0, 0, 0)},
     .outcome = FAILED,
     .about = "h",
     .line = 10,
     .message = "gru_cell at train.py:10 is called 4 times with one and the same state"},

    {"an activation that is used",
     "ModelStructure",
     {NET(LAYERS("ReLU", KNOWN), 0, FC1 "," RELU "," FC2(4) "," LOSS(5))},
     .outcome = CLEAN},
    {"an activation that nothing reads",
     "ModelStructure",
     {NET(LAYERS("ReLU", KNOWN), 0, FC1 "," RELU "," FC2(3) "," LOSS(5))},
     .outcome = FAILED,
     .about = "made",
     .line = 11,
     .message = "Nothing reads what relu at train.py:11 makes"},
    {"the same, in place",
     "ModelStructure",
     {NET(LAYERS("ReLU", KNOWN), 0,
          FC1 "," NODE("relu", ", 'attributes': {'inplace': true}", "[3]", "[4]", 2,
                       11) "," FC2(3) "," LOSS(5))},
     .outcome = CLEAN},
    {"an activation that is never called",
     "ModelStructure",
     {NET(LAYERS("ReLU", ", 'registered': true"), 0, FC1 "," FC2(3) "," LOSS(5))},
     .outcome = WARNED,
     .about = "last",
     .line = 12,
     .message = "while ReLU 'act' of the same module is never called"},
    {"an activation that is called as a function",
     "ModelStructure",
     {NET(LAYERS("ReLU", ", 'registered': true"), 0,
          FC1 "," NODE("relu", "", "[3]", "[4]", 0, 11) "," FC2(4) "," LOSS(5))},
     .outcome = CLEAN},
    {"two linear layers, as of a low rank",
     "ModelStructure",
     {NET(MODULE("fc1", "Linear", KNOWN) "," MODULE("drop", "Dropout", KNOWN) "," MODULE(
              "fc2", "Linear", KNOWN),
          0, FC1 "," FC2(3) "," LOSS(5))},
     .outcome = CLEAN},
    {"three linear layers",
     "ModelStructure",
     {NET(LAYERS("Linear", KNOWN), 0,
          FC1 "," NODE("linear", "", "[3, 1]", "[4]", 2, 11) "," FC2(4) "," LOSS(5))},
     .outcome = WARNED,
     .about = "last",
     .line = 12,
     .message = "The network is 3 linear layers"},
    {"dropout that forward builds",
     "ModelStructure",
     {NET(LAYERS("Dropout", ", 'called': true, 'training': true, 'attributes': "
                            "{'built': true, 'p': 0.2}"),
          0, FC1 "," DROPS("0.2") "," FC2(4) "," LOSS(5))},
     .outcome = FAILED,
     .about = "",
     .line = 9,
     .message = "eval() of the model does not switch it off"},
    {"a layer that forward builds",
     "ModelStructure",
     {NET(MODULE("fc1", "Linear", KNOWN) "," MODULE("act", "ReLU", KNOWN) "," MODULE(
              "Linear", "Linear",
              ", 'called': true, 'training': true, 'attributes': {'built': true}"),
          -1, FC1 "," RELU "," FC2(4) "," LOSS(5))},
     .outcome = FAILED,
     .about = "",
     .line = 9,
     .message = "its weights are drawn anew"},
    {"one layer several times",
     "ModelStructure",
     {NET(MODULE("fc1", "Linear", KNOWN ", 'attributes': {'repeated': 3}") "," MODULE(
              "act", "ReLU",
              KNOWN ", 'attributes': {'repeated': 3}") "," MODULE("fc2", "Linear", KNOWN),
          0, FC1 "," RELU "," FC2(4) "," LOSS(5))},
     .outcome = NOTED,
     .about = "",
     .line = 9,
     .message = "'fc1', a Linear at train.py:9, stands 3 times"},
    {"dropout of all",
     "ModelStructure",
     {NET(LAYERS("Dropout", KNOWN), 0, FC1 "," DROPS("1") "," FC2(4) "," LOSS(5))},
     .outcome = FAILED,
     .about = "made",
     .line = 11,
     .message = "drops 1 of all values"},
    {"dropout of predictions",
     "ModelStructure",
     {NET_OF(LAYERS("Dropout", KNOWN), 0,
             FC1 "," FC2(3) "," NODE("dropout",
                                     ", 'attributes': {'p': 0.5, 'training': true}",
                                     "[5]", "[4]", 2, 13) "," LOSS(4),
             4, 6)},
     .outcome = WARNED,
     .about = "made",
     .line = 13,
     .message = "sets predictions to 0 at random"},
    {"batch norm of momentum 0",
     "ModelStructure",
     {NET(NORMS("0"), 0, FC1 "," NORM "," FC2(4) "," LOSS(5))},
     .outcome = WARNED,
     .about = "made",
     .line = 11,
     .message = "never change"},
    {"batch norm of momentum 0.99",
     "ModelStructure",
     {NET(NORMS("0.99"), 0, FC1 "," NORM "," FC2(4) "," LOSS(5))},
     .outcome = NOTED,
     .about = "made",
     .line = 11,
     .message = "those of the last batch"},
    {"batch norm of momentum 0.1",
     "ModelStructure",
     {NET(NORMS("0.1"), 0, FC1 "," NORM "," FC2(4) "," LOSS(5))},
     .outcome = CLEAN},
    {"noise in place of a code",
     "ModelStructure",
     {NET_OF(LAYERS("ReLU", KNOWN), 0,
             CODE(NODE("randn", "", "[3]", "[8]", 0, 11), 8) ENDS, 5, 9)},
     .outcome = FAILED,
     .about = "noise",
     .line = 11,
     .message = "randn at train.py:11 passes no gradient, and linear at train.py:12 "
                "reads its numbers in place of what linear at train.py:10 makes"},
    {"noise that is added to a code",
     "ModelStructure",
     {NET_OF(LAYERS("ReLU", KNOWN), 0,
             CODE(NODE("randn_like", "", "[3]", "[8]", 0,
                       11) "," NODE("add", "", "[3, 8]", "[4]", 0, 11),
                  4) ENDS,
             5, 9)},
     .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
