/*
 * loop.c - training and evaluation steps of the loop, judged.
 */
#include "loop.h"
#include "record.h"

#include "support.h"

#include "base/macros.h"
#include "base/memory.h"
#include "record/record_sink.h"
#include "rules/engine.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <sonde/error.h>

static bool goes_wrong(const loop *training, loop_mistake mistake)
{
    return training->plan.mistake == mistake &&
           training->at.global_step >= training->plan.at;
}

/* --- making ----------------------------------------------------------------------- */

static void make(loop *training)
{
    const sonde_call_shape shape = {1, 1, training->plan.replicas};
    sonde_diag diag = {0};

    for (int r = 0; r < training->plan.replicas; r++) {
        loop_make(training, &training->nets[r], r);
    }
    bench_check(sonde_catalogue_create(&training->catalogue, &diag), &diag);
    loop_declare(training);
    bench_check(sonde_observer_create(training->catalogue, &training->observer, &diag),
                &diag);
    training->rules = faults_default_rules();
    if (training->plan.record != NULL) {
        training->recorder = faults_record(training->plan.record, training->catalogue,
                                           training->observer, training->rules);
    }
    bench_check(sonde_rules_attach(training->rules, training->catalogue,
                                   training->observer, 1, 0, &diag),
                &diag);
    bench_check(sonde_observer_bind(training->observer, &shape, &diag), &diag);
}

/* The rules' sinks belong to them and outlive the observer. */
static void unmake(loop *training)
{
    sonde_observer_destroy(training->observer);
    faults_record_end(training->recorder);
    sonde_catalogue_destroy(training->catalogue);
    for (int r = 0; r < training->plan.replicas; r++) {
        for (int i = 0; i < training->nets[r].block_count; i++) {
            sonde__free(training->nets[r].blocks[i]);
        }
    }
}

/* --- steps ------------------------------------------------------------------------ */

/* Words of a class are more frequent in it than others; every batch touches few of them.
 */
static void draw_tokens(const loop *training, loop_net *net, uint64_t number)
{
    for (int64_t i = 0; i < training->plan.batch; i++) {
        for (uint64_t t = 0; t < TOKENS; t++) {
            const uint64_t at =
                (number * (uint64_t)training->plan.batch + (uint64_t)i) * TOKENS + t;
            const int64_t word =
                (int64_t)(faults_uniform(training->plan.seed, 30, at) * WORDS);
            const bool own = faults_uniform(training->plan.seed, 31, at) < 0.5F;

            net->tokens[i * TOKENS + (int64_t)t] =
                own ? word % (WORDS / CLASSES) * CLASSES + net->y[i] : word % WORDS;
        }
    }
}

static void draw(loop *training, int replica, int64_t number)
{
    const loop_plan *plan = &training->plan;
    loop_net *net = &training->nets[replica];
    int64_t batch = number * plan->replicas + replica;

    if (goes_wrong(training, MISTAKE_SAME_BATCH)) {
        batch = number * plan->replicas;
    }
    if (plan->pool > 0 && !training->evaluating) {
        batch = number % plan->pool;
    }
    faults_batch(plan->data, plan->seed, batch, plan->batch, net->x, net->y, net->t);
    for (int64_t i = 0; i < plan->batch && plan->pool > 0 && !training->evaluating; i++) {
        const uint64_t at = (uint64_t)(batch * plan->batch + i);

        if (faults_uniform(plan->seed, 32, at) < plan->label_noise) {
            net->y[i] = (net->y[i] + 1 + (int64_t)at % (CLASSES - 1)) % CLASSES;
        }
    }
    if (plan->embedding) {
        draw_tokens(training, net, (uint64_t)batch);
    }
}

static void begin(loop *training, sonde_mode mode)
{
    training->at.mode = mode;
    training->at.mode_step = training->mode_steps[mode];
    (void)sonde_observer_begin_step(
        training->observer, sonde_observer_get_gate(training->observer), &training->at);
}

static void end(loop *training)
{
    sonde_observer_end_step(training->observer);
    if (training->recorder != NULL) {
        sonde__recorder_end_step(training->recorder, &training->at);
    }
    training->mode_steps[training->at.mode]++;
    training->at.global_step++;
}

static void clear_gradients(loop *training, loop_net *net)
{
    for (int i = 0; i < net->param_count && !goes_wrong(training, MISTAKE_NO_ZERO_GRAD);
         i++) {
        const loop_param *param = &net->params[i];

        memset(param->g, 0,
               (size_t)(param->rows * SONDE_MAX(param->columns, (int64_t)1)) *
                   sizeof *param->g);
    }
}

static void train_step(loop *training, int64_t step)
{
    begin(training, SONDE_MODE_TRAIN);
    training->shift =
        goes_wrong(training, MISTAKE_OP) ? (float)training->plan.severity : 0.0F;
    for (int r = 0; r < training->plan.replicas; r++) {
        draw(training, r, step);
    }
    if (training->plan.before != NULL) {
        training->plan.before(training, step);
    }
    for (int r = 0; r < training->plan.replicas; r++) {
        clear_gradients(training, &training->nets[r]);
        loop_forward(training, &training->nets[r], false,
                     (uint64_t)(step * training->plan.replicas + r));
        loop_observe_forward(training, &training->nets[r], r);
        loop_backward(training, &training->nets[r]);
    }
    loop_reduce(training);
    for (int r = 0; r < training->plan.replicas; r++) {
        loop_update(training, &training->nets[r], step);
        loop_observe_update(training, &training->nets[r], r);
    }
    end(training);
}

/* Every batch twice, as who looks at a fixed sample does. */
static void eval_steps(loop *training, int64_t round)
{
    training->evaluating = true;
    for (int i = 0; i < 2 * training->plan.eval_batches; i++) {
        begin(training, SONDE_MODE_EVAL);
        draw(training, 0, 1000000 + i / 2);
        loop_forward(training, &training->nets[0], true,
                     (uint64_t)(1000000 + 100 * round + i));
        loop_observe_forward(training, &training->nets[0], 0);
        end(training);
    }
    training->evaluating = false;
}

void loop_train(const loop_plan *plan, sonde_rules **rules)
{
    loop *training = bench_alloc(sizeof *training);

    memset(training, 0, sizeof *training);
    training->plan = *plan;
    training->plan.replicas = SONDE_MAX(plan->replicas, 1);
    make(training);
    for (int64_t step = 0; step < plan->steps; step++) {
        train_step(training, step);
        if (plan->eval_every > 0 && (step + 1) % plan->eval_every == 0) {
            eval_steps(training, step);
        }
    }
    if (plan->idle > 0.0) {
        sonde__rules_idle(training->rules, plan->idle);
    }
    sonde_rules_finish(training->rules);
    *rules = training->rules;
    unmake(training);
    sonde__free(training);
}
