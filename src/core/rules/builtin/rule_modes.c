/*
 * rule_modes.c - rules about training and evaluation mode.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"

#include "base/macros.h"
#include "base/number.h"

#include <string.h>

/* Whether a buffer holds the statistics of a batch normalization, by its name. */
static bool is_statistic(const sonde_tensor_info *info)
{
    static const char *const words[] = {"running_", "moving_", "num_batches",
                                        "batch_mean", "batch_var"};

    return sonde__builtin_has_word(info->name, words, SONDE_COUNT_OF(words));
}

/* --- EvalNondeterminism ------------------------------------------------------------ */

/*
 * EvalNondeterminism - the same input gives different outputs in evaluation.
 *
 * The rule remembers evaluation (or prediction) steps by the hash of their inputs until a
 * step of another mode comes. Fires for
 *     outputs   whose sum, or sum of magnitudes, differs for the same inputs by more than
 *               APART times the latter: dropout is on. (The order of summation, which some
 *               processors change, makes far less difference.) Not where the program shows
 *               that layers of dropout are on by themselves in a model in evaluation mode.
 *     buffers   that change at two such steps in a row, if their names show that they hold
 *               statistics: batch norm still learns. (One change may be that of a moving
 *               average which the program loads for an evaluation.) Other buffers
 *               (counters, caches) are a note.
 *
 * Evidence: hashes of inputs; vital signs of outputs and buffers. Needs an input that is
 * evaluated twice, or a buffer.
 */

enum { INPUTS = 0, OUTPUTS = 1, EVAL_BUFFERS = 2, REMEMBERED = 1024 };
#define APART 1e-4

typedef struct nondeterminism {
    uint64_t inputs;     /* combined hash of this step */
    uint64_t forgotten;  /* how often what was remembered was forgotten */
    bool again, buffers; /* an input was evaluated twice; a buffer was seen twice */
    sonde_mode mode;
    int64_t others; /* steps of other modes so far */
} nondeterminism;

typedef struct eval_memory {
    union {
        struct {
            uint64_t key[REMEMBERED]; /* of an output, by hash of the inputs: a step of
                                         other modules has none */
            double l1[REMEMBERED], sum[REMEMBERED];
        } output;
        sonde_vitals before; /* of a buffer */
    } as;
    bool has_before;
    bool
        moved; /* at the evaluation step before, too: not only other weights were loaded */
} eval_memory;

static const sonde_rule_need nondeterminism_needs[] = {
    {"inputs", SONDE_HOW_HASH, true, SONDE__INPUTS, SONDE__EACH_STEP},
    {"outputs", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__OFTEN},
    {"buffers", SONDE_HOW_VITALS, true, SONDE__BUFFERS, SONDE__OFTEN}};

static int eval_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    return need == INPUTS && info->pass != SONDE_PASS_NONE ? SONDE_RULE_IGNORE : need;
}

static void forget(sonde_rule_run *run)
{
    nondeterminism *state = sonde_rule_state(run);

    state->forgotten++;
    SONDE__EACH (run, t) {
        eval_memory *memory = t->memory;

        memory->has_before = memory->moved = false;
    }
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    nondeterminism *state = sonde_rule_state(run);

    if (tensor->need == INPUTS) {
        state->inputs =
            (state->inputs ^ observation->hash) * UINT64_C(0x9E3779B97F4A7C15) + 1;
    }
}

static void judge_output(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    nondeterminism *state = sonde_rule_state(run);
    const sonde_vitals *v = t->vitals;
    eval_memory *memory = t->memory;
    const size_t at = state->inputs % REMEMBERED;
    const uint64_t key = state->inputs + state->forgotten * UINT64_C(0x9E3779B97F4A7C15);
    const bool again = memory->as.output.key[at] == key;
    double *l1 = &memory->as.output.l1[at], *sum = &memory->as.output.sum[at];
    const double apart = fmax(fabs(v->l1 - *l1), fabs(v->sum - *sum));

    if (again && !(apart <= APART * *l1) && sonde__builtin_bad(v) == 0) {
        sonde__rule_report(run, t, SONDE__SURE(ERROR), "sum_difference", apart,
                           APART * *l1, NULL,
                           "The same inputs now give other values, although no training "
                           "happened in between: magnitudes sum to %.6g instead of %.6g.",
                           v->l1, *l1);
    }
    state->again = state->again || again;
    memory->as.output.key[at] = key;
    *l1 = v->l1;
    *sum = v->sum;
}

