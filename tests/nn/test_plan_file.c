/*
 * test_plan_file.c - a session that was saved and loaded is the session: names, anchors,
 * and every bit of its weights; files that are damaged, of another version or for another
 * processor are refused with one line that says which.
 */
#include "alloc_failure.h"
#include "base/macros.h"
#include "engine.h"

#include <sonde/nn/job.h>
#include "nn/run/plan_object.h"

#include "nn/run/session_state.h"

#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

static char folder[64], file[96];

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-plan-XXXXXX");
    assert_non_null(mkdtemp(folder));
    (void)snprintf(file, sizeof file, "%s/a.plan", folder);
    return 0;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)unlink(file);
    return rmdir(folder);
}

/* --- sessions ------------------------------------------------------------------------- */

typedef struct setting {
    int accumulation, replicas, threads;
    bool tapped, scaled;
    sonde_nn_optimizer_kind kind;
} setting;

static sonde_nn_session *open_session(sonde_nn_model *model, const setting *s)
{
    sonde_nn_optimizer optimizer = sonde_nn_optimizer_default(s->kind, 0.0F);
    sonde_nn_session *session = NULL;
    sonde_nn_options options;

    optimizer.automatic_loss_scaling = s->scaled;
    sonde_nn_options_init(&options);
    options.gradient_accumulation = s->accumulation;
    options.replicas = s->replicas;
    options.threads = s->threads;
    options.random_seed = 7;
    must(sonde_nn_session_create(model, &options, &optimizer, &session, &engine_diag));
    must(sonde_nn_session_anchor(session, "mine", "loss_output_0", SONDE_ANCHOR_ALL, 1,
                                 &engine_diag));
    return session;
}

static void tap_all(sonde_nn_session *session, engine_sink *sink)
{
    const sonde_schedule always = sonde_schedule_every(1);

    must(sonde_nn_session_tap(session, "*", &always, SONDE_HOW_RAW, &sink->sink,
                              &engine_diag));
}

/* The session in the file, over a new model of it. */
static sonde_nn_session *load_session(sonde_nn_plan **plan, sonde_nn_model **model)
{
    sonde_nn_session *session = NULL;

    must(sonde_nn_plan_load(file, plan, &engine_diag));
    must(sonde_nn_plan_model(*plan, 0, model, &engine_diag));
    must(sonde_nn_plan_session(*plan, *model, &session, &engine_diag));
    return session;
}

static void save(sonde_nn_session *session, bool weights)
{
    const sonde_nn_plan_options options = {
        .size = sizeof options, .weights = weights, .text = "a text: of\nmine"};

    must(sonde_nn_plan_save(session, file, &options, &engine_diag));
}

static void expect_same_weights(const sonde_nn_model *a, const sonde_nn_model *b)
{
    float *x = engine_weights(a), *y = engine_weights(b);

    assert_int_equal(engine_weight_count(a), engine_weight_count(b));
    assert_same_bits(x, y, engine_weight_count(a));
    free(x);
    free(y);
}

static void expect_same_names(const sonde_nn_session *a, const sonde_nn_session *b)
{
    const sonde_catalogue *x = sonde_nn_session_catalogue(a);
    const sonde_catalogue *y = sonde_nn_session_catalogue(b);

    assert_int_equal(sonde_catalogue_count(x), sonde_catalogue_count(y));
    for (uint32_t id = 0; id < sonde_catalogue_count(x); id++) {
        const sonde_tensor_info *i = sonde_catalogue_info(x, id);
        const sonde_tensor_info *k = sonde_catalogue_info(y, id);

        assert_string_equal(i->name, k->name);
        assert_string_equal(i->module, k->module);
        assert_int_equal(i->role, k->role);
        assert_int_equal(i->pass, k->pass);
        assert_int_equal(i->same_as, k->same_as);
        assert_int_equal(i->rank, k->rank);
        assert_memory_equal(i->shape, k->shape, (size_t)i->rank * sizeof *i->shape);
    }
}

/* --- results -------------------------------------------------------------------------- */

static const engine_builder builders[] = {engine_cnn, engine_mlp, engine_branches};
static const setting settings[] = {
    {1, 1, 1, false, false, SONDE_NN_SGD},  {1, 1, 2, true, false, SONDE_NN_ADAM},
    {2, 2, 2, true, false, SONDE_NN_SGD},   {2, 1, 1, false, true, SONDE_NN_ADAMW},
    {1, 2, 1, false, false, SONDE_NN_LAMB},
};

