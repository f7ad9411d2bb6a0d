/*
 * test_program_losses.c - SoftmaxMisuse and LossBroadcast by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* Scores (8, 4) of a layer, 2; labels, 3; one operation between, which makes 4; a loss of
 * that, 5. */
#define VALUES                                                                           \
    "'values': [{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]},"                 \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'fc'},"      \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [8]},"                                 \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'out'},"     \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true, 'tensor': 'loss'},"        \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'made'},"    \
    "{'kind': 'constant', 'dtype': 'int64', 'shape': [8]},"                              \
    "{'dtype': 'float32', 'shape': [8, 8], 'requires_grad': true, 'tensor': 'pairs'},"   \
    "{'dtype': 'float32', 'shape': [8, 8], 'requires_grad': true}],"                     \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true}],"
#define LINEAR "{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 10]},"
#define BACKWARD ", 'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"
#define CLASSIFIER(op, attributes, loss)                                                 \
    "'mode': 'train', " VALUES "'nodes': [" LINEAR "{'op': '" op                         \
    "', 'attributes': {" attributes "}, 'inputs': [2], 'outputs': [4],"                  \
    " 'place': [0, 12]}, {'op': '" loss                                                  \
    "', 'inputs': [4, 3], 'outputs': [5], 'place': [0, 20]}]" BACKWARD
#define TWO(first, of_first, second, of_second, loss)                                    \
    "'mode': 'train', " VALUES "'nodes': [" LINEAR "{'op': '" first                      \
    "', 'attributes': {" of_first "}, 'inputs': [2], 'outputs': [6],"                    \
    " 'place': [0, 12]}, {'op': '" second "', 'attributes': {" of_second                 \
    "}, 'inputs': [6], 'outputs': [4], 'place': [0, 13]}, {'op': '" loss                 \
    "', 'inputs': [4, 3], 'outputs': [5], 'place': [0, 20]}]" BACKWARD
/* Scores of pairs, (8, 8), and a target for each that the program makes. */
#define PAIRS(targets)                                                                   \
    "'mode': 'train', " VALUES "'nodes': ["                                              \
    "{'op': 'matmul', 'inputs': [0, 1], 'outputs': [8], 'place': [0, 11]},"              \
    "{'op': 'log_softmax', 'attributes': {'dim': 0}, 'inputs': [8], 'outputs': [9],"     \
    " 'place': [0, 12]}, {'op': 'nll_loss', 'inputs': [9, " targets                      \
    "], 'outputs': [5], 'place': [0, 20]}]" BACKWARD
/* Attention of 2 x 6 queries and keys of 3 elements. */
#define ATTENTION(dim, operands)                                                         \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [2, 6, 3],"      \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true},"                   \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true},"                   \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true, 'tensor': 'a'},"    \
    "{'dtype': 'float32', 'shape': [2, 6, 3], 'requires_grad': true}],"                  \
    "'parameters': [{'name': 'q', 'requires_grad': true}], 'nodes': ["                   \
    "{'op': 'matmul', 'inputs': [0, 0], 'outputs': [1], 'place': [0, 3]},"               \
    "{'op': 'div', 'inputs': [1], 'outputs': [2], 'place': [0, 3]},"                     \
    "{'op': 'softmax', 'attributes': {'dim': " dim                                       \
    "}, 'inputs': [2], 'outputs': [3], 'place': [0, 4]},"                                \
    "{'op': 'matmul', 'inputs': " operands ", 'outputs': [4], 'place': [0, 5]}],"        \
    "'events': [{'event': 'backward', 'value': 4, 'place': [0, 9]}]"

/* The same with two such layers, built alike. */
#define BLOCK(scores, weights, made)                                                     \
    "{'op': 'matmul', 'inputs': [0, 0], 'outputs': [" scores "], 'place': [0, 3]},"      \
    "{'op': 'softmax', 'attributes': {'dim': 1}, 'inputs': [" scores                     \
    "], 'outputs': [" weights                                                            \
    "], 'place': [0, 4]}, {'op': 'matmul', 'inputs': [" weights                          \
    ", 0], 'outputs': [" made "], 'place': [0, 5]},"
