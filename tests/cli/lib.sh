# lib.sh - what the tests of the command share; sourced by each.
#
#     run CODE COMMAND...      runs the command; stdout and stderr go to $out and $err, files
#     stderr_is LINE           the whole of stderr, of the last run
#     same FILE TEXT_FILE      both alike, else the difference is shown
set -u
sonde=${SONDE_BIN:?}/sonde
golden=${SONDE_TEST_DIR:?}/golden/cli
images=$SONDE_TEST_DIR/../examples/images
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
out=$work/.stdout
err=$work/.stderr
# Nothing comes from the network, from this home's cache, or from the caller's settings.
export SONDE_CACHE=$work/.cache SONDE_LOG_LEVEL=warning
unset SONDE_DATA SONDE_THREADS SONDE_DEVICE_ITERATIONS SONDE_GRADIENT_ACCUMULATION \
    SONDE_BATCH_SIZE SONDE_RANDOM_SEED SONDE_OUTPUT_MODE

fail() {
    echo "error: $*" >&2
    exit 1
}

run() {
    local want=$1 code=0
    shift
    "$@" >"$out" 2>"$err" </dev/null || code=$?
    if [ "$code" -ne "$want" ]; then
        cat "$out" "$err" >&2
        fail "$*: status $code, not $want"
    fi
}

stderr_is() {
    [ "$(cat "$err")" = "$1" ] || fail "stderr is '$(cat "$err")', not '$1'"
}

same() {
    diff -u "$1" "$2" >&2 || fail "$1 and $2 differ"
}

# untimed: what is in $out, with T for every time of a step, which is another each run.
untimed() {
    sed -E 's/20[0-9]{2}-[0-9]{2}-[0-9]{2}T[0-9:]{8}Z/T/g; s/("time": ?)[0-9]{10}\.[0-9]{6}/\1T/g
            s/,[0-9]{10}\.[0-9]{6},/,T,/g
            s/^(time +).*/\1HOW LONG/' "$out"
}