static void expect_same_training(engine_builder build, const setting *s)
{
    engine_net a;
    engine_sink sink, again;
    sonde_nn_plan *plan = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_session *first = NULL, *second = NULL;
    sonde_view x, y;

    build(&a, 4);
    engine_sink_init(&sink, true);
    engine_sink_init(&again, true);
    first = open_session(a.model, s);
    if (s->tapped) {
        tap_all(first, &sink);
    }
    save(first, true);
    second = load_session(&plan, &model);
    if (s->tapped) {
        tap_all(second, &again);
    }
    for (uint64_t i = 0; i < 4; i++) {
        engine_net b = a;

        engine_train(&a, first, i);
        b.model = model;
        engine_train(&b, second, i);
    }
    assert_true(second->plan.known); /* its places are the file's */
    assert_int_equal(first->plan.arena_bytes, second->plan.arena_bytes);
    expect_same_weights(a.model, model);
    expect_same_names(first, second);
    must(sonde_nn_session_anchored(first, "mine", &x, &engine_diag));
    must(sonde_nn_session_anchored(second, "mine", &y, &engine_diag));
    assert_same_bits((const float *)x.data, (const float *)y.data, sonde_view_count(&x));
    assert_int_equal(sink.count, again.count);
    for (size_t i = 0; i < sink.count; i++) {
        assert_string_equal(sink.seen[i].name, again.seen[i].name);
    }
    sonde_nn_session_destroy(first);
    sonde_nn_session_destroy(second);
    sonde_nn_model_destroy(model);
    sonde_nn_plan_destroy(plan);
    engine_sink_fini(&sink);
    engine_sink_fini(&again);
    engine_net_fini(&a);
}

static void loaded_plans_train_to_the_same_bits(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(builders); i++) {
        for (size_t k = 0; k < SONDE_COUNT_OF(settings); k++) {
            expect_same_training(builders[i], &settings[k]);
        }
    }
}

/* Inputs of a call: numbers of a pattern; integers below 3. */
static void run_call(sonde_nn_session *session, uint64_t seed)
{
    sonde_view views[4];

    must(sonde_nn_session_compile(session, &engine_diag));
    for (size_t i = 0; i < session->input_count; i++) {
        const sonde__op_shape *shape = &session->input_shapes[i];
        const size_t count = (size_t)sonde__op_shape_count(shape);
        void *data = calloc(count, 8);

        assert_non_null(data);
        for (size_t k = 0; k < count; k++) {
            if (shape->dtype == SONDE_I64) {
                ((int64_t *)data)[k] = (int64_t)((k * 7 + seed) % 3);
            } else {
                ((float *)data)[k] = sonde__uniform(seed, i, k) - 0.5F;
            }
        }
        views[i] = sonde_view_of(shape->dtype, shape->rank, shape->dim, data);
    }
    must(sonde_nn_session_run(session, views, session->input_count, &engine_diag));
    for (size_t i = 0; i < session->input_count; i++) {
        free(views[i].data);
    }
}

static void built_in_models_survive(void **state)
{
    const uint64_t steps =
        getenv("SONDE_SLOWED_BY") != NULL && *getenv("SONDE_SLOWED_BY") ? 1 : 2;
    const char *name = NULL;

    (void)state;
    for (size_t i = 0; (name = sonde_nn_job_builtin_name(i)) != NULL; i++) {
        sonde_nn_job *job = NULL, *loaded = NULL;
        sonde_nn_model *a = NULL, *b = NULL;
        sonde_nn_session *first = NULL, *second = NULL;
        sonde_nn_job_info *info = NULL;

        must(sonde_nn_job_builtin(name, &job, &engine_diag));
        info = sonde_nn_job_get_info(job);
        info->seed = 5;
        info->options.batch_size = 2;
        must(sonde_nn_job_build(job, &a, &engine_diag));
        must(sonde_nn_session_create(a, &info->options, &info->optimizer, &first,
                                     &engine_diag));
        must(sonde_nn_job_save_plan(job, first, file, false, &engine_diag));
        must(sonde_nn_job_load(file, &loaded, &engine_diag));
        assert_false(sonde_nn_job_get_info(loaded)->has_weights);
        must(sonde_nn_job_build(loaded, &b, &engine_diag));
        info = sonde_nn_job_get_info(loaded);
        assert_int_equal(info->classes, sonde_nn_job_get_info(job)->classes);
        assert_int_equal(info->target, sonde_nn_job_get_info(job)->target);
        info->options.plan_only = true;
        must(sonde_nn_session_create(b, &info->options, &info->optimizer, &second,
                                     &engine_diag));
        for (uint64_t step = 0; step < steps; step++) {
            run_call(first, step);
            run_call(second, step);
        }
        expect_same_weights(a, b);
        expect_same_names(first, second);
        sonde_nn_session_destroy(first);
        sonde_nn_session_destroy(second);
        sonde_nn_model_destroy(a);
        sonde_nn_model_destroy(b);
        sonde_nn_job_destroy(job);
        sonde_nn_job_destroy(loaded);
    }
}

