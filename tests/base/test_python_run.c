/*
 * test_python_run.c - a module of the package as a program: errors of every kind become
 * diagnostics.
 */
#include "cmocka_all.h"

#include "base/python_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char folder[] = "/tmp/sonde-python-XXXXXX";
static const char *const no_arguments[] = {NULL};

/* An interpreter that prints `text` and exits with `status`. */
static void make_interpreter(const char *text, int status)
{
    char path[128];

    (void)snprintf(path, sizeof path, "%s/python", folder);
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    (void)fprintf(file, "#!/bin/sh\nprintf '%s' >&2\nexit %d\n", text, status);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(setenv("SONDE_PYTHON", path, 1), 0);
}

static void errors_become_diagnostics(void **state)
{
    static const struct {
        const char *text;
        int status;
        sonde_err err;
        const char *where, *found, *expected;
    } rows[] = {
        {"", 0, SONDE_OK, "", "", ""},
        {"careful\\n", 0, SONDE_OK, "", "", ""},
        {"sonde-error\\t7\\tnet.onnx\\t[3]\\ta shape of [2]\\n", 1, SONDE_ESHAPE,
         "net.onnx", "a shape of [2]", "[3]"},
        {"careful\\nsonde-error\\t11\\tnet.onnx\\t\\tan op\\n", 1, SONDE_EUNSUPPORTED,
         "net.onnx", "an op", ""},
        {"sonde-error\\t6\\tx\\t\\tis there\\nException ignored in: y\\n", 1,
         SONDE_EEXIST, "x", "is there", ""},
        {"sonde-error\\t99\\tx\\n", 1, SONDE_EIO, "x", "", ""},
        {"Traceback:\\nValueError: no\\n\\n", 1, SONDE_EIO, NULL,
         "sonde.any: ValueError: no", ""},
        {"python3: No module named sonde\\n", 1, SONDE_ENOTFOUND, NULL,
         "python3: No module named sonde",
         "Python 3.11 with the package: pip install sonde[all]"},
        {"", 3, SONDE_EIO, NULL, "sonde.any: it failed", ""},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sonde_diag diag = {0};

        make_interpreter(rows[i].text, rows[i].status);
        assert_int_equal(sonde__python_run("any", no_arguments, &diag), rows[i].err);
        if (rows[i].where != NULL) {
            assert_string_equal(diag.where, rows[i].where);
        }
        assert_string_equal(diag.found, rows[i].found);
        assert_string_equal(diag.expected, rows[i].expected);
    }
}

/* An interpreter that does what the shell says. */
static void make_shell(const char *command)
{
    char path[128];

    (void)snprintf(path, sizeof path, "%s/python", folder);
    FILE *file = fopen(path, "w");

    assert_non_null(file);
    (void)fprintf(file, "#!/bin/sh\n%s\n", command);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path, 0700), 0);
    assert_int_equal(setenv("SONDE_PYTHON", path, 1), 0);
}

static void signals_are_named(void **state)
{
    static const struct {
        const char *command;
        sonde_err err;
        const char *found;
    } rows[] = {
        {"kill -KILL $$", SONDE_EIO, "Python was ended by signal 9 (Killed)"},
        {"kill -TERM $$", SONDE_EINTERRUPTED, "signal 15"},
        {"kill -HUP $$", SONDE_EINTERRUPTED, "signal 1 "},
    };

    (void)state;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        sonde_diag diag = {0};

        make_shell(rows[i].command);
        assert_int_equal(sonde__python_run("any", no_arguments, &diag), rows[i].err);
        assert_non_null(strstr(diag.found, rows[i].found));
    }
}

static sonde_err stop_later(void *user, sonde_diag *diag)
{
    int *asked = user;

    (void)diag;
    return ++*asked > 2 ? SONDE_EINTERRUPTED : SONDE_OK;
}

static void it_can_be_stopped(void **state)
{
    int asked = 0;
    const sonde__python_stop stop = {.ask = stop_later, .user = &asked};
    sonde_diag diag = {0};

    (void)state;
    make_shell("exec sleep 60");
    assert_int_equal(sonde__python_run_until("any", no_arguments, &stop, &diag),
                     SONDE_EINTERRUPTED);
    assert_int_equal(asked, 3);
}

static void no_interpreter_is_reported(void **state)
{
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(setenv("SONDE_PYTHON", "/nowhere/python", 1), 0);
    assert_int_equal(sonde__python_run("any", no_arguments, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.where, "/nowhere/python");
    assert_non_null(strstr(diag.found, "cannot start Python"));
}

static int make_folder(void **state)
{
    (void)state;
    return mkdtemp(folder) != NULL ? 0 : -1;
}

static int remove_folder(void **state)
{
    char path[128];

    (void)state;
    (void)snprintf(path, sizeof path, "%s/python", folder);
    (void)unlink(path);
    return rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(errors_become_diagnostics),
        cmocka_unit_test(signals_are_named),
        cmocka_unit_test(it_can_be_stopped),
        cmocka_unit_test(no_interpreter_is_reported),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
