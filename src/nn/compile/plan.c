/*
 * plan.c - the plan of a compiled graph, and its key.
 *
 * Makes every call ready, once its buffers have places (arena.c), and binds what
 * is observed.
 *
 * The key of a plan: a hash of what its places depend on.
 *
 * That is the context that the session gives (version, processor, options), and of each
 * step its op, kernel, attrs, operands and scratch, of each buffer its name, shape and
 * layout. Pointers are not part of it, nor are seeds and learning rates.
 */
#include "nn/compile/compile.h"
#include "nn/ranks/ranks.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "nn/graph/graph.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* === plan =========================================================================== */

/* --- state -------------------------------------------------------------------------- */

/* Names a state after the value that the op updating it makes. */
static void describe_state(sonde__plan *plan, const sonde__op_graph *graph,
                           const sonde__plan_step *step, int operand)
{
    const sonde__graph_node_value *value = &graph->values[step->in_value[operand]];
    sonde__plan_state *state = &plan->states[value->index];

    state->shape = value->shape;
    state->accumulator = step->kind == &sonde__op_accumulate;
    for (int k = 0; k < step->call.out_count; k++) {
        if (step->kind->alias[k] == operand + 1) {
            state->name = graph->values[step->out_value[k]].name;
        }
    }
}

/* Whether a state lies in the plan's own memory: all do in the first replica's, else the
 * accumulators. */
static bool owns_state(const sonde__plan *plan, size_t i)
{
    return plan->slot == 0 && (plan->replica == 0 || plan->states[i].accumulator);
}

static size_t floats_of(const sonde__plan_state *state)
{
    return sonde__plan_aligned((size_t)sonde__op_shape_count(&state->shape) *
                               sizeof(float)) /
           sizeof(float);
}

static sonde_err make_states(const sonde__plan_program *program, const sonde__plan *first,
                             sonde__plan *plan, sonde_diag *diag)
{
    const sonde__op_graph *graph = &program->graph;
    size_t floats = 0;

    plan->state_count = (size_t)graph->state_count;
    plan->states = sonde__calloc(plan->state_count, sizeof *plan->states);
    if (plan->states == NULL) {
        return sonde__fail_nomem(diag, "the optimizer's state");
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        for (int k = 0; k < plan->steps[i].call.in_count; k++) {
            const sonde__op_value in = plan->steps[i].in_value[k];

            if (in != 0 && graph->values[in].source == SONDE__FROM_STATE) {
                describe_state(plan, graph, &plan->steps[i], k);
            }
        }
    }
    for (size_t i = 0; i < plan->state_count; i++) {
        floats += owns_state(plan, i) ? floats_of(&plan->states[i]) : 0;
    }
    plan->state_bytes = floats * sizeof(float);
    plan->state_block = sonde__plan_take_pages(plan->state_bytes, true);
    if (plan->state_block == NULL) {
        return sonde__fail_nomem(diag, "the optimizer's state");
    }
    floats = 0;
    for (size_t i = 0; i < plan->state_count; i++) {
        if (owns_state(plan, i)) {
            plan->states[i].data = plan->state_block + floats;
            floats += floats_of(&plan->states[i]);
        } else {
            plan->states[i].data = first->states[i].data;
        }
    }
    return SONDE_OK;
}

/* Memory for the buffers of a replica after the first. */
static bool make_buffers(sonde__plan *plan)
{
    size_t bytes = 0;

    for (size_t i = 0; i < plan->buffer_count; i++) {
        bytes += plan->buffers[i].place == SONDE__IN_BUFFER
                     ? sonde__plan_aligned(plan->buffers[i].bytes)
                     : 0;
    }
    plan->buffer_block = sonde__malloc_aligned(SONDE__ALIGN, bytes);
    unsigned char *data = plan->buffer_block;
    for (size_t i = 0; data != NULL && i < plan->buffer_count; i++) {
        if (plan->buffers[i].place == SONDE__IN_BUFFER) {
            plan->buffers[i].data = data;
            data += sonde__plan_aligned(plan->buffers[i].bytes);
        }
    }
    return plan->buffer_block != NULL;
}

void sonde__plan_take_buffers(const sonde__plan *plan, const sonde_nn_model *model)
{
    for (size_t i = 0; plan->buffer_block != NULL && i < plan->buffer_count; i++) {
        const sonde__plan_buffer *buffer = &plan->buffers[i];

        if (buffer->place == SONDE__IN_BUFFER) {
            memcpy(buffer->data, model->buffers[buffer->index].data, buffer->bytes);
        }
    }
}

