/*
 * builtin_jobs.c - the built-in networks, as jobs.
 */
#include "nn/job/job.h"
#include "base/macros.h"

#include <string.h>

static const struct {
    const char *name, *text;
} builtins[] = {
    {"fashion_cnn",
     "# A small convolutional network for 28x28 grey images of garments.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - conv2d: {name: conv1, out: 5, kernel: 3}\n"
     "    - relu: {name: relu}\n"
     "    - max_pool2d: {name: pool, kernel: 2}\n"
     "    - conv2d: {name: conv2, out: 12, kernel: 5}\n"
     "    - relu: {name: relu}\n"
     "    - group_norm: {name: norm, groups: 3}\n"
     "    - flatten: {axis: 1}\n"
     "    - linear: {name: fc1, out: 100}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc2, out: 10}\n"
     "    - log_softmax: {name: log_softmax, axis: 1}\n"
     "  loss: {nll: {name: loss}}\n"
     "data: {name: fashion-mnist, mean: 0.5, std: 0.5}\n"
     "optimizer: {kind: sgd, learning_rate: 0.001, momentum: 0.9}\n"
     "options: {epochs: 5, batch_size: 16, eval_batch_size: 32, seed: 0}\n"},
    {"mnist_mlp",
     "# Three linear layers; the log-softmax runs over the batch, as the gradient "
     "histogram's\n"
     "# program has it. Change axis to 1 for a classifier.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - flatten: {axis: 1}\n"
     "    - linear: {name: fc1, out: 320}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc2, out: 100}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc3, out: 10}\n"
     "    - log_softmax: {name: log_softmax, axis: 0}\n"
     "  loss: {nll: {name: loss}}\n"
     "data: {name: mnist, mean: 0.5, std: 0.5}\n"
     "optimizer: {kind: sgd, learning_rate: 0.01}\n"
     "options: {epochs: 1, batch_size: 1000, eval_batch_size: 1000, seed: 0}\n"},
    {"mnist_mlp_small",
     "# Three linear layers at a batch of 32.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - flatten: {axis: 1}\n"
     "    - linear: {name: fc1, out: 256}\n"
     "    - relu: {name: relu1}\n"
     "    - linear: {name: fc2, out: 128}\n"
     "    - relu: {name: relu2}\n"
     "    - linear: {name: fc3, out: 10}\n"
     "  loss: {cross_entropy: {name: loss}}\n"
     "data: {name: mnist, mean: 0.0, std: 1.0}\n"
     "optimizer: {kind: sgd, learning_rate: 0.01}\n"
     "options: {epochs: 3, batch_size: 32, eval_batch_size: 32, seed: 0}\n"},
    {"gpt",
     "# A small GPT over bytes of text: two blocks of causal attention, 137 thousand parameters.\n"
     "# Without a text of your own (--data FILE.txt) it learns sentences drawn by a grammar.\n"
     "model:\n"
     "  input: [64]\n"
     "  dtype: int64\n"
     "  target: [64]\n"
     "  layers:\n"
     "    - embedding: {name: wte, num_embeddings: vocabulary, embedding_dim: 64, std: 0.02}\n"
     "    - positional_embedding: {name: wpe, num_embeddings: 64, std: 0.02}\n"
     "    - transformer_encoder_layer: {name: h0, nhead: 4, dim_feedforward: 256, activation: gelu, norm_first: true, is_causal: true}\n"
     "    - transformer_encoder_layer: {name: h1, nhead: 4, dim_feedforward: 256, activation: gelu, norm_first: true, is_causal: true}\n"
     "    - layer_norm: {name: ln_f, normalized_shape: 64}\n"
     "    - linear: {name: head, out: vocabulary, bias: false}\n"
     "  loss: {cross_entropy: {name: loss, axis: -1}}\n"
     "data: {name: text-synth}\n"
     "optimizer: {kind: adamw, learning_rate: 0.003}\n"
     "options: {epochs: 3, batch_size: 16, eval_batch_size: 16, seed: 0}\n"},
    {"lstm",
     "# A classifier that reads an image row by row: an LSTM over 28 rows of 28 pixels.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - reshape: {shape: [0, 28, 28]}\n"
     "    - lstm: {name: lstm, hidden_size: 64}\n"
     "    - slice: {dim: 1, start: -1}\n"
     "    - flatten: {axis: 1}\n"
     "    - linear: {name: fc, out: 10}\n"
     "  loss: {cross_entropy: {name: loss}}\n"
     "data: {name: fashion-mnist, mean: 0.5, std: 0.5}\n"
     "optimizer: {kind: adam, learning_rate: 0.002}\n"
     "options: {epochs: 2, batch_size: 32, eval_batch_size: 100, seed: 0}\n"},
};

const char *sonde_nn_job_builtin_name(size_t i)
{
    return i < SONDE_COUNT_OF(builtins) ? builtins[i].name : NULL;
}

const char *sonde_nn_job_builtin_text(size_t i)
{
    return i < SONDE_COUNT_OF(builtins) ? builtins[i].text : NULL;
}

const char *sonde__job_builtin_text(const char *name)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(builtins); i++) {
        const char *known = builtins[i].name, *asked = name;

        while (*known != '\0' && (*known == *asked || (*known == '_' && *asked == '-'))) {
            known++;
            asked++;
        }
        if (*known == '\0' && *asked == '\0') {
            return builtins[i].text;
        }
    }
    return NULL;
}
