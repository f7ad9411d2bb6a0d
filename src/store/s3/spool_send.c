/*
 * spool_send.c - one look at the spool: which files go to the store now; see spool.h.
 */
#include "store/s3/spool.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/copy.h"
#include "store/s3/objects.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { STEPS = 3, MOST_SMALL = 64 << 20 };
#define MOST_SECONDS 1.0 /* from one look to the next */

const char *sonde__s3_spool_path(const sonde__s3_spool *spool, const char *name,
                                 char *path)
{
    (void)snprintf(path, SONDE__S3_PATH, "%s/run%s%s", spool->folder,
                   name[0] != '\0' ? "/" : "", name);
    return path;
}

void sonde__s3_spool_forget(sonde__s3_spool *spool)
{
    for (size_t i = 0; i < spool->version_count; i++) {
        sonde__free(spool->versions[i].name);
    }
    sonde__free(spool->versions);
    sonde__free(spool->files);
    sonde__free(spool->barriers);
}

/* --- looking ------------------------------------------------------------------------ */

/* Kind and number of a numbered file; false: it is another. */
static bool parse_name(const char *base, sonde__s3_spooled *file)
{
    static const char *const stems[SONDE__S3_SPOOL_KINDS] = {"seg-", "stats-", "sketch-",
                                                             "steps-"};

    for (int kind = 0; kind < SONDE__S3_SPOOL_KINDS; kind++) {
        const size_t n = strlen(stems[kind]);
        char *end = NULL;

        if (strncmp(base, stems[kind], n) == 0) {
            file->number = strtoull(base + n, &end, 10);
            file->kind = kind;
            file->part = strcmp(end, ".part") == 0;
            return true;
        }
    }
    return false;
}

/* Where a file stands in the order; -1: it does not go to the store. */
static int rank_of(const char *name, const sonde__s3_spooled *file)
{
    static const char *const order[] = {"run.json", "generations.jsonl",
                                        "catalogue.jsonl"};
    const char *slash = strrchr(name, '/');
    const char *base = slash != NULL ? slash + 1 : name;
    const char *dot = strrchr(base, '.');

    for (int i = 0; i < (int)SONDE_COUNT_OF(order); i++) {
        if (strcmp(base, order[i]) == 0) {
            return i;
        }
    }
    if (file->kind == STEPS) {
        return 20;
    }
    if (file->kind >= 0) {
        return dot != NULL && strcmp(dot, ".safetensors") == 0 ? 10 : 11;
    }
    if (strcmp(base, "files.jsonl") == 0) { /* after the files that it lists */
        return 30;
    }
    if (strcmp(base, "state.json") == 0) {
        return 40;
    }
    if (strcmp(name, "end.json") == 0) {
        return 50;
    }
    /* before data, for which a slow store may leave no time */
    if (strncmp(name, "findings/", 9) == 0) {
        return 5;
    }
    if (strcmp(name, "findings.json") == 0) { /* after the files that it lists */
        return 6;
    }
    return strncmp(name, "checkpoints/", 12) == 0 && dot != NULL &&
                   strcmp(dot, ".safetensors") == 0
               ? 7
               : -1;
}

static sonde_err add_file(sonde__s3_spool *spool, const char *folder, const char *base,
                          sonde_diag *diag)
{
    sonde__s3_spooled file = {.kind = -1};
    char path[SONDE__S3_PATH];
    struct stat about;

    if ((size_t)snprintf(file.name, sizeof file.name, "%s%s%s", folder,
                         folder[0] != '\0' ? "/" : "", base) >= sizeof file.name) {
        return SONDE_OK;
    }
    (void)parse_name(base, &file);
    file.rank = rank_of(file.name, &file);
    if (file.rank < 0 ||
        stat(sonde__s3_spool_path(spool, file.name, path), &about) != 0 ||
        !S_ISREG(about.st_mode)) {
        return SONDE_OK;
    }
    file.size = (uint64_t)about.st_size;
    file.changed = about.st_mtim;
    if (!sonde__reserve(&spool->files, &spool->capacity, spool->count + 1,
                        sizeof *spool->files)) {
        return sonde__fail_nomem(diag, spool->folder);
    }
    spool->files[spool->count++] = file;
    return SONDE_OK;
}

static sonde_err look_into(sonde__s3_spool *spool, const char *folder, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    const struct dirent *entry = NULL;
    sonde_err err = SONDE_OK;
    DIR *open = opendir(sonde__s3_spool_path(spool, folder, path));

    if (open == NULL) {
        return errno == ENOENT ? SONDE_OK
                               : sonde__fail_errno(diag, path, "cannot be listed");
    }
    while ((entry = readdir(open)) != NULL) {
        if (entry->d_name[0] == '.') {
            continue;
        }
        SONDE__TRY_DONE(add_file(spool, folder, entry->d_name, diag));
    }

done:
    (void)closedir(open);
    return err;
}

