/*
 * job_layers.c - the layers of a job: each is checked as it is built, so an error has the
 * layer's line. Unknown kinds are found before that, all at once.
 */
#include "nn/job/job_layers.h"
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>

enum { MAX_LAYERS = 4096 };

/* The name of an entry's kind; NULL: the entry is no layer. */
static const char *asked_kind(const sonde__yaml *entry)
{
    return entry->kind == SONDE__YAML_SCALAR                     ? entry->text
           : entry->kind == SONDE__YAML_MAP && entry->count == 1 ? entry->children[0]->key
                                                                 : NULL;
}

/* Appends ", item" to a list, or ", ..." if there is no room. */
static void append_item(char *list, size_t size, const char *item)
{
    const size_t used = strlen(list);
    const char *comma = used > 0 ? ", " : "";

    if (used + strlen(item) + 8 < size) {
        (void)snprintf(list + used, size - used, "%s%s", comma, item);
    } else if (used + 6 < size && (used < 3 || strcmp(list + used - 3, "...") != 0)) {
        (void)snprintf(list + used, size - used, "%s...", comma);
    }
}

/* Unknown layers, and the names nearest to them. */
typedef struct unknown_kinds {
    const char *names[SONDE__JOB_MAX_KINDS];
    size_t kinds;
    const sonde__yaml *first;
    char found[300], near[256];
    bool all_near;
} unknown_kinds;

/* The list of an entry that is a group of layers; NULL: it is none. */
static const sonde__yaml *grouped_layers(const sonde__yaml *entry)
{
    const sonde__yaml *body = entry->kind == SONDE__YAML_MAP ? entry->children[0] : NULL;
    const sonde__yaml *list =
        body != NULL && strcmp(body->key, "layers") == 0 && body->kind == SONDE__YAML_MAP
            ? sonde__yaml_get(body, "layers")
            : NULL;

    return list != NULL && list->kind == SONDE__YAML_LIST ? list : NULL;
}

static void add_unknown(unknown_kinds *u, const sonde__yaml *entry, const char *asked)
{
    const char *nearest = sonde_diag_nearest(asked, u->names, u->kinds);
    char item[120];

    if (u->first == NULL) {
        (void)snprintf(item, sizeof item, "unknown layer '%.80s'", asked);
    } else {
        (void)snprintf(item, sizeof item, "line %d '%.80s'", entry->line, asked);
    }
    append_item(u->found, sizeof u->found, item);
    u->first = u->first != NULL ? u->first : entry;
    u->all_near = u->all_near && nearest != NULL;
    append_item(u->near, sizeof u->near, nearest != NULL ? nearest : "");
}

static sonde_err find_unknown(const sonde__job_builder *b, const sonde__yaml *section,
                              unknown_kinds *u)
{
    for (size_t i = 0; i < section->count; i++) {
        const sonde__yaml *entry = section->children[i];
        const char *asked = asked_kind(entry);
        const sonde__yaml *inner = asked != NULL ? grouped_layers(entry) : NULL;
        sonde__job_layer_kind kind;

        if (asked == NULL) {
            return sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL,
                                    "one layer: {its options}", "not a layer");
        }
        if (!sonde__job_find_kind(asked, &kind)) {
            add_unknown(u, entry, asked);
        }
        SONDE__TRY(inner != NULL ? find_unknown(b, inner, u) : SONDE_OK);
    }
    return SONDE_OK;
}

/* Finds all unknown layers of the list, and of groups in it, at once. Expects the names
 * nearest to them, or, if one is near none, all that there are. */
static sonde_err check_kinds(const sonde__job_builder *b, const sonde__yaml *section)
{
    unknown_kinds u = {.all_near = true};
    sonde_err err = SONDE_OK;

    u.kinds = sonde__job_list_kinds(u.names);
    err = find_unknown(b, section, &u);
    if (err != SONDE_OK || u.first == NULL) {
        return err;
    }
    if (!u.all_near) {
        u.near[0] = '\0';
        for (size_t i = 0; i < u.kinds; i++) {
            append_item(u.near, sizeof u.near, u.names[i]);
        }
    }
    return sonde__yaml_fail(&b->reader, u.first, SONDE_EINVAL, u.near, "%s", u.found);
}

/* Whether a layer's key `dtype` says something else: what `to` casts to. */
static bool has_own_dtype(const sonde__job_layer_kind *kind)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(kind->keys) && kind->keys[i] != NULL; i++) {
        if (strcmp(kind->keys[i], "dtype") == 0) {
            return true;
        }
    }
    return false;
}

