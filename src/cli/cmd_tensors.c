/*
 * cmd_tensors.c - `sonde tensors` lists every tensor that can be observed, without
 * running the model; `sonde compile` prints the compiled model.
 */
#include "cli/cli_job.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/nn/job.h>
#include <sonde/nn/session.h>

#include <stdlib.h>
#include <string.h>

typedef struct tensors_values {
    const char *select, *dump, *save, *weights, *plan_cache;
    int64_t batch, accumulation, threads;
    bool inference, json, names;
} tensors_values;

typedef struct compiled {
    sonde_nn_job *job;
    sonde_nn_model *model;
    sonde_nn_session *session;
    double began; /* when it is compiled; seconds */
} compiled;

static void release(compiled *work)
{
    sonde_nn_session_destroy(work->session);
    sonde_nn_model_destroy(work->model);
    sonde_nn_job_destroy(work->job);
}

/* The job's groups of parameters: each has numbers of its own among the tensors. */
static sonde_err add_groups(compiled *work, sonde_diag *diag)
{
    const size_t count = sonde_nn_job_get_info(work->job)->group_count;

    for (size_t i = 0; i < count; i++) {
        sonde_nn_job_group group;

        SONDE__TRY(sonde_nn_job_get_group(work->job, i, &group, diag));
        SONDE__TRY(sonde_nn_session_add_group(
            work->session,
            &(sonde_nn_group){
                .name = group.name, .params = group.params, .optimizer = group.optimizer},
            diag));
    }
    return SONDE_OK;
}

/* Progress of what takes longer than a second. user: when it began. */
static void show_progress(void *user, int done, int total)
{
    const double *began = user;

    if (cli_now() - *began > 1.0) {
        cli_compile_progress(NULL, done, total);
    }
}

static sonde_err compile(const tensors_values *values, const char *job, compiled *work,
                         sonde_diag *diag)
{
    SONDE__TRY(cli_job_open(job, &work->job, diag));
    sonde_nn_job_info *info = sonde_nn_job_get_info(work->job);
    info->options.on_progress = show_progress;
    work->began = cli_now();
    info->options.progress_user = &work->began;
    if (values->plan_cache != NULL) {
        info->options.plan_cache = values->plan_cache;
    }
    if (values->batch != CLI_NOT_GIVEN) {
        info->options.batch_size = values->batch;
    }
    if (values->accumulation != CLI_NOT_GIVEN) {
        info->options.gradient_accumulation = (int)values->accumulation;
    }
    if (values->threads != CLI_NOT_GIVEN) {
        info->options.threads = (int)values->threads;
    }
    SONDE__TRY(sonde_nn_job_set_environment(work->job, diag));
    if (values->inference && values->accumulation == CLI_NOT_GIVEN) {
        info->options.gradient_accumulation = 1; /* a job's is one of training */
    }
    SONDE__TRY(sonde_nn_job_build(work->job, &work->model, diag));
    if (values->weights != NULL) {
        SONDE__TRY(cli_weights_load(work->job, work->model, values->weights, job, diag));
    }
    SONDE__TRY(sonde_nn_session_create(work->model, &info->options,
                                       values->inference ? NULL : &info->optimizer,
                                       &work->session, diag));
    if (!values->inference) {
        SONDE__TRY(add_groups(work, diag));
    }
    return sonde_nn_session_compile(work->session, diag);
}

static void print_tensor(const tensors_values *values, const sonde_catalogue *catalogue,
                         uint32_t id)
{
    const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);
    const bool alias = info->same_as != id;
    const char *same_as =
        alias ? sonde_catalogue_info(catalogue, info->same_as)->name : "";
    char shape[96];

    (void)sonde_shape_text(info->rank, info->shape, shape, sizeof shape);
    if (values->names) {
        (void)puts(info->name);
    } else if (values->json) {
        CLI_LINE(cli_uint("id", id), cli_text("name", info->name),
                 cli_text("role", sonde_role_name(info->role)),
                 cli_text("module", info->module), cli_text("op", info->op),
                 cli_text("pass", sonde_pass_name(info->pass)),
                 cli_text("dtype", sonde_dtype_name(info->dtype)),
                 cli_shape(info->rank, info->shape), cli_text("same_as", same_as),
                 cli_text("note", info->note));
    } else {
        (void)printf("%-36s %-19s %-9s %-8s %-18s %s%s\n", info->name,
                     sonde_role_name(info->role), sonde_pass_name(info->pass),
                     sonde_dtype_name(info->dtype), shape, alias ? "= " : info->op,
                     same_as);
    }
}

static sonde_err list(const tensors_values *values, const compiled *work,
                      sonde_diag *diag)
{
    const sonde_catalogue *catalogue = sonde_nn_session_catalogue(work->session);
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_err err = SONDE_OK;

    if (values->select == NULL) {
        if (!values->json && !values->names) {
            (void)printf("%-36s %-19s %-9s %-8s %-18s %s\n", "name", "role", "pass",
                         "dtype", "shape", "op");
        }
        for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
            print_tensor(values, catalogue, id);
        }
        return SONDE_OK;
    }
    SONDE__TRY(sonde_selector_create(values->select, &selector, diag));
    SONDE__TRY_DONE(sonde_selector_resolve(selector, catalogue, &ids, &count, diag));
    for (size_t i = 0; i < count; i++) {
        print_tensor(values, catalogue, ids[i]);
    }
    if (count == 0) {
        cli_warn("'%s' matches no tensor", values->select);
    }

