/*
 * network.h - the catalogue that the tests of this room share: a small network by hand.
 */
#ifndef SONDE_TESTS_OBSERVE_NETWORK_H
#define SONDE_TESTS_OBSERVE_NETWORK_H

#include "alloc_failure.h"

#include <sonde/catalogue.h>

/* Ids by order of declaration. */
enum {
    NET_INPUT,
    NET_CONV_WEIGHT,
    NET_CONV_BIAS,
    NET_CONV_OUT,
    NET_RELU_OUT,
    NET_FC_WEIGHT,
    NET_FC_BIAS,
    NET_FC_OUT,
    NET_LOSS,
    NET_GRAD_CONV_WEIGHT,
    NET_GRAD_FC_WEIGHT,
    NET_GRAD_FC_OUT,
    NET_UPDATED_FC_WEIGHT,
    NET_ACCL_FC_WEIGHT,
    NET_FC_IN, /* an alias of NET_RELU_OUT */
    NET_COUNT
};

static const sonde_tensor_info net_tensors[NET_COUNT] = {
    {"input",
     "",
     "",
     SONDE_ROLE_INPUT,
     SONDE_PASS_NONE,
     SONDE_F32,
     2,
     {2, 3},
     UINT32_MAX,
     ""},
    {"layer1.conv.weight",
     "layer1.conv",
     "",
     SONDE_ROLE_WEIGHT,
     SONDE_PASS_NONE,
     SONDE_F32,
     2,
     {4, 3},
     UINT32_MAX,
     NULL},
    {"layer1.conv.bias",
     "layer1.conv",
     "",
     SONDE_ROLE_BIAS,
     SONDE_PASS_NONE,
     SONDE_F32,
     1,
     {4},
     UINT32_MAX,
     NULL},
    {"layer1.conv_output_0",
     "layer1.conv",
     "Conv2d",
     SONDE_ROLE_OUTPUT,
     SONDE_PASS_FORWARD,
     SONDE_F32,
     2,
     {2, 4},
     UINT32_MAX,
     NULL},
    {"relu_output_0",
     "relu",
     "Relu",
     SONDE_ROLE_OUTPUT,
     SONDE_PASS_FORWARD,
     SONDE_F32,
     2,
     {2, 4},
     UINT32_MAX,
     NULL},
    {"fc1.weight",
     "fc1",
     "",
     SONDE_ROLE_WEIGHT,
     SONDE_PASS_NONE,
     SONDE_F32,
     2,
     {5, 4},
     UINT32_MAX,
     NULL},
    {"fc1.bias",
     "fc1",
     "",
     SONDE_ROLE_BIAS,
     SONDE_PASS_NONE,
     SONDE_F32,
     1,
     {5},
     UINT32_MAX,
     NULL},
    {"fc1_output_0",
     "fc1",
     "Linear",
     SONDE_ROLE_OUTPUT,
     SONDE_PASS_FORWARD,
     SONDE_F32,
     2,
     {2, 5},
     UINT32_MAX,
     NULL},
    {"loss",
     "criterion",
     "NllLoss",
     SONDE_ROLE_LOSS,
     SONDE_PASS_FORWARD,
     SONDE_F32,
     0,
     {0},
     UINT32_MAX,
     NULL},
    {"Gradient___layer1.conv.weight",
     "layer1.conv",
     "Conv2dGrad",
     SONDE_ROLE_GRADIENT,
     SONDE_PASS_BACKWARD,
     SONDE_F32,
     2,
     {4, 3},
     UINT32_MAX,
     "of one micro-batch"},
    {"Gradient___fc1.weight",
     "fc1",
     "LinearGrad",
     SONDE_ROLE_GRADIENT,
     SONDE_PASS_BACKWARD,
     SONDE_F32,
     2,
     {5, 4},
     UINT32_MAX,
     "of one micro-batch"},
    {"Gradient___fc1_output_0",
     "fc1",
     "NllGrad",
     SONDE_ROLE_ACTIVATION_GRADIENT,
     SONDE_PASS_BACKWARD,
     SONDE_F32,
     2,
     {2, 5},
     UINT32_MAX,
     NULL},
    {"UpdatedVar___fc1.weight",
     "fc1",
     "SGD",
     SONDE_ROLE_UPDATE,
     SONDE_PASS_UPDATE,
     SONDE_F32,
     2,
     {5, 4},
     UINT32_MAX,
     NULL},
    {"Accl1___fc1.weight",
     "fc1",
     "SGD",
     SONDE_ROLE_OPTIMIZER,
     SONDE_PASS_UPDATE,
     SONDE_F32,
     2,
     {5, 4},
     UINT32_MAX,
     NULL},
    {"fc1_input_0",
     "fc1",
     "",
     SONDE_ROLE_INPUT,
     SONDE_PASS_FORWARD,
     SONDE_F32,
     2,
     {2, 4},
     NET_RELU_OUT,
     NULL},
};

/* NULL if memory is out (or a declaration fails, which the tests of declare exclude). */
static inline sonde_catalogue *net_create(void)
{
    sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    if (sonde_catalogue_create(&catalogue, NULL) != SONDE_OK) {
        return NULL;
    }
    for (int i = 0; i < NET_COUNT; i++) {
        if (sonde_catalogue_declare(catalogue, &net_tensors[i], &id, NULL) != SONDE_OK) {
            sonde_catalogue_destroy(catalogue);
            return NULL;
        }
    }
    return catalogue;
}

/*
 * Runs attempt(user) with ever more allocations succeeding, until it does. attempt cleans
 * up after itself and returns the error it got. Returns the number of failures, or -1 if
 * an attempt returned anything but SONDE_ENOMEM, leaked, or did not notice a failure.
 */
static inline int net_alloc_failures(sonde_err (*attempt)(void *user), void *user)
{
    for (int n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin((size_t)n);
        err = attempt(user);
        if (alloc_failure_end() != 0 || (err != SONDE_OK && err != SONDE_ENOMEM)) {
            return -1;
        }
        if (err == SONDE_OK) {
            return alloc_failure_count == (size_t)n ? n : -1;
        }
    }
}

/* For cmocka: the catalogue is a test's state. */
static inline int net_set_up(void **state)
{
    *state = net_create();
    return *state == NULL;
}

static inline int net_tear_down(void **state)
{
    sonde_catalogue_destroy(*state);
    return 0;
}

#endif
