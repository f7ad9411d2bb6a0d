/*
 * LossSign - the loss has the wrong sign: training makes the network worse.
 *
 * Judges the only loss of a run, or the total. Fires when
 *     kind      the loss is below 0 at `patience` observed steps in a row, and its op is one
 *               that is never below 0 (a cross-entropy, a squared or absolute error); or
 *     runaway   over WINDOWS windows of `window` steps the mean of the loss falls faster and
 *               faster, each time by at least FASTER times as much, to below minus RUNAWAY
 *               times the largest size of its first window and of what it has been since
 *               above 0, and below -BOUNDED, where cosines, their sums and overlaps end. A
 *               likelihood or a cosine may be below 0 and fall, but not like this: it
 *               slows down.
 * Labels alone prove nothing: counts, densities of a class, cosines to a class and losses
 * with a reward for entropy or learned weights may be below 0, from the first step on, as
 * those of densities may. Evidence: vital signs of losses.
 *
 * By the program of a step, it fires when losses enter the objective with the wrong sign
 * (program_signs.c) or players do not oppose each other (program_players.c).
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_signs.h"
#include "rules/builtin/program_walk.h"

#include "base/macros.h"

#include <string.h>

enum { WINDOWS = 4 };
#define RUNAWAY 5.0
#define BOUNDED 2.0
#define FASTER 1.1

typedef struct loss_sign {
    int64_t patience, window;
} loss_sign;

typedef struct tensor_memory {
    int64_t seen, below; /* losses; in a row below 0 */
    double first;        /* of the first window's start */
    double most;         /* the largest so far, at least 0 */
    sonde__builtin_window window;
    double means[WINDOWS]; /* of the last windows */
    int64_t windows;
} tensor_memory;

static const sonde_rule_param loss_sign_params[] = {
    SONDE__COUNT(loss_sign, patience, "3", 1, 1e9,
                 "number of observed steps in a row with a loss below 0"),
    SONDE__COUNT(loss_sign, window, "10", 1, 1e9, "number of observed steps to average"),
};
static const sonde_rule_need loss_sign_needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP}};

/* Whether a loss of this op is never below 0. */
static bool is_never_below(const char *op)
{
    static const char *const names[] = {"crossentropy", "cross_entropy", "bce",     "mse",
                                        "l1loss",       "l1_loss",       "huber",   "ctc",
                                        "margin",       "squared",       "absolute"};

    return sonde__builtin_has_word(op, names, SONDE_COUNT_OF(names));
}

static void judge_windows(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const tensor_memory *memory = t->memory;
    const double *m = memory->means;
    const double limit = -RUNAWAY * fmax(fabs(memory->first), memory->most);
    bool runs_away = m[WINDOWS - 1] < fmin(limit, -BOUNDED) && m[1] < m[0] &&
                     memory->windows >= WINDOWS && !sonde__rule_loss_is_free(run);

    for (int k = 2; k < WINDOWS; k++) {
        runs_away = runs_away && m[k - 1] - m[k] > FASTER * (m[k - 2] - m[k - 1]);
    }
    if (runs_away) {
        sonde__rule_report(
            run, t, SONDE__SURE(ERROR), "mean", m[WINDOWS - 1], limit, NULL,
            "It runs away: it falls faster and faster, from %.4g at first to "
            "%.4g, and nothing bounds it.",
            memory->first, m[WINDOWS - 1]);
    }
}

static void take(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const loss_sign *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const double loss = t->vitals->mean;
    const char *op = sonde_rule_info(run, t->id)->op;

    memory->first = memory->seen == 0 ? loss : memory->first;
    memory->seen++;
    memory->below = loss < 0.0 ? memory->below + 1 : 0;
    memory->most = fmax(memory->most, loss);
    if (memory->below >= state->patience && is_never_below(op)) {
        sonde__rule_report(run, t, SONDE__SURE(ERROR), "mean", loss, 0.0, NULL,
                           "It is %.4g, but a loss of this kind (%s) is never below 0.",
                           loss, op);
    }
    if (sonde__builtin_window_take(&memory->window, loss, state->window)) {
        memmove(memory->means, memory->means + 1, (WINDOWS - 1) * sizeof *memory->means);
        memory->means[WINDOWS - 1] = memory->window.mean;
        memory->windows++;
        judge_windows(run, t);
    }
}

static void step(sonde_rule_run *run)
{
    SONDE__EACH_FINITE (run, t, 0) {
        if (sonde__builtin_is_whole_loss(run, t->id)) {
            take(run, t);
        }
    }
}

static void read_program(sonde_rule_run *run, const sonde_program *program)
{
    sonde__builtin_free_losses(run, program);
    sonde__builtin_sign_program(run, program);
    sonde__builtin_player_program(run, program);
}

const sonde_rule sonde__builtin_loss_sign = {
    SONDE__RULE("LossSign", loss_sign),
    .summary = "the loss has the wrong sign",
    .condition =
        "A loss whose op is never below 0 is below 0 at `patience` observed steps in a row; or a loss that is meant to fall falls faster and faster, to below minus five times the largest value that it had. "
        "By the program of a training step: all losses that backward is called on have a minus before them, or logarithms of probabilities have none; or a discriminator and its generator want the same of its outputs.",
    .advice = "Minimize the loss itself, not its negative; check the sign of each term.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = sonde__builtin_wants_role,
    .program = read_program,
    .step = step,
};
