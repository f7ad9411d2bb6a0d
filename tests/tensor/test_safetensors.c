/*
 * test_safetensors.c - writing, reading back, and refusing what is not a safetensors
 * file.
 *
 * With arguments it is the tool of safetensors_tool.h.
 */
#include "alloc_failure.h"
#include "cmocka_all.h"
#include "safetensors_tool.h"

#include "base/macros.h"
#include "tensor/convert.h"

#include <sonde/error.h>
#include <sonde/safetensors.h>
#include <sonde/stats.h>

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <dirent.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* --- a folder of the test's own --------------------------------------------------- */

static char folder[64];

static const char *in_folder(const char *name)
{
    static char path[512];

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    return path;
}

static int make_folder(void **state)
{
    (void)state;
    (void)snprintf(folder, sizeof folder, "/tmp/sonde-safetensors-XXXXXX");
    return mkdtemp(folder) != NULL ? 0 : -1;
}

/* The libraries' fsync as well. Counts its calls, and those before the file appeared. */
static const char *watched;
static int syncs, early;

__attribute__((visibility("default"))) int
fsync(int fd) /* NOLINT(bugprone-reserved-identifier,cert-dcl37-c,cert-dcl51-cpp) */
{
    syncs++;
    early += watched != NULL && access(watched, F_OK) != 0 ? 1 : 0;
    return (int)syscall(SYS_fsync, fd);
}

/* How many files the folder holds; removes them if asked to. */
static int count_files(bool and_remove)
{
    DIR *dir = opendir(folder);
    const struct dirent *file = NULL;
    int count = 0;

    assert_non_null(dir);
    while ((file = readdir(dir)) != NULL) {
        if (strcmp(file->d_name, ".") != 0 && strcmp(file->d_name, "..") != 0) {
            count++;
            if (and_remove) {
                (void)unlink(in_folder(file->d_name));
            }
        }
    }
    (void)closedir(dir);
    return count;
}

static int remove_folder(void **state)
{
    (void)state;
    (void)count_files(true);
    return rmdir(folder);
}

/* --- writing and reading back ----------------------------------------------------- */

