/*
 * messages.c - errors, numbers, folders, progress and Ctrl-C for all commands.
 */
#include "cli/cli.h"

#include <sonde/log.h>

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

/* --- errors ----------------------------------------------------------------------- */

static int shown_rank;
static bool muted;

void cli_mute(bool on)
{
    muted = on;
}

void cli_set_rank(int rank)
{
    static char line[8 * SONDE_DIAG_LINE];

    shown_rank = rank;
    /* Lines of several processes on one stream stay whole. */
    (void)setvbuf(stderr, line, _IOLBF, sizeof line);
}

void cli_put_rank(FILE *stream)
{
    if (shown_rank > 0) {
        (void)fprintf(stream, "rank %d: ", shown_rank);
    }
}

/* The folder that cli_make_folder made last, and the length of the first part of its path
 * that was missing; 0: none was. */
static char made[4096];
static size_t made_from;

/* Removes the folders that this command made, up to one that holds anything. */
static void remove_made(void)
{
    while (made_from > 0 && strlen(made) >= made_from && rmdir(made) == 0) {
        char *slash = strrchr(made, '/');

        if (slash == NULL) {
            break;
        }
        *slash = '\0';
    }
    made_from = 0;
}

int cli_fail(const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    remove_made();
    if (diag->err == SONDE_EINTERRUPTED) {
        return CLI_INTERRUPTED;
    }
    return cli_fail_text("%s", sonde_diag_line(diag, line, sizeof line));
}

/* One line, written at once: those of ranks share a terminal. A newline in a name is
 * escaped as other controls are below. */
static void put_line(const char *kind, const char *fmt, va_list args)
    __attribute__((format(printf, 2, 0)));
static void put_line(const char *kind, const char *fmt, va_list args)
{
    char text[2 * SONDE_DIAG_LINE], line[sizeof text + 256], rank[32] = "";

    (void)vsnprintf(text, sizeof text, fmt, args);
    if (shown_rank > 0) {
        (void)snprintf(rank, sizeof rank, "rank %d: ", shown_rank);
    }
    size_t used = (size_t)snprintf(line, sizeof line, "sonde: %s%s", rank, kind);
    for (const char *piece = text; *piece != '\0' && used + 6 < sizeof line; piece++) {
        if (*piece == '\n') {
            used += (size_t)snprintf(line + used, sizeof line - used, "\\x0a");
        } else {
            line[used++] = *piece;
        }
    }
    line[used++] = '\n';
    if (!muted) {
        (void)fwrite(line, 1, used, stderr);
    }
}

const char *cli_one_line(const char *text, char *buf, size_t size)
{
    size_t used = 0;

    for (; *text != '\0' && used + 5 < size; text++) {
        if (*text == '\n' || *text == '\t') {
            used += (size_t)snprintf(buf + used, size - used, "\\x%02x", (unsigned)*text);
        } else {
            buf[used++] = *text;
        }
    }
    buf[used] = '\0';
    return buf;
}

int cli_fail_text(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    put_line("error: ", fmt, args);
    va_end(args);
    return CLI_ERROR;
}

void cli_warn(const char *fmt, ...)
{
    va_list args;

    va_start(args, fmt);
    put_line("warning: ", fmt, args);
    va_end(args);
}

/* --- the log ---------------------------------------------------------------------- */

static atomic_bool finding_printed; /* the log omits its line about it */

/* As the command itself speaks, over a progress bar, which is drawn anew. */
static void on_log(void *user, sonde_log_level level, const char *room,
                   const char *message)
{
    char rank[32] = "";

    (void)user;
    if (shown_rank > 0) {
        (void)snprintf(rank, sizeof rank, "rank %d: ", shown_rank);
    }
    if (atomic_load(&finding_printed) && strcmp(room, "rules") == 0) {
        return;
    }
    (void)fprintf(stderr, "%ssonde: %s%s%s\n", isatty(STDERR_FILENO) ? "\r\033[K" : "",
                  rank,
                  level >= SONDE_LOG_ERROR     ? "error: "
                  : level == SONDE_LOG_WARNING ? "warning: "
                                               : "",
                  message);
}