/* Whether a layer has no key `dtype` for its products. */
static bool has_no_dtype(const sonde__job_layer_kind *kind)
{
    return has_own_dtype(kind) || kind->build == NULL;
}

static sonde_err check_layer_keys(const sonde__job_builder *b, const sonde__yaml *body,
                                  const sonde__job_layer_kind *kind)
{
    const char *keys[SONDE_COUNT_OF(kind->keys) + 3] = {"name", "from", "dtype"};
    size_t count = has_no_dtype(kind) ? 2 : 3;

    for (size_t i = 0; i < SONDE_COUNT_OF(kind->keys) && kind->keys[i] != NULL; i++) {
        keys[count++] = kind->keys[i];
    }
    return sonde__yaml_check_keys(&b->reader, body, keys, count);
}

static sonde_err find_value(const sonde__job_builder *b, const sonde__yaml *node,
                            sonde_nn_value *value)
{
    for (size_t i = b->count; node->kind == SONDE__YAML_SCALAR && i-- > 0;) {
        if (b->values[i].name != NULL && strcmp(b->values[i].name, node->text) == 0) {
            *value = b->values[i].value;
            return SONDE_OK;
        }
    }
    return sonde__yaml_fail(&b->reader, node, SONDE_ENOTFOUND,
                            "the name of a layer before it, or input", "from '%s'",
                            node->kind == SONDE__YAML_SCALAR ? node->text : "a list");
}

/* The values of `from`, and how many they are in b->given. */
static sonde_err read_from(sonde__job_builder *b, const sonde__yaml *body,
                           const sonde__job_layer_kind *kind, sonde_nn_value *in)
{
    static const char *const words[] = {"no", "one", "two", "three", "four"};
    const sonde__yaml *source = sonde__yaml_get(body, "from");
    const size_t least = (size_t)kind->inputs,
                 most = least + (kind->row != NULL ? (size_t)kind->row->optional : 0);
    char needed[32];

    in[0] = b->current;
    b->given = 1;
    if (source == NULL && least == 1) {
        return SONDE_OK;
    }
    if (source != NULL && least == 1 && (source->kind != SONDE__YAML_LIST || most == 1)) {
        return find_value(b, source, &in[0]);
    }
    if (source == NULL || source->kind != SONDE__YAML_LIST || source->count < least ||
        source->count > most) {
        (void)snprintf(needed, sizeof needed, most > least ? "%s to %s" : "%s",
                       words[least], words[most]);
        return sonde__yaml_fail(&b->reader, body, SONDE_EINVAL,
                                least == 1 ? "from: NAME" : "from: [a, b]",
                                "the layer needs %s inputs", needed);
    }
    b->given = source->count;
    for (size_t i = 0; i < source->count; i++) {
        SONDE__TRY(find_value(b, source->children[i], &in[i]));
    }
    return SONDE_OK;
}

sonde_err sonde__job_remember(sonde__job_builder *b, const char *name,
                              sonde_nn_value value)
{
    if (!sonde__reserve(&b->values, &b->capacity, b->count + 1, sizeof *b->values)) {
        return sonde__fail_nomem(b->reader.diag, "a job");
    }
    b->values[b->count++] = (sonde__job_value){name, value};
    b->current = value;
    return SONDE_OK;
}

sonde_err sonde__job_check_layer(const sonde__job_builder *b, const sonde__yaml *entry)
{
    sonde_diag diag = {0};
    const sonde_err err = sonde_nn_model_status(b->model, &diag);

    if (err != SONDE_OK) {
        return sonde__yaml_fail(&b->reader, entry, err, diag.expected, "%s: %s",
                                diag.where, diag.found);
    }
    return SONDE_OK;
}

/* The float type of a layer's products; layers without the key have the session's. */
static sonde_err begin_dtype(const sonde__job_builder *b, const sonde__yaml *body,
                             const sonde__job_layer_kind *kind)
{
    static const sonde_dtype dtypes[] = {SONDE_F32, SONDE_BF16, SONDE_F16};
    const char *text = NULL;
    const sonde__yaml *node = sonde__yaml_get(body, "dtype");
    sonde_err err = SONDE_OK;

    if (node == NULL || has_no_dtype(kind)) {
        return SONDE_OK;
    }
    err = sonde__yaml_text(&b->reader, body, "dtype", &text);
    for (size_t i = 0; err == SONDE_OK && i < SONDE_COUNT_OF(dtypes); i++) {
        if (strcmp(text, sonde_dtype_name(dtypes[i])) == 0) {
            sonde_nn_begin_dtype(b->model, dtypes[i]);
            return SONDE_OK;
        }
    }
    return err != SONDE_OK
               ? err
               : sonde__yaml_fail(&b->reader, node, SONDE_EINVAL,
                                  "float32, bfloat16 or float16", "dtype is '%s'", text);
}