static void every_dtype_comes_back(void **state)
{
    static _Alignas(16) unsigned char data[SONDE_DTYPE_COUNT][6 * 16];
    static const int64_t shape[] = {2, 3};
    sonde_named_view tensors[SONDE_DTYPE_COUNT];
    const sonde_metadata metadata[] = {{"format", "pt"},
                                       {"quote\"\n", "back\\slash \xC3\xA9"}};
    sonde_safetensors *file = NULL;
    size_t last_size = 16;

    (void)state;
    for (int d = 0; d < SONDE_DTYPE_COUNT; d++) {
        const sonde_dtype dtype = (sonde_dtype)d;

        for (size_t i = 0; i < 6; i++) {
            sonde_element_set(dtype, data[d] + i * sonde_dtype_size(dtype), (double)i);
        }
        tensors[d].name = sonde_dtype_name(dtype);
        tensors[d].view = sonde_view_of(dtype, 2, shape, data[d]);
    }
    assert_int_equal(sonde_safetensors_write(in_folder("all"), tensors, SONDE_DTYPE_COUNT,
                                             metadata, 2, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("all"), &file, NULL), SONDE_OK);
    assert_int_equal(sonde_safetensors_count(file), SONDE_DTYPE_COUNT);
    for (size_t i = 0; i < SONDE_DTYPE_COUNT; i++) {
        const sonde_view *view = sonde_safetensors_view(file, i);
        const size_t size = sonde_dtype_size(view->dtype);

        assert_string_equal(sonde_safetensors_name(file, i),
                            sonde_dtype_name(view->dtype));
        assert_ptr_equal(sonde_safetensors_find(file, sonde_dtype_name(view->dtype)),
                         view);
        assert_true(view->rank == 2 && view->shape[0] == 2 && view->shape[1] == 3);
        assert_memory_equal(view->data, data[view->dtype], 6 * size);
        assert_true(size <= last_size); /* wide ones first, and all aligned */
        assert_int_equal((uintptr_t)view->data % SONDE_MIN(size, (size_t)8), 0);
        last_size = size;
    }
    assert_string_equal(sonde_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(sonde_safetensors_metadata(file, "quote\"\n"),
                        "back\\slash \xC3\xA9");
    assert_null(sonde_safetensors_metadata(file, "none"));
    assert_null(sonde_safetensors_find(file, "none"));
    assert_null(sonde_safetensors_name(file, SONDE_DTYPE_COUNT));
    assert_null(sonde_safetensors_view(file, SONDE_DTYPE_COUNT));
    sonde_safetensors_destroy(file);
    assert_int_equal(count_files(true), 1);
}

/* A transposed view large enough for several buffers, a scalar, an empty tensor, an odd
 * name; in the order given. */
static void strided_and_empty_views_are_written_dense(void **state)
{
    enum { ROWS = 300, COLUMNS = 500 };
    static float matrix[COLUMNS][ROWS];
    static const int64_t shape[] = {ROWS, COLUMNS}, none[] = {3, 0};
    float scalar = 42.0F;
    sonde_named_view tensors[3] = {
        {"a/b.c:0", sonde_view_of(SONDE_F32, 2, shape, matrix)},
        {"empty", sonde_view_of(SONDE_F32, 2, none, NULL)},
        {"", sonde_view_of(SONDE_F32, 0, NULL, &scalar)}};
    sonde_safetensors *file = NULL;
    const sonde_view *view = NULL;

    (void)state;
    tensors[0].view.stride[0] = 1;
    tensors[0].view.stride[1] = ROWS;
    for (int c = 0; c < COLUMNS; c++) {
        for (int r = 0; r < ROWS; r++) {
            matrix[c][r] = (float)(r * COLUMNS + c);
        }
    }
    assert_int_equal(sonde_safetensors_write(in_folder("odd"), tensors, 3, NULL, 0, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("odd"), &file, NULL), SONDE_OK);
    view = sonde_safetensors_find(file, "a/b.c:0");
    for (int i = 0; i < ROWS * COLUMNS; i++) {
        assert_true(((const float *)view->data)[i] == (float)i);
    }
    assert_int_equal(sonde_view_count(sonde_safetensors_find(file, "empty")), 0);
    view = sonde_safetensors_find(file, "");
    assert_true(view->rank == 0 && *(const float *)view->data == 42.0F);
    assert_string_equal(sonde_safetensors_name(file, 0), "a/b.c:0");
    sonde_safetensors_destroy(file);
    assert_int_equal(sonde_safetensors_write(in_folder("odd"), NULL, 0, NULL, 0, NULL),
                     SONDE_OK);
    assert_int_equal(sonde_safetensors_open(in_folder("odd"), &file, NULL), SONDE_OK);
    assert_int_equal(sonde_safetensors_count(file), 0);
    sonde_safetensors_destroy(file);
    assert_int_equal(count_files(true), 1);
}

static void a_refused_write_leaves_nothing(void **state)
{
    float x[2] = {1, 2};
    static const int64_t shape[] = {2};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, x);
    const sonde_named_view twice[] = {{"w", view}, {"v", view}, {"w", view}};
    const sonde_named_view reserved[] = {{"__metadata__", view}};
    static const char *const not_text[] = {"\xFF",
                                           "\xC3",
                                           "\xC0\x80",
                                           "\xED\xA0\x80",
                                           "\xF5\x80\x80\x80",
                                           "\xE2\x82",
                                           "\xF0\x8F\xBF\xBF"};
    sonde_named_view one[] = {{"w", view}};
    const sonde_metadata keys[] = {{"k", "1"}, {"k", "2"}};
    const char *path = in_folder("refused");
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_safetensors_write(path, twice, 3, NULL, 0, &diag),
                     SONDE_EINVAL);
    assert_non_null(strstr(diag.found, "'w'"));
    assert_int_equal(sonde_safetensors_write(path, reserved, 1, NULL, 0, &diag),
                     SONDE_EINVAL);
    assert_int_equal(sonde_safetensors_write(path, one, 1, keys, 2, &diag), SONDE_EINVAL);
    for (size_t i = 0; i < SONDE_COUNT_OF(not_text); i++) {
        one[0].name = not_text[i];
        assert_int_equal(sonde_safetensors_write(path, one, 1, NULL, 0, &diag),
                         SONDE_EINVAL);
        assert_string_equal(diag.expected, "UTF-8");
    }
    one[0].name = "w";
    one[0].view.dtype = (sonde_dtype)50;
    assert_int_equal(sonde_safetensors_write(path, one, 1, NULL, 0, &diag), SONDE_EINVAL);
    one[0].view = view;
    one[0].view.shape[0] = -1;
    assert_int_equal(sonde_safetensors_write(path, one, 1, NULL, 0, &diag), SONDE_EINVAL);
    one[0].view = view;
    assert_int_equal(sonde_safetensors_write(in_folder("none/x"), one, 1, NULL, 0, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(count_files(false), 0);
}

/* A folder in the way cannot be replaced. The old file stays. */
static void a_failed_write_keeps_what_was_there(void **state)
{
    float x[2] = {1, 2};
    static const int64_t shape[] = {2};
    const sonde_named_view one[] = {{"w", sonde_view_of(SONDE_F32, 1, shape, x)}};
    sonde_diag diag = {0};
    struct stat about;

    (void)state;
    assert_int_equal(mkdir(in_folder("way"), 0777), 0);
    assert_int_equal(sonde_safetensors_write(in_folder("way"), one, 1, NULL, 0, &diag),
                     SONDE_EIO);
    assert_non_null(strstr(diag.where, "way"));
    assert_int_equal(count_files(false), 1);
    assert_int_equal(rmdir(in_folder("way")), 0);
    assert_int_equal(sonde_safetensors_write(in_folder("kept"), one, 1, NULL, 0, NULL),
                     SONDE_OK);
    for (size_t n = 0;; n++) { /* every allocation of a second write fails once */
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_safetensors_write(in_folder("kept"), one, 1, NULL, 0, NULL);
        assert_int_equal(alloc_failure_end(), 0);
        assert_int_equal(count_files(false), 1);
        assert_int_equal(stat(in_folder("kept"), &about), 0);
        if (err == SONDE_OK) {
            assert_true(n > 3);
            break;
        }
        assert_int_equal(err, SONDE_ENOMEM);
    }
    assert_int_equal(count_files(true), 1);
}

/* --- refusing --------------------------------------------------------------------- */

/* A file of this header and so many bytes of data. Returns its size. */
static size_t compose(unsigned char *bytes, const char *header, size_t data)
{
    const uint64_t length = strlen(header);

    memcpy(bytes, &length, 8);
    memcpy(bytes + 8, header, length);
    memset(bytes + 8 + length, 0, data);
    return 8 + length + data;
}

typedef struct refusal {
    const char *header;
    size_t data;
    sonde_err err;
    const char *said; /* part of found */
} refusal;

#define W(rest) "{\"w\":{" rest "}}"
#define OFFSETS "\"data_offsets\":[0,8]"

static const refusal refusals[] = {
    {"", 0, SONDE_EFORMAT, "header byte"},
    {"[]", 0, SONDE_EFORMAT, "another kind"},
    {"{", 0, SONDE_EFORMAT, "header byte"},
    {"{} x", 0, SONDE_EFORMAT, "header byte"},
    {"{}", 1, SONDE_EFORMAT, "1 bytes of data belong to no tensor"},
    {"{\"w\":1}", 0, SONDE_EFORMAT, "another kind"},
    {"{\"__metadata__\":1}", 0, SONDE_EFORMAT, "__metadata__"},
    {"{\"__metadata__\":{\"a\":1}}", 0, SONDE_EFORMAT, "'a'"},
    {W("\"shape\":[2]," OFFSETS), 8, SONDE_EFORMAT, "dtype"},
    {W("\"dtype\":7,\"shape\":[2]," OFFSETS), 8, SONDE_EFORMAT, "dtype"},
    {W("\"dtype\":\"F8_E8M0\",\"shape\":[8]," OFFSETS), 8, SONDE_EUNSUPPORTED, "F8_E8M0"},
    {W("\"dtype\":\"f32\",\"shape\":[2]," OFFSETS), 8, SONDE_EUNSUPPORTED, "f32"},
    {W("\"dtype\":\"F32\"," OFFSETS), 8, SONDE_EFORMAT, "shape"},
    {W("\"dtype\":\"F32\",\"shape\":2," OFFSETS), 8, SONDE_EFORMAT, "shape"},
    {W("\"dtype\":\"F32\",\"shape\":[2.0]," OFFSETS), 8, SONDE_EFORMAT, "dimension 0"},
    {W("\"dtype\":\"F32\",\"shape\":[1,-2]," OFFSETS), 8, SONDE_EFORMAT, "dimension 1"},
    {W("\"dtype\":\"F32\",\"shape\":[99999999999999999999]," OFFSETS), 8, SONDE_EFORMAT,
     "header byte"},
    {W("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4]," OFFSETS), 8, SONDE_EFORMAT,
     "too large"},
    {W("\"dtype\":\"F32\",\"shape\":[4611686018427387904,4,0],\"data_offsets\":[0,0]"), 0,
     SONDE_EFORMAT, "too large"},
    {W("\"dtype\":\"F32\",\"shape\":[1,1,1,1,1,1,1,1,2]," OFFSETS), 8, SONDE_EUNSUPPORTED,
     "9 dimensions"},
    {W("\"dtype\":\"F32\",\"shape\":[2]"), 8, SONDE_EFORMAT, "data_offsets"},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8,9]"), 8, SONDE_EFORMAT,
     "data_offsets"},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[8,0]"), 8, SONDE_EFORMAT,
     "8 to 0"},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]"), 8, SONDE_EFORMAT,
     "data_offsets"},
    {W("\"dtype\":\"F32\",\"shape\":[2]," OFFSETS), 7, SONDE_EFORMAT, "0 to 8"},
    {W("\"dtype\":\"F32\",\"shape\":[3]," OFFSETS), 8, SONDE_EFORMAT, "8 bytes of data"},
    {W("\"dtype\":\"F32\",\"shape\":[2]," OFFSETS), 12, SONDE_EFORMAT, "4 bytes"},
    {W("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]"), 12, SONDE_EFORMAT,
     "begins at 4"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
     "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
     6, SONDE_EFORMAT, "begins at 2"},
    {"{\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[0,2]},"
     "\"a\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[2,4]}}",
     4, SONDE_EFORMAT, "header byte"},
};

