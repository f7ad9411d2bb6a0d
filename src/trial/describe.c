/*
 * describe.c - what a trial says about its run, its workers and its tensors.
 */
#include "trial/trial_state.h"

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static int64_t last_step_of(const sonde_trial *trial)
{
    const sonde__steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];
    const int64_t last =
        count > 0 ? sonde__steps_at(steps, SONDE_MODE_GLOBAL, count - 1) : -1;

    return SONDE_MIN(last, trial->last_complete);
}

void sonde_trial_describe(const sonde_trial *trial, sonde_run_info *info)
{
    *info = (sonde_run_info){
        .path = trial->path,
        .id = or_empty(trial->id),
        .program = or_empty(trial->program),
        .model = or_empty(trial->model),
        .created = or_empty(trial->created),
        .end_reason = or_empty(trial->end_reason),
        .end_text = or_empty(trial->end_text),
        .status = trial->status,
        .world = trial->world,
        .workers = (int)trial->worker_count,
        .last_step = last_step_of(trial),
        .bytes = trial->bytes,
        .resumed = trial->resumed,
        .foreign = trial->smdebug != NULL,
        .seconds = -1.0,
    };
    if (trial->ended && trial->ended_at >= 0.0 &&
        sonde__seconds_of(trial->created) >= 0.0) {
        info->seconds = trial->ended_at - sonde__seconds_of(trial->created);
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__worker *worker = trial->workers[i];

        info->records += worker->stores[SONDE__RAW].count;
        info->rows += worker->stores[SONDE__VITALS].count;
        info->sketches += worker->stores[SONDE__SKETCH].count;
        info->lost += worker->lost;
    }
}

int sonde_trial_worker(const sonde_trial *trial, size_t i)
{
    return i < trial->worker_count ? trial->workers[i]->rank : -1;
}

const char *sonde_trial_worker_name(const sonde_trial *trial, size_t i)
{
    return i < trial->worker_count ? trial->workers[i]->name : NULL;
}

const sonde_catalogue *sonde_trial_catalogue(const sonde_trial *trial)
{
    return trial->catalogue;
}

const char *sonde_trial_collection(const sonde_trial *trial, size_t i)
{
    return i < trial->collections.count ? trial->collections.text[i] : NULL;
}

bool sonde_trial_in_collection(const sonde_trial *trial, uint32_t id,
                               const char *collection)
{
    char key[SONDE__MEMBER];

    return sonde__names_find(&trial->members, sonde__member_key(id, collection, key)) !=
           SONDE__NO_NAME;
}
