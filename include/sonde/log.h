/*
 * log.h - log messages.
 *
 * Nothing is printed unless a sink is set. The threshold is info; the environment
 * variable SONDE_LOG_LEVEL (debug, info, warning, error, critical, off), read at the
 * first use, and sonde_log_set_level change it.
 *
 * Threads: sonde_log and the functions of the level may be called from any thread.
 * Set the sink at start-up, not within a sink; it must accept calls from any thread.
 */
#ifndef SONDE_LOG_H
#define SONDE_LOG_H

#include <stdbool.h>
#include <stdio.h>

#include <sonde/error.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum sonde_log_level {
    SONDE_LOG_DEBUG = 0,
    SONDE_LOG_INFO = 1,
    SONDE_LOG_WARNING = 2,
    SONDE_LOG_ERROR = 3,
    SONDE_LOG_CRITICAL = 4,
    SONDE_LOG_OFF = 5
} sonde_log_level;

/* room: the part of Sonde that logs ("compile", "data"). message: at most 1023 bytes,
 * without a newline at the end. */
typedef void (*sonde_log_sink)(void *user, sonde_log_level level, const char *room,
                               const char *message);

SONDE_API void sonde_log_set_level(sonde_log_level level);
SONDE_API sonde_log_level sonde_log_get_level(void);

/* "debug" ... "off", any case. Unknown: SONDE_EINVAL, with the list in diag. */
SONDE_API SONDE_CHECKED sonde_err sonde_log_level_parse(const char *text,
                                                        sonde_log_level *level,
                                                        sonde_diag *diag);

/* NULL: no sink. user is borrowed. Calls are serialized; a sink's logs are dropped. */
SONDE_API void sonde_log_set_sink(sonde_log_sink sink, void *user);

/* Sink: "[HH:MM:SS.mmm] [room] [level] message" lines to a stream, which is borrowed. */
SONDE_API void sonde_log_to_stream(FILE *stream);

/* One atomic load if no sink is set. */
SONDE_API bool sonde_log_enabled(sonde_log_level level);
SONDE_API void sonde_log(sonde_log_level level, const char *room, const char *fmt, ...)
    SONDE_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
