/*
 * gemm_kernels.c - see gemm.h: the product in blocks of scratch, one tile of C in
 * registers at a time.
 *
 * Blocks of B, SONDE__KERNEL_GEMM_K x SONDE__KERNEL_GEMM_N, are copied to strips [k][STRIP], blocks of
 * A to strips [k][ROWS]; what is missing in the last of them is 0, and what it yields is
 * not stored. A tile goes over the k of a block; the next block resumes from C.
 */
#include "base/isa.h"
#include "base/macros.h"
#include "nn/kernels/gemm.h"
#include "nn/kernels/vec.h"

enum {
    ROWS = VF_TILE_ROWS,
    VECS = VF_TILE_VECS,
    STRIP = VECS * VF_WIDTH,
    BLOCK_K = SONDE__KERNEL_GEMM_K,
    BLOCK_M = SONDE__KERNEL_GEMM_M,
    BLOCK_N = SONDE__KERNEL_GEMM_N,
    FEW_ROWS = 2 * ROWS
};

/* --- copies ------------------------------------------------------------------------- */

/* A strip of rows that lie side by side in memory at every p. */
static void pack_columns(const float *from, int64_t col, int64_t depth, int width,
                         int filled, float *strip)
{
    for (int64_t p = 0; p < depth; p++) {
        for (int w = 0; w < filled; w++) {
            strip[p * width + w] = from[p * col + w];
        }
    }
}

/* The same of rows whose own numbers lie side by side: squares, transposed. */
static void pack_rows(const float *from, int64_t row, int64_t depth, int width,
                      int filled, float *strip)
{
    for (int w = 0; w < filled; w += VF_WIDTH) {
        const int rows = SONDE_MIN(filled - w, VF_WIDTH);

        for (int64_t p = 0; p < depth; p += VF_WIDTH) {
            const int terms = (int)SONDE_MIN(depth - p, (int64_t)VF_WIDTH);
            vf square[VF_WIDTH];

            VEC_EACH (i, VF_WIDTH) {
                square[i] = (vf){0};
                if (i < rows) {
                    const float *const at = from + (w + i) * row + p;

                    square[i] = terms == VF_WIDTH ? vf_load(at) : vf_load_n(at, terms);
                }
            }
            vf_transpose(square);
            VEC_EACH (i, VF_WIDTH) {
                float *const to = strip + (p + i) * width + w;

                if (i < terms && rows == VF_WIDTH) {
                    vf_store(to, square[i]);
                } else if (i < terms) {
                    vf_store_n(to, square[i], rows);
                }
            }
        }
    }
}

/* A strip of rows that lie anywhere. */
static void pack_any(const sonde__kernel_gemm_matrix *x, const float *from, int64_t depth,
                     int width, int filled, float *strip)
{
    for (int w = 0; w < filled; w++) {
        for (int64_t p = 0; p < depth; p++) {
            strip[p * width + w] = from[w * x->row + p * x->col];
        }
    }
}

/* strips[s][p][width] = (row s * width + w, p) of a matrix of count rows and `depth`
 * columns; 0 beyond the last row. */
static void pack(const sonde__kernel_gemm_matrix *x, int64_t count, int64_t depth,
                 int width, float *strips)
{
    for (int64_t first = 0; first < count; first += width) {
        const int filled = (int)SONDE_MIN(count - first, (int64_t)width);
        const float *const from = x->data + first * x->row;

        if (x->row == 1) {
            pack_columns(from, x->col, depth, width, filled, strips);
        } else if (x->col == 1) {
            pack_rows(from, x->row, depth, width, filled, strips);
        } else {
            pack_any(x, from, depth, width, filled, strips);
        }
        for (int64_t p = 0; p < depth && filled < width; p++) {
            for (int w = filled; w < width; w++) {
                strips[p * width + w] = 0.0F;
            }
        }
        strips += depth * width;
    }
}

/* --- tiles -------------------------------------------------------------------------- */

typedef struct tile {
    const float *a; /* [depth][ROWS] */
    const float *b; /* rows b_row apart */
    int64_t b_row, depth;
    float *c;
    int64_t c_row;
    int rows, cols; /* that exist */
    bool resume;
} tile;

VEC_INLINE void tile_load(const tile *t, const int vecs, vf acc[ROWS][VECS])
{
    VEC_TILE (r, ROWS, v, vecs) {
        acc[r][v] = (vf){0};
    }
    if (!t->resume) {
        return;
    }
    VEC_TILE (r, ROWS, v, vecs) {
        const float *const c = t->c + r * t->c_row + v * VF_WIDTH;

        if (r < t->rows) {
            acc[r][v] = t->cols - v * VF_WIDTH >= VF_WIDTH
                            ? vf_load(c)
                            : vf_load_n(c, SONDE_MAX(t->cols - v * VF_WIDTH, 0));
        }
    }
}

