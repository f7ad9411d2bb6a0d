#!/usr/bin/env bash
# The tables of docs/jobs.md are those of the library (tools/option-tables --fix writes them).
. "$(dirname "$0")/lib.sh"

root=$(cd "$SONDE_TEST_DIR/.." && pwd)
run 0 "$root/tools/option-tables" "$sonde"
same "$out" "$root/docs/jobs.md"
