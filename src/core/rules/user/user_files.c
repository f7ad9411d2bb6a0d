/*
 * user_files.c - files of rules: a host reads one and describes its rules, whose rows are
 * checked.
 */
#include "rules/user/hosted.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/point.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { NAME_MOST = 64, TEXT_MOST = 2000, STATE_MOST = 1 << 28, FIELD = 8 };
enum {
    HOWS = SONDE_HOW_RAW | SONDE_HOW_VITALS | SONDE_HOW_SKETCH | SONDE_HOW_HASH |
           SONDE_HOW_NORMS
};

/* --- a row as a message ------------------------------------------------------------- */

static void put_param(sonde__user_wire *wire, const sonde_rule_param *param)
{
    sonde__user_wire_put_text(wire, param->name);
    sonde__user_wire_put_u32(wire, (uint32_t)param->kind);
    sonde__user_wire_put_text(wire, param->initial);
    sonde__user_wire_put_f64(wire, param->least);
    sonde__user_wire_put_f64(wire, param->most);
    sonde__user_wire_put_text(wire, param->help);
    sonde__user_wire_put_u32(wire, param->required);
}

static void put_when(sonde__user_wire *wire, const sonde_schedule *when)
{
    sonde__user_wire_put_i64(wire, when->every);
    sonde__user_wire_put_i64(wire, when->first);
    sonde__user_wire_put_i64(wire, when->row);
    sonde__user_wire_put_i64(wire, when->row_every);
}

void sonde__user_rule_describe(sonde__user_wire *wire, const sonde_rule *rule)
{
    sonde__user_wire_put_text(wire, rule->name);
    sonde__user_wire_put_text(wire, rule->summary);
    sonde__user_wire_put_text(wire, rule->condition);
    sonde__user_wire_put_text(wire, rule->advice);
    sonde__user_wire_put_u32(wire, rule->modes);
    sonde__user_wire_put_u32(wire, rule->by_name_only);
    sonde__user_wire_put_u32(wire, rule->idle != NULL);
    sonde__user_wire_put_u32(wire, (uint32_t)rule->param_count);
    sonde__user_wire_put_u32(wire, (uint32_t)rule->need_count);
    for (size_t i = 0; i < rule->param_count; i++) {
        put_param(wire, &rule->params[i]);
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        sonde__user_wire_put_text(wire, rule->needs[i].what);
        sonde__user_wire_put_u32(wire, rule->needs[i].how);
        sonde__user_wire_put_u32(wire, rule->needs[i].optional);
        sonde__user_wire_put_u32(wire, rule->needs[i].roles);
        put_when(wire, &rule->needs[i].when);
    }
}

static void take_param(sonde__user_message *message, sonde_rule_param *param, size_t i)
{
    param->name = sonde__user_need_text(message);
    param->kind = (sonde_rule_kind)sonde__user_take_u32(message);
    param->initial = sonde__user_take_text(message);
    param->least = sonde__user_take_f64(message);
    param->most = sonde__user_take_f64(message);
    param->help = sonde__user_need_text(message);
    param->required = sonde__user_take_u32(message) != 0;
    param->offset = sizeof(sonde__user_hosted_state) + i * FIELD;
}

static void take_need(sonde__user_message *message, sonde_rule_need *need)
{
    need->what = sonde__user_need_text(message);
    need->how = sonde__user_take_u32(message);
    need->optional = sonde__user_take_u32(message) != 0;
    need->roles = sonde__user_take_u32(message);
    need->when.every = sonde__user_take_i64(message);
    need->when.first = sonde__user_take_i64(message);
    need->when.row = sonde__user_take_i64(message);
    need->when.row_every = sonde__user_take_i64(message);
}

void sonde__user_hosted_fini(sonde__user_hosted *hosted)
{
    sonde__free(hosted->params);
    sonde__free(hosted->needs);
    hosted->params = NULL;
    hosted->needs = NULL;
}

