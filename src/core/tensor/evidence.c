/*
 * evidence.c - the table of the forms of evidence.
 */
#include "tensor/evidence.h"

#include "tensor/reduction.h"

static void compute_vitals(const sonde_view *view, sonde__evidence *evidence)
{
    if (evidence->vitals == NULL || sonde_vitals_are_norms(evidence->vitals)) {
        sonde_vitals_of(view, &evidence->own_vitals);
        evidence->vitals = &evidence->own_vitals;
    }
}

static void compute_norms(const sonde_view *view, sonde__evidence *evidence)
{
    if (evidence->vitals == NULL) {
        sonde_norms_of(view, &evidence->own_vitals);
        evidence->vitals = &evidence->own_vitals;
    }
}

static void merge_vitals(sonde__evidence *into, const sonde__evidence *part)
{
    sonde_vitals_merge(&into->own_vitals, part->vitals);
}

static void compute_sketch(const sonde_view *view, sonde__evidence *evidence)
{
    if (evidence->sketch == NULL) {
        sonde_sketch_init(evidence->own_sketch);
        sonde_sketch_add(evidence->own_sketch, view);
        evidence->sketch = evidence->own_sketch;
    }
}

static void merge_sketch(sonde__evidence *into, const sonde__evidence *part)
{
    sonde_sketch_merge(into->own_sketch, part->sketch);
}

static void compute_hash(const sonde_view *view, sonde__evidence *evidence)
{
    evidence->hash = sonde__hash_view(view);
}

/* In the order of their bits: full vital signs are computed before the norms. */
const sonde__evidence_form sonde__evidence_forms[SONDE_FORM_COUNT] = {
    [SONDE_FORM_RAW] = {.print = {SONDE_HOW_RAW, "raw values", "raw value"},
                        .store = SONDE__STORE_VALUE},
    [SONDE_FORM_VITALS] = {.print = {SONDE_HOW_VITALS, "vital signs", "vital signs"},
                           .store = SONDE__STORE_ROW,
                           .needs = SONDE_HOW_RAW | SONDE_HOW_NORMS, /* norms: a part */
                           .compute = compute_vitals,
                           .merge = merge_vitals},
    [SONDE_FORM_SKETCH] = {.print = {SONDE_HOW_SKETCH, "sketch", "sketch"},
                           .store = SONDE__STORE_SKETCH,
                           .needs = SONDE_HOW_RAW,
                           .compute = compute_sketch,
                           .merge = merge_sketch},
    [SONDE_FORM_HASH] = {.print = {SONDE_HOW_HASH, "hash", "hash"},
                         .needs = SONDE_HOW_RAW,
                         .compute = compute_hash},
    [SONDE_FORM_NORMS] = {.print = {SONDE_HOW_NORMS, "norms", "norms"},
                          .store = SONDE__STORE_ROW,
                          .part_of = SONDE_HOW_VITALS,
                          .needs = SONDE_HOW_VITALS | SONDE_HOW_RAW,
                          .compute = compute_norms,
                          .merge = merge_vitals},
};

const sonde_form *sonde_form_get(int form)
{
    return form >= 0 && form < SONDE_FORM_COUNT ? &sonde__evidence_forms[form].print
                                                : NULL;
}

unsigned sonde__evidence_to_store(unsigned how, unsigned stored)
{
    unsigned kept = how;

    for (unsigned left = how; left != 0; left &= left - 1) {
        const sonde__evidence_form *const form =
            &sonde__evidence_forms[__builtin_ctz(left)];

        if (form->store == SONDE__STORE_NOT || (form->part_of & (how | stored)) != 0) {
            kept &= ~form->print.bit;
        }
    }
    return kept & ~stored;
}

unsigned sonde__evidence_in(sonde__evidence_store store)
{
    unsigned how = 0;

    for (int form = 0; form < SONDE_FORM_COUNT; form++) {
        how |= sonde__evidence_forms[form].store == store
                   ? sonde__evidence_forms[form].print.bit
                   : 0;
    }
    return how;
}
