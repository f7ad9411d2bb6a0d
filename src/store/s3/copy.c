/*
 * copy.c - which objects of a run are copied, and in which order; see copy.h.
 *
 * The writer sends the data of a step first, then the row of the step, then the state
 * that ends the run. A refresh asks in the opposite order: state.json and end.json, the
 * list of the steps, all other lists. It puts files in place in the writer's order.
 */
#include "store/s3/copy.h"
#include "base/clock.h"
#include "base/fail.h"
#include "base/json_read.h"
#include "base/macros.h"
#include "base/memory.h"
#include "store/s3/profile.h"
#include "store/s3/objects.h"

#include <sonde/log.h>

#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { THREADS = 8 };
#define PATIENCE 60.0 /* seconds without an answer after which a live reader fails */

/* --- opening ------------------------------------------------------------------------ */

void sonde__s3_copy_close(void *handle)
{
    sonde__s3_copy *copy = handle;

    if (copy == NULL) {
        return;
    }
    for (size_t i = 0; i < copy->count; i++) {
        sonde__free(copy->items[i].blocks);
        sonde__free(copy->items[i].name);
    }
    for (size_t i = 0; i < copy->worker_count; i++) {
        sonde__free(copy->workers[i]);
    }
    sonde__free(copy->workers);
    sonde__free(copy->items);
    if (copy->held >= 0) {
        sonde__s3_remove_all(copy->folder);
        (void)close(copy->held);
    }
    sonde__s3_bucket_close(copy->bucket);
    sonde__s3_line_close(&copy->line);
    sonde__free(copy->folder);
    (void)pthread_mutex_destroy(&copy->guard);
    sonde__free(copy);
}

sonde_err sonde__s3_copy_open(const char *url, const char *folder, void **out,
                              sonde_diag *diag)
{
    sonde__s3_copy *copy = sonde__calloc(1, sizeof *copy);
    sonde_err err = SONDE_OK;

    if (copy == NULL) {
        return sonde__fail_nomem(diag, url);
    }
    (void)pthread_mutex_init(&copy->guard, NULL);
    copy->held = -1;
    copy->world = 1;
    copy->folder = sonde__strdup(folder);
    SONDE__TRY_GO(copy->folder != NULL ? SONDE_OK : sonde__fail_nomem(diag, url));
    SONDE__TRY_GO(sonde__s3_copy_hold(copy, diag));
    SONDE__TRY_GO(sonde__s3_line_open(&copy->line, url, diag));
    SONDE__TRY_GO(sonde__s3_bucket_open(url, &copy->line, &copy->bucket, diag));
    SONDE__TRY_GO(sonde__s3_copy_refresh(copy, diag));
    copy->opened = true;
    *out = copy;
    return SONDE_OK;

error:
    sonde__s3_copy_close(copy);
    return err;
}

/* --- fetching files ----------------------------------------------------------------- */

/* Fetches an object whole, fewer bytes if it has shrunk; text keeps its memory between
 * calls. */
static sonde_err get_whole(const sonde__s3_copy *copy, sonde__s3_line *line,
                           const sonde__s3_copied *item, sonde_text *text,
                           sonde_text *whole, sonde_diag *diag)
{
    while (whole->length < item->size) {
        const size_t count =
            (size_t)SONDE_MIN(item->size - whole->length, (uint64_t)SONDE__S3_PART);
        SONDE__TRY(sonde__s3_get(copy->bucket, line, item->name, whole->length, count,
                                 text, NULL, diag));
        if (text->length < count) { /* the next list has the new size */
            return SONDE_OK;
        }
        sonde_text_put(whole, text->data, count);
        if (whole->failed) {
            return sonde__fail_nomem(diag, item->name);
        }
    }
    return SONDE_OK;
}

/* Fills the file of an item. */
static sonde_err bring(sonde__s3_copy *copy, sonde__s3_line *line, sonde__s3_copied *item,
                       sonde_text *text, sonde_diag *diag)
{
    sonde_text whole = {0};
    sonde_err err = SONDE_OK;

    item->stale = true;
    if (item->lazy) {
        err = sonde__s3_copy_make_sparse(copy, line, item, diag);
        item->stale = err != SONDE_OK;
        return err;
    }
    SONDE__TRY_DONE(get_whole(copy, line, item, text, &whole, diag));
    SONDE__TRY_DONE(
        sonde__s3_copy_write(copy, item->name, whole.data, whole.length, diag));
    item->stale = whole.length != item->size;

done:
    sonde_text_fini(&whole);
    return err == SONDE_ENOTFOUND ? SONDE_OK : err; /* removed meanwhile */
}

