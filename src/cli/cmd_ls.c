/*
 * cmd_ls.c - `sonde ls`: describes a run and lists its tensors.
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* --- the runs of a folder ----------------------------------------------------------- */

/* A run of a folder. */
typedef struct run_row {
    char *name, *path, *end_reason;
    const char *status, *shown; /* shown: for people */
    size_t steps;
    int64_t last_step;
} run_row;

typedef struct run_list {
    const char *folder;
    run_row *rows;
    size_t count;
    sonde_err err; /* SONDE_ENOMEM */
} run_list;

static void add_row(run_list *list, const char *name, sonde_trial *trial)
{
    run_row *more = realloc(list->rows, (list->count + 1) * sizeof *more);
    sonde_run_info info;
    size_t steps = 0;

    list->rows = more != NULL ? more : list->rows;
    list->err = more != NULL
                    ? cli_steps(trial, SONDE_MODE_GLOBAL, false, NULL, &steps, NULL)
                    : SONDE_ENOMEM;
    if (list->err != SONDE_OK) {
        return;
    }
    sonde_trial_describe(trial, &info);
    run_row *row = &list->rows[list->count++];

    *row = (run_row){.name = strdup(name),
                     .path = strdup(info.path),
                     .end_reason = strdup(info.end_reason),
                     .status = cli_status_name(info.status),
                     .shown = info.foreign && info.status == SONDE_RUN_CRASHED
                                  ? "no end was written"
                                  : cli_status_name(info.status),
                     .steps = steps,
                     .last_step = info.last_step};
    if (row->name == NULL || row->path == NULL || row->end_reason == NULL) {
        list->err = SONDE_ENOMEM;
    }
}

/* For sonde_trial_list_folder: an entry, which may be a run. */
static void add_entry(void *user, const char *name)
{
    run_list *list = user;
    const size_t length = strlen(list->folder);
    const char *slash = length > 0 && list->folder[length - 1] == '/' ? "" : "/";
    sonde_trial *trial = NULL;
    char path[4096];

    if (list->err != SONDE_OK ||
        (size_t)snprintf(path, sizeof path, "%s%s%s", list->folder, slash, name) >=
            sizeof path) {
        return;
    }
    const sonde_err err = sonde_trial_open(path, NULL, &trial, NULL);

    list->err = err == SONDE_ENOMEM ? err : SONDE_OK;
    if (err == SONDE_OK) {
        add_row(list, name, trial);
    }
    sonde_trial_close(trial);
}

static void print_rows_json(const run_list *list)
{
    sonde_json *const json = cli_json();

    sonde_json_object(json, NULL);
    sonde_json_list(json, "runs");
    for (size_t i = 0; i < list->count; i++) {
        const run_row *row = &list->rows[i];

        sonde_json_lead(json, "\n  ");
        sonde_json_object(json, NULL);
        CLI_PUT(json, cli_text("path", row->path), cli_uint("steps", row->steps),
                cli_int("last_step", row->last_step), cli_text("status", row->status),
                cli_text("end_reason", row->end_reason));
        sonde_json_end(json);
    }
    sonde_json_end(json);
    sonde_json_end(json);
    cli_json_print("\n");
}

static void print_rows(const run_list *list)
{
    int width = cli_letters("run");

    for (size_t i = 0; i < list->count; i++) {
        const int length = cli_letters(list->rows[i].name);

        width = length > width ? length : width;
    }
    (void)printf("%-*s  %8s  %s\n", width, "run", "steps", "status");
    for (size_t i = 0; i < list->count; i++) {
        const run_row *row = &list->rows[i];

        (void)printf("%-*s  %8zu  %s%s%s\n", cli_field(row->name, width), row->name,
                     row->steps, row->shown, row->end_reason[0] != '\0' ? ": " : "",
                     row->end_reason);
    }
}

/* Prints a line for each run in a folder, sorted by name; or only names, or one JSON
 * object. *any false: there is none, and nothing was printed. */
