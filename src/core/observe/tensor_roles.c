/*
 * tensor_roles.c - see tensor_roles.h.
 *
 * A name is cut into components at '.' and '/', and the last component into words at '_'
 * and '-'. An ending ":0" (TensorFlow) is dropped, and so are digits at the end of a
 * word:
 *
 *     encoder/layer_1/dense/kernel:0      last component "kernel"
 *     rnn.weight_ih_l0                    words "weight", "ih", "l"
 */
#include "observe/tensor_roles.h"

#include "base/macros.h"
#include "base/number.h"

#include <ctype.h>
#include <string.h>

enum { LONGEST = 512 }; /* the rest of a longer name is not looked at */

typedef struct name_parts {
    char whole[LONGEST]; /* lower case */
    char last[LONGEST];  /* component, without digits and separators at its end */
} name_parts;

static bool is_separator(char c)
{
    return c == '_' || c == '-';
}

/* Drops ":<digits>" at the end. */
static void drop_output_number(char *name)
{
    char *colon = strrchr(name, ':');

    if (colon != NULL && colon[1] != '\0' &&
        strspn(colon + 1, "0123456789") == strlen(colon + 1)) {
        *colon = '\0';
    }
}

static void take_apart(const char *name, name_parts *parts)
{
    const char *last = parts->whole;
    size_t n = 0;

    for (; name[n] != '\0' && n < LONGEST - 1; n++) {
        parts->whole[n] = (char)sonde__tolower((unsigned char)name[n]);
    }
    parts->whole[n] = '\0';
    drop_output_number(parts->whole);
    for (const char *c = parts->whole; *c != '\0'; c++) {
        last = *c == '.' || *c == '/' ? c + 1 : last;
    }
    n = strlen(last);
    memcpy(parts->last, last, n + 1);
    while (n > 0 && (isdigit((unsigned char)parts->last[n - 1]) ||
                     is_separator(parts->last[n - 1]))) {
        parts->last[--n] = '\0';
    }
}

/* Whether a component has the word, digits after it ignored. */
static bool has_word(const char *component, const char *word)
{
    const size_t length = strlen(word);

    for (const char *c = component; *c != '\0';) {
        size_t n = strcspn(c, "_-"), trimmed = n;

        while (trimmed > 0 && isdigit((unsigned char)c[trimmed - 1])) {
            trimmed--;
        }
        if (trimmed == length && strncmp(c, word, length) == 0) {
            return true;
        }
        c += n + (c[n] != '\0');
    }
    return false;
}

/* --- roles ------------------------------------------------------------------------ */

typedef enum place {
    IS,    /* the whole name */
    START, /* of the name */
    END,   /* of the name */
    PART,  /* anywhere in the name */
    LAST,  /* the last component */
    WORD   /* a word of the last component */
} place;

typedef struct row {
    place where;
    sonde_role role;
    const char *text;
} row;