/* Files that several threads fetch. */
typedef struct crowd {
    sonde__s3_copy *copy;
    bool (*wants)(const sonde__s3_copied *item);
    atomic_size_t next;
    pthread_mutex_t lock; /* of what follows */
    sonde_err err;
    sonde_diag diag;
} crowd;

static void *bring_some(void *user)
{
    crowd *all = user;
    sonde__s3_line line = {0};
    sonde_text text = {0};
    sonde_diag diag = {0};
    sonde_err err = sonde__s3_line_open(&line, all->copy->bucket->url, &diag);

    if (err != SONDE_OK) {
        goto error;
    }
    for (size_t i = 0; (i = atomic_fetch_add(&all->next, 1)) < all->copy->count;) {
        sonde__s3_copied *item = &all->copy->items[i];

        if (item->stale && all->wants(item)) {
            err = bring(all->copy, &line, item, &text, &diag);
        }
        if (err != SONDE_OK) {
            goto error;
        }
    }
    goto done;

error:
    (void)pthread_mutex_lock(&all->lock);
    all->err = err;
    all->diag = diag;
    (void)pthread_mutex_unlock(&all->lock);
    atomic_store(&all->next, all->copy->count); /* the others stop */

done:
    sonde_text_fini(&text);
    sonde__s3_line_close(&line);
    return NULL;
}

/* Fetches the stale items that are wanted. */
static sonde_err bring_all(sonde__s3_copy *copy, bool (*wants)(const sonde__s3_copied *),
                           sonde_diag *diag)
{
    crowd all = {.copy = copy, .wants = wants};
    pthread_t threads[THREADS];
    size_t count = 0, started = 0;

    for (size_t i = 0; i < copy->count; i++) {
        count += copy->items[i].stale && wants(&copy->items[i]) ? 1 : 0;
    }
    if (count == 0) {
        return SONDE_OK;
    }
    (void)pthread_mutex_init(&all.lock, NULL);
    while (count > 1 && started < SONDE_MIN(count, (size_t)THREADS) &&
           pthread_create(&threads[started], NULL, bring_some, &all) == 0) {
        started++;
    }
    if (started == 0) {
        (void)bring_some(&all);
    }
    for (size_t i = 0; i < started; i++) {
        (void)pthread_join(threads[i], NULL);
    }
    (void)pthread_mutex_destroy(&all.lock);
    if (all.err != SONDE_OK && diag != NULL) {
        *diag = all.diag;
    }
    return all.err;
}

static const char *base_name(const char *name)
{
    const char *slash = strrchr(name, '/');

    return slash != NULL ? slash + 1 : name;
}

static bool is_steps(const sonde__s3_copied *item)
{
    return strncmp(base_name(item->name), "steps-", 6) == 0;
}

static bool is_segment(const sonde__s3_copied *item)
{
    return item->lazy;
}

static bool is_not_steps(const sonde__s3_copied *item)
{
    return !is_steps(item);
}

/* --- lists -------------------------------------------------------------------------- */

static bool is_lazy(const char *name)
{
    const size_t length = strlen(name), end = strlen(".safetensors");

    return length > end && strcmp(name + length - end, ".safetensors") == 0;
}

/* Readers do not need it. */
static bool is_ignored(const char *name)
{
    return strncmp(name, "checkpoints/", 12) == 0 || name[0] == '/' ||
           strstr(name, "//") != NULL || strstr(name, "..") != NULL ||
           name[strlen(name) - 1] == '/';
}

static sonde_err note(void *user, const sonde__s3_object *object, sonde_diag *diag)
{
    sonde__s3_copy *copy = user;

    return is_ignored(object->name)
               ? SONDE_OK
               : sonde__s3_copy_note(copy, object, is_lazy(object->name), diag);
}

/* Where the next list of a kind begins: "w0000/seg-00000041~", which sorts after all
 * files of the largest number that is known; "" if none is. */
