/*
 * Configuration files: Sonde's own in YAML and JSON, smdebug's as it is, and what is
 * wrong with either, by line.
 */
#include "capture/journal.h"
#include "base/macros.h"

#include "alloc_failure.h"

static sonde_hook *parse(const char *text, const sonde_hook_options *options)
{
    sonde_hook *hook = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_hook_parse(text, strlen(text), "hook.yaml", NULL, options, &hook, &diag) !=
        SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    listen_to(hook);
    return hook;
}

static void test_yaml(void **state)
{
    static const char text[] = "path: runs/one\n"
                               "vitals: false\n"
                               "every: 4\n"
                               "eval: {every: 3}\n"
                               "include: [relu_output]\n"
                               "segment_bytes: 1000000\n"
                               "when_full: drop\n"
                               "compress: true\n"
                               "collections:\n"
                               "  biases: {every: 5}\n"
                               "  gradients: {save: false}\n"
                               "  losses:\n"
                               "    save_steps: [1, 2]\n"
                               "    eval: {save_steps: '3, 4', when_nan: '@losses'}\n"
                               "  mine:\n"
                               "    include: ['fc1.*', loss]\n"
                               "    exclude: '*.bias'\n"
                               "    modules: [relu, {name: relu, outputs: true}]\n"
                               "    reductions: [min, l2_norm, median]\n"
                               "    start_step: 6\n"
                               "    end_step: 9\n"
                               "    every: 1\n";
    sonde_hook *hook = parse(text, NULL);
    const five net = declare_net(hook);

    (void)state;
    run_steps(hook, &net, 10);
    set_mode(hook, SONDE_MODE_EVAL);
    run_steps(hook, &net, 6);
    assert_string_equal(hook->options.record->path, "runs/one");
    assert_int_equal(hook->options.record->segment_bytes, 1000000);
    assert_int_equal(hook->options.record->when_full, SONDE_WHEN_FULL_DROP);
    assert_true(hook->options.record->compress);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 4 8 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_EVAL, "0 3 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_TRAIN, "0 5 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "1 2 ");
    assert_steps("loss", 'r', SONDE_MODE_EVAL, "3 4 ");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "6 7 8 ");
    assert_steps("fc1.weight", 's', SONDE_MODE_TRAIN, "6 7 8 ");
    assert_steps("relu_output_0", 'v', SONDE_MODE_TRAIN, "6 7 8 ");
    assert_string_equal(collections_of(hook, net.output), "default,mine");
    assert_string_equal(collections_of(hook, net.bias), "biases");
    finish(hook);
}

/* What is given beside a file wins over it. */
/* run.json has the configuration in the form of these files. */
static void test_written_and_read(void **state)
{
    static const char *const texts[] = {
        "{}",
        "vitals: false\nevery: 4\n",
        "vitals_every: 7\n",
        "every: 4\ntrain: {end_step: 9}\neval: {start_step: 0, end_step: 0}\n"
        "reductions: [min, norms]\nhistogram: true\n",
        "collections:\n  weights: {save: false}\n  losses: {save: false}\n"
        "  mine: {include: ['fc1.*', loss], exclude: '*.bias', every: 3, when_nan: '@losses',"
        " save_raw_tensor: true, predict: {save_steps: [1, 2]}}\n",
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        char *told[2] = {NULL, NULL};

        for (int again = 0; again < 2; again++) {
            sonde_hook *hook =
                parse(again != 0 ? told[0] : texts[i],
                      SONDE_OPTIONS(sonde_hook, .record = SONDE_OPTIONS(sonde_recorder,
                                                                        .path = "b")));
            const five net = declare_net(hook);

            run_steps(hook, &net, 1);
            told[again] = sonde__observe_setup_json(&hook->setup);
            assert_non_null(told[again]);
            finish(hook);
        }
        assert_string_equal(told[1], told[0]);
        free(told[0]);
        free(told[1]);
    }
}

static void test_options_over(void **state)
{
    static const char text[] =
        "{\"path\": \"a\", \"vitals_every\": 7,\n\t\"collections\": [\"updates\"]}";
    sonde_hook *hook =
        parse(text, SONDE_OPTIONS(sonde_hook,
                                  .record = SONDE_OPTIONS(sonde_recorder, .path = "b",
                                                          .rank = 3, .world = 4),
                                  .vitals_every = 2, .include = "loss"));

    (void)state;
    assert_string_equal(hook->options.record->path, "b");
    assert_int_equal(hook->options.record->rank, 3);
    assert_int_equal(hook->options.vitals_every, 2);
    assert_non_null(sonde__observe_find_collection(&hook->setup, "default"));
    assert_non_null(sonde__observe_find_collection(&hook->setup, "updates"));
    finish(hook);
}

