/*
 * keys_process.c - credentials that a program prints: credential_process of a profile, or
 * `aws configure export-credentials` for a profile with a role or single sign-on; see
 * keys.h.
 *
 * The command is split into words at blanks, with quotes and backslashes as a shell has
 * them, and run without a shell: nothing in it is expanded. What the program prints is
 * read, never shown; its errors go nowhere, since they may hold secrets too. It gets no
 * input. After the time it may take, its process group is killed.
 *
 *     {"Version": 1, "AccessKeyId": "...", "SecretAccessKey": "...",
 *      "SessionToken": "...", "Expiration": "2030-01-31T12:00:00Z"}
 */
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/keys.h"
#include "store/s3/profile.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MOST_WORDS = 64, MOST_OUTPUT = 64 * 1024 };

/* Splits a command in place. The number of words; 0: a quote is open, or too many. */
static size_t split(char *command, char *words[MOST_WORDS + 1])
{
    char *out = command, quote = 0;
    size_t count = 0;
    bool inside = false;

    for (const char *in = command; *in != '\0'; in++) {
        const bool blank = *in == ' ' || *in == '\t';

        if (quote == 0 && blank) {
            if (inside) {
                *out++ = '\0';
            }
            inside = false;
            continue;
        }
        if (!inside) {
            if (count == MOST_WORDS) {
                return 0;
            }
            words[count++] = out;
            inside = true;
        }
        if (quote == 0 && (*in == '"' || *in == '\'')) {
            quote = *in;
        } else if (quote != 0 && *in == quote) {
            quote = 0;
        } else if (*in == '\\' && in[1] != '\0' &&
                   (quote == 0 || (quote == '"' && (in[1] == '"' || in[1] == '\\')))) {
            *out++ = *++in;
        } else {
            *out++ = *in;
        }
    }
    *out = '\0';
    words[count] = NULL;
    return quote == 0 ? count : 0;
}

/* A child with its own process group, whose output is in a pipe. */
typedef struct child {
    pid_t id;
    int out; /* descriptor */
} child;

/* An errno. The threads of a spool block signals, which the child must not inherit. */
static int start(char **words, child *process)
{
    int ends[2] = {-1, -1}, failed = 0;
    sigset_t none, all;
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        return errno;
    }
    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    (void)posix_spawn_file_actions_init(&actions);
    (void)posix_spawnattr_init(&attributes);
    (void)posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    (void)posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    (void)posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
    (void)posix_spawnattr_setsigmask(&attributes, &none);
    (void)posix_spawnattr_setsigdefault(&attributes, &all);
    (void)posix_spawnattr_setpgroup(&attributes, 0);
    (void)posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK |
                                                    POSIX_SPAWN_SETSIGDEF |
                                                    POSIX_SPAWN_SETPGROUP);
    failed = posix_spawnp(&process->id, words[0], &actions, &attributes, words, environ);
    (void)posix_spawn_file_actions_destroy(&actions);
    (void)posix_spawnattr_destroy(&attributes);
    (void)close(ends[1]);
    process->out = ends[0];
    if (failed != 0) {
        (void)close(ends[0]);
    }
    return failed;
}

/* Reads what is there, after 50 ms at most. False: the end, or too much. */
static bool read_some(const child *process, sonde_text *output)
{
    struct pollfd ready = {.fd = process->out, .events = POLLIN};
    char block[4096];

    if (poll(&ready, 1, 50) <= 0) {
        return true;
    }
    const ssize_t n = read(process->out, block, sizeof block);
    if (n > 0) {
        sonde_text_put(output, block, (size_t)n);
        memset(block, 0, sizeof block);
    }
    return n > 0 && output->length <= MOST_OUTPUT;
}

/* Waits for output and end. False: it took too long. A program whose parent ignores
 * SIGCHLD leaves no status: then 0. */
