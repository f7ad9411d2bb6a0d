/*
 * test_onnx_hostile.c - ONNX files that are damaged, or say what cannot be: one line that
 * says what and where, and nothing is leaked.
 */
#include "engine.h"
#include "alloc_failure.h"
#include "base/macros.h"

#include <sonde/nn/onnx.h>

#include <unistd.h>

/* --- messages on the wire ------------------------------------------------------------------ */

typedef struct wire {
    unsigned char bytes[4096];
    size_t size;
} wire;

static void put_number(wire *w, uint64_t number)
{
    do {
        const unsigned char low = (unsigned char)(number & 0x7FU);

        number >>= 7U;
        w->bytes[w->size++] = (unsigned char)(low | (number != 0 ? 0x80U : 0U));
    } while (number != 0);
}

static void put_int(wire *w, unsigned field, int64_t number)
{
    put_number(w, (uint64_t)field << 3U);
    put_number(w, (uint64_t)number);
}

static void put_bytes(wire *w, unsigned field, const void *bytes, size_t size)
{
    put_number(w, ((uint64_t)field << 3U) | 2U);
    put_number(w, size);
    assert_true(w->size + size <= sizeof w->bytes);
    if (size > 0) {
        memcpy(w->bytes + w->size, bytes, size);
    }
    w->size += size;
}

static void put_text(wire *w, unsigned field, const char *text)
{
    put_bytes(w, field, text, strlen(text));
}

static void put_message(wire *w, unsigned field, const wire *inner)
{
    put_bytes(w, field, inner->bytes, inner->size);
}

/* A node of an op; inputs and outputs are lists, separated by spaces; -: one left
 * out. attribute: of a text, or NULL. */
static void put_node_that_says(wire *graph, const char *op, const char *inputs,
                               const char *outputs, const char *attribute,
                               const char *says)
{
    wire node = {.size = 0}, said = {.size = 0};
    char text[256], *rest = NULL;

    (void)snprintf(text, sizeof text, "%s", inputs);
    for (char *word = strtok_r(text, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        put_text(&node, 1, strcmp(word, "-") == 0 ? "" : word);
    }
    (void)snprintf(text, sizeof text, "%s", outputs);
    for (char *word = strtok_r(text, " ", &rest); word != NULL;
         word = strtok_r(NULL, " ", &rest)) {
        put_text(&node, 2, word);
    }
    put_text(&node, 4, op);
    if (attribute != NULL) {
        put_text(&said, 1, attribute);
        put_text(&said, 4, says);
        put_message(&node, 5, &said);
    }
    put_message(graph, 1, &node);
}

static void put_node(wire *graph, const char *op, const char *inputs, const char *outputs)
{
    put_node_that_says(graph, op, inputs, outputs, NULL, NULL);
}

/* An initialiser of dims, with so many raw bytes of zeros. */
static void put_tensor(wire *graph, const char *name, int type, const int64_t *dims,
                       int rank, size_t bytes)
{
    static const unsigned char zeros[1024];
    wire tensor = {.size = 0};

    for (int i = 0; i < rank; i++) {
        put_int(&tensor, 1, dims[i]);
    }
    put_int(&tensor, 2, type);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, zeros, bytes);
    put_message(graph, 5, &tensor);
}

/* An initialiser of int64. */
static void put_whole(wire *graph, const char *name, const int64_t *values, size_t count)
{
    wire tensor = {.size = 0};

    put_int(&tensor, 1, (int64_t)count);
    put_int(&tensor, 2, 7);
    put_text(&tensor, 8, name);
    put_bytes(&tensor, 9, values, count * sizeof *values);
    put_message(graph, 5, &tensor);
}

/* The input or the output of a graph: float32 (N, width). */
static void put_value(wire *graph, unsigned field, const char *name, int64_t width)
{
    wire batch = {.size = 0}, last = {.size = 0}, shape = {.size = 0};
    wire tensor = {.size = 0}, type = {.size = 0}, value = {.size = 0};

    put_text(&batch, 2, "N");
    put_int(&last, 1, width);
    put_message(&shape, 1, &batch);
    put_message(&shape, 1, &last);
    put_int(&tensor, 1, 1);
    put_message(&tensor, 2, &shape);
    put_message(&type, 1, &tensor);
    put_text(&value, 1, name);
    put_message(&value, 2, &type);
    put_message(graph, field, &value);
}

