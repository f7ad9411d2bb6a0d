/*
 * LossNotDecreasing - the loss rises or does not fall.
 *
 * With smdebug, the loss of a step is compared with that of the newest step at least
 * num_steps back. Fires when it fell by less than diff_percent percent of that, or rose by
 * more than increase_threshold_percent. The next comparison follows num_steps later. The
 * loss of single batches is noisy, so most healthy runs fire.
 *
 * With window n (the default is 50), losses are averaged over n observed steps, and the
 * means of windows are compared. Fires when two windows in a row are more than
 * increase_threshold_percent, four standard errors and SPREAD standard deviations of
 * means above the best mean before them: the best of many is low by chance, and with
 * small batches and large steps the means vary more than single losses do. The standard
 * deviation of means is estimated from the second differences of the last 32 means, which
 * a trend does not affect: for independent means, the median of their magnitudes is BEND
 * times it.
 *
 * A loss that has been below 0 has no level to reach (a policy's, a critic's, an entropy),
 * and one of several may rise while the total falls (a divergence whose weight grows, an
 * adversary): a rise is a note. A rise below BACK times the first values is a note too:
 * samples may get harder, or terms may be added. If the program shows or declares that
 * losses need not fall, they are judged only if they are constant or rise FAR above the
 * first values, or above 0 if these are near it.
 *
 * A loss that never falls below its first window is flat: see judge_flat. One that has
 * hardly fallen over the first two windows of a run is a note: see judge_start.
 *
 * Judges the loss tensors of the steps of `mode` or, if use_losses_collection is false,
 * the tensors that collection_names and tensor_regex select. Evidence: vital signs.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"

#include <string.h>

typedef struct not_decreasing {
    const char *collection_names, *tensor_regex, *mode;
    bool use_losses_collection, smdebug;
    int64_t num_steps, window, flat;
    double diff_percent, increase_threshold_percent;
    unsigned modes;  /* a bit for each mode that is judged */
    uint64_t judged; /* steps */
} not_decreasing;

enum { KEPT = 64 }; /* saved steps looked back over, at most */
enum { STARTS = 5, EARLY = 10 };
#define HARDLY 0.05 /* of the first losses */
#define LITTLE 0.1
#define SEEN 0.075      /* the largest standard error with which a fall can be seen */
#define CONSTANT 1e-6   /* largest spread of a constant, relative */
#define AT_ITS_END 1e-6 /* a loss that need not fall */
#define SPREAD 6.0
#define BACK 1.5 /* of the first losses */
#define FAR 10.0
#define NEAR_ZERO                                                                        \
    1.0            /* of a loss that need not fall: differences of scores begin there */
#define BEND 1.652 /* 0.6745 sqrt 6 */

typedef struct tensor_memory {
    double loss[KEPT]; /* a ring: the last saved ones */
    int64_t step[KEPT];
    int64_t saved, next_check;
    sonde__builtin_window window;
    double best, best_error;
    double mean, slope; /* mean of the last window; its difference to the one before */
    sonde__builtin_recent bends; /* |second differences| */
    int64_t windows, above;
    bool skipped;              /* the first steps of the run were not seen */
    double first, first_error; /* mean of the first window and its standard error */
    double least, most;        /* of all losses */
    double start;              /* mean of the first STARTS */
    double early, early_sq;    /* sums over the first EARLY */
    double late;               /* sum over the last EARLY of two windows */
} tensor_memory;

