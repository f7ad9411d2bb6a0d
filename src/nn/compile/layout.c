/*
 * layout.c - a kernel for every op, a buffer for every value and layout that is used, and
 * reorders between kernels that want different layouts.
 *
 * Views cost nothing: a reshape or an identity is its input's buffer under another
 * shape, in PLAIN always and in LANES as long as the leading dimension stays.
 */
#include "nn/compile/compile.h"
#include "base/fail.h"
#include "base/memory.h"

enum { LAYOUTS = 3 };

typedef struct layout_work {
    const sonde__plan_program *program;
    const uint32_t *id_of;
    const sonde_observer *observer;
    sonde__plan *plan;
    int *buffer_of; /* [value][layout]; -1: there is none */
    sonde_diag *diag;
} layout_work;

static int *slot(const layout_work *work, sonde__op_value value, sonde__op_layout layout)
{
    return &work->buffer_of[value * LAYOUTS + (unsigned)layout];
}

static int add_buffer(layout_work *work, sonde__op_value value, sonde__op_layout layout)
{
    sonde__plan *plan = work->plan;
    const sonde__graph_node_value *node = &work->program->graph.values[value];
    sonde__plan_buffer buffer = {.value = value,
                                 .shape = node->shape,
                                 .layout = layout,
                                 .place = SONDE__IN_ARENA,
                                 .index = node->index,
                                 .first = INT32_MAX,
                                 .last = -1};

    if (node->source != SONDE__FROM_OP && layout == SONDE__PLAIN) {
        buffer.place =
            (sonde__plan_place)node->source; /* the enums agree after their first */
    }
    buffer.bytes = (size_t)sonde__op_layout_count(&node->shape, layout) *
                   sonde_dtype_size(node->shape.dtype);
    if (!sonde__reserve(&plan->buffers, &plan->buffer_capacity, plan->buffer_count + 1,
                        sizeof *plan->buffers)) {
        return -1;
    }
    plan->buffers[plan->buffer_count] = buffer;
    *slot(work, value, layout) = (int)plan->buffer_count;
    return (int)plan->buffer_count++;
}

static sonde__plan_step *add_step(layout_work *work, const sonde__op_kind *kind)
{
    sonde__plan *plan = work->plan;

    if (!sonde__reserve(&plan->steps, &plan->step_capacity, plan->step_count + 1,
                        sizeof *plan->steps)) {
        return NULL;
    }
    sonde__plan_step *step = &plan->steps[plan->step_count++];
    *step = (sonde__plan_step){.kind = kind};
    for (int i = 0; i < SONDE__MAX_OPERANDS; i++) {
        step->in_buffer[i] = step->out_buffer[i] = -1;
    }
    return step;
}

/* The layout in which a value lies already, the most useful first; PLAIN for a leaf. */
static sonde__op_layout present_layout(const layout_work *work, sonde__op_value value)
{
    if (*slot(work, value, SONDE__LANES) >= 0) {
        return SONDE__LANES;
    }
    return SONDE__PLAIN;
}

/* The buffer of a value in a layout, by a reorder if need be; -1 if memory is out. */
static int buffer_in(layout_work *work, sonde__op_value value, sonde__op_layout layout)
{
    const sonde__graph_node_value *node = &work->program->graph.values[value];
    sonde__op_layout origin = SONDE__PLAIN;
    int source = -1, target = -1;

    if (*slot(work, value, layout) >= 0) {
        return *slot(work, value, layout);
    }
    if (layout == SONDE__PLAIN && node->source != SONDE__FROM_OP) {
        return add_buffer(work, value, SONDE__PLAIN);
    }
    origin = *slot(work, value, SONDE__PLAIN) >= 0 || node->source != SONDE__FROM_OP
                 ? SONDE__PLAIN
                 : present_layout(work, value);
    source = *slot(work, value, origin) >= 0 ? *slot(work, value, origin)
                                             : add_buffer(work, value, origin);
    target = add_buffer(work, value, layout);
    sonde__plan_step *step = add_step(work, &sonde__op_reorder);
    if (source < 0 || target < 0 || step == NULL) {
        return -1;
    }
    step->in_value[0] = value;
    step->in_buffer[0] = source;
    step->out_buffer[0] = target;
    step->module = node->module;
    step->call = (sonde__op_call){.in_count = 1, .out_count = 1};
    step->call.in[0] = (sonde__operand){node->shape, origin, NULL};
    step->call.out[0] = (sonde__operand){node->shape, layout, NULL};
    step->kernel = sonde__op_first_kernel(&sonde__op_reorder, &step->call);
    return target;
}

