/*
 * ctc.c - connectionist temporal classification (Graves et al. 2006), as
 * torch.nn.functional.ctc_loss.
 *
 *   CtcLoss      loss[n] = -log of the sum over all paths of T[n] steps that spell
 *                target[n, 0 ... S[n] - 1] of exp(sum of log-probabilities)
 *   CtcLossGrad  dlogp[t, n, c] = -dloss[n] times the share of paths that are at c at t
 *
 * A path spells what is left of it when equal neighbors are one, and blanks are gone. It
 * goes through 2 S + 1 states: blank, label, blank ... The second output of the loss holds
 * log alpha (N, T, 2 S + 1), the paths up to each state; the gradient reads it, and takes
 * the way back in scratch.
 *
 * Inputs: log-probabilities (T, N, C), targets int64 (N, S), lengths int64 (N) of both. With
 * mean a loss is divided by the length of its target. A target that no path spells has an
 * infinite loss and a gradient of NaN, or 0 and 0 with affine (zero_infinity). Labels and
 * lengths out of range: NaN, and no gradient; a session refuses such lengths before.
 *
 * attrs: ctc.
 */
#include "base/fail.h"
#include "nn/ops/common.h"
#include "nn/ops/layer_row.h"

#include <math.h>

/* --- one sample ----------------------------------------------------------------------- */

typedef struct sample {
    const sonde__operand *logp; /* (T, N, C) */
    const int64_t *target;
    int64_t number, samples, classes, blank;
    int64_t steps, labels, states; /* of this sample; states 2 labels + 1 */
    int64_t row;                   /* of alpha: states of the longest target */
    bool known;                    /* labels and lengths are in range */
} sample;

static sample sample_number(const sonde__operand *in, const sonde__op_attrs *attrs,
                            int64_t n)
{
    const sonde__op_shape *logp = &in[0].shape;
    const int64_t most = in[1].shape.dim[1];
    sample s = {.logp = &in[0],
                .target = (const int64_t *)in[1].data + n * most,
                .number = n,
                .samples = logp->dim[1],
                .classes = logp->dim[2],
                .blank = attrs->ctc.blank,
                .steps = ((const int64_t *)in[2].data)[n],
                .labels = ((const int64_t *)in[3].data)[n],
                .row = 2 * most + 1};

    s.known =
        s.steps >= 0 && s.steps <= logp->dim[0] && s.labels >= 0 && s.labels <= most;
    for (int64_t i = 0; i < s.labels && s.known; i++) {
        s.known = s.target[i] >= 0 && s.target[i] < s.classes;
    }
    s.states = 2 * s.labels + 1;
    return s;
}

static int64_t class_of(const sample *s, int64_t state)
{
    return state % 2 == 0 ? s->blank : s->target[state / 2];
}

static double logp_at(const sample *s, int64_t step, int64_t class)
{
    return sonde__op_load(s->logp, (step * s->samples + s->number) * s->classes + class);
}

/* Whether a path may go from state - 2 to state: past a blank, between other labels. */
static bool skips(const sample *s, int64_t state)
{
    return state % 2 == 1 && state >= 2 &&
           s->target[state / 2] != s->target[state / 2 - 1];
}

/* log(exp(a) + exp(b)); NaN if one is. */
static double log_sum(double a, double b)
{
    const double most = a > b ? a : b;

    if (isnan(a) || isnan(b)) {
        return (double)NAN;
    }
    return isinf(most) ? most : most + log(exp(a - most) + exp(b - most));
}

/* --- forward -------------------------------------------------------------------------- */

static sonde_err ctc_loss_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                sonde_diag *diag)
{
    static const char *const names[] = {NULL, "targets", "input_lengths",
                                        "target_lengths"};
    const sonde__op_shape *logp = &call->in[0].shape, *target = &call->in[1].shape;
    const sonde__op_shape lengths = {SONDE_I64, 1, {logp->dim[1]}};

    SONDE__TRY(sonde__op_expect_rank(logp, 3, "log-probabilities", "(T, N, C)", diag));
    for (int i = 1; i < 4; i++) {
        SONDE__TRY(sonde__op_expect_dtype(&call->in[i].shape, SONDE_I64, names[i], diag));
        SONDE__TRY(sonde__op_expect_size(&call->in[i].shape, names[i], diag));
    }
    if (target->rank != 2 || target->dim[0] != logp->dim[1]) {
        char found[SONDE__SHAPE_TEXT];

        return sonde__fail(diag, SONDE_ESHAPE, NULL, "(N, S)", "targets are %s",
                           sonde__op_shape_text(target, found));
    }
    SONDE__TRY(sonde__op_expect_shape(&call->in[2].shape, &lengths, names[2], diag));
    SONDE__TRY(sonde__op_expect_shape(&call->in[3].shape, &lengths, names[3], diag));
    if (attrs->ctc.blank < 0 || attrs->ctc.blank >= logp->dim[2]) {
        return sonde__fail(diag, SONDE_EINVAL, NULL, "a class", "blank is %lld of %lld",
                           (long long)attrs->ctc.blank, (long long)logp->dim[2]);
    }
    call->out[0].shape = (sonde__op_shape){logp->dtype, 1, {logp->dim[1]}};
    call->out[1].shape = (sonde__op_shape){
        logp->dtype, 3, {logp->dim[1], logp->dim[0], 2 * target->dim[1] + 1}};
    return sonde__op_expect_size(&call->out[1].shape, "paths", diag);
}

