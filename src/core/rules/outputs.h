/*
 * outputs.h - the outputs of a module, found by its name. Internal.
 *
 *     for (uint32_t id = sonde__rules_first_output(run, module, strlen(module));
 *          id != SONDE__TABLE_NONE; id = sonde__rules_next_output(run, id)) ...
 *
 * In the order of declaration. Cost: one look-up.
 */
#ifndef SONDE_RULES_OUTPUTS_H
#define SONDE_RULES_OUTPUTS_H

#include "base/table.h"

#include <sonde/rules.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Takes up the slots first ... end - 1. False if memory runs out. */
bool sonde__rules_add_outputs(sonde_rules *rules, size_t first, size_t end);
/* SONDE__TABLE_NONE if the module has no output. */
uint32_t sonde__rules_first_output(const sonde_rule_run *run, const char *module,
                                   size_t length);
uint32_t sonde__rules_next_output(const sonde_rule_run *run, uint32_t id);

#endif
