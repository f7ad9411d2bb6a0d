/*
 * cmd_program.c - `sonde program`: prints the program of a step (<sonde/program.h>).
 */
#include "cli/run_reading.h"
#include "base/fail.h"

#include <sonde/program.h>

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

typedef struct program_values {
    const char *mode;
    int64_t step;
    bool json;
} program_values;

/* --- parts of lines ------------------------------------------------------------------- */

/* " (train.py:41)"; nothing if it is unknown. */
static void print_place(const sonde_program *program, sonde_place place)
{
    char text[4200];

    if (place.file[0] != '\0') {
        (void)printf(" (%s)",
                     sonde_program_place_text(program, place, text, sizeof text));
    }
}

/* What a value is called: as it is observed, or by its number. */
static void print_name(const sonde_program *program, int value)
{
    const sonde_program_value *row = value >= 0 ? &program->values[value] : NULL;
    const char *name = row == NULL              ? "none"
                       : row->tensor[0] != '\0' ? row->tensor
                       : row->parameter >= 0    ? program->parameters[row->parameter].name
                                                : "";

    if (name[0] != '\0') {
        (void)printf("%s", name);
    } else {
        (void)printf("%%%d", value);
    }
}

/* "float32 [64, 10]" */
static void print_type(const sonde_program_value *value)
{
    (void)printf("%s [", sonde_dtype_name(value->dtype));
    for (int i = 0; i < value->rank; i++) {
        (void)printf("%s%" PRId64, i > 0 ? ", " : "", value->shape[i]);
    }
    (void)putchar(']');
}

/* "dim=1, reduction=mean", after `between` if there are any. */
static void print_attributes(sonde_program_attributes attributes, const char *between)
{
    for (size_t i = 0; i < attributes.count; i++) {
        (void)printf("%s%s=%s", i == 0 ? between : ", ", attributes.rows[i].name,
                     attributes.rows[i].text);
    }
}

static const char *module_name(const sonde_program *program, int module)
{
    const char *name = program->modules[module].name;

    return name[0] != '\0' ? name : "the model";
}

/* The heading of a part that has rows; false: it has none. */
static bool begin_part(const char *title, size_t count)
{
    if (count > 0) {
        (void)printf("\n%s\n", title);
    }
    return count > 0;
}

/* --- parts ------------------------------------------------------------------------------ */

static void print_modules(const sonde_program *program)
{
    (void)begin_part("Modules", program->module_count);
    for (size_t i = 0; i < program->module_count; i++) {
        const sonde_program_module *module = &program->modules[i];

        (void)printf("  %s: %s, %s%s%s", module_name(program, (int)i), module->kind,
                     module->training ? "training mode" : "evaluation mode",
                     module->called ? "" : ", not called",
                     module->registered ? "" : ", not registered in the model");
        print_attributes(module->attributes, ", ");
        print_place(program, module->place);
        (void)putchar('\n');
    }
}

/* Values that no operation makes, parameters apart. */
static void print_inputs(const sonde_program *program)
{
    static const char *const kinds[] = {"", "", "", ", buffer", ", constant"};
    bool begun = false;

    for (size_t i = 0; i < program->value_count; i++) {
        const sonde_program_value *value = &program->values[i];

        if (value->node >= 0 || value->kind == SONDE_VALUE_COMPUTED ||
            value->kind == SONDE_VALUE_PARAMETER) {
            continue;
        }
        begun = begun || begin_part("Inputs", 1);
        (void)printf("  ");
        print_name(program, (int)i);
        (void)printf(": ");
        print_type(value);
        (void)printf("%s\n", kinds[value->kind]);
    }
}

static void print_node(const sonde_program *program, const sonde_program_node *node)
{
    (void)printf("  ");
    for (size_t i = 0; i < node->output_count; i++) {
        (void)printf("%s", i > 0 ? ", " : "");
        print_name(program, node->outputs[i]);
    }
    (void)printf("%s%s(", node->output_count > 0 ? " = " : "", node->op);
    for (size_t i = 0; i < node->input_count; i++) {
        (void)printf("%s", i > 0 ? ", " : "");
        print_name(program, node->inputs[i]);
    }
    print_attributes(node->attributes, node->input_count > 0 ? ", " : "");
    (void)putchar(')');
    if (node->output_count > 0 && node->outputs[0] >= 0) {
        (void)printf(": ");
        print_type(&program->values[node->outputs[0]]);
    }
    if (node->module >= 0) {
        (void)printf(" in %s", module_name(program, node->module));
    }
    print_place(program, node->place);
    (void)putchar('\n');
}