static const sonde_rule_param not_decreasing_params[] = {
    SONDE__CHOSEN(not_decreasing),
    SONDE__FLAG(not_decreasing, use_losses_collection, "true",
                "judge the loss tensors as well"),
    SONDE__COUNT(not_decreasing, num_steps, "10", 1, 1e9,
                 "number of steps to look back (with smdebug)"),
    SONDE__REAL(not_decreasing, diff_percent, "0.1", 0, 100,
                "smallest acceptable decrease of the loss, in percent (with smdebug)"),
    SONDE__REAL(not_decreasing, increase_threshold_percent, "5", 0, 1e9,
                "largest acceptable increase of the loss, in percent"),
    SONDE__COUNT(not_decreasing, window, "50", 0, 1e9,
                 "number of observed steps to average; 0: judge as with smdebug"),
    SONDE__COUNT(
        not_decreasing, flat, "4", 0, 1e9,
        "number of windows after which a loss that never fell is flat; 0: do not check"),
    SONDE__TEXT(not_decreasing, mode, NULL,
                "the steps that are judged: TRAIN, EVAL, PREDICT or GLOBAL for all "
                "(default: TRAIN; with smdebug: GLOBAL)"),
    SONDE__SMDEBUG(not_decreasing),
};
static const sonde_rule_need not_decreasing_needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    static const char *const names[] = {"TRAIN", "EVAL", "PREDICT", "GLOBAL"};
    not_decreasing *state = sonde_rule_state(run);
    const char *mode = NULL;

    state->smdebug =
        state->window == 0 ||
        sonde__builtin_as_smdebug(run, "num_steps,diff_percent,mode", "window,flat");
    mode = state->mode != NULL ? state->mode : names[state->smdebug ? 3 : 0];
    for (unsigned i = 0; i < SONDE_COUNT_OF(names); i++) {
        const char *dot = strrchr(mode, '.'); /* modes.TRAIN, ModeKeys.TRAIN */

        if (sonde__strcasecmp(dot != NULL ? dot + 1 : mode, names[i]) == 0) {
            state->modes = i == SONDE_MODE_GLOBAL ? ~0U : 1U << i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "LossNotDecreasing:mode",
                       "TRAIN, EVAL, PREDICT or GLOBAL", "'%s'", mode);
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const not_decreasing *state = sonde_rule_state(run);
    const bool loss = state->use_losses_collection && sonde__builtin_is_loss(info, id);

    return loss || sonde_rule_selected(run, id, NULL) ? 0 : SONDE_RULE_IGNORE;
}

/* The newest saved step that is at least num_steps back; false if there is none. */
static bool look_back(const not_decreasing *state, const tensor_memory *memory,
                      int64_t step, double *loss)
{
    const int64_t kept = memory->saved < KEPT ? memory->saved : KEPT;

    for (int64_t i = 1; i <= kept; i++) {
        const int64_t at = (memory->saved - i) % KEPT;

        if (memory->step[at] <= step - state->num_steps) {
            *loss = memory->loss[at];
            return true;
        }
    }
    return false;
}

static void compare_steps(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const not_decreasing *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const int64_t step = sonde_rule_at(run)->global_step;
    const double loss = t->vitals->mean;
    double before = 0.0;

    if (step >= memory->next_check && look_back(state, memory, step, &before)) {
        const double fell = before != 0.0 ? 100.0 * (before - loss) / fabs(before) : 0.0;
        const bool rose = -fell > state->increase_threshold_percent;

        memory->next_check = step + state->num_steps;
        if (fell < state->diff_percent || rose) {
            sonde__rule_report(
                run, t, SONDE__SURE(WARNING), "percent_fallen", fell,
                rose ? -state->increase_threshold_percent : state->diff_percent, NULL,
                "The loss went from %.5g to %.5g in at least %lld steps.", before, loss,
                (long long)state->num_steps);
        }
    }
    memory->loss[memory->saved % KEPT] = loss;
    memory->step[memory->saved % KEPT] = step;
    memory->saved++;
}

static bool is_constant(const tensor_memory *memory)
{
    return memory->most - memory->least <= CONSTANT * fmax(fabs(memory->first), 1e-30);
}

/*
 * A loss that has never been below its first window, by more than chance, is flat. One
 * that is the same number at every step is an error of the program; one that fluctuates
 * may still be on its first plateau and is judged after three times as long. It is a warning
 * if it is the objective and meant to fall, else a note.
 */
