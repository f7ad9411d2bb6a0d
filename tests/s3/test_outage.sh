#!/usr/bin/env bash
# The store is away while a run is written: nothing is lost while the spool has room, and what
# is lost after that is counted; a process that dies leaves the rest to the next.
. "$(dirname "$0")/lib.sh"
printf 'segment_seconds: 0.2\nevery: 1\n' >fast.yaml
printf 'segment_seconds: 0.2\nevery: 1\nwait_seconds: 0.2\n' >impatient.yaml

# Ends an outage once it was noticed, and a file says so.
end_outage() { # MATCH PATTERN FILES
    while ! grep -qs 'the run waits in' "$err"; do sleep 0.05; done
    while ! grep -qs "$2" $3; do sleep 0.05; done
    fault outage "$1" 0
}

values() { # of a run
    run 0 "$sonde" verify "$1"
    cut -d ' ' -f 1 "$out"
}

# --- away from the first segment on, back when training is over
train local --out out1 --record-config fast.yaml --epochs 4
fault outage 'PUT%20runs/a/w0000' 1
: >"$err"
end_outage 'PUT%20runs/a/w0000' 'the run waits in' "$err" &
train s3://bucket/runs/a --out out2 --record-config fast.yaml --epochs 4
wait $!
grep -q 'the run waits in ' "$err" || fail "the outage is not told: $(cat "$err")"
grep -q 'is written again after' "$err" || fail "its end is not told: $(cat "$err")"
[ "$(values local)" = "$(values s3://bucket/runs/a)" ] || fail "values are lost"
[ -z "$(find .cache/s3-spool -type f)" ] || fail "left: $(find .cache/s3-spool -type f)"

# --- the spool is full: what is lost is counted, the rest is whole
fault outage 'PUT%20runs/b/w0000' 1
: >"$err"
end_outage 'PUT%20runs/b/w0000' '"disk_full": *[1-9]' '.cache/s3-spool/*/run/w0000/state.json' &
SONDE_SPOOL_BYTES=200000 train s3://bucket/runs/b --out out2 --record-config impatient.yaml --epochs 30
wait $!
grep -q 'records were lost to a full ring, [1-9][0-9]* to a full disk' "$err" || fail "no loss: $(cat "$err")"
lost=$(sed -n 's/.*full ring, \([0-9]*\) to a full disk.*/\1/p' "$err")
run 0 "$sonde" verify s3://bucket/runs/b
grep -q "$lost" "$out" || fail "verify does not say that $lost are lost: $(cat "$out")"

# --- never back: closing ends, and says where the rest is; the next process sends it
fault outage 'PUT%20runs/c/w0000' 1
SONDE_S3_CLOSE_SECONDS=1 train s3://bucket/runs/c --out out3 --record-config fast.yaml
grep -q 'files of [0-9]* bytes are not sent.*they are kept in ' "$err" || fail "$(cat "$err")"
fault outage 'PUT%20runs/c/w0000' 0
run 0 "$sonde" train --data data --no-pictures --quiet --record s3://bucket/runs/c --out out3 --resume --epochs 2
run 0 "$sonde" verify s3://bucket/runs/c
run 0 "$sonde" ls s3://bucket/runs/c --format json
grep -q '"last_step": *5[0-9]' "$out" || fail "$(head -c 600 "$out")"