static sonde_err build_group(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, sonde_nn_value in, sonde_nn_value *out);

static sonde_err build_layer(sonde__job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml nothing = {.kind = SONDE__YAML_MAP, .line = entry->line};
    sonde__job_layer_kind kind = {0};
    const sonde__yaml *body = &nothing;
    const char *name = NULL;
    sonde_nn_value in[SONDE__MAX_OPERANDS] = {0}, out = 0;
    sonde_err err = SONDE_OK;

    (void)sonde__job_find_kind(asked_kind(entry), &kind); /* check_kinds found it */
    if (entry->kind == SONDE__YAML_MAP &&
        !(entry->children[0]->kind == SONDE__YAML_SCALAR &&
          entry->children[0]->text[0] == '\0')) {
        body = entry->children[0];
        err = check_layer_keys(b, body, &kind);
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__yaml_text(&b->reader, body, "name", &name));
    SONDE__TRY(read_from(b, body, &kind, in));
    SONDE__TRY(begin_dtype(b, body, &kind));
    b->kind = &kind;
    err = kind.build != NULL ? kind.build(b, body, name, in, &out)
                             : build_group(b, body, name, in[0], &out);
    b->kind = NULL;
    sonde_nn_end_dtype(b->model);
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__job_check_layer(b, entry));
    return sonde__job_remember(b, name, out);
}

/* Whether an entry is a softmax over the batch of the layer before it. */
static bool is_batch_softmax(const sonde__job_builder *b, const sonde__yaml *entry)
{
    const sonde__yaml *body = entry->kind == SONDE__YAML_MAP ? entry->children[0] : entry;
    const char *kind = asked_kind(entry);
    int64_t dim = 1;

    return (strcmp(kind, "softmax") == 0 || strcmp(kind, "log_softmax") == 0) &&
           body->kind == SONDE__YAML_MAP && sonde__yaml_get(body, "from") == NULL &&
           sonde__yaml_int(&b->reader, body, "dim", -SONDE_MAX_DIMS, SONDE_MAX_DIMS - 1,
                           &dim) == SONDE_OK &&
           dim == 0;
}

/* --- lists of layers ---------------------------------------------------------------------- */

/* The layers of a list, which has some. */
static sonde_err check_list(const sonde__job_builder *b, const sonde__yaml *owner,
                            const sonde__yaml *section)
{
    if (section == NULL || section->kind != SONDE__YAML_LIST || section->count == 0 ||
        section->count > MAX_LAYERS) {
        return sonde__yaml_fail(&b->reader, section != NULL ? section : owner,
                                SONDE_EINVAL, "layers: a list of 1 to 4096 layers",
                                section != NULL && section->count > 0
                                    ? "the model has %zu layers"
                                    : "the model has no layers",
                                section != NULL ? section->count : 0);
    }
    return SONDE_OK;
}

static sonde_err build_list(sonde__job_builder *b, const sonde__yaml *section,
                            size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (b->built++ >= MAX_LAYERS) {
            return sonde__yaml_fail(&b->reader, section->children[i], SONDE_EINVAL,
                                    "at most 4096",
                                    "more layers than that, all repeats "
                                    "counted");
        }
        SONDE__TRY(build_layer(b, section->children[i]));
    }
    return SONDE_OK;
}

static sonde_err build_group(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, sonde_nn_value in, sonde_nn_value *out)
{
    const sonde__yaml *section = sonde__yaml_get(entry, "layers");
    const size_t outside = b->count;
    int64_t times = 0;
    char number[24];
    sonde_err err = check_list(b, entry, section);

    if (err == SONDE_OK) {
        err = sonde__yaml_int(&b->reader, entry, "times", 1, MAX_LAYERS, &times);
    }
    if (err == SONDE_OK && name == NULL) {
        err = sonde__yaml_fail(&b->reader, entry, SONDE_EINVAL, "name: NAME",
                               "layers in a group without a name");
    }
    *out = in;
    for (int64_t i = 0; err == SONDE_OK && i < (times > 0 ? times : 1); i++) {
        sonde_nn_scope_push(b->model, name);
        if (times > 0) {
            (void)snprintf(number, sizeof number, "%lld", (long long)i);
            sonde_nn_scope_push(b->model, number);
        }
        err = sonde__job_remember(b, "input", *out);
        err = err == SONDE_OK ? build_list(b, section, section->count) : err;
        *out = b->current;
        sonde_nn_scope_pop(b->model);
        if (times > 0) {
            sonde_nn_scope_pop(b->model);
        }
        b->count = outside; /* names within are known within */
    }
    return err;
}

