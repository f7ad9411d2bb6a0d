/*
 * kernels_linear_net.c - every kernel of a training step of a perceptron but the loss,
 * one after the other as an executor would run them.
 */
#include "kernels_linear.h"
#include "base/cpu.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const float live[7] = {0.001F, 0.9F, 0.0F, 0.0F, 0.0F, 1.0F, 0.0F};

enum { LAYERS = 3, MOST_JOBS = 32 };

typedef struct net {
    sonde__operand x[LAYERS + 1], dx[LAYERS + 1], w[LAYERS], b[LAYERS], db[LAYERS];
    sonde__operand v[LAYERS], vb[LAYERS];
    job jobs[MOST_JOBS];
    int count;
    double flops;
} net;

static job *add_job(net *n, sonde__kernel_fast_op op, sonde__op_layout x_layout,
                    int x_operand)
{
    const sonde__op_kernel *const *list =
        sonde__kernel_fast_kernels_of(sonde__cpu_isa(), op);
    job *j = &n->jobs[n->count++];

    memset(j, 0, sizeof *j);
    while ((*list)->in[x_operand] != x_layout && (*list)->in[x_operand] != SONDE__ANY) {
        list++;
    }
    j->kernel = *list;
    j->call.live = live;
    return j;
}

static void set_call(job *j, int in_count, const sonde__operand *const in[],
                     int out_count, const sonde__operand *const out[])
{
    j->call.in_count = in_count;
    j->call.out_count = out_count;
    for (int i = 0; i < in_count; i++) {
        j->call.in[i] = *in[i];
    }
    for (int i = 0; i < out_count; i++) {
        if (out[i] != NULL) {
            j->call.out[i] = *out[i];
        }
    }
    add_scratch(j);
}

static void add_forward(net *n, int i, double flops)
{
    const bool relu = i + 1 < LAYERS;
    job *j = add_job(n, relu ? SONDE__FAST_LINEAR_RELU : SONDE__FAST_LINEAR,
                     n->x[i].layout, 0);
    sonde__operand none = n->x[i + 1];

    none.data = NULL;
    set_call(j, 3, (const sonde__operand *const[]){&n->x[i], &n->w[i], &n->b[i]},
             relu ? 2 : 1,
             (const sonde__operand *const[]){relu ? &none : &n->x[i + 1], &n->x[i + 1]});
    n->flops += flops;
}

static void add_backward(net *n, int i, double flops)
{
    sonde__operand none = n->w[i];
    job *j;

    none.data = NULL;
    if (i > 0) {
        j = add_job(n, SONDE__FAST_LINEAR_GRAD_INPUT, SONDE__LANES, 0);
        set_call(j, 2, (const sonde__operand *const[]){&n->dx[i + 1], &n->w[i]}, 1,
                 (const sonde__operand *const[]){&n->dx[i]});
        n->flops += flops;
    }
    j = add_job(n, SONDE__FAST_CHANNEL_SUM, SONDE__LANES, 0);
    set_call(j, 1, (const sonde__operand *const[]){&n->dx[i + 1]}, 1,
             (const sonde__operand *const[]){&n->db[i]});
    j = add_job(n, SONDE__FAST_LINEAR_GRAD_WEIGHT_SGD, n->x[i].layout, 2);
    set_call(j, 4,
             (const sonde__operand *const[]){&n->w[i], &n->dx[i + 1], &n->x[i], &n->v[i]},
             3, (const sonde__operand *const[]){&n->w[i], &none, &n->v[i]});
    n->flops += flops;
    j = add_job(n, SONDE__FAST_SGD, SONDE__PLAIN, 0);
    set_call(j, 3, (const sonde__operand *const[]){&n->b[i], &n->db[i], &n->vb[i]}, 2,
             (const sonde__operand *const[]){&n->b[i], &n->vb[i]});
    if (i > 0) {
        j = add_job(n, SONDE__FAST_RELU_GRAD, SONDE__ANY, 0);
        set_call(j, 2, (const sonde__operand *const[]){&n->dx[i], &n->x[i]}, 1,
                 (const sonde__operand *const[]){&n->dx[i]});
    }
}

static void bench_net(const char *text, int64_t batch, const int64_t sizes[LAYERS + 1])
{
    static net n;
    double one, two;

    if (!bench_wanted(text)) {
        return;
    }
    memset(&n, 0, sizeof n);
    for (int i = 0; i <= LAYERS; i++) {
        n.x[i] = matrix(batch, sizes[i], i == 0 ? SONDE__PLAIN : SONDE__LANES);
        n.dx[i] = matrix(batch, sizes[i], SONDE__LANES);
    }
    for (int i = 0; i < LAYERS; i++) {
        n.w[i] = matrix(sizes[i + 1], sizes[i], SONDE__PLAIN);
        n.v[i] = matrix(sizes[i + 1], sizes[i], SONDE__PLAIN);
        n.b[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
        n.db[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
        n.vb[i] = matrix(sizes[i + 1], 1, SONDE__PLAIN);
    }
    for (int i = 0; i < LAYERS; i++) {
        add_forward(&n, i, 2.0 * (double)(batch * sizes[i] * sizes[i + 1]));
    }
    for (int i = LAYERS - 1; i >= 0; i--) {
        add_backward(&n, i, 2.0 * (double)(batch * sizes[i] * sizes[i + 1]));
    }
    one = time_jobs(n.jobs, n.count, 1);
    two = time_jobs(n.jobs, n.count, 2);
    printf("%-44s 1 thread %8.1f us (floor %8.1f, %4.2fx)  2 threads %8.1f us (%4.2fx)\n",
           text, one * 1e6, n.flops / bench_peak / 1e3, one * 1e9 * bench_peak / n.flops,
           two * 1e6, two * 2e9 * bench_peak / n.flops);
    if (getenv("BENCH_EACH") != NULL) {
        for (int i = 0; i < n.count; i++) {
            printf("    %-20s %d %8.2f us\n", n.jobs[i].kernel->name, i,
                   time_jobs(&n.jobs[i], 1, 1) * 1e6);
        }
    }
}

void bench_nets(void)
{
    bench_net("step (b) 784-320-100-10 N 1000", 1000,
              (const int64_t[]){784, 320, 100, 10});
    bench_net("step (c) 784-256-128-10 N 32", 32, (const int64_t[]){784, 256, 128, 10});
}
