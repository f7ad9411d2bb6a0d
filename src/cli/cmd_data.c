/*
 * cmd_data.c - `sonde data fetch|synth|info`: data sets by name.
 */
#include "cli/cli_job.h"
#include "base/fail.h"
#include "cli/run_reading.h"

#include <sonde/nn/dataset.h>

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct data_values {
    const char *folder, *mirror;
    int64_t seed, train, test;
    bool json, quiet;
} data_values;

#define OPTION(...) CLI_OPTION(data_values, __VA_ARGS__)

/* The folder of the option, or that of the cache. */
static sonde_err place(const data_values *values, const char *name, char *path,
                       size_t size, sonde_diag *diag)
{
    if (values->folder == NULL) {
        return sonde_nn_data_cache(name, path, size, diag);
    }
    (void)snprintf(path, size, "%s", values->folder);
    return cli_make_folder(path, diag);
}

/* --- fetch ------------------------------------------------------------------------ */

static int run_fetch(const void *values, int argc, char **argv)
{
    const data_values *asked = values;
    sonde_diag diag = {0};
    char path[4096];
    sonde_err err = place(asked, argv[0], path, sizeof path, &diag);

    (void)argc;
    cli_catch_interrupt();
    if (err == SONDE_OK) {
        err = cli_fetch(argv[0], path, asked->mirror, argv[0], asked->quiet, &diag);
    }
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    if (!asked->quiet) {
        (void)printf("%s is in %s\n", argv[0], path);
    }
    return CLI_OK;
}

