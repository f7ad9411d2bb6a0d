/*
 * demo_run.c - the samples of a demo, in memory: drawn or from a folder, with their
 * faults; trains it and records it.
 *
 * The rules get the same evidence as the record: vital signs of everything and raw
 * values of labels and scores at every step, raw values of parameters, gradients and
 * activations less often. So judging the record again finds the same.
 */
#include "base/fail.h"
#include "cli/cli_findings.h"
#include "cli/demo.h"
#include "cli/run_reading.h"

#include <sonde/nn/job.h>
#include <sonde/nn/dataset.h>
#include <sonde/nn/trainer.h>

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* --- samples ---------------------------------------------------------------------- */

/* A split of a demo's data; set reads from pixels and labels. */
typedef struct sample_set {
    sonde_nn_dataset *set;
    float *pixels; /* (count, 1, 28, 28), 0 ... 1 */
    int64_t *labels;
} sample_set;

enum {
    SIDE = SONDE_NN_SYNTH_SIDE,
    PIXELS = SIDE * SIDE,
    CLASSES = SONDE_NN_SYNTH_CLASSES,
    DRAWN_SEED = 0 /* the garments of every demo */
};

/* Where the samples come from. */
typedef struct source {
    sonde_nn_dataset *folder; /* NULL: drawn */
    sonde_nn_split split;
    int64_t count; /* of samples */
} source;

static sonde_err fail_source(sonde_diag *diag, const char *folder, const char *found,
                             const char *expected)
{
    return sonde_diag_set(diag, SONDE_ESHAPE, folder, expected, "%s", found);
}

static sonde_err open_source(const char *folder, sonde_nn_split split, source *where,
                             sonde_diag *diag)
{
    sonde_err err = SONDE_ENOTFOUND;

    *where = (source){.split = split, .count = INT64_MAX};
    if (folder == NULL) {
        return SONDE_OK;
    }
    for (size_t i = 0; err == SONDE_ENOTFOUND && sonde_nn_dataset_name(i) != NULL; i++) {
        err = sonde_nn_dataset_open(folder,
                                    SONDE_OPTIONS(sonde_nn_dataset,
                                                  .name = sonde_nn_dataset_name(i),
                                                  .split = split),
                                    &where->folder, diag);
    }
    if (err != SONDE_OK) {
        return err;
    }
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(where->folder);
    where->count = traits->count;
    if (traits->dtype != SONDE_U8 || traits->rank != 3 || traits->shape[0] != 1 ||
        traits->shape[1] != SIDE || traits->shape[2] != SIDE ||
        traits->classes > CLASSES) {
        return fail_source(diag, folder, "a data set of another kind",
                           "gray images of 28 x 28 in at most 10 classes");
    }
    return SONDE_OK;
}

/* Sample i into pixels in 0 ... 1; its label. */
static sonde_err take(const source *where, int64_t i, float *pixels, int64_t *label,
                      sonde_diag *diag)
{
    uint8_t drawn[PIXELS];
    const uint8_t *bytes = drawn;

    if (where->folder == NULL) {
        *label = sonde_nn_synth_draw(DRAWN_SEED, where->split, i, drawn);
    } else {
        sonde_nn_sample sample;
        SONDE__TRY(sonde_nn_dataset_get(where->folder, i, NULL, &sample, diag));
        bytes = sample.data;
        *label = sample.label;
    }
    for (int k = 0; k < PIXELS; k++) {
        pixels[k] = (float)bytes[k] / 255.0F;
    }
    return SONDE_OK;
}

/* Fills out->pixels and out->labels with samples, in the order of the source. */
static sonde_err fill(const sonde_nn_demo *demo, const source *where, const char *folder,
                      int64_t count, sample_set *out, sonde_diag *diag)
{
    int64_t of_class_0 = 0, taken = 0;

    for (int64_t i = 0; taken < count; i++) {
        if (i >= where->count) {
            return fail_source(diag, folder, "too few samples", "a whole data set");
        }
        SONDE__TRY(
            take(where, i, out->pixels + taken * PIXELS, &out->labels[taken], diag));
        if (demo->scarce > 0 && out->labels[taken] == 0 &&
            of_class_0++ % demo->scarce != 0) {
            continue;
        }
        taken++;
    }
    return SONDE_OK;
}

