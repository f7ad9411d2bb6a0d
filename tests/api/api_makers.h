/*
 * api_makers.h - valid and hostile arguments for api_walk.py, and the runner of its cases.
 *
 * make_<type>() returns a valid object of an opaque type, or of a struct that all zeros
 * do not describe. What they allocate is freed by the end of the case's process.
 */

#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct sonde_case {
    const char *function, *what;
    void (*call)(void);
} sonde_case;

static sonde_diag diag;

/* For every function pointer: it ignores its arguments and returns 0. */
static long nothing(void)
{
    return 0;
}

/* Zeroed memory of its own for every argument. */
static void *scratch(void)
{
    return calloc(1, 1 << 16);
}

/* Options that set nothing but their size. */
static void *sized(size_t size)
{
    size_t *options = scratch();

    *options = size;
    return options;
}

/* A maker that fails makes the case fail. */
static void must(sonde_err err)
{
    if (err != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fprintf(stderr, "api_makers.h: %s\n", sonde_diag_line(&diag, line, sizeof line));
        _exit(3);
    }
}

/* --- values ----------------------------------------------------------------------- */

static sonde_program *make_sonde_program(void)
{
    const sonde_program_value value = {.dtype = SONDE_F32, .parameter = -1};
    const sonde_program described = {
        .size = sizeof described, .values = &value, .value_count = 1};
    sonde_program *program = NULL;

    must(sonde_program_copy(&described, &program, &diag));
    return program;
}

static sonde_view *make_sonde_view(void)
{
    const int64_t shape[1] = {4};
    sonde_view *view = scratch();

    *view = sonde_view_of(SONDE_F32, 1, shape, scratch());
    return view;
}

static sonde_tensor_info *make_sonde_tensor_info(void)
{
    sonde_tensor_info *info = scratch();

    *info = (sonde_tensor_info){.name = "w",
                                .dtype = SONDE_F32,
                                .rank = 1,
                                .shape = {4},
                                .same_as = SONDE_NO_TENSOR};
    return info;
}

static sonde_sink *make_sonde_sink(void)
{
    sonde_sink *sink = scratch();

    sink->put =
        (void (*)(sonde_sink *, const sonde_observation *))(void (*)(void))nothing;
    return sink;
}

static sonde_text *make_sonde_text(void)
{
    sonde_text *text = scratch();

    sonde_text_add(text, "");
    return text;
}

static sonde_json *make_sonde_json(void)
{
    sonde_json *json = scratch();

    json->text = make_sonde_text();
    return json;
}

static sonde_allocator *make_sonde_allocator(void)
{
    return NULL;
}

/* --- observing -------------------------------------------------------------------- */

static sonde_catalogue *make_sonde_catalogue(void)
{
    sonde_catalogue *catalogue = NULL;
    uint32_t id = 0;

    must(sonde_catalogue_create(&catalogue, &diag));
    must(sonde_catalogue_declare(catalogue, make_sonde_tensor_info(), &id, &diag));
    return catalogue;
}

static sonde_selector *make_sonde_selector(void)
{
    sonde_selector *selector = NULL;

    must(sonde_selector_create("*", &selector, &diag));
    return selector;
}

static sonde_observer *make_sonde_observer(void)
{
    sonde_observer *observer = NULL;

    must(sonde_observer_create(make_sonde_catalogue(), &observer, &diag));
    return observer;
}

static sonde_anchors *make_sonde_anchors(void)
{
    const sonde_anchor_options options = {
        .size = sizeof options, .training = true, .mode = SONDE_ANCHOR_DEFAULT};
    sonde_anchors *anchors = NULL;

    must(sonde_anchors_create(&options, &anchors, &diag));
    return anchors;
}

static sonde_print_options *make_sonde_print_options(void)
{
    sonde_print_options *options = scratch();

    *options = sonde_print_options_default();
    return options;
}

static sonde_printer *make_sonde_printer(void)
{
    sonde_printer *printer = NULL;

    must(sonde_printer_create(NULL, NULL, &printer, &diag));
    return printer;
}

static sonde_outfeed *make_sonde_outfeed(void)
{
    sonde_outfeed *queue = NULL;

    must(sonde_outfeed_create(SONDE_OPTIONS(sonde_outfeed, .rows = 4), &queue, &diag));
    return queue;
}

