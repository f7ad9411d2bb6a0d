/*
 * job_rules.c - a job's section `rules`: the rules that judge the training, and their
 * actions.
 *
 *     rules: none                                   or a text, or a list, as of sonde_rules_add_list
 *     rules: {judge: default, every: 10, stop_on: [error], on_finding: [...], each: false}
 */
#include "nn/job/job.h"
#include "base/fail.h"

#include <sonde/rules.h>

/* Finds mistakes: adds the rules to an engine that is not used. */
static sonde_err check_rules(const sonde__yaml_reader *reader, const sonde__yaml *node,
                             const sonde_nn_job_texts *judge)
{
    sonde_rules *rules = NULL;
    sonde_diag inner = {0};
    sonde_err err = sonde_rules_create(&rules, &inner);

    if (err != SONDE_OK) {
        goto done;
    }
    for (size_t i = 0; i < judge->count; i++) {
        SONDE__TRY_DONE(sonde_rules_add_list(rules, judge->text[i], &inner));
    }

done:
    sonde_rules_destroy(rules);
    if (err != SONDE_OK) {
        return sonde__yaml_fail(reader, node, err, inner.expected, "%s%s%s", inner.where,
                                inner.where[0] != '\0' ? ": " : "", inner.found);
    }
    return SONDE_OK;
}

sonde_err sonde__job_read_rules(const sonde__yaml_reader *reader,
                                const sonde__yaml *section, sonde_nn_job_info *info)
{
    const bool map = section->kind == SONDE__YAML_MAP;
    const sonde__yaml *node = map ? sonde__yaml_get(section, "judge") : section;
    const sonde_err err = map ? sonde__job_read_options(reader, section, info)
                              : sonde__job_read_judge(reader, section, info);

    if (err != SONDE_OK || node == NULL) {
        return err;
    }
    return check_rules(reader, node, &info->rules.judge);
}
