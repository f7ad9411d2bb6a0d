/*
 * evidence.c - the table of the forms of evidence.
 */
#include "observe/evidence.h"

#include "tensor/hash.h"

static void take_vitals(sonde_observation *seen, sonde__observe_evidence *own)
{
    if (seen->vitals == NULL || sonde_vitals_are_norms(seen->vitals)) {
        sonde_vitals_of(seen->view, &own->vitals);
        seen->vitals = &own->vitals;
    }
}

static void take_norms(sonde_observation *seen, sonde__observe_evidence *own)
{
    if (seen->vitals == NULL) {
        sonde_norms_of(seen->view, &own->vitals);
        seen->vitals = &own->vitals;
    }
}

static void take_sketch(sonde_observation *seen, sonde__observe_evidence *own)
{
    if (seen->sketch == NULL) {
        sonde_sketch_init(own->sketch);
        sonde_sketch_add(own->sketch, seen->view);
        seen->sketch = own->sketch;
    }
}

static void take_hash(sonde_observation *seen, sonde__observe_evidence *own)
{
    (void)own;
    seen->hash = sonde__hash_view(seen->view);
}

/* In the order of their bits: full vital signs come before the norms. */
static const struct form {
    const char *name;
    void (*take)(sonde_observation *seen, sonde__observe_evidence *own);
} forms[SONDE_FORM_COUNT] = {
    [SONDE_FORM_RAW] = {"raw values", NULL},
    [SONDE_FORM_VITALS] = {"vital signs", take_vitals},
    [SONDE_FORM_SKETCH] = {"sketch", take_sketch},
    [SONDE_FORM_HASH] = {"hash", take_hash},
    [SONDE_FORM_NORMS] = {"norms", take_norms},
};

const char *sonde_form_name(int form)
{
    return form >= 0 && form < SONDE_FORM_COUNT ? forms[form].name : NULL;
}

void sonde__observe_complete(sonde_observation *seen, sonde__observe_evidence *own)
{
    for (unsigned how = seen->how & ~(unsigned)SONDE_HOW_RAW; how != 0; how &= how - 1) {
        forms[__builtin_ctz(how)].take(seen, own);
    }
}