static sonde_hook *make_sonde_hook(void)
{
    sonde_hook *hook = NULL;

    must(sonde_hook_create(SONDE_OPTIONS(sonde_hook, .dry_run = true), &hook, &diag));
    return hook;
}

static sonde_watch *make_sonde_watch(void)
{
    sonde_watch *watch = NULL;
    uint32_t slot = 0;

    must(sonde_watch_create(NULL, &watch, &diag));
    must(sonde_watch_add(watch, make_sonde_tensor_info(), &slot, &diag));
    return watch;
}

/* --- a run ------------------------------------------------------------------------ */

static void record_run(const char *path)
{
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;
    uint32_t slot = 0;

    must(sonde_hook_create(
        SONDE_OPTIONS(sonde_hook, .record = SONDE_OPTIONS(sonde_recorder, .path = path),
                      .save_all = true),
        &hook, &diag));
    must(sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, &diag));
    must(sonde_watch_add(watch, make_sonde_tensor_info(), &slot, &diag));
    must(sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag));
    sonde_watch_see(watch, slot, make_sonde_view());
    sonde_watch_end_step(watch);
    must(sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, &diag));
}

static sonde_trial *make_sonde_trial(void)
{
    sonde_trial *trial = NULL;

    must(sonde_trial_open("run", NULL, &trial, &diag));
    return trial;
}

static sonde_trial_cursor *make_sonde_trial_cursor(void)
{
    sonde_trial_cursor *cursor = NULL;

    must(sonde_trial_cursor_create(make_sonde_trial(), NULL, &cursor, &diag));
    return cursor;
}

static sonde_safetensors *make_sonde_safetensors(void)
{
    sonde_safetensors *file = NULL;

    must(sonde_safetensors_open("file.safetensors", &file, &diag));
    return file;
}

static sonde_control *make_sonde_control(void)
{
    sonde_control *control = NULL;

    must(sonde_control_create("run", &control, &diag));
    return control;
}

static sonde_rules *make_sonde_rules(void)
{
    sonde_rules *rules = NULL;

    must(sonde_rules_create(&rules, &diag));
    must(sonde_rules_add_defaults(rules, &diag));
    return rules;
}

static const sonde_rule *make_sonde_rule(void)
{
    return sonde_rule_at_index(0);
}

static sonde_actions *make_sonde_actions(void)
{
    sonde_actions *actions = NULL;

    must(sonde_actions_create(NULL, &actions, &diag));
    return actions;
}

/* --- networks --------------------------------------------------------------------- */

static sonde_nn_model *make_sonde_nn_model(void)
{
    const int64_t shape[2] = {2, 3}, labels[1] = {2};
    sonde_nn_model *model = NULL;
    sonde_nn_value x = 0, target = 0;

    must(sonde_nn_model_create(&model, &diag));
    x = sonde_nn_input(model, SONDE_F32, 2, shape);
    target = sonde_nn_input(model, SONDE_I64, 1, labels);
    x = sonde_nn_linear(model, "fc", x,
                        SONDE_OPTIONS(sonde_nn_linear, .out_features = 2));
    sonde_nn_output(model, x);
    sonde_nn_loss(model, sonde_nn_cross_entropy(model, "loss", x, target, NULL));
    return model;
}

static sonde_nn_session *make_sonde_nn_session(void)
{
    sonde_nn_session *session = NULL;

    must(sonde_nn_session_create(make_sonde_nn_model(), NULL,
                                 &(sonde_nn_optimizer){.learning_rate = 0.01F}, &session,
                                 &diag));
    return session;
}

static sonde_nn_options *make_sonde_nn_options(void)
{
    sonde_nn_options *options = scratch();

    sonde_nn_options_init(options);
    return options;
}

static sonde_nn_optimizer *make_sonde_nn_optimizer(void)
{
    sonde_nn_optimizer *optimizer = scratch();

    *optimizer = sonde_nn_optimizer_sgd(0.1F, 0.0F);
    return optimizer;
}

static sonde_nn_dataset *make_sonde_nn_dataset(void)
{
    const int64_t shape[3] = {4, 2, 2}, count[1] = {4};
    const sonde_view data = sonde_view_of(SONDE_F32, 3, shape, scratch());
    const sonde_view labels = sonde_view_of(SONDE_I64, 1, count, scratch());
    sonde_nn_dataset *set = NULL;

    must(sonde_nn_dataset_open(
        NULL, SONDE_OPTIONS(sonde_nn_dataset, .data = &data, .labels = &labels), &set,
        &diag));
    return set;
}

