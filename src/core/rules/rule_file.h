/*
 * rule_file.h - files with rules of users: shared objects, and scripts in Lua.
 *
 *     rule_file.c    opens a file, checks its rows and names its rules
 *     rule_names.c   rules by name, built in or from a file
 *     lua/           the object sonde/sonde-lua.so, which runs scripts
 *
 * Both kinds run in the calling process. A shared object is trusted code. A script runs
 * under limits; whatever goes wrong in it ends with an error of the script.
 */
#ifndef SONDE_RULES_RULE_FILE_H
#define SONDE_RULES_RULE_FILE_H

#include <sonde/error.h>
#include <sonde/rules.h>

#define SONDE__RULE_SECONDS 2.0
enum {
    SONDE__RULE_MEMORY = 256 << 20,
    SONDE__RULE_INSTRUCTIONS = 50000000,
    SONDE__RULE_MOST = 64 /* rules of a file; parameters and needs of a rule */
};

/* What sonde-lua.so exports, as the symbol sonde__rule_lua. */
typedef struct sonde__rule_scripts {
    /* Runs the script once and reads its rule. path and the text are copied. */
    sonde_err (*open)(const char *text, size_t size, const char *path,
                      const sonde_rule_limits *limits, const sonde_rule **rule,
                      sonde_diag *diag);
    void (*close)(const sonde_rule *rule); /* after the last run of the rule */
} sonde__rule_scripts;

/* The path that the file was opened with; borrowed. */
const char *sonde__rule_file_path(const sonde_rule_file *file);

#endif
