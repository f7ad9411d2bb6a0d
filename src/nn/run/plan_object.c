/*
 * plan_object.c - plans that are read: checked, described, compared with a session.
 */
#include "nn/run/plan_object.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <assert.h>
#include <string.h>

#define OPTION(member, kind) SONDE__PACKED(sonde_nn_options, member, kind, 1)
#define NUMBER(member) SONDE__PACKED(sonde_nn_optimizer, member, SONDE__PACKED_WORD, 1)
#define FLAG(member) SONDE__PACKED(sonde_nn_optimizer, member, SONDE__PACKED_BOOL, 1)

static const sonde__packed_field option_fields[] = {
    OPTION(batch_size, SONDE__PACKED_LONG),
    OPTION(device_iterations, SONDE__PACKED_WORD),
    OPTION(gradient_accumulation, SONDE__PACKED_WORD),
    OPTION(replicas, SONDE__PACKED_WORD),
    OPTION(reduction, SONDE__PACKED_WORD),
    OPTION(output_mode, SONDE__PACKED_WORD),
    OPTION(output_period, SONDE__PACKED_WORD),
    OPTION(threads, SONDE__PACKED_WORD),
    OPTION(execution, SONDE__PACKED_WORD),
    OPTION(fixed_batch, SONDE__PACKED_BOOL),
    OPTION(floating_point_exceptions, SONDE__PACKED_BOOL),
    OPTION(dtype, SONDE__PACKED_WORD),
    OPTION(random_seed, SONDE__PACKED_LONG), /* last: places do not depend on it */
};
static const sonde__packed_field optimizer_fields[] = {
    NUMBER(kind),
    NUMBER(learning_rate),
    NUMBER(weight_decay),
    NUMBER(momentum),
    NUMBER(dampening),
    FLAG(nesterov),
    NUMBER(beta1),
    NUMBER(beta2),
    NUMBER(eps),
    NUMBER(alpha),
    FLAG(centered),
    FLAG(tf_variant),
    NUMBER(lr_decay),
    NUMBER(initial_accumulator_value),
    NUMBER(max_weight_norm),
    FLAG(no_bias_correction),
    NUMBER(clip_value),
    NUMBER(clip_norm),
    FLAG(no_bias_decay),
    NUMBER(velocity_scaling),
    NUMBER(loss_scaling),
    FLAG(automatic_loss_scaling),
    NUMBER(growth_factor),
    NUMBER(backoff_factor),
    NUMBER(growth_interval),
};
/* A new member needs a line above, or a reason why a file need not hold it. */
static_assert(sizeof(sonde_nn_optimizer) == 96, "optimizer_fields lacks a member");
static_assert(sizeof(sonde_nn_options) == 112, "option_fields lacks a member");

/* --- sections ----------------------------------------------------------------------- */

void sonde__session_plan_pack_options(sonde__packer *out, const sonde_nn_options *options)
{
    sonde__pack_struct(out, options, option_fields, SONDE_COUNT_OF(option_fields));
}

void sonde__session_plan_pack_optimizer(sonde__packer *out,
                                        const sonde_nn_optimizer *optimizer)
{
    sonde__pack_struct(out, optimizer, optimizer_fields,
                       SONDE_COUNT_OF(optimizer_fields));
}

const char *sonde__session_plan_optimizer_difference(const sonde_nn_optimizer *a,
                                                     const sonde_nn_optimizer *b)
{
    return sonde__packed_difference(a, b, optimizer_fields,
                                    SONDE_COUNT_OF(optimizer_fields));
}

void sonde__session_plan_pack_context(sonde__packer *out, const sonde_nn_session *session)
{
    sonde__session_plan_container_begin(out); /* version, instruction set */
    sonde__pack_u32(out, session->training ? 1 : 0);
    sonde__pack_struct(out, &session->options, option_fields,
                       SONDE_COUNT_OF(option_fields) - 1);
}

/* --- reading ------------------------------------------------------------------------ */

void sonde_nn_plan_destroy(sonde_nn_plan *plan)
{
    if (plan != NULL) {
        sonde__session_plan_places_destroy(plan->places);
        sonde__free(plan->text);
        sonde__free(plan->bytes);
        sonde__free(plan->name);
        sonde__free(plan);
    }
}

sonde_err sonde__session_plan_damaged(const sonde_nn_plan *plan, const char *what,
                                      sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EFORMAT, plan->name, NULL, "the plan is damaged: %s",
                       what);
}

void sonde__session_plan_unpack_optimizer(sonde__unpacker *in,
                                          sonde_nn_optimizer *optimizer)
{
    sonde__unpack_struct(in, optimizer, optimizer_fields,
                         SONDE_COUNT_OF(optimizer_fields));
}

