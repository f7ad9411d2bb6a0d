#!/usr/bin/env bash
# The figures of the public programs on the pages are those of the last measurement (exam/public/results.toml).
root=$(cd "${SONDE_TEST_DIR:?}/.." && pwd)
[[ -e $root/exam/public/results.toml ]] || exit 77
python3 -c 'import tomllib' || exit 77
exec python3 -B "$root/exam/public/run.py" pages
