/*
 * test_ops_gradient.c - every gradient rule against finite differences.
 *
 * An op is emitted into a graph with float64 inputs x, its gradient rule is asked for all
 * of them, and what it emitted is run by the references. With L = sum of dy y for a
 * random dy, each element must be (L(x + h) - L(x - h)) / 2h.
 */
#include "nn/graph/graph.h"
#include "base/macros.h"
#include "base/random.h"
#include "nn/ops/layer_row.h"
#include "nn/ops_harness.h"

/* With h = 1e-5 the difference is off by h^2 times the third derivative, 1e-10, and by
 * the rounding of L, about 1e-13 / h = 1e-8; the gradient of a mean goes through a
 * float32 scale, 6e-8. 1e-6 of 1 + |gradient| leaves room for all three. */
static const double step = 1e-5, tolerance = 1e-6;

enum { MOST_INPUTS = 5 };

typedef struct gradient_case {
    const sonde__op_kind *kind;
    int in_count;
    sonde__op_shape in[MOST_INPUTS]; /* int64: a class, not differentiated */
    sonde__op_attrs attrs;
} gradient_case;

#define D(...)                                                                           \
    {                                                                                    \
        .dtype = SONDE_F64, .rank = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t),  \
        .dim = {                                                                         \
            __VA_ARGS__                                                                  \
        }                                                                                \
    }
#define SCALAR                                                                           \
    {                                                                                    \
        .dtype = SONDE_F64, .rank = 0                                                    \
    }
#define CLASSES(n)                                                                       \
    {                                                                                    \
        .dtype = SONDE_I64, .rank = 1, .dim = { n }                                      \
    }
#define IDS(n, m)                                                                        \
    {                                                                                    \
        .dtype = SONDE_I64, .rank = 2, .dim = { n, m }                                   \
    }
#define WINDOW(sh, sw, ph, pw, dh, dw)                                                   \
    .stride = {sh, sw}, .padding = {ph, pw}, .dilation = {dh, dw}

#define ROW(n)                                                                           \
    {                                                                                    \
        .norm = {.rank = 1, .dims = {n}, .eps = 0.1F }                                   \
    }