/* The first row that fits wins. */
static const row rows[] = {
    {START, SONDE_ROLE_SCALAR, "scalar/"},
    {END, SONDE_ROLE_SCALAR, "grad_norm"},
    {END, SONDE_ROLE_SCALAR, "gradient_norm"},
    {PART, SONDE_ROLE_LOSS, "gradient_penalty"},
    {START, SONDE_ROLE_OTHER, "feature_importance/"}, /* XGBoost by smdebug */
    {START, SONDE_ROLE_OTHER, "average_shap/"},
    {START, SONDE_ROLE_OTHER, "full_shap/"},
    {START, SONDE_ROLE_OTHER, "trees/"},
    {START, SONDE_ROLE_OTHER, "hyperparameters/"},

    {START, SONDE_ROLE_GRADIENT, "gradient"}, /* gradient/fc1.weight, Gradient___w */
    {START, SONDE_ROLE_GRADIENT, "grad/"},
    {START, SONDE_ROLE_GRADIENT, "grads/"},
    {START, SONDE_ROLE_GRADIENT, "grad_"},
    {START, SONDE_ROLE_GRADIENT, "grad."},
    {START, SONDE_ROLE_GRADIENT, "accum___"},
    {END, SONDE_ROLE_GRADIENT, ".grad"},
    {END, SONDE_ROLE_GRADIENT, "_grad"},
    {END, SONDE_ROLE_GRADIENT, "/grad"},
    {END, SONDE_ROLE_GRADIENT, "_gradient"},
    {END, SONDE_ROLE_GRADIENT, ":0grad"}, /* Keras by smdebug */

    {START, SONDE_ROLE_UPDATE, "updatedvar___"},
    {START, SONDE_ROLE_UPDATE, "update/"},
    {START, SONDE_ROLE_UPDATE, "updates/"},

    {START, SONDE_ROLE_OPTIMIZER, "accl1___"},
    {START, SONDE_ROLE_OPTIMIZER, "accl2___"},
    {START, SONDE_ROLE_OPTIMIZER, "step___"},
    {START, SONDE_ROLE_OPTIMIZER, "optimizer"},
    {START, SONDE_ROLE_OPTIMIZER, "opt_state/"},
    {START, SONDE_ROLE_OPTIMIZER, "adam/"}, /* Keras: Adam/dense/kernel/m:0 */
    {START, SONDE_ROLE_OPTIMIZER, "adamw/"},
    {START, SONDE_ROLE_OPTIMIZER, "sgd/"},
    {START, SONDE_ROLE_OPTIMIZER, "rmsprop/"},
    {START, SONDE_ROLE_OPTIMIZER, "training/adam/"}, /* Keras 2 */
    {START, SONDE_ROLE_OPTIMIZER, "training/sgd/"},
    {END, SONDE_ROLE_OPTIMIZER, ".exp_avg"},
    {END, SONDE_ROLE_OPTIMIZER, ".exp_avg_sq"},
    {END, SONDE_ROLE_OPTIMIZER, ".max_exp_avg_sq"},
    {END, SONDE_ROLE_OPTIMIZER, ".square_avg"},
    {END, SONDE_ROLE_OPTIMIZER, ".momentum_buffer"},
    {END, SONDE_ROLE_OPTIMIZER, ".step"},
    {END, SONDE_ROLE_OPTIMIZER, "/momentum"},

    {END, SONDE_ROLE_BUFFER, "running_mean"},
    {END, SONDE_ROLE_BUFFER, "running_var"},
    {END, SONDE_ROLE_BUFFER, "num_batches_tracked"},
    {LAST, SONDE_ROLE_BUFFER, "moving_mean"}, /* Keras */
    {LAST, SONDE_ROLE_BUFFER, "moving_variance"},
    {START, SONDE_ROLE_BUFFER, "batch_stats/"}, /* Flax */
    {LAST, SONDE_ROLE_BUFFER, "position_ids"},
    {LAST, SONDE_ROLE_BUFFER, "inv_freq"},
    {LAST, SONDE_ROLE_BUFFER, "masked_bias"},
    {START, SONDE_ROLE_BUFFER, "rope_freqs"}, /* GGUF */
    {START, SONDE_ROLE_BUFFER, "cache_k"},
    {START, SONDE_ROLE_BUFFER, "cache_v"},

    {PART, SONDE_ROLE_ACTIVATION, "_input_"}, /* of a module, of a loss too */
    {END, SONDE_ROLE_ACTIVATION, "_input"},
    {LAST, SONDE_ROLE_ACTIVATION, "inputs"}, /* Keras: dense/inputs; see below */
    {LAST, SONDE_ROLE_SCALAR, "loss_scale"},
    {LAST, SONDE_ROLE_SCALAR, "weight_decay"},
    {END, SONDE_ROLE_OUTPUT, "weight_output_0"}, /* of a module with that name */
    {END, SONDE_ROLE_OUTPUT, "bias_output_0"},
    {WORD, SONDE_ROLE_WEIGHT, "weight"}, /* also loss_fn.weight, output.weight */
    {WORD, SONDE_ROLE_WEIGHT, "weights"},
    {WORD, SONDE_ROLE_BIAS, "bias"},
    {WORD, SONDE_ROLE_BIAS, "biases"},
    {WORD, SONDE_ROLE_WEIGHT, "kernel"}, /* Keras, Flax */
    {LAST, SONDE_ROLE_WEIGHT, "gamma"},
    {LAST, SONDE_ROLE_BIAS, "beta"},
    {END, SONDE_ROLE_WEIGHT, "/embeddings"},
    {END, SONDE_ROLE_WEIGHT, "/embedding"},
    {END, SONDE_ROLE_WEIGHT, "/scale"},
    {PART, SONDE_ROLE_LOSS, "loss"},
    {LAST, SONDE_ROLE_LOSS, "objective"},
    {LAST, SONDE_ROLE_LOSS, "cost"},
    {LAST, SONDE_ROLE_LOSS, "nll"},
    {LAST, SONDE_ROLE_LOSS, "mse"},
    {LAST, SONDE_ROLE_LOSS, "elbo"},
    {LAST, SONDE_ROLE_LOSS, "cross_entropy"},
    {LAST, SONDE_ROLE_LOSS, "kld"},

    {LAST, SONDE_ROLE_SCALAR, "lr"},
    {LAST, SONDE_ROLE_SCALAR, "learning_rate"},
    {WORD, SONDE_ROLE_SCALAR, "accuracy"},
    {LAST, SONDE_ROLE_SCALAR, "perplexity"},
    {PART, SONDE_ROLE_OUTPUT, "_output_"},
    {END, SONDE_ROLE_OUTPUT, "_output"},
    {LAST, SONDE_ROLE_OUTPUT, "output"},
    {LAST, SONDE_ROLE_OUTPUT, "outputs"},
    {LAST, SONDE_ROLE_OUTPUT, "logits"},
    {LAST, SONDE_ROLE_OUTPUT, "predictions"},
    {LAST, SONDE_ROLE_OUTPUT, "y_pred"},

    {LAST, SONDE_ROLE_WEIGHT, "w"}, /* w1, fc1.w */
    {END, SONDE_ROLE_WEIGHT, "_w"},
    {LAST, SONDE_ROLE_BIAS, "b"},
    {END, SONDE_ROLE_BIAS, "_b"},
    {WORD, SONDE_ROLE_ACTIVATION, "relu"},
    {WORD, SONDE_ROLE_ACTIVATION, "gelu"},
    {WORD, SONDE_ROLE_ACTIVATION, "tanh"},
    {WORD, SONDE_ROLE_ACTIVATION, "sigmoid"},
    {WORD, SONDE_ROLE_ACTIVATION, "softmax"},
    {WORD, SONDE_ROLE_ACTIVATION, "act"},
    {WORD, SONDE_ROLE_ACTIVATION, "activation"},
    {WORD, SONDE_ROLE_ACTIVATION, "hidden"},
    {LAST, SONDE_ROLE_ACTIVATION, "h"},
};

