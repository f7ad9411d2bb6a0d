/*
 * context.h - what built-in rules see of a run and of the other rules, beyond
 * <sonde/rule.h>. suspicion.h has findings that wait for training.
 */
#ifndef SONDE_RULES_CONTEXT_H
#define SONDE_RULES_CONTEXT_H

#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__RULES_WORKER = 1024 }; /* replicas of worker w count from w times this */

const sonde_catalogue *sonde__rule_catalogue(const sonde_rule_run *run);
/* The recorded run that is judged, from global step *begin on; NULL: there is none. */
sonde_trial *sonde__rule_trial(const sonde_rule_run *run, int64_t *begin);
/* The mode of the step as the run has it. */
sonde_mode sonde__rule_mode(const sonde_rule_run *run);
/* Whether the user has set parameter i. */
bool sonde__rule_is_given(const sonde_rule_run *run, size_t i);
/* Whether losses are all that the rule has at this step. */
bool sonde__rule_only_losses(const sonde_rule_run *run);
/* Whether a suspicion of any rule waits. */
bool sonde__rule_any_waits(const sonde_rule_run *run);
/* Whether a tensor with a value at this step comes before another one: in the order of
 * declaration, except for tensors that were declared after the first step. These stand
 * where the step had their first value. */
bool sonde__rule_is_earlier(const sonde_rule_run *run, uint32_t a, uint32_t b);
/* Whether the rule has a finding by a program (sonde_rule_found_at). */
bool sonde__rule_found_by_program(const sonde_rule_run *run);
/* The program that is being shown is enough to judge by, whatever data the rule lacks.
 * SONDE_API: for tests. */
SONDE_API void sonde__rule_judged_program(sonde_rule_run *run);
/* Counts a tensor that was compared with others; tests count this work. */
void sonde__rule_count_comparison(sonde_rule_run *run);

/*
 * The outputs of a module, in the order of declaration; SONDE__TABLE_NONE: there is no
 * (other) one. Cost: one look-up.
 *
 *     for (uint32_t id = sonde__rules_first_output(run, module, strlen(module));
 *          id != SONDE__TABLE_NONE; id = sonde__rules_next_output(run, id)) ...
 */
uint32_t sonde__rules_first_output(const sonde_rule_run *run, const char *module,
                                   size_t length);
uint32_t sonde__rules_next_output(const sonde_rule_run *run, uint32_t id);

/* suspicions.c: whether the program declares that a loss need not fall. */
bool sonde__rule_is_declared_free(const sonde_rule_run *run, uint32_t id);
/* finding_order.c: the finding that explains what this rule finds now: the first error or
 * warning of one of these rules (NULL-terminated) at an earlier step; NULL: there is none.
 * Borrowed until the next finding. */
const sonde_finding *sonde__rules_cause(const sonde_rule_run *run,
                                        const char *const *rules);
/* What to do about a finding with that cause: fix it; NULL: the rule's own advice. */
static inline const char *sonde__rules_advice(const sonde_finding *cause)
{
    return cause != NULL ? "Fix the earlier findings first." : NULL;
}
/* finding_order.c: what is found of a tensor (NULL: of the run) at this step follows from
 * the cause, if there is one. */
void sonde__rules_follows(sonde_rule_run *run, const sonde_rule_tensor *t,
                          const sonde_finding *cause);

#endif
