#!/usr/bin/env bash
# A store that fails: what is tried again, and what each message says.
. "$(dirname "$0")/lib.sh"
run=s3://bucket/runs/a

train "$run" --out out-1 --record-every 5

# --- what passes: 500, 503, resets, bodies that are cut off, slowness
for what in 500 503 reset cut slow; do
    fault $what 'GET%20runs' 3
    run 0 "$sonde" verify $run
    [ ! -s "$err" ] || fail "$what: $(cat "$err")"
done
# --- writing as well
fault 500 'PUT%20runs/b/w0000/seg' 2
fault reset 'PUT%20runs/b/w0000/st' 2
fault 503 'PUT%20runs/b/run' 1
train s3://bucket/runs/b --out out-2 --record-every 5
[ ! -s "$err" ] || fail "writing: $(cat "$err")"
run 0 "$sonde" verify s3://bucket/runs/b

# --- what does not pass
fault 403 'GET%20runs/a/run' 9
run 2 "$sonde" ls $run
stderr_is "sonde: error: $run/run.json: GET is answered by HTTP 403: AccessDenied, Access Denied (expected leave to GET for key AKIATEST..., from AWS_ACCESS_KEY_ID)"
fault 403 'GET%20runs/a/run' 0
fault 500 'GET%20runs/a/run' 99
run 2 "$sonde" ls $run
stderr_is "sonde: error: $run/run.json: GET is answered by HTTP 500 after 6 tries: InternalError, We encountered an internal error."
fault 500 'GET%20runs/a/run' 0
fault 403 'PUT%20runs/c' 99
run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 --record s3://bucket/runs/c
grep -q 's3://bucket/runs/c/run.json: PUT is answered by HTTP 403' "$err" || fail "$(cat "$err")"
[ -z "$(find .cache/s3-spool -type f)" ] || fail "left: $(find .cache/s3-spool -type f)"
fault 403 'PUT%20runs/c' 0

# --- addresses that are none: not folders of this machine either
for address in S3://bucket/runs/a s3:/bucket/runs/a s3: s3://bucket:x/a s3:///a gs://bucket/runs/a; do
    run 2 "$sonde" ls $address
    stderr_is "sonde: error: $address: not the address of a run in S3 (expected s3://bucket/prefix)"
    run 2 "$sonde" train --data data --epochs 1 --no-pictures --quiet --out out3 --record $address
    stderr_is "sonde: error: $address: not the address of a run in S3 (expected s3://bucket/prefix)"
done
[ -z "$(find . -maxdepth 1 -name '*:')" ] || fail "a folder is made: $(ls)"

run 2 env AWS_SECRET_ACCESS_KEY=wrong "$sonde" ls $run
grep -q 'SignatureDoesNotMatch.*expected the secret of key AKIATEST..., from AWS_ACCESS_KEY_ID' "$err" ||
    fail "$(cat "$err")"
run 2 env AWS_SESSION_TOKEN=old "$sonde" ls $run
grep -q 'ExpiredToken' "$err" || fail "$(cat "$err")"
run 2 env AWS_ACCESS_KEY_ID= "$sonde" ls $run
grep -q 'no credentials are found (expected AWS_ACCESS_KEY_ID' "$err" || fail "$(cat "$err")"
run 2 env AWS_ENDPOINT_URL=http://127.0.0.1:1 "$sonde" ls $run
grep -q 'no answer to GET after 6 tries:.*(expected a store at http://127.0.0.1:1)' "$err" || fail "$(cat "$err")"
run 2 env AWS_ENDPOINT_URL=ftp://x "$sonde" ls $run
grep -q "AWS_ENDPOINT_URL: 'ftp://x'" "$err" || fail "$(cat "$err")"
# What is set wrongly is an error before the first request, and TLS is not tried again.
bad() { # EXPECTED SETTING
    store GET log >/dev/null
    run 2 env "$2" "$sonde" ls "${3-$run}"
    grep -qF "$1" "$err" || fail "$2: $(cat "$err")"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "$2: more than a line: $(cat "$err")"
    store GET log >log
    ! grep -q . log || fail "$2: a request: $(cat log)"
}
bad "AWS_REGION: 'us east' (expected such as eu-west-1)" AWS_REGION='us east'
bad "SONDE_S3_ADDRESSING: 'bogus' (expected path, virtual or auto)" SONDE_S3_ADDRESSING=bogus
bad 'no answer to GET: ' AWS_ENDPOINT_URL="https://127.0.0.1:$port"
grep -q 'expected TLS at https://.*AWS_CA_BUNDLE' "$err" || fail "$(cat "$err")"
bad 'S3: not the address of a run in S3 (expected s3://bucket/prefix)' A=b $'s3://bucket/a\nb'

# --- names with blanks, letters of other alphabets, percent signs; the bucket itself
odd='s3://bucket/a b/é%20+&?#x'
train "$odd" --out out-3
run 0 "$sonde" verify "$odd///"
run 0 "$sonde" ls 's3://bucket/a b' --names
[ "$(cat "$out")" = 'é%20+&?#x' ] || fail "$(cat "$out")"
train 's3://bucket/x//y' --out out-4
run 0 "$sonde" verify 's3://bucket/x//y'
train s3://elsewhere --out out-5
run 0 "$sonde" verify s3://elsewhere/

# --- the wrong region, and a clock an hour slow
store PUT 'copy?from=runs/a&to=there' # in bucket
python3 - "$AWS_ENDPOINT_URL" <<'END'
import sys, urllib.request
base = sys.argv[1] + "/_/"
for key in urllib.request.urlopen(base + "keys").read().decode().split():
    if key.startswith("runs/a/"):
        data = urllib.request.urlopen(base + "object?key=" + key).read()
        urllib.request.urlopen(urllib.request.Request(base + "object?bucket=elsewhere&key=" + key, data, method="PUT"))
END
run 0 "$sonde" verify s3://elsewhere/runs/a
train s3://my.moved/runs/a --out out-6
[ ! -s "$err" ] || fail "a bucket that is redirected: $(cat "$err")"
run 0 "$sonde" verify s3://my.moved/runs/a
store PUT 'clock?seconds=3600'
run 0 "$sonde" verify $run
store PUT 'clock?seconds=0'

# --- credentials: files, container, instance
mkdir -p .aws
printf '[default]\naws_access_key_id = wrong\naws_secret_access_key = wrong\n[work]\naws_access_key_id = AKIATEST\naws_secret_access_key=secret/of+test\n' >.aws/credentials
printf '[profile work]\nregion = us-east-1\ns3 =\n  addressing_style = path\nendpoint_url = %s\n' "$AWS_ENDPOINT_URL" >.aws/config
run 0 env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY -u AWS_ENDPOINT_URL AWS_PROFILE=work "$sonde" verify $run
rm -r .aws
run 0 env -u AWS_ACCESS_KEY_ID AWS_CONTAINER_CREDENTIALS_FULL_URI="$AWS_ENDPOINT_URL/_/container" \
    AWS_CONTAINER_AUTHORIZATION_TOKEN='let me' "$sonde" verify $run
run 0 env -u AWS_ACCESS_KEY_ID AWS_EC2_METADATA_DISABLED=false \
    AWS_EC2_METADATA_SERVICE_ENDPOINT="$AWS_ENDPOINT_URL/_" "$sonde" verify $run
