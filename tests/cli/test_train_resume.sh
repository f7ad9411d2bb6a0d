#!/usr/bin/env bash
# sonde train --record RUN --resume: killed, interrupted or ended, a run goes on as if it had never
# been so: the same weights, the same record.
. "$(dirname "$0")/lib.sh"

run 0 "$sonde" data synth --out data --train 2000 --test 200 --quiet
train=("$sonde" train fashion_cnn --data data --record-every 50 --no-pictures --quiet --epochs 8)
# Everything of a run but when it was, and the program, which a resumed run records again.
content() {
    "$sonde" query "$1" re:. --format csv --stat count,mean,l2,min | cut -d, -f1-4,6- | grep -v ,program/
    "$sonde" ls "$1" | sed '1,/^$/d' | grep -v ^program/
}

run 0 "${train[@]}" --out whole --record whole-run
content whole-run >wanted

# last RUN: the last step of training that it has, of 1,000.
last() {
    local step
    step=$("$sonde" tail "$1" --mode train -n 1 2>/dev/null | sed -E 's/.*train ([0-9]+).*/\1/')
    echo "${step:-0}"
}

# begin FOLDER STEP [OPTION...]: training in the background, until that step. On a busy machine it may
# be over before this is seen: it is stopped while one looks.
begin() {
    local folder=$1 until=$2
    shift 2
    "${train[@]}" --out "$folder" --record "$folder-run" "$@" >"$out" 2>"$folder.err" &
    child=$!
    for _ in $(seq 6000); do
        sleep 0.005
        kill -STOP "$child" 2>/dev/null || break
        [ -e "$folder/checkpoint.safetensors" ] && [ "$(last "$folder-run")" -ge "$until" ] && break
        kill -CONT "$child"
    done
}

# --- killed, twice, in the second epoch or later ----------------------------------------------------
for attempt in $(seq 10); do
    rm -rf cut cut-run
    for kill in 1 2; do
        begin cut 130 --resume
        kill -KILL "$child" 2>/dev/null
        wait "$child" 2>/dev/null
        [ "$kill" -eq 2 ] || [ "$(cat cut.err)" = "sonde: warning: cut/checkpoint.safetensors: no checkpoint yet; training starts at step 0" ] ||
            fail "the first start says $(cat cut.err)"
    done
    [ "$(last cut-run)" -lt 950 ] && break
    [ "$attempt" -lt 10 ] || fail "it was over before it could be killed, ten times"
done
run 0 "${train[@]}" --out cut --record cut-run --resume
stderr_is ""
cmp cut/model.safetensors whole/model.safetensors || fail "other weights"
cmp cut/checkpoint.safetensors whole/checkpoint.safetensors || fail "another state of the optimizer"
content cut-run >found
same found wanted
step=$("$sonde" ls cut-run | sed -nE 's/^resumed   from step ([0-9]+), .*/\1/p')
# at the end of an epoch, of 125 steps of training and 7 of evaluation, which stay
[ -n "$step" ] && [ $((step % 132)) -eq 0 ] || fail "$("$sonde" ls cut-run)"
run 0 "$sonde" verify cut-run
grep -q '^the run was resumed: ' "$out" || fail "verify: $(cat "$out")"

# --- Ctrl-C in the middle of an epoch, and a checkpoint that is named -------------------------
for attempt in $(seq 10); do
    rm -rf ended ended-run
    code=0
    begin ended 10
    kill -INT "$child"
    kill -CONT "$child"
    wait "$child" || code=$?
    [ "$code" -eq 0 ] || break # else it was over
done
[ "$code" -eq 130 ] || fail "Ctrl-C ends with $code: $(cat ended.err)"
run 0 "${train[@]}" --out ended --record ended-run --resume ended/checkpoint.safetensors
cmp ended/model.safetensors whole/model.safetensors || fail "other weights"
# the loss of an epoch is that of its part behind the checkpoint: all else is the same
content ended-run | grep -v epoch_loss >found
same found <(grep -v epoch_loss wanted)

# --- a run that has ended, for longer; a run that is not there yet ----------------------------
run 0 "${train[@]}" --out whole --record whole-run --resume --epochs 9
"$sonde" tail whole-run -n 10 --mode train --format json | tail -1 | grep -q '"step": 1[0-9]*, "mode": "train", "mode_step": 1124' ||
    fail "$("$sonde" tail whole-run -n 1 --mode train)"
run 0 "${train[@]}" --out whole --record new-run --resume --epochs 10
"$sonde" tail new-run -n 100000 --mode train --format json | head -1 | grep -q '"mode_step": 1125' ||
    fail "$("$sonde" tail new-run -n 1 --mode train)"

# --- what cannot be -----------------------------------------------------------------------------
run 2 "${train[@]}" --out whole --record whole-run # without --resume
grep -q 'a run is there already' "$err" || fail "$(cat "$err")"
run 2 "${train[@]}" --out whole --record whole-run --resume nowhere.safetensors
grep -q '^sonde: error: nowhere.safetensors: ' "$err" || fail "$(cat "$err")"
run 2 "${train[@]}" --out whole --record whole-run --resume=whole/model.safetensors
stderr_is "sonde: error: whole/model.safetensors: it is no checkpoint: it lacks sonde.step (expected a checkpoint.safetensors)"