/* A fixed permutation: each label goes to a sample elsewhere. */
static void shuffle_labels(int64_t *labels, int64_t count, uint64_t seed)
{
    uint64_t state = seed * 2 + 1;

    for (int64_t i = count - 1; i > 0; i--) {
        int64_t k = 0, kept = labels[i];

        /* Knuth's MMIX: the upper bits are good enough to mix labels */
        state = state * 6364136223846793005U + 1442695040888963407U;
        k = (int64_t)((state >> 33U) % (uint64_t)(i + 1));
        labels[i] = labels[k];
        labels[k] = kept;
    }
}

static sonde_err make_samples(const sonde_nn_demo *demo, const char *folder,
                              sonde_nn_split split, uint64_t seed, sample_set *out,
                              sonde_diag *diag)
{
    const int64_t count = split == SONDE_NN_TRAIN ? demo->train : demo->test;
    const int64_t shape[4] = {count, 1, SIDE, SIDE};
    sonde_view pixels, labels;
    const sonde_nn_dataset_options options = {
        .size = sizeof options,
        .classes = CLASSES,
        .data = &pixels,
        .labels = &labels,
        .class_names = sonde_nn_dataset_class_names("fashion-synth")};
    source place;
    sonde_err err = open_source(folder, split, &place, diag);

    out->pixels = malloc((size_t)count * PIXELS * sizeof *out->pixels);
    out->labels = malloc((size_t)count * sizeof *out->labels);
    if (err == SONDE_OK && (out->pixels == NULL || out->labels == NULL)) {
        err = cli_fail_memory(diag);
        goto done;
    }
    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(fill(demo, &place, folder, count, out, diag));
    if (demo->shuffled && split == SONDE_NN_TRAIN) {
        shuffle_labels(out->labels, count, seed);
    }
    if (demo->hole && split == SONDE_NN_TRAIN) {
        out->pixels[(count / 2) * PIXELS + PIXELS / 2] = NAN;
    }
    pixels = sonde_view_of(SONDE_F32, 4, shape, out->pixels);
    labels = sonde_view_of(SONDE_I64, 1, shape, out->labels);
    err = sonde_nn_dataset_open(NULL, &options, &out->set, diag);

done:
    sonde_nn_dataset_destroy(place.folder);
    return err;
}

static void free_samples(sample_set *set)
{
    sonde_nn_dataset_destroy(set->set);
    free(set->pixels);
    free(set->labels);
    *set = (sample_set){0};
}

/* --- the job ---------------------------------------------------------------------- */

enum { RAW_EVERY = 20, PRINT_EVERY = 20 }; /* RAW_EVERY: as the recordings have it */

typedef struct running {
    const cli_demo_options *asked;
    const sonde_nn_demo *demo;
    sonde_nn_job *job;
    sonde_nn_job_info *info;
    sonde_nn_model *model;
    sample_set train, test;
    sonde_nn_loader *loader;
    sonde_nn_feed feed;        /* the loader's */
    sonde_nn_feed_batch batch; /* the last one */
    bool used;                 /* once, so it is due again */
    sonde_nn_trainer *trainer;
    int64_t step; /* that was trained last */
    double loss;
} running;

/* The recording of a hook type; NULL: the usual one. */
static const cli_demo_file *find_recording(const char *type, sonde_diag *diag)
{
    const char *name = type != NULL ? type : "usual";

    for (size_t i = 0; cli_demo_recordings[i].name != NULL; i++) {
        if (strcmp(name, cli_demo_recordings[i].name) == 0 &&
            (type == NULL || strcmp(type, "usual") != 0)) {
            return &cli_demo_recordings[i];
        }
    }
    (void)sonde_diag_set(diag, SONDE_EINVAL, "--hook-type",
                         "weights-bias-gradients, module-input-output or saveall", "'%s'",
                         type);
    return NULL;
}

/* more: another line of the recording's collections; NULL: none. */
static sonde_err parse(const cli_demo_file *file, const cli_demo_file *recording,
                       const char *more, sonde_nn_job **out, sonde_diag *diag)
{
    sonde_text whole = {0};
    sonde_err err = SONDE_OK;

    sonde_text_format(&whole, "%s%s%s%s\n", file->text, recording->text,
                      more != NULL ? "    " : "", more != NULL ? more : "");
    err = whole.failed
              ? cli_fail_memory(diag)
              : sonde_nn_job_parse(whole.data, whole.length, file->name, out, diag);
    sonde_text_fini(&whole);
    return err;
}

