/*
 * half_tiles_kernels.c - see gemm.h. Only AVX-512 has something here.
 */
#include "base/isa.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/vec.h"

#include <string.h>

#if VF_WIDTH == 16

#define HALF_AVX512 __attribute__((target("avx512bf16")))
#define HALF_AMX __attribute__((target("avx512bf16,amx-tile,amx-bf16")))

enum { TILE = SONDE__KERNEL_TILE };

typedef sonde__kernel_half_tiles product;

/* Up to 32 x 32 sums. */
typedef struct square {
    const product *p;
    const char *a[2];     /* rows 0 and 16 */
    const uint16_t *b[2]; /* columns 0 and 16 */
    float *c;
    int down, across; /* 1 or 2 */
} square;

typedef void square_fn(const square *s);

/* --- AVX-512 ------------------------------------------------------------------------ */

/* Eight rows of a square. */
HALF_AVX512 static inline __attribute__((always_inline)) void
dot_rows(const square *s, const char *a, float *c, const int across)
{
    const product *const p = s->p;
    vf acc[8][2];

    VEC_TILE (i, 8, j, across) {
        acc[i][j] = p->resume ? vf_load(c + i * p->c_row + j * 16) : (vf){0};
    }
    for (int64_t k = 0; k < p->tiles * 16; k++) {
        const int64_t tile = k / 16, pair = k % 16;
        const char *const rows = a + p->a_at[tile] + pair * 4;
        __m512bh b[2];

        VEC_EACH (j, across) {
            b[j] = (__m512bh)_mm512_loadu_si512(s->b[j] + tile * TILE + pair * 32);
        }
        VEC_EACH (i, 8) {
            int32_t two = 0;

            memcpy(&two, rows + i * p->a_row, sizeof two);
            VEC_EACH (j, across) {
                acc[i][j] = (vf)_mm512_dpbf16_ps((__m512)acc[i][j],
                                                 (__m512bh)_mm512_set1_epi32(two), b[j]);
            }
        }
    }
    VEC_TILE (i, 8, j, across) {
        vf_store(c + i * p->c_row + j * 16, acc[i][j]);
    }
}

HALF_AVX512 static void dot_square(const square *s)
{
    for (int i = 0; i < 2 * s->down; i++) {
        const char *const a = s->a[i / 2] + i % 2 * 8 * s->p->a_row;
        float *const c = s->c + i * 8 * s->p->c_row;

        if (s->across == 2) {
            dot_rows(s, a, c, 2);
        } else {
            dot_rows(s, a, c, 1);
        }
    }
}

/* --- AMX ---------------------------------------------------------------------------- */

/* Compilers do not know that a tile is loaded from memory: what is in it is stored
 * before. */
#define SETTLE __asm__ volatile("" ::: "memory")

HALF_AMX static inline __attribute__((always_inline)) void begin_sums(const square *s)
{
    const size_t line = (size_t)s->p->c_row * sizeof(float);
    float *const second = s->c + (s->down - 1) * 16 * s->p->c_row;

    if (!s->p->resume) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        return;
    }
    _tile_loadd(0, s->c, line);
    _tile_loadd(1, s->c + (s->across - 1) * 16, line);
    _tile_loadd(2, second, line);
    _tile_loadd(3, second + (s->across - 1) * 16, line);
}

HALF_AMX static inline __attribute__((always_inline)) void end_sums(const square *s)
{
    const size_t line = (size_t)s->p->c_row * sizeof(float);
    float *const second = s->c + 16 * s->p->c_row;

    _tile_stored(0, s->c, line);
    if (s->across == 2) {
        _tile_stored(1, s->c + 16, line);
    }
    if (s->down == 2) {
        _tile_stored(2, second, line);
    }
    if (s->down == 2 && s->across == 2) {
        _tile_stored(3, second + 16, line);
    }
}

