/*
 * plan_container.c - the header, the hash and the sections of a plan's file.
 */
#include "nn/run/plan_container.h"
#include "base/cpu.h"
#include "base/fail.h"
#include "base/memory.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

enum { HEADER = 40, HASHED = 40, SIZE_PLACE = 16, HASH_PLACE = 24, FORMAT = 1, TAG = 16 };

static const char magic[8] = {'S', 'O', 'N', 'D', 'E', 'P', 'L', 'N'};
static const char tags[SONDE__PLAN_SECTIONS][5] = {"HEAD", "PLAC", "MODL", "SESS",
                                                   "TEXT"};

/* --- writing ------------------------------------------------------------------------ */

static void put_u64(unsigned char *bytes, uint64_t number)
{
    for (int i = 0; i < 8; i++) {
        bytes[i] = (unsigned char)(number >> (8 * i) & 0xFF);
    }
}

size_t sonde__session_plan_section_begin(sonde__packer *out,
                                         sonde__session_plan_section section)
{
    sonde__pack(out, tags[section], 4);
    sonde__pack_u32(out, 0);
    sonde__pack_u64(out, 0);
    return out->size;
}

void sonde__session_plan_section_end(sonde__packer *out, size_t begun)
{
    if (!out->failed) {
        put_u64(out->bytes + begun - 8, out->size - begun);
    }
}

void sonde__session_plan_container_begin(sonde__packer *out)
{
    static const unsigned char blank[HEADER - 8];

    sonde__pack(out, magic, sizeof magic);
    sonde__pack_u32(out, FORMAT);
    sonde__pack(out, blank, sizeof blank - 4);
    const size_t begun = sonde__session_plan_section_begin(out, SONDE__PLAN_HEAD);
    sonde__pack_text(out, SONDE_VERSION);
    sonde__pack_text(out, sonde__isa_name());
    sonde__session_plan_section_end(out, begun);
}

void sonde__session_plan_container_end(sonde__packer *out)
{
    XXH128_hash_t hash = {0, 0};

    if (out->failed) {
        return;
    }
    put_u64(out->bytes + SIZE_PLACE, out->size);
    hash = XXH3_128bits(out->bytes + HASHED, out->size - HASHED);
    put_u64(out->bytes + HASH_PLACE, hash.low64);
    put_u64(out->bytes + HASH_PLACE + 8, hash.high64);
}

void sonde__session_plan_places_pack(sonde__packer *out, const sonde__plan *plan)
{
    sonde__pack_u64(out, plan->key.low);
    sonde__pack_u64(out, plan->key.high);
    sonde__pack_u32(out, (uint32_t)plan->step_count);
    sonde__pack_u32(out, (uint32_t)plan->buffer_count);
    for (size_t i = 0; i < plan->buffer_count; i++) {
        sonde__pack_u64(out, plan->buffers[i].offset);
    }
    for (size_t i = 0; i < plan->step_count; i++) {
        const sonde__plan_step *step = &plan->steps[i];
        const unsigned char *scratch = step->call.scratch;

        sonde__pack_u64(out, scratch != NULL ? (uint64_t)(scratch - plan->arena) : 0);
    }
    sonde__pack_u64(out, plan->arena_bytes);
}

/* --- reading ------------------------------------------------------------------------ */

static sonde_err check_header(const unsigned char *bytes, size_t size, const char *name,
                              sonde_diag *diag)
{
    sonde__unpacker in = {.bytes = bytes, .size = size};
    XXH128_hash_t hash = {0, 0};
    uint64_t whole = 0, low = 0, high = 0;

    if (size < sizeof magic || memcmp(bytes, magic, sizeof magic) != 0) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "a file of sonde compile --save",
                           size == 0 ? "the file is empty" : "the file is no plan");
    }
    in.place = sizeof magic;
    const uint32_t format = sonde__unpack_u32(&in);
    (void)sonde__unpack_u32(&in);
    whole = sonde__unpack_u64(&in);
    low = sonde__unpack_u64(&in);
    high = sonde__unpack_u64(&in);
    if (in.bad) {
        return sonde__fail(diag, SONDE_EFORMAT, name, NULL,
                           "the plan is cut off after %zu bytes", size);
    }
    if (format != FORMAT) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name, "format 1",
                           "a plan of format %u", (unsigned)format);
    }
    if (size != whole) {
        return sonde__fail(diag, SONDE_EFORMAT, name, NULL,
                           size < whole
                               ? "the plan is cut off: it has %zu of %llu bytes"
                               : "the plan is damaged: it has %zu bytes, not %llu",
                           size, (unsigned long long)whole);
    }
    hash = XXH3_128bits(bytes + HASHED, size - HASHED);
    if (hash.low64 != low || hash.high64 != high) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "the bytes that were written",
                           "the plan is damaged: its checksum differs");
    }
    return SONDE_OK;
}

static sonde_err check_head(sonde__unpacker in, const char *name, sonde_diag *diag)
{
    char version[TAG], isa[TAG];

    (void)sonde__unpack_text(&in, version, sizeof version);
    (void)sonde__unpack_text(&in, isa, sizeof isa);
    if (in.bad) {
        return sonde__fail(diag, SONDE_EFORMAT, name, NULL,
                           "the plan does not say of which version it is");
    }
    if (strcmp(version, SONDE_VERSION) != 0) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name, "version " SONDE_VERSION,
                           "a plan of version %s of the library", version);
    }
    if (strcmp(isa, sonde__isa_name()) != 0) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, name, sonde__isa_name(),
                           "a plan for another processor, with %s", isa);
    }
    return SONDE_OK;
}

