/*
 * python_run.c - starts Python, collects standard error, and turns it into a diagnostic.
 *
 * sonde/command.py ends a failed module with the line
 *
 *     sonde-error <TAB> code <TAB> where <TAB> expected <TAB> found
 *
 * on standard error. Other endings (a traceback, an interpreter that lacks the package)
 * are reported by their last line, and a signal by its name.
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
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { MOST_ARGUMENTS = 16, WAIT = 100 /* ms between two questions of stop */ };

static const char install[] = "Python 3.11 with the package: pip install sonde[all]";

/* Appends the folder that holds the package beside this library or above it, as
 * build/<preset>/python does, or sonde/python as it is installed, or, in a wheel, the folder
 * of the package. Nothing without one. */
static void add_package(sonde_text *path)
{
    static const char *const beside[] = {"../python", "../../python", "sonde/python",
                                         ".."};
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

/* Collects what the child writes to standard error until it closes it. An error of stop ends
 * the child. */
static sonde_err collect(pid_t child, int errors, const sonde__python_stop *stop,
                         sonde_text *output, sonde_diag *diag)
{
    struct pollfd readable = {.fd = errors, .events = POLLIN};
    char block[4096];
    ssize_t n = 1;

    while (n > 0) {
        const sonde_err err = stop != NULL ? stop->ask(stop->user, diag) : SONDE_OK;

        if (err != SONDE_OK) {
            (void)kill(child, SIGTERM);
            return err;
        }
        if (poll(&readable, 1, stop != NULL ? WAIT : -1) <= 0) {
            continue;
        }
        n = read(errors, block, sizeof block);
        if (n < 0 && errno == EINTR) {
            n = 1;
        } else if (n > 0) {
            sonde_text_put(output, block, (size_t)n);
        }
    }
    return SONDE_OK;
}

/* Waits for the end of the child; *status as waitpid has it. */
static sonde_err finish(pid_t child, int errors, const sonde__python_stop *stop,
                        int *status, sonde_text *output, sonde_diag *diag)
{
    const sonde_err err = collect(child, errors, stop, output, diag);

    (void)close(errors);
    while (waitpid(child, status, 0) < 0 && errno == EINTR) {
    }
    return err;
}

/* Cuts out the last line that a failed module ends with; NULL: there is none. Libraries may
 * write more after it. */
static char *error_line(char *text)
{
    static const char begin[] = "sonde-error\t";
    char *found = NULL;

    for (char *line = text; line != NULL && *line != '\0';) {
        if (strncmp(line, begin, sizeof begin - 1) == 0) {
            found = line;
        }
        line = strchr(line, '\n');
        if (line != NULL) {
            line++;
        }
    }
    if (found != NULL) {
        found[strcspn(found, "\n")] = '\0';
    }
    return found;
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

/* status: of waitpid, not that of a success; text: what was written to standard error. */
static sonde_err fail(const char *module, const char *python, int status, char *text,
                      sonde_diag *diag)
{
    char *line = error_line(text);

    if (WIFSIGNALED(status)) {
        const int number = WTERMSIG(status);
        const bool asked = number == SIGINT || number == SIGTERM || number == SIGHUP;

        return sonde__fail(diag, asked ? SONDE_EINTERRUPTED : SONDE_EIO, python, NULL,
                           "sonde.%s: Python was ended by signal %d (%s)", module, number,
                           strsignal(number));
    }
    if (line != NULL) {
        return read_error(line, diag);
    }
    line = last_line(text);
    if (line != NULL && strstr(line, "No module named") != NULL) {
        return sonde__fail(diag, SONDE_ENOTFOUND, python, install, "%s", line);
    }
    return sonde__fail(diag, SONDE_EIO, python, NULL, "sonde.%s: %s", module,
                       line != NULL ? line : "it failed");
}

static void warn(char *text)
{
    for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n")) {
        sonde_log(SONDE_LOG_WARNING, "python", "%s", line);
    }
}

/* Starts the words and waits; the environment has the package's folder. */
static sonde_err run(const char *module, const char *const *words, char **variables,
                     const sonde__python_stop *stop, sonde_diag *diag)
{
    sonde_text output = {0};
    int errors = -1, status = 0;
    pid_t child = 0;
    const int failed = start(words, variables, &child, &errors);

    if (failed != 0) {
        return sonde__fail(diag, SONDE_ENOTFOUND, words[0], install,
                           "cannot start Python: %s", strerror(failed));
    }
    sonde_err err = finish(child, errors, stop, &status, &output, diag);

    if (err == SONDE_OK && output.failed) {
        err = sonde__fail_nomem(diag, "a start of Python");
    } else if (err == SONDE_OK && status != 0) {
        char none[] = "";

        err =
            fail(module, words[0], status, output.length > 0 ? output.data : none, diag);
    } else if (err == SONDE_OK && output.length > 0) {
        warn(output.data);
    }
    sonde_text_fini(&output);
    return err;
}

sonde_err sonde__python_run_until(const char *module, const char *const *arguments,
                                  const sonde__python_stop *stop, sonde_diag *diag)
{
    const char *python = getenv("SONDE_PYTHON");
    const char *outer = getenv("PYTHONPATH");
    sonde_text name = {0}, path = {0};
    char **variables = NULL;
    const char *words[MOST_ARGUMENTS + 4] = {NULL};
    int count = 0;
    sonde_err err = SONDE_OK;

    sonde_text_format(&name, "sonde.%s", module);
    sonde_text_add(&path, "PYTHONPATH=");
    add_package(&path);
    sonde_text_add(&path, outer != NULL ? outer : "");
    variables = !path.failed ? make_environment(path.data) : NULL;
    if (name.failed || variables == NULL) {
        err = sonde__fail_nomem(diag, "a start of Python");
        goto done;
    }
    words[count++] = python != NULL && python[0] != '\0' ? python : "python3";
    words[count++] = "-m";
    words[count++] = name.data;
    for (size_t i = 0; arguments[i] != NULL; i++) {
        if (i == MOST_ARGUMENTS) {
            err = sonde__fail(diag, SONDE_EINVAL, module, "at most 16 arguments", "more");
            goto done;
        }
        words[count++] = arguments[i];
    }
    err = run(module, words, variables, stop, diag);

done:
    sonde_text_fini(&name);
    sonde_text_fini(&path);
    sonde__free(variables);
    return err;
}

sonde_err sonde__python_run(const char *module, const char *const *arguments,
                            sonde_diag *diag)
{
    return sonde__python_run_until(module, arguments, NULL, diag);
}
