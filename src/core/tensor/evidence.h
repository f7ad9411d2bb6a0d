/*
 * evidence.h - the forms of evidence in one table: what is kept of a value, how it is
 * computed and merged, and where a run stores it. Internal.
 *
 * Observers compute with it, recorders store by it, trials read and merge by it; commands
 * and messages print its names (sonde_form_get, <sonde/reduction.h>).
 */
#ifndef SONDE_TENSOR_EVIDENCE_H
#define SONDE_TENSOR_EVIDENCE_H

#include <sonde/reduction.h>

/* The evidence of one value, or of several that were merged. What a producer or a file
 * gives is borrowed; what is computed here lies in own_vitals, and in own_sketch, which the
 * caller provides where a sketch may be wanted. own_vitals is not cleared: that would cost
 * more than small tensors. */
typedef struct sonde__evidence {
    const sonde_vitals *vitals; /* or norms alone; NULL: not there yet */
    const sonde_sketch *sketch;
    uint64_t hash;
    sonde_vitals own_vitals;
    sonde_sketch *own_sketch;
} sonde__evidence;

/* The kinds of records in a run that hold a form. */
typedef enum sonde__evidence_store {
    SONDE__STORE_NOT = 0, /* it is computed from a stored value */
    SONDE__STORE_VALUE,
    SONDE__STORE_ROW, /* of vital signs; what a form lacks of them is absent */
    SONDE__STORE_SKETCH,
    SONDE__STORES
} sonde__evidence_store;

typedef struct sonde__evidence_form {
    sonde_form print;            /* its bit and its names */
    sonde__evidence_store store; /* where a run has it */
    unsigned part_of;            /* bits of forms that contain it */
    unsigned
        needs; /* bits of stored forms, any of which gives it where it is not stored */
    /* From a value, unless it is there already; a hash always. */
    void (*compute)(const sonde_view *view, sonde__evidence *evidence);
    /* Adds part to the evidence in own_vitals or own_sketch of into. */
    void (*merge)(sonde__evidence *into, const sonde__evidence *part);
} sonde__evidence_form;

SONDE_API extern const sonde__evidence_form sonde__evidence_forms[SONDE_FORM_COUNT];

/* Computes from the view what how asks for and evidence lacks. Norms are a part of full
 * vital signs, where these are asked for too. */
static inline void sonde__evidence_compute(unsigned how, const sonde_view *view,
                                           sonde__evidence *evidence)
{
    for (how &= ~(unsigned)SONDE_HOW_RAW; how != 0; how &= how - 1) {
        sonde__evidence_forms[__builtin_ctz(how)].compute(view, evidence);
    }
}
/* Of how, the forms that a run stores, without those that another one of how, or of
 * stored, contains. */
SONDE_API unsigned sonde__evidence_to_store(unsigned how, unsigned stored);
/* The bits of all forms that a run stores as records of a kind. */
SONDE_API unsigned sonde__evidence_in(sonde__evidence_store store);

#endif
