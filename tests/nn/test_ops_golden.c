/*
 * test_ops_golden.c - every kernel of every op against what PyTorch answers.
 *
 * tests/golden/ops holds cases written by tests/python/make_ops_golden.py. Each is run by
 * the reference in float32 and float64, and by every other kernel of its op, in every
 * layout the kernel takes, in one part and in three, with optional outputs and without.
 */
#include "nn/ops_harness.h"
#include "base/macros.h"

#include <sonde/safetensors.h>

#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

/* PyTorch sums in float32 in its own order; so do fast kernels. A sum of K terms is off
 * by about sqrt(K) * 6e-8 of its terms' size; with K up to a thousand here, 4e-6 of the
 * largest element is twice that. */
static const double rounding = 4e-6;

typedef struct golden {
    char name[64];
    op_run run;
    sonde__operand expected[SONDE__MAX_OPERANDS]; /* data NULL: not compared */
    bool exact;
} golden;

static sonde_safetensors *tensors;

static char *path_of(const char *file, char *buf, size_t size)
{
    const char *dir = getenv("SONDE_TEST_DIR");

    (void)snprintf(buf, size, "%s/golden/ops/%s", dir != NULL ? dir : SONDE_TEST_DIR,
                   file);
    return buf;
}

/* --- reading a case ----------------------------------------------------------------- */

static sonde__operand load(const char *name)
{
    const sonde_view *view = sonde_safetensors_find(tensors, name);
    sonde__operand operand = {.layout = SONDE__PLAIN};
    sonde_view copy;

    if (view == NULL) {
        fail_msg("no tensor %s", name);
        return operand;
    }
    operand.shape.dtype = view->dtype;
    operand.shape.rank = view->rank;
    memcpy(operand.shape.dim, view->shape, sizeof view->shape);
    operand.data = poisoned_block(plain_bytes(&operand.shape));
    copy = sonde_view_of(view->dtype, view->rank, view->shape, operand.data);
    assert_int_equal(sonde_view_copy(&copy, view, NULL), SONDE_OK);
    return operand;
}

static int read_integers(const char *text, int64_t *out, int most)
{
    int count = 0;

    for (char *end = NULL; *text != '\0' && count < most;
         text = *end == ',' ? end + 1 : end) {
        out[count++] = strtoll(text, &end, 10);
    }
    return count;
}

static void read_live(const char *text, float *live, int most)
{
    int count = 0;

    for (char *end = NULL; *text != '\0' && count < most;
         text = *end == ',' ? end + 1 : end) {
        live[count++] = strtof(text, &end);
    }
}

/* Sets a field of attrs; false: the table has none of this name. */
static bool read_field(golden *g, const sonde__op_fields *table, const char *key,
                       const char *value)
{
    for (size_t i = 0; i < table->count; i++) {
        const sonde__packed_field *field = &table->fields[i];
        char *member = (char *)&g->run.attrs + field->offset;

        if (strcmp(field->name, key) != 0) {
            continue;
        }
        switch (field->kind) {
        case SONDE__PACKED_LONG:
            (void)read_integers(value, (int64_t *)(void *)member, field->count);
            break;
        case SONDE__PACKED_WORD:
            *(int32_t *)(void *)member = (int32_t)strtol(value, NULL, 10);
            break;
        case SONDE__PACKED_REAL:
            read_live(value, (float *)(void *)member, field->count);
            break;
        case SONDE__PACKED_BOOL:
            *(bool *)member = value[0] == '1';
            break;
        }
        return true;
    }
    return false;
}

static void read_key(golden *g, const char *key, const char *value)
{
    if (strcmp(key, "live") == 0) {
        read_live(value, g->run.live, MAX_LIVE);
    } else if (strcmp(key, "exact") == 0) {
        g->exact = value[0] == '1';
    } else if (strcmp(key, "dims") == 0 &&
               sonde__op_fields_have_dims(g->run.kind->fields)) {
        g->run.attrs.shape.rank =
            read_integers(value, g->run.attrs.shape.dims, SONDE_MAX_DIMS);
    } else if (!read_field(g, g->run.kind->fields, key, value) &&
               !read_field(g, &sonde__op_fields_common, key, value)) {
        fail_msg("%s: unknown key %s", g->name, key);
    }
}