static void test_section(void **state)
{
    static const char text[] = "model: x\nrecord:\n  path: here\n  save_al: true\n";
    sonde_hook *hook = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    (void)state;
    assert_int_equal(
        sonde_hook_parse(text, strlen(text), "job.yaml", "record", NULL, &hook, &diag),
        SONDE_EINVAL);
    assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                        "job.yaml:4: unknown key 'save_al' (expected save_all)");
    assert_int_equal(sonde_hook_parse(text, 8, "job.yaml", "record", NULL, &hook, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(sonde_hook_parse(text, 30, "job.yaml", "record", NULL, &hook, &diag),
                     SONDE_OK);
    assert_string_equal(hook->options.record->path, "here");
    finish(hook);
}

/* smdebug's, with values as texts, numbers and null. */
static void test_smdebug(void **state)
{
    static const char text[] =
        "{\n"
        "  \"S3OutputPath\": \"s3://bucket/prefix\",\n"
        "  \"LocalPath\": \"/opt/somewhere\",\n"
        "  \"HookParameters\": {\n"
        "    \"save_interval\": \"4\",\n"
        "    \"eval.save_interval\": 3,\n"
        "    \"include_regex\": \"^relu,xyz_.*\",\n"
        "    \"export_tensorboard\": \"true\",\n"
        "    \"sav_steps\": \"1\"\n"
        "  },\n"
        "  \"CollectionConfigurations\": [\n"
        "    {\"CollectionName\": \"bias\", \"CollectionParameters\": null},\n"
        "    {\"CollectionName\": \"default\"},\n"
        "    {\"CollectionName\": \"gradients\", \"CollectionParameters\": {\n"
        "      \"save_steps\": \"1,2\", \"eval.end_step\": \"0\"}},\n"
        "    {\"CollectionName\": \"mine\", \"CollectionParameters\": {\n"
        "      \"include_regex\": \"^fc1.weight\",\n"
        "      \"reductions\": \"min,abs_max,l1_norm,abs_l2_norm\",\n"
        "      \"train.save_interval\": \"2\"}}\n"
        "  ]\n"
        "}\n";
    sonde_hook *hook = parse(text, NULL);
    const five net = declare_net(hook);

    (void)state;
    assert_string_equal(hook->options.record->path, "/opt/somewhere");
    assert_string_equal(journal.log,
                        "hook.yaml:9: 'sav_steps' is passed over; expected save_steps\n"
                        "TensorBoard files are not written while recording: export the "
                        "run\n");
    run_steps(hook, &net, 5);
    set_mode(hook, SONDE_MODE_EVAL);
    run_steps(hook, &net, 4);
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 4 ");
    assert_steps("loss", 'r', SONDE_MODE_EVAL, "0 3 ");
    assert_steps("fc1.bias", 'r', SONDE_MODE_EVAL, "0 3 ");
    assert_steps("relu_output_0", 'r', SONDE_MODE_TRAIN, "0 4 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_TRAIN, "1 2 ");
    assert_steps("gradient/fc1.weight", 'r', SONDE_MODE_EVAL, "");
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, ""); /* weights are not listed */
    assert_string_equal(collections_of(hook, net.weight), "mine");
    finish(hook);

    hook = parse("{\"S3OutputPath\": \"s3://b\", \"HookParameters\": null,"
                 " \"CollectionConfigurations\": null}",
                 SONDE_OPTIONS(sonde_hook, .record = SONDE_OPTIONS(
                                               sonde_recorder, .rank = 1, .world = 2)));
    assert_string_equal(hook->options.record->path, "/opt/ml/output/tensors");
    assert_true(hook->options.dry_run); /* one worker writes */
    finish(hook);
    hook =
        parse("{\"HookParameters\": {\"include_workers\": \"all\", \"save_all\": true}}",
              SONDE_OPTIONS(sonde_hook, .record = SONDE_OPTIONS(sonde_recorder, .rank = 1,
                                                                .world = 2)));
    assert_false(hook->options.dry_run);
    assert_non_null(sonde__observe_find_collection(&hook->setup, "all"));
    finish(hook);
}

/* Reductions for the whole hook leave collections of numbers raw, as in smdebug; a listed
 * collection may be filled after loading; when_nan may be a list. */
static void test_smdebug_gaps(void **state)
{
    static const char text[] =
        "{\"LocalPath\": \"/opt/somewhere\",\n"
        " \"HookParameters\": {\"reductions\": \"min\", \"save_interval\": 1,\n"
        "   \"when_nan\": [\"fc1.weight\", \"loss\"]},\n"
        " \"CollectionConfigurations\": [{\"CollectionName\": \"mine\"}]}\n";
    sonde_hook *hook = parse(text, NULL);
    const five net = declare_net(hook);

    (void)state;
    assert_string_equal(hook->setup.layers[0].config.when_nan, "fc1.weight,loss");
    assert_int_equal(sonde__observe_include(&hook->setup, "mine", "fc1.weight", NULL),
                     SONDE_OK);
    run_steps(hook, &net, 2);
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 1 ");
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "");
    assert_steps("fc1.weight", 'v', SONDE_MODE_TRAIN, "0 1 ");
    finish(hook);
}