static void put_ends(wire *graph)
{
    put_value(graph, 11, "x", 4);
    put_value(graph, 12, "y", 4);
}

static void finish(const wire *graph, int64_t opset, wire *model)
{
    wire set = {.size = 0};

    put_int(&set, 2, opset);
    model->size = 0;
    put_message(model, 7, graph);
    put_message(model, 8, &set);
}

/* --- graphs that cannot be -------------------------------------------------------------------- */

static void dangling(wire *g)
{
    put_node(g, "Add", "x nothing", "y");
}

static void cycle(wire *g)
{
    put_node(g, "Add", "x b", "a");
    put_node(g, "Relu", "a", "b");
    put_node(g, "Relu", "b", "y");
}

static void itself(wire *g)
{
    put_node(g, "Add", "x y", "y");
}

static void twice(wire *g)
{
    put_node(g, "Relu", "x", "y");
    put_node(g, "Tanh", "x", "y");
}

static void unknown(wire *g)
{
    put_node(g, "NonZero", "x", "a");
    put_node(g, "Relu", "a", "b");
    put_node(g, "Einsum", "b", "y");
}

static void no_output(wire *g)
{
    put_node(g, "Relu", "x", "z");
}

static void huge_tensor(wire *g)
{
    put_tensor(g, "fc.w", 1, (int64_t[]){1000000, 1000000}, 2, 16);
    put_node(g, "MatMul", "x fc.w", "y");
}

static void overflow(wire *g)
{
    put_tensor(g, "fc.w", 1, (int64_t[]){INT64_MAX, INT64_MAX}, 2, 16);
    put_node(g, "MatMul", "x fc.w", "y");
}

static void negative(wire *g)
{
    put_tensor(g, "fc.w", 1, (int64_t[]){-4, 4}, 2, 64);
    put_node(g, "MatMul", "x fc.w", "y");
}

static void text_tensor(wire *g)
{
    put_tensor(g, "fc.w", 8, (int64_t[]){4, 4}, 2, 64);
    put_node(g, "MatMul", "x fc.w", "y");
}

static void many_dims(wire *g)
{
    put_tensor(g, "fc.w", 1, (int64_t[]){1, 1, 1, 1, 1, 1, 1, 1, 1}, 9, 4);
    put_node(g, "Add", "x fc.w", "y");
}

static void unlike(wire *g)
{
    put_tensor(g, "fc.w", 1, (int64_t[]){3, 4}, 2, 48);
    put_node(g, "MatMul", "x fc.w", "y");
}

static void two_tensors(wire *g)
{
    put_tensor(g, "w", 1, (int64_t[]){4}, 1, 16);
    put_tensor(g, "w", 1, (int64_t[]){4}, 1, 16);
    put_node(g, "Add", "x w", "y");
}

static void control_name(wire *g)
{
    put_node(g, "Relu", "x", "a\033[2J\nb");
    put_node(g, "Relu", "a\033[2J\nb", "y");
}

static void huge_expand(wire *g)
{
    put_whole(g, "s", (int64_t[]){1000000, 1000000, 1000000, 1, 4}, 5);
    put_node(g, "Expand", "x s", "y");
}

static void huge_range(wire *g)
{
    put_whole(g, "s", (int64_t[]){0}, 1);
    put_whole(g, "e", (int64_t[]){INT64_MAX}, 1);
    put_whole(g, "d", (int64_t[]){1}, 1);
    put_node(g, "Range", "s e d", "r");
    put_node(g, "Add", "x r", "y");
}

static void two_open(wire *g)
{
    put_whole(g, "s", (int64_t[]){-1, -1}, 2);
    put_node(g, "Reshape", "x s", "y");
}

static void of_values(wire *g)
{
    put_node(g, "Reshape", "x x", "y");
}

static void slice_without_starts(wire *g)
{
    put_whole(g, "s", (int64_t[]){1, 2, 4}, 3);
    put_node(g, "Slice", "s - s", "t");
    put_node(g, "Reshape", "x t", "y");
}

static void padded_batch(wire *g)
{
    put_whole(g, "p", (int64_t[]){1, 0, 0, 0}, 4);
    put_node(g, "Pad", "x p", "y");
}

