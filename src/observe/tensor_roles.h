/*
 * tensor_roles.h - what a tensor is to its network, where its producer does not say it. The
 * one table of names, for hooks, watches, readers of other programs' runs and rules. Internal.
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
/* Of smdebug's collections and ours: "losses", "optimizer_variables" ... Others have none:
 * SONDE_ROLE_OTHER. */
SONDE_API sonde_role sonde__observe_role_of_collection(const char *collection);
/* The role of a tensor whose role is `known` once it is in a collection. A collection of
 * losses makes an output or a number a loss; other collections only fill a gap. */
SONDE_API sonde_role sonde__observe_role_joined(sonde_role known, const char *collection);
/* Changes the role of a declared tensor. */
void sonde__catalogue_set_role(sonde_catalogue *catalogue, uint32_t id, sonde_role role);

/*
 * Whether a tensor is a loss that training minimises, among all losses of the catalogue:
 *
 *     total_loss, objective   if there is one of such a name, only those
 *     loss                    else this one, if its name says no more than that, or what it
 *                             computes (CrossEntropyLoss_output_0)
 *     kl_loss, loss_recon     a part: only if it is the only loss
 *     d_loss, critic_loss     of two players: only if it is the only loss
 */
SONDE_API bool sonde__observe_is_objective(const sonde_catalogue *catalogue, uint32_t id);

#endif
