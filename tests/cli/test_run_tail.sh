#!/usr/bin/env bash
# sonde tail: the last steps of a run that has ended, and a run that another process is
# writing, line by line to its end.
. "$(dirname "$0")/lib.sh"
make=("$SONDE_BIN/tests_export" test_export make)

run 0 "${make[@]}" run
run 0 "$sonde" tail run -n 3
stderr_is ""
same "$out" <(printf '%s\n' 'step 45  train 39  loss -0.875' 'step 46  eval 6  loss -0.5' \
    'step 47  eval 7  loss -0.125')
run 0 "$sonde" tail run
[ "$(wc -l <"$out")" -eq 10 ] || fail "ten lines: $(cat "$out")"
run 0 "$sonde" tail run -n 0
[ ! -s "$out" ] || fail "no line: $(cat "$out")"
run 0 "$sonde" tail run --mode eval -n 2 --format json
same <(untimed) <(printf '%s\n' '{"step": 46, "mode": "eval", "mode_step": 6, "time": T, "loss": -0.5}' \
    '{"step": 47, "mode": "eval", "mode_step": 7, "time": T, "loss": -0.125}')
run 0 "$sonde" tail run --time -n 1
same <(untimed) <(echo 'T  step 47  eval 7  loss -0.125')
run 0 "$sonde" tail run 'loss,Gradient*' --stat zero,nonfinite --mode train -n 20
sed -n 1p "$out" >line
same line <(echo 'step 24  train 20  loss 0.75  Gradient___conv1.weight/zero 3  Gradient___conv1.weight/nonfinite 2')
run 0 "$sonde" tail run 'act' --mode train -n 10 --stat count # of two micro-batches
same <(sed -n 1p "$out") <(echo 'step 36  train 30  act/count 12')
same <(sed -n 2p "$out") <(echo 'step 37  train 31')
run 0 "$sonde" tail run --follow -n 1 # it has ended
same "$out" <(echo 'step 47  eval 7  loss -0.125')

# --- a live run -------------------------------------------------------------------------
"${make[@]}" live blocks=10 hold=60 &
writer=$!
for _ in $(seq 6000); do
    [ -f live/w0000/catalogue.jsonl ] && [ -s live/w0000/catalogue.jsonl ] && break
    sleep 0.01
done
timeout 120 "$sonde" tail live --follow -n 1000 >followed 2>"$err" &
reader=$!
for _ in $(seq 6000); do
    [ "$(wc -l <followed)" -ge 60 ] && break
    sleep 0.01
done
[ "$(wc -l <followed)" -eq 60 ] || fail "before the writer continues: $(wc -l <followed) lines"
run 0 "$sonde" ls live
grep -qx 'status    running' "$out" || fail "a live run: $(cat "$out")"
: >live.go
wait "$writer" || fail "the run failed"
code=0
wait "$reader" || code=$?
[ "$code" -eq 0 ] || fail "following ended with $code: $(cat "$err")"
stderr_is ""
run 0 "$sonde" tail live -n 1000
same followed "$out" # each step once, in order, none missing
[ "$(wc -l <followed)" -eq 120 ] || fail "lines: $(wc -l <followed)"

# --- it crashes and is resumed from an earlier step: a follower sees it ------------------------
run 0 "${make[@]}" again crash=1 blocks=2 # to step 23
flock -o again/w0000/lock sleep 120 >.holder 2>&1 &
holder=$!
while flock -n again/w0000/lock true; do
    sleep 0.01
done
touch again/w0000/state.json
timeout 120 "$sonde" tail again --follow -n 1000 >followed 2>"$err" &
reader=$!
for _ in $(seq 3000); do
    [ "$(wc -l <followed)" -ge 24 ] && break
    sleep 0.01
done
kill "$holder"
wait "$holder" 2>.holder || true # the lock is free when it has ended
run 0 "${make[@]}" again resume=15 blocks=3 pause=5
code=0
wait "$reader" || code=$?
if [ "$code" -ne 1 ]; then # it may have seen nobody hold the lock for a moment
    run 0 "$sonde" tail run -n 1000
    same <(sed -n '25p' followed) <(echo 'resumed from step 15: lines above from that step on are superseded')
    same <(sed 24,25d followed | sed -n 1,5p) <(sed -n 1,5p "$out")
    same <(tail -n 21 followed) <(sed -n 16,36p "$out")
    [ "$(wc -l <followed)" -eq $((24 + 1 + 21)) ] || fail "lines: $(wc -l <followed)"
fi

# --- its writer disappears, or tail is interrupted ----------------------------------------
run 0 "${make[@]}" crashed crash=1
flock crashed/w0000/lock sleep 120 & # as if somebody still wrote it
holder=$!
while flock -n crashed/w0000/lock true; do
    sleep 0.01
done
timeout 120 "$sonde" tail crashed --follow >followed 2>"$err" &
reader=$!
sleep 0.2
kill -0 "$reader" || fail "following ended while the run may continue"
pkill -P "$holder"
code=0
wait "$reader" || code=$?
[ "$code" -eq 1 ] || fail "a crash: status $code"
stderr_is 'sonde: warning: crashed: the writer disappeared without ending the run'
[ "$(wc -l <followed)" -eq 10 ] || fail "lines: $(cat followed)"

run 0 "${make[@]}" endless crash=1
rm endless/w0000/lock # only its heartbeat is left, and it is young
"$sonde" tail endless --follow >followed 2>"$err" &
reader=$!
for _ in $(seq 3000); do # a signal before tail waits for it would be lost
    [ "$(wc -l <followed)" -ge 10 ] && break
    touch endless/w0000/state.json
    sleep 0.01
done
kill -INT "$reader" 2>/dev/null || fail "it ended"
code=0
wait "$reader" || code=$?
[ "$code" -eq 130 ] || fail "interrupted: status $code"
