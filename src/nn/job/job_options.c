/*
 * job_options.c - the table of a training's options, and how their values are read.
 *
 * A new option is one row here and one field of sonde_nn_job_info.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/number.h"

#include <sonde/nn/job.h>

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FIELD(member)                                                                    \
    .field = #member, .offset = offsetof(sonde_nn_job_info, member),                     \
    .size = sizeof(((sonde_nn_job_info *)NULL)->member)
#define COUNT(low, high, text)                                                           \
    .kind = SONDE_NN_OPTION_COUNT, .value = "N", .least = (low), .most = (high),         \
    .standard = (text)
#define REAL(low, high, text)                                                            \
    .kind = SONDE_NN_OPTION_REAL, .value = "X", .least_real = (low), .below = (high),    \
    .standard = (text)
#define ANY_REAL(text)                                                                   \
    REAL(-HUGE_VAL, HUGE_VAL, text) /* checked with the others of its section */
#define CHOICE(words, text)                                                              \
    .kind = SONDE_NN_OPTION_CHOICE, .value = (words), .standard = (text)
#define TEXT(argument) .kind = SONDE_NN_OPTION_TEXT, .value = (argument)
#define TEXTS(argument) .kind = SONDE_NN_OPTION_TEXTS, .value = (argument)
#define FLAG .kind = SONDE_NN_OPTION_FLAG

