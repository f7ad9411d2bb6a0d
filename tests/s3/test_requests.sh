#!/usr/bin/env bash
# What goes over the line: how many requests a reader makes, of which bytes and how many at a
# time; that two runs never get one address; how long a live reader bears a store that is away.
. "$(dirname "$0")/lib.sh"
run=s3://bucket/runs/a
train $run --out out-1 --record-every 1
store GET log >/dev/null

# --- the check for a run is atomic: one that appears after it was looked for is not touched
store GET 'object?key=runs/a/run.json' >before
fault 404 'GET%20runs/a/run.json' 1
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out-2 --record $run
grep -q "$run: a run is there already" "$err" || fail "$(cat "$err")"
store GET log >log
grep -q 'GET runs/a/run.json.* 404' log || fail "the run was seen: $(cat log)"
[ "$(grep -c PUT log)" -eq 1 ] && grep -q 'PUT runs/a/run.json' log || fail "more is written: $(cat log)"
store GET 'object?key=runs/a/run.json' >after
same before after
# A run is its own, if the answer to its first request is lost.
fault lost 'PUT%20runs/b/run.json' 1
train s3://bucket/runs/b --out out-3
[ ! -s "$err" ] || fail "$(cat "$err")"
run 0 "$sonde" verify s3://bucket/runs/b

# --- opening takes the list, and each file once, 8 at a time
printf 'every: 1\nsegment_bytes: 400000\n' >many.yaml
train $run-many --out out-4 --record-config many.yaml
store GET log >/dev/null
store GET busy >/dev/null
fault meet 'GET%20runs/a-many/.*safetensors' 8 # each waits for the seven others
run 0 "$sonde" ls $run-many --names
most=$(store GET busy)
[ "$most" -eq 8 ] || fail "$most requests at a time"
store GET log >log
awk '$2 != "runs/a-many/" && $2 ~ /^runs/ { print $1, $2 }' log | sort | uniq -c | awk '$1 > 1' >again
[ ! -s again ] || fail "asked for twice: $(cat again)"
grep -q 'GET  .*list-type' log || fail "no list: $(cat log)"

# --- show of one tensor reads that tensor, in blocks of 16 KiB; export reads ahead, up to 8 MiB;
# verify reads the files whole, 16 MiB at once
parts() { # the first byte and the number of bytes of each request for a part of a segment
    store GET log | sed -n 's/^GET .*safetensors .*bytes=\([0-9]*\)-\([0-9]*\)$/\1 \2/p' | awk '{ print $1, $2 - $1 + 1 }'
}
block=$((16 * 1024)) MiB=$((1024 * 1024))
run 0 "$sonde" ls $run --names
parts >parts
same parts <(echo "0 $block") # its header
run 0 "$sonde" show $run fc2.bias
parts >parts
awk -v block=$block '$1 % block || $2 > 2 * block { exit 1 } END { exit NR != 2 }' parts || fail "show: $(cat parts)"
run 0 "$sonde" export $run exported.npz --format npz
parts >parts
awk -v most=$((8 * MiB)) -v value=$((MiB / 2)) '$2 > most + value { exit 1 } $2 > most / 2 { far = 1 } END { exit !far || NR > 25 }' \
    parts || fail "export: $(cat parts)"
run 0 "$sonde" verify $run
parts >parts
awk -v most=$((16 * MiB)) '$2 > most { exit 1 } $2 == most { whole = 1 } END { exit !whole || NR > 3 }' parts ||
    fail "verify: $(cat parts)"

# --- a reader of a live run bears a store that is away, for as long as it is told
printf 'segment_seconds: 0.2\nevery: 20\n' >fast.yaml
"$sonde" train --data data --epochs 100000 --rules none --no-pictures --quiet --out out-5 \
    --record s3://bucket/runs/live --record-config fast.yaml >train.out 2>&1 &
job=$!
trap 'kill -9 $job $patient $server 2>/dev/null; wait; rm -rf "$work"' EXIT
until "$sonde" ls s3://bucket/runs/live --names >/dev/null 2>&1; do
    kill -0 $job || fail "training: $(cat train.out)"
    sleep 0.1
done
SONDE_S3_READ_SECONDS=1e9 "$sonde" tail s3://bucket/runs/live --follow >patient.out 2>patient.err &
patient=$!
SONDE_CACHE=$work/other SONDE_S3_READ_SECONDS=0.001 "$sonde" tail s3://bucket/runs/live --follow >hasty.out 2>hasty.err &
hasty=$!
until [ -s patient.out ] && [ -s hasty.out ]; do
    kill -0 $patient && kill -0 $hasty || fail "tail: $(cat patient.err hasty.err)"
    sleep 0.1
done
fault outage 'GET%20runs/live/w0000' 1
code=0
wait $hasty || code=$?
[ $code -eq 2 ] || fail "tail without patience: status $code, $(cat hasty.err)"
grep -q 'no answer to GET after 6 tries' hasty.err || fail "$(cat hasty.err)"
until [ -s patient.err ]; do sleep 0.1; done
grep -q 'trying again for' patient.err || fail "$(cat patient.err)"
lines=$(wc -l <patient.out)
fault outage 'GET%20runs/live/w0000' 0
until [ "$(wc -l <patient.out)" -gt "$lines" ]; do
    kill -0 $patient || fail "tail: $(cat patient.err)"
    sleep 0.1
done
