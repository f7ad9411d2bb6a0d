# lib.sh - what the tests of S3 share; sourced by each.
#
#     store PATH ...        a request to the test's side of the server: tests/s3/server.py
#     fault WHAT MATCH N    the next N requests whose "METHOD key" matches fail
#     train RUN OPTION ...  25 steps of training, recorded
. "$(dirname "$0")/../cli/lib.sh"
unset AWS_PROFILE AWS_DEFAULT_PROFILE AWS_SESSION_TOKEN AWS_REGION AWS_DEFAULT_REGION AWS_CA_BUNDLE \
    AWS_ENDPOINT_URL_S3 AWS_CONTAINER_CREDENTIALS_FULL_URI AWS_CONTAINER_CREDENTIALS_RELATIVE_URI \
    AWS_WEB_IDENTITY_TOKEN_FILE AWS_CONFIG_FILE AWS_SHARED_CREDENTIALS_FILE http_proxy https_proxy \
    all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY SONDE_SPOOL SONDE_SPOOL_BYTES
export AWS_ACCESS_KEY_ID=AKIATEST AWS_SECRET_ACCESS_KEY=secret/of+test AWS_EC2_METADATA_DISABLED=true
export HOME=$work
export SONDE_S3_LONGEST_WAIT=0.05 # outages in fast motion
# The object needs libcurl, which is loaded when it is used.
ldconfig -p 2>/dev/null | grep -q 'libcurl\(-gnutls\)\?\.so\.4' || exit 77

python3 "$(dirname "$0")/server.py" "$work/port" &
server=$!
trap 'kill $server 2>/dev/null; wait $server 2>/dev/null; rm -rf "$work"' EXIT
until [ -s "$work/port" ]; do
    kill -0 $server || exit 1
    sleep 0.02
done
export AWS_ENDPOINT_URL=http://127.0.0.1:$(cat "$work/port")

port=$(cat "$work/port")
store() { # METHOD PATH [FILE]
    if [ -z "${3-}" ]; then
        exec 9<>"/dev/tcp/127.0.0.1/$port"
        printf '%s /_/%s HTTP/1.0\r\n\r\n' "$1" "$2" >&9
        sed '1,/^\r*$/d' <&9
        exec 9>&-
        return
    fi
    python3 - "$AWS_ENDPOINT_URL/_/$2" "$1" "${3-}" <<'END'
import sys, urllib.request
url, method, path = sys.argv[1:]
body = open(path, "rb").read() if path else None
request = urllib.request.Request(url, data=body, method=method)
sys.stdout.buffer.write(urllib.request.urlopen(request).read())
END
}

fault() {
    store PUT "fault?what=$1&match=$2&count=$3"
}

data_ready=
train() {
    local at=$1
    shift
    if [ -z "$data_ready" ]; then
        "$sonde" data synth --out data --train 400 --test 100 --quiet || fail "no data"
        data_ready=yes
    fi
    run 0 "$sonde" train --data data --epochs 1 --no-pictures --quiet --record "$at" "$@"
}
