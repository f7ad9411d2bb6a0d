/*
 * ls_runs.c - see ls_runs.h.
 */
#include "cli/ls_runs.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>

/* The runs among the entries of a folder, opened one after another. */
typedef struct run_walk {
    const char *folder;
    struct dirent **entries;
    int count, at;
} run_walk;

static int is_visible(const struct dirent *entry)
{
    return entry->d_name[0] != '.';
}

static bool begin(run_walk *walk, const char *folder)
{
    *walk = (run_walk){.folder = folder};
    walk->count = scandir(folder, &walk->entries, is_visible, alphasort);
    return walk->count >= 0;
}

static void end(run_walk *walk)
{
    for (int i = 0; i < walk->count; i++) {
        free(walk->entries[i]);
    }
    free(walk->entries);
}

/* The next run, and its name in the folder. NULL: no more. */
static sonde_trial *next(run_walk *walk, const char **name)
{
    while (walk->at < walk->count) {
        sonde_trial *trial = NULL;
        const size_t length = strlen(walk->folder);
        const bool slash = length > 0 && walk->folder[length - 1] == '/';
        char path[4096];

        *name = walk->entries[walk->at++]->d_name;
        if ((size_t)snprintf(path, sizeof path, "%s%s%s", walk->folder, slash ? "" : "/",
                             *name) < sizeof path &&
            sonde_trial_open(path, NULL, &trial, NULL) == SONDE_OK) {
            return trial;
        }
    }
    return NULL;
}

static void put_run(sonde_json *json, const sonde_run_info *info, size_t steps)
{
    sonde_json_lead(json, "\n  ");
    sonde_json_object(json, NULL);
    sonde_json_string(json, "path", info->path);
    sonde_json_uint(json, "steps", steps);
    sonde_json_int(json, "last_step", info->last_step);
    sonde_json_string(json, "status", cli_status_name(info->status));
    sonde_json_string(json, "end_reason", info->end_reason);
    sonde_json_end(json);
}

static void print_line(const sonde_run_info *info, const char *name, size_t steps,
                       int width)
{
    (void)printf("%-*s  %8zu  %s%s%s\n", cli_field(name, width), name, steps,
                 cli_status_name(info->status), info->end_reason[0] != '\0' ? ": " : "",
                 info->end_reason);
}

/* The width of the column of names; 0: there is no run. */
static int name_column(const char *folder)
{
    int width = 0;
    const char *name = NULL;
    sonde_trial *trial = NULL;
    run_walk walk;

    if (!begin(&walk, folder)) {
        return 0;
    }
    while ((trial = next(&walk, &name)) != NULL) {
        const int length = cli_letters(name);

        width = width > 0 ? width : cli_letters("run");
        width = length > width ? length : width;
        sonde_trial_close(trial);
    }
    end(&walk);
    return width;
}

bool cli_ls_runs(const char *folder, bool names, bool json)
{
    const int width = name_column(folder);
    const char *name = NULL;
    sonde_trial *trial = NULL;
    run_walk walk;

    if (width == 0 || !begin(&walk, folder)) {
        return false;
    }
    if (json) {
        sonde_json_object(cli_json(), NULL);
        sonde_json_list(cli_json(), "runs");
    } else if (!names) {
        (void)printf("%-*s  %8s  %s\n", width, "run", "steps", "status");
    }
    while ((trial = next(&walk, &name)) != NULL) {
        size_t steps = 0;
        sonde_run_info info;

        sonde_trial_describe(trial, &info);
        (void)sonde_trial_steps(trial, SONDE_MODE_GLOBAL, false, &steps);
        if (json) {
            put_run(cli_json(), &info, steps);
        } else if (names) {
            (void)puts(name);
        } else {
            print_line(&info, name, steps, width);
        }
        sonde_trial_close(trial);
    }
    if (json) {
        sonde_json_end(cli_json());
        sonde_json_end(cli_json());
        cli_json_print("\n");
    }
    end(&walk);
    return true;
}