static sonde_err list_runs(const char *folder, bool names, bool json, bool *any,
                           sonde_diag *diag)
{
    run_list list = {.folder = folder};
    sonde_err err = sonde_trial_list_folder(folder, add_entry, &list, diag);

    if (err == SONDE_OK && list.err != SONDE_OK) {
        err = cli_fail_memory(diag);
    }
    *any = list.count > 0;
    if (err == SONDE_OK && *any && json) {
        print_rows_json(&list);
    } else if (err == SONDE_OK && *any && !names) {
        print_rows(&list);
    }
    for (size_t i = 0; i < list.count; i++) {
        if (err == SONDE_OK && names && !json) {
            (void)puts(list.rows[i].name);
        }
        free(list.rows[i].name);
        free(list.rows[i].path);
        free(list.rows[i].end_reason);
    }
    free(list.rows);
    return err;
}

typedef struct ls_values {
    bool json, names;
} ls_values;

/* Number of steps, in all modes, at which each kind was saved. */
typedef struct saved {
    size_t raw, vitals, sketch, norms;
    int64_t first, last;
} saved;

static sonde_err count_steps(sonde_trial *trial, uint32_t id, unsigned how, size_t *count,
                             saved *kinds, sonde_diag *diag)
{
    int64_t *steps = NULL;

    SONDE__TRY(
        sonde_trial_tensor_steps(trial, id, SONDE_MODE_GLOBAL, how, &steps, count, diag));
    if (*count > 0) {
        kinds->first =
            kinds->first < 0 || steps[0] < kinds->first ? steps[0] : kinds->first;
        kinds->last = steps[*count - 1] > kinds->last ? steps[*count - 1] : kinds->last;
    }
    sonde_release(steps);
    return SONDE_OK;
}

static sonde_err count_kinds(sonde_trial *trial, uint32_t id, saved *kinds,
                             sonde_diag *diag)
{
    *kinds = (saved){.first = -1, .last = -1};
    SONDE__TRY(count_steps(trial, id, SONDE_HOW_RAW, &kinds->raw, kinds, diag));
    SONDE__TRY(count_steps(trial, id, SONDE_HOW_VITALS, &kinds->vitals, kinds, diag));
    SONDE__TRY(count_steps(trial, id, SONDE_HOW_NORMS, &kinds->norms, kinds, diag));
    return count_steps(trial, id, SONDE_HOW_SKETCH, &kinds->sketch, kinds, diag);
}

/* --- the run ---------------------------------------------------------------------- */

static void print_line(const char *key, const char *value)
{
    if (value[0] != '\0') {
        (void)printf("%-9s %s\n", key, value);
    }
}

static void print_status(const sonde_run_info *info)
{
    char text[128];

    (void)printf("%-9s %s", "status",
                 info->foreign && info->status == SONDE_RUN_CRASHED
                     ? cli_no_end_text(info->last_time, text, sizeof text)
                     : cli_status_name(info->status));
    if (info->end_reason[0] != '\0') {
        (void)printf(": %s", info->end_reason);
    }
    if (info->end_text[0] != '\0') {
        (void)printf(" (%s)", info->end_text);
    }
    (void)putchar('\n');
}

/* What is counted of a run before it is printed. */
typedef struct counted {
    size_t steps[SONDE_MODE_COUNT]; /* by mode, incomplete ones as well */
    double rate;                    /* steps a second; 0: not known */
} counted;

static sonde_err count_run(sonde_trial *trial, counted *counts, sonde_diag *diag)
{
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        SONDE__TRY(cli_steps(trial, (sonde_mode)m, true, NULL, &counts->steps[m], diag));
    }
    return cli_steps_per_second(trial, &counts->rate, diag);
}

