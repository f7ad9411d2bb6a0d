/*
 * recorded.c - see recorded.h.
 */
#include "recorded.h"

#include "record/recorder_state.h"
#include "record/record_sink.h"

#include <sonde/error.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

double bench_clock(clockid_t clock)
{
    struct timespec now;

    (void)clock_gettime(clock, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void must(bool done, const char *what)
{
    if (!done) {
        (void)fprintf(stderr, "error: %s: %s\n", what, strerror(errno));
        exit(2);
    }
}

/* --- the folder --------------------------------------------------------------------- */

static int drop(const char *path, const struct stat *status, int kind, struct FTW *at)
{
    (void)status;
    (void)kind;
    (void)at;
    return remove(path);
}

void bench_remove(const char *path)
{
    (void)nftw(path, drop, 16, FTW_DEPTH | FTW_PHYS);
}

/* In the child: reads until the last writer of the pipe, the benchmark, is gone. It
 * leaves its group, so that Ctrl-C does not end it, and its parent's streams, so that
 * readers of them do not wait for it. */
static _Noreturn void wait_and_remove(int end, const char *path)
{
    const int nothing = open("/dev/null", O_RDWR);
    ssize_t got = 0;
    char byte = 0;

    (void)setsid();
    (void)signal(SIGTERM, SIG_IGN);
    for (int stream = 0; stream <= 2; stream++) {
        (void)dup2(nothing, stream);
    }
    do {
        got = read(end, &byte, 1);
    } while (got > 0 || (got < 0 && errno == EINTR));
    bench_remove(path);
    _exit(0);
}

void bench_folder_make(const char *dir, double bytes, char *path, size_t size)
{
    struct statvfs room;
    int ends[2];
    pid_t child = 0;
    const int length = snprintf(path, size, "%s/sonde-bench-%ld", dir, (long)getpid());

    errno = ENAMETOOLONG;
    must(length > 0 && (size_t)length < size, dir);
    must(statvfs(dir, &room) == 0, dir);
    if ((double)room.f_bavail * (double)room.f_frsize < bytes) {
        (void)fprintf(stderr,
                      "error: %s: %.1f GB are free, and this benchmark writes up to %.1f "
                      "GB: use --dir\n",
                      dir, (double)room.f_bavail * (double)room.f_frsize * 1e-9,
                      bytes * 1e-9);
        exit(2);
    }
    bench_remove(path); /* of an earlier process with the same id */
    must(mkdir(path, 0700) == 0, path);
    must(pipe2(ends, O_CLOEXEC) == 0, "pipe");
    child = fork();
    must(child >= 0, "fork");
    if (child == 0) {
        (void)close(ends[1]);
        wait_and_remove(ends[0], path);
    }
    (void)close(ends[0]); /* ends[1] is open until this process ends */
}

/* --- networks that record ----------------------------------------------------------- */

static sonde_err create(const bench_records *records, const sonde_catalogue *catalogue,
                        sonde_recorder **out, sonde_diag *diag)
{
    static sonde__record_backend_ops heap; /* has no place for the file of a ring */
    const sonde_recorder_options options = {.size = sizeof options,
                                            .path = records->run,
                                            .ring_bytes = BENCH_RING,
                                            .when_full = SONDE_WHEN_FULL_WAIT};
    sonde__record_backend *backend = NULL;
    const sonde_err err = sonde__record_backend_local(options.path, &backend, diag);

    if (err != SONDE_OK) {
        return err;
    }
    if (records->heap) {
        heap = *backend->ops;
        heap.place = NULL;
        backend->ops = &heap;
    }
    return sonde__recorder_create_on(&options, catalogue, backend, out, diag);
}

static sonde_err attach(void *user, const sonde_catalogue *catalogue,
                        sonde_observer *observer, sonde_diag *diag)
{
    bench_records *records = user;
    sonde_selector *selector = NULL;
    sonde_tap tap = {.how = records->how};
    sonde_err err = create(records, catalogue, &records->recorder, diag);

    if (err != SONDE_OK) {
        return err;
    }
    err = sonde_selector_create(records->selector, &selector, diag);
    if (err != SONDE_OK) {
        return err;
    }
    tap.what = selector;
    tap.where = sonde__recorder_sink(records->recorder);
    tap.when[SONDE_MODE_TRAIN] = sonde_schedule_every(records->interval);
    err = sonde_observer_add(observer, &tap, NULL, diag);
    sonde_selector_destroy(selector);
    return err;
}

void bench_network_record(bench_network *out, const char *job, bench_records *records)
{
    bench_network_attach(out, job, 1, attach, records);
}

void bench_records_thin(const char *run)
{
    static const char closed[] = ".safetensors";
    char folder[600], path[900];
    DIR *dir = NULL;

    (void)snprintf(folder, sizeof folder, "%s/w0000", run);
    dir = opendir(folder);
    for (const struct dirent *entry = dir != NULL ? readdir(dir) : NULL; entry != NULL;
         entry = readdir(dir)) {
        const size_t n = strlen(entry->d_name);

        if (n > sizeof closed &&
            strcmp(entry->d_name + n + 1 - sizeof closed, closed) == 0) {
            (void)snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
            (void)unlink(path);
        }
    }
    if (dir != NULL) {
        (void)closedir(dir);
    }
}

void bench_records_close(bench_records *records)
{
    sonde_diag diag = {0};

    bench_check(sonde__recorder_close(records->recorder, SONDE_RUN_FINISHED, NULL, &diag),
                &diag);
    records->recorder = NULL;
}