static int in_order(const void *left, const void *right)
{
    const sonde__s3_spooled *a = left, *b = right;

    if (a->rank / 10 != b->rank / 10) {
        return a->rank < b->rank ? -1 : 1;
    }
    if (a->kind >= 0 && b->kind >= 0 && a->number != b->number) {
        return a->number < b->number ? -1 : 1;
    }
    if (a->rank != b->rank) {
        return a->rank < b->rank ? -1 : 1;
    }
    return strcmp(a->name, b->name);
}

/* Drops second entries: the worker's folder is read twice. */
static void drop_doubles(sonde__s3_spool *spool)
{
    size_t kept = 0;

    for (size_t i = 0; i < spool->count; i++) {
        if (kept == 0 || strcmp(spool->files[kept - 1].name, spool->files[i].name) != 0) {
            spool->files[kept++] = spool->files[i];
        }
    }
    spool->count = kept;
}

/* Finds the files of the spool. The worker's folder is read twice: a file that is renamed
 * meanwhile may be seen under neither of its names. */
static sonde_err look(sonde__s3_spool *spool, sonde_diag *diag)
{
    const char *const folders[] = {spool->worker, spool->worker, "", "findings",
                                   "checkpoints"};
    const size_t count = spool->writer.rank == 0 ? SONDE_COUNT_OF(folders) : 2;
    uint64_t bytes = 0;

    spool->count = 0;
    for (size_t i = 0; i < count; i++) {
        SONDE__TRY(look_into(spool, folders[i], diag));
    }
    if (spool->count > 0) {
        qsort(spool->files, spool->count, sizeof *spool->files, in_order);
    }
    drop_doubles(spool);
    for (size_t i = 0; i < spool->count; i++) {
        bytes += spool->files[i].kind >= 0 ? spool->files[i].size : 0;
    }
    atomic_store(&spool->full, bytes > spool->most);
    return SONDE_OK;
}

/* --- barriers ----------------------------------------------------------------------- */

static sonde__s3_barrier *find_barrier(const sonde__s3_spool *spool, uint64_t number)
{
    for (size_t i = 0; i < spool->barrier_count; i++) {
        if (spool->barriers[i].number == number) {
            return &spool->barriers[i];
        }
    }
    return NULL;
}

/* Notes a closed file of steps at the first look that finds it, and sets its barrier at
 * the next, which finds all files that existed when it was closed. */
static sonde_err keep_barrier(sonde__s3_spool *spool, uint64_t number, sonde_diag *diag)
{
    sonde__s3_barrier *barrier = find_barrier(spool, number);

    if (barrier == NULL) {
        if (!sonde__reserve(&spool->barriers, &spool->barrier_capacity,
                            spool->barrier_count + 1, sizeof *spool->barriers)) {
            return sonde__fail_nomem(diag, spool->folder);
        }
        spool->barriers[spool->barrier_count++] = (sonde__s3_barrier){.number = number};
        return SONDE_OK;
    }
    if (barrier->set) {
        return SONDE_OK;
    }
    barrier->set = true;
    for (int kind = 0; kind < SONDE__S3_SPOOL_KINDS; kind++) {
        barrier->highest[kind] = -1;
    }
    for (size_t i = 0; i < spool->count; i++) {
        const sonde__s3_spooled *file = &spool->files[i];

        if (file->kind >= 0) {
            barrier->highest[file->kind] =
                SONDE_MAX(barrier->highest[file->kind], (int64_t)file->number);
        }
    }
    return SONDE_OK;
}

/* Whether all data that a file of steps may refer to are sent. */
static bool may_pass(const sonde__s3_spool *spool, uint64_t number)
{
    const sonde__s3_barrier *barrier = find_barrier(spool, number);
    const bool set = barrier != NULL && barrier->set;

    if (!set && !spool->final) {
        return false;
    }
    for (size_t i = 0; i < spool->count; i++) {
        const sonde__s3_spooled *file = &spool->files[i];

        if (file->kind >= 0 && file->kind != STEPS && file->name[0] != '\0' &&
            (!set || (int64_t)file->number <= barrier->highest[file->kind])) {
            return false;
        }
    }
    return true;
}

static sonde_err keep_barriers(sonde__s3_spool *spool, sonde_diag *diag)
{
    for (size_t i = 0; i < spool->count; i++) {
        const sonde__s3_spooled *file = &spool->files[i];
        SONDE__TRY(file->kind == STEPS && !file->part
                       ? keep_barrier(spool, file->number, diag)
                       : SONDE_OK);
    }
    return SONDE_OK;
}