static void test_smdebug_never_filled(void **state)
{
    sonde_hook *hook =
        parse("{\"LocalPath\": \"/opt/somewhere\", "
              "\"CollectionConfigurations\": [{\"CollectionName\": \"x\"}]}",
              NULL);
    sonde_diag diag = {0};

    (void)state;
    (void)declare_net(hook);
    assert_int_equal(begin_step(hook, &diag), SONDE_EINVAL);
    assert_string_equal(diag.found, "the collection includes nothing");
    finish(hook);
}

/* A hook is configured further by parts of a file, which hold no options of the run. */
static void test_bad_parts(void **state)
{
    static const struct {
        const char *text, *found;
        sonde_err err;
    } bad[] = {{"path: elsewhere", "unknown key 'path'", SONDE_EINVAL},
               {"every: 0", "every is '0'", SONDE_EINVAL},
               {"[every, 5]", "the configuration is not a map", SONDE_EINVAL},
               {"collections: {mine: {include: 're:('}}", NULL, SONDE_EINVAL}};
    sonde_hook *hook = parse("dry_run: true", NULL);
    sonde_diag diag = {0};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(bad); i++) {
        assert_int_equal(sonde_hook_configure(hook, bad[i].text, &diag), bad[i].err);
        if (bad[i].found != NULL) {
            assert_string_equal(diag.found, bad[i].found);
        }
    }
    finish(hook);
}

static void test_good_parts(void **state)
{
    sonde_hook *hook = parse("path: runs/parts", NULL);

    (void)state;
    assert_int_equal(sonde_hook_configure(hook, "every: 3", NULL), SONDE_OK);
    assert_int_equal(
        sonde_hook_configure(
            hook,
            "{collections: {ours: {include: [fc1.weight], reductions: [mean, norms],\n"
            "                      save_raw_tensor: true, train: {every: 2}}}}",
            NULL),
        SONDE_OK);
    const five net = declare_net(hook);
    run_steps(hook, &net, 4);
    assert_steps("fc1.weight", 'r', SONDE_MODE_TRAIN, "0 2 3 ");
    assert_steps("loss", 'r', SONDE_MODE_TRAIN, "0 3 ");
    assert_int_equal(sonde_hook_configure(hook, "every: 1", NULL), SONDE_ESTATE);
    assert_int_equal(sonde_hook_configure(hook, "include: fc1.bias", NULL), SONDE_ESTATE);
    assert_int_equal(sonde_hook_configure(hook, "{}", NULL), SONDE_ESTATE);
    finish(hook);
}

static void test_reductions(void **state)
{
    sonde_hook *hook = parse("dry_run: true\n"
                             "reductions: 'mean, std'\n"
                             "save_raw_tensor: true\n"
                             "collections:\n"
                             "  weights: {reductions: prod}\n"
                             "  losses: {histogram: true}\n",
                             NULL);

    (void)state;
    assert_true(hook->setup.reductions.save_raw_tensor);
    assert_int_equal(hook->setup.reductions.stats,
                     1U << SONDE_STAT_MEAN | 1U << SONDE_STAT_STD);
    assert_true(sonde__observe_find_collection(&hook->setup, "weights")
                    ->reductions.save_raw_tensor);
    assert_true(
        sonde__observe_find_collection(&hook->setup, "losses")->reductions.histogram);
    finish(hook);
}