static void print_parameters(const sonde_program *program)
{
    (void)begin_part("Parameters", program->parameter_count);
    for (size_t i = 0; i < program->parameter_count; i++) {
        const sonde_program_parameter *parameter = &program->parameters[i];
        const bool held = parameter->optimizer >= 0;
        char count[32];

        (void)printf("  %s: %s element%s, %s%s%s%s%s\n", parameter->name,
                     cli_commas((uint64_t)parameter->count, count),
                     parameter->count == 1 ? "" : "s", held ? "in " : "in no optimizer",
                     held ? program->optimizers[parameter->optimizer].name : "",
                     parameter->requires_grad ? "" : ", frozen",
                     parameter->used ? "" : ", not used",
                     parameter->used && parameter->requires_grad && !parameter->reached
                         ? ", not reached by backward"
                         : "");
    }
}

static void print_optimizers(const sonde_program *program)
{
    (void)begin_part("Optimizers", program->optimizer_count);
    for (size_t i = 0; i < program->optimizer_count; i++) {
        const sonde_program_optimizer *optimizer = &program->optimizers[i];

        (void)printf("  %s: %s", optimizer->name, optimizer->kind);
        print_attributes(optimizer->attributes, ", ");
        (void)putchar('\n');
    }
}

static void print_losses(const sonde_program *program)
{
    (void)begin_part("Losses", program->loss_count);
    for (size_t i = 0; i < program->loss_count; i++) {
        const sonde_program_loss *loss = &program->losses[i];

        (void)printf("  ");
        print_name(program, loss->value);
        (void)printf(": %s", loss->node >= 0 ? program->nodes[loss->node].op : "unknown");
        if (loss->predictions >= 0) {
            (void)printf(" of ");
            print_name(program, loss->predictions);
        }
        if (loss->targets >= 0) {
            (void)printf(" against ");
            print_name(program, loss->targets);
        }
        (void)printf("%s", loss->backward >= 0 ? "" : ", without backward");
        if (loss->node >= 0) {
            print_place(program, program->nodes[loss->node].place);
        }
        (void)putchar('\n');
    }
}

static void print_event(const sonde_program *program, const sonde_program_event *event)
{
    const bool modes =
        event->kind == SONDE_EVENT_FORWARD || event->kind == SONDE_EVENT_MODE;
    const bool computes =
        event->kind == SONDE_EVENT_FORWARD || event->kind == SONDE_EVENT_LOSS;

    (void)printf("  %s", sonde_event_name(event->kind));
    if (event->module >= 0) {
        (void)printf(" of %s", module_name(program, event->module));
    } else if (event->value >= 0) {
        (void)printf(" of ");
        print_name(program, event->value);
    } else if (event->optimizer >= 0) {
        (void)printf(" of %s", program->optimizers[event->optimizer].name);
    }
    (void)printf("%s%s%s", modes && event->training ? ", training mode" : "",
                 modes && !event->training ? ", evaluation mode" : "",
                 computes && !event->grad ? ", without gradients" : "");
    (void)printf("%s", computes && event->autocast ? ", under autocast" : "");
    print_attributes(event->attributes, ", ");
    print_place(program, event->place);
    (void)putchar('\n');
}

static void print_program(const sonde_program *program)
{
    if (!program->complete) {
        (void)printf("Not every operation is known%s%s.\n",
                     program->gap[0] != '\0' ? ": " : "", program->gap);
    }
    print_modules(program);
    print_inputs(program);
    (void)begin_part("Operations", program->node_count);
    for (size_t i = 0; i < program->node_count; i++) {
        print_node(program, &program->nodes[i]);
    }
    print_losses(program);
    print_parameters(program);
    print_optimizers(program);
    (void)begin_part("Events", program->event_count);
    for (size_t i = 0; i < program->event_count; i++) {
        print_event(program, &program->events[i]);
    }
    (void)begin_part("Facts", program->facts.count);
    for (size_t i = 0; i < program->facts.count; i++) {
        (void)printf("  %s=%s\n", program->facts.rows[i].name,
                     program->facts.rows[i].text);
    }
}

/* --- the command -------------------------------------------------------------------------- */

static bool has_program(const sonde_trial *trial, sonde_mode mode)
{
    char name[64];
    uint32_t id = 0;

    (void)snprintf(name, sizeof name, "program/%s", sonde_mode_name(mode));
    return sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, NULL) ==
           SONDE_OK;
}

/* The mode that was asked for; or the first that has a program, and train without any. */
static sonde_err choose_mode(const sonde_trial *trial, const char *asked,
                             sonde_mode *mode, sonde_diag *diag)
{
    cli_range range = {.mode = SONDE_MODE_TRAIN};

    if (asked != NULL) {
        SONDE__TRY(cli_range_parse(asked, NULL, CLI_NOT_GIVEN, &range, diag));
    }
    for (int i = 0; asked == NULL && i < SONDE_MODE_COUNT; i++) {
        if (has_program(trial, (sonde_mode)i)) {
            range.mode = (sonde_mode)i;
            break;
        }
    }
    *mode = range.mode;
    return SONDE_OK;
}

