/*
 * rule_replicas.c - rules about equal tensors: batches that repeat, replicas that part.
 */
#include "rules/builtin/builtin.h"
#include "rules/builtin/program_walk.h"
#include "rules/context.h"

#include "base/memory.h"

#include <stdio.h>
#include <string.h>

/* "Workers 0 and 1 have the same batch.", or of replicas of one worker or of two. */
static void report_replicas(sonde_rule_run *run, const sonde_rule_tensor *t, int a, int b,
                            const char *what)
{
    enum { WORKER = SONDE__RULES_WORKER };
    char who[128] = "";

    if (a / WORKER == b / WORKER) {
        (void)snprintf(who, sizeof who, "Replicas %d and %d", a % WORKER, b % WORKER);
    } else if (a % WORKER == 0 && b % WORKER == 0) {
        (void)snprintf(who, sizeof who, "Workers %d and %d", a / WORKER, b / WORKER);
    } else {
        (void)snprintf(who, sizeof who,
                       "Replica %d of worker %d and replica %d of worker %d", a % WORKER,
                       a / WORKER, b % WORKER, b / WORKER);
    }
    sonde__rule_report(run, t, SONDE__SURE(ERROR), "hash", 1.0, 0.0, NULL, "%s have %s.",
                       who, what);
}

/* --- DuplicateBatch ---------------------------------------------------------------- */

/*
 * DuplicateBatch - a batch is repeated, or two replicas get the same batch.
 *
 * Fires when an input is the same, bit for bit, as at the previous training step (not at
 * earlier ones: a few batches in a fixed order recur), or as on another replica at the
 * same step. Inputs that have never changed are ignored: training on one batch, or with
 * a constant input, is intended. Inputs of fewer than 32 elements and of bools are
 * ignored too: they can be equal by chance.
 *
 * Chance also repeats what has few possible values. So a repeat is reported where
 *     alone      no other input of the step that has ever changed differs (where one does,
 *                as noise that the program draws, a real input that has had DISTINCT
 *                values, all different, is reported after STREAK repeats, as a note);
 *     varied     the values are not all 0, nor all equal where they differed before: the
 *                flags of ended episodes, rare labels; and
 *     unlikely   p^repeats is below UNLIKELY, p being how often the input was the same as
 *                1 to PAST - 1 batches before the previous one. A batch of one, a tensor
 *                of few bits, and the first EARLY batches count as equal once more than
 *                they were: a name drawn from a small data set.
 *
 * Where the program has several optimizers, each may make a step with a batch.
 *
 * The program of a step tells more: random numbers that are drawn for each batch and are the
 * same each time; a loader with several batches that begins anew at each
 * step, and gives the same batch, of the first steps; and batches that come as often in a row
 * as the loader has workers, by the fact workers_repeat.
 *
 * Some programs use each batch several times on purpose (several updates for a rollout of
 * a policy, data that are loaded slowly): a note, as long as a batch is not repeated more
 * often than the first one of the run was; nothing, if losses need not fall, as those of a
 * policy. Evidence: hashes of inputs at both steps, else their vital signs. These are the same for all batches of one-hot rows and, except for
 * rounding, for all data in another order. If an input has a hash at some steps, its vital
 * signs count only once an extreme value, the number of zeros or a sum has differed.
 */

#define UNLIKELY 1e-6
#define BITS 256.0
#define ROUNDING 1e-4 /* of a sum; that of another order is below 1e-6 */

enum { PAST = 16, EARLY = 5, DISTINCT = 20, STREAK = 4 };

typedef struct duplicate_memory {
    sonde_vitals before;
    bool changed, hashed;
    bool told_apart;           /* by vital signs: two batches have other values */
    bool had_hash, had_vitals; /* at the step before */
    uint64_t hash,
        hash_before; /* of the first value of the step, and of the step before */
    int64_t hash_step, last;
    bool compared, same;           /* at this step */
    int64_t repeats;               /* of this batch so far */
    int64_t first;                 /* of the first batch of the run */
    bool varied;                   /* once, its elements were not all equal */
    bool empty;                    /* at this step, its values say nothing */
    uint64_t past[PAST];           /* the last batches; not their repeats */
    int64_t batches, pairs, equal; /* batches seen; compared with past ones; the same */
    int replica;
    int other;   /* a replica with the same value at this step, or -1 */
    bool parted; /* at this step, replicas differ */
} duplicate_memory;