static const gradient_case cases[] = {
    {&sonde__op_channel_add, 2, {D(2, 3, 4), D(3)}, {.p = 0}},
    {&sonde__op_conv2d,
     3,
     {D(2, 3, 5, 6), D(4, 3, 3, 2), D(4)},
     {.window = {WINDOW(1, 1, 0, 0, 1, 1), .groups = 1}}},
    {&sonde__op_conv2d,
     2,
     {D(2, 3, 5, 6), D(4, 3, 3, 2)},
     {.window = {WINDOW(2, 1, 1, 0, 1, 2), .groups = 1}}},
    {&sonde__op_conv2d,
     3,
     {D(2, 4, 6, 5), D(6, 2, 2, 3), D(6)},
     {.window = {WINDOW(1, 2, 2, 1, 2, 1), .groups = 2}}},
    {&sonde__op_max_pool2d,
     1,
     {D(2, 2, 6, 5)},
     {.window = {WINDOW(2, 2, 0, 0, 1, 1), .kernel = {2, 2}}}},
    {&sonde__op_max_pool2d,
     1,
     {D(2, 2, 7, 6)},
     {.window = {WINDOW(1, 2, 1, 0, 2, 1), .kernel = {3, 2}}}},
    {&sonde__op_linear, 3, {D(4, 5), D(3, 5), D(3)}, {.p = 0}},
    {&sonde__op_linear, 2, {D(4, 5), D(3, 5)}, {.p = 0}},
    {&sonde__op_relu, 1, {D(3, 4, 2)}, {.p = 0}},
    {&sonde__op_sigmoid, 1, {D(3, 4, 2)}, {.p = 0}},
    {&sonde__op_tanh, 1, {D(3, 4, 2)}, {.p = 0}},
    {&sonde__op_group_norm,
     3,
     {D(3, 6, 2, 2), D(6), D(6)},
     {.norm = {.groups = 3, .eps = 0.1f}}},
    {&sonde__op_group_norm, 2, {D(2, 4, 3), D(4)}, {.norm = {.groups = 1, .eps = 0.1f}}},
    {&sonde__op_group_norm, 1, {D(2, 4, 3)}, {.norm = {.groups = 2, .eps = 0.1f}}},
    {&sonde__op_reshape, 1, {D(2, 3, 4)}, {.shape = {.rank = 2, .dims = {0, -1}}}},
    {&sonde__op_reshape, 1, {D(1, 1)}, {.p = 0}},
    {&sonde__op_transpose, 1, {D(2, 3, 4)}, {.shape = {.rank = 3, .dims = {2, 0, 1}}}},
    {&sonde__op_transpose, 1, {D(2, 3, 4)}, {.shape = {.rank = 3, .dims = {0, -1, 1}}}},
    {&sonde__op_softmax, 1, {D(3, 4)}, {.along = {.axis = -1}}},
    {&sonde__op_softmax, 1, {D(3, 4, 2)}, {.along = {.axis = 1}}},
    {&sonde__op_log_softmax, 1, {D(3, 4)}, {.along = {.axis = 1}}},
    {&sonde__op_log_softmax, 1, {D(5, 3)}, {.along = {.axis = 0}}},
    {&sonde__op_nll, 2, {D(5, 3), CLASSES(5)}, {.loss = {.mean = true}}},
    {&sonde__op_nll, 2, {D(5, 3), CLASSES(5)}, {.loss = {.mean = false}}},
    {&sonde__op_nll_weighted,
     2,
     {D(5, 3), CLASSES(5)},
     {.loss =
          {.mean = true, .label_smoothing = 0.2F, .ignores = true, .ignore_index = 1}}},
    {&sonde__op_nll_weighted,
     2,
     {D(5, 3), CLASSES(5)},
     {.loss = {.label_smoothing = 0.3F}}},
    {&sonde__op_add, 2, {D(2, 3), D(2, 3)}, {.p = 0}},
    {&sonde__op_add, 2, {D(2, 1, 3), D(4, 1)}, {.p = 0}},
    {&sonde__op_add, 2, {SCALAR, D(2, 3)}, {.p = 0}},
    {&sonde__op_mul, 2, {D(2, 3), D(2, 3)}, {.p = 0}},
    {&sonde__op_mul, 2, {D(3), D(2, 4, 3)}, {.p = 0}},
    {&sonde__op_mul, 2, {D(2, 1, 3), D(4, 1)}, {.p = 0}},
    {&sonde__op_reduce, 1, {D(2, 3, 4)}, {.reduce = {.axes = 2}}},
    {&sonde__op_reduce, 1, {D(2, 3, 4)}, {.reduce = {.axes = 5, .mean = true}}},
    {&sonde__op_reduce,
     1,
     {D(2, 3, 4)},
     {.reduce = {.axes = 6, .mean = true, .keep_dims = true}}},
    {&sonde__op_reduce, 1, {D(2, 3, 4)}, {.reduce = {.axes = 0}}},
    {&sonde__op_identity, 1, {D(2, 3)}, {.p = 0}},
    {&sonde__op_broadcast, 1, {D(3, 1)}, {.shape = {.rank = 3, .dims = {2, 3, 4}}}},
    {&sonde__op_broadcast, 1, {SCALAR}, {.shape = {.rank = 2, .dims = {2, 3}}}},
    {&sonde__op_scale, 1, {D(2, 3)}, {.fill = {.value = -0.75f}}},
};

