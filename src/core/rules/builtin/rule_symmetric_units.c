/*
 * SymmetricUnits - units of a layer have the same weights, and so learn the same.
 *
 * Judges weights (units, ...) of at least two units, at their first `steps` observed
 * steps. Fires when
 *     rows      at least `share` percent of the rows equal another row that is not all 0.
 *               Rows of one magnitude (an update by the sign of the gradient, from 0) meet
 *               by chance: they have to equal the same row at `patience` looks in a row.
 *               Rows of fewer than eight elements do so for many steps and are not judged;
 *               or
 *     constant  the standard deviation of the elements is less than a hundredth of their
 *               mean (random weights have a mean near 0). Updates move elements apart, so
 *               this shows at the first step. Weights of a normalization, and others whose
 *               names say that they scale channels, begin at 1 on purpose, and so does the
 *               scale of random weights beside a weight of the same shape in its module; or
 *     zero      the weight and its gradient are all 0: at once if that holds for half of
 *               all weights, else after `patience` steps. The last layer of a residual
 *               branch, or a head, may begin at 0: its gradient is not 0, or, where both
 *               are 0, not for long. Without gradients, a weight has `patience` steps to
 *               leave 0.
 * Units of a weight of more than two dimensions may have separate inputs. If the module has
 * biases of as many dimensions that agree in all but the last, and these differ, units are
 * not symmetric, whatever their weights.
 * A weight without a gradient, where others have one, is frozen and not judged.
 *
 * Evidence: raw weights for rows; vital signs of weights and gradients for the rest.
 */
#include "rules/builtin/builtin.h"
#include "rules/context.h"

#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

enum { WEIGHTS, GRADIENTS, LOSSES }; /* needs */
enum { LASTING = 4, MOVES = 3, LONG = 8 /* shorter rows are equal by chance */ };
#define ALIKE 1e-4 /* of magnitudes */

typedef struct symmetric {
    double share;
    int64_t patience, steps, looked;
    size_t linked;
} symmetric;

typedef struct row {
    uint64_t hash; /* 0: a row of zeros */
    uint32_t index;
} row;

/* Of a tensor. */
typedef struct tensor_memory {
    row *rows;
    uint32_t *same;  /* the first equal row at the look before, plus 1; 0: none */
    int64_t lasting; /* looks in a row at which enough rows were equal to the same ones */
    size_t gradient;
    size_t first; /* of the weights of its module and shape; SIZE_MAX: it has no module */
    size_t bias;  /* for each of its units; SIZE_MAX: none */
    int64_t varied; /* of the first: the last look at which the elements of one differ */
    bool stuck;     /* suspected as one of half of all weights */
    bool free;      /* its rows are no units */
    int64_t seen_raw, seen_vitals, zero;
    double percent; /* of this step; -1: no raw value, or too few of one magnitude */
    double equal;   /* of rows of this step, whatever their size; -1: no raw value */
    double before;  /* the sum of squares at the look before */
    int64_t moves;  /* looks at which it had changed, since it is suspected */
} tensor_memory;

SONDE__TERMS(alike_units, NOTHING, ERROR, ERROR, NOTE, NOTE);
/* Half of all weights are 0 and get no gradient. */
SONDE__TERMS(zero_units, NOTHING, ERROR, ERROR, NOTE, ERROR);
/* Rows of a parameter that is no layer's: of samples, slots, codes. */
SONDE__TERMS(alike_rows, NOTHING, NOTE, NOTE, NOTE, NOTE);

static const sonde_rule_param symmetric_params[] = {
    SONDE__REAL(symmetric, share, "50", 0, 100,
                "smallest percentage of equal rows that counts"),
    SONDE__COUNT(symmetric, patience, "5", 1, 1e9,
                 "number of observed steps for which a weight may be all zeros"),
    SONDE__COUNT(symmetric, steps, "20", 1, 1e18,
                 "number of observed steps to judge, from the start"),
};
static const sonde_rule_need symmetric_needs[] = {
    {"weights", SONDE_HOW_VITALS | SONDE_HOW_RAW, false, SONDE__WEIGHTS, SONDE__SELDOM},
    {"gradients", SONDE_HOW_VITALS, true, SONDE__GRADIENTS, SONDE__AT_TIMES},
    {"losses", SONDE_HOW_VITALS, true, SONDE__LOSSES, SONDE__EACH_STEP}};

