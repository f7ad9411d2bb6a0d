/*
 * LabelNoise - the loss stays at the entropy of the labels: inputs carry no information
 * about them.
 *
 * H is the entropy (natural logarithm) of the labels seen in training, plus (classes - 1) /
 * (2 labels), by which a small sample underestimates it (Miller and Madow). After `skip`
 * steps, losses are averaged over windows of `window` observed steps. Fires when, for two
 * windows in a row,
 *     the mean is at H: at most two standard errors below it and at most `tolerance`
 *     above;
 *     it is known precisely: its standard error is below 0.5 % of H (batches of a few
 *     samples may need more steps than a window has); and
 *     it does not fall by two standard errors of its difference to the previous window,
 *     unless it comes from above H and is still above it;
 * and the last mean is at most one standard error below H, since a network that cannot
 * learn anything cannot get below it (Gibbs); and gradients of the last window (of the last windows, until ENOUGH
 * were seen) do not agree.
 *
 * What a step's loss owes to the classes that its batch happens to have is known: it is how
 * far the cross-entropy of these labels with the frequencies so far is from H. Where all
 * labels of the steps of a window are seen, losses are averaged without it; the standard error
 * is that of the rest, so that small batches need no more steps than large ones.
 *
 * Shuffled labels keep the cross-entropy at H. So does a network that has not begun to
 * learn, for example because its learning rate is too small; gradients distinguish the
 * two. If inputs determine labels, gradients of different batches have a
 * common part; if not, they are noise as soon as the frequencies of classes are learned.
 * Gradients agree if the cosine of two consecutive ones, a mean over weights, is on
 * average above AGREE and above CLEARLY standard errors (one in a hundred is, by noise
 * alone). Few steps give no good standard error, so one more step with a deviation of
 * PRIOR is added. Gradients that are all 0, in a dead network, are ignored. Without
 * gradients, the loss alone decides. Before `samples` training samples nothing is judged:
 * small batches at a small learning rate have hardly moved the network.
 *
 * With targets that are numbers, named so and without labels, H is their variance (of each
 * column, on average; with a binary cross-entropy, the entropy of their means): a
 * network has that mean squared error if it has learned only their mean, as with shuffled
 * targets or with a difference that is broadcast over all pairs. There the standard error
 * has to be below a tenth of H, and the mean at most a tenth above it. Targets may be
 * mostly noise: it is a note, unless the standard error is below SURE of H and the mean
 * not farther below H; or both hold, with PART for the mean, over LONG windows or more and
 * MANY targets; or ABOVE windows are on average not below H at all.
 *
 * Models of language learn the frequencies of words first, and stay there for a while:
 * with labels of rank 2 or more the finding is a note for TOKENS windows. A finding about one of several losses
 * is a note too: the loss of a player against another stays where neither wins.
 *
 * Targets that the program makes in the step (a number for each row, as contrastive losses
 * have them) are no labels of the data: their entropy is only the start, and the finding is a
 * note.
 *
 * A loss that is only near H for two windows gives a note about the run: see is_near.
 *
 * ClassImbalance judges an H below 0.1 (a single class). Evidence: losses, raw labels and
 * gradients.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"
#include "rules/builtin/labels.h"

#include "base/number.h"

enum {
    LOSSES = 0,
    LABELS = 1,
    GRADIENTS = 2,
    NUMBERS = 3,
    LABELS_REGEX = 0,
    SAMPLE = 512,
    ENOUGH = 10,
    NEARS = 2,
    LONG = 6,
    ABOVE = 3,
    MANY = 2000,
    COLUMNS = 64,
    READ = 1 << 18, /* elements of targets, at most */
    TOKENS = 5      /* windows */
};
#define NEAR 0.02
#define AGREE 0.1
#define SURE 0.02
#define PART 0.03
#define CLEARLY 2.33
#define PRIOR 0.25

