/*
 * trial_tool.h - trials from the command line, for the check against an independent
 * reader (tests/python/test_read_run.py) and for making golden runs:
 *
 *     dump RUN         what a trial reads, a JSON object a line
 *     make golden RUN  the run of golden/runs/v1, which is kept and not made again
 *     make resumed RUN that of golden/runs/v1-resumed, likewise
 *     make aliases RUN that of golden/runs/v1-aliases, likewise
 *     make RUN         a run by the recorder: compressed, two workers, killed by no one
 */
#ifndef SONDE_TESTS_TRIAL_TOOL_H
#define SONDE_TESTS_TRIAL_TOOL_H

#include "trial/run_folder.h"

#include "base/macros.h"
#include "base/random.h"
#include "record/record_sink.h"

#include <sonde/error.h>
#include <sonde/recorder.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <inttypes.h>

/* --- dump ----------------------------------------------------------------------------- */

static int tool_fail(const sonde_diag *diag)
{
    char line[SONDE_DIAG_LINE];

    (void)fprintf(stderr, "error: %s\n", sonde_diag_line(diag, line, sizeof line));
    return 2;
}

static void dump_place(const sonde_trial *trial, const sonde_trial_record *record)
{
    const char *name =
        sonde_catalogue_info(sonde_trial_catalogue(trial), record->id)->name;

    (void)printf("\"worker\":%d,\"step\":%lld,\"mode\":\"%s\",\"mode_step\":%lld,"
                 "\"name\":\"%s\",\"micro_batch\":%d,\"replica\":%d",
                 record->worker, (long long)record->at.global_step,
                 sonde_mode_name(record->at.mode), (long long)record->at.mode_step, name,
                 record->at.micro_batch, record->at.replica);
}

static void dump_value(const sonde_view *view)
{
    const size_t bytes = (size_t)sonde_view_count(view) * sonde_dtype_size(view->dtype);

    (void)printf(",\"dtype\":\"%s\",\"shape\":[", sonde__dtype_short_name(view->dtype));
    for (int d = 0; d < view->rank; d++) {
        (void)printf("%s%lld", d > 0 ? "," : "", (long long)view->shape[d]);
    }
    (void)printf("],\"hash\":\"%016llx\"",
                 (unsigned long long)XXH3_64bits(view->data, bytes));
}

static void dump_counts(uint64_t count, uint64_t nan, uint64_t pos, uint64_t neg,
                        uint64_t zero)
{
    (void)printf(",\"counts\":[%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64 ",%" PRIu64
                 "]",
                 count, nan, pos, neg, zero);
}

/* Doubles as their bits: JSON has no infinities, and none shall be rounded. */
static void dump_vitals(const sonde_vitals *v)
{
    const double fields[] = {v->min, v->max, v->abs_min, v->abs_max, v->mean,
                             v->m2,  v->l1,  v->sumsq,   v->sum};

    dump_counts(v->count, v->nan, v->pos_inf, v->neg_inf, v->zero);
    (void)printf(",\"bits\":[");
    for (size_t i = 0; i < SONDE_COUNT_OF(fields); i++) {
        uint64_t bits = 0;

        memcpy(&bits, &fields[i], sizeof bits);
        (void)printf("%s%" PRIu64, i > 0 ? "," : "", bits);
    }
    (void)printf("]");
}

static void dump_sketch(const sonde_sketch *s)
{
    const char *comma = "";

    dump_counts(s->count, s->nan, s->pos_inf, s->neg_inf, s->zero);
    (void)printf(",\"bins\":{");
    for (int i = 0; i < SONDE_SKETCH_BINS; i++) {
        if (s->positive[i] > 0) {
            (void)printf("%s\"%d\":%" PRIu64, comma, i, s->positive[i]);
            comma = ",";
        }
        if (s->negative[i] > 0) {
            (void)printf("%s\"%d\":%" PRIu64, comma, -1 - i, s->negative[i]);
            comma = ",";
        }
    }
    (void)printf("}");
}

