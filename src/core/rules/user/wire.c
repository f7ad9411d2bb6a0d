/*
 * wire.c - messages over a pair of sockets.
 */
#include "rules/user/wire.h"
#include "base/fail.h"
#include "base/clock.h"
#include "base/macros.h"
#include "base/memory.h"

#include <errno.h>
#include <math.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HEADER = 16, FIRST_ROOM = 4096 };
#define NO_TEXT UINT32_MAX

void sonde__user_wire_init(sonde__user_wire *wire, int fd, double seconds, uint64_t most)
{
    *wire = (sonde__user_wire){.fd = fd, .seconds = seconds, .most = most};
}

void sonde__user_wire_fini(sonde__user_wire *wire)
{
    if (wire->fd >= 0) {
        (void)close(wire->fd);
    }
    wire->fd = -1;
    sonde__free(wire->out);
    sonde__free(wire->in);
    wire->out = NULL;
    wire->in = NULL;
}

/* --- writing ------------------------------------------------------------------------ */

static bool make_room(unsigned char **bytes, size_t *capacity, size_t used, size_t size)
{
    size_t wanted = SONDE_MAX(*capacity, FIRST_ROOM);

    if (size > SIZE_MAX / 4 - used) {
        return false;
    }
    while (wanted < used + size) {
        wanted *= 2;
    }
    if (wanted == *capacity) {
        return true;
    }
    unsigned char *grown = sonde__grow(*bytes, used, wanted);
    if (grown == NULL) {
        return false;
    }
    *bytes = grown;
    *capacity = wanted;
    return true;
}

void sonde__user_wire_begin(sonde__user_wire *wire, sonde__user_wire_kind kind)
{
    const uint32_t head[HEADER / sizeof(uint32_t)] = {(uint32_t)kind};

    wire->begun = wire->out_used;
    wire->no_memory = false;
    sonde__user_wire_put_bytes(wire, head, sizeof head);
}

static void *take_room(sonde__user_wire *wire, size_t size)
{
    if (wire->no_memory ||
        !make_room(&wire->out, &wire->out_capacity, wire->out_used, size)) {
        wire->no_memory = true;
        return NULL;
    }
    void *room = wire->out + wire->out_used;
    wire->out_used += size;
    return room;
}

void sonde__user_wire_put_bytes(sonde__user_wire *wire, const void *bytes, size_t size)
{
    void *room = take_room(wire, size);

    if (room != NULL && size > 0) {
        memcpy(room, bytes, size);
    }
}

void sonde__user_wire_put_u32(sonde__user_wire *wire, uint32_t value)
{
    sonde__user_wire_put_bytes(wire, &value, sizeof value);
}

void sonde__user_wire_put_i64(sonde__user_wire *wire, int64_t value)
{
    sonde__user_wire_put_bytes(wire, &value, sizeof value);
}

void sonde__user_wire_put_f64(sonde__user_wire *wire, double value)
{
    sonde__user_wire_put_bytes(wire, &value, sizeof value);
}

void sonde__user_wire_put_text(sonde__user_wire *wire, const char *text)
{
    const size_t length = text != NULL ? strlen(text) : 0;

    sonde__user_wire_put_u32(wire, text != NULL ? (uint32_t)length : NO_TEXT);
    if (text != NULL) {
        sonde__user_wire_put_bytes(wire, text, length + 1);
    }
}

void *sonde__user_wire_room(sonde__user_wire *wire, size_t size)
{
    static const unsigned char zeros[8];
    const size_t at = wire->out_used - wire->begun; /* a header has 16 bytes */

    sonde__user_wire_put_bytes(wire, zeros, (8 - at % 8) % 8);
    return take_room(wire, size);
}

sonde_err sonde__user_wire_end(sonde__user_wire *wire)
{
    (void)sonde__user_wire_room(wire, 0); /* the next message begins aligned as well */
    if (wire->no_memory) {
        wire->out_used = wire->begun;
        return SONDE_ENOMEM;
    }
    uint64_t length = wire->out_used - wire->begun - HEADER;
    memcpy(wire->out + wire->begun + 8, &length, sizeof length);
    return SONDE_OK;
}

/* --- moving ------------------------------------------------------------------------- */