typedef struct noise {
    const char *labels_regex;
    int64_t window, skip, samples;
    double tolerance;
    sonde__builtin_labels labels;                     /* of this step */
    int64_t count[SONDE__CLASSES], seen, label_steps; /* steps at which they were seen */
    bool labeled;                                     /* this one */
    double
        chance; /* the cross-entropy of this step's labels with frequencies; NaN: unknown */
    double cosines; /* of this step: a sum over `pairs` weights */
    int64_t pairs;
    bool gradients;       /* any were seen */
    bool tokens;          /* labels of rank 2 or more */
    bool made;            /* targets are made in the step */
    sonde_vitals numbers; /* all targets of a regression so far */
    bool binary;          /* their loss is a binary cross-entropy */
    struct {
        double count, mean, m2;
    } columns[COLUMNS]; /* of the targets, evenly spread */
} noise;

typedef struct tensor_memory {
    int64_t steps, windows;
    sonde__builtin_window window; /* of losses */
    sonde__builtin_window excess; /* of losses, less what their labels give by chance */
    double before, error_before;  /* mean and standard error of the previous window */
    int64_t stays;                /* windows in a row */
    int64_t nears;                /* windows in a row near the level */
    double stay,
        stay_sq; /* sums of the means of windows that stay, and of squared errors */
    bool told;   /* that it stays there */
    int64_t agreements; /* steps with gradients since the last check */
    double agreement, agreement_sq;
    float gradient[SAMPLE]; /* of a gradient: elements of the last one */
} tensor_memory;

static const sonde_rule_param noise_params[] = {
    SONDE__REGEX(noise, labels_regex, ".*labels",
                 "regular expressions that select labels"),
    SONDE__COUNT(noise, window, "30", 2, 1e9, "number of observed steps to average"),
    SONDE__COUNT(noise, skip, "5", 0, 1e9, "number of steps to skip at the start"),
    SONDE__REAL(noise, tolerance, "0.02", 0, 1,
                "largest relative distance of the loss from the entropy"),
    SONDE__COUNT(noise, samples, "2000", 0, 1e12,
                 "number of training samples before the rule can fire"),
};
static const sonde_rule_need noise_needs[] = {
    {"losses", SONDE_HOW_VITALS, false, SONDE__LOSSES, SONDE__EACH_STEP},
    {"labels", SONDE_HOW_RAW, true, SONDE__INPUTS, SONDE__EACH_STEP},
    {"gradients", SONDE_HOW_RAW, true, SONDE__GRADIENTS, SONDE__IN_PAIRS},
    {"targets", SONDE_HOW_VITALS | SONDE_HOW_RAW, true, SONDE__INPUTS, SONDE__OFTEN}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    return sonde__builtin_is_loss(info, id) ? LOSSES
           : sonde_rule_matches(run, LABELS_REGEX, id) ||
                   sonde__builtin_looks_like_labels(info, id) ||
                   sonde__builtin_looks_like_targets(info, id)
               ? LABELS
           : sonde__builtin_is_input(info, id) && sonde_dtype_is_float(info->dtype) &&
                   sonde__strcasestr(info->name, "target") != NULL
               ? NUMBERS
           : sonde__builtin_is_own(info, id) && info->role == SONDE_ROLE_GRADIENT &&
                   info->rank >= 2
               ? GRADIENTS
               : SONDE_RULE_IGNORE;
}

/* The cosine of a gradient and the previous one. */
static void take_gradient(noise *state, tensor_memory *memory,
                          const sonde_observation *observation)
{
    double values[SAMPLE], dot = 0.0, now = 0.0, before = 0.0;
    const size_t count = sonde__builtin_sample_first(observation, SAMPLE, values);

    for (size_t i = 0; i < count; i++) {
        const double then = (double)memory->gradient[i];

        dot += values[i] * then;
        now += values[i] * values[i];
        before += then * then;
        memory->gradient[i] = (float)values[i];
    }
    state->gradients = state->gradients || count > 0;
    if (now * before > 0.0 && isfinite(now * before)) {
        state->cosines += dot / sqrt(now * before);
        state->pairs++;
    }
}

/* Takes the columns of numeric targets: a network that knows nothing predicts the mean of each,
 * as of each pixel of an autoencoder's pictures. */