/* Layers with parameters: their kinds are found by name. */
static struct {
    const char *layer;
    gradient_case with;
} named_cases[] = {
    {"layer_norm", {NULL, 3, {D(3, 2, 5), D(5), D(5)}, ROW(5)}},
    {"layer_norm",
     {NULL, 2, {D(3, 4, 5), D(4, 5)}, {.norm = {.rank = 2, .dims = {4, 5}}}}},
    {"layer_norm", {NULL, 1, {D(4, 5)}, ROW(5)}},
    {"batch_norm",
     {NULL, 3, {D(3, 2, 4), D(2), D(2)}, {.norm = {.eps = 0.1F, .affine = true}}}},
    {"instance_norm", {NULL, 3, {D(2, 3, 5), D(3), D(3)}, {.norm = {.eps = 0.1F}}}},
    {"batch_norm", {NULL, 1, {D(7, 3)}, {.norm = {.eps = 0.1F}}}},
    {"prelu", {NULL, 2, {D(3, 2, 4), D(2)}, {.p = 0}}},
    {"prelu", {NULL, 2, {D(9), D(1)}, {.p = 0}}},
    {"avg_pool2d",
     {NULL,
      1,
      {D(2, 2, 6, 5)},
      {.window = {.kernel = {2, 3}, .stride = {2, 1}, .padding = {1, 1}}}}},
    {"avg_pool2d",
     {NULL, 1, {D(2, 2, 6, 4)}, {.window = {.kernel = {3, 2}, .include_pad = true}}}},
    {"adaptive_avg_pool2d", {NULL, 1, {D(2, 2, 5, 7)}, {.window = {.kernel = {2, 3}}}}},
    {"cat", {NULL, 2, {D(2, 3, 2), D(2, 4, 2)}, {.along = {.axis = -2}}}},
    {"rms_norm", {NULL, 2, {D(3, 2, 5), D(5)}, ROW(5)}},
    {"rms_norm", {NULL, 1, {D(4, 5)}, ROW(5)}},
    {"embedding", {NULL, 2, {CLASSES(5), D(4, 3)}, {.p = 0}}},
    {"ctc_loss",
     {NULL,
      4,
      {D(4, 3, 4), IDS(3, 2), CLASSES(3), CLASSES(3)},
      {.ctc = {.blank = 3, .zero_infinity = true}}}},
    {"embedding_bag",
     {NULL, 2, {IDS(2, 3), D(4, 3)}, {.embedding = {.padding_idx = -1}}}},
    {"embedding_bag",
     {NULL, 2, {IDS(2, 3), D(4, 3)}, {.embedding = {.padding_idx = 1, .mode = 1}}}},
    {"embedding_bag",
     {NULL, 2, {IDS(2, 3), D(4, 3)}, {.embedding = {.padding_idx = 0, .mode = 2}}}},
    {"matmul", {NULL, 2, {D(3, 4), D(4, 2)}, {.p = 0}}},
    {"matmul", {NULL, 2, {D(2, 1, 3, 4), D(3, 4, 2)}, {.matmul = {.scale = 0.5F}}}},
    {"matmul", {NULL, 2, {D(2, 4, 3), D(4, 2)}, {.matmul = {.transposed = 1}}}},
    {"matmul", {NULL, 2, {D(3, 4), D(2, 2, 4)}, {.matmul = {.transposed = 2}}}},
    {"matmul", {NULL, 2, {D(2, 4, 3), D(2, 5, 4)}, {.matmul = {.transposed = 3}}}},
    {"where", {NULL, 3, {CLASSES(4), D(3, 4), D(3, 1)}, {.p = 0}}},
    {"masked_fill", {NULL, 2, {D(3, 1), CLASSES(4)}, {.choose = {.value = 0.7F}}}},
    {"slice",
     {NULL, 1, {D(3, 7)}, {.slice = {.axis = 1, .start = 1, .end = -1, .step = 2}}}},
    {"scaled_dot_product_attention",
     {NULL, 3, {D(2, 3, 4), D(2, 5, 4), D(2, 5, 2)}, {.attention = {.causal = true}}}},
    {"scaled_dot_product_attention",
     {NULL,
      3,
      {D(2, 3, 4), D(2, 5, 4), D(2, 5, 6)},
      {.attention = {.heads = 2, .scale = 0.3F}}}},
    {"scaled_dot_product_attention",
     {NULL, 4, {D(2, 3, 4), D(2, 5, 4), D(2, 5, 2), D(3, 5)}, {.p = 0}}},
    {"multihead_attention",
     {NULL, 1, {D(2, 3, 12)}, {.attention = {.heads = 2, .causal = true}}}},
    {"rnn",
     {NULL,
      3,
      {D(2, 4, 3), D(3, 3), D(3, 3)},
      {.recurrent = {.units = 3, .reversed = true}}}},
    {"rnn",
     {NULL, 3, {D(2, 3, 2), D(3, 2), D(3, 3)}, {.recurrent = {.units = 3, .cell = 1}}}},
    {"lstm",
     {NULL,
      5,
      {D(2, 4, 3), D(8, 3), D(8, 2), D(8), D(8)},
      {.recurrent = {.units = 2, .cell = 2}}}},
    {"lstm",
     {NULL,
      3,
      {D(2, 3, 2), D(12, 2), D(12, 3)},
      {.recurrent = {.units = 3, .cell = 2, .reversed = true}}}},
    {"gru",
     {NULL,
      5,
      {D(2, 4, 3), D(6, 3), D(6, 2), D(6), D(6)},
      {.recurrent = {.units = 2, .cell = 3}}}},
    {"amax", {NULL, 1, {D(3, 4, 2)}, {.reduce = {.axes = 5}}}},
    {"amin",
     {NULL,
      1,
      {D(3, 4, 2)},
      {.reduce = {.axes = 2, .keep_dims = true, .smallest = true}}}},
    {"sum", {NULL, 1, {D(3, 4, 2)}, {.reduce = {.rank = 2, .dims = {0, -1}}}}},
    {"roll",
     {NULL, 1, {D(2, 5, 3)}, {.remap = {.axis = 1, .map = 1, .before = 3, .after = 4}}}},
    {"roll",
     {NULL, 1, {D(2, 5, 3)}, {.remap = {.axis = 1, .map = 3, .before = -1, .after = 4}}}},
    {"roll", {NULL, 1, {D(3, 5)}, {.remap = {.axis = 1, .map = 6, .number = 2.3F}}}},
    {"roll", {NULL, 1, {D(5, 3)}, {.remap = {.axis = 0, .map = 8, .count = 9}}}},
    {"roll",
     {NULL,
      1,
      {D(2, 7)},
      {.remap =
           {.axis = 1, .map = 14, .count = 3, .stride = 2, .before = 1, .dilation = 2}}}},
    {"gather", {NULL, 2, {D(2, 4, 3), CLASSES(6)}, {.index = {.axis = 1}}}},
    {"scatter", {NULL, 3, {D(2, 4), CLASSES(3), D(2, 3)}, {.index = {.axis = 1}}}},
    {"scatter_add",
     {NULL, 3, {D(2, 4), CLASSES(5), D(2, 5)}, {.index = {.axis = 1, .adds = true}}}},
    {"conv_transpose2d",
     {NULL,
      2,
      {D(1, 4, 3, 4), D(4, 2, 3, 2)},
      {.window = {WINDOW(2, 3, 1, 0, 1, 2), .groups = 2, .output_padding = {1, 2}}}}},
    {"cumsum", {NULL, 1, {D(3, 4, 2)}, {.order = {.axis = 1}}}},
};

