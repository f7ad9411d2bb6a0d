/*
 * tensor_names.h - names: the nearest ones, globs, a leading "model.".
 *
 * These functions run before the first step, or when tensors are added.
 */
#ifndef SONDE_OBSERVE_TENSOR_NAMES_H
#define SONDE_OBSERVE_TENSOR_NAMES_H

#include <sonde/selector.h>

#include <stdbool.h>
#include <stddef.h>

/* The i-th name of a list; the caller knows its type. */
typedef const char *(*sonde__observe_name_at)(const void *list, size_t i);

/*
 * Writes up to three names similar to `name` to buf, as "a", "a or b", "a, b or c", and
 * returns their number: first those at a small edit distance, then those that contain the
 * name. Names of equal rank keep the order of the list; each text appears once. A name
 * that does not fit is omitted.
 */
SONDE_API size_t sonde__observe_nearest_names(const char *name, const void *list,
                                              sonde__observe_name_at name_at,
                                              size_t count, char *buf, size_t size);

enum { SONDE__NEAREST_TEXT = 200 }; /* room for the above within diag.expected */

/* NULL if the pattern is well formed, else what is wrong, with its place in *offset. */
SONDE_API const char *sonde__observe_glob_check(const char *pattern, size_t *offset);
/*
 * Whether the whole text matches: * matches any run, ? one byte, [a-z] and [!a-z] a
 * class, and a backslash makes the next byte literal. The pattern must have passed the check. Time:
 * at most the product of the lengths.
 */
SONDE_API bool sonde__observe_glob_match(const char *pattern, const char *text);

/*
 * The offset of "model." at the start of text or directly after a prefix that ends in
 * "___", else SIZE_MAX.
 */
size_t sonde__observe_model_prefix(const char *text);
enum { SONDE__MODEL_LENGTH = 6 };

/* A selector of exactly that name; no character is special. */
sonde_err sonde__selector_create_exact(const char *name, sonde_selector **out,
                                       sonde_diag *diag);

/* The whole pattern, commas and blanks included, is one regular expression. */
SONDE_API SONDE_CHECKED sonde_err sonde__selector_create_regex(const char *pattern,
                                                               sonde_selector **out,
                                                               sonde_diag *diag);
/* Borrowed. */
SONDE_API const char *sonde__selector_text(const sonde_selector *selector);

/* Copies a selector. */
sonde_err sonde__selector_copy(const sonde_selector *selector, sonde_selector **out,
                               sonde_diag *diag);
/*
 * Sets marks[id] for the tensors that a selector selects, from first_id on. marks has an
 * entry for every tensor. unknown_is_fine: an unknown name or module selects nothing and
 * is not an error.
 */
sonde_err sonde__selector_mark(const sonde_selector *selector,
                               const sonde_catalogue *catalogue, uint32_t first_id,
                               bool unknown_is_fine, uint8_t *marks, sonde_diag *diag);

/* Whether a tensor belongs to that module or to one inside it. path is not empty. */
bool sonde__observe_in_module(const sonde_tensor_info *info, const char *path);
/* The same for any tensor of the catalogue. */
bool sonde__observe_has_module(const sonde_catalogue *catalogue, const char *path);

#endif
