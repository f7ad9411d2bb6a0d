/*
 * fuzz_onnx.c - any bytes as an ONNX model; one that is read is compiled for inference too.
 *
 * A model may ask for more memory than there is: blocks are of 1 MiB at most here.
 */
#include <sonde/alloc.h>
#include <sonde/nn/onnx.h>
#include <sonde/nn/session.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void *allocate(void *user, size_t align, size_t size)
{
    void *block = NULL;

    (void)user;
    if (size > (size_t)1 << 20 ||
        posix_memalign(&block, align < sizeof block ? sizeof block : align, size) != 0) {
        return NULL;
    }
    return block;
}

static void release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* An error must say what it is, in one line. */
static void check(sonde_err err, const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    if (err == SONDE_OK) {
        return;
    }
    if (diag->err != err || diag->found[0] == '\0') {
        abort();
    }
    (void)sonde_diag_line(diag, line, sizeof line);
    for (const char *c = line; *c != '\0'; c++) {
        if ((unsigned char)*c < 0x20) {
            abort();
        }
    }
}

static sonde_err compile(sonde_nn_model *model, sonde_diag *diag)
{
    sonde_nn_options options;
    sonde_nn_session *session = NULL;
    sonde_err err = SONDE_OK;

    sonde_nn_options_init(&options);
    options.threads = 1;
    err = sonde_nn_inference_session(model, &options, &session, diag);
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, diag);
    }
    sonde_nn_session_destroy(session);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const sonde_allocator small = {allocate, release, NULL};
    sonde_nn_model *model = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    sonde_set_allocator(&small);
    err = sonde_nn_onnx_parse(data, size, "fuzz.onnx", NULL, &model, NULL, &diag);
    check(err, &diag);
    if (err == SONDE_OK) {
        err = compile(model, &diag);
        check(err, &diag);
    }
    sonde_nn_model_destroy(model);
    return 0;
}