sonde_err cli_demo_open(const cli_demo_file *file, bool fixed, const char *hook_type,
                        sonde_nn_job **out, sonde_diag *diag)
{
    const cli_demo_file *recording = find_recording(hook_type, diag);
    sonde_nn_job *job = NULL, *plain = NULL;
    const char *more = NULL;
    sonde_err err = SONDE_OK;

    if (recording == NULL) {
        return diag->err;
    }
    SONDE__TRY(parse(file, recording, NULL, &plain, diag));
    if (hook_type == NULL || strcmp(hook_type, "saveall") == 0) {
        more = sonde_nn_job_get_demo(plain)->collections;
    }
    err = parse(file, recording, more, &job, diag);
    sonde_nn_job_destroy(plain);
    if (err == SONDE_OK && fixed) {
        err = sonde_nn_job_fix_demo(job, diag);
    }
    if (err != SONDE_OK) {
        sonde_nn_job_destroy(job);
        return err;
    }
    *out = job;
    return SONDE_OK;
}

/* The trainer sets the environment's values again; here they make the model and the
 * data. */
static sonde_err set_options(running *run, sonde_diag *diag)
{
    const cli_demo_options *options = run->asked;
    SONDE__TRY(sonde_nn_job_set_environment(run->job, diag));
    run->info->record.path = options->run;
    run->info->rules.none = true;
    run->info->seed += (uint64_t)options->seed;
    run->info->options.random_seed = run->info->seed;
    if (!isnan(options->learning_rate)) {
        run->info->optimizer.learning_rate = (float)options->learning_rate;
    }
    if (options->threads != CLI_NOT_GIVEN) {
        run->info->options.threads = (int)options->threads;
    }
    return SONDE_OK;
}

/* --- the model -------------------------------------------------------------------- */

/* The faults of initial weights. */
static void set_weights(const running *run)
{
    for (size_t i = 0; i < sonde_nn_model_get_info(run->model).parameter_count; i++) {
        const sonde_view view = sonde_nn_parameter(run->model, i).view;
        const int64_t count = sonde_view_count(&view);
        float *values = view.data;

        for (int64_t k = 0; k < count && view.rank > 1; k++) {
            values[k] = run->demo->alike ? fabsf(values[0]) : values[k];
            values[k] *= run->demo->gain > 0.0F ? run->demo->gain : 1.0F;
        }
    }
}

/* The optimizer does not get the parameters of one module. */
static void leave_out(const running *run)
{
    const char *module = run->demo->frozen;
    const size_t length = module != NULL ? strlen(module) : 0;

    for (size_t i = 0;
         length > 0 && i < sonde_nn_model_get_info(run->model).parameter_count; i++) {
        const char *name = sonde_nn_parameter(run->model, i).name;

        if (strncmp(name, module, length) == 0 && name[length] == '.') {
            sonde_nn_parameter_leave_out(run->model, i, true);
        }
    }
}

/* --- the data --------------------------------------------------------------------- */

static void start_epoch(void *user, uint64_t epoch)
{
    const running *run = user;

    run->feed.start_epoch(run->feed.user, epoch);
}

/* The loader's next batch, or the last one again. */
static sonde_err next_batch(void *user, sonde_nn_feed_batch *batch, sonde_diag *diag)
{
    running *run = user;
    sonde_err err = SONDE_OK;

    if (run->demo->twice && run->used) {
        run->used = false;
    } else {
        err = run->feed.next(run->feed.user, &run->batch, diag);
        run->used = run->batch.samples > 0;
    }
    *batch = run->batch;
    return err;
}

static sonde_err open_training(running *run, sonde_diag *diag)
{
    const sonde_nn_options *options = &run->info->options;
    SONDE__TRY(make_samples(run->demo, run->asked->data, SONDE_NN_TRAIN, run->info->seed,
                            &run->train, diag));
    SONDE__TRY(sonde_nn_job_loader(run->job, run->train.set,
                                   options->batch_size * options->device_iterations *
                                       options->gradient_accumulation,
                                   true, &run->loader, diag));
    run->feed = sonde_nn_loader_feed(run->loader);
    return SONDE_OK;
}