/* Tiles 0, 1: sums of the first rows; 2, 3: of the second; 4, 5: A; 6, 7: B. */
HALF_AMX __attribute__((noinline)) static void tile_square(const square *s)
{
    const product *const p = s->p;
    const size_t line = (size_t)p->a_row;

    SETTLE;
    begin_sums(s);
    if (s->down == 2 && s->across == 2) {
        for (int64_t k = 0; k < p->tiles; k++) {
            _tile_loadd(4, s->a[0] + p->a_at[k], line);
            _tile_loadd(6, s->b[0] + k * TILE, 64);
            _tile_loadd(7, s->b[1] + k * TILE, 64);
            _tile_dpbf16ps(0, 4, 6);
            _tile_loadd(5, s->a[1] + p->a_at[k], line);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
    }
    for (int64_t k = 0; k < p->tiles && s->down + s->across < 4; k++) {
        _tile_loadd(4, s->a[0] + p->a_at[k], line);
        _tile_loadd(6, s->b[0] + k * TILE, 64);
        _tile_dpbf16ps(0, 4, 6);
        if (s->across == 2) {
            _tile_loadd(7, s->b[1] + k * TILE, 64);
            _tile_dpbf16ps(1, 4, 7);
        }
        if (s->down == 2) {
            _tile_loadd(5, s->a[1] + p->a_at[k], line);
            _tile_dpbf16ps(2, 5, 6);
        }
    }
    end_sums(s);
    SETTLE;
}

/* Palette 1, eight tiles of 16 rows of 64 bytes. */
HALF_AMX static void begin_tiles(void)
{
    struct {
        uint8_t palette, start, reserved[14];
        uint16_t bytes[16];
        uint8_t rows[16];
    } layout = {.palette = 1};

    for (int i = 0; i < 8; i++) {
        layout.bytes[i] = 64;
        layout.rows[i] = 16;
    }
    SETTLE;
    _tile_loadconfig(&layout);
}

HALF_AMX static void end_tiles(void)
{
    _tile_release();
}

/* --- the product -------------------------------------------------------------------- */

static void run_squares(const product *p, square_fn *run)
{
    square s = {.p = p};

    for (int64_t j = 0; j < p->n; j += 32) {
        s.across = p->n - j > 16 ? 2 : 1;
        s.b[0] = p->b + j / 16 * p->tiles * TILE;
        s.b[1] = s.b[0] + (s.across - 1) * p->tiles * TILE;
        for (int64_t i = 0; i < p->m; i += 32) {
            s.down = p->m - i > 16 ? 2 : 1;
            s.a[0] = (const char *)p->a + i / 16 * p->a_rows;
            s.a[1] = s.a[0] + (s.down - 1) * p->a_rows;
            s.c = p->c + i * p->c_row + j;
            run(&s);
        }
    }
}

static void run_tiles(const product *p, sonde__half unit)
{
    if (unit != SONDE__HALF_AMX) {
        run_squares(p, dot_square);
        return;
    }
    begin_tiles();
    run_squares(p, tile_square);
    end_tiles();
}

/* --- layouts ------------------------------------------------------------------------ */

/* Of two rows of n (up to 16) adjacent numbers, pairs. */
VEC_INLINE vf load_pairs(const uint16_t *first, const uint16_t *second, int64_t n)
{
    const __mmask16 mask = (__mmask16)(n >= 16 ? 0xFFFFU : (1U << (uint32_t)n) - 1U);
    const __m256i low =
        first == NULL ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, first);
    const __m256i high =
        second == NULL ? _mm256_setzero_si256() : _mm256_maskz_loadu_epi16(mask, second);

    return (vf)_mm512_or_si512(_mm512_cvtepu16_epi32(low),
                               _mm512_slli_epi32(_mm512_cvtepu16_epi32(high), 16));
}

static void turn(const uint16_t *x, int64_t plane, int64_t channels, int64_t count,
                 uint16_t *rows)
{
    for (int64_t i = 0; i < count; i += 16) {
        vf v[16];

        VEC_EACH (p, 16) {
            const uint16_t *const first = x + 2 * p * plane + i;

            v[p] = load_pairs(2 * p < channels ? first : NULL,
                              2 * p + 1 < channels ? first + plane : NULL, count - i);
        }
        vf_transpose(v);
        for (int p = 0; p < 16 && i + p < count; p++) {
            _mm512_storeu_si512(rows + (i + p) * 32, (__m512i)v[p]);
        }
    }
}

static void pack(const uint16_t *x, int64_t row, int64_t rows, int64_t tiles, uint16_t *b)
{
    for (int64_t t = 0; t < tiles; t++) {
        vf v[16];

        VEC_EACH (j, 16) {
            v[j] = j < rows ? (vf)_mm512_loadu_si512(x + j * row + t * 32) : (vf){0};
        }
        vf_transpose(v);
        VEC_EACH (j, 16) {
            _mm512_storeu_si512(b + t * TILE + j * 32, (__m512i)v[j]);
        }
    }
}

static void turn_sums(const float *c, int64_t m, float *out, int64_t row)
{
    for (int64_t i = 0; i < m; i += 16) {
        for (int64_t j = 0; j < 32; j += 16) {
            vf v[16];

            VEC_EACH (k, 16) {
                v[k] = vf_load(c + (i + k) * 32 + j);
            }
            vf_transpose(v);
            VEC_EACH (k, 16) {
                vf_store(out + (j + k) * row + i, v[k]);
            }
        }
    }
}

const sonde__kernel_half_tile_kernels ISA(sonde__kernel_half_tile) = {
    .run = run_tiles,
    .turn = turn,
    .pack = pack,
    .turn_sums = turn_sums,
};

#else

const sonde__kernel_half_tile_kernels ISA(sonde__kernel_half_tile) = {0};

#endif
