/*
 * host.c - the process that runs a user's rule, from outside.
 *
 * It is started with posix_spawn, which a program with threads may call at any time, and is
 * talked to over one pair of sockets: no signal reaches the program if it dies. Whatever it
 * does, each wait for it has an end.
 */
#include "rules/user/hosted.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define PROGRAM "sonde/sonde-rule-host" /* beside libsonde */
enum { ANSWER_MOST = 16 << 20, POLL_MS = 1 };

struct sonde__user_host {
    sonde__user_wire wire;
    pid_t pid;
    double seconds; /* of processor time, which the host sees to itself */
    double patience;
};

/* --- starting --------------------------------------------------------------------- */

static sonde_err no_program(const char *path, sonde_diag *diag)
{
    return sonde__fail(
        diag, SONDE_ENOTFOUND, path,
        "sonde-rule-host, or SONDE_RULE_HOST in the environment to name it",
        "the program that runs users' rules cannot be started: %s", strerror(errno));
}

static sonde_err find_program(char *buf, size_t size, sonde_diag *diag)
{
    static const char here = 0;
    const char *named = getenv("SONDE_RULE_HOST");
    Dl_info library;
    int length = 0;

    if (named != NULL && named[0] != '\0') {
        length = snprintf(buf, size, "%s", named);
    } else if (dladdr(&here, &library) != 0 && library.dli_fname != NULL) {
        const char *slash = strrchr(library.dli_fname, '/');

        length = snprintf(buf, size, "%.*s" PROGRAM,
                          slash != NULL ? (int)(slash + 1 - library.dli_fname) : 0,
                          library.dli_fname);
    } else {
        length = snprintf(buf, size, PROGRAM);
    }
    if (length < 0 || (size_t)length >= size) {
        errno = ENAMETOOLONG;
        return no_program(PROGRAM, diag);
    }
    return access(buf, X_OK) == 0 ? SONDE_OK : no_program(buf, diag);
}

/* Standard input is empty; what a rule prints goes to stderr, since stdout is the program's. */
static int set_files(posix_spawn_file_actions_t *files, int end)
{
    const bool has_stderr = fcntl(STDERR_FILENO, F_GETFD) != -1;
    int failed = posix_spawn_file_actions_adddup2(files, end, SONDE__WIRE_FD);

    if (failed == 0) {
        failed = posix_spawn_file_actions_addopen(files, STDIN_FILENO, "/dev/null",
                                                  O_RDONLY, 0);
    }
    if (failed == 0 && !has_stderr) {
        failed = posix_spawn_file_actions_addopen(files, STDERR_FILENO, "/dev/null",
                                                  O_WRONLY, 0);
    }
    return failed != 0
               ? failed
               : posix_spawn_file_actions_adddup2(files, STDERR_FILENO, STDOUT_FILENO);
}

