/*
 * store.c - loads the object for the store, and keeps the list of open copies.
 */
#include "storage/store.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/shared_object.h"
#include "base/number.h"

#include <sonde/text.h>

#include <dirent.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#define TABLE "sonde__store_s3"
#define ADDRESS "address" /* in the folder of a spool */

struct sonde__store_copy {
    const sonde__store_ops *ops;
    void *handle;
    char *folder; /* of the run */
    char *url;
    struct sonde__store_copy *next;
};

struct sonde__store_spool {
    const sonde__store_ops *ops;
    void *handle;
    char *folder;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* of copies */
static sonde__store_copy *copies;
static atomic_int copy_count;

bool sonde__store_is_address(const char *path)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyz"
                                  "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789+-.";
    const size_t scheme = path != NULL ? strspn(path, letters) : 0;

    return scheme > 0 && (strncmp(path + scheme, "://", 3) == 0 ||
                          sonde__strncasecmp(path, "s3:", scheme + 1) == 0);
}

/* --- the object --------------------------------------------------------------------- */

static const sonde__store_ops *ops;
static char load_fault[256];
static pthread_once_t loaded = PTHREAD_ONCE_INIT;

static void load(void)
{
    static const char here = 0;

    ops = sonde__object_table(&here, "sonde-s3.so", TABLE, load_fault, sizeof load_fault);
}

/* NULL: SONDE_EUNSUPPORTED in diag. */
static const sonde__store_ops *need_ops(const char *url, sonde_diag *diag)
{
    (void)pthread_once(&loaded, load);
    if (ops == NULL) {
        (void)sonde__fail(diag, SONDE_EUNSUPPORTED, url,
                          "sonde/sonde-s3.so beside libsonde", "S3 is not installed: %s",
                          load_fault);
    }
    return ops;
}

/* --- folders ------------------------------------------------------------------------ */

/* Creates a folder and its parents; path is modified and restored. */
static int make_folders(char *path)
{
    for (char *slash = strchr(path + 1, '/'); slash != NULL;
         slash = strchr(slash + 1, '/')) {
        *slash = '\0';
        (void)mkdir(path, 0700); /* the last call reports a failure */
        *slash = '/';
    }
    return mkdir(path, 0700) == 0 || errno == EEXIST ? 0 : errno;
}

static const char *variable(const char *name)
{
    const char *value = getenv(name);

    return value != NULL && value[0] != '\0' ? value : NULL;
}

/* Where copies and spools are: SONDE_CACHE, XDG_CACHE_HOME/sonde, ~/.cache/sonde. */
static void add_cache(sonde_text *path)
{
    const char *own = variable("SONDE_CACHE");
    const char *cache = variable("XDG_CACHE_HOME"), *home = variable("HOME");

    if (own != NULL) {
        sonde_text_add(path, own);
    } else if (cache != NULL) {
        sonde_text_format(path, "%s/sonde", cache);
    } else if (home != NULL) {
        sonde_text_format(path, "%s/.cache/sonde", home);
    } else {
        sonde_text_format(path, "/tmp/sonde-%u", (unsigned)getuid());
    }
}

/* The folder of all copies, or of all spools. */
static void add_root(sonde_text *path, bool spool)
{
    const char *own = spool ? variable("SONDE_SPOOL") : NULL;

    if (own != NULL) {
        sonde_text_add(path, own);
    } else {
        add_cache(path);
        sonde_text_add(path, spool ? "/s3-spool" : "/s3");
    }
}

/* The endpoint in the environment, or NULL. */
static const char *own_endpoint(void)
{
    const char *endpoint = variable("AWS_ENDPOINT_URL_S3");

    return endpoint != NULL ? endpoint : variable("AWS_ENDPOINT_URL");
}

