#!/usr/bin/env bash
# The environment variables that docs/guide.md lists, in every command.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 320 --test 40 --quiet
train=("$sonde" train --data data --epochs 1 --no-pictures --format json)
run 0 "${train[@]}" --out plain
run 0 "$sonde" eval --weights plain/model.safetensors --data data --quiet
cp "$out" accuracy
run 0 "$sonde" predict --weights plain/model.safetensors "$images/trousers.jpg"
cp "$out" prediction
run 0 "$sonde" tensors --inference --names
cp "$out" names

# with NAME=VALUE as with the flag: the same weights
as_flag() {
    run 0 "${train[@]}" --out flag "$2" "$3"
    run 0 env "$1" "${train[@]}" --out variable
    cmp flag/model.safetensors variable/model.safetensors || fail "$1 is not $2 $3"
}
as_flag SONDE_DEVICE_ITERATIONS=5 --device-iterations 5
as_flag SONDE_BATCH_SIZE=64 --batch-size 64
as_flag SONDE_GRADIENT_ACCUMULATION=4 --gradient-accumulation 4
as_flag SONDE_THREADS=1 --threads 1
as_flag SONDE_SEED=7 --seed 7
as_flag SONDE_RANDOM_SEED=7 --seed 7
! cmp -s flag/model.safetensors plain/model.safetensors || fail "the seed changes nothing"

# the later wins: job file, flag, environment
cat >job.yaml <<'END'
model: fashion_cnn
options: {batch_size: 20, epochs: 1}
END
same_weights() { cmp "$1/model.safetensors" "$2/model.safetensors" || fail "$1 and $2 differ"; }
batch() { run 0 "${train[@]}" --no-eval --out "batch$1" --batch-size "$1"; }
batch 20
batch 40
batch 64
plain=("$sonde" train job.yaml --data data --no-pictures --no-eval --format json)
run 0 "${plain[@]}" --out job
same_weights job batch20
run 0 "${plain[@]}" --out job-flag --batch-size 40
same_weights job-flag batch40
run 0 env SONDE_BATCH_SIZE=64 "${plain[@]}" --out job-variable --batch-size 40
same_weights job-variable batch64

# options of training leave the sessions of other commands alone; a demo takes them
for setting in SONDE_DEVICE_ITERATIONS=5 SONDE_BATCH_SIZE=64 SONDE_GRADIENT_ACCUMULATION=4 \
    SONDE_OUTPUT_MODE=sum SONDE_RANDOM_SEED=7 SONDE_THREADS=1; do
    run 0 env $setting "$sonde" eval --weights plain/model.safetensors --data data --quiet
    same "$out" accuracy
    run 0 env $setting "$sonde" predict --weights plain/model.safetensors "$images/trousers.jpg"
    same "$out" prediction
    run 0 env $setting "$sonde" tensors --inference --names
    same "$out" names
done
run 0 env SONDE_DEVICE_ITERATIONS=2 SONDE_GRADIENT_ACCUMULATION=2 "$sonde" demo healthy -q --record demo

# the loss of an epoch is the mean loss, in any output mode
loss() {
    python3 -c 'import json, sys; print("%.5f" % json.loads(open(sys.argv[1]).readline())["loss"])' "$out"
}
run 0 env SONDE_OUTPUT_MODE=all SONDE_DEVICE_ITERATIONS=5 "${train[@]}" --out all --no-eval
all=$(loss)
run 0 "${train[@]}" --out each --no-eval
[ "$all" = "$(loss)" ] || fail "the mean of all losses is $all, not $(loss)"
for mode in final mean sum; do
    run 0 env SONDE_OUTPUT_MODE=$mode SONDE_DEVICE_ITERATIONS=5 "${train[@]}" --out $mode --no-eval
    [ "$all" = "$(loss)" ] || fail "with SONDE_OUTPUT_MODE=$mode the loss is $(loss), not $all"
    cmp each/model.safetensors $mode/model.safetensors || fail "SONDE_OUTPUT_MODE=$mode changes weights"
done
accumulated=
for mode in all final mean sum; do
    run 0 env SONDE_OUTPUT_MODE=$mode SONDE_GRADIENT_ACCUMULATION=4 "${train[@]}" --out $mode --no-eval
    [ "${accumulated:=$(loss)}" = "$(loss)" ] ||
        fail "with SONDE_OUTPUT_MODE=$mode the loss is $(loss), not $accumulated"
done

# mistakes are found before the first step
for mistake in SONDE_OUTPUT_MODE=last SONDE_BATCH_SIZE=many SONDE_ISA=bogus; do
    run 2 env $mistake "${train[@]}" --out mistaken
    [ ! -s "$out" ] || fail "$mistake: $(cat "$out")"
    grep -qE "^sonde: error: ${mistake%%=*}: '${mistake#*=}' \(expected " "$err" || fail "$(cat "$err")"
done
