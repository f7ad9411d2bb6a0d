/*
 * The tables of options in docs/jobs.md are those of the option table, row by row.
 */
#include "cmocka_all.h"

#include <sonde/nn/option.h>

#include <stdio.h>
#include <string.h>

enum { SIZE = 1 << 16 };

static char page[SIZE];

/* The row of docs/jobs.md for an option. */
static const char *row_of(const sonde_nn_option *option)
{
    static char row[1024];
    char flag[64], value[64] = "", standard[64] = "";

    (void)snprintf(flag, sizeof flag, "%s", option->name);
    for (char *c = flag; *c != '\0'; c++) {
        *c = *c == '_' ? '-' : *c;
    }
    if (option->value != NULL) {
        (void)snprintf(value, sizeof value, " %s", option->value);
    }
    for (char *bar = value; (bar = strchr(bar, '|')) != NULL;) {
        *bar = '/'; /* a bar would end the cell */
    }
    if (option->standard != NULL) {
        (void)snprintf(standard, sizeof standard, " %s", option->standard);
    }
    if (strcmp(option->section, "record") ==
        0) { /* its keys are those of a hook's file */
        (void)snprintf(row, sizeof row, "| `--%s%s` | %s |\n", flag, value, option->help);
    } else {
        (void)snprintf(row, sizeof row, "| `%s` | `--%s%s` |%s | %s |\n", option->key,
                       flag, value, standard, option->help);
    }
    return row;
}

static void each_option_has_its_row(void **state)
{
    const sonde_nn_option *option = NULL;
    const char *section = "", *at = page;
    size_t missing = 0;

    (void)state;
    for (size_t i = 0; (option = sonde_nn_option_at(i)) != NULL; i++) {
        char heading[64];

        if (strcmp(section, option->section) != 0) {
            section = option->section;
            (void)snprintf(heading, sizeof heading, "\n## %s\n", section);
            at = strstr(page, heading);
            assert_non_null(at);
        }
        if (strstr(at, row_of(option)) == NULL) {
            print_error("docs/jobs.md, section %s, lacks\n%s", section, row_of(option));
            missing++;
        }
    }
    assert_int_equal(missing, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_option_has_its_row)};
    FILE *file = fopen(SONDE_TEST_DIR "/../docs/jobs.md", "r");

    if (file == NULL || fread(page, 1, SIZE - 1, file) == 0 || fclose(file) != 0) {
        return 1;
    }
    return cmocka_run_group_tests(tests, NULL, NULL);
}
