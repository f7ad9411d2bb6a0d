/*
 * curl.c - loads libcurl; see curl.h.
 */
#include "base/curl.h"
#include "base/fail.h"
#include "base/macros.h"

#include <stdbool.h>
#include <stddef.h>
#include <dlfcn.h>
#include <pthread.h>
#include <string.h>

#include <sonde/error.h>

static sonde__curl curl;
static bool curl_loaded;
static pthread_once_t curl_once = PTHREAD_ONCE_INIT;

static bool find(void *library, const char *name, void *function)
{
    void *symbol = dlsym(library, name);

    /* POSIX: pointers to objects and functions have one size; C forbids the cast */
    memcpy(function, &symbol, sizeof symbol);
    return symbol != NULL;
}

static void load(void)
{
    static const char *const names[] = {"libcurl.so.4", "libcurl-gnutls.so.4"};
    void *library = NULL;

    for (size_t i = 0; library == NULL && i < SONDE_COUNT_OF(names); i++) {
        library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
    }
    curl_loaded = library != NULL &&
                  find(library, "curl_global_init", &curl.global_init) &&
                  find(library, "curl_easy_init", &curl.easy_init) &&
                  find(library, "curl_easy_setopt", &curl.easy_setopt) &&
                  find(library, "curl_easy_reset", &curl.easy_reset) &&
                  find(library, "curl_easy_getinfo", &curl.easy_getinfo) &&
                  find(library, "curl_easy_perform", &curl.easy_perform) &&
                  find(library, "curl_easy_cleanup", &curl.easy_cleanup) &&
                  find(library, "curl_easy_strerror", &curl.easy_strerror) &&
                  find(library, "curl_slist_append", &curl.slist_append) &&
                  find(library, "curl_slist_free_all", &curl.slist_free_all) &&
                  curl.global_init(CURL_GLOBAL_ALL) == CURLE_OK;
}

const sonde__curl *sonde__curl_load(const char *where, sonde_diag *diag)
{
    (void)pthread_once(&curl_once, load);
    if (!curl_loaded) {
        (void)sonde__fail(diag, SONDE_EUNSUPPORTED, where,
                          "libcurl.so.4: install the package libcurl4 (or libcurl4t64)",
                          "libcurl is not installed");
        return NULL;
    }
    return &curl;
}
