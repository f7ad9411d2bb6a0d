/*
 * builtin_jobs.c - the built-in networks, as jobs.
 */
#include "nn/job/job.h"
#include "base/macros.h"

#include <string.h>

/* ISO C promises strings of 4095 bytes; the compilers that we support take longer ones. */
#pragma GCC diagnostic ignored "-Woverlength-strings"

static const struct {
    const char *name, *text;
} builtins[] = {
    {"fashion_cnn",
     "# A small convolutional network for 28x28 grey images of garments.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - conv2d: {name: conv1, out_channels: 5, kernel_size: 3}\n"
     "    - relu: {name: relu}\n"
     "    - max_pool2d: {name: pool, kernel_size: 2}\n"
     "    - conv2d: {name: conv2, out_channels: 12, kernel_size: 5}\n"
     "    - relu: {name: relu}\n"
     "    - group_norm: {name: norm, num_groups: 3}\n"
     "    - flatten: {start_dim: 1}\n"
     "    - linear: {name: fc1, out_features: 100}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc2, out_features: 10}\n"
     "    - log_softmax: {name: log_softmax, dim: 1}\n"
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
     "    - flatten: {start_dim: 1}\n"
     "    - linear: {name: fc1, out_features: 320}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc2, out_features: 100}\n"
     "    - relu: {name: relu}\n"
     "    - linear: {name: fc3, out_features: 10}\n"
     "    - log_softmax: {name: log_softmax, dim: 0}\n"
     "  loss: {nll: {name: loss}}\n"
     "data: {name: mnist, mean: 0.5, std: 0.5}\n"
     "optimizer: {kind: sgd, learning_rate: 0.01}\n"
     "options: {epochs: 1, batch_size: 1000, eval_batch_size: 1000, seed: 0}\n"},
    {"mnist_mlp_small",
     "# Three linear layers at a batch of 32.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - flatten: {start_dim: 1}\n"
     "    - linear: {name: fc1, out_features: 256}\n"
     "    - relu: {name: relu1}\n"
     "    - linear: {name: fc2, out_features: 128}\n"
     "    - relu: {name: relu2}\n"
     "    - linear: {name: fc3, out_features: 10}\n"
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
     "    - linear: {name: head, out_features: vocabulary, bias: false}\n"
     "  loss: {cross_entropy: {name: loss, dim: -1}}\n"
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
     "    - flatten: {start_dim: 1}\n"
     "    - linear: {name: fc, out_features: 10}\n"
     "  loss: {cross_entropy: {name: loss}}\n"
     "data: {name: fashion-mnist, mean: 0.5, std: 0.5}\n"
     "optimizer: {kind: adam, learning_rate: 0.002}\n"
     "options: {epochs: 2, batch_size: 32, eval_batch_size: 100, seed: 0}\n"},
    {"resnet18",
     "# ResNet-18 (He et al. 2016) for images of 32x32: garments of 28x28 with a border of 2. The\n"
     "# names are torchvision's.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "  - pad: {pad: [2, 2, 2, 2]}\n"
     "  - conv2d: {name: conv1, out_channels: 64, kernel_size: 3, padding: 1, bias: false}\n"
     "  - batch_norm: {name: bn1}\n"
     "  - relu\n"
     "  - layers:\n"
     "      name: layer1\n"
     "      times: 2\n"
     "      layers:\n"
     "      - conv2d: {name: conv1, out_channels: 64, kernel_size: 3, padding: 1, bias: false}\n"
     "      - batch_norm: {name: bn1}\n"
     "      - relu\n"
     "      - conv2d: {name: conv2, out_channels: 64, kernel_size: 3, padding: 1, bias: false}\n"
     "      - batch_norm: {name: bn2}\n"
     "      - add: {name: sum, from: [bn2, input]}\n"
     "      - relu\n"
     "  - layers:\n"
     "      name: layer2\n"
     "      layers:\n"
     "      - layers:\n"
     "          name: 0\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 128, kernel_size: 3, stride: 2, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 128, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - layers:\n"
     "              name: downsample\n"
     "              from: input\n"
     "              layers:\n"
     "              - conv2d: {name: 0, out_channels: 128, kernel_size: 1, stride: 2, bias: false}\n"
     "              - batch_norm: {name: 1}\n"
     "          - add: {name: sum, from: [bn2, downsample]}\n"
     "          - relu\n"
     "      - layers:\n"
     "          name: 1\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 128, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 128, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - add: {name: sum, from: [bn2, input]}\n"
     "          - relu\n"
     "  - layers:\n"
     "      name: layer3\n"
     "      layers:\n"
     "      - layers:\n"
     "          name: 0\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 256, kernel_size: 3, stride: 2, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 256, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - layers:\n"
     "              name: downsample\n"
     "              from: input\n"
     "              layers:\n"
     "              - conv2d: {name: 0, out_channels: 256, kernel_size: 1, stride: 2, bias: false}\n"
     "              - batch_norm: {name: 1}\n"
     "          - add: {name: sum, from: [bn2, downsample]}\n"
     "          - relu\n"
     "      - layers:\n"
     "          name: 1\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 256, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 256, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - add: {name: sum, from: [bn2, input]}\n"
     "          - relu\n"
     "  - layers:\n"
     "      name: layer4\n"
     "      layers:\n"
     "      - layers:\n"
     "          name: 0\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 512, kernel_size: 3, stride: 2, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 512, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - layers:\n"
     "              name: downsample\n"
     "              from: input\n"
     "              layers:\n"
     "              - conv2d: {name: 0, out_channels: 512, kernel_size: 1, stride: 2, bias: false}\n"
     "              - batch_norm: {name: 1}\n"
     "          - add: {name: sum, from: [bn2, downsample]}\n"
     "          - relu\n"
     "      - layers:\n"
     "          name: 1\n"
     "          layers:\n"
     "          - conv2d: {name: conv1, out_channels: 512, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn1}\n"
     "          - relu\n"
     "          - conv2d: {name: conv2, out_channels: 512, kernel_size: 3, padding: 1, bias: false}\n"
     "          - batch_norm: {name: bn2}\n"
     "          - add: {name: sum, from: [bn2, input]}\n"
     "          - relu\n"
     "  - adaptive_avg_pool2d: {output_size: 1}\n"
     "  - flatten: {start_dim: 1}\n"
     "  - linear: {name: fc, out_features: 10}\n"
     "  loss: {cross_entropy: {name: loss}}\n"
     "data: {name: fashion-mnist, mean: 0.286, std: 0.353}\n"
     "optimizer: {kind: sgd, learning_rate: 0.05, momentum: 0.9, weight_decay: 0.0005, schedule: cosine}\n"
     "options: {epochs: 3, batch_size: 64, eval_batch_size: 100, seed: 0}\n"},
    {"autoencoder",
     "# A convolutional autoencoder of images: 784 pixels as 32 numbers, and back.\n"
     "model:\n"
     "  input: [1, 28, 28]\n"
     "  layers:\n"
     "    - conv2d: {name: down1, out_channels: 8, kernel_size: 3, stride: 2, padding: 1}\n"
     "    - relu\n"
     "    - conv2d: {name: down2, out_channels: 16, kernel_size: 3, stride: 2, padding: 1}\n"
     "    - relu\n"
     "    - flatten: {start_dim: 1}\n"
     "    - linear: {name: code, out_features: 32}\n"
     "    - linear: {name: wide, out_features: 784}\n"
     "    - relu\n"
     "    - reshape: {shape: [0, 16, 7, 7]}\n"
     "    - conv_transpose2d: {name: up1, out_channels: 8, kernel_size: 4, stride: 2, padding: 1}\n"
     "    - relu\n"
     "    - conv_transpose2d: {name: up2, out_channels: 1, kernel_size: 4, stride: 2, padding: 1}\n"
     "    - sigmoid\n"
     "  loss: {mse_loss: {target: input}}\n"
     "data: {name: fashion-mnist, mean: 0, std: 1}\n"
     "optimizer: {kind: adam, learning_rate: 0.002}\n"
     "options: {epochs: 2, batch_size: 32, eval_batch_size: 100, seed: 0}\n"},
};

const char sonde__job_builtin_names[] = "fashion_cnn, autoencoder, gpt, lstm, mnist_mlp, "
                                        "mnist_mlp_small or resnet18";

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