/* first: where a slot finds what it shares with its replica's first one. */
static void point_leaves(const sonde__plan_program *program, const sonde__plan *first,
                         sonde__plan *plan)
{
    for (size_t i = 0; i < plan->buffer_count; i++) {
        sonde__plan_buffer *buffer = &plan->buffers[i];

        if (buffer->place == SONDE__IN_PARAM) {
            buffer->data = program->model->params[buffer->index].data;
        } else if (buffer->place == SONDE__IN_STATE) {
            buffer->data = plan->states[buffer->index].data;
        } else if (buffer->place == SONDE__IN_BUFFER && plan->replica == 0) {
            buffer->data = program->model->buffers[buffer->index].data;
        } else if (buffer->place == SONDE__IN_BUFFER && plan->slot > 0) {
            buffer->data = first->buffers[i].data;
        } else if (buffer->place == SONDE__IN_HYPER) {
            buffer->data = &plan->hyper[buffer->index];
        }
    }
}

/* What the session writes before a step. Replicas after the first read the first one's. */
static bool make_live(const sonde__plan_program *program, const sonde__plan *first,
                      sonde__plan *plan)
{
    if (first != NULL) {
        plan->live = first->live;
        plan->hyper = first->hyper;
        return true;
    }
    plan->live = sonde__calloc(2 * (program->group_count + 1), sizeof *plan->live);
    plan->hyper =
        sonde__calloc(SONDE__HYPER_RATES + program->group_count + 1, sizeof *plan->hyper);
    return plan->live != NULL && plan->hyper != NULL;
}

/* Where the op lies that moves the loss scale, and what it reads. */
static void find_scaler(sonde__plan *plan)
{
    for (size_t i = plan->step_count; i-- > plan->micro_steps;) {
        const sonde__plan_step *step = &plan->steps[i];

        if (step->kind == &sonde__op_loss_scale) {
            plan->scaler = (sonde__plan_scaler){.found = step->call.in[0].data,
                                                .scale = step->call.in[1].data,
                                                .skipped = step->call.in[3].data,
                                                .last = i};
        } else if (step->update) {
            plan->scaler.gate = i;
        }
    }
}

/* --- calls -------------------------------------------------------------------------- */

/* How many threads may share a step: in a micro-batch those of a replica, in the part of
 * the updates those of all replicas. */
static int most_threads(const sonde__plan *plan, const sonde__plan_device *device,
                        size_t step)
{
    const int each = SONDE_MAX(1, device->threads / device->replicas);

    return step < plan->micro_steps ? each
                                    : SONDE_MIN(device->replicas, device->threads) *
                                          (device->replicas > 1 ? plan->threads : each);
}

static void choose_parts(sonde__plan *plan, const sonde__plan_device *device)
{
    plan->threads = plan->most_parts = 1;
    for (size_t i = 0; i < plan->step_count; i++) {
        const int max_threads = most_threads(plan, device, i);
        sonde__plan_step *step = &plan->steps[i];

        step->call.attrs = &step->attrs; /* steps no longer move */
        step->parts = 1;
        if (max_threads > 1 && step->kernel->parts != NULL) {
            step->parts = step->kernel->parts(&step->call, max_threads);
            step->parts = SONDE_MAX(1, SONDE_MIN(step->parts, max_threads));
        }
        plan->most_parts = SONDE_MAX(plan->most_parts, step->parts);
        if (i < plan->micro_steps || device->replicas == 1) {
            plan->threads = SONDE_MAX(plan->threads, step->parts);
        }
        if (step->kernel->scratch != NULL) {
            step->scratch_bytes =
                SONDE_MAX(step->kernel->scratch(&step->call, 1),
                          step->kernel->scratch(&step->call, step->parts));
        }
    }
}

static sonde_err add_patch(sonde__plan *plan, size_t step, int operand, int input)
{
    if (!sonde__reserve(&plan->patches, &plan->patch_capacity, plan->patch_count + 1,
                        sizeof *plan->patches)) {
        return SONDE_ENOMEM;
    }
    plan->patches[plan->patch_count++] = (sonde__plan_patch){(int)step, operand, input};
    return SONDE_OK;
}

/* Remembers inputs that hold numbers of a range: targets of losses, token ids. */
static sonde_err add_target(sonde__plan *plan, const sonde__plan_step *step, int operand,
                            int input)
{
    sonde__plan_target target = {.input = input};

    if (step->kind->ids == NULL || !step->kind->ids(&step->call, operand, &target.ids)) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&plan->targets, &plan->target_capacity, plan->target_count + 1,
                        sizeof *plan->targets)) {
        return SONDE_ENOMEM;
    }
    plan->targets[plan->target_count++] = target;
    return SONDE_OK;
}

