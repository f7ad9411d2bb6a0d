/*
 * test_program_targets.c - TargetMismatch by the program of a step.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* Predictions p, 1, and targets y, 2, of a loss that makes 3. */
#define VALUES(p, dtype, y)                                                              \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [3, 1],"         \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': " p ", 'requires_grad': true, 'tensor': 'output_0'}," \
    "{'kind': 'input', 'dtype': '" dtype "', 'shape': " y ", 'tensor': 'loss/labels'},"  \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}"
#define PARAMETERS "'parameters': [{'name': 'w', 'requires_grad': true}],"
#define MAKES "{'op': 'linear', 'inputs': [0], 'outputs': [1], 'place': [0, 3]},"
#define ENDS(node, p, y)                                                                 \
    "'losses': [{'node': " node ", 'value': 3, 'predictions': " p ", 'targets': " y      \
    ", 'backward': 0}], 'events': [{'event': 'backward', 'value': 3, 'place': [0, 9]}]"
#define LOSS(op, attributes, p, dtype, y, facts)                                         \
    VALUES(p, dtype, y)                                                                  \
    "]," PARAMETERS "'nodes': [" MAKES "{'op': '" op "', 'attributes': {" attributes     \
    "}, 'inputs': [1, 2], 'outputs': [3], 'place': [0, 7]}],"                            \
    "'facts': {" facts "}," ENDS("1", "1", "2")
#define RANGE(op, attributes, least, most)                                               \
    LOSS(op, attributes, "[8, 4]", "float32", "[8, 4]",                                  \
         "'targets_min': " least ", 'targets_max': " most)
#define LABELS(attributes, least, most)                                                  \
    LOSS("cross_entropy", attributes, "[8, 4]", "int64", "[8]",                          \
         "'labels_min': " least ", 'labels_max': " most)

/* Predictions and labels of these shapes, reshaped to rows (48, 4), 4, and to (48), 5. */
#define RESHAPED(p, y)                                                                   \
    VALUES(p, "int64", y)                                                                \
    ",{'dtype': 'float32', 'shape': [48, 4], 'requires_grad': true},"                    \
    "{'dtype': 'int64', 'shape': [48]}]," PARAMETERS "'nodes': [" MAKES                  \
    "{'op': 'reshape', 'inputs': [1], 'outputs': [4], 'place': [0, 5]},"                 \
    "{'op': 'reshape', 'inputs': [2], 'outputs': [5], 'place': [0, 6]},"                 \
    "{'op': 'cross_entropy', 'inputs': [4, 5], 'outputs': [3], 'place': [0, 7]}]," ENDS( \
        "3", "4", "5")

/* Targets of int64 (8, 1), 2, that are converted, 4. */
#define CONVERTED                                                                        \
    VALUES("[8, 4]", "int64", "[8, 1]")                                                  \
    ",{'dtype': 'float32', 'shape': [8, 1]}]," PARAMETERS "'nodes': [" MAKES             \
    "{'op': 'to', 'inputs': [2], 'outputs': [4], 'place': [0, 6]},"                      \
    "{'op': 'mse_loss', 'inputs': [1, 4], 'outputs': [3], 'place': [0, 7]}]," ENDS(      \
        "2", "1", "4")

#define SIGNED(least, most)                                                              \
    LOSS("soft_margin_loss", "", "[8]", "float32", "[8]",                                \
         "'targets_min': " least ", 'targets_max': " most)

/* An activation, 4, before a regression loss, whose targets lie in that range. */
#define REACH(op, least, most)                                                           \
    VALUES("[8, 4]", "float32", "[8, 4]")                                                \
    ",{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true}]," PARAMETERS         \
    "'facts': {'targets_min': " least ", 'targets_max': " most "}, 'nodes': [" MAKES     \
    "{'op': '" op "', 'inputs': [1], 'outputs': [4], 'place': [0, 6]},"                  \
    "{'op': 'mse_loss', 'inputs': [4, 2], 'outputs': [3], 'place': [0, 7]}]," ENDS(      \
        "2", "4", "2")
#define ITSELF                                                                           \
    VALUES("[8, 4]", "float32", "[8, 4]")                                                \
    ",{'dtype': 'float32', 'shape': [8, 4], 'tensor': 'copy'}]," PARAMETERS              \
    "'nodes': [" MAKES                                                                   \
    "{'op': 'detach', 'inputs': [1], 'outputs': [4], 'place': [0, 6]},"                  \
    "{'op': 'mse_loss', 'inputs': [1, 4], 'outputs': [3], 'place': [0, 7]}]," ENDS(      \
        "2", "1", "4")