/* clang-format off */
static const sonde_nn_option rows[] = {
    {"data", "name", "data_name", TEXT("NAME"),
     FIELD(data_name), .help = "train on fashion-mnist, mnist, fashion-synth or text-synth"},
    {"data", "path", "data", 'd', true, TEXT("PATH"), FIELD(data_path),
     .help = "read the data set from this folder or file (default: SONDE_DATA, cache, download)"},
    {"data", "mean", "mean", REAL(-HUGE_VAL, HUGE_VAL, "0.5"),
     FIELD(mean), .help = "subtract this from pixels of 0 to 1"},
    {"data", "std", "std", REAL(1e-30, HUGE_VAL, "0.5"),
     FIELD(std), .help = "divide pixels by this after subtracting the mean"},
    {"data", "inputs", "data_inputs", TEXTS("ARRAY"), FIELD(data_inputs),
     .help = "use this array or column of a table as an input; repeatable"},
    {"data", "target", "data_target", TEXT("NAME"), FIELD(data_target),
     .help = "use this array or column of a table as the target"},
    {"data", "test_share", "test_share", REAL(1e-6, 1, "0.1"), FIELD(test_share),
     .help = "hold out this share as the test set of data without one"},
    {"data", "split_seed", "split_seed", COUNT(0, INT64_MAX, "0"), FIELD(split_seed),
     .help = "seed the choice of the held-out samples"},
    {"data", "synthetic", "synthetic", COUNT(0, 1 << 24, "0"), FIELD(synthetic),
     .help = "train on N random samples, for timing; 0: on the data"},
    {"data", "no_standardize", "no_standardize", FLAG, FIELD(no_standardize),
     .help = "do not standardize the columns of a table"},
    {"data", "tokens", "tokens", CHOICE("bytes|bpe", "bytes"), FIELD(tokens),
     .help = "split text into bytes or byte pairs (bpe)"},
    {"data", "vocabulary", "vocabulary", COUNT(0, SONDE_NN_TOKENS_MAX, "0"), FIELD(vocabulary),
     .help = "learn N byte-pair tokens from the training text; 0: 512"},
    {"data", "tokenizer", "tokenizer", TEXT("PATH"), FIELD(tokenizer),
     .help = "read this tokenizer.json, or its folder, instead of learning tokens"},
    {"data", "validation", "validation", REAL(0, 1, "0"), FIELD(validation),
     .help = "hold out this share of the training samples to evaluate epochs"},

    {"optimizer", "kind", "optimizer", CHOICE("sgd|adam|adamw|rmsprop|adagrad|lamb", NULL),
     FIELD(optimizer.kind), .help = "use this optimizer, with its defaults"},
    {"optimizer", "learning_rate", "learning_rate", 'l', ANY_REAL(NULL),
     FIELD(optimizer.learning_rate), .help = "set the learning rate"},
    {"optimizer", "weight_decay", "weight_decay", ANY_REAL(NULL),
     FIELD(optimizer.weight_decay), .help = "add an L2 penalty; adamw: decay weights directly"},
    {"optimizer", "momentum", "momentum", ANY_REAL(NULL),
     FIELD(optimizer.momentum), .help = "set the momentum (sgd, rmsprop)"},
    {"optimizer", "dampening", "dampening", ANY_REAL(NULL),
     FIELD(optimizer.dampening), .help = "damp the momentum (sgd)"},
    {"optimizer", "nesterov", "nesterov", FLAG,
     FIELD(optimizer.nesterov), .help = "use Nesterov momentum (sgd)"},
    {"optimizer", "beta1", "beta1", ANY_REAL(NULL),
     FIELD(optimizer.beta1), .help = "set the decay of the mean (adam, adamw, lamb)"},
    {"optimizer", "beta2", "beta2", ANY_REAL(NULL),
     FIELD(optimizer.beta2), .help = "set the decay of the mean of squares (adam, adamw, lamb)"},
    {"optimizer", "eps", "eps", ANY_REAL(NULL),
     FIELD(optimizer.eps), .help = "add this to denominators (all but sgd)"},
    {"optimizer", "alpha", "alpha", ANY_REAL(NULL),
     FIELD(optimizer.alpha), .help = "smooth the mean of squares with this factor (rmsprop)"},
    {"optimizer", "centered", "centered", FLAG,
     FIELD(optimizer.centered), .help = "divide by the variance, not the mean of squares (rmsprop)"},
    {"optimizer", "tf_variant", "tf_variant", FLAG,
     FIELD(optimizer.tf_variant), .help = "compute as TensorFlow does (rmsprop)"},
    {"optimizer", "lr_decay", "lr_decay", ANY_REAL(NULL),
     FIELD(optimizer.lr_decay), .help = "decay the learning rate by this (adagrad)"},
    {"optimizer", "initial_accumulator_value", "initial_accumulator_value", ANY_REAL(NULL),
     FIELD(optimizer.initial_accumulator_value), .help = "start the sum of squares at this (adagrad)"},
    {"optimizer", "max_weight_norm", "max_weight_norm", ANY_REAL(NULL),
     FIELD(optimizer.max_weight_norm), .help = "limit the norm of weights in the trust ratio (lamb)"},
    {"optimizer", "no_bias_correction", "no_bias_correction", FLAG,
     FIELD(optimizer.no_bias_correction), .help = "disable the bias correction of moments (lamb)"},
    {"optimizer", "clip_value", "clip_value", ANY_REAL(NULL),
     FIELD(optimizer.clip_value), .help = "clip each element of the gradients; 0: off"},
    {"optimizer", "clip_norm", "clip_norm", ANY_REAL(NULL),
     FIELD(optimizer.clip_norm), .help = "clip the norm of all gradients; 0: off"},
    {"optimizer", "no_bias_decay", "no_bias_decay", FLAG,
     FIELD(optimizer.no_bias_decay), .help = "do not decay biases and the weights of norms"},
    {"optimizer", "velocity_scaling", "velocity_scaling", ANY_REAL(NULL),
     FIELD(optimizer.velocity_scaling), .help = "store the velocity multiplied by this (sgd)"},
    {"optimizer", "loss_scaling", "loss_scaling", ANY_REAL(NULL), FIELD(optimizer.loss_scaling),
     .help = "multiply the loss by this for the backward pass; 0: off"},
    {"optimizer", "automatic_loss_scaling", "automatic_loss_scaling", FLAG,
     FIELD(optimizer.automatic_loss_scaling),
     .help = "adapt the loss scale, starting at loss_scaling (65536)"},
    {"optimizer", "growth_factor", "growth_factor", REAL(1.001, HUGE_VAL, NULL),
     FIELD(optimizer.growth_factor), .help = "grow the loss scale by this factor (2)"},
    {"optimizer", "backoff_factor", "backoff_factor", REAL(1e-6, 1, NULL),
     FIELD(optimizer.backoff_factor), .help = "shrink the loss scale by this factor at infinities (0.5)"},
    {"optimizer", "growth_interval", "growth_interval", COUNT(1, INT32_MAX, NULL),
     FIELD(optimizer.growth_interval), .help = "grow the loss scale after N steps without infinities (2000)"},
    {"optimizer", "schedule", "schedule", CHOICE("constant|step|cosine|one_cycle|table", "constant"),
     FIELD(schedule.kind), .help = "change the learning rate by this schedule"},
    {"optimizer", "warmup", "warmup", COUNT(0, INT64_MAX, "0"),
     FIELD(schedule.warmup), .help = "raise the learning rate over N steps before the schedule"},
    {"optimizer", "schedule_every", "schedule_every", COUNT(1, INT64_MAX, "1000"),
     FIELD(schedule.every), .help = "change the rate every N steps (schedule step)"},
    {"optimizer", "gamma", "gamma", REAL(0, HUGE_VAL, "0.1"),
     FIELD(schedule.gamma), .help = "multiply the rate by this at each change (schedule step)"},
    {"optimizer", "schedule_end", "schedule_end", REAL(0, HUGE_VAL, "0"),
     FIELD(schedule.end), .help = "end at this share of the first rate (schedule cosine)"},
    {"optimizer", "rates", "rates", TEXTS("STEP=RATE"), FIELD(rates),
     .help = "set the rate from this step on (schedule table); repeatable"},

    {"options", "epochs", "epochs", 'e', COUNT(0, 1000000, "1"),
     FIELD(epochs), .help = "train N epochs"},
    {"options", "batch_size", "batch_size", 'b', COUNT(1, 1 << 20, "32"),
     FIELD(options.batch_size), .help = "put N samples in a micro-batch"},
    {"options", "eval_batch_size", "eval_batch_size", COUNT(1, 1 << 20, "32"),
     FIELD(eval_batch_size), .help = "evaluate batches of at most N samples"},
    {"options", "eval_every", "eval_every", COUNT(0, 1000000, "1"),
     FIELD(eval_every), .help = "evaluate every N epochs; 0: only at the end"},
    {"options", "eval_samples", "eval_samples", COUNT(0, INT64_MAX, "1024"),
     FIELD(eval_samples),
     .help = "evaluate at most N samples between epochs; 0: all"},
    {"options", "seed", "seed", 's', COUNT(0, INT64_MAX, "0"),
     FIELD(seed), .variable = "SONDE_RANDOM_SEED",
     .help = "seed the initial weights and the order of samples"},
    {"options", "device_iterations", "device_iterations", COUNT(1, 1 << 20, "1"),
     FIELD(options.device_iterations), .help = "run N steps in each call"},
    {"options", "gradient_accumulation", "gradient_accumulation", COUNT(1, 1 << 20, "1"),
     FIELD(options.gradient_accumulation), .help = "run N micro-batches per step"},
    {"options", "replicas", "replicas", COUNT(1, 1024, "1"),
     FIELD(options.replicas), .help = "train N copies of the network that share each step"},
    {"options", "execution", "execution", CHOICE("pipelined|sharded|sequential", "pipelined"),
     FIELD(options.execution), .help = "run the blocks of a network in this way"},
    {"options", "reduction", "reduction", CHOICE("mean|sum", "mean"),
     FIELD(options.reduction), .help = "reduce the gradients of micro-batches in this way"},
    {"options", "floating_point_exceptions", "floating_point_exceptions", FLAG,
     FIELD(options.floating_point_exceptions),
     .help = "stop at the first op that produces a NaN or an infinity, and name it"},
    {"options", "dtype", "dtype", CHOICE("float32|bfloat16|float16", "float32"),
     FIELD(options.dtype), .help = "compute products (linear, conv, attention ...) in this dtype"},
    {"options", "loader_workers", "loader_workers", COUNT(-1, 1024, "-1"),
     FIELD(loader_workers), .help = "load samples with N threads; -1: automatic"},
    {"options", "threads", "threads", 't', COUNT(0, 1024, "0"),
     FIELD(options.threads), .help = "use at most N threads; 0: automatic"},
    {"options", "plan_cache", "plan_cache", TEXT("FOLDER"), FIELD(options.plan_cache),
     .help = "keep compiled plans in this folder (default: the user's cache)"},

    {"record", "path", "record", TEXT("RUN"),
     FIELD(record.path), .help = "record tensors and vital signs in this new folder, or s3://bucket/prefix"},
    {"record", NULL, "record_config", TEXT("FILE"), FIELD(record.config),
     .help = "record as this file configures: YAML, JSON, or smdebug's JSON"},
    {"record", "every", "record_every", COUNT(1, INT32_MAX, NULL),
     FIELD(record.every), .help = "save raw values every N steps (500)"},
    {"record", "save_all", "save_all", FLAG, FIELD(record.save_all),
     .help = "save every tensor, not only those of the default collections"},
    {"record", NULL, "record_include", TEXTS("TENSORS"),
     FIELD(record.include), .help = "save these tensors too; repeatable"},
    {"record", "vitals_every", "vitals_every", COUNT(1, INT32_MAX, NULL),
     FIELD(record.vitals_every), .help = "record vital signs of parameters every N steps (default: as rules need)"},
    {"record", NULL, "no_vitals", FLAG,
     FIELD(record.no_vitals), .help = "record only the vital signs that other options ask for"},
    {"record", "compress", "record_compress", FLAG,
     FIELD(record.compress), .help = "compress recorded values"},

    {"rules", "judge", "rules", TEXTS("RULES"), FIELD(rules.judge),
     .help = "judge by these rules: NAME[:PARAM=VALUE],..., default or none"},
    {"rules", "every", "rules_every", COUNT(1, INT32_MAX, NULL), FIELD(rules.every),
     .help = "judge all tensors at the first 50 steps and every N-th one"},
    {"rules", "stop_on", "stop_on", TEXTS("WHAT"), FIELD(rules.stop_on),
     .help = "stop on a finding of this rule or severity (error, warning, any)"},
    {"rules", "on_finding", "on_finding", TEXTS("[WHEN=]ACTION"), FIELD(rules.on_finding),
     .help = "log, stop, checkpoint, command:TEXT or webhook:URL; WHEN as in stop-on"},
    {"rules", "each", "each", FLAG,
     FIELD(rules.each), .help = "act on every finding, not only on the first of a rule"},
    {"rules", "action_timeout", "action_timeout", REAL(1e-9, 86400.001, NULL),
     FIELD(rules.action_timeout),
     .help = "limit each command (60) and each try of a webhook (10)"},
};
/* clang-format on */