static const sonde__op_kind *kind_named(const char *name)
{
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        if (strcmp(sonde__op_kinds[i]->name, name) == 0) {
            return sonde__op_kinds[i];
        }
    }
    fail_msg("no op kind %s", name);
    return NULL;
}

static char *next_word(char **rest)
{
    return strtok_r(NULL, " \n", rest);
}

/* "NAME KIND in a,b out c,- key=value ...", which is taken apart. */
static golden read_case(char *line)
{
    golden g = {.exact = false};
    char *words = NULL, *names = NULL, *in = NULL, *out = NULL;
    int count = 0;

    (void)snprintf(g.name, sizeof g.name, "%s", strtok_r(line, " \n", &words));
    g.run.kind = kind_named(next_word(&words));
    assert_string_equal(next_word(&words), "in");
    in = next_word(&words);
    assert_string_equal(next_word(&words), "out");
    out = next_word(&words);
    for (char *key = next_word(&words); key != NULL; key = next_word(&words)) {
        char *value = strchr(key, '=');

        assert_non_null(value);
        *value = '\0';
        read_key(&g, key, value + 1);
    }
    for (char *name = strtok_r(in, ",", &names);
         name != NULL && strcmp(name, "none") != 0; name = strtok_r(NULL, ",", &names)) {
        g.run.in[g.run.in_count++] = load(name);
    }
    for (char *name = strtok_r(out, ",", &names); name != NULL;
         name = strtok_r(NULL, ",", &names), count++) {
        if (strcmp(name, "-") != 0) {
            g.expected[count] = load(name);
        }
    }
    assert_int_equal(count, g.run.kind->out_count);
    return g;
}

static void free_case(golden *g)
{
    for (int i = 0; i < g->run.in_count; i++) {
        free(g->run.in[i].data);
    }
    for (int i = 0; i < g->run.kind->out_count; i++) {
        free(g->expected[i].data);
    }
}

/* --- comparing ---------------------------------------------------------------------- */

static double element(sonde_dtype dtype, const void *data, int64_t i)
{
    return sonde_element_get(dtype,
                             (const char *)data + (size_t)i * sonde_dtype_size(dtype));
}

static bool same(double expected, double got, double tolerance)
{
    if (isnan(expected) || isnan(got)) {
        return isnan(expected) && isnan(got);
    }
    if (isinf(expected) || isinf(got)) {
        return expected == got;
    }
    return fabs(expected - got) <= tolerance;
}

/* got has the dtype that the shape rule gave; float64 is compared as float32 shows it. */
static void expect_output(const golden *g, const char *how, int i, const void *got)
{
    const sonde__operand *expected = &g->expected[i];
    const sonde__op_shape *shape = &g->run.out[i];
    const int64_t count = sonde__op_shape_count(shape);
    const bool exact = g->exact && shape->dtype != SONDE_F64;
    double largest = 0.0;

    for (int64_t k = 0; k < count; k++) {
        const double value = element(expected->shape.dtype, expected->data, k);

        largest = isfinite(value) && fabs(value) > largest ? fabs(value) : largest;
    }
    for (int64_t k = 0; k < count; k++) {
        const double wanted = element(expected->shape.dtype, expected->data, k);
        const double found = (double)(float)element(shape->dtype, got, k);

        if (!same(wanted, found, exact ? 0.0 : rounding * largest)) {
            fail_msg("%s, %s: output %d, element %lld of %lld is %.9g, PyTorch says %.9g",
                     g->name, how, i, (long long)k, (long long)count, found, wanted);
        }
    }
}