static void take_columns(noise *state, const sonde_view *view)
{
    double values[SONDE__CHUNK];
    size_t at = 0;
    const size_t all = view != NULL ? (size_t)sonde_view_count(view) : 0;
    const size_t width = all > 0 && view->rank > 0 ? all / (size_t)view->shape[0] : 0;
    const size_t stride = width > COLUMNS ? width / COLUMNS : 1;

    if (width == 0 || all > READ) {
        return;
    }
    sonde__builtin_reader reader = sonde__builtin_read(view);
    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0; at += n) {
        for (size_t i = 0; i < n; i++) {
            const size_t column = (at + i) % width;

            if (column % stride == 0 && column / stride < COLUMNS &&
                isfinite(values[i])) {
                const size_t c = column / stride;
                const double off = values[i] - state->columns[c].mean;

                state->columns[c].count += 1.0;
                state->columns[c].mean += off / state->columns[c].count;
                state->columns[c].m2 += off * (values[i] - state->columns[c].mean);
            }
        }
    }
}

/* The loss of the best constant prediction of numeric targets: their variance or, of a binary
 * cross-entropy, the entropy of their means; a mean of columns, if these are known. */
static double level_of_numbers(const noise *state)
{
    double sum = 0.0, columns = 0.0;

    for (size_t i = 0; i < COLUMNS; i++) {
        const double n = state->columns[i].count, p = state->columns[i].mean;

        if (n > 1.0) {
            columns += 1.0;
            sum += !state->binary       ? state->columns[i].m2 / n
                   : p > 0.0 && p < 1.0 ? -p * log(p) - (1.0 - p) * log(1.0 - p)
                                        : 0.0;
        }
    }
    return columns > 0.0   ? sum / columns
           : state->binary ? 0.0
                           : sonde__builtin_variance(&state->numbers);
}

/* The mean cross-entropy of the labels of this step with the frequencies so far. */
static double take_chance(const noise *state)
{
    double sum = 0.0, counted = 0.0;

    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        if (c >= SONDE__CLASSES) {
            return (double)NAN;
        }
        if (c >= 0 && state->count[c] > 0) {
            sum -= log((double)state->count[c] / (double)state->seen);
            counted += 1.0;
        }
    }
    return counted > 0.0 ? sum / counted : (double)NAN;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    noise *state = sonde_rule_state(run);

    if (tensor->need == NUMBERS) {
        take_columns(state, observation->view);
        return;
    }
    if (tensor->need == GRADIENTS) {
        take_gradient(state, tensor->memory, observation);
        return;
    }
    state->tokens =
        state->tokens || (observation->view != NULL && observation->view->rank > 1 &&
                          !sonde_dtype_is_float(observation->view->dtype));
    state->labels.count = 0;
    sonde__builtin_labels_take(run, &state->labels, observation->view);
    for (size_t i = 0; i < state->labels.count; i++) {
        const int32_t c = state->labels.value[i];

        if (c >= 0 && c < SONDE__CLASSES) {
            state->count[c]++;
            state->seen++;
            state->labeled = true;
        }
    }
    state->chance = take_chance(state);
}

static double entropy(const noise *state)
{
    double sum = 0.0, classes = 0.0;

    for (int c = 0; c < SONDE__CLASSES && state->seen > 0; c++) {
        const double p = (double)state->count[c] / (double)state->seen;

        sum -= p > 0.0 ? p * log(p) : 0.0;
        classes += p > 0.0;
    }
    return classes > 1.0 ? sum + (classes - 1.0) / 2.0 / (double)state->seen : sum;
}

/* True if gradients have a common part. */
static bool agrees(const tensor_memory *memory)
{
    const double n = (double)memory->agreements, mean = memory->agreement / n;
    const double spread = PRIOR * PRIOR + memory->agreement_sq - n * mean * mean;

    return memory->agreements > 0 && mean > AGREE &&
           mean * n > CLEARLY * sqrt(fmax(spread, 0.0));
}

/* Training samples so far, also of steps whose labels were not seen. */
static double samples_so_far(sonde_rule_run *run)
{
    const noise *state = sonde_rule_state(run);
    const double steps = (double)sonde_rule_at(run)->mode_step + 1.0;
    const double all =
        state->seen > 0 ? (double)state->seen : (double)state->numbers.count;

    return state->label_steps > 0 ? all / (double)state->label_steps * steps : 0.0;
}