const sonde_nn_option *sonde_nn_option_at(size_t i)
{
    return i < SONDE_COUNT_OF(rows) ? &rows[i] : NULL;
}

/* --- storing ------------------------------------------------------------------------ */

static void *field_of(const sonde_nn_option *row, sonde_nn_job_info *info)
{
    return (char *)info + row->offset;
}

static void store_count(const sonde_nn_option *row, sonde_nn_job_info *info,
                        int64_t value)
{
    const int narrow = (int)value;

    memcpy(field_of(row, info),
           row->size == sizeof narrow ? (const void *)&narrow : &value, row->size);
    info->options.random_seed = info->seed;
}

static void store_real(const sonde_nn_option *row, sonde_nn_job_info *info, double value)
{
    const float narrow = (float)value;

    memcpy(field_of(row, info),
           row->size == sizeof narrow ? (const void *)&narrow : &value, row->size);
}

/* The place of text among words parted by '|'; -1: it is none of them. */
static int find_choice(const char *words, const char *text)
{
    const size_t length = strlen(text);

    for (int i = 0;; i++) {
        const size_t word = strcspn(words, "|");

        if (word == length && strncmp(words, text, length) == 0) {
            return i;
        }
        if (words[word] == '\0') {
            return -1;
        }
        words += word + 1;
    }
}

