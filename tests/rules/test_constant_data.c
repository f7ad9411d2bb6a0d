/*
 * test_constant_data.c - ConstantData: inputs and targets of one number.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

/* Tensors: input, 0; a second input, 1; targets, 2 and 3. */
#define TENSORS                                                                          \
    "input input 8 4, input other 8 4, input loss/targets 80, input loss_1/targets 80"

/* Two losses of an optimizer; by: the operation that makes their predictions. */
#define PROGRAM(by)                                                                      \
    "'mode': 'train', 'values': ["                                                       \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [8, 4], 'tensor': 'input'},"         \
    "{'kind': 'parameter', 'parameter': 0, 'dtype': 'float32', 'shape': [10, 4],"        \
    " 'requires_grad': true},"                                                           \
    "{'dtype': 'float32', 'shape': [80], 'requires_grad': true},"                        \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [80], 'tensor': 'loss/targets'},"    \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true},"                          \
    "{'kind': 'input', 'dtype': 'float32', 'shape': [80], 'tensor': 'loss_1/targets'},"  \
    "{'dtype': 'float32', 'shape': [], 'requires_grad': true}],"                         \
    "'parameters': [{'name': 'w', 'requires_grad': true, 'optimizer': 0}],"              \
    "'optimizers': [{'name': 'optimizer', 'kind': 'Adam'}],"                             \
    "'nodes': [{'op': '" by "', 'inputs': [0, 1], 'outputs': [2], 'place': [0, 5]},"     \
    "{'op': 'mse_loss', 'inputs': [2, 3], 'outputs': [4], 'place': [0, 6]},"             \
    "{'op': 'mse_loss', 'inputs': [2, 5], 'outputs': [6], 'place': [0, 7]}],"            \
    "'losses': [{'node': 1, 'value': 4, 'predictions': 2, 'targets': 3, 'backward': 1}," \
    "{'node': 2, 'value': 6, 'predictions': 2, 'targets': 5, 'backward': 2}],"           \
    "'events': [{'event': 'forward', 'place': [0, 4], 'training': true, 'grad': true},"  \
    "{'event': 'backward', 'value': 4, 'place': [0, 8]},"                                \
    "{'event': 'backward', 'value': 6, 'place': [0, 9]},"                                \
    "{'event': 'step', 'optimizer': 0, 'place': [0, 10]}]"

static void varying(stream *s, uint32_t tensor)
{
    stream_put_normal(s, tensor, 0.0, 1.0);
}

static void zero_input(stream *s, int step)
{
    (void)step;
    stream_put_all(s, 0, 0.0F);
}

static void zero_inputs(stream *s, int step)
{
    zero_input(s, step);
    stream_put_all(s, 1, 1.0F);
}

static void a_mask(stream *s, int step)
{
    zero_input(s, step);
    varying(s, 1);
}

static void one_number_a_step(stream *s, int step)
{
    stream_put_all(s, 0, (float)step);
}

static void equal_targets(stream *s, int step)
{
    (void)step;
    varying(s, 0);
    stream_put_all(s, 2, 1.0F);
    stream_put_all(s, 3, 1.0F);
}

static void two_targets(stream *s, int step)
{
    (void)step;
    varying(s, 0);
    stream_put_all(s, 2, 1.0F);
    stream_put_all(s, 3, 0.0F);
}

static void late_targets(stream *s, int step)
{
    equal_targets(s, step);
    if (step == 3) {
        varying(s, 3);
    }
}

static const program_case cases[] = {
    {"an input of zeros",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     zero_input,
     8,
     FAILED,
     "input",
     4,
     "Each of its 32 elements is 0, at each of 5 steps"},
    {"all inputs",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     zero_inputs,
     8,
     FAILED,
     "input",
     4,
     "is 0, at each of 5 steps"},
    {"a mask beside an input", "ConstantData", {PROGRAM("linear")}, TENSORS, a_mask, 20},
    {"another number at each step",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     one_number_a_step,
     20},
    {"targets of ones",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     equal_targets,
     20,
     WARNED,
     "loss_1/targets",
     7,
     "targets of mse_loss at train.py:7 and of the other losses of this optimizer are 1"},
    {"few targets of ones",
     "ConstantData:samples=5000",
     {PROGRAM("linear")},
     TENSORS,
     equal_targets,
     20},
    {"targets of ones and zeros",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     two_targets,
     20},
    {"targets that vary once",
     "ConstantData",
     {PROGRAM("linear")},
     TENSORS,
     late_targets,
     20},
    {"residuals", "ConstantData", {PROGRAM("autograd_grad")}, TENSORS, equal_targets, 20},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