static int dump_records(sonde_trial *trial, sonde_trial_cursor *cursor)
{
    sonde_trial_record record;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    while ((err = sonde_trial_next(cursor, &record, &diag)) == SONDE_OK) {
        (void)printf("{\"kind\":\"%s\",", record.how == SONDE_HOW_RAW      ? "raw"
                                          : record.how == SONDE_HOW_VITALS ? "vitals"
                                                                           : "sketch");
        dump_place(trial, &record);
        if (record.how == SONDE_HOW_RAW) {
            dump_value(&record.view);
        } else if (record.how == SONDE_HOW_VITALS) {
            dump_vitals(record.vitals);
        } else {
            dump_sketch(record.sketch);
        }
        (void)printf("}\n");
    }
    return err == SONDE_EEND ? 0 : tool_fail(&diag);
}

static void dump_tensors(const sonde_trial *trial)
{
    const sonde_catalogue *catalogue = sonde_trial_catalogue(trial);

    for (uint32_t id = 0; id < sonde_catalogue_count(catalogue); id++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, id);

        (void)printf("{\"kind\":\"tensor\",\"name\":\"%s\",\"same_as\":\"%s\"}\n",
                     info->name, sonde_catalogue_info(catalogue, info->same_as)->name);
    }
}

static void dump_steps(sonde_trial *trial)
{
    size_t count = 0;
    const int64_t *steps = sonde_trial_steps(trial, SONDE_MODE_GLOBAL, true, &count);

    for (size_t i = 0; i < count; i++) {
        for (size_t w = 0; sonde_trial_worker(trial, w) >= 0; w++) {
            int64_t time = 0;

            if (sonde_trial_step_time(trial, SONDE_MODE_GLOBAL, steps[i],
                                      sonde_trial_worker(trial, w), &time)) {
                (void)printf("{\"kind\":\"step\",\"worker\":%d,\"step\":%lld,"
                             "\"time\":%lld}\n",
                             sonde_trial_worker(trial, w), (long long)steps[i],
                             (long long)time);
            }
        }
    }
}

static int tool_dump(const char *path)
{
    const sonde_trial_cursor_options options = {.size = sizeof options,
                                                .how = SONDE_HOW_RAW | SONDE_HOW_VITALS |
                                                       SONDE_HOW_SKETCH,
                                                .mode = SONDE_MODE_GLOBAL,
                                                .incomplete = true};
    sonde_trial *trial = NULL;
    sonde_trial_cursor *cursor = NULL;
    sonde_run_info info;
    sonde_diag diag = {0};
    int status = 2;

    if (sonde_trial_open(path, NULL, &trial, &diag) != SONDE_OK ||
        sonde_trial_cursor_create(trial, &options, &cursor, &diag) != SONDE_OK) {
        sonde_trial_close(trial);
        return tool_fail(&diag);
    }
    sonde_trial_describe(trial, &info);
    (void)printf("{\"kind\":\"run\",\"id\":\"%s\",\"world\":%d,\"workers\":%d,"
                 "\"last_step\":%lld,\"records\":%" PRIu64 ",\"rows\":%" PRIu64
                 ",\"sketches\":%" PRIu64 ",\"superseded\":%" PRIu64
                 ",\"superseded_steps\":%" PRIu64 ",\"ended\":%s}\n",
                 info.id, info.world, info.workers, (long long)info.last_step,
                 info.records, info.rows, info.sketches, info.superseded,
                 info.superseded_steps,
                 info.status == SONDE_RUN_ENDED ? "true" : "false");
    for (size_t i = 0; sonde_trial_damage(trial, i) != NULL; i++) {
        (void)fprintf(stderr, "damage: %s\n", sonde_trial_damage(trial, i));
    }
    dump_tensors(trial);
    dump_steps(trial);
    status = dump_records(trial, cursor);
    sonde_trial_cursor_destroy(cursor);
    sonde_trial_close(trial);
    return status;
}

/* --- make ------------------------------------------------------------------------------ */

enum { TOOL_HEAD = 3072 };

static void tool_dtypes(writer *w, int64_t s)
{
    static const int64_t shape[2] = {2, 4};
    _Alignas(8) unsigned char data[8 * 8];
    const sonde_dtype dtype = (sonde_dtype)(s % SONDE_DTYPE_COUNT);
    const sonde_view view = sonde_view_of(dtype, 2, shape, data);

    for (size_t i = 0; i < 8; i++) {
        sonde_element_set(dtype, data + i * sonde_dtype_size(dtype),
                          (double)(i * 3 % 7) + (double)s);
    }
    writer_put(w, known_at(s), (uint32_t)(KNOWN_TENSORS + dtype), &view,
               (sonde__record_packing)(s % 3));
}