static void odd_pads(wire *g)
{
    put_whole(g, "p", (int64_t[]){1, 0, 0}, 3);
    put_node(g, "Pad", "x p", "y");
}

static void odd_border(wire *g)
{
    put_whole(g, "p", (int64_t[]){0, 1, 0, 1}, 4);
    put_node_that_says(g, "Pad", "x p", "y", "mode", "mirror");
}

static void top_of_nothing(wire *g)
{
    put_whole(g, "k", (int64_t[]){5}, 1);
    put_node(g, "TopK", "x k", "y places");
}

static void sum_of_samples(wire *g)
{
    put_whole(g, "a", (int64_t[]){0}, 1);
    put_node(g, "CumSum", "x a", "y");
}

static void far_places(wire *g)
{
    put_whole(g, "i", (int64_t[]){0, 4}, 2);
    put_whole(g, "s", (int64_t[]){1, 2}, 2);
    put_node(g, "Reshape", "i s", "j");
    put_tensor(g, "fc.w", 1, (int64_t[]){4, 4}, 2, 64);
    put_node(g, "GatherElements", "fc.w j", "z");
    put_node(g, "Mul", "x z", "y");
}

static void scattered_most(wire *g)
{
    put_node_that_says(g, "ScatterElements", "x x x", "y", "reduction", "max");
}

static void classes_of_nothing(wire *g)
{
    put_whole(g, "depth", (int64_t[]){3}, 1);
    put_whole(g, "values", NULL, 0);
    put_node(g, "OneHot", "x depth values", "y");
}

static void resized_matrix(wire *g)
{
    put_whole(g, "s", (int64_t[]){1, 8}, 2);
    put_node(g, "Resize", "x x x s", "y");
}

static void shaped_decoder(wire *g)
{
    put_tensor(g, "w", 1, (int64_t[]){4, 4, 1}, 3, 64);
    put_node_that_says(g, "ConvTranspose", "x w", "y", "output_shape", "");
}

static void same_decoder(wire *g)
{
    put_tensor(g, "w", 1, (int64_t[]){4, 4, 1}, 3, 64);
    put_node_that_says(g, "ConvTranspose", "x w", "y", "auto_pad", "SAME_UPPER");
}

