/*
 * kinds.c - all op kinds in one list, and making lists of kernels.
 */
#include "nn/ops/common.h"

#include <assert.h>
#include <pthread.h>

const sonde__op_kind *const sonde__op_kinds[] = {
    &sonde__op_conv2d,
    &sonde__op_max_pool2d,
    &sonde__op_linear,
    &sonde__op_relu,
    &sonde__op_sigmoid,
    &sonde__op_tanh,
    &sonde__op_group_norm,
    &sonde__op_reshape,
    &sonde__op_transpose,
    &sonde__op_softmax,
    &sonde__op_log_softmax,
    &sonde__op_nll,
    &sonde__op_add,
    &sonde__op_mul,
    &sonde__op_reduce,
    &sonde__op_identity,
    &sonde__op_conv2d_grad_input,
    &sonde__op_conv2d_grad_weight,
    &sonde__op_channel_sum,
    &sonde__op_max_pool2d_grad,
    &sonde__op_linear_grad_input,
    &sonde__op_linear_grad_weight,
    &sonde__op_relu_grad,
    &sonde__op_sigmoid_grad,
    &sonde__op_tanh_grad,
    &sonde__op_group_norm_grad,
    &sonde__op_softmax_grad,
    &sonde__op_log_softmax_grad,
    &sonde__op_nll_grad,
    &sonde__op_broadcast,
    &sonde__op_scale,
    &sonde__op_fill,
    &sonde__op_accumulate,
    &sonde__op_sgd,
    &sonde__op_adam,
    &sonde__op_reorder,
    &sonde__op_conv2d_relu_pool,
    &sonde__op_conv2d_relu,
    &sonde__op_linear_relu,
    &sonde__op_pool_relu_conv_grad,
    &sonde__op_linear_grad_weight_sgd,
    NULL,
};

const sonde__op_kernel *const *sonde__op_list_kernels(sonde__op_kernel_list *list,
                                                      sonde__op_fast_kernels fast,
                                                      const sonde__op_kernel *reference)
{
    static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    const sonde__op_kernel *const *from = fast == NULL ? NULL : fast();
    size_t count = 0;

    (void)pthread_mutex_lock(&lock);
    if (list->kernels[0] == NULL) {
        for (; from != NULL && from[count] != NULL; count++) {
            assert(count + 1 < SONDE__MAX_KERNELS);
            list->kernels[count] = from[count];
        }
        list->kernels[count] = reference;
    }
    (void)pthread_mutex_unlock(&lock);
    return list->kernels;
}

const sonde__op_kernel *sonde__op_reference_of(const sonde__op_kind *kind)
{
    const sonde__op_kernel *const *kernels = kind->kernels();

    while (kernels[1] != NULL) {
        kernels++;
    }
    return *kernels;
}
