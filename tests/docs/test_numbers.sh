#!/usr/bin/env bash
# The limits and defaults on the pages are the program's (tests/docs/numbers.py).
exec python3 -B "${SONDE_TEST_DIR:?}/docs/numbers.py"