/* Worker 0 ended; worker 1 was killed in step 13, and its segment has no header. */
static void tool_golden_worker(writer *w, const char *path, int rank)
{
    static const int64_t shape[2] = {2, 4};

    writer_open_at(w, path, rank, TOOL_HEAD, 0);
    known_declare(w);
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        char name[64];

        (void)snprintf(name, sizeof name, "of.%s", sonde_dtype_name((sonde_dtype)d));
        (void)writer_tensor(w, name, "other", (sonde_dtype)d, 2, shape, "dtypes");
    }
    for (int64_t s = 0; s < 14; s++) {
        sonde_coordinate at = known_at(s);

        for (at.micro_batch = 0; at.micro_batch < 1 + (s == 5); at.micro_batch++) {
            known_put_row(w, at, rank);
            known_put(w, at, rank, SONDE__PACKED_NOT);
        }
        if (s % 5 == 0) {
            known_put_sketch(w, known_at(s), rank);
        }
        tool_dtypes(w, s);
        if (s != 13 || rank == 0) {
            writer_end_step(w, known_at(s));
        }
        if (s == 6) {
            writer_rotate(w);
        }
    }
}

static int tool_make_golden(const char *path)
{
    writer w;

    writer_begin(path, 2);
    for (int rank = 0; rank < 2; rank++) {
        tool_golden_worker(&w, path, rank);
        writer_state(&w, rank == 0 ? "ended" : "running", 1, "elsewhere", 86400, 0);
        if (rank == 0) {
            writer_close(&w);
        } else {
            assert(fputs("{\"s\":13,\"m\":\"train\",\"k\":10,\"t", w.index) >= 0);
            assert(fputs("a torn row", w.stats) >= 0);
            writer_drop(&w);
        }
    }
    return 0;
}

/* Steps 0 to 9; resumed at 6 with other values; at 8, without a step; at 7, to step 11.
 */
static int tool_make_resumed(const char *path)
{
    static const struct {
        int64_t resume, end;
    } parts[] = {{0, 10}, {6, 9}, {8, 8}, {7, 12}};
    writer w;

    writer_begin(path, 1);
    writer_open_at(&w, path, 0, TOOL_HEAD, 0);
    known_declare(&w);
    for (int part = 0; part < 4; part++) {
        if (part > 0) {
            writer_resume(&w, parts[part].resume);
        }
        for (int64_t s = parts[part].resume; s < parts[part].end; s++) {
            const sonde_coordinate at = known_at(s);
            sonde_coordinate lane = at;

            lane.micro_batch = part; /* distinguishes the parts */
            known_put(&w, lane, part % 2, SONDE__PACKED_NOT);
            known_put_row(&w, lane, 0);
            if (s % 3 == 0) {
                known_put_sketch(&w, lane, 1);
            }
            writer_end_step(&w, at);
        }
    }
    writer_state(&w, "ended", 1, "elsewhere", 86400, 0);
    writer_close(&w);
    writer_end(path, "finished", 11);
    return 0;
}

/* The weight is recorded under its own name and an alias, the loss under an alias alone.
 */
static int tool_make_aliases(const char *path)
{
    writer w;
    uint32_t weight = 0, loss = 0;

    writer_begin(path, 1);
    writer_open_at(&w, path, 0, TOOL_HEAD, 0);
    known_declare(&w);
    weight = writer_declare(&w, "tied.weight", "weight", SONDE_F32, 2, known_shape,
                            ",\"same_as\":0", "weights");
    loss = writer_declare(&w, "objective", "other", SONDE_F32, 0, NULL, ",\"same_as\":2",
                          "losses");
    for (int64_t s = 0; s < 4; s++) {
        float data[KNOWN_COUNT];
        sonde_view view = known_value(0, s, 0, data);

        known_put_row(&w, known_at(s), 0);
        writer_put(&w, known_at(s), weight, &view, SONDE__PACKED_NOT);
        view = known_value(2, s, 0, data);
        writer_put(&w, known_at(s), loss, &view, SONDE__PACKED_NOT);
        writer_end_step(&w, known_at(s));
    }
    writer_state(&w, "ended", 1, "elsewhere", 86400, 0);
    writer_close(&w);
    writer_end(path, "finished", 3);
    return 0;
}

