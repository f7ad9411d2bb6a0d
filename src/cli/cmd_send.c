/*
 * cmd_send.c - `sonde send`: uploads data left by a crashed writer on this
 * machine.
 */
#include "cli/run_reading.h"

#include <sonde/recorder.h>
#include <sonde/text.h>

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

typedef struct send_values {
    bool list;
} send_values;

enum { MOST_SPOOLS = 1000 };

/* A spool that was found. */
typedef struct found_spool {
    char *path, *folder, *endpoint;
    int rank;
    uint64_t files, bytes;
    bool in_use;
} found_spool;

typedef struct spool_list {
    const char *only; /* NULL: all */
    found_spool *spools;
    size_t count;
} spool_list;

/* Whether an address is that of the run, but for slashes at its end. */
static bool is_same(const char *address, const char *path)
{
    size_t a = strlen(address), b = strlen(path);

    while (a > 0 && address[a - 1] == '/') {
        a--;
    }
    while (b > 0 && path[b - 1] == '/') {
        b--;
    }
    return a == b && strncmp(address, path, a) == 0;
}

static void keep(void *user, const sonde_spool *spool)
{
    spool_list *list = user;

    if (list->count < MOST_SPOOLS &&
        (list->only == NULL || is_same(list->only, spool->path))) {
        list->spools[list->count++] = (found_spool){.path = strdup(spool->path),
                                                    .folder = strdup(spool->folder),
                                                    .endpoint = strdup(spool->endpoint),
                                                    .rank = spool->rank,
                                                    .files = spool->files,
                                                    .bytes = spool->bytes,
                                                    .in_use = spool->in_use};
    }
}

static void print_spool(const found_spool *spool)
{
    char bytes[32];

    (void)printf("%s: worker %d, %" PRIu64 " files, %s, in %s%s%s%s\n", spool->path,
                 spool->rank, spool->files,
                 cli_bytes_text((double)spool->bytes, bytes, sizeof bytes), spool->folder,
                 spool->endpoint[0] != '\0' ? ", endpoint " : "", spool->endpoint,
                 spool->in_use ? ", being written" : "");
}

static int send_spool(const found_spool *spool)
{
    char bytes[32];
    uint64_t records = 0;
    sonde_diag diag = {0};
    const sonde_err err =
        sonde_recorder_recover(spool->path, spool->rank, &records, &diag);

    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    (void)printf("%s: worker %d: sent %s, with %" PRIu64 " records from memory\n",
                 spool->path, spool->rank,
                 cli_bytes_text((double)spool->bytes, bytes, sizeof bytes), records);
    return CLI_OK;
}

static int handle(const spool_list *list, bool only_list)
{
    int code = CLI_OK;

    for (size_t i = 0; i < list->count; i++) {
        const found_spool *spool = &list->spools[i];

        if (only_list || spool->in_use) {
            print_spool(spool);
        } else if (send_spool(spool) != CLI_OK) {
            code = CLI_ERROR;
        }
    }
    return code;
}

static int run_send(const void *values, int argc, char **argv)
{
    const send_values *asked = values;
    spool_list list = {.only = argc > 0 ? argv[0] : NULL};
    sonde_diag diag = {0};
    int code = CLI_OK;

    list.spools = calloc(MOST_SPOOLS, sizeof *list.spools);
    if (list.spools == NULL || sonde_recorder_spools(keep, &list, &diag) != SONDE_OK) {
        code = cli_fail(&diag);
    } else if (list.count == 0 && list.only != NULL) {
        (void)sonde_diag_set(&diag, SONDE_ENOTFOUND, list.only,
                             "an address that sonde send --list prints",
                             "nothing of it is left on this machine");
        code = cli_fail(&diag);
    } else {
        code = handle(&list, asked->list);
    }
    for (size_t i = 0; i < list.count; i++) {
        free(list.spools[i].path);
        free(list.spools[i].folder);
        free(list.spools[i].endpoint);
    }
    free(list.spools);
    return code;
}

static const cli_option options[] = {
    {"list", 0, CLI_FLAG, NULL, "list the data that is left; upload nothing",
     offsetof(send_values, list)},
};

const cli_command cli_send = {
    .name = "send",
    .arguments = "[ADDRESS]",
    .summary = "upload data left by a crashed writer",
    .details =
        "A run recorded at s3://bucket/prefix is kept in a folder of this machine until it\n"
        "is uploaded. After a crash or a long outage, the rest stays in that folder. This\n"
        "command recovers the last records of the crashed process, uploads all files and\n"
        "removes them. The run keeps its state: a crashed run is not marked as ended.\n"
        "Without ADDRESS, it uploads every run that no process is writing.",
    .examples = "  sonde send --list\n"
                "  sonde send s3://bucket/runs/first",
    .options = options,
    .option_count = CLI_COUNT_OF(options),
    .least = 0,
    .most = 1,
    .values_size = sizeof(send_values),
    .run = run_send,
};