/* Row `step` of alpha; before: the row of the step before. */
static void alpha_row(const sample *s, int64_t step, const sonde__operand *alpha,
                      int64_t at)
{
    const int64_t before = at - s->row;

    for (int64_t i = 0; i < s->row; i++) {
        double sum = -(double)INFINITY;

        if (i >= s->states) {
            sonde__op_store(alpha, at + i, sum);
            continue;
        }
        if (step == 0) {
            sum = i < 2 ? 0.0 : sum;
        } else {
            sum = sonde__op_load(alpha, before + i);
            sum = i > 0 ? log_sum(sum, sonde__op_load(alpha, before + i - 1)) : sum;
            sum = skips(s, i) ? log_sum(sum, sonde__op_load(alpha, before + i - 2)) : sum;
        }
        sonde__op_store(alpha, at + i, sum + logp_at(s, step, class_of(s, i)));
    }
}

static double loss_of(const sample *s, const sonde__operand *alpha)
{
    const int64_t last =
        (s->number * s->logp->shape.dim[0] + s->steps - 1) * s->row + s->states - 1;

    if (!s->known) {
        return (double)NAN;
    }
    if (s->steps == 0) {
        return s->labels == 0 ? 0.0 : (double)INFINITY;
    }
    return s->labels == 0
               ? -sonde__op_load(alpha, last)
               : -log_sum(sonde__op_load(alpha, last), sonde__op_load(alpha, last - 1));
}

static void ctc_loss_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__operand *alpha = &call->out[1];
    const int64_t samples = call->in[0].shape.dim[1], steps = call->in[0].shape.dim[0];

    for (int64_t n = samples * part / parts; n < samples * (part + 1) / parts; n++) {
        const sample s = sample_number(call->in, call->attrs, n);
        double loss = 0.0;

        for (int64_t t = 0; t < steps; t++) {
            const int64_t at = (n * steps + t) * s.row;

            if (s.known && t < s.steps) {
                alpha_row(&s, t, alpha, at);
                continue;
            }
            for (int64_t i = 0; i < s.row; i++) {
                sonde__op_store(alpha, at + i, -(double)INFINITY);
            }
        }
        loss = loss_of(&s, alpha);
        loss = call->attrs->ctc.zero_infinity && loss == (double)INFINITY ? 0.0 : loss;
        sonde__op_store(&call->out[0], n,
                        call->attrs->ctc.mean && s.labels > 0 ? loss / (double)s.labels
                                                              : loss);
    }
}

static int sample_parts(const sonde__op_call *call, int max)
{
    const sonde__op_shape *logp = &call->in[call->in_count == 6 ? 1 : 0].shape;
    const double samples = (double)logp->dim[1];
    const double worth = (double)sonde__op_shape_count(logp) / 8192.0;
    const double parts = worth < samples ? worth : samples;

    return parts < 1.0 ? 1 : parts > (double)max ? max : (int)parts;
}

static bool ctc_loss_ids(const sonde__op_call *call, int operand, sonde__op_ids *ids)
{
    *ids = (sonde__op_ids){.what = "length",
                           .count = operand == 2 ? call->in[0].shape.dim[0] + 1
                                                 : call->in[1].shape.dim[1] + 1};
    return operand == 2 || operand == 3;
}

SONDE__OP(ctc_loss, "CtcLoss", ctc, 4, 4, 2, .out_names = {NULL, "Paths"},
          .infer = ctc_loss_infer, .backward = {&sonde__op_ctc_loss_grad, "d0123B"},
          SONDE__REFERENCE(ctc_loss_run, .parts = sample_parts), .ids = ctc_loss_ids);

