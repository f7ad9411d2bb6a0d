/*
 * selector.h - which tensors a user means.
 *
 * Written as
 *     conv1.weight            exactly that name (aliases as sonde_catalogue_find has them)
 *     *.weight  fc[12].*      a glob: any of * ? [ in the text, or a prefix "glob:"
 *     re:^Gradient___.*bias   a Perl-compatible regular expression, found anywhere
 *     @weight @gradient @all  a collection: every tensor of a role, or all
 *     module:fc1              everything that belongs to a module or to modules inside it
 * and several separated by commas. A backslash takes a comma literally. A selector that was
 * meant for exactly one name fails when the name is unknown; a pattern that matches nothing
 * succeeds with zero matches, which whoever resolves it reports as a warning.
 */
#ifndef SONDE_SELECTOR_H
#define SONDE_SELECTOR_H

#include <sonde/catalogue.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct sonde_selector sonde_selector;

/* A malformed expression: SONDE_EINVAL with the position. */
SONDE_API SONDE_CHECKED sonde_err sonde_selector_create(const char *text,
                                                        sonde_selector **out,
                                                        sonde_diag *diag);
SONDE_API void sonde_selector_destroy(sonde_selector *selector);
SONDE_API const char *sonde_selector_text(const sonde_selector *selector);

/*
 * The ids selected, ascending, each once; *ids is new and freed with sonde_selector_free_ids.
 * An exact name that is unknown: SONDE_ENOTFOUND with the nearest names. Aliases are selected
 * only when their own name or role is; @all leaves them out.
 */
SONDE_API SONDE_CHECKED sonde_err sonde_selector_resolve(const sonde_selector *selector,
                                                         const sonde_catalogue *catalogue,
                                                         uint32_t **ids, size_t *count,
                                                         sonde_diag *diag);
SONDE_API void sonde_selector_free_ids(uint32_t *ids);

#ifdef __cplusplus
}
#endif

#endif
