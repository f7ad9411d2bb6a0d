/*
 * test_selector.c - every way of naming tensors, and every way of getting it wrong.
 */
#include "cmocka_all.h"

#include "base/clock.h"
#include "base/macros.h"
#include "base/random.h"
#include "observe/tensor_names.h"
#include "observe/network.h"

#include <sonde/error.h>
#include <sonde/selector.h>

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

/* Resolves text and compares with the ids listed, which SONDE_NO_TENSOR ends. */
static void expect_ids(const sonde_catalogue *catalogue, const sonde_selector *selector,
                       const uint32_t *expected)
{
    uint32_t *ids = NULL;
    size_t count = 0, i = 0;

    assert_int_equal(sonde_selector_resolve(selector, catalogue, &ids, &count, NULL),
                     SONDE_OK);
    for (i = 0; expected[i] != SONDE_NO_TENSOR; i++) {
        assert_true(i < count);
        assert_int_equal(ids[i], expected[i]);
    }
    assert_int_equal(count, i);
    sonde_release(ids);
}

#define END SONDE_NO_TENSOR
#define SELECTS(text, ...)                                                               \
    do {                                                                                 \
        sonde_selector *selector_ = NULL;                                                \
        const uint32_t ids_[] = {__VA_ARGS__};                                           \
        assert_int_equal(sonde_selector_create(text, &selector_, NULL), SONDE_OK);       \
        assert_string_equal(sonde__selector_text(selector_), text);                      \
        expect_ids(*state, selector_, ids_);                                             \
        sonde_selector_destroy(selector_);                                               \
    } while (0)

static void exact_names(void **state)
{
    SELECTS("fc1.weight", NET_FC_WEIGHT, END);
    SELECTS("model.fc1.weight", NET_FC_WEIGHT, END);
    SELECTS("  fc1_output\t", NET_FC_OUT, END);
    SELECTS("fc1_input_0", NET_FC_IN, END);
}

static void globs(void **state)
{
    SELECTS("fc1.*", NET_FC_WEIGHT, NET_FC_BIAS, END);
    SELECTS("*.bias", NET_CONV_BIAS, NET_FC_BIAS, END);
    SELECTS("fc[1-3].?eight", NET_FC_WEIGHT, END);
    SELECTS("model.fc1.*", NET_FC_WEIGHT, NET_FC_BIAS, END);
    SELECTS("Gradient___model.*", NET_GRAD_CONV_WEIGHT, NET_GRAD_FC_WEIGHT,
            NET_GRAD_FC_OUT, END);
    SELECTS("glob:loss", NET_LOSS, END);
    SELECTS("glob:los", END);
    SELECTS("fc1*put*", NET_FC_OUT, NET_FC_IN, END);
    SELECTS("nothing*", END);
}

static void regular_expressions(void **state)
{
    SELECTS("re:^Gradient___.*weight", NET_GRAD_CONV_WEIGHT, NET_GRAD_FC_WEIGHT, END);
    SELECTS("re:bias", NET_CONV_BIAS, NET_FC_BIAS, END); /* found anywhere */
    SELECTS("re:^(?!.*___).*\\.weight$", NET_CONV_WEIGHT, NET_FC_WEIGHT, END);
    SELECTS("re:s{1\\,2}$", NET_CONV_BIAS, NET_FC_BIAS, NET_LOSS, END);
    SELECTS("re:(?i)LOSS", NET_LOSS, END);
    SELECTS("re:nothing", END);
}

/* --- threads -------------------------------------------------------------------------- */

enum { SHARING = 4, TURNS = 200 };

typedef struct sharing {
    const sonde_catalogue *catalogue;
    const sonde_selector *selector;
    int wrong; /* answers */
} sharing;

static void *resolve_often(void *user)
{
    sharing *mine = user;

    for (int i = 0; i < TURNS; i++) {
        uint32_t *ids = NULL;
        size_t count = 0;

        mine->wrong += sonde_selector_resolve(mine->selector, mine->catalogue, &ids,
                                              &count, NULL) != SONDE_OK ||
                       count != 2 || ids[0] != NET_GRAD_CONV_WEIGHT ||
                       ids[1] != NET_GRAD_FC_WEIGHT;
        sonde_release(ids);
    }
    return NULL;
}

static void threads_share_a_selector(void **state)
{
    sonde_selector *selector = NULL;
    pthread_t threads[SHARING];
    sharing work[SHARING];

    assert_int_equal(sonde_selector_create("re:^Gradient___.*weight", &selector, NULL),
                     SONDE_OK);
    for (int i = 0; i < SHARING; i++) {
        work[i] = (sharing){*state, selector, 0};
        assert_int_equal(pthread_create(&threads[i], NULL, resolve_often, &work[i]), 0);
    }
    for (int i = 0; i < SHARING; i++) {
        assert_int_equal(pthread_join(threads[i], NULL), 0);
        assert_int_equal(work[i].wrong, 0);
    }
    sonde_selector_destroy(selector);
}