/* --- rows of a weight that equal others -------------------------------------------- */

/*
 * A row is compared by a hash of its elements. Rows that are suspected already are compared
 * after rounding, since equal units part by rounding errors. Rows of one magnitude (an update
 * by the sign of the gradient, from 0) meet by chance: they have to equal the same row at
 * `patience` looks in a row.
 */

static int by_hash(const void *a, const void *b)
{
    const row *x = a, *y = b;

    return x->hash != y->hash ? (x->hash > y->hash) - (x->hash < y->hash)
                              : (x->index > y->index) - (x->index < y->index);
}

/* Percent of rows that equal another; a row of zeros has the hash 0 and equals none.
 * *lasting: percent of those that equalled the same row at the look before. */
static double duplicates(tensor_memory *memory, size_t count, double *lasting)
{
    const row *rows = memory->rows;
    size_t same = 0, again = 0;

    qsort(memory->rows, count, sizeof *rows, by_hash);
    for (size_t i = 0; i < count;) {
        size_t end = i + 1;

        while (end < count && rows[end].hash == rows[i].hash) {
            end++;
        }
        for (size_t k = i; k < end; k++) {
            const bool equal = rows[i].hash != 0 && end - i > 1;
            const uint32_t first = equal ? rows[i].index + 1 : 0;

            same += equal;
            again += equal && memory->same[rows[k].index] == first;
            memory->same[rows[k].index] = first;
        }
        i = end;
    }
    *lasting = 100.0 * (double)again / (double)count;
    return 100.0 * (double)same / (double)count;
}

/* Rounded to a thousandth: rows of equal units part by rounding errors. */
static double rounded(double value)
{
    int exponent = 0;
    const double part = frexp(value, &exponent);

    return isfinite(value) ? ldexp(round(part * 1024.0), exponent) : value;
}

/* sonde_rule.observe: compares the rows of a weight. */
static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *observation)
{
    const symmetric *state = sonde_rule_state(run);
    const sonde_tensor_info *info = sonde_rule_info(run, tensor->id);
    tensor_memory *memory = tensor->memory;
    const int64_t rows = info->shape[0];
    double values[SONDE__CHUNK];
    double nonzero = 0.0, sum = 0.0, square = 0.0, lasting = 0.0;
    int64_t at = 0;
    const bool rough = sonde__rule_suspects(run, tensor);

    if (observation->view == NULL || observation->view->rank < 2 ||
        observation->view->shape[0] != rows || observation->at.micro_batch != 0 ||
        observation->at.replica != 0 || memory->seen_raw >= state->steps ||
        sonde_view_count(observation->view) == 0) {
        return;
    }
    memory->seen_raw++;
    const int64_t length = sonde_view_count(observation->view) / rows;
    for (int64_t r = 0; r < rows; r++) {
        memory->rows[r] = (row){.index = (uint32_t)r};
    }
    sonde__builtin_reader reader = sonde__builtin_read(observation->view);
    for (size_t n = 0; (n = sonde__builtin_next(&reader, values)) > 0;) {
        for (size_t i = 0; i < n; i++, at++) {
            const double value =
                (rough ? rounded(values[i]) : values[i]) + 0.0; /* no -0 */
            uint64_t *hash = &memory->rows[at / length].hash, bits;

            memcpy(&bits, &value, sizeof bits);
            if (bits != 0 || *hash != 0) {
                *hash = (*hash ^ (bits + (uint64_t)(at % length))) *
                            UINT64_C(0x9E3779B97F4A7C15) +
                        1;
            }
            nonzero += values[i] != 0.0;
            sum += fabs(values[i]);
            square += values[i] * values[i];
        }
    }
    if (!isfinite(sum)) {
        return; /* NonFinite's */
    }
    const bool quick = sum * sum < (1.0 - ALIKE) * nonzero * square;
    memory->equal = duplicates(memory, (size_t)rows, &lasting);
    memory->lasting = lasting >= state->share ? memory->lasting + 1 : 0;
    if (length >= LONG && (quick || memory->lasting + 1 >= state->patience)) {
        memory->percent = memory->equal;
    }
}