static void judge_flat(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const not_decreasing *state = sonde_rule_state(run);
    const tensor_memory *memory = t->memory;
    const bool constant = is_constant(memory);
    const double both = sqrt(memory->first_error * memory->first_error +
                             memory->best_error * memory->best_error);
    const double fell = memory->first - memory->best;

    if (state->flat > 0 && memory->windows >= (constant ? 1 : 3) * state->flat &&
        fabs(memory->first) >= AT_ITS_END && fell <= 2.0 * both &&
        fell <= state->diff_percent / 100.0 * fabs(memory->first)) {
        if (!constant && sonde__rule_loss_may_rise(run)) {
            return;
        }
        const bool meant = memory->least >= 0.0 && sonde__rule_loss_falls(run) &&
                           sonde__builtin_is_whole_loss(run, t->id);

        sonde__rule_report(
            run, t, constant || meant ? SONDE__SURE(WARNING) : SONDE__SURE(NOTE),
            "percent_fallen", 100.0 * fell / fabs(memory->first), state->diff_percent,
            "Check that gradients reach the parameters, that the optimizer "
            "has them, and the learning rate.",
            "The loss does not fall: it was %.5g over the first %lld steps "
            "and has not been below %.5g since.",
            memory->first, (long long)state->window, memory->best);
    }
}

/*
 * The loss, seen from the first step on, has fallen by less than HARDLY of its first EARLY
 * values, or by less than LITTLE and chance, in two windows, and is not falling at their
 * end. Only of a loss that is meant to fall, and whose noise would not hide a fall.
 */
static void judge_start(sonde_rule_run *run, const sonde_rule_tensor *t, double error)
{
    const not_decreasing *state = sonde_rule_state(run);
    const tensor_memory *memory = t->memory;
    const double mean = memory->early / EARLY;
    const double variance = fmax(memory->early_sq / EARLY - mean * mean, 0.0);
    const double both = sqrt(variance / (EARLY - 1) + error * error) / fabs(mean);
    const double fell = (mean - memory->mean) / fabs(mean);
    const double now = (mean - memory->late / EARLY) / fabs(mean);

    if (state->flat == 0 || memory->windows != 2 || now > HARDLY + 2.0 * both ||
        memory->skipped || memory->least < 0.0 || is_constant(memory) || both > SEEN ||
        fabs(fell) > fmax(HARDLY, fmin(2.0 * both, LITTLE)) ||
        !sonde__builtin_is_whole_loss(run, t->id) || sonde__rule_loss_is_free(run)) {
        return;
    }
    sonde__rule_report(run, NULL, SONDE__SURE(NOTE), "percent_fallen", 100.0 * fell,
                       100.0 * HARDLY,
                       "Check that targets belong to their inputs, that gradients reach "
                       "the parameters, and the learning rate.",
                       "'%s' has hardly fallen: from %.5g over the first %d steps to "
                       "%.5g after %lld.",
                       sonde_rule_info(run, t->id)->name, mean, EARLY, memory->mean,
                       (long long)memory->saved);
}

/* Whether a rise of the loss says nothing. */
static bool may_rise(sonde_rule_run *run, const tensor_memory *memory)
{
    return sonde__rule_loss_may_rise(run) &&
           memory->mean <
               memory->start + (FAR - 1.0) * fmax(fabs(memory->start), NEAR_ZERO);
}

/* Whether a rise of the loss is a note. */
static bool is_note(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const tensor_memory *memory = t->memory;

    return (sonde_rule_info(run, t->id)->role == SONDE_ROLE_LOSS &&
            !sonde__builtin_is_whole_loss(run, t->id)) ||
           sonde__rule_loss_is_free(run) || memory->least < 0.0 ||
           memory->mean < BACK * memory->start;
}

