#!/usr/bin/env bash
# Reading a run, wrongly asked for: one line that says what and where, status 2, nothing written.
. "$(dirname "$0")/lib.sh"
make=("$SONDE_BIN/tests_export" test_export make)
run 0 "${make[@]}" run
: >file
mkdir empty
before=$(find . -type f | sort)

check() { # PATTERN COMMAND...: an extended expression of the whole line after "error: "
    local pattern=$1
    shift
    run 2 "$sonde" "$@"
    [ "$(wc -l <"$err")" -eq 1 ] || fail "$*: not one line: $(cat "$err")"
    [ ! -s "$out" ] || fail "$*: stdout: $(cat "$out")"
    grep -qE "^sonde: error: $pattern\$" "$err" || fail "$*: $(cat "$err")"
    [ "$(find . -type f | sort)" = "$before" ] || fail "$*: files: $(find . -newer file)"
}

# runs that are none
for words in 'ls' 'show x' 'tail' 'tail --follow' 'query x' 'export out --format csv' 'verify' \
    'verify --format json' 'plot x -o out.png'; do
    set -- $words
    command=$1
    shift
    check 'nowhere: .*No such file or directory' "$command" nowhere "$@"
    check 'file: a file \(expected the folder of a run\)' "$command" file "$@"
    check 'empty: not a run: .*run\.json.*' "$command" empty "$@"
done

# tensors
for words in 'ls' 'show' 'tail' 'query'; do
    check ".*'conv1\.wieght'.*conv1\.weight.*" "$words" run conv1.wieght
    [ "$words" = show ] || check '.*re:\(.*' "$words" run 're:('
done
check ".*'conv1\.wieght'.*conv1\.weight.*" export run out conv1.wieght --format npz
check ".*'conv1\.wieght'.*conv1\.weight.*" plot run conv1.wieght -o out.png
check ".*'conv1\.wieght'.*conv1\.weight.*" plot run conv1.wieght --histogram -o out.png
check 'nope\*: matches no tensor' export run out.npz 'nope*' --format npz
check 'nope\*: matches no tensor' plot run 'nope*' -o out.png
check ".*@weihgt.*" query run @weihgt

# steps that were not saved
check 'fc\.bias: no value was saved at step 13; the nearest are 12 and 24' show run fc.bias --step 13
check 'fc\.bias: no value was saved at train step 45; the last is step 30' \
    show run fc.bias --step 45 --mode train
check 'fc\.bias: no value was saved at any eval step' show run fc.bias --mode eval
check 'act: no value was saved at step 12 by this worker, micro-batch or replica' \
    show run act --step 12 --micro-batch 2
check 'act: no value was saved at step 12 by this worker, micro-batch or replica' \
    show run act --step 12 --worker 1
check 'fc\.bias: neither value nor vital signs was saved at steps 13 to 20; the nearest are 12 and 24' \
    query run fc.bias --steps 13:21
check 'fc\.bias: neither value nor sketch was saved at step 2; the nearest are 0 and 12' \
    show run fc.bias --histogram --step 2
check 'fc\.bias: neither value nor vital signs was saved from step 37 on; the last is step 36' \
    plot run fc.bias --steps 37: -o out.png
check 'out\.npz: no raw value of these tensors and steps can be read' \
    export run out.npz fc.bias --format npz --steps 13
check 'out\.csv: nothing of these tensors and steps was recorded' \
    export run out.csv fc.bias --format csv --steps 13

# options
check ".*unknown reduction 'menn' \(expected mean\)" query run loss --stat menn
check ".*unknown reduction ''.*" query run loss --stat mean,
check "--stat: 'mean' appears twice \(expected each once\)" tail run --stat mean,std,mean
for steps in 5:5 7:3 x -1 1:2:3 99999999999999999999 : 3.5; do
    [ "$steps" = : ] && continue
    check "--steps: '$steps' \(expected A:B \(.*\)" query run loss "--steps=$steps"
done
check "--mode: 'trian' \(expected train, eval, predict or global\)" tail run --mode trian
check "--format: 'xml' \(expected text, csv, json or jsonl\)" query run loss --format xml
check "--format: unknown format 'hdf5' \(expected tensorboard, npz, safetensors, csv or jsonl\)" \
    export run out --format hdf5
check '--format: is missing \(expected .*\)' export run out
check '.*--statt.*' query run loss --statt mean
check 'show: --summary and --histogram \(expected one of them\)' show run loss --summary --histogram
check '--out: is missing \(expected FILE\.png or FILE\.svg\)' plot run loss
check ".*'\.gif'.*\(expected \.png or \.svg\)" plot run loss -o out.gif
check '--histogram: several tensors, or --stat \(expected one tensor\)' \
    plot run loss fc.bias --histogram -o out.png
check '.*digits.*' show run loss --digits 99
check 'plot: more than 32 curves \(expected fewer tensors or statistics\)' \
    plot run '*' -o out.png --stat count,min,max,mean,std
check '.*' show run
check '.*' export run

# places
for kind in tensorboard npz safetensors csv jsonl; do
    check 'file: exists already \(expected a path where nothing is\)' export run file --format $kind
    check 'empty: exists already .*' export run empty --format $kind
    check 'no/out: cannot be written: No such file or directory' export run no/out --format $kind
    check 'file/out: cannot be written: Not a directory' export run file/out --format $kind
done
check '.*no/out\.png.*No such file or directory' plot run loss -o no/out.png

# a run that is of a newer format, or cut
cp -r run newer
sed -i 's/"sonde_run":1/"sonde_run":9/' newer/run.json
before=$(find . -type f | sort)
check 'newer.*: .*9.*' ls newer
