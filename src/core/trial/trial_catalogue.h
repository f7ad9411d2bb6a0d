/*
 * trial_catalogue.h - the tensors of a trial and their collections. Internal.
 *
 * Tensors of several workers with one name are one tensor; role, dtype and shape are
 * those of its first declaration.
 */
#ifndef SONDE_TRIAL_TRIAL_CATALOGUE_H
#define SONDE_TRIAL_TRIAL_CATALOGUE_H

#include "trial/trial_state.h"

/* Declares a tensor, or finds the one of that name. */
sonde_err sonde__trial_declare(sonde_trial *trial, const sonde_tensor_info *info,
                               uint32_t *tensor, sonde_diag *diag);
/* Whether a tensor has exactly that name. */
bool sonde__trial_known(const sonde_trial *trial, const char *name, uint32_t *tensor);
/* Adds a tensor to a collection. False: out of memory. */
bool sonde__trial_join(sonde_trial *trial, uint32_t tensor, const char *collection);

/* Reads the lines that were appended to a worker's catalogue. */
sonde_err sonde__trial_catalogue_read(sonde_trial *trial, sonde__trial_worker *worker,
                                      sonde_diag *diag);
/*
 * The trial's id of a worker's tensor, whose catalogue line may still have to be read. If
 * there is none, that is noted as damage, and the tensor gets the name that the header of
 * the closed segment gives its value, or else one made of its number. line and segment:
 * of the value, or NULL. *tensor is SONDE__NONE if the number is too large to be meant.
 */
sonde_err sonde__trial_worker_tensor(sonde_trial *trial, sonde__trial_worker *worker,
                                     uint32_t id, const sonde__record_index_line *line,
                                     const sonde__trial_file *segment, uint32_t *tensor,
                                     sonde_diag *diag);

#endif