static void end_window(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const not_decreasing *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double mean = memory->window.mean, error = memory->window.error;
    const double both = sqrt(error * error + memory->best_error * memory->best_error);

    if (memory->windows == 0) {
        memory->first = mean;
        memory->first_error = error;
    }
    if (memory->windows == 0 || mean < memory->best) {
        memory->best = mean;
        memory->best_error = error;
        memory->above = 0;
    } else {
        const double wander = sonde__builtin_recent_median(&memory->bends) / BEND;
        const double share = state->increase_threshold_percent / 100.0;
        const bool rose = mean > memory->best + share * fabs(memory->best) &&
                          mean > memory->best + fmax(4.0 * both, SPREAD * wander);

        memory->above = rose ? memory->above + 1 : 0;
    }
    if (memory->windows >= 2) {
        sonde__builtin_recent_take(&memory->bends,
                                   fabs(mean - memory->mean - memory->slope));
    }
    memory->slope = mean - memory->mean;
    memory->mean = mean;
    memory->windows++;
    if (memory->above >= 2 && !may_rise(run, memory)) {
        sonde__rule_report(
            run, t, is_note(run, t) ? SONDE__SURE(NOTE) : SONDE__SURE(WARNING),
            "percent_risen", 100.0 * (mean - memory->best) / fabs(memory->best),
            state->increase_threshold_percent, NULL,
            "Averaged over %lld steps, the loss has risen from %.5g to "
            "%.5g and stays there.",
            (long long)state->window, memory->best, mean);
    }
    judge_start(run, t, error);
    judge_flat(run, t);
    if (mean < memory->first - LITTLE * fabs(memory->first) - 2.0 * both) {
        sonde__rule_resolve(run, NULL); /* it has begun to fall */
        if (memory->above == 0) {
            sonde__rule_resolve(run, t);
        }
    }
}

static void finish(sonde_rule_run *run)
{
    const not_decreasing *state = sonde_rule_state(run);

    if (state->judged == 0) {
        sonde_rule_lacked(run, "no loss was recorded at a step of mode %s",
                          state->mode != NULL ? state->mode : "train");
    }
}

/* Takes a loss of the steps that windows are made of. */
static void take(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const not_decreasing *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double loss = t->vitals->mean;
    const int64_t n = memory->saved++;

    memory->least = n > 0 ? fmin(memory->least, loss) : loss;
    memory->most = n > 0 ? fmax(memory->most, loss) : loss;
    memory->skipped = memory->skipped || (n == 0 && sonde_rule_at(run)->mode_step > 0);
    if (n < EARLY) {
        memory->early += loss;
        memory->early_sq += loss * loss;
    }
    if (n >= 2 * state->window - EARLY && n < 2 * state->window) {
        memory->late += loss;
    }
    if (n < STARTS) {
        memory->start += (loss - memory->start) / (double)(n + 1);
    }
    if (sonde__builtin_window_take(&memory->window, loss, state->window)) {
        end_window(run, t);
    }
}

static void step(sonde_rule_run *run)
{
    not_decreasing *state = sonde_rule_state(run);

    if ((state->modes >> sonde_rule_at(run)->mode & 1U) == 0) {
        return;
    }
    state->judged++;
    SONDE__EACH_FINITE (run, t, 0) {
        if (state->smdebug) {
            compare_steps(run, t);
        } else {
            take(run, t);
        }
    }
}

const sonde_rule sonde__builtin_loss_not_decreasing = {
    SONDE__RULE("LossNotDecreasing", not_decreasing),
    .summary = "the loss rises or does not fall",
    .condition =
        "The loss, averaged over `window` steps, is twice in a row more than `increase_threshold_percent` % above its best; or it is the same number over `flat` windows. "
        "A rise is a note for one of several losses, for a loss that was below 0 before, and while the loss is below one and a half times its first values. A loss that has not fallen over three times `flat` windows is a warning if it is the objective and meant to fall, else a note. "
        "A note about the run reports an objective that was observed from the first step on and has fallen by less than 5 % over two windows, if noise would not hide a fall. "
        "With `smdebug` (implied by `num_steps`, `diff_percent` or `mode`), the rule compares the loss every `num_steps` steps. It fires when the loss has fallen by less than `diff_percent` %, or has risen by more than `increase_threshold_percent` %.",
    .advice = "Lower the learning rate; check that labels belong to their inputs.",
    .tensor_size = sizeof(tensor_memory),
    .init = init,
    .wants = wants,
    .program = sonde__builtin_free_losses,
    .step = step,
    .finish = finish,
};
