/*
 * failing_malloc.c - a library for LD_PRELOAD: the request for memory number FAILING_MALLOC
 * (from 0) of a process fails; with none set all succeed. At exit it writes how many there
 * were to the file FAILING_MALLOC_COUNT. Children are left alone.
 */
#include <errno.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t count, size_t size);
void *__libc_realloc(void *ptr, size_t size);
void *__libc_memalign(size_t align, size_t size);

static atomic_long requests;
static long failing = -1;
static const char *count_path;
static atomic_bool started;

__attribute__((constructor)) static void start(void)
{
    const char *const text = getenv("FAILING_MALLOC");

    failing = text != NULL ? strtol(text, NULL, 10) : -1;
    count_path = getenv("FAILING_MALLOC_COUNT");
    (void)unsetenv("LD_PRELOAD");
    atomic_store(&requests, 0);
    atomic_store(&started, 1);
}

__attribute__((destructor)) static void end(void)
{
    const long count = atomic_load(&requests);
    FILE *stream = NULL;

    atomic_store(&started, 0);
    stream = count_path != NULL ? fopen(count_path, "we") : NULL;
    if (stream != NULL) {
        (void)fprintf(stream, "%ld\n", count);
        (void)fclose(stream);
    }
}

static int fails(void)
{
    if (!atomic_load(&started) || atomic_fetch_add(&requests, 1) != failing) {
        return 0;
    }
    errno = ENOMEM;
    return 1;
}

void *malloc(size_t size)
{
    return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t count, size_t size)
{
    return fails() ? NULL : __libc_calloc(count, size);
}

void *realloc(void *ptr, size_t size)
{
    return fails() ? NULL : __libc_realloc(ptr, size);
}

void *aligned_alloc(size_t align, size_t size)
{
    return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **out, size_t align, size_t size)
{
    void *const ptr = fails() ? NULL : __libc_memalign(align, size);

    if (ptr == NULL) {
        return ENOMEM;
    }
    *out = ptr;
    return 0;
}
