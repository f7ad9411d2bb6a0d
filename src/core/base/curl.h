/*
 * curl.h - libcurl, loaded at the first use: no library of Sonde links it. Internal.
 *
 * Types and numbers come from libcurl's own header. The library stays loaded, because
 * unloading one that has started TLS is unsafe.
 */
#ifndef SONDE_BASE_CURL_H
#define SONDE_BASE_CURL_H

#define CURL_DISABLE_DEPRECATION /* older libraries have no other names for some options */
#include <curl/curl.h>

#include <sonde/error.h>

typedef struct sonde__curl {
    __typeof__(curl_global_init) *global_init;
    __typeof__(curl_easy_init) *easy_init;
    __typeof__(curl_easy_setopt) *easy_setopt;
    __typeof__(curl_easy_reset) *easy_reset;
    __typeof__(curl_easy_getinfo) *easy_getinfo;
    __typeof__(curl_easy_perform) *easy_perform;
    __typeof__(curl_easy_cleanup) *easy_cleanup;
    __typeof__(curl_easy_strerror) *easy_strerror;
    __typeof__(curl_slist_append) *slist_append;
    __typeof__(curl_slist_free_all) *slist_free_all;
} sonde__curl;

/* NULL, with SONDE_EUNSUPPORTED in diag, if libcurl is not installed. where names the
 * feature that needs it. Any thread. */
SONDE_API const sonde__curl *sonde__curl_load(const char *where, sonde_diag *diag);

#endif