/* Signals as in a new process, whatever the program blocks or ignores. */
static int set_signals(posix_spawnattr_t *attributes)
{
    sigset_t none, all;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawnattr_setsigmask(attributes, &none);
    (void)posix_spawnattr_setsigdefault(attributes, &all);
    return posix_spawnattr_setflags(attributes,
                                    POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
}

static int spawn(const char *program, int end, pid_t *pid)
{
    char name[] = "sonde-rule-host";
    char *const arguments[] = {name, NULL};
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int failed = posix_spawn_file_actions_init(&files);

    if (failed != 0) {
        return failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = set_files(&files, end);
        if (failed == 0) {
            failed = set_signals(&attributes);
        }
        if (failed == 0) {
            failed = posix_spawn(pid, program, &files, &attributes, arguments, environ);
        }
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    return failed;
}

static sonde_err start(sonde__user_host *host, sonde_diag *diag)
{
    char program[4096];
    int ends[2];
    sonde_err err = find_program(program, sizeof program, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
        return sonde__fail_errno(diag, program, "no sockets");
    }
    sonde__user_wire_init(&host->wire, ends[0], host->patience, ANSWER_MOST);
    errno = spawn(program, ends[1], &host->pid);
    if (errno != 0) {
        host->pid = 0;
        err = no_program(program, diag);
    }
    (void)close(ends[1]);
    return err;
}

/* Has it read the file. */
static sonde_err open_file(sonde__user_host *host, const char *path,
                           const sonde_rule_limits *limits, sonde__user_message *answer,
                           sonde_diag *diag)
{
    char fate[128];
    sonde_err err = SONDE_OK;

    sonde__user_wire_begin(&host->wire, SONDE__WIRE_OPEN);
    sonde__user_wire_put_u32(&host->wire, SONDE__WIRE_PROTOCOL);
    sonde__user_wire_put_text(&host->wire, path);
    sonde__user_wire_put_bytes(&host->wire, limits, sizeof *limits);
    err = sonde__user_wire_end(&host->wire);
    if (err == SONDE_OK) {
        err = sonde__user_host_ask(host, answer);
    }
    if (err != SONDE_OK) {
        return sonde__fail(diag, err == SONDE_ENOMEM ? err : SONDE_EFORMAT, path,
                           "a file of rules", "while it was read it %s",
                           sonde__user_host_fate(host, err, fate, sizeof fate));
    }
    if (answer->kind == SONDE__WIRE_ERROR) {
        return sonde__user_host_error(answer, path, diag);
    }
    return answer->kind == SONDE__WIRE_RULES
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EFORMAT, path, "a host of this version",
                             "its host answered something else");
}

sonde_err sonde__user_host_start(const char *path, const sonde_rule_limits *limits,
                                 sonde__user_host **out, sonde__user_message *rules,
                                 sonde_diag *diag)
{
    sonde__user_host *host = sonde__calloc(1, sizeof *host);
    sonde_err err = SONDE_OK;

    if (host == NULL) {
        return sonde__fail_nomem(diag, path);
    }
    host->wire.fd = -1;
    host->seconds = limits->seconds;
    host->patience = SONDE__RULE_PATIENCE * limits->seconds;
    err = start(host, diag);
    if (err == SONDE_OK) {
        err = open_file(host, path, limits, rules, diag);
    }
    if (err != SONDE_OK) {
        sonde__user_host_stop(host);
        return err;
    }
    *out = host;
    return SONDE_OK;
}

/* --- talking ---------------------------------------------------------------------- */

sonde__user_wire *sonde__user_host_wire(sonde__user_host *host)
{
    return &host->wire;
}

sonde_err sonde__user_host_ask(sonde__user_host *host, sonde__user_message *answer)
{
    const sonde_err err = sonde__user_wire_flush(&host->wire);

    return err == SONDE_OK ? sonde__user_wire_take(&host->wire, answer) : err;
}

sonde_err sonde__user_host_error(sonde__user_message *message, const char *path,
                                 sonde_diag *diag)
{
    const uint32_t code = sonde__user_take_u32(message);
    const char *where = sonde__user_need_text(message);
    const char *found = sonde__user_need_text(message);
    const char *expected = sonde__user_need_text(message);

    if (message->bad || code == SONDE_OK || code > SONDE_ETIMEOUT) {
        return sonde__fail(diag, SONDE_EFORMAT, path, NULL, "an error without a text");
    }
    return sonde__fail(diag, (sonde_err)code, where[0] != '\0' ? where : path,
                       expected[0] != '\0' ? expected : NULL, "%s", found);
}

/* --- ending ----------------------------------------------------------------------- */

/* Whether it ended within so many seconds; *status is -1 if somebody else was told how. */
static bool has_ended(pid_t pid, double seconds, int *status)
{
    const double until = sonde__now() + seconds;
    const struct timespec pause = {0, POLL_MS * 1000000L};

    for (;;) {
        const pid_t ended = waitpid(pid, status, WNOHANG);

        if (ended == pid) {
            return true;
        }
        if (ended < 0 && errno != EINTR) {
            *status = -1;
            return true;
        }
        if (sonde__now() >= until) {
            return false;
        }
        (void)nanosleep(&pause, NULL);
    }
}

/* Ends it in any case; true if it had ended by itself. */
static bool end_process(sonde__user_host *host, double seconds, int *status)
{
    bool by_itself = true;

    *status = -1;
    if (host->pid > 0 && !has_ended(host->pid, seconds, status)) {
        by_itself = false;
        (void)kill(host->pid, SIGKILL);
        while (waitpid(host->pid, status, 0) < 0 && errno == EINTR) {
        }
    }
    host->pid = 0;
    return by_itself;
}

const char *sonde__user_host_fate(sonde__user_host *host, sonde_err err, char *buf,
                                  size_t size)
{
    int status = -1;
    const bool by_itself = end_process(
        host, err == SONDE_EEND ? SONDE_MIN(host->patience, 2.0) : 0, &status);
    const int by_signal = status >= 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;

    if (by_signal == SIGPROF) {
        (void)snprintf(buf, size, "took longer than %g s", host->seconds);
    } else if (err == SONDE_ETIMEOUT) {
        (void)snprintf(buf, size, "did not answer for %g s", host->patience);
    } else if (err == SONDE_ENOMEM) {
        (void)snprintf(buf, size, "needed more memory than there is");
    } else if (err == SONDE_EFORMAT) {
        (void)snprintf(buf, size, "wrote where it must not: its answers make no sense");
    } else if (by_signal == SIGKILL && !by_itself) {
        (void)snprintf(buf, size, "closed files that are not its own");
    } else if (by_signal != 0) {
        (void)snprintf(buf, size, "crashed with signal %d (%s)", by_signal,
                       strsignal(by_signal)); /* NOLINT(concurrency-mt-unsafe) */
    } else if (status >= 0 && WIFEXITED(status)) {
        (void)snprintf(buf, size, "ended its process with status %d",
                       WEXITSTATUS(status));
    } else {
        (void)snprintf(buf, size, "ended its process");
    }
    return buf;
}

void sonde__user_host_stop(sonde__user_host *host)
{
    int status = 0;

    if (host == NULL) {
        return;
    }
    sonde__user_wire_fini(&host->wire); /* which tells it to end */
    (void)end_process(host, host->patience, &status);
    sonde__free(host);
}
