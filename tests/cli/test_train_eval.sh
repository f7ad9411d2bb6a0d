#!/usr/bin/env bash
# sonde train evaluates between epochs: how often, on what, in the record, and without changing a bit
# of what is trained.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 640 --test 150 --quiet
train() { # OUT ARGUMENT...
    run 0 "$sonde" train fashion_cnn --data data --no-pictures --epochs 4 --out "$@"
}
events() { # what is wanted of every epoch and of the end, as Python
    python3 - "$out" "$1" <<'END' || fail "$1: $(cat "$out")"
import json, sys
rows = [json.loads(line) for line in open(sys.argv[1])]
epochs = [row for row in rows if row["event"] == "epoch"]
ends = [row for row in rows if row["event"] == "eval"]
assert len(epochs) == 4
sizes = [row.get("eval_samples") for row in epochs]
sets = {row.get("eval_set") for row in epochs} - {None}
assert all(("eval_loss" in row) == ("eval_accuracy" in row) == ("eval_samples" in row) for row in epochs)
assert all(0 < row["eval_loss"] < 3 and 0 <= row["eval_accuracy"] <= 1 for row in epochs if "eval_loss" in row)
assert eval(sys.argv[2]), (sizes, sets, ends)
END
}

# every epoch, every other and the last, never; all samples or some
train each --format json --record each-run
events 'sizes == [150] * 4 and sets == {"test"} and ends[0]["samples"] == 150'
events 'ends[0]["loss"] == epochs[3]["eval_loss"] and ends[0]["accuracy"] == round(epochs[3]["eval_accuracy"], 6)'
train third --format json --eval-every 3
events 'sizes == [None, None, 150, 150]'
train never --format json --eval-every 0 --record never-run
events 'sizes == [None] * 4 and ends[0]["samples"] == 150'
train some --format json --eval-samples 50
events 'sizes == [50] * 4 and ends[0]["samples"] == 150'
train none --format json --no-eval
events 'sizes == [None] * 4 and ends == []'
train held --format json --validation 0.25
events 'sizes == [160] * 4 and sets == {"val"} and ends[0]["samples"] == 150 and epochs[0]["step"] == 30'

# none of which changes a bit, but for holding samples out
for other in third never some none; do
    same <(cksum <each/checkpoint.safetensors) <(cksum <$other/checkpoint.safetensors)
done
! cmp -s each/model.safetensors held/model.safetensors || fail "nothing was held out"
train held-again --format json --validation 0.25 --eval-every 0
same <(cksum <held/model.safetensors) <(cksum <held-again/model.safetensors)

# recorded in mode eval: 5 batches of 30 between 40 steps of training, with loss and accuracy
"$sonde" query each-run loss_output_0 --mode eval --stat mean --format csv >losses
[ "$(grep -c loss_output_0 losses)" -eq 20 ] || fail "$(cat losses)"
run 0 "$sonde" query each-run 'scalar/eval_*' --format csv
[ "$(grep -c 'scalar/eval_' "$out")" -eq 8 ] || fail "$(cat "$out")"
"$sonde" query never-run loss_output_0 --mode eval --stat mean --format csv >losses
[ "$(grep -c loss_output_0 losses)" -eq 5 ] || fail "$(cat losses)"

# as it is told; the same in a job
train said --validation 0.25 --eval-samples 100 --epochs 2
grep -qx 'epochs are evaluated on 100 of 160 held-out samples (--eval-samples)' "$out" || fail "$(cat "$out")"
[ "$(grep -cE '^epoch ./2: loss [0-9.]+, val loss [0-9.]+, val accuracy [0-9.]+%, ' "$out")" -eq 2 ] ||
    fail "$(cat "$out")"
cp "$out" asked
cat >job.yaml <<'END'
model: fashion_cnn
data: {validation: 0.25}
options: {epochs: 2, eval_samples: 100, eval_every: 1}
END
run 0 "$sonde" train job.yaml --data data --no-pictures --out said
same <(sed -E 's/, [0-9.]+ s, .*//' asked) <(sed -E 's/, [0-9.]+ s, .*//' "$out")

# what cannot be
run 2 "$sonde" train --data data --validation 1
stderr_is "sonde: error: --validation: '1' (expected a number from 0 to below 1)"
run 2 "$sonde" train --data data --validation 0.0001
stderr_is "sonde: error: data/train-images-idx3-ubyte.gz: a part of 0 samples (expected 1 to 639)"
printf 'model: fashion_cnn\ndata: {validation: 2}\n' >job.yaml
run 2 "$sonde" train job.yaml --data data
stderr_is "sonde: error: job.yaml:2: validation is 2 (expected a number from 0 to below 1)"
