/*
 * ring_file.c - a ring in a file that is mapped: what was published outlives the process.
 *
 *     0        4096                4096 + size
 *     | head   | blocks            | ids: 4 bytes for each id of the producer
 *
 * Stores to the mapping are in the kernel's page cache at once, in the order of the
 * program: a process that dies leaves every block that it published. A machine that
 * loses its power does not: its pages reach the disk in any order, so that a ring of
 * another boot is not read.
 */
#include "base/fail.h"
#include "record/ring.h"

#include "base/macros.h"
#include "base/memory.h"
#include "record/record_tensors.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum {
    VERSION = 1,
    PATH_ROOM = 4096,
    /* Bytes whose pages are made before the producer comes: as many as it has put so far.
     * The pages of a small run cost little. */
    LEAST_AHEAD = 2 * 1024 * 1024,
    MOST_AHEAD = 32 * 1024 * 1024,
    LARGE_PAGE = 2 * 1024 * 1024
};
static const char MAGIC[8] = {'S', 'O', 'N', 'D', 'E', 'R', 'N', 'G'};

static const char *large_path(const sonde__record_ring *ring, char path[PATH_ROOM])
{
    (void)snprintf(path, PATH_ROOM, "%s.large", ring->path);
    return path;
}

/* A ring that is being made. It gets its name once its head is whole, so that a process
 * that is killed meanwhile leaves no ring. */
static const char *fresh_path(const char *ring_path, char path[PATH_ROOM])
{
    (void)snprintf(path, PATH_ROOM, "%s.new", ring_path);
    return path;
}

/* Empty where the kernel does not tell. Returns an errno. */
static int read_boot(char boot[64])
{
    const int fd = open("/proc/sys/kernel/random/boot_id", O_RDONLY | O_CLOEXEC);
    int failed = 0;

    memset(boot, 0, 64);
    if (fd < 0) {
        return errno == EMFILE || errno == ENFILE || errno == ENOMEM ? errno : 0;
    }
    if (read(fd, boot, 63) < 0) {
        failed = errno;
        boot[0] = '\0';
    }
    (void)close(fd);
    return failed;
}

static uint64_t check_of(const sonde__record_checkpoint *mark)
{
    return sonde__record_digest(mark, offsetof(sonde__record_checkpoint, check));
}

/* --- mapping ------------------------------------------------------------------------ */

void sonde__record_ring_unmap(sonde__record_ring *ring)
{
    if (ring->file < 0) {
        sonde__free(ring->base);
        sonde__free(ring->large);
    } else {
        (void)munmap(ring->shared, SONDE__RING_PAGE + ring->size);
        if (ring->large != NULL) {
            (void)munmap(ring->large, ring->large_size);
        }
        (void)close(ring->file);
    }
    ring->file = -1;
    ring->base = NULL;
    ring->large = NULL;
    ring->large_size = 0;
    ring->shared = &ring->own;
}

/* As fallocate, on file systems without it. Returns an errno. */
static int write_zeros(int fd, uint64_t size)
{
    static const char zeros[64 * 1024];

    for (uint64_t at = 0; at < size;) {
        const size_t most = (size_t)SONDE_MIN(size - at, (uint64_t)sizeof zeros);
        const ssize_t written = pwrite(fd, zeros, most, (off_t)at);

        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return written < 0 ? errno : EIO;
        }
        at += (uint64_t)written;
    }
    return 0;
}

/* Space for all of a file, so that no store to its mapping finds the disk full. */
static int reserve_space(int fd, uint64_t size)
{
    struct rlimit limit = {0};

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < size) {
        return EFBIG; /* without the signal */
    }
    if (fallocate(fd, 0, 0, (off_t)size) == 0) {
        return 0;
    }
    return errno == EOPNOTSUPP || errno == ENOSYS ? write_zeros(fd, size) : errno;
}