static void damaged_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(refusals); i++) {
        unsigned char bytes[1024];
        const size_t size = compose(bytes, refusals[i].header, refusals[i].data);
        sonde_safetensors *file = NULL;
        sonde_diag diag = {0};

        assert_int_equal(sonde__safetensors_parse(bytes, size, "x.st", &file, &diag),
                         refusals[i].err);
        assert_null(file);
        assert_memory_equal(diag.where, "x.st", 4);
        assert_non_null(strstr(diag.found, refusals[i].said));
    }
}

static void a_header_may_nest_only_so_deep(void **state)
{
    enum { DEEP = 20000 };
    static char header[2 * DEEP + 16];
    static unsigned char bytes[2 * DEEP + 64];
    sonde_safetensors *file = NULL;
    sonde_diag diag = {0};

    (void)state;
    (void)snprintf(header, sizeof header, "{\"w\":");
    memset(header + 5, '[', DEEP);
    memset(header + 5 + DEEP, ']', DEEP);
    (void)snprintf(header + 5 + 2 * DEEP, 2, "}");
    assert_int_equal(
        sonde__safetensors_parse(bytes, compose(bytes, header, 0), "x", &file, &diag),
        SONDE_EFORMAT);
    assert_non_null(strstr(diag.found, "depth"));
}

