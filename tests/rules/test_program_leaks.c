/*
 * test_program_leaks.c - TargetLeak by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* Tokens (2, 6), 0, their embeddings, 2, scores (2, 6, 9), 3, labels (12), 4, the loss, 5;
 * 6 and 7: embeddings after another operation each; 8: a mask; 9: tokens (2, 7). */
#define VALUES                                                                           \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [2, 6], 'tensor': 'input_ids'},"       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [9, 4],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [2, 6, 4], 'requires_grad': true, 'tensor': 'e'},"    \
    "{'dtype': 'float32', 'shape': [2, 6, 9], 'requires_grad': true, 'tensor': 'out'},"  \
    "{'dtype': 'int64', 'shape': [12]},"                                                 \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                          \
    "{'dtype': 'float32', 'shape': [2, 6, 4], 'requires_grad': true, 'tensor': 'a'},"    \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true, 'tensor': 'w'},"    \
    "{'kind': 'buffer', 'dtype': 'bool', 'shape': [6, 6]},"                              \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [2, 7]},"                              \
    "{'dtype': 'int64', 'shape': [2, 6], 'tensor': 'input_ids/1'},"                      \
    "{'kind': 'buffer', 'dtype': 'bool', 'shape': [2, 1, 6]},"                           \
    "{'dtype': 'float32', 'shape': [2, 4], 'requires_grad': true},"                      \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true},"                   \
    "{'dtype': 'float32', 'shape': [2, 6, 6], 'requires_grad': true}],"                  \
    "'parameters': [{'name': 'e.weight', 'requires_grad': true}],"                       \
    "'modules': [{'kind': 'Net'}, {'name': 'rnn', 'kind': 'LSTM',"                       \
    " 'attributes': {'bidirectional': false}}, {'name': 'both', 'kind': 'LSTM',"         \
    " 'attributes': {'bidirectional': true}}],"
#define NODE(op, inputs, outputs, line)                                                  \
    "{'op': '" op "', 'inputs': " inputs ", 'outputs': " outputs                         \
    ", 'module': 0, 'place': [0, " #line "]},"
#define WITH(op, attribute, inputs, outputs, line)                                       \
    "{'op': '" op "', 'attributes': {" attribute "}, 'inputs': " inputs                  \
    ", 'outputs': " outputs ", 'module': 0, 'place': [0, " #line "]},"
#define RECURRENT(module, line)                                                          \
    "{'op': 'lstm', 'inputs': [2], 'outputs': [6], 'module': " #module                   \
    ", 'place': [0, " #line "]},"
#define PROGRAM_OF(facts, made, middle)                                                  \
    VALUES "'facts': {" facts "}, 'nodes': [" made middle NODE("linear", "[6]", "[3]",   \
                                                               12) ENDING "]," LOSSES
#define ENDING                                                                           \
    "{'op': 'cross_entropy', 'inputs': [3, 4], 'outputs': [5], 'module': -1,"            \
    " 'place': [0, 20]}"
#define LOSSES                                                                            \
    "'losses': [{'node': 3, 'value': 5, 'predictions': 3, 'targets': 4, 'backward': 0}]," \
    "'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"
#define EMBEDS NODE("embedding", "[0, 1]", "[2]", 10)
#define FACTS(shift) "'labels_shift': " #shift
/* The labels are the tokens of the second input; `read` is embedded. */
#define SECOND(read)                                                                     \
    PROGRAM_OF("'labels_shift': 0, 'labels_input': 'input_ids/1'",                       \
               NODE("embedding", "[" #read ", 1]", "[2]", 10), RECURRENT(1, 11))
/* One operation in the middle. */
#define MODEL(shift, middle) PROGRAM_OF(FACTS(shift), EMBEDS, middle)

#define CAUSAL                                                                           \
    WITH("scaled_dot_product_attention", "'is_causal': true", "[2, 2, 2]", "[6]", 11)
#define OPEN                                                                             \
    WITH("scaled_dot_product_attention", "'is_causal': false", "[2, 2, 2]", "[6]", 11)
#define MASKED(mask)                                                                     \
    WITH("scaled_dot_product_attention", "'attn_mask': true", "[2, 2, 2, " #mask "]",    \
         "[6]", 11)

/* Attention by hand; `masks`: an operation that makes 13 of 7. The loss is node 5. */
#define BY_HAND(shift, masks)                                                                 \
    VALUES "'facts': {" FACTS(shift) "}, 'nodes': [" EMBEDS NODE("matmul", "[2, 2]",          \
                                                                 "[7]", 11) masks             \
        "{'op': 'softmax', 'attributes': {'dim': -1}, 'inputs': [13], 'outputs': [14],"       \
        " 'place': [0, 13]}," NODE("matmul", "[14, 2]", "[6]", 14)                            \
            NODE("linear", "[6]", "[3]", 15) ENDING                                           \
        "],"                                                                                  \
        "'losses': [{'node': 6, 'value': 5, 'predictions': 3, 'targets': 4, 'backward': 0}]," \
        "'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"

/* No facts; operations that make the labels, 4, and the tokens, of others. */
#define MADE(labels, tokens, middle)                                                          \
    VALUES "'nodes': [" labels tokens EMBEDS middle NODE("linear", "[6]", "[3]", 12)          \
        ENDING                                                                                \
        "],"                                                                                  \
        "'losses': [{'node': 5, 'value': 5, 'predictions': 3, 'targets': 4, 'backward': 0}]," \
        "'events': [{'event': 'backward', 'value': 5, 'place': [0, 21]}]"

/* Floating targets: a sequence (4, 6, 3), 0, its weight, 1, what a layer makes of it, 2, the
 * last state, 3, predictions, 4, the loss, 5, data, 6, noise, 7, other targets, 8, the last
 * state of each position again, 9, another input, 10. width: of the layer. */
#define SEQUENCE(width, facts, targets, nodes)                                           \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 6, 3], 'tensor': 'input'},"      \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [9, 3],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [4, 6, " #width "], 'requires_grad': true},"          \
    "{'dtype': 'float32', 'shape': [1, 4, " #width "], 'requires_grad': true},"          \
    "{'dtype': 'float32', 'shape': [4, 6, 3], 'requires_grad': true, 'tensor': 'out'},"  \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                          \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 6, 3]},"                         \
    "{'dtype': 'float32', 'shape': [4, 6, 3]},"                                          \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 6, 3]},"                         \
    "{'dtype': 'float32', 'shape': [4, 6, " #width "], 'requires_grad': true},"          \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 1]}],"                           \
    "'parameters': [{'name': 'w', 'requires_grad': true}], 'facts': {" facts "},"        \
    "'modules': [{'kind': 'LSTM', 'attributes': {'batch_first': true,"                   \
    " 'bidirectional': false}}], 'nodes': [" nodes                                       \
    "{'op': 'mse_loss', 'inputs': [4, " #targets "], 'outputs': [5], 'module': -1,"      \
    " 'place': [0, 20]}], 'events': [{'event': 'backward', 'value': 5}],"