#define VALUE(shape, name)                                                               \
    "{'dtype': 'float32', 'shape': " shape ", 'requires_grad': true, 'tensor': '" name   \
    "'},"
#define BLOCKS                                                                                      \
    "'mode': 'train', 'values': ["                                                                  \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [2, 6, 3],"                 \
    " 'requires_grad': true}," VALUE("[2, 6, 6]", "s") VALUE("[2, 6, 6]", "a")                      \
        VALUE("[2, 6, 3]", "m") VALUE("[2, 6, 6]", "s1") VALUE("[2, 6, 6]", "a1") VALUE(            \
            "[2, 6, 3]",                                                                            \
            "m1") "{'dtype': 'float32', 'shape': [2, 6, 3],"                                        \
                  " 'requires_grad': true}], 'parameters': [{'name': 'q', 'requires_grad': true}]," \
                  "'nodes': [" BLOCK("1", "2", "3") BLOCK(                                          \
                      "4", "5",                                                                     \
                      "6") "{'op': 'add', 'inputs': [3, 6], 'outputs': [7], 'place': [0, 6]}],"     \
                           "'events': [{'event': 'backward', 'value': 7, 'place': [0, 9]}]"

/* Predictions, 1, and targets, 2, of these shapes; `made`: operations and values before
 * the difference of `operands`, which makes 3. */
#define DIFFERENCE(p, y, op, operands, made, values)                                     \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [3, 1],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': " p ", 'requires_grad': true, 'tensor': 'output_0'}," \
    "{'kind': 'input', 'dtype': 'float32', 'shape': " y "},"                             \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}" values "],"               \
    "'parameters': [{'name': 'w', 'requires_grad': true}], 'nodes': ["                   \
    "{'op': 'matmul', 'inputs': [0], 'outputs': [1], 'place': [0, 3]}," made             \
    "{'op': '" op "', 'inputs': " operands ", 'outputs': [3], 'place': [0, 7]}],"        \
    "'events': [{'event': 'backward', 'value': 3, 'place': [0, 9]}]"

/* Scores of one class and their labels. */
#define ONE_CLASS(loss) DIFFERENCE("[8, 1]", "[8]", loss, "[1, 2]", "", "")

#define SHAPED                                                                           \
    ",{'dtype': 'float32', 'shape': [8, 1], 'requires_grad': true, 'tensor': 'column'}"

/* The products of a column, 4, of predictions (8), and targets (8), 5, and `last` of them. */
#define PRODUCTS(last)                                                                   \
    DIFFERENCE("[8]", "[8]", last, "[5]",                                                \
               "{'op': 'unsqueeze', 'inputs': [1], 'outputs': [4], 'place': [0, 5]},"    \
               "{'op': 'mul', 'inputs': [4, 2], 'outputs': [5], 'place': [0, 6]},",      \
               SHAPED ",{'dtype': 'float32', 'shape': [8, 8], 'requires_grad': true}")
/* What a distribution computes of its logits, which `op` makes of scores. */
#define DISTRIBUTION(op)                                                                 \
    "'mode': 'train', " VALUES "'nodes': [" LINEAR "{'op': '" op                         \
    "', 'attributes': {'dim': 1}, 'inputs': [2], 'outputs': [6], 'place': [0, 12]},"     \
    "{'op': 'logsumexp', 'inputs': [6], 'outputs': [9], 'place': [0, 14]},"              \
    "{'op': 'sub', 'inputs': [6, 9], 'outputs': [4], 'place': [0, 14]},"                 \
    "{'op': 'mean', 'inputs': [4], 'outputs': [5], 'place': [0, 20]}]" BACKWARD