static void last_of(const sonde__s3_copy *copy, const char *start, bool index,
                    char *after)
{
    const size_t length = strlen(start);

    after[0] = '\0';
    for (size_t i = copy->count; i > 0; i--) {
        const char *name = copy->items[i - 1].name;
        const char *dot = strncmp(name, start, length) == 0 ? strrchr(name, '.') : NULL;

        if (dot != NULL && (!index || strcmp(dot, ".jsonl") == 0)) {
            (void)snprintf(after, SONDE__S3_NAME, "%.*s~", (int)(dot - name), name);
            return;
        }
    }
}

/* Lists the new files of a kind of a worker. */
static sonde_err list_kind(sonde__s3_copy *copy, const char *worker, const char *kind,
                           sonde_diag *diag)
{
    char start[64], after[SONDE__S3_NAME];

    (void)snprintf(start, sizeof start, "%s/%s-", worker, kind);
    last_of(copy, start, strcmp(kind, "seg") == 0, after);
    return sonde__s3_list(copy->bucket, &copy->line, start, after, false, note, copy,
                          diag);
}

/* --- single objects ----------------------------------------------------------------- */

/* An object whose file goes into place later. */
typedef struct held {
    char name[64];
    char etag[SONDE__S3_ETAG];
    sonde_text body;
    bool here; /* body is a new version */
} held;

/* Fetches a small object if the store has another version than the copy. */
static sonde_err hold(sonde__s3_copy *copy, const char *folder, const char *name,
                      held *out, sonde_diag *diag)
{
    sonde_diag why = {0};
    sonde_err err = SONDE_OK;

    (void)snprintf(out->name, sizeof out->name, "%s%s%s", folder,
                   folder[0] != '\0' ? "/" : "", name);
    const sonde__s3_copied *item = sonde__s3_copy_find(copy, out->name);
    if (item != NULL && !item->stale) {
        (void)snprintf(out->etag, sizeof out->etag, "%s", item->etag);
    }
    err = sonde__s3_get_small(copy->bucket, &copy->line, out->name, out->etag, &out->body,
                              &out->here, &why);
    if (sonde__s3_is_missing(err, &why)) {
        char path[SONDE__S3_PATH];

        if (item != NULL) { /* removed: end.json of a resumed run */
            (void)unlink(sonde__s3_copy_path(copy, out->name, path));
            sonde__s3_copy_find(copy, out->name)->stale = true;
            sonde__s3_copy_find(copy, out->name)->etag[0] = '\0';
        }
        return SONDE_OK;
    }
    if (err != SONDE_OK && diag != NULL) {
        *diag = why;
    }
    return err;
}

static sonde_err put_in_place(sonde__s3_copy *copy, held *small, sonde_diag *diag)
{
    sonde__s3_object object = {.size = small->body.length};
    sonde_err err = SONDE_OK;

    if (!small->here) {
        goto done;
    }
    (void)snprintf(object.name, sizeof object.name, "%s", small->name);
    (void)snprintf(object.etag, sizeof object.etag, "%s", small->etag);
    SONDE__TRY_DONE(sonde__s3_copy_write(copy, small->name, small->body.data,
                                         small->body.length, diag));
    SONDE__TRY_DONE(sonde__s3_copy_note(copy, &object, false, diag));
    sonde__s3_copy_find(copy, small->name)->stale = false;

done:
    sonde_text_fini(&small->body);
    return err;
}

/* Fetches a small object and puts it in place. */
static sonde_err take_small(sonde__s3_copy *copy, const char *folder, const char *name,
                            sonde_diag *diag)
{
    held small = {0};
    sonde_err err = hold(copy, folder, name, &small, diag);

    if (err == SONDE_OK) {
        err = put_in_place(copy, &small, diag);
    }
    sonde_text_fini(&small.body);
    return err;
}

/* --- workers ------------------------------------------------------------------------ */

static bool is_worker(const char *name)
{
    return name[0] == 'w' && strlen(name) >= 5 &&
           strspn(name + 1, "0123456789") == strlen(name + 1);
}

/* What a list of the run's top level contains. */
typedef struct top_names {
    sonde__s3_copy *copy;
    bool any, run, smdebug;
} top_names;