sonde_err sonde__user_rule_read(sonde__user_message *message, sonde__user_hosted *out)
{
    sonde_rule *rule = &out->rule;

    *out = (sonde__user_hosted){.rule.abi = SONDE_RULE_ABI};
    rule->name = sonde__user_need_text(message);
    rule->summary = sonde__user_need_text(message);
    rule->condition = sonde__user_need_text(message);
    rule->advice = sonde__user_need_text(message);
    rule->modes = sonde__user_take_u32(message);
    rule->by_name_only = sonde__user_take_u32(message) != 0;
    bool idle = sonde__user_take_u32(message) != 0;
    rule->param_count = sonde__user_take_u32(message);
    rule->need_count = sonde__user_take_u32(message);
    if (message->bad || rule->param_count > SONDE__RULE_MOST ||
        rule->need_count > SONDE__RULE_MOST) {
        return SONDE_EFORMAT;
    }
    out->params = sonde__calloc(rule->param_count, sizeof *out->params);
    out->needs = sonde__calloc(rule->need_count, sizeof *out->needs);
    if (out->params == NULL || out->needs == NULL) {
        sonde__user_hosted_fini(out);
        return SONDE_ENOMEM;
    }
    for (size_t i = 0; i < rule->param_count; i++) {
        take_param(message, &out->params[i], i);
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        take_need(message, &out->needs[i]);
    }
    rule->params = out->params;
    rule->needs = out->needs;
    rule->state_size = sizeof(sonde__user_hosted_state) + rule->param_count * FIELD;
    sonde__user_hosted_functions(rule);
    rule->idle = idle ? rule->idle : NULL;
    if (message->bad || sonde__user_rule_check(rule, "", NULL) != SONDE_OK) {
        sonde__user_hosted_fini(out);
        return SONDE_EFORMAT;
    }
    return SONDE_OK;
}

/* --- checking ----------------------------------------------------------------------- */

/* A letter, then letters, digits and "_", since file names contain it. */
static bool is_name(const char *text)
{
    size_t length = 0;

    if (text == NULL || !isalpha((unsigned char)text[0])) {
        return false;
    }
    for (; text[length] != '\0' && length <= NAME_MOST; length++) {
        if (!isalnum((unsigned char)text[length]) && text[length] != '_') {
            return false;
        }
    }
    return length <= NAME_MOST;
}

static bool is_text(const char *text)
{
    return text != NULL && strnlen(text, TEXT_MOST + 1) <= TEXT_MOST;
}

static size_t field_size(sonde_rule_kind kind)
{
    return kind == SONDE_RULE_FLAG ? sizeof(bool) : FIELD;
}

static sonde_err bad_row(sonde_diag *diag, const char *path, const sonde_rule *rule,
                         const char *expected, const char *what)
{
    return sonde__fail(diag, SONDE_EINVAL, path, expected, "rule %s: %s",
                       is_name(rule->name) ? rule->name : "?", what);
}

static sonde_err check_param(const sonde_rule *rule, size_t i, const char *path,
                             sonde_diag *diag)
{
    const sonde_rule_param *param = &rule->params[i];
    char what[128];
    const char *expected = NULL;

    if (!is_name(param->name)) {
        expected = "letters, digits and '_'";
        (void)snprintf(what, sizeof what, "parameter %zu has no name", i + 1);
        return bad_row(diag, path, rule, expected, what);
    }
    if ((unsigned)param->kind > SONDE_RULE_COLLECTIONS) {
        expected = "a kind of sonde_rule_kind";
    } else if (!is_text(param->help)) {
        expected = "a help text";
    } else if (param->initial != NULL && !is_text(param->initial)) {
        expected = "a shorter default";
    } else if (!isfinite(param->least) || !isfinite(param->most) ||
               param->least > param->most) {
        expected = "least <= most";
    } else if (param->offset > rule->state_size ||
               rule->state_size - param->offset < field_size(param->kind)) {
        expected = "an offset inside the state";
    } else if (param->offset % field_size(param->kind) != 0) {
        expected = "an offset that is aligned";
    }
    (void)snprintf(what, sizeof what, "parameter '%s' is invalid", param->name);
    for (size_t j = 0; j < i && expected == NULL; j++) {
        if (sonde__strcasecmp(rule->params[j].name, param->name) == 0) {
            expected = "a name of its own";
            (void)snprintf(what, sizeof what, "parameter '%s' occurs twice", param->name);
        }
    }
    return expected != NULL ? bad_row(diag, path, rule, expected, what) : SONDE_OK;
}

