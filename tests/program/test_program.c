/*
 * test_program.c - programs are copied, written and read; rows that cannot be are refused
 * with their place; tensors have the lines of their operations.
 */
#include "cmocka_all.h"
#include "alloc_failure.h"
#include "program/program_sample.h"

#include <sonde/error.h>
#include <sonde/text.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static sonde_diag diag;

static sonde_program *copy_of(const sonde_program *program)
{
    sonde_program *copy = NULL;

    if (sonde_program_copy(program, &copy, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return copy;
}

static sonde_program *read_text(const char *text)
{
    sonde_program *program = NULL;

    if (sonde_program_read(text, strlen(text), &program, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return program;
}

/* --- copies and texts --------------------------------------------------------------- */

static void check_rows(const sonde_program *program)
{
    assert_int_equal(program->value_count, SAMPLE_VALUES);
    assert_int_equal(program->values[1].kind, SONDE_VALUE_PARAMETER);
    assert_int_equal(program->values[1].parameter, 0);
    assert_int_equal(program->values[1].node, -1);
    assert_int_equal(program->values[5].node, 2); /* derived */
    assert_int_equal(program->values[5].shape[1], 10);
    assert_true(program->values[5].requires_grad);
    assert_string_equal(program->values[4].tensor, "");
    assert_int_equal(program->node_count, SAMPLE_NODES);
    assert_string_equal(program->nodes[3].op, "cross_entropy");
    assert_int_equal(program->nodes[3].module, -1);
    assert_int_equal(program->nodes[2].input_count, 3);
    assert_int_equal(program->nodes[2].inputs[1], 4);
    assert_int_equal(program->nodes[2].inputs[2], -1);
    assert_string_equal(program->nodes[2].place.file, "/srv/me/x/net.py");
    assert_int_equal(program->nodes[2].place.line, 13);
    assert_true(program->modules[1].registered && program->modules[1].training);
    assert_false(program->modules[2].registered || program->modules[2].training);
    assert_string_equal(program->modules[2].kind, "Linear");
    assert_int_equal(program->parameters[0].count, 640);
    assert_int_equal(program->parameters[1].optimizer, -1);
    assert_true(program->parameters[0].reached && !program->parameters[1].reached);
    assert_string_equal(program->optimizers[0].kind, "SGD");
    assert_int_equal(program->events[0].kind, SONDE_EVENT_FORWARD);
    assert_true(program->events[0].autocast && program->events[1].grad);
    assert_int_equal(program->events[4].optimizer, 0);
    assert_int_equal(program->losses[0].predictions, 5);
    assert_int_equal(program->losses[0].targets, -1);
    assert_int_equal(program->losses[0].backward, 2);
    assert_true(program->complete);
    assert_string_equal(program->gap, "");
    assert_string_equal(program->producer, "loop");
}

static void a_copy_has_all_rows_and_is_its_own(void **state)
{
    program_sample sample;

    (void)state;
    sample_init(&sample);
    sonde_program *copy = copy_of(&sample.program);
    memset(&sample, 0, sizeof sample);
    check_rows(copy);
    assert_int_not_equal(copy->digest, 0);
    sonde_program_destroy(copy);
    sonde_program_destroy(NULL);
}

static void a_text_that_is_read_and_written_again_stays(void **state)
{
    program_sample sample;
    sonde_program *copy = NULL, *again = NULL;
    char *text = NULL, *second = NULL;
    size_t length = 0, second_length = 0;

    (void)state;
    sample_init(&sample);
    copy = copy_of(&sample.program);
    assert_int_equal(sonde_program_text(&sample.program, &text, &length, &diag),
                     SONDE_OK);
    assert_int_equal(strlen(text), length);
    assert_int_equal(sonde_program_read(text, length, &again, &diag), SONDE_OK);
    check_rows(again);
    assert_true(copy->digest == again->digest);
    assert_int_equal(sonde_program_text(again, &second, &second_length, &diag), SONDE_OK);
    assert_string_equal(second, text);
    sonde_release(second);
    sonde_release(text);
    sonde_program_destroy(again);
    sonde_program_destroy(copy);
}

static void another_line_is_another_program(void **state)
{
    program_sample sample;

    (void)state;
    sample_init(&sample);
    sonde_program *one = copy_of(&sample.program);
    sonde_program *same = copy_of(&sample.program);
    sample.nodes[1].place.line++;
    sonde_program *other = copy_of(&sample.program);
    assert_true(one->digest == same->digest);
    assert_true(one->digest != other->digest);
    sonde_program_destroy(other);
    sonde_program_destroy(same);
    sonde_program_destroy(one);
}

static void keys_that_are_left_out_have_their_defaults(void **state)
{
    (void)state;
    sonde_program *program =
        read_text("{\"program\": 1, \"later\": {\"x\": [1]}, \"values\": [{\"dtype\": "
                  "\"int64\", \"more\": 1}], \"nodes\": [{\"op\": \"zeros\", "
                  "\"outputs\": [0]}], \"events\": [{\"event\": \"step\"}]}");
    assert_int_equal(program->mode, SONDE_MODE_TRAIN);
    assert_string_equal(program->root, "");
    assert_int_equal(program->values[0].kind, SONDE_VALUE_COMPUTED);
    assert_int_equal(program->values[0].rank, 0);
    assert_int_equal(program->values[0].parameter, -1);
    assert_int_equal(program->values[0].node, 0);
    assert_int_equal(program->nodes[0].module, -1);
    assert_int_equal(program->nodes[0].place.line, 0);
    assert_string_equal(program->nodes[0].place.file, "");
    assert_int_equal(program->events[0].optimizer, -1);
    assert_int_equal(program->module_count, 0);
    assert_false(program->complete);
    sonde_program_destroy(program);
}

/* Strings that JSON escapes, and bytes that are no UTF-8. */
static void odd_strings_survive(void **state)
{
    program_sample sample;
    sonde_program *again = NULL;
    char *text = NULL;
    size_t length = 0;

    (void)state;
    sample_init(&sample);
    sample.program.gap = "a \"quoted\" \\ line\n\ttwo \xc3\xa9";
    sample.nodes[0].place.file = "/tmp/\xff/odd name.py";
    sonde_program *copy = copy_of(&sample.program);
    assert_string_equal(copy->gap, sample.program.gap);
    assert_int_equal(sonde_program_text(copy, &text, &length, &diag), SONDE_OK);
    assert_int_equal(sonde_program_read(text, length, &again, &diag), SONDE_OK);
    assert_true(again->digest == copy->digest);
    assert_string_equal(again->nodes[0].place.file, copy->nodes[0].place.file);
    sonde_release(text);
    sonde_program_destroy(again);
    sonde_program_destroy(copy);
}

/* --- attributes --------------------------------------------------------------------- */

static void attributes_are_text_and_number(void **state)
{
    program_sample sample;

    (void)state;
    sample_init(&sample);
    sonde_program *copy = copy_of(&sample.program);
    const sonde_program_attributes loss = copy->nodes[3].attributes;
    assert_string_equal(sonde_attribute_text(loss, "reduction"), "mean");
    assert_string_equal(sonde_attribute_text(loss, "weight"), "");
    assert_string_equal(sonde_attribute_text(loss, "dims"), "[2, 3]");
    assert_true(sonde_attribute_number(loss, "label_smoothing", 7.0) == 0.1);
    assert_true(sonde_attribute_number(loss, "reduction", 7.0) == 7.0);
    assert_true(sonde_attribute_number(loss, "weight", 7.0) == 7.0);
    assert_true(sonde_attribute_number(copy->nodes[0].attributes, "bias", 7.0) == 1.0);
    assert_string_equal(sonde_attribute_text(copy->optimizers[0].attributes, "lr"),
                        "0.1");
    assert_true(sonde_attribute_number(copy->facts, "labels_max", -1.0) == 9.0);
    sonde_program_destroy(copy);
}

static void attributes_of_a_text_are_of_any_kind(void **state)
{
    (void)state;
    sonde_program *program = read_text(
        "{\"program\": 1, \"facts\": {\"a\": 3, \"b\": 2.5, \"c\": false, \"d\": [1, "
        "[2, \"x\"]], \"e\": \"1e3\", \"f\": \"inf\", \"g\": \"\", \"h\": null, \"i\": "
        "\"0x10\", \"j\": \"1e400\", \"k\": \"-\", \"l\": \"nan\"}}");
    static const struct {
        const char *name, *text;
        double number; /* 7: it is none */
    } wanted[] = {{"a", "3", 3.0},      {"b", "2.5", 2.5},
                  {"c", "false", 0.0},  {"d", "[1, [2, \"x\"]]", 7.0},
                  {"e", "1e3", 1000.0}, {"f", "inf", 7.0},
                  {"g", "", 7.0},       {"h", "null", 7.0},
                  {"i", "0x10", 7.0},   {"j", "1e400", 7.0},
                  {"k", "-", 7.0},      {"l", "nan", 7.0}};

    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        assert_string_equal(sonde_attribute_text(program->facts, wanted[i].name),
                            wanted[i].text);
        assert_true(sonde_attribute_number(program->facts, wanted[i].name, 7.0) ==
                    wanted[i].number);
    }
    sonde_program_destroy(program);
}

/* --- what cannot be ----------------------------------------------------------------- */

static void refuse(const sonde_program *program, const char *where)
{
    sonde_program *copy = NULL;

    memset(&diag, 0, sizeof diag);
    assert_int_equal(sonde_program_copy(program, &copy, &diag), SONDE_EINVAL);
    assert_null(copy);
    assert_string_equal(diag.where, where);
    assert_true(diag.expected[0] != '\0' && diag.found[0] != '\0');
}

/* Copies the sample with `field` set to `value`. */
#define REFUSED(field, value, where)                                                     \
    do {                                                                                 \
        program_sample sample_;                                                          \
        sample_init(&sample_);                                                           \
        sample_.field = (value);                                                         \
        refuse(&sample_.program, (where));                                               \
    } while (0)

static void indices_outside_of_their_arrays_are_refused(void **state)
{
    static const int far[] = {0, SAMPLE_VALUES}, low[] = {-2}, none[] = {-1};

    (void)state;
    REFUSED(values[1].parameter, SAMPLE_PARAMETERS, "program: values[1].parameter");
    REFUSED(values[4].parameter, -2, "program: values[4].parameter");
    REFUSED(nodes[1].module, SAMPLE_MODULES, "program: nodes[1].module");
    REFUSED(nodes[0].inputs, far, "program: nodes[0].inputs[1]");
    REFUSED(nodes[1].inputs, low, "program: nodes[1].inputs[0]");
    REFUSED(nodes[2].outputs, none, "program: nodes[2].outputs[0]");
    REFUSED(nodes[2].outputs, NULL, "program: nodes[2].outputs");
    REFUSED(parameters[1].module, 9, "program: parameters[1].module");
    REFUSED(parameters[0].optimizer, 1, "program: parameters[0].optimizer");
    REFUSED(events[0].module, -7, "program: events[0].module");
    REFUSED(events[1].value, SAMPLE_VALUES, "program: events[1].value");
    REFUSED(events[1].node, SAMPLE_NODES, "program: events[1].node");
    REFUSED(events[4].optimizer, 1, "program: events[4].optimizer");
    REFUSED(losses[0].node, SAMPLE_NODES, "program: losses[0].node");
    REFUSED(losses[0].value, INT32_MAX, "program: losses[0].value");
    REFUSED(losses[0].predictions, -2, "program: losses[0].predictions");
    REFUSED(losses[0].targets, SAMPLE_VALUES, "program: losses[0].targets");
    REFUSED(losses[0].backward, SAMPLE_EVENTS, "program: losses[0].backward");
}

static void values_that_cannot_be_are_refused(void **state)
{
    static const sonde_program_attribute unnamed[] = {{NULL, "x", NAN}};
    const sonde_program_attributes one = {unnamed, 1}, gone = {NULL, 1};

    (void)state;
    REFUSED(program.mode, (sonde_mode)99, "program: mode");
    REFUSED(program.values, NULL, "values");
    REFUSED(program.loss_count, (size_t)INT32_MAX, "losses");
    REFUSED(values[0].kind, (sonde_value_kind)5, "program: values[0].kind");
    REFUSED(values[0].dtype, (sonde_dtype)99, "program: values[0].dtype");
    REFUSED(values[0].rank, SONDE_MAX_DIMS + 1, "program: values[0].rank");
    REFUSED(values[0].rank, -1, "program: values[0].rank");
    REFUSED(values[0].shape[1], -4, "program: values[0].shape");
    REFUSED(nodes[3].op, NULL, "program: nodes[3].op");
    REFUSED(nodes[0].place.line, -1, "program: nodes[0].place.line");
    REFUSED(nodes[0].attributes, one, "program: nodes[0].attributes");
    REFUSED(modules[2].attributes, gone, "program: modules[2].attributes");
    REFUSED(parameters[1].count, -1, "program: parameters[1].count");
    REFUSED(events[3].kind, (sonde_event_kind)SONDE_EVENT_COUNT,
            "program: events[3].event");
    REFUSED(program.size, 3, "sonde_program");
}

/* An attribute that stands twice has no one value. */
static void an_attribute_twice_is_refused(void **state)
{
    static const sonde_program_attribute twice[] = {{"dim", "1", NAN}, {"dim", "2", NAN}};
    program_sample sample;
    sonde_program *copy = NULL;

    (void)state;
    sample_init(&sample);
    sample.nodes[1].attributes = (sonde_program_attributes){twice, 2};
    assert_int_equal(sonde_program_copy(&sample.program, &copy, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "\"dim\""));
}

static void invalid_texts_are_refused(void **state)
{
#define HEAD "{\"program\": 1, "
    static const struct {
        const char *text, *where, *found;
    } bad[] = {
        {"", "program", "line 1"},
        {"{\"program\": 1", "program", "line 1"},
        {"[1]", "program", "text that is no program"},
        {"{\"nodes\": []}", "program", "text that is no program"},
        {"{\"program\": 0}", "program", "text that is no program"},
        {HEAD "\"nodes\": 3}", "program: nodes", "3"},
        {HEAD "\"mode\": \"fly\"}", "program: mode", "'fly'"},
        {HEAD "\"root\": 1}", "program: root", "1"},
        {HEAD "\"complete\": 1}", "program: complete", "1"},
        {HEAD "\"files\": [1]}", "program: files", "1"},
        {HEAD "\"facts\": []}", "program: facts", "a list"},
        {HEAD "\"facts\": {\"a\": {}}}", "program: a", "an object"},
        {HEAD "\"facts\": {\"\": 1}}", "program: attributes", "1"},
        {HEAD "\"facts\": {\"a\": 1, \"a\": 2}}", "program", "line 1"},
        {HEAD "\"facts\": {\"a\": [[[[[[[[[1]]]]]]]]]}}", "program: a", "a list"},
        {HEAD "\"values\": [3]}", "program: values[0].row", "3"},
        {HEAD "\"values\": [{}]}", "program: values[0].dtype", "nothing"},
        {HEAD "\"values\": [{\"dtype\": \"f32\"}]}", "program: values[0].dtype", "'f32'"},
        {HEAD "\"values\": [{\"dtype\": \"int8\", \"kind\": \"x\"}]}",
         "program: values[0].kind", "'x'"},
        {HEAD "\"values\": [{\"dtype\": \"int8\", \"shape\": [1,1,1,1,1,1,1,1,1]}]}",
         "program: values[0].shape", "a list"},
        {HEAD "\"values\": [{\"dtype\": \"int8\", \"shape\": [-1]}]}",
         "program: values[0].shape", "-1"},
        {HEAD "\"values\": [{\"dtype\": \"int8\", \"shape\": [1.5]}]}",
         "program: values[0].shape", "a number"},
        {HEAD "\"nodes\": [{}]}", "program: nodes[0].op", "0"},
        {HEAD "\"nodes\": [{\"op\": \"a\"}, {\"op\": \"b\", \"inputs\": [0]}]}",
         "program: nodes[1].inputs[0]", "0"},
        {HEAD "\"nodes\": [{\"op\": \"a\", \"outputs\": [99999999999]}]}",
         "program: nodes[0].outputs", "99999999999"},
        {HEAD "\"nodes\": [{\"op\": \"a\", \"module\": \"fc\"}]}",
         "program: nodes[0].module", "'fc'"},
        {HEAD "\"nodes\": [{\"op\": \"a\", \"place\": [0, 1]}]}",
         "program: nodes[0].place", "a list"},
        {HEAD "\"nodes\": [{\"op\": \"a\", \"place\": [-1]}]}", "program: nodes[0].place",
         "nothing"},
        {HEAD "\"events\": [{\"event\": \"dance\"}]}", "program: events[0].event",
         "'dance'"},
        {HEAD "\"losses\": [{\"node\": 0}]}", "program: losses[0].node", "0"},
    };
    sonde_program *program = NULL;

    (void)state;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        const char *text = bad[i].text;

        memset(&diag, 0, sizeof diag);
        if (sonde_program_read(text, strlen(text), &program, &diag) != SONDE_EFORMAT ||
            strcmp(diag.where, bad[i].where) != 0 ||
            strncmp(diag.found, bad[i].found, strlen(bad[i].found)) != 0) {
            fail_msg("%s: '%s' '%s'", text, diag.where, diag.found);
        }
        assert_true(diag.expected[0] != '\0');
    }
    assert_int_equal(sonde_program_read("{\"program\": 2}", 14, &program, &diag),
                     SONDE_EUNSUPPORTED);
    assert_string_equal(diag.found, "version 2");
    assert_null(program);
}

/* Every beginning of a text is an error, not a crash. */
static void a_text_that_is_cut_off_is_refused(void **state)
{
    program_sample sample;
    sonde_program *program = NULL;
    char *text = NULL;
    size_t length = 0;

    (void)state;
    sample_init(&sample);
    assert_int_equal(sonde_program_text(&sample.program, &text, &length, &diag),
                     SONDE_OK);
    for (size_t i = 0; i < length; i++) {
        char *cut = malloc(i + 1); /* of this length, for the sanitizers */

        assert_non_null(cut);
        memcpy(cut, text, i);
        assert_int_equal(sonde_program_read(cut, i, &program, &diag), SONDE_EFORMAT);
        free(cut);
    }
    sonde_release(text);
}

/* --- lines --------------------------------------------------------------------------- */

static void check_place(const sonde_program *program, const char *tensor,
                        const char *wanted)
{
    char line[64];

    assert_string_equal(sonde_program_place_text(program,
                                                 sonde_program_place_of(program, tensor),
                                                 line, sizeof line),
                        wanted);
}

static void tensors_have_the_lines_of_their_operations(void **state)
{
    program_sample sample;

    (void)state;
    sample_init(&sample);
    sonde_program *program = copy_of(&sample.program);
    assert_int_equal(sonde_program_find(program, "fc2_output_0"), 5);
    assert_int_equal(sonde_program_find(program, "none"), -1);
    assert_int_equal(sonde_program_find(program, ""), -1);
    check_place(program, "fc2_output_0", "net.py:13");
    check_place(program, "loss", "train.py:41");
    check_place(program, "loss/predictions", "train.py:41");
    check_place(program, "loss_1/predictions", "");
    check_place(program, "input", "net.py:11");
    check_place(program, "fc1.weight", "net.py:11");
    check_place(program, "fc2.weight", "net.py:13"); /* its value has no tensor */
    check_place(program, "gradient/fc2.weight", "net.py:13");
    check_place(program, "update/fc1.weight", "net.py:11");
    check_place(program, "fc1_output_0", "net.py:11"); /* not a value of the program */
    check_place(program, "fc2_input_0", "net.py:13");
    check_place(program, "fc_output_0", ""); /* no module, though fc1 begins so */
    check_place(program, "somewhere", "");
    sonde_program_destroy(program);
}

static void a_line_is_relative_to_the_root(void **state)
{
    program_sample sample;
    char line[64], small[6];

    (void)state;
    sample_init(&sample);
    const sonde_place outside = {"/srv/me/xy/a.py", 3}, inside = {"/srv/me/x/b/a.py", 3};
    const sonde_place no_line = {"/srv/me/x/a.py", 0}, none = {NULL, 4};
    const sonde_program *program = &sample.program;

    assert_string_equal(sonde_program_place_text(program, inside, line, sizeof line),
                        "b/a.py:3");
    assert_string_equal(sonde_program_place_text(program, outside, line, sizeof line),
                        "/srv/me/xy/a.py:3");
    assert_string_equal(sonde_program_place_text(NULL, inside, line, sizeof line),
                        "/srv/me/x/b/a.py:3");
    assert_string_equal(sonde_program_place_text(program, no_line, line, sizeof line),
                        "a.py");
    assert_string_equal(sonde_program_place_text(program, none, line, sizeof line), "");
    assert_string_equal(sonde_program_place_text(program, inside, small, sizeof small),
                        "b/a.p");
    sample.program.root = "/srv/me/x/";
    assert_string_equal(sonde_program_place_text(program, inside, line, sizeof line),
                        "b/a.py:3");
    assert_string_equal(sonde_program_place_text(program, inside, NULL, 0), "");
}

static void events_have_names(void **state)
{
    (void)state;
    assert_string_equal(sonde_event_name(SONDE_EVENT_BATCH), "batch");
    assert_string_equal(sonde_event_name(SONDE_EVENT_EVALUATION), "evaluation");
    assert_string_equal(sonde_event_name((sonde_event_kind)SONDE_EVENT_COUNT), "?");
    assert_string_equal(sonde_event_name((sonde_event_kind)-1), "?");
}

/* --- arguments, memory, size ---------------------------------------------------------- */

static void null_is_refused(void **state)
{
    const sonde_program_attributes none = {NULL, 3};
    sonde_program *program = NULL;
    program_sample sample;

    (void)state;
    sample_init(&sample);
    assert_int_equal(sonde_program_copy(NULL, &program, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_program_copy(&sample.program, NULL, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_program_read(NULL, 0, &program, &diag), SONDE_EINVAL);
    assert_int_equal(sonde_program_text(&sample.program, NULL, NULL, &diag),
                     SONDE_EINVAL);
    assert_string_equal(diag.where, "sonde_program_text");
    assert_string_equal(sonde_attribute_text(none, "a"), "");
    assert_true(sonde_attribute_number(none, NULL, 2.0) == 2.0);
    assert_int_equal(sonde_program_find(NULL, "a"), -1);
    assert_int_equal(sonde_program_find(&sample.program, NULL), -1);
    assert_string_equal(sonde_program_place_of(NULL, "a").file, "");
    assert_string_equal(sonde_program_place_of(&sample.program, NULL).file, "");
}

static void memory_that_runs_out_leaks_nothing(void **state)
{
    program_sample sample;
    sonde_err err = SONDE_ENOMEM;

    (void)state;
    sample_init(&sample);
    for (size_t n = 0; err != SONDE_OK; n++) {
        sonde_program *copy = NULL, *again = NULL;
        char *text = NULL;
        size_t length = 0;

        alloc_failure_begin(n);
        err = sonde_program_copy(&sample.program, &copy, NULL);
        if (err == SONDE_OK) {
            err = sonde_program_text(copy, &text, &length, NULL);
        }
        if (err == SONDE_OK) {
            err = sonde_program_read(text, length, &again, NULL);
        }
        sonde_release(text);
        sonde_program_destroy(again);
        sonde_program_destroy(copy);
        assert_int_equal(alloc_failure_end(), 0);
        assert_true(err == SONDE_OK || err == SONDE_ENOMEM);
        assert_true(n > 0 || err != SONDE_OK);
    }
}

/* Seconds of this thread that a copy of a program with this many operations takes. */
static double seconds_of(int nodes)
{
    sonde_program_node *rows = calloc((size_t)nodes, sizeof *rows);
    sonde_program_value *values = calloc((size_t)nodes, sizeof *values);
    int *outputs = calloc((size_t)nodes, sizeof *outputs);
    struct timespec begin, end;
    sonde_program program = {.size = sizeof program,
                             .values = values,
                             .value_count = (size_t)nodes,
                             .nodes = rows,
                             .node_count = (size_t)nodes};

    assert_true(rows != NULL && values != NULL && outputs != NULL);
    for (int i = 0; i < nodes; i++) {
        outputs[i] = i;
        values[i] = (sonde_program_value){.dtype = SONDE_F32, .parameter = -1};
        rows[i] = (sonde_program_node){.op = "relu",
                                       .inputs = &outputs[i > 0 ? i - 1 : 0],
                                       .input_count = 1,
                                       .outputs = &outputs[i],
                                       .output_count = 1,
                                       .module = -1,
                                       .place = {"a.py", i}};
    }
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &begin);
    sonde_program *copy = copy_of(&program);
    (void)clock_gettime(CLOCK_THREAD_CPUTIME_ID, &end);
    assert_int_equal(copy->values[nodes - 1].node, nodes - 1);
    sonde_program_destroy(copy);
    free(outputs);
    free(values);
    free(rows);
    return (double)(end.tv_sec - begin.tv_sec) +
           1e-9 * (double)(end.tv_nsec - begin.tv_nsec);
}

/* 16 times as many operations take 16 times as long, and 256 if each looks at each. */
static void the_cost_is_linear(void **state)
{
    double small = 1e9;

    (void)state;
    for (int i = 0; i < 5; i++) {
        const double seconds = seconds_of(10000);

        small = seconds < small ? seconds : small;
    }
    assert_true(seconds_of(160000) < 80.0 * small);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_copy_has_all_rows_and_is_its_own),
        cmocka_unit_test(a_text_that_is_read_and_written_again_stays),
        cmocka_unit_test(another_line_is_another_program),
        cmocka_unit_test(keys_that_are_left_out_have_their_defaults),
        cmocka_unit_test(odd_strings_survive),
        cmocka_unit_test(attributes_are_text_and_number),
        cmocka_unit_test(attributes_of_a_text_are_of_any_kind),
        cmocka_unit_test(indices_outside_of_their_arrays_are_refused),
        cmocka_unit_test(values_that_cannot_be_are_refused),
        cmocka_unit_test(an_attribute_twice_is_refused),
        cmocka_unit_test(invalid_texts_are_refused),
        cmocka_unit_test(a_text_that_is_cut_off_is_refused),
        cmocka_unit_test(tensors_have_the_lines_of_their_operations),
        cmocka_unit_test(a_line_is_relative_to_the_root),
        cmocka_unit_test(events_have_names),
        cmocka_unit_test(null_is_refused),
        cmocka_unit_test(memory_that_runs_out_leaks_nothing),
        cmocka_unit_test(the_cost_is_linear),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
