/*
 * base.h - what every room of Sonde stands on: failing, allocating, interning, time.
 *
 * Internal. Names with sonde__ are shared by Sonde's own libraries and promised to nobody.
 */
#ifndef SONDE_BASE_BASE_H
#define SONDE_BASE_BASE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sonde/error.h>

#if defined(__FINITE_MATH_ONLY__) && __FINITE_MATH_ONLY__
#error "Sonde looks for NaN: build it without -ffast-math"
#endif

#define SONDE_COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define SONDE_MIN(a, b) ((a) < (b) ? (a) : (b))
#define SONDE_MAX(a, b) ((a) > (b) ? (a) : (b))

/* --- failing (diag.c) ------------------------------------------------------------- */

/* Fills diag (may be NULL) and returns err, so that a failure is one return statement.
 * where and expected may be NULL. */
SONDE_API sonde_err sonde__fail(sonde_diag *diag, sonde_err err, const char *where,
                                const char *expected, const char *found, ...)
    SONDE_PRINTF(5, 6);
/* The same with errno's text behind found: "cannot open: No such file or directory". The
 * code is SONDE_ENOTFOUND for ENOENT, SONDE_ENOMEM for ENOMEM, SONDE_EEXIST for EEXIST,
 * else SONDE_EIO. */
SONDE_API sonde_err sonde__fail_errno(sonde_diag *diag, const char *where,
                                      const char *found);
/* SONDE_ENOMEM, with what could not be allocated. */
SONDE_API sonde_err sonde__fail_nomem(sonde_diag *diag, const char *what);

/* Edit distance of two names, and the candidate nearest to name: NULL if none is near
 * enough to be meant (more than a third of the letters differ). */
SONDE_API const char *sonde__nearest(const char *name, const char *const *candidates,
                                     size_t count);
SONDE_API size_t sonde__edit_distance(const char *a, const char *b);

/* --- allocating (alloc.c) --------------------------------------------------------- */

enum { SONDE__ALIGN = 64 }; /* a cache line, and the widest vector */

/* All through the seam of <sonde/alloc.h>. size 0 gives a block of one byte. */
SONDE_API void *sonde__malloc(size_t size);
SONDE_API void *sonde__calloc(size_t count, size_t size); /* NULL also on overflow */
SONDE_API void *sonde__malloc_aligned(size_t align, size_t size);
SONDE_API void *sonde__grow(void *ptr, size_t old_size,
                            size_t new_size); /* ptr kept on NULL */
SONDE_API void sonde__free(void *ptr);        /* NULL is fine */
SONDE_API char *sonde__strdup(const char *text);
SONDE_API char *sonde__strndup(const char *text, size_t length);

/* false on overflow; *out is written only on success. */
static inline bool sonde__mul(size_t a, size_t b, size_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

/* Makes room for one more element in a growable array: *capacity counts elements. */
SONDE_API bool sonde__reserve(void *array_ptr, size_t *capacity, size_t needed,
                              size_t element_size);

/* --- interned names (names.c) ----------------------------------------------------- */

/*
 * A set of strings that get dense ids 0, 1, 2 ... in order of arrival. Text lives until
 * fini. One thread at a time. Interning costs a hash; looking a text up by id is an index.
 */
typedef struct sonde__names {
    char **text;
    size_t count, capacity;
    uint32_t *slots; /* open addressing; id + 1, 0 is empty */
    size_t slot_count;
} sonde__names;

#define SONDE__NO_NAME UINT32_MAX

SONDE_API void sonde__names_init(sonde__names *names);
SONDE_API void sonde__names_fini(sonde__names *names);
/* The id of text, new if need be; SONDE__NO_NAME if memory is out. */
SONDE_API uint32_t sonde__names_intern(sonde__names *names, const char *text);
/* SONDE__NO_NAME if text was never interned. */
SONDE_API uint32_t sonde__names_find(const sonde__names *names, const char *text);

/* --- arena (arena.c) -------------------------------------------------------------- */

/*
 * One block, handed out from front to back, freed at once:
 *
 *     base                          used            size
 *      | object | pad | object | ... |     free      |
 *
 * With base NULL nothing is handed out but the space is counted, so the same code runs once
 * to measure and once to place.
 */
typedef struct sonde__arena {
    unsigned char *base;
    size_t used, size;
} sonde__arena;

SONDE_API sonde_err sonde__arena_init(sonde__arena *arena,
                                      size_t size); /* aligned block */
SONDE_API void sonde__arena_fini(sonde__arena *arena);
/* NULL while measuring and when the block is full (asserted: measuring was wrong). */
SONDE_API void *sonde__arena_take(sonde__arena *arena, size_t align, size_t size);

/* --- clock, processor (clock.c, cpu.c) -------------------------------------------- */

SONDE_API double sonde__now(void);   /* seconds, monotonic */
SONDE_API int64_t sonde__date(void); /* ns since 1970, UTC: of the wall's clock */

typedef enum sonde__isa {
    SONDE__GENERIC = 0,
    SONDE__AVX2 = 1,
    SONDE__AVX512 = 2
} sonde__isa;
/* The best that this processor and SONDE_ISA allow; found once. */
SONDE_API sonde__isa sonde__cpu_isa(void);
SONDE_API const char *sonde__isa_name(void); /* "generic", "avx2", "avx512" */
SONDE_API int sonde__cpu_count(void);        /* that this process may run on */

/* --- counter-based random numbers (random.c) -------------------------------------- */

/*
 * Philox4x32-10 (Salmon, Moraes, Dror and Shaw 2011): the i-th block of stream s under a
 * seed is a pure function of (seed, s, i), so threads and restarts change nothing.
 */
SONDE_API void sonde__philox(uint64_t seed, uint64_t stream, uint64_t index,
                             uint32_t out[4]);
/* Uniform in [0, 1) with 24 bits; uniform integer in [0, bound), unbiased. */
SONDE_API float sonde__uniform(uint64_t seed, uint64_t stream, uint64_t index);
SONDE_API uint64_t sonde__below(uint64_t seed, uint64_t stream, uint64_t index,
                                uint64_t bound);
/* Standard normal (Box and Muller 1958). */
SONDE_API float sonde__normal(uint64_t seed, uint64_t stream, uint64_t index);
/* A permutation of 0 ... count - 1 (Fisher and Yates), count entries at out. */
SONDE_API void sonde__permute(uint64_t seed, uint64_t stream, uint32_t count,
                              uint32_t *out);

#endif
