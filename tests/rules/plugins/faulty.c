/*
 * faulty.c - a rule that goes wrong in a given way, in a given function, at a given step.
 */
#include <sonde/rule.h>

#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct faulty {
    const char *how, *in;
    int64_t at;
} faulty;

static const sonde_rule_param params[] = {
    {"how", SONDE_RULE_TEXT, "segv", 0, 0, "in which way", offsetof(faulty, how), false},
    {"in", SONDE_RULE_TEXT, "step", 0, 0, "in which function", offsetof(faulty, in),
     false},
    {"at", SONDE_RULE_COUNT, "3", 0, 0, "at which step", offsetof(faulty, at), false},
};
static const sonde_rule_need needs[] = {
    {.what = "everything", .how = SONDE_HOW_VITALS | SONDE_HOW_RAW}};

static int deeper(volatile int *from)
{
    volatile int here[256];

    here[0] = from[0] + 1;
    if (here[0] < 0) {
        return 0;
    }
    return deeper(here) + here[0];
}

static void corrupt_heap(void)
{
    void *volatile block = malloc(40);
    void *volatile same = block;

    free(block);
    free(same);
}

static void go_wrong(sonde_rule_run *run, const char *how)
{
    volatile int zero = 0;

    if (strcmp(how, "segv") == 0) {
        (void)raise(SIGSEGV);
    } else if (strcmp(how, "fpe") == 0) {
        zero = 7 / zero;
    } else if (strcmp(how, "abort") == 0) {
        abort();
    } else if (strcmp(how, "loop") == 0) {
        while (zero == 0) {
        }
    } else if (strcmp(how, "sleep") == 0) {
        (void)pause();
    } else if (strcmp(how, "stack") == 0) {
        (void)deeper(&zero);
    } else if (strcmp(how, "heap") == 0) {
        corrupt_heap();
    } else if (strcmp(how, "exit") == 0) {
        exit(7);
    } else if (strcmp(how, "close") == 0) {
        (void)close(3);
    } else if (strcmp(how, "scribble") == 0) {
        static const char noise[64] = "noise that is no message of any kind";

        (void)!write(3, noise, sizeof noise);
    } else if (strcmp(how, "fail") == 0) {
        sonde_rule_fail(run, "no more of %d", 7);
    }
}

static void here(sonde_rule_run *run, const char *in)
{
    const faulty *self = sonde_rule_state(run);

    if (strcmp(self->in, in) == 0) {
        go_wrong(run, self->how);
    }
}

static sonde_err init(sonde_rule_run *run, sonde_diag *diag)
{
    (void)diag;
    here(run, "init");
    return SONDE_OK;
}

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)info;
    (void)id;
    here(run, "wants");
    return 0;
}

static void observe(sonde_rule_run *run, sonde_rule_tensor *tensor,
                    const sonde_observation *seen)
{
    const faulty *self = sonde_rule_state(run);

    (void)tensor;
    if (seen->at.global_step == self->at) {
        here(run, "observe");
    }
}

static void step(sonde_rule_run *run)
{
    const faulty *self = sonde_rule_state(run);

    if (sonde_rule_at(run)->global_step == self->at) {
        here(run, "step");
    }
}

static void idle(sonde_rule_run *run, double seconds)
{
    (void)seconds;
    here(run, "idle");
}

static void finish(sonde_rule_run *run)
{
    here(run, "finish");
}

static void destroy(sonde_rule_run *run)
{
    here(run, "destroy");
}

static const sonde_rule rule = {
    .abi = SONDE_RULE_ABI,
    .name = "Faulty",
    .summary = "goes wrong",
    .condition = "When it is told to.",
    .advice = "Mend it.",
    .params = params,
    .param_count = sizeof params / sizeof params[0],
    .needs = needs,
    .need_count = 1,
    .state_size = sizeof(faulty),
    .init = init,
    .wants = wants,
    .observe = observe,
    .step = step,
    .idle = idle,
    .finish = finish,
    .destroy = destroy,
};
SONDE_RULE_PLUGIN(&rule);
