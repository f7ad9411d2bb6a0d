/*
 * rule_programs.c - programs of steps, as rules read them, and findings that name a line.
 */
#include "rules/engine.h"

#include "base/memory.h"

#include <string.h>

void sonde__rules_take_program(sonde_rules *rules, sonde_program *program)
{
    if (rules == NULL || program == NULL) {
        sonde_program_destroy(program);
        return;
    }
    sonde_program_destroy(rules->fresh[program->mode]);
    rules->fresh[program->mode] = program;
}

static void show(sonde_rules *rules, const sonde_program *program)
{
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->program != NULL) {
            run->any = run->any || run->rule->need_count == 0;
            run->programs++;
            run->rule->program(run, program);
        }
    }
}

bool sonde__rules_show_programs(sonde_rules *rules)
{
    bool any = false;

    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_program *fresh = rules->fresh[mode], *before = rules->programs[mode];

        if (fresh != NULL) {
            rules->programs[mode] = fresh;
            rules->fresh[mode] = NULL;
            show(rules, fresh);
            sonde_program_destroy(before);
            any = true;
        }
    }
    return any;
}

void sonde__rules_free_programs(sonde_rules *rules)
{
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_program_destroy(rules->fresh[mode]);
        sonde_program_destroy(rules->programs[mode]);
    }
}

const sonde_program *sonde_rule_program(const sonde_rule_run *run, sonde_mode mode)
{
    return run != NULL && (unsigned)mode < SONDE_MODE_COUNT ? run->rules->programs[mode]
                                                            : NULL;
}

static sonde__rule_found *find_placed(const sonde_rule_run *run, const char *tensor,
                                      sonde_place place)
{
    for (size_t i = 0; i < run->placed_count; i++) {
        const sonde_finding *finding = &run->placed[i]->finding;

        if (strcmp(finding->tensor, tensor) == 0 && finding->place.line == place.line &&
            strcmp(finding->place.file, place.file) == 0) {
            return run->placed[i];
        }
    }
    return NULL;
}

bool sonde_rule_found_at(sonde_rule_run *run, const char *tensor, sonde_place place,
                         sonde_severity severity, const char *statistic, double value,
                         double threshold)
{
    if (run == NULL || tensor == NULL || statistic == NULL) {
        return false;
    }
    place.file = place.file != NULL ? place.file : "";
    sonde__rule_found *found = find_placed(run, tensor, place);
    if (found == NULL) {
        found = sonde__reserve(&run->placed, &run->placed_capacity, run->placed_count + 1,
                               sizeof(void *))
                    ? sonde__rule_make_placed(run, tensor, place, severity, statistic,
                                              value, threshold)
                    : NULL;
        if (found != NULL) {
            run->placed[run->placed_count++] = found;
        }
        return found != NULL;
    }
    sonde__rules_hold_again(run->rules, found);
    if (severity <= found->finding.severity) {
        return false;
    }
    sonde__rule_raise(run->rules, found, severity);
    found->finding.statistic = statistic;
    found->finding.value = value;
    found->finding.threshold = threshold;
    run->speaking = found;
    return true;
}
