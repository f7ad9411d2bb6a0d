/*
 * data_files.h - files that the tests of the data room make for themselves, in a folder
 * of their own under /tmp that goes away with them.
 */
#ifndef SONDE_TESTS_NN_DATA_FILES_H
#define SONDE_TESTS_NN_DATA_FILES_H

#include "alloc_failure.h"
#include "cmocka_all.h"

#include "nn/data/files.h"
#include <sonde/nn/dataset.h>

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { DATA_PATH = 512 };

extern char data_folder[DATA_PATH - 128];

/* As cmocka's group set-up and tear-down. */
int data_folder_make(void **state);

int data_folder_remove(void **state);

/* The path of a file in the folder; one of four buffers in turn. */
char *data_path(const char *name);

void data_write(const char *path, const void *bytes, size_t size);

/* The whole file; the caller frees it. */
unsigned char *data_read(const char *path, size_t *size);

/* uint8 images (count, 28, 28) or labels (count) that differ from each other. */
void data_write_images(const char *path, int64_t count, bool gzip);

void data_write_labels(const char *path, int64_t count, int classes, bool gzip);

/* A PNG whose pixel (c, y, x) is base + c + y + x. */
void data_write_png(const char *path, int channels, int height, int width, int base);

/* Runs attempt(user), which cleans up after itself, with room for 0, 1, 2 ... allocations
 * until it succeeds. Returns how many it needs; fails the test on any other error or a
 * leak. */
int data_fail_allocations(sonde_err (*attempt)(void *user), void *user);

#endif
