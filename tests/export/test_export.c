/*
 * test_export.c - exports of a run whose every element is known. What the files are to
 * other people's readers is looked at by tests/python/test_exports.py; here by Sonde's
 * own.
 */
#include "alloc_failure.h"
#include "export_folder.h"
#include "base/fail.h"
#include "trial/run_tool.h"

#include <sonde/export_run.h>
#include <sonde/safetensors.h>

#include <sys/stat.h>

/* --- runs ------------------------------------------------------------------------- */

static const run_options plain = {.world = 1, .blocks = 4};

/* A run under a name of its own within the folder, open. */
static sonde_trial *open_run(const char *name, const run_options *options)
{
    sonde_trial *trial = NULL;
    char path[512];

    (void)snprintf(path, sizeof path, "%s", in_folder(name));
    assert_int_equal(run_make(path, options, NULL), SONDE_OK);
    assert_int_equal(sonde_trial_open(path, NULL, &trial, NULL), SONDE_OK);
    return trial;
}

/* A run of two workers; the one of rank 0 ends it. */
static sonde_trial *open_run_of_two(const char *name)
{
    const run_options first = {.world = 2, .blocks = 4};
    const run_options second = {.world = 2, .rank = 1, .blocks = 4};

    assert_int_equal(run_make(in_folder(name), &second, NULL), SONDE_OK);
    return open_run(name, &first);
}

/* Removes everything in the folder. */
static void clear(sonde_trial *trial)
{
    char command[600];

    sonde_trial_close(trial);
    (void)snprintf(command, sizeof command, "rm -rf '%s'/*", folder);
    assert_int_equal(system(command), 0);
}

static uint32_t id_of(const sonde_trial *trial, const char *name)
{
    uint32_t id = 0;

    assert_int_equal(sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, NULL),
                     SONDE_OK);
    return id;
}

/* --- raw values ------------------------------------------------------------------- */

/* All raw values of a worker are in the file, bit by bit; how many. */
static size_t expect_values(const sonde_safetensors *file, int rank, const char *before)
{
    sonde_coordinate at = {.global_step = 0};
    int64_t steps[SONDE_MODE_COUNT] = {0};
    size_t count = 0;

    for (; at.global_step < 48; at.global_step++) {
        at.mode = at.global_step % 12 < 10 ? SONDE_MODE_TRAIN : SONDE_MODE_EVAL;
        at.mode_step = steps[at.mode]++;
        for (int t = 0; t < RUN_TENSORS; t++) {
            if ((at.mode == SONDE_MODE_EVAL && t != 0) ||
                !run_is_due(run_tensors[t].raw, &at)) {
                continue;
            }
            for (at.micro_batch = 0; at.micro_batch < run_tensors[t].micro_batches;
                 at.micro_batch++) {
                _Alignas(8) unsigned char room[RUN_MOST_ELEMENTS * 8];
                const sonde_view wanted = run_view(t, &at, rank, room);
                const sonde_view *got = NULL;
                char key[128];

                (void)snprintf(key, sizeof key, "%s%010lld/%s/%s%s", before,
                               (long long)at.global_step, sonde_mode_name(at.mode),
                               run_tensors[t].name, at.micro_batch == 1 ? "@1.0" : "");
                got = sonde_safetensors_find(file, key);
                assert_non_null(got);
                assert_int_equal(got->dtype, wanted.dtype);
                assert_true(sonde_view_same_shape(got, &wanted));
                assert_memory_equal(got->data, wanted.data,
                                    (size_t)sonde_view_count(&wanted) *
                                        sonde_dtype_size(wanted.dtype));
                count++;
            }
            at.micro_batch = 0;
        }
    }
    return count;
}

static void expect_all_values(const run_options *options)
{
    sonde_trial *trial = open_run("run", options);
    sonde_export_report report = {0};
    sonde_safetensors *file = NULL;
    size_t count = 0;

    assert_int_equal(sonde_trial_export(trial, SONDE_EXPORT_SAFETENSORS, in_folder("all"),
                                        NULL, &report, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("all"), &file, NULL), SONDE_OK);
    count = expect_values(file, 0, "");
    assert_int_equal(count, 84);
    assert_int_equal(sonde_safetensors_count(file), count);
    assert_int_equal(report.values, count);
    assert_int_equal(report.tensors, RUN_TENSORS);
    assert_int_equal(report.left_out, 0);
    assert_string_equal(sonde_safetensors_metadata(file, "model"), "small");
    sonde_safetensors_destroy(file);
    clear(trial);
}

static void every_raw_value_is_exported(void **state)
{
    const run_options packed = {.world = 1, .blocks = 4, .compress = 1};

    (void)state;
    expect_all_values(&plain);
    expect_all_values(&packed);
}

