/*
 * entry.h - makes a test's main() one entry of its room's program
 * (tests/support/runner.c).
 *
 * The build includes it before every test and defines TEST_ENTRY as the test's name.
 */
int TEST_ENTRY(int argc, char **argv);

#define main(...)                                                                        \
    TEST_ENTRY(__attribute__((unused)) int argc, __attribute__((unused)) char **argv)