/* NULL: see errno. */
static void *map(int fd, uint64_t size)
{
    void *const mapped =
        mmap(NULL, (size_t)size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);

    return mapped != MAP_FAILED ? mapped : NULL;
}

/* Large pages for all but the beginning, if the file system has them: a copy into small
 * ones takes a tenth longer. The beginning changes with every block, and the kernel writes
 * a page that has changed to the disk whole; it is not read ahead, which would make small
 * pages of the rest. */
static void ask_for_large_pages(void *mapped, uint64_t size)
{
    if (size > LARGE_PAGE) {
        (void)madvise(mapped, LARGE_PAGE, MADV_RANDOM);
        (void)madvise((unsigned char *)mapped + LARGE_PAGE, (size_t)size - LARGE_PAGE,
                      MADV_HUGEPAGE);
    }
}

/* Makes the ring in the file fd at fresh, which becomes that at ring->path. */
static int keep_in(sonde__record_ring *ring, int fd, const char *fresh, const char *run,
                   int worker, const sonde__record_ring_past *past)
{
    const uint64_t size = SONDE__RING_PAGE + ring->size;
    sonde__record_checkpoint first = past->mark;
    SONDE__TRY_ERRNO(reserve_space(fd, size));
    int failed = 0;
    void *mapped = map(fd, size);
    if (mapped == NULL) {
        return errno;
    }
    ask_for_large_pages(mapped, size);
    sonde__record_ring_head *head = mapped;
    *head = (sonde__record_ring_head){.version = VERSION,
                                      .worker = (uint32_t)worker,
                                      .size = ring->size,
                                      .offset = SONDE__RING_PAGE,
                                      .put_before = past->put,
                                      .full_before = past->full};
    memcpy(head->run, run, sizeof head->run);
    (void)read_boot(head->boot);
    first.sequence = ring->sequence + 1;
    first.tail = ring->read;
    first.check = check_of(&first);
    head->marks[first.sequence % 2] = first;
    memcpy(head->magic, MAGIC, sizeof MAGIC);
    if (rename(fresh, ring->path) != 0) {
        failed = errno;
        (void)munmap(mapped, (size_t)size);
        return failed;
    }
    sonde__free(ring->base);
    ring->sequence = first.sequence;
    ring->shared = head;
    ring->base = (unsigned char *)mapped + SONDE__RING_PAGE;
    ring->file = fd;
    return 0;
}

int sonde__record_ring_keep(sonde__record_ring *ring, const char *path, const char *run,
                            int worker, const sonde__record_ring_past *past)
{
    char fresh[PATH_ROOM];
    int failed = 0, fd = -1;

    ring->path = sonde__strdup(path);
    if (ring->path == NULL) {
        return ENOMEM;
    }
    fd = open(fresh_path(path, fresh), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0) {
        failed = errno;
        goto error;
    }
    failed = keep_in(ring, fd, fresh, run, worker, past);
    if (failed != 0) {
        goto error;
    }
    return 0;

error:
    if (fd >= 0) {
        (void)close(fd);
        (void)unlink(fresh);
    }
    sonde__free(ring->path);
    ring->path = NULL;
    return failed;
}

void sonde__record_ring_remove(sonde__record_ring *ring)
{
    char path[PATH_ROOM];

    if (ring->path != NULL) {
        (void)unlink(large_path(ring, path));
        (void)unlink(ring->path);
    }
}

void sonde__record_ring_populate(sonde__record_ring *ring)
{
#ifdef MADV_POPULATE_WRITE
    const uint64_t head = atomic_load_explicit(&ring->shared->head, memory_order_relaxed);
    const uint64_t ahead = SONDE_MIN(SONDE_MAX(head, LEAST_AHEAD), MOST_AHEAD);
    /* whole pages of the file, large ones too: madvise refuses a part of one */
    const uint64_t to =
        (SONDE__RING_PAGE + head + ahead + LARGE_PAGE - 1) / LARGE_PAGE * LARGE_PAGE -
        SONDE__RING_PAGE;
    const size_t end = (size_t)SONDE_MIN(to, ring->size);

    if (ring->populated < SONDE_MIN(head + ahead / 2, ring->size)) {
        (void)madvise(ring->base + ring->populated, end - ring->populated,
                      MADV_POPULATE_WRITE);
        ring->populated = end;
    }
#else
    (void)ring;
#endif
}

