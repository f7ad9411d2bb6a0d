/*
 * test_program_batches.c - BatchMixing by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* Input (8, 6, 5), 0; what a layer reads, 2; its result, 3; predictions (8, 4), 4; labels, 5;
 * the loss, 6. from and to: shapes of 1 and 2. */
#define VALUES(one, two, three)                                                          \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 6, 5], 'tensor': 'input'},"      \
    "{'dtype': 'float32', 'shape': " one ", 'requires_grad': true},"                     \
    "{'dtype': 'float32', 'shape': " two ", 'requires_grad': true, 'tensor': 'read'},"   \
    "{'dtype': 'float32', 'shape': " three ", 'requires_grad': true, 'tensor': 'made'}," \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'out'},"     \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [8], 'tensor': 'loss/labels'},"        \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                          \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [9, 9],"         \
    " 'requires_grad': true}],"                                                          \
    "'parameters': [{'name': 'w', 'requires_grad': true}],"                              \
    "'modules': [{'kind': 'Net'}, {'name': 'first', 'kind': 'LSTM',"                     \
    " 'attributes': {'batch_first': true}}, {'name': 'second', 'kind': 'LSTM',"          \
    " 'attributes': {'batch_first': false}}],"
#define NODE(op, attributes, inputs, outputs, module, line)                              \
    "{'op': '" op "', 'attributes': {" attributes "}, 'inputs': " inputs                 \
    ", 'outputs': " outputs ", 'module': " #module ", 'place': [0, " #line "]},"
#define ENDING                                                                            \
    "{'op': 'cross_entropy', 'inputs': [4, 5], 'outputs': [6], 'module': -1,"             \
    " 'place': [0, 20]}],"                                                                \
    "'losses': [{'node': 4, 'value': 6, 'predictions': 4, 'targets': 5, 'backward': 0}]," \
    "'events': [{'event': 'backward', 'value': 6, 'place': [0, 21]}]"
/* Four operations: the first learns, the last makes predictions of (rows, columns). */
#define PROGRAM(one, two, three, first, second, third, last)                             \
    VALUES(one, two, three) "'nodes': [" first second third last ENDING

#define TAKE NODE("mul", "", "[0, 7]", "[1]", 0, 9)
#define LAST(op, attributes) NODE(op, attributes, "[3]", "[4]", 0, 12)
#define RESHAPED(to, then)                                                               \
    PROGRAM("[8, 6, 5]", to, to, TAKE, NODE("reshape", "", "[1]", "[2]", 0, 10),         \
            NODE("relu", "", "[2]", "[3]", 0, 11), then)

/* An LSTM whose input is value 1, (a, b, 5). */
#define RECURRENT(input, output, module, then)                                           \
    PROGRAM(input, output, "[8, 5]", TAKE,                                               \
            NODE("lstm", "", "[1, 7]", "[2]", module, 10),                               \
            NODE("index", "", "[2]", "[3]", 0, 11), then)
/* softmax of (8, 30). */
#define SHARES(dim)                                                                      \
    PROGRAM("[8, 6, 5]", "[8, 30]", "[8, 30]", TAKE,                                     \
            NODE("reshape", "", "[1]", "[2]", 0, 10),                                    \
            NODE("softmax", "'dim': " dim, "[2]", "[3]", 0, 11), LAST("linear", ""))

/* Attention of two heads: rows (2, 6, 8), 1, are reshaped to 2, then 3; heads (2, 2, 6, 4), 4,
 * to 5, then rows, 6. */
#define HEADS(split, turned, in, back, out)                                               \
    "'mode': 'train', 'values': ["                                                        \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [2, 6, 8]},"                          \
    "{'dtype': 'float32', 'shape': [2, 6, 8], 'requires_grad': true},"                    \
    "{'dtype': 'float32', 'shape': " split ", 'requires_grad': true, 'tensor': 'q'},"     \
    "{'dtype': 'float32', 'shape': " turned ", 'requires_grad': true},"                   \
    "{'dtype': 'float32', 'shape': [2, 2, 6, 4], 'requires_grad': true},"                 \
    "{'dtype': 'float32', 'shape': " back ", 'requires_grad': true},"                     \
    "{'dtype': 'float32', 'shape': [2, 6, 8], 'requires_grad': true, 'tensor': 'y'},"     \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [8],"             \
    " 'requires_grad': true}, {'dtype': 'float32', 'shape': [], 'requires_grad': true}]," \
    "'parameters': [{'name': 'w', 'requires_grad': true}],"                               \
    "'modules': [{'kind': 'Net'}], 'nodes': [" NODE("mul", "", "[0, 7]", "[1]", 0, 9)     \
        NODE("reshape", "", "[1]", "[2]", 0, 10) NODE(                                    \
            in, "'dim0': 1, 'dim1': 2", "[2]", "[3]", 0,                                  \
            11) NODE("scaled_dot_product_attention", "", "[3, 3, 3]", "[4]", 0,           \
                     12) NODE(out, "'dim0': 1, 'dim1': 2", "[4]", "[5]", 0, 13)           \
            NODE("reshape", "", "[5]", "[6]", 0,                                          \
                 14) "{'op': 'sum', 'inputs': [6], 'outputs': [8], 'place': [0, 20]}],"   \
                     "'events': [{'event': 'backward', 'value': 8, 'place': [0, 21]}]"