static void store_choice(const sonde_nn_option *row, sonde_nn_job_info *info, int choice)
{
    store_count(row, info, choice);
    if (row->offset == offsetof(sonde_nn_job_info, optimizer.kind)) {
        info->optimizer =
            sonde_nn_optimizer_default((sonde_nn_optimizer_kind)choice, 0.0F);
    }
}

/* "sgd, adam or adamw" */
static const char *list_choices(const char *words, char *buf, size_t size)
{
    size_t used = 0;

    for (const char *p = words; *p != '\0' && used + 5 < size; p++) {
        const bool last = strchr(p + 1, '|') == NULL;

        used += (size_t)snprintf(buf + used, size - used, "%s",
                                 *p != '|' ? (char[]){*p, '\0'}
                                 : last    ? " or "
                                           : ", ");
    }
    return buf;
}

/* The range of a number, for messages. */
static const char *range_of(const sonde_nn_option *row, char *buf, size_t size)
{
    if (row->kind == SONDE_NN_OPTION_COUNT) {
        (void)snprintf(buf, size, "a whole number from %lld to %lld",
                       (long long)row->least, (long long)row->most);
    } else if (isinf(row->least_real)) {
        (void)snprintf(buf, size, "a finite number");
    } else if (isinf(row->below)) {
        (void)sonde__snprintf(buf, size, "a number from %g", row->least_real);
    } else {
        (void)sonde__snprintf(buf, size, "a number from %g to below %g", row->least_real,
                              row->below);
    }
    return buf;
}

