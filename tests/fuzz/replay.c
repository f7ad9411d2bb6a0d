/*
 * replay.c - runs one fuzzer over every file of a folder, in the order of their names.
 *
 *     replay_<what> FOLDER
 *
 * Each input is handed over in a block of exactly its size, so that a sanitizer sees the
 * first byte read beyond it. Before the files comes the empty input. A folder without
 * files is an error: a replay of nothing would always pass.
 *
 * On POSIX calls alone: it tests the libraries and must not lean on them.
 */
#include <dirent.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

/* The whole file in a new block of its size; NULL, and a line on stderr, if it cannot be.
 */
static uint8_t *read_whole(const char *path, size_t *size)
{
    FILE *const file = fopen(path, "rb");
    uint8_t *block = NULL;
    long length = -1;

    if (file != NULL && fseek(file, 0, SEEK_END) == 0) {
        length = ftell(file);
    }
    if (length >= 0 && fseek(file, 0, SEEK_SET) == 0) {
        block = malloc(length > 0 ? (size_t)length : 1);
    }
    if (block != NULL && fread(block, 1, (size_t)length, file) != (size_t)length) {
        free(block);
        block = NULL;
    }
    if (file != NULL) {
        (void)fclose(file);
    }
    if (block == NULL) {
        (void)fprintf(stderr, "error: %s: cannot be read\n", path);
        return NULL;
    }
    *size = (size_t)length;
    return block;
}

static bool replay(const char *folder, const char *name)
{
    char path[4096];
    size_t size = 0;
    uint8_t *data = NULL;

    (void)snprintf(path, sizeof path, "%s/%s", folder, name);
    data = read_whole(path, &size);
    if (data == NULL) {
        return false;
    }
    /* Said before, so that the last line names the input that crashed. */
    (void)printf("%s, %zu bytes\n", name, size);
    (void)fflush(stdout);
    (void)LLVMFuzzerTestOneInput(data, size);
    free(data);
    return true;
}

int main(int argc, char **argv)
{
    struct dirent **entries = NULL;
    bool ok = true;
    int count = 0;

    if (argc != 2) {
        (void)fprintf(stderr, "usage: %s FOLDER\n", argv[0]);
        return 2;
    }
    count = scandir(argv[1], &entries, is_visible, alphasort);
    if (count <= 0) {
        (void)fprintf(stderr, "error: %s: no files to replay\n", argv[1]);
        free(entries);
        return 1;
    }
    (void)LLVMFuzzerTestOneInput((const uint8_t *)"", 0);
    for (int i = 0; i < count; i++) {
        ok = replay(argv[1], entries[i]->d_name) && ok;
        free(entries[i]);
    }
    free(entries);
    return ok ? 0 : 1;
}
