/*
 * tensor_roles.h - what a tensor is to its network, where its producer does not say it.
 * The one table of names, for hooks, watches, readers of other programs' runs and rules.
 * Internal.
 *
 * In this order: the role that the producer declares; the role of the name; the role of a
 * collection that the tensor is in. Everything here runs at configuration time.
 */
#ifndef SONDE_OBSERVE_TENSOR_ROLES_H
#define SONDE_OBSERVE_TENSOR_ROLES_H

#include <sonde/catalogue.h>

#include <stdbool.h>

/* The role by a name in the conventions of Sonde, PyTorch, Keras, JAX, smdebug and GGUF,
 * ignoring case (docs/recording.md). dtype: labels are integers, activations are not. */
SONDE_API sonde_role sonde__observe_role_by_name(const char *name, sonde_dtype dtype);
/* Sets the role of info by its name, and pass and op where they are not set either. Does
 * nothing if info has a role. */
SONDE_API void sonde__observe_guess(sonde_tensor_info *info);
/* Of smdebug's collections and ours: "losses", "optimizer_variables" ... Others have
 * none: SONDE_ROLE_OTHER. */
sonde_role sonde__observe_role_of_collection(const char *collection);
/* The role of a tensor whose role is `known` once it is in a collection. A collection of
 * losses makes an output or a number a loss; other collections only fill a gap. */
SONDE_API sonde_role sonde__observe_role_joined(sonde_role known, const char *collection);
/* Changes the role of a declared tensor. */
void sonde__catalogue_set_role(sonde_catalogue *catalogue, uint32_t id, sonde_role role);

/*
 * Whether a loss is what training minimizes: its name says so (loss, total_loss,
 * train/loss, objective), or the catalogue has no other loss of training (val_loss,
 * eval_loss and test_loss do not count). Other losses are parts, or those of two
 * players, of which none is meant to fall alone.
 */
SONDE_API bool sonde__observe_is_objective(const sonde_catalogue *catalogue, uint32_t id);
/* Whether the first word of a loss's name says so: val_loss, not value_loss. */
bool sonde__observe_is_of_evaluation(const char *name);

#endif
