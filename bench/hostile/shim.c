/*
 * shim.c - a disk that fails: preloaded, it lets one system call on files of a run fail.
 * Environment: HOSTILE_RUN is a part of the run's path, HOSTILE_FAIL the number of the call
 * (from 1; 0: none), HOSTILE_ERRNO the error (EIO if unset), HOSTILE_COUNT a file for the
 * number of calls seen, or unset. With HOSTILE_EVER all calls after it fail too.
 *
 * Calls are open for writing, mkdir, write, pwrite, pwritev, fsync, fdatasync, ftruncate,
 * fallocate, rename, link and unlink; with HOSTILE_READS also open for reading, read, pread,
 * mmap and opendir.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static atomic_long calls;

static void *real(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

/* True if this call, of a file of the run, is the one. */
static bool strikes(const char *path)
{
    const char *const run = getenv("HOSTILE_RUN"), *const at = getenv("HOSTILE_FAIL");
    const char *const error = getenv("HOSTILE_ERRNO");
    long number = 0;

    if (run == NULL || at == NULL || path == NULL || strstr(path, run) == NULL) {
        return false;
    }
    number = atomic_fetch_add(&calls, 1) + 1;
    if (number == atol(at) ||
        (atol(at) > 0 && number > atol(at) && getenv("HOSTILE_EVER") != NULL)) {
        errno = error != NULL ? atoi(error) : EIO;
        return true;
    }
    return false;
}

static bool strikes_fd(int fd)
{
    char link[64], path[4096];
    ssize_t n = 0;

    (void)snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    n = readlink(link, path, sizeof path - 1);
    path[n > 0 ? n : 0] = '\0';
    return strikes(path);
}

static bool reads(void)
{
    return getenv("HOSTILE_READS") != NULL;
}

__attribute__((destructor)) static void tell(void)
{
    const char *const to = getenv("HOSTILE_COUNT");
    FILE *const file = to != NULL ? fopen(to, "w") : NULL;

    if (file != NULL) {
        (void)fprintf(file, "%ld\n", atomic_load(&calls));
        (void)fclose(file);
    }
}

#define REAL(type, name, ...)                                                            \
    type (*next)(__VA_ARGS__) = NULL;                                                    \
    *(void **)&next = real(name)

int open(const char *path, int flags, ...)
{
    va_list rest;
    mode_t mode = 0;
    REAL(int, "open", const char *, int, ...);

    va_start(rest, flags);
    mode = (flags & O_CREAT) != 0 ? va_arg(rest, mode_t) : 0;
    va_end(rest);
    return ((flags & O_ACCMODE) != O_RDONLY || reads()) && strikes(path)
               ? -1
               : next(path, flags, mode);
}

DIR *opendir(const char *path)
{
    REAL(DIR *, "opendir", const char *);
    return reads() && strikes(path) ? NULL : next(path);
}

ssize_t read(int fd, void *bytes, size_t n)
{
    REAL(ssize_t, "read", int, void *, size_t);
    return reads() && strikes_fd(fd) ? -1 : next(fd, bytes, n);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    REAL(ssize_t, "pread", int, void *, size_t, off_t);
    return reads() && strikes_fd(fd) ? -1 : next(fd, bytes, n, at);
}

void *mmap(void *place, size_t n, int protection, int flags, int fd, off_t at)
{
    REAL(void *, "mmap", void *, size_t, int, int, int, off_t);
    return fd >= 0 && reads() && strikes_fd(fd)
               ? MAP_FAILED
               : next(place, n, protection, flags, fd, at);
}

int mkdir(const char *path, mode_t mode)
{
    REAL(int, "mkdir", const char *, mode_t);
    return strikes(path) ? -1 : next(path, mode);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    REAL(ssize_t, "write", int, const void *, size_t);
    return strikes_fd(fd) ? -1 : next(fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    REAL(ssize_t, "pwrite", int, const void *, size_t, off_t);
    return strikes_fd(fd) ? -1 : next(fd, bytes, n, at);
}

ssize_t pwritev(int fd, const struct iovec *pieces, int n, off_t at)
{
    REAL(ssize_t, "pwritev", int, const struct iovec *, int, off_t);
    return strikes_fd(fd) ? -1 : next(fd, pieces, n, at);
}

int fsync(int fd)
{
    REAL(int, "fsync", int);
    return strikes_fd(fd) ? -1 : next(fd);
}

int fdatasync(int fd)
{
    REAL(int, "fdatasync", int);
    return strikes_fd(fd) ? -1 : next(fd);
}

int ftruncate(int fd, off_t size)
{
    REAL(int, "ftruncate", int, off_t);
    return strikes_fd(fd) ? -1 : next(fd, size);
}

int fallocate(int fd, int mode, off_t at, off_t size)
{
    REAL(int, "fallocate", int, int, off_t, off_t);
    return strikes_fd(fd) ? -1 : next(fd, mode, at, size);
}

int rename(const char *from, const char *to)
{
    REAL(int, "rename", const char *, const char *);
    return strikes(from) ? -1 : next(from, to);
}

int link(const char *from, const char *to)
{
    REAL(int, "link", const char *, const char *);
    return strikes(from) ? -1 : next(from, to);
}

int unlink(const char *path)
{
    REAL(int, "unlink", const char *);
    return strikes(path) ? -1 : next(path);
}