/* Scores, 3, that a mask, 5, of tokens, 0, hides a part of, with the padding 0. */
#define MASKED(compare, then, op, attributes, inputs)                                    \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [2, 6], 'tensor': 'input_ids'},"       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [9, 4],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [2, 6, 4], 'requires_grad': true},"                   \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true},"                   \
    "{'dtype': 'bool', 'shape': [2, 6]}, {'dtype': 'bool', 'shape': [2, 1, 6]},"         \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true,"                    \
    " 'tensor': 'masked'}, {'dtype': 'float32', 'shape': [], 'requires_grad': true}],"   \
    "'parameters': [{'name': 'e.weight', 'requires_grad': true}], 'nodes': ["            \
    "{'op': 'embedding', 'attributes': {'padding_idx': 0}, 'inputs': [0, 1],"            \
    " 'outputs': [2], 'place': [0, 3]},"                                                 \
    "{'op': 'matmul', 'inputs': [2, 2], 'outputs': [3], 'place': [0, 4]},"               \
    "{'op': '" compare "', 'attributes': {'scalar': 0}, 'inputs': [0], 'outputs': [4],"  \
    " 'place': [0, 5]}, {'op': '" then "', 'inputs': [4], 'outputs': [5],"               \
    " 'place': [0, 6]}, {'op': '" op "', 'attributes': {" attributes                     \
    "}, 'inputs': " inputs ", 'outputs': [6], 'place': [0, 7]},"                         \
    "{'op': 'sum', 'inputs': [6], 'outputs': [7], 'place': [0, 8]}],"                    \
    "'events': [{'event': 'backward', 'value': 7, 'place': [0, 9]}]"
#define FILLED(compare, then, with)                                                      \
    MASKED(compare, then, "masked_fill", "'value': " with, "[3, 5]")
#define KEPT(compare, then)                                                              \
    MASKED(compare, then, "scaled_dot_product_attention", "", "[2, 2, 2, 5]")

/* gather of what softmax makes along a dimension; labels (8, 1), 10, chosen (8, 1), 11, a mean,
 * 5. */
#define GATHERED(softmax, gather)                                                         \
    "'mode': 'train', 'values': [{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]}," \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5],"          \
    " 'requires_grad': true},"                                                            \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true},"                       \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'p'},"        \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [8, 1]},"                               \
    "{'dtype': 'float32', 'shape': [8, 1], 'requires_grad': true},"                       \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                          \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true}], 'nodes': ["            \
    "{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 10]},"               \
    "{'op': 'softmax', 'attributes': {'dim': " softmax                                    \
    "}, 'inputs': [2], 'outputs': [3], 'place': [0, 12]},"                                \
    "{'op': 'index', 'attributes': {'dim': " gather                                       \
    "}, 'inputs': [3, 4], 'outputs': [5], 'place': [0, 13]},"                             \
    "{'op': 'mean', 'inputs': [5], 'outputs': [6], 'place': [0, 14]}],"                   \
    "'events': [{'event': 'backward', 'value': 6, 'place': [0, 21]}]"
/* Probabilities that are divided by their sums, as torch.distributions does. */
#define DIVIDED(softmax, sum)                                                             \
    "'mode': 'train', 'values': [{'kind': 'input', 'dtype': 'float32', 'shape': [8, 5]}," \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 5],"          \
    " 'requires_grad': true},"                                                            \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true},"                       \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true, 'tensor': 'p'},"        \
    "{'dtype': 'float32', 'shape': [8, 1], 'requires_grad': true},"                       \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true}],"                      \
    "'parameters': [{'name': 'fc.weight', 'requires_grad': true}], 'nodes': ["            \
    "{'op': 'linear', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 10]},"               \
    "{'op': 'softmax', 'attributes': {'dim': " softmax                                    \
    "}, 'inputs': [2], 'outputs': [3], 'place': [0, 12]},"                                \
    "{'op': 'sum', 'attributes': {'dim': " sum                                            \
    "}, 'inputs': [3], 'outputs': [4], 'place': [0, 13]},"                                \
    "{'op': 'div', 'inputs': [3, 4], 'outputs': [5], 'place': [0, 14]}],"                 \
    "'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"
