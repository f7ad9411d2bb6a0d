/*
 * wire.h - messages between a process that judges and the host of a user's rule.
 *
 *     the process that judges          the host
 *     OPEN    protocol, path, limits   RULES descriptions        or ERROR
 *     SETUP   rule, parameters         DONE                      or ERROR
 *     DECLARE a tensor                 NEED index                or ERROR
 *     PUT     a raw value, a sketch    (nothing)
 *     STEP    vital signs              FOUND..., DONE            or FAILED
 *     IDLE, FINISH                     FOUND..., DONE            or FAILED
 *
 * A message:
 *
 *     0        4      8            16
 *     | kind   | 0    | length     | payload: length bytes |
 *
 * Both ends are from one build of Sonde on one machine, so numbers and structs are sent
 * as they lie in memory. Messages of a host are checked nevertheless, since its rule may
 * have overwritten its memory. Messages are collected and sent by flush, or when there
 * are many.
 */
#ifndef SONDE_RULES_USER_WIRE_H
#define SONDE_RULES_USER_WIRE_H

#include <sonde/error.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SONDE__WIRE_PROTOCOL = 1, SONDE__WIRE_FD = 3 };

typedef enum sonde__user_wire_kind {
    SONDE__WIRE_OPEN = 1,
    SONDE__WIRE_SETUP = 2,
    SONDE__WIRE_DECLARE = 3,
    SONDE__WIRE_PUT = 4,
    SONDE__WIRE_STEP = 5,
    SONDE__WIRE_IDLE = 6,
    SONDE__WIRE_FINISH = 7,
    SONDE__WIRE_RULES = 16,
    SONDE__WIRE_DONE = 17,
    SONDE__WIRE_ERROR = 18,
    SONDE__WIRE_NEED = 19,
    SONDE__WIRE_FOUND = 20,
    SONDE__WIRE_FAILED = 21
} sonde__user_wire_kind;

/* One end of a connected pair of stream sockets. */
typedef struct sonde__user_wire {
    int fd;
    double seconds; /* give up after so many seconds without a byte; 0: never */
    uint64_t most;  /* largest incoming payload in bytes; 0: any */
    unsigned char *out, *in;
    size_t out_used, out_capacity, in_capacity;
    size_t begun; /* where the current message begins */
    bool no_memory;
} sonde__user_wire;

/* The message that was taken last, to be read from front to back. Texts and blocks are
 * borrowed until the next take. Reading beyond its end returns 0, NULL or "" and sets
 * bad. */
typedef struct sonde__user_message {
    uint32_t kind;
    const unsigned char *at;
    size_t left;
    bool bad;
} sonde__user_message;

SONDE_API void sonde__user_wire_init(sonde__user_wire *wire, int fd, double seconds,
                                     uint64_t most);
/* Closes the socket as well. */
SONDE_API void sonde__user_wire_fini(sonde__user_wire *wire);

SONDE_API void sonde__user_wire_begin(sonde__user_wire *wire, sonde__user_wire_kind kind);
void sonde__user_wire_put_bytes(sonde__user_wire *wire, const void *bytes, size_t size);
SONDE_API void sonde__user_wire_put_u32(sonde__user_wire *wire, uint32_t value);
SONDE_API void sonde__user_wire_put_i64(sonde__user_wire *wire, int64_t value);
SONDE_API void sonde__user_wire_put_f64(sonde__user_wire *wire, double value);
SONDE_API void sonde__user_wire_put_text(sonde__user_wire *wire,
                                         const char *text); /* or NULL */
/* size bytes for the caller to fill, at a multiple of 8 of the payload; borrowed until
 * the next put. NULL if out of memory. */
void *sonde__user_wire_room(sonde__user_wire *wire, size_t size);
/* SONDE_ENOMEM if the message did not fit into memory; then it is dropped. */
SONDE_API SONDE_CHECKED sonde_err sonde__user_wire_end(sonde__user_wire *wire);
/* Sends all messages that have ended. SONDE_EEND if the other end is closed,
 * SONDE_ETIMEOUT if it does not read. */
SONDE_API SONDE_CHECKED sonde_err sonde__user_wire_flush(sonde__user_wire *wire);
/* Waits for a message. Also SONDE_EFORMAT if the bytes are not a message. */
SONDE_API SONDE_CHECKED sonde_err sonde__user_wire_take(sonde__user_wire *wire,
                                                        sonde__user_message *message);

const void *sonde__user_take_bytes(sonde__user_message *message, size_t size);
SONDE_API uint32_t sonde__user_take_u32(sonde__user_message *message);
SONDE_API int64_t sonde__user_take_i64(sonde__user_message *message);
SONDE_API double sonde__user_take_f64(sonde__user_message *message);
const char *sonde__user_take_text(sonde__user_message *message);
/* A required text: "" and bad if it is NULL. */
SONDE_API const char *sonde__user_need_text(sonde__user_message *message);
/* The bytes that sonde__user_wire_room reserved, at the same multiple of 8. */
SONDE_API const void *sonde__user_take_room(sonde__user_message *message, size_t size);
/* Copies a struct; zeroes it at the end of the message. */
SONDE_API void sonde__user_take_into(sonde__user_message *message, void *out,
                                     size_t size);

#endif
