/*
 * reductions.c - the names that reductions have in configuration files.
 */
#include "hook/hook_state.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

#define STAT(stat) (UINT32_C(1) << (stat))

/* Beyond the names of statistics themselves. */
static const struct row {
    const char *name;
    uint32_t stats;
    bool histogram, raw;
} rows[] = {
    {"l1_norm", STAT(SONDE_STAT_L1), false, false},
    {"l2_norm", STAT(SONDE_STAT_L2), false, false},
    {"linf_norm", STAT(SONDE_STAT_LINF), false, false},
    {"abs_l1", STAT(SONDE_STAT_L1), false, false},
    {"abs_l2", STAT(SONDE_STAT_L2), false, false},
    {"abs_l1_norm", STAT(SONDE_STAT_L1), false, false},
    {"abs_l2_norm", STAT(SONDE_STAT_L2), false, false},
    {"abs_sum", STAT(SONDE_STAT_L1), false, false},
    {"abs_std", STAT(SONDE_STAT_ABS_MEAN) | STAT(SONDE_STAT_L2), false, false},
    {"abs_variance", STAT(SONDE_STAT_ABS_MEAN) | STAT(SONDE_STAT_L2), false, false},
    {"prod", 0, false, true}, /* of no use to a row: readers multiply the raw values */
    {"abs_prod", 0, false, true},
    {"median", 0, true, false},
    {"abs_median", 0, true, false},
    {"quantiles", 0, true, false},
    {"histogram", 0, true, false},
};

sonde_err sonde__reduction_add(const char *name, sonde_reduction_config *to,
                               sonde_diag *diag)
{
    const char *names[SONDE_COUNT_OF(rows) + SONDE_STAT_ENTRIES], *nearest = NULL;
    sonde_stat stat = SONDE_STAT_COUNT;
    size_t count = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (strcasecmp(name, rows[i].name) == 0) {
            to->stats |= rows[i].stats;
            to->histogram = to->histogram || rows[i].histogram;
            to->save_raw_tensor = to->save_raw_tensor || rows[i].raw;
            return SONDE_OK;
        }
        names[count++] = rows[i].name;
    }
    if (sonde_stat_parse(name, &stat, NULL) == SONDE_OK) {
        to->stats |= STAT(stat);
        return SONDE_OK;
    }
    for (int i = 0; i < SONDE_STAT_ENTRIES; i++) {
        names[count++] = sonde_stat_name((sonde_stat)i);
    }
    nearest = sonde__nearest(name, names, count);
    return sonde__fail(diag, SONDE_EINVAL, "reductions",
                       nearest != NULL
                           ? nearest
                           : "min, max, mean, std, variance, sum, prod, l1, l2, "
                             "linf, abs_..., median or histogram",
                       "unknown reduction '%s'", name);
}

sonde_err sonde__reductions_parse(const char *text, sonde_reduction_config *to,
                                  sonde_diag *diag)
{
    sonde_err err = SONDE_OK;

    while (err == SONDE_OK && *text != '\0') {
        const size_t blank = strspn(text, " \t,");
        const size_t length = strcspn(text + blank, ", \t");
        char name[LONGEST];

        if (length > 0) {
            (void)snprintf(name, sizeof name, "%.*s",
                           (int)SONDE_MIN(length, (size_t)LONGEST), text + blank);
            err = sonde__reduction_add(name, to, diag);
        }
        text += blank + length;
    }
    return err;
}
