/*
 * plan_search.h - where compile looks for places: in a plan that was loaded, then in the
 * cache. Internal.
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
#ifndef SONDE_NN_RUN_PLAN_SEARCH_H
#define SONDE_NN_RUN_PLAN_SEARCH_H

#include "nn/run/plan_object.h"

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
