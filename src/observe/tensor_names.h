/*
 * tensor_names.h - shared functions on names: nearest names, globs, "model.".
 *
 * Internal. Everything here runs at configuration time, never within a step.
 */
#ifndef SONDE_OBSERVE_TENSOR_NAMES_H
#define SONDE_OBSERVE_TENSOR_NAMES_H

#include <sonde/selector.h>

#include <stdbool.h>
#include <stddef.h>

/* The i-th name of a list that only its owner can read. */
typedef const char *(*sonde__observe_name_at)(const void *list, size_t i);

/*
 * Writes up to three names that may have been meant to buf, as "a", "a or b", "a, b or
 * c", and returns how many: those at a small edit distance first, then those that contain
 * the text asked for. Equal ones in the order of the list, each text once. A name that
 * does not fit is left out whole.
 */
SONDE_API size_t sonde__observe_nearest_names(const char *name, const void *list,
                                              sonde__observe_name_at at, size_t count,
                                              char *buf, size_t size);

enum { SONDE__NEAREST_TEXT = 200 }; /* room for the above within diag.expected */

/* NULL if the pattern is well formed, else what is wrong, with the offset in *at. */
SONDE_API const char *sonde__observe_glob_check(const char *pattern, size_t *at);
/*
 * Whether the whole text matches: * any run, ? one byte, [a-z] [!a-z] a class, a
 * backslash takes the next byte literally. The pattern must have passed the check. Time:
 * at most the product of the lengths.
 */
SONDE_API bool sonde__observe_glob_match(const char *pattern, const char *text);

/*
 * The offset of a "model." that stands at the start of text or right behind a prefix that
 * ends in "___", else SIZE_MAX.
 */
size_t sonde__observe_model_prefix(const char *text);
enum { SONDE__MODEL_LENGTH = 6 };

/* A selector of exactly that name, whatever characters it has. */
sonde_err sonde__selector_create_exact(const char *name, sonde_selector **out,
                                       sonde_diag *diag);

/* Copies a selector. */
sonde_err sonde__selector_copy(const sonde_selector *selector, sonde_selector **out,
                               sonde_diag *diag);
/*
 * Sets marks[id] of the tensors that a selector means, from an id on, to resolve the
 * same selector again after tensors were added. marks has an entry for every tensor.
 * unknown_is_fine: a name or module that is unknown marks nothing and is no error.
 */
sonde_err sonde__selector_mark(const sonde_selector *selector,
                               const sonde_catalogue *catalogue, uint32_t first_id,
                               bool unknown_is_fine, uint8_t *marks, sonde_diag *diag);

/* Makes info that of an alias of a tensor of the catalogue, with its dtype and shape: in
 * the catalogue that info is from the batch may be of another size. */
void sonde__observe_make_alias(sonde_tensor_info *info, const sonde_catalogue *catalogue,
                               uint32_t tensor);

/* Whether a tensor belongs to that module or to one inside it. path is not empty. */
bool sonde__observe_in_module(const sonde_tensor_info *info, const char *path);
/* The same of any tensor of the catalogue. */
bool sonde__observe_has_module(const sonde_catalogue *catalogue, const char *path);

#endif