static void workers_have_folders_in_keys(void **state)
{
    sonde_trial *trial = open_run_of_two("run");
    sonde_safetensors *file = NULL;
    sonde_export_options options = sonde_export_options_default();

    (void)state;
    assert_int_equal(sonde_trial_export(trial, SONDE_EXPORT_SAFETENSORS, in_folder("all"),
                                        NULL, NULL, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("all"), &file, NULL), SONDE_OK);
    assert_int_equal(expect_values(file, 0, "w0000/") + expect_values(file, 1, "w0001/"),
                     sonde_safetensors_count(file));
    sonde_safetensors_destroy(file);

    options.worker = 1;
    assert_int_equal(sonde_trial_export(trial, SONDE_EXPORT_SAFETENSORS, in_folder("one"),
                                        &options, NULL, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("one"), &file, NULL), SONDE_OK);
    assert_int_equal(expect_values(file, 1, "w0001/"), sonde_safetensors_count(file));
    sonde_safetensors_destroy(file);
    clear(trial);
}

/* How many values, rows or scalars an export of these options has. */
static uint64_t count_of(sonde_trial *trial, sonde_export_kind kind,
                         const sonde_export_options *options)
{
    sonde_export_report report = {0};
    char command[600];

    assert_int_equal(
        sonde_trial_export(trial, kind, in_folder("some"), options, &report, NULL),
        SONDE_OK);
    (void)snprintf(command, sizeof command, "rm -rf '%s'/some", folder);
    assert_int_equal(system(command), 0);
    return report.values + report.rows + report.scalars;
}

static void tensors_steps_and_modes_are_chosen(void **state)
{
    sonde_trial *trial = open_run("run", &plain);
    const uint32_t loss = id_of(trial, "loss"), weight = id_of(trial, "conv1.weight");
    sonde_export_options options = sonde_export_options_default();

    (void)state;
    options.ids = &loss;
    options.id_count = 1;
    assert_int_equal(count_of(trial, SONDE_EXPORT_NPZ, &options), 48);
    assert_int_equal(count_of(trial, SONDE_EXPORT_CSV, &options), 48);
    assert_int_equal(count_of(trial, SONDE_EXPORT_TENSORBOARD, &options), 48);
    options.begin = 9; /* global: train 9, eval 0 and 1, train 10 */
    options.end = 13;
    assert_int_equal(count_of(trial, SONDE_EXPORT_NPZ, &options), 4);
    assert_int_equal(count_of(trial, SONDE_EXPORT_CSV, &options), 4);
    options.mode = SONDE_MODE_EVAL; /* eval has 0 to 7 */
    options.begin = 3;
    assert_int_equal(count_of(trial, SONDE_EXPORT_NPZ, &options), 5);
    assert_int_equal(count_of(trial, SONDE_EXPORT_JSONL, &options), 5);
    assert_int_equal(count_of(trial, SONDE_EXPORT_TENSORBOARD, &options), 5);
    options.mode = SONDE_MODE_TRAIN;
    options.ids = &weight; /* raw at train 5 and 10, vital signs at 3 to 12 */
    assert_int_equal(count_of(trial, SONDE_EXPORT_SAFETENSORS, &options), 2);
    assert_int_equal(count_of(trial, SONDE_EXPORT_CSV, &options), 10);
    assert_int_equal(count_of(trial, SONDE_EXPORT_TENSORBOARD, &options), 60);
    clear(trial);
}

/* --- rows ------------------------------------------------------------------------- */

typedef struct seen_rows {
    size_t count;
    int64_t last_step;
    int workers; /* bits */
} seen_rows;

static sonde_err see_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    seen_rows *rows = user;

    (void)diag;
    assert_string_equal(row->tensor, "act");
    assert_int_equal(row->vitals->count, 12); /* two micro-batches of (2, 3) */
    assert_int_equal(row->mode, SONDE_MODE_TRAIN);
    assert_int_equal(row->mode_step, row->step / 12 * 10);
    rows->count++;
    rows->last_step = row->step;
    rows->workers |= 1 << row->worker;
    return SONDE_OK;
}

static sonde_err refuse_row(void *user, const sonde_export_row *row, sonde_diag *diag)
{
    (void)row;
    ((seen_rows *)user)->count++;
    return sonde__fail(diag, SONDE_EBUSY, "row", NULL, "mine");
}