sonde_err sonde__job_build_layers(sonde__job_builder *b, const sonde__yaml *model)
{
    const sonde__yaml *section = sonde__yaml_get(model, "layers");
    size_t count = 0;
    SONDE__TRY(check_list(b, model, section));
    SONDE__TRY(check_kinds(b, section));
    count = section->count;
    if (b->one_sample && is_batch_softmax(b, section->children[count - 1])) {
        count--;
    }
    return build_list(b, section, count);
}

/* === settings of a layer =========================================================== */

/*
 * The keys of a layer that is a row of src/nn/ops.
 */

/* PyTorch's None. */
static bool is_none(const sonde__yaml *node)
{
    return node->kind == SONDE__YAML_SCALAR &&
           (strcmp(node->text, "none") == 0 || strcmp(node->text, "null") == 0);
}

/* The value of one key of a row; *given: it is there. */
static sonde_err read_setting(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                              const sonde__op_field *field, sonde_nn_setting *setting,
                              bool *given)
{
    int64_t numbers[SONDE_MAX_DIMS] = {0};
    size_t count = 0;
    float number = 0.0F;
    bool flag = false;
    sonde_err err = SONDE_OK;

    *given = sonde__yaml_get(entry, field->key) != NULL;
    if (!*given) {
        return SONDE_OK;
    }
    *setting = (sonde_nn_setting){.key = field->key, .count = 1};
    switch (field->kind) {
    case SONDE__FIELD_WORD:
        return sonde__yaml_text(reader, entry, field->key, &setting->word);
    case SONDE__FIELD_FLAG:
        err = sonde__yaml_bool(reader, entry, field->key, &flag);
        setting->values[0] = flag ? 1.0 : 0.0;
        return err;
    case SONDE__FIELD_NUMBER:
        if (field->may_be_none && is_none(sonde__yaml_get(entry, field->key))) {
            setting->word = "none";
            return SONDE_OK;
        }
        err = sonde__yaml_float(reader, entry, field->key, &number);
        setting->values[0] = (double)number;
        return err;
    case SONDE__FIELD_WHOLE:
    case SONDE__FIELD_AXIS:
    case SONDE__FIELD_PAIR:
    case SONDE__FIELD_TRIPLE:
    case SONDE__FIELD_DIMS:
        break;
    }
    err = sonde__yaml_ints(reader, entry, field->key, numbers, SONDE_MAX_DIMS, &count);
    setting->count = (int)count;
    for (size_t i = 0; i < count; i++) {
        setting->values[i] = (double)numbers[i];
    }
    return err;
}

sonde_err sonde__job_read_settings(const sonde__yaml_reader *reader,
                                   const sonde__yaml *entry, const sonde__op_layer *row,
                                   sonde_nn_setting settings[SONDE__MAX_FIELDS],
                                   size_t *count)
{
    *count = 0;
    for (int i = 0; i < sonde__op_field_count(row); i++) {
        bool given = false;
        const sonde_err err =
            read_setting(reader, entry, &row->fields[i], &settings[*count], &given);

        if (err != SONDE_OK) {
            return err;
        }
        *count += given ? 1 : 0;
    }
    return SONDE_OK;
}

/* === the layer print =============================================================== */

/*
 * How a layer `print` of a job prints.
 */