/* --- a graph and its values --------------------------------------------------------- */

typedef struct bench {
    sonde__op_graph graph;
    sonde__op_value in[MOST_INPUTS], out, dy;
    sonde__op_value grad[MOST_INPUTS];
    void *data[64]; /* per value, plain */
    bool wide;      /* numbers up to 5, off the kinks of activations */
    bool positive;  /* and no negative ones */
} bench;

static sonde__op_value add_leaf(bench *b, const sonde__op_shape *shape)
{
    const sonde__op_value value =
        sonde__graph_leaf(&b->graph, shape, SONDE__FROM_INPUT, 0, NULL, SONDE_ROLE_OTHER);

    assert_int_not_equal(value, 0);
    b->data[value] = poisoned_block(plain_bytes(shape));
    return value;
}

/* Distinct numbers, none nearer than 0.02 to another or to 0: steps cross no kink of max
 * or ReLU. Classes are below 3, the least number of classes here. */
static void fill_leaf(const bench *b, sonde__op_value value, uint64_t seed)
{
    const double apart = b->wide ? 0.0731 : b->positive ? 0.0141 : 0.02;
    const sonde__op_shape *shape = sonde__op_value_shape(&b->graph, value);
    const uint32_t count = (uint32_t)sonde__op_shape_count(shape);
    uint32_t order[512];

    assert_true(count <= SONDE_COUNT_OF(order));
    sonde__permute(seed, value, count, order);
    for (uint32_t i = 0; i < count; i++) {
        if (shape->dtype == SONDE_I64) {
            ((int64_t *)b->data[value])[i] = order[i] % 3;
        } else {
            const double size = apart * ((double)order[i] + 1.0);

            ((double *)b->data[value])[i] =
                b->positive || order[i] % 2 == 0 ? size : -size;
        }
    }
}

static void run_op(bench *b, const sonde__graph_node_op *op)
{
    const run_options plainly = {.any = SONDE__PLAIN, .parts = 1};
    op_run run = {.kind = op->kind, .attrs = op->attrs, .in_count = op->in_count};
    void *out[SONDE__MAX_OPERANDS] = {NULL};

    for (int i = 0; i < op->in_count; i++) {
        run.in[i].shape = *sonde__op_value_shape(&b->graph, op->in[i]);
        run.in[i].data = b->data[op->in[i]];
    }
    for (int i = 0; i < op->out_count; i++) {
        run.out[i] = *sonde__op_value_shape(&b->graph, op->out[i]);
    }
    run_kernel(&run, reference_of(op->kind), &plainly, out);
    for (int i = 0; i < op->out_count; i++) {
        free(b->data[op->out[i]]);
        b->data[op->out[i]] = out[i];
    }
}