/* Whether the loss is at the entropy of labels, or at the variance of numbers: inputs
 * tell nothing. Stores that level. */
static bool knows_nothing(const noise *state, double mean, double error, double *level)
{
    const double h = entropy(state);

    if (state->numbers.count > 0 && state->seen == 0) {
        *level = level_of_numbers(state);
        return *level > 0.0 && error < 0.1 * *level && mean > *level - 2.0 * error &&
               mean < 1.1 * *level + 2.0 * error;
    }
    *level = h;
    return h > 0.1 && error < 0.005 * h && mean > h - 2.0 * error &&
           mean < h * (1.0 + state->tolerance);
}

/* Whether the loss is at the entropy as far as can be seen. */
static bool is_near(double mean, double error, double entropy)
{
    return entropy > 0.1 && error < NEAR * entropy &&
           mean > entropy - fmax(2.0 * error, NEAR * entropy) &&
           mean < (1.0 + 1.5 * NEAR) * entropy + error;
}

/* Whether the loss is at the variance of numeric targets beyond doubt. */
static bool is_sure(const noise *state, const tensor_memory *memory, double mean,
                    double error, double level)
{
    const double stays = (double)memory->stays;

    return (error < SURE * level && mean > (1.0 - SURE) * level) ||
           (memory->stays >= ABOVE && memory->stay > stays * level) ||
           (memory->stays >= LONG && state->numbers.count >= MANY &&
            sqrt(memory->stay_sq) / stays < SURE * level &&
            memory->stay / stays > (1.0 - PART) * level);
}

/* near: as is_near has it. */
static void report(sonde_rule_run *run, const sonde_rule_tensor *t, double mean,
                   double error, double level, bool near)
{
    const noise *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const bool sure = state->seen > 0 || is_sure(state, memory, mean, error, level);
    const bool note = near || (state->tokens && memory->stays < TOKENS) || state->made ||
                      !sure || !sonde__builtin_is_whole_loss(run, t->id);
    const char *what = state->seen > 0 ? "entropy of the labels"
                       : state->binary ? "entropy of the targets"
                                       : "variance of the targets";

    sonde__rule_report(
        run, near ? NULL : t, note ? SONDE__SURE(NOTE) : SONDE__SURE(WARNING), "mean",
        mean, level, NULL,
        "It stays at %.4g, which is the %s (%.4g): the network has learned only %s.%s",
        mean, what, level, state->seen > 0 ? "how frequent each class is" : "their mean",
        state->made
            ? " The program makes these targets itself, as for a contrastive loss, "
              "which may stay there for a while."
            : "");
    if (!near && !memory->told) {
        memory->told = true;
        sonde__rule_resolve(run, NULL); /* that it is near */
    }
}

static void end_window(sonde_rule_run *run, const sonde_rule_tensor *t)
{
    const noise *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const bool whole = memory->excess.count == 0 && memory->excess.error > 0.0 &&
                       memory->excess.error < memory->window.error;
    const double h_of_labels = whole ? entropy(state) : 0.0;
    const double mean = whole ? h_of_labels + memory->excess.mean : memory->window.mean;
    const double error = whole ? memory->excess.error : memory->window.error;
    double h = 0.0;
    const bool there = knows_nothing(state, mean, error, &h);
    const bool near = state->seen > 0 && is_near(mean, error, h);
    const double least = h - (state->seen > 0 ? 1.0 : 2.0) * error;
    const bool falls =
        memory->windows == 0 ||
        memory->before - mean >
            2.0 * sqrt(error * error + memory->error_before * memory->error_before);
    const bool from_above = memory->before > h + 2.0 * memory->error_before && mean > h;
    const bool noise_only =
        !state->gradients || (memory->agreements > 0 && !agrees(memory));
    const bool judged = noise_only && samples_so_far(run) >= (double)state->samples &&
                        !sonde__rule_loss_may_rise(run);

    memory->stays =
        there && (!falls || (memory->windows > 0 && from_above)) ? memory->stays + 1 : 0;
    memory->stay = memory->stays > 0 ? memory->stay + mean : 0.0;
    memory->stay_sq = memory->stays > 0 ? memory->stay_sq + error * error : 0.0;
    memory->nears = near && (!falls || from_above) ? memory->nears + 1 : 0;
    if (memory->agreements >= ENOUGH) {
        memory->agreement = memory->agreement_sq = 0.0;
        memory->agreements = 0;
    }
    memory->excess = (sonde__builtin_window){0};
    memory->windows++;
    memory->before = mean;
    memory->error_before = error;
    if (memory->stays >= 2 && mean > least && judged) {
        report(run, t, mean, error, h, false);
    } else if (memory->nears >= NEARS && memory->stays == 0 && judged && !memory->told &&
               !state->made) {
        report(run, t, mean, error, h, true);
    }
}