/* Blocks on threads of their own, groups of parameters, a print, weights in the file. */
static void stages_groups_and_weights_survive(void **state)
{
    static const char text[] =
        "model:\n  input: [6]\n  layers:\n"
        "    - block: {name: front}\n    - linear: {name: a, out_features: 8}\n"
        "    - batch_norm: {name: n}\n    - relu: {name: r}\n"
        "    - dropout: {name: d, p: 0.25}\n    - print: {name: p}\n"
        "    - block: {name: back}\n    - linear: {name: b, out_features: 3}\n"
        "  loss: {cross_entropy: {name: loss}}\n"
        "optimizer: {kind: adam, learning_rate: 0.01, groups: [{name: head, params: "
        "\"b*\", learning_rate: 0.5}]}\n"
        "options: {batch_size: 4, gradient_accumulation: 4, threads: 2, seed: 3}\n"
        "observe: [{tensors: \"@weight's\", every: 3}]\n";
    sonde_nn_job *job = NULL, *loaded = NULL;
    sonde_nn_model *a = NULL, *b = NULL;
    sonde_nn_session *first = NULL, *second = NULL;
    sonde_nn_job_group group;
    FILE *silent = fopen("/dev/null", "we");

    (void)state;
    assert_non_null(silent);
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &a, &engine_diag));
    must(sonde_nn_session_create(a, &sonde_nn_job_get_info(job)->options,
                                 &sonde_nn_job_get_info(job)->optimizer, &first,
                                 &engine_diag));
    must(sonde_nn_job_get_group(job, 0, &group, &engine_diag));
    must(sonde_nn_session_add_group(
        first, &(sonde_nn_group){group.name, group.params, group.optimizer, NULL},
        &engine_diag));
    must(sonde_nn_session_set(first, SONDE_OPTIONS(sonde_nn_session, .prints = silent),
                              &engine_diag));
    sonde_nn_parameter_leave_out(a, 1, true);
    for (size_t i = 0; i < sonde_nn_model_get_info(a).parameter_count; i++) {
        ((float *)sonde_nn_parameter(a, i).view.data)[0] += 0.25F;
    }
    must(sonde_nn_job_save_plan(job, first, file, true, &engine_diag));
    must(sonde_nn_job_load(file, &loaded, &engine_diag));
    assert_true(sonde_nn_job_get_info(loaded)->has_weights);
    assert_int_equal(sonde_nn_job_get_info(loaded)->tap_count, 1);
    assert_string_equal(sonde_nn_job_get_info(loaded)->taps[0].tensors, "@weight's");
    assert_int_equal(sonde_nn_job_get_info(loaded)->taps[0].every, 3);
    assert_int_equal(sonde_nn_job_get_info(loaded)->group_count, 1);
    must(sonde_nn_job_build(loaded, &b, &engine_diag));
    expect_same_weights(a, b);
    must(sonde_nn_plan_session(sonde_nn_job_get_info(loaded)->options.plan, b, &second,
                               &engine_diag));
    must(sonde_nn_session_set(second, SONDE_OPTIONS(sonde_nn_session, .prints = silent),
                              &engine_diag));
    for (uint64_t step = 0; step < 3; step++) {
        run_call(first, step);
        run_call(second, step);
    }
    assert_true(second->plan.known);
    assert_int_equal(second->stages, first->stages);
    assert_int_equal(second->stages, 2);
    expect_same_weights(a, b);
    expect_same_names(first, second);
    sonde_nn_session_destroy(first);
    sonde_nn_session_destroy(second);
    sonde_nn_model_destroy(a);
    sonde_nn_model_destroy(b);
    sonde_nn_job_destroy(job);
    sonde_nn_job_destroy(loaded);
    assert_int_equal(fclose(silent), 0);
}

