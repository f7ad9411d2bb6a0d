/*
 * anchor_slot.h - one anchor: what it keeps of its tensor, and where. Internal.
 */
#ifndef SONDE_OBSERVE_ANCHOR_SLOT_H
#define SONDE_OBSERVE_ANCHOR_SLOT_H

#include <sonde/anchor.h>

typedef struct sonde__anchor_slot {
    char *name, *tensor;
    sonde_anchor_mode mode; /* never DEFAULT */
    int period;             /* 1 but with EVERYN */
    uint32_t id;
    size_t next; /* of the same id */
    /* From prepare on: */
    sonde_view value;     /* dtype and shape of one value */
    sonde_view kept;      /* what is returned; its data is ours */
    size_t value_size;    /* bytes */
    sonde_call_shape run; /* as it counts for this tensor */
    int64_t expected;     /* values a call */
    bool prepared, once;  /* once: a value a step, not a micro-batch */
    /* Of this call: */
    int64_t arrived, foreign; /* values taken; values of another shape, dtype or place */
    bool called, divided;
} sonde__anchor_slot;

/* Decides shape and counts, and allocates. */
sonde_err sonde__anchor_prepare(sonde__anchor_slot *of, const sonde_tensor_info *info,
                                bool axes, const sonde_call_shape *run, sonde_diag *diag);
/* Keeps an observation, if it is one that the mode keeps. */
void sonde__anchor_take(sonde__anchor_slot *of, const sonde_observation *seen);
/* Of a call. */
int64_t sonde__anchor_micro_batches(const sonde__anchor_slot *of);
/* "anchor 'NAME'", for diagnostics. Returns buf. */
const char *sonde__anchor_where(const char *name, char *buf, size_t size);

#endif