static const program_case cases[] = {
    {"relu before targets below 0",
     "TargetMismatch",
     {REACH("relu", "-3", "4")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "relu at train.py:6 makes predictions from 0, but mse_loss at train.py:7 "
                "compares them with targets of -3 to 4"},
    {"relu before targets above 0",
     "TargetMismatch",
     {REACH("relu", "-0.01", "4")},
     .outcome = CLEAN},
    {"sigmoid before targets above 1",
     "TargetMismatch",
     {REACH("sigmoid", "0", "255")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "sigmoid at train.py:6 makes predictions up to 1"},
    {"tanh before its range",
     "TargetMismatch",
     {REACH("tanh", "-1", "1")},
     .outcome = CLEAN},
    {"gelu before any targets",
     "TargetMismatch",
     {REACH("gelu", "-9", "9")},
     .outcome = CLEAN},
    {"a value against itself",
     "TargetMismatch",
     {ITSELF},
     .outcome = FAILED,
     .about = "copy",
     .line = 7,
     .message = "mse_loss at train.py:7 compares a value with itself"},
    {"labels from 1 on",
     "TargetMismatch",
     {LABELS("", "1", "4")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message =
         "cross_entropy at train.py:7 gets labels of 1 to 4, and scores of 4 classes: "
         "0 to 3"},
    {"labels below 0",
     "TargetMismatch",
     {LABELS("", "-1", "3")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "labels of -1 to 3"},
    {"all labels are ignored",
     "TargetMismatch",
     {LABELS("", "-100", "-100")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "the mean of nothing"},
    {"labels of the classes", "TargetMismatch", {LABELS("", "0", "3")}, .outcome = CLEAN},
    {"some labels are ignored",
     "TargetMismatch",
     {LABELS("", "-100", "3")},
     .outcome = CLEAN},
    {"border pixels are ignored",
     "TargetMismatch",
     {LABELS("'ignore_index': 255", "0", "255")},
     .outcome = CLEAN},

    {"binary targets of -1 and 1",
     "TargetMismatch",
     {RANGE("binary_cross_entropy_with_logits", "", "-1", "1")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "expects targets from 0 to 1, and gets -1 to 1"},
    {"pixels as binary targets",
     "TargetMismatch",
     {RANGE("binary_cross_entropy", "", "0", "255")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "gets 0 to 255"},
    {"binary targets",
     "TargetMismatch",
     {RANGE("binary_cross_entropy_with_logits", "", "0", "1")},
     .outcome = CLEAN},
    {"noisy labels of real pictures",
     "TargetMismatch",
     {RANGE("binary_cross_entropy", "", "0.7", "1.2")},
     .outcome = CLEAN},
    {"a teacher's scores for probabilities",
     "TargetMismatch",
     {RANGE("cross_entropy", "", "-4.5", "7")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "gets -4.5 to 7"},
    {"smoothed labels",
     "TargetMismatch",
     {RANGE("cross_entropy", "", "0.02", "0.94")},
     .outcome = CLEAN},
    {"log-probabilities for probabilities",
     "TargetMismatch",
     {RANGE("kl_div", "'log_target': false", "-9", "-0.1")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "expects targets from 0, and gets -9 to -0.1"},
    {"probabilities for log-probabilities",
     "TargetMismatch",
     {RANGE("kl_div", "'log_target': true", "0.01", "0.9")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "expects targets up to 0, and gets 0.01 to 0.9"},
    {"the probabilities of a teacher",
     "TargetMismatch",
     {RANGE("kl_div", "'log_target': false", "0.01", "0.9")},
     .outcome = CLEAN},
    {"the log-probabilities of a teacher",
     "TargetMismatch",
     {RANGE("kl_div", "'log_target': true", "-9", "-0.1")},
     .outcome = CLEAN},
    {"counts below 0",
     "TargetMismatch",
     {RANGE("poisson_nll_loss", "", "-2", "3")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "from 0, and gets -2"},
    {"any target of a regression",
     "TargetMismatch",
     {RANGE("mse_loss", "", "-200", "300")},
     .outcome = CLEAN},
    {"0 and 1 for signs",
     "TargetMismatch",
     {SIGNED("0", "1")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "expects targets of -1 and 1, and gets 0 to 1"},
    {"signs", "TargetMismatch", {SIGNED("-1", "1")}, .outcome = CLEAN},
    {"one sign", "TargetMismatch", {SIGNED("1", "1")}, .outcome = CLEAN},

    {"class indices for a regression of all outputs",
     "TargetMismatch",
     {CONVERTED},
     .outcome = FAILED,
     .about = "",
     .line = 7,
     .message =
         "predictions (8, 4) with targets (8, 1): each target meets 4 predictions"},
    {"whole targets along the outputs",
     "TargetMismatch",
     {LOSS("mse_loss", "", "[4, 4]", "float32", "[4]", "'targets_whole': true")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 7,
     .message = "predictions (4, 4) with targets (4)"},
    {"an ensemble, or a mistake",
     "TargetMismatch",
     {LOSS("smooth_l1_loss", "", "[8, 4]", "float32", "[8, 1]", "")},
     .outcome = WARNED,
     .about = "loss/labels",
     .line = 7,
     .message = "each target meets 4 predictions"},
    {"one prediction for several targets",
     "TargetMismatch",
     {LOSS("l1_loss", "", "[8, 1]", "float32", "[8, 4]", "")},
     .outcome = WARNED,
     .about = "loss/labels",
     .line = 7,
     .message = "each prediction meets 4 targets"},
    {"one number for all",
     "TargetMismatch",
     {LOSS("mse_loss", "", "[8, 1, 6, 6]", "float32", "[1]", "'targets_whole': true")},
     .outcome = CLEAN},
    {"an autoencoder",
     "TargetMismatch",
     {LOSS("mse_loss", "", "[8, 1, 6, 6]", "float32", "[8, 1, 6, 6]", "")},
     .outcome = CLEAN},

    {"pixels of classes, reshaped",
     "TargetMismatch",
     {RESHAPED("[3, 4, 4, 4]", "[3, 4, 4]")},
     .outcome = CLEAN}, /* may have the classes last */
    {"places of classes, reshaped",
     "TargetMismatch",
     {RESHAPED("[3, 4, 2, 8]", "[3, 2, 8]")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 5,
     .message = "Scores (3, 4, 2, 8) are reshaped to rows of 4 for cross_entropy at "
                "train.py:7"},
    {"classes at the end, reshaped",
     "TargetMismatch",
     {RESHAPED("[3, 16, 4]", "[3, 16]")},
     .outcome = CLEAN},
    {"time first, and the batch first",
     "TargetMismatch",
     {RESHAPED("[16, 3, 4]", "[3, 16]")},
     .outcome = FAILED,
     .about = "loss/labels",
     .line = 5,
     .message = "most rows get the label of another one"},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
