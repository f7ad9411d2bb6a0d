/*
 * demo_table.c - the demos: each a network, a job that goes wrong, and the job put right.
 */
#include "cli/demo.h"

#define INPUT "model:\n  input: [1, 28, 28]\n  layers:\n"
#define LOSS "  loss: {cross_entropy: {name: loss}}\n"

/* Two convolutions and two linear layers, as tutorials have them for digits. */
#define CONVOLUTIONS                                                                     \
    INPUT "    - conv2d: {name: conv1, out: 20, kernel: 5}\n"                            \
          "    - relu: {name: relu0}\n"                                                  \
          "    - max_pool2d: {name: max_pool, kernel: 2}\n"                              \
          "    - conv2d: {name: conv2, out: 50, kernel: 5}\n"                            \
          "    - relu: {name: relu1}\n"                                                  \
          "    - max_pool2d: {name: max_pool2, kernel: 2}\n"                             \
          "    - flatten: {axis: 1}\n"                                                   \
          "    - linear: {name: fc1, out: 500}\n"                                        \
          "    - relu: {name: relu2}\n"                                                  \
          "    - linear: {name: fc2, out: 10}\n"                                         \
          "    - log_softmax: {name: log_softmax, axis: 1}\n"                            \
          "  loss: {nll: {name: loss}}\n"

#define LAYER(n, width, activation)                                                      \
    "    - linear: {name: fc" n ", out: " width "}\n    - " activation                   \
    ": {name: " activation n "}\n"
/* The activation is one module, called again and again. */
#define LAYER_OF(n, width, activation)                                                   \
    "    - linear: {name: fc" n ", out: " width "}\n    - " activation                   \
    ": {name: " activation "}\n"
#define LAST(n) "    - linear: {name: fc" n ", out: 10}\n" LOSS

/* Three linear layers. */
#define SMALL                                                                            \
    INPUT "    - flatten: {axis: 1}\n" LAYER("1", "128", "relu")                         \
        LAYER("2", "64", "relu") LAST("3")
#define SMALL_OF(activation)                                                             \
    INPUT "    - flatten: {axis: 1}\n" LAYER_OF("1", "128", activation)                  \
        LAYER_OF("2", "64", activation) LAST("3")
/* Six. */
#define DEEP_OF(activation)                                                              \
    INPUT "    - flatten: {axis: 1}\n" LAYER_OF("1", "64", activation)                   \
        LAYER_OF("2", "64", activation) LAYER_OF("3", "64", activation)                  \
            LAYER_OF("4", "64", activation) LAYER_OF("5", "64", activation) LAST("6")

/* As garments are. */
#define GARMENTS "data: {mean: 0.286, std: 0.353}\n"
#define SGD(rate) "optimizer: {kind: sgd, learning_rate: " rate ", momentum: 0.9}\n"
#define PLAIN_SGD(rate) "optimizer: {kind: sgd, learning_rate: " rate "}\n"
#define ADAM(rate) "optimizer: {kind: adam, learning_rate: " rate "}\n"
#define OPTIONS(epochs)                                                                  \
    "options: {epochs: " epochs ", batch_size: 64, eval_batch_size: 100}\n"

/* Data of 100 steps of 64, and more. */
#define STEPS_100 .train = 6400
#define STEPS_200 .train = 12800
#define STEPS_300 .train = 19200