static void expect_shapes(const golden *g)
{
    for (int i = 0; i < g->run.kind->out_count; i++) {
        const sonde__op_shape *expected = &g->expected[i].shape;

        if (g->expected[i].data != NULL) {
            assert_int_equal(g->run.out[i].dtype, expected->dtype);
            assert_int_equal(g->run.out[i].rank, expected->rank);
            assert_memory_equal(g->run.out[i].dim, expected->dim,
                                (size_t)expected->rank * sizeof(int64_t));
        }
    }
}

static void free_outputs(const golden *g, void *out[])
{
    for (int i = 0; i < g->run.kind->out_count; i++) {
        free(out[i]);
    }
}

/* --- the ways to run a case --------------------------------------------------------- */

static void run_reference(golden *g, const char *how)
{
    const run_options plainly = {.any = SONDE__PLAIN, .parts = 1};
    void *out[SONDE__MAX_OPERANDS] = {NULL};

    run_kernel(&g->run, reference_of(g->run.kind), &plainly, out);
    for (int i = 0; i < g->run.kind->out_count; i++) {
        if (g->expected[i].data != NULL) {
            expect_output(g, how, i, out[i]);
        }
    }
    free_outputs(g, out);
}

static void check_reference(golden *g)
{
    sonde_diag diag = {0};

    if (infer_run(&g->run, &diag) != SONDE_OK) {
        fail_msg("%s: %s, expected %s", g->name, diag.found, diag.expected);
    }
    expect_shapes(g);
    run_reference(g, "reference");
}

static void widen(sonde__operand *operand)
{
    const int64_t count = sonde__op_shape_count(&operand->shape);
    double *wide = NULL;

    if (operand->shape.dtype != SONDE_F32) {
        return;
    }
    wide = poisoned_block((size_t)count * sizeof *wide);
    for (int64_t i = 0; i < count; i++) {
        wide[i] = (double)((const float *)operand->data)[i];
    }
    free(operand->data);
    operand->data = wide;
    operand->shape.dtype = SONDE_F64;
}

/* A step count stays float32. */
static int widened_inputs(const op_run *run)
{
    const bool counts = run->kind == &sonde__op_adam || run->kind == &sonde__op_adagrad ||
                        run->kind == &sonde__op_lamb;

    return counts ? run->in_count - 1 : run->in_count;
}

static void check_in_double(golden *g)
{
    for (int i = 0; i < widened_inputs(&g->run); i++) {
        widen(&g->run.in[i]);
    }
    assert_int_equal(infer_run(&g->run, NULL), SONDE_OK);
    run_reference(g, "reference in float64");
}

/* One kernel, in one layout: values against PyTorch; bits against itself in more parts
 * and without optional outputs. */
static void check_kernel(const golden *g, const sonde__op_kernel *kernel,
                         sonde__op_layout any)
{
    const run_options options[] = {{.any = any, .parts = 1},
                                   {.any = any, .parts = 3},
                                   {.any = any, .parts = 1, .leave_out = true}};
    void *first[SONDE__MAX_OPERANDS] = {NULL};

    for (size_t way = 0; way < SONDE_COUNT_OF(options); way++) {
        void *out[SONDE__MAX_OPERANDS] = {NULL};

        run_kernel(&g->run, kernel, &options[way], out);
        for (int i = 0; i < g->run.kind->out_count; i++) {
            if (way == 0 && out[i] != NULL && g->expected[i].data != NULL) {
                expect_output(g, kernel->name, i, out[i]);
            }
            if (way > 0 && out[i] != NULL && first[i] != NULL) {
                assert_memory_equal(out[i], first[i], plain_bytes(&g->run.out[i]));
            }
        }
        if (way == 0) {
            memcpy(first, out, sizeof first);
        } else {
            free_outputs(g, out);
        }
    }
    free_outputs(g, first);
}

static void check_all_kernels(golden *g)
{
    assert_int_equal(infer_run(&g->run, NULL), SONDE_OK);
    const sonde__op_kernel *k = NULL;

    for (size_t n = 0; (k = sonde__op_kernel_of(g->run.kind, NULL, n)) != NULL; n++) {
        if (!kernel_accepts(&g->run, k)) {
            continue;
        }
        check_kernel(g, k, SONDE__PLAIN);
        if (k->in[0] == SONDE__ANY) {
            check_kernel(g, k, SONDE__LANES);
        }
    }
}