/* "runs/first: mode train, program 1 of 2, from step 0 on; by pytorch" */
static sonde_err print_head(const char *run, sonde_trial *trial,
                            const sonde_program *program, int64_t step, sonde_diag *diag)
{
    const char *mode = sonde_mode_name(program->mode);
    int64_t *steps = NULL;
    size_t count = 0, which = 0;
    char name[64];
    uint32_t id = 0;

    (void)snprintf(name, sizeof name, "program/%s", mode);
    SONDE__TRY(sonde_catalogue_find(sonde_trial_catalogue(trial), name, &id, diag));
    SONDE__TRY(sonde_trial_tensor_steps(trial, id, program->mode, SONDE_HOW_RAW, &steps,
                                        &count, diag));
    while (which < count && (step < 0 || steps[which] <= step)) {
        which++;
    }
    (void)printf("%s: mode %s, program %zu of %zu, from step %" PRId64 " on; by %s\n",
                 run, mode, which, count, which > 0 ? steps[which - 1] : 0,
                 program->producer[0] != '\0' ? program->producer : "an unnamed program");
    sonde_release(steps);
    return SONDE_OK;
}

static sonde_err print_text(const sonde_program *program, sonde_diag *diag)
{
    char *text = NULL;
    size_t length = 0;

    SONDE__TRY(sonde_program_text(program, &text, &length, diag));
    (void)puts(text);
    sonde_release(text);
    return SONDE_OK;
}

/* --- damage ------------------------------------------------------------------------------- */

/* The first defect, and how many there are. */
typedef struct defects {
    char first[SONDE_DIAG_LINE];
    size_t count;
} defects;

static void take_defect(void *user, const char *text)
{
    defects *found = user;

    if (found->count++ == 0) {
        (void)snprintf(found->first, sizeof found->first, "%s", text);
    }
}

/* A program that is not there may have been lost: says so where the run is damaged. */
static sonde_err explain_missing(const char *run, const sonde_trial *trial, sonde_err err,
                                 sonde_diag *diag)
{
    sonde_verify_report report = {0};
    defects found = {.count = 0};
    sonde_run_info info;

    sonde_trial_describe(trial, &info);
    if (info.workers < info.world) {
        return sonde__fail(diag, SONDE_EFORMAT, run, "a run that is whole",
                           "no program can be read, and the run has the folders of %d of "
                           "%d workers",
                           info.workers, info.world);
    }
    if (sonde_trial_verify(run, &report, take_defect, &found, NULL) != SONDE_OK ||
        found.count == 0) {
        return err;
    }
    return sonde__fail(diag, SONDE_EFORMAT, run,
                       "a run that is whole; 'sonde verify' lists all defects",
                       "no program can be read, and the run is damaged: %s", found.first);
}

static int run_program(const void *values, int argc, char **argv)
{
    const program_values *asked = values;
    const int64_t step = asked->step == CLI_NOT_GIVEN ? -1 : asked->step;
    sonde_mode mode = SONDE_MODE_TRAIN;
    sonde_program *program = NULL;
    sonde_trial *trial = NULL;
    sonde_diag diag = {0};
    sonde_err err = SONDE_OK;

    (void)argc;
    SONDE__TRY_DONE(sonde_trial_open(argv[0], NULL, &trial, &diag));
    SONDE__TRY_DONE(choose_mode(trial, asked->mode, &mode, &diag));
    err = sonde_trial_program(trial, mode, step, &program, &diag);
    if (err == SONDE_ENOTFOUND || err == SONDE_EFORMAT) {
        err = explain_missing(argv[0], trial, err, &diag);
    }
    SONDE__TRY_DONE(err);
    if (asked->json) {
        SONDE__TRY_DONE(print_text(program, &diag));
    } else {
        SONDE__TRY_DONE(print_head(argv[0], trial, program, step, &diag));
        print_program(program);
    }

done:
    sonde_program_destroy(program);
    sonde_trial_close(trial);
    return err == SONDE_OK ? CLI_OK : cli_fail(&diag);
}

#define OPTION(...) CLI_OPTION(program_values, __VA_ARGS__)

static const cli_option program_options[] = {
    OPTION("step", 0, CLI_SEED, "N", step,
           "print the program in force at this step (default: the last)"),
    OPTION("mode", 'm', CLI_TEXT, "MODE", mode,
           "print that of train, eval, predict or global (default: the first)"),
    OPTION("format", 0, CLI_FORMAT, "text|json", json,
           "print text, or the JSON object of docs/program.md (text)"),
};

const cli_command cli_program = {
    .name = "program",
    .arguments = "RUN",
    .summary = "print the program of a step: operations, modules, events, lines",
    .details =
        "Prints what a run knows of the program that made it: each operation with its inputs,\n"
        "type and line, the modules with their modes, the losses, the parameters and who\n"
        "holds them, and the events of a step in order. A value without a name is %N.",
    .examples = "  sonde program runs/first\n"
                "  sonde program runs/first --mode eval --format json",
    .options = program_options,
    .option_count = CLI_COUNT_OF(program_options),
    .least = 1,
    .most = 1,
    .values_size = sizeof(program_values),
    .run = run_program,
};
