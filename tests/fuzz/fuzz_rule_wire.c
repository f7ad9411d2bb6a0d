/*
 * fuzz_rule_wire.c - any bytes as what a host says of its rules; what is taken is a row
 * that an engine can work with.
 */
#include "rules/user/hosted.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    sonde__user_message message = {SONDE__WIRE_RULES, data, size, false};
    sonde__user_hosted rule;
    sonde__user_wire wire;

    if (sonde__user_rule_read(&message, &rule) != SONDE_OK) {
        return 0;
    }
    for (size_t i = 0; i < rule.rule.param_count; i++) {
        if (rule.params[i].offset + 8 > rule.rule.state_size) {
            abort();
        }
    }
    /* Said again, it is the same. */
    sonde__user_wire_init(&wire, -1, 0, 0);
    sonde__user_wire_begin(&wire, SONDE__WIRE_RULES);
    sonde__user_rule_describe(&wire, &rule.rule);
    if (sonde__user_wire_end(&wire) == SONDE_OK) {
        sonde__user_message again = {SONDE__WIRE_RULES, wire.out + 16, wire.out_used - 16,
                                     false};
        sonde__user_hosted same;

        if (sonde__user_rule_read(&again, &same) != SONDE_OK ||
            strcmp(same.rule.name, rule.rule.name) != 0) {
            abort();
        }
        sonde__user_hosted_fini(&same);
    }
    sonde__user_wire_fini(&wire);
    sonde__user_hosted_fini(&rule);
    return 0;
}
