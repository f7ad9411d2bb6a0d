#!/usr/bin/env bash
# docs/rules.md says of each rule what the command says of it (tools/rule-pages --fix writes it).
. "$(dirname "$0")/lib.sh"

root=$(cd "$SONDE_TEST_DIR/.." && pwd)
run 0 "$root/tools/rule-pages" "$sonde"
same "$out" "$root/docs/rules.md"
