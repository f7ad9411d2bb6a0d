/*
 * json_read.c - see json_read.h. jansson's allocator is wrapped by one that notes failures
 * of this thread; blocks are still those of the allocator before.
 */
#include "base/json_read.h"

#include <pthread.h>

static json_malloc_t allocate;
static _Thread_local bool failed;

static void *allocate_noting(size_t size)
{
    void *const block = allocate(size);

    failed = failed || block == NULL;
    return block;
}

static void wrap(void)
{
    json_free_t release = NULL;

    json_get_alloc_funcs(&allocate, &release);
    json_set_alloc_funcs(allocate_noting, release);
}

json_t *sonde__json_read(const char *text, size_t length, size_t flags,
                         json_error_t *error, bool *no_memory)
{
    static pthread_once_t wrapped = PTHREAD_ONCE_INIT;
    json_t *object = NULL;

    (void)pthread_once(&wrapped, wrap);
    failed = false;
    object = json_loadb(text, length, flags, error);
    *no_memory = failed;
    if (failed) {
        json_decref(object);
        return NULL;
    }
    return object;
}
