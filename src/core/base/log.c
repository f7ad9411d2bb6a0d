/*
 * log.c - levels, one sink, and the sink that writes lines to a stream.
 *
 * The level is an atomic read on every call; the sink is behind a mutex, which also keeps
 * lines whole.
 */
#include "base/fail.h"
#include "base/log_lock.h"
#include "base/number.h"

#include <sonde/error.h>
#include <sonde/log.h>

#include <stdbool.h>
#include <stddef.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

static const char *const level_names[] = {"debug", "info",     "warning",
                                          "error", "critical", "off"};

static atomic_int current_level = -1; /* -1: the environment was not read yet */
static atomic_bool listening = false;
static pthread_mutex_t sink_lock = PTHREAD_MUTEX_INITIALIZER;
static sonde_log_sink current_sink; /* under sink_lock */
static void *current_user;          /* under sink_lock */
static _Thread_local bool in_sink;  /* this thread holds sink_lock */

sonde_err sonde_log_level_parse(const char *text, sonde_log_level *level,
                                sonde_diag *diag)
{
    SONDE__NEEDS(diag, text, level);
    for (int i = 0; i <= SONDE_LOG_OFF; i++) {
        if (sonde__strcasecmp(text, level_names[i]) == 0) {
            *level = (sonde_log_level)i;
            return SONDE_OK;
        }
    }
    return sonde__fail(diag, SONDE_EINVAL, "log level",
                       "debug, info, warning, error, critical or off",
                       "unknown level '%s'", text);
}

sonde_log_level sonde_log_get_level(void)
{
    int level = atomic_load_explicit(&current_level, memory_order_relaxed);

    if (level < 0) {
        const char *text = getenv("SONDE_LOG_LEVEL");
        sonde_log_level parsed = SONDE_LOG_INFO;

        const bool wrong =
            text != NULL && sonde_log_level_parse(text, &parsed, NULL) != SONDE_OK;
        const bool first = atomic_compare_exchange_strong_explicit(
            &current_level, &level, (int)parsed, memory_order_relaxed,
            memory_order_relaxed);

        if (first && wrong) {
            sonde_log(SONDE_LOG_WARNING, "log",
                      "SONDE_LOG_LEVEL: unknown level '%.64s' (expected debug, info, "
                      "warning, error, critical or off)",
                      text);
        }
        return first ? parsed : (sonde_log_level)level;
    }
    return (sonde_log_level)level;
}

void sonde_log_set_level(sonde_log_level level)
{
    atomic_store_explicit(&current_level, (int)level, memory_order_relaxed);
}

void sonde__log_hold(void)
{
    if (!in_sink) {
        (void)pthread_mutex_lock(&sink_lock);
    }
}

void sonde__log_release(void)
{
    if (!in_sink) {
        (void)pthread_mutex_unlock(&sink_lock);
    }
}

void sonde_log_set_sink(sonde_log_sink sink, void *user)
{
    (void)pthread_mutex_lock(&sink_lock);
    current_sink = sink;
    current_user = user;
    atomic_store_explicit(&listening, sink != NULL, memory_order_relaxed);
    (void)pthread_mutex_unlock(&sink_lock);
}

static void write_line(void *user, sonde_log_level level, const char *room,
                       const char *message)
{
    struct timespec now;
    struct tm local;

    (void)clock_gettime(CLOCK_REALTIME, &now);
    (void)localtime_r(&now.tv_sec, &local);
    (void)fprintf(user, "[%02d:%02d:%02d.%03ld] [%s] [%s] %s\n", local.tm_hour,
                  local.tm_min, local.tm_sec, now.tv_nsec / 1000000, room,
                  level_names[level], message);
}

void sonde_log_to_stream(FILE *stream)
{
    sonde_log_set_sink(stream != NULL ? write_line : NULL, stream);
}

bool sonde_log_enabled(sonde_log_level level)
{
    return atomic_load_explicit(&listening, memory_order_relaxed) &&
           level >= sonde_log_get_level() && level < SONDE_LOG_OFF;
}

void sonde_log(sonde_log_level level, const char *room, const char *fmt, ...)
{
    char message[1024];
    va_list args;

    if (in_sink || !sonde_log_enabled(level)) {
        return;
    }
    va_start(args, fmt);
    (void)sonde__vsnprintf(message, sizeof message, fmt, args);
    va_end(args);
    (void)pthread_mutex_lock(&sink_lock);
    in_sink = true;
    if (current_sink != NULL) {
        current_sink(current_user, level, room, message);
    }
    in_sink = false;
    (void)pthread_mutex_unlock(&sink_lock);
}
