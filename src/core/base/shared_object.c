/*
 * shared_object.c - loads a shared object from beside a library.
 */
#include "base/shared_object.h"

#include <sonde/text.h>

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

const void *sonde__object_table(const void *inside, const char *name, const char *table,
                                char *fault, size_t size)
{
    Dl_info library;
    sonde_text path = {0};

    if (dladdr(inside, &library) != 0 && library.dli_fname != NULL) {
        const char *slash = strrchr(library.dli_fname, '/');

        sonde_text_put(&path, library.dli_fname,
                       slash != NULL ? (size_t)(slash + 1 - library.dli_fname) : 0);
    }
    sonde_text_format(&path, "sonde/%s", name);
    void *object = path.failed ? NULL : dlopen(path.data, RTLD_NOW | RTLD_LOCAL);
    const void *found = object != NULL ? dlsym(object, table) : NULL;
    if (found == NULL) {
        const char *why = path.failed ? "out of memory" : dlerror();

        (void)snprintf(fault, size, "%s", why != NULL ? why : "it has no table");
    }
    sonde_text_fini(&path);
    return found;
}
