/* network.c - the helpers that network.h declares. */
#include "observe/network.h"

sonde_catalogue *net_create(void)
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

int net_alloc_failures(sonde_err (*attempt)(void *user), void *user)
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

int net_set_up(void **state)
{
    *state = net_create();
    return *state == NULL;
}

int net_tear_down(void **state)
{
    sonde_catalogue_destroy(*state);
    return 0;
}