/* --- beside the blocks -------------------------------------------------------------- */

void sonde__record_ring_mark(sonde__record_ring *ring, sonde__record_checkpoint *mark)
{
    mark->sequence = ++ring->sequence;
    mark->tail = ring->read;
    mark->check = check_of(mark);
    sonde__record_checkpoint *to = &ring->shared->marks[mark->sequence % 2];
    *to = *mark;
    /* the tail, which is stored next with release, frees blocks after the mark is whole
     */
}

void sonde__record_ring_close(sonde__record_ring *ring, uint32_t reason)
{
    atomic_store(&ring->shared->reason, reason);
    atomic_store(&ring->shared->closing, 1);
}

int sonde__record_ring_set_id(sonde__record_ring *ring, uint32_t id, uint32_t value)
{
    const off_t place =
        (off_t)(SONDE__RING_PAGE + ring->size + (uint64_t)id * sizeof value);

    value++; /* a hole reads as no id */
    return ring->file < 0 ? 0
           : pwrite(ring->file, &value, sizeof value, place) == (ssize_t)sizeof value
               ? 0
               : errno;
}

int sonde__record_ring_get_id(const sonde__record_ring *ring, uint32_t id,
                              uint32_t *value)
{
    const off_t place =
        (off_t)(SONDE__RING_PAGE + ring->size + (uint64_t)id * sizeof *value);
    const ssize_t got =
        ring->file >= 0 ? pread(ring->file, value, sizeof *value, place) : 0;

    if (got != (ssize_t)sizeof *value) {
        return got < 0 ? errno : ENODATA;
    }
    --*value;
    return 0;
}

