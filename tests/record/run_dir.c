/* run_dir.c - the helpers that run_dir.h declares. */
#include "record/run_dir.h"
#include "record/record_sink.h"
#include "tensor/convert.h"

int run_remove_one(const char *path, const struct stat *about, int kind, struct FTW *at)
{
    (void)about;
    (void)kind;
    (void)at;
    return remove(path);
}

void run_remove(const char *path)
{
    (void)nftw(path, run_remove_one, 16, FTW_DEPTH | FTW_PHYS);
}

const char *run_path(char path[RUN_PATH], const char *name)
{
    const char *folder = getenv("TMPDIR");

    (void)snprintf(path, RUN_PATH, "%s/sonde-%s-%ld", folder != NULL ? folder : "/tmp",
                   name, (long)getpid());
    run_remove(path);
    return path;
}

const char *run_file(char path[RUN_PATH], const char *run, const char *name)
{
    const int n = snprintf(path, RUN_PATH, "%s/%s", run, name);

    assert_true(n > 0 && n < RUN_PATH);
    return path;
}

bool run_has(const char *run, const char *name)
{
    char path[RUN_PATH];

    return access(run_file(path, run, name), F_OK) == 0;
}

char *run_load(const char *run, const char *name, size_t *size)
{
    char path[RUN_PATH];
    FILE *file = fopen(run_file(path, run, name), "rb");
    struct stat about;
    char *bytes = NULL;

    *size = 0;
    if (file == NULL) {
        return NULL;
    }
    assert_int_equal(fstat(fileno(file), &about), 0);
    bytes = malloc((size_t)about.st_size + 1);
    assert_non_null(bytes);
    *size = fread(bytes, 1, (size_t)about.st_size, file);
    bytes[*size] = '\0';
    (void)fclose(file);
    return bytes;
}

json_t *run_json(const char *run, const char *name)
{
    size_t size = 0;
    char *text = run_load(run, name, &size);
    json_t *object = NULL;

    assert_non_null(text);
    object = json_loadb(text, size, JSON_REJECT_DUPLICATES, NULL);
    assert_true(json_is_object(object));
    free(text);
    return object;
}

int64_t run_number(const char *run, const char *file, const char *key)
{
    json_t *object = run_json(run, file);
    const json_t *value = json_object_get(object, key);
    int64_t number = 0;

    assert_true(json_is_integer(value));
    number = json_integer_value(value);
    json_decref(object);
    return number;
}

const char *run_id(const char *run, char id[33])
{
    json_t *object = run_json(run, "run.json");
    const char *text = json_string_value(json_object_get(object, "id"));

    assert_non_null(text);
    assert_int_equal(strlen(text), 32);
    memcpy(id, text, 33);
    json_decref(object);
    return id;
}

uint32_t run_declare(sonde_catalogue *catalogue, const char *name, sonde_dtype dtype,
                     int rank, const int64_t *shape)
{
    sonde_tensor_info info = {.name = name,
                              .role = SONDE_ROLE_WEIGHT,
                              .dtype = dtype,
                              .rank = rank,
                              .same_as = SONDE_NO_TENSOR};
    uint32_t id = 0;

    for (int d = 0; d < rank; d++) {
        info.shape[d] = shape[d];
    }
    assert_int_equal(sonde_catalogue_declare(catalogue, &info, &id, NULL), SONDE_OK);
    return id;
}

sonde_catalogue *run_catalogue(int count, int64_t n)
{
    sonde_catalogue *catalogue = NULL;
    char name[32];

    assert_int_equal(sonde_catalogue_create(&catalogue, NULL), SONDE_OK);
    for (int i = 0; i < count; i++) {
        (void)snprintf(name, sizeof name, "t%d", i);
        (void)run_declare(catalogue, name, SONDE_F32, 1, &n);
    }
    return catalogue;
}