/* Cut off anywhere, or with a length that lies, a good file is none. */
static void every_truncation_is_refused(void **state)
{
    unsigned char bytes[256];
    const char *header = W("\"dtype\":\"F32\",\"shape\":[2]," OFFSETS);
    const size_t size = compose(bytes, header, 8);
    static const uint64_t lies[] = {UINT64_MAX, INT64_MAX, 100000001, 0, 3};
    sonde_safetensors *file = NULL;

    (void)state;
    for (size_t cut = 0; cut < size; cut++) {
        assert_int_equal(sonde__safetensors_parse(bytes, cut, "x", &file, NULL),
                         SONDE_EFORMAT);
    }
    assert_int_equal(sonde__safetensors_parse(bytes, size, "x", &file, NULL), SONDE_OK);
    sonde_safetensors_destroy(file);
    for (size_t i = 0; i < SONDE_COUNT_OF(lies); i++) {
        memcpy(bytes, &lies[i], 8);
        assert_int_equal(sonde__safetensors_parse(bytes, size, "x", &file, NULL),
                         SONDE_EFORMAT);
    }
}

static void what_is_no_file_is_refused(void **state)
{
    sonde_safetensors *file = NULL;
    sonde_diag diag = {0};
    FILE *empty = fopen(in_folder("empty"), "w");

    (void)state;
    assert_non_null(empty);
    (void)fclose(empty);
    assert_int_equal(sonde_safetensors_open(in_folder("empty"), &file, &diag),
                     SONDE_EFORMAT);
    assert_int_equal(sonde_safetensors_open(in_folder("none"), &file, &diag),
                     SONDE_ENOTFOUND);
    assert_int_equal(sonde_safetensors_open(folder, &file, &diag), SONDE_EFORMAT);
    assert_string_equal(diag.found, "is a folder");
    assert_int_equal(sonde_safetensors_open("/dev/null", &file, &diag), SONDE_EFORMAT);
    assert_string_equal(diag.found, "is a pipe or device");
    assert_int_equal(count_files(true), 1);
    sonde_safetensors_destroy(NULL);
}