/* --- against float64 ------------------------------------------------------------------ */

/* How many times the last place of the largest number of an output a float32 kernel may be
 * off: 4, for every op of the table. */
static const struct {
    const char *op;
    double times; /* as many, for a reason */
} allowances
    [] =
        {
            {"Recurrent", 25.0}, /* each step takes the errors of those before it further */
            {"RecurrentGrad", 3.0},
            {"BatchNorm", 4.0}, /* numbers near 50: their mean is taken away */
            {"BatchNormRelu", 4.0},
            {"GroupNorm", 2.0}, /* a mean near 0 of larger numbers */
            {"Conv2d", 2.0}, /* sums of some hundred products that are larger than they */
            {"Conv2dGradInput", 2.0},
            {"ConvTranspose2d", 2.0},
            {"Linear", 2.0},
            {"LinearRelu", 2.0},
            {"MatMul", 2.0},
            {"Attention", 2.0},
            {"AttentionGrad", 2.0},
            {"SelfAttention", 2.0},
            {"SelfAttentionGrad", 2.0},
};

static double ulps_of(const char *op)
{
    double ulps = 4.0;

    for (size_t i = 0; i < SONDE_COUNT_OF(allowances); i++) {
        ulps *= strcmp(allowances[i].op, op) == 0 ? allowances[i].times : 1.0;
    }
    return ulps;
}

/* The last binary place of a float32 number as large as the largest that is finite. */
static double last_place(const double *x, int64_t count)
{
    double largest = 0.0;
    int exponent = 0;

    for (int64_t i = 0; i < count; i++) {
        largest = isfinite(x[i]) && fabs(x[i]) > largest ? fabs(x[i]) : largest;
    }
    (void)frexp(largest, &exponent);
    return ldexp(1.0, exponent - 24);
}

static void expect_ulps(const golden *g, const char *kernel, int i, const float *found,
                        const double *exact)
{
    const int64_t count = sonde__op_shape_count(&g->run.out[i]);
    const double most = ulps_of(g->run.kind->name) * last_place(exact, count);

    for (int64_t k = 0; k < count; k++) {
        if (!same((double)(float)exact[k], (double)found[k], most)) {
            fail_msg("%s, %s: output %d, element %lld is %.9g, in float64 %.17g", g->name,
                     kernel, i, (long long)k, (double)found[k], exact[k]);
        }
    }
}

static void check_near_double(golden *g)
{
    const run_options plainly = {.any = SONDE__PLAIN, .parts = 1};
    void *exact[SONDE__MAX_OPERANDS] = {NULL};
    op_run wide;

    assert_int_equal(infer_run(&g->run, NULL), SONDE_OK);
    wide = g->run;
    for (int i = 0; i < widened_inputs(&wide); i++) {
        wide.in[i].data = poisoned_block(plain_bytes(&wide.in[i].shape));
        memcpy(wide.in[i].data, g->run.in[i].data, plain_bytes(&wide.in[i].shape));
        widen(&wide.in[i]);
    }
    assert_int_equal(infer_run(&wide, NULL), SONDE_OK);
    run_kernel(&wide, reference_of(wide.kind), &plainly, exact);
    const sonde__op_kernel *k = NULL;

    for (size_t n = 0; (k = sonde__op_kernel_of(g->run.kind, NULL, n)) != NULL; n++) {
        void *found[SONDE__MAX_OPERANDS] = {NULL};

        if (!kernel_accepts(&g->run, k)) {
            continue;
        }
        run_kernel(&g->run, k, &plainly, found);
        for (int i = 0; i < wide.kind->out_count; i++) {
            if (g->run.out[i].dtype == SONDE_F32 && wide.out[i].dtype == SONDE_F64 &&
                found[i] != NULL && exact[i] != NULL) {
                expect_ulps(g, k->name, i, found[i], exact[i]);
            }
        }
        free_outputs(g, found);
    }
    free_outputs(g, exact);
    for (int i = 0; i < widened_inputs(&wide); i++) {
        free(wide.in[i].data);
    }
}

