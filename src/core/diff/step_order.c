/*
 * step_order.c - the order in which a step computes its tensors.
 *
 *     weights -> inputs -> activations -> losses -> gradients of activations
 *             -> gradients of weights, last layer first -> optimizer state -> updates
 *
 * Weights are first where a run records them as the step finds them, and last where it
 * records them after the update, as sonde.watch does from its second step on.
 */
#include "diff/diff_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdlib.h>
#include <string.h>

enum { WEIGHTS_AFTER = 9 };

static const int phases[SONDE_ROLE_COUNT] = {
    [SONDE_ROLE_WEIGHT] = 0,     [SONDE_ROLE_BIAS] = 0,
    [SONDE_ROLE_BUFFER] = 0,     [SONDE_ROLE_INPUT] = 1,
    [SONDE_ROLE_ACTIVATION] = 2, [SONDE_ROLE_OUTPUT] = 2,
    [SONDE_ROLE_OTHER] = 2,      [SONDE_ROLE_LOSS] = 3,
    [SONDE_ROLE_SCALAR] = 3,     [SONDE_ROLE_ACTIVATION_GRADIENT] = 4,
    [SONDE_ROLE_GRADIENT] = 5,   [SONDE_ROLE_OPTIMIZER] = 6,
    [SONDE_ROLE_UPDATE] = 7,
};

typedef struct key {
    int phase;
    int64_t within;
    uint32_t row;
} key;

static int by_key(const void *a, const void *b)
{
    const key *const x = a, *const y = b;

    return x->phase != y->phase ? x->phase - y->phase
                                : (x->within > y->within) - (x->within < y->within);
}

static void sort_rows(const sonde_diff *diff, bool weights_after, key *keys,
                      uint32_t *out)
{
    for (uint32_t i = 0; i < diff->count; i++) {
        const sonde_role role = diff->rows[i].role;
        const int phase = phases[role];

        keys[i] = (key){phase == 0 && weights_after ? WEIGHTS_AFTER : phase,
                        role == SONDE_ROLE_GRADIENT ? -(int64_t)i : (int64_t)i, i};
    }
    qsort(keys, diff->count, sizeof *keys, by_key);
    for (uint32_t i = 0; i < diff->count; i++) {
        out[i] = keys[i].row;
    }
}

sonde_err sonde__diff_order(sonde_diff *diff, sonde_diag *diag)
{
    sonde_trial *const trial = diff->side[SONDE__DIFF_A].trial;
    sonde_run_info info = {.program = ""};
    key *const keys = sonde__calloc(diff->count + 1, sizeof *keys);

    diff->first = sonde__calloc(diff->count + 1, sizeof *diff->first);
    diff->later = sonde__calloc(diff->count + 1, sizeof *diff->later);
    if (keys == NULL || diff->first == NULL || diff->later == NULL) {
        sonde__free(keys);
        return sonde__fail_nomem(diag, "a comparison");
    }
    if (trial != NULL) {
        sonde_trial_describe(trial, &info);
    }
    sort_rows(diff, false, keys, diff->first);
    sort_rows(diff, strcmp(info.program, "sonde.watch") == 0, keys, diff->later);
    sonde__free(keys);
    return SONDE_OK;
}