static const sonde_nn_dataset_traits *make_sonde_nn_dataset_traits(void)
{
    return sonde_nn_dataset_get_traits(make_sonde_nn_dataset());
}

static sonde_nn_loader *make_sonde_nn_loader(void)
{
    sonde_nn_loader *loader = NULL;

    must(sonde_nn_loader_create(make_sonde_nn_dataset(),
                                SONDE_OPTIONS(sonde_nn_loader, .batch = 2), &loader,
                                &diag));
    return loader;
}

static sonde_nn_pipeline *make_sonde_nn_pipeline(void)
{
    sonde_nn_pipeline *pipeline = NULL;

    must(sonde_nn_pipeline_create(NULL, 0, make_sonde_nn_dataset_traits(), &pipeline,
                                  &diag));
    return pipeline;
}

static sonde_nn_sample *make_sonde_nn_sample(void)
{
    sonde_nn_sample *sample = scratch();

    must(sonde_nn_dataset_get(make_sonde_nn_dataset(), 0, scratch(), sample, &diag));
    return sample;
}

static sonde_nn_confusion *make_sonde_nn_confusion(void)
{
    sonde_nn_confusion *matrix = NULL;

    must(sonde_nn_confusion_create(3, &matrix, &diag));
    return matrix;
}

/* Closed when the program ends. */
static FILE *make_FILE(void)
{
    static FILE *nowhere;

    nowhere = nowhere != NULL ? nowhere : fopen("/dev/null", "w");
    return nowhere;
}

static sonde_nn_job *make_sonde_nn_job(void)
{
    sonde_nn_job *job = NULL;

    must(sonde_nn_job_builtin("mnist_mlp_small", &job, &diag));
    return job;
}

static sonde_nn_trainer *make_sonde_nn_trainer(void)
{
    const sonde_nn_feed feed = sonde_nn_loader_feed(make_sonde_nn_loader());
    sonde_nn_trainer_options options = {.size = sizeof options,
                                        .model = make_sonde_nn_model(),
                                        .feed = &feed,
                                        .optimizer = sonde_nn_optimizer_sgd(0.1F, 0.0F),
                                        .epochs = 1};
    sonde_nn_trainer *trainer = NULL;

    must(sonde_nn_trainer_create(NULL, &options, &trainer, &diag));
    return trainer;
}

static sonde_nn_evaluator *make_sonde_nn_evaluator(void)
{
    return NULL;
}

/* --- hostile values --------------------------------------------------------------- */

#define HOSTILE_VIEWS 9
static const sonde_view *hostile_VIEWS(int i)
{
    sonde_view *view = make_sonde_view();

    switch (i) {
    case 0:
        view->data = NULL;
        break;
    case 1:
        view->dtype = (sonde_dtype)99;
        break;
    case 2:
        view->dtype = (sonde_dtype)-1;
        break;
    case 3:
        view->rank = 12;
        break;
    case 4:
        view->rank = -1;
        break;
    case 5:
        view->shape[0] = -1;
        break;
    case 6:
        view->rank = 2, view->shape[0] = view->shape[1] = INT64_MAX / 2;
        break;
    case 7:
        view->shape[0] = INT64_MAX;
        break;
    default:
        view->shape[0] = 0, view->data = NULL;
        break;
    }
    return view;
}

#define HOSTILE_INFOS 11
static const sonde_tensor_info *hostile_INFOS(int i)
{
    sonde_tensor_info *info = make_sonde_tensor_info();

    info->name = "other";
    switch (i) {
    case 0:
        info->name = NULL;
        break;
    case 1:
        info->name = "";
        break;
    case 2:
        info->dtype = (sonde_dtype)99;
        break;
    case 3:
        info->rank = 12;
        break;
    case 4:
        info->rank = -1;
        break;
    case 5:
        info->shape[0] = -1;
        break;
    case 6:
        info->rank = 2, info->shape[0] = info->shape[1] = INT64_MAX / 2;
        break;
    case 7:
        info->role = (sonde_role)99;
        break;
    case 8:
        info->pass = (sonde_pass)-1;
        break;
    case 9:
        info->same_as = 77;
        break;
    default:
        info->name = "w";
        break; /* declared before */
    }
    return info;
}