static void eval_judge_buffer(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    nondeterminism *state = sonde_rule_state(run);
    eval_memory *memory = t->memory;

    const bool moves =
        memory->has_before && !sonde__builtin_same_vitals(t->vitals, &memory->as.before);

    state->buffers = state->buffers || memory->has_before;
    if (moves && memory->moved) {
        sonde__rule_report(
            run, t,
            is_statistic(sonde_rule_info(run, t->id)) ? SONDE__SURE(ERROR)
                                                      : SONDE__SURE(NOTE),
            "mean", t->vitals->mean, memory->as.before.mean, NULL,
            "It changes from one evaluation step to the next: results depend on earlier "
            "evaluation steps, and evaluation affects training.");
    }
    memory->as.before = *t->vitals;
    memory->has_before = true;
    memory->moved = moves;
}

/* Whether the program switches layers of dropout on by themselves, in a model that is in
 * evaluation mode: many samples of one prediction. */
static bool is_sampled(const sonde_rule_run *run, sonde_mode mode)
{
    const sonde_program *program = sonde_rule_program(run, mode);
    bool drops = false, evaluates = false;

    for (size_t i = 0; program != NULL && i < program->module_count; i++) {
        const sonde_program_module *module = &program->modules[i];

        drops = drops || (module->registered && module->training &&
                          sonde__strcasestr(module->kind, "dropout") != NULL);
        evaluates = evaluates || (i == 0 && !module->training);
    }
    return drops && evaluates;
}

static void eval_step(sonde_rule_run *run)
{
    nondeterminism *state = sonde_rule_state(run);
    const sonde_coordinate *at = sonde_rule_at(run);
    const bool sampled = is_sampled(run, at->mode);

    if (state->mode != at->mode || state->others != at->global_step - at->mode_step) {
        forget(run);
        state->mode = at->mode;
        state->others = at->global_step - at->mode_step;
    }
    SONDE__EACH (run, t) {
        if (t->vitals != NULL && t->need == OUTPUTS && state->inputs != 0 && !sampled) {
            judge_output(run, t);
        } else if (t->vitals != NULL && t->need == EVAL_BUFFERS) {
            eval_judge_buffer(run, t);
        }
    }
    state->inputs = 0;
}

static void finish(sonde_rule_run *run)
{
    const nondeterminism *state = sonde_rule_state(run);

    if (!state->again && !state->buffers) {
        sonde_rule_lacked(run, "no input was evaluated twice with the same weights");
    }
}

const sonde_rule sonde__builtin_eval_nondeterminism = {
    .abi = SONDE_RULE_ABI,
    .name = "EvalNondeterminism",
    .summary = "the same input gives different outputs in evaluation",
    .condition =
        "Equal inputs give different outputs in evaluation steps without training between them, or a buffer changes at two such steps in a row. "
        "A buffer that changes is a note unless its name shows that it holds statistics. "
        "Where the program of a step is known: dropout is called as a function that drops values in evaluation mode.",
    .advice = "Switch the model to evaluation mode: dropout off, batch norm with its "
              "running statistics.",
    SONDE_RULE_NEEDS(nondeterminism_needs),
    .modes = 1U << SONDE_MODE_EVAL | 1U << SONDE_MODE_PREDICT,
    .state_size = sizeof(nondeterminism),
    .tensor_size = sizeof(eval_memory),
    .wants = eval_wants,
    .observe = observe,
    .step = eval_step,
    .finish = finish,
    .program = sonde__builtin_eval_program,
};

/* --- TrainEvalMode ----------------------------------------------------------------- */

/*
 * TrainEvalMode - dropout or batch norm is in the wrong mode.
 *
 * Fires when
 *     evaluation   at `patience` evaluation steps in a row the output of a dropout layer
 *                  differs from its input: dropout is on; or
 *     training     at `patience` training steps in a row, after an evaluation, the output
 *                  of a dropout layer equals its input, which it did not before: dropout
 *                  stays off; or
 *     statistics   after an evaluation, a buffer that changed at every training step
 *                  before stays the same to the bit at `patience` training steps in a
 *                  row, if its name shows that it holds statistics: batch norm no longer
 *                  learns them. Other buffers (a temperature that is lowered) are a note.
 * Layers that were never in training mode, or never left it, are not judged: batch norm
 * may be frozen on purpose.
 *
 * A dropout layer is known by its op or by "drop" in its name; its input is the tensor
 * <module>_input_0, else the output of the same shape that is declared before it. The two
 * are compared by their sums. Evidence: vital signs of outputs, inputs and buffers.
 */

