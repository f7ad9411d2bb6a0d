/*
 * actions_command.c - /bin/sh -c TEXT, with the finding as JSON on its standard input.
 *
 * A child of a process with threads: posix_spawn, in a process group of its own (so that a
 * timeout ends all that it started, and Ctrl-C is not its business), signals as they are by
 * default, and no file but 0, 1 and 2.
 */
#include "rules/actions/actions_state.h"
#include "base/clock.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

/* The environment with the finding's fields; new, its strings borrowed. NULL: no memory. */
static char **make_environment(const sonde__action_job *job)
{
    size_t count = 0;
    char **made = NULL;

    while (environ[count] != NULL) {
        count++;
    }
    made = sonde__calloc(count + SONDE__JOB_FIELDS + 1, sizeof *made);
    if (made == NULL) {
        return NULL;
    }
    memcpy(made, environ, count * sizeof *made);
    for (size_t i = 0; i < SONDE__JOB_FIELDS; i++) {
        const char *field = job->fields[i];

        memcpy(&made[count + i], &field, sizeof field); /* posix_spawn changes nothing */
    }
    return made;
}

static int set_attributes(posix_spawnattr_t *attributes)
{
    sigset_t none, all;
    int failed = 0;

    (void)sigemptyset(&none);
    (void)sigfillset(&all);
    failed = posix_spawnattr_setsigmask(attributes, &none);
    failed = failed != 0 ? failed : posix_spawnattr_setsigdefault(attributes, &all);
    failed = failed != 0 ? failed : posix_spawnattr_setpgroup(attributes, 0);
    return failed != 0 ? failed
                       : posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                                                  POSIX_SPAWN_SETSIGDEF |
                                                                  POSIX_SPAWN_SETPGROUP);
}

/* Starts it with `input` as its standard input. Returns errno's number, 0 if it runs. */
static int start(const sonde__action_job *job, int input, pid_t *child)
{
    char shell[] = "sh", option[] = "-c";
    char *arguments[] = {shell, option, job->action->text, NULL};
    char **environment = make_environment(job);
    posix_spawn_file_actions_t files;
    posix_spawnattr_t attributes;
    int failed = environment == NULL ? ENOMEM : posix_spawn_file_actions_init(&files);

    if (failed != 0) {
        sonde__free(environment);
        return failed;
    }
    failed = posix_spawnattr_init(&attributes);
    if (failed == 0) {
        failed = posix_spawn_file_actions_adddup2(&files, input, 0);
        failed = failed != 0 ? failed : posix_spawn_file_actions_adddup2(&files, 2, 1);
        failed =
            failed != 0 ? failed : posix_spawn_file_actions_addclosefrom_np(&files, 3);
        failed = failed != 0 ? failed : set_attributes(&attributes);
        failed = failed != 0 ? failed
                             : posix_spawn(child, "/bin/sh", &files, &attributes,
                                           arguments, environment);
        (void)posix_spawnattr_destroy(&attributes);
    }
    (void)posix_spawn_file_actions_destroy(&files);
    sonde__free(environment);
    return failed;
}

/* Waits for its end until the deadline, or until all is given up: then it is killed, with
 * *killed. *status as waitpid has it; false if somebody else took it. */
static bool wait_for(const sonde_actions *actions, pid_t child, double deadline,
                     int *status, bool *killed)
{
    const struct timespec pause = {0, 5000000};

    *killed = false;
    for (;;) {
        const pid_t got = waitpid(child, status, *killed ? 0 : WNOHANG);

        if (got == child) {
            (void)kill(-child, SIGKILL); /* what it left running in the background */
            return true;
        }
        if (got < 0 && errno != EINTR) {
            return false;
        }
        if (!*killed && (sonde__now() > deadline || sonde__actions_given_up(actions))) {
            *killed = true;
            (void)kill(-child, SIGKILL);
        } else if (!*killed) {
            (void)nanosleep(&pause, NULL);
        }
    }
}

/* What fits into a pipe, which a finding does; a command need not read it. */
static void write_finding(int to, const sonde__action_job *job)
{
    ssize_t done = write(to, job->json, job->length);

    if (done == (ssize_t)job->length) {
        done = write(to, "\n", 1);
    }
    (void)done;
}

static sonde__action_job_end judge(int status, char said[SONDE__JOB_SAID])
{
    if (WIFSIGNALED(status)) {
        (void)snprintf(said, SONDE__JOB_SAID, "ended by signal %d", WTERMSIG(status));
        return SONDE__JOB_FAILED;
    }
    (void)snprintf(said, SONDE__JOB_SAID, "status %d%s", WEXITSTATUS(status),
                   WEXITSTATUS(status) == 127 ? " (not found)" : "");
    return WEXITSTATUS(status) == 0 ? SONDE__JOB_DONE : SONDE__JOB_FAILED;
}

sonde__action_job_end sonde__action_command(const sonde_actions *actions,
                                            const sonde__action_job *job,
                                            char said[SONDE__JOB_SAID])
{
    const double seconds = actions->options.command_seconds;
    const double deadline = sonde__now() + seconds;
    int ends[2], failed = 0, status = 0;
    pid_t child = 0;
    bool killed = false, known = false;

    if (pipe2(ends, O_CLOEXEC) != 0) {
        (void)snprintf(said, SONDE__JOB_SAID, "no pipe: %s", strerror(errno));
        return SONDE__JOB_FAILED;
    }
    (void)fcntl(ends[1], F_SETFL, O_NONBLOCK);
    failed = start(job, ends[0], &child);
    (void)close(ends[0]);
    if (failed == 0) {
        write_finding(ends[1], job);
    }
    (void)close(ends[1]);
    if (failed != 0) {
        (void)snprintf(said, SONDE__JOB_SAID, "cannot start: %s", strerror(failed));
        return SONDE__JOB_FAILED;
    }
    known = wait_for(actions, child, deadline, &status, &killed);
    if (killed) {
        (void)snprintf(said, SONDE__JOB_SAID,
                       sonde__actions_given_up(actions) ? "killed at the end of the run"
                                                        : "killed after %.3g s",
                       seconds);
        return SONDE__JOB_FAILED;
    }
    if (!known) {
        (void)snprintf(said, SONDE__JOB_SAID, "its status is lost: %s", strerror(errno));
        return SONDE__JOB_FAILED;
    }
    return judge(status, said);
}
