/*
 * run_folder.h - a folder for the runs of a test, removed with everything in it; a small
 * run with known values; asking a trial without ceremony.
 */
#ifndef SONDE_TESTS_TRIAL_RUN_FOLDER_H
#define SONDE_TESTS_TRIAL_RUN_FOLDER_H

#include "cmocka_all.h"
#include "trial/run_writer.h"

#include <sonde/trial.h>

#include <ftw.h>

extern char test_folder[64], test_run[128];

int remove_entry(const char *path, const struct stat *about, int type, struct FTW *walk);

/* Set-up and tear-down of one test: test_run is where its run goes. */
int folder_make(void **state);

int folder_remove(void **state);

/* --- a known run --------------------------------------------------------------------- */

enum { KNOWN_TENSORS = 3, KNOWN_COUNT = 6 };

static const char *const known_names[KNOWN_TENSORS] = {"fc1.weight", "fc1.bias", "loss"};
static const int64_t known_shape[2] = {2, 3};

/* Element i of tensor t at a global step; lane: micro-batch * 10 + replica. */
float known_element(int t, int64_t global, int lane, int i);

sonde_view known_value(int t, int64_t global, int lane, float data[KNOWN_COUNT]);

void known_declare(writer *w);

void known_put(writer *w, sonde_coordinate at, int t, sonde__record_packing packing);

void known_put_row(writer *w, sonde_coordinate at, int t);

void known_put_sketch(writer *w, sonde_coordinate at, int t);

/* A whole step: rows and sketches, then values, then its end. */
void known_step(writer *w, sonde_coordinate at);

/* Every fourth step is one of evaluation, the others are training. */
sonde_coordinate known_at(int64_t global);

/* --- asking --------------------------------------------------------------------------- */

sonde_trial *trial_opened(const char *path);

sonde_trial_at trial_at(sonde_mode mode, int64_t step);

uint32_t trial_id(const sonde_trial *trial, const char *name);

bool trial_refreshed(sonde_trial *trial);

/* Asserts that tensor t of the known run has its value at a global step. */
void assert_known(sonde_trial *trial, int t, int64_t global, int worker);

size_t count_damage(const sonde_trial *trial);

/* Asserts that one damage holds the text. */
void assert_damage(const sonde_trial *trial, const char *text);

#endif