/* --- other tensors of the module that explain equal units -------------------------- */

/*
 * Weights of a normalization, and the scale of random weights beside a weight of the same
 * shape in its module, begin at 1 on purpose. Units of a weight of more than two dimensions
 * may have inputs of their own: where the module has biases of as many dimensions that agree
 * in all but the last, and these differ, units are not symmetric.
 */

static tensor_memory *memory_at(sonde_rule_run *run, size_t i)
{
    return sonde__builtin_at(run, i)->memory;
}

/* Whether the elements of a weight are equal to within a hundredth. */
static bool is_constant(const sonde_vitals *w)
{
    return w->m2 * 1e4 < w->mean * w->mean * (double)w->count;
}

/* A weight, by the module that its name begins with. */
typedef struct member {
    const sonde_tensor_info *info;
    size_t length; /* of the module's name, with the dot */
    size_t index;
} member;

static int by_module(const void *a, const void *b)
{
    const member *x = a, *y = b;
    int order = (x->length > y->length) - (x->length < y->length);

    order = order != 0 ? order : strncmp(x->info->name, y->info->name, x->length);
    order = order != 0 ? order : x->info->rank - y->info->rank;
    return order != 0 ? order
                      : memcmp(x->info->shape, y->info->shape,
                               (size_t)x->info->rank * sizeof *x->info->shape);
}

/* Finds the weights of the same module and shape. */
static void link_twins(sonde_rule_run *run)
{
    size_t used = 0;
    member *members = sonde__calloc(sonde__builtin_count(run), sizeof *members);

    SONDE__EACH_OF (run, t, WEIGHTS) {
        const sonde_tensor_info *info = sonde_rule_info(run, t->id);
        const char *dot = strrchr(info->name, '.');

        if (members != NULL && dot != NULL) {
            members[used++] = (member){info, (size_t)(dot - info->name) + 1,
                                       sonde__builtin_index(run, t)};
        }
    }
    if (members == NULL) {
        sonde_rule_fail(run, "out of memory");
        return;
    }
    qsort(members, used, sizeof *members, by_module);
    for (size_t i = 0, head = 0; i < used; i++) {
        head = by_module(&members[head], &members[i]) == 0 ? head : i;
        memory_at(run, members[i].index)->first = members[head].index;
    }
    sonde__free(members);
}

/* The parts of a name such as module.matrices.3 or module.bias3: the lengths of the module
 * with its dot and of all before the number. */
typedef struct name_parts {
    size_t module, word;
} name_parts;

static name_parts split(const char *name)
{
    name_parts parts = {0, strlen(name)};

    while (parts.word > 0 && isdigit((unsigned char)name[parts.word - 1])) {
        parts.word--;
    }
    const size_t end =
        parts.word > 0 && name[parts.word - 1] == '.' ? parts.word - 1 : parts.word;
    for (parts.module = end; parts.module > 0 && name[parts.module - 1] != '.';) {
        parts.module--;
    }
    return parts;
}

/* Whether b, of biases, holds one for each of the units of a: of the same module, number
 * and dimensions, except the last one. */
static bool is_bias_for(const sonde_tensor_info *a, const sonde_tensor_info *b)
{
    const name_parts x = split(a->name), y = split(b->name);

    return a->rank == b->rank && a != b &&
           memcmp(a->shape, b->shape, (size_t)(a->rank - 1) * sizeof *a->shape) == 0 &&
           x.module == y.module && strncmp(a->name, b->name, x.module) == 0 &&
           strcmp(a->name + x.word, b->name + y.word) == 0;
}

/* Finds the weights that are biases of the units of others. */
static void link_biases(sonde_rule_run *run)
{
    SONDE__EACH_OF (run, bias, WEIGHTS) {
        const sonde_tensor_info *info = sonde_rule_info(run, bias->id);

        if (info->rank <= 2 ||
            sonde__strcasestr(info->name + split(info->name).module, "bias") == NULL) {
            continue;
        }
        SONDE__EACH_OF (run, t, WEIGHTS) {
            if (is_bias_for(sonde_rule_info(run, t->id), info)) {
                ((tensor_memory *)t->memory)->bias = sonde__builtin_index(run, bias);
            }
        }
    }
}

