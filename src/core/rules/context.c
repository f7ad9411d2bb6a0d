/*
 * context.c - see context.h.
 */
#include "rules/context.h"
#include "rules/engine.h"

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
    return run->given[i];
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