static bool is_view(const sonde__op_kind *kind)
{
    return kind == &sonde__op_reshape || kind == &sonde__op_identity;
}

static bool lay_view(layout_work *work, const sonde__graph_node_op *op)
{
    const sonde__op_graph *graph = &work->program->graph;
    const sonde__op_shape *source = sonde__op_value_shape(graph, op->in[0]);
    const sonde__op_shape *target = sonde__op_value_shape(graph, op->out[0]);
    const bool same_batch =
        source->rank > 1 && target->rank > 1 && source->dim[0] == target->dim[0];
    sonde__plan *plan = work->plan;
    sonde__plan_seen_as view = {.value = op->out[0]};

    if (same_batch && *slot(work, op->in[0], SONDE__LANES) >= 0) {
        *slot(work, op->out[0], SONDE__LANES) = *slot(work, op->in[0], SONDE__LANES);
    } else if (buffer_in(work, op->in[0], SONDE__PLAIN) < 0) {
        return false;
    }
    *slot(work, op->out[0], SONDE__PLAIN) = *slot(work, op->in[0], SONDE__PLAIN);
    view.buffer = *slot(work, op->out[0], present_layout(work, op->out[0]));
    if (!sonde__reserve(&plan->views, &plan->view_capacity, plan->view_count + 1,
                        sizeof *plan->views)) {
        return false;
    }
    plan->views[plan->view_count++] = view;
    return true;
}

/* Why an output that may be left out must exist all the same. */
typedef enum need {
    NOT_NEEDED = 0,
    TO_BE_SHOWN = 1, /* at steps at which an observer wants it */
    TO_BE_READ = 2   /* by another op, or by the caller */
} need;

static need need_of(const layout_work *work, sonde__op_value value, bool tells_vitals)
{
    const sonde__op_graph *graph = &work->program->graph;
    const uint32_t id = work->id_of[value];
    const unsigned wanted = work->observer != NULL && id != SONDE_NO_TENSOR
                                ? sonde_observer_ever_wants(work->observer, id)
                                : 0;

    for (size_t i = 0; i < graph->output_count; i++) {
        if (graph->outputs[i] == value) {
            return TO_BE_READ;
        }
    }
    if (sonde__plan_use_count(graph, value) > 0) {
        return TO_BE_READ;
    }
    return (wanted & ~(unsigned)SONDE_HOW_SIGNS) != 0 || (wanted != 0 && !tells_vitals)
               ? TO_BE_SHOWN
               : NOT_NEEDED;
}

static sonde__op_layout wanted_layout(const layout_work *work,
                                      const sonde__plan_step *step,
                                      sonde__op_layout layout)
{
    return layout == SONDE__ANY ? present_layout(work, step->in_value[0]) : layout;
}