static sonde_catalogue *tool_catalogue(void)
{
    sonde_catalogue *catalogue = NULL;

    for (int t = 0; t < KNOWN_TENSORS; t++) {
        const sonde_tensor_info info = {.name = known_names[t],
                                        .role = SONDE_ROLE_OTHER,
                                        .dtype = SONDE_F32,
                                        .rank = 2,
                                        .shape = {100, 30},
                                        .same_as = SONDE_NO_TENSOR};
        uint32_t id = 0;

        if ((t == 0 && sonde_catalogue_create(&catalogue, NULL) != SONDE_OK) ||
            sonde_catalogue_declare(catalogue, &info, &id, NULL) != SONDE_OK) {
            abort();
        }
    }
    return catalogue;
}

static void tool_record(sonde_recorder *recorder, int64_t s)
{
    static float data[3000];
    static const int64_t shape[2] = {100, 30};
    static sonde_sketch sketch;
    const sonde_view view = sonde_view_of(SONDE_F32, 2, shape, data);
    const sonde_coordinate at = known_at(s);
    sonde_vitals vitals;

    for (uint32_t t = 0; t < KNOWN_TENSORS; t++) {
        for (uint64_t i = 0; i < SONDE_COUNT_OF(data); i++) {
            const float x = sonde__normal((uint64_t)s * 3 + t, 0, i);

            data[i] = t == 1 && x < 1.0F ? 0.0F : i % 1000 == 999 ? 1.0F / 0.0F : x;
        }
        sonde_vitals_of(&view, &vitals);
        sonde_sketch_init(&sketch);
        sonde_sketch_add(&sketch, &view);
        sonde__recorder_put(recorder, t, &at, &view);
        sonde__recorder_put_vitals(recorder, t, &at, &vitals);
        sonde__recorder_put_sketch(recorder, t, &at, &sketch);
    }
    sonde__recorder_end_step(recorder, &at);
}

static int tool_make(const char *path)
{
    sonde_catalogue *catalogue = tool_catalogue();
    sonde_recorder *recorders[2];
    sonde_diag diag = {0};

    for (int rank = 0; rank < 2; rank++) {
        const sonde_recorder_options options = {.size = sizeof options,
                                                .path = path,
                                                .rank = rank,
                                                .world = 2,
                                                .segment_bytes = 100000,
                                                .compress = rank == 1,
                                                .program = "trial_tool"};

        if (sonde__recorder_create(&options, catalogue, &recorders[rank], &diag) !=
            SONDE_OK) {
            return tool_fail(&diag);
        }
    }
    for (int64_t s = 0; s < 40; s++) {
        tool_record(recorders[0], s);
        tool_record(recorders[1], s);
    }
    for (int rank = 1; rank >= 0; rank--) {
        if (sonde__recorder_close(recorders[rank], SONDE_RUN_FINISHED, NULL, &diag) !=
            SONDE_OK) {
            return tool_fail(&diag);
        }
    }
    sonde_catalogue_destroy(catalogue);
    return 0;
}

static int use_as_tool(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "dump") == 0) {
        return tool_dump(argv[2]);
    }
    if (argc == 4 && strcmp(argv[1], "make") == 0 && strcmp(argv[2], "golden") == 0) {
        return tool_make_golden(argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "make") == 0 && strcmp(argv[2], "resumed") == 0) {
        return tool_make_resumed(argv[3]);
    }
    if (argc == 4 && strcmp(argv[1], "make") == 0 && strcmp(argv[2], "aliases") == 0) {
        return tool_make_aliases(argv[3]);
    }
    if (argc == 3 && strcmp(argv[1], "make") == 0) {
        return tool_make(argv[2]);
    }
    (void)fprintf(stderr, "usage: dump RUN | make [golden | resumed | aliases] RUN\n");
    return 2;
}

#endif