/* --- tests -------------------------------------------------------------------------- */

static void for_each_case(void (*check)(golden *))
{
    char path[512], line[1024];
    FILE *file = fopen(path_of("cases.txt", path, sizeof path), "r");
    int count = 0;

    assert_non_null(file);
    while (fgets(line, sizeof line, file) != NULL) {
        golden g = read_case(line);

        check(&g);
        free_case(&g);
        count++;
    }
    (void)fclose(file);
    assert_true(count > 200);
}

static void references_give_pytorch_values(void **state)
{
    (void)state;
    for_each_case(check_reference);
}

static void references_give_them_in_float64(void **state)
{
    (void)state;
    for_each_case(check_in_double);
}

static void all_kernels_give_pytorch_values(void **state)
{
    (void)state;
    for_each_case(check_all_kernels);
}

static void all_kernels_are_within_4_ulps_of_float64(void **state)
{
    (void)state;
    for_each_case(check_near_double);
}

static bool has_case[512], has_nonfinite_case[512], reads_floats[512];

static void note_case(golden *g)
{
    size_t kind = 0;

    while (sonde__op_kinds[kind] != g->run.kind) {
        kind++;
    }
    has_case[kind] = true;
    for (int k = 0; k < g->run.in_count; k++) {
        const sonde__operand *in = &g->run.in[k];

        reads_floats[kind] |= sonde_dtype_is_float(in->shape.dtype);
        for (int64_t at = 0; at < sonde__op_shape_count(&in->shape); at++) {
            has_nonfinite_case[kind] |= !isfinite(element(in->shape.dtype, in->data, at));
        }
    }
}

/* Reorder (see test_ops_table.c) and ReplicaSum (test_replicas.c) have no counterpart in
 * PyTorch, Fill has no input. */
static void every_kind_has_cases_some_not_finite(void **state)
{
    (void)state;
    for_each_case(note_case);
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        const sonde__op_kind *kind = sonde__op_kinds[i];

        if (kind == &sonde__op_reorder || kind == &sonde__op_replica_sum ||
            kind == &sonde__op_rank_sum) {
            continue;
        }
        if (!has_case[i]) {
            fail_msg("%s has no golden case", kind->name);
        }
        if (!has_nonfinite_case[i] && reads_floats[i]) {
            fail_msg("%s has no golden case with a NaN or Inf", kind->name);
        }
    }
}

static int open_tensors(void **state)
{
    char path[512], line[SONDE_DIAG_LINE];
    sonde_diag diag = {0};

    (void)state;
    if (sonde_safetensors_open(path_of("ops.safetensors", path, sizeof path), &tensors,
                               &diag) != SONDE_OK) {
        print_error("%s\n", sonde_diag_line(&diag, line, sizeof line));
        return -1;
    }
    return 0;
}

static int close_tensors(void **state)
{
    (void)state;
    sonde_safetensors_destroy(tensors);
    return 0;
}

static int run_all(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(references_give_pytorch_values),
        cmocka_unit_test(references_give_them_in_float64),
        cmocka_unit_test(all_kernels_give_pytorch_values),
        cmocka_unit_test(all_kernels_are_within_4_ulps_of_float64),
        cmocka_unit_test(every_kind_has_cases_some_not_finite),
    };

    return cmocka_run_group_tests(tests, open_tensors, close_tensors);
}

/* Once with the kernels of every instruction set; a process chooses its set once. */
int main(void)
{
    static const char *const sets[] = {"generic", "avx2", "avx512"};
    int failed = 0;

    for (size_t i = 0; i < SONDE_COUNT_OF(sets); i++) {
        const pid_t child = fork();
        int status = 1;

        if (child == 0) {
            (void)setenv("SONDE_ISA", sets[i], 1);
            return run_all();
        }
        failed += child < 0 || waitpid(child, &status, 0) != child || status != 0 ? 1 : 0;
    }
    return failed;
}