static sonde_err check_need(const sonde_rule *rule, size_t i, const char *path,
                            sonde_diag *diag)
{
    const sonde_rule_need *need = &rule->needs[i];
    char what[64];

    (void)snprintf(what, sizeof what, "need %zu is invalid", i + 1);
    if (!is_text(need->what)) {
        return bad_row(diag, path, rule, "a text what", what);
    }
    if (need->how == 0 || (need->how & ~(unsigned)HOWS) != 0) {
        return bad_row(diag, path, rule, "SONDE_HOW_ bits", what);
    }
    if ((need->how & ~(unsigned)(SONDE_HOW_VITALS | SONDE_HOW_NORMS)) != 0 &&
        rule->observe == NULL) {
        return bad_row(diag, path, rule, "a function observe",
                       "it needs more than vital signs");
    }
    if (sonde_schedule_check(&need->when, NULL) != SONDE_OK ||
        need->when.step_count > 0 || need->when.start != 0 || need->when.end != 0) {
        return bad_row(diag, path, rule, "when with every, first, row and row_every",
                       what);
    }
    return SONDE_OK;
}

static sonde_err check_texts(const sonde_rule *rule, const char *path, sonde_diag *diag)
{
    const struct {
        const char *text, *name;
    } texts[] = {{rule->summary, "summary"},
                 {rule->condition, "condition"},
                 {rule->advice, "advice"}};

    if (!is_name(rule->name)) {
        return bad_row(diag, path, rule, "a letter, then letters, digits and '_'",
                       rule->name != NULL ? "its name is invalid" : "it has no name");
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        if (!is_text(texts[i].text)) {
            char expected[64];

            (void)snprintf(expected, sizeof expected, "a text of at most %d bytes",
                           TEXT_MOST);
            return bad_row(diag, path, rule, expected, texts[i].name);
        }
    }
    return SONDE_OK;
}

sonde_err sonde__user_rule_check(const sonde_rule *rule, const char *path,
                                 sonde_diag *diag)
{
    SONDE__TRY(check_texts(rule, path, diag));
    if (rule->param_count > SONDE__RULE_MOST || rule->need_count > SONDE__RULE_MOST ||
        (rule->param_count > 0 && rule->params == NULL) ||
        (rule->need_count > 0 && rule->needs == NULL)) {
        return bad_row(diag, path, rule, "at most 64 of each", "parameters or needs");
    }
    if (rule->state_size > STATE_MOST || rule->tensor_size > STATE_MOST) {
        return bad_row(diag, path, rule, "at most 256 MB", "the size of its state");
    }
    if ((rule->modes >> SONDE_MODE_COUNT) != 0) {
        return bad_row(diag, path, rule, "a bit for each mode", "its modes");
    }
    if (rule->wants == NULL) {
        return bad_row(diag, path, rule, "a function wants", "it selects no tensors");
    }
    for (size_t i = 0; i < rule->param_count; i++) {
        SONDE__TRY(check_param(rule, i, path, diag));
    }
    for (size_t i = 0; i < rule->need_count; i++) {
        SONDE__TRY(check_need(rule, i, path, diag));
    }
    return SONDE_OK;
}

/* --- a file ------------------------------------------------------------------------- */

struct sonde_rule_file {
    char *path;
    sonde_rule_limits limits;
    unsigned char *texts; /* the host's answer, which descriptions borrow from */
    sonde__user_hosted *rules;
    size_t count;
};

static sonde_rule_limits with_defaults(const sonde_rule_limits *limits)
{
    sonde_rule_limits whole = limits != NULL ? *limits : (sonde_rule_limits){0};

    whole.seconds = whole.seconds > 0 ? whole.seconds : SONDE__RULE_SECONDS;
    whole.memory = whole.memory > 0 ? whole.memory : SONDE__RULE_MEMORY;
    whole.instructions =
        whole.instructions > 0 ? whole.instructions : SONDE__RULE_INSTRUCTIONS;
    return whole;
}

