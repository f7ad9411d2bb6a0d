#!/usr/bin/env bash
# Memory that runs out anywhere in a command, in a library that it uses as well: the command
# ends as if it had not, or with status 2 and an error. Never a crash, a hang or a wrong answer.
. "$(dirname "$0")/lib.sh"
[ -z "${SONDE_SLOWED_BY-}" ] || exit 77 # a sanitizer has a malloc of its own
failing=$SONDE_TEST_PLUGINS/failing_malloc.so
ldd "$sonde" | grep -q 'libc\.so\.6' || exit 77 # its malloc has the names that failing_malloc calls

run 0 "$sonde" data synth --out data --train 64 --test 16 --quiet
run 0 "$sonde" train --data data --epochs 1 --no-pictures --quiet --record-every 2 --record folder/run --out out

try() { # N COMMAND...
    local n=$1 code=0
    shift
    rm -f exported
    FAILING_MALLOC=$n FAILING_MALLOC_COUNT=counted timeout 60 env LD_PRELOAD="$failing" "$sonde" "$@" >answer 2>error || code=$?
    [ "$n" -ge 0 ] || { mv answer whole && mv counted count; }
    case $code in
    0) cmp -s answer whole || [ "$n" -lt 0 ] || fail "$*: status 0, another answer without allocation $n" ;;
    2) grep -q . error || fail "$*: no error without allocation $n" ;;
    *) fail "$*: status $code without allocation $n: $(cat error)" ;;
    esac
}

every() { # STEP FIRST COMMAND...
    local step=$1 first=$2 n
    shift 2
    try -1 "$@"
    for ((n = first < 0 ? $(cat count) + first : first; n < $(cat count); n += step)); do
        try $n "$@"
    done
}

# The last ones where the answer is put together.
every 6 -240 ls folder/run
every 6 -240 rules folder/run --no-save --rules NonFinite
for command in 'ls folder/run --format json' 'ls folder' 'show folder/run fc2.bias' 'tail folder/run' \
    'export folder/run exported --format npz' 'verify folder/run'; do
    every 401 0 $command
done
