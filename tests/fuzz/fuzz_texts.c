/*
 * fuzz_texts.c - texts that users give, from any bytes. The first byte says which:
 *
 *     r a list of rules
 *     else the names of reductions, statistics, dtypes, levels and formats
 */
#include <sonde/anchor.h>
#include <sonde/export_run.h>
#include <sonde/log.h>
#include <sonde/print.h>
#include <sonde/reduction.h>
#include <sonde/rules.h>
#include <sonde/stats.h>

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void expect(bool good)
{
    if (!good) {
        abort();
    }
}

static void add_rules(const char *text, sonde_diag *diag)
{
    sonde_rules *rules = NULL;

    expect(sonde_rules_create(&rules, NULL) == SONDE_OK);
    expect(sonde_rules_add_list(rules, text, diag) == SONDE_OK || diag->found[0] != '\0');
    sonde_rules_destroy(rules);
}

static void read_names(const char *text, sonde_diag *diag)
{
    sonde_reduction reduction;
    sonde_stat stat;
    sonde_dtype dtype;
    sonde_log_level level;
    sonde_float_format format;
    sonde_export_kind kind;
    sonde_anchor_mode mode;

    expect(sonde_reduction_parse(text, &reduction, diag) == SONDE_OK ||
           diag->found[0] != '\0');
    expect(sonde_stat_parse(text, &stat, diag) == SONDE_OK || diag->found[0] != '\0');
    expect(sonde_dtype_parse(text, &dtype, diag) == SONDE_OK || diag->found[0] != '\0');
    expect(sonde_log_level_parse(text, &level, diag) == SONDE_OK ||
           diag->found[0] != '\0');
    expect(sonde_float_format_parse(text, &format, diag) == SONDE_OK ||
           diag->found[0] != '\0');
    expect(sonde_export_kind_parse(text, &kind, diag) == SONDE_OK ||
           diag->found[0] != '\0');
    expect(sonde_anchor_mode_parse(text, &mode, diag) == SONDE_OK ||
           diag->found[0] != '\0');
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char kind = size > 0 ? (char)data[0] : '\0';
    const size_t left = size > 0 ? size - 1 : 0;
    char *text = malloc(left + 1);
    sonde_diag diag = {0};

    expect(text != NULL);
    if (left > 0) {
        memcpy(text, data + 1, left);
    }
    text[left] = '\0';
    if (kind == 'r') {
        add_rules(text, &diag);
    } else {
        read_names(text, &diag);
    }
    free(text);
    return 0;
}
