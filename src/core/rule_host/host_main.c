/*
 * host_main.c - sonde-rule-host: prepares the process before it runs a user's rule.
 *
 * libsonde starts it, with a socket as file 3.
 */
#include "rule_host/host.h"
#include "base/macros.h"
#include "rules/user/wire.h"

#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define WITH_ASAN 1
#elif __has_feature(thread_sanitizer)
#define WITH_TSAN 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#define WITH_ASAN 1
#elif defined(__SANITIZE_THREAD__)
#define WITH_TSAN 1
#endif

/* A crash of a rule must end the process by its signal, also under a sanitizer. */
#ifdef WITH_ASAN
const char *__asan_default_options(void);
__attribute__((visibility("default"))) const char *__asan_default_options(void)
{
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0";
}
#endif
#ifdef WITH_TSAN
const char *__tsan_default_options(void);
__attribute__((visibility("default"))) const char *__tsan_default_options(void)
{
    return "handle_segv=0:handle_sigbus=0:handle_abort=0:handle_sigfpe=0:handle_sigill=0";
}
#endif

/* The program handles Ctrl-C and closes the socket when it ends. */
static void ignore_interrupts(void)
{
    static const int signals[] = {SIGINT, SIGQUIT, SIGTERM, SIGHUP, SIGPIPE};

    for (size_t i = 0; i < SONDE_COUNT_OF(signals); i++) {
        (void)signal(signals[i], SIG_IGN);
    }
}

/* If memory runs out, the kernel ends this process first, not the one that trains. */
static void go_first(void)
{
    const int file = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

    if (file >= 0) {
        const ssize_t written = write(file, "1000", 4);

        (void)written; /* a failure is ignored */
        (void)close(file);
    }
}

int main(int argc, char **argv)
{
    const struct rlimit no_core = {0, 0};
    int type = 0;
    socklen_t size = sizeof type;

    (void)argv;
    if (argc != 1 || getsockopt(SONDE__WIRE_FD, SOL_SOCKET, SO_TYPE, &type, &size) != 0) {
        (void)fputs("sonde-rule-host runs users' rules; libsonde starts it\n", stderr);
        return 2;
    }
    (void)close_range(SONDE__WIRE_FD + 1, ~0U, 0);
    (void)fcntl(SONDE__WIRE_FD, F_SETFD, FD_CLOEXEC);
    (void)setrlimit(RLIMIT_CORE, &no_core);
    (void)dup2(STDERR_FILENO, STDOUT_FILENO); /* stdout belongs to the program */
    ignore_interrupts();
    go_first();
    return serve(SONDE__WIRE_FD);
}
