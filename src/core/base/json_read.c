/*
 * json_read.c - see json_read.h. jansson's allocator is wrapped by one that notes failures
 * of this thread; blocks are still those of the allocator before.
 *
 * The buffer in which jansson collects a token ignores that it could not grow: letters are
 * lost, and jansson then stops the program or writes outside of its memory. It grows to
 * powers of two, so a request of such a size that fails gets memory that was set aside
 * before; after a failure every other request fails, which ends the reading.
 */
#include "base/json_read.h"
#include "base/memory.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

/* Set aside: for a buffer that doubles to hold the whole text, and small tables. */
enum { SPARE = 8192, SPARE_FOR_BYTE = 4 };
enum { MOST_FILE = 64 * 1024 * 1024 };

static json_malloc_t allocate;
static json_free_t release;
static _Thread_local bool failed;
static _Thread_local char *spare;
static _Thread_local size_t spare_size, spare_used;

static void *allocate_noting(size_t size)
{
    const bool power = size >= 16 && (size & (size - 1)) == 0;
    void *const block = failed && spare != NULL ? NULL : allocate(size);

    failed = failed || block == NULL;
    if (block == NULL && power && spare != NULL && size <= spare_size - spare_used) {
        spare_used += size;
        return spare + spare_used - size;
    }
    return block;
}

static void release_noting(void *block)
{
    if (spare == NULL || (char *)block < spare || (char *)block >= spare + spare_size) {
        release(block);
    }
}

static void wrap(void)
{
    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(allocate_noting, release_noting);
}

json_t *sonde__json_read(const char *text, size_t length, size_t flags,
                         json_error_t *error, bool *no_memory)
{
    static pthread_once_t wrapped = PTHREAD_ONCE_INIT;
    json_t *object = NULL;

    (void)pthread_once(&wrapped, wrap);
    spare_size = SPARE + SPARE_FOR_BYTE * length;
    spare_used = 0;
    spare = sonde__malloc(spare_size);
    failed = spare == NULL;
    if (!failed) {
        object = json_loadb(text, length, flags, error);
    }
    *no_memory = failed;
    if (failed) {
        json_decref(object);
        object = NULL;
    }
    sonde__free(spare);
    spare = NULL;
    return object;
}

/* Up to size bytes; returns how many there are. */
static size_t read_all(int fd, char *text, size_t size)
{
    size_t got = 0;
    ssize_t n = 1;

    while (got < size && n > 0) {
        n = read(fd, text + got, size - got);
        got += n > 0 ? (size_t)n : 0;
    }
    return got;
}

json_t *sonde__json_read_file(const char *path, bool *no_memory)
{
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    struct stat about;
    char *text = NULL;
    json_t *object = NULL;
    size_t size = 0;

    *no_memory = false;
    if (fd < 0) {
        return NULL;
    }
    if (fstat(fd, &about) == 0 && S_ISREG(about.st_mode) && about.st_size <= MOST_FILE) {
        size = (size_t)about.st_size;
        text = sonde__malloc(size + 1);
        *no_memory = text == NULL;
    }
    if (text != NULL) {
        object = sonde__json_read(text, read_all(fd, text, size), 0, NULL, no_memory);
        sonde__free(text);
    }
    (void)close(fd);
    return object;
}
