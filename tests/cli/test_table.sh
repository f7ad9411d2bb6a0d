#!/usr/bin/env bash
# A table from the command: its columns by name in training and evaluation, options that do not
# concern it, and what is in a file.
. "$(dirname "$0")/lib.sh"

awk 'BEGIN { print "a,b,c,kind"; for (i = 0; i < 60; i++) print i % 7 "," i % 3 "," i % 2 "," (i % 2 ? "odd" : "even") }' >t.csv
cat >t.yaml <<'END'
model: {input: [1], layers: [linear: {name: fc, out_features: 2}], loss: cross_entropy}
optimizer: {kind: adam, learning_rate: 0.1}
rules: none
options: {epochs: 20, batch_size: 9}
END
columns=(--data t.csv --data-target kind --data-inputs c --test-share 0.2 --split-seed 3)
run 0 "$sonde" train t.yaml "${columns[@]}" --no-pictures --quiet --mean 0.1
grep -q ' t.csv: mean 0.1 and std 0.5 are of pixels: not used$' "$err" || fail "$(cat "$err")"
run 0 "$sonde" eval t.yaml "${columns[@]}" --format json
python3 - "$out" <<'END' || fail "eval --format json: $(cat "$out")"
import json, sys
row = json.load(open(sys.argv[1]))
assert row["accuracy"] == 1.0 and row["samples"] == 12 and row["classes"] == ["even", "odd"], row
END
run 2 "$sonde" eval t.yaml "${columns[@]}" --data-target nothing
stderr_is "sonde: error: t.csv: no column 'nothing' (expected a, b, c, kind)"
run 2 "$sonde" eval t.yaml "${columns[@]}" --test-share 0
stderr_is "sonde: error: test_share: '0' (expected a number from 1e-06 to below 1)"

echo 'model: {input: [1, 4, 5, 6], layers: [flatten: {}, linear: {name: fc, out_features: 2}], loss: cross_entropy}' >deep.yaml
run 2 "$sonde" train deep.yaml --data t.csv --data-target kind --quiet
stderr_is "sonde: error: t.csv: samples of (3) (expected (1, 4, 5, 6))"

# no data at all: samples that are drawn
run 0 "$sonde" train fashion_cnn --synthetic 64 --epochs 1 --no-pictures --quiet --rules none
run 0 "$sonde" train lstm --synthetic 64 --epochs 1 --no-pictures --quiet --rules none
run 0 "$sonde" train gpt --synthetic 64 --epochs 1 --no-pictures --quiet --rules none

# what is in a table, and in arrays
run 0 "$sonde" data info t.csv
[ "$(sed -n '1p;$p' "$out")" = "t.csv: 60 rows
  kind                 2 texts                 " ] || fail "$(cat -A "$out")"
grep -q '^  c  *numbers  *mean 0.5, std 0.5, 0 to 1$' "$out" || fail "$(cat "$out")"
printf 'void,y\n,1\n,2\n' >void.csv
run 0 "$sonde" data info void.csv
grep -q '^  void  *numbers  *2 missing$' "$out" || fail "$(cat "$out")"
golden=$SONDE_TEST_DIR/golden/tables
run 0 "$sonde" data info "$golden/../optimizers.safetensors" --format json
head -1 "$out" | grep -q '"kind": "array"' || fail "$(head -1 "$out")"
mkdir both && cp "$golden/table.csv" both/train.csv && cp "$golden/table.csv" both/test.csv
run 0 "$sonde" data info both
[ "$(grep -c ': 90 rows$' "$out")" -eq 2 ] || fail "$(cat "$out")"
run 0 "$sonde" data info both --format json
[ "$(grep -c '"split": "test"' "$out")" -eq 9 ] || fail "$(cat "$out")"

# Parquet: read by Python, which may be missing
SONDE_CACHE=$PWD/cache SONDE_PYTHON=/nowhere/python run 2 "$sonde" data info "$golden/fast.parquet"
grep -q '^sonde: error: /nowhere/python: cannot start Python.*pip install sonde' "$err" || fail "$(cat "$err")"

# CIFAR-10's binary files become arrays
python=${SONDE_PYTHON:-python3}
package=$SONDE_BIN/../python
if PYTHONPATH=$package "$python" -c 'import numpy, sonde.data' 2>/dev/null; then
    mkdir cifar
    for name in data_batch_1 data_batch_4 test_batch; do
        "$python" -c 'import sys; sys.stdout.buffer.write(b"".join(bytes([i % 10]) + bytes([i]) * 3072 for i in range(20)))' >"cifar/$name.bin"
    done
    run 0 env PYTHONPATH="$package" "$python" -m sonde.data cifar10 cifar cifar10.npz
    run 0 "$sonde" data info cifar10.npz
    grep -q '^  x_train  *uint8 (40, 3, 32, 32)  *mean 9.5, ' "$out" || fail "$(cat "$out")"
    head -c 5000 cifar/test_batch.bin >cifar/data_batch_2.bin
    run 1 env PYTHONPATH="$package" "$python" -m sonde.data cifar10 cifar cifar10.npz
    grep -q 'ends within a record' "$err" || fail "$(cat "$err")"
fi