static const struct {
    const char *text, *line;
} mistakes[] = {
    {"path: a\nevry: 3\n", "hook.yaml:2: unknown key 'evry' (expected every)"},
    {"path: a\nzzzzzz: 3\n",
     "hook.yaml:2: unknown key 'zzzzzz' (expected one of path, resume, "
     "ring_bytes, segment_bytes, segment_seconds, when_full, compress, "
     "save_all, dry_run, vitals, "
     "vitals_every, wait_seconds, include, collections, every, start_step, end_step, save_steps, when_nan, "
     "train, eval, predict, global, ...)"},
    {"path: a\nevery: 0\n",
     "hook.yaml:2: every is '0' (expected a whole number from 1 to "
     "9223372036854775807)"},
    {"path: a\nstart_step: 5\nend_step: 5\n",
     "hook.yaml:3: end_step is 5 with start_step 5 (expected a step after "
     "start_step)"},
    {"path: a\nstart_step: 50\ncollections:\n  biases:\n    end_step: 20\n",
     "hook.yaml:4: collection 'biases', mode train: end_step: 20 with start_step 50 "
     "(expected a step after start_step)"},
    {"path: a\ntrain:\n  when_nna: x\n",
     "hook.yaml:3: unknown key 'when_nna' (expected when_nan)"},
    {"{\"LocalPath\": \"a\", \"CollectionConfigurations\": \"x\"}\n",
     "hook.yaml:1: CollectionConfigurations is a text (expected a list)"},
    {"path: a\nwhen_nan: {a: 1}\n",
     "hook.yaml:2: when_nan is a map (expected a text or a list of texts)"},
    {"path: a\nsave_steps: [1, x]\n",
     "hook.yaml:2: save_steps has 'x' (expected steps, 0 or more)"},
    {"path: a\nsave_steps: 1 2\n",
     "hook.yaml:2: save_steps is '1 2' (expected steps with commas between)"},
    {"path: a\nsave_steps: {a: 1}\n",
     "hook.yaml:2: save_steps is a map (expected a list of steps)"},
    {"path: a\nreductions: [mien]\n",
     "hook.yaml:2: reductions: unknown reduction 'mien' (expected min)"},
    {"path: a\ncollections:\n  mine:\n    include: 're:('\n",
     "hook.yaml:4: re:(: missing closing parenthesis at character 5 (expected a "
     "Perl-compatible regular expression)"},
    {"path: a\ncollections:\n  mine: {}\n",
     "hook.yaml:3: mine: the collection includes nothing (expected a selector or a "
     "module to include, or a built-in name)"},
    {"path: a\ncollections:\n  mine: {modules: [{nmae: x}]}\n",
     "hook.yaml:3: unknown key 'nmae' (expected name)"},
    {"path: a\ncollections:\n  mine: {modules: [{inputs: true}]}\n",
     "hook.yaml:3: an entry of modules has no name (expected name: a module)"},
    {"path: a\ncollections: all\n",
     "hook.yaml:2: collections is 'all' (expected collections by name, or a list of "
     "names)"},
    {"path: a\nwhen_full: never\n",
     "hook.yaml:2: when_full is 'never' (expected default, wait or drop)"},
    {"path: a\nvitals: often\n",
     "hook.yaml:2: vitals is 'often' (expected true or false)"},
    {"path: a\nwait_seconds: -1\n",
     "hook.yaml:2: wait_seconds is -1 (expected more than 0)"},
    {"path: a\nsegment_seconds: 0\n",
     "hook.yaml:2: segment_seconds is 0 (expected more than 0)"},
    {"save_all: true\n", "hook: path: no path for the run (expected a folder, or "
                         "dry_run)"},
    {"- a\n", "hook.yaml:1: the configuration is not a map (expected keys and "
              "values)"},
    {"path: [\n", NULL},
    {"", "hook.yaml:1: the file is empty (expected keys and values)"},
    {"{\"HookParameters\": {\n\"save_interval\": \"x\"}}",
     "hook.yaml:2: save_interval is 'x' (expected 1 or more)"},
    {"{\"CollectionConfigurations\": [\n{\"Name\": \"x\"}]}",
     "hook.yaml:2: a collection without a name (expected CollectionName)"},
    {"{\"CollectionConfigurations\": [\n{\"CollectionName\": \"x\",\n"
     "\"CollectionParameters\": {\"include_regex\": \"a,(\"}}]}",
     "hook.yaml:3: (: missing closing parenthesis at character 2 (expected a "
     "Perl-compatible regular expression)"},
    {"{\"HookParameters\": {\n\"reductions\": \"min,mox\"}}",
     "hook.yaml:2: reductions: unknown reduction 'mox' (expected max)"},
};

