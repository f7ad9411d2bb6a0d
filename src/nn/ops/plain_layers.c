/*
 * plain_layers.c - layers that are one op of few keys or none.
 */
#include "nn/ops/layer_row.h"

#define DIM SONDE__FIELD_DIM("dim", along.axis, 1.0)

/* clang-format off */
const sonde__op_layer sonde__layer_relu = {
    .name = "relu", .kind = &sonde__op_relu, .inputs = 1, .help = "max(x, 0)"};
const sonde__op_layer sonde__layer_sigmoid = {
    .name = "sigmoid", .kind = &sonde__op_sigmoid, .inputs = 1, .help = "1 / (1 + exp(-x))"};
const sonde__op_layer sonde__layer_tanh = {
    .name = "tanh", .kind = &sonde__op_tanh, .inputs = 1, .help = "tanh(x)"};
const sonde__op_layer sonde__layer_softmax = {
    .name = "softmax", .kind = &sonde__op_softmax, .inputs = 1, .fields = {DIM},
    .help = "exp(x) / the sum of exp(x) along dim"};
const sonde__op_layer sonde__layer_log_softmax = {
    .name = "log_softmax", .kind = &sonde__op_log_softmax, .inputs = 1, .fields = {DIM},
    .help = "the logarithm of softmax"};
const sonde__op_layer sonde__layer_add = {
    .name = "add", .kind = &sonde__op_add, .inputs = 2, .help = "a + b"};
const sonde__op_layer sonde__layer_mul = {
    .name = "mul", .kind = &sonde__op_mul, .inputs = 2, .help = "a b"};
/* clang-format on */