static void a_regular_expression_may_hold_commas(void **state)
{
    static const uint32_t expected[] = {NET_LOSS, END};
    sonde_selector *selector = NULL;

    assert_int_equal(sonde__selector_create_regex("s{2,3}$", &selector, NULL), SONDE_OK);
    expect_ids(*state, selector, expected);
    sonde_selector_destroy(selector);
}

static void collections_singular_and_plural(void **state)
{
    SELECTS("@weight", NET_CONV_WEIGHT, NET_FC_WEIGHT, END);
    SELECTS("@weights", NET_CONV_WEIGHT, NET_FC_WEIGHT, END);
    SELECTS("@biases", NET_CONV_BIAS, NET_FC_BIAS, END);
    SELECTS("@gradients", NET_GRAD_CONV_WEIGHT, NET_GRAD_FC_WEIGHT, END);
    SELECTS("@activation_gradients", NET_GRAD_FC_OUT, END);
    SELECTS("@losses", NET_LOSS, END);
    SELECTS("@updates", NET_UPDATED_FC_WEIGHT, END);
    SELECTS("@optimizer_state", NET_ACCL_FC_WEIGHT, END);
    SELECTS("@outputs", NET_CONV_OUT, NET_RELU_OUT, NET_FC_OUT, END);
    SELECTS("@inputs", NET_INPUT, NET_FC_IN, END); /* an alias, by its own role */
    SELECTS("@buffers", END);
    SELECTS("@all", 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, END); /* no alias */
}

/* Every role has its own name and a plural. */
static void every_role_is_a_collection(void **state)
{
    (void)state;
    for (int role = 0; role < SONDE_ROLE_COUNT; role++) {
        const char *name = sonde_role_name((sonde_role)role);
        char text[64];
        sonde_selector *selector = NULL;

        (void)snprintf(text, sizeof text, "@%s,@%s%s", name, name,
                       name[strlen(name) - 1] == 's' ? "es" : "s");
        assert_int_equal(sonde_selector_create(text, &selector, NULL), SONDE_OK);
        sonde_selector_destroy(selector);
    }
}

static void modules_hold_what_is_inside(void **state)
{
    SELECTS("module:layer1", NET_CONV_WEIGHT, NET_CONV_BIAS, NET_CONV_OUT,
            NET_GRAD_CONV_WEIGHT, END);
    SELECTS("module:model.layer1.conv", NET_CONV_WEIGHT, NET_CONV_BIAS, NET_CONV_OUT,
            NET_GRAD_CONV_WEIGHT, END);
    SELECTS("module:relu", NET_RELU_OUT, END);
    SELECTS("module:fc1", NET_FC_WEIGHT, NET_FC_BIAS, NET_FC_OUT, NET_GRAD_FC_WEIGHT,
            NET_GRAD_FC_OUT, NET_UPDATED_FC_WEIGHT, NET_ACCL_FC_WEIGHT, NET_FC_IN, END);
}

static void lists_are_unions_each_id_once(void **state)
{
    SELECTS("loss,fc1.bias, @bias ,re:^loss$", NET_CONV_BIAS, NET_FC_BIAS, NET_LOSS, END);
}

static void a_backslash_takes_a_comma(void **state)
{
    static const sonde_tensor_info odd = {.name = "a,b", .same_as = UINT32_MAX};
    uint32_t id = 0;

    assert_int_equal(sonde_catalogue_declare(*state, &odd, &id, NULL), SONDE_OK);
    SELECTS("a\\,b", id, END);
    SELECTS("loss,a\\,?", NET_LOSS, id, END);
}

static void expect_line(const char *text, sonde_err err, const char *line)
{
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    char got[SONDE_DIAG_LINE];

    assert_int_equal(sonde_selector_create(text, &selector, &diag), err);
    assert_null(selector);
    assert_string_equal(sonde_diag_line(&diag, got, sizeof got), line);
}

