/*
 * fuzz_job.c - any bytes as a job; one that is read is built and compiled too.
 *
 * A job may ask for more memory than there is. Here blocks are of 1 MiB at most, so that
 * it gets SONDE_ENOMEM soon instead of drawing a billion weights.
 */
#include <sonde/alloc.h>
#include <sonde/nn/job.h>
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

/* An error must say what it is. */
static void check(sonde_err err, const sonde_diag *diag)
{
    if (err != SONDE_OK && (diag->err != err || diag->found[0] == '\0')) {
        abort();
    }
}

static sonde_err compile(sonde_nn_job *job, sonde_diag *diag)
{
    sonde_nn_job_info *info = sonde_nn_job_get_info(job);
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_err err = sonde_nn_job_build(job, &model, diag);

    info->options.threads = 1;
    if (err == SONDE_OK) {
        err = sonde_nn_session_create(model, &info->options, &info->optimizer, &session,
                                      diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, diag);
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    return err;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static const sonde_allocator small = {allocate, release, NULL};
    sonde_nn_job *job = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    sonde_set_allocator(&small);
    err = sonde_nn_job_parse((const char *)data, size, "job", &job, &diag);
    check(err, &diag);
    if (err == SONDE_OK) {
        err = compile(job, &diag);
        check(err, &diag);
    }
    sonde_nn_job_destroy(job);
    return 0;
}
