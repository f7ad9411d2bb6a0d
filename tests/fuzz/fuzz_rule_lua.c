/*
 * fuzz_rule_lua.c - any bytes as a rule in Lua; one that is a rule judges a few steps.
 */
#include "rules/engine.h"

#include <sonde/rules.h>

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void judge(const sonde_rule *rule)
{
    static const sonde_tensor_info info = {.name = "fc1.weight",
                                           .role = SONDE_ROLE_WEIGHT,
                                           .dtype = SONDE_F32,
                                           .rank = 1,
                                           .shape = {3},
                                           .same_as = SONDE_NO_TENSOR};
    float values[3] = {1.0F, -2.0F, 0.0F};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, info.shape, values);
    sonde_vitals vitals;
    sonde_catalogue *catalogue = NULL;
    sonde_rules *rules = NULL;
    uint32_t id = 0;

    sonde_vitals_of(&view, &vitals);
    if (sonde_catalogue_create(&catalogue, NULL) != SONDE_OK ||
        sonde_catalogue_declare(catalogue, &info, &id, NULL) != SONDE_OK ||
        sonde_rules_create(&rules, NULL) != SONDE_OK) {
        abort();
    }
    if (sonde_rules_add_rule(rules, rule, NULL, NULL) == SONDE_OK &&
        sonde__rules_begin(rules, catalogue, NULL, NULL, NULL) == SONDE_OK) {
        sonde_observation observation = {
            .id = id, .info = &info, .view = &view, .vitals = &vitals, .hash = 7};

        for (; observation.at.global_step < 3; observation.at.global_step++) {
            sonde__rules_put(rules, &observation);
            sonde__rules_end_step(rules, &observation.at);
        }
        sonde_rules_finish(rules);
    }
    sonde_rules_destroy(rules);
    sonde_catalogue_destroy(catalogue);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sonde_rule_limits limits = {
        .seconds = 1, .memory = 4 << 20, .instructions = 20000};
    static char path[] = "/tmp/sonde_fuzz_XXXXXX.lua";
    static int file = -1;
    sonde_rule_file *rules = NULL;
    sonde_diag diag = {0};

    file = file < 0 ? mkstemps(path, 4) : file;
    if (file < 0 || ftruncate(file, 0) != 0 ||
        pwrite(file, data, size, 0) != (ssize_t)size) {
        abort();
    }
    const sonde_err err = sonde_rule_file_open(path, &limits, &rules, &diag);

    if (err == SONDE_OK) {
        judge(sonde_rule_file_at(rules, 0));
    } else if (diag.err != err || diag.found[0] == '\0') {
        abort(); /* an error must say what it is */
    }
    sonde_rule_file_close(rules);
    return 0;
}