static const cli_option fetch_options[] = {
    OPTION("out", 'o', CLI_TEXT, "FOLDER", folder,
           "write to this folder (default: the cache)"),
    OPTION("mirror", 0, CLI_TEXT, "URL", mirror, "download from this address instead"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only errors"),
};

const cli_command cli_data_fetch = {
    .name = "data fetch",
    .arguments = "NAME",
    .summary = "download a data set and check its digests (fashion-mnist, mnist)",
    .details = "An interrupted download is resumed.",
    .examples = "  sonde data fetch fashion-mnist",
    .options = fetch_options,
    .option_count = CLI_COUNT_OF(fetch_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(data_values),
    .run = run_fetch,
};

/* --- synth ------------------------------------------------------------------------ */

/* Whether a folder that the caller named holds a data set, which is not drawn over. */
static bool holds_set(const char *folder)
{
    static const char *const files[] = {
        "train-images-idx3-ubyte",    "train-labels-idx1-ubyte",
        "t10k-images-idx3-ubyte",     "t10k-labels-idx1-ubyte",
        "train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz",
        "t10k-images-idx3-ubyte.gz",  "t10k-labels-idx1-ubyte.gz"};
    char path[4096];

    for (size_t i = 0; folder != NULL && i < CLI_COUNT_OF(files); i++) {
        if (cli_join(folder, files[i], path, sizeof path, NULL) == SONDE_OK &&
            access(path, F_OK) == 0) {
            return true;
        }
    }
    return false;
}

static int run_synth(const void *values, int argc, char **argv)
{
    const data_values *asked = values;
    sonde_nn_synth_options options = {.size = sizeof options};
    sonde_diag diag = {0};
    char path[4096];
    sonde_err err = place(asked, "fashion-synth", path, sizeof path, &diag);

    (void)argc;
    (void)argv;
    options.seed = asked->seed != CLI_NOT_GIVEN ? (uint64_t)asked->seed : 0;
    options.train = asked->train != CLI_NOT_GIVEN ? asked->train : 0;
    options.test = asked->test != CLI_NOT_GIVEN ? asked->test : 0;
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    if (holds_set(asked->folder)) {
        return cli_fail_text("%s: already contains a data set (expected another folder)",
                             asked->folder);
    }
    err = sonde_nn_synth(path, &options, &diag);
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    if (!asked->quiet) {
        (void)printf("drawn into %s\n", path);
    }
    return CLI_OK;
}

static const cli_option synth_options[] = {
    OPTION("out", 'o', CLI_TEXT, "FOLDER", folder,
           "write to this folder (default: the cache)"),
    OPTION("seed", 's', CLI_SEED, "N", seed, "seed the drawing of garments (0)"),
    OPTION("train", 0, CLI_SIZE, "N", train, "draw N training samples (60000)"),
    OPTION("test", 0, CLI_SIZE, "N", test, "draw N test samples (10000)"),
    OPTION("quiet", 'q', CLI_FLAG, NULL, quiet, "print only errors"),
};

const cli_command cli_data_synth = {
    .name = "data synth",
    .arguments = "",
    .summary = "draw a synthetic set of garments, without a download",
    .details =
        "The set is called fashion-synth; it has the format and classes of Fashion-MNIST.\n"
        "A data set that is already in FOLDER is not replaced.",
    .examples = "  sonde data synth --out garments",
    .options = synth_options,
    .option_count = CLI_COUNT_OF(synth_options),
    .values_size = sizeof(data_values),
    .run = run_synth,
};

/* --- info ------------------------------------------------------------------------- */

static void print_info(const char *split, const sonde_nn_dataset *set,
                       const sonde_nn_dataset_info *info, const int64_t *counts,
                       bool json)
{
    const sonde_nn_dataset_traits *traits = sonde_nn_dataset_get_traits(set);
    char shape[96], bytes[32];

    (void)sonde_shape_text(traits->rank, traits->shape, shape, sizeof shape);
    if (json) {
        CLI_LINE(cli_text("split", split), cli_text("source", traits->source),
                 cli_int("count", traits->count),
                 cli_text("dtype", sonde_dtype_name(traits->dtype)),
                 cli_int("classes", traits->classes), cli_fixed("mean", 6, info->mean[0]),
                 cli_fixed("std", 6, info->std[0]));
        return;
    }
    (void)printf("%s: %s\n  %" PRId64 " samples of %s %s, %s; mean %.4f, std %.4f\n",
                 split, traits->source, traits->count, sonde_dtype_name(traits->dtype),
                 shape, cli_bytes_text((double)info->bytes, bytes, sizeof bytes),
                 info->mean[0], info->std[0]);
    for (int64_t i = 0; i < traits->classes; i++) {
        char line[CLI_CLASS];
        const char *name =
            cli_one_line(sonde_nn_dataset_class_name(set, i), line, sizeof line);

        (void)printf("  %3" PRId64 " %-*s %8" PRId64 "\n", i, cli_field(name, 12), name,
                     counts[i]);
    }
}

static sonde_err describe(const char *name, const char *folder, sonde_nn_split split,
                          bool json, sonde_diag *diag)
{
    sonde_nn_dataset *set = NULL;
    sonde_nn_dataset_info info;
    int64_t *counts = NULL;
    sonde_err err = SONDE_OK;

    SONDE__TRY(sonde_nn_dataset_open(
        folder, SONDE_OPTIONS(sonde_nn_dataset, .name = name, .split = split), &set,
        diag));
    counts =
        calloc((size_t)sonde_nn_dataset_get_traits(set)->classes + 1, sizeof *counts);
    if (counts == NULL) {
        err = diag->err = SONDE_ENOMEM;
        goto done;
    }
    SONDE__TRY_DONE(sonde_nn_dataset_describe(set, &info, counts, diag));
    print_info(split == SONDE_NN_TRAIN ? "train" : "test", set, &info, counts, json);

done:
    free(counts);
    sonde_nn_dataset_destroy(set);
    return err;
}

static void print_part_json(const char *source, const char *split,
                            const sonde_nn_part *part)
{
    static const char *const kinds[] = {"numbers", "texts", "array"};
    const bool texts = part->kind == SONDE_NN_PART_TEXTS;

    CLI_LINE(
        cli_text("source", source), split != NULL ? cli_text("split", split) : cli_none(),
        cli_text("name", part->name), cli_text("kind", kinds[part->kind]),
        cli_shape(part->rank, part->shape), cli_int("missing", part->missing),
        texts ? cli_int("different", part->different) : cli_real("mean", 9, part->mean),
        texts ? cli_none() : cli_real("std", 9, part->std),
        texts ? cli_none() : cli_real("min", 9, part->minimum),
        texts ? cli_none() : cli_real("max", 9, part->maximum),
        part->kind == SONDE_NN_PART_ARRAY
            ? cli_text("dtype", sonde_dtype_name(part->dtype))
            : cli_none());
}

static void print_part(const sonde_nn_part *part)
{
    char line[CLI_CLASS], shape[96], kind[160] = "";
    const char *name = cli_one_line(part->name, line, sizeof line);
    const bool measured = part->kind != SONDE_NN_PART_TEXTS && !isnan(part->mean);

    if (part->kind == SONDE_NN_PART_ARRAY) {
        (void)snprintf(kind, sizeof kind, "%s %s", sonde_dtype_name(part->dtype),
                       sonde_shape_text(part->rank, part->shape, shape, sizeof shape));
    } else if (part->kind == SONDE_NN_PART_TEXTS) {
        (void)snprintf(kind, sizeof kind, "%" PRId64 " texts", part->different);
    } else {
        (void)snprintf(kind, sizeof kind, "numbers");
    }
    (void)printf("  %-*s %-24s", cli_field(name, 20), name, kind);
    if (measured) {
        (void)printf(" mean %.5g, std %.5g, %.5g to %.5g", part->mean, part->std,
                     part->minimum, part->maximum);
    }
    if (part->missing > 0) {
        (void)printf("%s%" PRId64 " missing", measured ? ", " : " ", part->missing);
    }
    (void)printf("\n");
}

/* split: of a folder with a table of each; NULL: there is one file. */
static sonde_err describe_file(const char *path, const char *split, bool json,
                               sonde_diag *diag)
{
    const bool test = split != NULL && strcmp(split, "test") == 0;
    sonde_nn_contents *contents = NULL;
    SONDE__TRY(sonde_nn_contents_open(path, test ? SONDE_NN_TEST : SONDE_NN_TRAIN,
                                      &contents, diag));
    const sonde_nn_part *part = contents->parts;
    if (!json && contents->count > 0 && part->kind != SONDE_NN_PART_ARRAY) {
        (void)printf("%s%s%s: %" PRId64 " rows\n", path, split != NULL ? ", " : "",
                     split != NULL ? split : "", part->shape[0]);
    } else if (!json) {
        (void)printf("%s\n", path);
    }
    for (; part < contents->parts + contents->count; part++) {
        if (json) {
            print_part_json(path, split, part);
        } else {
            print_part(part);
        }
    }
    sonde_nn_contents_destroy(contents);
    return SONDE_OK;
}

static int run_file_info(const char *path, bool json)
{
    struct stat status;
    sonde_diag diag = {0};
    const bool split = sonde_nn_data_kind_at(path) == SONDE_NN_DATA_TABLE &&
                       stat(path, &status) == 0 && S_ISDIR(status.st_mode);
    sonde_err err = describe_file(path, split ? "train" : NULL, json, &diag);

    if (err == SONDE_OK && split) {
        err = describe_file(path, "test", json, &diag);
    }
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

static int run_info(const void *values, int argc, char **argv)
{
    const data_values *asked = values;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    if (sonde_nn_data_kind_at(argv[0]) == SONDE_NN_DATA_TABLE ||
        sonde_nn_data_kind_at(argv[0]) == SONDE_NN_DATA_ARRAYS) {
        return run_file_info(argv[0], asked->json);
    }
    err = describe(argv[0], asked->folder, SONDE_NN_TRAIN, asked->json, &diag);

    (void)argc;
    if (err != SONDE_OK) {
        return cli_fail(&diag);
    }
    err = describe(argv[0], asked->folder, SONDE_NN_TEST, asked->json, &diag);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

static const cli_option info_options[] = {
    OPTION("data", 'd', CLI_TEXT, "FOLDER", folder, "read the data set from this folder"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or one JSON object per split, column or array (text)"),
};

const cli_command cli_data_info = {
    .name = "data info",
    .arguments = "NAME|FILE",
    .summary = "describe a data set: counts, shape, classes, mean",
    .details =
        "FILE is a table (.csv, .tsv, .parquet), arrays (.npz, .npy, .safetensors),\n"
        "or a folder with either: names, kinds and statistics.",
    .examples = "  sonde data info fashion-mnist\n"
                "  sonde data info houses.parquet",
    .options = info_options,
    .option_count = CLI_COUNT_OF(info_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(data_values),
    .run = run_info,
};