/* Inputs of the program, by the whole name without digits at its end. */
static const char *const inputs[] = {"input",
                                     "inputs",
                                     "x",
                                     "data",
                                     "image",
                                     "images",
                                     "batch",
                                     "label",
                                     "labels",
                                     "target",
                                     "targets",
                                     "y",
                                     "y_true",
                                     "sample_weight",
                                     "class_weight",
                                     "input_ids",
                                     "attention_mask",
                                     "token_type_ids",
                                     "tokens",
                                     "inp",
                                     "inp_tokens",
                                     "inp_embd",
                                     "inp_pos",
                                     "decoder_input_ids"};

static bool is_program_input(const name_parts *parts)
{
    char whole[LONGEST];
    size_t n = strlen(parts->whole);

    memcpy(whole, parts->whole, n + 1);
    while (n > 0 && (isdigit((unsigned char)whole[n - 1]) ||
                     strchr("_-/.", whole[n - 1]) != NULL)) { /* input_1, input/1 */
        whole[--n] = '\0';
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(inputs); i++) {
        if (strcmp(whole, inputs[i]) == 0) {
            return true;
        }
    }
    return false;
}

static bool fits(const row *listed, const name_parts *parts)
{
    const size_t length = strlen(parts->whole), tail = strlen(listed->text);

    switch (listed->where) {
    case IS:
        return strcmp(parts->whole, listed->text) == 0;
    case START:
        return strncmp(parts->whole, listed->text, tail) == 0;
    case END:
        return length >= tail && strcmp(parts->whole + length - tail, listed->text) == 0;
    case PART:
        return strstr(parts->whole, listed->text) != NULL;
    case LAST:
        return strcmp(parts->last, listed->text) == 0;
    case WORD:
        return has_word(parts->last, listed->text);
    }
    return false;
}

