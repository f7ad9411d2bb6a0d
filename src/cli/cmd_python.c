/*
 * cmd_python.c - `sonde watch` and `sonde check`: run a training program in Python. They become
 * `python3 -m sonde watch` and `python3 -m sonde check`, which read the options
 * (python/sonde/launch.py, python/sonde/checking/command.py).
 */
#include "cli/cli.h"
#include "base/fail.h"

#include <sonde/text.h>

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Puts the folder that holds the package into PYTHONPATH: the one that was built or
 * installed with this command, or, in a wheel, that of the package. Nothing without one. */
static sonde_err add_package(sonde_diag *diag)
{
    static const char *const places[] = {"../python", "../" SONDE_LIBDIR "/sonde/python",
                                         "../.."};
    const char *outer = getenv("PYTHONPATH");
    sonde_text own = {0}, path = {0};
    char *exe = realpath("/proc/self/exe", NULL);
    bool found = false;

    for (size_t i = 0; exe != NULL && !found && i < CLI_COUNT_OF(places); i++) {
        const int length = (int)(strrchr(exe, '/') + 1 - exe);

        sonde_text_fini(&own);
        sonde_text_fini(&path);
        own = (sonde_text){0};
        path = (sonde_text){0};
        sonde_text_format(&own, "%.*s%s/sonde/launch.py", length, exe, places[i]);
        sonde_text_format(&path, "%.*s%s%s%s", length, exe, places[i],
                          outer != NULL ? ":" : "", outer != NULL ? outer : "");
        found = !own.failed && access(own.data, R_OK) == 0;
    }
    const bool failed =
        own.failed || path.failed || (found && setenv("PYTHONPATH", path.data, 1) != 0);

    free(exe);
    sonde_text_fini(&own);
    sonde_text_fini(&path);
    return failed ? sonde_diag_set(diag, SONDE_ENOMEM, "python3", NULL, "out of memory")
                  : SONDE_OK;
}

/* Returns only if it fails. */
static sonde_err become_python(char *command, int argc, char **argv, sonde_diag *diag)
{
    static char module[] = "-m", package[] = "sonde";
    const char *given = getenv("SONDE_PYTHON");
    const char *python = given != NULL && given[0] != '\0' ? given : "python3";
    char **words = calloc((size_t)argc + 5, sizeof *words);
    char *name = strdup(python);
    sonde_err err = SONDE_OK;

    SONDE__TRY_DONE(add_package(diag));
    if (words == NULL || name == NULL) {
        err = sonde_diag_set(diag, SONDE_ENOMEM, "python3", NULL, "out of memory");
        goto done;
    }
    words[0] = name;
    words[1] = module;
    words[2] = package;
    words[3] = command;
    memcpy(words + 4, argv, (size_t)argc * sizeof *words);
    (void)execvp(name, words);
    err = sonde_diag_set(diag, SONDE_ENOTFOUND, python,
                         "Python 3.11 with the package: pip install sonde[all]",
                         "cannot start Python: %s", strerror(errno));

done:
    free(words);
    free(name);
    return err;
}

static int run_python(char *command, int argc, char **argv)
{
    sonde_diag diag = {0};

    return become_python(command, argc, argv, &diag) == SONDE_OK ? CLI_OK
                                                                 : cli_fail(&diag);
}

/* --- watch ------------------------------------------------------------------------ */

static int run_watch(const void *values, int argc, char **argv)
{
    static char name[] = "watch";

    (void)values;
    return run_python(name, argc, argv);
}

static const cli_option watch_options[] = {
    {"run", 0, CLI_TEXT, "FOLDER",
     "record in this folder; if a run is there, in one with a number", 0},
    {"overwrite", 0, CLI_FLAG, NULL, "replace a run that is there and has ended", 0},
    {"every", 0, CLI_COUNT, "N", "observe every N-th step (default: as sonde.watch does)",
     0},
    {"rules", 0, CLI_TEXT, "RULES", "judge with Name:parameter=value,...; none: no rule",
     0},
    {"module", 0, CLI_TEXT, "NAME", "run this module: also -m NAME, as for python", 0},
};

const cli_command cli_watch = {
    .name = "watch",
    .arguments = "PROGRAM [ARGUMENT]...",
    .summary = "run a training program in Python and watch what it trains",
    .details =
        "The program runs as 'python PROGRAM ARGUMENT...' would; its exit code is its own.\n"
        "Its models are found when they are first called in training mode, by the\n"
        "optimizers that hold their parameters, and watched as sonde.watch does. Findings\n"
        "and the verdict go to stderr. A program that calls sonde.watch has that watch\n"
        "alone.\n\n"
        "The interpreter is $SONDE_PYTHON, or python3. For several processes:\n"
        "torchrun --nproc-per-node 4 -m sonde watch PROGRAM",
    .examples = "  sonde watch train.py --epochs 3\n"
                "  sonde watch --run runs/first -m package.train",
    .options = watch_options,
    .option_count = CLI_COUNT_OF(watch_options),
    .least = 1,
    .most = -1,
    .verbatim = true,
    .run = run_watch,
};

/* --- check ------------------------------------------------------------------------ */

static int run_check(const void *values, int argc, char **argv)
{
    static char name[] = "check";

    (void)values;
    return run_python(name, argc, argv);
}

static const cli_option check_options[] = {
    {"json", 0, CLI_FLAG, NULL, "print the result as JSON", 0},
    {"seconds", 0, CLI_REAL, "N", "limit of the check, without the program (default: 30)",
     0},
    {"module", 0, CLI_TEXT, "NAME", "run this module: also -m NAME, as for python", 0},
};

const cli_command cli_check = {
    .name = "check",
    .arguments = "PROGRAM [ARGUMENT]...",
    .summary = "test a network in Python at its first training step",
    .details =
        "The program runs as 'python PROGRAM ARGUMENT...' would, up to its first training\n"
        "step. There, copies of the network are tested with the program's loss and batch:\n"
        "rows of a batch that mix, parameters that no loss reaches, a softmax too many,\n"
        "evaluation that is not deterministic, and more. Then the program ends.\n\n"
        "Exit codes: 0 if all tests passed, 1 if one failed, 2 if nothing was tested.\n"
        "The interpreter is $SONDE_PYTHON, or python3.",
    .examples = "  sonde check train.py --epochs 3\n"
                "  sonde check --json -m package.train",
    .options = check_options,
    .option_count = CLI_COUNT_OF(check_options),
    .least = 1,
    .most = -1,
    .verbatim = true,
    .run = run_check,
};