/* Whether each unit of a weight has a bias of its own, and these differ. */
static bool has_biases(sonde_rule_run *run, const tensor_memory *memory)
{
    const sonde_vitals *v = sonde__builtin_seen_at(run, memory->bias);

    return v != NULL && sonde__builtin_bad(v) == 0 && v->zero < v->count &&
           !is_constant(v);
}

/* --- the rule ---------------------------------------------------------------------- */

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    return need == LOSSES || (info->rank >= 2 && info->shape[0] >= 2) ? need
                                                                      : SONDE_RULE_IGNORE;
}

/* Whether rows of a weight are units: it is in a module, or its name says that it is a
 * layer's. Others hold samples, slots, codes. */
static bool is_of_layer(const sonde_tensor_info *info)
{
    static const char *const words[] = {"w",    "kernel", "proj",   "layer", "fc",
                                        "conv", "dense",  "linear", "hidden"};

    return sonde__builtin_has_word(info->name, words, SONDE_COUNT_OF(words)) ||
           strchr(info->name, '.') != NULL;
}

static sonde_err bind(sonde_rule_run *run, size_t i, sonde_diag *diag)
{
    const sonde_rule_tensor *t = sonde__builtin_at(run, i);
    const sonde_tensor_info *info = sonde_rule_info(run, t->id);
    tensor_memory *memory = t->memory;

    memory->percent = memory->equal = -1.0;
    memory->first = memory->bias = SIZE_MAX;
    if (t->need != WEIGHTS) {
        return SONDE_OK;
    }
    memory->free = !is_of_layer(info);
    memory->rows = sonde__calloc((size_t)info->shape[0], sizeof *memory->rows);
    memory->same = sonde__calloc((size_t)info->shape[0], sizeof *memory->same);
    return memory->rows != NULL && memory->same != NULL
               ? SONDE_OK
               : sonde__fail_nomem(diag, "SymmetricUnits");
}

static const sonde__builtin_link links[] = {
    {WEIGHTS, GRADIENTS, offsetof(tensor_memory, gradient), NULL}};

/* The number of weights that are 0 with a gradient of 0. Sets *trained to the number that
 * have a gradient, and notes the modules and shapes with a weight whose elements differ. */
static size_t survey(sonde_rule_run *run, size_t *trained)
{
    const symmetric *state = sonde_rule_state(run);
    size_t stuck = 0;

    SONDE__EACH_SEEN (run, t, WEIGHTS) {
        const tensor_memory *memory = t->memory;
        const sonde_vitals *w = t->vitals;
        const sonde_vitals *g = sonde__builtin_seen_at(run, memory->gradient);

        sonde__rule_count_comparison(run);
        *trained += g != NULL;
        stuck += g != NULL && w->zero == w->count && g->zero == g->count;
        if (memory->first != SIZE_MAX && !is_constant(w)) {
            memory_at(run, memory->first)->varied = state->looked;
        }
    }
    return stuck;
}

/* True if vital signs show that all units are equal; most: half of all weights are stuck.
 * */
static bool alike(sonde_rule_run *run, const sonde_rule_tensor *t, bool gradients,
                  bool most)
{
    const symmetric *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const sonde_vitals *w = t->vitals;
    const sonde_vitals *g = sonde__builtin_seen_at(run, memory->gradient);

    if (w->count < 2 || sonde__builtin_bad(w) > 0 || (gradients && g == NULL)) {
        return false; /* or frozen */
    }
    if (w->zero == w->count) {
        memory->zero = g == NULL || g->zero == g->count ? memory->zero + 1 : 0;
        return (most && memory->zero > 0) || memory->zero >= state->patience;
    }
    memory->zero = 0;
    return is_constant(w) && !sonde__builtin_is_scale(run, sonde_rule_info(run, t->id));
}

/* Follows a suspicion: rows that stay equal while the weight moves are sure to be a fault;
 * rows that part, of elements that are no longer alike, are none. Else the loss decides.
 * equal: percent of equal rows; -1: unknown. */