static sonde_err see_top(void *user, const sonde__s3_object *object, sonde_diag *diag)
{
    top_names *top = user;
    sonde__s3_copy *copy = top->copy;
    char name[SONDE__S3_NAME];

    (void)snprintf(name, sizeof name, "%s", object->name);
    top->any = true;
    top->run = top->run || strcmp(name, "run.json") == 0;
    if (name[strlen(name) - 1] != '/') {
        return SONDE_OK;
    }
    name[strlen(name) - 1] = '\0';
    top->smdebug = top->smdebug || strcmp(name, "collections") == 0 ||
                   strcmp(name, "index") == 0 || strcmp(name, "events") == 0;
    if (!is_worker(name)) {
        return SONDE_OK;
    }
    top->run = true;
    for (size_t i = 0; i < copy->worker_count; i++) {
        if (strcmp(copy->workers[i], name) == 0) {
            return SONDE_OK;
        }
    }
    if (!sonde__reserve(&copy->workers, &copy->worker_capacity, copy->worker_count + 1,
                        sizeof *copy->workers) ||
        (copy->workers[copy->worker_count] = sonde__strdup(name)) == NULL) {
        return sonde__fail_nomem(diag, copy->bucket->url);
    }
    copy->worker_count++;
    return SONDE_OK;
}

/* Lists the new files of a worker, and fetches the small ones that change. */
static sonde_err list_worker(sonde__s3_copy *copy, const char *worker, sonde_diag *diag)
{
    static const char *const kinds[] = {"steps", "stats", "sketch", "seg"};
    static const char *const small[] = {"generations.jsonl", "catalogue.jsonl"};

    for (size_t i = 0; i < SONDE_COUNT_OF(kinds); i++) {
        SONDE__TRY(list_kind(copy, worker, kinds[i], diag));
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(small); i++) {
        SONDE__TRY(take_small(copy, worker, small[i], diag));
    }
    return SONDE_OK;
}

/* All files of one worker. */
static sonde_err refresh_worker(sonde__s3_copy *copy, const char *worker,
                                sonde_diag *diag)
{
    /* an index refers to its segment, a row of a step to all other files */
    static bool (*const order[])(const sonde__s3_copied *) = {is_segment, is_not_steps,
                                                              is_steps};
    held state = {0}, list = {0};
    sonde_err err = hold(copy, worker, "state.json", &state, diag);

    if (err != SONDE_OK) {
        goto done;
    }
    if (state.here || !copy->opened || sonde__s3_copy_find(copy, state.name) == NULL) {
        /* before what it lists */
        SONDE__TRY_DONE(hold(copy, worker, "files.jsonl", &list, diag));
        SONDE__TRY_DONE(list_worker(copy, worker, diag));
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(order); i++) {
        SONDE__TRY_DONE(bring_all(copy, order[i], diag));
    }
    SONDE__TRY_DONE(put_in_place(copy, &list, diag));
    err = put_in_place(copy, &state, diag);

done:
    sonde_text_fini(&list.body);
    sonde_text_fini(&state.body);
    return err;
}

static sonde_err refresh_run(sonde__s3_copy *copy, sonde_diag *diag)
{
    held run = {0};
    sonde_err err = hold(copy, "", "run.json", &run, diag);

    if (err == SONDE_OK && run.here) {
        bool no_memory = false;
        json_t *object =
            sonde__json_read(run.body.data, run.body.length, 0, NULL, &no_memory);

        copy->world = (int)json_integer_value(json_object_get(object, "world"));
        json_decref(object);
        err = no_memory ? sonde__fail_nomem(diag, copy->bucket->url) : SONDE_OK;
    }
    if (err == SONDE_OK) {
        err = put_in_place(copy, &run, diag);
    }
    sonde_text_fini(&run.body);
    return err;
}

/* --- refreshing --------------------------------------------------------------------- */

static sonde_err find_nothing(const sonde__s3_copy *copy, sonde_diag *diag)
{
    return sonde__fail(
        diag, SONDE_ENOTFOUND, copy->bucket->url, "the address of a run",
        "there is nothing: no object has a name that begins with '%s%s' in "
        "bucket %s",
        copy->bucket->prefix, copy->bucket->prefix[0] != '\0' ? "/" : "",
        copy->bucket->name);
}

/* Notes a file of smdebug's, to be fetched whole. */
static sonde_err note_whole(void *user, const sonde__s3_object *object, sonde_diag *diag)
{
    sonde__s3_copy *copy = user;

    return is_ignored(object->name) ? SONDE_OK
                                    : sonde__s3_copy_note(copy, object, false, diag);
}

static bool is_any(const sonde__s3_copied *item)
{
    (void)item;
    return true;
}

