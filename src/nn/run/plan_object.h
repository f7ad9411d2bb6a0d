/*
 * plan_object.h - a plan that was loaded, and the section of its session. Internal.
 *
 *     SESS     u32 weights, u32 training, u32 mode, u64 steps, options, optimizer,
 *              u32 groups, u32 anchors
 */
#ifndef SONDE_NN_RUN_PLAN_OBJECT_H
#define SONDE_NN_RUN_PLAN_OBJECT_H

#include "nn/run/plan_container.h"
#include "nn/run/session_state.h"

#include <sonde/nn/plan.h>

struct sonde_nn_plan {
    char *name;
    unsigned char *bytes; /* of the file */
    sonde__session_plan_container container;
    sonde__plan_places *places;
    char *text;
    sonde_nn_plan_info info;
};

/* sonde_nn_plan_load from memory, which is copied; name stands in diagnostics. */
SONDE_API SONDE_CHECKED sonde_err sonde__session_plan_parse(const void *bytes,
                                                            size_t size, const char *name,
                                                            sonde_nn_plan **out,
                                                            sonde_diag *diag);

void sonde__session_plan_pack_options(sonde__packer *out,
                                      const sonde_nn_options *options);
void sonde__session_plan_pack_optimizer(sonde__packer *out,
                                        const sonde_nn_optimizer *optimizer);
void sonde__session_plan_unpack_optimizer(sonde__unpacker *in,
                                          sonde_nn_optimizer *optimizer);
/* The first field that differs; NULL: none. */
const char *sonde__session_plan_optimizer_difference(const sonde_nn_optimizer *a,
                                                     const sonde_nn_optimizer *b);
/* The beginning of the section, up to the groups; the rest is returned. */
sonde__unpacker sonde__session_plan_read_head(const sonde_nn_plan *plan,
                                              sonde_nn_plan_info *info, sonde_mode *mode);
/* SONDE_EFORMAT. */
sonde_err sonde__session_plan_damaged(const sonde_nn_plan *plan, const char *what,
                                      sonde_diag *diag);

/* What a key covers besides the plan. */
void sonde__session_plan_pack_context(sonde__packer *out,
                                      const sonde_nn_session *session);
/* SONDE_ESTATE: says in what the session differs from the one that was saved. */
sonde_err sonde__session_plan_other(const sonde_nn_plan *plan,
                                    const sonde_nn_session *session, sonde_diag *diag);

/* --- plan_cache.c --------------------------------------------------------------------- */

/*
 * Where compile looks for places: in a plan that was loaded, then in the
 * cache.
 *
 *     sonde__session_plan_search_begin(&search, session, diag)
 *     ... the pass plan calls search.lookup.find ...
 *     sonde__session_plan_search_end(&search, session, diag)      in any case
 *
 * The cache is a folder with a file <key>.plan for each plan, a container without a model.
 * A file appears whole, by a rename; one that is damaged or of another version is replaced,
 * with a warning. After a new file, those that were not used for longest go until all
 * together have at most 64 MiB. Nothing that goes wrong with the cache is an error.
 */

typedef struct sonde__session_plan_search {
    sonde__plan_lookup lookup; /* its find is NULL: there is nowhere to look */
    const sonde_nn_session *session;
    sonde__packer context;
    sonde__plan_places *read; /* of the cache */
    char *folder;             /* the cache; NULL: none */
} sonde__session_plan_search;

sonde_err sonde__session_plan_search_begin(sonde__session_plan_search *search,
                                           const sonde_nn_session *session,
                                           sonde_diag *diag);
/* Keeps what was not in the cache. */
void sonde__session_plan_search_end(sonde__session_plan_search *search);

#endif