static void test_mistakes(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(mistakes); i++) {
        sonde_hook *hook = NULL;
        sonde_diag diag = {0};
        char line[SONDE_DIAG_LINE];
        const sonde_err err = sonde_hook_parse(mistakes[i].text, strlen(mistakes[i].text),
                                               "hook.yaml", NULL, NULL, &hook, &diag);

        assert_int_not_equal(err, SONDE_OK);
        assert_int_equal(err, diag.err);
        if (mistakes[i].line != NULL) {
            assert_string_equal(sonde_diag_line(&diag, line, sizeof line),
                                mistakes[i].line);
        }
    }
}

static void test_load(void **state)
{
    char path[] = "/tmp/sonde-hook-XXXXXX";
    const int file = mkstemp(path);
    FILE *stream = file >= 0 ? fdopen(file, "w") : NULL;
    sonde_hook *hook = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_non_null(stream);
    assert_true(fputs("path: x\nsave_all: true\n", stream) >= 0);
    assert_int_equal(fclose(stream), 0);
    assert_int_equal(sonde_hook_load(path, NULL, &hook, &diag), SONDE_OK);
    assert_true(hook->options.save_all);
    finish(hook);
    assert_int_equal(remove(path), 0);
    assert_int_equal(sonde_hook_load(path, NULL, &hook, &diag), SONDE_ENOTFOUND);
    assert_string_equal(diag.where, path);
    assert_int_equal(sonde_hook_load("/", NULL, &hook, &diag), SONDE_EIO);
}

static void test_memory(void **state)
{
    static const char *const texts[] = {
        "path: a\nsave_steps: [1, 2]\ninclude: x\ncollections:\n"
        "  mine: {include: [a, b], modules: [c], reductions: [min], when_nan: x}\n",
        "{\"LocalPath\": \"a\", \"HookParameters\": {\"include_regex\": \"a,b\", "
        "\"save_steps\": \"1,2\"}, \"CollectionConfigurations\": [{\"CollectionName\": "
        "\"x\", \"CollectionParameters\": {\"include_regex\": \"a\", \"reductions\": "
        "\"min\"}}]}"};

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        for (size_t n = 0;; n++) {
            sonde_hook *hook = NULL;
            sonde_err err = SONDE_OK;

            alloc_failure_begin(n);
            err = sonde_hook_parse(texts[i], strlen(texts[i]), "t", NULL, NULL, &hook,
                                   NULL);
            if (err == SONDE_OK) {
                (void)sonde_hook_close(hook, SONDE_RUN_FINISHED, NULL, NULL);
            }
            assert_int_equal(alloc_failure_end(), 0);
            if (err == SONDE_OK) {
                assert_true(n > 20);
                break;
            }
            assert_int_equal(err, SONDE_ENOMEM);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_yaml, journal_reset),
        cmocka_unit_test_setup(test_written_and_read, journal_reset),
        cmocka_unit_test_setup(test_options_over, journal_reset),
        cmocka_unit_test_setup(test_section, journal_reset),
        cmocka_unit_test_setup(test_smdebug, journal_reset),
        cmocka_unit_test_setup(test_smdebug_gaps, journal_reset),
        cmocka_unit_test_setup(test_smdebug_never_filled, journal_reset),
        cmocka_unit_test_setup(test_bad_parts, journal_reset),
        cmocka_unit_test_setup(test_good_parts, journal_reset),
        cmocka_unit_test_setup(test_reductions, journal_reset),
        cmocka_unit_test_setup(test_mistakes, journal_reset),
        cmocka_unit_test_setup(test_load, journal_reset),
        cmocka_unit_test_setup(test_memory, journal_reset),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
