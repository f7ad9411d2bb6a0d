/*
 * builtins.c - the built-in rules by index and by name.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/number.h"
#include "observe/tensor_names.h"

#include <stdio.h>
#include <string.h>

static size_t builtin_count(void)
{
    size_t count = 0;

    while (sonde__rule_builtins[count] != NULL) {
        count++;
    }
    return count;
}

const sonde_rule *sonde_rule_at_index(size_t i)
{
    return i < builtin_count() ? sonde__rule_builtins[i] : NULL;
}

static const char *rule_name_at(const void *list, size_t i)
{
    return ((const sonde_rule *const *)list)[i]->name;
}

/* Names that smdebug gives to rules that have another name here. */
static const struct {
    const char *theirs, *ours;
} names_of_smdebug[] = {{"StalledTrainingRule", "StalledTraining"}};

static const char *own_name(const char *name)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(names_of_smdebug); i++) {
        if (sonde__strcasecmp(names_of_smdebug[i].theirs, name) == 0) {
            return names_of_smdebug[i].ours;
        }
    }
    return name;
}

sonde_err sonde_rule_by_name(const char *name, const sonde_rule **rule, sonde_diag *diag)
{
    SONDE__NEEDS(diag, name, rule);
    const sonde_rule *const *table = sonde__rule_builtins;
    const size_t count = builtin_count();
    char near[SONDE__NEAREST_TEXT] = "";

    for (size_t i = 0; i < count; i++) {
        if (sonde__strcasecmp(table[i]->name, own_name(name)) == 0) {
            *rule = table[i];
            return SONDE_OK;
        }
    }
    (void)sonde__observe_nearest_names(name, table, rule_name_at, count, near,
                                       sizeof near);
    for (size_t i = 0; i < count && near[0] == '\0'; i++) {
        if (strlen(name) > 2 && sonde__strcasestr(table[i]->name, name) != NULL) {
            (void)snprintf(near, sizeof near, "%s", table[i]->name);
        }
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, NULL,
                       near[0] != '\0' ? near : "one of 'sonde rules list'",
                       "unknown rule '%s'", name);
}