/* softmax of what a convolution makes, in a loss by hand. */
#define IMAGES(dim)                                                                      \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [2, 3, 8, 8]},"                      \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 3, 1, 1],"   \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [2, 4, 8, 8], 'requires_grad': true},"                \
    "{'dtype': 'float32', 'shape': [2, 4, 8, 8], 'requires_grad': true, 'tensor': 'p'}," \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [2, 4, 8, 8]},"                      \
    "{'dtype': 'float32', 'shape': [2, 4, 8, 8], 'requires_grad': true}],"               \
    "'parameters': [{'name': 'w', 'requires_grad': true}], 'nodes': ["                   \
    "{'op': 'conv2d', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 10]},"              \
    "{'op': 'softmax', 'attributes': {'dim': " dim                                       \
    "}, 'inputs': [2], 'outputs': [3], 'place': [0, 12]},"                               \
    "{'op': 'mul', 'inputs': [3, 4], 'outputs': [5], 'place': [0, 13]}],"                \
    "'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"

static const program_case cases[] = {
    {"gather along another dimension than softmax",
     "SoftmaxMisuse",
     {GATHERED("0", "1")},
     .outcome = FAILED,
     .about = "p",
     .line = 12,
     .message = "softmax at train.py:12 runs along dimension 0 of (8, 4), but index at "
                "train.py:13 chooses along dimension 1"},
    {"gather along the dimension of softmax",
     "SoftmaxMisuse",
     {GATHERED("-1", "1")},
     .outcome = CLEAN},
    {"sums along another dimension than softmax",
     "SoftmaxMisuse",
     {DIVIDED("0", "-1")},
     .outcome = FAILED,
     .about = "p",
     .line = 12,
     .message = "but div at train.py:14 divides by sums along dimension 1"},
    {"sums along the dimension of softmax",
     "SoftmaxMisuse",
     {DIVIDED("1", "-1")},
     .outcome = CLEAN},
    {"softmax over the samples of a convolution",
     "SoftmaxMisuse",
     {IMAGES("0")},
     .outcome = FAILED,
     .about = "p",
     .line = 12,
     .message = "but conv2d at train.py:10 makes classes along dimension 1"},
    {"softmax over the channels of a convolution",
     "SoftmaxMisuse",
     {IMAGES("1")},
     .outcome = CLEAN},
    {"softmax before cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("softmax", "'dim': 1", "cross_entropy")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "softmax at train.py:12 makes numbers of 0 to 1, and cross_entropy at "
                "train.py:20 applies softmax to them again"},
    {"sigmoid before cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("sigmoid", "", "cross_entropy")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "cannot fall below 0.7437"},
    {"softmax, then a small number, before cross-entropy",
     "SoftmaxMisuse",
     {TWO("softmax", "'dim': 1", "add", "'scalar': 1e-8", "cross_entropy")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "0.7437"},
    {"sigmoid twice",
     "SoftmaxMisuse",
     {CLASSIFIER("sigmoid", "", "binary_cross_entropy_with_logits")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "applies the sigmoid to them again"},
    {"sigmoid of sigmoid before the binary cross-entropy",
     "SoftmaxMisuse",
     {TWO("sigmoid", "", "sigmoid", "", "binary_cross_entropy")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "sigmoid at train.py:13 is applied to them again"},
    {"log-softmax of softmax",
     "SoftmaxMisuse",
     {TWO("softmax", "'dim': 1", "log_softmax", "'dim': 1", "nll_loss")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "again"},
    {"scores before nll",
     "SoftmaxMisuse",
     {CLASSIFIER("relu", "", "nll_loss")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "expects log-probabilities, but gets the result of relu"},
    {"softmax before nll",
     "SoftmaxMisuse",
     {CLASSIFIER("softmax", "'dim': 1", "nll_loss")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "gets the result of softmax at train.py:12"},
    {"probabilities before kl",
     "SoftmaxMisuse",
     {CLASSIFIER("softmax", "'dim': -1", "kl_div")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "kl_div at train.py:20 expects log-probabilities"},
    {"log-softmax over the batch",
     "SoftmaxMisuse",
     {CLASSIFIER("log_softmax", "'dim': 0", "nll_loss")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message =
         "along dimension 0 of (8, 4), 8 values, but nll_loss at train.py:20 takes "
         "4 classes along dimension 1"},
    {"the logarithm of softmax over the batch",
     "SoftmaxMisuse",
     {TWO("softmax", "'dim': -2", "log", "", "nll_loss")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "dimension 0"},
    {"one output before cross-entropy",
     "SoftmaxMisuse",
     {ONE_CLASS("cross_entropy")},
     .outcome = FAILED,
     .about = "output_0",
     .line = 7,
     .message = "cross_entropy at train.py:7 gets scores (8, 1), of one class"},
    {"one output before the binary cross-entropy",
     "SoftmaxMisuse",
     {ONE_CLASS("binary_cross_entropy_with_logits")},
     .outcome = CLEAN},
    {"scores before cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("gelu", "", "cross_entropy")},
     .outcome = CLEAN},
    {"scores of relu before cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("relu", "", "cross_entropy")},
     .outcome = WARNED,
     .about = "out",
     .line = 12,
     .message =
         "relu at train.py:12 makes the scores of cross_entropy at train.py:20: none "
         "is negative"},
    {"scores of relu before sigmoid",
     "SoftmaxMisuse",
     {CLASSIFIER("relu", "", "binary_cross_entropy_with_logits")},
     .outcome = FAILED,
     .about = "out",
     .line = 12,
     .message = "no probability is below one half"},
    {"log-softmax before cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("log_softmax", "'dim': 1", "cross_entropy")},
     .outcome = CLEAN},
    {"log-softmax before nll",
     "SoftmaxMisuse",
     {CLASSIFIER("log_softmax", "'dim': -1", "nll_loss")},
     .outcome = CLEAN},
    {"the logarithm of softmax before nll",
     "SoftmaxMisuse",
     {TWO("softmax", "'dim': 1", "log", "", "nll_loss")},
     .outcome = CLEAN},
    {"a difference before nll",
     "SoftmaxMisuse",
     {CLASSIFIER("sub", "", "nll_loss")},
     .outcome = CLEAN},
    {"scaled probabilities as scores",
     "SoftmaxMisuse",
     {TWO("sigmoid", "", "mul", "'scalar': 10", "cross_entropy")},
     .outcome = CLEAN},
    {"softmax before the mean squared error",
     "SoftmaxMisuse",
     {CLASSIFIER("softmax", "'dim': 1", "mse_loss")},
     .outcome = CLEAN},
    {"sigmoid before the binary cross-entropy",
     "SoftmaxMisuse",
     {CLASSIFIER("sigmoid", "", "binary_cross_entropy")},
     .outcome = CLEAN},
    {"probabilities as the logits of a distribution",
     "SoftmaxMisuse",
     {DISTRIBUTION("softmax")},
     .outcome = FAILED,
     .about = "made",
     .line = 12,
     .message = "softmax at train.py:12 makes probabilities, and logsumexp at "
                "train.py:14 takes them for scores"},
    {"scores as the logits of a distribution",
     "SoftmaxMisuse",
     {DISTRIBUTION("tanh")},
     .outcome = CLEAN},
    {"log-softmax by hand, of softmax",
     "SoftmaxMisuse",
     {TWO("softmax", "'dim': 1", "log_softmax", "'dim': 1", "mean")},
     .outcome = FAILED,
     .about = "made",
     .line = 12,
     .message = "log_softmax at train.py:13 takes them for scores"},
    {"scores of pairs, both ways", "SoftmaxMisuse", {PAIRS("7")}, .outcome = CLEAN},
    {"scores of as many classes as samples",
     "SoftmaxMisuse",
     {PAIRS("3")},
     .outcome = FAILED,
     .about = "loss",
     .line = 12,
     .message = "dimension 0"},
    {"attention over the queries",
     "SoftmaxMisuse",
     {ATTENTION("1", "[3, 0]")},
     .outcome = WARNED,
     .about = "a",
     .line = 4,
     .message = "along dimension 1 of (2, 6, 6), but the product at train.py:5"},
    {"two layers of attention over the queries",
     "SoftmaxMisuse",
     {BLOCKS},
     .outcome = WARNED,
     .about = "a",
     .line = 4,
     .message = "along dimension 1 of (2, 6, 6)"},
    {"attention over the keys",
     "SoftmaxMisuse",
     {ATTENTION("-1", "[3, 0]")},
     .outcome = CLEAN},
    {"attention over the first operand's rows",
     "SoftmaxMisuse",
     {ATTENTION("1", "[0, 3]")},
     .outcome = CLEAN},

    {"padding hidden",
     "SoftmaxMisuse",
     {FILLED("eq", "unsqueeze", "'-inf'")},
     .outcome = CLEAN},
    {"all but tokens hidden",
     "SoftmaxMisuse",
     {FILLED("ne", "logical_not", "-1e9")},
     .outcome = CLEAN},
    {"tokens filled with a usual number",
     "SoftmaxMisuse",
     {FILLED("ne", "unsqueeze", "-100")},
     .outcome = CLEAN},
    {"tokens hidden",
     "SoftmaxMisuse",
     {FILLED("ne", "unsqueeze", "'-inf'")},
     .outcome = FAILED,
     .about = "masked",
     .line = 5,
     .message = "The mask of masked_fill at train.py:7 hides the tokens and leaves the "
                "padding: ne at train.py:5 compares tokens with 0"},
    {"all but padding hidden",
     "SoftmaxMisuse",
     {FILLED("eq", "logical_not", "-1e9")},
     .outcome = FAILED,
     .about = "masked",
     .line = 5,
     .message = "hides the tokens"},
    {"tokens kept", "SoftmaxMisuse", {KEPT("ne", "unsqueeze")}, .outcome = CLEAN},
    {"padding kept",
     "SoftmaxMisuse",
     {KEPT("eq", "unsqueeze")},
     .outcome = FAILED,
     .about = "masked",
     .line = 5,
     .message = "hides the tokens"},

    {"a column and a row, of as many dimensions",
     "LossBroadcast",
     {DIFFERENCE("[8, 1]", "[1, 8]", "mse_loss", "[1, 2]", "", "")},
     .outcome = FAILED,
     .about = "output_0",
     .line = 7,
     .message = "(8, 1)"},
    {"pairs, on purpose",
     "LossBroadcast",
     {DIFFERENCE("[8, 1]", "[1, 8]", "sub", "[1, 2]", "", "")},
     .outcome = CLEAN},
    {"(n, 1) against (n) in a loss",
     "LossBroadcast",
     {DIFFERENCE("[8, 1]", "[8]", "mse_loss", "[1, 2]", "", "")},
     .outcome = FAILED,
     .about = "output_0",
     .line = 7,
     .message = "mse_loss at train.py:7 of (8, 1) and (8) broadcasts to (8, 8)"},
    {"(n) against (n, 1) by hand",
     "LossBroadcast",
     {DIFFERENCE("[8]", "[8, 1]", "sub", "[2, 1]", "", "")},
     .outcome = FAILED,
     .about = "output_0",
     .line = 7,
     .message = "each of 8 values meets each of 8"},
    {"the mean of the products of all pairs",
     "LossBroadcast",
     {PRODUCTS("mean")},
     .outcome = FAILED,
     .about = "column",
     .line = 6,
     .message = "mul at train.py:6 of (8, 1) and (8) broadcasts to (8, 8)"},
    {"products of all pairs that are used each",
     "LossBroadcast",
     {PRODUCTS("logsumexp")},
     .outcome = CLEAN},
    {"equal shapes",
     "LossBroadcast",
     {DIFFERENCE("[8, 1]", "[8, 1]", "mse_loss", "[1, 2]", "", "")},
     .outcome = CLEAN},
    {"one sample",
     "LossBroadcast",
     {DIFFERENCE("[1, 1]", "[1]", "mse_loss", "[1, 2]", "", "")},
     .outcome = CLEAN},
    {"one target for all",
     "LossBroadcast",
     {DIFFERENCE("[8, 1]", "[1]", "mse_loss", "[1, 2]", "", "")},
     .outcome = CLEAN},
    {"a row of weights",
     "LossBroadcast",
     {DIFFERENCE("[8, 4]", "[4]", "sub", "[1, 2]", "", "")},
     .outcome = CLEAN},
    {"distances of all pairs",
     "LossBroadcast",
     {DIFFERENCE("[8]", "[8]", "sub", "[4, 2]",
                 "{'op': 'unsqueeze', 'inputs': [1], 'outputs': [4], 'place': [0, 5]},",
                 SHAPED)},
     .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