/* The spool of an address, one for each address and endpoint. made: creates it. */
static sonde_err spool_of(const char *url, bool made, char **out, sonde_diag *diag)
{
    const char *endpoint = own_endpoint();
    sonde_text path = {0};
    size_t length = strlen(url);
    int failed = ENOMEM;

    while (length > 0 && url[length - 1] == '/') {
        length--;
    }
    const XXH64_hash_t hash = XXH3_64bits_withSeed(
        url, length, endpoint != NULL ? XXH3_64bits(endpoint, strlen(endpoint)) : 0);
    add_root(&path, true);
    sonde_text_format(&path, "/%016llx", (unsigned long long)hash);
    if (!path.failed) {
        failed = made ? make_folders(path.data) : 0;
    }
    if (failed != 0) {
        errno = failed;
        const sonde_err err = path.failed
                                  ? sonde__fail_nomem(diag, url)
                                  : sonde__fail_errno(diag, path.data, "cannot be made");
        sonde_text_fini(&path);
        return err;
    }
    *out = path.data; /* freed like any other memory of Sonde */
    return SONDE_OK;
}

/* The same and "/run"; new. NULL: out of memory. */
static char *run_in(const char *folder)
{
    sonde_text run = {0};

    sonde_text_format(&run, "%s/run", folder);
    if (run.failed) {
        sonde_text_fini(&run);
    }
    return run.data;
}

/* --- copies ------------------------------------------------------------------------- */

/* The folder of all copies, made. */
static sonde_err make_root(sonde_text *path, sonde_diag *diag)
{
    add_root(path, false);
    if (path->failed) {
        return sonde__fail_nomem(diag, "copies");
    }
    errno = make_folders(path->data);
    return errno == 0 ? SONDE_OK : sonde__fail_errno(diag, path->data, "cannot be made");
}

static sonde_err set_up_copy(sonde__store_copy *copy, const char *url, sonde_diag *diag)
{
    sonde_text folder = {0};
    sonde_err err = SONDE_OK;

    copy->ops = need_ops(url, diag);
    if (copy->ops == NULL) {
        return SONDE_EUNSUPPORTED;
    }
    copy->url = sonde__strdup(url);
    SONDE__TRY_DONE(make_root(&folder, diag));
    sonde_text_add(&folder, "/XXXXXX");
    if (copy->url == NULL || folder.failed) {
        err = sonde__fail_nomem(diag, url);
        goto done;
    }
    if (mkdtemp(folder.data) == NULL) {
        err = sonde__fail_errno(diag, folder.data, "cannot be made");
        goto done;
    }
    copy->folder = run_in(folder.data);
    err = copy->folder != NULL
              ? copy->ops->copy_open(url, folder.data, &copy->handle, diag)
              : sonde__fail_nomem(diag, url);

done:
    sonde_text_fini(&folder);
    return err;
}

static void free_copy(sonde__store_copy *copy)
{
    if (copy->handle != NULL) {
        copy->ops->copy_close(copy->handle);
    }
    sonde__free(copy->folder);
    sonde__free(copy->url);
    sonde__free(copy);
}

sonde_err sonde__store_copy_open(const char *url, sonde__store_copy **out,
                                 sonde_diag *diag)
{
    sonde__store_copy *copy = sonde__calloc(1, sizeof *copy);
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, url);
    }
    SONDE__TRY_GO(set_up_copy(copy, url, diag));
    (void)pthread_mutex_lock(&lock);
    copy->next = copies;
    copies = copy;
    (void)pthread_mutex_unlock(&lock);
    (void)atomic_fetch_add(&copy_count, 1);
    *out = copy;
    return SONDE_OK;

error:
    free_copy(copy);
    return err;
}

const char *sonde__store_copy_folder(const sonde__store_copy *copy)
{
    return copy->folder;
}

sonde_err sonde__store_copy_refresh(sonde__store_copy *copy, sonde_diag *diag)
{
    return copy->ops->copy_refresh(copy->handle, diag);
}

