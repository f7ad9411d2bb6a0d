#!/usr/bin/env bash
# What stores do differently: virtual hosts, answers in chunks, ETags of uploads in parts, empty
# objects; another run at the same address; and what a follower asks for.
. "$(dirname "$0")/lib.sh"
run=s3://bucket/runs/a
printf 'every: 1\nsegment_seconds: 1000\n' >whole.yaml

# --- in parts, whose ETag is no MD5 of the object; then in chunks
SONDE_S3_PART_BYTES=1000000 train $run --out out-1 --record-config whole.yaml
store GET log >log
grep -q 'partNumber=2' log || fail "no parts: $(cat log)"
run 0 "$sonde" verify $run
cp "$out" verified
store PUT 'habit?chunked=1'
run 0 "$sonde" verify $run
same "$out" verified
train s3://bucket/runs/b --out out-2
run 0 "$sonde" verify s3://bucket/runs/b
run 2 "$sonde" ls s3://bucket/runs/none
grep -q 'there is nothing' "$err" || fail "$(cat "$err")"
store PUT 'habit?chunked=0'

# --- an object without bytes
store PUT 'object?key=runs/b/findings/Empty.jsonl'
run 0 "$sonde" verify s3://bucket/runs/b

# --- the bucket is a host
if curl -s -o /dev/null "http://bucket.localhost:$port/_/keys"; then # its libcurl knows such names
    store GET log >log
    run 0 env AWS_ENDPOINT_URL="http://localhost:$port" SONDE_S3_ADDRESSING=virtual "$sonde" verify $run
    store GET log >log
    grep -q '^VIRTUAL GET runs/a/' log || fail "not virtual: $(cat log)"
    grep -q REFUSED log && fail "$(grep REFUSED log)"
    run 0 env AWS_ENDPOINT_URL="http://localhost:$port" SONDE_S3_ADDRESSING=virtual "$sonde" train --data data \
        --epochs 1 --no-pictures --quiet --out out-3 --record 's3://bucket/a b/é%20+'
    [ ! -s "$err" ] || fail "$(cat "$err")"
    run 0 "$sonde" verify 's3://bucket/a b/é%20+'
fi

# --- another run at the address of one that was read
run 0 "$sonde" ls s3://bucket/runs/b --format json
grep -o '"id": *"[0-9a-f]*"' "$out" >old
for key in $(store GET keys | grep '^runs/b/'); do
    store DELETE "object?key=$key"
done
train s3://bucket/runs/b --out out-2 --record-every 3
run 0 "$sonde" verify s3://bucket/runs/b
run 0 "$sonde" ls s3://bucket/runs/b --format json
grep -o '"id": *"[0-9a-f]*"' "$out" >new
[ -s old ] && [ -s new ] && ! cmp -s old new || fail "the copy of the old run is read: $(cat old new)"

# --- a follower of a run in which nothing happens asks for its states alone
printf 'segment_seconds: 0.2\nevery: 20\n' >fast.yaml
"$sonde" train --data data --epochs 100000 --rules none --no-pictures --quiet --out out-4 \
    --record s3://bucket/runs/live --record-config fast.yaml >train.out 2>&1 &
job=$!
trap 'kill -9 $job $tail $server 2>/dev/null; wait; rm -rf "$work"' EXIT
until "$sonde" ls s3://bucket/runs/live --names >/dev/null 2>&1; do
    kill -0 $job || fail "training: $(cat train.out)"
    sleep 0.1
done
"$sonde" tail s3://bucket/runs/live --follow >tail.out 2>&1 &
tail=$!
until [ -s tail.out ]; do
    kill -0 $tail || fail "tail: $(cat tail.out)"
    sleep 0.1
done
run 0 "$sonde" verify $run # removes its own copy, and not that of another reader
left=$(find .cache/s3 -path '*/run/*' -type f)
case $left in *steps-*) ;; *) fail "the copy of a follower is removed: $left" ;; esac
[ "$(printf '%s\n' "$left" | cut -d / -f 3 | sort -u | wc -l)" -eq 1 ] || fail "not removed: $left"
kill -STOP $job
quiet=
for _ in $(seq 60); do # at first it takes what was sent last
    store GET log >/dev/null
    sleep 1
    store GET log >log
    [ "$(grep -c 'GET runs/live/w0000/state.json' log)" -gt 1 ] || continue
    grep -qv '^GET runs/live/\(w0000/state.json\|end.json\)$' log || quiet=yes
    [ -z "$quiet" ] || break
done
[ -n "$quiet" ] || fail "a refresh asks for more: $(cat log)"
