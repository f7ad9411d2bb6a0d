/*
 * plan_key.c - the key of a plan: a hash of what its places depend on.
 *
 * That is the context that the session gives (version, processor, options), and of each
 * step its op, kernel, attrs, operands and scratch, of each buffer its name, shape and
 * layout. Pointers are not part of it, nor are seeds and learning rates.
 */
#include "nn/compile/compile.h"
#include "nn/graph/graph_packed.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

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
