/*
 * runner.c - the program of one room's tests; it runs the test that its first argument
 * names.
 *
 *     tests_base test_seams       runs tests/base/test_seams.c
 *     tests_base                  lists the tests
 *
 * The build defines TESTS(X) as X(test_a) X(test_b) ..., one for each test of the room.
 * CTest runs every test in a process of its own. SONDE_TEST_LOCALE names the locale that
 * it sets first, as a program may that uses the library; status 77: it is not installed.
 */
#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define DECLARE(name) int name(int argc, char **argv);
TESTS(DECLARE)

static const struct {
    const char *name;
    int (*run)(int argc, char **argv);
} tests[] = {
#define ROW(name) {#name, name},
    TESTS(ROW)};

int main(int argc, char **argv)
{
    const char *const locale = getenv("SONDE_TEST_LOCALE");

    if (locale != NULL && setlocale(LC_ALL, locale) == NULL) {
        return 77;
    }
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        if (argc < 2) {
            (void)puts(tests[i].name);
        } else if (strcmp(argv[1], tests[i].name) == 0) {
            return tests[i].run(argc - 1, argv + 1);
        }
    }
    if (argc > 1) {
        (void)fprintf(stderr, "%s: no such test\n", argv[1]);
    }
    return argc < 2 ? 0 : 2;
}