void sonde__store_copy_close(sonde__store_copy *copy)
{
    if (copy == NULL) {
        return;
    }
    (void)pthread_mutex_lock(&lock);
    for (sonde__store_copy **link = &copies; *link != NULL; link = &(*link)->next) {
        if (*link == copy) {
            *link = copy->next;
            break;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    (void)atomic_fetch_sub(&copy_count, 1);
    free_copy(copy);
}

bool sonde__store_has_copies(void)
{
    return atomic_load_explicit(&copy_count, memory_order_relaxed) > 0;
}

const char *sonde__store_copy_at(const char *url)
{
    const char *folder = NULL;

    (void)pthread_mutex_lock(&lock);
    for (sonde__store_copy *copy = copies; copy != NULL && folder == NULL;
         copy = copy->next) {
        folder = strcmp(copy->url, url) == 0 ? copy->folder : NULL;
    }
    (void)pthread_mutex_unlock(&lock);
    return folder;
}

/* The copy that path is in, and the name in it. */
static sonde__store_copy *find_copy(const char *path, const char **name)
{
    sonde__store_copy *found = NULL;

    (void)pthread_mutex_lock(&lock);
    for (sonde__store_copy *copy = copies; copy != NULL && found == NULL;
         copy = copy->next) {
        const size_t length = strlen(copy->folder);

        if (strncmp(path, copy->folder, length) == 0 && path[length] == '/') {
            found = copy;
            *name = path + length + 1;
        }
    }
    (void)pthread_mutex_unlock(&lock);
    return found;
}

sonde_err sonde__store_fetch(const char *path, uint64_t offset, uint64_t count,
                             sonde_diag *diag)
{
    const char *name = NULL;
    sonde__store_copy *copy = sonde__store_has_copies() ? find_copy(path, &name) : NULL;

    return copy != NULL ? copy->ops->copy_fetch(copy->handle, name, offset, count, diag)
                        : SONDE_OK;
}

sonde_err sonde__store_send(const char *path, sonde_diag *diag)
{
    const char *name = NULL;
    sonde__store_copy *copy = sonde__store_has_copies() ? find_copy(path, &name) : NULL;

    return copy != NULL ? copy->ops->copy_send(copy->handle, name, diag) : SONDE_OK;
}

/* --- single objects ----------------------------------------------------------------- */

sonde_err sonde__store_folders(const char *url, sonde__store_seen *seen, void *user,
                               sonde_diag *diag)
{
    const sonde__store_ops *store = need_ops(url, diag);

    return store != NULL ? store->folders(url, seen, user, diag) : SONDE_EUNSUPPORTED;
}

sonde_err sonde__store_append(const char *url, const char *name, const void *bytes,
                              size_t size, sonde_diag *diag)
{
    const sonde__store_ops *store = need_ops(url, diag);

    return store != NULL ? store->append(url, name, bytes, size, diag)
                         : SONDE_EUNSUPPORTED;
}

sonde_err sonde__store_exists(const char *url, const char *name, bool *exists,
                              sonde_diag *diag)
{
    const sonde__store_ops *store = need_ops(url, diag);

    return store != NULL ? store->exists(url, name, exists, diag) : SONDE_EUNSUPPORTED;
}

/* --- spools ------------------------------------------------------------------------- */

sonde_err sonde__store_spool_folder(const char *url, char **out, sonde_diag *diag)
{
    char *folder = NULL;
    SONDE__TRY(spool_of(url, false, &folder, diag));
    *out = run_in(folder);
    sonde__free(folder);
    return *out != NULL ? SONDE_OK : sonde__fail_nomem(diag, url);
}

/* Two lines: where the spool goes, and the endpoint. A spool without is not listed. */
static void write_address(const char *folder, const char *url)
{
    const char *endpoint = own_endpoint();
    sonde_text path = {0};

    sonde_text_format(&path, "%s/" ADDRESS, folder);
    FILE *stream = path.failed ? NULL : fopen(path.data, "we");
    if (stream != NULL) {
        (void)fprintf(stream, "%s\n%s\n", url, endpoint != NULL ? endpoint : "");
        (void)fclose(stream);
    }
    sonde_text_fini(&path);
}

static bool read_line(FILE *stream, char *line, size_t size)
{
    const bool read = fgets(line, (int)size, stream) != NULL;

    line[read ? strcspn(line, "\n") : 0] = '\0';
    return read;
}

/* Reports the spool in a folder, if there is one. */
static void report_spool(const char *folder, sonde__store_spool_seen *seen, void *user)
{
    char url[2048], endpoint[512];
    sonde_text path = {0};

    sonde_text_format(&path, "%s/" ADDRESS, folder);
    FILE *stream = path.failed ? NULL : fopen(path.data, "re");
    if (stream != NULL) {
        if (read_line(stream, url, sizeof url)) {
            (void)read_line(stream, endpoint, sizeof endpoint);
            seen(user, url, folder, endpoint);
        }
        (void)fclose(stream);
    }
    sonde_text_fini(&path);
}

sonde_err sonde__store_spools(sonde__store_spool_seen *seen, void *user, sonde_diag *diag)
{
    const struct dirent *entry = NULL;
    sonde_text path = {0};
    size_t length = 0;

    add_root(&path, true);
    if (path.failed) {
        sonde_text_fini(&path);
        return sonde__fail_nomem(diag, "spools");
    }
    length = path.length;
    DIR *all = opendir(path.data);
    while (all != NULL && (entry = readdir(all)) != NULL) {
        if (entry->d_name[0] != '.') {
            path.length = length;
            sonde_text_format(&path, "/%s", entry->d_name);
            report_spool(path.data, seen, user);
        }
    }
    if (all != NULL) {
        (void)closedir(all);
    }
    sonde_text_fini(&path);
    return SONDE_OK;
}

static sonde_err set_up_spool(sonde__store_spool *spool, const char *url,
                              const sonde__store_writer *writer, sonde_diag *diag)
{
    char *folder = NULL;

    spool->ops = need_ops(url, diag);
    if (spool->ops == NULL) {
        return SONDE_EUNSUPPORTED;
    }
    SONDE__TRY(spool_of(url, true, &folder, diag));
    spool->folder = run_in(folder);
    sonde_err err = spool->folder != NULL ? spool->ops->spool_open(url, folder, writer,
                                                                   &spool->handle, diag)
                                          : sonde__fail_nomem(diag, url);
    if (err == SONDE_OK) {
        write_address(folder, url);
    }
    sonde__free(folder);
    return err;
}

sonde_err sonde__store_spool_open(const char *url, const sonde__store_writer *writer,
                                  sonde__store_spool **out, sonde_diag *diag)
{
    sonde__store_spool *spool = sonde__calloc(1, sizeof *spool);
    sonde_err err = SONDE_OK;

    if (spool == NULL) {
        return sonde__fail_nomem(diag, url);
    }
    SONDE__TRY_GO(set_up_spool(spool, url, writer, diag));
    *out = spool;
    return SONDE_OK;

error:
    sonde__store_spool_close(spool);
    return err;
}

const char *sonde__store_spool_path(const sonde__store_spool *spool)
{
    return spool->folder;
}

sonde_err sonde__store_spool_start(sonde__store_spool *spool, const char *run,
                                   size_t size, sonde_diag *diag)
{
    return spool->ops->spool_start(spool->handle, run, size, diag);
}

bool sonde__store_spool_has_room(const sonde__store_spool *spool)
{
    return spool->ops->spool_has_room(spool->handle);
}

sonde_err sonde__store_spool_finish(sonde__store_spool *spool, sonde_diag *diag)
{
    return spool->ops->spool_finish(spool->handle, diag);
}

void sonde__store_spool_close(sonde__store_spool *spool)
{
    if (spool == NULL) {
        return;
    }
    if (spool->ops != NULL && spool->handle != NULL) {
        spool->ops->spool_close(spool->handle);
    }
    sonde__free(spool->folder);
    sonde__free(spool);
}