static bool finish(child *process, double most, sonde_text *output, int *status)
{
    const double end = sonde__now() + most;
    bool open = true, ended = false;

    while (!ended && sonde__now() < end) {
        if (open) {
            open = read_some(process, output);
            if (!open) { /* a program that goes on writing gets SIGPIPE */
                (void)close(process->out);
                process->out = -1;
            }
        } else {
            const struct timespec nap = {0, 10 * 1000 * 1000};

            (void)nanosleep(&nap, NULL);
        }
        const pid_t done = waitpid(process->id, status, WNOHANG);
        ended = done == process->id || (done < 0 && errno == ECHILD);
    }
    while (ended && open) { /* what the pipe holds; a grandchild may keep it open */
        const size_t before = output->length;

        open = read_some(process, output) && output->length > before;
    }
    if (!ended) {
        (void)kill(-process->id, SIGKILL);
        (void)waitpid(process->id, NULL, 0);
    }
    if (process->out >= 0) {
        (void)close(process->out);
    }
    return ended;
}

/* help: what would help if the program fails. */
static sonde_err run(char **words, double most, const char *where, const char *help,
                     sonde_text *output, sonde_diag *diag)
{
    child process = {0};
    int status = 0;
    const int failed = start(words, &process);

    if (failed != 0) {
        return sonde__fail(diag, SONDE_EIO, where, help, "'%s' cannot be run: %s",
                           words[0], strerror(failed));
    }
    if (!finish(&process, most, output, &status)) {
        return sonde__fail(diag, SONDE_ETIMEOUT, where, help,
                           "'%s' did not end in %.0f s", words[0], most);
    }
    if (WIFSIGNALED(status) || WEXITSTATUS(status) != 0) {
        return sonde__fail(diag, SONDE_EIO, where, help, "'%s' ends with %s %d", words[0],
                           WIFSIGNALED(status) ? "signal" : "status",
                           WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    return SONDE_OK;
}

/* Runs a program and takes the credentials that it prints. */
static sonde_err take_output(char **words, double most, const char *where,
                             const char *help, sonde__s3_keys *keys, sonde_diag *diag)
{
    sonde_text output = {0};
    sonde_err err = run(words, most, where, help, &output, diag);

    if (err == SONDE_OK) {
        err = sonde__s3_keys_take_json(keys, &output, "SessionToken", where, diag);
    }
    if (output.length > 0) {
        memset(output.data, 0, output.length);
    }
    sonde_text_fini(&output);
    return err;
}

sonde_err sonde__s3_keys_of_process(const char *profile, double most,
                                    sonde__s3_keys *keys, sonde_diag *diag)
{
    char *command = sonde__s3_profile_value(profile, "credential_process");
    char *words[MOST_WORDS + 1], where[160];

    if (command == NULL) {
        return SONDE_ENOTFOUND;
    }
    (void)snprintf(where, sizeof where, "credential_process of profile %.100s", profile);
    const sonde_err err =
        split(command, words) > 0
            ? take_output(words, most, where, "a program that you have tried by hand",
                          keys, diag)
            : sonde__fail(diag, SONDE_EINVAL, where, "a program and its arguments",
                          "the command has an open quote, or too many words");
    sonde__free(command);
    return err;
}

sonde_err sonde__s3_keys_of_aws(const char *profile, double most, sonde__s3_keys *keys,
                                sonde_diag *diag)
{
    char name[128], help[256], where[160];
    char *words[] = {(char[]){"aws"},
                     (char[]){"configure"},
                     (char[]){"export-credentials"},
                     (char[]){"--format"},
                     (char[]){"process"},
                     (char[]){"--profile"},
                     name,
                     NULL};
    const bool role = sonde__s3_profile_has(profile, "role_arn") &&
                      (sonde__s3_profile_has(profile, "source_profile") ||
                       sonde__s3_profile_has(profile, "credential_source"));

    if (!role && !sonde__s3_profile_has(profile, "sso_session") &&
        !sonde__s3_profile_has(profile, "sso_start_url")) {
        return SONDE_ENOTFOUND;
    }
    (void)snprintf(name, sizeof name, "%s", profile);
    (void)snprintf(where, sizeof where, "%s of profile %.100s",
                   role ? "role" : "single sign-on", profile);
    (void)snprintf(help, sizeof help,
                   "the AWS command line 2.12 or newer, and success of: %saws configure "
                   "export-credentials --profile %.100s",
                   role ? "" : "aws sso login; ", profile);
    if (role &&
        sonde__s3_profile_has(profile, "mfa_serial")) { /* it would ask for a code */
        return sonde__fail(
            diag, SONDE_EUNSUPPORTED, where,
            "keys: eval \"$(aws configure export-credentials --format env)\"",
            "it needs a code of a device (mfa_serial)");
    }
    return take_output(words, most, where, help, keys, diag);
}
