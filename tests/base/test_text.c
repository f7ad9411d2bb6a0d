/*
 * test_text.c - text that grows, UTF-8, JSON and the hash table.
 */
#include "alloc_failure.h"
#include "cmocka_all.h"

#include "base/number.h"
#include "base/table.h"
#include "base/utf8.h"

#include <sonde/json.h>
#include <sonde/text.h>

#include <jansson.h>

#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static void text_grows_to_what_is_appended(void **state)
{
    sonde_text text = {0};
    char expected[2048];
    const char *kept = NULL;

    (void)state;
    memset(expected, 'x', sizeof expected - 1);
    expected[sizeof expected - 1] = '\0';
    sonde_text_format(&text, "%d/%s/", 7, expected); /* longer than the first room */
    sonde_text_add(&text, "end");
    sonde_text_put(&text, "!?", 1);
    assert_false(text.failed);
    assert_int_equal(text.length, 2 + sizeof expected - 1 + 1 + 4);
    assert_int_equal(strlen(text.data), text.length);
    assert_string_equal(text.data + text.length - 6, "x/end!");
    kept = text.data;
    text.length = 0;
    sonde_text_add(&text, "again");
    assert_string_equal(text.data, "again");
    assert_ptr_equal(text.data, kept);
    text.failed = true; /* takes no more until the flag is cleared */
    sonde_text_add(&text, "!");
    assert_string_equal(text.data, "again");
    text.failed = false;
    sonde_text_add(&text, "!");
    assert_string_equal(text.data, "again!");
    sonde_text_fini(&text);
    assert_null(text.data);
    sonde_text_fini(NULL);
}

static void text_that_is_reserved_does_not_move(void **state)
{
    sonde_text text = {0};
    const char *before = NULL;

    (void)state;
    assert_int_equal(sonde_text_reserve(&text, 500), SONDE_OK);
    before = text.data;
    for (int i = 0; i < 500; i++) {
        sonde_text_add(&text, "y");
    }
    assert_ptr_equal(text.data, before);
    assert_int_equal(sonde_text_reserve(&text, SIZE_MAX), SONDE_ENOMEM);
    assert_int_equal(sonde_text_reserve(&text, SIZE_MAX - 1), SONDE_ENOMEM);
    assert_ptr_equal(text.data, before);
    sonde_text_fini(&text);
}

static void text_without_memory_fails_and_takes_no_more(void **state)
{
    bool failed = true;

    (void)state;
    for (size_t n = 0; failed; n++) {
        sonde_text text = {0};
        sonde_json json = {.text = &text};

        alloc_failure_begin(n);
        sonde_json_list(&json, NULL);
        for (int i = 0; i < 100; i++) {
            sonde_json_string(&json, NULL, "fourteen bytes");
        }
        sonde_json_end(&json);
        failed = text.failed;
        assert_true(failed || text.length == 100 * 17 + 1);
        sonde_text_fini(&text);
        assert_int_equal(alloc_failure_end(), 0);
    }
}

/* Against the definition: decode, and look at the code point. */
static size_t plain_length(const unsigned char *s)
{
    const size_t n = s[0] < 0x80 ? 1 : s[0] >> 5U == 6 ? 2 : s[0] >> 4U == 14 ? 3 : 4;
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    uint32_t code = n == 1 ? s[0] : s[0] & (0x7FU >> n);

    if (n == 4 && s[0] >> 3U != 30) {
        return 0;
    }
    for (size_t i = 1; i < n; i++) {
        if (s[i] >> 6U != 2) {
            return 0;
        }
        code = code << 6U | (s[i] & 0x3FU);
    }
    return code < least[n] || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000) ? 0
                                                                                   : n;
}

static void utf8_is_what_the_definition_says(void **state)
{
    static const unsigned char tails[][3] = {{0x80, 0x80, 0x80}, {0xBF, 0xBF, 0xBF},
                                             {0x80, 'x', 0},     {'x', 0, 0},
                                             {0, 0, 0},          {0x80, 0x80, 0}};

    (void)state;
    for (unsigned a = 1; a < 256; a++) {
        for (unsigned b = 0; b < 256; b++) {
            for (size_t t = 0; t < 6; t++) {
                const unsigned char s[5] = {(unsigned char)a, (unsigned char)b,
                                            tails[t][0], tails[t][1], 0};

                assert_int_equal(sonde__utf8_length((const char *)s), plain_length(s));
            }
        }
    }
    assert_true(sonde__utf8_valid("grün \xE2\x80\xA6 \xF0\x9F\x98\x80"));
    assert_true(sonde__utf8_valid(""));
    assert_false(sonde__utf8_valid("half \xE2\x80"));
}