/* "Qcur-0", "l_out-31": values of ggml's graphs. */
static bool is_graph_value(const char *whole)
{
    const char *dash = strrchr(whole, '-');

    return dash != NULL && dash > whole && isdigit((unsigned char)dash[1]) &&
           strspn(dash + 1, "0123456789") == strlen(dash + 1);
}

static sonde_role by_rows(const name_parts *parts)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (fits(&rows[i], parts)) {
            return rows[i].role;
        }
    }
    return is_graph_value(parts->whole) ? SONDE_ROLE_ACTIVATION : SONDE_ROLE_OTHER;
}

/* What a gradient is of: the name without the gradient's prefix or ending. */
static const char *after_prefix(const char *name)
{
    static const char *const prefixes[] = {"gradient___", "gradients/", "gradient/",
                                           "grads/",      "grad/",      "grad_"};

    for (size_t i = 0; i < SONDE_COUNT_OF(prefixes); i++) {
        const size_t length = strlen(prefixes[i]);

        if (strncmp(name, prefixes[i], length) == 0) {
            return name + length;
        }
    }
    return NULL;
}

static sonde_role gradient_role(const name_parts *parts)
{
    const char *rest = after_prefix(parts->whole);
    name_parts inner = {.whole = ""};

    if (rest == NULL || *rest == '\0') {
        return SONDE_ROLE_GRADIENT;
    }
    take_apart(rest, &inner);
    switch ((int)by_rows(&inner)) {
    case SONDE_ROLE_ACTIVATION:
    case SONDE_ROLE_OUTPUT:
    case SONDE_ROLE_LOSS:
        return SONDE_ROLE_ACTIVATION_GRADIENT;
    default:
        return SONDE_ROLE_GRADIENT;
    }
}

sonde_role sonde__observe_role_by_name(const char *name, sonde_dtype dtype)
{
    const bool is_float = sonde_dtype_is_float(dtype);
    name_parts parts = {.whole = ""};
    sonde_role role = SONDE_ROLE_OTHER;

    take_apart(name, &parts);
    if (is_program_input(&parts)) {
        return SONDE_ROLE_INPUT;
    }
    role = by_rows(&parts);
    if (role == SONDE_ROLE_GRADIENT) {
        return gradient_role(&parts);
    }
    if (role == SONDE_ROLE_ACTIVATION && !is_float && strstr(parts.whole, "loss")) {
        return SONDE_ROLE_INPUT; /* CrossEntropyLoss_input_1: the labels */
    }
    if ((role == SONDE_ROLE_WEIGHT || role == SONDE_ROLE_BIAS) && dtype == SONDE_BOOL) {
        return SONDE_ROLE_BUFFER; /* GPT-2's attn.bias is a mask */
    }
    return role;
}

/* --- passes and ops --------------------------------------------------------------- */

static const sonde_pass passes[SONDE_ROLE_COUNT] = {
    [SONDE_ROLE_GRADIENT] = SONDE_PASS_BACKWARD,
    [SONDE_ROLE_UPDATE] = SONDE_PASS_UPDATE,
    [SONDE_ROLE_OPTIMIZER] = SONDE_PASS_UPDATE,
    [SONDE_ROLE_LOSS] = SONDE_PASS_FORWARD,
    [SONDE_ROLE_OUTPUT] = SONDE_PASS_FORWARD,
    [SONDE_ROLE_ACTIVATION] = SONDE_PASS_FORWARD,
    [SONDE_ROLE_ACTIVATION_GRADIENT] = SONDE_PASS_BACKWARD,
};

