/*
 * files.c - files of rules: opening them, and finding rules by name among them.
 */
#include "rules/user/hosted.h"
#include "base/fail.h"
#include "base/memory.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

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

/* --- opening ---------------------------------------------------------------------- */

static sonde_err check_name(const sonde_rule_file *file, size_t i, sonde_diag *diag)
{
    const char *name = file->rules[i].rule.name;
    const sonde_rule *other = NULL;

    if (sonde_rule_by_name(name, &other, NULL) == SONDE_OK) {
        return sonde__fail(diag, SONDE_EEXIST, file->path, "a name of its own",
                           "rule %s: a built-in rule has this name", name);
    }
    for (size_t j = 0; j < i; j++) {
        if (strcasecmp(file->rules[j].rule.name, name) == 0) {
            return sonde__fail(diag, SONDE_EEXIST, file->path, "a name of its own",
                               "rule %s is there twice", name);
        }
    }
    return SONDE_OK;
}

static sonde_err read_rules(sonde_rule_file *file, const sonde__user_message *answer,
                            sonde_diag *diag)
{
    sonde__user_message message = *answer;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    file->texts = sonde__malloc(answer->left);
    if (file->texts == NULL) {
        return sonde__fail_nomem(diag, file->path);
    }
    memcpy(file->texts, answer->at, answer->left);
    message.at = file->texts;
    count = sonde__user_take_u32(&message);
    if (message.bad || count == 0 || count > SONDE__RULE_MOST) {
        return sonde__fail(diag, SONDE_EFORMAT, file->path, "1 to 64 rules", "%zu rules",
                           count);
    }
    file->rules = sonde__calloc(count, sizeof *file->rules);
    if (file->rules == NULL) {
        return sonde__fail_nomem(diag, file->path);
    }
    for (size_t i = 0; i < count && err == SONDE_OK; i++) {
        sonde__user_hosted *rule = &file->rules[i];

        err = sonde__user_rule_read(&message, rule);
        if (err != SONDE_OK) {
            return sonde__fail(diag, err, file->path, NULL,
                               "its host describes rule %zu as none can be", i + 1);
        }
        rule->path = file->path;
        rule->limits = &file->limits;
        file->count = i + 1;
        err = check_name(file, i, diag);
    }
    return err;
}

sonde_err sonde_rule_file_open(const char *path, const sonde_rule_limits *limits,
                               sonde_rule_file **out, sonde_diag *diag)
{
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
    err = file->path != NULL
              ? sonde__user_host_start(path, &file->limits, &host, &answer, diag)
              : sonde__fail_nomem(diag, path);
    if (err == SONDE_OK && answer.at != NULL) {
        err = read_rules(file, &answer, diag);
    }
    sonde__user_host_stop(host);
    if (err != SONDE_OK) {
        sonde_rule_file_close(file);
        return err;
    }
    *out = file;
    return SONDE_OK;
}

const sonde_rule *sonde_rule_file_at(const sonde_rule_file *file, size_t i)
{
    return i < file->count ? &file->rules[i].rule : NULL;
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

/* --- those of rules at work ------------------------------------------------------- */

static const sonde_rule *loaded(const sonde_rules *rules, const char *name)
{
    for (size_t i = 0; i < rules->file_count; i++) {
        const sonde_rule_file *file = rules->files[i];

        for (size_t j = 0; j < file->count; j++) {
            if (strcasecmp(file->rules[j].rule.name, name) == 0) {
                return &file->rules[j].rule;
            }
        }
    }
    return NULL;
}

static const sonde_rule_file *opened(const sonde_rules *rules, const char *path)
{
    for (size_t i = 0; i < rules->file_count; i++) {
        if (strcmp(rules->files[i]->path, path) == 0) {
            return rules->files[i];
        }
    }
    return NULL;
}

void sonde_rules_set_limits(sonde_rules *rules, const sonde_rule_limits *limits)
{
    rules->limits = *limits;
}

sonde_err sonde_rules_load(sonde_rules *rules, const char *path, sonde_diag *diag)
{
    sonde_rule_file *file = NULL;
    sonde_err err = SONDE_OK;

    if (opened(rules, path) != NULL) {
        return SONDE_OK;
    }
    if (!sonde__reserve(&rules->files, &rules->file_capacity, rules->file_count + 1,
                        sizeof(sonde_rule_file *))) {
        return sonde__fail_nomem(diag, path);
    }
    err = sonde_rule_file_open(path, &rules->limits, &file, diag);
    for (size_t i = 0; err == SONDE_OK && file != NULL && i < file->count; i++) {
        const char *name = file->rules[i].rule.name;

        if (loaded(rules, name) != NULL) {
            err = sonde__fail(diag, SONDE_EEXIST, path, "a name of its own",
                              "rule %s: another file has one of this name", name);
        }
    }
    if (err != SONDE_OK) {
        sonde_rule_file_close(file);
        return err;
    }
    rules->files[rules->file_count++] = file;
    return SONDE_OK;
}

static bool ends_in(const char *text, const char *end)
{
    const size_t length = strlen(text), n = strlen(end);

    return length > n && strcmp(text + length - n, end) == 0;
}

static sonde_err add_file(sonde_rules *rules, const char *path, const char *params,
                          sonde_diag *diag)
{
    const sonde_rule_file *file = NULL;
    sonde_err err = sonde_rules_load(rules, path, diag);

    if (err != SONDE_OK) {
        return err;
    }
    file = opened(rules, path);
    if (params != NULL && file->count > 1) {
        return sonde__fail(diag, SONDE_EINVAL, path, "one of its rules by name",
                           "parameters for a file of %zu rules", file->count);
    }
    for (size_t i = 0; i < file->count && err == SONDE_OK; i++) {
        err = sonde_rules_add_rule(rules, &file->rules[i].rule, params, diag);
    }
    return err;
}

sonde_err sonde__rules_add_named(sonde_rules *rules, const char *name, const char *params,
                                 sonde_diag *diag)
{
    const sonde_rule *rule = loaded(rules, name);
    sonde_err err = SONDE_OK;

    if (strchr(name, '/') != NULL || ends_in(name, ".lua") || ends_in(name, ".so")) {
        return add_file(rules, name, params, diag);
    }
    if (rule == NULL) {
        err = sonde_rule_by_name(name, &rule, diag);
    }
    return err == SONDE_OK ? sonde_rules_add_rule(rules, rule, params, diag) : err;
}

sonde_err sonde__rules_add_loaded(sonde_rules *rules, sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    for (size_t i = 0; i < rules->file_count; i++) {
        const sonde_rule_file *file = rules->files[i];

        for (size_t j = 0; j < file->count && err == SONDE_OK; j++) {
            if (!file->rules[j].rule.by_name_only) {
                err = sonde_rules_add_rule(rules, &file->rules[j].rule, NULL, diag);
            }
        }
    }
    return err;
}

void sonde__rules_close_files(sonde_rules *rules)
{
    for (size_t i = 0; i < rules->file_count; i++) {
        sonde_rule_file_close(rules->files[i]);
    }
    sonde__free(rules->files);
}
