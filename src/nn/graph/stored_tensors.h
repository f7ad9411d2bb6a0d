/*
 * stored_tensors.h - whether a file of weights has the tensors that a model needs.
 */
#ifndef SONDE__GRAPH_STORED_TENSORS_H
#define SONDE__GRAPH_STORED_TENSORS_H

#include "sonde/error.h"
#include "sonde/safetensors.h"

#include <stdbool.h>
#include <stddef.h>

/*
 * Whether file, opened from path, has the wanted tensors in their shapes; exact: and no others.
 * Names all missing tensors, or all unknown ones, as far as they fit into a diagnosis.
 * SONDE_ENOTFOUND, SONDE_ESHAPE, SONDE_EINVAL (unknown tensors).
 */
sonde_err sonde__graph_check_stored(const sonde_safetensors *file, const char *path,
                                    const sonde_named_view *wanted, size_t count,
                                    bool exact, sonde_diag *diag);

#endif
