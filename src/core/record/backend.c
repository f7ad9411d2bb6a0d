/*
 * backend.c - what all stores share: repeated attempts, and files that a failed attempt
 * left.
 */
#include "record/backend.h"

#include <errno.h>
#include <time.h>

enum { MOST_ATTEMPTS = 9 }; /* waits of 1, 2, 4 ... 128 ms in between */

static bool is_transient(int failed)
{
    return failed == EIO || failed == EAGAIN || failed == EINTR || failed == ETIMEDOUT ||
           failed == ESTALE;
}

bool sonde__record_try_again(int *attempts, int failed)
{
    struct timespec wait = {0};

    if (!is_transient(failed) || ++*attempts >= MOST_ATTEMPTS) {
        return false;
    }
    wait.tv_nsec = 1000000L << (*attempts - 1);
    (void)nanosleep(&wait, NULL);
    return true;
}

int sonde__record_trim(sonde__record_file *file, uint64_t end, bool *longer)
{
    const int failed = file->ops->truncate(file, end);

    file->end = end;
    *longer = failed != 0;
    return failed;
}

int sonde__record_claim(sonde__record_backend *backend, const char *name,
                        sonde__record_file **out)
{
    sonde__record_file *file = NULL;
    int failed = backend->ops->create(backend, name, &file);

    if (failed != EEXIST) {
        *out = failed == 0 ? file : NULL;
        return failed;
    }
    failed = backend->ops->open(backend, name, &file);
    if (failed != 0) {
        return failed;
    }
    failed = backend->ops->truncate(file, 0);
    if (failed != 0) {
        backend->ops->close(file);
        return failed;
    }
    *out = file;
    return 0;
}
