/*
 * job_demo.c - a job's section `demo`.
 */
#include "nn/job/job.h"
#include "base/fail.h"
#include "base/macros.h"

static sonde_err read_text(const sonde__yaml_reader *reader, const sonde__yaml *section,
                           const char *key, const char **out, sonde_err err)
{
    if (err != SONDE_OK) {
        return err;
    }
    return sonde__yaml_text(reader, section, key, out);
}

static sonde_err read_count(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            const char *key, int64_t *out, sonde_err err)
{
    if (err != SONDE_OK) {
        return err;
    }
    return sonde__yaml_int(reader, section, key, 0, INT32_MAX, out);
}

static sonde_err read_samples(const sonde__yaml_reader *reader,
                              const sonde__yaml *section, sonde_nn_demo *demo)
{
    static const char *const keys[] = {"train", "test"};
    sonde_err err = SONDE_OK;

    if (section == NULL) {
        return SONDE_OK;
    }
    err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));
    err = read_count(reader, section, "train", &demo->train, err);
    return read_count(reader, section, "test", &demo->test, err);
}

static sonde_err read_fault(const sonde__yaml_reader *reader, const sonde__yaml *section,
                            sonde_nn_demo *demo)
{
    static const char *const keys[] = {"scarce", "seeds", "gain",  "decay", "shuffled",
                                       "hole",   "alike", "twice", "frozen"};
    const struct {
        const char *key;
        bool *value;
    } flags[] = {{"shuffled", &demo->shuffled},
                 {"hole", &demo->hole},
                 {"alike", &demo->alike},
                 {"twice", &demo->twice}};
    sonde_err err = SONDE_OK;

    if (section == NULL) {
        return SONDE_OK;
    }
    err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));
    err = read_count(reader, section, "scarce", &demo->scarce, err);
    err = read_count(reader, section, "seeds", &demo->seeds, err);
    SONDE__TRY(read_text(reader, section, "frozen", &demo->frozen, err));
    SONDE__TRY(sonde__yaml_float(reader, section, "gain", &demo->gain));
    SONDE__TRY(sonde__yaml_float(reader, section, "decay", &demo->decay));
    for (size_t i = 0; i < SONDE_COUNT_OF(flags); i++) {
        SONDE__TRY(sonde__yaml_bool(reader, section, flags[i].key, flags[i].value));
    }
    return SONDE_OK;
}

sonde_err sonde__job_read_demo(const sonde__yaml_reader *reader,
                               const sonde__yaml *section, sonde_nn_demo *demo)
{
    static const char *const keys[] = {
        "what",        "why",       "repair", "rule",    "tensor", "plot", "statistic",
        "collections", "raw_every", "pair",   "samples", "fault",  "fixed"};
    const struct {
        const char *key;
        const char **value;
    } texts[] = {{"what", &demo->what},           {"why", &demo->why},
                 {"repair", &demo->repair},       {"rule", &demo->rule},
                 {"tensor", &demo->tensor},       {"plot", &demo->plot},
                 {"statistic", &demo->statistic}, {"collections", &demo->collections}};
    sonde_err err = sonde__yaml_check_keys(reader, section, keys, SONDE_COUNT_OF(keys));

    *demo = (sonde_nn_demo){.what = "", .why = "", .repair = "", .plot = "@losses"};
    for (size_t i = 0; i < SONDE_COUNT_OF(texts); i++) {
        err = read_text(reader, section, texts[i].key, texts[i].value, err);
    }
    SONDE__TRY(read_count(reader, section, "raw_every", &demo->raw_every, err));
    SONDE__TRY(sonde__yaml_bool(reader, section, "pair", &demo->pair));
    SONDE__TRY(read_samples(reader, sonde__yaml_get(section, "samples"), demo));
    return read_fault(reader, sonde__yaml_get(section, "fault"), demo);
}

const sonde_nn_demo *sonde_nn_job_get_demo(const sonde_nn_job *job)
{
    if (job == NULL) {
        return NULL;
    }
    return sonde__yaml_get(job->root, "demo") != NULL ? &job->demo : NULL;
}

/* No fault. */
static void clear_fault(sonde_nn_demo *demo)
{
    demo->scarce = demo->seeds = 0;
    demo->gain = demo->decay = 0.0F;
    demo->shuffled = demo->hole = demo->alike = demo->twice = false;
    demo->frozen = NULL;
}

sonde_err sonde_nn_job_fix_demo(sonde_nn_job *job, sonde_diag *diag)
{
    SONDE__NEEDS(diag, job);
    static const char *const keys[] = {"model",   "data",    "optimizer",
                                       "options", "samples", "fault"};
    const sonde__yaml_reader reader = {job->name, diag};
    const sonde__yaml *demo = sonde__yaml_get(job->root, "demo");
    const sonde__yaml *fixed = demo != NULL ? sonde__yaml_get(demo, "fixed") : NULL;
    sonde_err err = SONDE_OK;

    if (demo == NULL) {
        return sonde__fail(diag, SONDE_ESTATE, job->name, "a section demo",
                           "the job is not a demo");
    }
    clear_fault(&job->demo);
    if (fixed == NULL) {
        return SONDE_OK;
    }
    SONDE__TRY(sonde__yaml_check_keys(&reader, fixed, keys, SONDE_COUNT_OF(keys)));
    for (size_t i = 1; i <= 3; i++) { /* data, optimizer, options */
        const sonde__yaml *section = sonde__yaml_get(fixed, keys[i]);

        if (section != NULL) {
            err = sonde__job_read_options(&reader, section, &job->info);
        }
        if (err != SONDE_OK) {
            return err;
        }
    }
    if (sonde__yaml_get(fixed, "model") != NULL) {
        job->model = sonde__yaml_get(fixed, "model");
    }
    if (err != SONDE_OK) {
        return err;
    }
    SONDE__TRY(read_samples(&reader, sonde__yaml_get(fixed, "samples"), &job->demo));
    return read_fault(&reader, sonde__yaml_get(fixed, "fault"), &job->demo);
}
