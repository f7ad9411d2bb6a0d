/*
 * test_view.c - strided views, and the cursor that walks them, against plain index loops.
 */
#include "cmocka_all.h"

#include "base/macros.h"
#include "base/random.h"
#include "tensor/convert.h"

#include <sonde/error.h>
#include <sonde/tensor.h>

#include <stddef.h>
#include <stdint.h>
#include <string.h>

static void a_view_knows_its_shape(void **state)
{
    static float data[24];
    static const int64_t shape[] = {2, 3, 4}, none[] = {2, 0, 4};
    sonde_view view = sonde_view_of(SONDE_F32, 3, shape, data);
    const sonde_view scalar = sonde_view_of(SONDE_F32, 0, NULL, data);
    const sonde_view empty = sonde_view_of(SONDE_F32, 3, none, NULL);
    const int64_t index[] = {1, 2, 3};
    char text[64], narrow[6];

    (void)state;
    assert_int_equal(sonde_view_count(&view), 24);
    assert_true(sonde_view_is_contiguous(&view));
    assert_ptr_equal(sonde_view_at(&view, index), data + 23);
    assert_int_equal(sonde_view_count(&scalar), 1);
    assert_true(sonde_view_is_contiguous(&scalar));
    assert_int_equal(sonde_view_count(&empty), 0);
    assert_true(sonde_view_is_contiguous(&empty));
    assert_false(sonde_view_same_shape(&view, &empty));
    assert_string_equal(sonde_shape_text(3, shape, text, sizeof text), "(2, 3, 4)");
    assert_string_equal(sonde_shape_text(0, NULL, text, sizeof text), "()");
    assert_string_equal(sonde_shape_text(3, shape, narrow, sizeof narrow), "(2, 3");
    view.stride[0] = 13;
    assert_false(sonde_view_is_contiguous(&view));
    view.shape[0] = 1; /* a stride that nobody takes */
    assert_true(sonde_view_is_contiguous(&view));
}

/* A random view over one of two halves of a buffer, with strides that may be permuted,
 * negative, zero or padded. */
static sonde_view random_view(uint64_t seed, sonde_dtype dtype, void *middle)
{
    sonde_view view = {.dtype = dtype, .data = middle};
    uint32_t order[5];
    int64_t stride = 1;

    view.rank = (int)sonde__below(seed, 0, 0, 6);
    sonde__permute(seed, 1, (uint32_t)SONDE_MAX(view.rank, 1), order);
    for (int d = 0; d < view.rank; d++) {
        view.shape[d] = (int64_t)sonde__below(seed, 2, (uint64_t)d, 5);
    }
    for (int k = 0; k < view.rank; k++) {
        const int d = (int)order[k];

        view.stride[d] = stride;
        stride *= SONDE_MAX(view.shape[d], 1);
        stride += (int64_t)sonde__below(seed, 3, (uint64_t)k, 2);
        if (sonde__below(seed, 4, (uint64_t)k, 4) == 0) {
            view.stride[d] = -view.stride[d];
        }
    }
    return view;
}

/* The i-th index of a shape in row-major order. */
static void unravel(const sonde_view *view, int64_t i, int64_t *index)
{
    for (int d = view->rank - 1; d >= 0; d--) {
        index[d] = i % view->shape[d];
        i /= view->shape[d];
    }
}

enum { REACH = 16384 }; /* elements to either side of a random view's first */

