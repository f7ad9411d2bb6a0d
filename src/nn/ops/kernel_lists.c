/*
 * kernel_lists.c - the list of kernels of an op kind. The list of all kinds is made by the
 * build (cmake/Rooms.cmake).
 */
#include "nn/ops/common.h"

#include <assert.h>
#include <pthread.h>

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
