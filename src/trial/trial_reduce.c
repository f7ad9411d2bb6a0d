/*
 * reduce.c - a reduction of a tensor at a step, from what was saved of it: see
 * <sonde/reduction.h> for what answers what.
 */
#include "tensor/reduction.h"
#include "base/fail.h"
#include "base/memory.h"
#include "trial/trial_state.h"

static sonde_err reduce_values(sonde_trial *trial, const sonde__trial_found *found,
                               const sonde_reduction *reduction, sonde_reduced *out,
                               sonde_diag *diag)
{
    sonde__reducer reducer;
    sonde_err err = SONDE_OK;

    sonde__reducer_init(&reducer, reduction);
    for (uint32_t i = 0; i < found->count && err == SONDE_OK; i++) {
        const sonde__trial_item *item =
            sonde__trial_store_at(found->store, found->items[i]);
        sonde_view view;

        err =
            sonde__trial_value_of(trial, found->worker, (const void *)item, &view, diag);
        if (err == SONDE_OK) {
            err = sonde__reducer_add(&reducer, &view, diag);
        }
    }
    if (err == SONDE_OK) {
        sonde__reducer_finish(&reducer, out);
    }
    sonde__reducer_fini(&reducer);
    return err;
}

static sonde_err reduce_sketch(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                               const sonde_reduction *reduction, sonde_reduced *out,
                               sonde_diag *diag)
{
    sonde_sketch *sketch = sonde__malloc(sizeof *sketch);
    sonde_err err = SONDE_OK;

    if (sketch == NULL) {
        return sonde__fail_nomem(diag, "a sketch");
    }
    err = sonde_trial_sketch(trial, id, at, sketch, diag);
    if (err == SONDE_OK) {
        sonde_reduce_sketch(reduction, sketch, out);
    }
    sonde__free(sketch);
    return err;
}

static sonde_err reduce_vitals(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                               const sonde_reduction *reduction, sonde_reduced *out,
                               sonde_diag *diag)
{
    sonde_vitals vitals;
    const sonde_err err = sonde_trial_vitals(trial, id, at, &vitals, diag);

    if (err == SONDE_OK) {
        sonde_reduce_vitals(reduction, &vitals, out);
    }
    return err;
}

sonde_err sonde_trial_reduce(sonde_trial *trial, uint32_t id, const sonde_trial_at *at,
                             const sonde_reduction *reduction, sonde_reduced *out,
                             sonde_diag *diag)
{
    const unsigned evidence = sonde_reduction_evidence(reduction);
    sonde__trial_found found;

    trial->look++;
    if ((evidence & SONDE_HOW_VITALS) != 0 &&
        sonde__trial_find(trial, SONDE__VITALS, id, at, &found)) {
        return reduce_vitals(trial, id, at, reduction, out, diag);
    }
    if (sonde__trial_find(trial, SONDE__RAW, id, at, &found)) {
        return reduce_values(trial, &found, reduction, out, diag);
    }
    if ((evidence & SONDE_HOW_SKETCH) != 0 &&
        sonde__trial_find(trial, SONDE__SKETCH, id, at, &found)) {
        return reduce_sketch(trial, id, at, reduction, out, diag);
    }
    return sonde__trial_fail_missing(
        trial, (evidence & SONDE_HOW_VITALS) != 0 ? SONDE__VITALS : SONDE__RAW, id, at,
        diag);
}