static void drop_barrier(sonde__s3_spool *spool, uint64_t number)
{
    sonde__s3_barrier *barrier = find_barrier(spool, number);

    if (barrier != NULL) {
        *barrier = spool->barriers[--spool->barrier_count];
    }
}

/* --- sending ------------------------------------------------------------------------ */

/* The version of a file that was sent, all zeros at first. NULL: out of memory. */
static sonde__s3_version *find_version(sonde__s3_spool *spool, const char *name)
{
    for (size_t i = 0; i < spool->version_count; i++) {
        if (strcmp(spool->versions[i].name, name) == 0) {
            return &spool->versions[i];
        }
    }
    if (!sonde__reserve(&spool->versions, &spool->version_capacity,
                        spool->version_count + 1, sizeof *spool->versions)) {
        return NULL;
    }
    spool->versions[spool->version_count] =
        (sonde__s3_version){.name = sonde__strdup(name)};
    return spool->versions[spool->version_count].name != NULL
               ? &spool->versions[spool->version_count++]
               : NULL;
}

static bool is_sent(const sonde__s3_version *version, const sonde__s3_spooled *file)
{
    return version->changed.tv_sec == file->changed.tv_sec &&
           version->changed.tv_nsec == file->changed.tv_nsec &&
           version->size == file->size;
}

static void report(sonde__s3_spool *spool)
{
    (void)pthread_mutex_lock(&spool->lock);
    spool->sent++;
    (void)pthread_cond_broadcast(&spool->moved);
    (void)pthread_mutex_unlock(&spool->lock);
}

bool sonde__s3_spool_read(const sonde__s3_spool *spool, const char *name, bool lines,
                          sonde_text *text)
{
    char path[SONDE__S3_PATH], block[8192];
    FILE *stream = fopen(sonde__s3_spool_path(spool, name, path), "re");
    size_t n = 0;

    text->length = 0;
    if (stream == NULL) {
        return false;
    }
    while ((n = fread(block, 1, sizeof block, stream)) > 0 && text->length < MOST_SMALL) {
        sonde_text_put(text, block, n);
    }
    (void)fclose(stream);
    while (lines && text->length > 0 && text->data[text->length - 1] != '\n') {
        text->length--;
    }
    return !text->failed;
}

/* Sends the present content of a file that may change again. */
static sonde_err send_version(sonde__s3_spool *spool, const sonde__s3_spooled *file,
                              sonde_diag *diag)
{
    const char *dot = strrchr(file->name, '.');
    sonde__s3_version *version = find_version(spool, file->name);
    char path[SONDE__S3_PATH];
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    if (version == NULL) {
        return sonde__fail_nomem(diag, file->name);
    }
    if (is_sent(version, file)) {
        return SONDE_OK;
    }
    if (file->size > SONDE__S3_PART) {
        err = sonde__s3_put_file(spool->bucket, &spool->line, file->name,
                                 sonde__s3_spool_path(spool, file->name, path), diag);
    } else if (sonde__s3_spool_read(spool, file->name,
                                    dot != NULL && strcmp(dot, ".jsonl") == 0, &text)) {
        err = sonde__s3_put(spool->bucket, &spool->line, file->name, text.data,
                            text.length, SONDE__S3_REPLACE, diag);
    }
    sonde_text_fini(&text);
    if (err != SONDE_OK) {
        return err;
    }
    version->size = file->size;
    version->changed = file->changed;
    report(spool);
    return SONDE_OK;
}

/* Sends a closed file, and removes it from the spool. */
static sonde_err send_closed(sonde__s3_spool *spool, sonde__s3_spooled *file,
                             sonde_diag *diag)
{
    char path[SONDE__S3_PATH];

    (void)sonde__s3_spool_path(spool, file->name, path);
    const sonde_err err =
        sonde__s3_put_file(spool->bucket, &spool->line, file->name, path, diag);
    if (err != SONDE_ENOTFOUND || access(path, F_OK) == 0) { /* not removed by a fault */
        SONDE__TRY(err);
    }
    (void)unlink(path);
    if (file->kind == STEPS) {
        drop_barrier(spool, file->number);
    }
    file->name[0] = '\0'; /* removed */
    report(spool);
    return SONDE_OK;
}

/* Whether the segment of an index is closed. */
static bool is_closed_index(const sonde__s3_spool *spool, const sonde__s3_spooled *index)
{
    for (size_t i = 0; i < spool->count; i++) {
        const sonde__s3_spooled *file = &spool->files[i];

        if (file->kind == 0 && file->part && file->number == index->number) {
            return false;
        }
    }
    return true;
}

