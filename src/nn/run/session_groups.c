/*
 * session_groups.c - groups of parameters, and the numbers that updates read at a step.
 *
 * Before each step the numbers of every group are written to the plan: twice, the second
 * time without weight decay, which parameters of one dimension read with no_bias_decay;
 * and once more where named hyper-parameters show them.
 */
#include "nn/run/session_state.h"
#include "base/fail.h"
#include "base/memory.h"

#include <ctype.h>
#include <string.h>

/* --- groups ------------------------------------------------------------------------- */

static sonde_nn_group *find_group(const sonde_nn_session *session, const char *name)
{
    for (size_t i = 0; name != NULL && i < session->group_count; i++) {
        if (strcmp(session->groups[i].name, name) == 0) {
            return &session->groups[i];
        }
    }
    return NULL;
}

static sonde_err check_name(const sonde_nn_session *session, const char *name,
                            sonde_diag *diag)
{
    bool well = name[0] != '\0';

    for (const char *p = name; well && *p != '\0'; p++) {
        well = isalnum((unsigned char)*p) || *p == '_' || *p == '-';
    }
    if (!well || strstr(name, "___") != NULL) {
        return sonde__fail(diag, SONDE_EINVAL, "group", "letters, digits, _ and -",
                           "a group is named '%s'", name);
    }
    if (find_group(session, name) != NULL || strcmp(name, "default") == 0) {
        return sonde__fail(diag, SONDE_EEXIST, "group", "an unused name",
                           "another group is named '%s'", name);
    }
    return SONDE_OK;
}

/* A group differs from the default in no number that is shared by all updates. */
static sonde_err check_numbers(const sonde_nn_session *session, const char *name,
                               const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    const sonde_nn_optimizer *all = &session->optimizer;
    const char *field =
        optimizer->kind != all->kind                   ? "kind"
        : optimizer->clip_value != all->clip_value     ? "clip_value"
        : optimizer->clip_norm != all->clip_norm       ? "clip_norm"
        : optimizer->loss_scaling != all->loss_scaling ? "loss_scaling"
        : optimizer->automatic_loss_scaling != all->automatic_loss_scaling
            ? "automatic_loss_scaling"
        : optimizer->growth_factor != all->growth_factor     ? "growth_factor"
        : optimizer->backoff_factor != all->backoff_factor   ? "backoff_factor"
        : optimizer->growth_interval != all->growth_interval ? "growth_interval"
                                                             : NULL;
    SONDE__TRY(sonde_nn_optimizer_check(optimizer, diag));
    return field == NULL ? SONDE_OK
                         : sonde__fail(diag, SONDE_EINVAL, field,
                                       "the value of the session's optimizer",
                                       "group '%s' has its own", name);
}

sonde_err sonde_nn_session_add_group(sonde_nn_session *session,
                                     const sonde_nn_group *group, sonde_diag *diag)
{
    SONDE__NEEDS(diag, session, group);
    sonde_nn_group taken = *group;

    SONDE__NEEDS(diag, taken.name, taken.params);
    if (session->compiled || !session->training) {
        return sonde__fail(diag, SONDE_ESTATE, "group",
                           session->training ? "it before compile" : "a training session",
                           session->training ? "the session is compiled"
                                             : "this session infers");
    }
    SONDE__TRY(check_name(session, taken.name, diag));
    SONDE__TRY(check_numbers(session, taken.name, &taken.optimizer, diag));
    if (session->group_count == SONDE_NN_GROUPS_MOST) {
        return sonde__fail(diag, SONDE_ERANGE, "group", "fewer groups", "more than %d",
                           SONDE_NN_GROUPS_MOST);
    }
    taken.rate = NULL;
    taken.name = sonde__strdup(group->name);
    taken.params = sonde__strdup(group->params);
    if (taken.name == NULL || taken.params == NULL ||
        !sonde__reserve(&session->groups, &session->group_capacity,
                        session->group_count + 1, sizeof taken)) {
        sonde__free((void *)(uintptr_t)taken.name);
        sonde__free((void *)(uintptr_t)taken.params);
        return sonde__fail_nomem(diag, "a group");
    }
    session->groups[session->group_count++] = taken;
    return SONDE_OK;
}

void sonde__session_free_groups(sonde_nn_session *session)
{
    for (size_t i = 0; i < session->group_count; i++) {
        sonde__free((void *)(uintptr_t)session->groups[i].name);
        sonde__free((void *)(uintptr_t)session->groups[i].params);
    }
    sonde__free(session->groups);
}

