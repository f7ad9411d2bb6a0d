#!/usr/bin/env bash
# sonde compile --save: the plan stands where a job may stand; what is no plan is refused
# with one line; --plan-cache.
. "$(dirname "$0")/lib.sh"

cat >job.yaml <<'END'
model:
  input: [1, 28, 28]
  layers:
    - flatten: {start_dim: 1}
    - linear: {name: fc, out_features: 10}
  loss: {cross_entropy: {name: loss}}
data: {name: fashion-synth, mean: 0.5, std: 0.5}
options: {epochs: 1, batch_size: 16, threads: 1, seed: 4}
record: {path: recorded}
END
run 0 "$sonde" data synth --out data --train 320 --test 40 --quiet

# names, options and the training itself are those of the job
run 0 "$sonde" compile job.yaml --out net.plan
grep -qE '^compiled in ' "$out" || fail "compile --save: $(cat "$out")"
run 0 "$sonde" tensors job.yaml --names
cp "$out" names
run 0 "$sonde" tensors net.plan --names
same "$out" names
run 0 "$sonde" train job.yaml --data data --quiet --out one --record one-run
mv job.yaml elsewhere.yaml
run 0 "$sonde" train net.plan --data data --quiet --out two
cmp one/model.safetensors two/model.safetensors || fail "a plan trains to other weights"
[ ! -e recorded ] || fail "a plan records where its job did"

# with weights it is the model
run 0 "$sonde" compile net.plan --weights two/model.safetensors --out whole.plan
run 0 "$sonde" eval elsewhere.yaml --weights two/model.safetensors --data data --format json
cp "$out" score
run 0 "$sonde" eval whole.plan --data data --format json
same "$out" score
run 0 "$sonde" eval net.plan --weights two/model.safetensors --data data --format json
same "$out" score
run 2 "$sonde" eval net.plan --data data
[ "$(wc -l <"$err")" -eq 1 ] || fail "a plan without weights: $(cat "$err")"

refused() { # TEXT: of the only line of an error about x.plan, which train and compile give
    for command in "compile x.plan" "train x.plan" "predict x.plan image.png"; do
        # shellcheck disable=SC2086
        run "$2" "$sonde" $command
        [ "$(wc -l <"$err")" -eq 1 ] || fail "$command: more than a line: $(cat "$err")"
        grep -qF "x.plan: $1" "$err" || fail "$command: $(cat "$err")"
    done
    [ ! -e sonde-out ] || fail "$1: something was written"
}
head -c 100 net.plan >x.plan
refused "the plan is cut off: it has 100 of" 2
cp net.plan x.plan
printf X | dd of=x.plan bs=1 seek=200 conv=notrunc status=none
refused "the plan is damaged: its checksum differs" 2
cp two/model.safetensors x.plan
refused "the file is no plan" 2
: >x.plan
refused "the file is empty" 2
rm x.plan
refused "cannot open the plan" 2
cp net.plan x.plan
export SONDE_ISA=generic
cp net.plan x.plan
if grep -aq generic net.plan; then
    echo "this processor has no other instruction set"
else
    refused "a plan for another processor" 2
fi
unset SONDE_ISA

# without a training set there are no balanced weights
sed 's/name: loss}/name: loss, weight: balanced}/' elsewhere.yaml >balanced.yaml
run 2 "$sonde" compile balanced.yaml --out balanced.plan
grep -q "balanced.plan: the weights of the job's loss come from the training set (expected" "$err" ||
    fail "$(cat "$err")"
[ ! -e balanced.plan ] || fail "a plan of weights that are not known is saved"

# several inputs keep their names
array() { # NAME DTYPE SHAPE BYTES: zeros
    local head="{'descr': '$2', 'fortran_order': False, 'shape': ($3), }"
    mkdir -p arrays
    { printf '\x93NUMPY\x01\x00\x76\x00%-117s\n' "$head" && head -c "$4" /dev/zero; } >"arrays/$1.npy"
}
array x '<f4' '20, 3' 240
array right '<f4' '20, 2' 160
array y '<i8' '20,' 160
cat >two.yaml <<'END'
model:
  inputs: {x: [3], right: [2]}
  layers:
    - cat: {name: both, from: [x, right], dim: 1}
    - linear: {name: fc, out_features: 2}
  loss: {cross_entropy: {name: loss}}
data: {path: arrays}
options: {epochs: 1, batch_size: 6, threads: 1}
END
run 0 "$sonde" train two.yaml --quiet --out two-job
run 0 "$sonde" compile two.yaml --out two.plan
mv two.yaml two.txt
run 0 "$sonde" train two.plan --quiet --out two-plan
cmp two-job/model.safetensors two-plan/model.safetensors || fail "a plan of two inputs trains to other weights"

# a plan of tokens has its tokenizer
if "${SONDE_PYTHON:-python3}" -c 'import numpy, tokenizers' 2>/dev/null; then
mkdir text elsewhere
for _ in {1..60}; do echo "the old man and the sea and the old boat"; done >text/text.txt
cat >text/job.yaml <<'END'
model:
  input: [4]
  dtype: int64
  target: [4]
  layers:
    - embedding: {name: e, num_embeddings: vocabulary, embedding_dim: 4}
    - linear: {name: head, out_features: vocabulary}
  loss: {cross_entropy: {dim: -1}}
data: {path: text/text.txt, tokens: bpe, vocabulary: 264}
options: {epochs: 1, batch_size: 8, threads: 1}
END
run 0 "$sonde" train text/job.yaml --quiet --out text/out
run 0 "$sonde" compile text/job.yaml --weights text/out/model.safetensors --out text.plan
run 0 "$sonde" predict --model text/job.yaml --weights text/out/model.safetensors --prompt "the old " --length 12
cp "$out" said
rm -r text
run 0 "$sonde" predict text.plan --prompt "the old " --length 12
same "$out" said
fi

# a cache
for _ in 1 2; do
    run 0 "$sonde" compile elsewhere.yaml --plan-cache cache
    stderr_is ""
    [ "$(find cache -type f | wc -l)" -eq 1 ] || fail "cache: $(ls cache)"
done
run 0 env SONDE_PLAN_CACHE="$PWD/cache" "$sonde" train elsewhere.yaml --data data --quiet --out three 
cmp one/model.safetensors three/model.safetensors || fail "a cached plan trains to other weights"
