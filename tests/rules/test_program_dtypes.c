/*
 * test_program_dtypes.c - DtypeMismatch by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

#define VALUE(dtype, name)                                                               \
    "{'dtype': '" dtype "', 'shape': [8, 4], 'requires_grad': true, 'tensor': '" name "'}"
/* A weight, 0, and layers that make 1, 2, 3 and 4, the last one of `last`; a loss, 5, of 4
 * and targets, 6. */
#define NET(weight, most, last, attributes, before, events)                                                         \
    "'mode': 'train', 'values': ["                                                                                  \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': '" weight "', 'shape': [4, 4],"                                 \
    " 'requires_grad': true, 'tensor': 'w'}," VALUE(most, "a") "," VALUE(most, "b") "," VALUE(most, "c") "," VALUE( \
        last,                                                                                                       \
        "d") "," VALUE("float32",                                                                                   \
                       "loss") ",{'kind': 'input', 'dtype': 'float32', 'shape': [8, 4], 'tensor': 'y'},"            \
                               "{'dtype': 'int64', 'shape': [8, 4]}, {'dtype': 'float32', 'shape': [8, 4]},"        \
                               "{'dtype': 'int64', 'shape': [8, 4], 'kind': 'input'}," VALUE(                       \
                                   "float32",                                                                       \
                                   "e") "],"                                                                        \
                                        "'modules': [{'kind': 'Net', 'registered': true}],"                         \
                                        "'parameters': [{'name': 'w', 'requires_grad': true, 'optimizer': 0}],"     \
                                        "'optimizers': [{'kind': 'AdamW', 'attributes': {" attributes               \
                                        "}}], 'nodes': [" LAYER("0", "1", 3)                                        \
                                            LAYER("1", "2", 4) LAYER("2", "3", 5) before                            \
        "],"                                                                                                        \
        "'events': [" events ", {'event': 'step', 'optimizer': 0, 'place': [0, 22]}],"                              \
        "'losses': [{'node': 4, 'value': 5, 'predictions': 4, 'targets': 8, 'backward': 0}]"
#define LAYER(input, output, line)                                                       \
    "{'op': 'linear', 'inputs': [" input ", 0], 'outputs': [" output                     \
    "], 'module': 0, 'place': [0, " #line "]},"
#define LOSS "{'op': 'mse_loss', 'inputs': [4, 8], 'outputs': [5], 'place': [0, 20]}"
#define PLAIN LAYER("3", "4", 6) LOSS
#define BACKWARD "{'event': 'backward', 'value': 5, 'place': [0, 21]}"
#define SCALED                                                                           \
    "{'event': 'backward', 'value': 5, 'attributes': {'scale': 65536}, 'place': [0, 21]}"
#define TARGETS(from, to)                                                                \
    LAYER("3", "4", 6)                                                                   \
    "{'op': 'mse_loss', 'inputs': [4, 8], 'outputs': [5], 'place': [0, 20]},"            \
    "{'op': 'to', 'inputs': [" from "], 'outputs': [" to "], 'place': [0, 7]},"          \
    "{'op': 'to', 'inputs': [" to "], 'outputs': [8], 'place': [0, 8]}"

static const program_case cases[] = {
    {"float16 without a scaler",
     "DtypeMismatch",
     {NET("float32", "float16", "float16", "", PLAIN, BACKWARD)},
     .outcome = WARNED,
     .about = "",
     .line = 21,
     .message =
         "linear at train.py:3 and other layers compute in float16, and backward at "
         "train.py:21"},
    {"float16 with a scaler",
     "DtypeMismatch",
     {NET("float32", "float16", "float16", "", PLAIN, SCALED)},
     .outcome = CLEAN},
    {"float16 with a loss that is multiplied",
     "DtypeMismatch",
     {NET("float32", "float16", "float16", "",
          LAYER("3", "4", 6) "{'op': 'mse_loss', 'inputs': [4, 6], 'outputs': [10]},"
                             "{'op': 'mul', 'inputs': [10], 'outputs': [5],"
                             " 'attributes': {'scalar': 1024}}",
          BACKWARD)},
     .outcome = CLEAN},
    {"bfloat16 without a scaler",
     "DtypeMismatch",
     {NET("float32", "bfloat16", "bfloat16", "", PLAIN, BACKWARD)},
     .outcome = CLEAN},
    {"float16 parameters and a small eps",
     "DtypeMismatch",
     {NET("float16", "float16", "float16", "'eps': 1e-8", PLAIN, SCALED)},
     .outcome = FAILED,
     .about = "w",
     .line = 3,
     .message = "AdamW updates float16 parameters, and its eps of 1e-08 is 0"},
    {"float16 parameters and a large eps",
     "DtypeMismatch",
     {NET("float16", "float16", "float16", "'eps': 1e-4", PLAIN, SCALED)},
     .outcome = CLEAN},
    {"bfloat16 parameters and a small eps",
     "DtypeMismatch",
     {NET("bfloat16", "bfloat16", "bfloat16", "'eps': 1e-8", PLAIN, BACKWARD)},
     .outcome = CLEAN},
    {"all in float32",
     "DtypeMismatch",
     {NET("float32", "float32", "float32", "'eps': 1e-8", PLAIN, BACKWARD)},
     .outcome = CLEAN},
    {"a layer that autocast does not reach",
     "DtypeMismatch",
     {NET("float32", "bfloat16", "float32", "", PLAIN, BACKWARD)},
     .outcome = NOTED,
     .about = "d",
     .line = 6,
     .message = "linear at train.py:6 computes in float32, and 3 other layers in half "
                "precision"},
    {"a layer whose input is converted",
     "DtypeMismatch",
     {NET("float32", "bfloat16", "float32", "",
          "{'op': 'to', 'inputs': [3], 'outputs': [10], 'place': [0, 6]}," LAYER(
              "10", "4", 7) LOSS,
          BACKWARD)},
     .outcome = CLEAN},
    {"targets that lose their fractions",
     "DtypeMismatch",
     {NET("float32", "float32", "float32", "", TARGETS("6", "7"), BACKWARD)},
     .outcome = WARNED,
     .about = "",
     .line = 7,
     .message = "converted from float32 to int64 at train.py:7"},
    {"targets that are whole numbers",
     "DtypeMismatch",
     {NET("float32", "float32", "float32", "", TARGETS("9", "7"), BACKWARD)},
     .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