void cli_log_open(void)
{
    const char *text = getenv("SONDE_LOG_LEVEL");
    sonde_log_level level = SONDE_LOG_INFO;
    sonde_diag diag = {0};

    if (text == NULL) {
        sonde_log_set_sink(on_log, NULL);
    } else {
        sonde_log_to_stream(stderr);
        if (sonde_log_level_parse(text, &level, &diag) != SONDE_OK) {
            cli_warn("SONDE_LOG_LEVEL: %s (expected %s)", diag.found, diag.expected);
        }
    }
    sonde_log_set_level(text != NULL ? level : SONDE_LOG_WARNING);
}

void cli_log_omit_finding(bool on)
{
    atomic_store(&finding_printed, on);
}

/* --- numbers ---------------------------------------------------------------------- */

const char *cli_commas(uint64_t number, char buf[32])
{
    char digits[24];
    const int length = snprintf(digits, sizeof digits, "%" PRIu64, number);
    size_t used = 0;

    for (int i = 0; i < length; i++) {
        if (i > 0 && (length - i) % 3 == 0) {
            buf[used++] = ',';
        }
        buf[used++] = digits[i];
    }
    buf[used] = '\0';
    return buf;
}

const char *cli_bytes_text(double bytes, char *buf, size_t size)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB"};
    size_t unit = 0;

    while (bytes >= 1000.0 && unit + 1 < CLI_COUNT_OF(units)) {
        bytes /= 1000.0;
        unit++;
    }
    (void)snprintf(buf, size, unit == 0 ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
    return buf;
}

const char *cli_seconds_text(double seconds, char *buf, size_t size)
{
    const long whole = isfinite(seconds) && seconds < 1e9 ? (long)(seconds + 0.5) : 0;

    if (!isfinite(seconds) || seconds >= 1e9) {
        (void)snprintf(buf, size, "?");
    } else if (seconds < 60.0) {
        (void)snprintf(buf, size, "%.1f s", seconds);
    } else if (seconds < 3600.0) {
        (void)snprintf(buf, size, "%ld:%02ld", whole / 60, whole % 60);
    } else {
        (void)snprintf(buf, size, "%ld:%02ld:%02ld", whole / 3600, whole / 60 % 60,
                       whole % 60);
    }
    return buf;
}