static bool in_range(const sonde_nn_option *row, double value)
{
    return isfinite(value) && value >= row->least_real && value < row->below;
}

/* The rule "none", wherever it is set, switches the rules off. */
static void settle_rules(sonde_nn_job_rules *rules)
{
    if (rules->judge.count == 1 && sonde__strcasecmp(rules->judge.text[0], "none") == 0) {
        rules->judge.count = 0;
        rules->none = true;
    }
}

/* --- from a job file ---------------------------------------------------------------- */

/* A text or a list of texts, borrowed from the tree. */
static sonde_err read_texts(const sonde__yaml_reader *reader, const sonde__yaml *node,
                            sonde_nn_job_texts *out)
{
    const bool one = node->kind == SONDE__YAML_SCALAR;
    const size_t count = one ? 1 : node->count;

    out->count = 0;
    if (node->kind == SONDE__YAML_MAP) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a text or a list of texts",
                                "%s is a map", node->key);
    }
    for (size_t i = 0; i < count; i++) {
        const sonde__yaml *item = one ? node : node->children[i];

        if (item->kind != SONDE__YAML_SCALAR) {
            return sonde__yaml_fail(reader, item, SONDE_EINVAL, "a text",
                                    "an entry of %s is not a text", node->key);
        }
        if (out->count == SONDE_NN_JOB_TEXTS) {
            return sonde__yaml_fail(reader, item, SONDE_EINVAL, "fewer",
                                    "more than %d entries of %s", SONDE_NN_JOB_TEXTS,
                                    node->key);
        }
        out->text[out->count++] = item->text;
    }
    return SONDE_OK;
}

static sonde_err read_count(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            const sonde_nn_option *row, sonde_nn_job_info *info)
{
    int64_t value = 0;
    const sonde_err err =
        sonde__yaml_int(reader, section, row->key, row->least, row->most, &value);

    if (err != SONDE_OK) {
        return err;
    }
    store_count(row, info, value);
    return SONDE_OK;
}

static sonde_err read_real(const sonde__yaml_reader *reader, const sonde__yaml *section,
                           const sonde_nn_option *row, sonde_nn_job_info *info)
{
    float narrow = 0.0F;
    char range[80];
    SONDE__TRY(sonde__yaml_float(reader, section, row->key, &narrow));
    const double value =
        row->size == sizeof narrow
            ? (double)narrow
            : sonde__strtod(sonde__yaml_get(section, row->key)->text, NULL);
    if (!in_range(row, value)) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL,
                                range_of(row, range, sizeof range), "%s is %g", row->key,
                                value);
    }
    store_real(row, info, value);
    return SONDE_OK;
}

static sonde_err read_choice(const sonde__yaml_reader *reader, const sonde__yaml *section,
                             const sonde_nn_option *row, sonde_nn_job_info *info)
{
    const char *text = "";
    char known[80];
    SONDE__TRY(sonde__yaml_text(reader, section, row->key, &text));
    const int choice = find_choice(row->value, text);
    if (choice < 0) {
        return sonde__yaml_fail(reader, section, SONDE_EINVAL,
                                list_choices(row->value, known, sizeof known),
                                "%s is '%s'", row->key, text);
    }
    store_choice(row, info, choice);
    return SONDE_OK;
}

static sonde_err read_row(const sonde__yaml_reader *reader, const sonde__yaml *section,
                          const sonde_nn_option *row, sonde_nn_job_info *info)
{
    switch (row->kind) {
    case SONDE_NN_OPTION_FLAG:
        return sonde__yaml_bool(reader, section, row->key, field_of(row, info));
    case SONDE_NN_OPTION_COUNT:
        return read_count(reader, section, row, info);
    case SONDE_NN_OPTION_REAL:
        return read_real(reader, section, row, info);
    case SONDE_NN_OPTION_TEXT:
        return sonde__yaml_text(reader, section, row->key, field_of(row, info));
    case SONDE_NN_OPTION_TEXTS:
        return read_texts(reader, sonde__yaml_get(section, row->key),
                          field_of(row, info));
    case SONDE_NN_OPTION_CHOICE:
        return read_choice(reader, section, row, info);
    }
    return SONDE_OK;
}

