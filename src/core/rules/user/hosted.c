/*
 * hosted.c - a rule that runs in a process of its own: starting the host, asking it, and
 * the functions of the rule's row, through which evidence goes out and findings come in.
 *
 * The engine treats such a rule like a built-in one: it asks what the rule wants, passes
 * the evidence of a step, and has the answer before the step ends. A failure in the host
 * switches the rule off, with a finding about it.
 *
 * The host is started with posix_spawn, which a program with threads may call at any
 * time, and is asked over a pair of sockets, so no signal reaches the program if the host
 * dies. Every wait for the host has a limit.
 */
#include "rules/user/hosted.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "base/names.h"
#include "base/point.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <math.h>
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
    double seconds; /* of processor time, which the host limits itself */
    double patience;
};

/* --- starting ----------------------------------------------------------------------- */

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

/* Standard input is empty. Output of a rule goes to stderr, since stdout belongs to the
 * program. */
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

/* Default signals, whatever the program blocks or ignores. */
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

/* Ends the message that was begun, sends it, and takes the answer. */
static sonde_err end_and_ask(sonde__user_host *host, sonde__user_message *answer)
{
    const sonde_err err = sonde__user_wire_end(&host->wire);

    return err != SONDE_OK ? err : sonde__user_host_ask(host, answer);
}

/* Lets the host read the file. */
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
    err = end_and_ask(host, answer);
    if (err != SONDE_OK) {
        return sonde__fail(diag, err == SONDE_ENOMEM ? err : SONDE_EFORMAT, path,
                           "a file of rules", "reading it %s",
                           sonde__user_host_fate(host, err, fate, sizeof fate));
    }
    if (answer->kind == SONDE__WIRE_ERROR) {
        return sonde__user_host_error(answer, path, diag);
    }
    return answer->kind == SONDE__WIRE_RULES
               ? SONDE_OK
               : sonde__fail(diag, SONDE_EFORMAT, path, "a host of this version",
                             "the host sent an unexpected answer");
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
    SONDE__TRY_GO(start(host, diag));
    SONDE__TRY_GO(open_file(host, path, limits, rules, diag));
    *out = host;
    return SONDE_OK;

error:
    sonde__user_host_stop(host);
    return err;
}

/* --- talking ------------------------------------------------------------------------ */

sonde__user_wire *sonde__user_host_wire(sonde__user_host *host)
{
    return &host->wire;
}

sonde_err sonde__user_host_ask(sonde__user_host *host, sonde__user_message *answer)
{
    const sonde_err err = sonde__user_wire_flush(&host->wire);

    return err != SONDE_OK ? err : sonde__user_wire_take(&host->wire, answer);
}

sonde_err sonde__user_host_error(sonde__user_message *message, const char *path,
                                 sonde_diag *diag)
{
    const uint32_t code = sonde__user_take_u32(message);
    const char *where = sonde__user_need_text(message);
    const char *found = sonde__user_need_text(message);
    const char *expected = sonde__user_need_text(message);

    if (message->bad || code == SONDE_OK || code > SONDE_ETIMEOUT) {
        return sonde__fail(diag, SONDE_EFORMAT, path, NULL,
                           "the host sent an error without a text");
    }
    return sonde__fail(diag, (sonde_err)code, where[0] != '\0' ? where : path,
                       expected[0] != '\0' ? expected : NULL, "%s", found);
}

/* --- ending ------------------------------------------------------------------------- */

/* True if it ended within so many seconds. *status is -1 if other code has collected it.
 * */
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
        (void)sonde__snprintf(buf, size, "took longer than %g s", host->seconds);
    } else if (err == SONDE_ETIMEOUT) {
        (void)sonde__snprintf(buf, size, "did not answer for %g s", host->patience);
    } else if (err == SONDE_ENOMEM) {
        (void)snprintf(buf, size, "ran out of memory");
    } else if (err == SONDE_EFORMAT) {
        (void)snprintf(buf, size, "sent invalid answers: it has corrupted its memory");
    } else if (by_signal == SIGKILL && !by_itself) {
        (void)snprintf(buf, size, "closed files that it does not own");
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
    sonde__user_wire_fini(&host->wire); /* which makes it end */
    (void)end_process(host, host->patience, &status);
    sonde__free(host);
}

