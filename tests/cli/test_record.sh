#!/usr/bin/env bash
# sonde train --record: what is in the run, by a reader of standard parts only; the bits of the
# weights; configuration files; what is refused.
. "$(dirname "$0")/lib.sh"
unset SMDEBUG_CONFIG_FILE_PATH USE_SMDEBUG

run 0 "$sonde" data synth --out data --train 400 --test 100 --quiet
train() {
    run 0 "$sonde" train --data data --epochs 1 --no-pictures --quiet "$@"
}

train --out plain
train --out watched --record run --record-every 10 --vitals-every 5
[ ! -s "$err" ] || fail "recording warns: $(cat "$err")"
same <(cksum <watched/model.safetensors) <(cksum <plain/model.safetensors)
same <(cksum <watched/checkpoint.safetensors) <(cksum <plain/checkpoint.safetensors)
# 25 steps of training, 4 of evaluation (batches of 25: of 32 at most, as much alike as can be)
python3 - run <<'END' || fail "the run is not what was asked for"
import json, struct, sys
root = sys.argv[1]
load = lambda name: [json.loads(line) for line in open(f"{root}/w0000/{name}")]
about = json.load(open(f"{root}/run.json"))
assert about["program"] == "sonde train" and about["model"] == "fashion_cnn", about
assert len(about["graph"]) == 16
assert about["save"]["collections"]["weights"]["train"] == {"every": 10}, about
end = json.load(open(f"{root}/end.json"))
assert end["reason"] == "finished" and end["last_step"] == 28, end
tensors = {t["id"]: t for t in load("catalogue.jsonl")}
lines = load("seg-00000000.jsonl")
data = open(f"{root}/w0000/steps-00000000.npy", "rb").read()[256:]
ends = [(("train", "eval")[row[3]], row[1]) for row in struct.iter_unpack("<qqqII", data)]
assert [k for m, k in ends if m == "train"][:25] == list(range(25)), ends
assert sorted({k for m, k in ends if m == "eval"}) == [0, 1, 2, 3], ends
by_role = {}
for line in lines:
    by_role.setdefault((tensors[line["t"]]["role"], line["m"]), set()).add(line["k"])
for role in "weight", "bias", "gradient", "loss":
    assert by_role[role, "train"] == {0, 10, 20}, (role, by_role)
assert "output" not in {role for role, _ in by_role}
names = {t["name"]: t for t in tensors.values()}
assert names["conv1.weight"]["collections"] == ["weights"]
assert {"scalar/epoch_loss", "scalar/accuracy"} <= set(names)
# vital signs: losses every step, parameters every fifth
data = open(f"{root}/w0000/stats-00000000.npy", "rb").read()[1024:]
rows = [struct.unpack_from("<qqIIHBB", data, at) for at in range(0, len(data), 144)]
steps = lambda name: [r[1] for r in rows if r[2] == names[name]["id"] and r[5] == 0]
loss, = [t["name"] for t in tensors.values() if t["role"] == "loss"]
assert steps(loss) == list(range(25)), steps(loss)
for name in "conv1.weight", "Gradient___fc1.weight", "UpdatedVar___fc2.bias":
    assert steps(name) == [0, 5, 10, 15, 20], (name, steps(name))
END

# everything, raw, at every step: still the same bits
train --out all --record everything --save-all --record-every 1 --record-compress
same <(cksum <all/model.safetensors) <(cksum <plain/model.safetensors)
[ "$(grep -c '"op":"Conv2d"' everything/w0000/catalogue.jsonl)" -ge 2 ] ||
    fail "--save-all saves no outputs"
train --out few --record few-run --no-vitals --record-include 'relu*_output_*' \
    --record-include '*.bias'
ls few-run/w0000/stats-* >/dev/null 2>&1 && fail "--no-vitals records vital signs"
grep -q '"name":"relu_output_0".*"collections":\["default"\]' few-run/w0000/catalogue.jsonl ||
    fail "--record-include: $(cat few-run/w0000/catalogue.jsonl)"

# norms alone, at every step: the same bits; what they lack is absent, not 0
cat >norms.yaml <<'END'
path: normed-run
vitals: false
every: 1
collections:
  weights: {reductions: [norms]}
  biases: {save: false}
  gradients: {save: false}
END
train --out normed --record-config norms.yaml --no-eval
same <(cksum <normed/model.safetensors) <(cksum <plain/model.safetensors)
run 0 "$sonde" ls normed-run conv1.weight --format json
grep -qE '"values": ?0, "vitals": ?0, .*"norms": ?25' "$out" || fail "ls of norms: $(cat "$out")"
run 0 "$sonde" query normed-run conv1.weight --mode train --steps 24 --stat count,nan,l2,linf,min,zero --format jsonl
grep -qE '"count":45,"nan":0,"l2":[0-9.]+,"linf":[0-9.]+,"min":null,"zero":null}$' "$out" || fail "norms: $(cat "$out")"
run 0 "$sonde" verify normed-run

# by default, vital signs of weights and gradients when rules need full ones; not norms at each step
stands() {
    run 0 "$sonde" train --data data --epochs 3 --learning-rate 1e-6 --no-pictures --no-eval --quiet --rules none "$@"
}
stands --out usual --record usual-run
for tensor in conv1.weight Gradient___conv1.weight; do
    "$sonde" ls usual-run "$tensor" --format json | tr -d ' \n' >of_tensor
    grep -q '"vitals":51,' of_tensor && ! grep -q '"norms"' of_tensor || fail "$tensor: $(cat of_tensor)" # 0 to 49, 60