/* PopTorch's names of options become ours. */
static sonde_err take_poptorch_names(const sonde__yaml_reader *reader,
                                     const sonde__yaml *section)
{
    static const struct {
        const char *theirs, *ours;
    } names[] = {{"deviceIterations", "device_iterations"},
                 {"gradientAccumulation", "gradient_accumulation"},
                 {"replicationFactor", "replicas"}};

    for (size_t i = 0; i < section->count; i++) {
        sonde__yaml *child = section->children[i];

        for (size_t k = 0; k < SONDE_COUNT_OF(names) && child->key != NULL; k++) {
            char *ours = NULL;

            if (strcmp(child->key, names[k].theirs) != 0) {
                continue;
            }
            if (sonde__yaml_get(section, names[k].ours) != NULL) {
                return sonde__yaml_fail(reader, child, SONDE_EINVAL, "one of them",
                                        "%s is %s, which is given too", names[k].theirs,
                                        names[k].ours);
            }
            ours = sonde__strdup(names[k].ours);
            if (ours == NULL) {
                return sonde__fail_nomem(reader->diag, "an option");
            }
            sonde__free(child->key);
            child->key = ours;
        }
    }
    return SONDE_OK;
}

sonde_err sonde__job_read_entry(const sonde__yaml_reader *reader,
                                const sonde__yaml *entry, const char *section,
                                const char *const *extra, size_t extra_count,
                                sonde_nn_job_info *info)
{
    enum { MOST_EXTRA = 4 };
    const char *keys[SONDE_COUNT_OF(rows) + MOST_EXTRA];
    size_t count = 0;

    while (count < extra_count && count < MOST_EXTRA) {
        keys[count] = extra[count];
        count++;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].section, section) == 0 && rows[i].key != NULL) {
            keys[count++] = rows[i].key;
        }
    }
    SONDE__TRY(sonde__yaml_check_keys(reader, entry, keys, count));
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].section, section) != 0 || rows[i].key == NULL ||
            sonde__yaml_get(entry, rows[i].key) == NULL) {
            continue;
        }
        SONDE__TRY(read_row(reader, entry, &rows[i], info));
    }
    return SONDE_OK;
}

sonde_err sonde__job_read_options(const sonde__yaml_reader *reader,
                                  const sonde__yaml *section, sonde_nn_job_info *info)
{
    static const char *const groups[] = {"groups"}, *const augment[] = {"augment"};
    const bool optimizer = strcmp(section->key, "optimizer") == 0;
    const bool data = strcmp(section->key, "data") == 0;
    SONDE__TRY(take_poptorch_names(reader, section));
    SONDE__TRY(sonde__job_read_entry(reader, section, section->key,
                                     data ? augment : groups, optimizer || data ? 1 : 0,
                                     info));
    settle_rules(&info->rules);
    return SONDE_OK;
}

sonde_err sonde__job_read_judge(const sonde__yaml_reader *reader, const sonde__yaml *node,
                                sonde_nn_job_info *info)
{
    const sonde_err err = read_texts(reader, node, &info->rules.judge);

    settle_rules(&info->rules);
    return err;
}

/* --- from a text -------------------------------------------------------------------- */

static sonde_err fail_text(sonde_diag *diag, const sonde_nn_option *row, const char *text,
                           const char *expected)
{
    return sonde__fail(diag, SONDE_EINVAL, row->name, expected, "'%.200s'", text);
}

static sonde_err set_number(const sonde_nn_option *row, sonde_nn_job_info *info,
                            const char *text, sonde_diag *diag)
{
    const bool whole = row->kind == SONDE_NN_OPTION_COUNT;
    char *end = NULL, range[80];
    long long count = 0;
    double real = 0.0;

    errno = 0;
    if (whole) {
        count = strtoll(text, &end, 10);
    } else {
        real = sonde__strtod(text, &end);
    }
    if (end == text || *end != '\0' || errno == ERANGE ||
        (whole ? count < row->least || count > row->most : !in_range(row, real))) {
        return fail_text(diag, row, text, range_of(row, range, sizeof range));
    }
    if (whole) {
        store_count(row, info, count);
    } else {
        store_real(row, info, real);
    }
    return SONDE_OK;
}

static sonde_err set_choice(const sonde_nn_option *row, sonde_nn_job_info *info,
                            const char *text, sonde_diag *diag)
{
    const int choice = find_choice(row->value, text);
    char known[80];

    if (choice < 0) {
        return fail_text(diag, row, text, list_choices(row->value, known, sizeof known));
    }
    store_choice(row, info, choice);
    return SONDE_OK;
}