typedef struct duplicate {
    int restarts; /* programs in a row whose loader has just begun */
} duplicate;

#define BATCH_PAIRS SONDE__WHEN(.first = 50, .every = 20, .row = 2, .row_every = 20)
static const sonde_rule_need duplicate_needs[] = {
    {"inputs", SONDE_HOW_VITALS | SONDE_HOW_HASH, false, SONDE__INPUTS, BATCH_PAIRS}};

static int duplicate_wants(sonde_rule_run *run, const sonde_tensor_info *info,
                           uint32_t id)
{
    (void)run;
    return sonde__builtin_is_input(info, id) && info->dtype != SONDE_BOOL &&
                   !sonde__builtin_is_small(info, 31)
               ? 0
               : SONDE_RULE_IGNORE;
}

static void duplicate_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                              const sonde_observation *observation)
{
    duplicate_memory *memory = tensor->memory;

    (void)run;
    if (observation->hash == 0) {
        return;
    }
    if (!memory->hashed || memory->hash_step != observation->at.global_step) {
        memory->hash_before = memory->hash;
        memory->hash = observation->hash;
        memory->hash_step = observation->at.global_step;
        memory->replica = observation->at.replica;
        memory->hashed = true;
        memory->other = -1;
        memory->parted = false;
    } else if (observation->at.micro_batch == 0 &&
               observation->at.replica != memory->replica) {
        if (observation->hash != memory->hash) {
            memory->parted = true;
        } else if (memory->other < 0) {
            memory->other = observation->at.replica;
        }
    }
}

/* Whether two sums of as many values differ by more than rounding, for sums of that size. */
static bool differ(double a, double b, double size)
{
    return fabs(a - b) > ROUNDING * size;
}

/* Whether two inputs of as many elements do not have the same ones in another order. */
static bool have_other_values(const sonde_vitals *a, const sonde_vitals *b)
{
    return a->count == b->count &&
           (a->min < b->min || a->min > b->min || a->max < b->max || a->max > b->max ||
            a->zero != b->zero || a->abs_min < b->abs_min || a->abs_min > b->abs_min ||
            differ(a->sum, b->sum, fmax(a->l1, b->l1)) ||
            differ(a->sumsq, b->sumsq, fmax(a->sumsq, b->sumsq)));
}

/* Compares an input with that of the previous step. */
static void compare(sonde_rule_run *run, sonde_rule_tensor *tensor)
{
    const int64_t now = sonde_rule_at(run)->global_step;
    duplicate_memory *memory = tensor->memory;
    const sonde_vitals *v = tensor->vitals;
    const bool has_hash = memory->hashed && memory->hash_step == now;
    const bool by_hash = has_hash && memory->had_hash;
    const bool by_vitals =
        v != NULL && memory->had_vitals && (!memory->hashed || memory->told_apart);
    const bool next =
        (has_hash || v != NULL) && sonde__builtin_steps_since(run, &memory->last) == 1;

    memory->compared = next && (by_hash || by_vitals);
    memory->same =
        memory->compared && (by_hash ? memory->hash == memory->hash_before
                                     : sonde__builtin_same_vitals(v, &memory->before));
    memory->told_apart = memory->told_apart || (v != NULL && memory->had_vitals && next &&
                                                have_other_values(v, &memory->before));
    if (has_hash || v != NULL) {
        memory->had_hash = has_hash;
        memory->had_vitals = v != NULL;
    }
    memory->empty = v != NULL && (v->nan == v->count ||
                                  (v->min == v->max && (memory->varied || v->zero > 0)));
    memory->varied = memory->varied || (v != NULL && v->min < v->max);
}

static uint64_t bits(double x)
{
    uint64_t result = 0;

    memcpy(&result, &x, sizeof result);
    return result;
}

