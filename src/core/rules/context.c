/*
 * context.c - see context.h. A table finds the first output of a module; the slots of its
 * outputs are a list.
 */
#include "rules/context.h"
#include "rules/engine.h"

#include <sonde/catalogue.h>

#include <string.h>
#include <xxhash.h>

const sonde_catalogue *sonde__rule_catalogue(const sonde_rule_run *run)
{
    return run->rules->catalogue;
}

sonde_trial *sonde__rule_trial(const sonde_rule_run *run, int64_t *begin)
{
    *begin = run->rules->begin;
    return run->rules->trial;
}

sonde_mode sonde__rule_mode(const sonde_rule_run *run)
{
    return run->rules->mode;
}

bool sonde__rule_is_given(const sonde_rule_run *run, size_t i)
{
    return run->values[i].given;
}

bool sonde__rule_only_losses(const sonde_rule_run *run)
{
    return !run->any && run->shown == run->losses;
}

bool sonde__rule_any_waits(const sonde_rule_run *run)
{
    return run->rules->waiting_count > 0;
}

bool sonde__rule_is_earlier(const sonde_rule_run *run, uint32_t a, uint32_t b)
{
    const sonde__rule_slot *slots = run->rules->slots;

    return slots[a].late || slots[b].late ? slots[a].place < slots[b].place : a < b;
}

void sonde__rule_count_comparison(sonde_rule_run *run)
{
    run->rules->compared++;
}

/* --- outputs of a module ------------------------------------------------------------ */

typedef struct module_key {
    const char *name;
    size_t length;
} module_key;

static bool is_output_of(const void *array, uint32_t index, const void *key)
{
    const sonde_rules *rules = array;
    const module_key *module = key;
    const char *name = sonde_catalogue_info(rules->catalogue, index)->module;

    return strncmp(name, module->name, module->length) == 0 &&
           name[module->length] == '\0';
}

static uint32_t find_first(const sonde_rules *rules, const char *module, size_t length)
{
    const module_key key = {module, length};

    return sonde__table_find(&rules->outputs, XXH3_64bits(module, length), is_output_of,
                             rules, &key);
}

bool sonde__rules_add_outputs(sonde_rules *rules, size_t first, size_t end)
{
    for (uint32_t id = (uint32_t)first; id < end; id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(rules->catalogue, id);
        const size_t length = strlen(info->module);
        uint32_t head = SONDE__TABLE_NONE;

        rules->slots[id].next_output = SONDE__TABLE_NONE;
        rules->slots[id].last_output = id;
        if (info->role != SONDE_ROLE_OUTPUT || length == 0) {
            continue;
        }
        head = find_first(rules, info->module, length);
        if (head != SONDE__TABLE_NONE) {
            rules->slots[rules->slots[head].last_output].next_output = id;
            rules->slots[head].last_output = id;
            continue;
        }
        if (!sonde__table_reserve(&rules->outputs)) {
            return false;
        }
        sonde__table_add(&rules->outputs, XXH3_64bits(info->module, length), id);
    }
    return true;
}

uint32_t sonde__rules_first_output(const sonde_rule_run *run, const char *module,
                                   size_t length)
{
    run->rules->compared++;
    return find_first(run->rules, module, length);
}

uint32_t sonde__rules_next_output(const sonde_rule_run *run, uint32_t id)
{
    run->rules->compared++;
    return run->rules->slots[id].next_output;
}
