#!/usr/bin/env bash
# A table from the command: its columns by name in training and evaluation, and options that do
# not concern it.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { print "a,b,c,kind"; for (i = 0; i < 60; i++) print i % 7 "," i % 3 "," i % 2 "," (i % 2 ? "odd" : "even") }' >t.csv
cat >t.yaml <<'END'
model: {input: [1], layers: [linear: {name: fc, out: 2}], loss: cross_entropy}
optimizer: {kind: adam, learning_rate: 0.1}
rules: none
options: {epochs: 20, batch_size: 9}
END
columns=(--data t.csv --data-target kind --data-inputs c --test-share 0.2 --split-seed 3)
run 0 "$sonde" train t.yaml "${columns[@]}" --no-pictures --quiet --mean 0.1
grep -q ' t.csv: mean 0.1 and std 0.5 are of pixels: not used$' "$err" || fail "$(cat "$err")"
run 0 "$sonde" eval -m t.yaml "${columns[@]}" --json
python3 - "$out" <<'END' || fail "eval --json: $(cat "$out")"
import json, sys
row = json.load(open(sys.argv[1]))
assert row["accuracy"] == 1.0 and row["samples"] == 12 and row["classes"] == ["even", "odd"], row
END
run 2 "$sonde" eval -m t.yaml "${columns[@]}" --data-target nothing
stderr_is "sonde: error: t.csv: no column 'nothing' (expected a, b, c, kind)"
run 2 "$sonde" eval -m t.yaml "${columns[@]}" --test-share 0
stderr_is "sonde: error: test_share: '0' (expected a number from 1e-06 to below 1)"