/* Sends one file, unless it has to wait. */
static sonde_err consider(sonde__s3_spool *spool, sonde__s3_spooled *file, bool *left,
                          sonde_diag *diag)
{
    const size_t length = strlen(file->name);
    const bool index = file->kind == 0 && strcmp(file->name + length - 6, ".jsonl") == 0;

    if (file->part) { /* after the end: the writer could not close it */
        *left = *left || !spool->final;
        spool->keeps = spool->keeps || spool->final;
        return SONDE_OK;
    }
    if (file->kind >= 0) {
        if ((index && !is_closed_index(spool, file)) ||
            (file->kind == STEPS && !may_pass(spool, file->number))) {
            *left = true;
            return SONDE_OK;
        }
        return send_closed(spool, file, diag);
    }
    if (file->rank >= 40 && (!spool->final || *left)) {
        *left = true; /* the end of the run is sent after its data */
        return SONDE_OK;
    }
    return send_version(spool, file, diag);
}

/* Sends the files of steps whose data are sent. */
static sonde_err send_steps(sonde__s3_spool *spool, sonde_diag *diag)
{
    for (size_t i = 0; i < spool->count; i++) {
        sonde__s3_spooled *file = &spool->files[i];

        if (file->kind != STEPS || file->part || file->name[0] == '\0') {
            continue;
        }
        if (!may_pass(spool, file->number)) {
            return SONDE_OK;
        }
        SONDE__TRY(send_closed(spool, file, diag));
    }
    return SONDE_OK;
}

static void count_left(sonde__s3_spool *spool)
{
    uint64_t left = 0, bytes = 0;

    for (size_t i = 0; i < spool->count; i++) {
        if (spool->files[i].kind >= 0 && spool->files[i].name[0] != '\0') {
            left++;
            bytes += spool->files[i].size;
        }
    }
    (void)pthread_mutex_lock(&spool->lock);
    spool->left = left;
    spool->left_bytes = bytes;
    (void)pthread_mutex_unlock(&spool->lock);
}

/* Sends the files that the last look found. */
static sonde_err send_found(sonde__s3_spool *spool, bool *left, sonde_diag *diag)
{
    const double begun = sonde__now();

    SONDE__TRY(keep_barriers(spool, diag));
    for (size_t i = 0; i < spool->count; i++) {
        const bool data = spool->files[i].kind >= 0 && spool->files[i].kind != STEPS;

        if (data && sonde__now() - begun > MOST_SECONDS) { /* new steps are to be noted */
            *left = spool->busy = true;
            return SONDE_OK;
        }
        if (spool->files[i].name[0] != '\0') {
            SONDE__TRY(consider(spool, &spool->files[i], left, diag));
        }
        SONDE__TRY(data ? send_steps(spool, diag) : SONDE_OK);
    }
    return SONDE_OK;
}

sonde_err sonde__s3_spool_send(sonde__s3_spool *spool, bool *all, sonde_diag *diag)
{
    bool left = false;
    sonde_err err = SONDE_OK;

    *all = false;
    spool->busy = false;
    spool->final = atomic_load(&spool->closing);
    SONDE__TRY_DONE(look(spool, diag));
    SONDE__TRY_DONE(send_found(spool, &left, diag));
    *all = spool->final && !left;

done:
    count_left(spool);
    return err;
}

/* --- the heart ---------------------------------------------------------------------- */

/* Appends new requests of the store's control.jsonl to the run's. */
static sonde_err take_requests(sonde__s3_spool *spool, sonde_diag *diag)
{
    char path[SONDE__S3_PATH];
    sonde_text text = {0};
    bool changed = false;
    sonde_err err = sonde__s3_get_small(spool->bucket, &spool->beat_line, "control.jsonl",
                                        spool->control_etag, &text, &changed, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    if (changed && text.length > spool->control_seen) {
        const int fd = open(sonde__s3_spool_path(spool, "control.jsonl", path),
                            O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
        const size_t count = text.length - spool->control_seen;

        if (fd >= 0) {
            if (write(fd, text.data + spool->control_seen, count) == (ssize_t)count) {
                spool->control_seen = text.length;
            }
            (void)close(fd);
        }
    }

done:
    sonde_text_fini(&text);
    return err == SONDE_ENOTFOUND ? SONDE_OK : err;
}

sonde_err sonde__s3_spool_beat(sonde__s3_spool *spool, sonde_diag *diag)
{
    char name[64];
    sonde_text text = {0};
    sonde_err err = SONDE_OK;

    (void)snprintf(name, sizeof name, "%s/state.json", spool->worker);
    if (sonde__s3_spool_read(spool, name, false, &text) && text.length > 0 &&
        strstr(text.data, "\"running\"") != NULL) {
        err = sonde__s3_put(spool->bucket, &spool->beat_line, name, text.data,
                            text.length, SONDE__S3_TRY, diag);
    }
    sonde_text_fini(&text);
    SONDE__TRY(err);
    return spool->writer.rank == 0 ? take_requests(spool, diag) : SONDE_OK;
}
