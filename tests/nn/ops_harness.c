/* ops_harness.c - the helpers that ops_harness.h declares. */
#include "nn/ops_harness.h"

void *poisoned_block(size_t size)
{
    void *block = NULL;

    assert_int_equal(posix_memalign(&block, SONDE__ALIGN, size > 0 ? size : 1), 0);
    memset(block, 0xFF, size);
    return block;
}

size_t plain_bytes(const sonde__op_shape *shape)
{
    return (size_t)sonde__op_shape_count(shape) * sonde_dtype_size(shape->dtype);
}

int64_t harness_samples(const sonde__op_shape *shape)
{
    return shape->rank == 0 ? 1 : shape->dim[0];
}

int64_t harness_inner(const sonde__op_shape *shape)
{
    int64_t inner = 1;

    for (int i = 1; i < shape->rank; i++) {
        inner *= shape->dim[i];
    }
    return inner;
}

int64_t harness_place(const sonde__op_shape *shape, sonde__op_layout layout, int64_t n,
                      int64_t k)
{
    const int64_t samples = harness_samples(shape), inner = harness_inner(shape);

    switch (layout) {
    case SONDE__LANES:
        return (n >> 4) * inner * 16 + k * 16 + (n & 15);
    case SONDE__PANELS:
        return (k >> 5) * samples * 32 + n * 32 + (k & 31);
    case SONDE__PLAIN:
    case SONDE__ANY:
        break;
    }
    return n * inner + k;
}

int64_t harness_count(const sonde__op_shape *shape, sonde__op_layout layout)
{
    const int64_t samples = harness_samples(shape), inner = harness_inner(shape);

    return layout == SONDE__LANES    ? (samples + 15) / 16 * 16 * inner
           : layout == SONDE__PANELS ? (inner + 31) / 32 * 32 * samples
                                     : samples * inner;
}

void harness_copy(const sonde__op_shape *shape, sonde__op_layout layout, void *laid,
                  void *plain, bool to_plain)
{
    const size_t size = sonde_dtype_size(shape->dtype);
    const int64_t inner = harness_inner(shape);

    for (int64_t n = 0; n < harness_samples(shape); n++) {
        for (int64_t k = 0; k < inner; k++) {
            char *a = (char *)laid + (size_t)harness_place(shape, layout, n, k) * size;
            char *b = (char *)plain + (size_t)(n * inner + k) * size;

            memcpy(to_plain ? b : a, to_plain ? a : b, size);
        }
    }
}

void *harness_lay(const sonde__operand *plain, sonde__op_layout layout)
{
    const size_t bytes = (size_t)harness_count(&plain->shape, layout) *
                         sonde_dtype_size(plain->shape.dtype);
    void *block = poisoned_block(bytes);

    if (layout == SONDE__PANELS) {
        memset(block, 0, bytes); /* columns past K are zero by contract */
    }
    harness_copy(&plain->shape, layout, block, plain->data, false);
    return block;
}

sonde_err infer_run(op_run *run, sonde_diag *diag)
{
    sonde__op_call call = {.attrs = &run->attrs,
                           .in_count = run->in_count,
                           .out_count = run->kind->out_count};
    sonde_err err = SONDE_OK;

    for (int i = 0; i < run->in_count; i++) {
        call.in[i].shape = run->in[i].shape;
    }
    err = run->kind->infer(&call, &run->attrs, diag);
    for (int i = 0; i < run->kind->out_count; i++) {
        run->out[i] = call.out[i].shape;
    }
    return err;
}

const sonde__op_kernel *reference_of(const sonde__op_kind *kind)
{
    return &kind->reference;
}

bool kernel_accepts(const op_run *run, const sonde__op_kernel *kernel)
{
    sonde__op_call call = {.attrs = &run->attrs,
                           .in_count = run->in_count,
                           .out_count = run->kind->out_count};

    for (int i = 0; i < run->in_count; i++) {
        call.in[i].shape = run->in[i].shape;
    }
    for (int i = 0; i < run->kind->out_count; i++) {
        call.out[i].shape = run->out[i];
    }
    return kernel->accepts == NULL || kernel->accepts(&call);
}

sonde__op_layout layout_for(sonde__op_layout layout, const run_options *options)
{
    return layout == SONDE__ANY ? options->any : layout;
}

void lay_operands(const op_run *run, const sonde__op_kernel *kernel,
                  const run_options *options, sonde__op_call *call)
{
    for (int i = 0; i < run->in_count; i++) {
        call->in[i] = run->in[i];
        call->in[i].layout = layout_for(kernel->in[i], options);
        call->in[i].data = harness_lay(&run->in[i], call->in[i].layout);
    }
    for (int i = 0; i < call->out_count; i++) {
        const int alias = run->kind->alias[i];
        const bool optional = (run->kind->optional_out >> i & 1u) != 0;

        call->out[i].shape = run->out[i];
        call->out[i].layout = layout_for(kernel->out[i], options);
        if (alias != 0) {
            call->out[i].data = alias <= run->in_count ? call->in[alias - 1].data : NULL;
        } else if (!optional || !options->leave_out) {
            const size_t count = (size_t)harness_count(&run->out[i], call->out[i].layout);

            call->out[i].data =
                poisoned_block(count * sonde_dtype_size(run->out[i].dtype));
        }
    }
}

void run_kernel(const op_run *run, const sonde__op_kernel *kernel,
                const run_options *options, void *out[])
{
    sonde__op_call call = {.attrs = &run->attrs,
                           .in_count = run->in_count,
                           .out_count = run->kind->out_count,
                           .live = run->live};
    int parts = 1;

    lay_operands(run, kernel, options, &call);
    parts = kernel->parts != NULL ? kernel->parts(&call, options->parts) : 1;
    assert_in_range(parts, 1, options->parts);
    if (kernel->scratch != NULL) {
        call.scratch = poisoned_block(kernel->scratch(&call, parts));
    }
    for (int part = 0; part < parts; part++) {
        kernel->run(&call, part, parts);
    }
    for (int i = 0; i < call.out_count; i++) {
        out[i] =
            call.out[i].data != NULL ? poisoned_block(plain_bytes(&run->out[i])) : NULL;
        if (out[i] != NULL) {
            harness_copy(&run->out[i], call.out[i].layout, call.out[i].data, out[i],
                         true);
        }
        if (run->kind->alias[i] == 0) {
            free(call.out[i].data);
        }
    }
    for (int i = 0; i < run->in_count; i++) {
        free(call.in[i].data);
    }
    free(call.scratch);
}
