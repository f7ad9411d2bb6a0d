#!/usr/bin/env bash
# The folder of a training: what is saved, what is kept, and what a checkpoint may continue.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 320 --test 40 --quiet
train=("$sonde" train --data data --no-eval --no-pictures --rules none)

# --- a checkpoint of other settings ---------------------------------------------------
run 0 "${train[@]}" --out full --epochs 1
same <(tail -1 "$out") <(echo "Saved to full: model.safetensors, checkpoint.safetensors")
for other in "--batch-size 32" "--seed 3" "--device-iterations 2" "--gradient-accumulation 2" "--replicas 2"; do
    # shellcheck disable=SC2086
    run 2 "${train[@]}" --out other --epochs 2 --resume full/checkpoint.safetensors $other
    name=$(echo "${other% *}" | sed 's/^--//; s/-/_/g')
    grep -qE "^sonde: error: full/checkpoint.safetensors: made with another $name than [0-9]+ \(expected $name [0-9]+\)$" "$err" ||
        fail "$(cat "$err")"
done
# replicas in a run: what a step gives does not depend on the threads, and is recorded by replica
run 0 "${train[@]}" --out one --epochs 1 --replicas 2 --threads 1 --batch-size 8 --record one/run --record-every 10
run 0 env SONDE_REPLICAS=2 "${train[@]}" --out two --epochs 1 --threads 2 --batch-size 8 --record two/run --record-every 10
cmp one/model.safetensors two/model.safetensors || fail "the weights differ"
for replica in 0 1; do
    run 0 "$sonde" show one/run Gradient___conv1.weight --step 10 --replica $replica --digits 0
    tail -n +2 "$out" >"gradient$replica" # the first line has the time
    run 0 "$sonde" show two/run Gradient___conv1.weight --step 10 --replica $replica --digits 0
    same <(tail -n +2 "$out") "gradient$replica"
done
if cmp -s gradient0 gradient1; then fail "the replicas have one gradient"; fi
# a data set is not drawn over
cp data/train-images-idx3-ubyte.gz before
run 2 "$sonde" data synth --out data --train 480 --test 40
stderr_is "sonde: error: data: already contains a data set (expected another folder)"
cmp before data/train-images-idx3-ubyte.gz || fail "the data changed"

# epochs of other samples
run 0 "$sonde" data synth --out more --train 480 --test 40 --quiet
for other in "--validation 0.5" "--data more"; do
    # shellcheck disable=SC2086
    run 2 "${train[@]}" --out other --epochs 2 --resume full/checkpoint.safetensors $other
    grep -qE "^sonde: error: full/checkpoint.safetensors: an epoch had 20 calls, and now has (10|30) \(expected the same training samples, " "$err" ||
        fail "$other: $(cat "$err")"
done
run 0 "${train[@]}" --out other --epochs 2 --resume full/checkpoint.safetensors --learning-rate 0.002
stderr_is "sonde: warning: full/checkpoint.safetensors: made with learning_rate 0.001; this run continues with 0.002"
run 0 "${train[@]}" --out full --epochs 1 --resume
stderr_is "sonde: warning: full/checkpoint.safetensors: at step 20 training is complete (epochs: 1), so nothing is trained"

# steps that are none
for step in -5 9223372036854775807 x; do
    python3 - $step <<'END'