sonde_err sonde__session_set_group(sonde_nn_session *session, const char *name,
                                   const sonde_nn_optimizer *optimizer, sonde_diag *diag)
{
    sonde_nn_group *group = find_group(session, name);

    if (group == NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, "group", "the name of a group",
                           "no group is named '%s'", name);
    }
    SONDE__TRY(check_numbers(session, name, optimizer, diag));
    SONDE__TRY(
        sonde__session_optimizer_may_become(session, &group->optimizer, optimizer, diag));
    group->optimizer = *optimizer;
    return SONDE_OK;
}

/* A group has the numbers that all updates share from here too. */
sonde_err sonde__session_set_default(sonde_nn_session *session,
                                     const sonde_nn_optimizer *optimizer,
                                     sonde_diag *diag)
{
    SONDE__TRY(sonde__session_optimizer_may_become(session, &session->optimizer,
                                                   optimizer, diag));
    if (session->group_count > 0 && optimizer->kind != session->optimizer.kind) {
        return sonde__fail(diag, SONDE_ESTATE, "kind", "the kind of the groups",
                           "group '%s' is of another", session->groups[0].name);
    }
    session->optimizer = *optimizer;
    for (size_t i = 0; i < session->group_count; i++) {
        sonde_nn_optimizer *own = &session->groups[i].optimizer;

        own->clip_value = optimizer->clip_value;
        own->clip_norm = optimizer->clip_norm;
        own->loss_scaling = optimizer->loss_scaling;
        own->automatic_loss_scaling = optimizer->automatic_loss_scaling;
        own->growth_factor = optimizer->growth_factor;
        own->backoff_factor = optimizer->backoff_factor;
        own->growth_interval = optimizer->growth_interval;
    }
    return SONDE_OK;
}

/* --- numbers of a step -------------------------------------------------------------- */

/* The factor of the loss's gradient. */
static float loss_scale_of(const sonde_nn_session *session)
{
    const sonde__plan_scaler *scaler = &session->plan.scaler;

    return scaler->scale != NULL                     ? *scaler->scale
           : session->optimizer.loss_scaling != 0.0F ? session->optimizer.loss_scaling
                                                     : 1.0F;
}

void sonde__session_begin_scaling(const sonde_nn_session *session)
{
    if (session->plan.scaler.scale != NULL) {
        *session->plan.scaler.scale = session->optimizer.loss_scaling != 0.0F
                                          ? session->optimizer.loss_scaling
                                          : 65536.0F;
    }
}

static void show_numbers(const sonde_nn_session *session, float loss_scale)
{
    int64_t *hyper = session->plan.hyper;

    hyper[SONDE__HYPER_STEP] = session->step;
    memcpy(&hyper[SONDE__HYPER_CLIP_NORM], &session->optimizer.clip_norm, sizeof(float));
    memcpy(&hyper[SONDE__HYPER_LOSS_SCALE], &loss_scale, sizeof loss_scale);
    for (int i = 0; i <= (int)session->group_count; i++) {
        memcpy(&hyper[SONDE__HYPER_RATES + i],
               &sonde__plan_optimizer(&session->program, i)->learning_rate,
               sizeof(float));
    }
}

void sonde__session_set_live(const sonde_nn_session *session)
{
    const int summed = session->options.gradient_accumulation *
                       session->options.replicas * sonde_nn_ranks_count(session->ranks);
    const float loss_scale = loss_scale_of(session);
    const float scale =
        (session->options.reduction == SONDE_NN_REDUCTION_MEAN ? 1.0F / (float)summed
                                                               : 1.0F) /
        loss_scale;
    const float *skipped = session->plan.scaler.skipped;
    const bool first = session->step == (skipped != NULL ? (int64_t)*skipped : 0);

    for (int i = 0; i <= (int)session->group_count; i++) {
        sonde_nn_optimizer numbers = *sonde__plan_optimizer(&session->program, i);
        float(*live)[SONDE__LIVE_COUNT] = &session->plan.live[2 * i];

        sonde__session_optimizer_live(&numbers, scale, first, live[0]);
        live[0][SONDE__LIVE_LOSS_SCALE] = loss_scale;
        if (numbers.no_bias_decay) {
            numbers.weight_decay = 0.0F;
            sonde__session_optimizer_live(&numbers, scale, first, live[1]);
        }
    }
    show_numbers(session, loss_scale);
}