static sonde_err check_name(const sonde_rule_file *file, size_t i, sonde_diag *diag)
{
    const char *name = file->rules[i].rule.name;
    const sonde_rule *other = NULL;

    if (sonde_rule_by_name(name, &other, NULL) == SONDE_OK) {
        return sonde__fail(diag, SONDE_EEXIST, file->path, "a name of its own",
                           "rule %s: a built-in rule has this name", name);
    }
    for (size_t j = 0; j < i; j++) {
        if (sonde__strcasecmp(file->rules[j].rule.name, name) == 0) {
            return sonde__fail(diag, SONDE_EEXIST, file->path, "a name of its own",
                               "rule %s occurs twice", name);
        }
    }
    return SONDE_OK;
}

static sonde_err read_rules(sonde_rule_file *file, const sonde__user_message *answer,
                            sonde_diag *diag)
{
    sonde__user_message message = *answer;

    file->texts = sonde__malloc(answer->left);
    if (file->texts == NULL) {
        return sonde__fail_nomem(diag, file->path);
    }
    memcpy(file->texts, answer->at, answer->left);
    message.at = file->texts;
    size_t count = sonde__user_take_u32(&message);
    if (message.bad || count == 0 || count > SONDE__RULE_MOST) {
        return sonde__fail(diag, SONDE_EFORMAT, file->path, "1 to 64 rules", "%zu rules",
                           count);
    }
    file->rules = sonde__calloc(count, sizeof *file->rules);
    if (file->rules == NULL) {
        return sonde__fail_nomem(diag, file->path);
    }
    for (size_t i = 0; i < count; i++) {
        sonde__user_hosted *rule = &file->rules[i];
        sonde_err err = sonde__user_rule_read(&message, rule);

        if (err != SONDE_OK) {
            return sonde__fail(diag, err, file->path, NULL,
                               "the host sent an invalid description of rule %zu", i + 1);
        }
        rule->path = file->path;
        rule->limits = &file->limits;
        file->count = i + 1;
        SONDE__TRY(check_name(file, i, diag));
    }
    return SONDE_OK;
}

sonde_err sonde_rule_file_open(const char *path, const sonde_rule_limits *limits,
                               sonde_rule_file **out, sonde_diag *diag)
{
    SONDE__NEEDS(diag, path, out);
    sonde_rule_file *file = NULL;
    sonde__user_host *host = NULL;
    sonde__user_message answer = {0};
    sonde_err err = SONDE_OK;

    if (access(path, R_OK) != 0) {
        return sonde__fail_errno(diag, path, "a file of rules cannot be read");
    }
    file = sonde__calloc(1, sizeof *file);
    if (file == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    file->limits = with_defaults(limits);
    file->path = sonde__strdup(path);
    if (file->path == NULL) {
        err = sonde__fail_nomem(diag, path);
        goto error;
    }
    SONDE__TRY_GO(sonde__user_host_start(path, &file->limits, &host, &answer, diag));
    if (answer.at != NULL) {
        SONDE__TRY_GO(read_rules(file, &answer, diag));
    }
    sonde__user_host_stop(host);
    *out = file;
    return SONDE_OK;

error:
    sonde__user_host_stop(host);
    sonde_rule_file_close(file);
    return err;
}

const sonde_rule *sonde_rule_file_at(const sonde_rule_file *file, size_t i)
{
    if (file == NULL) {
        return NULL;
    }
    return i < file->count ? &file->rules[i].rule : NULL;
}

const char *sonde__user_file_path(const sonde_rule_file *file)
{
    return file->path;
}

void sonde_rule_file_close(sonde_rule_file *file)
{
    if (file == NULL) {
        return;
    }
    for (size_t i = 0; i < file->count; i++) {
        sonde__user_hosted_fini(&file->rules[i]);
    }
    sonde__free(file->rules);
    sonde__free(file->texts);
    sonde__free(file->path);
    sonde__free(file);
}