/* Compares a batch that is not a repeat with those before the previous one. */
static void remember(sonde_rule_run *run, sonde_rule_tensor *tensor)
{
    duplicate_memory *memory = tensor->memory;
    const sonde_vitals *v = tensor->vitals;
    const bool by_hash =
        memory->hashed && memory->hash_step == sonde_rule_at(run)->global_step;
    uint64_t key = memory->hash;

    if (memory->same || (!by_hash && v == NULL)) {
        return;
    }
    if (!by_hash) {
        key =
            bits(v->sum) ^ (bits(v->sumsq) * 3) ^ (bits(v->min) * 5) ^ (bits(v->max) * 7);
    }
    for (int64_t i = 2; i <= PAST && i <= memory->batches; i++) {
        memory->pairs++;
        memory->equal += memory->past[(memory->batches - i) % PAST] == key;
    }
    memory->past[memory->batches++ % PAST] = key;
}

/* Whether a batch of this tensor has so few values that chance may repeat it. */
static bool is_small(const sonde_tensor_info *info, const sonde_vitals *v)
{
    double count = 1.0, values = 2.0;
    bool one = info->rank > 0 && info->shape[0] == 1;

    for (int i = 0; i < info->rank; i++) {
        count *= (double)info->shape[i];
        one = one || (i == 1 && info->rank == 3 && info->shape[i] == 1);
    }
    if (sonde_dtype_is_float(info->dtype)) {
        return one;
    }
    values = v != NULL ? fmax(v->max - v->min + 1.0, 1.0) : values;
    return one || count * log2(values) < BITS;
}

/* Whether chance does not explain the repeats of a batch. */
static bool is_unlikely(sonde_rule_run *run, const sonde_rule_tensor *tensor)
{
    const duplicate_memory *memory = tensor->memory;
    const bool more = memory->batches <= EARLY ||
                      is_small(sonde_rule_info(run, tensor->id), tensor->vitals);
    const double p =
        ((double)memory->equal + (more ? 1.0 : 0.0)) / ((double)memory->pairs + 1.0);

    return pow(fmin(p, 1.0), (double)memory->repeats) < UNLIKELY;
}

/* but: why this is a note; NULL: it is an error. */
static void report(sonde_rule_run *run, const sonde_rule_tensor *t, const char *but)
{
    sonde__rule_report(run, t, but ? SONDE__SURE(NOTE) : SONDE__SURE(ERROR), "hash", 1.0,
                       0.0, NULL, "It is bit for bit the batch of the previous step%s.",
                       but ? but : "");
}

/* Whether players that take turns, by the program, may each have got the batch. */
static bool is_shared(const sonde_rule_run *run, int64_t repeats)
{
    const sonde_program *program = sonde_rule_program(run, SONDE_MODE_TRAIN);

    return program != NULL && repeats < (int64_t)program->optimizer_count;
}

/* The whole batch is repeated. meant: no more often than the first one of the run was. A policy
 * makes several updates for a rollout. */
static void report_all(sonde_rule_run *run, const sonde_rule_tensor *t, bool meant)
{
    if (!meant || !sonde__rule_loss_may_rise(run)) {
        report(run, t, meant ? ", as often as the first batch of the run was" : NULL);
    }
}

/* Judges the repeats of an input. all: the other inputs are repeated, too. */
static void judge(sonde_rule_run *run, const sonde_rule_tensor *t, bool all)
{
    duplicate_memory *memory = t->memory;
    const bool real = sonde_dtype_is_float(sonde_rule_info(run, t->id)->dtype);

    memory->repeats = memory->same ? memory->repeats + 1 : 0;
    memory->first += memory->same && !memory->changed;
    if (memory->same && memory->changed && !memory->empty && is_unlikely(run, t) &&
        !is_shared(run, memory->repeats)) {
        if (all) {
            report_all(run, t, memory->repeats <= memory->first);
        } else if (real && memory->repeats >= STREAK && memory->equal == 0 &&
                   memory->batches >= DISTINCT) {
            report(run, t, ", though another input differs");
        }
    }
    memory->changed = memory->changed || (memory->compared && !memory->same);
    if (t->vitals != NULL) {
        memory->before = *t->vitals;
    }
}

