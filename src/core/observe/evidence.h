/*
 * evidence.h - the forms of evidence of a value, in one table: their names (sonde_form_name,
 * <sonde/tap.h>) and how each is computed.
 */
#ifndef SONDE_OBSERVE_EVIDENCE_H
#define SONDE_OBSERVE_EVIDENCE_H

#include <sonde/tap.h>

/* Room for what is computed. It is not cleared: that would cost more than small tensors. */
typedef struct sonde__observe_evidence {
    sonde_vitals vitals; /* or norms alone */
    sonde_sketch *sketch;
} sonde__observe_evidence;

/* Computes from seen->view what seen->how asks for and seen lacks. Where full vital signs
 * are asked for, norms are part of them. */
void sonde__observe_complete(sonde_observation *seen, sonde__observe_evidence *own);

#endif