#define COMPARED(node, targets)                                                          \
    "'losses': [{'node': " #node ", 'value': 5, 'predictions': 4, 'targets': " #targets  \
    "}]"
#define BY_LSTM(width, facts, targets)                                                   \
    SEQUENCE(width, facts, targets,                                                      \
             NODE("lstm", "[0, 1]", "[2, 3]", 10) NODE("linear", "[2, 1]", "[4]", 11))   \
    COMPARED(2, targets)
/* The input is data with noise; read: what else the layer reads. */
#define NOISY(targets, read)                                                             \
    SEQUENCE(3, "", targets,                                                             \
             "{'op': 'randn', 'outputs': [7], 'module': -1},"                            \
             "{'op': 'add', 'inputs': [6, 7], 'outputs': [0], 'module': -1}," NODE(      \
                 "linear", "[0, 1" read "]", "[4]", 11))                                 \
    COMPARED(3, targets)

static const program_case cases[] = {
    {"a causal model copies a sequence",
     "TargetLeak",
     {BY_LSTM(5, "", 0)},
     .outcome = WARNED,
     .about = "input",
     .line = 20,
     .message = "a causal model learns to copy each position"},
    {"targets that equal the input",
     "TargetLeak",
     {BY_LSTM(5, "'targets_input': 'input'", 8)},
     .outcome = WARNED,
     .about = "",
     .line = 20,
     .message = "learns to copy"},
    {"other targets of a sequence", "TargetLeak", {BY_LSTM(5, "", 8)}, .outcome = CLEAN},
    {"an autoencoder of each position",
     "TargetLeak",
     {BY_LSTM(2, "", 0)},
     .outcome = CLEAN},
    {"an autoencoder of a sequence, by its last state",
     "TargetLeak",
     {SEQUENCE(5, "", 0,
               NODE("lstm", "[0, 1]", "[2, 3]", 10) NODE("repeat", "[3]", "[9]", 11)
                   NODE("linear", "[9, 1]", "[4]", 12)) COMPARED(3, 0)},
     .outcome = CLEAN},
    {"a model of noise compares with its input",
     "TargetLeak",
     {"'mode': 'train', 'values': ["
      "{'dtype': 'float32', 'shape': [4, 3], 'tensor': 'input'},"
      "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 1], 'tensor': 'input/1'},"
      "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [3, 3],"
      " 'requires_grad': true},"
      "{'dtype': 'float32', 'shape': [4, 3], 'requires_grad': true, 'tensor': 'out'},"
      "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"
      "{'kind': 'input', 'dtype': 'float32', 'shape': [4, 3]},"
      "{'dtype': 'float32', 'shape': [4, 3]}],"
      "'parameters': [{'name': 'w', 'requires_grad': true}], 'modules': [{'kind': 'Net'}],"
      "'nodes': [{'op': 'randn', 'outputs': [6]},"
      "{'op': 'add', 'inputs': [5, 6], 'outputs': [0]}," NODE(
          "linear", "[0, 2]", "[3]",
          9) "{'op': 'mse_loss', 'inputs': [3, 0], 'outputs': [4], 'place': [0, 20]}],"
             "'events': [{'event': 'backward', 'value': 4}],"
             "'losses': [{'node': 3, 'value': 4, 'predictions': 3, 'targets': 0}]"},
     .outcome = WARNED,
     .about = "input",
     .line = 20,
     .message = "with its noise: the model learns to return what it gets"},
    {"a single input with noise is the target",
     "TargetLeak",
     {NOISY(0, "")},
     .outcome = NOTED,
     .about = "input",
     .line = 20,
     .message = "with its noise"},
    {"a denoiser", "TargetLeak", {NOISY(6, "")}, .outcome = CLEAN},
    {"a column of the input has the targets",
     "TargetLeak",
     {BY_LSTM(5, "'targets_column': 2", 8)},
     .outcome = NOTED,
     .about = "input",
     .line = 20,
     .message = "Column 2 of the input has the targets of mse_loss at train.py:20"},

    {"a causal model copies its tokens",
     "TargetLeak",
     {MODEL(0, CAUSAL)},
     .outcome = FAILED,
     .about = "out",
     .line = 20,
     .message =
         "The labels of cross_entropy at train.py:20 are the tokens that the model "
         "gets at the same positions"},
    {"a recurrent model copies its tokens",
     "TargetLeak",
     {MODEL(0, RECURRENT(1, 11))},
     .outcome = FAILED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"a decoder copies the tokens of the second input",
     "TargetLeak",
     {SECOND(10)},
     .outcome = FAILED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"labels that are passed to the model, and not embedded",
     "TargetLeak",
     {SECOND(0)},
     .outcome = CLEAN},
    {"a causal mask",
     "TargetLeak",
     {MODEL(0, MASKED(8))},
     .outcome = FAILED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"an autoencoder of tokens, or a mistake",
     "TargetLeak",
     {MODEL(0, MASKED(11))},
     .outcome = NOTED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"both directions, at the same positions",
     "TargetLeak",
     {MODEL(0, RECURRENT(2, 11))},
     .outcome = NOTED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"tokens that are masked after the embedding",
     "TargetLeak",
     {MODEL(0, NODE("where", "[8, 2, 1]", "[6]", 11))},
     .outcome = CLEAN},
    {"a summary of the tokens between",
     "TargetLeak",
     {MODEL(0, NODE("mean", "[2]", "[12]", 11))},
     .outcome = CLEAN},
    {"labels of the tokens by the operations",
     "TargetLeak",
     {MADE(NODE("clone", "[0]", "[10]", 2), NODE("reshape", "[10]", "[4]", 3), CAUSAL)},
     .outcome = FAILED,
     .about = "out",
     .line = 20,
     .message = "learns to copy them"},
    {"labels of other data",
     "TargetLeak",
     {MADE(NODE("arange", "[]", "[10]", 2), NODE("reshape", "[10]", "[4]", 3), CAUSAL)},
     .outcome = CLEAN},

    {"the next tokens, and open attention",
     "TargetLeak",
     {MODEL(1, OPEN)},
     .outcome = FAILED,
     .about = "a",
     .line = 11,
     .message =
         "are the next tokens, and attention at train.py:11 looks at later positions"},
    {"the next tokens, and causal attention",
     "TargetLeak",
     {MODEL(1, CAUSAL)},
     .outcome = CLEAN},
    {"the next tokens, and a mask",
     "TargetLeak",
     {MODEL(1, MASKED(11))},
     .outcome = CLEAN},
    {"the next tokens, in both directions",
     "TargetLeak",
     {MODEL(1, RECURRENT(2, 11))},
     .outcome = FAILED,
     .about = "a",
     .line = 11,
     .message = "lstm at train.py:11 runs in both directions"},
    {"the next tokens, in one direction",
     "TargetLeak",
     {MODEL(1, RECURRENT(1, 11))},
     .outcome = CLEAN},
    {"attention by hand, open",
     "TargetLeak",
     {BY_HAND(1, WITH("div", "'scalar': 2", "[7]", "[13]", 12))},
     .outcome = FAILED,
     .about = "a",
     .line = 14,
     .message = "attention at train.py:14 looks at later positions"},
    {"attention by hand, masked",
     "TargetLeak",
     {BY_HAND(1, NODE("masked_fill", "[7, 8]", "[13]", 12))},
     .outcome = CLEAN},
    {"attention by hand, with a mask that is added",
     "TargetLeak",
     {BY_HAND(1, NODE("add", "[7, 8]", "[13]", 12))},
     .outcome = CLEAN},
    {"the next tokens by the operations",
     "TargetLeak",
     {VALUES "'nodes': [" NODE("index", "[9]", "[0]", 2) NODE("index", "[9]", "[10]", 3)
          NODE("reshape", "[10]", "[4]", 4) EMBEDS OPEN NODE("linear", "[6]", "[3]", 12)
              ENDING
      "],"
      "'losses': [{'node': 6, 'value': 5, 'predictions': 3, 'targets': 4}]"},
     .outcome = FAILED,
     .about = "a",
     .line = 11,
     .message = "looks at later positions"},
    {"an encoder of the tokens, and other labels",
     "TargetLeak",
     {PROGRAM_OF("", EMBEDS, OPEN)},
     .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