static void malformed_text_is_refused_with_the_position(void **state)
{
    (void)state;
    expect_line(
        "", SONDE_EINVAL,
        "nothing at character 1 (expected a name, pattern, collection or module)");
    expect_line(
        "loss,,fc1", SONDE_EINVAL,
        "loss,,fc1: nothing at character 6 (expected a name, pattern, collection or "
        "module)");
    expect_line("loss,", SONDE_EINVAL,
                "loss,: nothing at character 6 (expected a name, pattern, collection or "
                "module)");
    expect_line("re:", SONDE_EINVAL,
                "re:: nothing at character 4 (expected a name, pattern, collection or "
                "module)");
    expect_line("loss, re:(ab", SONDE_EINVAL,
                "loss, re:(ab: missing closing parenthesis at character 13 (expected a "
                "Perl-compatible regular expression)");
    expect_line(
        "re:a\\,b\\,[c", SONDE_EINVAL,
        "re:a\\,b\\,[c: missing terminating ] for character class at character 12 "
        "(expected a Perl-compatible regular expression)");
    expect_line("loss,a\\,b[x", SONDE_EINVAL,
                "loss,a\\,b[x: '[' is not closed at character 10 (expected a glob of * ? "
                "[a-z] [!a-z])");
    expect_line("w[z-a]", SONDE_EINVAL,
                "w[z-a]: the range runs backwards at character 3 (expected a glob of * ? "
                "[a-z] [!a-z])");
    expect_line("*\\", SONDE_EINVAL,
                "*\\: nothing follows a backslash at character 2 (expected a glob of "
                "* ? [a-z] [!a-z])");
    expect_line("loss,@wieghts", SONDE_EINVAL,
                "loss,@wieghts: unknown collection 'wieghts' at character 7 (expected a "
                "collection such as weights or weight)");
}

static void unknown_collections_list_all(void **state)
{
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};

    (void)state;
    assert_int_equal(sonde_selector_create("@zzzzzz", &selector, &diag), SONDE_EINVAL);
    assert_non_null(strstr(diag.expected, "all, weights, biases"));
    assert_non_null(strstr(diag.expected, "or others"));
}

static void expect_unresolved(const sonde_catalogue *catalogue, const char *text,
                              const char *line)
{
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    char got[SONDE_DIAG_LINE];
    uint32_t *ids = NULL;
    size_t count = 99;

    assert_int_equal(sonde_selector_create(text, &selector, NULL), SONDE_OK);
    assert_int_equal(sonde_selector_resolve(selector, catalogue, &ids, &count, &diag),
                     SONDE_ENOTFOUND);
    assert_null(ids);
    assert_int_equal(count, 99);
    assert_string_equal(sonde_diag_line(&diag, got, sizeof got), line);
    sonde_selector_destroy(selector);
}

static void unknown_names_and_modules_are_errors(void **state)
{
    expect_unresolved(*state, "loss,fc1.biass",
                      "unknown tensor 'fc1.biass' (expected a name such as fc1.bias)");
    expect_unresolved(
        *state, "module:layer1.cnov",
        "unknown module 'layer1.cnov' (expected a module such as layer1.conv)");
    expect_unresolved(*state, "module:layer",
                      "unknown module 'layer' (expected a module such as layer1.conv)");
    expect_unresolved(*state, "module:zz",
                      "unknown module 'zz' (expected a module that has tensors)");
}

/* (a+)+ against a long run of a: exponential without the limit. */
static void a_catastrophic_expression_ends_in_an_error(void **state)
{
    char name[64] = {0};
    sonde_tensor_info info = {.name = name, .same_as = UINT32_MAX};
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    uint32_t *ids = NULL, id = 0;
    size_t count = 0;
    double seconds = 0;

    memset(name, 'a', 60);
    assert_int_equal(sonde_catalogue_declare(*state, &info, &id, NULL), SONDE_OK);
    assert_int_equal(sonde_selector_create("re:^(a+)+\\d$|b", &selector, NULL), SONDE_OK);
    seconds = sonde__now();
    assert_int_equal(sonde_selector_resolve(selector, *state, &ids, &count, &diag),
                     SONDE_EINVAL);
    seconds = sonde__now() - seconds;
    assert_true(seconds < 1.0);
    assert_non_null(strstr(diag.found, "takes too many steps"));
    assert_non_null(strstr(diag.found, name));
    assert_string_equal(diag.where, "re:^(a+)+\\d$|b");
    sonde_selector_destroy(selector);
}

static void regular_expressions_cannot_grow_without_bound(void **state)
{
    sonde_selector *selector = NULL;
    sonde_diag diag = {0};
    char *text = malloc(80000);

    (void)state;
    memset(text, 'a', 79999);
    memcpy(text, "re:", 3);
    text[79999] = '\0';
    assert_int_equal(sonde_selector_create(text, &selector, &diag), SONDE_EINVAL);
    assert_int_equal(
        sonde_selector_create("re:(((a{999}){999}){999}){999}", &selector, &diag),
        SONDE_EINVAL);
    assert_int_equal(sonde_selector_create("re:(*UTF)\xff", &selector, &diag),
                     SONDE_EINVAL);
    free(text);
}