static const struct {
    void (*graph)(wire *g);
    sonde_err err;
    const char *line;
} cases[] = {
    {dangling, SONDE_EFORMAT, "net.onnx: node 'y' reads 'nothing', which nothing makes"},
    {cycle, SONDE_EFORMAT,
     "net.onnx: node 'a' reads 'b', which a later node makes: a cycle, or nodes out of "
     "order (expected nodes in an order of execution)"},
    {itself, SONDE_EFORMAT,
     "net.onnx: node 'y' reads 'y', which it makes itself: a cycle (expected nodes in an "
     "order of execution)"},
    {twice, SONDE_EFORMAT,
     "net.onnx: two nodes make the value 'y' (expected one of them)"},
    {unknown, SONDE_EUNSUPPORTED,
     "net.onnx: 2 nodes of ops that there are none of: NonZero (a), Einsum (y) (expected "
     "the ops of docs/onnx.md)"},
    {no_output, SONDE_EFORMAT, "net.onnx: nothing makes the output 'y'"},
    {huge_tensor, SONDE_ESHAPE,
     "net.onnx: node 'y' (MatMul): 'fc.w': a tensor of float32 (1000000, 1000000) with 16 "
     "bytes (expected 4000000000000)"},
    {overflow, SONDE_ESHAPE,
     "net.onnx: node 'y' (MatMul): 'fc.w': a tensor of more elements than any machine has"},
    {negative, SONDE_ESHAPE,
     "net.onnx: node 'y' (MatMul): 'fc.w': dimension 0 is -4 (expected 0 or more)"},
    {text_tensor, SONDE_EDTYPE,
     "net.onnx: node 'y' (MatMul): 'fc.w': a tensor of string (8) (expected float32, "
     "int64 or another number)"},
    {many_dims, SONDE_ESHAPE,
     "net.onnx: node 'y' (Add): 'fc.w': 9 dimensions (expected at most 8)"},
    {unlike, SONDE_ESHAPE, NULL},
    {two_tensors, SONDE_EFORMAT, "net.onnx: two initializers 'w' (expected one of them)"},
    {control_name, SONDE_EFORMAT,
     "net.onnx: the name of a value is 'a\\x1B[2J\\x0Ab' (expected UTF-8 without control "
     "characters, at most 400 bytes)"},
    {huge_expand, SONDE_ESHAPE, NULL},
    {huge_range, SONDE_EUNSUPPORTED,
     "net.onnx: node 'r' (Range): a range of more than 65,536 numbers"},
    {two_open, SONDE_EUNSUPPORTED, NULL},
    {of_values, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (Reshape): its shape is computed from values (expected up to 8 "
     "numbers that are known before the network runs)"},
    {slice_without_starts, SONDE_EUNSUPPORTED,
     "net.onnx: node 't' (Slice): it lacks its starts or ends"},
    {padded_batch, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (Pad): axis 0, which is the batch (expected another dimension)"},
    {odd_pads, SONDE_EINVAL,
     "net.onnx: node 'y' (Pad): 3 pads for 2 dimensions (expected two for each dimension)"},
    {odd_border, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (Pad): mode is 'mirror' (expected constant, reflect, edge or wrap)"},
    {top_of_nothing, SONDE_EINVAL,
     "net.onnx: node 'y' (TopK): K is 5 of 4 (expected 1 to 4)"},
    {sum_of_samples, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (CumSum): axis 0, which is the batch (expected another dimension)"},
    {far_places, SONDE_ERANGE,
     "net.onnx: node 'z' (GatherElements): place 4 of 4 (expected places of the dimension)"},
    {scattered_most, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (ScatterElements): reduction is 'max' (expected none or add)"},
    {classes_of_nothing, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (OneHot): other values, or axis -1 (expected values 0 and 1, "
     "along a new last dimension)"},
    {resized_matrix, SONDE_ESHAPE,
     "net.onnx: node 'y' (Resize): an input of 2 dimensions (expected (N, C, ...))"},
    {shaped_decoder, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (ConvTranspose): it has output_shape (expected pads and "
     "output_padding)"},
    {same_decoder, SONDE_EUNSUPPORTED,
     "net.onnx: node 'y' (ConvTranspose): auto_pad is SAME (expected NOTSET or VALID)"},
};

static sonde_err parse(const wire *model)
{
    sonde_nn_model *made = NULL;
    const sonde_err err = sonde_nn_onnx_parse(model->bytes, model->size, "net.onnx", NULL,
                                              &made, NULL, &engine_diag);

    sonde_nn_model_destroy(made);
    return err;
}

static void impossible(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        wire graph = {.size = 0}, model = {.size = 0};

        put_ends(&graph);
        cases[i].graph(&graph);
        finish(&graph, 18, &model);
        expect_err(cases[i].err, parse(&model));
        if (cases[i].line != NULL) {
            expect_line(cases[i].line);
        }
    }
}

static void other_opsets(void **state)
{
    wire graph = {.size = 0}, model = {.size = 0};

    (void)state;
    put_ends(&graph);
    put_node(&graph, "Relu", "x", "y");
    finish(&graph, 18, &model);
    must(parse(&model));
    finish(&graph, 12, &model);
    expect_err(SONDE_EUNSUPPORTED, parse(&model));
    expect_line("net.onnx: opset 12 (expected opset 13 to 21)");
    finish(&graph, 22, &model);
    expect_err(SONDE_EUNSUPPORTED, parse(&model));
}

/* --- damage ----------------------------------------------------------------------------------- */

static unsigned char *read_golden(const char *name, size_t *size)
{
    char path[512];
    unsigned char *bytes = malloc(1 << 16);
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/golden/onnx/%s.onnx", SONDE_TEST_DIR, name);
    file = fopen(path, "rb");
    assert_non_null(file);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 16, file);
    (void)fclose(file);
    return bytes;
}

static void cut_short(void **state)
{
    size_t size = 0, refused = 0;
    unsigned char *bytes = read_golden("mlp_new", &size);

    (void)state;
    for (size_t n = 0; n < size; n++) {
        unsigned char *part = malloc(n + 1); /* a sanitizer sees its end */
        sonde_nn_model *model = NULL;

        memcpy(part, bytes, n);
        memset(&engine_diag, 0, sizeof engine_diag);
        if (sonde_nn_onnx_parse(part, n, "net.onnx", NULL, &model, NULL, &engine_diag) !=
            SONDE_OK) {
            assert_string_equal(engine_diag.where, "net.onnx");
            assert_true(engine_diag.found[0] != '\0');
            refused++;
        }
        sonde_nn_model_destroy(model);
        free(part);
    }
    assert_true(refused + 40 > size); /* the end says nothing that is needed */
    free(bytes);
}

static void without_memory(void **state)
{
    size_t size = 0;
    unsigned char *bytes = read_golden("cnn_new", &size);
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_nn_model *model = NULL;

        alloc_failure_begin(n);
        err = sonde_nn_onnx_parse(bytes, size, "net.onnx", NULL, &model, NULL,
                                  &engine_diag);
        sonde_nn_model_destroy(model);
        assert_int_equal(alloc_failure_end(), 0);
        if (err != SONDE_OK && err != SONDE_ENOMEM) {
            fail_msg("allocation %zu: %s: %s", n, engine_diag.where, engine_diag.found);
        }
    }
    free(bytes);
}

/* --- external data ------------------------------------------------------------------------------ */

/* A model whose weight lies in another file. */
static void external(const char *location, const char *length, wire *model)
{
    wire graph = {.size = 0}, tensor = {.size = 0}, entry = {.size = 0};

    put_int(&tensor, 1, 4);
    put_int(&tensor, 2, 1);
    put_text(&tensor, 8, "fc.w");
    put_text(&entry, 1, "location");
    put_text(&entry, 2, location);
    put_message(&tensor, 13, &entry);
    entry.size = 0;
    put_text(&entry, 1, "length");
    put_text(&entry, 2, length);
    put_message(&tensor, 13, &entry);
    put_int(&tensor, 14, 1);
    put_ends(&graph);
    put_message(&graph, 5, &tensor);
    put_node(&graph, "Mul", "x fc.w", "y");
    finish(&graph, 18, model);
}

static void write_file(const char *folder, const char *name, const void *bytes,
                       size_t size)
{
    char path[512];
    FILE *file = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, size, file), size);
    assert_int_equal(fclose(file), 0);
}

static sonde_err load_external(const char *folder, const char *location,
                               const char *length)
{
    wire model = {.size = 0};
    char path[512];
    sonde_nn_model *made = NULL;
    sonde_err err = SONDE_OK;

    external(location, length, &model);
    write_file(folder, "net.onnx", model.bytes, model.size);
    (void)snprintf(path, sizeof path, "%s/net.onnx", folder);
    err = sonde_nn_onnx_load(path, NULL, &made, NULL, &engine_diag);
    sonde_nn_model_destroy(made);
    return err;
}

static void elsewhere(void **state)
{
    char folder[] = "/tmp/sonde-onnx-XXXXXX", path[512];
    const float values[4] = {1.0F, 2.0F, 3.0F, 4.0F};
    const char *const files[] = {"net.onnx", "data", "short", "link"};

    (void)state;
    assert_non_null(mkdtemp(folder));
    write_file(folder, "data", values, sizeof values);
    write_file(folder, "short", values, 8);
    (void)snprintf(path, sizeof path, "%s/link", folder);
    assert_int_equal(symlink("/etc/passwd", path), 0);
    must(load_external(folder, "data", "16"));
    expect_err(SONDE_ENOTFOUND, load_external(folder, "missing", "16"));
    expect_err(SONDE_EINVAL, load_external(folder, "../data", "16"));
    expect_err(SONDE_EINVAL, load_external(folder, "/etc/passwd", "16"));
    expect_err(SONDE_EINVAL, load_external(folder, "link", "16"));
    expect_err(SONDE_EFORMAT, load_external(folder, "short", "16"));
    expect_err(SONDE_ESHAPE, load_external(folder, "data", "12"));
    expect_err(SONDE_EFORMAT, load_external(folder, "data", "-1"));
    for (size_t i = 0; i < SONDE_COUNT_OF(files); i++) {
        (void)snprintf(path, sizeof path, "%s/%s", folder, files[i]);
        (void)unlink(path);
    }
    (void)rmdir(folder);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible),     cmocka_unit_test(other_opsets),
        cmocka_unit_test(cut_short),      cmocka_unit_test(elsewhere),
        cmocka_unit_test(without_memory),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
