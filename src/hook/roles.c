/*
 * roles.c - what a foreign tensor is, by its name: the names that Sonde, smdebug, PyTorch and
 * Keras give.
 *
 * The first row that fits wins. A row fits where its text is found: at the start, at the end,
 * or anywhere; case does not matter.
 */
#include "hook/hook_state.h"
#include "base/macros.h"

#include <string.h>
#include <strings.h>

typedef enum place { AT_START, AT_END, ANYWHERE } place;

static const struct row {
    const char *text;
    place where;
    sonde_role role;
} rows[] = {
    {"scalar/", AT_START, SONDE_ROLE_SCALAR},
    {"gradient", AT_START, SONDE_ROLE_GRADIENT}, /* gradient/fc1.weight, Gradient___w */
    {"grad/", AT_START, SONDE_ROLE_GRADIENT},
    {".grad", AT_END, SONDE_ROLE_GRADIENT},
    {"_grad", AT_END, SONDE_ROLE_GRADIENT},
    {"updatedvar___", AT_START, SONDE_ROLE_UPDATE},
    {"accl1___", AT_START, SONDE_ROLE_OPTIMIZER},
    {"accl2___", AT_START, SONDE_ROLE_OPTIMIZER},
    {"step___", AT_START, SONDE_ROLE_OPTIMIZER},
    {"optimizer", AT_START, SONDE_ROLE_OPTIMIZER},
    {".exp_avg", AT_END, SONDE_ROLE_OPTIMIZER},
    {".exp_avg_sq", AT_END, SONDE_ROLE_OPTIMIZER},
    {".momentum_buffer", AT_END, SONDE_ROLE_OPTIMIZER},
    {"running_mean", AT_END, SONDE_ROLE_BUFFER},
    {"running_var", AT_END, SONDE_ROLE_BUFFER},
    {"num_batches_tracked", AT_END, SONDE_ROLE_BUFFER},
    {"_input_", ANYWHERE, SONDE_ROLE_INPUT}, /* also of a loss */
    {"_input", AT_END, SONDE_ROLE_INPUT},
    {"loss", ANYWHERE, SONDE_ROLE_LOSS},
    {"_output_", ANYWHERE, SONDE_ROLE_OUTPUT},
    {"_output", AT_END, SONDE_ROLE_OUTPUT},
    {"weight", ANYWHERE, SONDE_ROLE_WEIGHT},
    {"kernel", AT_END, SONDE_ROLE_WEIGHT},
    {"bias", ANYWHERE, SONDE_ROLE_BIAS},
};

static bool fits(const struct row *of, const char *name)
{
    const size_t length = strlen(name), tail = strlen(of->text);

    switch (of->where) {
    case AT_START:
        return strncasecmp(name, of->text, tail) == 0;
    case AT_END:
        return length >= tail && strcasecmp(name + length - tail, of->text) == 0;
    case ANYWHERE:
        return strcasestr(name, of->text) != NULL;
    }
    return false;
}

sonde_role sonde__role_by_name(const char *name)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(rows); i++) {
        if (fits(&rows[i], name)) {
            return rows[i].role;
        }
    }
    return SONDE_ROLE_OTHER;
}