static sonde_err refresh_foreign(sonde__s3_copy *copy, sonde_diag *diag)
{
    SONDE__TRY(
        sonde__s3_list(copy->bucket, &copy->line, "", "", false, note_whole, copy, diag));
    return bring_all(copy, is_any, diag);
}

static sonde_err look_at_top(sonde__s3_copy *copy, sonde_diag *diag)
{
    top_names seen = {.copy = copy};
    SONDE__TRY(
        sonde__s3_list(copy->bucket, &copy->line, "", "", true, see_top, &seen, diag));
    if (!seen.any) {
        return find_nothing(copy, diag);
    }
    copy->foreign = !seen.run;
    copy->smdebug = seen.smdebug;
    return seen.run ? refresh_run(copy, diag) : SONDE_OK;
}

/* The numbers of the lines before the lines. */
static sonde_err list_findings(sonde__s3_copy *copy, sonde_diag *diag)
{
    SONDE__TRY(take_small(copy, "", "findings.json", diag));
    return sonde__s3_list(copy->bucket, &copy->line, "findings/", "", false, note, copy,
                          diag);
}

static sonde_err refresh_all(sonde__s3_copy *copy, sonde_diag *diag)
{
    held end = {0};
    sonde_err err = SONDE_OK;

    if (!copy->opened || copy->worker_count < (size_t)SONDE_MAX(copy->world, 1)) {
        SONDE__TRY(look_at_top(copy, diag));
    }
    if (copy->foreign) {
        return copy->smdebug ? refresh_foreign(copy, diag) : SONDE_OK;
    }
    SONDE__TRY_DONE(hold(copy, "", "end.json", &end, diag));
    for (size_t i = 0; i < copy->worker_count; i++) {
        SONDE__TRY_DONE(refresh_worker(copy, copy->workers[i], diag));
    }
    SONDE__TRY_DONE(copy->opened ? SONDE_OK : list_findings(copy, diag));
    SONDE__TRY_DONE(bring_all(copy, is_any, diag));
    err = put_in_place(copy, &end, diag);

done:
    sonde_text_fini(&end.body);
    return err;
}

sonde_err sonde__s3_copy_refresh(void *handle, sonde_diag *diag)
{
    sonde__s3_copy *copy = handle;
    sonde_diag why = {0};

    (void)pthread_mutex_lock(&copy->guard);
    const sonde_err err = refresh_all(copy, &why);
    (void)pthread_mutex_unlock(&copy->guard);
    if (err == SONDE_OK) {
        copy->failing_since = 0.0;
        return SONDE_OK;
    }
    if (err == SONDE_ETIMEOUT && copy->opened) { /* the copy stays valid */
        const double most = sonde__s3_setting("SONDE_S3_READ_SECONDS", PATIENCE);

        if (copy->failing_since == 0.0) {
            char line[SONDE_DIAG_LINE];

            copy->failing_since = sonde__now();
            sonde_log(SONDE_LOG_WARNING, "s3", "%s; trying again for %.0f s",
                      sonde_diag_line(&why, line, sizeof line), most);
        }
        if (sonde__now() - copy->failing_since < most) {
            return SONDE_OK;
        }
    }
    if (diag != NULL) {
        *diag = why;
    }
    return err == SONDE_ETIMEOUT ? SONDE_EIO : err;
}

/* --- fetching and sending ------------------------------------------------------------ */

sonde_err sonde__s3_copy_fetch(void *handle, const char *name, uint64_t offset,
                               uint64_t count, sonde_diag *diag)
{
    sonde__s3_copy *copy = handle;
    sonde_err err = SONDE_OK;

    (void)pthread_mutex_lock(&copy->guard);
    sonde__s3_copied *item = sonde__s3_copy_find(copy, name);
    if (item != NULL && item->lazy && !item->stale) {
        err = sonde__s3_copy_bring(copy, item, offset, count, diag);
    }
    (void)pthread_mutex_unlock(&copy->guard);
    return err;
}

sonde_err sonde__s3_copy_send(void *handle, const char *name, sonde_diag *diag)
{
    sonde__s3_copy *copy = handle;
    char path[SONDE__S3_PATH];

    (void)pthread_mutex_lock(&copy->guard);
    const sonde_err err = sonde__s3_put_file(copy->bucket, &copy->line, name,
                                             sonde__s3_copy_path(copy, name, path), diag);
    (void)pthread_mutex_unlock(&copy->guard);
    return err;
}