enum { DROPOUTS = 0, OTHERS = 1, MODE_BUFFERS = 2 };
#define EQUAL 1e-6
#define BACK "Switch the model back to training mode after evaluation."

typedef struct modes {
    int64_t patience;
    size_t linked;
    bool evaluated;
} modes;

typedef struct mode_memory {
    size_t input;        /* of a dropout layer; SIZE_MAX: not known */
    int64_t on, off;     /* steps in a row: on in evaluation, off in training */
    int64_t was_on;      /* training steps before the first evaluation */
    sonde_vitals before; /* of a buffer, at the last training step */
    bool has_before;
    int64_t changed, same; /* training steps: before the evaluation; in a row after */
    bool steady;           /* did not change at some step before the evaluation */
} mode_memory;

static const sonde_rule_param modes_params[] = {
    SONDE__COUNT(modes, patience, "3", 1, 1e9,
                 "number of observed steps in a row in the wrong mode"),
};
static const sonde_rule_need modes_needs[] = {
    {"outputs of dropout layers", SONDE_HOW_VITALS, true, SONDE__OUTPUTS, SONDE__SELDOM},
    {"their inputs", SONDE_HOW_VITALS, true, SONDE__ACTIVATIONS, SONDE__SELDOM},
    {"buffers", SONDE_HOW_VITALS, true, SONDE__BUFFERS, SONDE__OFTEN}};

static bool is_dropout(const sonde_tensor_info *info)
{
    const size_t length = strlen(info->name);

    return info->role == SONDE_ROLE_OUTPUT && info->pass != SONDE_PASS_BACKWARD &&
           (sonde__strncasecmp(info->op, "dropout", 7) == 0 ||
            (info->op[0] == '\0' && sonde__strcasestr(info->name, "drop") != NULL &&
             length > 9 && strcmp(info->name + length - 9, "_output_0") == 0));
}

static int mode_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    if (!sonde__builtin_is_own(info, id) || info->pass == SONDE_PASS_BACKWARD) {
        return SONDE_RULE_IGNORE;
    }
    return is_dropout(info) ? DROPOUTS
           : info->role == SONDE_ROLE_OUTPUT ||
                   (info->role == SONDE_ROLE_INPUT &&
                    sonde__strcasestr(info->name, "drop") != NULL)
               ? OTHERS
           : info->role == SONDE_ROLE_BUFFER ? MODE_BUFFERS
                                             : SONDE_RULE_IGNORE;
}

/* --- which tensor goes into a dropout layer -------------------------------------------- */

/* True if the names are <module>_input_0 and <module>_output_0. */
static bool is_its_input(const char *input, const char *output)
{
    const size_t length = strlen(output) - strlen("_output_0");

    return strncmp(input, output, length) == 0 && strcmp(input + length, "_input_0") == 0;
}

static size_t find_input(sonde_rule_run *run, const sonde_rule_tensor *dropout)
{
    size_t before = SIZE_MAX;
    const sonde_tensor_info *output = sonde_rule_info(run, dropout->id);

    SONDE__EACH_OF (run, t, OTHERS) {
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);

        if (sonde__builtin_same_shape(info, output)) {
            if (strlen(output->name) > 9 && is_its_input(info->name, output->name)) {
                return sonde__builtin_index(run, t);
            }
            if (t < dropout && info->role == SONDE_ROLE_OUTPUT) {
                before = sonde__builtin_index(run, t);
            }
        }
    }
    return before;
}

/* --- judging ---------------------------------------------------------------------------- */

static bool is_off(const sonde_vitals *output, const sonde_vitals *input)
{
    return output->zero == input->zero && output->count == input->count &&
           fabs(output->l1 - input->l1) <= EQUAL * input->l1;
}

