/*
 * test_layers.c - PoorWeightInitialization by the weights before the first update and the
 * program, which tells which of them layers multiply their inputs by.
 */
#include "rules/program_cases.h"

#include "base/macros.h"

#define WEIGHT(i, name)                                                                  \
    "{'kind': 'parameter', 'parameter': " #i                                             \
    ", 'dtype': 'float32', 'shape': [16, 16], 'requires_grad': true, 'tensor': '" name   \
    "'}"
#define VALUE(name)                                                                      \
    "{'dtype': 'float32', 'shape': [8, 16], 'requires_grad': true, 'tensor': '" name "'}"
#define OP(op, inputs, output, line)                                                     \
    "{'op': '" op "', 'inputs': [" inputs "], 'outputs': [" #output                      \
    "], 'place': [0, " #line "]}"
/* Two layers: x, 2, becomes 3, then 4, and the result is 5. */
#define NET(trained, first, between)                                                                                                                          \
    "'mode': 'train', 'values': [" WEIGHT(0, "w1") "," WEIGHT(1, "w2") ", {'kind': 'input', 'dtype': 'float32', 'shape': [8, 16], 'tensor': 'input'}," VALUE( \
        "a") "," VALUE("b") "," VALUE("c") "],"                                                                                                               \
                                           "'parameters': [{'name': 'w1', 'requires_grad': " trained                                                          \
                                           ", 'optimizer': 0}, {'name': 'w2', 'requires_grad': true, 'optimizer': 0}],"                                       \
                                           "'optimizers': [{'kind': 'SGD'}], 'nodes': [" OP(                                                                  \
                                               first, "2, 0", 3,                                                                                              \
                                               3) "," OP(between, "3", 4,                                                                                     \
                                                         4) "," OP("linear", "4, 1", 5,                                                                       \
                                                                   5) "]"
#define PLAIN NET("true", "linear", "relu")
#define TENSORS                                                                          \
    "input input 8 16, weight w1 16 16, weight w2 16 16, activation a 8 16, "            \
    "activation relu_input 8 16"

/* The deviation of w1, w2 and of the outputs of the first layer. */
static void put(stream *s, double first, double second, double output)
{
    stream_put_normal(s, 0, 0.0, 1.0);
    stream_put_normal(s, 1, 0.0, first);
    stream_put_normal(s, 2, 0.0, second);
    stream_put_normal(s, 3, 0.0, output);
    stream_put_normal(s, 4, 0.0, 1.0);
}

static void usual(stream *s, int step)
{
    (void)step;
    put(s, 0.25, 0.25, 1.0);
}

static void large(stream *s, int step)
{
    (void)step;
    put(s, 20.0, 0.25, 80.0);
}

/* Not as large as a single layer may be, but both. */
static void both_large(stream *s, int step)
{
    (void)step;
    put(s, 2.5, 2.5, 10.0);
}

/* ... one of both. */
static void one_large(stream *s, int step)
{
    (void)step;
    put(s, 2.5, 0.25, 10.0);
}

static void one(stream *s, int step)
{
    (void)step;
    put(s, 1.0, 1.0, 4.0);
}

static void huge(stream *s, int step)
{
    (void)step;
    put(s, 100.0, 0.25, 100.0);
}

/* Large weights of small inputs. */
static void balanced(stream *s, int step)
{
    (void)step;
    put(s, 20.0, 0.25, 1.0);
}

static void later(stream *s, int step)
{
    put(s, step == 0 ? 0.25 : 20.0, 0.25, 1.0);
}

static void small(stream *s, int step)
{
    (void)step;
    put(s, 1e-5, 1e-5, 1e-4);
}

static void small_last(stream *s, int step)
{
    (void)step;
    put(s, 0.25, 1e-5, 1.0);
}

#define RULE "PoorWeightInitialization"
static const program_case cases[] = {
    {"usual weights", RULE, {PLAIN}, TENSORS, usual, .outcome = CLEAN},
    {"the first layer's are large",
     RULE,
     {PLAIN},
     TENSORS,
     large,
     .outcome = WARNED,
     .about = "w1",
     .line = 3,
     .message = "of its outputs is"},
    {"weights of deviation 1", RULE, {PLAIN}, TENSORS, one, .outcome = CLEAN},
    {"both layers' are large",
     RULE,
     {PLAIN},
     TENSORS,
     both_large,
     .outcome = WARNED,
     .about = "w1",
     .line = 3,
     .message = "those of 1 more layers are as large"},
    {"one of them is as large", RULE, {PLAIN}, TENSORS, one_large, .outcome = CLEAN},
    {"an embedding is large",
     RULE,
     {NET("true", "embedding", "relu")},
     TENSORS,
     huge,
     .outcome = WARNED,
     .about = "w1",
     .line = 3,
     .message = "those of an embedding are usually about 1"},
    {"an embedding of deviation 1",
     RULE,
     {NET("true", "embedding", "relu")},
     TENSORS,
     one,
     .outcome = CLEAN},
    {"a large embedding before a normalization",
     RULE,
     {NET("true", "embedding", "layer_norm")},
     TENSORS,
     huge,
     .outcome = CLEAN},
    {"large weights, usual outputs", RULE, {PLAIN}, TENSORS, balanced, .outcome = CLEAN},
    {"large weights after training", RULE, {PLAIN}, TENSORS, later, 4, .outcome = CLEAN},
    {"large weights before a normalization",
     RULE,
     {NET("true", "linear", "layer_norm")},
     TENSORS,
     large,
     .outcome = CLEAN},
    {"large weights before a sine",
     RULE,
     {NET("true", "linear", "sin")},
     TENSORS,
     large,
     .outcome = CLEAN},
    {"large numbers that are not trained",
     RULE,
     {NET("false", "linear", "relu")},
     TENSORS,
     large,
     .outcome = CLEAN},
    {"large centers of clusters",
     RULE,
     {NET("true", "cdist", "relu")},
     TENSORS,
     large,
     .outcome = CLEAN},
    {"all weights are small",
     RULE,
     {PLAIN},
     TENSORS,
     small,
     .outcome = WARNED,
     .about = "w1",
     .line = 3,
     .message = "those of 1 more layers are as small"},
    {"the last layer's are small", RULE, {PLAIN}, TENSORS, small_last, .outcome = CLEAN},
};

int main(void)
{
    return program_main(cases, SONDE_COUNT_OF(cases));
}