static void print_steps(const counted *counts, const sonde_run_info *info)
{
    static const sonde_mode modes[] = {SONDE_MODE_TRAIN, SONDE_MODE_EVAL,
                                       SONDE_MODE_PREDICT};
    const char *comma = ": ";

    (void)printf("%-9s ", "steps");
    if (info->last_step < 0) {
        (void)puts("none complete");
        return;
    }
    (void)printf("up to %" PRId64, info->last_step);
    for (size_t m = 0; m < CLI_COUNT_OF(modes); m++) {
        const size_t count = counts->steps[modes[m]];

        if (count > 0) {
            (void)printf("%s%zu %s", comma, count, sonde_mode_name(modes[m]));
            comma = ", ";
        }
    }
    (void)putchar('\n');
}

/* Duration, speed, and the end; of a live run the age of its last step. */
static void print_times(const counted *counts, const sonde_run_info *info)
{
    char text[64];

    if (info->last_time == 0) {
        return;
    }
    (void)printf("%-9s %s from first to last step", "time",
                 cli_duration_text(1e-9 * (double)(info->last_time - info->first_time),
                                   text, sizeof text));
    if (counts->rate > 0.0) {
        (void)printf(", %.3g steps/s", counts->rate);
    }
    if (info->status == SONDE_RUN_ENDED) {
        (void)printf(", ended %s\n", cli_moment_text(info->last_time, text, sizeof text));
    } else {
        (void)printf(", last step %s ago\n",
                     cli_duration_text(cli_age(info->last_time), text, sizeof text));
    }
}

static void print_resumes(const sonde_trial *trial, const sonde_run_info *info)
{
    sonde_trial_resumed resumed;
    char text[64];

    for (size_t i = 0; sonde_trial_resume(trial, i, &resumed); i++) {
        (void)printf("%-9s from step %" PRId64 ", %s", "resumed", resumed.step,
                     cli_moment_text(resumed.time, text, sizeof text));
        if (info->workers > 1) {
            (void)printf(", worker %d", resumed.worker);
        }
        (void)putchar('\n');
    }
    if (info->superseded + info->superseded_steps > 0) {
        (void)printf("%-9s superseded: %" PRIu64 " steps and %" PRIu64 " records\n", "",
                     info->superseded_steps, info->superseded);
    }
}

static void print_run(sonde_trial *trial, const counted *counts)
{
    const size_t damage = cli_count_damage(trial);
    sonde_run_info info;
    char bytes[32];

    sonde_trial_describe(trial, &info);
    print_line("run", info.path);
    print_line("id", info.id);
    print_line("model", info.model);
    print_line("program", info.program);
    print_line("created", info.created);
    print_status(&info);
    print_steps(counts, &info);
    print_times(counts, &info);
    print_resumes(trial, &info);
    (void)printf("%-9s %d of %d\n", "workers", info.workers, info.world);
    (void)printf(
        "%-9s %" PRIu64 " values (%s), %" PRIu64 " vital signs, %" PRIu64 " sketches\n",
        "saved", info.records, cli_bytes_text((double)info.bytes, bytes, sizeof bytes),
        info.rows, info.sketches);
    if (info.lost > 0) {
        (void)printf("%-9s %" PRIu64 " records, before they were written\n", "lost",
                     info.lost);
    }
    if (damage > 0) {
        (void)printf("%-9s %zu part%s cannot be read; 'sonde verify' lists %s\n",
                     "damage", damage, damage == 1 ? "" : "s",
                     damage == 1 ? "it" : "them");
    }
    (void)putchar('\n');
}

static void put_resumes(sonde_json *json, const sonde_trial *trial)
{
    sonde_trial_resumed resumed;

    sonde_json_list(json, "resumed");
    for (size_t i = 0; sonde_trial_resume(trial, i, &resumed); i++) {
        sonde_json_object(json, NULL);
        CLI_PUT(json, cli_int("worker", resumed.worker), cli_int("step", resumed.step),
                cli_time("time", resumed.time));
        sonde_json_end(json);
    }
    sonde_json_end(json);
}