static void copies_agree_with_index_loops(void **state)
{
    static _Alignas(16) unsigned char from[REACH * 32], to[REACH * 32];

    (void)state;
    for (uint64_t seed = 0; seed < 400; seed++) {
        const sonde_dtype a = (sonde_dtype)sonde__below(seed, 5, 0, SONDE_DTYPE_COUNT);
        const sonde_dtype b = (sonde_dtype)sonde__below(seed, 5, 1, SONDE_DTYPE_COUNT);
        const sonde_view src = random_view(seed, a, from + REACH * 16);
        sonde_view dst = random_view(seed + 1000, b, to + REACH * 16);
        const int64_t count = sonde_view_count(&src);
        int64_t index[SONDE_MAX_DIMS];

        dst.rank = src.rank; /* dst: dense in another order of dimensions */
        memcpy(dst.shape, src.shape, sizeof dst.shape);
        for (int d = 0, stride = 1; d < dst.rank; d++) {
            dst.stride[d] = d % 2 == 1 ? -stride : stride;
            stride *= (int)SONDE_MAX(dst.shape[d], 1);
        }
        for (int64_t i = 0; i < count; i++) {
            unravel(&src, i, index);
            sonde_element_set(a, sonde_view_at(&src, index), (double)(i % 100));
        }
        memset(to, 0x5A, sizeof to);
        assert_int_equal(sonde_view_copy(&dst, &src, NULL), SONDE_OK);
        for (int64_t i = 0; i < count; i++) {
            _Alignas(16) unsigned char expected[16];

            unravel(&src, i, index);
            sonde_element_set(b, expected,
                              sonde_element_get(a, sonde_view_at(&src, index)));
            assert_memory_equal(sonde_view_at(&dst, index), expected,
                                sonde_dtype_size(b));
        }
    }
}

static void a_cursor_gives_the_elements_in_order(void **state)
{
    static int32_t data[2 * REACH];
    int32_t room[7];

    (void)state;
    for (uint64_t seed = 0; seed < 200; seed++) {
        const sonde_view view = random_view(seed, SONDE_I32, data + REACH);
        const int64_t count = sonde_view_count(&view);
        sonde__tensor_cursor cursor;
        const void *elements = NULL;
        int64_t index[SONDE_MAX_DIMS], i = 0;
        size_t n = 0;

        for (int64_t k = 0; k < 2 * REACH; k++) {
            data[k] = (int32_t)k;
        }
        sonde__tensor_cursor_init(&cursor, &view);
        while ((n = sonde__tensor_cursor_take(&cursor, 7, room, &elements)) > 0) {
            for (size_t k = 0; k < n; k++, i++) {
                unravel(&view, i, index);
                assert_memory_equal((const int32_t *)elements + k,
                                    sonde_view_at(&view, index), sizeof(int32_t));
            }
        }
        assert_int_equal(i, count);
    }
}

static void broadcast_and_unaligned_views_copy(void **state)
{
    static const int64_t shape[] = {3, 4}, flat[] = {5};
    _Alignas(8) unsigned char bytes[64];
    float row[4] = {1, 2, 3, 4}, out[12] = {0};
    double wide[5] = {0};
    sonde_view src = sonde_view_of(SONDE_F32, 2, shape, row);
    sonde_view dst = sonde_view_of(SONDE_F32, 2, shape, out);

    (void)state;
    src.stride[0] = 0;
    assert_int_equal(sonde_view_copy(&dst, &src, NULL), SONDE_OK);
    assert_memory_equal(out, row, sizeof row);
    assert_memory_equal(out + 8, row, sizeof row);
    memcpy(bytes + 3, row, sizeof row);
    memcpy(bytes + 3 + sizeof row, row, sizeof row[0]);
    src = sonde_view_of(SONDE_F32, 1, flat, bytes + 3);
    dst = sonde_view_of(SONDE_F64, 1, flat, wide);
    assert_int_equal(sonde_view_copy(&dst, &src, NULL), SONDE_OK);
    assert_true(wide[0] == 1.0 && wide[3] == 4.0 && wide[4] == 1.0);
}

static void a_copy_of_another_shape_is_refused(void **state)
{
    static const int64_t a[] = {2, 3}, b[] = {3, 2};
    float x[6] = {0}, y[6] = {0};
    const sonde_view src = sonde_view_of(SONDE_F32, 2, a, x);
    const sonde_view dst = sonde_view_of(SONDE_F32, 2, b, y);
    sonde_view odd = src;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    assert_int_equal(sonde_view_copy(&dst, &src, &diag), SONDE_ESHAPE);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "copy: source of shape (2, 3) (expected (3, 2))");
    odd.dtype = (sonde_dtype)77;
    assert_int_equal(sonde_view_copy(&src, &odd, &diag), SONDE_EDTYPE);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_view_knows_its_shape),
        cmocka_unit_test(copies_agree_with_index_loops),
        cmocka_unit_test(a_cursor_gives_the_elements_in_order),
        cmocka_unit_test(broadcast_and_unaligned_views_copy),
        cmocka_unit_test(a_copy_of_another_shape_is_refused),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
