/*
 * plan_file.c - a session saved in a file, and made anew from one.
 */
#include "base/fail.h"
#include "base/options.h"
#include "base/memory.h"
#include "base/whole_file.h"
#include "nn/graph/graph.h"
#include "nn/run/plan_object.h"

#include <string.h>

enum { NAME = SONDE__PACKED_TEXT };

/* --- saving ------------------------------------------------------------------------- */

static void pack_session(sonde__packer *out, const sonde_nn_session *session,
                         bool weights)
{
    sonde__pack_u32(out, weights ? 1 : 0);
    sonde__pack_u32(out, session->training ? 1 : 0);
    sonde__pack_u32(out, (uint32_t)session->mode);
    sonde__pack_u64(out, session->plan.step_count);
    sonde__session_plan_pack_options(out, &session->options);
    sonde__session_plan_pack_optimizer(out, &session->optimizer);
    sonde__pack_u32(out, (uint32_t)session->group_count);
    for (size_t i = 0; i < session->group_count; i++) {
        sonde__pack_text(out, session->groups[i].name);
        sonde__pack_text(out, session->groups[i].params);
        sonde__session_plan_pack_optimizer(out, &session->groups[i].optimizer);
    }
    sonde__pack_u32(out, (uint32_t)session->anchor_count);
    for (size_t i = 0; i < session->anchor_count; i++) {
        const sonde__session_anchor_request *anchor = &session->anchor_requests[i];

        sonde__pack_text(out, anchor->user_name);
        sonde__pack_text(out, anchor->tensor_name);
        sonde__pack_u32(out, (uint32_t)anchor->mode);
        sonde__pack_u32(out, (uint32_t)anchor->period);
    }
}

/* The key of a session that was compiled without looking for a plan. */
static bool set_key(sonde_nn_session *session)
{
    sonde__packer context = {0};
    bool well = false;

    sonde__session_plan_pack_context(&context, session);
    if (!context.failed) {
        const sonde__plan_lookup lookup = {.context = context.bytes,
                                           .context_size = context.size};

        well = sonde__plan_set_key(&session->program, &lookup, &session->plan);
    }
    sonde__free(context.bytes);
    return well;
}

static void pack_plan(sonde__packer *out, const sonde_nn_session *session,
                      const sonde_nn_plan_options *options)
{
    sonde__session_plan_container_begin(out);
    size_t begun = sonde__session_plan_section_begin(out, SONDE__PLAN_SESSION);
    pack_session(out, session, options->weights);
    sonde__session_plan_section_end(out, begun);
    begun = sonde__session_plan_section_begin(out, SONDE__PLAN_PLACES);
    sonde__session_plan_places_pack(out, &session->plan);
    sonde__session_plan_section_end(out, begun);
    if (options->text != NULL && options->text[0] != '\0') {
        begun = sonde__session_plan_section_begin(out, SONDE__PLAN_TEXT);
        sonde__pack(out, options->text, strlen(options->text));
        sonde__session_plan_section_end(out, begun);
    }
    begun = sonde__session_plan_section_begin(out, SONDE__PLAN_MODEL);
    sonde__graph_pack(out, session->model, options->weights);
    sonde__session_plan_section_end(out, begun);
    sonde__session_plan_container_end(out);
}

sonde_err sonde_nn_plan_save(sonde_nn_session *session, const char *path,
                             const sonde_nn_plan_options *options, sonde_diag *diag)
{
    SONDE__NEEDS(diag, session, path);
    sonde_nn_plan_options taken = {0};
    sonde__packer out = {0};
    sonde_err err = SONDE_OK;

    SONDE__TAKE(sonde_nn_plan_options, &taken, options, diag);
    SONDE__TRY(sonde__session_ready(session, diag));
    if (!set_key(session)) {
        return sonde__fail_nomem(diag, "a plan");
    }
    pack_plan(&out, session, &taken);
    err = out.failed ? sonde__fail_nomem(diag, "a plan")
          : out.unreadable != NULL
              ? sonde__fail(diag, SONDE_EINVAL, "plan",
                            "at most 511 bytes, no control characters",
                            "a name or title cannot be loaded again: '%.60s'",
                            out.unreadable)
              : sonde__whole_put(path, out.bytes, out.size, diag);
    sonde__free(out.bytes);
    return err;
}

/* --- making anew -------------------------------------------------------------------- */

sonde_err sonde_nn_plan_model(const sonde_nn_plan *plan, uint64_t seed,
                              sonde_nn_model **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, plan, out);
    sonde__unpacker in = plan->container.section[SONDE__PLAN_MODEL];

    return sonde__graph_unpack(&in, plan->name, seed, out, diag);
}

static sonde_err add_groups(const sonde_nn_plan *plan, sonde__unpacker *in,
                            sonde_nn_session *session, sonde_diag *diag)
{
    const uint32_t count = sonde__unpack_below(in, SONDE_NN_GROUPS_MOST + 1);
    sonde_err err = SONDE_OK;

    for (uint32_t i = 0; i < count && err == SONDE_OK; i++) {
        char name[NAME], params[NAME];
        sonde_nn_group group = {.name = name, .params = params};

        (void)sonde__unpack_text(in, name, sizeof name);
        (void)sonde__unpack_text(in, params, sizeof params);
        sonde__session_plan_unpack_optimizer(in, &group.optimizer);
        err = in->bad ? sonde__session_plan_damaged(plan, "its groups are cut off", diag)
                      : sonde_nn_session_add_group(session, &group, diag);
    }
    return err;
}

static sonde_err add_anchors(const sonde_nn_plan *plan, sonde__unpacker *in,
                             sonde_nn_session *session, sonde_diag *diag)
{
    const uint32_t count = sonde__unpack_u32(in);
    sonde_err err = SONDE_OK;

    for (uint32_t i = 0; i < count && err == SONDE_OK; i++) {
        char user[NAME], tensor[NAME];
        sonde_anchor_mode mode = SONDE_ANCHOR_DEFAULT;
        int period = 0;

        (void)sonde__unpack_text(in, user, sizeof user);
        (void)sonde__unpack_text(in, tensor, sizeof tensor);
        mode = (sonde_anchor_mode)sonde__unpack_below(in, SONDE_ANCHOR_MEAN + 1);
        period = (int)sonde__unpack_below(in, INT32_MAX);
        err = in->bad
                  ? sonde__session_plan_damaged(plan, "its anchors are cut off", diag)
                  : sonde_nn_session_anchor(session, user, tensor, mode, period, diag);
    }
    if (err == SONDE_OK && (in->bad || in->place != in->size)) {
        return sonde__session_plan_damaged(plan, "its anchors are cut off", diag);
    }
    return err;
}

sonde_err sonde_nn_plan_session(const sonde_nn_plan *plan, sonde_nn_model *model,
                                sonde_nn_session **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, plan, model, out);
    sonde_nn_plan_info info = {0};
    sonde_mode mode = SONDE_MODE_TRAIN;
    sonde__unpacker in = sonde__session_plan_read_head(plan, &info, &mode);
    sonde_nn_session *session = NULL;
    sonde_err err = SONDE_OK;

    info.options.plan = plan;
    SONDE__TRY(sonde_nn_session_create(
        model, &info.options, info.training ? &info.optimizer : NULL, &session, diag));
    session->mode = mode;
    err = add_groups(plan, &in, session, diag);
    if (err == SONDE_OK) {
        err = add_anchors(plan, &in, session, diag);
    }
    if (err != SONDE_OK) {
        sonde_nn_session_destroy(session);
        return err;
    }
    *out = session;
    return SONDE_OK;
}
