/*
 * describe.c - what a trial says about its run, its workers and its tensors.
 */
#include "trial/trial_state.h"
#include "base/macros.h"
#include "base/names.h"

static const char *or_empty(const char *text)
{
    return text != NULL ? text : "";
}

static int64_t last_step_of(const sonde_trial *trial)
{
    const sonde__trial_steps *steps = &trial->steps;
    const size_t count = steps->sorted_count[SONDE_MODE_GLOBAL];
    const int64_t last =
        count > 0 ? sonde__trial_steps_at(steps, SONDE_MODE_GLOBAL, count - 1) : -1;

    return SONDE_MIN(last, trial->last_complete);
}

static uint64_t count_of(const sonde__trial_worker *worker, sonde__trial_kind kind)
{
    return worker->stores[kind].count - worker->stores[kind].superseded;
}

/* When the last of the workers that ended a step did; 0: none, or nobody knows. */
static int64_t time_of(const sonde_trial *trial, uint32_t step, int rank)
{
    int64_t time = 0;

    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        if ((rank < 0 || worker->rank == rank) &&
            sonde__trial_worker_has_ended(worker, step) &&
            worker->ended[step] != SONDE__NO_TIME) {
            time = SONDE_MAX(time, worker->ended[step]);
        }
    }
    return time;
}

bool sonde_trial_step_time(const sonde_trial *trial, sonde_mode mode, int64_t step,
                           int worker, int64_t *time)
{
    const sonde__trial_steps *steps = &trial->steps;
    int64_t found = 0;

    if ((unsigned)mode >= SONDE_MODE_COUNT) {
        return false;
    }
    for (size_t place = sonde__trial_steps_lower(steps, mode, step);
         place < steps->sorted_count[mode] &&
         sonde__trial_steps_at(steps, mode, place) == step;
         place++) {
        found = SONDE_MAX(found, time_of(trial, steps->sorted[mode][place], worker));
    }
    if (found == 0) {
        return false;
    }
    *time = found;
    return true;
}

/* Of the first and the last step that has one. */
static void find_times(const sonde_trial *trial, sonde_run_info *info)
{
    const uint32_t *sorted = trial->steps.sorted[SONDE_MODE_GLOBAL];
    const size_t count = trial->steps.sorted_count[SONDE_MODE_GLOBAL];

    if (trial->smdebug != NULL) {
        return;
    }
    for (size_t i = 0; i < count && info->first_time == 0; i++) {
        info->first_time = time_of(trial, sorted[i], -1);
    }
    for (size_t i = count; i > 0 && info->last_time == 0; i--) {
        info->last_time = time_of(trial, sorted[i - 1], -1);
    }
}

bool sonde_trial_resume(const sonde_trial *trial, size_t i, sonde_trial_resumed *out)
{
    for (size_t w = 0; w < trial->worker_count; w++) {
        const sonde__trial_worker *worker = trial->workers[w];

        if (i < worker->generation_count) {
            *out = (sonde_trial_resumed){.worker = worker->rank,
                                         .step = worker->generations[i].step,
                                         .time = worker->generations[i].time};
            return true;
        }
        i -= worker->generation_count;
    }
    return false;
}

bool sonde_trial_went_back(const sonde_trial *trial, size_t *seen, int64_t *step)
{
    int64_t least = INT64_MAX;

    for (size_t i = *seen; i < trial->cut_count; i++) {
        least = SONDE_MIN(least, trial->cuts[i]);
    }
    *seen = trial->cut_count;
    if (least == INT64_MAX) {
        return false;
    }
    *step = least;
    return true;
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
        .foreign = trial->smdebug != NULL,
        .seconds = -1.0,
    };
    if (trial->ended && trial->ended_at >= 0.0 &&
        sonde__trial_seconds_of(trial->created) >= 0.0) {
        info->seconds = trial->ended_at - sonde__trial_seconds_of(trial->created);
    }
    for (size_t i = 0; i < trial->worker_count; i++) {
        const sonde__trial_worker *worker = trial->workers[i];

        info->records += count_of(worker, SONDE__RAW);
        info->rows += count_of(worker, SONDE__VITALS);
        info->sketches += count_of(worker, SONDE__SKETCH);
        info->lost += worker->lost;
        info->superseded += worker->superseded;
        info->superseded_steps += worker->superseded_steps;
        info->resumed = info->resumed || worker->generation_count > 0;
    }
    find_times(trial, info);
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

    return sonde__names_find(&trial->members, sonde__trial_member_key(
                                                  id, collection, key)) != SONDE__NO_NAME;
}
