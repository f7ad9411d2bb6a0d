#!/usr/bin/env bash
# The semantics of another S3: moto's server, from PyPI. It takes 10 to 25 s, so it runs on demand:
#
#     python3 -m venv DIR && DIR/bin/pip install 'moto[server]'
#     SONDE_MOTO=DIR/bin/moto_server ctest -R s3/test_moto
moto=${SONDE_MOTO-}
[ -n "$moto" ] || { echo "SONDE_MOTO does not name a moto_server"; exit 77; }
. "$(dirname "$0")/lib.sh"
free=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$moto" -H 127.0.0.1 -p "$free" >moto.log 2>&1 &
other=$!
trap 'kill $server $other 2>/dev/null; wait 2>/dev/null; rm -rf "$work"' EXIT
export AWS_ENDPOINT_URL=http://127.0.0.1:$free

request() { # METHOD PATH: of a client that does not sign
    python3 - "$AWS_ENDPOINT_URL$2" "$1" <<'END'
import sys, time, urllib.error, urllib.request
for _ in range(300):
    try:
        sys.stdout.write(urllib.request.urlopen(urllib.request.Request(sys.argv[1], method=sys.argv[2])).read().decode())
        break
    except urllib.error.HTTPError as error:
        sys.exit(str(error))
    except OSError:
        time.sleep(0.1)
END
}
request PUT /bucket

# --- a run, in one piece and in parts
printf 'every: 1\n' >whole.yaml
train local --out out1 --record-config whole.yaml --seed 3
export SONDE_S3_PART_BYTES=5242880
train s3://bucket/runs/first --out out2 --record-config whole.yaml --seed 3
[ ! -s "$err" ] || fail "recording warns: $(cat "$err")"
for command in 'ls RUN --names' 'verify RUN' 'show RUN fc2.bias --format json' 'query RUN @loss --stat mean' 'tail RUN'; do
    for place in local s3://bucket/runs/first; do
        run 0 "$sonde" ${command//RUN/$place}
        sed "s#$place#RUN#g; s/[0-9-]*T[0-9:.]*Z//; s/\"time\": [0-9.]*//" "$out" >"answer.${place%%:*}"
    done
    same answer.local answer.s3
done
for place in local s3://bucket/runs/first; do
    run 0 "$sonde" export "$place" "${place%%:*}.npz" --format npz
done
same <(cksum <local.npz) <(cksum <s3.npz)
# A part of a segment alone.
run 0 "$sonde" show s3://bucket/runs/first fc2.bias

# --- what is there already; a resumed run, which deletes end.json
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 --record s3://bucket/runs/first
grep -q 'a run is there already' "$err" || fail "$(cat "$err")"
train s3://bucket/runs/first --out out2 --resume --epochs 2 --seed 3
run 0 "$sonde" verify s3://bucket/runs/first
grep -q 'the run was resumed' "$out" || fail "$(cat "$out")"
run 2 "$sonde" ls s3://bucket/runs/none
grep -q 'there is nothing' "$err" || fail "$(cat "$err")"
run 2 "$sonde" ls s3://missing/run
grep -q NoSuchBucket "$err" || fail "$(cat "$err")"

# --- an upload in parts that another process ends; one that nobody does is aborted
request GET '/bucket?uploads' | grep -q '<Upload>' && fail "an upload is left"
request POST '/bucket/runs/first/w0000/seg-00000099.safetensors?uploads' >upload
train s3://bucket/runs/first --out out2 --resume --epochs 3 --seed 3
request GET '/bucket?uploads' | grep -q '<Upload>' && fail "an upload is left: $(request GET '/bucket?uploads')"

# --- names that are encoded, and lists of more than 1000
train 's3://bucket/a b/é%20+&x' --out out3
run 0 "$sonde" verify 's3://bucket/a b/é%20+&x'
train s3://bucket/many --out out3
python3 - "$AWS_ENDPOINT_URL/bucket/many" <<'END'
import http.client, sys, urllib.parse
url = urllib.parse.urlsplit(sys.argv[1])
line = http.client.HTTPConnection(url.netloc)
for i in range(1100):  # before run.json in the list
    line.request("PUT", f"{url.path}/a{i:04}/note", b"")
    line.getresponse().read()
END
run 0 "$sonde" verify s3://bucket/many