static void plans_are_described(void **state)
{
    const setting s = {2, 1, 1, false, false, SONDE_NN_ADAM};
    engine_net net;
    sonde_nn_session *session = NULL;
    sonde_nn_plan *plan = NULL;
    sonde_nn_plan_info info;

    (void)state;
    engine_mlp(&net, 4);
    session = open_session(net.model, &s);
    save(session, true);
    must(sonde_nn_plan_load(file, &plan, &engine_diag));
    must(sonde_nn_plan_describe(plan, &info, &engine_diag));
    assert_true(info.training && info.weights);
    assert_string_equal(info.text, "a text: of\nmine");
    assert_int_equal(info.options.gradient_accumulation, 2);
    assert_int_equal(info.options.random_seed, 7);
    assert_int_equal(info.optimizer.kind, SONDE_NN_ADAM);
    assert_int_equal(info.op_count, session->plan.step_count);
    assert_int_equal(info.arena_bytes, session->plan.arena_bytes);
    sonde_nn_plan_destroy(plan);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
}

/* Taps that the saved session lacked need other memory: it is compiled again, or refused. */
static void other_sessions_are_told_apart(void **state)
{
    const setting s = {1, 1, 1, false, false, SONDE_NN_SGD};
    engine_net net;
    engine_sink sink;
    sonde_nn_session *session = NULL;
    sonde_nn_plan *plan = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_options options;

    (void)state;
    engine_cnn(&net, 4);
    engine_sink_init(&sink, true);
    session = open_session(net.model, &s);
    save(session, false);
    sonde_nn_session_destroy(session);
    session = load_session(&plan, &model);
    tap_all(session, &sink);
    must(sonde_nn_session_compile(session, &engine_diag));
    assert_false(session->plan.known);
    sonde_nn_session_destroy(session);
    must(sonde_nn_plan_session(plan, model, &session, &engine_diag));
    options = session->options;
    options.plan_only = true;
    options.random_seed = 99; /* places do not depend on it */
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .options = &options), &engine_diag));
    must(sonde_nn_session_compile(session, &engine_diag));
    assert_true(session->plan.known);
    sonde_nn_session_destroy(session);
    must(sonde_nn_plan_session(plan, model, &session, &engine_diag));
    options.batch_size = 8;
    must(sonde_nn_session_set(
        session, SONDE_OPTIONS(sonde_nn_session, .options = &options), &engine_diag));
    expect_err(SONDE_ESTATE, sonde_nn_session_compile(session, &engine_diag));
    assert_non_null(strstr(engine_diag.found, "batch_size differs"));
    assert_string_equal(engine_diag.where, file);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_plan_destroy(plan);
    engine_sink_fini(&sink);
    engine_net_fini(&net);
}

/* --- bad files ------------------------------------------------------------------------ */

enum { HEADER = 40 };

static unsigned char *read_file(const char *path, size_t *size)
{
    FILE *in = fopen(path, "rbe");
    unsigned char *bytes = malloc(1 << 20);

    assert_non_null(in);
    assert_non_null(bytes);
    *size = fread(bytes, 1, 1 << 20, in);
    assert_int_equal(fclose(in), 0);
    return bytes;
}

/* Makes the size and the hash right again. */
static void seal(unsigned char *bytes, size_t size)
{
    XXH128_hash_t hash = XXH3_128bits(bytes + HEADER, size - HEADER);
    const uint64_t whole = size;

    memcpy(bytes + 16, &whole, 8);
    memcpy(bytes + 24, &hash.low64, 8);
    memcpy(bytes + 32, &hash.high64, 8);
}