/* Judges inputs that two replicas share at this step. */
static void judge_replicas(sonde_rule_run *run)
{
    const int64_t now = sonde_rule_at(run)->global_step;

    SONDE__EACH (run, t) {
        const duplicate_memory *memory = t->memory;

        if (memory->hashed && memory->hash_step == now && memory->parted) {
            return;
        }
    }
    SONDE__EACH (run, t) {
        const duplicate_memory *memory = t->memory;

        if (memory->hashed && memory->hash_step == now && memory->other >= 0 &&
            !memory->empty && sonde_dtype_is_float(sonde_rule_info(run, t->id)->dtype)) {
            report_replicas(run, t, memory->replica, memory->other, "the same batch");
        }
    }
}

static void step(sonde_rule_run *run)
{
    bool all = true;

    SONDE__EACH (run, t) {
        const duplicate_memory *memory = t->memory;

        compare(run, t);
        remember(run, t);
        all = all && (!memory->compared || !memory->changed || memory->same);
    }
    SONDE__EACH (run, t) {
        judge(run, t, all);
    }
    judge_replicas(run);
}

/* --- by the program */

/* A loader that begins again at each step. */
static void judge_restarts(sonde_rule_run *run, const sonde_program *program,
                           const sonde_program_event *batch)
{
    const double repeats = sonde_attribute_number(program->facts, "input_repeats", 0.0);
    const double count = sonde_attribute_number(batch->attributes, "batches", 0.0);
    duplicate *state = sonde_rule_state(run);

    state->restarts =
        sonde_attribute_number(batch->attributes, "first", 0.0) > 0.0 && count > 1.0
            ? state->restarts + 1
            : 0;
    if (state->restarts >= 2 && repeats >= 2.0 &&
        sonde_rule_found_at(run, "input", batch->place, SONDE_SEVERITY_ERROR, "repeats",
                            repeats, 0.0)) {
        sonde__builtin_text line;

        sonde_rule_say(
            run, "Iterate over the loader: for x, y in loader.",
            "The loader begins again at each step%s, and gives the first of its "
            "%.0f batches each time.",
            sonde__builtin_walk_line(program, batch->place, &line), count);
    }
}

/* The operation that draws random numbers of which a value is made; NULL: there is none. marks:
 * room. */
static const sonde_program_node *find_draw(const sonde_program *program, int value,
                                           bool *marks)
{
    marks[value] = true;
    sonde__builtin_walk_above(program, marks, false);
    for (size_t i = 0; i < program->node_count; i++) {
        const sonde_program_node *node = &program->nodes[i];

        if (node->output_count > 0 && marks[node->outputs[0]] && node->module < 0 &&
            sonde__builtin_walk_is(node->op,
                                   "randint rand randn randperm multinomial normal")) {
            return node;
        }
    }
    return NULL;
}

/* A batch that is drawn at random, and is the same each time. */
static void judge_draws(sonde_rule_run *run, const sonde_program *program)
{
    const double repeats = sonde_attribute_number(program->facts, "input_repeats", 0.0);
    const int floats = sonde_program_find(program, "input"),
              value = floats >= 0 ? floats : sonde_program_find(program, "input_ids");
    sonde__builtin_text line;

    if (repeats < (double)STREAK - 1.0 || value < 0) {
        return;
    }
    bool *marks = sonde__builtin_walk_marks(run, program);
    const sonde_program_node *draw =
        marks != NULL ? find_draw(program, value, marks) : NULL;
    if (draw != NULL &&
        sonde_rule_found_at(run, program->values[value].tensor, draw->place,
                            SONDE_SEVERITY_ERROR, "repeats", repeats, 0.0)) {
        sonde_rule_say(run, "Set the seed once, before the loop.",
                       "%s%s draws random numbers for each batch, and they are the same "
                       "each time: the batch has not changed for %.0f steps.",
                       draw->op, sonde__builtin_walk_line(program, draw->place, &line),
                       repeats);
    }
    sonde__free(marks);
}