static void follow(sonde_rule_run *run, const sonde_rule_tensor *t, double equal)
{
    const symmetric *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const bool zero = v != NULL && v->zero == v->count;

    memory->moves += v != NULL && v->sumsq != memory->before;
    memory->before = v != NULL ? v->sumsq : memory->before;
    if (memory->stuck) {
        return; /* it will leave 0: whether that was in time, the loss says */
    }
    if (memory->lasting >= LASTING && memory->moves >= MOVES) {
        sonde__rule_confirm(run, t,
                            memory->free ? SONDE_SEVERITY_NOTE : SONDE_SEVERITY_ERROR);
    } else if (equal >= 0.0 && equal < state->share && !(zero && memory->zero > 0) &&
               (v == NULL || !is_constant(v))) {
        sonde__rule_clear(run, t);
    }
}

/* Judges a weight. trained: weights that have a gradient; most: half of them are stuck. */
static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, size_t trained,
                  bool most)
{
    const symmetric *state = sonde_rule_state(run);
    tensor_memory *memory = t->memory;
    const sonde_vitals *v = t->vitals;
    const double equal = memory->equal;
    double percent = memory->percent;

    memory->percent = memory->equal = -1.0;
    if (trained > 0 && sonde__builtin_seen_at(run, memory->gradient) == NULL) {
        memory->seen_vitals += v != NULL; /* it is frozen */
        sonde__rule_withdraw(run, t);
        return;
    }
    if (v != NULL && memory->seen_vitals < state->steps) {
        memory->seen_vitals++;
        percent = alike(run, t, trained > 0, most) ? 100.0 : percent;
    }
    const bool stuck = most && memory->zero > 0;
    const bool has_twin = memory->first != SIZE_MAX &&
                          memory_at(run, memory->first)->varied == state->looked;

    if (has_biases(run, memory)) {
        sonde__rule_withdraw(run, t);
    } else if (sonde__rule_suspects(run, t)) {
        follow(run, t, equal);
    } else if (percent >= state->share && percent > 0.0 &&
               !(v != NULL && is_constant(v) && has_twin) &&
               sonde__rule_report(
                   run, t,
                   memory->free ? &alike_rows
                   : stuck      ? &zero_units
                                : &alike_units,
                   "percent_equal", percent, state->share, NULL,
                   "%.3g %% of its units have the same weights as another unit%s: they "
                   "compute and learn the same.",
                   percent, memory->zero > 0 ? " (all 0, without a gradient)" : "")) {
        memory->stuck = stuck;
    }
}

static void step(sonde_rule_run *run)
{
    symmetric *state = sonde_rule_state(run);
    size_t trained = 0;

    if (sonde__builtin_relink(run, &state->linked, links, SONDE_COUNT_OF(links))) {
        link_twins(run);
        link_biases(run);
    }
    if (state->looked >= state->steps && sonde__rule_only_losses(run) &&
        !sonde__rule_any_waits(run)) {
        return; /* no suspicion is followed */
    }
    const bool early = ++state->looked <= state->steps;
    const size_t stuck = survey(run, &trained);
    SONDE__EACH_OF (run, t, WEIGHTS) {
        judge(run, t, early ? trained : 0, early && stuck > 0 && 2 * stuck >= trained);
    }
}

static void destroy(sonde_rule_run *run)
{
    sonde__builtin_free_each(run, offsetof(tensor_memory, rows));
    sonde__builtin_free_each(run, offsetof(tensor_memory, same));
}

const sonde_rule sonde__builtin_symmetric_units = {
    SONDE__RULE("SymmetricUnits", symmetric),
    .summary = "units of a layer have the same weights",
    .condition =
        "Any of these holds: (1) at least `share` % of the rows of a weight, of 8 or more elements each, equal another row that is not 0; "
        "(2) all elements are equal to within a hundredth, unless the module has another weight of that shape; (3) the weight and its gradient are 0. "
        "The finding waits for training: it is dropped if training goes well or the rows become different, and is an error if rows stay equal while the weight moves. "
        "It is a note for a parameter without a module whose name is not that of a layer: its rows may be samples. "
        "The rule is silent for a weight without a gradient while others have one. It is also silent if each unit has a separate bias (with as many dimensions as the weight) and these biases differ.",
    .advice = "Draw the initial weights at random: units that start equal stay equal.",
    .modes = SONDE__TRAIN,
    .tensor_size = sizeof(tensor_memory),
    .wants = wants,
    .bind = bind,
    .observe = observe,
    .step = step,
    .destroy = destroy,
};