/* The trainer takes the test set. */
static sonde_err open_test(void *user, sonde_nn_split split, sonde_nn_dataset **out,
                           sonde_diag *diag)
{
    running *run = user;
    SONDE__TRY(make_samples(run->demo, run->asked->data, split, run->info->seed,
                            &run->test, diag));
    *out = run->test.set;
    run->test.set = NULL;
    return SONDE_OK;
}

/* --- events ----------------------------------------------------------------------- */

static void print_step(const running *run)
{
    if (!run->asked->quiet && run->demo->test == 0) {
        /* the sign of a NaN means nothing */
        (void)printf("  step %4lld: loss %.4g\n", (long long)run->step,
                     isnan(run->loss) ? (double)NAN : run->loss);
        (void)fflush(stdout);
    }
}

static sonde_err on_step(void *user, const sonde_nn_step *step, sonde_diag *diag)
{
    running *run = user;

    run->step = step->step - 1;
    run->loss = step->loss;
    if (run->step % PRINT_EVERY == 0) {
        print_step(run);
    }
    if (run->demo->decay > 0.0F) {
        run->info->optimizer.learning_rate *= run->demo->decay;
        return sonde_nn_session_set_optimizer(
            sonde_nn_trainer_get_info(run->trainer).session, NULL, &run->info->optimizer,
            diag);
    }
    return SONDE_OK;
}

static sonde_err on_epoch_end(void *user, const sonde_nn_epoch *epoch, sonde_diag *diag)
{
    const running *run = user;

    (void)diag;
    if (run->step % PRINT_EVERY != 0) {
        print_step(run);
    }
    if (epoch->eval_set != NULL && !run->asked->quiet) {
        (void)printf("  epoch %2d: loss %.4g, test loss %.4g\n", epoch->number + 1,
                     epoch->loss, epoch->score.loss);
        (void)fflush(stdout);
    }
    return SONDE_OK;
}

static void on_finding(void *user, const sonde_finding *finding, int epoch)
{
    const running *run = user;

    run->asked->on_finding(run->asked->user, finding, run->demo->test > 0 ? epoch : 0);
}

/* --- running ---------------------------------------------------------------------- */

static sonde_err make_trainer(running *run, const char *name, sonde_diag *diag)
{
    const int64_t uses = run->demo->twice ? 2 : 1, raw = run->demo->raw_every;
    const sonde_nn_feed feed = {.user = run,
                                .batches = uses * run->feed.batches,
                                .samples = uses * run->feed.samples,
                                .start_epoch = start_epoch,
                                .next = next_batch};
    const sonde_nn_trainer_options options = {
        .size = sizeof options,
        .events = {.user = run,
                   .step = on_step,
                   .epoch_end = on_epoch_end,
                   .finding = on_finding,
                   .warning = cli_on_warning,
                   .interrupted = cli_is_interrupted},
        .no_evaluation = run->demo->test == 0,
        .no_scalars = true, /* rules in the process do not see them */
        .model = run->model,
        .feed = &feed,
        .program = "sonde demo",
        .run_model = name,
        .open_data = open_test,
        .rules = run->asked->rules,
        .rules_every = 1,
        .rules_raw_every = raw > 0 ? raw : RAW_EVERY};

    return sonde_nn_trainer_create(run->job, &options, &run->trainer, diag);
}

static sonde_err set_up(running *run, const cli_demo_file *file, sonde_diag *diag)
{
    SONDE__TRY(
        cli_demo_open(file, run->asked->fixed, run->asked->hook_type, &run->job, diag));
    run->demo = sonde_nn_job_get_demo(run->job);
    run->info = sonde_nn_job_get_info(run->job);
    SONDE__TRY(set_options(run, diag));
    SONDE__TRY(sonde_nn_job_build(run->job, &run->model, diag));
    set_weights(run);
    leave_out(run);
    SONDE__TRY(open_training(run, diag));
    return make_trainer(run, file->name, diag);
}

sonde_err cli_demo_train(const cli_demo_file *file, const cli_demo_options *options,
                         sonde_diag *diag)
{
    running run = {.asked = options};
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(set_up(&run, file, diag));
    err = sonde_nn_trainer_run(run.trainer, diag);

done:
    sonde_nn_trainer_destroy(run.trainer);
    sonde_nn_loader_destroy(run.loader);
    sonde_nn_model_destroy(run.model);
    free_samples(&run.train);
    free_samples(&run.test);
    sonde_nn_job_destroy(run.job);
    return err;
}