static void close_bench(bench *b)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(b->data); i++) {
        free(b->data[i]);
    }
    sonde__graph_fini(&b->graph);
}

/* --- gradients both ways ------------------------------------------------------------ */

/* Emits the op and its gradient. */
static void build(bench *b, const gradient_case *c)
{
    sonde__op_value outs[SONDE__MAX_OPERANDS] = {0}, grad_out[SONDE__MAX_OPERANDS] = {0};
    sonde__op_value ins[SONDE__MAX_OPERANDS] = {0}, grads[SONDE__MAX_OPERANDS] = {0};
    bool wanted[SONDE__MAX_OPERANDS] = {false};
    sonde__op_gradient_context context = {.graph = &b->graph,
                                          .in = ins,
                                          .out = outs,
                                          .grad_out = grad_out,
                                          .wanted = wanted,
                                          .grad_in = grads};
    sonde__op_attrs attrs;

    assert_int_equal(sonde__graph_init(&b->graph), SONDE_OK);
    for (int i = 0; i < c->in_count; i++) {
        b->in[i] = ins[i] = add_leaf(b, &c->in[i]);
        wanted[i] = c->in[i].dtype == SONDE_F64;
        fill_leaf(b, ins[i], 5);
    }
    b->out = sonde__op_emit(&b->graph, c->kind, &c->attrs, ins, c->in_count);
    assert_int_not_equal(b->out, 0);
    for (int i = 0; i < c->kind->out_count; i++) {
        outs[i] = b->out + (sonde__op_value)i;
    }
    attrs = b->graph.ops[0].attrs;
    context.attrs = &attrs;
    b->dy = grad_out[0] = add_leaf(b, sonde__op_value_shape(&b->graph, b->out));
    fill_leaf(b, b->dy, 6);
    sonde__op_differentiate(c->kind, &context);
    assert_int_equal(b->graph.err, SONDE_OK);
    assert_true(b->graph.value_count <= SONDE_COUNT_OF(b->data));
    for (int i = 0; i < c->in_count; i++) {
        b->grad[i] = grads[i];
        assert_true(wanted[i] ? grads[i] != 0 : grads[i] == 0);
    }
}

static double loss(bench *b)
{
    const int64_t count = sonde__op_shape_count(sonde__op_value_shape(&b->graph, b->out));
    double sum = 0.0;

    run_op(b, &b->graph.ops[0]);
    for (int64_t i = 0; i < count; i++) {
        sum += ((double *)b->data[b->dy])[i] * ((double *)b->data[b->out])[i];
    }
    return sum;
}

static double difference(bench *b, double *x)
{
    const double before = *x;
    double above = 0.0, below = 0.0;

    *x = before + step;
    above = loss(b);
    *x = before - step;
    below = loss(b);
    *x = before;
    return (above - below) / (2.0 * step);
}

static void expect_gradient(bench *b, const gradient_case *c, int input)
{
    const sonde__op_shape *shape = sonde__op_value_shape(&b->graph, b->in[input]);
    const sonde__op_shape *of_grad = sonde__op_value_shape(&b->graph, b->grad[input]);

    assert_int_equal(of_grad->dtype, shape->dtype);
    assert_int_equal(of_grad->rank, shape->rank);
    assert_memory_equal(of_grad->dim, shape->dim, sizeof shape->dim);
    for (int64_t i = 0; i < sonde__op_shape_count(shape); i++) {
        const double found = ((double *)b->data[b->grad[input]])[i];
        const double wanted = difference(b, (double *)b->data[b->in[input]] + i);

        if (!(fabs(found - wanted) <= tolerance * (1.0 + fabs(wanted)))) {
            fail_msg("%s, input %d, element %lld: gradient %.9g, difference %.9g",
                     c->kind->name, input, (long long)i, found, wanted);
        }
    }
}

static void expect_case(const gradient_case *c, bool wide, bool positive)
{
    bench b = {.out = 0, .wide = wide, .positive = positive};

    build(&b, c);
    for (size_t i = 0; i < b.graph.op_count; i++) {
        run_op(&b, &b.graph.ops[i]);
    }
    for (int i = 0; i < c->in_count; i++) {
        if (b.grad[i] != 0) {
            expect_gradient(&b, c, i);
        }
    }
    close_bench(&b);
}

