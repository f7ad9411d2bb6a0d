/* run_folder.c - the helpers that run_folder.h declares. */
#include "trial/run_folder.h"

char test_folder[64], test_run[128];

int remove_entry(const char *path, const struct stat *about, int type, struct FTW *walk)
{
    (void)about;
    (void)type;
    (void)walk;
    return remove(path);
}

int folder_make(void **state)
{
    (void)state;
    (void)snprintf(test_folder, sizeof test_folder, "/tmp/sonde-trial-XXXXXX");
    if (mkdtemp(test_folder) == NULL) {
        return -1;
    }
    (void)snprintf(test_run, sizeof test_run, "%s/run", test_folder);
    return 0;
}

int folder_remove(void **state)
{
    (void)state;
    return nftw(test_folder, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

float known_element(int t, int64_t global, int lane, int i)
{
    return (float)(t * 1000 + i) + (float)global * 0.25F - (float)lane * 8.0F;
}

sonde_view known_value(int t, int64_t global, int lane, float data[KNOWN_COUNT])
{
    for (int i = 0; i < KNOWN_COUNT; i++) {
        data[i] = known_element(t, global, lane, i);
    }
    return t == 2 ? sonde_view_of(SONDE_F32, 0, NULL, data)
                  : sonde_view_of(SONDE_F32, 2, known_shape, data);
}

void known_declare(writer *w)
{
    (void)writer_tensor(w, known_names[0], "weight", SONDE_F32, 2, known_shape,
                        "weights");
    (void)writer_tensor(w, known_names[1], "bias", SONDE_F32, 2, known_shape, "biases");
    (void)writer_tensor(w, known_names[2], "loss", SONDE_F32, 0, NULL, "losses");
}

void known_put(writer *w, sonde_coordinate at, int t, sonde__record_packing packing)
{
    float data[KNOWN_COUNT];
    const sonde_view view =
        known_value(t, at.global_step, at.micro_batch * 10 + at.replica, data);

    writer_put(w, at, (uint32_t)t, &view, packing);
}

void known_put_row(writer *w, sonde_coordinate at, int t)
{
    float data[KNOWN_COUNT];
    const sonde_view view =
        known_value(t, at.global_step, at.micro_batch * 10 + at.replica, data);
    sonde_vitals vitals;

    sonde_vitals_of(&view, &vitals);
    writer_row(w, at, (uint32_t)t, &vitals);
}

void known_put_sketch(writer *w, sonde_coordinate at, int t)
{
    static sonde_sketch sketch;
    float data[KNOWN_COUNT];
    const sonde_view view =
        known_value(t, at.global_step, at.micro_batch * 10 + at.replica, data);

    sonde_sketch_init(&sketch);
    sonde_sketch_add(&sketch, &view);
    writer_sketch(w, at, (uint32_t)t, &sketch);
}

void known_step(writer *w, sonde_coordinate at)
{
    for (int t = 0; t < KNOWN_TENSORS; t++) {
        known_put_row(w, at, t);
    }
    known_put_sketch(w, at, 0);
    for (int t = 0; t < KNOWN_TENSORS; t++) {
        known_put(w, at, t, SONDE__PACKED_NOT);
    }
    writer_end_step(w, at);
}

sonde_coordinate known_at(int64_t global)
{
    return global % 4 == 3 ? writer_at(SONDE_MODE_EVAL, global, global / 4)
                           : writer_at(SONDE_MODE_TRAIN, global, global - global / 4);
}

sonde_trial *trial_opened(const char *path)
{
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    char line[SONDE_DIAG_LINE];

    if (sonde_trial_open(path, NULL, &trial, &diag) != SONDE_OK) {
        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    return trial;
}

sonde_trial_at trial_at(sonde_mode mode, int64_t step)
{
    return (sonde_trial_at){.mode = mode, .step = step, .worker = -1};
}

uint32_t trial_id(const sonde_trial *trial, const char *name)
{
    uint32_t id = 0;

    assert_int_equal(sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, NULL),
                     SONDE_OK);
    return id;
}

bool trial_refreshed(sonde_trial *trial)
{
    bool changed = false;

    assert_int_equal(sonde_trial_refresh(trial, &changed, NULL), SONDE_OK);
    return changed;
}

void assert_known(sonde_trial *trial, int t, int64_t global, int worker)
{
    const uint32_t id = trial_id(trial, known_names[t]);
    sonde_trial_at at = trial_at(SONDE_MODE_GLOBAL, global);
    sonde_diag diag = {0};
    sonde_view view;

    at.worker = worker;
    if (sonde_trial_value(trial, id, &at, &view, &diag) != SONDE_OK) {
        char line[SONDE_DIAG_LINE];

        fail_msg("%s", sonde_diag_line(&diag, line, sizeof line));
    }
    assert_int_equal(view.dtype, SONDE_F32);
    assert_int_equal(view.rank, t == 2 ? 0 : 2);
    for (int i = 0; i < (t == 2 ? 1 : KNOWN_COUNT); i++) {
        float x = 0.0F;

        memcpy(&x, (const unsigned char *)view.data + (size_t)i * sizeof x, sizeof x);
        assert_true(x == known_element(t, global, 0, i));
    }
}

size_t count_damage(const sonde_trial *trial)
{
    size_t n = 0;

    while (sonde_trial_damage(trial, n) != NULL) {
        n++;
    }
    return n;
}

void assert_damage(const sonde_trial *trial, const char *text)
{
    for (size_t i = 0; sonde_trial_damage(trial, i) != NULL; i++) {
        if (strstr(sonde_trial_damage(trial, i), text) != NULL) {
            return;
        }
    }
    for (size_t i = 0; sonde_trial_damage(trial, i) != NULL; i++) {
        print_message("damage: %s\n", sonde_trial_damage(trial, i));
    }
    fail_msg("no damage says '%s'", text);
}