static const char *damage_at(const void *trial, size_t i)
{
    return sonde_trial_damage(trial, i);
}

static const char *collection_at(const void *trial, size_t i)
{
    return sonde_trial_collection(trial, i);
}

/* Leaves the object and its list of tensors open. */
static void begin_run_json(sonde_json *json, sonde_trial *trial, const counted *counts)
{
    sonde_run_info info;

    sonde_trial_describe(trial, &info);
    sonde_json_object(json, NULL);
    CLI_PUT(json, cli_text("path", info.path), cli_text("id", info.id),
            cli_text("model", info.model), cli_text("program", info.program),
            cli_text("created", info.created), cli_text("end_reason", info.end_reason),
            cli_text("end_text", info.end_text),
            cli_text("status", cli_status_name(info.status)),
            cli_int("world", info.world), cli_int("workers", info.workers),
            cli_int("last_step", info.last_step), cli_uint("records", info.records),
            cli_uint("bytes", info.bytes), cli_uint("rows", info.rows),
            cli_uint("sketches", info.sketches), cli_uint("lost", info.lost),
            cli_time("first_time", info.first_time),
            cli_time("last_time", info.last_time),
            cli_real("steps_per_second", 6, counts->rate),
            cli_uint("superseded", info.superseded),
            cli_uint("superseded_steps", info.superseded_steps));
    put_resumes(json, trial);
    sonde_json_object(json, "steps");
    for (int m = 0; m < SONDE_MODE_COUNT; m++) {
        sonde_json_uint(json, sonde_mode_name((sonde_mode)m), counts->steps[m]);
    }
    sonde_json_end(json);
    cli_json_texts(json, "damage", damage_at, trial);
    cli_json_texts(json, "collections", collection_at, trial);
    sonde_json_list(json, "tensors");
}

/* --- tensors ---------------------------------------------------------------------- */

/* same_as: the tensor of an alias, or "". */
static void put_tensor(sonde_json *json, const sonde_tensor_info *info,
                       const char *same_as, const saved *kinds)
{
    sonde_json_lead(json, "\n  ");
    sonde_json_object(json, NULL);
    CLI_PUT(
        json, cli_text("name", info->name), cli_text("role", sonde_role_name(info->role)),
        cli_text("module", info->module), cli_text("pass", sonde_pass_name(info->pass)),
        cli_text("dtype", sonde_dtype_name(info->dtype)),
        cli_shape(info->rank, info->shape), cli_text("same_as", same_as),
        cli_uint("values", kinds->raw), cli_uint("vitals", kinds->vitals),
        kinds->norms > 0 ? cli_uint("norms", kinds->norms) : cli_none(),
        cli_uint("sketches", kinds->sketch), cli_int("first_step", kinds->first),
        cli_int("last_step", kinds->last));
    sonde_json_end(json);
}

static void print_tensor(const sonde_tensor_info *info, const char *same_as,
                         const saved *kinds, int width)
{
    char shape[96], steps[64] = "-", norms[48] = "";

    (void)sonde_shape_text(info->rank, info->shape, shape, sizeof shape);
    if (kinds->first >= 0) {
        (void)snprintf(steps, sizeof steps, "%" PRId64 " ... %" PRId64, kinds->first,
                       kinds->last);
    }
    if (kinds->norms > 0) {
        (void)snprintf(norms, sizeof norms, "  and %zu norms", kinds->norms);
    }
    (void)printf("%-*s  %-19s %-9s %-18s %8zu %8zu %8zu  %s%s%s%s\n",
                 cli_field(info->name, width), info->name, sonde_role_name(info->role),
                 sonde_dtype_name(info->dtype), shape, kinds->raw, kinds->vitals,
                 kinds->sketch, steps, norms, same_as[0] != '\0' ? "  = " : "", same_as);
}