sonde__unpacker sonde__session_plan_read_head(const sonde_nn_plan *plan,
                                              sonde_nn_plan_info *info, sonde_mode *mode)
{
    sonde__unpacker in = plan->container.section[SONDE__PLAN_SESSION];

    sonde_nn_options_init(&info->options);
    info->weights = sonde__unpack_below(&in, 2) == 1;
    info->training = sonde__unpack_below(&in, 2) == 1;
    *mode = (sonde_mode)sonde__unpack_below(&in, SONDE_MODE_GLOBAL);
    info->op_count = sonde__unpack_u64(&in);
    sonde__unpack_struct(&in, &info->options, option_fields,
                         SONDE_COUNT_OF(option_fields));
    sonde__session_plan_unpack_optimizer(&in, &info->optimizer);
    return in;
}

static sonde_err read_sections(sonde_nn_plan *plan, sonde_diag *diag)
{
    const sonde__unpacker *sections = plan->container.section;
    const sonde__unpacker *text = &sections[SONDE__PLAN_TEXT];
    sonde_mode mode = SONDE_MODE_TRAIN;

    if (sections[SONDE__PLAN_SESSION].bytes == NULL ||
        sections[SONDE__PLAN_PLACES].bytes == NULL ||
        sections[SONDE__PLAN_MODEL].bytes == NULL) {
        return sonde__session_plan_damaged(
            plan, "it lacks its model, its session or its places", diag);
    }
    if (sonde__session_plan_read_head(plan, &plan->info, &mode).bad) {
        return sonde__session_plan_damaged(plan, "its options are cut off", diag);
    }
    if (text->bytes != NULL && memchr(text->bytes, '\0', text->size) != NULL) {
        return sonde__session_plan_damaged(plan, "its text has a NUL", diag);
    }
    plan->text =
        sonde__strndup(text->bytes != NULL ? (const char *)text->bytes : "", text->size);
    if (plan->text == NULL) {
        return sonde__fail_nomem(diag, "a plan");
    }
    plan->info.text = plan->text;
    return sonde__session_plan_places_unpack(sections[SONDE__PLAN_PLACES], plan->name,
                                             &plan->places, diag);
}

/* Takes bytes. */
static sonde_err make(unsigned char *bytes, size_t size, const char *name,
                      sonde_nn_plan **out, sonde_diag *diag)
{
    sonde_nn_plan *plan = sonde__calloc(1, sizeof *plan);
    sonde_err err = SONDE_OK;

    if (plan == NULL) {
        sonde__free(bytes);
        return sonde__fail_nomem(diag, "a plan");
    }
    plan->bytes = bytes;
    plan->name = sonde__strdup(name);
    if (plan->name == NULL) {
        err = sonde__fail_nomem(diag, "a plan");
        goto error;
    }
    SONDE__TRY_GO(
        sonde__session_plan_container_read(bytes, size, name, &plan->container, diag));
    SONDE__TRY_GO(read_sections(plan, diag));
    plan->info.arena_bytes = plan->places->arena_bytes;
    *out = plan;
    return SONDE_OK;

error:
    sonde_nn_plan_destroy(plan);
    return err;
}

sonde_err sonde_nn_plan_load(const char *path, sonde_nn_plan **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    unsigned char *bytes = NULL;
    size_t size = 0;
    const sonde_err err = sonde__session_plan_file_read(path, &bytes, &size, diag);

    return err == SONDE_OK ? make(bytes, size, path, out, diag) : err;
}

sonde_err sonde__session_plan_parse(const void *bytes, size_t size, const char *name,
                                    sonde_nn_plan **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, bytes, name, out);
    unsigned char *copy = sonde__malloc(size);

    if (copy == NULL) {
        return sonde__fail_nomem(diag, "a plan");
    }
    memcpy(copy, bytes, size);
    return make(copy, size, name, out, diag);
}

sonde_err sonde_nn_plan_describe(const sonde_nn_plan *plan, sonde_nn_plan_info *info,
                                 sonde_diag *diag)
{
    SONDE__NEEDS(diag, plan, info);
    *info = plan->info;
    return SONDE_OK;
}

/* --- while compiling ---------------------------------------------------------------- */

sonde_err sonde__session_plan_other(const sonde_nn_plan *plan,
                                    const sonde_nn_session *session, sonde_diag *diag)
{
    const sonde_nn_options *saved = &plan->info.options;
    const char *differs =
        plan->info.training != session->training
            ? "a session for the other purpose, training or inference"
            : sonde__packed_difference(saved, &session->options, option_fields,
                                       SONDE_COUNT_OF(option_fields) - 1);

    return sonde__fail(diag, SONDE_ESTATE, plan->name, "the session that was saved",
                       "a plan of other options or of another graph: %s differs",
                       differs != NULL ? differs : "its graph, or what taps need");
}
