#!/usr/bin/env bash
# ONNX files where job files may stand: train, eval, tensors; taps, rules and recording by the
# names of the file; mistakes.
. "$(dirname "$0")/lib.sh"

# The extension is beside the programs, or not built (under sanitizers); onnx is an extra.
[ -e "$SONDE_BIN/../python/sonde/_sonde.abi3.so" ] &&
    "${SONDE_PYTHON:-python3}" -c 'import numpy, onnx' 2>/dev/null || exit 77
golden=$SONDE_TEST_DIR/golden/onnx
cp "$golden/digits_new.onnx" digits.onnx
run 0 "$sonde" data synth --out data --train 600 --test 200

# listed under the file's names, and PyTorch's
run 0 "$sonde" tensors digits.onnx --names
for name in input 1.weight linear relu Gradient___linear_1 1_output_0 Gradient___3.bias; do
    grep -qxF "$name" "$out" || fail "tensors lacks $name: $(cat "$out")"
done

# trained and recorded
run 0 "$sonde" train digits.onnx --data-name fashion-synth --data data --out one --epochs 8 \
    --learning-rate 0.1 --record one/run --save-all --record-every 10
accuracy=$(grep '^Eval accuracy' "$out")
percent=${accuracy//[!0-9.]/}
[ "${percent%.*}" -ge 30 ] || fail "$accuracy after eight epochs"
run 0 "$sonde" verify one/run
run 0 "$sonde" query one/run relu --step 10 --stat mean
run 0 "$sonde" rules one/run

# the weights that were saved, and the file's own
run 0 "$sonde" eval digits.onnx --weights one/model.safetensors --data data --quiet
[ "$(cat "$out")" = "$accuracy" ] || fail "eval says $(cat "$out"), training said $accuracy"
run 0 "$sonde" eval digits.onnx --data data --quiet
[ "$(cat "$out")" != "$accuracy" ] || fail "the file's own weights are not evaluated"

# a job around it, in a folder of its own
mkdir jobs
mv digits.onnx jobs
cat >jobs/job.yaml <<END
model: {onnx: digits.onnx, loss: {cross_entropy: {label_smoothing: 0.1}}}
data: {name: fashion-synth}
optimizer: {kind: adam, learning_rate: 0.002}
observe:
  - {tensors: Gradient___3.bias, every: 1000, print: true}
rules: {judge: [LossNotDecreasing], stop_on: error}
END
run 0 "$sonde" train jobs/job.yaml --data data --out two
grep -q 'Gradient___3.bias' "$out" "$err" || fail "the tap printed nothing: $(cat "$out" "$err")"

# mistakes
printf 'model: {onnx: gone.onnx}\n' >gone.yaml
run 2 "$sonde" tensors gone.yaml
grep -q 'gone.onnx: cannot open: No such file' "$err" || fail "$(cat "$err")"
head -c 1000 jobs/digits.onnx >short.onnx
run 2 "$sonde" tensors short.onnx
stderr_is "sonde: error: short.onnx: damaged, cut short, or not an ONNX file (expected an ONNX file)"
SONDE_PYTHON=/nowhere/python3 run 2 "$sonde" tensors jobs/digits.onnx
grep -q '/nowhere/python3: cannot start Python: No such file or directory (expected .*pip install' \
    "$err" || fail "$(cat "$err")"
printf 'model: {onnx: jobs/digits.onnx, layers: []}\n' >both.yaml
run 2 "$sonde" tensors both.yaml
grep -q "both.yaml:1: unknown key 'layers'" "$err" || fail "$(cat "$err")"
