/*
 * rules_program.c - the programs that rules read: those in force, by mode, and those that
 * wait for the end of their step, at which the rules are called; the lines of findings.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/memory.h"
#include "rules/standard.h"

#include <stdio.h>
#include <string.h>

/* A program that begins to hold at a step. */
struct sonde__rule_program {
    sonde__rule_program *next;
    int64_t step; /* global */
    sonde_program *program;
};

/* --- taking and showing ------------------------------------------------------------- */

sonde_err sonde__rules_take_program(sonde_rules *rules, int64_t step,
                                    sonde_program *program, sonde_diag *diag)
{
    sonde__rule_program **end = &rules->waiting_programs;
    sonde__rule_program *added = sonde__malloc(sizeof *added);

    if (added == NULL) {
        return sonde__fail_nomem(diag, "a program");
    }
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *added = (sonde__rule_program){NULL, step, program};
    *end = added;
    return SONDE_OK;
}

bool sonde__rules_has_program(const sonde_rules *rules, int64_t step)
{
    const sonde__rule_program *first = rules->waiting_programs;

    while (first != NULL && first->step > step) {
        first = first->next;
    }
    return first != NULL;
}

/* Calls the rules that read programs of its mode, unless it holds already. The one before
 * lives until then. */
static void show(sonde_rules *rules, sonde_program *program)
{
    sonde_program *before = rules->programs[program->mode];

    if (before != NULL && before->digest == program->digest) {
        sonde_program_destroy(program);
        return;
    }
    rules->programs[program->mode] = program;
    if (program->mode == SONDE_MODE_TRAIN || program->mode == SONDE_MODE_GLOBAL) {
        rules->progress.standard = sonde__rules_standard(program);
    }
    for (size_t i = 0; i < rules->count; i++) {
        sonde_rule_run *run = rules->runs[i];

        if (!run->failed && run->rule->program != NULL &&
            sonde__rules_judges(rules, run->rule, program->mode)) {
            run->programs++;
            run->any = run->any || run->rule->need_count == 0;
            run->rule->program(run, program);
        }
    }
    sonde_program_destroy(before);
}

void sonde__rules_show_programs(sonde_rules *rules, int64_t step)
{
    sonde_program *now[SONDE_MODE_COUNT] = {NULL};

    for (sonde__rule_program **at = &rules->waiting_programs; *at != NULL;) {
        sonde__rule_program *first = *at;

        if (first->step > step) {
            at = &first->next;
            continue;
        }
        sonde_program_destroy(now[first->program->mode]);
        now[first->program->mode] = first->program; /* the last one of a mode counts */
        *at = first->next;
        sonde__free(first);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        if (now[mode] != NULL) {
            show(rules, now[mode]);
        }
    }
}

void sonde__rules_free_programs(sonde_rules *rules)
{
    while (rules->waiting_programs != NULL) {
        sonde__rule_program *first = rules->waiting_programs;

        rules->waiting_programs = first->next;
        sonde_program_destroy(first->program);
        sonde__free(first);
    }
    for (int mode = 0; mode < SONDE_MODE_COUNT; mode++) {
        sonde_program_destroy(rules->programs[mode]);
    }
}

const sonde_program *sonde_rule_program(const sonde_rule_run *run, sonde_mode mode)
{
    return run != NULL && (unsigned)mode < SONDE_MODE_COUNT ? run->rules->programs[mode]
                                                            : NULL;
}

bool sonde__rule_found_by_program(const sonde_rule_run *run)
{
    return run->placed_count > 0;
}

void sonde__rule_judged_program(sonde_rule_run *run)
{
    run->by_program = run->reads = true;
}

/* --- lines -------------------------------------------------------------------------- */

/* The programs in force, that of the current step's mode first. NULL: there is none. */
static const sonde_program *program_at(const sonde_rules *rules, int i)
{
    return rules->programs[(i + (int)rules->mode) % SONDE_MODE_COUNT];
}

sonde_place sonde__rules_place_of(const sonde_rules *rules, const char *tensor,
                                  const sonde_program **program)
{
    sonde_place place = {"", 0};

    *program = NULL;
    for (int i = 0; i < SONDE_MODE_COUNT && place.file[0] == '\0'; i++) {
        *program = program_at(rules, i);
        place = sonde_program_place_of(*program, tensor);
    }
    return place;
}

/* The program to whose root a file is relative; NULL: there is none. */
static const sonde_program *program_of_file(const sonde_rules *rules, const char *file)
{
    for (int i = 0; i < SONDE_MODE_COUNT; i++) {
        const sonde_program *program = program_at(rules, i);

        if (program != NULL && program->root[0] != '\0' &&
            strncmp(file, program->root, strlen(program->root)) == 0) {
            return program;
        }
    }
    return NULL;
}

static sonde__rule_found *placed_at(const sonde_rule_run *run, const char *tensor,
                                    const char *file, int line)
{
    for (size_t i = 0; i < run->placed_count; i++) {
        const sonde_finding *finding = &run->placed[i]->finding;

        if (finding->place.line == line && strcmp(finding->place.file, file) == 0 &&
            strcmp(finding->tensor, tensor) == 0) {
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
    const char *file = place.file != NULL ? place.file : "";
    char shown[4096];

    (void)sonde_program_place_text(program_of_file(run->rules, file),
                                   (sonde_place){file, 0}, shown, sizeof shown);
    place = (sonde_place){shown, place.line};
    sonde__rule_found *found = placed_at(run, tensor, shown, place.line);
    if (found == NULL) {
        return sonde__rule_make_placed(run, tensor, place, severity, statistic, value,
                                       threshold);
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