static void json_has_commas_where_they_belong(void **state)
{
    sonde_text text = {0};
    sonde_json json = {.text = &text};

    (void)state;
    sonde_json_object(&json, NULL);
    sonde_json_list(&json, "empty");
    sonde_json_end(&json);
    sonde_json_list(&json, "shape");
    sonde_json_int(&json, NULL, -6);
    sonde_json_uint(&json, NULL, UINT64_MAX);
    sonde_json_object(&json, NULL);
    sonde_json_bool(&json, "yes", true);
    sonde_json_end(&json);
    sonde_json_end(&json);
    sonde_json_raw(&json, "raw", "[1]");
    sonde_json_format(&json, "time", "%.3f", 0.5);
    sonde_json_string(&json, "none", NULL);
    sonde_json_end(&json);
    assert_string_equal(text.data, "{\"empty\":[],\"shape\":[-6,18446744073709551615,"
                                   "{\"yes\":true}],\"raw\":[1],\"time\":0.500,"
                                   "\"none\":null}");
    sonde_text_fini(&text);
}

static void json_can_be_spaced(void **state)
{
    sonde_text text = {0};
    sonde_json json = {.text = &text, .spaced = true};

    (void)state;
    sonde_json_object(&json, NULL);
    sonde_json_int(&json, "a", 1);
    sonde_json_list(&json, "b");
    for (int i = 0; i < 2; i++) {
        sonde_json_lead(&json, "\n  ");
        sonde_json_int(&json, NULL, i);
    }
    sonde_json_end(&json);
    sonde_json_end(&json);
    assert_string_equal(text.data, "{\"a\": 1, \"b\": [\n  0,\n  1]}");
    sonde_text_fini(&text);
}

/* As deep as it goes, and taken out in parts. */
static void json_is_deep_and_comes_in_parts(void **state)
{
    sonde_text text = {0}, all = {0};
    sonde_json json = {.text = &text};
    json_t *parsed = NULL;

    (void)state;
    for (int i = 0; i < SONDE_JSON_DEPTH; i++) {
        sonde_json_list(&json, NULL);
    }
    for (int i = 0; i < SONDE_JSON_DEPTH; i++) {
        sonde_json_int(&json, NULL, i);
        sonde_json_int(&json, NULL, i);
        sonde_text_add(&all, text.data);
        text.length = 0;
        sonde_json_end(&json);
    }
    sonde_text_add(&all, text.data);
    assert_non_null(strstr(all.data, "[[0,0],1,1],2,2]"));
    parsed = json_loads(all.data, 0, NULL);
    assert_int_equal(json_array_size(parsed), 3);
    json_decref(parsed);
    sonde_text_fini(&text);
    sonde_text_fini(&all);
}

/* Read back by another's parser. */
static void json_strings_read_back(void **state)
{
    static const char plain[] = "a\"b\\c\n\x01 grün \xE2\x80\xA6";
    sonde_text text = {0};
    json_t *parsed = NULL;

    (void)state;
    sonde_text_add(&text, "\"");
    sonde_json_escape(&text, plain);
    sonde_text_add(&text, "\"");
    parsed = json_loads(text.data, JSON_DECODE_ANY, NULL);
    assert_string_equal(json_string_value(parsed), plain);
    json_decref(parsed);
    text.length = 0;
    sonde_json_escape(&text, "x\xFFy\xC0\x80");
    assert_string_equal(text.data, "x\xEF\xBF\xBDy\xEF\xBF\xBD\xEF\xBF\xBD");
    text.length = 0;
    sonde_json_escape(&text, "\x1F\x7F\xC2\x80\xC2\x9F\xC2\xA0"); /* the last is none */
    assert_string_equal(text.data, "\\u001f\\u007f\\u0080\\u009f\xC2\xA0");
    sonde_text_fini(&text);
}

static void json_numbers_read_back_exactly(void **state)
{
    static const double values[] = {0.1, 1.0 / 3.0, 5e-324, 1.7976931348623157e308, -2.5};
    sonde_text text = {0};
    sonde_json json = {.text = &text};

    (void)state;
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++) {
        text.length = 0;
        sonde_json_real(&json, NULL, values[i]);
        assert_true(sonde__strtod(text.data, NULL) == values[i]);
    }
    assert_string_equal(text.data, "-2.5");
    text.length = 0;
    sonde_json_list(&json, NULL);
    sonde_json_real(&json, NULL, NAN);
    sonde_json_real(&json, NULL, -INFINITY);
    sonde_json_real(&json, NULL, INFINITY);
    sonde_json_end(&json);
    assert_string_equal(text.data, "[\"NaN\",\"-Infinity\",\"Infinity\"]");
    sonde_text_fini(&text);
}

/* Under any locale: test_comma.sh runs this with a decimal comma. */
static void json_numbers_have_a_point(void **state)
{
    sonde_text text = {0};
    sonde_json json = {.text = &text};

    (void)state;
    sonde_json_list(&json, NULL);
    sonde_json_real(&json, NULL, 0.1);
    sonde_json_real(&json, NULL, 1.0 / 3.0);
    sonde_json_real(&json, NULL, -1.5e300);
    sonde_json_int(&json, NULL, INT64_MIN);
    sonde_json_format(&json, NULL, "%.3f", -0.25);
    sonde_json_format(&json, NULL, "%.3f", (double)-INFINITY);
    sonde_json_format(&json, NULL, "\"%s\"", "1,5");
    sonde_json_end(&json);
    assert_string_equal(text.data, "[0.1,0.3333333333333333,-1.5e+300,"
                                   "-9223372036854775808,-0.250,\"-Infinity\","
                                   "\"1,5\"]");
    sonde_text_fini(&text);
}

