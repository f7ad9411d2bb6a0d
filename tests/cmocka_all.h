/* cmocka.h needs these four before it; tests include this instead. */
#ifndef SONDE_TESTS_CMOCKA_ALL_H
#define SONDE_TESTS_CMOCKA_ALL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#endif
