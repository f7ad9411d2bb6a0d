/*
 * fuzz_hook.c - any bytes as a hook's configuration, Sonde's or smdebug's; one that is
 * read makes a step.
 */
#include <sonde/watch.h>

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* An error must say what it is. */
static void check(sonde_err err, const sonde_diag *diag)
{
    if (err != SONDE_OK && (diag->err != err || diag->found[0] == '\0')) {
        abort();
    }
}

static void step(sonde_watch *watch)
{
    static const char *const names[] = {"fc1.weight", "relu_output_0", "loss"};
    float value = 1.0F;
    const sonde_view view = sonde_view_of(SONDE_F32, 0, NULL, &value);
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;
    uint32_t id = 0;

    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        const sonde_tensor_info info = {.name = names[i],
                                        .role = SONDE_ROLE_OTHER,
                                        .dtype = SONDE_F32,
                                        .same_as = SONDE_NO_TENSOR};

        if (sonde_watch_add(watch, &info, &id, NULL) != SONDE_OK) {
            abort();
        }
    }
    err = sonde_watch_begin_step(watch, SONDE_MODE_TRAIN, &diag);
    check(err, &diag);
    if (err == SONDE_OK) {
        for (uint32_t i = 0; i <= id; i++) {
            sonde_watch_see(watch, i, &view);
        }
        sonde_watch_end_step(watch);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const sonde_hook_options dry = {.size = sizeof dry, .dry_run = true};
    sonde_hook *hook = NULL;
    sonde_watch *watch = NULL;
    sonde_diag diag = {0};
    const sonde_err err =
        sonde_hook_parse((const char *)data, size, "hook", NULL, &dry, &hook, &diag);

    check(err, &diag);
    if (err == SONDE_OK) {
        if (sonde_watch_create(SONDE_OPTIONS(sonde_watch, .hook = hook), &watch, NULL) !=
            SONDE_OK) {
            abort();
        }
        step(watch);
        (void)sonde_watch_close(watch, SONDE_RUN_FINISHED, NULL, NULL);
    }
    return 0;
}