/* Memory for what is summed over ranks, and each op's place in it. */
static sonde_err join_ranks(const sonde__plan_program *program, sonde__plan *plan,
                            sonde_diag *diag)
{
    int64_t count = 0;

    for (size_t i = plan->micro_steps; i < plan->step_count; i++) {
        if (plan->steps[i].kind == &sonde__op_rank_sum) {
            plan->ranked = plan->summed == 0 ? i : plan->ranked;
            plan->summed = i + 1;
            count += sonde__op_shape_count(&plan->steps[i].call.in[0].shape);
        }
    }
    if (plan->summed == 0 || plan->replica > 0 || plan->slot > 0) {
        return SONDE_OK;
    }
    plan->rank_count = count;
    plan->rank_block = sonde__malloc_aligned(
        SONDE__ALIGN,
        (size_t)count * sizeof(float) + sonde__ranks_scratch(program->ranks, count));
    if (plan->rank_block == NULL) {
        return sonde__fail_nomem(diag, "the sums over ranks");
    }
    count = 0;
    for (size_t i = plan->ranked; i < plan->summed; i++) {
        plan->steps[i].call.summed = plan->rank_block + count;
        count += sonde__op_shape_count(&plan->steps[i].call.in[0].shape);
    }
    return SONDE_OK;
}

/* Which of the plan's numbers a step reads: those of its parameter's group. */
static int numbers_of(const sonde__plan_step *step)
{
    const struct sonde__attrs_update *update = &step->attrs.update;

    return step->kind->fields == &sonde__op_fields_update
               ? 2 * update->group + (update->bare ? 1 : 0)
               : 0;
}

static sonde_err make_calls(sonde__plan *plan, sonde_diag *diag)
{
    for (size_t i = 0; i < plan->step_count; i++) {
        sonde__plan_step *step = &plan->steps[i];

        step->call.live = plan->live[numbers_of(step)];
        step->call.draw = &plan->draw;
        for (int k = 0; k < step->call.in_count; k++) {
            const sonde__plan_buffer *buffer =
                step->in_buffer[k] >= 0 ? &plan->buffers[step->in_buffer[k]] : NULL;

            step->call.in[k].data = buffer != NULL ? buffer->data : NULL;
            if (buffer != NULL && buffer->place == SONDE__IN_INPUT &&
                (add_patch(plan, i, k, buffer->index) != SONDE_OK ||
                 add_target(plan, step, k, buffer->index) != SONDE_OK)) {
                return sonde__fail_nomem(diag, "the plan");
            }
        }
        for (int k = 0; k < step->call.out_count; k++) {
            const sonde__plan_buffer *buffer =
                step->out_buffer[k] >= 0 ? &plan->buffers[step->out_buffer[k]] : NULL;

            step->call.out[k].data = buffer != NULL ? buffer->data : NULL;
        }
    }
    return SONDE_OK;
}

sonde_err sonde__pass_plan(const sonde__plan_program *program, const uint32_t *id_of,
                           const sonde_observer *observer,
                           const sonde__plan_device *device, sonde__plan *plan,
                           sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    plan->replica = device->replica;
    plan->slot = device->slot;
    SONDE__TRY(join_ranks(program, plan, diag));
    choose_parts(plan, device);
    if (device->lookup != NULL && device->first == NULL &&
        !sonde__plan_set_key(program, device->lookup, plan)) {
        return sonde__fail_nomem(diag, "the key of a plan");
    }
    SONDE__TRY(sonde__plan_make_arena(device, plan, diag));
    SONDE__TRY(make_states(program, device->first, plan, diag));
    if (plan->replica > 0 && plan->slot == 0 && !make_buffers(plan)) {
        return sonde__fail_nomem(diag, "the buffers of a replica");
    }
    if (!make_live(program, device->first, plan)) {
        return sonde__fail_nomem(diag, "the optimizer's numbers");
    }
    point_leaves(program, device->first, plan);
    err = make_calls(plan, diag);
    find_scaler(plan);
    if (err != SONDE_OK || observer == NULL) {
        return err;
    }
    return sonde__plan_bind_taps(program, id_of, observer, plan, diag);
}

