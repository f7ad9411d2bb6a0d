/*
 * plan_cache.c - plans in a folder, by their keys.
 */
#include "nn/run/plan_object.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"

#include <sonde/log.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { PATH = 4096, NAME_LENGTH = 37 /* 32 digits and ".plan" */ };

static const int64_t most_bytes = 64 << 20;

/* --- the folder --------------------------------------------------------------------- */

/* "default": plans in the user's cache; NULL: it has none, or one of too long a path. */
static const char *find_folder(const char *asked, char *path, size_t size)
{
    const char *xdg = getenv("XDG_CACHE_HOME"), *home = getenv("HOME");
    int length = 0;

    if (strcmp(asked, "default") != 0) {
        return asked;
    }
    if (xdg != NULL && xdg[0] == '/') {
        length = snprintf(path, size, "%s/sonde/plans", xdg);
    } else if (home != NULL && home[0] == '/') {
        length = snprintf(path, size, "%s/.cache/sonde/plans", home);
    } else {
        return NULL;
    }
    return length > 0 && (size_t)length < size ? path : NULL;
}

/* The folder and those above it. */
static bool make_folder(const char *path)
{
    char part[PATH];
    const size_t length = strlen(path);

    if (length + 1 > sizeof part) {
        errno = ENAMETOOLONG;
        return false;
    }
    memcpy(part, path, length + 1);
    for (char *slash = strchr(part + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        if (mkdir(part, 0777) != 0 && errno != EEXIST) {
            return false;
        }
        *slash = '/';
    }
    return mkdir(part, 0777) == 0 || errno == EEXIST;
}

/* False, with errno: the path is too long. */
static bool entry_path(const sonde__session_plan_search *search,
                       const sonde__plan_key *key, char *path, size_t size)
{
    const int length =
        snprintf(path, size, "%s/%016llx%016llx.plan", search->folder,
                 (unsigned long long)key->high, (unsigned long long)key->low);

    if (length > 0 && (size_t)length < size) {
        return true;
    }
    errno = ENAMETOOLONG;
    return false;
}

/* --- finding ------------------------------------------------------------------------ */

static sonde_err read_entry(const char *path, sonde__plan_places **out, sonde_diag *diag)
{
    sonde__session_plan_container container;
    unsigned char *bytes = NULL;
    size_t size = 0;
    SONDE__TRY(sonde__session_plan_file_read(path, &bytes, &size, diag));
    sonde_err err =
        sonde__session_plan_container_read(bytes, size, path, &container, diag);
    if (err == SONDE_OK) {
        err = sonde__session_plan_places_unpack(container.section[SONDE__PLAN_PLACES],
                                                path, out, diag);
    }
    sonde__free(bytes);
    return err;
}

static bool same_key(const sonde__plan_key *a, const sonde__plan_key *b)
{
    return a->low == b->low && a->high == b->high;
}

static const sonde__plan_places *find_cached(sonde__session_plan_search *search,
                                             const sonde__plan_key *key)
{
    char path[PATH], line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (!entry_path(search, key, path, sizeof path) || access(path, F_OK) != 0) {
        return NULL;
    }
    err = read_entry(path, &search->read, &diag);
    if (err == SONDE_OK && !same_key(&search->read->key, key)) {
        err = sonde__fail(&diag, SONDE_EFORMAT, path, NULL,
                          "a plan of other options or of another graph");
        sonde__session_plan_places_destroy(search->read);
        search->read = NULL;
    }
    if (err != SONDE_OK) {
        sonde_log(SONDE_LOG_WARNING, "compile", "%s; it is compiled again and replaced",
                  sonde_diag_line(&diag, line, sizeof line));
        return NULL;
    }
    (void)utimensat(AT_FDCWD, path, NULL, 0); /* used: those that are not go first */
    return search->read;
}

static const sonde__plan_places *find(void *user, const sonde__plan_key *key)
{
    sonde__session_plan_search *search = user;
    const sonde_nn_plan *plan = search->session->options.plan;
    const sonde__plan_places *saved = plan != NULL ? plan->places : NULL;

    if (saved != NULL && same_key(&saved->key, key)) {
        return saved;
    }
    return search->folder != NULL ? find_cached(search, key) : NULL;
}

sonde_err sonde__session_plan_search_begin(sonde__session_plan_search *search,
                                           const sonde_nn_session *session,
                                           sonde_diag *diag)
{
    const char *asked = session->options.plan_cache;
    const bool cached = asked != NULL && asked[0] != '\0';
    char path[PATH];
    const char *folder = cached ? find_folder(asked, path, sizeof path) : NULL;

    *search = (sonde__session_plan_search){.session = session};
    if (folder == NULL && session->options.plan == NULL) {
        return SONDE_OK;
    }
    sonde__session_plan_pack_context(&search->context, session);
    search->folder = folder != NULL ? sonde__strdup(folder) : NULL;
    if (search->context.failed || (folder != NULL && search->folder == NULL)) {
        return sonde__fail_nomem(diag, "the cache of plans");
    }
    search->lookup = (sonde__plan_lookup){.context = search->context.bytes,
                                          .context_size = search->context.size,
                                          .find = find,
                                          .user = search};
    return SONDE_OK;
}

/* --- keeping ------------------------------------------------------------------------ */

static bool write_file(const char *path, const void *bytes, size_t size)
{
    const int file = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    const unsigned char *next = bytes;
    bool well = file >= 0;

    while (well && size > 0) {
        const ssize_t n = write(file, next, size);

        well = n > 0 || (n < 0 && errno == EINTR);
        next += n > 0 ? n : 0;
        size -= n > 0 ? (size_t)n : 0;
    }
    return file >= 0 && close(file) == 0 && well;
}

/* By a rename, so that other processes see no half of it. It is not synced: a file that a
 * crash damages is replaced. */
static bool put_entry(const char *path, const void *bytes, size_t size)
{
    static atomic_uint number;
    char temporary[PATH + 64];

    (void)snprintf(temporary, sizeof temporary, "%s.%ld-%u", path, (long)getpid(),
                   atomic_fetch_add_explicit(&number, 1, memory_order_relaxed));
    const bool well = write_file(temporary, bytes, size) && rename(temporary, path) == 0;
    if (!well) {
        const int error = errno;

        (void)unlink(temporary);
        errno = error;
    }
    return well;
}

typedef struct entry {
    char name[NAME_LENGTH + 1];
    int64_t bytes;
    struct timespec used;
} entry;

static int compare_used(const void *a, const void *b)
{
    const entry *x = a, *y = b;

    if (x->used.tv_sec != y->used.tv_sec) {
        return x->used.tv_sec < y->used.tv_sec ? -1 : 1;
    }
    return x->used.tv_nsec < y->used.tv_nsec ? -1 : x->used.tv_nsec > y->used.tv_nsec;
}

static bool is_entry(const char *name)
{
    return strlen(name) == NAME_LENGTH && strspn(name, "0123456789abcdef") == 32 &&
           strcmp(name + 32, ".plan") == 0;
}

/* The files of plans; their bytes together in *total. NULL: memory is out, or there are
 * none. */
static entry *list_entries(DIR *folder, size_t *count, int64_t *total)
{
    entry *entries = NULL;
    size_t capacity = 0;
    const struct dirent *file = NULL;

    *count = 0;
    *total = 0;
    while ((file = readdir(folder)) != NULL) {
        struct stat status;

        if (!is_entry(file->d_name) ||
            fstatat(dirfd(folder), file->d_name, &status, AT_SYMLINK_NOFOLLOW) != 0 ||
            !S_ISREG(status.st_mode) ||
            !sonde__reserve(&entries, &capacity, *count + 1, sizeof *entries)) {
            continue;
        }
        memcpy(entries[*count].name, file->d_name, NAME_LENGTH + 1);
        entries[*count].bytes = status.st_size;
        entries[*count].used = status.st_mtim;
        *total += status.st_size;
        (*count)++;
    }
    return entries;
}

/* Removes what was not used for longest until `most` bytes are left. */
static void bound_folder(const char *path, int64_t most)
{
    DIR *folder = opendir(path);
    size_t count = 0;
    int64_t total = 0;

    if (folder == NULL) {
        return;
    }
    entry *entries = list_entries(folder, &count, &total);
    if (entries != NULL && total > most) {
        qsort(entries, count, sizeof *entries, compare_used);
        for (size_t i = 0; i < count && total > most; i++) {
            if (unlinkat(dirfd(folder), entries[i].name, 0) == 0) {
                total -= entries[i].bytes;
            }
        }
    }
    sonde__free(entries);
    (void)closedir(folder);
}

static void keep(const sonde__session_plan_search *search)
{
    sonde__packer out = {0};
    char path[PATH];

    sonde__session_plan_container_begin(&out);
    const size_t begun = sonde__session_plan_section_begin(&out, SONDE__PLAN_PLACES);
    sonde__session_plan_places_pack(&out, &search->session->plan);
    sonde__session_plan_section_end(&out, begun);
    sonde__session_plan_container_end(&out);
    if (out.failed || !make_folder(search->folder) ||
        !entry_path(search, &search->session->plan.key, path, sizeof path) ||
        !put_entry(path, out.bytes, out.size)) {
        sonde_log(SONDE_LOG_WARNING, "compile", "%s: the plan cannot be kept: %s",
                  search->folder, out.failed ? "out of memory" : strerror(errno));
    } else {
        bound_folder(search->folder, most_bytes);
    }
    sonde__free(out.bytes);
}

void sonde__session_plan_search_end(sonde__session_plan_search *search)
{
    if (search->folder != NULL && search->session->compiled &&
        !search->session->plan.known) {
        keep(search);
    }
    sonde__session_plan_places_destroy(search->read);
    sonde__free(search->context.bytes);
    sonde__free(search->folder);
}