/* Reading and writing numbers leaves the program's own locale as it is. */
static void numbers_leave_the_locale_alone(void **state)
{
    const locale_t before = uselocale((locale_t)0);
    char mine[16], again[16], number[16], *end = NULL;

    (void)state;
    (void)snprintf(mine, sizeof mine, "%.1f", 1.5);
    assert_int_equal(sonde__snprintf(number, sizeof number, "%.1f", 1.5), 3);
    assert_string_equal(number, "1.5");
    assert_true(sonde__strtod("0.5;", &end) == 0.5);
    assert_string_equal(end, ";");
    assert_true(sonde__strtof("0.5;", &end) == 0.5F);
    assert_string_equal(end, ";");
    assert_true(uselocale((locale_t)0) == before);
    (void)snprintf(again, sizeof again, "%.1f", 1.5);
    assert_string_equal(again, mine);
}

/* Under any locale, Turkish among them. */
static void case_is_that_of_ascii(void **state)
{
    const char text[] = "x/FILE.txt";

    (void)state;
    assert_int_equal(sonde__strcasecmp("TITLE I", "title i"), 0);
    assert_true(sonde__strcasecmp("a", "B") < 0 && sonde__strcasecmp("ab", "a") > 0);
    assert_true(sonde__strcasecmp("\xC4", "\xE4") != 0);
    assert_int_equal(sonde__strncasecmp("INPUT_0", "input/1", 5), 0);
    assert_true(sonde__strncasecmp("INPUT_0", "input/1", 6) != 0);
    assert_ptr_equal(sonde__strcasestr(text, "file"), text + 2);
    assert_ptr_equal(sonde__strcasestr(text, ""), text);
    assert_null(sonde__strcasestr(text, "txts"));
    assert_int_equal(sonde__tolower('I'), 'i');
    assert_int_equal(sonde__toupper('i'), 'I');
    assert_int_equal(sonde__tolower('['), '[');
}

static bool is_number(const void *array, uint32_t index, const void *key)
{
    return ((const uint64_t *)array)[index] == *(const uint64_t *)key;
}

/* With a hash so bad that all keys of a kind meet. */
static void table_finds_what_was_added_and_nothing_else(void **state)
{
    uint64_t keys[1000];
    sonde__table table = {0};

    (void)state;
    for (uint32_t i = 0; i < 1000; i++) {
        keys[i] = (uint64_t)i * i;
        assert_int_equal(
            sonde__table_find(&table, keys[i] % 7, is_number, keys, &keys[i]),
            SONDE__TABLE_NONE);
        assert_true(sonde__table_reserve(&table));
        sonde__table_add(&table, keys[i] % 7, i);
    }
    for (uint32_t i = 0; i < 1000; i++) {
        assert_int_equal(
            sonde__table_find(&table, keys[i] % 7, is_number, keys, &keys[i]), i);
    }
    sonde__table_fini(&table);
}

static void json_that_is_too_deep_fails(void **state)
{
    sonde_text text = {0};
    sonde_json json = {.text = &text};

    (void)state;
    for (int i = 0; i < SONDE_JSON_DEPTH; i++) {
        sonde_json_list(&json, NULL);
    }
    assert_false(text.failed);
    for (int i = 0; i < 100; i++) {
        sonde_json_object(&json, NULL);
        sonde_json_int(&json, "x", i);
    }
    assert_true(text.failed);
    for (int i = 0; i < SONDE_JSON_DEPTH + 100; i++) {
        sonde_json_end(&json);
    }
    assert_int_equal(json.depth, 0);
    sonde_text_fini(&text);
    text.failed = false;
    sonde_json_end(&json); /* nothing is open */
    assert_true(text.failed);
    sonde_text_fini(&text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(text_grows_to_what_is_appended),
        cmocka_unit_test(text_that_is_reserved_does_not_move),
        cmocka_unit_test(text_without_memory_fails_and_takes_no_more),
        cmocka_unit_test(utf8_is_what_the_definition_says),
        cmocka_unit_test(json_has_commas_where_they_belong),
        cmocka_unit_test(json_can_be_spaced),
        cmocka_unit_test(json_is_deep_and_comes_in_parts),
        cmocka_unit_test(json_strings_read_back),
        cmocka_unit_test(json_numbers_read_back_exactly),
        cmocka_unit_test(json_numbers_have_a_point),
        cmocka_unit_test(numbers_leave_the_locale_alone),
        cmocka_unit_test(case_is_that_of_ascii),
        cmocka_unit_test(table_finds_what_was_added_and_nothing_else),
        cmocka_unit_test(json_that_is_too_deep_fails),
    };

    return cmocka_run_group_tests(tests, NULL, NULL);
}
