/*
 * fuzz_plan.c - any bytes as a plan, with a checksum that is made right, so that the readers
 * after it are asked; one that is read is compiled too.
 *
 * A model may ask for more memory than there is: blocks are of 1 MiB at most here.
 */
#include <sonde/alloc.h>
#include "nn/run/plan_object.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEADER = 40, SIZE_PLACE = 16, HASH_PLACE = 24 };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *allocate(void *user, size_t align, size_t size)
{
    void *block = NULL;

    (void)user;
    if (size > (size_t)1 << 20 ||
        posix_memalign(&block, align < sizeof block ? sizeof block : align, size) != 0) {
        return NULL;
    }
    return block;
}

static void release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* An error must say what it is, in one line. */
static void check(sonde_err err, const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    if (err == SONDE_OK) {
        return;
    }
    if (diag->err != err || diag->found[0] == '\0') {
        abort();
    }
    (void)sonde_diag_line(diag, line, sizeof line);
    for (const char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20) {
            abort();
        }
    }
}

/* A copy whose size and hash are right. */
static uint8_t *sealed(const uint8_t *data, size_t size)
{
    uint8_t *bytes = malloc(size + 1);

    if (bytes == NULL) {
        abort();
    }
    memcpy(bytes, data, size);
    if (size >= HEADER) {
        const XXH128_hash_t hash = XXH3_128bits(bytes + HEADER, size - HEADER);
        const uint64_t whole = size;

        memcpy(bytes + SIZE_PLACE, &whole, sizeof whole);
        memcpy(bytes + HASH_PLACE, &hash.low64, sizeof hash.low64);
        memcpy(bytes + HASH_PLACE + 8, &hash.high64, sizeof hash.high64);
    }
    return bytes;
}

static sonde_err compile(const sonde_nn_plan *plan, sonde_diag *diag)
{
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_err err = sonde_nn_plan_model(plan, 1, &model, diag);

    if (err == SONDE_OK) {
        err = sonde_nn_plan_session(plan, model, &session, diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, diag);
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const sonde_allocator small = {allocate, release, NULL};
    sonde_nn_plan *plan = NULL;
    sonde_diag diag = {0};
    uint8_t *bytes = sealed(data, size);
    sonde_err err = SONDE_OK;

    if (setenv("SONDE_ISA", "generic", 1) != 0) { /* that of the seeds */
        abort();
    }
    sonde_set_allocator(&small);
    err = sonde__session_plan_parse(bytes, size, "fuzz.plan", &plan, &diag);
    check(err, &diag);
    if (err == SONDE_OK) {
        err = compile(plan, &diag);
        check(err, &diag);
    }
    sonde_nn_plan_destroy(plan);
    free(bytes);
    return 0;
}