/* Tensors need not stand in the header in the order of their data, nor be aligned. */
/* Another format is named, a header of that length is still read. */
static void other_formats_are_named(void **state)
{
    static const struct {
        const char *bytes;
        size_t size;
        const char *found;
    } cases[] = {
#define CASE(bytes, found) {bytes, sizeof(bytes) - 1, found}
        CASE("\x89PNG\r\n\x1A\n\0", "a PNG picture"),
        CASE("\xFF\xD8\xFF\xE0\0\x10JFIF", "a JPEG picture"),
        CASE("GIF89a\1\0\1", "a GIF picture"),
        CASE("PK\3\4\0\0\10\0\0\0\0\0word/x", "a ZIP archive"),
        CASE("PK\3\4\0\0\10\0\0\0\0\0archive/data.pkl", "a pickle of PyTorch"),
        CASE("\x80\2\x8A\nl\xFC\x9C\x46\xF9", "a pickle of PyTorch"),
        CASE("\x1F\x8B\10\0\0\0\0\0\2\3", "a gzip file"),
        CASE("\x28\xB5\x2F\xFD\4\0\x41\0\0", "a zstd file"),
        CASE("\x89HDF\r\n\x1A\n\0", "an HDF5 file"),
        CASE("GGUF\3\0\0\0\0", "a GGUF file"),
        CASE("\x93NUMPY\1\0v", "a NumPy array"),
        CASE("model:\n  input: [1]\n", "a text file"),
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        enum { LARGE = 3 << 20 }; /* for the header that gzip's first bytes would mean */
        char *bytes = calloc(1, LARGE);
        sonde_safetensors *file = NULL;
        sonde_diag diag = {0};

        assert_non_null(bytes);
        memcpy(bytes, cases[i].bytes, cases[i].size);
        assert_int_equal(sonde__safetensors_parse(bytes, LARGE, "x", &file, &diag),
                         SONDE_EFORMAT);
        if (strstr(diag.found, cases[i].found) == NULL) {
            fail_msg("'%s' is not '%s'", diag.found, cases[i].found);
        }
        bytes[8] = '{';
        assert_int_equal(sonde__safetensors_parse(bytes, LARGE, "x", &file, &diag),
                         SONDE_EFORMAT);
        assert_non_null(strstr(diag.found, "header"));
        free(bytes);
    }
}