static void duplicate_program(sonde_rule_run *run, const sonde_program *program)
{
    const sonde_program_event *batch =
        sonde__builtin_walk_event(program, 0, SONDE_EVENT_BATCH);

    if (!sonde__builtin_walk_trains(program)) {
        return;
    }
    judge_draws(run, program);
    if (batch == NULL) {
        return;
    }
    judge_restarts(run, program, batch);
    if (sonde_attribute_number(program->facts, "workers_repeat", 0.0) > 0.0 &&
        sonde_rule_found_at(run, "input", batch->place, SONDE_SEVERITY_ERROR, "workers",
                            sonde_attribute_number(batch->attributes, "num_workers", 0.0),
                            1.0)) {
        sonde_rule_say(
            run,
            "Seed the generators of NumPy and the like by worker_init_fn, and split the "
            "data of an IterableDataset by get_worker_info().",
            "Each batch comes %.0f times in a row, once from each worker of the loader: they "
            "read the same data, or draw the same random numbers.",
            sonde_attribute_number(batch->attributes, "num_workers", 0.0));
    }
}

const sonde_rule sonde__builtin_duplicate_batch = {
    .abi = SONDE_RULE_ABI,
    .name = "DuplicateBatch",
    .summary = "a batch is repeated, or two replicas get the same batch",
    .condition =
        "An input that has changed before equals that of the previous training step or of another replica, and chance does not explain it. "
        "Chance explains an input whose elements are all 0, or that was often the same at earlier steps. It also explains an input if another input differs, unless only this one is repeated often: then the finding is a note. "
        "The finding is also a note if a batch is repeated no more often than the first batch of the run, and nothing if losses need not fall as well (several updates for a rollout). "
        "By the program: a loader begins again at each step and gives the same batch, each of its workers gives the same batches, or random numbers that are drawn for each batch are the same each time.",
    .advice = "Check the loader: shuffling, the seeds of its workers, and sharding.",
    SONDE_RULE_NEEDS(duplicate_needs),
    .modes = SONDE__TRAIN,
    .state_size = sizeof(duplicate),
    .tensor_size = sizeof(duplicate_memory),
    .wants = duplicate_wants,
    .observe = duplicate_observe,
    .step = step,
    .program = duplicate_program,
};

/* --- ReplicaDivergence ------------------------------------------------------------- */

/*
 * ReplicaDivergence - a parameter differs between replicas (or workers) at the same step.
 *
 * Fires when its hash differs from that of the first replica seen at the step. A replica
 * that misses an all-reduce differs in all of its parameters, so parameters of up to
 * SMALL elements are hashed at every step, and larger ones at the steps with raw values.
 * Evidence: hashes of parameters on at least two replicas. Shards, which differ from
 * worker to worker (SONDE_NOTE_SHARD), are left out.
 */

typedef struct divergence {
    bool compared;
    bool differs; /* by recorded hashes, which tell the step */
} divergence;

typedef struct divergence_memory {
    uint64_t hash;
    int64_t step;
    int replica;
    bool hashed;
} divergence_memory;

enum { SMALL = 1024 };

static const sonde_rule_need divergence_needs[] = {
    {"small parameters", SONDE_HOW_HASH, true, SONDE__PARAMETERS, SONDE__OFTEN},
    {"parameters", SONDE_HOW_HASH, true, SONDE__PARAMETERS, SONDE__SELDOM}};

static int divergence_wants(sonde_rule_run *run, const sonde_tensor_info *info,
                            uint32_t id)
{
    const int need = sonde__builtin_wants_role(run, info, id);

    if (strncmp(info->note, SONDE_NOTE_SHARD, sizeof SONDE_NOTE_SHARD - 1) == 0) {
        return SONDE_RULE_IGNORE;
    }
    return need == 0 && !sonde__builtin_is_small(info, SMALL) ? 1 : need;
}

static void divergence_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                               const sonde_observation *observation)
{
    divergence *state = sonde_rule_state(run);
    divergence_memory *memory = tensor->memory;

    if (!memory->hashed || memory->step != observation->at.global_step) {
        *memory = (divergence_memory){observation->hash, observation->at.global_step,
                                      observation->at.replica, true};
    } else if (observation->at.replica != memory->replica) {
        state->compared = true;
        if (observation->hash != memory->hash) {
            state->differs = true;
            report_replicas(run, tensor, memory->replica, observation->at.replica,
                            "different values");
        }
    }
}