/* The op of a module's value by the module's name: relu1_output_0. "" if unknown. */
static const char *op_of(const char *name, sonde_role role)
{
    static const char *const ops[] = {"relu", "gelu",    "silu",     "elu",    "selu",
                                      "tanh", "sigmoid", "softplus", "softmax"};
    name_parts parts;

    if (role != SONDE_ROLE_OUTPUT && role != SONDE_ROLE_ACTIVATION) {
        return "";
    }
    take_apart(name, &parts);
    if (strstr(parts.whole, "_input") != NULL) {
        return "";
    }
    char *end = strstr(parts.last, "_output");
    if (end != NULL) {
        *end = '\0';
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(ops); i++) {
        if (has_word(parts.last, ops[i]) && !has_word(parts.last, "leaky")) {
            return ops[i];
        }
    }
    return "";
}

void sonde__observe_guess(sonde_tensor_info *info)
{
    if (info->role != SONDE_ROLE_OTHER || info->name == NULL) {
        return;
    }
    info->role = sonde__observe_role_by_name(info->name, info->dtype);
    info->pass = info->pass == SONDE_PASS_NONE ? passes[info->role] : info->pass;
    if (info->op == NULL || info->op[0] == '\0') {
        info->op = op_of(info->name, info->role);
    }
}

/* --- collections ------------------------------------------------------------------ */

static const struct collection_role {
    const char *name;
    sonde_role role;
} collection_roles[] = {
    {"weights", SONDE_ROLE_WEIGHT},
    {"biases", SONDE_ROLE_BIAS},
    {"gradients", SONDE_ROLE_GRADIENT},
    {"losses", SONDE_ROLE_LOSS},
    {"inputs", SONDE_ROLE_INPUT},
    {"labels", SONDE_ROLE_INPUT},
    {"outputs", SONDE_ROLE_OUTPUT},
    {"predictions", SONDE_ROLE_OUTPUT},
    {"optimizer_variables", SONDE_ROLE_OPTIMIZER}, /* smdebug */
    {"metrics", SONDE_ROLE_SCALAR},
    {"sm_metrics", SONDE_ROLE_SCALAR},
};

sonde_role sonde__observe_role_of_collection(const char *collection)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(collection_roles); i++) {
        if (strcmp(collection, collection_roles[i].name) == 0) {
            return collection_roles[i].role;
        }
    }
    return SONDE_ROLE_OTHER;
}

sonde_role sonde__observe_role_joined(sonde_role known, const char *collection)
{
    const sonde_role role = sonde__observe_role_of_collection(collection);

    if (role == SONDE_ROLE_LOSS &&
        (known == SONDE_ROLE_OUTPUT || known == SONDE_ROLE_SCALAR)) {
        return role;
    }
    return known == SONDE_ROLE_OTHER ? role : known;
}

/* --- the objective ---------------------------------------------------------------- */

bool sonde__observe_is_of_evaluation(const char *name)
{
    static const char *const words[] = {"val",        "valid", "validation", "eval",
                                        "evaluation", "test",  "testing"};
    size_t length = 0;

    while (isalpha((unsigned char)name[length]) &&
           (length == 0 || islower((unsigned char)name[length]) ||
            !islower((unsigned char)name[length - 1]))) {
        length++;
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(words); i++) {
        if (strlen(words[i]) == length &&
            sonde__strncasecmp(name, words[i], length) == 0) {
            return true;
        }
    }
    return false;
}

/* "loss", "total_loss", "train/loss", "loss_output_0", "objective". */
static bool is_total(const char *name)
{
    const char *slash = strrchr(name, '/');

    name = slash != NULL ? slash + 1 : name;
    return sonde__strcasecmp(name, "loss") == 0 ||
           sonde__strcasecmp(name, "loss_output_0") == 0 ||
           sonde__strcasecmp(name, "objective") == 0 ||
           sonde__strcasestr(name, "total") != NULL;
}

bool sonde__observe_is_objective(const sonde_catalogue *catalogue, uint32_t id)
{
    size_t losses = 0;

    if (is_total(sonde_catalogue_info(catalogue, id)->name)) {
        return true;
    }
    for (uint32_t i = 0; i < sonde_catalogue_count(catalogue); i++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, i);

        losses += info->role == SONDE_ROLE_LOSS && info->same_as == i &&
                  !sonde__observe_is_of_evaluation(info->name);
    }
    return losses <= 1;
}
