/*
 * zip.c - see files.h. All numbers of the archive are checked against its size before they
 * are used.
 */
#include "nn/data/files.h"
#include "base/fail.h"
#include "base/memory.h"

#include <libdeflate.h>
#include <stdio.h>
#include <string.h>

enum {
    END = 22,     /* bytes of the end, without its comment */
    END64 = 56,   /* of ZIP64's end, and of the record that finds it */
    LOCATOR = 20, /* before the end */
    ENTRY = 46,   /* of a member's entry, and of its header before the bytes */
    LOCAL = 30,
    RATIO = 1040 /* deflate packs at most about 1032 : 1 */
};

static uint64_t get(const unsigned char *p, int bytes)
{
    uint64_t value = 0;

    for (int i = bytes; i-- > 0;) {
        value = value << 8 | p[i];
    }
    return value;
}

static bool is_signature(const unsigned char *p, const char *wanted)
{
    return memcmp(p, wanted, 4) == 0;
}

static sonde_err fail_damaged(const sonde__data_zip *zip, size_t place, const char *what,
                              sonde_diag *diag)
{
    return sonde__fail(diag, SONDE_EFORMAT, zip->name, "a whole ZIP archive",
                       "%s at byte %zu", what, place);
}

/* The last end record. */
static bool find_end(const sonde__data_zip *zip, size_t *place)
{
    const size_t most = zip->size < END ? 0 : zip->size - END;
    const size_t least = most > 0xFFFF ? most - 0xFFFF : 0;

    for (size_t i = most + 1; zip->size >= END && i-- > least;) {
        if (is_signature(zip->bytes + i, "PK\5\6") &&
            get(zip->bytes + i + 20, 2) <= zip->size - i - END) {
            *place = i;
            return true;
        }
    }
    return false;
}

/* ZIP64's end, if there is one before the other; else leaves the numbers as they are. */
static sonde_err read_end64(const sonde__data_zip *zip, size_t end, uint64_t *count,
                            uint64_t *directory, sonde_diag *diag)
{
    const unsigned char *locator = zip->bytes + end - LOCATOR;

    if (end < LOCATOR || !is_signature(locator, "PK\6\7")) {
        return SONDE_OK;
    }
    const uint64_t place = get(locator + 8, 8);
    if (zip->size < END64 || place > zip->size - END64 ||
        !is_signature(zip->bytes + place, "PK\6\6")) {
        return fail_damaged(zip, end - LOCATOR, "no end of ZIP64", diag);
    }
    *count = get(zip->bytes + place + 32, 8);
    *directory = get(zip->bytes + place + 48, 8);
    return SONDE_OK;
}

sonde_err sonde__data_zip_open(sonde__data_zip *zip, const void *bytes, size_t size,
                               const char *name, sonde_diag *diag)
{
    size_t end = 0;
    uint64_t count = 0, directory = 0;

    *zip = (sonde__data_zip){.bytes = bytes, .size = size, .name = name};
    if (!find_end(zip, &end)) {
        return sonde__fail(diag, SONDE_EFORMAT, name, "a whole ZIP archive",
                           "no end of an archive: the file is cut short, or none");
    }
    count = get(zip->bytes + end + 10, 2);
    directory = get(zip->bytes + end + 16, 4);
    SONDE__TRY(read_end64(zip, end, &count, &directory, diag));
    if (directory > end || count > (end - directory) / ENTRY) {
        return fail_damaged(zip, end, "a directory that is not in the file", diag);
    }
    zip->next = (size_t)directory;
    zip->left = count;
    return SONDE_OK;
}

/* The numbers of ZIP64 among the extra fields, for those that are all ones. */
static bool read_extra64(const unsigned char *extra, size_t length, uint64_t *values[3])
{
    while (length >= 4) {
        const size_t size = (size_t)get(extra + 2, 2);
        const unsigned char *next = extra + 4, *end = next + size;

        if (size > length - 4) {
            return false;
        }
        if (get(extra, 2) == 1) {
            for (int i = 0; i < 3; i++) {
                if (*values[i] != UINT32_MAX) {
                    continue;
                }
                if (end - next < 8) {
                    return false;
                }
                *values[i] = get(next, 8);
                next += 8;
            }
            return true;
        }
        length -= 4 + size;
        extra = end;
    }
    return true;
}

/* The bytes of a member, after its own header, which has lengths of its own. */
static sonde_err find_bytes(const sonde__data_zip *zip, uint64_t local,
                            sonde__data_zip_member *member, sonde_diag *diag)
{
    const unsigned char *header = zip->bytes + local;

    if (zip->size < LOCAL || local > zip->size - LOCAL ||
        !is_signature(header, "PK\3\4")) {
        return fail_damaged(zip, zip->next, "an entry without its member", diag);
    }
    const uint64_t start = local + LOCAL + get(header + 26, 2) + get(header + 28, 2);
    if (start > zip->size || member->packed_size > zip->size - start) {
        return fail_damaged(zip, (size_t)local, "a member that is cut short", diag);
    }
    member->packed = zip->bytes + start;
    return SONDE_OK;
}