void *sonde__record_ring_large(sonde__record_ring *ring, size_t size)
{
    char path[PATH_ROOM];

    if (size <= ring->large_size) {
        return ring->large;
    }
    if (ring->file < 0) {
        sonde__free(ring->large);
        ring->large = sonde__malloc(size);
        ring->large_size = ring->large != NULL ? size : 0;
        return ring->large;
    }
    if (ring->large != NULL) {
        (void)munmap(ring->large, ring->large_size);
        ring->large = NULL;
        ring->large_size = 0;
    }
    const int fd = open(large_path(ring, path), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
    if (fd < 0) {
        return NULL;
    }
    if (reserve_space(fd, size) == 0) {
        ring->large = map(fd, size);
        ring->large_size = ring->large != NULL ? size : 0;
    }
    (void)close(fd);
    return ring->large;
}

void *sonde__record_ring_find_large(sonde__record_ring *ring, size_t size)
{
    char path[PATH_ROOM];
    struct stat about;
    void *mapped = NULL;

    if (size <= ring->large_size) {
        return ring->large;
    }
    const int fd = open(large_path(ring, path), O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        ring->fault = errno != ENOENT ? errno : 0;
        return NULL;
    }
    if (fstat(fd, &about) != 0) {
        ring->fault = errno;
    } else if ((uint64_t)about.st_size >= size) {
        mapped = map(fd, size);
        ring->fault = mapped == NULL ? errno : 0;
    }
    (void)close(fd);
    if (mapped != NULL) {
        if (ring->large != NULL) {
            (void)munmap(ring->large, ring->large_size);
        }
        ring->large = mapped;
        ring->large_size = size;
    }
    return mapped;
}

void sonde__record_ring_put_away(sonde__record_ring *ring)
{
    char path[PATH_ROOM];

    (void)snprintf(path, sizeof path, "%s.damaged", ring->path);
    (void)rename(ring->path, path);
}

/* --- after the process -------------------------------------------------------------- */

static bool is_valid(const sonde__record_checkpoint *mark)
{
    return mark->sequence > 0 && mark->check == check_of(mark);
}

static bool is_ours(const sonde__record_ring_head *head, uint64_t file, const char *run,
                    int worker)
{
    return memcmp(head->magic, MAGIC, sizeof MAGIC) == 0 && head->version == VERSION &&
           head->worker == (uint32_t)worker &&
           memcmp(head->run, run, sizeof head->run) == 0 &&
           head->offset == SONDE__RING_PAGE && head->size >= SONDE__RING_PAGE &&
           (head->size & (head->size - 1)) == 0 && head->size <= file - SONDE__RING_PAGE;
}

static int take_over(sonde__record_ring *ring, sonde__record_checkpoint *mark)
{
    const sonde__record_checkpoint *const marks = ring->shared->marks;
    const bool second = is_valid(&marks[1]) &&
                        (!is_valid(&marks[0]) || marks[1].sequence > marks[0].sequence);
    char boot[64];
    SONDE__TRY_ERRNO(read_boot(boot));
    *mark = marks[second];
    if (!is_valid(mark) ||
        atomic_load(&ring->shared->head) - mark->tail > ring->shared->size) {
        return EBADMSG;
    }
    atomic_store(&ring->shared->tail, mark->tail);
    ring->read = mark->tail;
    ring->sequence = mark->sequence;
    ring->restarted = memcmp(boot, ring->shared->boot, sizeof boot) != 0;
    return 0;
}

int sonde__record_ring_reopen(sonde__record_ring *ring, const char *path, const char *run,
                              int worker, sonde__record_checkpoint *mark)
{
    sonde__record_ring_head head;
    struct stat about;
    char fresh[PATH_ROOM];
    void *mapped = NULL;
    ssize_t got = 0;
    int failed = 0, fd = -1;

    (void)unlink(fresh_path(path, fresh));
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        return errno;
    }
    sonde__free(ring->path); /* of an earlier attempt */
    ring->path = sonde__strdup(path);
    if (ring->path == NULL) {
        failed = ENOMEM;
        goto error;
    }
    if (fstat(fd, &about) != 0) {
        failed = errno;
        goto error;
    }
    got = pread(fd, &head, sizeof head, 0);
    if (got != (ssize_t)sizeof head || about.st_size < SONDE__RING_PAGE ||
        !is_ours(&head, (uint64_t)about.st_size, run, worker)) {
        failed = got < 0 ? errno : EBADMSG;
        goto error;
    }
    mapped = map(fd, SONDE__RING_PAGE + head.size);
    if (mapped == NULL) {
        failed = errno;
        goto error;
    }
    sonde__record_ring_unmap(ring); /* the memory, or that of an earlier attempt */
    ring->shared = mapped;
    ring->base = (unsigned char *)mapped + SONDE__RING_PAGE;
    ring->size = (size_t)head.size;
    ring->file = fd;
    return take_over(ring, mark);

error:
    (void)close(fd);
    return failed;
}

uint64_t sonde__record_ring_cut(sonde__record_ring *ring,
                                bool (*valid)(sonde__record_ring *ring,
                                              sonde__record_block *block))
{
    const uint64_t head = atomic_load(&ring->shared->head);
    uint64_t at = ring->read;

    while (at < head) {
        const uint64_t left = SONDE_MIN(head - at, ring->size - (at & (ring->size - 1)));
        sonde__record_block *const block =
            (sonde__record_block *)(void *)(ring->base + (at & (ring->size - 1)));

        if (block->line != (uint32_t)(at / SONDE__RING_LINE) ||
            block->size % SONDE__RING_LINE != 0 || block->size == 0 ||
            block->size > left ||
            (block->kind != SONDE__BLOCK_PAD && !valid(ring, block))) {
            break;
        }
        at += block->size;
    }
    if (ring->fault != 0) {
        return 0;
    }
    ring->end = at;
    return head - at;
}