static bool lay_operands(layout_work *work, const sonde__graph_node_op *op, size_t index)
{
    const sonde__op_graph *graph = &work->program->graph;
    const sonde__op_kernel *kernel = work->plan->steps[index].kernel;

    for (int i = 0; i < op->out_count; i++) {
        const int aliased = op->kind->alias[i];
        sonde__plan_step *step = &work->plan->steps[index];
        const sonde__op_layout layout = wanted_layout(work, step, kernel->out[i]);
        const bool optional = (op->kind->optional_out >> (unsigned)i & 1U) != 0;
        const bool tells = sonde__op_tells_out(kernel, &step->call, i) &&
                           (kernel->vitals_kept >> (unsigned)i & 1U) == 0;
        const need why =
            !optional || op->out[i] == 0 ? TO_BE_READ : need_of(work, op->out[i], tells);

        step->call.out[i].shape = *sonde__op_value_shape(graph, op->out[i]);
        step->call.out[i].layout = layout;
        step->out_value[i] = op->out[i];
        if (op->out[i] == 0 || why == NOT_NEEDED) {
            continue;
        }
        if (why == TO_BE_SHOWN) {
            step->watched |= 1U << (unsigned)i;
        }
        if (aliased != 0) {
            if (aliased <= op->in_count) {
                step->out_buffer[i] = step->in_buffer[aliased - 1];
                *slot(work, op->out[i], SONDE__PLAIN) = step->out_buffer[i];
            }
            continue;
        }
        step->out_buffer[i] = add_buffer(work, op->out[i], layout);
        if (step->out_buffer[i] < 0) {
            return false;
        }
    }
    return true;
}

/* Whether all inputs lie in the layouts a kernel wants. */
static bool needs_no_reorder(const layout_work *work, const sonde__plan_step *step,
                             const sonde__op_kernel *kernel)
{
    for (int i = 0; i < step->call.in_count; i++) {
        const sonde__op_value value = step->in_value[i];
        const sonde__op_layout layout = wanted_layout(work, step, kernel->in[i]);
        const bool leaf = value != 0 && layout == SONDE__PLAIN &&
                          work->program->graph.values[value].source != SONDE__FROM_OP;

        if (value != 0 && !leaf && *slot(work, value, layout) < 0) {
            return false;
        }
    }
    return true;
}

/* The first fast kernel that takes the operands as they lie, else the first that takes
 * them at all: fast ones beat the reference even after a reorder. */
static const sonde__op_kernel *choose_kernel(const layout_work *work,
                                             const sonde__plan_step *step)
{
    const sonde__op_kernel *kernel = NULL, *first = NULL;

    for (size_t i = 0; (kernel = sonde__op_kernel_of(step->kind, &step->call, i)) != NULL;
         i++) {
        const bool accepts = kernel->accepts == NULL || kernel->accepts(&step->call);

        if (accepts && kernel != &step->kind->reference &&
            needs_no_reorder(work, step, kernel)) {
            return kernel;
        }
        if (accepts && first == NULL) {
            first = kernel;
        }
    }
    return first;
}

static bool lay_op(layout_work *work, const sonde__graph_node_op *op)
{
    const sonde__op_graph *graph = &work->program->graph;
    sonde__plan_step draft = {.kind = op->kind, .attrs = op->attrs, .module = op->module};

    draft.update = op->pass == SONDE_PASS_UPDATE;
    draft.call.attrs = &op->attrs;
    draft.call.in_count = op->in_count;
    draft.call.out_count = op->out_count;
    for (int i = 0; i < op->in_count; i++) {
        draft.in_value[i] = op->in[i];
        draft.call.in[i].shape = *sonde__op_value_shape(graph, op->in[i]);
    }
    for (int i = 0; i < op->out_count; i++) {
        draft.call.out[i].shape = *sonde__op_value_shape(graph, op->out[i]);
    }
    draft.kernel = choose_kernel(work, &draft);
    for (int i = 0; i < SONDE__MAX_OPERANDS; i++) {
        draft.in_buffer[i] = draft.out_buffer[i] = -1;
    }
    for (int i = 0; i < op->in_count; i++) { /* reorders come before the step */
        const sonde__op_layout layout = wanted_layout(work, &draft, draft.kernel->in[i]);

        if (op->in[i] == 0) {
            continue;
        }
        draft.in_buffer[i] = buffer_in(work, op->in[i], layout);
        draft.call.in[i].layout = layout;
        if (draft.in_buffer[i] < 0) {
            return false;
        }
    }
    sonde__plan_step *step = add_step(work, op->kind);
    if (step == NULL) {
        return false;
    }
    *step = draft;
    return lay_operands(work, op, work->plan->step_count - 1);
}

