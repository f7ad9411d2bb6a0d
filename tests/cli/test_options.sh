#!/usr/bin/env bash
# Options of training as the pages describe them: printed as a job, floating-point exceptions,
# an action for each finding; and how many findings a run holds besides those of its record.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 320 --test 40 --quiet
train=("$sonde" train --no-pictures --no-eval --quiet)

# --- options are printed as a job: the same options, the same bits ------------------------
cat >job.yaml <<'END'
model:
  input: [1, 28, 28]
  layers: [flatten, linear: {name: fc, out_features: 010, bias: true}, relu: , linear: {name: out, out_features: 10}]
  loss: {cross_entropy: {name: loss, label_smoothing: 1e-1}}
data: {name: fashion-mnist, path: data}
observe: [{tensors: "out.weight,re:^f\\w", every: 100, print: true}]
optimizer: {kind: adam, learning_rate: 0.002}
options: {epochs: 2, batch_size: 20}
END
run 0 env SONDE_BATCH_SIZE=32 "$sonde" train job.yaml --print-options --epochs 1 --rules none
cp "$out" again.yaml
grep -qx '  epochs: 1' again.yaml && grep -qx '  batch_size: 32' again.yaml || fail "$(cat again.yaml)"
run 0 "$sonde" train again.yaml --print-options --format json
cp "$out" again.json
python3 -c 'import json; json.load(open("again.json"))' || fail "no JSON: $(cat again.json)"
run 0 "$sonde" train again.json --print-options
same "$out" again.yaml
[ ! -e sonde-out ] || fail "--print-options trains"
run 0 "${train[@]}" job.yaml --epochs 1 --batch-size 32 --rules none --out first
run 0 "${train[@]}" again.json --out second
cmp first/model.safetensors second/model.safetensors || fail "the printed job trains other weights"
run 0 "$sonde" train --print-options --epochs 1
cp "$out" cnn.yaml
run 0 "${train[@]}" cnn.yaml --data data --out cnn
run 0 "${train[@]}" fashion_cnn --epochs 1 --data data --out named
cmp cnn/model.safetensors named/model.safetensors || fail "fashion_cnn is printed as another network"

# --- floating-point exceptions ------------------------------------------------------------
cat >nan.yaml <<'END'
model:
  input: [1, 28, 28]
  layers: [flatten, linear: {name: fc, out_features: 10}, exp: {name: e}, linear: {name: out, out_features: 10}]
  loss: {cross_entropy: {name: loss}}
data: {name: fashion-mnist, path: data}
optimizer: {kind: sgd, learning_rate: 1000}
options: {epochs: 1, batch_size: 20}
END
run 2 "${train[@]}" nan.yaml --floating-point-exceptions --rules none --out nan
grep -qE '^sonde: error: e_output_0: Exp in e makes inf at element [0-9]+ of 200, step [0-9]+, micro-batch 0, replica 0 \(expected finite numbers\)$' "$err" ||
    fail "$(cat "$err")"

# --- an action for each finding, or once for a rule ---------------------------------------
count() { [ "$(grep -c . "$1")" -eq "$2" ] || fail "$1 has $(grep -c . "$1") lines, not $2"; }
rule="TensorVariance:max_threshold=0"
run 0 "${train[@]}" job.yaml --epochs 1 --rules "$rule" --record recorded --out out \
    --rules-every 1 --on-finding 'any=command:echo x >>once'
count once 1
tensors=$(grep -o '"id":"[0-9a-f]*"' recorded/findings/TensorVariance.jsonl | sort -u | wc -l)
[ "$tensors" -gt 1 ] || fail "$tensors findings"
run 0 "${train[@]}" job.yaml --epochs 1 --rules "$rule" --out out --rules-every 1 --each \
    --on-finding 'any=command:echo x >>each'
count each "$tensors"
run 1 "$sonde" rules recorded --rules "$rule" --on-finding 'any=command:echo x >>again-once'
count again-once 1
run 1 "$sonde" rules recorded --rules "$rule" --each --on-finding 'any=command:echo x >>again-each'
count again-each "$(grep -c '^step ' "$out")"

# --- findings that are stored, and are not of this record ---------------------------------
run 0 "$sonde" rules recorded --rules "${rule%=0}=1e9"
[ "$(tail -1 "$out")" = "recorded/findings: $tensors more findings of these rules, made from data that was not recorded or with other parameters" ] ||
    fail "$(cat "$out")"