static void step(sonde_rule_run *run)
{
    noise *state = sonde_rule_state(run);
    const double chance = state->labeled ? state->chance : (double)NAN;
    const double cosine = state->pairs > 0 ? state->cosines / (double)state->pairs : 0.0;

    state->label_steps += state->labeled;
    state->labeled = false;
    SONDE__EACH_SEEN (run, t, NUMBERS) {
        if (state->numbers.count == 0) {
            state->numbers = *t->vitals;
        } else {
            sonde_vitals_merge(&state->numbers, t->vitals);
        }
        state->label_steps += state->seen == 0;
    }
    SONDE__EACH_SEEN (run, t, LOSSES) {
        tensor_memory *memory = t->memory;

        if (sonde__builtin_finite(t->vitals) > 0 && ++memory->steps > state->skip) {
            memory->agreements += state->pairs > 0;
            memory->agreement += cosine;
            memory->agreement_sq += cosine * cosine;
            if (isfinite(chance)) {
                (void)sonde__builtin_window_take(&memory->excess,
                                                 t->vitals->mean - chance, state->window);
            }
            if (sonde__builtin_window_take(&memory->window, t->vitals->mean,
                                           state->window)) {
                end_window(run, t);
            }
        }
    }
    state->cosines = 0.0;
    state->pairs = 0;
}

/* Whether targets are made in the step: by no data. */
static bool are_made(const sonde_program *program, int targets)
{
    const sonde_program_node *maker =
        sonde__builtin_walk_up(program, &targets, SONDE__WALK_VIEWS " to cat add");

    return targets >= 0 && (program->values[targets].kind == SONDE_VALUE_CONSTANT ||
                            (maker != NULL && sonde__builtin_walk_is(
                                                  maker->op, "arange zeros ones full")));
}

static void read_program(sonde_rule_run *run, const sonde_program *program)
{
    noise *state = sonde_rule_state(run);

    sonde__builtin_free_losses(run, program);
    state->made = state->binary = false;
    for (size_t i = 0; i < program->loss_count; i++) {
        const int node = program->losses[i].node;

        state->binary =
            state->binary ||
            (node >= 0 && sonde__builtin_walk_is(program->nodes[node].op,
                                                 "binary_cross_entropy "
                                                 "binary_cross_entropy_with_logits"));
        state->made = state->made || are_made(program, program->losses[i].targets);
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_labels_free(&((noise *)sonde_rule_state(run))->labels);
}

const sonde_rule sonde__builtin_label_noise = {
    SONDE__RULE("LabelNoise", noise),
    .summary = "the loss stays at the entropy of the labels",
    .condition =
        "The mean loss equals the entropy of the labels (or what the best constant gives for numeric targets: the variance of their columns, or the entropy of their means) in two consecutive windows of `window` steps and does not fall, while the gradients of different batches have nothing in common. "
        "If the loss is only near the entropy, the finding is a note about the run. It is a note as well if the program makes the targets itself (a contrastive loss).",
    .advice = "Check that labels still belong to their inputs. If they do, raise the "
              "learning rate or check the initialization.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .observe = observe,
    .program = read_program,
    .step = step,
    .destroy = destroy,
};