static void rows_are_merged_over_micro_batches(void **state)
{
    sonde_trial *trial = open_run_of_two("run");
    const uint32_t act = id_of(trial, "act");
    sonde_export_options options = sonde_export_options_default();
    seen_rows one = {0}, both = {0};
    sonde_diag diag = {0};

    (void)state;
    options.ids = &act;
    options.id_count = 1;
    assert_int_equal(sonde_trial_rows(trial, &options, true, see_row, &one, NULL),
                     SONDE_OK);
    assert_true(one.count == 4 && one.last_step == 36 && one.workers == 1);
    assert_int_equal(sonde_trial_rows(trial, &options, false, see_row, &both, NULL),
                     SONDE_OK);
    assert_true(both.count == 8 && both.workers == 3);
    assert_int_equal(sonde_trial_rows(trial, &options, false, refuse_row, &one, &diag),
                     SONDE_EBUSY);
    assert_int_equal(one.count, 5); /* the first row ends the walk */
    assert_string_equal(diag.found, "mine");
    options.begin = 1000; /* nothing, which is no error */
    assert_int_equal(sonde_trial_rows(trial, &options, false, refuse_row, &one, NULL),
                     SONDE_OK);
    clear(trial);
}

static void kinds_have_names(void **state)
{
    sonde_export_kind kind = SONDE_EXPORT_CSV;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_export_kind_parse("NPZ", &kind, NULL), SONDE_OK);
    assert_int_equal(kind, SONDE_EXPORT_NPZ);
    assert_int_equal(sonde_export_kind_parse("hdf5", &kind, &diag), SONDE_EINVAL);
    assert_int_equal(kind, SONDE_EXPORT_NPZ);
    assert_non_null(strstr(diag.expected, "tensorboard"));
}

/* --- TensorBoard ------------------------------------------------------------------ */

static void a_board_has_a_folder_for_each_mode(void **state)
{
    sonde_trial *trial = open_run("run", &plain);
    sonde_export_report report = {0};
    struct stat status;

    (void)state;
    assert_int_equal(sonde_trial_export(trial, SONDE_EXPORT_TENSORBOARD,
                                        in_folder("board/"), NULL, &report, NULL),
                     SONDE_OK);
    assert_int_equal(stat(in_folder("board/train"), &status), 0);
    assert_int_equal(stat(in_folder("board/eval"), &status), 0);
    assert_int_not_equal(stat(in_folder("board/predict"), &status), 0);
    /* 48 losses, 4 odd scalars; six statistics of 40 + 40 + 4 x 4 steps; histograms of
     * the weight at 8, the gradient at 8 and the others at 4 steps each */
    assert_int_equal(report.scalars, 52 + 6 * 96);
    assert_int_equal(report.histograms, 32);
    assert_int_equal(count_files(false), 2); /* the run and the board */
    clear(trial);
}

/* --- mistakes and damage ---------------------------------------------------------- */

static bool stop(void *user, uint64_t done, uint64_t total)
{
    int *left = user;

    (void)done;
    (void)total;
    return (*left)-- > 0;
}

static void a_failed_export_leaves_nothing(void **state)
{
    sonde_trial *trial = open_run("run", &plain);
    const uint32_t beyond = 8;

    (void)state;
    for (int k = SONDE_EXPORT_TENSORBOARD; k <= SONDE_EXPORT_JSONL; k++) {
        sonde_export_options options = sonde_export_options_default();
        const char *path = in_folder("out");
        int asked = 1;

        options.begin = 48; /* nothing there */
        assert_int_equal(
            sonde_trial_export(trial, (sonde_export_kind)k, path, &options, NULL, NULL),
            SONDE_ENOTFOUND);
        options.end = 47;
        assert_int_equal(
            sonde_trial_export(trial, (sonde_export_kind)k, path, &options, NULL, NULL),
            SONDE_EINVAL);
        options = sonde_export_options_default();
        options.ids = &beyond;
        options.id_count = 1;
        assert_int_equal(
            sonde_trial_export(trial, (sonde_export_kind)k, path, &options, NULL, NULL),
            SONDE_ERANGE);
        options = sonde_export_options_default();
        options.progress = stop;
        options.user = &asked;
        assert_int_equal(
            sonde_trial_export(trial, (sonde_export_kind)k, path, &options, NULL, NULL),
            SONDE_EINTERRUPTED);
        assert_int_equal(sonde_trial_export(trial, (sonde_export_kind)k,
                                            in_folder("no/out"), NULL, NULL, NULL),
                         SONDE_ENOTFOUND);
        assert_int_equal(sonde_trial_export(trial, (sonde_export_kind)k, in_folder("run"),
                                            NULL, NULL, NULL),
                         SONDE_EEXIST);
        assert_int_equal(count_files(false), 1);
    }
    clear(trial);
}

