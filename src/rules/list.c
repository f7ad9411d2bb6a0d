/*
 * list.c - several rules in one text.
 */
#include "rules/engine.h"
#include "base/fail.h"
#include "base/memory.h"

#include <string.h>
#include <strings.h>

/* Whether an item goes on with the parameters of the rule before it: "patience=2", where a rule
 * would have a colon before the first "=". */
static bool is_parameter(const char *item, size_t length)
{
    const char *equals = memchr(item, '=', length);

    return equals != NULL && memchr(item, ':', (size_t)(equals - item)) == NULL;
}

/* Bytes up to the next comma with no backslash before it. */
static size_t item_length(const char *text)
{
    size_t n = 0;

    while (text[n] != '\0' && text[n] != ',') {
        n += text[n] == '\\' && text[n + 1] != '\0' ? 2 : 1;
    }
    return n;
}

/* The rule at the beginning of text, with its parameters. */
static size_t rule_length(const char *text)
{
    size_t n = item_length(text);

    while (text[n] == ',') {
        const size_t more = item_length(text + n + 1);

        if (!is_parameter(text + n + 1, more)) {
            break;
        }
        n += 1 + more;
    }
    return n;
}

sonde_err sonde_rules_add_list(sonde_rules *rules, const char *text, sonde_diag *diag)
{
    for (;;) {
        const size_t length = rule_length(text);
        char *one = sonde__strndup(text, length);
        sonde_err err = SONDE_OK;

        if (one == NULL) {
            return sonde__fail_nomem(diag, "rules");
        }
        err = strcasecmp(one, "default") == 0 ? sonde_rules_add_defaults(rules, diag)
                                              : sonde_rules_add(rules, one, diag);
        sonde__free(one);
        if (err != SONDE_OK || text[length] == '\0') {
            return err;
        }
        text += length + 1;
    }
}