done
# a loss of the collection free_losses need not fall: what is a warning without it is a note
printf 'path: free-run\nevery: 1\ncollections:\n  free_losses: {include: "@loss"}\n' >free.yaml
stands --out free --record-config free.yaml
run 1 "$sonde" rules usual-run --rules WeightUpdateRatio --no-save
grep -q ': warning: WeightUpdateRatio: ' "$out" || fail "$(cat "$out")"
run 1 "$sonde" rules free-run --rules WeightUpdateRatio --no-save
grep -q ': note: WeightUpdateRatio: ' "$out" && ! grep -q ': warning: ' "$out" || fail "$(cat "$out")"

# a job's section, which the command line overrides
cat >job.yaml <<'END'
model: fashion_cnn
record:
  path: by-job
  vitals: false
  collections:
    gradients: {save: false}
    losses: {every: 5}
END
run 0 "$sonde" train job.yaml --data data --out jobbed --epochs 1 --no-pictures --no-eval --quiet
grep -q '"role":"gradient"' by-job/w0000/catalogue.jsonl && fail "gradients were not wanted"
[ "$(grep -c '"t":' by-job/w0000/seg-00000000.jsonl)" -ge 5 ] || fail "losses were wanted"
run 0 "$sonde" train job.yaml --data data --out jobbed --epochs 1 --no-pictures --no-eval --quiet \
    --record elsewhere
[ -e elsewhere/end.json ] || fail "--record does not win over the job"

# smdebug's configuration, by name and from the environment
cat >smdebug.json <<'END'
{
  "LocalPath": "by-smdebug",
  "HookParameters": {"save_interval": "10", "train.start_step": "5"},
  "CollectionConfigurations": [
    {"CollectionName": "bias", "CollectionParameters": {"reductions": "min,abs_max,l2_norm"}}
  ]
}
END
train --out debugged --record-config smdebug.json --no-eval
grep -q '"role":"loss"' by-smdebug/w0000/catalogue.jsonl || fail "losses are always saved"
grep -oE '"k":[0-9]+,"t"' by-smdebug/w0000/seg-00000000.jsonl | sort -u >steps
same steps <(printf '"k":%s,"t"\n' 0 10 20 24 | sort -u) # 0: the program, 24: the scalar
rm -r by-smdebug
SMDEBUG_CONFIG_FILE_PATH=smdebug.json train --out debugged --no-eval
[ -e by-smdebug/end.json ] || fail "SMDEBUG_CONFIG_FILE_PATH is not understood"
rm -r by-smdebug
sed 's|"by-smdebug"|"~/run"|' smdebug.json >home.json
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out debugged --record-config home.json --no-eval
grep -q "'~' is not expanded (expected $HOME/run, or " "$err" || fail "LocalPath ~/run: $(cat "$err")"
[ ! -e "~" ] || fail "a folder called ~"
USE_SMDEBUG=0 SMDEBUG_CONFIG_FILE_PATH=smdebug.json train --out debugged --no-eval
[ ! -e by-smdebug ] || fail "USE_SMDEBUG=0 is not understood"

# warnings and errors
train --out warned --record warned-run --record-include 'conv7*' --no-eval
grep -q "warning.*collection 'default': include 'conv7\*' matches no tensor" "$err" ||
    fail "no warning of a pattern that matches nothing: $(cat "$err")"
check() { # PATTERN ARGUMENT...
    local pattern=$1
    shift
    run 2 "$sonde" train --data data --out out --epochs 1 --quiet "$@"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "$*: not one line: $(cat "$err")"
    grep -qE "^sonde: error: $pattern\$" "$err" || fail "$*: $(cat "$err")"
    [ -z "$(find out -type f 2>/dev/null)" ] || fail "$*: half-written"
}
check 'run: .*' --record run
check 'job\.yaml: .*' --record job.yaml
check ".*'conv1\.wieght'.*conv1\.weight.*" --record new --record-include conv1.wieght
[ ! -e new ] || fail "a run that never began is there"
check '--record-every: nothing is recorded \(expected --record RUN\)' --record-every 3
check 'nowhere\.yaml: .*No such file.*' --record-config nowhere.yaml
printf 'path: new\nevry: 3\n' >hook.yaml
check "hook\.yaml:2: unknown key 'evry' \(expected every\)" --record-config hook.yaml
printf 'save_all: true\n' >hook.yaml
check 'hook: path: no path for the run .*' --record-config hook.yaml
printf 'model: fashion_cnn\nrecord: {path: new, when_nna: x}\n' >job.yaml
check "job\.yaml:2: unknown key 'when_nna' \(expected when_nan\)" job.yaml
[ ! -e new ] || fail "a run that never began is there"

# as many rules judge the run later as in the process: names that tensors also have are listed
train --out judged --record judged-run
tail -1 "$out" >verdict
grep -q '^nothing found by [0-9]* rules in 29 steps' verdict || fail "$(cat "$out")"
run 0 "$sonde" rules judged-run --no-save --explain
sed -n 's/^judged-run: //p' "$out" >later
same later verdict
grep -q '^PoorWeightInitialization *checked' "$out" || fail "$(cat "$out")"
run 0 "$sonde" ls judged-run --names
grep -qx 'relu_input_0' "$out" || fail "$(cat "$out")"

# Ctrl-C: the run says so
"$sonde" train --data data --out cut --epochs 1000 --no-eval --no-pictures --format json \
    --record cut-run >"$out" 2>"$err" </dev/null &
child=$!
for _ in $(seq 3000); do
    [ "$(wc -l <"$out")" -ge 2 ] && break
    sleep 0.02
done
kill -INT "$child"
wait "$child"
grep -q '"reason":"interrupted"' cut-run/end.json || fail "$(cat cut-run/end.json)"
