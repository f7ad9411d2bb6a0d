#!/usr/bin/env bash
# A run in S3: written by train, read by each command as one in a folder is; what is there
# already; what is not there.
. "$(dirname "$0")/lib.sh"

# --- the same run in a folder and in S3
options=(--record-every 5 --vitals-every 5 --seed 3)
train local --out out1 "${options[@]}"
train s3://bucket/runs/first --out out2 "${options[@]}"
[ ! -s "$err" ] || fail "recording warns: $(cat "$err")"
same <(cksum <out1/model.safetensors) <(cksum <out2/model.safetensors)
store GET keys >keys
same keys <(printf 'runs/first/%s\n' end.json run.json w0000/catalogue.jsonl w0000/files.jsonl w0000/seg-00000000.jsonl \
    w0000/seg-00000000.safetensors w0000/state.json w0000/stats-00000000.npy w0000/steps-00000000.npy)
[ -z "$(find .cache/s3-spool -type f)" ] || fail "the spool is not empty: $(find .cache/s3-spool)"
store GET log >log
grep -q REFUSED log && fail "the store refused: $(grep REFUSED log)"
# Data come before the index, both before the steps, and the end last.
order=$(grep -o 'PUT runs/first/\(w0000/\)\?\(seg\|steps\|end\)[^ ]*' log | sed 's/.*\///' | tr '\n' ' ')
[ "$order" = "seg-00000000.safetensors seg-00000000.jsonl steps-00000000.npy end.json " ] ||
    fail "order: $order"

for command in 'ls RUN --names' 'verify RUN' 'show RUN fc2.bias --format json' 'query RUN @loss --stat mean' \
    'tail RUN' 'tail RUN --follow -n 3' 'rules RUN --no-save'; do
    for at in local s3://bucket/runs/first; do
        run 0 "$sonde" ${command//RUN/$at}
        sed "s#$at#RUN#g; s/[0-9-]*T[0-9:.]*Z//; s/\"time\": [0-9.]*//" "$out" >"answer.${at%%:*}"
    done
    same answer.local answer.s3
done
for at in local s3://bucket/runs/first; do
    run 0 "$sonde" export "$at" "${at%%:*}.npz" --format npz
done
same <(cksum <local.npz) <(cksum <s3.npz)
run 0 "$sonde" ls s3://bucket/runs/first --format json
grep -q '"path": *"s3://bucket/runs/first"' "$out" || fail "path: $(head -c 200 "$out")"

# --- a reader leaves nothing on this machine; a copy without a reader goes with the next one
[ -z "$(ls .cache/s3)" ] || fail "left: $(ls .cache/s3)"
mkdir -p .cache/s3/dead/run .cache/s3/fresh/run .cache/s3/held/run
touch -d '1 hour ago' .cache/s3/dead .cache/s3/held
flock -s .cache/s3/held "$sonde" ls s3://bucket/runs/first --names >/dev/null
[ "$(ls .cache/s3 | tr '\n' ' ')" = 'fresh held ' ] || fail "copies: $(ls .cache/s3)"
rm -r .cache/s3/*

# --- one tensor takes a part of a segment
store GET log >log
run 0 "$sonde" show s3://bucket/runs/first fc2.bias
got=$(store GET log | sed -n 's/^GET .*safetensors .*bytes=\([0-9]*\)-\([0-9]*\)$/\1 \2/p' | awk '{ n += $2 - $1 + 1 } END { print n }')
store GET 'object?key=runs/first/w0000/seg-00000000.safetensors' >segment
[ "$got" -gt 0 ] && [ "$got" -lt $(($(stat -c %s segment) / 2)) ] || fail "$got bytes were fetched"

# --- findings go to the store
run 0 python3 -B "$SONDE_TEST_DIR/docs/pages.py" files docs/own_rules.md .
run 1 "$sonde" rules s3://bucket/runs/first --rules ./loss_jump.lua:factor=0.5
store GET 'object?key=runs/first/findings/LossJump.jsonl' >findings
grep -q '"rule":"LossJump"' findings || fail "findings: $(cat findings)"
store GET 'object?key=runs/first/findings.json' >numbers
grep -q "\"LossJump\":$(wc -l <findings)" numbers || fail "numbers of findings: $(cat numbers)"
run 0 "$sonde" verify s3://bucket/runs/first
store DELETE 'object?key=runs/first/findings/LossJump.jsonl'
run 1 "$sonde" verify s3://bucket/runs/first
grep -q "findings/LossJump.jsonl: the last $(wc -l <findings) lines are missing" "$out" "$err" || fail "$(cat "$out" "$err")"
store PUT 'object?key=runs/first/findings/LossJump.jsonl' findings

# --- a prefix that has runs
run 0 "$sonde" ls s3://bucket/runs
grep -q '^first .* ended: finished' "$out" || fail "$(cat "$out")"
run 0 "$sonde" ls s3://bucket/runs --names
same "$out" <(echo first)

# --- what is there already, what is not there
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 --record s3://bucket/runs/first
grep -q 's3://bucket/runs/first: a run is there already' "$err" || fail "$(cat "$err")"
run 2 "$sonde" ls s3://bucket/runs/none
stderr_is "sonde: error: s3://bucket/runs/none: there is nothing: no object has a name that begins with 'runs/none/' in bucket bucket (expected the address of a run)"
run 2 "$sonde" ls s3://missing/run
grep -q 'NoSuchBucket' "$err" || fail "$(cat "$err")"
for bad in s3:// s3:///x 's3://a b/c'; do
    run 2 "$sonde" ls "$bad"
    grep -q 'expected s3://bucket/prefix' "$err" || fail "$bad: $(cat "$err")"
done

# --- a run that is resumed, by a process that has nothing of it but the address
train s3://bucket/runs/first --out out2 --resume --epochs 2 --seed 3
run 0 "$sonde" verify s3://bucket/runs/first
run 0 "$sonde" ls s3://bucket/runs/first
grep -q '^resumed\|resumed' "$out" || fail "$(cat "$out")"

# --- a segment that the store has lost
store DELETE "object?key=runs/first/w0000/seg-00000000.safetensors"
run 1 "$sonde" verify s3://bucket/runs/first
grep -q 'segment 00000000' "$out" "$err" || fail "$(cat "$out" "$err")"

# --- a directory of smdebug
smdebug=$SONDE_TEST_DIR/golden/runs/smdebug
python3 - "$AWS_ENDPOINT_URL/_/object?key=smdebug/" "$smdebug" <<'END' || fail "the directory is not stored"
import os, sys, urllib.request
url, root = sys.argv[1:]
for folder, _, names in os.walk(root):
    for name in names:
        path = os.path.join(folder, name)
        data = open(path, "rb").read()
        name = os.path.relpath(path, root)
        urllib.request.urlopen(urllib.request.Request(url + name, data=data, method="PUT")).read()
END
for command in 'ls RUN --names' 'query RUN @losses --stat mean' 'verify RUN'; do
    run 0 "$sonde" ${command//RUN/$smdebug}
    sed "s#$smdebug#RUN#g" "$out" >answer.folder
    run 0 "$sonde" ${command//RUN/s3://bucket/smdebug}
    sed "s#s3://bucket/smdebug#RUN#g" "$out" >answer.store
    [ -s answer.folder ] || fail "$command: nothing"
    same answer.folder answer.store
done