#define HOSTILE_TEXTS 6
static const char *hostile_TEXTS(int i)
{
    static const char *const texts[] = {"", "\xff\xfe", "\x1b[31m\n", "%s%n%s",
                                        "../../x"};
    char *text = NULL;

    if (i < 5) {
        return texts[i];
    }
    text = calloc(1, (1 << 20) + 1);
    memset(text, 'a', 1 << 20);
    return text;
}

#define HOSTILE_COORDINATES 5
static const sonde_coordinate *hostile_COORDINATES(int i)
{
    static const sonde_coordinate all[] = {
        {.mode = (sonde_mode)99},
        {.mode = (sonde_mode)-1},
        {.global_step = -1, .mode_step = -1},
        {.global_step = INT64_MAX, .mode_step = INT64_MAX},
        {.micro_batch = -1, .replica = -1}};

    return &all[i];
}

#define HOSTILE_PLACES 4
static const sonde_trial_at *hostile_PLACES(int i)
{
    static const sonde_trial_at all[] = {
        {.mode = (sonde_mode)99},
        {.mode = (sonde_mode)-1},
        {.step = INT64_MIN, .worker = INT32_MIN},
        {.worker = 99, .micro_batch = 99, .replica = 99}};

    return &all[i];
}

#define HOSTILE_SHAPES 3
static const sonde_call_shape *hostile_SHAPES(int i)
{
    static const sonde_call_shape all[] = {
        {0, 0, 0}, {-1, -1, -1}, {INT32_MAX, INT32_MAX, 9}};

    return &all[i];
}

#define HOSTILE_SCHEDULES 5
static const sonde_schedule *hostile_SCHEDULES(int i)
{
    static const sonde_schedule all[] = {{.every = -1},
                                         {.every = INT64_MAX, .start = INT64_MAX},
                                         {.every = 1, .end = -5},
                                         {.step_count = 3},
                                         {.every = 1, .start = INT64_MIN, .first = -1}};

    return &all[i];
}

/* --- running ---------------------------------------------------------------------- */

static void prepare(void)
{
    const sonde_named_view named = {"w", *make_sonde_view()};

    record_run("run");
    must(sonde_safetensors_write("file.safetensors", &named, 1, NULL, 0, &diag));
}

/* The end of a case in a function that can fail. */
static void judge(sonde_err err, int must_fail, int has_diag)
{
    if (must_fail && err == SONDE_OK) {
        _exit(1);
    }
    if (has_diag && err == SONDE_EINVAL && diag.found[0] == '\0') {
        _exit(2);
    }
}

static void limit(void)
{
    const struct rlimit size = {1 << 22, 1 << 22}, core = {0, 0};
    const int null = open("/dev/null", O_RDWR);

    (void)signal(SIGXFSZ, SIG_IGN);
    (void)setrlimit(RLIMIT_FSIZE, &size);
    (void)setrlimit(RLIMIT_CORE, &core);
    (void)dup2(null, 1);
    (void)alarm(5);
}

/* Runs the cases of functions whose names begin with prefix. */
static int run_cases(const sonde_case *cases, size_t count, const char *prefix)
{
    static const char *const faults[] = {"", "succeeds", "fails without a word",
                                         "a maker fails"};
    size_t called = 0, failed = 0;

    prepare();
    for (size_t i = 0; i < count; i++) {
        int status = 0;
        pid_t child = 0;

        if (strncmp(cases[i].function, prefix, strlen(prefix)) != 0) {
            continue;
        }
        (void)fflush(stdout);
        called++;
        child = fork();
        if (child == 0) {
            limit();
            memset(&diag, 0, sizeof diag);
            cases[i].call();
            _exit(0);
        }
        (void)waitpid(child, &status, 0);
        if (WIFSIGNALED(status)) {
            printf("%s: %s: %s\n", cases[i].function, cases[i].what,
                   WTERMSIG(status) == SIGALRM ? "hangs" : "crashes");
        } else if (WEXITSTATUS(status) != 0) {
            printf("%s: %s: %s\n", cases[i].function, cases[i].what,
                   faults[WEXITSTATUS(status) & 3]);
        }
        failed += status != 0;
    }
    printf("%zu calls, %zu failed\n", called, failed);
    return failed != 0;
}