enum { SEND_AT = 1 << 20, PARAMS_TEXT = 16384 };

static const sonde__user_hosted *hosted_of(const sonde_rule_run *run)
{
    return (const sonde__user_hosted *)run->rule;
}

/* --- when it goes wrong ------------------------------------------------------------- */

static void give_up(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    sonde__user_host_stop(state->host);
    state->host = NULL;
}

/* doing: "at step 12". */
static void lost(sonde_rule_run *run, sonde_err err, const char *doing)
{
    sonde__user_hosted_state *state = run->state;
    char fate[128];

    (void)sonde__user_host_fate(state->host, err, fate, sizeof fate);
    give_up(run);
    sonde_rule_fail(run, "it %s %s", fate, doing);
}

/* --- findings ----------------------------------------------------------------------- */

static const char *keep(sonde__user_hosted_state *state, const char *text)
{
    const uint32_t id =
        text != NULL ? sonde__names_intern(&state->texts, text) : SONDE__NO_NAME;

    return id != SONDE__NO_NAME ? state->texts.text[id] : NULL;
}

/* False if the message is no finding. */
static bool take_finding(sonde_rule_run *run, sonde__user_message *message)
{
    sonde__user_hosted_state *state = run->state;
    const int64_t at = sonde__user_take_i64(message);
    const uint32_t severity = sonde__user_take_u32(message);
    const double value = sonde__user_take_f64(message);
    const double threshold = sonde__user_take_f64(message);
    const char *statistic = keep(state, sonde__user_need_text(message));
    const char *said = sonde__user_need_text(message);
    const char *advice = sonde__user_take_text(message);
    const size_t i = at < 0 ? SONDE_RULE_WHOLE_RUN : (size_t)at;

    if (message->bad || severity > SONDE_SEVERITY_ERROR ||
        (i != SONDE_RULE_WHOLE_RUN && i >= run->count)) {
        return false;
    }
    if (sonde_rule_found(run, i, (sonde_severity)severity,
                         statistic != NULL ? statistic : "", value, threshold)) {
        sonde_rule_say(run, keep(state, advice), "%s", said);
    }
    return true;
}

/* Sends the messages that were written and takes findings until the host has finished. */
static void exchange(sonde_rule_run *run, const char *doing)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_message answer = {0};
    sonde_err err = sonde__user_host_ask(state->host, &answer);

    if (err != SONDE_OK) {
        lost(run, err, doing);
        return;
    }
    while (answer.kind == SONDE__WIRE_FOUND) {
        err = take_finding(run, &answer)
                  ? sonde__user_wire_take(sonde__user_host_wire(state->host), &answer)
                  : SONDE_EFORMAT;
        if (err != SONDE_OK) {
            lost(run, err, doing);
            return;
        }
    }
    if (answer.kind == SONDE__WIRE_DONE) {
        const char *lacked = sonde__user_need_text(&answer);

        sonde_rule_lacked(run, "%s", lacked);
    } else if (answer.kind == SONDE__WIRE_FAILED) {
        char text[SONDE__MESSAGE];

        (void)snprintf(text, sizeof text, "%s", sonde__user_need_text(&answer));
        give_up(run);
        sonde_rule_fail(run, "%s", text);
    } else {
        lost(run, SONDE_EFORMAT, doing);
    }
}

/* --- evidence ----------------------------------------------------------------------- */

static void put_coordinate(sonde__user_wire *wire, const sonde_coordinate *at)
{
    sonde__user_wire_put_bytes(wire, at, sizeof *at);
}

