/*
 * python_run.c - starts Python, collects standard error, and turns it into a diagnostic.
 *
 * sonde/command.py ends a failed module with the line
 *
 *     sonde-error <TAB> code <TAB> where <TAB> expected <TAB> found
 *
 * on standard error. Other endings (a traceback, an interpreter that lacks the package)
 * are reported by their last line.
 */
#include "base/python_run.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>
#include <sonde/text.h>

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 16 };

static const char install[] = "Python 3.11 with the package: pip install sonde[all]";

/* Appends the folder that holds the package beside this library or above it, as
 * build/<preset>/python does, or, in a wheel, the folder of the package. Nothing without
 * one. */
static void add_package(sonde_text *path)
{
    static const char *const beside[] = {"../python", "../../python", ".."};
    Dl_info library;

    if (dladdr(install, &library) == 0 || library.dli_fname == NULL) {
        return;
    }
    const char *slash = strrchr(library.dli_fname, '/');
    const int length = slash != NULL ? (int)(slash + 1 - library.dli_fname) : 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(beside); i++) {
        sonde_text module = {0};

        sonde_text_format(&module, "%.*s%s/sonde/command.py", length, library.dli_fname,
                          beside[i]);
        if (!module.failed && access(module.data, R_OK) == 0) {
            sonde_text_format(path, "%.*s%s:", length, library.dli_fname, beside[i]);
            i = SONDE_COUNT_OF(beside);
        }
        sonde_text_fini(&module);
    }
}

/* The environment with PYTHONPATH=path first; new, one block. NULL: out of memory. */
static char **make_environment(char *path)
{
    size_t count = 0, kept = 0;

    while (environ[count] != NULL) {
        count++;
    }
    char **variables = sonde__calloc(count + 2, sizeof *variables);

    if (variables == NULL) {
        return NULL;
    }
    variables[kept++] = path;
    for (size_t i = 0; i < count; i++) {
        if (strncmp(environ[i], "PYTHONPATH=", 11) != 0) {
            variables[kept++] = environ[i];
        }
    }
    return variables;
}

/* An errno, or 0 and the child, whose standard error is read from *errors. */
static int start(const char *const *words, char *const *variables, pid_t *child,
                 int *errors)
{
    int ends[2] = {-1, -1};
    char *const *argv = NULL;
    posix_spawn_file_actions_t actions;

    memcpy(&argv, &words, sizeof argv); /* posix_spawn changes no argument */
    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 2);
    const int failed = posix_spawnp(child, words[0], &actions, NULL, argv, variables);

    (void)posix_spawn_file_actions_destroy(&actions);
    (void)close(ends[1]);
    *errors = ends[0];
    if (failed != 0) {
        (void)close(ends[0]);
    }
    return failed;
}

/* The exit status of the child; -1 if a signal ended it. */
static int finish(pid_t child, int errors, sonde_text *output)
{
    char block[4096];
    ssize_t n = 0;
    int status = 0;

    while ((n = read(errors, block, sizeof block)) > 0 || (n < 0 && errno == EINTR)) {
        sonde_text_put(output, block, n > 0 ? (size_t)n : 0);
    }
    (void)close(errors);
    while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

/* Cuts off the last line that is not empty; NULL: there is none. */
static char *last_line(char *text)
{
    size_t length = strlen(text);

    while (length > 0 && text[length - 1] == '\n') {
        text[--length] = '\0';
    }
    char *newline = strrchr(text, '\n');

    if (newline != NULL) {
        *newline = '\0';
        return newline + 1;
    }
    return length > 0 ? text : NULL;
}

/* The diagnostic of the line that a module ends with. */
static sonde_err read_error(char *line, sonde_diag *diag)
{
    const char *part[5] = {"", "", "", "", ""};

    for (int i = 0; i < 5 && line != NULL; i++) {
        part[i] = line;
        line = strchr(line, '\t');
        if (line != NULL) {
            *line++ = '\0';
        }
    }
    const long code = strtol(part[1], NULL, 10);

    return sonde__fail(diag,
                       code > 0 && code <= SONDE_ERESUMED ? (sonde_err)code : SONDE_EIO,
                       part[2], part[3], "%s", part[4]);
}

static sonde_err fail(const char *module, const char *python, int status, char *line,
                      sonde_diag *diag)
{
    if (line != NULL && strncmp(line, "sonde-error\t", 12) == 0) {
        return read_error(line, diag);
    }
    if (line != NULL && strstr(line, "No module named") != NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, python, install, "%s", line);
    }
    return sonde__fail(diag, status < 0 ? SONDE_EINTERRUPTED : SONDE_EIO, python, NULL,
                       "sonde.%s: %s", module, line != NULL ? line : "it failed");
}

static void warn(char *text)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        sonde_log(SONDE_LOG_WARNING, "python", "%s", line);
    }
}

sonde_err sonde__python_run(const char *module, const char *const *arguments,
                            sonde_diag *diag)
{
    const char *python = getenv("SONDE_PYTHON");
    const char *outer = getenv("PYTHONPATH");
    sonde_text name = {0}, path = {0}, output = {0};
    char **variables = NULL;
    const char *words[MOST_ARGUMENTS + 4] = {NULL};
    int count = 0, errors = -1, failed = 0;
    pid_t child = 0;
    sonde_err err = SONDE_OK;

    python = python != NULL && python[0] != '\0' ? python : "python3";
    sonde_text_format(&name, "sonde.%s", module);
    sonde_text_add(&path, "PYTHONPATH=");
    add_package(&path);
    sonde_text_add(&path, outer != NULL ? outer : "");
    variables = !path.failed ? make_environment(path.data) : NULL;
    if (name.failed || variables == NULL) {
        err = sonde__fail_nomem(diag, "a start of Python");
        goto done;
    }
    words[count++] = python;
    words[count++] = "-m";
    words[count++] = name.data;
    for (size_t i = 0; arguments[i] != NULL && i < MOST_ARGUMENTS; i++) {
        words[count++] = arguments[i];
    }
    failed = start(words, variables, &child, &errors);
    if (failed != 0) {
        err = sonde__fail(diag, SONDE_ENOTFOUND, python, install,
                          "cannot start Python: %s", strerror(failed));
        goto done;
    }
    const int status = finish(child, errors, &output);

    if (output.failed) {
        err = sonde__fail_nomem(diag, "a start of Python");
    } else if (status != 0) {
        err = fail(module, python, status,
                   output.length > 0 ? last_line(output.data) : NULL, diag);
    } else if (output.length > 0) {
        warn(output.data);
    }

done:
    sonde_text_fini(&name);
    sonde_text_fini(&path);
    sonde_text_fini(&output);
    sonde__free(variables);
    return err;
}