static void order_and_alignment_are_free(void **state)
{
    static const char header[] =
        "{\"late\":{\"dtype\":\"F64\",\"shape\":[1],\"data_offsets\":[3,11]},"
        "\"none\":{\"dtype\":\"F64\",\"shape\":[0],\"data_offsets\":[3,3]},"
        "\"early\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3],\"more\":1}}  "
        " ";
    _Alignas(8) unsigned char bytes[512];
    const size_t size = compose(bytes, header, 11);
    const double value = 2.5;
    sonde_safetensors *file = NULL;
    sonde_vitals vitals;

    (void)state;
    memcpy(bytes + size - 8, &value, 8);
    assert_int_equal(sonde__safetensors_parse(bytes, size, "x", &file, NULL), SONDE_OK);
    assert_string_equal(sonde_safetensors_name(file, 0), "early");
    assert_string_equal(sonde_safetensors_name(file, 1), "none");
    assert_string_equal(sonde_safetensors_name(file, 2), "late");
    assert_ptr_equal(sonde_safetensors_view(file, 2)->data, bytes + size - 8);
    sonde_vitals_of(sonde_safetensors_view(file, 2), &vitals);
    assert_true(vitals.count == 1 && vitals.mean == 2.5);
    sonde_safetensors_destroy(file);
}

static void opening_survives_every_failed_allocation(void **state)
{
    float x[2] = {1, 2};
    static const int64_t shape[] = {2};
    const sonde_view view = sonde_view_of(SONDE_F32, 1, shape, x);
    const sonde_named_view two[] = {{"v", view}, {"w", view}};
    const sonde_metadata metadata[] = {{"a", "b"}};

    (void)state;
    assert_int_equal(sonde_safetensors_write(in_folder("f"), two, 2, metadata, 1, NULL),
                     SONDE_OK);
    for (size_t n = 0;; n++) {
        sonde_safetensors *file = NULL;
        sonde_err err = SONDE_OK;

        alloc_failure_begin(n);
        err = sonde_safetensors_open(in_folder("f"), &file, NULL);
        sonde_safetensors_destroy(file);
        assert_int_equal(alloc_failure_end(), 0);
        if (err == SONDE_OK) {
            assert_true(n > 4);
            break;
        }
        assert_null(file);
        assert_int_equal(err, SONDE_ENOMEM);
    }
    assert_int_equal(count_files(true), 1);
}

static void it_is_synced_before_it_is_in_place(void **state)
{
    float one = 1.0F;
    const sonde_named_view tensor = {"x", sonde_view_of(SONDE_F32, 0, NULL, &one)};
    char path[512];

    (void)state;
    (void)snprintf(path, sizeof path, "%s", in_folder("synced"));
    watched = path;
    syncs = early = 0;
    assert_int_equal(sonde_safetensors_write(path, &tensor, 1, NULL, 0, NULL), SONDE_OK);
    watched = NULL;
    assert_int_equal(early, 1); /* the file */
    assert_int_equal(syncs, 2); /* and then its folder */
    (void)count_files(true);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_comes_back),
        cmocka_unit_test(strided_and_empty_views_are_written_dense),
        cmocka_unit_test(a_refused_write_leaves_nothing),
        cmocka_unit_test(a_failed_write_keeps_what_was_there),
        cmocka_unit_test(damaged_files_are_refused),
        cmocka_unit_test(a_header_may_nest_only_so_deep),
        cmocka_unit_test(every_truncation_is_refused),
        cmocka_unit_test(what_is_no_file_is_refused),
        cmocka_unit_test(other_formats_are_named),
        cmocka_unit_test(order_and_alignment_are_free),
        cmocka_unit_test(opening_survives_every_failed_allocation),
        cmocka_unit_test(it_is_synced_before_it_is_in_place),
    };

    if (argc > 1) {
        return use_as_tool(argc, argv);
    }
    return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