/* The elements in row-major order, without gaps. */
static void put_view(sonde__user_wire *wire, const sonde_view *view)
{
    const size_t size = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);

    sonde__user_wire_put_u32(wire, (uint32_t)view->dtype);
    sonde__user_wire_put_u32(wire, (uint32_t)view->rank);
    sonde__user_wire_put_bytes(wire, view->shape, sizeof view->shape);
    void *room = sonde__user_wire_room(wire, size);
    if (room != NULL) {
        const sonde_view to = sonde_view_of(view->dtype, view->rank, view->shape, room);

        if (sonde_view_copy(&to, view, NULL) != SONDE_OK) { /* same shape and dtype */
            memset(room, 0, size);
        }
    }
}

static void at_step(const sonde_rule_run *run, char *buf, size_t size)
{
    (void)snprintf(buf, size, "at step %lld", (long long)sonde_rule_at(run)->global_step);
}

/* Without vital signs, which are sent with the step, merged. */
static void hosted_observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                           const sonde_observation *seen)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_wire *wire = NULL;
    char doing[64];
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_PUT);
    sonde__user_wire_put_u32(wire, tensor->id);
    sonde__user_wire_put_u32(wire, (seen->view != NULL ? SONDE_HOW_RAW : 0U) |
                                       (seen->sketch != NULL ? SONDE_HOW_SKETCH : 0U));
    put_coordinate(wire, &seen->at);
    sonde__user_wire_put_i64(wire, (int64_t)seen->hash);
    if (seen->sketch != NULL) {
        sonde__user_wire_put_bytes(wire, seen->sketch, sizeof *seen->sketch);
    }
    if (seen->view != NULL) {
        put_view(wire, seen->view);
    }
    SONDE__TRY_GO(sonde__user_wire_end(wire));
    if (wire->out_used >= SEND_AT) {
        SONDE__TRY_GO(sonde__user_wire_flush(wire));
    }
    return;

error:
    at_step(run, doing, sizeof doing);
    lost(run, err, doing);
}

static void hosted_step(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;
    char doing[64];
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return;
    }
    sonde__user_wire *wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_STEP);
    put_coordinate(wire, sonde_rule_at(run));
    sonde__user_wire_put_i64(wire, (int64_t)run->rules->bad);
    for (size_t i = 0; i < run->count; i++) {
        const sonde_rule_tensor *tensor = &run->tensors[i];

        if (tensor->vitals != NULL) {
            sonde__user_wire_put_u32(wire, tensor->id);
            sonde__user_wire_put_bytes(wire, tensor->vitals, sizeof *tensor->vitals);
        }
    }
    sonde__user_wire_put_u32(wire, SONDE_NO_TENSOR);
    err = sonde__user_wire_end(wire);
    at_step(run, doing, sizeof doing);
    if (err != SONDE_OK) {
        lost(run, err, doing);
        return;
    }
    exchange(run, doing);
}

static void hosted_idle(sonde_rule_run *run, double seconds)
{
    sonde__user_hosted_state *state = run->state;

    if (state->host != NULL) {
        sonde__user_wire *wire = sonde__user_host_wire(state->host);

        sonde__user_wire_begin(wire, SONDE__WIRE_IDLE);
        sonde__user_wire_put_f64(wire, seconds);
        if (sonde__user_wire_end(wire) == SONDE_OK) {
            exchange(run, "while the run was idle");
        }
    }
}

static void hosted_finish(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    if (state->host != NULL) {
        sonde__user_wire *wire = sonde__user_host_wire(state->host);

        sonde__user_wire_begin(wire, SONDE__WIRE_FINISH);
        if (sonde__user_wire_end(wire) == SONDE_OK) {
            exchange(run, "at the end of the run");
        }
    }
}

/* --- tensors ------------------------------------------------------------------------ */

