/*
 * job_groups.c - groups of parameters in the section `optimizer`:
 *
 *     groups:
 *       - {name: head, params: "fc*", learning_rate: 0.01, schedule: step, gamma: 0.5}
 *       - {name: bare, params: "*.bias, norm.*", weight_decay: 0}
 *
 * An entry takes the keys of its section, kind, clipping and loss scaling apart, which all
 * groups share. It is read again whenever it is asked for: the section's numbers, which it
 * completes, may have been changed by flags.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"

#include <sonde/nn/job.h>

#include <string.h>

static const char *const own_keys[] = {"name", "params"};

bool sonde__job_is_shared(const char *key)
{
    static const char *const shared[] = {
        "kind",          "clip_value",     "clip_norm",       "loss_scaling",
        "growth_factor", "backoff_factor", "growth_interval", "automatic_loss_scaling"};

    for (size_t i = 0; i < SONDE_COUNT_OF(shared); i++) {
        if (strcmp(key, shared[i]) == 0) {
            return true;
        }
    }
    return false;
}

static sonde_err check_shared(const sonde__yaml_reader *reader, const sonde__yaml *entry)
{
    for (size_t i = 0; i < entry->count; i++) {
        const sonde__yaml *child = entry->children[i];

        if (child->key != NULL && sonde__job_is_shared(child->key)) {
            return sonde__yaml_fail(reader, child, SONDE_EINVAL,
                                    "it in the section optimizer",
                                    "%s is one for all groups", child->key);
        }
    }
    return SONDE_OK;
}

static bool has_schedule(const sonde__yaml *entry)
{
    static const char *const keys[] = {"schedule", "warmup",       "schedule_every",
                                       "gamma",    "schedule_end", "rates"};
    bool any = false;

    for (size_t i = 0; i < SONDE_COUNT_OF(keys); i++) {
        any = any || sonde__yaml_get(entry, keys[i]) != NULL;
    }
    return any;
}

/* A group with a schedule of its own has nothing of the section's: its numbers are the
 * defaults, which are the only ones that options of the section have. */
static sonde_err reset_schedule(sonde_nn_job_info *info, sonde_diag *diag)
{
    sonde_nn_job blank = {.info = *info};
    const sonde_nn_option *row = NULL;
    sonde_err err = SONDE_OK;

    blank.info.rates.count = 0;
    for (size_t i = 0; err == SONDE_OK && (row = sonde_nn_option_at(i)) != NULL; i++) {
        if (strcmp(row->section, "optimizer") == 0 && row->standard != NULL) {
            err = sonde_nn_job_set(&blank, row->name, row->standard, diag);
        }
    }
    *info = blank.info;
    return err;
}

static sonde_err read_group(const sonde__yaml_reader *reader, const sonde__yaml *entry,
                            const sonde_nn_job_info *info, sonde_nn_job_group *group)
{
    sonde_nn_job_info own = *info;
    sonde_nn_job_group read = {.name = NULL};
    sonde_diag diag = {0};
    sonde_err err = check_shared(reader, entry);

    if (err != SONDE_OK) {
        return err;
    }
    if (has_schedule(entry)) {
        err = reset_schedule(&own, reader->diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(sonde__job_read_entry(reader, entry, "optimizer", own_keys,
                                     SONDE_COUNT_OF(own_keys), &own));
    SONDE__TRY(sonde__yaml_text(reader, entry, "name", &read.name));
    SONDE__TRY(sonde__yaml_text(reader, entry, "params", &read.params));
    if (read.name == NULL || read.params == NULL) {
        return sonde__yaml_fail(
            reader, entry, SONDE_EINVAL, "name, and params: a selector of parameters",
            "a group lacks %s", read.name == NULL ? "name" : "params");
    }
    if (sonde_nn_optimizer_check(&own.optimizer, &diag) != SONDE_OK) {
        return sonde__yaml_fail(reader, entry, SONDE_EINVAL, diag.expected,
                                "%s of group %s is %s", diag.where, read.name,
                                diag.found);
    }
    read.optimizer = own.optimizer;
    read.scheduled = has_schedule(entry);
    read.schedule = own.schedule;
    read.rates = own.rates;
    *group = read;
    return SONDE_OK;
}

sonde_err sonde__job_read_groups(const sonde__yaml_reader *reader,
                                 const sonde__yaml *section, sonde_nn_job *job)
{
    const sonde__yaml *list = sonde__yaml_get(section, "groups");

    if (list == NULL) {
        return SONDE_OK;
    }
    if (list->kind != SONDE__YAML_LIST || list->count > SONDE_NN_GROUPS_MOST) {
        return sonde__yaml_fail(reader, list, SONDE_EINVAL, "a list of at most 64 groups",
                                "groups is %s",
                                list->kind == SONDE__YAML_LIST ? "longer" : "no list");
    }
    for (size_t i = 0; i < list->count; i++) {
        sonde_nn_job_group group;

        if (list->children[i]->kind != SONDE__YAML_MAP) {
            return sonde__yaml_fail(reader, list->children[i], SONDE_EINVAL,
                                    "a map with name and params", "a group is not a map");
        }
        SONDE__TRY(read_group(reader, list->children[i], &job->info, &group));
    }
    job->groups = list;
    job->info.group_count = list->count;
    return SONDE_OK;
}

sonde_err sonde_nn_job_get_group(const sonde_nn_job *job, size_t i,
                                 sonde_nn_job_group *group, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job, group);
    const sonde__yaml_reader reader = {job->name, diag};

    if (i >= job->info.group_count) {
        return sonde__fail(diag, SONDE_ERANGE, "group", "fewer", "group %zu of %zu", i,
                           job->info.group_count);
    }
    return read_group(&reader, job->groups->children[i], &job->info, group);
}