/* Waits until the socket can be written to or read from. */
static sonde_err wait_for(const sonde__user_wire *wire, short events)
{
    const double until = sonde__now() + wire->seconds;

    for (;;) {
        struct pollfd one = {.fd = wire->fd, .events = events};
        const double left = until - sonde__now();
        const int timeout =
            wire->seconds <= 0 ? -1 : (int)fmin(ceil(fmax(left, 0.0) * 1000.0), 3.6e6);
        const int ready = poll(&one, 1, timeout);

        if (ready > 0) {
            return SONDE_OK;
        }
        if (ready == 0 && left <= 0) {
            return SONDE_ETIMEOUT;
        }
        if (ready < 0 && errno != EINTR) {
            return SONDE_EIO;
        }
    }
}

static sonde_err move_result(ssize_t moved, const sonde__user_wire *wire, short events)
{
    if (moved < 0 && errno == EINTR) {
        return SONDE_OK;
    }
    if (moved < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
        return wait_for(wire, events);
    }
    return SONDE_EEND;
}

sonde_err sonde__user_wire_flush(sonde__user_wire *wire)
{
    const size_t size = wire->out_used;
    size_t sent = 0;

    wire->out_used = 0;
    while (sent < size) {
        const ssize_t n =
            send(wire->fd, wire->out + sent, size - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
        SONDE__TRY(n > 0 ? SONDE_OK : move_result(n, wire, POLLOUT));
        sent += n > 0 ? (size_t)n : 0;
    }
    return SONDE_OK;
}

static sonde_err receive(sonde__user_wire *wire, void *out, size_t size)
{
    size_t got = 0;

    while (got < size) {
        const ssize_t n =
            recv(wire->fd, (unsigned char *)out + got, size - got, MSG_DONTWAIT);
        SONDE__TRY(n > 0 ? SONDE_OK : move_result(n, wire, POLLIN));
        got += n > 0 ? (size_t)n : 0;
    }
    return SONDE_OK;
}

sonde_err sonde__user_wire_take(sonde__user_wire *wire, sonde__user_message *message)
{
    uint32_t head[2];
    uint64_t length = 0;
    SONDE__TRY(receive(wire, head, sizeof head));
    SONDE__TRY(receive(wire, &length, sizeof length));
    if (head[1] != 0 || (wire->most != 0 && length > wire->most)) {
        return SONDE_EFORMAT;
    }
    if (length > SIZE_MAX / 4 ||
        !make_room(&wire->in, &wire->in_capacity, 0, (size_t)length)) {
        return SONDE_ENOMEM;
    }
    SONDE__TRY(receive(wire, wire->in, (size_t)length));
    *message = (sonde__user_message){head[0], wire->in, (size_t)length, false};
    return SONDE_OK;
}

/* --- reading ------------------------------------------------------------------------ */

const void *sonde__user_take_bytes(sonde__user_message *message, size_t size)
{
    const void *bytes = message->at;

    if (message->bad || size > message->left) {
        message->bad = true;
        return NULL;
    }
    message->at += size;
    message->left -= size;
    return bytes;
}

void sonde__user_take_into(sonde__user_message *message, void *out, size_t size)
{
    const void *bytes = sonde__user_take_bytes(message, size);

    if (bytes != NULL) {
        memcpy(out, bytes, size);
    } else {
        memset(out, 0, size);
    }
}

uint32_t sonde__user_take_u32(sonde__user_message *message)
{
    uint32_t value = 0;

    sonde__user_take_into(message, &value, sizeof value);
    return value;
}

int64_t sonde__user_take_i64(sonde__user_message *message)
{
    int64_t value = 0;

    sonde__user_take_into(message, &value, sizeof value);
    return value;
}

double sonde__user_take_f64(sonde__user_message *message)
{
    double value = 0;

    sonde__user_take_into(message, &value, sizeof value);
    return value;
}

const char *sonde__user_take_text(sonde__user_message *message)
{
    const uint32_t length = sonde__user_take_u32(message);

    if (message->bad || length == NO_TEXT) {
        return NULL;
    }
    const char *text = sonde__user_take_bytes(message, (size_t)length + 1);
    if (text != NULL && (text[length] != '\0' || strlen(text) != length)) {
        message->bad = true;
        text = NULL;
    }
    return text;
}

const char *sonde__user_need_text(sonde__user_message *message)
{
    const char *text = sonde__user_take_text(message);

    message->bad = message->bad || text == NULL;
    return text != NULL ? text : "";
}

const void *sonde__user_take_room(sonde__user_message *message, size_t size)
{
    (void)sonde__user_take_bytes(message, (8 - (uintptr_t)message->at % 8) % 8);
    return sonde__user_take_bytes(message, size);
}