static void judge_dropout(sonde_rule_run *run, const sonde_rule_tensor *t, bool training)
{
    const modes *state = sonde_rule_state(run);
    mode_memory *memory = t->memory;
    const sonde_vitals *input = sonde__builtin_seen_at(run, memory->input);

    if (input == NULL || input->l1 <= 0.0 || sonde__builtin_bad(input) > 0) {
        return; /* nothing to drop */
    }
    const bool off = is_off(t->vitals, input);
    if (training) {
        memory->was_on += !state->evaluated && !off;
        memory->off = state->evaluated && off ? memory->off + 1 : 0;
    } else {
        memory->on = off ? 0 : memory->on + 1;
    }
    if (memory->was_on < state->patience) {
        return;
    }
    if (training && memory->off >= state->patience) {
        sonde__rule_report(run, t, SONDE__SURE(ERROR), "steps", (double)memory->off,
                           (double)state->patience, BACK,
                           "Since the evaluation its output equals its input in training "
                           "too: dropout is off.");
    }
    if (!training && memory->on >= state->patience) {
        sonde__rule_report(
            run, t, SONDE__SURE(ERROR), "steps", (double)memory->on,
            (double)state->patience,
            "Switch the model to evaluation mode before evaluation.",
            "Its output differs from its input in evaluation: dropout is on.");
    }
}

/* Whether the model as a whole is in training mode, by the program of the step. */
static bool model_trains(const sonde_rule_run *run)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);

    return program != NULL && program->module_count > 0 && program->modules[0].training;
}

static void mode_judge_buffer(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const modes *state = sonde_rule_state(run);
    mode_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const bool statistic =
        is_statistic(sonde_rule_info(run, t->id)) && !model_trains(run);
    const bool same = memory->has_before && sonde__builtin_bad(v) == 0 &&
                      sonde__builtin_same_vitals(v, &memory->before);

    if (!state->evaluated) {
        memory->steady = memory->steady || same;
        memory->changed += memory->has_before && !same;
    } else {
        memory->same = same ? memory->same + 1 : 0;
    }
    memory->before = *v;
    memory->has_before = true;
    if (!memory->steady && memory->changed >= state->patience &&
        memory->same >= state->patience) {
        sonde__rule_report(run, t, statistic ? SONDE__SURE(ERROR) : SONDE__SURE(NOTE),
                           "steps", (double)memory->same, (double)state->patience, BACK,
                           "It changed at every training step before the evaluation and "
                           "stays the same since then%s.",
                           statistic ? ": the layer is in evaluation mode"
                                     : "; it may be meant to");
    }
}

static void mode_step(sonde_rule_run *run)
{
    modes *state = sonde_rule_state(run);
    const bool training = sonde_rule_at(run)->mode == SONDE_MODE_TRAIN;

    if (sonde__builtin_relink(run, &state->linked, NULL, 0)) {
        SONDE__EACH_OF (run, t, DROPOUTS) {
            ((mode_memory *)t->memory)->input = find_input(run, t);
        }
    }
    state->evaluated = state->evaluated || !training;
    SONDE__EACH (run, t) {
        if (t->vitals != NULL && t->need == DROPOUTS) {
            judge_dropout(run, t, training);
        } else if (t->vitals != NULL && t->need == MODE_BUFFERS && training) {
            mode_judge_buffer(run, t);
        }
    }
}

const sonde_rule sonde__builtin_train_eval_mode = {
    SONDE__RULE("TrainEvalMode", modes),
    .summary = "dropout or batch norm is in the wrong mode",
    .condition =
        "One of these holds at `patience` observed steps in a row: (1) a dropout layer changes its input in evaluation; (2) a dropout layer no longer changes its input in training after an evaluation; "
        "(3) a buffer that changed at every training step before the first evaluation no longer changes. (3) is a note unless the buffer's name shows that it holds statistics, and if the model as a whole is in training mode, by the program of the step: some layers may be kept in evaluation mode on purpose. "
        "Where the program of a step is known, at once: an optimizer steps on gradients of a forward pass in evaluation mode, or a loss or predicted classes are taken of a forward pass without gradients in training mode; and the model has dropout or batch norm.",
    .advice = "Call the model's train() before training and eval() before evaluation.",
    .modes = 1U << SONDE_MODE_TRAIN | 1U << SONDE_MODE_EVAL,
    .tensor_size = sizeof(mode_memory),
    .wants = mode_wants,
    .step = mode_step,
    .program = sonde__builtin_mode_program,
};
