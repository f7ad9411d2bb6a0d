/*
 * test_program_optimizers.c - OptimizerState by the settings that the program of a step
 * shows.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

#define STEP(kind, attributes, made)                                                      \
    "'mode': 'train', 'values': ["                                                        \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [4, 4],"          \
    " 'requires_grad': true, 'tensor': 'w'},"                                             \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 4], 'tensor': 'x'},"              \
    "{'dtype': 'float32', 'shape': [8, 4], 'requires_grad': true},"                       \
    "{'kind': 'input', 'dtype': 'int64', 'shape': [8]},"                                  \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                           \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                          \
    "'parameters': [{'name': 'w', 'requires_grad': true, 'optimizer': 0, 'used': true}]," \
    "'optimizers': [{'kind': '" kind "', 'attributes': {" attributes "}}], 'nodes': ["    \
    "{'op': 'linear', 'inputs': [1, 0], 'outputs': [2], 'place': [0, 3]},"                \
    "{'op': 'cross_entropy', 'inputs': [2, 3], 'outputs': [4], 'place': [0, 4]},"         \
    "{'op': 'neg', 'inputs': [4], 'outputs': [5], 'place': [0, 5]}],"                     \
    "'events': [{'event': 'backward', 'value': " made ", 'place': [0, 6]},"               \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 7]}]"
/* As `made`: gradients are clipped before the step. */
#define CLIPPED(norm) "4}, {'event': 'clip', 'attributes': {'max_norm': " norm "}"
#define SICK(text, severity, part)                                                       \
    .rule = "OptimizerState", .programs = {text}, .outcome = (severity), .about = "",    \
    .line = 7, .message = (part)
#define WELL(text) .rule = "OptimizerState", .programs = {text}, .outcome = CLEAN

static const program_case cases[] = {
    {"a momentum of 1",
     SICK(STEP("SGD", "'lr': 0.1, 'momentum': 1.0", "4"), FAILED, "a momentum of 1")},
    {"a usual momentum", WELL(STEP("SGD", "'lr': 0.1, 'momentum': 0.99", "4"))},
    {"a momentum that hardly fades",
     SICK(STEP("SGD", "'lr': 0.1, 'momentum': 0.999", "4"), WARNED,
          "acts for 1000 steps")},
    {"... with a small learning rate",
     WELL(STEP("RMSprop", "'lr': 1e-05, 'momentum': 0.999", "4"))},
    {"gradients are clipped to nothing", .rule = "OptimizerState",
     .programs = {STEP("SGD", "'lr': 0.1", CLIPPED("1e-8"))}, .outcome = FAILED,
     .about = "", .line = 6, .message = "a norm of 1e-08"},
    {"gradients are clipped", WELL(STEP("SGD", "'lr': 0.1", CLIPPED("0.001")))},
    {"betas are swapped",
     SICK(STEP("Adam", "'lr': 0.001, 'betas': '[0.999, 0.9]'", "4"), FAILED, "swapped")},
    {"betas of a critic",
     WELL(STEP("Adam", "'lr': 0.001, 'betas': '[0.0, 0.9]', 'weight_decay': 0.01", "4"))},
    {"gradient ascent", SICK(STEP("SGD", "'lr': 0.1, 'maximize': true", "4"), FAILED,
                             "maximizes cross_entropy at train.py:4")},
    {"gradient ascent on a negated loss",
     WELL(STEP("SGD", "'lr': 0.1, 'maximize': true", "5"))},
    {"a large decay",
     SICK(STEP("AdamW", "'lr': 0.01, 'weight_decay': 5.0", "4"), WARNED, "5 % of every")},
    {"a usual decay", WELL(STEP("AdamW", "'lr': 0.003, 'weight_decay': 0.3", "4"))},
    {"a large decay with momentum",
     SICK(STEP("SGD", "'lr': 0.1, 'momentum': 0.9, 'weight_decay': 0.02", "4"), WARNED,
          "within 50 steps")},
    {"a usual decay with momentum",
     WELL(STEP("SGD", "'lr': 0.1, 'momentum': 0.9, 'weight_decay': 0.0005", "4"))},
    {"a decay above gradients",
     SICK(STEP("Adam", "'lr': 0.001, 'weight_decay': 1.0", "4"), WARNED,
          "adds 1 times each weight")},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