/* Text of at most 7 bytes; what is there stays if the key is missing. */
static sonde_err read_short_text(const sonde__yaml_reader *reader,
                                 const sonde__yaml *entry, const char *key, char *to,
                                 size_t size)
{
    const char *text = NULL;
    const sonde_err err = sonde__yaml_text(reader, entry, key, &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    if (strlen(text) >= size) {
        return sonde__yaml_fail(reader, sonde__yaml_get(entry, key), SONDE_EINVAL,
                                "at most 7 characters", "%s is '%s'", key, text);
    }
    memcpy(to, text, strlen(text) + 1);
    return SONDE_OK;
}

static sonde_err read_float_format(const sonde__yaml_reader *reader,
                                   const sonde__yaml *entry, sonde_float_format *format)
{
    const char *text = NULL;
    sonde_diag diag = {0};
    sonde_err err = sonde__yaml_text(reader, entry, "float_format", &text);

    if (err != SONDE_OK || text == NULL) {
        return err;
    }
    err = sonde_float_format_parse(text, format, &diag);
    if (err != SONDE_OK) {
        return sonde__yaml_fail(reader, sonde__yaml_get(entry, "float_format"), err,
                                diag.expected, "float_format is '%s'", text);
    }
    return SONDE_OK;
}

/* Keys that are missing leave their options as they are. */
static sonde_err read_print(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                            sonde_print_options *options)
{
    struct {
        const char *key;
        int64_t most, value;
        int *to; /* NULL: the threshold */
    } numbers[] = {
        {"summarize_threshold", INT64_MAX, options->summarize_threshold, NULL},
        {"edge_items", INT32_MAX, options->edge_items, &options->edge_items},
        {"max_line_width", INT32_MAX, options->max_line_width, &options->max_line_width},
        {"digits", 17, options->digits, &options->digits}};
    const struct {
        const char *key;
        char *to;
    } texts[] = {{"separator", options->separator},
                 {"open_bracket", options->open_bracket},
                 {"close_bracket", options->close_bracket}};
    SONDE__TRY(read_float_format(reader, entry, &options->float_format));
    for (size_t i = 0; i < SONDE_COUNT_OF(numbers); i++) {
        SONDE__TRY(sonde__yaml_int(reader, entry, numbers[i].key, 0, numbers[i].most,
                                   &numbers[i].value));
        if (numbers[i].to != NULL) {
            *numbers[i].to = (int)numbers[i].value;
        }
    }
    options->summarize_threshold = numbers[0].value;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        SONDE__TRY(read_short_text(reader, entry, texts[i].key, texts[i].to,
                                   sizeof options->separator));
    }
    return SONDE_OK;
}

sonde_err sonde__job_build_print(const sonde__yaml_reader *reader,
                                 const sonde__yaml *entry, sonde_nn_model *model,
                                 const char *name, sonde_nn_value in, sonde_nn_value *out)
{
    sonde_print_options options = sonde_print_options_default();
    bool gradient = true;
    SONDE__TRY(sonde__yaml_bool(reader, entry, "gradient", &gradient));
    SONDE__TRY(read_print(reader, entry, &options));
    *out = sonde_nn_print(model, in, name, gradient, &options);
    return SONDE_OK;
}

/* === kinds of layers =============================================================== */

/*
 * The kinds of layers of a job by name: the rows of src/nn/ops
 * (layer_row.h), and three that are no ops.
 */

static sonde_err build_print(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    return sonde__job_build_print(&b->reader, entry, b->model, name, in[0], out);
}

/* Begins a block and hands its input on. */
static sonde_err build_block(sonde__job_builder *b, const sonde__yaml *entry,
                             const char *name, const sonde_nn_value *in,
                             sonde_nn_value *out)
{
    (void)entry;
    sonde_nn_begin_block(b->model, name);
    *out = in[0];
    return SONDE_OK;
}

static const sonde__job_layer_kind own_kinds[] = {
    {"print",
     {"gradient", "summarize_threshold", "edge_items", "max_line_width", "digits",
      "float_format", "separator", "open_bracket", "close_bracket"},
     1,
     .build = build_print},
    {"block", {NULL}, 1, .build = build_block},
    {"layers", {"times", "layers"}, 1, .build = NULL}, /* a group: job_layers.c */
};

static sonde_err build_row(sonde__job_builder *b, const sonde__yaml *entry,
                           const char *name, const sonde_nn_value *in,
                           sonde_nn_value *out)
{
    const sonde__op_layer *row = b->kind->row;
    sonde_nn_setting settings[SONDE__MAX_FIELDS];
    size_t count = 0;

    SONDE__TRY(sonde__job_read_settings(&b->reader, entry, row, settings, &count));
    *out = sonde_nn_layer(b->model, row->name, name, in, b->given, settings, count);
    return SONDE_OK;
}

size_t sonde__job_list_kinds(const char *names[SONDE__JOB_MAX_KINDS])
{
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(own_kinds); i++) {
        names[count++] = own_kinds[i].name;
    }
    for (size_t i = 0; sonde__op_layers[i] != NULL && count < SONDE__JOB_MAX_KINDS; i++) {
        names[count++] = sonde__op_layers[i]->name;
    }
    return count;
}

bool sonde__job_find_kind(const char *name, sonde__job_layer_kind *kind)
{
    const sonde__op_layer *row = sonde__op_find_layer(name);

    for (size_t i = 0; i < SONDE_COUNT_OF(own_kinds); i++) {
        if (strcmp(name, own_kinds[i].name) == 0) {
            *kind = own_kinds[i];
            return true;
        }
    }
    if (row == NULL) {
        return false;
    }
    *kind = (sonde__job_layer_kind){
        .name = row->name, .inputs = row->inputs, .build = build_row, .row = row};
    for (int i = 0; i < sonde__op_field_count(row); i++) {
        kind->keys[i] = row->fields[i].key;
    }
    return true;
}