/* What the directory says of a member. */
static sonde_err read_entry(const sonde__data_zip *zip, const unsigned char *entry,
                            sonde__data_zip_member *member, sonde_diag *diag)
{
    const uint64_t flags = get(entry + 8, 2), method = get(entry + 10, 2);
    const size_t name = (size_t)get(entry + 28, 2), extra = (size_t)get(entry + 30, 2);
    uint64_t packed = get(entry + 20, 4), size = get(entry + 24, 4);
    uint64_t local = get(entry + 42, 4);
    uint64_t *values[3] = {&size, &packed, &local};

    if (name == 0 || name >= sizeof member->name ||
        memchr(entry + ENTRY, '\0', name) != NULL) {
        return fail_damaged(zip, zip->next, "a name that is empty or too long", diag);
    }
    memcpy(member->name, entry + ENTRY, name);
    member->name[name] = '\0';
    if ((flags & 1) != 0 || (method != 0 && method != 8)) {
        return sonde__fail(diag, SONDE_EUNSUPPORTED, zip->name, "np.savez", "'%s' is %s",
                           member->name,
                           (flags & 1) != 0 ? "encrypted" : "packed by another method");
    }
    if (!read_extra64(entry + ENTRY + name, extra, values)) {
        return fail_damaged(zip, zip->next, "an entry that is not whole", diag);
    }
    member->deflated = method == 8;
    member->crc = (uint32_t)get(entry + 16, 4);
    member->packed_size = (size_t)packed;
    member->size = (size_t)size;
    if (member->deflated ? size / RATIO > packed + 1 : size != packed) {
        return fail_damaged(zip, zip->next, "a size that cannot be", diag);
    }
    return find_bytes(zip, local, member, diag);
}

sonde_err sonde__data_zip_next(sonde__data_zip *zip, sonde__data_zip_member *member,
                               bool *more, sonde_diag *diag)
{
    const unsigned char *entry = zip->bytes + zip->next;
    size_t length = 0;

    *more = zip->left > 0;
    if (zip->left == 0) {
        return SONDE_OK;
    }
    *member = (sonde__data_zip_member){.size = 0};
    if (zip->size - zip->next < ENTRY || !is_signature(entry, "PK\1\2")) {
        return fail_damaged(zip, zip->next, "no entry of the directory", diag);
    }
    length =
        ENTRY + (size_t)(get(entry + 28, 2) + get(entry + 30, 2) + get(entry + 32, 2));
    if (length > zip->size - zip->next) {
        return fail_damaged(zip, zip->next, "an entry that is cut short", diag);
    }
    SONDE__TRY(read_entry(zip, entry, member, diag));
    zip->next += length;
    zip->left--;
    return SONDE_OK;
}

/* --- unpacking ------------------------------------------------------------------------ */

/* Inflates into exactly size bytes. */
static bool inflate_all(const sonde__data_zip_member *member, unsigned char *out)
{
    struct libdeflate_decompressor *decompressor = libdeflate_alloc_decompressor();
    const bool good =
        decompressor != NULL &&
        libdeflate_deflate_decompress(decompressor, member->packed, member->packed_size,
                                      out, member->size, NULL) == LIBDEFLATE_SUCCESS;

    libdeflate_free_decompressor(decompressor);
    return good;
}

sonde_err sonde__data_zip_read(const sonde__data_zip *zip,
                               const sonde__data_zip_member *member,
                               const unsigned char **bytes, void **owned,
                               sonde_diag *diag)
{
    unsigned char *block = NULL;

    if (member->deflated) {
        block = sonde__malloc_aligned(SONDE__ALIGN, member->size);
        if (block == NULL) {
            return sonde__fail_nomem(diag, "an array");
        }
        if (!inflate_all(member, block)) {
            sonde__free(block);
            return sonde__fail(diag, SONDE_EFORMAT, zip->name, "a whole ZIP archive",
                               "'%s' cannot be unpacked", member->name);
        }
    }
    *bytes = block != NULL ? block : member->packed;
    if (libdeflate_crc32(0, *bytes, member->size) != member->crc) {
        sonde__free(block);
        return sonde__fail(diag, SONDE_EFORMAT, zip->name, "undamaged bytes",
                           "the checksum of '%s' is wrong", member->name);
    }
    *owned = block;
    return SONDE_OK;
}
