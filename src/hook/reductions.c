/*
 * reductions.c - the names that reductions have in configuration files, and what is kept for
 * each: the least that answers it (<sonde/reduction.h>).
 */
#include "hook/hook_state.h"
#include "base/macros.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

enum { LONGEST = 64 };

sonde_err sonde__reduction_add(const char *name, sonde_reduction_config *to,
                               sonde_diag *diag)
{
    sonde_reduction of;
    sonde_err err = SONDE_OK;

    if (strcasecmp(name, "histogram") == 0 || strcasecmp(name, "quantiles") == 0) {
        to->histogram = true;
        return SONDE_OK;
    }
    err = sonde_reduction_parse(name, &of, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (of.kind == SONDE_REDUCTION_STAT) {
        to->stats |= UINT32_C(1) << of.stat;
    } else if ((sonde_reduction_evidence(&of) & SONDE_HOW_SKETCH) != 0) {
        to->histogram = true;
    } else {
        to->save_raw_tensor = true;
    }
    return SONDE_OK;
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