static sonde_err set_flag(const sonde_nn_option *row, sonde_nn_job_info *info,
                          const char *text, sonde_diag *diag)
{
    const bool on = strcmp(text, "true") == 0 || strcmp(text, "1") == 0;

    if (!on && strcmp(text, "false") != 0 && strcmp(text, "0") != 0) {
        return fail_text(diag, row, text, "true or false");
    }
    *(bool *)field_of(row, info) = on;
    return SONDE_OK;
}

/* Rules replace those of the job, once; all other texts extend its lists. */
static sonde_err add_text(sonde_nn_job *job, const sonde_nn_option *row, const char *text,
                          sonde_diag *diag)
{
    sonde_nn_job_rules *rules = &job->info.rules;
    sonde_nn_job_texts *list = field_of(row, &job->info);

    if (list == &rules->judge && !job->rules_set) {
        job->rules_set = true;
        rules->judge.count = 0;
        rules->none = false;
        if (sonde__strcasecmp(text, "none") ==
            0) { /* no rules, so none of the job's actions */
            rules->stop_on.count = rules->on_finding.count = 0;
        }
    }
    if (list->count == SONDE_NN_JOB_TEXTS) {
        return fail_text(diag, row, text, "fewer entries");
    }
    list->text[list->count++] = text;
    settle_rules(rules);
    return SONDE_OK;
}

static sonde_err set_row(sonde_nn_job *job, const sonde_nn_option *row, const char *text,
                         sonde_diag *diag)
{
    switch (row->kind) {
    case SONDE_NN_OPTION_FLAG:
        return set_flag(row, &job->info, text, diag);
    case SONDE_NN_OPTION_COUNT:
    case SONDE_NN_OPTION_REAL:
        return set_number(row, &job->info, text, diag);
    case SONDE_NN_OPTION_TEXT:
        memcpy(field_of(row, &job->info), &text, sizeof text);
        return SONDE_OK;
    case SONDE_NN_OPTION_TEXTS:
        return add_text(job, row, text, diag);
    case SONDE_NN_OPTION_CHOICE:
        return set_choice(row, &job->info, text, diag);
    }
    return SONDE_OK;
}

/* After an option was set: the model of another number of tokens is another one. */
static sonde_err tokens_changed(sonde_nn_job *job, const sonde_nn_option *row,
                                sonde_diag *diag)
{
    sonde_nn_model *model = NULL;
    sonde_err err = SONDE_OK;

    if (job->model == NULL ||
        (strcmp(row->name, "tokens") != 0 && strcmp(row->name, "vocabulary") != 0 &&
         strcmp(row->name, "tokenizer") != 0)) {
        return SONDE_OK;
    }
    sonde__job_tokens_forget(job);
    err = sonde__job_build(job, &job->info, &model, diag);
    sonde_nn_model_destroy(model);
    return err;
}

sonde_err sonde_nn_job_set(sonde_nn_job *job, const char *name, const char *text,
                           sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, name, text);
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (strcmp(rows[i].name, name) == 0) {
            const sonde_err err = set_row(job, &rows[i], text, diag);

            return err != SONDE_OK ? err : tokens_changed(job, &rows[i], diag);
        }
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, name, "an option of a training",
                       "unknown option");
}

sonde_err sonde_nn_job_set_environment(sonde_nn_job *job, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job);
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        char variable[64] = "SONDE_";
        const char *text = NULL;
        sonde_err err = SONDE_OK;

        for (size_t k = 0; rows[i].name[k] != '\0' && k + 8 < sizeof variable; k++) {
            variable[k + 6] = (char)sonde__toupper((unsigned char)rows[i].name[k]);
        }
        text = rows[i].no_environment ? NULL : getenv(variable);
        if ((text == NULL || text[0] == '\0') && rows[i].variable != NULL) {
            (void)snprintf(variable, sizeof variable, "%s", rows[i].variable);
            text = getenv(variable);
        }
        if (text != NULL && text[0] != '\0') {
            err = set_row(job, &rows[i], text, diag);
            if (err == SONDE_OK) {
                err = tokens_changed(job, &rows[i], diag);
            }
        }
        if (err != SONDE_OK && diag != NULL) {
            (void)snprintf(diag->where, sizeof diag->where, "%s", variable);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    return SONDE_OK;
}
