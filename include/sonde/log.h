/*
 * log.h - what Sonde has to say while it works.
 *
 * Nothing is printed unless a sink is set. The threshold is info, or what the environment
 * variable SONDE_LOG_LEVEL says (debug, info, warning, error, critical, off) when it is
 * first needed, or what sonde_log_set_level says, whichever came last.
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

/* room is the part that speaks ("compile", "data"); message is one line without newline. */
typedef void (*sonde_log_sink)(void *user, sonde_log_level level, const char *room,
                               const char *message);

SONDE_API void sonde_log_set_level(sonde_log_level level);
SONDE_API sonde_log_level sonde_log_get_level(void);

/* "debug" ... "off", any case. Unknown: SONDE_EINVAL, with the list in diag. */
SONDE_API SONDE_CHECKED sonde_err sonde_log_level_parse(const char *text,
                                                        sonde_log_level *level,
                                                        sonde_diag *diag);

/* sink NULL silences. user is borrowed. Calls of the sink are serialised. */
SONDE_API void sonde_log_set_sink(sonde_log_sink sink, void *user);

/* Sink: "[HH:MM:SS.mmm] [room] [level] message" lines to a stream, which is borrowed. */
SONDE_API void sonde_log_to_stream(FILE *stream);

/* Cheap when nothing listens: one atomic load. */
SONDE_API bool sonde_log_enabled(sonde_log_level level);
SONDE_API void sonde_log(sonde_log_level level, const char *room, const char *fmt, ...)
    SONDE_PRINTF(3, 4);

#ifdef __cplusplus
}
#endif

#endif