static int name_width(const sonde_catalogue *catalogue, const uint32_t *ids, size_t count)
{
    int width = cli_letters("tensor");

    for (size_t i = 0; i < count; i++) {
        const int length = cli_letters(sonde_catalogue_info(catalogue, ids[i])->name);

        width = length > width ? length : width;
    }
    return width < 60 ? width : 60;
}

static sonde_err list(const ls_values *values, sonde_trial *trial, const uint32_t *ids,
                      size_t count, sonde_diag *diag)
{
    const sonde_catalogue *catalogue = sonde_trial_catalogue(trial);
    const int width = name_width(catalogue, ids, count);
    sonde_json *const json = cli_json();
    counted counts = {.rate = 0.0};
    const sonde_err failed = values->names ? SONDE_OK : count_run(trial, &counts, diag);

    if (failed != SONDE_OK) {
        return failed;
    }
    if (values->json) {
        begin_run_json(json, trial, &counts);
    } else if (!values->names) {
        print_run(trial, &counts);
        (void)printf("%-*s  %-19s %-9s %-18s %8s %8s %8s  %s\n", width, "tensor", "role",
                     "dtype", "shape", "values", "vitals", "sketches", "steps");
    }
    for (size_t i = 0; i < count; i++) {
        const sonde_tensor_info *info = sonde_catalogue_info(catalogue, ids[i]);
        const char *same_as = info->same_as != ids[i]
                                  ? sonde_catalogue_info(catalogue, info->same_as)->name
                                  : "";
        saved kinds;

        if (values->names) {
            (void)puts(info->name);
            continue;
        }
        SONDE__TRY(count_kinds(trial, ids[i], &kinds, diag));
        if (values->json) {
            put_tensor(json, info, same_as, &kinds);
        } else {
            print_tensor(info, same_as, &kinds, width);
        }
    }
    if (values->json) {
        sonde_json_end(json);
        sonde_json_end(json);
        cli_json_print("\n");
    }
    return SONDE_OK;
}

static int run_ls(const void *values, int argc, char **argv)
{
    const ls_values *asked = values;
    sonde_trial *trial = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_diag diag = {0};
    sonde_err err = sonde_trial_open(argv[0], NULL, &trial, &diag);

    if (err == SONDE_EFORMAT && argc == 1) {
        sonde_diag why = {0};
        bool any = false;
        const sonde_err listed =
            list_runs(argv[0], asked->names, asked->json, &any, &why);

        if (listed == SONDE_OK && any) {
            return CLI_OK;
        }
        if (listed == SONDE_ENOMEM) {
            return cli_fail(&why);
        }
    }
    if (err != SONDE_OK) {
        goto done;
    }
    SONDE__TRY_DONE(cli_select(trial, argc > 1 ? argv[1] : NULL, &ids, &count, &diag));
    err = list(asked, trial, ids, count, &diag);

done:
    sonde_release(ids);
    sonde_trial_close(trial);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

static const cli_option ls_options[] = {
    {"names", 0, CLI_FLAG, NULL, "print only the names of tensors or runs",
     offsetof(ls_values, names)},
    {"format", 0, CLI_FORMAT, "text|json", "print text, or one JSON object (text)",
     offsetof(ls_values, json)},
};

const cli_command cli_ls = {
    .name = "ls",
    .arguments = "RUN [TENSORS]",
    .summary = "describe a run and list its tensors",
    .details =
        "TENSORS is a selector: a name, a glob, re:REGEX, @role, module:NAME, or several,\n"
        "separated by commas. The columns values, vitals and sketches count the steps at\n"
        "which each was saved. A run can be listed while it is being written. If RUN is a\n"
        "folder that contains runs, these are listed.",
    .examples = "  sonde ls runs\n"
                "  sonde ls runs/first\n"
                "  sonde ls runs/first 'Gradient___*' --format json",
    .options = ls_options,
    .option_count = CLI_COUNT_OF(ls_options),
    .least = 1,
    .most = 2,
    .values_size = sizeof(ls_values),
    .run = run_ls,
};