/* --- gradient ------------------------------------------------------------------------- */

/* dloss, log-probabilities, targets, lengths, alpha */
static sonde_err ctc_loss_grad_infer(sonde__op_call *call, sonde__op_attrs *attrs,
                                     sonde_diag *diag)
{
    return sonde__op_infer_after(call, attrs, ctc_loss_infer, 4, 1, diag);
}

/* Two rows of a sample's states: the ways from each state on, after a step. */
static size_t beta_scratch(const sonde__op_call *call, int parts)
{
    return (size_t)(2 * call->in[5].shape.dim[2]) * sizeof(double) * (size_t)parts;
}

/* The ways on from the states of a step, from those of the step after it. */
static void beta_row(const sample *s, int64_t step, const double *after, double *beta)
{
    for (int64_t i = 0; i < s->states; i++) {
        double sum = -(double)INFINITY;

        for (int64_t k = i; k < s->states && k <= i + 2; k++) {
            if (step + 1 == s->steps) {
                break;
            }
            if (k < i + 2 || skips(s, k)) {
                sum = log_sum(sum, after[k] + logp_at(s, step + 1, class_of(s, k)));
            }
        }
        beta[i] = step + 1 < s->steps ? sum : i + 2 >= s->states ? 0.0 : sum;
    }
}

static void grad_of_sample(const sonde__op_call *call, const sample *s, double dloss,
                           double *rows)
{
    const sonde__operand *alpha = &call->in[5], *dx = &call->out[0];
    const double loss = loss_of(s, alpha);
    double *beta = rows, *after = rows + s->row;

    if (!s->known || (call->attrs->ctc.zero_infinity && loss == (double)INFINITY)) {
        return;
    }
    for (int64_t t = s->steps; t-- > 0;) {
        const int64_t at = (s->number * s->logp->shape.dim[0] + t) * s->row;
        double *swapped = after;

        beta_row(s, t, after, beta);
        for (int64_t i = 0; i < s->states; i++) {
            const int64_t place =
                (t * s->samples + s->number) * s->classes + class_of(s, i);
            const double share = exp(sonde__op_load(alpha, at + i) + beta[i] + loss);

            sonde__op_store(dx, place, sonde__op_load(dx, place) - dloss * share);
        }
        after = beta;
        beta = swapped;
    }
}

static void ctc_loss_grad_run(const sonde__op_call *call, int part, int parts)
{
    const sonde__op_shape *logp = &call->in[1].shape;
    const int64_t samples = logp->dim[1], classes = logp->dim[2];
    double *rows = (double *)call->scratch + 2 * call->in[5].shape.dim[2] * part;

    for (int64_t n = samples * part / parts; n < samples * (part + 1) / parts; n++) {
        const sample s = sample_number(&call->in[1], call->attrs, n);
        const double dloss = sonde__op_load(&call->in[0], n);

        for (int64_t t = 0; t < logp->dim[0]; t++) {
            for (int64_t c = 0; c < classes; c++) {
                sonde__op_store(&call->out[0], (t * samples + n) * classes + c, 0.0);
            }
        }
        grad_of_sample(call, &s,
                       call->attrs->ctc.mean && s.labels > 0 ? dloss / (double)s.labels
                                                             : dloss,
                       rows);
    }
}

SONDE__OP(ctc_loss_grad, "CtcLossGrad", ctc, 6, 6, 1, .infer = ctc_loss_grad_infer,
          SONDE__REFERENCE(ctc_loss_grad_run, .scratch = beta_scratch,
                           .parts = sample_parts));

/* --- the layer ------------------------------------------------------------------------ */

/* PyTorch divides by the targets' lengths only for a mean. */
static sonde__op_value build_ctc(const sonde__op_builder *builder, sonde__op_attrs *attrs,
                                 const sonde__op_value *in)
{
    attrs->ctc.mean = attrs->reduction == SONDE__REDUCE_MEAN;
    return builder->emit(builder, &sonde__op_ctc_loss, attrs, in, 4);
}

SONDE__LAYER(
    ctc_loss, ctc_loss, 4,
    "connectionist temporal classification of log-probabilities (T, N, C), targets "
    "(N, S), and the lengths (N) of both",
    .reduces = true,
    .fields = {SONDE__FIELD("blank", SONDE__FIELD_WHOLE, ctc.blank, 0.0, 0, 1e9),
               SONDE__FIELD("zero_infinity", SONDE__FIELD_FLAG, ctc.zero_infinity, 0.0, 0,
                            1),
               SONDE__FIELD_REDUCTION},
    .build = build_ctc);