static sonde_err damaged(const char *name, const char *what, sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EFORMAT, name, NULL, "the plan is damaged: %s", what);
}

sonde_err sonde__session_plan_container_read(const void *bytes, size_t size,
                                             const char *name,
                                             sonde__session_plan_container *container,
                                             sonde_diag *diag)
{
    sonde__unpacker in = {.bytes = bytes, .size = size, .place = HEADER};
    SONDE__TRY(check_header(bytes, size, name, diag));
    *container = (sonde__session_plan_container){0};
    while (in.place < in.size) {
        const char *tag = sonde__unpack(&in, 4);
        const uint32_t zero = sonde__unpack_u32(&in);
        const uint64_t length = sonde__unpack_u64(&in);
        const unsigned char *content = length <= size ? sonde__unpack(&in, length) : NULL;
        int i = 0;

        if (tag == NULL || content == NULL || zero != 0) {
            return damaged(name, "a section ends after the file", diag);
        }
        while (i < SONDE__PLAN_SECTIONS && memcmp(tags[i], tag, 4) != 0) {
            i++;
        }
        if (i == SONDE__PLAN_SECTIONS || container->section[i].bytes != NULL) {
            return damaged(name, "a section is unknown, or is there twice", diag);
        }
        container->section[i] = (sonde__unpacker){.bytes = content, .size = length};
    }
    if (container->section[SONDE__PLAN_HEAD].bytes == NULL) {
        return damaged(name, "it has no head", diag);
    }
    return check_head(container->section[SONDE__PLAN_HEAD], name, diag);
}

void sonde__session_plan_places_destroy(sonde__plan_places *places)
{
    if (places != NULL) {
        sonde__free(places->offset);
        sonde__free(places);
    }
}

sonde_err sonde__session_plan_places_unpack(sonde__unpacker in, const char *name,
                                            sonde__plan_places **out, sonde_diag *diag)
{
    sonde__plan_places *places = sonde__calloc(1, sizeof *places);
    uint32_t steps = 0, buffers = 0;

    if (places == NULL) {
        return sonde__fail_nomem(diag, "a plan");
    }
    places->key.low = sonde__unpack_u64(&in);
    places->key.high = sonde__unpack_u64(&in);
    steps = sonde__unpack_u32(&in);
    buffers = sonde__unpack_u32(&in);
    places->steps = steps;
    places->count = (size_t)steps + buffers;
    if (in.bad || places->count > (in.size - in.place) / 8) {
        sonde__session_plan_places_destroy(places);
        return damaged(name, "its places are cut off", diag);
    }
    places->offset = sonde__calloc(places->count, sizeof *places->offset);
    if (places->offset == NULL) {
        sonde__session_plan_places_destroy(places);
        return sonde__fail_nomem(diag, "a plan");
    }
    for (size_t i = 0; i < places->count; i++) {
        places->offset[i] = sonde__unpack_u64(&in);
    }
    places->arena_bytes = sonde__unpack_u64(&in);
    if (in.bad || in.place != in.size) {
        sonde__session_plan_places_destroy(places);
        return damaged(name, "its places are cut off", diag);
    }
    *out = places;
    return SONDE_OK;
}

static sonde_err read_all(int file, const char *path, unsigned char *bytes, size_t size,
                          sonde_diag *diag)
{
    for (size_t done = 0; done < size;) {
        const ssize_t n = read(file, bytes + done, size - done);

        if (n < 0 && errno != EINTR) {
            return sonde__fail_errno(diag, path, "cannot read the plan");
        }
        if (n == 0) {
            return sonde__fail(diag, SONDE_EIO, path, NULL,
                               "the plan became shorter while it was read");
        }
        done += n > 0 ? (size_t)n : 0;
    }
    return SONDE_OK;
}

sonde_err sonde__session_plan_file_read(const char *path, unsigned char **bytes,
                                        size_t *size, sonde_diag *diag)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    unsigned char *read_bytes = NULL;
    struct stat status;
    sonde_err err = SONDE_OK;

    if (file < 0) {
        return sonde__fail_errno(diag, path, "cannot open the plan");
    }
    if (fstat(file, &status) != 0) {
        err = sonde__fail_errno(diag, path, "cannot read the plan");
        goto done;
    }
    if (!S_ISREG(status.st_mode)) {
        err = sonde__fail(diag, SONDE_EFORMAT, path, "a file", "it is no file");
        goto done;
    }
    read_bytes = sonde__malloc((size_t)status.st_size);
    if (read_bytes == NULL) {
        err = sonde__fail_nomem(diag, "a plan");
        goto done;
    }
    err = read_all(file, path, read_bytes, (size_t)status.st_size, diag);
    if (err != SONDE_OK) {
        sonde__free(read_bytes);
        goto done;
    }
    *bytes = read_bytes;
    *size = (size_t)status.st_size;

done:
    (void)close(file);
    return err;
}