/* Whether named_cases, or cases, has cases of a kind. */
static bool is_named(const sonde__op_kind *kind)
{
    for (size_t i = 0; i < SONDE_COUNT_OF(named_cases); i++) {
        if (sonde__op_find_layer(named_cases[i].layer)->kind == kind) {
            return true;
        }
    }
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        if (cases[i].kind == kind) {
            return true;
        }
    }
    return false;
}

/* A case of every other layer whose row has inputs alone, with its defaults. Returns their
 * count. */
static size_t cases_of_layers(gradient_case *made, size_t most)
{
    static const gradient_case alike = {NULL, 1, {D(9, 7), D(9, 7), D(9, 7)}, {.p = 0}};
    size_t count = 0;

    for (size_t i = 0; sonde__op_layers[i] != NULL; i++) {
        const sonde__op_layer *row = sonde__op_layers[i];
        gradient_case *c = &made[count];

        if (row->params != NULL || row->build != NULL ||
            !sonde__op_has_gradient(row->kind) || is_named(row->kind)) {
            continue;
        }
        assert_true(count++ < most);
        *c = alike;
        c->kind = row->kind;
        c->in_count = row->inputs;
        sonde__op_set_defaults(row, &c->attrs);
        for (int k = 0; k < sonde__op_field_count(row); k++) {
            const sonde__op_field *field = &row->fields[k];

            if (field->kind == SONDE__FIELD_NUMBER && isnan(field->fallback)) {
                assert_int_equal(
                    sonde__op_set_field(field, &c->attrs, (double[]){0.3}, 1, NULL),
                    SONDE_OK);
            }
        }
    }
    return count;
}

enum { MOST_LAYERS = 256 };
static gradient_case of_layers[MOST_LAYERS];

static void rules_agree_with_finite_differences(void **state)
{
    (void)state;
    for (size_t k = 0; k < SONDE_COUNT_OF(cases); k++) {
        expect_case(&cases[k], false, false);
    }
    for (size_t k = 0; k < SONDE_COUNT_OF(named_cases); k++) {
        named_cases[k].with.kind = sonde__op_find_layer(named_cases[k].layer)->kind;
        expect_case(&named_cases[k].with, false, false);
    }
}

static void layers_agree_with_finite_differences(void **state)
{
    static const char *const positive[] = {
        "Log",   "Log1p",      "Sqrt", "Rsqrt", "Pow",   "KlDiv", "BceLoss",       "Log2",
        "Log10", "FloatPower", "Asin", "Acos",  "Atanh", "Tan",   "PoissonNllLoss"};
    static const char *const below_one[] = {"BceLoss", "Asin", "Acos", "Atanh", "Tan"};
    const size_t count = cases_of_layers(of_layers, MOST_LAYERS);

    (void)state;
    assert_true(count > 30);
    for (size_t k = 0; k < count; k++) {
        bool only_positive = false, wide = true;

        for (size_t i = 0; i < SONDE_COUNT_OF(positive); i++) {
            only_positive =
                only_positive || strcmp(of_layers[k].kind->name, positive[i]) == 0;
        }
        for (size_t i = 0; i < SONDE_COUNT_OF(below_one); i++) {
            wide = wide && strcmp(of_layers[k].kind->name, below_one[i]) != 0;
        }
        expect_case(&of_layers[k], wide, only_positive);
    }
}

static void every_rule_has_a_case(void **state)
{
    (void)state;
    for (size_t i = 0; sonde__op_kinds[i] != NULL; i++) {
        bool found = !sonde__op_has_gradient(sonde__op_kinds[i]);

        for (size_t k = 0; k < SONDE_COUNT_OF(cases); k++) {
            found = found || cases[k].kind == sonde__op_kinds[i];
        }
        for (size_t k = 0; k < SONDE_COUNT_OF(named_cases); k++) {
            found = found || named_cases[k].with.kind == sonde__op_kinds[i];
        }
        for (size_t k = 0; k < MOST_LAYERS; k++) {
            found = found || of_layers[k].kind == sonde__op_kinds[i];
        }
        if (!found) {
            fail_msg("%s has a gradient rule and no case", sonde__op_kinds[i]->name);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rules_agree_with_finite_differences),
        cmocka_unit_test(layers_agree_with_finite_differences),
        cmocka_unit_test(every_rule_has_a_case),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
