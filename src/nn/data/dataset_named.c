/*
 * dataset_named.c - data sets known by name, and the places where they may lie.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/macros.h"
#include "nn/data/garments.h"

#include <stdlib.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { PLACES_MAX = 3, CLASSES = 10, PATH_SIZE = 4096 };

static const char *const digits[CLASSES] = {"0", "1", "2", "3", "4",
                                            "5", "6", "7", "8", "9"};

typedef struct known_set {
    const char *name;
    const char *const *class_names;
} known_set;

static const known_set known[] = {
    {"fashion-mnist", sonde__data_garment_names},
    {"mnist", digits},
    {"fashion-synth", sonde__data_garment_names},
};

/* Where a search has looked. */
typedef struct place_search {
    const known_set *set;
    const char *prefix; /* "train" or "t10k" */
    char looked[320];   /* the places, for the error */
    char images[PATH_SIZE], labels[PATH_SIZE];
} place_search;

const char *sonde_nn_dataset_name(size_t index)
{
    return index < SONDE_COUNT_OF(known) ? known[index].name : NULL;
}

const char *const *sonde_nn_dataset_class_names(const char *name)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        if (strcmp(known[i].name, name) == 0) {
            return known[i].class_names;
        }
    }
    return NULL;
}

sonde_err sonde_nn_data_cache(const char *name, char *path, size_t size, sonde_diag *diag)
{
    static const struct {
        const char *variable, *folder;
    } bases[] = {
        {"SONDE_CACHE", ""}, {"XDG_CACHE_HOME", "/sonde"}, {"HOME", "/.cache/sonde"}};

    for (size_t i = 0; i < SONDE_COUNT_OF(bases); i++) {
        const char *base = getenv(bases[i].variable);
        int length = 0;

        if (base == NULL || base[0] == '\0') {
            continue;
        }
        length = snprintf(NULL, 0, "%s%s/data/%s", base, bases[i].folder, name);
        if ((size_t)length >= size) {
            return sonde__fail(diag, SONDE_EINVAL, bases[i].variable, "a shorter path",
                               "the path of the cache has %d letters", length);
        }
        (void)snprintf(path, size, "%s%s/data/%s", base, bases[i].folder, name);
        return SONDE_OK;
    }
    return sonde__fail(diag, SONDE_ENOTFOUND, name, "one of them",
                       "none of SONDE_CACHE, XDG_CACHE_HOME and HOME is set");
}

/* NULL, with diag filled, if there is none. */
static const known_set *find_known(const char *name, sonde_diag *diag)
{
    const char *names[SONDE_COUNT_OF(known)];
    const char *nearest = NULL;

    for (size_t i = 0; i < SONDE_COUNT_OF(known); i++) {
        names[i] = known[i].name;
        if (strcmp(name, known[i].name) == 0) {
            return &known[i];
        }
    }
    nearest = sonde_diag_nearest(name, names, SONDE_COUNT_OF(names));
    (void)sonde__fail(diag, SONDE_ENOTFOUND, "data set",
                      nearest ? nearest : "fashion-mnist, mnist or fashion-synth",
                      "no data set is called '%s'", name);
    return NULL;
}

/* <folder>/<prefix>-<kind>, with .gz or without; false if neither is there. */
static bool find_file(const char *folder, const char *prefix, const char *kind,
                      char *path)
{
    static const char *const endings[] = {"", ".gz"};

    for (size_t i = 0; i < SONDE_COUNT_OF(endings); i++) {
        const int length =
            snprintf(path, PATH_SIZE, "%s/%s-%s%s", folder, prefix, kind, endings[i]);

        if (length < PATH_SIZE && access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

/* Looks in one folder. *found: both files; one without the other is an error. */
static sonde_err look_in(place_search *search, const char *folder, bool *found,
                         sonde_diag *diag)
{
    const bool images =
        find_file(folder, search->prefix, "images-idx3-ubyte", search->images);
    const bool labels =
        find_file(folder, search->prefix, "labels-idx1-ubyte", search->labels);
    const size_t used = strlen(search->looked);

    (void)snprintf(search->looked + used, sizeof search->looked - used, "%s%s",
                   used > 0 ? ", " : "", folder);
    *found = images && labels;
    if (images != labels) {
        return sonde__fail(diag, SONDE_ENOTFOUND, folder,
                           images ? "labels beside it" : "images beside it",
                           "has only %s", images ? search->images : search->labels);
    }
    return SONDE_OK;
}

/* Looks in base and in base/<name>. */
static sonde_err look_under(place_search *search, const char *base, bool *found,
                            sonde_diag *diag)
{
    char folder[PATH_SIZE];
    const int length = snprintf(folder, sizeof folder, "%s/%s", base, search->set->name);
    const sonde_err err = look_in(search, base, found, diag);

    if (err != SONDE_OK || *found || (size_t)length >= sizeof folder) {
        return err;
    }
    return look_in(search, folder, found, diag);
}

static sonde_err look(place_search *search, const char *dir, bool *found,
                      sonde_diag *diag)
{
    const char *data = getenv("SONDE_DATA");
    char cache[PATH_SIZE];
    sonde_err err = SONDE_OK;

    *found = false;
    if (dir != NULL) {
        return look_under(search, dir, found, diag);
    }
    if (data != NULL && data[0] != '\0') {
        err = look_under(search, data, found, diag);
    }
    if (err == SONDE_OK && !*found &&
        sonde_nn_data_cache(search->set->name, cache, sizeof cache, NULL) == SONDE_OK) {
        err = look_in(search, cache, found, diag);
    }
    return err;
}

sonde_err sonde_nn_dataset_open_named(const char *name, sonde_nn_split split,
                                      const char *dir, sonde_nn_dataset **out,
                                      sonde_diag *diag)
{
    place_search search = {.set = find_known(name, diag),
                           .prefix = split == SONDE_NN_TRAIN ? "train" : "t10k"};
    sonde_nn_dataset_options options = {.classes = CLASSES};
    bool found = false;
    sonde_err err = SONDE_OK;

    if (search.set == NULL) {
        return SONDE_ENOTFOUND;
    }
    err = look(&search, dir, &found, diag);
    if (err != SONDE_OK) {
        return err;
    }
    if (!found) {
        return sonde__fail(
            diag, SONDE_ENOTFOUND, name,
            "what 'sonde data fetch' gets or 'sonde data synth' draws",
            "not found in %s; try 'sonde data fetch %s' or 'sonde data synth'",
            search.looked[0] ? search.looked : "any place", name);
    }
    options.class_names = search.set->class_names;
    return sonde_nn_dataset_open_idx(search.images, search.labels, &options, out, diag);
}