VEC_INLINE void tile_store(const tile *t, const int vecs, vf acc[ROWS][VECS])
{
    VEC_TILE (r, ROWS, v, vecs) {
        float *const c = t->c + r * t->c_row + v * VF_WIDTH;
        const int left = t->cols - v * VF_WIDTH;

        if (r < t->rows && left >= VF_WIDTH) {
            vf_store(c, acc[r][v]);
        } else if (r < t->rows && left > 0) {
            vf_store_n(c, acc[r][v], left);
        }
    }
}

VEC_INLINE void tile_run(const tile *t, const int vecs)
{
    const float *a = t->a, *b = t->b;
    vf acc[ROWS][VECS];

    tile_load(t, vecs, acc);
    for (int64_t p = 0; p < t->depth; p++) {
        vf x[VECS];

        VEC_EACH (v, vecs) {
            x[v] = vf_load(b + v * VF_WIDTH);
        }
        VEC_EACH (r, ROWS) {
            const vf w = vf_set1(a[r]);

            VEC_EACH (v, vecs) {
                acc[r][v] = vf_fma(w, x[v], acc[r][v]);
            }
        }
        a += ROWS;
        b += t->b_row;
    }
    tile_store(t, vecs, acc);
}

#define DEFINE_TILE(name, vecs)                                                          \
    static void name##_##vecs(const tile *t)                                             \
    {                                                                                    \
        tile_run(t, vecs);                                                               \
    }
#define LIST_TILE(name, vecs) name##_##vecs,

VF_UP_TO_TILE_VECS(DEFINE_TILE, run_tile)

static void (*const tiles[])(const tile *t) = {VF_UP_TO_TILE_VECS(LIST_TILE, run_tile)};

/* --- blocks ------------------------------------------------------------------------- */

/* Of C, rows first ... first + rows - 1 and one block of columns and of k. */
typedef struct block {
    int64_t row, rows, col, cols, p, depth;
} block;

/* The tiles of a block. b: strips, or NULL: B is read where it lies. */
static void run_block(const sonde__kernel_gemm *g, const block *k, const float *a,
                      const float *b)
{
    for (int64_t j = 0; j < k->cols; j += STRIP) {
        tile t = {
            .depth = k->depth, .c_row = g->c_row, .resume = g->accumulate || k->p > 0};

        t.b = b == NULL ? g->b.data + k->p * g->b.row + k->col + j : b + j * k->depth;
        t.b_row = b == NULL ? g->b.row : STRIP;
        t.cols = (int)SONDE_MIN(k->cols - j, (int64_t)STRIP);
        for (int64_t i = 0; i < k->rows; i += ROWS) {
            t.a = a + i * k->depth;
            t.c = g->c + (k->row + i) * g->c_row + k->col + j;
            t.rows = (int)SONDE_MIN(k->rows - i, (int64_t)ROWS);
            tiles[(t.cols - 1) / VF_WIDTH](&t);
        }
    }
}

/* Where the strips of a block lie in packed: blocks of k follow one another within those
 * of columns. */
static float *packed_block(const sonde__kernel_gemm *g, const block *k)
{
    const int64_t whole = (k->cols + STRIP - 1) / STRIP * STRIP;

    return g->packed + k->col * g->k + k->p * whole;
}

/* All rows of a block of columns and of k. */
static void run_columns(const sonde__kernel_gemm *g, block k, float *scratch)
{
    float *const a = scratch;
    float *const b =
        g->packed != NULL ? packed_block(g, &k) : scratch + BLOCK_K * BLOCK_M;
    const bool in_place =
        g->packed == NULL && g->b.col == 1 && g->m <= FEW_ROWS && k.cols % VF_WIDTH == 0;
    const sonde__kernel_gemm_matrix columns = {
        g->b.data + k.p * g->b.row + k.col * g->b.col, g->b.col, g->b.row};

    if (g->packs || (g->packed == NULL && !in_place)) {
        pack(&columns, k.cols, k.depth, STRIP, b);
    }
    if (g->packs) {
        return;
    }
    for (k.row = 0; k.row < g->m; k.row += BLOCK_M) {
        const sonde__kernel_gemm_matrix rows = {
            g->a.data + k.row * g->a.row + k.p * g->a.col, g->a.row, g->a.col};

        k.rows = SONDE_MIN(g->m - k.row, (int64_t)BLOCK_M);
        pack(&rows, k.rows, k.depth, ROWS, a);
        run_block(g, &k, a, in_place ? NULL : b);
    }
}

static void clear(const sonde__kernel_gemm *g)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            g->c[i * g->c_row + j] = 0.0F;
        }
    }
}

void ISA(sonde__kernel_gemm_run)(const sonde__kernel_gemm *g, void *scratch)
{
    if (g->k == 0 && !g->accumulate && !g->packs) {
        clear(g);
    }
    for (int64_t j = 0; j < g->n; j += BLOCK_N) {
        for (int64_t p = 0; p < g->k; p += BLOCK_K) {
            const block k = {.col = j,
                             .cols = SONDE_MIN(g->n - j, (int64_t)BLOCK_N),
                             .p = p,
                             .depth = SONDE_MIN(g->k - p, (int64_t)BLOCK_K)};

            run_columns(g, k, scratch);
        }
    }
}