/* --- by the program: what its processes have compared while it ran */

/* What differs, by the fact replicas_kind. */
static const char *kind_of(const sonde_program *program)
{
    return sonde_attribute_text(program->facts, "replicas_kind");
}

/* Processes that share no gradient. */
static void say_alone(sonde_rule_run *run, int first, int other, double count,
                      double step)
{
    sonde_rule_say(
        run,
        "Wrap the model in DistributedDataParallel, or average the gradients of all "
        "parameters before each step. Independent models need no process group.",
        "Processes %d and %d began with the same values, and %.0f parameters differ at each "
        "step up to training step %.0f: their gradients are not averaged.",
        first, other, count, step);
}

static void say_parted(sonde_rule_run *run, int first, int other, double count,
                       double step)
{
    sonde_rule_say(
        run,
        "Look for what one process alone does: a change of a weight, a layer whose "
        "gradient is not averaged, a model that is changed after it was wrapped.",
        "Processes %d and %d have different values before training step %.0f, though they "
        "average gradients%s.",
        first, other, step, count > 1.0 ? " (other parameters differ, too)" : "");
}

static void say_start(sonde_rule_run *run, int first, int other)
{
    sonde_rule_say(run,
                   "Begin with the same values everywhere: the same seed, or a broadcast "
                   "of the parameters.",
                   "Processes %d and %d began with different values, though their "
                   "gradients are averaged.",
                   first, other);
}

static void divergence_program(sonde_rule_run *run, const sonde_program *program)
{
    const char *name = sonde_attribute_text(program->facts, "replicas_differ");
    const int first = (int)sonde_attribute_number(program->facts, "replicas_first", 0.0);
    const int other = (int)sonde_attribute_number(program->facts, "replicas_other", 1.0);
    const double count = sonde_attribute_number(program->facts, "replicas_count", 1.0);
    const double step = sonde_attribute_number(program->facts, "replicas_step", 0.0);
    const bool alone = strcmp(kind_of(program), "alone") == 0;
    divergence *state = sonde_rule_state(run);

    if (sonde_attribute_number(program->facts, "replicas_compared", 0.0) > 0.0) {
        state->compared = true;
        sonde__rule_judged_program(run);
    }
    if (name[0] == '\0' || state->differs ||
        !sonde_rule_found_at(run, name, sonde_program_place_of(program, name),
                             alone ? SONDE_SEVERITY_WARNING : SONDE_SEVERITY_ERROR,
                             "processes", count, 0.0)) {
        return;
    }
    if (alone) {
        say_alone(run, first, other, count, step);
    } else if (strcmp(kind_of(program), "start") == 0) {
        say_start(run, first, other);
    } else {
        say_parted(run, first, other, count, step);
    }
}

static void finish(sonde_rule_run *run)
{
    const divergence *state = sonde_rule_state(run);

    if (!state->compared) {
        sonde_rule_lacked(run, "no parameter was recorded on two replicas");
    }
}

const sonde_rule sonde__builtin_replica_divergence = {
    .abi = SONDE_RULE_ABI,
    .name = "ReplicaDivergence",
    .summary = "replicas have different parameters",
    .condition =
        "The hash of a parameter differs between replicas at the same step. Shards "
        "of a distributed parameter are not compared. While a program runs, its processes "
        "compare the hashes at a few steps through the store of their group.",
    .advice =
        "Check that every replica takes part in the all-reduce and starts from the "
        "same values. A parameter of which each process has a separate part is not "
        "compared if it is a DTensor or its attribute tensor_model_parallel is True (in C: "
        "if its note begins with SONDE_NOTE_SHARD).",
    SONDE_RULE_NEEDS(divergence_needs),
    .state_size = sizeof(divergence),
    .tensor_size = sizeof(divergence_memory),
    .wants = divergence_wants,
    .observe = divergence_observe,
    .program = divergence_program,
    .finish = finish,
};