static bool append(sonde__user_hosted_state *state, const char *text, size_t length)
{
    const size_t used = state->collections != NULL ? strlen(state->collections) : 0;

    if (!sonde__reserve(&state->collections, &state->capacity, used + length + 2, 1)) {
        return false;
    }
    memcpy(state->collections + used, text, length);
    memcpy(state->collections + used + length, ",", 2);
    return true;
}

/* The collections that parameters name and the tensor belongs to, each followed by a
 * comma. */
static const char *collections_of(sonde_rule_run *run, uint32_t id)
{
    const sonde_rules *rules = run->rules;
    sonde__user_hosted_state *state = run->state;

    if (state->collections != NULL) {
        state->collections[0] = '\0';
    }
    for (size_t i = 0; i < run->rule->param_count && rules->in_collection != NULL; i++) {
        const char *p = run->texts[i];

        if (run->rule->params[i].kind != SONDE_RULE_COLLECTIONS || p == NULL) {
            continue;
        }
        while (*p != '\0') {
            const size_t length = strcspn(p, ",");
            char name[128];

            (void)snprintf(name, sizeof name, "%.*s", (int)length, p);
            if (rules->in_collection(rules->collection_user, id, name) &&
                !append(state, p, length)) {
                return NULL;
            }
            p += length;
            p += strspn(p, ", ");
        }
    }
    return state->collections != NULL ? state->collections : "";
}

static void put_tensor(sonde__user_wire *wire, const sonde_tensor_info *info, uint32_t id)
{
    sonde__user_wire_put_u32(wire, id);
    sonde__user_wire_put_text(wire, info->name);
    sonde__user_wire_put_text(wire, info->module);
    sonde__user_wire_put_text(wire, info->op);
    sonde__user_wire_put_text(wire, info->note);
    sonde__user_wire_put_u32(wire, (uint32_t)info->role);
    sonde__user_wire_put_u32(wire, (uint32_t)info->pass);
    sonde__user_wire_put_u32(wire, (uint32_t)info->dtype);
    sonde__user_wire_put_u32(wire, (uint32_t)info->rank);
    sonde__user_wire_put_bytes(wire, info->shape, sizeof info->shape);
    sonde__user_wire_put_u32(wire, info->same_as);
}

static int hosted_wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    sonde__user_hosted_state *state = run->state;
    sonde__user_message answer = {0};
    char doing[256];
    int64_t need = SONDE_RULE_IGNORE;
    sonde_err err = SONDE_OK;

    if (state->host == NULL) {
        return SONDE_RULE_IGNORE;
    }
    sonde__user_wire *wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_DECLARE);
    put_tensor(wire, info, id);
    sonde__user_wire_put_text(wire, collections_of(run, id));
    err = end_and_ask(state->host, &answer);
    (void)snprintf(doing, sizeof doing, "when asked whether it wants '%s'", info->name);
    if (err != SONDE_OK) {
        lost(run, err, doing);
        return SONDE_RULE_IGNORE;
    }
    if (answer.kind == SONDE__WIRE_ERROR) {
        sonde_diag why = {0};
        char line[SONDE_DIAG_LINE];

        (void)sonde__user_host_error(&answer, hosted_of(run)->path, &why);
        give_up(run);
        sonde_rule_fail(run, "%s", sonde_diag_line(&why, line, sizeof line));
        return SONDE_RULE_IGNORE;
    }
    need = sonde__user_take_i64(&answer);
    if (answer.kind != SONDE__WIRE_NEED || answer.bad || need < SONDE_RULE_IGNORE ||
        need >= (int64_t)run->rule->need_count) {
        lost(run, SONDE_EFORMAT, doing);
        return SONDE_RULE_IGNORE;
    }
    return (int)need;
}

/* --- beginning and ending ----------------------------------------------------------- */