import json, struct, sys
data = open("full/checkpoint.safetensors", "rb").read()
size = struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:8 + size])
header["__metadata__"]["sonde.step"] = sys.argv[1]
text = json.dumps(header).encode()
open("bad.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[8 + size:])
END
    run 2 "${train[@]}" --out other --resume bad.safetensors
    stderr_is "sonde: error: bad.safetensors: sonde.step is '$step' (expected a count of steps)"
done

# --- weights are not lost -------------------------------------------------------------
cksum full/model.safetensors >before
run 0 "${train[@]}" --out full --epochs 0
stderr_is "sonde: warning: full/model.safetensors is kept: nothing was trained"
! grep -q Saved "$out" || fail "$(cat "$out")"
same before <(cksum full/model.safetensors)
run 0 "${train[@]}" --out fresh --epochs 0
grep -qx "Saved to fresh: model.safetensors" "$out" || fail "$(cat "$out")"

# another training renames what is there; a resumed one does not
cp -r full/checkpoint.safetensors other.safetensors
mkdir full/checkpoints
run 0 "${train[@]}" --out full --epochs 1 --seed 3
stderr_is "sonde: warning: full: results of an earlier training are kept: model.safetensors as model.1.safetensors, checkpoint.safetensors as checkpoint.1.safetensors, checkpoints as checkpoints.1"
same before <(cksum full/model.1.safetensors | sed 's/model.1/model/')
cmp other.safetensors full/checkpoint.1.safetensors || fail "the checkpoint is another"
! cmp -s full/model.safetensors full/model.1.safetensors || fail "the second model is the first one"
run 0 "${train[@]}" --out full --epochs 2 --seed 3 --resume
stderr_is ""
[ ! -e full/model.2.safetensors ] || fail "a resumed training keeps its own model"
run 0 "${train[@]}" --out full --epochs 2 --resume other.safetensors
grep -q 'checkpoint.safetensors as checkpoint.2.safetensors$' "$err" || fail "$(cat "$err")"
[ -s full/model.2.safetensors ] && [ -s full/model.safetensors ] || fail "no second model is kept"

# the checkpoint of an interrupted training has no model beside it
mkdir cut
cp other.safetensors cut/checkpoint.safetensors
run 0 "${train[@]}" --out cut --epochs 1
stderr_is "sonde: warning: cut: an interrupted training is kept: checkpoint.safetensors as checkpoint.1.safetensors; to continue it, resume from that checkpoint"
cmp other.safetensors cut/checkpoint.1.safetensors || fail "the checkpoint of the interrupted training is lost"

# a disk with room for the model (417 kB), not for the checkpoint (833 kB)
(
    trap '' XFSZ
    ulimit -f 600
    run 0 "${train[@]}" --out small --epochs 2
) || exit 1
[ "$(grep -c '; training continues without this checkpoint$' "$err")" -eq 2 ] || fail "$(cat "$err")"
[ "$(tail -1 "$err")" = "sonde: warning: no checkpoint could be saved" ] || fail "$(cat "$err")"
grep -q '^epoch 2/2' "$out" || fail "$(cat "$out")"
grep -qx "Saved to small: model.safetensors" "$out" || fail "$(cat "$out")"

# --- a lost terminal; two in one folder -----------------------------------------------
code=0
"${train[@]}" --out hung --epochs 100000 --format json >hung.json 2>hung.err </dev/null &
child=$!
for _ in $(seq 6000); do
    [ -s hung.json ] && break
    sleep 0.01
done
run 2 "${train[@]}" --out hung --epochs 1
stderr_is "sonde: error: hung: another training saves into it (expected another folder)"
rm -f hung/checkpoint.safetensors
kill -HUP "$child"
wait "$child" || code=$?
[ "$code" -eq 130 ] || fail "SIGHUP ends with $code"
[ -s hung/checkpoint.safetensors ] || fail "SIGHUP saves no checkpoint"

# --- a training that fails leaves no empty folder -------------------------------------
mkdir there
for bad in "--data nowhere" "--resume nothing.safetensors" "--learning-rate 0 --schedule nothing"; do
    # shellcheck disable=SC2086
    run 2 "${train[@]}" $bad
    # shellcheck disable=SC2086
    run 2 "${train[@]}" --out there/a//b/c/ $bad
done
[ ! -e sonde-out ] || fail "sonde-out is left"
[ -d there ] && [ -z "$(ls -A there)" ] || fail "left: $(find there)"
mkdir -p there/mine
run 2 "${train[@]}" --out there/mine --data nowhere
[ -d there/mine ] || fail "a folder of the user is removed"
run 2 "$sonde" data fetch nothing --out there/new
[ ! -e there/new ] || fail "data fetch leaves a folder"

# --- folders that are none ------------------------------------------------------------
run 2 "${train[@]}" --out ""
stderr_is "sonde: error: --out: is empty (expected a folder)"
run 2 "${train[@]}" --out "~/x"
stderr_is "sonde: error: ~/x: the shell left ~ as it is (expected the folder's path, or ./~)"

# a limit on the size of files: a warning for a checkpoint, an error for the weights, no signal
(
    ulimit -f 64
    run 2 "$sonde" train mnist_mlp_small --data data --epochs 2 --no-pictures --out limited
    [ "$(grep -c 'limited/checkpoint.safetensors: .*File too large; training continues' "$err")" -eq 2 ] ||
        fail "$(cat "$err")"
    tail -1 "$err" | grep -q '^sonde: error: limited/model.safetensors: .*File too large$' || fail "$(cat "$err")"
) || exit 1
