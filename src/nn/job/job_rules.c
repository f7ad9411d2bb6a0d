/*
 * job_rules.c - a job's section `rules`: who judges the training, and what is done about it.
 *
 *     rules: none                                   or a text, or a list, as of sonde_rules_add_list
 *     rules: {judge: default, every: 10, stop_on: [error], on_finding: [...], each: false}
 */
#include "nn/job/job.h"
#include "base/macros.h"

#include <sonde/rules.h>

#include <string.h>
#include <strings.h>

/* A text or a list of texts, borrowed from the tree. */
static sonde_err read_texts(const sonde__yaml_reader *reader, const sonde__yaml *node,
                            sonde_nn_job_texts *out)
{
    const bool one = node->kind == SONDE__YAML_SCALAR;
    const size_t count = one ? 1 : node->count;

    if (node->kind == SONDE__YAML_MAP) {
        return sonde__yaml_fail(reader, node, SONDE_EINVAL, "a text or a list of texts",
                                "%s is a map", node->key);
    }
    for (size_t i = 0; i < count; i++) {
        const sonde__yaml *item = one ? node : node->children[i];

        if (item->kind != SONDE__YAML_SCALAR) {
            return sonde__yaml_fail(reader, item, SONDE_EINVAL, "a text",
                                    "an entry of %s is none", node->key);
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

/* Adds them to rules that judge nothing, to find mistakes. */
static sonde_err check_rules(const sonde__yaml_reader *reader, const sonde__yaml *node,
                             const sonde_nn_job_texts *judge)
{
    sonde_rules *rules = NULL;
    sonde_diag inner = {0};
    sonde_err err = sonde_rules_create(&rules, &inner);

    for (size_t i = 0; i < judge->count && err == SONDE_OK; i++) {
        err = sonde_rules_add_list(rules, judge->text[i], &inner);
    }
    sonde_rules_destroy(rules);
    return err == SONDE_OK
               ? SONDE_OK
               : sonde__yaml_fail(reader, node, err, inner.expected, "%s%s%s",
                                  inner.where, inner.where[0] != '\0' ? ": " : "",
                                  inner.found);
}

static sonde_err read_judge(const sonde__yaml_reader *reader, const sonde__yaml *node,
                            sonde_nn_job_rules *rules)
{
    sonde_err err = read_texts(reader, node, &rules->judge);

    if (err == SONDE_OK && rules->judge.count == 1 &&
        strcasecmp(rules->judge.text[0], "none") == 0) {
        rules->judge.count = 0;
        rules->none = true;
        return SONDE_OK;
    }
    return err == SONDE_OK ? check_rules(reader, node, &rules->judge) : err;
}

sonde_err sonde__job_read_rules(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_job_rules *rules)
{
    static const char *const keys[] = {"judge", "every", "stop_on", "on_finding", "each"};
    const sonde__yaml *node = NULL;
    sonde_err err = SONDE_OK;

    if (section->kind != SONDE__YAML_MAP) {
        return read_judge(reader, section, rules);
    }
    err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));
    if (err == SONDE_OK && (node = sonde__yaml_get(section, "judge")) != NULL) {
        err = read_judge(reader, node, rules);
    }
    if (err == SONDE_OK) {
        err = sonde__yaml_int(reader, section, "every", 1, INT32_MAX, &rules->every);
    }
    if (err == SONDE_OK && (node = sonde__yaml_get(section, "stop_on")) != NULL) {
        err = read_texts(reader, node, &rules->stop_on);
    }
    if (err == SONDE_OK && (node = sonde__yaml_get(section, "on_finding")) != NULL) {
        err = read_texts(reader, node, &rules->on_finding);
    }
    return err == SONDE_OK ? sonde__yaml_bool(reader, section, "each", &rules->each)
                           : err;
}

const sonde_nn_job_rules *sonde_nn_job_get_rules(const sonde_nn_job *job)
{
    return &job->rules;
}
