/*
 * cli_terminal.c - the border to the terminal: control characters in names, paths and
 * messages never reach it raw.
 *
 * stdout and stderr are replaced by streams whose bytes pass through escape(): a control
 * character other than newline and tab, and U+0080 to U+009F, is written as \x1b. The one
 * sequence of the commands' own, which draws progress bars anew, passes on stderr.
 *
 * A standard stream that the caller closed stays useless, but its number is taken:
 * otherwise the next file that opens gets the number, and messages are written into it.
 */
#include "cli/cli.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PIECE = 4096, WIDEST = 4 /* bytes of an escaped character */ };
#define REDRAW "\r\033[K"

/* A stream's descriptor and what it keeps between writes. */
typedef struct border {
    int fd;
    bool redraws; /* REDRAW passes */
    bool pending; /* the last byte was 0xC2, the first half of U+0080 to U+00BF */
} border;

static bool write_all(int fd, const char *bytes, size_t n)
{
    while (n > 0) {
        const ssize_t done = write(fd, bytes, n);

        if (done < 0 && errno == EINTR) {
            continue;
        }
        if (done <= 0) {
            return false;
        }
        bytes += done;
        n -= (size_t)done;
    }
    return true;
}

static bool is_control(unsigned char c)
{
    return (c < 0x20 && c != '\n' && c != '\t') || c == 0x7F;
}

static size_t put_escaped(char *out, unsigned char c)
{
    static const char digits[] = "0123456789abcdef";

    out[0] = '\\';
    out[1] = 'x';
    out[2] = digits[c >> 4];
    out[3] = digits[c & 15];
    return WIDEST;
}

/* One byte, and a 0xC2 that was held back before it. Returns how many bytes of out. */
static size_t escape(border *end, unsigned char c, char *out)
{
    size_t n = 0;

    if (end->pending) {
        end->pending = false;
        if (c >= 0x80 && c < 0xA0) {
            return put_escaped(out, c);
        }
        out[n++] = (char)0xC2;
    }
    if (c == 0xC2) {
        end->pending = true;
        return n;
    }
    if (is_control(c)) {
        return n + put_escaped(out + n, c);
    }
    out[n++] = (char)c;
    return n;
}

static ssize_t write_border(void *cookie, const char *bytes, size_t size)
{
    border *end = cookie;
    char out[PIECE + 2 * WIDEST + sizeof REDRAW];
    size_t used = 0;

    for (size_t i = 0; i < size;) {
        const size_t redraw = sizeof REDRAW - 1;

        if (end->redraws && size - i >= redraw &&
            memcmp(bytes + i, REDRAW, redraw) == 0) {
            memcpy(out + used, REDRAW, redraw);
            used += redraw;
            i += redraw;
        } else {
            used += escape(end, (unsigned char)bytes[i++], out + used);
        }
        if (used >= PIECE) {
            if (!write_all(end->fd, out, used)) {
                return 0;
            }
            used = 0;
        }
    }
    return write_all(end->fd, out, used) ? (ssize_t)size : 0;
}

/* A stream over a descriptor; NULL: out of memory, and the old one stays. */
static FILE *make_stream(border *end, int buffering)
{
    FILE *stream = fopencookie(end, "w", (cookie_io_functions_t){.write = write_border});

    if (stream != NULL && setvbuf(stream, NULL, buffering, 0) != 0) {
        (void)fclose(stream);
        return NULL;
    }
    return stream;
}

/* Gives the closed ones of descriptors 0, 1 and 2 to /dev/null, each in the direction
 * that it is not used in, so that reading and writing still fail with EBADF. */
static void take_closed(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++) {
        if (fcntl(fd, F_GETFD) < 0 && errno == EBADF) { /* fd is the lowest free number */
            (void)open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
        }
    }
}

void cli_guard_output(void)
{
    static border out = {.fd = STDOUT_FILENO};
    static border err = {.fd = STDERR_FILENO, .redraws = true};

    take_closed();
    FILE *guarded_out = make_stream(&out, isatty(STDOUT_FILENO) != 0 ? _IOLBF : _IOFBF);
    FILE *guarded_err = make_stream(&err, _IONBF);
    stdout = guarded_out != NULL ? guarded_out : stdout;
    stderr = guarded_err != NULL ? guarded_err : stderr;
}
