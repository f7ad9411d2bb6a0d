#!/usr/bin/env bash
# What a process that died left on its machine: sonde send, the next run into the same place,
# uploads in parts that begin again.
. "$(dirname "$0")/lib.sh"
printf 'segment_seconds: 0.2\nevery: 50\n' >fast.yaml
printf 'every: 1\nsegment_seconds: 1000\n' >whole.yaml # one segment, of more than 10 MB
run=s3://bucket/runs/a

values() { # of a run
    run 0 "$sonde" verify "$1"
    head -n 1 "$out" | cut -d ' ' -f 1
}

# --- nothing is left
run 0 "$sonde" send
[ ! -s "$out" ] || fail "$(cat "$out")"
run 2 "$sonde" send $run
stderr_is "sonde: error: $run: nothing of it is left on this machine (expected an address that sonde send --list prints)"

# --- killed in an outage: the files and the last records are sent later
train local --out out1 --epochs 1 # makes the data
fault outage 'PUT%20runs/a/w0000' 1
"$sonde" train --data data --epochs 100000 --rules none --no-pictures --quiet --out out2 --record $run \
    --record-config fast.yaml >/dev/null 2>&1 &
job=$!
until [ -n "$(find .cache/s3-spool -name 'steps-*3.npy' 2>/dev/null)" ]; do
    kill -0 $job || fail "training ended"
    sleep 0.1
done
run 0 "$sonde" send --list
grep -q "^$run: worker 0, [0-9]* files, .*, being written$" "$out" || fail "$(cat "$out")"
run 0 "$sonde" send # what is being written is left alone
grep -q 'being written$' "$out" || fail "$(cat "$out")"
kill -9 $job
wait $job 2>/dev/null
folder=$(echo .cache/s3-spool/*/run)
[ -f "$folder/w0000/ring" ] || fail "no ring: $(ls "$folder/w0000")"
# A reader of the folder recovers the ring: how many values there are.
cp -r "$folder" dead
here=$(values dead)
run 0 "$sonde" send --list
grep -q "^$run: worker 0, [0-9]* files, .* in .*, endpoint $AWS_ENDPOINT_URL$" "$out" || fail "$(cat "$out")"
# It is told by the next run into the same place.
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 --record $run
grep -q "a run is there already, of which files are left here: sonde send $run" "$err" || fail "$(cat "$err")"
# An outage that lasts: the error says what is left, and nothing is lost.
run 2 env SONDE_S3_CLOSE_SECONDS=0.5 "$sonde" send $run
grep -q 'files of [0-9]* bytes are not sent.*(expected sonde send' "$err" || fail "$(cat "$err")"
fault outage 'PUT%20runs/a/w0000' 0
run 0 "$sonde" send
grep -q "^$run: worker 0: sent .*, with [0-9]* records from memory$" "$out" || fail "$(cat "$out")"
[ "$(values $run)" = "$here" ] || fail "$(values $run) values, not $here"
[ -z "$(find .cache/s3-spool -type f)" ] || fail "left: $(find .cache/s3-spool -type f)"
run 0 "$sonde" ls $run

# --- an upload in parts begins again in the next process; unfinished ones of the run are aborted
store PUT 'uploads?key=runs/b/w0000/seg-00000099.safetensors'
store PUT 'uploads?key=runs/other'
# Records a run and dies when two parts of its segment are sent.
die_in_parts() { # RUN
    fault outage 'partNumber=3' 1
    : >parts.err # not that of an earlier one
    SONDE_S3_PART_BYTES=5000000 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 \
        --record "$1" --record-config whole.yaml >/dev/null 2>parts.err &
    job=$!
    until grep -q 'the run waits in' parts.err; do
        kill -0 $job || fail "training: $(cat parts.err)"
        sleep 0.05
    done
    kill -9 $job
    wait $job 2>/dev/null
    fault outage 'partNumber=3' 0
}

die_in_parts s3://bucket/runs/b
store GET log >log
grep -q 'partNumber=2' log || fail "no parts: $(cat log)"
store PUT 'uploads?key=runs/b/w0000/seg-00000099.safetensors'
SONDE_S3_PART_BYTES=5000000 run 0 "$sonde" send s3://bucket/runs/b
store GET log >log
grep -q 'partNumber=3' log || fail "no part 3: $(cat log)"
grep -q 'seg.*partNumber=1&' log || fail "it does not begin again: $(grep partNumber log)"
store GET uploads >uploads
[ ! -s uploads ] || fail "left in the store: $(cat uploads)"
values s3://bucket/runs/b >/dev/null
# --- the run was removed from the store meanwhile, or another is there
fault outage 'PUT%20runs/d/w0000' 1
SONDE_S3_CLOSE_SECONDS=0.3 train s3://bucket/runs/d --out out3 --record-config whole.yaml
fault outage 'PUT%20runs/d/w0000' 0
store DELETE 'object?key=runs/d/run.json'
run 2 "$sonde" send s3://bucket/runs/d
grep -q 'it has been removed from the store; remove ' "$err" || fail "$(cat "$err")"
train s3://bucket/runs/d --out out3 # which says so, and begins anew
grep -q 'the run of an earlier process has been removed from the store' "$err" || fail "$(cat "$err")"
run 0 "$sonde" verify s3://bucket/runs/d