/* Values of actions, (8, 3), of which one is chosen for each sample, and targets that are made
 * of the largest of others. */
#define ACTIONS(chosen, largest, of_largest)                                                 \
    "'mode': 'train', 'values': ["                                                           \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5], 'tensor': 'input'},"             \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [3, 5],"             \
    " 'requires_grad': true},"                                                               \
    "{'dtype': 'float32', 'shape': [8, 3], 'requires_grad': true, 'tensor': 'q'},"           \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [8, 1]},"                                  \
    "{'dtype': 'float32', 'shape': [8, 1], 'requires_grad': true},"                          \
    "{'dtype': 'float32', 'shape': [8], 'requires_grad': true},"                             \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]},"                                \
    "{'dtype': 'float32', 'shape': [8, 3], 'tensor': 'next'},"                               \
    "{'dtype': 'float32', 'shape': " of_largest "},"                                         \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8]},"                                   \
    "{'dtype': 'float32', 'shape': [8]},"                                                    \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                             \
    "'parameters': [{'name': 'w', 'requires_grad': true}],"                                  \
    "'modules': [{'kind': 'Net'}], 'nodes': [" NODE(                                         \
        "linear", "", "[0, 1]", "[2]", 0,                                                    \
        9) NODE("index", "'dim': " chosen, "[2, 3]", "[4]", -1,                              \
                10) NODE("squeeze", "'dim': 1", "[4]", "[5]", -1,                            \
                         10) NODE("linear", "", "[6, 1]", "[7]", 0, 11)                      \
        NODE("max", "'dim': " largest, "[7]", "[8]", -1, 12) NODE(                           \
            "add", "", "[9, 8]", "[10]", -1,                                                 \
            13) "{'op': 'mse_loss', 'inputs': [5, 10], 'outputs': [11], 'module': -1,"       \
                " 'place': [0, 20]}], 'losses': [{'node': 6, 'value': 11, 'predictions': 5," \
                " 'targets': 10, 'backward': 0}],"                                           \
                "'events': [{'event': 'backward', 'value': 11, 'place': [0, 21]}]"