/* Appends a value as the host reads it; false if it is too long. */
static bool write_param(const sonde_rule_run *run, size_t i, char *buf, size_t size)
{
    const sonde_rule_param *param = &run->rule->params[i];
    const char *field = (const char *)run->state + param->offset;

    if (param->kind == SONDE_RULE_REAL) {
        double value = 0;

        memcpy(&value, field, sizeof value);
        return isnan(value) ||
               (size_t)sonde__snprintf(buf, size, "%s=%.17g,", param->name, value) < size;
    }
    if (param->kind == SONDE_RULE_COUNT) {
        int64_t value = 0;

        memcpy(&value, field, sizeof value);
        return value == INT64_MIN || (size_t)snprintf(buf, size, "%s=%lld,", param->name,
                                                      (long long)value) < size;
    }
    if (param->kind == SONDE_RULE_FLAG) {
        return (size_t)snprintf(buf, size, "%s=%d,", param->name, field[0] != 0) < size;
    }
    if (run->texts[i] == NULL) {
        return true;
    }
    size_t used = (size_t)snprintf(buf, size, "%s=", param->name);
    for (const char *p = run->texts[i]; *p != '\0' && used + 3 < size; p++) {
        if (*p == ',') {
            buf[used++] = '\\';
        }
        buf[used++] = *p;
    }
    if (used + 3 >= size) {
        return false;
    }
    memcpy(buf + used, ",", 2);
    return true;
}

static sonde_err write_params(const sonde_rule_run *run, char *text, size_t size,
                              sonde_diag *diag)
{
    text[0] = '\0';
    for (size_t i = 0; i < run->rule->param_count; i++) {
        const size_t used = strlen(text);

        if (!write_param(run, i, text + used, size - used)) {
            return sonde__fail(diag, SONDE_EINVAL, run->rule->name, "shorter parameters",
                               "parameters of more than %d bytes", PARAMS_TEXT);
        }
    }
    return SONDE_OK;
}

static sonde_err hosted_init(sonde_rule_run *run, sonde_diag *diag)
{
    const sonde__user_hosted *hosted = hosted_of(run);
    sonde__user_hosted_state *state = run->state;
    char params[PARAMS_TEXT], fate[128];
    sonde__user_message answer = {0};
    sonde__user_wire *wire = NULL;
    sonde_err err = write_params(run, params, sizeof params, diag);

    sonde__names_init(&state->texts);
    if (err != SONDE_OK) {
        return err;
    }
    err =
        sonde__user_host_start(hosted->path, hosted->limits, &state->host, &answer, diag);
    if (err != SONDE_OK) {
        return err;
    }
    wire = sonde__user_host_wire(state->host);
    sonde__user_wire_begin(wire, SONDE__WIRE_SETUP);
    sonde__user_wire_put_text(wire, run->rule->name);
    sonde__user_wire_put_text(wire, params);
    SONDE__TRY_GO(end_and_ask(state->host, &answer));
    if (answer.kind == SONDE__WIRE_ERROR) {
        return sonde__user_host_error(&answer, hosted->path, diag);
    }
    if (answer.kind == SONDE__WIRE_DONE) {
        return SONDE_OK;
    }
    err = SONDE_EFORMAT;

error:
    return sonde__fail(diag, err == SONDE_ENOMEM ? err : SONDE_EINVAL, hosted->path, NULL,
                       "rule %s: its init %s", run->rule->name,
                       sonde__user_host_fate(state->host, err, fate, sizeof fate));
}

static void hosted_destroy(sonde_rule_run *run)
{
    sonde__user_hosted_state *state = run->state;

    sonde__user_host_stop(state->host);
    sonde__names_fini(&state->texts);
    sonde__free(state->collections);
}

void sonde__user_hosted_functions(sonde_rule *rule)
{
    rule->init = hosted_init;
    rule->wants = hosted_wants;
    rule->observe = hosted_observe;
    rule->step = hosted_step;
    rule->idle = hosted_idle;
    rule->finish = hosted_finish;
    rule->destroy = hosted_destroy;
}
