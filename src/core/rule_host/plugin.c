/*
 * plugin.c - the rules of a shared object.
 */
#include "rule_host/host.h"
#include "base/fail.h"
#include "rules/user/hosted.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

/* The message of dlopen, without the path that it begins with. */
static const char *why(const char *path)
{
    const char *text = dlerror(); /* NOLINT(concurrency-mt-unsafe) */
    const size_t length = strlen(path);

    if (text == NULL) {
        return "it cannot be loaded";
    }
    return strncmp(text, path, length) == 0 && strncmp(text + length, ": ", 2) == 0
               ? text + length + 2
               : text;
}

static sonde_err check_table(const char *path, const sonde_rule_plugin *table,
                             sonde_diag *diag)
{
    if (table->abi != SONDE_RULE_ABI) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "rule interface %d", SONDE_RULE_ABI);
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                           "it was built for rule interface %u", table->abi);
    }
    if (table->rule_size != sizeof(sonde_rule)) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, "%zu, as in this <sonde/rule.h>",
                       sizeof(sonde_rule));
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                           "the size of its rows is %u bytes", table->rule_size);
    }
    if (table->rules == NULL || table->count == 0 || table->count > RULES_MOST) {
        return sonde__fail(diag, SONDE_EINVAL, path, "1 to 64 rules",
                           "a table of %zu rules%s", table->count,
                           table->rules == NULL ? " without address" : "");
    }
    return SONDE_OK;
}

static sonde_err check_rule(const char *path, const sonde_rule *rule, size_t i,
                            sonde_diag *diag)
{
    if (rule == NULL) {
        return sonde__fail(diag, SONDE_EINVAL, path, "the address of a sonde_rule",
                           "rule %zu is NULL", i + 1);
    }
    if (rule->abi != SONDE_RULE_ABI) {
        char expected[64];

        (void)snprintf(expected, sizeof expected, ".abi = SONDE_RULE_ABI, which is %d",
                       SONDE_RULE_ABI);
        return sonde__fail(diag, SONDE_EUNSUPPORTED, path, expected,
                           "rule %zu has rule interface %u", i + 1, rule->abi);
    }
    return sonde__user_rule_check(rule, path, diag);
}

static void plugin_close(rule_source *source)
{
    (void)dlclose(source->behind);
    source->behind = NULL;
}

sonde_err plugin_open(const char *path, rule_source *source, sonde_diag *diag)
{
    char slashed[4096];

    /* Without a slash dlopen would search the system's folders. */
    (void)snprintf(slashed, sizeof slashed, "%s%s", strchr(path, '/') ? "" : "./", path);
    source->behind = dlopen(slashed, RTLD_NOW | RTLD_LOCAL);
    if (source->behind == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "a shared object", "%s",
                           why(slashed));
    }
    source->close = plugin_close;
    const sonde_rule_plugin *table = dlsym(source->behind, SONDE_RULE_PLUGIN_NAME);
    if (table == NULL) {
        return sonde__fail(diag, SONDE_EFORMAT, path, "SONDE_RULE_PLUGIN(&rule) in it",
                           "no symbol " SONDE_RULE_PLUGIN_NAME);
    }
    SONDE__TRY(check_table(path, table, diag));
    for (size_t i = 0; i < table->count; i++) {
        SONDE__TRY(check_rule(path, table->rules[i], i, diag));
        source->rules[i] = table->rules[i];
        source->count = i + 1;
    }
    return SONDE_OK;
}
