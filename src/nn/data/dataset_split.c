/*
 * dataset_split.c - some samples of a data set, and the others.
 *
 * Selection sampling (Knuth, The Art of Computer Programming, vol. 2, 3.4.2, algorithm S): one
 * pass over the samples, of which each is drawn with the share that is still wanted of those still
 * left, gives every choice the same chance and keeps their order.
 */
#include "nn/data/dataset.h"
#include "base/fail.h"
#include "base/memory.h"
#include "base/random.h"

#include <inttypes.h>
#include <stdio.h>

enum { STREAM = 0x5350 }; /* of random numbers: "SP" */

/* Room for count samples; NULL: out of memory. */
static sonde_nn_dataset *make_part(const sonde_nn_dataset *whole, int64_t count)
{
    sonde_nn_dataset *part = sonde__calloc(1, sizeof *part);

    if (part == NULL) {
        return NULL;
    }
    part->chosen = sonde__calloc((size_t)count, sizeof *part->chosen);
    if (part->chosen == NULL) {
        sonde__free(part);
        return NULL;
    }
    part->whole = whole;
    part->traits = whole->traits;
    part->traits.count = 0;
    return part;
}

static sonde_err check_count(const sonde_nn_dataset *set, int64_t count, bool rest,
                             sonde_diag *diag)
{
    const int64_t most = set->traits.count - (rest ? 1 : 0);
    char expected[64];

    if (count >= 1 && count <= most) {
        return SONDE_OK;
    }
    (void)snprintf(expected, sizeof expected, "1 to %" PRId64, most);
    return sonde__fail(diag, SONDE_ERANGE, set->traits.source, expected,
                       "a part of %" PRId64 " samples", count);
}

sonde_err sonde_nn_dataset_split(const sonde_nn_dataset *set, int64_t count,
                                 uint64_t seed, sonde_nn_dataset **part,
                                 sonde_nn_dataset **rest, sonde_diag *diag)
{
    const int64_t all = set->traits.count;
    sonde_nn_dataset *drawn = NULL, *left = NULL;
    const sonde_err err = check_count(set, count, rest != NULL, diag);

    if (err != SONDE_OK) {
        return err;
    }
    drawn = make_part(set, count);
    left = rest != NULL ? make_part(set, all - count) : NULL;
    if (drawn == NULL || (rest != NULL && left == NULL)) {
        sonde_nn_dataset_destroy(drawn);
        sonde_nn_dataset_destroy(left);
        return sonde__fail_nomem(diag, "a part of a data set");
    }
    for (int64_t i = 0; i < all; i++) {
        const uint64_t wanted = (uint64_t)(count - drawn->traits.count);
        const bool take =
            sonde__below(seed, STREAM, (uint64_t)i, (uint64_t)(all - i)) < wanted;
        sonde_nn_dataset *to = take ? drawn : left;

        if (to != NULL) {
            to->chosen[to->traits.count++] = i;
        }
    }
    *part = drawn;
    if (rest != NULL) {
        *rest = left;
    }
    return SONDE_OK;
}
