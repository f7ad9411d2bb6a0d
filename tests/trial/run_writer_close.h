/*
 * run_writer_close.h - the end of run_writer.h, which includes it: closing files,
 * beginning the next ones, resuming a run.
 */
#ifndef SONDE_TESTS_TRIAL_RUN_WRITER_CLOSE_H
#define SONDE_TESTS_TRIAL_RUN_WRITER_CLOSE_H

static inline void writer_rename(const writer *w, sonde__record_file_kind kind,
                                 uint64_t number)
{
    char name[SONDE__FILE_NAME], from[WRITER_PATH], to[WRITER_PATH];

    sonde__record_file_name(name, kind, number, true);
    writer_path(w, name, from);
    sonde__record_file_name(name, kind, number, false);
    writer_path(w, name, to);
    assert(rename(from, to) == 0);
}

static inline void writer_close_segment(writer *w)
{
    static const char first[] = "{\"__metadata__\":{\"sonde_run\":\"1\",\"worker\":\"";
    char start[128];
    const int n = snprintf(start, sizeof start, "%s%d\"},", first, w->rank);

    assert(n > 0 && (size_t)n + w->header_used <= w->head);
    assert(fseek(w->segment, 8, SEEK_SET) == 0 &&
           fwrite(start, (size_t)n, 1, w->segment) == 1);
    assert(w->header_used == 0 || fwrite(w->header, w->header_used, 1, w->segment) == 1);
    /* The comma after the last key becomes the bracket. */
    assert(fseek(w->segment, (long)(8 + (size_t)n + w->header_used - 1), SEEK_SET) == 0 &&
           fputc('}', w->segment) == '}');
    assert(fclose(w->segment) == 0 && fclose(w->index) == 0);
    writer_rename(w, SONDE__FILE_SEGMENT, w->segment_number++);
    w->segment = w->index = NULL;
}

static inline void writer_close_rows(const writer *w, FILE *file,
                                     sonde__record_file_kind kind, uint64_t number,
                                     uint64_t rows)
{
    char head[SONDE__MOST_HEAD];
    const size_t size = sonde__record_file_head(kind, rows, head);

    assert(fseek(file, 0, SEEK_SET) == 0 && fwrite(head, size, 1, file) == 1 &&
           fclose(file) == 0);
    writer_rename(w, kind, number);
}

static inline void writer_close_stats(writer *w)
{
    writer_close_rows(w, w->stats, SONDE__FILE_STATS, w->stats_number++, w->rows);
    w->stats = NULL;
}

static inline void writer_close_steps(writer *w)
{
    writer_close_rows(w, w->steps, SONDE__FILE_STEPS, w->steps_number++, w->step_rows);
    w->steps = NULL;
}

static inline void writer_close_sketch(writer *w)
{
    assert(fclose(w->sketch) == 0);
    writer_rename(w, SONDE__FILE_SKETCH, w->sketch_number++);
    w->sketch = NULL;
}

static inline void writer_close_files(writer *w)
{
    writer_close_segment(w);
    writer_close_stats(w);
    writer_close_sketch(w);
    writer_close_steps(w);
}

static inline void writer_begin_files(writer *w)
{
    writer_begin_segment(w);
    writer_begin_stats(w);
    writer_begin_sketch(w);
    writer_begin_steps(w);
}

static inline void writer_rotate(writer *w)
{
    writer_close_files(w);
    writer_begin_files(w);
}

/* Closes the worker's files and resumes them at a global step. */
static inline void writer_resume(writer *w, int64_t step)
{
    char text[SONDE__GENERATION_ROOM], path[WRITER_PATH];
    sonde__record_generation line = {
        .number = ++w->generation, .step = step, .time = writer_time(step)};
    FILE *file = NULL;
    size_t size = 0;

    writer_close_files(w);
    line.first[SONDE__FILE_SEGMENT] = w->segment_number;
    line.first[SONDE__FILE_STATS] = w->stats_number;
    line.first[SONDE__FILE_SKETCH] = w->sketch_number;
    line.first[SONDE__FILE_STEPS] = w->steps_number;
    size = sonde__record_generation_print(&line, text);
    writer_path(w, SONDE__GENERATIONS_FILE, path);
    file = writer_file(path, "a");
    assert(fwrite(text, size, 1, file) == 1 && fclose(file) == 0);
    writer_begin_files(w);
}

/* Without closing a file properly: as after a kill. */
static inline void writer_drop(writer *w)
{
    FILE *const files[] = {w->catalogue, w->segment, w->index,
                           w->stats,     w->sketch,  w->steps};

    for (size_t i = 0; i < sizeof files / sizeof files[0]; i++) {
        if (files[i] != NULL) {
            (void)fclose(files[i]);
        }
    }
    free(w->header);
    *w = (writer){0};
}

static inline void writer_close(writer *w)
{
    writer_close_files(w);
    writer_drop(w);
}

#endif