sonde_recorder *run_create(const sonde_recorder_options *options,
                           const sonde_catalogue *catalogue)
{
    sonde_recorder *recorder = NULL;
    sonde_diag diag = {0};

    if (sonde__recorder_create(options, catalogue, &recorder, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return recorder;
}

sonde_coordinate run_at(int64_t step)
{
    return (sonde_coordinate){
        .mode = SONDE_MODE_TRAIN, .global_step = step, .mode_step = step};
}

void *run_unpack(const sonde__record_index_line *line, const char *stored, size_t *size)
{
    const size_t element = sonde_dtype_size(line->dtype);
    size_t n = element;
    unsigned char *plain = NULL, *moved = NULL;

    for (int d = 0; d < line->rank; d++) {
        n *= (size_t)line->shape[d];
    }
    plain = malloc(n + 1);
    assert_non_null(plain);
    *size = n;
    if (line->packing == SONDE__PACKED_NOT) {
        assert_int_equal(line->bytes, n);
        memcpy(plain, stored, n);
        return plain;
    }
    assert_int_equal(ZSTD_decompress(plain, n, stored, line->bytes), n);
    if (line->packing == SONDE__PACKED_ZSTD_SHUFFLE) {
        moved = malloc(n);
        assert_non_null(moved);
        for (size_t i = 0; i < n; i++) {
            moved[i] = plain[i % element * (n / element) + i / element];
        }
        free(plain);
        plain = moved;
    }
    return plain;
}

void run_key(char *key, size_t size, const sonde__record_index_line *line,
             const char *name)
{
    (void)snprintf(key, size, "%010lld/%s/%s", (long long)line->step,
                   sonde_mode_name(line->mode), name);
    if (line->micro_batch != 0 || line->replica != 0) {
        const size_t used = strlen(key);

        (void)snprintf(key + used, size - used, "@%u.%u", (unsigned)line->micro_batch,
                       (unsigned)line->replica);
    }
}

void run_check_tensor(const sonde_safetensors *file, size_t i,
                      const sonde__record_index_line *line, const char *name,
                      const char *data)
{
    const sonde_view *view = sonde_safetensors_view(file, i);
    char key[SONDE__MOST_NAME + 128];

    assert_non_null(view);
    run_key(key, sizeof key, line, name);
    assert_memory_equal(sonde_safetensors_name(file, i), key, strlen(key));
    assert_int_equal((const char *)view->data - data, line->offset);
    if (line->packing == SONDE__PACKED_NOT) {
        assert_int_equal(view->dtype, line->dtype);
        assert_int_equal(view->rank, line->rank);
        for (int d = 0; d < line->rank; d++) {
            assert_int_equal(view->shape[d], line->shape[d]);
        }
    } else {
        assert_int_equal(view->dtype, SONDE_U8);
        assert_int_equal(view->rank, 1);
        assert_int_equal(view->shape[0], line->bytes);
    }
}

void run_read_segment(const char *folder, const char *name, uint64_t number, bool part,
                      const json_t *names, run_content *content)
{
    char index_name[SONDE__FILE_NAME];
    size_t size = 0, index_size = 0, values = 0;
    char *bytes = NULL, *index = NULL, *at = NULL, *end = NULL;
    sonde_safetensors *file = NULL;
    uint64_t length = 0;

    sonde__record_file_name(index_name, SONDE__FILE_INDEX, number, false);
    index = run_load(folder, index_name, &index_size); /* before what it points to */
    bytes = run_load(folder, name, &size);
    assert_non_null(bytes);
    if (index == NULL && part) {
        free(bytes); /* it died between the two */
        return;
    }
    assert_non_null(index);
    assert_true(size >= sizeof length || index_size == 0);
    memcpy(&length, bytes, size >= sizeof length ? sizeof length : 0);
    if (!part) {
        assert_int_equal(sonde__safetensors_parse(bytes, size, name, &file, NULL),
                         SONDE_OK);
        assert_string_equal(sonde_safetensors_metadata(file, "sonde_run"), "1");
    }
    for (at = index; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        const char *const data = bytes + sizeof length + length;
        sonde__record_index_line line;
        void *plain = NULL;
        size_t plain_size = 0;

        assert_true(sonde__record_index_parse(at, (size_t)(end - at), &line));
        assert_true(sizeof length + length + line.offset + line.bytes <= size);
        assert_true(line.tensor < json_array_size(names));
        plain = run_unpack(&line, data + line.offset, &plain_size);
        assert_int_equal(XXH3_64bits(plain, plain_size), line.hash);
        if (file != NULL) {
            run_check_tensor(file, values, &line,
                             json_string_value(json_array_get(names, line.tensor)), data);
        }
        if (content->value != NULL) {
            content->value(content->user, &line, plain, plain_size);
        }
        free(plain);
        values++;
        content->bytes += plain_size;
    }
    if (file != NULL) {
        assert_int_equal(sonde_safetensors_count(file), values);
    }
    content->values += values;
    sonde_safetensors_destroy(file);
    free(bytes);
    free(index);
}

void run_read_stats(const char *folder, const char *name, bool part, run_content *content)
{
    size_t size = 0, rows = 0;
    char *bytes = run_load(folder, name, &size), head[SONDE__MOST_HEAD];

    rows = size > SONDE__STATS_HEAD ? (size - SONDE__STATS_HEAD) / SONDE__STATS_ROW : 0;
    if (!part) { /* the head of a part may be that of a file about to be closed */
        (void)sonde__record_file_head(SONDE__FILE_STATS, rows, head);
        assert_memory_equal(bytes, head, SONDE__STATS_HEAD);
    }
    assert_true(part || size == SONDE__STATS_HEAD + rows * SONDE__STATS_ROW);
    for (size_t i = 0; i < rows; i++) {
        sonde__record_stats_row row;

        memcpy(&row, bytes + SONDE__STATS_HEAD + i * sizeof row, sizeof row);
        assert_int_equal(row.check, sonde__record_stats_check(&row));
        if (content->row != NULL) {
            content->row(content->user, &row);
        }
    }
    content->rows += rows;
    free(bytes);
}

void run_read_steps(const char *folder, const char *name, bool part, run_content *content)
{
    size_t size = 0, rows = 0;
    char *bytes = run_load(folder, name, &size), head[SONDE__MOST_HEAD];

    rows = size > SONDE__STEPS_HEAD ? (size - SONDE__STEPS_HEAD) / SONDE__STEPS_ROW : 0;
    if (!part) {
        (void)sonde__record_file_head(SONDE__FILE_STEPS, rows, head);
        assert_memory_equal(bytes, head, SONDE__STEPS_HEAD);
    }
    assert_true(part || size == SONDE__STEPS_HEAD + rows * SONDE__STEPS_ROW);
    for (size_t i = 0; i < rows; i++) {
        sonde__record_step_row row;

        memcpy(&row, bytes + SONDE__STEPS_HEAD + i * sizeof row, sizeof row);
        assert_true(sonde__record_step_valid(&row));
        assert_true(row.time >= content->last_time); /* no clock is set back here */
        content->first_time = content->first_time == 0 ? row.time : content->first_time;
        content->last_time = row.time;
        content->last_step = SONDE_MAX(content->last_step, row.step);
    }
    content->ends += rows;
    free(bytes);
}

void run_read_sketches(const char *folder, const char *name, bool part,
                       run_content *content)
{
    size_t size = 0, at = SONDE__SKETCH_HEAD;
    char *bytes = run_load(folder, name, &size);

    if (size >= at) {
        assert_memory_equal(bytes, "SONDESK1\0\0\0\0\0\0\0\0", SONDE__SKETCH_HEAD);
    }
    while (at + SONDE__SKETCH_FIXED <= size) {
        const sonde__record_sketch_record *record = (const void *)(bytes + at);

        if (part && record->length > size - at) {
            break;
        }
        assert_true(sonde__record_sketch_valid(record, size - at));
        assert_int_equal(record->check, sonde__record_sketch_check(record));
        if (content->sketch != NULL) {
            content->sketch(content->user, record);
        }
        content->sketches++;
        at += record->length;
    }
    assert_true(part || at == size);
    free(bytes);
}

json_t *run_names(const char *folder)
{
    size_t size = 0;
    char *text = run_load(folder, SONDE__CATALOGUE_FILE, &size), *end = NULL;
    json_t *names = json_array();

    for (char *at = text; at != NULL && (end = strchr(at, '\n')) != NULL; at = end + 1) {
        json_t *line = json_loadb(at, (size_t)(end - at), JSON_REJECT_DUPLICATES, NULL);

        assert_true(json_is_object(line));
        assert_int_equal(json_integer_value(json_object_get(line, "id")),
                         json_array_size(names));
        json_array_append(names, json_object_get(line, "name"));
        json_decref(line);
    }
    free(text);
    return names;
}

void run_read(const char *run, int rank, run_content *content)
{
    struct dirent **entries = NULL;
    char folder[RUN_PATH], worker[SONDE__FILE_NAME];
    json_t *names = NULL;
    int count = 0;

    sonde__record_worker_folder(worker, rank);
    (void)run_file(folder, run, worker);
    content->values = content->ends = content->rows = content->sketches = 0;
    content->closed = content->parts = content->bytes = 0;
    content->last_step = -1;
    content->first_time = content->last_time = 0;
    names = run_names(folder);
    count = scandir(folder, &entries, NULL, alphasort);
    assert_true(count >= 0);
    for (int i = 0; i < count; i++) { /* what is told to be complete is there then */
        uint64_t number = 0;
        bool part = false;

        if (sonde__record_file_parse(entries[i]->d_name, &number, &part) ==
            SONDE__FILE_STEPS) {
            run_read_steps(folder, entries[i]->d_name, part, content);
        }
    }
    for (int i = 0; i < count; i++) {
        const char *name = entries[i]->d_name;
        uint64_t number = 0;
        bool part = false;
        const sonde__record_file_kind kind =
            sonde__record_file_parse(name, &number, &part);

        if (kind == SONDE__FILE_SEGMENT) {
            run_read_segment(folder, name, number, part, names, content);
        } else if (kind == SONDE__FILE_STATS) {
            run_read_stats(folder, name, part, content);
        } else if (kind == SONDE__FILE_SKETCH) {
            run_read_sketches(folder, name, part, content);
        }
        if (kind != SONDE__FILE_OTHER && kind != SONDE__FILE_INDEX) {
            *(part ? &content->parts : &content->closed) += 1;
        }
        free(entries[i]);
    }
    free(entries);
    json_decref(names);
}
