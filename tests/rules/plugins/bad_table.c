/*
 * bad_table.c - plug-ins that cannot be: BAD says in which way. The CMake list and the
 * test's table count them alike.
 */
#include <sonde/rule.h>

typedef struct state {
    double limit;
} state;

static sonde_rule_param params[] = {
    {"limit", SONDE_RULE_REAL, BAD == 22 ? "-1" : "1", 0, 10, BAD == 23 ? NULL : "h",
     BAD == 6    ? sizeof(state)
     : BAD == 19 ? 4
                 : 0,
     false},
    {BAD == 18 ? "Limit" : "other", SONDE_RULE_FLAG, "yes", 0, 0, "h", 0, false},
};
static sonde_rule_need needs[] = {{.what = "w",
                                   .how = BAD == 10   ? 0
                                          : BAD == 11 ? SONDE_HOW_RAW
                                                      : SONDE_HOW_VITALS}};

static int wants(sonde_rule_run *run, const sonde_tensor_info *info, uint32_t id)
{
    (void)run;
    (void)info;
    (void)id;
    return BAD == 21 ? 7 : 0;
}

#if BAD == 17
int nobody_has_this(void);
static void step(sonde_rule_run *run)
{
    (void)run;
    (void)nobody_has_this();
}
#else
static void step(sonde_rule_run *run)
{
    (void)run;
}
#endif

static const sonde_rule rule = {
    .abi = BAD == 16 ? SONDE_RULE_ABI + 1 : SONDE_RULE_ABI,
    .name = BAD == 4    ? NULL
            : BAD == 7  ? "deadrelu"
            : BAD == 14 ? "../../Evil"
                        : "Bad",
    .summary = BAD == 24 ? NULL : "s",
    .condition = "c",
    .advice = "a",
    .params = BAD == 25 ? NULL : params,
    .param_count = BAD == 26 ? 1000000 : 2,
    .needs = needs,
    .need_count = 1,
    .modes = BAD == 20 ? 1U << 9 : 0,
    .state_size = BAD == 5 ? (size_t)1 << 60 : sizeof(state),
    .wants = BAD == 15 ? NULL : wants,
    .step = step,
};

#if BAD == 1 || BAD == 2
static const sonde_rule *const rules[] = {&rule};
SONDE_RULE_PLUGIN_EXTERN const sonde_rule_plugin sonde_rule_plugin_table;
const sonde_rule_plugin sonde_rule_plugin_table = {
    BAD == 1 ? 99 : SONDE_RULE_ABI, BAD == 2 ? 8 : sizeof(sonde_rule), rules, 1};
#elif BAD == 3
SONDE_RULE_PLUGIN_EXTERN const sonde_rule *const something_else;
const sonde_rule *const something_else = &rule;
#elif BAD == 12 || BAD == 13
SONDE_RULE_PLUGIN_EXTERN const sonde_rule_plugin sonde_rule_plugin_table;
const sonde_rule_plugin sonde_rule_plugin_table = {SONDE_RULE_ABI, sizeof(sonde_rule),
                                                   NULL, BAD == 12 ? 0 : 1};
extern const sonde_rule *const used;
const sonde_rule *const used = &rule;
#elif BAD == 9
SONDE_RULE_PLUGIN(&rule, NULL);
#elif BAD == 8
SONDE_RULE_PLUGIN(&rule, &rule);
#else
SONDE_RULE_PLUGIN(&rule);
#endif