static const program_case cases[] = {
    {"rows of one sample",
     "BatchMixing",
     {RESHAPED("[8, 30]", LAST("linear", ""))},
     .outcome = CLEAN},
    {"several rows of a sample",
     "BatchMixing",
     {RESHAPED("[48, 5]", LAST("linear", ""))},
     .outcome = CLEAN},
    {"groups of samples",
     "BatchMixing",
     {RESHAPED("[2, 4, 30]", LAST("linear", ""))},
     .outcome = CLEAN},
    {"rows of parts of samples",
     "BatchMixing",
     {RESHAPED("[6, 8, 5]", LAST("linear", ""))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message =
         "reshape at train.py:10 turns (8, 6, 5) into (6, 8, 5) as if it transposed"},
    {"rows of parts of samples, of another shape",
     "BatchMixing",
     {RESHAPED("[5, 48]", LAST("linear", ""))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message = "reshape at train.py:10 turns (8, 6, 5), whose dimension 0 counts the "
                "samples, into (5, 48): a row holds parts of several samples, and linear "
                "at train.py:12 reads them as one"},
    {"parts that no layer reads, for predictions",
     "BatchMixing",
     {RESHAPED("[6, 8, 5]", LAST("sum", "'dim': 0"))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message = "reshape at train.py:10 turns (8, 6, 5) into (6, 8, 5)"},
    {"parts that no layer reads",
     "BatchMixing",
     {RESHAPED("[5, 48]", LAST("sum", "'dim': 0"))},
     .outcome = CLEAN},
    {"samples as steps",
     "BatchMixing",
     {RECURRENT("[8, 6, 5]", "[8, 6, 5]", 2, LAST("linear", ""))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message =
         "lstm at train.py:10 gets (8, 6, 5), whose dimension 0 counts the samples, "
         "and takes them for the steps of a sequence"},
    {"steps as steps",
     "BatchMixing",
     {RECURRENT("[8, 6, 5]", "[8, 6, 5]", 1, LAST("linear", ""))},
     .outcome = CLEAN},
    {"softmax over the samples",
     "BatchMixing",
     {SHARES("0")},
     .outcome = FAILED,
     .about = "made",
     .line = 11,
     .message =
         "softmax at train.py:11 runs over dimension 0 of (8, 30), which counts the "
         "samples"},
    {"softmax over features", "BatchMixing", {SHARES("-1")}, .outcome = CLEAN},
    {"samples as features",
     "BatchMixing",
     {PROGRAM("[8, 6, 5]", "[5, 6, 8]", "[5, 6, 9]", TAKE,
              NODE("transpose", "'dim0': 0, 'dim1': -1", "[1]", "[2]", 0, 10),
              NODE("linear", "", "[2, 7]", "[3]", 0, 11), LAST("sum", "'dim': 1"))},
     .outcome = FAILED,
     .about = "made",
     .line = 11,
     .message =
         "linear at train.py:11 gets (5, 6, 8), whose dimension 2 counts the samples, "
         "and takes them for features"},
    {"heads of attention, transposed",
     "BatchMixing",
     {HEADS("[2, 6, 2, 4]", "[2, 2, 6, 4]", "transpose", "[2, 6, 2, 4]", "transpose")},
     .outcome = CLEAN},
    {"heads that come back as positions",
     "BatchMixing",
     {HEADS("[2, 6, 2, 4]", "[2, 2, 6, 4]", "transpose", "[2, 2, 6, 4]", "contiguous")},
     .outcome = FAILED,
     .about = "y",
     .line = 14,
     .message = "reshape at train.py:14 turns (2, 2, 6, 4) into (2, 6, 8), and heads and "
                "positions of attention are not transposed"},
    {"positions that go in as heads",
     "BatchMixing",
     {HEADS("[2, 2, 6, 4]", "[2, 2, 6, 4]", "contiguous", "[2, 6, 2, 4]", "transpose")},
     .outcome = FAILED,
     .about = "q",
     .line = 10,
     .message = "reshape at train.py:10 turns (2, 6, 8) into (2, 2, 6, 4)"},
    {"actions of each sample",
     "BatchMixing",
     {ACTIONS("1", "1", "[8]")},
     .outcome = CLEAN},
    {"actions of other samples",
     "BatchMixing",
     {ACTIONS("0", "1", "[8]")},
     .outcome = FAILED,
     .about = "q",
     .line = 10,
     .message = "gather at train.py:10 runs along dimension 0 of (8, 3)"},
    {"the largest of the batch",
     "BatchMixing",
     {ACTIONS("1", "0", "[3]")},
     .outcome = FAILED,
     .about = "next",
     .line = 12,
     .message = "max at train.py:12 runs along dimension 0 of (8, 3)"},
    {"a reshape that stands for a transposition within a sample",
     "BatchMixing",
     {RESHAPED("[8, 5, 6]", LAST("linear", ""))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message =
         "reshape at train.py:10 turns (8, 6, 5) into (8, 5, 6) as if it transposed"},
    {"the same, and back",
     "BatchMixing",
     {PROGRAM("[8, 6, 5]", "[8, 5, 6]", "[8, 6, 5]", TAKE,
              NODE("reshape", "", "[1]", "[2]", 0, 10),
              NODE("reshape", "", "[2]", "[3]", 0, 11), LAST("tanh", ""))},
     .outcome = CLEAN},
    {"a mean over the samples that a layer reads",
     "BatchMixing",
     {PROGRAM("[8, 6, 5]", "[6, 5]", "[8, 6, 5]", TAKE,
              NODE("mean", "'dim': 0", "[1]", "[2]", 0, 10),
              NODE("expand", "", "[2]", "[3]", 0, 11), LAST("linear", ""))},
     .outcome = FAILED,
     .about = "read",
     .line = 10,
     .message = "mean at train.py:10 runs over dimension 0 of (8, 6, 5)"},
    {"a mean over the positions of each sample",
     "BatchMixing",
     {PROGRAM("[8, 6, 5]", "[8, 5]", "[8, 5]", TAKE,
              NODE("mean", "'dim': 1", "[1]", "[2]", 0, 10),
              NODE("relu", "", "[2]", "[3]", 0, 11), LAST("linear", ""))},
     .outcome = CLEAN},
    {"transposed by a list, and back",
     "BatchMixing",
     {PROGRAM("[8, 6, 5]", "[5, 8, 6]", "[5, 8, 9]", TAKE,
              NODE("transpose", "'dims': '[2, 0, 1]'", "[1]", "[2]", 0, 10),
              NODE("linear", "", "[2, 7]", "[3]", 0, 11), LAST("sum", "'dim': 0"))},
     .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