sonde_err sonde__plan_join_replicas(sonde__plan *const *plans, int count,
                                    sonde_diag *diag)
{
    sonde__plan *first = plans[0];
    const size_t replicas = (size_t)count;
    size_t sums = 0;

    for (size_t i = first->micro_steps; i < first->step_count; i++) {
        sums += first->steps[i].kind == &sonde__op_replica_sum;
    }
    first->replica_block = sonde__calloc(sums * replicas, sizeof *first->replica_block);
    if (first->replica_block == NULL) {
        return sonde__fail_nomem(diag, "the replicas");
    }
    sums = 0;
    for (size_t i = first->micro_steps; i < first->step_count; i++) {
        sonde__plan_step *step = &first->steps[i];

        if (step->kind != &sonde__op_replica_sum) {
            continue;
        }
        step->call.replicas = first->replica_block + replicas * sums;
        for (size_t r = 0; r < replicas; r++) {
            first->replica_block[replicas * sums + r] =
                plans[r]->buffers[step->in_buffer[0]].data;
        }
        sums++;
    }
    return SONDE_OK;
}

void sonde__plan_fini(sonde__plan *plan)
{
    sonde__free(plan->steps);
    sonde__free(plan->buffers);
    sonde__free(plan->views);
    sonde__free(plan->showings);
    sonde__free(plan->outputs);
    sonde__free(plan->watched);
    sonde__free(plan->patches);
    sonde__free(plan->targets);
    sonde__free(plan->states);
    sonde__free(plan->vitals);
    sonde__free(plan->bad);
    sonde__free(plan->arena);
    sonde__free(plan->state_block);
    sonde__free(plan->show_scratch);
    sonde__free(plan->buffer_block);
    sonde__free(plan->segments);
    sonde__free(plan->replica_block);
    sonde__free(plan->rank_block);
    if (plan->replica == 0 && plan->slot == 0) { /* the others borrow them */
        sonde__free(plan->live);
        sonde__free(plan->hyper);
    }
    *plan = (sonde__plan){0};
}

/* === plan key ======================================================================= */

static void pack_shape(sonde__packer *out, const sonde__op_shape *shape)
{
    sonde__pack_u32(out, (uint32_t)shape->dtype);
    sonde__pack_u32(out, (uint32_t)shape->rank);
    for (int d = 0; d < shape->rank; d++) {
        sonde__pack_u64(out, (uint64_t)shape->dim[d]);
    }
}

static void pack_operands(sonde__packer *out, const sonde__operand *operands,
                          const int *buffers, int count)
{
    sonde__pack_u32(out, (uint32_t)count);
    for (int k = 0; k < count; k++) {
        pack_shape(out, &operands[k].shape);
        sonde__pack_u32(out, (uint32_t)operands[k].layout);
        sonde__pack_u32(out, (uint32_t)buffers[k]);
    }
}

static void pack_step(sonde__packer *out, const sonde__plan_step *step)
{
    sonde__pack_text(out, step->kind->name);
    sonde__pack_text(out, step->kernel->name);
    sonde__pack_text(out, step->module);
    sonde__graph_pack_attrs(out, step->kind, &step->attrs);
    pack_operands(out, step->call.in, step->in_buffer, step->call.in_count);
    pack_operands(out, step->call.out, step->out_buffer, step->call.out_count);
    sonde__pack_u32(out, (uint32_t)step->parts);
    sonde__pack_u64(out, step->scratch_bytes);
    sonde__pack_u32(out, step->watched);
    sonde__pack_u32(out, step->update ? 1 : 0);
}

static void pack_buffer(sonde__packer *out, const sonde__op_graph *graph,
                        const sonde__plan_buffer *buffer)
{
    const sonde__graph_node_value *value = &graph->values[buffer->value];

    sonde__pack_text(out, value->name);
    sonde__pack_u32(out, (uint32_t)value->role);
    pack_shape(out, &buffer->shape);
    sonde__pack_u32(out, (uint32_t)buffer->layout);
    sonde__pack_u32(out, (uint32_t)buffer->place);
    sonde__pack_u32(out, (uint32_t)buffer->index);
}

bool sonde__plan_set_key(const sonde__plan_program *program,
                         const sonde__plan_lookup *lookup, sonde__plan *plan)
{
    sonde__packer out = {0};
    XXH128_hash_t hash = {0, 0};

    sonde__pack(&out, lookup->context, lookup->context_size);
    sonde__pack_u64(&out, plan->step_count);
    sonde__pack_u64(&out, plan->micro_steps);
    for (size_t i = 0; i < plan->step_count; i++) {
        pack_step(&out, &plan->steps[i]);
    }
    for (size_t i = 0; i < plan->buffer_count; i++) {
        pack_buffer(&out, &program->graph, &plan->buffers[i]);
    }
    for (size_t i = 0; i < plan->output_count; i++) {
        sonde__pack_u32(&out, (uint32_t)plan->outputs[i].buffer);
    }
    if (!out.failed) {
        hash = XXH3_128bits(out.bytes, out.size);
        plan->key.low = hash.low64;
        plan->key.high = hash.high64;
    }
    sonde__free(out.bytes);
    return !out.failed;
}
