/*
 * loop.c - training and evaluation steps of the loop, judged.
 */
#include "loop.h"
#include "record.h"

#include "support.h"

#include "base/macros.h"
#include "base/memory.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sonde/error.h>

static bool goes_wrong(const loop *of, loop_mistake mistake)
{
    return of->plan.mistake == mistake && of->at.global_step >= of->plan.at;
}

/* --- making ----------------------------------------------------------------------- */

static void make(loop *of)
{
    const sonde_call_shape shape = {1, 1, of->plan.replicas};
    sonde_diag diag = {0};

    for (int r = 0; r < of->plan.replicas; r++) {
        loop_make(of, &of->nets[r], r);
    }
    bench_check(sonde_catalogue_create(&of->catalogue, &diag), &diag);
    loop_declare(of);
    bench_check(sonde_observer_create(of->catalogue, &of->observer, &diag), &diag);
    of->rules = faults_default_rules();
    if (of->plan.record != NULL) {
        of->recorder =
            faults_record(of->plan.record, of->catalogue, of->observer, of->rules);
    }
    bench_check(sonde_rules_attach(of->rules, of->catalogue, of->observer, 1, 0, &diag),
                &diag);
    bench_check(sonde_observer_bind(of->observer, &shape, &diag), &diag);
}

/* The rules' sinks belong to them and outlive the observer. */
static void unmake(loop *of)
{
    sonde_observer_destroy(of->observer);
    faults_record_end(of->recorder);
    sonde_catalogue_destroy(of->catalogue);
    for (int r = 0; r < of->plan.replicas; r++) {
        for (int i = 0; i < of->nets[r].block_count; i++) {
            sonde__free(of->nets[r].blocks[i]);
        }
    }
}

/* --- steps ------------------------------------------------------------------------ */

/* Words of a class are more frequent in it than others; every batch touches few of them. */
static void draw_tokens(const loop *of, loop_net *net, uint64_t number)
{
    for (int64_t i = 0; i < of->plan.batch; i++) {
        for (uint64_t t = 0; t < TOKENS; t++) {
            const uint64_t at =
                (number * (uint64_t)of->plan.batch + (uint64_t)i) * TOKENS + t;
            const int64_t word = (int64_t)(faults_uniform(of->plan.seed, 30, at) * WORDS);
            const bool own = faults_uniform(of->plan.seed, 31, at) < 0.5F;

            net->tokens[i * TOKENS + (int64_t)t] =
                own ? word % (WORDS / CLASSES) * CLASSES + net->y[i] : word % WORDS;
        }
    }
}

static void draw(loop *of, int replica, int64_t number)
{
    const loop_plan *plan = &of->plan;
    loop_net *net = &of->nets[replica];
    int64_t batch = number * plan->replicas + replica;

    if (goes_wrong(of, MISTAKE_SAME_BATCH)) {
        batch = number * plan->replicas;
    }
    if (plan->pool > 0 && !of->evaluating) {
        batch = number % plan->pool;
    }
    faults_batch(plan->data, plan->seed, batch, plan->batch, net->x, net->y, net->t);
    for (int64_t i = 0; i < plan->batch && plan->pool > 0 && !of->evaluating; i++) {
        const uint64_t at = (uint64_t)(batch * plan->batch + i);

        if (faults_uniform(plan->seed, 32, at) < plan->label_noise) {
            net->y[i] = (net->y[i] + 1 + (int64_t)at % (CLASSES - 1)) % CLASSES;
        }
    }
    if (plan->embedding) {
        draw_tokens(of, net, (uint64_t)batch);
    }
}

static void begin(loop *of, sonde_mode mode)
{
    of->at.mode = mode;
    of->at.mode_step = of->mode_steps[mode];
    (void)sonde_observer_begin_step(of->observer, sonde_observer_get_gate(of->observer),
                                    &of->at);
}

static void end(loop *of)
{
    sonde_observer_end_step(of->observer);
    if (of->recorder != NULL) {
        sonde_recorder_end_step(of->recorder, &of->at);
    }
    of->mode_steps[of->at.mode]++;
    of->at.global_step++;
}

static void clear_gradients(loop *of, loop_net *net)
{
    for (int i = 0; i < net->param_count && !goes_wrong(of, MISTAKE_NO_ZERO_GRAD); i++) {
        const loop_param *param = &net->params[i];

        memset(param->g, 0,
               (size_t)(param->rows * SONDE_MAX(param->columns, (int64_t)1)) *
                   sizeof *param->g);
    }
}

static void train_step(loop *of, int64_t step)
{
    begin(of, SONDE_MODE_TRAIN);
    of->shift = goes_wrong(of, MISTAKE_OP) ? (float)of->plan.severity : 0.0F;
    for (int r = 0; r < of->plan.replicas; r++) {
        draw(of, r, step);
    }
    if (of->plan.before != NULL) {
        of->plan.before(of, step);
    }
    for (int r = 0; r < of->plan.replicas; r++) {
        clear_gradients(of, &of->nets[r]);
        loop_forward(of, &of->nets[r], false, (uint64_t)(step * of->plan.replicas + r));
        loop_observe_forward(of, &of->nets[r], r);
        loop_backward(of, &of->nets[r]);
    }
    loop_reduce(of);
    for (int r = 0; r < of->plan.replicas; r++) {
        loop_update(of, &of->nets[r], step);
        loop_observe_update(of, &of->nets[r], r);
    }
    end(of);
}

/* Every batch twice, as who looks at a fixed sample does. */
static void eval_steps(loop *of, int64_t round)
{
    of->evaluating = true;
    for (int i = 0; i < 2 * of->plan.eval_batches; i++) {
        begin(of, SONDE_MODE_EVAL);
        draw(of, 0, 1000000 + i / 2);
        loop_forward(of, &of->nets[0], true, (uint64_t)(1000000 + 100 * round + i));
        loop_observe_forward(of, &of->nets[0], 0);
        end(of);
    }
    of->evaluating = false;
}

void loop_train(const loop_plan *plan, sonde_rules **rules)
{
    loop *of = bench_alloc(sizeof *of);

    memset(of, 0, sizeof *of);
    of->plan = *plan;
    of->plan.replicas = SONDE_MAX(plan->replicas, 1);
    make(of);
    for (int64_t step = 0; step < plan->steps; step++) {
        train_step(of, step);
        if (plan->eval_every > 0 && (step + 1) % plan->eval_every == 0) {
            eval_steps(of, step);
        }
    }
    if (plan->idle > 0.0) {
        sonde_rules_idle(of->rules, plan->idle);
    }
    sonde_rules_finish(of->rules);
    *rules = of->rules;
    unmake(of);
    sonde__free(of);
}