static sonde_err parse(const unsigned char *bytes, size_t size)
{
    sonde_nn_plan *plan = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    sonde_err err = sonde__session_plan_parse(bytes, size, "it", &plan, &engine_diag);

    if (err == SONDE_OK) {
        err = sonde_nn_plan_model(plan, 0, &model, &engine_diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_plan_session(plan, model, &session, &engine_diag);
    }
    if (err == SONDE_OK) {
        err = sonde_nn_session_compile(session, &engine_diag);
    }
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_plan_destroy(plan);
    return err;
}

static void expect_refused(const unsigned char *bytes, size_t size, sonde_err want,
                           const char *line)
{
    memset(&engine_diag, 0, sizeof engine_diag);
    assert_int_equal(parse(bytes, size), want);
    expect_line(line);
}

static unsigned char *saved_mlp(size_t *size)
{
    const setting s = {1, 1, 1, false, false, SONDE_NN_SGD};
    engine_net net;
    sonde_nn_session *session = NULL;

    engine_mlp(&net, 2);
    session = open_session(net.model, &s);
    save(session, false);
    sonde_nn_session_destroy(session);
    engine_net_fini(&net);
    return read_file(file, size);
}

static unsigned char *find_text(unsigned char *bytes, size_t size, const char *text)
{
    unsigned char *found = memmem(bytes, size, text, strlen(text));

    assert_non_null(found);
    return found;
}

static void bad_files_say_what_they_are(void **state)
{
    size_t size = 0;
    unsigned char *bytes = saved_mlp(&size);
    unsigned char isa[4];
    char line[256];

    (void)state;
    must(parse(bytes, size));
    expect_refused(bytes, 0, SONDE_EFORMAT,
                   "it: the file is empty (expected a file of sonde compile --save)");
    expect_refused((const unsigned char *)"GGUF and more", 13, SONDE_EFORMAT,
                   "it: the file is no plan (expected a file of sonde compile --save)");
    expect_refused(bytes, 20, SONDE_EFORMAT, "it: the plan is cut off after 20 bytes");
    (void)snprintf(line, sizeof line, "it: the plan is cut off: it has %zu of %zu bytes",
                   size - 1, size);
    expect_refused(bytes, size - 1, SONDE_EFORMAT, line);
    bytes[size - 9] ^= 1;
    expect_refused(bytes, size, SONDE_EFORMAT,
                   "it: the plan is damaged: its checksum differs (expected the bytes "
                   "that were written)");
    bytes[size - 9] ^= 1;
    bytes[8] = 2;
    expect_refused(bytes, size, SONDE_EUNSUPPORTED,
                   "it: a plan of format 2 (expected format 1)");
    bytes[8] = 1;
    find_text(bytes, size, "0.1.0")[0] = '9';
    seal(bytes, size);
    assert_int_equal(parse(bytes, size), SONDE_EUNSUPPORTED);
    expect_line("it: a plan of version 9.1.0 of the library (expected version 0.1.0)");
    find_text(bytes, size, "9.1.0")[0] = '0';
    memcpy(isa, bytes + HEADER + 16 + 9 + 4, 4);
    memcpy(bytes + HEADER + 16 + 9 + 4, "neon", 4);
    seal(bytes, size);
    assert_int_equal(parse(bytes, size), SONDE_EUNSUPPORTED);
    assert_non_null(strstr(engine_diag.found, "a plan for another processor, with neon"));
    memcpy(bytes + HEADER + 16 + 9 + 4, isa, 4);
    seal(bytes, size);
    must(parse(bytes, size));
    free(bytes);
}

static void *allocate_little(void *user, size_t align, size_t size)
{
    void *block = NULL;

    (void)user;
    return size <= (size_t)1 << 20 &&
                   posix_memalign(&block, SONDE_MAX(align, sizeof block), size) == 0
               ? block
               : NULL;
}

static void release(void *user, void *block)
{
    (void)user;
    free(block);
}

/* With a checksum that is right, so that the readers after it are asked. A shape may ask
 * for more memory than there is: blocks are of 1 MiB at most here. */
static void forged_files_are_refused_or_run(void **state)
{
    static const sonde_allocator little = {allocate_little, release, NULL};
    size_t size = 0, dangling = 0, other = 0;
    unsigned char *bytes = saved_mlp(&size);

    (void)state;
    sonde_set_allocator(&little);
    for (size_t i = HEADER; i < size; i++) {
        const unsigned char was = bytes[i];
        char line[SONDE_DIAG_LINE];

        bytes[i] = (unsigned char)(i % 3 == 0 ? 0xFF : was + 1);
        seal(bytes, size);
        memset(&engine_diag, 0, sizeof engine_diag);
        if (parse(bytes, size) != SONDE_OK) {
            assert_true(engine_diag.found[0] != '\0');
            (void)sonde_diag_line(&engine_diag, line, sizeof line);
            assert_null(strpbrk(line, "\n\r"));
            dangling += strstr(line, "a cycle, or an input that dangles") != NULL;
            other++;
        }
        bytes[i] = was;
    }
    sonde_set_allocator(NULL);
    assert_true(dangling > 5);
    assert_true(other > size / 8);
    free(bytes);
}

/* Where the dtype of a leaf of one dimension is, by its name. */
static unsigned char *find_dtype(unsigned char *bytes, size_t size, const char *name)
{
    enum { BEFORE = 28 }; /* source, dtype, rank, a dimension, a flag, a length */

    size_t place = 0;

    for (size_t i = HEADER; place == 0 && i + BEFORE + strlen(name) < size; i++) {
        if (memcmp(bytes + i + BEFORE, name, strlen(name)) == 0 &&
            bytes[i + 4] == SONDE_F32 && bytes[i + 8] == 1) {
            place = i + 4;
        }
    }
    assert_int_not_equal(place, 0);
    return bytes + place;
}

/* A buffer that is not in the file is filled with float32 or int64. */
static void a_forged_buffer_is_refused(void **state)
{
    static const char text[] = "model:\n  input: [64]\n  layers:\n"
                               "    - batch_norm: {name: n}\n"
                               "    - linear: {name: a, out_features: 3}\n"
                               "  loss: {cross_entropy: {name: loss}}\n"
                               "options: {batch_size: 2}\n";
    static const sonde_dtype dtypes[] = {SONDE_U8, SONDE_F16};
    sonde_nn_job *job = NULL;
    sonde_nn_model *model = NULL;
    sonde_nn_session *session = NULL;
    unsigned char *bytes = NULL;
    size_t size = 0;

    (void)state;
    must(sonde_nn_job_parse(text, strlen(text), "job", &job, &engine_diag));
    must(sonde_nn_job_build(job, &model, &engine_diag));
    must(sonde_nn_session_create(model, &sonde_nn_job_get_info(job)->options, &engine_sgd,
                                 &session, &engine_diag));
    save(session, false);
    bytes = read_file(file, &size);
    for (size_t i = 0; i < SONDE_COUNT_OF(dtypes); i++) {
        unsigned char *dtype = find_dtype(bytes, size, "n.running_mean");

        *dtype = (unsigned char)dtypes[i];
        seal(bytes, size);
        expect_refused(bytes, size, SONDE_EFORMAT,
                       "it: a parameter is cut off, or unlike any that a layer has "
                       "(expected a model as it is saved)");
        *dtype = SONDE_F32;
    }
    free(bytes);
    sonde_nn_session_destroy(session);
    sonde_nn_model_destroy(model);
    sonde_nn_job_destroy(job);
}

/* A plan that could not be loaded is not saved. */
static void texts_that_cannot_be_read_are_not_saved(void **state)
{
    char name[600];
    engine_net net;
    sonde_nn_session *session = NULL;

    (void)state;
    (void)unlink(file);
    memset(name, 'a', sizeof name);
    name[sizeof name - 1] = '\0';
    for (int i = 0; i < 2; i++) {
        engine_mlp(&net, 2);
        must(sonde_nn_session_create(net.model, NULL, &engine_sgd, &session,
                                     &engine_diag));
        must(sonde_nn_session_anchor(session, i == 0 ? name : "a\tb", "loss_output_0",
                                     SONDE_ANCHOR_ALL, 1, &engine_diag));
        expect_err(SONDE_EINVAL, sonde_nn_plan_save(session, file, NULL, &engine_diag));
        assert_string_equal(engine_diag.expected,
                            "at most 511 bytes, no control characters");
        assert_int_equal(access(file, F_OK), -1);
        sonde_nn_session_destroy(session);
        engine_net_fini(&net);
    }
}

static void files_that_are_not_there(void **state)
{
    sonde_nn_plan *plan = NULL;

    (void)state;
    (void)unlink(file);
    expect_err(SONDE_ENOTFOUND, sonde_nn_plan_load(file, &plan, &engine_diag));
    expect_err(SONDE_EFORMAT, sonde_nn_plan_load(folder, &plan, &engine_diag));
    assert_null(plan);
}

static void memory_may_run_out(void **state)
{
    size_t size = 0;
    unsigned char *bytes = saved_mlp(&size);

    (void)state;
    for (size_t n = 0;; n++) {
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = parse(bytes, size);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
    free(bytes);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(loaded_plans_train_to_the_same_bits),
        cmocka_unit_test(built_in_models_survive),
        cmocka_unit_test(stages_groups_and_weights_survive),
        cmocka_unit_test(plans_are_described),
        cmocka_unit_test(other_sessions_are_told_apart),
        cmocka_unit_test(bad_files_say_what_they_are),
        cmocka_unit_test(forged_files_are_refused_or_run),
        cmocka_unit_test(a_forged_buffer_is_refused),
        cmocka_unit_test(texts_that_cannot_be_read_are_not_saved),
        cmocka_unit_test(files_that_are_not_there),
        cmocka_unit_test(memory_may_run_out),
    };

    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