static void globs_match_as_defined(void **state)
{
    static const struct {
        const char *pattern, *text;
        bool matches;
    } cases[] = {
        {"", "", true},
        {"", "a", false},
        {"*", "", true},
        {"*", "abc", true},
        {"a*", "abc", true},
        {"*c", "abc", true},
        {"a*b*c", "aXbYc", true},
        {"a*b*c", "aXbY", false},
        {"*ab", "aab", true},
        {"?", "", false},
        {"??", "ab", true},
        {"[abc]", "b", true},
        {"[!abc]", "b", false},
        {"[^abc]", "d", true},
        {"[a-c]x", "bx", true},
        {"[]]", "]", true},
        {"[!]]", "]", false},
        {"[a-]", "-", true},
        {"[\\]]", "]", true},
        {"[+-\\]]", "A", true},
        {"\\*", "*", true},
        {"\\*", "a", false},
        {"a\\?", "a?", true},
        {"*.*.*", "a.b", false},
        {"*a*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false},
    };

    (void)state;
    for (size_t i = 0; i < SONDE_COUNT_OF(cases); i++) {
        size_t at = 0;

        assert_null(sonde__observe_glob_check(cases[i].pattern, &at));
        assert_int_equal(sonde__observe_glob_match(cases[i].pattern, cases[i].text),
                         cases[i].matches);
    }
}

/* The matcher by definition: recursive, for * ? and letters. */
static bool glob_by_definition(const char *p, const char *s)
{
    if (*p == '\0') {
        return *s == '\0';
    }
    if (*p == '*') {
        return glob_by_definition(p + 1, s) ||
               (*s != '\0' && glob_by_definition(p, s + 1));
    }
    return *s != '\0' && (*p == '?' || *p == *s) && glob_by_definition(p + 1, s + 1);
}

static void random_globs_follow_the_definition(void **state)
{
    int matched = 0;

    (void)state;
    for (uint64_t n = 0; n < 20000; n++) {
        char pattern[9] = {0}, text[9] = {0};
        const uint64_t np = sonde__below(3, 0, n, 8), nt = sonde__below(3, 1, n, 8);

        for (uint64_t i = 0; i < np; i++) {
            pattern[i] = "**?ab"[sonde__below(3, 2 + i, n, 5)];
        }
        for (uint64_t i = 0; i < nt; i++) {
            text[i] = "ab"[sonde__below(3, 20 + i, n, 2)];
        }
        assert_int_equal(sonde__observe_glob_match(pattern, text),
                         glob_by_definition(pattern, text));
        matched += sonde__observe_glob_match(pattern, text);
    }
    assert_true(matched > 1000 && matched < 19000);
}

static sonde_err create_and_resolve(void *user)
{
    sonde_selector *selector = NULL;
    uint32_t *ids = NULL;
    size_t count = 0;
    sonde_err err = sonde_selector_create("loss,fc*,re:^fc(1|2)+,@weights,module:fc1,"
                                          "re:bias,re:(?<a>b|c)\\k<a>,a*,b*",
                                          &selector, NULL);

    if (err == SONDE_OK) {
        err = sonde_selector_resolve(selector, user, &ids, &count, NULL);
        sonde_release(ids);
    }
    sonde_selector_destroy(selector);
    return err;
}

static void no_allocation_failure_is_lost(void **state)
{
    assert_true(net_alloc_failures(create_and_resolve, *state) > 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(exact_names),
        cmocka_unit_test(globs),
        cmocka_unit_test(regular_expressions),
        cmocka_unit_test(threads_share_a_selector),
        cmocka_unit_test(a_regular_expression_may_hold_commas),
        cmocka_unit_test(collections_singular_and_plural),
        cmocka_unit_test(every_role_is_a_collection),
        cmocka_unit_test(modules_hold_what_is_inside),
        cmocka_unit_test(lists_are_unions_each_id_once),
        cmocka_unit_test_setup_teardown(a_backslash_takes_a_comma, net_set_up,
                                        net_tear_down),
        cmocka_unit_test(malformed_text_is_refused_with_the_position),
        cmocka_unit_test(unknown_collections_list_all),
        cmocka_unit_test(unknown_names_and_modules_are_errors),
        cmocka_unit_test_setup_teardown(a_catastrophic_expression_ends_in_an_error,
                                        net_set_up, net_tear_down),
        cmocka_unit_test(regular_expressions_cannot_grow_without_bound),
        cmocka_unit_test(globs_match_as_defined),
        cmocka_unit_test(random_globs_follow_the_definition),
        cmocka_unit_test(no_allocation_failure_is_lost),
    };

    return cmocka_run_group_tests(tests, net_set_up, net_tear_down);
}