/* The values a session returns are PLAIN when a micro-batch ends. */
static bool lay_outputs(layout_work *work)
{
    const sonde__op_graph *graph = &work->program->graph;
    sonde__plan *plan = work->plan;
    const bool training = work->program->optimizer != NULL;

    plan->outputs = sonde__calloc(graph->output_count + 1, sizeof *plan->outputs);
    for (size_t i = 0; plan->outputs != NULL && i < graph->output_count + training; i++) {
        const sonde__op_value value =
            i < graph->output_count ? graph->outputs[i] : graph->loss;

        plan->outputs[i] = (sonde__plan_returned){buffer_in(work, value, SONDE__PLAIN),
                                                  *sonde__op_value_shape(graph, value)};
        if (plan->outputs[i].buffer < 0) {
            return false;
        }
        plan->output_count++;
    }
    plan->micro_steps = plan->step_count;
    return plan->outputs != NULL;
}

/* Hyper-parameters lie where the session writes them; no op need read them. */
static bool lay_hyper(layout_work *work)
{
    const sonde__op_graph *graph = &work->program->graph;
    bool well = true;

    for (sonde__op_value v = 1; well && v < graph->value_count; v++) {
        if (graph->values[v].source == SONDE__FROM_HYPER) {
            well = add_buffer(work, v, SONDE__PLAIN) >= 0;
        }
    }
    return well;
}

/* The next op is of segment `segment`, not of the one at hand: those up to it begin with
 * its first step. */
static void note_segments(const layout_work *work, int segment, int *at_hand)
{
    while (*at_hand < segment) {
        work->plan->segments[++*at_hand] = work->plan->step_count;
    }
}

sonde_err sonde__pass_layout(const sonde__plan_program *program, const uint32_t *id_of,
                             const sonde_observer *observer, sonde__plan *plan,
                             sonde_diag *diag)
{
    const sonde__op_graph *graph = &program->graph;
    layout_work work = {program, id_of, observer, plan, NULL, diag};
    const size_t slots = graph->value_count * LAYOUTS;
    bool well = true;
    int segment = 0;

    work.buffer_of = sonde__malloc(slots * sizeof *work.buffer_of);
    if (work.buffer_of == NULL) {
        return sonde__fail_nomem(diag, "the table of buffers");
    }
    for (size_t i = 0; i < slots; i++) {
        work.buffer_of[i] = -1;
    }
    if (sonde__plan_has_stages(program)) {
        plan->segments =
            sonde__calloc(2 * (size_t)graph->stage_count + 1, sizeof *plan->segments);
        well = plan->segments != NULL;
    }
    for (size_t i = 0; well && i < graph->op_count; i++) {
        const sonde__graph_node_op *op = &graph->ops[i];

        if (i == program->micro_ops) {
            well = lay_outputs(&work);
        }
        if (op->kind != NULL && plan->segments != NULL && i < program->micro_ops) {
            note_segments(&work, sonde__plan_segment(graph, op), &segment);
        }
        if (op->kind != NULL) {
            well = is_view(op->kind) ? lay_view(&work, op) : lay_op(&work, op);
        }
    }
    if (well && program->micro_ops >= graph->op_count) {
        well = lay_outputs(&work);
    }
    if (well) {
        well = lay_hyper(&work);
    }
    if (well && plan->segments != NULL) {
        note_segments(&work, 2 * graph->stage_count, &segment);
        plan->segments[2 * graph->stage_count] = plan->micro_steps;
    }
    sonde__free(work.buffer_of);
    return well ? SONDE_OK : sonde__fail_nomem(diag, "the plan");
}