double cli_now(void)
{
    struct timespec now;

    (void)clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* --- folders ---------------------------------------------------------------------- */

static sonde_err fail_path(sonde_diag *diag, const char *path, const char *found)
{
    return sonde_diag_set(diag, SONDE_EIO, path, NULL, "%s: %s", found, strerror(errno));
}

sonde_err cli_join(const char *folder, const char *name, char *buf, size_t size,
                   sonde_diag *diag)
{
    const int length = snprintf(buf, size, "%s/%s", folder, name);

    if (length < 0 || (size_t)length >= size) {
        errno = ENAMETOOLONG;
        (void)fail_path(diag, folder, "the path is too long");
        return diag->err = SONDE_EINVAL;
    }
    return SONDE_OK;
}

static void note_made(const char *path, bool is_new)
{
    if (is_new) {
        (void)snprintf(made, sizeof made, "%s", path);
        made_from = made_from > 0 ? made_from : strlen(path);
    }
}

sonde_err cli_make_folder(const char *path, sonde_diag *diag)
{
    char part[4096], probe[4096];
    struct stat status;

    if (path[0] == '~' && (path[1] == '/' || path[1] == '\0')) {
        return sonde_diag_set(diag, SONDE_EINVAL, path, "the folder's path, or ./~",
                              "the shell left ~ as it is");
    }
    if (strlen(path) >= sizeof part) {
        errno = ENAMETOOLONG;
        return fail_path(diag, path, "cannot create the folder");
    }
    memcpy(part, path, strlen(path) + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        note_made(part, mkdir(part, 0777) == 0); /* the last one tells of failures */
        *slash = '/';
    }
    if (mkdir(path, 0777) == 0) {
        note_made(part, true);
    } else if (errno != EEXIST) {
        return fail_path(diag, path, "cannot create the folder");
    }
    if (stat(path, &status) != 0 || !S_ISDIR(status.st_mode)) {
        errno = ENOTDIR;
        return fail_path(diag, path, "cannot create the folder");
    }
    if (cli_join(path, ".sonde-probe", probe, sizeof probe, diag) != SONDE_OK) {
        return diag->err;
    }
    FILE *file = fopen(probe, "w");
    if (file == NULL) {
        return fail_path(diag, path, "cannot write into the folder");
    }
    (void)fclose(file);
    (void)unlink(probe);
    return SONDE_OK;
}

/* --- progress --------------------------------------------------------------------- */

void cli_progress_begin(cli_progress *progress, const char *title, const char *unit,
                        int64_t total, bool quiet)
{
    *progress = (cli_progress){.title = title,
                               .unit = unit,
                               .total = total,
                               .started = cli_now(),
                               .terminal = isatty(STDERR_FILENO) != 0,
                               .quiet = quiet};
}

static void draw_bar(double share)
{
    enum { WIDTH = 24 };
    static const char *const eighths[] = {" ", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const int cells = (int)(share * WIDTH * 8.0);

    for (int i = 0; i < WIDTH; i++) {
        const int fill = cells - 8 * i;

        (void)fputs(fill >= 8 ? "█" : eighths[fill > 0 ? fill : 0], stderr);
    }
}

void cli_compile_progress(void *user, int done, int total)
{
    (void)user;
    if (isatty(STDERR_FILENO) == 0) {
        return;
    }
    (void)fprintf(stderr, "\r\033[KGraph compilation: %3d%%|", 100 * done / total);
    draw_bar((double)done / (double)total);
    (void)fprintf(stderr, "| %d/100 [00:00<00:00]%s", 100 * done / total,
                  done == total ? "\n" : "");
    (void)fflush(stderr);
}

static void draw(cli_progress *progress, double now, const char *note)
{
    const double share =
        progress->total > 0 ? (double)progress->done / (double)progress->total : 0.0;
    const double elapsed = now - progress->started;
    const double rate = elapsed > 0.0 ? (double)progress->done / elapsed : 0.0;
    char gone[32], left[32];

    (void)fprintf(stderr, "\r\033[K%s: %3.0f%%|", progress->title, 100.0 * share);
    draw_bar(share);
    (void)fprintf(
        stderr, "| %lld/%lld [%s<%s, %.0f %s/s]%s%s", (long long)progress->done,
        (long long)progress->total, cli_seconds_text(elapsed, gone, sizeof gone),
        cli_seconds_text(rate > 0.0 ? (double)(progress->total - progress->done) / rate
                                    : (double)INFINITY,
                         left, sizeof left),
        rate, progress->unit, note != NULL ? " " : "", note != NULL ? note : "");
    (void)fflush(stderr);
}

void cli_progress_update(cli_progress *progress, int64_t done, const char *note)
{
    progress->done = done;
    if (progress->quiet || !progress->terminal) {
        return;
    }
    const double now = cli_now();
    if (now - progress->drawn >= 0.1) {
        progress->drawn = now;
        draw(progress, now, note);
    }
}

void cli_progress_end(cli_progress *progress)
{
    if (progress->terminal && !progress->quiet) {
        (void)fputs("\r\033[K", stderr);
        (void)fflush(stderr);
    }
}

/* --- Ctrl-C ----------------------------------------------------------------------- */

static volatile sig_atomic_t interrupts; /* the one thing a handler may write */

static void on_interrupt(int number)
{
    (void)number;
    if (interrupts++ > 0) {
        _exit(CLI_INTERRUPTED);
    }
}

void cli_catch_interrupt(void)
{
    struct sigaction action = {.sa_handler = on_interrupt}, old;

    (void)sigemptyset(&action.sa_mask);
    (void)sigaction(SIGINT, &action, NULL);
    (void)sigaction(SIGTERM, &action, NULL);
    /* nohup ignores it */
    if (sigaction(SIGHUP, NULL, &old) == 0 && old.sa_handler != SIG_IGN) {
        (void)sigaction(SIGHUP, &action, NULL);
    }
}

bool cli_interrupted(void)
{
    return interrupts > 0;
}

/* --- the border to the terminal ----------------------------------------------------- */

/*
 * Control characters in names, paths and messages never reach the terminal raw: stdout and
 * stderr are replaced by streams whose bytes pass through escape(): a control character
 * other than newline and tab, and U+0080 to U+009F, is written as \x1b. The one sequence
 * of the commands' own, which draws progress bars anew, passes on stderr.
 *
 * A standard stream that the caller closed stays useless, but its number is taken:
 * otherwise the next file that opens gets the number, and messages are written into it.
 */
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