done:
    sonde_release(ids);
    sonde_selector_destroy(selector);
    return err;
}

static int run_tensors(const void *values, int argc, char **argv)
{
    compiled work = {0};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(compile(values, argc > 0 ? argv[0] : NULL, &work, &diag));
    err = list(values, &work, &diag);

done:
    release(&work);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

static sonde_err describe(const compiled *work, sonde_diag *diag)
{
    sonde_nn_session_info info;
    SONDE__TRY(sonde_nn_session_describe(work->session, &info, diag));
    char arena[32], live[32], state[32];
    (void)printf("compiled in %.2f ms: %zu steps, %d thread%s, %lld samples a call\n"
                 "arena %s (largest live set %s), state %s\n",
                 1e3 * info.compile_seconds, info.op_count, info.threads,
                 info.threads == 1 ? "" : "s", (long long)info.combined_batch,
                 cli_bytes_text((double)info.arena_bytes, arena, sizeof arena),
                 cli_bytes_text((double)info.largest_live, live, sizeof live),
                 cli_bytes_text((double)info.state_bytes, state, sizeof state));
    return SONDE_OK;
}

static int run_compile(const void *values, int argc, char **argv)
{
    const tensors_values *asked = values;
    compiled work = {0};
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(compile(asked, argc > 0 ? argv[0] : NULL, &work, &diag));
    err = asked->dump != NULL
              ? sonde_nn_session_dump(work.session, asked->dump, stdout, &diag)
              : describe(&work, &diag);
    if (err == SONDE_OK && asked->save != NULL) {
        err = sonde_nn_job_save_plan(work.job, work.session, asked->save,
                                     asked->weights != NULL ||
                                         sonde_nn_job_get_info(work.job)->has_weights,
                                     &diag);
    }

done:
    release(&work);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(tensors_values, __VA_ARGS__)

static const cli_option tensors_options[] = {
    OPTION("select", 0, CLI_TEXT, "TENSORS", select,
           "list only these: a name, a glob, re:REGEX, @role, module:NAME"),
    OPTION("names", 0, CLI_FLAG, NULL, names, "print only names"),
    OPTION("inference", 'i', CLI_FLAG, NULL, inference, "compile for inference"),
    OPTION("batch-size", 'b', CLI_SIZE, "N", batch, "put N samples in a micro-batch"),
    OPTION("gradient-accumulation", 0, CLI_SIZE, "N", accumulation,
           "run N micro-batches per step"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object per line (text)"),
};

const cli_command cli_tensors = {
    .name = "tensors",
    .arguments = "[MODEL | JOB.yaml]",
    .summary = "list every tensor that can be observed",
    .examples = "  sonde tensors fashion_cnn --select 'Gradient___*.weight'\n"
                "  sonde tensors job.yaml --select @activation --format json",
    .options = tensors_options,
    .option_count = CLI_COUNT_OF(tensors_options),
    .most = 1,
    .values_size = sizeof(tensors_values),
    .run = run_tensors,
};

static const cli_option compile_options[] = {
    OPTION(
        "dump", 0, CLI_TEXT, "PASS", dump,
        "print the graph after instantiate, autodiff, track, accumulate, optimize, prune, fuse, "
        "stage, layout or plan"),
    OPTION("inference", 'i', CLI_FLAG, NULL, inference, "compile for inference"),
    OPTION("batch-size", 'b', CLI_SIZE, "N", batch, "put N samples in a micro-batch"),
    OPTION("gradient-accumulation", 0, CLI_SIZE, "N", accumulation,
           "run N micro-batches per step"),
    OPTION("threads", 't', CLI_COUNT, "N", threads,
           "use at most N threads; 0: automatic"),
    OPTION("out", 'o', CLI_TEXT, "FILE.plan", save,
           "write the compiled plan; other commands accept it as a job"),
    OPTION("weights", 0, CLI_TEXT, "FILE", weights,
           "put these weights into the plan (default: random ones)"),
    OPTION("plan-cache", 0, CLI_TEXT, "FOLDER", plan_cache,
           "keep compiled plans in this folder (default: the user's cache)"),
};

const cli_command cli_compile = {
    .name = "compile",
    .arguments = "[MODEL | JOB.yaml]",
    .summary = "compile a model, print it after any pass, save it as a plan",
    .examples = "  sonde compile fashion_cnn --dump plan\n"
                "  sonde compile fashion_cnn --weights model.safetensors --out cnn.plan",
    .options = compile_options,
    .option_count = CLI_COUNT_OF(compile_options),
    .most = 1,
    .values_size = sizeof(tensors_values),
    .run = run_compile,
};