static void count_told(void *user, const char *text)
{
    assert_non_null(strstr(text, "act"));
    (*(int *)user)++;
}

/* Flips a byte of the value of "act" at step 12, micro-batch 1. */
static void damage_run(void)
{
    const char *path = in_folder("run/w0000/seg-00000000.safetensors");
    sonde_safetensors *file = NULL;
    const sonde_view *view = NULL, *first = NULL;
    FILE *stream = NULL;
    uint64_t head = 0;
    int byte = 0;

    assert_int_equal(sonde_safetensors_open(path, &file, NULL), SONDE_OK);
    view = sonde_safetensors_find(file, "0000000012/train/act@1.0");
    first = sonde_safetensors_view(file, 0);
    assert_non_null(view);
    stream = fopen(path, "r+b");
    assert_non_null(stream);
    assert_int_equal(fread(&head, 1, sizeof head, stream), sizeof head);
    head += sizeof head + (size_t)((char *)view->data - (char *)first->data);
    assert_int_equal(fseek(stream, (long)head, SEEK_SET), 0);
    byte = fgetc(stream);
    assert_int_equal(fseek(stream, (long)head, SEEK_SET), 0);
    assert_int_equal(fputc(byte ^ 1, stream), byte ^ 1);
    (void)fclose(stream);
    sonde_safetensors_destroy(file);
}

static void what_is_damaged_is_left_out_and_named(void **state)
{
    /* of "act" at that step: a value; the row that both its values make; the scalars
     * and the histogram of that row */
    static const struct {
        sonde_export_kind kind;
        uint64_t values, rows, scalars;
    } wanted[] = {{SONDE_EXPORT_NPZ, 83, 0, 0},
                  {SONDE_EXPORT_SAFETENSORS, 83, 0, 0},
                  {SONDE_EXPORT_CSV, 0, 147, 0},
                  {SONDE_EXPORT_TENSORBOARD, 0, 0, 52 + 6 * 95}};
    sonde_trial *trial = open_run("run", &plain);

    (void)state;
    damage_run();
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        sonde_export_options options = sonde_export_options_default();
        sonde_export_report report = {0};
        int told = 0;
        char name[16];

        options.report_line = count_told;
        options.user = &told;
        (void)snprintf(name, sizeof name, "out%zu", i);
        assert_int_equal(sonde_trial_export(trial, wanted[i].kind, in_folder(name),
                                            &options, &report, NULL),
                         SONDE_OK);
        assert_int_equal(report.values, wanted[i].values);
        assert_int_equal(report.rows, wanted[i].rows);
        assert_int_equal(report.scalars, wanted[i].scalars);
        assert_int_equal(report.left_out, 1);
        assert_int_equal(told, 1);
    }
    clear(trial);
}

static void exporting_survives_every_failed_allocation(void **state)
{
    const run_options small = {.world = 1, .blocks = 1};
    sonde_trial *trial = open_run("run", &small);

    (void)state;
    for (int k = SONDE_EXPORT_TENSORBOARD; k <= SONDE_EXPORT_JSONL; k++) {
        for (size_t n = 0;; n++) {
            sonde_err err = SONDE_OK;

            /* what the trial keeps for itself is not a leak: it has it already */
            assert_int_equal(count_of(trial, (sonde_export_kind)k, NULL) > 0, true);
            alloc_failure_begin(n);
            err = sonde_trial_export(trial, (sonde_export_kind)k, in_folder("out"), NULL,
                                     NULL, NULL);
            assert_int_equal(alloc_failure_end(), 0);
            if (err == SONDE_OK) {
                char command[600];

                (void)snprintf(command, sizeof command, "rm -rf '%s'/out", folder);
                assert_int_equal(system(command), 0);
                assert_true(n > 4);
                break;
            }
            assert_int_equal(err, SONDE_ENOMEM);
            assert_int_equal(count_files(false), 1);
            n += n / (k <= SONDE_EXPORT_NPZ ? 2 : 8); /* those start Python */
        }
    }
    clear(trial);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_raw_value_is_exported),
        cmocka_unit_test(workers_have_folders_in_keys),
        cmocka_unit_test(tensors_steps_and_modes_are_chosen),
        cmocka_unit_test(rows_are_merged_over_micro_batches),
        cmocka_unit_test(kinds_have_names),
        cmocka_unit_test(a_board_has_a_folder_for_each_mode),
        cmocka_unit_test(a_failed_export_leaves_nothing),
        cmocka_unit_test(what_is_damaged_is_left_out_and_named),
        cmocka_unit_test(exporting_survives_every_failed_allocation),
    };

    if (argc > 1) {
        return run_as_tool(argc, argv);
    }
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
