#!/usr/bin/env bash
# A run in S3 while it is written: tail follows it, every value of a step that is told is
# there, rules judge it, and a request of another process stops it.
. "$(dirname "$0")/lib.sh"
printf 'segment_seconds: 0.2\nevery: 20\n' >fast.yaml
run=s3://bucket/runs/live

"$sonde" data synth --out data --train 400 --test 100 --quiet
"$sonde" train --data data --epochs 100000 --rules none --no-pictures --quiet --out out --record $run --record-config fast.yaml >train.out 2>&1 &
job=$!
trap 'kill $job $server 2>/dev/null; wait; rm -rf "$work"' EXIT
until "$sonde" ls $run --names >/dev/null 2>&1; do
    kill -0 $job || fail "training: $(cat train.out)"
    sleep 0.1
done
SONDE_CACHE=$work/other "$sonde" tail $run --follow --mode train >tail.out 2>tail.err &
tail=$!
(SONDE_CACHE=$work/third timeout 250 "$sonde" rules $run --follow >rules.out 2>rules.err; echo $? >rules.code) &
until [ "$(wc -l <tail.out)" -gt 30 ]; do
    kill -0 $tail && kill -0 $job || fail "tail follows nothing: $(cat tail.out tail.err train.out)"
    sleep 0.1
done
# The last step that is complete has its values.
run 0 "$sonde" show $run fc2.bias --mode train
run 0 "$sonde" verify $run
# A checkpoint does not wait for data that come faster than they are sent.
fault slower 'PUT%20runs/live/w0000/seg' 1000000
run 0 "$sonde" checkpoint $run
until store GET keys | grep -q '^runs/live/checkpoints/step-[0-9]*\.safetensors$'; do
    kill -0 $job || fail "training: $(cat train.out)"
    sleep 0.1
done
fault slower 'PUT%20runs/live/w0000/seg' 0
run 0 "$sonde" stop $run
wait $job
code=$?
[ $code -eq 130 ] || fail "training: status $code, $(cat train.out)"
wait $tail || fail "tail: $(cat tail.err)"
[ ! -s tail.err ] || fail "tail warns: $(cat tail.err)"
# Each training step once, in order, without a gap, to the last.
grep -o '  train [0-9]*' tail.out | awk '{ if (NR > 1 && $2 != last + 1) { print "gap at", $2; exit 1 } last = $2 }' ||
    fail "steps are missing"
run 0 "$sonde" ls $run --format json
grep -q '"end_reason": *"interrupted"' "$out" || fail "$(head -c 400 "$out")"
run 0 "$sonde" verify $run
until [ -s rules.code ]; do
    sleep 0.1
done
case $(cat rules.code) in 0 | 1) ;; *) fail "rules: $(cat rules.out rules.err)" ;; esac