const demo cli_demos[] = {
    {.name = "healthy",
     .what = "Three linear layers learn garments, and nothing is wrong.",
     .why = "Inputs are normalised, initial weights fit their layers, the step size fits "
            "both.",
     .repair = "There is nothing to repair: no rule may say anything.",
     .look = "@losses",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("3"),
               .data = {STEPS_100, .test = 1000}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("3"),
               .data = {STEPS_100, .test = 1000}}},
    {.name = "vanishing_grad",
     .what = "Gradients become exactly 0 within a few steps, and learning ends.",
     .why = "With a learning rate of 0.2 and momentum 0.9 steps push the weights so far "
            "that every ReLU gives 0; nothing flows back through a ReLU that gives 0.",
     .repair = "A learning rate of 0.01.",
     .rule = "VanishingGradient",
     .tensor = "Gradient___conv1.weight",
     .statistic = "abs_mean",
     .look = "Gradient___*.weight",
     .model = CONVOLUTIONS,
     .wrong = {.job = GARMENTS SGD("0.2") OPTIONS("1"), .data = {STEPS_200}},
     .right = {.job = GARMENTS SGD("0.01") OPTIONS("1"), .data = {STEPS_200}}},
    {.name = "exploding_tensor",
     .what = "Weights, activations and the loss become infinite, then NaN.",
     .why = "With a learning rate of 1,000,000 the first step makes weights of some "
            "10,000; each "
            "step squares what the one before has made, until float32 ends at 3e38.",
     .repair = "A learning rate of 0.01.",
     .rule = "ExplodingTensor",
     .statistic = "nonfinite",
     .look = "*.weight",
     .model = CONVOLUTIONS,
     .wrong = {.job = GARMENTS SGD("1000000.0") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.01") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "dead_relu",
     .what = "Most units of a layer give 0 for every sample, and never come back.",
     .why = "Steps that are too large drive the units' biases far below 0; a ReLU that "
            "gives 0 "
            "for all samples has no gradient that could bring it back.",
     .repair = "A learning rate of 0.001 instead of 0.1: Adam's steps are of that size.",
     .rule = "DeadRelu",
     .tensor = "relu1_output_0",
     .statistic = "zero",
     .look = "relu*_output_0",
     .model = SMALL,
     .wrong = {.job = GARMENTS ADAM("0.1") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS ADAM("0.001") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "saturated_activation",
     .what = "The units of a layer stand at -1 or 1 whatever they are shown.",
     .why = "Steps that are too large drive the inputs of tanh far from 0, where it has "
            "no slope: "
            "nothing flows back that could bring them home.",
     .repair = "A learning rate of 0.02 instead of 2.",
     .rule = "SaturatedActivation",
     .tensor = "tanh_input_1",
     .statistic = "abs_mean",
     .look = "tanh_input_*",
     .model = SMALL_OF("tanh"),
     .wrong = {.job = GARMENTS SGD("2.0") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "deep_sigmoid",
     .what = "The first layers of a deep network learn next to nothing.",
     .why = "A sigmoid's slope is 1/4 at most: from layer to layer gradients shrink, and "
            "five of "
            "them leave a ten-thousandth.",
     .repair = "ReLUs in place of the sigmoids.",
     .rule = "VanishingGradient",
     .tensor = "Gradient___fc1.weight",
     .statistic = "abs_mean",
     .look = "Gradient___*.weight",
     .model = DEEP_OF("sigmoid"),
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {STEPS_100},
               .model = DEEP_OF("relu")}},
    {.name = "poor_init",
     .what =
         "From the first step on the signal grows from layer to layer, a hundredfold.",
     .why = "Weights were drawn from N(0, 1), whatever the layer's width: each layer "
            "multiplies "
            "the variance by half the number of its inputs.",
     .repair = "He's initialisation: a variance of 2 / inputs.",
     .rule = "PoorWeightInitialization",
     .statistic = "variance",
     .look = "relu_input_*",
     .besides = "    into_loss: {include: loss_input_0, every: 1, reductions: [mean]}\n",
     .model = DEEP_OF("relu"),
     .wrong = {.job = GARMENTS SGD("1e-9") OPTIONS("1"),
               .data = {STEPS_100},
               .gain = 14.0F},
     .right = {.job = GARMENTS SGD("0.01") OPTIONS("1"),
               .data = {STEPS_100},
               .gain = 2.45F}},
    {.name = "symmetric_units",
     .what = "All units of a layer compute the same, and go on doing so.",
     .why = "All initial weights of a layer are the same number, so all its units get "
            "the same "
            "gradient: 128 units learn what one could.",
     .repair = "Random initial weights.",
     .rule = "SymmetricUnits",
     .tensor = "fc1.weight",
     .statistic = "std",
     .look = "fc*.weight",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {STEPS_100},
               .alike = true},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "frozen_layer",
     .what = "One layer stays as it was drawn, while the others learn around it.",
     .why =
         "The optimiser does not have its parameters but copies that were made before.",
     .repair = "Make the optimiser behind the model, of the model's own parameters.",
     .rule = "FrozenParameter",
     .tensor = "fc2.weight",
     .statistic = "l2",
     .look = "fc*.weight",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {STEPS_100},
               .frozen = "fc2"},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "learning_rate_too_large",
     .what = "One update makes a weight a thousand times as large as it was.",
     .why = "The learning rate is 1,000 times what this network bears.",
     .repair = "A learning rate of 0.02.",
     .rule = "WeightUpdateRatio",
     .statistic = "l2",
     .look = "fc*.weight",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("20000.0") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "learning_rate_too_small",
     .what = "Training runs, and nothing moves.",
     .why =
         "The learning rate is 2e-5, a thousandth of what was meant: a digit lost in a\n"
         "configuration.",
     .repair = "A learning rate of 0.02.",
     .rule = "WeightUpdateRatio",
     .statistic = "l2",
     .look = "fc*.weight",
     .each_weight = true,
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("2e-5") OPTIONS("1"), .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "loss_not_decreasing",
     .what = "The loss falls at first, then rises and stays high.",
     .why = "The learning rate is to fall by 2 % with each step, but grows by 2 %: a "
            "decay of "
            "1.02 where 0.98 was meant.",
     .repair = "A decay of 0.98.",
     .rule = "LossNotDecreasing",
     .tensor = "loss_output_0",
     .statistic = "mean",
     .look = "@losses",
     .model = SMALL_OF("tanh"),
     .wrong = {.job = GARMENTS PLAIN_SGD("0.05") OPTIONS("1"),
               .data = {STEPS_300},
               .decay = 1.02F},
     .right = {.job = GARMENTS PLAIN_SGD("0.05") OPTIONS("1"),
               .data = {STEPS_300},
               .decay = 0.98F}},
    {.name = "overfit",
     .what =
         "The loss of the training samples goes to 0, that of the test samples rises.",
     .why =
         "There are 320 samples for 109,000 weights: the network learns them by heart.",
     .repair = "More samples: 20 times as many, for the same number of steps.",
     .rule = "Overfit",
     .tensor = "loss_output_0",
     .statistic = "mean",
     .look = "@losses",
     .model = SMALL,
     .wrong = {.job = GARMENTS ADAM("0.003") OPTIONS("40"),
               .data = {.train = 320, .test = 500}},
     .right = {.job = GARMENTS ADAM("0.003") OPTIONS("2"),
               .data = {.train = 6400, .test = 500}}},
    {.name = "class_imbalance",
     .what = "One class is hardly ever shown, so it is hardly ever recognised.",
     .why = "Only one in 30 of the T-shirts was kept.",
     .repair = "Draw all classes alike, or weight the rare one in the loss.",
     .rule = "ClassImbalance",
     .look = "@losses",
     .statistic = "mean",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {STEPS_100, .scarce = 30}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "label_noise",
     .what = "The loss falls to 2.3 and stays there: the network only guesses.",
     .why =
         "Labels were shuffled against the samples, as when one of two lists was sorted.",
     .repair = "Labels that belong to their samples.",
     .rule = "LabelNoise",
     .tensor = "loss_output_0",
     .statistic = "mean",
     .look = "@losses",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.005") OPTIONS("1"),
               .data = {STEPS_100, .shuffled = true}},
     .right = {.job = GARMENTS SGD("0.005") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "unnormalised_input",
     .what = "Training is rough, and needs a learning rate that is far too small.",
     .why =
         "Pixels go in as 0 ... 255, where the initial weights expect values of about 1.",
     .repair = "Subtract the mean, divide by the deviation.",
     .rule = "InputRange",
     .tensor = "input",
     .statistic = "abs_max",
     .look = "input",
     .model = SMALL,
     .wrong = {.job = "data: {mean: 0, std: 0.003921569}\n" SGD("0.0001") OPTIONS("1"),
               .data = {STEPS_100}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "nan_in_data",
     .what = "At some step everything turns NaN, and the optimiser is not to blame.",
     .why = "One pixel of one sample in 6,400 is NaN; the step that meets it makes all "
            "weights NaN.",
     .repair = "Drop or mend the sample.",
     .rule = "NonFinite",
     .tensor = "input",
     .statistic = "nonfinite",
     .look = "input",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {STEPS_100, .hole = true}},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "duplicate_batch",
     .what = "Every batch is learnt twice on end.",
     .why = "The loop asks the loader for a batch only at every other step.",
     .repair = "A new batch for every step.",
     .rule = "DuplicateBatch",
     .tensor = "input",
     .statistic = "mean",
     .look = "input",
     .model = SMALL,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"),
               .data = {.train = 3200},
               .twice = true},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
    {.name = "similar_across_runs",
     .what = "The same program, run twice, gives two different networks.",
     .why = "The seed of initial weights and of shuffling is not fixed.",
     .repair = "Fix the seed: then both runs agree to the bit.",
     .rule = "SimilarAcrossRuns",
     .statistic = "mean",
     .look = "@losses",
     .model = SMALL,
     .pair = true,
     .wrong = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}, .seeds = 1},
     .right = {.job = GARMENTS SGD("0.02") OPTIONS("1"), .data = {STEPS_100}}},
};

const size_t cli_demo_count = CLI_COUNT_OF(cli_demos);
