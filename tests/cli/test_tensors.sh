#!/usr/bin/env bash
# sonde tensors and sonde compile: every name with its metadata, selections, JSON, dumps.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" tensors fashion_cnn
stderr_is ""
same "$out" "$golden/fashion_cnn.txt"
run 0 "$sonde" tensors # the default
same "$out" "$golden/fashion_cnn.txt"
run 0 "$sonde" tensors fashion_cnn --gradient-accumulation 2 --batch-size 3
cp "$out" accumulating
grep -qE '^Accum___fc1\.weight +gradient +backward +float32 +\(100, 972\)' accumulating ||
    fail "no Accum___ with G = 2"
grep -qE '^input +input +- +float32 +\(3, 1, 28, 28\)|^input .*\(3, 1, 28, 28\)' accumulating ||
    fail "the batch size is not taken: $(grep '^input ' accumulating)"

run 0 "$sonde" tensors fashion_cnn --select 'Gradient___*.weight' --names
same "$out" <(printf 'Gradient___%s.weight\n' fc2 fc1 norm conv2 conv1 | LC_ALL=C sort |
    grep -Fxf - <(grep -oE '^Gradient___[a-z0-9]+\.weight' "$golden/fashion_cnn.txt"))
[ "$(wc -l <"$out")" -eq 5 ] || fail "--select: $(cat "$out")"
run 0 "$sonde" tensors fashion_cnn --select 'model.fc2.bias' --names
same "$out" <(echo fc2.bias)
run 0 "$sonde" tensors fashion_cnn --select '@loss,fc1_output' --names
same "$out" <(printf 'fc1_output_0\nloss_output_0\n')
run 0 "$sonde" tensors fashion_cnn --select 'nothing*' --names
stderr_is "sonde: warning: 'nothing*' matches no tensor"
run 2 "$sonde" tensors fashion_cnn --select 'conv1.wieght'
[ "$(wc -l <"$err")" -eq 1 ] || fail "more than a line: $(cat "$err")"
grep -qE "^sonde: error: .*'conv1\.wieght'.*conv1\.weight" "$err" || fail "$(cat "$err")"

# an inference session has no gradients and no target
run 0 "$sonde" tensors fashion_cnn --inference --names
grep -qx fc2_output_0 "$out" || fail "no output of inference"
! grep -qE 'Gradient|Updated|loss|input/1' "$out" || fail "inference: $(cat "$out")"

# JSON: as many objects as names, each whole
run 0 "$sonde" tensors fashion_cnn --format json
cp "$out" json
run 0 "$sonde" tensors fashion_cnn --names
python3 - json "$out" <<'END' || fail "--format json"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
assert [row["name"] for row in rows] == open(sys.argv[2]).read().split("\n")[:-1]
by_name = {row["name"]: row for row in rows}
assert by_name["conv1.weight"]["shape"] == [5, 1, 3, 3], by_name["conv1.weight"]
assert by_name["conv1.weight"]["role"] == "weight"
assert by_name["fc1_input_0"]["same_as"] == "Reshape:0"
assert by_name["Gradient___fc1.weight"]["note"] == "of one micro-batch, unscaled"
END

# a job file, and every built-in model
cat >job.yaml <<'END'
model: {input: [4], layers: [linear: {name: fc, out_features: 3}], loss: {cross_entropy: {name: loss}}}
END
run 0 "$sonde" tensors job.yaml --names
grep -qx 'Gradient___fc.weight' "$out" || fail "a job's tensors: $(cat "$out")"
for model in fashion_cnn mnist_mlp mnist_mlp_small; do
    run 0 "$sonde" compile "$model"
    grep -qE '^compiled in [0-9.]+ ms: [0-9]+ steps, [0-9]+ threads?, [0-9]+ samples a call$' \
        "$out" || fail "compile $model: $(cat "$out")"
done
run 2 "$sonde" tensors fashion_cmm
stderr_is "sonde: error: fashion_cmm: no built-in model (expected fashion_cnn, autoencoder, gpt, lstm, mnist_mlp, mnist_mlp_small or resnet18)"
run 2 "$sonde" tensors nowhere.yaml
stderr_is "sonde: error: nowhere.yaml: cannot open the job file: No such file or directory"

# dumps: each pass prints the graph so far
for pass in instantiate autodiff accumulate optimize prune fuse layout plan; do
    run 0 "$sonde" compile fashion_cnn --dump "$pass" --threads 1
    cp "$out" "dump.$pass"
    [ -s "$out" ] || fail "--dump $pass prints nothing"
done
same dump.instantiate "$golden/instantiate.txt"
! grep -q Gradient___ dump.instantiate || fail "gradients before autodiff"
grep -q 'Gradient___conv1.weight' dump.autodiff || fail "no gradients after autodiff"
! grep -q UpdatedVar___ dump.autodiff || fail "updates before optimize"
grep -q 'UpdatedVar___conv1.weight' dump.optimize || fail "no updates after optimize"
same dump.autodiff dump.accumulate # G = 1
grep -qE '^arena [0-9]+ bytes, largest live set [0-9]+, state [0-9]+, threads 1$' dump.plan ||
    fail "plan: $(head -1 dump.plan)"
run 2 "$sonde" compile fashion_cnn --dump fusee
stderr_is "sonde: error: dump: unknown pass 'fusee' (expected instantiate, autodiff, track, accumulate, optimize, prune, fuse, stage, layout or plan)"

# a job's groups of parameters have numbers of their own
cat >groups.yaml <<'END'
model: mnist_mlp_small
optimizer: {kind: adam, groups: [{name: head, params: "fc2.*", learning_rate: 0.01}]}
END
run 0 "$sonde" tensors groups.yaml
grep -q '^learningRate___head ' "$out" || fail "no rate of the group: $(cat "$out")"
